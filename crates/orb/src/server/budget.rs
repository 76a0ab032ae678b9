//! How much the peers of a lane make it hold: connections, octets of messages that are not whole, and of replies that are not read.
//!
//! Each connection has bounds of its own; this one is for all of them together. Requests that are whole and wait are counted where
//! they wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// What all connections of a lane hold.
#[derive(Debug)]
pub(crate) struct Budget {
    connections: AtomicUsize,
    held: AtomicUsize,
    most: usize,
    /// A thread has been asked to make room.
    asked: AtomicBool,
}

/// What one connection holds. Dropping it gives that back.
#[derive(Debug)]
pub(crate) struct Account {
    budget: Arc<Budget>,
    /// Its connection counts no more.
    has_ended: AtomicBool,
    /// What its connection holds counts no more.
    has_forfeited: AtomicBool,
    input: AtomicUsize,
    output: AtomicUsize,
}

impl Budget {
    /// Of `most` octets.
    pub(crate) fn new(most: usize) -> Arc<Self> {
        let (connections, held) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Budget { connections, held, most, asked: AtomicBool::new(false) })
    }

    /// How many connections there are. One counts until it has [ended](Account::end), or nobody has it any more.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Acquire)
    }

    /// Whether more is held than may be.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.held.load(Ordering::Relaxed) > self.most
    }

    /// Whether a thread is to be asked to make room: true once, until [`answer`](Self::answer).
    pub(crate) fn ask(&self) -> bool {
        self.is_exceeded() && !self.asked.swap(true, Ordering::SeqCst)
    }

    /// A thread makes room now.
    pub(crate) fn answer(&self) {
        self.asked.store(false, Ordering::SeqCst);
    }

    fn change(&self, from: usize, to: usize) {
        // Every octet that is taken away was added before.
        self.held.fetch_add(to.wrapping_sub(from), Ordering::Relaxed);
    }
}

impl Account {
    pub(crate) fn new(budget: Arc<Budget>) -> Self {
        budget.connections.fetch_add(1, Ordering::AcqRel);
        Account {
            budget,
            has_ended: AtomicBool::new(false),
            has_forfeited: AtomicBool::new(false),
            input: AtomicUsize::new(0),
            output: AtomicUsize::new(0),
        }
    }

    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Says how much of unfinished messages is held.
    pub(crate) fn set_input(&self, octets: usize) {
        self.set(&self.input, octets);
    }

    /// Says how much of replies is held.
    pub(crate) fn set_output(&self, octets: usize) {
        self.set(&self.output, octets);
    }

    fn set(&self, part: &AtomicUsize, octets: usize) -> usize {
        let swap = |octets| {
            let before = part.swap(octets, Ordering::SeqCst);
            self.budget.change(before, octets);
            before
        };
        let before = swap(octets);
        if octets != 0 && self.has_forfeited.load(Ordering::SeqCst) {
            swap(0);
        }
        before
    }

    /// What is held.
    pub(crate) fn held(&self) -> usize {
        self.input.load(Ordering::Relaxed).saturating_add(self.output.load(Ordering::Relaxed))
    }

    /// The connection is over, and so is everything that could keep its descriptor for long: it counts no more.
    pub(crate) fn end(&self) {
        if !self.has_ended.swap(true, Ordering::AcqRel) {
            self.budget.connections.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Counts what is held no longer, nor what comes, because its connection ends, and says how much that was. `None` if it was nothing, or
    /// another thread has done so.
    pub(crate) fn forfeit(&self) -> Option<usize> {
        let take = || self.set(&self.input, 0) + self.set(&self.output, 0);
        let octets = take();
        if octets == 0 || self.has_forfeited.swap(true, Ordering::SeqCst) {
            return None;
        }
        // With what came between.
        Some(octets + take())
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.forfeit();
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_connections_hold_adds_up_and_goes_with_them() {
        let budget = Budget::new(100);
        let (first, second) = (Account::new(Arc::clone(&budget)), Account::new(Arc::clone(&budget)));
        first.set_input(60);
        first.set_input(40);
        first.set_output(20);
        second.set_input(40);
        assert_eq!((first.held(), second.held(), budget.connections()), (60, 40, 2));
        assert!(!budget.is_exceeded() && !budget.ask());
        second.set_output(1);
        assert!(budget.ask() && !budget.ask());
        budget.answer();
        assert!(budget.ask());
        assert_eq!(first.forfeit(), Some(60));
        assert!(!budget.is_exceeded());
        // What comes until it has ended is nobody's either.
        first.set_input(70);
        assert_eq!((first.held(), first.forfeit(), budget.is_exceeded()), (0, None, false));
        second.end();
        assert_eq!(budget.connections(), 1);
        drop(second);
        assert_eq!((budget.held.load(Ordering::Relaxed), budget.connections()), (0, 1));
    }
}
