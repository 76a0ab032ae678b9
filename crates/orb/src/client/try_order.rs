//! The order in which a call tries candidates (the profiles of a reference, or the addresses of a
//! profile).
//!
//! The candidate that answered last comes first. Candidates in back-off, which failed recently,
//! come last. While other candidates remain, an attempt has a brief time. A candidate that did not
//! answer in its brief time is tried again after all others, with a share of the remaining time.

use std::time::Duration;

use corelane_sys::clock::Monotonic;

pub(crate) const MAX_TRIED: usize = 64;

/// Time of an attempt at one address while other addresses remain (RFC 8305, section 5).
pub(crate) const BRIEF_ATTEMPT: Duration = Duration::from_millis(250);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TryOrder {
    count: usize,
    /// Index of the first candidate, unless it is in back-off.
    first: usize,
    /// Bit set of the candidates in back-off.
    backing_off: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptTime {
    /// [`BRIEF_ATTEMPT`] for each address of the candidate, but at most an equal share of the time
    /// that remains until the call's deadline.
    Brief(u32),
    /// An equal share of the remaining time; the field is the number of attempts that share it.
    Share(u32),
}

impl AttemptTime {
    /// Returns the deadline of the attempt. Returns `None` for a [`Share`](Self::Share) of a call
    /// without a deadline.
    pub(crate) fn deadline(self, now: Monotonic, deadline: Option<Monotonic>, addresses: usize) -> Option<Monotonic> {
        match self {
            AttemptTime::Brief(among) => {
                let brief = BRIEF_ATTEMPT * u32::try_from(addresses.max(1)).unwrap_or(u32::MAX);
                Some(now + share(now, deadline, among).map_or(brief, |share| share.min(brief)))
            }
            AttemptTime::Share(among) => share(now, deadline, among).map(|share| now + share),
        }
    }
}

fn share(now: Monotonic, deadline: Option<Monotonic>, among: u32) -> Option<Duration> {
    deadline.map(|deadline| deadline.since(now) / among.max(1))
}

impl TryOrder {
    /// Creates the order of `count` candidates, at most [`MAX_TRIED`]. Candidates whose bits are
    /// set in `backing_off` come last, even `first`.
    pub(crate) fn new(count: usize, first: usize, backing_off: u64) -> Self {
        let count = count.min(MAX_TRIED);
        TryOrder { count, first: if first < count { first } else { 0 }, backing_off }
    }

    pub(crate) fn is_empty(self) -> bool {
        self.count == 0
    }

    pub(crate) fn in_order(self) -> impl Iterator<Item = usize> {
        let mut attempts = Attempts::new(self);
        std::iter::from_fn(move || attempts.next().map(|(index, _)| index))
    }

    fn all(self) -> u64 {
        u32::try_from(self.count).ok().and_then(|count| u64::MAX.checked_shr(64 - count)).unwrap_or(0)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempts {
    order: TryOrder,
    tried: u64,
    /// Bit set of the candidates that did not answer in their brief time.
    timed_out: u64,
    is_second_round: bool,
    is_brief: bool,
}

impl Attempts {
    pub(crate) fn new(order: TryOrder) -> Self {
        Attempts { order, tried: 0, timed_out: 0, is_second_round: false, is_brief: false }
    }

    pub(crate) fn next(&mut self) -> Option<(usize, AttemptTime)> {
        let left = self.order.all() & !self.tried;
        let Some(index) = self.preferred_of(left & !self.order.backing_off).or_else(|| self.preferred_of(left)) else {
            return self.next_timed_out();
        };
        self.tried |= bit(index);
        Some((index, self.attempt_time()))
    }

    pub(crate) fn mark_tried(&mut self, index: usize) {
        self.tried |= bit(index);
    }

    pub(crate) fn attempt_time(&mut self) -> AttemptTime {
        let others = self.order.all() & !self.tried | self.timed_out;
        self.is_brief = others != 0 && !self.is_second_round;
        if self.is_brief { AttemptTime::Brief(others.count_ones() + 1) } else { AttemptTime::Share(1) }
    }

    /// Notes that a candidate did not answer in its time. If the time was brief, the second round
    /// tries the candidate again.
    pub(crate) fn record_timeout(&mut self, index: usize) {
        if self.is_brief {
            self.timed_out |= bit(index);
        }
    }

    fn next_timed_out(&mut self) -> Option<(usize, AttemptTime)> {
        (self.is_second_round, self.is_brief) = (true, false);
        let among = self.timed_out.count_ones();
        let index = self.preferred_of(self.timed_out)?;
        self.timed_out &= !bit(index);
        Some((index, AttemptTime::Share(among)))
    }

    fn preferred_of(&self, among: u64) -> Option<usize> {
        match among {
            0 => None,
            _ if among & bit(self.order.first) != 0 => Some(self.order.first),
            _ => usize::try_from(among.trailing_zeros()).ok(),
        }
    }
}

fn bit(index: usize) -> u64 {
    u32::try_from(index).ok().and_then(|index| 1_u64.checked_shl(index)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(order: TryOrder) -> Vec<usize> {
        order.in_order().collect()
    }

    #[test]
    fn last_answered_is_first_and_failed_are_last() {
        assert_eq!(order(TryOrder::new(4, 0, 0)), [0, 1, 2, 3]);
        assert_eq!(order(TryOrder::new(4, 2, 0)), [2, 0, 1, 3]);
        assert_eq!(order(TryOrder::new(4, 2, 0b0101)), [1, 3, 2, 0]);
        assert_eq!(order(TryOrder::new(3, 7, 0b111)), [0, 1, 2]);
        assert!(order(TryOrder::new(0, 0, 0)).is_empty());
        assert_eq!(order(TryOrder::new(100, 99, u64::MAX)), (0..64).collect::<Vec<_>>());
    }

    #[test]
    fn single_address_gets_all_the_time() {
        let mut attempts = Attempts::new(TryOrder::new(1, 0, 1));
        assert_eq!(attempts.next(), Some((0, AttemptTime::Share(1))));
        attempts.record_timeout(0);
        assert_eq!(attempts.next(), None);
    }

    #[test]
    fn timed_out_addresses_share_the_remaining_time() {
        let mut attempts = Attempts::new(TryOrder::new(3, 0, 0));
        assert_eq!(attempts.next(), Some((0, AttemptTime::Brief(3))));
        attempts.record_timeout(0);
        assert_eq!(attempts.next(), Some((1, AttemptTime::Brief(3))));
        // The test does not call `record_timeout`, because candidate 1 has refused the connection.
        assert_eq!(attempts.next(), Some((2, AttemptTime::Brief(2))));
        attempts.record_timeout(2);
        assert_eq!(attempts.next(), Some((0, AttemptTime::Share(2))));
        attempts.record_timeout(0);
        assert_eq!(attempts.next(), Some((2, AttemptTime::Share(1))));
        attempts.record_timeout(2);
        assert_eq!(attempts.next(), None);
    }

    #[test]
    fn last_address_gets_all_the_time_after_refusals() {
        let mut attempts = Attempts::new(TryOrder::new(2, 0, 0));
        assert_eq!(attempts.next(), Some((0, AttemptTime::Brief(2))));
        assert_eq!(attempts.next(), Some((1, AttemptTime::Share(1))));
    }

    #[test]
    fn attempt_deadlines_never_exceed_the_call_deadline() {
        let at = |millisecond: u64| Monotonic::from_nanos(millisecond * 1_000_000);
        assert_eq!(AttemptTime::Brief(7).deadline(at(0), None, 2), Some(at(500)));
        assert_eq!(AttemptTime::Brief(2).deadline(at(0), Some(at(100)), 1), Some(at(50)));
        assert_eq!(AttemptTime::Brief(2).deadline(at(0), Some(at(10_000)), 1), Some(at(250)));
        assert_eq!(AttemptTime::Share(3).deadline(at(100), Some(at(700)), 9), Some(at(300)));
        assert_eq!(AttemptTime::Share(3).deadline(at(100), None, 9), None);
    }
}
