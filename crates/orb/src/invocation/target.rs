//! The binding of a reference to its object.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use corelane_net::Endpoint;
use corelane_sched::Priority;
use corelane_sys::erased::ErasedArc;
use corelane_sys::lock::LockScope;
use corelane_sys::rcu_cell::RcuCell;
use corelane_wire::giop::{self, AddressingMode};
use corelane_wire::ior::Ior;
use corelane_wire::{Cdr, CdrError, CodeSets, Encoder, Endian, Version};

use super::lane_selector::{LaneSelector, PoolSelection};
use crate::address::parse_profiles;
use crate::client::context::ClientContext;
use crate::client::server_pools::ServerPools;
use crate::client::try_order::{MAX_TRIED, TryOrder};
use crate::exception::SystemException;
use crate::object_key::ObjectKey;
use crate::rt::band::ConnectionBand;
use crate::rt::client_policies::{self, ClientPolicies, ProfilePolicies};
use crate::rt::protocol::SocketSettings;

/// The known profiles of a reference's object, and the policies for calls to them. Copies of the
/// reference share the binding, unless they have other real-time policies or another spin policy.
#[derive(Debug)]
pub(crate) struct Binding {
    ior: Ior,
    original: OnceLock<Arc<TargetProfiles>>,
    /// The target of a LOCATION_FORWARD; `None` without a forward, and after this target has
    /// failed.
    forwarded: RcuCell<Option<Arc<TargetProfiles>>>,
    /// True while `forwarded` has a target. Loading this flag costs less than loading `forwarded`.
    /// Stored `Release` by [`set_forwarded`](Self::set_forwarded), loaded `Acquire`.
    has_forwarded: AtomicBool,
    local: OnceLock<Option<Box<[u8]>>>,
    local_entry: OnceLock<ErasedArc>,
    policies: ClientPolicies,
    own_policies: ClientPolicies,
    bound_profile: RcuCell<Option<BoundProfile>>,
    /// Index of the profile of the original target that answered last, or [`OTHER_TARGET`];
    /// [`UNBOUND`] before the first answer. Loading this index costs less than loading
    /// `bound_profile`. Stored `Release` by the thread whose call was answered.
    bound_index: AtomicU8,
}

#[derive(Debug)]
struct BoundProfile {
    policies: ProfilePolicies,
    at: u8,
}

/// Flag in `bound_index`: no call of the reference has been answered.
const UNBOUND: u8 = 0x80;
/// Value of `bound_index` if a profile with a higher index or of a different target answered last.
const OTHER_TARGET: u8 = 0x7f;

/// The usable profiles of an IOR. The profiles with the protocol that the ClientProtocol policies
/// prefer come first.
#[derive(Debug)]
pub(crate) struct TargetProfiles {
    pub(crate) ior: Ior,
    pub(crate) profiles: Vec<UsableProfile>,
    pub(crate) excludes_profiles: bool,
    last_answered: AtomicUsize,
}

#[derive(Debug)]
pub(crate) struct UsableProfile {
    pub(crate) pools: Arc<ServerPools>,
    /// Selects the connection pool and the priority for each call; `None` if neither the profile
    /// nor the client has policies on priorities.
    pub(crate) lanes: Option<Box<LaneSelector>>,
    pub(crate) object_key: Box<[u8]>,
    pub(crate) version: Version,
    /// The code sets to announce on a new connection; `None` for GIOP 1.0 and without
    /// TAG_CODE_SETS.
    pub(crate) code_sets: Option<CodeSets>,
    pub(crate) default_code_sets: CodeSets,
    pub(crate) index: u32,
    pub(crate) is_ours: bool,
    pub(crate) policies: ProfilePolicies,
}

impl Binding {
    /// Creates the binding of a reference. `wider` has the values of policies that `own` does not
    /// set.
    pub(crate) fn new(ior: Ior, own: ClientPolicies, wider: &ClientPolicies) -> Self {
        Binding {
            ior,
            policies: own.clone().with_defaults_from(wider),
            own_policies: own,
            bound_profile: RcuCell::new("bound profile", LockScope::Orb, None),
            bound_index: AtomicU8::new(UNBOUND),
            original: OnceLock::new(),
            forwarded: RcuCell::new("forwarded target", LockScope::Orb, None),
            has_forwarded: AtomicBool::new(false),
            local: OnceLock::new(),
            local_entry: OnceLock::new(),
        }
    }

    pub(crate) fn ior(&self) -> &Ior {
        &self.ior
    }

    #[inline]
    pub(crate) fn original(&self, context: &ClientContext) -> &Arc<TargetProfiles> {
        self.original.get_or_init(|| Arc::new(self.target(context, self.ior.clone())))
    }

    #[cold]
    pub(crate) fn target(&self, context: &ClientContext, ior: Ior) -> TargetProfiles {
        let (profiles, excludes_profiles) = usable_profiles(context, &ior, &self.policies);
        TargetProfiles { ior, profiles, excludes_profiles, last_answered: AtomicUsize::new(0) }
    }

