//! CORBA priorities (Real-time CORBA 1.2, `RTCORBA::Priority`).

use std::fmt;

/// A CORBA priority: 0, the lowest, to 32767. The same on every machine; a mapping leads to the machine's own.
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
    /// `minPriority`.
    pub const MIN: Priority = Priority(0);
    /// `maxPriority`.
    pub const MAX: Priority = Priority(i16::MAX);

    /// The priority with this number; `None` for a negative one.
    #[must_use]
    pub const fn new(number: i16) -> Option<Priority> {
        if number >= 0 { Some(Priority(number)) } else { None }
    }

    /// The same from a wider number.
    #[must_use]
    pub fn from_i32(number: i32) -> Option<Priority> {
        i16::try_from(number).ok().and_then(Priority::new)
    }

    /// Its number, as it travels.
    #[must_use]
    pub const fn get(self) -> i16 {
        self.0
    }

    /// Every priority, ascending.
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
}
