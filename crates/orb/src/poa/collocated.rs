//! Collocated calls: calls to objects of this ORB. A direct call passes the arguments as Rust
//! values; any other collocated call encodes them.

use std::any::{Any, TypeId};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use corelane_sys::clock::Monotonic;
use corelane_sys::erased::{ErasedArc, ErasedRef};
use corelane_sys::event_count::EventCount;
use corelane_sys::lock::{LockScope, PiMutex};
use corelane_wire::cdr::MemoryMeter;
use corelane_wire::exception::minor;
use corelane_wire::{CdrError, CodeSets, Decoder, Encoder, Endian, Octets, Scratch, Version};

use super::lookup::{ClientPriority, Lookup};
use super::lookup_result::{LocateResult, LookupResult, UpcallTarget, WaitFor};
use super::parked::ParkResult;
use super::table::is_outside_rt;
use super::{ObjectKey, PoaCore, PoaTable, SlotId};
use crate::adapter::upcall::{DispatchOutcome, dispatch_out_of_line, handle_servant_panic};
use crate::client::context::ClientContext;
use crate::current::UpcallScope;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::invocation::callee::Callee;
use crate::invocation::{Operation, Reply, ReplyBody, call};
use crate::memory::{ByteBudget, explain_refusal};
use crate::object::ObjectRef;
use crate::policy::CallDeadline;
use crate::rt::{CallerPriority, UpcallPriority};
use crate::servant::{InterfaceQuery, Servant, ServerCall};
use crate::server::parked_request::ParkedRequest;

const MAX_FORWARDS: usize = 10;

enum DirectCallResult {
    Completed,
    Forward(ObjectRef),
    Marshal,
}

/// The data of a call that do not depend on the types of the operation. Functions with this
/// parameter are compiled once, not for each operation.
#[derive(Clone, Copy)]
struct CollocatedCall<'c> {
    object: &'c ObjectRef,
    /// True for a call to `object` itself; false for the target of a forward or of a plain key.
    is_original: bool,
    operation: &'static str,
    interface: TypeId,
}

trait DirectInvocation {
    fn to_owned_servant(&self, servant: &Servant) -> Option<ErasedArc>;
    fn run(&mut self, servant: &ErasedRef<'_>);
    fn set_error(&mut self, exception: SystemException);
}

struct TypedInvocation<I: ?Sized, T, E, F> {
    call: Option<F>,
    /// The result is in two fields, not in an enum, because copying an enum directly after it was
    /// written makes the processor wait (docs/performance.md).
    value: Option<T>,
    error: Option<E>,
    interface: PhantomData<fn(&I)>,
}

impl<I, T, E, F> DirectInvocation for TypedInvocation<I, T, E, F>
where
    I: ?Sized + Send + Sync + 'static,
    E: From<SystemException>,
    F: FnOnce(&I) -> Result<T, E>,
{
    fn to_owned_servant(&self, servant: &Servant) -> Option<ErasedArc> {
        servant.implements::<I>().map(ErasedArc::new)
    }

    fn run(&mut self, servant: &ErasedRef<'_>) {
        if let (Some(servant), Some(call)) = (servant.get::<I>(), self.call.take()) {
            match call(servant) {
                Ok(value) => self.value = Some(value),
                Err(error) => self.error = Some(error),
            }
        }
    }

    fn set_error(&mut self, exception: SystemException) {
        self.error = Some(exception.into());
    }
}

/// Calls the servant directly. Returns `None` if the caller must make the call as an encoded
/// request.
#[inline]
pub(crate) fn call_local<I: ?Sized + Send + Sync + 'static, T, E: From<SystemException>>(
    object: &ObjectRef,
    key: &[u8],
    operation: &'static str,
    call: impl FnOnce(&I) -> Result<T, E>,
) -> Option<Result<T, E>> {
    let mut direct = TypedInvocation { call: Some(call), value: None, error: None, interface: PhantomData };
    let call = CollocatedCall { object, is_original: true, operation, interface: TypeId::of::<I>() };
    if !try_call(&call, key, &mut direct) {
        return None;
    }
    match direct.error {
        Some(error) => Some(Err(error)),
        None => direct.value.map(Ok),
    }
}

/// Tries a direct call. Returns true if the call has a result, false if it must be made as an
/// encoded request.
fn try_call(call: &CollocatedCall<'_>, key: &[u8], direct: &mut dyn DirectInvocation) -> bool {
    if let Err(unusable) = call.object.client().check_usable() {
        direct.set_error(unusable);
        return true;
    }
    if let Some(home) = call.object.binding().local_entry::<CollocatedTarget>()
        && let Some(over) = home.call(call, direct)
    {
        return over;
    }
    match look_up_and_call(call, key, direct) {
        DirectCallResult::Completed => true,
        DirectCallResult::Marshal => false,
        DirectCallResult::Forward(reference) => follow_forwards(call, reference, direct),
    }
}

