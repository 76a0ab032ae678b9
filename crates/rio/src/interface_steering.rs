//! The steering program on an interface, with the streams and connections of this process.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;

use corelane_sys::bpf::{AttachMode, XdpLink};
use corelane_sys::lock::{LockScope, Mutex};
use corelane_sys::thread::{self, Scheduling};
use corelane_sys::{interface, process};

use crate::budget::Budget;
use crate::frame::ConnectionKey;
use crate::packet_rings::{PacketRings, RingSizes};
use crate::protocol_thread::{PacketCounts, ProtocolThread, ThreadSettings};
use crate::steering::{
    ByteRate, Delivery, LoadedSteeringProgram, PacketRate, PortRule, SteeringError, StreamCounts, StreamDelivery,
    StreamId, TableSizes,
};

/// Number of streams in the tables, including best effort.
const STREAMS: u16 = 64;
/// Number of receive queues in the tables. Frames of further queues are best effort.
pub(crate) const QUEUES: u16 = 64;
const MAX_CONNECTIONS: u32 = 4_096;

/// The steering program with its tables, and its link to the interface. Dropping the value detaches
/// the program.
#[derive(Debug)]
pub(crate) struct InterfaceSteering {
    program: LoadedSteeringProgram,
    link: Mutex<Option<XdpLink>>,
    /// For each local port, the number of listeners and connections that need its rule.
    ports: Mutex<BTreeMap<u16, u32>>,
    unused_streams: Mutex<Vec<StreamId>>,
    connections: Mutex<ConnectionOwners>,
    /// The interface that can have rings, and the sizes of its rings; `None` if no stream gets
    /// rings.
    rings_of: Option<(String, RingSizes)>,
    rings: Mutex<Rings>,
}

/// The rings of streams with a budget in packets.
#[derive(Debug, Default)]
struct Rings {
    /// The protocol threads of the streams with rings. They are dropped before `open`, because they
    /// use the receive queues of `open`.
    threads: BTreeMap<StreamId, ProtocolThread>,
    /// `None` while no stream has rings.
    open: Option<PacketRings>,
}

/// For each entry of the connection table, the number of its connection. A new connection can have
/// the addresses of a closed one whose entry has not been removed. The end of the closed connection
/// then leaves the entry, because the numbers differ.
#[derive(Debug, Default)]
struct ConnectionOwners {
    by_key: BTreeMap<ConnectionKey, u64>,
    last: u64,
}

impl InterfaceSteering {
    pub(crate) fn load() -> Result<Self, SteeringError> {
        let sizes = TableSizes { stream_count: STREAMS, receive_queue_count: QUEUES, max_connections: MAX_CONNECTIONS };
        Ok(Self {
            program: LoadedSteeringProgram::load(sizes)?,
            link: Mutex::new("link of the steering program", LockScope::Orb, None),
            ports: Mutex::new("ports in the steering tables", LockScope::Orb, BTreeMap::new()),
            unused_streams: Mutex::new("unused streams", LockScope::Orb, (1..STREAMS).rev().map(StreamId).collect()),
            connections: Mutex::new("connections in the steering tables", LockScope::Orb, ConnectionOwners::default()),
            rings_of: None,
            rings: Mutex::new("rings of an interface", LockScope::Orb, Rings::default()),
        })
    }

    /// Lets streams with a budget in packets have rings on this interface.
    #[must_use]
    pub(crate) fn with_rings(self, interface: &str, sizes: RingSizes) -> Self {
        Self { rings_of: Some((interface.to_owned(), sizes)), ..self }
    }

    #[cfg(test)]
    pub(crate) fn program(&self) -> &corelane_sys::bpf::LoadedProgram {
        self.program.program()
    }

    /// Returns the bytes of frames that a stream with rings occupies.
    #[cfg(test)]
    pub(crate) fn frame_memory(&self) -> usize {
        self.rings.lock().open.as_ref().map_or(0, PacketRings::frame_memory)
    }

    pub(crate) fn attach(&self, name: &str, mode: AttachMode) -> io::Result<()> {
        let mut link = self.link.lock();
        if link.is_none() {
            *link = Some(XdpLink::attach(self.program.program(), interface::index(name)?, mode)?);
        }
        Ok(())
    }

