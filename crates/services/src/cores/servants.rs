//! The servant of `Cores::Tasks`, and the locator of task references.

use std::sync::Arc;
use std::time::Duration;

use corelane::poa::{Cookie, ObjectId, Poa, ServantLocator, ServantManagerError, ServantResult};
use corelane::rt::{CorePool, JobOverrunAction};
use corelane::{Completion, ObjectRef, Servant, SystemException, SystemExceptionKind as Kind};
use corelane_sched::allocation::{AdmissionTest, Rejection};
use corelane_sched::task::{CoreId, Criticality, Nanos, TaskId, Timing};

use super::admission::{AdmissionState, NotSaved, SavedResult, SharedTaskRegistry};
use super::clients;
use super::idl::cores as idl;
use super::idl::cores::tasks::{AdmitError, ReserveError};
use super::monitoring;
use super::registry::{
    self, ChainAdmission, ChainId, RegistryRefusal, TaskAdmission as Decision, TaskRequest, TaskState, TaskToken,
};

const TARGET_TIMEOUT: Duration = Duration::from_secs(1);
const MAX_BATCH: u32 = 1_000;
/// The longest span for which a client can have jobs recorded: 1 h.
const MAX_RECORDING: Nanos = 3_600_000_000_000;

pub(super) struct TasksServant {
    pub(super) admission: Arc<SharedTaskRegistry>,
    pub(super) poa: Poa,
    pub(super) pool: Option<CorePool>,
    /// The references of the admission object and of a task that does not exist. A target must have
    /// an address of one of these references, because it must be an object of this server.
    pub(super) own: [ObjectRef; 2],
}

fn system(kind: Kind, why: impl Into<String>) -> SystemException {
    SystemException::new(kind, 0, Completion::No).with_message(why.into())
}

impl From<RegistryRefusal> for SystemException {
    fn from(refusal: RegistryRefusal) -> Self {
        let kind = match refusal {
            RegistryRefusal::KernelRefused => {
                return SystemException::new(Kind::NoResources, corelane::minor::TASK_REFUSED, Completion::No)
                    .with_message(refusal.to_string());
            }
            RegistryRefusal::TimingOutOfRange(_) | RegistryRefusal::FieldOutOfRange(..) => Kind::BadParam,
            RegistryRefusal::RateExceeded(_)
            | RegistryRefusal::TaskQuotaExceeded(_)
            | RegistryRefusal::UtilizationQuotaExceeded(_)
            | RegistryRefusal::EarlierTimingNotSaved
            | RegistryRefusal::TaskNumbersNotSaved => Kind::Transient,
            RegistryRefusal::Full(_) | RegistryRefusal::NoSuchCore(..) | RegistryRefusal::TaskDisplaced => {
                Kind::NoResources
            }
            RegistryRefusal::NotFound => Kind::ObjectNotExist,
            RegistryRefusal::WrongToken => Kind::NoPermission,
            RegistryRefusal::NotAdmittedYet => Kind::BadInvOrder,
        };
        system(kind, refusal.to_string())
    }
}

impl From<NotSaved> for SystemException {
    fn from(reason: NotSaved) -> Self {
        match reason {
            NotSaved::Busy(most) => system(Kind::Transient, format!("{most} requests wait for the store already")),
            NotSaved::Ended => SystemException::new(Kind::NoResources, corelane::minor::NOT_SAVED, Completion::No)
                .with_message("the thread that saves has ended: restart the server"),
            NotSaved::Failed(error) => {
                // A commit that failed may have reached the store, so the completion status is
                // MAYBE.
                let refused = SystemException::new(Kind::NoResources, corelane::minor::NOT_SAVED, Completion::Maybe);
                refused.with_message(format!("the store cannot save the promise: {error}"))
            }
        }
    }
}

fn timing(timing: &idl::TaskTiming) -> Timing {
    let idl::TaskTiming { execution, period, deadline, jitter, blocking, min_distance } = *timing;
    let deadline = if deadline == 0 { period } else { deadline };
    Timing { execution, period, deadline, jitter, blocking, min_interarrival: min_distance }
}

