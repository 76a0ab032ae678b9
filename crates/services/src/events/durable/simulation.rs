//! Random requests against a naive model, with restarts, and with commits that fail before or after
//! they are applied.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use proptest::prelude::*;

use super::committer::{Committer, LedgerError, visit_events};
use super::ledger::{ChannelNumber, KeptEvent, LedgerRequest, Retention};
use super::limits::EventStoreLimits;
use super::records;
use crate::store::{Durability, MemoryStore, RecordChange, RecordVisitor, Revision, Store, StoreError};

/// A store whose commits fail before (1) or after (2) they are applied.
struct FlakyStore {
    inner: MemoryStore,
    failure: Arc<AtomicU8>,
}

impl Store for FlakyStore {
    fn for_each(&self, visit: &mut RecordVisitor<'_>) -> Result<Revision, StoreError> {
        self.inner.for_each(visit)
    }

    fn commit(&self, after: Revision, batch: &[RecordChange<'_>], how: Durability) -> Result<Revision, StoreError> {
        let failed = || StoreError::Full { reason: "simulated".to_owned() };
        match self.failure.load(Ordering::Relaxed) {
            0 => self.inner.commit(after, batch, how),
            1 => Err(failed()),
            _ => self.inner.commit(after, batch, how).and(Err(failed())),
        }
    }

    fn sync(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn backup(&self, path: &Path) -> Result<(), StoreError> {
        self.inner.backup(path)
    }
}

const NAMES: [&str; 2] = ["flight", "ground"];
const CONSUMERS: [&str; 3] = ["log", "map", "not permitted"];

#[derive(Clone, Debug)]
enum Step {
    /// Requests, the milliseconds since the last batch, and the failure of the commit.
    Batch(Vec<Action>, u64, u8),
    Restart,
}

#[derive(Clone, Debug)]
enum Action {
    Open(usize, Retention),
    Append(usize, Vec<u8>),
    Resume(usize, usize, u64),
    Acknowledge(usize, usize, u64),
    Forget(usize, usize),
    Remove(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let channel = 0..NAMES.len();
    let consumer = 0..CONSUMERS.len();
    let retention =
        (1..30_u64, 100..2_000_u64, prop::option::of(1..60_u64)).prop_map(|(max_events, max_bytes, age)| Retention {
            max_events,
            max_bytes,
            max_age: age.map(Duration::from_millis),
        });
    let action = prop_oneof![
        2 => (channel.clone(), retention).prop_map(|(channel, retention)| Action::Open(channel, retention)),
        12 => (channel.clone(), prop::collection::vec(any::<u8>(), 0..80))
            .prop_map(|(channel, event)| Action::Append(channel, event)),
        3 => (channel.clone(), consumer.clone(), 0..60_u64)
            .prop_map(|(channel, consumer, start)| Action::Resume(channel, consumer, start)),
        3 => (channel.clone(), consumer.clone(), 0..60_u64)
            .prop_map(|(channel, consumer, number)| Action::Acknowledge(channel, consumer, number)),
        1 => (channel.clone(), consumer).prop_map(|(channel, consumer)| Action::Forget(channel, consumer)),
        1 => channel.prop_map(Action::Remove),
    ];
    let failure = prop_oneof![6 => Just(0_u8), 1 => Just(1), 1 => Just(2)];
    prop_oneof![
        6 => (prop::collection::vec(action, 1..8), 0..20_u64, failure)
            .prop_map(|(actions, pause, failure)| Step::Batch(actions, pause, failure)),
        1 => Just(Step::Restart),
    ]
}

#[derive(Clone, Debug, Default, PartialEq)]
struct ModelChannel {
    retention: Retention,
    events: Vec<(u64, Vec<u8>)>,
    /// Number of the oldest events that are deleted.
    deleted: usize,
    consumers: BTreeMap<&'static str, u64>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Model(BTreeMap<usize, ModelChannel>);

impl Model {
    fn apply(&mut self, action: &Action, now: u64) -> Option<u64> {
        match action {
            Action::Open(channel, retention) => {
                self.0.entry(*channel).or_default().retention = *retention;
                None
            }
            Action::Append(channel, event) => {
                let channel = self.0.get_mut(channel)?;
                channel.events.push((now, event.clone()));
                Some(channel.events.len() as u64)
            }
            Action::Resume(channel, consumer, start) => {
                let channel = self.0.get_mut(channel)?;
                let last = channel.events.len() as u64;
                let name = CONSUMERS[*consumer];
                (!name.contains(' ')).then(|| *channel.consumers.entry(name).or_insert((*start).min(last)))
            }
            Action::Acknowledge(channel, consumer, number) => {
                let channel = self.0.get_mut(channel)?;
                let last = channel.events.len() as u64;
                let position = channel.consumers.get_mut(CONSUMERS[*consumer])?;
                if *number > last {
                    return None;
                }
                *position = (*position).max(*number);
                Some(*position)
            }
            Action::Forget(channel, consumer) => {
                self.0.get_mut(channel)?.consumers.remove(CONSUMERS[*consumer]).map(|_| 0)
            }
            Action::Remove(channel) => self.0.remove(channel).map(|_| 0),
        }
    }

    /// Deletes the oldest events of the channels that have new events or another retention.
    fn trim(&mut self, before: &Model, now: u64) {
        for (name, channel) in &mut self.0 {
            let old = before.0.get(name);
            let is_touched =
                old.is_none_or(|old| old.events.len() != channel.events.len() || old.retention != channel.retention);
            let committed = old.map_or(0, |old| old.events.len());
            while is_touched && channel.deleted < committed {
                let kept = &channel.events[channel.deleted..];
                let bytes: u64 = kept.iter().map(|(at, event)| KeptEvent::new(event, *at).bytes).sum();
                let limits = channel.retention;
                let is_old = limits.max_age.is_some_and(|age| kept[0].0 + (age.as_millis() as u64) < now);
                if kept.len() as u64 <= limits.max_events && bytes <= limits.max_bytes && !is_old {
                    break;
                }
                channel.deleted += 1;
            }
        }
    }
}

struct Tested {
    store: MemoryStore,
    failure: Arc<AtomicU8>,
    committer: Committer,
    numbers: BTreeMap<usize, ChannelNumber>,
}

impl Tested {
    fn open(store: MemoryStore, failure: Arc<AtomicU8>) -> Self {
        let flaky = FlakyStore { inner: store.clone(), failure: Arc::clone(&failure) };
        let committer = Committer::open(Arc::new(flaky), EventStoreLimits::default()).unwrap();
        Self { store, failure, committer, numbers: BTreeMap::new() }
    }

    fn channel(&self, channel: usize) -> ChannelNumber {
        self.numbers.get(&channel).copied().unwrap_or(ChannelNumber(u32::MAX))
    }

    fn request(&self, action: &Action) -> LedgerRequest {
        let consumer = |consumer: &usize| CONSUMERS[*consumer].to_owned();
        match action {
            Action::Open(channel, retention) => LedgerRequest::Open(NAMES[*channel].to_owned(), *retention),
            Action::Append(channel, event) => LedgerRequest::Append(self.channel(*channel), event.as_slice().into()),
            Action::Resume(channel, name, start) => {
                LedgerRequest::Resume(self.channel(*channel), consumer(name), *start)
            }
            Action::Acknowledge(channel, name, number) => {
                LedgerRequest::Acknowledge(self.channel(*channel), consumer(name), *number)
            }
            Action::Forget(channel, name) => LedgerRequest::Forget(self.channel(*channel), consumer(name)),
            Action::Remove(channel) => LedgerRequest::Remove(self.channel(*channel)),
        }
    }

    /// Reads the channels from the store, as a start does.
    fn numbers_in_store(&self) -> BTreeMap<usize, ChannelNumber> {
        let mut numbers = BTreeMap::new();
        self.store
            .for_each(&mut |key, value| {
                if let Some(records::HeadRecord::Channel(number, book)) = records::decode_head(key, value)? {
                    numbers.insert(NAMES.iter().position(|name| *name == book.name).unwrap(), number);
                }
                Ok(())
            })
            .unwrap();
        numbers
    }

    fn check(&self, model: &Model) {
        let fresh = Committer::open(Arc::new(self.store.clone()), EventStoreLimits::default()).unwrap();
        let ledger = fresh.ledger().unwrap();
        assert_eq!(self.numbers.keys().collect::<Vec<_>>(), model.0.keys().collect::<Vec<_>>());
        for (name, expected) in &model.0 {
            let number = self.numbers[name];
            let book = ledger.book(number).unwrap();
            let kept = &expected.events[expected.deleted..];
            let bytes: u64 = kept.iter().map(|(at, event)| KeptEvent::new(event, *at).bytes).sum();
            assert_eq!((book.first, book.last), (expected.deleted as u64 + 1, expected.events.len() as u64));
            assert_eq!(book.bytes, bytes);
            let consumers = book.consumers.iter().map(|(name, position)| (name.as_str(), *position));
            assert!(consumers.eq(expected.consumers.iter().map(|(name, position)| (*name, *position))));
            let mut found = Vec::new();
            let (from, last) = (book.first, book.last);
            visit_events(&self.store, number, from, last, &mut |record| {
                assert_eq!(record.number, from + found.len() as u64);
                found.push((record.stored_at, record.event.to_vec()));
                ControlFlow::Continue(())
            })
            .unwrap();
            assert_eq!(found, kept);
        }
    }
}

fn simulate(steps: &[Step]) {
    let failure = Arc::new(AtomicU8::new(0));
    let mut tested = Tested::open(MemoryStore::new(records::KIND), failure);
    let (mut model, mut now) = (Model::default(), 1_000);
    for step in steps {
        match step {
            Step::Restart => {
                let numbers = tested.numbers_in_store();
                tested = Tested::open(tested.store, tested.failure);
                tested.numbers = numbers;
            }
            Step::Batch(actions, pause, failure) => {
                now += pause;
                // A separate batch opens or removes a channel, because other requests need the
                // channel's number.
                for group in actions.chunk_by(|one, other| is_appended(one) && is_appended(other)) {
                    let mut next = model.clone();
                    let expected: Vec<_> = group.iter().map(|action| next.apply(action, now)).collect();
                    next.trim(&model, now);
                    let requests: Vec<_> = group.iter().map(|action| tested.request(action)).collect();
                    tested.failure.store(*failure, Ordering::Relaxed);
                    let results = tested.committer.run(requests.iter(), now);
                    tested.failure.store(0, Ordering::Relaxed);
                    let has_failed = matches!(results[0], Err(LedgerError::Store(_)));
                    if !has_failed {
                        for (action, (result, expected)) in group.iter().zip(results.iter().zip(&expected)) {
                            match action {
                                Action::Open(..) => assert!(result.is_ok()),
                                _ => assert_eq!(result.as_ref().ok(), expected.as_ref(), "{action:?}"),
                            }
                        }
                    }
                    if !has_failed || *failure == 2 {
                        model = next;
                    }
                    tested.numbers = tested.numbers_in_store();
                    tested.check(&model);
                }
            }
        }
    }
}

fn is_appended(action: &Action) -> bool {
    !matches!(action, Action::Open(..) | Action::Remove(_))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn stream_equals_a_naive_model_over_restarts_and_failures(steps in prop::collection::vec(step(), 1..60)) {
        simulate(&steps);
    }
}
