//! System exceptions: the errors that every call may raise, with an explanation for users.

use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

use corelane_wire::exception::SystemExceptionBody;
use corelane_wire::exception::minor;
pub use corelane_wire::exception::{Completion, SystemExceptionKind};
use corelane_wire::{CdrError, Decoder, Encoder};

use crate::text;

/// A CORBA system exception (CORBA 3.0.3, section 4.12), raised locally or received from the peer.
///
/// # Examples
/// ```
/// use corelane::{Completion, SystemException, SystemExceptionKind};
/// let refused = SystemException::new(SystemExceptionKind::NoPermission, 0, Completion::No);
/// assert_eq!(refused.repository_id(), "IDL:omg.org/CORBA/NO_PERMISSION:1.0");
/// ```
#[derive(Clone)]
pub struct SystemException {
    detail: Option<Box<FailureDetail>>,
    code: Code,
}

/// Minor code, kind and completion status in one word. The word is never 0, so `Result<(),
/// SystemException>` is no larger than the exception.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Code(NonZeroU64);

impl Code {
    #[inline]
    const fn new(kind: SystemExceptionKind, minor: u32, completed: Completion) -> Self {
        let word = (minor as u64) << 32 | (kind as u64) << 16 | (completed as u64) << 8;
        Code(NonZeroU64::MIN.saturating_add(word))
    }

    #[inline]
    fn minor(self) -> u32 {
        (self.0.get() >> 32) as u32
    }

    #[inline]
    fn kind(self) -> SystemExceptionKind {
        let index = usize::from((self.0.get() >> 16) as u16);
        SystemExceptionKind::ALL.get(index).copied().unwrap_or(SystemExceptionKind::Unknown)
    }

    fn completed(self) -> Completion {
        match (self.0.get() >> 8) as u8 {
            0 => Completion::Yes,
            1 => Completion::No,
            _ => Completion::Maybe,
        }
    }
}

/// Information about the cause of a failure, which the ORB adds to an exception.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailureDetail {
    /// The endpoint to which the call was going, in corbaloc syntax.
    pub endpoint: Option<String>,
    /// The phase in which the call failed.
    pub phase: Option<CallPhase>,
    /// Time from the start of the call to the failure; from the start of the phase if the call's
    /// start is not known.
    pub elapsed: Option<Duration>,
    /// An explanation for users, with sizes and limits.
    pub message: String,
}

/// A phase of an invocation that can fail or time out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallPhase {
    /// Waiting for a free connection of the pool.
    AcquireConnection,
    /// Making a connection.
    Connect,
    /// Writing the request.
    SendRequest,
    /// Waiting for the reply.
    WaitForReply,
}

impl fmt::Display for CallPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CallPhase::AcquireConnection => "waiting for a free connection",
            CallPhase::Connect => "connecting",
            CallPhase::SendRequest => "sending the request",
            CallPhase::WaitForReply => "waiting for the reply",
        })
    }
}

#[cold]
pub(crate) fn no_such_object() -> SystemException {
    let code = minor::object_not_exist::NO_OBJECT_OR_ADAPTER;
    SystemException::new(SystemExceptionKind::ObjectNotExist, code, Completion::No)
}

impl SystemException {
    /// Makes an exception. `minor` is the full minor code, with the vendor id in the upper 20 bits.
    #[must_use]
    pub fn new(kind: SystemExceptionKind, minor: u32, completed: Completion) -> Self {
        SystemException { detail: None, code: Code::new(kind, minor, completed) }
    }

    /// Makes BAD_OPERATION 2, for an operation that the target does not have.
    #[cold]
    #[must_use]
    pub fn bad_operation() -> Self {
        Self::new(SystemExceptionKind::BadOperation, minor::bad_operation::UNKNOWN_OPERATION, Completion::No)
    }

    /// Returns the exception with `detail`, which replaces an earlier detail.
    #[cold]
    #[must_use]
    pub fn with_detail(mut self, detail: FailureDetail) -> Self {
        self.detail = Some(Box::new(detail));
        self
    }

    /// Returns the exception with a message about the cause, in its [`FailureDetail`].
    #[cold]
    #[must_use]
    pub fn with_message(self, message: impl Into<String>) -> Self {
        self.with_detail(FailureDetail { message: message.into(), ..FailureDetail::default() })
    }

