//! The benchmark `cores-decide`, which measures the time of an admission decision about one task.
//!
//! The first part admits a task for which a core has room, from the stored analysis of the cores.
//! The baseline is this decision without stored analysis. The second part has tasks for which other
//! tasks must move, and tasks that are rejected.

use std::hint::black_box;
use std::time::Duration;

use corelane_sched::allocation::{AllocationStep, Machine, TaskSet, admit};
use corelane_sched::generate::Workload;
use corelane_sched::task::{Task, Utilization};

use super::{BASELINE, label};
use crate::Failure;
use crate::harness::{ComparedQuantity, Figure, Group, MeasuredSubject, Progress, RunLength, Variant};
use crate::options::BenchOptions;
use crate::report::Report;
use crate::sample::{Samples, time_calls};
use crate::targets::cores::decide as goals;
use crate::value::SingleValue;

const BENCH: &str = "cores-decide";

/// Percent of each core that the tasks of the first part use, the new task included.
const PERCENT_PER_CORE: u64 = 80;

const CROWDED_PERCENT: u64 = 90;

const CROWDED_TASKS: usize = 5;

const CASES: usize = 64;

const SEEDS: u64 = 2_000;

const MANY_TASKS: usize = 1_000;

const FEW_DECISIONS: usize = 1_000;

struct Case {
    machine: Machine,
    set: TaskSet,
    task: Task,
}

impl Case {
    /// Returns the case without the stored analysis of the cores.
    fn cold(&self) -> Case {
        let mut set = TaskSet::default();
        self.set.iter().for_each(|(task, core)| set.insert(*task, core));
        Case { machine: self.machine.clone(), set, task: self.task }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// A core has room, so no other task moves.
    Direct,
    /// Other tasks move to make room.
    Moved,
    Rejected,
}

struct Decisions {
    cases: Vec<Case>,
    next: usize,
}

impl MeasuredSubject for Decisions {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        let Decisions { cases, next } = self;
        let mut once = || {
            let case = &cases[*next];
            *next = (*next + 1) % cases.len();
            black_box(admit(&case.set, &case.machine, &case.task).is_ok());
            Ok::<(), Failure>(())
        };
        for _ in 0..warm_up.min(cases.len()) {
            once()?;
        }
        time_calls(count, into, once)
    }

    fn server_pid(&self) -> Option<u32> {
        None
    }
}

pub(crate) fn decide(options: &BenchOptions, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    for (tasks, cores, bound) in goals::MAX_TEST_P99_US {
        let config = format!("{tasks} tasks on {cores} cores");
        progress.show(&format!("{BENCH}: {config}"));
        let percent = Utilization(u64::from(cores) * PERCENT_PER_CORE * (Utilization::ONE.0 / 100));
        let workload = Workload::one_group(percent, tasks);
        let most = options.run_length.count;
        let cases = cases(cores, &workload, Outcome::Direct, most, |decided, of| decided + 1 == of);
        let cold = cases.iter().map(Case::cold).collect();
        let variants = vec![
            variant(BASELINE, format!("{config}, without stored analysis"), cold, Vec::new()),
            variant("Corelane", config.clone(), cases, vec![0]),
        ];
        let group =
            Group { title: format!("{BENCH}, admission test: {config}"), compare: ComparedQuantity::Median, variants };
        let figures = report.measure(group, &run_length(options, tasks), &options.placement, progress)?;
        add_p99(report, &figures, bound)?;
    }
    for (cores, bound) in goals::MAX_SEARCH_P99_US {
        let tasks = cores as usize * CROWDED_TASKS;
        let percent = Utilization(u64::from(cores) * CROWDED_PERCENT * (Utilization::ONE.0 / 100));
        let workload = Workload::one_group(percent, tasks);
        let mut variants = Vec::new();
        for (outcome, name) in [(Outcome::Moved, "tasks move"), (Outcome::Rejected, "rejected")] {
            let config = format!("{cores} cores, {name}");
            progress.show(&format!("{BENCH}: {config}"));
            let cases = cases(cores, &workload, outcome, options.run_length.count, |_, _| true);
            if cases.is_empty() {
                report.add_missing(BENCH, "Corelane", &format!("{config}: no random task set has such a decision"))?;
                continue;
            }
            variants.push(variant("Corelane", config, cases, Vec::new()));
        }
        let title = format!("{BENCH}, search for moves on {cores} cores, up to {tasks} tasks");
        let group = Group { title, compare: ComparedQuantity::Median, variants };
        let figures = report.measure(group, &run_length(options, tasks), &options.placement, progress)?;
        add_p99(report, &figures, bound)?;
    }
    Ok(())
}

