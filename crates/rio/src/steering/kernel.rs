//! The steering program and its tables in the kernel.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use corelane_sys::bpf::{self, AssembleError, LoadError, LoadedProgram, Map, MapKind};

use super::{
    ByteRate, CEILING_SIZE, PortRule, StreamCounts, StreamDelivery, StreamId, TableError, TableSizes,
    assemble_steering_program, encode_ceiling,
};
use crate::frame::ConnectionKey;

/// Number of entries in the port table: all ports.
const PORTS: u32 = 1 << 16;
/// Size in bytes of an index, and of a 32-bit number.
const WORD: usize = 4;
/// Size in bytes of the state of a cap: the time at which the next packet is due.
const LIMIT_SIZE: usize = 8;

/// An error of the steering program or its tables.
#[derive(Debug)]
#[non_exhaustive]
pub enum SteeringError {
    /// The tables do not have the stream or the queue, have no room for the connection, or do not
    /// permit the change for best effort.
    Table(TableError),
    /// The kernel refused a map, or a change of a map.
    Map(io::Error),
    /// The kernel refused the program.
    Program(LoadError),
    /// The program cannot be assembled.
    Assemble(AssembleError),
}

impl std::fmt::Display for SteeringError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Table(error) => error.fmt(f),
            Self::Map(error) => write!(f, "steering table: {error}"),
            Self::Program(error) => write!(f, "steering program: {error}"),
            Self::Assemble(error) => write!(f, "steering program: {error}"),
        }
    }
}

impl std::error::Error for SteeringError {}

impl From<TableError> for SteeringError {
    fn from(error: TableError) -> Self {
        Self::Table(error)
    }
}

impl From<io::Error> for SteeringError {
    fn from(error: io::Error) -> Self {
        Self::Map(error)
    }
}

impl From<LoadError> for SteeringError {
    fn from(error: LoadError) -> Self {
        Self::Program(error)
    }
}

impl From<AssembleError> for SteeringError {
    fn from(error: AssembleError) -> Self {
        Self::Assemble(error)
    }
}

/// The loaded steering program, with its tables. The kernel releases them when this value has been
/// dropped and no interface has the program any more.
#[derive(Debug)]
pub struct LoadedSteeringProgram {
    table_sizes: TableSizes,
    program: LoadedProgram,
    ports: Map,
    connections: Map,
    ipv4_connections: Map,
    streams: Map,
    counts: Map,
    rings: Map,
    /// Array of the maps in `threads_of`, in which the program looks up the map of a stream.
    _threads: Map,
    /// CPUMAP of each stream, with at most one thread for each processor.
    threads_of: Vec<Map>,
    processors: Map,
    ceiling: Map,
}

impl LoadedSteeringProgram {
    /// Creates empty tables and loads the program. The program runs when a link has attached it to
    /// an interface.
    ///
    /// # Errors
    /// [`SteeringError`] if the program cannot be assembled, or if the kernel refuses a map or the
    /// program.
    pub fn load(table_sizes: TableSizes) -> Result<Self, SteeringError> {
        let (streams, slots) = (u32::from(table_sizes.stream_count), table_sizes.slot_count());
        let array = |name, value_size, entries| Map::create(MapKind::Array, name, WORD, value_size, entries);
        let ports = array("rio_ports", WORD, PORTS)?;
        let entries = array("rio_streams", StreamDelivery::SIZE, streams)?;
        let limits = array("rio_limits", LIMIT_SIZE, slots)?;
        let processors = array("rio_processors", WORD, slots)?;
        let most = table_sizes.max_connections.max(1);
        let connection_table = |name, key_size| Map::create(MapKind::Hash, name, key_size, WORD, most);
        let connections = connection_table("rio_connections", ConnectionKey::SIZE)?;
        let ipv4_connections = connection_table("rio_ipv4", ConnectionKey::IPV4_SIZE)?;
        let counts = Map::create(MapKind::PerCpuArray, "rio_counts", WORD, StreamCounts::SIZE, streams + 1)?;
        let rings = Map::create(MapKind::XskMap, "rio_rings", WORD, WORD, slots)?;
        let (threads, threads_of) = thread_maps(streams)?;
        let ceiling = array("rio_ceiling", CEILING_SIZE, 1)?;
        let maps = [
            &ports,
            &connections,
            &entries,
            &limits,
            &counts,
            &rings,
            &threads,
            &processors,
            &ipv4_connections,
            &ceiling,
        ];
        let program = bpf::load("rio_steering", &assemble_steering_program(table_sizes)?, &maps)?;
        Ok(Self {
            table_sizes,
            program,
            ports,
            connections,
            ipv4_connections,
            streams: entries,
            counts,
            rings,
            _threads: threads,
            threads_of,
            processors,
            ceiling,
        })
    }

