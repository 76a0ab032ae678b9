//! Parsing of frames as the driver receives them, to find frames that may belong to a stream.
//!
//! [`parse`] is the specification for parsing in the XDP program of [`steering`](crate::steering),
//! and tests compare the program with it.
//!
//! ```text
//! | Ethernet 14 | VLAN tag 4, up to two | IPv4 20, no options | TCP 20..60 | payload | padding |
//!                                       | IPv6 40             |
//! ```
//!
//! Checksums are not verified here. The kernel's IP and TCP verify them in the thread that
//! processes the frame.

use std::net::{IpAddr, SocketAddr};

/// Size in bytes of an Ethernet header: two addresses and a type.
pub const ETHERNET_HEADER_BYTES: usize = 14;
/// Size in bytes of one VLAN tag (IEEE 802.1Q).
pub const VLAN_TAG_BYTES: usize = 4;
/// Maximum number of VLAN tags that [`parse`] skips.
pub const MAX_VLAN_TAGS: usize = 2;
/// Size in bytes of an IPv4 header without options.
pub const IPV4_HEADER_BYTES: usize = 20;
/// Size in bytes of an IPv6 header.
pub const IPV6_HEADER_BYTES: usize = 40;
/// Size in bytes of a TCP header without options.
pub const TCP_HEADER_BYTES: usize = 20;

pub(crate) mod ether_type {
    pub(crate) const IPV4: u16 = 0x0800;
    pub(crate) const ARP: u16 = 0x0806;
    /// A tag of IEEE 802.1Q.
    pub(crate) const VLAN: u16 = 0x8100;
    /// A service tag of IEEE 802.1ad.
    pub(crate) const SERVICE_VLAN: u16 = 0x88a8;
    pub(crate) const IPV6: u16 = 0x86dd;
}

pub(crate) mod protocol {
    pub(crate) const TCP: u8 = 6;
    pub(crate) const ICMPV6: u8 = 58;
}

/// First byte of an IPv4 header: version 4, and a length of five words, without options.
pub(crate) const IPV4_WITHOUT_OPTIONS: u8 = 0x45;
/// Mask of the more-fragments flag and the fragment offset of an IPv4 header; both are 0 in a whole
/// datagram.
pub(crate) const FRAGMENT_BITS: u16 = 0x3fff;
/// First and last ICMPv6 type of neighbour discovery (RFC 4861): router solicitation to redirect.
pub(crate) const NEIGHBOUR_DISCOVERY: (u8, u8) = (133, 137);
/// Hop limit of a neighbour discovery message. A router would have lowered it (RFC 4861, section
/// 6.1.1).
pub(crate) const ON_LINK_HOP_LIMIT: u8 = 255;

/// The two ends of a TCP connection: the sender and the receiver of the frames that arrive at this
/// host.
///
/// The bytes are the key of the kernel's table, in network order:
///
/// ```text
///  0..4   4 or 6, the version of IP, in the last byte
///  4..6   port of the sender
///  6..8   port of the receiver
///  8..24  address of the sender; an IPv4 address is followed by zeros
/// 24..40  address of the receiver
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionKey([u8; Self::SIZE]);

impl ConnectionKey {
    /// Size in bytes of a key.
    pub const SIZE: usize = 40;
    /// Size in bytes of the short form of an IPv4 connection's key.
    pub const IPV4_SIZE: usize = 12;

    /// Returns the key of the frames that `remote` sends to `local`. `None` if one address is IPv4
    /// and the other is IPv6.
    ///
    /// An IPv4 address mapped into IPv6, as a dual-stack socket reports it, counts as IPv4, because
    /// its frames are IPv4.
    #[must_use]
    pub fn new(remote: SocketAddr, local: SocketAddr) -> Option<Self> {
        let key = |version, source: &[u8], destination: &[u8]| {
            Self::from_fields(version, remote.port(), local.port(), source, destination)
        };
        match (remote.ip().to_canonical(), local.ip().to_canonical()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Some(key(4, &source.octets(), &destination.octets())),
            (IpAddr::V6(source), IpAddr::V6(destination)) => Some(key(6, &source.octets(), &destination.octets())),
            _ => None,
        }
    }

