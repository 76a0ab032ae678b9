//! The commands that build and start each ORB's programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use crate::process;
pub use crate::suite::options::Characters;

/// An ORB that has a server and a client for interop.idl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Orb {
    /// omniORB, in C++.
    OmniOrb,
    /// JacORB, in Java.
    JacOrb,
    /// GlassFish ORB, in Java.
    GlassFish,
    /// Corelane, in Rust.
    Corelane,
}

impl Orb {
    /// Returns the name of the ORB in interop/skips, which is also the name of its folder in
    /// interop/peers.
    pub fn name(self) -> &'static str {
        match self {
            Orb::OmniOrb => "omniorb",
            Orb::JacOrb => "jacorb",
            Orb::GlassFish => "glassfish",
            Orb::Corelane => "corelane",
        }
    }
}

/// The protocol settings of a client and a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Name in interop/skips.
    pub name: &'static str,
    /// Highest minor version of GIOP 1.x that the server supports and publishes.
    pub server_minor: u8,
    /// Highest minor version of GIOP 1.x that the client uses, and publishes for callbacks.
    /// JacORB's client calls in the version that the server publishes.
    pub client_minor: u8,
    /// Characters of narrow strings.
    pub characters: Characters,
}

impl Variant {
    /// GIOP 1.2, ASCII.
    pub const GIOP_1_2: Self =
        Self { name: "giop-1.2", server_minor: 2, client_minor: 2, characters: Characters::Ascii };
    /// The client supports at most GIOP 1.1.
    pub const GIOP_1_1: Self = Self { name: "giop-1.1", client_minor: 1, ..Self::GIOP_1_2 };
    /// The client supports at most GIOP 1.0.
    pub const GIOP_1_0: Self = Self { name: "giop-1.0", client_minor: 0, ..Self::GIOP_1_2 };
    /// The server publishes a profile of IIOP 1.1.
    pub const PUBLISHED_1_1: Self = Self { name: "published-1.1", server_minor: 1, ..Self::GIOP_1_2 };
    /// The server publishes a profile of IIOP 1.0.
    pub const PUBLISHED_1_0: Self = Self { name: "published-1.0", server_minor: 0, ..Self::GIOP_1_2 };
    /// The client gets a corbaloc URL with the server's plain key.
    pub const CORBALOC: Self = Self { name: "corbaloc", ..Self::GIOP_1_2 };
    /// GIOP 1.2; ISO 8859-1 in narrow characters and strings, and as Corelane's native code set.
    pub const LATIN1: Self = Self { name: "latin1", characters: Characters::Latin1, ..Self::GIOP_1_2 };
    /// GIOP 1.2, with ISO 8859-1 in narrow strings. Corelane's native code set is not ISO 8859-1.
    pub const LATIN1_STRINGS: Self =
        Self { name: "latin1-strings", characters: Characters::Latin1Strings, ..Self::GIOP_1_2 };
    /// GIOP 1.2, with GlassFish's default limit of the message size.
    pub const SMALL_MESSAGES: Self = Self { name: "small-messages", ..Self::GIOP_1_2 };
    /// GIOP 1.2; all of Unicode in narrow strings.
    pub const UNICODE: Self = Self { name: "unicode", characters: Characters::Unicode, ..Self::GIOP_1_2 };
}

/// The folders of the built programs.
#[derive(Debug)]
pub struct Peers {
    built: PathBuf,
    programs: PathBuf,
}

