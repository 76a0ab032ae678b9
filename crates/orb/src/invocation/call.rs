//! The blocking driver of an invocation: does what the machine says, with connections from the pool.

use std::sync::Arc;

use corelane_sys::clock::Monotonic;
use corelane_wire::codeset::CodeSetContext;
use corelane_wire::giop::{
    self, AddressingMode, Header, LocateStatus, MessageKind, ReplyStatus, RequestHead, ResponseExpected,
    ServiceContext, context_id,
};
use corelane_wire::ior::Ior;
use corelane_wire::{Cdr, CdrError, CodeSets, Encoder, Endian, Limits, Octets, Version};

use super::Operation;
use super::machine::{Input, Machine, Output, Written};
use super::reply::{Body, Reply};
use super::target::{Profile, Target};
use crate::client::connection::{Broken, Received};
use crate::client::pool::{Checkout, NoConnection};
use crate::clock;
use crate::exception::{Completion, Detail, Phase, SystemException, SystemExceptionKind as Kind};
use crate::fault::Fault;
use crate::object::ObjectRef;
use crate::orb::Core;
use crate::policy::{CallPolicies, Due, SyncScope, Timeout};

/// How arguments are written; called again for every attempt, because version, alignment and code sets may differ.
pub(crate) type Arguments<'c, 'a> = &'c dyn Fn(&mut Encoder<'a>) -> Result<(), CdrError>;

/// A two-way call.
#[inline]
pub(crate) fn invoke<'a>(
    object: &ObjectRef,
    operation: &Operation,
    arguments: Arguments<'_, 'a>,
) -> Result<Reply, SystemException> {
    if object.binding().may_be_local(object.core()) && object.binding().forwarded().is_none() {
        return crate::poa::invoke_local(object, operation, arguments);
    }
    let what = Request::Call { operation, response: ResponseExpected::Target, arguments };
    match Call::new(object, what)?.run()? {
        Some(reply) => Ok(reply),
        None => Err(SystemException::new(Kind::Internal, 0, Completion::Maybe)),
    }
}

/// A oneway call.
pub(crate) fn oneway<'a>(
    object: &ObjectRef,
    operation: &Operation,
    scope: SyncScope,
    arguments: Arguments<'_, 'a>,
) -> Result<(), SystemException> {
    if object.binding().may_be_local(object.core()) && object.binding().forwarded().is_none() {
        return crate::poa::send_local(object, operation, arguments);
    }
    let response = match scope {
        SyncScope::Transport => ResponseExpected::None,
        SyncScope::Server => ResponseExpected::Server,
        SyncScope::Target => ResponseExpected::Target,
    };
    Call::new(object, Request::Call { operation, response, arguments })?.run().map(drop)
}

/// Asks the server where the object is; forwards are followed and remembered.
#[cold]
pub(crate) fn locate(object: &ObjectRef) -> Result<(), SystemException> {
    if object.binding().may_be_local(object.core()) {
        return crate::poa::locate_local(object);
    }
    Call::new(object, Request::Locate)?.run().map(drop)
}

