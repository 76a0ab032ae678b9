//! The benchmark `cores-misses`, which counts deadline misses of periodic clients whose servants
//! compute (table IV of the MC-ORB paper).
//!
//! The task sets are those of the paper: two groups of tasks, total utilizations of 1.4 to 1.6 on
//! two cores, deadlines equal to periods, rate-monotonic priorities. Each task is a client with a
//! separate connection.
//!
//! A core pool serves the tasks that admission accepts, in each of its modes. For comparison, two
//! other servers serve all tasks: lanes whose threads run on any core, as those of nORB in the
//! paper, and omniORB. A simulation adds more sets.

use std::sync::Arc;
use std::time::Duration;

use corelane::Orb;
use corelane::rt::{CorePoolMode, RtClientPolicies, RtConfig};
use corelane_sched::allocation::{Discipline, Machine, admit_all, task_placements};
use corelane_sched::generate::Workload;
use corelane_sched::simulation::{CoreAssignment, SchedulingRule, SimulatedSystem, simulate};
use corelane_sched::task::{Task, Utilization};
use corelane_services::cores::protocol::tasks::AdmitError;
use corelane_services::cores::protocol::{Criticality, JobOverrun, Promise, TaskSpec, TaskTiming, TasksRef};
use corelane_sys::clock;
use corelane_sys::thread::{CpuSet, Scheduling, ThreadBuilder};

use super::jobs::{JobCounts, PeriodicClient, run_jobs};
use super::{BASELINE, at, core_pair, label, server};
use crate::Failure;
use crate::baseline::BaselineTransport;
use crate::harness::{FigureLabel, Progress};
use crate::launch::start_server_with_bands;
use crate::options::{BenchOptions, Depth};
use crate::orb::client::object;
use crate::orb::generated::cubit::CountedTargetRef;
use crate::orb::{client_orb, levels, limits};
use crate::papers::cpu::rounds_for;
use crate::peer::{PeerKind, PeerThreads};
use crate::placement::Placement;
use crate::report::Report;
use crate::targets::cores::misses as goals;
use crate::testbed::require_fixed_priorities;
use crate::value::SingleValue;

const BENCH: &str = "cores-misses";

/// Total utilizations of the paper's cells, in percent of a core.
const UTILIZATIONS: [u64; 3] = [140, 150, 160];
const BALANCES: [u64; 4] = [10, 20, 30, 50];

const FEW_BALANCES: [u64; 1] = [10];

/// Priority of the clients, above the priorities of all tasks.
const CLIENT_PRIORITY: u8 = 99;

const TOP_LEVEL: u8 = levels::LEVELS - 1;

const SIMULATED_SETS: u64 = 100;

/// Virtual time of a simulated set in nanoseconds, at least 30 periods of each task.
const SIMULATED: u64 = 30_000_000_000;

const OVERHEADS_MS: [u64; 2] = [0, 3];

const PATIENCE: Duration = Duration::from_secs(20);

const LEASE: u64 = 3_600_000_000_000;

/// Time for which one calibration computes.
const CALIBRATION: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Pool(CorePoolMode),
    /// Lanes by priority serve all tasks, on any core.
    Lanes,
    OmniOrb,
}

const BOUND: Mode = Mode::Pool(CorePoolMode::Bound);

