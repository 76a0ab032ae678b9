//! CORBA's Event Service between Corelane and omniORB, JacORB and omniEvents, and the page of
//! `corelane events serve` in Chromium. On request, channels that are joined by NATS.

mod nats_bridge;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use corelane::{Any, Endpoint, Orb, SystemException};
use corelane_interop::webdriver::Browser;
use corelane_interop::{peers, process};
use corelane_services::events::rtec_event_channel_admin::SupplierQOS;
use corelane_services::events::rtec_event_comm::{Event, EventHeader};
use corelane_services::events::{
    EventChannel, EventChannelFactory, RtecEventData, cos_event_channel_admin as cos, cos_event_comm as comm,
};
use corelane_services::naming::NamingConfig;
use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{Condvar, LockScope, Mutex};
use serde_json::Value as Json;

fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("interop").join("peers");
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn omniorb() -> Command {
    peers::omniorb_events(&folder()).unwrap_or_else(|trouble| panic!("{trouble}"))
}

fn jacorb() -> Command {
    peers::jacorb_events(&folder()).unwrap_or_else(|trouble| panic!("{trouble}"))
}

struct Ours {
    _orb: Orb,
    channel: EventChannel,
    url: String,
}

impl Ours {
    fn start() -> Self {
        let orb = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
        let channel = EventChannel::builder().name("flight").serve(&orb).unwrap();
        let Endpoint::Tcp { port, .. } = orb.endpoints()[0].clone() else { panic!("no TCP endpoint") };
        Ours { _orb: orb, channel, url: format!("corbaloc::1.2@127.0.0.1:{port}/flight") }
    }
}

struct Peer {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Peer {
    fn start(command: Command, mode: &str, ours: &Ours, count: usize) -> Self {
        Self::client(command, mode, &ours.url, count)
    }

    fn client(mut command: Command, mode: &str, channel: &str, count: usize) -> Self {
        command.args([mode, channel, &count.to_string()]).stdin(Stdio::null());
        Self::run(command)
    }

