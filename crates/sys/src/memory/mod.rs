//! Memory: allocation, receive buffers, shared rings, locked pages.

pub mod alloc;
pub mod buffer;
pub mod erased;
pub mod memory;
pub mod plain;
pub mod ring;
#[cfg(not(loom))]
pub mod sealed;
