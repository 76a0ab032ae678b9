//! Cores, priorities and wake-up mechanisms of the two threads of a test.

use corelane_sys::thread::{CpuSet, Scheduling, ThreadBuilder};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeMechanism {
    /// `park` and `unpark` of the standard library.
    Futex,
    /// A POSIX semaphore.
    Semaphore,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SwitchSetting {
    /// Core of the second thread; the first thread runs on the client's core.
    pub(crate) partner: Option<usize>,
    /// Priority of the first thread; `None` means the ordinary scheduling class. The second
    /// thread's priority is higher by one, or equal in the test of yielding.
    pub(crate) priority: Option<u8>,
    pub(crate) same_core: bool,
}

impl SwitchSetting {
    pub(crate) fn preempts(&self) -> bool {
        self.same_core && self.priority.is_some()
    }

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
