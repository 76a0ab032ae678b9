//! Policies of calls. Each policy takes the value of the level nearest to the call (CORBA 3.0.3,
//! section 4.9).

use std::cell::Cell;
use std::time::Duration;

use corelane_sys::clock::Monotonic;

use crate::clock;

/// A duration below this limit converts to [`Timeout::Precise`], any other duration to
/// [`Timeout::Coarse`].
const PRECISE_BELOW: Duration = Duration::from_secs(1);

/// The time-out of a call, from its start until its result arrives. The time for the look-up of a
/// host name and for connecting is included.
///
/// A look-up by the system's resolver cannot be interrupted, and continues in the background.
///
/// A call returns late if its thread did not get a core in time, or if its time-out is coarse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// A timer ends the call, and costs a system call. The request carries the remaining time to
    /// Corelane servers, which may refuse late requests or run them at a lower priority
    /// ([`rt::ExpiredRequestAction`](crate::rt::ExpiredRequestAction)).
    Precise(Duration),
    /// The socket's time-out ends the call, and costs a system call only when it must be changed.
    /// The time-out never ends a call early, but may be late by some ticks of the kernel's clock
    /// and an eighth of the duration.
    Coarse(Duration),
    /// No time-out.
    Never,
}

impl From<Duration> for Timeout {
    fn from(duration: Duration) -> Self {
        if duration < PRECISE_BELOW { Timeout::Precise(duration) } else { Timeout::Coarse(duration) }
    }
}

/// The point until which a oneway call waits (CORBA 3.0.3, section 22.2.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncScope {
    /// The call does not wait. The request may stay in the buffer of its connection, within the
    /// limits of [`OrbBuilder::oneway_batch`](crate::OrbBuilder::oneway_batch). Requests with a
    /// real-time priority and requests on multiplexed connections are sent at once.
    None,
    /// The call waits until the transport has accepted the request.
    Transport,
    /// The call waits until the server has the request, before the servant runs.
    Server,
    /// The call waits until the servant has run.
    Target,
}

/// The changes that the ORB may make to the binding of a reference without a decision of the
/// program (CORBA 3.0.3, section 22.2.1.2). A reference is bound once a call through it has been
/// answered. A call that needs a forbidden change raises REBIND;
/// [`ObjectRef::validate_connection`](crate::ObjectRef::validate_connection) binds the reference
/// again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum RebindMode {
    /// The ORB may make any change that a call needs.
    #[default]
    Transparent,
    /// The policies of the binding must not change. Calls use only profiles with the same
    /// priorities, bands and protocols as the profile that answered last. The ORB considers
    /// profiles of the reference and of a forward.
    NoRebind,
    /// The policies of the binding must not change, as with [`NoRebind`](Self::NoRebind), and no
    /// call opens a connection. A call fails if no connection is idle.
    /// [`ObjectRef::preconnect`](crate::ObjectRef::preconnect) makes connections.
    NoReconnect,
}

/// The action of a call if its server already has the maximum number of connections and all are in
/// use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConnectionPoolExhaustedAction {
    /// The call waits for a connection until its deadline. Waiting calls have no order, and a new
    /// call may overtake them.
    #[default]
    Wait,
    /// The call uses a multiplexed connection, which several calls share. A thread of the ORB
    /// distributes the replies.
    Multiplex,
}

/// Policies of calls. If a policy of a reference is `None`, calls use the policy of the thread. If
/// this policy is `None` as well, they use the policy of the ORB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallPolicies {
    /// The time-out of a call.
    pub timeout: Option<Timeout>,
    /// The time-out for making a connection, within `timeout`. The look-up of the server's host
    /// name is included; the wait for a free connection is not.
    pub connect_timeout: Option<Duration>,
    /// The point until which a oneway waits.
    pub sync_scope: Option<SyncScope>,
    /// Maximum number of retries after TRANSIENT with COMPLETED_NO; 0 if not set. Before each retry
    /// the call pauses for a random time. The maximum pause is 10 ms at first and doubles with each
    /// retry, up to one second. If the call's deadline would pass during the pause, the call raises
    /// TRANSIENT at once.
    pub max_transient_retries: Option<u8>,
    /// The changes that the ORB may make to a reference's binding; [`RebindMode::Transparent`] if
    /// not set.
    pub rebind: Option<RebindMode>,
}

impl CallPolicies {
    /// No policies: every field is `None`.
    pub const NONE: Self = CallPolicies {
        timeout: None,
        connect_timeout: None,
        sync_scope: None,
        max_transient_retries: None,
        rebind: None,
    };

