//! A discrete-event simulator of periodic tasks on cores.
//!
//! Time is virtual and jumps from event to event. Jobs are preemptive, and the jobs of one task run
//! in the order of their arrival.

use crate::random::Random;
use crate::task::{Nanos, Timing};

/// Scheduling rule of a simulated system: the order in which ready jobs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SchedulingRule {
    /// Jobs run in the order of their [`levels`](SimulatedSystem::levels). Jobs of one level run in
    /// the order in which they became ready.
    FixedPriority,
    /// Jobs run in the order of their deadlines. Jobs with equal deadlines run in the order of
    /// their tasks.
    EarliestDeadlineFirst,
}

/// Assignment of jobs to cores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoreAssignment {
    /// The core of each task, in the order of the tasks.
    Partitioned(Vec<usize>),
    /// Every job may run on each of the cores, and may migrate.
    Global {
        /// The number of cores.
        core_count: usize,
    },
}

/// Arrival pattern of one task's jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrivalPattern {
    /// The time of the first arrival.
    pub offset: Nanos,
    /// Seed of the random delays of sporadic arrivals and of the release jitter. `None`: periodic
    /// arrivals without jitter.
    pub seed: Option<u64>,
    /// Longest delay of a sporadic arrival beyond the period. Has no effect without a seed.
    pub max_delay: Nanos,
}

impl ArrivalPattern {
    /// Arrivals of one job in each period, the first at 0.
    pub const PERIODIC: Self = Self { offset: 0, seed: None, max_delay: 0 };
}

/// A system of tasks and cores to simulate.
#[derive(Clone, Debug)]
pub struct SimulatedSystem {
    /// The timing of each task. Other fields name a task by its index here.
    pub tasks: Vec<Timing>,
    /// The priority level of each task; 0 is the most urgent. A task without an entry has its index
    /// as its level.
    pub levels: Vec<u32>,
    /// The arrivals of each task; [`ArrivalPattern::PERIODIC`] for a task without an entry.
    pub arrivals: Vec<ArrivalPattern>,
    /// The assignment of jobs to cores.
    pub cores: CoreAssignment,
    /// The order in which ready jobs run.
    pub rule: SchedulingRule,
    /// Execution time that the simulator adds to each job as overhead.
    pub overhead: Nanos,
    /// A core that stops, and the time at which it stops.
    pub lost_core: Option<(usize, Nanos)>,
}

impl SimulatedSystem {
    /// Creates a system of tasks on cores under a rule. All tasks are periodic from 0, without
    /// overhead.
    #[must_use]
    pub fn new(tasks: Vec<Timing>, cores: CoreAssignment, rule: SchedulingRule) -> Self {
        Self { tasks, levels: Vec::new(), arrivals: Vec::new(), cores, rule, overhead: 0, lost_core: None }
    }
}

/// Observations of one task during a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskObservations {
    /// Number of jobs that completed.
    pub completed: u64,
    /// Number of jobs that completed after their deadline, and of open jobs whose deadline passed
    /// before the end of the simulation.
    pub missed: u64,
    /// Longest observed time from an arrival to a completion.
    pub worst_response: Nanos,
    /// Number of times that a job of this task stopped running before it completed.
    pub preemptions: u64,
}

/// An interval in which a core ran one job without interruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutionInterval {
    /// Index of the core.
    pub core: usize,
    /// Index of the task.
    pub task: usize,
    /// Time at which the interval begins.
    pub from: Nanos,
    /// Time at which the interval ends.
    pub until: Nanos,
}

/// The outcome of a simulation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SimulationOutcome {
    /// The observations of each task.
    pub tasks: Vec<TaskObservations>,
    /// The first [`MAX_EXECUTION_INTERVALS`] execution intervals, in the order of their ends.
    pub execution_intervals: Vec<ExecutionInterval>,
    /// True if the simulation ended early, at [`MAX_SIMULATED_EVENTS`] or [`MAX_OPEN_JOBS`].
    pub is_truncated: bool,
}

impl SimulationOutcome {
    /// Returns true if a deadline was missed.
    #[must_use]
    pub fn has_misses(&self) -> bool {
        self.tasks.iter().any(|task| task.missed > 0)
    }
}

