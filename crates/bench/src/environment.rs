//! What the figures of a run depend on, read from the machine before the run.

use std::fs;
use std::path::Path;

use corelane_sys::thread::{self, Scheduling};

use crate::json::Object;
use crate::placement::Placement;

/// The machine and the process as they were when the run began. Texts say "unknown" where the machine does not tell.
#[derive(Clone, Debug)]
pub struct Environment {
    /// Of Linux, as `uname -r` says.
    pub kernel: String,
    /// How the kernel may be preempted.
    pub preemption: String,
    /// The processor's name.
    pub processor: String,
    /// Whether a hypervisor is beneath.
    pub virtual_machine: bool,
    /// Cores that the process may use.
    pub cores: Vec<usize>,
    /// What the clock is made of.
    pub clock: String,
    /// Which idle states the cores have, and whether they are kept out of them.
    pub idle_states: String,
    /// The scheduling class of clients and servers.
    pub scheduling: String,
    /// Which cores clients and servers are bound to.
    pub pinning: String,
    /// Real-time threads of other programs.
    pub realtime_threads: Vec<String>,
    /// How much others had to do in the minute before (load average).
    pub load: f64,
}

/// A load above which figures are called into question.
const QUIET: f64 = 0.3;

impl Environment {
    /// Reads it.
    #[must_use]
    pub fn read(placement: &Placement, idle_held: bool) -> Self {
        let cores = thread::affinity(None).map(|set| set.iter().collect()).unwrap_or_default();
        let information = text("/proc/cpuinfo").unwrap_or_default();
        let held = if idle_held { ", held at 0 us by /dev/cpu_dma_latency" } else { ", not held" };
        Environment {
            kernel: text("/proc/sys/kernel/osrelease").unwrap_or_else(unknown),
            preemption: preemption(),
            processor: field(&information, "model name").unwrap_or_else(unknown),
            virtual_machine: field(&information, "flags").is_some_and(|flags| flags.contains(" hypervisor")),
            cores,
            clock: text("/sys/devices/system/clocksource/clocksource0/current_clocksource").unwrap_or_else(unknown),
            idle_states: idle_states() + held,
            scheduling: scheduling(placement.scheduling),
            pinning: placement.cores.to_string(),
            realtime_threads: realtime_threads(),
            load: text("/proc/loadavg").and_then(|line| line.split(' ').next()?.parse().ok()).unwrap_or(0.0),
        }
    }

    /// For people: a few lines, and a warning if the machine was not quiet.
    #[must_use]
    pub fn describe(&self) -> String {
        let machine = if self.virtual_machine { ", a virtual machine" } else { "" };
        let realtime = match self.realtime_threads.as_slice() {
            [] => "none of other programs".to_owned(),
            threads => threads.join(", "),
        };
        let mut lines = format!(
            "machine: {}, {} core(s) usable{machine}; Linux {}, {}; clock {}; idle states {}\n\
             run: {}; {}; real-time threads: {realtime}\n",
            self.processor,
            self.cores.len(),
            self.kernel,
            self.preemption,
            self.clock,
            self.idle_states,
            self.scheduling,
            self.pinning,
        );
        if self.load > QUIET {
            lines.push_str(&format!(
                "warning: the load average is {:.2}: other programs share the machine, so the figures are indications only\n",
                self.load
            ));
        }
        lines
    }

    /// Adds it to a record.
    pub(crate) fn record(&self, object: Object) -> Object {
        let cores: Vec<String> = self.cores.iter().map(usize::to_string).collect();
        object
            .text("kernel", &self.kernel)
            .text("preemption", &self.preemption)
            .text("processor", &self.processor)
            .truth("virtual_machine", self.virtual_machine)
            .texts("cores", cores.iter().map(String::as_str))
            .text("clock", &self.clock)
            .text("idle_states", &self.idle_states)
            .text("scheduling", &self.scheduling)
            .text("pinning", &self.pinning)
            .texts("realtime_threads", self.realtime_threads.iter().map(String::as_str))
            .number("load", self.load)
            .truth("quiet", self.load <= QUIET)
    }
}

fn unknown() -> String {
    "unknown".to_owned()
}

fn text(path: impl AsRef<Path>) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// The value behind `name : ` in the first line that has it.
fn field(lines: &str, name: &str) -> Option<String> {
    let mut pairs = lines.lines().filter_map(|line| line.split_once(':'));
    pairs.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim_end().to_owned()).map(|value| {
        // The flags are searched for words with a blank in front.
        if name == "flags" { value } else { value.trim_start().to_owned() }
    })
}

