//! The thread that commits the requests of a store's channels, and the handles by which other threads reach it.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use corelane::{Completion, SystemException, SystemExceptionKind as Kind};
use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{Condvar, LockScope, Mutex, MutexGuard};
use corelane_sys::thread;

use super::committer::{Committer, LedgerError, LedgerResult, visit_events};
use super::ledger::{Book, ChannelNumber, IS_NEW, Ledger, LedgerRefusal, LedgerRequest, Retention};
use super::records;
use crate::store::{RecordKind, Store, StoreError};

/// The service and the format of the records of durable event channels, for
/// [`FileStore::open`](crate::store::FileStore::open).
pub const STORED_EVENTS: RecordKind = records::KIND;

/// Maximum number of requests that one commit takes.
const MAX_BATCH_REQUESTS: usize = 1_024;
/// Size in bytes after which a commit takes no further event. A commit of this size fits into the store's log.
const MAX_BATCH_BYTES: usize = 512 << 10;
/// Maximum size of the waiting requests in bytes. Beyond it, acknowledged requests wait for room, and other events are
/// not stored.
const MAX_WAITING_BYTES: usize = 8 << 20;
const MAX_WAITING_REQUESTS: usize = 16_384;
/// Number of bytes that a request counts beyond its event.
const REQUEST_BYTES: usize = 128;
/// Time after which a request is given up whose commit has not ended.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(30);
/// A commit waits for further requests for at most the last commit's duration divided by this number, and at most
/// [`MAX_GATHER`].
const GATHER_PART: u32 = 4;
const MAX_GATHER: Duration = Duration::from_millis(20);
/// Maximum numbers of events and bytes that one reading returns. A single event may be larger.
const MAX_READ_EVENTS: usize = 1_024;
const MAX_READ_BYTES: usize = 1 << 20;

/// A store of durable event channels: `EventChannelBuilder::durable` and `EventChannelFactory::durable` take it. Clones
/// are one store, which closes when the last clone and the last of its channels are dropped.
///
/// ```
/// use corelane_services::events::{EventStore, STORED_EVENTS};
/// use corelane_services::store::MemoryStore;
///
/// // A program that keeps events opens a file: `FileStore::open("events.db", STORED_EVENTS)?`.
/// let store = EventStore::open(MemoryStore::new(STORED_EVENTS))?;
/// assert!(store.channels().is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct EventStore(Arc<Writer>);

impl fmt::Debug for EventStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventStore").field("channels", &self.channels()).finish_non_exhaustive()
    }
}

impl EventStore {
    /// Reads the channels of a store, without their events, and starts the thread that writes to it.
    ///
    /// # Errors
    /// Errors of reading; [`StoreError::Damaged`] if the records are inconsistent; [`StoreError::Unusable`] if the
    /// system refuses a thread.
    pub fn open(store: impl Store) -> Result<Self, StoreError> {
        let store: Arc<dyn Store> = Arc::new(store);
        let committer = Committer::open(Arc::clone(&store))?;
        let ledger = committer.ledger().cloned().unwrap_or_default();
        let shared = Arc::new(SharedStore {
            store,
            queue: Mutex::new("durable events", LockScope::Orb, Queue::default()),
            arrived: Condvar::new(),
            done: Condvar::new(),
            ledger: Mutex::new("durable channels", LockScope::Orb, ledger),
            committed: Condvar::new(),
        });
        let thread = {
            let shared = Arc::clone(&shared);
            thread::ThreadBuilder::new().name("events/store").spawn(move || shared.run(committer))
        };
        let failed = |error: io::Error| StoreError::Unusable { path: None, reason: error.to_string() };
        Ok(Self(Arc::new(Writer { shared, thread: Some(thread.map_err(failed)?) })))
    }

    /// Returns the names of the channels in the store.
    #[must_use]
    pub fn channels(&self) -> Vec<String> {
        self.0.shared.ledger.lock().books().map(|book| book.name.clone()).collect()
    }

    /// Returns the retention of a channel in the store; `None` if there is no channel of this name.
    #[must_use]
    pub fn retention(&self, channel: &str) -> Option<Retention> {
        self.0.shared.ledger.lock().books().find(|book| book.name == channel).map(|book| book.retention)
    }

