//! The CORBA priorities of threads and of their upcalls. A thread has a priority of its own in each
//! ORB.

use std::cell::{Cell, RefCell};

use corelane_sched::Priority;
use corelane_sys::thread::Scheduling;

use super::config::unmappable;
use crate::exception::SystemException;
use crate::orb_context::OrbContext;
use crate::thread_context::{self, SavedScheduling, can_lower};

/// The thread's priority in the ORB with this stamp. A negative number means no priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OrbPriority {
    stamp: u64,
    priority: i16,
}

thread_local! {
    static PRIORITY: Cell<OrbPriority> = const { Cell::new(OrbPriority { stamp: 0, priority: -1 }) };
    /// The thread's priorities in all ORBs except the ORB in which a priority was set last.
    /// `PRIORITY` has the priority in this ORB.
    static OTHER_ORBS: RefCell<Vec<OrbPriority>> = const { RefCell::new(Vec::new()) };
}

pub(super) fn thread_priority(stamp: u64) -> Option<Priority> {
    let now = PRIORITY.get();
    if now.stamp == stamp {
        return Priority::new(now.priority);
    }
    OTHER_ORBS
        .with_borrow(|beside| beside.iter().find(|now| now.stamp == stamp).and_then(|now| Priority::new(now.priority)))
}

#[inline]
pub(super) fn set_thread_priority(stamp: u64, priority: i16) {
    let now = PRIORITY.get();
    if now.stamp != stamp && now.priority >= 0 {
        save_for_other_orb(now);
    }
    PRIORITY.set(OrbPriority { stamp, priority });
}

#[cold]
fn save_for_other_orb(now: OrbPriority) {
    OTHER_ORBS.with_borrow_mut(|beside| {
        beside.retain(|other| other.stamp != now.stamp);
        // A thread uses only a few ORBs. Above eight entries the oldest entry is removed, because
        // its ORB has probably ended.
        if beside.len() >= 8 {
            beside.remove(0);
        }
        beside.push(now);
    });
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallerPriority {
    /// A priority that the program set for the thread, or the ORB for an upcall.
    Set(Priority),
    /// The CORBA priority that corresponds to the thread's native fixed priority, because no
    /// priority was set. It applies only if a lane or band of the object has it.
    Implied(Priority),
    Unset,
}

impl CallerPriority {
    /// Returns the priority, and true if the call may also be made without the priority.
    pub(crate) fn parts(self) -> (Option<Priority>, bool) {
        match self {
            CallerPriority::Set(priority) => (Some(priority), false),
            CallerPriority::Implied(priority) => (Some(priority), true),
            CallerPriority::Unset => (None, false),
        }
    }
}

/// Returns the priority of the calling thread, which its calls carry. Collocated calls run at this
/// priority.
pub(crate) fn caller_priority(orb: &OrbContext) -> CallerPriority {
    if let Some(priority) = thread_priority(orb.stamp()) {
        return CallerPriority::Set(priority);
    }
    let implied = thread_context::current_scheduling().ok().and_then(|native| orb.config().rt.corba_priority(native));
    implied.map_or(CallerPriority::Unset, CallerPriority::Implied)
}

/// Sets the calling thread's scheduling; DATA_CONVERSION 2 if the kernel refuses.
pub(super) fn set_scheduling(to: Scheduling) -> Result<(), SystemException> {
    thread_context::set_scheduling(to).map_err(|error| unmappable().because(format!("{to:?} is refused: {error}")))
}

/// A guard for the priority of an upcall. Dropping the guard restores the thread's previous
/// priority and scheduling.
pub(crate) struct UpcallPriority {
    priority: OrbPriority,
    scheduling: SavedScheduling,
}

impl UpcallPriority {
    /// Begins an upcall on the calling thread, and saves the thread's priority.
    #[inline]
    pub(crate) fn begin() -> Self {
        UpcallPriority { priority: PRIORITY.get(), scheduling: SavedScheduling::capture() }
    }

    /// Sets the priority of the upcall to `priority`, but not above `most`. With `None` the
    /// thread's priority does not change, except that it is lowered to `most`.
    #[inline]
    pub(crate) fn apply(
        &self,
        orb: &OrbContext,
        priority: Option<Priority>,
        most: Option<Priority>,
    ) -> Result<(), SystemException> {
        if let Some(priority) = priority {
            apply_priority(orb, most.map_or(priority, |most| priority.min(most)))?;
        }
        if let Some(most) = most {
            cap_priority(orb, most);
        }
        Ok(())
    }
}

/// Lowers a thread that is still above `most`: `apply_priority` does not change the thread of a
/// lane, and is not called for a request without a priority.
#[cold]
fn cap_priority(orb: &OrbContext, most: Priority) {
    if let Ok(Some(native)) = orb.config().rt.scheduling_for(most)
        && thread_context::current_scheduling().is_ok_and(|now| can_lower(now, native))
    {
        // The kernel never refuses to lower a thread.
        let _ = thread_context::set_scheduling(native);
    }
}

fn apply_priority(orb: &OrbContext, priority: Priority) -> Result<(), SystemException> {
    let stamp = orb.stamp();
    if !thread_context::current_lane(stamp).has_fixed_priority()
        && let Some(native) = orb.config().rt.scheduling_for(priority)?
    {
        set_scheduling(native)?;
    }
    set_thread_priority(stamp, priority.get());
    Ok(())
}

impl Drop for UpcallPriority {
    #[inline]
    fn drop(&mut self) {
        self.scheduling.restore();
        if PRIORITY.get() != self.priority {
            PRIORITY.set(self.priority);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_has_one_priority_per_orb() {
        std::thread::spawn(|| {
            assert_eq!(thread_priority(1), None);
            set_thread_priority(1, 100);
            set_thread_priority(2, 200);
            assert_eq!(
                (thread_priority(1), thread_priority(2), thread_priority(3)),
                (Priority::new(100), Priority::new(200), None)
            );
            set_thread_priority(1, 101);
            assert_eq!((thread_priority(1), thread_priority(2)), (Priority::new(101), Priority::new(200)));
        })
        .join()
        .unwrap();
    }
}
