//! Threads of this process: creation, scheduling, processor time, and the process itself.

mod builder;
pub mod burst;
pub mod cpu_budget;
pub mod idle_threads;
pub mod process;
mod scheduling;
pub mod signal;
pub mod thread;
#[cfg(any(test, feature = "bench"))]
pub mod thread_signal;