    /// Returns the bytes of the key.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; Self::SIZE] {
        &self.0
    }

    /// Returns the short form of an IPv4 connection's key: the address of the sender, that of the
    /// receiver, and the ports. `None` for IPv6.
    #[must_use]
    pub const fn ipv4_bytes(&self) -> Option<[u8; Self::IPV4_SIZE]> {
        let [_, _, _, version, p0, p1, p2, p3, s0, s1, s2, s3, ..] = self.0;
        let [.., d0, d1, d2, d3, _, _, _, _, _, _, _, _, _, _, _, _] = self.0;
        match version {
            4 => Some([s0, s1, s2, s3, d0, d1, d2, d3, p0, p1, p2, p3]),
            _ => None,
        }
    }

    /// Returns the port of the receiver.
    #[must_use]
    pub const fn local_port(&self) -> u16 {
        u16::from_be_bytes([self.0[6], self.0[7]])
    }

    fn from_fields(version: u8, source_port: u16, local_port: u16, source: &[u8], destination: &[u8]) -> Self {
        let mut bytes = [0; Self::SIZE];
        let mut put = |at: usize, field: &[u8]| {
            bytes.iter_mut().skip(at).zip(field).for_each(|(into, byte)| *into = *byte);
        };
        put(3, &[version]);
        put(4, &source_port.to_be_bytes());
        put(6, &local_port.to_be_bytes());
        put(8, source);
        put(24, destination);
        Self(bytes)
    }
}

/// Kind of a frame, determined before any table look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParsedFrame {
    /// The kernel handles the frame in the receive context: ARP, IPv6 neighbour discovery,
    /// multicast and broadcast.
    Pass,
    /// The frame belongs to no stream: it has a protocol other than TCP, IP options, a fragment or
    /// an extension header, or is malformed.
    BestEffort,
    /// A TCP segment in one whole IP datagram.
    Tcp(ConnectionKey),
}

/// Determines the kind of a frame. Never panics.
#[must_use]
pub fn parse(frame: &[u8]) -> ParsedFrame {
    parse_ethernet(frame).unwrap_or(ParsedFrame::BestEffort)
}

/// Returns `None` for [`ParsedFrame::BestEffort`].
fn parse_ethernet(frame: &[u8]) -> Option<ParsedFrame> {
    let first = *frame.get(..ETHERNET_HEADER_BYTES)?.first()?;
    // The group bit of the destination address is set for multicast and broadcast.
    if first & 1 == 1 {
        return Some(ParsedFrame::Pass);
    }
    let (kind, packet) = network_packet(frame)?;
    match kind {
        ether_type::ARP => Some(ParsedFrame::Pass),
        ether_type::IPV4 => parse_ipv4(packet),
        ether_type::IPV6 => parse_ipv6(packet),
        _ => None,
    }
}

/// Returns the Ethernet type behind up to two VLAN tags, and the bytes that follow.
fn network_packet(frame: &[u8]) -> Option<(u16, &[u8])> {
    let mut rest = frame.get(ETHERNET_HEADER_BYTES - 2..)?;
    for _ in 0..MAX_VLAN_TAGS {
        if matches!(read_u16(rest, 0)?, ether_type::VLAN | ether_type::SERVICE_VLAN) {
            rest = rest.get(VLAN_TAG_BYTES..)?;
        }
    }
    Some((read_u16(rest, 0)?, rest.get(2..)?))
}

fn parse_ipv4(packet: &[u8]) -> Option<ParsedFrame> {
    let header = packet.get(..IPV4_HEADER_BYTES)?;
    let is_plain = *header.first()? == IPV4_WITHOUT_OPTIONS
        && read_u16(header, 6)? & FRAGMENT_BITS == 0
        && *header.get(9)? == protocol::TCP;
    if !is_plain {
        return None;
    }
    let total_length = usize::from(read_u16(header, 2)?);
    let segment = packet.get(IPV4_HEADER_BYTES..total_length)?;
    let (source_port, local_port) = parse_tcp(segment)?;
    let (source, destination) = (header.get(12..16)?, header.get(16..20)?);
    Some(ParsedFrame::Tcp(ConnectionKey::from_fields(4, source_port, local_port, source, destination)))
}

fn parse_ipv6(packet: &[u8]) -> Option<ParsedFrame> {
    let (header, rest) = packet.split_at_checked(IPV6_HEADER_BYTES)?;
    if header.first()? >> 4 != 6 {
        return None;
    }
    match *header.get(6)? {
        protocol::TCP => {}
        protocol::ICMPV6 => return is_neighbour_discovery(header, rest)?.then_some(ParsedFrame::Pass),
        _ => return None,
    }
    let payload_length = usize::from(read_u16(header, 4)?);
    let (source_port, local_port) = parse_tcp(rest.get(..payload_length)?)?;
    let (source, destination) = (header.get(8..24)?, header.get(24..40)?);
    Some(ParsedFrame::Tcp(ConnectionKey::from_fields(6, source_port, local_port, source, destination)))
}

