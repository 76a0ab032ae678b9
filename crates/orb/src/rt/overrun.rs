//! Operations that take longer than they declare (`@wcet`).
//!
//! The clock is that of the thread's processor time: waiting and being preempted do not count, nor does what the thread serves while a
//! call of the operation waits. It is read where an operation declares something, twice a request, and nowhere else.

use std::cell::Cell;
use std::time::Duration;

use corelane_sys::usage::thread_time;

use super::Overrun;
use crate::event::Event;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::servant::ServerCall;

/// An operation that runs and has declared how long it takes at most.
#[derive(Debug)]
pub(crate) struct Watch {
    operation: &'static str,
    declared: Duration,
    begun: Duration,
    /// What the thread had spent for others by then.
    aside: Duration,
}

thread_local! {
    /// How many operations of the calling thread are measured, one within the other.
    static MEASURED: Cell<u32> = const { Cell::new(0) };
    /// What the calling thread has spent for others while operations that are measured waited.
    static ASIDE: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// The calling thread serves others until this is dropped: none of the operations that it runs already is charged for it.
pub(crate) struct Aside(Option<(Duration, Duration)>);

impl Aside {
    #[inline]
    pub(crate) fn begin() -> Self {
        Aside((MEASURED.get() > 0).then(|| (ASIDE.get(), thread_time())))
    }
}

impl Drop for Aside {
    #[inline]
    fn drop(&mut self) {
        if let Some((before, begun)) = self.0 {
            // What was served meanwhile has put its own aside, which is part of this.
            ASIDE.set(before + thread_time().saturating_sub(begun));
        }
    }
}

impl Watch {
    /// The calling thread runs `operation` from now on.
    pub(crate) fn begin(operation: &'static str, declared: Duration) -> Self {
        MEASURED.set(MEASURED.get() + 1);
        Watch { operation, declared, begun: thread_time(), aside: ASIDE.get() }
    }

    /// It has run, and this is what came of it.
    ///
    /// # Errors
    /// What came of it; TIMEOUT if that is dropped.
    pub(crate) fn end(self, call: &ServerCall<'_>, result: Result<(), SystemException>) -> Result<(), SystemException> {
        let used = self.used();
        if used > self.declared { self.overrun(used, call, result) } else { result }
    }

    /// It has panicked.
    #[cold]
    pub(crate) fn end_by_panic(self, call: &ServerCall<'_>) {
        let used = self.used();
        if used > self.declared {
            self.tell(used, call);
        }
    }

    fn used(&self) -> Duration {
        let aside = ASIDE.get().saturating_sub(self.aside);
        thread_time().saturating_sub(self.begun).saturating_sub(aside)
    }

    fn tell(&self, used: Duration, call: &ServerCall<'_>) {
        if let Some(core) = call.core() {
            let (operation, declared) = (self.operation, self.declared);
            core.events().report(&Event::Overrun { operation, declared, used });
        }
    }

    #[cold]
    fn overrun(
        self,
        used: Duration,
        call: &ServerCall<'_>,
        result: Result<(), SystemException>,
    ) -> Result<(), SystemException> {
        self.tell(used, call);
        let Some(core) = call.core() else { return result };
        match core.config().rt.overrun {
            Overrun::Run => result,
            Overrun::Drop if call.has_raised() => result,
            Overrun::Drop => result.and_then(|()| {
                let exception = SystemException::new(Kind::Timeout, crate::minor::OVERRUN, Completion::Yes);
                Err(exception.because("the operation took more processor time than it declares"))
            }),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        MEASURED.set(MEASURED.get() - 1);
    }
}
