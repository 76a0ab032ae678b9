//! Packets of capture files (pcap and pcapng), and the TCP segments in them.

use std::fmt;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};

use etherparse::{EtherType, LaxNetSlice, LaxSlicedPacket, TransportSlice};
use pcap_parser::traits::PcapReaderIterator;
use pcap_parser::{Block, PcapBlockOwned, PcapError, create_reader};

const BUFFER: usize = 256 << 10;
const MAX_BLOCK: usize = 16 << 20;
const MAX_INTERFACES: usize = 10_000;
const NANOSECONDS: u64 = 1_000_000_000;

/// A captured packet.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'p> {
    /// Time of the capture in nanoseconds since 1970; 0 if the file has no valid time.
    pub time_ns: u64,
    /// Number of the link layer in the registry of libpcap.
    pub link_type: i32,
    /// The captured octets. A capture may cut a packet short.
    pub octets: &'p [u8],
}

/// The reason why a capture file was not read to its end.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CaptureError {
    /// The file is neither pcap nor pcapng.
    UnknownFormat,
    /// The file ends within a packet.
    Truncated,
    /// The file is damaged, or has blocks that are too large.
    Damaged,
    /// Reading failed.
    ReadFailed,
    /// The visitor refused a packet, for this reason.
    Refused(String),
}

