//! Clients without Real-time CORBA call objects of real-time POAs. Requests must run at the
//! server-declared or the default priority, on SCHED_FIFO threads.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use corelane::poa::PoaPolicies;
use corelane::rt::{
    LaneConfig, LanesConfig, PriorityModel, RtPolicies, Scheduling, ThreadpoolConfig, ThreadpoolId, served_by,
};
use corelane::{IoClass, Orb, OrbBuilder, Transports};
use corelane_interop::client_server_run::TrafficCheck;
use corelane_interop::peers::Orb::{self as Peer, JacOrb, OmniOrb};
use corelane_interop::peers::{Peers, Variant};
use corelane_interop::process;
use corelane_interop::report::Report;
use corelane_interop::skips::Skips;
use corelane_interop::suite::servants::{self, SuiteServant};
use corelane_net::Transport;
use corelane_rio::examination::steering_refusal;
use corelane_rio::feature_level::FeatureLevel;
use corelane_rio::{RioConfig, RioTransport};
use corelane_sys::bpf::AttachMode;
use corelane_sys::lock::{LockScope, Mutex};
use corelane_sys::process as own_process;

// The default mapping gives `LOW` and `HIGH` the native priorities 2 and 50.
const LOW: i16 = 335;
const HIGH: i16 = 16384;
const THREADS: u32 = 12;

fn lanes(orb: &Orb) -> ThreadpoolId {
    let lane = |priority| LaneConfig::default().priority(priority).static_threads(THREADS);
    let config = LanesConfig::default().lanes([lane(LOW), lane(HIGH)]);
    orb.real_time().create_threadpool_with_lanes(&config).unwrap()
}

fn no_lanes(orb: &Orb) -> ThreadpoolId {
    let config = ThreadpoolConfig::default().default_priority(LOW).static_threads(THREADS);
    orb.real_time().create_threadpool(&config).unwrap()
}

fn served(client: Peer, pool: fn(&Orb) -> ThreadpoolId, model: Option<PriorityModel>) -> BTreeSet<(u8, usize)> {
    served_by_orb(peers(), client, Orb::builder(), client.name(), pool, model)
}

fn files() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("interop")
}

/// Builds the peers. Must be called outside the network namespaces of tests, because the builds may
/// need the network.
fn peers() -> &'static Peers {
    Peers::build(&files().join("peers")).unwrap_or_else(|trouble| panic!("{trouble}"))
}

fn served_by_orb(
    peers: &Peers,
    client: Peer,
    builder: OrbBuilder,
    name: &str,
    pool: fn(&Orb) -> ThreadpoolId,
    model: Option<PriorityModel>,
) -> BTreeSet<(u8, usize)> {
    let orb = builder.listen("tcp:127.0.0.1:0").build().unwrap();
    let policies = RtPolicies {
        priority_model: model.map(|model| (model, HIGH)),
        threadpool: Some(pool(&orb)),
        ..RtPolicies::default()
    };
    let root = orb.root_poa();
    let poa = root.create_rt_poa("served", Some(root.manager()), PoaPolicies::default(), &policies).unwrap();
    let seen = Arc::new(Mutex::new("seen", LockScope::Orb, BTreeSet::new()));
    let list = Arc::clone(&seen);
    let suite = SuiteServant::new(&poa, orb.shutdown_handle()).unwrap().with_call_hook(move || {
        let by = served_by();
        let native = if let Some(Scheduling::Fifo(native)) = by.scheduling { native } else { 0 };
        list.lock().insert((native, by.lane));
    });
    let reference = poa.activate(&servants::suite_servant(suite)).unwrap();
    root.manager().activate().unwrap();

    let folder = files().join(format!("priorities-{name}"));
    std::fs::create_dir_all(&folder).unwrap();
    let mut command = peers.client_command(client, Variant::GIOP_1_2, 0);
    let skips = Skips::for_pair("corelane", client.name(), Variant::GIOP_1_2.name).unwrap();
    command.arg(reference.to_string()).args(["--threads", "2", "--meet", "0", "--big", "10000", "--rounds", "3"]);
    command.args(skips.client_options());
    let finished = process::run(command, "client", &folder, Duration::from_secs(120)).unwrap();
    let report = Report::parse(&finished.output).unwrap_or_else(|trouble| panic!("{trouble}\n{}", finished.output));
    let found = skips.differences(&report, TrafficCheck::Unchecked);
    assert!(found.is_empty(), "{}", found.join("\n"));
    assert!(report.passed.len() >= 100, "only {} checks ran", report.passed.len());
    assert_eq!(orb.event_counts().thread_schedulings_refused, 0, "SCHED_FIFO is not permitted here");
    std::mem::take(&mut *seen.lock())
}

