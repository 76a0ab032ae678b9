//! What can be said of a call: how long it may take, what a oneway waits for, whether TRANSIENT is retried.
//!
//! The same policies can be set for the whole ORB, for a thread, for a reference and (on a copy of the reference) for one call;
//! the nearest one wins, each policy by itself (CORBA 3.0.3, section 4.9).

use std::cell::Cell;
use std::time::Duration;

use corelane_sys::clock::Monotonic;

use crate::clock;

/// Below this a deadline is kept precisely unless a policy says otherwise.
const PRECISE_BELOW: Duration = Duration::from_secs(1);

/// How long a call may take, from the moment it is made until its result is there. Looking up a host name and connecting are part
/// of it. (The system's resolver cannot be interrupted: a look-up that took too long goes on behind the scenes until it has its answer, which serves
/// the calls of the next ten seconds.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// Kept by a high-resolution timer: fires within tens of microseconds and costs one system call a call. Servers that are ORBs of this
    /// kind are told what is left of it, and may refuse or lower what comes too late ([`rt::Late`](crate::rt::Late)).
    Precise(Duration),
    /// Kept by the socket's own time-out: no system call a call; fires never early, and up to four ticks of the kernel's clock (16 ms
    /// at 250 Hz) and 12 % late.
    Coarse(Duration),
    /// The call may wait for ever.
    Never,
}

impl From<Duration> for Timeout {
    /// Precise below one second, else coarse.
    fn from(duration: Duration) -> Self {
        if duration < PRECISE_BELOW { Timeout::Precise(duration) } else { Timeout::Coarse(duration) }
    }
}

/// What a oneway call waits for (CORBA 3.0.3, section 22.2.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncScope {
    /// Nothing: the request may stay on its connection until others go out with it, as
    /// [`OrbBuilder::oneway_batch`](crate::OrbBuilder::oneway_batch) bounds it. It goes before any other request that the connection
    /// carries, and is lost with the connection. Requests with a real-time priority are sent at once, as are those on connections that
    /// calls share.
    None,
    /// Until the transport has taken the request.
    Transport,
    /// Until the server has the request, before the servant runs.
    Server,
    /// Until the servant has run.
    Target,
}

/// What may be done behind the back of a client whose reference is bound: a call through it has been answered (CORBA 3.0.3, section
/// 22.2.1.2). What is not permitted is REBIND; [`ObjectRef::validate_connection`](crate::ObjectRef::validate_connection) binds anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum RebindMode {
    /// Whatever it takes to make the call.
    #[default]
    Transparent,
    /// Nothing that changes the policies in force: calls go only by profiles that say the same of priorities, bands and protocols as the one
    /// that answered last, whether of the reference itself or of one that they are forwarded to.
    NoRebind,
    /// That neither, and no call opens a connection: one that finds none idle fails, for as many calls at a time as there are
    /// connections ([`ObjectRef::establish`](crate::ObjectRef::establish) makes them).
    NoReconnect,
}

/// What a call does when every connection that may be made to its server is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AllBusy {
    /// It waits for one until its deadline. Those who wait have no order, and a call that comes just now may be faster.
    #[default]
    Wait,
    /// It goes on a connection that such calls share; a thread of the ORB hands the replies out.
    Share,
}

/// Policies of calls; `None` leaves the choice to the next wider level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallPolicies {
    /// How long a call may take.
    pub timeout: Option<Timeout>,
    /// How long establishing a connection may take, the look-up of the server's name included, within `timeout`. Waiting for one of a
    /// server's connections to become free does not count.
    pub connect_timeout: Option<Duration>,
    /// What a oneway waits for.
    pub sync_scope: Option<SyncScope>,
    /// How many TRANSIENT replies with COMPLETED_NO are retried at once; 0 unless set.
    pub retry_transient: Option<u8>,
    /// What may be done behind the client's back; anything unless set.
    pub rebind: Option<RebindMode>,
}

impl CallPolicies {
    /// No policy set.
    pub const NONE: Self =
        CallPolicies { timeout: None, connect_timeout: None, sync_scope: None, retry_transient: None, rebind: None };

    /// These policies, completed by `wider` ones.
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
    static THREAD: Cell<CallPolicies> = const { Cell::new(CallPolicies::NONE) };
}

