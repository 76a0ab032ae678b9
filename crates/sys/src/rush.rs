//! One thread of a group works alone, another watches it, and the rest sleep: who is which.
//!
//! A thread that would better work alone says so with [`Roles::want`]. The next one that [stands aside](Roles::stand_aside) becomes its
//! *watch*: it begins the rush, looks now and then whether that is still good, and ends it. Threads that stand aside meanwhile
//! sleep until then. So there is no rush without a watch, and never two watches.
//!
//! `roles`: the watch sets what the rush is about before it takes the wish back, and takes that back only when it ends the rush. Whoever
//! does not find its wish any more (acquire) finds the rush that came of it (release), unless that is over.

use std::time::Duration;

#[cfg(not(loom))]
use crate::clock::Monotonic;
use crate::counters;
use crate::lock::{Condvar, Mutex, MutexGuard, Scope};
use crate::shim::{AtomicU64, Ordering};

/// No rush is about this.
pub const NOTHING: u64 = u64::MAX;

/// The roles of a group's threads.
#[derive(Debug)]
pub struct Roles {
    /// What the rush is about. Set and taken back by the watch alone, but for the end of the group.
    subject: AtomicU64,
    /// What a thread wants one about.
    wanted: AtomicU64,
    /// Whether there is a watch.
    watched: Mutex<bool>,
    over: Condvar,
}

impl Default for Roles {
    fn default() -> Self {
        Self::new()
    }
}

impl Roles {
    /// No rush, and nobody wants one.
    #[must_use]
    pub fn new() -> Self {
        Roles {
            subject: AtomicU64::new(NOTHING),
            wanted: AtomicU64::new(NOTHING),
            watched: Mutex::new("watch of a rush", Scope::Lane, false),
            over: Condvar::new(),
        }
    }

    /// Whether there is a rush, or somebody wants one.
    #[inline]
    pub fn concern_anybody(&self) -> bool {
        self.subject.load(Ordering::Relaxed) != NOTHING || self.wanted.load(Ordering::Relaxed) != NOTHING
    }

    /// Whether there is a rush about this.
    #[inline]
    pub fn are_about(&self, subject: u64) -> bool {
        self.subject.load(Ordering::Acquire) == subject
    }

    /// Whether somebody wants a rush about this, and nobody has had time to watch it yet.
    pub fn are_wanted(&self, subject: u64) -> bool {
        // Acquire: pairs with `stand_aside` (roles).
        self.wanted.load(Ordering::Acquire) == subject
    }