impl fmt::Display for CaptureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CaptureError::UnknownFormat => f.write_str("it is neither pcap nor pcapng"),
            CaptureError::Truncated => f.write_str("it ends within a packet"),
            CaptureError::Damaged => f.write_str("it is damaged"),
            CaptureError::ReadFailed => f.write_str("it cannot be read"),
            CaptureError::Refused(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for CaptureError {}

struct Interface {
    link: i32,
    /// Units of the interface's clock per second; `None` if the file's value is invalid.
    resolution: Option<u64>,
    offset: i64,
}

enum Form {
    Pcap { link: i32, is_nanoseconds: bool },
    PcapNg(Vec<Interface>),
}

/// Passes each packet of a file to `visit`, in the order of the file.
///
/// # Errors
/// The reason why the file was not read to its end.
pub fn read_capture(
    source: impl Read + Send,
    visit: &mut dyn FnMut(Packet<'_>) -> Result<(), String>,
) -> Result<(), CaptureError> {
    let mut reader = create_reader(BUFFER, WholeReads(source)).map_err(|error| match error {
        PcapError::ReadError => CaptureError::ReadFailed,
        _ => CaptureError::UnknownFormat,
    })?;
    let mut form = Form::PcapNg(Vec::new());
    let mut size = BUFFER;
    loop {
        let need = match reader.next() {
            Ok((length, block)) => {
                if let Some(packet) = packet(&block, &mut form)? {
                    visit(packet).map_err(CaptureError::Refused)?;
                }
                reader.consume(length);
                continue;
            }
            Err(error) => Need::of(&error),
        };
        match need {
            Need::Nothing => return Ok(()),
            Need::More if reader.reader_exhausted() => return Err(CaptureError::Truncated),
            Need::More => {
                let before = reader.data().len();
                refill(&mut *reader)?;
                if reader.data().len() == before && !reader.reader_exhausted() {
                    return Err(CaptureError::Damaged);
                }
            }
            Need::Room if size < MAX_BLOCK => {
                size *= 2;
                if !reader.grow(size) {
                    return Err(CaptureError::Damaged);
                }
                refill(&mut *reader)?;
            }
            Need::Room => return Err(CaptureError::Damaged),
            Need::Error(error) => return Err(error),
        }
    }
}

enum Need {
    Nothing,
    More,
    Room,
    Error(CaptureError),
}

impl Need {
    fn of(error: &PcapError<&[u8]>) -> Need {
        match error {
            PcapError::Eof => Need::Nothing,
            PcapError::Incomplete(_) => Need::More,
            PcapError::BufferTooSmall => Need::Room,
            PcapError::UnexpectedEof => Need::Error(CaptureError::Truncated),
            PcapError::ReadError => Need::Error(CaptureError::ReadFailed),
            _ => Need::Error(CaptureError::Damaged),
        }
    }
}

fn refill(reader: &mut (dyn PcapReaderIterator + Send + '_)) -> Result<(), CaptureError> {
    reader.refill().map_err(|_| CaptureError::ReadFailed)
}

struct WholeReads<R>(R);

impl<R: Read> Read for WholeReads<R> {
    fn read(&mut self, octets: &mut [u8]) -> std::io::Result<usize> {
        loop {
            match self.0.read(octets) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }
}

fn packet<'p>(block: &PcapBlockOwned<'p>, form: &mut Form) -> Result<Option<Packet<'p>>, CaptureError> {
    let captured = |octets: &'p [u8], length: u32| octets.get(..length as usize).unwrap_or(octets);
    match (block, form) {
        (PcapBlockOwned::LegacyHeader(header), form) => {
            *form = Form::Pcap { link: header.network.0, is_nanoseconds: header.is_nanosecond_precision() };
        }
        (PcapBlockOwned::Legacy(packet), Form::Pcap { link, is_nanoseconds }) => {
            let unit = if *is_nanoseconds { 1 } else { 1_000 };
            let at = u64::from(packet.ts_sec) * NANOSECONDS + u64::from(packet.ts_usec) * unit;
            return Ok(Some(Packet { time_ns: at, link_type: *link, octets: captured(packet.data, packet.caplen) }));
        }
        (PcapBlockOwned::NG(Block::SectionHeader(_)), Form::PcapNg(interfaces)) => interfaces.clear(),
        (PcapBlockOwned::NG(Block::InterfaceDescription(found)), Form::PcapNg(interfaces)) => {
            if interfaces.len() >= MAX_INTERFACES {
                return Err(CaptureError::Damaged);
            }
            let resolution = resolution(found.if_tsresol);
            interfaces.push(Interface { link: found.linktype.0, resolution, offset: found.if_tsoffset });
        }
        (PcapBlockOwned::NG(Block::EnhancedPacket(packet)), Form::PcapNg(interfaces)) => {
            let interface = interfaces.get(packet.if_id as usize).ok_or(CaptureError::Damaged)?;
            let ticks = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
            let octets = captured(packet.data, packet.caplen);
            return Ok(Some(Packet { time_ns: interface.time(ticks), link_type: interface.link, octets }));
        }
        (PcapBlockOwned::NG(Block::SimplePacket(packet)), Form::PcapNg(interfaces)) => {
            let interface = interfaces.first().ok_or(CaptureError::Damaged)?;
            let octets = captured(packet.data, packet.origlen);
            return Ok(Some(Packet { time_ns: 0, link_type: interface.link, octets }));
        }
        _ => {}
    }
    Ok(None)
}

fn resolution(option: u8) -> Option<u64> {
    match option {
        0x80.. => 1_u64.checked_shl(u32::from(option & 0x7f)),
        exponent => 10_u64.checked_pow(u32::from(exponent)),
    }
}

impl Interface {
    /// Returns the time in nanoseconds since 1970; 0 if the time is invalid.
    fn time(&self, ticks: u64) -> u64 {
        let Some(resolution) = self.resolution else { return 0 };
        let time = i128::from(ticks) * i128::from(NANOSECONDS) / i128::from(resolution);
        u64::try_from(time + i128::from(self.offset) * i128::from(NANOSECONDS)).unwrap_or_default()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment<'p> {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    /// Sequence number of the first octet of `octets`, or of SYN.
    pub(crate) sequence: u32,
    /// Acknowledgement number: the sequence number that the sender expects next; `None` without
    /// ACK.
    pub(crate) acknowledges: Option<u32>,
    pub(crate) begins: bool,
    pub(crate) ends: bool,
    pub(crate) aborts: bool,
    pub(crate) octets: &'p [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoSegment {
    Other,
    IpFragment,
    Link,
}

pub(crate) fn segment<'p>(packet: &Packet<'p>) -> Result<Segment<'p>, NoSegment> {
    let octets = packet.octets;
    let behind = |length: usize| octets.get(length..).ok_or(NoSegment::Other);
    let of_type = |at: usize, length: usize| {
        let number = octets.get(at..at + 2).and_then(|octets| octets.first_chunk()).ok_or(NoSegment::Other)?;
        Ok(LaxSlicedPacket::from_ether_type(EtherType(u16::from_be_bytes(*number)), behind(length)?))
    };
    let of_ip = |octets| LaxSlicedPacket::from_ip(octets).map_err(|_| NoSegment::Other);
    let sliced = match packet.link_type {
        1 => LaxSlicedPacket::from_ethernet(octets).map_err(|_| NoSegment::Other)?,
        // BSD's loopback interface, with an address family of four octets.
        0 | 108 => of_ip(behind(4)?)?,
        // IP without a link layer.
        12 | 14 | 101 | 228 | 229 => of_ip(octets)?,
        // Linux's interface `any`, in two formats.
        113 => of_type(14, 16)?,
        276 => of_type(0, 20)?,
        _ => return Err(NoSegment::Link),
    };
    let (from, to, is_fragment): (IpAddr, IpAddr, bool) = match &sliced.net {
        Some(LaxNetSlice::Ipv4(ip)) => {
            let header = ip.header();
            (header.source_addr().into(), header.destination_addr().into(), ip.payload().fragmented)
        }
        Some(LaxNetSlice::Ipv6(ip)) => {
            let header = ip.header();
            (header.source_addr().into(), header.destination_addr().into(), ip.payload().fragmented)
        }
        _ => return Err(NoSegment::Other),
    };
    match &sliced.transport {
        _ if is_fragment => Err(NoSegment::IpFragment),
        Some(TransportSlice::Tcp(tcp)) => Ok(Segment {
            from: SocketAddr::new(from, tcp.source_port()),
            to: SocketAddr::new(to, tcp.destination_port()),
            sequence: tcp.sequence_number(),
            acknowledges: tcp.ack().then(|| tcp.acknowledgment_number()),
            begins: tcp.syn(),
            ends: tcp.fin(),
            aborts: tcp.rst(),
            octets: tcp.payload(),
        }),
        _ => Err(NoSegment::Other),
    }
}
