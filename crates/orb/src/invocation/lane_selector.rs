//! The selection of the connection pool and the priority for a call.

use std::sync::Arc;

use corelane_sched::selection::{self, SelectionError};
use corelane_sched::{Priority, PriorityBands, PriorityModel, PriorityTransform};
use corelane_wire::exception::minor;

use crate::client::pool::ConnectionPool;
use crate::client::server_pools::ServerPools;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::orb_context::OrbContext;
use crate::rt::band::ConnectionBand;
use crate::rt::caller_priority;
use crate::rt::client_policies::{ClientPolicies, ProfilePolicies};

#[derive(Debug)]
pub(crate) struct LaneSelector {
    model: Option<PriorityModel>,
    server_priority: Option<Priority>,
    bands: Result<Option<PriorityBands>, SelectionError>,
    /// For each endpoint of the profile, the CORBA priority of its lane (-1: none) and its pools.
    endpoints: Vec<(i16, Arc<ServerPools>)>,
}

#[derive(Debug)]
pub(crate) struct PoolSelection<'l> {
    pub(crate) pool: &'l Arc<ConnectionPool>,
    pub(crate) priority: Option<i16>,
}

impl LaneSelector {
    /// Creates the selector for the calls to a profile. Returns `None` if the profile has no
    /// priority model and the client has no bands.
    pub(crate) fn new(
        profile: &ProfilePolicies,
        client: &ClientPolicies,
        endpoints: impl FnOnce() -> Vec<(i16, Arc<ServerPools>)>,
    ) -> Option<Self> {
        if profile.model.is_none() && client.bands.is_empty() {
            return None;
        }
        let bands = selection::reconcile_policy(&client.bands, &profile.bands)
            .map(|bands| PriorityBands::new(bands.iter().copied()).ok());
        let server_priority = profile.model.and_then(|(_, priority)| Priority::new(priority));
        Some(LaneSelector {
            model: profile.model.map(|(model, _)| model),
            server_priority,
            bands,
            endpoints: endpoints(),
        })
    }

    /// Selects the pool and the priority for a call of the calling thread.
    ///
    /// # Errors
    /// INV_POLICY for a priority in no band, for bands without a priority model, and if both the
    /// reference and the client set bands. TRANSIENT 2 if no endpoint serves the priority.
    /// DATA_CONVERSION 2 if the ORB's priority transform refuses the priority.
    #[inline(never)]
    pub(crate) fn select(&self, orb: &OrbContext) -> Result<PoolSelection<'_>, SystemException> {
        let thread = ConnectionBand::for_current_thread();
        if !self.is_propagated() {
            return self.select_for(None, thread);
        }
        let (priority, is_implied) = caller_priority(orb).parts();
        let chosen = self.select_for(outbound_priority(orb, priority)?, thread);
        if is_implied && chosen.is_err() { self.select_for(None, thread) } else { chosen }
    }

    pub(crate) fn select_at(&self, orb: &OrbContext, priority: Priority) -> Result<PoolSelection<'_>, SystemException> {
        self.select_for(Some(priority), ConnectionBand::for_priority(&orb.config().rt, priority)?)
    }

    fn is_propagated(&self) -> bool {
        self.model == Some(PriorityModel::ClientPropagated)
    }

    #[cold]
    fn no_endpoint(&self, priority: Priority) -> SystemException {
        let lanes = crate::text::join(self.endpoints.iter().map(|(endpoint, _)| *endpoint));
        unreachable_with_detail(
            SelectionError::NoEndpoint,
            format!("{}: {priority}; its lanes are {lanes}", SelectionError::NoEndpoint),
        )
    }

    fn select_for(
        &self,
        clients: Option<Priority>,
        thread: ConnectionBand,
    ) -> Result<PoolSelection<'_>, SystemException> {
        let propagated = self.is_propagated();
        let own = if propagated { clients } else { self.server_priority };
        let bands = self.bands.as_ref().map_err(|conflict| unreachable_error(*conflict))?;
        if bands.is_some() && self.model.is_none() {
            return Err(unreachable_error(SelectionError::BandsWithoutModel));
        }
        let Some(priority) = own else {
            let (_, server) = self.endpoints.first().ok_or_else(|| unreachable_error(SelectionError::NoEndpoint))?;
            return Ok(PoolSelection { pool: server.pool(thread), priority: None });
        };
        let band = selection::select_band(self.model, bands.as_ref(), priority).map_err(unreachable_error)?;
        let equal = self.endpoints.iter().all(|(endpoint, _)| *endpoint == -1);
        let serves = |endpoint| selection::endpoint_serves(self.model, band, priority, endpoint, equal);
        let exact = self.endpoints.iter().find(|(endpoint, _)| *endpoint == priority.get() && serves(*endpoint));
        let (_, server) = exact
            .or_else(|| self.endpoints.iter().find(|(endpoint, _)| serves(*endpoint)))
            .ok_or_else(|| self.no_endpoint(priority))?;
        let shared = band.map_or(thread, ConnectionBand::for_range);
        Ok(PoolSelection { pool: server.pool(shared), priority: propagated.then(|| priority.get()) })
    }
}

/// Returns the priority that a request carries. In an upcall, the ORB's priority transform, if
/// there is one, converts it.
fn outbound_priority(orb: &OrbContext, priority: Option<Priority>) -> Result<Option<Priority>, SystemException> {
    match (&orb.config().rt.priority_transform, priority) {
        (Some(transform), Some(priority)) => transform_outbound(&**transform, priority),
        (_, priority) => Ok(priority),
    }
}

#[cold]
fn transform_outbound(
    transform: &dyn PriorityTransform,
    priority: Priority,
) -> Result<Option<Priority>, SystemException> {
    let innermost = crate::upcall_stack::innermost();
    let Some(object) = innermost.and_then(|(frame, depth)| crate::upcall_stack::object_id(&frame, depth)) else {
        return Ok(Some(priority));
    };
    transform.outbound(priority, &object).map(Some).ok_or_else(crate::rt::config::unmappable)
}

#[cold]
fn unreachable_error(why: SelectionError) -> SystemException {
    unreachable_with_detail(why, why.to_string())
}

#[cold]
fn unreachable_with_detail(why: SelectionError, detail: String) -> SystemException {
    let exception = match why {
        SelectionError::NoEndpoint => {
            SystemException::new(Kind::Transient, minor::transient::NO_USABLE_PROFILE, Completion::No)
        }
        SelectionError::PolicyConflict | SelectionError::BandsWithoutModel | SelectionError::OutsideBands => {
            SystemException::new(Kind::InvPolicy, minor::inv_policy::IRRECONCILABLE, Completion::No)
        }
    };
    exception.with_message(detail)
}
