//! The servants of contexts and iterators: one servant for all contexts, and one for all iterators.
//!
//! The skeleton of contexts is written by hand: it copies the octets of a reference into a reply
//! without parsing them.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use corelane::mapping::{At, read_reference, write_reference};
use corelane::poa::{ObjectId, Poa};
use corelane::rt::served_by;
use corelane::{
    Cdr, Completion, Decoder, Ior, ObjectRef, ServerCall, Skeleton, SystemException, SystemExceptionKind as Kind,
    current, with_current_object_id,
};
use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{LockScope, Mutex};
use corelane_wire::{CharSet, Endian};

use super::changes::LogLimits;
use super::corelane_naming::{Change as ReportedChange, ChangeKind, Position, WatchedContextRef};
use super::cos_naming::naming_context::{
    AlreadyBound, BindError, BindNewContextError, CannotProceed, InvalidName, NotEmpty, NotFound, RebindError,
};
use super::cos_naming::naming_context_ext::InvalidAddress;
use super::cos_naming::{
    Binding, BindingIterator, BindingIteratorRef, BindingType, NameComponent, NamingContextExtRef, NamingContextRef,
};
use super::directory::{self, Directory};
use super::iterators::{ClientId, IteratorId, IteratorLimits, IteratorPosition, Iterators};
use super::name;
use super::records;
use super::state::{
    Batch, BatchLimits, BindingTarget, BoundTarget, Change, ContextId, EncodedReference, NamingOperation,
    NamingRefusal, OperationOutcome, ResolvedName,
};

/// Limits on one reply of `list` or `next_n`, even if the client asks for more.
const BATCH_LIMITS: BatchLimits = BatchLimits { max_bindings: 10_000, max_size: 1 << 20 };

const CHANGE_LIMITS: LogLimits = LogLimits { max_changes: 1_000, max_size: 1 << 20 };

const ROOT_ID: &[u8] = b"root";

#[derive(Clone, Copy, Debug)]
pub(super) struct ServiceSettings {
    pub(super) iterator_limits: IteratorLimits,
    pub(super) forward_timeout: Duration,
    pub(super) max_forwarding_threads: usize,
    pub(super) max_waiting_changes: usize,
    pub(super) max_watching_clients: usize,
    pub(super) max_patience: Duration,
    pub(super) is_read_only: bool,
}

pub(super) struct ServiceState {
    pub(super) directory: Directory,
    pub(super) settings: ServiceSettings,
    iterators: Mutex<Iterators>,
    started_at: Monotonic,
    forwards: Mutex<usize>,
    waiting_changes: Mutex<usize>,
    pub(super) watchers: Mutex<usize>,
}

enum Raised {
    NotFound(NotFound),
    CannotProceed(CannotProceed),
    InvalidName,
    AlreadyBound,
    NotEmpty,
    InvalidAddress,
    System(SystemException),
}

impl From<SystemException> for Raised {
    fn from(exception: SystemException) -> Self {
        Raised::System(exception)
    }
}

impl From<RebindError> for Raised {
    fn from(error: RebindError) -> Self {
        match error {
            RebindError::NotFound(exception) => Raised::NotFound(exception),
            RebindError::CannotProceed(exception) => Raised::CannotProceed(exception),
            RebindError::InvalidName(_) => Raised::InvalidName,
            RebindError::System(exception) => Raised::System(exception),
        }
    }
}

impl From<BindError> for Raised {
    fn from(error: BindError) -> Self {
        match error {
            BindError::NotFound(exception) => Raised::NotFound(exception),
            BindError::CannotProceed(exception) => Raised::CannotProceed(exception),
            BindError::InvalidName(_) => Raised::InvalidName,
            BindError::AlreadyBound(_) => Raised::AlreadyBound,
            BindError::System(exception) => Raised::System(exception),
        }
    }
}

impl From<BindNewContextError> for Raised {
    fn from(error: BindNewContextError) -> Self {
        match error {
            BindNewContextError::NotFound(exception) => Raised::NotFound(exception),
            BindNewContextError::CannotProceed(exception) => Raised::CannotProceed(exception),
            BindNewContextError::InvalidName(_) => Raised::InvalidName,
            BindNewContextError::AlreadyBound(_) => Raised::AlreadyBound,
            BindNewContextError::System(exception) => Raised::System(exception),
        }
    }
}

