//! The contexts of a server and their store. Readers load the published [`State`] without waiting.
//! Changes wait in a queue, and one of the waiting threads applies and commits the whole queue as
//! one batch. A change is visible after its commit.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{Condvar, LockScope, Mutex, MutexGuard};
use corelane_sys::rcu_cell::{RcuCell, RcuGuard};
use corelane_sys::thread;

use super::changes::{ChangeLog, LogLimits};
use super::loader::Loader;
use super::records::{self, NamingRecord, STAMP_KEY, StoredBinding};
use super::state::{Change, ContextId, NamingOperation, NamingRefusal, OperationOutcome, State};
use crate::store::{Durability, RecordChange, Revision, Store, StoreError};

/// Pause between two syncs of relaxed changes.
const SYNC_INTERVAL: Duration = Duration::from_millis(50);
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// A batch waits for further changes for at most the last commit's duration divided by this number,
/// and at most [`MAX_GATHER`].
const GATHER_PART: u32 = 4;
const MAX_GATHER: Duration = Duration::from_millis(20);
const LOG_LIMITS: LogLimits = LogLimits { max_changes: 10_000, max_size: 8 << 20 };
/// Maximum number of attempts to commit while other servers change the store.
const MAX_ATTEMPTS: usize = 32;

#[derive(Clone, Debug)]
pub(super) enum DirectoryError {
    Refused(NamingRefusal),
    Store(Arc<StoreError>),
}

pub(super) struct Directory {
    state: RcuCell<State>,
    stamp: u64,
    queue: Mutex<Queue>,
    /// The threads of batch `n` wait at `done[n % 3]`. The thread that ran a batch wakes the other
    /// threads of this batch and one thread of the next.
    done: [Condvar; 3],
    arrived: Condvar,
    max_gather: Duration,
    /// A random number, by which clients notice that the server has restarted.
    run: u64,
    changes: Mutex<ChangeLog>,
    changed: Condvar,
    store: Option<Arc<Stored>>,
    syncing: Option<thread::JoinHandle<()>>,
}

struct Stored {
    store: Box<dyn Store>,
    durability: Durability,
    unsynced: Mutex<Unsynced>,
    changed: Condvar,
}

#[derive(Default)]
struct Unsynced {
    has_changes: bool,
    /// True while the syncing thread waits for a change.
    is_idle: bool,
    is_ending: bool,
}

struct Queue {
    waiting: Vec<(u64, NamingOperation)>,
    results: HashMap<u64, Result<OperationOutcome, DirectoryError>>,
    next_ticket: u64,
    /// The number of the batch that is gathered.
    batch: usize,
    submitters: usize,
    /// Number of threads whose changes were in the last batch, plus the threads that submitted
    /// changes during it.
    expected: usize,
    last_commit: Duration,
    head: Option<Head>,
    /// How often threads have begun to wait for the end of a batch.
    #[cfg(test)]
    waits: usize,
}

impl Queue {
    fn push(&mut self, operation: NamingOperation) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket = ticket.wrapping_add(1);
        self.waiting.push((ticket, operation));
        ticket
    }

    fn note_batch(&mut self, submitters: usize, duration: Duration) {
        self.expected = submitters + self.submitters;
        self.last_commit = duration;
    }
}

#[derive(Clone)]
struct Head {
    state: State,
    revision: Revision,
}

/// Returns a random number that need not be secret.
pub(super) fn random_number() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

impl Directory {
    pub(super) fn in_memory() -> Self {
        let head = Head { state: State::new(random_number()), revision: Revision(0) };
        Self::new(head, random_number(), None, None)
    }

