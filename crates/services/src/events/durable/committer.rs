//! Batches of requests, each with one commit of the store, and reading of events. Time is an
//! argument.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use super::ledger::{ChannelNumber, KeptEvent, Ledger, LedgerRefusal, LedgerRequest, MAX_DELETIONS};
use super::limits::EventStoreLimits;
use super::records::{self, EventRecord, StoredWrite};
use crate::store::{Durability, RecordChange, Revision, Store, StoreError};

/// Maximum number of events whose sizes are read at a time, to delete the oldest ones.
const MAX_READ_SIZES: usize = 256;
/// Maximum number of attempts to commit while another process changes the store.
const MAX_ATTEMPTS: usize = 8;

#[derive(Clone, Debug)]
pub(in crate::events) enum LedgerError {
    Refused(LedgerRefusal),
    /// The store failed. The changes may be in the store.
    Store(Arc<StoreError>),
}

pub(super) type LedgerResult = Result<u64, LedgerError>;

pub(super) struct Committer {
    store: Arc<dyn Store>,
    /// The state after the last commit, with its revision; `None` if the store may have changed
    /// since the last reading.
    head: Option<(Ledger, Revision)>,
    limits: EventStoreLimits,
    /// The channels in which a damaged event was found since the last reading of the store.
    damaged: BTreeMap<ChannelNumber, Arc<StoreError>>,
    /// A number above those of all channels that this process has seen or created.
    next_channel: u32,
}

impl Committer {
    pub(super) fn open(store: Arc<dyn Store>, limits: EventStoreLimits) -> Result<Self, StoreError> {
        let head = load(&*store)?;
        Ok(Self { store, limits, damaged: BTreeMap::new(), next_channel: head.0.next, head: Some(head) })
    }

    /// Returns the state after the last commit; `None` after an error.
    pub(super) fn ledger(&self) -> Option<&Ledger> {
        self.head.as_ref().map(|(ledger, _)| ledger)
    }

