//! The fast path of a call: check out an idle connection, send the request, receive the reply. If a
//! step fails, or no connection is idle, the [driver](super::driver) continues the call.

use std::hint::cold_path;
use std::io;
use std::sync::Arc;

use corelane_net::Endpoint;
use corelane_sys::probe;
use corelane_wire::codeset::CodeSetContext;
use corelane_wire::exception::minor;
use corelane_wire::giop::{
    self, AddressingMode, Header, LocateStatus, MessageKind, ReplyStatus, RequestHeader, ResponseExpected,
    ServiceContext, context_id,
};
use corelane_wire::ior::Ior;
use corelane_wire::rt as wire_rt;
use corelane_wire::{Cdr, CdrError, CodeSets, Decoder, Encoder, Limits};

use super::Operation;
use super::callee::Callee;
use super::driver::Driver;
use super::lane_selector::PoolSelection;
use super::machine::{LastMessage, MachineInput};
use super::reply::{Reply, ReplyBody, read_results};
use super::target::{AlternateTarget, Binding, TargetProfiles, UsableProfile};
use super::thread_policies::{has_thread_policies, with_thread_policies};
use crate::client::checkout::Checkout;
use crate::client::connection::{ClientConnection, MIN_OWNED_BYTES, ReceivedMessage};
use crate::client::context::ClientContext;
use crate::clock;
use crate::exception::{
    CallPhase, Completion, FailureDetail, SystemException, SystemExceptionKind as Kind, no_such_object,
};
use crate::exchange::{BytesSent, ExchangeError};
use crate::fault::PeerFault;
use crate::memory::over_budget;
use crate::nested_wait;
use crate::policy::{CallDeadline, SyncScope, Timeout};
use crate::service_contexts::{ContextList, context};

/// Writes the arguments of a request. Each attempt calls the function again, because GIOP version,
/// alignment and code sets may differ.
pub(crate) type ArgumentWriter<'c, 'a> = &'c dyn Fn(&mut Encoder<'a>) -> Result<(), CdrError>;

pub(crate) fn invoke<'r, 'a>(
    callee: &'r Callee,
    operation: &Operation<'_>,
    arguments: ArgumentWriter<'_, 'a>,
) -> Result<Reply<'r>, SystemException> {
    let context = callee.context();
    if has_thread_policies() {
        return invoke_as(context, callee, operation, arguments);
    }
    let request = RequestSpec::Call { operation, response: ResponseExpected::Target, arguments };
    context.check_usable()?;
    Invocation::new(context, callee, request).run_out_of_line(callee)?.ok_or_else(missing_reply)
}

/// Makes a two-way call whose reply may outlive `callee`.
#[cold]
pub(crate) fn invoke_as<'r, 'a>(
    context: &'r Arc<ClientContext>,
    callee: &Callee,
    operation: &Operation<'_>,
    arguments: ArgumentWriter<'_, 'a>,
) -> Result<Reply<'r>, SystemException> {
    let callee = &with_thread_policies(callee);
    let request = RequestSpec::Call { operation, response: ResponseExpected::Target, arguments };
    context.check_usable()?;
    Invocation::new(context, callee, request).run()?.ok_or_else(missing_reply)
}

pub(crate) type ResultReader<'c> = &'c mut dyn FnMut(&mut Decoder<'_>) -> Result<(), CdrError>;

/// Makes a two-way call from a thread without policies. On the fast path, `results` reads the
/// results, and this function returns `None`. Otherwise it returns the reply.
#[inline(always)]
pub(crate) fn call<'r, 'a>(
    callee: &'r Callee,
    operation: &Operation<'_>,
    arguments: ArgumentWriter<'_, 'a>,
    results: ResultReader<'_>,
) -> Result<Option<Reply<'r>>, SystemException> {
    let context = callee.context();
    let request = RequestSpec::Call { operation, response: ResponseExpected::Target, arguments };
    context.check_usable()?;
    Invocation::new(context, callee, request).run_inline(callee, results)
}

#[cold]
fn missing_reply() -> SystemException {
    SystemException::new(Kind::Internal, 0, Completion::Maybe)
}

