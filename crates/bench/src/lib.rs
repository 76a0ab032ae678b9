//! The benchmarks: Corelane, its peers and the bare sockets beneath them, measured against each other in one run.
//!
//! [`command::run`] is `corelane bench`. A benchmark puts variants into groups; the `harness` lets those of a
//! group take turns; the `report` prints what came out, as a table and as JSON lines (docs/benchmarks.md), of which `page` makes HTML. Servers are
//! processes of their own, made by starting our own program again ([`server`]).
//!
//! Nothing is reported without a baseline of the same run, and what could not be measured is reported as missing.
#![forbid(unsafe_code)]

mod call;
pub mod command;
mod cost;
mod counts;
mod cpu;
mod crowd;
mod cubit;
mod demux;
mod environment;
mod floor;
mod footprint;
mod goals;
mod harness;
mod idl;
mod idle;
pub mod json;
mod mt;
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
mod scene;
pub mod server;
mod service;
mod stages;
mod switch;

use std::fmt;

/// Why a benchmark, or one variant of it, could not be run, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(String);

impl Failure {
    /// A failure with its reason.
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
