//! PortableServer::Current: the context of the running upcall (CORBA 3.0.3, section 11.3.9).
//!
//! The code that pushes a frame onto the [upcall stack](upcall_stack) keeps the POA and the servant
//! of the upcall alive until the frame is removed.

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use corelane_wire::Octets;

use crate::exception::SystemException;
#[cfg(feature = "keep-octets")]
use crate::kept_octets::{self, KeepAccount};
use crate::object::ObjectRef;
use crate::poa::{ObjectId, Poa, PoaCore, PoaTable, UpcallTarget};
use crate::servant::Servant;
use crate::server_context::ServerContext;
#[cfg(feature = "keep-octets")]
use crate::thread_context;
use crate::upcall_stack::{self, UpcallFrame};

#[derive(Default)]
struct SpilledParts {
    servants: Vec<Servant>,
    orbs: Vec<(u64, Weak<ServerContext>)>,
}

thread_local! {
    static SPILL: RefCell<SpilledParts> = const {
        RefCell::new(SpilledParts { servants: Vec::new(), orbs: Vec::new() })
    };
}

/// The upcall that the calling thread runs, and its object.
#[derive(Clone, Debug)]
pub struct Current {
    /// The POA of the object.
    pub poa: Poa,
    /// The id of the object.
    pub object_id: ObjectId,
    servant: Option<Servant>,
}

impl Current {
    /// Returns the servant that runs, or `None` in a servant locator's `preinvoke`.
    #[must_use]
    pub fn servant(&self) -> Option<&Servant> {
        self.servant.as_ref()
    }

    /// Returns a reference to the object.
    ///
    /// # Errors
    /// BAD_INV_ORDER 4 after the ORB's shutdown.
    pub fn reference(&self) -> Result<ObjectRef, SystemException> {
        let type_id = self.servant.as_ref().map_or(crate::object::OBJECT_REPOSITORY_ID, Servant::repository_id);
        self.poa.core().reference(self.object_id.as_octets(), type_id)
    }
}

/// Returns the upcall that the calling thread runs. Returns `None` outside an upcall (NoContext),
/// and in servant activators and adapter activators.
///
/// # Examples
/// ```
/// assert!(corelane::current().is_none());
/// ```
#[must_use]
pub fn current() -> Option<Current> {
    let (frame, depth) = upcall_stack::innermost()?;
    resolve(frame, depth)
}

/// Calls `read` with the id of the object whose operation the calling thread runs. Returns `None`
/// outside an upcall, and in servant activators and adapter activators.
///
/// [`current`] also returns the POA and the servant, and so changes reference counts that other
/// threads change. This function changes none, and allocates nothing for ids of at most 24 octets.
///
/// # Examples
/// ```
/// // In a servant: `corelane::with_current_object_id(|id| self.accounts.balance(id))`.
/// assert_eq!(corelane::with_current_object_id(<[u8]>::len), None);
/// ```
pub fn with_current_object_id<R>(read: impl FnOnce(&[u8]) -> R) -> Option<R> {
    upcall_stack::with_innermost_id(read)
}

/// Returns octets that a servant received, for use after the request.
///
/// The result shares the memory of the received message if the octets are at least 16 KiB of it,
/// such as a `sequence<octet>` parameter, and the calling thread runs the operation. All other
/// octets are copied, for example members of structures and arguments of collocated calls. Returned
/// as the operation's result, shared octets are sent without a copy.
///
/// The octets count in the ORB's memory
/// ([`OrbBuilder::max_kept_memory`](crate::OrbBuilder::max_kept_memory)) until they and their
/// clones are dropped. Shared octets count with the memory of the whole message. Outside requests,
/// in collocated calls, and without the feature `keep-octets` nothing counts.
///
/// # Errors
/// IMP_LIMIT 0x434c4e83, COMPLETED_MAYBE, if the octets exceed the ORB's maximum, or the half of it
/// that the requests of one connection may use.
///
/// # Examples
/// ```
/// use corelane::Octets;
/// // In a servant: `self.images.lock().push(corelane::keep_octets(image)?)`.
/// let kept: Octets = corelane::keep_octets(b"outside a request, a copy")?;
/// # Ok::<(), corelane::SystemException>(())
/// ```
pub fn keep_octets(octets: &[u8]) -> Result<Octets, SystemException> {
    #[cfg(feature = "keep-octets")]
    {
        if let Some(kept) = kept_octets::keep_lent(octets) {
            return Ok(kept?);
        }
        if let (Some(connection), Some(orb)) = (thread_context::current_connection(), running_orb_of_thread()) {
            return Ok(KeepAccount::new(orb.kept_budget(), connection).copy(octets)?);
        }
    }
    Ok(Octets::copy_from(octets))
}

