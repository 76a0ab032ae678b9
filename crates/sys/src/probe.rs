//! Trace points on the request path, which cost nothing unless the feature `probes` is on.
//!
//! A point is `probe!("request read")` or `probe!("request read", octets)`; the value is computed only with the
//! feature. Each thread then keeps its last [`KEPT`] points with the time of each, without allocating, locking or
//! system calls, for [`take`] to read on the same thread.

/// A point passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Its name.
    pub name: &'static str,
    /// When: nanoseconds of the monotonic clock.
    pub at: u64,
    /// The value given, or 0.
    pub value: u64,
}

/// Points that a thread keeps.
pub const KEPT: usize = 1024;

/// Marks a point on the request path: `probe!("name")` or `probe!("name", value)` with a value that is a `u64`.
#[macro_export]
macro_rules! probe {
    ($name:literal) => {
        $crate::probe::pass($name, || 0)
    };
    ($name:literal, $value:expr) => {
        $crate::probe::pass($name, || $value)
    };
}

/// What [`probe!`] calls.
#[cfg(not(feature = "probes"))]
#[inline(always)]
pub fn pass(_name: &'static str, _value: impl FnOnce() -> u64) {}

/// What [`probe!`] calls.
#[cfg(feature = "probes")]
#[inline]
pub fn pass(name: &'static str, value: impl FnOnce() -> u64) {
    kept::keep(Point { name, at: crate::clock::now().as_nanos(), value: value() });
}

/// Gives the calling thread's points to `with`, oldest first, and forgets them. None without the feature.
pub fn take(with: impl FnMut(Point)) {
    #[cfg(feature = "probes")]
    kept::take(with);
    #[cfg(not(feature = "probes"))]
    let _ = with;
}

#[cfg(feature = "probes")]
mod kept {
    use std::cell::{Cell, RefCell};

    use super::{KEPT, Point};

    const NO_POINT: Point = Point { name: "", at: 0, value: 0 };

    thread_local! {
        static POINTS: RefCell<[Point; KEPT]> = const { RefCell::new([NO_POINT; KEPT]) };
        /// Points passed since the last taking.
        static PASSED: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn keep(point: Point) {
        POINTS.with(|points| {
            // Borrowed only while `take` runs, whose callback may pass points: those are not kept.
            if let Ok(mut points) = points.try_borrow_mut() {
                let passed = PASSED.get();
                points[passed % KEPT] = point;
                PASSED.set(passed + 1);
            }
        });
    }

    pub(super) fn take(mut with: impl FnMut(Point)) {
        POINTS.with(|points| {
            let Ok(points) = points.try_borrow() else { return };
            let passed = PASSED.replace(0);
            for at in passed.saturating_sub(KEPT)..passed {
                with(points[at % KEPT]);
            }
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn points_are_kept_only_with_the_feature() {
        let mut computed = 0;
        for n in 0..KEPT as u64 + 2 {
            crate::probe!("test", {
                computed += 1;
                n
            });
        }
        crate::probe!("end");
        let mut points = Vec::new();
        take(|point| points.push((point.name, point.value)));
        if cfg!(feature = "probes") {
            assert_eq!((points.len(), points[0], points[KEPT - 1]), (KEPT, ("test", 3), ("end", 0)));
            assert_eq!(computed, KEPT + 2);
        } else {
            assert_eq!((points.len(), computed), (0, 0));
        }
        take(|point| panic!("{point:?} was taken before"));
    }
}
