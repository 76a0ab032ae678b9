//! Task files in TOML.
//!
//! ```toml
//! [machine]                       # optional, like each of its fields
//! cores = 2
//! discipline = "fixed-priority"   # or "liu-layland", "earliest-deadline-first"
//! capacity = 0.95                 # of each core
//! context_switch = "5us"
//! hand_off = "1us"
//! release_jitter = "50us"
//! blocking = "20us"
//! reading = "30us"                # of each request, by a thread above all tasks
//! reading_core = 0                # default: each core
//!
//! [[task]]
//! name = "altimeter"
//! execution = "3ms"
//! period = "20ms"
//! deadline = "15ms"               # default: the period
//! jitter = "1ms"                  # default: 0ns, like blocking and min_distance
//! criticality = "high"            # or "low"; default: "normal"
//! core = 1                        # default: any core
//! ```

use std::collections::BTreeSet;
use std::fmt::Write as _;

use toml::de::DeValue;

use super::toml_table::{TomlTable, parse_document};
use super::{MAX_CORES_IN_FILE, MAX_TASKS_IN_FILE, MachineDescription, NamedTask, TaskFile, TaskFileError};
use crate::allocation::{Discipline, RequestReading};
use crate::quantity::{format_time, parse_fraction};
use crate::task::{Criticality, Task, TaskId, Timing, Utilization};

const DISCIPLINES: [(&str, Discipline); 3] = [
    ("fixed-priority", Discipline::FixedPriority),
    ("liu-layland", Discipline::LiuLayland),
    ("earliest-deadline-first", Discipline::EarliestDeadlineFirst),
];

const CRITICALITIES: [(&str, Criticality); 3] =
    [("low", Criticality::Low), ("normal", Criticality::Normal), ("high", Criticality::High)];

/// Returns the discipline with this name, as task files and commands use it; `None` if there is
/// none.
#[must_use]
pub fn parse_discipline(name: &str) -> Option<Discipline> {
    DISCIPLINES.iter().find(|(other, _)| *other == name).map(|(_, discipline)| *discipline)
}

/// Returns the name of a discipline.
#[must_use]
pub fn discipline_name(discipline: Discipline) -> &'static str {
    DISCIPLINES.iter().find(|(_, other)| *other == discipline).map_or("", |(name, _)| name)
}

/// Reads a task file.
///
/// # Errors
/// [`TaskFileError`] with the line and the field that is malformed, unknown, missing or out of
/// range.
///
/// # Examples
/// ```
/// use corelane_sched::task_file::toml;
///
/// let file = toml::read("[[task]]\nname = 'pump'\nexecution = '3ms'\nperiod = '20ms'\n").unwrap();
/// assert_eq!(file.tasks[0].task.timing.deadline, 20_000_000);
/// let error = toml::read("[[task]]\nname = 'pump'\nexecution = 3\nperiod = '20ms'\n").unwrap_err();
/// assert_eq!(error.to_string(), "line 3: task.execution: expected a string, found integer");
/// ```
pub fn read(text: &str) -> Result<TaskFile, TaskFileError> {
    let document = parse_document(text)?;
    let mut root = TomlTable::root(text, &document);
    let mut file = TaskFile::default();
    if let Some(table) = root.table("machine")? {
        file.machine = read_machine(table)?;
    }
    let mut names = BTreeSet::new();
    for (id, table) in (0..).zip(root.tables("task", MAX_TASKS_IN_FILE)?) {
        file.tasks.push(read_task(table, TaskId(id), &mut names)?);
    }
    root.refuse_unknown_fields()?;
    Ok(file)
}

/// Writes a task file that [`read`] understands.
#[must_use]
pub fn write(file: &TaskFile) -> String {
    let mut text = String::new();
    let _ = write_machine(&mut text, &file.machine);
    for named in &file.tasks {
        let _ = write_task(&mut text, named);
    }
    text
}

