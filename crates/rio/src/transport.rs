//! [`RioTransport`]: TCP connections that belong to streams with a service class.

use std::io;
use std::num::NonZeroU32;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use corelane_net::{
    ConnectionProperties, Endpoint, IoClass, IoProperties, Listener, Monotonic, Stream, TcpTransport, Transport,
};
use corelane_sched::task::Nanos;
use corelane_sys::lock::{LockScope, Mutex, PiMutex};
use corelane_sys::socket;
use corelane_sys::thread::Scheduling;

use crate::budget::Budget;
use crate::byte_budget::{ByteBudget, Clock, monotonic};
use crate::config::RioConfig;
use crate::connection::RioStream;
use crate::feature_level::FeatureLevel;
use crate::interface_steering::InterfaceSteering;
use crate::kernel_priorities::PrioritizedStream;
use crate::level_control::LevelControl;
use crate::memory::MemoryBound;
use crate::protocol_thread::{PacketCounts, ThreadSettings};
use crate::status::{StatusServer, StatusText};
use crate::steering::{PacketRate, StreamCounts, StreamId};
use crate::stream_admission::{AdmittedStream, AdmittedStreams, StreamNotAdmitted};
use crate::stream_steering::{SteeringMember, StreamSteering, TableAttempt};
use crate::transmit_classes::class_of_stream;
use crate::turns::BudgetCounts;

/// `SO_PRIORITY` of the sockets of a stream without a transmit class. A higher priority needs
/// `CAP_NET_ADMIN` (socket(7)).
const STREAM_PRIORITY: u32 = 6;

/// TCP with real-time I/O. It serves the addresses of [`TcpTransport`], which it replaces in the
/// list of an ORB's transports.
///
/// Unless [`RioConfig::max_level`] is [`FeatureLevel::PlainTcp`], a lane with the class
/// [`IoClass::Priority`], [`IoClass::LowLatency`], [`IoClass::Guaranteed`] or
/// [`IoClass::GuaranteedPackets`] is a stream for each of its addresses. A client's connections
/// with equal class, priority and cores are one stream. Connections of the class
/// [`IoClass::BestEffort`] belong to no stream.
///
/// The transport uses the highest [`FeatureLevel`] that the machine and the configuration permit.
/// When the last ORB that uses the transport has ended, the level falls to
/// [`FeatureLevel::PlainTcp`] until another ORB begins.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use corelane_net::{Endpoint, IoClass, IoProperties, Transport};
/// use corelane_rio::{RioConfig, RioTransport};
///
/// let transport = RioTransport::new(RioConfig::default());
/// let class = IoClass::Guaranteed { bytes: 65_536, period: Duration::from_millis(10) };
/// let io = IoProperties { class, ..IoProperties::default() };
/// let listener = transport.listen_with_io_properties(&Endpoint::tcp("127.0.0.1", 0), &io)?;
/// let _client = transport.connect(listener.local_endpoint(), None)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct RioTransport {
    tcp: TcpTransport,
    /// Makes the connections of streams, with receive buffers beyond the system's limit.
    stream_tcp: TcpTransport,
    config: RioConfig,
    /// Replaces the monotonic clock in tests. The transport then starts no thread for a budget in
    /// bytes, because a thread waits by the monotonic clock.
    test_clock: Option<Clock>,
    levels: Arc<LevelControl>,
    /// Number of the last stream that was requested, even if admission refused it.
    numbers: AtomicU32,
    streams: Arc<StreamList>,
    admitted: Option<AdmittedStreams>,
    /// Number of ORBs that use the transport, and the server that reports the transport's state.
    status: Mutex<(usize, Option<StatusServer>)>,
    /// Held from the look-up of a client's stream until the stream is open, so that concurrent
    /// calls with equal properties open one stream.
    client_opening: PiMutex<()>,
}

type StreamList = Mutex<Vec<Weak<StreamState>>>;