/// Returns true for a neighbour discovery message from this link; `None` if the ICMPv6 header is
/// truncated.
fn is_neighbour_discovery(header: &[u8], message: &[u8]) -> Option<bool> {
    let kind = *message.get(..4)?.first()?;
    let (first, last) = NEIGHBOUR_DISCOVERY;
    Some(*header.get(7)? == ON_LINK_HOP_LIMIT && (first..=last).contains(&kind))
}

/// Returns the ports of sender and receiver; `None` if the TCP header does not fit into the
/// segment.
fn parse_tcp(segment: &[u8]) -> Option<(u16, u16)> {
    let header_words = segment.get(..TCP_HEADER_BYTES)?.get(12)? >> 4;
    let header_length = usize::from(header_words) * 4;
    let fits = (TCP_HEADER_BYTES..=segment.len()).contains(&header_length);
    fits.then_some((read_u16(segment, 0)?, read_u16(segment, 2)?))
}

/// The IP packet of a frame in which [`parse`] finds a TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TcpPacket<'f> {
    /// The packet without the padding of the frame.
    bytes: &'f [u8],
    header_length: usize,
}

impl<'f> TcpPacket<'f> {
    /// Returns the packet; `None` for all other frames.
    pub(crate) fn of_frame(frame: &'f [u8]) -> Option<Self> {
        let ParsedFrame::Tcp(_) = parse(frame) else { return None };
        let (kind, packet) = network_packet(frame)?;
        let (header_length, length) = match kind {
            ether_type::IPV4 => (IPV4_HEADER_BYTES, usize::from(read_u16(packet, 2)?)),
            _ => (IPV6_HEADER_BYTES, IPV6_HEADER_BYTES + usize::from(read_u16(packet, 4)?)),
        };
        Some(Self { bytes: packet.get(..length)?, header_length })
    }

    pub(crate) fn bytes(&self) -> &'f [u8] {
        self.bytes
    }

    /// Returns the length of the IP header in bytes, which is the offset of the TCP header.
    pub(crate) fn header_length(&self) -> usize {
        self.header_length
    }

    /// Returns true if the checksum field has only the sum of the pseudo header (RFC 9293, section
    /// 3.1). Such a packet has not passed a network card: its sender left the checksum to the card.
    pub(crate) fn has_partial_checksum(&self) -> bool {
        let addresses = if self.header_length == IPV4_HEADER_BYTES { 12..20 } else { 8..40 };
        let words = self.bytes.get(addresses).unwrap_or_default().chunks_exact(2);
        let addresses: u32 = words.filter_map(|word| read_u16(word, 0)).map(u32::from).sum();
        // The sum of at most 16 words and a length below 2^17 does not overflow.
        let length = u32::try_from(self.bytes.len() - self.header_length).unwrap_or(0);
        let mut sum = addresses + u32::from(protocol::TCP) + length;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        read_u16(self.bytes, self.header_length + 16).map(u32::from) == Some(sum)
    }
}

fn read_u16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_be_bytes)
}

