//! Requests to the kernel over netlink (RFC 3549; netlink(7), include/uapi/linux/netlink.h).

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use crate::lock::{LockScope, Mutex};
use crate::{socket, syscall};

/// Part of the kernel that answers requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetlinkFamily {
    /// Interfaces, routes and traffic control (rtnetlink(7)).
    Route,
    /// Families whose number is looked up by name (generic netlink).
    Generic,
}

/// A socket for requests, which belongs to the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Netlink {
    fd: OwnedFd,
    /// Number of the last request. The lock is held for a whole request.
    last: Mutex<u32>,
}

/// Size of `struct nlmsghdr`.
const HEADER: usize = 16;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// Flag of a nested attribute.
const NLA_F_NESTED: u16 = 0x8000;
/// Maximum time for which a request waits for each answer of the kernel.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// Flags of requests (netlink(7)).
pub mod flags {
    /// Replace an existing object.
    pub const REPLACE: u16 = 0x100;
    /// Fail if the object exists.
    pub const EXCLUSIVE: u16 = 0x200;
    /// Create an object that does not exist.
    pub const CREATE: u16 = 0x400;
}

impl Netlink {
    /// Opens a socket.
    ///
    /// # Errors
    /// Any error that the kernel returns, for example at the limit on open descriptors.
    pub fn open(family: NetlinkFamily) -> io::Result<Self> {
        let protocol = match family {
            NetlinkFamily::Route => libc::NETLINK_ROUTE,
            NetlinkFamily::Generic => libc::NETLINK_GENERIC,
        };
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
        // SAFETY: the call takes no pointers.
        let fd = syscall::once(|| unsafe { libc::socket(libc::AF_NETLINK, kind, protocol) })?;
        // SAFETY: the kernel has just returned `fd`, and nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: `sockaddr_nl` consists of integers, for which zeros are valid.
        let mut kernel: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        kernel.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        let length = size_of_val(&kernel) as libc::socklen_t;
        // A connected socket receives from the kernel only.
        // SAFETY: `kernel` is a live address of the given length.
        syscall::once(|| unsafe { libc::connect(fd.as_raw_fd(), (&raw const kernel).cast(), length) })?;
        socket::set_receive_timeout(std::os::fd::AsFd::as_fd(&fd), Some(MAX_WAIT))?;
        Ok(Self { fd, last: Mutex::new("netlink socket", LockScope::Orb, 0) })
    }

    /// Sends a request of type `kind`, and returns when the kernel has executed it.
    ///
    /// # Errors
    /// The kernel's refusal; `WouldBlock` if no answer comes within 5 s.
    pub fn request(&self, kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
        self.exchange(kind, flags | NLM_F_ACK, body).map(drop)
    }

    /// Sends a request for a list of objects or, with `is_list` false, for one object. Returns the
    /// body of each answer.
    ///
    /// # Errors
    /// The kernel's refusal; `WouldBlock` if no answer comes within 5 s.
    pub fn query(&self, kind: u16, is_list: bool, body: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        self.exchange(kind, if is_list { NLM_F_DUMP } else { NLM_F_ACK }, body)
    }