fn write_machine(text: &mut String, machine: &MachineDescription) -> std::fmt::Result {
    if *machine == MachineDescription::default() {
        return Ok(());
    }
    text.push_str("[machine]\n");
    if let Some(cores) = machine.cores {
        writeln!(text, "cores = {cores}")?;
    }
    if let Some(discipline) = machine.discipline {
        writeln!(text, "discipline = \"{}\"", discipline_name(discipline))?;
    }
    if let Some(Utilization(capacity)) = machine.capacity {
        let (whole, part) = (capacity / Utilization::ONE.0, capacity % Utilization::ONE.0);
        writeln!(text, "capacity = {whole}.{part:09}")?;
    }
    let overheads = &machine.overheads;
    let times = [
        ("context_switch", overheads.context_switch),
        ("hand_off", overheads.hand_off),
        ("release_jitter", overheads.release_jitter),
        ("blocking", overheads.blocking),
        ("reading", machine.reading.map_or(0, |reading| reading.cost)),
    ];
    for (name, time) in times.into_iter().filter(|(_, time)| *time != 0) {
        writeln!(text, "{name} = \"{}\"", format_time(time))?;
    }
    if let Some(core) = machine.reading.and_then(|reading| reading.core) {
        writeln!(text, "reading_core = {}", core.core)?;
    }
    text.push('\n');
    Ok(())
}

fn write_task(text: &mut String, named: &NamedTask) -> std::fmt::Result {
    let timing = &named.task.timing;
    let separator = if text.is_empty() || text.ends_with("\n\n") { "" } else { "\n" };
    writeln!(text, "{separator}[[task]]\nname = {}", quoted(&named.name))?;
    writeln!(text, "execution = \"{}\"\nperiod = \"{}\"", format_time(timing.execution), format_time(timing.period))?;
    if timing.deadline != timing.period {
        writeln!(text, "deadline = \"{}\"", format_time(timing.deadline))?;
    }
    let times = [("jitter", timing.jitter), ("blocking", timing.blocking), ("min_distance", timing.min_interarrival)];
    for (name, time) in times.into_iter().filter(|(_, time)| *time != 0) {
        writeln!(text, "{name} = \"{}\"", format_time(time))?;
    }
    if let Some((name, _)) = CRITICALITIES.iter().find(|(_, other)| *other == named.task.criticality)
        && named.task.criticality != Criticality::Normal
    {
        writeln!(text, "criticality = \"{name}\"")?;
    }
    if let Some(core) = named.task.pinned_core {
        writeln!(text, "core = {}", core.core)?;
    }
    Ok(())
}

/// Returns a name as a TOML string. Names have no control characters, so only `\` and `"` are
/// escaped.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))
}

fn read_machine(mut table: TomlTable<'_>) -> Result<MachineDescription, TaskFileError> {
    let mut machine =
        MachineDescription { cores: table.number("cores", 1, MAX_CORES_IN_FILE)?, ..MachineDescription::default() };
    machine.discipline = table.choice("discipline", &DISCIPLINES)?;
    if let Some(value) = table.value("capacity") {
        let digits = match value.get_ref() {
            DeValue::Float(float) => float.as_str(),
            DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str(),
            other => {
                return Err(table.wrong("capacity", value, &format!("expected a number, found {}", other.type_str())));
            }
        };
        let capacity = parse_fraction(digits).map_err(|error| table.wrong("capacity", value, &error.to_string()))?;
        if capacity == Utilization(0) || capacity > Utilization::ONE {
            return Err(table.wrong("capacity", value, "a core's capacity is above 0 and at most 1"));
        }
        machine.capacity = Some(capacity);
    }
    let overheads = &mut machine.overheads;
    let times = [
        ("context_switch", &mut overheads.context_switch),
        ("hand_off", &mut overheads.hand_off),
        ("release_jitter", &mut overheads.release_jitter),
        ("blocking", &mut overheads.blocking),
    ];
    for (name, time) in times {
        *time = table.time(name)?.unwrap_or(0);
    }
    let core = table.number("reading_core", 0, MAX_CORES_IN_FILE - 1)?.map(super::core);
    machine.reading = match table.time("reading")? {
        Some(cost) if cost > 0 => Some(RequestReading { cost, core }),
        _ if core.is_some() => return Err(table.missing_field("reading")),
        _ => None,
    };
    table.refuse_unknown_fields()?;
    Ok(machine)
}

