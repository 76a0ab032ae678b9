//! Other ORBs, whose programs stand in interop/peers and are built when a benchmark wants them. All speak the same lines, which
//! interop/peers/omniorb/bench.cc describes, and run the same loop over the same interface.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::Failure;
use crate::floor::Carrier;
use crate::harness::Subject;
use crate::operation::Operation;
use crate::placement::{Placement, Side};
use crate::sample::Samples;
use crate::service::Service;

/// How long one turn may take.
const PATIENCE: Duration = Duration::from_secs(600);

/// Which ORB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// In C++.
    OmniOrb,
    /// In Java.
    JacOrb,
    /// ZeroC's, in C++: not CORBA, but what people use instead.
    Ice,
}

impl Kind {
    /// As labels say it.
    #[must_use]
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::OmniOrb => "omniORB",
            Kind::JacOrb => "JacORB",
            Kind::Ice => "Ice",
        }
    }

    /// Whether its server can be reached like that.
    #[must_use]
    pub(crate) fn carries(self, carrier: Carrier) -> bool {
        carrier == Carrier::Tcp || (self == Kind::OmniOrb && carrier == Carrier::Unix)
    }

    /// Below interop/peers.
    fn folder(self) -> &'static str {
        match self {
            Kind::OmniOrb => "omniorb",
            Kind::JacOrb => "jacorb",
            Kind::Ice => "ice",
        }
    }

    /// What its program is made of.
    fn source(self) -> &'static str {
        match self {
            Kind::OmniOrb | Kind::Ice => "bench.cc",
            Kind::JacOrb => "bench/Bench.java",
        }
    }

    /// What make is asked for.
    fn target(self) -> &'static str {
        match self {
            Kind::OmniOrb | Kind::Ice => "bench",
            Kind::JacOrb => "bench-built",
        }
    }

    /// What it needs, as Debian calls it.
    fn packages(self) -> &'static str {
        match self {
            Kind::OmniOrb => "make, g++, omniidl and libomniorb4-dev",
            Kind::JacOrb => "make, default-jdk-headless and maven, which fetches JacORB",
            Kind::Ice => "make, g++, libzeroc-ice-dev and zeroc-ice-compilers",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A peer whose program is built.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    kind: Kind,
    /// The folder with what was built.
    out: PathBuf,
    counting: Option<Counting>,
}

/// A library that is preloaded into a program, and the file into which it writes what it has counted.
#[derive(Clone, Debug)]
pub(crate) struct Counting {
    pub(crate) library: PathBuf,
    pub(crate) file: PathBuf,
}

/// How an omniORB server gives connections to threads; the others have one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Threads {
    /// What the ORB does unless it is told otherwise: omniORB has a thread for each connection.
    Usual,
    /// A pool; connections without a call are watched by one thread.
    Pool,
}

/// How a client calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Invocation {
    /// By code that was made from the IDL.
    Stubs,
    /// By requests that are put together at run time; omniORB only.
    Dynamic,
}