/// Builds frames for tests and for the initial corpus of the fuzz target.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod build {
    use super::*;

    /// Returns a TCP frame with `tags` VLAN tags and `payload` payload bytes.
    pub(crate) fn tcp(remote: SocketAddr, local: SocketAddr, tags: usize, payload: usize) -> Vec<u8> {
        let mut segment = [remote.port().to_be_bytes(), local.port().to_be_bytes()].concat();
        segment.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
        segment.extend((0..=255).cycle().take(payload));
        match (remote.ip(), local.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let packet = ipv4(protocol::TCP, &source.octets(), &destination.octets(), &segment);
                ethernet(ether_type::IPV4, tags, &packet)
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let packet = ipv6(protocol::TCP, &source.octets(), &destination.octets(), &segment);
                ethernet(ether_type::IPV6, tags, &packet)
            }
            _ => Vec::new(),
        }
    }

    pub(crate) fn ethernet(kind: u16, tags: usize, packet: &[u8]) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        for tag in 0..tags {
            let kind = if tag + 1 < tags { ether_type::SERVICE_VLAN } else { ether_type::VLAN };
            frame.extend(kind.to_be_bytes());
            frame.extend([0, 5]);
        }
        frame.extend(kind.to_be_bytes());
        frame.extend(packet);
        frame
    }

    pub(crate) fn ipv4(protocol: u8, source: &[u8], destination: &[u8], payload: &[u8]) -> Vec<u8> {
        let total = u16::try_from(IPV4_HEADER_BYTES + payload.len()).unwrap_or(u16::MAX).to_be_bytes();
        let mut packet = vec![IPV4_WITHOUT_OPTIONS, 0, total[0], total[1], 0, 1, 0x40, 0, 64, protocol, 0, 0];
        [source, destination, payload].iter().for_each(|part| packet.extend(*part));
        packet
    }

    pub(crate) fn ipv6(next: u8, source: &[u8], destination: &[u8], payload: &[u8]) -> Vec<u8> {
        let length = u16::try_from(payload.len()).unwrap_or(u16::MAX).to_be_bytes();
        let mut packet = vec![0x60, 0, 0, 0, length[0], length[1], next, 255];
        [source, destination, payload].iter().for_each(|part| packet.extend(*part));
        packet
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(version: u8) -> (SocketAddr, SocketAddr) {
        let of = |v4: &str, v6: &str| if version == 4 { v4 } else { v6 }.parse().unwrap();
        (of("10.1.2.3:40000", "[fd00::3]:40000"), of("10.1.2.4:2809", "[fd00::4]:2809"))
    }

    #[test]
    fn a_segment_is_found_behind_up_to_two_tags() {
        for version in [4, 6] {
            let (remote, local) = ends(version);
            let key = ConnectionKey::new(remote, local).unwrap();
            assert_eq!(key.local_port(), 2809);
            for tags in 0..=2 {
                assert_eq!(
                    parse(&build::tcp(remote, local, tags, 10)),
                    ParsedFrame::Tcp(key),
                    "IPv{version}, {tags} tags"
                );
            }
            assert_eq!(parse(&build::tcp(remote, local, 3, 10)), ParsedFrame::BestEffort);
        }
    }

    #[test]
    fn padding_behind_the_packet_does_not_matter() {
        let (remote, local) = ends(4);
        let mut frame = build::tcp(remote, local, 0, 0);
        let parsed = parse(&frame);
        frame.resize(60, 0xff);
        assert!(matches!(parsed, ParsedFrame::Tcp(_)));
        assert_eq!(parse(&frame), parsed);
    }

    #[test]
    fn packet_of_a_frame_has_neither_tags_nor_padding() {
        for (version, header_length) in [(4, 20), (6, 40)] {
            let (remote, local) = ends(version);
            let plain = build::tcp(remote, local, 0, 3);
            let expected = &plain[ETHERNET_HEADER_BYTES..];
            for tags in 0..=2 {
                let mut frame = build::tcp(remote, local, tags, 3);
                frame.resize(120, 0xff);
                let packet = TcpPacket::of_frame(&frame).unwrap();
                assert_eq!((packet.bytes(), packet.header_length()), (expected, header_length), "{tags} tags");
            }
            assert_eq!(TcpPacket::of_frame(&plain[..plain.len() - 1]), None);
        }
        assert_eq!(TcpPacket::of_frame(&build::ethernet(ether_type::ARP, 0, &[0; 28])), None);
    }

    /// The fields with the sum of the pseudo header were computed by hand.
    #[test]
    fn sum_of_the_pseudo_header_is_a_partial_checksum() {
        for (version, field) in [(4, [0x18, 0x26]), (6, [0xfa, 0x25])] {
            let (remote, local) = ends(version);
            let mut frame = build::tcp(remote, local, 0, 3);
            let at = ETHERNET_HEADER_BYTES + if version == 4 { 20 } else { 40 } + 16;
            let is_partial = |frame: &[u8]| TcpPacket::of_frame(frame).unwrap().has_partial_checksum();
            assert!(!is_partial(&frame));
            frame[at..at + 2].copy_from_slice(&field);
            assert!(is_partial(&frame), "IPv{version}");
            frame[at + 1] ^= 1;
            assert!(!is_partial(&frame));
        }
    }

    #[test]
    fn a_truncated_frame_belongs_to_no_stream() {
        for version in [4, 6] {
            let (remote, local) = ends(version);
            for tags in 0..=2 {
                let frame = build::tcp(remote, local, tags, 10);
                for length in 0..frame.len() {
                    assert_eq!(
                        parse(&frame[..length]),
                        ParsedFrame::BestEffort,
                        "IPv{version}, {tags} tags, {length} bytes"
                    );
                }
            }
        }
    }

    #[test]
    fn frames_that_keep_the_link_alive_pass() {
        let (remote, local) = ends(4);
        let mut multicast = build::tcp(remote, local, 0, 0);
        multicast[0] |= 1;
        assert_eq!(parse(&multicast), ParsedFrame::Pass);
        assert_eq!(parse(&[0xff; 14]), ParsedFrame::Pass);
        assert_eq!(parse(&[0xff; 13]), ParsedFrame::BestEffort);
        assert_eq!(parse(&build::ethernet(ether_type::ARP, 1, &[])), ParsedFrame::Pass);
        for kind in 130..=140 {
            let packet = build::ipv6(protocol::ICMPV6, &[1; 16], &[2; 16], &[kind, 0, 0, 0]);
            let expected = if (133..=137).contains(&kind) { ParsedFrame::Pass } else { ParsedFrame::BestEffort };
            let frame = build::ethernet(ether_type::IPV6, 0, &packet);
            assert_eq!(parse(&frame), expected, "ICMPv6 type {kind}");
            let mut routed = frame;
            routed[ETHERNET_HEADER_BYTES + 7] = 254;
            assert_eq!(parse(&routed), ParsedFrame::BestEffort, "ICMPv6 type {kind} through a router");
        }
    }

    /// Each entry is an IP version, the offset of the changed byte, its new value and the fault.
    #[test]
    fn options_fragments_and_wrong_lengths_belong_to_no_stream() {
        let ip = ETHERNET_HEADER_BYTES;
        let changes: [(u8, usize, u8, &str); 15] = [
            (4, 12, 0x09, "another Ethernet type"),
            (4, ip, 0x46, "IPv4 options"),
            (4, ip, 0x65, "a wrong version"),
            (4, ip + 3, 39, "a total length that cuts the TCP header"),
            (4, ip + 3, 51, "a total length beyond the frame"),
            (4, ip + 6, 0x20, "more fragments"),
            (4, ip + 7, 1, "a fragment offset"),
            (4, ip + 9, 17, "UDP"),
            (4, ip + 32, 0x40, "a TCP header below its minimum"),
            (4, ip + 32, 0xf0, "a TCP header beyond the segment"),
            (6, ip, 0x40, "a wrong version"),
            (6, ip + 5, 19, "a payload length that cuts the TCP header"),
            (6, ip + 5, 31, "a payload length beyond the frame"),
            (6, ip + 6, 44, "an extension header"),
            (6, ip + 52, 0x80, "a TCP header beyond the segment"),
        ];
        for (version, at, value, fault) in changes {
            let (remote, local) = ends(version);
            let mut frame = build::tcp(remote, local, 0, 10);
            assert!(matches!(parse(&frame), ParsedFrame::Tcp(_)));
            frame[at] = value;
            assert_eq!(parse(&frame), ParsedFrame::BestEffort, "{fault}");
        }
    }

    #[test]
    fn the_flag_against_fragments_and_tcp_options_change_nothing() {
        let (remote, local) = ends(4);
        let mut frame = build::tcp(remote, local, 0, 12);
        let parsed = parse(&frame);
        frame[ETHERNET_HEADER_BYTES + 6] = 0;
        frame[ETHERNET_HEADER_BYTES + 32] = 0x80;
        assert_eq!(parse(&frame), parsed);
    }

    #[test]
    fn keys_of_ipv4_and_ipv6_differ() {
        let v4 = ConnectionKey::new("32.1.13.184:1".parse().unwrap(), "32.1.13.184:2".parse().unwrap());
        let v6 = ConnectionKey::new("[2001:db8::]:1".parse().unwrap(), "[2001:db8::]:2".parse().unwrap());
        assert_ne!(v4, v6);
        let mapped = ConnectionKey::new("[::ffff:32.1.13.184]:1".parse().unwrap(), "32.1.13.184:2".parse().unwrap());
        assert_eq!(v4, mapped);
        assert_eq!(ConnectionKey::new("[::1]:1".parse().unwrap(), "127.0.0.1:2".parse().unwrap()), None);
        let short = ConnectionKey::new("1.2.3.4:258".parse().unwrap(), "5.6.7.8:772".parse().unwrap()).unwrap();
        assert_eq!(short.ipv4_bytes(), Some([1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4]));
        assert_eq!(v6.unwrap().ipv4_bytes(), None);
    }
}
