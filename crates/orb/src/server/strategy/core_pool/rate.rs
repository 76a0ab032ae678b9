//! The rate of a task's requests: one request above the rate waits, and further requests are
//! refused.
//!
//! A request is due `distance` after the due time of the previous request, or after its arrival if
//! the arrival was later. The turn of a request is its due time minus the task's jitter: from its
//! turn on, the request may run. A request that arrives before its turn waits. While it waits, all
//! requests that arrive before their turns are refused.
//!
//! Invariants: in any time `t` at most `1 + (t + jitter) / distance` requests begin. At most one
//! request of a task waits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use corelane_sys::lock::{LockScope, PiMutex};

use super::Mailbox;
use crate::rt::core_config::{TaskBinding, TaskRules};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RateVerdict {
    Run,
    Wait,
    Refuse,
}

/// The rate of one task. All times are in nanoseconds since an instant that the caller chose.
#[derive(Clone, Debug)]
struct Rate {
    /// The shortest distance and the jitter; `None` for a task without a rate.
    bounds: Option<(u64, u64)>,
    /// The time from which the next distance counts: the later of the last request's due time and
    /// its arrival.
    last: Option<u64>,
    /// The due time of the request that waits, before the jitter is subtracted.
    waiting: Option<u64>,
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Rate {
    fn arrive(&mut self, now: u64) -> RateVerdict {
        let (Some((distance, jitter)), Some(before)) = (self.bounds, self.waiting.max(self.last)) else {
            self.last = Some(now);
            return RateVerdict::Run;
        };
        let arrival = before.saturating_add(distance);
        if now.saturating_add(jitter) >= arrival {
            self.last = Some(arrival.max(now));
            return RateVerdict::Run;
        }
        if self.waiting.is_some() {
            return RateVerdict::Refuse;
        }
        self.waiting = Some(arrival);
        RateVerdict::Wait
    }

    /// Returns the time from which the waiting request may run. Returns `None` if no request waits,
    /// or if the task has no rate any more.
    fn turn(&self) -> Option<u64> {
        let (_, jitter) = self.bounds?;
        Some(self.waiting?.saturating_sub(jitter))
    }

    /// Replaces the rate. A request that waits gets its turn by the new rate.
    fn change(&mut self, bounds: Option<(u64, u64)>) {
        self.bounds = bounds;
        if let (Some(waiting), Some((distance, _)), Some(last)) = (&mut self.waiting, bounds, self.last) {
            *waiting = last.saturating_add(distance);
        }
    }

    /// Records that the waiting request runs now. The next distance counts from its due time.
    fn end_wait(&mut self) {
        self.last = self.last.max(self.waiting.take());
    }

    /// Records that the waiting request does not run, so that the next request may run in its
    /// place.
    fn cancel_wait(&mut self) {
        self.waiting = None;
    }
}

#[derive(Debug)]
pub(super) struct TaskRate(PiMutex<SharedRate>);

struct SharedRate {
    rate: Rate,
    waiter: Option<Arc<Mailbox>>,
}

pub(super) enum RateAdmission {
    Runs,
    /// The request runs when [`RateWait::turn`] has passed.
    Waits(RateWait),
    Refused,
}

/// The right of a request to wait for its turn. A drop without [`end`](Self::end) gives the turn to
/// the next request.
pub(super) struct RateWait {
    rate: Arc<TaskRate>,
    has_ended: bool,
}

impl std::fmt::Debug for SharedRate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SharedRate").field(&self.rate).finish()
    }
}

impl TaskRate {
    pub(super) fn new() -> Arc<Self> {
        let rate = Rate { bounds: None, last: None, waiting: None };
        Arc::new(TaskRate(PiMutex::new("task rate", LockScope::Lane, SharedRate { rate, waiter: None })))
    }

    pub(super) fn arrive(self: &Arc<Self>, now: Duration) -> RateAdmission {
        let verdict = self.0.lock().rate.arrive(nanos(now));
        match verdict {
            RateVerdict::Run => RateAdmission::Runs,
            RateVerdict::Wait => RateAdmission::Waits(RateWait { rate: Arc::clone(self), has_ended: false }),
            RateVerdict::Refuse => RateAdmission::Refused,
        }
    }

    /// Replaces the shortest distance and the jitter. `None` ends the rate, and with it the wait of
    /// a request. Wakes the thread at which a request waits.
    pub(super) fn change(&self, bounds: Option<(Duration, Duration)>) {
        let bounds = bounds.map(|(distance, jitter)| (nanos(distance), nanos(jitter)));
        let mut shared = self.0.lock();
        if shared.rate.bounds == bounds {
            return;
        }
        shared.rate.change(bounds);
        if let Some(waiter) = &shared.waiter {
            waiter.wake.notify();
        }
    }
}

