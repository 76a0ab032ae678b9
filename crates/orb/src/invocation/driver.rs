//! What the pure [machine](super::machine) says of a call that is more than one exchange on a connection that is there:
//! connecting, retrying, forwards, other addressing modes, giving up; and of asking where an object is.

#[cfg(test)]
pub(crate) mod simulated;

use std::sync::Arc;

use corelane_sys::clock::Monotonic;
use corelane_wire::exception::minor;
use corelane_wire::giop::AddressingMode;

use super::call::{Call, Request, Trouble, Way};
use super::machine::{Input, Machine, Output};
use super::reply::Reply;
use super::shared::Posted;
use super::target::{Profile, Target};
use crate::client::multiplexed::Multiplexed;
use crate::client::pool::{Checkout, NoConnection, Pool};
use crate::clock;
use crate::exception::{Completion, Detail, Phase, SystemException, SystemExceptionKind as Kind};
use crate::policy::{AllBusy, CallPolicies, RebindMode};

/// What a request goes out on.
enum Connection {
    /// The caller has it for itself.
    Own(Checkout<'static>),
    /// Others use it too.
    Shared(Arc<Multiplexed>),
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

pub(super) struct Driver<'r, 'c, 'a> {
    call: Call<'r, 'c, 'a>,
    policies: CallPolicies,
    machine: Machine,
    target: Arc<Target>,
    profile: usize,
    addressing: AddressingMode,
    /// The connections that the call may take.
    pool: Option<Arc<Pool>>,
    connection: Option<Connection>,
    next_target: Option<Arc<Target>>,
    /// Only a connection with a number from here on will do.
    since: u64,
    /// The last attempt's connection was shared.
    shared: bool,
    /// What was lost was shared: so is what comes after it.
    shares: bool,
    /// A profile was passed over because it would change the policies in force.
    barred: bool,
    failure: Detail,
    /// The system exception that the last reply was.
    raised: Option<SystemException>,
}

impl<'r, 'c, 'a> Driver<'r, 'c, 'a> {
    #[cold]
    pub(super) fn new(call: Call<'r, 'c, 'a>) -> Self {
        let policies = call.object.policies();
        let binding = call.object.binding();
        let original = binding.original(call.core);
        let forwarded = binding.forwarded();
        let machine = Machine::new(
            forwarded.as_ref().unwrap_or(original).profiles.len(),
            forwarded.is_some(),
            original.profiles.len(),
            policies.retry_transient.unwrap_or(0),
        );
        Driver {
            call,
            policies,
            machine,
            target: forwarded.unwrap_or_else(|| Arc::clone(original)),
            profile: 0,
            addressing: AddressingMode::Key,
            pool: None,
            connection: None,
            next_target: None,
            since: 0,
            shared: false,
            shares: false,
            barred: false,
            failure: Detail::default(),
            raised: None,
        }
    }

    /// From the first step.
    #[cold]
    pub(super) fn run(self) -> Result<Option<Reply<'r>>, SystemException> {
        if self.target.profiles.is_empty() && self.target.left_out {
            return Err(SystemException::new(Kind::InvPolicy, minor::inv_policy::IRRECONCILABLE, Completion::No)
                .because("ClientProtocol policies, of the client or the reference or of both at once, leave no way to the object"));
        }
        let output = self.machine.start();
        self.drive(output)
    }

