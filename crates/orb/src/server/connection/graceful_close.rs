//! The graceful close of a connection, which reads the peer's input before it closes the stream. If
//! a TCP connection were closed with unread input, its peer could lose the last message.

use std::time::Duration;

use corelane_sys::clock::Monotonic;

/// Maximum number of bytes of input that a close discards, in addition to the rest of a message.
pub(crate) const MAX_DISCARDED: usize = 4 << 20;

/// Maximum size in bytes of the rest of a peer's message that a close discards. The peer perhaps
/// reads nothing before it has sent the message.
pub(crate) const MAX_MESSAGE_REST: usize = 256 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetiredStage {
    AwaitingReplies,
    Closing,
    Closed,
}

/// Returns the stage of a retired connection. `answers` is true if the peer may read and requests
/// must be answered. `finished` is true if the graceful close has begun, and `closed` if the stream
/// is shut down.
#[must_use]
pub(crate) fn retired_stage(answers: bool, finished: bool, closed: bool) -> RetiredStage {
    match (closed, finished, answers) {
        (true, ..) => RetiredStage::Closed,
        (false, false, true) => RetiredStage::AwaitingReplies,
        (false, true, _) | (false, false, false) => RetiredStage::Closing,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseAction {
    Send,
    EndWriting,
    Read,
    Wait,
    Abort,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseOutcome {
    Sent,
    Full,
    PeerRead(Monotonic),
    WritingEnded,
    Read(usize),
    NothingToRead,
    PeerEnded,
    Failed,
}

#[derive(Clone, Debug)]
pub(crate) struct GracefulClose {
    deadline: Monotonic,
    /// Time from a read by the peer to the new deadline; `None` if reads do not move the deadline.
    renewed_timeout: Option<Duration>,
    sent: bool,
    peer_half_closed: bool,
    discarded_bytes: usize,
    max_discarded: usize,
}

impl GracefulClose {
    #[must_use]
    pub(crate) fn new(now: Monotonic, time: Duration) -> Self {
        GracefulClose {
            deadline: now + time,
            renewed_timeout: None,
            sent: false,
            peer_half_closed: false,
            discarded_bytes: 0,
            max_discarded: MAX_DISCARDED,
        }
    }

    /// Begins a close whose deadline is `time` after `now`, and moves to `time` after each read by
    /// the peer.
    #[must_use]
    pub(crate) fn while_peer_reads(now: Monotonic, time: Duration) -> Self {
        GracefulClose { renewed_timeout: Some(time), ..Self::new(now, time) }
    }

    #[must_use]
    pub(crate) fn with_message_rest(self, octets: usize) -> Self {
        GracefulClose {
            max_discarded: if octets > MAX_MESSAGE_REST { MAX_DISCARDED } else { MAX_DISCARDED + octets },
            ..self
        }
    }

    pub(crate) fn limit_close_time(&mut self, now: Monotonic, time: Duration) {
        self.renewed_timeout = None;
        self.deadline = self.deadline.min(now + time);
    }

    #[must_use]
    pub(crate) fn next_action(&self, now: Monotonic) -> CloseAction {
        if now > self.deadline {
            CloseAction::Abort
        } else if !self.sent {
            CloseAction::Send
        } else {
            CloseAction::Read
        }
    }

    #[must_use]
    pub(crate) fn after(&mut self, outcome: CloseOutcome) -> CloseAction {
        match outcome {
            CloseOutcome::Sent => {
                self.sent = true;
                CloseAction::EndWriting
            }
            CloseOutcome::WritingEnded if self.peer_half_closed => CloseAction::Done,
            CloseOutcome::PeerRead(now) => {
                if let Some(time) = self.renewed_timeout {
                    self.deadline = now + time;
                }
                self.after(CloseOutcome::Full)
            }
            // The peer may block in sending, and perhaps reads nothing before its sending ends, so
            // its input is read first.
            CloseOutcome::Full if !self.peer_half_closed => CloseAction::Read,
            CloseOutcome::WritingEnded => CloseAction::Read,
            CloseOutcome::Read(octets) => {
                self.discarded_bytes = self.discarded_bytes.saturating_add(octets);
                if self.discarded_bytes > self.max_discarded { CloseAction::Abort } else { CloseAction::Read }
            }
            CloseOutcome::Full | CloseOutcome::NothingToRead => CloseAction::Wait,
            CloseOutcome::PeerEnded => {
                self.peer_half_closed = true;
                if self.sent { CloseAction::Done } else { CloseAction::Wait }
            }
            CloseOutcome::Failed => CloseAction::Abort,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Monotonic = Monotonic::from_nanos(1_000_000);
    const TIME: Duration = Duration::from_secs(2);

    #[test]
    fn connection_does_not_close_while_replies_are_due() {
        assert_eq!(retired_stage(true, false, false), RetiredStage::AwaitingReplies);
        assert_eq!([retired_stage(false, false, false), retired_stage(true, true, false)], [RetiredStage::Closing; 2]);
        assert_eq!([retired_stage(true, false, true), retired_stage(true, true, true)], [RetiredStage::Closed; 2]);
    }

    #[test]
    fn output_is_sent_before_shutdown_and_input_is_read_to_its_end() {
        let mut closing = GracefulClose::new(START, TIME);
        assert_eq!(closing.next_action(START), CloseAction::Send);
        assert_eq!(closing.after(CloseOutcome::Full), CloseAction::Read);
        assert_eq!(closing.after(CloseOutcome::NothingToRead), CloseAction::Wait);
        assert_eq!(closing.next_action(START), CloseAction::Send);
        assert_eq!(closing.after(CloseOutcome::Sent), CloseAction::EndWriting);
        assert_eq!(closing.after(CloseOutcome::WritingEnded), CloseAction::Read);
        assert_eq!(closing.after(CloseOutcome::Read(100)), CloseAction::Read);
        assert_eq!(closing.after(CloseOutcome::NothingToRead), CloseAction::Wait);
        assert_eq!(closing.next_action(START), CloseAction::Read);
        assert_eq!(closing.after(CloseOutcome::PeerEnded), CloseAction::Done);
    }

    #[test]
    fn half_closed_peer_still_receives_its_replies() {
        let mut closing = GracefulClose::new(START, TIME);
        assert_eq!(closing.after(CloseOutcome::Full), CloseAction::Read);
        assert_eq!(closing.after(CloseOutcome::PeerEnded), CloseAction::Wait);
        assert_eq!(closing.next_action(START), CloseAction::Send);
        assert_eq!(closing.after(CloseOutcome::Full), CloseAction::Wait);
        assert_eq!(closing.after(CloseOutcome::Sent), CloseAction::EndWriting);
        assert_eq!(closing.after(CloseOutcome::WritingEnded), CloseAction::Done);
    }

    #[test]
    fn reading_peer_renews_its_timeout_until_limited() {
        let at = |seconds| START + Duration::from_secs(seconds);
        let mut closing = GracefulClose::while_peer_reads(START, TIME);
        assert_eq!(closing.after(CloseOutcome::PeerEnded), CloseAction::Wait);
        assert_eq!(closing.after(CloseOutcome::PeerRead(at(2))), CloseAction::Wait);
        assert_eq!(closing.after(CloseOutcome::Full), CloseAction::Wait);
        assert_eq!((closing.next_action(at(4)), closing.next_action(at(5))), (CloseAction::Send, CloseAction::Abort));
        closing.limit_close_time(at(3), TIME);
        assert_eq!(closing.after(CloseOutcome::PeerRead(at(4))), CloseAction::Wait);
        assert_eq!((closing.next_action(at(4)), closing.next_action(at(5))), (CloseAction::Send, CloseAction::Abort));
        let mut short = GracefulClose::new(START, TIME);
        assert_eq!(short.after(CloseOutcome::PeerRead(at(2))), CloseAction::Read);
        assert_eq!(short.next_action(at(3)), CloseAction::Abort);
    }

    #[test]
    fn closing_is_bounded_in_time_and_bytes() {
        let closing = GracefulClose::new(START, TIME);
        assert_eq!(closing.next_action(START + TIME), CloseAction::Send);
        assert_eq!(closing.next_action(START + TIME + Duration::from_nanos(1)), CloseAction::Abort);
        let mut flooded = GracefulClose::new(START, TIME);
        for (rest, max_discarded) in [
            (0, MAX_DISCARDED),
            (MAX_MESSAGE_REST, MAX_DISCARDED + MAX_MESSAGE_REST),
            (MAX_MESSAGE_REST + 1, MAX_DISCARDED),
        ] {
            let mut flooded = GracefulClose::new(START, TIME).with_message_rest(rest);
            assert_eq!(flooded.after(CloseOutcome::Read(max_discarded)), CloseAction::Read);
            assert_eq!(flooded.after(CloseOutcome::Read(1)), CloseAction::Abort);
        }
        assert_eq!(flooded.after(CloseOutcome::Read(MAX_DISCARDED)), CloseAction::Read);
        assert_eq!(flooded.after(CloseOutcome::Read(1)), CloseAction::Abort);
        assert_eq!(GracefulClose::new(START, TIME).after(CloseOutcome::Failed), CloseAction::Abort);
    }
}
