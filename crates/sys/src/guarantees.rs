//! Which real-time guarantees this machine gives to this process, found by looking and trying.
//!
//! [`report`] never changes anything that lasts: what has to be tried is tried on a thread of its own, which then ends.
//! Text is for people; programs go by [`Guarantee::name`] and [`Guarantee::holds`].

use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use crate::thread::{Builder, Reservation, Scheduling};
use crate::{call, memory, poll};

/// Whether a guarantee holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Holds {
    /// It holds.
    Yes,
    /// It does not.
    No,
    /// The machine does not say, or the process may not look.
    Unknown,
}

/// One guarantee.
#[derive(Clone, Debug)]
pub struct Guarantee {
    /// A name that does not change, such as `scheduling-class`.
    pub name: &'static str,
    /// Whether it holds here and now.
    pub holds: Holds,
    /// What was found, for people.
    pub found: String,
    /// What it is good for and what to change where it does not hold, for people.
    pub advice: &'static str,
}

/// Looks at everything that is known to matter.
pub fn report() -> Vec<Guarantee> {
    vec![
        scheduling_class(),
        deadline_class(),
        priority_inheritance(),
        memory_lock(),
        rt_throttling(),
        fair_server(),
        rt_group_scheduling(),
        preemption(),
        clock_source(),
        isolated_cores(),
        cpu_budget(),
        timer_slack(),
        idle_states(),
        panic_isolation(),
    ]
}

fn scheduling_class() -> Guarantee {
    let tried = Builder::new().name("guarantees").scheduling(Scheduling::Fifo(1)).spawn(|| ());
    let limit = match memory::priority_limit() {
        Ok(Some(limit)) => format!("RLIMIT_RTPRIO {limit}"),
        Ok(None) => "no RLIMIT_RTPRIO".into(),
        Err(error) => error.to_string(),
    };
    let (holds, found) = match tried {
        Ok(thread) => {
            let _ = thread.join();
            (Holds::Yes, format!("SCHED_FIFO is permitted ({limit})"))
        }
        Err(error) => (Holds::No, format!("SCHED_FIFO is refused: {error} ({limit})")),
    };
    Guarantee {
        name: "scheduling-class",
        holds,
        found,
        advice: "Threads run at fixed priorities. Grant CAP_SYS_NICE, or raise RLIMIT_RTPRIO (`rtprio` in \
                 limits.conf, `LimitRTPRIO=` in a systemd unit).",
    }
}

fn deadline_class() -> Guarantee {
    let period = Duration::from_millis(100);
    let reservation = Reservation { runtime: Duration::from_micros(100), deadline: period, period };
    let tried = Builder::new().name("guarantees").scheduling(Scheduling::Deadline(reservation)).spawn(|| ());
    let (holds, found) = match tried {
        Ok(thread) => {
            let _ = thread.join();
            (Holds::Yes, "SCHED_DEADLINE is permitted".to_owned())
        }
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            (Holds::No, "SCHED_DEADLINE has no processor time left to promise".to_owned())
        }
        Err(error) => (Holds::No, format!("SCHED_DEADLINE is refused: {error}")),
    };
    Guarantee {
        name: "deadline-class",
        holds,
        found,
        advice: "Lanes can reserve processor time. Grant CAP_SYS_NICE, and run the process where its threads may use \
                 all cores that the scheduler balances over.",
    }
}

fn priority_inheritance() -> Guarantee {
    let release = kernel_release();
    let holds = since(release.as_deref(), (5, 14));
    Guarantee {
        name: "priority-inheritance",
        holds,
        found: format!("Linux {}", release.as_deref().unwrap_or("of unknown release")),
        advice: "Locks that wait until a monotonic deadline hand priority to their holder (FUTEX_LOCK_PI2). \
                 Linux 5.14 or later.",
    }
}

