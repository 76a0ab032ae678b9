//! Mapping of CORBA priorities to the native levels 1 to 98.

use corelane::rt::{LinearMapping, NativePriorityRange, Priority, PriorityMapping};

pub(crate) const LEVELS: u8 = 98;

pub(crate) const MAPPING: LinearMapping =
    LinearMapping(NativePriorityRange { least_urgent: 1, most_urgent: LEVELS as i32 });

/// Returns the lowest and the highest CORBA priority of a level; `None` for a level that does not
/// exist.
pub(crate) fn band(level: u8) -> Option<(i16, i16)> {
    let lowest = |level: i32| MAPPING.to_corba(level).map(Priority::get);
    let low = lowest(level.into())?;
    Some((low, lowest(i32::from(level) + 1).map_or(i16::MAX, |next| next - 1)))
}

/// Returns the native level of a CORBA priority, or 0 if it has none.
pub(crate) fn level(priority: i16) -> u8 {
    let native = Priority::new(priority).and_then(|priority| MAPPING.to_native(priority));
    native.and_then(|native| u8::try_from(native).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_priority_is_in_the_band_of_its_level() {
        for priority in 0..=i16::MAX {
            let (low, high) = band(level(priority)).unwrap();
            assert!((low..=high).contains(&priority), "{priority}");
        }
        assert_eq!(
            (band(1).unwrap().0, band(LEVELS), band(0), band(LEVELS + 1)),
            (0, Some((i16::MAX, i16::MAX)), None, None)
        );
        assert!(
            (1..LEVELS).all(|level| band(level).is_some_and(|(low, high)| high - low > 300)),
            "enough priorities for many clients"
        );
    }
}
