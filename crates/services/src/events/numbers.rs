//! Hashing of numbers that the channel assigns. Peers cannot choose these numbers, so the hash
//! needs no protection against keys that were chosen to collide.

use std::hash::{BuildHasherDefault, Hasher};

pub(super) type NumberHashing = BuildHasherDefault<NumberHasher>;

#[derive(Debug, Default)]
pub(super) struct NumberHasher(u64);

impl NumberHasher {
    fn add(&mut self, number: u64) {
        // 2^64 divided by the golden ratio: consecutive numbers are spread over all bits.
        self.0 = (self.0.rotate_left(32) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.add(u64::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        self.add(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.add(number);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::BuildHasher;

    use super::*;

    #[test]
    fn consecutive_numbers_have_different_low_and_high_bits() {
        let hashes: Vec<u64> = (0..1024_u32).map(|number| NumberHashing::default().hash_one((number, 3_u32))).collect();
        let low: HashSet<u64> = hashes.iter().map(|hash| hash & 0xfff).collect();
        let high: HashSet<u64> = hashes.iter().map(|hash| hash >> 52).collect();
        assert!(low.len() > 700 && high.len() > 700, "{} {}", low.len(), high.len());
    }
}
