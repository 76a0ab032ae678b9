//! Cost of a period of work: processor time, context switches, and time taken by the hypervisor.

use std::fs;
use std::path::Path;

use corelane_sys::usage;

use crate::json::JsonObject;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cost {
    pub(crate) client_us: f64,
    pub(crate) server_us: f64,
    pub(crate) voluntary_switches: u64,
    pub(crate) involuntary_switches: u64,
    /// Time in milliseconds that the hypervisor took from the cores for other machines. The kernel
    /// counts in steps of 10 ms.
    pub(crate) steal_ms: f64,
}

impl Cost {
    /// Returns the cost of two processes since their starts, and the stolen time since the
    /// machine's start. `client` and `server` are process ids; if `client` is `None`, the client is
    /// this process.
    #[must_use]
    pub(crate) fn so_far(client: Option<u32>, server: Option<u32>) -> Cost {
        let own = || {
            let usage = usage::process_usage().unwrap_or_default();
            let time = usage.user + usage.system;
            (time.as_secs_f64() * 1e6, usage.voluntary_switches, usage.involuntary_switches)
        };
        let (client_us, voluntary, involuntary) = client.map_or_else(own, of_process);
        let (server_us, more_voluntary, more_involuntary) = server.map_or((0.0, 0, 0), of_process);
        Cost {
            client_us,
            server_us,
            voluntary_switches: voluntary + more_voluntary,
            involuntary_switches: involuntary + more_involuntary,
            steal_ms: fs::read_to_string("/proc/stat").ok().as_deref().and_then(steal_ms).unwrap_or(0.0),
        }
    }

    #[must_use]
    pub(crate) fn since(self, earlier: Cost) -> Cost {
        Cost {
            client_us: (self.client_us - earlier.client_us).max(0.0),
            server_us: (self.server_us - earlier.server_us).max(0.0),
            voluntary_switches: self.voluntary_switches.saturating_sub(earlier.voluntary_switches),
            involuntary_switches: self.involuntary_switches.saturating_sub(earlier.involuntary_switches),
            steal_ms: (self.steal_ms - earlier.steal_ms).max(0.0),
        }
    }

    pub(crate) fn add(&mut self, other: Cost) {
        self.client_us += other.client_us;
        self.server_us += other.server_us;
        self.voluntary_switches += other.voluntary_switches;
        self.involuntary_switches += other.involuntary_switches;
        self.steal_ms += other.steal_ms;
    }

    pub(crate) fn record(&self, object: JsonObject, calls: usize) -> JsonObject {
        let calls = calls.max(1) as f64;
        object
            .number("client_cpu_us", self.client_us / calls)
            .number("server_cpu_us", self.server_us / calls)
            .integer("voluntary_switches", self.voluntary_switches)
            .integer("involuntary_switches", self.involuntary_switches)
            .number("steal_ms", self.steal_ms)
    }
}

/// Returns the processor time of the process in microseconds, and the voluntary and involuntary
/// context switches of its living threads.
fn of_process(id: u32) -> (f64, u64, u64) {
    let time = usage::process_time(id).unwrap_or_default().as_secs_f64() * 1e6;
    let mut sum = (time, 0, 0);
    let tasks = fs::read_dir(Path::new("/proc").join(id.to_string()).join("task"));
    for task in tasks.into_iter().flatten().flatten() {
        let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let (voluntary, involuntary) = context_switches(&status);
        sum = (sum.0, sum.1 + voluntary, sum.2 + involuntary);
    }
    sum
}

/// Returns the voluntary and the involuntary context switches in the text of a thread's status file
/// (proc_pid_status(5)).
pub(crate) fn context_switches(status: &str) -> (u64, u64) {
    let number = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.trim().parse().ok()).unwrap_or(0)
    };
    (number("voluntary_ctxt_switches:"), number("nonvoluntary_ctxt_switches:"))
}

/// Returns the stolen time of all cores in milliseconds. It is the eighth number in the first line
/// of /proc/stat, in units of 10 ms (USER_HZ).
pub(crate) fn steal_ms(stat: &str) -> Option<f64> {
    let ticks: f64 = stat.lines().next()?.split_whitespace().nth(8)?.parse().ok()?;
    Some(ticks * 10.0)
}

/// Returns the resident memory of a process in KiB, and its private (anonymous) part; NaN if the
/// kernel does not report them.
pub(crate) fn resident_memory_kib(pid: u32) -> [f64; 2] {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    ["VmRSS:", "RssAnon:"].map(|name| memory(&status, name))
}

fn memory(status: &str, name: &str) -> f64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.trim().strip_suffix(" kB")?.trim().parse().ok()).unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_switches_and_memory_are_parsed() {
        assert_eq!(steal_ms("cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 0"), Some(80.0));
        assert_eq!(steal_ms("cpu  1 2"), None);
        assert_eq!(context_switches("a:\t1\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n"), (12, 3));
        assert_eq!(context_switches(""), (0, 0));
        let status = "VmHWM:\t  9 kB\nVmRSS:\t    4312 kB\nRssAnon:\t     104 kB\nThreads:\t1\n";
        assert_eq!(["VmRSS:", "RssAnon:"].map(|name| memory(status, name)), [4312.0, 104.0]);
        assert!(["RssFile:", "Threads:"].iter().all(|name| memory(status, name).is_nan()));
    }

    #[test]
    fn resident_memory_is_the_sum_of_its_kinds() {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let parts = ["RssAnon:", "RssFile:", "RssShmem:"].map(|name| memory(&status, name));
        assert_eq!(memory(&status, "VmRSS:"), parts.iter().sum::<f64>(), "{status}");
        let [all, private] = resident_memory_kib(std::process::id());
        assert!(all > private && private > 0.0, "{all} {private}");
        assert!(resident_memory_kib(0).iter().all(|size| size.is_nan()));
    }

    #[test]
    fn cost_is_measured_for_this_process_and_by_process_id() {
        let own = std::process::id();
        let work = || {
            let (inside, outside) = (Cost::so_far(None, None), Cost::so_far(Some(own), Some(own)));
            let began = usage::thread_time();
            while usage::thread_time() - began < std::time::Duration::from_millis(40) {}
            std::thread::sleep(std::time::Duration::from_millis(1));
            (Cost::so_far(None, None).since(inside), Cost::so_far(Some(own), Some(own)).since(outside))
        };
        // The sum counts living threads only. The work is repeated, because a thread of another
        // test may end and leave the sum.
        let undisturbed = (0..100).map(|_| work()).find(|(_, outside)| outside.voluntary_switches >= 2);
        let (inside, outside) = undisturbed.expect("one of 100 attempts is undisturbed");
        assert!(inside.client_us > 1000.0 && inside.server_us == 0.0, "{inside:?}");
        assert!(outside.client_us > 1000.0 && outside.server_us > 1000.0, "{outside:?}");
        let mut sum = inside;
        sum.add(inside);
        assert_eq!(sum.client_us, 2.0 * inside.client_us);
        assert_eq!(inside.since(sum), Cost::default());
    }
}
