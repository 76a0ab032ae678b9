//! Oneways of `SyncScope::None` are batched on their connection, within bounds of time and bytes.

use std::time::{Duration, Instant};

use corelane::{CallPolicies, Dispatch, OnewayBatch, Orb, SyncScope};
use corelane_sys::counters;
use corelane_tests::{ProbeRef, Server, serve};

const FOREVER: Duration = Duration::from_secs(3600);

fn held(batch: OnewayBatch) -> (Server, Orb, ProbeRef) {
    // With a thread per connection, the requests of one connection run in order.
    let server = serve(Dispatch::ThreadPerConnection { max_threads: 16 });
    let policies = CallPolicies { sync_scope: Some(SyncScope::None), ..CallPolicies::NONE };
    let orb = Orb::builder().oneway_batch(batch).call_policies(policies).build().unwrap();
    let probe: ProbeRef = orb.string_to_reference(&server.ior).unwrap();
    assert_eq!(probe.noted().unwrap(), 0);
    (server, orb, probe)
}

/// Returns the number of oneways that have run. Another ORB asks for the number, so that the call
/// does not flush the batch.
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
fn two_way_call_flushes_earlier_oneways() {
    let (server, _orb, probe) = held(OnewayBatch { max_bytes: 16 * 1024, max_delay: FOREVER });
    let before = counters::snapshot();
    for _ in 0..50 {
        probe.note(1).unwrap();
    }
    // The first oneway wakes the thread that flushes batches, by one system call.
    assert!((counters::snapshot() - before).syscalls <= 1);
    assert_eq!(noted(&server), 0);
    assert_eq!(probe.noted().unwrap(), 50, "oneways go before the call that follows them on their connection");
    assert_eq!(server.orb.event_counts().protocol_faults, 0);
}

#[test]
fn batch_is_flushed_at_its_size_limit() {
    let (server, _orb, probe) = held(OnewayBatch { max_bytes: 1000, max_delay: FOREVER });
    for _ in 0..1000 {
        probe.note(1).unwrap();
    }
    // A batch has at most 999 bytes, and a message at least 60. So at most 1000 / 60 oneways still
    // wait.
    noted_in_the_end(&server, 1000 - 1000 / 60);
}

#[test]
fn batch_is_flushed_after_its_delay() {
    let (server, _orb, probe) = held(OnewayBatch { max_bytes: 16 * 1024, max_delay: Duration::from_millis(5) });
    for sent in 1..=20 {
        probe.note(1).unwrap();
        noted_in_the_end(&server, sent);
    }
}

#[test]
fn batch_is_flushed_on_request_and_at_the_end_of_the_orb() {
    let (server, orb, probe) = held(OnewayBatch { max_bytes: 16 * 1024, max_delay: FOREVER });
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
fn oneways_above_the_batch_size_are_sent_at_once() {
    let (server, orb, probe) = held(OnewayBatch { max_bytes: 0, max_delay: FOREVER });
    probe.note(1).unwrap();
    noted_in_the_end(&server, 1);
    drop((orb, probe));
    let (server, _orb, probe) = held(OnewayBatch { max_bytes: 10, max_delay: FOREVER });
    probe.note(1).unwrap();
    noted_in_the_end(&server, 1);
}
