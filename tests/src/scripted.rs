//! A server whose replies the test writes octet by octet.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Message type Request.
pub const REQUEST: u8 = 0;
/// Message type Reply.
pub const REPLY: u8 = 1;
/// Message type LocateRequest.
pub const LOCATE_REQUEST: u8 = 3;
/// Message type LocateReply.
pub const LOCATE_REPLY: u8 = 4;
/// Message type CloseConnection.
pub const CLOSE_CONNECTION: u8 = 5;
/// Message type MessageError.
pub const MESSAGE_ERROR: u8 = 6;

/// Returns a GIOP 1.2 message in little-endian order.
#[must_use]
pub fn message(kind: u8, more_fragments: bool, body: &[u8]) -> Vec<u8> {
    let mut octets = b"GIOP\x01\x02".to_vec();
    octets.extend([1 | u8::from(more_fragments) << 1, kind]);
    octets.extend(u32::try_from(body.len()).expect("a message that fits").to_le_bytes());
    octets.extend(body);
    octets
}

/// Returns the start of a Reply's body in little-endian order: request id, status, and an empty
/// list of service contexts.
#[must_use]
pub fn reply_start(id: u32, status: u32) -> Vec<u8> {
    [id, status, 0].iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// Returns a Reply whose result is the `long` 27.
#[must_use]
pub fn successful_reply(id: u32) -> Vec<u8> {
    // The reply header ends at a multiple of 8 octets, where GIOP 1.2 requires the result to begin.
    message(REPLY, false, &[reply_start(id, 0), 27_i32.to_le_bytes().to_vec()].concat())
}

fn next_message(stream: &mut TcpStream) -> io::Result<(u8, u32)> {
    let mut header = [0; 16];
    stream.read_exact(&mut header)?;
    let number = |at: usize| header[at..].first_chunk().map_or(0, |octets| u32::from_le_bytes(*octets));
    io::copy(&mut stream.take(u64::from(number(8)).saturating_sub(4)), &mut io::sink())?;
    Ok((header[7], number(12)))
}

/// A server that lives until the process ends.
#[derive(Debug)]
pub struct ScriptedServer {
    /// The server's address.
    pub address: SocketAddr,
    /// Number of accepted connections.
    pub connections: Arc<AtomicUsize>,
}

/// Starts a server that answers the first `times` requests of each connection with
/// [`successful_reply`].
///
/// `answer` answers later requests, and every LocateRequest. A connection ends when `answer` fails.
///
/// # Panics
/// Panics if the kernel has no free port.
pub fn serve(
    times: usize,
    answer: impl Fn(&mut TcpStream, u32) -> io::Result<()> + Send + Sync + 'static,
) -> ScriptedServer {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let (answer, connections) = (Arc::new(answer), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&connections);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            counted.fetch_add(1, Ordering::SeqCst);
            let answer = Arc::clone(&answer);
            std::thread::spawn(move || {
                let mut left = times;
                while let Ok((kind, id)) = next_message(&mut stream) {
                    let answered = match kind {
                        REQUEST if left > 0 => {
                            left -= 1;
                            stream.write_all(&successful_reply(id))
                        }
                        REQUEST | LOCATE_REQUEST => answer(&mut stream, id),
                        _ => Ok(()),
                    };
                    if answered.is_err() {
                        break;
                    }
                }
            });
        }
    });
    ScriptedServer { address, connections }
}
