//! One call: a connection, the request out, the reply in. What nearly every call does is here and takes no detour; whatever else
//! happens is the [driver](super::driver)'s.

use std::hint::cold_path;
use std::io;
use std::sync::Arc;

use corelane_net::Endpoint;
use corelane_sys::probe;
use corelane_wire::codeset::CodeSetContext;
use corelane_wire::exception::minor;
use corelane_wire::giop::{
    self, AddressingMode, Header, LocateStatus, MessageKind, ReplyStatus, RequestHead, ResponseExpected,
    ServiceContext, context_id,
};
use corelane_wire::ior::Ior;
use corelane_wire::rt as wire_rt;
use corelane_wire::{Cdr, CdrError, CodeSets, Decoder, Encoder, Limits, Octets};

use super::Operation;
use super::driver::Driver;
use super::machine::{Input, Written};
use super::reply::{Body, Reply, read_results};
use super::target::{Binding, Profile, RareTarget, Target};
use crate::client::connection::{Broken, ClientConnection, OWNED_FROM, Received};
use crate::client::pool::Checkout;
use crate::clock;
use crate::exception::{Completion, Detail, Phase, SystemException, SystemExceptionKind as Kind};
use crate::fault::Fault;
use crate::object::ObjectRef;
use crate::orb::Core;
use crate::policy::{Due, SyncScope, Timeout};
use crate::rt::client::Chosen;
use crate::server::serving;

/// How arguments are written; called again for every attempt, because version, alignment and code sets may differ.
pub(crate) type Arguments<'c, 'a> = &'c dyn Fn(&mut Encoder<'a>) -> Result<(), CdrError>;

/// A two-way call through `object`.
pub(crate) fn invoke<'r, 'a>(
    object: &'r ObjectRef,
    operation: &Operation<'_>,
    arguments: Arguments<'_, 'a>,
) -> Result<Reply<'r>, SystemException> {
    let core = object.core();
    if object.binding().may_be_local(core) && object.binding().forwarded().is_none() {
        return crate::poa::invoke_local(core, object, operation, arguments);
    }
    if crate::rt::client::has_policies_of_thread() {
        return invoke_as(core, object, operation, arguments);
    }
    let request = Request::Call { operation, response: ResponseExpected::Target, arguments };
    core.check_usable()?;
    Call::new(core, object, request).run_out_of_line(object)?.ok_or_else(no_reply_wanted)
}

/// The same under the policies of the calling thread, or through a reference that does not last as long as the reply.
#[cold]
pub(crate) fn invoke_as<'r, 'a>(
    core: &'r Arc<Core>,
    object: &ObjectRef,
    operation: &Operation<'_>,
    arguments: Arguments<'_, 'a>,
) -> Result<Reply<'r>, SystemException> {
    let object = &crate::rt::client::under_policies_of_thread(core, object);
    let request = Request::Call { operation, response: ResponseExpected::Target, arguments };
    core.check_usable()?;
    Call::new(core, object, request).run()?.ok_or_else(no_reply_wanted)
}

/// What reads the results of a call.
pub(crate) type Results<'c> = &'c mut dyn FnMut(&mut Decoder<'_>) -> Result<(), CdrError>;

/// What [`invoke`] does, with `results`, which read them where they have arrived; what nearly every stub does, so it is there once for all of them. A reply
/// is one that they have not read: it is a user exception, or came in another way.
#[inline(never)]
pub(crate) fn call<'r, 'a>(
    object: &'r ObjectRef,
    operation: &Operation<'_>,
    arguments: Arguments<'_, 'a>,
    results: Results<'_>,
) -> Result<Option<Reply<'r>>, SystemException> {
    let core = object.core();
    if (object.binding().may_be_local(core) && object.binding().forwarded().is_none())
        || crate::rt::client::has_policies_of_thread()
    {
        return invoke(object, operation, arguments).map(Some);
    }
    let request = Request::Call { operation, response: ResponseExpected::Target, arguments };
    core.check_usable()?;
    Call::new(core, object, request).run_through(object, results)
}

#[cold]
fn no_reply_wanted() -> SystemException {
    SystemException::new(Kind::Internal, 0, Completion::Maybe)
}

