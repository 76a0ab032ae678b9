//! The handling of a message from a client.

use std::any::Any;
#[cfg(feature = "replies-first")]
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use corelane_net::WaitLimit;
use corelane_sched::{Priority, PriorityBand};
use corelane_sys::buffer::MAX_HEAP_BYTES;
use corelane_sys::probe;
use corelane_wire::cdr::MemoryMeter;
use corelane_wire::cdr::PathRecorder as _;
use corelane_wire::exception::minor;
use corelane_wire::giop::{self, Header, LocateStatus, MessageKind, ReplyStatus, Request, ResponseExpected};
use corelane_wire::{CdrError, Decoder, Encoder, Limits};

use super::contexts::{BIND_BAND, RequestContexts, read_contexts};
use super::locate::locate;
use super::object_adapter::ObjectAdapter;
use super::reply::{encode_non_result, send, send_slow};
use super::upcall::{DispatchOutcome, ExpiredDeadline, dispatch_out_of_line, dispatch_to_target};
use crate::clock;
use crate::event::Event;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::fault::PeerFault;
use crate::interceptor::{InterceptionPoints, RequestInfo, RequestOutcome, RequestServiceContexts};
use crate::memory::explain_refusal;
use crate::poa::{ClientPriority, Lookup, LookupResult, ParkResult, WaitFor};
use crate::servant::ServerCall;
use crate::server::connection::Connection;
use crate::server::final_messages::message_error;
use crate::server::lane::LaneTask;
#[cfg(feature = "replies-first")]
use crate::server::large_replies::MIN_LARGE_REPLY;
use crate::server::memory_budget::RunningRequest;
use crate::server::message::{Message, RequestMemory};
use crate::server::parked_request::{ParkedRequest, ResumeOn};
use crate::server::strategy::Lane;
use crate::server::worker::Worker;
use crate::text;
use crate::thread_context::RequestScope;

/// Handles a message. Returns false if the connection is closed, or must be closed because of this
/// message.
#[inline]
pub(super) fn handle_message(
    adapter: &Arc<ObjectAdapter>,
    connection: &Arc<Connection>,
    header: &Header,
    (octets, breaks): (&[u8], &[usize]),
    memory: &mut RequestMemory,
    wait: WaitLimit,
    waited: Duration,
) -> bool {
    let served = match header.kind {
        MessageKind::Request => handle_request(adapter, connection, header, (octets, breaks), memory, wait, waited),
        MessageKind::LocateRequest => locate(adapter, connection, header, octets, memory, wait),
        // The ORB need not act on a CancelRequest (CORBA 3.0.3, section 15.4.4), so it is ignored.
        MessageKind::CancelRequest => Ok(()),
        MessageKind::CloseConnection | MessageKind::MessageError => return false,
        MessageKind::Reply | MessageKind::LocateReply | MessageKind::Fragment => {
            Err(PeerFault::UnexpectedMessage(header.kind))
        }
    };
    match served {
        Ok(()) => !connection.is_closed(),
        Err(fault) => {
            reject_message(adapter, connection, fault);
            false
        }
    }
}

#[cold]
fn reject_message(adapter: &ObjectAdapter, connection: &Connection, fault: PeerFault) {
    adapter.events().report(&Event::ProtocolFault { peer: connection.stream.peer().clone(), fault });
    connection.queue_last_message(&message_error(), clock::now(), adapter.config().drain_timeout);
}

