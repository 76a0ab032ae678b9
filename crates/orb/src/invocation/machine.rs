//! The rules of one invocation, as a pure machine: which profile to try, when to retry, when to follow a forward, when to
//! give up. The blocking driver in `driver.rs` (and the simulation in the tests) reports what happened and does what it is told. A
//! reply that is a result or a user exception ends the invocation; the machine is not asked about it.
//!
//! Invariant: after the first octet of a complete request may have been acted upon by a server, the request is never sent again,
//! unless the server itself said that it did not run it (CORBA 3.0.3, sections 15.5.1 and 4.12.3.3).

use corelane_wire::exception::minor;
use corelane_wire::exception::{Completion, SystemExceptionKind as Kind};

use crate::exception::{Phase, SystemException};

/// How many LOCATION_FORWARDs one invocation follows.
pub(crate) const FORWARDS: u8 = 10;
/// How many times one invocation goes back to connecting after it had a connection.
pub(crate) const RETRIES: u8 = 4;

/// What happened to the attempt under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// A connection is at hand (from the pool or new).
    Connected,
    /// No connection could be made to the profile's endpoints.
    ConnectFailed,
    /// The request could not be written as a whole, or the connection ended before the reply.
    Lost {
        /// How much of the request the transport had taken.
        written: Written,
        /// The peer had announced the end with CloseConnection: what it did not answer, it did not run.
        orderly: bool,
    },
    /// The reply is a system exception.
    Raised {
        /// Which one.
        kind: Kind,
        /// Whether the target ran the operation.
        completed: Completion,
    },
    /// The reply is LOCATION_FORWARD: the driver holds the new target of `profiles` usable profiles.
    Forwarded {
        /// Usable profiles of the new target.
        profiles: usize,
    },
    /// The server wants another form of target address.
    NeedsAddressing,
    /// The deadline passed.
    DeadlinePassed(Phase),
}

/// How much of a request the transport took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// Not one octet.
    Nothing,
    /// Some octets, not all: the server cannot have run it.
    Part,
    /// All of it: the server may have run it.
    Whole,
}

/// What the driver does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// Get a connection to profile `profile` of the current target.
    Connect {
        /// Index into the current target's usable profiles.
        profile: usize,
    },
    /// Give up the forwarded target and get a connection to the first profile of the original one.
    ConnectOriginal,
    /// Write the request on the connection at hand and wait for its reply.
    Send,
    /// Make the forwarded target the current one, then get a connection to its first profile.
    Follow,
    /// Raise the system exception that the reply is.
    Deliver,
    /// Raise this.
    Fail(SystemException),
}

/// One invocation's state: a few octets, no clock, no sockets.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    profiles: usize,
    profile: usize,
    original_profiles: usize,
    forwarded: bool,
    fell_back: bool,
    readdressed: bool,
    forwards: u8,
    retries: u8,
    retry_transient: u8,
}

impl Machine {
    /// An invocation on a target with `profiles` usable profiles; `forwarded` says that the target is one that an earlier
    /// invocation was forwarded to, and `original_profiles` how many the original has. `retry_transient`: how many TRANSIENT
    /// replies are retried, by policy (0 unless asked for).
    #[must_use]
    pub(crate) fn new(profiles: usize, forwarded: bool, original_profiles: usize, retry_transient: u8) -> Self {
        Machine {
            profiles,
            profile: 0,
            original_profiles,
            forwarded,
            fell_back: false,
            readdressed: false,
            forwards: 0,
            retries: 0,
            retry_transient,
        }
    }

    /// The first step.
    #[must_use]
    pub(crate) fn start(&self) -> Output {
        if self.profiles == 0 { Output::Fail(no_usable_profile()) } else { Output::Connect { profile: 0 } }
    }

    /// Takes what happened, says what to do.
    #[must_use]
    #[inline]
    pub(crate) fn step(&mut self, input: Input) -> Output {
        if input == Input::Connected { Output::Send } else { self.trouble(input) }
    }