    pub(super) fn open(store: Box<dyn Store>, durability: Durability) -> Result<Self, StoreError> {
        let (mut head, mut stamp) = load(&*store, random_number())?;
        for _ in 0..MAX_ATTEMPTS {
            if let Some(stamp) = stamp.filter(|_| head.state.has_context(ContextId::ROOT)) {
                return Self::with_store(head, stamp, store, durability);
            }
            let chosen = stamp.unwrap_or_else(random_number);
            let root = records::encode(&Change::AddContext(ContextId::ROOT));
            let stamp_value = chosen.to_be_bytes();
            let batch = [RecordChange::Put(STAMP_KEY, &stamp_value), RecordChange::Put(&root.key, b"")];
            match store.commit(head.revision, &batch, Durability::Synced) {
                Ok(_) | Err(StoreError::Conflict) => (head, stamp) = load(&*store, random_number())?,
                Err(error) => return Err(error),
            }
        }
        Err(StoreError::Conflict)
    }

    fn with_store(head: Head, stamp: u64, store: Box<dyn Store>, durability: Durability) -> Result<Self, StoreError> {
        let unsynced = Mutex::new("naming sync", LockScope::Orb, Unsynced::default());
        let stored = Arc::new(Stored { store, durability, unsynced, changed: Condvar::new() });
        let syncing = match durability {
            Durability::Synced => None,
            Durability::Relaxed => {
                let stored = Arc::clone(&stored);
                let spawned = thread::ThreadBuilder::new().name("naming/sync").spawn(move || stored.sync_changes());
                Some(
                    spawned
                        .map_err(|error: io::Error| StoreError::Unusable { path: None, reason: error.to_string() })?,
                )
            }
        };
        Ok(Self::new(head, stamp, Some(stored), syncing))
    }

    fn new(head: Head, stamp: u64, store: Option<Arc<Stored>>, syncing: Option<thread::JoinHandle<()>>) -> Self {
        let state = RcuCell::new("naming contexts", LockScope::Orb, head.state.clone());
        let queue = Queue {
            waiting: Vec::new(),
            results: HashMap::new(),
            next_ticket: 0,
            batch: 0,
            submitters: 0,
            expected: 0,
            last_commit: Duration::ZERO,
            head: Some(head),
            #[cfg(test)]
            waits: 0,
        };
        let queue = Mutex::new("naming changes", LockScope::Orb, queue);
        Directory {
            state,
            stamp,
            queue,
            done: [Condvar::new(), Condvar::new(), Condvar::new()],
            arrived: Condvar::new(),
            max_gather: MAX_GATHER,
            run: random_number(),
            changes: Mutex::new("naming change log", LockScope::Orb, ChangeLog::new(LOG_LIMITS)),
            changed: Condvar::new(),
            store,
            syncing,
        }
    }

    pub(super) fn state(&self) -> RcuGuard<State> {
        self.state.load()
    }

    /// Returns the number that is part of the object ids of all contexts except the initial
    /// context.
    pub(super) fn stamp(&self) -> u64 {
        self.stamp
    }

    pub(super) fn backup(&self, path: &Path) -> Option<Result<(), StoreError>> {
        Some(self.store.as_ref()?.store.backup(path))
    }

    /// Makes the log record changes from now on, unless it does already. Returns the random number
    /// of this run of the server, and the number of the next change.
    pub(super) fn last_change(&self) -> (u64, u64) {
        (self.run, self.changes.lock().watch())
    }

    /// Returns the changes from number `start` on, within `limits`, and the number after the last
    /// of them. If there is no such change yet, waits for one until `deadline`. Returns `None` if
    /// `run` is not this run of the server, or if the log no longer has all changes from `start` on
    /// ([`ChangeLog::after`]).
    pub(super) fn changes_after(
        &self,
        (run, start): (u64, u64),
        limits: LogLimits,
        deadline: Monotonic,
    ) -> Option<(Vec<Change>, u64)> {
        let mut log = self.changes.lock();
        if run != self.run {
            return None;
        }
        while log.next() == start && !deadline.is_past() {
            log = self.changed.wait_until(log, Some(deadline)).0;
        }
        log.after(start, limits)
    }

    /// Runs an operation in a batch, and waits for the result.
    pub(super) fn submit(&self, operation: NamingOperation) -> Result<OperationOutcome, DirectoryError> {
        let mut queue = self.queue.lock();
        let ticket = queue.push(operation);
        self.arrive(&mut queue);
        self.finish(queue, |queue| queue.results.remove(&ticket))
    }

