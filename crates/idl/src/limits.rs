//! Bounds on source text, so that no input, made by accident or malice, takes memory or time without end.

/// What the compiler accepts at most. Each bound ends in an error that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Files including files: stops a file that includes itself without a guard.
    pub include_depth: usize,
    /// Files read in all, a file counted each time: stops files that include each other twice, whose number
    /// of readings doubles with every level.
    pub inclusions: usize,
    /// Tokens that come out of macros, and tokens of their bodies and arguments, in all: stops macros that double each other.
    pub expanded_tokens: usize,
    /// Macro uses within the arguments of macro uses.
    pub argument_nesting: usize,
    /// Nested declarations, types and expressions: stops a stack overflow.
    pub nesting: usize,
    /// Octets of one file, the main one too.
    pub file_size: usize,
    /// Interfaces that one interface inherits from, in all, and the same for value types, structures and bit sets: each is
    /// written with what it inherits.
    pub bases: usize,
    /// Operations of one interface, inherited ones included.
    pub operations: usize,
    /// Elements that an array may have, all dimensions multiplied, those of arrays and structures in it too; and the same of
    /// a structure or union.
    pub array_elements: u64,
    /// Octets of Rust code that one text may become.
    pub output: usize,
}

impl Default for Limits {
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
