//! The builder of an ORB.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use corelane_net::{Endpoint, SpinPolicy, Transports};
use corelane_sys::clock::Monotonic;
use corelane_sys::guarantees::{Guarantee, GuaranteeStatus};
use corelane_sys::{memory, process};
use corelane_wire::{CharSet, Limits, Version};

use super::Orb;
use super::core::OrbCore;
use super::error::OrbError;
use super::initial_references::{InitialReferences, TextSource, take_options};
use crate::config::{Config, OnewayBatch};
use crate::event::{Callback, Event, Events, Log};
use crate::exception::SystemException;
use crate::interceptor::{InterceptionPoints, Interceptor, InterceptorChain};
use crate::listen_address;
use crate::orb_context::OrbContext;
use crate::poa::Poa;
use crate::policy::{CallPolicies, ConnectionPoolExhaustedAction, Timeout};
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
    listen: Vec<String>,
    published_address: Vec<String>,
    transports: Transports,
    limits: Limits,
    max_reply_memory: usize,
    max_kept_memory: usize,
    call_policies: CallPolicies,
    max_connections_per_server: usize,
    oneway_batch: OnewayBatch,
    spin_policy: Option<SpinPolicy>,
    drain_timeout: Duration,
    locks_memory: bool,
    on_connection_pool_exhausted: ConnectionPoolExhaustedAction,
    idle_connection_timeout: Duration,
    version: Version,
    native_char_set: CharSet,
    fragment_size: Option<usize>,
    rt: RtConfig,
    required: Vec<Guarantee>,
    preconnects: Vec<Preconnect>,
    /// A pointer, so that programs without [`OrbBuilder::require_guarantee`] are linked without the
    /// check's code.
    check_guarantees: Option<GuaranteeCheck>,
    /// A pointer, so that programs without [`OrbBuilder::preconnect`] are linked without its code.
    preconnect: Option<PreconnectFn>,
    /// A pointer, so that programs without [`OrbBuilder::real_time`] are linked without the
    /// monitor's code.
    start_cpu_monitor: Option<CpuMonitorStart>,
    on_event: Option<Callback>,
    /// A trait object, so that programs without [`OrbBuilder::interceptor`] are linked without the
    /// code of interceptors.
    interceptors: Option<Box<dyn InterceptionPoints>>,
    initial_references: InitialReferences,
    refused: Option<SystemException>,
}

/// The stringified reference, the priorities, and the number of connections for each priority.
type Preconnect = (String, Vec<i16>, usize);
type GuaranteeCheck = fn(required: &[Guarantee]) -> Result<(), OrbError>;
type CpuMonitorStart = fn(orb: &OrbContext) -> io::Result<()>;
type PreconnectFn = fn(orb: &Orb, wanted: &[Preconnect]) -> Result<(), OrbError>;

impl OrbBuilder {
    pub(super) fn new() -> Self {
        OrbBuilder {
            pools: Vec::new(),
            listen: Vec::new(),
            published_address: Vec::new(),
            transports: transports(),
            limits: Limits::default(),
            max_reply_memory: 256 << 20,
            max_kept_memory: 256 << 20,
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
            on_connection_pool_exhausted: ConnectionPoolExhaustedAction::Wait,
            idle_connection_timeout: Duration::from_secs(180),
            version: Version::HIGHEST,
            native_char_set: CharSet::Utf8,
            fragment_size: None,
            rt: RtConfig::default(),
            required: Vec::new(),
            preconnects: Vec::new(),
            check_guarantees: None,
            preconnect: None,
            start_cpu_monitor: None,
            on_event: None,
            interceptors: None,
            initial_references: InitialReferences::default(),
            refused: None,
        }
    }

    /// Adds a thread pool. By default an ORB that [listens](Self::listen) has one pool,
    /// [`PoolConfig::default`].
    pub fn pool(mut self, pool: PoolConfig) -> Self {
        self.pools.push(pool);
        self
    }

    /// Adds an address at which the first pool listens. Other pools have their addresses in
    /// [`PoolConfig::listen`](field@PoolConfig::listen). The order of the builder's calls does not
    /// matter.
    ///
    /// An address is `tcp:HOST:PORT`, `unix:PATH` or `shm:PATH`, if the ORB has the transport. With
    /// port 0 the kernel chooses a free port. An empty host means every address of the machine. By
    /// default the ORB does not listen and is only a client.
    pub fn listen(mut self, address: impl Into<String>) -> Self {
        self.listen.push(address.into());
        self
    }