#[inline]
fn handle_request(
    adapter: &Arc<ObjectAdapter>,
    connection: &Arc<Connection>,
    header: &Header,
    (octets, breaks): (&[u8], &[usize]),
    memory: &mut RequestMemory,
    wait: WaitLimit,
    waited: Duration,
) -> Result<(), PeerFault> {
    let limits = &adapter.config().limits;
    let mut request = Request::with_unparsed_header(octets, header);
    request.parse_header(limits)?;
    probe!("request parsed", request.request_id.into());
    let contexts = if request.contexts.is_empty() {
        RequestContexts::default()
    } else {
        read_contexts(adapter, connection, &request)?
    };
    let _request = RequestScope::begin(connection.origin.id, connection.origin.lane_numbers);
    let expired = contexts.remaining.and_then(|remaining| ExpiredDeadline::after(waited, remaining));
    let code_sets = connection.code_sets(header.version);
    memory.scratch.reset();
    let account = RunningRequest::new(connection.memory_use());
    let meter = MemoryMeter::new(&account);
    let fits = octets.len() <= MAX_HEAP_BYTES || meter.charge_existing(octets.len()).is_ok();
    let (values, env): (_, &(dyn Any + Sync)) = (adapter.value_read_state(), adapter.client());
    let arguments = Decoder::new(octets, header.endian)
        .at_position(request.body_offset)
        .with_version(header.version)
        .with_code_sets(code_sets)
        .with_limits(limits)
        .with_scratch(&memory.scratch)
        .with_value_read_state(&values)
        .with_memory_meter(&meter)
        .with_decoding_context(env);
    let mut reply = Encoder::with_buffer(std::mem::take(&mut memory.reply));
    reply.set_version(header.version);
    reply.set_code_sets(code_sets);
    let wanted = request.response_expected;
    let head = Some((header.version, request.request_id));
    let mut call = ServerCall::new(arguments, reply, head, contexts.reply_priority);
    call.arguments().set_fragment_starts(breaks);
    call.begin(ReplyStatus::NoException);
    if wanted == ResponseExpected::Server {
        // With SyncScope::Server the reply is sent before the upcall.
        send_slow(adapter, connection, call.reply(), request.request_id, wait);
        call.restart(ReplyStatus::NoException);
    }
    let key = object_key(&request.target, limits);
    let mut is_shown = false;
    let mut outcome = match (contexts.refused, contexts.band, key) {
        _ if !fits => DispatchOutcome::Exception(CdrError::MemoryBudgetExceeded.into()),
        (Some(exception), ..) => {
            report_refused(adapter, connection, request.operation, &exception);
            DispatchOutcome::Exception(exception)
        }
        (None, _, None) => DispatchOutcome::Exception(crate::poa::no_such_object()),
        (None, Some(band), Some(key)) => bind_band(adapter, connection, key, band)
            .map_or_else(DispatchOutcome::Exception, |()| DispatchOutcome::Done),
        (None, None, Some(key)) => {
            let band = contexts.priority.and_then(|_| connection.bound_band());
            let priority = ClientPriority::Propagated(contexts.priority);
            let (operation, origin) = (request.operation, Some(&connection.origin));
            let wanted = Lookup { key, operation, priority, band, origin };
            adapter.poa_table().look_up(wanted, |found| {
                if let LookupResult::PriorityRefused(exception) = &found {
                    report_refused(adapter, connection, operation, exception);
                }
                match adapter.interceptors() {
                    Some(points) if !matches!(found, LookupResult::MustWait(_)) => {
                        is_shown = true;
                        let info = describe(connection, &request, key, points.next_number());
                        dispatch_intercepted(adapter, points, &info, &request, found, &mut call, expired)
                    }
                    _ => dispatch_to_target(adapter, found, operation, &mut call, expired),
                }
            })
        }
    };
    if let DispatchOutcome::Exception(exception) = &mut outcome {
        report_unreadable(adapter, connection, (request.operation, call.arguments()), exception, &meter);
    }
    if let DispatchOutcome::Held(until) = &outcome {
        let message = Message::Assembled(*header, octets.to_vec(), breaks.to_vec());
        match park(adapter, connection, until, message, wanted, waited) {
            Ok(()) => {
                memory.reply = call.reply().take_buffer();
                return Ok(());
            }
            Err(exception) => outcome = DispatchOutcome::Exception(exception),
        }
    }
    if let (false, Some(points)) = (is_shown, adapter.interceptors())
        && request.operation != BIND_BAND
    {
        let info = describe(connection, &request, key.unwrap_or_default(), points.next_number());
        show_refused(points, &info, &request, &outcome);
    }
    if wanted == ResponseExpected::Target {
        if !matches!(outcome, DispatchOutcome::Done) {
            encode_non_result(outcome, &mut call);
        }
        let _is_queued = send(adapter, connection, call.reply(), request.request_id, wait);
        #[cfg(feature = "replies-first")]
        if _is_queued {
            remember_large_reply(connection, key, request.operation, call.reply().len());
        }
    }
    memory.reply = call.reply().take_buffer();
    Ok(())
}

