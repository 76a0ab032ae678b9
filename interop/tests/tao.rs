//! Priorities to and from TAO, live: `cargo xtask interop --tao PREFIX` runs it against an installation that the user has. TAO is no package, so that
//! without one these are ignored; the bytes of a real TAO are tested everywhere (tests/tests/tao_vectors.rs).
//!
//! Each side has lanes at the same priorities, which are native ones of SCHED_FIFO on both, and calls the other at each of them: a request runs
//! in the lane of the priority at which it was made.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use corelane::rt::{Direct, LaneConfig, LanesConfig, NativeRange, PriorityModel, RtConfig, RtCurrent, RtPolicies};
use corelane::{Orb, SystemException};
use corelane_interop::process::{self, Server};
use corelane_interop::tao::lanes::{Asked, AskedRef};

/// Of the lanes, the default one first.
const PRIORITIES: [i16; 3] = [10, 20, 30];

/// How long TAO's client may take.
const LIFE: Duration = Duration::from_secs(60);

fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("tao").join(name);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// TAO's program, built from the installation that CORELANE_TAO names.
fn tao(name: &str, mode: &str) -> (PathBuf, Command) {
    let prefix = std::env::var("CORELANE_TAO")
        .expect("CORELANE_TAO names no installation: `cargo xtask interop --tao PREFIX` does");
    let (files, out) = (folder(name), folder(name).join("built"));
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/tao");
    let mut make = Command::new("make");
    make.arg("-C").arg(&sources).arg(format!("OUT={}", out.display())).arg(format!("TAO={prefix}"));
    let made = process::run(make, "make", &files, Duration::from_secs(600)).unwrap();
    assert!(made.status.success(), "TAO's peer does not build:\n{}", made.output);
    let mut command = Command::new(out.join("peer"));
    command.arg(mode).args(PRIORITIES.map(|priority| priority.to_string()));
    command.arg("-ORBSvcConf").arg(sources.join("svc.conf"));
    (files, command)
}

fn real_time() -> RtConfig {
    RtConfig { mapping: Arc::new(Direct(NativeRange::FIXED)), ..RtConfig::default() }
}

struct Here(RtCurrent);

impl Asked for Here {
    fn priority(&self) -> Result<i16, SystemException> {
        self.0.the_priority()
    }

    fn shutdown(&self) -> Result<(), SystemException> {
        Ok(())
    }
}

#[test]
#[ignore = "needs an installation of TAO: cargo xtask interop --tao PREFIX"]
fn our_requests_run_in_the_lanes_of_taos_server() {
    let (files, mut command) = tao("serves", "--serve");
    command.args(["-ORBListenEndpoints", "iiop://127.0.0.1:0"]);
    let server = Server::start(command, &files).unwrap();
    let orb = Orb::builder().real_time(real_time()).build().unwrap();
    let reference = std::fs::read_to_string(server.reference()).unwrap();
    let asked: AskedRef = orb.reference(reference.trim()).unwrap();
    let current = orb.real_time().current().unwrap();
    for priority in PRIORITIES {
        current.set_priority(priority).unwrap();
        assert_eq!(asked.priority().unwrap(), priority);
    }
    asked.shutdown().unwrap();
    server.ends_by_itself().unwrap();
}

#[test]
#[ignore = "needs an installation of TAO: cargo xtask interop --tao PREFIX"]
fn taos_requests_run_in_our_lanes() {
    let orb = Orb::builder().real_time(real_time()).listen("tcp:127.0.0.1:0").build().unwrap();
    let lanes = PRIORITIES.map(|priority| LaneConfig { priority, ..LaneConfig::default() }).to_vec();
    let pool = orb.real_time().create_threadpool_with_lanes(&LanesConfig { lanes, ..LanesConfig::default() }).unwrap();
    let policies = RtPolicies {
        priority_model: Some((PriorityModel::ClientPropagated, PRIORITIES[0])),
        threadpool: Some(pool),
        ..RtPolicies::default()
    };
    let root = orb.root_poa();
    let poa = root.create_rt_poa("lanes", Some(root.manager()), Default::default(), &policies).unwrap();
    let reference = poa.activate(&Here(orb.real_time().current().unwrap()).servant()).unwrap().to_string();
    root.manager().activate().unwrap();
    let (files, mut command) = tao("calls", "--call");
    command.arg(reference);
    let called = process::run(command, "client", &files, LIFE).unwrap();
    assert!(called.status.success(), "{}", called.output);
    let said: Vec<i16> = called.output.lines().filter_map(|line| line.parse().ok()).collect();
    assert_eq!(said, PRIORITIES, "{}", called.output);
    orb.shutdown(true).unwrap();
}
