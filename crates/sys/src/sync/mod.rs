//! Synchronisation: locks, event counts, and lock-free tables and queues.

mod checkout_cell;
pub mod event_count;
pub mod hash_index;
pub mod lock;
pub mod mpsc;
pub mod pending_lock;
mod pi_mutex;
pub mod rcu_cell;
#[cfg(any(test, feature = "bench"))]
pub mod semaphore;
pub(crate) mod shim;
pub mod slab;
pub mod wake_flag;