    /// Adds an address that references carry instead of the addresses at which the ORB listens, for
    /// servers behind NAT or in containers. Port 0 means the port at which the ORB listens. By
    /// default references carry the addresses at which the ORB listens.
    pub fn published_address(mut self, address: impl Into<String>) -> Self {
        self.published_address.push(address.into());
        self
    }

    /// Replaces the ORB's transports. Without this call they are TCP and, with the features
    /// `unix-sockets` and `shared-memory`, Unix sockets and shared memory. The documentation of
    /// [`Transport`](corelane_net::Transport) explains how to add a transport.
    pub fn transports(mut self, transports: Transports) -> Self {
        self.transports = transports;
        self
    }

    /// Sets the limits on the resources that a peer can make this ORB use; [`Limits::DEFAULT`] by
    /// default.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the maximum memory in bytes that the replies to all calls of this ORB may use together;
    /// 256 MiB by default.
    ///
    /// Counted are:
    /// - the received part of an incomplete reply, once it exceeds 64 KiB;
    /// - a complete reply of more than 64 KiB, until its results have been read;
    /// - the values decoded from results while a caller reads them, beyond the first 64 KiB;
    /// - the values decoded from the arguments of encoded collocated calls, beyond the first 64
    ///   KiB.
    ///
    /// A call whose reply would exceed the maximum fails with IMP_LIMIT, and an incomplete reply
    /// ends its connection.
    pub fn max_reply_memory(mut self, bytes: usize) -> Self {
        self.max_reply_memory = bytes;
        self
    }

    /// Sets the maximum memory in bytes of the octets of requests that servants keep by
    /// [`keep_octets`](crate::keep_octets); 256 MiB by default. The requests of one connection may
    /// use half of it. Beyond the maximum `keep_octets` fails with IMP_LIMIT 0x434c4e83.
    pub fn max_kept_memory(mut self, bytes: usize) -> Self {
        self.max_kept_memory = bytes;
        self
    }

    /// Sets the default time-out of calls; 30 s by default. The policies of a thread or a reference
    /// may override it.
    pub fn call_timeout(mut self, timeout: impl Into<Timeout>) -> Self {
        self.call_policies.timeout = Some(timeout.into());
        self
    }

    /// Sets the policies of all calls; a thread or a reference may override them. A policy that is
    /// `None` keeps its earlier value. By default a call may take 30 s, and connecting may take 10
    /// s of this time.
    pub fn call_policies(mut self, policies: CallPolicies) -> Self {
        self.call_policies = policies.with_defaults_from(self.call_policies);
        self
    }

    /// Sets the action of a call if its server already has the maximum number of connections and
    /// all are in use. By default the call waits.
    pub fn on_connection_pool_exhausted(mut self, reaction: ConnectionPoolExhaustedAction) -> Self {
        self.on_connection_pool_exhausted = reaction;
        self
    }

    /// Sets the maximum number of connections to one server for each priority, or for each priority
    /// band; 32 by default.
    pub fn max_connections_per_server(mut self, max: usize) -> Self {
        self.max_connections_per_server = max;
        self
    }

    /// Sets the limits on buffered oneways of a connection
    /// ([`SyncScope::None`](crate::SyncScope::None)); 16 KiB and 1 ms by default.
    pub fn oneway_batch(mut self, batch: OnewayBatch) -> Self {
        self.oneway_batch = batch;
        self
    }

    /// Sets how long threads poll before they sleep: callers that wait for a reply, and threads of
    /// pools for which no spin policy is set
    /// ([`PoolConfig::spin_policy`](field@PoolConfig::spin_policy)). Callers of multiplexed
    /// connections never poll. By default threads poll sockets only as long as polling has saved
    /// wake-ups, and then for at most 50 us in each wait ([`SpinPolicy::DEFAULT`]); over shared
    /// memory the transport decides how long they poll. Threads with a fixed priority poll only
    /// with [`SpinPolicy::Always`].
    pub fn spin_policy(mut self, policy: SpinPolicy) -> Self {
        self.spin_policy = Some(policy);
        self
    }

