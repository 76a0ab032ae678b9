//! Comparison of the XDP program with its specification ([`SteeringTables`]), frame by frame.

use corelane_sys::bpf::{Program, XdpAction};

use super::interpreter::{Interpreter, ProgramFault, ProgramTable};
use super::{
    SteeringDecision, SteeringTables, StreamCounts, StreamDelivery, StreamId, assemble_steering_program, symbol,
};
use crate::frame::ConnectionKey;

/// The steering tables in two forms: in the specification, and as maps of the program.
pub(crate) struct SteeringPair {
    oracle: SteeringTables,
    program: Program,
    tables: Vec<ProgramTable>,
}

impl SteeringPair {
    pub(crate) fn new(oracle: SteeringTables) -> Self {
        let program = assemble_steering_program(oracle.table_sizes()).expect("the program can be assembled");
        let tables = tables(&oracle);
        Self { oracle, program, tables }
    }

    /// Steers a frame by the specification and by the program, and compares the results.
    ///
    /// # Panics
    /// If the program violates a rule of the verifier, or decides differently.
    pub(crate) fn steer(&mut self, frame: &[u8], queue: u32, now: u64) -> SteeringDecision {
        let expected = self.oracle.steer(frame, queue, now);
        let outcome = Interpreter::new(&self.program, &mut self.tables, frame, queue, now).run();
        let route = match outcome {
            Ok((action, target)) => self.route(action, target),
            Err(ProgramFault(reason)) => panic!("the program {reason}, frame {frame:02x?}"),
        };
        assert_eq!(route, expected, "queue {queue}, time {now}, frame {frame:02x?}");
        route
    }

    /// Compares the counts of each stream, and the number of passed frames.
    ///
    /// # Panics
    /// If the counts differ.
    pub(crate) fn compare_counts(&self) {
        let streams = self.oracle.table_sizes().stream_count;
        for stream in (0..streams).map(StreamId) {
            let [receive_context_frames, queued_frames, undeliverable_frames, dropped_frames] = self.counts(stream.0);
            assert_eq!(
                StreamCounts { receive_context_frames, queued_frames, undeliverable_frames, dropped_frames },
                self.oracle.counts(stream),
                "{stream:?}"
            );
        }
        assert_eq!(self.counts(streams)[0], self.oracle.passed_frames());
    }

    fn counts(&self, index: u16) -> [u64; 4] {
        let Some(ProgramTable::Array { values, .. }) = self.tables.get(symbol::COUNTS.0) else { return [0; 4] };
        let place = usize::from(index) * StreamCounts::SIZE;
        [0, 8, 16, 24].map(|field| {
            let bytes = values.get(place + field..).and_then(<[u8]>::first_chunk);
            bytes.copied().map_or(u64::MAX, u64::from_ne_bytes)
        })
    }

    fn route(&self, action: u64, target: Option<(usize, u32)>) -> SteeringDecision {
        let redirect = u64::from(XdpAction::REDIRECT.unsigned_abs());
        match target {
            Some((table, slot)) if action == redirect && table == symbol::RINGS.0 => SteeringDecision::Ring { slot },
            Some((table, processor)) if action == redirect => {
                let first = self.tables.len() - usize::from(self.oracle.table_sizes().stream_count);
                let stream = u16::try_from(table - first).map_or(StreamId(u16::MAX), StreamId);
                SteeringDecision::Thread { stream, processor }
            }
            _ if action == u64::from(XdpAction::DROP.unsigned_abs()) => SteeringDecision::Drop,
            _ => {
                assert_eq!(
                    action,
                    u64::from(XdpAction::PASS.unsigned_abs()),
                    "expected no other action of the program"
                );
                SteeringDecision::Pass
            }
        }
    }
}

