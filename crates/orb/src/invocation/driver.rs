//! The driver of an invocation that leaves the fast path: it performs the actions that the pure
//! [machine](super::machine) decides.

#[cfg(test)]
pub(crate) mod simulated;

use std::sync::Arc;

use corelane_sys::clock::Monotonic;
use corelane_sys::poll;
use corelane_wire::exception::minor;
use corelane_wire::giop::AddressingMode;

use super::call::{AttemptError, CallRoute, Invocation, RequestSpec};
use super::machine::{self, InvocationMachine, MachineAction, MachineInput};
use super::multiplexed::SentRequest;
use super::reply::Reply;
use super::target::{TargetProfiles, UsableProfile};
use crate::client::checkout::Checkout;
use crate::client::multiplexed::MultiplexedConnection;
use crate::client::pool::{AcquireError, ConnectionPool};
use crate::client::try_order::AttemptTime;
use crate::clock;
use crate::exception::{CallPhase, Completion, FailureDetail, SystemException, SystemExceptionKind as Kind};
use crate::nested_wait;
use crate::policy::{CallPolicies, ConnectionPoolExhaustedAction, RebindMode};

enum CallConnection {
    Exclusive(Checkout<'static>),
    Multiplexed(Arc<MultiplexedConnection>),
}

enum NextAction {
    Connect,
    ConnectAt(Monotonic),
    Send,
    Raise(SystemException),
    Nothing,
}

pub(super) struct Driver<'r, 'c, 'a> {
    call: Invocation<'r, 'c, 'a>,
    policies: CallPolicies,
    machine: InvocationMachine,
    target: Arc<TargetProfiles>,
    profile: usize,
    attempt_time: AttemptTime,
    addressing: AddressingMode,
    pool: Option<Arc<ConnectionPool>>,
    connection: Option<CallConnection>,
    next_target: Option<Arc<TargetProfiles>>,
    /// The call uses no connection with a lower id, because older connections may be lost.
    min_connection_id: u64,
    was_multiplexed: bool,
    use_multiplexed: bool,
    was_rebind_refused: bool,
    last_failure: FailureDetail,
    last_exception: Option<SystemException>,
}

impl<'r, 'c, 'a> Driver<'r, 'c, 'a> {
    #[cold]
    pub(super) fn new(call: Invocation<'r, 'c, 'a>) -> Self {
        let policies = call.callee.policies();
        let binding = call.callee.binding();
        let original = binding.original(call.context);
        let forwarded = binding.forwarded();
        let machine = InvocationMachine::new(
            forwarded.as_ref().unwrap_or(original).try_order(call.context),
            forwarded.is_some(),
            original.try_order(call.context),
            policies.max_transient_retries.unwrap_or(0),
        );
        Driver {
            call,
            policies,
            machine,
            target: forwarded.unwrap_or_else(|| Arc::clone(original)),
            profile: 0,
            attempt_time: AttemptTime::Share(1),
            addressing: AddressingMode::Key,
            pool: None,
            connection: None,
            next_target: None,
            min_connection_id: 0,
            was_multiplexed: false,
            use_multiplexed: false,
            was_rebind_refused: false,
            last_failure: FailureDetail::default(),
            last_exception: None,
        }
    }