fn reported_timing(timing: &Timing) -> idl::TaskTiming {
    let Timing { execution, period, deadline, jitter, blocking, min_interarrival: min_distance } = *timing;
    idl::TaskTiming { execution, period, deadline, jitter, blocking, min_distance }
}

fn core_number(core: Option<CoreId>) -> i32 {
    core.and_then(|core| i32::try_from(core.core).ok()).unwrap_or(-1)
}

fn request(task: &idl::TaskSpec) -> Result<TaskRequest, SystemException> {
    let pinned = match task.core {
        -1 => None,
        core => {
            let core = u32::try_from(core);
            let core = core.map_err(|_| system(Kind::BadParam, "core: a number, or -1 for any core"))?;
            Some(CoreId { core, ..CoreId::default() })
        }
    };
    let criticality = match task.importance {
        idl::Criticality::Low => Criticality::Low,
        idl::Criticality::Normal => Criticality::Normal,
        idl::Criticality::High => Criticality::High,
    };
    let (name, operation) = (task.name.clone(), task.operation.clone());
    let overrun = match task.overrun {
        idl::JobOverrun::Report => JobOverrunAction::Report,
        idl::JobOverrun::Demote => JobOverrunAction::Demote,
        idl::JobOverrun::Stop => JobOverrunAction::Stop,
    };
    Ok(TaskRequest {
        name,
        operation,
        timing: timing(&task.timing),
        criticality,
        pinned_core: pinned,
        lease: task.lease,
        overrun_action: overrun,
    })
}

fn rejected(name: &str, rejection: &Rejection) -> idl::Rejected {
    let test = match rejection.test {
        AdmissionTest::Capacity => idl::AdmissionTest::CapacityTest,
        AdmissionTest::Deadlines | AdmissionTest::DuplicateId => idl::AdmissionTest::DeadlineTest,
        AdmissionTest::PriorityLevels => idl::AdmissionTest::LevelTest,
        AdmissionTest::NoCore => idl::AdmissionTest::CoreTest,
    };
    idl::Rejected {
        task: name.to_owned(),
        test,
        core: core_number(rejection.core),
        excess: rejection.excess_utilization.0,
        longest_execution: rejection.max_fitting_execution.unwrap_or(0),
        is_exhaustive: rejection.is_exhaustive,
        reason: rejection.reason(),
    }
}

impl TasksServant {
    /// Checks that a target is an object of this server that exists, and not a task reference.
    fn check_target(&self, target: Option<&ObjectRef>) -> Result<(), SystemException> {
        let Some(target) = target else { return Ok(()) };
        let of_server = |object: &ObjectRef| {
            object.ior().known_profiles().any(|profile| {
                let mut own = self.own.iter().flat_map(|own| own.ior().known_profiles());
                own.any(|own| own.tag == profile.tag && own.address == profile.address)
            })
        };
        // Task references are recognised by their POA, because their addresses may differ from all
        // addresses of other references.
        if self.poa.reference_to_id(target).is_ok() {
            return Err(system(Kind::BadParam, "target: the reference names a task already"));
        }
        if !of_server(target) {
            return Err(system(Kind::BadParam, "target: the object does not belong to this server"));
        }
        if target.with_timeout(TARGET_TIMEOUT).non_existent()? {
            return Err(system(Kind::ObjectNotExist, "target: the object does not exist"));
        }
        Ok(())
    }

    fn promise(
        &self,
        state: &mut AdmissionState,
        promise: &registry::Promise,
        token: TaskToken,
        now: Nanos,
    ) -> Result<idl::Promise, SystemException> {
        let target = match state.targets.get(&promise.task) {
            Some(target) => {
                let id = ObjectId::from(&self.admission.secrets.object_id(promise.task)[..]);
                // All references of a task have the same address, so the task keeps its endpoint.
                let take = || self.pool.as_ref().and_then(CorePool::take_task_endpoint);
                let reference = match state.endpoints.entry(promise.task).or_insert_with(take) {
                    Some(endpoint) => self.poa.create_reference_at(&id, target.type_id(), endpoint)?,
                    None => self.poa.create_reference_with_id(&id, target.type_id())?,
                };
                state.attach(promise.task);
                Some(reference)
            }
            None => None,
        };
        Ok(idl::Promise {
            task: promise.task.0,
            token: token.0,
            target,
            core: promise.core.core,
            response: promise.response.unwrap_or(0),
            start: promise.starts_at.saturating_sub(now),
            lease: promise.ends_at.saturating_sub(now),
        })
    }

