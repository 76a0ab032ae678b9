//! Benchmarks that detect when Corelane becomes slower or larger.

pub(crate) mod call;
pub(crate) mod core_scaling;
pub(crate) mod counts;
pub(crate) mod cubit;
pub(crate) mod demux;
pub(crate) mod events;
pub(crate) mod floods;
pub(crate) mod footprint;
pub(crate) mod idl;
pub(crate) mod instead;
pub(crate) mod lane;
pub(crate) mod naming;
pub(crate) mod scale;
