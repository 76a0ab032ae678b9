//! The destruction of a POA: POA::destroy (CORBA 3.0.3, section 11.3.8.4).
//!
//! ```text
//! phase           begins when                        then
//! Destroying      `destroy` is called                new requests raise TRANSIENT 4, the children are destroyed
//! Deactivating    no request runs, no child lives    the objects are deactivated, and etherealized if requested
//! Closing         all deactivations have begun       the last deactivations finish
//! Dead            no id is busy                      the name is free
//! ```
//!
//! No thread waits between these steps: the thread that fulfils the last condition of a phase
//! begins the phase and performs its work.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use corelane_sys::clock::Monotonic;
use corelane_sys::slab::RetireResult;

use super::error::{PoaError, would_deadlock};
use super::map_tables::DeactivationReason;
use super::table::PoaTable;
use super::{Poa, PoaCore, PoaPhase, RequestProcessing, slow_path};

impl Poa {
    /// Destroys the POA and its descendants. From now on `find_poa` does not find the POA, and new
    /// requests raise TRANSIENT 4. When the running requests have finished, the POA's objects are
    /// deactivated, and etherealized if `etherealize_objects` is set. Then the name is free. With
    /// `wait_for_completion` the call returns when the name is free.
    ///
    /// # Errors
    /// BAD_INV_ORDER 3 with `wait_for_completion` inside an upcall of the same ORB; nothing is
    /// destroyed.
    pub fn destroy(&self, etherealize_objects: bool, wait_for_completion: bool) -> Result<(), PoaError> {
        let core = &self.core;
        if wait_for_completion && crate::upcall_stack::in_upcall_of(core.stamp) {
            return Err(would_deadlock().into());
        }
        core.begin_destruction(etherealize_objects);
        if wait_for_completion {
            core.wait_for_end(None);
        }
        Ok(())
    }

    pub(crate) fn destroy_root(&self, deadline: Option<Monotonic>) {
        self.core.begin_destruction(true);
        self.core.wait_for_end(deadline);
    }
}

impl PoaCore {
    pub(crate) fn wait_for_end(&self, deadline: Option<Monotonic>) {
        self.wait_until(deadline, || self.phase() == PoaPhase::Dead);
    }

    fn begin_destruction(self: &Arc<Self>, etherealize: bool) {
        let children = {
            let family = self.children.lock();
            if self.phase() != PoaPhase::Alive {
                return;
            }
            // The blockers are the living children, the requests that pin the POA, the requests
            // that pin its objects, and this method.
            self.destruction_blockers.store(family.list.len() + 3, Ordering::Release);
            self.etherealizes.store(etherealize, Ordering::Release);
            self.phase.store(PoaPhase::Destroying as u8, Ordering::Release);
            self.slow_path.fetch_or(slow_path::DESTROYING, Ordering::AcqRel);
            family.list.clone()
        };
        let orb = self.orb().ok();
        if let Some(orb) = &orb {
            PoaTable::of_server(orb).add_ending(self);
        }
        // Each child removes itself from the list, which is cheapest at the end of the list.
        for child in children.into_iter().rev() {
            child.begin_destruction(etherealize);
        }
        if let Some(orb) = &orb {
            match PoaTable::of_server(orb).poas.retire(self.slot_id.slot, self.slot_id.generation) {
                RetireResult::Taken(_) => self.remove_blocker(),
                RetireResult::Deferred | RetireResult::Stale => {}
            }
        }
        self.check_objects_unused();
        self.manager.release_poa(self.slot_id);
        self.release_parked();
        self.notify_changed();
        self.remove_blocker();
    }

    pub(super) fn on_requests_done(self: &Arc<Self>) {
        self.remove_blocker();
    }

    /// Continues the destruction as soon as no request uses an object of the POA. New requests use
    /// no object, because they find that the POA is being destroyed.
    #[cold]
    pub(super) fn check_objects_unused(self: &Arc<Self>) {
        let are_free = || self.objects_unused.load(Ordering::Acquire);
        if !are_free() && !self.objects.has_users() && !self.objects_unused.swap(true, Ordering::AcqRel) {
            self.remove_blocker();
        }
    }

    fn remove_blocker(self: &Arc<Self>) {
        if self.destruction_blockers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.deactivate_objects();
        }
    }

    fn deactivate_objects(self: &Arc<Self>) {
        {
            // An insertion checks the phase under this lock, so no insertion passes its check from
            // now on.
            let _tables = self.tables.lock();
            self.phase.store(PoaPhase::Deactivating as u8, Ordering::Release);
        }
        let etherealize = self.etherealizes.load(Ordering::Acquire)
            && self.policies.request_processing == RequestProcessing::ServantManager;
        self.deactivate_all(DeactivationReason { cleanup: true, etherealize });
        self.drop_guarded("Servant", || {
            self.default_servant.store(Arc::new(None));
            self.default_servant.reclaim();
        });
        self.phase.store(PoaPhase::Closing as u8, Ordering::Release);
        self.continue_closing();
    }

    pub(super) fn continue_closing(self: &Arc<Self>) {
        if self.phase() != PoaPhase::Closing {
            return;
        }
        let over = {
            let mut tables = self.tables.lock();
            if !tables.busy.is_empty() || self.phase() != PoaPhase::Closing {
                return;
            }
            // An insertion that passed its check before the deactivation may have finished during
            // the deactivation, which is then repeated.
            let over = self.keyed_objects.load(Ordering::Acquire) == 0 && !self.objects.has_live_entries();
            self.phase.store(if over { PoaPhase::Dead } else { PoaPhase::Deactivating } as u8, Ordering::Release);
            if over {
                tables.by_servant.clear();
            }
            over
        };
        if over { self.finish_destruction() } else { self.deactivate_objects() }
    }

    fn finish_destruction(self: &Arc<Self>) {
        if let Ok(orb) = self.orb() {
            PoaTable::of_server(&orb).remove_poa(self);
        }
        self.manager.remove_poa(self);
        // The servant manager and the adapter activator may keep this POA alive, so the POA drops
        // them.
        self.drop_guarded("ServantManager", || {
            self.servant_manager.store(Arc::new(None));
            self.servant_manager.reclaim();
        });
        let activator = self.children.lock().activator.take();
        self.drop_guarded("AdapterActivator", || drop(activator));
        if let Some(parent) = self.parent.as_ref().and_then(std::sync::Weak::upgrade) {
            let ends = {
                let mut family = parent.children.lock();
                family.remove(&self.name);
                parent.phase() == PoaPhase::Destroying
            };
            parent.notify_changed();
            if ends {
                parent.remove_blocker();
            }
        }
        self.notify_changed();
    }
}
