//! Captures the loopback traffic of a run, and has Wireshark's dissector check it.

use std::fs;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{self as system, Child, Command, Stdio};
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::process;
use crate::report::FailedCheck;

/// The two loopback ports whose traffic is captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// The server's port.
    pub server: u16,
    /// The client's callback port.
    pub client: u16,
}

impl Ports {
    /// Returns two free ports below the kernel's default range of ephemeral ports.
    ///
    /// # Errors
    ///
    /// No port is free.
    pub fn find_free() -> Result<Self, String> {
        Ok(Self { server: free_port()?, client: free_port()? })
    }
}

const PORTS: u32 = 20_000;

/// The lowest port. The [`PORTS`] ports from this port on are below 32,768, where Linux's ephemeral
/// ports begin by default.
const LOWEST: u32 = 12_000;

fn free_port() -> Result<u16, String> {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let mut trouble = String::new();
    for _ in 0..100 {
        // Processes and threads that run at the same time try different ports.
        let next = system::id().wrapping_mul(101).wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed)) % PORTS;
        let port = u16::try_from(LOWEST + next).map_err(|error| error.to_string())?;
        let _nothing_starts = process::nothing_starts();
        match TcpListener::bind(("127.0.0.1", port)).map(drop) {
            Ok(()) => return Ok(port),
            Err(error) => trouble = format!("looking for a free port: {port}: {error}"),
        }
    }
    Err(trouble)
}

/// One of the two programs of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Publishes the reference.
    Server,
    /// Makes the checks.
    Client,
}

/// The header of a captured GIOP message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapturedMessage {
    /// The sending program.
    pub from: Side,
    /// True if the message was on a connection that the server had opened to the client.
    pub is_callback: bool,
    /// Minor version of GIOP.
    pub giop_minor: u8,
    /// The message type.
    pub message_type: u8,
    /// Size of the message without the header, in octets.
    pub size: u32,
}

/// The result of [`Capture::finish`].
#[derive(Debug, PartialEq, Eq)]
pub enum CaptureVerdict {
    /// The capture allows no verdict: packets were dropped, the call of `shutdown` is missing, or a
    /// packet that seems malformed has filled the receiver's window.
    Incomplete,
    /// No loss of packets is known.
    Complete {
        /// One failed check for each message type with a malformed packet.
        malformed: Vec<FailedCheck>,
        /// The messages that the dissector recognised, in the order of capture.
        messages: Vec<CapturedMessage>,
    },
}

/// A running capture, which ends when the value is dropped.
#[derive(Debug)]
pub struct Capture {
    child: Child,
    ports: Ports,
    file: PathBuf,
    log: PathBuf,
    folder: PathBuf,
}

/// The fields that tshark prints of each packet. The summary must be the last field, because it may
/// contain tabs.
const COLUMNS: [&str; 10] = [
    "frame.number",
    "tcp.srcport",
    "tcp.dstport",
    "tcp.analysis.window_full",
    "_ws.malformed",
    "giop.minor_version",
    "giop.type",
    "giop.len",
    "giop.request_op",
    "_ws.col.Info",
];

