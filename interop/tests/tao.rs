//! Priorities in calls to and from TAO: `cargo xtask interop --tao PREFIX` runs these tests with an
//! installed TAO.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use corelane::poa::Poa;
use corelane::rt::{
    DirectMapping, LaneConfig, LanesConfig, NativePriorityRange, PriorityModel, RtConfig, RtCurrent, RtPolicies,
    ThreadpoolConfig, ThreadpoolId,
};
use corelane::{Orb, SystemException, SystemExceptionKind as Kind};
use corelane_interop::client_server_run::TrafficCheck;
use corelane_interop::peers::Variant;
use corelane_interop::process::{self, Server};
use corelane_interop::report::Report;
use corelane_interop::skips::Skips;
use corelane_interop::tao::lanes::{Asked, AskedRef};

/// The priorities of the lanes. The first is the default priority.
const PRIORITIES: [i16; 3] = [10, 20, 30];

const BANDS: [(i16, i16); 3] = [(5, 15), (16, 25), (26, 35)];

const LIFE: Duration = Duration::from_secs(60);

/// Maximum time of the build. TAO's IDL compiler generates much code for the suite.
const BUILD: Duration = Duration::from_secs(1800);

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tao").join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/tao")
}

fn programs() -> &'static Path {
    static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        let prefix = std::env::var("CORELANE_TAO")
            .expect("CORELANE_TAO does not name an installation: use `cargo xtask interop --tao PREFIX`");
        let out = folder("built");
        let mut make = Command::new("make");
        make.arg("-C").arg(sources()).arg(format!("OUT={}", out.display())).arg(format!("TAO={prefix}"));
        let made = process::run(make, "make", &out, BUILD).unwrap();
        assert!(made.status.success(), "TAO's peer does not build:\n{}", made.output);
        out
    })
}

fn tao(words: &[&str]) -> Command {
    let mut command = Command::new(programs().join("peer"));
    command.args(words).args(PRIORITIES.map(|priority| priority.to_string()));
    command.arg("-ORBSvcConf").arg(sources().join("svc.conf"));
    // TAO does not derive a lane's endpoint from the ORB's endpoint.
    command.args(["-ORBListenEndpoints", "iiop://127.0.0.1:0"]);
    command.args(["-ORBLaneListenEndpoints", "*:*", "iiop://127.0.0.1:0"]);
    command
}

struct TaoServer {
    server: Server,
    references: Vec<String>,
}

impl TaoServer {
    fn start(name: &str, words: &[&str]) -> Self {
        let server = Server::start(tao(&[&["--serve"], words].concat()), &folder(name)).unwrap();
        let references = std::fs::read_to_string(server.reference()).unwrap();
        TaoServer { server, references: references.lines().map(str::to_owned).collect() }
    }

    fn seen_by(&self, orb: &Orb) -> Vec<AskedRef> {
        self.references.iter().map(|reference| orb.string_to_reference(reference).unwrap()).collect()
    }

    fn end(self, asked: &AskedRef) {
        asked.shutdown().unwrap();
        self.server.wait_for_exit().unwrap();
    }
}

fn real_time() -> RtConfig {
    RtConfig::default().priority_mapping(Arc::new(DirectMapping(NativePriorityRange::FIXED_PRIORITIES)))
}

fn client() -> Orb {
    Orb::builder().real_time(real_time()).listen("tcp:127.0.0.1:0").build().unwrap()
}

struct Here(RtCurrent);

impl Asked for Here {
    fn priority(&self) -> Result<i16, SystemException> {
        self.0.the_priority()
    }

    fn relay(&self, other: Option<&AskedRef>) -> Result<i16, SystemException> {
        other.expect("the client is an object").priority()
    }

    fn shutdown(&self) -> Result<(), SystemException> {
        Ok(())
    }
}

fn lanes(orb: &Orb) -> ThreadpoolId {
    let lanes = PRIORITIES.map(|priority| LaneConfig::default().priority(priority)).to_vec();
    orb.real_time().create_threadpool_with_lanes(&LanesConfig::default().lanes(lanes)).unwrap()
}

fn no_lanes(orb: &Orb) -> ThreadpoolId {
    let config = ThreadpoolConfig::default().default_priority(PRIORITIES[0]).static_threads(2);
    orb.real_time().create_threadpool(&config).unwrap()
}

fn poa(orb: &Orb, model: PriorityModel, pool: ThreadpoolId, bands: Option<Vec<(i16, i16)>>) -> Poa {
    let policies = RtPolicies {
        priority_model: Some((model, PRIORITIES[0])),
        threadpool: Some(pool),
        priority_bands: bands,
        ..RtPolicies::default()
    };
    let root = orb.root_poa();
    root.manager().activate().unwrap();
    root.create_rt_poa("asked", Some(root.manager()), Default::default(), &policies).unwrap()
}

