//! The steering tables and the decision in plain Rust: the specification of the XDP program.

use std::collections::{BTreeMap, BTreeSet};

use corelane_sched::task::Nanos;

use super::{
    ByteRate, Delivery, MAX_RING_FRAME_BYTES, PortRule, StreamCounts, StreamDelivery, StreamId, TableError, TableSizes,
};
use crate::frame::{ConnectionKey, ParsedFrame, parse};

/// The stream of a frame, with the table that determined it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameClassification {
    /// The kernel handles the frame in the receive context.
    Pass,
    /// The frame belongs to no stream.
    BestEffort,
    /// The port belongs to a client of this stream.
    ClientPort(StreamId),
    /// The connection table assigns the connection to this stream.
    Connection(StreamId),
}

impl FrameClassification {
    /// Returns the stream; `None` for a frame that passes.
    #[must_use]
    pub fn stream(self) -> Option<StreamId> {
        match self {
            Self::Pass => None,
            Self::BestEffort => Some(StreamId::BEST_EFFORT),
            Self::ClientPort(stream) | Self::Connection(stream) => Some(stream),
        }
    }
}

/// The next step on a frame's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SteeringDecision {
    /// The kernel continues with the frame in the receive context.
    Pass,
    /// The frame waits in the AF_XDP ring of this slot.
    Ring {
        /// The slot, a combination of stream and receive queue.
        slot: u32,
    },
    /// The frame waits for a kernel thread.
    Thread {
        /// The stream whose CPUMAP contains the thread.
        stream: StreamId,
        /// The thread's processor.
        processor: u32,
    },
    /// The program drops the frame, because it is above the ceiling of best effort.
    Drop,
}

/// The steering tables, with the counts of the streams and the states of the caps.
#[derive(Clone, Debug)]
pub struct SteeringTables {
    table_sizes: TableSizes,
    ports: BTreeMap<u16, PortRule>,
    connections: BTreeMap<ConnectionKey, StreamId>,
    streams: Vec<StreamDelivery>,
    rings: BTreeSet<u32>,
    threads: BTreeSet<(StreamId, u32)>,
    processors: Vec<u32>,
    limits: Vec<Nanos>,
    ceiling: Option<ByteRate>,
    ceiling_state: Nanos,
    counts: Vec<StreamCounts>,
    passed: u64,
}

impl SteeringTables {
    /// Creates tables without rules, connections and queues, so that every frame passes.
    #[must_use]
    pub fn new(table_sizes: TableSizes) -> Self {
        let slots = usize::try_from(table_sizes.slot_count()).unwrap_or(0);
        let streams = usize::from(table_sizes.stream_count);
        Self {
            table_sizes,
            ports: BTreeMap::new(),
            connections: BTreeMap::new(),
            streams: vec![StreamDelivery::default(); streams],
            rings: BTreeSet::new(),
            threads: BTreeSet::new(),
            processors: vec![0; slots],
            limits: vec![0; slots],
            ceiling: None,
            ceiling_state: 0,
            counts: vec![StreamCounts::default(); streams],
            passed: 0,
        }
    }

    /// Returns the sizes of the tables.
    #[must_use]
    pub fn table_sizes(&self) -> TableSizes {
        self.table_sizes
    }

    /// Sets or removes the rule of a local port.
    ///
    /// # Errors
    /// [`TableError::NoSuchStream`] for a stream outside the tables and for best effort.
    pub fn set_port(&mut self, port: u16, rule: Option<PortRule>) -> Result<(), TableError> {
        if let Some(PortRule::ClientPort(stream)) = rule {
            self.check(stream)?;
        }
        match rule {
            Some(rule) => self.ports.insert(port, rule),
            None => self.ports.remove(&port),
        };
        Ok(())
    }