    /// Opens the stream of a channel, and creates it if the store has no channel of this name. Returns true with a new
    /// stream.
    pub(in crate::events) fn stream(
        &self,
        name: &str,
        retention: Retention,
    ) -> Result<(DurableStream, bool), DurableError> {
        let opened = self.0.shared.submit(LedgerRequest::Open(name.to_owned(), retention))?;
        let channel = ChannelNumber(u32::try_from(opened & !IS_NEW).unwrap_or(u32::MAX));
        Ok((DurableStream { store: self.clone(), channel }, opened & IS_NEW != 0))
    }
}

/// Ends the thread when it is dropped, after the commit of all waiting requests.
struct Writer {
    shared: Arc<SharedStore>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.queue.lock().is_ending = true;
        self.shared.arrived.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The reason why a request was not done.
#[derive(Clone, Debug)]
pub(in crate::events) enum DurableError {
    Request(LedgerError),
    /// The store has not committed in time. It may still commit.
    Slow,
    /// The store ends, or its thread has ended.
    Ended,
}

impl DurableError {
    pub(in crate::events) const NO_CHANNEL: Self = Self::Request(LedgerError::Refused(LedgerRefusal::NoChannel));

    fn is_unknown_channel(&self) -> bool {
        matches!(self, Self::Request(LedgerError::Refused(LedgerRefusal::NoChannel)))
    }

    pub(in crate::events) fn is_unknown_consumer(&self) -> bool {
        matches!(self, Self::Request(LedgerError::Refused(LedgerRefusal::NoConsumer)))
    }
}

impl From<LedgerError> for DurableError {
    fn from(error: LedgerError) -> Self {
        Self::Request(error)
    }
}

impl From<StoreError> for DurableError {
    fn from(error: StoreError) -> Self {
        Self::Request(LedgerError::Store(Arc::new(error)))
    }
}

impl From<DurableError> for SystemException {
    fn from(error: DurableError) -> Self {
        let (kind, completion, reason) = match error {
            DurableError::Request(LedgerError::Refused(refusal)) => {
                let (kind, reason) = refusal_reason(refusal);
                (kind, Completion::No, reason.to_owned())
            }
            DurableError::Request(LedgerError::Store(error)) => match &*error {
                StoreError::Full { .. } => (Kind::NoResources, Completion::Maybe, error.to_string()),
                _ => (Kind::Internal, Completion::Maybe, error.to_string()),
            },
            DurableError::Slow => {
                let reason = "the store has not written the event in time; it may still write it";
                (Kind::Timeout, Completion::Maybe, reason.to_owned())
            }
            DurableError::Ended => (Kind::BadInvOrder, Completion::No, "the store has ended".to_owned()),
        };
        SystemException::new(kind, 0, completion).because(reason)
    }
}

const fn refusal_reason(refusal: LedgerRefusal) -> (Kind, &'static str) {
    match refusal {
        LedgerRefusal::NoChannel => (Kind::ObjectNotExist, "the store has no such channel any more"),
        LedgerRefusal::NoConsumer => (Kind::BadParam, "the channel has no consumer of this name"),
        LedgerRefusal::Name => (Kind::BadParam, "a name has 1 to 64 letters, digits and characters -_."),
        LedgerRefusal::TooManyChannels => (Kind::ImpLimit, "the store has the maximum number of channels"),
        LedgerRefusal::TooManyConsumers => (Kind::ImpLimit, "the channel has the maximum number of named consumers"),
        LedgerRefusal::Ahead => (Kind::BadParam, "the channel has no event of this number yet"),
        LedgerRefusal::Exhausted => (Kind::ImpLimit, "the channel has used all numbers"),
    }
}

/// The numbers of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::events) struct StreamNumbers {
    /// The number of the oldest event, or `last + 1` if there is none.
    pub(in crate::events) first: u64,
    /// The number of the latest event, or 0.
    pub(in crate::events) last: u64,
    pub(in crate::events) bytes: u64,
}

/// An encoded event in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::events) struct StoredOctets {
    pub(in crate::events) number: u64,
    /// In milliseconds since 1970.
    pub(in crate::events) stored_at: u64,
    pub(in crate::events) event: Vec<u8>,
}

/// The events of one channel in a store.
#[derive(Clone, Debug)]
pub(in crate::events) struct DurableStream {
    store: EventStore,
    channel: ChannelNumber,
}

impl DurableStream {
    fn shared(&self) -> &SharedStore {
        &self.store.0.shared
    }

    /// Begins to store an event. [`finish`](Self::finish) waits for its commit.
    pub(in crate::events) fn begin(&self, event: Arc<[u8]>) -> Result<AppendTicket, DurableError> {
        self.shared().begin(LedgerRequest::Append(self.channel, event)).map(AppendTicket)
    }

