//! Addresses at which the servers of benchmarks listen.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::baseline::BaselineTransport;

/// TCP address at which benchmarks listen.
pub(crate) const LOOPBACK: &str = "tcp:127.0.0.1:0";

/// Returns a free address of a transport. For Unix sockets and shared memory it is a path that no
/// other server has.
pub(crate) fn free_address(carrier: BaselineTransport) -> String {
    static USED: AtomicUsize = AtomicUsize::new(0);
    if carrier == BaselineTransport::Tcp {
        return LOOPBACK.to_owned();
    }
    let number = USED.fetch_add(1, Ordering::Relaxed);
    let name = format!("corelane-bench-{}-{number}.sock", std::process::id());
    format!("{}:{}", carrier.name(), std::env::temp_dir().join(name).display())
}
