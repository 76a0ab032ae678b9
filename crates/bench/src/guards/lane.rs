//! The benchmark `lane`, which measures the additional cost of a lane, compared with a pool without
//! lanes whose thread has an equal priority.

use std::sync::Arc;
use std::time::Duration;

use corelane::Orb;
use corelane::rt::{DirectMapping, NativePriorityRange, RtConfig};
use corelane_sys::counters;
use corelane_sys::thread::Scheduling;

use crate::Failure;
use crate::address::LOOPBACK;
use crate::baseline::BaselineTransport;
use crate::guards::counts::{COUNTED_CALLS, count_calls};
use crate::harness::{FigureLabel, Group, Progress, Variant};
use crate::launch::{start_echo, start_server_with_lanes, start_server_without_lanes};
use crate::operation::MeasuredOperation;
use crate::options::BenchOptions;
use crate::orb::client::{StubCalls, target};
use crate::orb::{ServerArchitecture, client_orb};
use crate::placement::Placement;
use crate::report::Report;
use crate::testbed::require_fixed_priorities;
use crate::value::SingleValue;
use crate::workload::{compared_quantity, message_sizes, run_length};

const PATIENCE: Duration = Duration::from_secs(20);

const PRIORITY: u8 = 10;

const LEADER_FOLLOWERS: f64 = 3.0;

pub(crate) fn lane(options: &BenchOptions, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    if !require_fixed_priorities("lane", report)? {
        return Ok(());
    }
    let orb = client_orb(0)?;
    let plain_pool = ServerArchitecture::LeaderFollowers(1);
    let at_priority = Placement { scheduling: Some(Scheduling::Fifo(PRIORITY)), ..options.placement };
    // A lane sets the priorities of its threads, so the placement sets none.
    let as_it_is = Placement { scheduling: None, ..options.placement };
    let mut values = Vec::new();
    for operation in options.operations_or(&[MeasuredOperation::Octet, MeasuredOperation::Longs(1024)]) {
        let (plain, reference) = start_echo(plain_pool, LOOPBACK, &at_priority)?;
        let mut laned = start_server_with_lanes(&[PRIORITY], BaselineTransport::Tcp, &as_it_is)?;
        let in_lane = laned.ask("references", PATIENCE)?;
        let variant = |config: String, reference: &str, server, against| {
            let label = FigureLabel { op: operation.to_string(), ..label(&config) };
            let calls = StubCalls { target: target(&orb, reference)?, operation, server };
            Ok::<_, Failure>(Variant { label, subject: Box::new(calls), against })
        };
        let variants = vec![
            variant(plain_pool.config(), &reference, plain.pid(), Vec::new())?,
            variant("a lane of 1 thread".to_owned(), &in_lane, laned.pid(), vec![0])?,
        ];
        let sizes = message_sizes(&orb, operation, options)?;
        let title = format!("lane {operation}: a lane beside a plain pool, one thread at priority {PRIORITY} each");
        let group = Group { title, compare: compared_quantity(operation), variants };
        let figures = report.measure(group, &run_length(options.run_length, sizes), &options.placement, progress)?;
        values.extend(figures.iter().filter_map(|figure| {
            let value = figure.ratios.first()?.ratio;
            let quantity = "median, against the plain pool".to_owned();
            Some(SingleValue { label: figure.label.clone(), quantity, value, unit: "x", bound: Some(1.03) })
        }));
    }
    progress.show("lane: counts");
    let counted = counted(&as_it_is);
    progress.clear();
    let counted = counted?;
    report.add_values("lane: counts per call", &counted)?;
    report.add_json_values("lane: medians", &values)
}

/// Counts the server's system calls and other events per call in three cases: with a lane, without
/// lanes at the request's priority, and without lanes at another priority, where the server's
/// thread changes its priority. Also counts the system calls of a mutex without contention.
fn counted(placement: &Placement) -> Result<Vec<SingleValue>, Failure> {
    let rt = RtConfig::default().priority_mapping(Arc::new(DirectMapping(NativePriorityRange::FIXED_PRIORITIES)));
    let orb = Orb::builder().real_time(rt).build().map_err(|error| Failure::new(error.to_string()))?;
    let mut laned = start_server_with_lanes(&[PRIORITY], BaselineTransport::Tcp, placement)?;
    let in_lane = laned.ask("references", PATIENCE)?;
    let (_unlaned, in_pool) = start_server_without_lanes(PRIORITY, placement)?;
    let mut values = Vec::new();
    for (config, reference, priority, calls) in [
        ("a lane of 1 thread", &in_lane, PRIORITY, LEADER_FOLLOWERS),
        ("no lanes, priority unchanged", &in_pool, PRIORITY, LEADER_FOLLOWERS),
        ("no lanes, priority changed", &in_pool, PRIORITY + 1, LEADER_FOLLOWERS + 2.0),
    ] {
        let target = target(&orb, reference)?;
        let tally = std::thread::scope(|scope| {
            let calling = scope.spawn(|| {
                orb.real_time().current()?.set_priority(priority.into())?;
                Ok::<_, Failure>(count_calls(&target, MeasuredOperation::Octet)?.1)
            });
            calling.join().map_err(|_| Failure::new("a client thread panicked"))?
        })?;
        for (quantity, count, bound) in [
            ("server system calls", tally.system_calls, calls),
            ("server heap allocations", tally.allocations, 0.0),
            ("server hand-offs", tally.handoffs, 0.0),
            ("server locks of the ORB", tally.orb_locks, 0.0),
        ] {
            let value = count as f64 / COUNTED_CALLS as f64;
            values.push(SingleValue {
                label: label(config),
                quantity: quantity.to_owned(),
                value,
                unit: "",
                bound: Some(bound),
            });
        }
    }
    let mutex = orb.real_time().create_mutex();
    let before = counters::snapshot();
    for _ in 0..COUNTED_CALLS {
        drop(mutex.lock()?);
    }
    let after = counters::snapshot();
    for (quantity, count) in
        [("system calls", after.syscalls - before.syscalls), ("futex calls", after.futex_calls - before.futex_calls)]
    {
        let value = count as f64 / COUNTED_CALLS as f64;
        let label = FigureLabel { op: "lock, unlock".to_owned(), ..label("a mutex without contention") };
        values.push(SingleValue { label, quantity: quantity.to_owned(), value, unit: "", bound: Some(0.0) });
    }
    Ok(values)
}

fn label(config: &str) -> FigureLabel {
    FigureLabel {
        bench: "lane",
        peer: "Corelane",
        transport: BaselineTransport::Tcp.name(),
        op: MeasuredOperation::Octet.to_string(),
        config: config.to_owned(),
        axis_point: None,
    }
}
