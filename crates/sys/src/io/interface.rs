//! Network interfaces of the calling thread's network namespace: index, state, offloads and
//! settings.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::syscall;

/// Returns the index of the interface `name`.
///
/// # Errors
/// `NotFound` if the namespace has no such interface; `InvalidInput` if `name` contains NUL.
pub fn index(name: &str) -> io::Result<u32> {
    let name = CString::new(name).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: `name` is a terminated string that lives through the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::ErrorKind::NotFound.into()),
        index => Ok(index),
    }
}

/// Returns true if the interface is up and its link has a carrier.
///
/// # Errors
/// `ENODEV` if the namespace has no such interface; `InvalidInput` if `name` contains NUL or is too
/// long.
pub fn is_running(name: &str) -> io::Result<bool> {
    let mut request = request(name)?;
    control(libc::SIOCGIFFLAGS, &mut request)?;
    // SAFETY: the kernel has set the flags, and every bit pattern of the field is valid.
    let flags = i32::from(unsafe { request.ifr_ifru.ifru_flags });
    Ok(flags & libc::IFF_UP != 0 && flags & libc::IFF_RUNNING != 0)
}

/// Returns the size in bytes of the largest packet that the interface sends.
///
/// # Errors
/// As for [`is_running`].
pub fn mtu(name: &str) -> io::Result<u32> {
    let mut request = request(name)?;
    control(libc::SIOCGIFMTU, &mut request)?;
    // SAFETY: the kernel has set the size, and every bit pattern of the field is valid.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    u32::try_from(mtu).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// A setting that lets the interface, or the kernel's driver code, do work on packets (`ethtool
/// -K`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// The interface computes the checksums of sent packets (`ethtool -K IF tx`).
    SentChecksums,
    /// Received segments are merged before the protocol stack processes them (`ethtool -K IF gro`).
    /// A `veth` interface with this setting receives by NAPI, as network cards do.
    MergedSegments,
}

/// Turns the setting `offload` of `interface` on or off.
///
/// # Errors
/// `PermissionDenied` without `CAP_NET_ADMIN`; `Unsupported` if the interface has no such setting;
/// `InvalidInput` for an invalid name; any other error that the kernel returns.
pub fn set_offload(interface: &str, offload: Offload, is_on: bool) -> io::Result<()> {
    /// `struct ethtool_value` of include/uapi/linux/ethtool.h.
    #[repr(C)]
    struct Setting {
        command: u32,
        value: u32,
    }
    let command = match offload {
        Offload::SentChecksums => 0x17,  // ETHTOOL_STXCSUM
        Offload::MergedSegments => 0x2c, // ETHTOOL_SGRO
    };
    let mut setting = Setting { command, value: u32::from(is_on) };
    let mut request = request(interface)?;
    request.ifr_ifru.ifru_data = std::ptr::from_mut(&mut setting).cast();
    control(libc::SIOCETHTOOL, &mut request)
}

/// Opens the root of a sysfs that shows the interfaces of the calling thread's network namespace.
/// The file system at `/sys` shows the namespace of the process that mounted it.
///
/// # Errors
/// `PermissionDenied` without `CAP_SYS_ADMIN`; `ENOSYS` before Linux 5.2.
pub fn open_sysfs() -> io::Result<OwnedFd> {
    const FSOPEN_CLOEXEC: libc::c_uint = 1;
    const FSMOUNT_CLOEXEC: libc::c_uint = 1;
    const FSCONFIG_CMD_CREATE: libc::c_uint = 6;
    let own = |fd: libc::c_long| {
        let fd = libc::c_int::try_from(fd).map_err(|_| io::ErrorKind::InvalidData)?;
        // SAFETY: the kernel has just returned `fd`, and nothing else owns it.
        Ok::<_, io::Error>(unsafe { OwnedFd::from_raw_fd(fd) })
    };
    // SAFETY: the name is a terminated string of static lifetime.
    let context = syscall::once(|| unsafe { libc::syscall(libc::SYS_fsopen, c"sysfs".as_ptr(), FSOPEN_CLOEXEC) })?;
    let context = own(context)?;
    let null = std::ptr::null::<libc::c_char>();
    // SAFETY: the command takes neither a key nor a value.
    syscall::once(|| unsafe {
        libc::syscall(libc::SYS_fsconfig, context.as_raw_fd(), FSCONFIG_CMD_CREATE, null, null, 0)
    })?;
    // SAFETY: the call takes no pointers.
    own(syscall::once(|| unsafe { libc::syscall(libc::SYS_fsmount, context.as_raw_fd(), FSMOUNT_CLOEXEC, 0) })?)
}

fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: `ifreq` consists of integers and pointers, for which zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() || name.bytes().any(|byte| byte == 0) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    request.ifr_name.iter_mut().zip(name.bytes()).for_each(|(into, byte)| *into = byte as libc::c_char);
    Ok(request)
}

fn control(command: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    // SAFETY: the call takes no pointers.
    let fd = syscall::once(|| unsafe { libc::socket(libc::AF_INET, kind, 0) })?;
    // SAFETY: the kernel has just returned `fd`, and nothing else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: the commands of this module read and write one `ifreq`; `SIOCETHTOOL` also accesses
    // the setting to which it points. Both live through the call.
    syscall::once(|| unsafe { libc::ioctl(socket.as_raw_fd(), command as _, std::ptr::from_mut(request)) })?;
    Ok(())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_found() {
        assert!(index("lo").unwrap() > 0);
        assert!(is_running("lo").is_ok());
        assert!(mtu("lo").unwrap() >= 1_280);
        assert_eq!(mtu("no-such-if").unwrap_err().raw_os_error(), Some(libc::ENODEV));
        assert_eq!(index("no-such-if").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(is_running("no-such-if").unwrap_err().raw_os_error(), Some(libc::ENODEV));
        assert_eq!(is_running("a-name-that-is-too-long").unwrap_err().kind(), io::ErrorKind::InvalidInput);
        let missing = set_offload("no-such-if", Offload::MergedSegments, true).unwrap_err();
        assert_eq!(missing.raw_os_error(), Some(libc::ENODEV));
    }
}
