//! The rules of one invocation, as a pure state machine. The rules decide which profile to try, and
//! when to retry, to follow a forward or to give up.
//!
//! The blocking driver in `driver.rs` (in tests the simulation) reports each event to the machine
//! and carries out the returned action. A result or a user exception ends the invocation without
//! the machine.
//!
//! Invariant: a request that a server may have run is never sent again. A request may have run if
//! all its bytes were sent or its reply has begun, unless the server has stated that it did not run
//! (CORBA 3.0.3, sections 15.5.1 and 4.12.3.3).

use std::time::Duration;

use corelane_wire::exception::minor;
use corelane_wire::exception::{Completion, SystemExceptionKind as Kind};
use corelane_wire::giop::MessageKind;

use crate::client::try_order::{AttemptTime, Attempts, TryOrder};
use crate::exception::{CallPhase, SystemException};
use crate::exchange::BytesSent;

/// Maximum number of LOCATION_FORWARDs that one invocation follows.
pub(crate) const MAX_FORWARDS: u8 = 10;
/// Maximum number of times that one invocation reconnects after it had a connection.
pub(crate) const MAX_RETRIES: u8 = 4;

/// An event of the current attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MachineInput {
    /// A connection is ready, from the pool or new.
    Connected,
    /// No connection could be made to the profile's endpoints.
    ConnectFailed,
    /// The profile's endpoints did not answer within their time.
    NoAnswer,
    /// The request could not be sent completely, or the connection ended before the reply arrived.
    Lost {
        /// The part of the request that the transport accepted.
        bytes_sent: BytesSent,
        /// The server's last message about the request before the connection ended.
        last_message: LastMessage,
    },
    /// The reply is a system exception.
    Raised {
        /// The kind of exception.
        kind: Kind,
        /// The exception's completion status.
        completed: Completion,
    },
    /// The reply is LOCATION_FORWARD; the driver keeps the new target.
    Forwarded {
        /// Try order of the new target's usable profiles.
        order: TryOrder,
    },
    /// The server wants another form of target address.
    NeedsAddressing,
    DeadlinePassed(CallPhase),
}

/// A server's last message about a request before the connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastMessage {
    /// No message.
    None,
    /// CloseConnection before any byte of a reply: the server did not run the request.
    CloseConnection,
    /// MessageError: the server could not read the request, so sending it again would not help.
    MessageError,
    /// The beginning of a reply: the server ran the request or refused it.
    PartialReply,
}

impl LastMessage {
    /// Returns the last message about the request; `final_message` is the kind of the connection's
    /// last message. `reply_begun` is true if the beginning of the reply arrived before it.
    pub(crate) fn before(final_message: Option<MessageKind>, reply_begun: bool) -> Self {
        match final_message {
            _ if reply_begun => LastMessage::PartialReply,
            Some(MessageKind::CloseConnection) => LastMessage::CloseConnection,
            Some(MessageKind::MessageError) => LastMessage::MessageError,
            _ => LastMessage::None,
        }
    }
}

/// The next action of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MachineAction {
    /// Get a connection to profile `profile` of the current target.
    Connect {
        /// Index into the current target's usable profiles.
        profile: usize,
        /// Time for getting the connection.
        attempt_time: AttemptTime,
    },
    /// Give up the forwarded target and get a connection to this profile of the original target.
    ConnectOriginal {
        /// Index into the original target's usable profiles.
        profile: usize,
        /// Time for getting the connection.
        attempt_time: AttemptTime,
    },
    /// Wait for the pause of this attempt, then get another connection to the current profile.
    Retry {
        /// Number of earlier pauses.
        attempt: u32,
        /// Time for getting the connection.
        attempt_time: AttemptTime,
    },
    /// Write the request on the current connection and wait for its reply.
    Send,
    /// Make the new target the current target, then get a connection to this profile of the new
    /// target.
    Follow {
        /// Index into the new target's usable profiles.
        profile: usize,
        /// Time for getting the connection.
        attempt_time: AttemptTime,
    },
    /// Raise the system exception in the reply.
    Deliver,
    /// Raise the exception in the field.
    Fail(SystemException),
}