    #[cold]
    fn trouble(&mut self, input: Input) -> Output {
        match input {
            Input::Connected => Output::Send,
            Input::ConnectFailed => self.next_profile(),
            Input::Lost { written, orderly } => {
                if written == Written::Whole && !orderly {
                    return Output::Fail(SystemException::new(Kind::CommFailure, 0, Completion::Maybe));
                }
                self.again()
            }
            Input::Raised { kind, completed } => self.raised(kind, completed),
            Input::Forwarded { profiles } => self.follow(profiles),
            Input::NeedsAddressing if self.readdressed => Output::Fail(
                SystemException::new(Kind::NoImplement, 0, Completion::No)
                    .because("the server keeps asking for another addressing mode"),
            ),
            Input::NeedsAddressing => {
                self.readdressed = true;
                Output::Connect { profile: self.profile }
            }
            Input::DeadlinePassed(phase) => {
                let (code, completed) = match phase {
                    Phase::Wait => (minor::timeout::REPLY_END_TIME, Completion::Maybe),
                    Phase::Acquire | Phase::Connect | Phase::Send => (minor::timeout::REQUEST_END_TIME, Completion::No),
                };
                Output::Fail(SystemException::new(Kind::Timeout, code, completed))
            }
        }
    }

    /// The request certainly did not run: once more on a fresh connection, within bounds.
    fn again(&mut self) -> Output {
        if self.retries >= RETRIES {
            return self.fall_back(SystemException::new(Kind::CommFailure, 0, Completion::No));
        }
        self.retries += 1;
        Output::Connect { profile: self.profile }
    }

    fn next_profile(&mut self) -> Output {
        self.profile += 1;
        if self.profile < self.profiles {
            return Output::Connect { profile: self.profile };
        }
        self.fall_back(SystemException::new(Kind::Transient, minor::transient::NO_USABLE_PROFILE, Completion::No))
    }

    fn raised(&mut self, kind: Kind, completed: Completion) -> Output {
        if completed != Completion::No {
            return Output::Deliver;
        }
        if kind == Kind::Transient && self.retry_transient > 0 {
            self.retry_transient -= 1;
            return Output::Connect { profile: self.profile };
        }
        let moved = matches!(kind, Kind::Transient | Kind::ObjectNotExist | Kind::CommFailure | Kind::InvObjref);
        if moved && self.forwarded && !self.fell_back {
            return self.original();
        }
        Output::Deliver
    }

    /// The current target failed with COMPLETED_NO: a forwarded one is left for the original, once.
    fn fall_back(&mut self, otherwise: SystemException) -> Output {
        if self.forwarded && !self.fell_back { self.original() } else { Output::Fail(otherwise) }
    }

    fn original(&mut self) -> Output {
        self.fell_back = true;
        self.forwarded = false;
        self.profile = 0;
        self.profiles = self.original_profiles;
        if self.profiles == 0 { Output::Fail(no_usable_profile()) } else { Output::ConnectOriginal }
    }

    fn follow(&mut self, profiles: usize) -> Output {
        if self.forwards >= FORWARDS {
            return Output::Fail(
                SystemException::new(Kind::Transient, crate::minor::FORWARD_LOOP, Completion::No)
                    .because(format!("forwarded more than {FORWARDS} times")),
            );
        }
        if profiles == 0 {
            return Output::Fail(no_usable_profile().because("forwarded to a reference without a usable profile"));
        }
        self.forwards += 1;
        self.forwarded = true;
        self.profile = 0;
        self.profiles = profiles;
        Output::Follow
    }
}