    /// Adds a connection, or moves it to another stream.
    ///
    /// # Errors
    /// [`TableError::NoSuchStream`] or [`TableError::TooManyConnections`].
    pub fn add_connection(&mut self, key: ConnectionKey, stream: StreamId) -> Result<(), TableError> {
        self.check(stream)?;
        let most = self.table_sizes.max_connections;
        // In the kernel, each IP version has a connection table of its own.
        let is_ipv4 = key.ipv4_bytes().is_some();
        let of_version = self.connections.keys().filter(|other| other.ipv4_bytes().is_some() == is_ipv4);
        let is_full = of_version.count() >= usize::try_from(most).unwrap_or(usize::MAX);
        if is_full && !self.connections.contains_key(&key) {
            return Err(TableError::TooManyConnections(most));
        }
        self.connections.insert(key, stream);
        Ok(())
    }

    /// Removes a connection. Returns true if the table had it.
    pub fn remove_connection(&mut self, key: &ConnectionKey) -> bool {
        self.connections.remove(key).is_some()
    }

    /// Sets the delivery of a stream's frames.
    ///
    /// # Errors
    /// [`TableError::NoSuchStream`] for a stream outside the tables.
    pub fn set_delivery(&mut self, stream: StreamId, delivery: StreamDelivery) -> Result<(), TableError> {
        let place = self.streams.get_mut(usize::from(stream.0)).ok_or(TableError::NoSuchStream(stream))?;
        *place = delivery;
        Ok(())
    }

    /// Sets whether a slot has an AF_XDP socket.
    ///
    /// # Errors
    /// [`TableError::NoSuchStream`] or [`TableError::NoSuchQueue`].
    pub fn set_xdp_socket_present(&mut self, stream: StreamId, queue: u32, is_present: bool) -> Result<(), TableError> {
        let slot = self.slot(stream, queue)?;
        if is_present {
            self.rings.insert(slot)
        } else {
            self.rings.remove(&slot)
        };
        Ok(())
    }

    /// Sets the processor of a slot's kernel thread, and whether the stream has a kernel thread on
    /// this processor.
    ///
    /// # Errors
    /// [`TableError::NoSuchStream`] or [`TableError::NoSuchQueue`].
    pub fn set_thread(
        &mut self,
        stream: StreamId,
        queue: u32,
        processor: u32,
        is_present: bool,
    ) -> Result<(), TableError> {
        let slot = self.slot(stream, queue)?;
        if let Some(place) = usize::try_from(slot).ok().and_then(|slot| self.processors.get_mut(slot)) {
            *place = processor;
        }
        let thread = (stream, processor);
        if is_present {
            self.threads.insert(thread)
        } else {
            self.threads.remove(&thread)
        };
        Ok(())
    }

    /// Sets or removes the ceiling of best effort: the maximum rate of all its frames together.
    /// Frames above the ceiling are dropped.
    pub fn set_best_effort_ceiling(&mut self, ceiling: Option<ByteRate>) {
        (self.ceiling, self.ceiling_state) = (ceiling, 0);
    }

    /// Determines the stream of a frame.
    #[must_use]
    pub fn classify(&self, frame: &[u8]) -> FrameClassification {
        let key = match parse(frame) {
            ParsedFrame::Pass => return FrameClassification::Pass,
            ParsedFrame::BestEffort => return FrameClassification::BestEffort,
            ParsedFrame::Tcp(key) => key,
        };
        match self.ports.get(&key.local_port()) {
            None => FrameClassification::BestEffort,
            Some(PortRule::ClientPort(stream)) => FrameClassification::ClientPort(*stream),
            Some(PortRule::ServerPort) => self
                .connections
                .get(&key)
                .map_or(FrameClassification::BestEffort, |stream| FrameClassification::Connection(*stream)),
        }
    }

    /// Determines the next step of a frame that arrived on `queue` at `now`, and counts the frame.
    pub fn steer(&mut self, frame: &[u8], queue: u32, now: Nanos) -> SteeringDecision {
        let Some(stream) = self.classify(frame).stream() else {
            self.passed = self.passed.wrapping_add(1);
            return SteeringDecision::Pass;
        };
        if stream != StreamId::BEST_EFFORT
            && let Some(route) = self.deliver(stream, frame, queue, now)
        {
            return route;
        }
        let bytes = u64::try_from(frame.len()).unwrap_or(u64::MAX);
        if self.ceiling.is_some_and(|ceiling| !ceiling.grants_frame(&mut self.ceiling_state, bytes, now)) {
            if let Some(counts) = self.counts.first_mut() {
                counts.dropped_frames += 1;
            }
            return SteeringDecision::Drop;
        }
        self.deliver(StreamId::BEST_EFFORT, frame, queue, now).unwrap_or(SteeringDecision::Pass)
    }

