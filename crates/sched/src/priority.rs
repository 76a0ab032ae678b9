//! CORBA priorities (Real-time CORBA 1.2, `RTCORBA::Priority`).

use std::fmt;

/// A CORBA priority, from 0, the lowest, to 32767. It is machine-independent; a mapping converts it
/// to a native priority.
///
/// # Examples
/// ```
/// use corelane_sched::Priority;
/// assert_eq!(Priority::new(1000).unwrap().get(), 1000);
/// assert!(Priority::new(-1).is_none());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(i16);

impl Priority {
    /// The lowest priority, `minPriority`.
    pub const MIN: Priority = Priority(0);
    /// The highest priority, `maxPriority`.
    pub const MAX: Priority = Priority(i16::MAX);

    /// Returns the priority with this number; `None` for a negative number.
    #[must_use]
    pub const fn new(number: i16) -> Option<Priority> {
        if number >= 0 { Some(Priority(number)) } else { None }
    }

    /// Returns the priority with this number; `None` if the number is out of range.
    #[must_use]
    pub fn from_i32(number: i32) -> Option<Priority> {
        i16::try_from(number).ok().and_then(Priority::new)
    }

    /// Returns the number of the priority, as on the wire.
    #[must_use]
    pub const fn get(self) -> i16 {
        self.0
    }

    /// Returns every priority, ascending.
    pub fn all() -> impl Iterator<Item = Priority> {
        (0..=i16::MAX).map(Priority)
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_range_of_the_specification_exists() {
        assert_eq!((Priority::MIN.get(), Priority::MAX.get(), Priority::all().count()), (0, 32767, 32768));
        assert!(Priority::new(i16::MIN).is_none() && Priority::from_i32(32768).is_none());
        assert_eq!(Priority::from_i32(32767), Some(Priority::MAX));
    }

    #[test]
    fn a_priority_is_printed_as_its_number() {
        assert_eq!(Priority::MAX.to_string(), "32767");
        assert_eq!(format!("{:>4}", Priority::MIN), "   0");
    }
}
