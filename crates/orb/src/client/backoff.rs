//! The back-off of endpoints to which a connection failed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use corelane_net::Endpoint;
use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{LockScope, PiMutex};

/// Back-off after a first failure. Each further failure doubles the back-off, up to
/// [`MAX_BACKOFF`].
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// Maximum number of entries. A new endpoint in a full table replaces the outdated entries, or else
/// the entry whose back-off ends soonest.
const MAX_ENDPOINTS: usize = 256;

#[derive(Debug)]
pub(crate) struct EndpointBackoff {
    /// The lock has priority inheritance, because callers of all priorities take it before they
    /// connect.
    entries: PiMutex<HashMap<Endpoint, Backoff>>,
    /// Number of entries. Stored `Relaxed` by the holder of the lock, loaded `Relaxed` by any
    /// thread.
    count: AtomicUsize,
}

#[derive(Clone, Copy, Debug)]
struct Backoff {
    failures: u32,
    until: Monotonic,
}

impl Backoff {
    fn is_known(self, now: Monotonic) -> bool {
        now < self.until + MAX_BACKOFF
    }
}

impl EndpointBackoff {
    pub(crate) fn new() -> Self {
        EndpointBackoff {
            entries: PiMutex::new("endpoints that failed", LockScope::Orb, HashMap::new()),
            count: AtomicUsize::new(0),
        }
    }

    #[cold]
    pub(crate) fn record_failure(&self, endpoint: &Endpoint, now: Monotonic) {
        let mut entries = self.entries.lock();
        let earlier =
            entries.get(endpoint).filter(|backoff| backoff.is_known(now)).map_or(0, |backoff| backoff.failures);
        if entries.len() >= MAX_ENDPOINTS && !entries.contains_key(endpoint) {
            entries.retain(|_, backoff| backoff.is_known(now));
            let soonest = entries.iter().min_by_key(|(_, backoff)| backoff.until).map(|(endpoint, _)| endpoint.clone());
            if let Some(soonest) = soonest.filter(|_| entries.len() >= MAX_ENDPOINTS) {
                entries.remove(&soonest);
            }
        }
        let backoff = (FIRST_BACKOFF * 2_u32.saturating_pow(earlier.min(16))).min(MAX_BACKOFF);
        entries.insert(endpoint.clone(), Backoff { failures: earlier.saturating_add(1), until: now + backoff });
        self.count.store(entries.len(), Ordering::Relaxed);
    }

    pub(crate) fn record_success(&self, endpoint: &Endpoint) {
        if !self.is_empty() {
            let mut entries = self.entries.lock();
            entries.remove(endpoint);
            self.count.store(entries.len(), Ordering::Relaxed);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    pub(crate) fn is_backing_off(&self, endpoint: &Endpoint, now: Monotonic) -> bool {
        !self.is_empty() && self.entries.lock().get(endpoint).is_some_and(|backoff| now < backoff.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(second: u64) -> Monotonic {
        Monotonic::from_nanos(second * 1_000_000_000)
    }

    #[test]
    fn backoff_doubles_with_each_failure_up_to_a_minute() {
        let (table, endpoint) = (EndpointBackoff::new(), Endpoint::tcp("far", 1));
        let mut now = second(1000);
        for backoff in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert!(!table.is_backing_off(&endpoint, now));
            table.record_failure(&endpoint, now);
            assert!(table.is_backing_off(&endpoint, now + Duration::from_secs(backoff) - Duration::from_nanos(1)));
            now += Duration::from_secs(backoff);
        }
        table.record_success(&endpoint);
        assert!(!table.is_backing_off(&endpoint, now));
        table.record_failure(&endpoint, now);
        assert!(
            !table.is_backing_off(&endpoint, now + Duration::from_secs(1)),
            "a success must end the sequence of failures"
        );
        let later = now + Duration::from_secs(62);
        table.record_failure(&endpoint, later);
        assert!(
            !table.is_backing_off(&endpoint, later + Duration::from_secs(1)),
            "a failure long after the last one must begin a new sequence"
        );
    }

    #[test]
    fn number_of_endpoints_is_bounded() {
        let table = EndpointBackoff::new();
        let endpoint = |port: usize| Endpoint::tcp("far", u16::try_from(port).unwrap());
        for port in 0..2 * MAX_ENDPOINTS {
            table.record_failure(&endpoint(port), second(1) + Duration::from_nanos(port as u64));
        }
        assert_eq!(table.entries.lock().len(), MAX_ENDPOINTS);
        assert!(table.is_backing_off(&endpoint(2 * MAX_ENDPOINTS - 1), second(1)));
        assert!(!table.is_backing_off(&endpoint(0), second(1)));
    }
}