    fn promises(
        &self,
        state: &mut AdmissionState,
        promises: &[registry::Promise],
        token: TaskToken,
        now: Nanos,
    ) -> Result<Vec<idl::Promise>, SystemException> {
        promises.iter().map(|promise| self.promise(state, promise, token, now)).collect()
    }

    fn saved_promises<E: From<SystemException>>(
        &self,
        work: impl FnOnce(&mut AdmissionState, TaskToken, Nanos) -> Result<Vec<idl::Promise>, E>,
    ) -> Result<Vec<idl::Promise>, E> {
        let checked = |state: &mut AdmissionState, token: TaskToken, now: Nanos| {
            state.check_saving().map_err(SystemException::from)?;
            work(state, token, now)
        };
        acknowledged(self.admission.change_saved(checked, promised_tasks).map_err(SystemException::from)?)
    }

    fn saved_promise<E: From<SystemException>>(
        &self,
        work: impl FnOnce(&mut AdmissionState, TaskToken, Nanos) -> Result<idl::Promise, E>,
    ) -> Result<idl::Promise, E> {
        single(self.saved_promises(|state, token, now| work(state, token, now).map(|promise| vec![promise]))?)
    }

    fn reported_snapshot(&self) -> (idl::TaskRecords, idl::CoreRecords, idl::Counts) {
        let (snapshot, now) = self.admission.with(|state, _, now| (state.registry.snapshot(now), now));
        let tasks = snapshot.tasks.into_iter().map(|record| reported_task(record, now)).collect();
        let core = |core: &registry::CoreUse| idl::CoreRecord {
            core: core.core.core,
            capacity: core.capacity.0,
            used: core.used_by_tasks.0,
            reserved: core.reserved_above_tasks.0,
        };
        let counts = snapshot.counts;
        let counts = idl::Counts {
            promised: counts.promised,
            rejected: counts.rejected,
            over_rate: counts.refused_over_rate,
            over_quota: counts.refused_over_quota,
            leases_ended: counts.leases_expired,
            reservations_lapsed: counts.reservations_expired,
        };
        (tasks, snapshot.cores.iter().map(core).collect(), counts)
    }
}

fn promised_tasks<E>(promises: &Result<Vec<idl::Promise>, E>) -> Vec<TaskId> {
    promises.as_deref().unwrap_or_default().iter().map(|promise| TaskId(promise.task)).collect()
}

/// Returns the promises if the store has them. Subtracts the wait for the store from the promises'
/// times.
fn acknowledged<E: From<SystemException>>(
    made: SavedResult<Result<Vec<idl::Promise>, E>>,
) -> Result<Vec<idl::Promise>, E> {
    let mut promises = made.result?;
    let waited = made.saved.map_err(SystemException::from)?;
    for promise in &mut promises {
        promise.start = promise.start.saturating_sub(waited);
        promise.lease = promise.lease.saturating_sub(waited);
    }
    Ok(promises)
}

fn single<E: From<SystemException>>(promises: Vec<idl::Promise>) -> Result<idl::Promise, E> {
    promises.into_iter().next().ok_or_else(|| system(Kind::Internal, "a decision made no promise").into())
}

impl idl::Tasks for TasksServant {
    fn admit(&self, task: &idl::TaskSpec) -> Result<idl::Promise, AdmitError> {
        let client = clients::current();
        let request = request(task)?;
        self.check_target(task.target.as_ref())?;
        self.saved_promise(|state, token, now| -> Result<idl::Promise, AdmitError> {
            let decision = state.registry.admit(&request, &client, token, now).map_err(SystemException::from)?;
            let id = match &decision {
                Decision::Promised(promise) => promise.task,
                Decision::Pending(task) => *task,
                Decision::Rejected(rejection) => return Err(AdmitError::Rejected(rejected(&task.name, rejection))),
            };
            if let Some(target) = &task.target {
                state.set_target(id, target);
            }
            match decision {
                Decision::Promised(promise) => Ok(self.promise(state, &promise, token, now)?),
                _ => Err(AdmitError::Pending(idl::Pending { task: id.0, token: token.0 })),
            }
        })
    }

