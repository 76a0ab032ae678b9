//! Requests and replies of GIOP 1.2 on a plain TCP socket.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::time::Duration;

use corelane::Endpoint;
use corelane_wire::giop::{self, RequestHeader, ResponseExpected, TargetAddress};
use corelane_wire::{Encoder, Version};

use crate::Server;

/// Message type Reply.
pub const REPLY: u8 = 1;

/// Connects to 127.0.0.1, at the port of the server's first endpoint. Reads fail after a minute.
///
/// # Panics
/// Panics if the endpoint is not TCP, or if connecting fails.
#[must_use]
pub fn connect(server: &Server) -> TcpStream {
    let Endpoint::Tcp { port, .. } = server.orb.endpoints()[0].clone() else { panic!("no TCP endpoint") };
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    stream
}

/// Waits until data arrives, without reading it. A read with a time-out ends early if the process
/// is stopped and continued (signal(7)), so such a read is repeated.
///
/// # Panics
/// Panics if no data arrives before the time-out or the end of the connection.
pub fn wait_for_data(stream: &TcpStream) {
    let outcome = std::iter::repeat_with(|| stream.peek(&mut [0]))
        .find(|outcome| outcome.as_ref().err().is_none_or(|error| error.kind() != ErrorKind::Interrupted));
    assert!(matches!(outcome, Some(Ok(1))), "{outcome:?}");
}

/// Returns the object key of the server's probe.
///
/// # Panics
/// Panics if the probe's reference has no profile.
#[must_use]
pub fn probe_key(server: &Server) -> Vec<u8> {
    let profile = server.probe.as_object().ior().known_profiles().next().expect("a profile");
    profile.object_key.to_vec()
}

/// Returns the octets of a GIOP 1.2 Request that expects a reply.
///
/// # Panics
/// Panics if the arguments cannot be encoded.
#[must_use]
pub fn request<'a>(key: &[u8], id: u32, operation: &str, arguments: impl FnOnce(&mut Encoder<'a>)) -> Vec<u8> {
    let mut encoder = Encoder::new();
    let head = RequestHeader {
        version: Version::GIOP_1_2,
        request_id: id,
        response_expected: ResponseExpected::Target,
        target: TargetAddress::Key(key),
        operation: operation.as_bytes(),
        contexts: &[],
    };
    giop::write_request_header(&mut encoder, &head).expect("a header");
    arguments(&mut encoder);
    giop::finish_message(&mut encoder).expect("a message");
    encoder.slices().collect::<Vec<_>>().concat()
}

/// Reads the header of the next message. Returns the message type and the size of the body in
/// octets.
///
/// # Panics
/// Panics if no header arrives within a minute.
#[must_use]
pub fn read_header(stream: &mut TcpStream) -> (u8, usize) {
    let mut header = [0; 12];
    stream.read_exact(&mut header).expect("a message");
    let (size, octets) = header.split_last_chunk().map(|(rest, size)| (*size, rest)).expect("twelve octets");
    let size = if octets[6] & 1 == 1 { u32::from_le_bytes(size) } else { u32::from_be_bytes(size) };
    (octets[7], size as usize)
}
