//! The receive buffer: memory that is there only as far as octets have arrived.
//!
//! Up to 64 KiB a [`Buffer`] is ordinary heap memory that is kept for the next message. Beyond, it is a reservation of
//! addresses, whose pages the kernel provides when octets are written to them: a peer that announces 60 MiB and sends
//! nothing costs an entry in a table. (With all memory locked, reservations are filled at once unless locked with
//! `MCL_ONFAULT`.) Pages that the kernel provides anew cost more than copying to them, so what a large message leaves
//! behind is kept for the next one where a program asks for that ([`Spares`]).
//!
//! Invariant (`window`): `start <= end <= capacity`; octets from `start` to `end` have arrived and were not consumed, and all
//! memory is initialised (zero, or what was there before), so that spare room is an ordinary slice.
//!
//! A buffer is itself an owner of octets (`AsRef<[u8]> + Send + Sync + 'static`) that a reference-counted slice can be
//! made of; its memory goes back when the last part of it is dropped.

mod reservation;

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::slice;

use reservation::Reservation;
pub use reservation::Spares;

use crate::socket::{self, Wait};

/// The size up to which a buffer is heap memory.
pub const RESERVE_ABOVE: usize = 64 * 1024;
const SMALLEST: usize = 4 * 1024;

/// Memory that is owned, with its address beside its owner: a message looks at it several times.
struct Memory {
    octets: NonNull<u8>,
    length: usize,
    owner: Owner,
}

enum Owner {
    /// A boxed slice of that address and length.
    Heap,
    Reserved(Reservation),
}

// SAFETY: it owns the octets, of which a shared reference gives shared access only.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn heap(octets: Box<[u8]>) -> Self {
        let length = octets.len();
        // SAFETY: what a box points to is not null.
        let octets = unsafe { NonNull::new_unchecked(Box::into_raw(octets).cast()) };
        Memory { octets, length, owner: Owner::Heap }
    }

    fn reserved(length: usize, spares: Option<&Spares>) -> io::Result<Self> {
        let reservation = Reservation::new(length, spares)?;
        Ok(Memory { octets: reservation.octets(), length, owner: Owner::Reserved(reservation) })
    }
}

impl Deref for Memory {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the owner's octets, all of them initialised, for as long as it is borrowed.
        unsafe { slice::from_raw_parts(self.octets.as_ptr(), self.length) }
    }
}

impl DerefMut for Memory {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and it is borrowed by nobody else.
        unsafe { slice::from_raw_parts_mut(self.octets.as_ptr(), self.length) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Owner::Heap = self.owner {
            // SAFETY: `heap` made this of a box, which nobody else has.
            drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(self.octets.as_ptr(), self.length)) });
        }
    }
}

/// Octets received and not consumed yet, and room for more. Dereferences to the octets.
pub struct Buffer {
    memory: Memory,
    start: usize,
    end: usize,
}

impl Buffer {
    /// An empty buffer without memory.
    pub fn new() -> Self {
        Self { memory: Memory::heap(Box::default()), start: 0, end: 0 }
    }

    /// An empty buffer with room for at least `octets`.
    ///
    /// # Errors
    /// `OutOfMemory` when no such range of addresses is free.
    pub fn with_capacity(octets: usize) -> io::Result<Self> {
        let mut buffer = Self::new();
        buffer.reserve(octets)?;
        Ok(buffer)
    }

    /// Octets that the memory holds, used or not.
    pub fn capacity(&self) -> usize {
        self.memory.len()
    }

    /// Octets of memory that are there however little has arrived: all of heap memory, and of a reservation what this
    /// message or earlier ones in the same memory have filled.
    pub fn committed(&self) -> usize {
        match &self.memory.owner {
            Owner::Heap => self.capacity(),
            Owner::Reserved(reservation) => reservation.touched().max(self.end),
        }
    }

    /// Makes room so that `total` octets, counted from the first one not consumed, fit. Octets are moved only
    /// if they must be. Memory beyond what has arrived is not touched.
    ///
    /// # Errors
    /// `OutOfMemory` when no such range of addresses is free. The buffer is as before then.
    pub fn reserve(&mut self, total: usize) -> io::Result<()> {
        self.reserve_among(total, None)
    }

    /// The same, where large memory is one of `spares` if there is one, and becomes one of them afterwards.
    ///
    /// # Errors
    /// As [`reserve`](Self::reserve).
    #[inline]
    pub fn reserve_from(&mut self, total: usize, spares: &Spares) -> io::Result<()> {
        self.reserve_among(total, Some(spares))
    }

    #[inline]
    fn reserve_among(&mut self, total: usize, spares: Option<&Spares>) -> io::Result<()> {
        if total <= self.capacity() - self.start { Ok(()) } else { self.make_room(total, spares) }
    }

    #[cold]
    fn make_room(&mut self, total: usize, spares: Option<&Spares>) -> io::Result<()> {
        if total <= self.capacity() {
            self.note_touched();
            self.memory.copy_within(self.start..self.end, 0);
        } else {
            let mut memory = allocate(total, spares)?;
            memory[..self.end - self.start].copy_from_slice(&self.memory[self.start..self.end]);
            self.note_touched();
            self.memory = memory;
        }
        self.end -= self.start;
        self.start = 0;
        Ok(())
    }

    /// The room after the octets that have arrived.
    #[inline]
    pub fn spare(&mut self) -> &mut [u8] {
        // SAFETY: within the memory (window).
        unsafe { self.memory.get_unchecked_mut(self.end..) }
    }

    /// Says that the first `count` octets of [`spare`](Self::spare) were written.
    ///
    /// # Panics
    /// When there is less room.
    #[inline]
    pub fn filled(&mut self, count: usize) {
        assert!(count <= self.capacity() - self.end, "more octets than room");
        self.end += count;
    }

