//! The real-time state of a POA, and the decision which lane runs a request to the POA.

use std::sync::Arc;

use corelane_net::Endpoint;
use corelane_sched::lane_choice::{LaneChoice, LanePolicies, PolicyViolation};
use corelane_sched::{Priority, PriorityBand, PriorityBands, PriorityModel, PriorityModelPolicy};
use corelane_sys::lock::MutexGuard;
use corelane_wire::exception::minor;

use super::config::{UnmatchedPriority, unmappable};
use super::object_priorities::{AssignError, ObjectPriorities};
use super::policies::{RtPolicies, policy_index, violating_policy};
use super::protocol::{Protocol, TcpProperties, UnixProperties};
use super::registry::Threadpool;
use crate::address::LaneEndpoint;
use crate::ceiling::Ceiling;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::object::ObjectRef;
use crate::orb_context::OrbContext;
use crate::poa::{ClientPriority, Lookup, PoaError, PolicyIndex};
use crate::server::connection::ConnectionOrigin;
use crate::server::strategy::Lane;
use crate::server_context::ServerContext;
use crate::thread_context;

#[derive(Debug)]
pub(crate) struct RtPoa {
    pub(crate) policies: RtPolicies,
    model: Option<PriorityModelPolicy>,
    bands: Option<PriorityBands>,
    /// The thread pool of the POA's policies; `None` if the pools that `OrbBuilder` configured
    /// serve the POA.
    pub(crate) pool: Option<Arc<Threadpool>>,
    object_priorities: ObjectPriorities,
    /// A pointer to [`RtPoa::make_reference`], which lets the linker drop the function from
    /// programs that create no POA.
    make_reference: MakeReference,
    place_request: PlaceRequest,
}

type PlaceRequest = fn(&RtPoa, &ServerContext, Lookup<'_>, Option<Priority>, &[u8]) -> RequestPlacement;
type MakeReference = fn(&RtPoa, &Arc<ServerContext>, &str, &[u8], Option<Priority>) -> ObjectRef;

/// A POA's claim to the properties of sockets. The drop of a claim without [`commit`](Self::commit)
/// withdraws it. While a claim exists, other threads that make a claim wait.
#[must_use = "the claim is given up at once"]
pub(crate) struct SocketsClaim<'c> {
    lanes: Vec<(Arc<Lane>, Vec<Protocol>)>,
    _others_wait: MutexGuard<'c, ()>,
}

impl SocketsClaim<'_> {
    pub(crate) fn commit(mut self) {
        self.lanes.clear();
    }
}

impl Drop for SocketsClaim<'_> {
    fn drop(&mut self) {
        for (lane, new) in &self.lanes {
            lane.unclaim_protocols(new);
        }
    }
}

pub(crate) enum RequestPlacement {
    /// The calling thread runs the request at this priority; with `None` the thread keeps its
    /// priority.
    CurrentThread(Option<Priority>),
    OtherLane(Arc<Lane>),
    Refused(SystemException),
}

impl RtPoa {
    /// Creates the real-time state of a POA. A priority model, thread pool or list of server
    /// protocols that `policies` does not set has the ORB's default. Returns `None` if no real-time
    /// policy is set.
    ///
    /// # Errors
    /// The index of the policy that is invalid or conflicts with other policies.
    pub(crate) fn new(orb: &ServerContext, policies: &RtPolicies) -> Result<Option<Self>, PolicyIndex> {
        let policies = policies.with_defaults_from(&orb.rt().policies.lock());
        if policies.is_empty() {
            return Ok(None);
        }
        let checked = policies.check()?;
        let find = |id| orb.rt().pool(id).ok_or(policy_index::THREADPOOL);
        let pool = policies.threadpool.map(find).transpose()?;
        let rt = RtPoa {
            policies,
            model: checked.model,
            bands: checked.bands,
            pool,
            object_priorities: ObjectPriorities::new(),
            make_reference: Self::make_reference,
            place_request: Self::compute_placement,
        };
        rt.rules().check().map_err(violating_policy)?;
        let endpoints = rt.endpoints(orb);
        let offered = |protocol: &Protocol| endpoints.iter().any(|endpoint| protocol.serves(endpoint));
        if !rt.policies.server_protocols.iter().all(offered) {
            return Err(policy_index::SERVER_PROTOCOL);
        }
        Ok(Some(rt))
    }

