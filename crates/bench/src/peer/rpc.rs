//! Alternatives to CORBA, in the benchmark `instead`.
//!
//! The programs are in interop/peers/rpc, with separate dependencies, and speak the line protocol
//! of the other peers.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::{PeerCalls, PeerInvocation, output_folder};
use crate::Failure;
use crate::baseline::BaselineTransport;
use crate::harness::MeasuredSubject;
use crate::operation::MeasuredOperation;
use crate::placement::{Placement, Side};
use crate::sample::Samples;
use crate::service::RunningProgram;

/// A middleware that the benchmark compares with Corelane, in one of its configurations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alternative {
    CapnProto,
    Tarpc,
    Tonic,
    Zenoh,
    /// zenoh over TCP, with large payloads in shared memory.
    ZenohSharedMemory,
    /// iceoryx2; both sides sleep until an event.
    Iceoryx2Events,
    /// iceoryx2; both sides poll without end.
    Iceoryx2Polling,
}

impl Alternative {
    pub(crate) const ALL: [Alternative; 7] = [
        Alternative::CapnProto,
        Alternative::Tarpc,
        Alternative::Tonic,
        Alternative::Zenoh,
        Alternative::ZenohSharedMemory,
        Alternative::Iceoryx2Events,
        Alternative::Iceoryx2Polling,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Alternative::CapnProto => "capnp-rpc",
            Alternative::Tarpc => "tarpc",
            Alternative::Tonic => "tonic",
            Alternative::Zenoh | Alternative::ZenohSharedMemory => "zenoh",
            Alternative::Iceoryx2Events | Alternative::Iceoryx2Polling => "iceoryx2",
        }
    }

    pub(crate) fn config(self) -> &'static str {
        match self {
            Alternative::CapnProto | Alternative::Tarpc | Alternative::Tonic | Alternative::Zenoh => "as it comes",
            Alternative::ZenohSharedMemory => "shared memory",
            Alternative::Iceoryx2Events => "events",
            Alternative::Iceoryx2Polling => "polling",
        }
    }

    pub(crate) fn transport(self) -> BaselineTransport {
        match self {
            Alternative::CapnProto | Alternative::Tarpc | Alternative::Tonic | Alternative::Zenoh => {
                BaselineTransport::Tcp
            }
            Alternative::ZenohSharedMemory | Alternative::Iceoryx2Events | Alternative::Iceoryx2Polling => {
                BaselineTransport::SharedMemory
            }
        }
    }

    /// Returns the name of the program, which is also the name of a feature of its package.
    fn program(self) -> &'static str {
        match self {
            Alternative::CapnProto => "capnp",
            other => other.name(),
        }
    }

    fn packages(self) -> &'static str {
        match self {
            Alternative::CapnProto => "cargo, access to crates.io, and the package capnproto",
            Alternative::Iceoryx2Events | Alternative::Iceoryx2Polling => {
                "cargo, access to crates.io, and the package libclang-dev"
            }
            _ => "cargo and access to crates.io",
        }
    }

    fn variable(self) -> Option<&'static str> {
        match self {
            Alternative::ZenohSharedMemory => Some("CORELANE_ZENOH_SHARED_MEMORY"),
            Alternative::Iceoryx2Events => Some("CORELANE_ICEORYX2_EVENTS"),
            _ => None,
        }
    }
}

/// The program of an [`Alternative`].
#[derive(Clone, Debug)]
pub(crate) struct BuiltAlternative {
    kind: Alternative,
    program: PathBuf,
}

impl BuiltAlternative {
    /// Builds the program with cargo; the first build takes minutes.
    pub(crate) fn build(kind: Alternative, peers: &Path) -> Result<Self, Failure> {
        let manifest = peers.join("rpc/Cargo.toml");
        if !manifest.is_file() {
            return Err(Failure::new(format!(
                "there is no `{}`: name the folder interop/peers of Corelane's repository with --peers",
                manifest.display()
            )));
        }
        let out = output_folder("rpc")?;
        let mut cargo = Command::new("cargo");
        cargo.args(["build", "--release", "--locked", "--quiet", "--manifest-path"]).arg(&manifest);
        cargo.arg("--target-dir").arg(&out).args(["--features", kind.program(), "--bin", kind.program()]);
        cargo.stdin(Stdio::null());
        let hint = format!("its build needs {}; or leave the peers out with --without-peers", kind.packages());
        let program = out.join("release").join(kind.program());
        match cargo.output() {
            Err(error) => Err(Failure::new(format!("`cargo` cannot be run: {error}; {hint}"))),
            Ok(output) if output.status.success() => Ok(BuiltAlternative { kind, program }),
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                let first = said.lines().find(|line| !line.trim().is_empty()).unwrap_or("no reason given");
                Err(Failure::new(format!("its program does not build: {}; {hint}", first.trim())))
            }
        }
    }

    fn start(&self, word: &str, placement: &Placement, side: Side) -> Result<(RunningProgram, String), Failure> {
        let mut command = Command::new(&self.program);
        command.arg(word);
        if let Some(variable) = self.kind.variable() {
            command.env(variable, "1");
        }
        let role = if side == Side::Server { "server" } else { "client" };
        RunningProgram::start(&format!("{}'s {role}", self.kind.name()), command, placement, side)
    }

    /// Starts a server and a client that makes calls of one operation.
    pub(crate) fn calls(
        &self,
        operation: MeasuredOperation,
        placement: &Placement,
    ) -> Result<AlternativeCalls, Failure> {
        let (server, reference) = self.start("--serve", placement, Side::Server)?;
        let client = self.start(&reference, placement, Side::Client)?.0;
        let name = format!("{}'s client", self.kind.name());
        let calls = PeerCalls { name, client, operation, how: PeerInvocation::Stubs, server: server.pid() };
        Ok(AlternativeCalls { kind: self.kind, server, calls })
    }
}

/// Calls of an alternative's client to its server.
#[derive(Debug)]
pub(crate) struct AlternativeCalls {
    kind: Alternative,
    server: RunningProgram,
    calls: PeerCalls,
}

impl MeasuredSubject for AlternativeCalls {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        let polls = self.kind == Alternative::Iceoryx2Polling;
        // The server polls only during these calls, because it would take processor time from the
        // other variants.
        if polls {
            self.server.tell("poll")?;
        }
        let whole = self.calls.run(warm_up, count, into);
        if polls {
            self.server.tell("rest")?;
        }
        whole
    }

    fn client_pid(&self) -> Option<u32> {
        self.calls.client_pid()
    }

    fn server_pid(&self) -> Option<u32> {
        self.calls.server_pid()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_alternatives_are_in_the_package() {
        let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../interop/peers/rpc");
        let manifest = std::fs::read_to_string(package.join("Cargo.toml")).unwrap();
        for kind in Alternative::ALL {
            let program = kind.program();
            assert!(package.join(format!("src/bin/{program}.rs")).is_file(), "{program}");
            assert!(manifest.contains(&format!("required-features = [\"{program}\"]")), "{program}");
            if let Some(variable) = kind.variable() {
                let source = std::fs::read_to_string(package.join(format!("src/bin/{program}.rs"))).unwrap();
                assert!(source.contains(&format!("var_os(\"{variable}\")")), "{variable}");
            }
        }
    }

    #[test]
    fn build_without_the_package_names_the_option_for_its_folder() {
        let failure = BuiltAlternative::build(Alternative::Tarpc, Path::new("/nonexistent")).unwrap_err();
        assert!(failure.to_string().contains("--peers"), "{failure}");
    }
}
