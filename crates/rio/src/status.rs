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

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use std::{fmt, fs};

use corelane_sys::clock::Monotonic;
use corelane_sys::eventfd::EventFd;
use corelane_sys::socket::{Address, SocketOptions, WaitMode};
use corelane_sys::thread::{JoinHandle, Scheduling, ThreadBuilder};
use corelane_sys::{poll, process, socket};

/// Prefix of the sockets' names. The process id, a number and a random suffix follow.
const NAME: &str = "corelane-rio/";
const VERSION: &str = "corelane-rio 1";
/// Line before the fields of each stream.
const STREAM: &str = "[stream]";
/// Maximum length of an answer in bytes.
const MAX_BYTES: usize = 1 << 20;
/// Maximum length of all answers together in bytes.
const MAX_BYTES_OF_ALL: usize = 16 << 20;
/// Maximum number of bytes that are read from the kernel's list of sockets.
const MAX_LIST_BYTES: usize = 16 << 20;
const MAX_SOCKETS_OF_USER: usize = 64;
/// Time-out of all connects together, of all reads together, and of each write of an answer.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Time-out of one connect, which waits only if the queue of the listener is full.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(5);
/// Pause after a failed `accept`.
const RETRY: Duration = Duration::from_millis(100);

/// Names and values of the fields of a transport or of a stream, in the order of the report.
pub type StatusFields = Vec<(String, String)>;

/// The state of one transport of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransportReport {
    /// Number of the process that opened the transport's socket; `None` if the process is outside
    /// of the reader's PID namespace.
    pub process: Option<u32>,
    /// User of the process that opened the transport's socket.
    pub user: u32,
    /// Interface and feature level of the transport, the reason why the level is not higher, and
    /// counts of best effort.
    pub transport_fields: StatusFields,
    /// Service class, counts and settings of each stream, in the order in which the streams were
    /// opened.
    pub stream_fields: Vec<StatusFields>,
}

impl TransportReport {
    /// Returns the value of a field of the transport.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        value_of(&self.transport_fields, name)
    }

    /// Returns true if the report comes from root or from this process's effective user.
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        is_trusted(self.user)
    }
}

/// Returns the value of the first field with this name; `None` if there is none.
#[must_use]
pub fn value_of<'f>(fields: &'f StatusFields, name: &str) -> Option<&'f str> {
    fields.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
}

/// Result of [`read_reports`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StatusReports {
    /// States of the transports, sorted by process id.
    pub reports: Vec<TransportReport>,
    /// Number of sockets with the name of a transport that gave no report within the limits on
    /// time, number and length. Sockets that are known to serve other users do not count. If the
    /// kernel's list of sockets is longer than 16 MiB, the rest of the list is not read and counts
    /// as one socket.
    pub silent_sockets: usize,
}

/// Returns the states of the transports in the calling thread's network namespace: for root those
/// of all users, otherwise those of the process's effective user.
///
/// Any user can open a socket with the name of a transport. So the function ends within about two
/// seconds, reads at most 64 reports of a user and 16 MiB in all, and reads the reports of root and
/// of the effective user first. A caller with privileges must not act on reports of other users
/// ([`TransportReport::is_trusted`]).
///
/// # Errors
/// If `/proc` cannot be read.
pub fn read_reports() -> io::Result<StatusReports> {
    let connect_until = Monotonic::now() + TIMEOUT;
    let (names, is_cut) = listening_names()?;
    let Connections { mut connected, mut unread, .. } = Connections::open(names, connect_until);
    unread += usize::from(is_cut);
    connected.sort_by_key(|(_, user)| !is_trusted(*user));
    let read_until = Monotonic::now() + TIMEOUT;
    let (mut reports, mut bytes_left) = (Vec::new(), MAX_BYTES_OF_ALL);
    for (socket, user) in connected {
        match read_answer(socket.as_fd(), read_until, &mut bytes_left) {
            // An empty answer comes from a process that serves only other users.
            Some(text) if text.is_empty() => {}
            text => match text.as_deref().and_then(parse) {
                Some(report) => {
                    let process = socket::peer_credentials(socket.as_fd()).ok().map(|peer| peer.pid);
                    reports.push(TransportReport { process, user, ..report });
                }
                None => unread += 1,
            },
        }
    }
    reports.sort_by_key(|report| report.process);
    Ok(StatusReports { reports, silent_sockets: unread })
}

