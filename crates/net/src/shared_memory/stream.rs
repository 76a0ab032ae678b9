//! One end of a connection over shared memory: who waits for what, and how.
//!
//! A thread that waits in `recv` or `send` looks for a while where that has paid and the peer is on another core, then sleeps on the ring's own
//! word until it is woken: by the peer, or by the thread that is told of the peer's end ([`Watched`]). Without that thread it sleeps at most
//! [`TICK`]; a reader that has slept so long waits for the socket instead, which tells of octets by the bell and of the peer's end whatever
//! that was. So an idle connection wakes nobody, and a peer that was killed is noticed.
//!
//! A thread that does not wait ([`Wait::Now`]) has asked for the bell whenever it got less than it could take: its descriptor reports
//! what comes afterwards, as an edge.
//!
//! Octets of the bell are read by whoever reads the stream, in time before the socket is full of them, and never while a writer
//! waits to be told of room: an edge whose octet is gone is not reported any more. A writer that is told of room again and again, and whose reader
//! does not come, leaves one of them.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use corelane_sys::clock::{self, Monotonic};
use corelane_sys::lock::{PiMutex, Scope};
use corelane_sys::ring::{Ask, Reader, Rings, Writer};
use corelane_sys::{poll, process, socket, thread};

use super::ends::{Ends, Watched, Watching};
use super::spin::Spin;
use crate::{Half, Peer, Stream, Wait};

/// How long a thread that nobody would tell sleeps before it looks whether the peer is still there.
const TICK: Duration = Duration::from_millis(50);
/// Times that the bell was asked for after which its octets are read.
const RINGS: u32 = 64;

#[derive(Debug)]
pub(super) struct Shared {
    ends: Arc<Ends>,
    watched: Option<Watched>,
    fd: OwnedFd,
    peer: Peer,
    /// Coarse time-outs in nanoseconds, 0 for none.
    receive: AtomicU64,
    send: AtomicU64,
    /// This side writes no more.
    ended: AtomicBool,
    /// Nothing goes either way any more.
    over: AtomicBool,
    /// Times that the bell was asked for since its octets were read.
    asked: AtomicU32,
    /// A writer that does not wait was told that there is no room, and is to be told of room.
    wants_room: AtomicBool,
    /// Held to read the bell's octets, and to begin to want room; by threads of several priorities where a request was handed over.
    bell: PiMutex<()>,
    spin: Spin,
    forks: u64,
}

impl Shared {
    pub(super) fn new(fd: OwnedFd, peer: Peer, rings: Rings, spin: Duration, watching: &Watching) -> Self {
        let ends = Ends::new(rings);
        Shared {
            watched: Watched::new(fd.as_fd(), &ends, watching),
            ends,
            fd,
            peer,
            receive: AtomicU64::new(0),
            send: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            over: AtomicBool::new(false),
            asked: AtomicU32::new(0),
            wants_room: AtomicBool::new(false),
            bell: PiMutex::new("bell of shared memory", Scope::Connection, ()),
            spin: Spin::new(spin),
            forks: process::generation(),
        }
    }

    /// Copies out what there is.
    #[inline]
    fn take(&self, reader: Reader<'_>, buffer: &mut [u8]) -> io::Result<usize> {
        let (count, ring) = reader.read(buffer).inspect_err(|_| self.cut())?;
        if ring {
            // Without anybody to hear it there is nobody to wait for room.
            let _ = self.ring();
        }
        Ok(count)
    }

    /// Copies in what there is room for.
    #[inline]
    fn put(&self, writer: Writer<'_>, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.ended.load(Ordering::Relaxed) || writer.is_abandoned() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        writer.tell_core(thread::current_core());
        let (count, ring) = writer.write(slices).inspect_err(|_| self.cut())?;
        if ring {
            self.ring()?;
        }
        if count > 0 && self.wants_room.load(Ordering::Relaxed) {
            self.has_room();
        }
        Ok(count)
    }

