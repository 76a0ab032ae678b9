//! The kernel features that this crate uses, and an emulation of older kernels for tests of
//! fall-backs. [`emulate`] and [`refuse`] install a seccomp filter for the calling thread.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::AtomicU32;

use crate::{socket, syscall};

/// A version of Linux: major and minor number.
pub type KernelRelease = (u32, u32);

/// The oldest version that has every feature for which this crate has no fall-back.
pub const OLDEST_SUPPORTED: KernelRelease = (4, 4);

/// A kernel feature that versions before a certain one do not have.
#[derive(Clone, Copy, Debug)]
pub struct KernelFeature {
    /// Name in the documentation.
    pub name: &'static str,
    /// First version that has the feature.
    pub since: KernelRelease,
    call: libc::c_long,
    /// The argument that selects the feature: its index, the mask of the relevant bits, and their
    /// value. `None` if the feature is the whole system call.
    argument: Option<(u32, u32, u32)>,
    error: libc::c_int,
    /// Uses the feature once. The error number `error`, or `ENOSYS`, shows that the kernel lacks
    /// it.
    ask: fn() -> io::Result<()>,
}

const FUTEX_OPERATION: u32 = !(libc::FUTEX_PRIVATE_FLAG as u32);
const FUTEX_LOCK_PI2: u32 = 13;

/// Features that the crate uses where the kernel has them, in the order of their versions.
pub const USED_FEATURES: [KernelFeature; 8] = [
    KernelFeature {
        name: "sched_setattr",
        since: (3, 14),
        call: libc::SYS_sched_setattr,
        argument: None,
        error: libc::ENOSYS,
        ask: probe_sched_setattr,
    },
    KernelFeature {
        name: "memfd_create",
        since: (3, 17),
        call: libc::SYS_memfd_create,
        argument: None,
        error: libc::ENOSYS,
        ask: probe_memfd,
    },
    KernelFeature {
        name: "MCL_ONFAULT",
        since: (4, 4),
        call: libc::SYS_mlockall,
        argument: Some((0, libc::MCL_ONFAULT as u32, libc::MCL_ONFAULT as u32)),
        error: libc::EINVAL,
        ask: probe_locks_on_fault,
    },
    KernelFeature {
        name: "epoll_pwait2",
        since: (5, 11),
        call: libc::SYS_epoll_pwait2,
        argument: None,
        error: libc::ENOSYS,
        ask: probe_epoll_pwait2,
    },
    KernelFeature {
        name: "FUTEX_LOCK_PI2",
        since: (5, 14),
        call: libc::SYS_futex,
        argument: Some((1, FUTEX_OPERATION, FUTEX_LOCK_PI2)),
        error: libc::ENOSYS,
        ask: probe_lock_pi2,
    },
    KernelFeature {
        name: "MFD_NOEXEC_SEAL",
        since: (6, 3),
        call: libc::SYS_memfd_create,
        argument: Some((1, libc::MFD_NOEXEC_SEAL, libc::MFD_NOEXEC_SEAL)),
        error: libc::EINVAL,
        ask: probe_noexec_seal,
    },
    KernelFeature {
        name: "RWF_NOWAIT",
        since: (6, 4),
        call: libc::SYS_pwritev2,
        argument: Some((5, libc::RWF_NOWAIT as u32, libc::RWF_NOWAIT as u32)),
        error: libc::EOPNOTSUPP,
        ask: probe_nowait_writes,
    },
    KernelFeature {
        name: "SO_PASSRIGHTS",
        since: (6, 16),
        call: libc::SYS_setsockopt,
        argument: Some((2, u32::MAX, 83)),
        error: libc::ENOPROTOOPT,
        ask: probe_passrights,
    },
];

