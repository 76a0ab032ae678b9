//! Tests of interoperation with other ORBs, which run the other ORBs' programs.
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