fn at_every_model(client: Peer) {
    // The client may use the endpoint of any lane in the reference.
    for model in [PriorityModel::ServerDeclared, PriorityModel::ClientPropagated] {
        assert_eq!(served(client, lanes, Some(model)), BTreeSet::from([(50, 1)]), "lanes, {model:?}");
        assert_eq!(served(client, no_lanes, Some(model)), BTreeSet::from([(50, 0)]), "no lanes, {model:?}");
    }
    assert_eq!(served(client, no_lanes, None), BTreeSet::from([(2, 0)]), "the pool's default priority");
}

#[test]
fn omniorb_is_served_at_the_declared_or_the_default_priority() {
    at_every_model(OmniOrb);
}

#[test]
fn jacorb_is_served_at_the_declared_or_the_default_priority() {
    at_every_model(JacOrb);
}

fn lanes_in_class(orb: &Orb, class: IoClass) -> ThreadpoolId {
    let lane = |priority| LaneConfig::default().priority(priority).static_threads(THREADS);
    let config = LanesConfig::default().lanes([lane(LOW), lane(HIGH).io_class(class)]);
    orb.real_time().create_threadpool_with_lanes(&config).unwrap()
}

fn with_budget(orb: &Orb) -> ThreadpoolId {
    lanes_in_class(orb, IoClass::Guaranteed { bytes: 20_000, period: Duration::from_millis(1) })
}

fn in_order_of_priority(orb: &Orb) -> ThreadpoolId {
    lanes_in_class(orb, IoClass::Priority)
}

#[test]
fn omniorb_is_served_by_a_lane_with_a_budget_of_bytes() {
    let rio: Arc<dyn Transport> = Arc::new(RioTransport::new(RioConfig::default()));
    let builder = Orb::builder().transports(Transports::new(vec![rio]));
    let model = Some(PriorityModel::ServerDeclared);
    assert_eq!(served_by_orb(peers(), OmniOrb, builder, "budget", with_budget, model), BTreeSet::from([(50, 1)]));
}

/// The test runs in a new network namespace. On its loopback interface, frames are steered to the
/// streams of lanes.
#[test]
fn omniorb_is_served_by_a_lane_whose_frames_are_sorted() {
    let lacks = |name| format!("the process lacks {name}");
    if let Some(refusal) = steering_refusal().or_else(|| own_process::missing_namespace_capability().map(lacks)) {
        return println!("not run: {refusal}");
    }
    let peers = peers();
    let run = move || {
        own_process::enter_new_network_namespace().unwrap();
        assert!(std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
        let config = RioConfig::for_interface("lo").attach_mode(AttachMode::Generic);
        let rio = Arc::new(RioTransport::new(config.max_connections(1_000)));
        assert_eq!(rio.level(), FeatureLevel::StreamSteering, "{}", rio.level_limit_reason());
        let transport: Arc<dyn Transport> = rio.clone();
        let builder = Orb::builder().transports(Transports::new(vec![transport]));
        let model = Some(PriorityModel::ServerDeclared);
        let served = served_by_orb(peers, OmniOrb, builder, "sorted", in_order_of_priority, model);
        assert_eq!(served, BTreeSet::from([(50, 1)]));
        rio.frame_counts().unwrap()
    };
    let counts = std::thread::spawn(run).join().unwrap();
    // Each of the checks takes at least one frame.
    assert!(counts.queued_frames >= 100 && counts.undeliverable_frames == 0, "{counts:?}");
}
