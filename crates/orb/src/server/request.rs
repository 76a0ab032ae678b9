//! The handling of a message from a client: its target, the upcall and the reply.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use corelane_net::Wait;
use corelane_sched::{Priority, PriorityBand};
use corelane_sys::buffer::MAX_HEAP_BYTES;
use corelane_sys::probe;
use corelane_wire::cdr::PathRecorder as _;
use corelane_wire::cdr::{MAX_SLICES, Meter};
use corelane_wire::codeset::CodeSetContext;
use corelane_wire::connection::ProtocolFault;
use corelane_wire::exception::minor;
use corelane_wire::giop::{
    self, Header, LocateStatus, MessageKind, ReplyStatus, Request, ResponseExpected, context_id,
};
use corelane_wire::{Cdr, CdrError, Decoder, Encoder, Limits, WideOrder, rt};

use super::connection::{Connection, SendError, SendResult};
use super::lane::Task;
use super::memory_budget::RunningRequest;
use super::worker::{Message, RequestMemory, Worker};
use crate::clock;
use crate::current::UpcallScope;
use crate::event::Event;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::fault::Fault;
use crate::memory::explain_refusal;
use crate::object::ObjectRef;
use crate::orb::Core;
use crate::poa::{
    ClientPriority, LocateResult, Lookup, LookupResult, OnPanic, ParkResult, ParkedRequest, ResumeOn, UpcallTarget,
    WaitFor,
};
use crate::rt::ceiling::Ceiling;
use crate::rt::thread_context::RequestScope;
use crate::rt::{ExpiredRequestAction, UpcallPriority};
use crate::servant::ServerCall;
use crate::text;

/// Does what one message asks for, which has `waited` since it was read. Its bytes come with the
/// places where GIOP 1.1 fragments begin. Returns false when the connection is over.
#[inline]
pub(crate) fn handle_message(
    core: &Arc<Core>,
    connection: &Arc<Connection>,
    header: &Header,
    (octets, breaks): (&[u8], &[usize]),
    memory: &mut RequestMemory,
    wait: Wait,
    waited: Duration,
) -> bool {
    let served = match header.kind {
        MessageKind::Request => handle_request(core, connection, header, (octets, breaks), memory, wait, waited),
        MessageKind::LocateRequest => locate(core, connection, header, octets, memory, wait),
        // A hint: a running request goes on, and the client skips its reply.
        MessageKind::CancelRequest => Ok(()),
        MessageKind::CloseConnection | MessageKind::MessageError => return false,
        MessageKind::Reply | MessageKind::LocateReply | MessageKind::Fragment => Err(Fault::Unexpected(header.kind)),
    };
    match served {
        Ok(()) => !connection.is_closed(),
        Err(fault) => {
            reject_message(core, connection, fault);
            false
        }
    }
}

/// Sends MessageError and ends the connection.
#[cold]
fn reject_message(core: &Core, connection: &Connection, fault: Fault) {
    core.events().report(&Event::ProtocolFault { peer: connection.stream.peer().clone(), fault });
    connection.queue_last_message(&message_error(), clock::now(), core.config().closing_time);
}

