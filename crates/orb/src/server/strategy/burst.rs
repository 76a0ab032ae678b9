//! Burst mode: during a flood of short messages on one connection, one thread serves the whole
//! lane, and no thread is woken for each message.
//!
//! Without burst mode, leader/followers wakes a thread for every arrival. The kernel wakes a
//! waiting thread even while another thread reads the connection, and a thread that leaves input
//! unread lists the connection for the next thread. During a burst one thread, the *runner*, does
//! all work of the lane. A second thread, the *supervisor*, checks every [`TICK`] if the burst is
//! still useful. The other threads sleep, and no arrival wakes them. The supervisor ends the burst
//! if the runner stays in one upcall or is too slow. After a burst all threads wait for work again.
//! Therefore no request waits longer than three ticks for another request's upcall. Lanes of
//! real-time pools have no burst mode.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use corelane_sys::burst::BurstRoles;

use crate::server::architecture::Architecture;
use crate::server::burst_role::BurstRole;
use crate::server::connection::{Connection, ReadCause};
use crate::server::handler::RequestHandler;
use crate::server::lane::{Lane, handle_of, token_of};
use crate::server::worker::Worker;

/// Interval of the supervisor's checks.
const TICK: Duration = Duration::from_millis(1);
/// Minimum number of messages that a busy runner must serve in a tick, else it is too slow. At this
/// rate a message takes 5 us, which is also the cost of waking a thread.
const MIN_MESSAGES_PER_TICK: u32 = 200;
/// Number of ticks without work after which a burst ends.
const MAX_IDLE_TICKS: u32 = 10;
/// Minimum value of [`BurstMode::threshold`].
const MIN_THRESHOLD: u32 = 64;
/// Maximum value of [`BurstMode::threshold`], which is multiplied by [`THRESHOLD_FACTOR`] after
/// each burst that ends at its first check.
const MAX_THRESHOLD: u32 = 1 << 16;
const THRESHOLD_FACTOR: u32 = 4;

/// The burst mode of a lane.
#[derive(Debug)]
pub(super) struct BurstMode {
    /// The roles of runner, supervisor and sleepers. A burst is identified by the token of its
    /// connection.
    roles: BurstRoles,
    /// Number of messages that the runner has served. Only the runner writes it.
    served: AtomicU32,
    /// Number of messages of other connections among `served`. Only the runner writes it.
    served_for_others: AtomicU32,
    /// True while the runner has nothing to do. Only the runner writes it.
    is_runner_idle: AtomicBool,
    /// Number of messages with another message directly behind them that a thread must read before
    /// it requests a burst. Only the supervisor writes it.
    threshold: AtomicU32,
}

impl BurstMode {
    pub(super) fn new() -> Self {
        BurstMode {
            roles: BurstRoles::new(),
            served: AtomicU32::new(0),
            served_for_others: AtomicU32::new(0),
            is_runner_idle: AtomicBool::new(false),
            threshold: AtomicU32::new(MIN_THRESHOLD),
        }
    }

    /// Wakes all sleepers, because the lane stops.
    #[cold]
    pub(super) fn end(&self) {
        self.roles.shut_down();
    }

    /// Sleeps while another thread supervises a burst, then supervises a burst that was requested.
    /// Returns the token of the connection whose burst the calling thread has supervised.
    fn stand_aside(&self) -> Option<u64> {
        let mut statistics = BurstStatistics::default();
        self.roles.wait_out_burst(TICK, || {
            let counts = (self.served.load(Ordering::Relaxed), self.served_for_others.load(Ordering::Relaxed));
            statistics.record_tick(counts.0, counts.1, self.is_runner_idle.load(Ordering::Acquire));
            if !statistics.is_worthwhile() {
                let before = self.threshold.load(Ordering::Relaxed);
                let threshold = if statistics.ticks > MAX_IDLE_TICKS {
                    MIN_THRESHOLD
                } else {
                    before.saturating_mul(THRESHOLD_FACTOR).min(MAX_THRESHOLD)
                };
                self.threshold.store(threshold, Ordering::Relaxed);
            }
            statistics.is_worthwhile()
        })
    }
}

/// The supervisor's statistics of one burst.
#[derive(Debug, Default)]
struct BurstStatistics {
    served: u32,
    others: u32,
    ticks: u32,
    idle_ticks: u32,
    slow_ticks: u32,
    /// True if too many messages belonged to other connections. Other threads could serve these
    /// connections concurrently.
    has_other_connections: bool,
}

impl BurstStatistics {
    /// Records a tick with the runner's counts at this time.
    fn record_tick(&mut self, served: u32, others: u32, is_runner_idle: bool) {
        let (new, foreign) = (served.wrapping_sub(self.served), others.wrapping_sub(self.others));
        let first = self.ticks == 0;
        (self.served, self.others, self.ticks) = (served, others, self.ticks.saturating_add(1));
        if first {
            // At the first tick there is no earlier count to subtract, and the counts include
            // earlier bursts.
            return;
        }
        self.idle_ticks = if is_runner_idle && new == 0 { self.idle_ticks + 1 } else { 0 };
        self.slow_ticks = if !is_runner_idle && new < MIN_MESSAGES_PER_TICK { self.slow_ticks + 1 } else { 0 };
        self.has_other_connections = foreign > new / 8;
    }

