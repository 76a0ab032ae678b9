//! Calls whose reply is asked for later (CORBA 3.0.3, section 7.2: deferred synchronous).

use std::fmt;
use std::sync::Arc;

use corelane_wire::exception::minor;
use corelane_wire::giop::{AddressingMode, ResponseExpected};
use corelane_wire::{CdrError, Encoder};

use super::Operation;
use super::call::{Call, Request, Way};
use super::driver::Driver;
use super::reply::{Answer, Reply};
use super::shared::Posted;
use super::target::Target;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::object::ObjectRef;
use crate::policy::{Due, Timeout};

/// How the arguments of a deferred call are written: again for every attempt, on whatever thread makes it.
pub(crate) type OwnedArguments = Box<dyn Fn(&mut Encoder<'static>) -> Result<(), CdrError> + Send + Sync>;

/// A call that has been made and whose reply is still to be asked for. Dropping it gives the reply up.
///
/// A call within the process has run when [`ObjectRef::send_deferred`] returns.
pub struct Deferred {
    object: ObjectRef,
    operation: Box<str>,
    arguments: OwnedArguments,
    due: Due,
    /// The connections of the ORB when it was sent.
    began: u64,
    tells: bool,
    progress: Progress,
}

enum Progress {
    /// The request is out.
    Posted { target: Arc<Target>, profile: usize, posted: Posted },
    /// A call within the process has its answer.
    Local(Result<Answer<'static>, SystemException>),
    /// The reply has been asked for.
    Over,
}

impl Deferred {
    /// Sends the request.
    pub(crate) fn send(
        object: &ObjectRef,
        operation: &str,
        arguments: OwnedArguments,
    ) -> Result<Self, SystemException> {
        let core = object.core();
        core.check_usable()?;
        let object = crate::rt::client::under_policies_of_thread(core, object);
        let (timeout, began) = (object.timeout(), core.upcoming_connection());
        let (due, tells) = (Due::of(timeout).fixed(), matches!(timeout, Timeout::Precise(_)));
        let operation = Box::<str>::from(operation);
        let progress = if object.binding().may_be_local(core) && object.binding().forwarded().is_none() {
            let operation = Operation::new(&operation);
            let reply = crate::poa::invoke_local(core, &object, &operation, &*arguments);
            Progress::Local(reply.map(Reply::into_answer))
        } else {
            let operation = Operation::new(&operation);
            let call = Call {
                core,
                object: &object,
                request: request(&operation, &arguments),
                due,
                priority: None,
                range: None,
                may_be_held: false,
                began,
                tells,
            };
            let (target, profile, posted) = Driver::new(call).post()?;
            Progress::Posted { target, profile, posted }
        };
        Ok(Deferred { object, operation, arguments, due, began, tells, progress })
    }

    /// Whether [`reply`](Self::reply) would not wait for the first answer of the server. (That may be a forward, after which the
    /// call takes as long as it takes.)
    #[must_use]
    pub fn is_ready(&self) -> bool {
        match &self.progress {
            Progress::Posted { posted, .. } => posted.is_done(),
            Progress::Local(_) | Progress::Over => true,
        }
    }

    /// When [`reply`](Self::reply) stops waiting.
    #[cfg(feature = "any")]
    pub(crate) fn deadline(&self) -> Option<corelane_sys::clock::Monotonic> {
        self.due.moment()
    }

    /// Has `bell` rung when [`is_ready`](Self::is_ready) becomes true; false if it is.
    #[cfg(feature = "any")]
    pub(crate) fn ring(&self, bell: &Arc<corelane_sys::eventfd::Wake>) -> bool {
        match &self.progress {
            Progress::Posted { posted, .. } => posted.ring(bell),
            Progress::Local(_) | Progress::Over => false,
        }
    }

    /// Waits for the reply, at most until the deadline that the call was made with. A user exception is a reply: look at
    /// [`Reply::exception`].
    ///
    /// # Errors
    /// The system exception that the ORB or the object raised; BAD_INV_ORDER 12 when the reply has been asked for before.
    pub fn reply(&mut self) -> Result<Reply<'_>, SystemException> {
        match std::mem::replace(&mut self.progress, Progress::Over) {
            Progress::Over => {
                Err(SystemException::new(Kind::BadInvOrder, minor::bad_inv_order::RESULT_ALREADY_TAKEN, Completion::No))
            }
            Progress::Local(answer) => answer.map(|answer| answer.of(self.object.core())),
            Progress::Posted { target, profile, posted } => {
                let operation = Operation::new(&self.operation);
                let request = request(&operation, &self.arguments);
                let mut call = Call {
                    core: self.object.core(),
                    object: &self.object,
                    request,
                    due: self.due,
                    priority: None,
                    range: None,
                    may_be_held: false,
                    began: self.began,
                    tells: self.tells,
                };
                let by = target.profiles.get(profile).ok_or_else(internal)?;
                let way = Way { target: &target, profile: by, addressing: AddressingMode::Key };
                let reply = match call.collect(way, &posted) {
                    Ok(reply) => {
                        self.object.binding().note_bound(&target, profile);
                        reply
                    }
                    Err(trouble) => Driver::new(call).go_on(*trouble, true)?,
                };
                reply.ok_or_else(internal)
            }
        }
    }
}

fn request<'c>(operation: &'c Operation<'c>, arguments: &'c OwnedArguments) -> Request<'c, 'static> {
    Request::Call { operation, response: ResponseExpected::Target, arguments: &**arguments }
}

impl Drop for Deferred {
    fn drop(&mut self) {
        if let Progress::Posted { posted, .. } = &self.progress {
            posted.forget();
        }
    }
}

impl fmt::Debug for Deferred {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deferred").field("operation", &self.operation).field("ready", &self.is_ready()).finish()
    }
}

fn internal() -> SystemException {
    SystemException::new(Kind::Internal, 0, Completion::Maybe)
}
