//! Upcalls: the ORB's calls of servants, and their outcomes.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use corelane_sched::Priority;
use corelane_sys::probe;
use corelane_wire::exception::minor;

use crate::current::UpcallScope;
use crate::event::Event;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
#[cfg(feature = "core-pool")]
use crate::job_budget;
use crate::object::ObjectRef;
use crate::orb_context::OrbContext;
use crate::poa::{LookupResult, ServantPanicAction, UpcallTarget, WaitFor};
use crate::rt::{ExpiredRequestAction, UpcallPriority};
use crate::servant::ServerCall;
use crate::text;

pub(crate) enum DispatchOutcome {
    Done,
    Forward(ObjectRef),
    Held(WaitFor),
    Exception(SystemException),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpiredDeadline {
    waited: Duration,
    remaining: Duration,
}

impl ExpiredDeadline {
    #[inline]
    pub(super) fn after(waited: Duration, remaining: Duration) -> Option<Self> {
        (waited >= remaining).then_some(ExpiredDeadline { waited, remaining })
    }

    /// Reports that the deadline passed. Returns the highest CORBA priority at which the request
    /// may run; `None` means no limit.
    ///
    /// # Errors
    /// TIMEOUT if the request must not run.
    #[cold]
    fn begin(self, orb: &OrbContext, operation: &[u8]) -> Result<Option<Priority>, SystemException> {
        let ExpiredDeadline { waited, remaining } = self;
        let operation = text::shown(operation);
        orb.events().report(&Event::DeadlinePassed { operation, waited, remaining });
        match orb.config().rt.expired_request_action {
            ExpiredRequestAction::Run => Ok(None),
            ExpiredRequestAction::Reject => {
                let exception = SystemException::new(Kind::Timeout, minor::timeout::REQUEST_END_TIME, Completion::No);
                Err(exception.with_message("the request's deadline passed before it could run"))
            }
            ExpiredRequestAction::LowerPriority(priority) => Ok(Priority::new(priority)),
        }
    }
}

#[inline(always)]
pub(crate) fn dispatch_to_target(
    orb: &OrbContext,
    found: LookupResult<'_>,
    operation: &[u8],
    call: &mut ServerCall<'_>,
    expired: Option<ExpiredDeadline>,
) -> DispatchOutcome {
    match found {
        LookupResult::Servant(target) => {
            probe!("servant found");
            let outcome = upcall(orb, target, operation, call, expired);
            probe!("results marshalled");
            outcome.map_or_else(DispatchOutcome::Exception, |()| DispatchOutcome::Done)
        }
        LookupResult::Forward(reference) => DispatchOutcome::Forward(reference),
        LookupResult::MustWait(hold) => DispatchOutcome::Held(hold),
        LookupResult::Missing(exception) => answer_missing(operation, call, exception),
        LookupResult::Refused(exception) | LookupResult::PriorityRefused(exception) => {
            DispatchOutcome::Exception(exception)
        }
    }
}

/// Keeps the code of [`dispatch_to_target`] out of the call sites.
#[inline(never)]
pub(crate) fn dispatch_out_of_line(
    orb: &OrbContext,
    found: LookupResult<'_>,
    operation: &[u8],
    call: &mut ServerCall<'_>,
    expired: Option<ExpiredDeadline>,
) -> DispatchOutcome {
    dispatch_to_target(orb, found, operation, call, expired)
}

/// Answers a request for an object that does not exist: `_non_existent` returns true, and other
/// operations raise `exception`.
#[cold]
fn answer_missing(operation: &[u8], call: &mut ServerCall<'_>, exception: SystemException) -> DispatchOutcome {
    if !asks_for_existence(operation) {
        return DispatchOutcome::Exception(exception);
    }
    call.reply().write_bool(true);
    DispatchOutcome::Done
}

/// Returns true for `_non_existent`, and for the name that this operation had in CORBA 2.2 and
/// earlier.
fn asks_for_existence(operation: &[u8]) -> bool {
    matches!(operation, b"_non_existent" | b"_not_existent")
}

/// Calls the servant. A panic of the servant becomes the exception UNKNOWN.
#[inline(always)]
fn upcall(
    orb: &OrbContext,
    target: &UpcallTarget<'_>,
    operation: &[u8],
    call: &mut ServerCall<'_>,
    expired: Option<ExpiredDeadline>,
) -> Result<(), SystemException> {
    let Some(_frame) = UpcallScope::enter(target) else {
        let _ = target.finish(operation);
        return Err(
            SystemException::new(Kind::NoResources, 0, Completion::No).with_message("upcalls are nested too deep")
        );
    };
    let max_priority = match expired.map(|expired| expired.begin(orb, operation)).transpose() {
        Ok(max_priority) => max_priority.flatten(),
        Err(exception) => return target.finish(operation).and(Err(exception)),
    };
    let running = UpcallPriority::begin();
    if let Err(exception) = running.apply(orb, target.priority, max_priority) {
        return target.finish(operation).and(Err(exception));
    }
    let skeleton = target.servant.skeleton();
    let result = match catch_unwind(AssertUnwindSafe(|| skeleton.dispatch(operation, call))) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(exception)) if exception.is_unknown_operation() => dispatch_implicit(target, operation, call, exception),
        Ok(Err(exception)) => Err(exception),
        Err(panic) => Err(handle_servant_panic(orb, target, operation, &*panic)),
    };
    #[cfg(feature = "core-pool")]
    let result = if job_budget::can_stop() { stop_over_budget(call, result) } else { result };
    target.finish(operation).and(result)
}

