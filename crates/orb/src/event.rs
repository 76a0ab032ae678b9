//! What happens to an ORB that nobody asked about: counters, and a callback for those who want to know.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use corelane_net::{Endpoint, Peer};
use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{PiMutex, Scope};
use corelane_wire::giop::MessageKind;

use crate::exception::SystemException;
use crate::fault::Fault;

/// Something worth telling. The callback runs on the thread where it happened and should be quick.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A peer, client or server, broke the protocol; its connection is closed.
    ProtocolFault {
        /// Who.
        peer: Peer,
        /// How.
        fault: Fault,
    },
    /// A message did not go on arriving within the pool's `message_timeout`; its connection is closed.
    Stalled {
        /// Who.
        peer: Peer,
    },
    /// A peer took nothing of its replies for the pool's `output_timeout`, or not all before the ORB or pool ended; its connection is closed.
    RepliesUnread {
        /// Who.
        peer: Peer,
    },
    /// The connections of a lane held more than the pool's `held_octets`, and this one held most; it is closed.
    HeldTooMuch {
        /// Who.
        peer: Peer,
        /// Octets that it held.
        octets: usize,
    },
    /// A connection whose peer sent nothing was closed: in favour of a new one, because the pool holds as many as it may or the process
    /// has no descriptors left, or after the pool's `first_request_timeout`.
    SilentClosed {
        /// Who.
        peer: Peer,
        /// How long nothing whole had come from it; to the second below, if something had before.
        silent: Duration,
        /// In favour of a new one.
        made_room: bool,
    },
    /// A connection that was on its way to the end was closed in favour of a new one, because the pool holds as many as it may or the process has
    /// no descriptors left: its peer had not taken its last replies, or had not closed, for longer than any other.
    EndCut {
        /// Who.
        peer: Peer,
        /// Octets that it held.
        octets: usize,
        /// How long its end had taken.
        after: Duration,
    },
    /// The pool holds as many connections as it may; this one was closed at once.
    ConnectionRefused {
        /// Who.
        peer: Peer,
        /// The bound.
        most: usize,
    },
    /// A connection could not be accepted.
    AcceptFailed {
        /// Where.
        listener: Endpoint,
        /// Why.
        error: String,
    },
    /// A servant panicked; the caller got UNKNOWN, COMPLETED_MAYBE. Or its `Drop` did, or that of a servant manager, where a POA let go of it.
    ServantPanicked {
        /// The interface of the servant.
        interface: &'static str,
        /// The operation; `drop` for its end.
        operation: String,
        /// What it panicked with.
        message: String,
    },
    /// A thread of a pool with a priority runs in the ordinary class, or on any core, because the system refused what was asked.
    PriorityRefused {
        /// Its name.
        thread: String,
        /// Why.
        error: String,
    },
    /// A request was refused for what it says of priorities, bands or deadlines: more than the endpoint's ceiling allows
    /// (NO_PERMISSION), what no lane or band has (TRANSIENT, INV_POLICY), or nonsense (BAD_PARAM, MARSHAL).
    RequestRefused {
        /// Who sent it.
        peer: Peer,
        /// The operation.
        operation: String,
        /// The answer.
        exception: SystemException,
    },
    /// A request's client did not wait for it any more when its upcall was to begin.
    DeadlinePassed {
        /// The operation.
        operation: String,
        /// How long the request had waited here.
        waited: Duration,
        /// How long the client was ready to wait when it sent it.
        remaining: Duration,
    },
    /// An operation took more processor time than it declares (`@wcet`).
    Overrun {
        /// The operation.
        operation: &'static str,
        /// What it declares.
        declared: Duration,
        /// What it took.
        used: Duration,
    },
    /// Oneways that a connection held ([`SyncScope::None`](crate::SyncScope::None)) could not be sent.
    OnewaysLost {
        /// The server.
        peer: Peer,
        /// Octets of whole or begun messages.
        octets: usize,
    },
    /// A connection's packets do not carry the code point of its priority.
    CodePointRefused {
        /// Who is at the other end.
        peer: Peer,
        /// The code point.
        dscp: u8,
        /// Why.
        error: String,
    },
    /// A thread of a pool ended early.
    ThreadFailed {
        /// Its name and why.
        message: String,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::ProtocolFault { peer, fault } => write!(f, "{peer} broke the protocol: {fault}"),
            Event::Stalled { peer } => write!(f, "{peer} stopped in the middle of a message"),
            Event::RepliesUnread { peer } => write!(f, "{peer} does not read its replies: they wait for too long"),
            Event::HeldTooMuch { peer, octets } => {
                write!(f, "{peer} held {octets} octets, the most of all, when there was room for no more")
            }
            Event::SilentClosed { peer, silent, made_room: true } => {
                write!(f, "{peer} made room for a new connection: it had sent nothing for {silent:?}")
            }
            Event::SilentClosed { peer, silent, made_room: false } => {
                write!(f, "{peer} sent no request within {silent:?}")
            }
            Event::EndCut { peer, octets, after } => {
                write!(f, "{peer} made room for a new connection: its end took {after:?}, and it held {octets} octets")
            }
            Event::ConnectionRefused { peer, most } => write!(f, "{peer} was refused: {most} connections are open"),
            Event::AcceptFailed { listener, error } => {
                write!(f, "a connection at {listener} could not be accepted: {error}")
            }
            Event::ServantPanicked { interface, operation, message } => {
                write!(f, "the servant of {interface} panicked in {operation}: {message}")
            }
            Event::PriorityRefused { thread, error } => {
                write!(f, "the thread {thread} runs at best effort: {error}")
            }
            Event::RequestRefused { peer, operation, exception } => {
                write!(f, "{peer} was refused {operation}: {exception}")
            }
            Event::DeadlinePassed { operation, waited, remaining } => {
                write!(f, "{operation} came too late: it had {remaining:?} and waited {waited:?}")
            }
            Event::Overrun { operation, declared, used } => {
                write!(f, "{operation} took {used:?} of processor time and declares {declared:?}")
            }
            Event::OnewaysLost { peer, octets } => {
                write!(f, "{octets} octets of oneways did not reach {peer}: the connection is broken")
            }
            Event::CodePointRefused { peer, dscp, error } => {
                write!(f, "packets to {peer} do not carry code point {dscp}: {error}")
            }
            Event::ThreadFailed { message } => write!(f, "a thread ended: {message}"),
        }
    }
}

