//! Memory that no process can change any more, which processes pass to one another without a copy.
//!
//! A program fills a [`SealableBuffer`], a file without a name. [`seal`](SealableBuffer::seal)
//! makes the file's bytes and size final: the kernel then refuses every way to change them, to all
//! processes and for ever. So a process may hold plain references to the bytes of a file that a
//! peer passed, once it has checked the seals ([`SealedFile::open`]).
//!
//! A received file is mapped behind a page of the process's own ([`LentFile::message`]). So the
//! bytes that precede the lent bytes in a message are in front of them in memory, too, and both
//! together are one slice.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::buffer::Buffer;
use crate::lock::{LockScope, PiMutex};
use crate::{deferred_close, syscall};

/// Seals that a file must have before a process makes references to its bytes.
const SEALS: libc::c_int = libc::F_SEAL_WRITE | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
const TMPFS: i64 = 0x0102_1994;
/// Size in bytes of the units in which stat(2) counts a file's blocks.
const BLOCK: u64 = 512;

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// The sealed files that this process has mapped, by the address of their first byte.
static MAPPED: PiMutex<BTreeMap<usize, Arc<SealedFile>>> =
    PiMutex::new("mapped sealed files", LockScope::Orb, BTreeMap::new());

/// Number of entries of [`MAPPED`], so that programs without sealed files take no lock.
static MAPPED_COUNT: AtomicUsize = AtomicUsize::new(0);

/// A file without a name whose bytes and size can never change.
#[derive(Debug)]
pub struct SealedFile {
    fd: OwnedFd,
    length: usize,
    id: u64,
}

impl SealedFile {
    fn new(fd: OwnedFd, length: usize) -> Arc<Self> {
        Arc::new(SealedFile { fd, length, id: NEXT_ID.fetch_add(1, Ordering::Relaxed) })
    }

    /// Checks a descriptor that a peer has passed, for a file of `length` bytes.
    ///
    /// # Errors
    /// `InvalidData` if the file's bytes or its size could change, if it has another size, or if it
    /// has bytes without memory. The thread of [`deferred_close`] then closes the descriptor.
    pub fn open(passed: OwnedFd, length: usize) -> io::Result<Arc<Self>> {
        match check(passed.as_fd(), length) {
            Ok(()) => Ok(Self::new(passed, length)),
            Err(error) => {
                deferred_close::close(passed);
                Err(error)
            }
        }
    }

    /// Returns the file of which `octets` are the first bytes, if this process has mapped it as
    /// [`SealedOctets`] or [`LentFile`].
    #[must_use]
    pub fn containing(octets: &[u8]) -> Option<Arc<Self>> {
        // Relaxed: a thread that has octets of a mapped file also sees the increment for this file.
        if MAPPED_COUNT.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mapped = MAPPED.lock();
        mapped.get(&octets.as_ptr().addr()).filter(|file| octets.len() <= file.length).cloned()
    }

    /// Returns the size of the file in bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        self.length
    }

    /// Returns a number that no other file of this process ever has, even after this file is
    /// closed.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }
}

impl AsFd for SealedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Checks that the file is in memory, is sealed, and has `length` bytes and memory for all of them.
fn check(fd: BorrowedFd<'_>, length: usize) -> io::Result<()> {
    let wrong = |why| io::Error::new(io::ErrorKind::InvalidData, why);
    // SAFETY: this command takes no argument.
    let seals = syscall::once(|| unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) })
        .map_err(|_| wrong("the lent descriptor is not memory that can be sealed"))?;
    if seals & SEALS != SEALS {
        return Err(wrong("the lent memory can still be changed"));
    }
    // SAFETY: the structure consists of integers, for which zeroes are valid.
    let mut system: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: `system` is one live, writable structure of the kind that the call fills.
    syscall::once(|| unsafe { libc::fstatfs(fd.as_raw_fd(), &raw mut system) })?;
    #[allow(clippy::unnecessary_cast, reason = "the type differs between C libraries")]
    if system.f_type as i64 != TMPFS {
        // Huge pages of another file system can be missing at an access, which raises `SIGBUS`.
        return Err(wrong("the lent memory consists of pages of another kind"));
    }
    // SAFETY: the structure consists of integers, for which zeroes are valid.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `status` is one live, writable structure of the kind that the call fills.
    syscall::once(|| unsafe { libc::fstat(fd.as_raw_fd(), &raw mut status) })?;
    if length == 0 || usize::try_from(status.st_size) != Ok(length) {
        return Err(wrong("the lent memory does not have the announced size"));
    }
    // If a byte has no page, an access needs a new page, and raises `SIGBUS` if the kernel has
    // none.
    if u64::try_from(status.st_blocks).unwrap_or(0).saturating_mul(BLOCK) < length as u64 {
        return Err(wrong("the lent memory has bytes without pages"));
    }
    Ok(())
}

