//! The benchmark `cores-acceptance`, which determines the share of random tasks that admission
//! accepts.
//!
//! All allocators get the same seeded task sets. The first part has the workload of the MC-ORB
//! paper on two cores, by total utilization and balance factor. The second part has 2 to 128 cores
//! with a utilization of 0.9 for each core.

use std::fmt::Write as _;

use corelane_sched::allocation::baseline::{
    first_fit, passes_global_edf_density, passes_global_edf_interference, passes_global_rate_monotonic, worst_fit,
};
use corelane_sched::allocation::{Discipline, Machine, admit_all};
use corelane_sched::generate::Workload;
use corelane_sched::task::{Task, Timing, Utilization};

use super::{BASELINE, at, label};
use crate::Failure;
use crate::harness::Progress;
use crate::options::{BenchOptions, Depth};
use crate::report::Report;
use crate::targets::cores::acceptance as goals;
use crate::value::SingleValue;

const BENCH: &str = "cores-acceptance";

/// Total utilizations on two cores, in percent of a core.
const UTILIZATIONS: [u64; 7] = [140, 150, 160, 170, 180, 190, 195];

/// Balance factors in percent: number of tasks of the second group, relative to the first.
const BALANCES: [u64; 4] = [10, 20, 30, 50];

const CORES: [u32; 7] = [2, 4, 8, 16, 32, 64, 128];

const GOAL_CORES: std::ops::RangeInclusive<u32> = 4..=64;

const TASKS_PER_CORE: usize = 5;

const PERCENT_PER_CORE: u64 = 90;

/// Maximum number of cores on which global scheduling is tested. The tests take long for many
/// tasks.
const MAX_GLOBAL_CORES: u32 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Allocator {
    Admission(Discipline),
    /// Fixed priorities. The search tries every placement.
    Exhaustive,
    FirstFit,
    WorstFit,
    /// Global earliest deadline first, by the bound of densities.
    GlobalDensity,
    /// Global earliest deadline first, by the interference of each task.
    GlobalInterference,
    GlobalRateMonotonic,
}

const FIXED: Allocator = Allocator::Admission(Discipline::FixedPriority);
const DEADLINES: Allocator = Allocator::Admission(Discipline::EarliestDeadlineFirst);

const ALLOCATORS: [Allocator; 9] = [
    FIXED,
    DEADLINES,
    Allocator::Admission(Discipline::LiuLayland),
    Allocator::Exhaustive,
    Allocator::FirstFit,
    Allocator::WorstFit,
    Allocator::GlobalDensity,
    Allocator::GlobalInterference,
    Allocator::GlobalRateMonotonic,
];

impl Allocator {
    fn name(self) -> &'static str {
        match self {
            Allocator::Admission(Discipline::FixedPriority) => "fixed priorities",
            Allocator::Admission(Discipline::EarliestDeadlineFirst) => "earliest deadline first",
            Allocator::Admission(Discipline::LiuLayland) => "Liu-Layland bound with search",
            Allocator::Exhaustive => "fixed priorities, exhaustive",
            Allocator::FirstFit => "first fit",
            Allocator::WorstFit => "worst fit",
            Allocator::GlobalDensity => "global EDF, density",
            Allocator::GlobalInterference => "global EDF, interference",
            Allocator::GlobalRateMonotonic => "global rate-monotonic",
        }
    }

    fn peer(self) -> &'static str {
        match self {
            FIXED | DEADLINES => "Corelane",
            _ => BASELINE,
        }
    }

    fn suits(self, cores: u32) -> bool {
        match self {
            Allocator::Admission(_) | Allocator::FirstFit | Allocator::WorstFit => true,
            Allocator::Exhaustive => cores == 2,
            Allocator::GlobalDensity | Allocator::GlobalInterference | Allocator::GlobalRateMonotonic => {
                cores <= MAX_GLOBAL_CORES
            }
        }
    }

    fn accept(self, tasks: &[Task], cores: u32) -> Vec<Task> {
        let placed = |places: Vec<Option<usize>>| {
            let pairs = tasks.iter().zip(places);
            pairs.filter(|(_, place)| place.is_some()).map(|(task, _)| *task).collect()
        };
        let admitted = |machine: &Machine| admit_all(machine, tasks).0.iter().map(|(task, _)| *task).collect();
        let fixed = Discipline::FixedPriority;
        match self {
            Allocator::Admission(discipline) => admitted(&machine(cores, discipline).with_short_decision_limits()),
            Allocator::Exhaustive => admitted(&Machine { max_steps: u32::MAX, ..machine(cores, fixed) }),
            Allocator::FirstFit => placed(first_fit(tasks, cores as usize, fixed)),
            Allocator::WorstFit => placed(worst_fit(tasks, cores as usize, fixed)),
            Allocator::GlobalDensity => one_by_one(tasks, |timings| passes_global_edf_density(timings, cores)),
            Allocator::GlobalInterference => {
                one_by_one(tasks, |timings| passes_global_edf_interference(timings, cores))
            }
            Allocator::GlobalRateMonotonic => one_by_one(tasks, |timings| passes_global_rate_monotonic(timings, cores)),
        }
    }
}