    /// Returns the loaded program, so that a link can attach it.
    #[must_use]
    pub fn program(&self) -> &LoadedProgram {
        &self.program
    }

    /// Sets or removes the rule of a local port.
    ///
    /// # Errors
    /// [`SteeringError`] for an unknown stream or best effort, or if the kernel refuses the change.
    pub fn set_port(&self, port: u16, rule: Option<PortRule>) -> Result<(), SteeringError> {
        if let Some(PortRule::ClientPort(stream)) = rule {
            self.check(stream)?;
        }
        Ok(self.ports.update_u32(u32::from(port), PortRule::encode(rule))?)
    }

    /// Adds a connection, or moves it to another stream.
    ///
    /// # Errors
    /// [`SteeringError`] for an unknown stream, best effort or a full table, or if the kernel
    /// refuses the change.
    pub fn add_connection(&self, key: ConnectionKey, stream: StreamId) -> Result<(), SteeringError> {
        self.check(stream)?;
        let stream = u32::from(stream.0).to_ne_bytes();
        let added = match key.ipv4_bytes() {
            Some(short) => self.ipv4_connections.update(&short, &stream),
            None => self.connections.update(key.as_bytes(), &stream),
        };
        added.map_err(|error| match error.kind() {
            io::ErrorKind::ArgumentListTooLong => {
                TableError::TooManyConnections(self.table_sizes.max_connections).into()
            }
            _ => error.into(),
        })
    }

    /// Removes a connection. Returns true if the table had it.
    ///
    /// # Errors
    /// [`SteeringError`] if the kernel refuses the change.
    pub fn remove_connection(&self, key: &ConnectionKey) -> Result<bool, SteeringError> {
        let removed = match key.ipv4_bytes() {
            Some(short) => self.ipv4_connections.delete(&short),
            None => self.connections.delete(key.as_bytes()),
        };
        Ok(removed?)
    }

    /// Sets the delivery of a stream's frames.
    ///
    /// # Errors
    /// [`SteeringError`] for an unknown stream, or if the kernel refuses the change.
    pub fn set_delivery(&self, stream: StreamId, delivery: StreamDelivery) -> Result<(), SteeringError> {
        self.table_sizes.slot_index(stream, 0).ok_or(TableError::NoSuchStream(stream))?;
        Ok(self.streams.update(&u32::from(stream.0).to_ne_bytes(), &delivery.encode())?)
    }

    /// Sets or removes the ceiling of best effort: the maximum rate of all its frames together. The
    /// program drops frames above the ceiling.
    ///
    /// # Errors
    /// [`SteeringError`] if the kernel refuses the change.
    pub fn set_best_effort_ceiling(&self, ceiling: Option<ByteRate>) -> Result<(), SteeringError> {
        Ok(self.ceiling.update(&0_u32.to_ne_bytes(), &encode_ceiling(ceiling))?)
    }

    /// Puts an AF_XDP socket into the slot of a stream and a receive queue. The socket must be
    /// bound to the slot's receive queue; otherwise the kernel drops the frames sent to the socket.
    ///
    /// # Errors
    /// [`SteeringError`] for an unknown stream or queue, or if the kernel refuses the change.
    pub fn set_xdp_socket(&self, stream: StreamId, queue: u32, socket: BorrowedFd<'_>) -> Result<(), SteeringError> {
        let slot = self.slot(stream, queue)?;
        Ok(self.rings.update_u32(slot, socket.as_raw_fd().cast_unsigned())?)
    }

