//! The benchmark `cores`, which measures the throughput on one to all cores, with one client thread
//! for each core. As many pairs of bare sockets on the same cores show what the machine gains.

use corelane::Orb;
use corelane_sys::thread::{self, CpuSet};

use crate::Failure;
use crate::address::LOOPBACK;
use crate::baseline::{BaselineClient, BaselineTransport, WaitStrategy, parse_address};
use crate::client_group::ClientGroup;
use crate::client_threads::label;
use crate::harness::{ComparedQuantity, Figure, FigureLabel, Group, Progress, Variant};
use crate::launch::{start_baseline, start_echo, start_non_polling_echo};
use crate::operation::MeasuredOperation;
use crate::options::BenchOptions;
use crate::orb::client::{TwoWayCaller, target};
use crate::orb::{ServerArchitecture, client_orb, non_polling_client_orb};
use crate::placement::{CoreChoice, Placement};
use crate::report::Report;
use crate::service::RunningProgram;
use crate::targets::core_scaling::MAX_GAIN_OF_PAIRS_ON_TWO_CORES;
use crate::testbed::NEVER_POLLS;
use crate::value::SingleValue;
use crate::workload::message_sizes;

const BENCH: &str = "cores";
const AXIS: &str = "cores";
/// Beyond this number of cores, only powers of two and the number of all cores are measured.
const MOST_EACH: usize = 8;
const ONE_CORE: &str = "the benchmark compares numbers of cores, and the run has one core (--cores A,B or --unpinned)";

pub(crate) fn cores(options: &BenchOptions, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    let cores = chosen_cores(options)?;
    if cores.len() < 2 {
        return report.add_missing(BENCH, "Corelane", ONE_CORE);
    }
    let architectures = [ServerArchitecture::PerConnection, ServerArchitecture::LeaderFollowers(options.threads)];
    let sides = Polling { orb: client_orb(cores.len())?, is_permitted: true };
    let sleeping = Polling { orb: non_polling_client_orb(cores.len())?, is_permitted: false };
    // The benchmark binds each client thread and each server to its cores, so the placement binds
    // nothing.
    let placement = Placement { cores: CoreChoice::Any, ..options.placement };
    let (mut variants, mut servers) = (Vec::new(), Vec::new());
    for count in counts(cores.len()) {
        let on = &cores[..count];
        let floor = variants.len();
        let (variant, server) = pairs(&sides.orb, on, options, &placement)?;
        variants.push(variant);
        servers.push(server);
        for architecture in architectures {
            for polling in [&sides, &sleeping] {
                let (variant, server) = calls(polling, on, architecture, &placement, floor)?;
                variants.push(variant);
                servers.push(server);
            }
        }
    }
    let title = "cores: one client thread for each core, octet; time per call over all".to_owned();
    let group = Group { title, compare: ComparedQuantity::Rate, variants };
    let figures = report.measure(group, &options.run_length, &placement, progress)?;
    report.add_values("cores: throughput relative to one core", &gains(&figures))
}

struct Polling {
    orb: Orb,
    is_permitted: bool,
}

fn chosen_cores(options: &BenchOptions) -> Result<Vec<usize>, Failure> {
    let usable = thread::affinity(None).map_err(|error| Failure::new(format!("the cores are unknown: {error}")))?;
    Ok(match options.placement.cores {
        CoreChoice::Any => usable.iter().collect(),
        CoreChoice::Shared(core) => vec![core],
        CoreChoice::Separate(client, server) if client == server => vec![client],
        CoreChoice::Separate(client, server) => vec![client, server],
    })
}

fn counts(cores: usize) -> Vec<usize> {
    (1..=cores).filter(|count| *count <= MOST_EACH || count.is_power_of_two() || *count == cores).collect()
}

fn named(peer: &'static str, series: String, cores: usize) -> FigureLabel {
    let plural = if cores == 1 { "" } else { "s" };
    FigureLabel { peer, ..label(BENCH, format!("{series}, {cores} core{plural}"), series, AXIS, cores) }
}

/// Starts a server whose threads may use these cores only.
fn start_on<T>(cores: &[usize], start: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    let refused = |error: std::io::Error| Failure::new(format!("the server may not use cores {cores:?}: {error}"));
    let before = thread::affinity(None).map_err(refused)?;
    // The program inherits the cores of the thread that starts it.
    thread::set_affinity(None, &cores.iter().copied().collect::<CpuSet>()).map_err(refused)?;
    let started = start();
    thread::set_affinity(None, &before).map_err(refused)?;
    started
}

fn pairs(
    orb: &Orb,
    cores: &[usize],
    options: &BenchOptions,
    placement: &Placement,
) -> Result<(Variant, RunningProgram), Failure> {
    let start = || start_baseline(BaselineTransport::Tcp, WaitStrategy::Blocking, placement);
    let (server, address) = start_on(cores, start)?;
    let sizes = message_sizes(orb, MeasuredOperation::Octet, options)?;
    let clients = cores.iter().map(|_| BaselineClient::connect(&parse_address(&address)?, sizes));
    let clients: Vec<BaselineClient> = clients.collect::<Result<_, Failure>>()?;
    let label = named("floor", "blocking pairs".to_owned(), cores.len());
    let subject = Box::new(ClientGroup::new(clients, server.pid()).on_cores(cores.to_vec()));
    Ok((Variant { label, subject, against: Vec::new() }, server))
}

