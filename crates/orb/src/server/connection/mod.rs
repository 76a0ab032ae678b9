//! A connection of a lane. Reading and writing have separate locks. While replies wait for the
//! peer, the lane reads nothing from the connection and begins none of its waiting requests.

mod drain;
pub(crate) mod eviction_rank;
pub(crate) mod graceful_close;
mod group;
mod listing;
mod output;
mod reader;
mod send_queue;
pub(crate) mod stall;
mod state;
mod waiting;

use std::sync::atomic::{AtomicBool, AtomicI16, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use corelane_net::{ShutdownDirection, Stream};
use corelane_sched::{Priority, PriorityBand};
use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{LockScope, PiMutex};
use corelane_sys::pending_lock::PendingLock;
use corelane_wire::connection::Framer;
use corelane_wire::{CharSet, CodeSets, Version, WideCodeSet};

use super::connection_lane::ConnectionLane;
use super::memory_budget::{MemoryBudget, MemoryUse};
use crate::ceiling::Ceiling;
use crate::orb_context::OrbContext;
pub(crate) use drain::{CloseTerms, DrainProgress, LateRequest};
use eviction_rank::EvictionRank;
pub(crate) use group::ConnectionGroup;
pub(in crate::server) use group::GroupNumber;
use listing::Listing;
pub(in crate::server) use listing::ReadCause;
use output::OutputLock;
pub(crate) use output::{SendError, SendResult};
pub(crate) use reader::ReadState;
use stall::StallDetector;
use state::{Flag, StateWord, Transition};
pub(crate) use waiting::{RequestBounds, WaitingRequest};

#[cfg(feature = "half-sync")]
pub(in crate::server) const NO_LIST: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) stream: Box<dyn Stream>,
    pub(crate) read_state: PendingLock<ReadState>,
    output: OutputLock,
    listing: Listing,
    state: StateWord,
    /// Number of requests that have been read and wait to run, plus the number of running late
    /// requests.
    waiting_requests: AtomicU32,
    late_requests: AtomicU32,
    queued_requests: AtomicUsize,
    queued_bytes: AtomicUsize,
    /// Index of the connection's list in the lane's fair queue; [`NO_LIST`] if the queue has no
    /// request of the connection. Only the queue writes the index.
    #[cfg(feature = "half-sync")]
    pub(super) owner_list: AtomicU32,
    code_sets: AtomicU64,
    pub(crate) lane: Weak<dyn ConnectionLane>,
    pub(crate) handle: (u32, u32),
    /// Time of the last complete message, in seconds of the lane's coarse clock;
    /// [`eviction_rank::NO_MESSAGE`] before the first message.
    last_message_at: AtomicU32,
    accepted_at: Monotonic,
    /// The reading thread stores the flag `Relaxed` under the lock of `stall_detector`. A bit of
    /// `state` would need an atomic read-modify-write operation for each change.
    has_partial_message: AtomicBool,
    stall_detector: PiMutex<StallDetector>,
    memory_use: MemoryUse,
    /// True while replies wait and epoll watches for room to write on the connection. Always false
    /// without the feature `replies-first`.
    waits_for_room: AtomicBool,
    pub(in crate::server) group: ConnectionGroup,
    /// Number of messages other than jobs that the reader of a core pool has read since the last job.
    /// Written, relaxed, by the thread that has the read lock.
    #[cfg(feature = "core-pool")]
    pub(in crate::server) messages_since_job: AtomicU32,
    bound_band: AtomicU32,
    /// CORBA priority whose code point the packets carry; negative before the first one is set.
    dscp_priority: AtomicI16,
    request_bounds: RequestBounds,
    pub(crate) origin: ConnectionOrigin,
}

const NO_BAND: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionOrigin {
    pub(crate) id: u64,
    pub(crate) accepted_at: Monotonic,
    pub(crate) lane_numbers: (u32, u32),
    pub(crate) ceiling: Ceiling,
    /// True if large replies are sent in slices of 64 KiB, between which the kernel can send more
    /// urgent replies.
    pub(crate) sends_in_slices: bool,
    pub(crate) sets_dscp: bool,
    pub(crate) has_mixed_priorities: bool,
}