/// A range of addresses that belongs to this value.
struct AddressRange {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the range belongs to this value alone, like a boxed slice.
unsafe impl Send for AddressRange {}
// SAFETY: a shared reference gives only the address.
unsafe impl Sync for AddressRange {}

impl AddressRange {
    /// Maps `length` bytes of the file, or pages of the process's own.
    ///
    /// # Errors
    /// If the process may have no further mapping: it is out of addresses or mappings, or has
    /// reached its limit of locked memory.
    fn map(length: usize, file: Option<BorrowedFd<'_>>) -> io::Result<Self> {
        let (flags, fd) = match file {
            Some(file) => (libc::MAP_SHARED | libc::MAP_POPULATE, file.as_raw_fd()),
            None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1),
        };
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: without a requested address the mapping replaces no existing one.
        let address =
            syscall::once(|| unsafe { libc::mmap(std::ptr::null_mut(), length, access, flags, fd, 0) as isize })?;
        let start = NonNull::new(address as *mut u8).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(AddressRange { start, length })
    }

    /// Replaces the bytes from `offset` on by the file's bytes, which can then only be read.
    fn map_read_only(&mut self, offset: usize, fd: BorrowedFd<'_>) -> io::Result<()> {
        assert!(offset <= self.length && offset.is_multiple_of(page_size()));
        // The mapping is private, because kernels before 6.7 refuse shared mappings of sealed
        // files.
        let flags = libc::MAP_PRIVATE | libc::MAP_FIXED;
        // SAFETY: the replaced range lies in this value, and `&mut self` excludes references to it.
        syscall::once(|| unsafe {
            let start = self.start.as_ptr().add(offset).cast();
            libc::mmap(start, self.length - offset, libc::PROT_READ, flags, fd.as_raw_fd(), 0) as isize
        })?;
        Ok(())
    }
}

impl Drop for AddressRange {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value, has this length, and no reference into it
        // outlives this value. After a failure the memory would stay mapped, which is harmless.
        let _ = syscall::once(|| unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) });
    }
}

