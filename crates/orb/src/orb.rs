//! The ORB: its interface, its builder and its shutdown.

mod builder;
mod core;
mod error;
mod initial_references;
#[cfg(test)]
mod tests;

pub use builder::OrbBuilder;
pub(crate) use core::OrbCore;
use core::ShutdownWait;
pub use error::OrbError;
#[cfg(test)]
pub(crate) use initial_references::InitialReferences;

use std::sync::Arc;

use corelane_net::Endpoint;
use corelane_wire::exception::minor;

use crate::event::EventCounts;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::object::{ObjectRef, Reference};
use crate::octets_buffer::OctetsBuffer;
use crate::poa::Poa;
use crate::rt::RtOrb;

/// An ORB, which owns its threads, connections and POAs.
///
/// Dropping an ORB shuts it down and waits for running servants and for peers, for a bounded time
/// ([`OrbBuilder::drain_timeout`]). On a thread that the ORB started, and in an upcall, the drop
/// starts the shutdown and returns at once.
///
/// References may live longer than the ORB; calls through them then raise BAD_INV_ORDER 4.
///
/// # Examples
///
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
    core: Arc<OrbCore>,
}

impl Orb {
    /// Makes an ORB for a client. The ORB does not listen, but this process can call its objects.
    ///
    /// # Errors
    /// If the kernel refuses descriptors or threads.
    pub fn new() -> Result<Orb, OrbError> {
        Orb::builder().build()
    }

    /// Returns a builder for an ORB.
    pub fn builder() -> OrbBuilder {
        OrbBuilder::new()
    }

    #[cfg(test)]
    pub(crate) fn core(&self) -> &Arc<OrbCore> {
        &self.core
    }

    /// Returns the root POA. Its manager holds requests until it is activated.
    #[must_use]
    pub fn root_poa(&self) -> Poa {
        self.core.root_poa()
    }

    /// Returns the endpoints at which the ORB listens, with the ports that the system chose.
    #[must_use]
    pub fn endpoints(&self) -> &[Endpoint] {
        self.core.listening()
    }

    /// Converts text to a reference. The text begins with `IOR:`, `corbaloc:` or `corbaname:`.
    /// Returns `None` for a nil reference. For `corbaname:` the method calls the name service, with
    /// the usual time-out of a call ([`with_call_policies`](crate::with_call_policies),
    /// [`OrbBuilder::call_timeout`]).
    ///
    /// # Errors
    /// BAD_PARAM 7 to 10 for any other text; INV_OBJREF or MARSHAL for an IOR that cannot be
    /// decoded; BAD_PARAM 10 for a name that cannot be resolved, and the errors of a call;
    /// BAD_INV_ORDER 4 after shutdown.
    pub fn string_to_object(&self, text: &str) -> Result<Option<ObjectRef>, SystemException> {
        self.core.check_usable()?;
        self.core.string_to_object(text)
    }

    /// Converts text to a typed reference: [`string_to_object`](Self::string_to_object), then
    /// [`narrow`](Reference::narrow). Calls the object to check its interface, unless the reference
    /// itself states the interface.
    ///
    /// # Errors
    /// The errors of both steps; INV_OBJREF for a nil reference and for an object that has another
    /// interface.
    pub fn string_to_reference<R: Reference>(&self, text: &str) -> Result<R, SystemException> {
        let refused = |why| SystemException::new(Kind::InvObjref, 0, Completion::No).with_message(why);
        let object = self.string_to_object(text)?.ok_or_else(|| refused("the reference is nil".to_owned()))?;
        R::narrow(&object)?
            .ok_or_else(|| refused(format!("the object does not have the interface {}", R::REPOSITORY_ID)))
    }

    /// Binds the plain object key `key` to `reference`, so that `corbaloc::host:port/key` reaches
    /// its object.
    ///
    /// # Errors
    /// BAD_PARAM if the key is empty, is already bound, or has the form of the object keys that the
    /// ORB makes; BAD_INV_ORDER 4 after shutdown.
    pub fn bind_corbaloc_key(&self, key: &str, reference: &ObjectRef) -> Result<(), SystemException> {
        self.core.poa_table().bind_plain(key.as_bytes(), reference)
    }

    /// Unbinds the plain object key `key`. Returns false if the key was not bound.
    pub fn unbind_corbaloc_key(&self, key: &str) -> bool {
        self.core.poa_table().unbind_plain(key.as_bytes())
    }

    /// Registers `reference` as the initial reference `name`, for
    /// [`resolve_initial_references`](Self::resolve_initial_references) and `corbaloc:rir:`.
    ///
    /// # Errors
    /// BAD_PARAM if the name is empty or already used; BAD_INV_ORDER 4 after shutdown.
    pub fn register_initial_reference(&self, name: &str, reference: &ObjectRef) -> Result<(), SystemException> {
        if self.core.register_initial_reference(name, reference)? {
            return Ok(());
        }
        Err(SystemException::new(Kind::BadParam, 0, Completion::No)
            .with_message(format!("\"{name}\" is empty or registered already")))
    }

    /// Returns the initial reference `name`: a registered object, or the object to which the URL of
    /// the name resolves. The URL comes from [`OrbBuilder::initial_reference`] or `-ORBInitRef`, or
    /// is made from [`OrbBuilder::default_initial_reference`]. The ORB resolves it at each call.
    ///
    /// # Errors
    /// BAD_PARAM 10 if there is no such reference; for a URL the errors of
    /// [`string_to_object`](Self::string_to_object); BAD_INV_ORDER 4 after shutdown.
    pub fn resolve_initial_references(&self, name: &str) -> Result<ObjectRef, SystemException> {
        self.core.check_usable()?;
        self.core.initial_reference(name)
    }