/// Maximum length of the first pause before a request is sent again after TRANSIENT. The maximum
/// doubles with each further pause.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// Upper bound of the maximum length of a pause.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// Returns the pause before a retry: a fraction, given by the number `random`, of the maximum for
/// this attempt. Random pauses prevent clients that were refused at the same time from trying again
/// at the same time.
#[must_use]
pub(crate) fn pause(attempt: u32, random: u64) -> Duration {
    let longest = (FIRST_PAUSE * 2_u32.saturating_pow(attempt.min(16))).min(MAX_PAUSE);
    let nanoseconds = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(random % nanoseconds.saturating_add(1))
}

/// The state of one invocation, without a clock or sockets.
#[derive(Clone, Debug)]
pub(crate) struct InvocationMachine {
    order: TryOrder,
    attempts: Attempts,
    profile: usize,
    original: TryOrder,
    forwarded: bool,
    has_fallen_back: bool,
    has_readdressed: bool,
    forwards: u8,
    retries: u8,
    max_transient_retries: u8,
    pauses: u32,
}

impl InvocationMachine {
    /// Makes the machine of an invocation on a target whose usable profiles are tried in `order`.
    /// `forwarded` is true if an earlier invocation was forwarded to this target; `original` is
    /// then the try order of the original target. `max_transient_retries` is the number of retries after
    /// TRANSIENT that the policy permits (0 by default).
    #[must_use]
    pub(crate) fn new(order: TryOrder, forwarded: bool, original: TryOrder, max_transient_retries: u8) -> Self {
        InvocationMachine {
            order,
            attempts: Attempts::new(order),
            profile: 0,
            original,
            forwarded,
            has_fallen_back: false,
            has_readdressed: false,
            forwards: 0,
            retries: 0,
            max_transient_retries,
            pauses: 0,
        }
    }

    /// Returns the first action.
    #[must_use]
    pub(crate) fn start(&mut self) -> MachineAction {
        self.start_at(self.order, |profile, attempt_time| MachineAction::Connect { profile, attempt_time })
    }

    /// Records that the first attempt was made at `profile` without a call of
    /// [`start`](Self::start).
    pub(crate) fn resume_at(&mut self, profile: usize) {
        self.profile = profile;
        self.attempts.mark_tried(profile);
    }

    /// Begins to try the profiles of a target.
    fn start_at(&mut self, order: TryOrder, output: impl FnOnce(usize, AttemptTime) -> MachineAction) -> MachineAction {
        (self.order, self.attempts) = (order, Attempts::new(order));
        let Some((profile, attempt_time)) = self.attempts.next() else {
            return MachineAction::Fail(no_usable_profile());
        };
        self.profile = profile;
        output(profile, attempt_time)
    }

    /// Connects to the current profile again.
    fn reconnect(&mut self) -> MachineAction {
        MachineAction::Connect { profile: self.profile, attempt_time: self.attempts.attempt_time() }
    }

    /// Handles an event and returns the next action.
    #[must_use]
    #[inline]
    pub(crate) fn step(&mut self, input: MachineInput) -> MachineAction {
        if input == MachineInput::Connected { MachineAction::Send } else { self.handle_failure(input) }
    }

    #[cold]
    fn handle_failure(&mut self, input: MachineInput) -> MachineAction {
        match input {
            MachineInput::Connected => MachineAction::Send,
            MachineInput::ConnectFailed => self.next_profile(),
            MachineInput::NoAnswer => {
                self.attempts.record_timeout(self.profile);
                self.next_profile()
            }
            MachineInput::Lost { bytes_sent, last_message } => self.on_connection_lost(bytes_sent, last_message),
            MachineInput::Raised { kind, completed } => self.on_exception(kind, completed),
            MachineInput::Forwarded { order } => self.follow(order),
            MachineInput::NeedsAddressing if self.has_readdressed => MachineAction::Fail(
                SystemException::new(Kind::NoImplement, 0, Completion::No)
                    .because("the server asked for another addressing mode again"),
            ),
            MachineInput::NeedsAddressing => {
                self.has_readdressed = true;
                self.reconnect()
            }
            MachineInput::DeadlinePassed(phase) => {
                let (code, completed) = match phase {
                    CallPhase::WaitForReply => (minor::timeout::REPLY_END_TIME, Completion::Maybe),
                    CallPhase::AcquireConnection | CallPhase::Connect | CallPhase::SendRequest => {
                        (minor::timeout::REQUEST_END_TIME, Completion::No)
                    }
                };
                MachineAction::Fail(SystemException::new(Kind::Timeout, code, completed))
            }
        }
    }

