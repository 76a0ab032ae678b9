//! The seam between dispatch and what answers requests.
//!
//! Lanes read messages and choose the threads that run them. They know no object adapter: each
//! message goes to a [`RequestHandler`]. Functions of this layer that run messages are generic in
//! it. A program has one handler type, so the compiler calls it directly; lanes, connections and
//! workers themselves name no handler.

use std::sync::Arc;
use std::time::Duration;

use corelane_net::Wait;
use corelane_wire::giop::Header;

use super::connection::Connection;
use super::message::{Message, RequestMemory};
use crate::orb_context::OrbContext;

/// Answers the messages that lanes read. The object adapter implements it.
///
/// Any thread of any lane may call a method, several at once. None of the lane's locks is held
/// then, and none that a thread of another connection needs.
pub(crate) trait RequestHandler: Send + Sync + Sized + 'static {
    /// Returns the ORB's configuration, events and memory. Neither blocks nor locks.
    fn context(&self) -> &OrbContext;

    /// Does what one message asks for, which has `waited` since it was read. Its bytes come with the
    /// places where GIOP 1.1 fragments begin. Returns false when the connection is over.
    ///
    /// Runs the servant, which may block as long as it likes; the reply is sent here, and may block
    /// if `wait` says so. Until the servant runs, and after it, the handler allocates nothing for a
    /// plain request and takes no lock but the connection's output lock.
    fn handle_message(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        header: &Header,
        message: (&[u8], &[usize]),
        memory: &mut RequestMemory,
        wait: Wait,
        waited: Duration,
    ) -> bool;

    /// Rejects a message for want of room: TRANSIENT 1 (CORBA 3.0.3, section 4.12.4). Sends what
    /// the transport takes now and does not block.
    fn reject_overloaded(&self, connection: &Connection, header: &Header, octets: &[u8], memory: &mut RequestMemory);

    /// Returns the priority at which a detached request is ordered; `None` means the pool's own. May
    /// lock the tables of the object adapter, and does not wait for servants.
    fn effective_priority(&self, connection: &Connection, message: &Message) -> Option<i16>;

    /// Returns true once threads of different priorities may serve one connection.
    fn has_priorities(&self) -> bool;

    /// Closes an idle or draining connection of any lane, because the process has no descriptors
    /// left. Returns false if there is none.
    fn evict_connection(&self) -> bool;
}