impl Peers {
    /// On the first call, builds the peers below `folder` that are not up to date. Later calls
    /// return the result of the first.
    ///
    /// # Errors
    ///
    /// A tool or library is missing, or a peer does not build.
    pub fn build(folder: &Path) -> Result<&'static Self, String> {
        static PEERS: OnceLock<Result<Peers, String>> = OnceLock::new();
        let built = PEERS.get_or_init(|| {
            for orb in [Orb::OmniOrb, Orb::JacOrb, Orb::GlassFish] {
                make(orb, folder, "all")?;
            }
            Ok(Peers { built: folder.to_path_buf(), programs: programs()? })
        });
        built.as_ref().map_err(Clone::clone)
    }

    /// Returns the command that starts an ORB's server, without the options for the reference file.
    /// With port 0 the kernel chooses the port.
    pub fn server_command(&self, orb: Orb, variant: Variant, port: u16) -> Command {
        let mut command = match orb {
            Orb::OmniOrb => self.omniorb("server", variant, variant.server_minor, port),
            Orb::JacOrb => self.jacorb("peer.Server", variant, variant.server_minor, port),
            Orb::GlassFish => self.glassfish("peer.Server", variant, variant.server_minor, port),
            Orb::Corelane => self.corelane("corelane-interop-server", variant, variant.server_minor, port),
        };
        command.args(["--life", "240"]);
        command
    }

    /// Returns the command that starts an ORB's client, without the server's reference. The client
    /// listens for callbacks at `port`.
    pub fn client_command(&self, orb: Orb, variant: Variant, port: u16) -> Command {
        let mut command = match orb {
            Orb::OmniOrb => self.omniorb("client", variant, variant.client_minor, port),
            Orb::JacOrb => self.jacorb("peer.Client", variant, variant.client_minor, port),
            Orb::GlassFish => self.glassfish("peer.Client", variant, variant.client_minor, port),
            Orb::Corelane => self.corelane("corelane-interop-client", variant, variant.client_minor, port),
        };
        command.args(["--chars", variant.characters.name()]);
        command
    }

    /// Returns the command of a peer's program for values.idl, without its mode. Panics for
    /// GlassFish and Corelane, which have no such program.
    pub fn values_command(&self, orb: Orb) -> Command {
        match orb {
            Orb::OmniOrb => self.omniorb("values", Variant::GIOP_1_2, 2, 0),
            Orb::JacOrb => self.jacorb("peer.ValuePeer", Variant::GIOP_1_2, 2, 0),
            Orb::GlassFish => unreachable!("GlassFish has no program for values.idl"),
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
        let native = if variant.characters == Characters::Unicode { "UTF8" } else { "ISO8859_1" };
        let settings = [
            format!("-Djacorb.native_char_codeset={native}"),
            format!("-DOAPort={port}"),
            format!("-Djacorb.giop_minor_version={minor}"),
        ];
        self.java(Orb::JacOrb, &settings, class)
    }

    fn glassfish(&self, class: &str, variant: Variant, minor: u8, port: u16) -> Command {
        // The first of the two code sets is preferred: 0x00010001 is ISO 8859-1, and 0x05010001 is
        // UTF-8.
        let sets =
            if variant.characters == Characters::Unicode { "0x05010001,0x00010001" } else { "0x00010001,0x05010001" };
        let mut settings = vec![
            format!("-Dcom.sun.corba.ee.codeset.charsets={sets}"),
            format!("-Dcom.sun.corba.ee.ORBServerPort={port}"),
            format!("-Dcom.sun.corba.ee.giop.ORBGIOPVersion=1.{minor}"),
            // GlassFish's management library fails on newer Java virtual machines.
            "-Dorg.glassfish.gmbal.no.multipleUpperBoundsException=true".to_owned(),
        ];
        if variant != Variant::SMALL_MESSAGES {
            settings.push(format!("-Dcom.sun.corba.ee.transport.ORBMaximumReadByteBufferSize={}", 64 << 20));
        }
        self.java(Orb::GlassFish, &settings, class)
    }

    fn java(&self, orb: Orb, settings: &[String], class: &str) -> Command {
        let built = self.built.join(orb.name());
        let mut command = java();
        command.arg("-cp").arg(format!("{0}/classes:{0}/lib/*", built.display()));
        command.args(settings).arg(class);
        command
    }
}

/// On the first call, builds omniORB's program for event channels below `folder`. Returns the
/// program's command without the mode.
///
/// # Errors
///
/// A tool or library is missing, or the program does not build.
pub fn omniorb_events(folder: &Path) -> Result<Command, String> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let program = BUILT.get_or_init(|| {
        make(Orb::OmniOrb, folder, "events")?;
        Ok(folder.join(Orb::OmniOrb.name()).join("events"))
    });
    let mut command = Command::new(program.as_ref().map_err(Clone::clone)?);
    command.args(["-ORBendPoint", "giop:tcp:127.0.0.1:"]);
    Ok(command)
}

/// On the first call, builds JacORB's program for event channels below `folder`. Returns the
/// program's command without the mode.
///
/// # Errors
///
/// A tool or library is missing, or the program does not build.
pub fn jacorb_events(folder: &Path) -> Result<Command, String> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        make(Orb::JacOrb, folder, "events")?;
        Ok(folder.join(Orb::JacOrb.name()))
    });
    let built = built.as_ref().map_err(Clone::clone)?;
    let mut command = java();
    command.arg("-cp").arg(format!("{0}/events:{0}/services/*", built.display())).arg("peer.EventPeer");
    Ok(command)
}

/// On the first call, builds omniORB's client for interop/naming.table below `folder`. Returns the
/// client's command without the table.
///
/// # Errors
///
/// A tool or library is missing, or the program does not build.
pub fn omniorb_naming(folder: &Path) -> Result<Command, String> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let program = BUILT.get_or_init(|| {
        make(Orb::OmniOrb, folder, "naming")?;
        Ok(folder.join(Orb::OmniOrb.name()).join("naming"))
    });
    Ok(Command::new(program.as_ref().map_err(Clone::clone)?))
}