    /// Rings the peer's bell.
    fn ring(&self) -> io::Result<()> {
        match socket::send(self.fd.as_fd(), &[0], socket::Wait::Now) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.cut();
                Err(io::Error::new(io::ErrorKind::InvalidData, "the peer asks for its bell and does not read it"))
            }
            Err(_) => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// The peer does not keep to the protocol: nothing more is expected of it.
    #[cold]
    fn cut(&self) {
        self.shutdown(Half::Both);
    }

    /// Notes that the bell is asked for.
    #[inline]
    fn ask_for_bell(&self, reader: Reader<'_>) {
        // A count that threads may spoil for each other: one more or less does not matter.
        let asked = self.asked.load(Ordering::Relaxed);
        self.asked.store(asked + 1, Ordering::Relaxed);
        if asked >= RINGS {
            self.tidy_bell(asked);
        }
        reader.ask(Ask::Bell);
    }

    #[cold]
    fn tidy_bell(&self, asked: u32) {
        if asked >= 2 * RINGS {
            // Nobody who waits for an edge of room goes on reading as long as this.
            self.wants_room.store(false, Ordering::Relaxed);
        }
        self.silence();
    }

    /// Reads the bell's octets. False while a writer waits for an edge that they may be.
    fn silence(&self) -> bool {
        let _bell = self.bell.lock();
        if self.wants_room.load(Ordering::Relaxed) {
            return false;
        }
        self.asked.store(0, Ordering::Relaxed);
        let mut octets = [0; 256];
        // The end, or an error, is found by who looks for it. A peer that rings without end holds nobody here.
        for _ in 0..8 {
            if !matches!(socket::recv(self.fd.as_fd(), &mut octets, socket::Wait::Now), Ok(256)) {
                break;
            }
        }
        true
    }

    /// Reads the bell's octets but for one: while a message is written that takes many rings full, nobody may come to read, and whoever reads next
    /// has an edge that has not been reported.
    #[cold]
    fn thin_bell(&self) -> io::Result<()> {
        let mut octets = [0; 1024];
        let spare = socket::unread(self.fd.as_fd())?.saturating_sub(1).min(octets.len());
        if spare > 0 {
            // The end, or an error, is found by who looks for it.
            let _ = socket::recv(self.fd.as_fd(), &mut octets[..spare], socket::Wait::Now);
        }
        self.asked.store(0, Ordering::Relaxed);
        Ok(())
    }

