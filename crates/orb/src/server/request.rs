//! A message from a client: what it asks for, who answers it, and the answer.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use corelane_net::Wait;
use corelane_sched::{Priority, PriorityBand};
use corelane_sys::probe;
use corelane_wire::cdr::MAX_SLICES;
use corelane_wire::codeset::CodeSetContext;
use corelane_wire::exception::minor;
use corelane_wire::giop::{
    self, Header, LocateStatus, MessageKind, ReplyStatus, Request, ResponseExpected, context_id,
};
use corelane_wire::{Cdr, Decoder, Encoder, Limits, WideOrder, rt};

use super::connection::{Connection, Loss, Sent};
use super::lane::Work;
use super::worker::{Memory, Message, Worker};
use crate::clock;
use crate::current::Upcall;
use crate::event::Event;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::fault::Fault;
use crate::object::ObjectRef;
use crate::orb::Core;
use crate::poa::{ClientPriority, Found, Held, Hold, Kept, Located, OnPanic, Resume, Target, Wanted};
use crate::rt::station::{self, Serving};
use crate::rt::{Late, Running};
use crate::servant::ServerCall;

/// Does what one message asks for. False when the connection is over.
#[inline]
pub(crate) fn serve(
    core: &Arc<Core>,
    connection: &Arc<Connection>,
    header: &Header,
    octets: &[u8],
    breaks: &[usize],
    memory: &mut Memory,
    wait: Wait,
) -> bool {
    // Of this message, whatever it is: nothing that is served next has waited so long.
    let waited = station::take_waited();
    let served = match header.kind {
        MessageKind::Request => request(core, connection, header, (octets, breaks), memory, wait, waited),
        MessageKind::LocateRequest => locate(core, connection, header, octets, memory, wait),
        // A hint: what is running goes on, and its reply is one that the client skips.
        MessageKind::CancelRequest => Ok(()),
        MessageKind::CloseConnection | MessageKind::MessageError => return false,
        MessageKind::Reply | MessageKind::LocateReply | MessageKind::Fragment => Err(Fault::Unexpected(header.kind)),
    };
    match served {
        Ok(()) => !connection.is_closed(),
        Err(fault) => {
            refuse(core, connection, fault);
            false
        }
    }
}

/// MessageError, then the end.
#[cold]
fn refuse(core: &Core, connection: &Connection, fault: Fault) {
    core.events().report(&Event::ProtocolFault { peer: connection.stream.peer().clone(), fault });
    connection.finish(&message_error(), clock::now(), core.config().closing_time);
}

#[inline]
fn request(
    core: &Arc<Core>,
    connection: &Arc<Connection>,
    header: &Header,
    (octets, breaks): (&[u8], &[usize]),
    memory: &mut Memory,
    wait: Wait,
    waited: Duration,
) -> Result<(), Fault> {
    let limits = &core.config().limits;
    let mut request = Request::of(octets, header);
    request.read(limits)?;
    probe!("request parsed", request.request_id.into());
    let propagated =
        if request.contexts.is_empty() { Propagated::default() } else { note_contexts(core, connection, &request)? };
    let _request = Serving::begin(connection);
    let overdue = propagated.remaining.and_then(|remaining| Overdue::after(waited, remaining));
    let code_sets = connection.code_sets(header.version);
    memory.scratch.reset();
    let (values, env): (_, &(dyn Any + Sync)) = (crate::value_space(), core);
    let arguments = Decoder::new(octets, header.endian)
        .at(request.body_at)
        .with_version(header.version)
        .with_code_sets(code_sets)
        .with_limits(limits)
        .with_scratch(&memory.scratch)
        .with_values(&values)
        .with_env(env);
    let mut reply = Encoder::with_buffer(std::mem::take(&mut memory.reply));
    reply.set_version(header.version);
    reply.set_code_sets(code_sets);
    let wanted = request.response;
    let head = Some((header.version, request.request_id));
    let mut call = ServerCall::new(arguments, reply, head, propagated.echo);
    call.arguments().set_breaks(breaks);
    call.begin(ReplyStatus::NoException);
    if wanted == ResponseExpected::Server {
        // The client waits only until the request is here.
        send_out_of_line(core, connection, call.reply(), request.request_id, wait);
        call.restart(ReplyStatus::NoException);
    }
    let mut outcome = match (propagated.refused, propagated.band, object_key(&request.target, limits)) {
        (Some(exception), ..) => {
            tell_refused(core, connection, request.operation, &exception);
            Outcome::Exception(exception)
        }
        (None, _, None) => Outcome::Exception(crate::poa::no_such_object()),
        (None, Some(band), Some(key)) => {
            bind_band(core, connection, key, band).map_or_else(Outcome::Exception, |()| Outcome::Done)
        }
        (None, None, Some(key)) => {
            let band = propagated.priority.and_then(|_| connection.band());
            let priority = ClientPriority::Said(propagated.priority);
            let (operation, ceiling) = (request.operation, connection.origin.ceiling);
            let wanted = Wanted { key, operation, priority, band, ceiling };
            core.adapters().find(wanted, |found| {
                if let Found::Misplaced(exception) = &found {
                    tell_refused(core, connection, operation, exception);
                }
                run(core, found, operation, &mut call, overdue)
            })
        }
    };
    if let Outcome::Held(until) = &outcome {
        let message = Message::Assembled(*header, octets.to_vec(), breaks.to_vec());
        match put_off(core, connection, until, message, wanted, waited) {
            Ok(()) => {
                memory.reply = call.reply().take_buffer();
                return Ok(());
            }
            Err(exception) => outcome = Outcome::Exception(exception),
        }
    }
    if wanted == ResponseExpected::Target {
        if !matches!(outcome, Outcome::Done) {
            answer_otherwise(outcome, &mut call);
        }
        send(core, connection, call.reply(), request.request_id, wait);
    }
    memory.reply = call.reply().take_buffer();
    Ok(())
}

