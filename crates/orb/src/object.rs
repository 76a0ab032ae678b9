//! Object references: typed and untyped handles to local and remote objects.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use corelane_sys::erased::ErasedArc;
use corelane_wire::ior::Ior;
use corelane_wire::{Cdr, CdrError, Decoder, Encoder};

use crate::cancel::Canceller;
use crate::context::Context;
use crate::exception::{Completion, SystemException, SystemExceptionKind as Kind};
use crate::invocation::target::Binding;
use crate::invocation::{Deferred, Operation, Reply, call};
use crate::orb::Core;
use crate::policy::{CallPolicies, SyncScope, Timeout};
use crate::rt::RtClientPolicies;
use crate::rt::client_policies::ClientPolicies;

/// The repository id that every object has.
pub(crate) const OBJECT_REPOSITORY_ID: &str = "IDL:omg.org/CORBA/Object:1.0";

/// A reference to an object: its addresses, and how to call it. Clones are cheap and share
/// connections.
///
/// A nil reference is `None` of `Option<ObjectRef>`.
#[derive(Clone)]
pub struct ObjectRef {
    core: Arc<Core>,
    binding: Arc<Binding>,
    policies: CallPolicies,
    canceller: Option<Canceller>,
    context: Context,
    /// Servants that calls go to directly; added by the first call through each interface.
    bypass: Option<Arc<BypassServants>>,
    /// True if this ORB made the reference but does not listen: the object cannot be called from
    /// outside the process.
    has_no_address: bool,
}

/// The servant that calls bypass the POA to, once for each interface that it has been called by.
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

    /// Concurrent first calls may each add the same servant; `find` returns the first.
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

/// The error of an operation that declares no exceptions.
struct SystemOnly(SystemException);

impl From<SystemException> for SystemOnly {
    #[inline]
    fn from(exception: SystemException) -> Self {
        SystemOnly(exception)
    }
}

impl From<Reply<'_>> for SystemOnly {
    #[cold]
    fn from(reply: Reply<'_>) -> Self {
        SystemOnly(reply.unlisted_exception())
    }
}

impl ObjectRef {
    pub(crate) fn new(core: Arc<Core>, ior: Ior) -> Self {
        ObjectRef {
            binding: Arc::new(Binding::new(ior, ClientPolicies::default(), &core.config().client_policies)),
            policies: CallPolicies::NONE,
            canceller: None,
            context: Context::new(),
            bypass: None,
            has_no_address: false,
            core,
        }
    }

