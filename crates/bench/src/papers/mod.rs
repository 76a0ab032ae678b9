//! Benchmarks that repeat the experiments of the papers on CORBA and operating systems
//! (docs/benchmarks.md).
//!
//! Their figures show how the system as a whole behaves. `guards` has the benchmarks that watch
//! single costs of Corelane.

pub(crate) mod architectures;
pub(crate) mod cpu;
pub(crate) mod mt;
pub(crate) mod os;
pub(crate) mod protocol;
pub(crate) mod stages;
pub(crate) mod switch;