/// A oneway call.
pub(crate) fn oneway<'a>(
    object: &ObjectRef,
    operation: &Operation<'_>,
    scope: SyncScope,
    arguments: Arguments<'_, 'a>,
) -> Result<(), SystemException> {
    let core = object.core();
    if object.binding().may_be_local(core) && object.binding().forwarded().is_none() {
        return crate::poa::send_local(object, operation, arguments);
    }
    let replaced;
    let object = if crate::rt::client::has_policies_of_thread() {
        replaced = crate::rt::client::under_policies_of_thread(core, object);
        &replaced
    } else {
        object
    };
    let response = match scope {
        SyncScope::None | SyncScope::Transport => ResponseExpected::None,
        SyncScope::Server => ResponseExpected::Server,
        SyncScope::Target => ResponseExpected::Target,
    };
    core.check_usable()?;
    let mut call = Call::new(core, object, Request::Call { operation, response, arguments });
    call.may_be_held = scope == SyncScope::None;
    call.run_out_of_line(object).map(drop)
}

/// Asks the server where the object is; forwards are followed and remembered.
#[cold]
pub(crate) fn locate(object: &ObjectRef) -> Result<(), SystemException> {
    if object.binding().may_be_local(object.core()) {
        return crate::poa::locate_local(object);
    }
    let object = &crate::rt::client::under_policies_of_thread(object.core(), object);
    object.core().check_usable()?;
    Driver::new(Call::new(object.core(), object, Request::Locate)).run().map(drop)
}

#[derive(Clone, Copy)]
pub(super) enum Request<'c, 'a> {
    Call { operation: &'c Operation<'c>, response: ResponseExpected, arguments: Arguments<'c, 'a> },
    Locate,
}

/// Requests up to this size are taken by the transport without waiting for the peer.
const TAKEN_AT_ONCE: usize = 16 * 1024;

/// What a reply or locate reply begins with.
pub(super) struct ReplyHead {
    pub(super) request_id: u32,
    pub(super) status: ReplyStatus,
    pub(super) body_at: usize,
    /// The server does not know the object that it was asked to locate.
    missing: bool,
}

impl ReplyHead {
    #[inline]
    pub(super) fn parse(octets: &[u8], header: &Header, limits: &Limits) -> Result<Self, Fault> {
        match header.kind {
            MessageKind::Reply => {
                let reply = giop::Reply::parse(octets, header, limits)?;
                Ok(ReplyHead {
                    request_id: reply.request_id,
                    status: reply.status,
                    body_at: reply.body_at,
                    missing: false,
                })
            }
            MessageKind::LocateReply => Self::of_locate(&giop::LocateReply::parse(octets, header)?),
            kind => Err(Fault::Unexpected(kind)),
        }
    }

    #[cold]
    fn of_locate(reply: &giop::LocateReply<'_>) -> Result<Self, Fault> {
        let status = match reply.status {
            LocateStatus::UnknownObject | LocateStatus::ObjectHere => ReplyStatus::NoException,
            LocateStatus::ObjectForward | LocateStatus::ObjectForwardPerm => ReplyStatus::LocationForward,
            LocateStatus::SystemException => ReplyStatus::SystemException,
            LocateStatus::NeedsAddressingMode => ReplyStatus::NeedsAddressingMode,
        };
        let missing = reply.status == LocateStatus::UnknownObject;
        Ok(ReplyHead { request_id: reply.request_id, status, body_at: reply.body_at, missing })
    }
}

/// A reply in its connection's buffer, which is done with however reading it ends.
struct Arrived<'c> {
    connection: &'c mut ClientConnection,
    length: usize,
}

impl Drop for Arrived<'_> {
    #[inline]
    fn drop(&mut self) {
        self.connection.consume(self.length);
    }
}

/// What an attempt came to that is neither a result nor a user exception.
pub(super) enum Trouble {
    /// The object is elsewhere.
    Forward(Ior),
    /// The reply is a system exception.
    Raised(SystemException),
    /// The server wants another form of target address.
    NeedsAddressing(AddressingMode),
    /// The attempt failed on the way.
    Failed(Input, Detail),
    /// The call cannot be made, or its reply not be read.
    Refused(SystemException),
}

/// A result or user exception, or nothing if no reply is wanted.
pub(super) type Outcome<'r> = Result<Option<Reply<'r>>, Box<Trouble>>;

/// Where an attempt goes.
#[derive(Clone, Copy)]
pub(super) struct Way<'t> {
    pub(super) target: &'t Target,
    pub(super) profile: &'t Profile,
    pub(super) addressing: AddressingMode,
}

