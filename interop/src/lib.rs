//! Interoperation with other ORBs, tested by running them.
//!
//! `interop/idl/interop.idl` has every type and kind of operation. Each ORB has a server and a
//! client for this IDL under `interop/peers/`. They share command lines and the rules for a
//! server's results, so that any client can run against any server. A client prints one line for
//! each check, which [`report`] reads. [`skips`] lists the failures caused by the peers' limits,
//! with reasons.
//!
//! - [`process`]: a program with a bounded life, whose output is kept.
//! - [`peers`]: the commands that build and start each ORB's programs.
//! - [`capture`]: the traffic on the wire, judged by Wireshark's dissector.
//! - [`asked`]: the expected version and fragments of the messages.
//! - [`pair`]: one client against one server, judged.
//! - [`suite`]: Corelane's own server and client, on the code that the IDL compiler generates from
//!   interop.idl.
//!
//! A missing peer makes every test fail; nothing is silently left out.
#![forbid(unsafe_code)]

pub mod asked;
pub mod capture;
pub mod pair;
pub mod peers;
pub mod process;
pub mod report;
pub mod skips;
pub mod suite;

corelane::include_idl!("interop");

/// The interface for the tests with TAO, in both directions.
pub mod tao {
    corelane::include_idl!("lanes");
}
