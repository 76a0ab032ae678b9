//! The real-time client policies of a thread (PolicyCurrent).

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use super::callee::Callee;
use super::target::Binding;
use crate::exception::SystemException;
use crate::rt::RtClientPolicies;
use crate::rt::client_policies::ClientPolicies;

thread_local! {
    static THREAD_POLICIES: RefCell<Option<ThreadPolicies>> = const { RefCell::new(None) };
    /// True while `THREAD_POLICIES` is set. The flag is cheaper to check than a borrow of the
    /// policies.
    static HAS_THREAD_POLICIES: Cell<bool> = const { Cell::new(false) };
}

/// The policies of a thread, and the bindings of the references called under them.
struct ThreadPolicies {
    policies: ClientPolicies,
    /// The bindings under these policies, by the address of the reference's own binding. An entry
    /// keeps both bindings alive, so no other binding can get the address.
    bindings: HashMap<usize, (Arc<Binding>, Arc<Binding>)>,
}

/// Maximum number of bindings that a thread caches under its policies. A full cache is cleared.
const MAX_CACHED_BINDINGS: usize = 1024;

/// Runs `body` with `policies` as the client policies of the calling thread (PolicyCurrent). A
/// policy of the reference overrides the thread's, which overrides the ORB's. A nested call of this
/// function replaces the outer policies. Connections that are private under these policies close
/// when `body` has returned.
///
/// # Errors
/// BAD_PARAM for invalid bands and for negative buffer sizes. In this case `body` does not run.
///
/// # Examples
/// ```
/// use corelane::rt::{RtClientPolicies, with_client_policies};
/// let private = RtClientPolicies { private_connection: true, ..RtClientPolicies::default() };
/// let result = with_client_policies(&private, || { /* calls made here have connections of their own */ 7 })?;
/// assert_eq!(result, 7);
/// # Ok::<(), corelane::SystemException>(())
/// ```
pub fn with_client_policies<T>(policies: &RtClientPolicies, body: impl FnOnce() -> T) -> Result<T, SystemException> {
    struct RestoreRtPolicies(Option<ThreadPolicies>);
    impl Drop for RestoreRtPolicies {
        fn drop(&mut self) {
            HAS_THREAD_POLICIES.set(self.0.is_some());
            let ended = THREAD_POLICIES.replace(self.0.take());
            // The ended policies are dropped after the borrow has ended, because the drop closes
            // connections.
            drop(ended);
        }
    }
    let of_thread = ThreadPolicies { policies: policies.check()?, bindings: HashMap::new() };
    let _restore = RestoreRtPolicies(THREAD_POLICIES.replace(Some(of_thread)));
    HAS_THREAD_POLICIES.set(true);
    Ok(body())
}

#[inline]
pub(crate) fn has_thread_policies() -> bool {
    HAS_THREAD_POLICIES.get()
}

/// Returns the callee with a binding under the policies of the calling thread.
#[cold]
pub(crate) fn with_thread_policies(callee: &Callee) -> Callee {
    THREAD_POLICIES.with_borrow_mut(|of_thread| {
        let Some(ThreadPolicies { policies, bindings }) = of_thread else { return callee.clone() };
        if bindings.len() >= MAX_CACHED_BINDINGS {
            bindings.clear();
        }
        let binding = callee.binding();
        let (_, under) = bindings.entry(Arc::as_ptr(binding).addr()).or_insert_with(|| {
            let wider = policies.clone().or(&callee.context().config().client_policies);
            let under = Binding::new(binding.ior().clone(), binding.own().clone(), &wider);
            (Arc::clone(binding), Arc::new(under))
        });
        callee.with_binding(Arc::clone(under))
    })
}
