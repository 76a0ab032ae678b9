//! Bounds that stop accidental or malicious source from using unbounded memory or time.

/// The maxima that the compiler accepts. A source that exceeds one of them is refused, and the
/// message names the maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompilerLimits {
    /// Depth of nested `#include`s. Stops a file that includes itself without a guard. Default:
    /// 200.
    pub include_depth: usize,
    /// Total number of file inclusions. Stops files that include the next file twice, so that the
    /// number doubles with every level. Default: 20,000.
    pub inclusions: usize,
    /// Total number of tokens that macros produce or examine. Stops macros that use the next macro
    /// twice. Default: 2,000,000.
    pub expanded_tokens: usize,
    /// Nesting depth of macro uses in macro arguments. Default: 100.
    pub argument_nesting: usize,
    /// Nesting depth of declarations, types and expressions. Prevents a stack overflow. Default:
    /// 100.
    pub nesting: usize,
    /// Size of one file in bytes, the main file included. Default: 64 MiB.
    pub file_size: usize,
    /// Total number of bases of one interface, value type, structure or bit set. Bounds the
    /// generated code, which repeats inherited parts. Default: 200.
    pub bases: usize,
    /// Operations of one interface, including inherited ones. Default: 10,000.
    pub operations: usize,
    /// Elements of one array, structure or union. The dimensions of nested arrays and structures
    /// are multiplied. Default: 268,435,456.
    pub array_elements: u64,
    /// Size of the generated Rust code in bytes. Default: 64 MiB.
    pub output: usize,
}

impl Default for CompilerLimits {
    fn default() -> Self {
        Self {
            include_depth: 200,
            inclusions: 20_000,
            expanded_tokens: 2_000_000,
            argument_nesting: 100,
            nesting: 100,
            file_size: 64 << 20,
            bases: 200,
            operations: 10_000,
            array_elements: 1 << 28,
            output: 64 << 20,
        }
    }
}