impl<'t> Way<'t> {
    /// The first profile and its connections, where calls may begin with it. It is part of its caller, always: handed back, it would go
    /// through memory.
    #[inline(always)]
    fn first(core: &Core, binding: &'t Binding) -> Option<(Self, Chosen<'t>)> {
        if !binding.begins_at_first() {
            return None;
        }
        let target = binding.original(core);
        let profile = target.profiles.first()?;
        let chosen = profile.choose(core).ok()?;
        Some((Way { target, profile, addressing: AddressingMode::Key }, chosen))
    }
}

/// What stays the same from attempt to attempt.
#[derive(Clone)]
pub(super) struct Call<'r, 'c, 'a> {
    pub(super) core: &'r Arc<Core>,
    pub(super) object: &'c ObjectRef,
    pub(super) request: Request<'c, 'a>,
    pub(super) due: Due,
    /// What the request says of its priority (RTCorbaPriority), as the connection at hand was chosen.
    pub(super) priority: Option<i16>,
    /// With `_bind_priority_band` (RTCorbaPriorityRange): what the connection is to carry.
    pub(super) range: Option<(i16, i16)>,
    /// The request may wait on its connection for others to go out with.
    pub(super) may_be_held: bool,
    /// Connections from this number on were begun after it.
    pub(super) began: u64,
    /// The server is told how much of the time is left.
    pub(super) tells: bool,
}

impl<'r, 'c, 'a> Call<'r, 'c, 'a> {
    /// Whoever makes one has [asked](Core::check_usable) the ORB. Here it would be moved out of a `Result`, and it is to stay where it is made.
    #[inline]
    pub(super) fn new(core: &'r Arc<Core>, object: &'c ObjectRef, request: Request<'c, 'a>) -> Self {
        probe!("call begun");
        let (timeout, began) = (object.timeout(), core.upcoming_connection());
        let (due, tells) = (Due::of(timeout), matches!(timeout, Timeout::Precise(_)));
        Call { core, object, request, due, priority: None, range: None, may_be_held: false, began, tells }
    }