    pub(crate) fn own_policies(&self) -> &ClientPolicies {
        &self.own_policies
    }

    /// Binds the reference to `profile` if none of its calls has been answered before.
    #[inline]
    pub(crate) fn record_first_reply(&self, profile: &UsableProfile) {
        // Every calling thread reads the index, and a store would invalidate its cache line on the
        // other cores. So only the first reply stores the index here.
        if self.bound_index.load(Ordering::Relaxed) & UNBOUND != 0 {
            self.bind(profile, 0);
        }
    }

    #[cold]
    pub(crate) fn record_bound(&self, target: &Arc<TargetProfiles>, profile: usize) {
        let Some(answered) = target.profiles.get(profile) else { return };
        target.last_answered.store(profile, Ordering::Relaxed);
        let is_own = self.original.get().is_some_and(|own| Arc::ptr_eq(own, target));
        let at = u8::try_from(profile).ok().filter(|at| is_own && *at < OTHER_TARGET);
        self.bind(answered, at.unwrap_or(OTHER_TARGET));
    }

    #[cold]
    fn bind(&self, profile: &UsableProfile, at: u8) {
        if !self.bound_profile.load().as_ref().is_some_and(|bound| bound.at == at && bound.policies == profile.policies)
        {
            self.bound_profile.update(|_| (Some(BoundProfile { policies: profile.policies.clone(), at }), ()));
            // The store is `Release`, so that a thread that loads this index with `Acquire` sees
            // the stored `bound_profile`.
            self.bound_index.store(at, Ordering::Release);
        }
    }

    pub(crate) fn is_bound(&self) -> bool {
        self.bound_index.load(Ordering::Acquire) & UNBOUND == 0
    }

    /// Returns the index of the profile that a call on the fast path uses; `None` while calls are
    /// forwarded. There may be no profile with the index.
    #[inline]
    pub(crate) fn preferred_profile(&self) -> Option<usize> {
        if self.is_forwarded() { None } else { Some(usize::from(self.bound_index.load(Ordering::Relaxed) & !UNBOUND)) }
    }

    pub(crate) fn is_bound_as(&self, profile: &UsableProfile) -> bool {
        self.bound_profile.load().as_ref().is_some_and(|bound| bound.policies == profile.policies)
    }

    #[inline]
    pub(crate) fn is_forwarded(&self) -> bool {
        self.has_forwarded.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn forwarded(&self) -> Option<Arc<TargetProfiles>> {
        if self.is_forwarded() { self.load_forwarded() } else { None }
    }

    #[cold]
    fn load_forwarded(&self) -> Option<Arc<TargetProfiles>> {
        Option::clone(&self.forwarded.load())
    }

    pub(crate) fn set_forwarded(&self, target: Option<Arc<TargetProfiles>>) {
        self.has_forwarded.store(target.is_some(), Ordering::Release);
        self.forwarded.store(Arc::new(target));
    }

    #[inline]
    pub(crate) fn local_key(&self, context: &ClientContext) -> Option<&[u8]> {
        self.local.get_or_init(|| local_key(context, &self.ior)).as_deref()
    }

    #[inline]
    pub(crate) fn local_entry<T: 'static>(&self) -> Option<&T> {
        self.local_entry.get()?.get()
    }

    #[inline]
    pub(crate) fn record_local_entry(&self, home: impl FnOnce() -> Option<ErasedArc>) {
        if self.local_entry.get().is_none()
            && let Some(home) = home()
        {
            let _ = self.local_entry.set(home);
        }
    }

    #[inline]
    pub(crate) fn may_be_local(&self, context: &ClientContext) -> bool {
        self.local_key(context).is_some()
    }
}

/// Returns the object's key if the object belongs to this ORB. A transient key belongs to this ORB
/// if it has the ORB's stamp ([object keys](crate::object_key)). A persistent or plain key belongs
/// to this ORB if the reference has an address of this ORB.
#[cold]
fn local_key(context: &ClientContext, ior: &Ior) -> Option<Box<[u8]>> {
    let own_addresses = context.own_addresses();
    let config = context.config();
    let profiles = parse_profiles(ior, config.version, config.native_char_set, &config.limits);
    profiles.into_iter().find_map(|found| {
        let is_own = match ObjectKey::parse(&found.object_key) {
            ObjectKey::System { stamp, .. } | ObjectKey::User { stamp, .. } => stamp == context.stamp(),
            ObjectKey::Persistent { .. } | ObjectKey::Hinted { .. } | ObjectKey::Plain => {
                found.endpoints.iter().any(|endpoint| own_addresses.contains(endpoint))
            }
        };
        is_own.then(|| found.object_key.into())
    })
}

