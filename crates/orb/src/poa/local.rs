//! Calls that stay in the process: the object adapter finds the servant as for any request, and nothing is marshalled where
//! the stub knows the interface.

use std::any::{Any, TypeId};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use corelane_sched::Priority;
use corelane_sys::clock::Monotonic;
use corelane_sys::erased::{ErasedArc, ErasedRef};
use corelane_sys::gate::Gate;
use corelane_sys::lock::{PiMutex, Scope};
use corelane_wire::exception::minor;
use corelane_wire::{CdrError, CodeSets, Decoder, Encoder, Endian, Octets, Scratch, Version};

use super::demux::is_served_anywhere;
use super::hold::{Held, Hold, Kept};
use super::{ClientPriority, Found, Key, Located, Place, PoaCore, Target, Wanted};
use crate::current::Upcall;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::invocation::{Body, Operation, Reply, call};
use crate::object::ObjectRef;
use crate::orb::Core;
use crate::policy::Due;
use crate::rt::Running;
use crate::servant::{Cast, Servant, ServerCall};
use crate::server::request::{Outcome, panicked, run};

/// Forwards that a local call follows.
const FORWARDS: usize = 10;

/// What looking for a servant to call directly came to.
enum Looked {
    /// The call is over.
    Over,
    /// The object is elsewhere.
    Forward(ObjectRef),
    /// To be marshalled, or waited for.
    Otherwise,
}

/// What is the same for all operations of a call, and compiled once for all of them; [`Direct`] is the rest.
#[derive(Clone, Copy)]
struct Call<'c> {
    object: &'c ObjectRef,
    /// The object itself is looked for, and not where it has been forwarded to or a name leads.
    own: bool,
    operation: &'static str,
    /// What the servant is to implement.
    interface: TypeId,
}

/// What a call does that depends on the operation.
trait Direct {
    /// The servant as the interface, to be kept.
    fn keeps(&self, servant: &Servant) -> Option<ErasedArc>;
    /// Makes the call on the servant as the interface.
    fn run(&mut self, servant: &ErasedRef<'_>);
    /// This is the result, whatever it was before.
    fn fail(&mut self, exception: SystemException);
}

struct Typed<I: ?Sized, T, E, F> {
    call: Option<F>,
    /// Apart from the error: a result that is copied whole is read before its parts have left the processor's store buffer.
    value: Option<T>,
    error: Option<E>,
    interface: PhantomData<fn(&I)>,
}

impl<I, T, E, F> Direct for Typed<I, T, E, F>
where
    I: ?Sized + Send + Sync + 'static,
    E: From<SystemException>,
    F: FnOnce(&I) -> Result<T, E>,
{
    fn keeps(&self, servant: &Servant) -> Option<ErasedArc> {
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

    fn fail(&mut self, exception: SystemException) {
        self.error = Some(exception.into());
    }
}

/// Calls the servant of `object` directly, if it lives here and implements `I`; `None` sends the call its usual way.
#[inline]
pub(crate) fn call_local<I: ?Sized + Send + Sync + 'static, T, E: From<SystemException>>(
    object: &ObjectRef,
    key: &[u8],
    operation: &'static str,
    call: impl FnOnce(&I) -> Result<T, E>,
) -> Option<Result<T, E>> {
    let mut direct = Typed { call: Some(call), value: None, error: None, interface: PhantomData };
    let call = Call { object, own: true, operation, interface: TypeId::of::<I>() };
    if !is_over(&call, key, &mut direct) {
        return None;
    }
    match direct.error {
        Some(error) => Some(Err(error)),
        None => direct.value.map(Ok),
    }
}

/// Whether the call has a result now.
fn is_over(call: &Call<'_>, key: &[u8], direct: &mut dyn Direct) -> bool {
    if let Err(unusable) = call.object.core().check_usable() {
        direct.fail(unusable);
        return true;
    }
    if let Some(home) = call.object.binding().home()
        && let Some(over) = home.serve(call, direct)
    {
        return over;
    }
    match look(call, key, direct) {
        Looked::Over => true,
        Looked::Otherwise => false,
        Looked::Forward(reference) => follow(call, reference, direct),
    }
}

/// Where a reference's object is, if it is in its POA's own part of the map: a call that knows has no key to take apart, and needs to hold
/// the object alone.
#[derive(Debug)]
pub(crate) struct Home {
    poa: Arc<PoaCore>,
    place: Place,
    id: [u8; Place::OCTETS],
}

impl Home {
    /// The home of an object that a call has found.
    #[cold]
    fn of(target: &Target<'_>) -> Option<Self> {
        let id = target.id.try_into().ok()?;
        let (poa, place) = (target.poa, Place::from_octets(id));
        let stays = target.in_map && poa.has_places() && poa.rt.is_none() && poa.is_open();
        // An id that somebody chose may look like a place.
        (stays && poa.own(place).is_some()).then(|| Home { poa: Arc::clone(poa), place, id })
    }

