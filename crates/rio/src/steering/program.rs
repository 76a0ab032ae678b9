//! The decision of [`SteeringTables`](super::SteeringTables) as an XDP program.
//!
//! The program has no loop, and adds only constants to pointers, so that the verifier accepts it
//! without `CAP_PERFMON`. Fields are compared with constants in network order. Lengths and ports
//! are byte-swapped.
//!
//! Registers between the calls:
//!
//! ```text
//! R5  length of the frame without its VLAN tags, until the first table look-up
//! R6  context
//! R7  frame, moved behind the VLAN tags; later the slot
//! R8  end of the frame; later the stream's entry
//! R9  a field; later the stream
//! ```

use corelane_sys::bpf::Register::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10};
use corelane_sys::bpf::{
    Arithmetic, AssembleError, Assembler, Condition, Helper, Label, MapSymbol, Program, Width, XdpAction,
};

use super::{ByteRate, MAX_RING_FRAME_BYTES, StreamId, TableSizes, symbol};
use crate::frame::{
    ETHERNET_HEADER_BYTES, FRAGMENT_BITS, IPV4_HEADER_BYTES, IPV4_WITHOUT_OPTIONS, IPV6_HEADER_BYTES, MAX_VLAN_TAGS,
    NEIGHBOUR_DISCOVERY, ON_LINK_HOP_LIMIT, TCP_HEADER_BYTES, VLAN_TAG_BYTES, ether_type, protocol,
};

/// [`Delivery::Ring`](super::Delivery::Ring) in the field `delivery` of the stream table. The value
/// 0 is [`Delivery::NoQueue`](super::Delivery::NoQueue).
pub(super) const RING: u32 = 1;
/// [`Delivery::Thread`](super::Delivery::Thread) in the field `delivery` of the stream table.
pub(super) const THREAD: u32 = 2;

/// Byte offsets in the context, `struct xdp_md`.
mod context {
    pub(super) const DATA: i16 = 0;
    pub(super) const DATA_END: i16 = 4;
    pub(super) const RX_QUEUE: i16 = 16;
}

/// Byte offsets in an entry of the stream table (`StreamDelivery::encode`).
mod entry {
    pub(super) const DELIVERY: i16 = 0;
    pub(super) const INTERVAL: i16 = 8;
    pub(super) const TOLERANCE: i16 = 16;
}

/// Byte offsets in the ceiling of best effort (`encode_ceiling`).
mod ceiling {
    pub(super) const STATE: i16 = 0;
    pub(super) const COST: i16 = 8;
    pub(super) const TOLERANCE: i16 = 16;
}

/// Byte offsets in the counts (`StreamCounts`). The entry after the last stream counts passed
/// frames.
mod count {
    pub(super) const IN_CONTEXT: i16 = 0;
    pub(super) const QUEUED: i16 = 8;
    pub(super) const MISSED: i16 = 16;
    pub(super) const DROPPED: i16 = 24;
    pub(super) const PASSED: i16 = 0;
}

/// Byte offsets on the stack, relative to R10.
mod stack {
    pub(super) const KEY: i16 = -40;
    pub(super) const INDEX: i16 = -44;
    pub(super) const NOW: i16 = -56;
}

// Byte offsets from R7, which is the frame's address plus the length of its VLAN tags.
const IP: i16 = 14;
const TCP_BEHIND_IPV4: i16 = IP + 20;
const TCP_BEHIND_IPV6: i16 = IP + 40;

/// Assembles the XDP program for tables of the given sizes.
///
/// The program's maps are the maps of [`LoadedSteeringProgram`](super::LoadedSteeringProgram).
///
/// # Errors
/// [`AssembleError`] if a jump is too long, which no table sizes cause.
pub fn assemble_steering_program(table_sizes: TableSizes) -> Result<Program, AssembleError> {
    let mut asm = Assembler::new();
    let labels = JumpLabels { pass: asm.label(), best_effort: asm.label(), ipv4: asm.label(), deliver: asm.label() };
    let mut writer = ProgramWriter { asm, labels, table_sizes };
    writer.write();
    writer.asm.finish()
}

#[derive(Clone, Copy)]
struct JumpLabels {
    pass: Label,
    best_effort: Label,
    /// Start of the code that expects an IPv4 packet behind the Ethernet header at R7.
    ipv4: Label,
    /// Start of the code that expects the stream in R9.
    deliver: Label,
}