impl From<name::InvalidName> for Raised {
    fn from(_: name::InvalidName) -> Self {
        Raised::InvalidName
    }
}

impl Raised {
    #[cold]
    fn answer(self, call: &mut ServerCall<'_>) -> Result<(), SystemException> {
        match self {
            Raised::NotFound(exception) => call.raise(&exception),
            Raised::CannotProceed(exception) => call.raise(&exception),
            Raised::InvalidName => call.raise(&InvalidName),
            Raised::AlreadyBound => call.raise(&AlreadyBound),
            Raised::NotEmpty => call.raise(&NotEmpty),
            Raised::InvalidAddress => call.raise(&InvalidAddress),
            Raised::System(exception) => Err(exception),
        }
    }
}

fn system(kind: Kind, completed: Completion, why: &str) -> SystemException {
    SystemException::new(kind, 0, completed).with_message(why)
}

fn no_such_object() -> SystemException {
    system(Kind::ObjectNotExist, Completion::No, "the context or iterator has been destroyed")
}

impl ServiceState {
    pub(super) fn new(directory: Directory, settings: ServiceSettings) -> Self {
        let iterators = Iterators::new(settings.iterator_limits, directory::random_number());
        ServiceState {
            directory,
            settings,
            iterators: Mutex::new("naming iterators", LockScope::Orb, iterators),
            started_at: Monotonic::now(),
            forwards: Mutex::new("naming forwards", LockScope::Orb, 0),
            waiting_changes: Mutex::new("naming changes that wait", LockScope::Orb, 0),
            watchers: Mutex::new("naming watchers", LockScope::Orb, 0),
        }
    }

    fn now(&self) -> Duration {
        self.started_at.elapsed()
    }

    pub(super) fn object_id(&self, context: ContextId) -> ObjectId {
        if context == ContextId::ROOT {
            return ObjectId::from(ROOT_ID);
        }
        let mut id = [0; 16];
        let (stamp, number) = id.split_at_mut(8);
        stamp.copy_from_slice(&self.directory.stamp().to_be_bytes());
        number.copy_from_slice(&context.0.to_be_bytes());
        ObjectId::from(&id[..])
    }

    /// Returns the context of an object id; `None` if the id is malformed or of another store. The
    /// context may be destroyed.
    fn context(&self, octets: &[u8]) -> Option<ContextId> {
        if octets == ROOT_ID {
            return Some(ContextId::ROOT);
        }
        let (stamp, number) = octets.split_first_chunk()?;
        let number = u64::from_be_bytes(number.try_into().ok()?);
        (u64::from_be_bytes(*stamp) == self.directory.stamp() && number > ContextId::ROOT.0)
            .then_some(ContextId(number))
    }
}

struct WaitingThread<'c>(&'c Mutex<usize>);

impl<'c> WaitingThread<'c> {
    fn begin(count: &'c Mutex<usize>, max: usize) -> Option<Self> {
        let mut waiting = count.lock();
        if *waiting >= max {
            return None;
        }
        *waiting += 1;
        Some(WaitingThread(count))
    }
}

impl Drop for WaitingThread<'_> {
    fn drop(&mut self) {
        let mut waiting = self.0.lock();
        *waiting = waiting.saturating_sub(1);
    }
}

pub(super) struct NamingContexts {
    pub(super) service: Arc<ServiceState>,
    pub(super) iterator_poa: Poa,
}

struct ContextRequest<'s, 'c, 'm> {
    service: &'s ServiceState,
    iterator_poa: &'s Poa,
    poa: Poa,
    context: ContextId,
    orb: Option<&'m (dyn Any + Sync)>,
    call: &'c mut ServerCall<'m>,
}

