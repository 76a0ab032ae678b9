//! The two rings of a connection, over shared memory.

use std::io::{self, IoSlice};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::mapping::{self, Mapping};
use super::protocol::{self, Control, Corrupt, Position, Wish, Word};

/// Where the octets of the first ring begin.
const OCTETS: usize = 4096;
/// Words of one direction.
const CONTROL: usize = 1024;
/// Apart from one another: a processor fetches lines of 64 octets in pairs.
const LINES: usize = 128;

/// How many octets each ring holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    to_server: u32,
    to_client: u32,
}

impl Sizes {
    /// A ring holds at least this many octets.
    pub const LEAST: u32 = 4096;
    /// And at most this many.
    pub const MOST: u32 = 64 << 20;

    /// Rings for at least so many octets, within the bounds; their sizes are powers of two.
    #[must_use]
    pub fn at_least(to_server: u32, to_client: u32) -> Self {
        let size = |octets: u32| octets.clamp(Self::LEAST, Self::MOST).next_power_of_two();
        Sizes { to_server: size(to_server), to_client: size(to_client) }
    }

    /// Exactly so many octets, as a peer announced them; `None` if there are no such rings.
    #[must_use]
    pub fn exactly(to_server: u32, to_client: u32) -> Option<Self> {
        let sizes = Self::at_least(to_server, to_client);
        (sizes.to_server == to_server && sizes.to_client == to_client).then_some(sizes)
    }

    /// Octets that the ring to the server holds.
    #[must_use]
    pub fn to_server(self) -> u32 {
        self.to_server
    }

    /// Octets that the ring to the client holds.
    #[must_use]
    pub fn to_client(self) -> u32 {
        self.to_client
    }

    fn memory(self) -> usize {
        OCTETS + self.to_server as usize + self.to_client as usize
    }
}

/// How a side that has to wait is to be woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Not at all: it looks by itself.
    Nothing,
    /// In [`Reader::park`] or [`Writer::park`].
    Futex,
    /// By whatever the two sides have for a bell: the peer's next operation that concerns this side says that it is to be rung.
    Bell,
}

impl Ask {
    fn word(self) -> u32 {
        match self {
            Ask::Nothing => protocol::AWAKE,
            Ask::Futex => protocol::PARKED,
            Ask::Bell => protocol::BELL,
        }
    }
}

/// One end of a connection.
#[derive(Debug)]
pub struct Rings {
    mapping: Mapping,
    incoming: Direction,
    outgoing: Direction,
}

#[derive(Debug)]
struct Direction {
    /// Where the words are.
    control: usize,
    /// Where the octets are.
    octets: usize,
    capacity: u32,
    position: Position,
}

impl Rings {
    /// The client's end of new rings, and the descriptor that gives the server its end.
    ///
    /// # Errors
    /// When the process is out of descriptors, memory or addresses.
    pub fn create(sizes: Sizes) -> io::Result<(Self, OwnedFd)> {
        let (fd, mapping) = mapping::made(sizes.memory())?;
        let [to_server, to_client] = directions(sizes);
        let rings = Rings { mapping, incoming: to_client, outgoing: to_server };
        // Until somebody looks: whoever waits for a descriptor to become readable is told of the first octets.
        for end in [&rings.incoming, &rings.outgoing] {
            protocol::ask(rings.words(end).word(Word::Reader), protocol::BELL);
        }
        Ok((rings, fd))
    }

    /// The server's end of rings that a client made.
    ///
    /// # Errors
    /// `InvalidData` if `fd` is no memory of this size that is sealed against changing it; out of addresses.
    pub fn open(fd: BorrowedFd<'_>, sizes: Sizes) -> io::Result<Self> {
        mapping::check(fd, sizes.memory())?;
        let mapping = Mapping::new(fd, sizes.memory())?;
        let [to_server, to_client] = directions(sizes);
        Ok(Rings { mapping, incoming: to_server, outgoing: to_client })
    }