/// How often things have happened since the ORB was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EventCounts {
    /// Connections accepted.
    pub connections_opened: u64,
    /// Accepted connections that have ended.
    pub connections_closed: u64,
    /// Connections closed because the peer broke the protocol.
    pub protocol_faults: u64,
    /// Connections closed because a message stalled.
    pub stalled: u64,
    /// Connections closed because replies were not read for too long.
    pub replies_unread: u64,
    /// Connections closed because those of their lane held too much.
    pub held_too_much: u64,
    /// Connections closed because their peers sent nothing.
    pub silent_closed: u64,
    /// Connections closed because their ends took longest when a new one needed room.
    pub ends_cut: u64,
    /// Connections refused for want of room.
    pub connections_refused: u64,
    /// Servants that panicked.
    pub panics: u64,
    /// Requests that came in at one lane and ran in another.
    pub handed_over: u64,
    /// Threads of pools whose priority or cores the system refused.
    pub priorities_refused: u64,
    /// Requests refused for what they say of priorities, bands or deadlines.
    pub requests_refused: u64,
    /// Requests whose deadline had passed when their upcall was to begin.
    pub deadlines_passed: u64,
    /// Operations that took longer than they declare.
    pub overruns: u64,
}

/// Lines for the standard error output, so many in a second at most: who makes trouble is not to fill a disk with it as well.
pub(crate) struct Log(PiMutex<(Monotonic, u32, u64)>);

impl Log {
    /// Lines in a second at most.
    const MOST: u32 = 10;

    pub(crate) fn new() -> Self {
        Log(PiMutex::new("log of events", Scope::Orb, (Monotonic::now(), 0, 0)))
    }

    /// What to print for an event at `now`, if anything.
    pub(crate) fn line(&self, event: &Event, now: Monotonic) -> Option<String> {
        let mut state = self.0.lock();
        let (began, lines, left_out) = &mut *state;
        if now.since(*began) >= Duration::from_secs(1) {
            (*began, *lines) = (now, 0);
        }
        if *lines == Self::MOST {
            *left_out += 1;
            return None;
        }
        *lines += 1;
        match std::mem::take(left_out) {
            0 => Some(format!("corelane: {event}")),
            count => Some(format!("corelane: {event} ({count} others were not printed)")),
        }
    }
}

pub(crate) type Callback = Box<dyn Fn(&Event) + Send + Sync>;