    /// Returns these policies, with each unset policy taken from `wider`, the policies of the next
    /// level (thread or ORB).
    #[must_use]
    #[inline]
    pub fn with_defaults_from(self, wider: CallPolicies) -> CallPolicies {
        CallPolicies {
            timeout: self.timeout.or(wider.timeout),
            connect_timeout: self.connect_timeout.or(wider.connect_timeout),
            sync_scope: self.sync_scope.or(wider.sync_scope),
            max_transient_retries: self.max_transient_retries.or(wider.max_transient_retries),
            rebind: self.rebind.or(wider.rebind),
        }
    }
}

thread_local! {
    static THREAD_POLICIES: Cell<CallPolicies> = const { Cell::new(CallPolicies::NONE) };
}

#[inline]
pub(crate) fn thread_policies() -> CallPolicies {
    THREAD_POLICIES.get()
}

/// Runs `body` with each policy that is set in `policies` as the policy of the calling thread. A
/// policy that is `None` keeps the thread's value. A policy of a reference overrides the thread's
/// policy.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use corelane::{CallPolicies, with_call_policies};
/// let quick = CallPolicies { timeout: Some(Duration::from_millis(20).into()), ..CallPolicies::NONE };
/// with_call_policies(quick, || { /* calls made here have 20 ms */ });
/// ```
pub fn with_call_policies<T>(policies: CallPolicies, body: impl FnOnce() -> T) -> T {
    struct RestorePolicies(CallPolicies);
    impl Drop for RestorePolicies {
        fn drop(&mut self) {
            THREAD_POLICIES.set(self.0);
        }
    }
    let _restore = RestorePolicies(THREAD_POLICIES.replace(policies.with_defaults_from(thread_policies())));
    body()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallDeadline {
    /// A duration and the start of the call; the first wait may last the whole duration.
    WithinFrom(Duration, Monotonic),
    At(Monotonic),
    Never,
}

impl CallDeadline {
    #[inline]
    pub(crate) fn from_timeout(timeout: Timeout) -> CallDeadline {
        match timeout {
            Timeout::Precise(duration) => CallDeadline::At(clock::now() + duration),
            Timeout::Coarse(Duration::ZERO) => CallDeadline::At(clock::now()),
            Timeout::Coarse(duration) => CallDeadline::WithinFrom(duration, clock::coarse_now()),
            Timeout::Never => CallDeadline::Never,
        }
    }

    #[cold]
    pub(crate) fn latest(self) -> Option<Monotonic> {
        match self {
            // A start from the coarse clock may be too early by the lag of this clock, so the lag
            // is added.
            CallDeadline::WithinFrom(duration, start) => Some(start + duration + clock::max_coarse_lag()),
            CallDeadline::At(moment) => Some(moment),
            CallDeadline::Never => None,
        }
    }

    /// Makes the deadline absolute if more than an eighth of the duration has passed.
    #[inline]
    pub(crate) fn after_slow_step(self) -> CallDeadline {
        match self {
            CallDeadline::WithinFrom(duration, start) if clock::coarse_now().since(start) > duration / 8 => {
                self.to_absolute()
            }
            due => due,
        }
    }

    #[cold]
    pub(crate) fn elapsed(self, timeout: Timeout) -> Option<Duration> {
        match (self, timeout) {
            (CallDeadline::At(moment), Timeout::Precise(whole) | Timeout::Coarse(whole)) => {
                Some(clock::now().since(moment - whole))
            }
            (CallDeadline::WithinFrom(_, start), _) => Some(clock::now().since(start)),
            _ => None,
        }
    }

    #[cold]
    pub(crate) fn to_absolute(self) -> CallDeadline {
        self.latest().map_or(CallDeadline::Never, CallDeadline::At)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_level_wins_for_each_policy() {
        let near = CallPolicies { timeout: Some(Timeout::Never), ..CallPolicies::NONE };
        let far = CallPolicies {
            timeout: Some(Duration::from_secs(3).into()),
            max_transient_retries: Some(2),
            ..CallPolicies::NONE
        };
        let both = near.with_defaults_from(far);
        assert_eq!((both.timeout, both.max_transient_retries), (Some(Timeout::Never), Some(2)));
    }

    #[test]
    fn or_takes_each_policy_from_the_nearest_level() {
        let near = CallPolicies {
            timeout: Some(Timeout::Never),
            connect_timeout: Some(Duration::from_secs(1)),
            sync_scope: Some(SyncScope::Server),
            max_transient_retries: Some(1),
            rebind: Some(RebindMode::NoRebind),
        };
        let far = CallPolicies {
            timeout: Some(Timeout::Coarse(Duration::from_secs(9))),
            connect_timeout: Some(Duration::from_secs(9)),
            sync_scope: Some(SyncScope::None),
            max_transient_retries: Some(9),
            rebind: Some(RebindMode::NoReconnect),
        };
        assert_eq!(near.with_defaults_from(far), near);
        assert_eq!(near.with_defaults_from(CallPolicies::NONE), near);
        assert_eq!(CallPolicies::NONE.with_defaults_from(far), far);
        assert_eq!(CallPolicies::NONE.with_defaults_from(CallPolicies::NONE), CallPolicies::NONE);
    }

    #[test]
    fn thread_policies_nest_and_end_with_their_scope() {
        let outer = CallPolicies { max_transient_retries: Some(1), ..CallPolicies::NONE };
        let inner = CallPolicies { sync_scope: Some(SyncScope::Target), ..CallPolicies::NONE };
        with_call_policies(outer, || {
            with_call_policies(inner, || {
                assert_eq!(thread_policies().max_transient_retries, Some(1));
                assert_eq!(thread_policies().sync_scope, Some(SyncScope::Target));
            });
            assert_eq!(thread_policies().sync_scope, None);
        });
        assert_eq!(thread_policies(), CallPolicies::NONE);
    }

    #[test]
    fn timeouts_below_one_second_are_precise() {
        assert_eq!(Timeout::from(Duration::from_millis(999)), Timeout::Precise(Duration::from_millis(999)));
        assert_eq!(Timeout::from(Duration::from_secs(1)), Timeout::Coarse(Duration::from_secs(1)));
    }

    const NOW: Monotonic = Monotonic::from_nanos(1_000_000_000_000);

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn at<T>(later: Duration, body: impl FnOnce() -> T) -> T {
        struct RestoreClock;
        impl Drop for RestoreClock {
            fn drop(&mut self) {
                clock::set(None);
            }
        }
        let _restore = RestoreClock;
        clock::set(Some(NOW + later));
        body()
    }

    #[test]
    fn deadline_starts_at_the_call() {
        let of = |timeout| at(ms(0), || CallDeadline::from_timeout(timeout));
        assert_eq!(of(Timeout::Precise(ms(20))), CallDeadline::At(NOW + ms(20)));
        assert_eq!(of(Timeout::Precise(Duration::ZERO)), CallDeadline::At(NOW));
        assert_eq!(of(Timeout::Coarse(ms(2000))), CallDeadline::WithinFrom(ms(2000), NOW));
        // A socket treats a time-out of zero as no time-out, so a zero duration becomes an absolute
        // deadline.
        assert_eq!(of(Timeout::Coarse(Duration::ZERO)), CallDeadline::At(NOW));
        assert_eq!(of(Timeout::Never), CallDeadline::Never);
    }

    /// The test uses the real clock, because the virtual clock has no lag.
    #[test]
    fn latest_moment_is_never_before_the_deadline() {
        assert!(clock::max_coarse_lag() > Duration::ZERO);
        assert_eq!(CallDeadline::WithinFrom(ms(80), NOW).latest(), Some(NOW + ms(80) + clock::max_coarse_lag()));
        assert_eq!(CallDeadline::At(NOW).latest(), Some(NOW));
        assert_eq!(CallDeadline::Never.latest(), None);
        assert_eq!(
            CallDeadline::WithinFrom(ms(80), NOW).to_absolute(),
            CallDeadline::At(NOW + ms(80) + clock::max_coarse_lag())
        );
        assert_eq!(CallDeadline::At(NOW).to_absolute(), CallDeadline::At(NOW));
        assert_eq!(CallDeadline::Never.to_absolute(), CallDeadline::Never);
    }

    #[test]
    fn slow_step_makes_the_deadline_absolute() {
        let due = CallDeadline::WithinFrom(ms(80), NOW);
        for later in [0, 9, 10] {
            assert_eq!(at(ms(later), || due.after_slow_step()), due, "{later} ms");
        }
        for later in [11, 79, 80, 500] {
            assert_eq!(at(ms(later), || due.after_slow_step()), CallDeadline::At(NOW + ms(80)), "{later} ms");
        }
        for due in [CallDeadline::At(NOW), CallDeadline::Never] {
            assert_eq!(at(ms(79), || due.after_slow_step()), due);
        }
    }

    #[test]
    fn elapsed_time_is_counted_from_the_call() {
        let elapsed = |due: CallDeadline, timeout| at(ms(7), || due.elapsed(timeout));
        assert_eq!(elapsed(CallDeadline::At(NOW + ms(20)), Timeout::Precise(ms(20))), Some(ms(7)));
        assert_eq!(elapsed(CallDeadline::At(NOW + ms(2000)), Timeout::Coarse(ms(2000))), Some(ms(7)));
        assert_eq!(elapsed(CallDeadline::WithinFrom(ms(2000), NOW), Timeout::Coarse(ms(2000))), Some(ms(7)));
        assert_eq!(elapsed(CallDeadline::Never, Timeout::Never), None);
        assert_eq!(elapsed(CallDeadline::At(NOW), Timeout::Never), None);
    }
}
