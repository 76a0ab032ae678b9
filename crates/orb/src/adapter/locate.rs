//! Replies to LocateRequests.

use std::sync::Arc;
use std::time::Duration;

use corelane_net::WaitLimit;
use corelane_wire::giop::{self, Header, LocateStatus};
use corelane_wire::{Cdr, Encoder};

use super::object_adapter::ObjectAdapter;
use super::reply::send_slow;
use super::request::{object_key, park_message};
use crate::fault::PeerFault;
use crate::poa::LocateResult;
use crate::server::connection::Connection;
use crate::server::message::{Message, RequestMemory};

/// Answers a LocateRequest. Parks it if its object cannot be found yet, for example because a POA
/// manager holds requests.
#[cold]
pub(super) fn locate(
    adapter: &Arc<ObjectAdapter>,
    connection: &Arc<Connection>,
    header: &Header,
    octets: &[u8],
    memory: &mut RequestMemory,
    wait: WaitLimit,
) -> Result<(), PeerFault> {
    let request = giop::LocateRequest::parse(octets, header, &adapter.config().limits)?;
    let mut reply = Encoder::with_buffer(std::mem::take(&mut memory.reply));
    let mut located = object_key(&request.target, &adapter.config().limits)
        .map_or(LocateResult::UnknownObject, |key| adapter.poa_table().locate(key));
    if let LocateResult::MustWait(until) = &located {
        let message = Message::Assembled(*header, octets.to_vec(), Vec::new());
        match park_message(adapter, connection, until, message, Duration::ZERO) {
            Ok(()) => {
                memory.reply = reply.into_reusable_buffer();
                return Ok(());
            }
            Err(exception) => located = LocateResult::Exception(exception),
        }
    }
    let status = match &located {
        LocateResult::ObjectHere | LocateResult::MustWait(_) => LocateStatus::ObjectHere,
        LocateResult::Forward(_) => LocateStatus::ObjectForward,
        LocateResult::Exception(_) if header.version.has_locate_exceptions() => LocateStatus::SystemException,
        // A LocateReply of GIOP 1.0 or 1.1 cannot carry an exception, so it reports an unknown
        // object.
        LocateResult::UnknownObject | LocateResult::Exception(_) => LocateStatus::UnknownObject,
    };
    giop::begin_locate_reply(&mut reply, header.version, request.request_id, status);
    match (status, located) {
        (LocateStatus::ObjectForward, LocateResult::Forward(reference)) => {
            let _ = reference.ior().encode(&mut reply);
        }
        (LocateStatus::SystemException, LocateResult::Exception(exception)) => exception.encode(&mut reply),
        _ => {}
    }
    send_slow(adapter, connection, &mut reply, request.request_id, wait);
    memory.reply = reply.into_reusable_buffer();
    Ok(())
}
