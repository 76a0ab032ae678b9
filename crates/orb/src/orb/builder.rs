//! The builder of an ORB.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use corelane_net::{Endpoint, SpinPolicy, Transports};
use corelane_sys::clock::Monotonic;
use corelane_sys::guarantees::{Guarantee, Holds};
use corelane_sys::{memory, process};
use corelane_wire::{CharSet, Limits, Version};

use super::Orb;
use super::core::Core;
use super::error::OrbError;
use crate::config::{Config, OnewayBatch};
use crate::event::{Callback, Event, Events, Log};
use crate::listen_address;
use crate::orb_context::OrbContext;
use crate::poa::Poa;
use crate::policy::{CallPolicies, PoolExhausted, Timeout};
use crate::rt::{RtConfig, start_cpu_monitor};
use crate::server::config::PoolConfig;
use crate::server::strategy::Lane;

/// A builder for an [`Orb`].
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use corelane::{Dispatch, Orb, PoolConfig};
/// let orb = Orb::builder()
///     .pool(PoolConfig::default().dispatch(Dispatch::LeaderFollowers { threads: 2 }))
///     .listen("tcp:127.0.0.1:0")
///     .call_timeout(Duration::from_secs(5))
///     .build()?;
/// # Ok::<(), corelane::OrbError>(())
/// ```
#[must_use]
pub struct OrbBuilder {
    pools: Vec<PoolConfig>,
    /// Addresses at which the first pool listens.
    listen: Vec<String>,
    publish: Vec<String>,
    transports: Transports,
    limits: Limits,
    max_reply_memory: usize,
    call_policies: CallPolicies,
    max_connections_per_server: usize,
    oneway_batch: OnewayBatch,
    spin_policy: Option<SpinPolicy>,
    drain_timeout: Duration,
    locks_memory: bool,
    on_pool_exhausted: PoolExhausted,
    idle_connection_timeout: Duration,
    version: Version,
    native_char_set: CharSet,
    fragment_size: Option<usize>,
    rt: RtConfig,
    required: Vec<Guarantee>,
    preconnects: Vec<Preconnect>,
    /// Function pointers set only by programs that ask for guarantees or early connections. Other
    /// programs, above all servers, then link without that code.
    check_guarantees: Option<GuaranteeCheck>,
    preconnect: Option<PreconnectFn>,
    /// Starts the CPU budget monitor. Set by [`OrbBuilder::real_time`], so that other programs link
    /// without it.
    start_cpu_monitor: Option<CpuMonitorStart>,
    on_event: Option<Callback>,
}

/// Connections to make at start: the reference, the priorities, and the number at each priority.
type Preconnect = (String, Vec<i16>, usize);
type GuaranteeCheck = fn(required: &[Guarantee]) -> Result<(), OrbError>;
type CpuMonitorStart = fn(orb: &OrbContext) -> io::Result<()>;
type PreconnectFn = fn(orb: &Orb, wanted: &[Preconnect]) -> Result<(), OrbError>;

impl OrbBuilder {
    pub(super) fn new() -> Self {
        OrbBuilder {
            pools: Vec::new(),
            listen: Vec::new(),
            publish: Vec::new(),
            transports: transports(),
            limits: Limits::default(),
            max_reply_memory: 256 << 20,
            call_policies: CallPolicies {
                timeout: Some(Timeout::Coarse(Duration::from_secs(30))),
                connect_timeout: Some(Duration::from_secs(10)),
                ..CallPolicies::NONE
            },
            max_connections_per_server: 32,
            oneway_batch: OnewayBatch::default(),
            spin_policy: None,
            drain_timeout: Duration::from_secs(2),
            locks_memory: false,
            on_pool_exhausted: PoolExhausted::Wait,
            idle_connection_timeout: Duration::from_secs(180),
            version: Version::GIOP_1_2,
            native_char_set: CharSet::Utf8,
            fragment_size: None,
            rt: RtConfig::default(),
            required: Vec::new(),
            preconnects: Vec::new(),
            check_guarantees: None,
            preconnect: None,
            start_cpu_monitor: None,
            on_event: None,
        }
    }

    /// Adds a thread pool. Without any, an ORB that [listens](Self::listen) has one pool,
    /// [`PoolConfig::default`].
    pub fn pool(mut self, pool: PoolConfig) -> Self {
        self.pools.push(pool);
        self
    }

