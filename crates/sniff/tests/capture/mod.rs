use std::net::SocketAddrV4;

#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) from: SocketAddrV4,
    pub(crate) to: SocketAddrV4,
    pub(crate) sequence: u32,
    /// Acknowledgement number: the sequence number that the sender expects next.
    pub(crate) acknowledges: u32,
    /// TCP flags: FIN 1, SYN 2, RST 4, ACK 16.
    pub(crate) flags: u8,
    pub(crate) octets: Vec<u8>,
}

pub(crate) fn ip_packet(sent: &Sent) -> Vec<u8> {
    let total = u16::try_from(40 + sent.octets.len()).expect("a segment fits into a packet");
    let mut packet = vec![0x45, 0];
    packet.extend(total.to_be_bytes());
    packet.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
    packet.extend(sent.from.ip().octets());
    packet.extend(sent.to.ip().octets());
    packet.extend(sent.from.port().to_be_bytes());
    packet.extend(sent.to.port().to_be_bytes());
    packet.extend(sent.sequence.to_be_bytes());
    packet.extend(sent.acknowledges.to_be_bytes());
    packet.extend([0x50, sent.flags, 0xff, 0xff, 0, 0, 0, 0]);
    packet.extend(&sent.octets);
    packet
}

/// Returns a pcap file of IP packets without a link layer, one packet each millisecond.
pub(crate) fn pcap(packets: &[Sent]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 0x4_0000, 101] {
        file.extend(word.to_le_bytes());
    }
    for (number, sent) in packets.iter().enumerate() {
        let packet = ip_packet(sent);
        let length = u32::try_from(packet.len()).expect("a packet is short");
        let microseconds = u32::try_from(number * 1_000).expect("few packets");
        let time = [1_700_000_000 + microseconds / 1_000_000, microseconds % 1_000_000];
        for word in [time[0], time[1], length, length] {
            file.extend(word.to_le_bytes());
        }
        file.extend(packet);
    }
    file
}

/// Returns a pcapng file of Ethernet packets, with times in nanoseconds.
pub(crate) fn pcapng(packets: &[Sent]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut block = |kind: u32, body: &[u8]| {
        let length = u32::try_from(12 + body.len()).expect("a block is short");
        for octets in [&kind.to_le_bytes()[..], &length.to_le_bytes(), body, &length.to_le_bytes()] {
            file.extend(octets);
        }
    };
    block(0x0a0d_0d0a, &[0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255]);
    // The interface's option if_tsresol is 9: nanoseconds.
    block(1, &[1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
    for (number, sent) in packets.iter().enumerate() {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
        frame.extend(ip_packet(sent));
        // Short Ethernet frames have padding after the IP packet.
        frame.resize(frame.len().max(60), 0);
        let length = u32::try_from(frame.len()).expect("a frame is short");
        let time = 1_700_000_000_000_000_000 + 1_000_000 * u64::try_from(number).expect("few packets");
        let mut body = Vec::new();
        for word in [0, (time >> 32) as u32, time as u32, length, length] {
            body.extend(word.to_le_bytes());
        }
        body.extend(&frame);
        body.resize(body.len().next_multiple_of(4), 0);
        block(6, &body);
    }
    file
}

pub(crate) struct Conversation {
    pub(crate) packets: Vec<Sent>,
    ends: [SocketAddrV4; 2],
    next: [u32; 2],
}

impl Conversation {
    pub(crate) fn begin(client: &str, server: &str, first: u32) -> Self {
        let ends = [client, server].map(|end| end.parse().expect("an address"));
        let mut conversation = Conversation { packets: Vec::new(), ends, next: [first, first.wrapping_add(9_000)] };
        for (side, flags) in [(0, 2), (1, 2 | 16)] {
            conversation.push(side, flags, &[]);
            conversation.next[side] = conversation.next[side].wrapping_add(1);
        }
        conversation
    }

    pub(crate) fn send(&mut self, is_server: bool, octets: &[u8], size: usize) {
        let side = usize::from(is_server);
        for part in octets.chunks(size) {
            self.push(side, 16, part);
            self.next[side] = self.next[side].wrapping_add(u32::try_from(part.len()).expect("a segment is short"));
        }
    }

    pub(crate) fn end(&mut self) {
        self.push(0, 1 | 16, &[]);
        self.push(1, 1 | 16, &[]);
    }

    fn push(&mut self, side: usize, flags: u8, octets: &[u8]) {
        let (from, to) = (self.ends[side], self.ends[1 - side]);
        let (sequence, acknowledges) = (self.next[side], self.next[1 - side]);
        self.packets.push(Sent { from, to, sequence, acknowledges, flags, octets: octets.to_vec() });
    }
}
