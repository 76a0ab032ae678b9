//! A connection of a stream.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use corelane_net::{Monotonic, Peer, ReadinessCallback, ShutdownDirection, SpinPolicy, SpinWait, Stream, WaitLimit};
use corelane_sys::epoll::{Epoll, EpollEvent, Interest};
use corelane_sys::{poll, socket};

use crate::byte_budget::{ByteBudget, Reservation, Throttled};
use crate::stream_steering::SteeringMember;
use crate::transport::ConnectionSlot;
use crate::turns::Seat;

pub(crate) struct RioStream(Arc<Connection>);

struct Connection {
    /// Entry in the steering tables. It is dropped before `inner`, so before the socket is closed.
    _steered: Option<SteeringMember>,
    inner: Box<dyn Stream>,
    slot: ConnectionSlot,
    /// Place among the connections that share the stream's budget; `None` if the stream has no
    /// budget in bytes.
    seat: Option<Seat>,
    /// Coarse receive time-out in nanoseconds; 0 means none.
    receive_timeout: AtomicU64,
    /// True after this side has ended both directions.
    is_shut_down: AtomicBool,
    /// Edge-triggered epoll instance of the socket, created at its first use; `None` if it cannot
    /// be created. When a turn of the connection begins (module `turns`), the instance becomes
    /// readable even if no new bytes have come, because `report_unread_bytes` repeats the socket's
    /// edge.
    arrivals: OnceLock<Option<Epoll>>,
}

/// Pause between attempts of a blocking reader that has no epoll instance and whose peer has hung
/// up.
const HUNG_UP_PAUSE: Duration = Duration::from_millis(1);

enum Attempt {
    Received(usize),
    NothingUnread,
    OutOfBudget { next_period: Monotonic },
}

impl RioStream {
    pub(crate) fn new(inner: Box<dyn Stream>, slot: ConnectionSlot, steered: Option<SteeringMember>) -> Self {
        Self(Arc::new_cyclic(|connection: &Weak<Connection>| {
            let seat = slot.stream().budget.as_ref().map(|budget| budget.join(connection.clone()));
            let (receive_timeout, is_shut_down) = (AtomicU64::new(0), AtomicBool::new(false));
            Connection {
                _steered: steered,
                inner,
                slot,
                seat,
                receive_timeout,
                is_shut_down,
                arrivals: OnceLock::new(),
            }
        }))
    }

    fn share(&self) -> Option<(&ByteBudget, Seat)> {
        self.0.slot.stream().budget.as_ref().zip(self.0.seat)
    }

    fn recv_within(
        &self,
        (budget, seat): (&ByteBudget, Seat),
        buffer: &mut [u8],
        wait: WaitLimit,
    ) -> io::Result<usize> {
        let connection = &*self.0;
        let Some(fd) = connection.inner.readiness_descriptor() else { return connection.inner.recv(buffer, wait) };
        let deadline = match wait {
            WaitLimit::Now => None,
            WaitLimit::Until(deadline) => Some(deadline),
            WaitLimit::Block => connection.coarse_deadline(),
        };
        let mut is_watched = false;
        loop {
            let attempt = connection.attempt(fd, budget, seat, buffer)?;
            if let Attempt::Received(count) = attempt {
                return Ok(count);
            }
            if wait == WaitLimit::Now {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            if deadline.is_some_and(Monotonic::is_past) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let Attempt::OutOfBudget { next_period } = attempt else {
                poll::wait_readable(fd, deadline)?;
                continue;
            };
            let until = Some(deadline.map_or(next_period, |deadline| deadline.min(next_period)));
            let Some(arrivals) = connection.arrivals() else {
                // Without interest in reading, only a hang-up ends this wait before `until`.
                if poll::wait(fd, false, false, until)?.is_hung_up && !connection.is_shut_down() {
                    // The peer's hang-up ends every further wait at once, so a pause avoids a busy
                    // loop.
                    std::thread::sleep(HUNG_UP_PAUSE);
                }
                continue;
            };
            // Arrivals that were reported earlier must not end the wait. They are discarded before
            // the last attempt to read, so a report after this attempt ends the wait.
            if is_watched {
                poll::wait_readable(arrivals.as_fd(), until)?;
            }
            discard_reports(arrivals)?;
            is_watched = true;
        }
    }
}

impl Connection {
    /// Reads once without blocking, if the budget permits it or only the end of the connection is
    /// unread.
    fn attempt(&self, fd: BorrowedFd<'_>, budget: &ByteBudget, seat: Seat, buffer: &mut [u8]) -> io::Result<Attempt> {
        let wanted = buffer.len();
        match budget.reserve(seat, wanted) {
            Reservation::Granted { bytes, period } => {
                let received = self.inner.recv(buffer.get_mut(..bytes).unwrap_or_default(), WaitLimit::Now);
                let count = received.as_ref().map_or(0, |count| *count);
                if count < bytes {
                    budget.give_back(seat, bytes - count, period);
                } else if bytes < wanted && !budget.wait(seat) {
                    // A caller that reads with `WaitLimit::Now` takes a short read for the end of the
                    // unread bytes and waits for the next edge, so an edge must follow.
                    self.report_unread_bytes();
                }
                match received {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Attempt::NothingUnread),
                    received => received.map(Attempt::Received),
                }
            }
            Reservation::Exhausted { next_period } => {
                if self.is_shut_down() {
                    return Ok(Attempt::Received(0));
                }
                if self.has_only_its_end_unread(fd)? {
                    return self.inner.recv(buffer, WaitLimit::Now).map(Attempt::Received);
                }
                if !budget.wait(seat) {
                    self.report_unread_bytes();
                }
                Ok(Attempt::OutOfBudget { next_period: Monotonic::from_nanos(next_period) })
            }
        }
    }

