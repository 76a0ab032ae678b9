//! Attempts on multiplexed connections.

use std::io;
use std::sync::Arc;

use corelane_wire::Encoder;

use super::call::{AttemptError, AttemptResult, CallRoute, Invocation, ReplyHead, refuse};
use super::interception::InterceptedAttempt;
use super::machine::LastMessage;
use super::reply::ReplyBody;
use crate::client::multiplexed::{MultiplexedConnection, RegisterError};
use crate::client::pending_reply::{PendingReply, ReplyError};
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::exchange::{BytesSent, ExchangeError};
use crate::fault::PeerFault;

#[derive(Debug)]
pub(super) struct SentRequest {
    connection: Arc<MultiplexedConnection>,
    id: u32,
    pending: Arc<PendingReply>,
    announced: Option<corelane_wire::CodeSets>,
    bytes_sent: BytesSent,
    intercepted: Option<Box<InterceptedAttempt>>,
}

impl<'r> Invocation<'r, '_, '_> {
    #[cold]
    pub(super) fn attempt_multiplexed(
        &mut self,
        route: CallRoute<'_>,
        connection: &Arc<MultiplexedConnection>,
    ) -> AttemptResult<'r> {
        match self.send_multiplexed(route, connection)? {
            Some(sent) => self.await_multiplexed(route, &sent),
            None => Ok(None),
        }
    }

    /// Sends a request and receives its reply. Does not call the interceptors, because the ORB
    /// itself makes the request.
    #[cold]
    pub(super) fn exchange_multiplexed(
        &mut self,
        route: CallRoute<'_>,
        connection: &Arc<MultiplexedConnection>,
    ) -> AttemptResult<'r> {
        match self.send_once(route, connection, &[])? {
            Some(sent) => self.await_multiplexed(route, &sent),
            None => Ok(None),
        }
    }

    #[cold]
    pub(super) fn send_multiplexed(
        &mut self,
        route: CallRoute<'_>,
        connection: &Arc<MultiplexedConnection>,
    ) -> Result<Option<SentRequest>, Box<AttemptError>> {
        let Some(begun) = self.begin_interception(route, connection.stream().peer())? else {
            return self.send_once(route, connection, &[]);
        };
        match self.send_once(route, connection, begun.contexts()) {
            Ok(Some(sent)) => Ok(Some(SentRequest { intercepted: Some(Box::new(begun)), ..sent })),
            Ok(None) => {
                self.end_interception(route, &begun, &Ok(None));
                Ok(None)
            }
            Err(error) => {
                let outcome = Err(error);
                self.end_interception(route, &begun, &outcome);
                outcome.map(|_| None)
            }
        }
    }

    fn send_once(
        &mut self,
        route: CallRoute<'_>,
        connection: &Arc<MultiplexedConnection>,
        added: &[(u32, Vec<u8>)],
    ) -> Result<Option<SentRequest>, Box<AttemptError>> {
        self.due = self.due.to_absolute();
        let deadline = self.due.latest();
        let lost = |call: &Self, bytes_sent, broken: ExchangeError| {
            call.attempt_failed(connection.endpoint(), bytes_sent, &broken, LastMessage::None)
        };
        let Some(mut sender) = connection.sender(deadline) else {
            return Err(lost(self, BytesSent::None, ExchangeError::TimedOut));
        };
        let (id, pending) = match connection.register() {
            Ok(entry) => entry,
            Err(RegisterError::Closed) => {
                return Err(lost(self, BytesSent::None, ExchangeError::Io(io::ErrorKind::NotConnected.into())));
            }
            Err(RegisterError::Full) => {
                let exception = SystemException::new(Kind::NoResources, 0, Completion::No);
                return Err(refuse(
                    exception.with_message("too many requests wait for their replies on one connection"),
                ));
            }
        };
        let announce = self.code_sets_to_announce(route, sender.announced);
        let announced = sender.announced.or(announce);
        let mut encoder = Encoder::with_buffer(std::mem::take(&mut sender.memory));
        encoder.set_code_sets(announced.unwrap_or(route.profile.default_code_sets));
        if let Err(error) = self.write(&mut encoder, route, id, announce, added) {
            connection.unregister(id);
            let exception = crate::trail::unwritable(error, "argument ", &encoder);
            sender.memory = encoder.into_reusable_buffer();
            return Err(refuse(exception));
        }
        let size = self.context.config().fragment_size;
        let fragments = size.and_then(|size| crate::fragment::split(&encoder, id, size));
        let sent = connection.send(&mut sender, &encoder, deadline, fragments);
        sender.memory = encoder.into_reusable_buffer();
        if matches!(sent, Ok(()) | Err((BytesSent::All, _))) {
            sender.announced = announced;
        }
        drop(sender);
        let bytes_sent = sent.as_ref().map_or_else(|(bytes_sent, _)| *bytes_sent, |()| BytesSent::All);
        // The server may have replied to the part that was sent, so the caller waits for the reply.
        let is_cut = matches!(sent, Err((BytesSent::Some, ExchangeError::Io(_)))) && self.wants_reply();
        if let Err((bytes_sent, broken)) = sent
            && !is_cut
        {
            if bytes_sent == BytesSent::All {
                // The connection sends the remainder later, so the server will receive the whole
                // request.
                if self.wants_reply() {
                    connection.abandon(id)
                } else {
                    connection.unregister(id)
                }
                return Err(self.abandoned(connection.endpoint(), &broken));
            }
            connection.unregister(id);
            return Err(lost(self, bytes_sent, broken));
        }
        if !self.wants_reply() {
            connection.unregister(id);
            return Ok(None);
        }
        let connection = Arc::clone(connection);
        Ok(Some(SentRequest { connection, id, pending, announced, bytes_sent, intercepted: None }))
    }

    #[cold]
    pub(super) fn await_multiplexed(&mut self, route: CallRoute<'_>, sent: &SentRequest) -> AttemptResult<'r> {
        let outcome = self.receive_multiplexed(route, sent);
        if let Some(begun) = &sent.intercepted {
            self.end_interception(route, begun, &outcome);
        }
        outcome
    }

    fn receive_multiplexed(&mut self, route: CallRoute<'_>, sent: &SentRequest) -> AttemptResult<'r> {
        let endpoint = sent.connection.endpoint();
        let arrived = match sent.pending.wait(self.due.latest(), self.callee.canceller()) {
            Ok(arrived) => arrived,
            Err(ReplyError { error: broken @ (ExchangeError::Cancelled | ExchangeError::TimedOut), .. }) => {
                sent.connection.cancel(sent.id, route.profile.version);
                return Err(self.abandoned(endpoint, &broken));
            }
            Err(ReplyError { error: broken, reply_begun }) => {
                let final_message = match &broken {
                    ExchangeError::Fault(PeerFault::UnexpectedMessage(kind)) => Some(*kind),
                    _ => None,
                };
                let error = self.attempt_failed(
                    endpoint,
                    sent.bytes_sent,
                    &broken,
                    LastMessage::about_request(final_message, reply_begun),
                );
                if let ExchangeError::Fault(fault) = broken
                    && sent.connection.claim_fault_report()
                {
                    self.context.events().fault_of_server(sent.connection.stream().peer(), fault);
                }
                return Err(error);
            }
        };
        match ReplyHead::parse(&arrived.octets, &arrived.header, &self.context.config().limits) {
            Ok(head) => {
                let body = ReplyBody::owned(arrived.octets, arrived.breaks);
                self.interpret_reply(route, body, arrived.header, &head, sent.announced)
            }
            Err(fault) => Err(self.attempt_failed(endpoint, sent.bytes_sent, &fault.into(), LastMessage::PartialReply)),
        }
    }
}

impl SentRequest {
    pub(super) fn is_done(&self) -> bool {
        self.pending.is_done()
    }

    #[cfg(feature = "any")]
    pub(super) fn notify_on_reply(&self, bell: &Arc<corelane_sys::eventfd::EventFd>) -> bool {
        self.pending.notify_on_reply(bell)
    }

    pub(super) fn intercepted(&self) -> Option<&InterceptedAttempt> {
        self.intercepted.as_deref()
    }

    pub(super) fn abandon(&self) {
        self.connection.abandon(self.id);
    }
}
