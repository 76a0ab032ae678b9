//! TUN devices: network interfaces whose received packets a thread of this process writes
//! (Documentation/networking/tuntap.rst).

use std::ffi::CStr;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;

use crate::syscall;

/// A TUN device, which the kernel removes when the value is dropped or the process ends.
///
/// The kernel's IP and TCP run inside [`receive`](Self::receive), in the calling thread. The device
/// receives nothing until it is up.
#[derive(Debug)]
pub struct TunDevice {
    fd: OwnedFd,
    name: String,
}

/// The state of the checksum of a packet's TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketChecksum {
    /// The kernel must verify the checksum.
    Unverified,
    /// The segment never left this machine, and its checksum was left to a network card: the field
    /// has the sum of the pseudo header only.
    Partial {
        /// Offset of the TCP header in the packet.
        tcp: u16,
    },
}

/// `struct virtio_net_hdr` (include/uapi/linux/virtio_net.h).
#[repr(C)]
#[derive(Default)]
struct PacketHeader {
    flags: u8,
    gso_type: u8,
    hdr_len: u16,
    gso_size: u16,
    csum_start: u16,
    csum_offset: u16,
}

const VIRTIO_NET_HDR_F_NEEDS_CSUM: u8 = 1;
/// Offset of the checksum in a TCP header.
const TCP_CHECKSUM: u16 = 16;

impl TunDevice {
    /// Creates a device in the calling thread's network namespace. `%d` in `name` becomes the first
    /// free number.
    ///
    /// # Errors
    /// `PermissionDenied` without `CAP_NET_ADMIN`; `NotFound` if the machine has no `/dev/net/tun`;
    /// `InvalidInput` if `name` is too long.
    pub fn create(name: &str) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun")?;
        let fd = OwnedFd::from(file);
        // SAFETY: `ifreq` consists of integers and pointers, for which zeros are valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        if name.len() >= request.ifr_name.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        request.ifr_name.iter_mut().zip(name.bytes()).for_each(|(into, byte)| *into = byte as libc::c_char);
        let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
        request.ifr_ifru.ifru_flags = flags as libc::c_short;
        // SAFETY: the command reads and writes one `ifreq`, which lives through the call.
        syscall::once(|| unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) })?;
        // SAFETY: the array was zeroed, and the kernel ends the name with a zero inside the array.
        let name = unsafe { CStr::from_ptr(request.ifr_name.as_ptr()) };
        Ok(Self { fd, name: name.to_string_lossy().into_owned() })
    }

    /// Returns the name of the interface.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Lets the device receive an IP packet. The kernel processes it before the call returns.
    ///
    /// # Errors
    /// `InvalidInput` if `packet` is not an IP packet; `NetworkDown` if the device is down or was
    /// removed; any other error that the kernel returns.
    pub fn receive(&self, packet: &[u8], checksum: PacketChecksum) -> io::Result<()> {
        let header = match checksum {
            PacketChecksum::Unverified => PacketHeader::default(),
            PacketChecksum::Partial { tcp } => PacketHeader {
                flags: VIRTIO_NET_HDR_F_NEEDS_CSUM,
                csum_start: tcp,
                csum_offset: TCP_CHECKSUM,
                ..PacketHeader::default()
            },
        };
        let parts = [
            libc::iovec { iov_base: (&raw const header).cast_mut().cast(), iov_len: size_of_val(&header) },
            libc::iovec { iov_base: packet.as_ptr().cast_mut().cast(), iov_len: packet.len() },
        ];
        // SAFETY: the call only reads the header and the packet, which live through it.
        let written = syscall::retry_interrupted(|| unsafe { libc::writev(self.fd.as_raw_fd(), parts.as_ptr(), 2) });
        let written = written.map_err(|error| match error.raw_os_error() {
            Some(libc::EIO | libc::EBADFD) => io::ErrorKind::NetworkDown.into(),
            _ => error,
        })?;
        let is_whole = usize::try_from(written).is_ok_and(|written| written >= packet.len());
        if is_whole { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::net::UdpSocket;
    use std::process::Command;

    use super::*;
    use crate::process;

    fn ip(words: &str) {
        let status = Command::new("ip").args(words.split(' ')).status().expect("iproute2 is installed");
        assert!(status.success(), "ip {words}");
    }

    /// Returns a UDP datagram without a checksum.
    fn datagram(to_port: u16, payload: &[u8]) -> Vec<u8> {
        let length = |header: usize| u16::try_from(header + payload.len()).unwrap().to_be_bytes();
        let [high, low] = length(28);
        let mut packet = vec![0x45, 0, high, low, 0, 0, 0, 0, 64, 17, 0, 0, 10, 98, 0, 2, 10, 98, 0, 1];
        let words = packet.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
        let sum: u32 = words.sum();
        let checksum = !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap();
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        packet.extend([0, 9]);
        packet.extend(to_port.to_be_bytes());
        packet.extend(length(8));
        packet.extend([0, 0]);
        packet.extend(payload);
        packet
    }

    #[test]
    fn received_packet_reaches_its_socket_before_the_call_returns() {
        if let Some(name) = process::missing_namespace_capability() {
            return println!("not run: the process lacks {name}");
        }
        let run = || {
            process::enter_new_network_namespace().unwrap();
            let device = match TunDevice::create("rio%d") {
                Ok(device) => device,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return println!("not run: {error}"),
                Err(error) => panic!("{error}"),
            };
            assert_eq!(device.name(), "rio0");
            let packet = datagram(7, b"early");
            let refusal = device.receive(&packet, PacketChecksum::Unverified).unwrap_err();
            assert_eq!(refusal.kind(), io::ErrorKind::NetworkDown);
            ip("address add 10.98.0.1/24 dev rio0");
            ip("link set rio0 up");
            let socket = UdpSocket::bind("10.98.0.1:0").unwrap();
            let port = socket.local_addr().unwrap().port();
            device.receive(&datagram(port, b"some octets"), PacketChecksum::Unverified).unwrap();
            socket.set_nonblocking(true).unwrap();
            let mut buffer = [0; 64];
            let (count, from) = socket.recv_from(&mut buffer).unwrap();
            assert_eq!((&buffer[..count], from.to_string().as_str()), (&b"some octets"[..], "10.98.0.2:9"));
            let refusal = device.receive(&[0x15; 40], PacketChecksum::Unverified).unwrap_err();
            assert_eq!(refusal.kind(), io::ErrorKind::InvalidInput);
            ip("link delete rio0");
            let refusal = device.receive(&packet, PacketChecksum::Unverified).unwrap_err();
            assert_eq!(refusal.kind(), io::ErrorKind::NetworkDown);
            drop(device);
            assert!(crate::interface::index("rio0").is_err());
        };
        std::thread::spawn(run).join().unwrap();
    }
}