    /// Sets the maximum time for which a graceful close waits for the peer to read the ORB's last
    /// messages and to close; 2 s by default. After this time the ORB closes the connection without
    /// waiting. The time also bounds the waits for servants when an ORB is dropped.
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.drain_timeout = timeout;
        self
    }

    /// Sets how long a connection to a server may be idle before it is closed; 180 s by default.
    /// The ORB checks idle connections at intervals of a quarter of this time: at least 10 ms, and
    /// at most 10 s, or 1 s if it listens.
    pub fn idle_connection_timeout(mut self, timeout: Duration) -> Self {
        self.idle_connection_timeout = timeout;
        self
    }

    /// Sets the highest GIOP version that the ORB uses and publishes; 1.2 by default.
    pub fn giop_version(mut self, version: Version) -> Self {
        self.version = version.min(Version::HIGHEST);
        self
    }

    /// Sets the native code set for `char` and `string`; by default UTF-8, for which strings need
    /// no conversion. References publish this code set, and calls use it if the server supports it.
    pub fn native_char_set(mut self, set: CharSet) -> Self {
        self.native_char_set = set;
        self
    }

    /// Makes the ORB send GIOP 1.2 messages in fragments of at most `bytes` bytes, rounded down to
    /// a multiple of 8, but at least 64. By default messages are not fragmented.
    pub fn max_fragment_size(mut self, bytes: usize) -> Self {
        self.fragment_size = Some((bytes & !7).max(64));
        self
    }

    /// Sets the real-time configuration: the mapping of CORBA priorities to native and network
    /// priorities, and the scheduling class of threads with a priority. The default is
    /// [`RtConfig::default`].
    pub fn real_time(mut self, real_time: RtConfig) -> Self {
        self.rt = real_time;
        self.start_cpu_monitor = Some(start_cpu_monitor);
        self
    }

    /// Requires a real-time guarantee: [`build`](Self::build) fails if the machine does not give it
    /// (see [`rt::check_guarantees`](crate::rt::check_guarantees)). May be called several times. By
    /// default no guarantee is required.
    pub fn require_guarantee(mut self, guarantee: Guarantee) -> Self {
        self.required.push(guarantee);
        self.check_guarantees = Some(check_guarantees);
        self
    }

    /// Makes [`build`](Self::build) lock the present and future memory of the whole process until
    /// the process ends. `build` fails if the kernel does not permit the lock (the guarantee
    /// `memory-lock`). By default memory is not locked.
    pub fn lock_memory(mut self) -> Self {
        self.locks_memory = true;
        self
    }

    /// Makes [`build`](Self::build) connect to the object of a stringified reference, with `count`
    /// connections for each of `priorities` (see
    /// [`ObjectRef::preconnect`](crate::ObjectRef::preconnect)). By default the first call makes a
    /// connection.
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

    /// Prints events on standard error. The maximum is ten lines per second for each peer, 100 for
    /// all peers together, and ten for each kind of event of the process itself. A line that would
    /// block, because a pipe is full, is dropped and counted.
    ///
    /// This setting replaces a callback of [`on_event`](Self::on_event). By default events are only
    /// counted ([`Orb::event_counts`]).
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

    /// Sets the callback for each [`Event`](crate::Event). By default events are only counted.
    pub fn on_event(mut self, callback: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.on_event = Some(Box::new(callback));
        self
    }

    /// Sets the URL of an initial reference, which begins with `IOR:`, `corbaloc:` or `corbaname:`.
    /// The ORB resolves the URL at each use by [`Orb::resolve_initial_references`] or
    /// `corbaloc:rir:`. By default no URL is set. If the text has another form,
    /// [`build`](Self::build) fails.
    pub fn initial_reference(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        let set = self.initial_references.set_text(TextSource::Program, name.into(), text.into());
        self.refused = self.refused.or(set.err());
        self
    }

    /// Sets the default initial reference. A name for which no URL is set resolves to this URL
    /// followed by `/` and the name: with `corbaloc::host:2809`, the name `NameService` has the URL
    /// `corbaloc::host:2809/NameService`. By default there is no such URL. If the result is not a
    /// stringified reference, [`build`](Self::build) fails.
    pub fn default_initial_reference(mut self, text: impl Into<String>) -> Self {
        let set = self.initial_references.set_default(TextSource::Program, text.into());
        self.refused = self.refused.or(set.err());
        self
    }

    /// Takes the ORB's options from a program's arguments, and returns the other arguments. The
    /// options are `-ORBInitRef NAME=URL`, `-ORBDefaultInitRef URL`, and `-ORBid NAME`, which has
    /// no effect. URLs in arguments override the URLs that the program sets. By default the ORB
    /// reads no arguments.
    ///
    /// # Errors
    /// [`OrbError::ClientSetup`] for an option without its value, a URL that is not a stringified
    /// reference, and an unknown option that begins with `-ORB`.
    ///
    /// # Examples
    /// ```
    /// use corelane::Orb;
    /// let words = ["-ORBInitRef", "Clock=corbaloc::127.0.0.1:4000/Clock", "--verbose"];
    /// let (builder, rest) = Orb::builder().parse_arguments(words.map(String::from))?;
    /// assert_eq!(rest, ["--verbose"]);
    /// assert_eq!(builder.build()?.initial_reference_names(), ["Clock"]);
    /// # Ok::<(), corelane::OrbError>(())
    /// ```
    pub fn parse_arguments(
        mut self,
        arguments: impl IntoIterator<Item = String>,
    ) -> Result<(Self, Vec<String>), OrbError> {
        let rest = take_options(arguments, &mut self.initial_references)?;
        Ok((self, rest))
    }

    /// Adds an interceptor, which the ORB calls before and after requests. May be called several
    /// times. By default there are no interceptors.
    pub fn interceptor(mut self, interceptor: impl Interceptor) -> Self {
        let points = self.interceptors.get_or_insert_with(|| Box::new(InterceptorChain::default()));
        points.push(Box::new(interceptor));
        self
    }

    /// Makes the ORB.
    ///
    /// # Errors
    /// An [`OrbError`] with the reason, such as a guarantee that is not met, an invalid address, or
    /// a thread that the kernel refuses.
    pub fn build(self) -> Result<Orb, OrbError> {
        if let Some(check) = self.check_guarantees {
            check(&self.required)?;
        }
        if let Some(refused) = self.refused {
            return Err(OrbError::ClientSetup(refused));
        }
        if self.locks_memory {
            memory::lock_all_pages().map_err(OrbError::MemoryLock)?;
        }
        let parse = |address: &String| parse_address(address, &self.transports);
        let publish = self.published_address.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
        let client_policies = self.rt.client_policies.check().map_err(OrbError::ClientSetup)?;
        let config = Config {
            client_policies,
            limits: self.limits,
            max_reply_memory: self.max_reply_memory,
            #[cfg(feature = "keep-octets")]
            max_kept_memory: self.max_kept_memory,
            call_policies: self.call_policies,
            max_connections_per_server: self.max_connections_per_server,
            oneway_batch: self.oneway_batch,
            spin_policy: self.spin_policy,
            drain_timeout: self.drain_timeout,
            on_connection_pool_exhausted: self.on_connection_pool_exhausted,
            idle_connection_timeout: self.idle_connection_timeout,
            publish,
            version: self.version,
            native_char_set: self.native_char_set,
            fragment_size: self.fragment_size,
            rt: self.rt,
            locks_memory: self.locks_memory,
        };
        let stamp = random_stamp();
        let mut context = OrbContext::new(config, self.transports, Events::new(self.on_event), stamp);
        if let Some(interceptors) = self.interceptors {
            context.set_interceptors(interceptors);
        }
        let core = OrbCore::new(context, self.initial_references).map_err(OrbError::NoResources)?;
        if let Some(start) = self.start_cpu_monitor {
            start(&core).map_err(OrbError::ThreadStart)?;
        }
        Poa::root(Arc::downgrade(core.server()), core.poa_table());
        let orb = Orb { core: Arc::clone(&core) };
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
                let endpoint = parse_address(address, core.transports())?;
                let listener = core.transports().listen(&endpoint);
                listeners.push(listener.map_err(|error| OrbError::Listen { endpoint, error })?);
            }
            let lane =
                Lane::new(pool, listeners, core.config().drain_timeout, None, None).map_err(OrbError::NoResources)?;
            lanes.push(lane);
        }
        core.start(lanes)?;
        if let Some(preconnect) = self.preconnect {
            preconnect(&orb, &self.preconnects)?;
        }
        Ok(orb)
    }
}