    fn on_connection_lost(&mut self, bytes_sent: BytesSent, last_message: LastMessage) -> MachineAction {
        let completed = match (last_message, bytes_sent) {
            (LastMessage::PartialReply, _) | (LastMessage::None | LastMessage::MessageError, BytesSent::All) => {
                Completion::Maybe
            }
            (LastMessage::MessageError, BytesSent::None | BytesSent::Some) => Completion::No,
            (LastMessage::CloseConnection, _) | (LastMessage::None, BytesSent::None | BytesSent::Some) => {
                return self.resend();
            }
        };
        MachineAction::Fail(SystemException::new(Kind::CommFailure, 0, completed))
    }

    /// Repeats, on a new connection, a request that did not run. Fails if no attempts remain.
    fn resend(&mut self) -> MachineAction {
        if self.retries >= MAX_RETRIES {
            return self.fall_back(SystemException::new(Kind::CommFailure, 0, Completion::No));
        }
        self.retries += 1;
        self.reconnect()
    }

    fn next_profile(&mut self) -> MachineAction {
        if let Some((profile, attempt_time)) = self.attempts.next() {
            self.profile = profile;
            return MachineAction::Connect { profile, attempt_time };
        }
        self.fall_back(SystemException::new(Kind::Transient, minor::transient::NO_USABLE_PROFILE, Completion::No))
    }

    fn on_exception(&mut self, kind: Kind, completed: Completion) -> MachineAction {
        if completed != Completion::No {
            return MachineAction::Deliver;
        }
        if kind == Kind::Transient && self.max_transient_retries > 0 {
            self.max_transient_retries -= 1;
            let (attempt, attempt_time) = (self.pauses, self.attempts.attempt_time());
            self.pauses += 1;
            return MachineAction::Retry { attempt, attempt_time };
        }
        let moved = matches!(kind, Kind::Transient | Kind::ObjectNotExist | Kind::CommFailure | Kind::InvObjref);
        if moved && self.forwarded && !self.has_fallen_back {
            return self.revert_to_original();
        }
        MachineAction::Deliver
    }

    /// Handles a failure with COMPLETED_NO of the current target. If the current target is a
    /// forwarded one, falls back to the original target, once.
    fn fall_back(&mut self, otherwise: SystemException) -> MachineAction {
        if self.forwarded && !self.has_fallen_back { self.revert_to_original() } else { MachineAction::Fail(otherwise) }
    }

    fn revert_to_original(&mut self) -> MachineAction {
        self.has_fallen_back = true;
        self.forwarded = false;
        self.start_at(self.original, |profile, attempt_time| MachineAction::ConnectOriginal { profile, attempt_time })
    }

    fn follow(&mut self, order: TryOrder) -> MachineAction {
        if self.forwards >= MAX_FORWARDS {
            return MachineAction::Fail(
                SystemException::new(Kind::Transient, crate::minor::FORWARD_LOOP, Completion::No)
                    .because(format!("forwarded more than {MAX_FORWARDS} times")),
            );
        }
        if order.is_empty() {
            return MachineAction::Fail(
                no_usable_profile().because("forwarded to a reference without a usable profile"),
            );
        }
        self.forwards += 1;
        self.forwarded = true;
        self.start_at(order, |profile, attempt_time| MachineAction::Follow { profile, attempt_time })
    }
}