    /// Whether the call has a result now; `None` if it is to go the long way.
    #[inline]
    fn serve(&self, call: &Call<'_>, direct: &mut dyn Direct) -> Option<bool> {
        if !is_served_anywhere(&self.poa) || !self.poa.is_open() {
            return None;
        }
        let active = self.poa.own(self.place)?;
        // Looked at again by who is counted: see `SlotTable::is_in_use`.
        if !self.poa.is_open() {
            return None;
        }
        let (poa, servant, id) = (&self.poa, &active.servant, &self.id[..]);
        Some(serve(call, &Target { poa, servant, id, in_map: true, priority: None, lent: None }, direct))
    }
}

fn look(call: &Call<'_>, key: &[u8], direct: &mut dyn Direct) -> Looked {
    let (priority, ceiling) = (ClientPriority::OfCaller, Priority::MAX);
    let wanted = Wanted { key, operation: call.operation.as_bytes(), priority, band: None, ceiling };
    // A name may lead elsewhere the next time.
    let call = &Call { own: call.own && Key::parse(key) != Key::Plain, ..*call };
    call.object.core().adapters().find(wanted, |found| match found {
        Found::Servant(target) => {
            if call.own {
                call.object.binding().settle(|| Home::of(target));
            }
            if serve(call, target, direct) { Looked::Over } else { Looked::Otherwise }
        }
        Found::Refused(exception) | Found::Misplaced(exception) => {
            direct.fail(exception);
            Looked::Over
        }
        Found::Forward(reference) => Looked::Forward(reference),
        Found::Held(_) => Looked::Otherwise,
    })
}

/// Makes the call; `false` if it is to be marshalled.
fn serve(call: &Call<'_>, target: &Target<'_>, direct: &mut dyn Direct) -> bool {
    let (core, operation) = (call.object.core(), call.operation.as_bytes());
    let mut cast = Cast::new(call.interface);
    target.servant.cast(&mut cast);
    let Some(servant) = cast.found() else {
        let Err(exception) = target.finish(operation) else { return false };
        direct.fail(exception);
        return true;
    };
    if call.own && !target.is_lent() {
        call.object.call_directly(|| direct.keeps(target.servant));
    }
    let Some(_frame) = Upcall::enter(target) else {
        // A servant that was lent goes back.
        let _ = target.finish(operation);
        direct.fail(super::incarnation::too_deep());
        return true;
    };
    let running = Running::begin();
    if let Err(exception) = running.change(core, target.priority, None) {
        let _ = target.finish(operation);
        direct.fail(exception);
        return true;
    }
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| direct.run(servant))) {
        direct.fail(panicked(core, target, operation, &*panic));
    }
    if let Err(exception) = target.finish(operation) {
        direct.fail(exception);
    }
    true
}

