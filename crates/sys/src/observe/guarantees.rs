//! Checks of the real-time guarantees that this machine gives to this process.
//!
//! [`report`] makes no lasting change: a trial that changes a thread runs on a thread of its own,
//! which then ends.

use std::path::Path;
use std::time::Duration;
use std::{fmt, fs, io};

use super::kernel_release;
use crate::thread::{self, CpuSet, Reservation, Scheduling, ThreadBuilder};
use crate::{memory, poll, syscall};

/// The state of a guarantee on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GuaranteeStatus {
    /// The machine gives the guarantee.
    Met,
    /// The machine does not give the guarantee.
    NotMet,
    /// The machine does not report the state, or the process may not read it.
    Unknown,
}

/// A real-time guarantee that a machine may give to a process: its name and its check.
#[derive(Clone, Copy)]
pub struct Guarantee {
    name: &'static str,
    property: &'static str,
    remedy: &'static str,
    check: fn() -> (GuaranteeStatus, String),
}

impl Guarantee {
    /// Fixed priorities (SCHED_FIFO) are permitted.
    pub const FIXED_PRIORITIES: Guarantee = Guarantee::new(
        "scheduling-class",
        "Threads run at fixed priorities.",
        "Grant CAP_SYS_NICE, or raise RLIMIT_RTPRIO (`rtprio` in limits.conf, `LimitRTPRIO=` in a systemd \
                 unit).",
        scheduling_class,
    );
    /// Threads can be bound to every core that is online.
    pub const CORE_AFFINITY: Guarantee = Guarantee::new(
        "core-affinity",
        "Threads can be bound to every core of the machine, as core pools do.",
        "Let the control group of the process (cpuset.cpus, `AllowedCPUs=` in a systemd unit, `--cpuset-cpus` of a \
                 container) contain the cores.",
        core_affinity,
    );
    /// Threads can have reservations of processor time (SCHED_DEADLINE).
    pub const DEADLINE_CLASS: Guarantee = Guarantee::new(
        "deadline-class",
        "Lanes can reserve processor time.",
        "Grant CAP_SYS_NICE, and run the process where its threads may use all cores that the scheduler \
                 balances over.",
        deadline_class,
    );
    /// The holder of a lock inherits the priority of the threads that wait for the lock with a
    /// monotonic deadline.
    pub const PRIORITY_INHERITANCE: Guarantee = Guarantee::new(
        "priority-inheritance",
        "Locks that wait until a monotonic deadline hand priority to their holder (FUTEX_LOCK_PI2).",
        "Use Linux 5.14 or later.",
        priority_inheritance,
    );
    /// All memory of the process can be locked.
    pub const MEMORY_LOCK: Guarantee = Guarantee::new(
        "memory-lock",
        "All memory can be kept from being paged out.",
        "Grant CAP_IPC_LOCK, or raise RLIMIT_MEMLOCK (`memlock` in limits.conf, `LimitMEMLOCK=` in a \
                 systemd unit).",
        memory_lock,
    );
    /// The kernel does not throttle real-time threads.
    pub const NO_RT_THROTTLING: Guarantee = Guarantee::new(
        "no-rt-throttling",
        "The kernel never stops real-time threads in favour of ordinary threads.",
        "Set `sysctl kernel.sched_rt_runtime_us=-1` if no real-time thread can spin for ever, or keep the \
                 load below the limit.",
        rt_throttling,
    );
    /// The kernel never takes a core from real-time threads to run ordinary threads.
    pub const NO_FAIR_SERVER: Guarantee = Guarantee::new(
        "no-fair-server",
        "The kernel never takes a core from real-time threads to run ordinary threads.",
        "Linux 6.12 and later take a core for up to 50 ms of each second: leave a tenth of each core idle, or write 0 to \
                 /sys/kernel/debug/sched/fair_server/cpu*/runtime.",
        fair_server,
    );
    /// Real-time threads need no budget of their control group.
    pub const NO_RT_GROUP_SCHEDULING: Guarantee = Guarantee::new(
        "no-rt-group-scheduling",
        "Real-time threads need no budget of their control group.",
        "Boot with rt_group_sched=0, or give the group a budget: with CONFIG_RT_GROUP_SCHED a group \
                 without a budget runs no real-time thread, and a group with a budget is throttled.",
        rt_group_scheduling,
    );
    /// The kernel can be preempted nearly everywhere (PREEMPT_RT).
    pub const KERNEL_PREEMPTION: Guarantee = Guarantee::new(
        "kernel-preemption",
        "The kernel gives a core to a more urgent thread within tens of microseconds.",
        "Use a PREEMPT_RT kernel; next best, boot with preempt=full.",
        preemption,
    );
    /// Reading the clock needs no system call.
    pub const FAST_CLOCK_SOURCE: Guarantee = Guarantee::new(
        "clock-source",
        "The clock is read in tens of nanoseconds without entering the kernel.",
        "Boot with clocksource=tsc (and tsc=reliable) if the processor has a constant time-stamp counter.",
        clock_source,
    );
    /// The kernel keeps some cores free of threads that are not bound to them.
    pub const ISOLATED_CORES: Guarantee = Guarantee::new(
        "isolated-cores",
        "Some cores run only the threads that are bound to them.",
        "Boot with isolcpus=, nohz_full= and rcu_nocbs=, or make an isolated cpuset partition.",
        isolated_cores,
    );
    /// No control group bounds the processor time of the process.
    pub const NO_CPU_BUDGET: Guarantee = Guarantee::new(
        "no-cpu-budget",
        "Ordinary threads of the process are not stopped when a budget of its control group is used up.",
        "Set cpu.max to `max` (`CPUQuota=` in a systemd unit, `--cpus` of a container).",
        cpu_budget,
    );
    /// The process can remove the delay of its ordinary threads' timers.
    pub const MINIMAL_TIMER_SLACK: Guarantee = Guarantee::new(
        "timer-slack",
        "The kernel does not delay the timers of ordinary threads to save wake-ups.",
        "Let the process set its timer slack: each thread with a deadline sets it to 1 ns.",
        timer_slack,
    );
    /// The process can keep cores out of deep idle states.
    pub const BOUNDED_IDLE_STATES: Guarantee = Guarantee::new(
        "idle-states",
        "The process can keep cores out of deep idle states, from which a wake-up takes long.",
        "Let the process write /dev/cpu_dma_latency, or boot with a bound such as intel_idle.max_cstate=1.",
        idle_states,
    );
    /// A panic unwinds, so that it ends one request and not the process.
    pub const PANIC_ISOLATION: Guarantee = Guarantee::new(
        "panic-isolation",
        "A panic in a servant fails its own request and nothing else.",
        "Build with panic=unwind.",
        panic_isolation,
    );