/// Makes a oneway call. With [`SyncScope::Server`] and [`SyncScope::Target`], waits for the
/// server's reply.
pub(crate) fn oneway<'a>(
    callee: &Callee,
    operation: &Operation<'_>,
    scope: SyncScope,
    arguments: ArgumentWriter<'_, 'a>,
) -> Result<(), SystemException> {
    let context = callee.context();
    let replaced;
    let callee = if has_thread_policies() {
        replaced = with_thread_policies(callee);
        &replaced
    } else {
        callee
    };
    let response = match scope {
        SyncScope::None | SyncScope::Transport => ResponseExpected::None,
        SyncScope::Server => ResponseExpected::Server,
        SyncScope::Target => ResponseExpected::Target,
    };
    context.check_usable()?;
    let mut call = Invocation::new(context, callee, RequestSpec::Call { operation, response, arguments });
    call.may_batch = scope == SyncScope::None;
    call.run_out_of_line(callee).map(drop)
}

/// Sends a LocateRequest, follows forwards, and records the target at which the object was found.
#[cold]
pub(crate) fn locate(callee: &Callee) -> Result<(), SystemException> {
    let callee = &with_thread_policies(callee);
    let context = callee.context();
    context.check_usable()?;
    Driver::new(Invocation::new(context, callee, RequestSpec::Locate)).run().map(drop)
}

#[derive(Clone, Copy)]
pub(super) enum RequestSpec<'c, 'a> {
    Call { operation: &'c Operation<'c>, response: ResponseExpected, arguments: ArgumentWriter<'c, 'a> },
    Locate,
}

/// Size in bytes up to which a request is assumed to fit in the transport's buffers.
const MAX_UNBLOCKED_BYTES: usize = 16 * 1024;

pub(super) struct ReplyHead {
    pub(super) request_id: u32,
    pub(super) status: ReplyStatus,
    pub(super) body_offset: usize,
    is_object_missing: bool,
}

impl ReplyHead {
    #[inline]
    pub(super) fn parse(octets: &[u8], header: &Header, limits: &Limits) -> Result<Self, PeerFault> {
        match header.kind {
            MessageKind::Reply => {
                let reply = giop::Reply::parse(octets, header, limits)?;
                Ok(ReplyHead {
                    request_id: reply.request_id,
                    status: reply.status,
                    body_offset: reply.body_offset,
                    is_object_missing: false,
                })
            }
            MessageKind::LocateReply => Self::of_locate(&giop::LocateReply::parse(octets, header)?),
            kind => Err(PeerFault::UnexpectedMessage(kind)),
        }
    }

    #[cold]
    fn of_locate(reply: &giop::LocateReply<'_>) -> Result<Self, PeerFault> {
        let status = match reply.status {
            LocateStatus::UnknownObject | LocateStatus::ObjectHere => ReplyStatus::NoException,
            LocateStatus::ObjectForward | LocateStatus::ObjectForwardPerm => ReplyStatus::LocationForward,
            LocateStatus::SystemException => ReplyStatus::SystemException,
            LocateStatus::NeedsAddressingMode => ReplyStatus::NeedsAddressingMode,
        };
        let is_object_missing = reply.status == LocateStatus::UnknownObject;
        Ok(ReplyHead { request_id: reply.request_id, status, body_offset: reply.body_offset, is_object_missing })
    }
}

/// A reply in its connection's buffer. The drop removes the reply from the buffer.
struct ReplyGuard<'c> {
    connection: &'c mut ClientConnection,
    length: usize,
}

impl Drop for ReplyGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.connection.consume(self.length);
    }
}

pub(super) enum AttemptError {
    Forward(Ior),
    Raised(SystemException),
    NeedsAddressing(AddressingMode),
    Failed(MachineInput, FailureDetail),
    Refused(SystemException),
}

pub(super) type AttemptResult<'r> = Result<Option<Reply<'r>>, Box<AttemptError>>;

#[derive(Clone, Copy)]
pub(super) struct CallRoute<'t> {
    pub(super) target: &'t TargetProfiles,
    pub(super) profile: &'t UsableProfile,
    pub(super) addressing: AddressingMode,
}

