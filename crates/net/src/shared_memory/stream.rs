//! One end of a connection over shared memory, and how its threads wait.
//!
//! A thread that waits in `recv` may poll first. A thread that waits in `recv` or `send` sleeps on
//! the ring's wake word until the peer or the peer monitor ([`MonitoredPeer`]) wakes it. Without a
//! monitor it sleeps for at most [`FALLBACK_SLEEP`]; a reader then requests the *bell*, a byte on
//! the socket, and waits for the socket, which reports the bell and the peer's end. So an idle
//! connection wakes no thread, and a killed peer is noticed.
//!
//! A thread that does not wait ([`WaitLimit::Now`]) requests the bell when a read does not fill its
//! buffer, or when a write finds no room.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use corelane_sys::clock::{self, Monotonic};
use corelane_sys::lock::{LockScope, PiMutex};
use corelane_sys::ring::{ParkResult, RingReader, RingWriter, WakeMethod};
use corelane_sys::socket::{self, DescriptorFilterSocket};
use corelane_sys::{poll, process, thread};

use super::large;
use super::lending::Lending;
use super::peer_monitor::{MonitoredPeer, PeerMonitor, PeerState};
use crate::spin::AdaptiveSpin;
use crate::stream::{MemoryLending, PolledInput};
use crate::{Peer, ShutdownDirection, SpinPolicy, SpinWait, Stream, WaitLimit};

/// Maximum time that a thread sleeps before it checks whether the peer has ended, if the monitor
/// cannot wake it.
const FALLBACK_SLEEP: Duration = Duration::from_millis(50);
/// Number of requests for the bell after which a thread reads the bell's bytes.
const MAX_BELL_REQUESTS: u32 = 64;

#[derive(Debug)]
pub(super) struct RingStream {
    pub(super) peer_state: Arc<PeerState>,
    monitored: Option<MonitoredPeer>,
    fd: DescriptorFilterSocket,
    peer: Peer,
    /// Coarse time-out of receiving in nanoseconds; 0 means none.
    receive_timeout: AtomicU64,
    send_timeout: AtomicU64,
    /// True once this side has announced that it writes no more.
    write_ended: AtomicBool,
    /// True after [`ShutdownDirection::Both`] or an error of the peer.
    shut_down: AtomicBool,
    /// Approximate number of requests for the bell since the bell's bytes were last read.
    bell_requests: AtomicU32,
    /// Set while a writer with [`WaitLimit::Now`] that found no room waits for the edge that
    /// reports room.
    wants_room: AtomicBool,
    /// Locked while a thread reads the bell's bytes, requests room, or withdraws the request after
    /// a write. `limit_bell_bytes` withdraws the request of a writer that no longer waits, without
    /// the lock.
    bell: PiMutex<()>,
    /// True while a thread polls through [`PolledInput`].
    pub(super) is_polled: AtomicBool,
    spin: AdaptiveSpin,
    /// State of polling in the middle of a large message: the reader polls for the next part, the
    /// writer for room.
    pub(super) large_spin: AdaptiveSpin,
    /// The state of memory that the sides lend to each other; `None` if this side does not lend
    /// memory.
    pub(super) lending: Option<Arc<Lending>>,
    forks: u64,
}

impl RingStream {
    pub(super) fn new(
        fd: DescriptorFilterSocket,
        peer: Peer,
        ends: Arc<PeerState>,
        spin: SpinPolicy,
        watching: &PeerMonitor,
        lending: Option<Arc<Lending>>,
    ) -> Self {
        RingStream {
            monitored: MonitoredPeer::new(fd.as_fd(), &ends, watching),
            peer_state: ends,
            fd,
            peer,
            receive_timeout: AtomicU64::new(0),
            send_timeout: AtomicU64::new(0),
            write_ended: AtomicBool::new(false),
            shut_down: AtomicBool::new(false),
            bell_requests: AtomicU32::new(0),
            wants_room: AtomicBool::new(false),
            bell: PiMutex::new("bell of shared memory", LockScope::Connection, ()),
            is_polled: AtomicBool::new(false),
            spin: AdaptiveSpin::new(spin),
            large_spin: AdaptiveSpin::new(spin),
            lending,
            forks: process::fork_generation(),
        }
    }

    #[inline]
    pub(super) fn read_ring(&self, reader: RingReader<'_>, buffer: &mut [u8]) -> io::Result<usize> {
        let (count, ring) = reader.read(buffer).inspect_err(|_| self.abort())?;
        if ring {
            // An error needs no report here: the peer has ended and does not wait for room, or
            // `ring_bell` has aborted the connection.
            let _ = self.ring_bell();
        }
        Ok(count)
    }

