//! The two rings of a connection, mapped into this process.

use std::io::{self, IoSlice};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::mapping::{self, SharedMapping};
use super::protocol::{self, ControlWord, ControlWords, CorruptCounter, RingPosition, WakeRequest};

const OCTETS: usize = 4096;
const CONTROL: usize = 1024;
const SHARED_WORDS: usize = 2 * CONTROL;
/// Distance in bytes between control words: two cache lines of 64 bytes, because some processors
/// fetch lines in pairs.
const LINES: usize = 128;

/// The capacities of both rings, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSizes {
    to_server: u32,
    to_client: u32,
}

impl RingSizes {
    /// Smallest capacity of a ring in bytes.
    pub const MIN: u32 = 4096;
    /// Largest capacity of a ring in bytes.
    pub const MAX: u32 = 64 << 20;

    /// Rounds each number of bytes up to a capacity: a power of two from [`MIN`](Self::MIN) to
    /// [`MAX`](Self::MAX). A number above the maximum becomes the maximum.
    #[must_use]
    pub fn at_least(to_server: u32, to_client: u32) -> Self {
        let size = |octets: u32| octets.clamp(Self::MIN, Self::MAX).next_power_of_two();
        RingSizes { to_server: size(to_server), to_client: size(to_client) }
    }

    /// Returns these capacities, in bytes; `None` if one of them is not a power of two from
    /// [`MIN`](Self::MIN) to [`MAX`](Self::MAX).
    #[must_use]
    pub fn exactly(to_server: u32, to_client: u32) -> Option<Self> {
        let sizes = Self::at_least(to_server, to_client);
        (sizes.to_server == to_server && sizes.to_client == to_client).then_some(sizes)
    }

    /// Returns the capacity in bytes of the ring to the server.
    #[must_use]
    pub fn to_server(self) -> u32 {
        self.to_server
    }

    /// Returns the capacity in bytes of the ring to the client.
    #[must_use]
    pub fn to_client(self) -> u32 {
        self.to_client
    }

    fn memory(self) -> usize {
        OCTETS + self.to_server as usize + self.to_client as usize
    }
}

/// The method by which the peer wakes a waiting side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeMethod {
    /// No wake-up: the side polls.
    None,
    /// The side sleeps on a futex, in [`RingReader::park`] or [`RingWriter::park`].
    Futex,
    /// The side waits for the connection's bell, a byte on its socket.
    SocketByte,
}

impl WakeMethod {
    fn word(self) -> u32 {
        match self {
            WakeMethod::None => protocol::AWAKE,
            WakeMethod::Futex => protocol::PARKED,
            WakeMethod::SocketByte => protocol::BELL,
        }
    }
}

/// The end of a sleep in [`RingReader::park`] or [`RingWriter::park`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParkResult {
    /// The thread was woken, or returned early.
    Woken,
    /// The time has passed.
    TimedOut,
}

/// A word in the rings' memory that one side sets and the other side reads. Each word is 0 at
/// first, and stays 0 if the program of the side that sets it has no such word. The values are
/// hints, because the peer can change every word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedWord {
    /// Amount of memory that may be lent to the server, in units that the sides agree on.
    ServerLendingLimit,
    /// Amount of memory that may be lent to the client, in the same units.
    ClientLendingLimit,
    /// The first word of the name by which the server knows the connection.
    ConnectionNameWord0,
    /// The second word of the connection's name.
    ConnectionNameWord1,
    /// The third word of the connection's name.
    ConnectionNameWord2,
    /// Not 0 after the server has found the channel for lent memory.
    IsChannelFound,
    /// Not 0 after the server has had memory to lend, but no channel for it.
    IsChannelWanted,
    /// The number of lent files that the server has taken from the channel, modulo 2^32.
    ServerTakenFileCount,
    /// The number of lent files that the client has taken from the channel, modulo 2^32.
    ClientTakenFileCount,
}

