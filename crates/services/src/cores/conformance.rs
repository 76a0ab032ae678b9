//! A conformance suite for implementations of [`TaskRegistry`].

use std::sync::Arc;

use corelane::rt::JobOverrunAction;
use corelane_sched::allocation::{AdmissionTest, Discipline, Machine};
use corelane_sched::random::Random;
use corelane_sched::task::{
    CoreId, Criticality, MAX_PERIOD, MIN_PERIOD, Nanos, TaskId, Timing, TimingField, Utilization,
};

use super::registry::{
    ChainAdmission, ChainId, ClientName, CompletedDecision, LostCoresOutcome, PendingDecision, Promise, RegistryLimits,
    RegistryRefusal, RegistrySnapshot, TaskAdmission, TaskRegistry, TaskRequest, TaskState, TaskToken,
};
use super::simulation::{self, MakeTaskRegistry};
use super::{MemoryTaskRegistry, RECORD_FORMAT, SaveOutcome, StoredTaskRegistry};
use crate::store::MemoryStore;

const MS: Nanos = 1_000_000;
const OWN: TaskToken = TaskToken([1; 16]);

fn client() -> ClientName {
    ClientName("a".into())
}

fn request(execution: Nanos, period: Nanos) -> TaskRequest {
    TaskRequest {
        name: "task".to_owned(),
        operation: String::new(),
        timing: Timing::new(execution, period),
        criticality: Criticality::Normal,
        pinned_core: None,
        lease: 0,
        overrun_action: JobOverrunAction::Report,
    }
}

fn promised(admission: Result<TaskAdmission, RegistryRefusal>) -> Promise {
    match admission {
        Ok(TaskAdmission::Promised(promise)) => promise,
        other => panic!("{other:?}"),
    }
}

fn a_withdrawn_share_is_kept_until_the_last_deadline(make: &MakeTaskRegistry) {
    let mut registry = make(Machine::with_cores(1), RegistryLimits::default());
    let first = promised(registry.admit(&request(60 * MS, 100 * MS), &client(), OWN, 0));
    assert_eq!((first.core.core, first.response, first.starts_at), (0, Some(60 * MS), 0));
    let mut second = |now| registry.admit(&request(50 * MS, 100 * MS), &client(), OWN, now);
    let Ok(TaskAdmission::Rejected(rejection)) = second(5) else { panic!("there is no room") };
    assert_eq!((rejection.test, rejection.excess_utilization), (AdmissionTest::Capacity, Utilization(150_000_000)));
    assert_eq!(rejection.max_fitting_execution, Some(35 * MS));
    assert_eq!(registry.withdraw(first.task, OWN, 10 * MS), Ok(()));
    assert_eq!(registry.withdraw(first.task, OWN, 10 * MS), Err(RegistryRefusal::NotFound));
    assert_eq!(registry.snapshot(10 * MS).tasks[0].state, TaskState::Ending(110 * MS));
    let mut second = |now| registry.admit(&request(50 * MS, 100 * MS), &client(), OWN, now);
    assert!(matches!(second(110 * MS - 1), Ok(TaskAdmission::Rejected(_))));
    promised(second(110 * MS));
    assert_eq!(registry.take_ended_tasks(110 * MS), [first.task]);
}

fn a_lease_ends(make: &MakeTaskRegistry) {
    let limits = RegistryLimits::default();
    let mut registry = make(Machine::with_cores(1), limits.clone());
    let task = promised(registry.admit(&request(MS, 100 * MS), &client(), OWN, 0)).task;
    assert_eq!(registry.renew(task, OWN, Nanos::MAX, 1), Ok(1 + limits.max_lease));
    assert_eq!(registry.renew(task, OWN, 0, 2), Ok(2 + limits.default_lease));
    assert_eq!(registry.next_expiry(), Some(2 + limits.default_lease));
    assert_eq!(registry.renew(task, OWN, 0, 0), Ok(2 + limits.default_lease));
    let end = 2 + limits.default_lease;
    assert_eq!(registry.renew(task, OWN, 0, end), Err(RegistryRefusal::NotFound));
    assert_eq!(registry.take_ended_tasks(end), [task]);
    assert_eq!(registry.snapshot(end).counts.leases_expired, 1);
    assert_eq!(registry.snapshot(end + 100 * MS).tasks, []);
}