    /// Claims the properties of the server protocols for the sockets of the POA's lanes, and sets
    /// them.
    ///
    /// # Errors
    /// The index of the ServerProtocol policy, if another POA has claimed other properties, or if
    /// the kernel refuses a property.
    #[cold]
    pub(crate) fn claim_sockets<'c>(&self, orb: &'c ServerContext) -> Result<SocketsClaim<'c>, PolicyIndex> {
        let mut claim = SocketsClaim { lanes: Vec::new(), _others_wait: orb.rt().socket_claims.lock() };
        let wanted = &self.policies.server_protocols;
        for lane in self.lanes(orb) {
            let new = lane.claim_protocols(wanted).map_err(|_| policy_index::SERVER_PROTOCOL)?;
            claim.lanes.push((Arc::clone(lane), new));
        }
        for (lane, new) in &claim.lanes {
            lane.apply_protocols(new).map_err(|_| policy_index::SERVER_PROTOCOL)?;
        }
        Ok(claim)
    }

    fn lanes<'l>(&'l self, orb: &'l ServerContext) -> &'l [Arc<Lane>] {
        self.pool.as_ref().map_or(orb.lanes(), |pool| &pool.lanes)
    }

    fn rules(&self) -> LanePolicies<'_> {
        let lanes = self.pool.as_ref().map_or(&[][..], |pool| &pool.priorities);
        LanePolicies { model: self.model, bands: self.bands.as_ref(), lanes }
    }

    fn endpoints(&self, orb: &ServerContext) -> Vec<Endpoint> {
        match &self.pool {
            None => orb.listening().to_vec(),
            Some(pool) => pool.lanes.iter().flat_map(|lane| lane.endpoints().cloned()).collect(),
        }
    }

    /// Returns true if a lane of the pool is within `band`, and if one of the POA's bands contains
    /// `band`. A pool without lanes meets the first condition, and a POA without bands meets the
    /// second. Returns `None` if the POA has no priority model.
    pub(crate) fn can_carry_band(&self, band: PriorityBand) -> Option<bool> {
        self.model?;
        let rules = self.rules();
        let has_lane = rules.lanes.is_empty() || rules.lanes.iter().any(|lane| band.contains(*lane));
        let in_band = self
            .bands
            .as_ref()
            .is_none_or(|bands| bands.as_slice().iter().any(|own| own.contains(band.low) && own.contains(band.high)));
        Some(has_lane && in_band)
    }

    pub(crate) fn is_server_declared(&self) -> bool {
        self.model.is_some_and(|declared| declared.model == PriorityModel::ServerDeclared)
    }

    /// Converts and checks the priority of an object.
    ///
    /// # Errors
    /// BAD_PARAM if `priority` is negative, or if no lane or no band of the POA has it.
    pub(crate) fn check_priority(&self, priority: i16) -> Result<Priority, SystemException> {
        let bad = |why: String| SystemException::new(Kind::BadParam, 0, Completion::No).with_message(why);
        let Some(priority) = Priority::new(priority) else { return Err(bad("a priority must be 0 to 32767".into())) };
        self.rules().check_object_priority(priority).map_err(|violation| bad(violation.to_string()))?;
        Ok(priority)
    }

    /// Assigns a priority to an object.
    ///
    /// # Errors
    /// BAD_INV_ORDER 18 if the object has a different priority. NO_RESOURCES if too many objects of
    /// the POA have priorities.
    pub(crate) fn assign(&self, id: &[u8], priority: Priority) -> Result<(), PoaError> {
        let exception = match self.object_priorities.assign(id, priority) {
            Ok(()) => return Ok(()),
            Err(AssignError::Conflict(assigned)) => {
                SystemException::new(Kind::BadInvOrder, minor::bad_inv_order::PRIORITY_REASSIGNED, Completion::No)
                    .with_message(format!("the object has priority {assigned} already"))
            }
            Err(AssignError::Full) => SystemException::new(Kind::NoResources, 0, Completion::No)
                .with_message("too many objects of the POA have their own priorities"),
        };
        Err(exception.into())
    }

    pub(crate) fn object_priority(&self, id: &[u8]) -> Option<Priority> {
        self.object_priorities.get(id)
    }

    /// Decides which thread runs a request. `id` is the id of the request's object, and `object` is
    /// the priority that the program assigned to the object.
    #[inline]
    pub(crate) fn place_request(
        &self,
        orb: &ServerContext,
        wanted: Lookup<'_>,
        object: Option<Priority>,
        id: &[u8],
    ) -> RequestPlacement {
        (self.place_request)(self, orb, wanted, object, id)
    }

    fn compute_placement(
        &self,
        orb: &ServerContext,
        wanted: Lookup<'_>,
        object: Option<Priority>,
        id: &[u8],
    ) -> RequestPlacement {
        let (priority, is_implied) = match wanted.priority {
            ClientPriority::Propagated(priority) => (priority, false),
            ClientPriority::CallingThread => super::caller_priority(orb).parts(),
            ClientPriority::WaitingCaller(caller) => caller.parts(),
        };
        let Ok(asked) = inbound_priority(orb, priority, id) else { return RequestPlacement::Refused(unmappable()) };
        let ceiling = match wanted.origin.map_or(Ceiling::NONE, |origin| origin.ceiling) {
            Ceiling::UpTo(ceiling) => ceiling,
            Ceiling::Unset => match (self.default_priority(object), priority) {
                (unasked, Some(said)) if said > unasked && !self.is_server_declared() => {
                    return RequestPlacement::Refused(no_ceiling_error(said, unasked));
                }
                (unasked, _) => unasked,
            },
        };
        let (asked, placed) = match self.rules().choose_lane(asked, object, wanted.band) {
            // An implied priority only follows from the native priority of the caller's thread. If
            // no lane suits it, the request runs without a priority.
            Err(_) if is_implied => (None, self.rules().choose_lane(None, object, wanted.band)),
            Err(PolicyViolation::NoLane) => {
                (asked, self.place_in_arrival_lane(wanted.origin).ok_or(PolicyViolation::NoLane))
            }
            placed => (asked, placed),
        };
        let LaneChoice { lane, priority } = match placed {
            Ok(place) => place,
            Err(violation) => return RequestPlacement::Refused(self.violation_error(violation, asked)),
        };
        // A priority band can select a lane with a higher priority than the request asks for, so
        // the ceiling is checked again.
        if let (Some(found), Some(asked)) = (priority, asked)
            && found > asked.max(ceiling)
            && !self.is_server_declared()
        {
            return RequestPlacement::Refused(above_ceiling_error(found, ceiling));
        }
        let identity = thread_context::current_lane(orb.stamp());
        let Some(pool) = &self.pool else {
            return if identity.serves_default_pool() {
                RequestPlacement::CurrentThread(priority)
            } else {
                place_in_default_pool(orb, priority)
            };
        };
        let index = lane.unwrap_or(0);
        match pool.lanes.get(index) {
            Some(_) if identity.serves(pool.id.number(), index) => {
                RequestPlacement::CurrentThread(priority.or_else(|| pool.lanes.get(index).map(|lane| lane.priority())))
            }
            Some(lane) => RequestPlacement::OtherLane(Arc::clone(lane)),
            None => RequestPlacement::CurrentThread(priority),
        }
    }

    #[cold]
    fn default_priority(&self, object: Option<Priority>) -> Priority {
        self.rules().choose_lane(None, object, None).ok().and_then(|choice| choice.priority).unwrap_or(Priority::MIN)
    }

    /// Chooses the lane at whose address the request arrived. Returns `None` if the lane does not
    /// belong to the POA's pool, if the pool's rule is not
    /// [`UnmatchedPriority::ServeInArrivalLane`], or if the POA has bands and none contains the
    /// lane's priority.
    #[cold]
    fn place_in_arrival_lane(&self, origin: Option<&ConnectionOrigin>) -> Option<LaneChoice> {
        let (pool, (number, index)) = (self.pool.as_ref()?, origin?.lane_numbers);
        let lane = usize::try_from(index).ok()?;
        let serves = pool.unmatched_priority == UnmatchedPriority::ServeInArrivalLane && pool.id.number() == number;
        let priority = pool.priorities.get(lane).copied().filter(|_| serves)?;
        let in_band = self.bands.as_ref().is_none_or(|bands| bands.band_of(priority).is_some());
        in_band.then_some(LaneChoice { lane: Some(lane), priority: Some(priority) })
    }

    #[cold]
    fn violation_error(&self, violation: PolicyViolation, asked: Option<Priority>) -> SystemException {
        let rules = self.rules();
        let mut why = violation.to_string();
        if let Some(asked) = asked {
            why.push_str(&format!(": {asked}"));
        }
        if !rules.lanes.is_empty() {
            why.push_str(&format!("; the lanes are {}", crate::text::join(rules.lanes.iter())));
        }
        if let Some(bands) = rules.bands {
            let bands = bands.as_slice().iter().map(|band| format!("{} to {}", band.low, band.high));
            why.push_str(&format!("; the bands are {}", crate::text::join(bands)));
        }
        match violation {
            PolicyViolation::NoLane => {
                SystemException::new(Kind::Transient, minor::transient::NO_USABLE_PROFILE, Completion::No)
            }
            _ => SystemException::new(Kind::InvPolicy, minor::inv_policy::IRRECONCILABLE, Completion::No),
        }
        .with_message(why)
    }

    #[cold]
    pub(crate) fn effective_priority(
        &self,
        orb: &OrbContext,
        asked: Option<Priority>,
        ceiling: Ceiling,
        object: Option<Priority>,
        id: &[u8],
    ) -> Option<Priority> {
        let declared = self.model?;
        match declared.model {
            // The request will be refused, so it must not delay other requests.
            PriorityModel::ClientPropagated
                if ceiling == Ceiling::Unset && asked > Some(self.default_priority(object)) =>
            {
                Some(Priority::MIN)
            }
            PriorityModel::ServerDeclared => object.or(Some(declared.server_priority)),
            PriorityModel::ClientPropagated => {
                inbound_priority(orb, asked, id).ok().flatten().or(Some(declared.server_priority))
            }
        }
    }

    pub(crate) fn make_reference_to(
        &self,
        orb: &Arc<ServerContext>,
        type_id: &str,
        key: &[u8],
        object: Option<Priority>,
    ) -> ObjectRef {
        (self.make_reference)(self, orb, type_id, key, object)
    }

    fn make_reference(
        &self,
        orb: &Arc<ServerContext>,
        type_id: &str,
        key: &[u8],
        object: Option<Priority>,
    ) -> ObjectRef {
        let mut lanes = Vec::new();
        if let Some(pool) = &self.pool {
            let mut published = self.rules().published_lanes(object);
            if published.is_empty() {
                published.push(0);
            }
            let says_priority = self.model.is_some_and(|declared| declared.model == PriorityModel::ClientPropagated);
            for lane in published.iter().filter_map(|&index| pool.lanes.get(index)) {
                let priority = if says_priority && !pool.priorities.is_empty() { lane.priority().get() } else { -1 };
                lanes.extend(
                    lane.endpoints().map(|endpoint| LaneEndpoint { endpoint: orb.published(endpoint), priority }),
                );
            }
        } else {
            lanes.extend(
                orb.published_endpoints()
                    .iter()
                    .map(|endpoint| LaneEndpoint { endpoint: endpoint.clone(), priority: -1 }),
            );
        }
        self.make_reference_at(orb, type_id, key, object, lanes)
    }

    pub(crate) fn make_reference_at(
        &self,
        orb: &Arc<ServerContext>,
        type_id: &str,
        key: &[u8],
        object: Option<Priority>,
        lanes: Vec<LaneEndpoint>,
    ) -> ObjectRef {
        let protocols = match &*self.policies.server_protocols {
            // Without a ServerProtocol policy, references offer all protocols, the fastest first.
            [] => &[
                Protocol::SharedMemory,
                Protocol::Unix(UnixProperties::default()),
                Protocol::Other,
                Protocol::Tcp(TcpProperties::default()),
            ][..],
            chosen => chosen,
        };
        let rank = |lane: &LaneEndpoint| protocols.iter().position(|protocol| protocol.serves(&lane.endpoint));
        let of_protocol = |index| lanes.iter().filter(move |lane| rank(lane) == Some(index));
        let lanes: Vec<LaneEndpoint> = (0..protocols.len()).flat_map(of_protocol).cloned().collect();
        let policies = self.policies.reference_policies(object).unwrap_or_default();
        orb.make_rt_reference(type_id, &lanes, &policies, key)
    }
}