/// Answers with something else than what the servant has written.
#[cold]
fn answer_otherwise(outcome: Outcome, call: &mut ServerCall<'_>) {
    match outcome {
        Outcome::Done | Outcome::Held(_) => {}
        Outcome::Forward(reference) => {
            // A reference that was encoded once is encoded again.
            let _ = reference.ior().encode(call.restart(ReplyStatus::LocationForward));
        }
        Outcome::Exception(exception) => exception.encode(call.restart(ReplyStatus::SystemException)),
    }
}

/// Keeps a request, which has waited for so long already, until what it waits for has come.
#[cold]
fn put_off(
    core: &Arc<Core>,
    connection: &Arc<Connection>,
    until: &Hold,
    mut message: Message,
    wanted: ResponseExpected,
    waited: Duration,
) -> Result<(), SystemException> {
    if wanted == ResponseExpected::Server
        && let Message::Assembled(_, octets, _) = &mut message
        && let Some(flags) = octets.get_mut(RESPONSE_FLAGS)
    {
        // The client has its answer.
        *flags = 0;
    }
    station::set_waited(waited);
    let held = hold(core, connection, until, message);
    station::take_waited();
    held
}

/// A request that its client does not wait for any more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overdue {
    waited: Duration,
    remaining: Duration,
}

impl Overdue {
    #[inline]
    fn after(waited: Duration, remaining: Duration) -> Option<Self> {
        (waited >= remaining).then_some(Overdue { waited, remaining })
    }

    /// Its upcall would begin now: tells of it, and answers the CORBA priority that it runs at, at most.
    ///
    /// # Errors
    /// TIMEOUT if it does not run.
    #[cold]
    fn begin(self, core: &Core, operation: &[u8]) -> Result<Option<Priority>, SystemException> {
        let Overdue { waited, remaining } = self;
        let operation = String::from_utf8_lossy(operation).into_owned();
        core.events().report(&Event::DeadlinePassed { operation, waited, remaining });
        match core.config().rt.late {
            Late::Run => Ok(None),
            Late::Drop => {
                let exception = SystemException::new(Kind::Timeout, minor::timeout::REQUEST_END_TIME, Completion::No);
                Err(exception.because("the request's deadline passed before it could run"))
            }
            Late::Lower(priority) => Ok(Priority::new(priority)),
        }
    }
}

/// Where the response flags of a GIOP 1.2 request are (CORBA 3.0.3, section 15.4.2): after the header and the request id.
const RESPONSE_FLAGS: usize = 16;

/// The object key of a request's address.
#[inline]
fn object_key<'m>(target: &giop::Target<'m>, limits: &Limits) -> Option<&'m [u8]> {
    match target {
        giop::Target::Key(key) => Some(key),
        other => crate::address::key_in_profile(other, limits),
    }
}

