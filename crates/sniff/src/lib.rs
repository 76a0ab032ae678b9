//! GIOP messages in captured traffic.
//!
//! [`read_capture`] takes the packets from a file (pcap or pcapng). A [`Sniffer`] finds the TCP
//! connections in them, puts their segments in order, and takes the messages out; each reply comes
//! with its request. Octets that the capture lacks are reported. The messages around them are left
//! out and never guessed.
//!
//! A connection is one of GIOP if its first octets are `GIOP`. If the capture begins later, or lacks
//! octets, the next message is the first one that begins at the front of a segment.
#![forbid(unsafe_code)]

mod connection;
#[cfg(feature = "fuzzing")]
pub mod fuzz;
mod packets;
mod stream;

pub use connection::{Call, Content, Seen, SniffCounts, Sniffed, Sniffer};
pub use packets::{CaptureError, Packet, read_capture};
