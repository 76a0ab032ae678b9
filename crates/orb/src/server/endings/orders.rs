//! Every order in which the parts of an end can come: the peer's end is seen, requests begin to run, are held, answer and are done, the
//! peer reads, the lane closes. Each order runs in one thread over the lane itself, and without time.

use std::collections::VecDeque;

use super::run::{Act, Again, Answer, Begin, Close, End, Hold, Out, Read, Run, lane};
use crate::Orb;

/// Every order in which the events of these rows can come, those of a row in their own.
fn orders(rows: &mut [VecDeque<Act>], begun: &mut Vec<Act>, each: &mut dyn FnMut(&[Act])) {
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

fn check(rows: &[&[Act]], requests: usize) -> usize {
    let orb = Orb::new().unwrap();
    let mut rows: Vec<VecDeque<Act>> = rows.iter().map(|row| row.iter().copied().collect()).collect();
    let mut count = 0;
    orders(&mut rows, &mut Vec::new(), &mut |order| {
        /// Says which order it was.
        struct Told<'o>(&'o [Act]);
        impl Drop for Told<'_> {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    eprintln!("in the order {:?}", self.0);
                }
            }
        }
        let _told = Told(order);
        let lane = lane();
        let mut run = Run::new(&lane, orb.core(), requests);
        order.iter().for_each(|event| run.happen(*event));
        run.end(requests);
        count += 1;
    });
    count
}

#[test]
fn a_peer_that_has_ended_has_its_answers_in_every_order() {
    let (first, second) = ([Begin(0), Answer(0), Out(0)], [Begin(1), Answer(1), Out(1)]);
    assert_eq!(check(&[&first, &second, &[End], &[Read]], 2), 1120);
}

#[test]
fn so_it_has_when_the_lane_closes_meanwhile() {
    let (first, second) = ([Begin(0), Answer(0), Out(0)], [Begin(1), Answer(1), Out(1)]);
    assert_eq!(check(&[&first, &second, &[End], &[Read], &[Close]], 2), 10_080);
}

#[test]
fn a_request_that_is_held_is_answered_in_every_order() {
    let held = [Begin(0), Hold(0), Again(0), Answer(0), Out(0)];
    assert_eq!(check(&[&held, &[End], &[Read]], 1), 42);
    assert_eq!(check(&[&held, &[End], &[Read], &[Close]], 1), 336);
    let other = [Begin(1), Answer(1), Out(1)];
    assert_eq!(check(&[&held, &other, &[End], &[Read]], 2), 5_040);
}
