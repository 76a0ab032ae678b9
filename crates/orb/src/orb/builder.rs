//! Setting up an ORB.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use corelane_net::{Endpoint, Transports};
use corelane_sys::clock::Monotonic;
use corelane_sys::guarantees::{self, Holds};
use corelane_sys::memory;
use corelane_wire::{CharSet, Limits, Version};

use super::Orb;
use super::core::{Config, Core};
use crate::client::held::OnewayBatch;
use crate::event::{Callback, Event, Events, Log};
use crate::exception::SystemException;
use crate::poa::Poa;
use crate::policy::{AllBusy, CallPolicies, Timeout};
use crate::rt::RtConfig;
use crate::rt::pool::Registry;
use crate::server::config::PoolConfig;
use crate::server::lane::Lane;

/// Makes an [`Orb`].
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use corelane::{Dispatch, Orb, PoolConfig};
/// let orb = Orb::builder()
///     .pool(PoolConfig { dispatch: Dispatch::LeaderFollowers { threads: 2 }, ..PoolConfig::default() })
///     .listen("tcp:127.0.0.1:0")
///     .call_timeout(Duration::from_secs(5))
///     .build()?;
/// # Ok::<(), corelane::OrbError>(())
/// ```
#[must_use]
pub struct OrbBuilder {
    pools: Vec<(PoolConfig, Vec<String>)>,
    publish: Vec<String>,
    transports: Transports,
    limits: Limits,
    call_policies: CallPolicies,
    connections_per_server: usize,
    oneway_batch: OnewayBatch,
    closing_time: Duration,
    locks_memory: bool,
    all_busy: AllBusy,
    idle_time: Duration,
    version: Version,
    native_char_set: CharSet,
    fragment_size: Option<usize>,
    rt: RtConfig,
    required: Vec<String>,
    established: Vec<Established>,
    /// What looks after those that are required, and makes the connections: in programs that ask for either, so that others, servers above all, are
    /// without the code for it.
    check: Option<Check>,
    establish: Option<Establish>,
    /// The same for what watches operations that take too long: in programs that configure real time.
    oversee: Option<Oversee>,
    on_event: Option<Callback>,
}

/// Connections that are wanted from the start: the reference, the priorities, how many at each.
type Established = (String, Vec<i16>, usize);
type Check = fn(required: &[String]) -> Result<(), OrbError>;
type Oversee = fn(rt: &Registry, config: &RtConfig) -> io::Result<()>;
type Establish = fn(orb: &Orb, wanted: &[Established]) -> Result<(), OrbError>;

/// Why an ORB could not be made.
#[derive(Debug)]
#[non_exhaustive]
pub enum OrbError {
    /// An address that is none: what it says, and what would be right.
    Address(String),
    /// Listening failed.
    Listen {
        /// Where.
        endpoint: Endpoint,
        /// Why.
        error: io::Error,
    },
    /// A guarantee that was required does not hold here.
    Guarantee {
        /// Its name.
        name: String,
        /// What was found, and what to change.
        why: String,
    },
    /// The client's policies make no sense, or connections that are wanted from the start cannot be made.
    Client(SystemException),
    /// A thread could not be started.
    Thread(io::Error),
    /// The system does not let the process lock its memory.
    Memory(io::Error),
    /// The system is out of descriptors or memory.
    System(io::Error),
}

impl fmt::Display for OrbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OrbError::Address(text) => {
                write!(f, "\"{text}\" is no address: write tcp:HOST:PORT, tcp:[IPV6]:PORT, unix:PATH or shm:PATH")
            }
            OrbError::Listen { endpoint, error } => write!(f, "cannot listen at {endpoint}: {error}"),
            OrbError::Guarantee { name, why } => {
                write!(f, "the guarantee `{name}` is required and does not hold: {why}")
            }
            OrbError::Client(exception) => write!(f, "{exception}"),
            OrbError::Thread(error) => write!(f, "cannot start a thread: {error}"),
            OrbError::Memory(error) => write!(f, "the memory of the process cannot be locked: {error}"),
            OrbError::System(error) => write!(f, "cannot make an ORB: {error}"),
        }
    }
}