fn a_chain_is_reserved_whole_or_not_at_all(make: &MakeTaskRegistry) {
    let mut registry = make(Machine::with_cores(2), RegistryLimits::default());
    let stage = request(60 * MS, 100 * MS);
    let three = vec![stage.clone(); 3];
    let Ok(ChainAdmission::Rejected(2, _)) = registry.reserve_chain(&three, &client(), OWN, 0) else {
        panic!("two tasks must fit")
    };
    let Ok(ChainAdmission::Reserved(chain, promises)) = registry.reserve_chain(&three[..2], &client(), OWN, 0) else {
        panic!("two tasks must fit")
    };
    assert_ne!(promises[0].core, promises[1].core);
    let reservation = RegistryLimits::default().reservation_timeout;
    assert_eq!(registry.commit_chain(chain, OWN, reservation), Err(RegistryRefusal::NotFound));
    assert_eq!((registry.snapshot(reservation).tasks.len(), registry.snapshot(0).counts.reservations_expired), (0, 2));
    assert_eq!(registry.take_ended_tasks(reservation), [promises[0].task, promises[1].task]);
    // No job ran under the lapsed reservation, so its room is free at once.
    let Ok(ChainAdmission::Reserved(chain, _)) = registry.reserve_chain(&three[..2], &client(), OWN, reservation)
    else {
        panic!("two tasks must fit")
    };
    assert_eq!(registry.commit_chain(chain, OWN, reservation).map(|promises| promises.len()), Ok(2));
    assert_eq!(registry.commit_chain(chain, OWN, reservation), Err(RegistryRefusal::NotFound));
    assert_eq!(registry.take_ended_tasks(reservation), []);
    assert!(matches!(
        registry.reserve_chain(&[], &client(), OWN, reservation),
        Err(RegistryRefusal::FieldOutOfRange("stages", _))
    ));
    assert!(matches!(
        registry.reserve_chain(&vec![stage; 33], &client(), OWN, reservation),
        Err(RegistryRefusal::FieldOutOfRange(..))
    ));
}

fn a_change_begins_after_the_last_job_of_the_old_timing(make: &MakeTaskRegistry) {
    let mut registry = make(Machine::with_cores(1), RegistryLimits::default());
    let task = promised(registry.admit(&request(60 * MS, 100 * MS), &client(), OWN, 0)).task;
    let changed = promised(registry.change_timing(task, OWN, Timing::new(10 * MS, 50 * MS), 7 * MS));
    assert_eq!((changed.starts_at, changed.response), (107 * MS, Some(10 * MS)));
    let further = request(50 * MS, 100 * MS);
    assert!(matches!(registry.admit(&further, &client(), OWN, 106 * MS), Ok(TaskAdmission::Rejected(_))));
    promised(registry.admit(&further, &client(), OWN, 107 * MS));
    let too_much = registry.change_timing(task, OWN, Timing::new(30 * MS, 50 * MS), 200 * MS);
    assert!(matches!(too_much, Ok(TaskAdmission::Rejected(_))), "{too_much:?}");
    assert_eq!(registry.snapshot(200 * MS).tasks[0].task.timing, Timing::new(10 * MS, 50 * MS));
}