fn machine(cores: u32, discipline: Discipline) -> Machine {
    Machine { discipline, ..super::whole_cores(Machine::with_cores(cores)) }
}

fn one_by_one(tasks: &[Task], passes: impl Fn(&[Timing]) -> bool) -> Vec<Task> {
    let (mut accepted, mut timings) = (Vec::new(), Vec::new());
    for task in tasks {
        timings.push(task.timing);
        if passes(&timings) {
            accepted.push(*task);
        } else {
            timings.pop();
        }
    }
    accepted
}

/// Sums over tasks. Each field has the number of tasks and the sum of their utilizations.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Acceptance {
    accepted: [u64; 2],
    offered: [u64; 2],
}

impl Acceptance {
    fn add(&mut self, accepted: &[Task], offered: &[Task]) {
        for (sums, tasks) in [(&mut self.accepted, accepted), (&mut self.offered, offered)] {
            sums[0] += tasks.len() as u64;
            sums[1] += tasks.iter().map(|task| task.timing.utilization_floor().0).sum::<u64>();
        }
    }

    fn percent(&self) -> [f64; 2] {
        [0, 1].map(|kind| 100.0 * self.accepted[kind] as f64 / self.offered[kind].max(1) as f64)
    }

    fn rejected(&self) -> [f64; 2] {
        self.percent().map(|percent| 100.0 - percent)
    }
}

struct Cell {
    /// Total utilization in percent of a core, or the number of cores.
    x: u64,
    results: Vec<Option<Acceptance>>,
}

impl Cell {
    fn measure(x: u64, workload: &Workload, cores: u32, sets: u64) -> Cell {
        let mut results: Vec<_> =
            ALLOCATORS.iter().map(|allocator| allocator.suits(cores).then(Acceptance::default)).collect();
        for seed in 0..sets {
            let tasks = workload.tasks(seed);
            for (allocator, result) in ALLOCATORS.iter().zip(&mut results) {
                if let Some(result) = result {
                    result.add(&allocator.accept(&tasks, cores), &tasks);
                }
            }
        }
        Cell { x, results }
    }

    fn of(&self, allocator: Allocator) -> Acceptance {
        let place = ALLOCATORS.iter().position(|other| *other == allocator);
        place.and_then(|place| self.results[place]).unwrap_or_default()
    }
}

pub(crate) fn acceptance(
    options: &BenchOptions,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let sets = sets(options);
    report.add_text(&format!("\n{BENCH}: {sets} task sets in each cell, with the seeds 0 to {}\n", sets - 1))?;
    let mut balances = Vec::new();
    for balance in BALANCES {
        let cells: Vec<Cell> = UTILIZATIONS
            .iter()
            .map(|&utilization| {
                progress.show(&format!("{BENCH}: utilization {}, balance {}", parts(utilization), parts(balance)));
                Cell::measure(utilization, &paper_workload(utilization, balance), 2, sets)
            })
            .collect();
        progress.clear();
        let title = format!("{BENCH}, 2 cores, balance {}", parts(balance));
        add_cells(report, &title, "total utilization, percent of a core", |x| format!("U {}", parts(x)), &cells)?;
        balances.push(cells);
    }
    let mut many = Vec::new();
    for cores in CORES {
        progress.show(&format!("{BENCH}: {cores} cores"));
        many.push(Cell::measure(cores.into(), &workload_of(cores), cores, sets_of(sets, cores)));
    }
    progress.clear();
    let title = format!("{BENCH}, utilization {} for each core", parts(PERCENT_PER_CORE));
    add_cells(report, &title, "cores", |x| format!("{x} cores"), &many)?;
    report.add_values(&format!("{BENCH}: rejected parts, the worst balance factor"), &judged(&balances, &many))
}