impl std::error::Error for OrbError {}

impl OrbBuilder {
    pub(super) fn new() -> Self {
        OrbBuilder {
            pools: Vec::new(),
            publish: Vec::new(),
            transports: transports(),
            limits: Limits::default(),
            call_policies: CallPolicies {
                timeout: Some(Timeout::Coarse(Duration::from_secs(30))),
                connect_timeout: Some(Duration::from_secs(10)),
                ..CallPolicies::NONE
            },
            connections_per_server: 32,
            oneway_batch: OnewayBatch::default(),
            closing_time: Duration::from_secs(2),
            locks_memory: false,
            all_busy: AllBusy::Wait,
            idle_time: Duration::from_secs(180),
            version: Version::GIOP_1_2,
            native_char_set: CharSet::Utf8,
            fragment_size: None,
            rt: RtConfig::default(),
            required: Vec::new(),
            established: Vec::new(),
            check: None,
            establish: None,
            oversee: None,
            on_event: None,
        }
    }

    /// Adds a thread pool; the addresses given after it are its own.
    pub fn pool(mut self, pool: PoolConfig) -> Self {
        self.pools.push((pool, Vec::new()));
        self
    }

    /// Listens at `tcp:HOST:PORT` (port 0: any; empty host: every address), `unix:PATH`, or `shm:PATH` (shared memory, with the feature of that name). Without a pool before it, a default
    /// pool serves it.
    pub fn listen(mut self, address: impl Into<String>) -> Self {
        if self.pools.is_empty() {
            self.pools.push((PoolConfig::default(), Vec::new()));
        }
        if let Some((_, addresses)) = self.pools.last_mut() {
            addresses.push(address.into());
        }
        self
    }

    /// The address that references carry instead of those listened at, for servers behind NAT or in containers; port 0 stands
    /// for the port listened at.
    pub fn publish(mut self, address: impl Into<String>) -> Self {
        self.publish.push(address.into());
        self
    }

    /// These transports in place of TCP, Unix sockets and, with the feature `shared-memory`, shared memory; [`Transports::default`] has all three
    /// in any case.
    pub fn transports(mut self, transports: Transports) -> Self {
        self.transports = transports;
        self
    }

    /// What a peer can make this ORB spend.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// How long calls may take unless a thread or reference says otherwise; 30 s by default.
    pub fn call_timeout(mut self, timeout: impl Into<Timeout>) -> Self {
        self.call_policies.timeout = Some(timeout.into());
        self
    }

    /// Policies of all calls that no thread or reference overrides.
    pub fn call_policies(mut self, policies: CallPolicies) -> Self {
        self.call_policies = policies.or(self.call_policies);
        self
    }

    /// What a call does that finds every connection to its server in use; by default it waits.
    pub fn all_connections_busy(mut self, what: AllBusy) -> Self {
        self.all_busy = what;
        self
    }

    /// Connections to one server and priority at most, 32 by default.
    pub fn connections_per_server(mut self, most: usize) -> Self {
        self.connections_per_server = most;
        self
    }

    /// How many oneways of [`SyncScope::None`](crate::SyncScope::None) may gather on a connection, and how long; 16 KiB and 1 ms by
    /// default.
    pub fn oneway_batch(mut self, batch: OnewayBatch) -> Self {
        self.oneway_batch = batch;
        self
    }

    /// How long peers have at shutdown, and wherever else a connection ends in good order, to take what waits for them and to close
    /// their side, and servants to return when an ORB is dropped; 2 s by default. Then connections are cut.
    pub fn closing_time(mut self, time: Duration) -> Self {
        self.closing_time = time;
        self
    }

    /// How long a connection to a server may be idle before it is closed; 180 s by default. It is looked at in steps of a quarter
    /// of this time, or of a second. Connections of threads with a fixed priority, and of priority bands, stay: the thread that looks
    /// could be preempted with one of them in its hands.
    pub fn idle_connection_time(mut self, time: Duration) -> Self {
        self.idle_time = time;
        self
    }

