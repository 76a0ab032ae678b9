//! Checks that the guides for users of omniORB, TAO and JacORB show the programs of this example,
//! and runs the programs with the arguments and the configurations of the pages.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use corelane::rt::{RtConfig, SchedulingClass};
use corelane::{Limits, Orb, SystemException};
use corelane_services::naming::{NamingConfig, name};
use corelane_wire::ior::ProfileEndpoint;
use guide::{Echo, EchoRef};

corelane::include_idl!("echo");

struct Guide {
    page: &'static str,
    file: &'static str,
    name: &'static str,
    program: &'static str,
}

const OMNIORB: Guide = Guide {
    page: "from-omniorb.md",
    file: "from_omniorb.rs",
    name: "guide-omniorb",
    program: env!("CARGO_BIN_EXE_guide-omniorb"),
};
const TAO: Guide =
    Guide { page: "from-tao.md", file: "from_tao.rs", name: "guide-tao", program: env!("CARGO_BIN_EXE_guide-tao") };
const JACORB: Guide = Guide {
    page: "from-jacorb.md",
    file: "from_jacorb.rs",
    name: "guide-jacorb",
    program: env!("CARGO_BIN_EXE_guide-jacorb"),
};

/// The ordinary scheduling class, because ordinary users cannot run threads at fixed priorities.
const FAIR: [&str; 2] = ["-ORBrealTime.scheduling", "fair"];
const LISTEN: [&str; 2] = ["-ORBlisten", "tcp:127.0.0.1:0"];

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

impl Guide {
    fn block(&self, language: &str) -> String {
        let page = read(&format!("../../docs/{}", self.page));
        let open = format!("\n```{language}\n");
        let blocks: Vec<&str> = page.split(&open).skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
        let [block] = blocks[..] else { panic!("{} has {} blocks of {language}", self.page, blocks.len()) };
        block.to_owned()
    }

    /// Returns the arguments of the program and its output, as the page shows them.
    fn session(&self) -> (Vec<String>, String) {
        let session = self.block("console");
        let (command, output) = session.split_once('\n').unwrap();
        let begin = format!("$ cargo run -p corelane-example-guides --bin {} -- ", self.name);
        let words = command.strip_prefix(&begin).unwrap_or_else(|| panic!("{command}"));
        (words.split(' ').map(str::to_owned).collect(), output.to_owned())
    }

    fn command(&self, arguments: &[impl AsRef<str>]) -> Command {
        let mut command = Command::new(self.program);
        command.args(arguments.iter().map(AsRef::as_ref));
        command
    }

