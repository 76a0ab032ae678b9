//! Oneways that wait for nothing. They use an idle connection as the fast path of calls does, but
//! send only the bytes that the transport takes at once. Programs that send no such oneway do not
//! link this module.

use corelane_wire::Encoder;
use corelane_wire::giop::ResponseExpected;

use super::Operation;
use super::call::{ArgumentWriter, CallRoute, Invocation, RequestSpec};
use super::callee::Callee;
use super::thread_policies::has_thread_policies;
use crate::client::connection::ImmediateSendResult;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::exchange::ExchangeError;
use crate::policy::SyncScope;

fn invocation<'c, 'a>(
    callee: &'c Callee,
    operation: &'c Operation<'c>,
    arguments: ArgumentWriter<'c, 'a>,
) -> Invocation<'c, 'c, 'a> {
    let request = RequestSpec::Call { operation, response: ResponseExpected::None, arguments };
    Invocation::new(callee.context(), callee, request)
}

/// Sends a oneway if an idle connection takes it at once. Does not send a oneway that the fast path
/// does not serve: through a forwarded reference, on a thread with policies, with interceptors, or
/// with a sync scope other than `Transport`.
pub(crate) fn try_oneway<'a>(
    callee: &Callee,
    operation: &Operation<'_>,
    arguments: ArgumentWriter<'_, 'a>,
) -> Result<ImmediateSendResult, SystemException> {
    let context = callee.context();
    context.check_usable()?;
    let scope = callee.policies().sync_scope.unwrap_or(SyncScope::Transport);
    if scope != SyncScope::Transport || has_thread_policies() {
        return Ok(ImmediateSendResult::NotSent);
    }
    let mut call = invocation(callee, operation, arguments);
    let Some((route, chosen)) = CallRoute::preferred(context, callee.binding()) else {
        return Ok(ImmediateSendResult::NotSent);
    };
    let Some(mut connection) = chosen.pool.borrow_idle_now().filter(|connection| !connection.has_unsent()) else {
        return Ok(ImmediateSendResult::NotSent);
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
    let sent = match encoder.as_contiguous_slice() {
        Some(message) if message.len() <= max => own.send_now(message),
        _ => ImmediateSendResult::NotSent,
    };
    own.request_memory = encoder.take_buffer();
    if sent != ImmediateSendResult::NotSent {
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
            .with_message("the connection was closed before the whole message was sent")
    };
    let due = invocation(callee, &NONE, &|_| Ok(())).due;
    let (_, chosen) = CallRoute::preferred(context, callee.binding()).ok_or_else(lost)?;
    let mut connection = chosen.pool.borrow_unsent().ok_or_else(lost)?;
    connection.send_rest(due).map_err(|broken| match broken {
        ExchangeError::TimedOut => SystemException::new(Kind::Timeout, 0, Completion::Maybe),
        ExchangeError::Io(error) => lost().with_message(error.to_string()),
        ExchangeError::Fault(_) | ExchangeError::Cancelled | ExchangeError::OverBudget(_) => lost(),
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;
    use crate::{ObjectRef, Orb};

    const LARGE: usize = 16 << 20;

    fn scene() -> (Orb, ObjectRef, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let orb = Orb::builder().build().unwrap();
        let url = format!("corbaloc::1.2@{}/Key", listener.local_addr().unwrap());
        let object = orb.string_to_object(&url).unwrap().unwrap();
        (orb, object, listener)
    }

    fn try_send(object: &ObjectRef, octets: usize) -> ImmediateSendResult {
        let write = |encoder: &mut Encoder<'_>| {
            encoder.write_bytes(&vec![7; octets]);
            Ok(())
        };
        object.try_send_oneway(&Operation::new("op"), &write).unwrap()
    }

    fn read_message(stream: &mut TcpStream) -> usize {
        let mut head = [0; 12];
        stream.read_exact(&mut head).unwrap();
        let size = u32::from_ne_bytes(head[8..].try_into().unwrap()) as usize;
        stream.read_exact(&mut vec![0; size]).unwrap();
        size
    }

    #[test]
    fn oneway_that_would_wait_is_not_sent_and_a_begun_one_is_finished_before_any_other() {
        let (_orb, object, listener) = scene();
        assert_eq!(try_send(&object, 8), ImmediateSendResult::NotSent, "the reference has no connection");
        object.send_oneway(&Operation::new("op"), &|_| Ok(())).unwrap();
        let mut stream = listener.accept().unwrap().0;
        assert_eq!(try_send(&object, 8), ImmediateSendResult::Sent);
        assert_eq!(try_send(&object, LARGE), ImmediateSendResult::PartlySent);
        assert_eq!(try_send(&object, 8), ImmediateSendResult::NotSent, "the rest of a message is before this one");
        let reader = std::thread::spawn(move || [(); 4].map(|()| read_message(&mut stream)));
        object.finish_oneway().unwrap();
        assert_eq!(try_send(&object, 800), ImmediateSendResult::Sent);
        let sizes = reader.join().unwrap();
        assert!(sizes[1] < 200 && sizes[2] > LARGE && sizes[3] > 800 && sizes[3] < 1_000, "{sizes:?}");
    }

    #[test]
    fn rest_of_a_message_ends_with_its_time_or_its_connection() {
        for closes in [false, true] {
            let (_orb, object, listener) = scene();
            object.send_oneway(&Operation::new("op"), &|_| Ok(())).unwrap();
            let object = if closes { object } else { object.with_timeout(Duration::from_millis(100)) };
            let stream = listener.accept().unwrap().0;
            assert_eq!(try_send(&object, LARGE), ImmediateSendResult::PartlySent);
            let _kept = (!closes).then_some(stream);
            let kind = object.finish_oneway().unwrap_err().kind();
            assert_eq!(kind, if closes { Kind::CommFailure } else { Kind::Timeout });
            assert_eq!(try_send(&object, 8), ImmediateSendResult::NotSent, "the connection is gone");
            assert_eq!(object.finish_oneway().unwrap_err().kind(), Kind::CommFailure);
        }
    }
}