fn paper_workload(utilization: u64, balance: u64) -> Workload {
    let percent = Utilization::ONE.0 / 100;
    Workload::two_groups(Utilization(utilization * percent), Utilization(balance * percent))
}

fn workload_of(cores: u32) -> Workload {
    let utilization = u64::from(cores) * PERCENT_PER_CORE * (Utilization::ONE.0 / 100);
    Workload::one_group(Utilization(utilization), cores as usize * TASKS_PER_CORE)
}

fn sets(options: &BenchOptions) -> u64 {
    let usual = match options.depth {
        Depth::Quick => 100,
        Depth::Usual => 300,
        Depth::Full => 1000,
    };
    options.requested.count.map_or(usual, |count| count as u64)
}

/// Returns the number of task sets. More than 16 cores have fewer sets, because each set has more
/// tasks.
fn sets_of(sets: u64, cores: u32) -> u64 {
    (sets * 16 / u64::from(cores).max(16)).max(1)
}

/// Formats a number of hundredths, for example 160 as `1.60`.
fn parts(hundredths: u64) -> String {
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

fn add_cells(
    report: &mut Report<'_>,
    title: &str,
    axis: &'static str,
    column: impl Fn(u64) -> String,
    cells: &[Cell],
) -> Result<(), Failure> {
    let mut text = format!("\n{title}; accepted tasks, percent\n  {:<30}", "");
    cells.iter().for_each(|cell| _ = write!(text, " {:>9}", column(cell.x)));
    let mut values = Vec::new();
    for (place, allocator) in ALLOCATORS.into_iter().enumerate() {
        let _ = write!(text, "\n  {:<30}", allocator.name());
        for cell in cells {
            let Some(result) = cell.results[place] else {
                text.push_str("         -");
                continue;
            };
            let [tasks, share] = result.percent();
            let _ = write!(text, " {tasks:>9.2}");
            let config = format!("{}, {}", allocator.name(), column(cell.x));
            let label = at(label(BENCH, allocator.peer(), "", config), allocator.name(), axis, cell.x);
            for (quantity, value) in [("accepted tasks", tasks), ("accepted utilization", share)] {
                let (label, quantity) = (label.clone(), quantity.to_owned());
                values.push(SingleValue { label, quantity, value, unit: "%", bound: None });
            }
        }
    }
    text.push('\n');
    report.add_text(&text)?;
    report.add_json_values(title, &values)
}

fn judged(balances: &[Vec<Cell>], many: &[Cell]) -> Vec<SingleValue> {
    let mut values = Vec::new();
    let mut add = |config: String, quantity: &str, value: f64, unit: &'static str, bound: Option<f64>| {
        let label = label(BENCH, "Corelane", "", config);
        values.push(SingleValue { label, quantity: quantity.to_owned(), value, unit, bound });
    };
    for (column, &utilization) in UTILIZATIONS.iter().enumerate() {
        for allocator in [FIXED, DEADLINES] {
            let rejected = balances.iter().map(|cells| cells[column].of(allocator).rejected());
            let [tasks, share] = rejected.fold([0.0_f64; 2], |worst, one| [0, 1].map(|at| worst[at].max(one[at])));
            let config = format!("{}, U {}", allocator.name(), parts(utilization));
            let [of_tasks, of_share] = bounds(allocator, utilization);
            add(config.clone(), "rejected tasks", tasks, "%", of_tasks);
            add(config, "rejected utilization", share, "%", of_share);
        }
    }
    for cell in many {
        let [_, share] = cell.of(FIXED).rejected();
        let is_goal = u32::try_from(cell.x).is_ok_and(|cores| GOAL_CORES.contains(&cores));
        let bound = is_goal.then_some(goals::MAX_REJECTED_ON_MANY_CORES);
        add(format!("fixed priorities, {} cores", cell.x), "rejected utilization", share, "%", bound);
    }
    let accepted = |allocator| balances.iter().flatten().map(|cell| cell.of(allocator).accepted[0]).sum::<u64>() as f64;
    let ratio = accepted(Allocator::Exhaustive) / accepted(FIXED).max(1.0);
    let config = "fixed priorities, 2 cores, all cells".to_owned();
    add(config, "accepted by an exhaustive search", ratio, "x", Some(goals::MAX_EXHAUSTIVE_RATIO));
    values
}

