//! The Naming Service (OMG Naming Service 1.3): names for objects, in contexts that can contain
//! further contexts.
//!
//! Clients of any ORB reach the service as `corbaloc::HOST:PORT/NameService`:
//!
//! ```
//! use corelane::Orb;
//! use corelane_services::naming::NamingConfig;
//!
//! let orb = Orb::builder().listen("tcp:127.0.0.1:0").build()?;
//! let naming = NamingConfig::new().serve(&orb)?;
//! println!("{}", naming.reference());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Bindings are lost when the process ends, unless the service has a
//! [store](NamingConfig::store_file).

mod bindings;
mod changes;
mod control;
mod directory;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz;
mod hash;
mod idl;
mod iterators;
mod loader;
pub mod name;
mod records;
mod servants;
#[cfg(test)]
pub(crate) mod simulation;
mod state;
mod trie;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use corelane::poa::{IdAssignment, IdUniqueness, Lifespan, Poa, PoaPolicies, RequestProcessing, ServantRetention};
use corelane::{Orb, Servant, SystemException};

use self::corelane_naming::control::BindAllError;
use self::corelane_naming::{BindOutcomes, NewBinding};
use self::cos_naming::{BindingIterator, NameComponent, NamingContextExtRef};
use self::directory::Directory;
use self::iterators::IteratorLimits;
use self::servants::{BindingIterators, NamingContexts, ServiceSettings, ServiceState};
use crate::store::{Durability, FileStore, RecordFormat, Store, StoreError};

pub use self::idl::{corelane_naming, cos_naming};

/// The kind of the service's records, for a [`Store`] that a program supplies.
pub const RECORD_FORMAT: RecordFormat = records::KIND;

/// Plain object key of the [`corelane_naming::Control`] object of a name server.
pub const CONTROL_OBJECT_KEY: &str = "CorelaneNamingControl";

/// Plain object key of the initial context, and its name as an initial reference.
pub const NAME_SERVICE_KEY: &str = "NameService";

/// Settings of a name service.
#[derive(Debug)]
pub struct NamingConfig {
    place: StorePlace,
    durability: Durability,
    settings: ServiceSettings,
}

enum StorePlace {
    Memory,
    File(PathBuf),
    Other(Box<dyn Store>),
}

impl fmt::Debug for StorePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StorePlace::Memory => f.write_str("Memory"),
            StorePlace::File(path) => f.debug_tuple("File").field(path).finish(),
            StorePlace::Other(_) => f.write_str("Other"),
        }
    }
}

impl Default for NamingConfig {
    fn default() -> Self {
        Self::new()
    }
}

impl NamingConfig {
    /// Creates the settings of a name service that keeps its bindings in memory.
    #[must_use]
    pub fn new() -> Self {
        let iterator_limits =
            IteratorLimits { max_iterators: 1_000, max_per_client: 100, idle_timeout: Duration::from_secs(900) };
        let settings = ServiceSettings {
            iterator_limits,
            forward_timeout: Duration::from_secs(3),
            max_forwarding_threads: 2,
            max_waiting_changes: usize::MAX,
            max_watching_clients: 1,
            max_patience: Duration::from_secs(1),
            is_read_only: false,
        };
        NamingConfig { place: StorePlace::Memory, durability: Durability::Synced, settings }
    }