/// The calling thread's policies.
#[inline]
pub(crate) fn of_thread() -> CallPolicies {
    THREAD.get()
}

/// Runs `body` with `policies` on the calling thread, for every reference that has none of its own.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use corelane::{CallPolicies, with_call_policies};
/// let quick = CallPolicies { timeout: Some(Duration::from_millis(20).into()), ..CallPolicies::NONE };
/// with_call_policies(quick, || { /* calls made here have 20 ms */ });
/// ```
pub fn with_call_policies<T>(policies: CallPolicies, body: impl FnOnce() -> T) -> T {
    struct Restore(CallPolicies);
    impl Drop for Restore {
        fn drop(&mut self) {
            THREAD.set(self.0);
        }
    }
    let _restore = Restore(THREAD.replace(policies.or(of_thread())));
    body()
}

/// A time-out put to work: what the transport is asked to keep.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Due {
    /// This long from that moment on, kept by the socket: the first wait may last all of it.
    Within(Duration, Monotonic),
    /// Not after this moment.
    At(Monotonic),
    /// Whenever.
    Never,
}

impl Due {
    #[inline]
    pub(crate) fn of(timeout: Timeout) -> Due {
        match timeout {
            Timeout::Precise(duration) => Due::At(clock::now() + duration),
            Timeout::Coarse(Duration::ZERO) => Due::At(clock::now()),
            Timeout::Coarse(duration) => Due::Within(duration, clock::coarse_now()),
            Timeout::Never => Due::Never,
        }
    }

    /// The moment until which something slow (connecting, waiting for a free connection) may go on.
    #[cold]
    pub(crate) fn moment(self) -> Option<Monotonic> {
        match self {
            // The start may lie back: the call would end early.
            Due::Within(duration, start) => Some(start + duration + clock::coarse_lag()),
            Due::At(moment) => Some(moment),
            Due::Never => None,
        }
    }

    /// What is left when something that may have taken a while, but seldom does, is done: the whole, or until the moment.
    #[inline]
    pub(crate) fn after_a_while(self) -> Due {
        match self {
            Due::Within(duration, start) if clock::coarse_now().since(start) > duration / 8 => self.fixed(),
            due => due,
        }
    }

    /// How much of `timeout` has passed, where that can be told.
    #[cold]
    pub(crate) fn elapsed(self, timeout: Timeout) -> Option<Duration> {
        match (self, timeout) {
            (Due::At(moment), Timeout::Precise(whole) | Timeout::Coarse(whole)) => {
                Some(clock::now().since(moment - whole))
            }
            (Due::Within(_, start), _) => Some(clock::now().since(start)),
            _ => None,
        }
    }

    /// From now on an absolute moment: a call that takes a second step may not take its whole time again.
    #[cold]
    pub(crate) fn fixed(self) -> Due {
        self.moment().map_or(Due::Never, Due::At)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_level_wins_policy_by_policy() {
        let near = CallPolicies { timeout: Some(Timeout::Never), ..CallPolicies::NONE };
        let far = CallPolicies {
            timeout: Some(Duration::from_secs(3).into()),
            retry_transient: Some(2),
            ..CallPolicies::NONE
        };
        let both = near.or(far);
        assert_eq!((both.timeout, both.retry_transient), (Some(Timeout::Never), Some(2)));
    }

    #[test]
    fn thread_policies_nest_and_end_with_their_scope() {
        let outer = CallPolicies { retry_transient: Some(1), ..CallPolicies::NONE };
        let inner = CallPolicies { sync_scope: Some(SyncScope::Target), ..CallPolicies::NONE };
        with_call_policies(outer, || {
            with_call_policies(inner, || {
                assert_eq!(of_thread().retry_transient, Some(1));
                assert_eq!(of_thread().sync_scope, Some(SyncScope::Target));
            });
            assert_eq!(of_thread().sync_scope, None);
        });
        assert_eq!(of_thread(), CallPolicies::NONE);
    }

    #[test]
    fn short_timeouts_are_precise() {
        assert_eq!(Timeout::from(Duration::from_millis(999)), Timeout::Precise(Duration::from_millis(999)));
        assert_eq!(Timeout::from(Duration::from_secs(1)), Timeout::Coarse(Duration::from_secs(1)));
    }
}
