//! The other products in the benchmarks: CORBA ORBs, Ice, and the alternatives to CORBA in `rpc`.
//!
//! Their programs are in interop/peers and are built when a benchmark needs them.

pub(crate) mod rpc;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::Failure;
use crate::baseline::BaselineTransport;
use crate::harness::MeasuredSubject;
use crate::operation::MeasuredOperation;
use crate::placement::{Placement, Side};
use crate::sample::Samples;
use crate::service::RunningProgram;

const PATIENCE: Duration = Duration::from_secs(600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerKind {
    /// omniORB, in C++.
    OmniOrb,
    /// JacORB, in Java.
    JacOrb,
    /// ZeroC Ice, in C++, which is not a CORBA ORB.
    Ice,
}

impl PeerKind {
    #[must_use]
    pub(crate) fn name(self) -> &'static str {
        match self {
            PeerKind::OmniOrb => "omniORB",
            PeerKind::JacOrb => "JacORB",
            PeerKind::Ice => "Ice",
        }
    }

    #[must_use]
    pub(crate) fn supports(self, transport: BaselineTransport) -> bool {
        transport == BaselineTransport::Tcp || (self == PeerKind::OmniOrb && transport == BaselineTransport::Unix)
    }

    fn folder(self) -> &'static str {
        match self {
            PeerKind::OmniOrb => "omniorb",
            PeerKind::JacOrb => "jacorb",
            PeerKind::Ice => "ice",
        }
    }

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

#[derive(Clone, Debug)]
pub(crate) struct BuiltPeer {
    kind: PeerKind,
    out: PathBuf,
    counting: Option<CountingLibrary>,
}

#[derive(Clone, Debug)]
pub(crate) struct CountingLibrary {
    pub(crate) library: PathBuf,
    pub(crate) file: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerThreads {
    /// The ORB's default; in omniORB, each connection has a thread.
    Default,
    /// A thread pool; for omniORB's server only.
    Pool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerInvocation {
    Stubs,
    /// Calls whose requests are built at run time. Of the peers, only omniORB has them.
    DynamicCalls,
}

impl BuiltPeer {
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

    #[cfg(test)]
    pub(crate) fn built(kind: PeerKind, out: impl Into<PathBuf>) -> Self {
        BuiltPeer { kind, out: out.into(), counting: None }
    }

    #[must_use]
    pub(crate) fn kind(&self) -> PeerKind {
        self.kind
    }

    /// Returns the path of the native program. JacORB has none.
    #[must_use]
    pub(crate) fn program(&self) -> PathBuf {
        self.out.join("bench")
    }

    pub(crate) fn counting(self, counting: CountingLibrary) -> Self {
        BuiltPeer { counting: Some(counting), ..self }
    }

    fn command(&self) -> Command {
        if self.kind != PeerKind::JacOrb {
            let mut command = Command::new(self.program());
            if let Some(CountingLibrary { library, file }) = &self.counting {
                command.env("LD_PRELOAD", library).env("CORELANE_LOCKS", file);
            }
            return command;
        }
        let mut command = Command::new("java");
        // One thread collects garbage, because several would compete for one core.
        command.args(["-XX:+UseSerialGC", "-Xshare:auto"]);
        command.arg("-cp").arg(format!("{0}/bench:{0}/lib/*", self.out.display())).arg("Bench");
        command
    }

    pub(crate) fn serve(
        &self,
        transport: BaselineTransport,
        threads: PeerThreads,
        placement: &Placement,
    ) -> Result<(RunningProgram, String), Failure> {
        if !self.kind.supports(transport) {
            return Err(Failure::new(format!("{} cannot be reached over {}", self.kind, transport.name())));
        }
        let mut command = self.command();
        command.arg("--serve");
        if self.kind == PeerKind::OmniOrb {
            let endpoint = match transport {
                // Without a path, omniORB makes a socket below /tmp/omni-USER and removes it at its
                // end.
                BaselineTransport::Unix => "giop:unix:",
                BaselineTransport::Tcp | BaselineTransport::SharedMemory => "giop:tcp:127.0.0.1:",
            };
            command.args(["-ORBendPoint", endpoint]).args(LARGE_MESSAGES);
            if threads == PeerThreads::Pool {
                command.args(["-ORBthreadPerConnectionPolicy", "0"]);
            }
        }
        RunningProgram::start(&format!("{}'s server", self.kind), command, placement, Side::Server)
    }

    pub(crate) fn client(
        &self,
        reference: &str,
        operation: MeasuredOperation,
        server: u32,
        how: PeerInvocation,
        placement: &Placement,
    ) -> Result<PeerCalls, Failure> {
        if how == PeerInvocation::DynamicCalls && self.kind != PeerKind::OmniOrb {
            return Err(Failure::new(format!("{}'s program has no dynamic invocation", self.kind)));
        }
        let name = format!("{}'s client", self.kind);
        let client = self.caller(reference, placement)?;
        Ok(PeerCalls { name, client, operation, how, server })
    }

    pub(crate) fn caller(&self, reference: &str, placement: &Placement) -> Result<RunningProgram, Failure> {
        let mut command = self.command();
        command.arg(reference);
        if self.kind == PeerKind::OmniOrb {
            command.args(LARGE_MESSAGES);
        }
        Ok(RunningProgram::start(&format!("{}'s client", self.kind), command, placement, Side::Client)?.0)
    }
}

/// Option that raises omniORB's message limit from 2 MiB to 128 MiB.
const LARGE_MESSAGES: [&str; 2] = ["-ORBgiopMaxMsgSize", "134217728"];

pub(crate) fn output_folder(name: &str) -> Result<PathBuf, Failure> {
    let name = Path::new("bench-peers").join(name);
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join(&name)));
    let temporary = std::env::temp_dir().join(format!("corelane-{}", std::process::id())).join(&name);
    let folders = beside.into_iter().chain([temporary]);
    let mut usable = folders.filter(|folder| fs::create_dir_all(folder).is_ok());
    usable.next().ok_or_else(|| Failure::new("no folder for the build output can be made"))
}

#[derive(Debug)]
pub(crate) struct PeerCalls {
    name: String,
    client: RunningProgram,
    operation: MeasuredOperation,
    how: PeerInvocation,
    server: u32,
}

impl MeasuredSubject for PeerCalls {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        let how = match self.how {
            PeerInvocation::Stubs => "",
            PeerInvocation::DynamicCalls => " dynamic",
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
