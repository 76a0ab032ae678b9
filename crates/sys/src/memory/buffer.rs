//! The receive buffer. A large buffer commits memory only for bytes that have arrived.
//!
//! Up to 64 KiB a [`Buffer`] is heap memory. A larger buffer is a reserved address range, whose
//! pages the kernel provides when bytes are written to them ([`RegionCache`] caches such ranges).
//!
//! Invariant (`window`): `start <= end <= capacity`. The bytes from `start` to `end` have arrived
//! and are not consumed. All memory is initialised (with zeros or earlier contents), so the spare
//! capacity is an ordinary slice. In memory that a peer has lent
//! ([`LentFile`](crate::sealed::LentFile)), `end` is the capacity.

mod region;

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::slice;

use region::MappedRegion;
pub use region::{RegionCache, mapped_bytes, mapping_count};

#[cfg(not(loom))]
use crate::sealed::LentMessage;
use crate::socket::{self, WaitMode};

/// Largest size of a buffer in heap memory, in bytes.
pub const MAX_HEAP_BYTES: usize = 64 * 1024;
const MIN_HEAP_BYTES: usize = 4 * 1024;

/// The memory of a buffer. `octets` is the address of its first byte. The owner of a reserved range
/// also stores the address, but reading it there is slower.
struct BufferStorage {
    octets: NonNull<u8>,
    length: usize,
    owner: StorageOwner,
}

/// An owner of lent memory. Its drop releases the memory.
#[cfg(not(loom))]
trait LentOwner {}

#[cfg(not(loom))]
impl LentOwner for LentMessage {}

enum StorageOwner {
    Heap,
    Reserved(MappedRegion),
    /// Memory that ends with lent bytes, which this process cannot change. The buffer has no spare
    /// capacity. The owner is a trait object, so that programs that lend nothing contain none of
    /// its code.
    #[cfg(not(loom))]
    Lent(#[expect(dead_code, reason = "its drop gives the memory back")] Box<dyn LentOwner>),
}

// SAFETY: the value owns its bytes, and a shared reference gives shared access only.
unsafe impl Send for BufferStorage {}
// SAFETY: a shared reference gives shared access only.
unsafe impl Sync for BufferStorage {}

impl BufferStorage {
    fn heap(octets: Box<[u8]>) -> Self {
        let length = octets.len();
        // SAFETY: a box's pointer is not null.
        let octets = unsafe { NonNull::new_unchecked(Box::into_raw(octets).cast()) };
        BufferStorage { octets, length, owner: StorageOwner::Heap }
    }

    fn reserved(length: usize, spares: Option<&RegionCache>) -> io::Result<Self> {
        let reservation = MappedRegion::new(length, spares)?;
        Ok(BufferStorage { octets: reservation.as_ptr(), length, owner: StorageOwner::Reserved(reservation) })
    }

    fn is_lent(&self) -> bool {
        #[cfg(not(loom))]
        return matches!(self.owner, StorageOwner::Lent(_));
        #[cfg(loom)]
        false
    }

    /// Returns the bytes from index `start` on.
    ///
    /// # Safety
    /// `start` is at most the length. If the memory is lent, `start` is the length.
    #[inline]
    unsafe fn rest_mut(&mut self, start: usize) -> &mut [u8] {
        // SAFETY: the caller guarantees that `start` is at most the length. So these are the
        // owner's bytes, all initialised, and `&mut self` excludes other borrows. In lent memory,
        // which cannot be written, the slice is empty.
        unsafe { slice::from_raw_parts_mut(self.octets.as_ptr().add(start), self.length - start) }
    }
}

impl Deref for BufferStorage {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: these are the owner's bytes, all initialised, and the owner is borrowed for the
        // slice's lifetime.
        unsafe { slice::from_raw_parts(self.octets.as_ptr(), self.length) }
    }
}

impl DerefMut for BufferStorage {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        assert!(!self.is_lent());
        // SAFETY: 0 is at most the length, and the memory is not lent.
        unsafe { self.rest_mut(0) }
    }
}

impl Drop for BufferStorage {
    #[inline]
    fn drop(&mut self) {
        if let StorageOwner::Heap = self.owner {
            // SAFETY: `heap` made this pointer from a box that has no other owner.
            drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(self.octets.as_ptr(), self.length)) });
        }
    }
}

/// Received bytes that are not consumed, followed by spare capacity. Dereferences to the bytes.
pub struct Buffer {
    memory: BufferStorage,
    start: usize,
    end: usize,
}

impl Buffer {
    /// Creates an empty buffer without memory.
    pub fn new() -> Self {
        Self { memory: BufferStorage::heap(Box::default()), start: 0, end: 0 }
    }