    /// Returns the number of the event, after its commit.
    pub(in crate::events) fn finish(&self, ticket: AppendTicket) -> Result<u64, DurableError> {
        self.shared().finish(ticket.0)
    }

    /// Stores an event without waiting. Returns false if too many events wait for the disk.
    pub(in crate::events) fn offer(&self, event: Arc<[u8]>) -> bool {
        self.shared().offer(LedgerRequest::Append(self.channel, event))
    }

    /// Returns the number of the last event that a consumer acknowledged. A new consumer begins behind the event
    /// `start`, or behind the last event if it has a lower number.
    pub(in crate::events) fn resume(&self, consumer: &str, start: u64) -> Result<u64, DurableError> {
        self.shared().submit(LedgerRequest::Resume(self.channel, consumer.to_owned(), start))
    }

    pub(in crate::events) fn acknowledge(&self, consumer: &str, number: u64) -> Result<(), DurableError> {
        self.shared().submit(LedgerRequest::Acknowledge(self.channel, consumer.to_owned(), number)).map(drop)
    }

    pub(in crate::events) fn forget(&self, consumer: &str) -> Result<(), DurableError> {
        self.shared().submit(LedgerRequest::Forget(self.channel, consumer.to_owned())).map(drop)
    }

    /// Removes the channel, its consumers and its events from the store, unless that is done already.
    pub(in crate::events) fn remove(&self) -> Result<(), DurableError> {
        match self.shared().submit(LedgerRequest::Remove(self.channel)) {
            Err(error) if !error.is_unknown_channel() => Err(error),
            _ => Ok(()),
        }
    }

    pub(in crate::events) fn status(&self) -> Option<StreamNumbers> {
        let book = self.shared().ledger.lock().book(self.channel).cloned()?;
        let Book { first, last, bytes, .. } = *book;
        Some(StreamNumbers { first, last, bytes })
    }

    /// Waits until the channel has a committed event with a number above `number`, until the channel is removed, or
    /// until the deadline.
    pub(in crate::events) fn wait_beyond(&self, number: u64, deadline: Monotonic) {
        let shared = self.shared();
        let mut ledger = shared.ledger.lock();
        while ledger.book(self.channel).is_some_and(|book| book.last <= number) && !deadline.is_past() {
            ledger = shared.committed.wait_until(ledger, Some(deadline)).0;
        }
    }

