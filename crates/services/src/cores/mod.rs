//! Admission of periodic tasks to the cores of a server's machine.
//!
//! A server adds an admission object with one line of code. Clients of any ORB reach the object as
//! `corbaloc::HOST:PORT/CorelaneTasks`:
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
//! ([`AdmissionConfig::core_pool`]) they run on the task's core at the task's priority. Without a
//! core pool the promises are advisory.
//!
//! The module has a pure core ([`books`], `memory`, `transition`), which knows neither clocks nor
//! sockets. `admission` shares this core between threads; `core_watch` notices lost cores;
//! `dispatch` lets task references and the core pool follow it; `servants` knows the ORB. `admitted` is the side of the client.

mod admission;
mod admitted;
pub mod books;
mod clients;
#[cfg(test)]
mod conformance;
mod core_watch;
mod dispatch;
mod idl;
mod memory;
mod monitoring;
mod servants;
#[cfg(test)]
mod simulation;
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

use self::admission::SharedBooks;
use self::books::{Books, BooksLimits};
use self::dispatch::{DispatchRules, TaskDispatch, TaskKeys};
use self::servants::{TaskLocator, TasksServant};

pub use self::admitted::{AdmittedPeriodicTask, AdmittedTask, admit_task};
pub use self::clients::ClientIdentityInterceptor;
pub use self::idl::cores as protocol;
pub use self::memory::MemoryBooks;

/// Plain object key of the object that admits tasks: [`protocol::Tasks`].
pub const ADMISSION_OBJECT_KEY: &str = "CorelaneTasks";

/// Name of the POA of task references. `OBJECT_POA` is the POA of the admission object.
const TASK_POA: &str = "CorelaneTasks";
const OBJECT_POA: &str = "CorelaneAdmission";

/// Settings of an admission object.
pub struct AdmissionConfig {
    books: Box<dyn Books>,
    core_pool: Option<CorePoolConfig>,
    rules: DispatchRules,
}

impl fmt::Debug for AdmissionConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdmissionConfig").finish_non_exhaustive()
    }
}

impl AdmissionConfig {
    /// Creates the settings of an admission object for a machine, with default limits. The books
    /// are in memory.
    #[must_use]
    pub fn new(machine: Machine) -> Self {
        let by_deadline = machine.discipline == Discipline::EarliestDeadlineFirst;
        Self::with_books(MemoryBooks::new(machine, BooksLimits::default())).by_deadline(by_deadline)
    }

    /// Creates the settings of an admission object with the caller's books, for example with other
    /// limits.
    #[must_use]
    pub fn with_books(books: impl Books + 'static) -> Self {
        let rules = DispatchRules { enforces_rates: false, by_deadline: false };
        AdmissionConfig { books: Box::new(books), core_pool: None, rules }
    }

    /// Runs the jobs of each core in the order of their deadlines
    /// ([`TaskRules::deadline`](field@corelane::rt::TaskRules::deadline)), instead of at the priorities
    /// of their tasks. Needs a [core pool](Self::core_pool). Default: true for a machine whose
    /// discipline is [`Discipline::EarliestDeadlineFirst`], and false for the caller's own
    /// [books](Self::with_books), which must decide by the same discipline.
    #[must_use]
    pub fn by_deadline(mut self, is_by_deadline: bool) -> Self {
        self.rules.by_deadline = is_by_deadline;
        self
    }

    /// Runs the requests of tasks on their cores, by a core pool with these settings. Each task
    /// reference then has an address of its own ([`CorePoolConfig::task_endpoints`]), or the
    /// addresses of the pool if all endpoints are taken. The machine's cores must be cores of this
    /// computer.
    #[must_use]
    pub fn core_pool(mut self, config: CorePoolConfig) -> Self {
        self.core_pool = Some(config);
        self
    }

    /// Bounds the requests of each task to the rate at which the task was admitted, its period and
    /// jitter ([`TaskRules::min_distance`](field@corelane::rt::TaskRules::min_distance)). Needs a
    /// [core pool](Self::core_pool). By default requests above the rate run as they arrive.
    #[must_use]
    pub fn enforce_rates(mut self, enforces: bool) -> Self {
        self.rules.enforces_rates = enforces;
        self
    }