    /// Makes a reference to an object of this ORB. Other processes can call it if `has_address`.
    pub(crate) fn local(core: Arc<Core>, ior: Ior, has_address: bool) -> Self {
        ObjectRef { has_no_address: !has_address, ..ObjectRef::new(core, ior) }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(crate) fn binding(&self) -> &Arc<Binding> {
        &self.binding
    }

    /// Returns the policies of this reference, the thread and the ORB; the nearest level wins.
    #[inline]
    pub(crate) fn policies(&self) -> CallPolicies {
        self.policies.or(crate::policy::thread_policies()).or(self.core.config().call_policies)
    }

    #[inline]
    pub(crate) fn timeout(&self) -> Timeout {
        let nearer = self.policies.timeout.or_else(|| crate::policy::thread_policies().timeout);
        nearer.or(self.core.config().call_policies.timeout).unwrap_or(Timeout::Never)
    }

    /// Returns the IOR, the form in which the reference is sent.
    #[must_use]
    pub fn ior(&self) -> &Ior {
        self.binding.ior()
    }

    /// Returns the repository id that the reference carries, or "" if unknown. The object's
    /// interface is this one or derived from it.
    #[must_use]
    pub fn type_id(&self) -> &str {
        &self.ior().type_id
    }

    /// Returns a copy with these policies added to its own, which they override.
    #[must_use]
    pub fn with_policies(&self, policies: CallPolicies) -> Self {
        ObjectRef { policies: policies.or(self.policies), ..self.clone() }
    }

    /// Returns a reference to the same object with these real-time policies. Policies not set here
    /// come from the calling thread ([`rt::with_client_policies`](crate::rt::with_client_policies))
    /// and the ORB ([`RtConfig::client`](crate::rt::RtConfig::client)).
    ///
    /// # Errors
    /// BAD_PARAM for priorities that are no bands. Policies that contradict the object's are
    /// INV_POLICY at the first call, or in [`validate_connection`](Self::validate_connection).
    pub fn with_rt_policies(&self, policies: &RtClientPolicies) -> Result<Self, SystemException> {
        let binding =
            Arc::new(Binding::new(self.ior().clone(), policies.check()?, &self.core.config().client_policies));
        Ok(ObjectRef { binding, ..self.clone() })
    }

    pub(crate) fn with_binding(&self, binding: Arc<Binding>) -> Self {
        ObjectRef { binding, ..self.clone() }
    }

    /// Returns a copy with calls that `canceller` can cancel.
    #[must_use]
    pub fn with_canceller(&self, canceller: &Canceller) -> Self {
        ObjectRef { canceller: Some(canceller.clone()), ..self.clone() }
    }

    /// Returns a copy that sends these properties to operations that ask for them (IDL's `context`
    /// clause). They replace earlier ones. Requests [built at run
    /// time](crate::dynamic::DynamicRequest::context) have their own.
    #[must_use]
    pub fn with_context(&self, context: &Context) -> Self {
        ObjectRef { context: context.clone(), ..self.clone() }
    }

    /// Returns a copy with typed calls that bypass the POA if the object is active in this ORB.
    /// Such a call costs a virtual function call.
    ///
    /// The first call goes through the POA and finds the servant; later calls do not ask the POA.
    /// So the state of the POA's manager, threading policies, priorities, deactivation and the
    /// shutdown of the ORB do not affect them. [`current`](crate::current()) does not know them,
    /// and a panic of the servant unwinds into the caller. The servant lives at least as long as
    /// the copy and its clones.
    ///
    /// Calls to other objects are not changed: remote and forwarded objects, dynamic servants,
    /// objects called by a [plain key](crate::Orb::bind_key), and servants of a locator.
    ///
    /// # Examples
    /// ```
    /// # fn example(object: &corelane::ObjectRef) {
    /// let direct = object.with_poa_bypass();
    /// # }
    /// ```
    #[must_use]
    pub fn with_poa_bypass(&self) -> Self {
        ObjectRef { bypass: Some(Arc::default()), ..self.clone() }
    }

    /// Adds this servant if the reference bypasses the POA.
    #[inline]
    pub(crate) fn add_bypass_servant(&self, servant: impl FnOnce() -> Option<ErasedArc>) {
        if let Some(direct) = &self.bypass
            && let Some(servant) = servant()
        {
            direct.add(servant);
        }
    }

    /// For generated code: returns the properties that an operation asks for.
    #[doc(hidden)]
    #[must_use]
    pub fn context_for(&self, patterns: &[&str]) -> Context {
        self.context.matching(patterns)
    }

    pub(crate) fn canceller(&self) -> Option<&Canceller> {
        self.canceller.as_ref()
    }

    /// Returns true if the object has the interface `repository_id`. Asks the object unless the
    /// reference states it.
    ///
    /// # Errors
    /// The errors of a call.
    pub fn is_a(&self, repository_id: &str) -> Result<bool, SystemException> {
        static OPERATION: Operation = Operation::new("_is_a");
        // An empty type id states no interface.
        if repository_id == OBJECT_REPOSITORY_ID || (repository_id == self.type_id() && !repository_id.is_empty()) {
            return Ok(true);
        }
        let mut reply = self.invoke(&OPERATION, &|encoder| encoder.write_latin1_str(repository_id))?;
        reply.read(|decoder| decoder.read_bool())
    }

    /// Returns true if the object certainly does not exist, or no longer exists.
    ///
    /// # Errors
    /// The errors of a call, except OBJECT_NOT_EXIST, which is the answer.
    pub fn non_existent(&self) -> Result<bool, SystemException> {
        static OPERATION: Operation = Operation::new("_non_existent");
        let ask = || self.invoke(&OPERATION, &|_| Ok(()))?.read(|decoder| decoder.read_bool());
        let had_moved = self.binding().has_moved();
        let mut answer = ask();
        if had_moved && answer == Ok(true) {
            // The object no longer exists where it was forwarded to. As after OBJECT_NOT_EXIST, ask
            // at the addresses of the reference itself.
            self.binding().set_forwarded(None);
            answer = ask();
        }
        match answer {
            Err(exception) if exception.kind() == Kind::ObjectNotExist => Ok(true),
            answer => answer,
        }
    }

    /// Returns the repository id of the object's most derived interface, as the object states it.
    ///
    /// # Errors
    /// The errors of a call.
    pub fn repository_id(&self) -> Result<String, SystemException> {
        static OPERATION: Operation = Operation::new("_repository_id");
        self.invoke(&OPERATION, &|_| Ok(()))?.read(|decoder| decoder.read_string())
    }

    /// Returns the object's entry in the interface repository (`get_interface`): a reference to an
    /// `InterfaceDef`, if it has one.
    ///
    /// # Errors
    /// The errors of a call; NO_IMPLEMENT from servers without an interface repository, such as
    /// Corelane's.
    pub fn interface_definition(&self) -> Result<Option<ObjectRef>, SystemException> {
        static OPERATION: Operation = Operation::new("_interface");
        self.invoke(&OPERATION, &|_| Ok(()))?.read(read_reference)
    }

    /// Returns the component that the object is a part of (`get_component`), if any.
    ///
    /// # Errors
    /// The errors of a call.
    pub fn component(&self) -> Result<Option<ObjectRef>, SystemException> {
        static OPERATION: Operation = Operation::new("_component");
        self.invoke(&OPERATION, &|_| Ok(()))?.read(read_reference)
    }

    /// Returns true if both references certainly denote the same object. False may mean that it
    /// cannot be told.
    #[must_use]
    pub fn is_equivalent(&self, other: &ObjectRef) -> bool {
        Arc::ptr_eq(&self.binding, &other.binding) || self.ior().is_equivalent(other.ior())
    }

    /// Returns a hash of at most `maximum` that never changes and that equivalent references share.
    #[must_use]
    pub fn hash_value(&self, maximum: u32) -> u32 {
        let hash = self.ior().equivalence_hash();
        if maximum == u32::MAX { hash } else { hash % (maximum + 1) }
    }

    /// Makes sure that the object can be called. Connects, follows forwards, and asks the server
    /// whether it has the object (CORBA 3.0.3, section 4.3.13).
    ///
    /// # Errors
    /// The reason why the object cannot be called.
    pub fn validate_connection(&self) -> Result<(), SystemException> {
        call::locate(self)
    }

    /// Makes connections before the first call needs them: `each` at each of `priorities`, in the
    /// lane or band that serves it. Existing connections count. Does nothing for an object within
    /// the process.
    ///
    /// # Errors
    /// BAD_PARAM for an invalid priority; NO_RESOURCES for more connections than the ORB makes to
    /// one server; the errors of a call that finds no connection.
    pub fn preconnect(&self, priorities: &[i16], each: usize) -> Result<(), SystemException> {
        crate::invocation::establish::establish(self, priorities, each)
    }

    /// Calls `operation` with the arguments that `arguments` writes, and waits for the reply. A
    /// user exception becomes UNKNOWN 1.
    ///
    /// # Errors
    /// The system exception that the ORB or the object raised.
    #[inline]
    pub fn invoke<'a>(
        &self,
        operation: &Operation<'_>,
        arguments: &dyn Fn(&mut Encoder<'a>) -> Result<(), CdrError>,
    ) -> Result<Reply<'_>, SystemException> {
        let reply = call::invoke(self, operation, arguments)?;
        if reply.is_exception() { Err(reply.unlisted_exception()) } else { Ok(reply) }
    }

