//! Contexts and their bindings, in a persistent structure: a clone is cheap and does not see later
//! changes.
//!
//! Invariant: every binding belongs to an existing context, and no context id is used twice. A
//! binding may lead to a destroyed context.

use std::cmp::Ordering;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::bindings::{NameBinding, NameLeaf};
use super::cos_naming::NameComponent;
use super::cos_naming::naming_context::NotFoundReason;
use super::hash::{hash_name, hash_number};
use super::trie::{Cursor, Trie, TrieItem};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct ContextId(pub(super) u64);

impl ContextId {
    pub(super) const ROOT: ContextId = ContextId(0);
}

/// A component of a name, either a [`NameComponent`] or borrowed texts.
pub(super) trait ComponentText {
    fn id_and_kind(&self) -> (&[u8], &[u8]);
}

impl ComponentText for NameComponent {
    fn id_and_kind(&self) -> (&[u8], &[u8]) {
        (self.id.as_bytes(), self.kind.as_bytes())
    }
}

impl ComponentText for (&[u8], &[u8]) {
    fn id_and_kind(&self) -> (&[u8], &[u8]) {
        *self
    }
}

/// The CDR form of a reference, in native byte order. Alignment is counted from its first octet.
pub(super) type EncodedReference = Arc<[u8]>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BindingTarget {
    Object(EncodedReference),
    Context(ContextId),
    ForeignContext(EncodedReference),
}

impl BindingTarget {
    pub(super) fn is_context(&self) -> bool {
        !matches!(self, BindingTarget::Object(_))
    }
}

impl<'b> From<&'b BindingTarget> for BoundTarget<'b> {
    fn from(target: &'b BindingTarget) -> Self {
        match target {
            BindingTarget::Object(reference) => BoundTarget::Object(reference),
            BindingTarget::Context(context) => BoundTarget::Context(*context),
            BindingTarget::ForeignContext(reference) => BoundTarget::ForeignContext(reference),
        }
    }
}

/// The target of a stored binding. References are octets as in [`EncodedReference`], at any
/// address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BoundTarget<'s> {
    Object(&'s [u8]),
    Context(ContextId),
    ForeignContext(&'s [u8]),
}

impl BoundTarget<'_> {
    fn is_context(self) -> bool {
        !matches!(self, BoundTarget::Object(_))
    }
}

#[derive(Clone)]
pub(super) struct ContextBindings {
    id: ContextId,
    pub(super) bindings: Trie<NameLeaf>,
}

impl ContextBindings {
    fn bind(&mut self, hash: u64, name: &NameComponent, target: BoundTarget<'_>) {
        let mut block = Vec::new();
        NameBinding::write(&mut block, name.id_and_kind(), target);
        self.bindings.insert(hash, name.id_and_kind(), &block);
    }
}

impl TrieItem for ContextBindings {
    type Key = ContextId;

    fn compare(&self, key: ContextId) -> Ordering {
        self.id.cmp(&key)
    }
}

