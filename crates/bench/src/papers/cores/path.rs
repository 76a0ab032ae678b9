//! The benchmark `cores-path`, which measures the way of a task's request through the server (table
//! III of the MC-ORB paper).
//!
//! A bound task has a connection whose only reader is a thread on the task's core. The requests of
//! a second task on this connection are handed over to a sleeping thread of their task's core, or
//! to a thread that the pool borrows from another core. For comparison, calls to a thread per
//! connection and to a lane of one thread are measured.
//!
//! The other modes of a core pool are measured too:
//!
//! * A manager reads each request, and hands it over to a thread of the core or to a borrowed
//!   thread.
//! * The thread that has read a request runs it.
//! * The thread of a bound connection runs on any core.
//!
//! Two other numbers are the time of a change that moves bound threads to another core, and the
//! time of a rejected admission.

use std::hint::black_box;
use std::time::Duration;

use corelane::Orb;
use corelane::rt::CorePoolMode;
use corelane_sched::allocation::{Machine, TaskSet, admit};
use corelane_sched::task::{Task, TaskId, Timing};
use corelane_services::cores::protocol::tasks::AdmitError;
use corelane_services::cores::protocol::{Criticality, JobOverrun, TaskSpec, TaskTiming, TasksRef};
use corelane_sys::clock;
use corelane_sys::thread::Scheduling;

use super::{core_pair, label, server};
use crate::Failure;
use crate::address::LOOPBACK;
use crate::baseline::BaselineTransport;
use crate::harness::{
    ComparedQuantity, Figure, FigureLabel, Group, MeasuredSubject, Progress, Ratio, RunLength, Variant,
};
use crate::launch::{start_echo, start_server_with_lanes};
use crate::operation::MeasuredOperation;
use crate::options::BenchOptions;
use crate::orb::client::{StubCalls, object, target};
use crate::orb::generated::cubit::CountedTargetRef;
use crate::orb::{ServerArchitecture, client_orb};
use crate::placement::{CoreChoice, Placement};
use crate::report::Report;
use crate::sample::{Samples, Summary, time_calls};
use crate::service::RunningProgram;
use crate::targets::cores::path as goals;
use crate::testbed::require_fixed_priorities;
use crate::value::SingleValue;

const BENCH: &str = "cores-path";

const PATIENCE: Duration = Duration::from_secs(60);

const PRIORITY: u8 = 10;

const MOVED_THREADS: usize = 15;

const PER_CONNECTION: &str = "thread per connection";
const LANE: &str = "a lane of 1 thread";
const BOUND: &str = "bound task";
const HANDED_OVER: &str = "second task on the connection";
const BORROWED: &str = "second task, borrowed thread";
const BORROWED_BY_MANAGER: &str = "a manager for every request, borrowed thread";

pub(crate) fn path(options: &BenchOptions, report: &mut Report<'_>, progress: &mut Progress) -> Result<(), Failure> {
    if !require_fixed_priorities(BENCH, report)? {
        return Ok(());
    }
    let Some((client, other)) = core_pair(options) else {
        return report.add_missing(BENCH, "Corelane", super::ONE_CORE);
    };
    calls(client, client, other, options, report, progress)?;
    calls(client, other, client, options, report, progress)?;
    moves(client, other, options, report, progress)?;
    rejections(client, options, report, progress)
}

fn binding(task: usize, core: usize) -> String {
    format!("{task}:{core}:{PRIORITY}")
}

