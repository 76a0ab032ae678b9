//! How connections end: what waits for the peer and the last message are sent, then writing ends, then the peer's
//! last octets are read, so that the kernel does not cut the connection before the peer has read the message.
//!
//! [`Closing`] decides, with time as an argument; it has no clock and no sockets, nor has [`stage`]. The connection carries its steps out.

use std::time::Duration;

use corelane_sys::clock::Monotonic;

/// Octets that are read from a peer that goes on sending: more than the buffers of both systems hold of what it had sent before
/// it could know.
pub(crate) const DISCARDED: usize = 4 << 20;

/// Where a connection stands that nobody finds any more, and whose last user is out of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Its peer is to get more: requests of it wait to be answered, or run late.
    Serving,
    /// All has been said but for the last message.
    Ending,
    /// It is closed.
    Gone,
}

/// Where it stands: whether requests are still to be answered to a peer that reads, the last message has been said, and it is closed.
#[must_use]
pub(crate) fn stage(answers: bool, finished: bool, closed: bool) -> Stage {
    match (closed, finished, answers) {
        (true, ..) => Stage::Gone,
        (false, false, true) => Stage::Serving,
        // Behind the last message nothing is sent, whatever still runs.
        (false, true, _) | (false, false, false) => Stage::Ending,
    }
}

/// What to do next for a connection that ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Send what waits, the last message at its end.
    Send,
    /// Shut down writing: the peer sees the end behind the last message.
    EndWriting,
    /// Read, and forget what was read.
    Read,
    /// Nothing until the peer reads, sends or closes, or the time is over.
    Wait,
    /// Shut down both ways: the peer had its time, or sends without end.
    Cut,
    /// Nothing any more: both sides have ended.
    Over,
}

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Everything is sent.
    Sent,
    /// The transport takes no more now.
    Full,
    /// The same, and the peer has taken something at this moment.
    Took(Monotonic),
    /// Writing has ended.
    WritingEnded,
    /// So many octets have come.
    Read(usize),
    /// Nothing is there to read now.
    Dry,
    /// The peer has closed its side.
    PeerEnded,
    /// The transport has failed.
    Failed,
}

/// The end of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Closing {
    until: Monotonic,
    /// The peer has so much time anew whenever it takes something.
    anew: Option<Duration>,
    sent: bool,
    peer_ended: bool,
    discarded: usize,
}

impl Closing {
    /// A connection that ends now; the peer has `time` for its part.
    #[must_use]
    pub(crate) fn new(now: Monotonic, time: Duration) -> Self {
        Closing { until: now + time, anew: None, sent: false, peer_ended: false, discarded: 0 }
    }

    /// The same; the peer has `time` anew whenever it takes something of what waits.
    #[must_use]
    pub(crate) fn while_it_reads(now: Monotonic, time: Duration) -> Self {
        Closing { anew: Some(time), ..Self::new(now, time) }
    }

    /// The peer has `time` for the rest, whatever it takes.
    pub(crate) fn hurry(&mut self, now: Monotonic, time: Duration) {
        self.anew = None;
        self.until = self.until.min(now + time);
    }

    /// What to do when something has happened, or time has passed.
    #[must_use]
    pub(crate) fn look(&self, now: Monotonic) -> Step {
        if now > self.until {
            Step::Cut
        } else if !self.sent {
            Step::Send
        } else {
            Step::Read
        }
    }