/// Chooses the first lane of the builder's pools. If there is none, the calling thread runs the
/// request at `priority`.
pub(crate) fn place_in_default_pool(orb: &ServerContext, priority: Option<Priority>) -> RequestPlacement {
    match orb.lanes().first() {
        Some(lane) => RequestPlacement::OtherLane(Arc::clone(lane)),
        None => RequestPlacement::CurrentThread(priority),
    }
}

fn inbound_priority(orb: &OrbContext, asked: Option<Priority>, id: &[u8]) -> Result<Option<Priority>, Unmappable> {
    match (&orb.config().rt.priority_transform, asked) {
        (Some(transform), Some(asked)) => transform.inbound(asked, id).map(Some).ok_or(Unmappable),
        (_, asked) => Ok(asked),
    }
}

struct Unmappable;

#[cold]
fn no_ceiling_error(said: Priority, unasked: Priority) -> SystemException {
    let exception = SystemException::new(Kind::NoPermission, 0, Completion::No);
    exception.with_message(format!(
        "priority {said} from another machine: the endpoint has no ceiling, so peers get at most {unasked} there; \
         set `max_request_priority` (key `ceiling`) of the lane or pool to allow more"
    ))
}

#[cold]
fn above_ceiling_error(lane: Priority, ceiling: Priority) -> SystemException {
    let exception = SystemException::new(Kind::NoPermission, 0, Completion::No);
    exception.with_message(format!("the lane of priority {lane} is above the endpoint's {ceiling}"))
}
