//! The idle threads of a group: each thread has an [`IdleSlot`] in the group's [`IdleThreads`]. A
//! thread marks its slot idle before it waits for work, and busy when it has work. Another thread
//! that needs an idle thread claims the slot. The idle thread finds the claim when it marks the
//! slot busy. The thread that takes the last idle thread out of its idle state notifies the
//! *overload thread* of the group, which does the work that finds no idle thread. While the
//! overload thread monitors the group, it is also notified when a thread becomes idle again.
//!
//! Comments in the code refer to two rules:
//!
//! * `slot`: a slot goes from idle to busy or to claimed by one compare-and-swap, so the thread is
//!   taken only once.
//! * `monitor`: a thread counts itself idle and then checks for a monitor; a monitor announces
//!   itself and then checks for idle threads. Sequentially consistent fences on both sides make at
//!   least one of the two see the other. The rule also applies to work: one thread puts work on a
//!   list and then checks for idle threads, and another thread marks itself idle and then checks
//!   the list.

use crate::shim::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};

const BUSY: u32 = 0;
const IDLE: u32 = 1;
const CLAIMED: u32 = 2;

/// The state of one thread of a group: busy, idle or claimed.
#[derive(Debug)]
pub struct IdleSlot(AtomicU32);

/// A group of threads, with the number of its idle threads.
#[derive(Debug)]
pub struct IdleThreads {
    idle: AtomicUsize,
    is_monitored: AtomicBool,
}

/// The result of [`IdleThreads::mark_idle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkIdleResult {
    /// The overload thread does not wait for an idle thread.
    NotMonitored,
    /// The overload thread waits for an idle thread: the caller must notify it.
    Monitored,
}

/// The outcome of [`IdleThreads::mark_busy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkBusyResult {
    /// The thread is busy, and at least one other thread is idle.
    Busy,
    /// The thread is busy, and no other thread is idle: the caller must notify the overload thread.
    LastIdle,
    /// Another thread has claimed this one. This thread does the work of the claim and then calls
    /// [`IdleSlot::release`].
    ClaimedByOther,
}

impl Default for IdleSlot {
    fn default() -> Self {
        Self::new()
    }
}

impl IdleSlot {
    /// Creates the slot of a busy thread.
    #[must_use]
    pub fn new() -> Self {
        IdleSlot(AtomicU32::new(BUSY))
    }

    /// Makes a claimed thread busy again, after it has done the work of the claim.
    pub fn release(&self) {
        // No other thread changes a claimed slot, so a store suffices.
        self.0.store(BUSY, Ordering::Release);
    }
}

impl Default for IdleThreads {
    fn default() -> Self {
        Self::new()
    }
}

impl IdleThreads {
    /// Creates a group without idle threads and without a monitor.
    #[must_use]
    pub fn new() -> Self {
        IdleThreads { idle: AtomicUsize::new(0), is_monitored: AtomicBool::new(false) }
    }

    /// Marks the calling thread idle. The caller must then check for work once more before it
    /// waits.
    #[must_use = "the overload thread may wait for this thread"]
    pub fn mark_idle(&self, slot: &IdleSlot) -> MarkIdleResult {
        // The count increases before the slot is idle, so it includes every thread that can be
        // claimed.
        self.idle.fetch_add(1, Ordering::SeqCst);
        // Release: pairs with `try_claim` (rule `slot`).
        slot.0.store(IDLE, Ordering::Release);
        // Pairs with `set_monitored` and `has_idle` (rule `monitor`).
        fence(Ordering::SeqCst);
        if self.is_monitored.load(Ordering::Relaxed) { MarkIdleResult::Monitored } else { MarkIdleResult::NotMonitored }
    }

    /// Marks the calling, idle thread busy, because it has found work.
    #[must_use = "a claimed thread must do the work of the claim, and the last idle thread must notify the overload thread"]
    pub fn mark_busy(&self, slot: &IdleSlot) -> MarkBusyResult {
        // Acquire: pairs with `try_claim` (rule `slot`).
        if slot.0.compare_exchange(IDLE, BUSY, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return MarkBusyResult::ClaimedByOther;
        }
        if self.idle.fetch_sub(1, Ordering::SeqCst) == 1 { MarkBusyResult::LastIdle } else { MarkBusyResult::Busy }
    }