    /// All guarantees of this module, in the order in which `corelane doctor` shows them.
    pub const ALL: [Guarantee; 15] = [
        Guarantee::FIXED_PRIORITIES,
        Guarantee::CORE_AFFINITY,
        Guarantee::DEADLINE_CLASS,
        Guarantee::PRIORITY_INHERITANCE,
        Guarantee::MEMORY_LOCK,
        Guarantee::NO_RT_THROTTLING,
        Guarantee::NO_FAIR_SERVER,
        Guarantee::NO_RT_GROUP_SCHEDULING,
        Guarantee::KERNEL_PREEMPTION,
        Guarantee::FAST_CLOCK_SOURCE,
        Guarantee::ISOLATED_CORES,
        Guarantee::NO_CPU_BUDGET,
        Guarantee::MINIMAL_TIMER_SLACK,
        Guarantee::BOUNDED_IDLE_STATES,
        Guarantee::PANIC_ISOLATION,
    ];

    /// Creates a guarantee with a stable `name`. `property` is a sentence that states the
    /// guarantee. `remedy` is a sentence that says how to change the machine so that the guarantee
    /// is met. `check` returns the state and its finding, and makes no lasting change.
    #[must_use]
    pub const fn new(
        name: &'static str,
        property: &'static str,
        remedy: &'static str,
        check: fn() -> (GuaranteeStatus, String),
    ) -> Self {
        Guarantee { name, property, remedy, check }
    }

