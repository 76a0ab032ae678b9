//! Exit statuses, which all commands share.

/// The command did what it was asked for.
pub(crate) const DONE: u8 = 0;
/// The command could not do what it was asked for, or the answer is no.
pub(crate) const NOT_DONE: u8 = 1;
/// The words of the command are wrong.
pub(crate) const WRONG_USAGE: u8 = 2;