    pub(crate) fn detach(&self) {
        self.link.lock().take();
    }

    pub(crate) fn is_attached(&self) -> bool {
        self.link.lock().as_ref().is_some_and(|link| link.interface().is_ok_and(|interface| interface.is_some()))
    }

    pub(crate) fn counts(&self, stream: StreamId) -> Result<StreamCounts, SteeringError> {
        self.program.counts(stream)
    }

    /// Returns the sum of the frame counts of all streams, without best effort.
    pub(crate) fn total_counts(&self) -> Result<StreamCounts, SteeringError> {
        let mut total = StreamCounts::default();
        for stream in (1..STREAMS).map(StreamId) {
            let StreamCounts {
                receive_context_frames: in_context,
                queued_frames: queued,
                undeliverable_frames: missed,
                dropped_frames: dropped,
            } = self.program.counts(stream)?;
            total.receive_context_frames += in_context;
            total.queued_frames += queued;
            total.undeliverable_frames += missed;
            total.dropped_frames += dropped;
        }
        Ok(total)
    }

    /// Adds a stream whose frames a kernel thread on `core` processes, except those that the
    /// receive context processes at up to `receive_context_rate`. The returned text is the reason
    /// why the kernel thread does not have `scheduling`.
    pub(crate) fn open_stream(
        self: &Arc<Self>,
        core: u32,
        scheduling: Option<Scheduling>,
        queue_frames: u32,
        receive_context_rate: Option<PacketRate>,
    ) -> Result<(SteeredStream, Option<String>), SteeringError> {
        let id = self.unused_streams.lock().pop();
        let full = || {
            let text = format!("the steering tables have {STREAMS} streams");
            io::Error::new(io::ErrorKind::QuotaExceeded, text)
        };
        let id = id.ok_or_else(full)?;
        let earlier = StreamCounts::default();
        let process = process::id();
        let mut opened = SteeredStream { steering: Arc::clone(self), id, core, is_for_rings: false, earlier, process };
        opened.earlier = self.program.counts(id)?;
        self.program.start_thread(id, core, queue_frames)?;
        let refusal = match scheduling {
            Some(scheduling) => self.schedule_thread(id, core, scheduling).err(),
            None => None,
        };
        for queue in 0..u32::from(QUEUES) {
            self.program.set_processor(id, queue, core)?;
        }
        let delivery = Delivery::Thread;
        self.program.set_delivery(id, StreamDelivery { delivery, max_receive_context_rate: receive_context_rate })?;
        Ok((opened, refusal.map(|error| format!("the kernel thread of a stream has the ordinary class: {error}"))))
    }

    /// Makes a kernel thread of the ordinary scheduling class process the frames that belong to no
    /// stream.
    pub(crate) fn start_best_effort_thread(&self, core: u32, queue_frames: u32) -> Result<(), SteeringError> {
        let id = StreamId::BEST_EFFORT;
        self.program.start_thread(id, core, queue_frames)?;
        for queue in 0..u32::from(QUEUES) {
            self.program.set_processor(id, queue, core)?;
        }
        self.program.set_delivery(id, StreamDelivery { delivery: Delivery::Thread, max_receive_context_rate: None })
    }

    /// Limits frames that belong to no stream to `ceiling` in total. The XDP program drops the
    /// frames above it.
    pub(crate) fn set_best_effort_ceiling(&self, ceiling: ByteRate) -> Result<(), SteeringError> {
        self.program.set_best_effort_ceiling(Some(ceiling))
    }

    /// Gives a stream rings and a protocol thread, unless it has them. After an error, a kernel
    /// thread processes the frames of the stream. `waits` is that of [`PacketRings::open`].
    fn open_rings(&self, stream: StreamId, budget: Budget, thread: &ThreadSettings, waits: bool) -> io::Result<()> {
        let (name, sizes) = self.rings_of.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        let mut rings = self.rings.lock();
        if rings.threads.contains_key(&stream) {
            return Ok(());
        }
        let open = match rings.open.take() {
            Some(open) => open,
            None => PacketRings::open(name, *sizes, waits)?,
        };
        let (tun, receivers) = (Arc::clone(open.tun()), open.open_receivers(rings.threads.len()));
        rings.open = Some(open);
        let started = receivers.and_then(|receivers| {
            let thread = ProtocolThread::start(receivers, tun, budget, thread)?;
            for (queue, socket) in (0..).zip(thread.sockets()) {
                self.program.set_xdp_socket(stream, queue, socket.as_fd()).map_err(io::Error::other)?;
            }
            let ring = StreamDelivery { delivery: Delivery::Ring, max_receive_context_rate: None };
            self.program.set_delivery(stream, ring).map_err(io::Error::other)?;
            Ok(thread)
        });
        let started = started.map(|thread| drop(rings.threads.insert(stream, thread)));
        rings.close_unused();
        started
    }