/// Maximum number of events, after which a simulation ends early.
pub const MAX_SIMULATED_EVENTS: u32 = 10_000_000;
/// Maximum number of open jobs, above which a simulation ends early.
pub const MAX_OPEN_JOBS: usize = 100_000;
/// Maximum number of execution intervals that an outcome keeps.
pub const MAX_EXECUTION_INTERVALS: usize = 100_000;

#[derive(Clone, Copy)]
struct Job {
    task: usize,
    arrived_at: Nanos,
    ready_at: Nanos,
    deadline: Nanos,
    left: Nanos,
}

/// Simulates a system from 0 to `until`.
#[must_use]
pub fn simulate(system: &SimulatedSystem, until: Nanos) -> SimulationOutcome {
    SimulationRun::new(system, until).finished()
}

struct SimulationRun<'a> {
    system: &'a SimulatedSystem,
    until: Nanos,
    now: Nanos,
    next: Vec<Nanos>,
    last_ready: Vec<Option<Nanos>>,
    random: Vec<Random>,
    open: Vec<Job>,
    /// For each core the index in `open` of its running job, and the start of the job's interval.
    running: Vec<Option<(usize, Nanos)>>,
    outcome: SimulationOutcome,
}

impl<'a> SimulationRun<'a> {
    fn new(system: &'a SimulatedSystem, until: Nanos) -> Self {
        let tasks = system.tasks.len();
        let cores = match &system.cores {
            CoreAssignment::Partitioned(cores) => cores.iter().max().map_or(0, |last| last + 1),
            CoreAssignment::Global { core_count } => *core_count,
        };
        let mut run = Self {
            system,
            until,
            now: 0,
            next: Vec::with_capacity(tasks),
            last_ready: vec![None; tasks],
            random: Vec::with_capacity(tasks),
            open: Vec::new(),
            running: vec![None; cores],
            outcome: SimulationOutcome {
                tasks: vec![TaskObservations::default(); tasks],
                ..SimulationOutcome::default()
            },
        };
        for task in 0..tasks {
            run.next.push(run.arrivals(task).offset);
            run.random.push(Random::new(run.arrivals(task).seed.unwrap_or(0)));
        }
        run
    }

    fn arrivals(&self, task: usize) -> ArrivalPattern {
        self.system.arrivals.get(task).copied().unwrap_or(ArrivalPattern::PERIODIC)
    }

    fn finished(mut self) -> SimulationOutcome {
        for _ in 0..MAX_SIMULATED_EVENTS {
            self.arrive();
            if self.open.len() > MAX_OPEN_JOBS {
                break;
            }
            self.choose();
            let Some(event) = self.next_event() else {
                self.finish(self.until);
                return self.outcome;
            };
            self.advance(event);
        }
        self.outcome.is_truncated = true;
        self.finish(self.now);
        self.outcome
    }

    fn arrive(&mut self) {
        for task in 0..self.system.tasks.len() {
            while self.next[task] <= self.now && self.next[task] < self.until {
                let timing = &self.system.tasks[task];
                let arrived_at = self.next[task];
                let (jitter, delay) = self.delays(task);
                let earliest = self.last_ready[task].map_or(0, |last| last.saturating_add(timing.min_interarrival));
                let ready_at = arrived_at.saturating_add(jitter).max(earliest);
                self.last_ready[task] = Some(ready_at);
                self.open.push(Job {
                    task,
                    arrived_at,
                    ready_at,
                    deadline: arrived_at.saturating_add(timing.deadline),
                    left: timing.execution.saturating_add(self.system.overhead),
                });
                self.next[task] = arrived_at.saturating_add(timing.period.max(1)).saturating_add(delay);
            }
        }
    }

    fn delays(&mut self, task: usize) -> (Nanos, Nanos) {
        let arrivals = self.arrivals(task);
        if arrivals.seed.is_none() {
            return (0, 0);
        }
        let longest = self.system.tasks[task].jitter;
        let random = &mut self.random[task];
        // Both ends of the range must occur, because they are the worst cases.
        let jitter = match random.in_range(0, 3) {
            0 => 0,
            1 => longest,
            _ => random.in_range(0, longest),
        };
        (jitter, random.in_range(0, arrivals.max_delay))
    }

