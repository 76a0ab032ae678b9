//! The binding of a reference to its object: the usable profiles of the reference with their
//! connection pools, and the target to which a server has forwarded the calls.

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

/// The binding of a reference to its object. All copies of the reference share it.
#[derive(Debug)]
pub(crate) struct Binding {
    ior: Ior,
    /// The target of `ior` itself, made at the first call.
    original: OnceLock<Arc<TargetProfiles>>,
    /// The target to which a server has forwarded the calls (LOCATION_FORWARD). `None` after this
    /// target has failed.
    forwarded: RcuCell<Option<Arc<TargetProfiles>>>,
    /// True if `forwarded` has a target. Calls load this flag, which costs less than loading the
    /// cell. Stored `Release` by [`set_forwarded`](Self::set_forwarded), loaded `Acquire`.
    has_forwarded: AtomicBool,
    /// The object key, if the object may belong to this ORB.
    local: OnceLock<Option<Box<[u8]>>>,
    /// The object's entry in the object adapter of this ORB, after a collocated call has found it.
    local_entry: OnceLock<ErasedArc>,
    /// The effective real-time policies.
    policies: ClientPolicies,
    /// The real-time policies that are set on the reference.
    own_policies: ClientPolicies,
    /// The profile that answered last. `None` before the first answer.
    bound_profile: RcuCell<Option<BoundProfile>>,
    /// Index of the profile of the original target that answered last, or [`OTHER_TARGET`]. Calls
    /// load this index, which costs less than loading `bound_profile`. Before the first answer, the
    /// value is 0 with the flag [`UNBOUND`]. Stored `Release` by the thread whose call was
    /// answered.
    bound_index: AtomicU8,
}

/// The profile that answered last, as the rebind policy compares it with other profiles.
#[derive(Debug)]
struct BoundProfile {
    policies: ProfilePolicies,
    /// The value of `bound_index` for this profile.
    at: u8,
}

/// Flag in `bound_index`: no call of the reference has been answered.
const UNBOUND: u8 = 0x80;
/// Value of `bound_index` if a profile of a forwarded target answered last, or a profile with this
/// or a larger index. The fast path uses no profile for this value.
const OTHER_TARGET: u8 = 0x7f;

/// The usable profiles of one IOR. Profiles with the protocol that the ClientProtocol policies
/// prefer come first. Profiles with one protocol have the order of the IOR.
#[derive(Debug)]
pub(crate) struct TargetProfiles {
    pub(crate) ior: Ior,
    pub(crate) profiles: Vec<UsableProfile>,
    /// True if ClientProtocol policies exclude at least one profile.
    pub(crate) excludes_profiles: bool,
    /// Index in `profiles` of the profile that answered last. Stored and loaded `Relaxed`.
    last_answered: AtomicUsize,
}

/// A profile at whose address the ORB can call the object.
#[derive(Debug)]
pub(crate) struct UsableProfile {
    /// The connection pools of the profile's server.
    pub(crate) pools: Arc<ServerPools>,
    /// The selector of connection pools by priority. `None` if neither the profile nor the client
    /// has policies on priorities: requests then carry no priority.
    pub(crate) lanes: Option<Box<LaneSelector>>,
    pub(crate) object_key: Box<[u8]>,
    pub(crate) version: Version,
    /// The code sets to announce on a new connection. `None` for GIOP 1.0, and if the profile has
    /// no component TAG_CODE_SETS.
    pub(crate) code_sets: Option<CodeSets>,
    /// The code sets that apply if the client announces none.
    pub(crate) default_code_sets: CodeSets,
    /// Index of the profile among all profiles of the IOR. A request whose target address is the
    /// whole IOR carries the index.
    pub(crate) index: u32,
    /// True if the profile says that its server is a Corelane ORB.
    pub(crate) is_ours: bool,
    /// The profile's policies on priorities and protocols.
    pub(crate) policies: ProfilePolicies,
}