/// One end of a connection: a ring to read and a ring to write.
#[derive(Debug)]
pub struct RingPair {
    mapping: SharedMapping,
    incoming: RingDirection,
    outgoing: RingDirection,
}

#[derive(Debug)]
struct RingDirection {
    control: usize,
    octets: usize,
    capacity: u32,
    position: RingPosition,
}

impl RingPair {
    /// Creates new rings. Returns the client's end, and the descriptor for the server's end.
    ///
    /// # Errors
    /// If the process is out of descriptors, memory or addresses.
    pub fn create(sizes: RingSizes) -> io::Result<(Self, OwnedFd)> {
        let (fd, mapping) = mapping::create_mapped(sizes.memory())?;
        let [to_server, to_client] = directions(sizes);
        let rings = RingPair { mapping, incoming: to_client, outgoing: to_server };
        // Initially both sides request the bell ([`WakeMethod::SocketByte`]), so that a side that
        // waits until its socket is readable notices the first bytes.
        for end in [&rings.incoming, &rings.outgoing] {
            protocol::set_wake_word(rings.side(end).word(ControlWord::Reader), protocol::BELL);
        }
        Ok((rings, fd))
    }

    /// Opens the server's end of rings that a client created.
    ///
    /// # Errors
    /// `InvalidData` if `fd` is not memory of the size that follows from `sizes`, if no seal fixes
    /// its size, or if a seal forbids writing. Another error if the process is out of addresses.
    pub fn open(fd: BorrowedFd<'_>, sizes: RingSizes) -> io::Result<Self> {
        mapping::check(fd, sizes.memory())?;
        let mapping = SharedMapping::new(fd, sizes.memory())?;
        let [to_server, to_client] = directions(sizes);
        Ok(RingPair { mapping, incoming: to_server, outgoing: to_client })
    }

    /// Returns the reading side of the ring that the peer writes.
    #[inline]
    pub fn reader(&self) -> RingReader<'_> {
        RingReader(self.side(&self.incoming))
    }

    /// Returns the writing side of the ring that the peer reads.
    #[inline]
    pub fn writer(&self) -> RingWriter<'_> {
        RingWriter(self.side(&self.outgoing))
    }

    fn shared_word(&self, word: SharedWord) -> &AtomicU32 {
        self.mapping.word(SHARED_WORDS + word as usize * size_of::<u32>())
    }

    /// Returns the value of a word, 0 if no side has set it.
    pub fn published_word(&self, word: SharedWord) -> u32 {
        // Acquire: pairs with `publish_word`.
        self.shared_word(word).load(Ordering::Acquire)
    }

    /// Sets the value of a word for the peer. A side that reads the value also sees the values that
    /// were set earlier.
    pub fn publish_word(&self, word: SharedWord, value: u32) {
        self.shared_word(word).store(value, Ordering::Release);
    }

    #[inline]
    fn side<'a>(&'a self, direction: &'a RingDirection) -> RingSide<'a> {
        RingSide { mapping: &self.mapping, direction }
    }
}

fn directions(sizes: RingSizes) -> [RingDirection; 2] {
    let direction =
        |control, octets, capacity| RingDirection { control, octets, capacity, position: RingPosition::new(capacity) };
    let second = OCTETS + sizes.to_server as usize;
    [direction(0, OCTETS, sizes.to_server), direction(CONTROL, second, sizes.to_client)]
}

#[derive(Clone, Copy, Debug)]
struct RingSide<'a> {
    mapping: &'a SharedMapping,
    direction: &'a RingDirection,
}

impl ControlWords for RingSide<'_> {
    #[inline]
    fn word(&self, word: ControlWord) -> &AtomicU32 {
        self.mapping.word(self.offset(word))
    }
}

