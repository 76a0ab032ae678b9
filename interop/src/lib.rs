//! Tests of interoperation with other ORBs, which run the other ORBs' programs.
//!
//! `interop/idl/interop.idl` has every type and kind of operation. Each ORB has a server and a
//! client for this IDL under `interop/peers/`. All programs have the same command lines and follow
//! the same rules for a server's results, so that any client can run against any server. A client
//! prints one line for each check, which [`report`] reads. [`skips`] lists the failures that the
//! peers' limits cause, with reasons.
//!
//! - [`process`]: programs with a bounded life, whose output is saved.
//! - [`peers`]: the commands that build and start each ORB's programs.
//! - [`capture`]: the traffic on the wire, checked by Wireshark's dissector.
//! - [`expected_traffic`]: the expected version and fragments of the messages.
//! - [`client_server_run`]: the run of one client against one server, and its result.
//! - [`suite`]: Corelane's own server and client, on the code that the IDL compiler generates from
//!   interop.idl.
//!
//! Every test fails if a peer is missing, so that no check is left out silently.
#![forbid(unsafe_code)]

pub mod capture;
pub mod client_server_run;
pub mod expected_traffic;
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
