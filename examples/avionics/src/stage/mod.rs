//! The stage: starts the server and the clients, shows their progress, and prints a summary.
//!
//! The stage is also a CORBA server: the clients report to its recorder.

mod machine;
mod omniorb;
mod page;
mod process;
mod record;
mod table;

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
use machine::Machine;
use process::Process;
use record::Record;
use table::Table;

const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(crate) struct DemoOptions {
    pub(crate) seconds: u32,
    pub(crate) folder: PathBuf,
}

enum RecorderMessage {
    Serving { flight: ObjectRef, maps: ObjectRef, scheduling: String },
    Report(Report),
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
        scheduling: &str,
    ) -> Result<(), SystemException> {
        let nil = || SystemException::new(SystemExceptionKind::BadParam, 0, corelane::Completion::No);
        let flight = flight.ok_or_else(nil)?.as_object().clone();
        let maps = maps.ok_or_else(nil)?.as_object().clone();
        self.hear(RecorderMessage::Serving { flight, maps, scheduling: scheduling.into() })
    }

    fn take(&self, latest: &Report) -> Result<(), SystemException> {
        self.hear(RecorderMessage::Report(latest.clone()))
    }
}

/// Returns true if every call of every client succeeded.
pub(crate) fn run(options: &DemoOptions) -> Result<bool> {
    fs::create_dir_all(&options.folder)?;
    let folder = options.folder.canonicalize()?;
    let mut trouble = Vec::new();
    let mut machine = Machine::look();
    print_machine(&machine);
    let ground_link = omniorb::build(&folder.join("omniorb"));

    let heard = Arc::new(Mailbox::new(1024)?);
    let orb = Orb::builder().listen("tcp:127.0.0.1:0").build()?;
    let recorder = orb.root_poa().activate(&Recorder::servant(RecorderServant(Arc::clone(&heard))))?.to_string();
    orb.root_poa().manager().activate()?;

    let myself = std::env::current_exe()?;
    let mut server = Process::start("server", Command::new(&myself).args(["server", &recorder]), &folder)?;
    let (flight, maps, scheduling) = served(&heard, &mut server)?;
    println!("server    process {}, flight computer {scheduling}, map store OTHER", server.id());

    let mut records: Vec<Record> =
        CLIENTS.iter().map(|client| Record::new(client.name, client.task, client.rate, client.deadline)).collect();
    let mut processes = Vec::new();
    for client in &CLIENTS {
        let target = if client.name == "bulk" { &maps } else { &flight };
        let seconds = options.seconds.to_string();
        let mut command = Command::new(&myself);
        command.args(["client", client.name, target, &recorder, &seconds]);
        processes.push(Process::start(client.name, &mut command, &folder)?);
    }
    match &ground_link {
        Ok(program) => {
            processes.push(omniorb::start(program, &flight, &recorder, options.seconds, &folder)?);
            records.push(omniorb::record());
        }
        Err(reason) => println!("omniORB   left out: {reason}"),
    }
    print_clients(&records);
    machine.begin();
    watch(options.seconds, &heard, &mut processes, &mut records)?;
    for process in processes.iter_mut().chain([&mut server]) {
        trouble.extend(process.finish(PATIENCE).err().map(|error| error.to_string()));
    }
    while let Some(heard) = heard.receive() {
        note(heard, &mut records);
    }
    trouble.extend(silent(&records));
    sum_up(options, &folder, &machine, &records, &trouble, ground_link.err())
}

/// Returns the server's two objects and its scheduling class.
fn served(heard: &Mailbox<RecorderMessage>, server: &mut Process) -> Result<(String, String, String)> {
    let end = now() + PATIENCE;
    while !end.is_past() && server.ended()?.is_none() {
        if let Some(RecorderMessage::Serving { flight, maps, scheduling }) =
            heard.receive_until(Some(now() + Duration::from_millis(100)))?
        {
            return Ok((flight.to_string(), maps.to_string(), scheduling));
        }
    }
    server.finish(Duration::from_secs(1))?;
    Err("the server ended before it was ready".into())
}

fn watch(
    seconds: u32,
    heard: &Mailbox<RecorderMessage>,
    processes: &mut [Process],
    records: &mut [Record],
) -> Result<()> {
    let length = Duration::from_secs(seconds.into());
    let (mut table, started) = (Table::new(length), now());
    let end = started + length + PATIENCE;
    while !end.is_past() {
        if let Some(heard) = heard.receive_until(Some(now() + Duration::from_millis(100)))? {
            note(heard, records);
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
    Ok(table.clear()?)
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

fn sum_up(
    options: &DemoOptions,
    folder: &Path,
    machine: &Machine,
    records: &[Record],
    trouble: &[String],
    left_out: Option<String>,
) -> Result<bool> {
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
    if let Some(reason) = &left_out {
        println!("omniORB   left out: {reason}");
    }
    for record in records.iter().filter(|record| record.failures > 0) {
        println!("failed    {}: {}", record.name, record.trouble);
    }
    for sentence in trouble {
        println!("trouble   {sentence}");
    }
    let path = folder.join("report.html");
    fs::write(&path, page::page(options.seconds, machine, records, left_out.as_deref()))?;
    println!("report    {}", path.display());
    Ok(failures == 0 && trouble.is_empty())
}
