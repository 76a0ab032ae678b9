//! A call in the simulation: the steps of the driver, with a place to stop wherever the driver would block.

use corelane_wire::giop::ResponseExpected;

use super::*;
use crate::client::connection::Broken;
use crate::invocation::Operation;
use crate::invocation::call::{Arguments, Outcome, Request};
use crate::object::ObjectRef;

/// What a call needs to go on.
pub(crate) enum Stop<'c> {
    /// A connection that is made: some time passes.
    Connection,
    /// A connection that comes back, or the end of its time.
    Turn,
    /// Octets, or the end of its time.
    Reply,
    /// The end of its time.
    Time,
    /// Nothing: it is over.
    Over(Result<Option<Reply<'c>>, SystemException>),
}

/// A call that is under way.
pub(crate) struct Simulated<'c, 'a> {
    driver: Driver<'c, 'c, 'a>,
    start: Monotonic,
    whole: Option<Monotonic>,
    until: Option<Monotonic>,
    queued: bool,
    waiting: Option<(Checkout<'c>, u32)>,
    /// Known already, to be said at the end of the time.
    later: Option<Input>,
    /// Forwards followed.
    pub(crate) follows: u32,
}

impl<'c, 'a> Simulated<'c, 'a> {
    pub(crate) fn new(
        object: &'c ObjectRef,
        operation: &'c Operation<'c>,
        response: ResponseExpected,
        arguments: Arguments<'c, 'a>,
    ) -> Result<Self, SystemException> {
        object.core().check_usable()?;
        let call = Call::new(object.core(), object, Request::Call { operation, response, arguments });
        let driver = Driver::new(call);
        let start = clock::now();
        Ok(Simulated { driver, start, whole: None, until: None, queued: false, waiting: None, later: None, follows: 0 })
    }

    pub(crate) fn begin(&mut self) -> Stop<'c> {
        let output = self.driver.machine.start();
        self.carry_out(output)
    }

    /// When the time of the whole call is over.
    pub(crate) fn deadline(&self) -> Option<Monotonic> {
        self.driver.call.due.moment()
    }

    /// When the time for connecting is over.
    pub(crate) fn connect_deadline(&self) -> Option<Monotonic> {
        self.until
    }

