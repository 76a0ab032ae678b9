//! The interface between dispatch and the object adapter, which answers requests.
//!
//! Lanes read messages and choose the threads that run them. Lanes do not know the object adapter:
//! they pass each message to a [`RequestHandler`]. In this layer, functions that run messages are
//! generic over the handler. A program has only one handler type, so calls of its methods are
//! direct. The types of lanes, connections and workers do not name the handler type.

use std::sync::Arc;
use std::time::Duration;

use corelane_net::Wait;
use corelane_wire::giop::Header;

use super::connection::Connection;
use super::message::{Message, RequestMemory};
use crate::orb_context::OrbContext;

/// Answers the messages that lanes read. The object adapter implements it.
///
/// Any thread of any lane may call the methods, also concurrently. During a call the thread holds
/// no lock of the lane, and no lock that a thread of another connection needs.
pub(crate) trait RequestHandler: Send + Sync + Sized + 'static {
    /// Returns the ORB's configuration, events and memory. The method neither blocks nor takes a
    /// lock.
    fn context(&self) -> &OrbContext;

    /// Handles one message, `waited` after it was read. `message` has the bytes, and the positions
    /// at which GIOP 1.1 fragments begin. Returns false when the connection has ended.
    ///
    /// Runs the servant, which may block for any time. Sends the reply, and blocks in sending only
    /// if `wait` permits it. For a plain request the handler itself allocates nothing, and takes no
    /// lock other than the connection's output lock.
    fn handle_message(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        header: &Header,
        message: (&[u8], &[usize]),
        memory: &mut RequestMemory,
        wait: Wait,
        waited: Duration,
    ) -> bool;

    /// Rejects a message with TRANSIENT 1 because the lane has no room for it (CORBA 3.0.3, section
    /// 4.12.4). Sends without blocking; bytes that the transport does not accept at once wait in
    /// the send queue.
    fn reject_overloaded(&self, connection: &Connection, header: &Header, octets: &[u8], memory: &mut RequestMemory);

    /// Returns the priority at which a detached request is ordered; `None` means the pool's
    /// priority. The method may lock the tables of the object adapter, but does not wait for
    /// servants.
    fn effective_priority(&self, connection: &Connection, message: &Message) -> Option<i16>;

    /// Returns true once threads of different priorities may serve one connection.
    fn has_priorities(&self) -> bool;

    /// Closes an idle or draining connection of any lane, because the process has no descriptors
    /// left. Returns false if there is no such connection.
    fn evict_connection(&self) -> bool;
}
