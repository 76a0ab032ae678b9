//! Keeps cores out of idle states: while /dev/cpu_dma_latency is open with the value 0, no core
//! enters a state that takes time to leave. A hypervisor may take idle cores away, so some
//! benchmarks keep the cores [busy](BusyCores).

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use corelane_sys::thread::{self, CpuSet, JoinHandle, Scheduling, ThreadBuilder};

use crate::Failure;
use crate::placement::{CoreChoice, Placement};

#[derive(Debug)]
pub(crate) struct IdleStateLock {
    _device: File,
}

impl IdleStateLock {
    pub(crate) fn hold() -> Option<Self> {
        let mut device = OpenOptions::new().write(true).open("/dev/cpu_dma_latency").ok()?;
        device.write_all(&0i32.to_ne_bytes()).ok()?;
        Some(IdleStateLock { _device: device })
    }
}

/// Threads that keep cores busy. They have the class SCHED_IDLE, so threads of other classes
/// preempt them.
pub(crate) struct BusyCores {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl BusyCores {
    pub(crate) fn start(placement: &Placement) -> Result<Self, Failure> {
        let cores = match placement.cores {
            CoreChoice::Shared(core) => vec![core],
            CoreChoice::Separate(client, server) => vec![client, server],
            CoreChoice::Any => thread::affinity(None).map(|set| set.iter().collect()).unwrap_or_default(),
        };
        let mut busy = BusyCores { stop: Arc::new(AtomicBool::new(false)), threads: Vec::new() };
        for core in cores {
            let stop = busy.stop.clone();
            let name = format!("bench/awake{core}");
            let builder = ThreadBuilder::new().name(name).affinity(CpuSet::one(core)).scheduling(Scheduling::Idle);
            let thread = builder.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let failed = |error| Failure::new(format!("core {core} cannot be kept awake: {error}"));
            busy.threads.push(thread.map_err(failed)?);
        }
        Ok(busy)
    }
}

impl Drop for BusyCores {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_cores_start_and_stop() {
        let core = thread::affinity(None).unwrap().iter().last().unwrap();
        let busy = BusyCores::start(&Placement { cores: CoreChoice::Shared(core), scheduling: None }).unwrap();
        assert_eq!(busy.threads.len(), 1);
        let stop = busy.stop.clone();
        drop(busy);
        assert_eq!(Arc::strong_count(&stop), 1);
    }
}
