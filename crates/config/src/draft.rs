//! The settings of an ORB in the types of the ORB, and the builder that they make.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use corelane::rt::{
    BufferBounds, Guarantee, LaneConfig, LanesConfig, Protocol, Reservation, RtConfig, TcpProperties, ThreadpoolConfig,
    UnixProperties, UnmatchedPriority,
};
use corelane::{
    CallPolicies, CharSet, ConnectionLimits, ConnectionPoolExhaustedAction, Dispatch, Limits, NestedWait, OnewayBatch,
    OrbBuilder, PoolConfig, SpinPolicy, Transports, Version,
};
use corelane_net::{AllowedUsers, SharedMemoryTransport, TcpTransport, Transport, UnixTransport};

use crate::threadpool::ConfiguredThreadpool;

#[derive(Clone, Debug, Default)]
pub(crate) struct Draft {
    pub(crate) orb: OrbDraft,
    pub(crate) initial_references: BTreeMap<String, String>,
    pub(crate) oneway_batch: OnewayBatch,
    pub(crate) limits: Limits,
    pub(crate) shared_memory: SharedMemoryDraft,
    preconnects: Named<PreconnectDraft>,
    pools: Named<PoolDraft>,
    pub(crate) real_time: RealTimeDraft,
    pub(crate) tcp: TcpProperties,
    pub(crate) unix: UnixProperties,
    /// True if a setting is in the section `real-time` and not in a subsection.
    pub(crate) has_real_time: bool,
    threadpools: Named<ThreadpoolDraft>,
    /// True if the program has one pool, whose threads no setting can change.
    has_fixed_pool: bool,
}

type Named<T> = Vec<(String, T)>;

fn named<'n, T: Default>(all: &'n mut Named<T>, name: &str) -> &'n mut T {
    let index = all.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
        all.push((name.to_owned(), T::default()));
        all.len() - 1
    });
    &mut all[index].1
}

