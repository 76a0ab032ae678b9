//! Replies to calls.

use std::any::Any;
use std::sync::Arc;

use corelane_sys::buffer::MAX_HEAP_BYTES;
use corelane_wire::cdr::{MemoryMeter, MessageTail};
use corelane_wire::exception::minor;
use corelane_wire::{CdrError, CodeSets, Decoder, Endian, Octets, Version};

use crate::client::checkout::Checkout;
use crate::client::context::ClientContext;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::memory::{ByteBudget, over_budget};
use crate::text;
use crate::trail;

/// The reply to a call: results, or a user exception. If the reply is in the buffer of its
/// connection, other calls cannot use this connection until the reply is dropped.
#[derive(Debug)]
pub struct Reply<'r> {
    context: &'r Arc<ClientContext>,
    answer: ReplyContent<'r>,
}

#[derive(Debug)]
pub(crate) struct ReplyContent<'r> {
    body: ReplyBody<'r>,
    /// Position of the next value to read, in bytes from the start of the message.
    position: usize,
    exception: Option<Box<str>>,
    endian: Endian,
    version: Version,
    code_sets: CodeSets,
}

#[derive(Debug)]
pub(crate) enum ReplyBody<'r> {
    /// The checkout of the reply's connection, and the number of bytes that the reply has at the
    /// front of the connection's receive buffer.
    InPlace(Checkout<'r>, usize),
    /// Bytes outside the connection, and the positions at which GIOP 1.1 fragments begin.
    Owned(Box<(Octets, Vec<usize>)>),
}

impl ReplyBody<'_> {
    #[cold]
    pub(crate) fn owned(octets: Octets, breaks: Vec<usize>) -> Self {
        ReplyBody::Owned(Box::new((octets, breaks)))
    }

    #[inline]
    fn octets(&self) -> &[u8] {
        match self {
            ReplyBody::InPlace(connection, length) => connection.front_message(*length),
            ReplyBody::Owned(owned) => &owned.0,
        }
    }
}

impl<'r> Reply<'r> {
    #[inline]
    pub(crate) fn new(
        body: ReplyBody<'r>,
        context: &'r Arc<ClientContext>,
        position: usize,
        (endian, version, code_sets): ReplyCoding,
    ) -> Self {
        Reply { context, answer: ReplyContent { body, position, exception: None, endian, version, code_sets } }
    }

    /// Returns the reply without its connection, which other calls can then use. Copies the bytes
    /// if they are in the connection's buffer.
    pub(crate) fn detach(mut self) -> ReplyContent<'static> {
        let octets = match &mut self.answer.body {
            ReplyBody::InPlace(connection, length) => (connection.front_message(*length).to_vec().into(), Vec::new()),
            ReplyBody::Owned(owned) => std::mem::take(&mut **owned),
        };
        let ReplyContent { position, endian, version, code_sets, .. } = self.answer;
        let exception = self.answer.exception.take();
        ReplyContent { body: ReplyBody::Owned(Box::new(octets)), position, exception, endian, version, code_sets }
    }

    #[cold]
    pub(crate) fn into_exception(mut self) -> Result<Self, SystemException> {
        self.answer.exception = Some(self.read(|decoder| decoder.read_latin1_string())?.into());
        Ok(self)
    }

    #[inline]
    pub(crate) fn is_exception(&self) -> bool {
        self.answer.exception.is_some()
    }

    /// Returns the repository id of the user exception, or `None` if the reply has results. For an
    /// exception, the first [`read`](Self::read) begins at the exception's members.
    #[must_use]
    #[inline]
    pub fn exception_id(&self) -> Option<&str> {
        self.answer.exception.as_deref()
    }

    /// Makes the system exception UNKNOWN 1, for a reply with a user exception that the operation
    /// does not declare.
    #[must_use]
    #[cold]
    pub fn unknown_user_exception(&self) -> SystemException {
        let id = self.answer.exception.as_deref().unwrap_or("an exception");
        SystemException::new(Kind::Unknown, minor::unknown::UNLISTED_USER_EXCEPTION, Completion::Yes).with_message(
            format!("the object raised {}, which the operation does not declare", text::shown(id.as_bytes())),
        )
    }

    /// Reads results with the function `read`. A second call of this method continues behind the
    /// values that the first call read.
    ///
    /// # Errors
    /// MARSHAL, COMPLETED_YES, if the bytes do not encode the expected values. IMP_LIMIT,
    /// COMPLETED_YES, if the ORB's memory for replies is exhausted
    /// ([`OrbBuilder::max_reply_memory`](crate::OrbBuilder::max_reply_memory)).
    #[inline]
    pub fn read<T>(
        &mut self,
        read: impl FnOnce(&mut Decoder<'_>) -> Result<T, CdrError>,
    ) -> Result<T, SystemException> {
        let ReplyContent { body, position, endian, version, code_sets, .. } = &self.answer;
        let owned = match body {
            ReplyBody::InPlace(..) => None,
            ReplyBody::Owned(owned) => Some(&**owned),
        };
        let codec = (*endian, *version, *code_sets);
        let (value, position) = read_results(self.context, body.octets(), owned, *position, codec, read)?;
        self.answer.position = position;
        Ok(value)
    }
}

