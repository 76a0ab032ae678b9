//! The interface between dispatch and the object adapter, which answers requests.
//!
//! Lanes read messages and choose the threads that run them. They do not know the object adapter:
//! they pass each message to a [`RequestHandler`]. In this layer, functions that run messages are
//! generic over the handler. A program has only one handler type, so these calls are direct. The
//! types of lanes, connections and workers do not name a handler.

use std::sync::Arc;
use std::time::Duration;

use corelane_net::Wait;
use corelane_wire::giop::Header;

use super::connection::Connection;
use super::message::{Message, RequestMemory};
use crate::orb_context::OrbContext;

/// Answers the messages that lanes read. The object adapter implements it.
///
/// Any thread of any lane may call a method, and several threads may do so at the same time. During
/// a call no lock of the lane is held, and no lock that a thread of another connection needs.
pub(crate) trait RequestHandler: Send + Sync + Sized + 'static {
    /// Returns the ORB's configuration, events and memory. This neither blocks nor takes a lock.
    fn context(&self) -> &OrbContext;

    /// Handles one message, which has `waited` since it was read. The bytes of the message come
    /// with the positions at which GIOP 1.1 fragments begin. Returns false when the connection has
    /// ended.
    ///
    /// Runs the servant, which may block for any time. Sends the reply, which may block if `wait`
    /// permits it. For a plain request the handler itself allocates nothing, and takes no lock
    /// other than the connection's output lock.
    fn handle_message(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        header: &Header,
        message: (&[u8], &[usize]),
        memory: &mut RequestMemory,
        wait: Wait,
        waited: Duration,
    ) -> bool;

    /// Rejects a message because there is no room: TRANSIENT 1 (CORBA 3.0.3, section 4.12.4). Sends
    /// the bytes that the transport accepts now, and does not block.
    fn reject_overloaded(&self, connection: &Connection, header: &Header, octets: &[u8], memory: &mut RequestMemory);

    /// Returns the priority that decides the order of a detached request; `None` means the pool's
    /// priority. This may lock the tables of the object adapter, and does not wait for servants.
    fn effective_priority(&self, connection: &Connection, message: &Message) -> Option<i16>;

    /// Returns true once threads of different priorities may serve one connection.
    fn has_priorities(&self) -> bool;

    /// Closes an idle or draining connection of any lane, because the process has no descriptors
    /// left. Returns false if there is no such connection.
    fn evict_connection(&self) -> bool;
}