    /// Closes all rings and ends their threads. Frames then go to the kernel threads of their
    /// streams.
    pub(crate) fn close_rings(&self) {
        let mut rings = self.rings.lock();
        for stream in rings.threads.keys() {
            self.deliver_to_kernel_thread(*stream);
        }
        rings.threads.clear();
        rings.close_unused();
    }

    /// Closes all rings if a protocol thread has lost the TUN device. Returns true if it closed
    /// them.
    pub(crate) fn close_broken_rings(&self) -> bool {
        let is_broken = self.rings.lock().threads.values().any(ProtocolThread::has_lost_device);
        if is_broken {
            self.close_rings();
        }
        is_broken
    }

    fn deliver_to_kernel_thread(&self, stream: StreamId) {
        // After an error, frames for the closed rings count as undeliverable and are best effort.
        let _ = self
            .program
            .set_delivery(stream, StreamDelivery { delivery: Delivery::Thread, max_receive_context_rate: None });
    }

    fn schedule_thread(&self, stream: StreamId, core: u32, scheduling: Scheduling) -> io::Result<()> {
        let name = self.program.thread_name(stream, core)?;
        let hidden = || io::Error::new(io::ErrorKind::NotFound, format!("the process does not see the thread {name}"));
        let thread = thread::find_kernel_thread(&name)?.ok_or_else(hidden)?;
        thread::set_scheduling(Some(thread), scheduling)
    }

    /// Adds a rule for the frames to a local port, or counts a further user of the rule.
    pub(crate) fn open_port(self: &Arc<Self>, port: u16) -> Result<SteeredPort, SteeringError> {
        let mut ports = self.ports.lock();
        let users = ports.entry(port).or_default();
        if *users == 0 {
            self.program.set_port(port, Some(PortRule::ServerPort))?;
        }
        *users += 1;
        Ok(SteeredPort { steering: Arc::clone(self), port, process: process::id() })
    }
}

impl Rings {
    fn close_unused(&mut self) {
        if self.threads.is_empty() {
            self.open = None;
        }
    }
}

/// The entry of a stream in the steering tables. Dropping the value removes the entry.
#[derive(Debug)]
pub(crate) struct SteeredStream {
    steering: Arc<InterfaceSteering>,
    id: StreamId,
    core: u32,
    /// True if the stream has a budget in packets.
    is_for_rings: bool,
    /// Counts of earlier streams with the same number, which `counts` subtracts.
    earlier: StreamCounts,
    process: u32,
}

/// The place of a stream in the tables, for calls without the lock that guards its
/// [`SteeredStream`]. After the end of the [`SteeredStream`], another stream can get the place.
#[derive(Debug)]
pub(crate) struct StreamPlace {
    steering: Arc<InterfaceSteering>,
    id: StreamId,
    core: u32,
}

impl StreamPlace {
    /// Gives the stream rings and a protocol thread, unless it has them. `waits` is that of
    /// [`PacketRings::open`].
    pub(crate) fn open_rings(&self, budget: Budget, thread: &ThreadSettings, waits: bool) -> io::Result<()> {
        self.steering.open_rings(self.id, budget, thread, waits)
    }

    /// Returns the name of the kernel thread that processes the frames; `None` if a protocol thread
    /// processes them.
    pub(crate) fn thread_name(&self) -> Option<String> {
        let has_rings = self.steering.rings.lock().threads.contains_key(&self.id);
        if has_rings { None } else { self.steering.program.thread_name(self.id, self.core).ok() }
    }

    /// Returns the counts of the protocol thread; `None` if the stream has no rings.
    pub(crate) fn packet_counts(&self) -> Option<PacketCounts> {
        self.steering.rings.lock().threads.get(&self.id).map(ProtocolThread::counts)
    }
}