    /// Runs operations, in their order, in one batch. Returns a result for each.
    pub(super) fn submit_all(&self, operations: Vec<NamingOperation>) -> Vec<Result<OperationOutcome, DirectoryError>> {
        let mut queue = self.queue.lock();
        let tickets: Vec<u64> = operations.into_iter().map(|operation| queue.push(operation)).collect();
        let Some(first) = tickets.first().copied() else { return Vec::new() };
        self.arrive(&mut queue);
        // A batch takes the whole queue, so the results of all operations arrive together.
        self.finish(queue, |queue| {
            queue
                .results
                .contains_key(&first)
                .then(|| tickets.iter().filter_map(|ticket| queue.results.remove(ticket)).collect())
        })
    }

    fn arrive(&self, queue: &mut Queue) {
        queue.submitters += 1;
        if queue.submitters >= queue.expected {
            self.arrived.notify_one();
        }
    }

    fn done(&self, batch: usize) -> &Condvar {
        let [first, second, third] = &self.done;
        match batch % 3 {
            0 => first,
            1 => second,
            _ => third,
        }
    }

    fn finish<'q, R>(&'q self, mut queue: MutexGuard<'q, Queue>, mut take: impl FnMut(&mut Queue) -> Option<R>) -> R {
        let number = queue.batch;
        loop {
            if let Some(result) = take(&mut queue) {
                return result;
            }
            let Some(head) = queue.head.take() else {
                #[cfg(test)]
                {
                    queue.waits += 1;
                }
                queue = self.done(number).wait(queue);
                continue;
            };
            queue = self.gather(queue);
            let batch = std::mem::take(&mut queue.waiting);
            let submitters = std::mem::take(&mut queue.submitters);
            queue.batch = number.wrapping_add(1);
            drop(queue);
            let results = unfinished(&batch);
            let mut turn = Turn { directory: self, number, submitters, began: Monotonic::now(), head, results };
            turn.results = self.run(&mut turn.head, &batch);
            drop(turn);
            queue = self.queue.lock();
        }
    }

    /// Waits before a synced commit until the expected number of threads have submitted changes, or
    /// the time of [`GATHER_PART`] has passed. Without the wait, the first change would be
    /// committed alone, and the other threads would wait for two commits.
    fn gather<'q>(&'q self, mut queue: MutexGuard<'q, Queue>) -> MutexGuard<'q, Queue> {
        let is_synced = self.store.as_ref().is_some_and(|stored| stored.durability == Durability::Synced);
        if !is_synced || queue.submitters >= queue.expected {
            return queue;
        }
        let deadline = Monotonic::now() + (queue.last_commit / GATHER_PART).min(self.max_gather);
        while queue.submitters < queue.expected && !deadline.is_past() {
            queue = self.arrived.wait_until(queue, Some(deadline)).0;
        }
        queue
    }

    fn run(
        &self,
        head: &mut Head,
        batch: &[(u64, NamingOperation)],
    ) -> Vec<(u64, Result<OperationOutcome, DirectoryError>)> {
        for _ in 0..MAX_ATTEMPTS {
            let mut next = head.state.clone();
            let mut changes = Vec::new();
            let results = batch
                .iter()
                .map(|(ticket, operation)| {
                    (*ticket, next.apply(operation, &mut changes).map_err(DirectoryError::Refused))
                })
                .collect();
            if changes.is_empty() {
                return results;
            }
            match self.commit(head.revision, &changes) {
                Ok(revision) => {
                    *head = Head { state: next, revision };
                    self.state.store(Arc::new(head.state.clone()));
                    self.log(|log| log.push(&changes));
                    return results;
                }
                Err(StoreError::Conflict) => match self.reload(head.state.seed()) {
                    Ok(newer) => {
                        *head = newer;
                        self.state.store(Arc::new(head.state.clone()));
                        self.log(ChangeLog::lose);
                    }
                    Err(error) => return refuse(head, batch, error),
                },
                Err(error) => return refuse(head, batch, error),
            }
        }
        refuse(head, batch, StoreError::Conflict)
    }

    fn log(&self, note: impl FnOnce(&mut ChangeLog)) {
        note(&mut self.changes.lock());
        self.changed.notify_all();
    }

    fn commit(&self, after: Revision, changes: &[Change]) -> Result<Revision, StoreError> {
        let Some(stored) = &self.store else { return Ok(after) };
        let written: Vec<records::RecordWrite> = changes.iter().map(records::encode).collect();
        let batch: Vec<RecordChange<'_>> = written
            .iter()
            .map(|written| match &written.value {
                Some(value) => RecordChange::Put(&written.key, value),
                None => RecordChange::Delete(&written.key),
            })
            .collect();
        let revision = stored.store.commit(after, &batch, stored.durability)?;
        if stored.durability == Durability::Relaxed {
            let mut unsynced = stored.unsynced.lock();
            unsynced.has_changes = true;
            // A thread in its pause after a sync sees the change without a wake-up.
            if unsynced.is_idle {
                stored.changed.notify_one();
            }
        }
        Ok(revision)
    }

    /// Reads the names from the store again. The same `seed` gives the names the order that they
    /// had before, so that existing iterators stay valid.
    fn reload(&self, seed: u64) -> Result<Head, StoreError> {
        match &self.store {
            Some(stored) => load(&*stored.store, seed).map(|(head, _)| head),
            None => Err(StoreError::Conflict),
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if let Some(stored) = &self.store {
            stored.unsynced.lock().is_ending = true;
            stored.changed.notify_one();
        }
        if let Some(syncing) = self.syncing.take() {
            let _ = syncing.join();
        }
    }
}