    /// Returns the guarantee of [`ALL`](Self::ALL) with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Guarantee> {
        Guarantee::ALL.into_iter().find(|guarantee| guarantee.name == name)
    }

    /// Returns the stable name, such as `scheduling-class`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Checks the guarantee and returns the result. The check reads the state of the machine or of
    /// the program, or makes a trial.
    #[must_use]
    pub fn check(&self) -> GuaranteeReport {
        let (status, finding) = (self.check)();
        GuaranteeReport { name: self.name, status, finding, property: self.property, remedy: self.remedy }
    }
}

impl fmt::Debug for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Guarantee").field(&self.name).finish()
    }
}

impl fmt::Display for Guarantee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// The result of checking a [`Guarantee`].
#[derive(Clone, Debug)]
pub struct GuaranteeReport {
    /// The stable name of the guarantee.
    pub name: &'static str,
    /// The state of the guarantee on this machine, now.
    pub status: GuaranteeStatus,
    /// The finding of the check, for people.
    pub finding: String,
    /// The property that the guarantee gives, for people.
    pub property: &'static str,
    /// The change that makes the guarantee hold, for people.
    pub remedy: &'static str,
}

/// Checks every guarantee of [`Guarantee::ALL`], and returns the results in the same order.
pub fn report() -> Vec<GuaranteeReport> {
    Guarantee::ALL.iter().map(Guarantee::check).collect()
}

fn core_affinity() -> (GuaranteeStatus, String) {
    let online = thread::online_cores();
    let tried = |core| ThreadBuilder::new().name("guarantees").affinity(CpuSet::one(core)).spawn(|| ());
    let refused: Vec<String> = (0..online)
        .filter_map(|core| match tried(core) {
            Ok(thread) => {
                let _ = thread.join();
                None
            }
            Err(error) => Some(format!("core {core}: {error}")),
        })
        .collect();
    match refused.is_empty() {
        true => (GuaranteeStatus::Met, format!("threads can be bound to each of {online} cores")),
        false => (GuaranteeStatus::NotMet, refused.join("; ")),
    }
}

fn scheduling_class() -> (GuaranteeStatus, String) {
    let tried = ThreadBuilder::new().name("guarantees").scheduling(Scheduling::Fifo(1)).spawn(|| ());
    let limit = match memory::priority_limit() {
        Ok(Some(limit)) => format!("RLIMIT_RTPRIO {limit}"),
        Ok(None) => "no RLIMIT_RTPRIO".into(),
        Err(error) => error.to_string(),
    };
    let (holds, found) = match tried {
        Ok(thread) => {
            let _ = thread.join();
            (GuaranteeStatus::Met, format!("SCHED_FIFO is permitted ({limit})"))
        }
        Err(error) => (GuaranteeStatus::NotMet, format!("SCHED_FIFO is refused: {error} ({limit})")),
    };
    (holds, found)
}

fn deadline_class() -> (GuaranteeStatus, String) {
    let period = Duration::from_millis(100);
    let reservation = Reservation { runtime: Duration::from_micros(100), deadline: period, period };
    let tried = ThreadBuilder::new().name("guarantees").scheduling(Scheduling::Deadline(reservation)).spawn(|| ());
    let (holds, found) = match tried {
        Ok(thread) => {
            let _ = thread.join();
            (GuaranteeStatus::Met, "SCHED_DEADLINE is permitted".to_owned())
        }
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            (GuaranteeStatus::NotMet, "SCHED_DEADLINE has no processor time left to promise".to_owned())
        }
        Err(error) => (GuaranteeStatus::NotMet, format!("SCHED_DEADLINE is refused: {error}")),
    };
    (holds, found)
}

fn priority_inheritance() -> (GuaranteeStatus, String) {
    let release = kernel_release::text();
    let holds = since(release.as_deref(), (5, 14));
    (holds, format!("Linux {}", release.as_deref().unwrap_or("of unknown release")))
}

