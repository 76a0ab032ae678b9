//! The entry point for fuzzing a server connection's pure state machines.

use std::time::Duration;

use corelane_sys::clock::Monotonic;

use crate::server::admission::{self, RequestAdmission};
use crate::server::connection::eviction_rank;
use crate::server::connection::graceful_close::{CloseAction, CloseOutcome, GracefulClose, MAX_DISCARDED};
use crate::server::connection::stall::StallDetector;

const TIME: Duration = Duration::from_secs(4);

/// Feeds the events that `input` encodes to the state machines of a server's connections.
pub fn connection_ops(input: &[u8]) {
    let mut now = Monotonic::from_nanos(1);
    let mut queue = Vec::new();
    let mut message =
        Message { stall_detector: StallDetector::default(), octets: 0, counted: 0, progress: now, excused: false };
    let mut ends = false;
    for octet in input {
        let number = usize::from(octet >> 3);
        match octet & 0x07 {
            0 => now += Duration::from_secs(u64::from(octet >> 3)),
            1 => message.grow(number * 64, now),
            2 => message.end(now),
            3 => {
                message.excused |= number % 2 == 1;
                message.stall_detector.check(number % 2 == 1, now);
            }
            4 => admit(&mut queue, number % 4),
            5 => drop((!queue.is_empty()).then(|| queue.remove(number % queue.len()))),
            6 => ranked(number),
            _ => ends = true,
        }
        message.check(now);
    }
    if ends {
        end(input, now);
    }
}

struct Message {
    stall_detector: StallDetector,
    octets: usize,
    counted: usize,
    progress: Monotonic,
    excused: bool,
}

impl Message {
    fn grow(&mut self, octets: usize, now: Monotonic) {
        let begins = self.octets == 0 && octets > 0;
        self.octets += octets;
        if begins || (self.octets > 0 && self.octets >= self.counted + 1024) {
            (self.counted, self.progress, self.excused) = (self.octets, now, false);
        }
        self.stall_detector.record(self.octets, None, now);
    }

    fn end(&mut self, now: Monotonic) {
        (self.octets, self.counted) = (0, 0);
        self.stall_detector.record(0, None, now);
    }

    fn check(&self, now: Monotonic) {
        let stalled = self.stall_detector.stalled_for(now);
        let since = now.since(self.progress);
        assert_eq!(self.stall_detector.is_receiving(), self.octets > 0);
        assert!(stalled <= since);
        assert!(self.excused || stalled == if self.octets > 0 { since } else { Duration::ZERO });
    }
}

fn admit(queue: &mut Vec<usize>, connection: usize) {
    const BOUND: usize = 16;
    let own = queue.iter().filter(|of| **of == connection).count();
    let share = admission::fair_share(BOUND);
    let waiting = u32::try_from(own).unwrap_or(u32::MAX);
    if !admission::may_read(false, waiting, u32::try_from(share).unwrap_or(0)) {
        assert_eq!(own, share);
        return;
    }
    match admission::admit_request(Some((queue.len(), BOUND))) {
        RequestAdmission::Queue => queue.push(connection),
        entry => panic!("four connections with a share of an eighth each filled the queue: {entry:?}"),
    }
}

/// Checks that a connection which has just sent a message is not evicted, and that a connection
/// which never sent a message is evicted first.
fn ranked(number: usize) {
    let heard = u32::try_from(number).unwrap_or(0);
    let never = eviction_rank::eviction_rank(eviction_rank::NO_MESSAGE, false, heard + 20, 1);
    assert_eq!(eviction_rank::eviction_rank(heard.max(1), false, heard.max(1), 2), None);
    assert!(never.is_some() && never < eviction_rank::eviction_rank(heard.max(1), false, heard + 20, 0));
}

fn end(outcomes: &[u8], mut now: Monotonic) {
    let mut patient = outcomes.first().is_some_and(|octet| octet & 0x80 != 0);
    let mut closing = if patient { GracefulClose::while_peer_reads(now, TIME) } else { GracefulClose::new(now, TIME) };
    let (mut ended, mut read, mut until) = (false, 0, now + TIME);
    let mut step = closing.next_action(now);
    for octet in outcomes {
        let outcome = match (step, octet & 0x03) {
            (CloseAction::Send, 0) => CloseOutcome::Sent,
            (CloseAction::Send, 1) => {
                if patient {
                    until = now + TIME;
                }
                CloseOutcome::PeerRead(now)
            }
            (CloseAction::Send, 2) => CloseOutcome::Full,
            (CloseAction::EndWriting, _) => CloseOutcome::WritingEnded,
            (CloseAction::Read, 0) => CloseOutcome::NothingToRead,
            (CloseAction::Read, 1) => CloseOutcome::PeerEnded,
            (CloseAction::Read, 2) => CloseOutcome::Read(usize::from(*octet) << 14),
            (CloseAction::Send | CloseAction::Read, _) => CloseOutcome::Failed,
            (CloseAction::Wait, _) => {
                now += Duration::from_millis(50 * u64::from(octet & 0x7f));
                if octet & 0x80 != 0 {
                    closing.limit_close_time(now, TIME);
                    (patient, until) = (false, until.min(now + TIME));
                }
                step = closing.next_action(now);
                assert_eq!(now > until, step == CloseAction::Abort);
                continue;
            }
            (CloseAction::Abort | CloseAction::Done, _) => return,
        };
        assert!(!ended || step != CloseAction::Send, "output was sent after writing had ended");
        ended |= step == CloseAction::EndWriting;
        if let CloseOutcome::Read(octets) = outcome {
            read += octets;
        }
        step = closing.after(outcome);
        assert!(read <= MAX_DISCARDED || step == CloseAction::Abort);
    }
}

#[cfg(test)]
mod tests {
    use super::connection_ops;

    #[test]
    fn state_machines_keep_their_invariants() {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        for _ in 0..2000 {
            let input: Vec<u8> = (0..64)
                .map(|_| {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    state.to_le_bytes()[2]
                })
                .collect();
            connection_ops(&input);
        }
    }
}
