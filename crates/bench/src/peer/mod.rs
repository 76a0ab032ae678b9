//! Other ORBs, whose programs in interop/peers are built when a benchmark needs them.
//!
//! All use the line protocol that interop/peers/omniorb/bench.cc describes, and run the same loop
//! over the same interface.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::Failure;
use crate::baseline::BaselineTransport;
use crate::harness::Subject;
use crate::operation::MeasuredOperation;
use crate::placement::{Placement, Side};
use crate::sample::Samples;
use crate::service::RunningProgram;

/// Maximum time of one turn.
const PATIENCE: Duration = Duration::from_secs(600);

/// The ORB of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerKind {
    /// omniORB, in C++.
    OmniOrb,
    /// JacORB, in Java.
    JacOrb,
    /// ZeroC Ice, in C++: not CORBA, but a common alternative.
    Ice,
}

impl PeerKind {
    /// Returns the name that labels use.
    #[must_use]
    pub(crate) fn name(self) -> &'static str {
        match self {
            PeerKind::OmniOrb => "omniORB",
            PeerKind::JacOrb => "JacORB",
            PeerKind::Ice => "Ice",
        }
    }

    /// Returns true if the ORB's server supports a transport.
    #[must_use]
    pub(crate) fn carries(self, carrier: BaselineTransport) -> bool {
        carrier == BaselineTransport::Tcp || (self == PeerKind::OmniOrb && carrier == BaselineTransport::Unix)
    }

    /// Returns the folder below interop/peers.
    fn folder(self) -> &'static str {
        match self {
            PeerKind::OmniOrb => "omniorb",
            PeerKind::JacOrb => "jacorb",
            PeerKind::Ice => "ice",
        }
    }

    /// Returns the source file of the program.
    fn source(self) -> &'static str {
        match self {
            PeerKind::OmniOrb | PeerKind::Ice => "bench.cc",
            PeerKind::JacOrb => "bench/Bench.java",
        }
    }

    fn target(self) -> &'static str {
        match self {
            PeerKind::OmniOrb | PeerKind::Ice => "bench",
            PeerKind::JacOrb => "bench-built",
        }
    }

    /// Returns the required packages, by their Debian names.
    fn packages(self) -> &'static str {
        match self {
            PeerKind::OmniOrb => "make, g++, omniidl and libomniorb4-dev",
            PeerKind::JacOrb => "make, default-jdk-headless and maven, which fetches JacORB",
            PeerKind::Ice => "make, g++, libzeroc-ice-dev and zeroc-ice-compilers",
        }
    }
}

impl fmt::Display for PeerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A peer whose program is built.
#[derive(Clone, Debug)]
pub(crate) struct BuiltPeer {
    kind: PeerKind,
    /// Folder of the build output.
    out: PathBuf,
    counting: Option<Counting>,
}

/// A library that is preloaded into a program, and the file to which it writes its counts.
#[derive(Clone, Debug)]
pub(crate) struct Counting {
    pub(crate) library: PathBuf,
    pub(crate) file: PathBuf,
}

/// The assignment of connections to threads in an omniORB server. The other ORBs have only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Threads {
    /// The ORB's default. In omniORB each connection has a thread.
    Usual,
    /// A pool, in which one thread watches the connections without a call.
    Pool,
}

/// The way in which a client calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerInvocation {
    /// Calls by code that is generated from the IDL.
    Stubs,
    /// Calls by requests that are built at run time; omniORB only.
    Dynamic,
}