    #[inline]
    fn write_ring(&self, writer: RingWriter<'_>, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.write_ring_part(writer, slices, 0, total_len(slices))
    }

    #[inline]
    pub(super) fn write_ring_part(
        &self,
        writer: RingWriter<'_>,
        slices: &[IoSlice<'_>],
        skipped: usize,
        wanted: usize,
    ) -> io::Result<usize> {
        if self.write_ended.load(Ordering::Relaxed) || writer.is_reading_ended() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        writer.publish_core(thread::current_core());
        let (count, ring) = writer.write_part(slices, skipped, wanted).inspect_err(|_| self.abort())?;
        if ring {
            self.ring_bell()?;
        }
        if count > 0 && self.wants_room.load(Ordering::Relaxed) {
            self.clear_room_request();
        }
        Ok(count)
    }

    fn ring_bell(&self) -> io::Result<()> {
        match socket::send(self.fd.as_fd(), &[0], socket::WaitMode::Now) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.abort();
                Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    "the peer requests the bell and does not read the bell's bytes",
                ))
            }
            Err(_) => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    #[cold]
    fn abort(&self) {
        self.shutdown(ShutdownDirection::Both);
    }

    #[inline]
    pub(super) fn request_bell(&self, reader: RingReader<'_>) {
        // Concurrent threads may lose an increment, so the count is approximate.
        let asked = self.bell_requests.load(Ordering::Relaxed);
        self.bell_requests.store(asked + 1, Ordering::Relaxed);
        if asked >= MAX_BELL_REQUESTS {
            self.limit_bell_bytes(asked);
        }
        reader.set_wake_method(WakeMethod::SocketByte);
    }

    /// Subtracts a request for which the peer will not ring the bell.
    pub(super) fn uncount_bell_request(&self) {
        // A concurrent request may overwrite this decrement, which leaves the count too high. The
        // decrement itself overwrites no request.
        let less = |asked: u32| asked.checked_sub(1);
        let _ = self.bell_requests.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    #[cold]
    fn limit_bell_bytes(&self, asked: u32) {
        if asked >= 2 * MAX_BELL_REQUESTS {
            // The edge that reports room comes long before so many requests for the bell. So the
            // writer that requested room no longer waits for the edge.
            self.wants_room.store(false, Ordering::Relaxed);
        }
        self.drain_bell();
    }

    /// Reads up to 2048 of the bell's bytes. Returns false without reading while a writer waits for
    /// the edge that reports room, because the bell's bytes may bring this edge.
    fn drain_bell(&self) -> bool {
        let _bell = self.bell.lock();
        if self.wants_room.load(Ordering::Relaxed) {
            return false;
        }
        self.bell_requests.store(0, Ordering::Relaxed);
        let mut octets = [0; 256];
        // The caller detects the end of the stream and errors. The loop is bounded, because a
        // hostile peer may send bytes without end.
        for _ in 0..8 {
            if !matches!(self.fd.recv(&mut octets, socket::WaitMode::Now), Ok(256)) {
                break;
            }
        }
        true
    }

    /// Reads up to 1024 of the bell's bytes, and leaves at least one for a thread that waits until
    /// the socket is readable.
    #[cold]
    fn drain_bell_but_one(&self) -> io::Result<()> {
        let mut octets = [0; 1024];
        let spare = socket::unread_bytes(self.fd.as_fd())?.saturating_sub(1).min(octets.len());
        if spare > 0 {
            let _ = self.fd.recv(&mut octets[..spare], socket::WaitMode::Now);
        }
        self.bell_requests.store(0, Ordering::Relaxed);
        Ok(())
    }

    #[cold]
    fn clear_room_request(&self) {
        let _bell = self.bell.lock();
        self.wants_room.store(false, Ordering::Relaxed);
        self.peer_state.rings.writer().set_wake_method(WakeMethod::None);
    }

    pub(super) fn is_shut_down(&self) -> bool {
        self.shut_down.load(Ordering::Acquire)
    }

    #[inline]
    fn read_rest(&self, buffer: &mut [u8], count: usize) -> io::Result<usize> {
        let reader = self.peer_state.rings.reader();
        self.request_bell(reader);
        // Reads bytes that arrived before the peer could see the request.
        match count + self.read_ring(reader, &mut buffer[count..])? {
            0 => self.read_at_end_or(buffer, io::ErrorKind::WouldBlock),
            count => Ok(count),
        }
    }

    /// Reads bytes that have arrived, and returns their number. If none have arrived, returns 0 at
    /// the end of the stream, and the error `otherwise` before the end.
    #[cold]
    fn read_at_end_or(&self, buffer: &mut [u8], otherwise: io::ErrorKind) -> io::Result<usize> {
        let reader = self.peer_state.rings.reader();
        let ended = reader.is_writing_ended() || poll::check_hang_up(self.fd.as_fd())?.is_read_closed;
        // Reads bytes that the peer wrote before it announced the end.
        match self.read_ring(reader, buffer)? {
            0 if ended || self.is_shut_down() => Ok(0),
            0 => Err(otherwise.into()),
            count => Ok(count),
        }
    }

    fn wait_to_read(&self, buffer: &mut [u8], wait: WaitLimit) -> io::Result<usize> {
        let reader = self.peer_state.rings.reader();
        reader.set_wake_method(WakeMethod::None);
        if self.may_spin(reader) && self.spin.spin_until(|| !matches!(reader.is_empty(), Ok(true))) {
            return self.read_ring(reader, buffer);
        }
        let until = deadline(wait, &self.receive_timeout);
        let outcome = self.sleep_to_read(reader, buffer, until);
        reader.set_wake_method(WakeMethod::None);
        outcome
    }

    #[inline]
    fn may_spin(&self, reader: RingReader<'_>) -> bool {
        self.spin.is_allowed() && reader.peer_core().is_some_and(|core| thread::current_core() != Some(core))
    }

    /// Sleeps until a wake-up or until `until` (`None`: for ever), but for at most
    /// [`FALLBACK_SLEEP`] if the monitor would not wake this thread. Returns true if the time has
    /// passed.
    #[inline]
    fn park(&self, until: Option<Monotonic>, park: impl Fn(Option<Duration>) -> bool) -> bool {
        let Some(watched) = &self.monitored else { return park(fallback_sleep(until)) };
        self.peer_state.begin_sleep();
        if self.peer_state.must_check_peer() {
            self.peer_state.end_sleep();
            return park(fallback_sleep(until));
        }
        watched.match_caller_priority();
        let is_over = park(until.map(Monotonic::remaining));
        self.peer_state.end_sleep();
        is_over
    }

    fn sleep_to_read(&self, reader: RingReader<'_>, buffer: &mut [u8], until: Option<Monotonic>) -> io::Result<usize> {
        let mut slept = false;
        loop {
            let by_bell = slept && self.drain_bell();
            if by_bell {
                self.request_bell(reader);
            } else {
                reader.set_wake_method(WakeMethod::Futex);
            }
            let count = self.read_ring(reader, buffer)?;
            if count > 0 {
                return Ok(count);
            }
            let to_look = slept || self.peer_state.must_check_peer();
            if reader.is_writing_ended()
                || self.is_shut_down()
                || (to_look && poll::check_hang_up(self.fd.as_fd())?.is_read_closed)
            {
                return self.read_ring(reader, buffer);
            }
            if until.is_some_and(Monotonic::is_past) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if by_bell {
                poll::wait_readable(self.fd.as_fd(), until)?;
            } else {
                slept |= self.park(until, |time| reader.park(time) == ParkResult::TimedOut);
            }
        }
    }

    fn wait_to_write(&self, slices: &[IoSlice<'_>], wait: WaitLimit) -> io::Result<usize> {
        let writer = self.peer_state.rings.writer();
        let until = deadline(wait, &self.send_timeout);
        let outcome = self.sleep_to_write(writer, slices, until);
        writer.set_wake_method(WakeMethod::None);
        outcome
    }

    fn sleep_to_write(
        &self,
        writer: RingWriter<'_>,
        slices: &[IoSlice<'_>],
        until: Option<Monotonic>,
    ) -> io::Result<usize> {
        let mut slept = false;
        loop {
            writer.set_wake_method(WakeMethod::Futex);
            let count = self.write_ring(writer, slices)?;
            if count > 0 {
                return Ok(count);
            }
            if (slept || self.peer_state.must_check_peer()) && poll::check_hang_up(self.fd.as_fd())?.is_both_closed {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            if until.is_some_and(Monotonic::is_past) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            slept |= self.park(until, |time| writer.park(time) == ParkResult::TimedOut);
        }
    }

    #[cold]
    fn write_or_request_room(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let writer = self.peer_state.rings.writer();
        {
            let _bell = self.bell.lock();
            if self.bell_requests.fetch_add(1, Ordering::Relaxed) >= MAX_BELL_REQUESTS {
                self.drain_bell_but_one()?;
            }
            self.wants_room.store(true, Ordering::Relaxed);
            writer.set_wake_method(WakeMethod::SocketByte);
        }
        match self.write_ring(writer, slices)? {
            0 if poll::check_hang_up(self.fd.as_fd())?.is_both_closed => Err(io::ErrorKind::BrokenPipe.into()),
            0 => Err(io::ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }
}

#[inline]
fn total_len(slices: &[IoSlice<'_>]) -> usize {
    slices.iter().fold(0, |sum, slice| sum.saturating_add(slice.len()))
}

fn fallback_sleep(until: Option<Monotonic>) -> Option<Duration> {
    Some(until.map_or(FALLBACK_SLEEP, |until| until.remaining().min(FALLBACK_SLEEP)))
}

#[inline]
fn deadline(wait: WaitLimit, coarse: &AtomicU64) -> Option<Monotonic> {
    match wait {
        WaitLimit::Until(deadline) => {
            poll::minimize_timer_slack();
            Some(deadline)
        }
        WaitLimit::Block | WaitLimit::Now => match coarse.load(Ordering::Relaxed) {
            0 => None,
            nanos => Some(clock::coarse_now() + clock::max_coarse_lag() + Duration::from_nanos(nanos)),
        },
    }
}

impl Stream for RingStream {
    #[inline]
    fn recv(&self, buffer: &mut [u8], wait: WaitLimit) -> io::Result<usize> {
        if buffer.is_empty() || self.shut_down.load(Ordering::Relaxed) {
            return Ok(0);
        }
        let reader = self.peer_state.rings.reader();
        let part = buffer.len().min(large::PART_BYTES);
        let mut count = self.read_ring(reader, &mut buffer[..part])?;
        if count == large::PART_BYTES || (count < buffer.len() && reader.has_more_announced()) {
            count = self.read_large(reader, buffer, count)?;
        }
        match wait {
            WaitLimit::Now if count < buffer.len() => self.read_rest(buffer, count),
            WaitLimit::Block | WaitLimit::Until(_) if count == 0 => self.wait_to_read(buffer, wait),
            _ => Ok(count),
        }
    }

    #[inline]
    fn send_vectored(&self, slices: &[IoSlice<'_>], wait: WaitLimit) -> io::Result<usize> {
        let total = total_len(slices);
        let count = if total > large::PART_BYTES {
            self.write_large(slices, total)?
        } else {
            self.write_ring_part(self.peer_state.rings.writer(), slices, 0, total)?
        };
        if count > 0 || total == 0 {
            return Ok(count);
        }
        match wait {
            WaitLimit::Now => self.write_or_request_room(slices),
            WaitLimit::Block | WaitLimit::Until(_) => self.wait_to_write(slices, wait),
        }
    }

    fn readiness_descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }

    fn reports_every_arrival(&self) -> bool {
        false
    }

    fn arm_readiness(&self) -> io::Result<Option<bool>> {
        if !self.drain_bell() {
            // Another thread waits for the edge that reports room. The bell's bytes may bring this
            // edge, so they stay unread, and the caller must wait in `recv`.
            return Ok(Some(true));
        }
        let reader = self.peer_state.rings.reader();
        self.request_bell(reader);
        let is_there = !reader.is_empty()? || reader.is_writing_ended() || self.is_shut_down();
        Ok(Some(is_there || poll::check_hang_up(self.fd.as_fd())?.is_read_closed))
    }

    fn set_coarse_timeouts(&self, receive: Duration, send: Duration) -> io::Result<()> {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(0);
        self.receive_timeout.store(nanos(receive), Ordering::Relaxed);
        self.send_timeout.store(nanos(send), Ordering::Relaxed);
        Ok(())
    }

    fn set_spin_policy(&self, policy: SpinPolicy) {
        self.spin.set_policy(policy);
        self.large_spin.set_policy(policy);
    }

    fn begin_spin(&self) -> Option<SpinWait<'_>> {
        if self.may_spin(self.peer_state.rings.reader()) { self.spin.begin(|| true) } else { None }
    }

    fn polled_input(&self) -> Option<&dyn PolledInput> {
        Some(self)
    }

    fn memory_lending(&self) -> Option<&dyn MemoryLending> {
        self.lending.as_deref().map(|lending| lending as &dyn MemoryLending)
    }

    fn shutdown(&self, direction: ShutdownDirection) {
        let (reader, writer) = (self.peer_state.rings.reader(), self.peer_state.rings.writer());
        if direction == ShutdownDirection::Both {
            self.shut_down.store(true, Ordering::Release);
        }
        self.write_ended.store(true, Ordering::Release);
        // The peer needs no bell, because poll and epoll report the shutdown of the socket.
        writer.announce_writing_end();
        writer.unpark();
        if direction == ShutdownDirection::Both {
            reader.announce_reading_end();
            reader.unpark();
        }
        let _ = socket::shutdown(self.fd.as_fd(), direction);
    }

    fn peer(&self) -> &Peer {
        &self.peer
    }

    fn is_peer_local(&self) -> bool {
        true
    }
}

impl Drop for RingStream {
    fn drop(&mut self) {
        // In a forked child the connection belongs to the parent, so the child leaves it open.
        if process::fork_generation() == self.forks {
            self.shutdown(ShutdownDirection::Both);
            if let Some(watched) = self.monitored.take() {
                watched.unregister(self.fd.as_fd());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use corelane_sys::counters;
    use corelane_sys::ring::{RingPair, RingSizes};

    use super::*;

    fn ring_stream(fd: std::os::fd::OwnedFd, rings: RingPair) -> RingStream {
        RingStream::new(
            DescriptorFilterSocket::for_unix_socket(fd),
            Peer::Unknown,
            PeerState::new(rings),
            SpinPolicy::Never,
            &PeerMonitor::default(),
            None,
        )
    }

    fn connected() -> (RingStream, RingStream) {
        let sizes = RingSizes::at_least(4096, 4096);
        let (ours, memory) = RingPair::create(sizes).unwrap();
        let theirs = RingPair::open(memory.as_fd(), sizes).unwrap();
        let (fd, other) = socket::pair().unwrap();
        (ring_stream(fd, ours), ring_stream(other, theirs))
    }

    /// Sends one octet, and returns true if the sender rings the bell for it.
    fn rings(client: &RingStream) -> bool {
        let before = counters::snapshot();
        client.send(&[7], WaitLimit::Now).unwrap();
        (counters::snapshot() - before).syscalls == 1
    }

    #[test]
    fn peer_rings_only_while_no_thread_polls() {
        let (client, server) = connected();
        let rings = || rings(&client);
        let read = || assert_eq!(server.recv(&mut [0; 2], WaitLimit::Now).unwrap(), 1);
        assert!(rings());
        read();
        assert!(rings(), "a read requests the bell");
        assert!(server.poll());
        read();
        assert!(!server.poll() && !rings() && server.poll());
        read();
        assert!(!server.poll() && !server.stop_polling() && rings());
        read();
        server.send(&[7], WaitLimit::Now).unwrap();
        assert!(rings(), "a send leaves the request in force");
        read();
        assert!(!server.poll() && !rings());
        assert!(server.stop_polling(), "bytes came before the request");
    }

    #[test]
    fn one_thread_polls_at_a_time() {
        let (_client, server) = connected();
        for end in [|server: &RingStream| _ = server.stop_polling(), RingStream::end_polling] {
            assert!(server.begin_polling() && !server.begin_polling());
            end(&server);
        }
        assert!(server.begin_polling());
    }

    #[test]
    fn a_request_for_the_bell_counts_only_if_the_peer_rings() {
        let (client, server) = connected();
        let requests = || server.bell_requests.load(Ordering::Relaxed);
        let read = || assert_eq!(server.recv(&mut [0; 2], WaitLimit::Now).unwrap(), 1);
        assert!(rings(&client));
        read();
        let counted = requests();
        let system_calls = counters::snapshot().syscalls;
        for _ in 0..3 * MAX_BELL_REQUESTS {
            assert!(!server.poll() && !rings(&client) && server.poll());
            read();
            server.poll();
            server.stop_polling();
        }
        assert_eq!(requests(), counted);
        assert_eq!(counters::snapshot().syscalls, system_calls, "the reader and its peer make no system call");
        for more in 1..=3 {
            assert!(rings(&client));
            server.poll();
            read();
            assert_eq!(requests(), counted + more);
        }
    }

    #[test]
    fn without_a_monitor_bell_and_hang_up_are_still_noticed() {
        let (client, mut server) = connected();
        if let Some(watched) = server.monitored.take() {
            watched.unregister(server.fd.as_fd());
        }
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut octet = [0];
                let first = server.recv(&mut octet, WaitLimit::Block).unwrap();
                (first, octet[0], server.recv(&mut octet, WaitLimit::Block).unwrap())
            });
            // The reader requests the bell after [`FALLBACK_SLEEP`], so the test waits longer.
            std::thread::sleep(2 * FALLBACK_SLEEP);
            client.send(&[7], WaitLimit::Block).unwrap();
            std::thread::sleep(2 * FALLBACK_SLEEP);
            drop(client);
            assert_eq!(reader.join().unwrap(), (1, 7, 0));
        });
    }
}
