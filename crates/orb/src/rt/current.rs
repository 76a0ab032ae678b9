//! `RTCORBA::Current`: the CORBA priority of a thread, one for each ORB that it works for.

use std::cell::{Cell, RefCell};
use std::sync::{Arc, Weak};

use corelane_sched::Priority;
use corelane_sys::thread::Scheduling;
use corelane_wire::exception::minor;

use super::config::unmappable;
use super::station::{self, Before};
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::orb::Core;

/// A priority as an ORB sees it; none if it is negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Now {
    stamp: u64,
    priority: i16,
}

thread_local! {
    static NOW: Cell<Now> = const { Cell::new(Now { stamp: 0, priority: -1 }) };
    /// Those of other ORBs than the last one.
    static BESIDE: RefCell<Vec<Now>> = const { RefCell::new(Vec::new()) };
}

fn get(stamp: u64) -> Option<Priority> {
    let now = NOW.get();
    if now.stamp == stamp {
        return Priority::new(now.priority);
    }
    BESIDE
        .with_borrow(|beside| beside.iter().find(|now| now.stamp == stamp).and_then(|now| Priority::new(now.priority)))
}

#[inline]
fn set(stamp: u64, priority: i16) {
    let now = NOW.get();
    if now.stamp != stamp && now.priority >= 0 {
        put_beside(now);
    }
    NOW.set(Now { stamp, priority });
}

#[cold]
fn put_beside(now: Now) {
    BESIDE.with_borrow_mut(|beside| {
        beside.retain(|other| other.stamp != now.stamp);
        // A thread works for a few ORBs at most; what ended ORBs left is forgotten.
        if beside.len() >= 8 {
            beside.remove(0);
        }
        beside.push(now);
    });
}

/// The priority at which a call of the calling thread goes out, or runs in the process: what was set, else that of the thread.
pub(crate) fn of_caller(core: &Core) -> Option<Priority> {
    get(core.adapters().stamp).or_else(|| core.config().rt.corba(station::native().ok()?))
}

/// `RTCORBA::Current` of one ORB.
#[derive(Clone, Debug)]
pub struct RtCurrent {
    core: Weak<Core>,
}

impl RtCurrent {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        RtCurrent { core: Arc::downgrade(core) }
    }

    fn core(&self) -> Result<Arc<Core>, SystemException> {
        self.core
            .upgrade()
            .ok_or_else(|| SystemException::new(Kind::BadInvOrder, minor::bad_inv_order::ORB_SHUT_DOWN, Completion::No))
    }

    /// The priority of the calling thread: what it has set, or in an upcall that at which it runs.
    ///
    /// # Errors
    /// INITIALIZE if none has been set.
    pub fn the_priority(&self) -> Result<i16, SystemException> {
        let priority = get(self.core()?.adapters().stamp);
        let unset =
            || SystemException::new(Kind::Initialize, 0, Completion::No).because("this thread has set no priority");
        priority.map(Priority::get).ok_or_else(unset)
    }

    /// Sets the priority of the calling thread, and of the kernel's scheduling of it, at once. In an upcall it holds until the upcall
    /// ends.
    ///
    /// # Errors
    /// BAD_PARAM for a negative priority; DATA_CONVERSION 2 for one that cannot be mapped or that the kernel refuses.
    pub fn set_priority(&self, priority: i16) -> Result<(), SystemException> {
        let core = self.core()?;
        let Some(priority) = Priority::new(priority) else {
            return Err(SystemException::new(Kind::BadParam, 0, Completion::No).because("a priority is 0 to 32767"));
        };
        if let Some(native) = core.config().rt.native(priority)? {
            change(native)?;
        }
        set(core.adapters().stamp, priority.get());
        Ok(())
    }
}

/// DATA_CONVERSION 2 where the kernel refuses.
fn change(to: Scheduling) -> Result<(), SystemException> {
    station::change(to).map_err(|error| unmappable().because(format!("{to:?} is refused: {error}")))
}

/// The priority of an upcall; what was before comes back when this is dropped.
pub(crate) struct Running {
    priority: Now,
    native: Before,
}

impl Running {
    /// The calling thread runs an upcall from now on, as it is.
    #[inline]
    pub(crate) fn begin() -> Self {
        Running { priority: NOW.get(), native: Before::now() }
    }

    /// It runs it at `priority` (`None`: as it is), but not above `most`.
    #[inline]
    pub(crate) fn change(
        &self,
        core: &Core,
        priority: Option<Priority>,
        most: Option<Priority>,
    ) -> Result<(), SystemException> {
        if let Some(priority) = priority {
            raise(core, most.map_or(priority, |most| priority.min(most)))?;
        }
        if let Some(most) = most {
            lower(core, most);
        }
        Ok(())
    }
}

/// Whether a thread scheduled like `now` can be lowered to `to` for a time. A reservation, once given up, might not be had again; it bounds
/// what its thread takes in any case.
pub(super) fn is_above(now: Scheduling, to: Scheduling) -> bool {
    !matches!(now, Scheduling::Deadline(_)) && to.priority() < now.priority()
}

/// A lane's thread, and one whose request has no priority, are not where they may be at most.
#[cold]
fn lower(core: &Core, most: Priority) {
    if let Ok(Some(native)) = core.config().rt.native(most)
        && station::native().is_ok_and(|now| is_above(now, native))
    {
        // Lowering is never refused.
        let _ = station::change(native);
    }
}

fn raise(core: &Core, priority: Priority) -> Result<(), SystemException> {
    let stamp = core.adapters().stamp;
    if !station::of_thread(stamp).is_fixed()
        && let Some(native) = core.config().rt.native(priority)?
    {
        change(native)?;
    }
    set(stamp, priority.get());
    Ok(())
}

impl Drop for Running {
    #[inline]
    fn drop(&mut self) {
        self.native.restore();
        if NOW.get() != self.priority {
            NOW.set(self.priority);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_orb_has_its_own_priority_of_a_thread() {
        std::thread::spawn(|| {
            assert_eq!(get(1), None);
            set(1, 100);
            set(2, 200);
            assert_eq!((get(1), get(2), get(3)), (Priority::new(100), Priority::new(200), None));
            set(1, 101);
            assert_eq!((get(1), get(2)), (Priority::new(101), Priority::new(200)));
        })
        .join()
        .unwrap();
    }
}