    /// Returns the name or the explanation of the minor code if the OMG or this ORB defines it.
    /// docs/minor-codes.md explains each code.
    #[cold]
    #[must_use]
    pub fn minor_name(&self) -> Option<&'static str> {
        minor::name(self.kind(), self.minor())
            .or_else(|| crate::minor::name(self.minor()))
            .or_else(|| CdrError::from_minor(self.minor()).map(CdrError::text))
    }

    /// Returns the exception with another completion status.
    #[must_use]
    pub fn with_completion(mut self, completed: Completion) -> Self {
        self.code = Code::new(self.kind(), self.minor(), completed);
        self
    }

    /// Returns the kind of exception.
    #[must_use]
    pub fn kind(&self) -> SystemExceptionKind {
        self.code.kind()
    }

    /// Returns the full minor code: vendor id in the upper 20 bits, code in the lower 12.
    #[must_use]
    pub fn minor(&self) -> u32 {
        self.code.minor()
    }

    /// Returns the completion status, which says whether the operation ran at the target.
    #[must_use]
    pub fn completed(&self) -> Completion {
        self.code.completed()
    }

    /// Returns the ORB's information about the cause, if the exception has any.
    #[must_use]
    pub fn detail(&self) -> Option<&FailureDetail> {
        self.detail.as_deref()
    }

    #[inline]
    pub(crate) fn is_unknown_operation(&self) -> bool {
        self.kind() == SystemExceptionKind::BadOperation
    }

    #[cold]
    pub(crate) fn encode(&self, encoder: &mut Encoder<'_>) {
        SystemExceptionBody { kind: self.kind(), minor: self.minor(), completed: self.completed() }.write(encoder);
    }

    #[cold]
    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<Self, CdrError> {
        let body = SystemExceptionBody::read(decoder)?;
        Ok(Self::new(body.kind, body.minor, body.completed))
    }

    /// Returns the repository id of the exception: `IDL:omg.org/CORBA/NAME:1.0`.
    #[must_use]
    pub fn repository_id(&self) -> &'static str {
        self.kind().repository_id()
    }
}

impl PartialEq for SystemException {
    fn eq(&self, other: &Self) -> bool {
        self.code == other.code
    }
}

impl Eq for SystemException {}

impl From<CdrError> for SystemException {
    #[cold]
    fn from(error: CdrError) -> Self {
        Self::new(error.kind(), error.minor(), Completion::No).with_message(error.text())
    }
}

impl fmt::Debug for SystemException {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for SystemException {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind().name())?;
        if self.minor() != 0 {
            write!(f, " minor {:#010x}", self.minor())?;
            #[cfg(feature = "minor-names")]
            {
                let is_said = |name: &&str| self.detail.as_ref().is_some_and(|detail| detail.message.starts_with(name));
                if let Some(name) = self.minor_name().filter(|name| !is_said(name)) {
                    write!(f, " ({name})")?;
                }
            }
        }
        f.write_str(match self.completed() {
            Completion::Yes => ", COMPLETED_YES",
            Completion::No => ", COMPLETED_NO",
            Completion::Maybe => ", COMPLETED_MAYBE",
        })?;
        let Some(detail) = &self.detail else { return Ok(()) };
        if let Some(phase) = detail.phase {
            write!(f, ", {phase}")?;
        }
        if let Some(endpoint) = &detail.endpoint {
            write!(f, " at {}", text::message(endpoint))?;
        }
        // A time of zero means that the coarse clock has not ticked, so the time is not shown.
        if let Some(elapsed) = detail.elapsed.filter(|elapsed| !elapsed.is_zero()) {
            write!(f, " after {elapsed:.1?}")?;
        }
        if !detail.message.is_empty() {
            write!(f, ": {}", text::message(&detail.message))?;
        }
        Ok(())
    }
}

impl std::error::Error for SystemException {}

/// An exception that IDL declares. On the wire the repository id precedes the members.
pub trait UserException: corelane_wire::Cdr {
    /// The repository id of the exception.
    const REPOSITORY_ID: &'static str;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_exception_and_its_result_have_two_words() {
        assert_eq!(size_of::<Result<(), SystemException>>(), 16);
    }

    #[test]
    fn exception_has_the_parts_that_it_was_made_from() {
        for (kind, minor) in SystemExceptionKind::ALL.iter().zip([0, 1, minor::OMG | 7, u32::MAX].into_iter().cycle()) {
            for completed in [Completion::Yes, Completion::No, Completion::Maybe] {
                let exception = SystemException::new(*kind, minor, completed);
                assert_eq!((exception.kind(), exception.minor(), exception.completed()), (*kind, minor, completed));
                let again = SystemException::new(*kind, minor, Completion::No).with_completion(completed);
                assert_eq!(again, exception);
            }
        }
    }

    #[test]
    fn the_text_names_exception_minor_vendor_and_cause() {
        let lost =
            SystemException::new(SystemExceptionKind::Timeout, minor::timeout::REPLY_END_TIME, Completion::Maybe)
                .with_detail(FailureDetail {
                    endpoint: Some("iiop:1.2@127.0.0.1:4000".into()),
                    phase: Some(CallPhase::WaitForReply),
                    elapsed: Some(Duration::from_millis(300)),
                    message: String::new(),
                });
        assert_eq!(
            lost.to_string(),
            "TIMEOUT minor 0x4f4d0003 (REPLY_END_TIME), COMPLETED_MAYBE, waiting for the reply at iiop:1.2@127.0.0.1:4000 after 300.0ms"
        );
        let foreign = SystemException::new(SystemExceptionKind::Transient, 0x4154_0002, Completion::No);
        assert_eq!(foreign.to_string(), "TRANSIENT minor 0x41540002, COMPLETED_NO");
    }
}
