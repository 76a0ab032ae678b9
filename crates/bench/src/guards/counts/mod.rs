//! The benchmark `counts`, which counts system calls, locks and other events of a call. Unlike
//! times, counts hardly depend on the machine's load.

mod peers;
mod stepped;

use corelane::{CallPolicies, Timeout};
use corelane_sys::counters;

use crate::Failure;
use crate::address::LOOPBACK;
use crate::harness::{FigureLabel, Progress};
use crate::launch::start_non_polling_echo;
use crate::operation::MeasuredOperation;
use crate::options::BenchOptions;
use crate::orb::client::{target, two_way};
use crate::orb::generated::cubit::{CountedTargetRef, Tally};
use crate::orb::{ServerArchitecture, non_polling_client_orb};
use crate::peer::PeerKind;
use crate::report::{Report, format_with_bound};
use crate::sample::Samples;
use crate::value::SingleValue;

pub(crate) const COUNTED_CALLS: usize = 1000;

const TRIES: usize = 20;

/// The measured architectures. The pool has one thread, because counts are per thread.
const ARCHITECTURES: [ServerArchitecture; 3] =
    [ServerArchitecture::PerConnection, ServerArchitecture::LeaderFollowers(1), ServerArchitecture::Reactive];

const DEFAULT_OPERATIONS: [MeasuredOperation; 9] = [
    MeasuredOperation::EmptyCall,
    MeasuredOperation::Octet,
    MeasuredOperation::Long,
    MeasuredOperation::Struct,
    MeasuredOperation::Longs(4),
    MeasuredOperation::Longs(1024),
    MeasuredOperation::Structs(4),
    MeasuredOperation::String(20),
    MeasuredOperation::Oneway,
];

const PRECISE: Timeout = Timeout::Precise(std::time::Duration::from_secs(60));

pub(crate) fn counts(options: &BenchOptions, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    let orb = non_polling_client_orb(0)?;
    let operations = options.operations_or(&DEFAULT_OPERATIONS);
    let (oneways, two_ways): (Vec<_>, Vec<_>) = operations.iter().copied().partition(|operation| operation.is_oneway());
    for architecture in ARCHITECTURES {
        let (_server, reference) = start_non_polling_echo(architecture, LOOPBACK, &options.placement)?;
        let coarse = target(&orb, &reference)?;
        let policies = CallPolicies { timeout: Some(PRECISE), ..CallPolicies::NONE };
        let precise = CountedTargetRef::from_object(coarse.as_object().with_policies(policies));
        for (target, deadline) in [(&precise, ", precise deadline"), (&coarse, "")] {
            let mut values = Vec::new();
            // Oneways run last, because their floods may move the connection to other threads
            // permanently.
            let operations = two_ways.iter().chain(oneways.iter().filter(|_| deadline.is_empty()));
            for &operation in operations {
                progress.show(&format!("counts: {architecture} {operation}"));
                let label = FigureLabel {
                    bench: "counts",
                    peer: "Corelane",
                    transport: "tcp",
                    op: operation.to_string(),
                    config: architecture.config() + deadline,
                    axis_point: None,
                };
                let (client, server) = count_calls(target, operation)?;
                let bounds = Bounds::of(architecture, operation, !deadline.is_empty());
                values.extend(told(&label, "client", client, bounds.client));
                // With a thread per connection, the thread that reports the counts may not be the
                // thread that ran the oneways, so the server's counts are left out.
                if !(operation.is_oneway() && architecture == ServerArchitecture::PerConnection) {
                    values.extend(told(&label, "server", server, bounds.server));
                }
            }
            progress.clear();
            let title = format!("counts per call, {}{deadline}", architecture.config());
            report.add_text(&table(&title, &values))?;
            report.add_json_values(&title, &values)?;
        }
    }
    stepped::stepped(&ARCHITECTURES, &operations, options, report, progress)?;
    let mut values = Vec::new();
    for kind in [PeerKind::OmniOrb, PeerKind::Ice] {
        progress.show(&format!("counts: locks of {kind}"));
        let counted = peers::locks(kind, options);
        progress.clear();
        values.extend(report.or_report_missing("counts", kind.name(), counted)?.into_iter().flatten());
    }
    report.add_missing("counts", PeerKind::JacOrb.name(), "locks: they are inside the Java virtual machine")?;
    if values.is_empty() { Ok(()) } else { report.add_values("locks per call of other ORBs", &values) }
}