/// Goes on where an object has been forwarded to; `false` if the call is to be marshalled.
#[cold]
fn follow(call: &Call<'_>, mut reference: ObjectRef, direct: &mut dyn Direct) -> bool {
    let (object, core) = (call.object, call.object.core());
    let named = object.binding().local_key(core).is_some_and(|key| Key::parse(key) == Key::Plain);
    for _ in 0..FORWARDS {
        let Some(key) = reference.binding().local_key(core) else {
            if named {
                // The name may lead elsewhere the next time, so nothing is remembered, and who forwarded is asked once more.
                return false;
            }
            // The marshalled call begins there, so that nobody is asked twice for one call.
            let target = object.binding().target(core, reference.ior().clone());
            object.binding().set_forwarded(Some(Arc::new(target)));
            return false;
        };
        match look(&Call { own: false, ..*call }, key, direct) {
            Looked::Over => return true,
            Looked::Otherwise => return false,
            Looked::Forward(next) => reference = next,
        }
    }
    direct.fail(SystemException::new(Kind::Transient, crate::minor::FORWARD_LOOP, Completion::No));
    true
}

/// What a local call came to: its outcome, its results, and whether they are a user exception.
type Answer = (Outcome, Vec<u8>, bool);

/// Runs a marshalled request in the calling thread.
fn attempt(core: &Arc<Core>, key: &[u8], operation: &str, request: &[u8], priority: Option<Priority>) -> Answer {
    let (scratch, values) = (Scratch::new(), crate::value_space());
    let env: &(dyn Any + Sync) = core;
    let decoder = Decoder::new(request, Endian::NATIVE)
        .with_code_sets(CodeSets::UTF8_UTF16)
        .with_limits(&core.config().limits)
        .with_scratch(&scratch)
        .with_values(&values)
        .with_env(env);
    let mut reply = Encoder::new();
    reply.set_code_sets(CodeSets::UTF8_UTF16);
    let mut call = ServerCall::new(decoder, reply, None, None);
    let operation = operation.as_bytes();
    let priority = ClientPriority::Said(priority);
    let wanted = Wanted { key, operation, priority, band: None, ceiling: Priority::MAX };
    let outcome = core.adapters().find(wanted, |found| run(core, found, operation, &mut call, None));
    let raised = call.has_raised();
    (outcome, call.reply().to_vec(), raised)
}

/// A call that is marshalled but stays in the process: the stub does not know the interface, or the servant is dynamic.
#[cold]
pub(crate) fn invoke_local<'r, 'a>(
    core: &'r Arc<Core>,
    object: &ObjectRef,
    operation: &Operation<'_>,
    arguments: &dyn Fn(&mut Encoder<'a>) -> Result<(), CdrError>,
) -> Result<Reply<'r>, SystemException> {
    core.check_usable()?;
    let mut request = Encoder::new();
    request.set_code_sets(CodeSets::UTF8_UTF16);
    arguments(&mut request)?;
    let request: Arc<[u8]> = request.to_vec().into();
    let mut target = object.clone();
    let priority = crate::rt::of_caller(core);
    let until = Due::of(object.timeout()).moment();
    let mut forwards = 0;
    loop {
        let Some(key) = target.binding().local_key(core) else {
            return call::invoke_as(core, &target.with_policies(object.policies()), operation, arguments);
        };
        let mut answer = attempt(core, key, operation.name(), &request, priority);
        if let Outcome::Held(hold @ (Hold::MainThread(_) | Hold::Lane(_))) = &answer.0 {
            answer = on_its_thread(core, hold, key, operation.name(), &request, priority, until)?;
        }
        match answer {
            (Outcome::Done, reply, raised) => {
                let codec = (Endian::NATIVE, Version::GIOP_1_2, CodeSets::UTF8_UTF16);
                let body = Body::owned(Octets::from(reply), Vec::new());
                let reply = Reply::new(body, core, 0, codec);
                return if raised { reply.into_exception() } else { Ok(reply) };
            }
            (Outcome::Exception(exception), ..) => return Err(exception),
            (Outcome::Held(hold), ..) => {
                if !hold.wait(until) {
                    return Err(timed_out());
                }
            }
            (Outcome::Forward(next), ..) => {
                target = next;
                forwards += 1;
                if forwards > FORWARDS {
                    return Err(SystemException::new(Kind::Transient, crate::minor::FORWARD_LOOP, Completion::No));
                }
            }
        }
    }
}

