//! CORBA's Event Service: omniORB's push and pull clients, and the programs of omniEvents, on
//! Corelane's event channel.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;

use corelane::{Any, Endpoint, Orb};
use corelane_interop::peers;
use corelane_services::events::rtec_event_channel_admin::SupplierQOS;
use corelane_services::events::rtec_event_comm::{Event, EventHeader};
use corelane_services::events::{EventChannel, EventChannelFactory, RtecEventData, cos_event_channel_admin as cos};
use corelane_services::naming::NamingConfig;

fn omniorb() -> Command {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("interop").join("peers");
    fs::create_dir_all(&folder).unwrap();
    peers::omniorb_events(&folder).unwrap_or_else(|trouble| panic!("{trouble}"))
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
    fn start(mode: &str, ours: &Ours, count: usize) -> Self {
        let mut command = omniorb();
        command.args([mode, &ours.url, &count.to_string()]);
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
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

#[test]
fn omniorb_pushes_consumes_and_pulls_through_corelanes_channel() {
    let ours = Ours::start();
    let mut pushed_to = Peer::start("--consume", &ours, 5);
    let mut pulling = Peer::start("--pull", &ours, 5);
    assert_eq!((pushed_to.line(), pulling.line()), ("ready".to_owned(), "ready".to_owned()));
    assert_eq!(Peer::start("--push", &ours, 3).rest(), ["done"]);
    let supplier = ours.channel.cos_reference().for_suppliers().unwrap().unwrap();
    let supplier = supplier.obtain_push_consumer().unwrap().unwrap();
    supplier.connect_push_supplier(None).unwrap();
    supplier.push(&Any::new(&"from Corelane".to_owned()).unwrap()).unwrap();
    // An event of TAO's service without a value becomes a structure.
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
    assert_eq!((statistics.departed.delivered, statistics.departed.dropped.total()), (10, 0));
}

#[test]
fn destroyed_channel_disconnects_omniorbs_consumer() {
    let ours = Ours::start();
    let mut consumer = Peer::start("--consume", &ours, 1);
    assert_eq!(consumer.line(), "ready");
    ours.channel.cos_reference().destroy().unwrap();
    assert_eq!(consumer.rest(), ["disconnected", "done"]);
}

/// A channel factory and a name server, for the programs of omniEvents.
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

    /// Runs a program of omniEvents to its end, which must be a success.
    fn run(&self, program: &str, words: &[&str]) -> String {
        let output = self.program(program).args(words).output();
        let output = output.unwrap_or_else(|error| panic!("{program} (Debian's package omnievents): {error}"));
        let said = [&output.stdout[..], &output.stderr[..]].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert!(output.status.success(), "{program} {words:?}: {said}");
        said
    }

    /// Connects a consumer that pulls.
    fn puller(&self, key: &str) -> cos::ProxyPullSupplierRef {
        let puller = self.channel(key).for_consumers().unwrap().unwrap().obtain_pull_supplier().unwrap().unwrap();
        puller.connect_pull_consumer(None).unwrap();
        puller
    }

    fn supplier(&self, key: &str) -> cos::ProxyPushConsumerRef {
        let supplier = self.channel(key).for_suppliers().unwrap().unwrap().obtain_push_consumer().unwrap().unwrap();
        supplier.connect_push_supplier(None).unwrap();
        supplier
    }
}

/// Pulls a text, for which the channel's supplier may need some time.
fn pulled(puller: &cos::ProxyPullSupplierRef) -> String {
    for _ in 0..600 {
        if let (value, true) = puller.try_pull().unwrap() {
            return value.extract().unwrap();
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
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
    // The channel has its name in the name server too.
    let named = factory.orb.string_to_object(&format!("corbaname::127.0.0.1:{}#ground", factory.port));
    assert!(named.unwrap().unwrap().is_a(cos::EventChannelRef::REPOSITORY_ID).unwrap());
    // Events of `ground` reach `air`.
    factory.run("eventf", &[&factory.url("ground"), &factory.url("air")]);
    let in_air = factory.puller("air");
    let supplier = factory.supplier("ground");
    supplier.push(&text("linked")).unwrap();
    assert_eq!(pulled(&in_air), "linked");
    // A recorder writes what it gets, and a player pushes it again.
    let mut recorder = factory.program("events").arg(factory.url("ground")).spawn().unwrap();
    let mut recorded = recorder.stdout.take().unwrap();
    let (mut record, mut part) = (Vec::new(), [0; 4096]);
    let is_recorded = |record: &[u8]| record.windows(8).any(|window| window == b"recorded");
    let pushes = std::thread::spawn(move || {
        // The recorder may not be connected yet.
        while supplier.push(&text("recorded")).is_ok() {
            std::thread::sleep(std::time::Duration::from_millis(50));
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
        std::thread::sleep(std::time::Duration::from_millis(10));
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