#[cfg(feature = "replies-first")]
#[cold]
fn remember_large_reply(connection: &Connection, key: Option<&[u8]>, operation: &[u8], bytes: usize) {
    if let Some(key) = key
        && bytes >= MIN_LARGE_REPLY
    {
        connection.memory_use().memory_budget().large_replies().add(hash_operation(key, operation));
    }
}

#[cfg(feature = "replies-first")]
fn hash_operation(key: &[u8], operation: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (key, operation).hash(&mut hasher);
    // 0 marks an empty place of the table of large replies, so a hash is never 0.
    hasher.finish() | 1
}

#[cfg(feature = "replies-first")]
#[cold]
pub(super) fn operation_hash(adapter: &ObjectAdapter, header: &Header, octets: &[u8]) -> Option<u64> {
    let limits = &adapter.config().limits;
    let request = (header.kind == MessageKind::Request).then(|| Request::parse(octets, header, limits).ok())??;
    let key = object_key(&request.target, limits)?;
    (request.response_expected == ResponseExpected::Target).then(|| hash_operation(key, request.operation))
}

#[cold]
fn dispatch_intercepted(
    adapter: &ObjectAdapter,
    points: &dyn InterceptionPoints,
    info: &RequestInfo<'_>,
    request: &Request<'_>,
    found: LookupResult<'_>,
    call: &mut ServerCall<'_>,
    expired: Option<ExpiredDeadline>,
) -> DispatchOutcome {
    if let Err(exception) = points.receive_request(info, &RequestServiceContexts(request.contexts)) {
        let finished = match found {
            LookupResult::Servant(target) => target.finish(request.operation),
            _ => Ok(()),
        };
        return DispatchOutcome::Exception(finished.err().unwrap_or(exception));
    }
    let outcome = dispatch_out_of_line(adapter, found, request.operation, call, expired);
    points.send_reply(info, &shown_outcome(&outcome, call.has_raised()));
    outcome
}

#[cold]
fn show_refused(
    points: &dyn InterceptionPoints,
    info: &RequestInfo<'_>,
    request: &Request<'_>,
    outcome: &DispatchOutcome,
) {
    if points.receive_request(info, &RequestServiceContexts(request.contexts)).is_ok() {
        points.send_reply(info, &shown_outcome(outcome, false));
    }
}

fn shown_outcome(outcome: &DispatchOutcome, has_raised: bool) -> RequestOutcome<'_> {
    match outcome {
        DispatchOutcome::Done if has_raised => RequestOutcome::UserException,
        DispatchOutcome::Done | DispatchOutcome::Held(_) => RequestOutcome::Returned,
        DispatchOutcome::Forward(_) => RequestOutcome::Forwarded,
        DispatchOutcome::Exception(exception) => RequestOutcome::SystemException(exception),
    }
}

fn describe<'r>(
    connection: &'r Connection,
    request: &Request<'r>,
    object_key: &'r [u8],
    number: u64,
) -> RequestInfo<'r> {
    RequestInfo {
        number,
        operation: request.operation,
        object_key,
        peer: connection.stream.peer(),
        response_expected: request.response_expected != ResponseExpected::None,
    }
}