fn memory_lock() -> (GuaranteeStatus, String) {
    const CAP_IPC_LOCK: u32 = 14;
    let privileged = effective_capabilities().map(|capabilities| capabilities >> CAP_IPC_LOCK & 1 == 1);
    let (holds, found) = match (privileged, memory::lock_limit()) {
        (Some(true), _) => (GuaranteeStatus::Met, "CAP_IPC_LOCK: any amount may be locked".to_owned()),
        (_, Ok(None)) => (GuaranteeStatus::Met, "RLIMIT_MEMLOCK is unlimited".to_owned()),
        (_, Ok(Some(limit))) => (GuaranteeStatus::NotMet, format!("at most {} KiB may be locked", limit / 1024)),
        (_, Err(error)) => (GuaranteeStatus::Unknown, error.to_string()),
    };
    (holds, found)
}

fn rt_throttling() -> (GuaranteeStatus, String) {
    let runtime = number("/proc/sys/kernel/sched_rt_runtime_us");
    let period = number("/proc/sys/kernel/sched_rt_period_us");
    let (holds, found) = match (runtime, period) {
        (Some(-1), _) => (GuaranteeStatus::Met, "real-time threads are not throttled".to_owned()),
        (Some(runtime), Some(period)) if runtime >= period => {
            (GuaranteeStatus::Met, format!("{runtime} of {period} us: real-time threads may use all time"))
        }
        (Some(runtime), Some(period)) => {
            (GuaranteeStatus::NotMet, format!("real-time threads may use {runtime} us of every {period} us"))
        }
        _ => (GuaranteeStatus::Unknown, "the kernel does not report this".to_owned()),
    };
    (holds, found)
}

fn fair_server() -> (GuaranteeStatus, String) {
    let release = kernel_release::text();
    let (holds, found) = if since(release.as_deref(), (6, 12)) == GuaranteeStatus::NotMet {
        (GuaranteeStatus::Met, "this kernel has no fair server".to_owned())
    } else {
        match number("/sys/kernel/debug/sched/fair_server/cpu0/runtime") {
            Some(0) => (GuaranteeStatus::Met, "switched off on core 0".to_owned()),
            Some(runtime) => (
                GuaranteeStatus::NotMet,
                format!("ordinary threads get {} us of every second (core 0)", runtime / 1000),
            ),
            None if release.is_some() => {
                (GuaranteeStatus::NotMet, "ordinary threads get time, by default 50 ms of every second".to_owned())
            }
            None => (GuaranteeStatus::Unknown, "the kernel does not report this".to_owned()),
        }
    };
    (holds, found)
}

fn rt_group_scheduling() -> (GuaranteeStatus, String) {
    let configured = kernel_release::text().and_then(|release| kernel_option(&release, "CONFIG_RT_GROUP_SCHED"));
    let (holds, found) = match configured {
        Some(false) => (GuaranteeStatus::Met, "the kernel has no group scheduling of real-time threads".to_owned()),
        Some(true) => (GuaranteeStatus::NotMet, "each control group needs a budget for real-time threads".to_owned()),
        None if Path::new("/sys/fs/cgroup/cpu/cpu.rt_runtime_us").exists() => {
            (GuaranteeStatus::NotMet, "each control group needs a budget for real-time threads".to_owned())
        }
        None => (GuaranteeStatus::Unknown, "the kernel's configuration cannot be read".to_owned()),
    };
    (holds, found)
}

fn preemption() -> (GuaranteeStatus, String) {
    let version = text("/proc/sys/kernel/version").unwrap_or_default();
    // The active model is in parentheses, as in "none voluntary (full) lazy".
    let in_force = text("/sys/kernel/debug/sched/preempt")
        .and_then(|models| Some(models.split_once('(')?.1.split_once(')')?.0.to_owned()));
    let (holds, found) = if text("/sys/kernel/realtime").as_deref() == Some("1") || version.contains("PREEMPT_RT") {
        (GuaranteeStatus::Met, "PREEMPT_RT: nearly all of the kernel can be preempted".to_owned())
    } else if let Some(model) = in_force {
        (GuaranteeStatus::NotMet, format!("{model} (chosen at boot)"))
    } else if version.contains("PREEMPT_DYNAMIC") {
        (GuaranteeStatus::NotMet, "PREEMPT_DYNAMIC: chosen at boot, not a real-time kernel".to_owned())
    } else if version.contains("PREEMPT") {
        (GuaranteeStatus::NotMet, "PREEMPT: the kernel can be preempted except in critical sections".to_owned())
    } else if version.is_empty() {
        (GuaranteeStatus::Unknown, "the kernel does not report this".to_owned())
    } else {
        (GuaranteeStatus::NotMet, "the kernel is not preempted while it works for another thread".to_owned())
    };
    (holds, found)
}

