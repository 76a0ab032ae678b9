//! The dispatch of admitted tasks: the targets of task references serve their requests, and the
//! core pool runs the requests on the cores of their tasks.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::OnceLock;
use std::time::Duration;

use corelane::ObjectRef;
use corelane::poa::{ObjectId, Poa};
use corelane::rt::{CorePool, TaskBinder, TaskBinding, TaskRules};
use corelane_sched::task::{TaskId, Timing};

use super::registry::{RegistrySnapshot, TaskRecord, TaskState};
use super::task_id::Secrets;

/// The native priority of the most urgent tasks. The priority above it remains for the ORB's thread
/// that lowers overrunning operations.
const HIGHEST_PRIORITY: u32 = 98;

#[derive(Clone, Copy, Debug)]
pub(super) struct DispatchRules {
    pub(super) enforces_rates: bool,
    pub(super) by_deadline: bool,
    /// True if the pool has a share for best effort, within which requests without a task run above
    /// all tasks.
    pub(super) has_share: bool,
}

pub(super) struct TaskDispatch {
    secrets: Secrets,
    poa: Poa,
    pool: Option<CorePool>,
    rules: DispatchRules,
    /// The bindings of the last successful update of the pool.
    bindings: Vec<TaskBinding>,
    /// The demoted tasks of the last successful update of the pool.
    demoted: Vec<u64>,
    /// The tasks whose targets serve the requests to their task references.
    served: BTreeSet<TaskId>,
}

impl TaskDispatch {
    pub(super) fn new(secrets: Secrets, poa: Poa, pool: Option<CorePool>, rules: DispatchRules) -> Self {
        let (bindings, demoted, served) = (Vec::new(), Vec::new(), BTreeSet::new());
        TaskDispatch { secrets, poa, pool, rules, bindings, demoted, served }
    }

    pub(super) fn pool(&self) -> Option<&CorePool> {
        self.pool.as_ref()
    }

    /// Makes the task references and the pool match a snapshot of the task registry. `before` has
    /// the old timings of tasks whose new timings are not saved: the rules of such a task permit
    /// jobs of both timings.
    pub(super) fn update(
        &mut self,
        snapshot: &RegistrySnapshot,
        before: &[(TaskId, Timing)],
        targets: &HashMap<TaskId, ObjectRef>,
    ) {
        // A demoted task has no core, so it has no binding.
        let is_live = |state| matches!(state, TaskState::Promised(_) | TaskState::Demoted(_));
        let promised = || snapshot.tasks.iter().filter(|record| is_live(record.state));
        let live: BTreeSet<TaskId> = promised().map(|record| record.task.id).collect();
        let ended: Vec<TaskId> = self.served.difference(&live).copied().collect();
        for task in ended {
            self.poa.remove_substitute_object(&object_id(&self.secrets, task));
            self.served.remove(&task);
        }
        for task in live.difference(&self.served.clone()) {
            // Some targets cannot be substitutes, for example a plain key that is bound to an
            // object of another server. The servant locator forwards the requests for such targets.
            if let Some(target) = targets.get(task)
                && self.poa.set_substitute_object(&object_id(&self.secrets, *task), target).is_ok()
            {
                self.served.insert(*task);
            }
        }
        let Some(pool) = &self.pool else { return };
        let binding = |record: &TaskRecord| {
            let core = usize::try_from(record.core?.core).ok()?;
            // In deadline order, all threads of tasks wait at the highest priority, even if the
            // pool has a share for best effort.
            let level =
                if self.rules.by_deadline { 0 } else { record.priority_level + u32::from(self.rules.has_share) };
            let priority = HIGHEST_PRIORITY.saturating_sub(level).max(1);
            let before = before.iter().find(|(task, _)| *task == record.task.id);
            let timing = before.map_or(record.task.timing, |(_, before)| laxer(&record.task.timing, before));
            let mut rules = TaskRules::default().budget(Duration::from_nanos(timing.execution), record.overrun_action);
            if self.rules.by_deadline {
                rules = rules.deadline(Duration::from_nanos(timing.deadline));
            }
            if self.rules.enforces_rates {
                rules = rules.rate(Duration::from_nanos(timing.period), Duration::from_nanos(timing.jitter));
            }
            Some(TaskBinding::new(record.task.id.0, core, u8::try_from(priority).ok()?).rules(rules))
        };
        let mut bindings: Vec<TaskBinding> = promised().filter_map(binding).collect();
        keep_priorities(&mut bindings, &self.bindings);
        let is_demoted = |record: &&TaskRecord| matches!(record.state, TaskState::Demoted(_));
        let demoted: Vec<u64> = promised().filter(is_demoted).map(|record| record.task.id.0).collect();
        let is_changed = bindings != self.bindings || demoted != self.demoted;
        if is_changed {
            let limited = promised().filter(|record| !record.operation.is_empty());
            let operations: Vec<_> = limited.map(|record| (record.task.id.0, record.operation.as_str())).collect();
            pool.set_operations(&operations);
        }
        // If the pool refuses the bindings, for example because of a core number above the kernel's
        // maximum, the next update tries again.
        if is_changed && pool.set_tasks_and_demoted(&bindings, &demoted).is_ok() {
            (self.bindings, self.demoted) = (bindings, demoted);
        }
    }
}