pub(crate) struct StreamState {
    number: u32,
    /// The stream's place among the admitted streams. Dropping this value frees the place. `None`
    /// without admission, or if admission is advisory and refuses the stream.
    _admitted: Option<AdmittedStream>,
    refusal: Option<StreamNotAdmitted>,
    io: IoProperties,
    is_of_listener: bool,
    pub(crate) budget: Option<ByteBudget>,
    steering: Arc<StreamSteering>,
    connections: AtomicU32,
    refused: AtomicU32,
    max_connections: u32,
    queue_frames: u32,
    max_unsent: u32,
    /// True if the configuration asks for kernel priorities, so that the interface may have
    /// transmit classes.
    has_class: bool,
}

/// The state of a stream, for diagnostics.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamStatus {
    /// Number of the stream, unique in the transport.
    pub number: u32,
    /// Service class, priority and cores of the lane or of the client's calls.
    pub io_properties: IoProperties,
    /// Number of open connections.
    pub connections: u32,
    /// Number of connections that the transport refused because the stream had
    /// [`max_connections`](Self::max_connections).
    pub refused_connections: u32,
    /// Counts of the frames of this stream. `None` if the steering program does not sort the
    /// frames, or if its counters cannot be read.
    pub frame_counts: Option<StreamCounts>,
    /// The reason why the stream lacks a function of the feature level; `None` if it lacks none.
    pub missing_feature_reason: Option<String>,
    /// The refusal of a stream that advisory admission has opened nevertheless; `None` for all
    /// other streams.
    pub refusal: Option<StreamNotAdmitted>,
    /// Use of the budget in bytes. `None` for all service classes but [`IoClass::Guaranteed`].
    pub budget: Option<BudgetCounts>,
    /// Use of the budget in packets. `None` for all service classes but
    /// [`IoClass::GuaranteedPackets`], and while the stream has no rings.
    pub packets: Option<PacketCounts>,
    /// True if a listener accepts the stream's connections, false if a client opens them.
    pub is_server_stream: bool,
    /// Maximum number of connections that the stream has at the same time.
    pub max_connections: u32,
    /// Name of the kernel thread that processes the stream's frames; `None` if there is no such
    /// thread, or if its name is unknown.
    pub kernel_thread: Option<String>,
    /// Maximum number of frames that wait for the kernel thread.
    pub queue_frames: u32,
}

impl StreamStatus {
    fn write(&self, text: &mut StatusText) {
        text.begin_stream();
        text.add("number", self.number);
        text.add("side", if self.is_server_stream { "server" } else { "client" });
        text.add(
            "class",
            match self.io_properties.class {
                IoClass::Guaranteed { .. } => "guaranteed",
                IoClass::GuaranteedPackets { .. } => "guaranteed packets",
                IoClass::LowLatency { .. } => "low latency",
                _ => "priority",
            },
        );
        self.io_properties.native_priority.iter().for_each(|priority| text.add("native_priority", priority));
        text.add("connections", self.connections);
        text.add("max_connections", self.max_connections);
        text.add("refused_connections", self.refused_connections);
        if let (IoClass::Guaranteed { bytes, period }, Some(counts)) = (self.io_properties.class, self.budget) {
            text.add("period_ns", period.as_nanos());
            text.add("budget_bytes", bytes);
            text.add("budget_used_bytes", counts.period_bytes);
            text.add("waiting_connections", counts.waiting_connections);
            text.add("waits", counts.wait_count);
            text.add("received_bytes", counts.received_bytes);
            text.add("period_thread", format_args!("rio/s{}", self.number));
        }
        if let (IoClass::GuaranteedPackets { packets, period }, Some(counts)) = (self.io_properties.class, self.packets)
        {
            text.add("period_ns", period.as_nanos());
            text.add("budget_packets", packets);
            text.add("budget_used_packets", counts.period_packets);
            text.add("max_period_packets", counts.max_period_packets);
            text.add("processed_packets", counts.processed);
            text.add("waits", counts.waits);
            text.add("ring_full_frames", counts.ring_full);
            text.add("lost_frames", counts.lost);
            text.add("period_thread", format_args!("rio/s{}", self.number));
        }
        if let (IoClass::LowLatency { packets, period }, Some(_)) = (self.io_properties.class, self.frame_counts) {
            text.add("period_ns", period.as_nanos());
            text.add("cap_packets", packets);
        }
        if let Some(frames) = self.frame_counts {
            text.add("frames_queued", frames.queued_frames);
            text.add("frames_missed", frames.undeliverable_frames);
            text.add("frames_in_context", frames.receive_context_frames);
            text.add("queue_frames", self.queue_frames);
        }
        self.kernel_thread.iter().for_each(|name| text.add("kernel_thread", name));
        self.missing_feature_reason.iter().for_each(|lack| text.add("lack", lack));
        self.refusal.iter().for_each(|refusal| text.add("refusal", refusal));
    }
}

