//! Tests of interoperation, which run the programs of other ORBs. A test fails if a peer is
//! missing, so that no check is left out silently; tests with TAO run only on request.
#![forbid(unsafe_code)]

pub mod capture;
pub mod client_server_run;
pub mod expected_traffic;
pub mod jacorb_names;
pub mod peers;
pub mod process;
pub mod report;
pub mod skips;
pub mod suite;
pub mod webdriver;

corelane::include_idl!("interop");

/// Code generated from lanes.idl, for the tests with TAO.
pub mod tao {
    corelane::include_idl!("lanes");
}
