//! Conversion between CORBA and native priorities (Real-time CORBA 1.2, `PriorityMapping`,
//! `PriorityTransform`).
//!
//! A mapping must be pure and fast, because the ORB calls it while it processes requests.

use std::fmt;

use crate::priority::Priority;

/// A priority of the operating system.
pub type NativePriority = i32;

/// A range of native priorities, from the least to the most urgent. `least_urgent` may be the
/// greater number, for systems where lower numbers are more urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NativePriorityRange {
    /// The least urgent priority.
    pub least_urgent: NativePriority,
    /// The most urgent priority.
    pub most_urgent: NativePriority,
}

impl NativePriorityRange {
    /// The priorities of Linux's SCHED_FIFO and SCHED_RR.
    pub const FIXED_PRIORITIES: NativePriorityRange = NativePriorityRange { least_urgent: 1, most_urgent: 99 };

    /// Returns true if `native` is in the range.
    #[must_use]
    pub fn contains(self, native: NativePriority) -> bool {
        (self.least_urgent.min(self.most_urgent)..=self.least_urgent.max(self.most_urgent)).contains(&native)
    }

    fn steps(self) -> (i64, i64) {
        let span = i64::from(self.most_urgent) - i64::from(self.least_urgent);
        (span.abs(), span.signum())
    }

    fn at(self, steps: i64) -> Option<NativePriority> {
        i32::try_from(i64::from(self.least_urgent) + steps * self.steps().1).ok()
    }
}

/// A mapping of CORBA priorities to native priorities and back. `None` means that the priority has
/// no counterpart; the ORB then raises DATA_CONVERSION 2.
pub trait PriorityMapping: Send + Sync + fmt::Debug + 'static {
    /// Returns the native priority for a CORBA priority.
    fn to_native(&self, priority: Priority) -> Option<NativePriority>;

    /// Returns the CORBA priority for a native priority.
    fn to_corba(&self, native: NativePriority) -> Option<Priority>;
}

/// A mapping that spreads all CORBA priorities evenly over the native range. It maps the CORBA
/// priority `c` to the native priority that is `floor(|most_urgent - least_urgent| * c / 32767)`
/// steps from `least_urgent` towards `most_urgent`. The conversion back rounds up, so that native
/// -> CORBA -> native is the identity for ranges of at most 32,768 priorities.
///
/// # Examples
/// ```
/// use corelane_sched::{LinearMapping, NativePriorityRange, Priority, PriorityMapping};
/// let linear = LinearMapping(NativePriorityRange::FIXED_PRIORITIES);
/// assert_eq!(linear.to_native(Priority::new(16384).unwrap()), Some(50));
/// assert_eq!(linear.to_corba(50), Priority::new(16384));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinearMapping(pub NativePriorityRange);

impl PriorityMapping for LinearMapping {
    fn to_native(&self, priority: Priority) -> Option<NativePriority> {
        self.0.at(self.0.steps().0 * i64::from(priority.get()) / i64::from(i16::MAX))
    }

    fn to_corba(&self, native: NativePriority) -> Option<Priority> {
        if !self.0.contains(native) {
            return None;
        }
        let span = self.0.steps().0;
        if span == 0 {
            return Some(Priority::MIN);
        }
        let steps = (i64::from(native) - i64::from(self.0.least_urgent)).abs();
        let ceiling = (i64::from(i16::MAX) * steps + span - 1) / span;
        i32::try_from(ceiling).ok().and_then(Priority::from_i32)
    }
}

/// A mapping that uses the CORBA priority as native priority, if it is in the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectMapping(pub NativePriorityRange);

impl PriorityMapping for DirectMapping {
    fn to_native(&self, priority: Priority) -> Option<NativePriority> {
        Some(i32::from(priority.get())).filter(|&native| self.0.contains(native))
    }

    fn to_corba(&self, native: NativePriority) -> Option<Priority> {
        if self.0.contains(native) { Priority::from_i32(native) } else { None }
    }
}

/// A mapping of CORBA priority 0 to the least urgent native priority, 1 to the next, and so on.
/// Greater CORBA priorities cannot be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsecutiveMapping(pub NativePriorityRange);

impl PriorityMapping for ConsecutiveMapping {
    fn to_native(&self, priority: Priority) -> Option<NativePriority> {
        let steps = i64::from(priority.get());
        if steps <= self.0.steps().0 { self.0.at(steps) } else { None }
    }

    fn to_corba(&self, native: NativePriority) -> Option<Priority> {
        if !self.0.contains(native) {
            return None;
        }
        i32::try_from((i64::from(native) - i64::from(self.0.least_urgent)).abs()).ok().and_then(Priority::from_i32)
    }
}

