//! A rush: messages of one connection come so fast, and are so short, that waking another thread for each costs more than it brings.
//!
//! Leaders and followers answer every arrival by waking a thread: those that wait in the kernel are woken even while another one reads
//! the connection, and what is left after a message is offered to the next. While a rush lasts, one thread, its *runner*, does the work
//! of the lane alone; another, its *watch*, looks every [`TICK`] whether that is still good; the others sleep where no arrival wakes
//! them. A runner that stays in one upcall, or keeps up no longer, ends the rush, and all threads wait for work again: nothing waits
//! for an upcall longer than three ticks. Lanes of real-time pools have no rushes.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use corelane_sys::rush::{NOTHING, Roles};

use super::lane::{Lane, Work, place};
use super::worker::Worker;
use crate::orb::Core;

/// How often the watch looks.
const TICK: Duration = Duration::from_millis(1);
/// Messages in a tick below which a busy runner is too slow: 5 us each is what waking a thread costs.
const BUSY: u32 = 200;
/// Ticks without work that end a rush.
const QUIET: u32 = 10;
/// Messages read with others behind them after which a thread begins a rush.
const FIRST: u32 = 64;
/// The same after rushes that ended at their first look; each time [`STEP`] times as many.
const LAST: u32 = 1 << 16;
const STEP: u32 = 4;

/// The rush of a lane.
#[derive(Debug)]
pub(super) struct Rush {
    /// Who runs, who watches, who sleeps; about the connection with this token.
    roles: Roles,
    /// Messages that the runner has served since the watch looked; written by the runner alone.
    served: AtomicU32,
    /// Those of other connections among them.
    others: AtomicU32,
    /// The runner has nothing to do.
    idle: AtomicBool,
    /// Messages read with others behind them after which a thread begins one.
    after: AtomicU32,
}

impl Rush {
    pub(super) fn new() -> Self {
        Rush {
            roles: Roles::new(),
            served: AtomicU32::new(0),
            others: AtomicU32::new(0),
            idle: AtomicBool::new(false),
            after: AtomicU32::new(FIRST),
        }
    }

    /// The lane stops: nobody sleeps any longer.
    #[cold]
    pub(super) fn end(&self) {
        self.roles.end();
    }

    /// Sleeps while there is a rush that somebody watches; watches the one that is wanted. The connection whose rush this thread has
    /// watched and ended.
    fn stand_aside(&self) -> Option<u64> {
        let mut look = Look::default();
        self.roles.stand_aside(TICK, || {
            let counts = (self.served.load(Ordering::Relaxed), self.others.load(Ordering::Relaxed));
            look.again(counts.0, counts.1, self.idle.load(Ordering::Acquire));
            if !look.is_good() {
                let before = self.after.load(Ordering::Relaxed);
                let after = if look.ticks > QUIET { FIRST } else { before.saturating_mul(STEP).min(LAST) };
                self.after.store(after, Ordering::Relaxed);
            }
            look.is_good()
        })
    }
}

/// What the watch has seen.
#[derive(Debug, Default)]
struct Look {
    served: u32,
    others: u32,
    ticks: u32,
    quiet: u32,
    slow: u32,
    /// Too many messages were of other connections, which other threads could serve.
    crowded: bool,
}

impl Look {
    /// A tick has passed: the counts are these now.
    fn again(&mut self, served: u32, others: u32, idle: bool) {
        let (new, foreign) = (served.wrapping_sub(self.served), others.wrapping_sub(self.others));
        let first = self.ticks == 0;
        (self.served, self.others, self.ticks) = (served, others, self.ticks.saturating_add(1));
        if first {
            // The counts of earlier rushes.
            return;
        }
        self.quiet = if idle && new == 0 { self.quiet + 1 } else { 0 };
        self.slow = if !idle && new < BUSY { self.slow + 1 } else { 0 };
        self.crowded = foreign > new / 8;
    }

    fn is_good(&self) -> bool {
        self.quiet < QUIET && self.slow < 2 && !self.crowded
    }
}

/// A thread's part in the rush of its lane.
#[derive(Debug)]
pub(crate) struct Part {
    /// Token of the connection whose rush the thread runs.
    runs: u64,
    /// Messages it has read with others behind them, outside a rush.
    behind: u32,
}

