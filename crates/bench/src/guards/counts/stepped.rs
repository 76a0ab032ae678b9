//! Atomic operations, instructions and kernel entries of a call, counted by single-stepping
//! (docs/decisions/0009-atomics-are-counted-by-stepping.md).
//!
//! The stepped process has settled when every thread that takes part in calls waits in the kernel.
//! The counts cover the work between two settled states.

use std::fs;
use std::io;
use std::time::Duration;

use corelane_sys::clock;
use corelane_sys::ptrace_counter::{InstructionCounts, PtraceCounter};

use crate::Failure;
use crate::address::LOOPBACK;
use crate::baseline::BaselineTransport;
use crate::cost;
use crate::harness::{FigureLabel, Progress};
use crate::launch::{start_client, start_non_polling_echo};
use crate::operation::MeasuredOperation;
use crate::options::BenchOptions;
use crate::orb::ServerArchitecture;
use crate::peer::{PeerKind, PeerThreads};
use crate::report::{Report, format_with_bound};
use crate::service::RunningProgram;
use crate::value::SingleValue;

const WARM_UP: usize = 50;

/// Number of calls that show which threads take part.
const LOOKED_AT: usize = 1000;

const SAMPLES: usize = 9;

const PATIENCE: Duration = Duration::from_secs(60);

const LOOK: Duration = Duration::from_micros(200);

const COUNTED: [&str; 3] = ["atomic operations", "instructions", "kernel entries"];

type Figures = [f64; 3];

enum Stop {
    Refused(io::Error),
    Failed(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Stop::Failed(failure)
    }
}

struct SteppedPair {
    client: RunningProgram,
    server: RunningProgram,
    peer: &'static str,
    config: String,
    most: [Option<f64>; 2],
    oneways: bool,
}

pub(super) fn stepped(
    architectures: &[ServerArchitecture],
    operations: &[MeasuredOperation],
    options: &BenchOptions,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let mut values = Vec::new();
    for &architecture in architectures {
        progress.show(&format!("counts: {architecture}, step by step"));
        let counted = ours(architecture, options).and_then(|pair| pair.counted(operations));
        progress.clear();
        match counted {
            Ok(counted) => values.extend(counted),
            Err(Stop::Refused(error)) => {
                let reason = format!("atomic operations and instructions, which need ptrace: {error}");
                return report.add_missing("counts", "Corelane", &reason);
            }
            Err(Stop::Failed(failure)) => return Err(failure),
        }
    }
    progress.show("counts: omniORB, step by step");
    let counted = omniorb(options).and_then(|pair| pair.counted(operations));
    progress.clear();
    let counted = counted.map_err(|stop| {
        let reason = match stop {
            Stop::Refused(error) => error.to_string(),
            Stop::Failed(failure) => failure.to_string(),
        };
        Failure::new(format!("atomic operations: {reason}"))
    });
    values.extend(report.or_report_missing("counts", PeerKind::OmniOrb.name(), counted)?.into_iter().flatten());
    let title = "atomic operations, instructions and kernel entries per call, counted step by step";
    report.add_text(&table(title, &values))?;
    report.add_json_values(title, &values)
}

fn ours(architecture: ServerArchitecture, options: &BenchOptions) -> Result<SteppedPair, Stop> {
    let (server, reference) = start_non_polling_echo(architecture, LOOPBACK, &options.placement)?;
    let client = start_client(&reference, &options.placement)?;
    let server_most = if architecture == ServerArchitecture::PerConnection { 9.0 } else { 10.0 };
    let most = [Some(2.0), Some(server_most)];
    Ok(SteppedPair { client, server, peer: "Corelane", config: architecture.config(), most, oneways: true })
}

fn omniorb(options: &BenchOptions) -> Result<SteppedPair, Stop> {
    let peer = options.peer(PeerKind::OmniOrb)?;
    let (server, reference) = peer.serve(BaselineTransport::Tcp, PeerThreads::Default, &options.placement)?;
    let client = peer.caller(&reference, &options.placement)?;
    Ok(SteppedPair {
        client,
        server,
        peer: peer.kind().name(),
        config: "as it comes".to_owned(),
        most: [None; 2],
        oneways: false,
    })
}

impl SteppedPair {
    fn counted(mut self, operations: &[MeasuredOperation]) -> Result<Vec<SingleValue>, Stop> {
        let operations: Vec<MeasuredOperation> =
            operations.iter().copied().filter(|operation| self.oneways || !operation.is_oneway()).collect();
        for operation in &operations {
            self.client.ask(&format!("call {operation} {WARM_UP}"), PATIENCE)?;
        }
        let processes = [self.client.pid(), self.server.pid()];
        let before = processes.map(switches);
        self.client.ask(&format!("call {} {LOOKED_AT}", MeasuredOperation::EmptyCall), PATIENCE)?;
        let [client, server] = [0, 1].map(|at| taking_part(&before[at], &switches(processes[at])));
        let servers = self.on_server(&server, &operations)?;
        let clients = self.on_client(&client, &operations)?;
        let sides = operations.iter().zip(clients.into_iter().zip(servers));
        Ok(sides.flat_map(|(&operation, (client, server))| self.told(operation, client, server)).collect())
    }