    fn serve(&self, arguments: &[impl AsRef<str>]) -> Server {
        let mut child = self.command(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut server = Server { child, reference: String::new() };
        output.read_line(&mut server.reference).unwrap();
        assert!(server.reference.starts_with("IOR:"), "{}", server.reference);
        server
    }

    /// Writes the configuration of the page to a file, with `changes` of its text. Returns the path
    /// of the file.
    fn configuration(&self, changes: &[(&str, &str)]) -> String {
        let mut text = self.block("toml");
        for (old, new) in changes {
            assert!(text.contains(old), "{} has no {old}", self.page);
            text = text.replace(old, new);
        }
        let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.toml", self.name));
        fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    }
}

struct Server {
    child: Child,
    reference: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn echo(&self, client: &Orb) -> EchoRef {
        client.string_to_reference(self.reference.trim()).unwrap()
    }
}

#[test]
fn pages_show_the_files_of_the_example() {
    for guide in [OMNIORB, TAO, JACORB] {
        assert_eq!(guide.block("rust"), read(&format!("src/{}", guide.file)), "{}", guide.page);
        assert_eq!(guide.block("idl"), read("echo.idl"), "{}", guide.page);
    }
}

#[test]
fn server_of_the_omniorb_guide_answers_at_its_reference_and_its_corbaloc_url() {
    let (arguments, shown) = OMNIORB.session();
    assert_eq!((arguments.join(" ").as_str(), shown.as_str()), ("-ORBlisten tcp:127.0.0.1:2810", "IOR:...\n"));
    let server = OMNIORB.serve(&LISTEN);
    let client = Orb::new().unwrap();
    let echo = server.echo(&client);
    assert_eq!(echo.say("Hello").unwrap(), "Hello");
    let endpoints = echo.as_object().ior().known_profiles().next().unwrap().endpoints();
    let [ProfileEndpoint::Inet { port, .. }, ..] = endpoints[..] else { panic!("{endpoints:?}") };
    let shown = "corbaloc::1.2@127.0.0.1:2810/Echo";
    assert!(read("src/from_omniorb.rs").contains(shown));
    let url = shown.replace("2810", &port.to_string());
    let by_url: EchoRef = client.string_to_reference(&url).unwrap();
    assert_eq!(by_url.say("Hello").unwrap(), "Hello");
}

#[test]
fn server_of_the_omniorb_guide_has_the_limit_of_the_configuration() {
    let file = OMNIORB.configuration(&[]);
    let arguments = ["-ORBconfig", &file, LISTEN[0], LISTEN[1]];
    let client = Orb::builder().limits(Limits { max_message_size: 64 << 20, ..Limits::default() }).build().unwrap();
    for (server, is_accepted) in [(OMNIORB.serve(&LISTEN), true), (OMNIORB.serve(&arguments), false)] {
        let echo = server.echo(&client);
        assert_eq!(echo.say("Hello").unwrap(), "Hello");
        assert_eq!(echo.say(&"x".repeat(3 << 20)).is_ok(), is_accepted);
    }
}

fn say_at(server: &Server, priority: i16) -> String {
    let client = Orb::builder().real_time(RtConfig::default().scheduling(SchedulingClass::Fair)).build().unwrap();
    client.real_time().current().unwrap().set_priority(priority).unwrap();
    server.echo(&client).say("Hello").unwrap()
}

#[test]
fn each_lane_of_the_tao_guide_serves_its_priority() {
    let (arguments, shown) = TAO.session();
    assert_eq!((arguments.join(" "), shown.as_str()), (FAIR.join(" "), "IOR:...\n"));
    let server = TAO.serve(&FAIR);
    assert_eq!(say_at(&server, 1000), "Hello at priority 1000");
    assert_eq!(say_at(&server, 30000), "Hello at priority 30000");
}

#[test]
fn lanes_of_the_tao_guide_can_come_from_the_configuration() {
    // The changed priority shows that the server takes its lanes from the file.
    let file = TAO.configuration(&[("priority = 30000", "priority = 29000")]);
    let listen = ["-ORBrealTime.pool.flight.lane.high.listen", LISTEN[1]];
    let server = TAO.serve(&[&["-ORBconfig", &file][..], &FAIR, &LISTEN, &listen].concat());
    assert_eq!(say_at(&server, 1000), "Hello at priority 1000");
    assert_eq!(say_at(&server, 29000), "Hello at priority 29000");
}

struct Shop {
    _orb: Orb,
    address: String,
}

struct Parrot;

impl Echo for Parrot {
    fn say(&self, words: &str) -> Result<String, SystemException> {
        Ok(words.to_owned())
    }
}

/// Serves names. An echo object is bound to the name that the guide uses.
fn shop() -> Shop {
    let orb = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    let naming = NamingConfig::new().serve(&orb).unwrap();
    let echo = orb.root_poa().activate(&Echo::servant(Parrot)).unwrap();
    orb.root_poa().manager().activate().unwrap();
    naming.reference().bind_new_context(&name::to_name("shop").unwrap()).unwrap();
    naming.reference().bind(&name::to_name("shop/echo").unwrap(), Some(&echo)).unwrap();
    let address = orb.endpoints()[0].to_string();
    Shop { _orb: orb, address: address.strip_prefix("tcp:").unwrap().to_owned() }
}

fn checked(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn client_of_the_jacorb_guide_finds_its_object_by_name() {
    let shop = shop();
    let (arguments, shown) = JACORB.session();
    let here = format!("@{}/", shop.address);
    let arguments: Vec<String> = arguments.iter().map(|word| word.replace("@127.0.0.1/", &here)).collect();
    assert!(arguments[1].contains(&here), "{arguments:?}");
    assert_eq!(checked(&JACORB.command(&arguments).output().unwrap()), shown);
    let output =
        JACORB.command(&["-ORBInitRef", "NameService=corbaloc::1.2@127.0.0.1:1/NameService"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("127.0.0.1:1"), "{said}");
}

#[test]
fn client_of_the_jacorb_guide_finds_the_name_service_of_its_configuration() {
    let shop = shop();
    let file = JACORB.configuration(&[("names.example/", &format!("{}/", shop.address))]);
    let arguments = ["-ORBconfig", &file, LISTEN[0], LISTEN[1]];
    assert_eq!(checked(&JACORB.command(&arguments).output().unwrap()), JACORB.session().1);
}

#[test]
fn unknown_option_of_a_guide_is_refused_with_the_nearest_one() {
    let output = OMNIORB.command(&["-ORBlistn", "tcp:127.0.0.1:0"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("-ORBlisten"), "{said}");
}