#[inline]
fn handle_request(
    core: &Arc<Core>,
    connection: &Arc<Connection>,
    header: &Header,
    (octets, breaks): (&[u8], &[usize]),
    memory: &mut RequestMemory,
    wait: Wait,
    waited: Duration,
) -> Result<(), Fault> {
    let limits = &core.config().limits;
    let mut request = Request::unparsed(octets, header);
    request.parse_header(limits)?;
    probe!("request parsed", request.request_id.into());
    let contexts = if request.contexts.is_empty() {
        RequestContexts::default()
    } else {
        read_contexts(core, connection, &request)?
    };
    let _request = RequestScope::begin(connection);
    let expired = contexts.remaining.and_then(|remaining| ExpiredDeadline::after(waited, remaining));
    let code_sets = connection.code_sets(header.version);
    memory.scratch.reset();
    let account = RunningRequest::new(connection.memory_use());
    let meter = Meter::new(&account);
    let fits = octets.len() <= MAX_HEAP_BYTES || meter.charge_existing(octets.len()).is_ok();
    let (values, env): (_, &(dyn Any + Sync)) = (crate::value_space(), core);
    let arguments = Decoder::new(octets, header.endian)
        .at(request.body_at)
        .with_version(header.version)
        .with_code_sets(code_sets)
        .with_limits(limits)
        .with_scratch(&memory.scratch)
        .with_values(&values)
        .with_meter(&meter)
        .with_env(env);
    let mut reply = Encoder::with_buffer(std::mem::take(&mut memory.reply));
    reply.set_version(header.version);
    reply.set_code_sets(code_sets);
    let wanted = request.response;
    let head = Some((header.version, request.request_id));
    let mut call = ServerCall::new(arguments, reply, head, contexts.echo);
    call.arguments().set_fragment_starts(breaks);
    call.begin(ReplyStatus::NoException);
    if wanted == ResponseExpected::Server {
        // The client waits only until the request has arrived.
        send_slow(core, connection, call.reply(), request.request_id, wait);
        call.restart(ReplyStatus::NoException);
    }
    let mut outcome = match (contexts.refused, contexts.band, object_key(&request.target, limits)) {
        _ if !fits => DispatchOutcome::Exception(CdrError::MemoryBudgetExceeded.into()),
        (Some(exception), ..) => {
            report_refused(core, connection, request.operation, &exception);
            DispatchOutcome::Exception(exception)
        }
        (None, _, None) => DispatchOutcome::Exception(crate::poa::no_such_object()),
        (None, Some(band), Some(key)) => {
            bind_band(core, connection, key, band).map_or_else(DispatchOutcome::Exception, |()| DispatchOutcome::Done)
        }
        (None, None, Some(key)) => {
            let band = contexts.priority.and_then(|_| connection.bound_band());
            let priority = ClientPriority::Propagated(contexts.priority);
            let (operation, origin) = (request.operation, Some(&connection.origin));
            let wanted = Lookup { key, operation, priority, band, origin };
            core.poa_table().look_up(wanted, |found| {
                if let LookupResult::PriorityRefused(exception) = &found {
                    report_refused(core, connection, operation, exception);
                }
                dispatch_to_target(core, found, operation, &mut call, expired)
            })
        }
    };
    if let DispatchOutcome::Exception(exception) = &mut outcome {
        report_unreadable(core, connection, (request.operation, call.arguments()), exception, &meter);
    }
    if let DispatchOutcome::Held(until) = &outcome {
        let message = Message::Assembled(*header, octets.to_vec(), breaks.to_vec());
        match park(core, connection, until, message, wanted, waited) {
            Ok(()) => {
                memory.reply = call.reply().take_buffer();
                return Ok(());
            }
            Err(exception) => outcome = DispatchOutcome::Exception(exception),
        }
    }
    if wanted == ResponseExpected::Target {
        if !matches!(outcome, DispatchOutcome::Done) {
            encode_non_result(outcome, &mut call);
        }
        send(core, connection, call.reply(), request.request_id, wait);
    }
    memory.reply = call.reply().take_buffer();
    Ok(())
}

/// Reports a request whose arguments could not be read. If memory was lacking, the exception says
/// how much the request needed.
#[cold]
fn report_unreadable(
    core: &Core,
    connection: &Connection,
    (operation, arguments): (&[u8], &Decoder<'_>),
    exception: &mut SystemException,
    meter: &Meter<'_>,
) {
    const SETTING: &str = "ConnectionLimits::max_buffered_bytes";
    if explain_refusal(exception, meter, "the request does not fit", SETTING) || arguments.value_path().is_some() {
        report_refused(core, connection, operation, exception);
    }
}

/// Encodes an outcome other than the servant's results.
#[cold]
fn encode_non_result(outcome: DispatchOutcome, call: &mut ServerCall<'_>) {
    match outcome {
        DispatchOutcome::Done | DispatchOutcome::Held(_) => {}
        DispatchOutcome::Forward(reference) => {
            // A reference that was encoded once is encoded again.
            let _ = reference.ior().encode(call.restart(ReplyStatus::LocationForward));
        }
        DispatchOutcome::Exception(exception) => exception.encode(call.restart(ReplyStatus::SystemException)),
    }
}

/// Parks a request, which has `waited` since it was read, until the event in `until`.
#[cold]
fn park(
    core: &Arc<Core>,
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
        // The client has its reply already.
        *flags = 0;
    }
    park_message(core, connection, until, message, waited)
}

/// A request whose deadline has passed: its client no longer waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpiredDeadline {
    waited: Duration,
    remaining: Duration,
}