impl Capture {
    /// Starts to capture into `folder`, and returns when dumpcap has begun.
    ///
    /// # Errors
    ///
    /// dumpcap is missing, or the user may not capture.
    pub fn start(folder: &Path, ports: Ports) -> Result<Self, String> {
        let file = folder.join("traffic.pcapng");
        match fs::remove_file(&file) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(format!("{}: {error}", file.display())),
            _ => {}
        }
        let log = folder.join("dumpcap.log");
        let output = fs::File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
        // dumpcap is a program of Debian's package tshark. The size of its buffer is 128 MiB.
        let mut command = Command::new("dumpcap");
        command.args(["-q", "-i", "lo", "-B", "128", "-a", "duration:300"]);
        command.arg("-f").arg(format!("tcp port {} or tcp port {}", ports.server, ports.client));
        command.arg("-w").arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(output);
        let child = process::begin(&mut command).map_err(|trouble| format!("{trouble}; it is in Debian's tshark"))?;
        let mut capture = Self { child, ports, file, log, folder: folder.to_path_buf() };
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let said = fs::read_to_string(&capture.log).unwrap_or_default();
            if capture.file.exists() && said.contains("File: ") {
                return Ok(capture);
            }
            let ended = capture.child.try_wait().map_err(|error| format!("waiting for dumpcap: {error}"))?;
            if ended.is_some() || Instant::now() > deadline {
                return Err(format!(
                    "dumpcap does not capture; it needs root, or its capability (Debian: group wireshark)\n{said}"
                ));
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends the capture and returns the dissector's verdict. `preferences` are settings of tshark
    /// in the form `NAME:VALUE`. The run must have ended with a call of `shutdown`.
    ///
    /// # Errors
    ///
    /// tshark is missing or cannot read the capture.
    pub fn finish(mut self, preferences: &[&str]) -> Result<CaptureVerdict, String> {
        self.stop()?;
        if dropped(&fs::read_to_string(&self.log).map_err(|error| format!("{}: {error}", self.log.display()))?)? > 0 {
            return Ok(CaptureVerdict::Incomplete);
        }
        let mut command = Command::new("tshark");
        command.args(["-o", "giop.max_message_size:100000000", "-o", "tcp.try_heuristic_first:TRUE"]);
        // The packets of a capture are out of order if a sender has moved to another core.
        command.args(["-o", "tcp.reassemble_out_of_order:TRUE"]);
        command.args(preferences.iter().flat_map(|preference| ["-o", preference]));
        command.arg("-r").arg(&self.file).args(["-Y", "giop || _ws.malformed", "-T", "fields"]);
        command.args(COLUMNS.iter().flat_map(|column| ["-e", column]));
        let finished = process::run_with_separate_errors(command, "tshark", &self.folder, Duration::from_secs(120))?;
        if !finished.status.success() {
            return Err(format!("tshark ended with {}\n{}", finished.status, finished.output));
        }
        read(&finished.output, self.ports, &self.file)
    }

    fn stop(&mut self) -> Result<(), String> {
        thread::sleep(Duration::from_millis(400));
        let mut command = Command::new("sh");
        command.args(["-c", "kill -INT $0"]).arg(self.child.id().to_string());
        process::begin(&mut command)?.wait().map_err(|error| format!("waiting for `sh`: {error}"))?;
        match process::wait(&mut self.child, Duration::from_secs(20))? {
            Some(_) => Ok(()),
            None => Err("dumpcap did not end when told to".to_owned()),
        }
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.end();
    }
}

fn dropped(said: &str) -> Result<u64, String> {
    let counts = said.lines().find(|line| line.starts_with("Packets received/dropped on interface"));
    let dropped = counts.and_then(|line| line.split_once(" (pcap:")?.0.rsplit('/').next()?.parse().ok());
    dropped.ok_or_else(|| format!("dumpcap does not say whether it dropped packets:\n{said}"))
}

fn read(lines: &str, ports: Ports, file: &Path) -> Result<CaptureVerdict, String> {
    let mut malformed: Vec<FailedCheck> = Vec::new();
    let mut messages = Vec::new();
    let mut ended = false;
    for line in lines.lines() {
        let columns: Vec<&str> = line.splitn(COLUMNS.len(), '\t').collect();
        let [frame, source, target, cut, trouble, minors, kinds, sizes, operations, summary] = columns[..] else {
            return Err(format!("tshark printed an unexpected line: {line}"));
        };
        if !(cut.is_empty() || trouble.is_empty()) {
            return Ok(CaptureVerdict::Incomplete);
        }
        let check = format!("malformed-{}", kind(summary));
        if !trouble.is_empty() && !malformed.iter().any(|other| other.check == check) {
            let line = format!("FAIL {check} got {summary} in packet {frame} of {}", file.display());
            malformed.push(FailedCheck { line, check });
        }
        let (source, target) = (number::<u16>(source)?, number::<u16>(target)?);
        let from = if source == ports.server || target == ports.client { Side::Server } else { Side::Client };
        let is_callback = source == ports.client || target == ports.client;
        for ((minor, kind), size) in minors.split(',').zip(kinds.split(',')).zip(sizes.split(',')) {
            if !minor.is_empty() {
                let (minor, kind, size) = (number(minor)?, number(kind)?, number(size)?);
                messages.push(CapturedMessage { from, is_callback, giop_minor: minor, message_type: kind, size });
            }
        }
        ended |= operations.split(',').any(|operation| operation == "shutdown");
    }
    Ok(if ended { CaptureVerdict::Complete { malformed, messages } } else { CaptureVerdict::Incomplete })
}

fn number<N: FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("tshark printed `{text}` where a number is expected"))
}