    /// Calls an operation that declares exceptions; otherwise like [`invoke`](Self::invoke).
    /// [`Reply::exception`] tells which exception was raised.
    ///
    /// # Errors
    /// The system exception that the ORB or the object raised.
    #[inline]
    pub fn invoke_raising<'a>(
        &self,
        operation: &Operation<'_>,
        arguments: &dyn Fn(&mut Encoder<'a>) -> Result<(), CdrError>,
    ) -> Result<Reply<'_>, SystemException> {
        call::invoke(self, operation, arguments)
    }

    /// For generated code: calls `operation` with the arguments that `arguments` writes; `results`
    /// reads the results.
    ///
    /// # Errors
    /// The system exception that the ORB or the object raised. A user exception becomes UNKNOWN 1.
    #[doc(hidden)]
    #[inline]
    pub fn call<'a, T>(
        &self,
        operation: &Operation<'_>,
        results: impl Fn(&mut Decoder<'_>) -> Result<T, CdrError>,
        arguments: &dyn Fn(&mut Encoder<'a>) -> Result<(), CdrError>,
    ) -> Result<T, SystemException> {
        self.call_raising(operation, results, arguments).map_err(|SystemOnly(exception)| exception)
    }

    /// For generated code: [`call`](Self::call) for an operation without results.
    ///
    /// # Errors
    /// The errors of [`call`](Self::call).
    #[doc(hidden)]
    #[inline]
    pub fn run<'a>(
        &self,
        operation: &Operation<'_>,
        arguments: &dyn Fn(&mut Encoder<'a>) -> Result<(), CdrError>,
    ) -> Result<(), SystemException> {
        self.call(operation, |_| Ok(()), arguments)
    }

    /// For generated code: [`call_raising`](Self::call_raising) for an operation without results.
    ///
    /// # Errors
    /// The errors of [`call_raising`](Self::call_raising).
    #[doc(hidden)]
    #[inline]
    pub fn run_raising<'a, E>(
        &self,
        operation: &Operation<'_>,
        arguments: &dyn Fn(&mut Encoder<'a>) -> Result<(), CdrError>,
    ) -> Result<(), E>
    where
        E: for<'r> From<Reply<'r>> + From<SystemException>,
    {
        self.call_raising(operation, |_| Ok(()), arguments)
    }

    /// For generated code: [`call`](Self::call) for an operation that declares exceptions.
    ///
    /// # Errors
    /// The declared exceptions, and system exceptions.
    #[doc(hidden)]
    #[inline]
    pub fn call_raising<'a, T, E>(
        &self,
        operation: &Operation<'_>,
        results: impl Fn(&mut Decoder<'_>) -> Result<T, CdrError>,
        arguments: &dyn Fn(&mut Encoder<'a>) -> Result<(), CdrError>,
    ) -> Result<T, E>
    where
        E: for<'r> From<Reply<'r>> + From<SystemException>,
    {
        let mut value = None;
        let mut read = |decoder: &mut Decoder<'_>| {
            value = Some(results(decoder)?);
            Ok(())
        };
        match call::call(self, operation, arguments, &mut read)? {
            None => {}
            Some(reply) if reply.is_exception() => return Err(reply.into()),
            Some(mut reply) => reply.read(read)?,
        }
        value.ok_or_else(|| SystemException::new(Kind::Internal, 0, Completion::Yes).into())
    }

    /// Calls `operation` without waiting for the reply, which [`Deferred::reply`] returns.
    /// `arguments` runs again if the request has to be sent again.
    ///
    /// # Errors
    /// The reason why the request could not be sent.
    ///
    /// # Examples
    /// ```no_run
    /// # fn example(object: corelane::ObjectRef) -> Result<(), corelane::SystemException> {
    /// let mut square = object.send_deferred("square", |encoder| {
    ///     encoder.write_i32(12);
    ///     Ok(())
    /// })?;
    /// // Something else meanwhile.
    /// let result = square.reply()?.read(|decoder| decoder.read_i32())?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn send_deferred(
        &self,
        operation: &str,
        arguments: impl Fn(&mut Encoder<'static>) -> Result<(), CdrError> + Send + Sync + 'static,
    ) -> Result<Deferred, SystemException> {
        Deferred::send(self, operation, Box::new(arguments))
    }

    /// Calls a oneway operation. Waits as its [`SyncScope`] says; by default until the transport
    /// has the request.
    ///
    /// # Errors
    /// The reason why the request could not be sent, or the server's answer if the scope waits for
    /// one.
    pub fn send_oneway<'a>(
        &self,
        operation: &Operation<'_>,
        arguments: &dyn Fn(&mut Encoder<'a>) -> Result<(), CdrError>,
    ) -> Result<(), SystemException> {
        call::oneway(self, operation, self.policies().sync_scope.unwrap_or(SyncScope::Transport), arguments)
    }

    /// For generated code: returns the servant if calls [bypass the POA](Self::with_poa_bypass) and
    /// it has been called as an `I`. A servant's result is then not copied on its way to the
    /// caller.
    #[inline]
    pub fn direct<I: ?Sized + Send + Sync + 'static>(&self) -> Option<&I> {
        self.bypass.as_ref()?.find()
    }

    /// For generated code: runs `call` on the servant itself if it lives in this ORB and implements
    /// `I`; else returns `None`.
    #[inline]
    pub fn collocated<I: ?Sized + Send + Sync + 'static, T, E: From<SystemException>>(
        &self,
        operation: &'static Operation<'static>,
        call: impl FnOnce(&I) -> Result<T, E>,
    ) -> Option<Result<T, E>> {
        let key = self.binding.local_key(&self.core)?;
        crate::poa::call_local(self, key, operation.name(), call)
    }

    pub(crate) fn encode(reference: Option<&ObjectRef>, encoder: &mut Encoder<'_>) -> Result<(), CdrError> {
        match reference {
            Some(reference) => {
                #[cfg(feature = "any")]
                crate::any::record_orb(&reference.core);
                if reference.has_no_address && encoder.is_message() {
                    return Err(CdrError::UnreachableReference);
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
        let core = core_of(decoder).ok_or(CdrError::Unsupported)?;
        decoder.charge(crate::invocation::BINDING)?;
        Ok(Some(ObjectRef::new(Arc::clone(core), ior)))
    }
}

/// Returns the ORB that received the message being decoded.
pub(crate) fn core_of<'m>(decoder: &Decoder<'m>) -> Option<&'m Arc<Core>> {
    decoder.env().and_then(|env| (env as &dyn std::any::Any).downcast_ref::<Arc<Core>>())
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
    /// Writes the stringified form, `IOR:...`.
    ///
    /// If the reference's ORB does not listen, reports
    /// [`Event::ReferenceWithoutAddress`](crate::Event::ReferenceWithoutAddress): other processes
    /// cannot use the text. A type id without a CDR form, such as one with a NUL that a peer sent,
    /// is left out. The reference leads to the same object without it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.has_no_address {
            self.core.report_nowhere_reference(self.type_id());
        }
        let ior = self.ior();
        let untyped = || Ior { type_id: String::new(), profiles: ior.profiles.clone() }.to_text();
        // The other possible error is a size that no message has.
        f.write_str(&ior.to_text().or_else(|_| untyped()).unwrap_or_else(|_| "IOR:".to_owned()))
    }
}

