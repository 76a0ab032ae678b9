//! Memory that this process shares with the kernel: frames and the rings of their descriptors.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::syscall;

/// A mapping, unmapped when the value is dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: a mapping belongs to the process and not to a thread. Its owners say which thread
// accesses which bytes.
unsafe impl Send for Mapping {}
// SAFETY: as for `Send`.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `length` zero bytes, which no file backs.
    pub(super) fn zeroed(length: usize) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        Self::map(None, 0, length, flags)
    }

    /// Maps one of the rings of an AF_XDP socket: the ring that `offset` selects.
    pub(super) fn of_socket(socket: BorrowedFd<'_>, offset: u64, length: usize) -> io::Result<Self> {
        Self::map(Some(socket), offset, length, libc::MAP_SHARED | libc::MAP_POPULATE)
    }

    fn map(fd: Option<BorrowedFd<'_>>, offset: u64, length: usize, flags: libc::c_int) -> io::Result<Self> {
        let fd = fd.map_or(-1, |fd| fd.as_raw_fd());
        let offset = libc::off64_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: without a requested address the mapping replaces no existing one.
        let start = syscall::once(|| unsafe {
            libc::mmap64(std::ptr::null_mut(), length, access, flags, fd, offset) as isize
        })?;
        let start = NonNull::new(start as *mut u8).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, length })
    }

    /// Returns the address of `length` bytes from `offset`. `None` if a byte of the range is
    /// outside the mapping.
    pub(super) fn range(&self, offset: usize, length: usize) -> Option<NonNull<u8>> {
        let is_inside = offset.checked_add(length).is_some_and(|end| end <= self.length);
        // SAFETY: the range is inside the mapping, so its beginning is too.
        is_inside.then(|| unsafe { self.start.add(offset) })
    }

    pub(super) fn address(&self) -> u64 {
        self.start.as_ptr().expose_provenance() as u64
    }

    pub(super) fn length(&self) -> usize {
        self.length
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping. The owner of the mapping uses none of its bytes after
        // the drop.
        let _ = syscall::once(|| unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) });
    }
}

/// A ring of descriptors of type `D` with one producer and one consumer, of which one is the
/// kernel. The producer and the consumer each publish a count of descriptors, which wraps around.
#[derive(Debug)]
pub(super) struct Ring<D> {
    mapping: Mapping,
    producer: usize,
    consumer: usize,
    descriptors: usize,
    entries: u32,
    kind: std::marker::PhantomData<D>,
}

impl<D: Copy> Ring<D> {
    /// Maps a ring with `entries` descriptors, a power of two. `places` has the byte offsets of the
    /// ring's parts.
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        offset: u64,
        places: &libc::xdp_ring_offset,
        entries: u32,
    ) -> io::Result<Self> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let place = |place: u64| usize::try_from(place).map_err(|_| invalid());
        let [producer, consumer, descriptors] = [place(places.producer)?, place(places.consumer)?, place(places.desc)?];
        let bytes = entries as usize * size_of::<D>();
        let length = descriptors.checked_add(bytes).ok_or_else(invalid)?;
        let is_aligned = producer.is_multiple_of(4) && consumer.is_multiple_of(4);
        let mapping = Mapping::of_socket(socket, offset, length)?;
        let has_words = mapping.range(producer, 4).is_some() && mapping.range(consumer, 4).is_some();
        if !(entries.is_power_of_two() && is_aligned && has_words && descriptors.is_multiple_of(align_of::<D>())) {
            return Err(invalid());
        }
        Ok(Self { mapping, producer, consumer, descriptors, entries, kind: std::marker::PhantomData })
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: `map` has checked that the word is aligned and inside the mapping, which lives as
        // long as `self`. This process accesses it through atomics only.
        unsafe { AtomicU32::from_ptr(self.mapping.start.as_ptr().add(offset).cast()) }
    }

    fn place(&self, number: u32) -> *mut D {
        let index = (number & (self.entries - 1)) as usize;
        // SAFETY: `map` has checked that `entries` descriptors are inside the mapping, and the
        // index is below `entries`, which is a power of two.
        unsafe { self.mapping.start.as_ptr().add(self.descriptors).cast::<D>().add(index) }
    }

    /// Returns how many descriptors the kernel has produced after the first `consumed` ones.
    pub(super) fn waiting(&self, consumed: u32) -> u32 {
        // Acquire: the kernel has written the descriptors, and their frames, before this number.
        self.word(self.producer).load(Ordering::Acquire).wrapping_sub(consumed).min(self.entries)
    }

    /// Returns the descriptor `number`, which the kernel must have produced.
    pub(super) fn read(&self, number: u32) -> D {
        // SAFETY: the place is inside the mapping and aligned. The kernel does not write the
        // descriptor before `consume` gives its place back. Descriptors consist of integers.
        unsafe { self.place(number).read_volatile() }
    }

    /// Tells the kernel that the first `consumed` descriptors are no longer needed.
    pub(super) fn consume(&self, consumed: u32) {
        // Release: the descriptors have been read before the kernel sees this number.
        self.word(self.consumer).store(consumed, Ordering::Release);
    }

    /// Adds `descriptor`. `number` is the number of descriptors added before, wrapping around.
    /// Returns false if the ring is full.
    pub(super) fn produce(&mut self, number: u32, descriptor: D) -> bool {
        // Acquire: the kernel has read the earlier descriptor of this place before this number.
        let consumed = self.word(self.consumer).load(Ordering::Acquire);
        if number.wrapping_sub(consumed) >= self.entries {
            return false;
        }
        // SAFETY: the place is inside the mapping and aligned, and the kernel does not read it
        // before the store below.
        unsafe { self.place(number).write_volatile(descriptor) };
        // Release: the descriptor is written before the kernel sees this number.
        self.word(self.producer).store(number.wrapping_add(1), Ordering::Release);
        true
    }
}
