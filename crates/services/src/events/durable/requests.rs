//! The requests that wait for a store, and the thread that commits them.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{Condvar, LockScope, Mutex, MutexGuard};

use super::committer::{Committer, LedgerResult};
use super::error::DurableError;
use super::ledger::{ChannelNumber, Ledger, LedgerRequest};
use super::unstored::{UnstoredCounts, UnstoredReason};
use crate::store::Store;

/// Maximum number of requests that one commit takes.
const MAX_BATCH_REQUESTS: usize = 1_024;
/// Maximum size in bytes of the requests of one commit. A single request may be larger. A commit of
/// this size fits into the store's log.
const MAX_BATCH_BYTES: usize = 512 << 10;
/// Maximum size of the waiting requests in bytes. Beyond it, requests with an acknowledgement wait
/// for room, and events without one are not stored.
const MAX_WAITING_BYTES: usize = 8 << 20;
const MAX_WAITING_REQUESTS: usize = 16_384;
/// Number of bytes that a request counts beyond its event.
const REQUEST_BYTES: usize = 128;
/// Time after which a thread no longer waits for the commit of its request.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(30);
/// A commit waits for further requests for at most the last commit's duration divided by this
/// number, and at most [`MAX_GATHER`].
const GATHER_PART: u32 = 4;
const MAX_GATHER: Duration = Duration::from_millis(20);

pub(super) struct SharedStore {
    pub(super) store: Arc<dyn Store>,
    queue: Mutex<Queue>,
    /// Notified when a request arrives.
    arrived: Condvar,
    /// Notified after each commit.
    done: Condvar,
    /// The state after the last successful commit.
    pub(super) ledger: Mutex<Ledger>,
    /// Notified when `ledger` changes.
    pub(super) committed: Condvar,
}

enum Recipient {
    /// A thread that waits with this ticket.
    Ticket(u64),
    /// The counts of a channel, for an event without acknowledgement.
    Counts(Arc<UnstoredCounts>),
}

type QueuedRequest = (Recipient, LedgerRequest);

#[derive(Default)]
struct Queue {
    waiting: VecDeque<QueuedRequest>,
    /// The size in bytes of the waiting requests, and of those being committed.
    bytes: usize,
    /// The number of events of each channel that are being committed.
    committing: BTreeMap<ChannelNumber, u64>,
    /// The results for which threads wait, by ticket; `None` until the commit has ended.
    results: HashMap<u64, Option<LedgerResult>>,
    last_ticket: u64,
    /// Number of requests that have arrived since the store was opened.
    arrived: u64,
    /// Number of these requests that have a result.
    done: u64,
    submitters: usize,
    /// Number of threads that waited for the last commit, plus those that arrived during it.
    expected: usize,
    last_commit: Duration,
    /// The time after which no thread waits for a result; `None` for no bound.
    end_at: Option<Monotonic>,
    /// The time until which ended channels wait for their events. The first channel that ends after
    /// a commit sets it.
    settle_until: Option<Monotonic>,
    is_ending: bool,
    has_ended: bool,
}

fn size_of(request: &LedgerRequest) -> usize {
    match request {
        LedgerRequest::Append(_, event) => REQUEST_BYTES + event.len(),
        _ => REQUEST_BYTES,
    }
}

fn add_events<'r>(counts: &mut BTreeMap<ChannelNumber, u64>, requests: impl Iterator<Item = &'r QueuedRequest>) {
    for (_, request) in requests {
        if let LedgerRequest::Append(channel, _) = request {
            *counts.entry(*channel).or_default() += 1;
        }
    }
}

impl Queue {
    fn has_room(&self) -> bool {
        self.bytes < MAX_WAITING_BYTES && self.waiting.len() < MAX_WAITING_REQUESTS
    }

    fn takes_requests(&self) -> bool {
        !self.is_ending && !self.has_ended
    }

    fn push(&mut self, recipient: Recipient, request: LedgerRequest) {
        self.bytes += size_of(&request);
        self.arrived += 1;
        self.waiting.push_back((recipient, request));
    }

    fn take_batch(&mut self) -> Vec<QueuedRequest> {
        let mut bytes = 0;
        let count = self.waiting.iter().take(MAX_BATCH_REQUESTS).take_while(|(_, request)| {
            let is_first = bytes == 0;
            bytes += size_of(request);
            is_first || bytes <= MAX_BATCH_BYTES
        });
        let count = count.count();
        let batch: Vec<_> = self.waiting.drain(..count).collect();
        add_events(&mut self.committing, batch.iter());
        batch
    }

