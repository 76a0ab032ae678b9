//! Oneways that wait for nothing. They use the connection and the form of the fast path of calls,
//! but send only what the transport takes at once. Programs that never send so do not link this
//! module.

use corelane_wire::Encoder;
use corelane_wire::giop::ResponseExpected;

use super::Operation;
use super::call::{ArgumentWriter, CallRoute, Invocation, RequestSpec};
use super::callee::Callee;
use super::thread_policies::has_thread_policies;
use crate::client::connection::ImmediateSend;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::exchange::ExchangeError;

fn invocation<'c, 'a>(
    callee: &'c Callee,
    operation: &'c Operation<'c>,
    arguments: ArgumentWriter<'c, 'a>,
) -> Invocation<'c, 'c, 'a> {
    let request = RequestSpec::Call { operation, response: ResponseExpected::None, arguments };
    Invocation::new(callee.context(), callee, request)
}

/// Sends a oneway if an idle connection takes it at once. Calls that the fast path does not serve
/// are not sent: those of forwarded references, of threads with policies, and with interceptors.
pub(crate) fn try_oneway<'a>(
    callee: &Callee,
    operation: &Operation<'_>,
    arguments: ArgumentWriter<'_, 'a>,
) -> Result<ImmediateSend, SystemException> {
    let context = callee.context();
    context.check_usable()?;
    if has_thread_policies() {
        return Ok(ImmediateSend::NotSent);
    }
    let mut call = invocation(callee, operation, arguments);
    let Some((route, chosen)) = CallRoute::preferred(context, callee.binding()) else {
        return Ok(ImmediateSend::NotSent);
    };
    let Some(mut connection) = chosen.pool.borrow_idle_now().filter(|connection| !connection.has_unsent()) else {
        return Ok(ImmediateSend::NotSent);
    };
    call.priority = chosen.priority;
    let own = &mut *connection;
    let id = own.next_request_id();
    let announce = call.code_sets_to_announce(route, own.announced);
    let announced = own.announced.or(announce);
    let mut encoder = Encoder::with_buffer(std::mem::take(&mut own.request_memory));
    encoder.set_code_sets(announced.unwrap_or(route.profile.default_code_sets));
    if let Err(error) = call.write(&mut encoder, route, id, announce, &[]) {
        let exception = crate::trail::unwritable(error, "argument ", &encoder);
        own.request_memory = encoder.take_buffer();
        return Err(exception);
    }
    let max = context.config().fragment_size.unwrap_or(usize::MAX);
    let sent = match encoder.contiguous() {
        Some(message) if message.len() <= max => own.send_now(message),
        _ => ImmediateSend::NotSent,
    };
    own.request_memory = encoder.take_buffer();
    if sent != ImmediateSend::NotSent {
        own.announced = announced;
        callee.binding().record_first_reply(route.profile);
    }
    Ok(sent)
}

/// Sends the rest of the message that [`try_oneway`] has begun.
pub(crate) fn finish_oneway(callee: &Callee) -> Result<(), SystemException> {
    static NONE: Operation<'_> = Operation::new("");
    let context = callee.context();
    context.check_usable()?;
    let lost = || {
        SystemException::new(Kind::CommFailure, 0, Completion::Maybe)
            .because("the connection was closed before the whole message was sent")
    };
    let due = invocation(callee, &NONE, &|_| Ok(())).due;
    let (_, chosen) = CallRoute::preferred(context, callee.binding()).ok_or_else(lost)?;
    let mut connection = chosen.pool.borrow_unsent().ok_or_else(lost)?;
    connection.send_rest(due).map_err(|broken| match broken {
        ExchangeError::TimedOut => SystemException::new(Kind::Timeout, 0, Completion::Maybe),
        ExchangeError::Io(error) => lost().because(error.to_string()),
        ExchangeError::Fault(_) | ExchangeError::Cancelled | ExchangeError::OverBudget(_) => lost(),
    })
}
