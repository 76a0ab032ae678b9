//! Checks of the minimum share of accepted tasks, over random sets of the MC-ORB paper's workload.
//! `CORELANE_SEEDS` sets the number of random sets for each combination of parameters (at most 10
//! for more than two cores).

use corelane_sched::allocation::{Discipline, Machine, admit_all};
use corelane_sched::generate::Workload;
use corelane_sched::task::{Task, Utilization};

const TENTH: u64 = Utilization::ONE.0 / 10;

fn sets(usual: u64) -> u64 {
    std::env::var("CORELANE_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

fn machine(cores: u32, discipline: Discipline) -> Machine {
    let mut machine = Machine { discipline, ..Machine::with_cores(cores) };
    machine.cores.iter_mut().for_each(|core| core.capacity = Utilization::ONE);
    machine
}

#[derive(Default)]
struct Accepted {
    tasks: [u64; 2],
    share: [u64; 2],
}

impl Accepted {
    fn add(&mut self, machine: &Machine, tasks: &[Task]) {
        let (set, _) = admit_all(machine, tasks);
        let share = |tasks: &mut dyn Iterator<Item = &Task>| tasks.map(|task| task.timing.utilization().0).sum::<u64>();
        self.tasks[0] += set.len() as u64;
        self.tasks[1] += tasks.len() as u64;
        self.share[0] += share(&mut set.iter().map(|(task, _)| task));
        self.share[1] += share(&mut tasks.iter());
    }

    fn parts(&self) -> [u64; 2] {
        [self.tasks, self.share].map(|[accepted, offered]| accepted * 10_000 / offered.max(1))
    }
}

fn accepted(discipline: Discipline, utilization: u64) -> [u64; 2] {
    let mut accepted = Accepted::default();
    for balance in [1, 2, 3, 5] {
        let workload = Workload::two_groups(Utilization(utilization * TENTH / 10), Utilization(balance * TENTH));
        for seed in 0..sets(15) {
            accepted.add(&machine(2, discipline), &workload.tasks(seed));
        }
    }
    accepted.parts()
}

#[test]
fn fixed_priorities_accept_what_the_theory_allows() {
    for utilization in [140, 160, 170] {
        let [tasks, share] = accepted(Discipline::FixedPriority, utilization);
        assert!(tasks >= 9_990 && share >= 9_990, "{utilization} %: {tasks}, {share}");
    }
    let [tasks, _] = accepted(Discipline::FixedPriority, 180);
    assert!(tasks >= 9_890, "{tasks}");
    let [tasks, _] = accepted(Discipline::FixedPriority, 190);
    assert!(tasks >= 9_050, "{tasks}");
}

#[test]
fn the_bound_of_the_paper_accepts_less() {
    let [tasks, _] = accepted(Discipline::LiuLayland, 160);
    assert!((8_500..9_700).contains(&tasks), "{tasks}");
}

#[test]
fn earliest_deadline_first_accepts_nearly_the_whole_processor() {
    let [tasks, share] = accepted(Discipline::EarliestDeadlineFirst, 195);
    assert!(tasks >= 9_990 && share >= 9_990, "{tasks}, {share}");
}

#[test]
fn many_cores_are_filled_to_nine_tenths() {
    for cores in [4, 8, 16, 64] {
        let workload = Workload::one_group(Utilization(u64::from(cores) * 9 * TENTH), cores as usize * 5);
        let mut accepted = Accepted::default();
        for seed in 0..sets(15).min(if cores == 64 { 2 } else { 10 }) {
            accepted.add(&machine(cores, Discipline::FixedPriority), &workload.tasks(seed));
        }
        let [_, share] = accepted.parts();
        assert!(share >= 9_950, "{cores} cores: {share}");
    }
}

#[test]
fn an_inline_decision_accepts_nearly_what_an_exhaustive_search_does() {
    let mut parts = [0_u64; 2];
    for (balance, utilization) in [(1, 160), (3, 180), (5, 190)] {
        let workload = Workload::two_groups(Utilization(utilization * TENTH / 10), Utilization(balance * TENTH));
        for seed in 0..sets(15) {
            let tasks = workload.tasks(seed);
            let exhaustive = Machine { max_steps: u32::MAX, ..machine(2, Discipline::FixedPriority) };
            parts[0] +=
                admit_all(&machine(2, Discipline::FixedPriority).with_short_decision_limits(), &tasks).0.len() as u64;
            let (all, rejections) = admit_all(&exhaustive, &tasks);
            assert!(rejections.iter().all(|rejection| rejection.is_exhaustive));
            parts[1] += all.len() as u64;
        }
    }
    assert!(parts[0] * 1_000 >= parts[1] * 999, "{parts:?}");
}