    /// Starts a kernel thread for a stream on `processor`, with a queue of `queue_length` frames.
    /// The thread has the ordinary scheduling class until the caller sets a priority. It replaces
    /// the stream's earlier thread on this processor, and does not get that thread's priority.
    ///
    /// # Errors
    /// [`SteeringError`] for an unknown stream, or if the kernel refuses the thread, for example
    /// because the processor does not exist.
    pub fn start_thread(&self, stream: StreamId, processor: u32, queue_length: u32) -> Result<(), SteeringError> {
        let threads = self.threads_of.get(usize::from(stream.0)).ok_or(TableError::NoSuchStream(stream))?;
        Ok(threads.update_u32(processor, queue_length)?)
    }

    /// Returns the name that the kernel gives to the thread of a stream on `processor`.
    ///
    /// # Errors
    /// `NotFound` for an unknown stream, or the error of the kernel.
    pub fn thread_name(&self, stream: StreamId, processor: u32) -> io::Result<String> {
        let threads = self.threads_of.get(usize::from(stream.0)).ok_or(io::ErrorKind::NotFound)?;
        Ok(format!("cpumap/{processor}/map:{}", threads.id()?))
    }

    /// Stops the kernel thread of a stream on `processor`, once its queue is empty. Has no effect
    /// if the stream has no thread on the processor.
    ///
    /// # Errors
    /// [`SteeringError`] for an unknown stream, or if the kernel refuses the change.
    pub fn stop_thread(&self, stream: StreamId, processor: u32) -> Result<(), SteeringError> {
        let threads = self.threads_of.get(usize::from(stream.0)).ok_or(TableError::NoSuchStream(stream))?;
        // The kernel permits this call for every possible processor, even without a thread.
        threads.delete(&processor.to_ne_bytes())?;
        Ok(())
    }

    /// Directs the frames of a slot to the stream's kernel thread on `processor`.
    ///
    /// # Errors
    /// [`SteeringError`] for an unknown stream or queue, or if the kernel refuses the change.
    pub fn set_processor(&self, stream: StreamId, queue: u32, processor: u32) -> Result<(), SteeringError> {
        let slot = self.slot(stream, queue)?;
        Ok(self.processors.update_u32(slot, processor)?)
    }

    /// Returns the frame counts of a stream.
    ///
    /// # Errors
    /// [`SteeringError`] for an unknown stream, or if the kernel refuses the look-up.
    pub fn counts(&self, stream: StreamId) -> Result<StreamCounts, SteeringError> {
        self.table_sizes.slot_index(stream, 0).ok_or(TableError::NoSuchStream(stream))?;
        let sums = self.counts.sum_over_processors(u32::from(stream.0))?;
        let field = |place| sums.get(place).copied().unwrap_or(0);
        Ok(StreamCounts {
            receive_context_frames: field(0),
            queued_frames: field(1),
            undeliverable_frames: field(2),
            dropped_frames: field(3),
        })
    }

    /// Returns the number of frames that the program has passed to the receive context because of
    /// their kind, such as ARP frames.
    ///
    /// # Errors
    /// [`SteeringError`] if the kernel refuses the look-up.
    pub fn passed_frames(&self) -> Result<u64, SteeringError> {
        Ok(self.counts.sum_over_processors(u32::from(self.table_sizes.stream_count))?.first().copied().unwrap_or(0))
    }

    fn slot(&self, stream: StreamId, queue: u32) -> Result<u32, TableError> {
        let is_known = stream.0 < self.table_sizes.stream_count;
        let error = if is_known { TableError::NoSuchQueue(queue) } else { TableError::NoSuchStream(stream) };
        self.table_sizes.slot_index(stream, queue).ok_or(error)
    }

    fn check(&self, stream: StreamId) -> Result<(), TableError> {
        let is_known = stream != StreamId::BEST_EFFORT && stream.0 < self.table_sizes.stream_count;
        is_known.then_some(()).ok_or(TableError::NoSuchStream(stream))
    }
}

