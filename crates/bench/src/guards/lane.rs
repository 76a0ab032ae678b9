//! The benchmark `lane`: the additional cost of a lane, compared with a plain pool that has the
//! same thread at the same priority.
//!
//! It also counts the cost of other real-time features: changing a thread's priority, and a mutex
//! with priority inheritance.

use std::sync::Arc;
use std::time::Duration;

use corelane::Orb;
use corelane::rt::{DirectMapping, NativeRange, RtConfig};
use corelane_sys::counters;
use corelane_sys::thread::Scheduling;

use crate::Failure;
use crate::address::LOOPBACK;
use crate::baseline::BaselineTransport;
use crate::guards::counts::{CALLS, of_calls};
use crate::harness::{FigureLabel, Group, Progress, Variant};
use crate::launch::{start_echo, start_laned, start_unlaned};
use crate::operation::MeasuredOperation;
use crate::options::BenchOptions;
use crate::orb::client::{StubCalls, target};
use crate::orb::{ServerArchitecture, client_orb};
use crate::placement::Placement;
use crate::report::Report;
use crate::testbed::has_priorities;
use crate::value::SingleValue;
use crate::workload::{compare, extent, message_sizes};

/// Maximum time for a server to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Native priority of the single serving thread, in the pool and in the lane.
const PRIORITY: u8 = 10;

/// Number of system calls for each request of a thread that takes turns at waiting.
const LEADER_FOLLOWERS: f64 = 3.0;

pub(crate) fn lane(options: &BenchOptions, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    if !has_priorities("lane", report)? {
        return Ok(());
    }
    let orb = client_orb(0)?;
    let plain_pool = ServerArchitecture::LeaderFollowers(1);
    let at_priority = Placement { scheduling: Some(Scheduling::Fifo(PRIORITY)), ..options.placement };
    // Lanes have priorities of their own, so the placement sets none.
    let as_it_is = Placement { scheduling: None, ..options.placement };
    let mut values = Vec::new();
    for operation in options.operations_or(&[MeasuredOperation::Octet, MeasuredOperation::Longs(1024)]) {
        let (plain, reference) = start_echo(plain_pool, LOOPBACK, &at_priority)?;
        let mut laned = start_laned(&[PRIORITY], BaselineTransport::Tcp, &as_it_is)?;
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
        let group = Group { title, compare: compare(operation), variants };
        let figures = report.measure(group, &extent(options.extent, sizes), &options.placement, progress)?;
        values.extend(figures.iter().filter_map(|figure| {
            let value = figure.ratios.first()?.ratio;
            let what = "median, against the plain pool".to_owned();
            Some(SingleValue { label: figure.label.clone(), what, value, unit: "x", bound: Some(1.03) })
        }));
    }
    progress.show("lane: counts");
    let counted = counted(&as_it_is);
    progress.clear();
    let counted = counted?;
    report.values("lane: counts per call", &counted)?;
    report.records("lane: medians", &values)
}

/// Counts the server thread's work for a call in a lane, and in a pool without lanes. The pool's
/// thread either has the request's priority already or must change to it. Also counts the work of
/// an uncontended mutex.
fn counted(placement: &Placement) -> Result<Vec<SingleValue>, Failure> {
    let rt = RtConfig::default().mapping(Arc::new(DirectMapping(NativeRange::FIXED_PRIORITIES)));
    let orb = Orb::builder().real_time(rt).build().map_err(|error| Failure::new(error.to_string()))?;
    let mut laned = start_laned(&[PRIORITY], BaselineTransport::Tcp, placement)?;
    let in_lane = laned.ask("references", PATIENCE)?;
    let (_unlaned, in_pool) = start_unlaned(PRIORITY, placement)?;
    let mut values = Vec::new();
    for (config, reference, priority, calls) in [
        ("a lane of 1 thread", &in_lane, PRIORITY, LEADER_FOLLOWERS),
        ("no lanes, priority unchanged", &in_pool, PRIORITY, LEADER_FOLLOWERS),
        ("no lanes, priority changed", &in_pool, PRIORITY + 1, LEADER_FOLLOWERS + 2.0),
    ] {
        let target = target(&orb, reference)?;
        // The client's thread takes the priority, so it is a separate thread.
        let tally = std::thread::scope(|scope| {
            let calling = scope.spawn(|| {
                orb.real_time().current()?.set_priority(priority.into())?;
                Ok::<_, Failure>(of_calls(&target, MeasuredOperation::Octet)?.1)
            });
            calling.join().map_err(|_| Failure::new("a client thread panicked"))?
        })?;
        for (what, count, bound) in [
            ("server system calls", tally.system_calls, calls),
            ("server heap allocations", tally.allocations, 0.0),
            ("server hand-offs", tally.handoffs, 0.0),
            ("server locks of the ORB", tally.orb_locks, 0.0),
        ] {
            let value = count as f64 / CALLS as f64;
            values.push(SingleValue {
                label: label(config),
                what: what.to_owned(),
                value,
                unit: "",
                bound: Some(bound),
            });
        }
    }
    let mutex = orb.real_time().create_mutex();
    let before = counters::snapshot();
    for _ in 0..CALLS {
        drop(mutex.lock()?);
    }
    let after = counters::snapshot();
    for (what, count) in
        [("system calls", after.syscalls - before.syscalls), ("futex calls", after.futex_calls - before.futex_calls)]
    {
        let value = count as f64 / CALLS as f64;
        let label = FigureLabel { op: "lock, unlock".to_owned(), ..label("a mutex that nobody holds") };
        values.push(SingleValue { label, what: what.to_owned(), value, unit: "", bound: Some(0.0) });
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
        along: None,
    }
}
