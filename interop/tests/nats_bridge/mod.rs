//! Event channels of two processes that are joined by NATS JetStream: `cargo xtask interop --nats`
//! runs these tests with the package nats-server.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use corelane::{Dispatch, Orb, PoolConfig, SystemException};
use corelane_interop::process;
use corelane_services::events::RtecEventData;
use corelane_services::events::corelane_events::DurableChannelRef;
use corelane_services::events::rtec_event_channel_admin::{ConsumerQOS, Dependency, EventChannelRef};
use corelane_services::events::rtec_event_comm::{Event, EventHeader, PushConsumer, PushConsumerRef};
use corelane_sys::lock::{LockScope, Mutex};

/// Time limit of each wait, far above the usual duration.
const GENEROUS: Duration = Duration::from_secs(120);
/// Number of rounds of the test. At the end of each round, a bridge or the server of NATS is
/// killed.
const ROUNDS: i32 = 18;
/// Number of events that each supplier publishes in a round.
const EVENTS: i32 = 20;

fn target() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap()
}

fn new_folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("interop").join("nats").join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn corelane(words: &[&str]) -> Command {
    let mut command = Command::new(process::corelane(target()));
    command.arg("events").args(words);
    command
}

fn bridge(words: &[&str]) -> Command {
    let mut command = Command::new(process::nats_bridge(target()));
    command.args(words);
    command
}

