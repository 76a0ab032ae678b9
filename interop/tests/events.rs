//! CORBA's Event Service: omniORB's push and pull clients on Corelane's event channel.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use corelane::{Any, Endpoint, Orb};
use corelane_interop::peers;
use corelane_services::events::rtec_event_channel_admin::SupplierQOS;
use corelane_services::events::rtec_event_comm::{Event, EventHeader};
use corelane_services::events::{EventChannel, RtecEventData};

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
    // TAO's service sends an event without a value as a structure.
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
