//! Oneways of `SyncScope::None` wait on their connection for others, for so long and so many octets only.

use std::time::{Duration, Instant};

use corelane::{CallPolicies, Dispatch, OnewayBatch, Orb, SyncScope};
use corelane_sys::counters;
use corelane_tests::{ProbeRef, Server, serve};

const FOREVER: Duration = Duration::from_secs(3600);

fn held(batch: OnewayBatch) -> (Server, Orb, ProbeRef) {
    // Requests of one connection run one after the other there.
    let server = serve(Dispatch::ThreadPerConnection { most: 16 });
    let policies = CallPolicies { sync_scope: Some(SyncScope::None), ..CallPolicies::NONE };
    let orb = Orb::builder().oneway_batch(batch).call_policies(policies).build().unwrap();
    let probe: ProbeRef = orb.reference(&server.ior).unwrap();
    assert_eq!(probe.noted().unwrap(), 0);
    (server, orb, probe)
}

/// What the server has noted, asked for through an ORB of its own: that call sends nothing that `held` holds.
fn noted(server: &Server) -> i32 {
    let (_orb, probe) = corelane_tests::client(&server.ior);
    probe.noted().unwrap()
}

fn noted_in_the_end(server: &Server, wanted: i32) {
    let began = Instant::now();
    while noted(server) < wanted {
        assert!(began.elapsed() < Duration::from_secs(60), "{} of {wanted} came", noted(server));
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_call_that_waits_takes_along_what_is_held_before_it() {
    let (server, _orb, probe) = held(OnewayBatch { octets: 16 * 1024, delay: FOREVER });
    let before = counters::snapshot();
    for _ in 0..50 {
        probe.note(1).unwrap();
    }
    // The first tells the thread that looks after what is held.
    assert!((counters::snapshot() - before).syscalls <= 1);
    assert_eq!(noted(&server), 0);
    assert_eq!(probe.noted().unwrap(), 50, "oneways go before the call that follows them on their connection");
    assert_eq!(server.orb.event_counts().protocol_faults, 0);
}

#[test]
fn what_is_held_goes_when_it_is_too_much() {
    let (server, _orb, probe) = held(OnewayBatch { octets: 1000, delay: FOREVER });
    for _ in 0..1000 {
        probe.note(1).unwrap();
    }
    // Less than 1,000 octets are left behind, of messages of 60 octets at least.
    noted_in_the_end(&server, 1000 - 1000 / 60);
}

#[test]
fn what_is_held_goes_when_its_time_is_over() {
    let (server, _orb, probe) = held(OnewayBatch { octets: 16 * 1024, delay: Duration::from_millis(5) });
    for sent in 1..=20 {
        probe.note(1).unwrap();
        noted_in_the_end(&server, sent);
    }
}

#[test]
fn what_is_held_goes_when_it_is_flushed_and_when_the_orb_ends() {
    let (server, orb, probe) = held(OnewayBatch { octets: 16 * 1024, delay: FOREVER });
    probe.note(3).unwrap();
    assert_eq!(noted(&server), 0);
    orb.flush_oneways();
    noted_in_the_end(&server, 3);
    probe.note(4).unwrap();
    assert_eq!(noted(&server), 3);
    drop(probe);
    drop(orb);
    noted_in_the_end(&server, 7);
}

#[test]
fn nothing_is_held_where_nothing_may_be_or_a_message_is_too_large() {
    let (server, orb, probe) = held(OnewayBatch { octets: 0, delay: FOREVER });
    probe.note(1).unwrap();
    noted_in_the_end(&server, 1);
    drop((orb, probe));
    let (server, _orb, probe) = held(OnewayBatch { octets: 10, delay: FOREVER });
    probe.note(1).unwrap();
    noted_in_the_end(&server, 1);
}
