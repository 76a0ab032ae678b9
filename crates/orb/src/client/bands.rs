//! The connections to one server: a pool for each priority band, so that no connection carries two.

use std::sync::{Arc, OnceLock};

use corelane_net::Endpoint;
use corelane_sched::{NativePriority, Priority, PriorityBand, PriorityMapping};
use corelane_sys::thread::{self, Scheduling};

use super::pool::Pool;
use crate::exception::SystemException;
use crate::orb::Core;
use crate::rt::RtConfig;
use crate::rt::policies::Sockets;

/// Calls that may share connections: those of threads with the same native priority, or where a reference has priority bands, those
/// of one band.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Band(u32);

/// Set in the numbers of a reference's priority bands; the ends, of 15 bits each, are below it.
const RANGES: u32 = 1 << 31;

impl Band {
    /// The band of calls that the calling thread makes.
    #[inline]
    pub(crate) fn of_thread() -> Self {
        Band(thread::native_priority().into())
    }

    /// The band of calls of threads at `priority`.
    ///
    /// # Errors
    /// DATA_CONVERSION 2 for a priority that cannot be mapped.
    pub(crate) fn of_priority(core: &Core, priority: Priority) -> Result<Self, SystemException> {
        let native = core.config().rt.native(priority)?;
        Ok(native.map_or_else(Self::of_thread, |native| Band(native.priority().into())))
    }

    /// The band of calls in a range of priorities: references that have the same one share its connections.
    pub(crate) fn of_range(range: PriorityBand) -> Self {
        let number = |priority: Priority| u32::from(priority.get().unsigned_abs());
        Band(RANGES | number(range.low) << 15 | number(range.high))
    }

    /// The priority that stands for the band: the highest of a range, else that of the threads; `None` without a fixed one.
    pub(crate) fn priority(self, mapping: &dyn PriorityMapping) -> Option<Priority> {
        match self.range() {
            Some((_, high)) => Priority::new(high),
            None if self.0 == 0 => None,
            None => mapping.to_corba(NativePriority::try_from(self.0).ok()?),
        }
    }

    /// The range of priorities, of a band that is one.
    pub(crate) fn range(self) -> Option<(i16, i16)> {
        let end = |bits: u32| i16::try_from(bits & 0x7fff).ok();
        if self.0 & RANGES == 0 { None } else { end(self.0 >> 15).zip(end(self.0)) }
    }

    /// How the kernel schedules the highest of its callers; `None` for the ordinary class.
    ///
    /// # Errors
    /// DATA_CONVERSION 2 for a range whose end cannot be mapped.
    pub(crate) fn native(self, rt: &RtConfig) -> Result<Option<Scheduling>, SystemException> {
        match (self.range(), u8::try_from(self.0)) {
            (Some((_, high)), _) => Priority::new(high).map_or(Ok(None), |high| rt.native(high)),
            // Callers of the deadline class are beyond all fixed priorities.
            (None, Ok(native)) if native > 0 => Ok(Some(Scheduling::Fifo(native.min(*Scheduling::PRIORITIES.end())))),
            (None, _) => Ok(None),
        }
    }

    /// Whether its callers may have a real-time priority.
    pub(crate) fn is_real_time(self) -> bool {
        self.0 != 0
    }

    /// A number of its own, for names.
    pub(crate) fn number(self) -> u32 {
        self.0
    }
}

/// The pools of one server. They are few and never go, so they are a list that is only added to: finding one takes no lock.
#[derive(Debug)]
pub(crate) struct Bands {
    endpoints: Arc<[Endpoint]>,
    sockets: Sockets,
    bound: usize,
    first: OnceLock<Box<Entry>>,
}

#[derive(Debug)]
struct Entry {
    band: Band,
    pool: Arc<Pool>,
    next: OnceLock<Box<Entry>>,
}

impl Bands {
    /// Of the server at `endpoints`, addresses of one profile in the order to try; `bound` connections a band at most.
    pub(crate) fn new(endpoints: &[Endpoint], sockets: Sockets, bound: usize) -> Self {
        Bands { endpoints: endpoints.into(), sockets, bound, first: OnceLock::new() }
    }

    /// The pool of a band.
    #[inline]
    pub(crate) fn pool(&self, band: Band) -> &Arc<Pool> {
        match self.first.get() {
            Some(first) if first.band == band => &first.pool,
            _ => self.find(band),
        }
    }

    #[cold]
    fn find(&self, band: Band) -> &Arc<Pool> {
        let mut place = &self.first;
        loop {
            // Whoever comes first to the end of the list adds to it; the others look at what was added.
            let entry = place.get_or_init(|| {
                let pool = Arc::new(Pool::new(Arc::clone(&self.endpoints), self.sockets, band, self.bound));
                Box::new(Entry { band, pool, next: OnceLock::new() })
            });
            if entry.band == band {
                return &entry.pool;
            }
            place = &entry.next;
        }
    }

    /// Every pool there is.
    pub(crate) fn pools(&self) -> impl Iterator<Item = &Arc<Pool>> {
        std::iter::successors(self.first.get(), |entry| entry.next.get()).map(|entry| &entry.pool)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_told_apart_by_their_ends() {
        let band = |low, high| Band::of_range(PriorityBand::new(low, high).unwrap());
        assert_eq!((band(5, 15).range(), band(0, 32767).range()), (Some((5, 15)), Some((0, 32767))));
        assert_ne!(band(5, 15), band(5, 16));
        assert_eq!((Band(0).range(), Band(99).range()), (None, None));
    }

    #[test]
    fn each_band_has_a_pool_of_its_own() {
        let bands = Bands::new(&[Endpoint::tcp("127.0.0.1", 1)], Sockets::default(), 2);
        let pools: Vec<_> = [0, 5, 99].map(|band| Arc::clone(bands.pool(Band(band)))).into();
        assert!(!Arc::ptr_eq(&pools[0], &pools[1]) && !Arc::ptr_eq(&pools[1], &pools[2]));
        assert!(Arc::ptr_eq(bands.pool(Band(99)), &pools[2]) && Arc::ptr_eq(bands.pool(Band(0)), &pools[0]));
        assert!(bands.pools().zip(&pools).all(|(found, made)| Arc::ptr_eq(found, made)));
        assert_eq!(bands.pools().count(), 3);
    }
}