impl RioTransport {
    /// Creates a transport at the highest feature level that the machine and the configuration
    /// permit. The result is in [`level`](Self::level) and
    /// [`level_limit_reason`](Self::level_limit_reason).
    #[must_use]
    pub fn new(config: RioConfig) -> Self {
        Self::with_clock(config, None)
    }

    fn with_clock(config: RioConfig, test_clock: Option<Clock>) -> Self {
        let streams: Arc<StreamList> = Arc::new(Mutex::new("streams of a transport", LockScope::Orb, Vec::new()));
        let attached = Arc::clone(&streams);
        // Adds the open streams to the tables. Streams that were opened at a lower level are not in
        // the tables yet.
        let attach = move |steering: &Arc<InterfaceSteering>, attempt| {
            let streams = open_streams(&attached);
            StreamSteering::attach_all(streams.iter().map(|stream| &stream.steering), steering, attempt);
        };
        let listed = Arc::clone(&streams);
        let prioritized = |stream: &Arc<StreamState>| PrioritizedStream {
            number: stream.number,
            native_priority: stream.io.native_priority,
        };
        let list = move || open_streams(&listed).iter().map(prioritized).collect();
        let tcp = TcpTransport::new();
        Self {
            stream_tcp: tcp.clone().forcing_receive_buffers(),
            tcp,
            levels: Arc::new(LevelControl::new(config.clone(), Box::new(attach), Box::new(list))),
            admitted: config.admission.clone().map(AdmittedStreams::new),
            config,
            test_clock,
            numbers: AtomicU32::new(0),
            streams,
            status: Mutex::new("status of a transport", LockScope::Orb, (0, None)),
            client_opening: PiMutex::new("opening of a client's stream", LockScope::Orb, ()),
        }
    }

    /// Returns the feature level in use.
    #[must_use]
    pub fn level(&self) -> FeatureLevel {
        self.levels.level()
    }

    /// Returns the reason why the level is not higher.
    #[must_use]
    pub fn level_limit_reason(&self) -> String {
        limit_text(&self.levels)
    }

    /// Returns the reason why the interface lacks receive threads with a priority, or transmit
    /// classes. `None` if it has both, or if they are not requested
    /// ([`RioConfig::has_kernel_priorities`]).
    #[must_use]
    pub fn missing_priorities_reason(&self) -> Option<String> {
        self.levels.priorities_lack()
    }

    /// Returns the maximum memory of each stream with the service class `class`.
    #[must_use]
    pub fn memory_bound(&self, class: IoClass) -> MemoryBound {
        self.config.memory_bound(class)
    }

    /// Returns the state of each open stream.
    #[must_use]
    pub fn streams(&self) -> Vec<StreamStatus> {
        statuses(&self.streams)
    }

    /// Returns the sum of the frame counts of all streams, including streams that have ended.
    /// `None` if the steering program was never loaded, or if its counters cannot be read.
    #[must_use]
    pub fn frame_counts(&self) -> Option<StreamCounts> {
        self.levels.steering()?.total_counts().ok()
    }

    /// Returns the counts of the frames that belong to no stream. `undeliverable_frames` counts the
    /// frames that the receive context processes, `dropped_frames` those above
    /// [`RioConfig::max_best_effort_receive_rate`]. `None` if the steering program was never
    /// loaded, or if its counters cannot be read.
    #[must_use]
    pub fn best_effort_frames(&self) -> Option<StreamCounts> {
        self.levels.steering()?.counts(StreamId::BEST_EFFORT).ok()
    }