    /// Applies the requests in their order, with one commit, and returns a result for each. `now`
    /// is in milliseconds since 1970.
    pub(super) fn run<'r>(
        &mut self,
        requests: impl Iterator<Item = &'r LedgerRequest> + Clone,
        now: u64,
    ) -> Vec<LedgerResult> {
        let mut last = StoreError::Conflict;
        for _ in 0..MAX_ATTEMPTS {
            match self.attempt(requests.clone(), now) {
                Ok(results) => return results,
                Err(error) => {
                    self.head = None;
                    last = error;
                }
            }
            if !matches!(last, StoreError::Conflict) {
                break;
            }
        }
        let error = Arc::new(last);
        requests.map(|_| Err(LedgerError::Store(Arc::clone(&error)))).collect()
    }

    fn attempt<'r>(
        &mut self,
        requests: impl Iterator<Item = &'r LedgerRequest> + Clone,
        now: u64,
    ) -> Result<Vec<LedgerResult>, StoreError> {
        let (ledger, revision) = match self.head.take() {
            Some(head) => head,
            None => {
                self.damaged.clear();
                load(&*self.store)?
            }
        };
        // Each failure adds a channel to `damaged`, so the loop ends.
        loop {
            match self.attempt_from(&ledger, revision, requests.clone(), now) {
                Ok(results) => return Ok(results),
                Err(CommitFailure::Damaged(channel, error)) => {
                    self.damaged.insert(channel, Arc::new(error));
                }
                Err(CommitFailure::Store(error)) => return Err(error),
            }
        }
    }

    fn attempt_from<'r>(
        &mut self,
        ledger: &Ledger,
        revision: Revision,
        requests: impl Iterator<Item = &'r LedgerRequest>,
        now: u64,
    ) -> Result<Vec<LedgerResult>, CommitFailure> {
        let mut next = ledger.clone();
        next.next = next.next.max(self.next_channel);
        let (mut writes, mut touched) = (Vec::new(), ledger.with_excess().collect::<BTreeSet<_>>());
        let mut is_relaxed = true;
        let results = requests
            .map(|request| {
                is_relaxed &= matches!(request, LedgerRequest::Acknowledge(..));
                if let LedgerRequest::Append(channel, _) = request
                    && let Some(error) = self.damaged.get(channel)
                {
                    return Err(LedgerError::Store(Arc::clone(error)));
                }
                next.apply(request, &self.limits, now, &mut writes, &mut touched).map_err(LedgerError::Refused)
            })
            .collect();
        // A failed commit may have stored the new numbers, so later channels never get them.
        self.next_channel = next.next;
        for channel in touched {
            let committed = ledger.book(channel).map_or(0, |book| book.last);
            let Some(book) = next.book_mut(channel) else { continue };
            let read = |from| read_sizes(&*self.store, channel, from, committed);
            if self.damaged.contains_key(&channel) {
                book.has_excess = false;
            } else if let Err(error) = book.trim(channel, committed, now, read, &mut writes) {
                return Err(match error {
                    StoreError::Damaged { .. } => CommitFailure::Damaged(channel, of_channel(error, &book.name)),
                    error => CommitFailure::Store(error),
                });
            }
            writes.push(records::put_channel(channel, book));
        }
        // Only channels that an earlier commit removed are deleted here, because events of this
        // commit are not in the store yet.
        if let Some(channel) = ledger.removed.first().copied() {
            self.delete_events(channel, &mut next, &mut writes)?;
        }
        let revision = if writes.is_empty() {
            revision
        } else {
            let changes: Vec<RecordChange<'_>> = writes.iter().map(StoredWrite::change).collect();
            // If a power failure loses an acknowledgement, the consumer gets events again, which
            // consumers must expect. So a commit of acknowledgements alone need not be synced.
            let durability = if is_relaxed { Durability::Relaxed } else { Durability::Synced };
            self.store.commit(revision, &changes, durability)?
        };
        self.head = Some((next, revision));
        Ok(results)
    }

    /// Deletes at most [`MAX_DELETIONS`] events of a removed channel, and the record of the removal
    /// when no event is left.
    fn delete_events(
        &self,
        channel: ChannelNumber,
        ledger: &mut Ledger,
        writes: &mut Vec<StoredWrite>,
    ) -> Result<(), StoreError> {
        let mut found = 0;
        self.store.visit_from(&records::event_key(channel, 0), &mut |key, _| {
            // The events' values are not read, so damaged events are deleted, too.
            if found == MAX_DELETIONS || !records::is_event_of(channel, key) {
                return Ok(ControlFlow::Break(()));
            }
            found += 1;
            writes.push(StoredWrite::delete(key.to_vec()));
            Ok(ControlFlow::Continue(()))
        })?;
        if found < MAX_DELETIONS {
            ledger.removed.remove(&channel);
            writes.push(records::delete_removed(channel));
        }
        Ok(())
    }
}

enum CommitFailure {
    /// An event of this channel is damaged.
    Damaged(ChannelNumber, StoreError),
    Store(StoreError),
}

impl From<StoreError> for CommitFailure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Adds the name of the channel to the reason of [`StoreError::Damaged`].
pub(super) fn of_channel(error: StoreError, name: &str) -> StoreError {
    match error {
        StoreError::Damaged { path, reason } => {
            StoreError::Damaged { path, reason: format!("event channel `{name}`: {reason}") }
        }
        error => error,
    }
}

fn load(store: &dyn Store) -> Result<(Ledger, Revision), StoreError> {
    let mut ledger = Ledger::default();
    let revision = store.visit_from(b"", &mut |key, value| match records::decode_head(key, value)? {
        Some(record) => ledger.load(record).map(ControlFlow::Continue),
        None => Ok(ControlFlow::Break(())),
    })?;
    Ok((ledger, revision))
}