/// Returns the specification's tables as the program's maps, in the order of their symbols, and
/// then the CPUMAP of each stream.
fn tables(oracle: &SteeringTables) -> Vec<ProgramTable> {
    let (parts, table_sizes) = (oracle.parts(), oracle.table_sizes());
    let mut ports = vec![0; 4 << 16];
    for (port, rule) in parts.ports {
        let into = ports.iter_mut().skip(usize::from(*port) * 4);
        into.zip(super::PortRule::encode(Some(*rule)).to_ne_bytes()).for_each(|(into, byte)| *into = byte);
    }
    let connections = |is_ipv4: bool| {
        let of_version = || parts.connections.iter().filter(move |(key, _)| key.ipv4_bytes().is_some() == is_ipv4);
        let bytes = |key: &ConnectionKey| key.ipv4_bytes().map_or(key.as_bytes().to_vec(), |short| short.to_vec());
        ProgramTable::Hash {
            key_size: if is_ipv4 { ConnectionKey::IPV4_SIZE } else { ConnectionKey::SIZE },
            value_size: 4,
            places: of_version().enumerate().map(|(place, (key, _))| (bytes(key), place)).collect(),
            values: of_version().flat_map(|(_, stream)| u32::from(stream.0).to_ne_bytes()).collect(),
        }
    };
    let array = |value_size, values| ProgramTable::Array { value_size, values };
    let mut tables = vec![
        array(4, ports),
        connections(false),
        array(StreamDelivery::SIZE, parts.streams.iter().flat_map(StreamDelivery::encode).collect()),
        array(8, parts.limits.iter().flat_map(|limit| limit.to_ne_bytes()).collect()),
        array(StreamCounts::SIZE, vec![0; (usize::from(table_sizes.stream_count) + 1) * StreamCounts::SIZE]),
        ProgramTable::Targets(parts.rings.clone()),
        ProgramTable::Tables(
            (0..usize::from(table_sizes.stream_count)).map(|stream| symbol::CEILING.0 + 1 + stream).collect(),
        ),
        array(4, parts.processors.iter().flat_map(|processor| processor.to_ne_bytes()).collect()),
        connections(true),
        array(super::CEILING_SIZE, super::encode_ceiling(parts.ceiling).to_vec()),
    ];
    for stream in (0..table_sizes.stream_count).map(StreamId) {
        let of_stream = parts.threads.iter().filter(|(owner, _)| *owner == stream);
        tables.push(ProgramTable::Targets(of_stream.map(|(_, processor)| *processor).collect()));
    }
    tables
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::super::scenario::Scenario;
    use super::super::{Delivery, FrameClassification, PortRule, TableSizes};
    use super::*;

    const MAX_INSTRUCTIONS: usize = 98;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn the_program_decides_as_its_specification(input in prop::collection::vec(any::<u8>(), 0..240)) {
            let scenario = Scenario::read(&input, 2);
            let mut pair = SteeringPair::new(scenario.steering);
            for arrival in &scenario.arrivals {
                pair.steer(&arrival.frame, arrival.queue, arrival.now);
            }
            pair.compare_counts();
        }

        #[test]
        fn random_bytes_reach_no_stream(frame in prop::collection::vec(any::<u8>(), 0..200), queue in 0_u32..3) {
            let mut oracle = SteeringTables::new(TableSizes { stream_count: 2, receive_queue_count: 2, max_connections: 1 });
            oracle.set_port(2809, Some(PortRule::ServerPort)).unwrap();
            let ring = StreamDelivery { delivery: Delivery::Ring, max_receive_context_rate: None };
            oracle.set_delivery(StreamId(1), ring).unwrap();
            oracle.set_xdp_socket_present(StreamId(1), 0, true).unwrap();
            prop_assert_eq!(SteeringPair::new(oracle).steer(&frame, queue, 0), SteeringDecision::Pass);
        }
    }

    /// Fails if the most frequent path of a frame needs more instructions. The time for sorting a
    /// frame also depends on its helper calls, such as look-ups, which count as one instruction
    /// each.
    #[test]
    fn frame_of_an_accepted_ipv4_connection_is_sorted_with_few_instructions() {
        let ends = ("10.0.0.1:1000".parse().unwrap(), "10.0.0.2:2809".parse().unwrap());
        let mut oracle =
            SteeringTables::new(TableSizes { stream_count: 2, receive_queue_count: 1, max_connections: 1 });
        oracle.set_port(2809, Some(PortRule::ServerPort)).unwrap();
        oracle.add_connection(ConnectionKey::new(ends.0, ends.1).unwrap(), StreamId(1)).unwrap();
        let thread = StreamDelivery { delivery: Delivery::Thread, max_receive_context_rate: None };
        oracle.set_delivery(StreamId(1), thread).unwrap();
        oracle.set_thread(StreamId(1), 0, 1, true).unwrap();
        let mut pair = SteeringPair::new(oracle);
        let frame = crate::frame::build::tcp(ends.0, ends.1, 0, 64);
        assert_eq!(pair.steer(&frame, 0, 0), SteeringDecision::Thread { stream: StreamId(1), processor: 1 });
        let run = Interpreter::new(&pair.program, &mut pair.tables, &frame, 0, 0).run_counted();
        let (_, instructions) = run.unwrap_or_else(|ProgramFault(reason)| panic!("the program {reason}"));
        assert!(instructions <= MAX_INSTRUCTIONS, "{instructions} instructions");
    }

    #[test]
    fn the_program_and_its_specification_agree_on_the_longest_frame_of_a_ring() {
        let ends = ("10.0.0.1:1000".parse().unwrap(), "10.0.0.2:2809".parse().unwrap());
        let mut oracle =
            SteeringTables::new(TableSizes { stream_count: 2, receive_queue_count: 1, max_connections: 1 });
        oracle.set_port(2809, Some(PortRule::ClientPort(StreamId(1)))).unwrap();
        oracle
            .set_delivery(StreamId(1), StreamDelivery { delivery: Delivery::Ring, max_receive_context_rate: None })
            .unwrap();
        oracle.set_xdp_socket_present(StreamId(1), 0, true).unwrap();
        let mut pair = SteeringPair::new(oracle);
        let longest = usize::try_from(super::super::MAX_RING_FRAME_BYTES).unwrap();
        for (length, route) in [(longest, SteeringDecision::Ring { slot: 1 }), (longest + 1, SteeringDecision::Pass)] {
            let frame = crate::frame::build::tcp(ends.0, ends.1, 0, length - 54);
            assert_eq!((frame.len(), pair.steer(&frame, 0, 0)), (length, route));
        }
        pair.compare_counts();
    }

    /// If all frames took one route, the property test would prove nothing.
    #[test]
    fn scenarios_reach_every_kind_of_route() {
        let mut seen = BTreeSet::new();
        let mut state = 1_u64;
        for _ in 0..3_000 {
            let mut random = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                state.to_be_bytes()[0]
            };
            let input: Vec<u8> = (0..240).map(|_| random()).collect();
            let scenario = Scenario::read(&input, 2);
            let mut pair = SteeringPair::new(scenario.steering);
            for arrival in &scenario.arrivals {
                let verdict = match pair.oracle.classify(&arrival.frame) {
                    FrameClassification::Pass => "pass",
                    FrameClassification::BestEffort => "best effort",
                    FrameClassification::ClientPort(_) => "port",
                    FrameClassification::Connection(_) => "connection",
                };
                let route = match pair.steer(&arrival.frame, arrival.queue, arrival.now) {
                    SteeringDecision::Pass => "context",
                    SteeringDecision::Ring { .. } => "ring",
                    SteeringDecision::Thread { .. } => "thread",
                    SteeringDecision::Drop => "drop",
                };
                seen.insert((verdict, route));
            }
        }
        let ends = ["best effort", "port", "connection"];
        let expected =
            ends.iter().flat_map(|verdict| ["context", "ring", "thread", "drop"].map(|route| (*verdict, route)));
        assert_eq!(seen, expected.chain([("pass", "context")]).collect());
    }
}