impl Peer {
    /// Builds the program from `peers`, the folder with the peers' sources, if it is not up to date.
    ///
    /// # Errors
    /// The sources, a tool or the library are missing; the text says what to do.
    pub(crate) fn build(kind: Kind, peers: &Path) -> Result<Self, Failure> {
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
            Ok(output) if output.status.success() => Ok(Peer { kind, out, counting: None }),
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                let first = said.lines().find(|line| !line.trim().is_empty()).unwrap_or("no reason given");
                Err(Failure::new(format!("its program does not build: {}; {hint}", first.trim())))
            }
        }
    }

    /// As if it were built.
    #[cfg(test)]
    pub(crate) fn built(kind: Kind, out: impl Into<PathBuf>) -> Self {
        Peer { kind, out: out.into(), counting: None }
    }

    /// Which ORB it is.
    #[must_use]
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// The program file, of those that are programs of the machine.
    #[must_use]
    pub(crate) fn program(&self) -> PathBuf {
        self.out.join("bench")
    }

    /// The same peer, whose programs count.
    pub(crate) fn counting(self, counting: Counting) -> Self {
        Peer { counting: Some(counting), ..self }
    }

    /// The program without arguments.
    fn command(&self) -> Command {
        if self.kind != Kind::JacOrb {
            let mut command = Command::new(self.program());
            if let Some(Counting { library, file }) = &self.counting {
                command.env("LD_PRELOAD", library).env("CORELANE_LOCKS", file);
            }
            return command;
        }
        let mut command = Command::new("java");
        // One thread collects garbage, so that on one core it does not compete with others of its kind.
        command.args(["-XX:+UseSerialGC", "-Xshare:auto"]);
        command.arg("-cp").arg(format!("{0}/bench:{0}/lib/*", self.out.display())).arg("Bench");
        command
    }

    /// Starts a server; answers its object's reference.
    ///
    /// # Errors
    /// It does not start, or has no such carrier.
    pub(crate) fn serve(
        &self,
        carrier: Carrier,
        threads: Threads,
        placement: &Placement,
    ) -> Result<(Service, String), Failure> {
        if !self.kind.carries(carrier) {
            return Err(Failure::new(format!("{} cannot be reached over {}", self.kind, carrier.name())));
        }
        let mut command = self.command();
        command.arg("--serve");
        if self.kind == Kind::OmniOrb {
            let endpoint = match carrier {
                // Without a path it takes one below /tmp/omni-USER, and removes it at its end.
                Carrier::Unix => "giop:unix:",
                Carrier::Tcp | Carrier::SharedMemory => "giop:tcp:127.0.0.1:",
            };
            command.args(["-ORBendPoint", endpoint]).args(LARGE_MESSAGES);
            if threads == Threads::Pool {
                command.args(["-ORBthreadPerConnectionPolicy", "0"]);
            }
        }
        Service::start(&format!("{}'s server", self.kind), command, placement, Side::Server)
    }

    /// Starts a client of that reference which calls `operation`.
    ///
    /// # Errors
    /// It does not start, or the server does not answer; or it does not call like that.
    pub(crate) fn client(
        &self,
        reference: &str,
        operation: Operation,
        server: u32,
        how: Invocation,
        placement: &Placement,
    ) -> Result<Calls, Failure> {
        if how == Invocation::Dynamic && self.kind != Kind::OmniOrb {
            return Err(Failure::new(format!("{}'s program has no dynamic invocation", self.kind)));
        }
        let name = format!("{}'s client", self.kind);
        let client = self.caller(reference, placement)?;
        Ok(Calls { name, client, operation, how, server })
    }

    /// Starts a client of that reference, which calls when it is told to.
    ///
    /// # Errors
    /// It does not start, or the server does not answer.
    pub(crate) fn caller(&self, reference: &str, placement: &Placement) -> Result<Service, Failure> {
        let mut command = self.command();
        command.arg(reference);
        if self.kind == Kind::OmniOrb {
            command.args(LARGE_MESSAGES);
        }
        Ok(Service::start(&format!("{}'s client", self.kind), command, placement, Side::Client)?.0)
    }
}

/// omniORB refuses messages above 2 MiB unless it is told otherwise.
const LARGE_MESSAGES: [&str; 2] = ["-ORBgiopMaxMsgSize", "134217728"];

/// Beside our own program, where build output is; else among temporary files.
pub(crate) fn output_folder(name: &str) -> Result<PathBuf, Failure> {
    let name = Path::new("bench-peers").join(name);
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join(&name)));
    let temporary = std::env::temp_dir().join(format!("corelane-{}", std::process::id())).join(&name);
    let folders = beside.into_iter().chain([temporary]);
    let mut usable = folders.filter(|folder| fs::create_dir_all(folder).is_ok());
    usable.next().ok_or_else(|| Failure::new("there is no folder to build it in"))
}

/// Calls of one operation by a peer's client.
#[derive(Debug)]
pub(crate) struct Calls {
    name: String,
    client: Service,
    operation: Operation,
    how: Invocation,
    server: u32,
}

impl Subject for Calls {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        let how = match self.how {
            Invocation::Stubs => "",
            Invocation::Dynamic => " dynamic",
        };
        let answer = self.client.ask(&format!("run {} {warm_up} {count}{how}", self.operation), PATIENCE)?;
        let broken = || Failure::new(format!("{} answers with something that is no list of times", self.name));
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
