//! The traffic of a run as Wireshark's dissector sees it: an independent judge of every message on the wire.

use std::fs;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::process;
use crate::report::Failed;

/// Two ports of the loopback interface: all connections of a run go to one of them, so nobody else's traffic is captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// Where the server listens.
    pub server: u16,
    /// Where the client listens for callbacks.
    pub client: u16,
}

impl Ports {
    /// Two ports that are free now.
    ///
    /// # Errors
    /// The system has none.
    pub fn free() -> Result<Self, String> {
        let bind = || TcpListener::bind("127.0.0.1:0").map_err(|error| format!("looking for a free port: {error}"));
        let (one, two) = (bind()?, bind()?);
        let port = |socket: &TcpListener| socket.local_addr().map(|at| at.port()).map_err(|error| error.to_string());
        Ok(Self { server: port(&one)?, client: port(&two)? })
    }
}

/// What the dissector says of a capture.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The system dropped packets before they were captured, so the dissector's word is worth nothing.
    Incomplete,
    /// It saw everything.
    Complete {
        /// One failed check for each kind of message of which one is malformed.
        malformed: Vec<Failed>,
        /// How many packets have GIOP messages that it recognised.
        recognised: usize,
    },
}

/// A capture under way. Dropping it ends it.
#[derive(Debug)]
pub struct Capture {
    child: Child,
    file: PathBuf,
    folder: PathBuf,
}

impl Capture {
    /// Starts capturing into `folder` and waits until packets are being seen.
    ///
    /// # Errors
    /// tshark is missing, or the user may not capture; the text has what it said.
    pub fn start(folder: &Path, ports: Ports) -> Result<Self, String> {
        let file = folder.join("traffic.pcapng");
        match fs::remove_file(&file) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(format!("{}: {error}", file.display())),
            _ => {}
        }
        let log = folder.join("dumpcap.log");
        let output = fs::File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
        // dumpcap is the part of tshark that captures. The buffer is 64 MiB.
        let mut command = Command::new("dumpcap");
        command.args(["-q", "-i", "lo", "-B", "64", "-a", "duration:300"]);
        command.arg("-f").arg(format!("tcp port {} or tcp port {}", ports.server, ports.client));
        command.arg("-w").arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(output);
        let child =
            command.spawn().map_err(|error| format!("`dumpcap` (Debian's tshark) could not be started: {error}"))?;
        let mut capture = Self { child, file, folder: folder.to_path_buf() };
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let said = fs::read_to_string(&log).unwrap_or_default();
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

    /// Ends the capture and says what the dissector makes of it.
    ///
    /// # Errors
    /// tshark is missing or cannot read the capture.
    pub fn finish(mut self) -> Result<Verdict, String> {
        // Packets reach dumpcap's file about once in a second at the latest.
        thread::sleep(Duration::from_millis(1200));
        self.end();
        let lost = "tcp.analysis.lost_segment || tcp.analysis.ack_lost_segment";
        if !self.dissect(lost, &["frame.number"])?.is_empty() {
            return Ok(Verdict::Incomplete);
        }
        let recognised = self.dissect("giop", &["frame.number"])?.len();
        let mut malformed: Vec<Failed> = Vec::new();
        for line in self.dissect("_ws.malformed", &["_ws.col.Info", "frame.number"])? {
            let check = format!("malformed-{}", kind(&line));
            if !malformed.iter().any(|other| other.check == check) {
                malformed.push(Failed { line: format!("FAIL {check} got {line} in {}", self.file.display()), check });
            }
        }
        Ok(Verdict::Complete { malformed, recognised })
    }

    fn dissect(&self, filter: &str, fields: &[&str]) -> Result<Vec<String>, String> {
        let mut command = Command::new("tshark");
        command.arg("-r").arg(&self.file).args(["-Y", filter, "-T", "fields"]);
        command.args(fields.iter().flat_map(|field| ["-e", field]));
        // tshark warns about root on its standard error, so that does not belong to the answer.
        let finished = process::run_apart(command, "tshark", &self.folder, Duration::from_secs(120))?;
        if !finished.status.success() {
            return Err(format!("tshark ended with {}\n{}", finished.status, finished.output));
        }
        Ok(finished.output.lines().map(str::to_owned).collect())
    }

    fn end(&mut self) {
        // The file is written as packets come and whole up to the last of them; the child is ours and not yet waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.end();
    }
}

/// The message type in the dissector's summary, such as "GIOP 1.2 Fragment, s=8 id=5".
fn kind(summary: &str) -> &str {
    let Some((_, rest)) = summary.split_once("GIOP 1.") else { return "packet" };
    let word = rest.split([' ', ',', '\t']).nth(1).unwrap_or_default();
    if word.is_empty() { "packet" } else { word }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_type_is_found() {
        assert_eq!(kind("GIOP 1.2 Fragment, s=8 id=500000[Malformed Packet]\t1519"), "Fragment");
        assert_eq!(kind("GIOP 1.1 Request, s=52 id=5: op=echo_x\t7"), "Request");
        assert_eq!(kind("[Malformed Packet]\t8"), "packet");
    }

    #[test]
    fn free_ports_differ() {
        let ports = Ports::free().unwrap();
        assert_ne!(ports.server, ports.client);
    }
}