impl Connection {
    pub(crate) fn new(
        stream: Box<dyn Stream>,
        lane: Weak<dyn ConnectionLane>,
        handle: (u32, u32),
        request_bounds: RequestBounds,
        memory_budget: Arc<MemoryBudget>,
        origin: ConnectionOrigin,
    ) -> Self {
        Connection {
            stream,
            read_state: PendingLock::new(ReadState {
                framer: Framer::new(),
                partial: None,
                is_drained: false,
                is_over: false,
            }),
            lane,
            handle,
            output: OutputLock::new(origin.has_mixed_priorities),
            listing: Listing::new(),
            state: StateWord::new(),
            waiting_requests: AtomicU32::new(0),
            late_requests: AtomicU32::new(0),
            queued_requests: AtomicUsize::new(0),
            queued_bytes: AtomicUsize::new(0),
            #[cfg(feature = "half-sync")]
            owner_list: AtomicU32::new(NO_LIST),
            code_sets: AtomicU64::new(0),
            last_message_at: AtomicU32::new(eviction_rank::NO_MESSAGE),
            accepted_at: origin.accepted_at,
            has_partial_message: AtomicBool::new(false),
            stall_detector: PiMutex::new("incomplete messages", LockScope::Connection, StallDetector::default()),
            memory_use: MemoryUse::new(memory_budget),
            waits_for_room: AtomicBool::new(false),
            group: ConnectionGroup::default(),
            #[cfg(feature = "core-pool")]
            messages_since_job: AtomicU32::new(0),
            bound_band: AtomicU32::new(NO_BAND),
            dscp_priority: AtomicI16::new(-1),
            request_bounds,
            origin,
        }
    }

    #[cold]
    pub(crate) fn set_band(&self, band: PriorityBand) {
        let number = |priority: Priority| u32::from(priority.get().unsigned_abs());
        self.bound_band.store(number(band.low) << 16 | number(band.high), Ordering::Relaxed);
    }

    pub(crate) fn bound_band(&self) -> Option<PriorityBand> {
        let bound = self.bound_band.load(Ordering::Relaxed);
        let end = |bits: u32| i16::try_from(bits & 0xffff).ok();
        if bound == NO_BAND { None } else { PriorityBand::new(end(bound >> 16)?, end(bound)?).ok() }
    }

    #[cold]
    pub(crate) fn set_dscp(&self, context: &OrbContext, priority: Priority) {
        if self.dscp_priority.swap(priority.get(), Ordering::Relaxed) != priority.get() {
            context.set_code_point(&*self.stream, priority);
        }
    }

    #[inline]
    pub(crate) fn code_sets(&self, version: Version) -> CodeSets {
        match self.code_sets.load(Ordering::Relaxed) {
            0 if !version.has_code_sets() => CodeSets::DEFAULT,
            0 => CodeSets::LATIN1_UTF16,
            announced => CodeSets {
                char: if announced & 2 == 0 { CharSet::Latin1 } else { CharSet::Utf8 },
                wchar: if announced & 4 == 0 { WideCodeSet::None } else { WideCodeSet::Utf16 },
                ..CodeSets::DEFAULT
            },
        }
    }