    fn outcome(&self, task: u64, secret: &idl::TaskToken) -> Result<idl::Promise, AdmitError> {
        let token = TaskToken(*secret);
        let made = self.admission.read_saved(
            |state, _, now| {
                let decision =
                    state.registry.pending_outcome(TaskId(task), token, now).map_err(SystemException::from)?;
                match decision {
                    Decision::Promised(promise) => Ok(vec![self.promise(state, &promise, token, now)?]),
                    Decision::Pending(task) => Err(AdmitError::Pending(idl::Pending { task: task.0, token: *secret })),
                    Decision::Rejected(rejection) => {
                        let name = state.registry.task_name(TaskId(task)).unwrap_or_default();
                        Err(AdmitError::Rejected(rejected(name, &rejection)))
                    }
                }
            },
            promised_tasks,
        );
        single(acknowledged(made)?)
    }

    fn reserve(&self, stages: &[idl::TaskSpec]) -> Result<idl::Reservation, ReserveError> {
        let client = clients::current();
        if stages.len() > registry::MAX_CHAIN_STAGES {
            return Err(system(Kind::BadParam, "stages: a chain has 1 to 32 stages on one server").into());
        }
        let requests = stages.iter().map(request).collect::<Result<Vec<_>, _>>()?;
        stages.iter().try_for_each(|stage| self.check_target(stage.target.as_ref()))?;
        self.admission.change(|state, token, now| {
            let decision =
                state.registry.reserve_chain(&requests, &client, token, now).map_err(SystemException::from)?;
            match decision {
                ChainAdmission::Reserved(chain, promises) => {
                    for (promise, stage) in promises.iter().zip(stages) {
                        if let Some(target) = &stage.target {
                            state.set_target(promise.task, target);
                        }
                    }
                    let lapse = promises.iter().map(|promise| promise.ends_at.saturating_sub(now)).min().unwrap_or(0);
                    let stages = self.promises(state, &promises, token, now)?;
                    Ok(idl::Reservation { chain: chain.0, token: token.0, stages, lapse })
                }
                ChainAdmission::Rejected(stage, rejection) => {
                    let name = stages.get(stage).map_or("", |stage| stage.name.as_str());
                    Err(ReserveError::Rejected(rejected(name, &rejection)))
                }
            }
        })
    }

    fn commit(&self, chain: u64, secret: &idl::TaskToken) -> Result<idl::Promises, SystemException> {
        let token = TaskToken(*secret);
        self.saved_promises(|state, _, now| {
            let promises = state.registry.commit_chain(ChainId(chain), token, now)?;
            self.promises(state, &promises, token, now)
        })
    }

    fn cancel(&self, chain: u64, secret: &idl::TaskToken) -> Result<(), SystemException> {
        Ok(self
            .admission
            .change(|state, _, now| state.registry.cancel_chain(ChainId(chain), TaskToken(*secret), now))?)
    }

    fn change(
        &self,
        task: u64,
        secret: &idl::TaskToken,
        changed: &idl::TaskTiming,
    ) -> Result<idl::Promise, ReserveError> {
        let token = TaskToken(*secret);
        let mut promise = self.saved_promise(|state, _, now| {
            let decision = state.registry.change_timing(TaskId(task), token, timing(changed), now);
            match decision.map_err(SystemException::from)? {
                Decision::Promised(promise) => Ok(self.promise(state, &promise, token, now)?),
                Decision::Rejected(rejection) => {
                    let name = state.registry.task_name(TaskId(task)).unwrap_or_default();
                    Err(ReserveError::Rejected(rejected(name, &rejection)))
                }
                Decision::Pending(_) => Err(system(Kind::Internal, "a change is never pending").into()),
            }
        })?;
        // The old timing applies until the store has the new one, so the new one may begin later.
        self.admission.with(|state, _, now| {
            if let Ok(Decision::Promised(saved)) = state.registry.pending_outcome(TaskId(task), token, now) {
                promise.start = promise.start.max(saved.starts_at.saturating_sub(now));
            }
        });
        Ok(promise)
    }

