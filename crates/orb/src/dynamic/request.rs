//! Dynamic requests, which a program builds at run time.

use std::fmt;
use std::sync::Arc;

use corelane_sys::clock::Monotonic;
use corelane_sys::eventfd::EventFd;
use corelane_wire::exception::minor;
use corelane_wire::{AnyValue, CdrError, Encoder};

use crate::any::{Any, TypeCode, TypeCodeKind};
use crate::cancel::Canceller;
use crate::context::Context;
use crate::exception::{Completion, SystemException, SystemExceptionKind};
use crate::invocation::{DeferredCall, Operation, Reply};
use crate::object::ObjectRef;

/// A request that is built at run time: an operation, its arguments and the types of its results.
///
/// ```no_run
/// use corelane::{Any, TypeCode};
/// # fn example(object: corelane::ObjectRef) -> Result<(), Box<dyn std::error::Error>> {
/// let response = object
///     .request("add")
///     .input(Any::new(&2i32)?)
///     .inout(Any::new(&3i32)?)
///     .output(TypeCode::LONG)
///     .returns(TypeCode::LONG)
///     .invoke()?;
/// let sum: i32 = response.result.extract()?;
/// let product: i32 = response.outputs[1].extract()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct DynamicRequest {
    object: ObjectRef,
    operation: String,
    arguments: Vec<Any>,
    outputs: Vec<TypeCode>,
    result: TypeCode,
    raises: Vec<TypeCode>,
    context: Option<Context>,
}

/// The results of a dynamic request.
#[derive(Clone, Debug, PartialEq)]
pub struct DynamicResponse {
    /// The return value; an `any` of type void if there is none.
    pub result: Any,
    /// The inout and out arguments, in the order of the parameters.
    pub outputs: Vec<Any>,
}

/// The error of a dynamic request.
#[derive(Clone, Debug, PartialEq)]
pub enum RequestError {
    /// A user exception that [`DynamicRequest::raises`] declared.
    User(Any),
    /// A system exception. An undeclared user exception becomes UNKNOWN 1.
    System(SystemException),
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestError::User(exception) => write!(f, "{exception:?}"),
            RequestError::System(exception) => fmt::Display::fmt(exception, f),
        }
    }
}

impl std::error::Error for RequestError {}

impl From<SystemException> for RequestError {
    fn from(exception: SystemException) -> Self {
        RequestError::System(exception)
    }
}

impl From<CdrError> for RequestError {
    fn from(error: CdrError) -> Self {
        RequestError::System(error.into())
    }
}

/// A dynamic request for one of these operations raises BAD_PARAM 32.
const IMPLICIT: [&str; 7] =
    ["_is_a", "_interface", "_non_existent", "_not_existent", "_repository_id", "_component", "_domain_managers"];

impl ObjectRef {
    /// Creates a dynamic request for the operation with this name on the wire. The operations of an
    /// attribute `x` have the names `_get_x` and `_set_x`.
    #[must_use]
    pub fn request(&self, operation: &str) -> DynamicRequest {
        DynamicRequest {
            object: self.clone(),
            operation: operation.to_owned(),
            arguments: Vec::new(),
            outputs: Vec::new(),
            result: TypeCode::VOID,
            raises: Vec::new(),
            context: None,
        }
    }
}

impl DynamicRequest {
    /// Adds the next argument, which has the mode `in`.
    #[must_use]
    pub fn input(mut self, value: Any) -> Self {
        self.arguments.push(value);
        self
    }

    /// Adds the next argument, which has the mode `inout`.
    #[must_use]
    pub fn inout(mut self, value: Any) -> Self {
        self.outputs.push(value.type_code().clone());
        self.arguments.push(value);
        self
    }

    /// Adds the type of the next argument, which has the mode `out`.
    #[must_use]
    pub fn output(mut self, type_code: TypeCode) -> Self {
        self.outputs.push(type_code);
        self
    }

    /// Sets the type of the return value. The default is void.
    #[must_use]
    pub fn returns(mut self, type_code: TypeCode) -> Self {
        self.result = type_code;
        self
    }

    /// Adds the type of a user exception that the operation may raise.
    #[must_use]
    pub fn raises(mut self, exception: TypeCode) -> Self {
        self.raises.push(exception);
        self
    }

    /// Sets the properties that the request sends, for an operation with a `context` clause.
    #[must_use]
    pub fn context(mut self, context: Context) -> Self {
        self.context = Some(context);
        self
    }

    /// Calls the operation and waits for its results.
    ///
    /// # Errors
    /// The exception that the object or the ORB raised. The ORB raises BAD_PARAM 32 for an
    /// operation that every object has, and BAD_TYPECODE 3 for a parameter or result whose type is
    /// null or an exception, and for a void parameter.
    pub fn invoke(self) -> Result<DynamicResponse, RequestError> {
        self.check()?;
        let arguments = |encoder: &mut Encoder<'_>| write(&self.arguments, self.context.as_ref(), encoder);
        let mut reply = self.object.invoke_raising(&Operation::new(&self.operation), &arguments)?;
        self.read(&mut reply)
    }