    /// The highest GIOP version to speak and publish, 1.2 by default.
    pub fn giop_version(mut self, version: Version) -> Self {
        self.version = version.min(Version::GIOP_1_2);
        self
    }

    /// The code set of char and string that references name as native, and that calls use wherever the server knows it; UTF-8 by
    /// default, in which strings need no conversion. A single `char` beyond ASCII travels in ISO 8859-1 only (CORBA 3.0.3, section
    /// 15.3.1.6: a char is one octet there).
    pub fn native_char_set(mut self, set: CharSet) -> Self {
        self.native_char_set = set;
        self
    }

    /// Sends GIOP 1.2 messages larger than this in fragments of at most so many octets (a multiple of 8, at least 64). By
    /// default messages are sent whole; those of GIOP 1.1 always are (docs/decisions/0005).
    pub fn fragment_size(mut self, octets: usize) -> Self {
        self.fragment_size = Some((octets & !7).max(64));
        self
    }

    /// How priorities map to the machine's and the network's, and which class of the kernel's scheduler has them.
    pub fn real_time(mut self, real_time: RtConfig) -> Self {
        self.rt = real_time;
        self.oversee = Some(Registry::oversee);
        self
    }

    /// Makes [`build`](Self::build) fail unless the machine gives this guarantee: a name of [`rt::guarantees`](crate::rt::guarantees),
    /// such as `scheduling-class`. May be called several times.
    pub fn require(mut self, guarantee: impl Into<String>) -> Self {
        self.required.push(guarantee.into());
        self.check = Some(check);
        self
    }

    /// Keeps the memory of the whole process from being paged out, from [`build`](Self::build) on and until the process ends: what it has
    /// touched, and what it touches later. Threads that serve touch their stacks before they begin. `build` fails where the system does
    /// not permit it (the guarantee `memory-lock`).
    pub fn lock_memory(mut self) -> Self {
        self.locks_memory = true;
        self
    }

    /// Has connections made at start, before calls need them: `each` for calls at each of `priorities` to the object of this reference, as
    /// [`ObjectRef::establish`](crate::ObjectRef::establish) makes them.
    pub fn establish(
        mut self,
        reference: impl Into<String>,
        priorities: impl IntoIterator<Item = i16>,
        each: usize,
    ) -> Self {
        self.established.push((reference.into(), priorities.into_iter().collect(), each));
        self.establish = Some(establish);
        self
    }

    /// Prints what goes wrong without anybody having asked on the standard error output, at most ten lines a second; takes the
    /// place of [`on_event`](Self::on_event). Without either, events are only counted ([`Orb::event_counts`]).
    pub fn log_events(self) -> Self {
        let log = Log::new();
        self.on_event(move |event| {
            if let Some(line) = log.line(event, Monotonic::now()) {
                eprintln!("{line}");
            }
        })
    }

    /// Calls `callback` for everything that goes wrong without anybody having asked.
    pub fn on_event(mut self, callback: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.on_event = Some(Box::new(callback));
        self
    }