    #[cold]
    fn has_room(&self) {
        let _bell = self.bell.lock();
        self.wants_room.store(false, Ordering::Relaxed);
        self.ends.rings.writer().ask(Ask::Nothing);
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// The rest of a read that does not wait: from now on the bell tells of what comes.
    #[inline]
    fn take_rest(&self, buffer: &mut [u8], count: usize) -> io::Result<usize> {
        let reader = self.ends.rings.reader();
        self.ask_for_bell(reader);
        // What came before the peer could know.
        match count + self.take(reader, &mut buffer[count..])? {
            0 => self.end_or(buffer, io::ErrorKind::WouldBlock),
            count => Ok(count),
        }
    }

    /// Nothing is there: whether that is the end.
    #[cold]
    fn end_or(&self, buffer: &mut [u8], otherwise: io::ErrorKind) -> io::Result<usize> {
        let reader = self.ends.rings.reader();
        let ended = reader.has_ended() || poll::ended(self.fd.as_fd())?.reading;
        // What was written before the end.
        match self.take(reader, buffer)? {
            0 if ended || self.is_over() => Ok(0),
            0 => Err(otherwise.into()),
            count => Ok(count),
        }
    }

    fn wait_to_read(&self, buffer: &mut [u8], wait: Wait) -> io::Result<usize> {
        let reader = self.ends.rings.reader();
        reader.ask(Ask::Nothing);
        if self.may_look(reader) && self.spin.look(|| !matches!(reader.is_empty(), Ok(true))) {
            return self.take(reader, buffer);
        }
        let until = until(wait, &self.receive);
        let outcome = self.sleep_to_read(reader, buffer, until);
        reader.ask(Ask::Nothing);
        outcome
    }

    /// Whether the peer can write while this thread looks: who shares a core with it keeps it from running.
    #[inline]
    fn may_look(&self, reader: Reader<'_>) -> bool {
        self.spin.is_allowed() && reader.peers_core().is_some_and(|core| thread::current_core() != Some(core))
    }

    /// How long a thread may sleep that has said how it waits; none: until it is woken.
    #[inline]
    fn nap(&self, until: Option<Monotonic>) -> Option<Duration> {
        if let Some(watched) = &self.watched
            && !self.ends.are_told()
        {
            watched.serve();
            return until.map(Monotonic::remaining);
        }
        Some(until.map_or(TICK, |until| until.remaining().min(TICK)))
    }

    fn sleep_to_read(&self, reader: Reader<'_>, buffer: &mut [u8], until: Option<Monotonic>) -> io::Result<usize> {
        let mut slept = false;
        loop {
            let by_bell = slept && self.silence();
            if by_bell {
                self.ask_for_bell(reader);
            } else {
                reader.ask(Ask::Futex);
            }
            let count = self.take(reader, buffer)?;
            if count > 0 {
                return Ok(count);
            }
            let to_look = slept || self.ends.are_told();
            if reader.has_ended() || self.is_over() || (to_look && poll::ended(self.fd.as_fd())?.reading) {
                return self.take(reader, buffer);
            }
            if until.is_some_and(Monotonic::is_past) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            if by_bell {
                poll::wait_readable(self.fd.as_fd(), until)?;
            } else {
                slept |= reader.park(self.nap(until));
            }
        }
    }

    fn wait_to_write(&self, slices: &[IoSlice<'_>], wait: Wait) -> io::Result<usize> {
        let writer = self.ends.rings.writer();
        let until = until(wait, &self.send);
        let outcome = self.sleep_to_write(writer, slices, until);
        writer.ask(Ask::Nothing);
        outcome
    }

    fn sleep_to_write(
        &self,
        writer: Writer<'_>,
        slices: &[IoSlice<'_>],
        until: Option<Monotonic>,
    ) -> io::Result<usize> {
        let mut slept = false;
        loop {
            writer.ask(Ask::Futex);
            let count = self.put(writer, slices)?;
            if count > 0 {
                return Ok(count);
            }
            if (slept || self.ends.are_told()) && poll::ended(self.fd.as_fd())?.both {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            if until.is_some_and(Monotonic::is_past) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            slept |= writer.park(self.nap(until));
        }
    }

    /// There is no room, and nobody waits: the bell tells of it.
    #[cold]
    fn put_or_want_room(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let writer = self.ends.rings.writer();
        {
            let _bell = self.bell.lock();
            if self.asked.fetch_add(1, Ordering::Relaxed) >= RINGS {
                self.thin_bell()?;
            }
            self.wants_room.store(true, Ordering::Relaxed);
            writer.ask(Ask::Bell);
        }
        match self.put(writer, slices)? {
            0 if poll::ended(self.fd.as_fd())?.both => Err(io::ErrorKind::BrokenPipe.into()),
            0 => Err(io::ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }
}

/// When a blocking call ends.
#[inline]
fn until(wait: Wait, coarse: &AtomicU64) -> Option<Monotonic> {
    match wait {
        Wait::Until(deadline) => {
            poll::sharpen_timers();
            Some(deadline)
        }
        Wait::Block | Wait::Now => match coarse.load(Ordering::Relaxed) {
            0 => None,
            nanos => Some(clock::coarse_now() + clock::coarse_lag() + Duration::from_nanos(nanos)),
        },
    }
}

impl Stream for Shared {
    #[inline]
    fn recv(&self, buffer: &mut [u8], wait: Wait) -> io::Result<usize> {
        if buffer.is_empty() || self.over.load(Ordering::Relaxed) {
            return Ok(0);
        }
        let count = self.take(self.ends.rings.reader(), buffer)?;
        match wait {
            Wait::Now if count < buffer.len() => self.take_rest(buffer, count),
            Wait::Block | Wait::Until(_) if count == 0 => self.wait_to_read(buffer, wait),
            _ => Ok(count),
        }
    }

    #[inline]
    fn send_vectored(&self, slices: &[IoSlice<'_>], wait: Wait) -> io::Result<usize> {
        let count = self.put(self.ends.rings.writer(), slices)?;
        if count > 0 || slices.iter().all(|slice| slice.is_empty()) {
            return Ok(count);
        }
        match wait {
            Wait::Now => self.put_or_want_room(slices),
            Wait::Block | Wait::Until(_) => self.wait_to_write(slices, wait),
        }
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }

    fn tells_of_octets(&self) -> bool {
        false
    }

    fn ask_to_poll(&self) -> io::Result<Option<bool>> {
        // Who has the stream for itself waits for no edge.
        self.wants_room.store(false, Ordering::Relaxed);
        self.silence();
        let reader = self.ends.rings.reader();
        self.ask_for_bell(reader);
        let is_there = !reader.is_empty()? || reader.has_ended() || self.is_over();
        Ok(Some(is_there || poll::ended(self.fd.as_fd())?.reading))
    }

    fn set_coarse_timeouts(&self, receive: Duration, send: Duration) -> io::Result<()> {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(0);
        self.receive.store(nanos(receive), Ordering::Relaxed);
        self.send.store(nanos(send), Ordering::Relaxed);
        Ok(())
    }

    fn shutdown(&self, half: Half) {
        let (reader, writer) = (self.ends.rings.reader(), self.ends.rings.writer());
        if half == Half::Both {
            self.over.store(true, Ordering::Release);
        }
        self.ended.store(true, Ordering::Release);
        // No bell: the socket tells of either end, as an edge too.
        writer.end();
        writer.unpark();
        let direction = match half {
            Half::Write => socket::Shutdown::Write,
            Half::Both => {
                reader.abandon();
                reader.unpark();
                socket::Shutdown::Both
            }
        };
        // The only failure is a connection that is gone already, which is what was asked for.
        let _ = socket::shutdown(self.fd.as_fd(), direction);
    }

    fn peer(&self) -> &Peer {
        &self.peer
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // In a forked child it is still the parent's connection.
        if process::generation() == self.forks {
            self.shutdown(Half::Both);
            if let Some(watched) = self.watched.take() {
                watched.end(self.fd.as_fd());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use corelane_sys::ring::Sizes;

    use super::*;

    fn end(fd: OwnedFd, rings: Rings) -> Shared {
        Shared::new(fd, Peer::Unknown, rings, Duration::ZERO, &Watching::default())
    }

    /// Where no thread could be started to watch: who waits long does so for the bell, and finds the end by himself.
    #[test]
    fn without_the_watch_the_bell_and_the_end_are_heard_nevertheless() {
        let sizes = Sizes::at_least(4096, 4096);
        let (ours, memory) = Rings::create(sizes).unwrap();
        let theirs = Rings::open(memory.as_fd(), sizes).unwrap();
        let (fd, other) = socket::pair().unwrap();
        let (client, mut server) = (end(fd, ours), end(other, theirs));
        if let Some(watched) = server.watched.take() {
            watched.end(server.fd.as_fd());
        }
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut octet = [0];
                let first = server.recv(&mut octet, Wait::Block).unwrap();
                (first, octet[0], server.recv(&mut octet, Wait::Block).unwrap())
            });
            // Longer than it sleeps before it asks for the bell.
            std::thread::sleep(2 * TICK);
            client.send(&[7], Wait::Block).unwrap();
            std::thread::sleep(2 * TICK);
            drop(client);
            assert_eq!(reader.join().unwrap(), (1, 7, 0));
        });
    }
}