/// How urgent a detached request is: what a client asks for counts where it will have a say in it, and one that will be refused goes behind
/// all others. `None`: as the pool is.
#[cold]
pub(crate) fn urgency(core: &Core, connection: &Connection, message: &Message) -> Option<i16> {
    const LAST: i16 = -1;
    let limits = &core.config().limits;
    let (header, octets) = message.parts();
    let request = (header.kind == MessageKind::Request).then(|| Request::parse(octets, header, limits).ok())??;
    let propagated =
        request.contexts.find(context_id::RT_CORBA_PRIORITY).map(|data| Propagated::parse(connection, data));
    let propagated = propagated.unwrap_or_default();
    if propagated.refused.is_some() {
        return Some(LAST);
    }
    let key = object_key(&request.target, limits)?;
    core.adapters().urgency(core, key, propagated.priority).map(Priority::get)
}

/// Answers a request that there is no room for.
#[cold]
pub(crate) fn turn_away(core: &Core, connection: &Connection, header: &Header, octets: &[u8], memory: &mut Memory) {
    let exception = SystemException::new(Kind::Transient, minor::transient::DISCARDED, Completion::No);
    if header.kind == MessageKind::LocateRequest {
        let Ok(request) = giop::LocateRequest::parse(octets, header, &core.config().limits) else { return };
        let mut reply = Encoder::with_buffer(std::mem::take(&mut memory.reply));
        if header.version == corelane_wire::Version::GIOP_1_2 {
            let status = LocateStatus::SystemException;
            giop::begin_locate_reply(&mut reply, header.version, request.request_id, status);
            exception.encode(&mut reply);
        } else {
            // Earlier versions cannot say that; the call itself will be told.
            giop::begin_locate_reply(&mut reply, header.version, request.request_id, LocateStatus::ObjectHere);
        }
        send_out_of_line(core, connection, &mut reply, request.request_id, Wait::Now);
        memory.reply = reply.into_buffer();
        return;
    }
    if header.kind != MessageKind::Request {
        return;
    }
    let Ok(request) = Request::parse(octets, header, &core.config().limits) else { return };
    if !request.response.any() {
        return;
    }
    let reply = Encoder::with_buffer(std::mem::take(&mut memory.reply));
    let mut call = ServerCall::new(request.body(), reply, Some((header.version, request.request_id)), None);
    exception.encode(call.restart(ReplyStatus::SystemException));
    send_out_of_line(core, connection, call.reply(), request.request_id, Wait::Now);
    memory.reply = call.reply().take_buffer();
}

/// What running a request came to.
pub(crate) enum Outcome {
    /// The call holds the results, or the user exception.
    Done,
    /// The object is elsewhere.
    Forward(ObjectRef),
    /// Not now.
    Held(Hold),
    /// A system exception.
    Exception(SystemException),
}

/// Runs the upcall for what the object adapter found.
#[inline]
pub(crate) fn run(
    core: &Core,
    found: Found<'_>,
    operation: &[u8],
    call: &mut ServerCall<'_>,
    overdue: Option<Overdue>,
) -> Outcome {
    match found {
        Found::Servant(target) => {
            probe!("servant found");
            let outcome = upcall(core, target, operation, call, overdue);
            probe!("results marshalled");
            outcome.map_or_else(Outcome::Exception, |()| Outcome::Done)
        }
        Found::Forward(reference) => Outcome::Forward(reference),
        Found::Held(hold) => Outcome::Held(hold),
        Found::Refused(exception) | Found::Misplaced(exception) => Outcome::Exception(exception),
    }
}

/// The servant's own code, fenced in: a panic is the caller's UNKNOWN, not the server's end.
#[inline]
fn upcall(
    core: &Core,
    target: &Target<'_>,
    operation: &[u8],
    call: &mut ServerCall<'_>,
    overdue: Option<Overdue>,
) -> Result<(), SystemException> {
    let Some(_frame) = Upcall::enter(target) else {
        // A servant that was lent goes back.
        let _ = target.finish(operation);
        return Err(SystemException::new(Kind::NoResources, 0, Completion::No).because("upcalls are nested too deep"));
    };
    let most = match overdue.map(|overdue| overdue.begin(core, operation)).transpose() {
        Ok(most) => most.flatten(),
        Err(exception) => return target.finish(operation).and(Err(exception)),
    };
    let running = Running::begin();
    if let Err(exception) = running.change(core, target.priority, most) {
        return target.finish(operation).and(Err(exception));
    }
    let skeleton = target.servant.skeleton();
    let result = match catch_unwind(AssertUnwindSafe(|| skeleton.dispatch(operation, call))) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(exception)) if exception.is_unknown_operation() => implicit(target, operation, call, exception),
        Ok(Err(exception)) => Err(exception),
        Err(panic) => Err(panicked(core, target, operation, &*panic)),
    };
    target.finish(operation).and(result)
}

