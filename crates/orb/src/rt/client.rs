//! The client's side: which connections the calls of a reference take, and what their requests say of the priority.
//!
//! What a reference says of its object's priority model, bands and lanes is read once; choosing for a call takes no lock and
//! allocates nothing.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use corelane_net::Endpoint;
use corelane_sched::selection::{self, Unreachable};
use corelane_sched::{Priority, PriorityBands, PriorityModel, PriorityTransform};
use corelane_wire::exception::minor;

use super::policies::{Protocol, Sockets};
use crate::client::bands::{Band, Bands};
use crate::client::pool::Pool;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::invocation::target::Binding;
use crate::object::ObjectRef;
use crate::orb::Core;

/// Real-time policies of a reference; set with [`ObjectRef::with_rt_policies`](crate::ObjectRef::with_rt_policies).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RtClientPolicies {
    /// PriorityBandedConnectionPolicy (45), low and high ends: calls of one band share connections, those of two never do.
    pub priority_bands: Option<Vec<(i16, i16)>>,
    /// PrivateConnectionPolicy (44): connections of this reference (and its copies) alone.
    pub private_connection: bool,
    /// ClientProtocolPolicy (43): which protocols may be used, the preferred first, and what their sockets are like; empty: what the
    /// reference says, else all.
    pub client_protocols: Vec<Protocol>,
}

thread_local! {
    static OF_THREAD: RefCell<Option<OfThread>> = const { RefCell::new(None) };
    /// Spares the look where there are none.
    static HAS: Cell<bool> = const { Cell::new(false) };
}

/// The policies of a thread, and the references that were called under them.
struct OfThread {
    asked: Asked,
    /// By the addresses of bindings, which they keep alive: how references are bound under the policies.
    bindings: HashMap<usize, (Arc<Binding>, Arc<Binding>)>,
}

/// References that a thread remembers under its policies; then it begins anew.
const REMEMBERED: usize = 1024;

/// Runs `body` with `policies` on the calling thread (PolicyCurrent): calls go by those of the reference, then by these, then by those of the
/// ORB, each policy by itself. They do not add to those of a scope around it. Connections that are private under them end with the scope.
///
/// # Errors
/// BAD_PARAM for priorities that are no bands and for negative sizes; `body` has not run then.
///
/// # Examples
/// ```
/// use corelane::rt::{RtClientPolicies, with_client_policies};
/// let private = RtClientPolicies { private_connection: true, ..RtClientPolicies::default() };
/// let result = with_client_policies(&private, || { /* calls made here have connections of their own */ 7 })?;
/// assert_eq!(result, 7);
/// # Ok::<(), corelane::SystemException>(())
/// ```
pub fn with_client_policies<T>(policies: &RtClientPolicies, body: impl FnOnce() -> T) -> Result<T, SystemException> {
    struct Restore(Option<OfThread>);
    impl Drop for Restore {
        fn drop(&mut self) {
            HAS.set(self.0.is_some());
            let ended = OF_THREAD.replace(self.0.take());
            // Connections end with it, outside of the borrow.
            drop(ended);
        }
    }
    let of_thread = OfThread { asked: policies.check()?, bindings: HashMap::new() };
    let _restore = Restore(OF_THREAD.replace(Some(of_thread)));
    HAS.set(true);
    Ok(body())
}

/// Whether the calling thread has policies of its own.
#[inline]
pub(crate) fn has_policies_of_thread() -> bool {
    HAS.get()
}

/// The reference as the policies of the calling thread have it.
#[cold]
pub(crate) fn under_policies_of_thread(core: &Core, object: &ObjectRef) -> ObjectRef {
    OF_THREAD.with_borrow_mut(|of_thread| {
        let Some(OfThread { asked, bindings }) = of_thread else { return object.clone() };
        if bindings.len() >= REMEMBERED {
            bindings.clear();
        }
        let binding = object.binding();
        let (_, under) = bindings.entry(Arc::as_ptr(binding).addr()).or_insert_with(|| {
            let wider = asked.clone().or(core.asked());
            let under = Binding::new(binding.ior().clone(), binding.own().clone(), &wider);
            (Arc::clone(binding), Arc::new(under))
        });
        object.with_binding(Arc::clone(under))
    })
}

