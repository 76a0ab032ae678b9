//! Bands: sets of calls that may share connections.

use corelane_sched::{NativePriority, Priority, PriorityBand, PriorityMapping};
use corelane_sys::thread::{self, Scheduling};

use super::config::RtConfig;
use crate::exception::SystemException;

/// A set of calls that may share connections. Through references without priority bands, a set has
/// the calls of all threads with one native priority. Through references with priority bands, a set
/// has the calls of one priority band.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionBand(u32);

/// Flag of a band that is a range of priorities. The lower bits hold the two ends of the range, 15
/// bits each.
const RANGE_FLAG: u32 = 1 << 31;

impl ConnectionBand {
    /// Returns the band of calls that the calling thread makes.
    #[inline]
    pub(crate) fn for_current_thread() -> Self {
        ConnectionBand(thread::native_priority().into())
    }

    /// Returns the band for the calls of threads at `priority`.
    ///
    /// # Errors
    /// DATA_CONVERSION 2 for a priority that cannot be mapped.
    pub(crate) fn for_priority(rt: &RtConfig, priority: Priority) -> Result<Self, SystemException> {
        let native = rt.scheduling_for(priority)?;
        Ok(native.map_or_else(Self::for_current_thread, |native| ConnectionBand(native.priority().into())))
    }

    /// Returns the band for calls with a range of priorities. References with the same range share
    /// the connections of the band.
    pub(crate) fn for_range(range: PriorityBand) -> Self {
        let number = |priority: Priority| u32::from(priority.get().unsigned_abs());
        ConnectionBand(RANGE_FLAG | number(range.low) << 15 | number(range.high))
    }

    /// Returns the priority that represents the band: the highest priority of a range, otherwise
    /// the priority of the threads. Returns `None` if the threads have no fixed priority.
    pub(crate) fn priority(self, mapping: &dyn PriorityMapping) -> Option<Priority> {
        match self.range() {
            Some((_, high)) => Priority::new(high),
            None if self.0 == 0 => None,
            None => mapping.to_corba(NativePriority::try_from(self.0).ok()?),
        }
    }

    /// Returns the two ends of the range. Returns `None` if the band is not a range of priorities.
    pub(crate) fn range(self) -> Option<(i16, i16)> {
        let end = |bits: u32| i16::try_from(bits & 0x7fff).ok();
        if self.0 & RANGE_FLAG == 0 { None } else { end(self.0 >> 15).zip(end(self.0)) }
    }

    /// Returns the scheduling of the band's callers with the highest priority. Returns `None` for
    /// the ordinary class.
    ///
    /// # Errors
    /// DATA_CONVERSION 2 if an end of the range cannot be mapped.
    pub(crate) fn scheduling(self, rt: &RtConfig) -> Result<Option<Scheduling>, SystemException> {
        match (self.range(), u8::try_from(self.0)) {
            (Some((_, high)), _) => Priority::new(high).map_or(Ok(None), |high| rt.scheduling_for(high)),
            // Callers of the deadline class run before all fixed priorities, so the highest fixed
            // priority represents them.
            (None, Ok(native)) if native > 0 => {
                Ok(Some(Scheduling::Fifo(native.min(*Scheduling::FIXED_PRIORITIES.end()))))
            }
            (None, _) => Ok(None),
        }
    }

    /// Returns true if the band's callers may have a real-time priority.
    pub(crate) fn is_real_time(self) -> bool {
        self.0 != 0
    }

    /// Returns a number that is unique to this band. Names of threads contain it.
    pub(crate) fn id(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_differ_by_both_ends() {
        let band = |low, high| ConnectionBand::for_range(PriorityBand::new(low, high).unwrap());
        assert_eq!((band(5, 15).range(), band(0, 32767).range()), (Some((5, 15)), Some((0, 32767))));
        assert_ne!(band(5, 15), band(5, 16));
        assert_eq!((ConnectionBand(0).range(), ConnectionBand(99).range()), (None, None));
    }
}