impl fmt::Debug for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectRef").field("type_id", &self.type_id()).finish_non_exhaustive()
    }
}

/// A typed reference such as `EchoRef`, made by the IDL compiler.
///
/// A reference type also has these methods as inherent ones, unless an operation of its interface
/// has the name. Only generic code, and calls to a method hidden so, need to import this trait.
pub trait Reference: Clone + Sized {
    /// The repository id of the interface.
    const REPOSITORY_ID: &'static str;

    /// Converts an untyped reference without a check.
    fn from_object(object: ObjectRef) -> Self;

    /// Returns the untyped reference.
    fn as_object(&self) -> &ObjectRef;

    /// Returns true if both references denote one object, as far as they show it
    /// ([`ObjectRef::is_equivalent`]). Asks no server.
    fn is_equivalent(&self, other: &impl Reference) -> bool {
        self.as_object().is_equivalent(other.as_object())
    }

    /// Returns a typed reference if the object has this interface. Asks the object unless its
    /// reference states it.
    ///
    /// # Errors
    /// The errors of a call.
    fn narrow(object: &ObjectRef) -> Result<Option<Self>, SystemException> {
        Ok(object.is_a(Self::REPOSITORY_ID)?.then(|| Self::from_object(object.clone())))
    }

    /// Returns a typed reference without a check. Operations that the object does not have raise
    /// BAD_OPERATION.
    #[must_use]
    fn unchecked_narrow(object: &ObjectRef) -> Self {
        Self::from_object(object.clone())
    }