impl RingSide<'_> {
    #[inline]
    fn offset(&self, word: ControlWord) -> usize {
        let line = |word| self.direction.control + word as usize * LINES;
        match word {
            // `Continues` shares the cache line of `Head`, after the word for the writer's core.
            ControlWord::Continues => line(ControlWord::Head) + 2 * size_of::<u32>(),
            word => line(word),
        }
    }

    /// Returns the offset of a byte in the mapping, and the number of bytes from there to the end
    /// of the ring. `number` counts the bytes since the connection began, modulo 2^32.
    #[inline]
    fn locate(&self, number: u32) -> (usize, usize) {
        let at = number & (self.direction.capacity - 1);
        (self.direction.octets + at as usize, (self.direction.capacity - at) as usize)
    }

    /// Fulfils the peer's wake request: wakes the peer if it sleeps on its futex. Returns true if
    /// the peer has requested the bell; the caller must then ring it.
    #[inline]
    fn deliver_wake(&self, wish: WakeRequest, word: ControlWord) -> bool {
        match wish {
            WakeRequest::None => false,
            WakeRequest::Futex => {
                self.mapping.futex_wake(self.offset(word));
                false
            }
            WakeRequest::Bell => true,
        }
    }

    fn flag(&self, word: ControlWord) -> bool {
        // Acquire: pairs with `raise_flag`.
        self.word(word).load(Ordering::Acquire) != 0
    }

    /// Returns the word with the core that the owner of `counter` has last published: the core's
    /// number plus one; 0 means unknown.
    #[inline]
    fn core(&self, counter: ControlWord) -> &AtomicU32 {
        self.mapping.word(self.offset(counter) + size_of::<u32>())
    }

    #[inline]
    fn peer_core(&self, counter: ControlWord) -> Option<usize> {
        self.core(counter).load(Ordering::Relaxed).checked_sub(1).map(|core| core as usize)
    }

    #[inline]
    fn publish_core(&self, counter: ControlWord, core: Option<usize>) {
        let number = core.and_then(|core| u32::try_from(core + 1).ok()).unwrap_or(0);
        // The store is made even if the value is unchanged: it makes the processor fetch the cache
        // line for writing while the bytes are copied.
        self.core(counter).store(number, Ordering::Relaxed);
    }

    fn set_wake_method(&self, word: ControlWord, how: WakeMethod) {
        match how {
            WakeMethod::None => protocol::clear_wake_word(self.word(word)),
            WakeMethod::Futex | WakeMethod::SocketByte => protocol::set_wake_word(self.word(word), how.word()),
        }
    }

    fn park(&self, word: ControlWord, time: Option<Duration>) -> ParkResult {
        let has_timed_out = self.mapping.futex_wait(self.offset(word), protocol::PARKED, time);
        if has_timed_out { ParkResult::TimedOut } else { ParkResult::Woken }
    }

    /// Wakes the thread of this process that sleeps in [`park`](Self::park). Does not change a
    /// request for the bell.
    fn unpark(&self, word: ControlWord) {
        // Either a thread that is about to park sees the caller's earlier stores, or this exchange
        // sees the request of that thread (rule `requested`).
        let _ = self.word(word).compare_exchange(protocol::PARKED, protocol::AWAKE, Ordering::SeqCst, Ordering::SeqCst);
        self.mapping.futex_wake(self.offset(word));
    }
}

/// The reading side of the incoming ring.
#[derive(Clone, Copy, Debug)]
pub struct RingReader<'a>(RingSide<'a>);

