//! Benchmarks of tasks and cores, after the MC-ORB paper: clocks and migrations, the admission of
//! tasks, and calls that a core pool serves. A utilization of 1.6 means that the tasks need 1.6
//! cores in total.

pub(crate) mod acceptance;
pub(crate) mod balance;
pub(crate) mod clock;
pub(crate) mod decide;
pub(crate) mod isolation;
mod jobs;
pub(crate) mod migration;
pub(crate) mod misses;
pub(crate) mod path;
pub(crate) mod server;

use corelane_sched::allocation::Machine;
use corelane_sched::task::Utilization;
use corelane_sys::thread;

use crate::harness::{AxisPoint, FigureLabel};
use crate::options::BenchOptions;
use crate::placement::CoreChoice;

/// Peer name of reference measurements without an ORB: other algorithms of task allocation,
/// published schedulability tests, simulations, and the admission test without its stored analysis.
const BASELINE: &str = "baseline";

pub(super) const ONE_CORE: &str = "the process is not permitted to use two cores";

fn whole_cores(mut machine: Machine) -> Machine {
    machine.cores.iter_mut().for_each(|core| core.capacity = Utilization::ONE);
    machine
}

/// Returns two different cores: those of the option `--cores`, or the first two that the process
/// may use; `None` if the process may use only one.
pub(super) fn core_pair(options: &BenchOptions) -> Option<(usize, usize)> {
    if let CoreChoice::Separate(client, server) = options.placement.cores
        && client != server
    {
        return Some((client, server));
    }
    let mut cores = thread::affinity(None).ok()?.iter().collect::<Vec<_>>().into_iter();
    Some((cores.next()?, cores.next()?))
}

fn label(bench: &'static str, peer: &'static str, op: &str, config: String) -> FigureLabel {
    FigureLabel { bench, peer, transport: "none", op: op.to_owned(), config, axis_point: None }
}

fn at(label: FigureLabel, series: &str, axis: &'static str, x: u64) -> FigureLabel {
    FigureLabel { axis_point: Some(AxisPoint { series: series.to_owned(), axis, x }), ..label }
}
