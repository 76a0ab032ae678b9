use std::fs;

use corelane_sys::guarantees::{self, GuaranteeReport, GuaranteeStatus};

pub(super) struct Machine {
    pub(super) kernel: String,
    pub(super) cores: usize,
    pub(super) guarantees: Vec<GuaranteeReport>,
    at_start: Option<Ticks>,
}

#[derive(Clone, Copy)]
struct Ticks {
    idle: u64,
    /// Time that the host gave to other virtual machines.
    stolen: u64,
    all: u64,
}

impl Machine {
    pub(super) fn look() -> Self {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Machine {
            kernel: format!("Linux {}", release.trim()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            guarantees: guarantees::report(),
            at_start: None,
        }
    }

    pub(super) fn begin(&mut self) {
        self.at_start = ticks();
    }

    pub(super) fn split(&self) -> (Vec<&GuaranteeReport>, Vec<&GuaranteeReport>) {
        self.guarantees.iter().partition(|guarantee| guarantee.status == GuaranteeStatus::Met)
    }

    pub(super) fn is_real_time(&self) -> bool {
        self.guarantees
            .iter()
            .any(|guarantee| guarantee.name == "scheduling-class" && guarantee.status == GuaranteeStatus::Met)
    }

    /// Returns the percentages of idle and of stolen time of the cores since
    /// [`begin`](Self::begin), for all programs of the machine.
    pub(super) fn idle_and_stolen(&self) -> Option<(f64, f64)> {
        let (before, after) = (self.at_start?, ticks()?);
        let all = after.all.saturating_sub(before.all);
        let part = |before, after: u64| after.saturating_sub(before) as f64 * 100.0 / all as f64;
        (all > 0).then(|| (part(before.idle, after.idle), part(before.stolen, after.stolen)))
    }
}

fn ticks() -> Option<Ticks> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let numbers: Vec<u64> =
        stat.lines().next()?.split_whitespace().skip(1).map_while(|word| word.parse().ok()).collect();
    // The columns of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal. Guest time
    // follows, but the first two columns already include it.
    let idle = numbers.get(3)? + numbers.get(4)?;
    Some(Ticks { idle, stolen: *numbers.get(7)?, all: numbers.iter().take(8).sum() })
}
