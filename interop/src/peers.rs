//! How each ORB's programs are built and started.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use crate::process;
pub use crate::suite::options::Characters;

/// An ORB with a server and a client for interop.idl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Orb {
    /// omniORB, in C++.
    OmniOrb,
    /// JacORB, in Java.
    JacOrb,
    /// Corelane: the programs of this package.
    Corelane,
}

impl Orb {
    /// The name in interop/skips and interop/peers.
    pub fn name(self) -> &'static str {
        match self {
            Orb::OmniOrb => "omniorb",
            Orb::JacOrb => "jacorb",
            Orb::Corelane => "corelane",
        }
    }
}

/// How a client talks to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// The name in interop/skips.
    pub name: &'static str,
    /// The server publishes and speaks at most GIOP 1.x.
    pub server_minor: u8,
    /// The client speaks at most GIOP 1.x, and publishes that for callbacks. JacORB's client does the latter only: it speaks what
    /// the server publishes.
    pub client_minor: u8,
    /// Characters in narrow strings.
    pub characters: Characters,
}

impl Variant {
    /// GIOP 1.2, ASCII.
    pub const GIOP_1_2: Self =
        Self { name: "giop-1.2", server_minor: 2, client_minor: 2, characters: Characters::Ascii };
    /// The client speaks no more than GIOP 1.1.
    pub const GIOP_1_1: Self = Self { name: "giop-1.1", client_minor: 1, ..Self::GIOP_1_2 };
    /// The client speaks no more than GIOP 1.0.
    pub const GIOP_1_0: Self = Self { name: "giop-1.0", client_minor: 0, ..Self::GIOP_1_2 };
    /// The server publishes a profile of IIOP 1.1.
    pub const PUBLISHED_1_1: Self = Self { name: "published-1.1", server_minor: 1, ..Self::GIOP_1_2 };
    /// The server publishes a profile of IIOP 1.0.
    pub const PUBLISHED_1_0: Self = Self { name: "published-1.0", server_minor: 0, ..Self::GIOP_1_2 };
    /// The client knows no more than a plain key.
    pub const CORBALOC: Self = Self { name: "corbaloc", ..Self::GIOP_1_2 };
    /// GIOP 1.2, ISO 8859-1 in narrow strings.
    pub const LATIN1: Self = Self { name: "latin1", characters: Characters::Latin1, ..Self::GIOP_1_2 };
    /// GIOP 1.2, ISO 8859-1 in narrow strings, where Corelane's native code set is another.
    pub const LATIN1_STRINGS: Self =
        Self { name: "latin1-strings", characters: Characters::Latin1Strings, ..Self::GIOP_1_2 };
    /// GIOP 1.2, all of Unicode in narrow strings.
    pub const UNICODE: Self = Self { name: "unicode", characters: Characters::Unicode, ..Self::GIOP_1_2 };
}

/// The peers, built below one folder.
#[derive(Debug)]
pub struct Peers {
    built: PathBuf,
    programs: PathBuf,
}