struct ProgramWriter {
    asm: Assembler,
    labels: JumpLabels,
    table_sizes: TableSizes,
}

impl ProgramWriter {
    fn write(&mut self) {
        let JumpLabels { pass, best_effort, ipv4, deliver } = self.labels;
        self.ethernet();
        self.ipv6();
        self.look_up_stream(symbol::CONNECTIONS);
        self.asm.jump(deliver).bind(ipv4);
        self.ipv4();
        self.look_up_stream(symbol::IPV4_CONNECTIONS);
        self.asm.bind(deliver);
        self.deliver(best_effort);
        self.asm.bind(best_effort);
        let nowhere = self.asm.label();
        self.asm.set(R9, i32::from(StreamId::BEST_EFFORT.0));
        self.drop_above_ceiling();
        self.deliver(nowhere);
        self.asm.bind(nowhere).set(R0, XdpAction::PASS).exit();
        self.asm.bind(pass).set(R9, i32::from(self.table_sizes.stream_count));
        self.count(count::PASSED);
        self.asm.set(R0, XdpAction::PASS).exit();
    }

    /// Parses the Ethernet header. Leaves the frame's address, moved past the VLAN tags, in R7.
    /// Continues only with IPv6, and jumps elsewhere with all other frames.
    fn ethernet(&mut self) {
        let JumpLabels { pass, best_effort, ipv4, .. } = self.labels;
        self.asm.set(R6, R1).call(Helper::XdpFrameLength).set(R5, R0);
        self.asm.load(Width::Word, R7, R6, context::DATA).load(Width::Word, R8, R6, context::DATA_END);
        self.need(ETHERNET_HEADER_BYTES);
        self.asm.load(Width::Byte, R1, R7, 0).jump_if(Condition::AnyBit, R1, 1, pass);
        self.asm.load(Width::Half, R9, R7, 12);
        // The most frequent kind of frames comes first.
        self.asm.jump_if(Condition::Equal, R9, network(ether_type::IPV4), ipv4);
        for _ in 0..MAX_VLAN_TAGS {
            let (tag, no_tag) = (self.asm.label(), self.asm.label());
            self.asm.jump_if(Condition::Equal, R9, network(ether_type::VLAN), tag);
            self.asm.jump_if(Condition::NotEqual, R9, network(ether_type::SERVICE_VLAN), no_tag);
            self.asm.bind(tag).compute(Arithmetic::Add, R7, constant(VLAN_TAG_BYTES));
            self.asm.compute(Arithmetic::Subtract, R5, constant(VLAN_TAG_BYTES));
            self.need(ETHERNET_HEADER_BYTES);
            self.asm.load(Width::Half, R9, R7, 12).bind(no_tag);
        }
        self.asm.jump_if(Condition::Equal, R9, network(ether_type::ARP), pass);
        self.asm.jump_if(Condition::Equal, R9, network(ether_type::IPV4), ipv4);
        self.asm.jump_if(Condition::NotEqual, R9, network(ether_type::IPV6), best_effort);
    }

    fn ipv4(&mut self) {
        let best_effort = self.labels.best_effort;
        self.need(ETHERNET_HEADER_BYTES + IPV4_HEADER_BYTES + TCP_HEADER_BYTES);
        let version = i32::from(IPV4_WITHOUT_OPTIONS);
        self.asm.load(Width::Byte, R1, R7, IP).jump_if(Condition::NotEqual, R1, version, best_effort);
        self.asm.load(Width::Half, R1, R7, IP + 6);
        self.asm.jump_if(Condition::AnyBit, R1, network(FRAGMENT_BITS), best_effort);
        let tcp = i32::from(protocol::TCP);
        self.asm.load(Width::Byte, R1, R7, IP + 9).jump_if(Condition::NotEqual, R1, tcp, best_effort);
        self.asm.load(Width::Half, R9, R7, IP + 2).swap_network_order_16(R9);
        self.asm.jump_if(Condition::Less, R9, constant(IPV4_HEADER_BYTES + TCP_HEADER_BYTES), best_effort);
        self.asm.compute(Arithmetic::Subtract, R5, constant(ETHERNET_HEADER_BYTES));
        self.asm.jump_if(Condition::Greater, R9, R5, best_effort);
        self.asm.compute(Arithmetic::Subtract, R9, constant(IPV4_HEADER_BYTES));
        self.tcp_header(TCP_BEHIND_IPV4);
        // The short form of the key (`ConnectionKey::ipv4_bytes`). One load and one store of 8
        // bytes copy both addresses. The kernel reads the key by 8 bytes, and a read of two shorter
        // stores would have to wait for them.
        self.asm.load(Width::Double, R1, R7, IP + 12).store(Width::Double, R10, stack::KEY, R1);
        self.asm.load(Width::Word, R1, R7, TCP_BEHIND_IPV4).store(Width::Word, R10, stack::KEY + 8, R1);
    }

