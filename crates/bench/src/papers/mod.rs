//! Benchmarks that repeat the experiments of published papers on CORBA and operating systems
//! (docs/benchmarks.md).

pub(crate) mod architectures;
pub(crate) mod cores;
pub(crate) mod cpu;
pub(crate) mod mt;
pub(crate) mod os;
pub(crate) mod protocol;
pub(crate) mod rio;
pub(crate) mod stages;
pub(crate) mod switch;
