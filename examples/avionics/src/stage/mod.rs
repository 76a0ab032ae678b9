//! The stage: starts the server and the clients, shows their progress, and prints a summary.
//!
//! The stage is also a CORBA server: the clients report to its recorder.

mod machine;
mod omniorb;
mod page;
mod process;
mod record;
mod table;
mod tasks;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use corelane::{ObjectRef, Orb, SystemException, SystemExceptionKind};
use corelane_sys::clock::now;
use corelane_sys::mpsc::Mailbox;

use crate::Result;
use crate::avionics::{MapStoreRef, MissionComputerRef, Recorder, Report};
use crate::clients::CLIENTS;
use crate::link::{self, Link};
use machine::Machine;
use process::Process;
use record::Record;
use table::Table;
use tasks::AdmittedTasks;

const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(crate) struct DemoOptions {
    pub(crate) seconds: u32,
    pub(crate) folder: PathBuf,
    pub(crate) link: LinkMode,
}

/// Use of a [`Link`] between server and clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkMode {
    /// The clients call over the loopback interface.
    None,
    /// The demo shall run in a network namespace of its own.
    Wanted,
    /// The demo runs in a network namespace of its own.
    InNamespace,
}

enum RecorderMessage {
    Serving(Served),
    Report(Report),
}

struct Served {
    flight: ObjectRef,
    maps: ObjectRef,
    /// The admission object; `None` if the server admits no tasks.
    tasks: Option<ObjectRef>,
    scheduling: String,
}

struct RecorderServant(Arc<Mailbox<RecorderMessage>>);

impl RecorderServant {
    fn hear(&self, heard: RecorderMessage) -> Result<(), SystemException> {
        let full = |_| SystemException::new(SystemExceptionKind::NoResources, 0, corelane::Completion::No);
        self.0.send(heard).map_err(full)
    }
}

impl Recorder for RecorderServant {
    fn serves(
        &self,
        flight: Option<&MissionComputerRef>,
        maps: Option<&MapStoreRef>,
        tasks: Option<&ObjectRef>,
        scheduling: &str,
    ) -> Result<(), SystemException> {
        let nil = || SystemException::new(SystemExceptionKind::BadParam, 0, corelane::Completion::No);
        let flight = flight.ok_or_else(nil)?.as_object().clone();
        let maps = maps.ok_or_else(nil)?.as_object().clone();
        self.hear(RecorderMessage::Serving(Served {
            flight,
            maps,
            tasks: tasks.cloned(),
            scheduling: scheduling.into(),
        }))
    }

    fn take(&self, latest: &Report) -> Result<(), SystemException> {
        self.hear(RecorderMessage::Report(latest.clone()))
    }
}

