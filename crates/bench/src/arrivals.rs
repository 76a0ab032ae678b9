//! Reports of the times at which messages reach consumers in another process.
//!
//! The reporting process connects a Unix socket to the benchmark. A report has 8 bytes: the time in
//! nanoseconds of the monotonic clock, which is common to both processes.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use corelane_sys::socket::{self, Address, SocketOptions, WaitMode};
use corelane_sys::{clock, poll};

use crate::Failure;

const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct ArrivalListener {
    socket: OwnedFd,
    name: String,
}

impl ArrivalListener {
    pub(crate) fn open() -> Result<Self, Failure> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("corelane-bench-arrivals-{}-{number}", std::process::id());
        let socket = socket::listen(&Address::Abstract(name.clone().into_bytes()), &SocketOptions::default(), 1);
        let socket = socket.map_err(|error| Failure::new(format!("no socket for arrivals: {error}")))?;
        Ok(ArrivalListener { socket, name })
    }

    /// Returns the name that the reporting process gets as an argument.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn accept(self) -> Result<Arrivals, Failure> {
        let failed = |error: std::io::Error| Failure::new(format!("no process reports arrivals: {error}"));
        if !poll::wait_readable(self.socket.as_fd(), Some(clock::now() + PATIENCE)).map_err(failed)? {
            return Err(Failure::new("no process reports arrivals"));
        }
        let (socket, _) = socket::accept(self.socket.as_fd(), WaitMode::Now).map_err(failed)?;
        socket::set_receive_timeout(socket.as_fd(), Some(PATIENCE)).map_err(failed)?;
        Ok(Arrivals { socket })
    }
}

/// The reports of one process.
#[derive(Debug)]
pub(crate) struct Arrivals {
    socket: OwnedFd,
}

impl Arrivals {
    /// Waits for the next report, and returns its time in nanoseconds.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<u64, Failure> {
        let (mut report, mut have) = ([0; 8], 0);
        while have < report.len() {
            match socket::recv(self.socket.as_fd(), &mut report[have..], WaitMode::Block) {
                Ok(0) => return Err(Failure::new("the process that reports arrivals has ended")),
                Ok(count) => have += count,
                Err(error) => return Err(Failure::new(format!("no message has arrived: {error}"))),
            }
        }
        Ok(u64::from_ne_bytes(report))
    }
}

/// The reporting side, which reports the last arrival of each group of arrivals.
pub(crate) struct ArrivalReporter {
    socket: OwnedFd,
    group: usize,
    arrived: AtomicUsize,
}

impl ArrivalReporter {
    /// Connects to the [`ArrivalListener`] of this name. `group` is the number of arrivals for a
    /// report.
    pub(crate) fn connect(name: &str, group: usize) -> Result<Self, Failure> {
        let address = Address::Abstract(name.as_bytes().to_vec());
        let socket = socket::connect(&address, &SocketOptions::default(), Some(clock::now() + PATIENCE));
        let socket = socket.map_err(|error| Failure::new(format!("arrivals cannot be reported: {error}")))?;
        Ok(ArrivalReporter { socket, group: group.max(1), arrived: AtomicUsize::new(0) })
    }

    #[inline]
    pub(crate) fn arrived(&self) {
        let now = clock::now().as_nanos();
        // `Relaxed`: several threads count, and no other memory depends on the number.
        let arrived = self.arrived.fetch_add(1, Ordering::Relaxed) + 1;
        if arrived.is_multiple_of(self.group) {
            // The result is ignored: an error means that the benchmark has ended, and a Unix socket
            // takes all 8 bytes in one call.
            let _ = socket::send(self.socket.as_fd(), &now.to_ne_bytes(), WaitMode::Block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_arrival_of_each_group_is_reported() {
        let listener = ArrivalListener::open().unwrap();
        let reporter = ArrivalReporter::connect(listener.name(), 3).unwrap();
        let mut arrivals = listener.accept().unwrap();
        let before = clock::now().as_nanos();
        (0..4).for_each(|_| reporter.arrived());
        let between = clock::now().as_nanos();
        let first = arrivals.next().unwrap();
        assert!((before..=between).contains(&first));
        (0..2).for_each(|_| reporter.arrived());
        assert!(arrivals.next().unwrap() >= between);
        drop(reporter);
        assert!(arrivals.next().is_err());
    }
}
