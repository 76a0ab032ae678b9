//! The benchmark `events`, which compares event channels with collocated calls, with bare relays of
//! messages of equal size, and with omniEvents.
//!
//! All measured processes share one core, so that a delivery and its baseline have equally many
//! context switches.

mod connections;
mod durable;
mod federated;
mod figures;
mod omnievents;
mod one_process;
mod overload;
mod priorities;
mod processes;
pub(crate) mod programs;
mod relayed;

use crate::Failure;
use crate::harness::Progress;
use crate::options::BenchOptions;
use crate::placement::{CoreChoice, Placement};
use crate::report::Report;

pub(crate) fn events(options: &BenchOptions, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    let others = on_other_core(&options.placement);
    let options = &BenchOptions { placement: on_one_core(&options.placement), ..options.clone() };
    report.add_text(
        "events: all measured processes are on one core; the time of a delivery is from the supplier's push to the consumer's \
         servant, and the supplier pushes the next event after the delivery\n",
    )?;
    one_process::dispatch(options, report, progress)?;
    progress.show("events: measuring the sizes of messages");
    let sizes = processes::event_sizes(&options.placement)?;
    relayed::three_processes(options, sizes, report, progress)?;
    federated::one_hop(options, report, progress)?;
    omnievents::cos_push(options, report, progress)?;
    overload::stopped_and_slow(options, &others, report, progress)?;
    relayed::many_consumers(options, sizes, report, progress)?;
    one_process::subscriptions(options, report, progress)?;
    durable::durable(options, report, progress)?;
    priorities::beside_low_suppliers(options, &others, report, progress)
}

/// Returns a placement of both sides on one core: the server's core, if the placement has one.
fn on_one_core(placement: &Placement) -> Placement {
    let cores = match placement.cores {
        CoreChoice::Shared(core) | CoreChoice::Separate(_, core) => CoreChoice::Shared(core),
        CoreChoice::Any => Placement::one_core().map_or(CoreChoice::Any, |placement| placement.cores),
    };
    Placement { cores, ..*placement }
}

/// Returns a placement on the client's core, for a process that is not measured. Without a second
/// core, the placement is on the core of the measured processes.
fn on_other_core(placement: &Placement) -> Placement {
    match placement.cores {
        CoreChoice::Separate(core, _) => Placement { cores: CoreChoice::Shared(core), ..*placement },
        CoreChoice::Shared(_) | CoreChoice::Any => on_one_core(placement),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_processes_are_on_the_core_of_the_server() {
        let on = |cores| on_one_core(&Placement { cores, scheduling: None }).cores;
        assert_eq!(on(CoreChoice::Shared(3)), CoreChoice::Shared(3));
        assert_eq!(on(CoreChoice::Separate(0, 1)), CoreChoice::Shared(1));
        assert!(matches!(on(CoreChoice::Any), CoreChoice::Shared(_)));
        let other = |cores| on_other_core(&Placement { cores, scheduling: None }).cores;
        assert_eq!(other(CoreChoice::Separate(0, 1)), CoreChoice::Shared(0));
        assert_eq!(other(CoreChoice::Shared(3)), CoreChoice::Shared(3));
    }
}