/// Connections to the sockets of transports.
#[derive(Default)]
struct Connections {
    /// Each connection with the user of the process that opened the socket.
    connected: Vec<(OwnedFd, u32)>,
    unread: usize,
    sockets_of_users: BTreeMap<u32, usize>,
}

impl Connections {
    /// Connects to the sockets with these names until `deadline`. Any user can open sockets whose
    /// queues of connections are full. So the function waits for room in full queues only after it
    /// has connected to all other sockets.
    fn open(names: BTreeSet<Vec<u8>>, deadline: Monotonic) -> Self {
        let mut own = Self::default();
        let mut full = Vec::new();
        for address in names.into_iter().map(Address::Abstract) {
            if deadline.is_past() {
                own.unread += 1;
                continue;
            }
            match socket::connect_unix_without_waiting(&address, &SocketOptions::default()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => full.push(address),
                result => own.add(result),
            }
        }
        for address in full {
            if deadline.is_past() {
                own.unread += 1;
            } else {
                let attempt_until = Some(Monotonic::now() + CONNECT_TIMEOUT);
                own.add(socket::connect(&address, &SocketOptions::default(), attempt_until));
            }
        }
        own
    }

    fn add(&mut self, result: io::Result<OwnedFd>) {
        match result.and_then(|socket| Ok((socket::peer_user_id(socket.as_fd())?, socket))) {
            Ok((user, _)) if !may_read(user) => {}
            Ok((user, socket)) => {
                let count = self.sockets_of_users.entry(user).or_default();
                *count += 1;
                if *count > MAX_SOCKETS_OF_USER {
                    self.unread += 1;
                } else {
                    self.connected.push((socket, user));
                }
            }
            // The socket was closed after the list had been read.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(_) => self.unread += 1,
        }
    }
}

/// Returns the names of the listening sockets that begin like the names of transports, and true if
/// the kernel's list is longer than `MAX_LIST_BYTES`.
fn listening_names() -> io::Result<(BTreeSet<Vec<u8>>, bool)> {
    let mut list = Vec::new();
    let file = fs::File::open("/proc/thread-self/net/unix")?;
    file.take(MAX_LIST_BYTES as u64 + 1).read_to_end(&mut list)?;
    Ok(names_in_list(&list, MAX_LIST_BYTES))
}

/// Returns the names in the lines that end within the first `max_bytes`, and true if the list is
/// longer.
fn names_in_list(list: &[u8], max_bytes: usize) -> (BTreeSet<Vec<u8>>, bool) {
    let is_cut = list.len() > max_bytes;
    let mut lines = list.get(..max_bytes).unwrap_or(list).split(|byte| *byte == b'\n');
    if is_cut {
        lines.next_back();
    }
    (lines.filter_map(name_in_line).collect(), is_cut)
}

/// Returns the name in a line that describes a listening socket whose name begins with `NAME`, and
/// `None` for other lines. The columns of `/proc/net/unix` are: Num RefCount Protocol Flags Type St
/// Inode Path. The names of abstract sockets begin with `@`. A socket that listens has the flag
/// `__SO_ACCEPTCON`.
fn name_in_line(line: &[u8]) -> Option<Vec<u8>> {
    let mut columns = line.splitn(8, |byte| *byte == b' ');
    let (flags, path) = (columns.nth(3)?, columns.nth(3)?.trim_ascii_start());
    let name = path.strip_prefix(b"@").filter(|name| name.starts_with(NAME.as_bytes()))?;
    (flags == b"00010000").then(|| name.to_vec())
}

