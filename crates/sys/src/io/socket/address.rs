//! Addresses of stream sockets, and their conversion to and from the kernel's structures.

use std::fmt;
use std::io;
use std::mem::offset_of;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use crate::syscall;

/// An address at which a stream socket listens or to which it connects.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// TCP over IPv4 or IPv6.
    Inet(SocketAddr),
    /// A Unix socket in the file system.
    Unix(PathBuf),
    /// A Unix socket in Linux's abstract name space: its name without the leading NUL.
    Abstract(Vec<u8>),
    /// A Unix socket without a name, such as the socket of a client.
    Unnamed,
}

impl Address {
    /// Returns the address if it is a TCP address.
    pub fn as_inet(&self) -> Option<&SocketAddr> {
        match self {
            Self::Inet(address) => Some(address),
            Self::Unix(_) | Self::Abstract(_) | Self::Unnamed => None,
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Inet(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inet(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Abstract(name) => write!(f, "unix:@{}", name.escape_ascii()),
            Self::Unnamed => f.write_str("unix:(unnamed)"),
        }
    }
}

/// Returns the address to which the socket is bound.
///
/// # Errors
/// When the kernel is out of memory.
pub fn local_address(fd: BorrowedFd<'_>) -> io::Result<Address> {
    let mut raw = RawAddress::unspecified();
    let (pointer, length) = raw.as_mut_ptr();
    // SAFETY: `pointer` has room for any address, as `length` says, and both outlive the call.
    syscall::once(|| unsafe { libc::getsockname(fd.as_raw_fd(), pointer, length) })?;
    Ok(raw.to_address())
}

/// Returns the address of a connected socket's peer.
///
/// # Errors
/// `NotConnected` if the socket has no peer.
pub fn peer_address(fd: BorrowedFd<'_>) -> io::Result<Address> {
    let mut raw = RawAddress::unspecified();
    let (pointer, length) = raw.as_mut_ptr();
    // SAFETY: `pointer` has room for any address, as `length` says, and both outlive the call.
    syscall::once(|| unsafe { libc::getpeername(fd.as_raw_fd(), pointer, length) })?;
    Ok(raw.to_address())
}

#[repr(C)]
union AddressStorage {
    any: libc::sockaddr_storage,
    inet4: libc::sockaddr_in,
    inet6: libc::sockaddr_in6,
    unix: libc::sockaddr_un,
}

/// An address in the form of the kernel.
///
/// Invariant: every byte of `storage` is initialised, because it starts zeroed and only whole
/// structures are written. `length` never exceeds the size of `storage`.
pub(super) struct RawAddress {
    storage: AddressStorage,
    length: libc::socklen_t,
}

const PATH: usize = offset_of!(libc::sockaddr_un, sun_path);
const PATH_MAX: usize = size_of::<libc::sockaddr_un>() - PATH;

impl RawAddress {
    pub(super) fn unspecified() -> Self {
        // SAFETY: the structures hold integers and arrays of integers, for which zeroes are valid.
        let storage = unsafe { std::mem::zeroed() };
        Self { storage, length: size_of::<AddressStorage>() as libc::socklen_t }
    }

    pub(super) fn from_address(address: &Address) -> io::Result<Self> {
        let mut raw = Self::unspecified();
        match address {
            Address::Inet(SocketAddr::V4(address)) => raw.set_inet4(address),
            Address::Inet(SocketAddr::V6(address)) => raw.set_inet6(address),
            Address::Unix(path) => raw.set_unix(path.as_os_str().as_bytes(), false)?,
            Address::Abstract(name) => raw.set_unix(name, true)?,
            Address::Unnamed => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "an unnamed Unix socket cannot be listened on or connected to",
                ));
            }
        }
        Ok(raw)
    }

    fn set_inet4(&mut self, address: &SocketAddrV4) {
        self.storage.inet4 = libc::sockaddr_in {
            sin_family: libc::AF_INET as libc::sa_family_t,
            sin_port: address.port().to_be(),
            sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
            sin_zero: [0; 8],
        };
        self.length = size_of::<libc::sockaddr_in>() as libc::socklen_t;
    }

    fn set_inet6(&mut self, address: &SocketAddrV6) {
        self.storage.inet6 = libc::sockaddr_in6 {
            sin6_family: libc::AF_INET6 as libc::sa_family_t,
            sin6_port: address.port().to_be(),
            sin6_flowinfo: address.flowinfo(),
            sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
            sin6_scope_id: address.scope_id(),
        };
        self.length = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
    }

    /// Sets a Unix name. A path ends with NUL. An abstract name begins with NUL, and its length
    /// delimits it.
    fn set_unix(&mut self, name: &[u8], is_abstract: bool) -> io::Result<()> {
        if name.is_empty() || name.len() + 1 > PATH_MAX || (!is_abstract && name.contains(&0)) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("a Unix socket's name has 1 to {} octets and no NUL", PATH_MAX - 1),
            ));
        }
        let mut unix = libc::sockaddr_un { sun_family: libc::AF_UNIX as libc::sa_family_t, sun_path: [0; PATH_MAX] };
        let start = usize::from(is_abstract);
        for (to, &from) in unix.sun_path[start..].iter_mut().zip(name) {
            *to = from as libc::c_char;
        }
        self.storage.unix = unix;
        self.length = (PATH + name.len() + 1) as libc::socklen_t;
        Ok(())
    }

    pub(super) fn family(&self) -> libc::c_int {
        // SAFETY: all bytes are initialised, and every member has the family at the same offset.
        libc::c_int::from(unsafe { self.storage.any.ss_family })
    }

    pub(super) fn as_ptr(&self) -> (*const libc::sockaddr, libc::socklen_t) {
        ((&raw const self.storage).cast(), self.length)
    }

    pub(super) fn as_mut_ptr(&mut self) -> (*mut libc::sockaddr, *mut libc::socklen_t) {
        ((&raw mut self.storage).cast(), &raw mut self.length)
    }

    pub(super) fn to_address(&self) -> Address {
        match self.family() {
            libc::AF_INET => {
                // SAFETY: all bytes of the union are initialised, and any are valid integers.
                let inet4 = unsafe { &self.storage.inet4 };
                let ip = Ipv4Addr::from(inet4.sin_addr.s_addr.to_ne_bytes());
                Address::Inet(SocketAddrV4::new(ip, u16::from_be(inet4.sin_port)).into())
            }
            libc::AF_INET6 => {
                // SAFETY: all bytes of the union are initialised, and any are valid integers.
                let inet6 = unsafe { &self.storage.inet6 };
                let ip = Ipv6Addr::from(inet6.sin6_addr.s6_addr);
                let port = u16::from_be(inet6.sin6_port);
                let address = SocketAddrV6::new(ip, port, inet6.sin6_flowinfo, inet6.sin6_scope_id);
                Address::Inet(address.into())
            }
            _ => self.to_unix(),
        }
    }

    fn to_unix(&self) -> Address {
        // SAFETY: all bytes of the union are initialised; `sun_path` is an array of integers.
        let path = unsafe { &self.storage.unix.sun_path };
        let length = (self.length as usize).saturating_sub(PATH).min(path.len());
        let name: Vec<u8> = path[..length].iter().map(|octet| octet.to_ne_bytes()[0]).collect();
        match name.split_first() {
            None => Address::Unnamed,
            Some((0, name)) => Address::Abstract(name.to_vec()),
            Some(_) => {
                let end = name.iter().position(|&octet| octet == 0).unwrap_or(name.len());
                Address::Unix(std::ffi::OsString::from_vec(name[..end].to_vec()).into())
            }
        }
    }
}
