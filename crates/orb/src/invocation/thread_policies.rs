//! The real-time client policies that a program sets for a thread (PolicyCurrent).

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
    /// True while the thread has policies. Reading this flag costs less than borrowing the
    /// policies.
    static HAS_THREAD_POLICIES: Cell<bool> = const { Cell::new(false) };
}

struct ThreadPolicies {
    policies: ClientPolicies,
    /// For each reference, its binding and the binding under the thread's policies. The entry keeps
    /// the reference's binding, whose address is the key, alive.
    bindings: HashMap<usize, (Arc<Binding>, Arc<Binding>)>,
}

const MAX_CACHED_BINDINGS: usize = 1024;

/// Runs `body` with `policies` as the real-time client policies of the calling thread
/// (PolicyCurrent). A policy that is set on the reference overrides the policy of the thread, which
/// overrides the policy of the ORB. Connections are private if any of the three asks for it. While
/// the `body` of a nested call runs, its policies replace `policies` completely.
///
/// # Errors
/// BAD_PARAM if `policies` has invalid bands or a negative buffer size. `body` does not run in this
/// case.
///
/// # Examples
///
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
            // The drop closes private connections, which may run other code of the ORB, so the
            // thread's policies are replaced first.
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

#[cold]
pub(crate) fn with_thread_policies(callee: &Callee) -> Callee {
    THREAD_POLICIES.with_borrow_mut(|of_thread| {
        let Some(ThreadPolicies { policies, bindings }) = of_thread else { return callee.clone() };
        if bindings.len() >= MAX_CACHED_BINDINGS {
            bindings.clear();
        }
        let binding = callee.binding();
        let (_, under) = bindings.entry(Arc::as_ptr(binding).addr()).or_insert_with(|| {
            let wider = policies.clone().with_defaults_from(&callee.context().config().client_policies);
            let under = Binding::new(binding.ior().clone(), binding.own_policies().clone(), &wider);
            (Arc::clone(binding), Arc::new(under))
        });
        callee.with_binding(Arc::clone(under))
    })
}