    /// Returns the counts of a stream; zeros for a stream outside the tables.
    #[must_use]
    pub fn counts(&self, stream: StreamId) -> StreamCounts {
        self.counts.get(usize::from(stream.0)).copied().unwrap_or_default()
    }

    /// Returns the number of frames that were classified as [`FrameClassification::Pass`].
    #[must_use]
    pub fn passed_frames(&self) -> u64 {
        self.passed
    }

    /// Determines the route of a frame of `stream`, and counts the frame. `None` if the stream has
    /// no queue for the frame.
    fn deliver(&mut self, stream: StreamId, frame: &[u8], queue: u32, now: Nanos) -> Option<SteeringDecision> {
        let fits = u32::try_from(frame.len()).is_ok_and(|length| length <= MAX_RING_FRAME_BYTES);
        let entry = *self.streams.get(usize::from(stream.0))?;
        let slot = self.table_sizes.slot_index(stream, queue);
        let place = slot.and_then(|slot| usize::try_from(slot).ok());
        let counts = self.counts.get_mut(usize::from(stream.0))?;
        if let Some((rate, limit)) =
            entry.max_receive_context_rate.zip(place.and_then(|place| self.limits.get_mut(place)))
            && rate.grants_packet(limit, now)
        {
            counts.receive_context_frames += 1;
            return Some(SteeringDecision::Pass);
        }
        let route = match entry.delivery {
            Delivery::NoQueue => None,
            Delivery::Ring => {
                slot.filter(|slot| fits && self.rings.contains(slot)).map(|slot| SteeringDecision::Ring { slot })
            }
            Delivery::Thread => place
                .and_then(|place| self.processors.get(place).copied())
                .filter(|processor| self.threads.contains(&(stream, *processor)))
                .map(|processor| SteeringDecision::Thread { stream, processor }),
        };
        match route {
            Some(_) => counts.queued_frames += 1,
            None => counts.undeliverable_frames += 1,
        }
        route
    }

    fn check(&self, stream: StreamId) -> Result<(), TableError> {
        let is_known = stream != StreamId::BEST_EFFORT && stream.0 < self.table_sizes.stream_count;
        is_known.then_some(()).ok_or(TableError::NoSuchStream(stream))
    }

    fn slot(&self, stream: StreamId, queue: u32) -> Result<u32, TableError> {
        let is_known = stream.0 < self.table_sizes.stream_count;
        let error = if is_known { TableError::NoSuchQueue(queue) } else { TableError::NoSuchStream(stream) };
        self.table_sizes.slot_index(stream, queue).ok_or(error)
    }

    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn parts(&self) -> Parts<'_> {
        Parts {
            ports: &self.ports,
            connections: &self.connections,
            streams: &self.streams,
            rings: &self.rings,
            threads: &self.threads,
            processors: &self.processors,
            limits: &self.limits,
            ceiling: self.ceiling,
        }
    }
}