/// The operations that every object has (section 15.4.2, "operation"). Any other one keeps the exception: the servant itself may
/// have raised it, with a minor code of its own.
#[cold]
fn implicit(
    target: &Target<'_>,
    operation: &[u8],
    call: &mut ServerCall<'_>,
    exception: SystemException,
) -> Result<(), SystemException> {
    match operation {
        b"_is_a" => {
            let id = call.arguments().read_string()?;
            call.reply().write_bool(target.servant.is_a(&id));
        }
        b"_non_existent" | b"_not_existent" => call.reply().write_bool(false),
        b"_repository_id" => call.reply().write_str(target.servant.repository_id())?,
        // There are no components.
        b"_component" => crate::object::write_reference::<ObjectRef>(call.reply(), None)?,
        b"_interface" => return Err(not_here("there is no interface repository")),
        b"_domain_managers" => return Err(not_here("there are no domains")),
        // What a locator gives is for this one operation: that it has no such thing is the locator's fault.
        _ if target.is_lent() => {
            let code = minor::obj_adapter::WRONG_SERVANT_TYPE;
            let wrong = SystemException::new(Kind::ObjAdapter, code, Completion::No);
            return Err(wrong.because("the servant locator returned a servant of another interface"));
        }
        _ => return Err(exception),
    }
    Ok(())
}

#[cold]
fn not_here(why: &'static str) -> SystemException {
    SystemException::new(Kind::NoImplement, 0, Completion::No).because(why)
}

#[cold]
pub(crate) fn panicked(
    core: &Core,
    target: &Target<'_>,
    operation: &[u8],
    panic: &(dyn Any + Send),
) -> SystemException {
    report_panic(core, target.servant.repository_id(), &String::from_utf8_lossy(operation), panic);
    if target.poa.policies().on_panic == OnPanic::Deactivate {
        target.deactivate();
    }
    SystemException::new(Kind::Unknown, 0, Completion::Maybe)
}

/// Tells of a panic in the application's code.
#[cold]
pub(crate) fn report_panic(core: &Core, interface: &'static str, operation: &str, panic: &(dyn Any + Send)) {
    let message = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        (None, None) => "something that is no text".to_owned(),
    };
    core.events().report(&Event::ServantPanicked { interface, operation: operation.to_owned(), message });
}

/// Keeps a copy of a message until what it waits for has come.
#[cold]
fn hold(core: &Arc<Core>, connection: &Arc<Connection>, until: &Hold, message: Message) -> Result<(), SystemException> {
    if let Hold::Lane(lane) = until {
        connection.note_elsewhere();
        // The one hand-off of a request that came in at another lane than that which runs it.
        core.events().handed_over();
        let full = || SystemException::new(Kind::Transient, minor::transient::DISCARDED, Completion::No);
        let handed_over = lane.hand_over(Work::Serve(connection.wait(), message));
        return if handed_over { Ok(()) } else { Err(full()) };
    }
    let octets = if let Message::Assembled(_, octets, _) = &message { octets.len() } else { 0 };
    let (core, lane, waiting) = (Arc::downgrade(core), connection.lane.clone(), connection.wait());
    let resume = move |thread| match thread {
        Resume::Served => {
            if let Some(lane) = lane.upgrade() {
                lane.push(Work::Serve(waiting, message));
            }
        }
        Resume::Here => {
            if let (Some(core), Some(lane)) = (core.upgrade(), lane.upgrade()) {
                lane.serve(&core, &mut Worker::new(), waiting, message);
            }
        }
    };
    match until.keep(Held { octets, resume: Box::new(resume) }) {
        Kept::Held => Ok(()),
        // What it waited for has come meanwhile: it goes its way now.
        Kept::Over(held) => {
            held.release();
            Ok(())
        }
        Kept::Full => Err(SystemException::new(Kind::Transient, minor::transient::DISCARDED, Completion::No)),
    }
}

