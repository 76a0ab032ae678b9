//! The operation that a client's stub calls.

/// An operation that a stub calls.
///
/// # Examples
/// ```
/// use corelane::mapping::Operation;
/// static OPERATION: Operation = Operation::new("reset");
/// assert_eq!(OPERATION.name(), "reset");
/// ```
#[derive(Debug)]
pub struct Operation<'n> {
    name: &'n str,
}

impl<'n> Operation<'n> {
    /// Makes an operation from its name on the wire. The operation that reads an attribute `x` has
    /// the name `_get_x`.
    #[must_use]
    pub const fn new(name: &'n str) -> Self {
        Operation { name }
    }

    /// Returns the name on the wire.
    #[must_use]
    pub const fn name(&self) -> &'n str {
        self.name
    }
}
