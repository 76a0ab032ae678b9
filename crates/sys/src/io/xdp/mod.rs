//! AF_XDP sockets that receive frames (Documentation/networking/af_xdp.rst), in copy mode.
//!
//! An XDP program sends frames of a receive queue to sockets, which it finds in a map of the kind
//! [`MapKind::XskMap`](crate::bpf::MapKind::XskMap). The sockets of a queue share the memory of the
//! frames, and the fill ring with the free frames. Each socket has a receive ring of its own.

mod mapping;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use crate::lock::{LockScope, PiMutex};
use crate::syscall;
use mapping::{Mapping, Ring};

/// Bytes at the beginning of a frame that the kernel keeps for XDP programs
/// (`XDP_PACKET_HEADROOM`).
const HEADROOM: usize = 256;
/// Number of descriptors in rings that the kernel requires and nothing uses.
const UNUSED_ENTRIES: u32 = 2;

/// A receive queue of an interface, with memory for frames.
///
/// Invariant: each frame is in the fill ring, in the kernel, or in one receive ring.
#[derive(Debug)]
pub struct XdpQueue {
    fill: PiMutex<FillRing>,
    /// The socket with which the memory is registered. It receives no frames itself.
    socket: OwnedFd,
    memory: Mapping,
    address: libc::sockaddr_xdp,
    frame_size: usize,
}

#[derive(Debug)]
struct FillRing {
    ring: Ring<u64>,
    /// Number of frames that were ever put into the ring, wrapping around.
    produced: u32,
}

/// Sizes of the memory of a receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpFrameMemory {
    /// Number of frames in the queue's memory.
    pub frames: u32,
    /// Size in bytes of a frame, 2048 or 4096 and at most a page.
    pub frame_size: u32,
    /// Number of entries of the fill ring, a power of two and at least `frames`.
    pub fill_entries: u32,
}

/// Counts of the frames that the kernel dropped for a socket since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpStatistics {
    /// Frames that the kernel dropped because the receive ring was full.
    pub ring_full: u64,
    /// Frames that the kernel dropped for another reason: no free frame, or a frame that is too
    /// long.
    pub dropped: u64,
}

impl XdpQueue {
    /// Opens the receive queue `queue` of the interface with this index.
    ///
    /// # Errors
    /// `PermissionDenied` without `CAP_NET_RAW`; `InvalidInput` for sizes that the kernel refuses,
    /// and for an unknown queue; `ResourceBusy` if another process has the queue, or while the
    /// kernel still releases an earlier socket of it; the limit of locked memory without
    /// `CAP_IPC_LOCK`.
    pub fn open(interface: u32, queue: u32, sizes: XdpFrameMemory) -> io::Result<Self> {
        let XdpFrameMemory { frames, frame_size, fill_entries } = sizes;
        if fill_entries < frames || frame_size as usize <= HEADROOM {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let socket = open_socket()?;
        let memory = Mapping::zeroed(frames as usize * frame_size as usize)?;
        // SAFETY: the structure consists of integers, for which zeros are valid.
        let mut registration: libc::xdp_umem_reg = unsafe { std::mem::zeroed() };
        registration.addr = memory.address();
        registration.len = memory.length() as u64;
        registration.chunk_size = frame_size;
        set_option(&socket, libc::XDP_UMEM_REG, &registration)?;
        set_option(&socket, libc::XDP_UMEM_FILL_RING, &fill_entries)?;
        set_option(&socket, libc::XDP_UMEM_COMPLETION_RING, &UNUSED_ENTRIES)?;
        set_option(&socket, libc::XDP_RX_RING, &UNUSED_ENTRIES)?;
        let places = ring_places(&socket)?;
        let ring = Ring::map(socket.as_fd(), libc::XDP_UMEM_PGOFF_FILL_RING, &places.fr, fill_entries)?;
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: libc::XDP_COPY,
            sxdp_ifindex: interface,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: 0,
        };
        let mut fill = FillRing { ring, produced: 0 };
        (0..frames).for_each(|frame| fill.add(u64::from(frame) * u64::from(frame_size)));
        bind(&socket, &address)?;
        let fill = PiMutex::new("fill ring of a receive queue", LockScope::Orb, fill);
        Ok(Self { fill, socket, memory, address, frame_size: frame_size as usize })
    }

    /// Returns the length in bytes of the longest Ethernet frame that fits into a frame of
    /// `frame_size` bytes in memory.
    #[must_use]
    pub const fn max_frame_length(frame_size: u32) -> u32 {
        frame_size.saturating_sub(HEADROOM as u32)
    }

    /// Returns the size of the frames' memory in bytes.
    #[must_use]
    pub fn memory_size(&self) -> usize {
        self.memory.length()
    }

    /// Returns the bytes of a received frame; none if the kernel names bytes outside the memory.
    ///
    /// # Safety
    /// The caller has taken a descriptor with these numbers from a receive ring, and gives the
    /// frame back after the last use of the bytes.
    unsafe fn bytes(&self, descriptor: &libc::xdp_desc) -> &[u8] {
        let length = descriptor.len as usize;
        let start = usize::try_from(descriptor.addr).ok().and_then(|offset| self.memory.range(offset, length));
        // SAFETY: the bytes are inside the memory. The kernel has handed the frame over, and writes
        // to it only after it was given back. Until then no other descriptor names the frame.
        start.map_or(&[], |start| unsafe { std::slice::from_raw_parts(start.as_ptr(), length) })
    }

    fn give_back(&self, address: u64) {
        self.fill.lock().add(address - address % self.frame_size as u64);
    }
}