    /// Makes the ORB, listening and serving.
    ///
    /// # Errors
    /// For a guarantee that is required and does not hold, for an address that is none or cannot be listened at, for connections that are
    /// wanted from the start and cannot be made, and when the system refuses descriptors or threads.
    pub fn build(self) -> Result<Orb, OrbError> {
        if let Some(check) = self.check {
            check(&self.required)?;
        }
        if self.locks_memory {
            memory::lock_all().map_err(OrbError::Memory)?;
        }
        let publish = self.publish.iter().map(|address| parse(address)).collect::<Result<Vec<_>, _>>()?;
        let asked = self.rt.client.check().map_err(OrbError::Client)?;
        let config = Config {
            asked,
            limits: self.limits,
            call_policies: self.call_policies,
            connections_per_server: self.connections_per_server,
            oneway_batch: self.oneway_batch,
            closing_time: self.closing_time,
            all_busy: self.all_busy,
            idle_time: self.idle_time,
            publish,
            version: self.version,
            native_char_set: self.native_char_set,
            fragment_size: self.fragment_size,
            rt: self.rt,
            locks_memory: self.locks_memory,
        };
        let stamp = random_stamp();
        let core =
            Arc::new(Core::new(config, self.transports, Events::new(self.on_event), stamp).map_err(OrbError::System)?);
        if let Some(oversee) = self.oversee {
            oversee(core.rt(), &core.config().rt).map_err(OrbError::Thread)?;
        }
        Poa::root(Arc::downgrade(&core), core.adapters());
        let orb = Orb { core: Arc::clone(&core) };
        // Its end is that of `orb`.
        core.transports().begin();
        let mut lanes = Vec::new();
        for (pool, addresses) in self.pools {
            let mut listeners = Vec::new();
            for address in addresses {
                let endpoint = parse(&address)?;
                let listener = core.transports().listen(&endpoint);
                listeners.push(listener.map_err(|error| OrbError::Listen { endpoint, error })?);
            }
            let lane = Lane::new(pool, listeners, core.config().closing_time, None, None).map_err(OrbError::System)?;
            lanes.push(lane);
        }
        core.start(lanes)?;
        if let Some(establish) = self.establish {
            establish(&orb, &self.established)?;
        }
        Ok(orb)
    }
}

/// Those that an ORB has unless it is given others.
fn transports() -> Transports {
    #[cfg(feature = "shared-memory")]
    return Transports::default();
    #[cfg(not(feature = "shared-memory"))]
    Transports::new(vec![Arc::new(corelane_net::Tcp::new()), Arc::new(corelane_net::Unix)])
}

/// Makes the connections that are wanted from the start.
fn establish(orb: &Orb, wanted: &[Established]) -> Result<(), OrbError> {
    for (reference, priorities, each) in wanted {
        if let Some(object) = orb.string_to_object(reference).map_err(OrbError::Client)? {
            object.establish(priorities, *each).map_err(OrbError::Client)?;
        }
    }
    Ok(())
}

/// Whether every required guarantee holds.
fn check(required: &[String]) -> Result<(), OrbError> {
    let report = guarantees::report();
    for name in required {
        let missing = |why: String| Err(OrbError::Guarantee { name: name.clone(), why });
        match report.iter().find(|guarantee| guarantee.name == name) {
            Some(guarantee) if guarantee.holds == Holds::Yes => {}
            Some(guarantee) => return missing(format!("{}. {}", guarantee.found, guarantee.advice)),
            None => {
                let known: Vec<&str> = report.iter().map(|guarantee| guarantee.name).collect();
                return missing(format!("there is no such guarantee; there are {}", known.join(", ")));
            }
        }
    }
    Ok(())
}

/// A number that no other ORB has, and that cannot be guessed: the standard library's hash keys are random.
fn random_stamp() -> u64 {
    std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), std::process::id()).max(1)
}

impl fmt::Debug for OrbBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrbBuilder").field("pools", &self.pools).field("publish", &self.publish).finish_non_exhaustive()
    }
}

/// `tcp:HOST:PORT`, `unix:PATH`, `shm:PATH`, and TAO's `iiop://HOST:PORT`.
pub(crate) fn parse(address: &str) -> Result<Endpoint, OrbError> {
    let wrong = || OrbError::Address(address.to_owned());
    if let Some(path) = address.strip_prefix("unix:") {
        return if path.is_empty() { Err(wrong()) } else { Ok(Endpoint::unix(path)) };
    }
    if let Some(path) = address.strip_prefix("shm:") {
        return if path.is_empty() { Err(wrong()) } else { Ok(Endpoint::shared_memory(path)) };
    }
    let rest = address.strip_prefix("tcp:").or_else(|| address.strip_prefix("iiop://")).ok_or_else(wrong)?;
    let (host, port) = rest.rsplit_once(':').ok_or_else(wrong)?;
    let port = if port.is_empty() { 0 } else { port.parse().map_err(|_| wrong())? };
    let host = match host.strip_prefix('[') {
        Some(literal) => literal.strip_suffix(']').ok_or_else(wrong)?,
        None if host.contains(':') => return Err(wrong()),
        None => host,
    };
    Ok(Endpoint::tcp(host, port))
}

