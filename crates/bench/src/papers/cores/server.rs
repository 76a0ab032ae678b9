//! Servers of tasks, each in a separate process.
//!
//! A server with an admission object prints the references of this object and of a target. A server
//! with a core pool and without an admission object answers lines of its standard input:
//!
//! | line | answer |
//! |---|---|
//! | `set TASK:CORE:PRIORITY ...` | `set`, after the pool has these tasks |
//! | `move CORES N` | the nanoseconds of each of N changes that move all tasks to the next core |
//! | `counts` | bound, borrowed, handed over, led, not bound, moved: counts of the pool |

use std::sync::Arc;

use corelane::poa::{IdAssignment, ObjectId, PoaPolicies};
use corelane::rt::{CorePool, CorePoolConfig, CorePoolMode, PriorityModel, RtPolicies, TaskBinder, TaskBinding};
use corelane::{Orb, OrbBuilder};
use corelane_sched::allocation::{Machine, Overheads};
use corelane_services::cores::registry::RegistryLimits;
use corelane_services::cores::{AdmissionConfig, DispatchCosts, MemoryTaskRegistry, charge_mode};
use corelane_sys::clock;

use crate::Failure;
use crate::address::LOOPBACK;
use crate::launch::start;
use crate::orb::generated::cubit::CountedTarget;
use crate::orb::limits;
use crate::orb::servant::Echo;
use crate::placement::Placement;
use crate::service::{RunningProgram, serve_lines};

/// Number of threads for each core of a pool, as in the MC-ORB paper.
const THREADS_PER_CORE: u32 = 15;

/// Times in nanoseconds that admission adds to a job's execution time, for messages, context
/// switches, and the client, which runs on the same cores.
const OVERHEADS: Overheads = Overheads { context_switch: 20_000, hand_off: 60_000, release_jitter: 0, blocking: 0 };

const TASK: &[u8] = b"task-";

/// A binder that finds the task of a request by the number at the end of the object key.
struct ByName;

impl TaskBinder for ByName {
    fn task_of(&self, object_key: &[u8]) -> Option<u64> {
        let at = object_key.windows(TASK.len()).rposition(|octets| octets == TASK)?;
        std::str::from_utf8(&object_key[at + TASK.len()..]).ok()?.parse().ok()
    }
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new(error.to_string())
}

fn builder() -> OrbBuilder {
    Orb::builder().limits(limits()).listen(LOOPBACK)
}

const MODES: [(&str, CorePoolMode); 4] = [
    ("bound", CorePoolMode::Bound),
    ("manager", CorePoolMode::Manager),
    ("leader-followers", CorePoolMode::LeaderFollowers),
    ("no-affinity", CorePoolMode::NoAffinity),
];

fn mode_name(mode: CorePoolMode) -> &'static str {
    MODES.iter().find(|(_, other)| *other == mode).map_or("", |(name, _)| name)
}

/// Returns the name of a mode in the reports.
pub(super) fn mode_text(mode: CorePoolMode) -> &'static str {
    match mode {
        CorePoolMode::Bound => "bound",
        CorePoolMode::Manager => "a manager for every request",
        CorePoolMode::LeaderFollowers => "leader/followers with affinity",
        CorePoolMode::NoAffinity => "no affinity",
    }
}

fn mode_of(name: &str) -> Option<CorePoolMode> {
    MODES.iter().find(|(other, _)| *other == name).map(|(_, mode)| *mode)
}

/// Starts a server with an admission object. If `pool` is present, a core pool of this mode runs
/// the requests of tasks. Returns the references of the admission object and of the target.
pub(super) fn start_admission(
    cores: &[usize],
    pool: Option<CorePoolMode>,
    placement: &Placement,
) -> Result<(RunningProgram, String, String), Failure> {
    let pool = pool.map_or("no-pool", mode_name);
    let (server, line) = start("Corelane's server of tasks", &["admission", &joined(cores), pool], placement)?;
    let references = line.split_once(' ').ok_or_else(|| Failure::new("the server prints no references"))?;
    Ok((server, references.0.to_owned(), references.1.to_owned()))
}

pub(super) fn start_core_pool(
    cores: &[usize],
    tasks: usize,
    mode: CorePoolMode,
    placement: &Placement,
) -> Result<(RunningProgram, Vec<String>), Failure> {
    let words = ["core-pool", &joined(cores), &tasks.to_string(), mode_name(mode)];
    let (server, line) = start("Corelane's server with a core pool", &words, placement)?;
    Ok((server, line.split(' ').map(str::to_owned).collect()))
}