    fn is_worthwhile(&self) -> bool {
        self.idle_ticks < MAX_IDLE_TICKS && self.slow_ticks < 2 && !self.has_other_connections
    }
}

impl BurstMode {
    /// Returns true if the calling thread keeps the connection: it reads the next message itself
    /// after the upcall, and no other thread is woken for this message. Called if another message
    /// is behind the message that was read. `others_wait` is true if the lane has listed tasks. The
    /// runner then gives the connection up, so that each listed connection gets the same share.
    #[cold]
    pub(super) fn keeps_connection(&self, role: &mut BurstRole, connection: &Connection, others_wait: bool) -> bool {
        let token = token_of(connection.handle);
        if role.is_runner() {
            return role.runs_for == token && !others_wait && self.roles.is_burst_for(token);
        }
        role.backlogged_reads += 1;
        if role.backlogged_reads >= self.threshold.load(Ordering::Relaxed) && !self.roles.is_active() {
            // The burst begins when another thread is free to supervise it. Threads that are woken
            // for messages check for requested bursts.
            role.backlogged_reads = 0;
            if self.roles.request(token) {
                role.runs_for = token;
            }
        }
        false
    }

    /// Counts a message that the runner has read.
    #[cold]
    pub(super) fn count_message(&self, role: &BurstRole, connection: &Connection) {
        let count =
            |counter: &AtomicU32| counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        count(&self.served);
        if role.runs_for != token_of(connection.handle) {
            count(&self.served_for_others);
        }
    }

    /// Returns true if a burst was requested or is running.
    #[inline]
    pub(super) fn is_active(&self) -> bool {
        self.roles.is_active()
    }

    /// Runs the burst that began in the calling thread's last task. If another thread runs a burst,
    /// waits instead.
    #[cold]
    pub(super) fn join<S: Architecture<S>, H: RequestHandler>(
        &self,
        lane: &Lane<S>,
        handler: &Arc<H>,
        worker: &mut Worker,
    ) -> io::Result<()> {
        if !worker.burst_role.is_runner() {
            if let Some(token) = self.stand_aside() {
                // The runner may still be in an upcall, and messages may wait in the connection's
                // buffer.
                lane.list_handle(handle_of(token), ReadCause::Buffered);
            }
            return Ok(());
        }
        let token = worker.burst_role.runs_for;
        if self.roles.is_requested_for(token) {
            // No thread supervises the requested burst yet.
            return Ok(());
        }
        while self.roles.is_burst_for(token) && !lane.is_stopping() {
            // Tasks of the ready list and events of epoll take turns, as in the lane's own loop.
            if let Some(work) = lane.next_task() {
                lane.run_task(handler, worker, work);
            }
            let timeout = lane.has_ready().then_some(Duration::ZERO);
            self.is_runner_idle.store(timeout.is_none(), Ordering::Release);
            let event = lane.next_event(timeout);
            self.is_runner_idle.store(false, Ordering::Release);
            if let Some(event) = event? {
                lane.handle_event(handler, worker, event);
            }
        }
        worker.burst_role.reset();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statistics_after(ticks: &[(u32, u32, bool)]) -> BurstStatistics {
        let mut statistics = BurstStatistics::default();
        statistics.record_tick(7, 3, false);
        let (mut served, mut others) = (7, 3);
        for (new, foreign, is_runner_idle) in ticks {
            (served, others) = (served + new, others + foreign);
            statistics.record_tick(served, others, *is_runner_idle);
        }
        statistics
    }

    #[test]
    fn burst_lasts_while_its_runner_keeps_up() {
        assert!(
            statistics_after(&[(1_000, 0, false), (300, 9, false), (3, 0, true), (0, 0, true), (900, 0, false)])
                .is_worthwhile()
        );
    }

    #[test]
    fn burst_ends_when_its_runner_is_stuck_slow_idle_or_needed_elsewhere() {
        assert!(
            statistics_after(&[(500, 0, false), (0, 0, false)]).is_worthwhile(),
            "one slow tick, in which another thread preempted the runner, does not end the burst"
        );
        assert!(!statistics_after(&[(500, 0, false), (0, 0, false), (0, 0, false)]).is_worthwhile());
        assert!(
            !statistics_after(&[(MIN_MESSAGES_PER_TICK - 1, 0, false), (MIN_MESSAGES_PER_TICK - 1, 0, false)])
                .is_worthwhile()
        );
        assert!(!statistics_after(&[(0, 0, true); MAX_IDLE_TICKS as usize]).is_worthwhile());
        assert!(!statistics_after(&[(800, 200, false)]).is_worthwhile());
    }
}
