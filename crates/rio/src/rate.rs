//! Rate caps in packets and in bytes per second, whose checks need no division.

use std::num::{NonZeroU32, NonZeroU64};

use corelane_sched::task::Nanos;

/// A maximum packet rate with a burst (the generic cell rate algorithm of ITU-T I.371).
///
/// In any time span `t` the cap grants at most `burst + t / interval` packets, rounded down. Unlike
/// the generic algorithm, the cap also refuses each packet that comes less than an interval after a
/// refused packet. So a granted packet rarely overtakes refused packets that still wait in a queue.
/// The XDP program implements the cap in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketRate {
    interval: Nanos,
    tolerance: Nanos,
    burst: NonZeroU32,
}

impl PacketRate {
    /// Creates a cap of `packets_per_second`, with up to `burst` packets at once after a pause.
    #[must_use]
    pub fn new(packets_per_second: NonZeroU32, burst: NonZeroU32) -> Self {
        let interval = 1_000_000_000_u64.div_ceil(u64::from(packets_per_second.get()));
        Self::with_interval(interval, burst)
    }

    /// Creates a cap of one packet in each `packets`-th part of a period, with up to `packets`
    /// packets at once after a pause. So at most twice `packets` packets are granted in any time
    /// span of one period.
    #[must_use]
    pub fn of_period(packets: NonZeroU32, period: Nanos) -> Self {
        Self::with_interval(period.div_ceil(u64::from(packets.get())).max(1), packets)
    }

    fn with_interval(interval: Nanos, burst: NonZeroU32) -> Self {
        Self { interval, tolerance: interval.saturating_mul(u64::from(burst.get() - 1)), burst }
    }

    /// Returns the time in nanoseconds between two packets at the maximum rate.
    #[must_use]
    pub const fn interval(&self) -> Nanos {
        self.interval
    }

    /// Returns the maximum time in nanoseconds by which a packet may be early: `burst` - 1
    /// intervals.
    #[must_use]
    pub const fn tolerance(&self) -> Nanos {
        self.tolerance
    }

    /// Returns the maximum number of packets that are granted at once after a pause.
    #[must_use]
    pub const fn burst(&self) -> NonZeroU32 {
        self.burst
    }

    /// Returns true if a packet that arrives at `now` is granted. `state` is the time at which the
    /// next packet is due, at first 0. A granted packet sets `state` to one interval after `now`
    /// or, if `state` is later, after `state`. A refused packet sets `state` so that a packet
    /// within the next interval is refused too.
    pub fn grants_packet(&self, state: &mut Nanos, now: Nanos) -> bool {
        let due_at = (*state).max(now);
        if due_at - now > self.tolerance {
            *state = now.saturating_add(self.tolerance).saturating_add(self.interval);
            return false;
        }
        *state = due_at.saturating_add(self.interval);
        true
    }
}

/// A maximum rate in bytes per second, with a burst.
///
/// In any time span `t` the cap grants at most the bytes of the time `t + tolerance` and one frame
/// more. In the XDP program, which implements the same algorithm, the processors share the state:
///
/// - Each processor that checks a frame at the same moment can grant one frame more.
/// - After a pause, a processor sets the state to its time. If it is held up between the check and
///   this store, the store deletes what other processors have granted meanwhile. Each such hold-up
///   can grant the bytes of the time `tolerance` again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRate {
    byte_cost: u64,
    tolerance: Nanos,
}

impl ByteRate {
    /// Number of binary places behind the point in [`byte_cost`](Self::byte_cost).
    pub(crate) const COST_PLACES: u32 = 16;

    /// Creates a cap of `bytes_per_second`. A frame may be early by up to `tolerance` nanoseconds.
    #[must_use]
    pub fn new(bytes_per_second: NonZeroU64, tolerance: Nanos) -> Self {
        let cost = (1_000_000_000_u64 << Self::COST_PLACES).div_ceil(bytes_per_second.get());
        Self { byte_cost: cost, tolerance }
    }

    /// Returns the time of a byte at the maximum rate, in 65,536th parts of a nanosecond.
    pub(crate) const fn byte_cost(&self) -> u64 {
        self.byte_cost
    }

    /// Returns the maximum time in nanoseconds by which a frame may be early.
    #[must_use]
    pub const fn tolerance(&self) -> Nanos {
        self.tolerance
    }

