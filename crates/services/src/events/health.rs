//! Counts the calls that a peer leaves unanswered, and decides which call to the peer comes next.

use std::time::Duration;

use corelane_sched::task::Nanos;

/// The reaction to a consumer, or to a supplier from which the channel pulls, that does not answer.
/// It does not apply to a direct consumer, which the supplier's thread calls.
///
/// A *miss* is a call that ends with TIMEOUT, TRANSIENT, COMM_FAILURE or NO_RESPONSE. After a miss
/// the channel asks the consumer if it exists before it sends the next event. After `max_misses`
/// misses in a row the channel makes no call to the consumer for the time `suspension_time`, and
/// then asks again; each further miss leads to another suspension. After `max_suspensions`
/// suspensions in a row, a further miss disconnects the consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissPolicy {
    /// The deadline of each call to a consumer, a supplier or an observer.
    pub send_timeout: Duration,
    /// Number of misses in a row until the consumer is suspended. 0 counts as 1.
    pub max_misses: u32,
    /// The time for which a consumer is suspended.
    pub suspension_time: Duration,
    /// Number of suspensions in a row, after which a further miss disconnects the consumer.
    pub max_suspensions: u32,
}

/// The default policy: 1 s for each call, 3 misses, 3 suspensions of 5 s.
impl Default for MissPolicy {
    fn default() -> Self {
        Self {
            send_timeout: Duration::from_secs(1),
            max_misses: 3,
            suspension_time: Duration::from_secs(5),
            max_suspensions: 3,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextCall {
    Event,
    Question,
    WaitUntil(Nanos),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ConsumerHealth {
    misses: u32,
    suspensions: u32,
    suspended_until: Nanos,
}

impl ConsumerHealth {
    pub(super) fn next_call(&self, now: Nanos) -> NextCall {
        match (now < self.suspended_until, self.misses) {
            (true, _) => NextCall::WaitUntil(self.suspended_until),
            (false, 0) => NextCall::Event,
            (false, _) => NextCall::Question,
        }
    }

    pub(super) fn is_suspended(&self, now: Nanos) -> bool {
        now < self.suspended_until
    }

    pub(super) fn answered(&mut self) {
        *self = Self::default();
    }

    /// Counts a miss. Returns true if the caller must disconnect the consumer.
    pub(super) fn missed(&mut self, policy: &MissPolicy, now: Nanos) -> bool {
        self.misses = self.misses.saturating_add(1);
        if self.suspensions == 0 && self.misses < policy.max_misses {
            return false;
        }
        if self.suspensions >= policy.max_suspensions {
            return true;
        }
        self.suspensions += 1;
        let suspension = u64::try_from(policy.suspension_time.as_nanos()).unwrap_or(Nanos::MAX);
        self.suspended_until = now.saturating_add(suspension);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consumer_is_asked_then_suspended_then_disconnected() {
        let policy = MissPolicy {
            max_misses: 2,
            suspension_time: Duration::from_nanos(10),
            max_suspensions: 2,
            ..Default::default()
        };
        let mut health = ConsumerHealth::default();
        assert_eq!(health.next_call(0), NextCall::Event);
        assert!(!health.missed(&policy, 0));
        assert_eq!(health.next_call(0), NextCall::Question);
        assert!(!health.missed(&policy, 1));
        assert_eq!((health.next_call(1), health.is_suspended(1)), (NextCall::WaitUntil(11), true));
        assert_eq!((health.next_call(11), health.is_suspended(11)), (NextCall::Question, false));
        assert!(!health.missed(&policy, 11));
        assert_eq!(health.next_call(20), NextCall::WaitUntil(21));
        let mut answered = health;
        answered.answered();
        assert_eq!((answered.next_call(21), answered.missed(&policy, 21)), (NextCall::Event, false));
        assert!(health.missed(&policy, 21));
    }
}