fn usable_profiles(context: &ClientContext, ior: &Ior, client: &ClientPolicies) -> (Vec<UsableProfile>, bool) {
    let found =
        parse_profiles(ior, context.config().version, context.config().native_char_set, &context.config().limits);
    let mut left_out = false;
    let mut profiles: Vec<(usize, UsableProfile)> = found
        .into_iter()
        .filter_map(|found| {
            let endpoints: Vec<Endpoint> =
                found.endpoints.into_iter().filter(|endpoint| context.has_transport(endpoint)).collect();
            let first = endpoints.first()?;
            let Some((rank, sockets)) = client_policies::usable_protocols(client, &found.policies)
                .and_then(|all| client_policies::protocol_rank(all, first))
            else {
                left_out = true;
                return None;
            };
            let sockets = SocketSettings { spin: client.spin, io: client.io.unwrap_or_default(), ..sockets };
            let pools = context.pools_for(endpoints, sockets, client.private);
            let lanes = || {
                let reached = found.lanes.into_iter().filter(|lane| context.has_transport(&lane.endpoint));
                let mut lanes: Vec<(i16, Arc<ServerPools>)> = reached
                    .map(|lane| (lane.priority, context.pools_for(vec![lane.endpoint], sockets, client.private)))
                    .collect();
                if lanes.is_empty() {
                    lanes.push((-1, Arc::clone(&pools)));
                }
                lanes
            };
            let lanes = LaneSelector::new(&found.policies, client, lanes).map(Box::new);
            let profile = UsableProfile {
                pools,
                lanes,
                object_key: found.object_key.into(),
                version: found.version,
                code_sets: found.code_sets,
                default_code_sets: found.default_code_sets,
                index: found.index,
                is_ours: found.is_ours,
                policies: found.policies,
            };
            Some((rank, profile))
        })
        .collect();
    // The sort is stable: profiles of the same protocol keep their order in the IOR.
    profiles.sort_by_key(|(rank, _)| *rank);
    (profiles.into_iter().map(|(_, profile)| profile).collect(), left_out)
}

impl TargetProfiles {
    #[cold]
    pub(super) fn why_unusable(&self) -> String {
        let addresses = self.ior.known_profiles().flat_map(|profile| profile.endpoints());
        let addresses = crate::text::join(addresses);
        if addresses.is_empty() {
            return "the reference has no address that the ORB understands".to_owned();
        }
        format!("no transport of the ORB can connect from this machine to {addresses}")
    }

    pub(crate) fn try_order(&self, context: &ClientContext) -> TryOrder {
        let count = self.profiles.len();
        let backing_off = if count > 1 && !context.backoff().is_empty() { self.backing_off(context) } else { 0 };
        TryOrder::new(count, self.last_answered.load(Ordering::Relaxed), backing_off)
    }

    #[cold]
    fn backing_off(&self, context: &ClientContext) -> u64 {
        let now = crate::clock::now();
        let rests = |profile: &UsableProfile| {
            profile.select_pool(context).is_ok_and(|chosen| chosen.pool.is_backing_off(context, now))
        };
        let profiles = self.profiles.iter().take(MAX_TRIED).enumerate();
        profiles.fold(0, |backing_off, (index, profile)| backing_off | u64::from(rests(profile)) << index)
    }
}

impl UsableProfile {
    #[inline]
    pub(crate) fn select_pool(&self, context: &ClientContext) -> Result<PoolSelection<'_>, SystemException> {
        match &self.lanes {
            None => Ok(PoolSelection { pool: self.pools.pool(ConnectionBand::for_current_thread()), priority: None }),
            Some(lanes) => lanes.select(context),
        }
    }

    pub(super) fn select_pool_at(
        &self,
        context: &ClientContext,
        priority: Priority,
    ) -> Result<PoolSelection<'_>, SystemException> {
        match &self.lanes {
            None => Ok(PoolSelection {
                pool: self.pools.pool(ConnectionBand::for_priority(&context.config().rt, priority)?),
                priority: None,
            }),
            Some(lanes) => lanes.select_at(context, priority),
        }
    }
}

pub(super) struct AlternateTarget<'t> {
    index: u32,
    tag: u32,
    data: &'t [u8],
    ior: Vec<u8>,
}

impl<'t> AlternateTarget<'t> {
    #[cold]
    pub(super) fn new(ior: &'t Ior, index: u32, endian: Endian) -> Result<Self, CdrError> {
        let profile = ior.profiles.get(index as usize).ok_or(CdrError::BadDiscriminator)?;
        let mut encoder = Encoder::new();
        encoder.set_endian(endian);
        ior.encode(&mut encoder)?;
        Ok(AlternateTarget { index, tag: profile.tag, data: &profile.data, ior: encoder.into_reusable_buffer() })
    }

    pub(super) fn target(&self, mode: AddressingMode) -> giop::TargetAddress<'_> {
        match mode {
            AddressingMode::Reference => {
                giop::TargetAddress::Reference { selected: self.index, tag: self.tag, data: self.data, ior: &self.ior }
            }
            AddressingMode::Profile | AddressingMode::Key => {
                giop::TargetAddress::Profile { tag: self.tag, data: self.data }
            }
        }
    }
}
