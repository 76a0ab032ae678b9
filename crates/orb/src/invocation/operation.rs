//! The operation of an IDL interface, as stubs pass it to the ORB.

/// An operation of an IDL interface.
///
/// # Examples
///
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
    /// Makes an operation from its name in GIOP requests. For example, the operation that reads the
    /// attribute `x` has the name `_get_x`.
    #[must_use]
    pub const fn new(name: &'n str) -> Self {
        Operation { name }
    }

    /// Returns the operation's name in GIOP requests.
    #[must_use]
    pub const fn name(&self) -> &'n str {
        self.name
    }
}