    /// Claims the thread of the slot if it is idle. Returns `Some(true)` if it was the last idle
    /// thread, `Some(false)` if other threads are idle, and `None` if the thread of the slot is not
    /// idle.
    pub fn try_claim(&self, slot: &IdleSlot) -> Option<bool> {
        // Acquire: pairs with `mark_idle`; release: with `mark_busy` (rule `slot`).
        slot.0.compare_exchange(IDLE, CLAIMED, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        Some(self.idle.fetch_sub(1, Ordering::SeqCst) == 1)
    }

    /// Returns true if a thread is idle. Before the call, the caller must have put work on a list
    /// or announced itself by [`set_monitored`](Self::set_monitored).
    #[must_use]
    pub fn has_idle(&self) -> bool {
        // Pairs with `mark_idle` (rule `monitor`).
        fence(Ordering::SeqCst);
        self.idle.load(Ordering::SeqCst) > 0
    }

    /// Sets whether threads that become idle notify the overload thread. After a call with true,
    /// the overload thread must check [`has_idle`](Self::has_idle).
    pub fn set_monitored(&self, monitored: bool) {
        self.is_monitored.store(monitored, Ordering::SeqCst);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn idle_thread_is_claimed_once() {
        let (roster, one, two) = (IdleThreads::new(), IdleSlot::new(), IdleSlot::new());
        assert!(!roster.has_idle() && roster.try_claim(&one).is_none());
        assert_eq!(roster.mark_idle(&one), MarkIdleResult::NotMonitored);
        assert_eq!(roster.mark_idle(&two), MarkIdleResult::NotMonitored);
        assert!(roster.has_idle());
        assert_eq!(roster.mark_busy(&one), MarkBusyResult::Busy);
        assert_eq!(roster.try_claim(&one), None);
        assert_eq!(roster.try_claim(&two), Some(true));
        assert_eq!((roster.mark_busy(&two), roster.has_idle()), (MarkBusyResult::ClaimedByOther, false));
        two.release();
        roster.set_monitored(true);
        assert_eq!(roster.mark_idle(&two), MarkIdleResult::Monitored);
        assert_eq!(roster.mark_busy(&two), MarkBusyResult::LastIdle);
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;
    use crate::shim::explore;

    #[test]
    fn waking_thread_is_claimed_at_most_once() {
        explore(|| {
            let shared = Arc::new((IdleThreads::new(), IdleSlot::new()));
            let _ = shared.0.mark_idle(&shared.1);
            let claimers: Vec<_> = (0..2)
                .map(|_| {
                    let shared = Arc::clone(&shared);
                    thread::spawn(move || shared.0.try_claim(&shared.1).is_some())
                })
                .collect();
            let rose = shared.0.mark_busy(&shared.1);
            let claims = claimers.into_iter().map(|one| one.join().unwrap()).filter(|had| *had).count();
            assert_eq!(claims, usize::from(rose == MarkBusyResult::ClaimedByOther));
            assert!(!shared.0.has_idle());
        });
    }

    #[test]
    fn overload_thread_misses_no_idle_thread() {
        explore(|| {
            let shared = Arc::new((IdleThreads::new(), IdleSlot::new()));
            let thread = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.0.mark_idle(&shared.1))
            };
            shared.0.set_monitored(true);
            let seen = shared.0.has_idle();
            assert!(
                thread.join().unwrap() == MarkIdleResult::Monitored || seen,
                "expected that one of the two threads sees the other"
            );
        });
    }

    #[test]
    fn buffered_request_always_finds_a_thread() {
        explore(|| {
            let shared = Arc::new((IdleThreads::new(), IdleSlot::new(), AtomicUsize::new(0)));
            let thread = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let _ = shared.0.mark_idle(&shared.1);
                    shared.2.load(Ordering::Acquire) > 0
                })
            };
            shared.2.store(1, Ordering::Release);
            let wakes = shared.0.has_idle();
            assert!(thread.join().unwrap() || wakes, "expected that one of the two threads sees the other");
        });
    }

    struct Bell(loom::sync::Mutex<bool>, loom::sync::Condvar);

    impl Bell {
        fn new() -> Self {
            Bell(loom::sync::Mutex::new(false), loom::sync::Condvar::new())
        }

        fn notify(&self) {
            *self.0.lock().unwrap() = true;
            self.1.notify_one();
        }

        fn wait(&self) {
            let mut told = self.0.lock().unwrap();
            while !std::mem::take(&mut *told) {
                told = self.1.wait(told).unwrap();
            }
        }
    }

    #[derive(Default)]
    struct Told {
        loan: bool,
        work: bool,
    }

    #[test]
    fn claimed_thread_receives_its_loan() {
        struct World {
            threads: IdleThreads,
            slot: IdleSlot,
            told: loom::sync::Mutex<Told>,
            bell: loom::sync::Condvar,
            loan: loom::sync::Mutex<Option<u32>>,
        }
        impl World {
            fn tell(&self, tell: impl FnOnce(&mut Told)) {
                tell(&mut self.told.lock().unwrap());
                self.bell.notify_one();
            }

            fn wait(&self, come: impl Fn(&Told) -> bool) {
                let mut told = self.told.lock().unwrap();
                while !come(&told) {
                    told = self.bell.wait(told).unwrap();
                }
                told.loan = false;
            }

            fn lend(&self) -> u32 {
                let lent = loop {
                    let loan = self.loan.lock().unwrap().take();
                    match loan {
                        Some(loan) => break loan,
                        None => self.wait(|told| told.loan),
                    }
                };
                self.slot.release();
                lent
            }
        }
        explore(|| {
            let world = Arc::new(World {
                threads: IdleThreads::new(),
                slot: IdleSlot::new(),
                told: loom::sync::Mutex::new(Told::default()),
                bell: loom::sync::Condvar::new(),
                loan: loom::sync::Mutex::new(None),
            });
            let lender = {
                let world = Arc::clone(&world);
                thread::spawn(move || {
                    let mut lent = 0;
                    loop {
                        let _ = world.threads.mark_idle(&world.slot);
                        world.wait(|told| told.loan || told.work);
                        if world.threads.mark_busy(&world.slot) == MarkBusyResult::ClaimedByOther {
                            lent += world.lend();
                        } else if std::mem::take(&mut world.told.lock().unwrap().work) {
                            return lent;
                        }
                    }
                })
            };
            let borrower = {
                let world = Arc::clone(&world);
                thread::spawn(move || {
                    if world.threads.try_claim(&world.slot).is_none() {
                        return 0;
                    }
                    *world.loan.lock().unwrap() = Some(7);
                    world.tell(|told| told.loan = true);
                    7
                })
            };
            world.tell(|told| told.work = true);
            assert_eq!(lender.join().unwrap(), borrower.join().unwrap());
        });
    }

    #[test]
    fn every_buffered_request_runs_once() {
        struct World {
            threads: IdleThreads,
            bell: Bell,
            list: loom::sync::Mutex<Vec<u32>>,
            count: AtomicUsize,
        }
        explore(|| {
            let world = Arc::new(World {
                threads: IdleThreads::new(),
                bell: Bell::new(),
                list: loom::sync::Mutex::new(Vec::new()),
                count: AtomicUsize::new(0),
            });
            let worker = {
                let world = Arc::clone(&world);
                thread::spawn(move || {
                    let (slot, mut run) = (IdleSlot::new(), Vec::new());
                    while run.len() < 2 {
                        if world.count.load(Ordering::Acquire) == 0 {
                            let _ = world.threads.mark_idle(&slot);
                            if world.count.load(Ordering::Acquire) == 0 {
                                world.bell.wait();
                            }
                            assert_ne!(world.threads.mark_busy(&slot), MarkBusyResult::ClaimedByOther);
                        }
                        let mut list = world.list.lock().unwrap();
                        run.extend(list.pop());
                        world.count.store(list.len(), Ordering::SeqCst);
                    }
                    run
                })
            };
            for request in [1, 2] {
                let mut list = world.list.lock().unwrap();
                list.push(request);
                world.count.store(list.len(), Ordering::SeqCst);
                drop(list);
                if world.threads.has_idle() {
                    world.bell.notify();
                }
            }
            let mut run = worker.join().unwrap();
            run.sort_unstable();
            assert_eq!(run, [1, 2]);
        });
    }

    #[test]
    fn claimed_thread_becomes_idle_again() {
        explore(|| {
            let shared = Arc::new((IdleThreads::new(), IdleSlot::new()));
            let _ = shared.0.mark_idle(&shared.1);
            let claimer = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.0.try_claim(&shared.1))
            };
            match shared.0.mark_busy(&shared.1) {
                MarkBusyResult::ClaimedByOther => shared.1.release(),
                MarkBusyResult::Busy | MarkBusyResult::LastIdle => {}
            }
            claimer.join().unwrap();
            let _ = shared.0.mark_idle(&shared.1);
            assert!(shared.0.has_idle());
            assert_eq!(shared.0.mark_busy(&shared.1), MarkBusyResult::LastIdle);
        });
    }
}
