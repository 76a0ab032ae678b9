//! The commands `corelane cores serve`, `admit`, `withdraw` and `snapshot`, which work on an
//! admission object.

use std::io::{self, Write};
use std::os::fd::AsFd;

use corelane::rt::{CorePool, CorePoolConfig};
use corelane::{Dispatch, Endpoint, ObjectRef, Orb, PoolConfig, SystemException, SystemExceptionKind as Kind, minor};
use corelane_sched::allocation::{Discipline, Machine};
use corelane_sched::task::{Criticality, Nanos, TaskId, Utilization};
use corelane_sched::task_file::NamedTask;
use corelane_services::cores::protocol::tasks::AdmitError;
use corelane_services::cores::protocol::{self, Promise, Rejected, TaskSpec, TaskState, TaskTiming, TasksRef};
use corelane_services::cores::registry::RegistryLimits;
use corelane_services::cores::{
    ADMISSION_OBJECT_KEY, AdmissionConfig, AdmissionService, ClientIdentityInterceptor, DispatchCosts, RestoredTasks,
    StoredTaskRegistry, admit_task, charge_mode, with_best_effort_share,
};
use corelane_services::store::StoreError;
use corelane_sys::{poll, signal};
use serde_json::{Value as Json, json};

use super::{CoresArguments, milliseconds, read_task_file, write_table};
use crate::naming;
use crate::serving::{ServerOptions, corbaloc_urls};
use crate::text::{json_text, printable};

const DEFAULT_LISTEN: &str = "tcp:127.0.0.1:2810";
const DEFAULT_AT: &str = "corbaloc::1.2@127.0.0.1:2810/CorelaneTasks";
/// Default lease of `admit`. It is long, because the command ends at once and no client renews the
/// lease.
const DEFAULT_LEASE: Nanos = 3_600_000_000_000;
/// Lower bound on the maximum number of the pool's threads, so that many connections can be bound
/// to threads on a machine with few cores.
const MAX_BOUND: u32 = 64;

/// Maximum number of requests that wait for the disk at the same time, with a store.
const MAX_WAITING_SAVES: usize = 12;
const TASK_ENDPOINTS: u16 = 16;
/// Largest first port for which the ports of all endpoints of tasks are valid.
pub(super) const MAX_FIRST_PORT: u16 = u16::MAX - TASK_ENDPOINTS;

pub(super) fn serve(arguments: &CoresArguments, out: &mut dyn Write) -> Result<bool, String> {
    let termination = signal::termination().map_err(|error| error.to_string())?;
    let available = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let cores = arguments.cores.unwrap_or_else(|| u32::try_from(available).unwrap_or(1));
    let mut machine = Machine::with_cores(cores);
    machine.discipline = arguments.discipline.unwrap_or_default();
    let discipline = machine.discipline;
    machine = charge_mode(machine, arguments.mode, DispatchCosts::default());
    if let Some(share) = arguments.best_effort {
        machine = with_best_effort_share(machine, share);
    }
    let options = ServerOptions {
        orb_config: arguments.orb_config.as_deref(),
        listen: arguments.listen.as_slice(),
        publish: &[],
        default_listen: DEFAULT_LISTEN,
    };
    let mut orb_pool = PoolConfig::default().name("admission");
    let mut config = match &arguments.store {
        Some(path) => {
            orb_pool = orb_pool.dispatch(Dispatch::LeaderFollowers { threads: MAX_WAITING_SAVES + 4 });
            let registry =
                StoredTaskRegistry::open_file(path, machine, RegistryLimits::default()).map_err(explain_store)?;
            let config = AdmissionConfig::with_registry(registry).max_waiting_saves(MAX_WAITING_SAVES);
            config.earliest_deadline_first(discipline == Discipline::EarliestDeadlineFirst)
        }
        None => AdmissionConfig::new(machine),
    };
    let builder = options.builder(orb_pool)?.interceptor(ClientIdentityInterceptor);
    let orb = builder.build().map_err(|error| error.to_string())?;
    // If the machine has fewer cores than `--cores`, the pool borrows threads for tasks of missing
    // cores.
    let own = available.min(usize::try_from(cores).unwrap_or(usize::MAX));
    let mut pool = CorePoolConfig::default().cores(0..own).mode(arguments.mode);
    pool.best_effort_share = arguments.best_effort;
    let threads = pool.threads_per_core.saturating_mul(u32::try_from(own).unwrap_or(u32::MAX));
    let pool = match arguments.task_ports {
        Some(first) => at_task_ports(pool, orb.endpoints(), first)?,
        None => pool,
    };
    config = config.core_pool(pool.max_threads(threads.max(MAX_BOUND))).enforce_rates(arguments.enforces_rates);
    let service = config.serve(&orb).map_err(|error| error.to_string())?;
    let mut lines = format!("{}\n", service.reference());
    for url in corbaloc_urls(&orb, ADMISSION_OBJECT_KEY) {
        lines += &format!("{url}\n");
    }
    let _ = out.write_all(lines.as_bytes()).and_then(|()| out.flush());
    let _ = io::stderr().write_all(restored_text(arguments, &service).as_bytes());
    if let Some(reason) = service.core_pool().and_then(CorePool::missing_guarantee_reason) {
        let _ = writeln!(io::stderr(), "the promises are advisory: {reason}");
    }
    poll::wait_readable_any([termination.as_fd()], None).map_err(|error| error.to_string())?;
    orb.shutdown(true).map_err(|error| error.to_string())?;
    Ok(true)
}

