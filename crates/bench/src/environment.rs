//! Properties of the machine that influence the figures.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use corelane_sys::clock::{self, Monotonic};
use corelane_sys::thread::{self, Scheduling};

use crate::cost::steal_ms;
use crate::json::JsonObject;
use crate::placement::Placement;

#[derive(Clone, Debug)]
pub(crate) struct Environment {
    pub(crate) host: String,
    pub(crate) kernel: String,
    pub(crate) preemption: String,
    pub(crate) processor: String,
    pub(crate) virtual_machine: bool,
    pub(crate) cores: Vec<usize>,
    pub(crate) clock_source: String,
    pub(crate) idle_states: String,
    pub(crate) scheduling: String,
    pub(crate) pinning: String,
    pub(crate) realtime_threads: Vec<String>,
    pub(crate) governor: String,
    pub(crate) timing: String,
    pub(crate) date: String,
    pub(crate) load_average: f64,
}

/// Maximum load average of a quiet machine. Above it the figures are only indications.
const QUIET: f64 = 0.3;

impl Environment {
    #[must_use]
    pub(crate) fn read(placement: &Placement, idle_held: &str) -> Self {
        let cores = thread::affinity(None).map(|set| set.iter().collect()).unwrap_or_default();
        let information = text("/proc/cpuinfo").unwrap_or_default();
        Environment {
            host: text("/proc/sys/kernel/hostname").unwrap_or_else(unknown),
            kernel: text("/proc/sys/kernel/osrelease").unwrap_or_else(unknown),
            preemption: preemption(),
            processor: field(&information, "model name").unwrap_or_else(unknown),
            virtual_machine: field(&information, "flags").is_some_and(|flags| flags.contains(" hypervisor")),
            cores,
            clock_source: text("/sys/devices/system/clocksource/clocksource0/current_clocksource")
                .unwrap_or_else(unknown),
            idle_states: format!("{}, {idle_held}", idle_states()),
            scheduling: scheduling(placement.scheduling),
            pinning: placement.cores.to_string(),
            realtime_threads: realtime_threads(),
            governor: text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").unwrap_or_else(unknown),
            timing: timing(),
            date: date(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())),
            load_average: load_average(),
        }
    }

    #[must_use]
    pub(crate) fn describe(&self) -> String {
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
            self.clock_source,
            self.idle_states,
            self.scheduling,
            self.pinning,
        );
        if self.load_average > QUIET {
            lines.push_str(&format!(
                "warning: the load average is {:.2}: other programs share the machine, so the figures are indications only\n",
                self.load_average
            ));
        }
        lines
    }

    pub(crate) fn record(&self, object: JsonObject) -> JsonObject {
        let cores: Vec<String> = self.cores.iter().map(usize::to_string).collect();
        object
            .string("host", &self.host)
            .string("kernel", &self.kernel)
            .string("preemption", &self.preemption)
            .string("processor", &self.processor)
            .boolean("virtual_machine", self.virtual_machine)
            .strings("cores", cores.iter().map(String::as_str))
            .string("clock", &self.clock_source)
            .string("idle_states", &self.idle_states)
            .string("scheduling", &self.scheduling)
            .string("pinning", &self.pinning)
            .strings("realtime_threads", self.realtime_threads.iter().map(String::as_str))
            .string("governor", &self.governor)
            .string("timing", &self.timing)
            .string("date", &self.date)
            .number("load", self.load_average)
            .boolean("quiet", self.load_average <= QUIET)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct RunEnd {
    seconds: f64,
    load_average: f64,
    steal_ms: f64,
    steal_percent: f64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RunStart {
    at: Monotonic,
    steal_ms: f64,
}

impl RunEnd {
    #[must_use]
    pub(crate) fn begin() -> RunStart {
        RunStart { at: clock::now(), steal_ms: stolen_ms() }
    }

    #[must_use]
    pub(crate) fn since(beginning: &RunStart) -> Self {
        let seconds = beginning.at.elapsed().as_secs_f64();
        let steal_ms = (stolen_ms() - beginning.steal_ms).max(0.0);
        let cores = thread::affinity(None).map_or(1, |set| set.len()).max(1) as f64;
        let steal_percent = steal_ms / (1e3 * seconds.max(1e-3) * cores) * 100.0;
        RunEnd { seconds, load_average: load_average(), steal_ms, steal_percent }
    }

    pub(crate) fn describe(&self) -> String {
        format!(
            "\nthe run took {:.0} s; the hypervisor gave {:.2} % of the cores' time to others; load average at the end {:.2}\n",
            self.seconds, self.steal_percent, self.load_average
        )
    }

    pub(crate) fn record(&self, object: JsonObject) -> JsonObject {
        object
            .number("seconds", self.seconds)
            .number("load_end", self.load_average)
            .number("run_steal_ms", self.steal_ms)
            .number("run_steal_percent", self.steal_percent)
    }
}

fn load_average() -> f64 {
    text("/proc/loadavg").and_then(|line| line.split(' ').next()?.parse().ok()).unwrap_or(0.0)
}

fn stolen_ms() -> f64 {
    text("/proc/stat").as_deref().and_then(steal_ms).unwrap_or(0.0)
}

fn timing() -> String {
    let slack = text("/proc/self/timerslack_ns").map_or_else(unknown, |slack| format!("{slack} ns"));
    let number = |name: &str| text(format!("/proc/sys/kernel/{name}"));
    let throttling = match (number("sched_rt_runtime_us"), number("sched_rt_period_us")) {
        (Some(runtime), _) if runtime == "-1" => "real-time threads unlimited".to_owned(),
        (Some(runtime), Some(period)) => format!("real-time threads {runtime} of {period} us"),
        _ => "limit of real-time threads unknown".to_owned(),
    };
    let fair = text("/sys/kernel/debug/sched/fair_server/cpu0/runtime")
        .map_or_else(|| "fair server unknown".to_owned(), |runtime| format!("fair server {runtime} ns per second"));
    format!("timer slack {slack}; {throttling}; {fair}")
}

/// Returns the date and time of a number of seconds since 1970, by Hinnant's algorithm for civil
/// dates.
fn date(seconds: u64) -> String {
    let days = seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = year + era * 400 + u64::from(month <= 2);
    let rest = seconds % 86_400;
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02} UTC", rest / 3600, rest % 3600 / 60)
}

fn unknown() -> String {
    "unknown".to_owned()
}

fn text(path: impl AsRef<Path>) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

fn field(lines: &str, name: &str) -> Option<String> {
    let mut pairs = lines.lines().filter_map(|line| line.split_once(':'));
    pairs.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim_end().to_owned()).map(|value| {
        // A blank precedes each flag, because callers search for a flag with its preceding blank.
        if name == "flags" { value } else { value.trim_start().to_owned() }
    })
}

