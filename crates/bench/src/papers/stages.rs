//! The benchmark `stages`: paper 4's table of the server's work for a request, from time probes
//! inside the ORB.

use crate::Failure;
use crate::harness::{FigureLabel, Progress};
use crate::operation::MeasuredOperation;
use crate::options::BenchOptions;
use crate::probed::{Probed, SERVER_BEGINS, SERVER_ENDS, stages as of_points};
use crate::report::Report;
use crate::sample::Summary;
use crate::value::SingleValue;

/// Operations that `stages` measures by default.
const USUAL: [MeasuredOperation; 3] =
    [MeasuredOperation::Octet, MeasuredOperation::Longs(1024), MeasuredOperation::Structs(1024)];

/// Number of calls between two collections of the records. A thread's ring has room for the records
/// of more calls.
const ROUND: usize = 300;

/// Reports the time of each stage, in the order in which a request passes the stages.
pub(crate) fn stages(options: &BenchOptions, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    for operation in options.operations_or(&USUAL) {
        if operation.is_oneway() {
            report.missing("stages", "Corelane", "a oneway returns before the server has passed its stages")?;
            continue;
        }
        let mut probed = Probed::start("per-connection", operation, &options.placement)?;
        let wanted = options.extent.count.min(10_000);
        let mut all: Vec<(String, Vec<u64>)> = Vec::new();
        let mut client: Vec<(String, Vec<u64>)> = Vec::new();
        let mut made = 0;
        while made < wanted {
            progress.show(&format!("stages: {operation} ({made} of {wanted})"));
            let count = ROUND.min(wanted - made);
            let warm_up = if made == 0 { options.extent.warm_up } else { 20 };
            let [ours, theirs] = probed.record(warm_up, count)?;
            add(&mut all, of_points(&theirs.points, SERVER_BEGINS, SERVER_ENDS));
            add(&mut client, of_points(&ours.points, "call begun", "reply demarshalled"));
            made += count;
        }
        let [on, off] = probed.cost()?;
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
                what: "median".into(),
                value,
                unit: "ns",
                bound,
            });
        }
        let title = format!("stages of {operation}; each includes one probe, which is not subtracted");
        report.values(&title, &values)?;
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
    let value = |what: &str, microseconds: f64| SingleValue {
        label: label(operation, &format!("{side}: {name}")),
        what: what.to_owned(),
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
        along: None,
    }
}