#[derive(Clone, Copy)]
struct Bounds {
    client: Bound,
    server: Bound,
}

/// Bounds of the counts of one side. If `system_calls` has a bound, the bounds of hand-offs, futex
/// calls and ORB locks are 0.
#[derive(Clone, Copy)]
struct Bound {
    system_calls: Option<f64>,
    allocations: Option<f64>,
}

impl Bounds {
    fn of(architecture: ServerArchitecture, operation: MeasuredOperation, precise: bool) -> Bounds {
        use MeasuredOperation::{
            EmptyCall, IntoLongs, IntoStructs, LentOctets, Long, Longs, Octet, Octets, Oneway, Short, String, Struct,
            Structs, TakeLentOctets, TakeLongs, TakeOctets,
        };
        // A result of variable size takes one allocation on each side.
        let allocations = Some(match operation {
            EmptyCall | Octet | Short | Long | Struct | Oneway | TakeLongs(_) | TakeOctets(_) | TakeLentOctets(_) => {
                0.0
            }
            Longs(_) | Structs(_) | Octets(_) | LentOctets(_) | String(_) | IntoLongs(_) | IntoStructs(_) => 1.0,
        });
        if operation.is_oneway() {
            let client = Bound { system_calls: Some(1.0), allocations };
            return Bounds { client, server: Bound { system_calls: None, allocations: None } };
        }
        // A thread that waits for several connections needs one more system call, `epoll_wait`.
        let server = if architecture == ServerArchitecture::PerConnection { 2.0 } else { 3.0 };
        Bounds {
            client: Bound { system_calls: Some(if precise { 3.0 } else { 2.0 }), allocations },
            server: Bound { system_calls: Some(server), allocations },
        }
    }
}

/// Returns the counts of the client's thread and of the server's thread for [`COUNTED_CALLS`]
/// calls. If the client took ORB locks, but fewer than one for each call, the hang-up monitor
/// interfered. In this case the calls are counted again, at most [`TRIES`] times in all.
pub(crate) fn count_calls(target: &CountedTargetRef, operation: MeasuredOperation) -> Result<(Tally, Tally), Failure> {
    calls(target, operation, COUNTED_CALLS, &mut Samples::with_capacity(COUNTED_CALLS))?;
    target.counted()?;
    for _ in 1..TRIES {
        let (client, server, made) = count(target, operation)?;
        let disturbed = made.orb_locks > 0 || client.orb_locks > 0;
        if !disturbed || client.orb_locks >= COUNTED_CALLS as u64 {
            return Ok((client, server));
        }
    }
    count(target, operation).map(|(client, server, _)| (client, server))
}

/// Returns the counts of the client's thread, of the server's thread, and of the client's thread
/// for 0 calls.
fn count(target: &CountedTargetRef, operation: MeasuredOperation) -> Result<(Tally, Tally, Tally), Failure> {
    let samples = &mut Samples::with_capacity(COUNTED_CALLS);
    // Each run creates the argument, so the counts of a run of 0 calls are subtracted.
    let before = tally();
    calls(target, operation, 0, samples)?;
    let made = difference(&tally(), &before);
    // The counts of the server's thread include the call that reads them, and for some operations a
    // first call whose result is compared in full. So the counts of a run with 0 calls are
    // subtracted.
    let first = target.counted()?;
    calls(target, operation, 0, samples)?;
    let asked = difference(&target.counted()?, &first);
    let server_before = target.counted()?;
    let before = tally();
    calls(target, operation, COUNTED_CALLS, samples)?;
    let client = difference(&difference(&tally(), &before), &made);
    let server = difference(&difference(&target.counted()?, &server_before), &asked);
    Ok((client, server, made))
}

