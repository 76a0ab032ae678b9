//! The texts before and after the run.

use std::fs;
use std::path::Path;

use super::channel::ChannelView;
use super::machine::Machine;
use super::record::{self, Record};
use super::tasks::AdmittedTasks;
use super::{DemoOptions, page, table};
use crate::Result;

pub(super) fn print_machine(machine: &Machine) {
    println!(
        "A mission computer with its sensors and clients, which are processes of their own. Each number is measured.\n"
    );
    println!("machine   {}, {} cores", machine.kernel, machine.cores);
    let (hold, lack) = machine.split();
    for (word, guarantees) in [("hold", &hold), ("lacking", &lack)] {
        for (at, guarantee) in guarantees.iter().enumerate() {
            println!("{:9} {:22} {}", if at == 0 { word } else { "" }, guarantee.name, guarantee.finding);
        }
    }
    println!("{}", standing(machine));
}

pub(super) fn print_work(records: &[Record]) {
    for (at, record) in records.iter().enumerate() {
        let within =
            record.deadline.map_or(String::new(), |deadline| format!(", within {}", record::format_bound(deadline)));
        let word = if at == 0 { "work" } else { "" };
        println!("{word:9} {:10} {}, {} Hz{within}", record.name, record.task, record.due);
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

/// Findings of the run, apart from the clients' calls.
#[derive(Clone, Copy)]
pub(super) struct Findings<'a> {
    /// The admitted tasks with the jobs that the server has recorded; `None` if the server admits
    /// no tasks.
    pub(super) tasks: Option<&'a AdmittedTasks>,
    /// The event channel; `None` if the clients call the computer
    /// ([`Form::Direct`](crate::Form::Direct)).
    pub(super) channel: Option<&'a ChannelView>,
    /// The server's lines about its streams; empty without a link.
    pub(super) streams: &'a [&'a str],
    /// The reason why there is no client of omniORB; `None` if there is one.
    pub(super) left_out: Option<&'a str>,
}

pub(super) fn sum_up(
    options: &DemoOptions,
    folder: &Path,
    machine: &Machine,
    records: &[Record],
    found: Findings<'_>,
    trouble: &[String],
) -> Result<bool> {
    let Findings { tasks, channel, streams, left_out } = found;
    let calls: usize = records.iter().map(Record::calls).sum();
    let count = |part: fn(&Record) -> u32| records.iter().map(part).sum::<u32>();
    let failures = count(|record| record.failures);
    let with_deadline = records.iter().filter(|record| record.deadline.is_some());
    let misses: u32 = with_deadline.map(Record::missed).sum();
    let what = if channel.is_some() { "a call or sample" } else { "a call" };
    println!(
        "summary   {} s, rates over the whole time, latency from the moment {what} is due to its result",
        options.seconds
    );
    print!("{}", table::lines(records, Record::mean_rate));
    println!("\ntotal     {calls} calls, {misses} deadlines missed, {failures} calls failed");
    if let Some(channel) = channel {
        print!("\n{}\n{}", channel.table(), channel.lines());
    }
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
