//! Servants, which implement the operations of objects, and skeletons, which dispatch requests to
//! them.

use std::any::{Any, TypeId};
use std::fmt;
use std::sync::Arc;

use corelane_sys::erased::ErasedRef;
use corelane_wire::giop::{self, ReplyStatus, context_id};
use corelane_wire::{CdrError, Decoder, Encoder, Version, rt};

use crate::client::context::ClientContext;
use crate::exception::{SystemException, UserException};
use crate::orb_context::OrbContext;
use crate::service_contexts::{ContextList, context};
use crate::trail::unwritable;

/// The dispatcher of an interface: decodes requests, calls the servant and encodes replies.
///
/// A servant without generated code implements this trait directly.
pub trait Skeleton: Send + Sync + 'static {
    /// Returns the repository ids of the interface and of all its bases, most derived first,
    /// without `CORBA::Object`.
    fn repository_ids(&self) -> &'static [&'static str];

    /// Runs `operation` with the arguments of `call`, and writes the results to `call`.
    ///
    /// # Errors
    /// BAD_OPERATION 2 for an unknown operation, whose arguments are not read; MARSHAL for
    /// arguments that do not decode; any exception that the servant raises.
    fn dispatch(&self, operation: &[u8], call: &mut ServerCall<'_>) -> Result<(), SystemException>;

    /// For collocated calls: [provides](InterfaceQuery::provide) the servant as an implementation
    /// of the interface and of each of its bases. If a skeleton provides nothing, collocated calls
    /// are encoded and decoded.
    fn query_interface<'s>(&'s self, cast: &mut InterfaceQuery<'s>) {
        let _ = cast;
    }
}

/// A query for a servant's implementation of an interface, which the servant's skeleton
/// [answers](Skeleton::query_interface).
pub struct InterfaceQuery<'s> {
    interface: TypeId,
    found: Option<ErasedRef<'s>>,
    owned: Option<&'s mut dyn Any>,
}

impl<'s> InterfaceQuery<'s> {
    #[inline]
    pub(crate) fn new(interface: TypeId) -> Self {
        InterfaceQuery { interface, found: None, owned: None }
    }

    #[inline]
    pub(crate) fn found(&self) -> Option<&ErasedRef<'s>> {
        self.found.as_ref()
    }

    /// Provides the servant as an implementation of `I`; `borrow` and `share` convert the servant.
    /// Does nothing if the query is for another interface.
    #[inline]
    pub fn provide<S: ?Sized, I: ?Sized + 'static>(
        &mut self,
        servant: &'s Arc<S>,
        borrow: fn(&'s S) -> &'s I,
        share: fn(Arc<S>) -> Arc<I>,
    ) {
        if TypeId::of::<I>() != self.interface {
            return;
        }
        match &mut self.owned {
            None => self.found = Some(ErasedRef::new(borrow(servant))),
            Some(slot) => {
                if let Some(slot) = slot.downcast_mut() {
                    *slot = Some(share(Arc::clone(servant)));
                }
            }
        }
    }
}

/// A servant with its skeleton, ready to be activated. Clones refer to the same servant.
#[derive(Clone)]
pub struct Servant(Arc<dyn Skeleton>);

impl Servant {
    /// Makes a servant from its skeleton.
    pub fn new(skeleton: impl Skeleton) -> Self {
        Servant(Arc::new(skeleton))
    }

    /// Returns the repository id of the most derived interface.
    #[must_use]
    pub fn repository_id(&self) -> &'static str {
        self.0.repository_ids().first().copied().unwrap_or(crate::object::OBJECT_REPOSITORY_ID)
    }

    /// Returns true if `id` is the repository id of the servant's interface, of one of its bases,
    /// or of `CORBA::Object`.
    #[must_use]
    pub fn is_a(&self, id: &str) -> bool {
        id == crate::object::OBJECT_REPOSITORY_ID || self.0.repository_ids().contains(&id)
    }

    /// Returns the servant as an implementation of the interface `I`, if it implements `I`:
    /// `servant.implements::<dyn Echo>()`.
    #[must_use]
    pub fn implements<I: ?Sized + 'static>(&self) -> Option<Arc<I>> {
        let mut slot: Option<Arc<I>> = None;
        self.0.query_interface(&mut InterfaceQuery {
            interface: TypeId::of::<I>(),
            found: None,
            owned: Some(&mut slot),
        });
        slot
    }

    #[inline]
    pub(crate) fn cast<'s>(&'s self, cast: &mut InterfaceQuery<'s>) {
        self.0.query_interface(cast);
    }

    #[inline]
    pub(crate) fn skeleton(&self) -> &dyn Skeleton {
        &*self.0
    }

    pub(crate) fn identity(&self) -> usize {
        Arc::as_ptr(&self.0).cast::<()>() as usize
    }
}

