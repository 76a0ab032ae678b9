//! Interoperation with other ORBs, proved by running them.
//!
//! `interop/idl/interop.idl` has every type and kind of operation. Each ORB has a server and a client for it under
//! `interop/peers/`, with the same command lines and the same rule for what a server answers, so that any client can be
//! run against any server. A client prints one line per check; [`report`] reads them, [`skips`] knows which failures are
//! the peers' own limits, and why.
//!
//! - [`process`]: a program of bounded life, its output kept.
//! - [`peers`]: how each ORB's programs are built and started.
//! - [`capture`]: the traffic on the wire, judged by Wireshark's dissector.
//! - [`asked`]: whether the messages are what the run asked for: the version, the fragments.
//! - [`pair`]: one client against one server, judged.
//! - [`suite`]: Corelane's own server and client, on the code that the IDL compiler makes of interop.idl.
//!
//! Everything fails when a peer is missing; nothing is silently left out.
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

/// What is asked of TAO, and by it.
pub mod tao {
    corelane::include_idl!("lanes");
}
