//! The state of durable channels without their events, and the decisions about it. Time is an
//! argument.
//!
//! Invariants: the numbers of a channel's events are `first` to `last` without gaps, `last` never
//! becomes smaller, and a consumer's position is at most `last`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::limits::EventStoreLimits;
use super::names::is_name;
use super::records::{self, HeadRecord, StoredWrite};
use crate::store::StoreError;

const MAX_CONSUMERS: usize = 256;
/// Number of bytes that an event counts beyond its encoded form.
const EVENT_OVERHEAD: u64 = 32;
/// Maximum number of events that one commit deletes of a channel. A commit adds at most as many, so
/// the number of kept events returns to its maximum.
pub(super) const MAX_DELETIONS: usize = 1_024;
/// The bit beside a channel's number in the result of [`LedgerRequest::Open`] for a channel that
/// the request created.
pub(super) const IS_NEW: u64 = 1 << 32;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ChannelNumber(pub(super) u32);

/// The events that a durable channel keeps. The commits of new events delete the oldest events
/// beyond these bounds, acknowledged or not.
///
/// The default: 1,000,000 events, 1 GiB, and no bound of their age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Maximum number of events.
    pub max_events: u64,
    /// Maximum size of all events in bytes. Each event counts 32 bytes beyond its encoded form.
    pub max_bytes: u64,
    /// Maximum age, in steps of 1 ms; `None` for no maximum.
    pub max_age: Option<Duration>,
}

impl Default for Retention {
    fn default() -> Self {
        Self { max_events: 1_000_000, max_bytes: 1 << 30, max_age: None }
    }
}

impl Retention {
    /// Returns the maximum age in milliseconds, or 0 for none.
    pub(super) fn max_age_ms(&self) -> u64 {
        self.max_age.map_or(0, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX).max(1))
    }

    pub(super) fn of_numbers(max_events: u64, max_bytes: u64, max_age_ms: u64) -> Self {
        let max_age = (max_age_ms > 0).then(|| Duration::from_millis(max_age_ms));
        Self { max_events, max_bytes, max_age }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeptEvent {
    pub(super) bytes: u64,
    /// The time of storing, in milliseconds since 1970.
    pub(super) stored_at: u64,
}

impl KeptEvent {
    pub(super) fn new(event: &[u8], stored_at: u64) -> Self {
        Self { bytes: EVENT_OVERHEAD.saturating_add(event.len() as u64), stored_at }
    }
}

/// A channel in the store: its settings, the numbers of its events, and its consumers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Book {
    pub(super) name: String,
    pub(super) retention: Retention,
    /// The number of the oldest event, or `last + 1` if there is none.
    pub(super) first: u64,
    /// The number of the latest event; 0 before the first event.
    pub(super) last: u64,
    /// The size of all events in bytes.
    pub(super) bytes: u64,
    /// The position of each consumer: the number of the event that it has acknowledged last, or
    /// behind which it began.
    pub(super) consumers: BTreeMap<String, u64>,
    /// The oldest events, from `first` on, as far as they have been read.
    pub(super) oldest: VecDeque<KeptEvent>,
    /// True if the last commit has deleted as many events as it may, and the next commit deletes
    /// more.
    pub(super) has_excess: bool,
}

impl Default for Book {
    fn default() -> Self {
        Self {
            name: String::new(),
            retention: Retention::default(),
            first: 1,
            last: 0,
            bytes: 0,
            consumers: BTreeMap::new(),
            oldest: VecDeque::new(),
            has_excess: false,
        }
    }
}

impl Book {
    pub(super) fn events(&self) -> u64 {
        (self.last + 1).saturating_sub(self.first)
    }

    fn exceeds(&self, oldest: &KeptEvent, now: u64) -> bool {
        let max_age = self.retention.max_age_ms();
        self.events() > self.retention.max_events
            || self.bytes > self.retention.max_bytes
            || (max_age > 0 && oldest.stored_at.saturating_add(max_age) < now)
    }

    /// Deletes the oldest events beyond the retention: at most [`MAX_DELETIONS`], and none with a
    /// number above `committed`. `read` returns some of the events from a number on, at least one
    /// if there is one.
    pub(super) fn trim(
        &mut self,
        channel: ChannelNumber,
        committed: u64,
        now: u64,
        read: impl Fn(u64) -> Result<Vec<KeptEvent>, StoreError>,
        writes: &mut Vec<StoredWrite>,
    ) -> Result<(), StoreError> {
        self.has_excess = false;
        let mut deleted = 0;
        while self.first <= committed {
            if self.oldest.is_empty() {
                self.oldest.extend(read(self.first)?);
            }
            let Some(oldest) = self.oldest.front().copied() else { break };
            if !self.exceeds(&oldest, now) {
                break;
            }
            if deleted == MAX_DELETIONS {
                self.has_excess = true;
                break;
            }
            deleted += 1;
            self.oldest.pop_front();
            writes.push(StoredWrite::delete(records::event_key(channel, self.first)));
            self.first += 1;
            self.bytes = self.bytes.saturating_sub(oldest.bytes);
        }
        Ok(())
    }
}