fn tasks_of_a_lost_core_move_or_are_demoted_until_it_returns(make: &MakeTaskRegistry) {
    let mut registry = make(Machine::with_cores(2), RegistryLimits::default());
    let core = |core| CoreId { core, ..CoreId::default() };
    let pinned = |execution, on| TaskRequest { pinned_core: Some(core(on)), ..request(execution * MS, 100 * MS) };
    let lease = 3_600_000 * MS;
    let filler = promised(registry.admit(&pinned(90, 0), &client(), OWN, 0));
    let low = TaskRequest { criticality: Criticality::Low, lease, ..request(30 * MS, 100 * MS) };
    let low = promised(registry.admit(&low, &client(), OWN, 0));
    let high = TaskRequest { criticality: Criticality::High, lease, ..request(30 * MS, 100 * MS) };
    let high = promised(registry.admit(&high, &client(), OWN, 0));
    let fixed = promised(registry.admit(&TaskRequest { lease, ..pinned(10, 1) }, &client(), OWN, 0));
    assert_eq!([&low, &high, &fixed].map(|promise| promise.core), [core(1); 3]);
    registry.withdraw(filler.task, OWN, MS).unwrap();
    let now = 200 * MS;
    let resident = promised(registry.admit(&TaskRequest { lease, ..pinned(50, 0) }, &client(), OWN, now));
    let change = registry.set_lost_cores(&[core(1)], now);
    let expected = LostCoresOutcome {
        newly_lost_cores: vec![core(1)],
        moved_tasks: vec![high.task],
        demoted_tasks: vec![fixed.task, low.task],
        ..LostCoresOutcome::default()
    };
    assert_eq!(change, expected);
    let cores = |registry: &mut dyn TaskRegistry, now| {
        let tasks = registry.snapshot(now).tasks;
        [high.task, fixed.task, low.task].map(|task| tasks.iter().find(|record| record.task.id == task).unwrap().core)
    };
    assert_eq!(cores(&mut *registry, now), [Some(core(0)), None, None]);
    let snapshot = registry.snapshot(now);
    assert_eq!(snapshot.cores.iter().map(|core| core.capacity.0).collect::<Vec<_>>(), [950_000_000, 0]);
    assert!(
        snapshot.tasks.iter().any(|record| record.task.id == low.task && record.state == TaskState::Demoted(lease))
    );
    registry.renew(low.task, OWN, lease, now).unwrap();
    assert_eq!(registry.pending_outcome(low.task, OWN, now), Err(RegistryRefusal::TaskDisplaced));
    assert_eq!(
        registry.change_timing(low.task, OWN, Timing::new(MS, 100 * MS), now),
        Err(RegistryRefusal::TaskDisplaced)
    );
    assert!(matches!(registry.admit(&pinned(1, 1), &client(), OWN, now), Err(RegistryRefusal::NoSuchCore(..))));
    assert_eq!(registry.set_lost_cores(&[core(1)], now), LostCoresOutcome::default());
    registry.withdraw(resident.task, OWN, now + MS).unwrap();
    assert_eq!(registry.set_lost_cores(&[core(1)], 300 * MS), LostCoresOutcome::default());
    let now = 301 * MS;
    let restored = LostCoresOutcome { restored_tasks: vec![low.task], ..LostCoresOutcome::default() };
    assert_eq!(registry.set_lost_cores(&[core(1)], now), restored);
    assert_eq!(cores(&mut *registry, now), [Some(core(0)), None, Some(core(0))]);
    let change = registry.set_lost_cores(&[], now);
    let expected = LostCoresOutcome {
        returned_cores: vec![core(1)],
        restored_tasks: vec![high.task, fixed.task, low.task],
        ..LostCoresOutcome::default()
    };
    assert_eq!(change, expected);
    assert_eq!(cores(&mut *registry, now), [Some(core(1)); 3]);
    let used = |registry: &mut dyn TaskRegistry, now| {
        registry.snapshot(now).cores.iter().map(|core| core.used_by_tasks.0).collect::<Vec<_>>()
    };
    assert_eq!(used(&mut *registry, now), [600_000_000, 700_000_000]);
    assert_eq!(used(&mut *registry, 401 * MS), [0, 700_000_000]);
    promised(registry.pending_outcome(low.task, OWN, now));
}

fn a_task_that_the_kernel_refuses_stays_demoted_and_frees_its_share(make: &MakeTaskRegistry) {
    let mut registry = make(Machine::with_cores(2), RegistryLimits::default());
    let core = |core| CoreId { core, ..CoreId::default() };
    let lease = 3_600_000 * MS;
    let task = promised(registry.admit(&TaskRequest { lease, ..request(60 * MS, 100 * MS) }, &client(), OWN, 0));
    let other = promised(registry.admit(&TaskRequest { lease, ..request(60 * MS, 100 * MS) }, &client(), OWN, 0));
    assert!(registry.demote(task.task, 10 * MS));
    assert!(!registry.demote(task.task, 10 * MS), "the task has no core any more");
    assert!(!registry.demote(TaskId(1_000), 10 * MS));
    let record = |registry: &mut dyn TaskRegistry, now, of| {
        let tasks = registry.snapshot(now).tasks;
        tasks.into_iter().find(|record| record.task.id == of).map(|record| (record.core, record.state))
    };
    assert_eq!(record(&mut *registry, 10 * MS, task.task), Some((None, TaskState::Demoted(lease))));
    assert_eq!(record(&mut *registry, 10 * MS, other.task), Some((Some(other.core), TaskState::Promised(lease))));
    assert_eq!(registry.pending_outcome(task.task, OWN, 10 * MS), Err(RegistryRefusal::KernelRefused));
    assert_eq!(registry.renew(task.task, OWN, 2 * lease, 10 * MS), Err(RegistryRefusal::KernelRefused));
    let changed = registry.change_timing(task.task, OWN, Timing::new(MS, 100 * MS), 10 * MS);
    assert_eq!(changed, Err(RegistryRefusal::KernelRefused));
    // The last job may run until its deadline, so the task's share is in use until then.
    let pinned = TaskRequest { pinned_core: Some(task.core), ..request(60 * MS, 100 * MS) };
    assert!(matches!(registry.admit(&pinned, &client(), OWN, 110 * MS - 1), Ok(TaskAdmission::Rejected(_))));
    promised(registry.admit(&pinned, &client(), OWN, 110 * MS));
    // A refused task stays demoted, even if a core has room or returns.
    registry.set_lost_cores(&[core(0)], 120 * MS);
    registry.set_lost_cores(&[], 130 * MS);
    assert_eq!(record(&mut *registry, 130 * MS, task.task), Some((None, TaskState::Demoted(lease))));
    assert_eq!(registry.withdraw(task.task, OWN, 140 * MS), Ok(()));
    assert_eq!(record(&mut *registry, 140 * MS, task.task), None);
}

