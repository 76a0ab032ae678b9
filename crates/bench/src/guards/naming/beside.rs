//! Calls beside clients that bind.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use corelane_services::naming::cos_naming::NamingContextExtRef;
use corelane_sys::lock::{Condvar, LockScope, Mutex};
use corelane_sys::thread::{JoinHandle, ThreadBuilder};

use super::{CLIENTS, Changes};
use crate::Failure;
use crate::harness::MeasuredSubject;
use crate::sample::Samples;

/// Clients that bind and unbind a name each. Between turns they sleep without wake-ups, which would
/// slow the calls that are measured alone.
pub(super) struct Crowd {
    gate: Arc<Gate>,
    clients: Vec<JoinHandle<Result<(), Failure>>>,
}

struct Gate {
    /// True while the clients must bind. The clients read the flag between two calls, without the
    /// lock.
    is_open: AtomicBool,
    phase: Mutex<CrowdPhase>,
    changed: Condvar,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CrowdPhase {
    Waiting,
    Binding,
    Ending,
}

impl Crowd {
    pub(super) fn start(root: &NamingContextExtRef) -> Result<Arc<Self>, Failure> {
        let phase = Mutex::new("clients that bind", LockScope::Lane, CrowdPhase::Waiting);
        let gate = Arc::new(Gate { is_open: AtomicBool::new(false), phase, changed: Condvar::new() });
        let mut crowd = Crowd { gate, clients: Vec::new() };
        for client in 0..CLIENTS {
            let mut changes = Changes::new(root, 1_000 + client);
            let gate = Arc::clone(&crowd.gate);
            let body = move || {
                while gate.wait_until_open() {
                    while gate.is_open.load(Ordering::Relaxed) {
                        changes.change()?;
                    }
                }
                Ok(())
            };
            let spawned = ThreadBuilder::new().name(format!("changes/{client}")).spawn(body);
            crowd.clients.push(spawned.map_err(|error| Failure::new(error.to_string()))?);
        }
        Ok(Arc::new(crowd))
    }
}

impl Gate {
    /// Waits until the clients must bind or end. Returns false if they must end.
    fn wait_until_open(&self) -> bool {
        let mut phase = self.phase.lock();
        while *phase == CrowdPhase::Waiting {
            phase = self.changed.wait(phase);
        }
        *phase == CrowdPhase::Binding
    }

    fn enter(&self, phase: CrowdPhase) {
        *self.phase.lock() = phase;
        self.is_open.store(phase == CrowdPhase::Binding, Ordering::Relaxed);
        self.changed.notify_all();
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.gate.enter(CrowdPhase::Ending);
        for client in self.clients.drain(..) {
            let _ = client.join();
        }
    }
}

pub(super) struct Beside<S> {
    pub(super) calls: S,
    pub(super) crowd: Arc<Crowd>,
}

impl<S: MeasuredSubject> MeasuredSubject for Beside<S> {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        self.crowd.gate.enter(CrowdPhase::Binding);
        std::thread::sleep(Duration::from_millis(20));
        let outcome = self.calls.run(warm_up, count, into);
        self.crowd.gate.enter(CrowdPhase::Waiting);
        if self.crowd.clients.iter().any(JoinHandle::is_finished) {
            return Err(Failure::new("a client that makes changes has failed"));
        }
        outcome
    }

    fn server_pid(&self) -> Option<u32> {
        self.calls.server_pid()
    }
}
