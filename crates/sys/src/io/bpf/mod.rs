//! bpf(2) as safe functions: maps, XDP programs, their test runs, and their links to interfaces.
//!
//! Loading needs `CAP_BPF` and `CAP_NET_ADMIN`. [`unavailable_reason`] returns the reason why
//! bpf(2) is not available.

pub mod assembler;
mod link;
mod map;
mod program;

use std::os::fd::{FromRawFd, OwnedFd};
use std::{fmt, fs, io};

use crate::syscall;

pub use assembler::{
    Arithmetic, AssembleError, Assembler, Condition, Helper, Instruction, Label, MapSymbol, Operand, Program, Register,
    Width,
};
pub use link::{AttachMode, XdpLink};
pub use map::{Map, MapKind, possible_processors};
pub use program::{LoadError, LoadedProgram, TestRunResult, XdpAction, load};

/// Commands of bpf(2) (include/uapi/linux/bpf.h, `enum bpf_cmd`).
#[derive(Clone, Copy)]
#[repr(u32)]
enum Command {
    MapCreate = 0,
    MapLookup = 1,
    MapUpdate = 2,
    MapDelete = 3,
    ProgramLoad = 5,
    TestRun = 10,
    ObjectInfo = 15,
    LinkCreate = 28,
    LinkUpdate = 29,
}

/// Number of further attempts to load a program. The verifier gives up with EAGAIN when a signal
/// arrives, so a single attempt could fail without a fault.
const LOAD_RETRIES: u32 = 5;

/// Makes a bpf(2) call, and repeats it if a signal ends a test run or the verification of a
/// program.
///
/// # Safety
/// `Attributes` is the beginning of the kernel's `union bpf_attr` for `command`, without padding
/// bytes. Every address in it is valid for the length that the kernel reads or writes there.
unsafe fn enter<Attributes>(command: Command, attributes: &mut Attributes) -> io::Result<i32> {
    let mut retries = 0..LOAD_RETRIES;
    loop {
        let result = syscall::retry_interrupted(|| {
            // SAFETY: the attributes live through the call and have the given size. The caller
            // guarantees the rest of the contract.
            unsafe {
                libc::syscall(
                    libc::SYS_bpf,
                    command as libc::c_ulong,
                    std::ptr::from_mut(attributes),
                    size_of::<Attributes>(),
                )
            }
        });
        let is_given_up = result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
        if !(is_given_up && matches!(command, Command::ProgramLoad) && retries.next().is_some()) {
            return i32::try_from(result?).map_err(|_| io::ErrorKind::InvalidData.into());
        }
    }
}

/// `union bpf_attr` for `BPF_OBJ_GET_INFO_BY_FD`.
#[repr(C)]
struct InfoAttributes {
    bpf_fd: u32,
    info_len: u32,
    info: u64,
}

/// Returns the owner of a descriptor that the kernel has just returned.
///
/// # Safety
/// `fd` is open and has no other owner.
unsafe fn own(fd: i32) -> OwnedFd {
    // SAFETY: the caller guarantees that `fd` is open and has no other owner.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn address<T: ?Sized>(pointer: *const T) -> u64 {
    pointer.cast::<u8>().expose_provenance() as u64
}

/// Returns `name` in the form that the kernel accepts: at most 15 letters, digits and underscores.
fn object_name(name: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    let valid = name.bytes().map(|byte| if byte.is_ascii_alphanumeric() { byte } else { b'_' });
    bytes.iter_mut().take(15).zip(valid).for_each(|(into, byte)| *into = byte);
    bytes
}

/// Reason why the calling thread cannot use bpf(2).
#[derive(Debug)]
#[non_exhaustive]
pub enum BpfUnavailable {
    /// The kernel was built without bpf(2).
    NotSupported,
    /// The thread lacks the named capability.
    MissingCapability(&'static str),
    /// The kernel refuses the call for another reason, for example lockdown or seccomp.
    Kernel(io::Error),
}

impl fmt::Display for BpfUnavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSupported => f.write_str("the kernel has no bpf(2)"),
            Self::MissingCapability(name) => write!(f, "the process lacks {name}"),
            Self::Kernel(error) => write!(f, "the kernel refuses bpf(2) in spite of the capabilities: {error}"),
        }
    }
}

impl std::error::Error for BpfUnavailable {}

/// Loads a small map and a small XDP program as a trial. Returns `None` if the kernel accepts both.
#[must_use]
pub fn unavailable_reason() -> Option<BpfUnavailable> {
    let tried = Map::create(MapKind::Array, "probe", 4, 4, 1).map(drop).and_then(|()| {
        let mut asm = Assembler::new();
        asm.set(Register::R0, XdpAction::PASS).exit();
        let program = asm.finish().map_err(io::Error::other)?;
        load("probe", &program, &[]).map(drop).map_err(|error| error.error)
    });
    let error = tried.err()?;
    Some(match error.raw_os_error() {
        Some(libc::ENOSYS) => BpfUnavailable::NotSupported,
        Some(libc::EPERM | libc::EACCES) => match missing_capability() {
            Some(name) => BpfUnavailable::MissingCapability(name),
            None => BpfUnavailable::Kernel(error),
        },
        _ => BpfUnavailable::Kernel(error),
    })
}

const CAPABILITIES: [(&str, u32); 2] = [("CAP_BPF", 39), ("CAP_NET_ADMIN", 12)];
const CAP_SYS_ADMIN: u32 = 21;

/// Returns true if the calling thread has the capability with this number
/// (include/uapi/linux/capability.h). False if `/proc` does not exist.
#[must_use]
pub fn has_capability(number: u32) -> bool {
    let status = fs::read_to_string("/proc/thread-self/status").ok();
    let effective = status.and_then(|status| effective_capabilities(&status)).unwrap_or(0);
    effective.checked_shr(number).unwrap_or(0) & 1 == 1
}

fn missing_capability() -> Option<&'static str> {
    let status = fs::read_to_string("/proc/thread-self/status").ok()?;
    let effective = effective_capabilities(&status)?;
    let has = |number: u32| effective >> number & 1 == 1;
    let missing = |(name, number)| {
        // `CAP_SYS_ADMIN` includes `CAP_BPF`, which Linux 5.8 split off from it.
        let stands_in = name == "CAP_BPF" && has(CAP_SYS_ADMIN);
        (!has(number) && !stands_in).then_some(name)
    };
    CAPABILITIES.into_iter().find_map(missing)
}

fn effective_capabilities(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn object_names_are_valid_for_the_kernel() {
        assert_eq!(&object_name("lane/0 ring"), b"lane_0_ring\0\0\0\0\0");
        assert_eq!(&object_name("a_name_that_is_too_long"), b"a_name_that_is_\0");
    }

    #[test]
    fn effective_capabilities_are_read_from_the_status() {
        let status = "CapPrm:\t0000000000000000\nCapEff:\t000001ffffffffff\nCapBnd:\t0\n";
        assert_eq!(effective_capabilities(status), Some(0x1ff_ffff_ffff));
        assert_eq!(effective_capabilities("CapEff:\tnone\n"), None);
    }

    #[test]
    fn reason_names_only_missing_capabilities() {
        match unavailable_reason() {
            Some(BpfUnavailable::MissingCapability(name)) => assert_eq!(missing_capability(), Some(name)),
            Some(other) => println!("bpf(2) is not available here: {other}"),
            None => println!("bpf(2) is available here"),
        }
    }
}
