//! The child POAs of a POA.

use std::sync::Arc;

use super::PoaCore;
use super::parked::ParkedRequests;
use super::servant_manager::AdapterActivator;

#[derive(Default)]
pub(super) struct Children {
    pub(super) list: Vec<Arc<PoaCore>>,
    pub(super) pending: Vec<PendingChild>,
    pub(super) activator: Option<Arc<dyn AdapterActivator>>,
}

impl Children {
    pub(super) fn position(&self, name: &str) -> Result<usize, usize> {
        self.list.binary_search_by(|child| child.name.as_str().cmp(name))
    }

    pub(super) fn get(&self, name: &str) -> Option<&Arc<PoaCore>> {
        self.list.get(self.position(name).ok()?)
    }

    pub(super) fn remove(&mut self, name: &str) {
        if let Ok(place) = self.position(name) {
            self.list.remove(place);
        }
    }

    pub(super) fn pending(&self, name: &str) -> Option<&PendingChild> {
        self.pending.iter().find(|arriving| arriving.name == name)
    }
}

pub(super) struct PendingChild {
    pub(super) name: String,
    pub(super) thread: u64,
    pub(super) parked: ParkedRequests,
}
