//! A call in the simulation, which makes the steps of the driver. Where the driver would block, it
//! returns the event for which it waits.

use corelane_wire::giop::ResponseExpected;

use super::*;
use crate::exchange::ExchangeError;
use crate::invocation::Operation;
use crate::invocation::call::{ArgumentWriter, AttemptResult, RequestSpec};
use crate::invocation::callee::Callee;

pub(crate) enum BlockedOn<'c> {
    Connection,
    Pause(Monotonic),
    ConnectTimeout,
    FreeConnection,
    Reply,
    Deadline,
    Finished(Result<Option<Reply<'c>>, SystemException>),
}

pub(crate) struct SimulatedCall<'c, 'a> {
    driver: Driver<'c, 'c, 'a>,
    start: Monotonic,
    deadline: Option<Monotonic>,
    until: Option<Monotonic>,
    queued: bool,
    waiting: Option<(Checkout<'c>, u32)>,
    /// The machine's input at the call's deadline, after a write that would block.
    later: Option<MachineInput>,
    pub(crate) follows: u32,
}

impl<'c, 'a> SimulatedCall<'c, 'a> {
    pub(crate) fn new(
        callee: &'c Callee,
        operation: &'c Operation<'c>,
        response: ResponseExpected,
        arguments: ArgumentWriter<'c, 'a>,
    ) -> Result<Self, SystemException> {
        callee.context().check_usable()?;
        let call = Invocation::new(callee.context(), callee, RequestSpec::Call { operation, response, arguments });
        let driver = Driver::new(call);
        let start = clock::now();
        Ok(SimulatedCall {
            driver,
            start,
            deadline: None,
            until: None,
            queued: false,
            waiting: None,
            later: None,
            follows: 0,
        })
    }

    pub(crate) fn begin(&mut self) -> BlockedOn<'c> {
        let output = self.driver.machine.start();
        self.carry_out(output)
    }

    pub(crate) fn deadline(&self) -> Option<Monotonic> {
        self.driver.call.due.latest()
    }

    pub(crate) fn connect_deadline(&self) -> Option<Monotonic> {
        self.until
    }