impl PartialEq for Servant {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for Servant {}

impl fmt::Debug for Servant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Servant({} at {:#x})", self.repository_id(), self.identity())
    }
}

/// A request in a skeleton: its arguments, and the reply that the skeleton writes.
pub struct ServerCall<'m> {
    arguments: Decoder<'m>,
    reply: Encoder<'m>,
    /// The GIOP version and the request id for the reply's header; `None` for a collocated call,
    /// whose reply has no header.
    head: Option<(Version, u32)>,
    priority: Option<i16>,
    raised: bool,
}

impl<'m> ServerCall<'m> {
    /// Creates a call, and does not begin its reply, because returning an encoder whose fields were
    /// just written would be slow (docs/performance.md).
    #[inline]
    pub(crate) fn new(
        arguments: Decoder<'m>,
        reply: Encoder<'m>,
        head: Option<(Version, u32)>,
        priority: Option<i16>,
    ) -> Self {
        ServerCall { arguments, reply, head, priority, raised: false }
    }

    pub(crate) fn orb(&self) -> Option<&OrbContext> {
        let env: &dyn Any = self.arguments.decoding_context()?;
        env.downcast_ref::<Arc<ClientContext>>().map(|client| &***client)
    }

    #[inline]
    pub(crate) fn begin(&mut self, status: ReplyStatus) {
        if let Some((version, id)) = self.head {
            let begun = match self.priority {
                None => giop::begin_reply(&mut self.reply, version, id, status, &[]),
                Some(_) => self.begin_with_contexts(version, id, status),
            };
            // The reply has at most one service context, of four bytes, so its encoding cannot
            // fail.
            debug_assert!(begun.is_ok());
        }
    }

    fn begin_with_contexts(&mut self, version: Version, id: u32, status: ReplyStatus) -> Result<(), CdrError> {
        let priority = self.priority.map(rt::encode_priority_context);
        let contexts = ContextList::new([context(context_id::RT_CORBA_PRIORITY, &priority)]);
        giop::begin_reply(&mut self.reply, version, id, status, contexts.as_slice())
    }

    #[cold]
    pub(crate) fn restart(&mut self, status: ReplyStatus) -> &mut Encoder<'m> {
        self.reply.clear();
        self.raised = false;
        self.begin(status);
        &mut self.reply
    }

    /// Returns the decoder for the in and inout arguments, which follow the order of the
    /// parameters.
    #[inline]
    pub fn arguments(&mut self) -> &mut Decoder<'m> {
        &mut self.arguments
    }

    /// Returns the encoder for the reply: first the result, then the inout and out arguments in the
    /// order of the parameters.
    #[inline]
    pub fn reply(&mut self) -> &mut Encoder<'m> {
        &mut self.reply
    }

    /// Discards the reply written so far, and replies with a user exception.
    ///
    /// # Errors
    /// If a member cannot be marshalled.
    #[cold]
    pub fn raise<E: UserException>(&mut self, exception: &E) -> Result<(), SystemException> {
        self.restart(ReplyStatus::UserException).write_latin1_str(E::REPOSITORY_ID)?;
        self.raised = true;
        exception.encode(&mut self.reply).map_err(|error| unwritable(error, "exception member ", &self.reply))
    }

    #[cfg(feature = "any")]
    #[cold]
    pub(crate) fn raise_with(
        &mut self,
        write: impl FnOnce(&mut Encoder<'_>) -> Result<(), CdrError>,
    ) -> Result<(), SystemException> {
        self.restart(ReplyStatus::UserException);
        self.raised = true;
        write(&mut self.reply)?;
        Ok(())
    }

    pub(crate) fn has_raised(&self) -> bool {
        self.raised
    }
}

impl fmt::Debug for ServerCall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerCall").field("raised", &self.raised).finish_non_exhaustive()
    }
}
