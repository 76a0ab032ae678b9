//! Stores of durable channels, and the handles of their streams.

use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use corelane_sys::clock::Monotonic;
use corelane_sys::thread;

use super::committer::{Committer, of_channel, visit_events};
use super::error::DurableError;
use super::gate::WaitGate;
use super::ledger::{Book, ChannelNumber, IS_NEW, LedgerRequest, Retention};
use super::limits::EventStoreLimits;
use super::records;
use super::requests::{SharedStore, Ticket, UncommittedEvents};
use super::unstored::UnstoredCounts;
use crate::store::{RecordFormat, Store, StoreError};

/// The service and the format of the records of durable event channels, for
/// [`FileStore::open`](crate::store::FileStore::open).
pub const RECORD_FORMAT: RecordFormat = records::KIND;

/// Maximum time for which the drop of a store waits for the commit of the waiting requests.
const DROP_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of events that one reading returns.
const MAX_READ_EVENTS: usize = 1_024;
/// Maximum size in bytes of the events that one reading returns. A single event may be larger.
const MAX_READ_BYTES: usize = 1 << 20;

/// A store of durable event channels: `EventChannelBuilder::durable` and
/// `EventChannelFactory::durable` take it. Clones are one store, which closes when the last clone
/// and the last of its channels are dropped.
///
/// ```
/// use corelane_services::events::{EventStore, RECORD_FORMAT};
/// use corelane_services::store::MemoryStore;
///
/// // A program that keeps events opens a file: `FileStore::open("events.db", RECORD_FORMAT)?`.
/// let store = EventStore::open(MemoryStore::new(RECORD_FORMAT))?;
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
    /// Reads the channels of a store, without their events, and starts the thread that writes to
    /// it. The store has the default limits.
    ///
    /// # Errors
    /// Errors of reading; [`StoreError::Damaged`] if the records are inconsistent;
    /// [`StoreError::Unusable`] if the system refuses a thread.
    pub fn open(store: impl Store) -> Result<Self, StoreError> {
        Self::open_with(store, EventStoreLimits::default())
    }

    /// Does what [`open`](Self::open) does, with these limits.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    pub fn open_with(store: impl Store, limits: EventStoreLimits) -> Result<Self, StoreError> {
        let store: Arc<dyn Store> = Arc::new(store);
        let committer = Committer::open(Arc::clone(&store), limits)?;
        let ledger = committer.ledger().cloned().unwrap_or_default();
        let shared = Arc::new(SharedStore::new(store, ledger));
        let thread = {
            let shared = Arc::clone(&shared);
            thread::ThreadBuilder::new().name("events/store").spawn(move || shared.run(committer))
        };
        let failed = |error: io::Error| StoreError::Unusable { path: None, reason: error.to_string() };
        let requests = WaitGate::new(limits.max_waiting_requests, limits.max_waiting_requests_in_pool);
        let (of_connections, in_pools) = limits.max_waiting_readers;
        let readers = WaitGate::new(of_connections, in_pools);
        Ok(Self(Arc::new(Writer { shared, limits, requests, readers, thread: Some(thread.map_err(failed)?) })))
    }

    /// Lets no request wait for the store for longer than this time from now. A program that ends
    /// calls this method before it shuts down its ORB, which waits for running requests, and calls
    /// [`close`](Self::close) afterwards.
    pub fn limit_wait_time(&self, timeout: Duration) {
        self.0.shared.limit_waits(timeout);
    }

    /// Takes no further events, and waits until all events that wait for the disk are committed, at
    /// most for this time. If the time is too short, the store's thread continues to wait for the
    /// disk, and commits the events if the disk answers.
    ///
    /// The drop of a store with waiting events closes the store in the same way, for at most 5 s.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use corelane_services::events::{EventStore, RECORD_FORMAT};
    /// use corelane_services::store::MemoryStore;
    ///
    /// let store = EventStore::open(MemoryStore::new(RECORD_FORMAT))?;
    /// store.close(Duration::from_secs(5))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The events that are not committed in time. A power failure, or the end of the process, may
    /// lose them.
    pub fn close(&self, timeout: Duration) -> Result<(), UncommittedEvents> {
        self.0.shared.close(timeout)
    }

    /// Returns the number of requests that wait for the store in threads of ORBs.
    #[must_use]
    pub fn waiting_requests(&self) -> usize {
        self.0.requests.waiting()
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

    pub(in crate::events) fn limits(&self) -> &EventStoreLimits {
        &self.0.limits
    }

    /// Returns the gate of the threads that wait for a request's result.
    pub(in crate::events) fn requests(&self) -> &WaitGate {
        &self.0.requests
    }

    /// Returns the gate of the threads that wait for further events.
    pub(in crate::events) fn readers(&self) -> &WaitGate {
        &self.0.readers
    }

    /// Returns false after [`close`](Self::close), and after the end of the store's thread.
    pub(in crate::events) fn takes_requests(&self) -> bool {
        self.0.shared.takes_requests()
    }

    /// Opens the stream of a channel, with this retention. If the store has no channel of this
    /// name, creates the channel and returns true with the stream.
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

/// The drop of the writer ends the thread after the commit of all waiting requests, and waits for
/// [`DROP_TIMEOUT`] at most.
struct Writer {
    shared: Arc<SharedStore>,
    limits: EventStoreLimits,
    requests: WaitGate,
    readers: WaitGate,
    thread: Option<thread::JoinHandle<()>>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        // A thread that still waits for the disk is not joined.
        if let (Ok(()), Some(thread)) = (self.shared.close(DROP_TIMEOUT), self.thread.take()) {
            let _ = thread.join();
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::events) struct StreamNumbers {
    pub(in crate::events) first: u64,
    pub(in crate::events) last: u64,
    pub(in crate::events) bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::events) struct StoredOctets {
    pub(in crate::events) number: u64,
    /// The time of storing, in milliseconds since 1970.
    pub(in crate::events) stored_at: u64,
    pub(in crate::events) event: Vec<u8>,
}

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

    /// Waits for the commit of the event, and returns the event's number.
    pub(in crate::events) fn finish(&self, ticket: AppendTicket) -> Result<u64, DurableError> {
        self.shared().finish(&ticket.0)
    }

    /// Returns false if too many events wait for the disk.
    pub(in crate::events) fn has_room(&self) -> bool {
        self.shared().has_room()
    }

    /// Stores an event without waiting. Counts an event that is not stored.
    pub(in crate::events) fn offer(&self, event: Arc<[u8]>, counts: &Arc<UnstoredCounts>) {
        self.shared().offer(LedgerRequest::Append(self.channel, event), counts);
    }

    /// Waits until the events that are queued now are committed, at most for this time.
    pub(in crate::events) fn settle(&self, timeout: Duration) {
        self.shared().settle(timeout);
    }

    /// Returns the number of the last event that a consumer acknowledged. A new consumer begins
    /// behind the event `start`, or behind the last event if that number is lower.
    pub(in crate::events) fn resume(&self, consumer: &str, start: u64) -> Result<u64, DurableError> {
        self.shared().submit(LedgerRequest::Resume(self.channel, consumer.to_owned(), start))
    }

    pub(in crate::events) fn acknowledge(&self, consumer: &str, number: u64) -> Result<(), DurableError> {
        self.shared().submit(LedgerRequest::Acknowledge(self.channel, consumer.to_owned(), number)).map(drop)
    }

    pub(in crate::events) fn forget(&self, consumer: &str) -> Result<(), DurableError> {
        self.shared().submit(LedgerRequest::Forget(self.channel, consumer.to_owned())).map(drop)
    }

    /// Removes the channel, its consumers and its events from the store, unless that is done
    /// already.
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

    /// Waits until the channel has a committed event with a number above `number`, until the
    /// channel is removed, or until the deadline.
    pub(in crate::events) fn wait_beyond(&self, number: u64, deadline: Monotonic) {
        let shared = self.shared();
        let mut ledger = shared.ledger.lock();
        while ledger.book(self.channel).is_some_and(|book| book.last <= number) && !deadline.is_past() {
            ledger = shared.committed.wait_until(ledger, Some(deadline)).0;
        }
    }

    /// Returns events with numbers above `number`, in order: at most `max`, [`MAX_READ_EVENTS`] and
    /// [`MAX_READ_BYTES`]. Returns at least one event if there is one and `max` is not 0.
    pub(in crate::events) fn read_after(&self, number: u64, max: usize) -> Result<Vec<StoredOctets>, DurableError> {
        let mut events = Vec::new();
        let book = self.shared().ledger.lock().book(self.channel).cloned().ok_or(DurableError::NO_CHANNEL)?;
        let Book { first, last, ref name, .. } = *book;
        let from = number.saturating_add(1).max(first);
        let (max, mut bytes) = (max.min(MAX_READ_EVENTS), 0);
        if from > last || max == 0 {
            return Ok(events);
        }
        let visited = visit_events(&*self.shared().store, self.channel, from, last, &mut |record| {
            bytes += record.event.len();
            if bytes > MAX_READ_BYTES && !events.is_empty() {
                return ControlFlow::Break(());
            }
            let (number, stored_at) = (record.number, record.stored_at);
            events.push(StoredOctets { number, stored_at, event: record.event.to_vec() });
            if events.len() == max { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        match visited {
            // The events before a damaged one are returned first.
            Err(error) if events.is_empty() => Err(of_channel(error, name).into()),
            _ => Ok(events),
        }
    }
}

/// An event that is queued for its commit.
#[derive(Debug)]
pub(in crate::events) struct AppendTicket(Ticket);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use corelane::{SystemException, SystemExceptionKind as Kind};

    use super::*;
    use crate::store::{Durability, MemoryStore, RecordChange, RecordVisitor, Revision};

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
        let inner = MemoryStore::new(RECORD_FORMAT);
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
        let counts = Arc::new(UnstoredCounts::default());
        stream.offer(b"oneway"[..].into(), &counts);
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
        let inner = MemoryStore::new(RECORD_FORMAT);
        let store = EventStore::open(Probe { inner, stands: Arc::clone(&stands), fails, commits }).unwrap();
        let stream = store.stream("flight", Retention::default()).unwrap().0;
        stands.store(true, Ordering::SeqCst);
        let event: Arc<[u8]> = vec![1; 64 << 10].into();
        let counts = Arc::new(UnstoredCounts::default());
        let is_taken = || {
            stream.offer(Arc::clone(&event), &counts);
            counts.read().queue_full == 0
        };
        let taken = (0..10_000).take_while(|_| is_taken()).count();
        assert!((100..=130).contains(&taken), "{taken}");
        stands.store(false, Ordering::SeqCst);
        // A request with an acknowledgement waits for room.
        assert_eq!(append(&stream, b"last").unwrap(), taken as u64 + 1);
    }

    #[test]
    fn removed_channel_leaves_nothing_in_the_store() {
        let inner = MemoryStore::new(RECORD_FORMAT);
        let store = EventStore::open(inner.clone()).unwrap();
        let stream = store.stream("flight", Retention::default()).unwrap().0;
        let counts = Arc::new(UnstoredCounts::default());
        for number in 0..3_000_u32 {
            stream.offer(number.to_be_bytes().as_slice().into(), &counts);
        }
        assert_eq!(counts.read().total(), 0);
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
