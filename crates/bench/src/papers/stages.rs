//! The benchmark `stages`, which measures the parts of the server's work for a request, as in a
//! table of Schmidt's slides (1999), by time probes inside the ORB.

use crate::Failure;
use crate::harness::{FigureLabel, Progress};
use crate::operation::MeasuredOperation;
use crate::options::BenchOptions;
use crate::probed::{FIRST_SERVER_PROBE, LAST_SERVER_PROBE, ProbedClientAndServer, stage_durations};
use crate::report::Report;
use crate::sample::Summary;
use crate::value::SingleValue;

const DEFAULT_OPERATIONS: [MeasuredOperation; 3] =
    [MeasuredOperation::Octet, MeasuredOperation::Longs(1024), MeasuredOperation::Structs(1024)];

/// Number of calls between two collections of the records. The ring of a thread has room for the
/// records of more than this number of calls.
const ROUND: usize = 300;

pub(crate) fn stages(options: &BenchOptions, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    for operation in options.operations_or(&DEFAULT_OPERATIONS) {
        if operation.is_oneway() {
            report.add_missing("stages", "Corelane", "a oneway returns before the server has passed its stages")?;
            continue;
        }
        let mut probed = ProbedClientAndServer::start("per-connection", operation, &options.placement)?;
        let wanted = options.run_length.count.min(10_000);
        let mut all: Vec<(String, Vec<u64>)> = Vec::new();
        let mut client: Vec<(String, Vec<u64>)> = Vec::new();
        let mut made = 0;
        while made < wanted {
            progress.show(&format!("stages: {operation} ({made} of {wanted})"));
            let count = ROUND.min(wanted - made);
            let warm_up = if made == 0 { options.run_length.warm_up } else { 20 };
            let [ours, theirs] = probed.record_calls(warm_up, count)?;
            add(&mut all, stage_durations(&theirs.probes, FIRST_SERVER_PROBE, LAST_SERVER_PROBE));
            add(&mut client, stage_durations(&ours.probes, "call begun", "reply demarshalled"));
            made += count;
        }
        let [on, off] = probed.probe_cost_ns()?;
        progress.clear();
        let mut values = Vec::new();
        for (side, stages) in [("server", &all), ("client", &client)] {
            for (name, times) in stages {
                values.extend(told(operation, side, name, times));
            }
        }
        for (config, value) in [("a probe, on", on), ("a probe, off", off)] {
            let bound = (config == "a probe, on").then_some(25.0);
            values.push(SingleValue {
                label: label(operation, config),
                quantity: "median".into(),
                value,
                unit: "ns",
                bound,
            });
        }
        let title = format!("stages of {operation}; each includes one probe, which is not subtracted");
        report.add_values(&title, &values)?;
    }
    Ok(())
}

fn add(all: &mut Vec<(String, Vec<u64>)>, more: Vec<(String, Vec<u64>)>) {
    for (name, times) in more {
        match all.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => known.extend(times),
            None => all.push((name, times)),
        }
    }
}

fn told(operation: MeasuredOperation, side: &str, name: &str, times: &[u64]) -> Vec<SingleValue> {
    let Some(summary) = Summary::of(times, std::time::Duration::ZERO) else { return Vec::new() };
    let value = |quantity: &str, microseconds: f64| SingleValue {
        label: label(operation, &format!("{side}: {name}")),
        quantity: quantity.to_owned(),
        value: microseconds * 1e3,
        unit: "ns",
        bound: None,
    };
    vec![value("median", summary.p50_us), value("p99", summary.p99_us)]
}

fn label(operation: MeasuredOperation, config: &str) -> FigureLabel {
    FigureLabel {
        bench: "stages",
        peer: "Corelane",
        transport: "tcp",
        op: operation.to_string(),
        config: config.to_owned(),
        axis_point: None,
    }
}
