//! An attempt on a connection that other calls use at the same time: the request is entered in its table, and a thread of the ORB
//! completes the entry.

use std::io;
use std::sync::Arc;

use corelane_wire::Encoder;

use super::call::{Call, Outcome, ReplyHead, Trouble, Way, refused};
use super::machine::Written;
use super::reply::Body;
use crate::client::connection::Broken;
use crate::client::multiplexed::{Multiplexed, NoPlace, Pending};
use crate::exception::{Completion, Phase, SystemException, SystemExceptionKind as Kind};

/// A request that has been sent.
#[derive(Debug)]
pub(super) struct Posted {
    connection: Arc<Multiplexed>,
    id: u32,
    pending: Arc<Pending>,
    announced: Option<corelane_wire::CodeSets>,
}

impl<'r> Call<'r, '_, '_> {
    /// Writes the request and waits for its reply.
    #[cold]
    pub(super) fn attempt_shared(&mut self, way: Way<'_>, connection: &Arc<Multiplexed>) -> Outcome<'r> {
        match self.post(way, connection)? {
            Some(posted) => self.collect(way, &posted),
            None => Ok(None),
        }
    }

    /// Writes the request; nothing if no reply is wanted.
    #[cold]
    pub(super) fn post(&mut self, way: Way<'_>, connection: &Arc<Multiplexed>) -> Result<Option<Posted>, Box<Trouble>> {
        self.due = self.due.fixed();
        let deadline = self.due.moment();
        let lost = |call: &Self, written, broken: Broken| {
            call.failed(connection.endpoint(), Phase::Send, written, &broken, false)
        };
        let Some(mut sender) = connection.sender(deadline) else {
            return Err(lost(self, Written::Nothing, Broken::TimedOut));
        };
        let (id, pending) = match connection.register() {
            Ok(entry) => entry,
            // It has ended since it was chosen: another one is made.
            Err(NoPlace::Over) => {
                return Err(lost(self, Written::Nothing, Broken::Io(io::ErrorKind::NotConnected.into())));
            }
            Err(NoPlace::Full) => {
                let exception = SystemException::new(Kind::NoResources, 0, Completion::No);
                return Err(refused(exception.because("too many requests wait for their replies on one connection")));
            }
        };
        let announce = self.to_announce(way, sender.announced);
        let announced = sender.announced.or(announce);
        let mut encoder = Encoder::with_buffer(std::mem::take(&mut sender.memory));
        encoder.set_code_sets(announced.unwrap_or(way.profile.default_code_sets));
        if let Err(error) = self.write(&mut encoder, way, id, announce) {
            connection.unregister(id);
            sender.memory = encoder.into_buffer();
            return Err(refused(error.into()));
        }
        let size = self.core.config().fragment_size;
        let fragments = size.and_then(|size| crate::fragment::cut(&encoder, id, size));
        let sent = connection.send(&mut sender, &encoder, deadline, fragments);
        sender.memory = encoder.into_buffer();
        if matches!(sent, Ok(()) | Err((Written::Whole, _))) {
            sender.announced = announced;
        }
        drop(sender);
        if let Err((written, broken)) = sent {
            if written == Written::Whole {
                // Too late, but the server will have it.
                if self.wants_reply() {
                    connection.forget(id)
                } else {
                    connection.unregister(id)
                }
                return Err(self.given_up(connection.endpoint(), &broken));
            }
            connection.unregister(id);
            return Err(lost(self, written, broken));
        }
        if !self.wants_reply() {
            connection.unregister(id);
            return Ok(None);
        }
        Ok(Some(Posted { connection: Arc::clone(connection), id, pending, announced }))
    }

    /// Waits for the reply.
    #[cold]
    pub(super) fn collect(&mut self, way: Way<'_>, posted: &Posted) -> Outcome<'r> {
        let endpoint = posted.connection.endpoint();
        let arrived = match posted.pending.wait(self.due.moment(), self.object.canceller()) {
            Ok(arrived) => arrived,
            Err(broken @ (Broken::Cancelled | Broken::TimedOut)) => {
                posted.connection.cancel(posted.id, way.profile.version);
                return Err(self.given_up(endpoint, &broken));
            }
            Err(broken) => {
                let trouble = self.failed(endpoint, Phase::Wait, Written::Whole, &broken, false);
                if let Broken::Fault(fault) = broken
                    && posted.connection.tells_fault()
                {
                    self.core.events().fault_of_server(posted.connection.stream().peer(), fault);
                }
                return Err(trouble);
            }
        };
        match ReplyHead::parse(&arrived.octets, &arrived.header, &self.core.config().limits) {
            Ok(head) => {
                let body = Body::owned(arrived.octets, arrived.breaks);
                self.reply(way, body, arrived.header, &head, posted.announced)
            }
            Err(fault) => Err(self.failed(endpoint, Phase::Wait, Written::Whole, &fault.into(), false)),
        }
    }
}

impl Posted {
    /// Whether collecting would not wait.
    pub(super) fn is_done(&self) -> bool {
        self.pending.is_done()
    }

    /// Has `bell` rung when it is done; false if it is.
    #[cfg(feature = "any")]
    pub(super) fn ring(&self, bell: &Arc<corelane_sys::eventfd::Wake>) -> bool {
        self.pending.ring(bell)
    }

    /// Nobody wants the reply any more.
    pub(super) fn forget(&self) {
        self.connection.forget(self.id);
    }
}
