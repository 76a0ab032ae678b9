//! The opening of connections in advance, so that the first calls need not connect.

use std::sync::Arc;

use corelane_sched::Priority;
use corelane_sys::clock::Monotonic;
use corelane_wire::exception::minor;
use corelane_wire::giop::AddressingMode;

use super::call::{AttemptError, CallRoute, Invocation, RequestSpec};
use super::callee::Callee;
use super::target::{TargetProfiles, UsableProfile};
use super::thread_policies::with_thread_policies;
use crate::client::checkout::Checkout;
use crate::client::pool::AcquireError;
use crate::client::try_order::AttemptTime;
use crate::clock;
use crate::exception::{CallPhase, Completion, FailureDetail, SystemException, SystemExceptionKind as Kind};

/// Makes sure that `count` exclusive connections exist for calls at each CORBA priority in
/// `priorities`, and that the server knows their bands. Does nothing for an object that may belong
/// to this ORB.
///
/// # Errors
/// BAD_PARAM for an invalid priority. NO_RESOURCES if `count` exceeds the ORB's maximum number of
/// connections to one server, or if other calls use too many of them. If a connection cannot be
/// made, the exception that a call would raise.
#[cold]
pub(crate) fn preconnect(callee: &Callee, priorities: &[i16], count: usize) -> Result<(), SystemException> {
    let callee = &with_thread_policies(callee);
    let context = callee.context();
    context.check_usable()?;
    let call = Invocation::new(context, callee, RequestSpec::Locate);
    if callee.binding().may_be_local(context) {
        return Ok(());
    }
    let bad = || SystemException::new(Kind::BadParam, 0, Completion::No).with_message("a priority must be 0 to 32767");
    let priorities: Vec<Priority> =
        priorities.iter().map(|priority| Priority::new(*priority).ok_or_else(bad)).collect::<Result<_, _>>()?;
    let target = callee.binding().forwarded().unwrap_or_else(|| Arc::clone(callee.binding().original(context)));
    let mut failure = SystemException::new(Kind::Transient, minor::transient::NO_USABLE_PROFILE, Completion::No)
        .with_message("the reference has no usable profile");
    let (order, deadline) = (target.try_order(context), call.due.to_absolute().latest());
    for (tried, profile) in order.in_order().filter_map(|index| target.profiles.get(index)).enumerate() {
        // Each profile gets an equal share of the remaining time, so a profile that does not answer
        // leaves time for the profiles behind it.
        let left = u32::try_from(target.profiles.len() - tried).unwrap_or(u32::MAX);
        let until = AttemptTime::Share(left).deadline(clock::now(), deadline, 1);
        let made =
            priorities.iter().try_for_each(|priority| connect_at(&call, &target, profile, *priority, count, until));
        match made {
            Ok(()) => return Ok(()),
            Err(exception) => failure = exception,
        }
    }
    Err(failure)
}

fn connect_at(
    call: &Invocation<'_, '_, '_>,
    target: &TargetProfiles,
    profile: &UsableProfile,
    priority: Priority,
    count: usize,
    until: Option<Monotonic>,
) -> Result<(), SystemException> {
    let chosen = profile.select_pool_at(call.context, priority)?;
    let route = CallRoute { target, profile, addressing: AddressingMode::Key };
    // A connection that returned to the pool earlier would be checked out again in place of a new
    // one, so all connections are held until the end.
    let mut made: Vec<Checkout<'_>> = Vec::new();
    for _ in 0..count {
        let Some(free) = chosen.pool.take_free(0) else {
            let exception = SystemException::new(Kind::NoResources, 0, Completion::No);
            return Err(
                exception.with_message("the maximum number of connections to the server does not permit a further one")
            );
        };
        let connection = chosen.pool.ensure_connected(free, call.context, until, 0).map_err(no_connection)?;
        made.push(match chosen.pool.band().range().filter(|_| connection.needs_band_declaration()) {
            Some(range) => call.declare_band(route, connection, range).map_err(|error| not_bound(*error))?,
            None => connection,
        });
    }
    Ok(())
}

fn no_connection(why: AcquireError) -> SystemException {
    let transient = |message: &str| {
        SystemException::new(Kind::Transient, minor::transient::NO_USABLE_PROFILE, Completion::No).with_message(message)
    };
    match why {
        AcquireError::ConnectFailed(error) => transient(&error.to_string()),
        AcquireError::AllBusy => transient("all connections that the maximum permits to the server are in use"),
        AcquireError::TimedOut => {
            let detail = FailureDetail { phase: Some(CallPhase::Connect), ..FailureDetail::default() };
            SystemException::new(Kind::Timeout, minor::timeout::REQUEST_END_TIME, Completion::No).with_detail(detail)
        }
    }
}

fn not_bound(error: AttemptError) -> SystemException {
    match error {
        AttemptError::Raised(exception) | AttemptError::Refused(exception) => exception,
        AttemptError::Failed(_, detail) => {
            SystemException::new(Kind::CommFailure, 0, Completion::No).with_detail(detail)
        }
        AttemptError::Forward(_) | AttemptError::NeedsAddressing(_) => {
            SystemException::new(Kind::Transient, minor::transient::NO_USABLE_PROFILE, Completion::No)
        }
    }
}
