//! The connections to one server: one pool for each connection band.

use std::sync::{Arc, OnceLock};

use corelane_net::Endpoint;

use super::pool::ConnectionPool;
use crate::rt::band::ConnectionBand;
use crate::rt::protocol::SocketSettings;

/// A pool is never removed, so a look-up takes no lock.
#[derive(Debug)]
pub(crate) struct ServerPools {
    endpoints: Arc<[Endpoint]>,
    sockets: SocketSettings,
    max_connections: usize,
    first: OnceLock<Box<BandPool>>,
}

#[derive(Debug)]
struct BandPool {
    band: ConnectionBand,
    pool: Arc<ConnectionPool>,
    next: OnceLock<Box<BandPool>>,
}

impl ServerPools {
    pub(crate) fn new(endpoints: &[Endpoint], sockets: SocketSettings, max_connections: usize) -> Self {
        ServerPools { endpoints: endpoints.into(), sockets, max_connections, first: OnceLock::new() }
    }

    #[inline]
    pub(crate) fn pool(&self, band: ConnectionBand) -> &Arc<ConnectionPool> {
        match self.first.get() {
            Some(first) if first.band == band => &first.pool,
            _ => self.find(band),
        }
    }

    #[cold]
    fn find(&self, band: ConnectionBand) -> &Arc<ConnectionPool> {
        let mut place = &self.first;
        loop {
            let entry = place.get_or_init(|| {
                let pool = Arc::new(ConnectionPool::new(
                    Arc::clone(&self.endpoints),
                    self.sockets,
                    band,
                    self.max_connections,
                ));
                Box::new(BandPool { band, pool, next: OnceLock::new() })
            });
            if entry.band == band {
                return &entry.pool;
            }
            place = &entry.next;
        }
    }

    pub(crate) fn pools(&self) -> impl Iterator<Item = &Arc<ConnectionPool>> {
        std::iter::successors(self.first.get(), |entry| entry.next.get()).map(|entry| &entry.pool)
    }
}

#[cfg(test)]
mod tests {
    use corelane_sched::PriorityBand;

    use super::*;

    #[test]
    fn each_band_has_a_pool_of_its_own() {
        let bands = ServerPools::new(&[Endpoint::tcp("127.0.0.1", 1)], SocketSettings::default(), 2);
        let range = |low, high| ConnectionBand::for_range(PriorityBand::new(low, high).unwrap());
        let [first, second, third] = [range(0, 4), range(5, 98), range(99, 99)];
        let pools = [first, second, third].map(|band| Arc::clone(bands.pool(band)));
        assert!(!Arc::ptr_eq(&pools[0], &pools[1]) && !Arc::ptr_eq(&pools[1], &pools[2]));
        assert!(Arc::ptr_eq(bands.pool(third), &pools[2]) && Arc::ptr_eq(bands.pool(first), &pools[0]));
        assert!(bands.pools().zip(&pools).all(|(found, made)| Arc::ptr_eq(found, made)));
        assert_eq!(bands.pools().count(), 3);
    }
}
