//! Tests of `corelane events gateway` with two servers and a gateway as processes, some with `kill
//! -9` of the gateway.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use corelane::{Dispatch, Orb, PoolConfig, SystemException};
use corelane_services::events::rtec_event_channel_admin::{
    ConsumerQOS, Dependency, EventChannelRef, ProxyPushConsumerRef, SupplierQOS,
};
use corelane_services::events::rtec_event_comm::{Event, EventHeader, PushConsumer, PushConsumerRef};
use corelane_sys::lock::{LockScope, Mutex};
use serde_json::Value as Json;

/// Time limit of each wait, far above the usual duration.
const GENEROUS: Duration = Duration::from_secs(60);
const NUMBERED: i32 = 16;
const PROBE: i32 = 17;

fn corelane(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_corelane"));
    command.arg("events").args(words).stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

fn run(words: &[&str]) -> Output {
    corelane(words).output().expect("the program starts")
}

struct Running {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Running {
    fn start(words: &[&str]) -> Self {
        let mut process = corelane(words).spawn().expect("the program starts");
        let output = BufReader::new(process.stdout.take().expect("a pipe"));
        Running { process, output }
    }

    /// Starts a server. Returns it with the URL of its channel for TAO's event service.
    fn serve(words: &[&str]) -> (Self, String) {
        let words = [&["serve", "--listen", "tcp:127.0.0.1:0", "--channel", "flight"], words].concat();
        let mut server = Self::start(&words);
        server.line();
        let url = server.line();
        (server, url)
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    /// Reads lines of a gateway until it is connected.
    fn wait_until_connected(&mut self) {
        loop {
            let line = self.line();
            let state: Json = serde_json::from_str(&line).expect("JSON");
            if state["is_connected"] == true {
                return;
            }
        }
    }

    /// Ends the program with SIGTERM, and returns what it still prints.
    fn terminate(mut self) -> String {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").arg(&id).status().expect("kill starts").success());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).expect("the rest");
        assert!(self.process.wait().expect("it ends").success(), "{rest}");
        rest
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[derive(Default)]
struct Got {
    numbers: Vec<i32>,
    probes: BTreeSet<i32>,
}

struct Consumer(Arc<Mutex<Got>>);

impl PushConsumer for Consumer {
    fn push(&self, data: &[Event]) -> Result<(), SystemException> {
        let mut got = self.0.lock();
        for event in data {
            if event.header.r#type == NUMBERED {
                got.numbers.push(event.header.source);
            } else {
                got.probes.insert(event.header.source);
            }
        }
        Ok(())
    }

    fn disconnect_push_consumer(&self) -> Result<(), SystemException> {
        Ok(())
    }
}

struct Peers {
    _orb: Orb,
    supplier: ProxyPushConsumerRef,
    got: Arc<Mutex<Got>>,
}

impl Peers {
    fn new(from: &str, to: &str) -> Self {
        let pool = PoolConfig::default().dispatch(Dispatch::Reactive);
        let orb = Orb::builder().pool(pool).listen("tcp:127.0.0.1:0").build().expect("an ORB");
        orb.root_poa().manager().activate().expect("active");
        let got = Arc::new(Mutex::new("got events", LockScope::Orb, Got::default()));
        let consumer = orb.root_poa().activate(&PushConsumer::servant(Consumer(Arc::clone(&got)))).expect("active");
        let channel = |url: &str| orb.string_to_reference::<EventChannelRef>(url).expect("a channel");
        let proxy = channel(to).for_consumers().unwrap().unwrap().obtain_push_supplier().unwrap().unwrap();
        let dependency = |event_type| Dependency { event: numbered(event_type, 0), rt_info: 0 };
        let dependencies = vec![dependency(NUMBERED), dependency(PROBE)];
        let qos = ConsumerQOS { dependencies, is_gateway: false };
        proxy.connect_push_consumer(Some(&PushConsumerRef::unchecked_narrow(&consumer)), &qos).unwrap();
        let supplier = channel(from).for_suppliers().unwrap().unwrap().obtain_push_consumer().unwrap().unwrap();
        supplier.connect_push_supplier(None, &SupplierQOS::default()).unwrap();
        Peers { _orb: orb, supplier, got }
    }

    /// Pushes a probe until one arrives.
    fn wait_for_probe(&self, mark: i32) {
        self.wait_until(|got| got.probes.contains(&mark), || self.supplier.push(&[numbered(PROBE, mark)]).unwrap());
    }

    fn wait_until(&self, is_reached: impl Fn(&Got) -> bool, meanwhile: impl Fn()) {
        let begun = Instant::now();
        while !is_reached(&self.got.lock()) {
            assert!(begun.elapsed() < GENEROUS, "the events do not arrive");
            meanwhile();
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

fn numbered(event_type: i32, source: i32) -> Event {
    let header = EventHeader { r#type: event_type, source, ttl: 1, ..EventHeader::default() };
    Event { header, ..Event::default() }
}

#[test]
fn gateway_passes_events_shows_its_state_and_ends_at_sigterm() {
    let ((_north, north), (_south, south)) = (Running::serve(&[]), Running::serve(&[]));
    let peers = Peers::new(&north, &south);
    let mut gateway = Running::start(&["gateway", "--json", "--both", &north, &south]);
    gateway.wait_until_connected();
    peers.wait_for_probe(1);
    let server = north.strip_suffix("/flight.rtec").expect("the channel's key");
    let monitor = format!("{server}/CorelaneEvents");
    let begun = Instant::now();
    let shown = loop {
        let output = run(&["stat", "--at", &monitor, "--json", "flight"]);
        let said = String::from_utf8(output.stdout).expect("UTF-8");
        let mut lines = said.lines().map(|line| serde_json::from_str::<Json>(line).expect("JSON"));
        let found = lines.find(|line| line["forwarded"].as_u64().is_some_and(|count| count > 0));
        if let Some(found) = found {
            break found;
        }
        assert!(begun.elapsed() < GENEROUS, "{said}");
    };
    assert_eq!((&shown["is_connected"], &shown["channel"]), (&true.into(), &"flight".into()), "{shown}");
    let text = String::from_utf8(run(&["stat", "--at", &monitor, "flight"]).stdout).expect("UTF-8");
    // The gateway connects again if the machine pauses, so any number of reconnects is permitted.
    let (_, state) = text.split_once(" connected, reconnects ").unwrap_or_else(|| panic!("{text}"));
    assert!(state.trim_start_matches(|it: char| it.is_ascii_digit()).starts_with("\n    received "), "{text}");
    let rest = gateway.terminate();
    let lines = rest.lines().map(|line| serde_json::from_str::<Json>(line).expect("JSON"));
    // Only the lines with the state of a gateway have the member `problem`.
    let counts: Vec<Json> = lines.filter(|line| line.get("problem").is_none()).collect();
    assert_eq!((&counts[0]["from"], &counts[0]["to"]), (&north.as_str().into(), &south.as_str().into()), "{rest}");
    let sum = ["forwarded", "duplicates", "returned", "ttl_ended", "waiting"].map(|it| counts[0][it].as_u64().unwrap());
    assert_eq!(counts[0]["received"].as_u64(), Some(sum.iter().sum()), "{rest}");
}

#[test]
fn killed_gateway_is_replaced_and_no_event_arrives_twice() {
    let ((_north, north), (_south, south)) = (Running::serve(&[]), Running::serve(&[]));
    let peers = Peers::new(&north, &south);
    let start = || {
        let mut gateway = Running::start(&["gateway", "--json", &north, &south]);
        gateway.wait_until_connected();
        gateway
    };
    let mut next = 1;
    for cycle in 0..4 {
        let mut gateway = start();
        peers.wait_for_probe(cycle);
        let first = next;
        for _ in 0..200 {
            peers.supplier.push(&[numbered(NUMBERED, next)]).unwrap();
            next += 1;
        }
        if cycle == 3 {
            let last = next - 1;
            peers.wait_until(|got| got.numbers.contains(&last), || {});
            let got = peers.got.lock();
            let of_cycle: Vec<i32> = got.numbers.iter().copied().filter(|number| *number >= first).collect();
            assert_eq!(of_cycle, (first..next).collect::<Vec<_>>());
        } else {
            // `kill` sends SIGKILL, while events are under way.
            gateway.process.kill().expect("killed");
            gateway.process.wait().expect("it ends");
        }
    }
    let numbers = peers.got.lock().numbers.clone();
    assert!(numbers.is_sorted_by(|one, other| one < other), "an event is repeated or out of order: {numbers:?}");
}

#[test]
fn server_has_a_gateway_of_its_own() {
    let (_south, south) = Running::serve(&[]);
    let (_north, north) = Running::serve(&["--gateway", &format!("flight={south}")]);
    let peers = Peers::new(&north, &south);
    peers.wait_for_probe(1);
    for number in 1..=100 {
        peers.supplier.push(&[numbered(NUMBERED, number)]).unwrap();
    }
    peers.wait_until(|got| got.numbers.len() >= 100, || {});
    assert_eq!(peers.got.lock().numbers, (1..=100).collect::<Vec<_>>());
}

#[test]
fn wrong_words_are_refused() {
    let says = |words: &[&str], status: i32, text: &str| {
        let output = run(words);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!((output.status.code(), said.contains(text)), (Some(status), true), "{words:?}: {said}");
    };
    let (_server, url) = Running::serve(&[]);
    let itself = "a gateway does not lead from a channel to itself";
    says(&["gateway", &url, &url], 1, itself);
    let other = url.replace("127.0.0.1", "localhost");
    says(&["gateway", &url, &other], 1, itself);
    says(&["gateway", &url], 2, "a gateway needs two channels");
    says(&["gateway", "-", "-"], 2, "the standard input has one reference");
    says(&["gateway", "--lane", "x", &url, &url], 2, "`--lane` needs a number");
    says(&["push", "--ttl", "-1", &url, "x"], 2, "`--ttl` needs a number of gateways, not `-1`");
    says(&["serve", "--gateway", "flight"], 2, "`--gateway` needs NAME=CHANNEL, not `flight`");
    says(&["serve", "--gateway", &format!("x={url}")], 1, "the server has no channel `x`");
}
