//! Object references: typed and untyped handles to objects anywhere.

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
use crate::rt::client::Asked;

/// The repository id that every object has.
pub(crate) const OBJECT_ID: &str = "IDL:omg.org/CORBA/Object:1.0";

/// A reference to an object: where it is, and how to call it. Clones are cheap and share connections.
///
/// A nil reference is `None` of `Option<ObjectRef>`.
#[derive(Clone)]
pub struct ObjectRef {
    core: Arc<Core>,
    binding: Arc<Binding>,
    policies: CallPolicies,
    canceller: Option<Canceller>,
    context: Context,
    /// The servant that calls go to directly, once it is known.
    direct: Option<Arc<DirectCalls>>,
}

/// Servants that calls go to directly: the object's, as each of the interfaces that it has been called by.
#[derive(Default)]
struct DirectCalls(OnceLock<DirectCall>);

struct DirectCall {
    servant: ErasedArc,
    others: Box<DirectCalls>,
}

impl DirectCalls {
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

    /// Threads that call for the first time at once may each add the same: what is found first counts.
    fn add(&self, servant: ErasedArc) {
        let mut calls = self;
        let mut new = DirectCall { servant, others: Box::default() };
        while let Err(again) = calls.0.set(new) {
            new = again;
            let Some(call) = calls.0.get() else { return };
            calls = &call.others;
        }
    }
}

/// What an operation fails with that declares no exceptions.
struct Raised(SystemException);

impl From<SystemException> for Raised {
    #[inline]
    fn from(exception: SystemException) -> Self {
        Raised(exception)
    }
}

impl From<Reply<'_>> for Raised {
    #[cold]
    fn from(reply: Reply<'_>) -> Self {
        Raised(reply.unlisted_exception())
    }
}

