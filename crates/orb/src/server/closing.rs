//! How connections end: what waits for the peer and the last message are sent, then writing ends, then the peer's
//! last octets are read, so that the kernel does not cut the connection before the peer has read the message.
//!
//! [`Closing`] decides, with time as an argument; it has no clock and no sockets. The connection carries its steps out, and
//! [`Lingering`] is the bounded list of the connections that are on their way to the end.

use std::sync::Arc;
use std::time::Duration;

use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{PiMutex, Scope};

use super::connection::Connection;

/// Connections of a lane that end at a time; the oldest is cut for a further one.
pub(crate) const MOST: usize = 256;
/// Octets that are read from a peer that goes on sending: more than the buffers of both systems hold of what it had sent before
/// it could know.
pub(crate) const DISCARDED: usize = 4 << 20;

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

/// Connections that are over but for the peer's last octets.
#[derive(Debug)]
pub(crate) struct Lingering(PiMutex<Vec<Arc<Connection>>>);

impl Lingering {
    pub(crate) fn new() -> Self {
        Lingering(PiMutex::new("closing connections", Scope::Lane, Vec::new()))
    }

    /// Lists a connection, and gives the one that has to go for it.
    #[cold]
    pub(crate) fn admit(&self, connection: Arc<Connection>) -> Option<Arc<Connection>> {
        let mut list = self.0.lock();
        let oldest = (list.len() >= MOST).then(|| list.remove(0));
        list.push(connection);
        oldest
    }

    /// Something has happened to the connection that was at `place`.
    #[cold]
    pub(crate) fn look(&self, place: (u32, u32), now: Monotonic) {
        let found = self.0.lock().iter().find(|connection| connection.place == place).cloned();
        if let Some(connection) = found
            && connection.linger(now)
        {
            self.forget(&connection);
        }
    }

    /// Time has passed: looks at all of them. True while any are left.
    pub(crate) fn tidy(&self, now: Monotonic) -> bool {
        // Reading and writing happen outside of the lock: the list is the whole lane's.
        let listed = self.0.lock().clone();
        for connection in &listed {
            if connection.linger(now) {
                self.forget(connection);
            }
        }
        !self.0.lock().is_empty()
    }

    /// Those that are listed.
    pub(crate) fn listed(&self) -> Vec<Arc<Connection>> {
        self.0.lock().clone()
    }

    fn forget(&self, connection: &Arc<Connection>) {
        self.0.lock().retain(|listed| !Arc::ptr_eq(listed, connection));
    }

    /// Those that end in their peers' own time have `time` left.
    pub(crate) fn hurry(&self, now: Monotonic, time: Duration) {
        for connection in self.listed() {
            connection.hurry(now, time);
        }
    }

    /// Cuts those that are left.
    pub(crate) fn cut(&self) {
        let listed = std::mem::take(&mut *self.0.lock());
        for connection in listed {
            connection.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Monotonic = Monotonic::from_nanos(1_000_000);
    const TIME: Duration = Duration::from_secs(2);

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