/// Creates a CPUMAP for each stream, and the array of these maps, which the program reads.
fn thread_maps(streams: u32) -> io::Result<(Map, Vec<Map>)> {
    let processors = bpf::possible_processors()?;
    let processors = u32::try_from(processors).map_err(|_| io::ErrorKind::InvalidData)?;
    let maps: Vec<Map> = (0..streams)
        .map(|_| Map::create(MapKind::CpuMap, "rio_threads", WORD, WORD, processors))
        .collect::<io::Result<_>>()?;
    let first = maps.first().ok_or(io::ErrorKind::InvalidInput)?;
    let outer = Map::create_map_of_maps("rio_threads", first, streams)?;
    for (stream, map) in (0..).zip(&maps) {
        outer.update_inner_map(stream, map)?;
    }
    Ok((outer, maps))
}

#[cfg(test)]
mod tests {
    use std::num::{NonZeroU32, NonZeroU64};

    use corelane_sys::bpf::{TestRunResult, XdpAction, unavailable_reason};
    use proptest::prelude::*;
    use proptest::test_runner::TestRunner;

    use super::super::scenario::Scenario;
    use super::super::{Delivery, PacketRate, SteeringDecision, SteeringTables};
    use super::*;
    use crate::frame::build;

    const TABLE_SIZES: TableSizes = TableSizes { stream_count: 3, receive_queue_count: 2, max_connections: 2 };

    fn is_refused() -> bool {
        let refusal = unavailable_reason();
        refusal.iter().for_each(|refusal| println!("not run: {refusal}"));
        refusal.is_some()
    }

    fn action(steering: &LoadedSteeringProgram, frame: &[u8]) -> i32 {
        let TestRunResult { action, .. } = steering.program().test_run(frame, 1).unwrap();
        action.0.cast_signed()
    }

    /// Loads the tables of a scenario into the kernel, without rings, caps and ceiling. No AF_XDP
    /// socket exists for a ring, and the decisions of caps and ceiling would depend on the kernel's
    /// clock.
    fn load(scenario: &mut Scenario) -> LoadedSteeringProgram {
        let kernel = LoadedSteeringProgram::load(scenario.steering.table_sizes()).unwrap();
        for (stream, entry) in &scenario.streams {
            let entry = StreamDelivery { max_receive_context_rate: None, ..*entry };
            kernel.set_delivery(*stream, entry).unwrap();
            scenario.steering.set_delivery(*stream, entry).unwrap();
            for queue in 0..u32::from(scenario.steering.table_sizes().receive_queue_count) {
                scenario.steering.set_xdp_socket_present(*stream, queue, false).unwrap();
            }
        }
        scenario.steering.set_best_effort_ceiling(None);
        for (port, rule) in &scenario.ports {
            kernel.set_port(*port, Some(*rule)).unwrap();
        }
        for (key, stream) in &scenario.connections {
            kernel.add_connection(*key, *stream).unwrap();
        }
        for (stream, queue, processor) in &scenario.threads {
            kernel.start_thread(*stream, *processor, 64).unwrap();
            kernel.set_processor(*stream, *queue, *processor).unwrap();
        }
        kernel
    }

    fn compare(bytes: &[u8]) {
        let mut scenario = Scenario::read(bytes, 1);
        let kernel = load(&mut scenario);
        for arrival in &scenario.arrivals {
            // The kernel needs frames of at least 14 bytes, and a test run uses receive queue 0.
            if arrival.frame.len() < 14 {
                continue;
            }
            let expected = match scenario.steering.steer(&arrival.frame, 0, 0) {
                SteeringDecision::Pass => XdpAction::PASS,
                SteeringDecision::Ring { .. } | SteeringDecision::Thread { .. } => XdpAction::REDIRECT,
                SteeringDecision::Drop => XdpAction::DROP,
            };
            assert_eq!(action(&kernel, &arrival.frame), expected, "frame {:02x?}", arrival.frame);
        }
        for stream in (0..scenario.steering.table_sizes().stream_count).map(StreamId) {
            assert_eq!(kernel.counts(stream).unwrap(), scenario.steering.counts(stream), "{stream:?}");
        }
        assert_eq!(kernel.passed_frames().unwrap(), scenario.steering.passed_frames());
    }

