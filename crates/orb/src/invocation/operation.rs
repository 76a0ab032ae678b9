//! The client's view of an operation.

/// An operation as a stub calls it.
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
    /// An operation by its name on the wire: `_get_x` for an attribute.
    #[must_use]
    pub const fn new(name: &'n str) -> Self {
        Operation { name }
    }

    /// The name on the wire.
    #[must_use]
    pub const fn name(&self) -> &'n str {
        self.name
    }
}