    fn earlier_end(&self, deadline: Monotonic) -> Monotonic {
        self.end_at.map_or(deadline, |end| end.min(deadline))
    }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A queued request whose result a thread can wait for.
#[derive(Debug)]
pub(super) struct Ticket {
    number: u64,
    deadline: Monotonic,
}

/// The events that were not committed within the time given to
/// [`EventStore::close`](super::EventStore::close).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UncommittedEvents {
    /// The name of each channel with uncommitted events, and the number of these events.
    pub channels: Vec<(String, u64)>,
}

impl fmt::Display for UncommittedEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the disk has not answered in time")?;
        for (index, (channel, events)) in self.channels.iter().enumerate() {
            let before = if index == 0 { "; events that are not committed:" } else { "," };
            write!(f, "{before} {events} of `{channel}`")?;
        }
        Ok(())
    }
}

impl std::error::Error for UncommittedEvents {}

impl SharedStore {
    pub(super) fn new(store: Arc<dyn Store>, ledger: Ledger) -> Self {
        Self {
            store,
            queue: Mutex::new("durable events", LockScope::Orb, Queue::default()),
            arrived: Condvar::new(),
            done: Condvar::new(),
            ledger: Mutex::new("durable channels", LockScope::Orb, ledger),
            committed: Condvar::new(),
        }
    }

    pub(super) fn submit(&self, request: LedgerRequest) -> Result<u64, DurableError> {
        self.finish(&self.begin(request)?)
    }

    pub(super) fn takes_requests(&self) -> bool {
        self.queue.lock().takes_requests()
    }

    /// Returns false if [`offer`](Self::offer) would count an event as one too many.
    pub(super) fn has_room(&self) -> bool {
        let queue = self.queue.lock();
        queue.has_room() || !queue.takes_requests()
    }

    pub(super) fn begin(&self, request: LedgerRequest) -> Result<Ticket, DurableError> {
        let deadline = Monotonic::now() + COMMIT_TIMEOUT;
        let mut queue = self.queue.lock();
        while !queue.has_room() && queue.takes_requests() {
            let end = queue.earlier_end(deadline);
            if end.is_past() {
                return Err(DurableError::Slow);
            }
            queue = self.done.wait_until(queue, Some(end)).0;
        }
        if !queue.takes_requests() {
            return Err(DurableError::Ended);
        }
        queue.last_ticket += 1;
        let number = queue.last_ticket;
        queue.push(Recipient::Ticket(number), request);
        queue.results.insert(number, None);
        queue.submitters += 1;
        drop(queue);
        self.arrived.notify_one();
        Ok(Ticket { number, deadline })
    }