    /// Creates a buffer with the bytes of a message that ends in lent memory. The buffer has no
    /// spare capacity. It releases the memory when its bytes are discarded.
    #[cfg(not(loom))]
    pub(crate) fn over_lent(message: LentMessage) -> Self {
        let (octets, length) = message.bytes();
        Self {
            memory: BufferStorage { octets, length, owner: StorageOwner::Lent(Box::new(message)) },
            start: 0,
            end: length,
        }
    }

    /// Creates an empty buffer with room for at least `octets` bytes.
    ///
    /// # Errors
    /// `OutOfMemory` if no address range of this size is free.
    pub fn with_capacity(octets: usize) -> io::Result<Self> {
        let mut buffer = Self::new();
        buffer.reserve(octets)?;
        Ok(buffer)
    }

    /// Returns the size of the memory in bytes, used or unused.
    pub fn capacity(&self) -> usize {
        self.memory.len()
    }

    /// Returns the number of bytes of committed memory. In a reserved address range this is the
    /// number of bytes from the start of the range to the last byte that was ever written.
    pub fn committed_bytes(&self) -> usize {
        match &self.memory.owner {
            StorageOwner::Heap => self.capacity(),
            StorageOwner::Reserved(reservation) => reservation.touched().max(self.end),
            #[cfg(not(loom))]
            StorageOwner::Lent(_) => self.capacity(),
        }
    }

    /// Makes room for `total` bytes, counted from the first byte that is not consumed.
    ///
    /// # Errors
    /// `OutOfMemory` if no address range of this size is free; the buffer is then unchanged.
    pub fn reserve(&mut self, total: usize) -> io::Result<()> {
        self.reserve_with(total, None)
    }

    /// Makes room as [`reserve`](Self::reserve) does, and takes a large address range from the
    /// cache `spares` if possible. When the buffer frees its range, the range returns to `spares`,
    /// unless the cache is closed or full.
    ///
    /// # Errors
    /// As for [`reserve`](Self::reserve).
    #[inline]
    pub fn reserve_from_cache(&mut self, total: usize, spares: &RegionCache) -> io::Result<()> {
        self.reserve_with(total, Some(spares))
    }

    #[inline]
    fn reserve_with(&mut self, total: usize, spares: Option<&RegionCache>) -> io::Result<()> {
        if total <= self.capacity() - self.start { Ok(()) } else { self.grow(total, spares) }
    }

    #[cold]
    fn grow(&mut self, total: usize, spares: Option<&RegionCache>) -> io::Result<()> {
        if total <= self.capacity() && !self.memory.is_lent() {
            self.record_touched();
            self.memory.copy_within(self.start..self.end, 0);
        } else {
            let mut memory = allocate_storage(total, spares)?;
            memory[..self.end - self.start].copy_from_slice(&self.memory[self.start..self.end]);
            self.record_touched();
            self.memory = memory;
        }
        self.end -= self.start;
        self.start = 0;
        Ok(())
    }

    /// Returns the unused memory after the bytes that have arrived.
    #[inline]
    pub fn spare_capacity(&mut self) -> &mut [u8] {
        // SAFETY: the range lies within the memory (invariant `window`). In lent memory it is empty.
        unsafe { self.memory.rest_mut(self.end) }
    }

    /// Marks the first `count` bytes of [`spare_capacity`](Self::spare_capacity) as arrived.
    ///
    /// # Panics
    /// If the spare capacity is smaller than `count`.
    #[inline]
    pub fn mark_filled(&mut self, count: usize) {
        assert!(count <= self.capacity() - self.end, "more bytes than spare capacity");
        self.end += count;
    }

    /// Removes the first `count` bytes from the buffer.
    ///
    /// # Panics
    /// If the buffer has fewer bytes.
    #[inline]
    pub fn consume(&mut self, count: usize) {
        assert!(count <= self.end - self.start, "more bytes than the buffer has");
        if count == self.end - self.start {
            self.clear();
        } else {
            self.start += count;
        }
    }

    /// Reads once from the socket into the spare capacity and returns the number of bytes. Zero
    /// means that the stream has ended or that the buffer has no spare capacity.
    ///
    /// # Errors
    /// As for [`socket::recv`].
    #[inline]
    pub fn receive(&mut self, fd: BorrowedFd<'_>, wait: WaitMode) -> io::Result<usize> {
        let count = socket::recv(fd, self.spare_capacity(), wait)?;
        self.mark_filled(count);
        Ok(count)
    }

    /// Moves all bytes from index `at` on to the buffer `other`, whose earlier bytes are discarded.
    ///
    /// # Errors
    /// `OutOfMemory`; `other` is then empty, and this buffer is unchanged.
    ///
    /// # Panics
    /// If the buffer has fewer than `at` bytes.
    pub fn split_off_into(&mut self, at: usize, other: &mut Self) -> io::Result<()> {
        let surplus = &self[at..];
        other.clear();
        if !surplus.is_empty() {
            let spares = match &self.memory.owner {
                StorageOwner::Reserved(reservation) if surplus.len() > MAX_HEAP_BYTES => reservation.cache(),
                _ => None,
            };
            other.reserve_with(surplus.len(), spares.as_ref())?;
            other.memory[..surplus.len()].copy_from_slice(surplus);
            other.end = surplus.len();
        }
        self.record_touched();
        self.end = self.start + at;
        if self.memory.is_lent() {
            self.memory.length = self.end;
        }
        Ok(())
    }