fn page_size() -> usize {
    // SAFETY: the call takes no pointers.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

fn whole_pages(length: usize) -> io::Result<usize> {
    length.checked_next_multiple_of(page_size()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// A sealed file's bytes in the memory of this process, behind `head` bytes that belong to this
/// process alone.
struct MappedFile {
    range: AddressRange,
    head: usize,
    file: Arc<SealedFile>,
}

impl MappedFile {
    /// Registers the mapping in [`MAPPED`]. The caller has mapped the whole file in `range`,
    /// read-only, from offset `head` on.
    fn register(range: AddressRange, head: usize, file: Arc<SealedFile>) -> Self {
        let mapped = MappedFile { range, head, file };
        MAPPED_COUNT.fetch_add(1, Ordering::Relaxed);
        MAPPED.lock().insert(mapped.start().as_ptr().addr(), Arc::clone(&mapped.file));
        mapped
    }

    fn start(&self) -> NonNull<u8> {
        // SAFETY: the range is longer than `head` bytes, so the result is inside the range.
        unsafe { self.range.start.add(self.head) }
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        let file = MAPPED.lock().remove(&self.start().as_ptr().addr());
        MAPPED_COUNT.fetch_sub(1, Ordering::Relaxed);
        drop(file);
    }
}

/// Bytes that a program fills and then [seals](Self::seal). They are zero at first.
pub struct SealableBuffer {
    range: AddressRange,
    fd: OwnedFd,
    length: usize,
}

impl SealableBuffer {
    /// Creates a buffer of `length` zero bytes, at least one, with memory for all of them.
    ///
    /// # Errors
    /// `InvalidInput` for no bytes; otherwise if the process is out of descriptors, memory or
    /// addresses.
    pub fn new(length: usize) -> io::Result<Self> {
        if length == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let make = |flags: libc::c_uint| {
            let flags = flags | libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
            // SAFETY: the name is a constant, NUL-terminated string.
            syscall::once(|| unsafe { libc::memfd_create(c"corelane-lent".as_ptr(), flags) })
        };
        // Linux before 6.3 refuses the unknown flag. A newer system may be configured to demand the
        // flag, so the call with the flag is tried first.
        let fd = make(libc::MFD_NOEXEC_SEAL).or_else(|_| make(0))?;
        // SAFETY: the kernel has just returned `fd`, and nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let size = libc::off_t::try_from(length).map_err(|_| io::ErrorKind::OutOfMemory)?;
        // Receivers refuse a file that lacks pages. The call also sets the size.
        // SAFETY: the call takes no pointers.
        syscall::retry_interrupted(|| unsafe { libc::fallocate(fd.as_raw_fd(), 0, 0, size) })?;
        let range = AddressRange::map(whole_pages(length)?, Some(fd.as_fd()))?;
        Ok(SealableBuffer { range, fd, length })
    }

    /// Makes the bytes final.
    ///
    /// # Errors
    /// `ResourceBusy` if the kernel still uses a page for input, as after a system call that has
    /// not ended; another error if the process may have no further mapping.
    pub fn seal(mut self) -> io::Result<SealedOctets> {
        // The kernel seals a file against writing only while nothing maps it writable.
        self.range.map_read_only(0, self.fd.as_fd())?;
        // SAFETY: this command takes an integer.
        syscall::once(|| unsafe { libc::fcntl(self.fd.as_raw_fd(), libc::F_ADD_SEALS, SEALS) })?;
        let file = SealedFile::new(self.fd, self.length);
        Ok(SealedOctets(MappedFile::register(self.range, 0, file)))
    }
}

impl Deref for SealableBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping has this length and lives as long as `self`. No other process has the
        // descriptor before the file is sealed.
        unsafe { slice::from_raw_parts(self.range.start.as_ptr(), self.length) }
    }
}

impl DerefMut for SealableBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` excludes other references.
        unsafe { slice::from_raw_parts_mut(self.range.start.as_ptr(), self.length) }
    }
}

impl fmt::Debug for SealableBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealableBuffer").field("length", &self.length).finish_non_exhaustive()
    }
}

/// The bytes of a sealed file that this process has made.
pub struct SealedOctets(MappedFile);

impl AsRef<[u8]> for SealedOctets {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the mapping has the file's length and lives as long as `self`. The file is
        // sealed, so no process changes its bytes.
        unsafe { slice::from_raw_parts(self.0.start().as_ptr(), self.0.file.length) }
    }
}

impl fmt::Debug for SealedOctets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SealedOctets").field(&self.0.file).finish()
    }
}

/// A sealed file that a peer has passed. Clones share the file and its mappings.
///
/// Up to `MAX_IDLE` mappings of the file are kept for further messages: a thread may still have the
/// previous message when another thread gets the next one.
#[derive(Clone)]
pub struct LentFile(Arc<LentInner>);

struct LentInner {
    file: Arc<SealedFile>,
    idle: PiMutex<Vec<MappedFile>>,
}

/// Maximum number of mappings of a received file that no message uses.
const MAX_IDLE: usize = 4;

impl LentFile {
    /// Maximum number of bytes that precede lent bytes in a message.
    pub const MAX_HEAD: usize = 4096;

    /// Wraps a file, and maps nothing yet.
    #[must_use]
    pub fn new(file: Arc<SealedFile>) -> Self {
        LentFile(Arc::new(LentInner { file, idle: PiMutex::new("idle mappings", LockScope::Connection, Vec::new()) }))
    }

    /// Returns the size of the file in bytes.
    #[must_use]
    pub fn length(&self) -> usize {
        self.0.file.length
    }

    /// Returns a buffer with the bytes of both slices of `head`, then the first `length` bytes of
    /// the file. The bytes of the file are not copied.
    ///
    /// # Errors
    /// `InvalidInput` if `head` has more than [`MAX_HEAD`](Self::MAX_HEAD) bytes or the file has
    /// fewer than `length`; otherwise if the process may have no further mapping.
    pub fn message(&self, head: [&[u8]; 2], length: usize) -> io::Result<Buffer> {
        let head_length = head[0].len().saturating_add(head[1].len());
        if head_length > Self::MAX_HEAD || length > self.length() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let idle = self.0.idle.lock().pop();
        let mapped = match idle {
            Some(mapped) => mapped,
            None => {
                let page = page_size();
                let total = whole_pages(self.length())?.checked_add(page).ok_or(io::ErrorKind::OutOfMemory)?;
                let mut range = AddressRange::map(total, None)?;
                range.map_read_only(page, self.0.file.as_fd())?;
                MappedFile::register(range, page, Arc::clone(&self.0.file))
            }
        };
        // SAFETY: at least one page (>= `MAX_HEAD` bytes) of the range lies before the file's first
        // byte, and `head_length` <= `MAX_HEAD`. So the result stays inside the range.
        let start = unsafe { mapped.start().sub(head_length) };
        // SAFETY: the bytes from `start` to the file's bytes are writable, and this thread alone
        // owns the mapping. The slices do not overlap with it.
        unsafe {
            start.copy_from_nonoverlapping(NonNull::from(head[0]).cast(), head[0].len());
            start.add(head[0].len()).copy_from_nonoverlapping(NonNull::from(head[1]).cast(), head[1].len());
        }
        let message = LentMessage { start, length: head_length + length, mapped: Some(mapped), home: self.clone() };
        Ok(Buffer::over_lent(message))
    }
}

impl fmt::Debug for LentFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LentFile").field(&self.0.file).finish()
    }
}

/// The bytes of a message that ends with the bytes of a sealed file. The drop returns the mapping
/// to the [`LentFile`].
pub(crate) struct LentMessage {
    start: NonNull<u8>,
    length: usize,
    mapped: Option<MappedFile>,
    home: LentFile,
}

impl LentMessage {
    /// Returns the address and the number of the bytes. They may be read, and do not change before
    /// the drop.
    pub(crate) fn bytes(&self) -> (NonNull<u8>, usize) {
        (self.start, self.length)
    }
}

impl Drop for LentMessage {
    fn drop(&mut self) {
        let mut idle = self.home.0.idle.lock();
        if idle.len() < MAX_IDLE {
            idle.extend(self.mapped.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(length: usize) -> SealedOctets {
        let mut buffer = SealableBuffer::new(length).unwrap();
        buffer.iter_mut().zip(0usize..).for_each(|(octet, index)| *octet = (index % 251) as u8);
        buffer.seal().unwrap()
    }

    fn passed(octets: &SealedOctets) -> OwnedFd {
        octets.0.file.fd.try_clone().unwrap()
    }

    /// Returns a file of `length` bytes with pages for its first `written` bytes.
    fn file(length: usize, written: usize, seals: libc::c_int) -> OwnedFd {
        let flags = libc::MFD_ALLOW_SEALING | libc::MFD_CLOEXEC;
        // SAFETY: the name is a constant, NUL-terminated string; nothing else owns the descriptor.
        let fd = unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"test".as_ptr(), flags)) };
        let file = std::fs::File::from(fd);
        std::os::unix::fs::FileExt::write_all_at(&file, &vec![1; written], 0).unwrap();
        file.set_len(length as u64).unwrap();
        // SAFETY: this command takes an integer.
        assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) }, 0);
        file.into()
    }

    #[test]
    fn sealed_bytes_cannot_be_changed_by_any_way() {
        let octets = sealed(10_000);
        let fd = passed(&octets);
        let file = std::fs::File::from(fd.try_clone().unwrap());
        std::os::unix::fs::FileExt::write_at(&file, b"x", 0).unwrap_err();
        file.set_len(0).unwrap_err();
        file.set_len(20_000).unwrap_err();
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: the calls replace no mapping, and take no pointers.
        unsafe {
            assert_eq!(libc::fallocate(fd.as_raw_fd(), punch, 0, 4096), -1);
            let mapped = libc::mmap(std::ptr::null_mut(), 10_000, access, libc::MAP_SHARED, fd.as_raw_fd(), 0);
            assert_eq!(mapped, libc::MAP_FAILED);
        }
        assert!(octets.as_ref().iter().zip(0usize..).all(|(octet, index)| *octet == (index % 251) as u8));
    }

    #[test]
    fn only_whole_sealed_files_are_opened() {
        let refused = |fd, length| {
            let error = SealedFile::open(fd, length).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            error.to_string()
        };
        let octets = sealed(10_000);
        assert_eq!(SealedFile::open(passed(&octets), 10_000).unwrap().length(), 10_000);
        for length in [0, 9_999, 10_001] {
            assert!(refused(passed(&octets), length).contains("announced size"));
        }
        for missing in [libc::F_SEAL_WRITE, libc::F_SEAL_SHRINK, libc::F_SEAL_GROW, libc::F_SEAL_SEAL] {
            assert!(refused(file(8192, 8192, SEALS & !missing), 8192).contains("changed"), "{missing}");
        }
        assert!(refused(file(8192, 4096, SEALS), 8192).contains("without pages"));
        assert!(refused(std::fs::File::open("/dev/zero").unwrap().into(), 8192).contains("sealed"));
        // SAFETY: the name is a constant, NUL-terminated string.
        let huge = unsafe { libc::memfd_create(c"test".as_ptr(), libc::MFD_ALLOW_SEALING | libc::MFD_HUGETLB) };
        if huge >= 0 {
            // SAFETY: nothing else owns the descriptor, and the command takes an integer.
            let huge = unsafe {
                libc::fcntl(huge, libc::F_ADD_SEALS, SEALS);
                OwnedFd::from_raw_fd(huge)
            };
            assert!(refused(huge, 0).contains("another kind"));
        }
    }

    #[test]
    fn message_ends_in_the_lent_bytes_without_a_copy() {
        let octets = sealed(10_000);
        let lent = LentFile::new(SealedFile::open(passed(&octets), 10_000).unwrap());
        let mut message = lent.message([b"head", b"er"], 9_000).unwrap();
        assert!(message[..6] == *b"header" && message[6..] == octets.as_ref()[..9_000]);
        assert!(message.as_ptr().addr() + 6 == message[6..].as_ptr().addr().next_multiple_of(page_size()));
        assert!(message.spare_capacity().is_empty());
        assert_eq!((message.capacity(), message.committed_bytes()), (9_006, 9_006));
        assert_eq!(SealedFile::containing(&message[6..]).unwrap().id(), lent.0.file.id);
        // The second message gets another mapping, because the first message exists. Dropped
        // messages leave their mappings for later messages.
        let other = lent.message([b"", b"second"], 10_000).unwrap();
        assert!(other[6..] == *octets.as_ref() && message[..6] == *b"header");
        let places = [&message, &other].map(|buffer| buffer[6..].as_ptr().addr());
        assert_ne!(places[0], places[1]);
        drop(message);
        drop(other);
        let again = [b"third", b"again"].map(|head| lent.message([head, b""], 1).unwrap());
        assert_eq!(again.each_ref().map(|buffer| buffer[5..].as_ptr().addr()), [places[1], places[0]]);
        drop(again);
        let many: Vec<Buffer> = (0..2 * MAX_IDLE).map(|_| lent.message([b"", b""], 1).unwrap()).collect();
        drop(many);
        assert_eq!(lent.0.idle.lock().len(), MAX_IDLE);
        assert_eq!(lent.message([&[0; LentFile::MAX_HEAD], b""], 1).unwrap().len(), LentFile::MAX_HEAD + 1);
        for (head, length) in [(LentFile::MAX_HEAD + 1, 1), (0, 10_001)] {
            let refused = lent.message([&vec![0; head], b""], length).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        }
        let kept = lent.message([b"kept", b""], 10_000).unwrap();
        drop((lent, octets));
        assert!(kept[4..].iter().zip(0usize..).all(|(octet, index)| *octet == (index % 251) as u8));
        let place = kept[4..].as_ptr();
        drop(kept);
        assert!(!MAPPED.lock().contains_key(&place.addr()));
    }

    #[test]
    fn buffer_over_lent_bytes_never_writes_to_them() {
        let octets = sealed(100_000);
        let lent = LentFile::new(SealedFile::open(passed(&octets), 100_000).unwrap());
        let message = || lent.message([b"head", b""], 100_000).unwrap();
        let mut buffer = message();
        buffer.consume(10);
        buffer.reserve(100_000).unwrap();
        buffer.spare_capacity()[0] = 7;
        buffer.mark_filled(1);
        assert!(buffer[..99_994] == octets.as_ref()[6..] && buffer[99_994] == 7);
        let (mut front, mut back) = (message(), message());
        front.split_off_into(50_000, &mut back).unwrap();
        assert!(front.spare_capacity().is_empty() && front.len() == 50_000 && back.len() == 50_004);
        assert!(back[..] == octets.as_ref()[49_996..]);
        for discard in [
            Buffer::clear,
            |buffer: &mut Buffer| buffer.consume(buffer.len()),
            |buffer: &mut Buffer| {
                buffer.clear_and_free_above(0);
            },
        ] {
            let mut buffer = message();
            discard(&mut buffer);
            assert_eq!((buffer.len(), buffer.capacity()), (0, 0));
        }
        assert!(octets.as_ref().iter().zip(0usize..).all(|(octet, index)| *octet == (index % 251) as u8));
    }

    #[test]
    fn only_the_first_bytes_of_a_file_are_found() {
        let octets = sealed(10_000);
        let all = octets.as_ref();
        let id = |part: &[u8]| SealedFile::containing(part).map(|file| file.id());
        let own = Some(octets.0.file.id());
        assert_eq!((id(all), id(&all[..1]), id(&all[1..]), id(&[0; 10])), (own, own, None, None));
        assert_eq!(SealableBuffer::new(0).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
