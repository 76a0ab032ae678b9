//! What a POA keeps for real time, and where its requests run.

use std::sync::Arc;

use corelane_net::Endpoint;
use corelane_sched::placement::{Place, Policies, Violation};
use corelane_sched::{Declared, Priority, PriorityBand, PriorityBands, PriorityModel};
use corelane_sys::lock::MutexGuard;
use corelane_wire::exception::minor;

use super::assigned::{Assigned, NotAssigned};
use super::config::unmappable;
use super::policies::{Protocol, RtPolicies, TcpProperties, UnixProperties, at_fault, index};
use super::pool::Threadpool;
use super::station;
use crate::address::LaneEndpoint;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::object::ObjectRef;
use crate::orb::Core;
use crate::poa::{ClientPriority, PoaError, PolicyIndex, Wanted};
use crate::server::lane::Lane;

/// The real-time part of a POA.
#[derive(Debug)]
pub(crate) struct RtPoa {
    pub(crate) policies: RtPolicies,
    model: Option<Declared>,
    bands: Option<PriorityBands>,
    /// `None`: the pools of the ORB's builder.
    pub(crate) pool: Option<Arc<Threadpool>>,
    /// Priorities of objects by id, of those that have one of their own and an id that outlives their activation.
    assigned: Assigned,
    /// [`RtPoa::make_reference`], reached only through here: a program that makes no POA but the root is without its code.
    make_reference: MakeReference,
}

type MakeReference = fn(&RtPoa, &Arc<Core>, &str, &[u8], Option<Priority>) -> ObjectRef;

/// What a POA that is being made wants of its lanes' sockets; taken back unless it is kept. Meanwhile no other POA says anything of them.
#[must_use = "the claim is given up at once"]
pub(crate) struct SocketsClaim<'c> {
    lanes: Vec<(Arc<Lane>, Vec<Protocol>)>,
    _others_wait: MutexGuard<'c, ()>,
}

