//! GIOP messages in captured traffic.
//!
//! [`read_capture`] reads packets from a file (pcap or pcapng). A [`Sniffer`] finds the TCP
//! connections in the packets, orders their segments, extracts the messages, and finds the request
//! of each reply. Octets that the capture lacks are reported.
//!
//! A connection carries GIOP if its first octets are `GIOP`. If the capture lacks these or later
//! octets, the sniffer continues with the next message that begins at the start of a segment.
#![forbid(unsafe_code)]

mod connection;
#[cfg(feature = "fuzzing")]
pub mod fuzz;
mod packets;
mod stream;

pub use connection::{CapturedRequest, MessageContent, SniffCounts, SniffEvent, SniffRecord, Sniffer};
pub use packets::{CaptureError, Packet, read_capture};