#[cfg(feature = "core-pool")]
#[cold]
fn stop_over_budget(call: &ServerCall<'_>, result: Result<(), SystemException>) -> Result<(), SystemException> {
    if result.is_err() || call.has_raised() || !job_budget::is_job_over_budget() {
        return result;
    }
    job_budget::stop();
    let exception = SystemException::new(Kind::Timeout, crate::minor::OVERRUN, Completion::Yes);
    Err(exception.with_message("the job used more processor time than the budget of its task"))
}

/// Runs one of the operations that every object has (CORBA 3.0.3, section 15.4.2, "operation"). For
/// any other operation returns `exception`. If a servant locator supplied the servant, returns
/// OBJ_ADAPTER instead, because the servant has another interface than the object.
#[cold]
fn dispatch_implicit(
    target: &UpcallTarget<'_>,
    operation: &[u8],
    call: &mut ServerCall<'_>,
    exception: SystemException,
) -> Result<(), SystemException> {
    match operation {
        b"_is_a" => {
            let id = call.arguments().read_string()?;
            call.reply().write_bool(target.servant.is_a(&id));
        }
        _ if asks_for_existence(operation) => call.reply().write_bool(false),
        b"_repository_id" => call.reply().write_str(target.servant.repository_id())?,
        b"_component" => ObjectRef::encode(None, call.reply())?,
        b"_interface" => return Err(not_implemented("there is no interface repository")),
        b"_domain_managers" => return Err(not_implemented("there are no domains")),
        _ if target.is_from_locator() => {
            let code = minor::obj_adapter::WRONG_SERVANT_TYPE;
            let wrong = SystemException::new(Kind::ObjAdapter, code, Completion::No);
            return Err(wrong.with_message("the servant locator returned a servant of another interface"));
        }
        _ => return Err(exception),
    }
    Ok(())
}

#[cold]
fn not_implemented(why: &'static str) -> SystemException {
    SystemException::new(Kind::NoImplement, 0, Completion::No).with_message(why)
}

#[cold]
pub(crate) fn handle_servant_panic(
    orb: &OrbContext,
    target: &UpcallTarget<'_>,
    operation: &[u8],
    panic: &(dyn Any + Send),
) -> SystemException {
    orb.report_panic(target.servant.repository_id(), operation, panic);
    if target.poa.policies().servant_panic_action == ServantPanicAction::Deactivate {
        target.deactivate();
    }
    SystemException::new(Kind::Unknown, 0, Completion::Maybe)
}