/// Measures calls of a client on core `client` to tasks on core `served`. A borrowed thread comes
/// from core `away`.
fn calls(
    client: usize,
    served: usize,
    away: usize,
    options: &BenchOptions,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    let place = if client == served { "same core" } else { "other core" };
    progress.show(&format!("{BENCH}: {place}"));
    let cores = if client == served { CoreChoice::Shared(client) } else { CoreChoice::Separate(client, served) };
    let at_priority = Placement { cores, scheduling: Some(Scheduling::Fifo(PRIORITY)) };
    // Lanes and core pools set the priorities of their threads, so their placement sets none.
    let lane_placement = Placement { cores, scheduling: None };
    let (plain, plain_reference) = start_echo(ServerArchitecture::PerConnection, LOOPBACK, &at_priority)?;
    let mut laned = start_server_with_lanes(&[PRIORITY], BaselineTransport::Tcp, &lane_placement)?;
    let laned_reference = laned.ask("references", PATIENCE)?;
    let both = [served.min(away), served.max(away)];
    let start = |cores: &[usize], mode| -> Result<(RunningProgram, Vec<String>), Failure> {
        let (mut server, references) = server::start_core_pool(cores, 2, mode, &Placement::default())?;
        server.ask(&format!("set {} {}", binding(1, served), binding(2, served)), PATIENCE)?;
        Ok((server, references))
    };
    let (mut bound, bound_references) = start(&both, CorePoolMode::Bound)?;
    let (mut lending, lending_references) = start(&[away], CorePoolMode::Bound)?;
    let mut others = Vec::new();
    for mode in [CorePoolMode::Manager, CorePoolMode::LeaderFollowers, CorePoolMode::NoAffinity] {
        others.push((server::mode_text(mode), start(&both, mode)?));
    }
    others.push((BORROWED_BY_MANAGER, start(&[away], CorePoolMode::Manager)?));
    let mut variants = Vec::new();
    let mut add = |config: &str, subject: Box<dyn MeasuredSubject + Send>, against: Vec<usize>| {
        let label = FigureLabel { transport: "tcp", ..label(BENCH, "Corelane", place, config.to_owned()) };
        variants.push(Variant { label, subject, against });
    };
    // Each variant has a separate ORB, so that variants share no connection.
    let orbs = (0..5).map(|_| client_orb(0)).collect::<Result<Vec<_>, _>>()?;
    let other_orbs = others.iter().map(|_| client_orb(0)).collect::<Result<Vec<_>, _>>()?;
    let [for_plain, for_lane, for_bound, for_second, for_borrowed] = &orbs[..] else {
        return Err(Failure::new("there are not enough ORBs"));
    };
    add(PER_CONNECTION, Box::new(octets(for_plain, &plain_reference, &plain)?), Vec::new());
    add(LANE, Box::new(octets(for_lane, &laned_reference, &laned)?), vec![0]);
    add(BOUND, Box::new(octets(for_bound, &bound_references[0], &bound)?), vec![0, 1]);
    add(HANDED_OVER, Box::new(SecondTaskCalls::new(for_second, &bound_references, &bound)?), vec![2]);
    add(BORROWED, Box::new(SecondTaskCalls::new(for_borrowed, &lending_references, &lending)?), vec![2]);
    for ((config, (server, references)), orb) in others.iter().zip(&other_orbs) {
        add(config, Box::new(octets(orb, &references[0], server)?), vec![2]);
    }
    let title = format!("{BENCH}, {place}: octet calls of a client on core {client} to tasks on core {served}");
    let group = Group { title, compare: ComparedQuantity::Median, variants };
    let placement = Placement { cores: CoreChoice::Shared(client), scheduling: options.placement.scheduling };
    let figures = report.measure(group, &options.run_length, &placement, progress)?;
    served_as_meant(&mut bound, HANDED_OVER, &figures)?;
    served_as_meant(&mut lending, BORROWED, &figures)?;
    for (config, (server, _)) in &mut others {
        served_as_meant(server, config, &figures)?;
    }
    report.add_json_values(&format!("{BENCH}, {place}: goals"), &judged(&figures))
}

fn octets(orb: &Orb, reference: &str, server: &RunningProgram) -> Result<StubCalls, Failure> {
    Ok(StubCalls { target: target(orb, reference)?, operation: MeasuredOperation::Octet, server: server.pid() })
}

/// Calls to the second task of a server, on the connection of the first task.
struct SecondTaskCalls {
    first: CountedTargetRef,
    second: StubCalls,
}

impl SecondTaskCalls {
    fn new(orb: &Orb, references: &[String], server: &RunningProgram) -> Result<Self, Failure> {
        let [first, second] = references else {
            return Err(Failure::new("the server has not printed the references of two tasks"));
        };
        Ok(SecondTaskCalls { first: target(orb, first)?, second: octets(orb, second, server)? })
    }
}

