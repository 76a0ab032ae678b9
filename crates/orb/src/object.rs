//! Object references to local and remote objects.

mod calls;
mod typed;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use corelane_net::SpinPolicy;
use corelane_sys::erased::ErasedArc;
use corelane_wire::ior::Ior;
use corelane_wire::{Cdr, CdrError, Decoder, Encoder};

pub use typed::{Reference, read_reference, write_reference};

use crate::cancel::Canceller;
use crate::client::context::ClientContext;
use crate::context::Context;
use crate::exception::SystemException;
use crate::invocation::callee::Callee;
use crate::invocation::target::Binding;
use crate::policy::CallPolicies;
use crate::rt::RtClientPolicies;
use crate::rt::client_policies::ClientPolicies;

pub(crate) const OBJECT_REPOSITORY_ID: &str = "IDL:omg.org/CORBA/Object:1.0";

/// A reference to an object, with its addresses and the policies of calls. Clones are cheap and
/// share connections.
///
/// A nil reference is `None` of `Option<ObjectRef>`.
#[derive(Clone)]
pub struct ObjectRef {
    callee: Callee,
    properties: Context,
    /// Servants that calls have found, for calls that bypass the POA. `None` if calls do not bypass
    /// it.
    bypass: Option<Arc<BypassServants>>,
    has_no_address: bool,
}

#[derive(Default)]
struct BypassServants(OnceLock<BypassServant>);

struct BypassServant {
    servant: ErasedArc,
    others: Box<BypassServants>,
}

impl BypassServants {
    #[inline]
    fn find<I: ?Sized + 'static>(&self) -> Option<&I> {
        let mut calls = self;
        loop {
            let call = calls.0.get()?;
            if let Some(servant) = call.servant.get() {
                return Some(servant);
            }
            calls = &call.others;
        }
    }

    /// Adds a servant at the end of the list. Concurrent first calls may add the same servant
    /// several times, and later calls use the first entry.
    fn add(&self, servant: ErasedArc) {
        let mut calls = self;
        let mut new = BypassServant { servant, others: Box::default() };
        while let Err(again) = calls.0.set(new) {
            new = again;
            let Some(call) = calls.0.get() else { return };
            calls = &call.others;
        }
    }
}

impl ObjectRef {
    pub(crate) fn new(context: Arc<ClientContext>, ior: Ior) -> Self {
        ObjectRef { callee: Callee::new(context, ior), properties: Context::new(), bypass: None, has_no_address: false }
    }

    pub(crate) fn local(context: Arc<ClientContext>, ior: Ior, has_address: bool) -> Self {
        ObjectRef { has_no_address: !has_address, ..ObjectRef::new(context, ior) }
    }

    #[inline]
    pub(crate) fn callee(&self) -> &Callee {
        &self.callee
    }

    #[inline]
    pub(crate) fn client(&self) -> &Arc<ClientContext> {
        self.callee.context()
    }

    #[inline]
    pub(crate) fn binding(&self) -> &Arc<Binding> {
        self.callee.binding()
    }

    /// Returns the IOR: the form of the reference on the wire.
    #[must_use]
    pub fn ior(&self) -> &Ior {
        self.binding().ior()
    }

    /// Returns the repository id that the reference carries; empty if it carries none. The object
    /// has this interface or an interface derived from it.
    #[must_use]
    pub fn type_id(&self) -> &str {
        &self.ior().type_id
    }

    /// Returns a copy on which `policies` are set. A policy that is not set in `policies` keeps its
    /// value.
    #[must_use]
    pub fn with_policies(&self, policies: CallPolicies) -> Self {
        ObjectRef { callee: self.callee.with_policies(policies), ..self.clone() }
    }

    /// Returns a reference to the same object with this spin policy, which decides how long callers
    /// poll for a reply before they sleep.
    #[must_use]
    pub fn with_spin_policy(&self, policy: SpinPolicy) -> Self {
        let wider = &self.client().config().client_policies;
        let own = ClientPolicies { spin: Some(policy), ..self.binding().own_policies().clone() };
        let binding = Arc::new(Binding::new(self.ior().clone(), own, wider));
        ObjectRef { callee: self.callee.with_binding(binding), ..self.clone() }
    }

    /// Returns a reference to the same object with these real-time policies, which replace the
    /// policies of an earlier call of this method. Policies that are not set in `policies` come
    /// from the calling thread ([`rt::with_client_policies`](crate::rt::with_client_policies)) and
    /// the ORB ([`RtConfig::client_policies`](crate::rt::RtConfig::client_policies)).
    ///
    /// # Errors
    /// BAD_PARAM for invalid priority bands or a negative buffer size. If the policies contradict
    /// the object's policies, the first call raises INV_POLICY, and so does
    /// [`validate_connection`](Self::validate_connection).
    pub fn with_rt_policies(&self, policies: &RtClientPolicies) -> Result<Self, SystemException> {
        let wider = &self.client().config().client_policies;
        let own = ClientPolicies { spin: self.binding().own_policies().spin, ..policies.check()? };
        let binding = Arc::new(Binding::new(self.ior().clone(), own, wider));
        Ok(ObjectRef { callee: self.callee.with_binding(binding), ..self.clone() })
    }

    pub(crate) fn with_private_connection(&self) -> Self {
        let wider = &self.client().config().client_policies;
        let own = ClientPolicies { private: true, ..self.binding().own_policies().clone() };
        let binding = Arc::new(Binding::new(self.ior().clone(), own, wider));
        ObjectRef { callee: self.callee.with_binding(binding), ..self.clone() }
    }