/// A process that is killed when the value is dropped.
struct Running {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Running {
    fn start(mut command: Command) -> Self {
        let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut process = started.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let output = BufReader::new(process.stdout.take().unwrap());
        Running { process, output }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Ends the program with SIGTERM, and returns what it still prints.
    fn terminate(&mut self) -> String {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").arg(&id).status().unwrap().success());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        assert!(self.process.wait().unwrap().success(), "{rest}");
        rest
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + GENEROUS;
    while !condition() {
        assert!(Instant::now() < deadline, "not in {GENEROUS:?}: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

struct Nats {
    folder: PathBuf,
    port: u16,
    running: Running,
}

impl Nats {
    fn start(name: &str) -> Self {
        let (folder, port) = (new_folder(name), free_port());
        let running = Self::run(&folder, port);
        Nats { folder, port, running }
    }

    fn run(folder: &Path, port: u16) -> Running {
        let mut command = Command::new("nats-server");
        command.args(["--addr", "127.0.0.1", "--port", &port.to_string(), "--jetstream", "--store_dir"]).arg(folder);
        command.arg("--log").arg(folder.join("log"));
        let running = Running::start(command);
        wait_until("nats-server listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        running
    }

    fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    fn kill_and_restart(&mut self) {
        self.running.kill();
        self.running = Self::run(&self.folder, self.port);
    }
}

/// The source and the number of each event.
type Events = Arc<Mutex<Vec<(i32, i32)>>>;

struct Consumer(Events);

impl PushConsumer for Consumer {
    fn push(&self, data: &[Event]) -> Result<(), SystemException> {
        let event = |event: &Event| {
            let number = event.data.payload[..].try_into().map_or(-1, i32::from_be_bytes);
            (event.header.source, number)
        };
        self.0.lock().extend(data.iter().map(event));
        Ok(())
    }

    fn disconnect_push_consumer(&self) -> Result<(), SystemException> {
        Ok(())
    }
}

/// A server with a durable channel, a consumer, and the bridge of the channel.
struct Site {
    name: &'static str,
    _server: Running,
    url: String,
    durable: DurableChannelRef,
    got: Events,
    bridge: Running,
}

impl Site {
    fn start(orb: &Orb, name: &'static str, nats: &Nats) -> Self {
        let store = nats.folder.join(format!("{name}.db"));
        let mut command = corelane(&["serve", "--listen", "tcp:127.0.0.1:0", "--channel", "flight", "--store"]);
        command.arg(store);
        let mut server = Running::start(command);
        server.line();
        let rtec = server.line();
        let url = rtec.strip_suffix(".rtec").unwrap_or_else(|| panic!("no URL: {rtec}")).to_owned();
        let durable = orb.string_to_reference(&url).unwrap();
        let channel: EventChannelRef = orb.string_to_reference(&rtec).unwrap();
        let got = Events::new(Mutex::new("test events", LockScope::Orb, Vec::new()));
        let consumer = orb.root_poa().activate(&PushConsumer::servant(Consumer(Arc::clone(&got)))).unwrap();
        let proxy = channel.for_consumers().unwrap().unwrap().obtain_push_supplier().unwrap().unwrap();
        let mut wanted = Dependency::default();
        wanted.event.header.r#type = 16;
        let qos = ConsumerQOS { dependencies: vec![wanted], is_gateway: false };
        proxy.connect_push_consumer(Some(&PushConsumerRef::unchecked_narrow(&consumer)), &qos).unwrap();
        let bridge = Self::run_bridge(name, &url, nats);
        Site { name, _server: server, url, durable, got, bridge }
    }

    fn run_bridge(name: &str, url: &str, nats: &Nats) -> Running {
        Running::start(bridge(&["--server", &nats.url(), "--name", name, url]))
    }

    fn kill_and_restart_bridge(&mut self, nats: &Nats) {
        self.bridge.kill();
        self.bridge = Self::run_bridge(self.name, &self.url, nats);
    }

    fn publish(&self, source: i32, number: i32) {
        for event_type in [16, 17] {
            // No consumer wants events of type 17. Their numbers are negative, so that the test
            // notices if such an event is delivered.
            let number = if event_type == 16 { number } else { -number };
            let header = EventHeader { r#type: event_type, source, ttl: 1, ..EventHeader::default() };
            let data = RtecEventData { payload: number.to_be_bytes().to_vec().into(), ..RtecEventData::default() };
            self.durable.publish_event(&Event { header, data }).unwrap();
        }
    }

    fn numbers_of(&self, source: i32) -> Vec<i32> {
        self.got.lock().iter().filter(|event| event.0 == source).map(|event| event.1).collect()
    }
}

fn listening_orb() -> Orb {
    // The only thread keeps the order of the oneways.
    let pool = PoolConfig::default().dispatch(Dispatch::Reactive);
    let orb = Orb::builder().pool(pool).listen("tcp:127.0.0.1:0").build().unwrap();
    orb.root_poa().manager().activate().unwrap();
    orb
}

#[test]
#[ignore = "needs nats-server and a build of the bridge: cargo xtask interop --nats"]
fn wanted_events_arrive_once_and_in_order_over_kills_of_bridges_and_of_nats() {
    let orb = listening_orb();
    let mut nats = Nats::start("kills");
    let mut sites = ["north", "south"].map(|name| Site::start(&orb, name, &nats));
    for round in 0..ROUNDS {
        for number in round * EVENTS + 1..=(round + 1) * EVENTS {
            // Two suppliers at each site.
            for source in 1..=2 {
                sites[0].publish(source, number);
                sites[1].publish(source + 10, number);
            }
        }
        match round % 3 {
            0 => sites[0].kill_and_restart_bridge(&nats),
            1 => nats.kill_and_restart(),
            _ => sites[1].kill_and_restart_bridge(&nats),
        }
        // After one round in four, waits until the bridges have transferred events. So some kills
        // meet bridges that have caught up, and others meet bridges that have not begun.
        if round % 4 == 3 {
            let least = (round / 2 * EVENTS) as usize;
            wait_until("events cross", || sites[1].numbers_of(1).len() >= least);
        }
    }
    let all: Vec<i32> = (1..=ROUNDS * EVENTS).collect();
    let sources = [1, 2, 11, 12];
    for site in &sites {
        wait_until(&format!("all events are at {}", site.name), || site.got.lock().len() >= sources.len() * all.len());
    }
    for site in &mut sites {
        let counts = site.bridge.terminate();
        assert!(counts.contains("refused 0, unreadable 0, deleted messages 0\n"), "{counts}");
    }
    for site in &sites {
        // What the bridges have brought comes before this event.
        site.publish(99, 1);
        wait_until(&format!("the last event is at {}", site.name), || site.numbers_of(99) == [1]);
        for source in sources {
            assert_eq!(site.numbers_of(source), all, "events of {source} at {}", site.name);
        }
    }
    orb.shutdown(true).unwrap();
}

#[test]
#[ignore = "needs nats-server and a build of the bridge: cargo xtask interop --nats"]
fn nats_conforms() {
    let nats = Nats::start("conformance");
    let output = bridge(&["--check", "--server", &nats.url()]).output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!((said.as_str(), output.status.code()), ("the server does what a bridge needs\n", Some(0)));
}

/// Runs the commands of docs/events.md, with free ports in the place of those of the page.
#[test]
#[ignore = "needs nats-server and a build of the bridge: cargo xtask interop --nats"]
fn commands_of_the_documentation_join_two_channels() {
    let page = include_str!("../../../docs/events.md");
    let section = page.split("### Through a backbone\n").nth(1).expect("the section");
    let commands = section.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).expect("the commands");
    let folder = new_folder("commands");
    let ports = [("4222", free_port()), ("7001", free_port()), ("7002", free_port())];
    let (mut running, mut last) = (Vec::new(), String::new());
    for line in commands.lines().filter(|line| !line.starts_with("cargo ")) {
        let replaced = ports.iter().fold(line.to_owned(), |line, (from, to)| line.replace(from, &to.to_string()));
        let line = replaced.split('#').next().unwrap().trim();
        let (line, is_background) = line.strip_suffix(" &").map_or((line, false), |line| (line, true));
        let (program, words) = line.split_once(' ').expect("a command");
        let mut command = match program {
            "corelane" => Command::new(process::corelane(target())),
            "corelane-nats" => Command::new(process::nats_bridge(target())),
            other => Command::new(other),
        };
        command.args(words.split_whitespace()).current_dir(&folder);
        if program == "nats-server" {
            command.stderr(Stdio::null());
        }
        if is_background {
            let mut started = Running::start(command);
            if program == "corelane" {
                started.line();
            }
            running.push(started);
        } else {
            let output = command.output().unwrap();
            last = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
    assert_eq!((running.len(), last.as_str()), (5, "1 type 16 source 0: 0 octets, \"take-off\"\n"));
}
