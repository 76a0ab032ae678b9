//! Admission of periodic tasks to the cores of a server's machine.
//!
//! Clients of any ORB reach the admission object as `corbaloc::HOST:PORT/CorelaneTasks`:
//!
//! ```
//! use corelane::Orb;
//! use corelane_sched::allocation::Machine;
//! use corelane_services::cores::{ClientIdentityInterceptor, AdmissionConfig};
//!
//! let orb = Orb::builder().listen("tcp:127.0.0.1:0").interceptor(ClientIdentityInterceptor).build()?;
//! let cores = AdmissionConfig::new(Machine::with_cores(2)).serve(&orb)?;
//! println!("{}", cores.reference());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The target of a task serves the requests to its task reference. With a core pool
//! ([`AdmissionConfig::core_pool`]) the requests run on the task's core. Without a core pool the
//! promises are advisory.

mod admission;
mod admitted;
mod best_effort;
mod clients;
#[cfg(test)]
mod conformance;
mod core_watch;
mod dispatch;
mod dispatch_costs;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzz;
mod idl;
mod kernel_refusals;
mod memory;
mod monitoring;
mod records;
pub mod registry;
mod restart;
mod saving;
mod servants;
#[cfg(test)]
mod simulation;
mod stored;
#[cfg(test)]
mod stored_simulation;
mod task_id;
mod transition;

use std::fmt;
use std::sync::Arc;

use corelane::poa::{
    IdAssignment, IdUniqueness, Lifespan, ObjectId, Poa, PoaPolicies, RequestProcessing, ServantManager,
    ServantRetention,
};
use corelane::rt::{CorePool, CorePoolConfig, RtPolicies};
use corelane::{Completion, Orb, SystemException, SystemExceptionKind as Kind};
use corelane_sched::allocation::{Discipline, Machine};
use corelane_sched::task::TaskId;

use self::admission::SharedTaskRegistry;
use self::dispatch::{DispatchRules, TaskDispatch, TaskKeys};
use self::registry::{RegistryLimits, TaskRegistry};
use self::restart::ServerData;
use self::servants::{TaskLocator, TasksServant};
use self::task_id::{Secrets, TagKey};
use crate::store::RecordFormat;

pub use self::admitted::{AdmittedPeriodicTask, AdmittedTask, admit_task};
pub use self::best_effort::with_best_effort_share;
pub use self::clients::ClientIdentityInterceptor;
pub use self::dispatch_costs::{DispatchCosts, charge_mode};
pub use self::idl::cores as protocol;
pub use self::memory::MemoryTaskRegistry;
pub use self::restart::RestoredTasks;
pub use self::saving::{CompletedSave, PendingSave, SaveOutcome};
pub use self::stored::StoredTaskRegistry;

/// The kind of the records of [`StoredTaskRegistry`], for a [`Store`](crate::store::Store) that a
/// program supplies.
pub const RECORD_FORMAT: RecordFormat = records::KIND;

/// Plain object key of the object that admits tasks: [`protocol::Tasks`].
pub const ADMISSION_OBJECT_KEY: &str = "CorelaneTasks";

const TASK_POA: &str = "CorelaneTasks";
const OBJECT_POA: &str = "CorelaneAdmission";

/// Settings of an admission object.
pub struct AdmissionConfig {
    registry: Box<dyn TaskRegistry>,
    core_pool: Option<CorePoolConfig>,
    rules: DispatchRules,
    max_waiting_saves: usize,
}

impl fmt::Debug for AdmissionConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdmissionConfig").finish_non_exhaustive()
    }
}

impl AdmissionConfig {
    /// Creates the settings of an admission object for a machine, with [`MemoryTaskRegistry`] and
    /// default limits.
    #[must_use]
    pub fn new(machine: Machine) -> Self {
        let by_deadline = machine.discipline == Discipline::EarliestDeadlineFirst;
        Self::with_registry(MemoryTaskRegistry::new(machine, RegistryLimits::default()))
            .earliest_deadline_first(by_deadline)
    }

    /// Creates the settings of an admission object with a task registry of the caller.
    #[must_use]
    pub fn with_registry(registry: impl TaskRegistry + 'static) -> Self {
        let rules = DispatchRules { enforces_rates: false, by_deadline: false, has_share: false };
        AdmissionConfig { registry: Box::new(registry), core_pool: None, rules, max_waiting_saves: 2 }
    }

