//! The benchmarks: Corelane, its peers and bare sockets, measured against each other in one run.
//!
//! [`command::run`] is `corelane bench`. A benchmark puts variants into groups. The `harness` lets
//! the variants of a group take turns. The `report` prints the results as a table and as JSON lines
//! (docs/benchmarks.md), from which `page` makes HTML. Servers are separate processes that run this
//! program again ([`server`]).
//!
//! Each reported figure has a baseline of the same run. Measurements that fail are reported as
//! missing.
#![forbid(unsafe_code)]

mod baseline;
mod call;
mod client_group;
pub mod command;
mod cost;
mod counts;
mod cpu;
mod cubit;
mod demux;
mod environment;
mod footprint;
mod harness;
mod idl;
mod idle;
pub mod json;
mod mt;
mod naming;
pub mod operation;
mod options;
mod orb;
mod os;
mod page;
mod peer;
pub mod placement;
mod plan;
pub mod probed;
mod protocol;
mod report;
mod sample;
mod scale;
pub mod server;
mod service;
mod stages;
mod switch;
mod targets;
mod testbed;

use std::fmt;

/// The reason why a benchmark or one of its variants failed, as text.
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
