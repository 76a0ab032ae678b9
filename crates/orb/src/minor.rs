//! Minor codes of this ORB's own, under its vendor id; docs/wire-extensions.md is the register.

/// TRANSIENT: a call was forwarded more often than the bound.
pub const FORWARD_LOOP: u32 = corelane_wire::exception::minor::CORELANE | 0x80;
/// TIMEOUT: an operation took more processor time than it declares, and its results were dropped.
pub const OVERRUN: u32 = corelane_wire::exception::minor::CORELANE | 0x81;