pub(super) fn no_usable_profile() -> SystemException {
    SystemException::new(Kind::ImpLimit, minor::imp_limit::NO_USABLE_PROFILE, Completion::No)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(bytes_sent: BytesSent, last_message: LastMessage) -> MachineInput {
        MachineInput::Lost { bytes_sent, last_message }
    }

    /// Makes a machine that has started, for this number of profiles.
    fn started(profiles: usize, forwarded: bool, original: usize, max_transient_retries: u8) -> InvocationMachine {
        let (order, original) = (TryOrder::new(profiles, 0, 0), TryOrder::new(original, 0, 0));
        let mut machine = InvocationMachine::new(order, forwarded, original, max_transient_retries);
        let _ = machine.start();
        machine
    }

    fn connect(profile: usize, attempt_time: AttemptTime) -> MachineAction {
        MachineAction::Connect { profile, attempt_time }
    }

    #[test]
    fn request_that_may_have_run_is_not_resent() {
        let mut machine = started(2, false, 2, 0);
        assert_eq!(machine.step(MachineInput::Connected), MachineAction::Send);
        let MachineAction::Fail(exception) = machine.step(lost(BytesSent::All, LastMessage::None)) else {
            panic!("retried")
        };
        assert_eq!((exception.kind(), exception.completed()), (Kind::CommFailure, Completion::Maybe));
    }

    #[test]
    fn request_with_partial_reply_or_message_error_is_not_resent() {
        let ends = [
            (BytesSent::All, LastMessage::PartialReply, Completion::Maybe),
            (BytesSent::Some, LastMessage::PartialReply, Completion::Maybe),
            (BytesSent::All, LastMessage::MessageError, Completion::Maybe),
            (BytesSent::Some, LastMessage::MessageError, Completion::No),
        ];
        for (bytes_sent, last_message, completed) in ends {
            let mut machine = started(2, true, 2, 3);
            let MachineAction::Fail(exception) = machine.step(lost(bytes_sent, last_message)) else {
                panic!("{bytes_sent:?} {last_message:?}")
            };
            assert_eq!((exception.kind(), exception.completed()), (Kind::CommFailure, completed), "{last_message:?}");
        }
    }

    #[test]
    fn request_that_did_not_run_is_retried_within_bounds() {
        let inputs = [
            lost(BytesSent::None, LastMessage::None),
            lost(BytesSent::Some, LastMessage::None),
            lost(BytesSent::Some, LastMessage::CloseConnection),
            lost(BytesSent::All, LastMessage::CloseConnection),
        ];
        for input in inputs {
            let mut machine = started(1, false, 1, 0);
            for _ in 0..MAX_RETRIES {
                assert_eq!(machine.step(input.clone()), connect(0, AttemptTime::Share(1)));
            }
            let MachineAction::Fail(exception) = machine.step(input) else { panic!("unbounded") };
            assert_eq!(exception.completed(), Completion::No);
        }
    }

    #[test]
    fn timed_out_profile_is_retried_after_the_others() {
        let mut machine = InvocationMachine::new(TryOrder::new(3, 1, 0b100), false, TryOrder::new(3, 1, 0b100), 0);
        assert_eq!(machine.start(), connect(1, AttemptTime::Brief(3)));
        assert_eq!(machine.step(MachineInput::NoAnswer), connect(0, AttemptTime::Brief(3)));
        assert_eq!(machine.step(MachineInput::ConnectFailed), connect(2, AttemptTime::Brief(2)));
        assert_eq!(machine.step(MachineInput::NoAnswer), connect(1, AttemptTime::Share(2)));
        assert_eq!(machine.step(MachineInput::NoAnswer), connect(2, AttemptTime::Share(1)));
        assert!(matches!(machine.step(MachineInput::NoAnswer), MachineAction::Fail(_)));
    }

    #[test]
    fn profiles_are_tried_in_order_then_transient_2() {
        let mut machine = started(2, false, 2, 0);
        assert_eq!(machine.step(MachineInput::ConnectFailed), connect(1, AttemptTime::Share(1)));
        assert_eq!(
            machine.step(MachineInput::ConnectFailed),
            MachineAction::Fail(SystemException::new(
                Kind::Transient,
                minor::transient::NO_USABLE_PROFILE,
                Completion::No
            ))
        );
    }

    #[test]
    fn forwards_are_followed_ten_times() {
        let mut machine = started(1, false, 1, 0);
        for _ in 0..MAX_FORWARDS {
            assert_eq!(
                machine.step(MachineInput::Forwarded { order: TryOrder::new(1, 0, 0) }),
                MachineAction::Follow { profile: 0, attempt_time: AttemptTime::Share(1) }
            );
        }
        assert!(matches!(
            machine.step(MachineInput::Forwarded { order: TryOrder::new(1, 0, 0) }),
            MachineAction::Fail(_)
        ));
    }

    #[test]
    fn a_failed_forwarded_target_falls_back_to_the_original_once() {
        let mut machine = started(1, true, 2, 0);
        let gone = MachineInput::Raised { kind: Kind::ObjectNotExist, completed: Completion::No };
        let attempt_time = AttemptTime::Brief(2);
        assert_eq!(machine.step(gone.clone()), MachineAction::ConnectOriginal { profile: 0, attempt_time });
        assert_eq!(machine.step(gone), MachineAction::Deliver);
        let mut machine = started(1, true, 1, 0);
        let attempt_time = AttemptTime::Share(1);
        assert_eq!(
            machine.step(MachineInput::ConnectFailed),
            MachineAction::ConnectOriginal { profile: 0, attempt_time }
        );
        assert!(matches!(machine.step(MachineInput::ConnectFailed), MachineAction::Fail(_)));
    }

    #[test]
    fn another_addressing_mode_is_tried_once() {
        let mut machine = started(2, false, 2, 0);
        assert_eq!(machine.step(MachineInput::ConnectFailed), connect(1, AttemptTime::Share(1)));
        assert_eq!(machine.step(MachineInput::NeedsAddressing), connect(1, AttemptTime::Share(1)));
        let MachineAction::Fail(exception) = machine.step(MachineInput::NeedsAddressing) else { panic!("unbounded") };
        assert_eq!((exception.kind(), exception.completed()), (Kind::NoImplement, Completion::No));
    }

    #[test]
    fn transient_is_retried_by_policy_only() {
        let busy = MachineInput::Raised { kind: Kind::Transient, completed: Completion::No };
        assert_eq!(started(1, false, 1, 0).step(busy.clone()), MachineAction::Deliver);
        let mut patient = started(1, false, 1, 2);
        for attempt in 0..2 {
            assert_eq!(
                patient.step(busy.clone()),
                MachineAction::Retry { attempt, attempt_time: AttemptTime::Share(1) }
            );
        }
        assert_eq!(patient.step(busy), MachineAction::Deliver);
    }

    #[test]
    fn pauses_are_random_below_a_growing_bound() {
        for (attempt, longest) in [(0, 10), (1, 20), (5, 320), (7, 1000), (200, 1000)] {
            let longest = Duration::from_millis(longest);
            let nanoseconds = u64::try_from(longest.as_nanos()).unwrap();
            assert_eq!(pause(attempt, nanoseconds), longest);
            assert_eq!(pause(attempt, nanoseconds + 1), Duration::ZERO);
            assert!((0..1000_u64).all(|random| pause(attempt, random.wrapping_mul(0x9e37_79b9_7f4a_7c15)) <= longest));
        }
    }

    #[test]
    fn timeout_reports_whether_the_request_may_have_run() {
        for (phase, completed) in [
            (CallPhase::Connect, Completion::No),
            (CallPhase::SendRequest, Completion::No),
            (CallPhase::WaitForReply, Completion::Maybe),
        ] {
            let MachineAction::Fail(exception) = started(1, false, 1, 0).step(MachineInput::DeadlinePassed(phase))
            else {
                panic!()
            };
            assert_eq!((exception.kind(), exception.completed()), (Kind::Timeout, completed));
        }
    }
}