    /// Keeps all contexts in a file, which is created if it does not exist. References to contexts
    /// stay valid if a server restarts with the same file and address.
    #[must_use]
    pub fn store_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.place = StorePlace::File(path.into());
        self
    }

    /// Keeps all contexts in a store that the program supplies.
    #[must_use]
    pub fn store(mut self, store: impl Store) -> Self {
        self.place = StorePlace::Other(Box::new(store));
        self
    }

    /// Sets the durability of changes. With [`Durability::Relaxed`], a thread syncs acknowledged
    /// changes to the disk, with pauses of 50 ms. Default: [`Durability::Synced`].
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Sets the maximum number of binding iterators. At the maximum, a new iterator ends the least
    /// recently used iterator; 0 permits no iterator. Default: 1,000.
    #[must_use]
    pub fn max_iterators(mut self, count: usize) -> Self {
        self.settings.iterator_limits.max_iterators = count;
        self
    }

    /// Sets the maximum number of binding iterators that requests of one connection have created.
    /// At the maximum, a new iterator ends the least recently used iterator of the connection; 0
    /// permits no iterator. Default: 100.
    #[must_use]
    pub fn max_iterators_per_connection(mut self, count: usize) -> Self {
        self.settings.iterator_limits.max_per_client = count;
        self
    }

    /// Sets the time without use after which a binding iterator ends. Default: 15 minutes.
    #[must_use]
    pub fn iterator_timeout(mut self, timeout: Duration) -> Self {
        self.settings.iterator_limits.idle_timeout = timeout;
        self
    }

    /// Sets the time-out of the call to another server that continues an operation, if the name
    /// leads into a context of that server. If the call times out, the client gets CannotProceed.
    /// Default: 3 s.
    #[must_use]
    pub fn forward_timeout(mut self, timeout: Duration) -> Self {
        self.settings.forward_timeout = timeout;
        self
    }

    /// Sets the maximum number of threads that wait for other servers. At the maximum, an operation
    /// whose name leads to another server raises CannotProceed at once. Permit at most half of the
    /// threads that serve requests, so that servers that call each other have threads left to
    /// answer. Default: 2.
    #[must_use]
    pub fn max_forwarding_threads(mut self, threads: usize) -> Self {
        self.settings.max_forwarding_threads = threads;
        self
    }

    /// Sets the maximum number of requests that change contexts at the same time; further requests
    /// raise TRANSIENT. Each of them occupies a thread of the pool while it waits for the store.
    /// The maximum does not apply to [`NamingService::bind_all`]. Permit fewer than the pool has
    /// threads, so that names are resolved even while the disk does not respond. Default: no
    /// maximum.
    #[must_use]
    pub fn max_waiting_changes(mut self, threads: usize) -> Self {
        self.settings.max_waiting_changes = threads;
        self
    }

    /// Sets the maximum number of clients that wait in the server for changes to be reported
    /// (`corelane naming watch`). Each of them occupies a thread of the pool. At the maximum,
    /// further clients get an answer at once. Default: 1.
    #[must_use]
    pub fn max_watching_clients(mut self, threads: usize) -> Self {
        self.settings.max_watching_clients = threads;
        self
    }

    /// Refuses all changes: operations of contexts with NO_PERMISSION, [`NamingService::bind_all`]
    /// with [`BindAllError::Failed`].
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.settings.is_read_only = true;
        self
    }

    /// Serves the contexts in an ORB until the ORB ends. Creates their POA, binds the plain key
    /// `NameService` to the initial context, and registers this context as the initial reference
    /// `NameService`. Requests that arrive while the store is loaded wait until loading ends.
    ///
    /// # Errors
    /// [`ServeError::Store`] if the store cannot be used. [`ServeError::Orb`] if the ORB refuses,
    /// for example with BAD_PARAM if the key is already bound.
    pub fn serve(self, orb: &Orb) -> Result<NamingService, ServeError> {
        // Created before the store is loaded, so that early requests wait instead of raising
        // OBJECT_NOT_EXIST.
        let poa = create_poa(&orb.root_poa(), "CorelaneNaming", Lifespan::Persistent)?;
        let served = self.serve_in(orb, &poa);
        if served.is_err() {
            // Destroying the POA ends the service, which closes its store.
            let _ = poa.destroy(false, false);
        }
        served
    }

    fn serve_in(self, orb: &Orb, poa: &Poa) -> Result<NamingService, ServeError> {
        let root = servants::root_reference(poa)?;
        orb.bind_corbaloc_key(NAME_SERVICE_KEY, &root)?;
        let served = self.load(poa).and_then(|service| {
            orb.register_initial_reference(NAME_SERVICE_KEY, &root)?;
            poa.manager().activate().map_err(SystemException::from)?;
            Ok(NamingService { service, root: NamingContextExtRef::from_object(root) })
        });
        if served.is_err() {
            orb.unbind_corbaloc_key(NAME_SERVICE_KEY);
        }
        served
    }

    fn load(self, poa: &Poa) -> Result<Arc<ServiceState>, ServeError> {
        let directory = match self.place {
            StorePlace::Memory => Directory::in_memory(),
            StorePlace::File(path) => {
                Directory::open(Box::new(FileStore::open(path, RECORD_FORMAT)?), self.durability)?
            }
            StorePlace::Other(store) => Directory::open(store, self.durability)?,
        };
        let service = Arc::new(ServiceState::new(directory, self.settings));
        let iterator_poa = create_poa(poa, "Iterators", Lifespan::Transient)?;
        let iterators = BindingIterator::servant(BindingIterators(Arc::clone(&service)));
        iterator_poa.set_servant(&iterators).map_err(SystemException::from)?;
        iterator_poa.manager().activate().map_err(SystemException::from)?;
        let contexts = Servant::new(NamingContexts { service: Arc::clone(&service), iterator_poa });
        poa.set_servant(&contexts).map_err(SystemException::from)?;
        Ok(service)
    }
}

fn create_poa(parent: &Poa, name: &str, lifespan: Lifespan) -> Result<Poa, SystemException> {
    let policies = PoaPolicies {
        lifespan,
        id_assignment: IdAssignment::User,
        id_uniqueness: IdUniqueness::Multiple,
        servant_retention: ServantRetention::NonRetain,
        request_processing: RequestProcessing::DefaultServant,
        ..PoaPolicies::default()
    };
    Ok(parent.create_poa(name, None, policies)?)
}

/// A name service in operation. Dropping the handle has no effect: the service ends with its ORB.
#[derive(Clone)]
pub struct NamingService {
    service: Arc<ServiceState>,
    root: NamingContextExtRef,
}

impl NamingService {
    /// Returns the reference of the initial context.
    #[must_use]
    pub fn reference(&self) -> &NamingContextExtRef {
        &self.root
    }

