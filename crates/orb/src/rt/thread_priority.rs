//! The CORBA priorities of threads. A thread has one priority for each ORB.

use std::cell::{Cell, RefCell};

use corelane_sched::Priority;
use corelane_sys::thread::Scheduling;

use super::config::unmappable;
use crate::exception::SystemException;
use crate::orb_context::OrbContext;
use crate::thread_context::{self, SavedScheduling, can_lower};

/// A thread's priority in one ORB; negative if the thread has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OrbPriority {
    stamp: u64,
    priority: i16,
}

thread_local! {
    /// The thread's priority in the ORB in which its priority was set last.
    static PRIORITY: Cell<OrbPriority> = const { Cell::new(OrbPriority { stamp: 0, priority: -1 }) };
    /// The thread's priorities in other ORBs, at most eight.
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
        if beside.len() >= 8 {
            beside.remove(0);
        }
        beside.push(now);
    });
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallerPriority {
    Set(Priority),
    /// The CORBA priority of the thread's fixed native priority, because no priority was set. A
    /// call has this priority if a lane or band of its object suits it, else none.
    Implied(Priority),
    Unset,
}

impl CallerPriority {
    pub(crate) fn parts(self) -> (Option<Priority>, bool) {
        match self {
            CallerPriority::Set(priority) => (Some(priority), false),
            CallerPriority::Implied(priority) => (Some(priority), true),
            CallerPriority::Unset => (None, false),
        }
    }
}

pub(crate) fn caller_priority(orb: &OrbContext) -> CallerPriority {
    if let Some(priority) = thread_priority(orb.stamp()) {
        return CallerPriority::Set(priority);
    }
    let implied = thread_context::current_scheduling().ok().and_then(|native| orb.config().rt.corba_priority(native));
    implied.map_or(CallerPriority::Unset, CallerPriority::Implied)
}

pub(super) fn set_scheduling(to: Scheduling) -> Result<(), SystemException> {
    thread_context::set_scheduling(to).map_err(|error| unmappable().with_message(format!("{to:?} is refused: {error}")))
}

/// The CORBA priority and the scheduling of the thread before an upcall. The drop restores them.
pub(crate) struct UpcallPriority {
    priority: OrbPriority,
    scheduling: SavedScheduling,
}

impl UpcallPriority {
    #[inline]
    pub(crate) fn begin() -> Self {
        UpcallPriority { priority: PRIORITY.get(), scheduling: SavedScheduling::capture() }
    }

    /// Gives the thread the CORBA priority `priority`, but at most `most`. Then lowers the
    /// scheduling of a thread that runs above `most`, even if `priority` is `None`.
    ///
    /// # Errors
    /// If `priority` has no native scheduling, or if the kernel refuses it.
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

/// Lowers the scheduling of the calling thread to that of `most`, if the thread runs above it.
/// Unlike [`apply_priority`], the function also lowers threads of lanes.
#[cold]
fn cap_priority(orb: &OrbContext, most: Priority) {
    if let Ok(Some(native)) = orb.config().rt.scheduling_for(most)
        && thread_context::current_scheduling().is_ok_and(|now| can_lower(now, native))
    {
        // The kernel permits every thread to lower its priority, so no error is expected.
        let _ = thread_context::set_scheduling(native);
    }
}

/// Gives the calling thread a CORBA priority with its native scheduling. Threads of lanes keep the
/// native scheduling of the lane.
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