impl<'t> CallRoute<'t> {
    /// Returns the route and the pool of a call on the fast path. Returns `None` if the driver must
    /// make the call: the object is forwarded, no profile or pool can be selected, or the ORB has
    /// interceptors. The function is inlined, because a returned pair would go through memory.
    #[inline(always)]
    pub(super) fn preferred(context: &ClientContext, binding: &'t Binding) -> Option<(Self, PoolSelection<'t>)> {
        let at = binding.preferred_profile()?;
        if context.interceptors().is_some() {
            return None;
        }
        let target = binding.original(context);
        let profile = target.profiles.get(at)?;
        let chosen = profile.select_pool(context).ok()?;
        Some((CallRoute { target, profile, addressing: AddressingMode::Key }, chosen))
    }
}

impl CallRoute<'_> {
    #[cold]
    fn profile_index(self) -> usize {
        self.target.profiles.iter().position(|profile| std::ptr::eq(profile, self.profile)).unwrap_or(0)
    }
}

#[derive(Clone)]
pub(super) struct Invocation<'r, 'c, 'a> {
    pub(super) context: &'r Arc<ClientContext>,
    pub(super) callee: &'c Callee,
    pub(super) request: RequestSpec<'c, 'a>,
    pub(super) due: CallDeadline,
    pub(super) priority: Option<i16>,
    pub(super) range: Option<(i16, i16)>,
    pub(super) may_batch: bool,
    /// Connections with lower ids are older than the call.
    pub(super) first_new_connection: u64,
    pub(super) sends_deadline: bool,
}

impl<'r, 'c, 'a> Invocation<'r, 'c, 'a> {
    /// Creates the state of a call. The caller must have
    /// [checked](crate::orb_context::OrbContext::check_usable) the ORB.
    #[inline]
    pub(super) fn new(context: &'r Arc<ClientContext>, callee: &'c Callee, request: RequestSpec<'c, 'a>) -> Self {
        probe!("call begun");
        let (timeout, first_new_connection) = (callee.timeout(), context.peek_connection_id());
        let (due, sends_deadline) = (CallDeadline::from_timeout(timeout), matches!(timeout, Timeout::Precise(_)));
        Invocation {
            context,
            callee,
            request,
            due,
            priority: None,
            range: None,
            may_batch: false,
            first_new_connection,
            sends_deadline,
        }
    }