fn preemption() -> String {
    let version = text("/proc/sys/kernel/version").unwrap_or_default();
    // The one in parentheses is in force: "none voluntary (full) lazy".
    let model = text("/sys/kernel/debug/sched/preempt")
        .and_then(|models| Some(models.split_once('(')?.1.split_once(')')?.0.to_owned()));
    let compiled = ["PREEMPT_RT", "PREEMPT_DYNAMIC", "PREEMPT"].into_iter().find(|word| version.contains(word));
    match (compiled, model) {
        (Some(compiled), Some(model)) => format!("{compiled}, {model}"),
        (Some(compiled), None) => compiled.to_owned(),
        (None, _) => "no kernel preemption".to_owned(),
    }
}

fn idle_states() -> String {
    let folder = Path::new("/sys/devices/system/cpu/cpu0/cpuidle");
    let mut states: Vec<String> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let (name, latency) = (text(entry.path().join("name"))?, text(entry.path().join("latency"))?);
            Some(format!("{name} {latency} us"))
        })
        .collect();
    states.sort();
    if states.is_empty() { unknown() } else { states.join(", ") }
}

fn scheduling(class: Option<Scheduling>) -> String {
    match class.or_else(|| thread::scheduling(None).ok()) {
        Some(Scheduling::Other) => "SCHED_OTHER".to_owned(),
        Some(Scheduling::Fifo(priority)) => format!("SCHED_FIFO {priority}"),
        Some(Scheduling::RoundRobin(priority)) => format!("SCHED_RR {priority}"),
        None => unknown(),
    }
}

/// Threads with a real-time class (fixed priority or deadline) that are neither the kernel's nor ours: "name class priority".
fn realtime_threads() -> Vec<String> {
    let own = std::process::id().to_string();
    let mut found = Vec::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let id = process.file_name().to_string_lossy().into_owned();
        let is_process = id.bytes().all(|byte| byte.is_ascii_digit());
        // Threads of the kernel have no command line.
        let is_program = text(process.path().join("cmdline")).is_some_and(|line| !line.is_empty());
        if !is_process || id == own || !is_program {
            continue;
        }
        for task in fs::read_dir(process.path().join("task")).into_iter().flatten().flatten() {
            found.extend(text(task.path().join("stat")).as_deref().and_then(realtime));
        }
    }
    found.sort();
    found
}

/// From a line of /proc/PID/task/TID/stat (proc_pid_stat(5)), if the thread is a real-time one.
fn realtime(stat: &str) -> Option<String> {
    let name = stat.split_once('(')?.1.rsplit_once(')')?.0;
    // The third field is the first behind the name; priority and policy are the 40th and 41st.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let (priority, policy) = (fields.get(37)?, fields.get(38)?);
    let class = match *policy {
        "1" => "SCHED_FIFO",
        "2" => "SCHED_RR",
        "6" => return Some(format!("{name} SCHED_DEADLINE")),
        _ => return None,
    };
    Some(format!("{name} {class} {priority}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_tells_something() {
        let environment = Environment::read(&Placement::default(), false);
        assert!(!environment.cores.is_empty());
        assert_ne!(environment.kernel, "unknown");
        let record = environment.record(Object::new()).finish();
        let parsed: serde_json::Value = serde_json::from_str(&record).unwrap();
        for name in ["kernel", "preemption", "clock", "idle_states", "scheduling", "pinning"] {
            assert!(parsed[name].as_str().is_some_and(|text| !text.is_empty()), "{name} in {record}");
        }
    }

    #[test]
    fn realtime_threads_are_told_from_others() {
        let line = |priority: &str, policy: &str| {
            let before = "0 ".repeat(36);
            format!("77 (odd) name) S {before}{priority} {policy} 0 0")
        };
        assert_eq!(realtime(&line("5", "1")).unwrap(), "odd) name SCHED_FIFO 5");
        assert_eq!(realtime(&line("9", "2")).unwrap(), "odd) name SCHED_RR 9");
        assert_eq!(realtime(&line("0", "6")).unwrap(), "odd) name SCHED_DEADLINE");
        assert_eq!(realtime(&line("0", "0")), None);
        assert_eq!(realtime("nonsense"), None);
    }

    #[test]
    fn a_busy_machine_is_told() {
        let mut environment = Environment::read(&Placement::default(), true);
        environment.load = 0.1;
        assert!(!environment.describe().contains("warning"));
        environment.load = 1.9;
        assert!(environment.describe().contains("warning"), "{}", environment.describe());
    }
}