impl FillRing {
    fn add(&mut self, address: u64) {
        // The ring has room for all frames, and each frame is in one place. So the ring is not full
        // here.
        if self.ring.produce(self.produced, address) {
            self.produced = self.produced.wrapping_add(1);
        }
    }
}

/// An AF_XDP socket, which is readable while frames wait in its receive ring.
#[derive(Debug)]
pub struct XdpSocket(OwnedFd);

/// The receive ring of an AF_XDP socket.
#[derive(Debug)]
pub struct XdpReceiver {
    // The kernel keeps a socket while its ring is mapped, so the ring is dropped first.
    ring: Ring<libc::xdp_desc>,
    socket: Arc<XdpSocket>,
    queue: Arc<XdpQueue>,
    /// Number of frames taken from the ring, wrapping around.
    consumed: u32,
}

impl XdpReceiver {
    /// Opens a socket of the queue whose receive ring has room for `entries` frames, a power of
    /// two.
    ///
    /// # Errors
    /// `InvalidInput` if `entries` is not a power of two; any error that the kernel returns, for
    /// example `NetworkDown` if the interface has been removed.
    pub fn open(queue: &Arc<XdpQueue>, entries: u32) -> io::Result<Self> {
        let socket = open_socket()?;
        set_option(&socket, libc::XDP_RX_RING, &entries)?;
        let ring = Ring::map(socket.as_fd(), 0, &ring_places(&socket)?.rx, entries)?;
        let address = libc::sockaddr_xdp {
            sxdp_flags: libc::XDP_SHARED_UMEM,
            sxdp_shared_umem_fd: queue.socket.as_raw_fd().cast_unsigned(),
            ..queue.address
        };
        bind(&socket, &address)?;
        Ok(Self { ring, socket: Arc::new(XdpSocket(socket)), queue: Arc::clone(queue), consumed: 0 })
    }

    /// Returns the socket, for polling, for statistics and for the map of an XDP program.
    #[must_use]
    pub fn socket(&self) -> &Arc<XdpSocket> {
        &self.socket
    }

    /// Returns the number of frames that wait in the ring.
    #[must_use]
    pub fn waiting(&self) -> u32 {
        self.ring.waiting(self.consumed)
    }

    /// Returns the length in bytes of the first frame in the ring; `None` if the ring is empty.
    #[must_use]
    pub fn head_length(&self) -> Option<u32> {
        (self.waiting() > 0).then(|| self.ring.read(self.consumed).len)
    }

    /// Takes the first frame from the ring, and calls `process` with its bytes. The frame is free
    /// again afterwards. Returns `None` if the ring is empty.
    pub fn receive<R>(&mut self, process: impl FnOnce(&[u8]) -> R) -> Option<R> {
        if self.waiting() == 0 {
            return None;
        }
        let descriptor = self.ring.read(self.consumed);
        // SAFETY: the descriptor is from the ring, and the frame is given back below.
        let result = process(unsafe { self.queue.bytes(&descriptor) });
        // The frame returns to the fill ring before its place in the receive ring becomes free. So
        // the socket never holds more frames than its ring has places.
        self.queue.give_back(descriptor.addr);
        self.consumed = self.consumed.wrapping_add(1);
        self.ring.consume(self.consumed);
        Some(result)
    }
}

impl XdpSocket {
    /// Returns the counts of dropped frames.
    ///
    /// # Errors
    /// Any error that the kernel returns.
    pub fn statistics(&self) -> io::Result<XdpStatistics> {
        // SAFETY: the structure consists of integers, for which zeros are valid.
        let mut found: libc::xdp_statistics = unsafe { std::mem::zeroed() };
        get_option(&self.0, libc::XDP_STATISTICS, &mut found)?;
        Ok(XdpStatistics { ring_full: found.rx_ring_full, dropped: found.rx_dropped })
    }
}

impl AsFd for XdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn open_socket() -> io::Result<OwnedFd> {
    // SAFETY: the call takes no pointers.
    let fd = syscall::once(|| unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the kernel has just returned `fd`, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn ring_places(socket: &OwnedFd) -> io::Result<libc::xdp_mmap_offsets> {
    // SAFETY: the structure consists of integers, for which zeros are valid.
    let mut places: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
    get_option(socket, libc::XDP_MMAP_OFFSETS, &mut places)?;
    Ok(places)
}

fn set_option<T>(socket: &OwnedFd, option: libc::c_int, value: &T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads at most `length` bytes of `value`, which lives through the call.
    syscall::once(|| unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_XDP, option, std::ptr::from_ref(value).cast(), length)
    })
    .map(drop)
}

fn get_option<T>(socket: &OwnedFd, option: libc::c_int, value: &mut T) -> io::Result<()> {
    let mut length = size_of::<T>() as libc::socklen_t;
    let into = std::ptr::from_mut(value).cast();
    // SAFETY: the kernel writes at most `length` bytes into `value`, which lives through the call.
    // Both structures that callers pass consist of integers.
    syscall::once(|| unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_XDP, option, into, &raw mut length) })?;
    // A shorter answer is the layout of a kernel before Linux 5.4.
    if length as usize == size_of::<T>() { Ok(()) } else { Err(io::ErrorKind::Unsupported.into()) }
}

fn bind(socket: &OwnedFd, address: &libc::sockaddr_xdp) -> io::Result<()> {
    let length = size_of_val(address) as libc::socklen_t;
    // SAFETY: `address` is a live address of the given length.
    syscall::once(|| unsafe { libc::bind(socket.as_raw_fd(), std::ptr::from_ref(address).cast(), length) }).map(drop)
}

#[cfg(all(test, not(loom)))]
mod tests;
