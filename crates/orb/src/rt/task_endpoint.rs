//! The endpoints of a core pool for the references of single tasks.
//!
//! Clients share the connections to an address. If the references of two tasks have two addresses,
//! a client of any ORB opens a connection for each task, and each connection can be bound to its
//! task's core.

use std::collections::VecDeque;
use std::sync::Arc;

use corelane_net::Endpoint;
use corelane_sys::lock::{LockScope, Mutex};

use crate::thread_context::ThreadpoolId;

#[derive(Debug)]
pub(crate) struct TaskEndpoints {
    pool: ThreadpoolId,
    shared: Vec<Endpoint>,
    addresses: Vec<Vec<Endpoint>>,
    /// The indexes of endpoints without a task. The first has been free the longest.
    free: Mutex<VecDeque<usize>>,
}

impl TaskEndpoints {
    pub(crate) fn new(pool: ThreadpoolId, shared: Vec<Endpoint>, addresses: Vec<Vec<Endpoint>>) -> Self {
        let free = (0..addresses.len()).collect();
        TaskEndpoints { pool, shared, addresses, free: Mutex::new("endpoints of tasks", LockScope::Orb, free) }
    }

    pub(crate) fn shared(&self) -> &[Endpoint] {
        &self.shared
    }

    pub(crate) fn addresses(&self) -> &[Vec<Endpoint>] {
        &self.addresses
    }

    pub(crate) fn take(self: &Arc<Self>) -> Option<TaskEndpoint> {
        let index = self.free.lock().pop_front()?;
        Some(TaskEndpoint { set: Arc::clone(self), index })
    }

    pub(crate) fn take_at(self: &Arc<Self>, addresses: &[String]) -> Option<TaskEndpoint> {
        let is_wanted = |own: &Vec<Endpoint>| own.iter().map(Endpoint::to_string).eq(addresses.iter().cloned());
        let index = self.addresses.iter().position(is_wanted)?;
        let mut free = self.free.lock();
        let place = free.iter().position(|other| *other == index)?;
        free.remove(place);
        Some(TaskEndpoint { set: Arc::clone(self), index })
    }
}

/// An endpoint that one task of a core pool has ([`CorePool::take_task_endpoint`]). It has an
/// address for each address of the pool. The drop of the value returns the endpoint to the pool,
/// which may then assign it to another task.
///
/// [`CorePool::take_task_endpoint`]: super::CorePool::take_task_endpoint
#[derive(Debug)]
#[must_use = "the drop of the endpoint gives it back"]
pub struct TaskEndpoint {
    set: Arc<TaskEndpoints>,
    index: usize,
}

impl TaskEndpoint {
    /// Returns the addresses at which the pool listens for this task. No address has port 0.
    #[must_use]
    pub fn addresses(&self) -> &[Endpoint] {
        self.set.addresses.get(self.index).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn pool(&self) -> ThreadpoolId {
        self.set.pool
    }
}

impl Drop for TaskEndpoint {
    fn drop(&mut self) {
        self.set.free.lock().push_back(self.index);
    }
}