/// The object's slot in its POA's slab, with which a later call needs no key and no look-up of the
/// POA.
#[derive(Debug)]
pub(crate) struct CollocatedTarget {
    poa: Arc<PoaCore>,
    place: SlotId,
    id: [u8; SlotId::OCTETS],
}

impl CollocatedTarget {
    #[cold]
    fn from_target(target: &UpcallTarget<'_>) -> Option<ErasedArc> {
        let id = target.id.try_into().ok()?;
        let (poa, place) = (target.poa, SlotId::from_octets(id));
        let stays = target.in_map && poa.ids_are_slots() && poa.rt.is_none() && poa.has_fast_path();
        let found = stays && poa.own_object(place).is_some();
        found.then(|| ErasedArc::new(Arc::new(CollocatedTarget { poa: Arc::clone(poa), place, id })))
    }

    /// Calls the object in this slot. Returns true if the call has a result, false if it must be
    /// encoded, and `None` if the key must be looked up.
    #[inline]
    fn call(&self, call: &CollocatedCall<'_>, direct: &mut dyn DirectInvocation) -> Option<bool> {
        if !is_outside_rt(&self.poa) || !self.poa.has_fast_path() {
            return None;
        }
        let active = self.poa.own_object(self.place)?;
        // `own_object` has counted this thread as a user (`GenerationalSlab::has_users`). A thread
        // that ends the fast path after this check finds this thread among the users.
        if !self.poa.has_fast_path() {
            return None;
        }
        let (poa, servant, id) = (&self.poa, &active.servant, &self.id[..]);
        Some(call_servant(
            call,
            &UpcallTarget { poa, servant, id, in_map: true, priority: None, locator: None },
            direct,
        ))
    }
}

fn look_up_and_call(call: &CollocatedCall<'_>, key: &[u8], direct: &mut dyn DirectInvocation) -> DirectCallResult {
    let priority = ClientPriority::CallingThread;
    let wanted = Lookup { key, operation: call.operation.as_bytes(), priority, band: None, origin: None };
    // The target of a plain key can change, so the reference must not cache it.
    let call = &CollocatedCall { is_original: call.is_original && ObjectKey::parse(key) != ObjectKey::Plain, ..*call };
    let Some(table) = PoaTable::of(call.object.client()) else { return DirectCallResult::Marshal };
    table.look_up(wanted, |found| match found {
        LookupResult::Servant(target) => {
            if call.is_original {
                call.object.binding().record_local_entry(|| CollocatedTarget::from_target(target));
            }
            if call_servant(call, target, direct) { DirectCallResult::Completed } else { DirectCallResult::Marshal }
        }
        LookupResult::Missing(exception)
        | LookupResult::Refused(exception)
        | LookupResult::PriorityRefused(exception) => {
            direct.set_error(exception);
            DirectCallResult::Completed
        }
        LookupResult::Forward(reference) => DirectCallResult::Forward(reference),
        LookupResult::MustWait(_) => DirectCallResult::Marshal,
    })
}

fn call_servant(call: &CollocatedCall<'_>, target: &UpcallTarget<'_>, direct: &mut dyn DirectInvocation) -> bool {
    let (client, operation) = (call.object.client(), call.operation.as_bytes());
    let mut cast = InterfaceQuery::new(call.interface);
    target.servant.cast(&mut cast);
    let Some(servant) = cast.found() else {
        let Err(exception) = target.finish(operation) else { return false };
        direct.set_error(exception);
        return true;
    };
    if call.is_original && !target.is_from_locator() {
        call.object.add_bypass_servant(|| direct.to_owned_servant(target.servant));
    }
    let Some(_frame) = UpcallScope::enter(target) else {
        let _ = target.finish(operation);
        direct.set_error(super::incarnation::too_deep());
        return true;
    };
    let running = UpcallPriority::begin();
    if let Err(exception) = running.apply(client, target.priority, None) {
        let _ = target.finish(operation);
        direct.set_error(exception);
        return true;
    }
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| direct.run(servant))) {
        direct.set_error(handle_servant_panic(client, target, operation, &*panic));
    }
    if let Err(exception) = target.finish(operation) {
        direct.set_error(exception);
    }
    true
}