/// Runs the demo. Returns true if no call, no process and no admission of a task failed.
pub(crate) fn run(options: &DemoOptions) -> Result<bool> {
    fs::create_dir_all(&options.folder)?;
    let folder = options.folder.canonicalize()?;
    let mut trouble = Vec::new();
    let mut machine = Machine::look();
    print_machine(&machine);
    let link = if options.link == LinkMode::InNamespace { Some(Link::make()?) } else { None };
    let ground_link = match &link {
        None => omniorb::build(&folder.join("omniorb")),
        Some(_) => Err("it calls over the loopback interface only".to_owned()),
    };

    let heard = Arc::new(Mailbox::new(1024)?);
    let address = if link.is_some() { link::ADDRESS } else { "127.0.0.1" };
    let orb = Orb::builder().listen(format!("tcp:{address}:0")).build()?;
    let recorder = orb.root_poa().activate(&Recorder::servant(RecorderServant(Arc::clone(&heard))))?.to_string();
    orb.root_poa().manager().activate()?;

    let myself = std::env::current_exe()?;
    let mut command = Command::new(&myself);
    command.args(["server", &recorder]).args(link.as_ref().map(|_| "linked"));
    let mut server = Process::start("server", &mut command, &folder)?;
    let Served { flight, maps, tasks, scheduling } = served(&heard, &mut server)?;
    println!("server    process {}, flight computer {scheduling}, map store OTHER", server.id());
    let admission_object = tasks.as_ref().map(ToString::to_string).unwrap_or_default();
    let mut tasks = tasks.map(|tasks| AdmittedTasks::new(&tasks));

    let mut records: Vec<Record> =
        CLIENTS.iter().map(|client| Record::new(client.name, client.task, client.rate, client.deadline)).collect();
    let mut processes = Vec::new();
    for client in &CLIENTS {
        let target = if client.name == "bulk" { &maps } else { &flight }.to_string();
        let seconds = options.seconds.to_string();
        let mut command = link.as_ref().map_or_else(|| Command::new(&myself), |link| link.at_clients(&myself));
        command.args(["client", client.name, &target, &admission_object, &recorder, &seconds]);
        processes.push(Process::start(client.name, &mut command, &folder)?);
    }
    match &ground_link {
        Ok(program) => {
            let admitted = tasks.as_mut().map(|tasks| tasks.admit_ground_link(&flight)).transpose();
            let target = admitted.unwrap_or_else(|error| {
                trouble.push(error.to_string());
                None
            });
            let target = target.unwrap_or_else(|| flight.to_string());
            processes.push(omniorb::start(program, &target, &recorder, options.seconds, &folder)?);
            records.push(omniorb::record());
        }
        Err(reason) => println!("omniORB   left out: {reason}"),
    }
    print_clients(&records);
    machine.begin();
    let mut observe = || tasks.as_mut().map_or(Ok(()), AdmittedTasks::observe_once);
    let watched = watch(options.seconds, &heard, &mut processes, &mut records, &mut observe)?;
    let collected = tasks.as_mut().map_or(Ok(()), AdmittedTasks::collect);
    trouble.extend([watched, collected].into_iter().filter_map(|done| done.err().map(|error| error.to_string())));
    for process in processes.iter_mut().chain([&mut server]) {
        trouble.extend(process.finish(PATIENCE).err().map(|error| error.to_string()));
    }
    while let Some(heard) = heard.receive() {
        note(heard, &mut records);
    }
    trouble.extend(silent(&records));
    let left_out = ground_link.err();
    let said = server.said();
    let streams: Vec<&str> = said.lines().filter(|line| line.starts_with("stream ")).collect();
    let found = Findings { tasks: tasks.as_ref(), streams: &streams, left_out: left_out.as_deref() };
    sum_up(options, &folder, &machine, &records, found, &trouble)
}

fn served(heard: &Mailbox<RecorderMessage>, server: &mut Process) -> Result<Served> {
    let end = now() + PATIENCE;
    while !end.is_past() && server.ended()?.is_none() {
        if let Some(RecorderMessage::Serving(served)) = heard.receive_until(Some(now() + Duration::from_millis(100)))? {
            return Ok(served);
        }
    }
    server.finish(Duration::from_secs(1))?;
    Err("the server ended before it was ready".into())
}

/// Shows the progress until all clients have ended. Calls `observe` from the middle of the run on,
/// until it fails, and returns its failure in the inner result.
fn watch(
    seconds: u32,
    heard: &Mailbox<RecorderMessage>,
    processes: &mut [Process],
    records: &mut [Record],
    observe: &mut dyn FnMut() -> Result<()>,
) -> Result<Result<()>> {
    let length = Duration::from_secs(seconds.into());
    let mut observed = Ok(());
    let (mut table, started) = (Table::new(length), now());
    let end = started + length + PATIENCE;
    while !end.is_past() {
        if let Some(heard) = heard.receive_until(Some(now() + Duration::from_millis(100)))? {
            note(heard, records);
        }
        if observed.is_ok() && started.elapsed() * 2 >= length {
            observed = observe();
        }
        let passed = started.elapsed().as_secs();
        if passed < seconds.into() {
            table.show(&format!("{passed} s of {seconds}"), records)?;
        }
        let mut running = false;
        for process in processes.iter_mut() {
            running |= process.ended()?.is_none();
        }
        if !running {
            break;
        }
    }
    table.clear()?;
    Ok(observed)
}