fn a_request_out_of_range_names_its_field(make: &MakeTaskRegistry) {
    let mut registry = make(Machine::with_cores(2), RegistryLimits::default());
    let mut refusal = |request: TaskRequest| registry.admit(&request, &client(), OWN, 0).unwrap_err();
    for (timing, field) in [
        (Timing::new(0, MS), TimingField::Execution),
        (Timing::new(MS, 99_999), TimingField::Period),
        (Timing::new(MS, u64::MAX), TimingField::Period),
        (Timing::new(MS, 2 * MS).with_deadline(u64::MAX), TimingField::Deadline),
        (Timing::new(MS, 2 * MS).with_jitter(u64::MAX), TimingField::Jitter),
    ] {
        let RegistryRefusal::TimingOutOfRange(error) = refusal(TaskRequest { timing, ..request(MS, MS) }) else {
            panic!("{timing:?}")
        };
        assert_eq!(error.field, field);
    }
    for name in [String::new(), "x".repeat(65), "a\nb".to_owned()] {
        let refused = refusal(TaskRequest { name, ..request(1, MS) });
        assert!(matches!(refused, RegistryRefusal::FieldOutOfRange("name", _)), "{refused:?}");
    }
    let operation = "x".repeat(257);
    let refused = refusal(TaskRequest { operation, ..request(1, MS) });
    assert!(matches!(refused, RegistryRefusal::FieldOutOfRange("operation", _)), "{refused:?}");
    let absent = CoreId { core: 7, ..CoreId::default() };
    let refused = refusal(TaskRequest { pinned_core: Some(absent), ..request(1, MS) });
    assert_eq!(refused.to_string(), "core: there is no core 7; there are 0, 1");
}

fn timings_of_every_size_are_decided_or_refused_by_a_field(make: &MakeTaskRegistry) {
    let limits = RegistryLimits { max_decisions_per_second: usize::MAX, ..RegistryLimits::default() };
    let mut random = Random::new(11);
    for discipline in [Discipline::FixedPriority, Discipline::LiuLayland, Discipline::EarliestDeadlineFirst] {
        let mut registry = make(Machine { discipline, ..Machine::with_cores(2) }, limits.clone());
        let mut decided = 0;
        for number in 0..1_000 {
            let mut up_to = |most: u64| random.in_range(0, most >> (number % 40));
            let period = if number % 2 == 0 { up_to(u64::MAX) } else { MIN_PERIOD + up_to(MAX_PERIOD - MIN_PERIOD) };
            let deadline = up_to(period.saturating_mul(2));
            let execution = up_to(period.min(deadline));
            let jitter = up_to(deadline - execution);
            let blocking = up_to(deadline - execution - jitter);
            let timing = Timing { execution, period, deadline, jitter, blocking, min_interarrival: up_to(period) };
            match registry.admit(&TaskRequest { timing, ..request(1, 1) }, &client(), OWN, number) {
                Ok(admission) => {
                    decided += 1;
                    assert_eq!(timing.check(), Ok(()), "{admission:?}");
                    if let TaskAdmission::Promised(promise) = admission {
                        assert!(promise.response.is_none_or(|response| response <= deadline), "{promise:?}");
                    }
                }
                Err(RegistryRefusal::TimingOutOfRange(error)) => assert_eq!(timing.check(), Err(error)),
                Err(RegistryRefusal::TaskQuotaExceeded(_) | RegistryRefusal::UtilizationQuotaExceeded(_)) => {}
                Err(refusal) => panic!("{refusal:?}"),
            }
        }
        assert!(decided > 20, "{decided}");
    }
}