    /// Adds an address at which the first pool listens. Other pools have theirs in
    /// [`PoolConfig::listen`](field@PoolConfig::listen). The order of the builder's calls does not
    /// matter.
    ///
    /// An address is `tcp:HOST:PORT` (port 0: any free one; empty host: every address of the
    /// machine), `unix:PATH`, or `shm:PATH` (shared memory, with the feature of that name). By
    /// default the ORB does not listen and is a client.
    pub fn listen(mut self, address: impl Into<String>) -> Self {
        self.listen.push(address.into());
        self
    }

    /// Adds an address that references carry instead of those listened at, for servers behind NAT
    /// or in containers. Port 0 stands for the port listened at. By default references carry the
    /// addresses listened at.
    pub fn publish(mut self, address: impl Into<String>) -> Self {
        self.publish.push(address.into());
        self
    }

    /// Replaces the default transports: TCP, Unix sockets and, with the feature `shared-memory`,
    /// shared memory. [`Transports::default`] has all three in any case.
    pub fn transports(mut self, transports: Transports) -> Self {
        self.transports = transports;
        self
    }

    /// Sets the limits on what a peer can make this ORB spend; [`Limits::DEFAULT`] by default.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the memory in bytes that the replies to all calls of this ORB may use together; 256 MiB
    /// by default. It stops servers that stay below [`Limits::max_message_size`] on many
    /// connections.
    ///
    /// Counted are:
    /// - the received part of an incomplete reply, once it exceeds 64 KiB;
    /// - a complete reply of more than 64 KiB, until its results have been read;
    /// - the data made from results while they are read, beyond the first 64 KiB;
    /// - the data that a call to an object of this ORB makes from marshalled arguments, beyond the
    ///   first 64 KiB.
    ///
    /// The call whose reply would exceed the maximum fails with IMP_LIMIT; if the reply was
    /// incomplete, its connection is closed. Memory that large messages leave for later ones, at
    /// most 64 MiB, is not counted.
    pub fn max_reply_memory(mut self, bytes: usize) -> Self {
        self.max_reply_memory = bytes;
        self
    }

    /// Sets the time-out of calls for which no thread or reference sets another; 30 s by default.
    pub fn call_timeout(mut self, timeout: impl Into<Timeout>) -> Self {
        self.call_policies.timeout = Some(timeout.into());
        self
    }

    /// Sets the policies of all calls; a thread or a reference may override them. By default a call
    /// may take 30 s, of which connecting may take 10 s. The other policies are not set
    /// ([`CallPolicies::NONE`]).
    pub fn call_policies(mut self, policies: CallPolicies) -> Self {
        self.call_policies = policies.or(self.call_policies);
        self
    }

    /// Sets what a call does when every connection to its server is in use; by default it waits.
    pub fn on_pool_exhausted(mut self, reaction: PoolExhausted) -> Self {
        self.on_pool_exhausted = reaction;
        self
    }

    /// Sets the maximum number of connections to one server at one priority; 32 by default.
    pub fn max_connections_per_server(mut self, max: usize) -> Self {
        self.max_connections_per_server = max;
        self
    }

    /// Sets how many oneways of [`SyncScope::None`](crate::SyncScope::None) a connection may
    /// buffer, and how long; 16 KiB and 1 ms by default.
    pub fn oneway_batch(mut self, batch: OnewayBatch) -> Self {
        self.oneway_batch = batch;
        self
    }

    /// Sets whether threads poll before they sleep: callers that wait for a reply, and threads of
    /// pools that set no policy of their own ([`PoolConfig::spin_policy`](field@PoolConfig::spin_policy)).
    /// Callers of multiplexed connections never poll. By default threads poll sockets while that helps, for at
    /// most 50 us ([`SpinPolicy::DEFAULT`]), and shared memory as its transport says. Threads of fixed
    /// priority poll only with [`SpinPolicy::Always`].
    pub fn spin_policy(mut self, policy: SpinPolicy) -> Self {
        self.spin_policy = Some(policy);
        self
    }