impl Peers {
    /// Builds all peers below `folder` if they are not up to date; the first call does so for the whole process.
    ///
    /// # Errors
    /// A tool or library is missing, or a peer does not build; the text has the output.
    pub fn build(folder: &Path) -> Result<&'static Self, String> {
        static PEERS: OnceLock<Result<Peers, String>> = OnceLock::new();
        let built = PEERS.get_or_init(|| {
            for orb in [Orb::OmniOrb, Orb::JacOrb] {
                make(orb, &folder.join(orb.name()))?;
            }
            Ok(Peers { built: folder.to_path_buf(), programs: programs()? })
        });
        built.as_ref().map_err(Clone::clone)
    }

    /// The command that starts an ORB's server, its reference file not yet named. Port 0 lets the system choose one.
    pub fn server(&self, orb: Orb, variant: Variant, port: u16) -> Command {
        let mut command = match orb {
            Orb::OmniOrb => self.omniorb("server", variant, variant.server_minor, port),
            Orb::JacOrb => self.jacorb("peer.Server", variant, variant.server_minor, port),
            Orb::Corelane => self.corelane("corelane-interop-server", variant, variant.server_minor, port),
        };
        command.args(["--life", "240"]);
        command
    }

    /// The command that starts an ORB's client, its reference not yet named. The port is the one for callbacks.
    pub fn client(&self, orb: Orb, variant: Variant, port: u16) -> Command {
        let mut command = match orb {
            Orb::OmniOrb => self.omniorb("client", variant, variant.client_minor, port),
            Orb::JacOrb => self.jacorb("peer.Client", variant, variant.client_minor, port),
            Orb::Corelane => self.corelane("corelane-interop-client", variant, variant.client_minor, port),
        };
        command.args(["--chars", variant.characters.name()]);
        command
    }

    /// The command of a peer's program for values.idl, without what it is to do.
    pub fn values(&self, orb: Orb) -> Command {
        match orb {
            Orb::OmniOrb => self.omniorb("values", Variant::GIOP_1_2, 2, 0),
            Orb::JacOrb => self.jacorb("peer.ValuePeer", Variant::GIOP_1_2, 2, 0),
            Orb::Corelane => unreachable!("the tests are Corelane's side"),
        }
    }

    fn corelane(&self, program: &str, variant: Variant, minor: u8, port: u16) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command.args(["--listen", &format!("tcp:127.0.0.1:{port}"), "--giop", &format!("1.{minor}")]);
        if variant.characters == Characters::Latin1 {
            command.args(["--native", "latin1"]);
        }
        command
    }

    fn omniorb(&self, program: &str, variant: Variant, minor: u8, port: u16) -> Command {
        let mut command = Command::new(self.built.join("omniorb").join(program));
        let port = if port == 0 { String::new() } else { port.to_string() };
        command.args(["-ORBendPoint", &format!("giop:tcp:127.0.0.1:{port}")]);
        command.args(["-ORBmaxGIOPVersion", &format!("1.{minor}")]);
        if variant.characters == Characters::Unicode {
            command.args(["-ORBnativeCharCodeSet", "UTF-8"]);
        }
        command
    }

    fn jacorb(&self, class: &str, variant: Variant, minor: u8, port: u16) -> Command {
        let built = self.built.join("jacorb");
        let native = if variant.characters == Characters::Unicode { "UTF8" } else { "ISO8859_1" };
        let mut command = Command::new("java");
        // The quickest start, which is most of the time these programs run.
        command.args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]);
        command.arg("-cp").arg(format!("{0}/classes:{0}/lib/*", built.display()));
        command.arg(format!("-Djacorb.native_char_codeset={native}")).arg(format!("-DOAPort={port}"));
        command.arg(format!("-Djacorb.giop_minor_version={minor}"));
        command.arg(class);
        command
    }
}

/// Where cargo puts this package's programs: beside a test's folder, or beside another program.
fn programs() -> Result<PathBuf, String> {
    let this = std::env::current_exe().map_err(|error| format!("looking for this package's programs: {error}"))?;
    let found = this.ancestors().skip(1).take(2).find(|folder| folder.join("corelane-interop-server").exists());
    found
        .map(Path::to_path_buf)
        .ok_or_else(|| "corelane-interop-server is not built: run this by `cargo test`".to_owned())
}

fn make(orb: Orb, out: &Path) -> Result<(), String> {
    fs::create_dir_all(out).map_err(|error| format!("{}: {error}", out.display()))?;
    let mut command = Command::new("make");
    command.arg("-C").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(orb.name()));
    command.arg(format!("OUT={}", out.display()));
    // Ten minutes: the first build on a new machine fetches JacORB.
    let hint = "\n`cargo xtask test` installs what the peers need, or names it";
    let finished = process::run(command, "make", out, Duration::from_secs(600)).map_err(|trouble| trouble + hint)?;
    if finished.status.success() {
        return Ok(());
    }
    Err(format!("the {} peers do not build: {}\n{}{hint}", orb.name(), finished.status, finished.output))
}