    /// From the trouble that the first attempt came to, on a connection that was `shared` or the call's own.
    #[cold]
    pub(super) fn go_on(mut self, trouble: Trouble, shared: bool) -> Result<Option<Reply<'r>>, SystemException> {
        self.shared = shared;
        let input = self.note(trouble)?;
        let output = self.machine.step(input);
        self.drive(output)
    }

    fn drive(mut self, mut output: Output) -> Result<Option<Reply<'r>>, SystemException> {
        loop {
            let input = match self.prepare(output) {
                Next::Connect => self.connect(),
                Next::Send => match self.attempt() {
                    Ok(reply) => {
                        self.call.object.binding().note_bound(&self.target, self.profile);
                        return Ok(reply);
                    }
                    Err(trouble) => self.note(*trouble)?,
                },
                Next::Raise(exception) => return Err(exception),
                Next::Nothing => return Ok(None),
            };
            output = self.machine.step(input);
        }
    }

    /// Does of an output what takes no time.
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

    fn attempt(&mut self) -> Result<Option<Reply<'r>>, Box<Trouble>> {
        match (self.target.profiles.get(self.profile), self.connection.take()) {
            (Some(profile), Some(connection)) => {
                let way = Way { target: &self.target, profile, addressing: self.addressing };
                let range = self.pool.as_ref().and_then(|pool| pool.band().range());
                match connection {
                    Connection::Own(mut connection) => {
                        self.shared = false;
                        if let Some(range) = range.filter(|_| connection.is_unbound()) {
                            connection = self.call.bind(way, connection, range)?;
                        }
                        self.call.attempt(way, connection)
                    }
                    Connection::Shared(connection) => {
                        self.shared = true;
                        if let Some(range) = range.filter(|_| connection.is_unbound()) {
                            self.call.bind_shared(way, &connection, range)?;
                        }
                        self.call.attempt_shared(way, &connection)
                    }
                }
            }
            _ => Err(unreachable_step()),
        }
    }

    /// Sends the request on a connection that others use too, and does not wait: the target, which of its profiles, and the
    /// request.
    pub(super) fn post(mut self) -> Result<(Arc<Target>, usize, Posted), SystemException> {
        let mut output = self.machine.start();
        loop {
            let input = match self.prepare(output) {
                Next::Connect => self.connect_shared(),
                Next::Send => match self.post_once() {
                    Ok(posted) => return Ok((self.target, self.profile, posted)),
                    Err(trouble) => self.note(*trouble)?,
                },
                Next::Raise(exception) => return Err(exception),
                Next::Nothing => return Err(SystemException::new(Kind::Internal, 0, Completion::No)),
            };
            output = self.machine.step(input);
        }
    }

    fn post_once(&mut self) -> Result<Posted, Box<Trouble>> {
        let profile = self.target.profiles.get(self.profile).ok_or_else(unreachable_step)?;
        let Some(Connection::Shared(connection)) = self.connection.take() else { return Err(unreachable_step()) };
        let way = Way { target: &self.target, profile, addressing: self.addressing };
        if let Some(range) = self.pool.as_ref().and_then(|pool| pool.band().range())
            && connection.is_unbound()
        {
            self.call.bind_shared(way, &connection, range)?;
        }
        self.call.post(way, &connection)?.ok_or_else(unreachable_step)
    }

    fn connect(&mut self) -> Input {
        self.connect_at_once().unwrap_or_else(|| self.connect_anew())
    }

    /// Chooses the connections that the call may take, and takes one that nobody uses; `None` if there is none.
    fn connect_at_once(&mut self) -> Option<Input> {
        if let Err(refused) = self.choose() {
            return Some(refused);
        }
        if self.shares {
            return None;
        }
        self.connection = self
            .pool
            .as_ref()
            .and_then(|pool| pool.idle(self.since, self.call.wants_reply(), self.call.due))
            .map(Connection::Own);
        self.connection.as_ref().map(|_| Input::Connected)
    }

    /// Which connections the call may take, by its priority.
    fn choose(&mut self) -> Result<(), Input> {
        let profile = self.target.profiles.get(self.profile).ok_or(Input::ConnectFailed)?;
        if !self.permits(profile) {
            self.barred = true;
            return Err(Input::ConnectFailed);
        }
        match profile.choose(self.call.core) {
            Ok(chosen) => {
                self.pool = Some(Arc::clone(chosen.pool));
                self.call.priority = chosen.priority;
                Ok(())
            }
            Err(exception) => {
                let input = Input::Raised { kind: exception.kind(), completed: exception.completed() };
                self.raised = Some(exception);
                Err(input)
            }
        }
    }

    /// Whether the client wants nothing done behind its back that goes further than `mode`. Asking for the object binds anew.
    fn keeps(&self, mode: RebindMode) -> bool {
        let is_call = matches!(self.call.request, Request::Call { .. });
        is_call && self.policies.rebind.unwrap_or_default() >= mode && self.call.object.binding().is_bound()
    }

    /// Whether going by `profile` leaves the policies in force that the client wants kept, if it does.
    fn permits(&self, profile: &Profile) -> bool {
        !self.keeps(RebindMode::NoRebind) || self.call.object.binding().is_bound_as(profile)
    }

    /// A new connection is one that the client does not want.
    fn rebind(&mut self) -> Input {
        let exception = SystemException::new(Kind::Rebind, 0, Completion::No)
            .because("no connection is there and idle, and the policy is NO_RECONNECT");
        let input = Input::Raised { kind: exception.kind(), completed: exception.completed() };
        self.raised = Some(exception);
        input
    }

    fn connect_anew(&mut self) -> Input {
        if self.keeps(RebindMode::NoReconnect) {
            return self.rebind();
        }
        let start = clock::now();
        self.call.due = self.call.due.fixed();
        let until = || self.connect_until(clock::now());
        let Some(pool) = &self.pool else { return Input::ConnectFailed };
        let (core, since) = (self.call.core, self.since);
        let outcome = match core.config().all_busy {
            _ if self.shares => pool.shared(core, until()).map(Connection::Shared),
            AllBusy::Share => match pool.free(since) {
                Some(free) => pool.ready(free, core, until(), since).map(Connection::Own),
                None => pool.shared(core, until()).map(Connection::Shared),
            },
            AllBusy::Wait => pool.connect(core, self.call.due.moment(), until, since).map(Connection::Own),
        };
        self.connected(outcome, start, clock::now())
    }

    fn connect_shared(&mut self) -> Input {
        if let Err(refused) = self.choose() {
            return refused;
        }
        if self.keeps(RebindMode::NoReconnect) && !self.pool.as_ref().is_some_and(|pool| pool.has_shared()) {
            return self.rebind();
        }
        let start = clock::now();
        self.call.due = self.call.due.fixed();
        let until = self.connect_until(start);
        let Some(pool) = &self.pool else { return Input::ConnectFailed };
        let outcome = pool.shared(self.call.core, until).map(Connection::Shared);
        self.connected(outcome, start, clock::now())
    }

    /// Until when a connection may be made, from `start` on: when the call may have it. The call's time is fixed.
    fn connect_until(&self, start: Monotonic) -> Option<Monotonic> {
        let whole = self.call.due.moment();
        match self.policies.connect_timeout {
            Some(timeout) => Some(whole.map_or(start + timeout, |whole| whole.min(start + timeout))),
            None => whole,
        }
    }

    /// What came of connecting between `start` and `now`.
    fn connected(&mut self, outcome: Result<Connection, NoConnection>, start: Monotonic, now: Monotonic) -> Input {
        let endpoint = self.pool.as_ref().and_then(|pool| pool.endpoints().first()).map(ToString::to_string);
        let elapsed = Some(now.since(start));
        let detail = |phase, message| Detail { endpoint, phase: Some(phase), elapsed, message };
        let over = self.call.due.moment().is_some_and(|whole| now >= whole);
        match outcome {
            Ok(_) if over => {
                // It goes back unused: nobody would wait for the reply.
                self.failure = detail(Phase::Connect, String::new());
                Input::DeadlinePassed(Phase::Connect)
            }
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
                if over { Input::DeadlinePassed(Phase::Connect) } else { Input::ConnectFailed }
            }
            Err(NoConnection::Failed(error)) => {
                self.failure = detail(Phase::Connect, error.to_string());
                Input::ConnectFailed
            }
        }
    }

    /// What the machine is told of trouble, or what is raised at once.
    fn note(&mut self, trouble: Trouble) -> Result<Input, SystemException> {
        // Whatever comes next is within the time that the call began with.
        self.call.due = self.call.due.fixed();
        match trouble {
            Trouble::Refused(exception) => Err(exception),
            Trouble::Failed(input, detail) => {
                self.failure = detail;
                if matches!(input, Input::Lost { .. }) {
                    // The other connections to a server that went away are no better than the one that was lost, except those
                    // that were begun after the call.
                    self.shares = self.shared;
                    self.since = std::mem::replace(&mut self.call.began, self.call.core.upcoming_connection());
                }
                Ok(input)
            }
            Trouble::Raised(exception) => {
                let input = Input::Raised { kind: exception.kind(), completed: exception.completed() };
                self.raised = Some(exception);
                Ok(input)
            }
            Trouble::Forward(ior) => {
                let target = Arc::new(self.call.object.binding().target(self.call.core, ior));
                let profiles = target.profiles.len();
                if profiles > 0 && !target.profiles.iter().any(|profile| self.permits(profile)) {
                    return Err(SystemException::new(Kind::Rebind, 0, Completion::No)
                        .because("the object has moved to where other policies hold, and the policy is NO_REBIND"));
                }
                self.next_target = Some(target);
                Ok(Input::Forwarded { profiles })
            }
            Trouble::NeedsAddressing(mode) => {
                self.addressing = mode;
                Ok(Input::NeedsAddressing)
            }
        }
    }

    fn follow(&mut self) {
        if let Some(target) = self.next_target.take() {
            self.call.object.binding().set_forwarded(Some(Arc::clone(&target)));
            self.target = target;
        }
        self.profile = 0;
    }

    fn back_to_the_original(&mut self) {
        let binding = self.call.object.binding();
        binding.set_forwarded(None);
        self.target = Arc::clone(binding.original(self.call.core));
        self.profile = 0;
    }

    /// The exception with what is known about the last failure.
    fn explain(&mut self, mut exception: SystemException) -> SystemException {
        if self.barred && exception.kind() == Kind::Transient && exception.completed() == Completion::No {
            exception = SystemException::new(Kind::Rebind, 0, Completion::No)
                .because("what is left of the way to the object is under other policies, and the policy is NO_REBIND");
        }
        let mut detail = std::mem::take(&mut self.failure);
        if let Some(known) = exception.detail()
            && detail.message.is_empty()
        {
            detail.message.clone_from(&known.message);
        }
        exception.with_detail(detail)
    }
}

/// A step that the machine does not ask for: nothing was sent, and no other address would do better.
#[cold]
fn unreachable_step() -> Box<Trouble> {
    Box::new(Trouble::Refused(SystemException::new(Kind::Internal, 0, Completion::No)))
}