impl SocketsClaim<'_> {
    /// The POA is there.
    pub(crate) fn keep(mut self) {
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

/// Where a request is to run.
pub(crate) enum Placed {
    /// Here, at this priority (`None`: as the thread is).
    Here(Option<Priority>),
    /// On a thread of this lane.
    Elsewhere(Arc<Lane>),
    /// Nowhere.
    Refused(SystemException),
}

impl RtPoa {
    /// The real-time part of a POA with these policies, completed by those of the ORB; nothing if there are none.
    ///
    /// # Errors
    /// The policy that does not go with the others.
    pub(crate) fn new(core: &Core, policies: &RtPolicies) -> Result<Option<Self>, PolicyIndex> {
        let policies = policies.or(&core.rt().policies.lock());
        if policies.is_empty() {
            return Ok(None);
        }
        let checked = policies.check()?;
        let find = |id| core.rt().pool(id).ok_or(index::THREADPOOL);
        let pool = policies.threadpool.map(find).transpose()?;
        let rt = RtPoa {
            policies,
            model: checked.model,
            bands: checked.bands,
            pool,
            assigned: Assigned::new(),
            make_reference: Self::make_reference,
        };
        rt.rules().check().map_err(at_fault)?;
        let endpoints = rt.endpoints(core);
        let offered = |protocol: &Protocol| endpoints.iter().any(|endpoint| protocol.serves(endpoint));
        if !rt.policies.server_protocols.iter().all(offered) {
            return Err(index::SERVER_PROTOCOL);
        }
        Ok(Some(rt))
    }

    /// Has the sockets of the POA's lanes be as its policies say.
    ///
    /// # Errors
    /// The policy that does not go with those of another POA, or that the system refuses.
    #[cold]
    pub(crate) fn claim_sockets<'c>(&self, core: &'c Core) -> Result<SocketsClaim<'c>, PolicyIndex> {
        let mut claim = SocketsClaim { lanes: Vec::new(), _others_wait: core.rt().sockets.lock() };
        let wanted = &self.policies.server_protocols;
        for lane in self.lanes(core) {
            let new = lane.claim_protocols(wanted).map_err(|_| index::SERVER_PROTOCOL)?;
            claim.lanes.push((Arc::clone(lane), new));
        }
        for (lane, new) in &claim.lanes {
            lane.apply_protocols(new).map_err(|_| index::SERVER_PROTOCOL)?;
        }
        Ok(claim)
    }

    /// The lanes that serve the POA.
    fn lanes<'l>(&'l self, core: &'l Core) -> &'l [Arc<Lane>] {
        self.pool.as_ref().map_or(core.lanes(), |pool| &pool.lanes)
    }

    fn rules(&self) -> Policies<'_> {
        let lanes = self.pool.as_ref().map_or(&[][..], |pool| &pool.priorities);
        Policies { model: self.model, bands: self.bands.as_ref(), lanes }
    }

    fn endpoints(&self, core: &Core) -> Vec<Endpoint> {
        match &self.pool {
            None => core.listening().to_vec(),
            Some(pool) => pool.lanes.iter().flat_map(|lane| lane.endpoints().cloned()).collect(),
        }
    }

    /// Whether connections can carry this band to the POA's objects; `None` without a priority model.
    pub(crate) fn carries(&self, band: PriorityBand) -> Option<bool> {
        self.model?;
        let rules = self.rules();
        let has_lane = rules.lanes.is_empty() || rules.lanes.iter().any(|lane| band.contains(*lane));
        let in_band = self
            .bands
            .as_ref()
            .is_none_or(|bands| bands.as_slice().iter().any(|own| own.contains(band.low) && own.contains(band.high)));
        Some(has_lane && in_band)
    }

    /// Whether objects may have priorities of their own.
    pub(crate) fn is_server_declared(&self) -> bool {
        self.model.is_some_and(|declared| declared.model == PriorityModel::ServerDeclared)
    }

    /// A priority that an object may be given.
    ///
    /// # Errors
    /// BAD_PARAM: out of range, or no lane or band has it.
    pub(crate) fn check_priority(&self, priority: i16) -> Result<Priority, SystemException> {
        let bad = |why: String| SystemException::new(Kind::BadParam, 0, Completion::No).because(why);
        let Some(priority) = Priority::new(priority) else { return Err(bad("a priority is 0 to 32767".into())) };
        self.rules().check_object(priority).map_err(|violation| bad(violation.to_string()))?;
        Ok(priority)
    }

    /// Gives an object its priority.
    ///
    /// # Errors
    /// BAD_INV_ORDER 18 if it has another one; NO_RESOURCES when too many objects of the POA have one.
    pub(crate) fn assign(&self, id: &[u8], priority: Priority) -> Result<(), PoaError> {
        let exception = match self.assigned.assign(id, priority) {
            Ok(()) => return Ok(()),
            Err(NotAssigned::Other(assigned)) => {
                SystemException::new(Kind::BadInvOrder, minor::bad_inv_order::PRIORITY_REASSIGNED, Completion::No)
                    .because(format!("the object has priority {assigned} already"))
            }
            Err(NotAssigned::Full) => SystemException::new(Kind::NoResources, 0, Completion::No)
                .because("too many objects of the POA have priorities of their own"),
        };
        Err(exception.into())
    }

    /// The priority that an object was assigned.
    pub(crate) fn assigned(&self, id: &[u8]) -> Option<Priority> {
        self.assigned.of(id)
    }

    /// Where the request that is `wanted` of object `id` runs.
    pub(crate) fn place(&self, core: &Core, wanted: Wanted<'_>, object: Option<Priority>, id: &[u8]) -> Placed {
        let priority = match wanted.priority {
            ClientPriority::Said(priority) => priority,
            ClientPriority::OfCaller => super::of_caller(core),
        };
        let Ok(asked) = inbound(core, priority, id) else { return Placed::Refused(unmappable()) };
        let Place { lane, priority } = match self.rules().place(asked, object, wanted.band) {
            Ok(place) => place,
            Err(violation) => return Placed::Refused(refusal(violation, asked)),
        };
        // A band may lead to a lane above what was asked for, which the ceiling of the endpoint let pass.
        if let (Some(found), Some(asked)) = (priority, asked)
            && found > asked.max(wanted.ceiling)
            && !self.is_server_declared()
        {
            return Placed::Refused(above(found, wanted.ceiling));
        }
        let station = station::of_thread(core.adapters().stamp);
        let Some(pool) = &self.pool else {
            return if station.is_default() { Placed::Here(priority) } else { to_default(core, priority) };
        };
        let index = lane.unwrap_or(0);
        match pool.lanes.get(index) {
            Some(_) if station.is_at(pool.id.number(), index) => {
                Placed::Here(priority.or_else(|| pool.lanes.get(index).map(|lane| lane.priority())))
            }
            Some(lane) => Placed::Elsewhere(Arc::clone(lane)),
            None => Placed::Here(priority),
        }
    }

    /// How urgent a request for object `id` is that asks for priority `asked`. `None`: as the pool is.
    #[cold]
    pub(crate) fn urgency(
        &self,
        core: &Core,
        asked: Option<Priority>,
        object: Option<Priority>,
        id: &[u8],
    ) -> Option<Priority> {
        let declared = self.model?;
        match declared.model {
            PriorityModel::ServerDeclared => object.or(Some(declared.server_priority)),
            PriorityModel::ClientPropagated => {
                inbound(core, asked, id).ok().flatten().or(Some(declared.server_priority))
            }
        }
    }

    /// A reference to an object of this POA.
    pub(crate) fn reference(&self, core: &Arc<Core>, type_id: &str, key: &[u8], object: Option<Priority>) -> ObjectRef {
        (self.make_reference)(self, core, type_id, key, object)
    }

    fn make_reference(&self, core: &Arc<Core>, type_id: &str, key: &[u8], object: Option<Priority>) -> ObjectRef {
        let mut lanes = Vec::new();
        if let Some(pool) = &self.pool {
            let mut published = self.rules().published(object);
            if published.is_empty() {
                published.push(0);
            }
            let says_priority = self.model.is_some_and(|declared| declared.model == PriorityModel::ClientPropagated);
            for lane in published.iter().filter_map(|&index| pool.lanes.get(index)) {
                let priority = if says_priority && !pool.priorities.is_empty() { lane.priority().get() } else { -1 };
                lanes.extend(
                    lane.endpoints().map(|endpoint| LaneEndpoint { endpoint: core.published(endpoint), priority }),
                );
            }
        } else {
            lanes.extend(
                core.published_at().iter().map(|endpoint| LaneEndpoint { endpoint: endpoint.clone(), priority: -1 }),
            );
        }
        let protocols = match &*self.policies.server_protocols {
            // The faster ones first.
            [] => &[
                Protocol::SharedMemory,
                Protocol::Unix(UnixProperties::default()),
                Protocol::Tcp(TcpProperties::default()),
            ][..],
            chosen => chosen,
        };
        let rank = |lane: &LaneEndpoint| protocols.iter().position(|protocol| protocol.serves(&lane.endpoint));
        let of_protocol = |index| lanes.iter().filter(move |lane| rank(lane) == Some(index));
        let lanes: Vec<LaneEndpoint> = (0..protocols.len()).flat_map(of_protocol).cloned().collect();
        // Neither priorities nor bands of this ORB's own can be impossible to write.
        let policies = self.policies.published(object).unwrap_or_default();
        core.make_rt_reference(type_id, &lanes, &policies, key)
    }
}

