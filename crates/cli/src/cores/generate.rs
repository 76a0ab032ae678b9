//! The command `corelane cores generate`, which prints random task files.

use std::io::Write;

use corelane_sched::generate::Workload;
use corelane_sched::task::{Task, Utilization};
use corelane_sched::task_file::{MachineDescription, NamedTask, TaskFile, toml};

const CORES: u32 = 2;

const BALANCE: Utilization = Utilization(500_000_000);

pub(super) struct GenerateOptions {
    pub(super) utilization: Utilization,
    pub(super) balance: Option<Utilization>,
    pub(super) tasks: Option<usize>,
    pub(super) cores: Option<u32>,
    pub(super) seed: u64,
}

pub(super) fn run(options: &GenerateOptions, out: &mut dyn Write) -> Result<bool, String> {
    let utilization = options.utilization;
    let workload = match options.tasks {
        Some(tasks) => Workload::one_group(utilization, tasks),
        None => Workload::two_groups(utilization, options.balance.unwrap_or(BALANCE)),
    };
    let tasks: Vec<Task> = workload.tasks(options.seed);
    let made = Utilization::total(tasks.iter().map(|task| &task.timing));
    if made < Utilization(utilization.0 - utilization.0 / 100) {
        return Err(format!("{} tasks cannot use {utilization}: each uses one core at most", tasks.len()));
    }
    let machine = MachineDescription { cores: Some(options.cores.unwrap_or(CORES)), ..MachineDescription::default() };
    let named = |task: Task| NamedTask { name: format!("task-{}", task.id.0), task };
    let file = TaskFile { machine, tasks: tasks.into_iter().map(named).collect() };
    let _ = out.write_all(toml::write(&file).as_bytes());
    Ok(true)
}
