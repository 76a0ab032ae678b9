//! The benchmark `saturation`, which measures the calls of a high-priority client beside a client
//! of lower fixed priority that keeps nine tenths of the core busy.

use std::time::Duration;

use corelane_sys::thread::Scheduling;

use super::load_mix::{BackgroundClient, CallPace, Observations};
use super::server_under_test::{ServerUnderTest, TOP_PRIORITY, laned, omniorb};
use super::{beside, calls, goes_on, repetitions, without};
use crate::Failure;
use crate::baseline::BaselineTransport;
use crate::harness::{ComparedQuantity, Figure, FigureLabel, Progress};
use crate::idle::BusyCores;
use crate::operation::MeasuredOperation;
use crate::options::BenchOptions;
use crate::papers::cpu::rounds_for;
use crate::placement::CoreChoice;
use crate::report::Report;
use crate::testbed::require_fixed_priorities;
use crate::value::SingleValue;

const LOW: u8 = 10;

/// A call counts as stalled if its reply comes more than this time after the call is due. The
/// kernel's fair server takes up to 50 ms of each second from fixed priorities.
const STALL: Duration = Duration::from_millis(5);

const WORK: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BackgroundCalls {
    None,
    Work,
    Bulk,
}

impl BackgroundCalls {
    const ALL: [BackgroundCalls; 3] = [BackgroundCalls::None, BackgroundCalls::Work, BackgroundCalls::Bulk];

    fn name(self) -> &'static str {
        match self {
            BackgroundCalls::None => "without load",
            BackgroundCalls::Work => "servants of 20 ms",
            BackgroundCalls::Bulk => "sequences of 1 MiB",
        }
    }

    /// Returns the bounds on the mean and on the 99th percentile, as ratios to the values without
    /// load; `None` without a bound.
    fn bounds(self, transport: BaselineTransport) -> [Option<f64>; 2] {
        match (self, transport) {
            (BackgroundCalls::None, _) => [None, None],
            (BackgroundCalls::Work, _) => [None, Some(1.5)],
            (BackgroundCalls::Bulk, BaselineTransport::Tcp) => [Some(1.8), Some(2.5)],
            (BackgroundCalls::Bulk, BaselineTransport::Unix | BaselineTransport::SharedMemory) => {
                [Some(1.3), Some(1.3)]
            }
        }
    }
}

pub(crate) fn saturation(
    options: &BenchOptions,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    if !require_fixed_priorities("saturation", report)? {
        return Ok(());
    }
    let (calls, repetitions) = (calls(options, [100, 400, 4000]), repetitions(options));
    // If the kernel chooses the cores, it takes two clients to saturate the server's core.
    let loads = if options.placement.cores == CoreChoice::Any { 2 } else { 1 };
    let priorities: Vec<u8> = std::iter::once(TOP_PRIORITY).chain(std::iter::repeat_n(LOW, loads)).collect();
    let rounds = rounds_for(WORK);
    for transport in [BaselineTransport::Tcp, BaselineTransport::Unix] {
        let mut served = vec![laned(&priorities, transport, options)?];
        // All threads of omniORB have one priority, so both priorities are measured.
        for priority in [TOP_PRIORITY, LOW] {
            served.extend(report.or_report_missing(
                "saturation",
                "omniORB",
                omniorb(loads + 1, transport, priority, options),
            )?);
        }
        let mut all: Vec<[Observations; 3]> = served.iter().map(|_| Default::default()).collect();
        let busy = BusyCores::start(&options.placement)?;
        let mut gone = Vec::new();
        for repetition in 0..repetitions {
            for (at, load) in BackgroundCalls::ALL.into_iter().enumerate() {
                for (index, (one, seen)) in served.iter().zip(&mut all).enumerate() {
                    if gone.contains(&index) {
                        continue;
                    }
                    progress.show(&format!(
                        "saturation: {}, {} {} {} ({} of {repetitions})",
                        load.name(),
                        one.peer,
                        one.config,
                        one.transport,
                        repetition + 1
                    ));
                    let played = once(one, load, CallPace::NineTenths, (loads, rounds, calls), options, &mut seen[at]);
                    if !goes_on("saturation", one, played, report)? {
                        gone.push(index);
                    }
                }
            }
        }
        drop(busy);
        let (served, all) = without(&gone, served, all);
        progress.clear();
        let figures: Vec<Figure> = served.iter().zip(&all).flat_map(|(one, seen)| figures(one, seen)).collect();
        let title = format!(
            "saturation over {}: SCHED_FIFO {TOP_PRIORITY} at 100 Hz beside SCHED_FIFO {LOW} that leaves 10 % of the core, idle states held off",
            transport.name()
        );
        report.add_figures(&title, ComparedQuantity::Median, &figures)?;
        let values: Vec<SingleValue> =
            served.iter().zip(&all).flat_map(|(one, seen)| ratios(one, seen, transport)).collect();
        report.add_values(
            &format!("saturation over {}: against the same client without load", transport.name()),
            &values,
        )?;
        let [own, ..] = &*served else { continue };
        apart(own, (loads, rounds, calls), transport, options, report, progress)?;
    }
    Ok(())
}

