//! Corelane's servants and checks for interop.idl, matching the programs of the other ORBs.
//!
//! - [`servants`]: the suite for the server, and the bouncer for server and client.
//! - [`values`]: test values of every type.
//! - [`checks`]: every check of the client, and its report.
//! - [`options`]: the command lines of the two programs.

pub mod checks;
mod echoes;
pub mod options;
pub mod servants;
pub mod values;
