//! Bounds that stop accidental or malicious source from using unbounded memory or time.

/// Maximum sizes of the source, of its parts, and of the generated code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompilerLimits {
    /// Depth of nested `#include`s. Stops a file that includes itself without a guard. Default:
    /// 200.
    pub max_include_depth: usize,
    /// Total number of file inclusions. Stops files that include the next file twice, so that the
    /// number doubles with every level. Default: 20,000.
    pub max_inclusions: usize,
    /// Total number of tokens that macros produce or examine. Stops macros that use the next macro
    /// twice. Default: 2,000,000.
    pub max_expanded_tokens: usize,
    /// Nesting depth of macro uses in macro arguments. Default: 100.
    pub max_argument_nesting: usize,
    /// Nesting depth of declarations, types and expressions. Prevents a stack overflow. Default:
    /// 100.
    pub max_nesting: usize,
    /// Size of one file in bytes, the main file included. Default: 64 MiB.
    pub max_file_size: usize,
    /// Total number of bases of one interface, value type, structure or bit set. Bounds the
    /// generated code, which repeats inherited parts. Default: 200.
    pub max_bases: usize,
    /// Operations of one interface, including inherited operations. Default: 10,000.
    pub max_operations: usize,
    /// Array elements in one value of an array, structure or union. The sizes of nested arrays are
    /// multiplied. Default: 268,435,456.
    pub max_array_elements: u64,
    /// Size of the generated Rust code in bytes. Default: 64 MiB.
    pub max_output_bytes: usize,
}

impl Default for CompilerLimits {
    fn default() -> Self {
        Self {
            max_include_depth: 200,
            max_inclusions: 20_000,
            max_expanded_tokens: 2_000_000,
            max_argument_nesting: 100,
            max_nesting: 100,
            max_file_size: 64 << 20,
            max_bases: 200,
            max_operations: 10_000,
            max_array_elements: 1 << 28,
            max_output_bytes: 64 << 20,
        }
    }
}