fn variant(peer: &'static str, config: String, cases: Vec<Case>, against: Vec<usize>) -> Variant {
    let subject = Box::new(Decisions { cases, next: 0 });
    Variant { label: label(BENCH, peer, "admit", config), subject, against }
}

/// Admits the tasks of random sets, and returns decisions with this outcome. Their maximum number
/// is the smaller of `most` and [`CASES`]. With [`MANY_TASKS`] tasks or more, an eighth of
/// [`CASES`] counts instead. `counts` selects decisions by the number of tasks that were decided
/// earlier and the number of all tasks.
fn cases(
    cores: u32,
    workload: &Workload,
    outcome: Outcome,
    most: usize,
    counts: impl Fn(usize, usize) -> bool,
) -> Vec<Case> {
    let machine = super::whole_cores(Machine::with_cores(cores)).with_short_decision_limits();
    let mut cases = Vec::new();
    let is_large = workload.groups.iter().sum::<usize>() >= MANY_TASKS;
    let wanted = most.min(if is_large { CASES / 8 } else { CASES });
    for seed in 0..SEEDS {
        let tasks = workload.tasks(seed);
        let mut set = TaskSet::for_machine(&machine);
        for (decided, task) in tasks.iter().enumerate() {
            let decision = admit(&set, &machine, task);
            let found = match &decision {
                Ok(plan) if plan.found_by_step == AllocationStep::Direct => Outcome::Direct,
                Ok(_) => Outcome::Moved,
                Err(_) => Outcome::Rejected,
            };
            if found == outcome && counts(decided, tasks.len()) {
                cases.push(Case { machine: machine.clone(), set: set.clone(), task: *task });
                if cases.len() == wanted {
                    return cases;
                }
            }
            if let Ok(plan) = decision {
                set.apply(&plan);
            }
        }
    }
    cases
}

fn run_length(options: &BenchOptions, tasks: usize) -> RunLength {
    let count = options.run_length.count;
    let count = if tasks >= MANY_TASKS { count.min(FEW_DECISIONS) } else { count };
    RunLength { count, ..options.run_length }
}

fn add_p99(report: &mut Report<'_>, figures: &[Figure], bound: f64) -> Result<(), Failure> {
    let ours = figures.iter().filter(|figure| figure.label.peer == "Corelane");
    let values: Vec<SingleValue> = ours
        .map(|figure| SingleValue {
            label: figure.label.clone(),
            quantity: "p99".to_owned(),
            value: figure.summary.p99_us,
            unit: "us",
            bound: Some(bound),
        })
        .collect();
    report.add_json_values(&format!("{BENCH}: goals"), &values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_have_the_wanted_outcome() {
        let workload = Workload::one_group(Utilization(1_920_000_000), 16);
        for (outcome, is_accepted) in [(Outcome::Direct, true), (Outcome::Moved, true), (Outcome::Rejected, false)] {
            let cases = cases(2, &workload, outcome, CASES, |_, _| true);
            assert_eq!(cases.len(), CASES);
            for case in &cases {
                let decision = admit(&case.set, &case.machine, &case.task);
                assert_eq!(decision.is_ok(), is_accepted);
                let cold = case.cold();
                assert_eq!(admit(&cold.set, &cold.machine, &cold.task), decision);
                let moves = decision.map_or(0, |plan| plan.moves.len());
                assert_eq!(moves > 0, outcome == Outcome::Moved);
            }
        }
    }

    #[test]
    fn the_admission_test_decides_about_the_last_task() {
        let workload = Workload::one_group(Utilization(1_600_000_000), 20);
        let cases = cases(2, &workload, Outcome::Direct, CASES, |decided, of| decided + 1 == of);
        assert_eq!(cases.len(), CASES);
        assert!(cases.iter().all(|case| case.set.len() == 19));
    }

    #[test]
    fn decisions_are_made_in_turn() {
        let workload = Workload::one_group(Utilization(1_600_000_000), 4);
        let mut cases = cases(2, &workload, Outcome::Direct, CASES, |_, _| true);
        cases.truncate(3);
        let mut decisions = Decisions { cases, next: 0 };
        let mut samples = Samples::with_capacity(4);
        decisions.run(0, 4, &mut samples).unwrap();
        assert_eq!((samples.len(), decisions.next), (4, 1));
    }
}
