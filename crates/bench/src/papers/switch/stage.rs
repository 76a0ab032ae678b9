//! Cores, priorities and wake-up mechanism of the two threads of a test.

use corelane_sys::thread::{CpuSet, Scheduling, ThreadBuilder};

/// Mechanism with which one thread waits and another wakes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeMechanism {
    /// `park` and `unpark` of the standard library.
    Futex,
    /// A POSIX semaphore.
    Semaphore,
}

/// The core of the second thread, and the priorities of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SwitchSetting {
    /// Core of the second thread. The first thread runs on the client's core.
    pub(crate) partner: Option<usize>,
    /// Priority of the first thread. `None` means the ordinary class. The second thread's priority
    /// is higher by one, or equal in the test of yielding.
    pub(crate) priority: Option<u8>,
    /// True if both threads share a core.
    pub(crate) same_core: bool,
}

impl SwitchSetting {
    /// Returns true if the second thread preempts the first one when it is woken.
    pub(crate) fn preempts(&self) -> bool {
        self.same_core && self.priority.is_some()
    }

    /// Returns a builder for the second thread. If `equal`, its priority is the first thread's
    /// priority, else the priority above.
    pub(crate) fn builder(&self, equal: bool) -> ThreadBuilder {
        let mut builder = ThreadBuilder::new().name("bench/partner");
        if let Some(core) = self.partner {
            builder = builder.affinity(CpuSet::one(core));
        }
        match self.priority {
            Some(priority) => builder.scheduling(Scheduling::Fifo(priority + u8::from(!equal))),
            None => builder,
        }
    }

    pub(crate) fn class(&self) -> String {
        match self.priority {
            Some(priority) => format!("SCHED_FIFO {priority} and {}", priority + 1),
            None => "SCHED_OTHER".to_owned(),
        }
    }
}