fn memory_lock() -> Guarantee {
    const CAP_IPC_LOCK: u32 = 14;
    let privileged = effective_capabilities().map(|capabilities| capabilities >> CAP_IPC_LOCK & 1 == 1);
    let (holds, found) = match (privileged, memory::lock_limit()) {
        (Some(true), _) => (Holds::Yes, "CAP_IPC_LOCK: any amount may be locked".to_owned()),
        (_, Ok(None)) => (Holds::Yes, "RLIMIT_MEMLOCK is unlimited".to_owned()),
        (_, Ok(Some(limit))) => (Holds::No, format!("at most {} KiB may be locked", limit / 1024)),
        (_, Err(error)) => (Holds::Unknown, error.to_string()),
    };
    Guarantee {
        name: "memory-lock",
        holds,
        found,
        advice: "All memory can be kept from being paged out. Grant CAP_IPC_LOCK, or raise RLIMIT_MEMLOCK \
                 (`memlock` in limits.conf, `LimitMEMLOCK=` in a systemd unit).",
    }
}

fn rt_throttling() -> Guarantee {
    let runtime = number("/proc/sys/kernel/sched_rt_runtime_us");
    let period = number("/proc/sys/kernel/sched_rt_period_us");
    let (holds, found) = match (runtime, period) {
        (Some(-1), _) => (Holds::Yes, "real-time threads are not throttled".to_owned()),
        (Some(runtime), Some(period)) if runtime >= period => {
            (Holds::Yes, format!("{runtime} of {period} us: real-time threads may use all time"))
        }
        (Some(runtime), Some(period)) => {
            (Holds::No, format!("real-time threads may use {runtime} us of every {period} us"))
        }
        _ => (Holds::Unknown, "the kernel does not say".to_owned()),
    };
    Guarantee {
        name: "no-rt-throttling",
        holds,
        found,
        advice: "Real-time threads are never stopped for others. `sysctl kernel.sched_rt_runtime_us=-1`, if no \
                 real-time thread can spin for ever; or keep the load below the limit.",
    }
}

fn fair_server() -> Guarantee {
    let release = kernel_release();
    let (holds, found) = if since(release.as_deref(), (6, 12)) == Holds::No {
        (Holds::Yes, "this kernel has none".to_owned())
    } else {
        match number("/sys/kernel/debug/sched/fair_server/cpu0/runtime") {
            Some(0) => (Holds::Yes, "switched off (on core 0)".to_owned()),
            Some(runtime) => (Holds::No, format!("ordinary threads are owed {} us of every second", runtime / 1000)),
            None if release.is_some() => {
                (Holds::No, "in force, by default 50 ms of every second for ordinary threads".to_owned())
            }
            None => (Holds::Unknown, "the kernel does not say".to_owned()),
        }
    };
    Guarantee {
        name: "no-fair-server",
        holds,
        found,
        advice: "Since Linux 6.12 a core that runs only real-time threads is taken from them for up to 50 ms. \
                 Leave a tenth of each core idle, or write 0 to \
                 /sys/kernel/debug/sched/fair_server/cpu*/runtime.",
    }
}

fn rt_group_scheduling() -> Guarantee {
    let configured = kernel_release().and_then(|release| kernel_option(&release, "CONFIG_RT_GROUP_SCHED"));
    let (holds, found) = match configured {
        Some(false) => (Holds::Yes, "the kernel has none".to_owned()),
        Some(true) => (Holds::No, "the kernel gives real-time time to groups".to_owned()),
        None if Path::new("/sys/fs/cgroup/cpu/cpu.rt_runtime_us").exists() => {
            (Holds::No, "the kernel gives real-time time to groups".to_owned())
        }
        None => (Holds::Unknown, "the kernel's configuration is not there to read".to_owned()),
    };
    Guarantee {
        name: "no-rt-group-scheduling",
        holds,
        found,
        advice: "With CONFIG_RT_GROUP_SCHED a group without a budget runs no real-time thread, and one with a \
                 budget is throttled. Boot with rt_group_sched=0, or give the group a budget.",
    }
}