    /// Sends the request without waiting for the reply. [`DeferredRequest::response`] returns the
    /// results.
    ///
    /// # Errors
    /// The reason why the request could not be sent.
    pub fn send_deferred(self) -> Result<DeferredRequest, SystemException> {
        self.check()?;
        let (arguments, context) = (self.arguments.clone(), self.context.clone());
        let write = move |encoder: &mut Encoder<'static>| write(&arguments, context.as_ref(), encoder);
        let deferred = self.object.send_deferred(&self.operation, write)?;
        Ok(DeferredRequest { request: self, deferred })
    }

    /// Sends the request as a oneway.
    ///
    /// # Errors
    /// The reason why the request could not be sent; BAD_PARAM 31 if the request declares results
    /// or user exceptions.
    pub fn send_oneway(self) -> Result<(), SystemException> {
        self.check_oneway()?;
        self.send_checked_oneway()
    }

    pub(super) fn send_checked_oneway(&self) -> Result<(), SystemException> {
        let arguments = |encoder: &mut Encoder<'_>| write(&self.arguments, self.context.as_ref(), encoder);
        self.object.send_oneway(&Operation::new(&self.operation), &arguments)
    }

    pub(super) fn check_oneway(&self) -> Result<(), SystemException> {
        self.check()?;
        if !self.outputs.is_empty() || !self.raises.is_empty() || self.result != TypeCode::VOID {
            return Err(SystemException::new(
                SystemExceptionKind::BadParam,
                minor::bad_param::BAD_ONEWAY,
                Completion::No,
            ));
        }
        Ok(())
    }

    fn check(&self) -> Result<(), SystemException> {
        if IMPLICIT.contains(&self.operation.as_str()) {
            return Err(SystemException::new(
                SystemExceptionKind::BadParam,
                minor::bad_param::DYNAMIC_IMPLICIT_OPERATION,
                Completion::No,
            ));
        }
        let arguments = self.arguments.iter().map(Any::type_code);
        let result = Some(&self.result).filter(|result| result.kind() != TypeCodeKind::Void);
        if !arguments.chain(&self.outputs).chain(result).all(|ty| ty.unaliased().kind().can_be_member()) {
            let illegal = minor::bad_typecode::ILLEGAL_PARAMETER;
            return Err(SystemException::new(SystemExceptionKind::BadTypecode, illegal, Completion::No));
        }
        Ok(())
    }

    fn read(&self, reply: &mut Reply<'_>) -> Result<DynamicResponse, RequestError> {
        let client = Some(self.object.client().clone());
        if let Some(id) = reply.exception_id() {
            let Some(type_code) = self.raises.iter().find(|exception| exception.id() == id) else {
                return Err(reply.unknown_user_exception().into());
            };
            let exception = reply.read(|d| AnyValue::decode_exception_members(type_code, d))?;
            return Err(RequestError::User(Any::from_wire(exception, client)));
        }
        let (result, outputs) = reply.read(|d| {
            let mut read = |type_code: &TypeCode| {
                AnyValue::decode_value(type_code.clone(), d).map(|value| Any::from_wire(value, client.clone()))
            };
            let result = read(&self.result)?;
            Ok((result, self.outputs.iter().map(read).collect::<Result<_, _>>()?))
        })?;
        Ok(DynamicResponse { result, outputs })
    }
}

fn write(arguments: &[Any], context: Option<&Context>, encoder: &mut Encoder<'_>) -> Result<(), CdrError> {
    for argument in arguments {
        argument.encode_value(encoder)?;
    }
    context.map_or(Ok(()), |context| context.write(encoder))
}

/// A dynamic request that was sent and whose reply is outstanding. Dropping it abandons the reply.
#[derive(Debug)]
pub struct DeferredRequest {
    request: DynamicRequest,
    deferred: DeferredCall,
}

impl DeferredRequest {
    /// Returns true if [`response`](DeferredRequest::response) would not wait (`poll_response`).
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.deferred.is_ready()
    }

    pub(super) fn deadline(&self) -> Option<Monotonic> {
        self.deferred.deadline()
    }

    pub(super) fn canceller(&self) -> Option<&Canceller> {
        self.request.object.callee().canceller()
    }

    /// Signals `bell` when the response arrives. Returns false, and does not signal it, if the
    /// response has arrived before.
    pub(super) fn notify_on_reply(&self, bell: &Arc<EventFd>) -> bool {
        self.deferred.notify_when_ready(bell)
    }

    /// Waits for the results of the operation (`get_response`).
    ///
    /// # Errors
    /// The exception that the object or the ORB raised; BAD_INV_ORDER 12 on a second call.
    pub fn response(&mut self) -> Result<DynamicResponse, RequestError> {
        let mut reply = self.deferred.reply()?;
        self.request.read(&mut reply)
    }
}