/// The settings of an ORB. A setting that is `None` or empty keeps the builder's default.
#[derive(Clone, Debug, Default)]
pub(crate) struct OrbDraft {
    pub(crate) listen: Vec<String>,
    pub(crate) publish: Vec<String>,
    pub(crate) transports: Option<Vec<BuiltInTransport>>,
    pub(crate) max_reply_memory: Option<usize>,
    pub(crate) max_kept_memory: Option<usize>,
    pub(crate) call_policies: CallPolicies,
    pub(crate) on_connection_pool_exhausted: Option<ConnectionPoolExhaustedAction>,
    pub(crate) max_connections_per_server: Option<usize>,
    pub(crate) spin_policy: Option<SpinPolicy>,
    pub(crate) drain_timeout: Option<Duration>,
    pub(crate) idle_connection_timeout: Option<Duration>,
    pub(crate) giop_version: Option<Version>,
    pub(crate) native_char_set: Option<CharSet>,
    pub(crate) fragment_size: Option<usize>,
    pub(crate) locks_memory: bool,
    pub(crate) logs_events: bool,
    pub(crate) guarantees: Vec<Guarantee>,
    pub(crate) default_initial_reference: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BuiltInTransport {
    Tcp,
    Unix,
    SharedMemory,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct SharedMemoryDraft {
    pub(crate) allowed_users: Option<AllowedUsers>,
    pub(crate) max_lent_memory: Option<usize>,
    pub(crate) spin_policy: Option<SpinPolicy>,
}

#[derive(Clone, Debug)]
pub(crate) struct PreconnectDraft {
    pub(crate) reference: Option<String>,
    pub(crate) priorities: Vec<i16>,
    pub(crate) connections: usize,
}

impl Default for PreconnectDraft {
    fn default() -> Self {
        PreconnectDraft { reference: None, priorities: vec![0], connections: 1 }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DispatchKind {
    Reactive,
    ThreadPerConnection,
    #[default]
    LeaderFollowers,
    HalfSyncHalfAsync,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct PoolDraft {
    pub(crate) dispatch: Option<DispatchKind>,
    pub(crate) threads: Option<usize>,
    pub(crate) max_threads: Option<usize>,
    pub(crate) max_queued: Option<usize>,
    pub(crate) config: PoolConfig,
}

const THREADS: usize = 4;
const MAX_CONNECTION_THREADS: usize = 256;
const MAX_QUEUED: usize = 1024;

impl PoolDraft {
    /// Makes the program's pool, whose threads no setting can change. The error is the name of a
    /// setting that would change them.
    fn finish_with_fixed_threads(&self) -> Result<PoolConfig, &'static str> {
        let settings = [
            ("dispatch", self.dispatch.is_some()),
            ("threads", self.threads.is_some()),
            ("max-threads", self.max_threads.is_some()),
            ("max-queued", self.max_queued.is_some()),
        ];
        match settings.into_iter().find(|(_, is_set)| *is_set) {
            Some((setting, _)) => Err(setting),
            None => Ok(self.config.clone()),
        }
    }

    /// Returns the pool's configuration. The error is the name of a setting without effect.
    fn finish(&self, name: &str) -> Result<PoolConfig, &'static str> {
        let (mut threads, mut max_threads, mut max_queued) = (self.threads, self.max_threads, self.max_queued);
        let dispatch = match self.dispatch.unwrap_or_default() {
            DispatchKind::Reactive => Dispatch::Reactive,
            DispatchKind::ThreadPerConnection => {
                Dispatch::ThreadPerConnection { max_threads: max_threads.take().unwrap_or(MAX_CONNECTION_THREADS) }
            }
            DispatchKind::LeaderFollowers => Dispatch::LeaderFollowers { threads: threads.take().unwrap_or(THREADS) },
            DispatchKind::HalfSyncHalfAsync => Dispatch::HalfSyncHalfAsync {
                threads: threads.take().unwrap_or(THREADS),
                max_queued: max_queued.take().unwrap_or(MAX_QUEUED),
            },
        };
        let unused = [("threads", threads), ("max-threads", max_threads), ("max-queued", max_queued)];
        match unused.into_iter().find(|(_, value)| value.is_some()) {
            Some((setting, _)) => Err(setting),
            None => Ok(self.config.clone().name(name).dispatch(dispatch)),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct RealTimeDraft {
    pub(crate) config: RtConfig,
    pub(crate) client_protocols: Vec<ProtocolName>,
    pub(crate) server_protocols: Vec<ProtocolName>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProtocolName {
    Tcp,
    Unix,
    SharedMemory,
    Other,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct ThreadpoolDraft {
    pub(crate) thread_stack_size: Option<usize>,
    pub(crate) only: WithoutLanesDraft,
    buffering: Option<BufferBounds>,
    pub(crate) idle_thread_timeout: Option<Duration>,
    pub(crate) nested_wait: Option<NestedWait>,
    pub(crate) spin_policy: Option<SpinPolicy>,
    pub(crate) connection_limits: ConnectionLimits,
    pub(crate) unmatched_priority: Option<UnmatchedPriority>,
    pub(crate) allow_borrowing: Option<bool>,
    lanes: Named<LaneDraft>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct WithoutLanesDraft {
    pub(crate) static_threads: Option<u32>,
    pub(crate) dynamic_threads: Option<u32>,
    pub(crate) default_priority: Option<i16>,
    pub(crate) listen: Option<Vec<String>>,
    pub(crate) ceiling: Option<Option<i16>>,
    pub(crate) cores: Option<Vec<usize>>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct LaneDraft {
    pub(crate) config: LaneConfig,
    pub(crate) runtime: Option<Duration>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) period: Option<Duration>,
}

pub(crate) struct Contradiction {
    pub(crate) key: String,
    pub(crate) reason: String,
}

impl Contradiction {
    fn new(key: impl Into<String>, reason: impl Into<String>) -> Self {
        Contradiction { key: key.into(), reason: reason.into() }
    }
}

impl LaneDraft {
    fn finish(&self, key: &str) -> Result<LaneConfig, Contradiction> {
        let reservation = match (self.runtime, self.deadline, self.period) {
            (None, None, None) => None,
            (Some(runtime), deadline, Some(period)) => {
                let reservation = Reservation { runtime, deadline: deadline.unwrap_or(period), period };
                if !reservation.is_valid() {
                    let reason = "has to be at least 1024ns, and at most `reservation-deadline`, which is at most `reservation-period`";
                    return Err(Contradiction::new(format!("{key}.reservation-runtime"), reason));
                }
                Some(reservation)
            }
            (None, ..) => return Err(Contradiction::new(format!("{key}.reservation-runtime"), "is missing")),
            (Some(_), _, None) => return Err(Contradiction::new(format!("{key}.reservation-period"), "is missing")),
        };
        let mut lane = self.config.clone();
        lane.reservation = reservation;
        Ok(lane)
    }
}

impl ThreadpoolDraft {
    pub(crate) fn lane(&mut self, name: &str) -> &mut LaneDraft {
        named(&mut self.lanes, name)
    }

    pub(crate) fn buffering_mut(&mut self) -> &mut BufferBounds {
        self.buffering.get_or_insert(BufferBounds { max_requests: 0, max_bytes: 0 })
    }

    fn finish(&self, name: &str) -> Result<ConfiguredThreadpool, Contradiction> {
        if self.lanes.is_empty() { self.without_lanes(name) } else { self.with_lanes(name) }
    }

    fn without_lanes(&self, name: &str) -> Result<ConfiguredThreadpool, Contradiction> {
        let of_lanes = [
            ("unmatched-priority", self.unmatched_priority.is_some()),
            ("allow-borrowing", self.allow_borrowing.is_some()),
        ];
        if let Some((setting, _)) = of_lanes.into_iter().find(|(_, is_set)| *is_set) {
            return Err(Contradiction::new(format!("real-time.pool.{name}.{setting}"), "has no effect without lanes"));
        }
        let mut pool = ThreadpoolConfig::default().name(name);
        let only = &self.only;
        pool.thread_stack_size = self.thread_stack_size.unwrap_or(pool.thread_stack_size);
        pool.static_threads = only.static_threads.unwrap_or(pool.static_threads);
        pool.dynamic_threads = only.dynamic_threads.unwrap_or(pool.dynamic_threads);
        pool.default_priority = only.default_priority.unwrap_or(pool.default_priority);
        pool.listen = only.listen.clone().unwrap_or_default();
        pool.max_request_priority = only.ceiling.unwrap_or_default();
        pool.cores = only.cores.clone().unwrap_or_default();
        pool.buffering = self.buffering;
        pool.idle_thread_timeout = self.idle_thread_timeout.unwrap_or(pool.idle_thread_timeout);
        pool.nested_wait = self.nested_wait;
        pool.spin_policy = self.spin_policy;
        pool.connection_limits = self.connection_limits.clone();
        Ok(ConfiguredThreadpool::WithoutLanes(pool))
    }

    fn with_lanes(&self, name: &str) -> Result<ConfiguredThreadpool, Contradiction> {
        let key = format!("real-time.pool.{name}");
        let WithoutLanesDraft { static_threads, dynamic_threads, default_priority, listen, ceiling, cores } =
            &self.only;
        let of_lane = [
            ("static-threads", static_threads.is_some()),
            ("dynamic-threads", dynamic_threads.is_some()),
            ("default-priority", default_priority.is_some()),
            ("listen", listen.is_some()),
            ("ceiling", ceiling.is_some()),
            ("cores", cores.is_some()),
        ];
        if let Some((setting, _)) = of_lane.into_iter().find(|(_, is_set)| *is_set) {
            return Err(Contradiction::new(
                format!("{key}.{setting}"),
                "is a setting of each lane in pools with lanes",
            ));
        }
        let lanes = self.lanes.iter().map(|(lane, draft)| draft.finish(&format!("{key}.lane.{lane}")));
        let mut pool = LanesConfig::default().name(name).lanes(lanes.collect::<Result<Vec<_>, _>>()?);
        pool.thread_stack_size = self.thread_stack_size.unwrap_or(pool.thread_stack_size);
        pool.unmatched_priority = self.unmatched_priority.unwrap_or_default();
        pool.allow_borrowing = self.allow_borrowing.unwrap_or_default();
        pool.buffering = self.buffering;
        pool.idle_thread_timeout = self.idle_thread_timeout.unwrap_or(pool.idle_thread_timeout);
        pool.nested_wait = self.nested_wait;
        pool.spin_policy = self.spin_policy;
        pool.connection_limits = self.connection_limits.clone();
        Ok(ConfiguredThreadpool::WithLanes(pool))
    }
}

pub(crate) struct CheckedDraft {
    pub(crate) builder: OrbBuilder,
    pub(crate) limits: Limits,
    pub(crate) real_time: RtConfig,
    pub(crate) server_protocols: Vec<Protocol>,
    pub(crate) threadpools: Named<ConfiguredThreadpool>,
}

impl Draft {
    pub(crate) fn preconnect(&mut self, name: &str) -> &mut PreconnectDraft {
        named(&mut self.preconnects, name)
    }

    pub(crate) fn with_fixed_pool(pool: PoolConfig) -> Self {
        let pools = vec![(pool.name.clone(), PoolDraft { config: pool, ..PoolDraft::default() })];
        Draft { pools, has_fixed_pool: true, ..Draft::default() }
    }

    pub(crate) fn pool(&mut self, name: &str) -> &mut PoolDraft {
        named(&mut self.pools, name)
    }

    pub(crate) fn threadpool(&mut self, name: &str) -> &mut ThreadpoolDraft {
        named(&mut self.threadpools, name)
    }

    pub(crate) fn finish(&self) -> Result<CheckedDraft, Contradiction> {
        let real_time = self.real_time();
        let threadpools = self.threadpools.iter().map(|(name, pool)| Ok((name.clone(), pool.finish(name)?)));
        let threadpools = threadpools.collect::<Result<_, _>>()?;
        let builder = self.builder(real_time.clone())?;
        let server_protocols = self.protocols(&self.real_time.server_protocols);
        Ok(CheckedDraft { builder, limits: self.limits.clone(), real_time, server_protocols, threadpools })
    }

    fn protocols(&self, names: &[ProtocolName]) -> Vec<Protocol> {
        let protocol = |name: &ProtocolName| match name {
            ProtocolName::Tcp => Protocol::Tcp(self.tcp),
            ProtocolName::Unix => Protocol::Unix(self.unix),
            ProtocolName::SharedMemory => Protocol::SharedMemory,
            ProtocolName::Other => Protocol::Other,
        };
        names.iter().map(protocol).collect()
    }

    fn real_time(&self) -> RtConfig {
        let mut config = self.real_time.config.clone();
        config.client_policies.client_protocols = self.protocols(&self.real_time.client_protocols);
        config
    }

    fn builder(&self, real_time: RtConfig) -> Result<OrbBuilder, Contradiction> {
        let orb = &self.orb;
        let mut builder = corelane::Orb::builder()
            .limits(self.limits.clone())
            .oneway_batch(self.oneway_batch)
            .call_policies(orb.call_policies);
        if self.has_real_time {
            builder = builder.real_time(real_time);
        }
        for (index, (name, pool)) in self.pools.iter().enumerate() {
            let (finished, reason) = match self.has_fixed_pool {
                true if index > 0 => {
                    let (only, _) = &self.pools[0];
                    let reason = format!("is unknown: the program has the pool `{only}` only");
                    return Err(Contradiction::new(format!("pool.{name}"), reason));
                }
                true => (pool.finish_with_fixed_threads(), "is chosen by the program"),
                false => (pool.finish(name), "has no effect with this `dispatch`"),
            };
            let key = |setting| format!("pool.{name}.{setting}");
            builder = builder.pool(finished.map_err(|setting| Contradiction::new(key(setting), reason))?);
        }
        builder = orb.listen.iter().fold(builder, OrbBuilder::listen);
        builder = orb.publish.iter().fold(builder, OrbBuilder::published_address);
        if let Some(transports) = self.transports() {
            builder = builder.transports(transports);
        }
        for (name, preconnect) in &self.preconnects {
            let missing = || Contradiction::new(format!("preconnect.{name}.reference"), "is missing");
            let reference = preconnect.reference.clone().ok_or_else(missing)?;
            builder = builder.preconnect(reference, preconnect.priorities.iter().copied(), preconnect.connections);
        }
        builder = orb.guarantees.iter().copied().fold(builder, OrbBuilder::require_guarantee);
        for (name, text) in &self.initial_references {
            builder = builder.initial_reference(name, text);
        }
        if let Some(text) = &orb.default_initial_reference {
            builder = builder.default_initial_reference(text);
        }
        Ok(self.with_numbers(builder))
    }

    fn with_numbers(&self, mut builder: OrbBuilder) -> OrbBuilder {
        let orb = &self.orb;
        if let Some(size) = orb.max_reply_memory {
            builder = builder.max_reply_memory(size);
        }
        if let Some(size) = orb.max_kept_memory {
            builder = builder.max_kept_memory(size);
        }
        if let Some(action) = orb.on_connection_pool_exhausted {
            builder = builder.on_connection_pool_exhausted(action);
        }
        if let Some(max) = orb.max_connections_per_server {
            builder = builder.max_connections_per_server(max);
        }
        if let Some(policy) = orb.spin_policy {
            builder = builder.spin_policy(policy);
        }
        if let Some(timeout) = orb.drain_timeout {
            builder = builder.drain_timeout(timeout);
        }
        if let Some(timeout) = orb.idle_connection_timeout {
            builder = builder.idle_connection_timeout(timeout);
        }
        if let Some(version) = orb.giop_version {
            builder = builder.giop_version(version);
        }
        if let Some(set) = orb.native_char_set {
            builder = builder.native_char_set(set);
        }
        if let Some(size) = orb.fragment_size {
            builder = builder.max_fragment_size(size);
        }
        if orb.locks_memory {
            builder = builder.lock_memory();
        }
        if orb.logs_events {
            builder = builder.log_events();
        }
        builder
    }

    fn transports(&self) -> Option<Transports> {
        const ALL: [BuiltInTransport; 3] =
            [BuiltInTransport::Tcp, BuiltInTransport::Unix, BuiltInTransport::SharedMemory];
        let SharedMemoryDraft { allowed_users, max_lent_memory, spin_policy } = self.shared_memory;
        let is_changed = self.orb.transports.is_some()
            || allowed_users.is_some()
            || max_lent_memory.is_some()
            || spin_policy.is_some();
        let names = self.orb.transports.as_deref().unwrap_or(&ALL);
        let transport = |name: &BuiltInTransport| -> Arc<dyn Transport> {
            match name {
                BuiltInTransport::Tcp => Arc::new(TcpTransport::new()),
                BuiltInTransport::Unix => Arc::new(UnixTransport),
                BuiltInTransport::SharedMemory => {
                    let mut memory = SharedMemoryTransport::default();
                    if let Some(users) = allowed_users {
                        memory = memory.allowed_users(users);
                    }
                    if let Some(bytes) = max_lent_memory {
                        memory = memory.max_lent_memory(bytes);
                    }
                    if let Some(policy) = spin_policy {
                        memory = memory.spin_policy(policy);
                    }
                    Arc::new(memory)
                }
            }
        };
        is_changed.then(|| Transports::new(names.iter().map(transport).collect()))
    }
}
