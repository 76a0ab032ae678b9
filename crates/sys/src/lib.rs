//! Linux primitives for a real-time ORB, as safe functions and types.
//!
//! This crate exists because the rest of Corelane forbids `unsafe`: every system call, every memory
//! mapping and every hand-made atomic protocol lives here, behind an interface that cannot be misused
//! into undefined behaviour. It knows nothing of CORBA.
//!
//! Two invariants hold throughout:
//!
//! * every system call is made through one private module, which counts it for the calling thread
//!   ([`counters`]), so that "two system calls per invocation" is a test and not a claim;
//! * protocols over atomics (`slots`, `published`, `mpsc`, `ring`, `roster`, `rush`, `lock::Exclusive`) are written against a shim
//!   that is the standard library normally and `loom` under `--cfg loom`, where they are model-checked.

// What the other crates are told to take from here instead (clippy.toml) is made of these.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

mod call;
mod shim;

pub mod alloc;
pub mod buffer;
pub mod clock;
pub mod counters;
pub mod epoll;
pub mod erased;
pub mod eventfd;
pub mod gate;
pub mod guarantees;
pub mod index;
pub mod lock;
pub mod memory;
pub mod mpsc;
pub mod notice;
pub mod overseer;
pub mod poll;
pub mod probe;
pub mod process;
pub mod published;
pub mod ring;
pub mod roster;
pub mod rush;
pub mod semaphore;
pub mod signal;
pub mod slots;
pub mod socket;
pub mod stepping;
pub mod thread;
pub mod turn;
pub mod usage;