    /// Returns true if connections with these properties belong to no stream. The configured level
    /// decides, because the level in use may still rise.
    fn is_plain(&self, io: &IoProperties) -> bool {
        io.class == IoClass::BestEffort || self.config.max_level == FeatureLevel::PlainTcp
    }

    fn open_stream(&self, io: &IoProperties, is_of_listener: bool) -> io::Result<Arc<StreamState>> {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed) + 1;
        let (admitted, refusal) = self.admit(number, io)?;
        let scheduling = io.native_priority.map(Scheduling::Fifo);
        let name = format!("rio/s{number}");
        let packets = match io.class {
            IoClass::GuaranteedPackets { packets, period } => {
                let thread = ThreadSettings { name: name.clone(), scheduling, cores: io.cores };
                Some((packet_budget(packets, period)?, thread))
            }
            _ => None,
        };
        let receive_context_rate = match io.class {
            IoClass::LowLatency { packets, period } => {
                let Budget { period, .. } = packet_budget(packets, period)?;
                NonZeroU32::new(packets).map(|packets| PacketRate::of_period(packets, period))
            }
            _ => None,
        };
        let budget = match io.class {
            IoClass::Guaranteed { bytes, period } => {
                let thread = self.test_clock.is_none().then_some((name.as_str(), scheduling, io.cores));
                Some(ByteBudget::start(bytes, period, self.test_clock.unwrap_or(monotonic), thread)?)
            }
            _ => None,
        };
        let core = self.config.core_of(io);
        let stream = Arc::new(StreamState {
            _admitted: admitted,
            refusal,
            number,
            io: *io,
            is_of_listener,
            budget,
            steering: StreamSteering::new(
                core,
                scheduling,
                self.config.thread_queue_frames,
                receive_context_rate,
                packets,
            ),
            connections: AtomicU32::new(0),
            refused: AtomicU32::new(0),
            max_connections: self.config.max_connections,
            queue_frames: self.config.thread_queue_frames,
            max_unsent: self.config.max_unsent_bytes,
            has_class: self.config.requests_kernel_priorities(),
        });
        let mut streams = self.streams.lock();
        streams.retain(|stream| stream.strong_count() > 0);
        streams.push(Arc::downgrade(&stream));
        drop(streams);
        self.levels.follow_streams();
        // If the tables are made after this look-up, the level control adds the stream, which is in
        // the list already.
        self.levels.steering().iter().for_each(|steering| {
            stream.steering.attach(steering, TableAttempt::Now);
        });
        Ok(stream)
    }

    /// Admits a stream. Returns its place, or the refusal if admission is advisory; neither without
    /// admission.
    ///
    /// # Errors
    /// `QuotaExceeded` if admission is not advisory and refuses the stream.
    fn admit(&self, number: u32, io: &IoProperties) -> io::Result<(Option<AdmittedStream>, Option<StreamNotAdmitted>)> {
        let Some(admitted) = &self.admitted else { return Ok((None, None)) };
        match admitted.admit(number, io, &self.config) {
            Ok(stream) => Ok((Some(stream), None)),
            Err(refusal) if admitted.is_advisory() => Ok((None, Some(refusal))),
            Err(refusal) => Err(io::Error::new(io::ErrorKind::QuotaExceeded, refusal)),
        }
    }

    fn client_stream(&self, io: &IoProperties) -> io::Result<Arc<StreamState>> {
        let _opening = self.client_opening.lock();
        match open_streams(&self.streams).into_iter().find(|stream| !stream.is_of_listener && stream.io == *io) {
            Some(stream) => Ok(stream),
            None => self.open_stream(io, false),
        }
    }
}

/// Returns the budget of `packets` packets in each period.
///
/// # Errors
/// `InvalidInput` if `packets` is 0, or if the period is out of range.
fn packet_budget(packets: u32, period: Duration) -> io::Result<Budget> {
    let budget = Budget::of_packets(packets, Nanos::try_from(period.as_nanos()).unwrap_or(Nanos::MAX));
    budget.check().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    Ok(budget)
}

fn limit_text(levels: &LevelControl) -> String {
    match levels.limit() {
        (_, Some(failure)) => failure,
        (limit, None) => limit.to_string(),
    }
}

