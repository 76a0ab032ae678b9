//! The AF_XDP rings of an interface, and the TUN device into which protocol threads write.
//!
//! The streams of a receive queue share the queue's frames. There are enough frames for full rings
//! of all streams, so a full ring takes no frame from the other streams.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use corelane_sys::clock::Monotonic;
use corelane_sys::interface;
use corelane_sys::netlink::{Netlink, NetlinkFamily, add_attribute, add_nested, flags};
use corelane_sys::tun::TunDevice;
use corelane_sys::xdp::{XdpFrameMemory, XdpQueue, XdpReceiver};

use crate::interface_settings::InterfaceSettings;
use crate::interface_steering::QUEUES;
use crate::memory::{SPARE_RING_FRAMES, fill_ring_frames};
use crate::steering::{MAX_RING_FRAME_BYTES, RING_FRAME_SIZE};

/// Name of the TUN device. The kernel replaces `%d` by the first unused number.
const TUN_NAME: &str = "rio-in%d";
/// Address of the TUN device: the dummy address of RFC 7600, which no other interface needs.
/// Without an address the kernel's loose check of source addresses would discard all packets.
const TUN_ADDRESS: [u8; 4] = [192, 0, 0, 8];
/// Maximum time for which the opening of all queues waits until the kernel has released the earlier
/// sockets of the queues.
const MAX_RELEASE: Duration = Duration::from_millis(200);

// include/uapi/linux/rtnetlink.h, if_link.h, if_addr.h, ip.h.
const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const IFLA_AF_SPEC: u16 = 26;
const IFLA_INET_CONF: u16 = 1;
const IPV4_DEVCONF_RP_FILTER: u16 = 8;
const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
const IN6_ADDR_GEN_MODE_NONE: u8 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const RT_SCOPE_HOST: u8 = 254;
const IFF_UP: u32 = 1;

/// Sizes of the rings of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingSizes {
    /// Maximum number of streams with rings.
    pub(crate) streams: u32,
    /// Number of frames in each ring, a power of two.
    pub(crate) frames: u32,
}

/// The receive queues of an interface with the memory of their frames, and the TUN device.
#[derive(Debug)]
pub(crate) struct PacketRings {
    sizes: RingSizes,
    queues: Vec<Arc<XdpQueue>>,
    tun: Arc<TunDevice>,
}

impl PacketRings {
    /// Opens each receive queue of the interface, up to [`QUEUES`], and the TUN device. After an
    /// error, all of them are closed again. With `waits`, waits until the kernel has released the
    /// earlier sockets of the queues.
    pub(crate) fn open(name: &str, sizes: RingSizes, waits: bool) -> io::Result<Self> {
        let interface = interface::index(name)?;
        check_packets(name)?;
        let of_stream = sizes.frames.saturating_add(SPARE_RING_FRAMES);
        let frames = sizes.streams.checked_mul(of_stream).ok_or(io::ErrorKind::InvalidInput)?;
        let rings = (0..sizes.streams).map(|_| of_stream);
        let fill_entries = fill_ring_frames(rings).ok_or(io::ErrorKind::InvalidInput)?;
        let memory = XdpFrameMemory { frames, frame_size: RING_FRAME_SIZE, fill_entries };
        let deadline = waits.then(|| Monotonic::now() + MAX_RELEASE);
        // The steering tables have no further queues, so frames of further queues are best effort.
        let queues = (0..receive_queues(name)?.min(QUEUES.into()))
            .map(|queue| open_queue(interface, queue, memory, deadline).map(Arc::new));
        let queues = queues.collect::<io::Result<Vec<_>>>()?;
        let tun = TunDevice::create(TUN_NAME)?;
        set_up(interface::index(tun.name())?)?;
        Ok(Self { sizes, queues, tun: Arc::new(tun) })
    }

    pub(crate) fn tun(&self) -> &Arc<TunDevice> {
        &self.tun
    }

    /// Returns the maximum number of bytes that the frames of a stream occupy.
    #[cfg(test)]
    pub(crate) fn frame_memory(&self) -> usize {
        self.queues.iter().map(|queue| queue.memory_size()).sum::<usize>() / self.sizes.streams as usize
    }

