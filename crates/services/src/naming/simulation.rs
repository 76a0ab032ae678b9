//! A simulation that compares contexts and iterators with plain maps, in virtual time.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::cos_naming::NameComponent;
use super::cos_naming::naming_context::NotFoundReason;
use super::iterators::{ClientId, IteratorId, IteratorLimits, IteratorPosition, Iterators};
use super::state::{
    BatchLimits, BindingTarget, Change, ContextId, NamingOperation, NamingRefusal, OperationOutcome, ResolvedName,
    State,
};

const SEEDS: u64 = 60;
const STEPS: usize = 2_000;
const LIMITS: IteratorLimits =
    IteratorLimits { max_iterators: 12, max_per_client: 4, idle_timeout: Duration::from_secs(100) };

pub(crate) struct SplitMix(pub(crate) u64);

impl SplitMix {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// Runs `work` with the seed in `CORELANE_SEED`, or, if it is not set, with each seed below
/// `CORELANE_SEEDS` (default: `usual`).
pub(crate) fn under_seeds(usual: u64, work: impl Fn(u64)) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("CORELANE_SEED") {
        return work(seed);
    }
    for seed in 0..number("CORELANE_SEEDS").unwrap_or(usual) {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(seed)));
        if let Err(panic) = outcome {
            eprintln!("seed {seed}; alone: CORELANE_SEED={seed} cargo test -p corelane-services simulation");
            std::panic::resume_unwind(panic);
        }
    }
}

type Key = (String, String);

#[derive(Default)]
struct NamingModel {
    contexts: HashMap<u64, BTreeMap<Key, BindingTarget>>,
    created: u64,
}

fn key(component: &NameComponent) -> Key {
    (component.id.clone(), component.kind.clone())
}