fn transports() -> Transports {
    Transports::new(vec![
        Arc::new(corelane_net::TcpTransport::new()),
        #[cfg(feature = "unix-sockets")]
        Arc::new(corelane_net::UnixTransport),
        #[cfg(feature = "shared-memory")]
        Arc::new(corelane_net::SharedMemoryTransport::default()),
    ])
}

fn preconnect(orb: &Orb, wanted: &[Preconnect]) -> Result<(), OrbError> {
    for (reference, priorities, count) in wanted {
        if let Some(object) = orb.string_to_object(reference).map_err(OrbError::ClientSetup)? {
            object.preconnect(priorities, *count).map_err(OrbError::ClientSetup)?;
        }
    }
    Ok(())
}

fn check_guarantees(required: &[Guarantee]) -> Result<(), OrbError> {
    for guarantee in required {
        let report = guarantee.check();
        if report.status != GuaranteeStatus::Met {
            let why = format!("{}. {}", report.finding, report.remedy);
            return Err(OrbError::GuaranteeNotMet { name: report.name.to_owned(), why });
        }
    }
    Ok(())
}

fn parse_address(address: &str, transports: &Transports) -> Result<Endpoint, OrbError> {
    listen_address::parse(address, transports).ok_or_else(|| OrbError::InvalidAddress(address.to_owned()))
}