impl MeasuredSubject for SecondTaskCalls {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        // Both references have the same endpoint, so successive calls at one priority share a
        // connection. The first of them binds the connection to the first task.
        self.first.echo_octet(1)?;
        self.second.run(warm_up, count, into)
    }

    fn server_pid(&self) -> Option<u32> {
        self.second.server_pid()
    }
}

/// Checks by the pool's counts that all calls of a variant ran in the way that the variant's name
/// says, for example on borrowed threads, and that no call lacked a thread.
fn served_as_meant(server: &mut RunningProgram, config: &str, figures: &[Figure]) -> Result<(), Failure> {
    // A failed variant has no figure, and its failure is reported.
    let Some(figure) = figures.iter().find(|figure| figure.label.config == config) else { return Ok(()) };
    let text = server.ask("counts", PATIENCE)?;
    let counts: Vec<u64> = text.split(' ').filter_map(|count| count.parse().ok()).collect();
    let [bound, borrowed, handed_over, led, not_bound, _] = counts[..] else {
        return Err(Failure::new(format!("not the counts of a pool: {text}")));
    };
    let calls = u64::try_from(figure.calls).unwrap_or(u64::MAX);
    let reads_above_tasks = |mode| server::mode_text(mode) == config;
    let is_as_meant = match config {
        HANDED_OVER => bound > 0 && handed_over >= calls,
        BORROWED => bound > 0 && handed_over >= calls && borrowed >= calls,
        BORROWED_BY_MANAGER => bound == 0 && handed_over >= calls && borrowed >= calls,
        _ if reads_above_tasks(CorePoolMode::Manager) => bound == 0 && handed_over >= calls && borrowed == 0,
        _ if reads_above_tasks(CorePoolMode::LeaderFollowers) => bound == 0 && handed_over == 0 && led >= calls,
        _ => bound > 0 && handed_over + led == 0,
    };
    if !is_as_meant || not_bound > 0 {
        return Err(Failure::new(format!(
            "{config}: the pool has not served {calls} calls as the variant says: {bound} bound, {borrowed} borrowed, \
             {handed_over} handed over, {led} led, {not_bound} not bound"
        )));
    }
    Ok(())
}

fn judged(figures: &[Figure]) -> Vec<SingleValue> {
    let of = |config: &str| figures.iter().find(|figure| figure.label.config == config);
    let (Some(bound), Some(handed_over)) = (of(BOUND), of(HANDED_OVER)) else { return Vec::new() };
    let value = |figure: &Figure, quantity: String, value, unit, bound| SingleValue {
        label: figure.label.clone(),
        quantity,
        value,
        unit,
        bound,
    };
    let against = |ratio: &Ratio, at_most| {
        value(bound, format!("median, against {}", ratio.with.config), ratio.ratio, "x", Some(at_most))
    };
    let bounds = [goals::MAX_TO_PER_CONNECTION, goals::MAX_TO_LANE];
    let mut values: Vec<SingleValue> =
        bound.ratios.iter().zip(bounds).map(|(ratio, at_most)| against(ratio, at_most)).collect();
    let added = |figure: &Figure| figure.summary.mean_us - bound.summary.mean_us;
    let is_same_core = bound.label.op == "same core";
    let at_most = is_same_core.then_some(goals::MAX_HAND_OVER_US);
    values.push(value(handed_over, "mean, added by the hand-over".to_owned(), added(handed_over), "us", at_most));
    if let Some(borrowed) = of(BORROWED) {
        values.push(value(borrowed, "mean, added by the hand-over".to_owned(), added(borrowed), "us", None));
    }
    let modes = [CorePoolMode::Manager, CorePoolMode::LeaderFollowers, CorePoolMode::NoAffinity];
    for figure in modes.map(server::mode_text).into_iter().chain([BORROWED_BY_MANAGER]).filter_map(of) {
        values.push(value(figure, "mean, added to a bound task".to_owned(), added(figure), "us", None));
    }
    values
}