    /// Makes a two-way call, on the fast path if possible. `callee` must be the callee of this
    /// call, because the connection is borrowed from its pool.
    ///
    /// The function is inlined, because the processor then predicts fewer returns wrongly after the
    /// wait for the reply (docs/decisions/0010-into-the-kernel-and-back.md).
    #[inline(always)]
    fn run_inline(
        &mut self,
        callee: &'r Callee,
        results: ResultReader<'_>,
    ) -> Result<Option<Reply<'r>>, SystemException> {
        if let Some((route, chosen)) = CallRoute::preferred(self.context, callee.binding())
            && let Some(connection) = chosen.pool.borrow_idle(true, self.due)
        {
            self.priority = chosen.priority;
            return self.exchange(route, connection, Some(results));
        }
        Driver::new(self.clone()).run()
    }

    #[inline(never)]
    fn run_out_of_line(&mut self, callee: &'r Callee) -> Result<Option<Reply<'r>>, SystemException> {
        if let Some((route, chosen)) = CallRoute::preferred(self.context, callee.binding())
            && let Some(connection) = chosen.pool.borrow_idle(self.wants_reply(), self.due)
        {
            self.priority = chosen.priority;
            return self.exchange_out_of_line(route, connection);
        }
        Driver::new(self.clone()).run()
    }

    fn run(&mut self) -> Result<Option<Reply<'r>>, SystemException> {
        if let Some((route, chosen)) = CallRoute::preferred(self.context, self.callee.binding())
            && let Some(connection) = chosen.pool.take_idle(0, true, self.due)
        {
            self.priority = chosen.priority;
            return self.exchange_out_of_line(route, connection);
        }
        Driver::new(self.clone()).run()
    }

    #[inline(never)]
    fn exchange_out_of_line(
        &mut self,
        route: CallRoute<'_>,
        connection: Checkout<'r>,
    ) -> Result<Option<Reply<'r>>, SystemException> {
        self.exchange(route, connection, None)
    }

    /// Sends the request and receives the reply. `connection` is not moved, because reading a value
    /// just after a move stalls store forwarding (docs/performance.md).
    #[inline(always)]
    fn exchange(
        &mut self,
        route: CallRoute<'_>,
        mut connection: Checkout<'r>,
        results: Option<ResultReader<'_>>,
    ) -> Result<Option<Reply<'r>>, SystemException> {
        let id = match self.transmit(route, &mut connection, &[]) {
            Ok(Some(id)) => id,
            Ok(None) => {
                self.callee.binding().record_first_reply(route.profile);
                return Ok(None);
            }
            Err(error) => return self.retry_from(route, connection, *error),
        };
        let own = &mut *connection;
        let is_read = match own.read_reply_fast(self.due, self.callee.canceller()) {
            Ok(is_read) => is_read,
            Err(broken) => {
                let error = self.on_no_reply(route, &mut connection, id, broken);
                return self.retry_from(route, connection, *error);
            }
        };
        if is_read && let Some(header) = own.plain_reply(id, &self.context.config().limits) {
            probe!("reply read", id.into());
            self.callee.binding().record_first_reply(route.profile);
            return self.deliver(route, connection, header, results);
        }
        self.finish_exchange(route, connection, id, !is_read)
    }

    /// Receives the whole reply. `first` is false if the call has read from the connection before.
    #[inline]
    pub(super) fn finish_exchange(
        &mut self,
        route: CallRoute<'_>,
        connection: Checkout<'r>,
        id: u32,
        first: bool,
    ) -> Result<Option<Reply<'r>>, SystemException> {
        match self.await_reply(route, connection, id, first) {
            Ok(reply) => {
                self.callee.binding().record_first_reply(route.profile);
                Ok(reply)
            }
            Err(error) => Driver::new(self.clone()).resume_after(*error, route.profile_index(), false),
        }
    }

    #[inline]
    pub(super) fn deliver(
        &self,
        route: CallRoute<'_>,
        mut connection: Checkout<'r>,
        header: Header,
        results: Option<ResultReader<'_>>,
    ) -> Result<Option<Reply<'r>>, SystemException> {
        let own = &mut *connection;
        let codec = (header.endian, header.version, own.announced.unwrap_or(route.profile.default_code_sets));
        let Some(results) = results else {
            let body = ReplyBody::InPlace(connection, header.total_len());
            return Ok(Some(Reply::new(body, self.context, giop::Reply::PLAIN_HEADER_LEN, codec)));
        };
        let arrived = ReplyGuard { connection: own, length: header.total_len() };
        let octets = arrived.connection.front_message(arrived.length);
        read_results(self.context, octets, None, giop::Reply::PLAIN_HEADER_LEN, codec, results).map(|_| None)
    }

    #[cold]
    pub(super) fn retry_from(
        &self,
        route: CallRoute<'_>,
        connection: Checkout<'_>,
        error: AttemptError,
    ) -> Result<Option<Reply<'r>>, SystemException> {
        drop(connection);
        Driver::new(self.clone()).resume_after(error, route.profile_index(), false)
    }

    pub(super) fn attempt(&mut self, route: CallRoute<'_>, connection: Checkout<'r>) -> AttemptResult<'r> {
        let Some(begun) = self.begin_interception(route, connection.peer())? else {
            return self.exchange_once(route, connection, &[]);
        };
        let outcome = self.exchange_once(route, connection, begun.contexts());
        self.end_interception(route, &begun, &outcome);
        outcome
    }

    fn exchange_once(
        &mut self,
        route: CallRoute<'_>,
        mut connection: Checkout<'r>,
        added: &[(u32, Vec<u8>)],
    ) -> AttemptResult<'r> {
        match self.transmit(route, &mut connection, added)? {
            Some(id) => self.await_reply(route, connection, id, true),
            None => Ok(None),
        }
    }

    #[inline]
    pub(super) fn transmit(
        &mut self,
        route: CallRoute<'_>,
        connection: &mut Checkout<'_>,
        added: &[(u32, Vec<u8>)],
    ) -> Result<Option<u32>, Box<AttemptError>> {
        if !self.wants_reply() && !connection.ensure_monitored() {
            let broken = ExchangeError::Io(io::ErrorKind::ConnectionAborted.into());
            let id = connection.next_request_id();
            return Err(self.connection_lost(connection, id, BytesSent::None, broken));
        }
        let own = &mut **connection;
        let id = own.next_request_id();
        let announce = self.code_sets_to_announce(route, own.announced);
        let announced = own.announced.or(announce);
        let mut encoder = Encoder::with_buffer(std::mem::take(&mut own.request_memory));
        encoder.set_code_sets(announced.unwrap_or(route.profile.default_code_sets));
        if let Err(error) = self.write(&mut encoder, route, id, announce, added) {
            let exception = crate::trail::unwritable(error, "argument ", &encoder);
            own.request_memory = encoder.take_buffer();
            return Err(refuse(exception));
        }
        // `announced` is set after the arguments are written, because a message whose writer panics
        // is not sent.
        own.announced = announced;
        probe!("request marshalled", id.into());
        if self.may_batch
            && let Some(message) = encoder.as_contiguous_slice()
            && connection.buffer_oneway(message, self.context)
        {
            cold_path();
            connection.request_memory = encoder.take_buffer();
            return Ok(None);
        }
        let own = &mut **connection;
        let sent = own.send(&encoder, id, self.due, self.context.config().fragment_size);
        probe!("request sent", id.into());
        if encoder.len() > MAX_UNBLOCKED_BYTES {
            cold_path();
            self.due = self.due.after_slow_step();
        }
        own.request_memory = encoder.take_buffer();
        if let Err((bytes_sent, broken)) = sent {
            return self.on_incomplete_send(connection, id, bytes_sent, broken);
        }
        Ok(self.wants_reply().then_some(id))
    }

    /// Handles a failure to send the whole request. Returns the id of a two-way request if a part
    /// was sent and the connection then failed, because the server may have replied to this part.
    #[cold]
    fn on_incomplete_send(
        &self,
        connection: &mut Checkout<'_>,
        id: u32,
        bytes_sent: BytesSent,
        broken: ExchangeError,
    ) -> Result<Option<u32>, Box<AttemptError>> {
        if bytes_sent == BytesSent::Some && matches!(broken, ExchangeError::Io(_)) && self.wants_reply() {
            connection.mark_truncated();
            return Ok(Some(id));
        }
        Err(self.connection_lost(connection, id, bytes_sent, broken))
    }

    #[inline]
    pub(super) fn code_sets_to_announce(&self, route: CallRoute<'_>, announced: Option<CodeSets>) -> Option<CodeSets> {
        match &self.request {
            RequestSpec::Call { .. } if announced.is_none() => route.profile.code_sets,
            _ => None,
        }
    }

    #[inline]
    pub(super) fn wants_reply(&self) -> bool {
        !matches!(&self.request, RequestSpec::Call { response: ResponseExpected::None, .. })
    }

    /// Writes the request. `id` is the request id, `announce` the code sets to announce, and
    /// `added` the service contexts of the interceptors.
    #[inline]
    pub(super) fn write(
        &self,
        encoder: &mut Encoder<'a>,
        route: CallRoute<'_>,
        id: u32,
        announce: Option<CodeSets>,
        added: &[(u32, Vec<u8>)],
    ) -> Result<(), CdrError> {
        let RequestSpec::Call { operation, response, arguments } = &self.request else {
            return self.write_extended(encoder, route, id, announce, added);
        };
        let says_more = announce.is_some() || self.priority.is_some() || self.range.is_some() || self.sends_deadline;
        if says_more || !added.is_empty() || route.addressing != AddressingMode::Key {
            return self.write_extended(encoder, route, id, announce, added);
        }
        let head = RequestHeader {
            version: route.profile.version,
            request_id: id,
            response_expected: *response,
            target: giop::TargetAddress::Key(&route.profile.object_key),
            operation: operation.name().as_bytes(),
            contexts: &[],
        };
        giop::write_request_header(encoder, &head)?;
        arguments(encoder)?;
        giop::finish_message(encoder)
    }

    #[inline(never)]
    fn write_extended(
        &self,
        encoder: &mut Encoder<'a>,
        route: CallRoute<'_>,
        id: u32,
        announce: Option<CodeSets>,
        added: &[(u32, Vec<u8>)],
    ) -> Result<(), CdrError> {
        let alternate;
        let target = match route.addressing {
            AddressingMode::Key => giop::TargetAddress::Key(&route.profile.object_key),
            mode => {
                alternate = AlternateTarget::new(&route.target.ior, route.profile.index, encoder.endian())?;
                alternate.target(mode)
            }
        };
        let RequestSpec::Call { operation, response, arguments } = &self.request else {
            return giop::write_locate_request(encoder, route.profile.version, id, &target);
        };
        let code_sets = announce.map(|code_sets| CodeSetContext::from(code_sets).data());
        let range = self.range.map(|(low, high)| wire_rt::encode_priority_range_context(low, high));
        let priority = self.priority.map(wire_rt::encode_priority_context);
        let remaining = match self.due {
            CallDeadline::At(moment) if self.sends_deadline && route.profile.is_ours => {
                Some(moment.since(clock::now()))
            }
            _ => None,
        };
        let deadline = remaining.map(wire_rt::encode_deadline_context);
        let contexts = ContextList::new([
            context(context_id::CODE_SETS, &code_sets),
            context(context_id::RT_CORBA_PRIORITY, &priority),
            context(context_id::RT_CORBA_PRIORITY_RANGE, &range),
            context(context_id::REMAINING_DEADLINE, &deadline),
        ]);
        let all: Vec<_>;
        let contexts = if added.is_empty() {
            contexts.as_slice()
        } else {
            let added = added.iter().map(|(id, data)| ServiceContext { id: *id, data });
            all = contexts.as_slice().iter().copied().chain(added).collect();
            &all
        };
        let head = RequestHeader {
            version: route.profile.version,
            request_id: id,
            response_expected: *response,
            target,
            operation: operation.name().as_bytes(),
            contexts,
        };
        giop::write_request_header(encoder, &head)?;
        arguments(encoder)?;
        giop::finish_message(encoder)
    }

    /// Reads messages until the reply arrives. `first` is false if the call has read from the
    /// connection before.
    fn await_reply(
        &mut self,
        route: CallRoute<'_>,
        mut connection: Checkout<'r>,
        id: u32,
        first: bool,
    ) -> AttemptResult<'r> {
        let mut first = first;
        loop {
            let (limits, canceller) = (&self.context.config().limits, self.callee.canceller());
            let received = match connection.receive_message(self.due, limits, canceller, first) {
                Ok(received) => received,
                Err(broken) => return Err(self.on_no_reply(route, &mut connection, id, broken)),
            };
            first = true;
            probe!("reply read", id.into());
            connection = match self.on_message(route, connection, id, received) {
                Ok(outcome) => return outcome,
                Err(connection) => connection,
            };
        }
    }

    /// Handles a message that the call has read. If the message is a late reply to an abandoned
    /// call, returns the connection as the error, and the caller must read the next message.
    pub(super) fn on_message(
        &mut self,
        route: CallRoute<'_>,
        mut connection: Checkout<'r>,
        id: u32,
        received: ReceivedMessage,
    ) -> Result<AttemptResult<'r>, Checkout<'r>> {
        let (header, octets) = match &received {
            ReceivedMessage::InPlace(header, length) => (*header, connection.front_message(*length)),
            ReceivedMessage::Owned(whole) => (whole.header, whole.message.as_slice()),
        };
        let head = match ReplyHead::parse(octets, &header, &self.context.config().limits) {
            Ok(head) => head,
            Err(fault) => return Ok(Err(self.on_no_reply(route, &mut connection, id, fault.into()))),
        };
        if head.request_id == id {
            return Ok(self.on_reply(route, connection, received, header, &head));
        }
        if !connection.accept_late_reply() {
            // If the client skipped replies to unknown requests, a server could prolong the call
            // without end. So the connection is closed.
            return Ok(Err(self.on_no_reply(
                route,
                &mut connection,
                id,
                PeerFault::UnexpectedMessage(header.kind).into(),
            )));
        }
        self.due = self.due.to_absolute();
        if let ReceivedMessage::InPlace(_, length) = received {
            connection.consume(length);
        }
        Err(connection)
    }

    /// Returns the result of an attempt that got this reply. A reply of at least
    /// [`MIN_OWNED_BYTES`] takes its buffer from the connection.
    fn on_reply(
        &self,
        route: CallRoute<'_>,
        mut connection: Checkout<'r>,
        received: ReceivedMessage,
        header: Header,
        head: &ReplyHead,
    ) -> AttemptResult<'r> {
        let announced = connection.announced;
        if head.status == ReplyStatus::SystemException {
            connection.on_system_exception(&received);
        }
        let body = match received {
            ReceivedMessage::InPlace(_, length) if length < MIN_OWNED_BYTES => ReplyBody::InPlace(connection, length),
            ReceivedMessage::InPlace(_, length) => {
                ReplyBody::owned(connection.take_message(length).into_octets(), Vec::new())
            }
            ReceivedMessage::Owned(whole) => ReplyBody::owned(whole.message, whole.breaks),
        };
        self.interpret_reply(route, body, header, head, announced)
    }

    pub(super) fn interpret_reply(
        &self,
        route: CallRoute<'_>,
        body: ReplyBody<'r>,
        header: Header,
        head: &ReplyHead,
        announced: Option<CodeSets>,
    ) -> AttemptResult<'r> {
        let code_sets = announced.unwrap_or(route.profile.default_code_sets);
        let codec = (header.endian, header.version, code_sets);
        let reply = Reply::new(body, self.context, head.body_offset, codec);
        if head.status == ReplyStatus::NoException && !head.is_object_missing {
            Ok(Some(reply))
        } else {
            non_result(reply, head)
        }
    }

    /// After a time-out or a cancellation, abandons the reply ([`ClientConnection::abandon`]).
    /// After other failures, closes the connection.
    #[cold]
    pub(super) fn on_no_reply(
        &self,
        route: CallRoute<'_>,
        connection: &mut Checkout<'_>,
        id: u32,
        broken: ExchangeError,
    ) -> Box<AttemptError> {
        if !matches!(broken, ExchangeError::Cancelled | ExchangeError::TimedOut) {
            let bytes_sent = if connection.is_truncated() { BytesSent::Some } else { BytesSent::All };
            return self.connection_lost(connection, id, bytes_sent, broken);
        }
        let mut cancel = Encoder::new();
        giop::write_cancel_request(&mut cancel, route.profile.version, id);
        connection.abandon(&cancel);
        self.abandoned(connection.endpoint(), &broken)
    }

    #[cold]
    pub(super) fn abandoned(&self, endpoint: &Endpoint, broken: &ExchangeError) -> Box<AttemptError> {
        match broken {
            ExchangeError::Cancelled => {
                let detail = self.detail(endpoint, CallPhase::WaitForReply, "cancelled by the caller".into());
                refuse(
                    SystemException::new(Kind::Transient, minor::transient::CANCELLED, Completion::Maybe)
                        .with_detail(detail),
                )
            }
            _ => self.attempt_failed(endpoint, BytesSent::All, broken, LastMessage::None),
        }
    }

    #[cold]
    fn connection_lost(
        &self,
        connection: &mut Checkout<'_>,
        id: u32,
        bytes_sent: BytesSent,
        broken: ExchangeError,
    ) -> Box<AttemptError> {
        let final_message = match &broken {
            ExchangeError::Fault(PeerFault::UnexpectedMessage(kind)) => Some(*kind),
            ExchangeError::Io(_) if bytes_sent != BytesSent::None && !connection.has_begun_reply(id) => {
                connection.final_message(id, &self.context.config().limits)
            }
            _ => None,
        };
        let last_message = LastMessage::about_request(final_message, connection.has_begun_reply(id));
        let error = self.attempt_failed(connection.endpoint(), bytes_sent, &broken, last_message);
        if let ExchangeError::Fault(fault) = broken {
            self.context.events().fault_of_server(connection.peer(), fault);
        }
        connection.discard();
        error
    }

    /// Returns the error of an attempt after a failure. `last_message` is the server's last message
    /// about the request before the failure.
    #[cold]
    pub(super) fn attempt_failed(
        &self,
        endpoint: &Endpoint,
        bytes_sent: BytesSent,
        broken: &ExchangeError,
        last_message: LastMessage,
    ) -> Box<AttemptError> {
        let phase = if bytes_sent == BytesSent::All { CallPhase::WaitForReply } else { CallPhase::SendRequest };
        if let ExchangeError::OverBudget(refusal) = broken {
            let setting = "OrbBuilder::max_reply_memory";
            let mut exception = over_budget("the reply exceeds the memory limit", *refusal, setting, Completion::Maybe);
            if let Some(known) = exception.detail() {
                let detail = self.detail(endpoint, phase, known.message.clone());
                exception = exception.with_detail(FailureDetail { elapsed: None, ..detail });
            }
            return refuse(exception);
        }
        let is_end = matches!(
            broken,
            ExchangeError::Fault(PeerFault::UnexpectedMessage(
                MessageKind::CloseConnection | MessageKind::MessageError
            ))
        );
        let message = match broken {
            ExchangeError::Fault(fault) if !is_end => format!("the server broke the protocol: {fault}"),
            _ if last_message == LastMessage::PartialReply => {
                "the connection ended after the reply had begun".to_owned()
            }
            _ if last_message == LastMessage::CloseConnection => {
                "the server closed the connection gracefully".to_owned()
            }
            _ if last_message == LastMessage::MessageError => {
                "the server sent MessageError: it could not read the request".to_owned()
            }
            ExchangeError::TimedOut if phase == CallPhase::WaitForReply => self.nested_wait_hint(),
            ExchangeError::TimedOut | ExchangeError::Cancelled | ExchangeError::OverBudget(_) => String::new(),
            ExchangeError::Io(error) => error.to_string(),
            ExchangeError::Fault(fault) => fault.to_string(),
        };
        let mut detail = self.detail(endpoint, phase, message);
        if !matches!((broken, self.due), (ExchangeError::TimedOut, _) | (_, CallDeadline::At(_))) {
            // With a relative deadline the ORB does not measure the time of a call, so the detail
            // has no elapsed time.
            detail.elapsed = None;
        }
        let input = match broken {
            ExchangeError::TimedOut => MachineInput::DeadlinePassed(phase),
            _ => MachineInput::ConnectionLost { bytes_sent, last_message },
        };
        Box::new(AttemptError::Failed(input, detail))
    }

    #[cold]
    fn nested_wait_hint(&self) -> String {
        if !crate::upcall_stack::in_upcall_of(self.context.stamp()) || nested_wait::dispatches_while_waiting() {
            return String::new();
        }
        let thread = std::thread::current();
        format!(
            "called in an upcall on the thread {}, which ran no other requests while it waited. If the reply depends on another \
             request to this pool, all threads of the pool may have waited for one another (PoolConfig::nested_wait)",
            thread.name().unwrap_or("without a name")
        )
    }

    fn detail(&self, endpoint: &Endpoint, phase: CallPhase, message: String) -> FailureDetail {
        let elapsed = self.due.elapsed(self.callee.timeout());
        FailureDetail { endpoint: Some(endpoint.to_string()), phase: Some(phase), elapsed, message }
    }
}

#[cold]
pub(super) fn refuse(exception: SystemException) -> Box<AttemptError> {
    Box::new(AttemptError::Refused(exception))
}

#[cold]
fn non_result<'r>(mut reply: Reply<'r>, head: &ReplyHead) -> AttemptResult<'r> {
    let error = match head.status {
        ReplyStatus::NoException => Ok(AttemptError::Raised(no_such_object())),
        ReplyStatus::UserException => match reply.into_exception() {
            Ok(exception) => return Ok(Some(exception)),
            Err(malformed) => Err(malformed),
        },
        ReplyStatus::SystemException => reply.read(SystemException::decode).map(AttemptError::Raised),
        ReplyStatus::LocationForward | ReplyStatus::LocationForwardPerm => {
            reply.read(Ior::decode).map(AttemptError::Forward)
        }
        ReplyStatus::NeedsAddressingMode => reply.read(|decoder| decoder.read_i16()).map(|mode| {
            AttemptError::NeedsAddressing(AddressingMode::from_number(mode).unwrap_or(AddressingMode::Key))
        }),
    };
    Err(Box::new(error.unwrap_or_else(AttemptError::Refused)))
}
