//! The stage: starts the server and the clients, shows their progress, and prints a summary.
//!
//! The stage is also a CORBA server: the clients report to its recorder.

mod channel;
mod machine;
mod omniorb;
mod page;
mod process;
mod record;
mod recorder;
mod summary;
mod table;
mod tasks;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use corelane::Orb;
use corelane_sys::clock::now;
use corelane_sys::mpsc::Mailbox;

use crate::avionics::Recorder;
use crate::clients::{CLIENTS, Client, Role};
use crate::link::{self, Link};
use crate::mission::plan::WORK;
use crate::{Form, Result};
use channel::ChannelView;
use machine::Machine;
use process::Process;
use record::Record;
use recorder::{RecorderMessage, RecorderServant, Served, served};
use summary::{Findings, print_machine, print_work, sum_up};
use table::Table;
use tasks::AdmittedTasks;

const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(crate) struct DemoOptions {
    pub(crate) seconds: u32,
    pub(crate) folder: PathBuf,
    pub(crate) link: LinkMode,
    pub(crate) form: Form,
}

/// Use of a [`Link`] between server and clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkMode {
    /// The clients call over the loopback interface.
    None,
    /// The demo must be started again in a network namespace of its own.
    Wanted,
    /// The demo runs in a network namespace of its own.
    InNamespace,
}

/// Runs the demo. Returns true if no call, no push, no process and no admission of a task failed.
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
    command.args(["server", &recorder, options.form.word()]).args(link.as_ref().map(|_| "linked"));
    let mut server = Process::start("server", &mut command, &folder)?;
    let Served { flight, maps, tasks, events, scheduling } = served(&heard, &mut server)?;
    println!("server    process {}, flight computer {scheduling}, map store OTHER", server.id());
    let admission_object = tasks.as_ref().map(ToString::to_string).unwrap_or_default();
    let channel = events.as_ref().map(|events| ChannelView::new(events, tasks.is_some()));
    let mut observed = Observed { tasks: tasks.as_ref().map(AdmittedTasks::new), channel };

    let mut records = records(options.form);
    // The callers end after the run, the sensors and the display with their standard input.
    let (mut callers, mut sensors) = (Vec::new(), Vec::new());
    for client in &CLIENTS {
        let mut command = link.as_ref().map_or_else(|| Command::new(&myself), |link| link.at_clients(&myself));
        if let Some(events) = events.as_ref().filter(|_| client.role != Role::Caller) {
            let address = if link.is_some() { link::CLIENTS_ADDRESS } else { "127.0.0.1" };
            command.args(["sensor", client.name, &events.to_string(), address]);
            sensors.push(Process::start(client.name, &mut command, &folder)?);
        } else {
            let target = if client.name == "bulk" { &maps } else { &flight }.to_string();
            let seconds = options.seconds.to_string();
            command.args(["client", client.name, &target, &admission_object, &recorder, &seconds]);
            callers.push(Process::start(client.name, &mut command, &folder)?);
        }
    }
    match &ground_link {
        Ok(program) => {
            let admitted = observed.tasks.as_mut().map(|tasks| tasks.admit_ground_link(&flight)).transpose();
            let target = admitted.unwrap_or_else(|error| {
                trouble.push(error.to_string());
                None
            });
            let target = target.unwrap_or_else(|| flight.to_string());
            callers.push(omniorb::start(program, &target, &recorder, options.seconds, &folder)?);
            records.push(omniorb::record());
        }
        Err(reason) => println!("omniORB   left out: {reason}"),
    }
    print_work(&records);
    machine.begin();
    let watched = watch(options.seconds, &heard, &mut callers, &mut records, &mut observed)?;
    let collected = observed.collect();
    trouble.extend([watched, collected].into_iter().filter_map(|done| done.err().map(|error| error.to_string())));
    for process in callers.iter_mut().chain(&mut sensors).chain([&mut server]) {
        trouble.extend(process.finish(PATIENCE).err().map(|error| error.to_string()));
    }
    while let Some(heard) = heard.receive() {
        note(heard, &mut records);
    }
    trouble.extend(silent(&records, options.seconds));
    if let Some(channel) = &observed.channel {
        channel.note_overflows(&mut records);
        trouble.extend(channel.failures());
    }
    let left_out = ground_link.err();
    let said = server.said();
    let streams: Vec<&str> = said.lines().filter(|line| line.starts_with("stream ")).collect();
    let Observed { tasks, channel } = &observed;
    let found =
        Findings { tasks: tasks.as_ref(), channel: channel.as_ref(), streams: &streams, left_out: left_out.as_deref() };
    sum_up(options, &folder, &machine, &records, found, &trouble)
}