fn read_sizes(store: &dyn Store, channel: ChannelNumber, from: u64, last: u64) -> Result<Vec<KeptEvent>, StoreError> {
    let (mut sizes, mut first) = (Vec::new(), None);
    visit_events(store, channel, from, last, &mut |record| {
        first.get_or_insert(record.number);
        sizes.push(KeptEvent::new(record.event, record.stored_at));
        if sizes.len() == MAX_READ_SIZES { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    if first == Some(from) {
        return Ok(sizes);
    }
    Err(StoreError::Damaged { path: None, reason: "an event is missing".to_owned() })
}

/// Visits the events of a channel with the numbers `from` to `last`, until `visit` ends the visit.
/// A gap between the numbers is an error.
pub(super) fn visit_events(
    store: &dyn Store,
    channel: ChannelNumber,
    from: u64,
    last: u64,
    visit: &mut dyn FnMut(EventRecord<'_>) -> ControlFlow<()>,
) -> Result<(), StoreError> {
    let mut next = None;
    let visited = store.visit_from(&records::event_key(channel, from), &mut |key, value| {
        let record = records::decode_event(channel, key, value)?.filter(|record| record.number <= last);
        let Some(record) = record else { return Ok(ControlFlow::Break(())) };
        if next.is_some_and(|next| record.number != next) {
            let reason = "an event is missing".to_owned();
            return Err(StoreError::Damaged { path: None, reason });
        }
        next = Some(record.number + 1);
        Ok(visit(record))
    });
    visited.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::durable::ledger::{IS_NEW, Retention};
    use crate::store::MemoryStore;

    const FIRST: ChannelNumber = ChannelNumber(0);

    fn open(name: &str, retention: Retention) -> LedgerRequest {
        LedgerRequest::Open(name.to_owned(), retention)
    }

    fn append() -> LedgerRequest {
        LedgerRequest::Append(FIRST, b"event"[..].into())
    }

    fn run(committer: &mut Committer, requests: &[LedgerRequest]) -> Vec<u64> {
        committer.run(requests.iter(), 1).into_iter().map(Result::unwrap).collect()
    }

    /// Commits as the store's thread does without requests, and returns the number of commits.
    fn delete(committer: &mut Committer) -> usize {
        (0..100).take_while(|_| committer.ledger().unwrap().has_deletions() && run(committer, &[]).is_empty()).count()
    }

    #[test]
    fn events_in_the_commit_that_removes_their_channel_are_deleted() {
        let store = MemoryStore::new(records::KIND);
        let mut committer = Committer::open(Arc::new(store.clone()), EventStoreLimits::default()).unwrap();
        run(&mut committer, &[open("flight", Retention::default())]);
        run(&mut committer, &[append(), LedgerRequest::Remove(FIRST)]);
        assert_eq!(delete(&mut committer), 1);
        store.for_each(&mut |key, _| panic!("{key:?} is left")).unwrap();
    }

    #[test]
    fn number_of_a_removed_channel_is_not_given_again() {
        let store = MemoryStore::new(records::KIND);
        let mut committer = Committer::open(Arc::new(store.clone()), EventStoreLimits::default()).unwrap();
        let opened = run(&mut committer, &[open("flight", Retention::default())]);
        assert_eq!(opened, [IS_NEW]);
        run(&mut committer, &[LedgerRequest::Remove(FIRST)]);
        delete(&mut committer);
        // Another change of the store makes the committer read it again.
        let revision = store.for_each(&mut |_, _| Ok(())).unwrap();
        store.commit(revision, &[], Durability::Synced).unwrap();
        let requests = [open("ground", Retention::default()), append(), open("ground", Retention::default())];
        let results = committer.run(requests.iter(), 1);
        // The attempt before the reading has used the number 1.
        assert_eq!((*results[0].as_ref().unwrap(), *results[2].as_ref().unwrap()), (IS_NEW | 2, 2));
        assert!(matches!(results[1], Err(LedgerError::Refused(LedgerRefusal::NoChannel))), "{results:?}");
    }

    #[test]
    fn stores_refuse_what_is_beyond_their_limits() {
        let limits = EventStoreLimits::default().max_channels(2).max_consumers(1).max_bytes(120);
        let mut committer = Committer::open(Arc::new(MemoryStore::new(records::KIND)), limits).unwrap();
        let refusal = |result: &LedgerResult| match result {
            Err(LedgerError::Refused(refusal)) => Some(*refusal),
            _ => None,
        };
        let small = Retention { max_bytes: 74, ..Retention::default() };
        let resume = |channel, name: &str| LedgerRequest::Resume(ChannelNumber(channel), name.to_owned(), 0);
        let append = |channel| LedgerRequest::Append(ChannelNumber(channel), b"event"[..].into());
        let requests = [
            open("flight", small),
            open("ground", Retention::default()),
            open("cargo", Retention::default()),
            resume(0, "log"),
            resume(1, "log"),
            // An event of five bytes counts 37 bytes.
            append(0),
            append(0),
            append(1),
            append(1),
            // The channel has as many bytes as it may have. It does not become larger, so the store
            // has room for its event.
            append(0),
        ];
        let results = committer.run(requests.iter(), 1);
        let found: Vec<_> = results.iter().map(refusal).collect();
        let (channels, consumers, room) =
            (Some(LedgerRefusal::TooManyChannels), Some(LedgerRefusal::TooManyConsumers), Some(LedgerRefusal::NoRoom));
        assert_eq!(found, [None, None, channels, None, consumers, None, None, None, room, None]);
        assert_eq!(committer.ledger().unwrap().bytes(), 111);
    }

    #[test]
    fn damaged_event_stops_its_channel_only() {
        let store = MemoryStore::new(records::KIND);
        let mut committer = Committer::open(Arc::new(store.clone()), EventStoreLimits::default()).unwrap();
        let few = Retention { max_events: 2, ..Retention::default() };
        run(&mut committer, &[open("flight", few), open("ground", few)]);
        run(&mut committer, &[append(), append(), LedgerRequest::Append(ChannelNumber(1), b"event"[..].into())]);
        let revision = store.for_each(&mut |_, _| Ok(())).unwrap();
        let key = records::event_key(FIRST, 1);
        store.commit(revision, &[RecordChange::Put(&key, b"cut")], Durability::Synced).unwrap();
        for number in 2..4 {
            let requests = [append(), LedgerRequest::Append(ChannelNumber(1), b"event"[..].into())];
            let results = committer.run(requests.iter(), 1);
            let error = match &results[0] {
                Err(LedgerError::Store(error)) => error.to_string(),
                other => panic!("{other:?}"),
            };
            assert!(error.contains("event channel `flight`: a record"), "{error}");
            assert_eq!(*results[1].as_ref().unwrap(), number);
        }
        assert!(!committer.ledger().unwrap().has_deletions());
        run(&mut committer, &[LedgerRequest::Remove(FIRST)]);
        delete(&mut committer);
        let mut left = 0;
        store
            .for_each(&mut |key, _| {
                left += usize::from(records::is_event_of(FIRST, key));
                Ok(())
            })
            .unwrap();
        assert_eq!(left, 0);
    }

    #[test]
    fn commits_delete_events_until_the_retention_holds() {
        let mut committer =
            Committer::open(Arc::new(MemoryStore::new(records::KIND)), EventStoreLimits::default()).unwrap();
        run(&mut committer, &[open("flight", Retention::default())]);
        for _ in 0..3 {
            run(&mut committer, &vec![append(); 1_000]);
        }
        assert_eq!(delete(&mut committer), 0);
        run(&mut committer, &[open("flight", Retention { max_bytes: 400, ..Retention::default() })]);
        assert_eq!(committer.ledger().unwrap().book(FIRST).unwrap().events(), 3_000 - MAX_DELETIONS as u64);
        assert_eq!(delete(&mut committer), 2);
        assert_eq!(committer.ledger().unwrap().book(FIRST).unwrap().events(), 10);
    }
}