impl ExpiredDeadline {
    #[inline]
    fn after(waited: Duration, remaining: Duration) -> Option<Self> {
        (waited >= remaining).then_some(ExpiredDeadline { waited, remaining })
    }

    /// Reports the request, whose upcall would begin now, and returns the highest CORBA priority
    /// that it may run at.
    ///
    /// # Errors
    /// TIMEOUT if it does not run.
    #[cold]
    fn begin(self, core: &Core, operation: &[u8]) -> Result<Option<Priority>, SystemException> {
        let ExpiredDeadline { waited, remaining } = self;
        let operation = text::shown(operation);
        core.events().report(&Event::DeadlinePassed { operation, waited, remaining });
        match core.config().rt.expired_requests {
            ExpiredRequestAction::Run => Ok(None),
            ExpiredRequestAction::Reject => {
                let exception = SystemException::new(Kind::Timeout, minor::timeout::REQUEST_END_TIME, Completion::No);
                Err(exception.because("the request's deadline passed before it could run"))
            }
            ExpiredRequestAction::LowerPriority(priority) => Ok(Priority::new(priority)),
        }
    }
}

/// Offset of the response flags of a GIOP 1.2 request (CORBA 3.0.3, section 15.4.2): after the
/// header and the request id.
const RESPONSE_FLAGS: usize = 16;

/// Returns the object key of a request's target.
#[inline]
fn object_key<'m>(target: &giop::Target<'m>, limits: &Limits) -> Option<&'m [u8]> {
    match target {
        giop::Target::Key(key) => Some(key),
        other => crate::address::key_in_profile(other, limits),
    }
}

/// Returns the priority at which a detached request is ordered. The client's own counts where it
/// will have a say in it; a request that will be refused comes after all others. `None` means the
/// pool's priority.
#[cold]
pub(crate) fn effective_priority(core: &Core, connection: &Connection, message: &Message) -> Option<i16> {
    const LAST: i16 = -1;
    let limits = &core.config().limits;
    let (header, octets) = message.parts();
    let request = (header.kind == MessageKind::Request).then(|| Request::parse(octets, header, limits).ok())??;
    let contexts =
        request.contexts.find(context_id::RT_CORBA_PRIORITY).map(|data| RequestContexts::parse(connection, data));
    let contexts = contexts.unwrap_or_default();
    if contexts.refused.is_some() {
        return Some(LAST);
    }
    let key = object_key(&request.target, limits)?;
    core.poa_table().effective_priority(core, key, contexts.priority, connection.origin.ceiling).map(Priority::get)
}

/// Rejects a request for want of room.
#[cold]
pub(crate) fn reject_overloaded(
    core: &Core,
    connection: &Connection,
    header: &Header,
    octets: &[u8],
    memory: &mut RequestMemory,
) {
    let exception = SystemException::new(Kind::Transient, minor::transient::DISCARDED, Completion::No);
    if header.kind == MessageKind::LocateRequest {
        let Ok(request) = giop::LocateRequest::parse(octets, header, &core.config().limits) else { return };
        let mut reply = Encoder::with_buffer(std::mem::take(&mut memory.reply));
        if header.version == corelane_wire::Version::GIOP_1_2 {
            let status = LocateStatus::SystemException;
            giop::begin_locate_reply(&mut reply, header.version, request.request_id, status);
            exception.encode(&mut reply);
        } else {
            // Earlier versions cannot say that; the call itself will be rejected.
            giop::begin_locate_reply(&mut reply, header.version, request.request_id, LocateStatus::ObjectHere);
        }
        send_slow(core, connection, &mut reply, request.request_id, Wait::Now);
        memory.reply = reply.into_buffer();
        return;
    }
    if header.kind != MessageKind::Request {
        return;
    }
    let Ok(request) = Request::parse(octets, header, &core.config().limits) else { return };
    if !request.response.is_expected() {
        return;
    }
    let reply = Encoder::with_buffer(std::mem::take(&mut memory.reply));
    let mut call = ServerCall::new(request.body(), reply, Some((header.version, request.request_id)), None);
    exception.encode(call.restart(ReplyStatus::SystemException));
    send_slow(core, connection, call.reply(), request.request_id, Wait::Now);
    memory.reply = call.reply().take_buffer();
}

