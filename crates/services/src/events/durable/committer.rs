//! Batches of requests, each with one commit of the store, and reading of events. Time is an argument.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::ledger::{ChannelNumber, KeptEvent, Ledger, LedgerRefusal, LedgerRequest, MAX_DELETIONS};
use super::records::{self, EventRecord, StoredWrite};
use crate::store::{Durability, RecordChange, Revision, Store, StoreError};

/// Number of events whose sizes are read at a time, to delete the oldest ones.
const MAX_READ_SIZES: usize = 256;
/// Maximum number of attempts to commit while another process changes the store.
const MAX_ATTEMPTS: usize = 8;

/// The reason why a request was not done.
#[derive(Clone, Debug)]
pub(in crate::events) enum LedgerError {
    Refused(LedgerRefusal),
    /// The store failed. The changes may be in the store.
    Store(Arc<StoreError>),
}

pub(super) type LedgerResult = Result<u64, LedgerError>;

pub(super) struct Committer {
    store: Arc<dyn Store>,
    /// `None` if the store may have changed since the last reading.
    head: Option<(Ledger, Revision)>,
}

impl Committer {
    pub(super) fn open(store: Arc<dyn Store>) -> Result<Self, StoreError> {
        let head = load(&*store)?;
        Ok(Self { store, head: Some(head) })
    }

    /// Returns the state after the last commit; `None` after an error.
    pub(super) fn ledger(&self) -> Option<&Ledger> {
        self.head.as_ref().map(|(ledger, _)| ledger)
    }

    /// Applies the requests in their order, with one commit, and returns a result for each. `now` is in milliseconds
    /// since 1970.
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
        requests: impl Iterator<Item = &'r LedgerRequest>,
        now: u64,
    ) -> Result<Vec<LedgerResult>, StoreError> {
        let (ledger, revision) = match self.head.take() {
            Some(head) => head,
            None => load(&*self.store)?,
        };
        let mut next = ledger.clone();
        let (mut writes, mut touched) = (Vec::new(), BTreeSet::new());
        let mut is_relaxed = true;
        let results = requests
            .map(|request| {
                is_relaxed &= matches!(request, LedgerRequest::Acknowledge(..));
                next.apply(request, now, &mut writes, &mut touched).map_err(LedgerError::Refused)
            })
            .collect();
        for channel in touched {
            let committed = ledger.book(channel).map_or(0, |book| book.last);
            let Some(book) = next.book_mut(channel) else { continue };
            let read = |from| read_sizes(&*self.store, channel, from, committed);
            book.trim(channel, committed, now, read, &mut writes)?;
            writes.push(records::put_channel(channel, book));
        }
        self.delete_removed(&mut next, &mut writes)?;
        let revision = if writes.is_empty() {
            revision
        } else {
            let changes: Vec<RecordChange<'_>> = writes.iter().map(StoredWrite::change).collect();
            // An acknowledgement that a power failure loses repeats events, which consumers expect.
            let durability = if is_relaxed { Durability::Relaxed } else { Durability::Synced };
            self.store.commit(revision, &changes, durability)?
        };
        self.head = Some((next, revision));
        Ok(results)
    }

    /// Deletes some events of removed channels.
    fn delete_removed(&self, ledger: &mut Ledger, writes: &mut Vec<StoredWrite>) -> Result<(), StoreError> {
        let Some(channel) = ledger.removed.first().copied() else { return Ok(()) };
        let mut found = 0;
        self.store.visit_from(&records::event_key(channel, 0), &mut |key, value| {
            if found == MAX_DELETIONS || records::decode_event(channel, key, value)?.is_none() {
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

fn load(store: &dyn Store) -> Result<(Ledger, Revision), StoreError> {
    let mut ledger = Ledger::default();
    let revision = store.visit_from(b"", &mut |key, value| match records::decode_head(key, value)? {
        Some(record) => ledger.load(record).map(ControlFlow::Continue),
        None => Ok(ControlFlow::Break(())),
    })?;
    Ok((ledger, revision))
}

fn read_sizes(store: &dyn Store, channel: ChannelNumber, from: u64, last: u64) -> Result<Vec<KeptEvent>, StoreError> {
    let mut sizes = Vec::new();
    visit_events(store, channel, from, last, &mut |record| {
        sizes.push(KeptEvent::new(record.event, record.stored_at));
        if sizes.len() == MAX_READ_SIZES { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(sizes)
}

/// Visits the events of a channel with the numbers `from` to `last`, until `visit` ends the visit.
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