fn preemption() -> Guarantee {
    let version = text("/proc/sys/kernel/version").unwrap_or_default();
    // The model in parentheses is the one in force: "none voluntary (full) lazy".
    let in_force = text("/sys/kernel/debug/sched/preempt")
        .and_then(|models| Some(models.split_once('(')?.1.split_once(')')?.0.to_owned()));
    let (holds, found) = if text("/sys/kernel/realtime").as_deref() == Some("1") || version.contains("PREEMPT_RT") {
        (Holds::Yes, "PREEMPT_RT: nearly all of the kernel can be preempted".to_owned())
    } else if let Some(model) = in_force {
        (Holds::No, format!("{model} (chosen at boot)"))
    } else if version.contains("PREEMPT_DYNAMIC") {
        (Holds::No, "PREEMPT_DYNAMIC: chosen at boot, not a real-time kernel".to_owned())
    } else if version.contains("PREEMPT") {
        (Holds::No, "PREEMPT: the kernel can be preempted except in critical sections".to_owned())
    } else if version.is_empty() {
        (Holds::Unknown, "the kernel does not say".to_owned())
    } else {
        (Holds::No, "the kernel is not preempted while it works for another thread".to_owned())
    };
    Guarantee {
        name: "kernel-preemption",
        holds,
        found,
        advice: "The kernel lets go of a core within tens of microseconds. Use a PREEMPT_RT kernel; next best, \
                 boot with preempt=full.",
    }
}

fn clock_source() -> Guarantee {
    let source = text("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    let (holds, found) = match source.as_deref() {
        Some(name @ ("tsc" | "kvm-clock" | "arch_sys_counter" | "hyperv_clocksource_tsc_page")) => {
            (Holds::Yes, format!("{name}: read in user space"))
        }
        Some(name @ ("hpet" | "acpi_pm" | "jiffies" | "refined-jiffies" | "pit" | "xen")) => {
            (Holds::No, format!("{name}: each reading is a system call, or worse"))
        }
        Some(name) => (Holds::Unknown, name.to_owned()),
        None => (Holds::Unknown, "the kernel does not say".to_owned()),
    };
    Guarantee {
        name: "clock-source",
        holds,
        found,
        advice: "The clock is read in tens of nanoseconds without entering the kernel. Boot with clocksource=tsc \
                 (and tsc=reliable) where the processor has a constant one.",
    }
}

fn isolated_cores() -> Guarantee {
    let isolated = text("/sys/devices/system/cpu/isolated").unwrap_or_default();
    let tickless = text("/sys/devices/system/cpu/nohz_full").unwrap_or_default();
    let named = |list: &str| !list.is_empty() && !list.contains("null");
    let (holds, found) = match (named(&isolated), named(&tickless)) {
        (false, _) => (Holds::No, "no core is isolated".to_owned()),
        (true, false) => (Holds::Yes, format!("cores {isolated} are isolated, none without tick")),
        (true, true) => (Holds::Yes, format!("cores {isolated} are isolated, {tickless} without tick")),
    };
    Guarantee {
        name: "isolated-cores",
        holds,
        found,
        advice: "Some cores run nothing but what is bound to them. Boot with isolcpus=, nohz_full= and \
                 rcu_nocbs=, or make an isolated cpuset partition.",
    }
}

fn cpu_budget() -> Guarantee {
    let group = text("/proc/self/cgroup")
        .and_then(|groups| Some(groups.lines().find_map(|line| line.strip_prefix("0::"))?.to_owned()));
    let (holds, found) = match group {
        None => (Holds::Unknown, "the process is in no unified control group".to_owned()),
        Some(group) => match tightest_budget(&group) {
            None => (Holds::Yes, format!("no budget on {group} or above")),
            Some(budget) => (Holds::No, budget),
        },
    };
    Guarantee {
        name: "no-cpu-budget",
        holds,
        found,
        advice: "Ordinary threads of the process are not stopped when a budget of its control group is used up. \
                 Set cpu.max to `max` (`CPUQuota=` in a systemd unit, `--cpus` of a container).",
    }
}

/// The first budget from the group upwards.
fn tightest_budget(group: &str) -> Option<String> {
    Path::new(group).ancestors().find_map(|group| {
        let directory = Path::new("/sys/fs/cgroup").join(group.strip_prefix("/").unwrap_or(group));
        let budget = fs::read_to_string(directory.join("cpu.max")).ok()?;
        let (quota, period) = budget.trim().split_once(' ')?;
        (quota != "max").then(|| format!("{quota} us of every {period} us for {}", group.display()))
    })
}

