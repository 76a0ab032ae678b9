//! Exit statuses, which all commands share.

/// The command succeeded.
pub(crate) const DONE: u8 = 0;
/// The command failed, or the answer to its question is no.
pub(crate) const NOT_DONE: u8 = 1;
/// The words of the command are wrong.
pub(crate) const WRONG_USAGE: u8 = 2;
