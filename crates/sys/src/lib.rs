//! Linux primitives for a real-time ORB, as safe functions and types.
//!
//! The other crates of Corelane forbid `unsafe`. No use of the safe interface leads to undefined
//! behaviour.
//!
//! Two invariants hold throughout:
//!
//! * The crate makes its system calls through one private module, which counts them for the calling
//!   thread ([`counters`]). So a test can check that an invocation makes two system calls. Calls in
//!   signal handlers, and inside functions of the C library, are not counted.
//! * Modules whose protocols over atomics are model-checked use a shim: the standard library, or
//!   `loom` under `--cfg loom`.
//!
//! # Features
//! * `testing`: functions for tests of other crates.
//! * `bench`: modules that only benchmarks use: `semaphore`, `thread_signal`, `ring::bare`,
//!   `ring::bare_stream` and `ptrace_counter`.

// `clippy.toml` bans the types and functions that this crate wraps.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

mod io;
mod observe;
mod sync;
// `memory_folder` and `thread_folder` are not named like their folders, because the crate exports
// modules named `memory` and `thread`.
#[path = "memory/mod.rs"]
mod memory_folder;
#[path = "thread/mod.rs"]
mod thread_folder;

use io::syscall;
pub use io::{bpf, deferred_close, epoll, eventfd, interface, netlink, poll, socket, tun, xdp};
#[cfg(not(loom))]
pub use memory_folder::sealed;
pub use memory_folder::{alloc, buffer, erased, memory, plain, ring};
#[cfg(all(not(loom), feature = "testing"))]
pub use observe::older_kernel;
#[cfg(any(test, feature = "bench"))]
pub use observe::ptrace_counter;
pub use observe::{clock, counters, guarantees, kernel_release, probe, usage};
#[cfg(any(test, feature = "bench"))]
pub use sync::semaphore;
use sync::shim;
pub use sync::{event_count, hash_index, lock, mpsc, pending_lock, rcu_cell, slab, wake_flag};
#[cfg(any(test, feature = "bench"))]
pub use thread_folder::thread_signal;
pub use thread_folder::{burst, cpu_budget, idle_threads, process, signal, thread};