impl Binding {
    /// Makes the binding of a reference on which the policies `own` are set. `wider` has the values
    /// of policies that `own` does not set.
    pub(crate) fn new(ior: Ior, own: ClientPolicies, wider: &ClientPolicies) -> Self {
        Binding {
            ior,
            policies: own.clone().or(wider),
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

    /// Returns the target that the reference's IOR describes, even while calls are forwarded to
    /// another target.
    #[inline]
    pub(crate) fn original(&self, context: &ClientContext) -> &Arc<TargetProfiles> {
        self.original.get_or_init(|| Arc::new(self.target(context, self.ior.clone())))
    }

    /// Makes the target that `ior` describes. The effective policies of this reference select its
    /// usable profiles.
    #[cold]
    pub(crate) fn target(&self, context: &ClientContext, ior: Ior) -> TargetProfiles {
        let (profiles, excludes_profiles) = usable_profiles(context, &ior, &self.policies);
        TargetProfiles { ior, profiles, excludes_profiles, last_answered: AtomicUsize::new(0) }
    }

    /// Returns the real-time policies that are set on the reference.
    pub(crate) fn own_policies(&self) -> &ClientPolicies {
        &self.own_policies
    }

    /// Records that `profile`, the [preferred profile](Self::preferred_profile), answered a call on
    /// the fast path. Has an effect at the first answer.
    #[inline]
    pub(crate) fn record_first_reply(&self, profile: &UsableProfile) {
        // Later answers store nothing: every calling thread reads the index, and a store would
        // invalidate its cache line in the caches of the other cores. Before the first answer, the
        // preferred profile has the index 0.
        if self.bound_index.load(Ordering::Relaxed) & UNBOUND != 0 {
            self.bind(profile, 0);
        }
    }

    /// Records that the profile with the index `profile` of `target` answered a call.
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

    /// Returns true if a call of the reference has been answered. The rebind policy does not
    /// restrict calls before that.
    pub(crate) fn is_bound(&self) -> bool {
        self.bound_index.load(Ordering::Acquire) & UNBOUND == 0
    }

    /// Returns the index of the profile that the fast path uses: the profile of the original target
    /// that answered last, or 0 before the first answer. Returns `None` while calls are forwarded.
    /// There may be no profile with the index.
    #[inline]
    pub(crate) fn preferred_profile(&self) -> Option<usize> {
        if self.is_forwarded() { None } else { Some(usize::from(self.bound_index.load(Ordering::Relaxed) & !UNBOUND)) }
    }

    /// Returns true if `profile` has equal policies to the profile that answered last.
    pub(crate) fn is_bound_as(&self, profile: &UsableProfile) -> bool {
        self.bound_profile.load().as_ref().is_some_and(|bound| bound.policies == profile.policies)
    }

    /// Returns true if a server has forwarded the calls to another target.
    #[inline]
    pub(crate) fn is_forwarded(&self) -> bool {
        self.has_forwarded.load(Ordering::Acquire)
    }

    /// Returns the target to which a server has forwarded the calls, if there is one. Calls try it
    /// before the original target.
    #[inline]
    pub(crate) fn forwarded(&self) -> Option<Arc<TargetProfiles>> {
        if self.is_forwarded() { self.load_forwarded() } else { None }
    }

    #[cold]
    fn load_forwarded(&self) -> Option<Arc<TargetProfiles>> {
        Option::clone(&self.forwarded.load())
    }

    /// Sets the target to which calls are forwarded.
    pub(crate) fn set_forwarded(&self, target: Option<Arc<TargetProfiles>>) {
        self.has_forwarded.store(target.is_some(), Ordering::Release);
        self.forwarded.store(Arc::new(target));
    }

    /// Returns the object key if the object may belong to this ORB.
    #[inline]
    pub(crate) fn local_key(&self, context: &ClientContext) -> Option<&[u8]> {
        self.local.get_or_init(|| local_key(context, &self.ior)).as_deref()
    }

    /// Returns the object's entry in the object adapter of this ORB if it has the type `T`. Returns
    /// `None` until a collocated call has found the entry.
    #[inline]
    pub(crate) fn local_entry<T: 'static>(&self) -> Option<&T> {
        self.local_entry.get()?.get()
    }

    /// Records the object's entry in the object adapter of this ORB, which `home` returns. Does
    /// nothing if the entry is recorded already.
    #[inline]
    pub(crate) fn record_local_entry(&self, home: impl FnOnce() -> Option<ErasedArc>) {
        if self.local_entry.get().is_none()
            && let Some(home) = home()
        {
            // `set` fails if another thread has recorded the same entry first.
            let _ = self.local_entry.set(home);
        }
    }

    /// Returns true if the object may belong to this ORB.
    #[inline]
    pub(crate) fn may_be_local(&self, context: &ClientContext) -> bool {
        self.local_key(context).is_some()
    }
}

/// Returns the object key in a profile of `ior` that may denote an object of this ORB: a transient
/// key with the stamp of this ORB, or a persistent or foreign key at an address that this ORB
/// publishes.
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

/// Returns the profiles of `ior` with an address that a transport of the ORB supports, except those
/// that ClientProtocol policies exclude. The flag is true if the policies exclude at least one
/// profile.
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
    // The sort is stable, so profiles with one protocol keep the order of the IOR.
    profiles.sort_by_key(|(rank, _)| *rank);
    (profiles.into_iter().map(|(_, profile)| profile).collect(), left_out)
}

