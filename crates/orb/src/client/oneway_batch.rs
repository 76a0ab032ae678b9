//! Oneway batches: oneways with [`SyncScope::None`](crate::SyncScope::None) wait in a buffer of
//! their connection, and several are sent together.

use std::sync::Weak;
use std::time::Duration;

use corelane_sys::clock::Monotonic;
use corelane_sys::lock::{LockScope, Mutex};

use super::connection::PoolSlot;
use crate::clock;
use crate::event::{Event, Events};

#[derive(Debug)]
pub(crate) struct PendingBatches {
    list: Mutex<Vec<PendingBatch>>,
    delay: Duration,
}

#[derive(Debug)]
struct PendingBatch {
    due: Monotonic,
    slot: Weak<PoolSlot>,
    /// [`PendingBatches::add`] alone names [`send`], so the linker drops `send` from programs that
    /// never buffer oneways.
    send: SendBatch,
}

type SendBatch = fn(&Weak<PoolSlot>, Monotonic, Duration, bool, &Events) -> Option<Monotonic>;

/// Sends the buffered oneways of a connection, if the oldest has waited for `delay` or `all` is
/// true. Returns the time at which to call this function again; `None` if the buffer is empty, or
/// if the connection is gone or has failed.
fn send(slot: &Weak<PoolSlot>, now: Monotonic, delay: Duration, all: bool, events: &Events) -> Option<Monotonic> {
    let slot = slot.upgrade()?;
    let sent = match slot.try_checkout_for_maintenance() {
        // The caller that has checked the connection out sends the buffered oneways, or adds its
        // oneway to them.
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
        PendingBatches { list: Mutex::new("connections with buffered oneways", LockScope::Orb, Vec::new()), delay }
    }

    /// Adds a connection with buffered oneways. Returns true if the list was empty. The caller must
    /// then wake the hang-up monitor's thread, which flushes the list.
    #[cold]
    pub(crate) fn add(&self, slot: Weak<PoolSlot>) -> bool {
        let mut list = self.list.lock();
        list.push(PendingBatch { due: clock::now() + self.delay, slot, send });
        list.len() == 1
    }

    /// Sends the batches that are due, or all batches if `all` is true. Returns the time at which
    /// to call this function again; `None` if the list is empty.
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

    /// While a batch is flushed, the next oneway of the caller must wait for its connection. On
    /// another connection the oneway would overtake the batch.
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
            let (_orb, object) = (orb, object);
            for _ in 0..200_000 {
                call::oneway(object.callee(), &operation, SyncScope::None, &|_| Ok(())).unwrap();
            }
            listener.set_nonblocking(true).unwrap();
            let other = listener.accept().unwrap_err();
            assert_eq!(other.kind(), io::ErrorKind::WouldBlock, "the client must not open a second connection");
        });
    }
}
