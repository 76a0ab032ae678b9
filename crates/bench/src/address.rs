//! Addresses of the servers that benchmarks start.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::baseline::BaselineTransport;

pub(crate) const LOOPBACK: &str = "tcp:127.0.0.1:0";

pub(crate) fn free_address(transport: BaselineTransport) -> String {
    static USED: AtomicUsize = AtomicUsize::new(0);
    if transport == BaselineTransport::Tcp {
        return LOOPBACK.to_owned();
    }
    let number = USED.fetch_add(1, Ordering::Relaxed);
    let name = format!("corelane-bench-{}-{number}.sock", std::process::id());
    format!("{}:{}", transport.name(), std::env::temp_dir().join(name).display())
}