impl RingReader<'_> {
    /// Copies available bytes into `buffer`. Returns their number, and true if the caller must ring
    /// the peer's [bell](WakeMethod::SocketByte).
    ///
    /// # Errors
    /// `InvalidData` if the peer's counter has an impossible value.
    #[inline]
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<(usize, bool)> {
        let position = &self.0.direction.position;
        let there = position.readable_bytes(&self.0).map_err(corrupt)? as usize;
        let count = there.min(buffer.len());
        if count == 0 {
            return Ok((0, false));
        }
        let (at, to_end) = self.0.locate(position.own());
        let (front, back) = buffer[..count].split_at_mut(count.min(to_end));
        self.0.mapping.copy_out(at, front);
        if !back.is_empty() {
            self.0.mapping.copy_out(self.0.direction.octets, back);
        }
        let wish = position.commit_read(&self.0, count as u32);
        Ok((count, self.0.deliver_wake(wish, ControlWord::Writer)))
    }

    /// Returns true if there are no bytes to read.
    ///
    /// # Errors
    /// As for [`read`](Self::read).
    #[inline]
    pub fn is_empty(&self) -> io::Result<bool> {
        self.0.direction.position.readable_bytes(&self.0).map(|there| there == 0).map_err(corrupt)
    }

    /// Returns true if the peer has written bytes that no thread of this process has read. Any
    /// thread may call this function. While another thread reads, the result is a hint.
    #[inline]
    pub fn has_arrived(&self) -> bool {
        self.0.direction.position.has_arrived(&self.0)
    }

    /// Returns the core on which the peer last wrote, according to the peer; `None` if unknown.
    #[inline]
    pub fn peer_core(&self) -> Option<usize> {
        self.0.peer_core(ControlWord::Head)
    }

    /// Returns true if the peer has announced that more bytes of the message follow at once. The
    /// caller must first call [`read`](Self::read) or [`is_empty`](Self::is_empty), which load the
    /// peer's counter.
    #[inline]
    pub fn has_more_announced(&self) -> bool {
        protocol::has_more_announced(&self.0)
    }

    /// Tells the writer the core on which this side reads; `None` if unknown.
    #[inline]
    pub fn publish_core(&self, core: Option<usize>) {
        self.0.publish_core(ControlWord::Tail, core);
    }

    /// Returns the capacity of the ring in bytes.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.0.direction.capacity as usize
    }

    /// Returns true if the peer has announced that it writes no more. All bytes that the peer wrote
    /// are then readable.
    #[inline]
    pub fn is_writing_ended(&self) -> bool {
        self.0.flag(ControlWord::Ended)
    }

    /// Sets the method by which the peer wakes this side. After the call and before it waits, the
    /// caller must check the ring for bytes.
    #[inline]
    pub fn set_wake_method(&self, how: WakeMethod) {
        self.0.set_wake_method(ControlWord::Reader, how);
    }

    /// Withdraws a request for the [bell](WakeMethod::SocketByte). Returns true if the request was
    /// withdrawn, so the peer does not ring for it. Returns false if there was no request for the
    /// bell, or the peer has taken it.
    #[inline]
    pub fn cancel_wake_request(&self) -> bool {
        protocol::withdraw_bell(self.0.word(ControlWord::Reader))
    }

    /// Returns the number of bytes that this side has read, modulo 2^32.
    #[inline]
    pub fn position(&self) -> u32 {
        self.0.direction.position.own()
    }

    /// Sleeps until the peer or [`unpark`](Self::unpark) wakes the thread, or `time` has passed
    /// (`None`: no limit). The call may return early. The caller must have set
    /// [`WakeMethod::Futex`].
    pub fn park(&self, time: Option<Duration>) -> ParkResult {
        self.0.park(ControlWord::Reader, time)
    }

    /// Wakes the thread of this process that sleeps in [`park`](Self::park).
    pub fn unpark(&self) {
        self.0.unpark(ControlWord::Reader);
    }

    /// Tells the peer that this side reads no more. Returns true if the caller must ring the peer's
    /// [bell](WakeMethod::SocketByte).
    pub fn announce_reading_end(&self) -> bool {
        let wish = protocol::raise_flag(&self.0, ControlWord::Abandoned, ControlWord::Writer);
        self.0.deliver_wake(wish, ControlWord::Writer)
    }
}

/// The writing side of the outgoing ring.
#[derive(Clone, Copy, Debug)]
pub struct RingWriter<'a>(RingSide<'a>);