fn note(heard: RecorderMessage, records: &mut [Record]) {
    if let RecorderMessage::Report(report) = heard
        && let Some(record) = records.iter_mut().find(|record| record.name == report.client)
    {
        record.add(report);
    }
}

fn silent(records: &[Record]) -> impl Iterator<Item = String> {
    records.iter().filter(|record| record.calls() == 0).map(|record| format!("{} made no call", record.name))
}

fn print_machine(machine: &Machine) {
    println!("A mission computer and what calls it: each client is a process, each number is of real calls.\n");
    println!("machine   {}, {} cores", machine.kernel, machine.cores);
    let (hold, lack) = machine.split();
    for (word, guarantees) in [("hold", &hold), ("lacking", &lack)] {
        for (at, guarantee) in guarantees.iter().enumerate() {
            println!("{:9} {:22} {}", if at == 0 { word } else { "" }, guarantee.name, guarantee.finding);
        }
    }
    println!("{}", standing(machine));
}

fn print_clients(records: &[Record]) {
    for (at, record) in records.iter().enumerate() {
        let within =
            record.deadline.map_or(String::new(), |deadline| format!(", within {}", record::format_bound(deadline)));
        let word = if at == 0 { "clients" } else { "" };
        println!("{word:9} {:9} {}, {} Hz{within}", record.name, record.task, record.due);
    }
    println!();
}

fn standing(machine: &Machine) -> &'static str {
    if machine.is_real_time() {
        "          Fixed priorities are permitted and used (SCHED_FIFO). `corelane doctor` says how to correct guarantees that do not hold."
    } else {
        "          Fixed priorities are refused: everything runs in the ordinary class, and deadlines are kept at best effort.\n          \
         `corelane doctor` says what to change."
    }
}

/// Findings beside the clients' calls.
#[derive(Clone, Copy)]
struct Findings<'a> {
    /// `None` if the server admits no tasks.
    tasks: Option<&'a AdmittedTasks>,
    /// The server's lines about its streams; empty without a link.
    streams: &'a [&'a str],
    /// The reason why there is no client of omniORB.
    left_out: Option<&'a str>,
}

fn sum_up(
    options: &DemoOptions,
    folder: &Path,
    machine: &Machine,
    records: &[Record],
    found: Findings<'_>,
    trouble: &[String],
) -> Result<bool> {
    let Findings { tasks, streams, left_out } = found;
    let calls: usize = records.iter().map(Record::calls).sum();
    let count = |part: fn(&Record) -> u32| records.iter().map(part).sum::<u32>();
    let failures = count(|record| record.failures);
    let with_deadline = records.iter().filter(|record| record.deadline.is_some());
    let misses: u32 = with_deadline.map(|record| record.misses).sum();
    println!(
        "summary   {} s, rates over the whole time, latency from the moment a call is due to its result",
        options.seconds
    );
    print!("{}", table::lines(records, Record::mean_rate));
    println!("\ntotal     {calls} calls, {misses} deadlines missed, {failures} calls failed");
    if let Some((idle, stolen)) = machine.idle_and_stolen() {
        println!(
            "cores     {idle:.0} % idle, with all programs of the machine; {stolen:.1} % taken by the host of the virtual machine"
        );
    }
    match tasks {
        Some(tasks) => print!("{}", tasks.lines()),
        None if !streams.is_empty() => streams.iter().for_each(|line| println!("{line}")),
        None => println!("tasks     left out: the server admits no tasks, see {}", folder.join("server.log").display()),
    }
    if let Some(reason) = left_out {
        println!("omniORB   left out: {reason}");
    }
    for record in records.iter().filter(|record| record.failures > 0) {
        println!("failed    {}: {}", record.name, record.trouble);
    }
    for sentence in trouble {
        println!("trouble   {sentence}");
    }
    let path = folder.join("report.html");
    fs::write(&path, page::page(options, machine, records, &found))?;
    println!("report    {}", path.display());
    Ok(failures == 0 && trouble.is_empty())
}