fn moves(
    one: usize,
    other: usize,
    options: &BenchOptions,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    progress.show(&format!("{BENCH}: moves"));
    let cores = [one.min(other), one.max(other)];
    let (mut server, references) =
        server::start_core_pool(&cores, MOVED_THREADS, CorePoolMode::Bound, &Placement::default())?;
    let bindings: Vec<String> = (1..=MOVED_THREADS).map(|task| binding(task, cores[task % 2])).collect();
    server.ask(&format!("set {}", bindings.join(" ")), PATIENCE)?;
    let mut orbs = Vec::with_capacity(MOVED_THREADS);
    for reference in &references {
        let orb = client_orb(0)?;
        target(&orb, reference)?.echo_octet(1)?;
        orbs.push(orb);
    }
    let count = options.run_length.count.min(1_000);
    let text = server.ask(&format!("move {},{} {count}", cores[0], cores[1]), PATIENCE)?;
    let times: Vec<u64> = text.split(' ').filter_map(|time| time.parse().ok()).collect();
    drop(orbs);
    progress.clear();
    let Some(summary) = Summary::of(&times, Duration::ZERO) else {
        return Err(Failure::new(format!("the server has moved no threads: {text}")));
    };
    let label = label(BENCH, "Corelane", "re-allocation", format!("{MOVED_THREADS} bound threads move"));
    let value = |quantity: &str, value, bound| SingleValue {
        label: label.clone(),
        quantity: quantity.to_owned(),
        value,
        unit: "us",
        bound,
    };
    let values = [
        value("mean", summary.mean_us, Some(goals::MAX_MOVES_US)),
        value("minimum", summary.min_us, None),
        value("p99", summary.p99_us, None),
        value("maximum", summary.max_us, None),
    ];
    report.add_values(&format!("{BENCH}: a change of the pool's tasks that moves bound threads"), &values)
}

struct RejectedAdmissions {
    tasks: TasksRef,
    spec: TaskSpec,
    server: u32,
}

impl MeasuredSubject for RejectedAdmissions {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        let once = || match self.tasks.admit(&self.spec) {
            Err(AdmitError::Rejected(_)) => Ok(()),
            other => Err(Failure::new(format!("the task was not rejected: {other:?}"))),
        };
        for _ in 0..warm_up {
            once()?;
        }
        time_calls(count, into, once)
    }

    fn server_pid(&self) -> Option<u32> {
        Some(self.server)
    }
}

fn spec(number: u64, execution_ms: u64) -> (TaskSpec, Task) {
    let timing = Timing::new(execution_ms * 1_000_000, 100_000_000);
    let spec = TaskSpec {
        name: format!("task-{number}"),
        target: None,
        operation: String::new(),
        timing: TaskTiming {
            execution: timing.execution,
            period: timing.period,
            deadline: 0,
            jitter: 0,
            blocking: 0,
            min_distance: 0,
        },
        importance: Criticality::Normal,
        core: -1,
        lease: 600_000_000_000,
        overrun: JobOverrun::Report,
    };
    (
        spec,
        Task { id: TaskId(number), timing, criticality: corelane_sched::task::Criticality::Normal, pinned_core: None },
    )
}