    /// Serves the admission object in an ORB until the ORB ends. Binds the plain key
    /// `CorelaneTasks` to the object.
    ///
    /// # Errors
    /// BAD_PARAM if the key is already bound, NO_RESOURCES if the system refuses a thread, and
    /// other errors of the ORB.
    pub fn serve(self, orb: &Orb) -> Result<AdmissionService, SystemException> {
        let admission = SharedBooks::new(self.books)
            .map_err(|error| SystemException::new(Kind::NoResources, 0, Completion::No).because(error.to_string()))?;
        let admission = Arc::new(admission);
        let root = orb.root_poa();
        let task_policies = PoaPolicies {
            lifespan: Lifespan::Persistent,
            id_assignment: IdAssignment::User,
            id_uniqueness: IdUniqueness::Multiple,
            servant_retention: ServantRetention::NonRetain,
            request_processing: RequestProcessing::ServantManager,
            ..PoaPolicies::default()
        };
        let rules = self.rules;
        let keys = Arc::new(TaskKeys::new(admission.secrets.clone()));
        let pool = match &self.core_pool {
            Some(config) => Some(orb.real_time().create_core_pool(config, Arc::<TaskKeys>::clone(&keys))?),
            None => None,
        };
        let real_time = RtPolicies { threadpool: pool.as_ref().map(CorePool::id), ..RtPolicies::default() };
        let tasks = root.create_rt_poa(TASK_POA, None, task_policies, &real_time);
        let served = tasks.map_err(SystemException::from).and_then(|tasks| {
            let dispatch = TaskDispatch::new(admission.secrets.clone(), tasks.clone(), pool.clone(), rules);
            let served = serve_in(orb, &root, &tasks, admission, &keys, dispatch);
            if served.is_err() {
                // Destroying a POA fails only after the ORB's shutdown.
                let _ = tasks.destroy(false, true);
            }
            served
        });
        if let (Err(_), Some(pool)) = (&served, &pool) {
            // Destroying a pool fails only after the ORB's shutdown.
            let _ = orb.real_time().destroy_threadpool(pool.id());
        }
        served
    }
}

fn serve_in(
    orb: &Orb,
    root: &Poa,
    tasks: &Poa,
    admission: Arc<SharedBooks>,
    keys: &TaskKeys,
    dispatch: TaskDispatch,
) -> Result<AdmissionService, SystemException> {
    // The number 0 belongs to no task.
    let example = admission.secrets.object_id(TaskId(0));
    let of_task = tasks.create_reference_with_id(&ObjectId::from(&example[..]), "")?;
    keys.learn(&of_task, &example);
    let pool = dispatch.pool().cloned();
    admission.set_dispatch(dispatch);
    tasks.set_servant_manager(ServantManager::Locator(Arc::new(TaskLocator(Arc::clone(&admission)))))?;
    let policies =
        PoaPolicies { lifespan: Lifespan::Persistent, id_assignment: IdAssignment::User, ..PoaPolicies::default() };
    let poa = root.create_poa(OBJECT_POA, None, policies)?;
    let served = (|| -> Result<AdmissionService, SystemException> {
        let id = ObjectId::from(ADMISSION_OBJECT_KEY.as_bytes());
        let own = poa.create_reference_with_id(&id, protocol::TasksRef::REPOSITORY_ID)?;
        let servant = TasksServant { admission, poa: tasks.clone(), own: [own.clone(), of_task], pool: pool.clone() };
        poa.activate_object_with_id(&id, &protocol::Tasks::servant(servant))?;
        orb.bind_key(ADMISSION_OBJECT_KEY, &own)?;
        tasks.manager().activate()?;
        poa.manager().activate()?;
        Ok(AdmissionService { object: protocol::TasksRef::from_object(own), pool })
    })();
    if served.is_err() {
        // Destroying a POA fails only after the ORB's shutdown.
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
}

impl AdmissionService {
    /// Returns the reference of the admission object.
    #[must_use]
    pub fn reference(&self) -> &protocol::TasksRef {
        &self.object
    }

    /// Returns the core pool that runs the requests of tasks, if the service has one.
    #[must_use]
    pub fn core_pool(&self) -> Option<&CorePool> {
        self.pool.as_ref()
    }
}
