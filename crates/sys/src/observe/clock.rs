//! The monotonic clock as a small `Copy` value, for deadlines and measurements.
//!
//! [`Monotonic`] counts nanoseconds of `CLOCK_MONOTONIC`; its arithmetic saturates.

use std::ops::{Add, AddAssign, Sub};
use std::sync::OnceLock;
use std::time::Duration;

/// A point in time of the machine's monotonic clock, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Monotonic(u64);

/// Returns the present moment.
#[inline]
pub fn now() -> Monotonic {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a live, writable timespec, and this clock id exists on every Linux kernel,
    // so the call cannot fail and always fills it.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    Monotonic((time.tv_sec as u64) * 1_000_000_000 + time.tv_nsec as u64)
}

/// Returns the time of the kernel's last clock tick. The tick is at most [`max_coarse_lag`] ago,
/// unless the kernel itself is late.
#[inline]
pub fn coarse_now() -> Monotonic {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a live, writable timespec, and this clock id exists on every Linux kernel,
    // so the call cannot fail and always fills it.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &mut time) };
    Monotonic((time.tv_sec as u64) * 1_000_000_000 + time.tv_nsec as u64)
}

/// Returns the time of two clock ticks, the maximum lag of [`coarse_now`] while ticks are on time.
#[cold]
pub fn max_coarse_lag() -> Duration {
    static TICK: OnceLock<Duration> = OnceLock::new();
    let tick = TICK.get_or_init(|| {
        let mut tick = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `tick` is a live, writable timespec, and this clock id exists on every Linux
        // kernel. The call fills it with the clock's resolution.
        unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &mut tick) };
        Duration::new(tick.tv_sec as u64, tick.tv_nsec as u32)
    });
    *tick * 2
}

impl Monotonic {
    /// The latest point in time, for deadlines that are never reached.
    pub const FAR_FUTURE: Self = Self(u64::MAX);

    /// Returns the point `nanoseconds` after the clock's origin.
    pub const fn from_nanos(nanoseconds: u64) -> Self {
        Self(nanoseconds)
    }

    /// Returns the nanoseconds since the clock's origin, which is arbitrary.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the present moment.
    #[inline]
    pub fn now() -> Self {
        now()
    }

    /// Returns the time from `earlier` to `self`, zero if `earlier` is later than `self`.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns the time passed since `self`, zero if `self` is in the future.
    pub fn elapsed(self) -> Duration {
        now().since(self)
    }

    /// Returns the time left until `self`, zero if `self` has passed.
    pub fn remaining(self) -> Duration {
        self.since(now())
    }

    /// Returns true if the clock has reached `self`.
    pub fn is_past(self) -> bool {
        now() >= self
    }
}

pub(crate) fn saturating_nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

pub(crate) fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: duration.as_secs().min(i32::MAX as u64) as _,
        tv_nsec: duration.subsec_nanos() as libc::c_long,
    }
}

impl Add<Duration> for Monotonic {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(saturating_nanos(duration)))
    }
}

impl AddAssign<Duration> for Monotonic {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub<Duration> for Monotonic {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(saturating_nanos(duration)))
    }
}

impl Sub for Monotonic {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn monotonic_time_advances_and_saturates() {
        let start = now();
        assert!(now() >= start);
        assert_eq!(start - (start + Duration::from_secs(1)), Duration::ZERO);
        assert_eq!((start + Duration::from_millis(3)) - start, Duration::from_millis(3));
        assert_eq!(start + Duration::MAX, Monotonic::FAR_FUTURE);
        assert!(start.is_past());
        assert!(!Monotonic::FAR_FUTURE.is_past());
    }
}