/// The outcome of dispatching a request.
pub(crate) enum DispatchOutcome {
    /// The call holds the results, or a user exception.
    Done,
    /// The object is at another address.
    Forward(ObjectRef),
    /// The request has to wait.
    Held(WaitFor),
    /// The request raised a system exception.
    Exception(SystemException),
}

/// Dispatches a request to what the object adapter found.
#[inline]
pub(crate) fn dispatch_to_target(
    core: &Core,
    found: LookupResult<'_>,
    operation: &[u8],
    call: &mut ServerCall<'_>,
    expired: Option<ExpiredDeadline>,
) -> DispatchOutcome {
    match found {
        LookupResult::Servant(target) => {
            probe!("servant found");
            let outcome = upcall(core, target, operation, call, expired);
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

/// Answers for an object that does not exist. To `_non_existent` that is a result: some clients
/// (GlassFish's) pass OBJECT_NOT_EXIST on to their caller, where others take it for "true".
#[cold]
fn answer_missing(operation: &[u8], call: &mut ServerCall<'_>, exception: SystemException) -> DispatchOutcome {
    if !asks_for_existence(operation) {
        return DispatchOutcome::Exception(exception);
    }
    call.reply().write_bool(true);
    DispatchOutcome::Done
}

/// Returns true for `_non_existent`, and for its name in CORBA 2.2 and before.
fn asks_for_existence(operation: &[u8]) -> bool {
    matches!(operation, b"_non_existent" | b"_not_existent")
}

/// Calls the servant. A panic of the servant is UNKNOWN to the caller, and not the server's end.
#[inline]
fn upcall(
    core: &Core,
    target: &UpcallTarget<'_>,
    operation: &[u8],
    call: &mut ServerCall<'_>,
    expired: Option<ExpiredDeadline>,
) -> Result<(), SystemException> {
    let Some(_frame) = UpcallScope::enter(target) else {
        // A servant that a locator provided goes back to it.
        let _ = target.finish(operation);
        return Err(SystemException::new(Kind::NoResources, 0, Completion::No).because("upcalls are nested too deep"));
    };
    let max_priority = match expired.map(|expired| expired.begin(core, operation)).transpose() {
        Ok(max_priority) => max_priority.flatten(),
        Err(exception) => return target.finish(operation).and(Err(exception)),
    };
    let running = UpcallPriority::begin();
    if let Err(exception) = running.apply(core, target.priority, max_priority) {
        return target.finish(operation).and(Err(exception));
    }
    let skeleton = target.servant.skeleton();
    let result = match catch_unwind(AssertUnwindSafe(|| skeleton.dispatch(operation, call))) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(exception)) if exception.is_unknown_operation() => dispatch_implicit(target, operation, call, exception),
        Ok(Err(exception)) => Err(exception),
        Err(panic) => Err(panicked(core, target, operation, &*panic)),
    };
    target.finish(operation).and(result)
}

/// Runs an operation that every object has (section 15.4.2, "operation"). Any other one keeps the
/// exception: the servant itself may have raised it, with a minor code of its own.
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
        // There are no components.
        b"_component" => crate::object::write_reference::<ObjectRef>(call.reply(), None)?,
        b"_interface" => return Err(not_implemented("there is no interface repository")),
        b"_domain_managers" => return Err(not_implemented("there are no domains")),
        // A locator's servant is for this one operation: that it has no such operation is the
        // locator's fault.
        _ if target.is_from_locator() => {
            let code = minor::obj_adapter::WRONG_SERVANT_TYPE;
            let wrong = SystemException::new(Kind::ObjAdapter, code, Completion::No);
            return Err(wrong.because("the servant locator returned a servant of another interface"));
        }
        _ => return Err(exception),
    }
    Ok(())
}

#[cold]
fn not_implemented(why: &'static str) -> SystemException {
    SystemException::new(Kind::NoImplement, 0, Completion::No).because(why)
}

#[cold]
pub(crate) fn panicked(
    core: &Core,
    target: &UpcallTarget<'_>,
    operation: &[u8],
    panic: &(dyn Any + Send),
) -> SystemException {
    report_panic(core, target.servant.repository_id(), operation, panic);
    if target.poa.policies().on_panic == OnPanic::Deactivate {
        target.deactivate();
    }
    SystemException::new(Kind::Unknown, 0, Completion::Maybe)
}

