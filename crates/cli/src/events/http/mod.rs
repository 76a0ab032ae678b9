//! The page of `serve --http`: the counts of all channels for a browser, and for Prometheus.
//!
//! The responder has five resources and changes nothing. Each connection has one request. The size
//! and the time of a request, and the number of connections, are bounded, so that no client can
//! occupy the server.

mod request;
mod resources;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use corelane_services::events::EventMonitor;
use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{Condvar, LockScope, Mutex};
use corelane_sys::thread::ThreadBuilder;

use self::request::{Request, RequestError};
use self::resources::Resource;
use crate::text::excerpt;

const MAX_HEAD: usize = 8 << 10;
/// Maximum time of each step of a connection: until the request has arrived, until the answer is
/// written, and until the client ends the connection.
const MAX_TIME: Duration = Duration::from_secs(5);
/// Maximum number of connections that are served at a time. Each has a thread. Further connections
/// wait in the kernel.
const MAX_CONNECTIONS: usize = 8;
/// Maximum number of bytes of a request that are read and ignored after the answer, so that the
/// answer reaches the client.
const MAX_IGNORED: usize = 64 << 10;

/// Returns the address of an option: `HOST:PORT` with a numeric host, or a port of the loopback
/// interface.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix(':').unwrap_or(text).parse::<u16>();
    let found = port.map(|port| SocketAddr::from(([127, 0, 0, 1], port))).or_else(|_| text.parse());
    found.map_err(|_| format!("`--http` needs a port or ADDRESS:PORT, not `{}`", excerpt(text)))
}

pub(super) fn serve(address: SocketAddr, monitor: EventMonitor) -> Result<SocketAddr, String> {
    let failed = |error: io::Error| format!("the page at {address}: {error}");
    let listener = TcpListener::bind(address).map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    let places = Places::new();
    let accept = move || {
        loop {
            let place = places.take();
            match listener.accept() {
                Ok((stream, _)) => start(stream, bound, &monitor, place),
                // Too many files may be open, for example. A later attempt succeeds when
                // connections have ended.
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    };
    ThreadBuilder::new().name("events/http").spawn(accept).map_err(failed)?;
    Ok(bound)
}

struct Places {
    taken: Mutex<usize>,
    freed: Condvar,
}

impl Places {
    fn new() -> Arc<Self> {
        Arc::new(Self { taken: Mutex::new("connections of the page", LockScope::Orb, 0), freed: Condvar::new() })
    }

    fn take(self: &Arc<Self>) -> Place {
        let mut taken = self.taken.lock();
        while *taken == MAX_CONNECTIONS {
            taken = self.freed.wait(taken);
        }
        *taken += 1;
        Place(Arc::clone(self))
    }
}

struct Place(Arc<Places>);

impl Drop for Place {
    fn drop(&mut self) {
        *self.0.taken.lock() -= 1;
        self.0.freed.notify_all();
    }
}

fn start(stream: TcpStream, bound: SocketAddr, monitor: &EventMonitor, place: Place) {
    let monitor = monitor.clone();
    let answer = move || {
        let _ = answer(stream, bound, &monitor);
        drop(place);
    };
    // If no thread can be created, the connection closes.
    let _ = ThreadBuilder::new().name("events/http").spawn(answer);
}

fn answer(mut stream: TcpStream, bound: SocketAddr, monitor: &EventMonitor) -> io::Result<()> {
    let response = match read_head(&mut stream)?.as_deref() {
        None => refusal(431, "Request Header Fields Too Large"),
        Some(head) => match Request::parse(head, bound) {
            Ok(request) => match Resource::at(request.path) {
                Some(resource) => {
                    response(200, "OK", resource.content_type(), &resource.body(monitor), request.is_head)
                }
                None => refusal(404, "Not Found"),
            },
            Err(RequestError::Malformed) => refusal(400, "Bad Request"),
            Err(RequestError::Method) => refusal(405, "Method Not Allowed"),
            Err(RequestError::Host) => refusal(421, "Misdirected Request"),
            Err(RequestError::Version) => refusal(505, "HTTP Version Not Supported"),
        },
    };
    write_within(&mut stream, &response)?;
    finish(&mut stream)
}

/// Reads up to the empty line behind a request's head. Returns `None` if the head is too long.
fn read_head(stream: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let deadline = Monotonic::now() + MAX_TIME;
    let (mut head, mut part) = (Vec::new(), [0; 1024]);
    loop {
        stream.set_read_timeout(Some(left(deadline)?))?;
        let count = stream.read(&mut part)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let searched = head.len().saturating_sub(3);
        head.extend_from_slice(&part[..count]);
        if let Some(end) = head[searched..].windows(4).position(|window| window == b"\r\n\r\n") {
            head.truncate(searched + end);
            return Ok(Some(head));
        }
        if head.len() > MAX_HEAD {
            return Ok(None);
        }
    }
}

fn write_within(stream: &mut TcpStream, mut octets: &[u8]) -> io::Result<()> {
    let deadline = Monotonic::now() + MAX_TIME;
    while !octets.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        match stream.write(octets)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => octets = &octets[count..],
        }
    }
    Ok(())
}

/// Ends a connection, and first reads a bounded number of further bytes. Unread bytes would make
/// the kernel reset the connection, and the client could lose the answer.
fn finish(stream: &mut TcpStream) -> io::Result<()> {
    stream.shutdown(std::net::Shutdown::Write)?;
    let deadline = Monotonic::now() + MAX_TIME;
    let (mut ignored, mut part) = (0, [0; 1024]);
    while ignored < MAX_IGNORED {
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(&mut part)? {
            0 => break,
            count => ignored += count,
        }
    }
    Ok(())
}

/// Returns the time until the deadline, or an error if the deadline has passed.
fn left(deadline: Monotonic) -> io::Result<Duration> {
    let left = deadline.remaining();
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

fn refusal(status: u16, reason: &str) -> Vec<u8> {
    response(status, reason, "text/plain; charset=utf-8", &format!("{reason}\n"), false)
}

fn response(status: u16, reason: &str, content_type: &str, body: &str, is_head: bool) -> Vec<u8> {
    let allow = if status == 405 { "Allow: GET, HEAD\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n{allow}\
         Cache-Control: no-store\r\nConnection: close\r\nX-Content-Type-Options: nosniff\r\n\
         Content-Security-Policy: default-src 'none'; connect-src 'self'; script-src 'self'; style-src 'self'; \
         img-src data:\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), if is_head { b"" } else { body.as_bytes() }].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_alone_is_of_the_loopback_interface() {
        for text in ["8600", ":8600", "127.0.0.1:8600"] {
            assert_eq!(address(text).map(|it| it.to_string()), Ok("127.0.0.1:8600".to_owned()));
        }
        assert_eq!(address("[::1]:80").map(|it| it.to_string()), Ok("[::1]:80".to_owned()));
        for text in ["", "x", "localhost", "70000", "1.2.3.4"] {
            assert!(address(text).is_err(), "{text}");
        }
    }
}
