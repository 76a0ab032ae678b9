//! Goals of Corelane's figures. A missed goal is not a failure of the run.

pub(crate) mod cores;
pub(crate) mod events;
pub(crate) mod rio;

use crate::harness::{Figure, FigureLabel, Ratio};
use crate::placement::CoreChoice;
use crate::testbed::NEVER_POLLS;
use crate::value::SingleValue;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CoreArrangement {
    OneCore,
    BothCores,
    /// Any arrangement. Goals may have this value, but no run has it.
    Either,
}

impl CoreArrangement {
    fn of(cores: CoreChoice) -> Option<CoreArrangement> {
        match cores {
            CoreChoice::Shared(_) => Some(CoreArrangement::OneCore),
            CoreChoice::Separate(client, server) if client == server => Some(CoreArrangement::OneCore),
            CoreChoice::Separate(..) => Some(CoreArrangement::BothCores),
            // The kernel may change the cores between calls, so no goal applies.
            CoreChoice::Any => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OperationSet {
    /// Calls through stubs to a server with a thread per connection or with leader/followers.
    Plain,
    PerConnection,
    LeaderFollowers,
    /// Oneways that the ORB sends in batches.
    Batches,
    /// Any configuration at this position on this axis.
    Along(&'static str, u64),
    All,
}

impl OperationSet {
    fn contains(self, label: &FigureLabel) -> bool {
        let config = label.config.strip_prefix(label.transport).and_then(|rest| rest.strip_prefix(", "));
        let config = config.unwrap_or(&label.config);
        let config = config.strip_prefix("with marshalling, ").unwrap_or(config);
        // Dynamic invocation and batches append text to the configuration, so the whole text is
        // compared.
        let per_connection = |config: &str| config == "thread per connection";
        let followers = |config: &str| {
            config.strip_prefix("leader/followers, ").is_some_and(|threads| threads.parse::<u32>().is_ok())
        };
        match self {
            OperationSet::Plain => per_connection(config) || followers(config),
            OperationSet::PerConnection => per_connection(config),
            OperationSet::LeaderFollowers => followers(config),
            OperationSet::Batches => {
                config.strip_suffix(", batches").is_some_and(|rest| per_connection(rest) || followers(rest))
            }
            OperationSet::All => true,
            OperationSet::Along(axis, x) => {
                label.axis_point.as_ref().is_some_and(|axis_point| (axis_point.axis, axis_point.x) == (axis, x))
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum TargetBound {
    /// Maximum ratio to the call time of a baseline whose server waits as Corelane's server does.
    Floor(f64),
    FloorRate(f64),
    Spin(f64),
    NeverPolls(f64),
    OmniOrb(f64),
    Baseline(f64),
    Median(f64),
    /// Maximum ratio to the fastest of the variants that are not a baseline.
    Fastest(f64),
}

impl TargetBound {
    /// Returns the number, its unit, its name and its maximum, or `None` without a figure for the
    /// comparison.
    fn value(self, figure: &Figure) -> Option<(f64, &'static str, String, f64)> {
        let against = |found: Option<&Ratio>, at_most| {
            let Ratio { with, ratio, .. } = found?;
            Some((*ratio, "x", format!("against {} {}", with.peer, with.config), at_most))
        };
        let floor = figure
            .ratios
            .first()
            .filter(|ratio| ratio.with.peer == "floor" && ratio.with.transport == figure.label.transport);
        match self {
            TargetBound::Floor(most) => against(floor, most),
            TargetBound::FloorRate(least) => against(floor, 1.0 / least),
            TargetBound::Spin(most) => {
                let spins = |with: &FigureLabel| with.peer == "floor" && with.config == "spin";
                against(figure.ratios.iter().find(|ratio| spins(&ratio.with)), most)
            }
            TargetBound::NeverPolls(most) => {
                against(figure.ratios.iter().find(|ratio| ratio.with.config.ends_with(NEVER_POLLS)), most)
            }
            TargetBound::OmniOrb(most) => {
                against(figure.ratios.iter().find(|ratio| ratio.with.peer == "omniORB"), most)
            }
            TargetBound::Baseline(most) => against(figure.ratios.first(), most),
            TargetBound::Fastest(most) => {
                let others = figure.ratios.iter().filter(|ratio| ratio.with.peer != "floor");
                against(others.max_by(|a, b| a.ratio.total_cmp(&b.ratio)), most)
            }
            TargetBound::Median(most) => Some((figure.summary.p50_us, "us", "median".to_owned(), most)),
        }
    }
}

struct Goal {
    benches: &'static [&'static str],
    operations: &'static [&'static str],
    transport: &'static str,
    calls: OperationSet,
    bound: TargetBound,
    place: CoreArrangement,
}

const CALLS: &[&str] = &["call", "cubit"];
const SCALE: &[&str] = &["scale"];
const SMALL: &[&str] = &["octet", "long", "struct"];

/// Operations with lent octets, which cost the same for every size.
const LENT: &[&str] = &["take_lent_octets65536", "take_lent_octets1048576", "take_lent_octets67108864"];

const ECHOES: &[&str] = &["octet", "octets65536", "octets1048576"];

const GOALS: &[Goal] = &[
    fastest("tcp"),
    fastest("shm"),
    Goal { calls: OperationSet::PerConnection, ..goal(CALLS, SMALL, "tcp", TargetBound::Floor(1.05)) },
    Goal { calls: OperationSet::LeaderFollowers, ..goal(CALLS, SMALL, "tcp", TargetBound::Floor(1.06)) },
    goal(CALLS, SMALL, "tcp", TargetBound::OmniOrb(0.88)),
    goal(CALLS, SMALL, "unix", TargetBound::Floor(1.10)),
    goal(CALLS, &["structs1024"], "tcp", TargetBound::OmniOrb(0.45)),
    goal(&["call", "cubit", "protocol"], &["longs1024", "take_longs1024"], "tcp", TargetBound::Floor(1.05)),
    goal(CALLS, &["octets1024", "take_octets1024"], "tcp", TargetBound::Floor(1.05)),
    goal(CALLS, &["octets16777216", "take_octets16777216"], "tcp", TargetBound::FloorRate(0.95)),
    Goal { place: CoreArrangement::BothCores, ..goal(CALLS, &["oneway"], "tcp", TargetBound::FloorRate(0.9)) },
    Goal {
        calls: OperationSet::Batches,
        place: CoreArrangement::BothCores,
        ..goal(CALLS, &["oneway"], "tcp", TargetBound::FloorRate(3.0))
    },
    Goal { calls: OperationSet::PerConnection, ..on_both(SMALL, "tcp", TargetBound::Spin(1.08)) },
    Goal { calls: OperationSet::PerConnection, ..on_both(SMALL, "unix", TargetBound::Spin(1.08)) },
    Goal { calls: OperationSet::LeaderFollowers, ..on_both(SMALL, "tcp", TargetBound::Spin(1.12)) },
    Goal { calls: OperationSet::LeaderFollowers, ..on_both(SMALL, "unix", TargetBound::Spin(1.12)) },
    on_both(SMALL, "tcp", TargetBound::OmniOrb(0.40)),
    goal(CALLS, SMALL, "tcp", TargetBound::NeverPolls(1.01)),
    goal(CALLS, SMALL, "unix", TargetBound::NeverPolls(1.01)),
    goal(CALLS, SMALL, "shm", TargetBound::Floor(1.2)),
    Goal {
        calls: OperationSet::PerConnection,
        place: CoreArrangement::BothCores,
        ..goal(CALLS, SMALL, "shm", TargetBound::Median(1.3))
    },
    Goal {
        calls: OperationSet::LeaderFollowers,
        place: CoreArrangement::BothCores,
        ..goal(CALLS, SMALL, "shm", TargetBound::Median(1.3))
    },
    on_both(LENT, "shm", TargetBound::Median(5.0)),
    Goal {
        calls: OperationSet::Along("client threads", 64),
        ..goal(SCALE, &["octet"], "tcp", TargetBound::FloorRate(0.9))
    },
    Goal {
        calls: OperationSet::Along("connections", 10_000),
        ..goal(SCALE, &["octet"], "tcp", TargetBound::Baseline(1.10))
    },
];

/// Goals of the throughput on several cores.
pub(crate) mod core_scaling {
    /// Maximum gain of two pairs of bare sockets on two cores, relative to the gain of two clients
    /// that may poll.
    pub(crate) const MAX_GAIN_OF_PAIRS_ON_TWO_CORES: f64 = 1.0 / 0.95;
}

/// Goals of half-sync/half-async beside floods of oneways, with one core for each side.
pub(crate) mod floods {
    /// Maximum number of requests that the server takes during a call of median time. The bound is
    /// two turns of 16 requests of each of 4 floods, one queued request of each of 8 connections,
    /// and 4 running requests.
    pub(crate) const MAX_HALF_SYNC_REQUESTS: f64 = 140.0;
    /// Maximum 99th percentile of the calls of the clients beside the floods, relative to the
    /// percentile with leader/followers beside the same floods.
    pub(crate) const MAX_HALF_SYNC_P99_RATIO: f64 = 2.0;
}

/// Goals of the Naming Service, which apply to any cores.
pub(crate) mod naming {
    /// Maximum median of resolving one component among 10 bindings, relative to a call that returns
    /// as many octets.
    pub(crate) const MAX_RESOLVE_TO_CALL_RATIO: f64 = 1.25;
    pub(crate) const MIN_RESOLVE_TO_OMNINAMES_RATIO: f64 = 1.15;
    /// Maximum median of resolving among more bindings, relative to the median among 10 bindings.
    pub(crate) const MAX_MEDIAN_RATIO: f64 = 1.05;
    /// Maximum 99th percentile of resolving among more bindings, relative to the percentile among
    /// 10 bindings.
    pub(crate) const MAX_P99_RATIO: f64 = 1.5;
    /// Maximum time in microseconds by which each further component of a name increases the median.
    pub(crate) const MAX_COMPONENT_US: f64 = 0.3;
    /// Maximum 99th percentile of resolving beside clients that bind, relative to the percentile
    /// without them.
    pub(crate) const MAX_P99_RATIO_BESIDE_CHANGES: f64 = 1.5;
    /// Minimum rate of one client's durable changes, relative to the rate at which the disk can
    /// sync.
    pub(crate) const MIN_DURABLE_TO_SYNC_RATIO_1_CLIENT: f64 = 0.35;
    /// Minimum rate of 16 clients' durable changes, relative to the rate at which the disk can
    /// sync.
    pub(crate) const MIN_DURABLE_TO_SYNC_RATIO_16_CLIENTS: f64 = 8.0;
    pub(crate) const MIN_RELAXED_TO_OMNINAMES_RATIO: f64 = 1.0;
    /// Maximum time in seconds from the start with a million bindings to the first answer.
    pub(crate) const MAX_START_S: f64 = 1.0;
    pub(crate) const MAX_LIST_OCTETS: f64 = 4.0 * 1024.0 * 1024.0;
}

const fn goal(
    benches: &'static [&'static str],
    operations: &'static [&'static str],
    transport: &'static str,
    bound: TargetBound,
) -> Goal {
    Goal { benches, operations, transport, calls: OperationSet::Plain, bound, place: CoreArrangement::OneCore }
}

const fn on_both(operations: &'static [&'static str], transport: &'static str, bound: TargetBound) -> Goal {
    Goal { place: CoreArrangement::BothCores, ..goal(CALLS, operations, transport, bound) }
}

/// Returns the goal that Corelane is at least as fast as each alternative.
const fn fastest(transport: &'static str) -> Goal {
    let (calls, place) = (OperationSet::All, CoreArrangement::Either);
    Goal { calls, place, ..goal(&["instead"], ECHOES, transport, TargetBound::Fastest(1.0)) }
}

/// Compares Corelane's figures with the goals. A comparison has the goal's bound only if the goal
/// is for these cores. Omits a comparison whose figures are missing.
pub(crate) fn compare_with_goals(figures: &[Figure], cores: CoreChoice) -> Vec<SingleValue> {
    let here = CoreArrangement::of(cores);
    let ours = figures.iter().filter(|figure| figure.label.peer == "Corelane");
    let values = ours.flat_map(|figure| {
        GOALS.iter().filter(|goal| goal.fits(&figure.label)).filter_map(move |goal| {
            let (value, unit, quantity, at_most) = goal.bound.value(figure)?;
            let quantity = match goal.calls {
                OperationSet::Along(axis, x) => format!("{x} {axis}, {quantity}"),
                _ => quantity,
            };
            let applies = here.is_some_and(|here| goal.place == here || goal.place == CoreArrangement::Either);
            let bound = applies.then_some(at_most);
            Some(SingleValue { label: figure.label.clone(), quantity, value, unit, bound })
        })
    });
    values.collect()
}

impl Goal {
    fn fits(&self, label: &FigureLabel) -> bool {
        self.benches.contains(&label.bench)
            && self.operations.contains(&label.op.as_str())
            && self.transport == label.transport
            && self.calls.contains(label)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::AxisPoint;
    use crate::sample::Summary;
    use std::time::Duration;

    fn label(peer: &'static str, transport: &'static str, op: &str, config: &str) -> FigureLabel {
        FigureLabel { bench: "call", peer, transport, op: op.to_owned(), config: config.to_owned(), axis_point: None }
    }

    fn figure(label: FigureLabel, ratios: &[(FigureLabel, f64)]) -> Figure {
        let ratio = |(with, ratio): &(FigureLabel, f64)| Ratio {
            with: with.clone(),
            p50_us: 1.0,
            ratio: *ratio,
            range: (0.0, 9.0),
        };
        Figure {
            label,
            summary: Summary::of(&[1200; 4], Duration::from_micros(5)).unwrap(),
            medians_us: Vec::new(),
            cdf_us: Vec::new(),
            ratios: ratios.iter().map(ratio).collect(),
            cost: None,
            calls: 4,
        }
    }

    fn judged(figure: Figure, cores: CoreChoice) -> Vec<(f64, Option<f64>)> {
        compare_with_goals(&[figure], cores).iter().map(|value| (value.value, value.bound)).collect()
    }

    const ONE: CoreChoice = CoreChoice::Shared(1);
    const BOTH: CoreChoice = CoreChoice::Separate(0, 1);

    #[test]
    fn small_calls_are_compared_with_the_baseline_of_their_architecture_and_omniorb() {
        let omniorb = label("omniORB", "tcp", "octet", "as it comes");
        for (config, floor, most) in
            [("thread per connection", "blocking", 1.05), ("leader/followers, 4", "epoll, 4 threads", 1.06)]
        {
            let floor = label("floor", "tcp", "octet", floor);
            let figure = figure(label("Corelane", "tcp", "octet", config), &[(floor, 1.10), (omniorb.clone(), 0.80)]);
            assert_eq!(judged(figure.clone(), ONE), [(1.10, Some(most)), (0.80, Some(0.88)), (0.80, None)]);
            assert_eq!(judged(figure.clone(), BOTH), [(1.10, None), (0.80, None), (0.80, Some(0.40))]);
            assert_eq!(judged(figure, CoreChoice::Any), [(1.10, None), (0.80, None), (0.80, None)]);
        }
    }

    #[test]
    fn polling_calls_are_compared_with_polling_baselines_and_non_polling_calls() {
        for (config, most) in [("thread per connection", 1.08), ("leader/followers, 4", 1.12)] {
            let ours = label("Corelane", "unix", "octet", config);
            let sleeping = label("Corelane", "unix", "octet", &format!("{config}{NEVER_POLLS}"));
            let spin = label("floor", "unix", "octet", "spin");
            let blocking = label("floor", "unix", "octet", "blocking");
            let figure = figure(ours, &[(blocking, 0.5), (spin, 1.1), (sleeping.clone(), 0.9)]);
            assert_eq!(judged(figure.clone(), BOTH), [(0.5, None), (1.1, Some(most)), (0.9, None)]);
            assert_eq!(judged(figure, ONE), [(0.5, Some(1.10)), (1.1, None), (0.9, Some(1.01))]);
        }
        let ours = label("Corelane", "unix", "octet", "thread per connection, never polls");
        assert_eq!(judged(figure(ours, &[(label("floor", "unix", "octet", "blocking"), 1.0)]), ONE), []);
    }

    #[test]
    fn figures_without_a_goal_have_no_bound() {
        let floor = label("floor", "tcp", "octet", "blocking");
        let plain = label("Corelane", "tcp", "octet", "thread per connection");
        assert_eq!(judged(figure(plain.clone(), &[(floor.clone(), 1.0)]), ONE), [(1.0, Some(1.05))]);
        assert_eq!(judged(figure(plain, &[]), ONE), []);
        for other in [
            label("omniORB", "tcp", "octet", "thread per connection"),
            label("Corelane", "tcp", "octet", "thread per connection, dynamic invocation"),
            label("Corelane", "tcp", "short", "thread per connection"),
            FigureLabel { bench: "lane", ..label("Corelane", "tcp", "octet", "thread per connection") },
        ] {
            assert_eq!(judged(figure(other, &[(floor.clone(), 1.0)]), ONE), []);
        }
    }

    #[test]
    fn sequences_are_compared_by_rate_and_with_omniorb() {
        let of = |op: &str, with: FigureLabel, ratio| {
            judged(figure(label("Corelane", "tcp", op, "thread per connection"), &[(with, ratio)]), ONE)
        };
        let floor = || label("floor", "tcp", "", "blocking");
        assert_eq!(of("structs1024", label("omniORB", "tcp", "", "as it comes"), 0.5), [(0.5, Some(0.45))]);
        assert_eq!(of("longs1024", floor(), 1.0), [(1.0, Some(1.05))]);
        assert_eq!(of("octets16777216", floor(), 1.0), [(1.0, Some(1.0 / 0.95))]);
        let marshalled = label("Corelane", "tcp", "longs1024", "with marshalling, thread per connection");
        let marshalled = FigureLabel { bench: "protocol", ..marshalled };
        assert_eq!(judged(figure(marshalled, &[(floor(), 1.2)]), ONE), [(1.2, Some(1.05))]);
    }

    #[test]
    fn goals_of_oneways_and_shared_memory_apply_to_two_cores() {
        let floor = label("floor", "tcp", "oneway", "blocking");
        for (config, rate) in [("leader/followers, 2", 0.9), ("leader/followers, 2, batches", 3.0)] {
            let figure = figure(label("Corelane", "tcp", "oneway", config), &[(floor.clone(), 0.7)]);
            assert_eq!(judged(figure.clone(), BOTH), [(0.7, Some(1.0 / rate))]);
            assert_eq!(judged(figure, ONE), [(0.7, None)]);
        }
        let futex = label("floor", "shm", "octet", "shm, futex");
        let ours = figure(label("Corelane", "shm", "octet", "shm, thread per connection"), &[(futex.clone(), 1.3)]);
        assert_eq!(judged(ours.clone(), ONE), [(1.3, Some(1.2)), (1.2, None)]);
        assert_eq!(judged(ours, BOTH), [(1.3, None), (1.2, Some(1.3))]);
        let pool = label("Corelane", "shm", "octet", "shm, leader/followers, 4");
        assert_eq!(judged(figure(pool, &[(futex, 1.3)]), BOTH), [(1.3, None), (1.2, Some(1.3))]);
    }

    #[test]
    fn corelane_is_compared_with_the_fastest_alternative() {
        let of = |peer, config| FigureLabel { bench: "instead", ..label(peer, "tcp", "octet", config) };
        let with =
            [(of("floor", "blocking"), 2.0), (of("tarpc", "as it comes"), 0.5), (of("zenoh", "as it comes"), 0.3)];
        for cores in [ONE, BOTH] {
            assert_eq!(judged(figure(of("Corelane", "any"), &with), cores), [(0.5, Some(1.0))]);
        }
        assert_eq!(judged(figure(of("Corelane", "any"), &with[..1]), ONE), []);
    }

    #[test]
    fn goals_of_scale_apply_at_their_position_on_the_axis() {
        let axis_point = |config: &str, axis, x| {
            let axis_point = AxisPoint { series: String::new(), axis, x };
            FigureLabel { bench: "scale", axis_point: Some(axis_point), ..label("Corelane", "tcp", "octet", config) }
        };
        let pairs = axis_point("blocking pairs", "client threads", 64);
        let threads = figure(
            axis_point("leader/followers, 4", "client threads", 64),
            &[(FigureLabel { peer: "floor", ..pairs }, 1.2)],
        );
        assert_eq!(judged(threads, ONE), [(1.2, Some(1.0 / 0.9))]);
        let alone = axis_point("0 idle connections", "connections", 1);
        let among = |x| figure(axis_point("idle connections", "connections", x), &[(alone.clone(), 1.05)]);
        assert_eq!((judged(among(10_000), ONE), judged(among(1001), ONE)), (vec![(1.05, Some(1.10))], vec![]));
    }
}
