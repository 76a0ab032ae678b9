//! Servants: what runs the operations of objects, and the skeletons that stand between them and requests.

use std::any::{Any, TypeId};
use std::fmt;
use std::sync::Arc;

use corelane_sys::erased::ErasedRef;
use corelane_wire::giop::{self, ReplyStatus, ServiceContext, context_id};
use corelane_wire::{Decoder, Encoder, Version, rt};

use crate::exception::{SystemException, UserException};
use crate::orb::Core;

/// What the IDL compiler makes for an interface: takes requests apart, calls the servant, puts replies together.
///
/// A servant without generated code implements this itself.
pub trait Skeleton: Send + Sync + 'static {
    /// The repository ids of the interface and all its bases, the most derived first, `CORBA::Object` not among them.
    fn repository_ids(&self) -> &'static [&'static str];

    /// Runs `operation` with the arguments of `call` and leaves its results there.
    ///
    /// # Errors
    /// BAD_OPERATION 2 for an unknown operation, before anything is read; MARSHAL for arguments that do not decode; whatever the
    /// servant raises.
    fn dispatch(&self, operation: &[u8], call: &mut ServerCall<'_>) -> Result<(), SystemException>;

    /// For calls within the process: [offers](Cast::offer) the servant as the interface and as each of its bases. Calls of a
    /// servant that offers nothing are marshalled.
    fn cast<'s>(&'s self, cast: &mut Cast<'s>) {
        let _ = cast;
    }
}

/// A question for a servant as the implementation of an interface, which its skeleton [answers](Skeleton::cast).
pub struct Cast<'s> {
    interface: TypeId,
    found: Option<ErasedRef<'s>>,
    /// Where it is to be owned: an `Option<Arc<I>>`.
    owned: Option<&'s mut dyn Any>,
}

impl<'s> Cast<'s> {
    /// To borrow the servant as the `dyn I` of this type.
    #[inline]
    pub(crate) fn new(interface: TypeId) -> Self {
        Cast { interface, found: None, owned: None }
    }

    /// The servant as that, if it was offered.
    #[inline]
    pub(crate) fn found(&self) -> Option<&ErasedRef<'s>> {
        self.found.as_ref()
    }

    /// The servant is this, as an implementation of `I`; `borrow` and `share` turn it into one. Nothing happens if another interface is
    /// asked for.
    #[inline]
    pub fn offer<S: ?Sized, I: ?Sized + 'static>(
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

/// A servant with its skeleton, ready to be activated; clones are the same servant.
#[derive(Clone)]
pub struct Servant(Arc<dyn Skeleton>);

impl Servant {
    /// A servant from its skeleton. Generated code calls it: `Echo::servant(MyEcho)`.
    pub fn new(skeleton: impl Skeleton) -> Self {
        Servant(Arc::new(skeleton))
    }

    /// The repository id of the most derived interface.
    #[must_use]
    pub fn repository_id(&self) -> &'static str {
        self.0.repository_ids().first().copied().unwrap_or(crate::object::OBJECT_ID)
    }

    /// Whether the servant has the interface `id`, itself or by inheritance.
    #[must_use]
    pub fn is_a(&self, id: &str) -> bool {
        id == crate::object::OBJECT_ID || self.0.repository_ids().contains(&id)
    }

    /// The servant as an implementation of an interface: `servant.implements::<dyn Echo>()`.
    #[must_use]
    pub fn implements<I: ?Sized + 'static>(&self) -> Option<Arc<I>> {
        let mut slot: Option<Arc<I>> = None;
        self.0.cast(&mut Cast { interface: TypeId::of::<I>(), found: None, owned: Some(&mut slot) });
        slot
    }

    /// The same for as long as the servant is held: `cast` has [found](Cast::found) the interface then.
    #[inline]
    pub(crate) fn cast<'s>(&'s self, cast: &mut Cast<'s>) {
        self.0.cast(cast);
    }

    #[inline]
    pub(crate) fn skeleton(&self) -> &dyn Skeleton {
        &*self.0
    }

    /// What tells servants apart.
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

/// A request on its way through a skeleton: its arguments, and the reply that grows.
pub struct ServerCall<'m> {
    arguments: Decoder<'m>,
    reply: Encoder<'m>,
    /// Version and request id of the reply; a call within the process has no header.
    head: Option<(Version, u32)>,
    /// The priority that the request came with goes back in the reply.
    priority: Option<i16>,
    raised: bool,
}

impl<'m> ServerCall<'m> {
    /// A call whose reply is to be [begun](Self::begin); it will carry `priority` (RTCorbaPriority). That is two steps, because a call that
    /// is changed before it is where it stays would be moved there.
    #[inline]
    pub(crate) fn new(
        arguments: Decoder<'m>,
        reply: Encoder<'m>,
        head: Option<(Version, u32)>,
        priority: Option<i16>,
    ) -> Self {
        ServerCall { arguments, reply, head, priority, raised: false }
    }

    /// The ORB that serves the call.
    pub(crate) fn core(&self) -> Option<&Arc<Core>> {
        let env: &dyn Any = self.arguments.env()?;
        env.downcast_ref()
    }

    /// Begins the reply, with its header if it has one.
    #[inline]
    pub(crate) fn begin(&mut self, status: ReplyStatus) {
        if let Some((version, id)) = self.head {
            let data;
            let context;
            let contexts: &[ServiceContext<'_>] = match self.priority {
                None => &[],
                Some(priority) => {
                    data = rt::priority_context(priority);
                    context = [ServiceContext { id: context_id::RT_CORBA_PRIORITY, data: &data }];
                    &context
                }
            };
            // With one short service context nothing is too long.
            let _ = giop::begin_reply(&mut self.reply, version, id, status, contexts);
        }
    }

    /// Forgets the reply and begins it anew.
    #[cold]
    pub(crate) fn restart(&mut self, status: ReplyStatus) -> &mut Encoder<'m> {
        self.reply.clear();
        self.raised = false;
        self.begin(status);
        &mut self.reply
    }

    /// The in and inout arguments, left to right.
    #[inline]
    pub fn arguments(&mut self) -> &mut Decoder<'m> {
        &mut self.arguments
    }

    /// Where the result goes, then the inout and out arguments, left to right.
    #[inline]
    pub fn reply(&mut self) -> &mut Encoder<'m> {
        &mut self.reply
    }

    /// Answers with a user exception; what the reply held is forgotten.
    ///
    /// # Errors
    /// If a member cannot be marshalled.
    #[cold]
    pub fn raise<E: UserException>(&mut self, exception: &E) -> Result<(), SystemException> {
        self.restart(ReplyStatus::UserException).write_latin1_str(E::REPOSITORY_ID)?;
        self.raised = true;
        exception.encode(&mut self.reply)?;
        Ok(())
    }

    /// Answers with a user exception in an `any`.
    #[cfg(feature = "any")]
    #[cold]
    pub(crate) fn raise_any(&mut self, exception: &crate::any::Any) -> Result<(), SystemException> {
        self.restart(ReplyStatus::UserException);
        self.raised = true;
        exception.encode_value(&mut self.reply)?;
        Ok(())
    }

    /// Whether it is answered with a user exception.
    pub(crate) fn has_raised(&self) -> bool {
        self.raised
    }
}

impl fmt::Debug for ServerCall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerCall").field("raised", &self.raised).finish_non_exhaustive()
    }
}
