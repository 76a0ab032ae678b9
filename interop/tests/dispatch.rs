//! Concurrent callers of omniORB, JacORB and Corelane with every dispatch architecture of
//! Corelane's server.

use std::path::Path;

use corelane_interop::client_server_run::{self, ExtraOptions, TrafficCheck};
use corelane_interop::peers::Orb::{self, Corelane, JacOrb, OmniOrb};
use corelane_interop::peers::Variant;

fn prove(client: Orb, name: &str, server: &[&str], more: &[&str]) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("interop");
    let mut options = vec!["--threads", "8", "--slow", "50", "--big", "100000", "--rounds", "3"];
    options.extend(more);
    let extra = ExtraOptions { name, server, client: &options, corbaloc: None };
    match client_server_run::run_with(&folder, Corelane, client, Variant::GIOP_1_2, TrafficCheck::Unchecked, extra) {
        Ok(report) => {
            for caller in (0..8).map(|number| format!("thread {number}")) {
                assert!(report.passed.contains(&caller), "`{caller}` did not run: {:?}", report.passed);
            }
            assert_eq!(report.passed.iter().any(|check| check == "meet"), more != ALONE, "{:?}", report.passed);
            assert!(report.passed.len() >= 120, "only {} checks ran", report.passed.len());
        }
        Err(trouble) => panic!("{trouble}"),
    }
}

/// Leaves out the check `meet`, which needs a server that runs requests of one connection at the
/// same time.
const ALONE: &[&str] = &["--meet", "0"];

#[test]
fn jacorb_calls_a_reactive_server() {
    prove(JacOrb, "-reactive", &["--dispatch", "reactive"], ALONE);
}

#[test]
fn jacorb_calls_a_server_with_a_thread_per_connection() {
    prove(JacOrb, "-thread-per-connection", &["--dispatch", "thread-per-connection"], ALONE);
}

#[test]
fn jacorb_calls_a_leader_followers_server() {
    prove(JacOrb, "-leader-followers", &["--dispatch", "leader-followers"], &[]);
}

#[test]
fn jacorb_calls_a_leader_followers_server_whose_few_threads_serve_while_they_wait() {
    let server = ["--dispatch", "leader-followers", "--pool", "2", "--nested", "31"];
    prove(JacOrb, "-leader-followers-2", &server, ALONE);
}

#[test]
fn jacorb_calls_a_half_sync_server() {
    prove(JacOrb, "-half-sync", &["--dispatch", "half-sync"], &[]);
}

#[test]
fn jacorb_calls_a_half_sync_server_whose_few_threads_serve_while_they_wait() {
    let server = ["--dispatch", "half-sync", "--pool", "2", "--nested", "31"];
    prove(JacOrb, "-half-sync-2", &server, ALONE);
}

#[test]
fn omniorb_calls_every_dispatch_architecture() {
    for dispatch in ["reactive", "thread-per-connection", "leader-followers", "half-sync"] {
        prove(OmniOrb, &format!("-{dispatch}"), &["--dispatch", dispatch], ALONE);
    }
}

#[test]
fn clients_of_every_orb_call_two_task_references() {
    for client in [OmniOrb, JacOrb, Corelane] {
        prove(client, "-task", &["--task"], ALONE);
    }
}

#[test]
fn corelane_calls_every_dispatch_architecture() {
    for dispatch in ["reactive", "thread-per-connection", "leader-followers", "half-sync"] {
        prove(Corelane, &format!("-{dispatch}"), &["--dispatch", dispatch], ALONE);
    }
}
