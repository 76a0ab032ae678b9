//! One connection, whatever carries it.

use std::fmt;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use corelane_sys::clock::Monotonic;

/// How long a call on a stream may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Until something happens, or the stream's coarse time-out passes.
    Block,
    /// Not at all: `WouldBlock` where it would have to.
    Now,
    /// Until the deadline, precisely; `TimedOut` after it.
    Until(Monotonic),
}

/// Which halves of a connection are shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// The peer sees the end of the stream; reading goes on.
    Write,
    /// Nothing goes either way.
    Both,
}

/// Who is at the other end, as far as the transport knows.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Peer {
    /// An Internet address.
    Ip(SocketAddr),
    /// A process on this machine, with the credentials that the kernel vouches for.
    Process {
        /// Process id at the time of connecting.
        pid: i32,
        /// Effective user id.
        uid: u32,
        /// Effective group id.
        gid: u32,
    },
    /// The transport cannot say.
    Unknown,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Ip(address) => write!(f, "{address}"),
            Peer::Process { pid, uid, .. } => write!(f, "process {pid} of user {uid}"),
            Peer::Unknown => f.write_str("unknown peer"),
        }
    }
}

/// What a stream without a descriptor tells of what happened to it.
pub type Report = Arc<dyn Fn() + Send + Sync>;

/// A connection: an ordered stream of octets both ways.
///
/// One thread reads and one writes at a time (the ORB sees to that); the two may be different threads.
pub trait Stream: Send + Sync + fmt::Debug {
    /// Reads at least one octet into the front of `buffer`; 0 means that the peer has closed its side.
    ///
    /// # Errors
    /// `WouldBlock` with [`Wait::Now`] when nothing is there; `TimedOut` when the deadline or the coarse time-out passed;
    /// otherwise the connection is lost.
    fn recv(&self, buffer: &mut [u8], wait: Wait) -> io::Result<usize>;

    /// Writes octets of `slices` in order, as many as the transport takes, and returns their number (at least one).
    ///
    /// # Errors
    /// As for [`recv`](Self::recv).
    fn send_vectored(&self, slices: &[IoSlice<'_>], wait: Wait) -> io::Result<usize>;

    /// Writes octets from the front of `octets`, as many as the transport takes, and returns their number.
    ///
    /// # Errors
    /// As for [`recv`](Self::recv).
    fn send(&self, octets: &[u8], wait: Wait) -> io::Result<usize> {
        self.send_vectored(&[IoSlice::new(octets)], wait)
    }

    /// A descriptor whose edges tell when `recv` and `send_vectored` no longer block after a call with [`Wait::Now`] got less than it could
    /// take (of room it may also tell as of octets); `None` if the transport has none, see [`report_to`](Self::report_to).
    fn readiness(&self) -> Option<BorrowedFd<'_>>;

    /// What a thread that has the stream for itself does before it waits for [`readiness`](Self::readiness) and not in `recv`: asks that
    /// the descriptor tell of octets. True: there is something to read, or the end, already. `None`: the descriptor always tells.
    /// It may become readable without anything to read: who was told of it asks again.
    ///
    /// # Errors
    /// When the connection is lost.
    fn ask_to_poll(&self) -> io::Result<Option<bool>> {
        Ok(None)
    }

    /// Whether the descriptor tells of octets unasked: then each arrival is an event for whoever watches it, which the sender pays for.
    /// A stream that has to be [asked](Self::ask_to_poll) says no.
    fn tells_of_octets(&self) -> bool {
        true
    }

    /// For streams without a descriptor: from now on `report` is called whenever there may be something to read, room to write, or the
    /// end; once at once. It may be called from any thread, and never waits. False: the stream cannot report, and only a thread of
    /// its own can serve it.
    fn report_to(&self, report: Report) -> bool {
        let _ = report;
        false
    }

    /// The coarse time-outs of blocking calls: precise to a few scheduler ticks, and free of system calls per call.
    ///
    /// # Errors
    /// When the descriptor is gone.
    fn set_coarse_timeouts(&self, receive: Duration, send: Duration) -> io::Result<()>;

    /// Sets the differentiated services code point, 0 to 63, of what is sent from now on; nothing happens where there are no packets.
    ///
    /// # Errors
    /// `InvalidInput` for a larger code point; where the system refuses it.
    fn set_dscp(&self, _dscp: u8) -> io::Result<()> {
        Ok(())
    }

    /// Shuts one or both halves down; repeated calls are harmless.
    fn shutdown(&self, half: Half);

    /// Who is at the other end.
    fn peer(&self) -> &Peer;
}
