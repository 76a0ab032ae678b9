//! How connections end (decision 12): the last message, then the end of writing, then the peer's last octets are read, so that
//! the kernel does not cut the connection before the peer has read the message. Bounded in number and time.

use std::sync::Arc;
use std::time::Duration;

use corelane_net::{Half, Wait};
use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{Mutex, Scope};

use super::connection::Connection;

/// Connections that are read to their end at a time; further ones are cut.
const MOST: usize = 256;
/// How long a peer has to close its side.
const TIME: Duration = Duration::from_secs(2);

/// Connections that are over but for the peer's last octets.
#[derive(Debug)]
pub(crate) struct Lingering(Mutex<Vec<(Arc<Connection>, Monotonic)>>);

impl Lingering {
    pub(crate) fn new() -> Self {
        Lingering(Mutex::new("closing connections", Scope::Lane, Vec::new()))
    }

    /// Sends `last` and leaves the rest to [`tidy`](Self::tidy).
    #[cold]
    pub(crate) fn finish(&self, connection: Arc<Connection>, last: &[u8]) {
        if connection.is_closed() {
            return;
        }
        connection.finish(last);
        let mut lingering = self.0.lock();
        if lingering.len() >= MOST {
            let (oldest, _) = lingering.remove(0);
            oldest.close();
        }
        lingering.push((connection, Monotonic::now() + TIME));
    }

    /// Cuts those that are left.
    pub(crate) fn cut(&self) {
        for (connection, _) in self.0.lock().drain(..) {
            connection.close();
        }
    }

    /// Reads what peers still send, and cuts those whose time is over. True while any are left.
    pub(crate) fn tidy(&self) -> bool {
        let mut waste = [0; 4096];
        let now = Monotonic::now();
        let mut lingering = self.0.lock();
        lingering.retain(|(connection, until)| {
            for _ in 0..64 {
                match connection.stream.recv(&mut waste, Wait::Now) {
                    Ok(0) => return false,
                    Ok(_) => {}
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                    Err(_) => return false,
                }
            }
            let in_time = now < *until;
            if !in_time {
                connection.stream.shutdown(Half::Both);
            }
            in_time
        });
        !lingering.is_empty()
    }
}
