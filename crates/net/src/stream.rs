//! The interface of one connection, independent of its transport.

use std::fmt;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use corelane_sys::clock::Monotonic;

use crate::{Spin, SpinPolicy};

/// The time that a call on a stream may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Waits until bytes can be transferred, or the stream's coarse time-out passes.
    Block,
    /// Does not wait: returns `WouldBlock` instead.
    Now,
    /// Waits until the deadline, precisely; returns `TimedOut` after it.
    Until(Monotonic),
}

/// The halves of a connection to shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownMode {
    /// The sending half. The peer sees the end of the stream; reading continues.
    Write,
    /// Both halves. Neither direction carries bytes any more.
    Both,
}

/// The identity of the peer, as far as the transport knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Peer {
    /// An Internet address.
    Ip(SocketAddr),
    /// A process on this machine, with credentials from the kernel.
    Process {
        /// Process id at the time of connecting.
        pid: i32,
        /// Effective user id.
        uid: u32,
        /// Effective group id.
        gid: u32,
    },
    /// The transport does not know the peer.
    Unknown,
}

impl Peer {
    /// Returns true if the peer is known to be on this machine: a process with credentials from the
    /// kernel, or a loopback address.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Peer::Ip(address) => address.ip().to_canonical().is_loopback(),
            Peer::Process { .. } => true,
            Peer::Unknown => false,
        }
    }
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

/// A callback for streams without a descriptor. The stream calls it when its state has changed.
pub type ReadinessCallback = Arc<dyn Fn() + Send + Sync>;

/// A connection: an ordered stream of bytes in both directions.
///
/// At most one thread reads and at most one writes at a time, which the ORB ensures. They may be
/// different threads.
pub trait Stream: Send + Sync + fmt::Debug {
    /// Reads at least one byte into the front of `buffer`; 0 means that the peer has closed its
    /// side.
    ///
    /// # Errors
    /// `WouldBlock` with [`Wait::Now`] if there are no bytes to read. `TimedOut` if the deadline or
    /// the coarse time-out has passed. Any other error means that the connection is lost.
    fn recv(&self, buffer: &mut [u8], wait: Wait) -> io::Result<usize>;

    /// Writes bytes of `slices` in order, as far as the transport accepts them, and returns their
    /// number (at least one).
    ///
    /// # Errors
    /// The errors of [`recv`](Self::recv).
    fn send_vectored(&self, slices: &[IoSlice<'_>], wait: Wait) -> io::Result<usize>;

    /// Writes bytes from the front of `octets`, as far as the transport accepts them, and returns
    /// their number.
    ///
    /// # Errors
    /// The errors of [`recv`](Self::recv).
    fn send(&self, octets: &[u8], wait: Wait) -> io::Result<usize> {
        self.send_vectored(&[IoSlice::new(octets)], wait)
    }

    /// Returns a descriptor that reports by edges when `recv` and `send_vectored` no longer block,
    /// after a call with [`Wait::Now`] that transferred less than requested. An edge for room may
    /// also look like an edge for data. `None` if the transport has no descriptor; see
    /// [`set_readiness_callback`](Self::set_readiness_callback).
    fn readiness(&self) -> Option<BorrowedFd<'_>>;

    /// Makes [`readiness`](Self::readiness) report the next arrival of data.
    ///
    /// A thread that has the stream for itself calls it before it waits for the descriptor instead
    /// of in `recv`. The result is `Some(true)` if there is already data to read, or the end. It is
    /// `None` if the descriptor reports every arrival anyway. The descriptor may become readable
    /// without data to read; the thread then calls this again.
    ///
    /// # Errors
    /// When the connection is lost.
    fn arm_readiness(&self) -> io::Result<Option<bool>> {
        Ok(None)
    }

    /// Returns true if the descriptor reports arrivals even without
    /// [`arm_readiness`](Self::arm_readiness). Each arrival then wakes the thread that watches it,
    /// and the sender pays for the wake-up.
    fn reports_every_arrival(&self) -> bool {
        true
    }

    /// Sets a callback for streams without a descriptor. Returns false if the stream does not
    /// support it.
    ///
    /// The stream calls `report` once at once, and then whenever there may be data to read, room to
    /// write, or the end. It may call it from any thread; `report` never blocks. A stream that
    /// returns false needs a thread of its own.
    fn set_readiness_callback(&self, report: ReadinessCallback) -> bool {
        let _ = report;
        false
    }

    /// Sets the coarse time-outs of blocking calls. They are precise to a few scheduler ticks, and
    /// cost no system call per call.
    ///
    /// # Errors
    /// If the descriptor is closed.
    fn set_coarse_timeouts(&self, receive: Duration, send: Duration) -> io::Result<()>;

    /// Sets whether threads in [`recv`](Self::recv) poll before they sleep; does nothing where
    /// polling is impossible. By default threads over sockets never poll; threads over shared
    /// memory follow their transport's setting.
    ///
    /// A call with [`Wait::Until`] does not poll beyond its deadline. One with [`Wait::Now`] polls
    /// only over shared memory while the peer copies the next part of the same message. A thread
    /// that polls makes system calls where the stream is a socket.
    fn set_spin_policy(&self, policy: SpinPolicy) {
        let _ = policy;
    }

    /// Begins a wait of a thread that polls by itself, with [`Wait::Now`] or an epoll instance. `None`
    /// if the policy, earlier waits or other threads that poll speak against it, or if polling by
    /// such calls helps nothing.
    fn begin_spin(&self) -> Option<Spin<'_>> {
        None
    }

    /// Makes the kernel poll the network card's queue for `time` before a reading thread sleeps;
    /// zero for never. Has no effect where no network card is behind the stream, for example
    /// between processes of one machine.
    ///
    /// # Errors
    /// `PermissionDenied` for more than the system's default without the privilege
    /// (`CAP_NET_ADMIN`).
    fn set_busy_poll(&self, _time: Duration) -> io::Result<()> {
        Ok(())
    }

    /// Sets the differentiated services code point, 0 to 63, of data sent from now on. Has no
    /// effect where there are no packets.
    ///
    /// # Errors
    /// `InvalidInput` for a larger code point; an error of the system if it refuses the value.
    fn set_dscp(&self, _dscp: u8) -> io::Result<()> {
        Ok(())
    }

    /// Shuts one or both halves down; repeated calls are harmless.
    fn shutdown(&self, half: ShutdownMode);

    /// Returns the identity of the peer.
    fn peer(&self) -> &Peer;

    /// Returns true if the peer is known to be on this machine. By default, servers do not accept
    /// priorities from other peers.
    fn is_peer_local(&self) -> bool {
        self.peer().is_local()
    }
}