impl Stored {
    /// Syncs relaxed changes until the directory is dropped. A failed sync is repeated, unless the
    /// directory is being dropped.
    fn sync_changes(&self) {
        let mut unsynced = self.unsynced.lock();
        loop {
            if unsynced.has_changes {
                unsynced.has_changes = false;
                drop(unsynced);
                let is_synced = self.store.sync().is_ok();
                unsynced = self.unsynced.lock();
                if !is_synced && unsynced.is_ending {
                    return;
                }
                unsynced.has_changes |= !is_synced;
                let next = Monotonic::now() + if is_synced { SYNC_INTERVAL } else { RETRY_INTERVAL };
                while !unsynced.is_ending && !next.is_past() {
                    unsynced = self.changed.wait_until(unsynced, Some(next)).0;
                }
            } else if unsynced.is_ending {
                return;
            } else {
                unsynced.is_idle = true;
                unsynced = self.changed.wait(unsynced);
                unsynced.is_idle = false;
            }
        }
    }
}

/// The state and the revision while a thread runs a batch. The drop, even during a panic, returns
/// them and the results to the queue.
struct Turn<'d> {
    directory: &'d Directory,
    number: usize,
    submitters: usize,
    began: Monotonic,
    head: Head,
    results: Vec<(u64, Result<OperationOutcome, DirectoryError>)>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut queue = self.directory.queue.lock();
        queue.head = Some(self.head.clone());
        queue.results.extend(self.results.drain(..));
        queue.note_batch(self.submitters, self.began.elapsed());
        // The lock is released first, because a thread that wakes takes it.
        drop(queue);
        self.directory.done(self.number).notify_all();
        self.directory.done(self.number.wrapping_add(1)).notify_one();
    }
}

fn unfinished(batch: &[(u64, NamingOperation)]) -> Vec<(u64, Result<OperationOutcome, DirectoryError>)> {
    let reason = "the thread that made the change panicked".to_owned();
    let error = Arc::new(StoreError::Unusable { path: None, reason });
    batch.iter().map(|(ticket, _)| (*ticket, Err(DirectoryError::Store(Arc::clone(&error))))).collect()
}

