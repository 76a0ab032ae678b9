//! The benchmarks: Corelane, other ORBs and bare sockets, compared with each other in one run.
#![forbid(unsafe_code)]

mod address;
mod arrivals;
mod baseline;
mod client_group;
mod client_threads;
pub mod command;
mod cost;
mod environment;
mod guards;
mod harness;
mod idle;
pub mod json;
mod launch;
pub mod machine_costs;
pub mod operation;
mod options;
mod orb;
mod page;
mod papers;
mod peer;
pub mod placement;
mod plan;
pub mod probed;
mod report;
mod sample;
pub mod server;
mod service;
mod targets;
mod testbed;
mod value;
mod workload;

use std::fmt;

/// The reason why a benchmark or one of its variants failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(String);

impl Failure {
    /// Creates a failure with its reason.
    pub fn new(reason: impl Into<String>) -> Self {
        Failure(reason.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failure {}
