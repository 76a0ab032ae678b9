//! Tests that run the events of a drain in every possible order, each order in one thread on a lane
//! without threads.

use std::collections::VecDeque;

use super::harness::{Again, Answer, Begin, Close, DrainEvent, DrainHarness, End, Hold, Out, Read, lane};
use crate::Orb;

fn orders(rows: &mut [VecDeque<DrainEvent>], begun: &mut Vec<DrainEvent>, each: &mut dyn FnMut(&[DrainEvent])) {
    if rows.iter().all(VecDeque::is_empty) {
        return each(begun);
    }
    for row in 0..rows.len() {
        if let Some(event) = rows[row].pop_front() {
            begun.push(event);
            orders(rows, begun, each);
            begun.pop();
            rows[row].push_front(event);
        }
    }
}

/// Runs a drain in every order of the events that keeps the order within each row. Returns the
/// number of orders.
fn check(rows: &[&[DrainEvent]], requests: usize) -> usize {
    let orb = Orb::new().unwrap();
    let mut rows: Vec<VecDeque<DrainEvent>> = rows.iter().map(|row| row.iter().copied().collect()).collect();
    let mut count = 0;
    orders(&mut rows, &mut Vec::new(), &mut |order| {
        struct PrintOnPanic<'o>(&'o [DrainEvent]);
        impl Drop for PrintOnPanic<'_> {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    eprintln!("in the order {:?}", self.0);
                }
            }
        }
        let _told = PrintOnPanic(order);
        let lane = lane();
        let mut run = DrainHarness::new(&lane, orb.core().adapter(), requests);
        order.iter().for_each(|event| run.happen(*event));
        run.end(requests);
        count += 1;
    });
    count
}

#[test]
fn half_closed_peer_receives_all_replies_in_every_order() {
    let (first, second) = ([Begin(0), Answer(0), Out(0)], [Begin(1), Answer(1), Out(1)]);
    assert_eq!(check(&[&first, &second, &[End], &[Read]], 2), 1120);
}

#[test]
fn half_closed_peer_receives_all_replies_while_the_lane_closes() {
    let (first, second) = ([Begin(0), Answer(0), Out(0)], [Begin(1), Answer(1), Out(1)]);
    assert_eq!(check(&[&first, &second, &[End], &[Read], &[Close]], 2), 10_080);
}

#[test]
fn parked_request_is_answered_in_every_order() {
    let held = [Begin(0), Hold(0), Again(0), Answer(0), Out(0)];
    assert_eq!(check(&[&held, &[End], &[Read]], 1), 42);
    assert_eq!(check(&[&held, &[End], &[Read], &[Close]], 1), 336);
    let other = [Begin(1), Answer(1), Out(1)];
    assert_eq!(check(&[&held, &other, &[End], &[Read]], 2), 5_040);
}
