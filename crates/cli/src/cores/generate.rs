//! The command `corelane cores generate`, which prints random task files.

use std::io::Write;

use corelane_sched::generate::Workload;
use corelane_sched::task::{Task, Utilization};
use corelane_sched::task_file::{MachineDescription, NamedTask, TaskFile, toml};

use super::CoresArguments;

const CORES: u32 = 2;

const BALANCE: Utilization = Utilization(500_000_000);

pub(super) fn run(arguments: &CoresArguments, out: &mut dyn Write) -> Result<bool, String> {
    let utilization = arguments.utilization.unwrap_or_default();
    let workload = match arguments.tasks {
        Some(tasks) => Workload::one_group(utilization, tasks),
        None => Workload::two_groups(utilization, arguments.balance.unwrap_or(BALANCE)),
    };
    let tasks: Vec<Task> = workload.tasks(arguments.seed.unwrap_or(0));
    let made = Utilization::total(tasks.iter().map(|task| &task.timing));
    if made < Utilization(utilization.0 - utilization.0 / 100) {
        return Err(format!("{} tasks cannot use {utilization}: each uses one core at most", tasks.len()));
    }
    let machine = MachineDescription { cores: Some(arguments.cores.unwrap_or(CORES)), ..MachineDescription::default() };
    let named = |task: Task| NamedTask { name: format!("task-{}", task.id.0), task };
    let file = TaskFile { machine, tasks: tasks.into_iter().map(named).collect() };
    let _ = out.write_all(toml::write(&file).as_bytes());
    Ok(true)
}
