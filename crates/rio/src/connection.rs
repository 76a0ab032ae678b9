//! A connection of a stream.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use corelane_net::{Monotonic, Peer, ReadinessCallback, ShutdownMode, SpinPolicy, SpinWait, Stream, Wait};
use corelane_sys::{poll, socket};

use crate::byte_budget::{ByteBudget, Reservation, Throttled};
use crate::interface_steering::SteeredConnection;
use crate::transport::{ConnectionSlot, packet_priority};

/// A connection of a stream.
pub(crate) struct RioStream(Arc<Connection>);

struct Connection {
    /// The entry in the steering tables, which ends before the connection.
    _steered: Option<SteeredConnection>,
    inner: Box<dyn Stream>,
    slot: ConnectionSlot,
    /// Coarse time-out of receiving in nanoseconds; 0 for none.
    receive_timeout: AtomicU64,
    /// True while the budget's list contains the connection.
    is_listed: AtomicBool,
}

impl RioStream {
    pub(crate) fn new(inner: Box<dyn Stream>, slot: ConnectionSlot, steered: Option<SteeredConnection>) -> Self {
        let (receive_timeout, is_listed) = (AtomicU64::new(0), AtomicBool::new(false));
        Self(Arc::new(Connection { _steered: steered, inner, slot, receive_timeout, is_listed }))
    }

    /// Receives at most as many bytes as the budget of the stream permits.
    fn recv_within(&self, budget: &ByteBudget, buffer: &mut [u8], wait: Wait) -> io::Result<usize> {
        let connection = &*self.0;
        let Some(fd) = connection.inner.readiness() else { return connection.inner.recv(buffer, wait) };
        let wanted = buffer.len();
        let deadline = match wait {
            Wait::Now => None,
            Wait::Until(deadline) => Some(deadline),
            Wait::Block => connection.coarse_deadline(),
        };
        loop {
            let next_period = match budget.reserve(wanted) {
                Reservation::Granted { bytes, period } => {
                    let room = buffer.get_mut(..bytes).unwrap_or_default();
                    let received = connection.inner.recv(room, Wait::Now);
                    let count = received.as_ref().map_or(0, |count| *count);
                    budget.give_back(bytes.saturating_sub(count), period);
                    match received {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock && wait != Wait::Now => None,
                        Ok(count) if count == bytes && bytes < wanted => {
                            // A caller that reads with `Wait::Now` takes a short read for the end of
                            // the unread bytes, and waits for the next edge.
                            self.list(budget);
                            return Ok(count);
                        }
                        other => return other,
                    }
                }
                Reservation::Exhausted { next_period } => {
                    // No further bytes come from a connection that has ended. Its last bytes are read
                    // without the budget, so that its end is seen.
                    if poll::check_hang_up(fd)?.both_closed {
                        return connection.inner.recv(buffer, Wait::Now);
                    }
                    if wait == Wait::Now {
                        self.list(budget);
                        return Err(io::ErrorKind::WouldBlock.into());
                    }
                    Some(Monotonic::from_nanos(next_period))
                }
            };
            if deadline.is_some_and(Monotonic::is_past) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            match next_period {
                None => {
                    poll::wait_readable(fd, deadline)?;
                }
                Some(due) => {
                    let until = deadline.map_or(due, |deadline| deadline.min(due));
                    // Only the end of the connection ends this wait before its time.
                    poll::wait(fd, false, false, Some(until))?;
                }
            }
        }
    }

    fn list(&self, budget: &ByteBudget) {
        if !self.0.is_listed.swap(true, Ordering::AcqRel) {
            let connection: Weak<Connection> = Arc::downgrade(&self.0);
            budget.list(connection);
        }
    }
}

impl Connection {
    fn coarse_deadline(&self) -> Option<Monotonic> {
        match self.receive_timeout.load(Ordering::Relaxed) {
            0 => None,
            nanos => Some(Monotonic::now() + Duration::from_nanos(nanos)),
        }
    }
}

impl Throttled for Connection {
    fn report_unread_bytes(&self) {
        self.is_listed.store(false, Ordering::Release);
        if let Some(fd) = self.inner.readiness() {
            // An error means that the connection has ended, which the kernel reports by itself.
            let _ = socket::report_unread_bytes(fd);
        }
    }
}

impl std::fmt::Debug for RioStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RioStream({})", self.0.inner.peer())
    }
}

impl Stream for RioStream {
    #[inline]
    fn recv(&self, buffer: &mut [u8], wait: Wait) -> io::Result<usize> {
        match &self.0.slot.stream().budget {
            None => self.0.inner.recv(buffer, wait),
            Some(_) if buffer.is_empty() => Ok(0),
            Some(budget) => self.recv_within(budget, buffer, wait),
        }
    }

    #[inline]
    fn send_vectored(&self, slices: &[IoSlice<'_>], wait: Wait) -> io::Result<usize> {
        self.0.inner.send_vectored(slices, wait)
    }

    #[inline]
    fn send(&self, octets: &[u8], wait: Wait) -> io::Result<usize> {
        self.0.inner.send(octets, wait)
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.0.inner.readiness()
    }

    fn arm_readiness(&self) -> io::Result<Option<bool>> {
        self.0.inner.arm_readiness()
    }

    fn reports_every_arrival(&self) -> bool {
        self.0.inner.reports_every_arrival()
    }

    fn set_readiness_callback(&self, report: ReadinessCallback) -> bool {
        self.0.inner.set_readiness_callback(report)
    }

    fn set_coarse_timeouts(&self, receive: Duration, send: Duration) -> io::Result<()> {
        let nanos = if receive == Duration::MAX { 0 } else { u64::try_from(receive.as_nanos()).unwrap_or(0) };
        self.0.receive_timeout.store(nanos, Ordering::Relaxed);
        self.0.inner.set_coarse_timeouts(receive, send)
    }

    fn set_spin_policy(&self, policy: SpinPolicy) {
        self.0.inner.set_spin_policy(policy);
    }

    fn begin_spin(&self) -> Option<SpinWait<'_>> {
        self.0.inner.begin_spin()
    }

    fn set_busy_poll(&self, time: Duration) -> io::Result<()> {
        self.0.inner.set_busy_poll(time)
    }

    fn set_dscp(&self, dscp: u8) -> io::Result<()> {
        self.0.inner.set_dscp(dscp)?;
        // For IPv4 the kernel derives another priority from the code point.
        match self.0.inner.readiness() {
            Some(fd) => socket::set_priority(fd, packet_priority()),
            None => Ok(()),
        }
    }

    fn shutdown(&self, half: ShutdownMode) {
        self.0.inner.shutdown(half);
    }

    fn peer(&self) -> &Peer {
        self.0.inner.peer()
    }

    fn is_peer_local(&self) -> bool {
        self.0.inner.is_peer_local()
    }
}