    fn carry_out(&mut self, output: Output) -> Stop<'c> {
        self.follows += u32::from(output == Output::Follow);
        match self.driver.prepare(output) {
            Next::Connect => match self.driver.connect_at_once() {
                Some(input) => self.tell(input),
                None => {
                    self.start = clock::now();
                    self.driver.call.due = self.driver.call.due.fixed();
                    self.whole = self.driver.call.due.moment();
                    self.until = self.driver.connect_until(self.start);
                    Stop::Connection
                }
            },
            Next::Send => self.transmit(),
            Next::Raise(exception) => Stop::Over(Err(exception)),
            Next::Nothing => Stop::Over(Ok(None)),
        }
    }

    fn tell(&mut self, input: Input) -> Stop<'c> {
        let early = self.driver.call.due.moment().is_some_and(|whole| clock::now() < whole);
        if matches!(input, Input::DeadlinePassed(_)) && early {
            // What took no time here, a write to a peer that does not read, would have lasted until then.
            self.later = Some(input);
            return Stop::Time;
        }
        let output = self.driver.machine.step(input);
        self.carry_out(output)
    }

    fn transmit(&mut self) -> Stop<'c> {
        let target = Arc::clone(&self.driver.target);
        let (Some(profile), Some(Connection::Own(mut connection))) =
            (target.profiles.get(self.driver.profile), self.driver.connection.take())
        else {
            return self.tell(Input::ConnectFailed);
        };
        let way = Way { target: &target, profile, addressing: self.driver.addressing };
        match self.driver.call.transmit(way, &mut connection) {
            Ok(Some(id)) => {
                self.waiting = Some((connection, id));
                Stop::Reply
            }
            Ok(None) => Stop::Over(Ok(None)),
            Err(trouble) => {
                drop(connection);
                self.settle(Err(trouble))
            }
        }
    }

    fn settle(&mut self, outcome: Outcome<'c>) -> Stop<'c> {
        match outcome {
            Ok(reply) => Stop::Over(Ok(reply)),
            Err(trouble) => match self.driver.note(*trouble) {
                Ok(input) => self.tell(input),
                Err(exception) => Stop::Over(Err(exception)),
            },
        }
    }

    /// No reply comes, for whatever reason.
    fn no_reply(&mut self, mut connection: Checkout<'_>, id: u32, broken: Broken) -> Stop<'c> {
        let target = Arc::clone(&self.driver.target);
        let Some(profile) = target.profiles.get(self.driver.profile) else { return self.tell(Input::ConnectFailed) };
        let way = Way { target: &target, profile, addressing: self.driver.addressing };
        let trouble = self.driver.call.no_reply(way, &mut connection, id, broken);
        drop(connection);
        self.settle(Err(trouble))
    }

    /// The time that connecting takes has passed.
    pub(crate) fn connect(&mut self) -> Stop<'c> {
        let Some(pool) = self.driver.pool.clone() else { return self.tell(Input::ConnectFailed) };
        let outcome = match pool.free(self.driver.since) {
            Some(checkout) => {
                if std::mem::take(&mut self.queued) {
                    self.until = self.driver.connect_until(clock::now());
                }
                pool.ready(checkout, self.driver.call.core, self.until, self.driver.since).map(Connection::Own)
            }
            None if self.whole.is_some_and(|whole| clock::now() >= whole) => Err(NoConnection::AllBusy),
            None => {
                // The time for connecting begins when there is a place for a connection.
                self.queued = true;
                return Stop::Turn;
            }
        };
        let input = self.driver.connected(outcome, self.start, clock::now());
        self.tell(input)
    }

    /// No connection was made in time.
    pub(crate) fn connect_timed_out(&mut self) -> Stop<'c> {
        let input = self.driver.connected(Err(NoConnection::TimedOut), self.start, clock::now());
        self.tell(input)
    }

    /// Something has come for the call: reads on while `more` octets, or the end, are there.
    pub(crate) fn read(&mut self, more: impl Fn() -> bool) -> Stop<'c> {
        let Some((mut connection, id)) = self.waiting.take() else { return Stop::Reply };
        let target = Arc::clone(&self.driver.target);
        let Some(profile) = target.profiles.get(self.driver.profile) else { return self.tell(Input::ConnectFailed) };
        let way = Way { target: &target, profile, addressing: self.driver.addressing };
        loop {
            if let Some(header) = connection.plain_reply(id, &self.driver.call.core.config().limits) {
                self.driver.call.object.binding().note_bound(&target, self.driver.profile);
                return Stop::Over(self.driver.call.take(way, connection, header, None));
            }
            let broken = match connection.arrived(&self.driver.call.core.config().limits) {
                Ok(Ok(received)) => {
                    connection = match self.driver.call.arrived(way, connection, id, received) {
                        Ok(outcome) => return self.settle(outcome),
                        Err(connection) => connection,
                    };
                    continue;
                }
                Ok(Err(wanted)) if more() => connection.fill(wanted, corelane_net::Wait::Now).err(),
                Ok(Err(_)) => {
                    self.waiting = Some((connection, id));
                    return Stop::Reply;
                }
                Err(broken) => Some(broken),
            };
            if let Some(broken) = broken {
                return self.no_reply(connection, id, broken);
            }
        }
    }

    /// The call's time is over.
    pub(crate) fn time_out(&mut self) -> Stop<'c> {
        if let Some(input) = self.later.take() {
            return self.tell(input);
        }
        match self.waiting.take() {
            Some((connection, id)) => self.no_reply(connection, id, Broken::TimedOut),
            None => self.connect(),
        }
    }

    /// The caller does not want the reply any longer; false if it does not wait for one.
    pub(crate) fn cancel(&mut self) -> Option<Stop<'c>> {
        let (connection, id) = self.waiting.take()?;
        Some(self.no_reply(connection, id, Broken::Cancelled))
    }
}