/// A change of the priorities of inbound and outbound requests. `None` means that a priority cannot
/// be transformed; the ORB then raises DATA_CONVERSION 2.
pub trait PriorityTransform: Send + Sync + fmt::Debug + 'static {
    /// Returns the priority at which a request with `priority` runs.
    fn inbound(&self, priority: Priority, object_id: &[u8]) -> Option<Priority>;

    /// Returns the priority of an outbound request. `priority` is the priority of the calling
    /// thread.
    fn outbound(&self, priority: Priority, object_id: &[u8]) -> Option<Priority>;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn p(number: i16) -> Priority {
        Priority::new(number).unwrap()
    }

    fn obeys(mapping: &dyn PriorityMapping, range: NativePriorityRange, direction: i32, mapped: usize) {
        let mut last: Option<i32> = None;
        let mut count = 0;
        for priority in Priority::all() {
            let Some(native) = mapping.to_native(priority) else { continue };
            count += 1;
            assert!(range.contains(native));
            assert!(last.is_none_or(|last| (native - last) * direction >= 0), "{mapping:?} at {priority}");
            last = Some(native);
            let back = mapping.to_corba(native).unwrap();
            assert!(back <= priority, "{mapping:?} at {priority}: {back}");
            assert_eq!(mapping.to_native(back), Some(native));
        }
        assert_eq!(count, mapped, "{mapping:?}");
        for outside in [
            range.least_urgent.min(range.most_urgent) - 1,
            range.least_urgent.max(range.most_urgent) + 1,
            i32::MIN,
            i32::MAX,
        ] {
            assert_eq!(mapping.to_corba(outside), None);
        }
    }

    #[test]
    fn all_32768_priorities_through_each_mapping() {
        let inverted = NativePriorityRange { least_urgent: 2, most_urgent: -15 };
        obeys(&LinearMapping(NativePriorityRange::FIXED_PRIORITIES), NativePriorityRange::FIXED_PRIORITIES, 1, 32768);
        obeys(&LinearMapping(inverted), inverted, -1, 32768);
        obeys(
            &LinearMapping(NativePriorityRange { least_urgent: 7, most_urgent: 7 }),
            NativePriorityRange { least_urgent: 7, most_urgent: 7 },
            1,
            32768,
        );
        obeys(&DirectMapping(NativePriorityRange::FIXED_PRIORITIES), NativePriorityRange::FIXED_PRIORITIES, 1, 99);
        obeys(&ConsecutiveMapping(NativePriorityRange::FIXED_PRIORITIES), NativePriorityRange::FIXED_PRIORITIES, 1, 99);
        obeys(&ConsecutiveMapping(inverted), inverted, -1, 18);
        let wide = NativePriorityRange { least_urgent: i32::MIN, most_urgent: i32::MAX };
        assert_eq!(LinearMapping(wide).to_native(Priority::MAX), Some(i32::MAX));
        assert_eq!(ConsecutiveMapping(wide).to_native(p(1)), Some(i32::MIN + 1));
    }

    #[test]
    fn linear_mapping_equals_the_mapping_of_other_orbs() {
        let linear = LinearMapping(NativePriorityRange::FIXED_PRIORITIES);
        let table = [
            (0, 1),
            (334, 1),
            (335, 2),
            (1000, 3),
            (8192, 25),
            (16383, 49),
            (16384, 50),
            (24576, 74),
            (32432, 97),
            (32433, 98),
            (32766, 98),
            (32767, 99),
        ];
        for (corba, native) in table {
            assert_eq!(linear.to_native(p(corba)), Some(native), "{corba}");
        }
        for (native, corba) in [(1, 0), (2, 335), (25, 8025), (50, 16384), (75, 24743), (98, 32433), (99, 32767)] {
            assert_eq!(linear.to_corba(native), Some(p(corba)), "{native}");
        }
        for native in 1..=99 {
            assert_eq!(linear.to_native(linear.to_corba(native).unwrap()), Some(native));
        }
    }

    #[test]
    fn user_mapping_may_refuse_priorities() {
        #[derive(Debug)]
        struct Even;
        impl PriorityMapping for Even {
            fn to_native(&self, priority: Priority) -> Option<NativePriority> {
                (priority.get() % 2 == 0).then(|| i32::from(priority.get()) / 2)
            }
            fn to_corba(&self, native: NativePriority) -> Option<Priority> {
                native.checked_mul(2).and_then(Priority::from_i32)
            }
        }
        let mapped: Vec<_> = Priority::all().filter_map(|priority| Even.to_native(priority)).collect();
        assert_eq!((mapped.len(), Even.to_native(p(3)), Even.to_corba(20_000)), (16384, None, None));
    }
}