    /// Returns a copy with the time-out `timeout`, from the call to the result.
    #[must_use]
    fn with_timeout(&self, timeout: impl Into<Timeout>) -> Self {
        self.with_policies(CallPolicies { timeout: Some(timeout.into()), ..CallPolicies::NONE })
    }

    /// Returns a copy with the time-out `timeout` for connecting.
    #[must_use]
    fn with_connect_timeout(&self, timeout: Duration) -> Self {
        self.with_policies(CallPolicies { connect_timeout: Some(timeout), ..CallPolicies::NONE })
    }

    /// Returns a copy with calls that `canceller` can cancel.
    #[must_use]
    fn with_canceller(&self, canceller: &Canceller) -> Self {
        Self::from_object(self.as_object().with_canceller(canceller))
    }

    /// Returns a copy that sends these properties to operations that ask for them
    /// ([`ObjectRef::with_context`]).
    #[must_use]
    fn with_context(&self, context: &Context) -> Self {
        Self::from_object(self.as_object().with_context(context))
    }

    /// Returns a copy with these policies added to its own, which they override.
    #[must_use]
    fn with_policies(&self, policies: CallPolicies) -> Self {
        Self::from_object(self.as_object().with_policies(policies))
    }
}

crate::reference_methods! { ObjectRef: with_connect_timeout with_timeout }

impl Reference for ObjectRef {
    const REPOSITORY_ID: &'static str = OBJECT_REPOSITORY_ID;

    fn from_object(object: ObjectRef) -> Self {
        object
    }

    fn as_object(&self) -> &ObjectRef {
        self
    }
}

/// For generated code: writes a reference or nil.
///
/// # Errors
/// None for references that this ORB made or received.
pub fn write_reference<R: Reference>(encoder: &mut Encoder<'_>, reference: Option<&R>) -> Result<(), CdrError> {
    ObjectRef::encode(reference.map(Reference::as_object), encoder)
}

/// For generated code: reads a reference or nil.
///
/// # Errors
/// If the bytes are no reference.
pub fn read_reference<R: Reference>(decoder: &mut Decoder<'_>) -> Result<Option<R>, CdrError> {
    Ok(ObjectRef::decode(decoder)?.map(R::from_object))
}
