//! CORBA services on Corelane: the Naming Service.
#![forbid(unsafe_code)]

pub mod naming;
pub mod store;
