//! The client's side: which connections the calls of a reference take, and what their requests say of the priority.
//!
//! What a reference says of its object's priority model, bands and lanes is read once; choosing for a call takes no lock and
//! allocates nothing.

use std::sync::Arc;

use corelane_net::Endpoint;
use corelane_sched::selection::{self, Unreachable};
use corelane_sched::{Priority, PriorityBands, PriorityModel, PriorityTransform};

use super::policies::{Protocol, Sockets};
use crate::client::bands::{Band, Bands};
use crate::client::pool::Pool;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
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
        Unreachable::NoEndpoint => SystemException::omg(Kind::Transient, 2, Completion::No),
        Unreachable::Conflict | Unreachable::BandsWithoutModel | Unreachable::OutsideBands => {
            SystemException::new(Kind::InvPolicy, 0, Completion::No)
        }
    };
    exception.because(why.to_string())
}
