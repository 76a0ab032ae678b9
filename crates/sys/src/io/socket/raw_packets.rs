//! IPv4 packets with headers of the caller, for tests.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::syscall;

/// A raw socket that sends complete IPv4 packets.
#[derive(Debug)]
pub struct RawPacketSender(OwnedFd);

impl RawPacketSender {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// `PermissionDenied` without `CAP_NET_RAW`.
    pub fn open() -> io::Result<Self> {
        // SAFETY: the call takes no pointers.
        let fd = syscall::once(|| unsafe {
            libc::socket(libc::AF_INET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::IPPROTO_RAW)
        })?;
        // SAFETY: the kernel has just returned `fd`, and nothing else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Sends a packet that begins with an IPv4 header. The kernel sets the header's checksum and
    /// total length.
    ///
    /// # Errors
    /// `InvalidInput` if `packet` is shorter than a header; any error that the kernel returns, for
    /// example if its queue is full.
    pub fn send(&self, packet: &[u8]) -> io::Result<()> {
        let destination = packet.get(16..20).and_then(|octets| <[u8; 4]>::try_from(octets).ok());
        let destination = destination.ok_or(io::ErrorKind::InvalidInput)?;
        let to = libc::sockaddr_in {
            sin_family: libc::AF_INET as libc::sa_family_t,
            sin_port: 0,
            sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(destination) },
            sin_zero: [0; 8],
        };
        let length = size_of_val(&to) as libc::socklen_t;
        // SAFETY: the packet is live and only read; `to` is one live address of the length given.
        syscall::once(|| unsafe {
            libc::sendto(self.0.as_raw_fd(), packet.as_ptr().cast(), packet.len(), 0, (&raw const to).cast(), length)
        })?;
        Ok(())
    }
}