    #[cold]
    pub(super) fn run(mut self) -> Result<Option<Reply<'r>>, SystemException> {
        if self.target.profiles.is_empty() {
            return Err(if self.target.excludes_profiles {
                SystemException::new(Kind::InvPolicy, minor::inv_policy::IRRECONCILABLE, Completion::No)
                    .with_message("the ClientProtocol policies of the client and the reference exclude every profile")
            } else {
                machine::no_usable_profile().with_message(self.target.why_unusable())
            });
        }
        let output = self.machine.start();
        self.drive(output)
    }

    #[cold]
    pub(super) fn resume_after(
        mut self,
        error: AttemptError,
        profile: usize,
        was_multiplexed: bool,
    ) -> Result<Option<Reply<'r>>, SystemException> {
        self.was_multiplexed = was_multiplexed;
        self.machine.resume_at(profile);
        self.profile = profile;
        let input = self.input_from_error(error)?;
        let output = self.machine.step(input);
        self.drive(output)
    }

    fn drive(mut self, mut output: MachineAction) -> Result<Option<Reply<'r>>, SystemException> {
        loop {
            let input = match self.apply_action(output) {
                NextAction::Connect => self.connect(),
                NextAction::ConnectAt(moment) => {
                    self.wait_until(moment)?;
                    self.connect()
                }
                NextAction::Send => match self.attempt() {
                    Ok(reply) => {
                        self.call.callee.binding().record_bound(&self.target, self.profile);
                        return Ok(reply);
                    }
                    Err(error) => self.input_from_error(*error)?,
                },
                NextAction::Raise(exception) => return Err(exception),
                NextAction::Nothing => return Ok(None),
            };
            output = self.machine.step(input);
        }
    }

    fn apply_action(&mut self, output: MachineAction) -> NextAction {
        match output {
            MachineAction::Send => return NextAction::Send,
            MachineAction::Retry { attempt, attempt_time } => {
                self.attempt_time = attempt_time;
                return self.retry(attempt);
            }
            MachineAction::Connect { profile, attempt_time } => {
                (self.profile, self.attempt_time) = (profile, attempt_time)
            }
            MachineAction::ConnectOriginal { profile, attempt_time } => {
                self.revert_to_original();
                (self.profile, self.attempt_time) = (profile, attempt_time);
            }
            MachineAction::Follow { profile, attempt_time } => {
                self.follow();
                (self.profile, self.attempt_time) = (profile, attempt_time);
            }
            MachineAction::RaiseReported => {
                return self.last_exception.take().map_or(NextAction::Nothing, NextAction::Raise);
            }
            MachineAction::Fail(exception) => return NextAction::Raise(self.with_last_failure(exception)),
        }
        NextAction::Connect
    }

    /// Returns the step that pauses and then connects again. If the call's deadline would pass
    /// during the pause, returns the step that raises the TRANSIENT exception.
    fn retry(&mut self, attempt: u32) -> NextAction {
        let now = clock::now();
        // The number may be predictable, but must differ between clients, calls and attempts.
        let random =
            (now.as_nanos() ^ self.call.first_new_connection.rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8;
        let moment = now + machine::pause(attempt, random);
        self.call.due = self.call.due.to_absolute();
        match self.call.due.latest() {
            Some(deadline) if moment >= deadline => {
                self.last_exception.take().map_or(NextAction::Nothing, NextAction::Raise)
            }
            _ => NextAction::ConnectAt(moment),
        }
    }

    fn wait_until(&self, moment: Monotonic) -> Result<(), SystemException> {
        nested_wait::release_dedicated_connection();
        let Some(canceller) = self.call.callee.canceller() else {
            std::thread::sleep(moment.since(clock::now()));
            return Ok(());
        };
        match poll::wait_readable(canceller.as_fd(), Some(moment)) {
            Ok(false) | Err(_) => Ok(()),
            Ok(true) => Err(SystemException::new(Kind::Transient, minor::transient::CANCELLED, Completion::No)
                .with_message("cancelled by the caller")),
        }
    }

    fn attempt(&mut self) -> Result<Option<Reply<'r>>, Box<AttemptError>> {
        match (self.target.profiles.get(self.profile), self.connection.take()) {
            (Some(profile), Some(connection)) => {
                let route = CallRoute { target: &self.target, profile, addressing: self.addressing };
                let range = self.pool.as_ref().and_then(|pool| pool.band().range());
                match connection {
                    CallConnection::Exclusive(mut connection) => {
                        self.was_multiplexed = false;
                        if let Some(range) = range.filter(|_| connection.needs_band_declaration()) {
                            connection = self.call.declare_band(route, connection, range)?;
                        }
                        self.call.attempt(route, connection)
                    }
                    CallConnection::Multiplexed(connection) => {
                        self.was_multiplexed = true;
                        if let Some(range) = range.filter(|_| connection.needs_band_declaration()) {
                            self.call.declare_band_multiplexed(route, &connection, range)?;
                        }
                        self.call.attempt_multiplexed(route, &connection)
                    }
                }
            }
            _ => Err(unreachable_step()),
        }
    }

    pub(super) fn send_deferred(mut self) -> Result<(Arc<TargetProfiles>, usize, SentRequest), SystemException> {
        let mut output = self.machine.start();
        loop {
            let input = match self.apply_action(output) {
                NextAction::Connect => self.connect_shared(),
                NextAction::ConnectAt(moment) => {
                    self.wait_until(moment)?;
                    self.connect_shared()
                }
                NextAction::Send => match self.send_once() {
                    Ok(sent) => return Ok((self.target, self.profile, sent)),
                    Err(error) => self.input_from_error(*error)?,
                },
                NextAction::Raise(exception) => return Err(exception),
                NextAction::Nothing => return Err(SystemException::new(Kind::Internal, 0, Completion::No)),
            };
            output = self.machine.step(input);
        }
    }

    fn send_once(&mut self) -> Result<SentRequest, Box<AttemptError>> {
        let profile = self.target.profiles.get(self.profile).ok_or_else(unreachable_step)?;
        let Some(CallConnection::Multiplexed(connection)) = self.connection.take() else {
            return Err(unreachable_step());
        };
        let route = CallRoute { target: &self.target, profile, addressing: self.addressing };
        if let Some(range) = self.pool.as_ref().and_then(|pool| pool.band().range())
            && connection.needs_band_declaration()
        {
            self.call.declare_band_multiplexed(route, &connection, range)?;
        }
        self.call.send_multiplexed(route, &connection)?.ok_or_else(unreachable_step)
    }

    fn connect(&mut self) -> MachineInput {
        self.connect_idle().unwrap_or_else(|| self.connect_new())
    }

    /// Selects the pool, and takes an idle connection. Returns `None` if no connection is idle, or
    /// if the call must use a multiplexed connection.
    fn connect_idle(&mut self) -> Option<MachineInput> {
        if let Err(refused) = self.select_pool() {
            return Some(refused);
        }
        if self.use_multiplexed {
            return None;
        }
        self.connection = self
            .pool
            .as_ref()
            .and_then(|pool| pool.take_idle(self.min_connection_id, self.call.wants_reply(), self.call.due))
            .map(CallConnection::Exclusive);
        self.connection.as_ref().map(|_| MachineInput::Connected)
    }

    fn select_pool(&mut self) -> Result<(), MachineInput> {
        let profile = self.target.profiles.get(self.profile).ok_or(MachineInput::ConnectFailed)?;
        if !self.permits_profile(profile) {
            self.was_rebind_refused = true;
            return Err(MachineInput::ConnectFailed);
        }
        match profile.select_pool(self.call.context) {
            Ok(chosen) => {
                self.pool = Some(Arc::clone(chosen.pool));
                self.call.priority = chosen.priority;
                Ok(())
            }
            Err(exception) => {
                let input = MachineInput::Raised { kind: exception.kind(), completed: exception.completed() };
                self.last_exception = Some(exception);
                Err(input)
            }
        }
    }

    /// Returns true if the reference is bound and the call's rebind policy is `mode` or a stricter
    /// one. Returns false for a LocateRequest, because a client sends it to bind the reference
    /// anew.
    fn forbids_rebind(&self, mode: RebindMode) -> bool {
        let is_call = matches!(self.call.request, RequestSpec::Call { .. });
        is_call && self.policies.rebind.unwrap_or_default() >= mode && self.call.callee.binding().is_bound()
    }

    fn permits_profile(&self, profile: &UsableProfile) -> bool {
        !self.forbids_rebind(RebindMode::NoRebind) || self.call.callee.binding().is_bound_as(profile)
    }

    fn refuse_rebind(&mut self) -> MachineInput {
        let exception = SystemException::new(Kind::Rebind, 0, Completion::No)
            .with_message("no connection is idle, and the rebind policy NO_RECONNECT forbids a new one");
        let input = MachineInput::Raised { kind: exception.kind(), completed: exception.completed() };
        self.last_exception = Some(exception);
        input
    }

    /// Gets a connection, or makes one if necessary. If every slot is in use, the ORB's
    /// [`ConnectionPoolExhaustedAction`] decides.
    fn connect_new(&mut self) -> MachineInput {
        if self.forbids_rebind(RebindMode::NoReconnect) {
            return self.refuse_rebind();
        }
        let start = clock::now();
        self.call.due = self.call.due.to_absolute();
        let until = || self.connect_deadline_from(clock::now());
        let Some(pool) = &self.pool else { return MachineInput::ConnectFailed };
        let (context, min_connection_id) = (self.call.context, self.min_connection_id);
        let outcome = match context.config().on_connection_pool_exhausted {
            _ if self.use_multiplexed => pool.multiplexed(context, until()).map(CallConnection::Multiplexed),
            ConnectionPoolExhaustedAction::Multiplex => match pool.take_free(min_connection_id) {
                Some(free) => {
                    pool.ensure_connected(free, context, until(), min_connection_id).map(CallConnection::Exclusive)
                }
                None => pool.multiplexed(context, until()).map(CallConnection::Multiplexed),
            },
            ConnectionPoolExhaustedAction::Wait => {
                pool.acquire(context, self.call.due.latest(), until, min_connection_id).map(CallConnection::Exclusive)
            }
        };
        self.connect_result(outcome, start, clock::now())
    }

    fn connect_shared(&mut self) -> MachineInput {
        if let Err(refused) = self.select_pool() {
            return refused;
        }
        if self.forbids_rebind(RebindMode::NoReconnect)
            && !self.pool.as_ref().is_some_and(|pool| pool.has_multiplexed())
        {
            return self.refuse_rebind();
        }
        let start = clock::now();
        self.call.due = self.call.due.to_absolute();
        let until = self.connect_deadline_from(start);
        let Some(pool) = &self.pool else { return MachineInput::ConnectFailed };
        let outcome = pool.multiplexed(self.call.context, until).map(CallConnection::Multiplexed);
        self.connect_result(outcome, start, clock::now())
    }

    /// Returns the deadline of an attempt to connect that begins at `start`. The caller must have
    /// made the call's deadline absolute.
    fn connect_deadline_from(&self, start: Monotonic) -> Option<Monotonic> {
        let addresses = self.pool.as_ref().map_or(1, |pool| pool.endpoints().len());
        let until = self.attempt_time.deadline(start, self.call.due.latest(), addresses);
        match self.policies.connect_timeout {
            Some(timeout) => Some(until.map_or(start + timeout, |until| until.min(start + timeout))),
            None => until,
        }
    }

    /// Returns `ConnectFailed` if the policies' connect time-out has ended the attempt, otherwise
    /// `NoAnswer`, which makes the machine try the profile again later, with more time.
    fn timeout_input(&self) -> MachineInput {
        let addresses = self.pool.as_ref().map_or(1, |pool| pool.endpoints().len());
        let start = Monotonic::from_nanos(0);
        let own = self.attempt_time.deadline(start, None, addresses);
        match self.policies.connect_timeout {
            Some(timeout) if own.is_none_or(|own| start + timeout <= own) => MachineInput::ConnectFailed,
            _ => MachineInput::NoAnswer,
        }
    }

    fn connect_result(
        &mut self,
        outcome: Result<CallConnection, AcquireError>,
        start: Monotonic,
        now: Monotonic,
    ) -> MachineInput {
        let endpoint = self.pool.as_ref().and_then(|pool| pool.endpoints().first()).map(ToString::to_string);
        // The measured time of the call can be too short by the lag of the coarse clock, but it is
        // at least the time of this attempt.
        let elapsed = self.call.due.elapsed(self.call.callee.timeout()).max(Some(now.since(start)));
        let detail = |phase, message| FailureDetail { endpoint, phase: Some(phase), elapsed, message };
        let over = self.call.due.latest().is_some_and(|deadline| now >= deadline);
        match outcome {
            Ok(_) if over => {
                self.last_failure = detail(CallPhase::Connect, String::new());
                MachineInput::DeadlinePassed(CallPhase::Connect)
            }
            Ok(connection) => {
                self.connection = Some(connection);
                MachineInput::Connected
            }
            Err(AcquireError::AllBusy) => {
                self.last_failure = detail(
                    CallPhase::AcquireConnection,
                    "all connections that the maximum permits to the server are in use".into(),
                );
                MachineInput::DeadlinePassed(CallPhase::AcquireConnection)
            }
            Err(AcquireError::TimedOut) => {
                self.last_failure = detail(CallPhase::Connect, String::new());
                if over { MachineInput::DeadlinePassed(CallPhase::Connect) } else { self.timeout_input() }
            }
            Err(AcquireError::ConnectFailed(error)) => {
                self.last_failure = detail(CallPhase::Connect, error.to_string());
                MachineInput::ConnectFailed
            }
        }
    }

    fn input_from_error(&mut self, error: AttemptError) -> Result<MachineInput, SystemException> {
        self.call.due = self.call.due.to_absolute();
        match error {
            AttemptError::Refused(exception) => Err(exception),
            AttemptError::Failed(input, detail) => {
                self.last_failure = detail;
                if matches!(input, MachineInput::ConnectionLost { .. }) {
                    // A server that has ended loses all its connections, so the next attempt uses a
                    // newer connection.
                    self.use_multiplexed = self.was_multiplexed;
                    self.min_connection_id =
                        std::mem::replace(&mut self.call.first_new_connection, self.call.context.peek_connection_id());
                }
                Ok(input)
            }
            AttemptError::Raised(exception) => {
                let input = MachineInput::Raised { kind: exception.kind(), completed: exception.completed() };
                self.last_exception = Some(exception);
                Ok(input)
            }
            AttemptError::Forward(ior) => {
                let target = Arc::new(self.call.callee.binding().target(self.call.context, ior));
                let order = target.try_order(self.call.context);
                if !order.is_empty() && !target.profiles.iter().any(|profile| self.permits_profile(profile)) {
                    return Err(SystemException::new(Kind::Rebind, 0, Completion::No)
                        .with_message("the object has moved to a reference with other policies, and the rebind policy NO_REBIND forbids the change"));
                }
                self.next_target = Some(target);
                Ok(MachineInput::Forwarded { order })
            }
            AttemptError::NeedsAddressing(mode) => {
                self.addressing = mode;
                Ok(MachineInput::NeedsAddressing)
            }
        }
    }

    fn follow(&mut self) {
        if let Some(target) = self.next_target.take() {
            self.call.callee.binding().set_forwarded(Some(Arc::clone(&target)));
            self.target = target;
        }
    }

    fn revert_to_original(&mut self) {
        let binding = self.call.callee.binding();
        binding.set_forwarded(None);
        self.target = Arc::clone(binding.original(self.call.context));
    }

    /// Adds the details of the last failure to the exception. If the rebind policy excluded a
    /// profile, TRANSIENT with COMPLETED_NO becomes REBIND.
    fn with_last_failure(&mut self, mut exception: SystemException) -> SystemException {
        if self.was_rebind_refused && exception.kind() == Kind::Transient && exception.completed() == Completion::No {
            exception = SystemException::new(Kind::Rebind, 0, Completion::No).with_message(
                "the remaining profiles have other policies, and the rebind policy NO_REBIND forbids the change",
            );
        }
        let mut detail = std::mem::take(&mut self.last_failure);
        if let Some(known) = exception.detail()
            && detail.message.is_empty()
        {
            detail.message.clone_from(&known.message);
        }
        exception.with_detail(detail)
    }
}

#[cold]
fn unreachable_step() -> Box<AttemptError> {
    Box::new(AttemptError::Refused(SystemException::new(Kind::Internal, 0, Completion::No)))
}