/// Measures with a client that keeps the whole core busy. The values have no bounds, because the
/// kernel's fair server then stops all threads of fixed priority.
fn apart(
    one: &ServerUnderTest,
    (loads, rounds, calls): (usize, u32, usize),
    transport: BaselineTransport,
    options: &BenchOptions,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let _busy = BusyCores::start(&options.placement)?;
    let mut values = Vec::new();
    for load in [BackgroundCalls::Work, BackgroundCalls::Bulk] {
        let mut seen = Observations::default();
        for repetition in 1..=repetitions(options) {
            progress.show(&format!("saturation: {} at 100 % {} ({repetition})", load.name(), one.transport));
            once(one, load, CallPace::Whole, (loads, rounds, calls), options, &mut seen)?;
        }
        let (Some(summary), Some(response)) = (seen.high.summary(), seen.responses()) else { continue };
        let mut label = label(one, load);
        label.config += " at 100 %";
        for (quantity, value, unit) in [
            ("median", summary.p50_us, "us"),
            ("p99", summary.p99_us, "us"),
            ("longest", summary.max_us, "us"),
            ("from due to reply, p99", response.p99_us, "us"),
            ("from due to reply, longest", response.max_us, "us"),
            ("calls", summary.n as f64, ""),
            ("answers more than 5 ms late", seen.stalled(STALL) as f64, ""),
            ("given by the hypervisor to others", seen.cost.steal_ms, "ms"),
        ] {
            values.push(SingleValue { label: label.clone(), quantity: quantity.to_owned(), value, unit, bound: None });
        }
    }
    progress.clear();
    let title = format!(
        "saturation over {}, apart: SCHED_FIFO {LOW} takes all of the core, and the kernel's fair server stops all fixed priorities at times; a stall is \
         an answer more than {} ms after the call was due",
        transport.name(),
        STALL.as_millis()
    );
    report.add_values(&title, &values)
}

fn once(
    one: &ServerUnderTest,
    load: BackgroundCalls,
    pace: CallPace,
    (loads, rounds, calls): (usize, u32, usize),
    options: &BenchOptions,
    seen: &mut Observations,
) -> Result<(), Failure> {
    let mut others = Vec::new();
    for number in 1..=loads {
        let member = match load {
            BackgroundCalls::None => continue,
            BackgroundCalls::Work => one.worker(number, rounds)?,
            BackgroundCalls::Bulk => one.client(number, MeasuredOperation::Octets(1 << 20))?,
        };
        others.push(BackgroundClient { member, scheduling: Scheduling::Fifo(LOW), pace });
    }
    beside(one, others, calls, options, seen)
}

fn label(one: &ServerUnderTest, load: BackgroundCalls) -> FigureLabel {
    FigureLabel {
        bench: "saturation",
        peer: one.peer,
        transport: one.transport,
        op: "octet".to_owned(),
        config: format!("{}, {}", one.config, load.name()),
        axis_point: None,
    }
}

fn figures(one: &ServerUnderTest, seen: &[Observations; 3]) -> Vec<Figure> {
    let alone = label(one, BackgroundCalls::None);
    let figures = BackgroundCalls::ALL.into_iter().zip(seen).filter_map(|(load, own)| {
        let against = [(&alone, &seen[0].high)];
        own.high.figure(label(one, load), own, if load == BackgroundCalls::None { &[] } else { &against })
    });
    figures.collect()
}

fn ratios(one: &ServerUnderTest, seen: &[Observations; 3], transport: BaselineTransport) -> Vec<SingleValue> {
    let Some(alone) = seen[0].high.summary() else { return Vec::new() };
    let mut values = Vec::new();
    for (load, own) in BackgroundCalls::ALL.into_iter().zip(seen).skip(1) {
        let Some(summary) = own.high.summary() else { continue };
        let [mean, p99] = if one.peer == "Corelane" { load.bounds(transport) } else { [None, None] };
        for (quantity, value, bound) in [
            ("mean", summary.mean_us / alone.mean_us, mean),
            ("median", summary.p50_us / alone.p50_us, None),
            ("p99", summary.p99_us / alone.p99_us, p99),
        ] {
            values.push(SingleValue {
                label: label(one, load),
                quantity: quantity.to_owned(),
                value,
                unit: "x",
                bound,
            });
        }
    }
    for (load, own) in BackgroundCalls::ALL.into_iter().zip(seen) {
        let Some(response) = own.responses() else { continue };
        for (quantity, value, unit) in [
            ("from due to reply, median", response.p50_us, "us"),
            ("from due to reply, p99", response.p99_us, "us"),
            ("from due to reply, longest", response.max_us, "us"),
            ("given by the hypervisor to others", own.cost.steal_ms, "ms"),
        ] {
            values.push(SingleValue {
                label: label(one, load),
                quantity: quantity.to_owned(),
                value,
                unit,
                bound: None,
            });
        }
    }
    values
}
