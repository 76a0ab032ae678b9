//! Corelane's servants and checks for interop.idl, which match the programs of the other ORBs.

pub mod checks;
mod echoes;
pub mod options;
pub mod servants;
pub mod values;
