//! The end of a POA: POA::destroy (CORBA 3.0.3, section 11.3.8.4).
//!
//! ```text
//! destroy --> Ending: new requests TRANSIENT 4     --> its requests are done, its   --> objects etherealized --> Dead, the
//!             descendants are told to end first        children are dead                or let go                name is free
//! ```
//! Nobody waits along this way: whoever takes the last hindrance away goes on with it. Waiting is only for callers of
//! `destroy` who asked for it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use corelane_sys::clock::Monotonic;
use corelane_sys::slots::Retired;
use corelane_wire::exception::minor;

use super::error::PoaError;
use super::map::Why;
use super::{Life, Poa, PoaCore, RequestProcessing, detour};
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};

impl Poa {
    /// Ends the POA and its descendants. From now on `find_poa` does not find it and new requests are TRANSIENT 4. When the
    /// running requests are done, its objects are deactivated, and with `etherealize_objects` a servant activator is told of
    /// each; then the name is free. With `wait_for_completion` the call returns when all that is over. Of several calls the
    /// flag of the first counts.
    ///
    /// # Errors
    /// BAD_INV_ORDER 3 with `wait_for_completion` inside an upcall of the same ORB; nothing is destroyed then.
    pub fn destroy(&self, etherealize_objects: bool, wait_for_completion: bool) -> Result<(), PoaError> {
        let core = &self.core;
        if wait_for_completion && crate::current::in_upcall_of(core.stamp) {
            return Err(would_wait_for_itself().into());
        }
        core.begin_destruction(etherealize_objects);
        if wait_for_completion {
            core.wait_for_end(None);
        }
        Ok(())
    }

    /// Ends the root, with its ORB, and waits for that until `deadline`.
    pub(crate) fn end(&self, deadline: Option<Monotonic>) {
        self.core.begin_destruction(true);
        self.core.wait_for_end(deadline);
    }
}

/// BAD_INV_ORDER 3.
#[cold]
pub(super) fn would_wait_for_itself() -> SystemException {
    SystemException::new(Kind::BadInvOrder, minor::bad_inv_order::WOULD_DEADLOCK, Completion::No)
        .because("waiting for requests to complete, inside of a request, would wait for itself")
}

impl PoaCore {
    /// Waits until the POA is dead, or the deadline has passed.
    pub(crate) fn wait_for_end(&self, deadline: Option<Monotonic>) {
        self.wait_until(deadline, || self.life() == Life::Dead);
    }

    fn begin_destruction(self: &Arc<Self>, etherealize: bool) {
        let children = {
            let family = self.family.lock();
            if self.life() != Life::Alive {
                return;
            }
            // Children that live, two for running requests, one for this function.
            self.remaining.store(family.children.len() + 3, Ordering::Release);
            self.etherealizes.store(etherealize, Ordering::Release);
            self.life.store(Life::Ending as u8, Ordering::Release);
            self.detour.fetch_or(detour::ENDING, Ordering::AcqRel);
            family.children.clone()
        };
        let orb = self.orb().ok();
        if let Some(orb) = &orb {
            orb.adapters().note_ending(self);
        }
        // The last first: each leaves the list of children, from its end then.
        for child in children.into_iter().rev() {
            child.begin_destruction(etherealize);
        }
        if let Some(orb) = &orb {
            match orb.adapters().poas.retire(self.place.slot, self.place.generation) {
                Retired::Taken(_) => self.one_hindrance_less(),
                Retired::Deferred | Retired::Stale => {}
            }
        }
        self.look_for_users();
        // Those that wait learn that the POA ends.
        self.manager.release_of(self.place);
        self.release_held();
        self.has_changed();
        self.one_hindrance_less();
    }

    /// The last request has left a POA that is being destroyed.
    pub(super) fn requests_are_done(self: &Arc<Self>) {
        self.one_hindrance_less();
    }

    /// Goes on with the end of the POA if nobody holds an object of its own any more. New requests do not: they find that it ends.
    #[cold]
    pub(super) fn look_for_users(self: &Arc<Self>) {
        let are_free = || self.objects_free.load(Ordering::Acquire);
        if !are_free() && !self.objects.is_in_use() && !self.objects_free.swap(true, Ordering::AcqRel) {
            self.one_hindrance_less();
        }
    }

    fn one_hindrance_less(self: &Arc<Self>) {
        if self.remaining.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.let_go();
        }
    }

    /// No request runs and the children are dead: the objects go.
    fn let_go(self: &Arc<Self>) {
        {
            // Under the lock, so that nobody puts an object in afterwards.
            let _tables = self.tables.lock();
            self.life.store(Life::Sweeping as u8, Ordering::Release);
        }
        let etherealize = self.etherealizes.load(Ordering::Acquire)
            && self.policies.request_processing == RequestProcessing::ServantManager;
        self.deactivate_all(Why { cleanup: true, etherealize });
        self.let_go_of("Servant", || {
            self.default_servant.store(Arc::new(None));
            self.default_servant.collect();
        });
        self.life.store(Life::Closing as u8, Ordering::Release);
        self.object_is_gone();
    }

    /// An id is not busy any more: if the POA ends and it was the last, that is the end.
    pub(super) fn object_is_gone(self: &Arc<Self>) {
        if self.life() != Life::Closing {
            return;
        }
        let over = {
            let mut tables = self.tables.lock();
            if !tables.busy.is_empty() || self.life() != Life::Closing {
                return;
            }
            // One that was on its way in when the others went.
            let over = self.keyed.load(Ordering::Acquire) == 0 && self.objects.is_empty();
            self.life.store(if over { Life::Dead } else { Life::Sweeping } as u8, Ordering::Release);
            if over {
                tables.by_servant.clear();
            }
            over
        };
        if over { self.is_dead() } else { self.let_go() }
    }

    /// The name is free, and the parent may end.
    fn is_dead(self: &Arc<Self>) {
        if let Ok(orb) = self.orb() {
            orb.adapters().forget(self);
        }
        self.manager.forget(self);
        // What the application gave may hold this very POA, or references of the ORB.
        self.let_go_of("ServantManager", || {
            self.servant_manager.store(Arc::new(None));
            self.servant_manager.collect();
        });
        let activator = self.family.lock().activator.take();
        self.let_go_of("AdapterActivator", || drop(activator));
        if let Some(parent) = self.parent.as_ref().and_then(std::sync::Weak::upgrade) {
            let ends = {
                let mut family = parent.family.lock();
                family.forget(&self.name);
                parent.life() == Life::Ending
            };
            parent.has_changed();
            if ends {
                parent.one_hindrance_less();
            }
        }
        self.has_changed();
    }
}