/// Reports a panic in the application's code.
#[cold]
pub(crate) fn report_panic(core: &Core, interface: &'static str, operation: &[u8], panic: &(dyn Any + Send)) {
    let message = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        (None, None) => "something that is no text".to_owned(),
    };
    core.events().report(&Event::ServantPanicked { interface, operation: text::shown(operation), message });
}

/// Parks a message, which has `waited` since it was read, until the event in `until`.
#[cold]
fn park_message(
    core: &Arc<Core>,
    connection: &Arc<Connection>,
    until: &WaitFor,
    message: Message,
    waited: Duration,
) -> Result<(), SystemException> {
    let waiting = connection.add_waiting_request(waited);
    if let WaitFor::Lane(lane) = until {
        connection.record_hand_over();
        // The only hand-off of a request that came in at another lane than the one that runs it.
        core.events().handed_over();
        let full = || SystemException::new(Kind::Transient, minor::transient::DISCARDED, Completion::No);
        let handed_over = lane.hand_over(Task::Dispatch(waiting, message));
        return if handed_over { Ok(()) } else { Err(full()) };
    }
    let octets = if let Message::Assembled(_, octets, _) = &message { octets.len() } else { 0 };
    let (core, lane) = (Arc::downgrade(core), connection.lane.clone());
    let resume = move |thread| match thread {
        ResumeOn::ConnectionThread => {
            if let Some(lane) = lane.upgrade() {
                lane.push(Task::Dispatch(waiting, message));
            }
        }
        ResumeOn::CurrentThread => {
            if let (Some(core), Some(lane)) = (core.upgrade(), lane.upgrade()) {
                lane.run_waiting(&core, &mut Worker::new(), waiting, message);
            }
        }
    };
    match until.park(ParkedRequest { bytes: octets, resume: Box::new(resume) }) {
        ParkResult::Parked => Ok(()),
        // The event has occurred in between: the request goes on now.
        ParkResult::AlreadySignalled(held) => {
            held.release();
            Ok(())
        }
        ParkResult::Full => Err(SystemException::new(Kind::Transient, minor::transient::DISCARDED, Completion::No)),
    }
}

/// The contents of a request's service contexts.
#[derive(Default)]
struct RequestContexts {
    priority: Option<Priority>,
    /// The priority as it came, which the reply carries.
    echo: Option<i16>,
    /// The exception with which the request is refused because of its contexts.
    refused: Option<SystemException>,
    /// The band that `_bind_priority_band` asks for.
    band: Option<(i16, i16)>,
    /// The time that the client waits from the sending of the request on.
    remaining: Option<Duration>,
}

impl RequestContexts {
    fn parse(connection: &Connection, data: &[u8]) -> Self {
        let refused = |exception: SystemException| RequestContexts { refused: Some(exception), ..Self::default() };
        let number = match rt::parse_priority_context(data) {
            Ok(number) => number,
            Err(error) => return refused(error.into()),
        };
        let priority = match Priority::new(number) {
            // TAO sends this for no priority.
            None if number == -1 => None,
            None => {
                let exception = SystemException::new(Kind::BadParam, 0, Completion::No);
                return refused(exception.because(format!("{number} is no priority")));
            }
            Some(priority) if !connection.origin.ceiling.allows(priority) => {
                let ceiling = connection.origin.ceiling;
                let exception = SystemException::new(Kind::NoPermission, 0, Completion::No);
                return refused(exception.because(format!("priority {priority} is above the endpoint's {ceiling}")));
            }
            Some(priority) => Some(priority),
        };
        RequestContexts { priority, echo: Some(number), ..Self::default() }
    }
}