/// What a reference says for an address listened at: never an unspecified one.
pub(super) fn reachable(listening: &Endpoint) -> Endpoint {
    match listening {
        Endpoint::Tcp { host, port } if host.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified()) => {
            Endpoint::tcp(own_address().to_string(), *port)
        }
        other => other.clone(),
    }
}

/// The address that this machine would use to reach others: asked of the routing table, nothing is sent.
fn own_address() -> IpAddr {
    let routed = || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
        // An address reserved for documentation (RFC 5737): any that is not local would do.
        socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
        socket.local_addr().ok().map(|address| address.ip())
    };
    routed().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// Published addresses with port 0 filled in from what is listened at.
pub(super) fn with_ports(publish: &[Endpoint], listening: &[Endpoint]) -> Vec<Endpoint> {
    let first_port = listening.iter().find_map(|endpoint| match endpoint {
        Endpoint::Tcp { port, .. } => Some(*port),
        _ => None,
    });
    let fill = |endpoint: &Endpoint| match endpoint {
        Endpoint::Tcp { host, port: 0 } => Endpoint::tcp(host, first_port.unwrap_or(0)),
        other => other.clone(),
    };
    publish.iter().map(fill).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_required_guarantee_holds_or_the_orb_is_not_made() {
        for guarantee in guarantees::report() {
            let made = OrbBuilder::new().require(guarantee.name).build();
            match guarantee.holds {
                Holds::Yes => assert!(made.is_ok(), "{guarantee:?}"),
                Holds::No | Holds::Unknown => {
                    let error = made.unwrap_err();
                    assert!(error.to_string().contains(guarantee.name), "{error}");
                }
            }
        }
        let unknown = OrbBuilder::new().require("luck").build().unwrap_err().to_string();
        assert!(unknown.contains("luck") && unknown.contains("scheduling-class"), "{unknown}");
    }

    #[test]
    fn addresses_are_read_or_refused_with_help() {
        assert_eq!(parse("tcp:127.0.0.1:80").unwrap(), Endpoint::tcp("127.0.0.1", 80));
        assert_eq!(parse("tcp:[::1]:0").unwrap(), Endpoint::tcp("::1", 0));
        assert_eq!(parse("iiop://host:2809").unwrap(), Endpoint::tcp("host", 2809));
        assert_eq!(parse("tcp::2809").unwrap(), Endpoint::tcp("", 2809));
        assert_eq!(parse("unix:/run/x").unwrap(), Endpoint::unix("/run/x"));
        assert_eq!(parse("shm:/run/x").unwrap(), Endpoint::shared_memory("/run/x"));
        for wrong in ["", "tcp:", "tcp:h", "tcp:h:99999", "tcp:::1:5", "unix:", "shm:", "ftp:h:1"] {
            assert!(parse(wrong).unwrap_err().to_string().contains("tcp:HOST:PORT"), "{wrong}");
        }
    }

    #[test]
    fn an_unspecified_address_is_never_published() {
        for unspecified in ["0.0.0.0", "::"] {
            let Endpoint::Tcp { host, port } = reachable(&Endpoint::tcp(unspecified, 4000)) else { panic!() };
            assert!(!host.parse::<IpAddr>().unwrap().is_unspecified());
            assert_eq!(port, 4000);
        }
    }

    #[test]
    fn a_published_port_of_zero_is_the_one_listened_at() {
        let published = with_ports(&[Endpoint::tcp("gateway", 0)], &[Endpoint::tcp("10.0.0.1", 4321)]);
        assert_eq!(published, [Endpoint::tcp("gateway", 4321)]);
    }
}