/// Returns the store's error for each operation that would change the state, and the usual result
/// for the others.
fn refuse(
    head: &Head,
    batch: &[(u64, NamingOperation)],
    error: StoreError,
) -> Vec<(u64, Result<OperationOutcome, DirectoryError>)> {
    let error = Arc::new(error);
    batch
        .iter()
        .map(|(ticket, operation)| {
            let mut changes = Vec::new();
            let result = head.state.clone().apply(operation, &mut changes).map_err(DirectoryError::Refused);
            let is_kept = changes.is_empty();
            (*ticket, if is_kept { result } else { Err(DirectoryError::Store(Arc::clone(&error))) })
        })
        .collect()
}

fn load(store: &dyn Store, seed: u64) -> Result<(Head, Option<u64>), StoreError> {
    let mut loader = Loader::new(seed);
    let mut stamp = None;
    let damaged = |reason: &str| StoreError::Damaged { path: None, reason: reason.to_owned() };
    let without_context = "a binding belongs to no context";
    let revision = store.for_each(&mut |key, value| {
        if let Some(StoredBinding { context, name, target }) = records::borrow_binding(key, value) {
            return loader.bind(context, name, target).map_err(|_| damaged(without_context));
        }
        match records::decode(key, value).map_err(|_| damaged("a record of the Naming Service cannot be read"))? {
            NamingRecord::Stamp(number) => stamp = Some(number),
            NamingRecord::Change(change) => {
                loader.replay(change).map_err(|_| damaged(without_context))?;
            }
        }
        Ok(())
    })?;
    let state = loader.finish().map_err(|_| damaged(without_context))?;
    Ok((Head { state, revision }, stamp))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::super::cos_naming::NameComponent;
    use super::super::state::{BatchLimits, BindingTarget, EncodedReference, ResolvedName};
    use super::*;
    use crate::store::{MemoryStore, RecordVisitor};

    struct Probe {
        inner: MemoryStore,
        fails: Arc<AtomicBool>,
        commits: Arc<AtomicUsize>,
        syncs: Arc<AtomicUsize>,
        before: Box<dyn Fn() + Send + Sync>,
    }

    impl Probe {
        fn new(inner: MemoryStore) -> Self {
            Probe {
                inner,
                fails: Arc::default(),
                commits: Arc::default(),
                syncs: Arc::default(),
                before: Box::new(|| {}),
            }
        }
    }

    impl Store for Probe {
        fn for_each(&self, visit: &mut RecordVisitor<'_>) -> Result<Revision, StoreError> {
            self.inner.for_each(visit)
        }

        fn commit(
            &self,
            after: Revision,
            batch: &[RecordChange<'_>],
            durability: Durability,
        ) -> Result<Revision, StoreError> {
            (self.before)();
            if self.fails.load(Ordering::Relaxed) {
                return Err(StoreError::Full { reason: "no space left".to_owned() });
            }
            self.commits.fetch_add(1, Ordering::Relaxed);
            self.inner.commit(after, batch, durability)
        }

        fn sync(&self) -> Result<(), StoreError> {
            if self.syncs.fetch_add(1, Ordering::Relaxed) == 0 && self.fails.load(Ordering::Relaxed) {
                return Err(StoreError::Full { reason: "no space left".to_owned() });
            }
            self.inner.sync()
        }

        fn backup(&self, path: &Path) -> Result<(), StoreError> {
            self.inner.backup(path)
        }
    }

    fn name(id: &str) -> Vec<NameComponent> {
        vec![NameComponent { id: id.to_owned(), kind: String::new() }]
    }

    fn bind(id: &str) -> NamingOperation {
        let target = BindingTarget::Object(EncodedReference::from(&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0][..]));
        NamingOperation::Bind { context: ContextId::ROOT, name: name(id), target }
    }

    fn is_bound(directory: &Directory, id: &str) -> bool {
        matches!(directory.state().resolve(ContextId::ROOT, &name(id)), Ok(ResolvedName::Bound(_)))
    }

    fn is_bound_in(store: &dyn Store, id: &str) -> bool {
        matches!(
            load(store, random_number()).unwrap().0.state.resolve(ContextId::ROOT, &name(id)),
            Ok(ResolvedName::Bound(_))
        )
    }

    fn open(store: impl Store) -> Directory {
        Directory::open(Box::new(store), Durability::Synced).unwrap()
    }

    fn names(directory: &Directory) -> Vec<String> {
        let limits = BatchLimits { max_bindings: usize::MAX, max_size: usize::MAX };
        let batch = directory.state().list(ContextId::ROOT, None, limits).unwrap();
        let mut names: Vec<String> = batch.bindings.into_iter().map(|(name, _)| name.id).collect();
        names.sort();
        names
    }

    #[test]
    fn changes_that_wait_together_are_one_commit() {
        const WAITING: usize = 15;
        let store = MemoryStore::new(records::KIND);
        let directory: Arc<std::sync::OnceLock<Directory>> = Arc::default();
        let mut probe = Probe::new(store.clone());
        let commits = Arc::clone(&probe.commits);
        let queued = Arc::clone(&directory);
        let is_first = AtomicBool::new(true);
        probe.before = Box::new(move || {
            let Some(directory) = queued.get() else { return };
            if is_first.swap(false, Ordering::Relaxed) {
                while directory.queue.lock().waits < WAITING {
                    std::thread::yield_now();
                }
            }
        });
        assert!(directory.set(open(probe)).is_ok());
        let opened = commits.load(Ordering::Relaxed);
        std::thread::scope(|scope| {
            for number in 0..=WAITING {
                let directory = directory.get().unwrap();
                scope.spawn(move || directory.submit(bind(&format!("n{number}"))).unwrap());
            }
        });
        assert_eq!(commits.load(Ordering::Relaxed) - opened, 2);
        assert_eq!(names(directory.get().unwrap()).len(), WAITING + 1);
        assert_eq!(names(&open(store)), names(directory.get().unwrap()));
        let queue = directory.get().unwrap().queue.lock();
        assert!(queue.results.is_empty());
        // Few threads wake before their batch has ended, and wait again.
        assert!(queue.waits < WAITING + WAITING / 2, "{}", queue.waits);
    }

    #[test]
    fn batch_waits_until_it_has_as_many_changes_as_the_last_batch() {
        let store = MemoryStore::new(records::KIND);
        let mut directory = open(Probe::new(store));
        directory.max_gather = Duration::from_secs(1_000);
        let mut queue = directory.queue.lock();
        queue.submitters = 1;
        queue.note_batch(1, Duration::from_secs(4_000));
        queue.submitters = 0;
        drop(queue);
        std::thread::scope(|scope| {
            let first = scope.spawn(|| directory.submit(bind("a")));
            while directory.queue.lock().head.is_some() {
                std::thread::yield_now();
            }
            assert!(!is_bound(&directory, "a"));
            directory.submit(bind("b")).unwrap();
            first.join().unwrap().unwrap();
        });
        assert!(is_bound(&directory, "a") && is_bound(&directory, "b"));
        assert_eq!(directory.queue.lock().expected, 2);
    }

    #[test]
    fn lone_change_does_not_wait_long_for_clients_that_have_gone() {
        let directory = open(Probe::new(MemoryStore::new(records::KIND)));
        {
            let mut queue = directory.queue.lock();
            queue.submitters = 1;
            queue.note_batch(1, Duration::from_secs(400));
            queue.submitters = 0;
        }
        let began = Monotonic::now();
        directory.submit(bind("a")).unwrap();
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    }

    #[test]
    fn failed_commit_changes_nothing_and_does_not_hide_refusals() {
        let probe = Probe::new(MemoryStore::new(records::KIND));
        let fails = Arc::clone(&probe.fails);
        let directory = open(probe);
        directory.submit(bind("a")).unwrap();
        fails.store(true, Ordering::Relaxed);
        for _ in 0..3 {
            let Err(DirectoryError::Store(error)) = directory.submit(bind("b")) else { panic!() };
            assert!(matches!(*error, StoreError::Full { .. }));
            assert!(is_bound(&directory, "a") && !is_bound(&directory, "b"));
            let Err(DirectoryError::Refused(refusal)) = directory.submit(bind("a")) else { panic!() };
            assert_eq!(refusal, NamingRefusal::AlreadyBound);
        }
        fails.store(false, Ordering::Relaxed);
        directory.submit(bind("b")).unwrap();
        assert!(is_bound(&directory, "b"));
    }

    #[test]
    fn failed_sync_is_repeated_without_a_further_change() {
        let probe = Probe::new(MemoryStore::new(records::KIND));
        let (fails, syncs) = (Arc::clone(&probe.fails), Arc::clone(&probe.syncs));
        let directory = Directory::open(Box::new(probe), Durability::Relaxed).unwrap();
        let store = directory.store.as_ref().unwrap();
        let unsynced = store.unsynced.lock();
        std::thread::scope(|scope| {
            let bound = scope.spawn(|| directory.submit(bind("a")));
            while !is_bound_in(&*store.store, "a") {
                std::thread::yield_now();
            }
            fails.store(true, Ordering::Relaxed);
            drop(unsynced);
            bound.join().unwrap().unwrap();
        });
        let deadline = Monotonic::now() + Duration::from_secs(20);
        while syncs.load(Ordering::Relaxed) < 2 && !deadline.is_past() {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(syncs.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn servers_that_share_a_store_see_each_others_changes_when_they_change() {
        let store = MemoryStore::new(records::KIND);
        let [first, second] = [open(store.clone()), open(store.clone())];
        assert_eq!(first.stamp(), second.stamp());
        first.submit(bind("a")).unwrap();
        assert!(!is_bound(&second, "a"));
        second.submit(bind("b")).unwrap();
        assert!(is_bound(&second, "a"));
        let Err(DirectoryError::Refused(refusal)) = first.submit(bind("b")) else { panic!() };
        assert_eq!(refusal, NamingRefusal::AlreadyBound);
        std::thread::scope(|scope| {
            for (server, directory) in [&first, &second].into_iter().enumerate() {
                // After too many conflicts an operation fails without a change, so it is repeated.
                let submit = |operation: &dyn Fn() -> NamingOperation| loop {
                    match directory.submit(operation()) {
                        Err(DirectoryError::Store(error)) if matches!(*error, StoreError::Conflict) => {
                            std::thread::yield_now();
                        }
                        outcome => break outcome.unwrap(),
                    }
                };
                scope.spawn(move || {
                    for number in 0..100 {
                        submit(&|| bind(&format!("{server}/{number}")));
                        let created = submit(&|| NamingOperation::NewContext { context: ContextId::ROOT });
                        assert!(matches!(created, OperationOutcome::Created(_)));
                    }
                });
            }
        });
        let third = open(store);
        assert_eq!(names(&third).len(), 202);
        assert_eq!(third.state().context_count(), 201, "all contexts must have different ids");
    }

    #[test]
    fn directory_in_memory_keeps_its_changes() {
        let directory = Directory::in_memory();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let directory = &directory;
                scope.spawn(move || {
                    for number in 0..200 {
                        let id = format!("{thread}/{number}");
                        directory.submit(bind(&id)).unwrap();
                        assert!(is_bound(directory, &id));
                    }
                });
            }
        });
        assert_eq!(names(&directory).len(), 800);
        assert!(directory.backup(Path::new("/nowhere")).is_none());
    }

    #[test]
    fn records_that_do_not_fit_together_are_damage() {
        for (key, value) in [(&b"\x03\0\0\0\0\0\0\0\x07\0\0\0\x01a"[..], &b"\x01\0\0\0\0\0\0\0\0"[..]), (b"x", b"")] {
            let store = MemoryStore::new(records::KIND);
            store.commit(Revision(0), &[RecordChange::Put(key, value)], Durability::Synced).unwrap();
            let refused = Directory::open(Box::new(store), Durability::Synced).err().unwrap();
            assert!(refused.to_string().contains("put a backup in its place"), "{refused}");
        }
    }
}
