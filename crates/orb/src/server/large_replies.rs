//! The operations whose replies are large, so that further requests for them may wait for memory.

use std::sync::atomic::{AtomicU64, Ordering};

/// Minimum size in bytes of a reply whose operation is remembered.
pub(crate) const MIN_LARGE_REPLY: usize = 64 * 1024;

/// The operations of a lane whose large replies the transport did not accept as a whole, as hashes
/// of object key and operation. An operation may displace another one.
#[derive(Debug)]
pub(crate) struct LargeReplies([AtomicU64; 64]);

impl LargeReplies {
    pub(crate) fn new() -> Self {
        LargeReplies([const { AtomicU64::new(0) }; 64])
    }

    fn place(&self, hash: u64) -> &AtomicU64 {
        // The lowest bit of each hash is set, so the highest bits choose the place.
        &self.0[(hash >> 58) as usize]
    }

    pub(crate) fn add(&self, hash: u64) {
        self.place(hash).store(hash, Ordering::Relaxed);
    }

    pub(crate) fn contains(&self, hash: u64) -> bool {
        self.place(hash).load(Ordering::Relaxed) == hash
    }

    pub(super) fn clear(&self) {
        self.0.iter().for_each(|place| place.store(0, Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_remembered_until_others_displace_them() {
        let large = LargeReplies::new();
        let hash = |place: u64, rest: u64| place << 58 | rest;
        let (first, second, displacing) = (hash(7, 1), hash(8, 1), hash(7, 3));
        large.add(first);
        large.add(second);
        assert!(large.contains(first) && large.contains(second));
        assert!(!large.contains(hash(9, 1)) && !large.contains(displacing));
        large.add(displacing);
        assert!(!large.contains(first) && large.contains(displacing));
        large.clear();
        assert!(!large.contains(second) && !large.contains(displacing));
    }
}
