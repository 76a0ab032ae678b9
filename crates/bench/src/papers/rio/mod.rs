//! The benchmark `rio`, which repeats the experiments of Kuhns, Schmidt and Levine, "The Design and
//! Performance of a Real-time I/O Subsystem" (RTAS 1999), with
//! [`RioTransport`](corelane_rio::RioTransport).
//!
//! Receiver and sender are processes in two network namespaces, joined by a `veth` pair. The kernel
//! removes namespaces and link when the processes end. All variants use the same interface, and the
//! steering program is attached only during the turns of variants that need it.

mod ceiling;
mod corba;
mod guarantees;
mod latency;
mod link;
mod meter;
mod permitted;
mod processor;
pub(crate) mod receiver;
pub(crate) mod sender;
mod shared;
mod sorting;
mod testbed;
mod variant;

use corelane_sys::bpf;

use crate::Failure;
use crate::harness::Progress;
use crate::options::BenchOptions;
use crate::papers::cores::{ONE_CORE, core_pair};
use crate::report::Report;
use crate::testbed::require_fixed_priorities;
use shared::{BENCH, CORELANE};
use testbed::RioTestbed;

/// Measurements that the benchmark does not make, with the reason.
const NOT_MEASURED: [(&str, &str); 2] = [
    ("Corelane, kernel priorities", "the variant with receive threads and transmit classes is not implemented"),
    ("Corelane, receive livelock", "the measurement of a flood is not implemented"),
];

/// Runs all experiments.
pub(crate) fn rio(options: &BenchOptions, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    for (peer, reason) in NOT_MEASURED {
        report.add_missing(BENCH, peer, reason)?;
    }
    sorting::sorting(options, report, progress)?;
    if !require_fixed_priorities(BENCH, report)? {
        return Ok(());
    }
    if let Some(reason) = link::refusal() {
        return report.add_missing(BENCH, CORELANE, &reason);
    }
    let Some((sender, receiver)) = core_pair(options) else {
        return report.add_missing(BENCH, CORELANE, ONE_CORE);
    };
    progress.show(&format!("{BENCH}: link"));
    let testbed = match RioTestbed::start(sender, receiver) {
        Ok(testbed) => testbed,
        Err(failure) => return report.add_missing(BENCH, CORELANE, &failure.to_string()),
    };
    if let Some(reason) = testbed.refusal() {
        let hint = bpf::unavailable_reason().map_or(String::new(), |reason| format!(" ({reason})"));
        report.add_missing(BENCH, "Corelane, stream steering", &format!("not permitted: {reason}{hint}"))?;
    }
    for (stream, reason) in testbed.lacks() {
        report.add_missing(BENCH, &format!("Corelane, stream {stream}"), reason)?;
    }
    report.add_text(&testbed.describe())?;
    latency::latency(&testbed, options, report, progress)?;
    guarantees::guarantees(&testbed, options, report, progress)?;
    ceiling::best_effort_ceiling(&testbed, options, report, progress)?;
    processor::processor_time(&testbed, options, report, progress)
}