const EACH_MODE: [Mode; 6] = [
    BOUND,
    Mode::Pool(CorePoolMode::Manager),
    Mode::Pool(CorePoolMode::LeaderFollowers),
    Mode::Pool(CorePoolMode::NoAffinity),
    Mode::Lanes,
    Mode::OmniOrb,
];

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Mode::Pool(mode) => server::mode_text(mode),
            Mode::Lanes => "lanes, no affinity",
            Mode::OmniOrb => "as it comes, no affinity",
        }
    }

    fn peer(self) -> &'static str {
        match self {
            Mode::Pool(_) | Mode::Lanes => "Corelane",
            Mode::OmniOrb => "omniORB",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Length {
    /// Number of sets in a cell of [`BOUND`], and in a cell of another mode.
    sets: [u64; 2],
    time: Duration,
    has_all_cells: bool,
}

impl Length {
    fn of(options: &BenchOptions) -> Length {
        let (sets, milliseconds) = match options.depth {
            Depth::Quick => ([1, 1], 10_000),
            Depth::Usual => ([10, 3], 20_000),
            Depth::Full => ([10, 10], 300_000),
        };
        let sets = options.requested.repetitions.map_or(sets, |sets| [sets as u64; 2]);
        let time = Duration::from_millis(options.requested.count.map_or(milliseconds, |count| count as u64));
        Length { sets, time, has_all_cells: options.depth == Depth::Full }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cell {
    sets: u64,
    with_misses: u64,
    counts: JobCounts,
    offered: usize,
    accepted: usize,
}

impl Cell {
    fn add(&mut self, counts: JobCounts, offered: usize, accepted: usize) {
        self.sets += 1;
        self.with_misses += u64::from(counts.missed > 0);
        self.counts.jobs += counts.jobs;
        self.counts.missed += counts.missed;
        self.counts.stalled += counts.stalled;
        self.offered += offered;
        self.accepted += accepted;
    }

    fn rejected_percent(&self) -> f64 {
        100.0 * (self.offered - self.accepted) as f64 / self.offered.max(1) as f64
    }

    fn fraction(&self) -> f64 {
        self.with_misses as f64 / self.sets.max(1) as f64
    }
}

pub(crate) fn misses(options: &BenchOptions, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    simulated(options, report, progress)?;
    if !require_fixed_priorities(BENCH, report)? {
        return Ok(());
    }
    let Some((one, other)) = core_pair(options) else {
        return report.add_missing(BENCH, "Corelane", super::ONE_CORE);
    };
    let cores = [one.min(other), one.max(other)];
    let length = Length::of(options);
    let rounds = calibrated(cores)?;
    let text = format!(
        "\n{BENCH}: {} ms for each set, {} and {} sets in a cell of bound tasks and of the others; {:.0} rounds of computing in a millisecond\n",
        length.time.as_millis(),
        length.sets[0],
        length.sets[1],
        rounds
    );
    report.add_text(&text)?;
    let scene = Scene { cores, rounds, time: length.time };
    for mode in EACH_MODE {
        if mode == Mode::OmniOrb
            && report.or_report_missing(BENCH, "omniORB", options.peer(PeerKind::OmniOrb))?.is_none()
        {
            continue;
        }
        let is_bound = mode == BOUND;
        let balances: &[u64] = if is_bound || length.has_all_cells { &BALANCES } else { &FEW_BALANCES };
        let sets = length.sets[usize::from(!is_bound)];
        let mut values = Vec::new();
        for &utilization in &UTILIZATIONS {
            for &balance in balances {
                let mut cell = Cell::default();
                for seed in 0..sets {
                    let at = format!("U {}, balance {}, set {seed}", parts(utilization), parts(balance));
                    progress.show(&format!("{BENCH}: {} {}, {at}", mode.peer(), mode.name()));
                    let tasks = workload(utilization, balance).tasks(seed);
                    let (counts, accepted) = scene.run(mode, &tasks, options)?;
                    cell.add(counts, tasks.len(), accepted);
                }
                values.extend(cell_values(mode, utilization, balance, &cell));
            }
        }
        progress.clear();
        report.add_values(&format!("{BENCH}: {} {}", mode.peer(), mode.name()), &values)?;
    }
    Ok(())
}

fn workload(utilization: u64, balance: u64) -> Workload {
    let percent = Utilization::ONE.0 / 100;
    Workload::two_groups(Utilization(utilization * percent), Utilization(balance * percent))
}

/// Formats a number of hundredths with one decimal, rounded down, for example 160 as `1.6`.
fn parts(hundredths: u64) -> String {
    format!("{}.{}", hundredths / 100, hundredths % 100 / 10)
}

fn cell_label(peer: &'static str, name: &str, utilization: u64, balance: u64) -> FigureLabel {
    let config = format!("{name}, U {}, balance {}", parts(utilization), parts(balance));
    let series = format!("{name}, balance {}", parts(balance));
    at(label(BENCH, peer, "", config), &series, "total utilization, percent of a core", utilization)
}

fn cell_values(mode: Mode, utilization: u64, balance: u64, cell: &Cell) -> Vec<SingleValue> {
    let label = cell_label(mode.peer(), mode.name(), utilization, balance);
    let value = |quantity: &str, value: f64, unit, bound| SingleValue {
        label: label.clone(),
        quantity: quantity.to_owned(),
        value,
        unit,
        bound,
    };
    let goal = |at_most| (mode == BOUND).then_some(at_most);
    let mut values = vec![
        value("fraction of sets with a miss", cell.fraction(), "x", goal(goals::MAX_SETS_WITH_A_MISS)),
        value("jobs", cell.counts.jobs as f64, "", None),
        value("missed deadlines", cell.counts.missed as f64, "", None),
        value("misses while the hypervisor took time", cell.counts.stalled as f64, "", None),
    ];
    if matches!(mode, Mode::Pool(_)) {
        values.push(value("rejected tasks", cell.rejected_percent(), "%", goal(goals::MAX_REJECTED)));
    }
    values
}

/// Computes on both cores at the same time, and measures repeatedly. Returns the lowest measured
/// number of rounds per millisecond.
fn calibrated(cores: [usize; 2]) -> Result<f64, Failure> {
    let deadline = clock::now() + 10 * CALIBRATION;
    let mut threads = Vec::new();
    for core in cores {
        let builder = ThreadBuilder::new().name("bench/calibrate").affinity(CpuSet::one(core));
        let thread = builder.scheduling(Scheduling::Fifo(CLIENT_PRIORITY)).spawn(move || {
            let mut fewest = u32::MAX;
            while !deadline.is_past() {
                fewest = fewest.min(rounds_for(CALIBRATION));
            }
            fewest
        });
        threads.push(thread.map_err(|error| Failure::new(format!("calibration: {error}")))?);
    }
    let mut fewest = u32::MAX;
    for thread in threads {
        fewest = fewest.min(thread.join().map_err(|_| Failure::new("a thread of the calibration panicked"))?);
    }
    Ok(f64::from(fewest) / (CALIBRATION.as_secs_f64() * 1e3))
}

struct Scene {
    cores: [usize; 2],
    rounds: f64,
    time: Duration,
}

impl Scene {
    /// Runs one set of tasks. Returns the counts of its jobs, and the number of accepted tasks.
    fn run(&self, mode: Mode, tasks: &[Task], options: &BenchOptions) -> Result<(JobCounts, usize), Failure> {
        match mode {
            Mode::Pool(mode) => self.pool(mode, tasks),
            Mode::Lanes => self.lanes(tasks),
            Mode::OmniOrb => self.omniorb(tasks, options),
        }
    }

    fn client(&self, task: &Task, target: CountedTargetRef) -> PeriodicClient {
        PeriodicClient {
            target,
            rounds: (task.timing.execution as f64 / 1e6 * self.rounds) as u32,
            period: Duration::from_nanos(task.timing.period),
            core: None,
            scheduling: Scheduling::Fifo(CLIENT_PRIORITY),
            priority: None,
        }
    }

    fn pool(&self, mode: CorePoolMode, tasks: &[Task]) -> Result<(JobCounts, usize), Failure> {
        let (_server, admission, reference) = server::start_admission(&self.cores, Some(mode), &Placement::default())?;
        let orb = client_orb(tasks.len() + 1)?;
        let admission = TasksRef::from_object(object(&orb, &admission)?);
        let target = object(&orb, &reference)?;
        let mut promises = Vec::new();
        for task in tasks {
            let spec = TaskSpec {
                name: format!("task-{}", task.id.0),
                target: Some(target.clone()),
                operation: String::new(),
                timing: TaskTiming {
                    execution: task.timing.execution,
                    period: task.timing.period,
                    deadline: task.timing.deadline,
                    jitter: 0,
                    blocking: 0,
                    min_distance: 0,
                },
                importance: Criticality::Normal,
                core: -1,
                lease: LEASE,
                overrun: JobOverrun::Report,
            };
            if let Some(promise) = admitted(&admission, &spec)? {
                promises.push((task, promise));
            }
        }
        // A later admission may have moved a task, so the promises are read again.
        let private = RtClientPolicies { private_connection: true, ..RtClientPolicies::default() };
        let mut clients = Vec::new();
        let mut start = 0;
        for (task, promise) in &promises {
            let now =
                admission.outcome(promise.task, &promise.token).map_err(|error| Failure::new(format!("{error:?}")))?;
            start = start.max(now.start);
            let task_reference = now.target.ok_or_else(|| Failure::new("a promise has no task reference"))?;
            let target = CountedTargetRef::from_object(task_reference.with_rt_policies(&private)?);
            let core = usize::try_from(now.core).ok().filter(|_| mode != CorePoolMode::NoAffinity);
            clients.push(PeriodicClient { core, ..self.client(task, target) });
        }
        std::thread::sleep(Duration::from_nanos(start));
        let accepted = clients.len();
        Ok((run_jobs(clients, self.time)?, accepted))
    }

    fn lanes(&self, tasks: &[Task]) -> Result<(JobCounts, usize), Failure> {
        let levels = rate_monotonic_levels(tasks);
        let priorities: Vec<i16> = levels.iter().filter_map(|&level| Some(levels::band(level)?.0)).collect();
        let mut server = start_server_with_bands(&priorities, &Placement::default())?;
        let references = server.ask("references", PATIENCE)?;
        let rt = RtConfig::default().priority_mapping(Arc::new(levels::MAPPING));
        let orb = Orb::builder().real_time(rt).limits(limits()).max_connections_per_server(tasks.len().max(32)).build();
        let orb = orb.map_err(|error| Failure::new(error.to_string()))?;
        let mut clients = Vec::new();
        for ((task, reference), &priority) in tasks.iter().zip(references.split(' ')).zip(&priorities) {
            let target = CountedTargetRef::from_object(object(&orb, reference)?);
            clients.push(PeriodicClient { priority: Some((orb.real_time(), priority)), ..self.client(task, target) });
        }
        Ok((run_jobs(clients, self.time)?, tasks.len()))
    }

    fn omniorb(&self, tasks: &[Task], options: &BenchOptions) -> Result<(JobCounts, usize), Failure> {
        let peer = options.peer(PeerKind::OmniOrb)?;
        let (_server, reference) = peer.serve(BaselineTransport::Tcp, PeerThreads::Default, &Placement::default())?;
        let orb = client_orb(tasks.len())?;
        let mut clients = Vec::new();
        for task in tasks {
            clients.push(self.client(task, CountedTargetRef::from_object(object(&orb, &reference)?)));
        }
        Ok((run_jobs(clients, self.time)?, tasks.len()))
    }
}

/// Returns the promise of the task; `None` if the task is rejected. Waits at most [`PATIENCE`] for
/// a pending decision.
fn admitted(admission: &TasksRef, spec: &TaskSpec) -> Result<Option<Promise>, Failure> {
    let deadline = clock::now() + PATIENCE;
    let mut pending = match admission.admit(spec) {
        Ok(promise) => return Ok(Some(promise)),
        Err(AdmitError::Rejected(_)) => return Ok(None),
        Err(AdmitError::Pending(pending)) => pending,
        Err(AdmitError::System(exception)) => return Err(exception.into()),
    };
    while !deadline.is_past() {
        match admission.outcome(pending.task, &pending.token) {
            Ok(promise) => return Ok(Some(promise)),
            Err(AdmitError::Rejected(_)) => return Ok(None),
            Err(AdmitError::Pending(still)) => pending = still,
            Err(AdmitError::System(exception)) => return Err(exception.into()),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(Failure::new("a decision takes too long"))
}

fn rate_monotonic_levels(tasks: &[Task]) -> Vec<u8> {
    let mut order: Vec<usize> = (0..tasks.len()).collect();
    order.sort_by_key(|&place| tasks[place].timing.period);
    let mut levels = vec![1; tasks.len()];
    for (rank, place) in order.into_iter().enumerate() {
        levels[place] = TOP_LEVEL.saturating_sub(u8::try_from(rank).unwrap_or(u8::MAX)).max(1);
    }
    levels
}

fn simulated(options: &BenchOptions, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    let sets = options.requested.count.map_or(SIMULATED_SETS, |count| SIMULATED_SETS.min(count as u64));
    let mut values = Vec::new();
    for utilization in UTILIZATIONS {
        for balance in BALANCES {
            progress.show(&format!("{BENCH}: simulated, U {}, balance {}", parts(utilization), parts(balance)));
            for overhead in OVERHEADS_MS {
                for is_global in [false, true] {
                    let missed = (0..sets)
                        .filter(|&seed| {
                            misses_in_simulation(&workload(utilization, balance).tasks(seed), overhead, is_global)
                        })
                        .count();
                    let kind = if is_global { "global" } else { "partitioned" };
                    let name = format!("simulated, {kind}, {overhead} ms of overhead");
                    values.push(SingleValue {
                        label: cell_label(BASELINE, &name, utilization, balance),
                        quantity: "fraction of sets with a miss".to_owned(),
                        value: missed as f64 / sets as f64,
                        unit: "x",
                        bound: None,
                    });
                }
            }
        }
    }
    progress.clear();
    report.add_values(&format!("{BENCH}: simulation of {sets} sets in each cell"), &values)
}

/// Simulates the tasks on two cores under rate-monotonic priorities. If `is_global` is true, they
/// run on any core, otherwise on the cores that admission chooses without knowledge of the
/// overhead. Returns true if a deadline is missed or a task is rejected.
fn misses_in_simulation(tasks: &[Task], overhead_ms: u64, is_global: bool) -> bool {
    let machine = Machine { discipline: Discipline::FixedPriority, ..super::whole_cores(Machine::with_cores(2)) };
    let mut timings = Vec::new();
    let mut levels = Vec::new();
    let cores = if is_global {
        timings.extend(tasks.iter().map(|task| task.timing));
        levels.extend(rate_monotonic_levels(tasks).into_iter().map(|level| u32::from(u8::MAX - level)));
        CoreAssignment::Global { core_count: 2 }
    } else {
        let (set, rejections) = admit_all(&machine, tasks);
        if !rejections.is_empty() {
            return true;
        }
        let mut cores = Vec::new();
        for placement in task_placements(&set, &machine) {
            timings.extend(tasks.iter().find(|task| task.id == placement.task).map(|task| task.timing));
            levels.push(placement.level);
            cores.push(placement.core.core as usize);
        }
        CoreAssignment::Partitioned(cores)
    };
    let system = SimulatedSystem {
        levels,
        overhead: overhead_ms * 1_000_000,
        ..SimulatedSystem::new(timings, cores, SchedulingRule::FixedPriority)
    };
    simulate(&system, SIMULATED).has_misses()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_counts_sets_and_tasks() {
        let mut cell = Cell::default();
        cell.add(JobCounts { jobs: 10, missed: 0, stalled: 1 }, 11, 11);
        cell.add(JobCounts { jobs: 12, missed: 2, stalled: 0 }, 11, 10);
        assert_eq!((cell.sets, cell.with_misses, cell.counts.jobs, cell.counts.stalled), (2, 1, 22, 1));
        assert_eq!((cell.fraction(), cell.rejected_percent().round()), (0.5, 5.0));
        let bound = cell_values(BOUND, 160, 10, &cell);
        assert_eq!(bound.iter().filter(|value| value.bound.is_some()).count(), 2);
        for mode in &EACH_MODE[1..] {
            let values = cell_values(*mode, 160, 10, &cell);
            assert_eq!(values.len(), if matches!(mode, Mode::Pool(_)) { 5 } else { 4 });
            assert!(values.iter().all(|value| value.bound.is_none()));
        }
        assert_eq!(bound[0].label.config, "bound, U 1.6, balance 0.1");
    }

    #[test]
    fn shorter_periods_have_higher_levels() {
        let tasks = workload(160, 30).tasks(1);
        let levels = rate_monotonic_levels(&tasks);
        for (one, first) in tasks.iter().zip(&levels) {
            for (other, second) in tasks.iter().zip(&levels) {
                assert!(one.timing.period >= other.timing.period || first > second);
            }
        }
    }

    #[test]
    fn admitted_sets_miss_no_deadline_in_the_simulation_without_overhead() {
        for seed in 0..5 {
            assert!(!misses_in_simulation(&workload(160, 10).tasks(seed), 0, false));
        }
        // The overhead of each job raises the utilization above 2, so deadlines are missed.
        let overhead = 60;
        assert!(misses_in_simulation(&workload(160, 50).tasks(0), overhead, true));
    }
}