    fn on_server(&mut self, threads: &[u32], operations: &[MeasuredOperation]) -> Result<Vec<Figures>, Stop> {
        let mut stepped = attach(&self.server, threads)?;
        settle(&mut stepped, &mut self.client)?;
        let mut all = Vec::new();
        for &operation in operations {
            // If the result of an operation is compared in full, the client makes one call more
            // than its input line requests. So the line requests 0 calls for a count of one call.
            let asked = usize::from(!operation.has_comparison_call());
            let counts = samples(&mut stepped, &mut self.client, operation, asked)?;
            all.push(figures(counts));
        }
        Ok(all)
    }

    /// Counts one call of the client as the difference between a request for 1 call and a request
    /// for 0 calls.
    fn on_client(&mut self, threads: &[u32], operations: &[MeasuredOperation]) -> Result<Vec<Figures>, Stop> {
        let mut stepped = attach(&self.client, threads)?;
        settle(&mut stepped, &mut self.client)?;
        let mut all = Vec::new();
        for &operation in operations {
            let without = figures(samples(&mut stepped, &mut self.client, operation, 0)?);
            let with = figures(samples(&mut stepped, &mut self.client, operation, 1)?);
            all.push([0, 1, 2].map(|at| with[at] - without[at]));
        }
        Ok(all)
    }

    fn told(&self, operation: MeasuredOperation, client: Figures, server: Figures) -> Vec<SingleValue> {
        let label = FigureLabel {
            bench: "counts",
            peer: self.peer,
            transport: "tcp",
            op: operation.to_string(),
            config: self.config.clone(),
            axis_point: None,
        };
        let mut values = Vec::new();
        for (side, figures, most) in [("client", client, self.most[0]), ("server", server, self.most[1])] {
            // Oneways and operations with results of variable size have no bound. For such results
            // the memory allocator may use atomic operations.
            let bounded = !operation.is_oneway() && !operation.has_comparison_call();
            let bounds = [most.filter(|_| bounded), None, None];
            values.extend(COUNTED.iter().zip(figures.into_iter().zip(bounds)).map(|(quantity, (value, bound))| {
                SingleValue { label: label.clone(), quantity: format!("{side}: {quantity}"), value, unit: "", bound }
            }));
        }
        values
    }
}

/// Returns the number of context switches of each thread. Involuntary switches count, because a
/// thread that the kernel always preempts may never wait.
fn switches(process: u32) -> Vec<(u32, u64)> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let of_task = |task: fs::DirEntry| {
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let (voluntary, involuntary) = cost::context_switches(&status);
        Some((task.file_name().to_str()?.parse().ok()?, voluntary + involuntary))
    };
    tasks.filter_map(of_task).collect()
}

/// Returns the threads whose context switches exceed a tenth of the calls, which excludes threads
/// that wake occasionally.
fn taking_part(before: &[(u32, u64)], after: &[(u32, u64)]) -> Vec<u32> {
    let earlier = |id: u32| before.iter().find(|(known, _)| *known == id).map_or(0, |(_, count)| *count);
    let took_part = after.iter().filter(|&&(id, count)| count.saturating_sub(earlier(id)) > LOOKED_AT as u64 / 10);
    took_part.map(|(id, _)| *id).collect()
}

fn attach(service: &RunningProgram, threads: &[u32]) -> Result<PtraceCounter, Stop> {
    if threads.is_empty() {
        return Err(Stop::Failed(Failure::new("no thread takes part in calls")));
    }
    PtraceCounter::attach(service.pid(), threads).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported => Stop::Refused(error),
        _ => Stop::Failed(Failure::new(format!("process {} cannot be stepped: {error}", service.pid()))),
    })
}

/// Makes an uncounted call. The attachment interrupts system calls, and the counter does not see
/// the kernel restart them, so the counts of this call would be wrong.
fn settle(stepped: &mut PtraceCounter, client: &mut RunningProgram) -> Result<(), Failure> {
    sample(stepped, client, MeasuredOperation::EmptyCall, 1).map(drop)
}

fn samples(
    stepped: &mut PtraceCounter,
    client: &mut RunningProgram,
    operation: MeasuredOperation,
    asked: usize,
) -> Result<Vec<Vec<InstructionCounts>>, Failure> {
    (0..SAMPLES).map(|_| sample(stepped, client, operation, asked)).collect()
}

