//! Keeping the cores awake: while /dev/cpu_dma_latency is held open at 0, no core enters an idle state that takes time to leave.

use std::fs::{File, OpenOptions};
use std::io::Write;

/// Holds the cores out of idle states until it is dropped.
#[derive(Debug)]
pub(crate) struct Awake {
    _device: File,
}

impl Awake {
    /// None without the permission, or where there is no such device.
    pub(crate) fn hold() -> Option<Self> {
        let mut device = OpenOptions::new().write(true).open("/dev/cpu_dma_latency").ok()?;
        // The device takes microseconds as a native 32-bit integer.
        device.write_all(&0i32.to_ne_bytes()).ok()?;
        Some(Awake { _device: device })
    }
}
