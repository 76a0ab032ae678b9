//! Deferred calls, whose replies the caller collects later (CORBA 3.0.3, section 7.2: deferred
//! synchronous).

use std::fmt;
use std::sync::Arc;

use corelane_wire::exception::minor;
use corelane_wire::giop::{AddressingMode, ResponseExpected};
use corelane_wire::{CdrError, Encoder};

use super::Operation;
use super::call::{CallRoute, Invocation, RequestSpec};
use super::callee::Callee;
use super::driver::Driver;
use super::multiplexed::SentRequest;
use super::reply::{Reply, ReplyContent};
use super::target::TargetProfiles;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::interceptor::RequestOutcome;
use crate::policy::{CallDeadline, Timeout};

/// Writes the arguments of a request. The thread that collects the reply calls this function again
/// if the request must be sent again.
pub(crate) type OwnedArgumentWriter = Box<dyn Fn(&mut Encoder<'static>) -> Result<(), CdrError> + Send + Sync>;

/// A deferred call: its request has been sent, and its reply can be collected once. Dropping the
/// value before the reply is collected abandons the reply.
///
/// A collocated call runs before [`ObjectRef::send_deferred`](crate::ObjectRef::send_deferred)
/// returns.
pub struct DeferredCall {
    callee: Callee,
    operation: Box<str>,
    arguments: OwnedArgumentWriter,
    due: CallDeadline,
    first_new_connection: u64,
    sends_deadline: bool,
    state: DeferredState,
}

enum DeferredState {
    Sent { target: Arc<TargetProfiles>, profile: usize, sent: SentRequest },
    Local(Result<ReplyContent<'static>, SystemException>),
    Finished,
}

impl DeferredCall {
    pub(crate) fn send(
        callee: Callee,
        operation: &str,
        arguments: OwnedArgumentWriter,
    ) -> Result<Self, SystemException> {
        let mut deferred = Self::new(callee, operation, arguments, DeferredState::Finished);
        let operation = Operation::new(&deferred.operation);
        let call = deferred.invocation(request(&operation, &deferred.arguments));
        let (target, profile, sent) = Driver::new(call).send_deferred()?;
        deferred.state = DeferredState::Sent { target, profile, sent };
        Ok(deferred)
    }

    pub(crate) fn completed(
        callee: Callee,
        operation: &str,
        arguments: OwnedArgumentWriter,
        reply: Result<ReplyContent<'static>, SystemException>,
    ) -> Self {
        Self::new(callee, operation, arguments, DeferredState::Local(reply))
    }

    fn new(callee: Callee, operation: &str, arguments: OwnedArgumentWriter, state: DeferredState) -> Self {
        let (timeout, first_new_connection) = (callee.timeout(), callee.context().peek_connection_id());
        let (due, sends_deadline) =
            (CallDeadline::from_timeout(timeout).to_absolute(), matches!(timeout, Timeout::Precise(_)));
        DeferredCall {
            callee,
            operation: operation.into(),
            arguments,
            due,
            first_new_connection,
            sends_deadline,
            state,
        }
    }

    fn invocation<'s: 'c, 'c>(&'s self, request: RequestSpec<'c, 'static>) -> Invocation<'s, 'c, 'static> {
        Invocation {
            context: self.callee.context(),
            callee: &self.callee,
            request,
            due: self.due,
            priority: None,
            range: None,
            may_batch: false,
            first_new_connection: self.first_new_connection,
            sends_deadline: self.sends_deadline,
        }
    }

    /// Returns true if the server's reply has arrived or been collected, or if it is known that no
    /// reply will arrive.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        match &self.state {
            DeferredState::Sent { sent, .. } => sent.is_done(),
            DeferredState::Local(_) | DeferredState::Finished => true,
        }
    }

    #[cfg(feature = "any")]
    pub(crate) fn deadline(&self) -> Option<corelane_sys::clock::Monotonic> {
        self.due.latest()
    }

    #[cfg(feature = "any")]
    pub(crate) fn notify_when_ready(&self, bell: &Arc<corelane_sys::eventfd::EventFd>) -> bool {
        match &self.state {
            DeferredState::Sent { sent, .. } => sent.notify_on_reply(bell),
            DeferredState::Local(_) | DeferredState::Finished => false,
        }
    }

    /// Waits for the reply until the call's deadline. If [`Reply::exception_id`] returns an id, the
    /// reply has a user exception, and otherwise results.
    ///
    /// # Errors
    /// The system exception that the ORB or the object raised. BAD_INV_ORDER 12 if the reply has
    /// already been collected.
    pub fn reply(&mut self) -> Result<Reply<'_>, SystemException> {
        match std::mem::replace(&mut self.state, DeferredState::Finished) {
            DeferredState::Finished => {
                Err(SystemException::new(Kind::BadInvOrder, minor::bad_inv_order::RESULT_ALREADY_TAKEN, Completion::No))
            }
            DeferredState::Local(answer) => answer.map(|answer| answer.attach(self.callee.context())),
            DeferredState::Sent { target, profile, sent } => {
                let operation = Operation::new(&self.operation);
                let request = request(&operation, &self.arguments);
                let mut call = self.invocation(request);
                let by = target.profiles.get(profile).ok_or_else(internal)?;
                let route = CallRoute { target: &target, profile: by, addressing: AddressingMode::Key };
                let reply = match call.await_multiplexed(route, &sent) {
                    Ok(reply) => {
                        self.callee.binding().record_bound(&target, profile);
                        reply
                    }
                    Err(error) => Driver::new(call).resume_after(*error, profile, true)?,
                };
                reply.ok_or_else(internal)
            }
        }
    }
}

fn request<'c>(operation: &'c Operation<'c>, arguments: &'c OwnedArgumentWriter) -> RequestSpec<'c, 'static> {
    RequestSpec::Call { operation, response: ResponseExpected::Target, arguments: &**arguments }
}

impl Drop for DeferredCall {
    fn drop(&mut self) {
        let DeferredState::Sent { target, profile, sent } = &self.state else { return };
        sent.abandon();
        if let (Some(begun), Some(by)) = (sent.intercepted(), target.profiles.get(*profile)) {
            let operation = Operation::new(&self.operation);
            let route = CallRoute { target, profile: by, addressing: AddressingMode::Key };
            let call = self.invocation(request(&operation, &self.arguments));
            call.report_outcome(route, begun, &RequestOutcome::Abandoned);
        }
    }
}

impl fmt::Debug for DeferredCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeferredCall").field("operation", &self.operation).field("ready", &self.is_ready()).finish()
    }
}

fn internal() -> SystemException {
    SystemException::new(Kind::Internal, 0, Completion::Maybe)
}
