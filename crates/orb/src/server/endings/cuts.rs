//! Ends that are cut: to make place, because the peer reads nothing, and because nobody goes on with them.

use std::time::Duration;

use corelane_net::Peer;

use super::run::{Answer, Begin, Close, End, Out, Run, lane, lane_with};
use super::*;
use crate::Orb;
use crate::server::connection::{Loss, Sent};

#[test]
fn who_is_owed_an_answer_does_not_make_place() {
    let (orb, lane) = (Orb::new().unwrap(), lane());
    let places = || (lane.cut_an_ending(orb.core()), lane.budget.connections());
    let mut run = Run::new(&lane, orb.core(), 2);
    // One runs and one waits, then both run, then one does.
    for event in [Begin(0), End, Begin(1), Answer(0), Out(0)] {
        run.happen(event);
        assert_eq!(places(), (false, 1), "{event:?}");
    }
    // Nothing is owed but what the peer does not take.
    run.happen(Out(1));
    assert_eq!(places(), (true, 0));
    assert_eq!((lane.endings.len(), orb.event_counts().ends_cut), (0, 1));
}

#[test]
fn one_whose_request_has_waited_since_it_was_found_does_not_either() {
    let (orb, lane) = (Orb::new().unwrap(), lane());
    let mut run = Run::new(&lane, orb.core(), 1);
    run.happen(End);
    assert!(!lane.cut_an_ending(orb.core()));
    // It runs late.
    run.happen(Begin(0));
    assert!(!lane.cut_an_ending(orb.core()));
    [Answer(0), Out(0)].into_iter().for_each(|event| run.happen(event));
    assert!(lane.cut_an_ending(orb.core()) && run.connection.upgrade().is_none());
}

#[test]
fn one_that_waits_for_its_peer_to_read_makes_place() {
    let (orb, lane) = (Orb::new().unwrap(), lane());
    let mut run = Run::new(&lane, orb.core(), 2);
    // The second request is put off until the first reply is out.
    [Begin(0), End, Answer(0), Begin(1)].into_iter().for_each(|event| run.happen(event));
    assert!(!lane.cut_an_ending(orb.core()), "the first one runs");
    run.happen(Out(0));
    assert_eq!((lane.cut_an_ending(orb.core()), lane.budget.connections()), (true, 0));
}

#[test]
fn a_peer_that_reads_nothing_is_told_of_once_whatever_still_runs() {
    let (orb, lane) = (Orb::new().unwrap(), lane());
    let mut run = Run::new(&lane, orb.core(), 2);
    [Begin(0), Begin(1), End, Answer(1)].into_iter().for_each(|event| run.happen(event));
    let held = || run.connection.upgrade().unwrap().account().held();
    assert!(held() > 0);
    for hours in 2..5 {
        lane.tidy_endings(orb.core(), clock::now() + Duration::from_secs(hours * 3600));
        assert_eq!(orb.event_counts().replies_unread, 1);
    }
    // What is answered now is kept for nobody.
    let before = held();
    assert_eq!((run.answer(0), held()), (Some(Sent::Lost(Loss::Gone)), before));
    [Out(0), Out(1)].into_iter().for_each(|event| run.happen(event));
    assert_eq!((lane.endings.len(), lane.budget.connections()), (0, 0));
}

#[test]
fn one_that_was_cut_is_forgotten_when_its_last_request_is_out() {
    let (orb, lane) = (Orb::new().unwrap(), lane_with(Duration::ZERO));
    let mut run = Run::new(&lane, orb.core(), 2);
    [Begin(0), Begin(1), End, Answer(1)].into_iter().for_each(|event| run.happen(event));
    lane.tidy_endings(orb.core(), clock::now() + Duration::from_secs(1));
    assert_eq!(orb.event_counts().replies_unread, 1);
    [Out(0), Out(1)].into_iter().for_each(|event| run.happen(event));
    assert_eq!((lane.endings.len(), lane.budget.connections()), (0, 0));
    assert!(run.connection.upgrade().is_none());
}

#[test]
fn a_peer_that_says_it_listens_no_more_is_cut_while_its_request_waits() {
    let (orb, lane) = (Orb::new().unwrap(), lane());
    let mut run = Run::new(&lane, orb.core(), 1);
    // As by a CloseConnection.
    let place = run.connection.upgrade().unwrap().place;
    lane.ended(orb.core(), place);
    assert!(run.line.0.lock().closed);
    assert_eq!((lane.endings.len(), lane.budget.connections()), (0, 1), "the request has its descriptor");
    run.happen(Begin(0));
    assert_eq!(run.answer(0), Some(Sent::Lost(Loss::Gone)));
    run.happen(Out(0));
    assert_eq!(lane.budget.connections(), 0);
}

#[test]
fn who_has_not_taken_its_last_replies_is_named_when_the_lane_stops() {
    let (orb, lane) = (Orb::new().unwrap(), lane());
    let mut run = Run::new(&lane, orb.core(), 1);
    [Begin(0), Answer(0), Out(0), End, Close].into_iter().for_each(|event| run.happen(event));
    assert!(lane.is_closing(orb.core()));
    lane.stop();
    assert_eq!(lane.cut_endings(), [Peer::Unknown]);
    assert!(lane.cut_endings().is_empty() && !lane.is_closing(orb.core()));
}
