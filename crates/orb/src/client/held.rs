//! Oneways that stay with their connections until others go out with them ([`SyncScope::None`](crate::SyncScope::None)).
//!
//! What is held goes out when it is more than the bound, before whatever else the connection sends, or when its time is over. For the last
//! the connection is listed, once however much it holds, and the thread that watches connections comes by.

use std::sync::Weak;
use std::time::Duration;

use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{Mutex, Scope};

use super::pool::Slot;
use crate::clock;
use crate::event::{Event, Events};

/// How much oneways of [`SyncScope::None`](crate::SyncScope::None) may gather on a connection, and how long.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use corelane::{Orb, OnewayBatch};
/// let orb = Orb::builder().oneway_batch(OnewayBatch { octets: 4 * 1024, delay: Duration::from_micros(200) }).build()?;
/// # Ok::<(), corelane::OrbError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnewayBatch {
    /// Octets of whole messages that a connection holds at most; a message that does not fit takes what is held with it. 0: nothing is held.
    pub octets: usize,
    /// How long a message is held at most, beside the time that threads at ordinary priority have to wait for a core.
    pub delay: Duration,
}

impl Default for OnewayBatch {
    fn default() -> Self {
        OnewayBatch { octets: 16 * 1024, delay: Duration::from_millis(1) }
    }
}

/// The connections of an ORB that hold oneways.
#[derive(Debug)]
pub(crate) struct HeldList {
    list: Mutex<Vec<Entry>>,
    delay: Duration,
}

#[derive(Debug)]
struct Entry {
    due: Monotonic,
    slot: Weak<Slot>,
}

impl HeldList {
    pub(crate) fn new(delay: Duration) -> Self {
        HeldList { list: Mutex::new("connections that hold oneways", Scope::Orb, Vec::new()), delay }
    }

    /// Lists the connection of a slot, which holds its first message since now. True if none was listed: the thread that comes by may
    /// sleep for longer.
    #[cold]
    pub(crate) fn add(&self, slot: Weak<Slot>) -> bool {
        let mut list = self.list.lock();
        list.push(Entry { due: clock::now() + self.delay, slot });
        list.len() == 1
    }

    /// Sends what is due at `now`, or `all` there is. When to come by again.
    #[cold]
    pub(crate) fn send(&self, now: Monotonic, all: bool, events: &Events) -> Option<Monotonic> {
        let mut list = std::mem::take(&mut *self.list.lock());
        list.retain_mut(|entry| {
            if now < entry.due && !all {
                return true;
            }
            let Some(slot) = entry.slot.upgrade() else { return false };
            let sent = match slot.try_tend() {
                // Its user sends what it holds, or holds more.
                None => Ok(Some(now + self.delay)),
                Some(mut slot) => {
                    let Some(connection) = slot.as_deref_mut() else { return false };
                    connection.send_held(now, if all { Duration::ZERO } else { self.delay })
                }
            };
            let again = sent.unwrap_or_else(|(peer, octets)| {
                events.report(&Event::OnewaysLost { peer, octets });
                None
            });
            entry.due = again.unwrap_or(entry.due);
            again.is_some()
        });
        let mut added = self.list.lock();
        added.append(&mut list);
        added.iter().map(|entry| entry.due).min()
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::TcpListener;

    use super::*;
    use crate::Orb;
    use crate::invocation::{Operation, call};
    use crate::policy::SyncScope;

    /// On another connection they overtook those that were just being sent.
    #[test]
    fn oneways_keep_their_connection_while_what_it_holds_is_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let batch = OnewayBatch { octets: 16 * 1024, delay: Duration::from_micros(20) };
        let orb = Orb::builder().oneway_batch(batch).build().unwrap();
        let url = format!("corbaloc::1.2@{}/Key", listener.local_addr().unwrap());
        let object = orb.string_to_object(&url).unwrap().unwrap();
        let operation = Operation::new("op");
        std::thread::scope(|scope| {
            let acceptor = &listener;
            scope.spawn(|| io::copy(&mut acceptor.accept().unwrap().0, &mut io::sink()).unwrap());
            // Whatever becomes of this, the other end of what is copied ends with it.
            let (_orb, object) = (orb, object);
            for _ in 0..200_000 {
                call::oneway(&object, &operation, SyncScope::None, &|_| Ok(())).unwrap();
            }
            listener.set_nonblocking(true).unwrap();
            let other = listener.accept().unwrap_err();
            assert_eq!(other.kind(), io::ErrorKind::WouldBlock, "there is another connection");
        });
    }
}