    fn run(mut command: Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Peer { process, output }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn rest(mut self) -> Vec<String> {
        let lines: Vec<String> = self.output.by_ref().lines().map(Result::unwrap).collect();
        assert!(self.process.wait().unwrap().success(), "{lines:?}");
        lines
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn pushes_consumes_and_pulls(client: fn() -> Command) {
    let ours = Ours::start();
    let mut pushed_to = Peer::start(client(), "--consume", &ours, 5);
    let mut pulling = Peer::start(client(), "--pull", &ours, 5);
    assert_eq!((pushed_to.line(), pulling.line()), ("ready".to_owned(), "ready".to_owned()));
    assert_eq!(Peer::start(client(), "--push", &ours, 3).rest(), ["done"]);
    let supplier = ours.channel.cos_reference().for_suppliers().unwrap().unwrap();
    let supplier = supplier.obtain_push_consumer().unwrap().unwrap();
    supplier.connect_push_supplier(None).unwrap();
    supplier.push(&Any::new(&"from Corelane".to_owned()).unwrap()).unwrap();
    // An event of TAO's service that has no `any` arrives as a structure.
    let supplier = ours.channel.reference().for_suppliers().unwrap().unwrap();
    let supplier = supplier.obtain_push_consumer().unwrap().unwrap();
    supplier.connect_push_supplier(None, &SupplierQOS::default()).unwrap();
    let header = EventHeader { r#type: 16, source: 1, ..EventHeader::default() };
    let data = RtecEventData { payload: vec![1, 2, 3].into(), ..RtecEventData::default() };
    supplier.push(&[Event { header, data }]).unwrap();
    let expected = ["long 0", "long 1", "long 2", "string from Corelane", "kind 15", "done"];
    assert_eq!(pushed_to.rest(), expected);
    assert_eq!(pulling.rest(), expected);
    let statistics = ours.channel.statistics();
    assert_eq!((statistics.published, statistics.consumers.len()), (5, 0));
    assert_eq!(
        (statistics.disconnected_consumers.delivered, statistics.disconnected_consumers.dropped.total()),
        (10, 0)
    );
}

#[test]
fn omniorb_pushes_consumes_and_pulls_through_corelanes_channel() {
    pushes_consumes_and_pulls(omniorb);
}

#[test]
fn jacorb_pushes_consumes_and_pulls_through_corelanes_channel() {
    pushes_consumes_and_pulls(jacorb);
}

#[test]
fn corelanes_channel_pulls_from_jacorbs_supplier() {
    let ours = Ours::start();
    let puller = ours.channel.cos_reference().for_consumers().unwrap().unwrap();
    let puller = puller.obtain_pull_supplier().unwrap().unwrap();
    puller.connect_pull_consumer(None).unwrap();
    // The supplier disconnects when the channel has its three values.
    assert_eq!(Peer::start(jacorb(), "--supply", &ours, 3).rest(), ["done"]);
    for expected in 0..3 {
        let (value, has_event) = puller.try_pull().unwrap();
        assert_eq!((value.extract::<i32>().unwrap(), has_event), (expected, true));
    }
    assert!(!puller.try_pull().unwrap().1);
    assert_eq!(ours.channel.statistics().suppliers, 0);
}

#[test]
fn destroyed_channel_disconnects_the_consumers_of_omniorb_and_jacorb() {
    for client in [omniorb, jacorb] {
        let ours = Ours::start();
        let mut consumer = Peer::start(client(), "--consume", &ours, 1);
        assert_eq!(consumer.line(), "ready");
        ours.channel.cos_reference().destroy().unwrap();
        assert_eq!(consumer.rest(), ["disconnected", "done"]);
    }
}

fn push_proxy(channel: &cos::EventChannelRef) -> cos::ProxyPushConsumerRef {
    let proxy = channel.for_suppliers().unwrap().unwrap().obtain_push_consumer().unwrap().unwrap();
    proxy.connect_push_supplier(None).unwrap();
    proxy
}

struct Numbers {
    got: Mutex<Vec<i32>>,
    added: Condvar,
}

impl Numbers {
    fn wait_for(&self, count: usize) -> Vec<i32> {
        let deadline = Monotonic::now() + Duration::from_secs(60);
        let mut got = self.got.lock();
        while got.len() < count {
            let is_in_time;
            (got, is_in_time) = self.added.wait_until(got, Some(deadline));
            assert!(is_in_time, "{} of {count} numbers", got.len());
        }
        got.clone()
    }
}

struct Consumer(Arc<Numbers>);

impl comm::PushConsumer for Consumer {
    fn push(&self, data: &Any) -> Result<(), comm::push_consumer::PushError> {
        self.0.got.lock().push(data.extract().unwrap_or(-1));
        self.0.added.notify_all();
        Ok(())
    }

    fn disconnect_push_consumer(&self) -> Result<(), SystemException> {
        Ok(())
    }
}

#[test]
fn corelane_pushes_consumes_and_pulls_through_jacorbs_channel() {
    let mut command = jacorb();
    command.arg("--serve").stdin(Stdio::piped());
    let mut server = Peer::run(command);
    let reference = server.line();
    let orb = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    orb.root_poa().manager().activate().unwrap();
    let channel: cos::EventChannelRef = orb.string_to_reference(&reference).unwrap();
    let puller = channel.for_consumers().unwrap().unwrap().obtain_pull_supplier().unwrap().unwrap();
    puller.connect_pull_consumer(None).unwrap();
    let got = Mutex::new("numbers of a test", LockScope::Orb, Vec::new());
    let numbers = Arc::new(Numbers { got, added: Condvar::new() });
    let consumer = Consumer(Arc::clone(&numbers));
    let consumer = orb.root_poa().activate(&comm::PushConsumer::servant(consumer)).unwrap();
    let consumer = comm::PushConsumerRef::unchecked_narrow(&consumer);
    let pushing = channel.for_consumers().unwrap().unwrap().obtain_push_supplier().unwrap().unwrap();
    pushing.connect_push_consumer(Some(&consumer)).unwrap();
    let supplier = push_proxy(&channel);
    for number in 0..3_i32 {
        supplier.push(&Any::new(&number).unwrap()).unwrap();
    }
    // The channel calls a supplier back when the supplier disconnects.
    assert_eq!(Peer::client(jacorb(), "--push", &reference, 2).rest(), ["disconnected", "done"]);
    assert_eq!(numbers.wait_for(5), [0, 1, 2, 0, 1]);
    let pulled: Vec<i32> = (0..5).map(|_| puller.pull().unwrap().extract().unwrap()).collect();
    assert_eq!(pulled, [0, 1, 2, 0, 1]);
    drop(server.process.stdin.take());
    assert_eq!(server.rest(), ["done"]);
}

struct Factory {
    orb: Arc<Orb>,
    port: u16,
}

impl Factory {
    fn start() -> Self {
        let orb = Arc::new(Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap());
        NamingConfig::new().serve(&orb).unwrap();
        EventChannelFactory::new(EventChannel::builder()).serve(&orb).unwrap();
        let Endpoint::Tcp { port, .. } = orb.endpoints()[0].clone() else { panic!("no TCP endpoint") };
        Factory { orb, port }
    }

    fn url(&self, key: &str) -> String {
        format!("corbaloc::1.2@127.0.0.1:{}/{key}", self.port)
    }

    fn channel(&self, key: &str) -> cos::EventChannelRef {
        self.orb.string_to_reference(&self.url(key)).unwrap()
    }

    fn program(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.args(["-ORBendPoint", "giop:tcp:127.0.0.1:", "-ORBInitRef"]);
        command.arg(format!("NameService={}", self.url("NameService")));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, program: &str, words: &[&str]) -> String {
        let output = self.program(program).args(words).output();
        let output = output.unwrap_or_else(|error| panic!("{program} (Debian's package omnievents): {error}"));
        let said = [&output.stdout[..], &output.stderr[..]].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(output.status.success(), "{program} {words:?}: {said}");
        said
    }

    fn puller(&self, key: &str) -> cos::ProxyPullSupplierRef {
        let puller = self.channel(key).for_consumers().unwrap().unwrap().obtain_pull_supplier().unwrap().unwrap();
        puller.connect_pull_consumer(None).unwrap();
        puller
    }

    fn supplier(&self, key: &str) -> cos::ProxyPushConsumerRef {
        push_proxy(&self.channel(key))
    }
}

fn pulled(puller: &cos::ProxyPullSupplierRef) -> String {
    for _ in 0..600 {
        if let (value, true) = puller.try_pull().unwrap() {
            return value.extract().unwrap();
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("no event")
}

#[test]
fn programs_of_omnievents_create_link_record_play_back_and_destroy_corelanes_channels() {
    let factory = Factory::start();
    let text = |text: &str| Any::new(&text.to_owned()).unwrap();
    for name in ["ground", "air"] {
        factory.run("eventc", &["-n", name, "-i", name, "-q", "100", &factory.url("omniEvents")]);
    }
    // `eventc -n` has bound the channel in the name server.
    let named = factory.orb.string_to_object(&format!("corbaname::127.0.0.1:{}#ground", factory.port));
    assert!(named.unwrap().unwrap().is_a(cos::EventChannelRef::REPOSITORY_ID).unwrap());
    // `eventf` forwards the events of `ground` to `air`.
    factory.run("eventf", &[&factory.url("ground"), &factory.url("air")]);
    let in_air = factory.puller("air");
    let supplier = factory.supplier("ground");
    supplier.push(&text("linked")).unwrap();
    assert_eq!(pulled(&in_air), "linked");
    // `events` records the events that it receives, and `events -s` pushes recorded events.
    let mut recorder = factory.program("events").arg(factory.url("ground")).spawn().unwrap();
    let mut recorded = recorder.stdout.take().unwrap();
    let (mut record, mut part) = (Vec::new(), [0; 4096]);
    let is_recorded = |record: &[u8]| record.windows(8).any(|window| window == b"recorded");
    let pushes = std::thread::spawn(move || {
        while supplier.push(&text("recorded")).is_ok() {
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    while !is_recorded(&record) {
        let count = recorded.read(&mut part).unwrap();
        assert!(count > 0, "the recorder has ended");
        record.extend_from_slice(&part[..count]);
    }
    let _ = recorder.kill();
    let _ = recorder.wait();
    factory.run("rmeventc", &[&factory.url("ground")]);
    pushes.join().unwrap();
    let is_gone =
        |key: &str| factory.orb.string_to_object(&factory.url(key)).unwrap().unwrap().non_existent() == Ok(true);
    while !is_gone("ground") {
        std::thread::sleep(Duration::from_millis(10));
    }
    factory.run("eventc", &["-n", "third", "-i", "third", &factory.url("omniEvents")]);
    let puller = factory.puller("third");
    let mut player =
        factory.program("events").args(["-s", &factory.url("third")]).stdin(Stdio::piped()).spawn().unwrap();
    player.stdin.take().unwrap().write_all(&record).unwrap();
    assert_eq!(pulled(&puller), "recorded");
    let _ = player.kill();
    let _ = player.wait();
}

struct OmniEvents {
    process: Child,
    port: u16,
}

impl OmniEvents {
    fn start() -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("omnievents");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        // omniEvents cannot report its port, and listens on each address of the machine. The
        // transport rule restricts clients to 127.0.0.1.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new("omniEvents");
        command.args(["-f", "-p", &port.to_string(), "-l"]).arg(&folder).arg("-t").arg(folder.join("trace"));
        command.args(["-ORBendPointPublish", &format!("giop:tcp:127.0.0.1:{port}")]);
        command.args(["-ORBserverTransportRule", "127.0.0.1 tcp"]);
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let process = process.unwrap_or_else(|error| panic!("omniEvents (Debian's package omnievents): {error}"));
        let server = OmniEvents { process, port };
        let orb = Orb::new().unwrap();
        let factory = orb.string_to_object(&server.url("omniEvents")).unwrap().unwrap();
        for _ in 0..1_200 {
            if factory.non_existent() == Ok(false) {
                return server;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("omniEvents does not answer")
    }

    fn url(&self, key: &str) -> String {
        format!("corbaloc::1.2@127.0.0.1:{}/{key}", self.port)
    }
}

impl Drop for OmniEvents {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn events(words: &[&str]) -> Command {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let mut command = Command::new(process::corelane(target));
    command.arg("events").args(words).stdin(Stdio::null());
    command
}

fn said(words: &[&str]) -> (String, Option<i32>) {
    let output = events(words).output().unwrap();
    (String::from_utf8(output.stdout).unwrap(), output.status.code())
}

/// Checks that `corelane events tail` prints a pushed text. Pushes the text repeatedly, because the
/// command may not be connected yet.
fn pushed_text_is_printed(channel: &str) {
    let mut tail = Peer::run(events(&["tail", "--count", "1", channel]));
    let is_printed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_printed.load(Ordering::Relaxed) {
                assert_eq!(said(&["push", channel, "take-off"]), (String::new(), Some(0)));
            }
        });
        let line = tail.line();
        is_printed.store(true, Ordering::Relaxed);
        assert!(line.contains("take-off"), "{line}");
    });
    assert_eq!(tail.rest(), [""; 0]);
}

#[test]
fn commands_of_corelane_events_work_on_omnievents() {
    let server = OmniEvents::start();
    let factory = server.url("omniEvents");
    let (created, status) = said(&["create", "--at", &factory, "ground"]);
    assert_eq!((created.starts_with("IOR:"), status), (true, Some(0)), "{created}");
    let ground = server.url("ground");
    pushed_text_is_printed(&ground);
    // omniEvents has no operation that lists channels.
    let listed = said(&["list", "--at", &factory]);
    let unlisted = "error: the server has no monitor, which lists channels\n";
    assert_eq!(listed, (unlisted.to_owned(), Some(1)));
    assert_eq!(said(&["destroy", &ground]), (String::new(), Some(0)));
    let (again, status) = said(&["destroy", &ground]);
    assert_eq!((again.contains("OBJECT_NOT_EXIST"), status), (true, Some(1)), "{again}");
}

#[test]
fn commands_of_corelane_events_work_on_jacorbs_channel() {
    let mut command = jacorb();
    command.arg("--serve").stdin(Stdio::piped());
    let mut server = Peer::run(command);
    let reference = server.line();
    pushed_text_is_printed(&reference);
    drop(server.process.stdin.take());
    assert_eq!(server.rest(), ["done"]);
}

/// Calls `find` until it returns a value, for at most a minute.
fn wait_for<T>(what: &str, mut find: impl FnMut() -> Option<T>) -> T {
    let deadline = Monotonic::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(!deadline.is_past(), "the page does not show {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The cells of a row of the page: the text, the class and the title of each.
type Row = Vec<[String; 3]>;

fn rows(browser: &Browser, table: &str) -> Vec<Row> {
    let script = format!(
        "return [...document.querySelectorAll('#{table} tr')].map((row) => [...row.cells].map((cell) => \
         [cell.textContent, cell.className, cell.title]))"
    );
    serde_json::from_value(browser.run(&script).unwrap()).unwrap()
}

/// Returns the objects that `corelane events stat` prints of a channel and of its consumers.
fn stat(at: &str, channel: &str) -> Vec<Json> {
    let (said, status) = said(&["stat", "--json", "--at", at, channel]);
    assert_eq!(status, Some(0), "{said}");
    said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn sum(counts: &Json) -> u64 {
    counts.as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum()
}

/// Returns true if a row of the page has the counts of a channel, apart from the rates.
fn shows(row: &Row, stat: &Json) -> bool {
    let sets = &stat["sets"];
    let counts = [&stat["suppliers"], &stat["consumers"], &stat["published"], &sets["delivered"]];
    let counts = counts.into_iter().chain([&sets["queued"], &sets["in_flight"]]).map(Json::to_string);
    let sums = [&sets["dropped"], &stat["unstored"], &stat["surplus"]].map(|counts| sum(counts).to_string());
    let expected: Vec<String> = counts.chain(sums).collect();
    let found = row.iter().enumerate().filter(|(at, _)| ![0, 4, 6].contains(at)).map(|(_, cell)| &cell[0]);
    found.eq(expected.iter())
}

#[test]
fn page_in_chromium_shows_the_counts_of_stat_and_a_lost_consumer() {
    let words = ["serve", "--listen", "tcp:127.0.0.1:0", "--channel", "flight", "--http", "127.0.0.1:0"];
    let mut server = Peer::run(events(&words));
    let (_, channel, url) = (server.line(), server.line(), server.line());
    let at = channel.replace("flight.rtec", "CorelaneEvents");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("interop").join("browser");
    let browser = Browser::start(&folder).unwrap();
    browser.open(&url).unwrap();
    let only = |table| {
        let mut rows = rows(&browser, table);
        (rows.len() == 1).then(|| rows.remove(0))
    };
    // The row shows the present counts without another load of the page.
    let shown = |what: &str| {
        wait_for(what, || {
            let (row, stat) = (only("channels")?, stat(&at, "flight"));
            shows(&row, &stat[0]).then_some((row, stat))
        })
    };
    let (row, _) = shown("a new channel");
    assert_eq!([&row[0][0], &row[3][0]], ["flight", "0"]);

    let mut tail = Peer::run(events(&["tail", "--json", &channel]));
    wait_for("a consumer", || only("consumers"));
    assert_eq!(said(&["push", &channel, "take-off", "climb", "cruise"]), (String::new(), Some(0)));
    (0..3).for_each(|_| assert!(tail.line().contains("value")));
    let (row, stat) = shown("three events");
    assert_eq!(["published", "consumers"].map(|count| stat[0][count].as_u64()), [Some(3), Some(1)]);
    assert_eq!([&row[3][0], &row[5][0], &row[9][0], &row[9][1]], ["3", "3", "0", ""]);
    let consumer = wait_for("the consumer's events", || only("consumers").filter(|row| row[3][0] == "3"));
    assert_eq!(consumer[1][0], stat[1]["consumer"].to_string());

    drop(tail);
    let (row, _) = wait_for("the lost consumer", || {
        said(&["push", &channel, "landing"]);
        let (row, stat) = shown("the present counts");
        (row[2][0] == "0" && rows(&browser, "consumers").is_empty()).then_some((row, stat))
    });
    assert_eq!(row[9][1], "bad");
    assert!(row[9][2].contains("failed"), "{row:?}");
    assert_eq!(browser.console().unwrap(), [""; 0]);
}
