//! The benchmark `counts`: what a call costs in things that are counted, not timed. The machine's load does not matter to it.

use corelane::{CallPolicies, Orb, Reference, Timeout};
use corelane_sys::counters;

use crate::Failure;
use crate::harness::{Label, Progress};
use crate::operation::Operation;
use crate::options::Options;
use crate::orb::Architecture;
use crate::orb::client::{target, two_way};
use crate::orb::generated::cubit::{CountedTargetRef, Tally};
use crate::orb::server::LOOPBACK;
use crate::report::{Report, Value, plain};
use crate::sample::Samples;
use crate::server::start_echo;

/// Calls that are counted.
const CALLS: usize = 1000;

/// What `counts` looks at unless it is told otherwise.
const USUAL: [Operation; 8] = [
    Operation::Nothing,
    Operation::Octet,
    Operation::Long,
    Operation::Struct,
    Operation::Longs(4),
    Operation::Longs(1024),
    Operation::Structs(4),
    Operation::Text(20),
];

/// A deadline that is kept by a timer and is never reached here.
const PRECISE: Timeout = Timeout::Precise(std::time::Duration::from_secs(60));

/// Counts per call on the client's and the server's thread.
pub(crate) fn counts(options: &Options, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    let orb = Orb::new().map_err(|error| Failure::new(error.to_string()))?;
    for (architecture, server_calls) in [
        (Architecture::PerConnection, 2.0),
        // One thread, so that all requests are run, and counted, by the same.
        (Architecture::LeaderFollowers(1), 3.0),
        (Architecture::Reactive, 3.0),
    ] {
        let (_server, reference) = start_echo(architecture, LOOPBACK, &options.placement)?;
        let coarse = target(&orb, &reference)?;
        let policies = CallPolicies { timeout: Some(PRECISE), ..CallPolicies::NONE };
        let precise = CountedTargetRef::from_object(coarse.as_object().with_policies(policies));
        for (target, deadline, client_calls) in [(&coarse, "", 2.0), (&precise, ", precise deadline", 3.0)] {
            let mut values = Vec::new();
            for operation in options.operations_or(&USUAL) {
                if operation.is_oneway() {
                    continue;
                }
                progress.show(&format!("counts: {architecture} {operation}"));
                let label = Label {
                    bench: "counts",
                    peer: "Corelane",
                    transport: "tcp",
                    op: operation.to_string(),
                    config: architecture.config() + deadline,
                };
                let (client, server) = of_calls(target, operation)?;
                values.extend(told(&label, "client", client, client_calls, operation));
                values.extend(told(&label, "server", server, server_calls, operation));
            }
            progress.clear();
            report.text(&table(&format!("counts per call, {}{deadline}", architecture.config()), &values))?;
            report.records(&values)?;
        }
    }
    report.missing("counts", "Corelane", "atomic operations of a call: nothing counts them yet")
}

/// What one thread did in [`CALLS`] calls.
fn of_calls(target: &CountedTargetRef, operation: Operation) -> Result<(Tally, Tally), Failure> {
    let mut samples = Samples::with_room(2 * CALLS);
    two_way(target, operation, CALLS, &mut samples)?;
    target.counted()?;
    // The argument is made before the first call; a run of no calls makes it too.
    let made = {
        let before = tally();
        two_way(target, operation, 0, &mut samples)?;
        difference(&tally(), &before)
    };
    // The server's count is taken by a call, whose own cost two such calls in a row show.
    let first = target.counted()?;
    let asked = difference(&target.counted()?, &first);
    let server_before = target.counted()?;
    let before = tally();
    two_way(target, operation, CALLS, &mut samples)?;
    let client = difference(&difference(&tally(), &before), &made);
    let server = difference(&difference(&target.counted()?, &server_before), &asked);
    Ok((client, server))
}

fn tally() -> Tally {
    let now = counters::snapshot();
    Tally {
        system_calls: now.syscalls,
        locks: now.locks,
        lane_locks: now.lane_locks,
        orb_locks: now.orb_locks,
        futex_calls: now.futex,
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

/// What is counted, in the order of the columns.
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

/// Counts per call with the bounds that the design sets for calls with plain arguments, in the order of [`COUNTED`].
fn told(label: &Label, side: &str, tally: Tally, system_calls: f64, operation: Operation) -> Vec<Value> {
    let calls = CALLS as f64;
    let fixed = matches!(operation, Operation::Nothing | Operation::Octet | Operation::Long | Operation::Struct);
    // One for a result of variable size, which is the servant's at the server and the caller's at the client.
    let allocations = if fixed { 0.0 } else { 1.0 };
    let counts = [
        (tally.system_calls, Some(system_calls)),
        (tally.allocations, Some(allocations)),
        (tally.allocated_octets, None),
        (tally.handoffs, Some(0.0)),
        (tally.futex_calls, Some(0.0)),
        (tally.locks, None),
        (tally.lane_locks, None),
        (tally.orb_locks, Some(0.0)),
    ];
    let values = COUNTED.iter().zip(counts).map(|(what, (count, bound))| Value {
        label: label.clone(),
        what: format!("{side}: {what}"),
        value: count as f64 / calls,
        unit: "",
        bound,
    });
    values.collect()
}

/// One line for each operation and side; a count above its bound has the bound behind it.
fn table(title: &str, values: &[Value]) -> String {
    let mut text = format!("\n{title}\n  {:<12} {:<7}", "op", "side");
    COUNTED.iter().for_each(|what| text.push_str(&format!(" {what:>18}")));
    for row in values.chunks(COUNTED.len()) {
        let Some(first) = row.first() else { continue };
        let side = first.what.split(':').next().unwrap_or_default();
        text.push_str(&format!("\n  {:<12} {side:<7}", first.label.op));
        for value in row {
            let number = match value.bound {
                Some(bound) if value.value > bound => format!("{} ABOVE {}", plain(value.value), plain(bound)),
                _ => plain(value.value),
            };
            text.push_str(&format!(" {number:>18}"));
        }
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_above_their_bounds_stand_out() {
        let label = Label {
            bench: "counts",
            peer: "Corelane",
            transport: "tcp",
            op: "octet".into(),
            config: "reactive".into(),
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
        let calls = CALLS as u64;
        let mut values = told(&label, "client", tally(2 * calls), 2.0, Operation::Octet);
        values.extend(told(&label, "server", tally(4 * calls), 3.0, Operation::Octet));
        assert_eq!((values[0].value, values[8].value), (2.0, 4.0));
        let text = table("title", &values);
        assert!(text.contains("4 ABOVE 3") && !text.contains("2 ABOVE"), "{text}");
        assert_eq!(text.lines().count(), 5);
    }
}
