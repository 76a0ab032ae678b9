//! Tests of `corelane cores serve --store`: restarts, crashes, and stores that are damaged or full.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use corelane::{ObjectRef, Orb, SystemException, SystemExceptionKind as Kind};
use corelane_services::cores::protocol::tasks::{AdmitError, ReserveError};
use corelane_services::cores::protocol::{
    Criticality, JobOverrun, Promise, TaskRecord, TaskSpec, TaskState, TaskTiming, TasksRef,
};

const MS: u64 = 1_000_000;
const HOUR: u64 = 3_600_000 * MS;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        // The path of a Unix socket has a small maximum length, so the folder is in the system's
        // folder for temporary files.
        let path = std::env::temp_dir().join(format!("corelane-cs-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn text(&self, name: &str) -> String {
        self.0.join(name).to_string_lossy().into_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn serve(listen: &str, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_corelane"));
    command.args(["cores", "serve", "--cores", "2", "--listen", listen]).args(options);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

struct Server {
    process: Child,
    reference: String,
    /// No lease of a restored promise began before this time.
    started_at: Instant,
}

impl Server {
    fn start(listen: &str, store: &str) -> Self {
        Self::start_with(listen, &["--store", store])
    }

    fn start_with(listen: &str, options: &[&str]) -> Self {
        let started_at = Instant::now();
        let mut process = serve(listen, options).stderr(Stdio::null()).spawn().unwrap();
        let mut reference = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut reference).unwrap();
        assert!(reference.starts_with("IOR:"), "{reference}");
        Server { process, reference: reference.trim().to_owned(), started_at }
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    fn connect(&self) -> (Orb, TasksRef) {
        connect(&self.reference)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn connect(reference: &str) -> (Orb, TasksRef) {
    let orb = Orb::new().unwrap();
    let tasks = orb.string_to_reference(reference).unwrap();
    (orb, tasks)
}

fn refused(options: &[&str]) -> String {
    let output: Output = serve("tcp:127.0.0.1:0", options).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8(output.stdout).unwrap()
}

fn timing(execution: u64) -> TaskTiming {
    TaskTiming { execution, period: 100 * MS, deadline: 0, jitter: 0, blocking: 0, min_distance: 0 }
}

fn spec(name: &str, execution: u64, target: Option<ObjectRef>, lease: u64) -> TaskSpec {
    TaskSpec {
        name: name.to_owned(),
        target,
        operation: String::new(),
        timing: timing(execution),
        importance: Criticality::Normal,
        core: -1,
        lease,
        overrun: JobOverrun::Report,
    }
}

fn reference(promise: &Promise) -> String {
    promise.target.as_ref().expect("a task reference").to_string()
}

/// Returns the promised tasks, and checks that the shares of all tasks add up to the used shares of
/// the cores.
fn promised(tasks: &TasksRef) -> BTreeMap<u64, TaskRecord> {
    let (records, cores, _) = tasks.snapshot().unwrap();
    let shares: u64 = records.iter().map(|record| record.timing.execution * 1_000_000_000 / record.timing.period).sum();
    assert_eq!(cores.iter().map(|core| core.used).sum::<u64>(), shares, "{records:?} {cores:?}");
    let promised = records.into_iter().filter(|record| record.state == TaskState::Promised);
    promised.map(|record| (record.task, record)).collect()
}

#[test]
fn killed_server_holds_promises_with_their_tokens_cores_and_references() {
    let folder = Folder::new("held");
    let (listen, store) = (format!("unix:{}", folder.text("s")), folder.text("tasks.db"));
    let mut server = Server::start(&listen, &store);
    let (_orb, tasks) = server.connect();
    let target = Some(tasks.as_object().clone());
    // There are more tasks than endpoints, so the last tasks have the addresses of the pool.
    let held: Vec<Promise> = (0..20)
        .map(|number| tasks.admit(&spec(&format!("t{number}"), 5 * MS, target.clone(), HOUR)).unwrap())
        .collect();
    let short = tasks.admit(&spec("short", 5 * MS, None, 300 * MS)).unwrap();
    assert_eq!(held.iter().map(|promise| promise.core).collect::<BTreeSet<_>>().len(), 2, "both cores are used");
    let cores: BTreeMap<u64, u32> = held.iter().map(|promise| (promise.task, promise.core)).collect();
    tasks.withdraw(held[0].task, &held[0].token).unwrap();
    for _ in 0..2 {
        server.kill();
        let calls = held[1].target.as_ref().unwrap().with_timeout(Duration::from_secs(5));
        assert!(calls.non_existent().is_err(), "the server has ended");
        server = Server::start(&listen, &store);
        let (_orb, tasks) = server.connect();
        let found = promised(&tasks);
        let expected: Vec<u64> = held[1..].iter().map(|promise| promise.task).collect();
        let without_short: Vec<u64> = found.keys().copied().filter(|task| *task != short.task).collect();
        assert_eq!(without_short, expected);
        for promise in &held[1..] {
            let again = tasks.outcome(promise.task, &promise.token).unwrap();
            assert_eq!((again.core, again.token), (cores[&promise.task], promise.token));
            assert_eq!(reference(&again), reference(promise), "the octets of the reference are the same");
            assert_eq!(tasks.renew(promise.task, &promise.token, HOUR).unwrap(), HOUR);
            assert_eq!(tasks.renew(promise.task, &[7; 16], HOUR).unwrap_err().kind(), Kind::NoPermission);
            let again = TasksRef::unchecked_narrow(promise.target.as_ref().unwrap());
            again.snapshot().unwrap();
        }
        // A new task gets a new number, and no token of an earlier run.
        let new = tasks.admit(&spec("new", MS, None, HOUR)).unwrap();
        assert!(new.task > short.task && held.iter().all(|promise| promise.token != new.token));
        tasks.withdraw(new.task, &new.token).unwrap();
    }
    // A promise that no client renews ends with its lease, and its share becomes free.
    let (_orb, tasks) = server.connect();
    let gone = held[0].target.as_ref().unwrap();
    assert_eq!(gone.non_existent().unwrap_err().kind(), Kind::Transient, "a withdrawn task stays withdrawn");
    let has_short = || tasks.snapshot().unwrap().0.iter().any(|record| record.name == "short");
    wait_until("the lease of the task ends", || !has_short());
    assert_eq!(promised(&tasks).len(), 19);
}

#[test]
fn references_over_tcp_keep_the_task_ports() {
    let folder = Folder::new("ports");
    let store = folder.text("tasks.db");
    // The ports are below those that the kernel gives to clients, so no client takes one of them.
    let first = 12_000 + std::process::id() % 15_000;
    let options = ["--store", &store, "--task-ports", &first.to_string()];
    let mut server = Server::start_with("tcp:127.0.0.1:0", &options);
    let (orb, tasks) = server.connect();
    let port = orb.string_to_object(&server.reference).unwrap().unwrap();
    let port = port.ior().known_profiles().next().unwrap().endpoints()[0].to_string();
    let promise = tasks.admit(&spec("t", MS, Some(tasks.as_object().clone()), HOUR)).unwrap();
    let at = promise.target.as_ref().unwrap().ior().known_profiles().next().unwrap().endpoints()[0].to_string();
    assert!(at.ends_with(&format!(":{}", first + 1)), "{at}");
    server.kill();
    let listen = format!("tcp:{}", port.rsplit('/').next().unwrap_or_default().trim_start_matches("tcp:"));
    let server = Server::start_with(&listen, &options);
    let (_orb, tasks) = server.connect();
    let again = tasks.outcome(promise.task, &promise.token).unwrap();
    assert_eq!(reference(&again), reference(&promise));
    TasksRef::unchecked_narrow(promise.target.as_ref().unwrap()).snapshot().unwrap();
}

#[test]
fn unusable_stores_are_refused_with_advice() {
    let folder = Folder::new("unusable");
    let (store, names) = (folder.text("tasks.db"), folder.text("names.db"));
    let server = Server::start("tcp:127.0.0.1:0", &store);
    let said = refused(&["--store", &store]);
    assert!(said.contains(&format!("in use by process {}", server.process.id())), "{said}");
    drop(server);
    fs::write(folder.text("text"), "no store at all").unwrap();
    let said = refused(&["--store", &folder.text("text")]);
    assert!(said.contains("is not a store of Corelane; it was left as it is: choose another file"), "{said}");
    assert_eq!(fs::read_to_string(folder.text("text")).unwrap(), "no store at all");
    let naming = corelane_services::naming::RECORD_FORMAT;
    drop(corelane_services::store::FileStore::open(&names, naming).unwrap());
    let said = refused(&["--store", &names]);
    assert!(said.contains("is a store of the service \"naming\", not \"cores\""), "{said}");
    let mut octets = fs::read(&store).unwrap();
    let start = 4096;
    octets[start..].iter_mut().for_each(|octet| *octet ^= 0x5a);
    fs::write(&store, &octets).unwrap();
    let said = refused(&["--store", &store]);
    assert!(said.contains("is damaged") && said.contains("put a backup in its place, or name a new file"), "{said}");
}

fn wait_until(what: &str, is_done: impl Fn() -> bool) {
    for _ in 0..60_000 {
        if is_done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("not after a minute: {what}");
}

/// The lease, in nanoseconds, with which tasks are admitted. A client later renews it to an hour.
const SHORT_LEASE: u64 = 2_000 * MS;
/// The next cycle begins when at most this number of tasks has no owner. A client may have 100
/// tasks.
const MAX_ORPHANS: usize = 30;
const TASKS_PER_CLIENT: usize = 8;

#[derive(Clone, Debug)]
struct Held {
    promise: Promise,
    name: String,
    execution: u64,
    is_long: bool,
}

#[derive(Clone, Debug)]
enum Sent {
    Admit(String),
    Change(u64, u64),
    Withdraw(u64),
}

struct Client {
    number: usize,
    random: u64,
    admitted: usize,
    held: Vec<Held>,
    sent: Option<Sent>,
    chosen: usize,
    acknowledged: usize,
}

impl Client {
    fn below(&mut self, bound: usize) -> usize {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as usize % bound
    }

    fn execution(&mut self) -> u64 {
        MS / 10 * (1 + self.below(9) as u64)
    }

    /// Makes a random request. Returns the system exception of the server.
    fn request(&mut self, tasks: &TasksRef, target: &ObjectRef) -> Result<(), SystemException> {
        let system = |error: AdmitError| match error {
            AdmitError::System(exception) => exception,
            other => panic!("{other:?}"),
        };
        if self.held.is_empty() || (self.held.len() < TASKS_PER_CLIENT && self.below(3) == 0) {
            self.admitted += 1;
            let (name, execution) = (format!("c{}-{}", self.number, self.admitted), self.execution());
            self.sent = Some(Sent::Admit(name.clone()));
            let promise = tasks.admit(&spec(&name, execution, Some(target.clone()), SHORT_LEASE)).map_err(system)?;
            self.held.push(Held { promise, name, execution, is_long: false });
            return Ok(());
        }
        let index = self.below(self.held.len());
        self.chosen = index;
        let (task, token) = (self.held[index].promise.task, self.held[index].promise.token);
        match self.below(4) {
            0 => {
                self.sent = Some(Sent::Withdraw(task));
                tasks.withdraw(task, &token)?;
                self.held.remove(index);
            }
            1 => {
                let execution = self.execution();
                self.sent = Some(Sent::Change(task, execution));
                match tasks.change(task, &token, &timing(execution)) {
                    Ok(_) => self.held[index].execution = execution,
                    Err(ReserveError::System(exception)) => return Err(exception),
                    Err(other) => panic!("{other:?}"),
                }
            }
            _ => {
                let granted = tasks.renew(task, &token, HOUR)?;
                assert!(granted > SHORT_LEASE && granted <= HOUR, "{granted}");
                self.held[index].is_long = true;
            }
        }
        Ok(())
    }

    /// Makes one request. Returns false if the server has ended.
    fn step(&mut self, tasks: &TasksRef, target: &ObjectRef) -> bool {
        match self.request(tasks, target) {
            Ok(()) => self.acknowledged += 1,
            // The lease of a slow client may have ended, but not a lease of an hour.
            Err(exception) if exception.kind() == Kind::ObjectNotExist => {
                let held = self.held.remove(self.chosen);
                assert!(!held.is_long, "{}: {exception}", held.name);
            }
            Err(exception) if exception.kind() == Kind::CommFailure => return false,
            // More than 100 decisions in a second, or no server.
            Err(exception) if exception.kind() == Kind::Transient => {
                std::thread::sleep(Duration::from_millis(5));
                if tasks.snapshot().is_err() {
                    return false;
                }
            }
            Err(exception) => panic!("{exception}"),
        }
        self.sent = None;
        true
    }

    /// Compares the tasks with those of a restarted server. `is_early` says that no lease can have
    /// ended since the last cycle. Forgets tasks that are legitimately gone.
    fn compare(&mut self, found: &BTreeMap<u64, TaskRecord>, is_early: bool) {
        let sent = self.sent.take();
        for held in std::mem::take(&mut self.held) {
            let task = held.promise.task;
            let may_be_gone = matches!(sent, Some(Sent::Withdraw(withdrawn)) if withdrawn == task);
            let Some(record) = found.get(&task) else {
                assert!(may_be_gone || !(held.is_long || is_early), "{} is lost", held.name);
                continue;
            };
            assert_eq!(record.name, held.name);
            let execution = record.timing.execution;
            let is_changed = matches!(sent, Some(Sent::Change(changed, to)) if (changed, to) == (task, execution));
            assert!(execution == held.execution || is_changed, "{}: {execution} {}", held.name, held.execution);
            self.held.push(Held { execution, ..held });
        }
    }

    /// Renews all tasks, and checks that the outcomes have the references of the promises. Forgets
    /// tasks that have ended.
    fn renew_all(&mut self, tasks: &TasksRef) {
        self.held.retain_mut(|held| {
            let Promise { task, token, .. } = held.promise;
            match tasks.renew(task, &token, HOUR) {
                Ok(lease) => assert!(lease > SHORT_LEASE && lease <= HOUR, "{lease}"),
                Err(exception) => {
                    assert!(!held.is_long && exception.kind() == Kind::ObjectNotExist, "{}: {exception}", held.name);
                    return false;
                }
            }
            held.is_long = true;
            let again = tasks.outcome(task, &token).unwrap();
            assert_eq!(reference(&again), reference(&held.promise));
            assert!(!again.target.unwrap().non_existent().unwrap());
            true
        });
    }
}

/// Starts a client process that admits three tasks, and kills it after 0 to 39 ms.
fn kill_client(reference: &str, cycle: usize) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_corelane"));
    command.args(["cores", "admit", "-", "--lease", "2s", "--at", reference]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let task = |number| format!("[[task]]\nname = 'victim{cycle}-{number}'\nexecution = '100us'\nperiod = '100ms'\n");
    let file: String = (0..3).map(task).collect();
    child.stdin.take().unwrap().write_all(file.as_bytes()).unwrap();
    std::thread::sleep(Duration::from_millis(cycle as u64 * 7 % 40));
    let _ = child.kill();
    child.wait().unwrap();
}

/// The environment variable `CORELANE_CYCLES` sets the number of kills, by default 30.
#[test]
fn promises_survive_kill_9() {
    let folder = Folder::new("crash");
    let (listen, store) = (format!("unix:{}", folder.text("s")), folder.text("tasks.db"));
    let cycles: usize = std::env::var("CORELANE_CYCLES").ok().and_then(|text| text.parse().ok()).unwrap_or(30);
    let mut server = Server::start(&listen, &store);
    let client = |number: usize| Client {
        number,
        random: number as u64 + 1,
        admitted: 0,
        held: Vec::new(),
        sent: None,
        chosen: 0,
        acknowledged: 0,
    };
    let mut clients: Vec<Client> = (0..3).map(client).collect();
    let mut orphans = BTreeSet::new();
    for cycle in 0..cycles {
        let (is_dying, requests) = (AtomicBool::new(false), AtomicUsize::new(0));
        let began = Instant::now();
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for client in &mut clients {
                let (url, is_dying, requests) = (server.reference.clone(), &is_dying, &requests);
                threads.push(scope.spawn(move || {
                    let (_orb, tasks) = connect(&url);
                    let target = tasks.as_object().clone();
                    while client.step(&tasks, &target) {
                        requests.fetch_add(1, Ordering::Relaxed);
                    }
                    assert!(is_dying.load(Ordering::Relaxed), "the server ended by itself");
                }));
            }
            kill_client(&server.reference, cycle);
            let has_few = || requests.load(Ordering::Relaxed) < 10 + cycle % 17 * 2;
            while has_few() && !threads.iter().any(|thread| thread.is_finished()) {
                std::thread::sleep(Duration::from_millis(1));
            }
            is_dying.store(true, Ordering::Relaxed);
            server.process.kill().unwrap();
            server.process.wait().unwrap();
        });
        // No lease of a task that a client holds began before this cycle.
        let is_short = began.elapsed() < Duration::from_nanos(SHORT_LEASE);
        orphans.extend(clients.iter().filter_map(|client| match &client.sent {
            Some(Sent::Admit(name)) => Some(name.clone()),
            _ => None,
        }));
        server = Server::start(&listen, &store);
        let (_orb, tasks) = server.connect();
        let found = promised(&tasks);
        let is_early = is_short && server.started_at.elapsed() < Duration::from_nanos(SHORT_LEASE);
        let names: BTreeSet<&str> = found.values().map(|record| record.name.as_str()).collect();
        assert_eq!(names.len(), found.len(), "no task is admitted twice");
        let held = |clients: &[Client]| -> BTreeSet<u64> {
            clients.iter().flat_map(|client| client.held.iter().map(|held| held.promise.task)).collect()
        };
        let known = held(&clients);
        for record in found.values().filter(|record| !known.contains(&record.task)) {
            let has_no_owner = record.name.starts_with("victim") || orphans.contains(&record.name);
            assert!(has_no_owner, "{} is back", record.name);
        }
        for client in &mut clients {
            client.compare(&found, is_early);
            client.renew_all(&tasks);
        }
        if found.len() > known.len() + MAX_ORPHANS || cycle + 1 == cycles {
            let known = held(&clients);
            let is_exact = || {
                let (records, ..) = tasks.snapshot().unwrap();
                records.iter().map(|record| record.task).collect::<BTreeSet<_>>() == known
            };
            wait_until("the leases of tasks without an owner end", is_exact);
            assert_eq!(promised(&tasks).len(), known.len());
        }
    }
    let acknowledged: usize = clients.iter().map(|client| client.acknowledged).sum();
    assert!(acknowledged >= cycles * 5, "{acknowledged}");
}