    /// Sets how long a graceful close waits for the peer; 2 s by default. The peer has this time to
    /// read what it is owed and to close its side, at shutdown and elsewhere. Then the connection
    /// is cut. The drop of an ORB waits as long for servants to return.
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.drain_timeout = timeout;
        self
    }

    /// Sets how long a connection to a server may be idle before it is closed; 180 s by default.
    /// Idle connections are checked every quarter of this time, but at least every 10 s, and every
    /// second if the ORB listens. Connections of threads with a fixed priority, and of priority
    /// bands, stay open: the thread that checks could be preempted while it holds one.
    pub fn idle_connection_timeout(mut self, timeout: Duration) -> Self {
        self.idle_connection_timeout = timeout;
        self
    }

    /// Sets the highest GIOP version to use and publish; 1.2 by default.
    pub fn giop_version(mut self, version: Version) -> Self {
        self.version = version.min(Version::GIOP_1_2);
        self
    }

    /// Sets the native code set of char and string; UTF-8 by default, in which strings need no
    /// conversion. References name it, and calls use it wherever the server supports it. A single
    /// `char` beyond ASCII travels in ISO 8859-1 only (CORBA 3.0.3, section 15.3.1.6: a char is one
    /// octet there).
    pub fn native_char_set(mut self, set: CharSet) -> Self {
        self.native_char_set = set;
        self
    }

    /// Sends larger GIOP 1.2 messages in fragments of at most `bytes` bytes (a multiple of 8, at
    /// least 64). By default messages are sent whole; GIOP 1.1 messages always are
    /// (docs/decisions/0005).
    pub fn fragment_size(mut self, bytes: usize) -> Self {
        self.fragment_size = Some((bytes & !7).max(64));
        self
    }

    /// Sets how priorities map to the kernel's and the network's, and which scheduling class has
    /// them; [`RtConfig::default`] by default.
    pub fn real_time(mut self, real_time: RtConfig) -> Self {
        self.rt = real_time;
        self.start_cpu_monitor = Some(start_cpu_monitor);
        self
    }

    /// Makes [`build`](Self::build) fail unless the machine gives this guarantee, for example
    /// `scheduling-class` (see [`rt::guarantees`](crate::rt::guarantees)). May be called several
    /// times; by default no guarantee is required.
    pub fn require_guarantee(mut self, guarantee: Guarantee) -> Self {
        self.required.push(guarantee);
        self.check_guarantees = Some(check_guarantees);
        self
    }

    /// Locks the memory of the whole process from [`build`](Self::build) until the process ends,
    /// including memory touched later. Server threads touch their stacks before they begin. `build`
    /// fails where the system does not permit it (the guarantee `memory-lock`). By default memory
    /// is not locked.
    pub fn lock_memory(mut self) -> Self {
        self.locks_memory = true;
        self
    }

    /// Makes `count` connections at each of `priorities` at start, to the object of this reference;
    /// see [`ObjectRef::preconnect`](crate::ObjectRef::preconnect). By default the first call makes
    /// a connection.
    pub fn preconnect(
        mut self,
        reference: impl Into<String>,
        priorities: impl IntoIterator<Item = i16>,
        count: usize,
    ) -> Self {
        self.preconnects.push((reference.into(), priorities.into_iter().collect(), count));
        self.preconnect = Some(preconnect);
        self
    }

    /// Prints events on standard error. The maximum is ten lines a second for each peer, 100 for
    /// all peers, and ten for each kind of event of the process itself. A line that would block,
    /// because a pipe is full, is dropped and counted.
    ///
    /// Replaces [`on_event`](Self::on_event). Without either, events are only counted
    /// ([`Orb::event_counts`]).
    pub fn log_events(self) -> Self {
        let log = Log::new();
        self.on_event(move |event| {
            if let Some(line) = log.line(event, Monotonic::now())
                && !process::try_print_error(&line)
            {
                log.note_lost();
            }
        })
    }

    /// Calls `callback` for each [`Event`](crate::Event). By default events are only counted.
    pub fn on_event(mut self, callback: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.on_event = Some(Box::new(callback));
        self
    }

    /// Makes the ORB, which listens and serves when this returns.
    ///
    /// # Errors
    /// If a required guarantee does not hold, or an address is invalid or cannot be listened at; if
    /// a connection to make at start fails, or the system refuses descriptors or threads.
    pub fn build(self) -> Result<Orb, OrbError> {
        if let Some(check) = self.check_guarantees {
            check(&self.required)?;
        }
        if self.locks_memory {
            memory::lock_all().map_err(OrbError::Memory)?;
        }
        let publish = self.publish.iter().map(|address| parse_address(address)).collect::<Result<Vec<_>, _>>()?;
        let client_policies = self.rt.client.check().map_err(OrbError::Client)?;
        let config = Config {
            client_policies,
            limits: self.limits,
            max_reply_memory: self.max_reply_memory,
            call_policies: self.call_policies,
            max_connections_per_server: self.max_connections_per_server,
            oneway_batch: self.oneway_batch,
            spin_policy: self.spin_policy,
            drain_timeout: self.drain_timeout,
            on_pool_exhausted: self.on_pool_exhausted,
            idle_connection_timeout: self.idle_connection_timeout,
            publish,
            version: self.version,
            native_char_set: self.native_char_set,
            fragment_size: self.fragment_size,
            rt: self.rt,
            locks_memory: self.locks_memory,
        };
        let stamp = random_stamp();
        let core = Core::new(config, self.transports, Events::new(self.on_event), stamp).map_err(OrbError::System)?;
        if let Some(start) = self.start_cpu_monitor {
            start(&core).map_err(OrbError::Thread)?;
        }
        Poa::root(Arc::downgrade(core.server()), core.poa_table());
        let orb = Orb { core: Arc::clone(&core) };
        // Detached when `orb` shuts down.
        core.transports().attach_orb();
        let mut lanes = Vec::new();
        let (mut pools, mut listen) = (self.pools, self.listen);
        if pools.is_empty() && !listen.is_empty() {
            pools.push(PoolConfig::default());
        }
        if let Some(first) = pools.first_mut() {
            first.listen.append(&mut listen);
        }
        for mut pool in pools {
            pool.spin_policy = pool.spin_policy.or(core.config().spin_policy);
            let mut listeners = Vec::new();
            for address in &pool.listen {
                let endpoint = parse_address(address)?;
                let listener = core.transports().listen(&endpoint);
                listeners.push(listener.map_err(|error| OrbError::Listen { endpoint, error })?);
            }
            let lane = Lane::new(pool, listeners, core.config().drain_timeout, None, None).map_err(OrbError::System)?;
            lanes.push(lane);
        }
        core.start(lanes)?;
        if let Some(preconnect) = self.preconnect {
            preconnect(&orb, &self.preconnects)?;
        }
        Ok(orb)
    }
}