    /// Returns a copy whose calls `canceller` can cancel.
    #[must_use]
    pub fn with_canceller(&self, canceller: &Canceller) -> Self {
        ObjectRef { callee: self.callee.with_canceller(canceller), ..self.clone() }
    }

    /// Returns a copy that sends the properties of `context` with operations that have a context
    /// clause in their IDL. The properties replace the properties of the original. [Dynamic
    /// requests](crate::dynamic::DynamicRequest::context) do not send them.
    #[must_use]
    pub fn with_context(&self, context: &Context) -> Self {
        ObjectRef { properties: context.clone(), ..self.clone() }
    }

    /// Returns a copy whose typed calls bypass the POA if the object is active in this ORB. Such a
    /// call costs a virtual function call.
    ///
    /// The first call finds the servant; POA, priorities, deactivation and the shutdown of the ORB
    /// do not affect later calls. [`current`](crate::current()) does not see such a call, and a
    /// panic of the servant unwinds into the caller.
    ///
    /// Calls of some objects never bypass the POA: remote and forwarded objects, objects with
    /// dynamic servants, objects called by a [plain key](crate::Orb::bind_corbaloc_key), and
    /// objects whose servants a servant locator supplies.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn example(object: &corelane::ObjectRef) {
    /// let direct = object.with_poa_bypass();
    /// # }
    /// ```
    #[must_use]
    pub fn with_poa_bypass(&self) -> Self {
        ObjectRef { bypass: Some(Arc::default()), ..self.clone() }
    }

    #[inline]
    pub(crate) fn add_bypass_servant(&self, servant: impl FnOnce() -> Option<ErasedArc>) {
        if let Some(direct) = &self.bypass
            && let Some(servant) = servant()
        {
            direct.add(servant);
        }
    }

    /// For generated code: returns the properties that the patterns of an operation's context
    /// clause select.
    #[doc(hidden)]
    #[must_use]
    pub fn context_for(&self, patterns: &[&str]) -> Context {
        self.properties.matching_properties(patterns)
    }

    /// Returns true if both references certainly denote the same object. The result false does not
    /// prove that the objects differ.
    #[must_use]
    pub fn is_equivalent(&self, other: &ObjectRef) -> bool {
        Arc::ptr_eq(self.binding(), other.binding()) || self.ior().is_equivalent(other.ior())
    }

    /// Returns a hash between 0 and `maximum`. The hash of a reference never changes, and
    /// equivalent references have the same hash.
    #[must_use]
    pub fn hash_value(&self, maximum: u32) -> u32 {
        let hash = self.ior().equivalence_hash();
        if maximum == u32::MAX { hash } else { hash % (maximum + 1) }
    }

    /// For generated code: returns the servant if calls [bypass the POA](Self::with_poa_bypass) and
    /// an earlier call has used the interface `I`.
    #[inline]
    pub fn poa_bypass_servant<I: ?Sized + Send + Sync + 'static>(&self) -> Option<&I> {
        self.bypass.as_ref()?.find()
    }

    pub(crate) fn encode(reference: Option<&ObjectRef>, encoder: &mut Encoder<'_>) -> Result<(), CdrError> {
        match reference {
            Some(reference) => {
                #[cfg(feature = "any")]
                crate::written_any::record_orb(reference.client());
                if reference.has_no_address && encoder.begins_with_giop_header() {
                    return Err(CdrError::ReferenceWithoutAddress);
                }
                reference.ior().encode(encoder)
            }
            None => Ior::NIL.encode(encoder),
        }
    }

    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Result<Option<ObjectRef>, CdrError> {
        let ior = Ior::decode(decoder)?;
        if ior.is_nil() {
            return Ok(None);
        }
        let client = client_of(decoder).ok_or(CdrError::UnsupportedForm)?;
        decoder.charge(crate::invocation::BINDING_BYTES)?;
        Ok(Some(ObjectRef::new(Arc::clone(client), ior)))
    }
}

pub(crate) fn client_of<'m>(decoder: &Decoder<'m>) -> Option<&'m Arc<ClientContext>> {
    decoder.decoding_context().and_then(|env| (env as &dyn std::any::Any).downcast_ref::<Arc<ClientContext>>())
}

impl PartialEq for ObjectRef {
    fn eq(&self, other: &Self) -> bool {
        self.is_equivalent(other)
    }
}

impl Eq for ObjectRef {}

impl Hash for ObjectRef {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.ior().equivalence_hash().hash(state);
    }
}

impl fmt::Display for ObjectRef {
    /// Writes the stringified reference, `IOR:...`.
    ///
    /// If the reference's ORB does not listen, reports
    /// [`Event::ReferenceWithoutAddress`](crate::Event::ReferenceWithoutAddress), because other
    /// processes cannot use the text. A type id that cannot be encoded is omitted, for example a
    /// peer's type id with a NUL.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.has_no_address {
            self.client().report_nowhere_reference(self.type_id());
        }
        let ior = self.ior();
        let untyped = || Ior { type_id: String::new(), profiles: ior.profiles.clone() }.to_text();
        f.write_str(&ior.to_text().or_else(|_| untyped()).unwrap_or_else(|_| "IOR:".to_owned()))
    }
}

impl fmt::Debug for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectRef").field("type_id", &self.type_id()).finish_non_exhaustive()
    }
}