/// Returns a number that is not zero, and that peers cannot guess.
fn random_stamp() -> u64 {
    std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), std::process::id()).max(1)
}

impl fmt::Debug for OrbBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrbBuilder")
            .field("pools", &self.pools)
            .field("listen", &self.listen)
            .field("publish", &self.published_address)
            .field("transports", &self.transports)
            .field("limits", &self.limits)
            .field("max_reply_memory", &self.max_reply_memory)
            .field("max_kept_memory", &self.max_kept_memory)
            .field("call_policies", &self.call_policies)
            .field("max_connections_per_server", &self.max_connections_per_server)
            .field("oneway_batch", &self.oneway_batch)
            .field("spin_policy", &self.spin_policy)
            .field("drain_timeout", &self.drain_timeout)
            .field("locks_memory", &self.locks_memory)
            .field("on_connection_pool_exhausted", &self.on_connection_pool_exhausted)
            .field("idle_connection_timeout", &self.idle_connection_timeout)
            .field("version", &self.version)
            .field("native_char_set", &self.native_char_set)
            .field("fragment_size", &self.fragment_size)
            .field("rt", &self.rt)
            .field("required", &self.required)
            .field("preconnects", &self.preconnects)
            .field("has_event_callback", &self.on_event.is_some())
            .field("initial_references", &self.initial_references)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn build_fails_if_a_required_guarantee_does_not_hold() {
        let yes = Guarantee::new("yes", "It holds.", "None is needed.", || (GuaranteeStatus::Met, "found".into()));
        assert!(OrbBuilder::new().require_guarantee(yes).build().is_ok());
        for state in [GuaranteeStatus::NotMet, GuaranteeStatus::Unknown] {
            let check: fn() -> (GuaranteeStatus, String) = match state {
                GuaranteeStatus::NotMet => || (GuaranteeStatus::NotMet, "found".into()),
                _ => || (GuaranteeStatus::Unknown, "found".into()),
            };
            let wanted = Guarantee::new("luck", "Luck holds.", "Try again.", check);
            let error =
                OrbBuilder::new().require_guarantee(yes).require_guarantee(wanted).build().unwrap_err().to_string();
            assert!(error.contains("luck") && error.contains("found. Try again."), "{error}");
        }
    }

    #[test]
    fn invalid_address_error_shows_the_reason_and_the_syntax() {
        let error = |address| parse_address(address, &transports()).unwrap_err().to_string();
        for (address, reason) in [("ftp:h:1", "no transport has this scheme"), ("tcp:h", "an address: write")] {
            let error = error(address);
            assert!([address, reason, "tcp:HOST:PORT"].iter().all(|part| error.contains(part)), "{error}");
        }
    }
}