    /// What the peer writes.
    #[inline]
    pub fn reader(&self) -> Reader<'_> {
        Reader(self.words(&self.incoming))
    }

    /// What the peer reads.
    #[inline]
    pub fn writer(&self) -> Writer<'_> {
        Writer(self.words(&self.outgoing))
    }

    #[inline]
    fn words<'a>(&'a self, direction: &'a Direction) -> End<'a> {
        End { mapping: &self.mapping, direction }
    }
}

fn directions(sizes: Sizes) -> [Direction; 2] {
    let direction =
        |control, octets, capacity| Direction { control, octets, capacity, position: Position::new(capacity) };
    let second = OCTETS + sizes.to_server as usize;
    [direction(0, OCTETS, sizes.to_server), direction(CONTROL, second, sizes.to_client)]
}

#[derive(Clone, Copy, Debug)]
struct End<'a> {
    mapping: &'a Mapping,
    direction: &'a Direction,
}

impl Control for End<'_> {
    #[inline]
    fn word(&self, word: Word) -> &AtomicU32 {
        self.mapping.word(self.offset(word))
    }
}

impl End<'_> {
    #[inline]
    fn offset(&self, word: Word) -> usize {
        self.direction.control + word as usize * LINES
    }

    /// Where the octet with this number is, and how many follow it before the ring begins again.
    #[inline]
    fn place(&self, number: u32) -> (usize, usize) {
        let at = number & (self.direction.capacity - 1);
        (self.direction.octets + at as usize, (self.direction.capacity - at) as usize)
    }

    /// Does what can be done about a wish here. True if the bell is to be rung.
    #[inline]
    fn grant(&self, wish: Wish, word: Word) -> bool {
        match wish {
            Wish::Nothing => false,
            Wish::Futex => {
                self.mapping.futex_wake(self.offset(word));
                false
            }
            Wish::Bell => true,
        }
    }

    fn flag(&self, word: Word) -> bool {
        // Acquire: pairs with `raise`.
        self.word(word).load(Ordering::Acquire) != 0
    }

    /// In the line of the writer's counter, which travels anyway: 0, or one more than the core that the writer ran on when it last wrote.
    #[inline]
    fn core(&self) -> &AtomicU32 {
        self.mapping.word(self.offset(Word::Head) + size_of::<u32>())
    }

    fn ask(&self, word: Word, how: Ask) {
        match how {
            Ask::Nothing => protocol::ask_no_more(self.word(word)),
            Ask::Futex | Ask::Bell => protocol::ask(self.word(word), how.word()),
        }
    }

    fn park(&self, word: Word, time: Option<Duration>) -> bool {
        self.mapping.futex_wait(self.offset(word), protocol::PARKED, time)
    }

    /// Ends a [`park`](Self::park) of this process's own threads. Another wish stays.
    fn unpark(&self, word: Word) {
        // Either sees the wish of who is about to park, or is seen by him in what the caller has written before (asked).
        let _ = self.word(word).compare_exchange(protocol::PARKED, protocol::AWAKE, Ordering::SeqCst, Ordering::SeqCst);
        self.mapping.futex_wake(self.offset(word));
    }
}

/// The reading side of the incoming ring.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(End<'a>);