/// Reads the service contexts of a request. Of two contexts of a kind the first counts.
#[inline(never)]
fn read_contexts(core: &Core, connection: &Connection, request: &Request<'_>) -> Result<RequestContexts, Fault> {
    if let Some(data) = request.contexts.find(context_id::CODE_SETS) {
        record_code_sets(connection, data)?;
    }
    let mut contexts = match request.contexts.find(context_id::RT_CORBA_PRIORITY) {
        Some(data) => RequestContexts::parse(connection, data),
        None => RequestContexts::default(),
    };
    if let Some(data) = request.contexts.find(context_id::REMAINING_DEADLINE) {
        match rt::parse_deadline_context(data) {
            Ok(remaining) => contexts.remaining = Some(remaining),
            Err(error) => contexts.refused = Some(error.into()),
        }
    }
    if let Some(data) = request.contexts.find(context_id::INVOCATION_POLICIES) {
        match rt::parse_round_trip(data, &core.config().limits) {
            // Both contexts say the same: the shorter time is the safer one.
            Ok(Some(whole)) => contexts.remaining = Some(contexts.remaining.map_or(whole, |other| other.min(whole))),
            Ok(None) => {}
            Err(error) => contexts.refused = Some(error.into()),
        }
    }
    if request.operation == BIND_BAND
        && let Some(data) = request.contexts.find(context_id::RT_CORBA_PRIORITY_RANGE)
    {
        match rt::parse_range_context(data) {
            Ok(band) => contexts.band = Some(band),
            Err(error) => contexts.refused = Some(error.into()),
        }
    }
    if connection.origin.sets_dscp
        && connection.origin.ceiling != Ceiling::Unset
        && let Some(priority) = contexts.priority
    {
        connection.set_dscp(core, priority);
    }
    Ok(contexts)
}

/// The implicit operation that binds a connection to a priority band.
const BIND_BAND: &[u8] = b"_bind_priority_band";

/// Binds a connection to a band, if requests of that band can reach this object: the POA has a lane
/// in the band, or takes any priority.
#[cold]
fn bind_band(core: &Core, connection: &Connection, key: &[u8], (low, high): (i16, i16)) -> Result<(), SystemException> {
    let refused = |kind, minor, why: String| {
        let exception = SystemException::new(kind, minor, Completion::No).because(why);
        report_refused(core, connection, BIND_BAND, &exception);
        exception
    };
    let Ok(band) = PriorityBand::new(low, high) else {
        return Err(refused(Kind::BadParam, 0, format!("{low} to {high} is no band of priorities")));
    };
    let poa = core.poa_table().poa_of(key).ok_or_else(crate::poa::no_such_object)?;
    if !poa.can_carry_band(band).ok_or_else(SystemException::bad_operation)? {
        let why = format!("no lane or band is within {low} to {high}");
        return Err(refused(Kind::InvPolicy, minor::inv_policy::IRRECONCILABLE, why));
    }
    connection.set_band(band);
    Ok(())
}

/// Reports a request that is refused for its priority, band or deadline, or for want of memory.
#[cold]
fn report_refused(core: &Core, connection: &Connection, operation: &[u8], exception: &SystemException) {
    let peer = connection.stream.peer().clone();
    let operation = text::shown(operation);
    core.events().report(&Event::RequestRefused { peer, operation, exception: exception.clone() });
}

#[cold]
fn record_code_sets(connection: &Connection, data: &[u8]) -> Result<(), Fault> {
    // Code sets that this side lacks leave the ones without negotiation in force: what these cannot
    // express is refused then.
    if let Some(code_sets) = CodeSetContext::parse(data)?.code_sets(WideOrder::Standard) {
        connection.set_code_sets(code_sets);
    }
    Ok(())
}

/// Sends a finished reply, in fragments if the ORB is configured so.
#[inline(always)]
fn send(core: &Core, connection: &Connection, reply: &mut Encoder<'_>, request_id: u32, wait: Wait) {
    if giop::finish(reply).is_err() {
        connection.close();
        return;
    }
    let sent = match reply.contiguous() {
        Some(whole) if core.config().fragment_size.is_none() => connection.send(whole, wait),
        _ => send_in_parts(core, connection, reply, request_id, wait),
    };
    probe!("reply sent", request_id.into());
    match sent {
        // A peer that was told of the connection's end expects no reply.
        SendResult::Complete | SendResult::Queued | SendResult::Failed(SendError::Closing) => {}
        SendResult::Failed(loss) => close_after_send_error(core, connection, loss),
    }
}

/// Like [`send`], for replies that are no results of a servant.
#[inline(never)]
fn send_slow(core: &Core, connection: &Connection, reply: &mut Encoder<'_>, request_id: u32, wait: Wait) {
    send(core, connection, reply, request_id, wait);
}

/// Sends a reply in fragments, or one whose large parts are outside the encoder's buffer.
#[inline(never)]
fn send_in_parts(core: &Core, connection: &Connection, reply: &Encoder<'_>, request_id: u32, wait: Wait) -> SendResult {
    let fragments = core.config().fragment_size.and_then(|size| crate::fragment::split(reply, request_id, size));
    if let Some(fragments) = fragments {
        return connection.send(&fragments, wait);
    }
    let mut list = [&[][..]; MAX_SLICES];
    connection.send_slices(reply.gather(&mut list, |slice| slice), &|part| reply.share_or_copy(part), wait)
}