fn clock_source() -> (GuaranteeStatus, String) {
    let source = text("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    let (holds, found) = match source.as_deref() {
        Some(name @ ("tsc" | "kvm-clock" | "arch_sys_counter" | "hyperv_clocksource_tsc_page")) => {
            (GuaranteeStatus::Met, format!("{name}: read in user space"))
        }
        Some(name @ ("hpet" | "acpi_pm" | "jiffies" | "refined-jiffies" | "pit" | "xen")) => {
            (GuaranteeStatus::NotMet, format!("{name}: each reading is a system call, or worse"))
        }
        Some(name) => (GuaranteeStatus::Unknown, name.to_owned()),
        None => (GuaranteeStatus::Unknown, "the kernel does not report this".to_owned()),
    };
    (holds, found)
}

fn isolated_cores() -> (GuaranteeStatus, String) {
    let isolated = text("/sys/devices/system/cpu/isolated").unwrap_or_default();
    let tickless = text("/sys/devices/system/cpu/nohz_full").unwrap_or_default();
    let named = |list: &str| !list.is_empty() && !list.contains("null");
    let (holds, found) = match (named(&isolated), named(&tickless)) {
        (false, _) => (GuaranteeStatus::NotMet, "no core is isolated".to_owned()),
        (true, false) => {
            (GuaranteeStatus::Met, format!("cores {isolated} are isolated; no core runs without the clock tick"))
        }
        (true, true) => (
            GuaranteeStatus::Met,
            format!("cores {isolated} are isolated; cores {tickless} run without the clock tick"),
        ),
    };
    (holds, found)
}

fn cpu_budget() -> (GuaranteeStatus, String) {
    let group = text("/proc/self/cgroup")
        .and_then(|groups| Some(groups.lines().find_map(|line| line.strip_prefix("0::"))?.to_owned()));
    let (holds, found) = match group {
        None => (GuaranteeStatus::Unknown, "the process is in no unified control group".to_owned()),
        Some(group) => match nearest_budget(&group) {
            None => (GuaranteeStatus::Met, format!("no budget on {group} or above")),
            Some(budget) => (GuaranteeStatus::NotMet, budget),
        },
    };
    (holds, found)
}

fn nearest_budget(group: &str) -> Option<String> {
    Path::new(group).ancestors().find_map(|group| {
        let directory = Path::new("/sys/fs/cgroup").join(group.strip_prefix("/").unwrap_or(group));
        let budget = fs::read_to_string(directory.join("cpu.max")).ok()?;
        let (quota, period) = budget.trim().split_once(' ')?;
        (quota != "max").then(|| format!("{quota} us of every {period} us for {}", group.display()))
    })
}

fn timer_slack() -> (GuaranteeStatus, String) {
    let tried = ThreadBuilder::new().name("guarantees").spawn(|| {
        poll::minimize_timer_slack();
        // SAFETY: the call takes no pointers.
        syscall::once(|| unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) })
    });
    let slack = tried.and_then(|thread| thread.join().unwrap_or(Ok(-1)));
    let (holds, found) = match slack {
        Ok(1) => (GuaranteeStatus::Met, "1 ns on threads that wait for a precise deadline".to_owned()),
        Ok(slack) => (GuaranteeStatus::NotMet, format!("{slack} ns, and it cannot be changed")),
        Err(error) => (GuaranteeStatus::Unknown, error.to_string()),
    };
    (holds, found)
}

