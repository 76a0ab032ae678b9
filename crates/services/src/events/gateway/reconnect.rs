//! The times at which a gateway tries to reach a channel again.

use std::time::Duration;

/// The delays after which a gateway that has lost a channel tries to reach it again.
///
/// Each failure doubles the delay, up to `max_delay`. The delay is shortened at random by up to a
/// half, so that gateways which have lost one channel do not all come back at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReconnectPolicy {
    /// The delay after the first failure.
    pub first_delay: Duration,
    /// The longest delay.
    pub max_delay: Duration,
}

/// The default policy: from 100 ms to 5 s.
impl Default for ReconnectPolicy {
    fn default() -> Self {
        Self { first_delay: Duration::from_millis(100), max_delay: Duration::from_secs(5) }
    }
}

#[derive(Debug)]
pub(in crate::events) struct BackOff {
    policy: ReconnectPolicy,
    failures: u32,
    random: u64,
}

impl BackOff {
    pub(in crate::events) const fn new(policy: ReconnectPolicy, seed: u64) -> Self {
        Self { policy, failures: 0, random: seed }
    }

    /// Counts a further failure, and returns the delay after it.
    pub(in crate::events) fn next_delay(&mut self) -> Duration {
        let doubled = self.policy.first_delay.saturating_mul(1_u32.checked_shl(self.failures).unwrap_or(u32::MAX));
        self.failures = (self.failures + 1).min(31);
        let delay = doubled.min(self.policy.max_delay);
        let half = delay / 2;
        let nanos = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX).saturating_add(1);
        half + Duration::from_nanos(self.next_random() % nanos)
    }

    pub(in crate::events) const fn succeeded(&mut self) {
        self.failures = 0;
    }

    const fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_the_longest_one_and_differ() {
        let policy = ReconnectPolicy::default();
        let mut backs = [BackOff::new(policy, 1), BackOff::new(policy, 2)];
        let mut full = policy.first_delay;
        for _ in 0..40 {
            let [first, second] = [backs[0].next_delay(), backs[1].next_delay()];
            assert!(first != second && full / 2 <= first.min(second) && first.max(second) <= full, "{first:?}");
            full = (full * 2).min(policy.max_delay);
        }
        assert_eq!(full, policy.max_delay);
        backs[0].succeeded();
        assert!(backs[0].next_delay() <= policy.first_delay);
        let none = ReconnectPolicy { first_delay: Duration::ZERO, max_delay: Duration::ZERO };
        assert_eq!(BackOff::new(none, 1).next_delay(), Duration::ZERO);
    }
}
