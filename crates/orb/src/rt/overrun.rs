//! Operations that take longer than they declare (`@wcet`).
//!
//! The clock is that of the thread's processor time: waiting and being preempted do not count. It is read where an operation declares
//! something, twice a request, and nowhere else.

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
}

impl Watch {
    /// The calling thread runs `operation` from now on.
    pub(crate) fn begin(operation: &'static str, declared: Duration) -> Self {
        Watch { operation, declared, begun: thread_time() }
    }

    /// It has run, and this is what came of it.
    ///
    /// # Errors
    /// What came of it; TIMEOUT if that is dropped.
    pub(crate) fn end(self, call: &ServerCall<'_>, result: Result<(), SystemException>) -> Result<(), SystemException> {
        let used = thread_time().saturating_sub(self.begun);
        if used > self.declared { self.overrun(used, call, result) } else { result }
    }

    #[cold]
    fn overrun(
        self,
        used: Duration,
        call: &ServerCall<'_>,
        result: Result<(), SystemException>,
    ) -> Result<(), SystemException> {
        let Some(core) = call.core() else { return result };
        let (operation, declared) = (self.operation, self.declared);
        core.events().report(&Event::Overrun { operation, declared, used });
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