/// Makes the kernel refuse those [`USED_FEATURES`] that `release` does not have, for the calling
/// thread, and for threads and programs that it starts after the call. The refusal cannot be
/// undone.
///
/// # Errors
/// If the kernel has no seccomp filters, or this module does not know the architecture.
pub fn emulate(release: KernelRelease) -> io::Result<()> {
    let unknown = USED_FEATURES.iter().filter(|newer| newer.since > release);
    let mut program = program_start()?;
    for newer in unknown {
        let number = u32::try_from(newer.call).map_err(|_| io::ErrorKind::InvalidInput)?;
        let error = answer(libc::SECCOMP_RET_ERRNO | u32::try_from(newer.error).unwrap_or_default());
        program.push(load(NUMBER_AT));
        match newer.argument {
            None => program.extend([jump(libc::BPF_JEQ, number, 0, 1), error]),
            Some((index, bits, value)) => program.extend([
                jump(libc::BPF_JEQ, number, 0, 4),
                load(argument_at(index)),
                statement(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, bits),
                jump(libc::BPF_JEQ, value, 0, 1),
                error,
            ]),
        }
    }
    install(program)
}

/// A request to the kernel that [`refuse`] makes fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedRequest {
    /// To change the cores of a thread. The error is `EINVAL`, as for a core that is offline.
    Affinity,
    /// To change the scheduling class or the priority of a thread. The error is `EPERM`, as without
    /// the privilege.
    Scheduling,
    /// To make an eventfd. The error is `EMFILE`, as without a free descriptor.
    EventFd,
    /// To start a thread or a process. The error is `EAGAIN`, as at the maximum number of threads.
    Thread,
}

/// Makes the kernel refuse a request of the calling thread, and of threads and programs that it
/// starts after the call. The refusal cannot be undone.
///
/// # Errors
/// The errors of [`emulate`].
pub fn refuse(request: RefusedRequest) -> io::Result<()> {
    let (calls, error): (&[libc::c_long], _) = match request {
        RefusedRequest::Affinity => (&[libc::SYS_sched_setaffinity], libc::EINVAL),
        RefusedRequest::Scheduling => {
            (&[libc::SYS_sched_setscheduler, libc::SYS_sched_setparam, libc::SYS_sched_setattr], libc::EPERM)
        }
        RefusedRequest::EventFd => (&[libc::SYS_eventfd2], libc::EMFILE),
        RefusedRequest::Thread => (&[libc::SYS_clone, libc::SYS_clone3], libc::EAGAIN),
    };
    let error = answer(libc::SECCOMP_RET_ERRNO | u32::try_from(error).unwrap_or_default());
    let mut program = program_start()?;
    program.push(load(NUMBER_AT));
    for call in calls {
        let number = u32::try_from(*call).map_err(|_| io::ErrorKind::InvalidInput)?;
        program.extend([jump(libc::BPF_JEQ, number, 0, 1), error]);
    }
    install(program)
}

/// Returns the instructions that permit all calls of other architectures.
fn program_start() -> io::Result<Vec<libc::sock_filter>> {
    Ok(vec![load(ARCHITECTURE_AT), jump(libc::BPF_JEQ, architecture()?, 1, 0), answer(libc::SECCOMP_RET_ALLOW)])
}

/// Installs `program` as a filter that permits all calls for which `program` has no answer.
fn install(mut program: Vec<libc::sock_filter>) -> io::Result<()> {
    program.push(answer(libc::SECCOMP_RET_ALLOW));
    let length = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let filter = libc::sock_fprog { len: length, filter: program.as_mut_ptr() };
    // SAFETY: the call takes integers. A thread without privileges may install a filter only after
    // it.
    syscall::once(|| unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
    // SAFETY: the filter points to the number of instructions that it states, and the kernel copies
    // them before the call returns.
    syscall::once(|| unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) })?;
    Ok(())
}

// `struct seccomp_data`: int number, u32 architecture, u64 instruction, u64 arguments[6].
const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;

fn argument_at(index: u32) -> u32 {
    16 + 8 * index + if cfg!(target_endian = "big") { 4 } else { 0 }
}

fn architecture() -> io::Result<u32> {
    if cfg!(all(target_arch = "x86_64", target_pointer_width = "64")) {
        Ok(0xc000_003e)
    } else if cfg!(target_arch = "aarch64") {
        Ok(0xc000_00b7)
    } else {
        Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "the emulation does not know the system calls of this architecture",
        ))
    }
}

fn statement(code: u32, value: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k: value }
}