impl RingWriter<'_> {
    /// Copies bytes of `slices`, in order, as far as there is room. Returns the number of bytes
    /// copied, and true if the caller must ring the peer's [bell](WakeMethod::SocketByte).
    ///
    /// # Errors
    /// `InvalidData` if the peer's counter has an impossible value.
    #[inline]
    pub fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<(usize, bool)> {
        let wanted = slices.iter().fold(0usize, |sum, slice| sum.saturating_add(slice.len()));
        self.write_part(slices, 0, wanted)
    }

    /// Copies bytes of the concatenated `slices`, starting at the index `skipped`, as far as there
    /// is room and at most `wanted` bytes. Returns the number of bytes copied, and true if the
    /// caller must ring the peer's [bell](WakeMethod::SocketByte).
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    #[inline]
    pub fn write_part(&self, slices: &[IoSlice<'_>], skipped: usize, wanted: usize) -> io::Result<(usize, bool)> {
        let position = &self.0.direction.position;
        let wanted = u32::try_from(wanted).unwrap_or(u32::MAX).min(self.0.direction.capacity);
        let room = position.free_bytes(&self.0, wanted).map_err(corrupt)?.min(wanted) as usize;
        let (mut skipped, mut left) = (skipped, room);
        let mut at = position.own();
        for slice in slices {
            let rest = slice.get(skipped..).unwrap_or_default();
            skipped = skipped.saturating_sub(slice.len());
            let now = &rest[..rest.len().min(left)];
            self.copy_in(at, now);
            at = at.wrapping_add(now.len() as u32);
            left -= now.len();
            if left == 0 {
                break;
            }
        }
        let total = room - left;
        if total == 0 {
            return Ok((0, false));
        }
        let wish = position.commit_write(&self.0, total as u32);
        Ok((total, self.0.deliver_wake(wish, ControlWord::Reader)))
    }

    /// Tells the reader the core on which this side writes the next bytes; `None` if unknown.
    #[inline]
    pub fn publish_core(&self, core: Option<usize>) {
        self.0.publish_core(ControlWord::Head, core);
    }

    /// Tells the reader whether more bytes of the same message follow at once after the next bytes
    /// written.
    #[inline]
    pub fn announce_more(&self, follows: bool) {
        protocol::announce_more(&self.0, follows);
    }

    /// Returns the core on which the peer last read a large message, according to the peer; `None`
    /// if unknown.
    #[inline]
    pub fn peer_core(&self) -> Option<usize> {
        self.0.peer_core(ControlWord::Tail)
    }

    /// Returns the capacity of the ring in bytes.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.0.direction.capacity as usize
    }

    #[inline]
    fn copy_in(&self, at: u32, octets: &[u8]) {
        let (place, to_end) = self.0.locate(at);
        let (front, back) = octets.split_at(octets.len().min(to_end));
        self.0.mapping.copy_in(place, front);
        if !back.is_empty() {
            self.0.mapping.copy_in(self.0.direction.octets, back);
        }
    }

    /// Returns true if the ring has room for `count` bytes; `count` is at most the capacity.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    #[inline]
    pub fn has_room(&self, count: usize) -> io::Result<bool> {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.0.direction.position.free_bytes(&self.0, count).map(|room| room >= count).map_err(corrupt)
    }

    /// Returns true if the peer has announced that it reads no more.
    #[inline]
    pub fn is_reading_ended(&self) -> bool {
        self.0.flag(ControlWord::Abandoned)
    }

    /// Sets the method by which the peer wakes this side. After the call and before it waits, the
    /// caller must check the ring for room.
    pub fn set_wake_method(&self, how: WakeMethod) {
        self.0.set_wake_method(ControlWord::Writer, how);
    }

    /// Sleeps until the peer or [`unpark`](Self::unpark) wakes the thread, or `time` has passed
    /// (`None`: no limit). The call may return early. The caller must have set
    /// [`WakeMethod::Futex`].
    pub fn park(&self, time: Option<Duration>) -> ParkResult {
        self.0.park(ControlWord::Writer, time)
    }

    /// Wakes the thread of this process that sleeps in [`park`](Self::park).
    pub fn unpark(&self) {
        self.0.unpark(ControlWord::Writer);
    }

    /// Tells the peer that this side writes no more. Returns true if the caller must ring the
    /// peer's [bell](WakeMethod::SocketByte).
    pub fn announce_writing_end(&self) -> bool {
        let wish = protocol::raise_flag(&self.0, ControlWord::Ended, ControlWord::Reader);
        self.0.deliver_wake(wish, ControlWord::Reader)
    }
}

