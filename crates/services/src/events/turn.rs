//! The turn of a queue: the right to send to its consumer.
//!
//! A thread that routes a set to an empty queue takes the turn, sends the set without waiting, and
//! gives the turn back without a lock. The queue's sender has the turn while it is awake.
//!
//! Invariant: while the turn is free, the queue is empty and its sender waits.

use std::sync::atomic::{AtomicU8, Ordering};

/// No thread has the turn.
const FREE: u8 = 0;
/// A thread that routes has the turn.
const TAKEN: u8 = 1;
/// The sender has the turn, or gets it from the thread that has it: sets are in the queue.
const OF_SENDER: u8 = 2;

/// The turn of a queue: [`FREE`], [`TAKEN`] or [`OF_SENDER`]. All changes except
/// [`give_back`](Self::give_back) are made under the channel's lock. `give_back` releases the
/// thread's actions on the consumer's connection; `take` and `call_sender` acquire them.
#[derive(Debug)]
pub(super) struct SendTurn(AtomicU8);

impl SendTurn {
    /// Creates the turn of a new queue, whose sender has it first.
    pub(super) fn new() -> Self {
        Self(AtomicU8::new(OF_SENDER))
    }

    /// Takes the turn if it is free, and returns true. Otherwise returns false: the sender has the
    /// turn, or gets it from the routing thread that has it.
    pub(super) fn take(&self) -> bool {
        self.claim(TAKEN)
    }

    /// Gives the turn to the sender if the turn is free, and returns true. Otherwise returns false:
    /// the sender has the turn, or gets it from the routing thread that has it.
    pub(super) fn call_sender(&self) -> bool {
        self.claim(OF_SENDER)
    }

    fn claim(&self, new: u8) -> bool {
        let mut found = FREE;
        loop {
            let next = if found == FREE { new } else { OF_SENDER };
            match self.0.compare_exchange_weak(found, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(before) => return before == FREE,
                Err(other) => found = other,
            }
        }
    }

    /// Gives the turn back that [`take`](Self::take) has taken. Returns false if sets have been
    /// queued since then: the turn has passed to the sender, and the caller must wake the sender.
    #[must_use]
    pub(super) fn give_back(&self) -> bool {
        self.0.compare_exchange(TAKEN, FREE, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    pub(super) fn pass_to_sender(&self) {
        self.0.store(OF_SENDER, Ordering::Release);
    }

    pub(super) fn free(&self) {
        self.0.store(FREE, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turn_goes_to_the_sender_if_sets_are_queued_meanwhile() {
        let turn = SendTurn::new();
        assert!(!turn.take(), "the sender has the turn first");
        turn.free();
        assert!(turn.take() && turn.give_back());
        assert!(turn.take() && !turn.take() && !turn.give_back());
        assert!(!turn.take() && !turn.call_sender(), "the sender has the turn");
        turn.free();
        assert!(turn.call_sender() && !turn.take());
        turn.free();
        assert!(turn.take());
        turn.pass_to_sender();
        assert!(!turn.take());
    }
}
