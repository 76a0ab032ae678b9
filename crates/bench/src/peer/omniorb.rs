//! omniORB: the programs of interop/peers/omniorb/bench.cc, driven by lines.

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

/// The built program.
#[derive(Clone, Debug)]
pub struct OmniOrb {
    program: PathBuf,
}

/// How an omniORB server gives connections to threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// One for each connection; omniORB's default.
    PerConnection,
    /// A pool; connections without a call are watched by one thread.
    Pool,
}

impl OmniOrb {
    /// Builds the program from `peers`, the folder with the peers' sources, if it is not up to date.
    ///
    /// # Errors
    /// The sources, a tool or the library are missing; the text says what to do.
    pub fn build(peers: &Path) -> Result<Self, Failure> {
        let sources = peers.join("omniorb");
        if !sources.join("bench.cc").is_file() {
            return Err(Failure::new(format!(
                "no sources in `{}`: name the folder interop/peers of Corelane's repository with --peers",
                sources.display()
            )));
        }
        let out = output_folder()?;
        let program = out.join("bench");
        let mut make = Command::new("make");
        make.arg("-C").arg(&sources).arg(format!("OUT={}", out.display())).arg(&program).stdin(Stdio::null());
        let hint = "install make, g++, omniidl and libomniorb4-dev (as Debian calls them), or leave it out with --without-peers";
        match make.output() {
            Err(error) => Err(Failure::new(format!("`make` cannot be run: {error}; {hint}"))),
            Ok(output) if output.status.success() => Ok(OmniOrb { program }),
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                let first = said.lines().find(|line| !line.trim().is_empty()).unwrap_or("no reason given");
                Err(Failure::new(format!("its program does not build: {}; {hint}", first.trim())))
            }
        }
    }

    /// The program file.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Starts a server; answers its object's reference.
    ///
    /// # Errors
    /// It does not start.
    pub fn serve(
        &self,
        carrier: Carrier,
        threads: Threads,
        placement: &Placement,
    ) -> Result<(Service, String), Failure> {
        let mut command = Command::new(&self.program);
        let endpoint = match carrier {
            Carrier::Tcp => "giop:tcp:127.0.0.1:",
            // Without a path it takes one below /tmp/omni-USER, and removes it at its end.
            Carrier::Unix => "giop:unix:",
        };
        command.args(["--serve", "-ORBendPoint", endpoint]);
        if threads == Threads::Pool {
            command.args(["-ORBthreadPerConnectionPolicy", "0"]);
        }
        Service::start("omniORB's server", command, placement, Side::Server)
    }

    /// Starts a client of that reference which calls `operation`.
    ///
    /// # Errors
    /// It does not start, or the server does not answer.
    pub fn client(
        &self,
        reference: &str,
        operation: Operation,
        server: u32,
        placement: &Placement,
    ) -> Result<Calls, Failure> {
        let mut command = Command::new(&self.program);
        command.arg(reference);
        let (client, _) = Service::start("omniORB's client", command, placement, Side::Client)?;
        Ok(Calls { client, operation, server })
    }
}

/// Beside our own program, where build output is; else among temporary files.
fn output_folder() -> Result<PathBuf, Failure> {
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join("bench-peers/omniorb")));
    let temporary = std::env::temp_dir().join(format!("corelane-bench-peers-{}", std::process::id()));
    let folders = beside.into_iter().chain([temporary]);
    let mut usable = folders.filter(|folder| fs::create_dir_all(folder).is_ok());
    usable.next().ok_or_else(|| Failure::new("there is no folder to build it in"))
}

/// Calls of one operation by omniORB's client.
#[derive(Debug)]
pub struct Calls {
    client: Service,
    operation: Operation,
    server: u32,
}

impl Subject for Calls {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        let answer = self.client.ask(&format!("run {} {warm_up} {count}", self.operation), PATIENCE)?;
        let broken = || Failure::new("omniORB's client answers with something that is no list of times");
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