#[cold]
fn corrupt(_: CorruptCounter) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the peer wrote an invalid counter to the shared memory")
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::atomic::AtomicBool;

    use super::*;

    fn pair(octets: u32) -> (RingPair, RingPair) {
        let sizes = RingSizes::at_least(octets, octets);
        let (client, fd) = RingPair::create(sizes).unwrap();
        let server = RingPair::open(fd.as_fd(), sizes).unwrap();
        (server, client)
    }

    #[test]
    fn bytes_are_unchanged_across_wrap_around() {
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
        assert!(server.reader().is_empty().unwrap() && client.writer().has_room(1).unwrap());
    }

    #[test]
    fn any_parts_arrive_in_order() {
        let (server, client) = pair(4096);
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 20) as usize % below
        };
        let mut queue = std::collections::VecDeque::<u8>::new();
        let mut next = 0_u8;
        for _ in 0..if cfg!(miri) { 100 } else { 20_000 } {
            let message: Vec<u8> = (0..random(6000)).map(|_| random(256) as u8).collect();
            let (one, rest) = message.split_at(random(message.len() + 1));
            let (two, three) = rest.split_at(random(rest.len() + 1));
            let (skipped, wanted) = (random(message.len() + 100), random(5000));
            let slices = [one, two, three].map(IoSlice::new);
            let room = 4096 - queue.len();
            assert!(client.writer().has_room(room).unwrap() && !client.writer().has_room(room + 1).unwrap());
            let (count, _) = client.writer().write_part(&slices, skipped, wanted).unwrap();
            let expected = message.len().saturating_sub(skipped).min(wanted).min(room);
            assert_eq!(count, expected);
            queue.extend(message.iter().skip(skipped).take(count));
            next = next.wrapping_add(1);
            client.writer().announce_more(next.is_multiple_of(2));
            assert_eq!(server.reader().has_more_announced(), next.is_multiple_of(2));
            let mut buffer = vec![0; random(6000)];
            let (count, _) = server.reader().read(&mut buffer).unwrap();
            assert_eq!(count, queue.len().min(buffer.len()));
            assert!(queue.drain(..count).eq(buffer[..count].iter().copied()));
        }
    }

    #[test]
    fn memory_that_can_shrink_is_not_mapped() {
        let sizes = RingSizes::at_least(4096, 4096);
        let refused = |fd: BorrowedFd<'_>, sizes| RingPair::open(fd, sizes).unwrap_err().kind();
        let (_client, fd) = RingPair::create(sizes).unwrap();
        let file = std::fs::File::from(fd.try_clone().unwrap());
        file.set_len(0).unwrap_err();
        file.set_len(1 << 20).unwrap_err();
        assert_eq!(refused(fd.as_fd(), RingSizes::at_least(8192, 4096)), io::ErrorKind::InvalidData);
        let plain = std::fs::File::open("/dev/zero").unwrap();
        assert_eq!(refused(plain.as_fd(), sizes), io::ErrorKind::InvalidData);
        // SAFETY: the name is a constant, NUL-terminated string; nothing else owns the descriptor.
        let open = unsafe {
            use std::os::fd::FromRawFd;
            OwnedFd::from_raw_fd(libc::memfd_create(c"test".as_ptr(), libc::MFD_ALLOW_SEALING))
        };
        std::fs::File::from(open.try_clone().unwrap()).set_len(sizes.memory() as u64).unwrap();
        assert_eq!(refused(open.as_fd(), sizes), io::ErrorKind::InvalidData);
        assert!(RingSizes::exactly(4096, 8192).is_some() && RingSizes::exactly(4097, 8192).is_none());
        assert!(RingSizes::exactly(2048, 4096).is_none() && RingSizes::exactly(4096, 1 << 27).is_none());
    }

    #[test]
    fn operations_with_a_corrupting_peer_end() {
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
                    let line = offset % (2 * CONTROL) / LINES * LINES;
                    let offset = if state & 3 == 0 { offset } else { line + offset / LINES % 3 * 4 };
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
                if let Ok((count, _)) = server.writer().write_part(&[IoSlice::new(&buffer)], 4000, 4096) {
                    assert!(count <= 1000);
                }
                let _ = (server.writer().has_room(3000), server.reader().has_more_announced());
                server.writer().announce_more(true);
                server.reader().set_wake_method(WakeMethod::Futex);
                server.reader().park(Some(Duration::from_micros(1)));
            }
            stop.store(true, Ordering::Relaxed);
            scribbler.join().unwrap();
            assert!(errors > 0);
        });
    }

    impl RingPair {
        fn mapping_length(&self) -> usize {
            OCTETS + self.incoming.capacity as usize + self.outgoing.capacity as usize
        }
    }

    #[test]
    fn writer_core_is_published_and_any_value_is_harmless() {
        let (server, client) = pair(4096);
        assert_eq!(server.reader().peer_core(), None);
        client.writer().publish_core(Some(3));
        assert_eq!((server.reader().peer_core(), client.reader().peer_core()), (Some(3), None));
        client.writer().publish_core(None);
        assert_eq!(server.reader().peer_core(), None);
        server.reader().0.core(ControlWord::Head).store(u32::MAX, Ordering::Relaxed);
        assert_eq!(server.reader().peer_core(), Some(u32::MAX as usize - 1));
        assert_eq!(client.writer().peer_core(), None);
        server.reader().publish_core(Some(0));
        assert_eq!(client.writer().peer_core(), Some(0));
    }

    #[test]
    fn unpark_keeps_a_bell_request() {
        let (server, client) = pair(4096);
        server.reader().set_wake_method(WakeMethod::Futex);
        server.reader().unpark();
        assert_eq!(
            server.reader().park(None),
            ParkResult::Woken,
            "expected no sleep, because `unpark` cleared the request"
        );
        server.reader().set_wake_method(WakeMethod::SocketByte);
        server.reader().unpark();
        assert!(client.writer().write(&[IoSlice::new(b"a")]).unwrap().1);
    }

    #[test]
    fn parked_side_is_woken_and_bell_request_is_reported() {
        let (server, client) = pair(4096);
        assert!(client.writer().write(&[IoSlice::new(b"a")]).unwrap().1);
        assert!(!client.writer().write(&[IoSlice::new(b"b")]).unwrap().1);
        let mut buffer = [0; 4096];
        assert_eq!(server.reader().read(&mut buffer).unwrap(), (2, false));
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut buffer = [0; 8];
                loop {
                    server.reader().set_wake_method(WakeMethod::Futex);
                    let (count, _) = server.reader().read(&mut buffer).unwrap();
                    if count > 0 || server.reader().is_writing_ended() {
                        return count;
                    }
                    server.reader().park(Some(Duration::from_secs(60)));
                }
            });
            client.writer().write(&[IoSlice::new(b"c")]).unwrap();
            assert_eq!(reader.join().unwrap(), 1);
        });
        while client.writer().has_room(1).unwrap() {
            client.writer().write(&[IoSlice::new(&buffer)]).unwrap();
        }
        client.writer().set_wake_method(WakeMethod::SocketByte);
        assert!(!client.writer().has_room(1).unwrap());
        assert_eq!(server.reader().read(&mut buffer[..4]).unwrap(), (4, false));
        assert_eq!(server.reader().read(&mut buffer).unwrap(), (4092, true));
        client.writer().set_wake_method(WakeMethod::SocketByte);
        assert!(server.reader().announce_reading_end() && client.writer().is_reading_ended());
        server.reader().set_wake_method(WakeMethod::SocketByte);
        assert!(client.writer().announce_writing_end() && server.reader().is_writing_ended());
    }
}
