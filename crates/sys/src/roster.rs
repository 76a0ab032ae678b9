//! Which threads of a group are idle, and who takes one of them: itself, because there is work for it, or somebody who needs a
//! thread.
//!
//! Each thread has a [`Seat`] in the group's [`Roster`]. It sits while it waits for work and rises when there is some. Whoever wants the
//! thread for something else claims the seat; the thread finds that out when it rises. The group's *keeper* wants to know when the
//! last idle thread has risen, and, while it watches, when one sits down again.
//!
//! * `seat`: a seat goes from idle to busy or to claimed by one compare-and-swap, so a thread is taken by one of them.
//! * `watch`: a thread counts itself idle and then looks for a watcher; a watcher announces itself and then looks for idle threads.
//!   Sequentially consistent fences on both sides make one of them see the other. The same holds for work: whoever lists work
//!   looks for idle threads afterwards, and a thread looks for work after it sat down.

use crate::shim::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};

const BUSY: u32 = 0;
const IDLE: u32 = 1;
const CLAIMED: u32 = 2;

/// One thread's place in a group.
#[derive(Debug)]
pub struct Seat(AtomicU32);

/// The group.
#[derive(Debug)]
pub struct Roster {
    idle: AtomicUsize,
    watched: AtomicBool,
}

/// What a thread that rises finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rise {
    /// It is busy, and others are idle.
    Busy,
    /// It is busy, and nobody is idle any more: the keeper is to be told.
    Last,
    /// Somebody has claimed it: it does what that one wants, then [`Seat::release`].
    Claimed,
}

impl Default for Seat {
    fn default() -> Self {
        Self::new()
    }
}

impl Seat {
    /// The seat of a thread that is busy.
    #[must_use]
    pub fn new() -> Self {
        Seat(AtomicU32::new(BUSY))
    }

    /// A claimed thread has done what was wanted, and is busy again.
    pub fn release(&self) {
        // Only the claimed thread itself gets here; nobody else changes a claimed seat.
        self.0.store(BUSY, Ordering::Release);
    }
}

impl Default for Roster {
    fn default() -> Self {
        Self::new()
    }
}

impl Roster {
    /// A group without idle threads that nobody watches.
    #[must_use]
    pub fn new() -> Self {
        Roster { idle: AtomicUsize::new(0), watched: AtomicBool::new(false) }
    }

    /// The calling thread is idle: it looks for work once more, then waits. True if the keeper is to be told.
    #[must_use = "the keeper may wait for this thread"]
    pub fn sit(&self, seat: &Seat) -> bool {
        // Counted first: whoever finds the seat idle takes a thread that is counted.
        self.idle.fetch_add(1, Ordering::SeqCst);
        // Release: pairs with `claim` (seat).
        seat.0.store(IDLE, Ordering::Release);
        // Pairs with `watch` and `has_idle` (watch).
        fence(Ordering::SeqCst);
        self.watched.load(Ordering::Relaxed)
    }

    /// There is work for the calling thread, which sits.
    #[must_use = "a claimed thread is somebody else's, and the last one tells the keeper"]
    pub fn rise(&self, seat: &Seat) -> Rise {
        // Acquire: pairs with `claim` (seat).
        if seat.0.compare_exchange(IDLE, BUSY, Ordering::AcqRel, Ordering::Acquire).is_err() {
            return Rise::Claimed;
        }
        if self.idle.fetch_sub(1, Ordering::SeqCst) == 1 { Rise::Last } else { Rise::Busy }
    }