enum Request<'c, 'a> {
    Call { operation: &'c Operation, response: ResponseExpected, arguments: Arguments<'c, 'a> },
    Locate,
}

/// Replies from this size on are taken out of the connection's buffer, so that octet sequences can share their memory.
const OWNED_FROM: usize = 32 * 1024;

/// What a reply or locate reply begins with.
struct ReplyHead {
    request_id: u32,
    status: ReplyStatus,
    body_at: usize,
    /// The server does not know the object that it was asked to locate.
    missing: bool,
}

impl ReplyHead {
    #[inline]
    fn parse(octets: &[u8], header: &Header, limits: &Limits) -> Result<Self, Fault> {
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

/// What one attempt on a connection came to.
enum Attempt {
    Reply(Reply),
    NoReplyWanted,
    Forward(Ior),
    Raised(SystemException),
    NeedsAddressing(AddressingMode),
    Failed(Input, Detail),
    Refused(SystemException),
}

/// What an output of the machine comes to.
enum Next {
    /// Get a connection.
    Connect,
    /// Write the request and wait for the reply.
    Send,
    /// The call has failed.
    Raise(SystemException),
    /// The call is over and has no result.
    Nothing,
}

struct Call<'c, 'a> {
    object: &'c ObjectRef,
    core: &'c Arc<Core>,
    request: Request<'c, 'a>,
    policies: CallPolicies,
    due: Due,
    machine: Machine,
    target: Arc<Target>,
    profile: usize,
    addressing: AddressingMode,
    connection: Option<Checkout>,
    next_target: Option<Arc<Target>>,
    /// Only a connection made now will do.
    fresh: bool,
    failure: Detail,
    /// The system exception that the last reply was.
    raised: Option<SystemException>,
}

impl<'c, 'a> Call<'c, 'a> {
    #[inline]
    fn new(object: &'c ObjectRef, request: Request<'c, 'a>) -> Result<Self, SystemException> {
        let core = object.core();
        core.check_usable()?;
        let policies = object.policies();
        let binding = object.binding();
        let original = binding.original(core);
        let forwarded = binding.forwarded();
        let machine = Machine::new(
            forwarded.as_ref().unwrap_or(original).profiles.len(),
            forwarded.is_some(),
            original.profiles.len(),
            policies.retry_transient.unwrap_or(0),
        );
        Ok(Call {
            object,
            core,
            request,
            due: Due::of(policies.timeout.unwrap_or(Timeout::Never)),
            policies,
            machine,
            target: forwarded.unwrap_or_else(|| Arc::clone(original)),
            profile: 0,
            addressing: AddressingMode::Key,
            connection: None,
            next_target: None,
            fresh: false,
            failure: Detail::default(),
            raised: None,
        })
    }

    #[inline]
    fn run(mut self) -> Result<Option<Reply>, SystemException> {
        let mut output = self.machine.start();
        loop {
            let input = match self.prepare(output) {
                Next::Connect => self.connect(),
                Next::Send => match self.attempt() {
                    Attempt::Reply(reply) => return Ok(Some(reply)),
                    Attempt::NoReplyWanted => return Ok(None),
                    other => self.trouble(other)?,
                },
                Next::Raise(exception) => return Err(exception),
                Next::Nothing => return Ok(None),
            };
            output = self.machine.step(input);
        }
    }

    /// Does of an output what takes no time.
    #[inline]
    fn prepare(&mut self, output: Output) -> Next {
        match output {
            Output::Send => return Next::Send,
            Output::Connect { profile } => self.profile = profile,
            Output::ConnectOriginal => self.back_to_the_original(),
            Output::Follow => self.follow(),
            Output::Deliver => return self.raised.take().map_or(Next::Nothing, Next::Raise),
            Output::Fail(exception) => return Next::Raise(self.explain(exception)),
        }
        Next::Connect
    }

    fn profile(&self) -> Option<&Profile> {
        self.target.profiles.get(self.profile)
    }

    #[inline]
    fn connect(&mut self) -> Input {
        if self.connect_at_once() { Input::Connected } else { self.connect_anew() }
    }

    /// Takes a connection that nobody uses, if there is one.
    #[inline]
    fn connect_at_once(&mut self) -> bool {
        let Some(profile) = self.target.profiles.get(self.profile) else { return false };
        self.connection = if self.fresh { None } else { profile.pool.idle() };
        self.connection.is_some()
    }

    #[cold]
    fn connect_anew(&mut self) -> Input {
        let start = clock::now();
        let (whole, until) = self.connect_until(start);
        let Some(profile) = self.profile() else { return Input::ConnectFailed };
        let outcome = profile.pool.connect(self.core, whole, until, self.fresh);
        self.connected(outcome, start, clock::now())
    }

    /// Until when a connection may be waited for, and until when it may be made, from `start` on.
    #[cold]
    fn connect_until(&mut self, start: Monotonic) -> (Option<Monotonic>, Option<Monotonic>) {
        self.due = self.due.fixed();
        let whole = self.due.moment();
        let until = match self.policies.connect_timeout {
            Some(timeout) => Some(whole.map_or(start + timeout, |whole| whole.min(start + timeout))),
            None => whole,
        };
        (whole, until)
    }

    /// What came of connecting between `start` and `now`.
    #[cold]
    fn connected(&mut self, outcome: Result<Checkout, NoConnection>, start: Monotonic, now: Monotonic) -> Input {
        let endpoints = self.profile().map_or(&[][..], |profile| &profile.pool.key().endpoints);
        let endpoint = endpoints.first().map(ToString::to_string);
        let elapsed = Some(now.since(start));
        let detail = |phase, message| Detail { endpoint, phase: Some(phase), elapsed, message };
        match outcome {
            Ok(connection) => {
                self.connection = Some(connection);
                Input::Connected
            }
            Err(NoConnection::AllBusy) => {
                self.failure =
                    detail(Phase::Acquire, "every connection that may be made to the server is in use".into());
                Input::DeadlinePassed(Phase::Acquire)
            }
            Err(NoConnection::TimedOut) => {
                self.failure = detail(Phase::Connect, String::new());
                if self.due.moment().is_some_and(|whole| now >= whole) {
                    Input::DeadlinePassed(Phase::Connect)
                } else {
                    Input::ConnectFailed
                }
            }
            Err(NoConnection::Failed(error)) => {
                self.failure = detail(Phase::Connect, error.to_string());
                Input::ConnectFailed
            }
        }
    }

    /// Writes the request on the connection at hand and reads its reply.
    #[inline]
    fn attempt(&mut self) -> Attempt {
        match self.transmit() {
            Ok((connection, id)) => self.await_reply(connection, id),
            Err(attempt) => attempt,
        }
    }

    /// Writes the request on the connection at hand. The connection and the request id, if a reply is to be waited for.
    #[inline]
    fn transmit(&mut self) -> Result<(Checkout, u32), Attempt> {
        let nothing = || Attempt::Failed(Input::ConnectFailed, Detail::default());
        let mut connection = self.connection.take().ok_or_else(nothing)?;
        let profile = self.target.profiles.get(self.profile).ok_or_else(nothing)?;
        let id = connection.request_id();
        // A LocateRequest has no contexts to announce anything in.
        let announce = match &self.request {
            Request::Call { .. } if connection.announced.is_none() => profile.code_sets,
            _ => None,
        };
        connection.announced = connection.announced.or(announce);
        let mut encoder = Encoder::with_buffer(std::mem::take(&mut connection.request_memory));
        encoder.set_code_sets(connection.announced.unwrap_or(profile.default_code_sets));
        let response = match &self.request {
            Request::Call { response, .. } => *response,
            Request::Locate => ResponseExpected::Target,
        };
        let written = self.write(&mut encoder, profile, id, announce);
        let sent = match written {
            Ok(()) => {
                let size = self.core.config().fragment_size;
                let fragments = size.and_then(|size| crate::fragment::cut(&encoder, id, size));
                connection.send(&encoder, self.due, fragments)
            }
            Err(error) => {
                connection.request_memory = encoder.into_buffer();
                if announce.is_some() {
                    connection.announced = None;
                }
                return Err(Attempt::Refused(error.into()));
            }
        };
        connection.request_memory = encoder.into_buffer();
        if let Err((written, broken)) = sent {
            return Err(self.lost(connection, Phase::Send, written, broken));
        }
        if response == ResponseExpected::None { Err(Attempt::NoReplyWanted) } else { Ok((connection, id)) }
    }

    /// Writes the whole message.
    #[inline]
    fn write(
        &self,
        encoder: &mut Encoder<'a>,
        profile: &Profile,
        id: u32,
        announce: Option<CodeSets>,
    ) -> Result<(), CdrError> {
        let rare;
        let target = match self.addressing {
            AddressingMode::Key => giop::Target::Key(&profile.object_key),
            mode => {
                rare = RareTarget::new(&self.target.ior, profile.index, encoder.endian())?;
                rare.target(mode)
            }
        };
        let Request::Call { operation, response, arguments } = &self.request else {
            return giop::write_locate_request(encoder, profile.version, id, &target);
        };
        let data;
        let context;
        let contexts: &[ServiceContext<'_>] = match announce {
            None => &[],
            Some(code_sets) => {
                data = CodeSetContext::from(code_sets).data();
                context = [ServiceContext { id: context_id::CODE_SETS, data: &data }];
                &context
            }
        };
        let head = RequestHead {
            version: profile.version,
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
}

/// A target address other than the object key, for servers that insist.
struct RareTarget<'t> {
    index: u32,
    tag: u32,
    data: &'t [u8],
    ior: Vec<u8>,
}

impl<'t> RareTarget<'t> {
    #[cold]
    fn new(ior: &'t Ior, index: u32, endian: Endian) -> Result<Self, CdrError> {
        let profile = ior.profiles.get(index as usize).ok_or(CdrError::BadDiscriminator)?;
        let mut encoder = Encoder::new();
        encoder.set_endian(endian);
        ior.encode(&mut encoder)?;
        Ok(RareTarget { index, tag: profile.tag, data: &profile.data, ior: encoder.into_buffer() })
    }

    fn target(&self, mode: AddressingMode) -> giop::Target<'_> {
        match mode {
            AddressingMode::Reference => {
                giop::Target::Reference { selected: self.index, tag: self.tag, data: self.data, ior: &self.ior }
            }
            AddressingMode::Profile | AddressingMode::Key => giop::Target::Profile { tag: self.tag, data: self.data },
        }
    }
}

impl Call<'_, '_> {
    /// Reads messages until the reply to `id` is there.
    #[inline]
    fn await_reply(&mut self, mut connection: Checkout, id: u32) -> Attempt {
        loop {
            let received = match connection.receive(self.due, &self.core.config().limits, self.object.canceller()) {
                Ok(received) => received,
                Err(broken) => return self.no_reply(connection, id, broken),
            };
            connection = match self.arrived(connection, id, received) {
                Ok(attempt) => return attempt,
                Err(connection) => connection,
            };
        }
    }

    /// No reply to `id` came, and none is waited for any longer.
    #[cold]
    fn no_reply(&mut self, connection: Checkout, id: u32, broken: Broken) -> Attempt {
        match broken {
            Broken::Cancelled => self.cancel(connection, id),
            Broken::TimedOut => self.give_up(connection, id),
            broken => self.lost(connection, Phase::Wait, Written::Whole, broken),
        }
    }

    /// A whole message has come. The connection back if the reply to `id` is still to come.
    #[inline]
    fn arrived(&mut self, mut connection: Checkout, id: u32, received: Received) -> Result<Attempt, Checkout> {
        let (header, octets) = match &received {
            Received::InPlace(header, length) => (*header, connection.in_place(*length)),
            Received::Assembled(header, message, _) => (*header, message.as_slice()),
        };
        let head = match ReplyHead::parse(octets, &header, &self.core.config().limits) {
            Ok(head) => head,
            Err(Fault::Unexpected(MessageKind::CloseConnection)) => {
                return Ok(self.lost(connection, Phase::Wait, Written::Whole, Broken::Closed));
            }
            Err(fault) => return Ok(self.lost(connection, Phase::Wait, Written::Whole, Broken::Fault(fault))),
        };
        if head.request_id == id {
            return Ok(self.answer(connection, received, header, &head));
        }
        connection.caught_up();
        // The late reply to a call that was given up. It must not make this call's time begin anew.
        self.due = self.due.fixed();
        if let Received::InPlace(_, length) = received {
            connection.consume(length);
        }
        Err(connection)
    }
}

impl Call<'_, '_> {
    /// What the reply `received` says.
    #[inline]
    fn answer(&mut self, mut connection: Checkout, received: Received, header: Header, head: &ReplyHead) -> Attempt {
        let default = self.profile().map_or(CodeSets::DEFAULT, |profile| profile.default_code_sets);
        let codec = (header.endian, header.version, connection.announced.unwrap_or(default));
        let body = match received {
            Received::InPlace(_, length) if length < OWNED_FROM => Body::InPlace(connection, length),
            Received::InPlace(_, length) => Body::Owned(connection.take_message(length).into_octets(), Vec::new()),
            Received::Assembled(_, message, breaks) => Body::Owned(Octets::from(message), breaks),
        };
        let mut reply = Reply::new(body, Arc::clone(self.core), head.body_at, codec);
        let outcome = match head.status {
            ReplyStatus::NoException if head.missing => Ok(Attempt::Raised(crate::poa::no_such_object())),
            ReplyStatus::NoException => return Attempt::Reply(reply),
            ReplyStatus::UserException => reply.into_exception().map(Attempt::Reply),
            ReplyStatus::SystemException => reply.read(SystemException::decode).map(Attempt::Raised),
            ReplyStatus::LocationForward | ReplyStatus::LocationForwardPerm => {
                reply.read(Ior::decode).map(Attempt::Forward)
            }
            ReplyStatus::NeedsAddressingMode => reply
                .read(|decoder| decoder.read_i16())
                .map(|mode| Attempt::NeedsAddressing(AddressingMode::from_number(mode).unwrap_or(AddressingMode::Key))),
        };
        outcome.unwrap_or_else(Attempt::Refused)
    }

    /// The caller does not wait any longer.
    #[cold]
    fn cancel(&mut self, mut connection: Checkout, id: u32) -> Attempt {
        self.tell_cancelled(&mut connection, id);
        let detail = self.detail(&connection, Phase::Wait, "cancelled by the caller".into());
        let exception = SystemException::omg(Kind::Transient, 3, Completion::Maybe);
        Attempt::Refused(exception.with_detail(detail))
    }

    /// The time is over while waiting: the server is told, the connection lives on.
    #[cold]
    fn give_up(&mut self, mut connection: Checkout, id: u32) -> Attempt {
        self.tell_cancelled(&mut connection, id);
        let detail = self.detail(&connection, Phase::Wait, String::new());
        Attempt::Failed(Input::DeadlinePassed(Phase::Wait), detail)
    }

    fn tell_cancelled(&self, connection: &mut Checkout, id: u32) {
        let version = self.profile().map_or(Version::GIOP_1_2, |profile| profile.version);
        let mut cancel = Encoder::new();
        giop::write_cancel_request(&mut cancel, version, id);
        connection.abandon(&cancel);
    }

    /// The connection failed under the request.
    #[cold]
    fn lost(&mut self, mut connection: Checkout, phase: Phase, written: Written, broken: Broken) -> Attempt {
        let (orderly, message) = match &broken {
            Broken::Closed => (true, "the server closed the connection in good order".to_owned()),
            Broken::TimedOut | Broken::Cancelled => (false, String::new()),
            Broken::Io(error) => (
                written != Written::Nothing && connection.was_closed_orderly(&self.core.config().limits),
                error.to_string(),
            ),
            Broken::Fault(Fault::Unexpected(MessageKind::MessageError)) => {
                (false, "the server could not read what it was sent, says its MessageError".to_owned())
            }
            Broken::Fault(fault) => (false, format!("the server broke the protocol: {fault}")),
        };
        let mut detail = self.detail(&connection, phase, message);
        if !matches!((&broken, self.due), (Broken::TimedOut, _) | (_, Due::At(_))) {
            // Only a time-out has taken the whole time; how long anything else took is not known.
            detail.elapsed = None;
        }
        connection.discard();
        match broken {
            Broken::TimedOut => Attempt::Failed(Input::DeadlinePassed(phase), detail),
            _ => Attempt::Failed(Input::Lost { written, orderly }, detail),
        }
    }

    fn detail(&self, connection: &Checkout, phase: Phase, message: String) -> Detail {
        let elapsed = self.due.elapsed(self.policies.timeout);
        Detail { endpoint: Some(connection.endpoint().to_string()), phase: Some(phase), elapsed, message }
    }

    /// Everything that is not a result: what the machine is told, or what is raised at once.
    #[cold]
    fn trouble(&mut self, attempt: Attempt) -> Result<Input, SystemException> {
        // Whatever comes next is within the time that the call began with.
        self.due = self.due.fixed();
        match attempt {
            Attempt::Reply(_) | Attempt::NoReplyWanted => Ok(Input::Answered),
            Attempt::Refused(exception) => Err(exception),
            Attempt::Failed(input, detail) => {
                self.failure = detail;
                // The other connections to a server that went away are no better than the one that was lost.
                self.fresh |= matches!(input, Input::Lost { .. });
                Ok(input)
            }
            Attempt::Raised(exception) => {
                let input = Input::Raised { kind: exception.kind(), completed: exception.completed() };
                self.raised = Some(exception);
                Ok(input)
            }
            Attempt::Forward(ior) => {
                let target = Arc::new(Target::new(self.core, ior));
                let profiles = target.profiles.len();
                self.next_target = Some(target);
                Ok(Input::Forwarded { profiles })
            }
            Attempt::NeedsAddressing(mode) => {
                self.addressing = mode;
                Ok(Input::NeedsAddressing)
            }
        }
    }

    #[cold]
    fn follow(&mut self) {
        if let Some(target) = self.next_target.take() {
            self.object.binding().set_forwarded(Some(Arc::clone(&target)));
            self.target = target;
        }
        self.profile = 0;
    }

    #[cold]
    fn back_to_the_original(&mut self) {
        self.object.binding().set_forwarded(None);
        self.target = Arc::clone(self.object.binding().original(self.core));
        self.profile = 0;
    }

    /// The exception with what is known about the last failure.
    #[cold]
    fn explain(&mut self, exception: SystemException) -> SystemException {
        let mut detail = std::mem::take(&mut self.failure);
        if let Some(known) = exception.detail()
            && detail.message.is_empty()
        {
            detail.message.clone_from(&known.message);
        }
        exception.with_detail(detail)
    }
}