enum ModelStep<'m> {
    Here(u64, Option<&'m BindingTarget>),
    Foreign(&'m Arc<[u8]>, usize),
}

impl NamingModel {
    /// Finds the last component of a name by the OMG's rule: an operation on `<c1 .. cn>` is the
    /// operation on `<c2 .. cn>` in the context `<c1>`.
    fn find(&self, context: u64, name: &[NameComponent], at: usize) -> Result<ModelStep<'_>, NamingRefusal> {
        let bindings = match self.contexts.get(&context) {
            Some(bindings) => bindings,
            None if at == 0 => return Err(NamingRefusal::NoContext),
            None => return Err(NamingRefusal::CannotProceed { context: ContextId(context), at }),
        };
        let component = name.get(at).ok_or(NamingRefusal::InvalidName)?;
        let target = bindings.get(&key(component));
        if at + 1 == name.len() {
            return Ok(ModelStep::Here(context, target));
        }
        match target {
            None => Err(NamingRefusal::NotFound { why: NotFoundReason::MissingNode, at }),
            Some(BindingTarget::Object(_)) => Err(NamingRefusal::NotFound { why: NotFoundReason::NotContext, at }),
            Some(BindingTarget::ForeignContext(reference)) => Ok(ModelStep::Foreign(reference, at + 1)),
            Some(BindingTarget::Context(next)) => self.find(next.0, name, at + 1),
        }
    }

    fn resolve(&self, context: u64, name: &[NameComponent]) -> Result<ResolvedName<'_>, NamingRefusal> {
        match self.find(context, name, 0)? {
            ModelStep::Foreign(context, at) => Ok(ResolvedName::Foreign { context, at }),
            ModelStep::Here(_, Some(target)) => Ok(ResolvedName::Bound(target.into())),
            ModelStep::Here(_, None) => {
                Err(NamingRefusal::NotFound { why: NotFoundReason::MissingNode, at: name.len() - 1 })
            }
        }
    }

    fn bind(
        &mut self,
        context: u64,
        name: &[NameComponent],
        target: BindingTarget,
        rebind: bool,
    ) -> Result<OperationOutcome, NamingRefusal> {
        let context = match self.find(context, name, 0)? {
            ModelStep::Foreign(context, at) => {
                return Ok(OperationOutcome::Foreign { context: Arc::clone(context), at });
            }
            ModelStep::Here(_, Some(_)) if !rebind => return Err(NamingRefusal::AlreadyBound),
            ModelStep::Here(_, Some(old)) if old.is_context() && !target.is_context() => {
                return Err(NamingRefusal::NotFound { why: NotFoundReason::NotObject, at: name.len() - 1 });
            }
            ModelStep::Here(_, Some(old)) if !old.is_context() && target.is_context() => {
                return Err(NamingRefusal::NotFound { why: NotFoundReason::NotContext, at: name.len() - 1 });
            }
            ModelStep::Here(context, _) => context,
        };
        self.contexts.get_mut(&context).unwrap().insert(key(&name[name.len() - 1]), target);
        Ok(OperationOutcome::Changed)
    }

    fn create(&mut self) -> ContextId {
        self.created += 1;
        self.contexts.insert(self.created, BTreeMap::new());
        ContextId(self.created)
    }

    fn apply(&mut self, operation: &NamingOperation) -> Result<OperationOutcome, NamingRefusal> {
        match operation {
            NamingOperation::Bind { context, name, target } => self.bind(context.0, name, target.clone(), false),
            NamingOperation::Rebind { context, name, target } => self.bind(context.0, name, target.clone(), true),
            NamingOperation::NewContext { context } if self.contexts.contains_key(&context.0) => {
                Ok(OperationOutcome::Created(self.create()))
            }
            NamingOperation::NewContext { .. } => Err(NamingRefusal::NoContext),
            NamingOperation::BindNewContext { context, name } => {
                let created = ContextId(self.created + 1);
                match self.bind(context.0, name, BindingTarget::Context(created), false)? {
                    OperationOutcome::Changed => Ok(OperationOutcome::Created(self.create())),
                    other => Ok(other),
                }
            }
            NamingOperation::Unbind { context, name } => match self.find(context.0, name, 0)? {
                ModelStep::Foreign(context, at) => Ok(OperationOutcome::Foreign { context: Arc::clone(context), at }),
                ModelStep::Here(_, None) => {
                    Err(NamingRefusal::NotFound { why: NotFoundReason::MissingNode, at: name.len() - 1 })
                }
                ModelStep::Here(context, Some(_)) => {
                    self.contexts.get_mut(&context).unwrap().remove(&key(&name[name.len() - 1]));
                    Ok(OperationOutcome::Changed)
                }
            },
            NamingOperation::Destroy { context } => match self.contexts.get(&context.0) {
                None => Err(NamingRefusal::NoContext),
                Some(bindings) if !bindings.is_empty() => Err(NamingRefusal::NotEmpty),
                Some(_) if context.0 == 0 => Err(NamingRefusal::RootContext),
                Some(_) => {
                    self.contexts.remove(&context.0);
                    Ok(OperationOutcome::Changed)
                }
            },
        }
    }
}

/// An iterator of a simulated client. It must return each of the bindings `lasting`, which have
/// existed since it was opened.
struct Listing {
    context: u64,
    client: ClientId,
    used_at: Duration,
    used: usize,
    lasting: BTreeSet<Key>,
    returned: BTreeSet<Key>,
}

struct NamingSimulation {
    random: SplitMix,
    now: Duration,
    state: State,
    model: NamingModel,
    records: Vec<Change>,
    iterators: Iterators,
    listings: BTreeMap<IteratorId, Listing>,
    ended: Vec<IteratorId>,
    step: usize,
    seen: BTreeMap<&'static str, usize>,
}

impl NamingSimulation {
    fn new(seed: u64) -> Self {
        let mut model = NamingModel::default();
        model.contexts.insert(0, BTreeMap::new());
        NamingSimulation {
            random: SplitMix(seed),
            now: Duration::ZERO,
            state: State::new(seed),
            model,
            records: vec![Change::AddContext(ContextId::ROOT)],
            iterators: Iterators::new(LIMITS, seed),
            listings: BTreeMap::new(),
            ended: Vec::new(),
            step: 0,
            seen: BTreeMap::new(),
        }
    }