fn rates_and_quotas_are_kept(make: &MakeTaskRegistry) {
    let limits = RegistryLimits { max_decisions_per_second: 5, max_tasks_per_client: 3, ..RegistryLimits::default() };
    let mut registry = make(Machine::with_cores(2), limits);
    let second = 1_000 * MS;
    let mut admit =
        |client: &str, now| registry.admit(&request(MS, 100 * MS), &ClientName(client.into()), OWN, now).map(|_| ());
    assert_eq!([admit("a", 0), admit("a", 0), admit("a", 10), admit("b", 10)], [Ok(()), Ok(()), Ok(()), Ok(())]);
    assert_eq!(admit("a", 10), Err(RegistryRefusal::TaskQuotaExceeded(3)));
    assert_eq!(admit("b", second - 1), Err(RegistryRefusal::RateExceeded(5)));
    assert_eq!([admit("b", second), admit("b", second)], [Ok(()), Ok(())]);
    assert_eq!(admit("c", second), Err(RegistryRefusal::RateExceeded(5)));
    let counts = registry.snapshot(second).counts;
    assert_eq!((counts.promised, counts.refused_over_rate, counts.refused_over_quota), (6, 2, 1));
}

fn a_pending_decision_is_given_up(make: &MakeTaskRegistry) {
    // With more than 8 cores, the search during a request tries only moves and swaps. Further tasks
    // therefore get a pending decision.
    let machine = Machine { max_steps: 1 << 16, ..Machine::with_cores(16) };
    let mut registry = make(machine, RegistryLimits::default());
    for _ in 0..16 {
        promised(registry.admit(&request(60 * MS, 100 * MS), &client(), OWN, 0));
    }
    let Ok(TaskAdmission::Pending(task)) = registry.admit(&request(60 * MS, 100 * MS), &client(), OWN, 1) else {
        panic!("the bounded search is not exhaustive")
    };
    assert_eq!(registry.pending_outcome(task, OWN, 2), Ok(TaskAdmission::Pending(task)));
    assert_eq!(registry.renew(task, OWN, 0, 2), Err(RegistryRefusal::NotAdmittedYet));
    let undecided = registry.next_pending_decision(2).expect("a decision is pending");
    assert_eq!(registry.withdraw(task, OWN, 3), Ok(()));
    registry.apply_decision(undecided.decide(), 4);
    assert_eq!(registry.pending_outcome(task, OWN, 4), Err(RegistryRefusal::NotFound));
    assert!(registry.next_pending_decision(4).is_none());
}

fn attached_octets_end_with_the_task(make: &MakeTaskRegistry) {
    let mut registry = make(Machine::with_cores(1), RegistryLimits::default());
    assert_eq!((registry.server_data(), registry.attached_data()), (&[][..], vec![]));
    registry.set_server_data(b"server");
    let task = promised(registry.admit(&request(MS, 100 * MS), &client(), OWN, 0)).task;
    assert_eq!(registry.attached_data(), [(task, (&[][..]).into())]);
    registry.attach_data(task, b"first");
    registry.attach_data(task, b"second");
    assert_eq!(registry.attached_data(), [(task, (&b"second"[..]).into())]);
    registry.withdraw(task, OWN, 1).unwrap();
    registry.attach_data(task, b"third");
    assert_eq!((registry.server_data(), registry.attached_data()), (&b"server"[..], vec![]));
}

fn a_changed_timing_can_be_changed_again(make: &MakeTaskRegistry) {
    let mut registry = make(Machine::with_cores(1), RegistryLimits::default());
    let task = promised(registry.admit(&request(50 * MS, 100 * MS), &client(), OWN, 0)).task;
    let mut used = |at, execution| {
        promised(registry.change_timing(task, OWN, Timing::new(execution * MS, 100 * MS), at));
        registry.snapshot(at).cores[0].used_by_tasks.0
    };
    assert_eq!([used(MS, 20), used(200 * MS, 10)], [700_000_000, 300_000_000]);
    // No job has used the timing with an execution time of 10 ms, because the timing had not begun.
    // So the timing leaves no share for a last job.
    assert_eq!(used(210 * MS, 30), 500_000_000);
    assert_eq!(registry.snapshot(300 * MS).cores[0].used_by_tasks.0, 300_000_000);
    // A new timing begins after the last job, even if it equals the old timing.
    promised(registry.change_timing(task, OWN, Timing::new(30 * MS, 100 * MS), 400 * MS));
    promised(registry.change_timing(task, OWN, Timing::new(20 * MS, 100 * MS), 401 * MS));
    assert_eq!(registry.snapshot(401 * MS).cores[0].used_by_tasks.0, 500_000_000);
    assert_eq!(registry.snapshot(510 * MS).cores[0].used_by_tasks.0, 200_000_000);
}