impl SteeredStream {
    /// Sets whether the stream can have rings.
    #[must_use]
    pub(crate) fn for_rings(mut self, is_for_rings: bool) -> Self {
        self.is_for_rings = is_for_rings;
        self
    }

    pub(crate) fn steering(&self) -> &Arc<InterfaceSteering> {
        &self.steering
    }

    /// Returns the counts since the stream was opened.
    pub(crate) fn counts(&self) -> Result<StreamCounts, SteeringError> {
        let (counts, earlier) = (self.steering.counts(self.id)?, self.earlier);
        let since = |count: fn(&StreamCounts) -> u64| count(&counts).saturating_sub(count(&earlier));
        Ok(StreamCounts {
            receive_context_frames: since(|counts| counts.receive_context_frames),
            queued_frames: since(|counts| counts.queued_frames),
            undeliverable_frames: since(|counts| counts.undeliverable_frames),
            dropped_frames: since(|counts| counts.dropped_frames),
        })
    }

    pub(crate) fn place(&self) -> StreamPlace {
        StreamPlace { steering: Arc::clone(&self.steering), id: self.id, core: self.core }
    }

    /// Adds a connection of the stream. Returns `None`, and the connection stays best effort, if
    /// the addresses have different IP versions, or if the stream can have rings and `local` is a
    /// link-local IPv6 address.
    pub(crate) fn add_connection(
        &self,
        remote: SocketAddr,
        local: SocketAddr,
    ) -> Result<Option<SteeredConnection>, SteeringError> {
        let Some(key) = ConnectionKey::new(remote, local) else { return Ok(None) };
        // The kernel does not deliver a packet from a TUN device to a link-local address of another
        // interface. So the connection stays best effort.
        let is_link_local = matches!(local.ip(), IpAddr::V6(address) if address.is_unicast_link_local());
        if self.is_for_rings && is_link_local {
            return Ok(None);
        }
        let port = self.steering.open_port(local.port())?;
        let mut owners = self.steering.connections.lock();
        self.steering.program.add_connection(key, self.id)?;
        owners.last += 1;
        let number = owners.last;
        owners.by_key.insert(key, number);
        drop(owners);
        Ok(Some(SteeredConnection { key, number, port }))
    }
}

impl Drop for SteeredStream {
    fn drop(&mut self) {
        // The tables belong to the process that opened the stream, not to its forked children.
        if self.process != process::id() {
            return;
        }
        let program = &self.steering.program;
        let mut rings = self.steering.rings.lock();
        rings.threads.remove(&self.id);
        rings.close_unused();
        drop(rings);
        // Errors are ignored: if a call fails, an entry or a thread remains that no connection
        // uses.
        let _ = program.set_delivery(self.id, StreamDelivery::default());
        let _ = program.stop_thread(self.id, self.core);
        self.steering.unused_streams.lock().push(self.id);
    }
}

/// A use of the steering rule of a local port. Dropping the last use of a port removes its rule.
#[derive(Debug)]
pub(crate) struct SteeredPort {
    steering: Arc<InterfaceSteering>,
    port: u16,
    process: u32,
}

impl Drop for SteeredPort {
    fn drop(&mut self) {
        if self.process != process::id() {
            return;
        }
        let mut ports = self.steering.ports.lock();
        let Some(users) = ports.get_mut(&self.port) else { return };
        *users -= 1;
        if *users == 0 {
            ports.remove(&self.port);
            // An error leaves a rule whose frames are best effort, because no connection has the
            // port.
            let _ = self.steering.program.set_port(self.port, None);
        }
    }
}

/// The entry of a connection in the steering tables. Dropping the value removes the entry.
#[derive(Debug)]
pub(crate) struct SteeredConnection {
    key: ConnectionKey,
    number: u64,
    port: SteeredPort,
}