/// Reads until the end of the answer. After `deadline`, the function reads only the bytes that had
/// arrived at its first look after the deadline. So a peer that sends again and again cannot
/// prolong the call. Returns `None` if the answer does not end in time, is longer than `MAX_BYTES`
/// or `bytes_left`, or is not UTF-8.
fn read_answer(socket: BorrowedFd<'_>, deadline: Monotonic, bytes_left: &mut usize) -> Option<String> {
    let (mut text, mut buffer) = (Vec::new(), [0; 16 << 10]);
    let mut late_bytes = None;
    loop {
        if late_bytes.is_none() && deadline.is_past() {
            late_bytes = Some(socket::unread_bytes(socket).ok()?);
        }
        match socket::recv(socket, &mut buffer, WaitMode::Now) {
            Ok(0) => return String::from_utf8(text).ok(),
            Ok(count) => {
                text.extend_from_slice(buffer.get(..count)?);
                *bytes_left = bytes_left.checked_sub(count)?;
                if let Some(left) = &mut late_bytes {
                    *left = left.checked_sub(count)?;
                }
                if text.len() > MAX_BYTES {
                    return None;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if !poll::wait_readable(socket, Some(deadline)).ok()? {
                    return None;
                }
            }
            Err(_) => return None,
        }
    }
}

/// Parses an answer; the caller sets `process` and `user` of the result. Returns `None` if the text
/// is not a report of this version.
fn parse(text: &str) -> Option<TransportReport> {
    let mut lines = text.lines();
    if lines.next() != Some(VERSION) {
        return None;
    }
    let mut report = TransportReport::default();
    for line in lines {
        if line == STREAM {
            report.stream_fields.push(Vec::new());
        } else {
            let (name, value) = line.split_once('=')?;
            let fields = report.stream_fields.last_mut().unwrap_or(&mut report.transport_fields);
            fields.push((name.to_owned(), value.to_owned()));
        }
    }
    Some(report)
}

fn is_trusted(user: u32) -> bool {
    user == 0 || user == process::effective_user_id()
}

/// Returns true if this process reads the reports of `user`.
fn may_read(user: u32) -> bool {
    process::effective_user_id() == 0 || is_trusted(user)
}

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
    /// Opens the socket, and starts a thread that calls `text` for each answer.
    pub(crate) fn start(text: impl Fn() -> StatusText + Send + 'static) -> io::Result<Self> {
        static NUMBERS: AtomicU32 = AtomicU32::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        // Without a random suffix, processes of different PID namespaces could need the same name,
        // and any user could take the name in advance.
        let suffix = process::random_number()?;
        let name = format!("{NAME}{}/{number}-{suffix:016x}", process::id());
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
        listener.set_nonblocking(true)?;
        let stop = Arc::new(EventFd::new()?);
        let stopped = Arc::clone(&stop);
        let run = move || {
            // An error of the wait ends the thread. The transport then gives no more reports.
            while let Ok((has_connection, false)) = poll::wait_readable_either(listener.as_fd(), stopped.as_fd(), None)
            {
                if has_connection {
                    match listener.accept() {
                        // An error of `answer` concerns one connection only, so the thread
                        // continues.
                        Ok((connection, _)) => drop(answer(connection, &text)),
                        // If `accept` fails for lack of descriptors, the listener stays readable.
                        // The pause avoids a busy loop.
                        Err(_) => drop(poll::wait_readable(stopped.as_fd(), Some(Monotonic::now() + RETRY))),
                    }
                }
            }
        };
        // The thread that starts the transport may have a high priority, which this thread must not
        // inherit.
        let builder = ThreadBuilder::new().name("rio/status").scheduling(Scheduling::Other);
        Ok(Self { stop, thread: Some(builder.spawn(run)?) })
    }
}

