//! Other ORBs, whose programs stand in interop/peers and are built when a benchmark wants them.

pub mod omniorb;