/// Reports a refused request if its arguments exceeded the memory limit or could not be decoded. If
/// they exceeded the limit, the exception gets the amount of memory that the request needed.
#[cold]
fn report_unreadable(
    adapter: &ObjectAdapter,
    connection: &Connection,
    (operation, arguments): (&[u8], &Decoder<'_>),
    exception: &mut SystemException,
    meter: &MemoryMeter<'_>,
) {
    const SETTING: &str = "ConnectionLimits::max_buffered_bytes";
    if explain_refusal(exception, meter, "the request exceeds the memory limit", SETTING)
        || arguments.value_path().is_some()
    {
        report_refused(adapter, connection, operation, exception);
    }
}

/// Parks a request. With SyncScope::Server the reply has been sent, so the parked request asks for
/// no reply. `waited` is the time since the request was read.
#[cold]
fn park(
    adapter: &Arc<ObjectAdapter>,
    connection: &Arc<Connection>,
    until: &WaitFor,
    mut message: Message,
    wanted: ResponseExpected,
    waited: Duration,
) -> Result<(), SystemException> {
    if wanted == ResponseExpected::Server
        && let Message::Assembled(_, octets, _) = &mut message
        && let Some(flags) = octets.get_mut(RESPONSE_FLAGS)
    {
        *flags = 0;
    }
    park_message(adapter, connection, until, message, waited)
}

/// Offset in bytes of the response flags in a GIOP 1.2 request (CORBA 3.0.3, section 15.4.2).
const RESPONSE_FLAGS: usize = 16;

#[inline]
pub(super) fn object_key<'m>(target: &giop::TargetAddress<'m>, limits: &Limits) -> Option<&'m [u8]> {
    match target {
        giop::TargetAddress::Key(key) => Some(key),
        other => crate::address::key_in_profile(other, limits),
    }
}

/// Returns the CORBA priority by which a queue orders the request; `None` means the priority of the
/// pool. A request with a refused priority is last.
#[cold]
pub(super) fn effective_priority(adapter: &ObjectAdapter, connection: &Connection, message: &Message) -> Option<i16> {
    const LAST: i16 = -1;
    let limits = &adapter.config().limits;
    let (header, octets) = message.parts();
    let request = (header.kind == MessageKind::Request).then(|| Request::parse(octets, header, limits).ok())??;
    let contexts = RequestContexts::of_priority(connection, &request);
    if contexts.refused.is_some() {
        return Some(LAST);
    }
    let key = object_key(&request.target, limits)?;
    adapter
        .poa_table()
        .effective_priority(adapter, key, contexts.priority, connection.origin.ceiling)
        .map(Priority::get)
}

/// Rejects a Request or LocateRequest for which the lane has no room. The reply is TRANSIENT with
/// the minor code `minor`, if the message expects a reply that can carry an exception.
#[cold]
pub(super) fn reject(
    adapter: &ObjectAdapter,
    connection: &Connection,
    (header, octets): (&Header, &[u8]),
    minor: u32,
    memory: &mut RequestMemory,
) {
    let exception = SystemException::new(Kind::Transient, minor, Completion::No);
    if header.kind == MessageKind::LocateRequest {
        let Ok(request) = giop::LocateRequest::parse(octets, header, &adapter.config().limits) else { return };
        let mut reply = Encoder::with_buffer(std::mem::take(&mut memory.reply));
        if header.version.has_locate_exceptions() {
            let status = LocateStatus::SystemException;
            giop::begin_locate_reply(&mut reply, header.version, request.request_id, status);
            exception.encode(&mut reply);
        } else {
            // A LocateReply of GIOP 1.0 or 1.1 cannot carry the exception, so it says that the
            // object is here.
            giop::begin_locate_reply(&mut reply, header.version, request.request_id, LocateStatus::ObjectHere);
        }
        send_slow(adapter, connection, &mut reply, request.request_id, WaitLimit::Now);
        memory.reply = reply.into_reusable_buffer();
        return;
    }
    if header.kind != MessageKind::Request {
        return;
    }
    let Ok(request) = Request::parse(octets, header, &adapter.config().limits) else { return };
    if !request.response_expected.is_expected() {
        return;
    }
    let reply = Encoder::with_buffer(std::mem::take(&mut memory.reply));
    let mut call = ServerCall::new(request.body(), reply, Some((header.version, request.request_id)), None);
    exception.encode(call.restart(ReplyStatus::SystemException));
    send_slow(adapter, connection, call.reply(), request.request_id, WaitLimit::Now);
    memory.reply = call.reply().take_buffer();
}