fn joined(cores: &[usize]) -> String {
    cores.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

fn parsed(cores: &str) -> Result<Vec<usize>, Failure> {
    let all: Result<Vec<usize>, _> = cores.split(',').map(str::parse).collect();
    all.map_err(|_| Failure::new(format!("`{cores}` is not a list of cores")))
}

pub(crate) fn serve_admission(cores: &str, pool: &str) -> Result<(), Failure> {
    let cores = parsed(cores)?;
    let mut machine = Machine::with_cores(u32::try_from(cores.len()).unwrap_or(u32::MAX));
    for (core, &number) in machine.cores.iter_mut().zip(&cores) {
        core.id.core = u32::try_from(number).map_err(failed)?;
    }
    let mode = mode_of(pool);
    if let Some(mode) = mode {
        machine.overheads = OVERHEADS;
        machine = charge_mode(machine, mode, DispatchCosts::default());
    }
    // The benchmark asks for more decisions per second than the default limits permit.
    let limits = RegistryLimits { max_decisions_per_second: 1_000_000, ..RegistryLimits::default() };
    let mut config = AdmissionConfig::with_registry(MemoryTaskRegistry::new(machine, limits));
    if let Some(mode) = mode {
        let pool = CorePoolConfig::default().cores(cores).threads_per_core(THREADS_PER_CORE);
        config = config.core_pool(pool.mode(mode));
    }
    let orb = builder().build().map_err(failed)?;
    let admission = config.serve(&orb).map_err(failed)?;
    let root = orb.root_poa();
    let target = root.activate(&CountedTarget::servant(Echo)).map_err(failed)?;
    root.manager().activate().map_err(failed)?;
    println!("ready {} {target}", admission.reference().as_object());
    serve_lines(|_| None).map_err(failed)
}

pub(crate) fn serve_core_pool(cores: &str, tasks: usize, mode: &str) -> Result<(), Failure> {
    let orb = builder().build().map_err(failed)?;
    let mode = mode_of(mode).ok_or_else(|| Failure::new(format!("there is no mode `{mode}`")))?;
    let config = CorePoolConfig::default().cores(parsed(cores)?).threads_per_core(THREADS_PER_CORE).mode(mode);
    let pool = orb.real_time().create_core_pool(&config, Arc::new(ByName)).map_err(failed)?;
    let policies = RtPolicies {
        priority_model: Some((PriorityModel::ClientPropagated, 0)),
        threadpool: Some(pool.id()),
        ..RtPolicies::default()
    };
    let root = orb.root_poa();
    let ids = PoaPolicies { id_assignment: IdAssignment::User, ..PoaPolicies::default() };
    let poa = root.create_rt_poa("tasks", Some(root.manager()), ids, &policies).map_err(failed)?;
    let mut references = Vec::with_capacity(tasks);
    for number in 1..=tasks {
        let id = ObjectId::from(format!("task-{number}").as_str());
        poa.activate_object_with_id(&id, &CountedTarget::servant(Echo)).map_err(failed)?;
        references.push(poa.id_to_reference(&id).map_err(failed)?.to_string());
    }
    root.manager().activate().map_err(failed)?;
    println!("ready {}", references.join(" "));
    let mut bindings = Vec::new();
    serve_lines(|line| Some(answer(&pool, &mut bindings, line).unwrap_or_else(|failure| format!("error {failure}"))))
        .map_err(failed)
}

fn answer(pool: &CorePool, bindings: &mut Vec<TaskBinding>, line: &str) -> Result<String, Failure> {
    let mut words = line.split(' ');
    match (words.next(), words.next(), words.next()) {
        (Some("set"), ..) => {
            *bindings = line.split(' ').skip(1).map(binding).collect::<Result<_, _>>()?;
            pool.set_tasks(bindings)?;
            Ok("set".to_owned())
        }
        (Some("move"), Some(cores), Some(count)) => {
            let (cores, count) = (parsed(cores)?, count.parse::<usize>().map_err(failed)?);
            let mut times = Vec::with_capacity(count);
            for _ in 0..count {
                bindings.iter_mut().for_each(|binding| binding.core = next_core(&cores, binding.core));
                let began = clock::now();
                pool.set_tasks(bindings)?;
                times.push(began.elapsed().as_nanos().to_string());
                // Gives the moved threads time to sleep again before the next change.
                std::thread::sleep(std::time::Duration::from_micros(500));
            }
            Ok(times.join(" "))
        }
        (Some("counts"), ..) => {
            let counts = pool.counts();
            let served = [counts.connections_bound, counts.threads_borrowed, counts.requests_handed_over, counts.led];
            let all = [&served[..], &[counts.requests_not_bound, counts.threads_moved]].concat();
            Ok(all.iter().map(u64::to_string).collect::<Vec<_>>().join(" "))
        }
        _ => Err(Failure::new(format!("not understood: {line}"))),
    }
}

fn binding(word: &str) -> Result<TaskBinding, Failure> {
    let parts: Vec<&str> = word.split(':').collect();
    let wrong = || Failure::new(format!("`{word}` is not a task with its core and priority"));
    let [task, core, priority] = parts[..] else { return Err(wrong()) };
    match (task.parse(), core.parse(), priority.parse()) {
        (Ok(task), Ok(core), Ok(priority)) => Ok(TaskBinding::new(task, core, priority)),
        _ => Err(wrong()),
    }
}

fn next_core(cores: &[usize], core: usize) -> usize {
    let place = cores.iter().position(|&other| other == core).map_or(0, |place| place + 1);
    cores.get(place).or_else(|| cores.first()).copied().unwrap_or(core)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_keys_are_parsed() {
        assert_eq!(binding("3:1:98").unwrap(), TaskBinding::new(3, 1, 98));
        for word in ["", "3:1", "3:1:98:2", "3:x:98"] {
            assert!(binding(word).is_err(), "{word}");
        }
        assert_eq!(parsed("0,3").unwrap(), [0, 3]);
        assert!(parsed("0,").is_err());
        assert_eq!(joined(&[0, 3]), "0,3");
        for (name, mode) in MODES {
            assert_eq!((mode_of(name), mode_name(mode)), (Some(mode), name));
        }
        assert_eq!(mode_of("no-pool"), None);
        assert_eq!((ByName.task_of(b"poa/task-12"), ByName.task_of(b"plain")), (Some(12), None));
        assert_eq!([0, 3, 9].map(|core| next_core(&[0, 3], core)), [3, 0, 0]);
    }
}
