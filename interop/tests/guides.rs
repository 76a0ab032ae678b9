//! The programs of docs/from-omniorb.md and docs/from-jacorb.md beside programs of other ORBs: a
//! client of omniORB, and the name server of JacORB.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use corelane::Orb;
use corelane_interop::jacorb_names::JacorbNames;
use corelane_interop::{peers, process};
use corelane_services::naming::cos_naming::NamingContextExtRef;
use corelane_services::naming::name;
use corelane_wire::ior::ProfileEndpoint;

fn target() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap()
}

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("interop").join(name);
    fs::create_dir_all(&folder).unwrap();
    folder
}

struct Server {
    child: Child,
    reference: String,
}

impl Server {
    /// Starts a server that prints its reference in its first line.
    fn start(mut command: Command) -> Self {
        let child = command.stdout(Stdio::piped()).spawn().unwrap();
        // The drop of the value ends the child, even after a failed assertion.
        let mut server = Server { child, reference: String::new() };
        let mut line = String::new();
        BufReader::new(server.child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("IOR:"), "{line}");
        line.trim().clone_into(&mut server.reference);
        server
    }

    fn of_guide(name: &str) -> Self {
        let mut command = Command::new(process::guides(target()).join(name));
        command.args(["-ORBlisten", "tcp:127.0.0.1:0"]);
        Self::start(command)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn checked(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn omniorbs_client_calls_the_server_of_the_omniorb_guide() {
    let client = peers::omniorb_guide(&folder("peers")).unwrap_or_else(|trouble| panic!("{trouble}"));
    let server = Server::of_guide("guide-omniorb");
    let orb = Orb::new().unwrap();
    let object = orb.string_to_object(&server.reference).unwrap().unwrap();
    let endpoints = object.ior().known_profiles().next().unwrap().endpoints();
    let [ProfileEndpoint::Inet { port, .. }, ..] = endpoints[..] else { panic!("{endpoints:?}") };
    for reference in [server.reference.clone(), format!("corbaloc::1.2@127.0.0.1:{port}/Echo")] {
        let output = Command::new(client.get_program()).args([&reference, "Hello"]).output().unwrap();
        assert_eq!(checked(&output), "Hello\n");
    }
}

/// Binds the object of the omniORB guide to the name of the JacORB guide, and runs the client of
/// the JacORB guide.
fn client_finds_the_object_at(name_service: &str) {
    let server = Server::of_guide("guide-omniorb");
    let orb = Orb::new().unwrap();
    let root: NamingContextExtRef = orb.string_to_reference(name_service).unwrap();
    let echo = orb.string_to_object(&server.reference).unwrap().unwrap();
    let client = || {
        let mut command = Command::new(process::guides(target()).join("guide-jacorb"));
        command.args(["-ORBInitRef", &format!("NameService={name_service}")]).output().unwrap()
    };
    assert!(!client().status.success(), "the name is not bound");
    root.bind_new_context(&name::to_name("shop").unwrap()).unwrap();
    root.bind(&name::to_name("shop/echo").unwrap(), Some(&echo)).unwrap();
    assert_eq!(checked(&client()), "Hello\n");
}

#[test]
fn client_of_the_jacorb_guide_finds_its_object_at_corelanes_name_server() {
    let mut command = Command::new(process::corelane(target()));
    command.args(["naming", "serve", "--listen", "tcp:127.0.0.1:0"]);
    let names = Server::start(command);
    client_finds_the_object_at(&names.reference);
}

#[test]
fn client_of_the_jacorb_guide_finds_its_object_at_jacorbs_name_server() {
    let names = JacorbNames::start(&folder("peers"), &folder("guide-names"));
    client_finds_the_object_at(names.reference());
}