    /// Returns the number of contexts, including contexts without a name.
    #[must_use]
    pub fn context_count(&self) -> usize {
        self.service.directory.state().context_count()
    }

    /// Binds names in one context to objects, with one commit to the store. `parent` is the name of
    /// the context; an empty name is the initial context. A name that is bound to a context keeps
    /// its binding, as does a name that is bound to an object if `replaces` is false.
    ///
    /// # Errors
    /// [`BindAllError::Failed`] with the reason, for example if `parent` is bound to no context of
    /// this server.
    pub fn bind_all(
        &self,
        parent: &[NameComponent],
        bindings: &[NewBinding],
        replaces: bool,
    ) -> Result<BindOutcomes, BindAllError> {
        control::bind_all(&self.service, parent, bindings, replaces)
    }

    /// Returns a servant of [`corelane_naming::Control`] for this service. `shutdown` has to end
    /// the server. A client that reaches the object can bind names, write backups, and end the
    /// server.
    #[must_use]
    pub fn control_servant(&self, shutdown: impl Fn() + Send + Sync + 'static) -> Servant {
        control::servant(Arc::clone(&self.service), self.root.clone().into(), Box::new(shutdown))
    }

    /// Writes a copy of all contexts at one instant to a new file, for
    /// [`NamingConfig::store_file`]. Returns `None` for a service in memory.
    ///
    /// # Errors
    /// [`StoreError::FileExists`] if the file exists; errors of the store.
    #[must_use]
    pub fn backup(&self, path: impl AsRef<Path>) -> Option<Result<(), StoreError>> {
        self.service.directory.backup(path.as_ref())
    }
}

impl fmt::Debug for NamingService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NamingService").field("contexts", &self.context_count()).finish_non_exhaustive()
    }
}

/// The reason why a name service cannot be served.
#[derive(Debug)]
pub enum ServeError {
    /// The store cannot be used.
    Store(StoreError),
    /// The ORB refuses to serve the contexts.
    Orb(SystemException),
}

impl From<StoreError> for ServeError {
    fn from(error: StoreError) -> Self {
        ServeError::Store(error)
    }
}

impl From<SystemException> for ServeError {
    fn from(exception: SystemException) -> Self {
        ServeError::Orb(exception)
    }
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServeError::Store(error) => error.fmt(f),
            ServeError::Orb(exception) => write!(f, "the name service cannot be served: {exception}"),
        }
    }
}

impl std::error::Error for ServeError {}

#[cfg(test)]
mod tests {
    use std::thread;

    use corelane_sys::clock;

    use super::*;
    use crate::naming::corelane_naming::{Position, WatchedContextRef};

    const GENEROUS: Duration = Duration::from_secs(60);

    struct Scene {
        _server: Orb,
        naming: NamingService,
        _client: Orb,
        watched: WatchedContextRef,
    }

    fn scene(naming: NamingConfig) -> Scene {
        let server = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
        let naming = naming.serve(&server).unwrap();
        let client = Orb::new().unwrap();
        let watched = client.string_to_reference(&naming.reference().as_object().to_string()).unwrap();
        Scene { _server: server, naming, _client: client, watched }
    }

    fn asked(watched: &WatchedContextRef, start: &Position, patience: Duration) -> Vec<String> {
        let patience = u32::try_from(patience.as_millis()).unwrap();
        let (is_whole, changes, _) = watched.changes_after(start, patience).unwrap();
        assert!(is_whole);
        changes.into_iter().map(|change| change.name.id).collect()
    }

    #[test]
    fn one_watcher_waits_for_the_next_change_and_further_watchers_get_an_answer_at_once() {
        let mut naming = NamingConfig::new().max_watching_clients(1);
        naming.settings.max_patience = 10 * GENEROUS;
        let scene = scene(naming);
        let (naming, watched) = (&scene.naming, scene.watched.with_timeout(2 * GENEROUS));
        let start = watched.last_change().unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| asked(&watched, &start, GENEROUS));
            let end = clock::now() + GENEROUS;
            while *naming.service.watchers.lock() == 0 {
                assert!(!waiting.is_finished() && !end.is_past(), "the server must wait for a change");
                thread::yield_now();
            }
            // A wait for the client's whole `patience` would make the call time out.
            assert!(asked(&watched.with_timeout(GENEROUS), &start, 2 * GENEROUS).is_empty());
            assert!(!waiting.is_finished());
            naming.reference().bind(&name::to_name("a").unwrap(), None).unwrap();
            assert_eq!(waiting.join().unwrap(), ["a"]);
        });
        assert_eq!(*naming.service.watchers.lock(), 0);
    }

    #[test]
    fn watcher_does_not_wait_longer_than_the_server_permits() {
        let Scene { watched, .. } = &scene(NamingConfig::new());
        let start = watched.last_change().unwrap();
        assert!(asked(&watched.with_timeout(GENEROUS), &start, 2 * GENEROUS).is_empty());
    }
}