impl Skeleton for NamingContexts {
    fn repository_ids(&self) -> &'static [&'static str] {
        &[NamingContextExtRef::REPOSITORY_ID, NamingContextRef::REPOSITORY_ID, WatchedContextRef::REPOSITORY_ID]
    }

    fn dispatch(&self, operation: &[u8], call: &mut ServerCall<'_>) -> Result<(), SystemException> {
        if operation == b"resolve" && self.resolve_bound(call) {
            return Ok(());
        }
        let current = current().ok_or_else(no_such_object)?;
        let service = &*self.service;
        let context = service.context(current.object_id.as_octets());
        // These operations read no bindings, so the existence of the context is checked here.
        let reads_none = [&b"to_string"[..], b"to_name", b"to_url", b"own_reference", b"last_change", b"changes_after"];
        if operation.starts_with(b"_") || reads_none.contains(&operation) {
            let is_there = context.is_some_and(|context| service.directory.state().has_context(context));
            match operation {
                _ if is_there => {}
                b"_non_existent" | b"_not_existent" => {
                    call.reply().write_bool(true);
                    return Ok(());
                }
                _ => return Err(no_such_object()),
            }
        }
        let context = context.ok_or_else(no_such_object)?;
        let (poa, orb) = (current.poa, call.arguments().decoding_context());
        let mut request = ContextRequest { service, iterator_poa: &self.iterator_poa, poa, context, orb, call };
        match request.run(operation) {
            Ok(()) => Ok(()),
            Err(raised) => raised.answer(call),
        }
    }
}

/// Maximum number of components of a name that [`NamingContexts::resolve_bound`] answers.
const MAX_BORROWED: usize = 8;

impl NamingContexts {
    /// Answers `resolve` of a name of at most [`MAX_BORROWED`] components that is bound to a
    /// reference. Returns false, and reads and writes nothing, for any other request, including a
    /// request with an error.
    ///
    /// This path allocates nothing and changes no reference count.
    fn resolve_bound(&self, call: &mut ServerCall<'_>) -> bool {
        let mut components = [(&[][..], &[][..]); MAX_BORROWED];
        let Some(name) = borrow_name(call.arguments().clone(), &mut components) else { return false };
        let Some(context) = with_current_object_id(|id| self.service.context(id)).flatten() else { return false };
        let state = self.service.directory.state();
        match state.resolve(context, name) {
            Ok(ResolvedName::Bound(BoundTarget::Object(reference) | BoundTarget::ForeignContext(reference))) => {
                write_encoded(call, reference);
                true
            }
            _ => false,
        }
    }
}

/// Reads a name into `components` without a copy of its texts. Returns `None` if the name is longer
/// than `components`, cannot be read, or has to be converted to UTF-8.
fn borrow_name<'c, 'm>(
    mut decoder: Decoder<'m>,
    components: &'c mut [(&'m [u8], &'m [u8])],
) -> Option<&'c [(&'m [u8], &'m [u8])]> {
    let is_utf8 = decoder.code_sets().char == CharSet::Utf8;
    let text = |decoder: &mut Decoder<'m>| {
        // A name that is not UTF-8 is bound nowhere, so the general path refuses it.
        decoder.read_str_octets().ok().filter(|octets| is_utf8 || octets.is_ascii())
    };
    let length = decoder.read_u32().ok()?;
    let name = components.get_mut(..usize::try_from(length).ok()?)?;
    for (id, kind) in &mut *name {
        (*id, *kind) = (text(&mut decoder)?, text(&mut decoder)?);
    }
    Some(name)
}

fn write_encoded(call: &mut ServerCall<'_>, reference: &[u8]) {
    let encoder = call.reply();
    encoder.align(4);
    encoder.write_bytes(reference);
}

