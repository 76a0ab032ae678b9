//! Tests of `corelane events` with a store: durable channels over restarts, and over `kill -9`.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use corelane::{Any, Completion, Orb, SystemException, SystemExceptionKind, minor};
use corelane_services::events::RECORD_FORMAT;
use corelane_services::events::corelane_events::durable_channel::{AcknowledgeError, ForgetConsumerError};
use corelane_services::events::corelane_events::{DurableChannel, DurableChannelRef, NumberedEvent, StreamStatus};
use corelane_services::events::cos_event_channel_admin::{ConsumerAdminRef, EventChannel, SupplierAdminRef};
use corelane_services::events::rtec_event_channel_admin::{EventChannelRef, SupplierQOS};
use corelane_services::events::rtec_event_comm::{Event, EventHeader};
use corelane_services::store::{Durability, FileStore, RecordChange, Store};
use serde_json::Value as Json;

fn corelane(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_corelane"));
    command.arg("events").args(words).stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

fn run(words: &[&str]) -> Output {
    corelane(words).output().expect("the program starts")
}

fn says(words: &[&str]) -> Vec<String> {
    let output = run(words);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{words:?}: {said}");
    said.lines().map(str::to_owned).collect()
}

struct Server {
    process: Child,
    /// The URL of the first channel.
    url: String,
}

impl Server {
    fn start(words: &[&str], listen: &str) -> Self {
        Self::of(&mut corelane(&[&["serve", "--listen", listen], words].concat()))
    }

    fn of(command: &mut Command) -> Self {
        let mut process = command.spawn().expect("the program starts");
        let mut url = String::new();
        BufReader::new(process.stdout.take().expect("a pipe")).read_line(&mut url).expect("a line");
        Server { process, url: url.trim_end().to_owned() }
    }

    /// Returns the URL of the server's object with this plain key.
    fn at(&self, key: &str) -> String {
        let (address, _) = self.url.rsplit_once('/').expect("a key");
        format!("{address}/{key}")
    }

    fn listen(&self) -> String {
        let (address, _) = self.url.rsplit_once('/').expect("a key");
        format!("tcp:{}", address.rsplit_once('@').expect("an address").1)
    }

    fn end(mut self) {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").arg(&id).status().expect("kill starts").success());
        assert!(self.process.wait().expect("it ends").success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("corelane-events-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).expect("a folder");
        Folder(path)
    }

    fn file(&self) -> String {
        self.0.join("events.db").to_string_lossy().into_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const ANY_PORT: &str = "tcp:127.0.0.1:0";

#[test]
fn channels_events_and_consumers_survive_restarts_of_the_server() {
    let folder = Folder::new("restart");
    let store = folder.file();
    let words = ["--store", &store, "--channel", "flight", "--destroy-by-clients", "--create-by-clients"];
    let server = Server::start(&words, ANY_PORT);
    let listen = server.listen();
    says(&["create", "--at", &server.at("omniEvents"), "--durable", "ground"]);
    assert_eq!(says(&["push", "--acknowledged", &server.url, "one", "two"]), ["1", "2"]);
    let typed = ["push", "--acknowledged", "--type", "17", "--source", "3", &server.at("flight.rtec"), "three"];
    assert_eq!(says(&typed), ["3"]);
    says(&["push", &server.url, "four"]);
    assert_eq!(says(&["push", "--acknowledged", &server.at("ground"), "first"]), ["1"]);
    let lines = says(&["replay", "--consumer", "log", "--count", "2", &server.url]);
    assert!(lines[0].contains("one") && lines[1].contains("two"), "{lines:?}");
    server.end();

    // Without `--channel`, the server serves the channels of the store.
    let server = Server::start(&["--store", &store, "--destroy-by-clients"], &listen);
    let flight = server.at("flight");
    let lines = says(&["replay", "--consumer", "log", "--json", &flight]);
    let lines: Vec<Json> = lines.iter().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let numbers: Vec<_> = lines.iter().map(|line| line["number"].as_u64()).collect();
    assert_eq!(numbers, [Some(3), Some(4)]);
    assert_eq!((&lines[0]["type"], &lines[0]["source"]), (&17.into(), &3.into()));
    assert!(says(&["replay", "--consumer", "log", &flight]).is_empty());
    assert_eq!(says(&["replay", &flight]).len(), 4);
    assert_eq!(says(&["replay", "--from", "4", &flight]).len(), 1);
    assert_eq!(says(&["replay", "--from", "4", "--follow", "--count", "1", &flight]).len(), 1);
    assert_eq!(says(&["push", "--acknowledged", &server.at("ground"), "second"]), ["2"]);
    says(&["destroy", &flight]);
    server.end();

    let server = Server::start(&["--store", &store], &listen);
    assert_eq!(says(&["list", "--at", &server.at("CorelaneEvents")]), ["ground"]);
}

#[test]
fn durable_channels_are_created_and_destroyed_over_the_control_socket_only() {
    let folder = Folder::new("control");
    let (store, control) = (folder.file(), folder.0.join("control").to_string_lossy().into_owned());
    let user = corelane_sys::process::effective_user_id().to_string();
    let words = ["--store", &store, "--max-channels", "2", "--allow-control", &user, "--control", &control];
    let server = Server::start(&words, ANY_PORT);
    let refused = |words: &[&str], text: &str| {
        let output = run(words);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.code() == Some(1) && said.contains(text), "{words:?}: {said}");
    };
    refused(&["create", "--at", &server.at("omniEvents"), "--durable", "ground"], "create no durable channels");
    says(&["create", "--durable", "--control", &control, "ground"]);
    assert_eq!(says(&["push", "--acknowledged", &server.at("ground"), "one"]), ["1"]);
    refused(&["create", "--durable", "--control", &control, "third"], "IMP_LIMIT");
    refused(&["destroy", &server.at("ground")], "not destroyed by clients");
    says(&["destroy", "--control", &control, "ground"]);
    assert_eq!(says(&["list", "--at", &server.at("CorelaneEvents")]), ["EventChannel"]);
}

#[test]
fn server_that_is_asked_to_end_commits_the_oneways_that_wait() {
    const ONEWAYS: i32 = 5_000;
    let folder = Folder::new("end");
    let store = folder.file();
    let server = Server::start(&["--store", &store, "--channel", "flight"], ANY_PORT);
    let listen = server.listen();
    let orb = Orb::new().expect("an ORB");
    let channel: EventChannelRef = orb.string_to_reference(&server.at("flight.rtec")).expect("a channel");
    let admin = channel.for_suppliers().expect("an answer").expect("an admin");
    let proxy = admin.obtain_push_consumer().expect("an answer").expect("a proxy");
    proxy.connect_push_supplier(None, &SupplierQOS::default()).expect("connected");
    for source in 1..=ONEWAYS {
        let header = EventHeader { r#type: 16, source, ..EventHeader::default() };
        proxy.push(&[Event { header, ..Event::default() }]).expect("sent");
    }
    // The answer shows that the server has received the pushes before it on this connection.
    proxy.as_object().non_existent().expect("an answer");
    server.end();
    let server = Server::start(&["--store", &store], &listen);
    let channel: DurableChannelRef = orb.string_to_reference(&server.at("flight")).expect("a channel");
    assert_eq!(channel.stream_status().expect("an answer").last, u64::from(ONEWAYS.unsigned_abs()));
}

#[test]
fn stored_channel_that_cannot_be_served_is_reported() {
    let folder = Folder::new("unserved");
    let file = FileStore::open(folder.file(), RECORD_FORMAT).expect("a store");
    let mut revision = file.for_each(&mut |_, _| Ok(())).expect("the store is read");
    // The key of the channel `omniEvents` is the key of the factory, so the channel cannot be
    // served.
    for (number, name) in (0_u32..).zip(["omniEvents", "ground"]) {
        let key = [&[1][..], &number.to_be_bytes()].concat();
        let numbers = [1, 0, 0, 100, 1_000, 0_u64].map(u64::to_be_bytes).concat();
        let record = [&numbers, name.as_bytes()].concat();
        let written = file.commit(revision, &[RecordChange::Put(&key, &record)], Durability::Synced);
        revision = written.expect("the record is written");
    }
    drop(file);
    let mut process = corelane(&["serve", "--store", &folder.file(), "--listen", ANY_PORT]);
    let mut server = Server::of(process.stderr(Stdio::piped()));
    assert_eq!(says(&["push", "--acknowledged", &server.at("ground"), "one"]), ["1"]);
    assert_eq!(says(&["list", "--at", &server.at("CorelaneEvents")]), ["ground"]);
    let stderr = server.process.stderr.take().expect("a pipe");
    server.end();
    let said = std::io::read_to_string(stderr).expect("text");
    assert!(said.starts_with("channel `omniEvents` of the store is not served: "), "{said}");
}

#[test]
fn wrong_words_and_servers_without_a_store_are_refused() {
    let refused = |words: &[&str], status: i32, text: &str| {
        let output = run(words);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!((output.status.code(), said.contains(text)), (Some(status), true), "{words:?}: {said}");
    };
    let server = Server::start(&["--channel", "flight"], ANY_PORT);
    refused(&["create", "--at", &server.at("omniEvents"), "--durable", "ground"], 1, "has no store");
    refused(&["serve", "--max-bytes", "9"], 2, "need `--store`");
    refused(&["serve", "--store", "file", "--max-bytes", "-"], 2, "`--max-bytes` needs a number, not `-`");
    refused(&["create", "--control", "path", "ground"], 2, "`--control` of `create` needs `--durable`");
    refused(&["push", "--acknowledged", &server.url, "one"], 1, "the channel is not durable");
    refused(&["replay", &server.url], 1, "the channel is not durable");
    refused(&["replay"], 2, "no channel is given");
    refused(&["replay", "--from", "0", "flight"], 2, "`--from` needs the number of an event, from 1, not `0`");
    refused(&["replay", "--from", "1", "--consumer", "log", "flight"], 2, "`--consumer` takes the place of `--from`");
    let folder = Folder::new("foreign");
    std::fs::write(folder.file(), "text").expect("written");
    refused(&["serve", "--listen", ANY_PORT, "--store", &folder.file()], 1, "is not a store of Corelane");
}

/// A channel that does not wait for events. It returns its only event from the fourth question on.
struct Impatient(AtomicUsize);

impl EventChannel for Impatient {
    fn for_consumers(&self) -> Result<Option<ConsumerAdminRef>, SystemException> {
        Ok(None)
    }

    fn for_suppliers(&self) -> Result<Option<SupplierAdminRef>, SystemException> {
        Ok(None)
    }

    fn destroy(&self) -> Result<(), SystemException> {
        Ok(())
    }
}

impl DurableChannel for Impatient {
    fn publish(&self, _: &Any) -> Result<u64, SystemException> {
        Ok(1)
    }

    fn publish_event(&self, _: &Event) -> Result<u64, SystemException> {
        Ok(1)
    }

    fn stream_status(&self) -> Result<StreamStatus, SystemException> {
        Ok(StreamStatus::default())
    }

    fn events_after(&self, _: u64, _: u32, _: u32) -> Result<Vec<NumberedEvent>, SystemException> {
        match self.0.fetch_add(1, Ordering::Relaxed) {
            0 => Err(SystemException::new(SystemExceptionKind::Transient, minor::STORE_BUSY, Completion::No)),
            1..=2 => Ok(Vec::new()),
            _ => Ok(vec![NumberedEvent { number: 1, ..NumberedEvent::default() }]),
        }
    }

    fn resume_consumer(&self, _: &str, _: u64) -> Result<u64, SystemException> {
        Ok(0)
    }

    fn acknowledge(&self, _: &str, _: u64) -> Result<(), AcknowledgeError> {
        Ok(())
    }

    fn forget_consumer(&self, _: &str) -> Result<(), ForgetConsumerError> {
        Ok(())
    }
}

#[test]
fn replay_asks_a_server_that_does_not_wait_only_from_time_to_time() {
    let orb = Orb::builder().listen(ANY_PORT).build().expect("an ORB");
    let channel = orb.root_poa().activate(&DurableChannel::servant(Impatient(AtomicUsize::new(0)))).expect("an object");
    orb.root_poa().manager().activate().expect("active");
    let began = Instant::now();
    assert_eq!(says(&["replay", "--follow", "--count", "1", &channel.to_string()]).len(), 1);
    assert!(began.elapsed() >= Duration::from_millis(600), "three empty answers, and 200 ms after each");
}

const SUPPLIERS: u64 = 4;

/// Returns the value of an event: the number of the supplier, and the number of its attempt.
fn value(supplier: u64, attempt: u64) -> Any {
    Any::new(&vec![supplier, attempt]).expect("a value")
}

/// Reads the events after `last`. Each supplier's attempts must be in order. Returns the last
/// number.
fn check(
    channel: &DurableChannelRef,
    mut last: u64,
    attempts: &mut [u64],
    acknowledged: &mut BTreeMap<u64, (u64, u64)>,
) -> u64 {
    loop {
        let events = channel.events_after(last, 1_024, 0).expect("events");
        if events.is_empty() {
            return last;
        }
        for event in events {
            assert_eq!(event.number, last + 1, "the numbers have no gaps");
            last = event.number;
            let found: Vec<u64> = event.event.data.any_value.extract().expect("a value");
            let (supplier, attempt) = (found[0], found[1]);
            let before = &mut attempts[supplier as usize];
            assert!(attempt > *before, "supplier {supplier}: attempt {attempt} follows {before}");
            *before = attempt;
            if let Some(expected) = acknowledged.remove(&last) {
                assert_eq!(expected, (supplier, attempt), "event {last}");
            }
        }
    }
}

/// The environment variable `CORELANE_CYCLES` sets the number of kills, by default 30.
#[test]
fn acknowledged_events_survive_kill_9() {
    let folder = Folder::new("crash");
    let store = folder.file();
    let cycles = std::env::var("CORELANE_CYCLES").ok().and_then(|text| text.parse().ok()).unwrap_or(30);
    let words = ["--store", &store, "--channel", "flight"];
    let mut server = Server::start(&words, ANY_PORT);
    let listen = server.listen();
    let mut next_attempts = [0; SUPPLIERS as usize];
    let (mut last, mut attempts, mut total) = (0, [0; SUPPLIERS as usize], 0);
    for cycle in 0..cycles {
        let (is_dying, pushes) = (AtomicBool::new(false), AtomicUsize::new(0));
        let mut acknowledged = BTreeMap::new();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..SUPPLIERS)
                .zip(&mut next_attempts)
                .map(|(supplier, attempt)| {
                    let (url, is_dying, pushes) = (server.url.clone(), &is_dying, &pushes);
                    scope.spawn(move || {
                        let orb = Orb::new().expect("an ORB");
                        let channel: DurableChannelRef = orb.string_to_reference(&url).expect("a channel");
                        let mut numbers = Vec::new();
                        loop {
                            *attempt += 1;
                            let Ok(number) = channel.publish(&value(supplier, *attempt)) else { break };
                            numbers.push((number, (supplier, *attempt)));
                            pushes.fetch_add(1, Ordering::Relaxed);
                        }
                        assert!(is_dying.load(Ordering::Relaxed), "the server ended by itself");
                        numbers
                    })
                })
                .collect();
            let is_waiting = || pushes.load(Ordering::Relaxed) < 10 + cycle % 17 * 7;
            while is_waiting() && !threads.iter().any(|thread| thread.is_finished()) {
                std::thread::sleep(Duration::from_millis(1));
            }
            is_dying.store(true, Ordering::Relaxed);
            server.process.kill().expect("killed");
            server.process.wait().expect("it ends");
            for thread in threads {
                acknowledged.extend(thread.join().expect("a supplier"));
            }
        });
        total += acknowledged.len();
        assert_eq!(acknowledged.len(), pushes.into_inner(), "two events have one number");
        server = Server::start(&words, &listen);
        let orb = Orb::new().expect("an ORB");
        let channel: DurableChannelRef = orb.string_to_reference(&server.url).expect("a channel");
        last = check(&channel, last, &mut attempts, &mut acknowledged);
        assert!(acknowledged.is_empty(), "cycle {cycle}: lost {acknowledged:?}");
    }
    assert!(total >= cycles * 10, "{total}");
    let orb = Orb::new().expect("an ORB");
    let channel: DurableChannelRef = orb.string_to_reference(&server.url).expect("a channel");
    assert_eq!(check(&channel, 0, &mut [0; SUPPLIERS as usize], &mut BTreeMap::new()), last);
}
