//! The graceful close of a connection. First the waiting replies and the last message are sent.
//! Then the stream is shut down for writing, and the peer's last bytes are read. Unread bytes would
//! make the kernel reset the connection before the peer has read the last message.
//!
//! [`GracefulClose`] and [`retired_stage`] decide, and the connection carries out the decision.
//! Both are pure: times are arguments.

use std::time::Duration;

use corelane_sys::clock::Monotonic;

/// Maximum number of bytes that are read from a peer that does not stop sending. The kernels of
/// both machines buffer less, so every byte that the peer sent before it could learn of the close
/// is read.
pub(crate) const MAX_DISCARDED: usize = 4 << 20;

/// Maximum number of further bytes of a message that is too large. They are read so that the sender
/// finishes writing and reads the answer.
pub(crate) const MAX_MESSAGE_REST: usize = 256 << 20;

/// The stage of a retired connection after all threads have left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetiredStage {
    /// Requests of the peer wait for their replies, or still run.
    AwaitingReplies,
    /// All replies have been sent or queued, and only the last message may follow.
    Closing,
    /// The stream is shut down.
    Closed,
}

/// Returns the stage of a retired connection. `answers` is true if the peer reads and requests are
/// still to be answered. `finished` is true if the last message has been queued, `closed` if the
/// stream is shut down.
#[must_use]
pub(crate) fn retired_stage(answers: bool, finished: bool, closed: bool) -> RetiredStage {
    match (closed, finished, answers) {
        (true, ..) => RetiredStage::Closed,
        (false, false, true) => RetiredStage::AwaitingReplies,
        // After the last message nothing is sent, even if requests still run.
        (false, true, _) | (false, false, false) => RetiredStage::Closing,
    }
}

/// The next step in the close of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseAction {
    /// Send the queue, which ends with the last message.
    Send,
    /// Shut down writing. The peer sees the end of the stream after the last message.
    EndWriting,
    /// Read input and discard it.
    Read,
    /// Wait until the peer reads, sends or closes, or until the deadline has passed.
    Wait,
    /// Shut down both directions, because the deadline has passed or the peer does not stop
    /// sending.
    Abort,
    /// Do nothing, because both sides have ended.
    Done,
}

/// The result of a [`CloseAction`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseOutcome {
    /// The whole queue has been sent.
    Sent,
    /// The transport accepts no more bytes now.
    Full,
    /// The transport accepts no more bytes now, but the peer has read some bytes at this time.
    PeerRead(Monotonic),
    /// The stream is shut down for writing.
    WritingEnded,
    /// This number of bytes has been read.
    Read(usize),
    /// No input is there to read now.
    NothingToRead,
    /// The peer has closed its side.
    PeerEnded,
    /// The transport has failed.
    Failed,
}

/// The graceful close of one connection.
#[derive(Clone, Debug)]
pub(crate) struct GracefulClose {
    deadline: Monotonic,
    /// If set, the deadline is moved to this time from now whenever the peer reads bytes of the
    /// queue.
    renewed_timeout: Option<Duration>,
    sent: bool,
    peer_half_closed: bool,
    discarded_bytes: usize,
    /// Maximum number of bytes to read and discard.
    max_discarded: usize,
}

impl GracefulClose {
    /// Begins a close now. The peer has `time` to read and close.
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

    /// Begins a close whose deadline is renewed to `time` whenever the peer reads bytes of the
    /// queue.
    #[must_use]
    pub(crate) fn while_peer_reads(now: Monotonic, time: Duration) -> Self {
        GracefulClose { renewed_timeout: Some(time), ..Self::new(now, time) }
    }

    /// Permits reading the remaining `octets` bytes of a message, up to [`MAX_MESSAGE_REST`].
    #[must_use]
    pub(crate) fn with_message_rest(self, octets: usize) -> Self {
        GracefulClose {
            max_discarded: if octets > MAX_MESSAGE_REST { MAX_DISCARDED } else { MAX_DISCARDED + octets },
            ..self
        }
    }

    /// Limits the remaining time of the close to `time`, even if the peer reads.
    pub(crate) fn limit_close_time(&mut self, now: Monotonic, time: Duration) {
        self.renewed_timeout = None;
        self.deadline = self.deadline.min(now + time);
    }

    /// Returns the next step after an event, or after time has passed.
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

    /// Returns the step that follows the outcome of the last step.
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
            // The peer may block in sending because this side does not read, and then never reads
            // the queue. So its input is read.
            CloseOutcome::Full if !self.peer_half_closed => CloseAction::Read,
            CloseOutcome::WritingEnded => CloseAction::Read,
            CloseOutcome::Read(octets) => {
                self.discarded_bytes = self.discarded_bytes.saturating_add(octets);
                if self.discarded_bytes > self.max_discarded { CloseAction::Abort } else { CloseAction::Read }
            }
            CloseOutcome::Full | CloseOutcome::NothingToRead => CloseAction::Wait,
            CloseOutcome::PeerEnded => {
                self.peer_half_closed = true;
                // The peer may have closed only its writing direction, and may still read.
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
