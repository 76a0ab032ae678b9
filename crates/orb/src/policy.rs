//! Policies of a call, for example its time-out, the point until which a oneway waits, and retries
//! after TRANSIENT.
//!
//! A policy can be set for the ORB, for a thread, for a reference and, on a copy of the reference,
//! for one call. The setting nearest to the call is used, separately for each policy (CORBA 3.0.3,
//! section 4.9).

use std::cell::Cell;
use std::time::Duration;

use corelane_sys::clock::Monotonic;

use crate::clock;

/// Time-outs shorter than this are precise, unless the program chooses otherwise.
const PRECISE_BELOW: Duration = Duration::from_secs(1);

/// The time-out of a call, from its start until it has its result. The time for looking up a host
/// name and for connecting is included.
///
/// The system's resolver cannot be interrupted. A look-up that takes too long continues in the
/// background; its answer serves the calls of the next ten seconds.
///
/// The time-out bounds how long a call waits. A reply that has arrived when the caller looks is
/// returned even after the time-out. The operation has run then, and its result says more than a
/// TIMEOUT. So a call can return late if its thread did not get a core in time, or if a coarse
/// time-out had not ended yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// A high-resolution timer ends the call within tens of microseconds of the time-out. It costs
    /// one system call per call. Corelane servers learn the time left, and may refuse or lower
    /// requests that come too late ([`rt::ExpiredRequestAction`](crate::rt::ExpiredRequestAction)).
    Precise(Duration),
    /// The socket's own time-out ends the call, without a system call per call. It never ends a
    /// call early. It may be late by up to four ticks of the kernel's clock (16 ms at 250 Hz) and
    /// 12 %.
    Coarse(Duration),
    /// No time-out.
    Never,
}

impl From<Duration> for Timeout {
    /// Makes a precise time-out below one second, otherwise a coarse one.
    fn from(duration: Duration) -> Self {
        if duration < PRECISE_BELOW { Timeout::Precise(duration) } else { Timeout::Coarse(duration) }
    }
}

/// The point until which a oneway call waits (CORBA 3.0.3, section 22.2.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncScope {
    /// The call does not wait. The request may stay in the buffer of its connection until others
    /// are sent with it, bounded by [`OrbBuilder::oneway_batch`](crate::OrbBuilder::oneway_batch).
    /// It precedes any later request on the connection, and is lost if the connection is lost.
    /// Requests with a real-time priority and requests on shared connections are sent at once.
    None,
    /// The call waits until the transport has accepted the request.
    Transport,
    /// The call waits until the server has the request, before the servant runs.
    Server,
    /// The call waits until the servant has run.
    Target,
}

/// The changes that the ORB may make to a bound reference without asking the program (CORBA 3.0.3,
/// section 22.2.1.2). A reference is bound once a call through it has been answered. A change that
/// is not permitted raises REBIND;
/// [`ObjectRef::validate_connection`](crate::ObjectRef::validate_connection) binds the reference
/// again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum RebindMode {
    /// Any change that the call needs.
    #[default]
    Transparent,
    /// The policies in force must not change. Calls use only profiles with the same priorities,
    /// bands and protocols as the profile that was used for the last reply. The profiles may be in
    /// the reference or in a forward.
    NoRebind,
    /// The policies in force must not change, as with [`NoRebind`](Self::NoRebind), and no call
    /// opens a connection. A call fails if it finds no idle connection, so there can be only as
    /// many concurrent calls as connections.
    /// [`ObjectRef::preconnect`](crate::ObjectRef::preconnect) makes them.
    NoReconnect,
}

/// The reaction of a call if all connections to its server are in use and no more may be made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PoolExhausted {
    /// Wait for a connection until the call's deadline. Waiting calls have no order, and a new call
    /// may overtake them.
    #[default]
    Wait,
    /// Use a connection that several calls share; a thread of the ORB distributes the replies.
    Multiplex,
}

/// Policies of calls. `None` leaves the choice to the next level away from the call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallPolicies {
    /// The time-out of a call.
    pub timeout: Option<Timeout>,
    /// The time-out for making a connection, within `timeout`. The look-up of the server's name is
    /// included; waiting for a free connection is not.
    pub connect_timeout: Option<Duration>,
    /// The point until which a oneway waits.
    pub sync_scope: Option<SyncScope>,
    /// Maximum number of retries after TRANSIENT with COMPLETED_NO; 0 if not set. Before each retry
    /// the call pauses for a random time. The maximum pause is 10 ms at first and doubles with each
    /// retry, up to one second. If the call's time would end during the pause, the call raises the
    /// TRANSIENT at once.
    pub retry_transient: Option<u8>,
    /// The changes that the ORB may make to a bound reference; any change if not set.
    pub rebind: Option<RebindMode>,
}

impl CallPolicies {
    /// Policies of which none is set.
    pub const NONE: Self =
        CallPolicies { timeout: None, connect_timeout: None, sync_scope: None, retry_transient: None, rebind: None };