    /// Sets whether each core runs jobs in the order of their deadlines
    /// ([`TaskRules::deadline`](field@corelane::rt::TaskRules::deadline)) or by the priorities of
    /// their tasks. Has no effect without a [core pool](Self::core_pool). The task registry must
    /// decide by the same discipline. Default: true after [`new`](Self::new) for a machine with
    /// [`Discipline::EarliestDeadlineFirst`], otherwise false.
    #[must_use]
    pub fn earliest_deadline_first(mut self, is_by_deadline: bool) -> Self {
        self.rules.by_deadline = is_by_deadline;
        self
    }

    /// Runs the requests of tasks on their cores, by a core pool with these settings. Each task
    /// reference then has separate addresses ([`CorePoolConfig::task_endpoint_count`]), or the
    /// addresses of the pool if all endpoints are taken. The machine's cores must be cores of this
    /// computer. If the pool has a share for best effort, the machine must count it
    /// ([`with_best_effort_share`]). If the pool has another [mode](corelane::rt::CorePoolMode)
    /// than the default, the machine must count its costs ([`charge_mode`]).
    #[must_use]
    pub fn core_pool(mut self, config: CorePoolConfig) -> Self {
        self.core_pool = Some(config);
        self
    }

    /// Sets whether the requests of each task are limited to the rate that its period and jitter
    /// permit ([`TaskRules::min_interarrival`](field@corelane::rt::TaskRules::min_interarrival)).
    /// Has no effect without a [core pool](Self::core_pool). Default: false; requests above the
    /// rate run as they arrive.
    #[must_use]
    pub fn enforce_rates(mut self, enforces: bool) -> Self {
        self.rules.enforces_rates = enforces;
        self
    }

    /// Sets the maximum number of requests that wait until [`StoredTaskRegistry`] has saved their
    /// promises; 0 counts as 1. Further requests get TRANSIENT. Permit fewer than the threads that
    /// serve requests, so that leases are renewed even while the disk does not respond. Default: 2.
    #[must_use]
    pub fn max_waiting_saves(mut self, requests: usize) -> Self {
        self.max_waiting_saves = requests;
        self
    }

    /// Serves the admission object in an ORB until the ORB ends. Binds the plain key
    /// `CorelaneTasks` to the object. The leases of the promises in [`StoredTaskRegistry`] begin
    /// now.
    ///
    /// # Errors
    /// BAD_PARAM if the key is already bound, or if the task registry reserves less than the pool's
    /// share for best effort. NO_RESOURCES if the system refuses a thread or a random number,
    /// PERSIST_STORE if the store of the task registry cannot be written or is damaged, and other
    /// errors of the ORB.
    pub fn serve(mut self, orb: &Orb) -> Result<AdmissionService, SystemException> {
        let no_resources = |error: std::io::Error| {
            SystemException::new(Kind::NoResources, 0, Completion::No).with_message(error.to_string())
        };
        let kept = restart::server_data(&*self.registry)?;
        let tags = match &kept {
            Some(kept) => kept.tags,
            None => TagKey::random().map_err(no_resources)?,
        };
        let secrets = Secrets::new(tags);
        let root = orb.root_poa();
        let task_policies = PoaPolicies {
            lifespan: Lifespan::Persistent,
            id_assignment: IdAssignment::User,
            id_uniqueness: IdUniqueness::Multiple,
            servant_retention: ServantRetention::NonRetain,
            request_processing: RequestProcessing::ServantManager,
            ..PoaPolicies::default()
        };
        let mut rules = self.rules;
        if let Some(share) = self.core_pool.as_ref().and_then(|pool| pool.best_effort_share) {
            if !best_effort::is_counted(share, &self.registry.snapshot(0).cores) {
                let refusal = SystemException::new(Kind::BadParam, 0, Completion::No);
                return Err(refusal.with_message(
                    "the task registry does not count the share for best effort: with_best_effort_share",
                ));
            }
            rules.has_share = true;
        }
        let keys = Arc::new(TaskKeys::new(secrets.clone()));
        let pool = match &self.core_pool {
            Some(config) => Some(restart::create_pool(orb, config, kept.as_ref(), &keys)?),
            None => None,
        };
        let data = ServerData::new(tags, orb, pool.as_ref());
        let has_moved = kept.is_some_and(|kept| kept.pool != data.pool);
        self.registry.set_server_data(&data.encode());
        let admission = SharedTaskRegistry::new(self.registry, secrets, self.max_waiting_saves).map_err(no_resources);
        let admission = admission.and_then(|admission| {
            admission.save().map_err(|error| restart::persist_store(&error.to_string()))?;
            Ok(admission)
        });
        let real_time = RtPolicies { threadpool: pool.as_ref().map(CorePool::id), ..RtPolicies::default() };
        let served = admission.and_then(|admission| {
            let admission = Arc::new(admission);
            let tasks = root.create_rt_poa(TASK_POA, None, task_policies, &real_time)?;
            let dispatch = TaskDispatch::new(admission.secrets.clone(), tasks.clone(), pool.clone(), rules);
            let served = serve_in(orb, &root, &tasks, admission, &keys, dispatch, has_moved);
            if served.is_err() {
                let _ = tasks.destroy(false, true);
            }
            served
        });
        if let (Err(_), Some(pool)) = (&served, &pool) {
            let _ = orb.real_time().destroy_threadpool(pool.id());
        }
        served
    }
}

