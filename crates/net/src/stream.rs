//! The interface of a connection, independent of its transport.

use std::fmt;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use corelane_sys::buffer::Buffer;
use corelane_sys::clock::Monotonic;
use corelane_sys::socket::ShutdownDirection;

use crate::{SpinPolicy, SpinWait};

/// The time that a call on a stream may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitLimit {
    /// Waits until bytes can be transferred, or until the stream's coarse time-out has passed.
    Block,
    /// Does not wait. Returns `WouldBlock` if no bytes can be transferred at once.
    Now,
    /// Waits until this precise deadline. Returns `TimedOut` after the deadline.
    Until(Monotonic),
}

/// The identity of the peer, as far as the transport knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Peer {
    /// A host, by the address and port of the connection's other end.
    Ip(SocketAddr),
    /// A process on this machine, with credentials from the kernel.
    Process {
        /// Process id, as the kernel recorded it.
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

/// A callback that a stream without a descriptor calls when its state has changed.
pub type ReadinessCallback = Arc<dyn Fn() + Send + Sync>;

/// The input of a stream in memory, which a thread can poll without system calls.
///
/// One thread polls at a time: from [`begin_polling`](Self::begin_polling) until it calls
/// [`stop_polling`](Self::stop_polling), or has read the arrival and calls
/// [`end_polling`](Self::end_polling). In this time other threads may read with [`WaitLimit::Now`].
/// While a thread polls, [`Stream::readiness_descriptor`] reports no arrivals, so the thread must
/// stop before it does anything that may take long.
pub trait PolledInput {
    /// Returns true if the calling thread may poll, false if another thread polls.
    fn begin_polling(&self) -> bool;

    /// Makes the descriptor report no arrivals, and returns true if bytes have arrived that no
    /// thread has read.
    fn poll(&self) -> bool;

    /// Ends polling, and makes the descriptor report the next arrival. Returns true if bytes or the
    /// end of the stream can be read now, which the descriptor may not report.
    fn stop_polling(&self) -> bool;

    /// Ends polling after the calling thread has read the stream with [`WaitLimit::Now`] until no
    /// bytes were left, or has left the remaining bytes to another thread.
    fn end_polling(&self);

    /// Returns a number that changes whenever a thread has read bytes.
    fn position(&self) -> u32;
}

/// A reference to memory that the sender of a message lends: the number of a sealed file on the
/// connection, and a number of bytes from the file's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LentReference {
    /// The number of the file.
    pub number: u64,
    /// The number of bytes.
    pub length: u64,
}

impl LentReference {
    /// Length of a reference in a message, in bytes.
    pub const LEN: usize = 16;

    /// Returns the octets of the reference in a message: number and length, little-endian.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        (u128::from(self.number) | u128::from(self.length) << 64).to_le_bytes()
    }

    /// Reads a reference from its octets in a message.
    #[must_use]
    pub fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        let whole = u128::from_le_bytes(bytes);
        LentReference { number: whole as u64, length: (whole >> 64) as u64 }
    }
}

/// The lending of memory between the sides of a connection: bytes of sealed files
/// ([`corelane_sys::sealed`]) cross without a copy.
///
/// The references and the bytes of the messages that carry them must be sent in the order of the
/// calls of [`lend`](Self::lend), and messages must be taken in the order in which they arrive.
pub trait MemoryLending {
    /// Lends `octets` to the peer, for a message that ends in them. Never waits. Returns `None` if
    /// the message must carry the octets themselves: they are not the first bytes of a sealed file,
    /// the peer does not take lent memory, or the peer has as much lent memory as it permits.
    fn lend(&self, octets: &[u8]) -> Option<LentReference>;

    /// Returns the bytes of both slices of `head`, followed by the lent bytes that a received
    /// message names, which are not copied.
    ///
    /// # Errors
    /// `InvalidData` if the peer has broken a rule: the memory was not lent, or could be changed.
    /// Another error if this process is out of descriptors or addresses. After an error the
    /// connection must be closed.
    fn take(&self, head: [&[u8]; 2], reference: LentReference) -> io::Result<Buffer>;
}

/// A connection: an ordered stream of bytes in both directions.
///
/// At most one thread reads and at most one thread writes at a time, which the ORB ensures.
pub trait Stream: Send + Sync + fmt::Debug {
    /// Reads at least one byte into the front of `buffer`, and returns the number of bytes. Returns
    /// 0 at the end of the stream.
    ///
    /// # Errors
    /// `WouldBlock` with [`WaitLimit::Now`] if no bytes have arrived. `TimedOut` if the deadline or
    /// the coarse time-out has passed. Any other error means that the connection is lost.
    fn recv(&self, buffer: &mut [u8], wait: WaitLimit) -> io::Result<usize>;