/// Returns a record for each client that calls, and for the work that events start.
fn records(form: Form) -> Vec<Record> {
    let of_client = |client: &Client| Record::new(client.name, client.task, client.rate, client.deadline);
    if form == Form::Direct {
        return CLIENTS.iter().map(of_client).collect();
    }
    let work = WORK.iter().map(|work| Record::new(work.name, work.filter, work.rate, Some(work.deadline)));
    work.chain(CLIENTS.iter().filter(|client| client.role == Role::Caller).map(of_client)).collect()
}

/// The server's objects that the stage asks during the run.
struct Observed {
    /// The admission object and its tasks; `None` if the server admits no tasks.
    tasks: Option<AdmittedTasks>,
    /// The event channel; `None` if the clients call the computer ([`Form::Direct`]).
    channel: Option<ChannelView>,
}

impl Observed {
    /// Changes modes, and looks at the tasks in the middle of the run. `passed` is the part of the
    /// run that has passed, in hundredths.
    fn observe(&mut self, passed: u32) -> Result<()> {
        if let Some(channel) = &mut self.channel {
            channel.change_mode(passed)?;
        }
        match &mut self.tasks {
            Some(tasks) if passed >= 50 => tasks.observe_once(),
            _ => Ok(()),
        }
    }

    /// Gets the final numbers of the channel and the tasks. Call it while the server runs.
    fn collect(&mut self) -> Result<()> {
        self.channel.as_mut().map_or(Ok(()), ChannelView::refresh)?;
        self.tasks.as_mut().map_or(Ok(()), AdmittedTasks::collect)
    }

    /// Returns the present counts of the channel, and notes its dropped sets in the records.
    fn channel_table(&mut self, records: &mut [Record]) -> Result<String> {
        let Some(channel) = &mut self.channel else { return Ok(String::new()) };
        channel.refresh()?;
        channel.note_overflows(records);
        Ok(channel.live_table())
    }
}

/// Shows the progress until all callers have ended. Returns the first failure to observe the server
/// in the inner result; the server is then not asked again.
fn watch(
    seconds: u32,
    heard: &Mailbox<RecorderMessage>,
    callers: &mut [Process],
    records: &mut [Record],
    observed: &mut Observed,
) -> Result<Result<()>> {
    let length = Duration::from_secs(seconds.into());
    let mut done = Ok(());
    let (mut table, started) = (Table::new(length), now());
    let end = started + length + PATIENCE;
    while !end.is_past() {
        if let Some(heard) = heard.receive_until(Some(now() + Duration::from_millis(100)))? {
            note(heard, records);
        }
        let hundredths = started.elapsed().as_millis() / u128::from(seconds * 10);
        if done.is_ok() {
            done = observed.observe(u32::try_from(hundredths).unwrap_or(u32::MAX));
        }
        let passed = started.elapsed().as_secs();
        if passed < seconds.into() && table.is_due() {
            let counts = if done.is_ok() { observed.channel_table(records) } else { Ok(String::new()) };
            let counts = counts.unwrap_or_else(|error| {
                done = Err(error);
                String::new()
            });
            table.show(&format!("{passed} s of {seconds}"), records, &counts)?;
        }
        let mut running = false;
        for process in callers.iter_mut() {
            running |= process.ended()?.is_none();
        }
        if !running {
            break;
        }
    }
    table.clear()?;
    Ok(done)
}

fn note(heard: RecorderMessage, records: &mut [Record]) {
    if let RecorderMessage::Report(report) = heard
        && let Some(record) = records.iter_mut().find(|record| record.name == report.client)
    {
        record.add(report);
    }
}

/// Returns a sentence for each record without calls. In a short run, slow work may have had no
/// turn, and work of one mode has only a third of the run.
fn silent(records: &[Record], seconds: u32) -> impl Iterator<Item = String> {
    let should_have = move |record: &&Record| record.due * seconds >= 50 && record.calls() == 0;
    records.iter().filter(should_have).map(|record| format!("{} did nothing", record.name))
}