/// Returns the default transports.
fn transports() -> Transports {
    Transports::new(vec![
        Arc::new(corelane_net::Tcp::new()),
        #[cfg(feature = "unix-sockets")]
        Arc::new(corelane_net::Unix),
        #[cfg(feature = "shared-memory")]
        Arc::new(corelane_net::SharedMemory::default()),
    ])
}

/// Makes the connections that the program asked for at start.
fn preconnect(orb: &Orb, wanted: &[Preconnect]) -> Result<(), OrbError> {
    for (reference, priorities, count) in wanted {
        if let Some(object) = orb.string_to_object(reference).map_err(OrbError::Client)? {
            object.preconnect(priorities, *count).map_err(OrbError::Client)?;
        }
    }
    Ok(())
}

fn check_guarantees(required: &[Guarantee]) -> Result<(), OrbError> {
    for guarantee in required {
        let report = guarantee.check();
        if report.holds != Holds::Yes {
            let why = format!("{}. {}", report.found, report.remedy);
            return Err(OrbError::Guarantee { name: report.name.to_owned(), why });
        }
    }
    Ok(())
}

/// Parses an address at which to listen.
fn parse_address(address: &str) -> Result<Endpoint, OrbError> {
    listen_address::parse(address).ok_or_else(|| OrbError::Address(address.to_owned()))
}

/// Returns a non-zero number that identifies the ORB and cannot be guessed: the standard library's
/// hash keys are random.
fn random_stamp() -> u64 {
    std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), std::process::id()).max(1)
}

impl fmt::Debug for OrbBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrbBuilder").field("pools", &self.pools).field("publish", &self.publish).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_fails_if_a_required_guarantee_does_not_hold() {
        let yes = Guarantee::new("yes", "It holds.", "None is needed.", || (Holds::Yes, "found".into()));
        assert!(OrbBuilder::new().require_guarantee(yes).build().is_ok());
        for state in [Holds::No, Holds::Unknown] {
            let check: fn() -> (Holds, String) = match state {
                Holds::No => || (Holds::No, "found".into()),
                _ => || (Holds::Unknown, "found".into()),
            };
            let wanted = Guarantee::new("luck", "Luck holds.", "Try again.", check);
            let error =
                OrbBuilder::new().require_guarantee(yes).require_guarantee(wanted).build().unwrap_err().to_string();
            assert!(error.contains("luck") && error.contains("found. Try again."), "{error}");
        }
    }

    #[test]
    fn invalid_address_error_shows_the_syntax() {
        let error = parse_address("ftp:h:1").unwrap_err().to_string();
        assert!(error.contains("ftp:h:1") && error.contains("tcp:HOST:PORT"), "{error}");
    }
}