#[cfg(any(test, feature = "fuzzing"))]
pub(super) struct Parts<'s> {
    pub(super) ports: &'s BTreeMap<u16, PortRule>,
    pub(super) connections: &'s BTreeMap<ConnectionKey, StreamId>,
    pub(super) streams: &'s [StreamDelivery],
    pub(super) rings: &'s BTreeSet<u32>,
    pub(super) threads: &'s BTreeSet<(StreamId, u32)>,
    pub(super) processors: &'s [u32],
    pub(super) limits: &'s [Nanos],
    pub(super) ceiling: Option<ByteRate>,
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::num::{NonZeroU32, NonZeroU64};

    use super::*;
    use crate::frame::build;
    use crate::steering::PacketRate;

    const LANE: StreamId = StreamId(1);
    const PRIVATE: StreamId = StreamId(2);

    fn ends() -> (SocketAddr, SocketAddr) {
        ("10.0.0.1:1000".parse().unwrap(), "10.0.0.2:2809".parse().unwrap())
    }

    fn counts(receive_context_frames: u64, queued_frames: u64, undeliverable_frames: u64) -> StreamCounts {
        StreamCounts { receive_context_frames, queued_frames, undeliverable_frames, dropped_frames: 0 }
    }

    fn steering() -> SteeringTables {
        SteeringTables::new(TableSizes { stream_count: 3, receive_queue_count: 2, max_connections: 2 })
    }

    #[test]
    fn only_accepted_connections_reach_the_stream_of_a_server_port() {
        let (remote, local) = ends();
        let (key, frame) = (ConnectionKey::new(remote, local).unwrap(), build::tcp(remote, local, 0, 1));
        let mut steering = steering();
        steering.add_connection(key, PRIVATE).unwrap();
        assert_eq!(
            steering.classify(&frame),
            FrameClassification::BestEffort,
            "expected best effort, because the port has no rule"
        );
        steering.set_port(2809, Some(PortRule::ServerPort)).unwrap();
        assert_eq!(steering.classify(&frame), FrameClassification::Connection(PRIVATE));
        assert!(steering.remove_connection(&key));
        assert_eq!(
            steering.classify(&frame),
            FrameClassification::BestEffort,
            "expected best effort, because the connection was removed"
        );
        steering.set_port(2809, Some(PortRule::ClientPort(LANE))).unwrap();
        assert_eq!(steering.classify(&frame), FrameClassification::ClientPort(LANE));
    }

    #[test]
    fn a_frame_without_a_ring_on_its_queue_is_missed_and_goes_to_best_effort() {
        let (remote, local) = ends();
        let frame = build::tcp(remote, local, 0, 1);
        let mut steering = steering();
        steering.set_port(2809, Some(PortRule::ClientPort(LANE))).unwrap();
        steering
            .set_delivery(LANE, StreamDelivery { delivery: Delivery::Ring, max_receive_context_rate: None })
            .unwrap();
        steering.set_xdp_socket_present(LANE, 0, true).unwrap();
        assert_eq!(steering.steer(&frame, 0, 0), SteeringDecision::Ring { slot: 2 });
        assert_eq!(steering.steer(&frame, 1, 0), SteeringDecision::Pass);
        let thread = StreamDelivery { delivery: Delivery::Thread, max_receive_context_rate: None };
        steering.set_delivery(StreamId::BEST_EFFORT, thread).unwrap();
        steering.set_thread(StreamId::BEST_EFFORT, 1, 7, true).unwrap();
        let best_effort = SteeringDecision::Thread { stream: StreamId::BEST_EFFORT, processor: 7 };
        assert_eq!(steering.steer(&frame, 1, 0), best_effort);
        assert_eq!(steering.counts(LANE), counts(0, 1, 2));
        assert_eq!(steering.counts(StreamId::BEST_EFFORT), counts(0, 1, 1));
    }

    #[test]
    fn frame_that_is_too_long_for_a_ring_is_missed() {
        let (remote, local) = ends();
        let mut steering = steering();
        steering.set_port(2809, Some(PortRule::ClientPort(LANE))).unwrap();
        steering
            .set_delivery(LANE, StreamDelivery { delivery: Delivery::Ring, max_receive_context_rate: None })
            .unwrap();
        steering.set_xdp_socket_present(LANE, 0, true).unwrap();
        let longest = usize::try_from(MAX_RING_FRAME_BYTES).unwrap() - build::tcp(remote, local, 0, 0).len();
        let routes = [longest, longest + 1].map(|payload| steering.steer(&build::tcp(remote, local, 0, payload), 0, 0));
        assert_eq!(routes, [SteeringDecision::Ring { slot: 2 }, SteeringDecision::Pass]);
        assert_eq!(steering.counts(LANE), counts(0, 1, 1));
    }

    #[test]
    fn low_latency_packets_over_the_cap_wait() {
        let (remote, local) = ends();
        let frame = build::tcp(remote, local, 0, 1);
        let mut steering = steering();
        steering.set_port(2809, Some(PortRule::ClientPort(LANE))).unwrap();
        let rate = PacketRate::new(NonZeroU32::new(1_000).unwrap(), NonZeroU32::new(2).unwrap());
        steering
            .set_delivery(LANE, StreamDelivery { delivery: Delivery::Ring, max_receive_context_rate: Some(rate) })
            .unwrap();
        steering.set_xdp_socket_present(LANE, 1, true).unwrap();
        let routes = [0, 0, 0, 1_000_000].map(|now| steering.steer(&frame, 1, now));
        assert_eq!(
            routes,
            [
                SteeringDecision::Pass,
                SteeringDecision::Pass,
                SteeringDecision::Ring { slot: 3 },
                SteeringDecision::Pass
            ]
        );
        assert_eq!(steering.counts(LANE), counts(3, 1, 0));
    }

    /// The ceiling does not apply to frames of a stream, unless the stream has no queue for them.
    #[test]
    fn frames_of_best_effort_above_the_ceiling_are_dropped() {
        let (remote, local) = ends();
        let frame = build::tcp(remote, local, 0, 46);
        let bytes = u64::try_from(frame.len()).unwrap();
        let mut steering = steering();
        // At the rate of the ceiling, a frame takes a millisecond. After the first frame, two
        // frames may come early.
        let ceiling = ByteRate::new(NonZeroU64::new(bytes * 1_000).unwrap(), 2_000_000);
        steering.set_best_effort_ceiling(Some(ceiling));
        let routes = [0, 0, 0, 0, 1_000_001, 1_000_001].map(|now| steering.steer(&frame, 1, now));
        let (pass, drop) = (SteeringDecision::Pass, SteeringDecision::Drop);
        assert_eq!(routes, [pass, pass, pass, drop, pass, drop]);
        steering.set_port(2809, Some(PortRule::ClientPort(LANE))).unwrap();
        steering
            .set_delivery(LANE, StreamDelivery { delivery: Delivery::Ring, max_receive_context_rate: None })
            .unwrap();
        steering.set_xdp_socket_present(LANE, 0, true).unwrap();
        assert_eq!(steering.steer(&frame, 0, 1_000_001), SteeringDecision::Ring { slot: 2 });
        assert_eq!(steering.steer(&frame, 1, 1_000_001), drop);
        assert_eq!(steering.steer(&[0; 60], 1, 1_000_001), drop);
        let passes = [0xff; 60];
        assert_eq!(steering.steer(&passes, 1, 1_000_001), pass);
        let counts = steering.counts(StreamId::BEST_EFFORT);
        assert_eq!(
            (counts.dropped_frames, counts.undeliverable_frames, steering.counts(LANE).dropped_frames),
            (4, 4, 0)
        );
        steering.set_best_effort_ceiling(None);
        assert_eq!(steering.steer(&frame, 1, 1_000_001), pass);
    }

    #[test]
    fn changes_outside_the_layout_are_refused() {
        let (remote, local) = ends();
        let key = |port| ConnectionKey::new(SocketAddr::new(remote.ip(), port), local).unwrap();
        let mut steering = steering();
        let (unknown, best_effort) = (StreamId(3), StreamId::BEST_EFFORT);
        assert_eq!(steering.set_port(1, Some(PortRule::ClientPort(unknown))), Err(TableError::NoSuchStream(unknown)));
        assert_eq!(steering.add_connection(key(1), best_effort), Err(TableError::NoSuchStream(best_effort)));
        assert_eq!(steering.set_xdp_socket_present(LANE, 2, true), Err(TableError::NoSuchQueue(2)));
        assert_eq!(steering.set_thread(unknown, 0, 0, true), Err(TableError::NoSuchStream(unknown)));
        steering.add_connection(key(1), LANE).unwrap();
        steering.add_connection(key(2), LANE).unwrap();
        assert_eq!(steering.add_connection(key(3), LANE), Err(TableError::TooManyConnections(2)));
        let ipv6 = ConnectionKey::new("[::1]:1".parse().unwrap(), "[::2]:2".parse().unwrap()).unwrap();
        assert_eq!(steering.add_connection(ipv6, LANE), Ok(()), "expected room in the table of the other IP version");
        assert_eq!(
            steering.add_connection(key(2), PRIVATE),
            Ok(()),
            "expected that a connection in the table can move"
        );
    }
}