fn explain_store(error: StoreError) -> String {
    match error {
        StoreError::Damaged { .. } => {
            format!("{error}, or name a new file: the clients must then ask for admission again")
        }
        other => other.to_string(),
    }
}

/// Gives the pool addresses at the TCP host of the ORB: port `first`, and the following ports for
/// the endpoints of tasks.
fn at_task_ports(pool: CorePoolConfig, endpoints: &[Endpoint], first: u16) -> Result<CorePoolConfig, String> {
    let addresses: Vec<String> = endpoints.iter().map(Endpoint::to_string).collect();
    let mut hosts = addresses.iter().filter_map(|address| address.strip_prefix("tcp:")?.rsplit_once(':'));
    let (host, _) = hosts.next().ok_or("`--task-ports` needs a server that listens at a TCP address")?;
    let at = |port| format!("tcp:{host}:{port}");
    let endpoints = (first + 1..=first + TASK_ENDPOINTS).map(|port| vec![at(port)]).collect();
    Ok(pool.listen(at(first)).task_endpoint_count(TASK_ENDPOINTS.into()).task_addresses(endpoints))
}

fn restored_text(arguments: &CoresArguments, service: &AdmissionService) -> String {
    if arguments.store.is_none() {
        return "the tasks end with this server; to keep them: --store FILE\n".to_owned();
    }
    let RestoredTasks { tasks, demoted, tasks_with_new_references, .. } = service.restored_tasks();
    let mut text = String::new();
    if tasks > 0 {
        text += &format!("{tasks} tasks of an earlier server are held, each for its lease\n");
    }
    if demoted > 0 {
        text += &format!("{demoted} of them have no core, because this machine has no room for them\n");
    }
    if tasks_with_new_references > 0 {
        text += &format!("{tasks_with_new_references} of them have new references, because their ports are taken\n");
    }
    text
}

/// Returns the admission object of `--at`, else of the default address.
pub(super) fn object(orb: &Orb, arguments: &CoresArguments) -> Result<TasksRef, String> {
    let at = arguments.at.as_deref().unwrap_or(DEFAULT_AT);
    let object = naming::object_of_word(orb, at)?.ok_or("the reference is nil")?;
    Ok(TasksRef::unchecked_narrow(&object))
}

/// Explains a system exception to the user. An exception that came over the network contains no
/// explanation.
pub(super) fn explain(exception: &SystemException) -> String {
    let reason = match exception.kind() {
        Kind::BadParam => "a field is out of range, or the target is not an object of this server",
        Kind::NoPermission => "the token does not belong to this task",
        Kind::ObjectNotExist => "the task, the target or the admission object does not exist",
        Kind::NoResources if exception.minor() == minor::NOT_SAVED => {
            "the server cannot save the promise, because its store is full or fails"
        }
        Kind::NoResources if exception.minor() == minor::TASK_REFUSED => {
            "the kernel of the server has refused the task's core or priority: withdraw the task"
        }
        Kind::NoResources => "the server does not have this core, or no room for further tasks",
        Kind::BadInvOrder => "the server has no core pool",
        Kind::Transient => "the server cannot be reached, or there are too many decisions or tasks of this client",
        _ => return exception.to_string(),
    };
    format!("{exception}: {reason}")
}

enum AdmitOutcome {
    Promised(Promise),
    Rejected(Rejected),
    Failed(String),
}

pub(super) fn admit(arguments: &CoresArguments, out: &mut dyn Write) -> Result<bool, String> {
    let file = read_task_file(arguments)?;
    let orb = Orb::new().map_err(|error| error.to_string())?;
    let tasks = object(&orb, arguments)?;
    let target = match &arguments.target {
        Some(word) => naming::object_of_word(&orb, word)?,
        None => None,
    };
    let lease = arguments.lease.unwrap_or(DEFAULT_LEASE);
    let mut rows = Vec::with_capacity(file.tasks.len());
    for named in &file.tasks {
        rows.push((named, admit_one(&tasks, &spec(named, target.clone(), lease)?)));
    }
    let all = rows.iter().all(|(_, outcome)| matches!(outcome, AdmitOutcome::Promised(_)));
    let _ = if arguments.is_json {
        let rows: Vec<Json> = rows.iter().map(|(named, outcome)| admitted_json(named, outcome)).collect();
        out.write_all(json_text(&json!({ "schema": 1, "tasks": rows, "admitted": all })).as_bytes())
    } else {
        write_admitted(out, &rows)
    };
    Ok(all)
}