/// On the first call, builds JacORB's client for interop/naming.table below `folder`. Returns the
/// client's command without the table.
///
/// # Errors
///
/// A tool or library is missing, or the program does not build.
pub fn jacorb_naming(folder: &Path) -> Result<Command, String> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        make(Orb::JacOrb, folder, "naming")?;
        Ok(folder.join(Orb::JacOrb.name()))
    });
    let built = built.as_ref().map_err(Clone::clone)?;
    let mut command = java_of_jacorb();
    command.arg("-cp").arg(format!("{0}/naming:{0}/lib/*", built.display())).arg("peer.NamingPeer");
    Ok(command)
}

/// Fetches JacORB below `folder`, and returns the command of the program that lists a name server,
/// without its options.
///
/// # Errors
///
/// A tool is missing, or JacORB cannot be fetched.
pub fn jacorb_context_lister(folder: &Path) -> Result<Command, String> {
    make(Orb::JacOrb, folder, "libraries")?;
    let mut command = java_of_jacorb();
    command.arg("-cp").arg(format!("{}/lib/*", folder.join(Orb::JacOrb.name()).display()));
    command.arg("org.jacorb.naming.ContextLister");
    Ok(command)
}

/// Builds omniORB's client for the programs of the guides below `folder`, and returns its command
/// without the reference.
///
/// # Errors
///
/// A tool or library is missing, or the program does not build.
pub fn omniorb_guide(folder: &Path) -> Result<Command, String> {
    make(Orb::OmniOrb, folder, "guide")?;
    Ok(Command::new(folder.join(Orb::OmniOrb.name()).join("guide")))
}

/// Fetches JacORB below `folder`, and returns the command of its name server with an empty store in
/// `store`. The server listens at a free port and writes its reference to the file `reference`.
///
/// # Errors
///
/// A tool is missing, or JacORB cannot be fetched.
pub fn jacorb_name_server(folder: &Path, store: &Path, reference: &Path) -> Result<Command, String> {
    make(Orb::JacOrb, folder, "libraries")?;
    let mut command = java_of_jacorb();
    command.arg("-cp").arg(format!("{}/lib/*", folder.join(Orb::JacOrb.name()).display()));
    command.args(["-DOAAddress=iiop://127.0.0.1:0", "-Djacorb.naming.purge=off"]);
    command.arg(format!("-Djacorb.naming.db_dir={}", store.display()));
    command.arg(format!("-Djacorb.naming.ior_filename={}", reference.display()));
    command.arg("org.jacorb.naming.NameServer");
    Ok(command)
}

/// Returns a command of Java that uses JacORB in programs that do not name their ORB.
fn java_of_jacorb() -> Command {
    let mut command = java();
    command.arg("-Dorg.omg.CORBA.ORBClass=org.jacorb.orb.ORB");
    command.arg("-Dorg.omg.CORBA.ORBSingletonClass=org.jacorb.orb.ORBSingleton");
    command
}

fn java() -> Command {
    let mut command = Command::new("java");
    // The programs spend most of their time in the start of the virtual machine, which these
    // options shorten.
    command.args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]);
    command
}

/// Returns the folder of this package's programs. It is the folder of the running program or, if
/// that is a test, the parent folder.
fn programs() -> Result<PathBuf, String> {
    let this = std::env::current_exe().map_err(|error| format!("looking for this package's programs: {error}"))?;
    let found = this.ancestors().skip(1).take(2).find(|folder| folder.join("corelane-interop-server").exists());
    found
        .map(Path::to_path_buf)
        .ok_or_else(|| "corelane-interop-server is not built: run this by `cargo test`".to_owned())
}

fn make(orb: Orb, folder: &Path, target: &str) -> Result<(), String> {
    let out = &folder.join(orb.name());
    fs::create_dir_all(out).map_err(|error| format!("{}: {error}", out.display()))?;
    let mut command = Command::new("make");
    command.arg("-C").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(orb.name()));
    command.arg(target).arg(format!("OUT={}", out.display()));
    command.arg(format!("JACORB={}", folder.join(Orb::JacOrb.name()).display()));
    let hint = "\n`cargo xtask test` installs what the peers need, or names it";
    let finished = process::run(command, "make", out, Duration::from_secs(600)).map_err(|trouble| trouble + hint)?;
    if finished.status.success() {
        return Ok(());
    }
    Err(format!("the {} peers do not build: {}\n{}{hint}", orb.name(), finished.status, finished.output))
}