    /// Takes the thread of `seat` if it is idle: `None` if it is not, else whether it was the last idle one.
    pub fn claim(&self, seat: &Seat) -> Option<bool> {
        // Acquire: pairs with `sit`; release: with `rise` (seat).
        seat.0.compare_exchange(IDLE, CLAIMED, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        Some(self.idle.fetch_sub(1, Ordering::SeqCst) == 1)
    }

    /// Whether a thread is idle, as seen by who has just listed work or announced itself.
    #[must_use]
    pub fn has_idle(&self) -> bool {
        // Pairs with `sit` (watch).
        fence(Ordering::SeqCst);
        self.idle.load(Ordering::SeqCst) > 0
    }

    /// The keeper wants to be told of threads that sit down, or not any more. It looks at [`has_idle`](Self::has_idle) afterwards.
    pub fn watch(&self, watching: bool) {
        self.watched.store(watching, Ordering::SeqCst);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_taken_once() {
        let (roster, one, two) = (Roster::new(), Seat::new(), Seat::new());
        assert!(!roster.has_idle() && roster.claim(&one).is_none());
        assert!(!roster.sit(&one) && !roster.sit(&two) && roster.has_idle());
        assert_eq!(roster.rise(&one), Rise::Busy);
        assert_eq!(roster.claim(&one), None);
        assert_eq!(roster.claim(&two), Some(true));
        assert_eq!((roster.rise(&two), roster.has_idle()), (Rise::Claimed, false));
        two.release();
        roster.watch(true);
        assert!(roster.sit(&two));
        assert_eq!(roster.rise(&two), Rise::Last);
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;
    use crate::shim::explore;

    /// Borrowing: a thread that rises against two that want it. Exactly one has it, and the count is right.
    #[test]
    fn a_thread_that_rises_and_is_claimed_is_taken_once() {
        explore(|| {
            let shared = Arc::new((Roster::new(), Seat::new()));
            let _ = shared.0.sit(&shared.1);
            let claimers: Vec<_> = (0..2)
                .map(|_| {
                    let shared = Arc::clone(&shared);
                    thread::spawn(move || shared.0.claim(&shared.1).is_some())
                })
                .collect();
            let rose = shared.0.rise(&shared.1);
            let claims = claimers.into_iter().map(|one| one.join().unwrap()).filter(|had| *had).count();
            assert_eq!(claims, usize::from(rose == Rise::Claimed));
            assert!(!shared.0.has_idle());
        });
    }

    /// The keeper announces itself and looks while the thread sits down: one of the two sees the other.
    #[test]
    fn no_idle_thread_is_missed_by_the_keeper() {
        explore(|| {
            let shared = Arc::new((Roster::new(), Seat::new()));
            let thread = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.0.sit(&shared.1))
            };
            shared.0.watch(true);
            let seen = shared.0.has_idle();
            assert!(thread.join().unwrap() || seen, "both wait for the other");
        });
    }

    /// Buffering: the keeper lists a request and looks for idle threads while the last one sits down and looks for requests.
    #[test]
    fn no_request_is_left_in_the_buffer() {
        explore(|| {
            let shared = Arc::new((Roster::new(), Seat::new(), AtomicUsize::new(0)));
            let thread = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let _ = shared.0.sit(&shared.1);
                    shared.2.load(Ordering::Acquire) > 0
                })
            };
            shared.2.store(1, Ordering::Release);
            let wakes = shared.0.has_idle();
            assert!(thread.join().unwrap() || wakes, "a request waits for a thread that waits for a request");
        });
    }

    /// What a thread waits at, as an event descriptor: what is told before it looks is not lost.
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

    /// What a lender waits at: its bell, which tells of a loan and is drained, and its lane's readiness, which stays until the work is taken.
    #[derive(Default)]
    struct Told {
        loan: bool,
        work: bool,
    }

    /// Borrowing's loan: who claims the thread says for what afterwards, while the thread, woken by work of its own, may have risen already.
    /// It gets what it was claimed for, once, and its own work is done too.
    #[test]
    fn a_claimed_thread_gets_its_loan() {
        struct World {
            roster: Roster,
            seat: Seat,
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
                self.seat.release();
                lent
            }
        }
        explore(|| {
            let world = Arc::new(World {
                roster: Roster::new(),
                seat: Seat::new(),
                told: loom::sync::Mutex::new(Told::default()),
                bell: loom::sync::Condvar::new(),
                loan: loom::sync::Mutex::new(None),
            });
            let lender = {
                let world = Arc::clone(&world);
                thread::spawn(move || {
                    let mut lent = 0;
                    loop {
                        let _ = world.roster.sit(&world.seat);
                        world.wait(|told| told.loan || told.work);
                        if world.roster.rise(&world.seat) == Rise::Claimed {
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
                    if world.roster.claim(&world.seat).is_none() {
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

    /// Request buffering as it is built: the keeper lists a request under the list's lock, notes the count, and wakes an idle thread; one that
    /// finds nothing sits down, looks at the count again, and waits. Both requests are run, each once.
    #[test]
    fn each_buffered_request_is_run_once() {
        struct World {
            roster: Roster,
            bell: Bell,
            list: loom::sync::Mutex<Vec<u32>>,
            count: AtomicUsize,
        }
        explore(|| {
            let world = Arc::new(World {
                roster: Roster::new(),
                bell: Bell::new(),
                list: loom::sync::Mutex::new(Vec::new()),
                count: AtomicUsize::new(0),
            });
            let worker = {
                let world = Arc::clone(&world);
                thread::spawn(move || {
                    let (seat, mut run) = (Seat::new(), Vec::new());
                    while run.len() < 2 {
                        if world.count.load(Ordering::Acquire) == 0 {
                            let _ = world.roster.sit(&seat);
                            if world.count.load(Ordering::Acquire) == 0 {
                                world.bell.wait();
                            }
                            assert_ne!(world.roster.rise(&seat), Rise::Claimed);
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
                if world.roster.has_idle() {
                    world.bell.notify();
                }
            }
            let mut run = worker.join().unwrap();
            run.sort_unstable();
            assert_eq!(run, [1, 2]);
        });
    }

    /// Shutdown: a claimed thread sits down again only after it was released, and is then found like any other.
    #[test]
    fn a_claimed_thread_comes_back() {
        explore(|| {
            let shared = Arc::new((Roster::new(), Seat::new()));
            let _ = shared.0.sit(&shared.1);
            let claimer = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.0.claim(&shared.1))
            };
            match shared.0.rise(&shared.1) {
                Rise::Claimed => shared.1.release(),
                Rise::Busy | Rise::Last => {}
            }
            claimer.join().unwrap();
            let _ = shared.0.sit(&shared.1);
            assert!(shared.0.has_idle());
            assert_eq!(shared.0.rise(&shared.1), Rise::Last);
        });
    }
}