    #[test]
    fn the_kernel_decides_as_the_specification() {
        if is_refused() {
            return;
        }
        let config = ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() };
        let bytes = prop::collection::vec(any::<u8>(), 0..240);
        let compared = TestRunner::new(config).run(&bytes, |bytes| {
            compare(&bytes);
            Ok(())
        });
        compared.unwrap();
    }

    #[test]
    fn the_kernel_caps_packets_in_the_receive_context() {
        if is_refused() {
            return;
        }
        let kernel = LoadedSteeringProgram::load(TABLE_SIZES).unwrap();
        let lane = StreamId(1);
        let frame = build::tcp("10.0.0.1:1".parse().unwrap(), "10.0.0.2:2809".parse().unwrap(), 0, 0);
        // With one packet a second, the kernel grants few packets beyond the burst while the test
        // runs.
        let rate = PacketRate::new(NonZeroU32::MIN, NonZeroU32::new(1_000).unwrap());
        kernel
            .set_delivery(lane, StreamDelivery { delivery: Delivery::Thread, max_receive_context_rate: Some(rate) })
            .unwrap();
        kernel.start_thread(lane, 0, 64).unwrap();
        kernel.set_port(2809, Some(PortRule::ClientPort(lane))).unwrap();
        kernel.program().test_run(&frame, 100_000).unwrap();
        let counts = kernel.counts(lane).unwrap();
        assert_eq!((counts.receive_context_frames + counts.queued_frames, counts.undeliverable_frames), (100_000, 0));
        assert!((1_000..100_000).contains(&counts.receive_context_frames), "{counts:?}");
    }

    #[test]
    fn the_kernel_drops_frames_of_best_effort_above_the_ceiling() {
        if is_refused() {
            return;
        }
        let kernel = LoadedSteeringProgram::load(TABLE_SIZES).unwrap();
        let frame = build::tcp("10.0.0.1:1".parse().unwrap(), "10.0.0.2:2809".parse().unwrap(), 0, 0);
        // At the rate of the ceiling, a frame of 54 bytes takes 54 seconds. After the first frame,
        // 19 frames may come early.
        let ceiling = ByteRate::new(NonZeroU64::MIN, 19 * 54_000_000_000);
        kernel.set_best_effort_ceiling(Some(ceiling)).unwrap();
        kernel.program().test_run(&frame, 100).unwrap();
        let counts = kernel.counts(StreamId::BEST_EFFORT).unwrap();
        assert_eq!(counts.undeliverable_frames + counts.dropped_frames, 100);
        // If the machine pauses, there is time for one or two frames more.
        assert!((20..=22).contains(&counts.undeliverable_frames), "{counts:?}");
        kernel.set_best_effort_ceiling(None).unwrap();
        kernel.program().test_run(&frame, 100).unwrap();
        assert_eq!(kernel.counts(StreamId::BEST_EFFORT).unwrap().dropped_frames, counts.dropped_frames);
    }

    #[test]
    fn the_tables_in_the_kernel_refuse_as_their_specification() {
        if is_refused() {
            return;
        }
        let (kernel, mut oracle) =
            (LoadedSteeringProgram::load(TABLE_SIZES).unwrap(), SteeringTables::new(TABLE_SIZES));
        let key = |port: u16| ConnectionKey::new(([10, 0, 0, 1], port).into(), ([10, 0, 0, 2], 2809).into()).unwrap();
        for (port, stream) in [(1, 1), (2, 0), (2, 3), (2, 2), (1, 2), (3, 1)] {
            let ours = kernel.add_connection(key(port), StreamId(stream)).map_err(|error| error.to_string());
            let expected = oracle.add_connection(key(port), StreamId(stream)).map_err(|error| error.to_string());
            assert_eq!(ours, expected, "port {port}, stream {stream}");
        }
        assert_eq!(kernel.remove_connection(&key(2)).unwrap(), oracle.remove_connection(&key(2)));
        assert_eq!(kernel.remove_connection(&key(2)).unwrap(), oracle.remove_connection(&key(2)));
        assert!(kernel.set_processor(StreamId(1), 2, 0).is_err());
        assert!(kernel.start_thread(StreamId(3), 0, 64).is_err());
        assert!(kernel.start_thread(StreamId(1), u32::MAX, 64).is_err());
        kernel.stop_thread(StreamId(1), 0).unwrap();
    }
}