#[derive(Clone, Debug)]
pub(super) enum LedgerRequest {
    /// Creates a channel, or sets the retention of the channel with this name. Returns the
    /// channel's number, with [`IS_NEW`] if it is created.
    Open(String, Retention),
    Remove(ChannelNumber),
    /// Adds an event. Returns the event's number. The store's bound does not apply to a channel
    /// that has as many bytes as its retention permits, because a further event does not make it
    /// larger.
    Append(ChannelNumber, Arc<[u8]>),
    /// Returns the position of a consumer. A new consumer begins at this position, or at the last
    /// event if that is lower.
    Resume(ChannelNumber, String, u64),
    /// Moves the position of a consumer forward to this number. Returns the consumer's position.
    Acknowledge(ChannelNumber, String, u64),
    Forget(ChannelNumber, String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::events) enum LedgerRefusal {
    NoChannel,
    NoConsumer,
    /// The name of the channel or of the consumer is not permitted.
    Name,
    TooManyChannels,
    TooManyConsumers,
    NoRoom,
    /// The channel has no event of this number yet.
    Ahead,
    /// No further number is left for an event.
    Exhausted,
}

/// All channels of a store, without their events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ledger {
    books: BTreeMap<ChannelNumber, Arc<Book>>,
    pub(super) removed: BTreeSet<ChannelNumber>,
    /// A number above those of all channels that this process has seen. Streams of removed channels
    /// may still be in use, so no later channel may have their numbers.
    pub(super) next: u32,
}

impl Ledger {
    /// Adds a record of the store. Records arrive in the order of their keys.
    pub(super) fn load(&mut self, record: HeadRecord) -> Result<(), StoreError> {
        let damaged = |reason: &str| StoreError::Damaged { path: None, reason: reason.to_owned() };
        let (HeadRecord::Channel(number, _) | HeadRecord::Consumer(number, ..) | HeadRecord::Removed(number)) = record;
        self.next = self.next.max(number.0.saturating_add(1));
        match record {
            HeadRecord::Channel(number, book) => {
                if self.number_of(&book.name).is_some() {
                    return Err(damaged("two event channels have one name"));
                }
                self.books.insert(number, Arc::new(book));
            }
            HeadRecord::Consumer(number, name, position) => {
                let book = self.books.get_mut(&number).map(Arc::make_mut);
                let book = book.filter(|book| position <= book.last);
                let book = book.ok_or_else(|| damaged("a consumer belongs to no event channel"))?;
                book.consumers.insert(name, position);
            }
            HeadRecord::Removed(number) => {
                self.removed.insert(number);
            }
        }
        Ok(())
    }

    pub(super) fn book(&self, channel: ChannelNumber) -> Option<&Arc<Book>> {
        self.books.get(&channel)
    }

    pub(super) fn book_mut(&mut self, channel: ChannelNumber) -> Option<&mut Book> {
        self.books.get_mut(&channel).map(Arc::make_mut)
    }

    pub(super) fn books(&self) -> impl Iterator<Item = &Book> {
        self.books.values().map(|book| &**book)
    }

    /// Returns the bytes of the events of all channels, without those beyond a channel's retention,
    /// which later commits delete.
    pub(super) fn bytes(&self) -> u64 {
        self.books().fold(0, |sum, book| sum.saturating_add(book.bytes.min(book.retention.max_bytes)))
    }

    /// Returns the channels of which the next commit deletes events.
    pub(super) fn with_excess(&self) -> impl Iterator<Item = ChannelNumber> {
        self.books.iter().filter(|(_, book)| book.has_excess).map(|(number, _)| *number)
    }

    /// Returns true if the next commit deletes events, even without a request.
    pub(super) fn has_deletions(&self) -> bool {
        !self.removed.is_empty() || self.with_excess().next().is_some()
    }

    fn number_of(&self, name: &str) -> Option<ChannelNumber> {
        self.books.iter().find(|(_, book)| book.name == name).map(|(number, _)| *number)
    }