impl BuiltPeer {
    /// Builds the program from `peers`, the folder with the peers' sources, if it is not up to
    /// date.
    ///
    /// # Errors
    /// The sources, a tool or a library is missing. The text tells the user what to do.
    pub(crate) fn build(kind: PeerKind, peers: &Path) -> Result<Self, Failure> {
        let sources = peers.join(kind.folder());
        if !sources.join(kind.source()).is_file() {
            return Err(Failure::new(format!(
                "no sources in `{}`: name the folder interop/peers of Corelane's repository with --peers",
                sources.display()
            )));
        }
        let out = output_folder(kind.folder())?;
        let mut make = Command::new("make");
        make.arg("-C").arg(&sources).arg(format!("OUT={}", out.display())).arg(out.join(kind.target()));
        make.stdin(Stdio::null());
        let hint = format!("install {}, or leave the peers out with --without-peers", kind.packages());
        match make.output() {
            Err(error) => Err(Failure::new(format!("`make` cannot be run: {error}; {hint}"))),
            Ok(output) if output.status.success() => Ok(BuiltPeer { kind, out, counting: None }),
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                let first = said.lines().find(|line| !line.trim().is_empty()).unwrap_or("no reason given");
                Err(Failure::new(format!("its program does not build: {}; {hint}", first.trim())))
            }
        }
    }

    /// Returns a peer without building it.
    #[cfg(test)]
    pub(crate) fn built(kind: PeerKind, out: impl Into<PathBuf>) -> Self {
        BuiltPeer { kind, out: out.into(), counting: None }
    }

    #[must_use]
    pub(crate) fn kind(&self) -> PeerKind {
        self.kind
    }

    /// Returns the path of the program, for peers with a native one.
    #[must_use]
    pub(crate) fn program(&self) -> PathBuf {
        self.out.join("bench")
    }

    /// Returns the same peer with programs that count.
    pub(crate) fn counting(self, counting: Counting) -> Self {
        BuiltPeer { counting: Some(counting), ..self }
    }

    fn command(&self) -> Command {
        if self.kind != PeerKind::JacOrb {
            let mut command = Command::new(self.program());
            if let Some(Counting { library, file }) = &self.counting {
                command.env("LD_PRELOAD", library).env("CORELANE_LOCKS", file);
            }
            return command;
        }
        let mut command = Command::new("java");
        // Only one thread collects garbage, so that several collector threads do not compete on one
        // core.
        command.args(["-XX:+UseSerialGC", "-Xshare:auto"]);
        command.arg("-cp").arg(format!("{0}/bench:{0}/lib/*", self.out.display())).arg("Bench");
        command
    }

    /// Starts a server and returns it with its object's reference.
    ///
    /// # Errors
    /// The server does not start, or does not support the transport.
    pub(crate) fn serve(
        &self,
        carrier: BaselineTransport,
        threads: Threads,
        placement: &Placement,
    ) -> Result<(RunningProgram, String), Failure> {
        if !self.kind.carries(carrier) {
            return Err(Failure::new(format!("{} cannot be reached over {}", self.kind, carrier.name())));
        }
        let mut command = self.command();
        command.arg("--serve");
        if self.kind == PeerKind::OmniOrb {
            let endpoint = match carrier {
                // Without a path, omniORB makes one below /tmp/omni-USER and removes it at its end.
                BaselineTransport::Unix => "giop:unix:",
                BaselineTransport::Tcp | BaselineTransport::SharedMemory => "giop:tcp:127.0.0.1:",
            };
            command.args(["-ORBendPoint", endpoint]).args(LARGE_MESSAGES);
            if threads == Threads::Pool {
                command.args(["-ORBthreadPerConnectionPolicy", "0"]);
            }
        }
        RunningProgram::start(&format!("{}'s server", self.kind), command, placement, Side::Server)
    }

    /// Starts a client that calls `operation` on the object of a reference.
    ///
    /// # Errors
    /// The client does not start, the server does not answer, or the peer has no such way to call.
    pub(crate) fn client(
        &self,
        reference: &str,
        operation: MeasuredOperation,
        server: u32,
        how: PeerInvocation,
        placement: &Placement,
    ) -> Result<PeerCalls, Failure> {
        if how == PeerInvocation::Dynamic && self.kind != PeerKind::OmniOrb {
            return Err(Failure::new(format!("{}'s program has no dynamic invocation", self.kind)));
        }
        let name = format!("{}'s client", self.kind);
        let client = self.caller(reference, placement)?;
        Ok(PeerCalls { name, client, operation, how, server })
    }

    /// Starts a client of a reference, which calls on request.
    ///
    /// # Errors
    /// The client does not start, or the server does not answer.
    pub(crate) fn caller(&self, reference: &str, placement: &Placement) -> Result<RunningProgram, Failure> {
        let mut command = self.command();
        command.arg(reference);
        if self.kind == PeerKind::OmniOrb {
            command.args(LARGE_MESSAGES);
        }
        Ok(RunningProgram::start(&format!("{}'s client", self.kind), command, placement, Side::Client)?.0)
    }
}

/// Option that raises omniORB's default limit of 2 MiB for messages.
const LARGE_MESSAGES: [&str; 2] = ["-ORBgiopMaxMsgSize", "134217728"];

/// Returns a folder for build output: next to this program, else among temporary files.
pub(crate) fn output_folder(name: &str) -> Result<PathBuf, Failure> {
    let name = Path::new("bench-peers").join(name);
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join(&name)));
    let temporary = std::env::temp_dir().join(format!("corelane-{}", std::process::id())).join(&name);
    let folders = beside.into_iter().chain([temporary]);
    let mut usable = folders.filter(|folder| fs::create_dir_all(folder).is_ok());
    usable.next().ok_or_else(|| Failure::new("no folder for the build output can be made"))
}

/// Calls of one operation by a peer's client.
#[derive(Debug)]
pub(crate) struct PeerCalls {
    name: String,
    client: RunningProgram,
    operation: MeasuredOperation,
    how: PeerInvocation,
    server: u32,
}

impl Subject for PeerCalls {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        let how = match self.how {
            PeerInvocation::Stubs => "",
            PeerInvocation::Dynamic => " dynamic",
        };
        let answer = self.client.ask(&format!("run {} {warm_up} {count}{how}", self.operation), PATIENCE)?;
        let broken = || Failure::new(format!("{} sent an answer that is not a list of times", self.name));
        let mut numbers = answer.strip_prefix("times ").ok_or_else(broken)?.split(' ').map(str::parse::<u64>);
        let whole = numbers.next().and_then(Result::ok).ok_or_else(broken)?;
        let before = into.len();
        for number in numbers.take(count) {
            into.push(number.map_err(|_| broken())?);
        }
        if into.len() - before == count { Ok(Duration::from_nanos(whole)) } else { Err(broken()) }
    }

    fn client_pid(&self) -> Option<u32> {
        Some(self.client.pid())
    }

    fn server_pid(&self) -> Option<u32> {
        Some(self.server)
    }
}