    pub(super) fn finish(&self, ticket: &Ticket) -> Result<u64, DurableError> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(result) = queue.results.get_mut(&ticket.number).and_then(Option::take) {
                queue.results.remove(&ticket.number);
                return result.map_err(DurableError::Request);
            }
            let end = queue.earlier_end(ticket.deadline);
            let reason = if queue.has_ended { DurableError::Ended } else { DurableError::Slow };
            if queue.has_ended || end.is_past() {
                queue.results.remove(&ticket.number);
                return Err(reason);
            }
            queue = self.done.wait_until(queue, Some(end)).0;
        }
    }

    /// Queues an event without acknowledgement. Counts it if there is no room, or if its commit
    /// fails.
    pub(super) fn offer(&self, request: LedgerRequest, counts: &Arc<UnstoredCounts>) {
        let mut queue = self.queue.lock();
        let refusal = match (queue.takes_requests(), queue.has_room()) {
            (true, true) => None,
            (true, false) => Some(UnstoredReason::QueueFull),
            (false, _) => Some(UnstoredReason::Failed),
        };
        if let Some(reason) = refusal {
            return counts.count(reason);
        }
        queue.push(Recipient::Counts(Arc::clone(counts)), request);
        drop(queue);
        self.arrived.notify_one();
    }

    /// Lets no thread wait for a result for longer than `timeout` from now.
    pub(super) fn limit_waits(&self, timeout: Duration) {
        let mut queue = self.queue.lock();
        queue.end_at = Some(queue.earlier_end(Monotonic::now() + timeout));
        drop(queue);
        self.done.notify_all();
    }

    /// Takes no further requests, and ends the thread when it has committed all earlier requests.
    /// Returns the events that are not committed after `timeout`.
    pub(super) fn close(&self, timeout: Duration) -> Result<(), UncommittedEvents> {
        self.limit_waits(timeout);
        let deadline = Monotonic::now() + timeout;
        let mut queue = self.queue.lock();
        queue.is_ending = true;
        self.arrived.notify_all();
        while !queue.has_ended && !deadline.is_past() {
            queue = self.done.wait_until(queue, Some(deadline)).0;
        }
        if queue.has_ended {
            return Ok(());
        }
        let mut counts = queue.committing.clone();
        add_events(&mut counts, queue.waiting.iter());
        drop(queue);
        let ledger = self.ledger.lock();
        let named = counts.into_iter().map(|(channel, events)| {
            let name = ledger.book(channel).map_or_else(|| "a removed channel".to_owned(), |book| book.name.clone());
            (name, events)
        });
        Err(UncommittedEvents { channels: named.collect() })
    }

    /// Waits until the requests that are queued now have results. Channels that end while the disk
    /// does not answer share one `timeout`, so their waits do not add up.
    pub(super) fn settle(&self, timeout: Duration) {
        let mut queue = self.queue.lock();
        let last = queue.arrived;
        let until = *queue.settle_until.get_or_insert_with(|| Monotonic::now() + timeout);
        let until = queue.earlier_end(until);
        while queue.done < last && !queue.has_ended && !until.is_past() {
            queue = self.done.wait_until(queue, Some(until)).0;
        }
    }

    pub(super) fn run(&self, mut committer: Committer) {
        // The drop of `_end` ends the waits of other threads, even after a panic of the store.
        let _end = RunEnd(self);
        let mut queue = self.queue.lock();
        loop {
            let deletes = committer.ledger().is_some_and(Ledger::has_deletions);
            if queue.waiting.is_empty() && queue.is_ending {
                return;
            }
            if queue.waiting.is_empty() && !deletes {
                queue = self.arrived.wait(queue);
                continue;
            }
            if !deletes {
                queue = self.gather(queue);
            }
            let batch = queue.take_batch();
            let submitters = std::mem::take(&mut queue.submitters);
            drop(queue);
            let began = Monotonic::now();
            let results = committer.run(batch.iter().map(|(_, request)| request), unix_ms());
            if let Some(ledger) = committer.ledger() {
                *self.ledger.lock() = ledger.clone();
                self.committed.notify_all();
            }
            queue = self.queue.lock();
            queue.expected = submitters + queue.submitters;
            queue.last_commit = began.elapsed();
            queue.settle_until = None;
            queue.committing.clear();
            queue.done += batch.len() as u64;
            for ((recipient, request), result) in batch.iter().zip(results) {
                queue.bytes -= size_of(request);
                match (recipient, result) {
                    (Recipient::Ticket(ticket), result) => {
                        if let Some(place) = queue.results.get_mut(ticket) {
                            *place = Some(result);
                        }
                    }
                    (Recipient::Counts(counts), Err(error)) => counts.count(UnstoredReason::of(&error)),
                    (Recipient::Counts(_), Ok(_)) => {}
                }
            }
            self.done.notify_all();
        }
    }

    /// Waits, before a commit, until the expected number of threads have submitted requests, or the
    /// time of [`GATHER_PART`] has passed. Without the wait, the first event would be committed
    /// alone, and the other suppliers would wait for two commits.
    fn gather<'q>(&'q self, mut queue: MutexGuard<'q, Queue>) -> MutexGuard<'q, Queue> {
        if queue.submitters >= queue.expected {
            return queue;
        }
        let deadline = Monotonic::now() + (queue.last_commit / GATHER_PART).min(MAX_GATHER);
        while queue.submitters < queue.expected && !queue.is_ending && !deadline.is_past() {
            queue = self.arrived.wait_until(queue, Some(deadline)).0;
        }
        queue
    }
}

struct RunEnd<'s>(&'s SharedStore);

impl Drop for RunEnd<'_> {
    fn drop(&mut self) {
        self.0.queue.lock().has_ended = true;
        self.0.done.notify_all();
    }
}
