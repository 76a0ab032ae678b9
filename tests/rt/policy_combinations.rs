//! The 72 combinations of bands, pools, protocols and private connections (docs/real-time.md).

use std::path::PathBuf;
use std::sync::Arc;

use corelane::poa::PoaPolicies;
use corelane::rt::{
    LaneConfig, LanesConfig, LinearMapping, NativePriorityRange, Priority, PriorityMapping, PriorityModel, Protocol,
    RtClientPolicies, RtConfig, RtPolicies, SchedulingClass, TcpProperties, ThreadpoolConfig, ThreadpoolId,
    UnixProperties,
};
use corelane::{Endpoint, ObjectRef, Orb, SystemExceptionKind as Kind};
use corelane_net::{TcpTransport, Transport, Transports, UnixTransport};
use corelane_sys::lock::{LockScope, Mutex};
use corelane_tests::real_time::{Reporter, UpcallReport, call_who, decode_reference, fifo_orb};
use corelane_tests::stream_wrapper::wrap_streams;
use corelane_wire::exception::minor::OMG;
use corelane_wire::exception::minor::inv_policy::IRRECONCILABLE;

const LANES: [i16; 3] = [5000, 10_000, 15_000];
const BANDS: [(i16, i16); 3] = [(2500, 7500), (7501, 12_500), (12_501, 20_000)];
/// A priority with a band but no lane, a priority with both, and a priority with neither.
const PRIORITIES: [i16; 3] = [6000, 10_000, 22_500];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bands {
    None,
    Server,
    Client,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pool {
    Default,
    Plain,
    Laned,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocols {
    Any,
    Tcp,
    Unix,
    TcpFirst,
}

#[derive(Clone, Copy, Debug)]
struct Combination {
    bands: Bands,
    pool: Pool,
    protocols: Protocols,
    private: bool,
}

/// The index of the lane and the priority of the upcall, or the kind and the minor code of the
/// exception.
type Expected = Result<(usize, i16), (Kind, u32)>;

impl Combination {
    fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for bands in [Bands::None, Bands::Server, Bands::Client] {
            for pool in [Pool::Default, Pool::Plain, Pool::Laned] {
                for protocols in [Protocols::Any, Protocols::Tcp, Protocols::Unix, Protocols::TcpFirst] {
                    for private in [false, true] {
                        all.push(Combination { bands, pool, protocols, private });
                    }
                }
            }
        }
        all
    }

    fn expected(self, priority: i16) -> Expected {
        let band = BANDS.iter().position(|(low, high)| (*low..=*high).contains(&priority));
        let lane = LANES.iter().position(|lane| *lane == priority);
        match (self.bands, self.pool, band, lane) {
            (Bands::Server | Bands::Client, _, None, _) => Err((Kind::InvPolicy, IRRECONCILABLE)),
            // Band and lane have the same index.
            (Bands::Server | Bands::Client, Pool::Laned, Some(band), _) => Ok((band, LANES[band])),
            (Bands::None, Pool::Laned, _, Some(lane)) => Ok((lane, priority)),
            (Bands::None, Pool::Laned, _, None) => Err((Kind::Transient, OMG | 2)),
            (_, Pool::Default | Pool::Plain, ..) => Ok((0, priority)),
        }
    }

    /// Returns true if calls use the Unix socket, which clients prefer if there is no protocol
    /// policy.
    fn goes_by_unix(self) -> bool {
        matches!(self.protocols, Protocols::Any | Protocols::Unix)
    }

    fn shares(self, class: SchedulingClass, one: i16, other: i16) -> bool {
        let band = |priority| BANDS.iter().position(|(low, high)| (*low..=*high).contains(&priority));
        let same = if self.bands == Bands::None { class == SchedulingClass::Fair } else { band(one) == band(other) };
        self.pool != Pool::Laned && same
    }
}

fn native(class: SchedulingClass, priority: i16) -> u8 {
    let priority = Priority::new(priority).unwrap();
    match class {
        SchedulingClass::Fair => 0,
        _ => u8::try_from(LinearMapping(NativePriorityRange::FIXED_PRIORITIES).to_native(priority).unwrap()).unwrap(),
    }
}

struct Server {
    class: SchedulingClass,
    orb: Orb,
    plain: ThreadpoolId,
    laned: ThreadpoolId,
}

impl Server {
    fn start(name: &str, class: SchedulingClass) -> Self {
        let path: PathBuf = std::env::temp_dir().join(format!("corelane-{name}-{}", std::process::id()));
        let config = RtConfig::default().scheduling(class);
        let orb = Orb::builder()
            .real_time(config)
            .listen("tcp:127.0.0.1:0")
            .listen(format!("unix:{}", path.display()))
            .build()
            .unwrap();
        orb.root_poa().manager().activate().unwrap();
        let plain = orb.real_time().create_threadpool(&ThreadpoolConfig::default()).unwrap();
        let lanes = LANES.map(|priority| LaneConfig::default().priority(priority));
        let lanes = LanesConfig::default().lanes(lanes);
        let laned = orb.real_time().create_threadpool_with_lanes(&lanes).unwrap();
        Server { class, orb, plain, laned }
    }

    fn object(&self, combination: Combination) -> ObjectRef {
        let policies = RtPolicies {
            priority_model: Some((PriorityModel::ClientPropagated, 5000)),
            threadpool: match combination.pool {
                Pool::Default => None,
                Pool::Plain => Some(self.plain),
                Pool::Laned => Some(self.laned),
            },
            priority_bands: (combination.bands == Bands::Server).then(|| BANDS.to_vec()),
            ..RtPolicies::default()
        };
        let root = self.orb.root_poa();
        let name = format!("{combination:?}");
        let poa = root.create_rt_poa(&name, Some(root.manager()), PoaPolicies::default(), &policies).unwrap();
        poa.activate(&Reporter::new(&self.orb).servant()).unwrap()
    }
}

struct Client {
    orb: Orb,
    made: Arc<Mutex<Vec<Endpoint>>>,
}

impl Client {
    fn start(class: SchedulingClass) -> Self {
        let made = Arc::new(Mutex::new("connections made", LockScope::Orb, Vec::new()));
        let noting = |inner: Arc<dyn Transport>| {
            let made = Arc::clone(&made);
            wrap_streams(inner, move |stream, made_to| {
                made.lock().extend(made_to.cloned());
                stream
            })
        };
        let transports: Vec<Arc<dyn Transport>> =
            vec![noting(Arc::new(TcpTransport::new())), noting(Arc::new(UnixTransport))];
        let config = RtConfig::default().scheduling(class);
        let orb = Orb::builder().real_time(config).transports(Transports::new(transports)).build().unwrap();
        Client { orb, made }
    }

    fn reference(&self, text: &str, combination: Combination) -> ObjectRef {
        let (tcp, unix) = (Protocol::Tcp(TcpProperties::default()), Protocol::Unix(UnixProperties::default()));
        let policies = RtClientPolicies {
            priority_bands: (combination.bands == Bands::Client).then(|| BANDS.to_vec()),
            private_connection: combination.private,
            client_protocols: match combination.protocols {
                Protocols::Any => Vec::new(),
                Protocols::Tcp => vec![tcp],
                Protocols::Unix => vec![unix],
                Protocols::TcpFirst => vec![tcp, unix],
            },
            ..RtClientPolicies::default()
        };
        self.orb.string_to_object(text).unwrap().unwrap().with_rt_policies(&policies).unwrap()
    }

    fn ask(&self, object: &ObjectRef, priority: i16) -> Result<UpcallReport, (Kind, u32)> {
        self.orb.real_time().current().unwrap().set_priority(priority).unwrap();
        call_who(object).map_err(|exception| (exception.kind(), exception.minor()))
    }
}

fn check(server: &Server, combination: Combination) {
    let object = server.object(combination);
    let text = object.to_string();
    let client = Client::start(server.class);
    let [first, second] = [(); 2].map(|()| client.reference(&text, combination));
    let mut served: Vec<(i16, u64)> = Vec::new();
    for priority in PRIORITIES {
        let what = format!("{combination:?} at {priority}");
        let answer = client.ask(&first, priority);
        let found = answer.clone().map(|who| (who.lane as usize, who.priority));
        assert_eq!(found, combination.expected(priority), "{what}");
        let Ok(who) = answer else { continue };
        assert!(!who.handed_over, "{what}");
        let pool = match combination.pool {
            Pool::Default => 0,
            Pool::Plain => server.plain.number(),
            Pool::Laned => server.laned.number(),
        };
        assert_eq!(who.pool, pool, "{what}");
        assert_eq!(who.native, native(server.class, who.priority), "{what}");
        // A second reference uses the same connection only if the connection is not private.
        assert_eq!(client.ask(&first, priority).unwrap().connection, who.connection, "{what}");
        let others = client.ask(&second, priority).unwrap().connection;
        assert_eq!(others == who.connection, !combination.private, "{what}");
        for (other, connection) in &served {
            assert_eq!(
                *connection == who.connection,
                combination.shares(server.class, priority, *other),
                "{what} and {other}"
            );
        }
        served.push((priority, who.connection));
    }
    let made = client.made.lock();
    let is_unix = |endpoint: &Endpoint| matches!(endpoint, Endpoint::Unix { .. });
    assert!(!made.is_empty() && made.iter().all(|one| is_unix(one) == combination.goes_by_unix()), "{combination:?}");
}

fn check_all(name: &str, class: SchedulingClass) {
    let server = Server::start(name, class);
    let all = Combination::all();
    assert_eq!(all.len(), 72);
    for combination in all {
        check(&server, combination);
    }
    assert_eq!(server.orb.event_counts().requests_handed_over, 0);
}

#[test]
fn every_policy_combination_works_in_the_ordinary_class() {
    check_all("combinations", SchedulingClass::Fair);
}

#[test]
fn every_policy_combination_works_at_fixed_priorities() {
    drop(fifo_orb());
    std::thread::spawn(|| check_all("native", SchedulingClass::Fifo)).join().unwrap();
}

#[test]
fn references_have_the_policies_of_the_combination() {
    let server = Server::start("references", SchedulingClass::Fair);
    let mut combination =
        Combination { bands: Bands::None, pool: Pool::Default, protocols: Protocols::Any, private: false };
    for (bands, policies) in [(Bands::None, vec![40]), (Bands::Server, vec![45, 40])] {
        for (pool, lanes) in [(Pool::Default, vec![-1]), (Pool::Plain, vec![-1]), (Pool::Laned, LANES.to_vec())] {
            (combination.bands, combination.pool) = (bands, pool);
            let said = decode_reference(&server.object(combination));
            assert_eq!(said.policies, policies, "{combination:?}");
            assert_eq!(said.lanes.iter().map(|lane| lane.1).collect::<Vec<_>>(), lanes, "{combination:?}");
            assert_eq!(said.profiles.len(), 2, "{combination:?}");
        }
    }
}
