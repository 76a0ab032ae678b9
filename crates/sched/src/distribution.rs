//! A distribution of times in a fixed amount of memory.

use crate::task::Nanos;

/// Number of buckets for each power of two. A bucket's upper bound is at most a quarter above its
/// lower bound.
const BUCKETS_PER_POWER: u64 = 4;

/// Number of buckets for all times of 64 bits: a bucket for each time below 4 ns, then four for
/// each power of two.
const BUCKETS: usize = 252;

/// Times as a histogram, with the exact number, minimum, mean and maximum. The size does not depend
/// on the number of times.
#[derive(Clone, PartialEq, Eq)]
pub struct TimeDistribution {
    count: u64,
    sum: u128,
    min: Nanos,
    max: Nanos,
    buckets: [u64; BUCKETS],
}

impl Default for TimeDistribution {
    fn default() -> Self {
        TimeDistribution { count: 0, sum: 0, min: Nanos::MAX, max: 0, buckets: [0; BUCKETS] }
    }
}

impl std::fmt::Debug for TimeDistribution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TimeDistribution")
            .field("count", &self.count)
            .field("min", &self.min())
            .field("mean", &self.mean())
            .field("max", &self.max())
            .finish_non_exhaustive()
    }
}

fn bucket(time: Nanos) -> usize {
    let power = time.checked_ilog2().unwrap_or(0);
    let index = match power.checked_sub(2) {
        None => time,
        // The two bits below the highest bit choose the bucket within the power of two.
        Some(shift) => u64::from(shift + 1) * BUCKETS_PER_POWER + ((time >> shift) & (BUCKETS_PER_POWER - 1)),
    };
    usize::try_from(index).unwrap_or(BUCKETS - 1).min(BUCKETS - 1)
}

fn upper_bound(bucket: usize) -> Nanos {
    let bucket = u64::try_from(bucket).unwrap_or(u64::MAX);
    if bucket < BUCKETS_PER_POWER {
        return bucket;
    }
    let (shift, part) = (bucket / BUCKETS_PER_POWER - 1, bucket % BUCKETS_PER_POWER);
    // The shifted value is at most 2^64, and the subtraction brings it into range.
    let bound = u128::from(BUCKETS_PER_POWER + part + 1) << shift;
    u64::try_from(bound - 1).unwrap_or(Nanos::MAX)
}

impl TimeDistribution {
    /// Adds a time.
    pub fn add(&mut self, time: Nanos) {
        self.count = self.count.saturating_add(1);
        self.sum = self.sum.saturating_add(u128::from(time));
        self.min = self.min.min(time);
        self.max = self.max.max(time);
        if let Some(count) = self.buckets.get_mut(bucket(time)) {
            *count = count.saturating_add(1);
        }
    }

    /// Returns the number of times.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Returns the shortest time; `None` if there is none.
    #[must_use]
    pub const fn min(&self) -> Option<Nanos> {
        if self.count == 0 { None } else { Some(self.min) }
    }

    /// Returns the longest time; `None` if there is none.
    #[must_use]
    pub const fn max(&self) -> Option<Nanos> {
        if self.count == 0 { None } else { Some(self.max) }
    }

    /// Returns the mean, rounded down; `None` if there is no time.
    #[must_use]
    pub fn mean(&self) -> Option<Nanos> {
        let mean = self.sum.checked_div(u128::from(self.count))?;
        Some(u64::try_from(mean).unwrap_or(Nanos::MAX))
    }

    /// Returns a time that at least `parts` thousandths of the times do not exceed; `None` if there
    /// is no time. The result is at most a quarter above the exact quantile, and never above the
    /// maximum.
    #[must_use]
    pub fn quantile(&self, parts: u64) -> Option<Nanos> {
        let rank = (u128::from(self.count) * u128::from(parts.min(1_000))).div_ceil(1_000).max(1);
        let mut seen = 0_u128;
        let reached = self.buckets.iter().position(|count| {
            seen += u128::from(*count);
            seen >= rank
        })?;
        Some(upper_bound(reached).clamp(self.min()?, self.max()?))
    }

    /// Returns the buckets that have times, in ascending order: for each, the largest time that it
    /// can contain, and its number of times.
    pub fn buckets(&self) -> impl Iterator<Item = (Nanos, u64)> + '_ {
        let filled = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        filled.map(|(bucket, count)| (upper_bound(bucket), *count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn each_time_is_in_the_bucket_between_two_bounds() {
        let powers = (0..64).flat_map(|power| [-1, 0, 1].map(|by| (1_u64 << power).wrapping_add_signed(by)));
        for time in (0..5_000).chain(powers).chain([Nanos::MAX, Nanos::MAX - 1]) {
            let index = bucket(time);
            assert!(time <= upper_bound(index), "{time}");
            assert!(index == 0 || time > upper_bound(index - 1), "{time}");
            assert!(u128::from(upper_bound(index)) * 4 <= u128::from(time) * 5, "{time}");
        }
        assert_eq!((bucket(Nanos::MAX), upper_bound(BUCKETS - 1)), (BUCKETS - 1, Nanos::MAX));
    }

    #[test]
    fn summary_is_exact_and_quantiles_are_at_most_a_quarter_too_high() {
        let mut random = Random::new(7);
        let mut times: Vec<Nanos> = (0..10_000).map(|_| random.next_u64() >> (random.next_u64() % 60)).collect();
        let mut distribution = TimeDistribution::default();
        times.iter().for_each(|time| distribution.add(*time));
        times.sort_unstable();
        assert_eq!(distribution.count(), 10_000);
        assert_eq!((distribution.min(), distribution.max()), (times.first().copied(), times.last().copied()));
        let sum: u128 = times.iter().map(|time| u128::from(*time)).sum();
        assert_eq!(distribution.mean().map(u128::from), Some(sum / 10_000));
        for parts in [1, 10, 500, 990, 999, 1_000] {
            let exact = times[usize::try_from(parts * 10).unwrap() - 1];
            let found = distribution.quantile(parts).unwrap();
            assert!(exact <= found && u128::from(found) * 4 <= u128::from(exact) * 5, "{parts}: {exact} {found}");
        }
        assert_eq!(distribution.buckets().map(|(_, count)| count).sum::<u64>(), 10_000);
    }

    #[test]
    fn empty_distribution_has_no_figures() {
        let empty = TimeDistribution::default();
        assert_eq!((empty.count(), empty.min(), empty.max(), empty.mean()), (0, None, None, None));
        assert_eq!((empty.quantile(500), empty.buckets().count()), (None, 0));
        let mut one = TimeDistribution::default();
        one.add(1_000_001);
        assert_eq!(
            (one.quantile(0), one.quantile(500), one.quantile(5_000)),
            (Some(1_000_001), Some(1_000_001), Some(1_000_001))
        );
    }
}