/// The priority that a request came with.
#[derive(Default)]
struct Propagated {
    priority: Option<Priority>,
    /// What the reply carries: the same, as it came.
    echo: Option<i16>,
    /// The request does not run for it.
    refused: Option<SystemException>,
    /// What the connection is to be used for, with `_bind_priority_band`.
    band: Option<(i16, i16)>,
    /// How long the client waits from the sending of the request on.
    remaining: Option<Duration>,
}

impl Propagated {
    fn parse(connection: &Connection, data: &[u8]) -> Self {
        let refused = |exception: SystemException| Propagated { refused: Some(exception), ..Self::default() };
        let number = match rt::parse_priority_context(data) {
            Ok(number) => number,
            Err(error) => return refused(error.into()),
        };
        let priority = match Priority::new(number) {
            // TAO's way to say that there is none.
            None if number == -1 => None,
            None => {
                let exception = SystemException::new(Kind::BadParam, 0, Completion::No);
                return refused(exception.because(format!("{number} is no priority")));
            }
            Some(priority) if priority > connection.origin.ceiling => {
                let exception = SystemException::new(Kind::NoPermission, 0, Completion::No);
                let ceiling = connection.origin.ceiling;
                return refused(exception.because(format!("priority {priority} is above the endpoint's {ceiling}")));
            }
            Some(priority) => Some(priority),
        };
        Propagated { priority, echo: Some(number), ..Self::default() }
    }
}

/// What the service contexts of a request say: about its connection, and its priority. Of two of a kind the first counts.
#[inline(never)]
fn note_contexts(core: &Core, connection: &Connection, request: &Request<'_>) -> Result<Propagated, Fault> {
    if let Some(data) = request.contexts.find(context_id::CODE_SETS) {
        note_code_sets(connection, data)?;
    }
    let mut propagated = match request.contexts.find(context_id::RT_CORBA_PRIORITY) {
        Some(data) => Propagated::parse(connection, data),
        None => Propagated::default(),
    };
    if let Some(data) = request.contexts.find(context_id::REMAINING_DEADLINE) {
        match rt::parse_deadline_context(data) {
            Ok(remaining) => propagated.remaining = Some(remaining),
            Err(error) => propagated.refused = Some(error.into()),
        }
    }
    if let Some(data) = request.contexts.find(context_id::INVOCATION_POLICIES) {
        match rt::parse_round_trip(data) {
            // What is said in both ways is the same: the shorter one is the safer.
            Ok(Some(whole)) => {
                propagated.remaining = Some(propagated.remaining.map_or(whole, |other| other.min(whole)))
            }
            Ok(None) => {}
            Err(error) => propagated.refused = Some(error.into()),
        }
    }
    if request.operation == BIND_BAND
        && let Some(data) = request.contexts.find(context_id::RT_CORBA_PRIORITY_RANGE)
    {
        match rt::parse_range_context(data) {
            Ok(band) => propagated.band = Some(band),
            Err(error) => propagated.refused = Some(error.into()),
        }
    }
    if connection.origin.marks
        && let Some(priority) = propagated.priority
    {
        connection.mark(core, priority);
    }
    Ok(propagated)
}

/// The implicit operation that says which priorities a connection will carry.
const BIND_BAND: &[u8] = b"_bind_priority_band";

/// Has a connection carry the priorities of a band, if it can to this object: the POA has a lane in it, or takes any priority.
#[cold]
fn bind_band(core: &Core, connection: &Connection, key: &[u8], (low, high): (i16, i16)) -> Result<(), SystemException> {
    let refused = |kind, minor, why: String| {
        let exception = SystemException::new(kind, minor, Completion::No).because(why);
        tell_refused(core, connection, BIND_BAND, &exception);
        exception
    };
    let Ok(band) = PriorityBand::new(low, high) else {
        return Err(refused(Kind::BadParam, 0, format!("{low} to {high} is no band of priorities")));
    };
    let poa = core.adapters().poa_of(key).ok_or_else(crate::poa::no_such_object)?;
    if !poa.carries(band).ok_or_else(SystemException::bad_operation)? {
        let why = format!("no lane or band is within {low} to {high}");
        return Err(refused(Kind::InvPolicy, minor::inv_policy::IRRECONCILABLE, why));
    }
    connection.bind(band);
    Ok(())
}