/// Keeps the priorities of `before` on each core whose tasks were all there before, if these
/// priorities have the order of the new ones. The kernel can refuse an unnecessary raise, and the
/// refusal would end the promise of a task that only moves up.
fn keep_priorities(bindings: &mut [TaskBinding], before: &[TaskBinding]) {
    let before: HashMap<(usize, u64), u8> =
        before.iter().map(|binding| ((binding.core, binding.task), binding.priority)).collect();
    let earlier = |binding: &TaskBinding| before.get(&(binding.core, binding.task)).copied();
    let mut cores: BTreeMap<usize, Vec<(u8, Option<u8>)>> = BTreeMap::new();
    for binding in bindings.iter() {
        cores.entry(binding.core).or_default().push((binding.priority, earlier(binding)));
    }
    cores.retain(|_, tasks| {
        tasks.sort_unstable();
        let has_order = tasks.windows(2).all(|pair| pair[0].0.cmp(&pair[1].0) == pair[0].1.cmp(&pair[1].1));
        has_order && tasks.iter().all(|(_, earlier)| earlier.is_some())
    });
    for binding in bindings.iter_mut().filter(|binding| cores.contains_key(&binding.core)) {
        binding.priority = earlier(binding).unwrap_or(binding.priority);
    }
}

/// Returns limits that permit the jobs of both timings, with the shorter deadline.
fn laxer(one: &Timing, other: &Timing) -> Timing {
    Timing {
        execution: one.execution.max(other.execution),
        period: one.period.min(other.period),
        deadline: one.deadline.min(other.deadline),
        jitter: one.jitter.max(other.jitter),
        blocking: one.blocking.max(other.blocking),
        min_interarrival: one.min_interarrival.min(other.min_interarrival),
    }
}

fn object_id(secrets: &Secrets, task: TaskId) -> ObjectId {
    ObjectId::from(&secrets.object_id(task)[..])
}

pub(super) struct TaskKeys {
    secrets: Secrets,
    prefix: OnceLock<Box<[u8]>>,
}

impl TaskKeys {
    pub(super) fn new(secrets: Secrets) -> Self {
        TaskKeys { secrets, prefix: OnceLock::new() }
    }

    /// Stores the part of the object keys before the object id. `reference` is any reference of the
    /// POA of task references, and `id` its object id.
    pub(super) fn learn(&self, reference: &ObjectRef, id: &[u8]) {
        let key = reference.ior().known_profiles().next().map(|profile| profile.object_key.to_vec());
        if let Some(prefix) = key.as_deref().and_then(|key| key.strip_suffix(id)) {
            // A second call has no effect.
            let _ = self.prefix.set(prefix.into());
        }
    }
}

impl TaskBinder for TaskKeys {
    fn task_of(&self, object_key: &[u8]) -> Option<u64> {
        let id = object_key.strip_prefix(&**self.prefix.get()?)?;
        self.secrets.task(id).map(|task| task.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_change_only_on_cores_with_new_tasks_or_another_order() {
        let kept = |before: &[(u64, usize, u8)], now: &[(u64, usize, u8)]| {
            let binding = |(task, core, priority): &(u64, usize, u8)| TaskBinding::new(*task, *core, *priority);
            let mut bindings: Vec<TaskBinding> = now.iter().map(binding).collect();
            keep_priorities(&mut bindings, &before.iter().map(binding).collect::<Vec<_>>());
            bindings.iter().map(|binding| binding.priority).collect::<Vec<_>>()
        };
        let before = [(1, 0, 98), (2, 0, 97), (3, 0, 96), (4, 1, 97), (5, 1, 97)];
        // The tasks below an ended task keep their priorities. Each core is judged alone.
        assert_eq!(kept(&before, &[(2, 0, 98), (3, 0, 97), (4, 1, 98), (6, 1, 97)]), [97, 96, 98, 97]);
        assert_eq!(kept(&before, &[(4, 1, 98), (5, 1, 98)]), [97, 97]);
        // A core gets the new priorities if a task comes from another core, or if the order of its
        // tasks changes.
        assert_eq!(kept(&before, &[(1, 1, 98), (5, 1, 97)]), [98, 97]);
        assert_eq!(kept(&before, &[(2, 0, 97), (3, 0, 98)]), [97, 98]);
        assert_eq!(kept(&before, &[(4, 1, 98), (5, 1, 97)]), [98, 97]);
        assert_eq!(kept(&before, &[(2, 0, 98), (3, 0, 98)]), [98, 98]);
    }

    #[test]
    fn laxer_rules_permit_the_jobs_of_both_timings() {
        let one = Timing::new(30, 100).with_deadline(80).with_jitter(5);
        let other = Timing::new(20, 60).with_deadline(90).with_jitter(9);
        let lax = Timing::new(30, 60).with_deadline(80).with_jitter(9);
        assert_eq!([laxer(&one, &other), laxer(&other, &one), laxer(&one, &one)], [lax, lax, one]);
    }
}