#[cold]
fn close_after_send_error(core: &Core, connection: &Connection, loss: SendError) {
    if matches!(loss, SendError::WriteTimedOut) {
        core.events().report(&Event::WriteTimedOut { peer: connection.stream.peer().clone() });
    }
    connection.close();
}

#[cold]
fn locate(
    core: &Arc<Core>,
    connection: &Arc<Connection>,
    header: &Header,
    octets: &[u8],
    memory: &mut RequestMemory,
    wait: Wait,
) -> Result<(), Fault> {
    let request = giop::LocateRequest::parse(octets, header, &core.config().limits)?;
    let mut reply = Encoder::with_buffer(std::mem::take(&mut memory.reply));
    let mut located = object_key(&request.target, &core.config().limits)
        .map_or(LocateResult::UnknownObject, |key| core.poa_table().locate(key));
    if let LocateResult::MustWait(until) = &located {
        let message = Message::Assembled(*header, octets.to_vec(), Vec::new());
        match park_message(core, connection, until, message, Duration::ZERO) {
            Ok(()) => {
                memory.reply = reply.into_buffer();
                return Ok(());
            }
            Err(exception) => located = LocateResult::Exception(exception),
        }
    }
    let status = match &located {
        LocateResult::ObjectHere | LocateResult::MustWait(_) => LocateStatus::ObjectHere,
        LocateResult::Forward(_) => LocateStatus::ObjectForward,
        LocateResult::Exception(_) if header.version == corelane_wire::Version::GIOP_1_2 => {
            LocateStatus::SystemException
        }
        // Earlier versions cannot give the reason.
        LocateResult::UnknownObject | LocateResult::Exception(_) => LocateStatus::UnknownObject,
    };
    giop::begin_locate_reply(&mut reply, header.version, request.request_id, status);
    match (status, located) {
        (LocateStatus::ObjectForward, LocateResult::Forward(reference)) => {
            // A reference that was encoded once is encoded again.
            let _ = reference.ior().encode(&mut reply);
        }
        (LocateStatus::SystemException, LocateResult::Exception(exception)) => exception.encode(&mut reply),
        _ => {}
    }
    send_slow(core, connection, &mut reply, request.request_id, wait);
    memory.reply = reply.into_buffer();
    Ok(())
}

/// Returns a CloseConnection message, which is the same in every version.
pub(crate) fn close_connection() -> Vec<u8> {
    let mut message = Encoder::new();
    giop::write_close_connection(&mut message, corelane_wire::Version::GIOP_1_0);
    message.into_buffer()
}

/// Returns the last messages to a peer that broke the protocol: MessageError, and before it the
/// reply to a request that is too large. Without that reply the client would take the connection
/// for broken, and might send the request again.
#[cold]
pub(crate) fn fault_reply(fault: ProtocolFault, octets: &[u8], limits: &Limits) -> Vec<u8> {
    let mut told = match fault {
        ProtocolFault::TooLarge { .. } => too_large_reply(octets, limits).unwrap_or_default(),
        _ => Vec::new(),
    };
    told.extend(message_error());
    told
}

/// Returns the reply to a request that is too large, of which `octets` have come; `None` if they do
/// not name the request or it wants no reply.
fn too_large_reply(octets: &[u8], limits: &Limits) -> Option<Vec<u8>> {
    let header = Header::parse(octets.first_chunk()?).ok().filter(|header| header.kind == MessageKind::Request)?;
    let request = Request::parse(octets, &header, limits).ok().filter(|request| request.response.is_expected())?;
    let mut reply = Encoder::new();
    let status = ReplyStatus::SystemException;
    giop::begin_reply(&mut reply, header.version, request.request_id, status, &[]).ok()?;
    SystemException::new(Kind::ImpLimit, crate::minor::MESSAGE_TOO_LARGE, Completion::No).encode(&mut reply);
    giop::finish(&mut reply).ok()?;
    Some(reply.into_buffer())
}

/// Returns a MessageError of the highest version: the fault may well be the version.
pub(crate) fn message_error() -> Vec<u8> {
    let mut message = Encoder::new();
    giop::write_message_error(&mut message, corelane_wire::Version::GIOP_1_2);
    message.into_buffer()
}