    fn note(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    fn context(&mut self) -> ContextId {
        ContextId(self.random.below(self.model.created as usize + 1) as u64)
    }

    fn name(&mut self) -> Vec<NameComponent> {
        let length = [0, 1, 1, 1, 1, 1, 2, 2, 2, 3, 3, 5][self.random.below(12)];
        let fields = ["", "a", "b", "c", "/", ".", "\\", "ä", "d", "e", "f", "g"];
        let mut field = |count| fields[self.random.below(count)].to_owned();
        (0..length).map(|_| NameComponent { id: field(12), kind: field(3) }).collect()
    }

    fn reference(&mut self) -> Arc<[u8]> {
        Arc::from(self.random.next().to_ne_bytes().as_slice())
    }

    fn target(&mut self) -> BindingTarget {
        match self.random.below(5) {
            0 => BindingTarget::ForeignContext(self.reference()),
            1 | 2 => BindingTarget::Context(self.context()),
            _ => BindingTarget::Object(self.reference()),
        }
    }

    fn operation(&mut self) -> NamingOperation {
        let (context, name) = (self.context(), self.name());
        match self.random.below(14) {
            0..5 => NamingOperation::Bind { context, name, target: self.target() },
            5..8 => NamingOperation::Rebind { context, name, target: self.target() },
            8..10 => NamingOperation::Unbind { context, name },
            10 => NamingOperation::NewContext { context },
            11 | 12 => NamingOperation::BindNewContext { context, name },
            _ => NamingOperation::Destroy { context },
        }
    }

    fn change(&mut self) {
        let operation = self.operation();
        let mut changes = Vec::new();
        let before = self.state.clone();
        let outcome = self.state.apply(&operation, &mut changes);
        assert_eq!(outcome, self.model.apply(&operation), "{operation:?}");
        match &outcome {
            Ok(OperationOutcome::Changed | OperationOutcome::Created(_)) => self.note("changed"),
            Ok(OperationOutcome::Foreign { .. }) => self.note("foreign"),
            Err(NamingRefusal::NotFound { .. }) => self.note("not found"),
            Err(NamingRefusal::CannotProceed { .. }) => self.note("cannot proceed"),
            Err(_) => self.note("refused otherwise"),
        }
        if !matches!(outcome, Ok(OperationOutcome::Changed | OperationOutcome::Created(_))) {
            assert_eq!(changes, []);
        }
        drop(before);
        for change in &changes {
            self.note_in_listings(change);
        }
        self.records.append(&mut changes);
    }

    fn note_in_listings(&mut self, change: &Change) {
        if let Change::RemoveBinding { context, name } = change {
            for listing in self.listings.values_mut().filter(|listing| listing.context == context.0) {
                listing.lasting.remove(&key(name));
                listing.returned.remove(&key(name));
            }
        }
    }

    fn resolve(&mut self) {
        let (context, name) = (self.context(), self.name());
        assert_eq!(self.state.resolve(context, &name), self.model.resolve(context.0, &name), "{name:?}");
    }

    fn evict(&mut self, client: Option<ClientId>) {
        let listings = self.listings.iter().filter(|(_, listing)| client.is_none_or(|client| client == listing.client));
        let oldest = listings.min_by_key(|(_, listing)| listing.used).map(|(id, _)| *id).unwrap();
        self.listings.remove(&oldest);
        self.ended.push(oldest);
        self.note(if client.is_some() { "evicted of client" } else { "evicted of all" });
    }

    fn expire(&mut self) {
        let idle = |listing: &Listing| self.now - listing.used_at >= LIMITS.idle_timeout;
        let gone: Vec<IteratorId> =
            self.listings.iter().filter(|(_, listing)| idle(listing)).map(|(id, _)| *id).collect();
        for id in gone {
            self.listings.remove(&id);
            self.ended.push(id);
            self.note("expired");
        }
    }

    fn open(&mut self) {
        let context = self.context();
        let Some(bindings) = self.model.contexts.get(&context.0) else { return };
        let lasting = bindings.keys().cloned().collect();
        let client = ClientId(self.random.below(5) as u64);
        if self.listings.values().filter(|listing| listing.client == client).count() == LIMITS.max_per_client {
            self.evict(Some(client));
        }
        if self.listings.len() == LIMITS.max_iterators {
            self.evict(None);
        }
        let id = self.iterators.open(client, IteratorPosition { context, cursor: None }, 0, self.now).unwrap();
        let (used_at, used, returned) = (self.now, self.step, BTreeSet::new());
        self.listings.insert(id, Listing { context: context.0, client, used_at, used, lasting, returned });
    }

    fn list(&mut self) {
        self.expire();
        if self.random.below(3) == 0 {
            return self.open();
        }
        if let Some(id) = self.ended.pop() {
            assert_eq!(self.iterators.position_mut(id, self.now), None);
        }
        let index = self.random.below(self.listings.len());
        let Some(id) = self.listings.keys().nth(index).copied() else { return };
        let place = self.iterators.position_mut(id, self.now).unwrap();
        let limits = BatchLimits { max_bindings: self.random.below(4), max_size: 1 + self.random.below(6) };
        let outcome = self.state.list(place.context, place.cursor.as_ref(), limits);
        let listing = self.listings.get_mut(&id).unwrap();
        (listing.used_at, listing.used) = (self.now, self.step);
        let Some(bindings) = self.model.contexts.get(&listing.context) else {
            assert_eq!(outcome.unwrap_err(), NamingRefusal::NoContext);
            self.iterators.close(id);
            self.listings.remove(&id);
            return;
        };
        let batch = outcome.unwrap();
        assert!(batch.bindings.len() <= limits.max_bindings);
        place.cursor = batch.cursor;
        for (name, is_context) in batch.bindings {
            assert_eq!(bindings[&key(&name)].is_context(), is_context);
            assert!(listing.returned.insert(key(&name)), "{name:?} must be returned only once");
        }
        if !batch.has_more {
            assert!(listing.lasting.is_subset(&listing.returned));
            self.iterators.close(id);
            self.listings.remove(&id);
            self.note("listed");
        }
    }

    fn restart(&mut self) {
        let mut state = State::empty(self.random.next());
        for change in self.records.iter().cloned() {
            state.replay(change).unwrap();
        }
        self.state = state;
        self.iterators = Iterators::new(LIMITS, self.random.next());
        self.listings.clear();
        self.ended.clear();
        self.note("restart");
    }

    fn check(&self) {
        assert_eq!(self.state.context_count(), self.model.contexts.len());
        for (context, bindings) in &self.model.contexts {
            let limits = BatchLimits { max_bindings: usize::MAX, max_size: usize::MAX };
            let batch = self.state.list(ContextId(*context), None, limits).unwrap();
            assert!(!batch.has_more);
            let listed: BTreeMap<Key, bool> =
                batch.bindings.iter().map(|(name, is_context)| (key(name), *is_context)).collect();
            assert_eq!(batch.bindings.len(), listed.len());
            assert_eq!(listed, bindings.iter().map(|(key, target)| (key.clone(), target.is_context())).collect());
        }
        assert!(self.iterators.len() <= LIMITS.max_iterators);
    }

    fn run(&mut self) {
        for step in 0..STEPS {
            self.step = step;
            match self.random.below(1_000) {
                0 => self.restart(),
                1..300 => self.change(),
                300..600 => self.resolve(),
                600..900 => self.list(),
                _ => self.now += Duration::from_millis(self.random.next() % 10_000),
            }
        }
        self.check();
    }
}

#[test]
fn simulation_of_contexts_agrees_with_plain_maps() {
    let seen = std::cell::RefCell::new(BTreeMap::<&str, usize>::new());
    under_seeds(SEEDS, |seed| {
        let mut world = NamingSimulation::new(seed);
        world.run();
        for (what, count) in world.seen {
            *seen.borrow_mut().entry(what).or_default() += count;
        }
    });
    let seen = seen.into_inner();
    assert!(std::env::var_os("CORELANE_SEED").is_some() || seen.len() == 10, "{seen:?}");
}
