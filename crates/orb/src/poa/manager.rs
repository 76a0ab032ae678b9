//! POA managers: whether requests of their POAs are run, held, or turned away (CORBA 3.0.3, section 11.3.2).

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use corelane_sys::clock::Monotonic;
use corelane_sys::gate::Gate;
use corelane_sys::lock::{Mutex, Scope};

use super::error::PoaError;

/// What happens to requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManagerState {
    /// They wait; the state of a new manager.
    Holding,
    /// They run.
    Active,
    /// They are answered with TRANSIENT 1.
    Discarding,
    /// They are refused for good.
    Inactive,
}

impl ManagerState {
    fn from_octet(octet: u8) -> Self {
        match octet {
            0 => ManagerState::Holding,
            1 => ManagerState::Active,
            2 => ManagerState::Discarding,
            _ => ManagerState::Inactive,
        }
    }
}

/// Controls the requests of one or more POAs; clones are the same manager.
#[derive(Clone, Debug)]
pub struct PoaManager(Arc<ManagerCore>);

#[derive(Debug)]
pub(crate) struct ManagerCore {
    id: String,
    state: AtomicU8,
    changed: Gate,
    /// Work that was held, to be done when the state changes.
    held: Mutex<Vec<Held>>,
}

/// A request that was held: called when the state has changed.
pub(crate) struct Held(pub(crate) Box<dyn FnOnce() + Send>);

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Held")
    }
}

/// Requests that one manager holds at most; further ones are answered with TRANSIENT 1.
pub(crate) const HELD: usize = 1024;

impl PoaManager {
    pub(crate) fn new(id: String) -> Self {
        PoaManager(Arc::new(ManagerCore {
            id,
            state: AtomicU8::new(ManagerState::Holding as u8),
            changed: Gate::new("POA manager", Scope::Orb),
            held: Mutex::new("held requests", Scope::Orb, Vec::new()),
        }))
    }

    /// The manager's name, unique in its ORB; `RootPOAManager` for the root POA's.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// The present state.
    #[must_use]
    #[inline]
    pub fn state(&self) -> ManagerState {
        ManagerState::from_octet(self.0.state.load(Ordering::Acquire))
    }

    /// Runs requests, those held first.
    ///
    /// # Errors
    /// [`PoaError::AdapterInactive`] once the manager is inactive, as for every change.
    pub fn activate(&self) -> Result<(), PoaError> {
        self.change(ManagerState::Active)
    }

    /// Holds requests from now on; those that run go on.
    ///
    /// # Errors
    /// [`PoaError::AdapterInactive`].
    pub fn hold_requests(&self) -> Result<(), PoaError> {
        self.change(ManagerState::Holding)
    }

    /// Turns requests away from now on, those held too.
    ///
    /// # Errors
    /// [`PoaError::AdapterInactive`].
    pub fn discard_requests(&self) -> Result<(), PoaError> {
        self.change(ManagerState::Discarding)
    }

    pub(crate) fn change(&self, to: ManagerState) -> Result<(), PoaError> {
        let changed = self.0.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, |state| {
            (ManagerState::from_octet(state) != ManagerState::Inactive).then_some(to as u8)
        });
        if changed.is_err() {
            return Err(PoaError::AdapterInactive);
        }
        self.0.changed.open();
        if to != ManagerState::Holding {
            let held = std::mem::take(&mut *self.0.held.lock());
            for Held(resume) in held {
                resume();
            }
        }
        Ok(())
    }

    /// Keeps a request until the state changes. `Err` gives it back: too many are held, or the state has changed already.
    pub(crate) fn hold(&self, request: Held) -> Result<(), Held> {
        let mut held = self.0.held.lock();
        if held.len() >= HELD || self.state() != ManagerState::Holding {
            return Err(request);
        }
        held.push(request);
        Ok(())
    }

    /// Waits until the manager does not hold any more; false past the deadline.
    pub(crate) fn wait_released(&self, deadline: Option<Monotonic>) -> bool {
        self.0.changed.wait(deadline, || (self.state() != ManagerState::Holding).then_some(())).is_some()
    }

    pub(crate) fn same(&self, other: &PoaManager) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