/// Returns the message type in a summary such as "GIOP 1.2 Fragment, s=8 id=5", and "packet" if
/// there is none.
fn kind(summary: &str) -> &str {
    let Some((_, rest)) = summary.split_once("GIOP 1.") else { return "packet" };
    let word = rest.split([' ', ',', '\t']).nth(1).unwrap_or_default();
    if word.is_empty() { "packet" } else { word }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_type_is_read_from_the_summary() {
        assert_eq!(kind("GIOP 1.2 Fragment, s=8 id=500000[Malformed Packet]\t1519"), "Fragment");
        assert_eq!(kind("GIOP 1.1 Request, s=52 id=5: op=echo_x\t7"), "Request");
        assert_eq!(kind("[Malformed Packet]\t8"), "packet");
    }

    const PORTS: Ports = Ports { server: 1000, client: 2000 };

    fn read_lines(lines: &str) -> Result<CaptureVerdict, String> {
        read(lines, PORTS, Path::new("a"))
    }

    #[test]
    fn packets_become_messages_with_their_senders() {
        let lines = "4\t7\t1000\t1\t\t2,2\t0,7\t244,9\tx\tGIOP 1.2 Fragment, s=9 id=2: op=x\n\
                     5\t1000\t7\t\t\t2\t1\t15\t\tGIOP 1.2 Reply, s=15 id=2: No Exception\n\
                     6\t8\t2000\t\t\t0\t0\t30\ty\tGIOP 1.0 Request, s=30 id=2: op=y\n\
                     7\t7\t1000\t\t[Malformed Packet: GIOP]\t1\t0\t30\tshutdown\tGIOP 1.1 Request, s=30 id=2: op=shutdown\n";
        let Ok(CaptureVerdict::Complete { malformed, messages }) = read_lines(lines) else { panic!("not complete") };
        let seen: Vec<_> =
            messages.iter().map(|m| (m.from, m.is_callback, m.giop_minor, m.message_type, m.size)).collect();
        let (client, server) = (Side::Client, Side::Server);
        let expected = [
            (client, false, 2, 0, 244),
            (client, false, 2, 7, 9),
            (server, false, 2, 1, 15),
            (server, true, 0, 0, 30),
            (client, false, 1, 0, 30),
        ];
        assert_eq!(seen, expected);
        assert!(malformed.len() == 1 && malformed[0].check == "malformed-Request", "{malformed:?}");
    }

    #[test]
    fn dropped_packets_are_counted() {
        let said = |counts: &str| {
            format!("File: x\nPackets captured: 7\nPackets received/dropped on interface 'Loopback: lo': {counts}\n")
        };
        assert_eq!(dropped(&said("7/0 (pcap:0/dumpcap:0/flushed:0/ps_ifdrop:0) (100.0%)")), Ok(0));
        assert_eq!(dropped(&said("7/12 (pcap:12/dumpcap:0/flushed:0/ps_ifdrop:0) (36.8%)")), Ok(12));
        assert!(dropped(&said("7")).is_err());
        assert!(dropped("File: x").is_err());
    }

    #[test]
    fn capture_that_is_incomplete_or_misleads_the_dissector_gives_no_verdict() {
        let shutdown = "7\t7\t1000\t\t\t2\t0\t30\tshutdown\tGIOP 1.2 Request, s=30 id=2\n";
        assert_eq!(read_lines(&shutdown.replace("shutdown", "other")), Ok(CaptureVerdict::Incomplete));
        let cut = "6\t7\t1000\t1\t[Malformed Packet: GIOP]\t2\t7\t9\t\tGIOP 1.2 Fragment, s=9 id=2\n";
        assert_eq!(read_lines(&format!("{cut}{shutdown}")), Ok(CaptureVerdict::Incomplete));
        assert!(matches!(read_lines(shutdown), Ok(CaptureVerdict::Complete { .. })));
        assert!(read_lines("no such line").is_err());
    }

    #[test]
    fn free_ports_differ() {
        let ports = Ports::find_free().unwrap();
        assert_ne!(ports.server, ports.client);
    }

    /// A program that is starting could have a copy of the socket with which `free_port` tried the
    /// port, so that the port would still be in use.
    #[test]
    fn free_port_can_be_bound_while_programs_are_started() {
        thread::scope(|scope| {
            let start = || {
                for _ in 0..50 {
                    process::begin(&mut Command::new("true")).unwrap().wait().unwrap();
                }
            };
            let starting: Vec<_> = (0..4).map(|_| scope.spawn(start)).collect();
            while starting.iter().any(|thread| !thread.is_finished()) {
                let port = free_port().unwrap();
                if let Err(error) = TcpListener::bind(("127.0.0.1", port)) {
                    panic!("{port}: {error}");
                }
            }
        });
    }
}