fn open_streams(streams: &StreamList) -> Vec<Arc<StreamState>> {
    streams.lock().iter().filter_map(Weak::upgrade).collect()
}

fn statuses(streams: &StreamList) -> Vec<StreamStatus> {
    open_streams(streams).iter().map(|stream| stream.status()).collect()
}

fn status_text(interface: Option<&str>, levels: &LevelControl, streams: &StreamList) -> StatusText {
    let mut text = StatusText::new();
    interface.iter().for_each(|name| text.add("interface", name));
    text.add("level", levels.level());
    text.add("limit", limit_text(levels));
    levels.priorities_lack().iter().for_each(|lack| text.add("priorities_lack", lack));
    levels.journal().iter().for_each(|path| text.add("journal", path.display()));
    if let Some(frames) = levels.steering().and_then(|steering| steering.counts(StreamId::BEST_EFFORT).ok()) {
        text.add("best_effort_frames_queued", frames.queued_frames);
        text.add("best_effort_frames_in_receive_context", frames.undeliverable_frames);
        text.add("best_effort_frames_dropped", frames.dropped_frames);
    }
    statuses(streams).iter().for_each(|stream| stream.write(&mut text));
    text
}

/// Returns `properties` with the configured size for each buffer that has none. The size of the
/// receive buffer depends on the service class.
fn fixed(config: &RioConfig, class: IoClass, properties: &ConnectionProperties) -> ConnectionProperties {
    ConnectionProperties {
        send_buffer_size: properties.send_buffer_size.or(Some(config.send_buffer_size)),
        receive_buffer_size: properties.receive_buffer_size.or(Some(config.receive_buffer_size_of(class))),
        ..*properties
    }
}

/// Sets the size of the receive buffer, even beyond the system's limit if the process has
/// `CAP_NET_ADMIN`.
fn force_receive_buffer(fd: BorrowedFd<'_>, properties: &ConnectionProperties) {
    if let Some(size) = properties.receive_buffer_size.and_then(|size| usize::try_from(size).ok()) {
        // Without the privilege, the size stays at the system's limit.
        let _ = socket::force_receive_buffer_size(fd, size);
    }
}

impl std::fmt::Debug for RioTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RioTransport({}, {:?})", self.level(), self.config)
    }
}

