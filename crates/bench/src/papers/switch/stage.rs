//! CoreChoice, priorities and means of waking of the two threads of a test.

use corelane_sys::thread::{CpuSet, Scheduling, ThreadBuilder};

/// The means to wake a waiting thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waker {
    /// `park` and `unpark` of the standard library.
    Futex,
    /// A POSIX semaphore.
    Semaphore,
}

/// Core of the second thread, and priorities of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SwitchSetting {
    /// Core of the second thread; the first thread runs on the client's core.
    pub(crate) partner: Option<usize>,
    /// Priority of the first thread; `None` is the ordinary class. The second thread has one more,
    /// or the same in the test of yielding.
    pub(crate) priority: Option<u8>,
    /// True if both threads share a core.
    pub(crate) same_core: bool,
}

impl SwitchSetting {
    /// Returns true if a wake-up of the second thread makes it run at once in place of the first.
    pub(crate) fn preempts(&self) -> bool {
        self.same_core && self.priority.is_some()
    }

    /// Returns a builder for the second thread. Its priority is the same if `equal`, else one more.
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
