//! Cost of a period of work: processor time, context switches, and time stolen from the machine.

use std::fs;
use std::path::Path;

use corelane_sys::usage;

use crate::json::Object;

/// Cost of a period of work, or of all time since the processes and the machine started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cost {
    /// Processor time of the client's process, in microseconds.
    pub(crate) client_us: f64,
    /// Processor time of the server's process, in microseconds.
    pub(crate) server_us: f64,
    /// Context switches of both processes because they waited.
    pub(crate) voluntary: u64,
    /// Context switches of both processes because the kernel ran another thread instead.
    pub(crate) involuntary: u64,
    /// Time that the hypervisor gave to other machines, over all cores, in milliseconds. The kernel
    /// counts it in steps of 10.
    pub(crate) steal_ms: f64,
}

impl Cost {
    /// Returns the cost so far. Without a process id the client is this process.
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
            voluntary: voluntary + more_voluntary,
            involuntary: involuntary + more_involuntary,
            steal_ms: fs::read_to_string("/proc/stat").ok().as_deref().and_then(steal_ms).unwrap_or(0.0),
        }
    }

    #[must_use]
    pub(crate) fn since(self, earlier: Cost) -> Cost {
        Cost {
            client_us: (self.client_us - earlier.client_us).max(0.0),
            server_us: (self.server_us - earlier.server_us).max(0.0),
            voluntary: self.voluntary.saturating_sub(earlier.voluntary),
            involuntary: self.involuntary.saturating_sub(earlier.involuntary),
            steal_ms: (self.steal_ms - earlier.steal_ms).max(0.0),
        }
    }

    pub(crate) fn add(&mut self, other: Cost) {
        self.client_us += other.client_us;
        self.server_us += other.server_us;
        self.voluntary += other.voluntary;
        self.involuntary += other.involuntary;
        self.steal_ms += other.steal_ms;
    }

    /// Adds the cost to a record of `calls` calls: times per call, the other values as totals.
    pub(crate) fn record(&self, object: Object, calls: usize) -> Object {
        let calls = calls.max(1) as f64;
        object
            .number("client_cpu_us", self.client_us / calls)
            .number("server_cpu_us", self.server_us / calls)
            .whole("voluntary_switches", self.voluntary)
            .whole("involuntary_switches", self.involuntary)
            .number("steal_ms", self.steal_ms)
    }
}

/// Returns the processor time of a process in microseconds, and the voluntary and involuntary
/// switches of its living threads.
fn of_process(id: u32) -> (f64, u64, u64) {
    let time = usage::process_time(id).unwrap_or_default().as_secs_f64() * 1e6;
    let mut sum = (time, 0, 0);
    let tasks = fs::read_dir(Path::new("/proc").join(id.to_string()).join("task"));
    for task in tasks.into_iter().flatten().flatten() {
        let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let (voluntary, involuntary) = switches(&status);
        sum = (sum.0, sum.1 + voluntary, sum.2 + involuntary);
    }
    sum
}

/// Parses the voluntary and involuntary switches of a thread from its status (proc_pid_status(5)).
pub(crate) fn switches(status: &str) -> (u64, u64) {
    let number = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.trim().parse().ok()).unwrap_or(0)
    };
    (number("voluntary_ctxt_switches:"), number("nonvoluntary_ctxt_switches:"))
}

/// Parses the eighth number of the first line of /proc/stat. Its unit is 10 ms on every Linux
/// (USER_HZ).
pub(crate) fn steal_ms(stat: &str) -> Option<f64> {
    let ticks: f64 = stat.lines().next()?.split_whitespace().nth(8)?.parse().ok()?;
    Some(ticks * 10.0)
}

/// Returns the total and the private resident memory of a process in KiB. NaN if the kernel does
/// not report it.
pub(crate) fn resident(pid: u32) -> [f64; 2] {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    ["VmRSS:", "RssAnon:"].map(|name| memory(&status, name))
}

/// Parses a number of KiB from the status of a process (proc_pid_status(5)). NaN if there is none.
fn memory(status: &str, name: &str) -> f64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.trim().strip_suffix(" kB")?.trim().parse().ok()).unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_files_are_read_right() {
        assert_eq!(steal_ms("cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 0"), Some(80.0));
        assert_eq!(steal_ms("cpu  1 2"), None);
        assert_eq!(switches("a:\t1\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n"), (12, 3));
        assert_eq!(switches(""), (0, 0));
        let status = "VmHWM:\t  9 kB\nVmRSS:\t    4312 kB\nRssAnon:\t     104 kB\nThreads:\t1\n";
        assert_eq!(["VmRSS:", "RssAnon:"].map(|name| memory(status, name)), [4312.0, 104.0]);
        assert!(["RssFile:", "Threads:"].iter().all(|name| memory(status, name).is_nan()));
    }

    #[test]
    fn resident_memory_is_the_sum_of_its_parts() {
        // One reading: between two of them other tests take and return memory.
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let parts = ["RssAnon:", "RssFile:", "RssShmem:"].map(|name| memory(&status, name));
        assert_eq!(memory(&status, "VmRSS:"), parts.iter().sum::<f64>(), "{status}");
        let [all, private] = resident(std::process::id());
        assert!(all > private && private > 0.0, "{all} {private}");
        // No process has the number 0.
        assert!(resident(0).iter().all(|size| size.is_nan()));
    }

    #[test]
    fn work_of_this_process_is_seen_from_inside_and_outside() {
        let own = std::process::id();
        let work = || {
            let (inside, outside) = (Cost::so_far(None, None), Cost::so_far(Some(own), Some(own)));
            let began = std::time::Instant::now();
            while began.elapsed().as_millis() < 40 {
                std::hint::spin_loop();
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
            (Cost::so_far(None, None).since(inside), Cost::so_far(Some(own), Some(own)).since(outside))
        };
        // If a thread of another test ends, its switches are missing from the sum.
        let undisturbed = (0..100).map(|_| work()).find(|(_, outside)| outside.voluntary >= 2);
        let (inside, outside) = undisturbed.expect("threads of other tests do not end all the time");
        assert!(inside.client_us > 1000.0 && inside.server_us == 0.0, "{inside:?}");
        assert!(outside.client_us > 1000.0 && outside.server_us > 1000.0, "{outside:?}");
        let mut sum = inside;
        sum.add(inside);
        assert_eq!(sum.client_us, 2.0 * inside.client_us);
        assert_eq!(inside.since(sum), Cost::default());
    }
}