pub(super) fn check(make: &MakeTaskRegistry) {
    a_withdrawn_share_is_kept_until_the_last_deadline(make);
    a_lease_ends(make);
    a_chain_is_reserved_whole_or_not_at_all(make);
    a_change_begins_after_the_last_job_of_the_old_timing(make);
    tasks_of_a_lost_core_move_or_are_demoted_until_it_returns(make);
    a_task_that_the_kernel_refuses_stays_demoted_and_frees_its_share(make);
    a_request_out_of_range_names_its_field(make);
    timings_of_every_size_are_decided_or_refused_by_a_field(make);
    rates_and_quotas_are_kept(make);
    a_pending_decision_is_given_up(make);
    attached_octets_end_with_the_task(make);
    a_changed_timing_can_be_changed_again(make);
    simulation::check(make);
}

#[test]
fn simulation_and_conformance_of_a_registry_in_memory() {
    check(&|machine, limits| Box::new(MemoryTaskRegistry::new(machine, limits)) as Box<dyn TaskRegistry>);
}

/// A task registry whose changes are saved at once.
struct SavingTaskRegistry(StoredTaskRegistry);

macro_rules! saving {
    ($($name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        $(fn $name(&mut self, $($argument: $type),*) $(-> $result)? {
            let result = self.0.$name($($argument),*);
            while let Some(step) = self.0.next_save(0) {
                let outcome = self.0.apply_save(step.save(), 0);
                assert!(matches!(outcome, SaveOutcome::Saved), "{outcome:?}");
            }
            result
        })*
    };
}

impl TaskRegistry for SavingTaskRegistry {
    saving! {
        admit(request: &TaskRequest, client: &ClientName, token: TaskToken, now: Nanos) -> Result<TaskAdmission, RegistryRefusal>;
        pending_outcome(task: TaskId, token: TaskToken, now: Nanos) -> Result<TaskAdmission, RegistryRefusal>;
        reserve_chain(stages: &[TaskRequest], client: &ClientName, token: TaskToken, now: Nanos) -> Result<ChainAdmission, RegistryRefusal>;
        commit_chain(chain: ChainId, token: TaskToken, now: Nanos) -> Result<Vec<Promise>, RegistryRefusal>;
        cancel_chain(chain: ChainId, token: TaskToken, now: Nanos) -> Result<(), RegistryRefusal>;
        change_timing(task: TaskId, token: TaskToken, timing: Timing, now: Nanos) -> Result<TaskAdmission, RegistryRefusal>;
        renew(task: TaskId, token: TaskToken, lease: Nanos, now: Nanos) -> Result<Nanos, RegistryRefusal>;
        withdraw(task: TaskId, token: TaskToken, now: Nanos) -> Result<(), RegistryRefusal>;
        snapshot(now: Nanos) -> RegistrySnapshot;
        next_pending_decision(now: Nanos) -> Option<PendingDecision>;
        apply_decision(decided: CompletedDecision, now: Nanos);
        set_lost_cores(lost: &[CoreId], now: Nanos) -> LostCoresOutcome;
        demote(task: TaskId, now: Nanos) -> bool;
        take_ended_tasks(now: Nanos) -> Vec<TaskId>;
        attach_data(task: TaskId, attachment: &[u8]);
        set_server_data(data: &[u8]);
    }

    fn task_name(&self, task: TaskId) -> Option<&str> {
        self.0.task_name(task)
    }

    fn next_expiry(&self) -> Option<Nanos> {
        self.0.next_expiry()
    }

    fn attached_data(&self) -> Vec<(TaskId, Arc<[u8]>)> {
        self.0.attached_data()
    }

    fn server_data(&self) -> &[u8] {
        self.0.server_data()
    }
}

#[test]
fn simulation_and_conformance_of_a_registry_with_a_store() {
    check(&|machine, limits| {
        let mut registry =
            SavingTaskRegistry(StoredTaskRegistry::open(MemoryStore::new(RECORD_FORMAT), machine, limits).unwrap());
        // The first save reserves the task numbers that reservations need.
        registry.set_server_data(&[]);
        Box::new(registry)
    });
}