fn answer(mut connection: UnixStream, text: &impl Fn() -> StatusText) -> io::Result<()> {
    if is_trusted(socket::peer_user_id(connection.as_fd())?) {
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
    use corelane_sys::thread::{self, CpuSet};

    use super::*;

    #[test]
    fn answers_are_parsed_and_other_texts_refused() {
        let mut text = StatusText::new();
        text.add("level", "a\nb=c");
        text.begin_stream();
        text.add("number", 1);
        let report = parse(&text.0).unwrap();
        assert_eq!(report.field("level"), Some("a b=c"));
        assert_eq!(report.stream_fields, [[("number".to_owned(), "1".to_owned())]]);
        for other in ["", "corelane-rio 2\n", "corelane-rio 1\nlevel\n"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn names_of_listening_sockets_are_found_in_the_kernels_list() {
        let line = |flags, name| format!("0000000000000000: 00000002 00000000 {flags} 0001 01 24063 {name}");
        let found = |line: String| name_in_line(line.as_bytes());
        assert_eq!(found(line("00010000", "@corelane-rio/7/0")), Some(b"corelane-rio/7/0".to_vec()));
        assert_eq!(found(line("00010000", " @corelane-rio/7/0")), Some(b"corelane-rio/7/0".to_vec()));
        for other in [line("00000000", "@corelane-rio/7/0"), line("00010000", "/corelane-rio/7"), line("00010000", "")]
        {
            assert_eq!(found(other.clone()), None, "{other}");
        }
    }

    /// Runs `body` in a network namespace of its own, which keeps the sockets away from other
    /// tests.
    fn in_a_namespace_within_a_minute(body: impl FnOnce() + Send + 'static) {
        if let Some(name) = process::missing_namespace_capability() {
            return println!("not run: the process lacks {name}");
        }
        let thread = std::thread::spawn(|| {
            process::enter_new_network_namespace().unwrap();
            body();
        });
        let deadline = Monotonic::now() + Duration::from_secs(60);
        while !thread.is_finished() {
            assert!(!deadline.is_past(), "the reader waits for a socket that does not answer");
            std::thread::sleep(Duration::from_millis(5));
        }
        thread.join().unwrap();
    }

    fn listen(name: &[u8], backlog: u32) -> OwnedFd {
        let name = Address::Abstract([NAME.as_bytes(), name].concat());
        socket::listen(&name, &SocketOptions::default(), backlog).unwrap()
    }

    /// Connects until the queue of the listener is full.
    fn fill(listener: &OwnedFd) -> Vec<OwnedFd> {
        let name = socket::local_address(listener.as_fd()).unwrap();
        let connect = || socket::connect_unix_without_waiting(&name, &SocketOptions::default());
        let waiting: Vec<OwnedFd> = std::iter::from_fn(|| connect().ok()).collect();
        assert!(!waiting.is_empty());
        assert_eq!(connect().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        waiting
    }

    /// Reads up to ten times, until there is a report. A thread of this process answers, so the
    /// time-out of a read may pass if the machine pauses.
    fn reports_of_one() -> StatusReports {
        let mut reports = std::iter::repeat_with(|| read_reports().unwrap()).take(10);
        reports.find(|found| !found.reports.is_empty()).unwrap_or_default()
    }

    /// Fails if waits for room in full queues use up the time of the sockets behind them.
    #[test]
    fn a_reader_reaches_the_sockets_behind_full_queues() {
        in_a_namespace_within_a_minute(|| {
            // More sockets than `TIMEOUT` has time for, if the reader waits for each of them.
            let count = (TIMEOUT.as_millis() / CONNECT_TIMEOUT.as_millis()) as usize + 30;
            let full: Vec<_> = (0..count).map(|number| listen(format!("0-{number}").as_bytes(), 0)).collect();
            let _waiting: Vec<_> = full.iter().map(fill).collect();
            let server = StatusServer::start(StatusText::new).unwrap();
            let found = reports_of_one();
            drop(server);
            assert_eq!((found.reports.len(), found.silent_sockets), (1, count), "{found:?}");
        });
    }

    /// Fails if the reader takes bytes that a peer sends after the deadline.
    #[test]
    fn bytes_that_arrive_after_the_deadline_are_not_read() {
        let (own, peer) = socket::pair().unwrap();
        let mut peer = UnixStream::from(peer);
        peer.set_nonblocking(true).unwrap();
        while peer.write_all(&[b'x'; 4_096]).is_ok() {}
        peer.set_nonblocking(false).unwrap();
        let before = socket::unread_bytes(own.as_fd()).unwrap();
        // On the core of the reader, an urgent writer fills the buffer whenever it has room.
        let core = CpuSet::one(thread::affinity(None).unwrap().iter().last().unwrap());
        let write = move || while peer.write_all(&[b'x'; 4_096]).is_ok() {};
        let writer = ThreadBuilder::new().affinity(core).scheduling(Scheduling::Fifo(2)).spawn(write);
        let writer = match writer {
            Ok(writer) => writer,
            Err(error) => return println!("not run: SCHED_FIFO is not permitted: {error}"),
        };
        let read = move || {
            let mut bytes_left = MAX_BYTES_OF_ALL;
            assert_eq!(read_answer(own.as_fd(), Monotonic::now(), &mut bytes_left), None);
            MAX_BYTES_OF_ALL - bytes_left
        };
        let read = ThreadBuilder::new().affinity(core).spawn(read).unwrap().join().unwrap();
        writer.join().unwrap();
        assert!((before..=before + (16 << 10)).contains(&read), "{read} bytes read, {before} had arrived");
    }

    #[test]
    fn a_partial_line_of_the_kernels_list_is_dropped() {
        let line = |name| format!("0000000000000000: 00000002 00000000 00010000 0001 01 24063 @corelane-rio/{name}\n");
        let list = line("1/0") + &line("2/0");
        let names = |names: &[&str]| names.iter().map(|name| format!("corelane-rio/{name}").into_bytes()).collect();
        assert_eq!(names_in_list(list.as_bytes(), list.len()), (names(&["1/0", "2/0"]), false));
        assert_eq!(names_in_list(list.as_bytes(), list.len() - 2), (names(&["1/0"]), true));
        assert_eq!(names_in_list(list.as_bytes(), list.len() / 2), (names(&["1/0"]), true));
        assert_eq!(names_in_list(list.as_bytes(), 3), (names(&[]), true));
    }

    #[test]
    fn a_reader_waits_for_no_socket_that_does_not_answer() {
        in_a_namespace_within_a_minute(|| {
            let _silent = listen(b"0-silent", 8);
            let _bytes_that_are_not_text = listen(b"0-\xff", 8);
            let full = listen(b"0-full", 0);
            let _waiting = fill(&full);
            let endless = UnixListener::from(listen(b"0-endless", 8));
            endless.set_nonblocking(false).unwrap();
            let slow = UnixListener::from(listen(b"0-slow", 8));
            slow.set_nonblocking(false).unwrap();
            std::thread::spawn(move || {
                let (mut connection, _) = endless.accept().unwrap();
                while connection.write_all(&[b'x'; 4_096]).is_ok() {}
            });
            std::thread::spawn(move || {
                let (mut connection, _) = slow.accept().unwrap();
                while connection.write_all(b"x").is_ok() {
                    std::thread::sleep(Duration::from_millis(50));
                }
            });
            let server = StatusServer::start(StatusText::new).unwrap();
            let found = reports_of_one();
            drop(server);
            assert_eq!(found.reports.len(), 1, "{found:?}");
            assert_eq!((found.reports[0].process, found.silent_sockets), (Some(process::id()), 5));
        });
    }

    #[test]
    fn a_reader_bounds_the_number_of_answers() {
        in_a_namespace_within_a_minute(|| {
            let servers: Vec<StatusServer> =
                (0..MAX_SOCKETS_OF_USER + 3).map(|_| StatusServer::start(StatusText::new).unwrap()).collect();
            let found = read_reports().unwrap();
            drop(servers);
            assert_eq!((found.reports.len(), found.silent_sockets), (MAX_SOCKETS_OF_USER, 3));
        });
    }
}