/// Tells of a request that is refused for what it says of priorities, bands or deadlines.
#[cold]
fn tell_refused(core: &Core, connection: &Connection, operation: &[u8], exception: &SystemException) {
    let peer = connection.stream.peer().clone();
    let operation = String::from_utf8_lossy(operation).into_owned();
    core.events().report(&Event::RequestRefused { peer, operation, exception: exception.clone() });
}

#[cold]
fn note_code_sets(connection: &Connection, data: &[u8]) -> Result<(), Fault> {
    // Sets that this side does not have leave those without negotiation in force: what they cannot express is refused then.
    if let Some(code_sets) = CodeSetContext::parse(data)?.code_sets(WideOrder::Standard) {
        connection.set_code_sets(code_sets);
    }
    Ok(())
}

/// Sends a finished reply; in fragments if the ORB is set up so.
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
        // Who was told that the connection ends expects no more.
        Sent::All | Sent::Queued | Sent::Lost(Loss::Ending) => {}
        Sent::Lost(loss) => give_up(core, connection, loss),
    }
}

/// The same for replies that are no results of a servant.
#[inline(never)]
fn send_out_of_line(core: &Core, connection: &Connection, reply: &mut Encoder<'_>, request_id: u32, wait: Wait) {
    send(core, connection, reply, request_id, wait);
}

/// Sends what is in fragments, or beside the encoder's buffer.
#[inline(never)]
fn send_in_parts(core: &Core, connection: &Connection, reply: &Encoder<'_>, request_id: u32, wait: Wait) -> Sent {
    let fragments = core.config().fragment_size.and_then(|size| crate::fragment::cut(reply, request_id, size));
    if let Some(fragments) = fragments {
        return connection.send(&fragments, wait);
    }
    let mut list = [&[][..]; MAX_SLICES];
    connection.send_kept(reply.gather(&mut list, |slice| slice), &|part| reply.keep(part), wait)
}

#[cold]
fn give_up(core: &Core, connection: &Connection, loss: Loss) {
    if matches!(loss, Loss::Unread) {
        core.events().report(&Event::RepliesUnread { peer: connection.stream.peer().clone() });
    }
    connection.close();
}

#[cold]
fn locate(
    core: &Arc<Core>,
    connection: &Arc<Connection>,
    header: &Header,
    octets: &[u8],
    memory: &mut Memory,
    wait: Wait,
) -> Result<(), Fault> {
    let request = giop::LocateRequest::parse(octets, header, &core.config().limits)?;
    let mut reply = Encoder::with_buffer(std::mem::take(&mut memory.reply));
    let mut located =
        object_key(&request.target, &core.config().limits).map_or(Located::Unknown, |key| core.adapters().locate(key));
    if let Located::Held(until) = &located {
        match hold(core, connection, until, Message::Assembled(*header, octets.to_vec(), Vec::new())) {
            Ok(()) => {
                memory.reply = reply.into_buffer();
                return Ok(());
            }
            Err(exception) => located = Located::Raised(exception),
        }
    }
    let status = match &located {
        Located::Here | Located::Held(_) => LocateStatus::ObjectHere,
        Located::Forward(_) => LocateStatus::ObjectForward,
        Located::Raised(_) if header.version == corelane_wire::Version::GIOP_1_2 => LocateStatus::SystemException,
        // Earlier versions cannot say why.
        Located::Unknown | Located::Raised(_) => LocateStatus::UnknownObject,
    };
    giop::begin_locate_reply(&mut reply, header.version, request.request_id, status);
    match (status, located) {
        (LocateStatus::ObjectForward, Located::Forward(reference)) => {
            // A reference that was encoded once is encoded again.
            let _ = reference.ior().encode(&mut reply);
        }
        (LocateStatus::SystemException, Located::Raised(exception)) => exception.encode(&mut reply),
        _ => {}
    }
    send_out_of_line(core, connection, &mut reply, request.request_id, wait);
    memory.reply = reply.into_buffer();
    Ok(())
}

/// A CloseConnection, which is the same in every version.
pub(crate) fn close_connection() -> Vec<u8> {
    let mut message = Encoder::new();
    giop::write_close_connection(&mut message, corelane_wire::Version::GIOP_1_0);
    message.into_buffer()
}

/// A MessageError of the highest version: what is wrong may well be the version.
pub(crate) fn message_error() -> Vec<u8> {
    let mut message = Encoder::new();
    giop::write_message_error(&mut message, corelane_wire::Version::GIOP_1_2);
    message.into_buffer()
}