fn calls(
    target: &CountedTargetRef,
    operation: MeasuredOperation,
    count: usize,
    samples: &mut Samples,
) -> Result<(), Failure> {
    if operation.is_oneway() {
        for _ in 0..count {
            target.take_octet(7)?;
        }
        return Ok(());
    }
    two_way(target, operation, count, samples).map(|_| ())
}

fn tally() -> Tally {
    let now = counters::snapshot();
    Tally {
        system_calls: now.syscalls,
        locks: now.locks,
        lane_locks: now.lane_locks,
        orb_locks: now.orb_locks,
        futex_calls: now.futex_calls,
        handoffs: now.handoffs,
        allocations: now.allocations,
        allocated_octets: now.allocated_bytes,
    }
}

fn difference(after: &Tally, before: &Tally) -> Tally {
    Tally {
        system_calls: after.system_calls.saturating_sub(before.system_calls),
        locks: after.locks.saturating_sub(before.locks),
        lane_locks: after.lane_locks.saturating_sub(before.lane_locks),
        orb_locks: after.orb_locks.saturating_sub(before.orb_locks),
        futex_calls: after.futex_calls.saturating_sub(before.futex_calls),
        handoffs: after.handoffs.saturating_sub(before.handoffs),
        allocations: after.allocations.saturating_sub(before.allocations),
        allocated_octets: after.allocated_octets.saturating_sub(before.allocated_octets),
    }
}

const COUNTED: [&str; 8] = [
    "system calls",
    "heap allocations",
    "octets allocated",
    "hand-offs",
    "futex calls",
    "locks",
    "locks of the lane",
    "locks of the ORB",
];

fn told(label: &FigureLabel, side: &str, tally: Tally, bound: Bound) -> Vec<SingleValue> {
    let calls = COUNTED_CALLS as f64;
    let none = bound.system_calls.map(|_| 0.0);
    let counts = [
        (tally.system_calls, bound.system_calls),
        (tally.allocations, bound.allocations),
        (tally.allocated_octets, None),
        (tally.handoffs, none),
        (tally.futex_calls, none),
        (tally.locks, None),
        (tally.lane_locks, None),
        (tally.orb_locks, none),
    ];
    let values = COUNTED.iter().zip(counts).map(|(quantity, (count, bound))| SingleValue {
        label: label.clone(),
        quantity: format!("{side}: {quantity}"),
        value: count as f64 / calls,
        unit: "",
        bound,
    });
    values.collect()
}

fn table(title: &str, values: &[SingleValue]) -> String {
    let mut text = format!("\n{title}\n  {:<12} {:<7}", "op", "side");
    COUNTED.iter().for_each(|quantity| text.push_str(&format!(" {quantity:>18}")));
    for row in values.chunks(COUNTED.len()) {
        let Some(first) = row.first() else { continue };
        let side = first.quantity.split(':').next().unwrap_or_default();
        text.push_str(&format!("\n  {:<12} {side:<7}", first.label.op));
        for value in row {
            text.push_str(&format!(" {:>18}", format_with_bound(value)));
        }
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_above_their_bounds_show_the_bound() {
        let label = FigureLabel {
            bench: "counts",
            peer: "Corelane",
            transport: "tcp",
            op: "octet".into(),
            config: "reactive".into(),
            axis_point: None,
        };
        let tally = |system_calls| Tally {
            system_calls,
            locks: 0,
            lane_locks: 0,
            orb_locks: 0,
            futex_calls: 0,
            handoffs: 0,
            allocations: 0,
            allocated_octets: 0,
        };
        let calls = COUNTED_CALLS as u64;
        let bounds = Bounds::of(ServerArchitecture::Reactive, MeasuredOperation::Octet, false);
        let mut values = told(&label, "client", tally(2 * calls), bounds.client);
        values.extend(told(&label, "server", tally(4 * calls), bounds.server));
        assert_eq!((values[0].value, values[8].value), (2.0, 4.0));
        let text = table("title", &values);
        assert!(text.contains("4 ABOVE 3") && !text.contains("2 ABOVE"), "{text}");
        assert_eq!(text.lines().count(), 5);
    }
}
