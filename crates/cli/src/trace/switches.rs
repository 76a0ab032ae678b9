//! Preemptions of threads by the kernel, from the tracepoint `sched_switch`.
//!
//! Preemptions are recorded if tracefs is present and writable. The capture has a separate trace
//! instance, so that it does not affect other tracing.

use std::fs;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Preemption {
    pub(super) thread: u32,
    /// Start of the preemption, in nanoseconds of the monotonic clock, with a resolution of a
    /// microsecond.
    pub(super) from: u64,
    /// End of the preemption, in the unit of `from`.
    pub(super) until: u64,
    pub(super) by: String,
}

pub(super) struct PreemptionCapture {
    instance: PathBuf,
}

impl PreemptionCapture {
    /// Starts the capture. Returns `None` if tracefs is missing or not writable.
    pub(super) fn start() -> Option<Self> {
        let instance = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"].into_iter().find_map(|base| {
            let instance = Path::new(base).join("instances").join(format!("corelane-{}", std::process::id()));
            fs::create_dir(&instance).is_ok().then_some(instance)
        })?;
        let capture = PreemptionCapture { instance };
        let write = |file: &str, text: &str| fs::write(capture.instance.join(file), text).is_ok();
        let begun =
            write("trace_clock", "mono") && write("events/sched/sched_switch/enable", "1") && write("tracing_on", "1");
        begun.then_some(capture)
    }

    pub(super) fn finish(self) -> Vec<Preemption> {
        let _ = fs::write(self.instance.join("tracing_on"), "0");
        preemptions(&fs::read_to_string(self.instance.join("trace")).unwrap_or_default())
    }
}

impl Drop for PreemptionCapture {
    fn drop(&mut self) {
        let _ = fs::write(self.instance.join("events/sched/sched_switch/enable"), "0");
        let _ = fs::remove_dir(&self.instance);
    }
}

struct ContextSwitch<'l> {
    at: u64,
    from: u32,
    ready: bool,
    to: u32,
    to_name: &'l str,
}

fn preemptions(trace: &str) -> Vec<Preemption> {
    let switches: Vec<ContextSwitch<'_>> = trace.lines().filter_map(switch).collect();
    let mut found = Vec::new();
    for (index, off) in switches.iter().enumerate().filter(|(_, off)| off.ready && off.from != 0) {
        let back = switches[index + 1..].iter().find(|on| on.to == off.from);
        found.extend(back.map(|on| Preemption {
            thread: off.from,
            from: off.at,
            until: on.at,
            by: off.to_name.to_owned(),
        }));
    }
    found
}

/// Parses a line of the form `NAME-TID [CORE] FLAGS SECONDS: sched_switch: prev_comm=...
/// prev_pid=... prev_prio=... prev_state=... ==> next_comm=... next_pid=... next_prio=...`.
fn switch(line: &str) -> Option<ContextSwitch<'_>> {
    let (head, event) = line.split_once(": sched_switch: ")?;
    let (before, after) = event.split_once(" ==> ")?;
    let number = |text: &str, name: &str| -> Option<u32> { text.rsplit_once(name)?.1.split(' ').next()?.parse().ok() };
    let to_name = after.strip_prefix("next_comm=")?.rsplit_once(" next_pid=")?.0;
    Some(ContextSwitch {
        at: nanoseconds(head.rsplit(' ').next()?)?,
        from: number(before, "prev_pid=")?,
        ready: before.rsplit_once("prev_state=")?.1.starts_with('R'),
        to: number(after, "next_pid=")?,
        to_name,
    })
}

fn nanoseconds(text: &str) -> Option<u64> {
    let (seconds, fraction) = text.split_once('.')?;
    let digits = u32::try_from(fraction.len()).ok().filter(|digits| *digits <= 9)?;
    let fraction: u64 = fraction.parse().ok()?;
    Some(seconds.parse::<u64>().ok()? * 1_000_000_000 + fraction * 10_u64.pow(9 - digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_that_is_ready_but_does_not_run_is_preempted() {
        let line = |at: &str, from: (&str, u32, &str), to: (&str, u32)| {
            format!(
                " {}-{} [001] d..2. {at}: sched_switch: prev_comm={} prev_pid={} prev_prio=120 prev_state={} ==> next_comm={} next_pid={} \
                 next_prio=19\n",
                from.0, from.1, from.0, from.1, from.2, to.0, to.1
            )
        };
        let trace = "# tracer: nop\n".to_owned()
            + &line("100.000010", ("pool/l0", 7, "R+"), ("odd name", 9))
            + &line("100.000015", ("odd name", 9, "S"), ("swapper/1", 0))
            + &line("100.000020", ("swapper/1", 0, "R"), ("pool/l0", 7))
            + &line("100.000030", ("pool/l0", 7, "R"), ("x", 9));
        let expected =
            Preemption { thread: 7, from: 100_000_010_000, until: 100_000_020_000, by: "odd name".to_owned() };
        assert_eq!(preemptions(&trace), [expected]);
        assert_eq!(preemptions("nonsense: sched_switch: x ==> y"), []);
        assert_eq!(nanoseconds("1.5"), Some(1_500_000_000));
        assert_eq!(nanoseconds("1"), None);
    }
}