    /// What the machine would say of a call to which nothing happens: the first profile, a connection that is there, send. `object` is the
    /// call's own, and lends the connection. No reply if `results` have been read.
    ///
    /// It is part of its caller, always, as is what it calls on the way to the read that waits for the reply: the kernel may
    /// fill the processor's return stack buffer when it runs another process meanwhile (docs/decisions/0010-into-the-kernel-and-back.md).
    #[inline(always)]
    fn run_through(
        &mut self,
        object: &'r ObjectRef,
        results: Results<'_>,
    ) -> Result<Option<Reply<'r>>, SystemException> {
        if let Some((way, chosen)) = Way::first(self.core, object.binding())
            && let Some(connection) = chosen.pool.lend_idle(true, self.due)
        {
            self.priority = chosen.priority;
            return self.exchange(way, connection, Some(results));
        }
        Driver::new(self.clone()).run()
    }

    /// The same where the caller reads the results. No reply if none is wanted.
    #[inline(never)]
    fn run_out_of_line(&mut self, object: &'r ObjectRef) -> Result<Option<Reply<'r>>, SystemException> {
        if let Some((way, chosen)) = Way::first(self.core, object.binding())
            && let Some(connection) = chosen.pool.lend_idle(self.wants_reply(), self.due)
        {
            self.priority = chosen.priority;
            return self.exchange_out_of_line(way, connection);
        }
        Driver::new(self.clone()).run()
    }

    /// The same where the reply may outlive the object.
    fn run(&mut self) -> Result<Option<Reply<'r>>, SystemException> {
        if let Some((way, chosen)) = Way::first(self.core, self.object.binding())
            && let Some(connection) = chosen.pool.idle(0, true, self.due)
        {
            self.priority = chosen.priority;
            return self.exchange_out_of_line(way, connection);
        }
        Driver::new(self.clone()).run()
    }

    #[inline(never)]
    fn exchange_out_of_line(
        &mut self,
        way: Way<'_>,
        connection: Checkout<'r>,
    ) -> Result<Option<Reply<'r>>, SystemException> {
        self.exchange(way, connection, None)
    }

    /// The connection stays where it is until all is done: moved, it would be read before it had left the processor's store buffer, which
    /// takes longer than most of what is done here.
    #[inline(always)]
    fn exchange(
        &mut self,
        way: Way<'_>,
        mut connection: Checkout<'r>,
        results: Option<Results<'_>>,
    ) -> Result<Option<Reply<'r>>, SystemException> {
        let id = match self.transmit(way, &mut connection) {
            Ok(Some(id)) => id,
            Ok(None) => {
                self.object.binding().note_bound_at_first(way.profile);
                return Ok(None);
            }
            Err(trouble) => return self.try_again(connection, *trouble),
        };
        let own = &mut *connection;
        let heard = match own.hear(self.due, self.object.canceller()) {
            Ok(heard) => heard,
            Err(broken) => {
                let trouble = self.no_reply(way, &mut connection, id, broken);
                return self.try_again(connection, *trouble);
            }
        };
        if heard && let Some(header) = own.plain_reply(id, &self.core.config().limits) {
            probe!("reply read", id.into());
            self.object.binding().note_bound_at_first(way.profile);
            return self.take(way, connection, header, results);
        }
        match self.await_reply(way, connection, id, !heard) {
            Ok(reply) => {
                self.object.binding().note_bound_at_first(way.profile);
                Ok(reply)
            }
            Err(trouble) => Driver::new(self.clone()).go_on(*trouble, false),
        }
    }

    /// A [plain](giop::Reply::plain) reply has come.
    #[inline]
    pub(super) fn take(
        &self,
        way: Way<'_>,
        mut connection: Checkout<'r>,
        header: Header,
        results: Option<Results<'_>>,
    ) -> Result<Option<Reply<'r>>, SystemException> {
        let own = &mut *connection;
        let codec = (header.endian, header.version, own.announced.unwrap_or(way.profile.default_code_sets));
        let Some(results) = results else {
            let body = Body::InPlace(connection, header.total());
            return Ok(Some(Reply::new(body, self.core, giop::Reply::PLAIN, codec)));
        };
        let arrived = Arrived { connection: own, length: header.total() };
        let octets = arrived.connection.in_place(arrived.length);
        read_results(self.core, octets, None, giop::Reply::PLAIN, codec, results).map(|_| None)
    }

    /// The first attempt, on `connection`, came to nothing.
    #[cold]
    fn try_again(&self, connection: Checkout<'_>, trouble: Trouble) -> Result<Option<Reply<'r>>, SystemException> {
        // The next attempt may want it.
        drop(connection);
        Driver::new(self.clone()).go_on(trouble, false)
    }

    /// Writes the request on `connection` and reads its reply.
    pub(super) fn attempt(&mut self, way: Way<'_>, mut connection: Checkout<'r>) -> Outcome<'r> {
        match self.transmit(way, &mut connection)? {
            Some(id) => self.await_reply(way, connection, id, true),
            None => Ok(None),
        }
    }

    /// Writes the request on `connection`. The request id, if a reply is to be waited for.
    #[inline]
    pub(super) fn transmit(
        &mut self,
        way: Way<'_>,
        connection: &mut Checkout<'_>,
    ) -> Result<Option<u32>, Box<Trouble>> {
        // Again: it may have been chosen for want of another.
        if !self.wants_reply() && !connection.takes_oneways() {
            let broken = Broken::Io(io::ErrorKind::ConnectionAborted.into());
            return Err(self.lost(connection, Phase::Send, Written::Nothing, broken));
        }
        let own = &mut **connection;
        let id = own.request_id();
        let announce = self.to_announce(way, own.announced);
        let announced = own.announced.or(announce);
        let mut encoder = Encoder::with_buffer(std::mem::take(&mut own.request_memory));
        encoder.set_code_sets(announced.unwrap_or(way.profile.default_code_sets));
        if let Err(error) = self.write(&mut encoder, way, id, announce) {
            own.request_memory = encoder.take_buffer();
            return Err(refused(error.into()));
        }
        // Only now: arguments may panic while they are written.
        own.announced = announced;
        probe!("request marshalled", id.into());
        if self.may_be_held
            && let Some(message) = encoder.contiguous()
            && connection.hold(message, self.core)
        {
            cold_path();
            connection.request_memory = encoder.take_buffer();
            return Ok(None);
        }
        let own = &mut **connection;
        let sent = own.send(&encoder, id, self.due, self.core.config().fragment_size);
        probe!("request sent", id.into());
        if encoder.len() > TAKEN_AT_ONCE {
            cold_path();
            self.due = self.due.after_a_while();
        }
        own.request_memory = encoder.take_buffer();
        if let Err((written, broken)) = sent {
            return Err(self.lost(connection, Phase::Send, written, broken));
        }
        Ok(self.wants_reply().then_some(id))
    }

    /// The code sets to tell the server with this request, if it has not been told.
    #[inline]
    pub(super) fn to_announce(&self, way: Way<'_>, announced: Option<CodeSets>) -> Option<CodeSets> {
        match &self.request {
            Request::Call { .. } if announced.is_none() => way.profile.code_sets,
            // A LocateRequest has no contexts to announce anything in.
            _ => None,
        }
    }

    #[inline]
    pub(super) fn wants_reply(&self) -> bool {
        !matches!(&self.request, Request::Call { response: ResponseExpected::None, .. })
    }

    /// Writes the whole message.
    #[inline]
    pub(super) fn write(
        &self,
        encoder: &mut Encoder<'a>,
        way: Way<'_>,
        id: u32,
        announce: Option<CodeSets>,
    ) -> Result<(), CdrError> {
        let Request::Call { operation, response, arguments } = &self.request else {
            return self.write_otherwise(encoder, way, id, announce);
        };
        let says_more = announce.is_some() || self.priority.is_some() || self.range.is_some() || self.tells;
        if says_more || way.addressing != AddressingMode::Key {
            return self.write_otherwise(encoder, way, id, announce);
        }
        let head = RequestHead {
            version: way.profile.version,
            request_id: id,
            response: *response,
            target: giop::Target::Key(&way.profile.object_key),
            operation: operation.name().as_bytes(),
            contexts: &[],
        };
        giop::write_request_header(encoder, &head)?;
        arguments(encoder)?;
        giop::finish(encoder)
    }

    /// The same with service contexts, with another form of address, or of a LocateRequest.
    #[inline(never)]
    fn write_otherwise(
        &self,
        encoder: &mut Encoder<'a>,
        way: Way<'_>,
        id: u32,
        announce: Option<CodeSets>,
    ) -> Result<(), CdrError> {
        let rare;
        let target = match way.addressing {
            AddressingMode::Key => giop::Target::Key(&way.profile.object_key),
            mode => {
                rare = RareTarget::new(&way.target.ior, way.profile.index, encoder.endian())?;
                rare.target(mode)
            }
        };
        let Request::Call { operation, response, arguments } = &self.request else {
            return giop::write_locate_request(encoder, way.profile.version, id, &target);
        };
        let code_sets = announce.map(|code_sets| CodeSetContext::from(code_sets).data());
        let priority = self.priority.map(wire_rt::priority_context);
        let range = self.range.map(|(low, high)| wire_rt::range_context(low, high));
        let remaining = match self.due {
            Due::At(moment) if self.tells && way.profile.is_ours => Some(moment.since(clock::now())),
            _ => None,
        };
        let deadline = remaining.map(wire_rt::deadline_context);
        let several;
        let one;
        let code_sets = code_sets.as_ref().map(|data| ServiceContext { id: context_id::CODE_SETS, data });
        let priority = priority.as_ref().map(|data| ServiceContext { id: context_id::RT_CORBA_PRIORITY, data });
        let range = || range.as_ref().map(|data| ServiceContext { id: context_id::RT_CORBA_PRIORITY_RANGE, data });
        // A request that says which band its connection is for has no priority itself.
        let priority = priority.or_else(range);
        let deadline = deadline.as_ref().map(|data| ServiceContext { id: context_id::REMAINING_DEADLINE, data });
        let contexts: &[ServiceContext<'_>] = match (code_sets, priority, deadline) {
            (None, None, None) => &[],
            (Some(context), None, None) | (None, Some(context), None) | (None, None, Some(context)) => {
                one = [context];
                &one
            }
            (first, second, third) => {
                let none = ServiceContext { id: 0, data: &[] };
                let given = [first, second, third];
                let mut list = [none; 3];
                let count = list.iter_mut().zip(given.into_iter().flatten()).map(|(slot, given)| *slot = given).count();
                several = (list, count);
                &several.0[..several.1]
            }
        };
        let head = RequestHead {
            version: way.profile.version,
            request_id: id,
            response: *response,
            target,
            operation: operation.name().as_bytes(),
            contexts,
        };
        giop::write_request_header(encoder, &head)?;
        arguments(encoder)?;
        giop::finish(encoder)
    }

    /// Reads messages until the reply to `id` is there; `first`: nothing has been read yet.
    fn await_reply(&mut self, way: Way<'_>, mut connection: Checkout<'r>, id: u32, first: bool) -> Outcome<'r> {
        let mut first = first;
        loop {
            let (limits, canceller) = (&self.core.config().limits, self.object.canceller());
            let received = match connection.receive(self.due, limits, canceller, first) {
                Ok(received) => received,
                Err(broken) => return Err(self.no_reply(way, &mut connection, id, broken)),
            };
            first = true;
            probe!("reply read", id.into());
            connection = match self.arrived(way, connection, id, received) {
                Ok(outcome) => return outcome,
                Err(connection) => connection,
            };
        }
    }

    /// A whole message has come. The connection back if the reply to `id` is still to come.
    pub(super) fn arrived(
        &mut self,
        way: Way<'_>,
        mut connection: Checkout<'r>,
        id: u32,
        received: Received,
    ) -> Result<Outcome<'r>, Checkout<'r>> {
        let (header, octets) = match &received {
            Received::InPlace(header, length) => (*header, connection.in_place(*length)),
            Received::Assembled(whole) => (whole.header, whole.message.as_slice()),
        };
        let head = match ReplyHead::parse(octets, &header, &self.core.config().limits) {
            Ok(head) => head,
            Err(fault) => return Ok(Err(self.no_reply(way, &mut connection, id, fault.into()))),
        };
        if head.request_id == id {
            return Ok(self.answer(way, connection, received, header, &head));
        }
        if !connection.caught_up() {
            // Else a server could make the call last for as long as it goes on.
            return Ok(Err(self.no_reply(way, &mut connection, id, Fault::Unexpected(header.kind).into())));
        }
        // The late reply to a call that was given up. It must not make this call's time begin anew.
        self.due = self.due.fixed();
        if let Received::InPlace(_, length) = received {
            connection.consume(length);
        }
        Err(connection)
    }

    /// What the reply `received` says.
    fn answer(
        &self,
        way: Way<'_>,
        mut connection: Checkout<'r>,
        received: Received,
        header: Header,
        head: &ReplyHead,
    ) -> Outcome<'r> {
        let announced = connection.announced;
        let body = match received {
            Received::InPlace(_, length) if length < OWNED_FROM => Body::InPlace(connection, length),
            Received::InPlace(_, length) => Body::owned(connection.take_message(length).into_octets(), Vec::new()),
            Received::Assembled(whole) => Body::owned(Octets::from(whole.message), whole.breaks),
        };
        self.reply(way, body, header, head, announced)
    }

    /// What a reply says whose octets are in `body`.
    pub(super) fn reply(
        &self,
        way: Way<'_>,
        body: Body<'r>,
        header: Header,
        head: &ReplyHead,
        announced: Option<CodeSets>,
    ) -> Outcome<'r> {
        let code_sets = announced.unwrap_or(way.profile.default_code_sets);
        let codec = (header.endian, header.version, code_sets);
        let reply = Reply::new(body, self.core, head.body_at, codec);
        if head.status == ReplyStatus::NoException && !head.missing { Ok(Some(reply)) } else { unusual(reply, head) }
    }

    /// No reply, for whatever reason.
    #[cold]
    pub(super) fn no_reply(
        &self,
        way: Way<'_>,
        connection: &mut Checkout<'_>,
        id: u32,
        broken: Broken,
    ) -> Box<Trouble> {
        if !matches!(broken, Broken::Cancelled | Broken::TimedOut) {
            return self.lost(connection, Phase::Wait, Written::Whole, broken);
        }
        // The caller does not wait any longer: the server is told, the connection lives on.
        let mut cancel = Encoder::new();
        giop::write_cancel_request(&mut cancel, way.profile.version, id);
        connection.abandon(&cancel);
        self.given_up(connection.endpoint(), &broken)
    }

    /// The caller does not wait any longer.
    #[cold]
    pub(super) fn given_up(&self, endpoint: &Endpoint, broken: &Broken) -> Box<Trouble> {
        match broken {
            Broken::Cancelled => {
                let detail = self.detail(endpoint, Phase::Wait, "cancelled by the caller".into());
                refused(
                    SystemException::new(Kind::Transient, minor::transient::CANCELLED, Completion::Maybe)
                        .with_detail(detail),
                )
            }
            _ => self.failed(endpoint, Phase::Wait, Written::Whole, broken, false),
        }
    }

    /// The connection failed under the request.
    #[cold]
    fn lost(&self, connection: &mut Checkout<'_>, phase: Phase, written: Written, broken: Broken) -> Box<Trouble> {
        let orderly = matches!(broken, Broken::Io(_))
            && written != Written::Nothing
            && connection.was_closed_orderly(&self.core.config().limits);
        let trouble = self.failed(connection.endpoint(), phase, written, &broken, orderly);
        if let Broken::Fault(fault) = broken {
            self.core.events().fault_of_server(connection.peer(), fault);
        }
        connection.discard();
        trouble
    }

    /// The request went the way of its connection; `orderly` says that the server's last word was CloseConnection.
    #[cold]
    pub(super) fn failed(
        &self,
        endpoint: &Endpoint,
        phase: Phase,
        written: Written,
        broken: &Broken,
        orderly: bool,
    ) -> Box<Trouble> {
        let close = matches!(broken, Broken::Fault(Fault::Unexpected(MessageKind::CloseConnection)));
        let message = match broken {
            _ if close => "the server closed the connection in good order".to_owned(),
            Broken::TimedOut if phase == Phase::Wait => self.who_waits(),
            Broken::TimedOut | Broken::Cancelled => String::new(),
            Broken::Io(error) => error.to_string(),
            Broken::Fault(Fault::Unexpected(MessageKind::MessageError)) => {
                "the server could not read what it was sent, says its MessageError".to_owned()
            }
            Broken::Fault(fault) => format!("the server broke the protocol: {fault}"),
        };
        let mut detail = self.detail(endpoint, phase, message);
        if !matches!((broken, self.due), (Broken::TimedOut, _) | (_, Due::At(_))) {
            // Only a time-out has taken the whole time; how long anything else took is not known.
            detail.elapsed = None;
        }
        let input = match broken {
            Broken::TimedOut => Input::DeadlinePassed(phase),
            _ => Input::Lost { written, orderly: orderly || close },
        };
        Box::new(Trouble::Failed(input, detail))
    }

    /// Of a call that had no reply in time: the upcall that made it, if its thread waited in place.
    #[cold]
    fn who_waits(&self) -> String {
        if !crate::current::in_upcall_of(self.core.adapters().stamp) || serving::is_serving() {
            return String::new();
        }
        let thread = std::thread::current();
        format!(
            "called in an upcall on the thread {}, which waited in place: if the reply needed another request served there, all \
             threads of the pool may have waited for one another (PoolConfig::nested_wait)",
            thread.name().unwrap_or("without a name")
        )
    }

    fn detail(&self, endpoint: &Endpoint, phase: Phase, message: String) -> Detail {
        let elapsed = self.due.elapsed(self.object.timeout());
        Detail { endpoint: Some(endpoint.to_string()), phase: Some(phase), elapsed, message }
    }
}

#[cold]
pub(super) fn refused(exception: SystemException) -> Box<Trouble> {
    Box::new(Trouble::Refused(exception))
}

/// What a reply says that is no result.
#[cold]
fn unusual<'r>(mut reply: Reply<'r>, head: &ReplyHead) -> Outcome<'r> {
    let trouble = match head.status {
        ReplyStatus::NoException => Ok(Trouble::Raised(crate::poa::no_such_object())),
        ReplyStatus::UserException => match reply.into_exception() {
            Ok(exception) => return Ok(Some(exception)),
            Err(malformed) => Err(malformed),
        },
        ReplyStatus::SystemException => reply.read(SystemException::decode).map(Trouble::Raised),
        ReplyStatus::LocationForward | ReplyStatus::LocationForwardPerm => {
            reply.read(Ior::decode).map(Trouble::Forward)
        }
        ReplyStatus::NeedsAddressingMode => reply
            .read(|decoder| decoder.read_i16())
            .map(|mode| Trouble::NeedsAddressing(AddressingMode::from_number(mode).unwrap_or(AddressingMode::Key))),
    };
    Err(Box::new(trouble.unwrap_or_else(Trouble::Refused)))
}