impl Default for Part {
    fn default() -> Self {
        Part { runs: NOTHING, behind: 0 }
    }
}

impl Part {
    #[inline]
    pub(super) fn is_runner(&self) -> bool {
        self.runs != NOTHING
    }
}

impl Lane {
    /// Another message of the connection `token` is behind the one that was read. True if the calling thread is to read it after the
    /// upcall: nobody else is offered it.
    #[cold]
    pub(super) fn keeps_rest(&self, part: &mut Part, token: u64) -> bool {
        let Some(rush) = &self.rush else { return false };
        if part.is_runner() {
            return part.runs == token && rush.roles.are_about(token);
        }
        part.behind += 1;
        if part.behind >= rush.after.load(Ordering::Relaxed) && !rush.roles.concern_anybody() {
            // It begins when another thread has time to watch: those that this one offers messages to come by.
            part.behind = 0;
            if rush.roles.want(token) {
                part.runs = token;
            }
        }
        false
    }

    /// The runner has read a message of the connection `token`.
    #[cold]
    pub(super) fn count_in_rush(&self, part: &Part, token: u64) {
        let Some(rush) = &self.rush else { return };
        let count =
            |counter: &AtomicU32| counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        count(&rush.served);
        if part.runs != token {
            count(&rush.others);
        }
    }

    /// After a piece of work: runs the rush that has begun in it, or stands aside while another thread runs one.
    #[inline]
    pub(super) fn mind_rush(&self, core: &Arc<Core>, worker: &mut Worker) -> io::Result<()> {
        match &self.rush {
            Some(rush) if rush.roles.concern_anybody() => self.in_rush(rush, core, worker),
            _ => {
                worker.part.runs = NOTHING;
                Ok(())
            }
        }
    }

    #[cold]
    fn in_rush(&self, rush: &Rush, core: &Arc<Core>, worker: &mut Worker) -> io::Result<()> {
        if !worker.part.is_runner() {
            if let Some(token) = rush.stand_aside() {
                // The runner may be in an upcall with messages of the connection behind it.
                self.push(Work::Rest(place(token)));
            }
            return Ok(());
        }
        let token = worker.part.runs;
        if rush.roles.are_wanted(token) {
            // Nobody has had time yet.
            return Ok(());
        }
        while rush.roles.are_about(token) && !self.stops() {
            // Listed and reported work take turns here too.
            if let Some(work) = self.next_listed() {
                self.perform(core, worker, work);
            }
            let timeout = self.has_ready().then_some(Duration::ZERO);
            rush.idle.store(timeout.is_none(), Ordering::Release);
            let event = self.next_event(timeout);
            rush.idle.store(false, Ordering::Release);
            if let Some(event) = event? {
                self.handle(core, worker, event);
            }
        }
        worker.part.runs = NOTHING;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looked(ticks: &[(u32, u32, bool)]) -> Look {
        let mut look = Look::default();
        look.again(7, 3, false);
        let (mut served, mut others) = (7, 3);
        for (new, foreign, idle) in ticks {
            (served, others) = (served + new, others + foreign);
            look.again(served, others, *idle);
        }
        look
    }

    #[test]
    fn a_rush_lasts_while_its_runner_keeps_up() {
        assert!(looked(&[(1_000, 0, false), (300, 9, false), (3, 0, true), (0, 0, true), (900, 0, false)]).is_good());
    }

    #[test]
    fn a_rush_ends_with_a_runner_that_is_stuck_slow_idle_or_wanted_elsewhere() {
        assert!(
            looked(&[(500, 0, false), (0, 0, false)]).is_good(),
            "a tick may fall on a runner that another thread preempted"
        );
        assert!(!looked(&[(500, 0, false), (0, 0, false), (0, 0, false)]).is_good());
        assert!(!looked(&[(BUSY - 1, 0, false), (BUSY - 1, 0, false)]).is_good());
        assert!(!looked(&[(0, 0, true); QUIET as usize]).is_good());
        assert!(!looked(&[(800, 200, false)]).is_good());
    }
}