    fn ipv6(&mut self) {
        let JumpLabels { pass, best_effort, .. } = self.labels;
        let tcp = self.asm.label();
        // The shortest relevant packet is an IPv6 header with an ICMPv6 header of 4 bytes.
        self.need(ETHERNET_HEADER_BYTES + IPV6_HEADER_BYTES + 4);
        self.asm.load(Width::Byte, R1, R7, IP).compute(Arithmetic::ShiftRight, R1, 4);
        self.asm.jump_if(Condition::NotEqual, R1, 6, best_effort);
        self.asm.load(Width::Byte, R1, R7, IP + 6);
        self.asm.jump_if(Condition::Equal, R1, i32::from(protocol::TCP), tcp);
        self.asm.jump_if(Condition::NotEqual, R1, i32::from(protocol::ICMPV6), best_effort);
        let (first, last) = NEIGHBOUR_DISCOVERY;
        self.asm.load(Width::Byte, R1, R7, IP + 7);
        self.asm.jump_if(Condition::NotEqual, R1, i32::from(ON_LINK_HOP_LIMIT), best_effort);
        self.asm.load(Width::Byte, R1, R7, TCP_BEHIND_IPV6);
        self.asm.jump_if(Condition::Less, R1, i32::from(first), best_effort);
        self.asm.jump_if(Condition::Greater, R1, i32::from(last), best_effort);
        self.asm.jump(pass);

        self.asm.bind(tcp);
        self.need(ETHERNET_HEADER_BYTES + IPV6_HEADER_BYTES + TCP_HEADER_BYTES);
        self.asm.load(Width::Half, R9, R7, IP + 4).swap_network_order_16(R9);
        self.asm.jump_if(Condition::Less, R9, constant(TCP_HEADER_BYTES), best_effort);
        self.asm.compute(Arithmetic::Subtract, R5, constant(ETHERNET_HEADER_BYTES + IPV6_HEADER_BYTES));
        self.asm.jump_if(Condition::Greater, R9, R5, best_effort);
        self.tcp_header(TCP_BEHIND_IPV6);
        self.asm.store(Width::Word, R10, stack::KEY, i32::from_ne_bytes([0, 0, 0, 6]));
        self.asm.load(Width::Word, R1, R7, TCP_BEHIND_IPV6).store(Width::Word, R10, stack::KEY + 4, R1);
        for part in 0..4 {
            self.asm.load(Width::Double, R1, R7, IP + 8 + part * 8);
            self.asm.store(Width::Double, R10, stack::KEY + 8 + part * 8, R1);
        }
    }

    /// Checks that the TCP header fits into the segment, whose length is in R9. Leaves the local
    /// port in R9.
    fn tcp_header(&mut self, tcp: i16) {
        let best_effort = self.labels.best_effort;
        self.asm.load(Width::Byte, R1, R7, tcp + 12);
        self.asm.compute(Arithmetic::ShiftRight, R1, 4).compute(Arithmetic::ShiftLeft, R1, 2);
        self.asm.jump_if(Condition::Less, R1, constant(TCP_HEADER_BYTES), best_effort);
        self.asm.jump_if(Condition::Greater, R1, R9, best_effort);
        self.asm.load(Width::Half, R9, R7, tcp + 2).swap_network_order_16(R9);
    }

    /// Looks up the stream by the local port in R9 and, for accepted connections, by the key on the
    /// stack in `connections`. Leaves the stream in R9.
    fn look_up_stream(&mut self, connections: MapSymbol) {
        let JumpLabels { best_effort, deliver, .. } = self.labels;
        let accepted = self.asm.label();
        self.asm.store(Width::Word, R10, stack::INDEX, R9);
        self.look_up(symbol::PORTS, stack::INDEX, best_effort);
        self.asm.load(Width::Word, R9, R0, 0);
        self.asm.jump_if(Condition::Equal, R9, 0, best_effort);
        // Rules that name a stream are 1 to 65,536; the rule for accepted connections is larger.
        self.asm.jump_if(Condition::Greater, R9, 0x1_0000, accepted);
        self.asm.compute(Arithmetic::Subtract, R9, 1).jump(deliver);
        self.asm.bind(accepted);
        self.look_up(connections, stack::KEY, best_effort);
        self.asm.load(Width::Word, R9, R0, 0);
    }

