//! Burst mode: during a flood of messages on one connection, one thread, the *runner*, does all
//! work of the lane, and arriving messages wake no other thread.
//!
//! A second thread, the *supervisor*, checks every [`TICK`] if the burst is useful, and ends it if
//! not. All other threads of the lane sleep outside of epoll when they have no request to run.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use corelane_sys::burst::BurstCoordinator;

use crate::server::architecture::Architecture;
use crate::server::burst_role::BurstRole;
use crate::server::connection::{Connection, ReadCause};
use crate::server::handler::RequestHandler;
use crate::server::lane::{Lane, handle_of, token_of};
use crate::server::worker::Worker;

const TICK: Duration = Duration::from_millis(1);
/// The lowest rate of a useful burst. At this rate a message takes 5 us, about the cost of waking a
/// thread.
const MIN_MESSAGES_PER_TICK: u32 = 200;
const MAX_IDLE_TICKS: u32 = 10;
const MIN_THRESHOLD: u32 = 64;
const MAX_THRESHOLD: u32 = 1 << 16;
/// Factor by which [`BurstMode::threshold`] grows after a burst of at most [`MAX_IDLE_TICKS`]
/// ticks.
const THRESHOLD_FACTOR: u32 = 4;

#[derive(Debug)]
pub(super) struct BurstMode {
    roles: BurstCoordinator,
    /// Number of messages that runners have read, wrapping; stored by the runner.
    served: AtomicU32,
    /// Number of messages in `served` that did not arrive on the burst's connection; stored by the
    /// runner.
    served_for_others: AtomicU32,
    /// True while the runner waits for an event; stored by the runner.
    is_runner_idle: AtomicBool,
    /// Value of [`BurstRole::backlogged_reads`] at which a thread requests a burst; stored by the
    /// supervisor.
    threshold: AtomicU32,
}

impl BurstMode {
    pub(super) fn new() -> Self {
        BurstMode {
            roles: BurstCoordinator::new(),
            served: AtomicU32::new(0),
            served_for_others: AtomicU32::new(0),
            is_runner_idle: AtomicBool::new(false),
            threshold: AtomicU32::new(MIN_THRESHOLD),
        }
    }

    #[cold]
    pub(super) fn end(&self) {
        self.roles.shut_down();
    }