fn read_task(mut table: TomlTable<'_>, id: TaskId, names: &mut BTreeSet<String>) -> Result<NamedTask, TaskFileError> {
    let name = table.string("name")?.ok_or_else(|| table.missing_field("name"))?.to_owned();
    if let Some(reason) = super::name_error(&name) {
        return Err(table.wrong_field("name", reason));
    }
    let execution = table.time("execution")?.ok_or_else(|| table.missing_field("execution"))?;
    let period = table.time("period")?.ok_or_else(|| table.missing_field("period"))?;
    let timing = Timing {
        deadline: table.time("deadline")?.unwrap_or(period),
        jitter: table.time("jitter")?.unwrap_or(0),
        blocking: table.time("blocking")?.unwrap_or(0),
        min_interarrival: table.time("min_distance")?.unwrap_or(0),
        ..Timing::new(execution, period)
    };
    let criticality = table.choice("criticality", &CRITICALITIES)?.unwrap_or_default();
    let pinned = table.number("core", 0, MAX_CORES_IN_FILE - 1)?.map(super::core);
    let task = Task::new(id, timing)
        .map_err(|error| table.wrong_field(&error.field.to_string(), &super::timing_reason(&error)))?;
    table.refuse_unknown_fields()?;
    if !names.insert(name.clone()) {
        return Err(table.wrong_field("name", "another task has this name"));
    }
    Ok(NamedTask { name, task: Task { criticality, pinned_core: pinned, ..task } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocation::Overheads;

    const FULL: &str = "\
[machine]
cores = 2
discipline = \"earliest-deadline-first\"
capacity = 0.950000000
context_switch = \"5us\"
hand_off = \"1us\"
release_jitter = \"50us\"
blocking = \"20us\"
reading = \"30us\"
reading_core = 1

[[task]]
name = \"altimeter \\\"1\\\"\"
execution = \"3ms\"
period = \"20ms\"
deadline = \"15ms\"
jitter = \"1ms\"
blocking = \"100us\"
min_distance = \"2ms\"
criticality = \"high\"
core = 1

[[task]]
name = \"log\"
execution = \"1500us\"
period = \"1s\"
";

    #[test]
    fn file_with_all_fields_round_trips() {
        let file = read(FULL).expect("a task file");
        assert_eq!(file.machine.cores, Some(2));
        assert_eq!(file.machine.discipline, Some(Discipline::EarliestDeadlineFirst));
        assert_eq!(file.machine.capacity, Some(Utilization(950_000_000)));
        let overheads = Overheads { context_switch: 5_000, hand_off: 1_000, release_jitter: 50_000, blocking: 20_000 };
        assert_eq!(file.machine.overheads, overheads);
        assert_eq!(file.machine.reading, Some(RequestReading { cost: 30_000, core: Some(super::super::core(1)) }));
        let reading_core = read("[machine]\nreading_core = 0").expect_err("no reading").to_string();
        assert_eq!(reading_core, "line 1: machine.reading: the field is missing");
        let first = &file.tasks[0];
        assert_eq!((first.name.as_str(), first.task.id), ("altimeter \"1\"", TaskId(0)));
        let timing = Timing::new(3_000_000, 20_000_000).with_deadline(15_000_000).with_jitter(1_000_000);
        assert_eq!(first.task.timing, timing.with_blocking(100_000).with_min_interarrival(2_000_000));
        assert_eq!(
            (first.task.criticality, first.task.pinned_core.map(|core| core.core)),
            (Criticality::High, Some(1))
        );
        let second = &file.tasks[1].task;
        assert_eq!((second.timing, second.id), (Timing::new(1_500_000, 1_000_000_000), TaskId(1)));
        assert_eq!((second.criticality, second.pinned_core), (Criticality::Normal, None));
        assert_eq!(write(&file), FULL);
        assert_eq!(read(""), Ok(TaskFile::default()));
        assert_eq!(write(&TaskFile::default()), "");
    }

    #[test]
    fn machine_has_cores_for_all_pinned_tasks() {
        let file = read(FULL).expect("a task file");
        let machine = file.machine.machine(&file.tasks);
        assert_eq!((machine.cores.len(), machine.cores[1].capacity), (2, Utilization(950_000_000)));
        let open = MachineDescription::default();
        assert_eq!(open.machine(&file.tasks).cores.len(), 2);
        assert_eq!(open.machine(&file.tasks[1..]).cores.len(), 1);
    }

    fn error(lines: &str) -> String {
        read(&format!("[[task]]\nname = 'a'\n{lines}")).expect_err("malformed").to_string()
    }

    #[test]
    fn errors_name_the_line_and_the_field() {
        assert_eq!(error(""), "line 1: task.execution: the field is missing");
        assert_eq!(error("execution = '1ms'"), "line 1: task.period: the field is missing");
        assert_eq!(
            error("period = '20ms'\nexecution = '1m'"),
            "line 4: task.execution: expected a time such as \"3ms\" or \"250us\", in ns, us, ms or s"
        );
        assert_eq!(
            error("execution = '30ms'\nperiod = '20ms'"),
            "line 3: task.execution: 30ms is out of range: with the task's other times it must be 1ns to 20ms"
        );
        assert_eq!(
            error("execution = '1us'\nperiod = '99us'"),
            "line 4: task.period: 99us is out of range: with the task's other times it must be 100us to 3600s"
        );
        let good = "execution = '1ms'\nperiod = '20ms'\n";
        assert_eq!(error(&format!("{good}core = 5000")), "line 5: task.core: expected 0 to 1023");
        assert_eq!(error(&format!("{good}core = 'a'")), "line 5: task.core: expected an integer, found string");
        assert_eq!(
            error(&format!("{good}criticality = 'most'")),
            "line 5: task.criticality: expected one of: low, normal, high"
        );
        assert!(error(&format!("{good}wcet = 1")).starts_with("line 5: task.wcet: there is no such field; there are "));
        assert_eq!(
            error(&format!("{good}[[task]]\nname = 'a'\n{good}")),
            "line 6: task.name: another task has this name"
        );
        assert_eq!(read("task = 1").unwrap_err().to_string(), "line 1: task: expected [[task]], found integer");
        assert_eq!(read("\ntask = [1]").unwrap_err().to_string(), "line 2: task: expected a table, found integer");
        assert_eq!(
            read("[machine]\ncapacity = 1.5").unwrap_err().to_string(),
            "line 2: machine.capacity: a core's capacity is above 0 and at most 1"
        );
        assert_eq!(read("[machine]\ncores = 0").unwrap_err().to_string(), "line 2: machine.cores: expected 1 to 1024");
        assert_eq!(read("\n\nname = ").unwrap_err().line, Some(3));
        assert!(read("[robot]\n").unwrap_err().to_string().starts_with("line 1: robot: there is no such field"));
        assert_eq!(read("[[task]]\nname = ''").unwrap_err().to_string(), "line 2: task.name: a name has 1 to 64 bytes");
        assert!(read("[[task]]\nname = \"\\u0007\"").unwrap_err().to_string().contains("no control characters"));
    }

    #[test]
    fn files_have_bounds() {
        let long = format!("#{}", " ".repeat(super::super::MAX_FILE_BYTES));
        assert!(read(&long).unwrap_err().to_string().contains("at most 1048576 are read"));
        let many = "[[task]]\n".repeat(MAX_TASKS_IN_FILE + 1);
        assert!(read(&many).unwrap_err().to_string().contains("more than 10000 tasks"));
        assert!(read(&format!("a = {}1{}", "[".repeat(500), "]".repeat(500))).is_err(), "nested too deeply");
    }
}
