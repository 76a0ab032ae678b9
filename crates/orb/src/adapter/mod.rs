//! The object adapter, which handles GIOP requests from the message to the reply.

mod contexts;
mod locate;
mod object_adapter;
mod reply;
mod request;
pub(crate) mod upcall;

use std::sync::Arc;
use std::time::Duration;

use corelane_net::WaitLimit;
use corelane_wire::giop::Header;

use crate::orb_context::OrbContext;
use crate::server::connection::Connection;
use crate::server::handler::RequestHandler;
use crate::server::message::{Message, RequestMemory};
pub(crate) use object_adapter::ObjectAdapter;

impl RequestHandler for ObjectAdapter {
    #[inline]
    fn context(&self) -> &OrbContext {
        self
    }

    #[inline]
    fn handle_message(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        header: &Header,
        message: (&[u8], &[usize]),
        memory: &mut RequestMemory,
        wait: WaitLimit,
        waited: Duration,
    ) -> bool {
        request::handle_message(self, connection, header, message, memory, wait, waited)
    }

    fn reject(&self, connection: &Connection, message: (&Header, &[u8]), minor: u32, memory: &mut RequestMemory) {
        request::reject(self, connection, message, minor, memory);
    }

    fn effective_priority(&self, connection: &Connection, message: &Message) -> Option<i16> {
        request::effective_priority(self, connection, message)
    }

    #[cfg(feature = "replies-first")]
    fn operation_hash(&self, header: &Header, octets: &[u8]) -> Option<u64> {
        request::operation_hash(self, header, octets)
    }

    fn has_priorities(&self) -> bool {
        self.server().rt().is_in_use()
    }

    fn evict_connection(&self) -> bool {
        self.server().all_lanes().iter().any(|lane| lane.evict_for_new_connection(self))
    }
}
