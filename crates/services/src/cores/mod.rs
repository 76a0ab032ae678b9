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
//! The promises are advisory: the server does not run requests on the core and at the priority of
//! their task. A request to a task reference gets a LOCATION_FORWARD to the task's target.
//!
//! The module has a pure core ([`books`], `memory`, `transition`), which knows neither clocks nor
//! sockets. `admission` shares this core between threads; `servants` knows the ORB.

mod admission;
pub mod books;
mod clients;
#[cfg(test)]
mod conformance;
mod idl;
mod memory;
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
use corelane::{Completion, Orb, SystemException, SystemExceptionKind as Kind};
use corelane_sched::allocation::Machine;

use self::admission::SharedBooks;
use self::books::{Books, BooksLimits};
use self::servants::{TaskLocator, TasksServant};

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
        Self::with_books(MemoryBooks::new(machine, BooksLimits::default()))
    }

    /// Creates the settings of an admission object with the caller's books, for example with other
    /// limits.
    #[must_use]
    pub fn with_books(books: impl Books + 'static) -> Self {
        AdmissionConfig { books: Box::new(books) }
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
        let tasks = root.create_poa(TASK_POA, None, task_policies)?;
        let served = serve_in(orb, &root, &tasks, admission);
        if served.is_err() {
            // Destroying a POA fails only after the ORB's shutdown.
            let _ = tasks.destroy(false, false);
        }
        served
    }
}

fn serve_in(
    orb: &Orb,
    root: &Poa,
    tasks: &Poa,
    admission: Arc<SharedBooks>,
) -> Result<AdmissionService, SystemException> {
    tasks.set_servant_manager(ServantManager::Locator(Arc::new(TaskLocator(Arc::clone(&admission)))))?;
    let policies =
        PoaPolicies { lifespan: Lifespan::Persistent, id_assignment: IdAssignment::User, ..PoaPolicies::default() };
    let poa = root.create_poa(OBJECT_POA, None, policies)?;
    let served = (|| -> Result<AdmissionService, SystemException> {
        let id = ObjectId::from(ADMISSION_OBJECT_KEY.as_bytes());
        let own = poa.create_reference_with_id(&id, protocol::TasksRef::REPOSITORY_ID)?;
        let servant = TasksServant { admission, poa: tasks.clone(), own: own.clone() };
        poa.activate_object_with_id(&id, &protocol::Tasks::servant(servant))?;
        orb.bind_key(ADMISSION_OBJECT_KEY, &own)?;
        tasks.manager().activate()?;
        poa.manager().activate()?;
        Ok(AdmissionService { object: protocol::TasksRef::from_object(own) })
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
}

impl AdmissionService {
    /// Returns the reference of the admission object.
    #[must_use]
    pub fn reference(&self) -> &protocol::TasksRef {
        &self.object
    }
}