/// Sets the rates of the tasks to those of their bindings. A task keeps the time of its last
/// request, from which the shortest time to the next one counts, even while it is demoted or has no
/// rate. Tasks in neither list are forgotten.
pub(super) fn update(rates: &mut BTreeMap<u64, Arc<TaskRate>>, tasks: &[TaskBinding], demoted: &[u64]) {
    let mut before = std::mem::take(rates);
    let bounds = |rules: &TaskRules| rules.min_interarrival.map(|distance| (distance, rules.jitter));
    let bound = tasks.iter().map(|binding| (binding.task, bounds(&binding.rules)));
    for (task, bounds) in bound.chain(demoted.iter().map(|task| (*task, None))) {
        let rate = before.remove(&task).or_else(|| bounds.map(|_| TaskRate::new()));
        let Some(rate) = rate else { continue };
        rate.change(bounds);
        rates.insert(task, rate);
    }
    for rate in before.values() {
        rate.change(None);
    }
}

impl RateWait {
    /// Returns the time from which the request may run; `None` for at once. From now on a change of
    /// the rate wakes the thread with this mailbox, which then asks again.
    pub(super) fn turn(&self, mailbox: &Arc<Mailbox>) -> Option<Duration> {
        let mut shared = self.rate.0.lock();
        shared.waiter = Some(Arc::clone(mailbox));
        shared.rate.turn().map(Duration::from_nanos)
    }

    pub(super) fn end(mut self) {
        self.finish(Rate::end_wait);
    }

    fn finish(&mut self, end: fn(&mut Rate)) {
        self.has_ended = true;
        let waiter = {
            let mut shared = self.rate.0.lock();
            end(&mut shared.rate);
            shared.waiter.take()
        };
        // The drop of the last reference to a mailbox closes a descriptor, which must not happen
        // under the lock.
        drop(waiter);
    }
}

impl Drop for RateWait {
    fn drop(&mut self) {
        if !self.has_ended {
            self.finish(Rate::cancel_wait);
        }
    }
}

#[cfg(test)]
mod tests {
    use corelane_sys::eventfd::EventFd;
    use corelane_sys::poll;
    use std::os::fd::AsFd;
    use std::sync::atomic::AtomicU32;

    use super::*;

    fn rate(distance: u64, jitter: u64) -> Rate {
        Rate { bounds: Some((distance, jitter)), last: None, waiting: None }
    }

    #[test]
    fn one_early_request_waits_and_others_are_refused() {
        let mut rate = rate(10, 0);
        assert_eq!(rate.arrive(100), RateVerdict::Run);
        assert_eq!((rate.arrive(103), rate.turn()), (RateVerdict::Wait, Some(110)));
        assert_eq!(rate.arrive(104), RateVerdict::Refuse);
        assert_eq!(rate.arrive(109), RateVerdict::Refuse);
        rate.end_wait();
        assert_eq!((rate.arrive(111), rate.turn()), (RateVerdict::Wait, Some(120)));
        rate.end_wait();
        assert_eq!(rate.arrive(130), RateVerdict::Run);
        assert_eq!(rate.arrive(140), RateVerdict::Run);
        assert_eq!(rate.arrive(500), RateVerdict::Run);
        assert_eq!((rate.arrive(500), rate.turn()), (RateVerdict::Wait, Some(510)));
    }

    #[test]
    fn cancelled_waits_do_not_move_the_next_arrival() {
        let mut rate = rate(10, 0);
        assert_eq!(rate.arrive(100), RateVerdict::Run);
        for _ in 0..100 {
            assert_eq!((rate.arrive(103), rate.turn()), (RateVerdict::Wait, Some(110)));
            rate.cancel_wait();
        }
        assert_eq!(rate.arrive(110), RateVerdict::Run);
    }

    #[test]
    fn jitter_permits_an_early_arrival() {
        let mut early = rate(10, 3);
        assert_eq!(early.arrive(100), RateVerdict::Run);
        assert_eq!(early.arrive(107), RateVerdict::Run);
        assert_eq!((early.arrive(114), early.turn()), (RateVerdict::Wait, Some(117)));
        early.end_wait();
        let mut largest = rate(u64::MAX, 0);
        assert_eq!(largest.arrive(1), RateVerdict::Run);
        assert_eq!((largest.arrive(2), largest.turn()), (RateVerdict::Wait, Some(u64::MAX)));
    }

    #[test]
    fn change_moves_the_turn_of_the_waiting_request() {
        let mut rate = rate(10, 0);
        assert_eq!((rate.arrive(100), rate.arrive(101)), (RateVerdict::Run, RateVerdict::Wait));
        rate.change(Some((50, 5)));
        assert_eq!((rate.turn(), rate.arrive(120)), (Some(145), RateVerdict::Refuse));
        rate.change(Some((20, 0)));
        assert_eq!(rate.turn(), Some(120));
        rate.change(None);
        assert_eq!((rate.turn(), rate.arrive(121)), (None, RateVerdict::Run));
        rate.end_wait();
        // A rate that is set again counts from the last request that began.
        rate.change(Some((30, 0)));
        assert_eq!((rate.arrive(130), rate.turn()), (RateVerdict::Wait, Some(151)));
    }

