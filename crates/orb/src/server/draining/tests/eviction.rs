//! Tests of evictions, time-outs and aborts during a drain.

use std::time::Duration;

use corelane_net::Peer;

use super::harness::{Answer, Begin, Close, DrainHarness, End, Out, lane, lane_with};
use super::*;
use crate::Orb;
use crate::server::connection::{SendError, SendResult};

#[test]
fn connection_with_pending_reply_is_not_evicted() {
    let (orb, lane) = (Orb::new().unwrap(), lane());
    let places = || (lane.evict_oldest_draining(orb.core().adapter()), lane.memory_budget.connections());
    let mut run = DrainHarness::new(&lane, orb.core().adapter(), 2);
    for event in [Begin(0), End, Begin(1), Answer(0), Out(0)] {
        run.happen(event);
        assert_eq!(places(), (false, 1), "{event:?}");
    }
    run.happen(Out(1));
    assert_eq!(places(), (true, 0));
    assert_eq!((lane.draining.len(), orb.event_counts().draining_connections_evicted), (0, 1));
}

#[test]
fn connection_with_queued_request_is_not_evicted() {
    let (orb, lane) = (Orb::new().unwrap(), lane());
    let mut run = DrainHarness::new(&lane, orb.core().adapter(), 1);
    run.happen(End);
    assert!(!lane.evict_oldest_draining(orb.core().adapter()));
    run.happen(Begin(0));
    assert!(!lane.evict_oldest_draining(orb.core().adapter()));
    [Answer(0), Out(0)].into_iter().for_each(|event| run.happen(event));
    assert!(lane.evict_oldest_draining(orb.core().adapter()) && run.connection.upgrade().is_none());
}

#[test]
fn connection_that_only_waits_for_its_peer_is_evicted() {
    let (orb, lane) = (Orb::new().unwrap(), lane());
    let mut run = DrainHarness::new(&lane, orb.core().adapter(), 2);
    [Begin(0), End, Answer(0), Begin(1)].into_iter().for_each(|event| run.happen(event));
    assert!(
        !lane.evict_oldest_draining(orb.core().adapter()),
        "a connection with a running request must not be evicted"
    );
    run.happen(Out(0));
    assert_eq!((lane.evict_oldest_draining(orb.core().adapter()), lane.memory_budget.connections()), (true, 0));
}

#[test]
fn write_timeout_is_reported_once_while_a_request_runs() {
    let (orb, lane) = (Orb::new().unwrap(), lane());
    let mut run = DrainHarness::new(&lane, orb.core().adapter(), 2);
    [Begin(0), Begin(1), End, Answer(1)].into_iter().for_each(|event| run.happen(event));
    let held = || run.connection.upgrade().unwrap().memory_use().held_bytes();
    assert!(held() > 0);
    for hours in 2..5 {
        lane.sweep_draining(orb.core().adapter(), clock::now() + Duration::from_secs(hours * 3600));
        assert_eq!(orb.event_counts().writes_timed_out, 1);
    }
    let before = held();
    assert_eq!((run.answer(0), held()), (Some(SendResult::Failed(SendError::ConnectionLost)), before));
    [Out(0), Out(1)].into_iter().for_each(|event| run.happen(event));
    assert_eq!((lane.draining.len(), lane.memory_budget.connections()), (0, 0));
}

#[test]
fn evicted_connection_is_removed_when_its_last_request_ends() {
    let (orb, lane) = (Orb::new().unwrap(), lane_with(Duration::ZERO));
    let mut run = DrainHarness::new(&lane, orb.core().adapter(), 2);
    [Begin(0), Begin(1), End, Answer(1)].into_iter().for_each(|event| run.happen(event));
    lane.sweep_draining(orb.core().adapter(), clock::now() + Duration::from_secs(1));
    assert_eq!(orb.event_counts().writes_timed_out, 1);
    [Out(0), Out(1)].into_iter().for_each(|event| run.happen(event));
    assert_eq!((lane.draining.len(), lane.memory_budget.connections()), (0, 0));
    assert!(run.connection.upgrade().is_none());
}

#[test]
fn close_connection_closes_while_a_request_waits() {
    let (orb, lane) = (Orb::new().unwrap(), lane());
    let mut run = DrainHarness::new(&lane, orb.core().adapter(), 1);
    let handle = run.connection.upgrade().unwrap().handle;
    lane.retire_connection(orb.core().adapter(), handle);
    assert!(run.stream.0.lock().closed);
    assert_eq!(
        (lane.draining.len(), lane.memory_budget.connections()),
        (0, 1),
        "the connection must count while its waiting request keeps the descriptor open"
    );
    run.happen(Begin(0));
    assert_eq!(run.answer(0), Some(SendResult::Failed(SendError::ConnectionLost)));
    run.happen(Out(0));
    assert_eq!(lane.memory_budget.connections(), 0);
}

#[test]
fn peer_with_unread_replies_is_reported_when_the_lane_stops() {
    let (orb, lane) = (Orb::new().unwrap(), lane());
    let mut run = DrainHarness::new(&lane, orb.core().adapter(), 1);
    [Begin(0), Answer(0), Out(0), End, Close].into_iter().for_each(|event| run.happen(event));
    assert!(lane.poll_all_draining(orb.core().adapter()));
    lane.stop();
    assert_eq!(lane.abort_draining(), [Peer::Unknown]);
    assert!(lane.abort_draining().is_empty() && !lane.poll_all_draining(orb.core().adapter()));
}

/// After each 1 MiB, the thread must put the connection on the ready list, so that it can read
/// other connections.
#[test]
fn rest_of_a_large_message_is_discarded_in_turns() {
    let (orb, lane) = (Orb::new().unwrap(), lane());
    let mut run = DrainHarness::new(&lane, orb.core().adapter(), 0);
    let connection = run.connection.upgrade().unwrap();
    connection.queue_last_message_and_discard(b"", 8 << 20, clock::now(), Duration::from_secs(3600));
    run.stream.0.lock().incoming.extend(vec![0; 3 << 20]);
    lane.retire_connection(orb.core().adapter(), connection.handle);
    let left = || run.stream.0.lock().incoming.len();
    assert_eq!((left(), lane.has_ready()), (2 << 20, true));
    lane.poll_draining(orb.core().adapter(), connection.handle);
    assert_eq!(left(), 1 << 20);
    run.work();
    assert_eq!((run.stream.0.lock().incoming.len(), lane.has_ready()), (0, false));
}

/// Regression test: a second attempt to close an idle connection reset the state that the first had
/// set.
#[test]
fn second_idle_close_does_not_undo_the_first() {
    let (orb, lane) = (Orb::new().unwrap(), lane());
    let run = DrainHarness::new(&lane, orb.core().adapter(), 0);
    let connection = run.connection.upgrade().unwrap();
    assert!(lane.close_idle(orb.core().adapter(), &connection, true) && connection.is_closed_idle());
    assert!(!lane.close_idle(orb.core().adapter(), &connection, false) && connection.is_closed_idle());
    assert_eq!(orb.event_counts().idle_connections_closed, 1);
}