    /// Says that the first `count` octets are done with.
    ///
    /// # Panics
    /// When fewer are there.
    #[inline]
    pub fn consume(&mut self, count: usize) {
        assert!(count <= self.end - self.start, "more octets than there are");
        if count == self.end - self.start {
            self.clear();
        } else {
            self.start += count;
        }
    }

    /// Receives once into the spare room; zero is the end of the stream, or no room.
    ///
    /// # Errors
    /// As [`socket::recv`].
    #[inline]
    pub fn receive(&mut self, fd: BorrowedFd<'_>, wait: Wait) -> io::Result<usize> {
        let count = socket::recv(fd, self.spare(), wait)?;
        self.filled(count);
        Ok(count)
    }

    /// Moves all octets from the `at`th on to the (emptied) `other` buffer: the message goes its way with this one, and
    /// reading goes on in the other.
    ///
    /// # Errors
    /// `OutOfMemory`; nothing has changed then except that `other` is empty.
    ///
    /// # Panics
    /// When fewer than `at` octets are there.
    pub fn split_off_into(&mut self, at: usize, other: &mut Self) -> io::Result<()> {
        let surplus = &self[at..];
        other.clear();
        if !surplus.is_empty() {
            let spares = match &self.memory.owner {
                Owner::Reserved(reservation) if surplus.len() > RESERVE_ABOVE => reservation.spares(),
                _ => None,
            };
            other.reserve_among(surplus.len(), spares.as_ref())?;
            other.memory[..surplus.len()].copy_from_slice(surplus);
            other.end = surplus.len();
        }
        self.note_touched();
        self.end = self.start + at;
        Ok(())
    }

    /// Octets up to `end` have been written; called before it decreases, and before the memory goes.
    #[inline]
    fn note_touched(&mut self) {
        if let Owner::Reserved(reservation) = &mut self.memory.owner {
            std::hint::cold_path();
            reservation.touch(self.end);
        }
    }

    /// Forgets all octets and keeps the memory.
    #[inline]
    pub fn clear(&mut self) {
        self.note_touched();
        self.start = 0;
        self.end = 0;
    }

    /// Forgets all octets; gives memory back if it is more than `octets`.
    pub fn reset(&mut self, octets: usize) {
        self.clear();
        if self.capacity() > octets {
            self.memory = Memory::heap(Box::default());
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.note_touched();
    }
}

impl Default for Buffer {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: within the memory (window).
        unsafe { self.memory.get_unchecked(self.start..self.end) }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("len", &self.len())
            .field("start", &self.start)
            .field("capacity", &self.capacity())
            .finish()
    }
}

fn allocate(octets: usize, spares: Option<&Spares>) -> io::Result<Memory> {
    if octets <= RESERVE_ABOVE {
        return Ok(Memory::heap(vec![0; octets.next_power_of_two().max(SMALLEST)].into_boxed_slice()));
    }
    Memory::reserved(octets, spares)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn octets_arrive_are_consumed_and_moved_only_if_they_must() {
        let mut buffer = Buffer::new();
        assert_eq!((buffer.capacity(), buffer.len()), (0, 0));
        buffer.reserve(10).unwrap();
        assert_eq!(buffer.capacity(), SMALLEST);
        buffer.spare()[..6].copy_from_slice(b"abcdef");
        buffer.filled(6);
        buffer.consume(2);
        assert_eq!(&*buffer, b"cdef");
        buffer.reserve(SMALLEST).unwrap();
        assert_eq!((buffer.capacity(), &*buffer, buffer.start), (SMALLEST, &b"cdef"[..], 0));
        buffer.consume(1);
        buffer.reserve(1 << 20).unwrap();
        assert!(matches!(buffer.memory.owner, Owner::Reserved(_)));
        assert_eq!((buffer.capacity(), &*buffer), (1 << 20, &b"def"[..]));
        let mut other = Buffer::new();
        buffer.split_off_into(1, &mut other).unwrap();
        assert_eq!((&*buffer, &*other, other.capacity()), (&b"d"[..], &b"ef"[..], SMALLEST));
        buffer.consume(1);
        assert_eq!((buffer.start, buffer.end), (0, 0));
        buffer.reset(RESERVE_ABOVE);
        assert_eq!(buffer.capacity(), 0);
        buffer.reserve(usize::MAX).unwrap_err();
        assert_eq!(buffer.capacity(), 0);
    }

    #[test]
    fn a_large_message_arrives_in_parts_and_is_shared() {
        let (near, far) = socket::pair().unwrap();
        let sent: Vec<u8> = (0..300_000u32).map(|n| n as u8).collect();
        let copy = sent.clone();
        let sender = std::thread::spawn(move || {
            let mut rest = &copy[..];
            while !rest.is_empty() {
                rest = &rest[socket::send(near.as_fd(), rest, Wait::Block).unwrap()..];
            }
        });
        let mut buffer = Buffer::with_capacity(sent.len()).unwrap();
        while buffer.receive(far.as_fd(), Wait::Block).unwrap() > 0 {}
        sender.join().unwrap();
        let owner: std::sync::Arc<dyn AsRef<[u8]> + Send + Sync> = std::sync::Arc::new(buffer);
        let other = std::sync::Arc::clone(&owner);
        let thread = std::thread::spawn(move || (*other).as_ref().len());
        assert_eq!(thread.join().unwrap(), sent.len());
        assert_eq!((*owner).as_ref(), sent);
    }

    #[test]
    #[should_panic(expected = "more octets than room")]
    fn room_is_not_exceeded() {
        Buffer::with_capacity(1).unwrap().filled(SMALLEST + 1);
    }
}