/// What a reference says in a profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) model: Option<(PriorityModel, i16)>,
    pub(crate) bands: Vec<(i16, i16)>,
    pub(crate) protocols: Vec<Protocol>,
}

/// What a client goes by, checked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) bands: Vec<(i16, i16)>,
    pub(crate) private: bool,
    pub(crate) protocols: Vec<Protocol>,
}

impl Asked {
    /// Completed by what the ORB asks for.
    pub(crate) fn or(self, wider: &Asked) -> Self {
        let or = |own: Vec<_>, wider: &Vec<_>| if own.is_empty() { wider.clone() } else { own };
        Asked {
            bands: if self.bands.is_empty() { wider.bands.clone() } else { self.bands },
            private: self.private || wider.private,
            protocols: or(self.protocols, &wider.protocols),
        }
    }
}

impl RtClientPolicies {
    /// # Errors
    /// BAD_PARAM for priorities that are no bands, and for negative sizes.
    pub(crate) fn check(&self) -> Result<Asked, SystemException> {
        let bands = self.priority_bands.clone();
        if let Some(bands) = &bands {
            PriorityBands::new(bands.iter().copied())
                .map_err(|error| SystemException::new(Kind::BadParam, 0, Completion::No).because(error.to_string()))?;
        }
        if !self.client_protocols.iter().all(|protocol| protocol.is_valid()) {
            let exception = SystemException::new(Kind::BadParam, 0, Completion::No);
            return Err(exception.because("the size of a buffer is not negative"));
        }
        let (bands, protocols) = (bands.unwrap_or_default(), self.client_protocols.clone());
        Ok(Asked { bands, private: self.private_connection, protocols })
    }
}

/// Which protocols a client may use: those of the side that says something. `None` if both do.
pub(crate) fn protocols<'p>(asked: &'p Asked, said: &'p Said) -> Option<&'p [Protocol]> {
    selection::reconcile(&asked.protocols, &said.protocols).ok()
}

/// The place of an endpoint's protocol among those that may be used, and what its connections are made with; `None` if it is not among
/// them.
pub(crate) fn rank(protocols: &[Protocol], endpoint: &Endpoint) -> Option<(usize, Sockets)> {
    if protocols.is_empty() {
        return Some((0, Sockets::default()));
    }
    let place = protocols.iter().position(|protocol| protocol.serves(endpoint))?;
    protocols.get(place).map(|protocol| (place, protocol.sockets()))
}

/// A profile's way to the lane of a call.
#[derive(Debug)]
pub(crate) struct Lanes {
    model: Option<PriorityModel>,
    /// With a server-declared model the object's.
    server_priority: Option<Priority>,
    bands: Result<Option<PriorityBands>, Unreachable>,
    /// Each with the priority that the reference gives it (-1: none).
    endpoints: Vec<(i16, Arc<Bands>)>,
}

/// What a call goes by.
#[derive(Debug)]
pub(crate) struct Chosen<'l> {
    pub(crate) pool: &'l Arc<Pool>,
    /// What the request says of its priority.
    pub(crate) priority: Option<i16>,
}

impl Lanes {
    /// Of what reference and client say; `None` where neither says anything of priorities.
    pub(crate) fn new(said: &Said, asked: &Asked, endpoints: impl FnOnce() -> Vec<(i16, Arc<Bands>)>) -> Option<Self> {
        if said.model.is_none() && asked.bands.is_empty() {
            return None;
        }
        let bands = selection::reconcile(&asked.bands, &said.bands).map(|bands| {
            // Bands that a reference carries and that are none are as good as not there.
            PriorityBands::new(bands.iter().copied()).ok()
        });
        let server_priority = said.model.and_then(|(_, priority)| Priority::new(priority));
        Some(Lanes { model: said.model.map(|(model, _)| model), server_priority, bands, endpoints: endpoints() })
    }

