//! Calls that stay in the process: the object adapter finds the servant as for any request, and nothing is marshalled where
//! the stub knows the interface.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use corelane_wire::{CdrError, CodeSets, Decoder, Encoder, Endian, Octets, Scratch, Version};

use super::{Found, Located, PoaManager};
use crate::current::Upcall;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::invocation::{Body, Operation, Reply};
use crate::object::ObjectRef;
use crate::policy::{Due, Timeout};
use crate::servant::ServerCall;
use crate::server::request::{Outcome, panicked, run};

/// Forwards that a local call follows.
const FORWARDS: usize = 10;

/// Calls the servant of `object` directly, if it lives here and implements `I`; `None` sends the call its usual way.
#[inline]
pub(crate) fn call_local<I: ?Sized + 'static, T, E: From<SystemException>>(
    object: &ObjectRef,
    key: &[u8],
    operation: &'static str,
    call: impl FnOnce(&I) -> Result<T, E>,
) -> Option<Result<T, E>> {
    let core = object.core();
    core.adapters().find(key, |found| {
        let Found::Servant(target) = found else { return None };
        let servant = target.servant.implements::<I>()?;
        let Some(_frame) = Upcall::enter(target.poa, target.id, target.servant.identity()) else {
            return Some(Err(too_deep().into()));
        };
        Some(match catch_unwind(AssertUnwindSafe(|| call(&servant))) {
            Ok(result) => result,
            Err(panic) => Err(panicked(core, target, operation.as_bytes(), &*panic).into()),
        })
    })
}

/// A call that is marshalled but stays in the process: the stub does not know the interface, or the servant is dynamic.
#[cold]
pub(crate) fn invoke_local<'a>(
    object: &ObjectRef,
    operation: &Operation,
    arguments: &dyn Fn(&mut Encoder<'a>) -> Result<(), CdrError>,
) -> Result<Reply, SystemException> {
    let core = object.core();
    core.check_usable()?;
    let mut request = Encoder::new();
    request.set_code_sets(CodeSets::UTF8_UTF16);
    arguments(&mut request)?;
    let request = request.to_vec();
    let scratch = Scratch::new();
    let env: &(dyn Any + Sync) = core;
    let mut target = object.clone();
    let until = Due::of(object.policies().timeout.unwrap_or(Timeout::Never)).moment();
    for _ in 0..FORWARDS {
        let Some(key) = target.binding().local_key(core) else {
            return target.with_policies(object.policies()).invoke_raising(operation, arguments);
        };
        let decoder = Decoder::new(&request, Endian::NATIVE)
            .with_code_sets(CodeSets::UTF8_UTF16)
            .with_limits(&core.config().limits)
            .with_scratch(&scratch)
            .with_env(env);
        let mut call = ServerCall::new(decoder, Encoder::new(), None);
        let outcome = core.adapters().find(key, |found| run(core, found, operation.name().as_bytes(), &mut call));
        let (reply, raised) = call.finish();
        match outcome {
            Outcome::Done => {
                let codec = (Endian::NATIVE, Version::GIOP_1_2, CodeSets::UTF8_UTF16);
                let reply =
                    Reply::new(Body::Owned(Octets::from(reply.to_vec()), Vec::new()), Arc::clone(core), 0, codec);
                return if raised { reply.into_exception() } else { Ok(reply) };
            }
            Outcome::Exception(exception) => return Err(exception),
            Outcome::Held(manager) => wait(&manager, until)?,
            Outcome::Forward(next) => target = next,
        }
    }
    Err(SystemException::new(Kind::Transient, crate::minor::FORWARD_LOOP, Completion::No))
}

fn wait(manager: &PoaManager, until: Option<corelane_sys::clock::Monotonic>) -> Result<(), SystemException> {
    if manager.wait_released(until) { Ok(()) } else { Err(SystemException::omg(Kind::Timeout, 2, Completion::No)) }
}

/// A oneway call in the process: it runs in the caller's thread.
pub(crate) fn send_local<'a>(
    object: &ObjectRef,
    operation: &Operation,
    arguments: &dyn Fn(&mut Encoder<'a>) -> Result<(), CdrError>,
) -> Result<(), SystemException> {
    // What the servant raises is nobody's business, as it would be from afar.
    let _ = invoke_local(object, operation, arguments)?;
    Ok(())
}

/// Whether the object is here.
pub(crate) fn locate_local(object: &ObjectRef) -> Result<(), SystemException> {
    let core = object.core();
    let Some(key) = object.binding().local_key(core) else { return Ok(()) };
    match core.adapters().locate(key) {
        Located::Here | Located::Forward(_) => Ok(()),
        Located::Unknown => Err(super::no_such_object()),
    }
}

#[cold]
fn too_deep() -> SystemException {
    SystemException::new(Kind::NoResources, 0, Completion::No).because("upcalls are nested too deep")
}