/// The counters and the callback of an ORB.
#[derive(Default)]
pub(crate) struct Events {
    callback: Option<Callback>,
    opened: AtomicU64,
    closed: AtomicU64,
    faults: AtomicU64,
    stalled: AtomicU64,
    unread: AtomicU64,
    held_too_much: AtomicU64,
    silent_closed: AtomicU64,
    ends_cut: AtomicU64,
    refused: AtomicU64,
    panics: AtomicU64,
    handed_over: AtomicU64,
    priorities_refused: AtomicU64,
    requests_refused: AtomicU64,
    deadlines_passed: AtomicU64,
    overruns: AtomicU64,
}

impl Events {
    pub(crate) fn new(callback: Option<Callback>) -> Self {
        Events { callback, ..Events::default() }
    }

    pub(crate) fn connection_opened(&self) {
        self.opened.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn connection_closed(&self) {
        self.closed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn handed_over(&self) {
        self.handed_over.fetch_add(1, Ordering::Relaxed);
    }

    /// These have not taken their last replies.
    #[cold]
    pub(crate) fn replies_unread(&self, peers: impl IntoIterator<Item = Peer>) {
        peers.into_iter().for_each(|peer| self.report(&Event::RepliesUnread { peer }));
    }

    /// A server said what it may not. That it ends the connection in good order, or could not read what it was sent, is no fault of it.
    #[cold]
    pub(crate) fn fault_of_server(&self, peer: &Peer, fault: Fault) {
        if !matches!(fault, Fault::Unexpected(MessageKind::CloseConnection | MessageKind::MessageError)) {
            self.report(&Event::ProtocolFault { peer: peer.clone(), fault });
        }
    }

    #[cold]
    pub(crate) fn report(&self, event: &Event) {
        let counter = match event {
            Event::ProtocolFault { .. } => Some(&self.faults),
            Event::Stalled { .. } => Some(&self.stalled),
            Event::RepliesUnread { .. } => Some(&self.unread),
            Event::HeldTooMuch { .. } => Some(&self.held_too_much),
            Event::SilentClosed { .. } => Some(&self.silent_closed),
            Event::EndCut { .. } => Some(&self.ends_cut),
            Event::ConnectionRefused { .. } => Some(&self.refused),
            Event::ServantPanicked { .. } => Some(&self.panics),
            Event::PriorityRefused { .. } => Some(&self.priorities_refused),
            Event::RequestRefused { .. } => Some(&self.requests_refused),
            Event::DeadlinePassed { .. } => Some(&self.deadlines_passed),
            Event::Overrun { .. } => Some(&self.overruns),
            Event::AcceptFailed { .. }
            | Event::CodePointRefused { .. }
            | Event::OnewaysLost { .. }
            | Event::ThreadFailed { .. } => None,
        };
        if let Some(counter) = counter {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(callback) = &self.callback {
            // The thread that tells of an event is not the callback's to end.
            let _ = catch_unwind(AssertUnwindSafe(|| callback(event)));
        }
    }

    pub(crate) fn counts(&self) -> EventCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        EventCounts {
            connections_opened: read(&self.opened),
            connections_closed: read(&self.closed),
            protocol_faults: read(&self.faults),
            stalled: read(&self.stalled),
            replies_unread: read(&self.unread),
            held_too_much: read(&self.held_too_much),
            silent_closed: read(&self.silent_closed),
            ends_cut: read(&self.ends_cut),
            connections_refused: read(&self.refused),
            panics: read(&self.panics),
            handed_over: read(&self.handed_over),
            priorities_refused: read(&self.priorities_refused),
            requests_refused: read(&self.requests_refused),
            deadlines_passed: read(&self.deadlines_passed),
            overruns: read(&self.overruns),
        }
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.counts().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_events_prints_ten_lines_a_second_and_says_what_it_left_out() {
        let (log, event) = (Log::new(), Event::ThreadFailed { message: "pool/l0: gone".into() });
        let now = Monotonic::now();
        let lines: Vec<String> = (0..500).filter_map(|_| log.line(&event, now)).collect();
        assert_eq!(lines.len(), 10);
        assert!(lines[0].starts_with("corelane: ") && lines[0].contains("pool/l0"), "{}", lines[0]);
        let later = log.line(&event, now + Duration::from_secs(2)).unwrap();
        assert!(later.ends_with("(490 others were not printed)"), "{later}");
    }
}