fn calls(
    polling: &Polling,
    cores: &[usize],
    architecture: ServerArchitecture,
    placement: &Placement,
    floor: usize,
) -> Result<(Variant, RunningProgram), Failure> {
    let start = if polling.is_permitted { start_echo } else { start_non_polling_echo };
    let (server, reference) = start_on(cores, || start(architecture, LOOPBACK, placement))?;
    let operation = MeasuredOperation::Octet;
    let callers = cores.iter().map(|_| Ok(TwoWayCaller { target: target(&polling.orb, &reference)?, operation }));
    let callers: Vec<TwoWayCaller> = callers.collect::<Result<_, Failure>>()?;
    let series = architecture.config() + if polling.is_permitted { "" } else { NEVER_POLLS };
    let label = named("Corelane", series, cores.len());
    let subject = Box::new(ClientGroup::new(callers, server.pid()).on_cores(cores.to_vec()));
    Ok((Variant { label, subject, against: vec![floor] }, server))
}

/// Returns the gain of each variant over one core, and for each variant of Corelane the gain of
/// bare pairs on the same cores divided by this gain. The goal excludes the variants that never
/// poll.
fn gains(figures: &[Figure]) -> Vec<SingleValue> {
    let at = |figure: &Figure| figure.label.axis_point.as_ref().map(|point| (point.series.clone(), point.x));
    let mut all = Vec::new();
    for figure in figures {
        let Some((series, x)) = at(figure).filter(|(_, x)| *x > 1) else { continue };
        let one = figures.iter().find(|other| at(other).as_ref() == Some(&(series.clone(), 1)));
        all.extend(one.map(|one| (figure, one, x == 2 && !series.ends_with(NEVER_POLLS))));
    }
    let mut values = Vec::new();
    for (figure, one, has_goal) in all {
        let value = |quantity: &str, value: f64, bound| SingleValue {
            label: figure.label.clone(),
            quantity: quantity.to_owned(),
            value,
            unit: "x",
            bound,
        };
        values.push(value("gain over one core", figure.summary.per_s / one.summary.per_s, None));
        // Each ratio compares variants that took turns, so the speed of the machine at that time
        // does not matter.
        if let (Some(many), Some(one)) = (figure.ratios.first(), one.ratios.first()) {
            let bound = has_goal.then_some(MAX_GAIN_OF_PAIRS_ON_TWO_CORES);
            values.push(value("gain of bare pairs over this gain", many.ratio / one.ratio, bound));
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::harness::Ratio;
    use crate::sample::Summary;

    #[test]
    fn each_number_of_cores_is_measured_up_to_eight() {
        assert_eq!(counts(2), [1, 2]);
        assert_eq!(counts(20), [1, 2, 3, 4, 5, 6, 7, 8, 16, 20]);
    }

    #[test]
    fn gain_is_compared_with_the_gain_of_as_many_pairs() {
        // Ten calls that together take `us` microseconds.
        let figure = |label: FigureLabel, us, ratio: Option<(f64, FigureLabel)>| Figure {
            label,
            summary: Summary::of(&[1_000; 10], Duration::from_micros(us)).unwrap(),
            medians_us: Vec::new(),
            cdf_us: Vec::new(),
            ratios: ratio
                .map(|(ratio, with)| Ratio { with, p50_us: 1.0, ratio, range: (0.0, 9.0) })
                .into_iter()
                .collect(),
            cost: None,
            calls: 10,
        };
        let floor = |cores| named("floor", "blocking pairs".to_owned(), cores);
        let ours = |cores| named("Corelane", "thread per connection".to_owned(), cores);
        let sleeping = |cores| named("Corelane", "thread per connection, never polls".to_owned(), cores);
        let figures = [
            figure(floor(1), 100, None),
            figure(ours(1), 110, Some((1.1, floor(1)))),
            figure(floor(2), 50, None),
            figure(ours(2), 66, Some((1.32, floor(2)))),
            figure(sleeping(1), 100, Some((1.0, floor(1)))),
            figure(sleeping(2), 50, Some((1.0, floor(2)))),
        ];
        let values: Vec<_> = gains(&figures)
            .iter()
            .map(|value| (value.label.peer, (value.value * 1_000.0).round(), value.bound.is_some()))
            .collect();
        let expected = [
            ("floor", 2_000.0, false),
            ("Corelane", 1_667.0, false),
            ("Corelane", 1_200.0, true),
            ("Corelane", 2_000.0, false),
            ("Corelane", 1_000.0, false),
        ];
        assert_eq!(values, expected);
    }
}