fn sample(
    stepped: &mut PtraceCounter,
    client: &mut RunningProgram,
    operation: MeasuredOperation,
    asked: usize,
) -> Result<Vec<InstructionCounts>, Failure> {
    let deadline = clock::now() + PATIENCE;
    let stuck = |error: io::Error| Failure::new(format!("a process that is stepped does not settle: {error}"));
    stepped.step_until_all_wait(deadline).map_err(stuck)?;
    let before: Vec<InstructionCounts> = stepped.counts().collect();
    client.tell(&format!("call {operation} {asked}"))?;
    while client.answer(LOOK)?.is_none() {
        stepped.step_until_all_wait(deadline).map_err(stuck)?;
    }
    // The client's answer after a oneway does not show that the server has run, so this loop waits
    // until the counts change.
    loop {
        stepped.step_until_all_wait(deadline).map_err(stuck)?;
        if stepped.counts().ne(before.iter().copied()) {
            break;
        }
    }
    if stepped.has_ended() {
        return Err(Failure::new("a thread ended while calls were counted"));
    }
    Ok(stepped.counts().zip(before).map(|(after, before)| after - before).collect())
}

/// Returns, for each quantity, the minimums of the threads over the samples, added up over the
/// threads.
fn figures(samples: Vec<Vec<InstructionCounts>>) -> Figures {
    let threads = samples.first().map_or(0, Vec::len);
    let sum = |of: &dyn Fn(&InstructionCounts) -> u64| {
        let least = |thread: usize| samples.iter().filter_map(|sample| sample.get(thread)).map(of).min().unwrap_or(0);
        (0..threads).map(least).sum::<u64>() as f64
    };
    [sum(&|counts| counts.atomics), sum(&|counts| counts.instructions), sum(&|counts| counts.system_calls)]
}

fn table(title: &str, values: &[SingleValue]) -> String {
    let mut text = format!("\n{title}\n  {:<12} {:<9} {:<24}", "op", "", "");
    for side in ["client", "server"] {
        COUNTED.iter().for_each(|quantity| text.push_str(&format!(" {:>25}", format!("{side}: {quantity}"))));
    }
    let mut rows: Vec<&[SingleValue]> = values.chunks(2 * COUNTED.len()).collect();
    let first = |row: &[SingleValue]| values.iter().position(|value| value.label.op == row[0].label.op);
    rows.sort_by_key(|row| first(row));
    for row in rows {
        let FigureLabel { op, peer, config, .. } = &row[0].label;
        text.push_str(&format!("\n  {op:<12} {peer:<9} {config:<24}"));
        row.iter().for_each(|value| text.push_str(&format!(" {:>25}", format_with_bound(value))));
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn occasional_work_of_a_thread_is_not_counted() {
        let counts = |atomics, instructions| InstructionCounts { atomics, instructions, system_calls: 1 };
        let samples = vec![
            vec![counts(3, 100), InstructionCounts::default()],
            vec![counts(3, 101), InstructionCounts::default()],
            vec![counts(4, 102), counts(5, 5000)],
        ];
        assert_eq!(figures(samples), [3.0, 100.0, 1.0]);
        assert_eq!(figures(Vec::new()), [0.0; 3]);
    }

    #[test]
    fn threads_with_few_stops_take_no_part_in_calls() {
        let before = [(1, 10), (2, 10), (3, 10)];
        assert_eq!(taking_part(&before, &[(1, 1010), (2, 15), (4, 700)]), [1, 4]);
        assert!(!switches(std::process::id()).is_empty());
    }

    #[test]
    fn orbs_of_an_operation_have_adjacent_lines() {
        let value = |peer, op: &str, quantity: &str, value| SingleValue {
            label: FigureLabel {
                bench: "counts",
                peer,
                transport: "tcp",
                op: op.into(),
                config: "x".into(),
                axis_point: None,
            },
            quantity: quantity.into(),
            value,
            unit: "",
            bound: None,
        };
        let row = |peer, op, first: f64| (0..6).map(move |at| value(peer, op, "what", first + f64::from(at)));
        let rows = [("Corelane", "octet", 1.0), ("Corelane", "long", 11.0), ("omniORB", "octet", 21.0)];
        let values: Vec<SingleValue> = rows.into_iter().flat_map(|(peer, op, first)| row(peer, op, first)).collect();
        let text = table("title", &values);
        let lines: Vec<&str> = text.lines().skip(3).map(str::trim).collect();
        assert!(lines[0].starts_with("octet        Corelane") && lines[0].ends_with('6'), "{text}");
        assert!(lines[1].starts_with("octet        omniORB") && lines[1].ends_with("26"), "{text}");
        assert!(lines[2].starts_with("long         Corelane"), "{text}");
    }
}