    #[cold]
    pub(crate) fn set_code_sets(&self, announced: CodeSets) {
        let char = if announced.char == CharSet::Utf8 { 2 } else { 0 };
        let wchar = if announced.wchar == WideCodeSet::None { 0 } else { 4 };
        self.code_sets.store(1 | char | wchar, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn is_congested(&self) -> bool {
        self.state.has(Flag::Congested, Ordering::Acquire)
    }

    pub(crate) fn record_hand_over(&self) {
        self.state.set_relaxed(Flag::HandedOver);
    }

    #[inline]
    pub(crate) fn has_handed_over(&self) -> bool {
        self.state.has(Flag::HandedOver, Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.state.is_shut_down()
    }

    pub(crate) fn close(&self) -> bool {
        let first = self.state.apply(Transition::ShutDown);
        self.stream.shutdown(ShutdownDirection::Both);
        first
    }

    pub(crate) fn is_peer_half_closed(&self) -> bool {
        self.state.has(Flag::PeerHalfClosed, Ordering::SeqCst)
    }

    pub(crate) fn record_hang_up(&self) {
        self.state.set(Flag::HungUp);
    }

    #[inline]
    pub(crate) fn is_hung_up(&self) -> bool {
        self.state.has(Flag::HungUp, Ordering::Acquire)
    }

    /// Notes that the stream has reported readiness. Returns false if an earlier report has not
    /// been handled.
    pub(crate) fn raise_report(&self) -> bool {
        self.state.set(Flag::ReportPending)
    }

    pub(crate) fn clear_report(&self) {
        self.state.clear(Flag::ReportPending);
    }

    #[inline]
    pub(crate) fn record_message(&self, now: u32) {
        if self.last_message_at.load(Ordering::Relaxed) != now {
            self.last_message_at.store(now, Ordering::Relaxed);
        }
    }

    #[cold]
    pub(crate) fn eviction_rank(&self, now: u32) -> Option<EvictionRank> {
        if self.waiting_requests.load(Ordering::SeqCst) > 0 || self.is_congested() {
            return None;
        }
        eviction_rank::eviction_rank(
            self.last_message_at.load(Ordering::Relaxed),
            self.has_partial_message(),
            now,
            self.origin.id,
        )
    }

    /// Returns the time since the last complete message in whole seconds or, if none has arrived,
    /// the exact time since the connection was accepted.
    #[cold]
    pub(crate) fn idle_for(&self, tick: u32, now: Monotonic) -> Duration {
        match self.last_message_at.load(Ordering::Relaxed) {
            eviction_rank::NO_MESSAGE => now.since(self.accepted_at),
            last_message_at => Duration::from_secs(tick.saturating_sub(last_message_at).into()),
        }
    }

    pub(crate) fn has_sent_nothing(&self) -> bool {
        self.last_message_at.load(Ordering::Relaxed) == eviction_rank::NO_MESSAGE
    }

    /// Begins the close of an idle connection. Returns false if such a close has begun before, or
    /// if the connection is retired and no thread uses it.
    pub(crate) fn begin_idle_close(&self) -> bool {
        self.state.apply(Transition::BeginIdleClose)
    }

    pub(crate) fn cancel_idle_close(&self) {
        self.state.apply(Transition::CancelIdleClose);
    }

    pub(crate) fn is_closed_idle(&self) -> bool {
        self.state.is_closed_idle()
    }

    pub(crate) fn memory_use(&self) -> &MemoryUse {
        &self.memory_use
    }

    fn shed_if_over_budget(&self) {
        if self.memory_use.memory_budget().request_shedding()
            && let Some(lane) = self.lane.upgrade()
        {
            lane.list_shedding();
        }
    }

    #[cold]
    pub(in crate::server) fn begin_listing(&self, cause: ReadCause) -> bool {
        self.listing.begin(cause)
    }

    #[cold]
    pub(in crate::server) fn take_listing(&self) -> Option<ReadCause> {
        self.listing.take()
    }

    #[cold]
    fn list_for_reading(&self) {
        if let Some(lane) = self.lane.upgrade() {
            lane.list_for_reading(self.handle);
        }
    }

    /// Calls `work` while no other thread can send on the connection or change the flag
    /// [`Flag::Congested`].
    #[cold]
    pub(in crate::server) fn with_output_locked<R>(&self, work: impl FnOnce() -> R) -> R {
        self.output.with(|_| work())
    }

    #[cold]
    pub(crate) fn watch_writability(&self, congested: bool) {
        if let Some(readiness) = self.stream.readiness_descriptor()
            && let Some(lane) = self.lane.upgrade()
        {
            lane.watch_writability(readiness, self.handle, &self.group, congested);
            if cfg!(feature = "replies-first") && self.waits_for_room.swap(congested, Ordering::AcqRel) != congested {
                lane.count_begun(congested);
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if cfg!(feature = "replies-first")
            && *self.waits_for_room.get_mut()
            && let Some(lane) = self.lane.upgrade()
        {
            lane.count_begun(false);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use corelane_net::{Endpoint, TcpTransport, Transport};

    use super::*;
    use crate::clock;

    pub(in crate::server) fn detached_connection(memory_budget: &Arc<MemoryBudget>, mixed: bool) -> Arc<Connection> {
        // A drop of the listener would close the peer's end, which waits in its backlog, so the
        // listener is leaked.
        let listener = Box::leak(TcpTransport::new().listen(&Endpoint::tcp("127.0.0.1", 0)).unwrap());
        Arc::new(Connection::new(
            TcpTransport::new().connect(listener.local_endpoint(), None).unwrap(),
            Weak::<crate::server::strategy::Lane>::new(),
            (0, 0),
            RequestBounds { max_waiting: 1, max_queued: 1, max_queued_bytes: 1 },
            Arc::clone(memory_budget),
            ConnectionOrigin {
                id: 0,
                accepted_at: Monotonic::from_nanos(0),
                lane_numbers: (0, 0),
                ceiling: Ceiling::NONE,
                sends_in_slices: false,
                sets_dscp: false,
                has_mixed_priorities: mixed,
            },
        ))
    }

    #[test]
    fn idle_time_before_the_first_message_is_exact() {
        let connection = detached_connection(&MemoryBudget::new(usize::MAX), true);
        let short = Duration::from_millis(10);
        assert_eq!(connection.idle_for(2, Monotonic::from_nanos(0) + short), short);
        connection.record_message(3);
        assert_eq!(connection.idle_for(5, clock::now()), Duration::from_secs(2));
    }
}
