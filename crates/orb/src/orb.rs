//! The ORB: what everything else hangs from, how it is made, and how it ends.

mod builder;
mod core;
#[cfg(test)]
mod tests;

pub(crate) use builder::parse as parse_address;
pub use builder::{OrbBuilder, OrbError};
#[cfg(test)]
pub(crate) use core::Config;
pub(crate) use core::Core;
use core::Patience;

use std::sync::Arc;

use corelane_net::Endpoint;
use corelane_wire::exception::minor;

use crate::event::EventCounts;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::object::{ObjectRef, Reference};
use crate::poa::Poa;
use crate::rt::RtOrb;

/// An ORB. It owns its threads, connections and POAs: dropping it ends them all, and waits for that except on one of its own threads
/// (in an upcall, above all), where it says so to the others and returns. For servants that still run it waits as long as for peers
/// ([`OrbBuilder::closing_time`]); their threads end by themselves when they return ([`shutdown`](Orb::shutdown) waits for them). References may live longer; calls
/// through them raise BAD_INV_ORDER 4 then. Nothing is shared between the ORBs of a process.
///
/// # Examples
/// ```
/// use corelane::Orb;
/// let orb = Orb::builder().listen("tcp:127.0.0.1:0").build()?;
/// orb.root_poa().manager().activate()?;
/// assert_eq!(orb.endpoints().len(), 1);
/// orb.shutdown(true)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Orb {
    core: Arc<Core>,
}

impl Orb {
    /// A client: it listens nowhere, but its own objects can be called within the process.
    ///
    /// # Errors
    /// When the system gives it no descriptors or threads.
    pub fn new() -> Result<Orb, OrbError> {
        Orb::builder().build()
    }

    /// An ORB to be set up.
    pub fn builder() -> OrbBuilder {
        OrbBuilder::new()
    }

    #[cfg(test)]
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// The root of the POAs. Its manager holds requests until it is activated.
    #[must_use]
    pub fn root_poa(&self) -> Poa {
        self.core.root_poa()
    }

    /// Where the ORB listens, ports as the system chose them.
    #[must_use]
    pub fn endpoints(&self) -> &[Endpoint] {
        self.core.listening()
    }

    /// A reference from its text: `IOR:`, `corbaloc:`, or the text of a nil reference, which is `None`.
    ///
    /// # Errors
    /// BAD_PARAM 7 to 10 for text that is none of them, INV_OBJREF or MARSHAL for an IOR that does not decode; BAD_INV_ORDER 4 after
    /// shutdown.
    pub fn string_to_object(&self, text: &str) -> Result<Option<ObjectRef>, SystemException> {
        self.core.check_usable()?;
        self.core.string_to_object(text)
    }

    /// The object that `text` names, as a reference of type `R`: [`string_to_object`](Self::string_to_object) and
    /// [`narrow`](Reference::narrow) in one step, for objects that must be there. Asks the object for its interface unless
    /// the reference says it.
    ///
    /// # Errors
    /// Those of both steps; INV_OBJREF for a nil reference and for an object that has another interface.
    pub fn reference<R: Reference>(&self, text: &str) -> Result<R, SystemException> {
        let refused = |why| SystemException::new(Kind::InvObjref, 0, Completion::No).because(why);
        let object = self.string_to_object(text)?.ok_or_else(|| refused("the reference is nil".to_owned()))?;
        R::narrow(&object)?.ok_or_else(|| refused(format!("the object is no {}", R::REPOSITORY_ID)))
    }

    /// Lets the plain object key `key` lead to `reference`: `corbaloc::host:port/key` reaches it.
    ///
    /// # Errors
    /// BAD_PARAM if the key is taken, or looks like one of the ORB's own; BAD_INV_ORDER 4 after shutdown.
    pub fn bind_key(&self, key: &str, reference: &ObjectRef) -> Result<(), SystemException> {
        self.core.adapters().bind_plain(key.as_bytes(), reference)
    }

    /// Lets the plain object key `key` lead nowhere again; false if it did not lead anywhere.
    pub fn unbind_key(&self, key: &str) -> bool {
        self.core.adapters().unbind_plain(key.as_bytes())
    }