    fn is_lost(&self, core: usize) -> bool {
        self.system.lost_core.is_some_and(|(lost, at)| lost == core && at <= self.now)
    }

    fn by_urgency(&self) -> Vec<usize> {
        let mut order: Vec<usize> =
            (0..self.open.len()).filter(|&place| self.open[place].ready_at <= self.now).collect();
        let own = |task: usize| u32::try_from(task).unwrap_or(u32::MAX);
        let level = |task: usize| self.system.levels.get(task).copied().unwrap_or(own(task));
        // The sort is stable, so the jobs of one task stay in the order of their arrival.
        match self.system.rule {
            SchedulingRule::FixedPriority => {
                order.sort_by_key(|&place| (level(self.open[place].task), self.open[place].ready_at))
            }
            SchedulingRule::EarliestDeadlineFirst => {
                order.sort_by_key(|&place| (self.open[place].deadline, self.open[place].task));
            }
        }
        order
    }

    fn choose(&mut self) {
        let order = self.by_urgency();
        let chosen = match &self.system.cores {
            CoreAssignment::Partitioned(cores) => self.chosen_by_core(cores, order),
            CoreAssignment::Global { .. } => self.chosen_globally(order),
        };
        for (core, place) in chosen.into_iter().enumerate() {
            match (self.running[core], place) {
                (Some((before, _)), Some(after)) if before == after => {}
                (before, after) => {
                    if let Some((before, since)) = before {
                        self.record(core, self.open[before].task, since);
                        self.outcome.tasks[self.open[before].task].preemptions += 1;
                    }
                    self.running[core] = after.map(|place| (place, self.now));
                }
            }
        }
    }

    fn chosen_by_core(&self, cores: &[usize], order: Vec<usize>) -> Vec<Option<usize>> {
        let mut chosen: Vec<Option<usize>> = vec![None; self.running.len()];
        for place in order {
            if let Some(&core) = cores.get(self.open[place].task)
                && !self.is_lost(core)
            {
                chosen[core].get_or_insert(place);
            }
        }
        chosen
    }

    /// Returns the next job of each core: the most urgent jobs in `order`, at most one of each
    /// task. A running job among them stays on its core.
    fn chosen_globally(&self, order: Vec<usize>) -> Vec<Option<usize>> {
        let mut chosen: Vec<Option<usize>> = vec![None; self.running.len()];
        let whole: Vec<usize> = (0..chosen.len()).filter(|&core| !self.is_lost(core)).collect();
        let mut first: Vec<usize> = Vec::with_capacity(whole.len());
        for place in order {
            let is_alone = !first.iter().any(|&other| self.open[other].task == self.open[place].task);
            if is_alone && first.len() < whole.len() {
                first.push(place);
            }
        }
        for &core in &whole {
            chosen[core] = self.running[core].map(|(place, _)| place).filter(|place| first.contains(place));
        }
        let mut rest: Vec<usize> = first.into_iter().filter(|place| !chosen.contains(&Some(*place))).collect();
        for &core in whole.iter().rev() {
            if chosen[core].is_none() {
                chosen[core] = rest.pop();
            }
        }
        chosen
    }

    fn record(&mut self, core: usize, task: usize, from: Nanos) {
        if from < self.now && self.outcome.execution_intervals.len() < MAX_EXECUTION_INTERVALS {
            self.outcome.execution_intervals.push(ExecutionInterval { core, task, from, until: self.now });
        }
    }

    fn next_event(&self) -> Option<Nanos> {
        let arrival = self.next.iter().copied().filter(|&next| next < self.until).min();
        let release = self.open.iter().map(|job| job.ready_at).filter(|&at| at > self.now).min();
        let completion =
            self.running.iter().flatten().map(|(place, _)| self.now.saturating_add(self.open[*place].left)).min();
        let loss = self.system.lost_core.map(|(_, at)| at).filter(|&at| at > self.now);
        let event = [arrival, release, completion, loss].into_iter().flatten().min()?;
        (event < self.until).then_some(event)
    }