impl Transport for RioTransport {
    fn name(&self) -> &'static str {
        "rio"
    }

    fn supports(&self, endpoint: &Endpoint) -> bool {
        self.tcp.supports(endpoint)
    }

    fn connect_with_properties(
        &self,
        endpoint: &Endpoint,
        properties: &ConnectionProperties,
        deadline: Option<Monotonic>,
    ) -> io::Result<Box<dyn Stream>> {
        self.connect_with_io_properties(endpoint, properties, &IoProperties::default(), deadline)
    }

    fn connect_with_io_properties(
        &self,
        endpoint: &Endpoint,
        properties: &ConnectionProperties,
        io: &IoProperties,
        deadline: Option<Monotonic>,
    ) -> io::Result<Box<dyn Stream>> {
        if self.is_plain(io) {
            let stream = self.tcp.connect_with_properties(endpoint, properties, deadline)?;
            if self.config.max_level > FeatureLevel::PlainTcp {
                pace(&*stream, self.config.best_effort_pacing_rate)?;
            }
            return Ok(stream);
        }
        // The slot is taken before the connection is made, so that the server never sees a
        // connection above the maximum.
        let slot = ConnectionSlot::take(&self.client_stream(io)?)?;
        let properties = fixed(&self.config, io.class, properties);
        // `stream_tcp` sets the size of the receive buffer before the connection begins, because
        // the kernel derives the scale of the window from it.
        slot.adopt(self.stream_tcp.connect_with_properties(endpoint, &properties, deadline)?)
    }

    fn listen(&self, endpoint: &Endpoint) -> io::Result<Box<dyn Listener>> {
        self.listen_with_io_properties(endpoint, &IoProperties::default())
    }

    fn listen_with_io_properties(&self, endpoint: &Endpoint, io: &IoProperties) -> io::Result<Box<dyn Listener>> {
        let inner = self.tcp.listen(endpoint)?;
        if self.is_plain(io) {
            let pacing = self.config.best_effort_pacing_rate.filter(|_| self.config.max_level > FeatureLevel::PlainTcp);
            return Ok(match pacing {
                None => inner,
                Some(rate) => Box::new(RioListener {
                    inner,
                    stream: None,
                    config: self.config.clone(),
                    properties: listener_properties(ConnectionProperties::default()),
                    rate: Some(rate),
                    port: None,
                }),
            });
        }
        let stream = self.open_stream(io, true)?;
        let properties = fixed(&self.config, io.class, &ConnectionProperties::default());
        inner.set_properties(&properties)?;
        // Accepted connections inherit the size of the listener's receive buffer, from which the
        // kernel derives the scale of their windows.
        force_receive_buffer(inner.readiness_descriptor(), &properties);
        if let Some(core) = io.cores.filter(|cores| cores.len() == 1).and_then(|cores| cores.iter().next()) {
            socket::set_incoming_core(inner.readiness_descriptor(), core)?;
        }
        let port = match inner.local_endpoint() {
            Endpoint::Tcp { port, .. } => Some(stream.steering.add_port(*port)),
            _ => None,
        };
        let (config, properties) = (self.config.clone(), listener_properties(properties));
        Ok(Box::new(RioListener { inner, stream: Some(stream), config, properties, rate: None, port }))
    }

    fn attach_orb(&self) {
        self.levels.attach_orb();
        self.tcp.attach_orb();
        let mut status = self.status.lock();
        status.0 += 1;
        if status.0 == 1 {
            let (levels, streams) = (Arc::clone(&self.levels), Arc::clone(&self.streams));
            let interface = self.config.interface.clone();
            // Without the server the transport works, but other processes cannot read its state.
            status.1 = StatusServer::start(move || status_text(interface.as_deref(), &levels, &streams)).ok();
        }
    }

    fn detach_orb(&self) {
        let mut status = self.status.lock();
        status.0 = status.0.saturating_sub(1);
        let ended = if status.0 == 0 { status.1.take() } else { None };
        drop(status);
        drop(ended);
        self.tcp.detach_orb();
        // Object references keep the transport after its ORB has ended, but must not keep the
        // interface occupied.
        self.levels.detach_orb();
    }
}

impl StreamState {
    fn status(&self) -> StreamStatus {
        StreamStatus {
            number: self.number,
            io_properties: self.io,
            connections: self.connections.load(Ordering::Relaxed),
            refused_connections: self.refused.load(Ordering::Relaxed),
            frame_counts: self.steering.counts(),
            missing_feature_reason: self.steering.lack(),
            refusal: self.refusal,
            budget: self.budget.as_ref().map(ByteBudget::counts),
            packets: self.steering.packet_counts(),
            is_server_stream: self.is_of_listener,
            max_connections: self.max_connections,
            kernel_thread: self.steering.thread_name(),
            queue_frames: self.queue_frames,
        }
    }
}

impl StreamState {
    /// Sets the `SO_PRIORITY` of a connection: to the transmit class of the stream if the interface
    /// may have transmit classes and the kernel permits it, else to [`STREAM_PRIORITY`]. Queues
    /// without transmit classes use the last four bits, which are [`STREAM_PRIORITY`] in both
    /// cases.
    pub(crate) fn set_packet_priority(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        if self.has_class && socket::set_priority(fd, class_of_stream(self.number)).is_ok() {
            return Ok(());
        }
        socket::set_priority(fd, STREAM_PRIORITY)
    }
}

/// One of the `max_connections` places of a stream. Dropping the value frees the place.
pub(crate) struct ConnectionSlot(Arc<StreamState>);

