//! The `corelane` command.
#![forbid(unsafe_code)]
fn main() {}
