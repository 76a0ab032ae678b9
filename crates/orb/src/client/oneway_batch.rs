//! Buffering of oneways on their connections, so that several are sent together
//! ([`SyncScope::None`](crate::SyncScope::None)).
//!
//! A buffer is sent when it would exceed its maximum size, before any other message of the
//! connection, or when its delay has passed. A connection with buffered oneways is on a list, from
//! which the hang-up monitor's thread sends the buffers whose delay has passed.

use std::sync::Weak;
use std::time::Duration;

use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{LockScope, Mutex};

use super::connection::PoolSlot;
use crate::clock;
use crate::event::{Event, Events};

/// The list of an ORB's connections with buffered oneways.
#[derive(Debug)]
pub(crate) struct PendingBatches {
    list: Mutex<Vec<PendingBatch>>,
    delay: Duration,
}

#[derive(Debug)]
struct PendingBatch {
    due: Monotonic,
    slot: Weak<PoolSlot>,
    /// The function [`send`]. Only [`PendingBatches::add`] names the function, so the linker drops
    /// it from programs whose clients do not buffer oneways.
    send: SendBatch,
}

type SendBatch = fn(&Weak<PoolSlot>, Monotonic, Duration, bool, &Events) -> Option<Monotonic>;

/// Sends the buffered oneways of a slot's connection if they are due or `all` is true. Returns the
/// time at which the buffer is due next; `None` if it is empty.
fn send(slot: &Weak<PoolSlot>, now: Monotonic, delay: Duration, all: bool, events: &Events) -> Option<Monotonic> {
    let slot = slot.upgrade()?;
    let sent = match slot.try_checkout_for_maintenance() {
        // A caller has checked the connection out. Its message is sent behind the buffered oneways,
        // or is buffered too.
        None => Ok(Some(now + delay)),
        Some(mut slot) => slot.as_deref_mut()?.flush_oneways(now, if all { Duration::ZERO } else { delay }),
    };
    sent.unwrap_or_else(|(peer, octets)| {
        events.report(&Event::OnewaysLost { peer, bytes: octets });
        None
    })
}

impl PendingBatches {
    pub(crate) fn new(delay: Duration) -> Self {
        PendingBatches { list: Mutex::new("connections that hold oneways", LockScope::Orb, Vec::new()), delay }
    }

    /// Lists the connection of a slot when it buffers its first message. Returns true if the list
    /// was empty; the caller then wakes the thread that flushes the list.
    #[cold]
    pub(crate) fn add(&self, slot: Weak<PoolSlot>) -> bool {
        let mut list = self.list.lock();
        list.push(PendingBatch { due: clock::now() + self.delay, slot, send });
        list.len() == 1
    }

    /// Sends the buffers that are due at `now`, or every buffer if `all` is true. Returns the time
    /// at which the next buffer is due.
    #[cold]
    pub(crate) fn flush(&self, now: Monotonic, all: bool, events: &Events) -> Option<Monotonic> {
        let mut list = std::mem::take(&mut *self.list.lock());
        list.retain_mut(|entry| {
            if now < entry.due && !all {
                return true;
            }
            let again = (entry.send)(&entry.slot, now, self.delay, all, events);
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
    use crate::invocation::{Operation, call};
    use crate::policy::SyncScope;
    use crate::{OnewayBatch, Orb};

    /// A later oneway stays on its connection: on another connection it would overtake the oneways
    /// that are being sent.
    #[test]
    fn oneways_stay_on_their_connection_while_its_batch_is_flushed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let batch = OnewayBatch { max_bytes: 16 * 1024, max_delay: Duration::from_micros(20) };
        let orb = Orb::builder().oneway_batch(batch).build().unwrap();
        let url = format!("corbaloc::1.2@{}/Key", listener.local_addr().unwrap());
        let object = orb.string_to_object(&url).unwrap().unwrap();
        let operation = Operation::new("op");
        std::thread::scope(|scope| {
            let acceptor = &listener;
            scope.spawn(|| io::copy(&mut acceptor.accept().unwrap().0, &mut io::sink()).unwrap());
            // The ORB and the object are dropped with this scope, so that the reading thread ends
            // even if an assertion fails.
            let (_orb, object) = (orb, object);
            for _ in 0..200_000 {
                call::oneway(object.callee(), &operation, SyncScope::None, &|_| Ok(())).unwrap();
            }
            listener.set_nonblocking(true).unwrap();
            let other = listener.accept().unwrap_err();
            assert_eq!(other.kind(), io::ErrorKind::WouldBlock, "the client opened a second connection");
        });
    }
}