    /// Completes these policies with the policies of the level `wider`, further away from the call.
    #[must_use]
    #[inline]
    pub fn or(self, wider: CallPolicies) -> CallPolicies {
        CallPolicies {
            timeout: self.timeout.or(wider.timeout),
            connect_timeout: self.connect_timeout.or(wider.connect_timeout),
            sync_scope: self.sync_scope.or(wider.sync_scope),
            retry_transient: self.retry_transient.or(wider.retry_transient),
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

/// Runs `body` with `policies` for the calling thread. They apply to references that do not set
/// their own.
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
    let _restore = RestorePolicies(THREAD_POLICIES.replace(policies.or(thread_policies())));
    body()
}

/// A deadline made from a time-out, in the form that the transport can keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallDeadline {
    /// A time after a start. The socket keeps it, and the first wait may last the whole time.
    WithinFrom(Duration, Monotonic),
    /// A moment on the clock.
    At(Monotonic),
    /// No deadline.
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

    /// Returns the moment until which a slow step may continue, such as connecting or waiting for a
    /// free connection.
    #[cold]
    pub(crate) fn latest(self) -> Option<Monotonic> {
        match self {
            // A start on the coarse clock may lie too early by the clock's lag. Without a
            // correction the call would end early.
            CallDeadline::WithinFrom(duration, start) => Some(start + duration + clock::max_coarse_lag()),
            CallDeadline::At(moment) => Some(moment),
            CallDeadline::Never => None,
        }
    }

    /// Returns the deadline to use after a step that is seldom slow. The deadline becomes absolute
    /// if more than an eighth of the time has passed.
    #[inline]
    pub(crate) fn after_slow_step(self) -> CallDeadline {
        match self {
            CallDeadline::WithinFrom(duration, start) if clock::coarse_now().since(start) > duration / 8 => {
                self.to_absolute()
            }
            due => due,
        }
    }

    /// Returns how much of `timeout` has passed, if this is known.
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

    /// Makes the deadline absolute, so that a further step does not get the whole time again.
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
            retry_transient: Some(2),
            ..CallPolicies::NONE
        };
        let both = near.or(far);
        assert_eq!((both.timeout, both.retry_transient), (Some(Timeout::Never), Some(2)));
    }

    /// Covers each policy in four cases: set near, set far, set at both levels, set at neither.
    #[test]
    fn or_takes_each_policy_from_the_nearest_level() {
        let near = CallPolicies {
            timeout: Some(Timeout::Never),
            connect_timeout: Some(Duration::from_secs(1)),
            sync_scope: Some(SyncScope::Server),
            retry_transient: Some(1),
            rebind: Some(RebindMode::NoRebind),
        };
        let far = CallPolicies {
            timeout: Some(Timeout::Coarse(Duration::from_secs(9))),
            connect_timeout: Some(Duration::from_secs(9)),
            sync_scope: Some(SyncScope::None),
            retry_transient: Some(9),
            rebind: Some(RebindMode::NoReconnect),
        };
        assert_eq!(near.or(far), near);
        assert_eq!(near.or(CallPolicies::NONE), near);
        assert_eq!(CallPolicies::NONE.or(far), far);
        assert_eq!(CallPolicies::NONE.or(CallPolicies::NONE), CallPolicies::NONE);
    }

    #[test]
    fn thread_policies_nest_and_end_with_their_scope() {
        let outer = CallPolicies { retry_transient: Some(1), ..CallPolicies::NONE };
        let inner = CallPolicies { sync_scope: Some(SyncScope::Target), ..CallPolicies::NONE };
        with_call_policies(outer, || {
            with_call_policies(inner, || {
                assert_eq!(thread_policies().retry_transient, Some(1));
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

    /// A time of the virtual clock.
    const NOW: Monotonic = Monotonic::from_nanos(1_000_000_000_000);

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// Runs `body` with the calling thread's clock stopped at [`NOW`] plus `later`.
    fn at<T>(later: Duration, body: impl FnOnce() -> T) -> T {
        struct RestorePolicies;
        impl Drop for RestorePolicies {
            fn drop(&mut self) {
                clock::set(None);
            }
        }
        let _restore = RestorePolicies;
        clock::set(Some(NOW + later));
        body()
    }

    #[test]
    fn deadline_starts_at_the_call() {
        let of = |timeout| at(ms(0), || CallDeadline::from_timeout(timeout));
        assert_eq!(of(Timeout::Precise(ms(20))), CallDeadline::At(NOW + ms(20)));
        assert_eq!(of(Timeout::Precise(Duration::ZERO)), CallDeadline::At(NOW));
        assert_eq!(of(Timeout::Coarse(ms(2000))), CallDeadline::WithinFrom(ms(2000), NOW));
        // A socket treats a time-out of zero as no time-out.
        assert_eq!(of(Timeout::Coarse(Duration::ZERO)), CallDeadline::At(NOW));
        assert_eq!(of(Timeout::Never), CallDeadline::Never);
    }

    /// Uses the lag of the real clock, which is not zero; the time of day does not matter.
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