    /// Implements [`Stream::arm_readiness`] for a connection that shares a budget. `None` if the
    /// connection has no descriptor, or if [`arrivals`](Self::arrivals) cannot be created.
    fn can_read(&self, budget: &ByteBudget, seat: Seat) -> io::Result<Option<bool>> {
        let (Some(fd), Some(arrivals)) = (self.inner.readiness_descriptor(), self.arrivals()) else { return Ok(None) };
        discard_reports(arrivals)?;
        if !poll::wait(fd, true, false, Some(Monotonic::from_nanos(0)))?.is_ready() {
            return Ok(Some(false));
        }
        Ok(Some(self.is_shut_down() || self.has_only_its_end_unread(fd)? || !budget.wait(seat)))
    }

    fn is_shut_down(&self) -> bool {
        self.is_shut_down.load(Ordering::Relaxed)
    }

    /// Returns true if the peer has ended the connection and all bytes have been read. A read then
    /// returns the end or the error of the connection, and needs no bytes of the budget.
    fn has_only_its_end_unread(&self, fd: BorrowedFd<'_>) -> io::Result<bool> {
        Ok(poll::check_hang_up(fd)?.is_read_closed && socket::unread_bytes(fd)? == 0)
    }

    fn arrivals(&self) -> Option<&Epoll> {
        let watch = || {
            let fd = self.inner.readiness_descriptor()?;
            let set = Epoll::new().ok()?;
            set.add(fd, 0, Interest::READABLE | Interest::HANG_UP | Interest::EDGE).ok()?;
            Some(set)
        };
        self.arrivals.get_or_init(watch).as_ref()
    }

    fn coarse_deadline(&self) -> Option<Monotonic> {
        match self.receive_timeout.load(Ordering::Relaxed) {
            0 => None,
            nanos => Some(Monotonic::now() + Duration::from_nanos(nanos)),
        }
    }
}

/// Consumes the reported edge, so that `set` becomes readable again only at the next edge.
fn discard_reports(set: &Epoll) -> io::Result<()> {
    set.wait(&mut [EpollEvent::EMPTY; 1], Some(Duration::ZERO)).map(drop)
}

impl Throttled for Connection {
    fn report_unread_bytes(&self) {
        if let Some(fd) = self.inner.readiness_descriptor() {
            // An error means that the connection has ended, which the kernel reports itself.
            let _ = socket::report_unread_bytes_again(fd);
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some((budget, seat)) = self.slot.stream().budget.as_ref().zip(self.seat) {
            budget.leave(seat);
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
    fn recv(&self, buffer: &mut [u8], wait: WaitLimit) -> io::Result<usize> {
        match self.share() {
            None => self.0.inner.recv(buffer, wait),
            Some(_) if buffer.is_empty() => Ok(0),
            Some(share) => self.recv_within(share, buffer, wait),
        }
    }

    #[inline]
    fn send_vectored(&self, slices: &[IoSlice<'_>], wait: WaitLimit) -> io::Result<usize> {
        self.0.inner.send_vectored(slices, wait)
    }

    #[inline]
    fn send(&self, octets: &[u8], wait: WaitLimit) -> io::Result<usize> {
        self.0.inner.send(octets, wait)
    }

    fn readiness_descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.inner.readiness_descriptor()
    }

    fn arrival_descriptor(&self) -> Option<BorrowedFd<'_>> {
        let set = self.share().and_then(|_| self.0.arrivals());
        set.map(AsFd::as_fd).or_else(|| self.0.inner.arrival_descriptor())
    }

    fn arm_readiness(&self) -> io::Result<Option<bool>> {
        match self.share() {
            Some((budget, seat)) => self.0.can_read(budget, seat),
            None => self.0.inner.arm_readiness(),
        }
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
        // For IPv4, setting the code point makes the kernel change `SO_PRIORITY`, so it is set
        // again.
        match self.0.inner.readiness_descriptor() {
            Some(fd) => self.0.slot.stream().set_packet_priority(fd),
            None => Ok(()),
        }
    }

    fn shutdown(&self, direction: ShutdownDirection) {
        if direction == ShutdownDirection::Both {
            self.0.is_shut_down.store(true, Ordering::Relaxed);
        }
        self.0.inner.shutdown(direction);
    }

    fn peer(&self) -> &Peer {
        self.0.inner.peer()
    }

    fn is_peer_local(&self) -> bool {
        self.0.inner.is_peer_local()
    }
}
