//! What the running upcall is about: PortableServer::Current (CORBA 3.0.3, section 11.3.9; decision 23).
//!
//! Each thread has a stack of frames, one for each upcall that is inside another. Frames are copied, never borrowed, and the
//! object ids lie in one vector beside them, so pushing a frame allocates nothing in steady state.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use crate::poa::{ObjectId, Poa, PoaCore};

/// Upcalls inside one another on one thread.
pub(crate) const DEPTH: usize = 32;

#[derive(Clone, Copy)]
struct Frame {
    id_start: usize,
    servant: usize,
}

struct Stack {
    depth: Cell<usize>,
    frames: [Cell<Frame>; DEPTH],
    /// Kept alive by the guards of the upcalls; here only to be handed out.
    poas: RefCell<Vec<Arc<PoaCore>>>,
    ids: RefCell<Vec<u8>>,
}

thread_local! {
    static STACK: Stack = const {
        Stack {
            depth: Cell::new(0),
            frames: [const { Cell::new(Frame { id_start: 0, servant: 0 }) }; DEPTH],
            poas: RefCell::new(Vec::new()),
            ids: RefCell::new(Vec::new()),
        }
    };
}

/// The upcall that the calling thread is running.
#[derive(Clone, Debug)]
pub struct Current {
    /// The POA of the object.
    pub poa: Poa,
    /// The object.
    pub object_id: ObjectId,
    /// What tells the servant apart; see [`Poa::servant_to_id`].
    pub(crate) servant: usize,
}

/// The upcall that the calling thread is running; `None` outside of one (NoContext).
///
/// # Examples
/// ```
/// assert!(corelane::current().is_none());
/// ```
#[must_use]
pub fn current() -> Option<Current> {
    STACK.with(|stack| {
        let top = stack.depth.get().checked_sub(1)?;
        let frame = stack.frames.get(top)?.get();
        let poa = stack.poas.borrow().get(top).map(|core| Poa::from_core(Arc::clone(core)))?;
        let object_id = ObjectId::from(&stack.ids.borrow()[frame.id_start..]);
        Some(Current { poa, object_id, servant: frame.servant })
    })
}

/// Whether the calling thread runs an upcall.
pub(crate) fn in_upcall() -> bool {
    STACK.with(|stack| stack.depth.get() > 0)
}

/// Upcalls inside one another on the calling thread.
pub(crate) fn depth() -> usize {
    STACK.with(|stack| stack.depth.get())
}

/// A frame on the stack; gone when dropped.
pub(crate) struct Upcall(());

impl Upcall {
    /// Pushes a frame; `None` when upcalls are nested too deep.
    #[inline]
    pub(crate) fn enter(poa: &Arc<PoaCore>, object_id: &[u8], servant: usize) -> Option<Self> {
        STACK.with(|stack| {
            let depth = stack.depth.get();
            let frame = stack.frames.get(depth)?;
            let mut ids = stack.ids.borrow_mut();
            frame.set(Frame { id_start: ids.len(), servant });
            ids.extend_from_slice(object_id);
            stack.poas.borrow_mut().push(Arc::clone(poa));
            stack.depth.set(depth + 1);
            Some(Upcall(()))
        })
    }
}

impl Drop for Upcall {
    #[inline]
    fn drop(&mut self) {
        STACK.with(|stack| {
            let depth = stack.depth.get().saturating_sub(1);
            stack.depth.set(depth);
            if let Some(frame) = stack.frames.get(depth) {
                stack.ids.borrow_mut().truncate(frame.get().id_start);
            }
            stack.poas.borrow_mut().truncate(depth);
        });
    }
}