    /// What to do after a step.
    #[must_use]
    pub(crate) fn after(&mut self, outcome: Outcome) -> Step {
        match outcome {
            Outcome::Sent => {
                self.sent = true;
                Step::EndWriting
            }
            Outcome::WritingEnded if self.peer_ended => Step::Over,
            Outcome::Took(now) => {
                if let Some(time) = self.anew {
                    self.until = now + time;
                }
                self.after(Outcome::Full)
            }
            // A peer that itself waits for room would never come to reading what waits here.
            Outcome::Full if !self.peer_ended => Step::Read,
            Outcome::WritingEnded => Step::Read,
            Outcome::Read(octets) => {
                self.discarded = self.discarded.saturating_add(octets);
                if self.discarded > DISCARDED { Step::Cut } else { Step::Read }
            }
            Outcome::Full | Outcome::Dry => Step::Wait,
            Outcome::PeerEnded => {
                self.peer_ended = true;
                // It may have closed its writing side only, and still read.
                if self.sent { Step::Over } else { Step::Wait }
            }
            Outcome::Failed => Step::Cut,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Monotonic = Monotonic::from_nanos(1_000_000);
    const TIME: Duration = Duration::from_secs(2);

    #[test]
    fn nothing_ends_while_there_is_something_to_say() {
        assert_eq!(stage(true, false, false), Stage::Serving);
        assert_eq!([stage(false, false, false), stage(true, true, false)], [Stage::Ending; 2]);
        assert_eq!([stage(true, false, true), stage(true, true, true)], [Stage::Gone; 2]);
    }

    #[test]
    fn what_waits_is_sent_before_writing_ends_and_the_peer_is_read_to_its_end() {
        let mut closing = Closing::new(START, TIME);
        assert_eq!(closing.look(START), Step::Send);
        assert_eq!(closing.after(Outcome::Full), Step::Read);
        assert_eq!(closing.after(Outcome::Dry), Step::Wait);
        assert_eq!(closing.look(START), Step::Send);
        assert_eq!(closing.after(Outcome::Sent), Step::EndWriting);
        assert_eq!(closing.after(Outcome::WritingEnded), Step::Read);
        assert_eq!(closing.after(Outcome::Read(100)), Step::Read);
        assert_eq!(closing.after(Outcome::Dry), Step::Wait);
        assert_eq!(closing.look(START), Step::Read);
        assert_eq!(closing.after(Outcome::PeerEnded), Step::Over);
    }

    #[test]
    fn a_peer_that_closed_its_writing_side_still_gets_its_replies() {
        let mut closing = Closing::new(START, TIME);
        assert_eq!(closing.after(Outcome::Full), Step::Read);
        assert_eq!(closing.after(Outcome::PeerEnded), Step::Wait);
        assert_eq!(closing.look(START), Step::Send);
        assert_eq!(closing.after(Outcome::Full), Step::Wait);
        assert_eq!(closing.after(Outcome::Sent), Step::EndWriting);
        assert_eq!(closing.after(Outcome::WritingEnded), Step::Over);
    }

    #[test]
    fn a_peer_that_goes_on_reading_has_its_time_anew_until_there_is_hurry() {
        let at = |seconds| START + Duration::from_secs(seconds);
        let mut closing = Closing::while_it_reads(START, TIME);
        assert_eq!(closing.after(Outcome::PeerEnded), Step::Wait);
        assert_eq!(closing.after(Outcome::Took(at(2))), Step::Wait);
        assert_eq!(closing.after(Outcome::Full), Step::Wait);
        assert_eq!((closing.look(at(4)), closing.look(at(5))), (Step::Send, Step::Cut));
        closing.hurry(at(3), TIME);
        assert_eq!(closing.after(Outcome::Took(at(4))), Step::Wait);
        assert_eq!((closing.look(at(4)), closing.look(at(5))), (Step::Send, Step::Cut));
        let mut short = Closing::new(START, TIME);
        assert_eq!(short.after(Outcome::Took(at(2))), Step::Read);
        assert_eq!(short.look(at(3)), Step::Cut);
    }

    #[test]
    fn time_and_octets_are_bounded() {
        let closing = Closing::new(START, TIME);
        assert_eq!(closing.look(START + TIME), Step::Send);
        assert_eq!(closing.look(START + TIME + Duration::from_nanos(1)), Step::Cut);
        let mut flooded = Closing::new(START, TIME);
        assert_eq!(flooded.after(Outcome::Read(DISCARDED)), Step::Read);
        assert_eq!(flooded.after(Outcome::Read(1)), Step::Cut);
        assert_eq!(Closing::new(START, TIME).after(Outcome::Failed), Step::Cut);
    }
}
