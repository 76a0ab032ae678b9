//! The interface through which lanes call the object adapter, which answers requests.

use std::sync::Arc;
use std::time::Duration;

use corelane_net::WaitLimit;
use corelane_wire::giop::Header;

use super::connection::Connection;
use super::message::{Message, RequestMemory};
use crate::orb_context::OrbContext;

/// The object adapter, as lanes call it. Several threads may call the methods at the same time.
pub(crate) trait RequestHandler: Send + Sync + Sized + 'static {
    fn context(&self) -> &OrbContext;

    /// Handles a message. For a request, runs the servant, which may block without a time limit,
    /// and sends the reply, which blocks as `wait` permits. Returns false if the connection must be
    /// retired.
    ///
    /// `message` has the bytes of the message, and the positions at which GIOP 1.1 fragments begin.
    /// `waited` is the time since the message was read.
    fn handle_message(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        header: &Header,
        message: (&[u8], &[usize]),
        memory: &mut RequestMemory,
        wait: WaitLimit,
        waited: Duration,
    ) -> bool;

    /// Rejects a message, given as its header and its bytes, with TRANSIENT and the code `minor`.
    fn reject(&self, connection: &Connection, message: (&Header, &[u8]), minor: u32, memory: &mut RequestMemory);

    /// Returns the CORBA priority at which a request will run; `None` means the priority of the
    /// pool.
    fn effective_priority(&self, connection: &Connection, message: &Message) -> Option<i16>;

    /// Returns a number that identifies the object and the operation of a request; `None` if the
    /// message is not a request with a reply.
    #[cfg(feature = "replies-first")]
    fn operation_hash(&self, header: &Header, octets: &[u8]) -> Option<u64>;

    fn has_priorities(&self) -> bool;

    /// Closes an idle or draining connection of any lane; returns false if no connection may be
    /// closed.
    fn evict_connection(&self) -> bool;
}