impl ObjectRef {
    pub(crate) fn new(core: Arc<Core>, ior: Ior) -> Self {
        ObjectRef {
            binding: Arc::new(Binding::new(ior, Asked::default(), core.asked())),
            policies: CallPolicies::NONE,
            canceller: None,
            context: Context::new(),
            direct: None,
            core,
        }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(crate) fn binding(&self) -> &Arc<Binding> {
        &self.binding
    }

    /// The policies of this reference, the thread and the ORB, the nearest first.
    #[inline]
    pub(crate) fn policies(&self) -> CallPolicies {
        self.policies.or(crate::policy::of_thread()).or(self.core.config().call_policies)
    }

    /// How long a call through this reference may take.
    #[inline]
    pub(crate) fn timeout(&self) -> Timeout {
        let nearer = self.policies.timeout.or_else(|| crate::policy::of_thread().timeout);
        nearer.or(self.core.config().call_policies.timeout).unwrap_or(Timeout::Never)
    }

    /// The reference as it travels.
    #[must_use]
    pub fn ior(&self) -> &Ior {
        self.binding.ior()
    }

    /// The repository id that the reference carries: what the object is at least, or "" if unknown.
    #[must_use]
    pub fn type_id(&self) -> &str {
        &self.ior().type_id
    }

    /// A copy with these policies on top of its own.
    #[must_use]
    pub fn with_policies(&self, policies: CallPolicies) -> Self {
        ObjectRef { policies: policies.or(self.policies), ..self.clone() }
    }

    /// A reference to the same object with these real-time policies, completed by those of the calling thread
    /// ([`rt::with_client_policies`](crate::rt::with_client_policies)) and of the ORB ([`RtConfig::client`](crate::rt::RtConfig::client)).
    ///
    /// # Errors
    /// BAD_PARAM for priorities that are no bands. Policies that do not go with the object's are INV_POLICY at the first call, or
    /// when [`validate_connection`](Self::validate_connection) is called.
    pub fn with_rt_policies(&self, policies: &RtClientPolicies) -> Result<Self, SystemException> {
        let binding = Arc::new(Binding::new(self.ior().clone(), policies.check()?, self.core.asked()));
        Ok(ObjectRef { binding, ..self.clone() })
    }

    /// The same reference, bound otherwise.
    pub(crate) fn with_binding(&self, binding: Arc<Binding>) -> Self {
        ObjectRef { binding, ..self.clone() }
    }

    /// A copy whose calls `canceller` can end.
    #[must_use]
    pub fn with_canceller(&self, canceller: &Canceller) -> Self {
        ObjectRef { canceller: Some(canceller.clone()), ..self.clone() }
    }

    /// A copy whose calls tell these properties, in the place of others that it had, to operations that ask for them (IDL's
    /// `context` clause). Requests that are [put together at run time](crate::dynamic::Request::context) have their own.
    #[must_use]
    pub fn with_context(&self, context: &Context) -> Self {
        ObjectRef { context: context.clone(), ..self.clone() }
    }

    /// A copy whose typed calls go straight to the servant if the object is active in this ORB, at the price of a virtual function call: past
    /// the object adapter, that is. The first call goes through the adapter as any other and finds the servant; what the adapter says
    /// later is not asked for. So the state of the POA's manager, threading policies, priorities, deactivation and the end of the ORB have no
    /// effect on these calls, [`current`](crate::current()) knows nothing of them, and a panic of the servant is the caller's. The servant lives at
    /// least as long as the copy and its clones.
    ///
    /// Objects elsewhere, forwarded ones, those called by a [plain key](crate::Orb::bind_key), dynamic servants and those of a servant
    /// locator are called as usual.
    ///
    /// # Examples
    /// ```
    /// # fn example(object: &corelane::ObjectRef) {
    /// let direct = object.with_direct_calls();
    /// # }
    /// ```
    #[must_use]
    pub fn with_direct_calls(&self) -> Self {
        ObjectRef { direct: Some(Arc::default()), ..self.clone() }
    }

    /// Where this reference calls directly, it calls this servant from now on.
    #[inline]
    pub(crate) fn call_directly(&self, servant: impl FnOnce() -> Option<ErasedArc>) {
        if let Some(direct) = &self.direct
            && let Some(servant) = servant()
        {
            direct.add(servant);
        }
    }

    /// For generated code: the properties that an operation asks for.
    #[doc(hidden)]
    #[must_use]
    pub fn context_for(&self, patterns: &[&str]) -> Context {
        self.context.matching(patterns)
    }

    pub(crate) fn canceller(&self) -> Option<&Canceller> {
        self.canceller.as_ref()
    }

    /// Whether the object has the interface `repository_id`. Asks the object unless the reference says so.
    ///
    /// # Errors
    /// Those of a call.
    pub fn is_a(&self, repository_id: &str) -> Result<bool, SystemException> {
        static OPERATION: Operation = Operation::new("_is_a");
        // A reference without a type says nothing.
        if repository_id == OBJECT_ID || (repository_id == self.type_id() && !repository_id.is_empty()) {
            return Ok(true);
        }
        let mut reply = self.invoke(&OPERATION, &|encoder| encoder.write_latin1_str(repository_id))?;
        reply.read(|decoder| decoder.read_bool())
    }

    /// Whether the object certainly does not exist (any more).
    ///
    /// # Errors
    /// Those of a call, except OBJECT_NOT_EXIST, which is the answer.
    pub fn non_existent(&self) -> Result<bool, SystemException> {
        static OPERATION: Operation = Operation::new("_non_existent");
        let answer =
            self.invoke(&OPERATION, &|_| Ok(())).and_then(|mut reply| reply.read(|decoder| decoder.read_bool()));
        match answer {
            Err(exception) if exception.kind() == Kind::ObjectNotExist => Ok(true),
            answer => answer,
        }
    }

    /// The repository id of the object's most derived interface, as the object says.
    ///
    /// # Errors
    /// Those of a call.
    pub fn repository_id(&self) -> Result<String, SystemException> {
        static OPERATION: Operation = Operation::new("_repository_id");
        self.invoke(&OPERATION, &|_| Ok(()))?.read(|decoder| decoder.read_string())
    }

    /// The object's entry in the interface repository (`get_interface`): a reference to an `InterfaceDef`, if the object has one.
    ///
    /// # Errors
    /// Those of a call; NO_IMPLEMENT of servers without an interface repository, as those of Corelane are.
    pub fn interface_definition(&self) -> Result<Option<ObjectRef>, SystemException> {
        static OPERATION: Operation = Operation::new("_interface");
        self.invoke(&OPERATION, &|_| Ok(()))?.read(read_reference)
    }

    /// The component that the object is a part of (`get_component`); nothing for objects that are no part of one.
    ///
    /// # Errors
    /// Those of a call.
    pub fn component(&self) -> Result<Option<ObjectRef>, SystemException> {
        static OPERATION: Operation = Operation::new("_component");
        self.invoke(&OPERATION, &|_| Ok(()))?.read(read_reference)
    }

    /// Whether both references are certainly to the same object. False may also mean that one cannot tell.
    #[must_use]
    pub fn is_equivalent(&self, other: &ObjectRef) -> bool {
        Arc::ptr_eq(&self.binding, &other.binding) || self.ior().is_equivalent(other.ior())
    }

    /// A hash that equivalent references share and that never changes, at most `maximum`.
    #[must_use]
    pub fn hash_value(&self, maximum: u32) -> u32 {
        let hash = self.ior().equivalence_hash();
        if maximum == u32::MAX { hash } else { hash % (maximum + 1) }
    }

    /// Makes sure that the object can be called: connects, follows forwards, and asks the server whether it has the object
    /// (CORBA 3.0.3, section 4.3.13).
    ///
    /// # Errors
    /// Why it cannot be called.
    pub fn validate_connection(&self) -> Result<(), SystemException> {
        call::locate(self)
    }

    /// Makes connections before the first call needs them: `each` for calls at each of `priorities`, in the lane or band that serves it. Those
    /// that are there already count. Nothing happens for an object within the process.
    ///
    /// # Errors
    /// BAD_PARAM for a number that is no priority; NO_RESOURCES for more connections than the ORB makes to one server; the errors of a
    /// call that finds no connection.
    pub fn establish(&self, priorities: &[i16], each: usize) -> Result<(), SystemException> {
        crate::invocation::establish::establish(self, priorities, each)
    }

    /// Calls `operation` with the arguments that `arguments` writes, and waits for the reply. A user exception is UNKNOWN 1.
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

    /// The same for an operation that declares exceptions: look at [`Reply::exception`].
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

    /// For generated code: calls `operation` with the arguments that `arguments` writes; `results` reads what it returns.
    ///
    /// # Errors
    /// The system exception that the ORB or the object raised. A user exception is UNKNOWN 1.
    #[doc(hidden)]
    #[inline]
    pub fn call<'a, T>(
        &self,
        operation: &Operation<'_>,
        results: impl Fn(&mut Decoder<'_>) -> Result<T, CdrError>,
        arguments: &dyn Fn(&mut Encoder<'a>) -> Result<(), CdrError>,
    ) -> Result<T, SystemException> {
        self.call_raising(operation, results, arguments).map_err(|Raised(exception)| exception)
    }

    /// For generated code: the same for an operation that returns nothing.
    ///
    /// # Errors
    /// Those of [`call`](Self::call).
    #[doc(hidden)]
    #[inline]
    pub fn run<'a>(
        &self,
        operation: &Operation<'_>,
        arguments: &dyn Fn(&mut Encoder<'a>) -> Result<(), CdrError>,
    ) -> Result<(), SystemException> {
        self.call(operation, |_| Ok(()), arguments)
    }

    /// For generated code: the same for an operation that declares exceptions.
    ///
    /// # Errors
    /// Those of [`call_raising`](Self::call_raising).
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
    /// Those exceptions, and system exceptions.
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

    /// Calls `operation` and does not wait for the reply, which [`Deferred::reply`] gives. The arguments are written again
    /// should the call have to be sent anew.
    ///
    /// # Errors
    /// Why the request could not be sent.
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

    /// Calls a oneway operation: waits as long as its [`SyncScope`] says, by default until the transport has the request.
    ///
    /// # Errors
    /// Why the request could not be sent, or what the server answered if that is waited for.
    pub fn send_oneway<'a>(
        &self,
        operation: &Operation<'_>,
        arguments: &dyn Fn(&mut Encoder<'a>) -> Result<(), CdrError>,
    ) -> Result<(), SystemException> {
        call::oneway(self, operation, self.policies().sync_scope.unwrap_or(SyncScope::Transport), arguments)
    }

    /// For generated code: the servant, if calls go [straight to it](Self::with_direct_calls) and it has been called as an `I`. What it returns
    /// is then returned from where it was put.
    #[inline]
    pub fn direct<I: ?Sized + Send + Sync + 'static>(&self) -> Option<&I> {
        self.direct.as_ref()?.find()
    }

    /// For generated code: runs `call` on the servant itself, if it lives in this ORB and implements `I`; `None` otherwise.
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
                crate::any::note(&reference.core);
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
        Ok(Some(ObjectRef::new(Arc::clone(core), ior)))
    }
}