/// Measures rejected admissions in turn with calls to another object of the server. Also measures
/// the decision alone, in this process.
fn rejections(
    core: usize,
    options: &BenchOptions,
    report: &mut Report<'_>,
    progress: &mut Progress,
) -> Result<(), Failure> {
    progress.show(&format!("{BENCH}: rejections"));
    let placement = Placement { cores: CoreChoice::Shared(core), scheduling: Some(Scheduling::Fifo(PRIORITY)) };
    let (server, admission, reference) = server::start_admission(&[0, 1], None, &placement)?;
    let orb = client_orb(0)?;
    let tasks = TasksRef::from_object(object(&orb, &admission)?);
    let machine = Machine::with_cores(2).with_short_decision_limits();
    let mut set = TaskSet::for_machine(&machine);
    for number in 0..2 {
        let (spec, task) = spec(number, 60);
        tasks.admit(&spec).map_err(|error| Failure::new(format!("{error:?}")))?;
        set.apply(&admit(&set, &machine, &task).map_err(|rejection| Failure::new(rejection.to_string()))?);
    }
    let (spec, task) = spec(2, 50);
    let label =
        |config: &str| FigureLabel { transport: "tcp", ..label(BENCH, "Corelane", "rejection", config.to_owned()) };
    let octets = octets(&orb, &reference, &server)?;
    let rejected = RejectedAdmissions { tasks, spec, server: server.pid() };
    let variants = vec![
        Variant { label: label("octet call to the same server"), subject: Box::new(octets), against: Vec::new() },
        Variant { label: label("rejected admission"), subject: Box::new(rejected), against: vec![0] },
        Variant {
            label: label("decision alone"),
            subject: Box::new(Decision { machine, set, task }),
            against: Vec::new(),
        },
    ];
    let title = format!("{BENCH}: a rejected task, client and server on core {core}");
    let group = Group { title, compare: ComparedQuantity::Median, variants };
    let here = Placement { cores: CoreChoice::Shared(core), scheduling: options.placement.scheduling };
    let length = RunLength { count: options.run_length.count.min(5_000), ..options.run_length };
    let figures = report.measure(group, &length, &here, progress)?;
    if let [octets, rejected, decision] = &figures[..] {
        let added = rejected.summary.mean_us - octets.summary.mean_us - decision.summary.mean_us;
        let value = SingleValue {
            label: rejected.label.clone(),
            quantity: "mean, added to an octet call and the decision".to_owned(),
            value: added,
            unit: "us",
            bound: Some(goals::MAX_REJECTION_US),
        };
        report.add_json_values(&format!("{BENCH}, rejection: goals"), &[value])?;
    }
    Ok(())
}

struct Decision {
    machine: Machine,
    set: TaskSet,
    task: Task,
}

impl MeasuredSubject for Decision {
    fn run(&mut self, warm_up: usize, count: usize, into: &mut Samples) -> Result<Duration, Failure> {
        let once = || {
            black_box(admit(&self.set, &self.machine, &self.task).is_ok());
            Ok::<(), Failure>(())
        };
        let began = clock::now();
        for _ in 0..warm_up {
            once()?;
        }
        time_calls(count, into, once).map(|_| began.elapsed())
    }

    fn server_pid(&self) -> Option<u32> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(config: &str, nanoseconds: u64, ratios: &[(&str, f64)]) -> Figure {
        let label = |config: &str| label(BENCH, "Corelane", "same core", config.to_owned());
        let ratio = |(config, ratio): &(&str, f64)| Ratio {
            with: label(config),
            p50_us: 1.0,
            ratio: *ratio,
            range: (0.0, 9.0),
        };
        Figure {
            label: label(config),
            summary: Summary::of(&[nanoseconds], Duration::from_secs(1)).unwrap(),
            medians_us: Vec::new(),
            cdf_us: Vec::new(),
            ratios: ratios.iter().map(ratio).collect(),
            cost: None,
            calls: 1,
        }
    }

    #[test]
    fn goals_compare_a_bound_task_with_its_baselines() {
        let figures = [
            figure(BOUND, 9_000, &[(PER_CONNECTION, 0.99), (LANE, 0.98)]),
            figure(HANDED_OVER, 14_000, &[]),
            figure(BORROWED, 20_000, &[]),
            figure(server::mode_text(CorePoolMode::Manager), 16_000, &[]),
        ];
        let values: Vec<(f64, Option<f64>)> = judged(&figures).iter().map(|value| (value.value, value.bound)).collect();
        let expected = [
            (0.99, Some(goals::MAX_TO_PER_CONNECTION)),
            (0.98, Some(goals::MAX_TO_LANE)),
            (5.0, Some(goals::MAX_HAND_OVER_US)),
            (11.0, None),
            (7.0, None),
        ];
        assert_eq!(values, expected);
        assert!(judged(&figures[..1]).is_empty());
    }

    #[test]
    fn the_rejected_task_fits_on_no_core() {
        let machine = Machine::with_cores(2);
        let mut set = TaskSet::for_machine(&machine);
        for number in 0..2 {
            set.apply(&admit(&set, &machine, &spec(number, 60).1).unwrap());
        }
        assert!(admit(&set, &machine, &spec(2, 50).1).is_err());
    }
}