    fn carry_out(&mut self, output: MachineAction) -> BlockedOn<'c> {
        self.follows += u32::from(matches!(output, MachineAction::Follow { .. }));
        match self.driver.apply_action(output) {
            NextAction::Connect => match self.driver.connect_idle() {
                Some(input) => self.step(input),
                None => {
                    self.start = clock::now();
                    self.driver.call.due = self.driver.call.due.to_absolute();
                    self.deadline = self.driver.call.due.latest();
                    self.until = self.driver.connect_deadline_from(self.start);
                    BlockedOn::Connection
                }
            },
            NextAction::ConnectAt(moment) => {
                (self.start, self.deadline) = (moment, self.driver.call.due.latest());
                self.until = self.driver.connect_deadline_from(moment);
                BlockedOn::Pause(moment)
            }
            NextAction::Send => self.transmit(),
            NextAction::Raise(exception) => BlockedOn::Finished(Err(exception)),
            NextAction::Nothing => BlockedOn::Finished(Ok(None)),
        }
    }

    fn step(&mut self, input: MachineInput) -> BlockedOn<'c> {
        let early = self.driver.call.due.latest().is_some_and(|deadline| clock::now() < deadline);
        if matches!(input, MachineInput::DeadlinePassed(_)) && early {
            // A real write to a peer that does not read would block until the call's deadline, so
            // the simulated call waits for its deadline.
            self.later = Some(input);
            return BlockedOn::Deadline;
        }
        let output = self.driver.machine.step(input);
        self.carry_out(output)
    }

    fn transmit(&mut self) -> BlockedOn<'c> {
        let target = Arc::clone(&self.driver.target);
        let (Some(profile), Some(CallConnection::Exclusive(mut connection))) =
            (target.profiles.get(self.driver.profile), self.driver.connection.take())
        else {
            return self.step(MachineInput::ConnectFailed);
        };
        let route = CallRoute { target: &target, profile, addressing: self.driver.addressing };
        match self.driver.call.transmit(route, &mut connection, &[]) {
            Ok(Some(id)) => {
                self.waiting = Some((connection, id));
                BlockedOn::Reply
            }
            Ok(None) => BlockedOn::Finished(Ok(None)),
            Err(error) => {
                drop(connection);
                self.on_result(Err(error))
            }
        }
    }

    fn on_result(&mut self, outcome: AttemptResult<'c>) -> BlockedOn<'c> {
        match outcome {
            Ok(reply) => BlockedOn::Finished(Ok(reply)),
            Err(error) => match self.driver.input_from_error(*error) {
                Ok(input) => self.step(input),
                Err(exception) => BlockedOn::Finished(Err(exception)),
            },
        }
    }

    fn on_no_reply(&mut self, mut connection: Checkout<'_>, id: u32, broken: ExchangeError) -> BlockedOn<'c> {
        let target = Arc::clone(&self.driver.target);
        let Some(profile) = target.profiles.get(self.driver.profile) else {
            return self.step(MachineInput::ConnectFailed);
        };
        let route = CallRoute { target: &target, profile, addressing: self.driver.addressing };
        let error = self.driver.call.on_no_reply(route, &mut connection, id, broken);
        drop(connection);
        self.on_result(Err(error))
    }

    pub(crate) fn connect(&mut self) -> BlockedOn<'c> {
        let Some(pool) = self.driver.pool.clone() else { return self.step(MachineInput::ConnectFailed) };
        let outcome = match pool.take_free(self.driver.min_connection_id) {
            Some(checkout) => {
                if std::mem::take(&mut self.queued) {
                    self.until = self.driver.connect_deadline_from(clock::now());
                }
                pool.ensure_connected(checkout, self.driver.call.context, self.until, self.driver.min_connection_id)
                    .map(CallConnection::Exclusive)
            }
            None if self.deadline.is_some_and(|deadline| clock::now() >= deadline) => Err(AcquireError::AllBusy),
            None => {
                self.queued = true;
                return BlockedOn::FreeConnection;
            }
        };
        if let Err(AcquireError::ConnectFailed(error)) = &outcome
            && error.kind() == std::io::ErrorKind::TimedOut
            && self.until.is_some_and(|until| clock::now() < until)
        {
            return BlockedOn::ConnectTimeout;
        }
        let input = self.driver.connect_result(outcome, self.start, clock::now());
        self.step(input)
    }

    pub(crate) fn connect_timed_out(&mut self) -> BlockedOn<'c> {
        let input = self.driver.connect_result(Err(AcquireError::TimedOut), self.start, clock::now());
        self.step(input)
    }

    pub(crate) fn read(&mut self, more: impl Fn() -> bool) -> BlockedOn<'c> {
        let Some((mut connection, id)) = self.waiting.take() else { return BlockedOn::Reply };
        let target = Arc::clone(&self.driver.target);
        let Some(profile) = target.profiles.get(self.driver.profile) else {
            return self.step(MachineInput::ConnectFailed);
        };
        let route = CallRoute { target: &target, profile, addressing: self.driver.addressing };
        loop {
            if let Some(header) = connection.plain_reply(id, &self.driver.call.context.config().limits) {
                self.driver.call.callee.binding().record_bound(&target, self.driver.profile);
                return BlockedOn::Finished(self.driver.call.deliver(route, connection, header, None));
            }
            let broken = match connection.next_message(&self.driver.call.context.config().limits) {
                Ok(Ok(received)) => {
                    connection = match self.driver.call.on_message(route, connection, id, received) {
                        Ok(outcome) => return self.on_result(outcome),
                        Err(connection) => connection,
                    };
                    continue;
                }
                Ok(Err(wanted)) if more() => connection.read_more(wanted, corelane_net::WaitLimit::Now).err(),
                Ok(Err(_)) => {
                    self.waiting = Some((connection, id));
                    return BlockedOn::Reply;
                }
                Err(broken) => Some(broken),
            };
            if let Some(broken) = broken {
                return self.on_no_reply(connection, id, broken);
            }
        }
    }

    pub(crate) fn time_out(&mut self) -> BlockedOn<'c> {
        if let Some(input) = self.later.take() {
            return self.step(input);
        }
        match self.waiting.take() {
            Some((connection, id)) => self.on_no_reply(connection, id, ExchangeError::TimedOut),
            None => self.connect(),
        }
    }

    pub(crate) fn cancel(&mut self) -> Option<BlockedOn<'c>> {
        let (connection, id) = self.waiting.take()?;
        Some(self.on_no_reply(connection, id, ExchangeError::Cancelled))
    }
}