    #[test]
    fn rate_of_a_demoted_task_counts_from_its_last_request() {
        let nanos = Duration::from_nanos;
        let binding = |task, distance: Option<u64>| {
            let rules = TaskRules::default();
            let rules = distance.map_or(rules, |distance| rules.rate(nanos(distance), nanos(0)));
            TaskBinding::new(task, 0, 1).rules(rules)
        };
        let mut rates = BTreeMap::new();
        let with_rate = [binding(7, Some(100)), binding(8, None)];
        update(&mut rates, &with_rate, &[]);
        assert_eq!(rates.keys().copied().collect::<Vec<_>>(), [7]);
        assert!(matches!(rates[&7].arrive(nanos(1_000)), RateAdmission::Runs));
        update(&mut rates, &[], &[7]);
        update(&mut rates, &[binding(7, None)], &[]);
        update(&mut rates, &with_rate, &[]);
        assert!(matches!(rates[&7].arrive(nanos(1_099)), RateAdmission::Waits(_)));
        update(&mut rates, &[], &[8]);
        assert!(rates.is_empty());
    }

    #[test]
    fn change_wakes_the_thread_at_which_a_request_waits() {
        let wake = EventFd::new().unwrap();
        let assignment = PiMutex::new("assignment", LockScope::Lane, None);
        let mailbox = Arc::new(Mailbox { wake, assignment, changes: AtomicU32::new(0) });
        let is_woken = || {
            let woken = poll::wait_readable(mailbox.wake.as_fd(), Some(corelane_sys::clock::Monotonic::now())).unwrap();
            mailbox.wake.take_notifications();
            woken
        };
        let nanos = Duration::from_nanos;
        let rate = TaskRate::new();
        rate.change(Some((nanos(10), nanos(0))));
        assert!(matches!(rate.arrive(nanos(100)), RateAdmission::Runs));
        let RateAdmission::Waits(wait) = rate.arrive(nanos(101)) else { panic!("the request is early") };
        rate.change(Some((nanos(20), nanos(0))));
        assert_eq!((wait.turn(&mailbox), is_woken()), (Some(nanos(120)), false));
        rate.change(Some((nanos(20), nanos(0))));
        assert!(!is_woken(), "nothing has changed");
        rate.change(Some((nanos(30), nanos(1))));
        assert_eq!((is_woken(), wait.turn(&mailbox)), (true, Some(nanos(129))));
        rate.change(None);
        assert_eq!((is_woken(), wait.turn(&mailbox)), (true, None));
        wait.end();
        rate.change(Some((nanos(10), nanos(0))));
        assert!(!is_woken(), "no request waits");
    }

    /// Tries all arrivals on a grid, with waits that end in time, late and never, and a change of
    /// the rate.
    #[test]
    fn requests_that_begin_keep_the_rate_in_all_orders() {
        const DISTANCE: u64 = 4;
        const JITTER: u64 = 1;
        fn explore(arrivals: &[u64], end_waits: u64, changes_at: u64) {
            let mut rate = rate(2 * DISTANCE, 2 * JITTER);
            let mut begun: Vec<u64> = Vec::new();
            let mut waiting = false;
            let mut next = arrivals.iter().peekable();
            for now in 0..40 {
                if now == changes_at {
                    rate.change(Some((DISTANCE, JITTER)));
                }
                if let Some(turn) = rate.turn().filter(|turn| now >= turn + end_waits) {
                    begun.push(turn);
                    waiting = false;
                    rate.end_wait();
                }
                if next.next_if_eq(&&now).is_none() {
                    continue;
                }
                match rate.arrive(now) {
                    RateVerdict::Run => begun.push(now),
                    RateVerdict::Wait => {
                        assert!(!waiting, "two requests wait: {arrivals:?}");
                        assert!(rate.turn() > Some(now));
                        waiting = true;
                    }
                    RateVerdict::Refuse => assert!(waiting, "refused without need: {arrivals:?}"),
                }
            }
            begun.extend(rate.turn());
            begun.sort_unstable();
            for (first, from) in begun.iter().enumerate() {
                for (count, to) in (1..).zip(&begun[first..]) {
                    assert!(count <= 1 + (to - from + JITTER) / DISTANCE, "{begun:?} {arrivals:?} {changes_at}");
                }
            }
        }
        let mut orders = 0;
        for bits in 0..1_u32 << 12 {
            let arrivals: Vec<u64> = (0..12).filter(|bit| bits & (1 << bit) != 0).collect();
            for end_waits in [0, 2, 100] {
                for changes_at in 0..12 {
                    explore(&arrivals, end_waits, changes_at);
                    orders += 1;
                }
            }
        }
        assert_eq!(orders, 36 << 12);
    }
}