impl ConnectionSlot {
    /// Counts a connection of the stream. Above the maximum, counts a refused connection instead.
    ///
    /// # Errors
    /// `QuotaExceeded` if the stream has its maximum number of connections.
    fn take(stream: &Arc<StreamState>) -> io::Result<Self> {
        let before = stream.connections.fetch_add(1, Ordering::Relaxed);
        let slot = Self(Arc::clone(stream));
        if before >= stream.max_connections {
            stream.refused.fetch_add(1, Ordering::Relaxed);
            let (number, most) = (stream.number, stream.max_connections);
            let text = format!("stream {number} has its maximum of {most} connections (RioConfig::max_connections)");
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, text));
        }
        Ok(slot)
    }

    /// Sets the stream's socket options on a new connection, and adds the connection to the
    /// steering tables. The returned stream counts as a connection of the stream until it is
    /// dropped.
    ///
    /// # Errors
    /// If the kernel refuses an option.
    fn adopt(self, inner: Box<dyn Stream>) -> io::Result<Box<dyn Stream>> {
        let mut steered = None;
        if let Some(fd) = inner.readiness_descriptor() {
            self.0.set_packet_priority(fd)?;
            socket::set_max_unsent_bytes(fd, self.0.max_unsent)?;
            let (remote, local) = (socket::peer_address(fd)?, socket::local_address(fd)?);
            if let (Some(remote), Some(local)) = (remote.as_inet(), local.as_inet()) {
                steered = Some(self.0.steering.add_connection(*remote, *local));
            }
        }
        Ok(Box::new(RioStream::new(inner, self, steered)))
    }

    pub(crate) fn stream(&self) -> &StreamState {
        &self.0
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

fn pace(stream: &dyn Stream, rate: Option<u32>) -> io::Result<()> {
    match (rate, stream.readiness_descriptor()) {
        (Some(rate), Some(fd)) => socket::set_max_pacing_rate(fd, rate),
        _ => Ok(()),
    }
}

fn listener_properties(properties: ConnectionProperties) -> Mutex<ConnectionProperties> {
    Mutex::new("properties of a listener", LockScope::Lane, properties)
}

struct RioListener {
    inner: Box<dyn Listener>,
    /// `None` for best effort.
    stream: Option<Arc<StreamState>>,
    config: RioConfig,
    /// Properties of the accepted connections of a listener with a stream.
    properties: Mutex<ConnectionProperties>,
    /// `SO_MAX_PACING_RATE` of accepted connections in bytes per second, for a listener without a
    /// stream.
    rate: Option<u32>,
    /// Dropped after `inner`, so frames to the port are sorted until the listener has been closed.
    port: Option<SteeringMember>,
}

impl std::fmt::Debug for RioListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RioListener({:?}, {:?})", self.inner, self.port)
    }
}

impl Listener for RioListener {
    fn accept(&self) -> io::Result<Box<dyn Stream>> {
        let inner = self.inner.accept()?;
        match &self.stream {
            // An error concerns one connection, not the listener, so its kind becomes
            // `ConnectionAborted`.
            Some(stream) => {
                // The connection has inherited the size of its buffer from the listener. The inner
                // listener has then set a size within the system's limit, so the size is forced
                // again.
                inner.readiness_descriptor().iter().for_each(|fd| force_receive_buffer(*fd, &self.properties.lock()));
                let adopted = ConnectionSlot::take(stream).and_then(|slot| slot.adopt(inner));
                adopted.map_err(|error| io::Error::new(io::ErrorKind::ConnectionAborted, error))
            }
            None => {
                pace(&*inner, self.rate)?;
                Ok(inner)
            }
        }
    }

    fn set_properties(&self, properties: &ConnectionProperties) -> io::Result<()> {
        match &self.stream {
            Some(stream) => {
                let properties = fixed(&self.config, stream.io.class, properties);
                self.inner.set_properties(&properties)?;
                force_receive_buffer(self.inner.readiness_descriptor(), &properties);
                *self.properties.lock() = properties;
                Ok(())
            }
            None => self.inner.set_properties(properties),
        }
    }

    fn readiness_descriptor(&self) -> BorrowedFd<'_> {
        self.inner.readiness_descriptor()
    }

    fn local_endpoint(&self) -> &Endpoint {
        self.inner.local_endpoint()
    }
}

#[cfg(test)]
mod ceiling_tests;
#[cfg(test)]
mod low_latency_tests;
#[cfg(test)]
mod packet_tests;
#[cfg(test)]
mod tests;