fn load(at: u32) -> libc::sock_filter {
    statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at)
}

fn answer(value: u32) -> libc::sock_filter {
    statement(libc::BPF_RET | libc::BPF_K, value)
}

/// Returns a filter instruction that skips `then` instructions if the comparison is true, and
/// `otherwise` instructions if it is false.
fn jump(comparison: u32, value: u32, then: u8, otherwise: u8) -> libc::sock_filter {
    let code = (libc::BPF_JMP | comparison | libc::BPF_K) as u16;
    libc::sock_filter { code, jt: then, jf: otherwise, k: value }
}

/// Tries each of the [`USED_FEATURES`], and returns the names of the features that the kernel has
/// for the calling thread.
#[must_use]
pub fn supported_features() -> Vec<&'static str> {
    let is_known = |newer: &&KernelFeature| {
        let error = (newer.ask)().err().and_then(|error| error.raw_os_error());
        error != Some(newer.error) && error != Some(libc::ENOSYS)
    };
    USED_FEATURES.iter().filter(is_known).map(|newer| newer.name).collect()
}

fn probe_sched_setattr() -> io::Result<()> {
    // SAFETY: the kernel refuses a null address for the attributes and reads nothing.
    syscall::once(|| unsafe { libc::syscall(libc::SYS_sched_setattr, 0, 0usize, 0) })?;
    Ok(())
}

fn probe_memfd() -> io::Result<()> {
    made_memory(libc::MFD_CLOEXEC)
}

/// Locks the process's memory, and unlocks it. The kernel does not permit `MCL_ONFAULT` as the only
/// flag.
fn probe_locks_on_fault() -> io::Result<()> {
    // SAFETY: the call takes no pointers. It changes where pages may be kept, not their contents.
    syscall::once(|| unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_ONFAULT) })?;
    // SAFETY: the call takes no arguments. It changes where pages may be kept, not their contents.
    syscall::once(|| unsafe { libc::munlockall() })?;
    Ok(())
}

fn made_memory(flags: libc::c_uint) -> io::Result<()> {
    // SAFETY: the name is a constant, NUL-terminated string.
    let fd = syscall::once(|| unsafe { libc::memfd_create(c"corelane-known".as_ptr(), flags) })?;
    // SAFETY: the kernel has just returned the descriptor, and nothing else owns it.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
    Ok(())
}

fn probe_epoll_pwait2() -> io::Result<()> {
    // SAFETY: no descriptor has the number -1, so the kernel refuses the call and uses no address.
    syscall::once(|| unsafe { libc::syscall(libc::SYS_epoll_pwait2, -1, 0usize, 1, 0usize, 0usize, 0usize) })?;
    Ok(())
}

fn probe_lock_pi2() -> io::Result<()> {
    let word = AtomicU32::new(0);
    let operation = FUTEX_LOCK_PI2 | libc::FUTEX_PRIVATE_FLAG as u32;
    // SAFETY: the word outlives the call; the kernel sets it to this thread's number, and no thread
    // waits for it.
    syscall::futex(|| unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, 0, 0usize) })?;
    Ok(())
}

fn probe_noexec_seal() -> io::Result<()> {
    made_memory(libc::MFD_NOEXEC_SEAL | libc::MFD_CLOEXEC)
}

/// Tries `RWF_NOWAIT` on a pipe: pipes support it only since the version in [`USED_FEATURES`].
fn probe_nowait_writes() -> io::Result<()> {
    let (_reader, writer) = io::pipe()?;
    let octets = [0u8; 1];
    let slice = libc::iovec { iov_base: octets.as_ptr().cast_mut().cast(), iov_len: octets.len() };
    // SAFETY: the slice describes live bytes, which the call reads. An offset of -1 means the
    // file's own position.
    syscall::once(|| unsafe { libc::pwritev2(writer.as_raw_fd(), &raw const slice, 1, -1, libc::RWF_NOWAIT) })?;
    Ok(())
}

fn probe_passrights() -> io::Result<()> {
    let (near, _far) = socket::pair()?;
    if socket::refuse_descriptors(near.as_fd()) { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ENOPROTOOPT)) }
}
