//! An operation, as the client sees it.

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
    /// Makes an operation from its name on the wire: `_get_x` for an attribute.
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