#[cold]
fn follow_forwards(call: &CollocatedCall<'_>, mut reference: ObjectRef, direct: &mut dyn DirectInvocation) -> bool {
    let (object, client) = (call.object, call.object.client());
    let named = object.binding().local_key(client).is_some_and(|key| ObjectKey::parse(key) == ObjectKey::Plain);
    for _ in 0..MAX_FORWARDS {
        let Some(key) = reference.binding().local_key(client) else {
            if named {
                // The target of a plain key can change, so the forward is not cached.
                return false;
            }
            // The encoded call begins at the forward's target, so that no servant manager is called
            // twice.
            let target = object.binding().target(client, reference.ior().clone());
            object.binding().set_forwarded(Some(Arc::new(target)));
            return false;
        };
        match look_up_and_call(&CollocatedCall { is_original: false, ..*call }, key, direct) {
            DirectCallResult::Completed => return true,
            DirectCallResult::Marshal => return false,
            DirectCallResult::Forward(next) => reference = next,
        }
    }
    direct.set_error(SystemException::new(Kind::Transient, crate::minor::FORWARD_LOOP, Completion::No));
    true
}

/// The outcome, the encoded results, and true if the results are a user exception.
type LocalOutcome = (DispatchOutcome, Vec<u8>, bool);

fn run_marshalled(
    client: &Arc<ClientContext>,
    key: &[u8],
    operation: &str,
    request: &[u8],
    priority: CallerPriority,
) -> LocalOutcome {
    let (scratch, values) = (Scratch::new(), client.value_read_state());
    let env: &(dyn Any + Sync) = client;
    let account: &ByteBudget = client.reply_memory();
    let meter = MemoryMeter::new(account);
    let decoder = Decoder::new(request, Endian::NATIVE)
        .with_code_sets(CodeSets::UTF8_UTF16)
        .with_limits(&client.config().limits)
        .with_scratch(&scratch)
        .with_value_read_state(&values)
        .with_memory_meter(&meter)
        .with_decoding_context(env);
    let mut reply = Encoder::new();
    reply.set_code_sets(CodeSets::UTF8_UTF16);
    let mut call = ServerCall::new(decoder, reply, None, None);
    let operation = operation.as_bytes();
    let priority = ClientPriority::WaitingCaller(priority);
    let wanted = Lookup { key, operation, priority, band: None, origin: None };
    let Some(table) = PoaTable::of(client) else {
        return (DispatchOutcome::Exception(super::no_such_object()), Vec::new(), false);
    };
    let mut outcome = table.look_up(wanted, |found| dispatch_out_of_line(client, found, operation, &mut call, None));
    if let DispatchOutcome::Exception(exception) = &mut outcome {
        explain_refusal(exception, &meter, "the arguments exceed the memory limit", "OrbBuilder::max_reply_memory");
    }
    let raised = call.has_raised();
    (outcome, call.reply().to_vec(), raised)
}

/// Makes a collocated call with encoded arguments, for example a dynamic call, a call of a dynamic
/// servant, or a call that must wait. Follows forwards, even to other ORBs.
#[cold]
pub(crate) fn invoke_local<'r, 'a>(
    client: &'r Arc<ClientContext>,
    callee: &Callee,
    operation: &Operation<'_>,
    arguments: &dyn Fn(&mut Encoder<'a>) -> Result<(), CdrError>,
) -> Result<Reply<'r>, SystemException> {
    client.check_usable()?;
    let mut request = Encoder::new();
    request.set_code_sets(CodeSets::UTF8_UTF16);
    arguments(&mut request).map_err(|error| crate::trail::unwritable(error, "argument ", &request))?;
    let request: Arc<[u8]> = request.to_vec().into();
    let mut target = callee.clone();
    let priority = crate::rt::caller_priority(client);
    let until = CallDeadline::from_timeout(callee.timeout()).latest();
    let mut forwards = 0;
    loop {
        let Some(key) = target.binding().local_key(client) else {
            return call::invoke_as(client, &target.with_policies(callee.policies()), operation, arguments);
        };
        let mut answer = run_marshalled(client, key, operation.name(), &request, priority);
        if let DispatchOutcome::Held(hold @ (WaitFor::MainThread(_) | WaitFor::Lane(_))) = &answer.0 {
            answer = run_on_other_thread(client, hold, key, operation.name(), &request, priority, until)?;
        }
        match answer {
            (DispatchOutcome::Done, reply, raised) => {
                let codec = (Endian::NATIVE, Version::HIGHEST, CodeSets::UTF8_UTF16);
                let body = ReplyBody::owned(Octets::from(reply), Vec::new());
                let reply = Reply::new(body, client, 0, codec);
                return if raised { reply.into_exception() } else { Ok(reply) };
            }
            (DispatchOutcome::Exception(exception), ..) => return Err(exception),
            (DispatchOutcome::Held(hold), ..) => {
                if !hold.wait(until) {
                    return Err(timed_out());
                }
            }
            (DispatchOutcome::Forward(next), ..) => {
                target = next.callee().clone();
                forwards += 1;
                if forwards > MAX_FORWARDS {
                    return Err(SystemException::new(Kind::Transient, crate::minor::FORWARD_LOOP, Completion::No));
                }
            }
        }
    }
}