    fn exchange(&self, kind: u16, flags: u16, body: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        let mut last = self.last.lock();
        *last = last.wrapping_add(1);
        let length = u32::try_from(HEADER + body.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut message = length.to_ne_bytes().to_vec();
        message.extend(kind.to_ne_bytes());
        message.extend((flags | NLM_F_REQUEST).to_ne_bytes());
        message.extend(last.to_ne_bytes());
        message.extend([0; 4]);
        message.extend(body);
        // SAFETY: the kernel reads `message`, which lives through the call.
        syscall::once(|| unsafe { libc::send(self.fd.as_raw_fd(), message.as_ptr().cast(), message.len(), 0) })?;
        let mut answers = Vec::new();
        let mut buffer = vec![0; 65_536];
        loop {
            // SAFETY: the kernel writes at most the length of `buffer`, which lives through the
            // call.
            let received = syscall::retry_interrupted(|| unsafe {
                libc::recv(self.fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0)
            })?;
            let received = buffer.get(..usize::try_from(received).unwrap_or(0)).unwrap_or_default();
            if take_answers(received, *last, &mut answers)? {
                return Ok(answers);
            }
        }
    }
}

/// Adds the bodies of the answers to request `number`. Returns true after the last answer.
fn take_answers(mut received: &[u8], number: u32, answers: &mut Vec<Vec<u8>>) -> io::Result<bool> {
    while let Some((header, rest)) = received.split_at_checked(HEADER) {
        let length = usize::try_from(read_u32_at(header, 0).unwrap_or(0)).unwrap_or(0);
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let body_length = length.checked_sub(HEADER).ok_or_else(invalid)?;
        let body = rest.get(..body_length).ok_or_else(invalid)?;
        received = rest.get(body_length.next_multiple_of(4)..).unwrap_or_default();
        // A late answer to an earlier request is ignored.
        if read_u32_at(header, 8) != Some(number) {
            continue;
        }
        match half(header, 4) {
            Some(NLMSG_DONE) => return Ok(true),
            Some(NLMSG_ERROR) => {
                return match read_u32_at(body, 0).map(u32::cast_signed) {
                    Some(0) => Ok(true),
                    Some(code) => Err(io::Error::from_raw_os_error(code.saturating_neg())),
                    None => Err(invalid()),
                };
            }
            _ => answers.push(body.to_vec()),
        }
    }
    Ok(false)
}

/// Returns the 32-bit number at an offset.
#[must_use]
pub fn read_u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

/// Adds an attribute to the body of a request.
pub fn add_attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    body.extend(length.to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

/// Adds an attribute that contains attributes.
pub fn add_nested(body: &mut Vec<u8>, kind: u16, attributes: &[u8]) {
    add_attribute(body, kind | NLA_F_NESTED, attributes);
}

/// Returns the value of the first attribute of type `kind`. Returns `None` if no attribute has the
/// type, or if the attribute or an earlier one has an invalid length.
#[must_use]
pub fn find_attribute(mut attributes: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let length = usize::from(half(attributes, 0)?);
        let found = half(attributes, 2)?;
        let value = attributes.get(4..length)?;
        if found & !NLA_F_NESTED == kind {
            return Some(value);
        }
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_found_as_they_were_added() {
        let mut body = Vec::new();
        add_attribute(&mut body, 1, b"htb\0");
        add_attribute(&mut body, 7, &[5]);
        let mut inner = Vec::new();
        add_attribute(&mut inner, 3, &9_u32.to_ne_bytes());
        add_nested(&mut body, 2, &inner);
        assert_eq!(find_attribute(&body, 7), Some(&[5][..]));
        assert_eq!(find_attribute(&body, 2).and_then(|inner| read_u32_at(find_attribute(inner, 3)?, 0)), Some(9));
        assert_eq!(find_attribute(&body, 4), None);
        for length in 0..body.len() {
            let _ = find_attribute(&body[..length], 2);
        }
        assert_eq!(find_attribute(&[0, 0, 1, 0], 2), None);
    }

    #[test]
    fn answers_of_wrong_lengths_are_refused() {
        let mut done = vec![20, 0, 0, 0, 3, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0];
        assert!(take_answers(&done, 7, &mut Vec::new()).is_err());
        done.extend([0; 4]);
        assert!(take_answers(&done, 7, &mut Vec::new()).unwrap());
        assert!(!take_answers(&done, 8, &mut Vec::new()).unwrap());
        done[0] = 15;
        assert!(take_answers(&done, 7, &mut Vec::new()).is_err());
    }

    #[test]
    fn the_kernel_lists_the_loopback_interface_and_refuses_an_absent_one() {
        const RTM_GETLINK: u16 = 18;
        let netlink = Netlink::open(NetlinkFamily::Route).unwrap();
        let links = netlink.query(RTM_GETLINK, true, &[0; 16]).unwrap();
        // `struct ifinfomsg` has 16 bytes; the attribute IFLA_IFNAME is 3.
        assert!(links.iter().any(|link| find_attribute(&link[16..], 3) == Some(b"lo\0")));
        let mut absent = [0; 16];
        absent[4..8].copy_from_slice(&4_000_000_u32.to_ne_bytes());
        let refusal = netlink.query(RTM_GETLINK, false, &absent).unwrap_err();
        assert_eq!(refusal.raw_os_error(), Some(libc::ENODEV));
    }
}
