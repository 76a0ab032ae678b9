//! Encoding and sending replies.

use corelane_net::WaitLimit;
use corelane_sys::probe;
use corelane_wire::cdr::MAX_ENCODER_SLICES;
use corelane_wire::giop::{self, ReplyStatus};
use corelane_wire::{Cdr, Encoder};

use super::object_adapter::ObjectAdapter;
use super::upcall::DispatchOutcome;
use crate::event::Event;
use crate::servant::ServerCall;
use crate::server::connection::{Connection, SendError, SendResult};

#[cold]
pub(super) fn encode_non_result(outcome: DispatchOutcome, call: &mut ServerCall<'_>) {
    match outcome {
        DispatchOutcome::Done | DispatchOutcome::Held(_) => {}
        DispatchOutcome::Forward(reference) => {
            let _ = reference.ior().encode(call.restart(ReplyStatus::LocationForward));
        }
        DispatchOutcome::Exception(exception) => exception.encode(call.restart(ReplyStatus::SystemException)),
    }
}

/// Sends a reply. Returns true if a part of the reply waits until the peer reads.
#[inline(always)]
pub(super) fn send(
    adapter: &ObjectAdapter,
    connection: &Connection,
    reply: &mut Encoder<'_>,
    request_id: u32,
    wait: WaitLimit,
) -> bool {
    if giop::finish_message(reply).is_err() {
        connection.close();
        return false;
    }
    let sent = match reply.as_contiguous_slice() {
        Some(whole) if adapter.config().fragment_size.is_none() => connection.send(whole, wait),
        _ => send_in_parts(adapter, connection, reply, request_id, wait),
    };
    probe!("reply sent", request_id.into());
    match sent {
        // The ORB has queued CloseConnection or MessageError on the connection, after which the
        // peer expects no reply.
        SendResult::Complete | SendResult::Failed(SendError::Closing) => false,
        SendResult::Queued => true,
        SendResult::Failed(loss) => {
            close_after_send_error(adapter, connection, loss);
            false
        }
    }
}

/// Calls [`send`] without a copy of its code at the call site.
#[inline(never)]
pub(super) fn send_slow(
    adapter: &ObjectAdapter,
    connection: &Connection,
    reply: &mut Encoder<'_>,
    request_id: u32,
    wait: WaitLimit,
) {
    send(adapter, connection, reply, request_id, wait);
}

#[inline(never)]
pub(super) fn send_in_parts(
    adapter: &ObjectAdapter,
    connection: &Connection,
    reply: &Encoder<'_>,
    request_id: u32,
    wait: WaitLimit,
) -> SendResult {
    let fragments = adapter.config().fragment_size.and_then(|size| crate::fragment::split(reply, request_id, size));
    if let Some(fragments) = fragments {
        return connection.send(&fragments, wait);
    }
    let mut list = [&[][..]; MAX_ENCODER_SLICES];
    connection.send_slices(reply.gather_slices(&mut list, |slice| slice), &|part| reply.share_or_copy(part), wait)
}

#[cold]
pub(super) fn close_after_send_error(adapter: &ObjectAdapter, connection: &Connection, loss: SendError) {
    if matches!(loss, SendError::WriteTimedOut) {
        adapter.events().report(&Event::WriteTimedOut { peer: connection.stream.peer().clone() });
    }
    connection.close();
}
