//! Clients without Real-time CORBA call objects of real-time POAs. Requests must run at the server-declared or the
//! default priority, on SCHED_FIFO threads of the lane with this priority.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use corelane::Orb;
use corelane::poa::PoaPolicies;
use corelane::rt::{
    LaneConfig, LanesConfig, PriorityModel, RtPolicies, Scheduling, ThreadpoolConfig, ThreadpoolId, served_by,
};
use corelane_interop::client_server_run::TrafficCheck;
use corelane_interop::peers::Orb::{self as Peer, JacOrb, OmniOrb};
use corelane_interop::peers::{Peers, Variant};
use corelane_interop::process;
use corelane_interop::report::Report;
use corelane_interop::skips::Skips;
use corelane_interop::suite::servants::{self, SuiteServant};
use corelane_sys::lock::{LockScope, Mutex};

/// The native priorities are 2 and 50 by the default mapping.
const LOW: i16 = 335;
const HIGH: i16 = 16384;
/// Enough for callbacks nested six deep.
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

/// Returns the native priorities and the lanes of the requests.
fn served(client: Peer, pool: fn(&Orb) -> ThreadpoolId, model: Option<PriorityModel>) -> BTreeSet<(u8, usize)> {
    let files = Path::new(env!("CARGO_TARGET_TMPDIR")).join("interop");
    let peers = Peers::build(&files.join("peers")).unwrap_or_else(|trouble| panic!("{trouble}"));
    let orb = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
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

    let folder = files.join(format!("priorities-{}", client.name()));
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
