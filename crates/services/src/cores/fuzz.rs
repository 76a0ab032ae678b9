//! Entry point for fuzzing: a function over bytes that must return for any input.

use corelane::rt::JobOverrunAction;
use corelane_sched::allocation::{Discipline, Machine};
use corelane_sched::task::{CoreId, Criticality, MAX_PERIOD, MIN_PERIOD, Nanos, TaskId, Timing, Utilization};

use super::MemoryTaskRegistry;
use super::registry::{
    ChainAdmission, ChainId, ClientName, CoreUse, RegistryLimits, RegistryRefusal, RegistrySnapshot, TaskRegistry,
    TaskRequest, TaskToken,
};

const MAX_STEPS: u32 = 1 << 10;
const MAX_TASKS: usize = 12;

/// Reads numbers from the input; 0 after its end.
struct Numbers<'i>(&'i [u8]);

impl Numbers<'_> {
    fn octet(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// Returns a time: a limit of the task registry, any number, or a multiple of 0.1 ms.
    fn time(&mut self) -> Nanos {
        match self.octet() {
            0 => 0,
            1 => 1,
            2 => Nanos::MAX,
            3 => MIN_PERIOD,
            4 => MIN_PERIOD - 1,
            5 => MAX_PERIOD,
            6 => MAX_PERIOD + 1,
            7 => Nanos::from_le_bytes(std::array::from_fn(|_| self.octet())),
            octet => Nanos::from(octet) * MIN_PERIOD,
        }
    }

    fn timing(&mut self) -> Timing {
        let (execution, period) = (self.time(), self.time());
        let timing = Timing::new(execution, period);
        match self.octet() % 3 {
            0 => timing,
            1 => timing.with_deadline(self.time()),
            _ => Timing {
                deadline: self.time(),
                jitter: self.time(),
                blocking: self.time(),
                min_interarrival: self.time(),
                ..timing
            },
        }
    }

    fn core(&mut self) -> CoreId {
        CoreId { core: u32::from(self.octet() % 4), ..CoreId::default() }
    }

    fn request(&mut self) -> TaskRequest {
        let options = self.octet();
        TaskRequest {
            name: "n".repeat(usize::from(options & 3) * 32),
            operation: String::new(),
            timing: self.timing(),
            criticality: [Criticality::Low, Criticality::Normal, Criticality::High][usize::from(options >> 2 & 3) % 3],
            pinned_core: (options & 0x10 != 0).then(|| self.core()),
            lease: if options & 0x20 != 0 { self.time() } else { 0 },
            overrun_action: JobOverrunAction::Report,
        }
    }
}

/// Asks a task registry in memory for tasks with arbitrary times, changes and ends these tasks, and
/// loses and returns cores, at arbitrary times.
///
/// # Panics
/// If a time out of range is not refused; if, in a task registry that never lost a core, the tasks
/// that have begun and the last jobs of earlier tasks have more than the capacity of a core; or if
/// the task registry has more tasks than their limit.
pub fn task_requests(input: &[u8]) {
    let mut numbers = Numbers(input);
    let settings = numbers.octet();
    let mut machine = Machine::with_cores(1 + u32::from(settings & 1));
    machine.max_steps = MAX_STEPS;
    if settings & 2 != 0 {
        machine.discipline = Discipline::EarliestDeadlineFirst;
    }
    let limits = RegistryLimits {
        max_tasks: MAX_TASKS,
        max_decisions_per_second: 64,
        max_pending_decisions: 2,
        ..RegistryLimits::default()
    };
    let mut registry = MemoryTaskRegistry::new(machine, limits);
    let (client, token) = (ClientName("a".into()), TaskToken([1; 16]));
    let (mut now, mut chain, mut has_lost) = (0, ChainId(0), false);
    while !numbers.0.is_empty() {
        let operation = numbers.octet();
        let task = TaskId(u64::from(operation >> 4));
        match operation & 0xf {
            0..=3 => {
                let request = numbers.request();
                let decided = registry.admit(&request, &client, token, now);
                check_refusal(&request.timing, decided.as_ref().err());
            }
            4 => {
                let timing = numbers.timing();
                let changed = registry.change_timing(task, token, timing, now);
                assert!(changed.is_err() || timing.check().is_ok(), "{timing:?}");
            }
            5 => drop(registry.renew(task, token, numbers.time(), now)),
            6 => drop(registry.withdraw(task, token, now)),
            8 => {
                let lost: Vec<CoreId> = (0..operation >> 6).map(|_| numbers.core()).collect();
                has_lost |= !lost.is_empty();
                let _ = registry.set_lost_cores(&lost, now);
            }
            9 | 10 => now = now.saturating_add(numbers.time()),
            11 => {
                if let Some(pending) = registry.next_pending_decision(now) {
                    registry.apply_decision(pending.decide(), now);
                }
            }
            12 => {
                let stages: Vec<TaskRequest> = (0..operation >> 6).map(|_| numbers.request()).collect();
                if let Ok(ChainAdmission::Reserved(reserved, _)) = registry.reserve_chain(&stages, &client, token, now)
                {
                    chain = reserved;
                    assert!(stages.iter().all(|stage| stage.timing.check().is_ok()), "{stages:?}");
                }
            }
            13 => drop(registry.commit_chain(chain, token, now)),
            14 => drop(registry.cancel_chain(chain, token, now)),
            _ => drop(registry.pending_outcome(task, token, now)),
        }
        let snapshot = registry.snapshot(now);
        assert!(snapshot.tasks.len() <= MAX_TASKS, "{snapshot:?}");
        assert!(has_lost || snapshot.cores.iter().all(|core| fits(core, &snapshot, now)), "{now}: {snapshot:?}");
        let _ = (registry.take_ended_tasks(now), registry.next_expiry());
    }
}

/// Returns true if the core has room for the tasks that have begun. A task that begins later may
/// take the room of a job that ends earlier.
fn fits(core: &CoreUse, snapshot: &RegistrySnapshot, now: Nanos) -> bool {
    let later = snapshot.tasks.iter().filter(|record| record.core == Some(core.core) && record.starts_at > now);
    let later = later.fold(Utilization::default(), |sum, record| sum.saturating_add(record.task.timing.utilization()));
    // The utilization of each task is rounded up here, and down in the test of the capacity.
    let rounding = Utilization(4 * MAX_TASKS as u64);
    core.used_by_tasks <= core.capacity.saturating_add(later).saturating_add(rounding)
}

fn check_refusal(timing: &Timing, refusal: Option<&RegistryRefusal>) {
    if timing.check().is_err() {
        let is_named =
            matches!(refusal, Some(RegistryRefusal::TimingOutOfRange(_) | RegistryRefusal::FieldOutOfRange("name", _)));
        assert!(is_named, "{timing:?}: {refusal:?}");
    }
}