    /// Passes a frame below the cap of the stream in R9, or puts the frame into the stream's queue.
    /// Jumps to `nowhere` if there is no queue.
    fn deliver(&mut self, nowhere: Label) {
        let (missed, queue, thread, queued) = (self.asm.label(), self.asm.label(), self.asm.label(), self.asm.label());
        self.asm.store(Width::Word, R10, stack::INDEX, R9);
        self.look_up(symbol::STREAMS, stack::INDEX, nowhere);
        self.asm.set(R8, R0);
        self.asm.load(Width::Word, R7, R6, context::RX_QUEUE);
        self.asm.jump_if(Condition::GreaterOrEqual, R7, i32::from(self.table_sizes.receive_queue_count), missed);
        self.asm.set(R1, R9).compute(Arithmetic::Multiply, R1, i32::from(self.table_sizes.receive_queue_count));
        self.asm.compute(Arithmetic::Add, R7, R1);

        self.asm.load(Width::Double, R1, R8, entry::INTERVAL).jump_if(Condition::Equal, R1, 0, queue);
        self.in_context(queue);

        self.asm.bind(queue).load(Width::Word, R1, R8, entry::DELIVERY);
        self.asm.jump_if(Condition::Equal, R1, i32::try_from(THREAD).unwrap_or(0), thread);
        self.asm.jump_if(Condition::NotEqual, R1, i32::try_from(RING).unwrap_or(0), missed);
        self.asm.set(R1, R6).call(Helper::XdpFrameLength);
        self.asm.jump_if(Condition::Greater, R0, i32::try_from(MAX_RING_FRAME_BYTES).unwrap_or(0), missed);
        self.asm.load_map(R1, symbol::RINGS).set(R2, R7).set(R3, XdpAction::ABORTED).call(Helper::RedirectMap);
        self.asm.jump(queued);

        self.asm.bind(thread).store(Width::Word, R10, stack::INDEX, R7);
        self.look_up(symbol::PROCESSORS, stack::INDEX, missed);
        self.asm.load(Width::Word, R8, R0, 0).store(Width::Word, R10, stack::INDEX, R9);
        self.look_up(symbol::THREADS, stack::INDEX, missed);
        self.asm.set(R1, R0).set(R2, R8).set(R3, XdpAction::ABORTED).call(Helper::RedirectMap);

        self.asm.bind(queued).jump_if(Condition::NotEqual, R0, XdpAction::REDIRECT, missed);
        self.count(count::QUEUED);
        self.asm.set(R0, XdpAction::REDIRECT).exit();
        self.asm.bind(missed);
        self.count(count::MISSED);
        self.asm.jump(nowhere);
    }

    /// Passes a frame below the cap of the stream whose entry is in R8
    /// (`PacketRate::grants_packet`). Other frames jump to `queue`, or reach the code that follows.
    fn in_context(&mut self, queue: Label) {
        let (due, over) = (self.asm.label(), self.asm.label());
        self.asm.call(Helper::MonotonicTime).store(Width::Double, R10, stack::NOW, R0);
        self.asm.store(Width::Word, R10, stack::INDEX, R7);
        self.look_up(symbol::LIMITS, stack::INDEX, queue);
        self.asm.load(Width::Double, R1, R10, stack::NOW).load(Width::Double, R2, R0, 0);
        self.asm.jump_if(Condition::GreaterOrEqual, R2, R1, due).set(R2, R1).bind(due);
        self.asm.set(R3, R2).compute(Arithmetic::Subtract, R3, R1).load(Width::Double, R4, R8, entry::TOLERANCE);
        self.asm.load(Width::Double, R5, R8, entry::INTERVAL);
        self.asm.jump_if(Condition::Greater, R3, R4, over);
        self.asm.compute(Arithmetic::Add, R2, R5).store(Width::Double, R0, 0, R2);
        self.count(count::IN_CONTEXT);
        self.asm.set(R0, XdpAction::PASS).exit();
        self.asm.bind(over).compute(Arithmetic::Add, R1, R4).compute(Arithmetic::Add, R1, R5);
        self.asm.store(Width::Double, R0, 0, R1);
    }