/// The reason why an operation fails. `at` is the index in the name at which the member
/// `rest_of_name` of the exception begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NamingRefusal {
    NotFound { why: NotFoundReason, at: usize },
    CannotProceed { context: ContextId, at: usize },
    InvalidName,
    AlreadyBound,
    NotEmpty,
    NoContext,
    RootContext,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResolvedName<'s> {
    Bound(BoundTarget<'s>),
    Foreign { context: &'s [u8], at: usize },
}

#[derive(Clone, Debug)]
pub(super) enum NamingOperation {
    Bind { context: ContextId, name: Vec<NameComponent>, target: BindingTarget },
    Rebind { context: ContextId, name: Vec<NameComponent>, target: BindingTarget },
    Unbind { context: ContextId, name: Vec<NameComponent> },
    NewContext { context: ContextId },
    BindNewContext { context: ContextId, name: Vec<NameComponent> },
    Destroy { context: ContextId },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OperationOutcome {
    Changed,
    Created(ContextId),
    /// A context of another server has to run the operation with the components from `at` on.
    Foreign {
        context: EncodedReference,
        at: usize,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    AddContext(ContextId),
    RemoveContext(ContextId),
    PutBinding { context: ContextId, name: NameComponent, target: BindingTarget },
    RemoveBinding { context: ContextId, name: NameComponent },
    NextContext(u64),
}

/// The position after the binding with this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ListCursor {
    hash: u64,
    name: NameComponent,
}

#[derive(Debug, Default)]
pub(super) struct Batch {
    /// The names, each with true if its target is a context.
    pub(super) bindings: Vec<(NameComponent, bool)>,
    /// Position after the last binding; `None` is the beginning of the list.
    pub(super) cursor: Option<ListCursor>,
    pub(super) has_more: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BatchLimits {
    pub(super) max_bindings: usize,
    /// Maximum sum of the sizes of the names, in bytes. One binding is included even if its name is
    /// larger.
    pub(super) max_size: usize,
}

#[derive(Clone)]
pub(super) struct State {
    /// The seed prevents a client from choosing names that collide.
    seed: u64,
    contexts: Trie<Arc<[(u64, ContextBindings)]>>,
    next_context: u64,
}

impl State {
    pub(super) fn empty(seed: u64) -> Self {
        State { seed, contexts: Trie::default(), next_context: ContextId::ROOT.0 + 1 }
    }

    pub(super) fn new(seed: u64) -> Self {
        let mut state = Self::empty(seed);
        state.add_context(ContextId::ROOT);
        state
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    pub(super) fn has_context(&self, context: ContextId) -> bool {
        self.context(context).is_some()
    }

    pub(super) fn context_count(&self) -> usize {
        self.contexts.len()
    }

    pub(super) fn resolve<C: ComponentText>(
        &self,
        context: ContextId,
        name: &[C],
    ) -> Result<ResolvedName<'_>, NamingRefusal> {
        let (context, at, last) = match self.walk(context, name)? {
            Walk::Here { context, at, last } => (context, at, last),
            Walk::Foreign { context, at } => return Ok(ResolvedName::Foreign { context, at }),
        };
        match self.binding(context, last) {
            Some(binding) => Ok(ResolvedName::Bound(binding.target())),
            None => Err(NamingRefusal::NotFound { why: NotFoundReason::MissingNode, at }),
        }
    }

    pub(super) fn list(
        &self,
        context: ContextId,
        cursor: Option<&ListCursor>,
        limits: BatchLimits,
    ) -> Result<Batch, NamingRefusal> {
        let context = self.context(context).ok_or(NamingRefusal::NoContext)?;
        let mut batch = Batch { cursor: cursor.cloned(), ..Batch::default() };
        let (mut size, mut last_hash) = (0_usize, 0);
        let after = cursor.map(|cursor| Cursor { hash: cursor.hash, key: cursor.name.id_and_kind() });
        let end = context.bindings.visit_after(after, |hash, block| {
            let binding = NameBinding(block);
            let exceeds_size = size > 0 && size.saturating_add(binding.name_size()) > limits.max_size;
            if batch.bindings.len() >= limits.max_bindings || exceeds_size {
                return ControlFlow::Break(());
            }
            size = size.saturating_add(binding.name_size()).max(1);
            last_hash = hash;
            batch.bindings.push((binding.name(), binding.target().is_context()));
            ControlFlow::Continue(())
        });
        if let Some((name, _)) = batch.bindings.last() {
            batch.cursor = Some(ListCursor { hash: last_hash, name: name.clone() });
        }
        batch.has_more = end.is_break();
        Ok(batch)
    }

    /// Applies an operation and adds its changes to `changes`. An operation that fails, or that
    /// another server has to run, changes nothing.
    pub(super) fn apply(
        &mut self,
        operation: &NamingOperation,
        changes: &mut Vec<Change>,
    ) -> Result<OperationOutcome, NamingRefusal> {
        match operation {
            NamingOperation::Bind { context, name, target } => {
                self.bind(*context, name, changes, |bound| match bound {
                    Some(_) => Err(NamingRefusal::AlreadyBound),
                    None => Ok(target.clone()),
                })
            }
            NamingOperation::Rebind { context, name, target } => {
                let at = name.len().saturating_sub(1);
                self.bind(*context, name, changes, |bound| match bound {
                    Some(bound) if bound.is_context() != target.is_context() => {
                        let is_context = bound.is_context();
                        let why = if is_context { NotFoundReason::NotObject } else { NotFoundReason::NotContext };
                        Err(NamingRefusal::NotFound { why, at })
                    }
                    _ => Ok(target.clone()),
                })
            }
            NamingOperation::Unbind { context, name } => self.unbind(*context, name, changes),
            NamingOperation::NewContext { context } => {
                self.context(*context).ok_or(NamingRefusal::NoContext)?;
                Ok(OperationOutcome::Created(self.create_context(changes)))
            }
            NamingOperation::BindNewContext { context, name } => {
                let created = ContextId(self.next_context);
                let mut own = Vec::new();
                let done = self.bind(*context, name, &mut own, |bound| match bound {
                    Some(_) => Err(NamingRefusal::AlreadyBound),
                    None => Ok(BindingTarget::Context(created)),
                })?;
                if matches!(done, OperationOutcome::Foreign { .. }) {
                    return Ok(done);
                }
                self.create_context(changes);
                changes.append(&mut own);
                Ok(OperationOutcome::Created(created))
            }
            NamingOperation::Destroy { context } => self.destroy(*context, changes),
        }
    }

    pub(super) fn replay(&mut self, change: Change) -> Result<(), ReplayError> {
        match change {
            Change::AddContext(context) => {
                self.add_context(context);
                self.next_context = self.next_context.max(context.0.saturating_add(1));
            }
            Change::RemoveContext(context) => {
                self.contexts.remove(hash_number(self.seed, context.0), context);
            }
            Change::PutBinding { context, name, target } => {
                let hash = self.hash(&name);
                let context = self.context_mut(context).ok_or(ReplayError)?;
                context.bind(hash, &name, BoundTarget::from(&target));
            }
            Change::RemoveBinding { context, name } => {
                let hash = self.hash(&name);
                self.context_mut(context).ok_or(ReplayError)?.bindings.remove(hash, name.id_and_kind());
            }
            Change::NextContext(next) => self.next_context = self.next_context.max(next),
        }
        Ok(())
    }

    /// Binds a name to the target that `choose` returns. `choose` gets the present target, or
    /// `None` if the name is not bound.
    fn bind(
        &mut self,
        context: ContextId,
        name: &[NameComponent],
        changes: &mut Vec<Change>,
        choose: impl FnOnce(Option<BoundTarget<'_>>) -> Result<BindingTarget, NamingRefusal>,
    ) -> Result<OperationOutcome, NamingRefusal> {
        let (context, last) = match self.walk(context, name)? {
            Walk::Here { context, last, .. } => (context, last),
            Walk::Foreign { context, at } => return Ok(OperationOutcome::Foreign { context: Arc::from(context), at }),
        };
        let hash = self.hash(last);
        let target = choose(self.binding(context, last).map(NameBinding::target))?;
        let id = context.id;
        if let Some(context) = self.context_mut(id) {
            context.bind(hash, last, BoundTarget::from(&target));
        }
        changes.push(Change::PutBinding { context: id, name: last.clone(), target });
        Ok(OperationOutcome::Changed)
    }

    fn unbind(
        &mut self,
        context: ContextId,
        name: &[NameComponent],
        changes: &mut Vec<Change>,
    ) -> Result<OperationOutcome, NamingRefusal> {
        let (id, at, last) = match self.walk(context, name)? {
            Walk::Here { context, at, last } => (context.id, at, last),
            Walk::Foreign { context, at } => return Ok(OperationOutcome::Foreign { context: Arc::from(context), at }),
        };
        let hash = self.hash(last);
        if !self.context_mut(id).is_some_and(|context| context.bindings.remove(hash, last.id_and_kind())) {
            return Err(NamingRefusal::NotFound { why: NotFoundReason::MissingNode, at });
        }
        changes.push(Change::RemoveBinding { context: id, name: last.clone() });
        Ok(OperationOutcome::Changed)
    }

    fn destroy(&mut self, id: ContextId, changes: &mut Vec<Change>) -> Result<OperationOutcome, NamingRefusal> {
        let context = self.context(id).ok_or(NamingRefusal::NoContext)?;
        if context.bindings.len() > 0 {
            return Err(NamingRefusal::NotEmpty);
        }
        if id == ContextId::ROOT {
            return Err(NamingRefusal::RootContext);
        }
        self.contexts.remove(hash_number(self.seed, id.0), id);
        changes.push(Change::RemoveContext(id));
        Ok(OperationOutcome::Changed)
    }

    fn create_context(&mut self, changes: &mut Vec<Change>) -> ContextId {
        let id = ContextId(self.next_context);
        self.next_context = self.next_context.saturating_add(1);
        self.add_context(id);
        changes.push(Change::NextContext(self.next_context));
        changes.push(Change::AddContext(id));
        id
    }

    fn add_context(&mut self, id: ContextId) {
        let hash = hash_number(self.seed, id.0);
        if self.contexts.get(hash, id).is_none() {
            self.contexts.insert(hash, id, &ContextBindings { id, bindings: Trie::default() });
        }
    }

    fn walk<'s, 'n, C: ComponentText>(
        &'s self,
        context: ContextId,
        name: &'n [C],
    ) -> Result<Walk<'s, 'n, C>, NamingRefusal> {
        let mut context = self.context(context).ok_or(NamingRefusal::NoContext)?;
        let (last, path) = name.split_last().ok_or(NamingRefusal::InvalidName)?;
        for (at, component) in path.iter().enumerate() {
            match self.binding(context, component).map(NameBinding::target) {
                None => return Err(NamingRefusal::NotFound { why: NotFoundReason::MissingNode, at }),
                Some(BoundTarget::Object(_)) => {
                    return Err(NamingRefusal::NotFound { why: NotFoundReason::NotContext, at });
                }
                Some(BoundTarget::ForeignContext(context)) => return Ok(Walk::Foreign { context, at: at + 1 }),
                Some(BoundTarget::Context(id)) => {
                    let gone = NamingRefusal::CannotProceed { context: id, at: at + 1 };
                    context = self.context(id).ok_or(gone)?;
                }
            }
        }
        Ok(Walk::Here { context, at: path.len(), last })
    }

    fn context(&self, id: ContextId) -> Option<&ContextBindings> {
        self.contexts.get(hash_number(self.seed, id.0), id)
    }

    pub(super) fn context_mut(&mut self, id: ContextId) -> Option<&mut ContextBindings> {
        let hash = hash_number(self.seed, id.0);
        self.contexts.get_mut(hash, id)
    }

    fn binding<'s>(&self, context: &'s ContextBindings, name: &impl ComponentText) -> Option<NameBinding<'s>> {
        context.bindings.get(self.hash(name), name.id_and_kind()).map(NameBinding)
    }

    pub(super) fn hash(&self, name: &impl ComponentText) -> u64 {
        let (id, kind) = name.id_and_kind();
        hash_name(self.seed, id, kind)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReplayError;

enum Walk<'s, 'n, C> {
    Here { context: &'s ContextBindings, at: usize, last: &'n C },
    Foreign { context: &'s [u8], at: usize },
}
