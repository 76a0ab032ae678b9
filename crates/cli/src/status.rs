//! Exit statuses of all commands.

/// Exit status of a command that succeeded.
pub(crate) const DONE: u8 = 0;
/// Exit status of a command that failed, or whose question has a negative answer.
pub(crate) const NOT_DONE: u8 = 1;
/// Exit status of a command line that is not valid.
pub(crate) const WRONG_USAGE: u8 = 2;