impl ContextRequest<'_, '_, '_> {
    fn run(&mut self, operation: &[u8]) -> Result<(), Raised> {
        match operation {
            b"resolve" => {
                let name = self.read_name()?;
                self.resolve(&name)
            }
            b"resolve_str" => {
                let name = name::to_name(&self.read_string("sn")?)?;
                self.resolve(&name)
            }
            b"bind" => self.bind_object(false),
            b"rebind" => self.bind_object(true),
            b"bind_context" => self.bind_context(false),
            b"rebind_context" => self.bind_context(true),
            b"unbind" => {
                let name = self.read_name()?;
                self.unbind(name)
            }
            b"new_context" => self.new_context(),
            b"bind_new_context" => {
                let name = self.read_name()?;
                self.bind_new_context(name)
            }
            b"destroy" => {
                let context = self.context;
                self.submit(NamingOperation::Destroy { context }, &[]).map(drop)
            }
            b"list" => self.list(),
            b"to_string" => {
                let text = name::to_string(&self.read_name()?)?;
                self.write("result", &text)
            }
            b"to_name" => {
                let name = name::to_name(&self.read_string("sn")?)?;
                self.write("result", &name)
            }
            b"to_url" => {
                let (address, text) = (self.read_string("addr")?, self.read_string("sn")?);
                match name::to_url(&address, &text) {
                    Ok(url) => self.write("result", &url),
                    Err(name::InvalidUrl::Address) => Err(Raised::InvalidAddress),
                    Err(name::InvalidUrl::Name) => Err(Raised::InvalidName),
                }
            }
            b"own_reference" => self.write_context(self.context),
            b"last_change" => {
                let (server, number) = self.service.directory.last_change();
                self.write("result", &Position { server, number })
            }
            b"changes_after" => self.changes_after(),
            _ => Err(SystemException::bad_operation().into()),
        }
    }

    fn resolve(&mut self, name: &[NameComponent]) -> Result<(), Raised> {
        let state = self.service.directory.state();
        let foreign = match state.resolve(self.context, name) {
            Ok(ResolvedName::Bound(BoundTarget::Object(reference) | BoundTarget::ForeignContext(reference))) => {
                write_encoded(self.call, reference);
                return Ok(());
            }
            Ok(ResolvedName::Bound(BoundTarget::Context(context))) => return self.write_context(context),
            Ok(ResolvedName::Foreign { context, at }) => (EncodedReference::from(context), at),
            Err(refusal) => return Err(self.raise(refusal, name)),
        };
        drop(state);
        let object = self.forward(&foreign.0, name, foreign.1, |context, rest| context.resolve(rest))?;
        let encoder = self.call.reply();
        Ok(At::result(write_reference(encoder, object.as_ref()), "result", encoder)?)
    }

    fn bind_object(&mut self, rebind: bool) -> Result<(), Raised> {
        let name = self.read_name()?;
        let decoder = self.call.arguments();
        let ior = At::argument(Ior::decode(decoder), "obj", decoder)?;
        let reference = records::encode_reference(&ior).map_err(SystemException::from)?;
        let target = BindingTarget::Object(EncodedReference::clone(&reference));
        let foreign = match self.bind(&name, target, rebind)? {
            OperationOutcome::Foreign { context, at } => (context, at),
            _ => return Ok(()),
        };
        let object = if ior.is_nil() { None } else { Some(self.object(&reference)?) };
        self.forward(&foreign.0, &name, foreign.1, |context, rest| {
            if rebind {
                context.rebind(rest, object.as_ref()).map_err(Raised::from)
            } else {
                context.bind(rest, object.as_ref()).map_err(Raised::from)
            }
        })
    }

    fn bind_context(&mut self, rebind: bool) -> Result<(), Raised> {
        let name = self.read_name()?;
        let decoder = self.call.arguments();
        let context: Option<NamingContextRef> = At::argument(read_reference(decoder), "nc", decoder)?;
        let Some(context) = context else {
            let why = "a name cannot be bound to a context that is nil";
            return Err(system(Kind::BadParam, Completion::No, why).into());
        };
        let own =
            self.poa.reference_to_id(context.as_object()).ok().and_then(|id| self.service.context(id.as_octets()));
        let target = match own {
            Some(own) => BindingTarget::Context(own),
            None => {
                let reference = records::encode_reference(context.as_object().ior());
                BindingTarget::ForeignContext(reference.map_err(SystemException::from)?)
            }
        };
        let foreign = match self.bind(&name, target, rebind)? {
            OperationOutcome::Foreign { context, at } => (context, at),
            _ => return Ok(()),
        };
        self.forward(&foreign.0, &name, foreign.1, |there, rest| {
            if rebind {
                there.rebind_context(rest, Some(&context)).map_err(Raised::from)
            } else {
                there.bind_context(rest, Some(&context)).map_err(Raised::from)
            }
        })
    }

    fn bind(
        &mut self,
        name: &[NameComponent],
        target: BindingTarget,
        rebind: bool,
    ) -> Result<OperationOutcome, Raised> {
        let (context, owned) = (self.context, name.to_vec());
        let operation = if rebind {
            NamingOperation::Rebind { context, name: owned, target }
        } else {
            NamingOperation::Bind { context, name: owned, target }
        };
        self.submit(operation, name)
    }

    fn unbind(&mut self, name: Vec<NameComponent>) -> Result<(), Raised> {
        match self.submit(NamingOperation::Unbind { context: self.context, name: name.clone() }, &name)? {
            OperationOutcome::Foreign { context, at } => {
                self.forward(&context, &name, at, |context, rest| context.unbind(rest))
            }
            _ => Ok(()),
        }
    }

    fn new_context(&mut self) -> Result<(), Raised> {
        match self.submit(NamingOperation::NewContext { context: self.context }, &[])? {
            OperationOutcome::Created(context) => self.write_context(context),
            _ => Err(system(Kind::Internal, Completion::Maybe, "no context was made").into()),
        }
    }

    fn bind_new_context(&mut self, name: Vec<NameComponent>) -> Result<(), Raised> {
        let operation = NamingOperation::BindNewContext { context: self.context, name: name.clone() };
        let created = match self.submit(operation, &name)? {
            OperationOutcome::Created(context) => return self.write_context(context),
            OperationOutcome::Foreign { context, at } => {
                self.forward(&context, &name, at, |context, rest| context.bind_new_context(rest))?
            }
            OperationOutcome::Changed => None,
        };
        let encoder = self.call.reply();
        Ok(At::result(write_reference(encoder, created.as_ref()), "result", encoder)?)
    }

    fn list(&mut self) -> Result<(), Raised> {
        let decoder = self.call.arguments();
        let how_many = At::argument(decoder.read_u32(), "how_many", decoder)?;
        let limits = batch_limits(how_many);
        let batch = self.service.directory.state().list(self.context, None, limits);
        let batch = batch.map_err(|refusal| self.raise(refusal, &[]))?;
        let iterator = if batch.has_more {
            let place = IteratorPosition { context: self.context, cursor: batch.cursor.clone() };
            Some(self.open_iterator(place)?)
        } else {
            None
        };
        self.write("bl", &bindings(batch))?;
        let encoder = self.call.reply();
        Ok(At::result(write_reference(encoder, iterator.as_ref()), "bi", encoder)?)
    }

    fn open_iterator(&self, place: IteratorPosition) -> Result<BindingIteratorRef, SystemException> {
        // Collocated calls count as calls of one client.
        let client = ClientId(served_by().connection.unwrap_or_default());
        // A client must not be able to guess the ids of other clients' iterators.
        let secret = corelane_sys::process::random_number().map_err(|error| {
            let why = format!("the kernel gives no random number: {error}");
            SystemException::new(Kind::NoResources, 0, Completion::No).with_message(why)
        })?;
        let opened = self.service.iterators.lock().open(client, place, secret, self.service.now());
        let why = "the server's settings allow no binding iterators";
        let id = opened.ok_or_else(|| system(Kind::NoResources, Completion::No, why))?;
        let id = ObjectId::from(&id.0.to_be_bytes()[..]);
        let object = self.iterator_poa.create_reference_with_id(&id, BindingIteratorRef::REPOSITORY_ID)?;
        Ok(BindingIteratorRef::unchecked_narrow(&object))
    }

    fn changes_after(&mut self) -> Result<(), Raised> {
        let decoder = self.call.arguments();
        let start: Position = At::argument(Cdr::decode(decoder), "start", decoder)?;
        let patience = At::argument(decoder.read_u32(), "patience", decoder)?;
        let thread = WaitingThread::begin(&self.service.watchers, self.service.settings.max_watching_clients);
        let patience = match thread {
            Some(_) => Duration::from_millis(patience.into()).min(self.service.settings.max_patience),
            None => Duration::ZERO,
        };
        let from = (start.server, start.number);
        let found = self.service.directory.changes_after(from, CHANGE_LIMITS, Monotonic::now() + patience);
        drop(thread);
        let is_whole = found.is_some();
        let (changes, number) = found.unwrap_or_else(|| (Vec::new(), self.service.directory.last_change().1));
        let reported: Vec<ReportedChange> =
            changes.into_iter().map(|change| self.reported(change)).collect::<Result<_, _>>()?;
        let (server, _) = self.service.directory.last_change();
        self.call.reply().write_bool(is_whole);
        self.write("found", &reported)?;
        self.write("end", &Position { server, number })
    }

    fn reported(&self, change: Change) -> Result<ReportedChange, SystemException> {
        let (context, name, target) = match change {
            Change::PutBinding { context, name, target } => (context, name, Some(target)),
            Change::RemoveBinding { context, name } => (context, name, None),
            _ => return Ok(ReportedChange::default()),
        };
        let parent = Some(NamingContextRef::unchecked_narrow(&self.context_reference(context)?));
        let is_context = target.as_ref().is_some_and(BindingTarget::is_context);
        let kind = if target.is_some() { ChangeKind::Bound } else { ChangeKind::Unbound };
        let target = match target {
            Some(BindingTarget::Object(reference) | BindingTarget::ForeignContext(reference)) => {
                self.reference(&reference)?
            }
            Some(BindingTarget::Context(context)) => Some(self.context_reference(context)?),
            None => None,
        };
        Ok(ReportedChange { parent, name, kind, binding_type: binding_type(is_context), target })
    }

    fn submit(&self, operation: NamingOperation, name: &[NameComponent]) -> Result<OperationOutcome, Raised> {
        if self.service.settings.is_read_only {
            let why = "the naming service is read-only";
            return Err(system(Kind::NoPermission, Completion::No, why).into());
        }
        let Some(_thread) =
            WaitingThread::begin(&self.service.waiting_changes, self.service.settings.max_waiting_changes)
        else {
            let why = "too many changes wait for the disk";
            return Err(system(Kind::Transient, Completion::No, why).into());
        };
        self.service.directory.submit(operation).map_err(|failure| match failure {
            directory::DirectoryError::Refused(refusal) => self.raise(refusal, name),
            directory::DirectoryError::Store(error) => {
                let kind = match *error {
                    crate::store::StoreError::Full { .. } => Kind::NoResources,
                    _ => Kind::Internal,
                };
                system(kind, Completion::Maybe, &error.to_string()).into()
            }
        })
    }

    fn forward<T, E: Into<Raised>>(
        &self,
        context: &EncodedReference,
        name: &[NameComponent],
        at: usize,
        call: impl FnOnce(&NamingContextRef, &[NameComponent]) -> Result<T, E>,
    ) -> Result<T, Raised> {
        let context = NamingContextRef::unchecked_narrow(&self.object(context)?);
        let rest = name.get(at..).unwrap_or_default();
        let cannot_proceed =
            || Raised::CannotProceed(CannotProceed { cxt: Some(context.clone()), rest_of_name: rest.to_vec() });
        let Some(_thread) = WaitingThread::begin(&self.service.forwards, self.service.settings.max_forwarding_threads)
        else {
            return Err(cannot_proceed());
        };
        call(&context.with_timeout(self.service.settings.forward_timeout), rest).map_err(|error| match error.into() {
            // Any other system exception may mean that the server could not be reached, so it
            // becomes CannotProceed.
            Raised::System(exception) if matches!(exception.kind(), Kind::NoPermission | Kind::BadParam) => {
                Raised::System(exception)
            }
            Raised::System(_) => cannot_proceed(),
            raised => raised,
        })
    }

    fn raise(&self, refusal: NamingRefusal, name: &[NameComponent]) -> Raised {
        let rest = |at: usize| name.get(at..).unwrap_or_default().to_vec();
        match refusal {
            NamingRefusal::NotFound { why, at } => Raised::NotFound(NotFound { why, rest_of_name: rest(at) }),
            NamingRefusal::CannotProceed { context, at } => match self.context_reference(context) {
                Ok(reference) => {
                    let cxt = Some(NamingContextRef::unchecked_narrow(&reference));
                    Raised::CannotProceed(CannotProceed { cxt, rest_of_name: rest(at) })
                }
                Err(exception) => exception.into(),
            },
            NamingRefusal::InvalidName => Raised::InvalidName,
            NamingRefusal::AlreadyBound => Raised::AlreadyBound,
            NamingRefusal::NotEmpty => Raised::NotEmpty,
            NamingRefusal::NoContext => no_such_object().into(),
            NamingRefusal::RootContext => {
                system(Kind::NoPermission, Completion::No, "the initial context cannot be destroyed").into()
            }
        }
    }

    fn read_name(&mut self) -> Result<Vec<NameComponent>, SystemException> {
        let decoder = self.call.arguments();
        At::argument(Cdr::decode(decoder), "n", decoder)
    }

    fn read_string(&mut self, name: &'static str) -> Result<String, SystemException> {
        let decoder = self.call.arguments();
        At::argument(decoder.read_string(), name, decoder)
    }

    fn write(&mut self, name: &'static str, value: &impl Cdr) -> Result<(), Raised> {
        let encoder = self.call.reply();
        Ok(At::result(value.encode(encoder), name, encoder)?)
    }

    fn write_context(&mut self, context: ContextId) -> Result<(), Raised> {
        let reference = self.context_reference(context)?;
        let encoder = self.call.reply();
        Ok(At::result(write_reference(encoder, Some(&reference)), "result", encoder)?)
    }

    fn context_reference(&self, context: ContextId) -> Result<ObjectRef, SystemException> {
        context_reference(&self.poa, self.service, context)
    }

    fn object(&self, reference: &EncodedReference) -> Result<ObjectRef, SystemException> {
        let object = self.reference(reference)?;
        object.ok_or_else(|| system(Kind::InvObjref, Completion::No, "the reference is nil"))
    }

    fn reference(&self, reference: &EncodedReference) -> Result<Option<ObjectRef>, SystemException> {
        let mut decoder = Decoder::new(reference, Endian::NATIVE);
        if let Some(orb) = self.orb {
            decoder = decoder.with_decoding_context(orb);
        }
        read_reference(&mut decoder).map_err(SystemException::from)
    }
}