impl Reader<'_> {
    /// Copies octets out, as many as there are and fit: their number, and whether the peer's bell is to be rung.
    ///
    /// # Errors
    /// `InvalidData` if the peer has written nonsense where its counter is.
    #[inline]
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<(usize, bool)> {
        let position = &self.0.direction.position;
        let there = position.filled(&self.0).map_err(corrupt)? as usize;
        let count = there.min(buffer.len());
        if count == 0 {
            return Ok((0, false));
        }
        let (at, to_end) = self.0.place(position.own());
        let (front, back) = buffer[..count].split_at_mut(count.min(to_end));
        self.0.mapping.copy_out(at, front);
        if !back.is_empty() {
            self.0.mapping.copy_out(self.0.direction.octets, back);
        }
        // No more than the capacity, which fits.
        let wish = position.consumed(&self.0, count as u32);
        Ok((count, self.0.grant(wish, Word::Writer)))
    }

    /// Whether there is nothing to read.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    #[inline]
    pub fn is_empty(&self) -> io::Result<bool> {
        self.0.direction.position.filled(&self.0).map(|there| there == 0).map_err(corrupt)
    }

    /// The core on which the peer says that it last wrote.
    #[inline]
    pub fn peers_core(&self) -> Option<usize> {
        self.0.core().load(Ordering::Relaxed).checked_sub(1).map(|core| core as usize)
    }

    /// Whether the peer says that it writes no more; what it wrote before is there then.
    #[inline]
    pub fn has_ended(&self) -> bool {
        self.0.flag(Word::Ended)
    }

    /// Says how this side waits. Whether there is something to wait for is to be looked at afterwards.
    #[inline]
    pub fn ask(&self, how: Ask) {
        self.0.ask(Word::Reader, how);
    }

    /// Sleeps until woken, `time` at most where one is given, if [`Ask::Futex`] was asked for; may return early. True if the time is over.
    pub fn park(&self, time: Option<Duration>) -> bool {
        self.0.park(Word::Reader, time)
    }

    /// Wakes the own thread that parks here.
    pub fn unpark(&self) {
        self.0.unpark(Word::Reader);
    }

    /// Tells the peer that nothing more is read. True if its bell is to be rung.
    pub fn abandon(&self) -> bool {
        let wish = protocol::raise(&self.0, Word::Abandoned, Word::Writer);
        self.0.grant(wish, Word::Writer)
    }
}

/// The writing side of the outgoing ring.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a>(End<'a>);

impl Writer<'_> {
    /// Copies octets of `slices` in, in order, as many as there is room for: their number, and whether the peer's bell is to be rung.
    ///
    /// # Errors
    /// `InvalidData` if the peer has written nonsense where its counter is.
    #[inline]
    pub fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<(usize, bool)> {
        let position = &self.0.direction.position;
        let wanted = slices.iter().fold(0usize, |sum, slice| sum.saturating_add(slice.len()));
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX).min(self.0.direction.capacity);
        let mut left = position.room(&self.0, wanted).map_err(corrupt)?.min(wanted) as usize;
        let total = left;
        let mut at = position.own();
        for slice in slices {
            let now = &slice[..slice.len().min(left)];
            self.copy_in(at, now);
            // No more than the capacity, which fits.
            at = at.wrapping_add(now.len() as u32);
            left -= now.len();
            if left == 0 {
                break;
            }
        }
        if total == 0 {
            return Ok((0, false));
        }
        let wish = position.written(&self.0, total as u32);
        Ok((total, self.0.grant(wish, Word::Reader)))
    }

    /// Tells the reader on which core it is written next; none if that is not known.
    #[inline]
    pub fn tell_core(&self, core: Option<usize>) {
        let told = core.and_then(|core| u32::try_from(core + 1).ok()).unwrap_or(0);
        // Also where it has not changed: the line is fetched for writing while the octets are copied, before the counter is written.
        self.0.core().store(told, Ordering::Relaxed);
    }

    #[inline]
    fn copy_in(&self, at: u32, octets: &[u8]) {
        let (place, to_end) = self.0.place(at);
        let (front, back) = octets.split_at(octets.len().min(to_end));
        self.0.mapping.copy_in(place, front);
        if !back.is_empty() {
            self.0.mapping.copy_in(self.0.direction.octets, back);
        }
    }

    /// Whether there is no room.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn is_full(&self) -> io::Result<bool> {
        self.0.direction.position.room(&self.0, 1).map(|room| room == 0).map_err(corrupt)
    }

    /// Whether the peer says that it reads no more.
    #[inline]
    pub fn is_abandoned(&self) -> bool {
        self.0.flag(Word::Abandoned)
    }

    /// Says how this side waits. Whether there is something to wait for is to be looked at afterwards.
    pub fn ask(&self, how: Ask) {
        self.0.ask(Word::Writer, how);
    }

    /// Sleeps until woken, `time` at most where one is given, if [`Ask::Futex`] was asked for; may return early. True if the time is over.
    pub fn park(&self, time: Option<Duration>) -> bool {
        self.0.park(Word::Writer, time)
    }

    /// Wakes the own thread that parks here.
    pub fn unpark(&self) {
        self.0.unpark(Word::Writer);
    }

    /// Tells the peer that nothing more is written. True if its bell is to be rung.
    pub fn end(&self) -> bool {
        let wish = protocol::raise(&self.0, Word::Ended, Word::Reader);
        self.0.grant(wish, Word::Reader)
    }
}