fn no_usable_profile() -> SystemException {
    SystemException::new(Kind::ImpLimit, minor::imp_limit::NO_USABLE_PROFILE, Completion::No)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(written: Written, orderly: bool) -> Input {
        Input::Lost { written, orderly }
    }

    #[test]
    fn a_request_that_may_have_run_is_never_sent_again() {
        let mut machine = Machine::new(2, false, 2, 0);
        assert_eq!(machine.start(), Output::Connect { profile: 0 });
        assert_eq!(machine.step(Input::Connected), Output::Send);
        let Output::Fail(exception) = machine.step(lost(Written::Whole, false)) else { panic!("retried") };
        assert_eq!((exception.kind(), exception.completed()), (Kind::CommFailure, Completion::Maybe));
    }

    #[test]
    fn what_certainly_did_not_run_is_retried_within_bounds() {
        for input in [lost(Written::Nothing, false), lost(Written::Part, false), lost(Written::Whole, true)] {
            let mut machine = Machine::new(1, false, 1, 0);
            for _ in 0..RETRIES {
                assert_eq!(machine.step(input.clone()), Output::Connect { profile: 0 });
            }
            let Output::Fail(exception) = machine.step(input) else { panic!("unbounded") };
            assert_eq!(exception.completed(), Completion::No);
        }
    }

    #[test]
    fn profiles_are_tried_in_order_then_transient_2() {
        let mut machine = Machine::new(2, false, 2, 0);
        assert_eq!(machine.step(Input::ConnectFailed), Output::Connect { profile: 1 });
        assert_eq!(
            machine.step(Input::ConnectFailed),
            Output::Fail(SystemException::new(Kind::Transient, minor::transient::NO_USABLE_PROFILE, Completion::No))
        );
    }

    #[test]
    fn forwards_are_followed_ten_times() {
        let mut machine = Machine::new(1, false, 1, 0);
        for _ in 0..FORWARDS {
            assert_eq!(machine.step(Input::Forwarded { profiles: 1 }), Output::Follow);
        }
        assert!(matches!(machine.step(Input::Forwarded { profiles: 1 }), Output::Fail(_)));
    }

    #[test]
    fn a_failed_forwarded_target_falls_back_to_the_original_once() {
        let mut machine = Machine::new(1, true, 2, 0);
        let gone = Input::Raised { kind: Kind::ObjectNotExist, completed: Completion::No };
        assert_eq!(machine.step(gone.clone()), Output::ConnectOriginal);
        assert_eq!(machine.step(gone), Output::Deliver);
        let mut machine = Machine::new(1, true, 1, 0);
        assert_eq!(machine.step(Input::ConnectFailed), Output::ConnectOriginal);
        assert!(matches!(machine.step(Input::ConnectFailed), Output::Fail(_)));
    }

    #[test]
    fn another_addressing_mode_is_tried_once() {
        let mut machine = Machine::new(2, false, 2, 0);
        assert_eq!(machine.step(Input::ConnectFailed), Output::Connect { profile: 1 });
        assert_eq!(machine.step(Input::NeedsAddressing), Output::Connect { profile: 1 });
        let Output::Fail(exception) = machine.step(Input::NeedsAddressing) else { panic!("unbounded") };
        assert_eq!((exception.kind(), exception.completed()), (Kind::NoImplement, Completion::No));
    }

    #[test]
    fn transient_is_retried_by_policy_only() {
        let busy = Input::Raised { kind: Kind::Transient, completed: Completion::No };
        assert_eq!(Machine::new(1, false, 1, 0).step(busy.clone()), Output::Deliver);
        let mut patient = Machine::new(1, false, 1, 1);
        assert_eq!(patient.step(busy.clone()), Output::Connect { profile: 0 });
        assert_eq!(patient.step(busy), Output::Deliver);
    }

    #[test]
    fn deadlines_say_whether_the_request_may_have_run() {
        for (phase, completed) in
            [(Phase::Connect, Completion::No), (Phase::Send, Completion::No), (Phase::Wait, Completion::Maybe)]
        {
            let Output::Fail(exception) = Machine::new(1, false, 1, 0).step(Input::DeadlinePassed(phase)) else {
                panic!()
            };
            assert_eq!((exception.kind(), exception.completed()), (Kind::Timeout, completed));
        }
    }
}
