//! Hashes of names and of context ids. The seed is secret, so a client cannot choose names that
//! collide.

/// Returns the SipHash-1-3 of id and kind.
///
/// The words that are hashed determine both texts: their lengths come first, and each text is
/// filled up with zeros.
pub(super) fn hash_name(seed: u64, id: &[u8], kind: &[u8]) -> u64 {
    let mut state = SipState::new(seed);
    // Names arrive in messages shorter than 2^32 octets.
    state.add((id.len() as u64) << 32 | kind.len() as u64);
    let words = 1 + state.add_text(id) + state.add_text(kind);
    state.finish(words)
}

/// Returns a hash for an id that the server has chosen. Different ids have different hashes.
pub(super) fn hash_number(seed: u64, number: u64) -> u64 {
    // The last step of SplitMix64, which is a bijection.
    let mixed = (number ^ seed).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The state of SipHash-1-3 (Aumasson and Bernstein, 2012) over words of eight octets.
struct SipState(u64, u64, u64, u64);

impl SipState {
    fn new(seed: u64) -> Self {
        SipState(
            seed ^ 0x736f_6d65_7073_6575,
            0x646f_7261_6e64_6f6d,
            seed ^ 0x6c79_6765_6e65_7261,
            0x7465_6462_7974_6573,
        )
    }

    #[inline]
    fn round(&mut self) {
        self.0 = self.0.wrapping_add(self.1);
        self.1 = self.1.rotate_left(13) ^ self.0;
        self.0 = self.0.rotate_left(32);
        self.2 = self.2.wrapping_add(self.3);
        self.3 = self.3.rotate_left(16) ^ self.2;
        self.0 = self.0.wrapping_add(self.3);
        self.3 = self.3.rotate_left(21) ^ self.0;
        self.2 = self.2.wrapping_add(self.1);
        self.1 = self.1.rotate_left(17) ^ self.2;
        self.2 = self.2.rotate_left(32);
    }

    #[inline]
    fn add(&mut self, word: u64) {
        self.3 ^= word;
        self.round();
        self.0 ^= word;
    }

    /// Adds a text, filled up with zeros to whole words. Returns the number of words.
    #[inline]
    fn add_text(&mut self, text: &[u8]) -> u64 {
        let (words, rest) = text.as_chunks();
        for word in words {
            self.add(u64::from_le_bytes(*word));
        }
        if rest.is_empty() {
            return words.len() as u64;
        }
        // Shifts instead of a copy: a word that is read just after single octets of it were written
        // makes the processor wait.
        self.add(rest.iter().rev().fold(0, |word, octet| word << 8 | u64::from(*octet)));
        words.len() as u64 + 1
    }

    fn finish(mut self, words: u64) -> u64 {
        // The last word has the number of octets, modulo 256.
        self.add(words << 59);
        self.2 ^= 0xff;
        for _ in 0..3 {
            self.round();
        }
        self.0 ^ self.1 ^ self.2 ^ self.3
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::{DefaultHasher, Hasher as _};

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The reference is the standard library's hasher, which is SipHash-1-3 with the key 0.
        #[test]
        fn names_have_the_hash_that_the_standard_library_computes(
            id in prop::collection::vec(any::<u8>(), 0..70), kind in prop::collection::vec(any::<u8>(), 0..70)
        ) {
            let mut octets = ((id.len() as u64) << 32 | kind.len() as u64).to_le_bytes().to_vec();
            for text in [&id, &kind] {
                octets.extend_from_slice(text);
                octets.resize(octets.len().next_multiple_of(8), 0);
            }
            let mut expected = DefaultHasher::new();
            expected.write(&octets);
            prop_assert_eq!(hash_name(0, &id, &kind), expected.finish());
        }
    }

    #[test]
    fn names_of_equal_octets_have_different_hashes() {
        let names: [(&[u8], &[u8]); 7] =
            [(b"", b""), (b"\0", b""), (b"", b"\0"), (b"ab", b"c"), (b"a", b"bc"), (b"abc", b""), (b"abc\0", b"")];
        let hashes: HashSet<u64> = names.iter().map(|(id, kind)| hash_name(5, id, kind)).collect();
        assert_eq!(hashes.len(), names.len());
        assert_ne!(hash_name(5, b"a", b""), hash_name(6, b"a", b""));
    }

    #[test]
    fn consecutive_numbers_are_spread() {
        for seed in [0, 1, u64::MAX] {
            let first: HashSet<u64> = (0..64).map(|number| hash_number(seed, number) >> 60).collect();
            assert!(first.len() > 12, "{first:?}");
        }
    }
}