impl Drop for SteeredConnection {
    fn drop(&mut self) {
        if self.port.process != process::id() {
            return;
        }
        let steering = &self.port.steering;
        let mut owners = steering.connections.lock();
        if owners.by_key.get(&self.key) == Some(&self.number) {
            owners.by_key.remove(&self.key);
            // An error leaves the entry of a connection that has ended, which only occupies a place
            // in the table.
            let _ = steering.program.remove_connection(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use corelane_sys::bpf::unavailable_reason;

    use super::*;

    #[test]
    fn the_kernel_thread_of_a_stream_has_the_priority_of_the_lane() {
        if let Some(refusal) = crate::examination::steering_refusal() {
            return println!("not run: {refusal}");
        }
        if thread::find_kernel_thread("kthreadd").unwrap().is_none() {
            return println!("not run: the process does not see the kernel's threads");
        }
        let steering = Arc::new(InterfaceSteering::load().unwrap());
        let (stream, lack) = steering.open_stream(0, Some(Scheduling::Fifo(3)), 64, None).unwrap();
        assert_eq!(lack, None);
        let name = steering.program.thread_name(stream.id, 0).unwrap();
        let thread = thread::find_kernel_thread(&name).unwrap().unwrap();
        assert_eq!(thread::scheduling(Some(thread)).unwrap(), Scheduling::Fifo(3));
        let (other, lack) = steering.open_stream(0, None, 64, None).unwrap();
        assert_eq!((other.id, lack), (StreamId(2), None));
        let other = thread::find_kernel_thread(&steering.program.thread_name(other.id, 0).unwrap()).unwrap();
        assert_eq!(thread::scheduling(other).unwrap(), Scheduling::Other);
        drop(stream);
        // The kernel ends the thread after a grace period.
        let deadline = corelane_sys::clock::now() + std::time::Duration::from_secs(30);
        while thread::find_kernel_thread(&name).unwrap().is_some() {
            assert!(!deadline.is_past(), "{name} has not ended");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    #[test]
    fn ports_and_streams_are_given_back() {
        if let Some(refusal) = unavailable_reason() {
            return println!("not run: {refusal}");
        }
        let steering = Arc::new(InterfaceSteering::load().unwrap());
        let (stream, _) = steering.open_stream(0, None, 64, None).unwrap();
        let ends = ("10.0.0.1:5".parse().unwrap(), "10.0.0.2:6".parse().unwrap());
        let connection = stream.add_connection(ends.0, ends.1).unwrap().unwrap();
        steering.program().test_run(&crate::frame::build::tcp(ends.0, ends.1, 0, 0), 3).unwrap();
        assert_eq!(stream.counts().unwrap().queued_frames, 3);
        let port = steering.open_port(6).unwrap();
        assert_eq!(steering.ports.lock().get(&6), Some(&2));
        drop(connection);
        assert_eq!(steering.ports.lock().get(&6), Some(&1));
        assert!(!steering.program.remove_connection(&ConnectionKey::new(ends.0, ends.1).unwrap()).unwrap());
        drop(port);
        assert_eq!(steering.ports.lock().get(&6), None);
        drop(stream);
        let (stream, _) = steering.open_stream(0, None, 64, None).unwrap();
        assert_eq!((stream.id, stream.counts().unwrap()), (StreamId(1), StreamCounts::default()));
        assert_eq!(steering.total_counts().unwrap().queued_frames, 3);
    }

    #[test]
    fn entry_of_a_later_connection_with_the_same_addresses_stays() {
        if let Some(refusal) = unavailable_reason() {
            return println!("not run: {refusal}");
        }
        let steering = Arc::new(InterfaceSteering::load().unwrap());
        let [(first, _), (second, _)] = [0; 2].map(|core| steering.open_stream(core, None, 64, None).unwrap());
        let ends = ("10.0.0.1:5".parse().unwrap(), "10.0.0.2:6".parse().unwrap());
        let queued = |stream: &SteeredStream| stream.counts().unwrap().queued_frames;
        let frame = crate::frame::build::tcp(ends.0, ends.1, 0, 0);
        let old = first.add_connection(ends.0, ends.1).unwrap().unwrap();
        let new = second.add_connection(ends.0, ends.1).unwrap().unwrap();
        drop(old);
        steering.program().test_run(&frame, 1).unwrap();
        assert_eq!((queued(&first), queued(&second)), (0, 1));
        drop(new);
        steering.program().test_run(&frame, 1).unwrap();
        assert_eq!((queued(&first), queued(&second)), (0, 1));
        assert!(steering.connections.lock().by_key.is_empty());
    }
}