fn spec(named: &NamedTask, target: Option<ObjectRef>, lease: Nanos) -> Result<TaskSpec, String> {
    let timing = named.task.timing;
    let importance = match named.task.criticality {
        Criticality::Low => protocol::Criticality::Low,
        Criticality::Normal => protocol::Criticality::Normal,
        Criticality::High => protocol::Criticality::High,
    };
    let core = match named.task.pinned_core {
        Some(core) => i32::try_from(core.core).map_err(|_| format!("there is no core {}", core.core))?,
        None => -1,
    };
    Ok(TaskSpec {
        name: named.name.clone(),
        target,
        operation: String::new(),
        timing: TaskTiming {
            execution: timing.execution,
            period: timing.period,
            deadline: timing.deadline,
            jitter: timing.jitter,
            blocking: timing.blocking,
            min_distance: timing.min_interarrival,
        },
        importance,
        core,
        lease,
        overrun: protocol::JobOverrun::Report,
    })
}

fn admit_one(tasks: &TasksRef, spec: &TaskSpec) -> AdmitOutcome {
    match admit_task(tasks, spec) {
        Ok(promise) => AdmitOutcome::Promised(promise),
        Err(AdmitError::Rejected(rejected)) => AdmitOutcome::Rejected(rejected),
        Err(AdmitError::Pending(_)) => AdmitOutcome::Failed("the server does not decide".to_owned()),
        Err(AdmitError::System(exception)) => AdmitOutcome::Failed(explain(&exception)),
    }
}

fn write_admitted(out: &mut dyn Write, rows: &[(&NamedTask, AdmitOutcome)]) -> io::Result<()> {
    let header = ["task", "number", "core", "response ms", "start ms", "token", "verdict"];
    let mut table = vec![header.map(str::to_owned).to_vec()];
    for (named, outcome) in rows {
        let name = printable(&named.name);
        table.push(match outcome {
            AdmitOutcome::Promised(promise) => vec![
                name,
                promise.task.to_string(),
                promise.core.to_string(),
                if promise.response == 0 { "-".to_owned() } else { milliseconds(promise.response) },
                milliseconds(promise.start),
                hexadecimal(&promise.token),
                "admitted".to_owned(),
            ],
            AdmitOutcome::Rejected(_) | AdmitOutcome::Failed(_) => {
                let verdict = if matches!(outcome, AdmitOutcome::Rejected(_)) { "rejected" } else { "refused" };
                let absent = std::iter::repeat_n("-".to_owned(), 5);
                std::iter::once(name).chain(absent).chain([verdict.to_owned()]).collect()
            }
        });
    }
    write_table(out, &table)?;
    for (named, outcome) in rows {
        let name = printable(&named.name);
        match outcome {
            AdmitOutcome::Promised(Promise { target: Some(target), .. }) => writeln!(out, "{name}: {target}")?,
            AdmitOutcome::Promised(_) => {}
            AdmitOutcome::Rejected(rejected) => writeln!(out, "{name}: {}", printable(&rejected.reason))?,
            AdmitOutcome::Failed(reason) => writeln!(out, "{name}: {reason}")?,
        }
    }
    Ok(())
}

fn admitted_json(named: &NamedTask, outcome: &AdmitOutcome) -> Json {
    match outcome {
        AdmitOutcome::Promised(promise) => json!({
            "name": named.name,
            "admitted": true,
            "task": promise.task,
            "token": hexadecimal(&promise.token),
            "core": promise.core,
            "response_ns": promise.response,
            "start_ns": promise.start,
            "lease_ns": promise.lease,
            "target": promise.target.as_ref().map(ToString::to_string),
        }),
        AdmitOutcome::Rejected(rejected) => json!({
            "name": named.name,
            "admitted": false,
            "core": rejected.core,
            "excess_ppb": rejected.excess,
            "longest_execution_ns": rejected.longest_execution,
            "reason": rejected.reason,
        }),
        AdmitOutcome::Failed(reason) => json!({ "name": named.name, "admitted": false, "reason": reason }),
    }
}