impl TargetProfiles {
    /// Returns the reason why the target has no usable profile. Called if no policy excludes a
    /// profile.
    #[cold]
    pub(super) fn why_unusable(&self) -> String {
        let addresses = self.ior.known_profiles().flat_map(|profile| profile.endpoints());
        let addresses = crate::text::join(addresses);
        if addresses.is_empty() {
            return "the reference has no address that the ORB understands".to_owned();
        }
        format!("no transport of the ORB can connect from this machine to {addresses}")
    }

    /// Returns the order in which to try the profiles, by the back-off at the present time.
    pub(crate) fn try_order(&self, context: &ClientContext) -> TryOrder {
        let count = self.profiles.len();
        // If no endpoint of any server has failed lately, the endpoints of the profiles need not be
        // looked up.
        let backing_off = if count > 1 && !context.backoff().is_empty() { self.backing_off(context) } else { 0 };
        TryOrder::new(count, self.last_answered.load(Ordering::Relaxed), backing_off)
    }

    /// Returns the set of bits of the profiles whose endpoints are all in back-off.
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
    /// Selects the connection pool for a call that the calling thread makes, and the priority that
    /// its request carries.
    ///
    /// # Errors
    /// The errors of [`LaneSelector::select`].
    #[inline]
    pub(crate) fn select_pool(&self, context: &ClientContext) -> Result<PoolSelection<'_>, SystemException> {
        match &self.lanes {
            None => Ok(PoolSelection { pool: self.pools.pool(ConnectionBand::for_current_thread()), priority: None }),
            Some(lanes) => lanes.select(context),
        }
    }

    /// Selects the connection pool for calls at the CORBA priority `priority`, from threads that
    /// run at its native priority.
    ///
    /// # Errors
    /// The errors of [`LaneSelector::select_at`].
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

/// The data for a target address that is a profile or an IOR, for servers that do not accept an
/// object key.
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
        Ok(AlternateTarget { index, tag: profile.tag, data: &profile.data, ior: encoder.into_buffer() })
    }

    pub(super) fn target(&self, mode: AddressingMode) -> giop::Target<'_> {
        match mode {
            AddressingMode::Reference => {
                giop::Target::Reference { selected: self.index, tag: self.tag, data: self.data, ior: &self.ior }
            }
            AddressingMode::Profile | AddressingMode::Key => giop::Target::Profile { tag: self.tag, data: self.data },
        }
    }
}