/// Parks a message or hands it to another lane. `waited` is the time since the message was read.
#[cold]
pub(super) fn park_message(
    adapter: &Arc<ObjectAdapter>,
    connection: &Arc<Connection>,
    until: &WaitFor,
    message: Message,
    waited: Duration,
) -> Result<(), SystemException> {
    #[cfg(feature = "core-pool")]
    crate::job_budget::record_parked();
    let waiting = connection.add_waiting_request(waited);
    if let WaitFor::Lane(lane) = until {
        connection.record_hand_over();
        adapter.events().request_handed_over();
        let full = || SystemException::new(Kind::Transient, minor::transient::DISCARDED, Completion::No);
        let handed_over = lane.hand_over(LaneTask::Dispatch(waiting, message));
        return if handed_over { Ok(()) } else { Err(full()) };
    }
    let octets = if let Message::Assembled(_, octets, _) = &message { octets.len() } else { 0 };
    let adapter = Arc::downgrade(adapter);
    let resume = move |thread| match thread {
        ResumeOn::ConnectionThread => {
            if let Some(lane) = Lane::of(&waiting) {
                lane.resume(waiting, message);
            }
        }
        ResumeOn::CurrentThread => {
            if let (Some(adapter), Some(lane)) = (adapter.upgrade(), Lane::of(&waiting)) {
                lane.run_waiting(&adapter, &mut Worker::new(), waiting, message);
            }
        }
    };
    match until.park(ParkedRequest { bytes: octets, resume: Box::new(resume) }) {
        ParkResult::Parked => Ok(()),
        ParkResult::AlreadySignalled(held) => {
            held.release();
            Ok(())
        }
        ParkResult::Full => Err(SystemException::new(Kind::Transient, minor::transient::DISCARDED, Completion::No)),
    }
}

#[cold]
fn bind_band(
    adapter: &ObjectAdapter,
    connection: &Connection,
    key: &[u8],
    (low, high): (i16, i16),
) -> Result<(), SystemException> {
    let refused = |kind, minor, why: String| {
        let exception = SystemException::new(kind, minor, Completion::No).with_message(why);
        report_refused(adapter, connection, BIND_BAND, &exception);
        exception
    };
    let Ok(band) = PriorityBand::new(low, high) else {
        return Err(refused(Kind::BadParam, 0, format!("{low} to {high} is not a priority band")));
    };
    let poa = adapter.poa_table().poa_of(key).ok_or_else(crate::poa::no_such_object)?;
    if !poa.can_carry_band(band).ok_or_else(SystemException::bad_operation)? {
        let why = format!("no lane or band is within {low} to {high}");
        return Err(refused(Kind::InvPolicy, minor::inv_policy::IRRECONCILABLE, why));
    }
    connection.set_band(band);
    Ok(())
}

#[cold]
fn report_refused(adapter: &ObjectAdapter, connection: &Connection, operation: &[u8], exception: &SystemException) {
    let peer = connection.stream.peer().clone();
    let operation = text::shown(operation);
    adapter.events().report(&Event::RequestRefused { peer, operation, exception: exception.clone() });
}

#[cfg(all(test, feature = "replies-first"))]
mod tests {
    use super::hash_operation;
    use crate::server::large_replies::LargeReplies;

    #[test]
    fn operations_use_all_places_of_the_table() {
        let large = LargeReplies::new();
        let hashes: Vec<_> =
            (0..1000).map(|number| hash_operation(b"key", format!("get_{number}").as_bytes())).collect();
        hashes.iter().for_each(|hash| large.add(*hash));
        // The table has 64 places, each for one operation, so some operations displace others.
        assert!(hashes.iter().filter(|hash| large.contains(**hash)).count() > 48);
    }
}
