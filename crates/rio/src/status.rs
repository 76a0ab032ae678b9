//! The live state of transports, which other processes can read.
//!
//! A transport that an ORB uses listens at an abstract Unix socket, and answers each connection
//! with its state as text. Only root and the user of the process get an answer.
//!
//! ```text
//! corelane-rio 1
//! interface=eth0
//! level=stream steering
//! [stream]
//! number=1
//! ```

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use std::{fmt, fs};

use corelane_sys::clock::Monotonic;
use corelane_sys::eventfd::EventFd;
use corelane_sys::thread::{JoinHandle, ThreadBuilder};
use corelane_sys::{poll, process, socket};

/// Prefix of the sockets' names. The process id and a number follow.
const NAME: &str = "corelane-rio/";
const VERSION: &str = "corelane-rio 1";
/// Line before the fields of each stream.
const STREAM: &str = "[stream]";
/// Maximum length of an answer in bytes.
const MAX_BYTES: u64 = 1 << 20;
/// Time-out of each read and each write of an answer.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Pause after a failed `accept`.
const RETRY: Duration = Duration::from_millis(100);

/// Names and values of the fields of a transport or of a stream, in the order of the report.
pub type StatusFields = Vec<(String, String)>;

/// The state of one transport of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransportReport {
    /// Number of the process.
    pub process: u32,
    /// State of the transport.
    pub transport: StatusFields,
    /// State of each stream.
    pub streams: Vec<StatusFields>,
}

impl TransportReport {
    /// Returns the value of a field of the transport.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        value_of(&self.transport, name)
    }
}

/// Returns the value of the first field with this name; `None` if there is none.
#[must_use]
pub fn value_of<'f>(fields: &'f StatusFields, name: &str) -> Option<&'f str> {
    fields.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
}

/// Returns the states of the transports in the calling thread's network namespace, sorted by
/// process id. A transport is left out if its process runs neither as root nor as this process's
/// effective user, or if it does not answer within a second.
///
/// # Errors
/// If `/proc` cannot be read.
pub fn read_reports() -> io::Result<Vec<TransportReport>> {
    let sockets = fs::read_to_string("/proc/thread-self/net/unix")?;
    let mut names: Vec<&str> = sockets.lines().filter_map(|line| line.split_once(" @")).map(|(_, name)| name).collect();
    names.retain(|name| name.starts_with(NAME));
    names.sort_unstable();
    names.dedup();
    let mut reports: Vec<TransportReport> = names.into_iter().filter_map(|name| read_report(name).ok()).collect();
    reports.sort_by_key(|report| report.process);
    Ok(reports)
}

fn read_report(name: &str) -> io::Result<TransportReport> {
    let connection = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
    let peer = socket::peer_credentials(connection.as_fd())?;
    if !is_trusted(peer.uid) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    connection.set_read_timeout(Some(TIMEOUT))?;
    let mut text = String::new();
    connection.take(MAX_BYTES).read_to_string(&mut text)?;
    let report = parse(&text).ok_or(io::ErrorKind::InvalidData)?;
    Ok(TransportReport { process: peer.pid, ..report })
}

/// Parses an answer. In the result, `process` is 0.
fn parse(text: &str) -> Option<TransportReport> {
    let mut lines = text.lines();
    if lines.next() != Some(VERSION) {
        return None;
    }
    let mut report = TransportReport::default();
    for line in lines {
        if line == STREAM {
            report.streams.push(Vec::new());
        } else {
            let (name, value) = line.split_once('=')?;
            let fields = report.streams.last_mut().unwrap_or(&mut report.transport);
            fields.push((name.to_owned(), value.to_owned()));
        }
    }
    Some(report)
}

fn is_trusted(user: u32) -> bool {
    user == 0 || user == process::effective_user_id()
}

/// Text of an answer.
pub(crate) struct StatusText(String);

impl StatusText {
    pub(crate) fn new() -> Self {
        Self(format!("{VERSION}\n"))
    }

    pub(crate) fn begin_stream(&mut self) {
        self.0 += &format!("{STREAM}\n");
    }

    pub(crate) fn add(&mut self, name: &str, value: impl fmt::Display) {
        self.0 += &format!("{name}={}\n", value.to_string().replace('\n', " "));
    }
}

/// The socket of a transport, with the thread that answers each connection.
#[derive(Debug)]
pub(crate) struct StatusServer {
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl StatusServer {
    /// Starts a thread that calls `text` for each answer.
    pub(crate) fn start(text: impl Fn() -> StatusText + Send + 'static) -> io::Result<Self> {
        static NUMBERS: AtomicU32 = AtomicU32::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("{NAME}{}/{number}", process::id());
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
        listener.set_nonblocking(true)?;
        let stop = Arc::new(EventFd::new()?);
        let stopped = Arc::clone(&stop);
        let run = move || {
            // An error of the wait ends the thread.
            while let Ok((has_connection, false)) = poll::wait_readable_either(listener.as_fd(), stopped.as_fd(), None)
            {
                if has_connection {
                    match listener.accept() {
                        // An error of `answer` concerns one connection.
                        Ok((connection, _)) => drop(answer(connection, &text)),
                        // If `accept` fails for lack of descriptors, the listener stays readable.
                        // The pause avoids a busy loop.
                        Err(_) => drop(poll::wait_readable(stopped.as_fd(), Some(Monotonic::now() + RETRY))),
                    }
                }
            }
        };
        Ok(Self { stop, thread: Some(ThreadBuilder::new().name("rio/status").spawn(run)?) })
    }
}

fn answer(mut connection: UnixStream, text: &impl Fn() -> StatusText) -> io::Result<()> {
    if is_trusted(socket::peer_credentials(connection.as_fd())?.uid) {
        connection.set_write_timeout(Some(TIMEOUT))?;
        connection.write_all(text().0.as_bytes())?;
    }
    Ok(())
}

impl Drop for StatusServer {
    fn drop(&mut self) {
        self.stop.notify();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_parsed_and_other_texts_refused() {
        let mut text = StatusText::new();
        text.add("level", "a\nb=c");
        text.begin_stream();
        text.add("number", 1);
        let report = parse(&text.0).unwrap();
        assert_eq!(report.field("level"), Some("a b=c"));
        assert_eq!(report.streams, [[("number".to_owned(), "1".to_owned())]]);
        for other in ["", "corelane-rio 2\n", "corelane-rio 1\nlevel\n"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