    /// Returns some events with numbers above `number`, in the order of their numbers: at most `max`, and at least one
    /// if there is one.
    pub(in crate::events) fn read_after(&self, number: u64, max: usize) -> Result<Vec<StoredOctets>, DurableError> {
        let mut events = Vec::new();
        let Some(StreamNumbers { first, last, .. }) = self.status() else {
            return Err(DurableError::NO_CHANNEL);
        };
        let from = number.saturating_add(1).max(first);
        let (max, mut bytes) = (max.min(MAX_READ_EVENTS), 0);
        if from > last || max == 0 {
            return Ok(events);
        }
        visit_events(&*self.shared().store, self.channel, from, last, &mut |record| {
            bytes += record.event.len();
            if bytes > MAX_READ_BYTES && !events.is_empty() {
                return ControlFlow::Break(());
            }
            let (number, stored_at) = (record.number, record.stored_at);
            events.push(StoredOctets { number, stored_at, event: record.event.to_vec() });
            if events.len() == max { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(events)
    }
}

/// An event whose commit has begun.
#[derive(Debug)]
pub(in crate::events) struct AppendTicket(u64);

struct SharedStore {
    store: Arc<dyn Store>,
    queue: Mutex<Queue>,
    /// Notified when a request arrives.
    arrived: Condvar,
    /// Notified after each commit.
    done: Condvar,
    /// The state after the last commit.
    ledger: Mutex<Ledger>,
    /// Notified when `ledger` changes.
    committed: Condvar,
}

#[derive(Default)]
struct Queue {
    /// The requests, with a ticket if a thread waits for the result.
    waiting: VecDeque<(Option<u64>, LedgerRequest)>,
    /// The size of the waiting requests, and of those being committed.
    bytes: usize,
    /// The tickets for whose results threads wait.
    results: HashMap<u64, Option<LedgerResult>>,
    last_ticket: u64,
    /// Number of waiting requests with tickets.
    submitters: usize,
    /// Number of threads that waited for the last commit, and of those that arrived during it.
    expected: usize,
    last_commit: Duration,
    is_ending: bool,
    has_ended: bool,
}

fn size_of(request: &LedgerRequest) -> usize {
    match request {
        LedgerRequest::Append(_, event) => REQUEST_BYTES + event.len(),
        _ => REQUEST_BYTES,
    }
}

impl Queue {
    fn has_room(&self) -> bool {
        self.bytes < MAX_WAITING_BYTES && self.waiting.len() < MAX_WAITING_REQUESTS
    }

    fn push(&mut self, ticket: Option<u64>, request: LedgerRequest) {
        self.bytes += size_of(&request);
        self.waiting.push_back((ticket, request));
    }

    fn take_batch(&mut self) -> Vec<(Option<u64>, LedgerRequest)> {
        let mut bytes = 0;
        let count = self.waiting.iter().take(MAX_BATCH_REQUESTS).take_while(|(_, request)| {
            let is_first = bytes == 0;
            bytes += size_of(request);
            is_first || bytes <= MAX_BATCH_BYTES
        });
        let count = count.count();
        self.waiting.drain(..count).collect()
    }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl SharedStore {
    fn submit(&self, request: LedgerRequest) -> Result<u64, DurableError> {
        self.finish(self.begin(request)?)
    }

    fn begin(&self, request: LedgerRequest) -> Result<u64, DurableError> {
        let deadline = Monotonic::now() + COMMIT_TIMEOUT;
        let mut queue = self.queue.lock();
        while !queue.has_room() && !queue.has_ended {
            if deadline.is_past() {
                return Err(DurableError::Slow);
            }
            queue = self.done.wait_until(queue, Some(deadline)).0;
        }
        if queue.has_ended {
            return Err(DurableError::Ended);
        }
        queue.last_ticket += 1;
        let ticket = queue.last_ticket;
        queue.push(Some(ticket), request);
        queue.results.insert(ticket, None);
        queue.submitters += 1;
        drop(queue);
        self.arrived.notify_one();
        Ok(ticket)
    }

    fn finish(&self, ticket: u64) -> Result<u64, DurableError> {
        let deadline = Monotonic::now() + COMMIT_TIMEOUT;
        let mut queue = self.queue.lock();
        loop {
            if let Some(result) = queue.results.get_mut(&ticket).and_then(Option::take) {
                queue.results.remove(&ticket);
                return result.map_err(DurableError::Request);
            }
            let reason = if queue.has_ended { DurableError::Ended } else { DurableError::Slow };
            if queue.has_ended || deadline.is_past() {
                queue.results.remove(&ticket);
                return Err(reason);
            }
            queue = self.done.wait_until(queue, Some(deadline)).0;
        }
    }

    fn offer(&self, request: LedgerRequest) -> bool {
        let mut queue = self.queue.lock();
        if !queue.has_room() || queue.has_ended {
            return false;
        }
        queue.push(None, request);
        drop(queue);
        self.arrived.notify_one();
        true
    }

    fn run(&self, mut committer: Committer) {
        // Also after a panic of the store, no thread waits for this thread.
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
            for ((ticket, request), result) in batch.iter().zip(results) {
                queue.bytes -= size_of(request);
                if let Some(place) = ticket.and_then(|ticket| queue.results.get_mut(&ticket)) {
                    *place = Some(result);
                }
            }
            self.done.notify_all();
        }
    }

    /// Waits, before a commit, until the expected number of threads have submitted requests or a time has passed.
    /// Without the wait, the first event would be committed alone, and the other suppliers would wait for two commits.
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;
    use crate::store::{Durability, MemoryStore, RecordChange, RecordVisitor, Revision};

    /// A store that counts commits, and that can stand still or fail.
    struct Probe {
        inner: MemoryStore,
        stands: Arc<AtomicBool>,
        fails: Arc<AtomicBool>,
        commits: Arc<AtomicUsize>,
    }

    impl Store for Probe {
        fn for_each(&self, visit: &mut RecordVisitor<'_>) -> Result<Revision, StoreError> {
            self.inner.for_each(visit)
        }

        fn commit(&self, after: Revision, batch: &[RecordChange<'_>], how: Durability) -> Result<Revision, StoreError> {
            self.commits.fetch_add(1, Ordering::SeqCst);
            while self.stands.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            if self.fails.load(Ordering::SeqCst) {
                return Err(StoreError::Full { reason: "no space left".to_owned() });
            }
            self.inner.commit(after, batch, how)
        }

        fn sync(&self) -> Result<(), StoreError> {
            Ok(())
        }

        fn backup(&self, path: &std::path::Path) -> Result<(), StoreError> {
            self.inner.backup(path)
        }
    }

    fn append(stream: &DurableStream, event: &[u8]) -> Result<u64, DurableError> {
        stream.finish(stream.begin(event.into())?)
    }

    fn numbers(stream: &DurableStream) -> Vec<u64> {
        stream.read_after(0, 100).unwrap().iter().map(|event| event.number).collect()
    }

    #[test]
    fn one_commit_takes_the_events_of_all_waiting_suppliers() {
        let (stands, fails, commits) = (Arc::default(), Arc::default(), Arc::<AtomicUsize>::default());
        let inner = MemoryStore::new(STORED_EVENTS);
        let probe = Probe {
            inner: inner.clone(),
            stands: Arc::clone(&stands),
            fails: Arc::clone(&fails),
            commits: Arc::clone(&commits),
        };
        let store = EventStore::open(probe).unwrap();
        let stream = store.stream("flight", Retention::default()).unwrap().0;
        assert_eq!(append(&stream, b"one").unwrap(), 1);
        stands.store(true, Ordering::SeqCst);
        let before = commits.load(Ordering::SeqCst);
        let first = stream.begin(b"two"[..].into()).unwrap();
        while commits.load(Ordering::SeqCst) == before {
            std::thread::yield_now();
        }
        let others: Vec<_> = (0..16_u8).map(|number| stream.begin([number].as_slice().into()).unwrap()).collect();
        assert!(stream.offer(b"oneway"[..].into()));
        // An event is not visible before its commit.
        assert_eq!(numbers(&stream), [1]);
        stands.store(false, Ordering::SeqCst);
        assert_eq!(stream.finish(first).unwrap(), 2);
        let found: Vec<u64> = others.into_iter().map(|ticket| stream.finish(ticket).unwrap()).collect();
        assert_eq!(found, (3..19).collect::<Vec<_>>());
        assert_eq!(commits.load(Ordering::SeqCst), before + 2);
        stream.wait_beyond(18, Monotonic::now() + Duration::from_secs(60));
        assert_eq!(numbers(&stream).last(), Some(&19));

        fails.store(true, Ordering::SeqCst);
        let refused = SystemException::from(append(&stream, b"full").unwrap_err());
        assert_eq!((refused.kind(), numbers(&stream).len()), (Kind::NoResources, 19));
        fails.store(false, Ordering::SeqCst);
        assert_eq!(append(&stream, b"again").unwrap(), 20);

        drop((stream, store));
        let store = EventStore::open(inner).unwrap();
        assert_eq!(store.channels(), ["flight"]);
        let stream = store.stream("flight", Retention::default()).unwrap().0;
        assert_eq!(append(&stream, b"after").unwrap(), 21);
    }

    #[test]
    fn waiting_events_are_bounded() {
        let (stands, fails, commits) = (Arc::<AtomicBool>::default(), Arc::default(), Arc::default());
        let inner = MemoryStore::new(STORED_EVENTS);
        let store = EventStore::open(Probe { inner, stands: Arc::clone(&stands), fails, commits }).unwrap();
        let stream = store.stream("flight", Retention::default()).unwrap().0;
        stands.store(true, Ordering::SeqCst);
        let event: Arc<[u8]> = vec![1; 64 << 10].into();
        let taken = (0..10_000).take_while(|_| stream.offer(Arc::clone(&event))).count();
        assert!((100..=130).contains(&taken), "{taken}");
        stands.store(false, Ordering::SeqCst);
        // An acknowledged request waits for room.
        assert_eq!(append(&stream, b"last").unwrap(), taken as u64 + 1);
    }

    #[test]
    fn removed_channel_leaves_nothing_in_the_store() {
        let inner = MemoryStore::new(STORED_EVENTS);
        let store = EventStore::open(inner.clone()).unwrap();
        let stream = store.stream("flight", Retention::default()).unwrap().0;
        for number in 0..3_000_u32 {
            while !stream.offer(number.to_be_bytes().as_slice().into()) {
                std::thread::yield_now();
            }
        }
        assert_eq!(stream.resume("log", 5).unwrap(), 5);
        stream.remove().unwrap();
        stream.remove().unwrap();
        assert!(append(&stream, b"late").is_err() && stream.status().is_none());
        while inner.for_each(&mut |_, _| Ok(())).is_ok() {
            let mut count = 0;
            inner
                .for_each(&mut |_, _| {
                    count += 1;
                    Ok(())
                })
                .unwrap();
            if count == 0 {
                break;
            }
        }
        assert!(store.channels().is_empty());
    }
}