/// The ORB whose request or reply is decoded.
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
    /// The stringified form: `IOR:...`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.ior().to_text().map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectRef").field("type_id", &self.type_id()).finish_non_exhaustive()
    }
}

/// A typed reference, made by the IDL compiler: `EchoRef`.
pub trait Reference: Clone + Sized {
    /// The repository id of the interface.
    const REPOSITORY_ID: &'static str;

    /// Takes an untyped reference without a check.
    fn from_object(object: ObjectRef) -> Self;

    /// The untyped reference.
    fn as_object(&self) -> &ObjectRef;

    /// A typed reference if the object has this interface; asks the object unless its reference says so.
    ///
    /// # Errors
    /// Those of a call.
    fn narrow(object: &ObjectRef) -> Result<Option<Self>, SystemException> {
        Ok(object.is_a(Self::REPOSITORY_ID)?.then(|| Self::from_object(object.clone())))
    }

    /// A typed reference without a check: calls of operations that the object does not have are BAD_OPERATION.
    #[must_use]
    fn unchecked_narrow(object: &ObjectRef) -> Self {
        Self::from_object(object.clone())
    }

    /// A copy whose calls may take `timeout` from the call to the result.
    #[must_use]
    fn with_timeout(&self, timeout: impl Into<Timeout>) -> Self {
        self.with_policies(CallPolicies { timeout: Some(timeout.into()), ..CallPolicies::NONE })
    }

