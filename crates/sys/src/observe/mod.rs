//! Observation: clocks, counters, probes, and the machine's properties.

pub mod clock;
pub mod counters;
pub mod guarantees;
pub mod kernel_release;
#[cfg(all(not(loom), feature = "testing"))]
pub mod older_kernel;
pub mod probe;
#[cfg(any(test, feature = "bench"))]
pub mod ptrace_counter;
pub mod usage;