    /// Returns the names of the initial references in alphabetical order
    /// (`list_initial_services`).
    #[must_use]
    pub fn initial_reference_names(&self) -> Vec<String> {
        self.core.initial_references().lock().names()
    }

    /// Returns the Real-time CORBA interface: thread pools, thread priorities and mutexes.
    #[must_use]
    pub fn real_time(&self) -> RtOrb {
        RtOrb::new(self.core.adapter())
    }

    /// Returns the ORB's table of factories for received values (IDL `valuetype`).
    #[cfg(feature = "valuetype")]
    #[must_use]
    pub fn value_factories(&self) -> &crate::value::ValueFactories {
        self.core.value_factories()
    }

    /// Creates an empty buffer with room for `octets` octets, from the ORB's cache of memory for
    /// large messages. Servants use [`OctetsBuffer::with_capacity`].
    ///
    /// # Errors
    /// NO_MEMORY if the process has no address range of this size.
    pub fn octets_buffer(&self, octets: usize) -> Result<OctetsBuffer, SystemException> {
        OctetsBuffer::from_cache(octets, Some(self.core.adapter().spares().clone()))
    }

    /// Returns the memory in bytes of the octets that servants keep beyond their requests
    /// ([`keep_octets`](crate::keep_octets)). [`OrbBuilder::max_kept_memory`] sets the maximum.
    #[cfg(feature = "keep-octets")]
    #[must_use]
    pub fn kept_memory(&self) -> usize {
        self.core.adapter().kept_budget().kept_bytes()
    }

    /// Returns counts of events since the ORB was made.
    #[must_use]
    pub fn event_counts(&self) -> EventCounts {
        self.core.events().counts()
    }

    /// Blocks until another thread or a servant calls [`shutdown`](Self::shutdown). For POAs with
    /// the MAIN_THREAD model, this thread runs requests and etherealizes objects.
    ///
    /// Reports each POA manager that was never activated although its POAs have servants
    /// ([`Event::PoaManagerNeverActivated`]). Without a callback for events, the report is printed
    /// on standard error.
    ///
    /// [`Event::PoaManagerNeverActivated`]: crate::Event::PoaManagerNeverActivated
    pub fn run(&self) {
        self.core.poa_table().managers.report_never_activated(&self.core);
        self.core.server().main_queue().run();
    }

    /// Returns true if a request or a deactivation waits for the main thread.
    #[must_use]
    pub fn work_pending(&self) -> bool {
        self.core.server().main_queue().is_pending()
    }

    /// Makes the calling thread the main thread, and runs one request or etherealizes one object
    /// that waits for the main thread. Returns false if nothing waits. If another thread is in
    /// [`run`](Self::run), does nothing and returns false.
    pub fn perform_work(&self) -> bool {
        self.core.server().main_queue().perform_one()
    }

    /// Sends the buffered oneways of [`SyncScope::None`](crate::SyncScope::None). If a call is
    /// using a connection at this moment, the oneways of this connection are sent with the call or
    /// when their delay has passed.
    pub fn flush_oneways(&self) {
        self.core.send_batches(true);
    }

    /// Shuts the ORB down: destroys POAs, closes connections gracefully, and joins threads. With
    /// `wait` the method returns when the shutdown is complete. Without `wait`, a later call with
    /// `wait` or the drop of the ORB waits for the end of the shutdown.
    ///
    /// # Errors
    /// BAD_INV_ORDER 3 with `wait` on a thread that would wait for itself:
    /// - in an upcall or a servant manager;
    /// - in the `Drop` of a servant or servant manager that a POA or the shutdown releases;
    /// - in the event callback, while the calling thread destroys POAs and closes connections for a
    ///   shutdown;
    /// - on any other thread that the ORB started.
    pub fn shutdown(&self, wait: bool) -> Result<(), SystemException> {
        if wait && crate::upcall_stack::is_inside(self.core.stamp()) {
            return Err(SystemException::new(Kind::BadInvOrder, minor::bad_inv_order::WOULD_DEADLOCK, Completion::No));
        }
        self.core.shutdown(if wait { ShutdownWait::Unbounded } else { ShutdownWait::DoNotWait });
        Ok(())
    }

    /// Returns a handle that can shut the ORB down from anywhere, for example a servant or a signal
    /// handler's thread.
    #[must_use]
    pub fn shutdown_handle(&self) -> ShutdownHandle {
        ShutdownHandle { core: Arc::downgrade(&self.core) }
    }
}

impl Drop for Orb {
    fn drop(&mut self) {
        if crate::upcall_stack::is_inside(self.core.stamp()) {
            self.core.shutdown_elsewhere();
        } else {
            self.core.shutdown(ShutdownWait::ClosingTimeout);
        }
    }
}

/// A handle that can shut an ORB down from anywhere. The handle does not keep the ORB alive.
#[derive(Clone, Debug)]
pub struct ShutdownHandle {
    core: std::sync::Weak<OrbCore>,
}

impl ShutdownHandle {
    /// Shuts the ORB down like [`Orb::shutdown`] without `wait`.
    pub fn shutdown(&self) {
        if let Some(core) = self.core.upgrade() {
            core.shutdown(ShutdownWait::DoNotWait);
        }
    }
}