#[cold]
fn corrupt(_: Corrupt) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the peer spoiled the shared memory")
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn pair(octets: u32) -> (Rings, Rings) {
        let sizes = Sizes::at_least(octets, octets);
        let (client, fd) = Rings::create(sizes).unwrap();
        let server = Rings::open(fd.as_fd(), sizes).unwrap();
        (server, client)
    }

    #[test]
    fn octets_come_out_as_they_went_in_across_the_end_of_the_ring() {
        let (server, client) = pair(4096);
        let sent: Vec<u8> = (0..40_000u32).map(|n| (n / 7) as u8).collect();
        let (mut at, mut received) = (0, Vec::<u8>::new());
        while received.len() < sent.len() {
            let rest = &sent[at..];
            let (one, two) = rest.split_at(rest.len().min(333));
            at += client.writer().write(&[IoSlice::new(one), IoSlice::new(b""), IoSlice::new(two)]).unwrap().0;
            let mut buffer = [0; 1777];
            let (count, _) = server.reader().read(&mut buffer).unwrap();
            received.extend(&buffer[..count]);
        }
        assert_eq!(received, sent);
        assert!(server.reader().is_empty().unwrap() && !client.writer().is_full().unwrap());
    }

    #[test]
    fn memory_that_can_shrink_is_not_mapped() {
        let sizes = Sizes::at_least(4096, 4096);
        let refused = |fd: BorrowedFd<'_>, sizes| Rings::open(fd, sizes).unwrap_err().kind();
        let (_client, fd) = Rings::create(sizes).unwrap();
        let file = std::fs::File::from(fd.try_clone().unwrap());
        file.set_len(0).unwrap_err();
        file.set_len(1 << 20).unwrap_err();
        assert_eq!(refused(fd.as_fd(), Sizes::at_least(8192, 4096)), io::ErrorKind::InvalidData);
        let plain = std::fs::File::open("/dev/zero").unwrap();
        assert_eq!(refused(plain.as_fd(), sizes), io::ErrorKind::InvalidData);
        // SAFETY: the name is a constant, NUL-terminated string; the descriptor is nobody else's.
        let open = unsafe {
            use std::os::fd::FromRawFd;
            OwnedFd::from_raw_fd(libc::memfd_create(c"test".as_ptr(), libc::MFD_ALLOW_SEALING))
        };
        std::fs::File::from(open.try_clone().unwrap()).set_len(sizes.memory() as u64).unwrap();
        assert_eq!(refused(open.as_fd(), sizes), io::ErrorKind::InvalidData);
        assert!(Sizes::exactly(4096, 8192).is_some() && Sizes::exactly(4097, 8192).is_none());
        assert!(Sizes::exactly(2048, 4096).is_none() && Sizes::exactly(4096, 1 << 27).is_none());
    }

    /// A peer that writes anything anywhere at any time: every operation ends, with octets or with an error.
    #[test]
    fn a_peer_that_scribbles_does_no_harm() {
        let (server, client) = pair(4096);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let scribbler = scope.spawn(|| {
                let mut state = 0x9e37_79b9_7f4a_7c15u64;
                while !stop.load(Ordering::Relaxed) {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    let offset = (state >> 32) as usize % (client.mapping_length() / 4) * 4;
                    // Mostly where it hurts.
                    let offset = if state & 3 == 0 { offset } else { offset % (2 * CONTROL) / LINES * LINES };
                    let value = if state & 4 == 0 { state as u32 } else { (state as u32) % 5000 };
                    client.mapping.word(offset).store(value, Ordering::Relaxed);
                }
            });
            let mut errors = 0;
            let mut buffer = [0; 5000];
            for _ in 0..20_000 {
                let read = server.reader().read(&mut buffer);
                let written = server.writer().write(&[IoSlice::new(&buffer)]);
                for outcome in [read, written] {
                    match outcome {
                        Ok((count, _)) => assert!(count <= 4096),
                        Err(error) => {
                            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
                            errors += 1;
                        }
                    }
                }
                server.reader().ask(Ask::Futex);
                server.reader().park(Some(Duration::from_micros(1)));
            }
            stop.store(true, Ordering::Relaxed);
            scribbler.join().unwrap();
            assert!(errors > 0);
        });
    }

    impl Rings {
        fn mapping_length(&self) -> usize {
            OCTETS + self.incoming.capacity as usize + self.outgoing.capacity as usize
        }
    }

    #[test]
    fn the_writers_core_is_told_and_nonsense_is_only_another_core() {
        let (server, client) = pair(4096);
        assert_eq!(server.reader().peers_core(), None);
        client.writer().tell_core(Some(3));
        assert_eq!((server.reader().peers_core(), client.reader().peers_core()), (Some(3), None));
        client.writer().tell_core(None);
        assert_eq!(server.reader().peers_core(), None);
        server.reader().0.core().store(u32::MAX, Ordering::Relaxed);
        assert_eq!(server.reader().peers_core(), Some(u32::MAX as usize - 1));
    }

    #[test]
    fn who_is_woken_from_outside_keeps_another_wish() {
        let (server, client) = pair(4096);
        server.reader().ask(Ask::Futex);
        server.reader().unpark();
        assert!(!server.reader().park(None), "the wish to sleep is gone");
        server.reader().ask(Ask::Bell);
        server.reader().unpark();
        assert!(client.writer().write(&[IoSlice::new(b"a")]).unwrap().1);
    }

    #[test]
    fn who_parks_is_woken_and_who_wants_the_bell_is_told_of() {
        let (server, client) = pair(4096);
        // At first both sides want the bell.
        assert!(client.writer().write(&[IoSlice::new(b"a")]).unwrap().1);
        assert!(!client.writer().write(&[IoSlice::new(b"b")]).unwrap().1);
        let mut buffer = [0; 4096];
        assert_eq!(server.reader().read(&mut buffer).unwrap(), (2, false));
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut buffer = [0; 8];
                loop {
                    server.reader().ask(Ask::Futex);
                    let (count, _) = server.reader().read(&mut buffer).unwrap();
                    if count > 0 || server.reader().has_ended() {
                        return count;
                    }
                    server.reader().park(Some(Duration::from_secs(60)));
                }
            });
            client.writer().write(&[IoSlice::new(b"c")]).unwrap();
            assert_eq!(reader.join().unwrap(), 1);
        });
        while !client.writer().is_full().unwrap() {
            client.writer().write(&[IoSlice::new(&buffer)]).unwrap();
        }
        client.writer().ask(Ask::Bell);
        assert!(client.writer().is_full().unwrap());
        assert_eq!(server.reader().read(&mut buffer[..4]).unwrap(), (4, false));
        assert_eq!(server.reader().read(&mut buffer).unwrap(), (4092, true));
        client.writer().ask(Ask::Bell);
        assert!(server.reader().abandon() && client.writer().is_abandoned());
        server.reader().ask(Ask::Bell);
        assert!(client.writer().end() && server.reader().has_ended());
    }
}