fn timed_out() -> SystemException {
    SystemException::new(Kind::Timeout, minor::timeout::REQUEST_END_TIME, Completion::No)
}

struct LocalHandover {
    done: EventCount,
    /// A priority-inheriting mutex, because the caller and the lane may have different priorities.
    state: PiMutex<HandoverState>,
}

enum HandoverState {
    Waiting,
    Running,
    Done(LocalOutcome),
    Abandoned,
}

fn run_on_other_thread(
    client: &Arc<ClientContext>,
    hold: &WaitFor,
    key: &[u8],
    operation: &str,
    request: &Arc<[u8]>,
    priority: CallerPriority,
    until: Option<Monotonic>,
) -> Result<LocalOutcome, SystemException> {
    let handover = Arc::new(LocalHandover {
        done: EventCount::new("call on another thread"),
        state: PiMutex::new("call on another thread", LockScope::Orb, HandoverState::Waiting),
    });
    let work = {
        let (handover, client, request) = (Arc::clone(&handover), Arc::downgrade(client), Arc::clone(request));
        let (key, operation) = (key.to_vec(), operation.to_owned());
        move |_| {
            if !matches!(std::mem::replace(&mut *handover.state.lock(), HandoverState::Running), HandoverState::Waiting)
            {
                return;
            }
            let answer = match client.upgrade() {
                Some(client) => run_marshalled(&client, &key, &operation, &request, priority),
                None => (
                    DispatchOutcome::Exception(SystemException::new(
                        Kind::BadInvOrder,
                        minor::bad_inv_order::ORB_SHUT_DOWN,
                        Completion::No,
                    )),
                    Vec::new(),
                    false,
                ),
            };
            *handover.state.lock() = HandoverState::Done(answer);
            handover.done.notify_all();
        }
    };
    match hold.park(ParkedRequest { bytes: request.len(), resume: Box::new(work) }) {
        ParkResult::Parked => {}
        ParkResult::AlreadySignalled(_) | ParkResult::Full => {
            return Err(SystemException::new(Kind::Transient, minor::transient::DISCARDED, Completion::No));
        }
    }
    // The queued closure has the second reference to `handover`. If the count is 1 before the call
    // is done, the queue has dropped the closure.
    let orphaned = || Arc::strong_count(&handover) == 1;
    let look = || {
        let mut state = handover.state.lock();
        match std::mem::replace(&mut *state, HandoverState::Waiting) {
            HandoverState::Done(answer) => Some(Ok(answer)),
            other => {
                let over = orphaned();
                *state = other;
                over.then(|| {
                    Err(SystemException::new(Kind::BadInvOrder, minor::bad_inv_order::ORB_SHUT_DOWN, Completion::No))
                })
            }
        }
    };
    loop {
        let slice = Monotonic::now() + std::time::Duration::from_millis(100);
        if let Some(answer) = handover.done.wait(Some(until.map_or(slice, |until| until.min(slice))), look) {
            return answer;
        }
        if until.is_some_and(Monotonic::is_past) {
            let began = !matches!(
                std::mem::replace(&mut *handover.state.lock(), HandoverState::Abandoned),
                HandoverState::Waiting
            );
            return Err(timed_out().with_completion(if began { Completion::Maybe } else { Completion::No }));
        }
    }
}

pub(crate) fn send_local<'a>(
    callee: &Callee,
    operation: &Operation<'_>,
    arguments: &dyn Fn(&mut Encoder<'a>) -> Result<(), CdrError>,
) -> Result<(), SystemException> {
    // The caller of a oneway gets no exception of the servant, so the result is ignored.
    callee.context().check_usable()?;
    let _ = invoke_local(callee.context(), callee, operation, arguments);
    Ok(())
}

/// Checks that an object of this ORB exists, and waits while its requests are held. Remote objects
/// and targets of forwards are not checked.
pub(crate) fn locate_local(callee: &Callee) -> Result<(), SystemException> {
    let client = callee.context();
    client.check_usable()?;
    let until = CallDeadline::from_timeout(callee.timeout()).latest();
    let Some(key) = callee.binding().local_key(client) else { return Ok(()) };
    let Some(table) = PoaTable::of(client) else { return Ok(()) };
    loop {
        match table.locate(key) {
            // If the object's POA must first be created on the main thread, the check does not
            // wait, because the main thread may be busy without end.
            LocateResult::ObjectHere | LocateResult::Forward(_) | LocateResult::MustWait(WaitFor::MainThread(_)) => {
                return Ok(());
            }
            LocateResult::UnknownObject => return Err(super::no_such_object()),
            LocateResult::Exception(exception) => return Err(exception),
            LocateResult::MustWait(hold) => {
                if !hold.wait(until) {
                    return Err(timed_out());
                }
            }
        }
    }
}