fn timer_slack() -> Guarantee {
    let tried = Builder::new().name("guarantees").spawn(|| {
        poll::sharpen_timers();
        // SAFETY: the call takes no pointers.
        call::once(|| unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) })
    });
    let slack = tried.and_then(|thread| thread.join().unwrap_or(Ok(-1)));
    let (holds, found) = match slack {
        Ok(1) => (Holds::Yes, "1 ns on threads that wait for a precise deadline".to_owned()),
        Ok(slack) => (Holds::No, format!("{slack} ns, and it cannot be changed")),
        Err(error) => (Holds::Unknown, error.to_string()),
    };
    Guarantee {
        name: "timer-slack",
        holds,
        found,
        advice: "Deadlines of ordinary threads are not put off to spare wake-ups. Nothing needs to be set: \
                 threads set it themselves.",
    }
}

fn idle_states() -> Guarantee {
    let driver = text("/sys/devices/system/cpu/cpuidle/current_driver");
    let device = fs::OpenOptions::new().write(true).open("/dev/cpu_dma_latency");
    let (holds, found) = match (driver.as_deref(), device) {
        (_, Ok(_)) => (Holds::Yes, "/dev/cpu_dma_latency can be held".to_owned()),
        (None | Some("none"), Err(_)) => (Holds::Unknown, "idle states are not the kernel's to choose".to_owned()),
        (Some(driver), Err(error)) => (Holds::No, format!("driver {driver}; /dev/cpu_dma_latency: {error}")),
    };
    Guarantee {
        name: "idle-states",
        holds,
        found,
        advice: "Cores can be kept from sleeping so deeply that waking them takes long. Let the process write \
                 /dev/cpu_dma_latency, or boot with a bound such as intel_idle.max_cstate=1.",
    }
}

fn panic_isolation() -> Guarantee {
    let (holds, found) = if cfg!(panic = "abort") {
        (Holds::No, "the program is built with panic=abort")
    } else {
        (Holds::Yes, "the program is built with panic=unwind")
    };
    Guarantee {
        name: "panic-isolation",
        holds,
        found: found.to_owned(),
        advice: "A panic in a servant fails its own request and nothing else. Build with panic=unwind.",
    }
}

fn text(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

fn number(path: &str) -> Option<i64> {
    text(path)?.parse().ok()
}

fn kernel_release() -> Option<String> {
    text("/proc/sys/kernel/osrelease")
}

/// Whether the release is the one given or a later one.
fn since(release: Option<&str>, (major, minor): (u32, u32)) -> Holds {
    let parsed = release.and_then(|release| {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    });
    match parsed {
        Some(parsed) if parsed >= (major, minor) => Holds::Yes,
        Some(_) => Holds::No,
        None => Holds::Unknown,
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
    fn every_guarantee_is_told_once_with_advice() {
        let report = report();
        let names: std::collections::BTreeSet<_> = report.iter().map(|guarantee| guarantee.name).collect();
        assert_eq!(names.len(), report.len());
        for guarantee in &report {
            assert!(!guarantee.found.is_empty() && !guarantee.advice.contains("  "), "{guarantee:?}");
        }
        let slack = report.iter().find(|guarantee| guarantee.name == "timer-slack").unwrap();
        assert_eq!(slack.holds, Holds::Yes, "{slack:?}");
    }

    #[test]
    fn releases_compare_as_numbers() {
        assert_eq!(since(Some("6.18.44-fc-v595"), (6, 12)), Holds::Yes);
        assert_eq!(since(Some("6.9.1"), (6, 12)), Holds::No);
        assert_eq!(since(Some("5.14"), (5, 14)), Holds::Yes);
        assert_eq!(since(Some("odd"), (5, 14)), Holds::Unknown);
        assert_eq!(since(None, (5, 14)), Holds::Unknown);
    }
}