fn here(orb: &Orb) -> corelane::Servant {
    Asked::servant(Here(orb.real_time().current().unwrap()))
}

fn called(name: &str, words: &[&str], reference: &str) -> Vec<String> {
    let called = process::run(tao(&[&["--call", reference], words].concat()), "client", &folder(name), LIFE).unwrap();
    assert!(called.status.success(), "{}", called.output);
    called.output.lines().map(str::to_owned).collect()
}

fn own() -> Vec<String> {
    PRIORITIES.map(|priority| priority.to_string()).to_vec()
}

macro_rules! live {
    ($($(#[$doc:meta])* fn $name:ident() $body:block)*) => {$(
        $(#[$doc])*
        #[test]
        #[ignore = "needs an installation of TAO: cargo xtask interop --tao PREFIX"]
        fn $name() $body
    )*};
}

live! {
    fn the_suite_passes_at_taos_server() {
        let files = folder("suite");
        let mut command = Command::new(programs().join("server"));
        command.args(["--life", "240", "-ORBListenEndpoints", "iiop://127.0.0.1:0"]);
        let server = Server::start(command, &files).unwrap();
        let skips = Skips::for_pair("tao", "corelane", Variant::GIOP_1_2.name).unwrap();
        let mut client = Command::new(env!("CARGO_BIN_EXE_corelane-interop-client"));
        client.args(["--listen", "tcp:127.0.0.1:0", "--shutdown"]).arg(server.reference()).args(skips.client_options());
        let finished = process::run(client, "client", &files, Duration::from_secs(180)).unwrap();
        let report = Report::parse(&finished.output).unwrap_or_else(|trouble| panic!("{trouble}\n{}", finished.output));
        let found = skips.differences(&report, TrafficCheck::Unchecked);
        assert!(found.is_empty(), "{}", found.join("\n"));
        assert!(report.passed.len() >= 200, "only {} checks ran", report.passed.len());
        server.wait_for_exit().unwrap();
    }

    fn our_requests_run_in_the_lanes_of_taos_server() {
        let server = TaoServer::start("serves", &[]);
        let orb = client();
        let asked = &server.seen_by(&orb)[0];
        let current = orb.real_time().current().unwrap();
        for priority in PRIORITIES {
            current.set_priority(priority).unwrap();
            assert_eq!(asked.priority().unwrap(), priority);
        }
        server.end(asked);
    }

    fn our_requests_in_bands_run_in_taos_pool_without_lanes() {
        let server = TaoServer::start("serves-bands", &["--pool", "plain", "--bands", "5-15,16-25,26-35"]);
        let orb = client();
        let asked = &server.seen_by(&orb)[0];
        let current = orb.real_time().current().unwrap();
        for priority in BANDS.iter().flat_map(|(low, high)| [*low, *high]) {
            current.set_priority(priority).unwrap();
            assert_eq!(asked.priority(), Ok(priority));
        }
        server.end(asked);
    }

    fn our_requests_run_at_their_priority_in_taos_pool_without_lanes() {
        let server = TaoServer::start("serves-plain", &["--pool", "plain"]);
        let orb = client();
        let asked = &server.seen_by(&orb)[0];
        let current = orb.real_time().current().unwrap();
        for priority in [10, 11, 19, 20, 30, 31] {
            current.set_priority(priority).unwrap();
            assert_eq!(asked.priority().unwrap(), priority);
        }
        server.end(asked);
    }

    fn our_requests_run_at_the_priority_that_taos_object_declares() {
        for pool in ["lanes", "plain"] {
            let server = TaoServer::start(&format!("declares-{pool}"), &["--model", "server", "--pool", pool]);
            let orb = client();
            let objects = server.seen_by(&orb);
            assert_eq!(objects.len(), PRIORITIES.len());
            let current = orb.real_time().current().unwrap();
            for at in [1, 10, 20, 40] {
                current.set_priority(at).unwrap();
                for (asked, declared) in objects.iter().zip(PRIORITIES) {
                    assert_eq!(asked.priority().unwrap(), declared, "{pool}, called at {at}");
                }
            }
            server.end(&objects[0]);
        }
    }

    fn taos_server_calls_back_at_the_priority_of_its_lane() {
        let server = TaoServer::start("relays", &[]);
        let orb = client();
        let mine = poa(&orb, PriorityModel::ClientPropagated, lanes(&orb), None).activate(&here(&orb)).unwrap();
        let mine = AskedRef::narrow(&mine).unwrap().unwrap();
        let asked = &server.seen_by(&orb)[0];
        let current = orb.real_time().current().unwrap();
        for priority in PRIORITIES {
            current.set_priority(priority).unwrap();
            assert_eq!(asked.relay(Some(&mine)).unwrap(), priority);
        }
        server.end(asked);
        orb.shutdown(true).unwrap();
    }

    fn a_tao_server_that_was_killed_is_found_again() {
        let server = TaoServer::start("killed", &[]);
        let orb = client();
        let current = orb.real_time().current().unwrap();
        let asked = server.seen_by(&orb).remove(0);
        assert_eq!(asked.priority().unwrap(), PRIORITIES[0]);
        drop(server);
        for priority in PRIORITIES {
            current.set_priority(priority).unwrap();
            let raised = asked.priority().unwrap_err().kind();
            assert!(matches!(raised, Kind::Transient | Kind::CommFailure), "{raised:?}");
        }
        let server = TaoServer::start("killed", &[]);
        let asked = &server.seen_by(&orb)[0];
        for priority in PRIORITIES {
            current.set_priority(priority).unwrap();
            assert_eq!(asked.priority().unwrap(), priority);
        }
        server.end(asked);
    }

    fn taos_requests_run_in_our_lanes() {
        let orb = client();
        let poa = poa(&orb, PriorityModel::ClientPropagated, lanes(&orb), None);
        let reference = poa.activate(&here(&orb)).unwrap().to_string();
        assert_eq!(called("calls", &[], &reference), own());
        orb.shutdown(true).unwrap();
    }

    fn taos_requests_run_at_their_priority_in_our_pool_without_lanes() {
        let orb = client();
        let poa = poa(&orb, PriorityModel::ClientPropagated, no_lanes(&orb), None);
        let reference = poa.activate(&here(&orb)).unwrap().to_string();
        assert_eq!(called("calls-plain", &["11", "19", "31"], &reference), [&["11", "19", "31"].map(str::to_owned)[..], &own()].concat());
        orb.shutdown(true).unwrap();
    }

    fn taos_requests_run_at_the_priority_that_our_object_declares() {
        for pool in [lanes, no_lanes] {
            let orb = client();
            let poa = poa(&orb, PriorityModel::ServerDeclared, pool(&orb), None);
            for declared in PRIORITIES {
                let id = poa.activate_object_with_priority(&here(&orb), declared).unwrap();
                let reference = poa.id_to_reference(&id).unwrap().to_string();
                assert_eq!(called("declared", &[], &reference), vec![declared.to_string(); PRIORITIES.len()]);
            }
            orb.shutdown(true).unwrap();
        }
    }

    fn requests_of_tao_run_in_corelanes_lanes_with_bands() {
        let orb = client();
        let poa = poa(&orb, PriorityModel::ClientPropagated, lanes(&orb), Some(BANDS.to_vec()));
        let reference = poa.activate(&here(&orb)).unwrap().to_string();
        assert_eq!(called("calls-bands", &[], &reference), own());
        orb.shutdown(true).unwrap();
    }

    fn taos_requests_in_bands_run_in_our_pool_without_lanes() {
        let orb = client();
        let poa = poa(&orb, PriorityModel::ClientPropagated, no_lanes(&orb), Some(BANDS.to_vec()));
        let reference = poa.activate(&here(&orb)).unwrap().to_string();
        let edges = ["5", "15", "16", "25", "26", "35"];
        assert_eq!(called("calls-edges", &edges, &reference), [&edges.map(str::to_owned)[..], &own()].concat());
        orb.shutdown(true).unwrap();
    }

    fn requests_of_tao_at_the_edges_of_bands_run_in_corelanes_lanes() {
        let orb = client();
        let poa = poa(&orb, PriorityModel::ClientPropagated, lanes(&orb), Some(BANDS.to_vec()));
        let reference = poa.activate(&here(&orb)).unwrap().to_string();
        let answers = called("calls-between", &["5", "15", "16", "25", "26", "35", "36"], &reference);
        assert_eq!(answers[..7], ["10", "10", "20", "20", "30", "30", "INV_POLICY"]);
        assert_eq!(answers[7..], own());
        orb.shutdown(true).unwrap();
    }

    fn client_of_tao_refuses_priorities_that_no_lane_has() {
        let orb = client();
        let poa = poa(&orb, PriorityModel::ClientPropagated, lanes(&orb), None);
        let reference = poa.activate(&here(&orb)).unwrap().to_string();
        let answers = called("calls-outside", &["5", "15", "31"], &reference);
        assert_eq!(answers[..3], ["TRANSIENT"; 3]);
        assert_eq!(answers[3..], own());
        orb.shutdown(true).unwrap();
    }

    fn our_nested_requests_run_in_the_lanes_of_taos_client() {
        let orb = client();
        let poa = poa(&orb, PriorityModel::ClientPropagated, lanes(&orb), None);
        let reference = poa.activate(&here(&orb)).unwrap().to_string();
        assert_eq!(called("relayed", &["--relay"], &reference), own());
        orb.shutdown(true).unwrap();
    }
}