fn bounds(allocator: Allocator, utilization: u64) -> [Option<f64>; 2] {
    match (allocator, utilization) {
        (DEADLINES, ..=195) => [Some(goals::MAX_REJECTED_BY_DEADLINES); 2],
        (FIXED, ..=170) => [Some(goals::MAX_REJECTED); 2],
        (FIXED, 180) => [Some(goals::MAX_REJECTED_AT_180), None],
        (FIXED, 190) => [Some(goals::MAX_REJECTED_AT_190), None],
        _ => [None, None],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use corelane_sched::task::TaskId;

    fn tasks(pairs: &[(u64, u64)]) -> Vec<Task> {
        let task = |(id, &(execution, period)): (usize, &(u64, u64))| {
            Task::new(TaskId(id as u64), Timing::new(execution * 1_000_000, period * 1_000_000)).unwrap()
        };
        pairs.iter().enumerate().map(task).collect()
    }

    #[test]
    fn every_allocator_accepts_what_its_test_permits() {
        let set = tasks(&[(50, 100), (50, 100), (40, 100)]);
        for allocator in ALLOCATORS {
            let accepted = allocator.accept(&set, 2).len();
            let expected = match allocator {
                // On two cores the bound m / 2 (1 - U_max) + U_max is 1, so the third task is
                // refused.
                Allocator::GlobalRateMonotonic => 2,
                // The bound for two tasks on a core is 0.828, so the third task is refused.
                Allocator::Admission(Discipline::LiuLayland) => 2,
                _ => 3,
            };
            assert_eq!(accepted, expected, "{}", allocator.name());
        }
    }

    #[test]
    fn accepted_parts_are_percentages_of_the_offered_ones() {
        let set = tasks(&[(50, 100), (25, 100)]);
        let mut acceptance = Acceptance::default();
        acceptance.add(&set[..1], &set);
        assert_eq!(acceptance.percent().map(f64::round), [50.0, 67.0]);
        assert_eq!(acceptance.rejected().map(f64::round), [50.0, 33.0]);
        assert_eq!(Acceptance::default().percent(), [0.0; 2]);
    }

    #[test]
    fn all_allocators_get_the_same_sets() {
        let cell = Cell::measure(160, &paper_workload(160, 30), 2, 2);
        let offered: Vec<_> = cell.results.iter().flatten().map(|result| result.offered).collect();
        assert_eq!(offered.len(), ALLOCATORS.len());
        assert!(offered.iter().all(|other| *other == offered[0] && other[0] == 26), "{offered:?}");
        let large = Cell::measure(32, &workload_of(32), 32, 1);
        assert!(large.results.iter().flatten().count() < ALLOCATORS.len());
        assert_eq!(large.of(FIXED).offered[0], 160);
    }

    #[test]
    fn goals_apply_to_their_cells() {
        let balances: Vec<Vec<Cell>> = BALANCES
            .iter()
            .map(|&balance| UTILIZATIONS.iter().map(|&u| Cell::measure(u, &paper_workload(u, balance), 2, 1)).collect())
            .collect();
        let many = [Cell::measure(2, &workload_of(2), 2, 1), Cell::measure(4, &workload_of(4), 4, 1)];
        let values = judged(&balances, &many);
        let bounded = values.iter().filter(|value| value.bound.is_some()).count();
        // Goals of fixed priorities: two in 4 cells and one in 2 cells. Goals of deadlines: two in
        // 7 cells. One more goal is for 4 cores, and one for the exhaustive search.
        assert_eq!(bounded, 8 + 2 + 14 + 1 + 1);
        assert_eq!(bounds(FIXED, 195), [None, None]);
        assert_eq!((sets_of(1000, 2), sets_of(1000, 128), sets_of(2, 128)), (1000, 125, 1));
        assert_eq!(parts(195), "1.95");
    }
}
