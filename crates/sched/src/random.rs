//! A generator of pseudo-random numbers for task sets and simulations: splitmix64 (Steele, Lea and
//! Flood 2014).

/// A reproducible sequence of pseudo-random numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Creates the sequence of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns the next number of the sequence.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from `least` to `most`, both included; `least` if `most` is smaller.
    pub fn in_range(&mut self, least: u64, most: u64) -> u64 {
        let width = u128::from(most.saturating_sub(least)) + 1;
        let scaled = (u128::from(self.next_u64()) * width) >> 64;
        least.saturating_add(u64::try_from(scaled).unwrap_or(u64::MAX))
    }

    /// Returns an index into a list of `length` elements; 0 for an empty list.
    pub fn random_index(&mut self, length: usize) -> usize {
        let last = u64::try_from(length).unwrap_or(u64::MAX).saturating_sub(1);
        usize::try_from(self.in_range(0, last)).unwrap_or(0)
    }

    /// Shuffles the elements into a random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, elements: &mut [T]) {
        for last in (1..elements.len()).rev() {
            elements.swap(last, self.random_index(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_sequence() {
        let numbers = |seed| {
            let mut random = Random::new(seed);
            [random.next_u64(), random.next_u64()]
        };
        assert_eq!(numbers(1_234_567), [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
        assert_ne!(numbers(1), numbers(2));
    }

    #[test]
    fn numbers_lie_within_their_bounds_and_reach_both() {
        let mut random = Random::new(3);
        let drawn: Vec<u64> = (0..200).map(|_| random.in_range(5, 7)).collect();
        assert!((5..=7).all(|number| drawn.contains(&number)) && drawn.iter().all(|number| (5..=7).contains(number)));
        assert_eq!(random.in_range(9, 3), 9);
        assert_eq!(random.random_index(0), 0);
        assert!((0..50).map(|_| random.in_range(0, u64::MAX)).any(|number| number > u64::MAX / 2));
    }

    #[test]
    fn a_shuffle_keeps_every_element() {
        let mut elements: Vec<u32> = (0..20).collect();
        Random::new(4).shuffle(&mut elements);
        assert_ne!(elements, (0..20).collect::<Vec<_>>());
        elements.sort_unstable();
        assert_eq!(elements, (0..20).collect::<Vec<_>>());
    }
}
