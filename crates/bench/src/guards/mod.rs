//! Benchmarks that detect when Corelane becomes slower or larger.
//!
//! They cover the hot path of a call, the search for its target, scale, floods, footprint, and the
//! IDL compiler. Most of their figures have goals (`targets`), relative to bare sockets or another
//! ORB in the same run.

pub(crate) mod call;
pub(crate) mod counts;
pub(crate) mod cubit;
pub(crate) mod demux;
pub(crate) mod floods;
pub(crate) mod footprint;
pub(crate) mod idl;
pub(crate) mod lane;
pub(crate) mod naming;
pub(crate) mod scale;