    /// Opens a ring on each receive queue for a stream. `open` is the number of streams that have
    /// rings already.
    pub(crate) fn open_receivers(&self, open: usize) -> io::Result<Vec<XdpReceiver>> {
        let most = self.sizes.streams;
        if usize::try_from(most).is_ok_and(|most| open >= most) {
            let text = format!("{most} streams have rings (RioConfig::max_packet_streams)");
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, text));
        }
        self.queues.iter().map(|queue| XdpReceiver::open(queue, self.sizes.frames)).collect()
    }
}

/// Checks that the largest packet of the interface fits into a ring, with a VLAN tag.
///
/// # Errors
/// `Unsupported` if the packet does not fit; `ENODEV` if there is no such interface.
pub(crate) fn check_packets(name: &str) -> io::Result<()> {
    let headers = crate::frame::ETHERNET_HEADER_BYTES + crate::frame::VLAN_TAG_BYTES;
    let longest = MAX_RING_FRAME_BYTES.saturating_sub(u32::try_from(headers).unwrap_or(0));
    let max_packet = interface::mtu(name)?;
    if max_packet > longest {
        let text = format!("{name} has packets of {max_packet} bytes, and a ring has room for {longest}");
        return Err(io::Error::new(io::ErrorKind::Unsupported, text));
    }
    Ok(())
}

/// Counts the receive queues of an interface.
pub(crate) fn receive_queues(name: &str) -> io::Result<u32> {
    let settings = InterfaceSettings::open()?;
    let mut count = 0;
    for entry in std::fs::read_dir(settings.of(name).join("queues"))? {
        count += u32::from(entry?.file_name().to_string_lossy().starts_with("rx-"));
    }
    Ok(count)
}

/// Opens a queue. While the kernel has not released an earlier socket of the queue, tries again until
/// `deadline`.
fn open_queue(interface: u32, queue: u32, memory: XdpFrameMemory, deadline: Option<Monotonic>) -> io::Result<XdpQueue> {
    loop {
        let waits = deadline.is_some_and(|deadline| !deadline.is_past());
        match XdpQueue::open(interface, queue, memory) {
            Err(error) if waits && error.kind() == io::ErrorKind::ResourceBusy => {
                std::thread::sleep(Duration::from_millis(2));
            }
            result => return result,
        }
    }
}

/// Lets the TUN device accept packets whose sources are reached through another interface, and
/// brings it up.
fn set_up(index: u32) -> io::Result<()> {
    let netlink = Netlink::open(NetlinkFamily::Route)?;
    // struct ifinfomsg: family, padding, type, index, flags, changed flags.
    let link = |flags: u32| {
        let mut body = vec![0; 4];
        body.extend(index.to_ne_bytes());
        body.extend([flags, flags].map(u32::to_ne_bytes).concat());
        body
    };
    // 2 is the loose check of source addresses. The strict check would discard the packets, because
    // replies leave through another interface.
    let mut body = link(0);
    let mut settings = Vec::new();
    add_attribute(&mut settings, IPV4_DEVCONF_RP_FILTER, &2_u32.to_ne_bytes());
    add_nested(&mut body, IFLA_AF_SPEC, &nested(AF_INET.into(), &nested(IFLA_INET_CONF, &settings)));
    netlink.request(RTM_NEWLINK, 0, &body)?;
    let mut body = link(0);
    let mut settings = Vec::new();
    add_attribute(&mut settings, IFLA_INET6_ADDR_GEN_MODE, &[IN6_ADDR_GEN_MODE_NONE]);
    add_nested(&mut body, IFLA_AF_SPEC, &nested(AF_INET6.into(), &settings));
    // Without this request, IPv6 would give the device an address. A kernel without IPv6 refuses
    // the request, so errors are ignored.
    let _ = netlink.request(RTM_NEWLINK, 0, &body);
    // struct ifaddrmsg: family, length of the prefix, flags, scope, index. With the scope of the
    // host, the kernel does not choose the address for connections to other hosts.
    let mut body = vec![AF_INET, 32, 0, RT_SCOPE_HOST];
    body.extend(index.to_ne_bytes());
    add_attribute(&mut body, IFA_LOCAL, &TUN_ADDRESS);
    add_attribute(&mut body, IFA_ADDRESS, &TUN_ADDRESS);
    netlink.request(RTM_NEWADDR, flags::CREATE | flags::EXCLUSIVE, &body)?;
    netlink.request(RTM_NEWLINK, 0, &link(IFF_UP))
}

fn nested(kind: u16, attributes: &[u8]) -> Vec<u8> {
    let mut outer = Vec::new();
    add_nested(&mut outer, kind, attributes);
    outer
}