fn timed_out() -> SystemException {
    SystemException::new(Kind::Timeout, minor::timeout::REQUEST_END_TIME, Completion::No)
}

/// What the main thread, or a lane's, makes of a call that another thread waits for.
struct Handover {
    done: Gate,
    /// Caller and lane may differ in priority.
    state: PiMutex<Handed>,
}

enum Handed {
    Waiting,
    Running,
    Done(Answer),
    /// The caller has gone.
    Abandoned,
}

/// Has the main thread, or one of a lane, run the request.
fn on_its_thread(
    core: &Arc<Core>,
    hold: &Hold,
    key: &[u8],
    operation: &str,
    request: &Arc<[u8]>,
    priority: Option<Priority>,
    until: Option<Monotonic>,
) -> Result<Answer, SystemException> {
    let handover = Arc::new(Handover {
        done: Gate::new("call on another thread"),
        state: PiMutex::new("call on another thread", Scope::Orb, Handed::Waiting),
    });
    let work = {
        let (handover, core, request) = (Arc::clone(&handover), Arc::downgrade(core), Arc::clone(request));
        let (key, operation) = (key.to_vec(), operation.to_owned());
        move |_| {
            if !matches!(std::mem::replace(&mut *handover.state.lock(), Handed::Running), Handed::Waiting) {
                return;
            }
            let answer = match core.upgrade() {
                Some(core) => attempt(&core, &key, &operation, &request, priority),
                None => (
                    Outcome::Exception(SystemException::new(
                        Kind::BadInvOrder,
                        minor::bad_inv_order::ORB_SHUT_DOWN,
                        Completion::No,
                    )),
                    Vec::new(),
                    false,
                ),
            };
            *handover.state.lock() = Handed::Done(answer);
            handover.done.open();
        }
    };
    match hold.keep(Held { octets: request.len(), resume: Box::new(work) }) {
        Kept::Held => {}
        Kept::Over(_) | Kept::Full => {
            return Err(SystemException::new(Kind::Transient, minor::transient::DISCARDED, Completion::No));
        }
    }
    // Without anybody left to run it, the queue drops the work.
    let orphaned = || Arc::strong_count(&handover) == 1;
    let look = || {
        let mut state = handover.state.lock();
        match std::mem::replace(&mut *state, Handed::Waiting) {
            Handed::Done(answer) => Some(Ok(answer)),
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
            let began = !matches!(std::mem::replace(&mut *handover.state.lock(), Handed::Abandoned), Handed::Waiting);
            return Err(timed_out().completed_as(if began { Completion::Maybe } else { Completion::No }));
        }
    }
}

/// A oneway call in the process: it runs in the caller's thread, or its POA's.
pub(crate) fn send_local<'a>(
    object: &ObjectRef,
    operation: &Operation<'_>,
    arguments: &dyn Fn(&mut Encoder<'a>) -> Result<(), CdrError>,
) -> Result<(), SystemException> {
    // What the servant raises is nobody's business, as it would be from afar; that the ORB has ended is.
    object.core().check_usable()?;
    let _ = invoke_local(object.core(), object, operation, arguments);
    Ok(())
}

/// Whether the object is here.
pub(crate) fn locate_local(object: &ObjectRef) -> Result<(), SystemException> {
    let core = object.core();
    core.check_usable()?;
    let until = Due::of(object.timeout()).moment();
    let Some(key) = object.binding().local_key(core) else { return Ok(()) };
    loop {
        match core.adapters().locate(key) {
            // What only the main thread can tell, the first call finds out.
            Located::Here | Located::Forward(_) | Located::Held(Hold::MainThread(_)) => return Ok(()),
            Located::Unknown => return Err(super::no_such_object()),
            Located::Raised(exception) => return Err(exception),
            Located::Held(hold) => {
                if !hold.wait(until) {
                    return Err(timed_out());
                }
            }
        }
    }
}