    /// For a call of the calling thread.
    ///
    /// # Errors
    /// INV_POLICY for a priority in no band, for bands without a model, and for bands that both sides set; TRANSIENT 2 where no
    /// endpoint serves the priority; DATA_CONVERSION 2 where the ORB's transform refuses it.
    #[inline(never)]
    pub(crate) fn choose(&self, core: &Core) -> Result<Chosen<'_>, SystemException> {
        let own = if self.is_propagated() { outbound(core, super::of_caller(core))? } else { None };
        self.choose_for(own, Band::of_thread())
    }

    /// For calls at `priority`, of a thread that runs at it.
    ///
    /// # Errors
    /// Those of [`choose`](Self::choose).
    pub(crate) fn choose_at(&self, core: &Core, priority: Priority) -> Result<Chosen<'_>, SystemException> {
        self.choose_for(Some(priority), Band::of_priority(core, priority)?)
    }

    fn is_propagated(&self) -> bool {
        self.model == Some(PriorityModel::ClientPropagated)
    }

    fn choose_for(&self, clients: Option<Priority>, thread: Band) -> Result<Chosen<'_>, SystemException> {
        let propagated = self.is_propagated();
        let own = if propagated { clients } else { self.server_priority };
        let bands = self.bands.as_ref().map_err(|conflict| refused(*conflict))?;
        if bands.is_some() && self.model.is_none() {
            return Err(refused(Unreachable::BandsWithoutModel));
        }
        let Some(priority) = own else {
            // A thread without a priority: the server decides.
            let (_, server) = self.endpoints.first().ok_or_else(|| refused(Unreachable::NoEndpoint))?;
            return Ok(Chosen { pool: server.pool(thread), priority: None });
        };
        let band = selection::band(self.model, bands.as_ref(), priority).map_err(refused)?;
        let equal = self.endpoints.iter().all(|(endpoint, _)| *endpoint == -1);
        let serves = |endpoint| selection::serves(self.model, band, priority, endpoint, equal);
        // The lane that the server runs the request in, if it is there; else the first within the band.
        let exact = self.endpoints.iter().find(|(endpoint, _)| *endpoint == priority.get() && serves(*endpoint));
        let (_, server) = exact
            .or_else(|| self.endpoints.iter().find(|(endpoint, _)| serves(*endpoint)))
            .ok_or_else(|| refused(Unreachable::NoEndpoint))?;
        let shared = band.map_or(thread, Band::of_range);
        Ok(Chosen { pool: server.pool(shared), priority: propagated.then(|| priority.get()) })
    }
}

/// The priority of a nested call: what the ORB's transform makes of it, told of the object whose servant calls.
fn outbound(core: &Core, priority: Option<Priority>) -> Result<Option<Priority>, SystemException> {
    match (&core.config().rt.transform, priority) {
        (Some(transform), Some(priority)) => transformed(&**transform, priority),
        (_, priority) => Ok(priority),
    }
}

#[cold]
fn transformed(transform: &dyn PriorityTransform, priority: Priority) -> Result<Option<Priority>, SystemException> {
    let Some(object) = crate::current::current().map(|current| current.object_id) else {
        // Not from an upcall: nothing came in that would have been changed.
        return Ok(Some(priority));
    };
    transform.outbound(priority, object.as_octets()).map(Some).ok_or_else(super::config::unmappable)
}

#[cold]
fn refused(why: Unreachable) -> SystemException {
    let exception = match why {
        Unreachable::NoEndpoint => {
            SystemException::new(Kind::Transient, minor::transient::NO_USABLE_PROFILE, Completion::No)
        }
        Unreachable::Conflict | Unreachable::BandsWithoutModel | Unreachable::OutsideBands => {
            SystemException::new(Kind::InvPolicy, minor::inv_policy::IRRECONCILABLE, Completion::No)
        }
    };
    exception.because(why.to_string())
}