    /// Returns true if a frame of `bytes` bytes that arrives at `now` is granted. `state` is the
    /// time at which the next frame is due, at first 0. Each granted frame advances `state` by its
    /// time.
    pub fn grants_frame(&self, state: &mut Nanos, bytes: u64, now: Nanos) -> bool {
        let due_at = (*state).max(now);
        if due_at - now > self.tolerance {
            return false;
        }
        // The sum wraps, because the XDP program cannot saturate. Even at one byte per second, only
        // a frame of more than 281,000 bytes overflows.
        *state = due_at.wrapping_add(bytes.wrapping_mul(self.byte_cost) >> Self::COST_PLACES);
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rate(packets_per_second: u32, burst: u32) -> PacketRate {
        PacketRate::new(NonZeroU32::new(packets_per_second).unwrap(), NonZeroU32::new(burst).unwrap())
    }

    #[test]
    fn a_burst_is_granted_and_then_one_packet_each_interval() {
        let rate = rate(1_000, 3);
        assert_eq!((rate.interval(), rate.burst().get()), (1_000_000, 3));
        let mut state = 0;
        let mut granted = |now| rate.grants_packet(&mut state, now);
        assert_eq!([0, 0, 0, 1_000_000, 2_000_000, 2_500_000].map(&mut granted), [true, true, true, true, true, false]);
    }

    #[test]
    fn refused_packets_prolong_the_refusal_until_a_pause_of_an_interval() {
        let rate = rate(1_000, 2);
        let mut state = 0;
        let mut granted = |now| rate.grants_packet(&mut state, now);
        assert_eq!([0, 0, 0, 999_999, 1_900_000].map(&mut granted), [true, true, false, false, false]);
        assert_eq!([2_900_000, 3_000_000].map(&mut granted), [true, false]);
        // After a longer pause, the burst is free again.
        assert_eq!([6_000_000, 6_000_000, 6_000_000].map(&mut granted), [true, true, false]);
    }

    #[test]
    fn cap_of_a_period_grants_its_packets_at_once() {
        let rate = PacketRate::of_period(NonZeroU32::new(3).unwrap(), 10);
        assert_eq!((rate.interval(), rate.tolerance(), rate.burst().get()), (4, 8, 3));
        let dense = PacketRate::of_period(NonZeroU32::MAX, 1);
        assert_eq!(dense.interval(), 1);
    }

    #[test]
    fn the_end_of_the_clock_does_not_overflow() {
        let rate = rate(1, u32::MAX);
        let mut state = u64::MAX;
        assert!(rate.grants_packet(&mut state, u64::MAX));
        assert_eq!(state, u64::MAX);
    }

    proptest! {
        #[test]
        fn no_span_of_time_gets_more_than_the_cap(
            pps in 1_u32..2_000_000,
            burst in 1_u32..20,
            gaps in prop::collection::vec(0_u64..3_000_000, 1..60),
        ) {
            let rate = rate(pps, burst);
            let (mut state, mut now, mut grants) = (0, 0, Vec::new());
            for gap in gaps {
                now += gap;
                if rate.grants_packet(&mut state, now) {
                    grants.push(now);
                }
            }
            for (first, &from) in grants.iter().enumerate() {
                for (count, &to) in grants[first..].iter().enumerate() {
                    let most = u64::from(rate.burst().get()) + (to - from) / rate.interval();
                    prop_assert!((count as u64) < most, "{} grants in {} ns", count + 1, to - from);
                }
            }
        }

        #[test]
        fn no_span_of_time_gets_more_bytes_than_the_ceiling(
            rate in 1_000_u64..10_000_000_000,
            tolerance in 0_u64..50_000_000,
            frames in prop::collection::vec((60_u64..9_000, 0_u64..3_000_000), 1..60),
        ) {
            let ceiling = ByteRate::new(NonZeroU64::new(rate).unwrap(), tolerance);
            let (mut state, mut now, mut grants) = (0, 0, Vec::new());
            for (bytes, gap) in frames {
                now += gap;
                if ceiling.grants_frame(&mut state, bytes, now) {
                    grants.push((now, bytes));
                }
            }
            for (first, &(from, _)) in grants.iter().enumerate() {
                let mut sum = 0;
                for &(to, bytes) in &grants[first..] {
                    let most = u128::from(rate) * u128::from(to - from + tolerance + 60) / 1_000_000_000 + 1;
                    prop_assert!(sum <= most, "{sum} bytes before the last frame in {} ns", to - from);
                    sum += u128::from(bytes);
                }
            }
        }

        #[test]
        fn frames_below_the_ceiling_are_all_granted(rate in 1_000_u64..10_000_000_000, bytes in 60_u64..9_000) {
            let ceiling = ByteRate::new(NonZeroU64::new(rate).unwrap(), 0);
            // The cost of a byte is rounded up, so a frame can take a nanosecond longer than its
            // bytes.
            let gap = (bytes * 1_000_000_000).div_ceil(rate) + 1;
            let mut state = 0;
            for frame in 1..50 {
                prop_assert!(ceiling.grants_frame(&mut state, bytes, frame * gap));
            }
        }

        #[test]
        fn packets_at_the_cap_are_all_granted(pps in 1_u32..2_000_000, early in 0_u64..1_000, count in 1_u64..50) {
            let rate = rate(pps, 2);
            let (mut state, early) = (0, early.min(rate.interval() - 1));
            for packet in 0..count {
                // Every second packet is early by less than an interval.
                let now = (packet + 1) * rate.interval() - (packet % 2) * early;
                prop_assert!(rate.grants_packet(&mut state, now));
            }
        }
    }
}
