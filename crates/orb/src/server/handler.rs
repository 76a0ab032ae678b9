//! The interface through which lanes call the object adapter, which answers requests.
//!
//! Lanes do not know the object adapter: they pass each message to a [`RequestHandler`]. Functions are generic over the
//! handler, so that its calls are direct.

use std::sync::Arc;
use std::time::Duration;

use corelane_net::Wait;
use corelane_wire::giop::Header;

use super::connection::Connection;
use super::message::{Message, RequestMemory};
use crate::orb_context::OrbContext;

/// Any thread of any lane may call the methods, and several threads at the same time. A thread that calls a method
/// holds no lock of the lane, and no lock that a thread of another connection needs.
pub(crate) trait RequestHandler: Send + Sync + Sized + 'static {
    fn context(&self) -> &OrbContext;

    /// `message` has its bytes, and the positions at which GIOP 1.1 fragments begin. `waited` is the time since the
    /// message was read. Returns false if the connection gets no further messages to handle.
    ///
    /// Runs the servant, which may block without a time limit, and sends the reply, which blocks if `wait` permits it.
    /// For a request without service contexts and values, allocates no memory and takes one lock: the output lock.
    fn handle_message(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        header: &Header,
        message: (&[u8], &[usize]),
        memory: &mut RequestMemory,
        wait: Wait,
        waited: Duration,
    ) -> bool;

    /// Rejects a message, given as its header and its bytes, with TRANSIENT and the code `minor`. Does not block.
    fn reject(&self, connection: &Connection, message: (&Header, &[u8]), minor: u32, memory: &mut RequestMemory);

    /// Returns the CORBA priority at which a request will run, by which a queue orders it. `None` means the priority of
    /// the pool. May lock tables of the object adapter, but does not wait for servants.
    fn effective_priority(&self, connection: &Connection, message: &Message) -> Option<i16>;

    /// Returns a number that identifies the object and the operation of a request. `None` if the
    /// message is no request with a reply. Does not block.
    #[cfg(feature = "replies-first")]
    fn operation_hash(&self, header: &Header, octets: &[u8]) -> Option<u64>;

    /// True once the ORB has had a thread pool or a POA with priorities.
    fn has_priorities(&self) -> bool;

    /// Closes an idle or draining connection of any lane; returns false if no connection may be closed.
    fn evict_connection(&self) -> bool;
}