pub(crate) fn running_orb_of_thread() -> Option<Arc<ServerContext>> {
    let (frame, _) = upcall_stack::innermost()?;
    SPILL.with_borrow(|beside| beside.orbs.iter().find(|(stamp, _)| *stamp == frame.stamp)?.1.upgrade())
}

fn resolve(frame: UpcallFrame, depth: usize) -> Option<Current> {
    let object_id = ObjectId::from(&*upcall_stack::object_id(&frame, depth)?);
    let (kept, orb) = SPILL.with_borrow(|beside| {
        let kept = if frame.spills_servant {
            let index = upcall_stack::frames_below(depth).filter(|frame| frame.spills_servant).count();
            beside.servants.get(index).cloned()
        } else {
            None
        };
        let (_, orb) = beside.orbs.iter().find(|(stamp, _)| *stamp == frame.stamp)?;
        Some((kept, orb.upgrade()?))
    })?;
    let poa = PoaTable::of_server(&orb).running(frame.poa)?;
    let servant = kept.or_else(|| poa.running_servant(object_id.as_octets(), frame.servant));
    Some(Current { poa: Poa::from_core(poa), object_id, servant })
}

fn is_of(frame: &UpcallFrame, poa: &PoaCore) -> bool {
    frame.stamp == poa.stamp && frame.poa == poa.slot_id
}

pub(crate) fn upcall_on(poa: &PoaCore, servant: usize) -> Option<ObjectId> {
    upcall_stack::frames()
        .find(|(frame, _)| is_of(frame, poa) && frame.servant == servant)
        .and_then(|(frame, depth)| resolve(frame, depth))
        .map(|current| current.object_id)
}

pub(crate) fn is_running_in(poa: &PoaCore) -> bool {
    upcall_stack::frames().any(|(frame, _)| is_of(&frame, poa))
}

pub(crate) fn is_running_on(poa: &PoaCore, id: &[u8]) -> bool {
    upcall_stack::frames()
        .filter(|(frame, _)| is_of(frame, poa))
        .any(|(frame, depth)| upcall_stack::object_id(&frame, depth).is_some_and(|own| *own == *id))
}

pub(crate) struct UpcallScope(());

impl UpcallScope {
    /// Pushes the frame of an upcall, which the drop removes. Returns `None` if too many upcalls
    /// are nested.
    #[inline]
    pub(crate) fn enter(target: &UpcallTarget<'_>) -> Option<Self> {
        let poa = target.poa;
        if target.in_map
            && let Ok(id) = target.id.try_into()
        {
            return upcall_stack::push_with(
                poa.stamp,
                || register_orb(poa),
                |slot| slot.set_mapped(poa.stamp, poa.slot_id, target.servant.identity(), id),
            )
            .map(UpcallScope);
        }
        Self::enter_with(target)
    }

    fn enter_with(target: &UpcallTarget<'_>) -> Option<Self> {
        let poa = target.poa;
        let mut frame = UpcallFrame::for_object(poa.stamp, poa.slot_id, target.id);
        frame.servant = target.servant.identity();
        frame.spills_servant = !target.in_map;
        let upcall = Self::push(poa, &frame, Some(target.id))?;
        if frame.spills_servant {
            keep_servant(target.servant);
        }
        Some(upcall)
    }

    pub(crate) fn enter_preinvoke(poa: &Arc<PoaCore>, id: &[u8]) -> Option<Self> {
        Self::push(poa, &UpcallFrame::for_object(poa.stamp, poa.slot_id, id), Some(id))
    }

    pub(crate) fn enter_callback(poa: &Arc<PoaCore>) -> Option<Self> {
        Self::push(poa, &UpcallFrame::for_callback(poa.stamp, poa.slot_id), None)
    }

    fn push(poa: &Arc<PoaCore>, frame: &UpcallFrame, id: Option<&[u8]>) -> Option<Self> {
        upcall_stack::push(frame, id, || register_orb(poa)).map(UpcallScope)
    }
}

#[cold]
fn register_orb(poa: &PoaCore) {
    SPILL.with_borrow_mut(|beside| {
        beside.orbs.retain(|(stamp, orb)| *stamp != poa.stamp && orb.strong_count() > 0);
        beside.orbs.push((poa.stamp, poa.orb_handle().clone()));
    });
}

#[cold]
fn keep_servant(servant: &Servant) {
    SPILL.with_borrow_mut(|beside| beside.servants.push(servant.clone()));
}

#[cold]
fn pop_servant() {
    let servant = SPILL.with_borrow_mut(|beside| beside.servants.pop());
    // This may be the last owner of the servant, whose drop runs code of the application. So the
    // drop follows the borrow.
    drop(servant);
}

impl Drop for UpcallScope {
    #[inline]
    fn drop(&mut self) {
        if upcall_stack::pop() {
            pop_servant();
        }
    }
}