/// A request for a POA without a pool of its own came in at a lane: it has no business there.
pub(crate) fn to_default(core: &Core, priority: Option<Priority>) -> Placed {
    match core.lanes().first() {
        Some(lane) => Placed::Elsewhere(Arc::clone(lane)),
        None => Placed::Here(priority),
    }
}

/// What the ORB's transform makes of a priority that a request for object `id` asks for.
fn inbound(core: &Core, asked: Option<Priority>, id: &[u8]) -> Result<Option<Priority>, Unmappable> {
    match (&core.config().rt.transform, asked) {
        (Some(transform), Some(asked)) => transform.inbound(asked, id).map(Some).ok_or(Unmappable),
        (_, asked) => Ok(asked),
    }
}

/// The transform refuses the priority.
struct Unmappable;

#[cold]
fn above(lane: Priority, ceiling: Priority) -> SystemException {
    let exception = SystemException::new(Kind::NoPermission, 0, Completion::No);
    exception.because(format!("the lane of priority {lane} is above the endpoint's {ceiling}"))
}

#[cold]
fn refusal(violation: Violation, asked: Option<Priority>) -> SystemException {
    let why = match asked {
        Some(asked) => format!("{violation}: {asked}"),
        None => violation.to_string(),
    };
    match violation {
        Violation::NoLane => SystemException::new(Kind::Transient, minor::transient::NO_USABLE_PROFILE, Completion::No),
        _ => SystemException::new(Kind::InvPolicy, minor::inv_policy::IRRECONCILABLE, Completion::No),
    }
    .because(why)
}