fn serve_in(
    orb: &Orb,
    root: &Poa,
    tasks: &Poa,
    admission: Arc<SharedTaskRegistry>,
    keys: &TaskKeys,
    dispatch: TaskDispatch,
    has_moved: bool,
) -> Result<AdmissionService, SystemException> {
    // The keys of all task references begin with the same octets. `learn` takes them from an
    // example with the number 0, which belongs to no task.
    let example = admission.secrets.object_id(TaskId(0));
    let of_task = tasks.create_reference_with_id(&ObjectId::from(&example[..]), "")?;
    keys.learn(&of_task, &example);
    let pool = dispatch.pool().cloned();
    tasks.set_servant_manager(ServantManager::Locator(Arc::new(TaskLocator(Arc::clone(&admission)))))?;
    let policies =
        PoaPolicies { lifespan: Lifespan::Persistent, id_assignment: IdAssignment::User, ..PoaPolicies::default() };
    let poa = root.create_poa(OBJECT_POA, None, policies)?;
    let served = (|| -> Result<AdmissionService, SystemException> {
        let id = ObjectId::from(ADMISSION_OBJECT_KEY.as_bytes());
        let own = poa.create_reference_with_id(&id, protocol::TasksRef::REPOSITORY_ID)?;
        let references = [own.clone(), of_task];
        let servant =
            TasksServant { admission: Arc::clone(&admission), poa: tasks.clone(), own: references, pool: pool.clone() };
        poa.activate_object_with_id(&id, &protocol::Tasks::servant(servant))?;
        let restored = admission.restore(orb, pool.as_ref(), has_moved)?;
        orb.bind_corbaloc_key(ADMISSION_OBJECT_KEY, &own)?;
        // `set_dispatch` follows `bind_corbaloc_key`, because a restored target may have this key.
        admission.set_dispatch(dispatch);
        admission.begin_time();
        tasks.manager().activate()?;
        poa.manager().activate()?;
        Ok(AdmissionService { object: protocol::TasksRef::from_object(own), pool, restored })
    })();
    if served.is_err() {
        let _ = poa.destroy(false, false);
    }
    served
}

/// An admission object in operation. Dropping the handle has no effect: the object ends with its
/// ORB.
#[derive(Clone, Debug)]
pub struct AdmissionService {
    object: protocol::TasksRef,
    pool: Option<CorePool>,
    restored: RestoredTasks,
}

impl AdmissionService {
    /// Returns the reference of the admission object.
    #[must_use]
    pub fn reference(&self) -> &protocol::TasksRef {
        &self.object
    }

    /// Returns the numbers of tasks that the service has taken over from the task registry of an
    /// earlier process.
    #[must_use]
    pub fn restored_tasks(&self) -> RestoredTasks {
        self.restored
    }

    /// Returns the core pool that runs the requests of tasks, if the service has one.
    #[must_use]
    pub fn core_pool(&self) -> Option<&CorePool> {
        self.pool.as_ref()
    }
}