    /// Applies a request, and adds its changes of the store to `writes`, except those of the
    /// channels' records: the caller writes the records of the channels in `touched`.
    pub(super) fn apply(
        &mut self,
        request: &LedgerRequest,
        limits: &EventStoreLimits,
        now: u64,
        writes: &mut Vec<StoredWrite>,
        touched: &mut BTreeSet<ChannelNumber>,
    ) -> Result<u64, LedgerRefusal> {
        match request {
            LedgerRequest::Open(name, retention) => {
                let (number, is_new) = self.open(name, *retention, limits, touched)?;
                Ok(u64::from(number.0) | if is_new { IS_NEW } else { 0 })
            }
            LedgerRequest::Remove(channel) => {
                let book = self.books.remove(channel).ok_or(LedgerRefusal::NoChannel)?;
                self.removed.insert(*channel);
                writes.extend(book.consumers.keys().map(|name| records::delete_consumer(*channel, name)));
                writes.extend([records::delete_channel(*channel), records::put_removed(*channel)]);
                touched.remove(channel);
                Ok(0)
            }
            LedgerRequest::Append(channel, event) => {
                let size = KeptEvent::new(event, now).bytes;
                let book = self.books.get(channel).ok_or(LedgerRefusal::NoChannel)?;
                let grows = book.bytes.saturating_add(size) <= book.retention.max_bytes;
                if grows && self.bytes().saturating_add(size) > limits.max_bytes {
                    // The commit may delete events of the channel that are too old, which makes
                    // room for later events.
                    touched.insert(*channel);
                    return Err(LedgerRefusal::NoRoom);
                }
                let book = self.book_mut(*channel).ok_or(LedgerRefusal::NoChannel)?;
                // The last number is never used, so `last + 1` is always a number.
                let number = book.last.checked_add(1).filter(|it| *it < u64::MAX).ok_or(LedgerRefusal::Exhausted)?;
                book.last = number;
                book.bytes = book.bytes.saturating_add(size);
                writes.push(records::put_event(*channel, number, now, event));
                touched.insert(*channel);
                Ok(number)
            }
            LedgerRequest::Resume(channel, name, start) => {
                let in_all: usize = self.books().map(|book| book.consumers.len()).sum();
                let book = self.book_mut(*channel).ok_or(LedgerRefusal::NoChannel)?;
                if let Some(position) = book.consumers.get(name) {
                    return Ok(*position);
                }
                if !is_name(name) {
                    return Err(LedgerRefusal::Name);
                }
                if book.consumers.len() >= MAX_CONSUMERS || in_all >= limits.max_consumers {
                    return Err(LedgerRefusal::TooManyConsumers);
                }
                let position = (*start).min(book.last);
                book.consumers.insert(name.clone(), position);
                writes.push(records::put_consumer(*channel, name, position));
                Ok(position)
            }
            LedgerRequest::Acknowledge(channel, name, number) => {
                let book = self.book_mut(*channel).ok_or(LedgerRefusal::NoChannel)?;
                let last = book.last;
                let position = book.consumers.get_mut(name).ok_or(LedgerRefusal::NoConsumer)?;
                if *number > last {
                    return Err(LedgerRefusal::Ahead);
                }
                if *number > *position {
                    *position = *number;
                    writes.push(records::put_consumer(*channel, name, *number));
                }
                Ok(*position)
            }
            LedgerRequest::Forget(channel, name) => {
                let book = self.book_mut(*channel).ok_or(LedgerRefusal::NoChannel)?;
                book.consumers.remove(name).ok_or(LedgerRefusal::NoConsumer)?;
                writes.push(records::delete_consumer(*channel, name));
                Ok(0)
            }
        }
    }

    fn open(
        &mut self,
        name: &str,
        retention: Retention,
        limits: &EventStoreLimits,
        touched: &mut BTreeSet<ChannelNumber>,
    ) -> Result<(ChannelNumber, bool), LedgerRefusal> {
        if let Some(number) = self.number_of(name) {
            if let Some(book) = self.book_mut(number).filter(|book| book.retention != retention) {
                book.retention = retention;
                touched.insert(number);
            }
            return Ok((number, false));
        }
        if !is_name(name) {
            return Err(LedgerRefusal::Name);
        }
        // A removed channel counts until its events are deleted, so that the store has a bounded
        // number of channels.
        if self.books.len() + self.removed.len() >= limits.max_channels {
            return Err(LedgerRefusal::TooManyChannels);
        }
        let number = ChannelNumber(self.next);
        self.next = self.next.checked_add(1).ok_or(LedgerRefusal::TooManyChannels)?;
        let book = Book { name: name.to_owned(), retention, ..Book::default() };
        self.books.insert(number, Arc::new(book));
        touched.insert(number);
        Ok((number, true))
    }
}
