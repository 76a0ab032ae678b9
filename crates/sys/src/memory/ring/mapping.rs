//! Creates, seals, checks and maps the memory that two processes share.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use super::copy;
use crate::{clock, syscall};

/// Seals that the memory must have, so that its size is fixed: in a file that the peer had shrunk,
/// accesses would raise `SIGBUS`.
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// Creates a file without a name that consists of `length` zero bytes. Its size is fixed.
///
/// # Errors
/// If the process is out of descriptors or memory.
pub(super) fn create(length: usize) -> io::Result<OwnedFd> {
    let make = |flags: libc::c_uint| {
        let flags = flags | libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the name is a constant, NUL-terminated string.
        syscall::once(|| unsafe { libc::memfd_create(c"corelane-rings".as_ptr(), flags) })
    };
    // Linux before 6.3 refuses the unknown flag. A newer system may be configured to demand the
    // flag, so the call with the flag is tried first.
    let fd = make(libc::MFD_NOEXEC_SEAL).or_else(|_| make(0))?;
    // SAFETY: the kernel has just returned `fd`, and nothing else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let size = libc::off_t::try_from(length).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the call takes no pointers.
    syscall::retry_interrupted(|| unsafe { libc::ftruncate(fd.as_raw_fd(), size) })?;
    // SAFETY: this command takes an integer.
    syscall::once(|| unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, SEALS) })?;
    Ok(fd)
}

/// Checks that `fd` is a file of `length` bytes with a fixed size.
///
/// # Errors
/// `InvalidData` if the file has another kind, another size, or no fixed size, or if a seal forbids
/// writing.
pub(super) fn check(fd: BorrowedFd<'_>, length: usize) -> io::Result<()> {
    let wrong = |why| io::Error::new(io::ErrorKind::InvalidData, why);
    // SAFETY: this command takes no argument.
    let seals = syscall::once(|| unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) })
        .map_err(|_| wrong("the passed descriptor is not memory that can be sealed"))?;
    if seals & SEALS != SEALS {
        return Err(wrong("the size of the passed memory is not fixed"));
    }
    if seals & (libc::F_SEAL_WRITE | libc::F_SEAL_FUTURE_WRITE) != 0 {
        return Err(wrong("the passed memory cannot be written"));
    }
    // SAFETY: the structure consists of integers, for which zeroes are valid.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `status` is one live, writable structure of the kind that the call fills.
    syscall::once(|| unsafe { libc::fstat(fd.as_raw_fd(), &raw mut status) })?;
    if usize::try_from(status.st_size) != Ok(length) {
        return Err(wrong("the passed memory does not have the announced size"));
    }
    Ok(())
}

/// Memory that another process can write at any time. No reference to its bytes exists, except the
/// atomics that `word` returns.
#[derive(Debug)]
pub(super) struct SharedMapping {
    octets: NonNull<u8>,
    length: usize,
}

// SAFETY: the memory is reached only through atomics and through copies that are atomic byte by
// byte, by any thread.
unsafe impl Send for SharedMapping {}
// SAFETY: any thread may reach the memory, through atomics and copies that are atomic byte by byte.
unsafe impl Sync for SharedMapping {}

impl SharedMapping {
    /// Maps `length` bytes of a file that [`check`] accepts, or that [`create`] made.
    ///
    /// # Errors
    /// If the process may have no further mapping: it is out of addresses or mappings, or has
    /// reached its limit of locked memory.
    pub(super) fn new(fd: BorrowedFd<'_>, length: usize) -> io::Result<Self> {
        // SAFETY: without a requested address the mapping replaces no existing one.
        let address = syscall::once(|| unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            ) as isize
        })?;
        let octets = NonNull::new(address as *mut u8).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(SharedMapping { octets, length })
    }

    #[inline]
    pub(super) fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.length);
        // SAFETY: the word is inside the mapping, which lives as long as `self`. It is aligned,
        // because the mapping begins with a page. This process accesses these bytes through atomics
        // only. For the processor, the peer's writes are ordinary stores.
        unsafe { AtomicU32::from_ptr(self.octets.as_ptr().add(offset).cast()) }
    }

    #[inline]
    pub(super) fn copy_in(&self, offset: usize, from: &[u8]) {
        assert!(offset <= self.length && from.len() <= self.length - offset);
        // SAFETY: the range is inside the mapping. No reference to the mapping exists, so it does
        // not overlap `from`, which is borrowed.
        unsafe { copy::copy_in(from.as_ptr(), self.octets.as_ptr().add(offset), from.len()) }
    }

    #[inline]
    pub(super) fn copy_out(&self, offset: usize, to: &mut [u8]) {
        assert!(offset <= self.length && to.len() <= self.length - offset);
        // SAFETY: the range is inside the mapping. No reference to the mapping exists, so it does
        // not overlap `to`, which is borrowed. Any bytes are valid, old or new, and they are read
        // only after the copy.
        unsafe { copy::copy_out(self.octets.as_ptr().add(offset), to.as_mut_ptr(), to.len()) }
    }

    /// Sleeps while the word at `offset` is `expected`, until `time` has passed (`None`: no limit).
    /// The call may return early. Returns true if `time` has passed.
    pub(super) fn futex_wait(&self, offset: usize, expected: u32, time: Option<Duration>) -> bool {
        let word = self.word(offset);
        let time = time.map(clock::timespec);
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // The futex is shared between processes, so FUTEX_PRIVATE_FLAG is not set.
        // SAFETY: `word` is a live, aligned word; `time` is null or points to a value that outlives
        // the call.
        let slept = syscall::futex(|| unsafe {
            libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, expected, time)
        });
        // Any other result means that the thread was woken, the word differs from `expected`, or a
        // signal arrived.
        slept.is_err_and(|error| error.raw_os_error() == Some(libc::ETIMEDOUT))
    }

    pub(super) fn futex_wake(&self, offset: usize) {
        let word = self.word(offset);
        // SAFETY: `word` is a live, aligned word, and the call fails only for other words.
        let _ = syscall::futex(|| unsafe {
            libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, libc::c_int::MAX)
        });
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value, has this length, and no reference into it
        // outlives this value. After a failure the memory would stay mapped, which is harmless.
        let _ = syscall::once(|| unsafe { libc::munmap(self.octets.as_ptr().cast(), self.length) });
    }
}

pub(super) fn create_mapped(length: usize) -> io::Result<(OwnedFd, SharedMapping)> {
    let fd = create(length)?;
    let mapping = SharedMapping::new(fd.as_fd(), length)?;
    Ok((fd, mapping))
}
