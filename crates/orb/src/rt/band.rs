//! Connection bands: sets of calls that may share connections.

use corelane_sched::{NativePriority, Priority, PriorityBand, PriorityMapping};
use corelane_sys::thread::{self, Scheduling};

use super::config::RtConfig;
use crate::exception::SystemException;

/// A set of calls that may share connections. Calls through references with priority bands are in
/// one set if their priorities are in one band. Calls through other references are in one set if
/// the native priorities of their threads are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionBand(u32);

/// With this flag, the low 30 bits are the two ends of a range; without it, the number is a native
/// priority, or 0.
const RANGE_FLAG: u32 = 1 << 31;

impl ConnectionBand {
    #[inline]
    pub(crate) fn for_current_thread() -> Self {
        ConnectionBand(thread::native_priority().into())
    }

    /// Returns the band of calls at the native priority to which `priority` is mapped. If the ORB's
    /// scheduling class is `Fair`, priorities have no native priority, and the function returns the
    /// band of the calling thread.
    ///
    /// # Errors
    /// DATA_CONVERSION 2 for a priority that cannot be mapped.
    pub(crate) fn for_priority(rt: &RtConfig, priority: Priority) -> Result<Self, SystemException> {
        let native = rt.scheduling_for(priority)?;
        Ok(native.map_or_else(Self::for_current_thread, |native| ConnectionBand(native.priority().into())))
    }

    pub(crate) fn for_range(range: PriorityBand) -> Self {
        let number = |priority: Priority| u32::from(priority.get().unsigned_abs());
        ConnectionBand(RANGE_FLAG | number(range.low) << 15 | number(range.high))
    }

    /// Returns the highest priority of a range, or the CORBA priority of a native priority. Returns
    /// `None` for threads without a real-time priority, and if the mapping has no value.
    pub(crate) fn priority(self, mapping: &dyn PriorityMapping) -> Option<Priority> {
        match self.range() {
            Some((_, high)) => Priority::new(high),
            None if self.0 == 0 => None,
            None => mapping.to_corba(NativePriority::try_from(self.0).ok()?),
        }
    }

    pub(crate) fn range(self) -> Option<(i16, i16)> {
        let end = |bits: u32| i16::try_from(bits & 0x7fff).ok();
        if self.0 & RANGE_FLAG == 0 { None } else { end(self.0 >> 15).zip(end(self.0)) }
    }

    pub(crate) fn scheduling(self, rt: &RtConfig) -> Result<Option<Scheduling>, SystemException> {
        match (self.range(), u8::try_from(self.0)) {
            (Some((_, high)), _) => Priority::new(high).map_or(Ok(None), |high| rt.scheduling_for(high)),
            // For a thread in SCHED_DEADLINE, the ORB works at the highest fixed priority.
            (None, Ok(native)) if native > 0 => {
                Ok(Some(Scheduling::Fifo(native.min(*Scheduling::FIXED_PRIORITIES.end()))))
            }
            (None, _) => Ok(None),
        }
    }

    pub(crate) fn is_real_time(self) -> bool {
        self.0 != 0
    }

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