pub(super) fn root_reference(poa: &Poa) -> Result<ObjectRef, SystemException> {
    Ok(poa.create_reference_with_id(&ObjectId::from(ROOT_ID), NamingContextExtRef::REPOSITORY_ID)?)
}

fn context_reference(poa: &Poa, service: &ServiceState, context: ContextId) -> Result<ObjectRef, SystemException> {
    Ok(poa.create_reference_with_id(&service.object_id(context), NamingContextExtRef::REPOSITORY_ID)?)
}

fn batch_limits(how_many: u32) -> BatchLimits {
    let wanted = usize::try_from(how_many).unwrap_or(usize::MAX);
    BatchLimits { max_bindings: wanted.min(BATCH_LIMITS.max_bindings), ..BATCH_LIMITS }
}

fn binding_type(is_context: bool) -> BindingType {
    if is_context { BindingType::Ncontext } else { BindingType::Nobject }
}

fn bindings(batch: Batch) -> Vec<Binding> {
    let binding = |(name, is_context)| Binding { binding_name: vec![name], binding_type: binding_type(is_context) };
    batch.bindings.into_iter().map(binding).collect()
}

pub(super) struct BindingIterators(pub(super) Arc<ServiceState>);

impl BindingIterators {
    fn id(&self) -> Result<IteratorId, SystemException> {
        let current = current().ok_or_else(no_such_object)?;
        let octets = <[u8; 16]>::try_from(current.object_id.as_octets()).map_err(|_| no_such_object())?;
        Ok(IteratorId(u128::from_be_bytes(octets)))
    }

