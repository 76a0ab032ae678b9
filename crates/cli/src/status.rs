//! Exit statuses of all commands.

pub(crate) const DONE: u8 = 0;
/// The command failed, or its question has a negative answer.
pub(crate) const NOT_DONE: u8 = 1;
pub(crate) const WRONG_USAGE: u8 = 2;