fn preemption() -> String {
    let version = text("/proc/sys/kernel/version").unwrap_or_default();
    // The active model is in parentheses, as in "none voluntary (full) lazy".
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
        Some(Scheduling::Idle) => "SCHED_IDLE".to_owned(),
        Some(Scheduling::Deadline(_)) => "SCHED_DEADLINE".to_owned(),
        None => unknown(),
    }
}

fn realtime_threads() -> Vec<String> {
    let own = std::process::id().to_string();
    let mut found = Vec::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let id = process.file_name().to_string_lossy().into_owned();
        let is_process = id.bytes().all(|byte| byte.is_ascii_digit());
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

fn realtime(stat: &str) -> Option<String> {
    let name = stat.split_once('(')?.1.rsplit_once(')')?.0;
    // The text after the name begins with field 3; the priority is field 40, and the policy is
    // field 41.
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
    fn environment_of_this_machine_has_a_text_for_every_property() {
        let environment = Environment::read(&Placement::default(), "not held");
        assert!(!environment.cores.is_empty());
        assert_ne!(environment.kernel, "unknown");
        let record = environment.record(JsonObject::new()).finish();
        let parsed: serde_json::Value = serde_json::from_str(&record).unwrap();
        for name in ["kernel", "preemption", "clock", "idle_states", "scheduling", "pinning"] {
            assert!(parsed[name].as_str().is_some_and(|text| !text.is_empty()), "{name} in {record}");
        }
    }

    #[test]
    fn only_threads_of_realtime_classes_are_listed() {
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
    fn seconds_are_formatted_as_calendar_dates() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(date(1_735_689_599), "2024-12-31 23:59 UTC");
    }

    #[test]
    fn high_load_average_gives_a_warning() {
        let mut environment = Environment::read(&Placement::default(), "held");
        environment.load_average = 0.1;
        assert!(!environment.describe().contains("warning"));
        environment.load_average = 1.9;
        assert!(environment.describe().contains("warning"), "{}", environment.describe());
    }
}