pub(super) fn withdraw(arguments: &CoresArguments) -> Result<bool, String> {
    let (task, token) = arguments.task.ok_or("a task and its token are needed")?;
    let orb = Orb::new().map_err(|error| error.to_string())?;
    object(&orb, arguments)?.withdraw(task.0, &token).map_err(|exception| explain(&exception))?;
    Ok(true)
}

pub(super) fn snapshot(arguments: &CoresArguments, out: &mut dyn Write) -> Result<bool, String> {
    let orb = Orb::new().map_err(|error| error.to_string())?;
    let snapshot = object(&orb, arguments)?.snapshot().map_err(|exception| explain(&exception))?;
    let _ = if arguments.is_json {
        out.write_all(json_text(&snapshot_json(&snapshot.0, &snapshot.1, &snapshot.2)).as_bytes())
    } else {
        write_snapshot(out, &snapshot)
    };
    Ok(true)
}

type Snapshot = (protocol::TaskRecords, protocol::CoreRecords, protocol::Counts);

pub(super) fn state_name(state: TaskState) -> &'static str {
    match state {
        TaskState::Reserved => "reserved",
        TaskState::Promised => "promised",
        TaskState::Ending => "ending",
        TaskState::Undecided => "undecided",
        TaskState::Demoted => "demoted",
    }
}

fn write_snapshot(out: &mut dyn Write, (tasks, cores, counts): &Snapshot) -> io::Result<()> {
    let header = ["task", "number", "client", "state", "core", "priority", "execution ms", "period ms", "response ms"];
    let mut table = vec![header.map(str::to_owned).to_vec()];
    for task in tasks {
        table.push(vec![
            printable(&task.name),
            task.task.to_string(),
            printable(&task.client),
            state_name(task.state).to_owned(),
            if task.core < 0 { "-".to_owned() } else { task.core.to_string() },
            task.level.to_string(),
            milliseconds(task.timing.execution),
            milliseconds(task.timing.period),
            if task.response == 0 { "-".to_owned() } else { milliseconds(task.response) },
        ]);
    }
    write_table(out, &table)?;
    writeln!(out)?;
    for core in cores {
        let (used, capacity) = (Utilization(core.used), Utilization(core.capacity));
        write!(out, "core {}: utilization {used} of {capacity}", core.core)?;
        match core.reserved {
            0 => writeln!(out)?,
            reserved => writeln!(out, ", above all tasks {}", Utilization(reserved))?,
        }
    }
    writeln!(
        out,
        "{} admitted, {} rejected, {} beyond the rate, {} beyond a quota, {} leases ended",
        counts.promised, counts.rejected, counts.over_rate, counts.over_quota, counts.leases_ended
    )
}

pub(super) fn snapshot_json(
    tasks: &[protocol::TaskRecord],
    cores: &[protocol::CoreRecord],
    counts: &protocol::Counts,
) -> Json {
    let task = |task: &protocol::TaskRecord| {
        json!({
            "name": task.name,
            "task": task.task,
            "client": task.client,
            "operation": task.operation,
            "state": state_name(task.state),
            "core": task.core,
            "level": task.level,
            "execution_ns": task.timing.execution,
            "period_ns": task.timing.period,
            "deadline_ns": task.timing.deadline,
            "response_ns": task.response,
            "start_ns": task.start,
            "remaining_ns": task.remaining,
        })
    };
    let core = |core: &protocol::CoreRecord| json!({ "core": core.core, "capacity_ppb": core.capacity, "used_ppb": core.used, "reserved_ppb": core.reserved });
    json!({
        "schema": 1,
        "tasks": tasks.iter().map(task).collect::<Vec<_>>(),
        "cores": cores.iter().map(core).collect::<Vec<_>>(),
        "counts": {
            "promised": counts.promised,
            "rejected": counts.rejected,
            "over_rate": counts.over_rate,
            "over_quota": counts.over_quota,
            "leases_ended": counts.leases_ended,
            "reservations_lapsed": counts.reservations_lapsed,
        },
    })
}

fn hexadecimal(token: &[u8; 16]) -> String {
    token.iter().map(|octet| format!("{octet:02x}")).collect()
}

pub(super) fn task_and_token(task: &str, token: &str) -> Option<(TaskId, [u8; 16])> {
    let is_token = token.len() == 32 && token.bytes().all(|digit| digit.is_ascii_hexdigit());
    let number = u128::from_str_radix(token, 16).ok().filter(|_| is_token)?;
    Some((TaskId(task.parse().ok()?), number.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_parsed_back_from_its_text() {
        let token = [0x01, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0xf0];
        assert_eq!(task_and_token("7", &hexadecimal(&token)), Some((TaskId(7), token)));
        for (task, text) in [("7", "+1020304050607080910111213141516"), ("7", "00"), ("x", &hexadecimal(&token))] {
            assert_eq!(task_and_token(task, text), None, "{task} {text}");
        }
    }
}