    #[inline]
    fn record_touched(&mut self) {
        if let StorageOwner::Reserved(reservation) = &mut self.memory.owner {
            std::hint::cold_path();
            reservation.record_touched(self.end);
        }
    }

    /// Discards all bytes, and keeps the memory unless it is lent.
    #[inline]
    pub fn clear(&mut self) {
        if !matches!(self.memory.owner, StorageOwner::Heap) {
            self.release();
        }
        self.start = 0;
        self.end = 0;
    }

    /// Releases lent memory. For a reserved range, records how many of its bytes were touched.
    #[cold]
    #[inline(never)]
    fn release(&mut self) {
        if self.memory.is_lent() {
            self.memory = BufferStorage::heap(Box::default());
        } else {
            self.record_touched();
        }
    }

    /// Discards all bytes, and frees the memory if it is more than `octets` bytes.
    pub fn clear_and_free_above(&mut self, octets: usize) {
        self.clear();
        if self.capacity() > octets {
            self.memory = BufferStorage::heap(Box::default());
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.record_touched();
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
        // SAFETY: the range lies within the memory (invariant `window`).
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

fn allocate_storage(octets: usize, spares: Option<&RegionCache>) -> io::Result<BufferStorage> {
    if octets <= MAX_HEAP_BYTES {
        return Ok(BufferStorage::heap(vec![0; octets.next_power_of_two().max(MIN_HEAP_BYTES)].into_boxed_slice()));
    }
    BufferStorage::reserved(octets, spares)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn bytes_are_moved_only_when_room_requires_it() {
        let mut buffer = Buffer::new();
        assert_eq!((buffer.capacity(), buffer.len()), (0, 0));
        buffer.reserve(10).unwrap();
        assert_eq!(buffer.capacity(), MIN_HEAP_BYTES);
        buffer.spare_capacity()[..6].copy_from_slice(b"abcdef");
        buffer.mark_filled(6);
        buffer.consume(2);
        assert_eq!(&*buffer, b"cdef");
        buffer.reserve(MIN_HEAP_BYTES).unwrap();
        assert_eq!((buffer.capacity(), &*buffer, buffer.start), (MIN_HEAP_BYTES, &b"cdef"[..], 0));
        buffer.consume(1);
        buffer.reserve(1 << 20).unwrap();
        assert!(matches!(buffer.memory.owner, StorageOwner::Reserved(_)));
        assert_eq!((buffer.capacity(), &*buffer), (1 << 20, &b"def"[..]));
        let mut other = Buffer::new();
        buffer.split_off_into(1, &mut other).unwrap();
        assert_eq!((&*buffer, &*other, other.capacity()), (&b"d"[..], &b"ef"[..], MIN_HEAP_BYTES));
        buffer.consume(1);
        assert_eq!((buffer.start, buffer.end), (0, 0));
        buffer.clear_and_free_above(MAX_HEAP_BYTES);
        assert_eq!(buffer.capacity(), 0);
        buffer.reserve(usize::MAX).unwrap_err();
        assert_eq!(buffer.capacity(), 0);
    }

    #[test]
    fn large_message_arrives_in_parts_and_is_shared() {
        let (near, far) = socket::pair().unwrap();
        let sent: Vec<u8> = (0..300_000u32).map(|n| n as u8).collect();
        let copy = sent.clone();
        let sender = std::thread::spawn(move || {
            let mut rest = &copy[..];
            while !rest.is_empty() {
                rest = &rest[socket::send(near.as_fd(), rest, WaitMode::Block).unwrap()..];
            }
        });
        let mut buffer = Buffer::with_capacity(sent.len()).unwrap();
        while buffer.receive(far.as_fd(), WaitMode::Block).unwrap() > 0 {}
        sender.join().unwrap();
        let owner: std::sync::Arc<dyn AsRef<[u8]> + Send + Sync> = std::sync::Arc::new(buffer);
        let other = std::sync::Arc::clone(&owner);
        let thread = std::thread::spawn(move || (*other).as_ref().len());
        assert_eq!(thread.join().unwrap(), sent.len());
        assert_eq!((*owner).as_ref(), sent);
    }

    #[test]
    #[should_panic(expected = "more bytes than spare capacity")]
    fn advance_beyond_capacity_panics() {
        Buffer::with_capacity(1).unwrap().mark_filled(MIN_HEAP_BYTES + 1);
    }
}
