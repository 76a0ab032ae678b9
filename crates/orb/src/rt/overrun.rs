//! Operations that take longer than they declare (`@wcet`).
//!
//! The clock is that of the thread's processor time: waiting and being preempted do not count, nor does what the thread serves while a
//! call of the operation waits. It is read where an operation declares something, twice a request, and nowhere else.
//!
//! With [`Overrun::Lower`] the kernel watches that clock too while the operation runs, and the thread is lowered from outside
//! (`sys::overseer`).

use std::cell::{Cell, RefCell};
use std::time::Duration;

use corelane_sched::Priority;
use corelane_sys::overseer::{Allowance, Left};
use corelane_sys::usage::thread_time;

use super::Overrun;
use super::current::is_above;
use super::station::{self, Before};
use crate::event::Event;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::orb::Core;
use crate::servant::ServerCall;

/// An operation that runs and has declared how long it takes at most.
#[derive(Debug)]
pub(crate) struct Watch {
    operation: &'static str,
    declared: Duration,
    begun: Duration,
    /// What the thread had spent for others by then.
    aside: Duration,
    /// Ends with the operation.
    _allowed: Option<Allowed>,
}

thread_local! {
    /// How many operations of the calling thread are measured, one within the other.
    static MEASURED: Cell<u32> = const { Cell::new(0) };
    /// What the calling thread has spent for others while operations that are measured waited.
    static ASIDE: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

thread_local! {
    /// The calling thread's timer, for the ORB with this stamp.
    static ALLOWANCE: RefCell<Option<(u64, Allowance)>> = const { RefCell::new(None) };
}

/// Ends what the calling thread is still allowed, if anything.
fn end_allowance() -> Left {
    let left = ALLOWANCE.with_borrow_mut(|own| own.as_mut().map_or(Left::Nothing, |(_, allowance)| allowance.end()));
    if let Left::Lowered(to) = left {
        station::note_lowered(to);
    }
    left
}

/// Gives back what was left.
fn go_on(left: Left, used: Duration) {
    if let Left::Time(left, then) = left {
        ALLOWANCE.with_borrow_mut(|own| {
            if let Some((_, allowance)) = own {
                allowance.give(left.saturating_sub(used), then);
            }
        });
    }
}

/// An operation whose thread is lowered when it takes too long.
#[derive(Debug)]
struct Allowed {
    before: Before,
    begun: Duration,
    /// What the operation around it may still take.
    outer: Left,
}

impl Allowed {
    /// The calling thread may use `time` from its clock's `begun` on. `None` where it is not lowered.
    #[cold]
    fn give(core: &Core, to: i16, time: Duration, begun: Duration) -> Option<Self> {
        let overseer = core.rt().overseer()?;
        let to = core.config().rt.native(Priority::new(to)?).ok()??;
        let outer = end_allowance();
        if !is_above(station::native().ok()?, to) {
            return None;
        }
        let stamp = core.adapters().stamp;
        ALLOWANCE.with_borrow_mut(|own| {
            if own.as_ref().is_none_or(|(of, _)| *of != stamp) {
                *own = Allowance::of_this_thread(overseer).ok().map(|made| (stamp, made));
            }
            own.as_mut()?.1.give(time, to);
            Some(Allowed { before: Before::now(), begun, outer })
        })
    }
}

impl Drop for Allowed {
    fn drop(&mut self) {
        end_allowance();
        self.before.restore();
        if self.outer != Left::Nothing {
            go_on(self.outer, thread_time().saturating_sub(self.begun));
        }
    }
}

/// The calling thread serves others until this is dropped: none of the operations that it runs already is charged for it.
pub(crate) struct Aside(Option<(Duration, Duration, Left)>);

impl Aside {
    #[inline]
    pub(crate) fn begin() -> Self {
        Aside((MEASURED.get() > 0).then(|| (ASIDE.get(), thread_time(), end_allowance())))
    }
}

impl Drop for Aside {
    #[inline]
    fn drop(&mut self) {
        if let Some((before, begun, left)) = self.0 {
            // What was served meanwhile has put its own aside, which is part of this.
            ASIDE.set(before + thread_time().saturating_sub(begun));
            go_on(left, Duration::ZERO);
        }
    }
}

impl Watch {
    /// The calling thread runs `operation` from now on.
    pub(crate) fn begin(call: &ServerCall<'_>, operation: &'static str, declared: Duration) -> Self {
        MEASURED.set(MEASURED.get() + 1);
        let begun = thread_time();
        let allowed = call.core().and_then(|core| match core.config().rt.overrun {
            Overrun::Lower(to) => Allowed::give(core, to, declared, begun),
            Overrun::Run | Overrun::Drop => None,
        });
        Watch { operation, declared, begun, aside: ASIDE.get(), _allowed: allowed }
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
            Overrun::Run | Overrun::Lower(_) => result,
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
