//! Connections that are made before the first call needs them.

use std::sync::Arc;

use corelane_sched::Priority;
use corelane_wire::exception::minor;
use corelane_wire::giop::AddressingMode;

use super::call::{Call, Request, Trouble, Way};
use super::target::{Profile, Target};
use crate::client::pool::{Checkout, NoConnection};
use crate::exception::{Completion, Detail, Phase, SystemException, SystemExceptionKind as Kind};
use crate::object::ObjectRef;

/// Makes sure that `each` connections are there for calls at each of `priorities`, their bands declared.
///
/// # Errors
/// BAD_PARAM for a number that is no priority; NO_RESOURCES for more connections than the ORB makes to one server; else why they cannot
/// be made.
#[cold]
pub(crate) fn establish(object: &ObjectRef, priorities: &[i16], each: usize) -> Result<(), SystemException> {
    let core = object.core();
    let object = &crate::rt::client::under_policies_of_thread(core, object);
    core.check_usable()?;
    let call = Call::new(core, object, Request::Locate);
    if object.binding().may_be_local(core) {
        return Ok(());
    }
    let bad = || SystemException::new(Kind::BadParam, 0, Completion::No).because("a priority is 0 to 32767");
    let priorities: Vec<Priority> =
        priorities.iter().map(|priority| Priority::new(*priority).ok_or_else(bad)).collect::<Result<_, _>>()?;
    let target = object.binding().forwarded().unwrap_or_else(|| Arc::clone(object.binding().original(core)));
    let mut failure = SystemException::new(Kind::Transient, minor::transient::NO_USABLE_PROFILE, Completion::No)
        .because("no profile is of use");
    for profile in &target.profiles {
        let made = priorities.iter().try_for_each(|priority| at(&call, &target, profile, *priority, each));
        match made {
            Ok(()) => return Ok(()),
            Err(exception) => failure = exception,
        }
    }
    Err(failure)
}

fn at(
    call: &Call<'_, '_, '_>,
    target: &Target,
    profile: &Profile,
    priority: Priority,
    each: usize,
) -> Result<(), SystemException> {
    let chosen = profile.choose_at(call.core, priority)?;
    let way = Way { target, profile, addressing: AddressingMode::Key };
    let until = call.due.fixed().moment();
    // All of them at once: one that is given back would be found again.
    let mut made: Vec<Checkout<'_>> = Vec::new();
    for _ in 0..each {
        let Some(free) = chosen.pool.free(0) else {
            let exception = SystemException::new(Kind::NoResources, 0, Completion::No);
            return Err(exception.because("no further connection may be made to the server"));
        };
        let connection = chosen.pool.ready(free, call.core, until, 0).map_err(no_connection)?;
        made.push(match chosen.pool.band().range().filter(|_| connection.is_unbound()) {
            Some(range) => call.bind(way, connection, range).map_err(|trouble| not_bound(*trouble))?,
            None => connection,
        });
    }
    Ok(())
}

fn no_connection(why: NoConnection) -> SystemException {
    let transient = |message: &str| {
        SystemException::new(Kind::Transient, minor::transient::NO_USABLE_PROFILE, Completion::No).because(message)
    };
    match why {
        NoConnection::Failed(error) => transient(&error.to_string()),
        NoConnection::AllBusy => transient("every connection that may be made to the server is in use"),
        NoConnection::TimedOut => {
            let detail = Detail { phase: Some(Phase::Connect), ..Detail::default() };
            SystemException::new(Kind::Timeout, minor::timeout::REQUEST_END_TIME, Completion::No).with_detail(detail)
        }
    }
}

fn not_bound(trouble: Trouble) -> SystemException {
    match trouble {
        Trouble::Raised(exception) | Trouble::Refused(exception) => exception,
        Trouble::Failed(_, detail) => SystemException::new(Kind::CommFailure, 0, Completion::No).with_detail(detail),
        Trouble::Forward(_) | Trouble::NeedsAddressing(_) => {
            SystemException::new(Kind::Transient, minor::transient::NO_USABLE_PROFILE, Completion::No)
        }
    }
}