    fn advance(&self, how_many: u32) -> Result<Vec<Binding>, SystemException> {
        let id = self.id()?;
        let mut iterators = self.0.iterators.lock();
        let place = iterators.position_mut(id, self.0.now()).ok_or_else(no_such_object)?;
        let state = self.0.directory.state();
        let Ok(batch) = state.list(place.context, place.cursor.as_ref(), batch_limits(how_many)) else {
            return Ok(Vec::new());
        };
        place.cursor.clone_from(&batch.cursor);
        drop(iterators);
        Ok(bindings(batch))
    }
}

impl BindingIterator for BindingIterators {
    fn next_one(&self) -> Result<(bool, Binding), SystemException> {
        let binding = self.advance(1)?.pop();
        Ok((binding.is_some(), binding.unwrap_or_default()))
    }

    fn next_n(&self, how_many: u32) -> Result<(bool, Vec<Binding>), SystemException> {
        if how_many == 0 {
            return Err(system(Kind::BadParam, Completion::No, "`next_n` must ask for at least one binding"));
        }
        let bindings = self.advance(how_many)?;
        Ok((!bindings.is_empty(), bindings))
    }

    fn destroy(&self) -> Result<(), SystemException> {
        let id = self.id()?;
        if self.0.iterators.lock().close(id) { Ok(()) } else { Err(no_such_object()) }
    }
}