    /// Writes bytes of `slices` in order, as far as the transport accepts them. Returns their
    /// number, at least one.
    ///
    /// # Errors
    /// `WouldBlock` with [`WaitLimit::Now`] if there is no room. `TimedOut` if the deadline or the
    /// coarse time-out has passed. Any other error means that the connection is lost.
    fn send_vectored(&self, slices: &[IoSlice<'_>], wait: WaitLimit) -> io::Result<usize>;

    /// Writes bytes from the front of `octets`, as far as the transport accepts them. Returns their
    /// number, at least one.
    ///
    /// # Errors
    /// `WouldBlock` with [`WaitLimit::Now`] if there is no room. `TimedOut` if the deadline or the
    /// coarse time-out has passed. Any other error means that the connection is lost.
    fn send(&self, octets: &[u8], wait: WaitLimit) -> io::Result<usize> {
        self.send_vectored(&[IoSlice::new(octets)], wait)
    }

    /// Returns a descriptor that reports edges. After a [`recv`](Self::recv) with [`WaitLimit::Now`]
    /// that did not fill its buffer, it reports that bytes can be read. After a send with
    /// [`WaitLimit::Now`] that returned `WouldBlock`, it reports that bytes can be written. `None` if
    /// the transport has no descriptor; see
    /// [`set_readiness_callback`](Self::set_readiness_callback).
    fn readiness_descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Returns the descriptor with which a thread waits for bytes to read, by poll(2) together with
    /// other descriptors. It is also readable after the end of the connection, and when
    /// [`arm_readiness`](Self::arm_readiness) may have a new result. `None` if the transport has no
    /// descriptor. By default it is the descriptor of
    /// [`readiness_descriptor`](Self::readiness_descriptor).
    fn arrival_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.readiness_descriptor()
    }

    /// Makes [`readiness_descriptor`](Self::readiness_descriptor) report the next arrival of data.
    ///
    /// `Some(true)` means that data or the end of the stream can be read now. `Some(false)` means
    /// that there is none yet, and that the descriptor reports the next arrival. `None` means that
    /// the descriptor reports every arrival in any case. The descriptor may become readable without
    /// data to read; the thread then calls this method again. While a writer with
    /// [`WaitLimit::Now`] waits for room, the result may be `Some(true)` without data to read,
    /// because the descriptor must keep the writer's edge; the thread then waits in
    /// [`recv`](Self::recv).
    ///
    /// # Errors
    /// If the connection is lost.
    fn arm_readiness(&self) -> io::Result<Option<bool>> {
        Ok(None)
    }

    /// Returns true if [`readiness_descriptor`](Self::readiness_descriptor) reports arrivals
    /// without a call of [`arm_readiness`](Self::arm_readiness).
    fn reports_every_arrival(&self) -> bool {
        true
    }

    /// Sets a callback on a stream without a descriptor. Returns false if the stream does not
    /// support callbacks; the ORB then serves the stream by a thread of its own.
    ///
    /// The stream calls `report` at once, and then whenever there may be data, room, or the end of
    /// the stream. It may call `report` from any thread; `report` never blocks.
    fn set_readiness_callback(&self, report: ReadinessCallback) -> bool {
        let _ = report;
        false
    }

    /// Sets the coarse time-outs of blocking calls. Zero and [`Duration::MAX`] mean none. A call
    /// exceeds its time-out by at most a few scheduler ticks, and makes no additional system call
    /// for it.
    ///
    /// # Errors
    /// If the descriptor is closed.
    fn set_coarse_timeouts(&self, receive: Duration, send: Duration) -> io::Result<()>;

    /// Sets whether and how long threads poll before they sleep. Has no effect where polling is
    /// impossible. A call with [`WaitLimit::Until`] does not poll beyond its deadline.
    fn set_spin_policy(&self, policy: SpinPolicy) {
        let _ = policy;
    }

    /// Begins a wait of a thread that polls outside of `recv`, by calls with [`WaitLimit::Now`] or an
    /// epoll instance. Returns `None` if the thread must not poll.
    fn begin_spin(&self) -> Option<SpinWait<'_>> {
        None
    }

    /// Returns the interface for threads that poll the stream's input in memory, without system
    /// calls. `None` if the stream has no such memory.
    fn polled_input(&self) -> Option<&dyn PolledInput> {
        None
    }

    /// Returns the core that processed the last packet from the peer, `None` if the stream does not
    /// know it. Over the loopback interface this is the core of the peer's thread.
    fn incoming_core(&self) -> Option<usize> {
        None
    }

    /// Returns the interface for messages that end in lent memory. `None` if the stream cannot
    /// lend.
    fn memory_lending(&self) -> Option<&dyn MemoryLending> {
        None
    }

    /// Makes the kernel poll the network card's queue for at most `time` before a reading thread
    /// sleeps; zero for never. Has no effect on a stream without a network card.
    ///
    /// # Errors
    /// `PermissionDenied` without the privilege (`CAP_NET_ADMIN`) for a time above the system's
    /// default.
    fn set_busy_poll(&self, _time: Duration) -> io::Result<()> {
        Ok(())
    }

    /// Sets the differentiated services code point, 0 to 63, of data sent after the call. Has no
    /// effect on a transport without packets.
    ///
    /// # Errors
    /// `InvalidInput` for a larger code point; an error of the system if it refuses the value.
    fn set_dscp(&self, _dscp: u8) -> io::Result<()> {
        Ok(())
    }

    /// Shuts down one or both directions. A repeated call with the same `direction` has no
    /// effect.
    fn shutdown(&self, direction: ShutdownDirection);

    /// Returns the identity of the peer.
    fn peer(&self) -> &Peer;

    /// Returns true if the peer is known to be on this machine. By default, servers accept
    /// priorities only from such peers.
    fn is_peer_local(&self) -> bool {
        self.peer().is_local()
    }
}