    fn advance(&mut self, event: Nanos) {
        let passed = event - self.now;
        self.now = event;
        let mut done = Vec::new();
        for core in 0..self.running.len() {
            let Some((place, since)) = self.running[core] else { continue };
            let left = &mut self.open[place].left;
            *left = left.saturating_sub(passed);
            if *left == 0 {
                self.record(core, self.open[place].task, since);
                self.running[core] = None;
                done.push(place);
            }
        }
        done.sort_unstable_by(|one, other| other.cmp(one));
        for place in done {
            let job = self.open.remove(place);
            let observed = &mut self.outcome.tasks[job.task];
            observed.completed += 1;
            observed.worst_response = observed.worst_response.max(self.now - job.arrived_at);
            observed.missed += u64::from(self.now > job.deadline);
            for running in self.running.iter_mut().flatten() {
                running.0 -= usize::from(running.0 > place);
            }
        }
    }

    fn finish(&mut self, end: Nanos) {
        self.now = end;
        for core in 0..self.running.len() {
            if let Some((place, since)) = self.running[core] {
                let task = self.open[place].task;
                self.record(core, task, since);
            }
        }
        // A job that completes exactly at the end counts as open.
        for job in &self.open {
            self.outcome.tasks[job.task].missed += u64::from(job.deadline < end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system(tasks: &[(Nanos, Nanos)], cores: CoreAssignment, rule: SchedulingRule) -> SimulatedSystem {
        SimulatedSystem::new(
            tasks.iter().map(|&(execution, period)| Timing::new(execution, period)).collect(),
            cores,
            rule,
        )
    }

    #[test]
    fn a_published_set_shows_its_worst_response_times() {
        let outcome = simulate(
            &system(
                &[(3, 7), (3, 12), (5, 20)],
                CoreAssignment::Partitioned(vec![0; 3]),
                SchedulingRule::FixedPriority,
            ),
            421,
        );
        assert_eq!(outcome.tasks.iter().map(|task| task.worst_response).collect::<Vec<_>>(), [3, 6, 20]);
        assert!(!outcome.has_misses());
        assert_eq!(outcome.tasks[0].completed, 60);
        assert!(outcome.tasks[2].preemptions > 0);
    }

    #[test]
    fn backlog_beyond_its_bound_ends_the_simulation() {
        let mut tried = system(&[(10, 1)], CoreAssignment::Partitioned(vec![0; 10_000]), SchedulingRule::FixedPriority);
        tried.tasks = vec![Timing::new(10, 1).with_deadline(1_000); 10_000];
        let outcome = simulate(&tried, 10_000);
        assert!(outcome.is_truncated);
        assert!(!outcome.has_misses(), "no deadline was reached");
        assert!(
            outcome.execution_intervals.iter().all(|interval| interval.until <= 20),
            "{:?}",
            outcome.execution_intervals
        );
    }

    #[test]
    fn one_core_never_runs_two_jobs_at_once() {
        let outcome = simulate(
            &system(&[(2, 5), (4, 9)], CoreAssignment::Global { core_count: 1 }, SchedulingRule::EarliestDeadlineFirst),
            200,
        );
        let mut last = 0;
        for interval in &outcome.execution_intervals {
            assert!(interval.from >= last && interval.until > interval.from, "{interval:?}");
            last = interval.until;
        }
        let busy: Nanos = outcome.execution_intervals.iter().map(|interval| interval.until - interval.from).sum();
        let asked: Nanos = outcome.tasks[0].completed * 2 + outcome.tasks[1].completed * 4;
        assert!(busy >= asked && busy <= 200, "{busy} of {asked}");
    }

    #[test]
    fn a_heavy_task_misses_under_global_priorities_and_not_on_a_core_of_its_own() {
        let tasks = [(2, 10), (2, 10), (11, 11)];
        assert!(
            simulate(&system(&tasks, CoreAssignment::Global { core_count: 2 }, SchedulingRule::FixedPriority), 110)
                .has_misses()
        );
        let apart = CoreAssignment::Partitioned(vec![0, 0, 1]);
        assert!(!simulate(&system(&tasks, apart, SchedulingRule::FixedPriority), 110).has_misses());
    }

    #[test]
    fn overheads_offsets_and_lost_cores() {
        let mut tried =
            system(&[(4, 10), (6, 10)], CoreAssignment::Partitioned(vec![0, 0]), SchedulingRule::FixedPriority);
        assert!(!simulate(&tried, 101).has_misses());
        tried.overhead = 1;
        assert!(simulate(&tried, 101).has_misses());
        tried.overhead = 0;
        tried.arrivals = vec![ArrivalPattern { offset: 5, ..ArrivalPattern::PERIODIC }];
        assert_eq!(simulate(&tried, 5).tasks[0].completed, 0);
        tried.lost_core = Some((0, 50));
        let outcome = simulate(&tried, 101);
        assert!(outcome.has_misses());
        assert!(outcome.execution_intervals.iter().all(|interval| interval.until <= 50));
    }

    #[test]
    fn global_job_runs_on_one_core_at_a_time_and_survives_a_lost_core() {
        let mut tried =
            system(&[(9, 5)], CoreAssignment::Global { core_count: 2 }, SchedulingRule::EarliestDeadlineFirst);
        assert_eq!(simulate(&tried, 19).tasks[0].completed, 2);
        tried.tasks = vec![Timing::new(4, 10); 4];
        assert!(!simulate(&tried, 101).has_misses());
        tried.lost_core = Some((1, 50));
        let outcome = simulate(&tried, 101);
        assert!(outcome.has_misses());
        assert!(outcome.execution_intervals.iter().all(|interval| interval.core == 0 || interval.until <= 50));
    }

    #[test]
    fn jobs_of_one_level_run_in_the_order_of_release() {
        let mut tried =
            system(&[(3, 10), (3, 10)], CoreAssignment::Partitioned(vec![0, 0]), SchedulingRule::FixedPriority);
        tried.arrivals = vec![ArrivalPattern { offset: 1, ..ArrivalPattern::PERIODIC }];
        assert_eq!(simulate(&tried, 9).tasks[1].worst_response, 6, "the first task preempts");
        tried.levels = vec![0, 0];
        assert_eq!(simulate(&tried, 9).tasks[1].worst_response, 3, "the second task waits");
    }

    #[test]
    fn jitter_delays_jobs_up_to_its_bound() {
        let mut tried = system(&[(1, 10)], CoreAssignment::Partitioned(vec![0]), SchedulingRule::FixedPriority);
        tried.tasks[0].jitter = 4;
        assert_eq!(simulate(&tried, 1_000).tasks[0].worst_response, 1, "without a seed there is no jitter");
        tried.arrivals = vec![ArrivalPattern { seed: Some(1), ..ArrivalPattern::PERIODIC }];
        assert_eq!(simulate(&tried, 1_000).tasks[0].worst_response, 5);
    }

    #[test]
    fn jobs_that_become_ready_keep_their_shortest_distance() {
        let mut tried = system(&[(1, 10)], CoreAssignment::Partitioned(vec![0]), SchedulingRule::FixedPriority);
        tried.tasks[0] = tried.tasks[0].with_jitter(9);
        tried.arrivals = vec![ArrivalPattern { seed: Some(1), ..ArrivalPattern::PERIODIC }];
        let nearest = |tried: &SimulatedSystem| {
            let outcome = simulate(tried, 10_000);
            outcome.execution_intervals.windows(2).map(|pair| pair[1].from - pair[0].from).min()
        };
        assert_eq!(nearest(&tried), Some(1));
        tried.tasks[0] = tried.tasks[0].with_min_interarrival(5);
        assert_eq!(nearest(&tried), Some(5));
        assert_eq!(simulate(&tried, 10_000).tasks[0].worst_response, 10, "the distance adds nothing to the jitter");
    }

    #[test]
    fn sporadic_arrivals_keep_the_period_and_repeat_with_the_seed() {
        let mut tried = system(&[(1, 10)], CoreAssignment::Partitioned(vec![0]), SchedulingRule::FixedPriority);
        tried.arrivals = vec![ArrivalPattern { offset: 0, seed: Some(42), max_delay: 7 }];
        let outcome = simulate(&tried, 10_000);
        assert!((590..1000).contains(&outcome.tasks[0].completed), "{}", outcome.tasks[0].completed);
        assert_eq!(outcome, simulate(&tried, 10_000));
    }
}
