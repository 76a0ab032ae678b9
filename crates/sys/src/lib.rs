//! Linux primitives for a real-time ORB, as safe functions and types.
//!
//! The other crates of Corelane forbid `unsafe`. No use of the safe interface leads to undefined behaviour.
//!
//! Two invariants hold throughout:
//!
//! * The crate makes every system call through one private module, which counts it for the calling
//!   thread ([`counters`]). So a test can check that an invocation makes two system calls.
//! * Protocols over atomics (`slab`, `rcu_cell`, `mpsc`, `ring`, `idle_threads`, `burst`,
//!   `lock::CheckoutCell`) use a shim. The shim is the standard library normally, and `loom` under
//!   `--cfg loom`, where the protocols are model-checked.
//!
//! # Modules
//! The source files are in five folders by purpose. The folders are not part of a module's path.
//!
//! | `sync/` | content |
//! |---|---|
//! | [`event_count`] | waiting for changes of lock-free state |
//! | [`hash_index`] | a hash index from byte strings to slots, searched without waiting |
//! | [`lock`] | locks that count their use: mutex, reader-writer lock, mutex with priority
//! inheritance, checkout cell |
//! | [`mpsc`] | a bounded queue with a descriptor to wake its receiver |
//! | [`pending_lock`] | a try-lock that remembers requests which came while it was locked |
//! | [`rcu_cell`] | a value that is read without a lock while it is replaced |
//! | `semaphore` | POSIX's counting semaphore; feature `bench` |
//! | [`slab`] | values found by slot and generation without waiting |
//! | [`wake_flag`] | a flag with which threads that add work avoid superfluous wake-ups |
//!
//! | `thread/` | content |
//! |---|---|
//! | [`burst`] | one thread of a group works alone during a flood of short messages |
//! | [`cpu_budget`] | lowering threads that have used up their processor time |
//! | [`idle_threads`] | the idle threads of a group, and claims on them |
//! | [`process`] | fork detection and properties of the process |
//! | [`signal`] | termination requests through a descriptor |
//! | [`thread`] | creating threads; scheduling classes, priorities and cores |
//!
//! | `io/` | content |
//! |---|---|
//! | [`bpf`] | maps and XDP programs in the kernel |
//! | [`deferred_close`] | closing descriptors whose last close may sleep |
//! | [`epoll`] | readiness of many descriptors |
//! | [`eventfd`] | a descriptor that wakes a blocked thread |
//! | [`interface`] | network interfaces: index, state, offloads |
//! | [`poll`] | waiting for a few descriptors until a precise deadline |
//! | [`socket`] | stream sockets: addresses, options, transfers, passed descriptors |
//!
//! | `memory/` | content |
//! |---|---|
//! | [`alloc`] | the system's allocator with a count |
//! | [`buffer`] | receive buffers and the cache of their memory |
//! | [`erased`] | references with an erased type |
//! | [`memory`] | locking pages and touching the stack in advance |
//! | [`ring`] | rings of bytes in shared memory; `ring::bare` and `ring::bare_stream` with feature `bench` |
//!
//! | `observe/` | content |
//! |---|---|
//! | [`clock`] | the monotonic clock |
//! | [`counters`] | counts of system calls, locks and allocations of a thread |
//! | [`guarantees`] | real-time guarantees of this machine |
//! | `older_kernel` | emulation of older kernels; feature `testing` |
//! | [`mod@probe`] | time probes on the request path |
//! | `ptrace_counter` | counts of another process's instructions; feature `bench` |
//! | [`usage`] | processor time and memory used |
//!
//! # Features
//! * `testing`: functions for tests of other crates.
//! * `bench`: modules that only benchmarks use: `semaphore`, `ring::bare`, `ring::bare_stream` and
//!   `ptrace_counter`.

// `clippy.toml` bans the types and functions that this crate wraps.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

mod io;
mod observe;
mod sync;
// The crate exports modules named `memory` and `thread`, so the folders with these names have other
// module names.
#[path = "memory/mod.rs"]
mod memory_folder;
#[path = "thread/mod.rs"]
mod thread_folder;

use io::syscall;
pub use io::{bpf, deferred_close, epoll, eventfd, interface, poll, socket};
pub use memory_folder::{alloc, buffer, erased, memory, ring};
#[cfg(all(not(loom), feature = "testing"))]
pub use observe::older_kernel;
#[cfg(any(test, feature = "bench"))]
pub use observe::ptrace_counter;
pub use observe::{clock, counters, guarantees, probe, usage};
#[cfg(any(test, feature = "bench"))]
pub use sync::semaphore;
use sync::shim;
pub use sync::{event_count, hash_index, lock, mpsc, pending_lock, rcu_cell, slab, wake_flag};
pub use thread_folder::{burst, cpu_budget, idle_threads, process, signal, thread};
