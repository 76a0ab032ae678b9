//! The connections to one server: a pool for each priority band, so that no connection carries two (decision 1).

use std::sync::{Arc, OnceLock};

use corelane_net::Endpoint;
use corelane_sys::thread;

use super::pool::Pool;

/// Calls that may share connections: those of threads with the same native priority, or where a reference has priority bands, those
/// of one band.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Band(u32);

/// Where the numbers of a reference's priority bands begin.
const RANGES: u32 = 1 << 8;

impl Band {
    /// The band of calls that the calling thread makes.
    #[inline]
    pub(crate) fn of_thread() -> Self {
        Band(thread::native_priority().into())
    }

    /// The band of calls in a reference's `index`th range of priorities.
    pub(crate) fn of_range(index: usize) -> Self {
        Band(RANGES + u32::try_from(index).unwrap_or(u32::MAX - RANGES))
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
    pub(crate) fn new(endpoints: &[Endpoint], bound: usize) -> Self {
        Bands { endpoints: endpoints.into(), bound, first: OnceLock::new() }
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
                let pool = Arc::new(Pool::new(Arc::clone(&self.endpoints), band, self.bound));
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
    fn each_band_has_a_pool_of_its_own() {
        let bands = Bands::new(&[Endpoint::tcp("127.0.0.1", 1)], 2);
        let pools: Vec<_> = [0, 5, 99].map(|band| Arc::clone(bands.pool(Band(band)))).into();
        assert!(!Arc::ptr_eq(&pools[0], &pools[1]) && !Arc::ptr_eq(&pools[1], &pools[2]));
        assert!(Arc::ptr_eq(bands.pool(Band(99)), &pools[2]) && Arc::ptr_eq(bands.pool(Band(0)), &pools[0]));
        assert!(bands.pools().zip(&pools).all(|(found, made)| Arc::ptr_eq(found, made)));
        assert_eq!(bands.pools().count(), 3);
    }
}
