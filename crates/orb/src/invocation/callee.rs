//! The callee of an invocation: the target object, and the properties of its reference that affect
//! calls.

use std::sync::Arc;

use corelane_wire::ior::Ior;

use super::target::Binding;
use crate::cancel::Canceller;
use crate::client::context::ClientContext;
use crate::policy::{self, CallPolicies, Timeout};
use crate::rt::client_policies::ClientPolicies;

/// The target of the calls through one reference. Clones share the binding.
#[derive(Clone)]
pub(crate) struct Callee {
    context: Arc<ClientContext>,
    binding: Arc<Binding>,
    own_policies: CallPolicies,
    canceller: Option<Canceller>,
}

impl Callee {
    pub(crate) fn new(context: Arc<ClientContext>, ior: Ior) -> Self {
        let binding = Arc::new(Binding::new(ior, ClientPolicies::default(), &context.config().client_policies));
        Callee { context, binding, own_policies: CallPolicies::NONE, canceller: None }
    }

    #[inline]
    pub(crate) fn context(&self) -> &Arc<ClientContext> {
        &self.context
    }

    #[inline]
    pub(crate) fn binding(&self) -> &Arc<Binding> {
        &self.binding
    }

    #[inline]
    pub(crate) fn may_be_collocated(&self) -> bool {
        self.binding.may_be_local(&self.context) && self.binding.forwarded().is_none()
    }

    /// Returns the effective call policies. A policy of the reference overrides the policy of the
    /// calling thread, which overrides the policy of the ORB.
    #[inline]
    pub(crate) fn policies(&self) -> CallPolicies {
        self.own_policies
            .with_defaults_from(policy::thread_policies())
            .with_defaults_from(self.context.config().call_policies)
    }

    #[inline]
    pub(crate) fn timeout(&self) -> Timeout {
        let nearer = self.own_policies.timeout.or_else(|| policy::thread_policies().timeout);
        nearer.or(self.context.config().call_policies.timeout).unwrap_or(Timeout::Never)
    }

    #[inline]
    pub(crate) fn canceller(&self) -> Option<&Canceller> {
        self.canceller.as_ref()
    }

    pub(crate) fn with_policies(&self, policies: CallPolicies) -> Self {
        Callee { own_policies: policies.with_defaults_from(self.own_policies), ..self.clone() }
    }

    pub(crate) fn with_binding(&self, binding: Arc<Binding>) -> Self {
        Callee { binding, ..self.clone() }
    }

    pub(crate) fn with_canceller(&self, canceller: &Canceller) -> Self {
        Callee { canceller: Some(canceller.clone()), ..self.clone() }
    }
}