pub(super) type ReplyCoding = (Endian, Version, CodeSets);

/// Reads results with the function `read` from the reply message `octets`, from `position` on.
/// Returns the results and the position behind them. `owned` is set if the results may share the
/// message's memory.
#[inline]
pub(super) fn read_results<T>(
    context: &Arc<ClientContext>,
    octets: &[u8],
    owned: Option<&(Octets, Vec<usize>)>,
    position: usize,
    coding: ReplyCoding,
    read: impl FnOnce(&mut Decoder<'_>) -> Result<T, CdrError>,
) -> Result<(T, usize), SystemException> {
    read_results_with_tail(context, octets, owned, None, position, coding, read)
}

/// Reads results as [`read_results`] does. `tail` is the part of the message behind `octets`.
#[inline]
pub(super) fn read_results_with_tail<T>(
    context: &Arc<ClientContext>,
    octets: &[u8],
    owned: Option<&(Octets, Vec<usize>)>,
    tail: Option<&MessageTail<'_>>,
    position: usize,
    (endian, version, code_sets): ReplyCoding,
    read: impl FnOnce(&mut Decoder<'_>) -> Result<T, CdrError>,
) -> Result<(T, usize), SystemException> {
    let env: &(dyn Any + Sync) = context;
    let values = context.value_read_state();
    let held: &ByteBudget = context.reply_memory();
    let meter = MemoryMeter::new(held);
    let mut decoder = Decoder::new(octets, endian)
        .at_position(position)
        .with_version(version)
        .with_code_sets(code_sets)
        .with_written_by_server(true)
        .with_limits(&context.config().limits)
        .with_value_read_state(&values)
        .with_memory_meter(&meter)
        .with_decoding_context(env);
    if let Some((octets, breaks)) = owned {
        decoder = decoder.with_shared_message(octets).with_fragment_starts(breaks);
    }
    if let Some(tail) = tail {
        decoder = decoder.with_tail(tail);
    }
    let fits = if octets.len() > MAX_HEAP_BYTES { meter.charge_existing(octets.len()) } else { Ok(()) };
    match fits.and_then(|()| read(&mut decoder)) {
        Ok(value) => {
            corelane_sys::probe!("reply demarshalled");
            Ok((value, decoder.message_offset()))
        }
        Err(error) => {
            let length = octets.len() + tail.map_or(0, MessageTail::len);
            Err(unreadable_results(error, &meter, &decoder, length))
        }
    }
}

#[cold]
fn unreadable_results(error: CdrError, meter: &MemoryMeter<'_>, decoder: &Decoder<'_>, of: usize) -> SystemException {
    let (at, place) = (decoder.message_offset(), trail::place("", decoder));
    if let (CdrError::ResultMemoryTooSmall, Some(refusal)) = (error, meter.refusal()) {
        return memory_too_small(refusal.requested, refusal.limit);
    }
    match meter.refusal().filter(|_| error == CdrError::MemoryBudgetExceeded) {
        Some(refusal) => {
            over_budget("the results exceed the memory limit", refusal, "OrbBuilder::max_reply_memory", Completion::Yes)
        }
        None => SystemException::from(error)
            .with_message(format!("{}{place}, at octet {at} of the {of} of the reply", error.text()))
            .with_completion(Completion::Yes),
    }
}

/// Returns the exception of a sequence that is larger than the caller's memory for it.
#[cold]
pub(crate) fn memory_too_small(len: usize, room: usize) -> SystemException {
    SystemException::from(CdrError::ResultMemoryTooSmall)
        .with_message(format!("the result has {len} elements, the caller's memory has room for {room}"))
        .with_completion(Completion::Yes)
}

impl<'r> ReplyContent<'r> {
    /// Makes a reply of the content. `context` must be the context of the ORB that received the
    /// reply.
    pub(super) fn attach(self, context: &'r Arc<ClientContext>) -> Reply<'r> {
        Reply { context, answer: self }
    }
}

impl Drop for ReplyContent<'_> {
    #[inline]
    fn drop(&mut self) {
        if let ReplyBody::InPlace(connection, length) = &mut self.body {
            connection.consume(*length);
        }
    }
}