    /// Sleeps until the present burst ends. If a burst is requested then, supervises it and returns
    /// its token.
    fn stand_aside(&self) -> Option<u64> {
        let mut statistics = BurstStatistics::default();
        self.roles.sleep_or_supervise(TICK, || {
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

#[derive(Debug, Default)]
struct BurstStatistics {
    served: u32,
    others: u32,
    ticks: u32,
    idle_ticks: u32,
    slow_ticks: u32,
    /// True if more than an eighth of the messages in the last tick did not arrive on the burst's
    /// connection.
    has_other_connections: bool,
}

impl BurstStatistics {
    fn record_tick(&mut self, served: u32, others: u32, is_runner_idle: bool) {
        let (new, foreign) = (served.wrapping_sub(self.served), others.wrapping_sub(self.others));
        let first = self.ticks == 0;
        (self.served, self.others, self.ticks) = (served, others, self.ticks.saturating_add(1));
        if first {
            // The counts include earlier bursts, so comparisons begin at the second tick.
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
    /// Returns true if the calling thread is the runner and must read the connection's next message
    /// itself, so that no other thread is woken. On any other thread, counts the message, after
    /// which more input may wait, and requests a burst at the threshold. `others_wait` is true if
    /// the ready list has tasks, for which the runner must leave the connection.
    #[cold]
    pub(super) fn keeps_connection(&self, role: &mut BurstRole, connection: &Connection, others_wait: bool) -> bool {
        let token = token_of(connection.handle);
        if role.is_runner() {
            return role.runs_for == token && !others_wait && self.roles.is_burst_for(token);
        }
        role.backlogged_reads += 1;
        if role.backlogged_reads >= self.threshold.load(Ordering::Relaxed) && !self.roles.is_active() {
            // The burst begins when another thread takes the role of supervisor.
            role.backlogged_reads = 0;
            if self.roles.try_request(token) {
                role.runs_for = token;
            }
        }
        false
    }

    #[cold]
    pub(super) fn count_message(&self, role: &BurstRole, connection: &Connection) {
        let count =
            |counter: &AtomicU32| counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        count(&self.served);
        if role.runs_for != token_of(connection.handle) {
            count(&self.served_for_others);
        }
    }

    #[inline]
    pub(super) fn is_active(&self) -> bool {
        self.roles.is_active()
    }

    /// Runs the burst if the calling thread is its runner and the burst has begun. A thread that is
    /// not the runner supervises a burst, or sleeps until the end of the burst.
    #[cold]
    pub(super) fn join<S: Architecture<S>, H: RequestHandler>(
        &self,
        lane: &Lane<S>,
        handler: &Arc<H>,
        worker: &mut Worker,
    ) -> io::Result<()> {
        if !worker.burst_role.is_runner() {
            if let Some(token) = self.stand_aside() {
                // The runner may still be in an upcall while messages are in the connection's
                // buffer, so the lane's other threads must read them.
                lane.list_handle(handle_of(token), ReadCause::Buffered);
            }
            return Ok(());
        }
        let token = worker.burst_role.runs_for;
        if self.roles.is_requested_for(token) {
            // The burst has no supervisor, so it has not begun.
            return Ok(());
        }
        while self.roles.is_burst_for(token) && !lane.is_stopping() {
            lane.send_begun_first(handler.context());
            if let Some(work) = lane.next_task() {
                lane.run_task(handler, worker, work);
            }
            let timeout = lane.has_ready().then_some(Duration::ZERO);
            self.is_runner_idle.store(timeout.is_none(), Ordering::Release);
            let event = lane.next_event(worker, timeout);
            self.is_runner_idle.store(false, Ordering::Release);
            if let Some(event) = event? {
                lane.handle_or_defer(handler, worker, event);
            }
        }
        worker.burst_role.reset();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use corelane_net::{Endpoint, Stream, TcpTransport, Transport, WaitLimit};
    use corelane_sys::lock::{LockScope, Mutex};
    use corelane_wire::Octets;

    use super::*;
    use crate::Orb;
    use crate::server::config::{Dispatch, PoolConfig};
    use crate::server::connection::SendResult;
    use crate::server::lane::LaneTask;
    use crate::server::parked_request::ParkedRequest;
    use crate::server::strategy;

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
            "one slow tick, in which another thread may have preempted the runner, must not end the burst"
        );
        assert!(!statistics_after(&[(500, 0, false), (0, 0, false), (0, 0, false)]).is_worthwhile());
        assert!(
            !statistics_after(&[(MIN_MESSAGES_PER_TICK - 1, 0, false), (MIN_MESSAGES_PER_TICK - 1, 0, false)])
                .is_worthwhile()
        );
        assert!(!statistics_after(&[(0, 0, true); MAX_IDLE_TICKS as usize]).is_worthwhile());
        assert!(!statistics_after(&[(800, 200, false)]).is_worthwhile());
    }

    /// The peer reads a part of a large reply in each task of the ready list. Checks that the
    /// runner sends more of the reply before it takes the next task, or a message of another
    /// connection.
    #[cfg(feature = "replies-first")]
    #[test]
    fn runner_sends_begun_replies_before_it_takes_new_work() {
        const REPLY: usize = 12 << 20;
        const TASKS: usize = 40;
        const CANCEL_REQUEST: &[u8] = b"GIOP\x01\x02\x01\x02\x04\x00\x00\x00\x00\x00\x00\x00";
        let orb = Orb::new().unwrap();
        let handler = orb.core().adapter();
        let config = PoolConfig::default().dispatch(Dispatch::LeaderFollowers { threads: 2 });
        let lane = strategy::Lane::new(config, Vec::new(), Duration::ZERO, None, None).unwrap();
        let listener = TcpTransport::new().listen(&Endpoint::tcp("127.0.0.1", 0)).unwrap();
        let connect = || {
            let peer = TcpTransport::new().connect(listener.local_endpoint(), None).unwrap();
            let accepted = std::iter::repeat_with(|| listener.accept()).find_map(Result::ok).unwrap();
            lane.adopt(handler, accepted);
            peer
        };
        let reader = connect();
        let connection = lane.connections.iter().next().map(|connection| Arc::clone(&connection)).unwrap();
        let others: Vec<_> = (0..TASKS).map(|_| connect()).collect();
        let mut worker = Worker::new();
        while lane.has_ready() {
            lane.step(handler, &mut worker, Some(Duration::ZERO)).unwrap();
        }
        let reply = Octets::from(vec![7; REPLY]);
        let sent = connection.send_slices(&[&reply], &|part| Octets::copy_from(part), WaitLimit::Now);
        assert!(sent == SendResult::Queued && lane.ready.has_begun());
        for other in &others {
            other.send(CANCEL_REQUEST, WaitLimit::Block).unwrap();
        }
        let burst_mode = Arc::new(BurstMode::new());
        let reads = Arc::new(Mutex::new("reads of a test", LockScope::Orb, vec![0; 1]));
        let reader: Arc<dyn Stream> = Arc::from(reader);
        for number in 1..=TASKS {
            let (reads, reader, burst_mode) = (Arc::clone(&reads), Arc::clone(&reader), Arc::clone(&burst_mode));
            let read = move |_| {
                let mut octets = vec![0; 256 << 10];
                let mut received = reads.lock()[number - 1];
                // The kernel may deliver octets and acknowledgements a little later, so the peer
                // reads for up to 200 ms.
                let (before, begun) = (received, std::time::Instant::now());
                while received == before && received < REPLY && begun.elapsed() < Duration::from_millis(200) {
                    for _ in 0..2 {
                        received += std::iter::from_fn(|| reader.recv(&mut octets, WaitLimit::Now).ok()).sum::<usize>();
                        std::thread::sleep(Duration::from_millis(2));
                    }
                }
                reads.lock().push(received);
                if number == TASKS {
                    burst_mode.end();
                }
            };
            lane.push(LaneTask::RunCollocated(ParkedRequest { bytes: 0, resume: Box::new(read) }));
        }
        worker.burst_role.runs_for = 7;
        assert!(burst_mode.roles.try_request(7));
        std::thread::scope(|scope| {
            scope.spawn(|| burst_mode.roles.sleep_or_supervise(TICK, || true));
            while reads.lock().len() <= TASKS {
                worker.burst_role.runs_for = 7;
                burst_mode.join(&lane, handler, &mut worker).unwrap();
            }
        });
        let reads = reads.lock().clone();
        assert!(reads[1] < REPLY, "the whole reply fits into the sockets");
        assert_eq!(reads[TASKS], REPLY, "the reply waited for {TASKS} messages: {reads:?}");
    }
}
