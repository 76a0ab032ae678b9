//! Bounds that stop accidental or malicious source from using unbounded memory or time.

/// The maxima that the compiler accepts. Exceeding one is an error that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompilerLimits {
    /// Nested `#include` depth: stops a file that includes itself without a guard. Default: 200.
    pub include_depth: usize,
    /// Total number of file inclusions: stops files that include each other twice, whose number
    /// doubles with every level. Default: 20,000.
    pub inclusions: usize,
    /// Total number of tokens produced by macros, including those of macro bodies and arguments:
    /// stops macros that double each other. Default: 2,000,000.
    pub expanded_tokens: usize,
    /// Nested macro uses in macro arguments. Default: 100.
    pub argument_nesting: usize,
    /// Nested declarations, types and expressions: stops a stack overflow. Default: 100.
    pub nesting: usize,
    /// Size of one file in bytes, the main file included. Default: 64 MiB.
    pub file_size: usize,
    /// Total number of bases of one interface, value type, structure or bit set. The generated code
    /// repeats inherited parts. Default: 200.
    pub bases: usize,
    /// Operations of one interface, including inherited ones. Default: 10,000.
    pub operations: usize,
    /// Elements of one array, structure or union: all dimensions multiplied, including nested
    /// arrays and structures. Default: 268,435,456.
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
