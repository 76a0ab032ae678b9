//! The clock of the pure state machines, which a test can stop at a virtual time.

#[cfg(not(test))]
pub(crate) use corelane_sys::clock::{coarse_now, max_coarse_lag, now};
#[cfg(test)]
pub(crate) use simulated::{coarse_now, max_coarse_lag, now, set};

#[cfg(test)]
mod simulated {
    use std::cell::Cell;
    use std::time::Duration;

    use corelane_sys::clock::{self, Monotonic};

    thread_local! {
        static TIME: Cell<Option<Monotonic>> = const { Cell::new(None) };
    }

    pub(crate) fn set(time: Option<Monotonic>) {
        TIME.set(time);
    }

    pub(crate) fn now() -> Monotonic {
        TIME.get().unwrap_or_else(clock::now)
    }

    pub(crate) fn coarse_now() -> Monotonic {
        TIME.get().unwrap_or_else(clock::coarse_now)
    }

    pub(crate) fn max_coarse_lag() -> Duration {
        TIME.get().map_or_else(clock::max_coarse_lag, |_| Duration::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use corelane_sys::clock::Monotonic;

    #[test]
    fn a_virtual_clock_stands_still() {
        let time = Monotonic::from_nanos(7);
        super::set(Some(time));
        assert_eq!((super::now(), super::coarse_now()), (time, time));
        super::set(None);
        assert!(super::now() > time);
    }
}
