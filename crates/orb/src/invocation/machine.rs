//! The rules of one invocation, as a pure state machine.
//!
//! Invariant: the machine never repeats a request that the server may have run. A server may have
//! run a request whose bytes were all sent or whose reply has begun, unless the server states that
//! the request did not run.

use std::time::Duration;

use corelane_wire::exception::minor;
use corelane_wire::exception::{Completion, SystemExceptionKind as Kind};
use corelane_wire::giop::MessageKind;

use crate::client::try_order::{AttemptTime, Attempts, TryOrder};
use crate::exception::{CallPhase, SystemException};
use crate::exchange::BytesSent;

pub(crate) const MAX_FORWARDS: u8 = 10;
/// Maximum number of times that one invocation sends its request again after a lost connection.
pub(crate) const MAX_RETRIES: u8 = 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MachineInput {
    Connected,
    ConnectFailed,
    NoAnswer,
    ConnectionLost { bytes_sent: BytesSent, last_message: LastMessage },
    Raised { kind: Kind, completed: Completion },
    Forwarded { order: TryOrder },
    NeedsAddressing,
    DeadlinePassed(CallPhase),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastMessage {
    None,
    CloseConnection,
    MessageError,
    PartialReply,
}

impl LastMessage {
    /// Returns what the server's last message says about a request. `final_message` is the kind of
    /// the last message on the connection. `reply_begun` is true if a part of the reply arrived
    /// before that message.
    pub(crate) fn about_request(final_message: Option<MessageKind>, reply_begun: bool) -> Self {
        match final_message {
            _ if reply_begun => LastMessage::PartialReply,
            Some(MessageKind::CloseConnection) => LastMessage::CloseConnection,
            Some(MessageKind::MessageError) => LastMessage::MessageError,
            _ => LastMessage::None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MachineAction {
    Connect {
        profile: usize,
        attempt_time: AttemptTime,
    },
    /// Make the original target the current target, and get a connection to one of its profiles.
    ConnectOriginal {
        profile: usize,
        attempt_time: AttemptTime,
    },
    /// [Pause](pause), then get a connection to the current profile.
    Retry {
        attempt: u32,
        attempt_time: AttemptTime,
    },
    Send,
    Follow {
        profile: usize,
        attempt_time: AttemptTime,
    },
    RaiseReported,
    Fail(SystemException),
}

/// Maximum length of the first pause after TRANSIENT; it doubles with each further pause, up to
/// [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// Returns the length of a pause. Random lengths prevent clients that got TRANSIENT at the same
/// time from sending again at the same time.
#[must_use]
pub(crate) fn pause(attempt: u32, random: u64) -> Duration {
    let longest = (FIRST_PAUSE * 2_u32.saturating_pow(attempt.min(16))).min(MAX_PAUSE);
    let nanoseconds = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(random % nanoseconds.saturating_add(1))
}

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
    /// Creates the machine of one invocation. `forwarded` is true if an earlier invocation was
    /// forwarded to this target. `original` is the try order of the original target.
    /// `max_transient_retries` is the number of retries after TRANSIENT that the call policies
    /// permit.
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

    #[must_use]
    pub(crate) fn start(&mut self) -> MachineAction {
        self.start_at(self.order, |profile, attempt_time| MachineAction::Connect { profile, attempt_time })
    }

    pub(crate) fn resume_at(&mut self, profile: usize) {
        self.profile = profile;
        self.attempts.mark_tried(profile);
    }

    fn start_at(&mut self, order: TryOrder, output: impl FnOnce(usize, AttemptTime) -> MachineAction) -> MachineAction {
        (self.order, self.attempts) = (order, Attempts::new(order));
        let Some((profile, attempt_time)) = self.attempts.next() else {
            return MachineAction::Fail(no_usable_profile());
        };
        self.profile = profile;
        output(profile, attempt_time)
    }

    fn reconnect(&mut self) -> MachineAction {
        MachineAction::Connect { profile: self.profile, attempt_time: self.attempts.attempt_time() }
    }

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
            MachineInput::ConnectionLost { bytes_sent, last_message } => {
                self.on_connection_lost(bytes_sent, last_message)
            }
            MachineInput::Raised { kind, completed } => self.on_exception(kind, completed),
            MachineInput::Forwarded { order } => self.follow(order),
            MachineInput::NeedsAddressing if self.has_readdressed => MachineAction::Fail(
                SystemException::new(Kind::NoImplement, 0, Completion::No)
                    .with_message("the server asked for another addressing mode again"),
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
            return MachineAction::RaiseReported;
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
        MachineAction::RaiseReported
    }

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
                    .with_message(format!("forwarded more than {MAX_FORWARDS} times")),
            );
        }
        if order.is_empty() {
            return MachineAction::Fail(
                no_usable_profile().with_message("forwarded to a reference without a usable profile"),
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
        MachineInput::ConnectionLost { bytes_sent, last_message }
    }

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
            panic!("the request must not be sent again")
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
                panic!("the request must not be sent again: {bytes_sent:?} {last_message:?}")
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
            let MachineAction::Fail(exception) = machine.step(input) else { panic!("retries must end") };
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
        assert_eq!(machine.step(gone), MachineAction::RaiseReported);
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
        let MachineAction::Fail(exception) = machine.step(MachineInput::NeedsAddressing) else { panic!("must fail") };
        assert_eq!((exception.kind(), exception.completed()), (Kind::NoImplement, Completion::No));
    }

    #[test]
    fn transient_is_retried_by_policy_only() {
        let busy = MachineInput::Raised { kind: Kind::Transient, completed: Completion::No };
        assert_eq!(started(1, false, 1, 0).step(busy.clone()), MachineAction::RaiseReported);
        let mut patient = started(1, false, 1, 2);
        for attempt in 0..2 {
            assert_eq!(
                patient.step(busy.clone()),
                MachineAction::Retry { attempt, attempt_time: AttemptTime::Share(1) }
            );
        }
        assert_eq!(patient.step(busy), MachineAction::RaiseReported);
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
                panic!("the call must fail at its deadline")
            };
            assert_eq!((exception.kind(), exception.completed()), (Kind::Timeout, completed));
        }
    }
}