    /// A copy that may take `timeout` to connect.
    #[must_use]
    fn with_connect_timeout(&self, timeout: Duration) -> Self {
        self.with_policies(CallPolicies { connect_timeout: Some(timeout), ..CallPolicies::NONE })
    }

    /// A copy whose calls `canceller` can end.
    #[must_use]
    fn with_canceller(&self, canceller: &Canceller) -> Self {
        Self::from_object(self.as_object().with_canceller(canceller))
    }

    /// A copy whose calls tell these properties to operations that ask for them ([`ObjectRef::with_context`]).
    #[must_use]
    fn with_context(&self, context: &Context) -> Self {
        Self::from_object(self.as_object().with_context(context))
    }

    /// A copy with these policies on top of its own.
    #[must_use]
    fn with_policies(&self, policies: CallPolicies) -> Self {
        Self::from_object(self.as_object().with_policies(policies))
    }
}

impl Reference for ObjectRef {
    const REPOSITORY_ID: &'static str = OBJECT_ID;

    fn from_object(object: ObjectRef) -> Self {
        object
    }

    fn as_object(&self) -> &ObjectRef {
        self
    }
}

/// For generated code: writes a reference, nil or not.
///
/// # Errors
/// None for references that this ORB made or received.
pub fn write_reference<R: Reference>(encoder: &mut Encoder<'_>, reference: Option<&R>) -> Result<(), CdrError> {
    ObjectRef::encode(reference.map(Reference::as_object), encoder)
}

/// For generated code: reads a reference, nil or not.
///
/// # Errors
/// For octets that are no reference.
pub fn read_reference<R: Reference>(decoder: &mut Decoder<'_>) -> Result<Option<R>, CdrError> {
    Ok(ObjectRef::decode(decoder)?.map(R::from_object))
}