    /// Drops a frame above the ceiling of best effort (`ByteRate::grants_frame`). The stream in R9
    /// is best effort. Uses R7 for the ceiling and R8 for the frame's time.
    fn drop_above_ceiling(&mut self) {
        let (due, drop, within) = (self.asm.label(), self.asm.label(), self.asm.label());
        self.asm.store(Width::Word, R10, stack::INDEX, 0);
        self.look_up(symbol::CEILING, stack::INDEX, within);
        self.asm.set(R7, R0).load(Width::Double, R8, R7, ceiling::COST);
        self.asm.jump_if(Condition::Equal, R8, 0, within);
        self.asm.set(R1, R6).call(Helper::XdpFrameLength).compute(Arithmetic::Multiply, R8, R0);
        let places = i32::try_from(ByteRate::COST_PLACES).unwrap_or(0);
        self.asm.compute(Arithmetic::ShiftRight, R8, places).call(Helper::MonotonicTime);
        self.asm.load(Width::Double, R1, R7, ceiling::STATE).load(Width::Double, R2, R7, ceiling::TOLERANCE);
        self.asm.jump_if(Condition::GreaterOrEqual, R1, R0, due);
        self.asm.set(R1, R0).store(Width::Double, R7, ceiling::STATE, R1).bind(due);
        self.asm.compute(Arithmetic::Subtract, R1, R0).jump_if(Condition::Greater, R1, R2, drop);
        // All receive queues share the state. The addition is atomic, so that at the ceiling no
        // addition of another processor is lost. The store above is not: it can overwrite additions
        // that others have made since the load. These frames then count nothing, so each such
        // hold-up can grant the bytes of the tolerance again.
        self.asm.add_atomically(R7, ceiling::STATE, R8).jump(within);
        self.asm.bind(drop);
        self.count(count::DROPPED);
        self.asm.set(R0, XdpAction::DROP).exit().bind(within);
    }

    fn count(&mut self, field: i16) {
        let none = self.asm.label();
        self.asm.store(Width::Word, R10, stack::INDEX, R9);
        self.look_up(symbol::COUNTS, stack::INDEX, none);
        self.asm.load(Width::Double, R1, R0, field).compute(Arithmetic::Add, R1, 1);
        self.asm.store(Width::Double, R0, field, R1).bind(none);
    }

    /// Looks up the key at stack offset `key` in a map. Leaves a pointer to the key's value in R0,
    /// or jumps to `absent`.
    fn look_up(&mut self, map: MapSymbol, key: i16, absent: Label) {
        self.asm.load_map(R1, map).set(R2, R10).compute(Arithmetic::Add, R2, i32::from(key));
        self.asm.call(Helper::MapLookup).jump_if(Condition::Equal, R0, 0, absent);
    }

    /// Checks that the frame has at least `bytes` bytes from R7 on; otherwise the frame is best
    /// effort.
    fn need(&mut self, bytes: usize) {
        self.asm.set(R1, R7).compute(Arithmetic::Add, R1, constant(bytes));
        self.asm.jump_if(Condition::Greater, R1, R8, self.labels.best_effort);
    }
}

/// Returns the number that a load yields for `field` in network order.
fn network(field: u16) -> i32 {
    i32::from(field.to_be())
}

fn constant(bytes: usize) -> i32 {
    i32::try_from(bytes).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_uses_each_of_its_maps() {
        let program =
            assemble_steering_program(TableSizes { stream_count: 4, receive_queue_count: 2, max_connections: 8 })
                .unwrap();
        assert_eq!(program.map_count(), 10);
        let used =
            |map| (0..program.instructions().len()).any(|place| program.map_loaded_at(place) == Some(MapSymbol(map)));
        assert!((0..10).all(used));
    }

    #[test]
    fn the_program_jumps_forwards_only() {
        let program =
            assemble_steering_program(TableSizes { stream_count: 4, receive_queue_count: 2, max_connections: 8 })
                .unwrap();
        assert!(
            program.instructions().iter().all(|instruction| instruction.opcode & 7 != 5 || instruction.offset >= 0)
        );
    }
}