fn idle_states() -> (GuaranteeStatus, String) {
    let driver = text("/sys/devices/system/cpu/cpuidle/current_driver");
    let device = fs::OpenOptions::new().write(true).open("/dev/cpu_dma_latency");
    let (holds, found) = match (driver.as_deref(), device) {
        (_, Ok(_)) => (GuaranteeStatus::Met, "the process can open /dev/cpu_dma_latency".to_owned()),
        (None | Some("none"), Err(_)) => {
            (GuaranteeStatus::Unknown, "the kernel does not choose the idle states of this machine".to_owned())
        }
        (Some(driver), Err(error)) => {
            (GuaranteeStatus::NotMet, format!("driver {driver}; /dev/cpu_dma_latency: {error}"))
        }
    };
    (holds, found)
}

fn panic_isolation() -> (GuaranteeStatus, String) {
    let (holds, found) = if cfg!(panic = "abort") {
        (GuaranteeStatus::NotMet, "the program is built with panic=abort")
    } else {
        (GuaranteeStatus::Met, "the program is built with panic=unwind")
    };
    (holds, found.to_owned())
}

fn text(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

fn number(path: &str) -> Option<i64> {
    text(path)?.parse().ok()
}

fn since(release: Option<&str>, (major, minor): (u32, u32)) -> GuaranteeStatus {
    match release.and_then(kernel_release::numbers) {
        Some(parsed) if parsed >= (major, minor) => GuaranteeStatus::Met,
        Some(_) => GuaranteeStatus::NotMet,
        None => GuaranteeStatus::Unknown,
    }
}

fn kernel_option(release: &str, option: &str) -> Option<bool> {
    let options = fs::read_to_string(format!("/boot/config-{release}")).ok()?;
    let set = options.lines().any(|line| line.strip_prefix(option).is_some_and(|rest| rest == "=y"));
    Some(set)
}

fn effective_capabilities() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_guarantee_states_its_property_and_a_remedy() {
        let report = report();
        let names: std::collections::BTreeSet<_> = report.iter().map(|guarantee| guarantee.name).collect();
        assert_eq!(names.len(), report.len());
        for guarantee in &report {
            assert!(!guarantee.finding.is_empty(), "{guarantee:?}");
            for text in [guarantee.property, guarantee.remedy] {
                assert!(text.ends_with('.') && !text.contains("  "), "{guarantee:?}");
            }
        }
        let slack = report.iter().find(|guarantee| guarantee.name == "timer-slack").unwrap();
        assert_eq!(slack.status, GuaranteeStatus::Met, "{slack:?}");
    }

    #[test]
    fn documentation_names_exactly_the_guarantees() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/real-time.md");
        let page = fs::read_to_string(page).unwrap();
        let (mut rows, mut others) = (std::collections::BTreeSet::new(), Vec::new());
        for line in page.lines() {
            let is_name = |word: &&str| {
                word.contains('-') && word.chars().all(|character| character.is_ascii_lowercase() || character == '-')
            };
            let named = |mark| line.split(mark).skip(1).step_by(2).filter(is_name).map(str::to_owned);
            if let Some(name) = line.strip_prefix("| `").and_then(|row| row.split('`').next()).filter(is_name) {
                rows.insert(name.to_owned());
            }
            others.extend(named('`').chain(named('"')));
        }
        let known: std::collections::BTreeSet<String> =
            report().iter().map(|guarantee| guarantee.name.to_owned()).collect();
        assert_eq!(rows, known);
        let unknown: Vec<&String> = others.iter().filter(|name| !known.contains(*name)).collect();
        assert_eq!(unknown, [""; 0]);
    }

    #[test]
    fn releases_compare_as_numbers() {
        assert_eq!(since(Some("6.18.44-fc-v595"), (6, 12)), GuaranteeStatus::Met);
        assert_eq!(since(Some("6.9.1"), (6, 12)), GuaranteeStatus::NotMet);
        assert_eq!(since(Some("5.14"), (5, 14)), GuaranteeStatus::Met);
        assert_eq!(since(Some("odd"), (5, 14)), GuaranteeStatus::Unknown);
        assert_eq!(since(None, (5, 14)), GuaranteeStatus::Unknown);
    }
}