    /// The calling thread wants to work alone on `subject`. False if another one wants to as well: of several who say so at once one is
    /// heard, and the others may be the watch.
    pub fn want(&self, subject: u64) -> bool {
        self.wanted.compare_exchange(NOTHING, subject, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Sleeps while there is a rush, then begins and watches the one that is wanted, if one is: every `tick` it asks `goes_on`, and ends
    /// the rush when the answer is no. What the rush was about that the calling thread has watched.
    pub fn stand_aside(&self, tick: Duration, mut goes_on: impl FnMut() -> bool) -> Option<u64> {
        let mut watched = self.watched.lock();
        while *watched {
            watched = self.over.wait(watched);
        }
        let subject = self.wanted.load(Ordering::Relaxed);
        if subject == NOTHING {
            return None;
        }
        *watched = true;
        self.subject.store(subject, Ordering::Relaxed);
        // Release: pairs with `are_wanted` (roles). A wish that has come since is kept for the next watch.
        let _ = self.wanted.compare_exchange(subject, NOTHING, Ordering::Release, Ordering::Relaxed);
        counters::count_rush();
        while self.are_about(subject) {
            watched = self.after(tick, watched);
            if !goes_on() {
                break;
            }
        }
        *watched = false;
        self.subject.store(NOTHING, Ordering::Release);
        self.over.notify_all();
        Some(subject)
    }

    /// The lock again when a tick is over, or the group ends.
    #[cfg(not(loom))]
    fn after<'a>(&'a self, tick: Duration, watched: MutexGuard<'a, bool>) -> MutexGuard<'a, bool> {
        self.over.wait_until(watched, Some(Monotonic::now() + tick)).0
    }

    /// In a model a tick takes any time; how many there are is the model's to say.
    #[cfg(loom)]
    fn after<'a>(&'a self, _: Duration, watched: MutexGuard<'a, bool>) -> MutexGuard<'a, bool> {
        drop(watched);
        self.watched.lock()
    }

    /// The group ends: the rush is over, and nobody sleeps any longer.
    #[cold]
    pub fn end(&self) {
        // Under the lock that sleepers look under.
        let watched = self.watched.lock();
        self.wanted.store(NOTHING, Ordering::Relaxed);
        self.subject.store(NOTHING, Ordering::Release);
        self.over.notify_all();
        drop(watched);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn nobody_watches_what_nobody_wants() {
        let roles = Roles::new();
        assert_eq!(roles.stand_aside(Duration::ZERO, || panic!("there is nothing to look at")), None);
        assert!(!roles.concern_anybody());
    }

    #[test]
    fn a_rush_that_is_wanted_is_watched_until_it_is_no_good() {
        let roles = Roles::new();
        assert!(roles.want(7));
        assert!(roles.concern_anybody() && roles.are_wanted(7) && !roles.are_about(7));
        let (before, mut looks) = (counters::snapshot().rushes, 0);
        let watched = roles.stand_aside(Duration::from_micros(10), || {
            assert!(roles.are_about(7) && !roles.are_wanted(7));
            looks += 1;
            looks < 3
        });
        assert_eq!((watched, looks), (Some(7), 3));
        assert_eq!(counters::snapshot().rushes - before, 1);
        assert!(!roles.concern_anybody());
    }

    #[test]
    fn the_end_of_the_group_ends_the_rush() {
        let roles = Roles::new();
        assert!(roles.want(7));
        std::thread::scope(|scope| {
            let watch = scope.spawn(|| roles.stand_aside(Duration::from_secs(3600), || true));
            while !roles.are_about(7) {
                std::thread::yield_now();
            }
            let sleeper = scope.spawn(|| roles.stand_aside(Duration::ZERO, || true));
            roles.end();
            assert_eq!((watch.join().unwrap(), sleeper.join().unwrap()), (Some(7), None));
        });
        assert!(!roles.concern_anybody());
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::sync::atomic::AtomicUsize;
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;

    use super::*;
    use crate::notice::Notice;
    use crate::shim::{AtomicBool, explore, explore_within};

    const CONNECTION: u64 = 1;
    const TICK: Duration = Duration::ZERO;

    /// Whoever wanted a rush and finds neither the wish nor the rush has missed it all: it is not still to come.
    #[test]
    fn who_wants_a_rush_finds_it() {
        explore(|| {
            let shared = Arc::new((Roles::new(), AtomicBool::new(false)));
            assert!(shared.0.want(CONNECTION));
            let other = Arc::clone(&shared);
            let watch = thread::spawn(move || {
                other.0.stand_aside(TICK, || {
                    other.1.store(true, Ordering::Relaxed);
                    false
                })
            });
            // The watch first: loom places the loads of this thread between the stores of the other, not the stores around the loads.
            thread::yield_now();
            if !shared.0.are_wanted(CONNECTION) && !shared.0.are_about(CONNECTION) {
                assert!(shared.1.load(Ordering::Relaxed), "the rush begins without its runner");
            }
            assert_eq!(watch.join().unwrap(), Some(CONNECTION));
        });
    }

    /// Two threads stand aside while the group ends: one at most watches, and both come back.
    #[test]
    fn one_thread_watches_and_nobody_sleeps_on() {
        explore(|| {
            let shared = Arc::new((Roles::new(), AtomicBool::new(false)));
            assert!(shared.0.want(CONNECTION));
            let threads = [(); 2].map(|()| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let mut ticks = 0;
                    let watched = shared.0.stand_aside(TICK, || {
                        ticks += 1;
                        assert_eq!(shared.1.swap(ticks == 1, Ordering::Relaxed), ticks == 2, "two watch");
                        ticks < 2
                    });
                    if ticks == 1 {
                        // The end came between the ticks.
                        shared.1.store(false, Ordering::Relaxed);
                    }
                    watched.is_some()
                })
            });
            shared.0.end();
            let watches = threads.into_iter().map(|thread| thread.join().unwrap()).filter(|watched| *watched).count();
            assert!(watches <= 1);
            assert!(!shared.0.concern_anybody());
        });
    }

    /// A lane with one connection, as leaders and followers serve it.
    struct Lane {
        roles: Roles,
        /// Messages that nobody has read. The last but one is done when the last is.
        unread: Mutex<u32>,
        /// Times that the connection is listed for reading.
        listed: AtomicUsize,
        notice: Notice,
        /// The wake-up that nobody has taken.
        edge: Mutex<bool>,
        reported: Condvar,
        done: Mutex<u32>,
        progress: Condvar,
        stop: AtomicBool,
    }

    const MESSAGES: u32 = 3;

    impl Lane {
        fn new() -> Arc<Self> {
            Arc::new(Lane {
                roles: Roles::new(),
                unread: Mutex::new(MESSAGES),
                listed: AtomicUsize::new(0),
                notice: Notice::new(),
                edge: Mutex::new(false),
                reported: Condvar::new(),
                done: Mutex::new(0),
                progress: Condvar::new(),
                stop: AtomicBool::new(false),
            })
        }

        fn wake(&self) {
            *self.edge.lock().unwrap() = true;
            self.reported.notify_one();
        }

        fn wake_one(&self) {
            if self.notice.give() {
                self.wake();
            }
        }

        fn push(&self) {
            self.listed.fetch_add(1, Ordering::SeqCst);
            self.wake_one();
        }

        /// Reads what is listed, or waits for something to be.
        fn step(&self, runs: &mut bool) {
            let before = self.listed.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |listed| listed.checked_sub(1));
            match before {
                Ok(before) => {
                    if before > 1 {
                        self.wake_one();
                    }
                    self.read(runs);
                }
                Err(_) => {
                    let mut edge = self.edge.lock().unwrap();
                    while !*edge {
                        edge = self.reported.wait(edge).unwrap();
                    }
                    *edge = false;
                    drop(edge);
                    self.notice.take();
                }
            }
        }

        fn read(&self, runs: &mut bool) {
            loop {
                let mut unread = self.unread.lock().unwrap();
                let message = *unread;
                *unread = message.saturating_sub(1);
                drop(unread);
                if message == 0 {
                    return;
                }
                let more = message > 1;
                let keeps = more && self.keeps_rest(runs);
                if more && !keeps {
                    self.push();
                }
                self.serve(message);
                if !keeps {
                    return;
                }
            }
        }

        fn keeps_rest(&self, runs: &mut bool) -> bool {
            if *runs {
                return self.roles.are_about(CONNECTION);
            }
            if !self.roles.concern_anybody() {
                *runs = true;
                self.roles.want(CONNECTION);
            }
            false
        }

        fn serve(&self, message: u32) {
            let mut done = self.done.lock().unwrap();
            while message == 2 && *done < MESSAGES - 1 {
                done = self.progress.wait(done).unwrap();
            }
            *done += 1;
            self.progress.notify_all();
            if *done == MESSAGES {
                drop(done);
                self.stop.store(true, Ordering::Release);
                self.roles.end();
                self.wake();
            }
        }

        fn mind_rush(&self, runs: &mut bool) {
            if !self.roles.concern_anybody() {
                *runs = false;
            } else if !*runs {
                if self.roles.stand_aside(TICK, || false).is_some() {
                    self.push();
                }
            } else if !self.roles.are_wanted(CONNECTION) {
                while self.roles.are_about(CONNECTION) && !self.stop.load(Ordering::Acquire) {
                    self.step(runs);
                }
                *runs = false;
            }
        }

        fn run(&self) {
            let mut runs = false;
            while !self.stop.load(Ordering::Acquire) {
                self.step(&mut runs);
                self.mind_rush(&mut runs);
            }
            // The next thread finds the flag too.
            self.wake();
        }
    }

    /// Three messages, of which the second is done when the third is: whichever thread keeps the rest of them for itself, another one
    /// gets to it, every message is served, and both threads end.
    #[test]
    fn a_request_may_wait_for_the_one_behind_it() {
        explore_within(2, || {
            let lane = Lane::new();
            let threads = [(); 2].map(|()| {
                let lane = Arc::clone(&lane);
                thread::spawn(move || lane.run())
            });
            lane.push();
            for thread in threads {
                thread.join().unwrap();
            }
            assert_eq!(*lane.done.lock().unwrap(), MESSAGES);
        });
    }
}
