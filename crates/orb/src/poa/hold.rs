//! Requests that cannot run yet. None of them keeps a thread: what is needed to run it later is kept instead, in bounded lists.

use std::fmt;
use std::sync::Arc;

use corelane_sys::clock::Monotonic;

use super::{ObjectId, Place, PoaCore, PoaManager};
use crate::orb::Core;
use crate::server::lane::{Lane, Work};

/// Requests that one list holds at most; further ones are answered with TRANSIENT 1.
pub(crate) const HELD: usize = 1024;
/// Octets of requests that one list holds at most: stops a peer that fills the memory of a server which is not active yet.
pub(crate) const HELD_OCTETS: usize = 64 << 20;

/// Which thread goes on with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resume {
    /// One of those that serve its connection.
    Served,
    /// The calling thread.
    Here,
}

/// A request that was held.
pub(crate) struct Held {
    /// How large it is.
    pub(crate) octets: usize,
    /// Goes on with it.
    pub(crate) resume: Box<dyn FnOnce(Resume) + Send>,
}

impl Held {
    /// Goes on with the request, on its connection's threads.
    pub(crate) fn release(self) {
        (self.resume)(Resume::Served);
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("octets", &self.octets).finish_non_exhaustive()
    }
}

/// Held requests in the order of their arrival.
#[derive(Debug, Default)]
pub(crate) struct HeldList {
    list: Vec<(Place, Held)>,
    octets: usize,
}

impl HeldList {
    /// Appends a request for the POA at `place`.
    ///
    /// # Errors
    /// The request, when the list is full.
    pub(crate) fn push(&mut self, place: Place, held: Held) -> Result<(), Held> {
        if self.list.len() >= HELD || self.octets.saturating_add(held.octets) > HELD_OCTETS {
            return Err(held);
        }
        self.octets += held.octets;
        self.list.push((place, held));
        Ok(())
    }

    /// Takes out those for one POA.
    pub(crate) fn take_of(&mut self, place: Place) -> HeldList {
        let (taken, left) = std::mem::take(&mut self.list).into_iter().partition(|(of, _)| *of == place);
        *self = Self::of(left);
        Self::of(taken)
    }

    fn of(list: Vec<(Place, Held)>) -> Self {
        HeldList { octets: list.iter().map(|(_, held)| held.octets).sum(), list }
    }

    /// Goes on with all of them, the oldest first.
    pub(crate) fn release(self) {
        for (_, held) in self.list {
            held.release();
        }
    }
}

/// What a request waits for.
#[derive(Debug)]
pub(crate) enum Hold {
    /// The manager of the POA at this place to leave the holding state.
    Manager(PoaManager, Place),
    /// An object that is on its way into the active object map or out of it.
    Object(Arc<PoaCore>, ObjectId),
    /// The adapter activator of this POA, which makes the child of this name.
    Adapter(Arc<PoaCore>, String),
    /// The main thread.
    MainThread(Arc<Core>),
    /// A thread of this lane.
    Lane(Arc<Lane>),
}

/// What became of a request that was to be held.
#[derive(Debug)]
pub(crate) enum Kept {
    /// It is held.
    Held,
    /// What it waited for has come meanwhile.
    Over(Held),
    /// There is no room: TRANSIENT 1.
    Full,
}

impl Hold {
    /// Keeps a request until what it waits for has come.
    pub(crate) fn keep(&self, held: Held) -> Kept {
        match self {
            Hold::Manager(manager, place) => manager.keep(*place, held),
            Hold::Object(poa, id) => poa.keep_for_object(id.as_octets(), held),
            Hold::Adapter(parent, name) => parent.keep_for_child(name, held),
            Hold::MainThread(core) => {
                let Held { octets, resume } = held;
                let listed = core.main_queue().push(Box::new(move || resume(Resume::Here)), octets);
                if listed { Kept::Held } else { Kept::Full }
            }
            Hold::Lane(lane) => {
                if lane.hand_over(Work::Resume(held)) {
                    Kept::Held
                } else {
                    Kept::Full
                }
            }
        }
    }

    /// Waits for it in the calling thread; false past the deadline. Work for the main thread or a lane is not waited for but
    /// given to it.
    pub(crate) fn wait(&self, deadline: Option<Monotonic>) -> bool {
        match self {
            Hold::Manager(manager, place) => manager.wait_released(*place, deadline),
            Hold::Object(poa, id) => poa.wait_for_object(id.as_octets(), deadline),
            Hold::Adapter(parent, name) => parent.wait_for_child(name, deadline),
            Hold::MainThread(_) | Hold::Lane(_) => true,
        }
    }
}
