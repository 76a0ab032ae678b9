//! Entry point for fuzzing: the pure machines of a server's connection, told what octets say. A broken promise is a panic.

use std::time::Duration;

use corelane_sys::clock::Monotonic;

use crate::server::admission::{self, Entry};
use crate::server::arriving::Arriving;
use crate::server::closing::{Closing, DISCARDED, Outcome, Step};
use crate::server::silence;

/// How long a peer has for its part of the end.
const TIME: Duration = Duration::from_secs(4);

/// What happens to a server's connections, one event for each octet: messages arrive, stall or go on; requests are admitted; the
/// connection ends, whatever its transport and its peer do. Seconds pass as the octets say.
pub fn connection_ops(input: &[u8]) {
    let mut now = Monotonic::from_nanos(1);
    let mut queue = Vec::new();
    let mut message = Message { arriving: Arriving::default(), octets: 0, counted: 0, progress: now, excused: false };
    let mut ends = false;
    for octet in input {
        let number = usize::from(octet >> 3);
        match octet & 0x07 {
            0 => now += Duration::from_secs(u64::from(octet >> 3)),
            1 => message.grow(number * 64, now),
            2 => message.end(now),
            3 => {
                message.excused |= number % 2 == 1;
                message.arriving.look(number % 2 == 1, now);
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

/// A message that arrives, and what is to be known of it.
struct Message {
    arriving: Arriving,
    octets: usize,
    /// Octets at its last progress, and when that was.
    counted: usize,
    progress: Monotonic,
    /// It may have waited for a reader since.
    excused: bool,
}

impl Message {
    /// A step of progress is 1,024 octets.
    fn grow(&mut self, octets: usize, now: Monotonic) {
        let begins = self.octets == 0 && octets > 0;
        self.octets += octets;
        if begins || (self.octets > 0 && self.octets >= self.counted + 1024) {
            (self.counted, self.progress, self.excused) = (self.octets, now, false);
        }
        self.arriving.note(self.octets, None, now);
    }

    fn end(&mut self, now: Monotonic) {
        (self.octets, self.counted) = (0, 0);
        self.arriving.note(0, None, now);
    }

    fn check(&self, now: Monotonic) {
        let stalled = self.arriving.stalled_for(now);
        let since = now.since(self.progress);
        assert_eq!(self.arriving.is_any(), self.octets > 0);
        assert!(stalled <= since);
        assert!(self.excused || stalled == if self.octets > 0 { since } else { Duration::ZERO });
    }
}

/// A queue that others share: its bound holds, and so does the share of each connection that stops reading where it is told to.
fn admit(queue: &mut Vec<usize>, connection: usize) {
    const BOUND: usize = 16;
    let own = queue.iter().filter(|of| **of == connection).count();
    let share = admission::share(BOUND);
    let waiting = u32::try_from(own).unwrap_or(u32::MAX);
    if !admission::reads(false, waiting, u32::try_from(share).unwrap_or(0)) {
        assert_eq!(own, share);
        return;
    }
    match admission::request(Some((queue.len(), BOUND))) {
        Entry::Queue => queue.push(connection),
        entry => panic!("four connections with an eighth each cannot fill it: {entry:?}"),
    }
}

/// Who has just spoken makes no room, and who never did goes before all others.
fn ranked(number: usize) {
    let heard = u32::try_from(number).unwrap_or(0);
    let never = silence::rank(silence::NEVER, false, heard + 20, 1);
    assert_eq!(silence::rank(heard.max(1), false, heard.max(1), 2), None);
    assert!(never.is_some() && never < silence::rank(heard.max(1), false, heard + 20, 0));
}

/// An end takes a bounded number of steps and octets, and nothing is sent behind the last message. A peer that goes on taking what
/// waits may have more time, until there is hurry.
fn end(outcomes: &[u8], mut now: Monotonic) {
    let mut patient = outcomes.first().is_some_and(|octet| octet & 0x80 != 0);
    let mut closing = if patient { Closing::while_it_reads(now, TIME) } else { Closing::new(now, TIME) };
    let (mut ended, mut read, mut until) = (false, 0, now + TIME);
    let mut step = closing.look(now);
    for octet in outcomes {
        let outcome = match (step, octet & 0x03) {
            (Step::Send, 0) => Outcome::Sent,
            (Step::Send, 1) => {
                if patient {
                    until = now + TIME;
                }
                Outcome::Took(now)
            }
            (Step::Send, 2) => Outcome::Full,
            (Step::EndWriting, _) => Outcome::WritingEnded,
            (Step::Read, 0) => Outcome::Dry,
            (Step::Read, 1) => Outcome::PeerEnded,
            (Step::Read, 2) => Outcome::Read(usize::from(*octet) << 14),
            (Step::Send | Step::Read, _) => Outcome::Failed,
            (Step::Wait, _) => {
                now += Duration::from_millis(50 * u64::from(octet & 0x7f));
                if octet & 0x80 != 0 {
                    closing.hurry(now, TIME);
                    (patient, until) = (false, until.min(now + TIME));
                }
                step = closing.look(now);
                assert_eq!(now > until, step == Step::Cut);
                continue;
            }
            (Step::Cut | Step::Over, _) => return,
        };
        assert!(!ended || step != Step::Send, "sent behind the end");
        ended |= step == Step::EndWriting;
        if let Outcome::Read(octets) = outcome {
            read += octets;
        }
        step = closing.after(outcome);
        assert!(read <= DISCARDED || step == Step::Cut);
    }
}

#[cfg(test)]
mod tests {
    use super::connection_ops;

    #[test]
    fn machines_keep_their_promises_whatever_happens() {
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