    fn renew(&self, task: u64, secret: &idl::TaskToken, lease: u64) -> Result<u64, SystemException> {
        let (task, token) = (TaskId(task), TaskToken(*secret));
        let renew = |state: &mut AdmissionState, now| {
            let end = state.registry.renew(task, token, lease, now)?;
            Ok(end.saturating_sub(now))
        };
        self.admission.renew(task, renew)
    }

    fn withdraw(&self, task: u64, secret: &idl::TaskToken) -> Result<(), SystemException> {
        let task = TaskId(task);
        let withdraw = |state: &mut AdmissionState, _: TaskToken, now: Nanos| {
            state.registry.withdraw(task, TaskToken(*secret), now)
        };
        let tasks = |withdrawn: &Result<(), RegistryRefusal>| Vec::from_iter(withdrawn.is_ok().then_some(task));
        let withdrawn = self.admission.change_saved(withdraw, tasks).map_err(SystemException::from)?;
        // The withdrawn task has ended, even if the save fails, so the call succeeds.
        Ok(withdrawn.result?)
    }

    fn snapshot(&self) -> Result<(idl::TaskRecords, idl::CoreRecords, idl::Counts), SystemException> {
        Ok(self.reported_snapshot())
    }

    fn monitor(&self) -> Result<(idl::TaskRecords, idl::CoreRecords, idl::Counts, idl::Measurements), SystemException> {
        let (tasks, cores, counts) = self.reported_snapshot();
        Ok((tasks, cores, counts, monitoring::measurements(self.pool.as_ref())))
    }

    fn record_jobs(&self, span: u64) -> Result<u64, SystemException> {
        let pool = self.pool.as_ref().ok_or_else(|| system(Kind::BadInvOrder, "the server has no core pool"))?;
        let span = span.min(MAX_RECORDING);
        pool.record_jobs_for(Duration::from_nanos(span));
        Ok(span)
    }

    fn recorded_jobs(&self, first: u64, most: u32) -> Result<(u64, idl::JobRecords), SystemException> {
        Ok(monitoring::recorded_jobs(self.pool.as_ref(), first, most.min(MAX_BATCH)))
    }
}

fn reported_task(record: registry::TaskRecord, now: Nanos) -> idl::TaskRecord {
    let (state, end) = match record.state {
        TaskState::Reserved(end) => (idl::TaskState::Reserved, end),
        TaskState::Promised(end) => (idl::TaskState::Promised, end),
        TaskState::Demoted(end) => (idl::TaskState::Demoted, end),
        TaskState::Ending(end) => (idl::TaskState::Ending, end),
        TaskState::Pending => (idl::TaskState::Undecided, now),
    };
    let importance = match record.task.criticality {
        Criticality::Low => idl::Criticality::Low,
        Criticality::Normal => idl::Criticality::Normal,
        Criticality::High => idl::Criticality::High,
    };
    idl::TaskRecord {
        task: record.task.id.0,
        name: record.name,
        operation: record.operation,
        client: record.client.0.to_string(),
        state,
        timing: reported_timing(&record.task.timing),
        importance,
        core: core_number(record.core),
        level: record.priority_level,
        response: record.response.unwrap_or(0),
        start: record.starts_at.saturating_sub(now),
        remaining: end.saturating_sub(now),
    }
}

/// Answers requests to task references whose targets do not serve them: forwards the requests of
/// admitted tasks, and refuses the others.
pub(super) struct TaskLocator(pub(super) Arc<SharedTaskRegistry>);

impl ServantLocator for TaskLocator {
    fn preinvoke(&self, id: &ObjectId, _: &Poa, _: &str) -> ServantResult<(Option<Servant>, Cookie)> {
        let task = self.0.secrets.task(id.as_octets()).ok_or_else(ServantManagerError::no_such_object)?;
        match self.0.target(task) {
            Some(target) => Err(ServantManagerError::Forward(target)),
            None => {
                let ended = SystemException::new(Kind::Transient, corelane::minor::TASK_ENDED, Completion::No);
                Err(ended.with_message("the task has ended").into())
            }
        }
    }

    fn postinvoke(&self, _: &ObjectId, _: &Poa, _: &str, _: Cookie, _: &Servant) -> Result<(), SystemException> {
        Ok(())
    }
}