    /// Registers `reference` as the initial reference `name`, for [`resolve_initial_references`](Self::resolve_initial_references)
    /// and `corbaloc:rir:`.
    ///
    /// # Errors
    /// BAD_PARAM if the name is empty or taken; BAD_INV_ORDER 4 after shutdown.
    pub fn register_initial_reference(&self, name: &str, reference: &ObjectRef) -> Result<(), SystemException> {
        if self.core.register_initial(name, reference)? {
            return Ok(());
        }
        Err(SystemException::new(Kind::BadParam, 0, Completion::No)
            .because(format!("\"{name}\" is empty or registered already")))
    }

    /// The reference that was registered as `name`.
    ///
    /// # Errors
    /// BAD_PARAM 10 if there is none; BAD_INV_ORDER 4 after shutdown.
    pub fn resolve_initial_references(&self, name: &str) -> Result<ObjectRef, SystemException> {
        self.core.check_usable()?;
        self.core.initial_reference(name)
    }

    /// Real-time CORBA: thread pools, the priority of threads, mutexes.
    #[must_use]
    pub fn real_time(&self) -> RtOrb {
        RtOrb::new(&self.core)
    }

    /// What makes values (IDL `valuetype`) of the types that come in.
    #[cfg(feature = "valuetype")]
    #[must_use]
    pub fn value_factories(&self) -> &crate::value::ValueFactories {
        self.core.value_factories()
    }

    /// How often things have happened.
    #[must_use]
    pub fn event_counts(&self) -> EventCounts {
        self.core.events().counts()
    }

    /// Serves until [`shutdown`](Self::shutdown), which another thread or a servant calls. Requests of POAs with the
    /// MAIN_THREAD model run here, and their objects are etherealized here.
    pub fn run(&self) {
        self.core.main_queue().run();
    }

    /// Whether a request or the end of an object waits for the main thread.
    #[must_use]
    pub fn work_pending(&self) -> bool {
        self.core.main_queue().is_pending()
    }

    /// Runs one request, or ends one object, that waits for the main thread, which the calling thread is from now on; false if there is none, or
    /// another thread is in [`run`](Self::run). For programs whose main thread has a loop of its own.
    pub fn perform_work(&self) -> bool {
        self.core.main_queue().perform_one()
    }

    /// Sends the oneways of [`SyncScope::None`](crate::SyncScope::None) that connections hold. Those of a connection that a call uses at
    /// this moment go with that call, or when their time is over.
    pub fn flush_oneways(&self) {
        self.core.send_held(true);
    }

    /// Ends the ORB: POAs are destroyed, connections closed in good order, threads joined. With `wait` it returns when that
    /// is done, however long servants run; without, a later call with `wait` waits, or the drop of the ORB.
    ///
    /// Objects of POAs with the MAIN_THREAD model are etherealized by the thread that ends the ORB, which the main thread may not notice.
    ///
    /// # Errors
    /// BAD_INV_ORDER 3 with `wait` in an upcall, in a servant manager, in the `Drop` of a servant or servant manager that a POA or the end lets go
    /// of, in an event handler while the calling thread ends POAs and tells connections of the end, or on any other of the ORB's own threads:
    /// it would wait for itself.
    pub fn shutdown(&self, wait: bool) -> Result<(), SystemException> {
        if wait && crate::current::is_inside(self.core.adapters().stamp) {
            return Err(SystemException::new(Kind::BadInvOrder, minor::bad_inv_order::WOULD_DEADLOCK, Completion::No));
        }
        self.core.shutdown(if wait { Patience::Endless } else { Patience::None });
        Ok(())
    }

    /// A handle that can end the ORB from anywhere, a servant or a signal handler's thread for example.
    #[must_use]
    pub fn shutdown_handle(&self) -> ShutdownHandle {
        ShutdownHandle { core: Arc::downgrade(&self.core) }
    }
}

impl Drop for Orb {
    fn drop(&mut self) {
        if crate::current::is_inside(self.core.adapters().stamp) {
            self.core.shutdown_elsewhere();
        } else {
            self.core.shutdown(Patience::ClosingTime);
        }
    }
}

/// Ends an ORB from anywhere; it does not keep it alive.
#[derive(Clone, Debug)]
pub struct ShutdownHandle {
    core: std::sync::Weak<Core>,
}

impl ShutdownHandle {
    /// Makes [`Orb::run`] return and lets nothing new in. Does not wait.
    pub fn shutdown(&self) {
        if let Some(core) = self.core.upgrade() {
            core.shutdown(Patience::None);
        }
    }
}
