//! Dynamic servants, whose interfaces are known only at run time.

use std::fmt;

use corelane_wire::AnyValue;
use corelane_wire::exception::minor;

use crate::any::{Any, TypeCode, TypeCodeKind};
use crate::context::Context;
use crate::exception::{Completion, SystemException, SystemExceptionKind};
use crate::servant::{Servant, ServerCall, Skeleton};

/// A servant for an interface that is known only at run time. [`Servant::dynamic`] wraps it for
/// activation in a POA.
///
/// ```
/// use corelane::dynamic::{DynamicServant, ServerRequest};
/// use corelane::{Any, SystemException, TypeCode};
///
/// struct Adder;
///
/// impl DynamicServant for Adder {
///     fn repository_ids(&self) -> &'static [&'static str] {
///         &["IDL:Adder:1.0"]
///     }
///
///     fn invoke(&self, request: &mut ServerRequest<'_, '_>) -> Result<(), SystemException> {
///         match request.operation() {
///             "add" => {
///                 let numbers = request.arguments(&[TypeCode::LONG, TypeCode::LONG])?;
///                 let sum = numbers[0].extract::<i32>()? + numbers[1].extract::<i32>()?;
///                 request.reply(&[Any::new(&sum)?])
///             }
///             _ => Err(SystemException::bad_operation()),
///         }
///     }
/// }
/// ```
pub trait DynamicServant: Send + Sync + 'static {
    /// Returns the repository ids of the interface and of all its bases, most derived first.
    fn repository_ids(&self) -> &'static [&'static str];

    /// Runs an operation.
    ///
    /// # Errors
    /// BAD_OPERATION for an unknown operation; any other exception of the operation.
    fn invoke(&self, request: &mut ServerRequest<'_, '_>) -> Result<(), SystemException>;
}

/// A request to a [`DynamicServant`].
pub struct ServerRequest<'c, 'm> {
    operation: &'c str,
    call: &'c mut ServerCall<'m>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unread,
    Read,
    ContextRead,
    Answered,
}

impl ServerRequest<'_, '_> {
    /// Returns the operation's name on the wire.
    #[must_use]
    pub fn operation(&self) -> &str {
        self.operation
    }

    /// Reads the in and inout arguments. `types` are their types in the order of the parameters.
    /// May be called once, before the reply.
    ///
    /// # Errors
    /// MARSHAL if the bytes are not arguments of these types; BAD_INV_ORDER 7 for a second call, or
    /// after the reply.
    pub fn arguments(&mut self, types: &[TypeCode]) -> Result<Vec<Any>, SystemException> {
        if self.state != State::Unread {
            return Err(SystemException::new(
                SystemExceptionKind::BadInvOrder,
                minor::bad_inv_order::ARGUMENTS_ORDER,
                Completion::No,
            ));
        }
        self.state = State::Read;
        let d = self.call.arguments();
        let client = crate::object::client_of(d).cloned();
        let mut values = Vec::with_capacity(types.len());
        for type_code in types {
            values.push(Any::from_wire(AnyValue::decode_value(type_code.clone(), d)?, client.clone()));
        }
        Ok(values)
    }

    /// Reads the properties of a call of an operation with a `context` clause. May be called once,
    /// after the arguments.
    ///
    /// # Errors
    /// MARSHAL for malformed properties; BAD_INV_ORDER 8 before the arguments are read, for a
    /// second call, or after the reply.
    pub fn context(&mut self) -> Result<Context, SystemException> {
        if self.state != State::Read {
            return Err(SystemException::new(
                SystemExceptionKind::BadInvOrder,
                minor::bad_inv_order::CTX_ORDER,
                Completion::No,
            ));
        }
        self.state = State::ContextRead;
        Ok(Context::read(self.call.arguments())?)
    }

    /// Replies with the return value, if there is one, then the inout and out arguments in the
    /// order of the parameters.
    ///
    /// # Errors
    /// BAD_INV_ORDER 9 after a reply; the error of a value that cannot be encoded.
    pub fn reply(&mut self, values: &[Any]) -> Result<(), SystemException> {
        self.answer()?;
        let e = self.call.reply();
        for value in values {
            value.encode_value(e)?;
        }
        Ok(())
    }

    /// Replies with a user exception.
    ///
    /// # Errors
    /// BAD_PARAM 21 for a value that is not an exception; BAD_INV_ORDER 9 after a reply.
    pub fn raise(&mut self, exception: &Any) -> Result<(), SystemException> {
        if exception.type_code().unaliased().kind() != TypeCodeKind::Except {
            return Err(SystemException::new(
                SystemExceptionKind::BadParam,
                minor::bad_param::SET_EXCEPTION_WITHOUT_EXCEPTION,
                Completion::No,
            ));
        }
        self.answer()?;
        self.call.raise_with(|reply| exception.encode_value(reply))
    }

    fn answer(&mut self) -> Result<(), SystemException> {
        if self.state == State::Answered {
            return Err(SystemException::new(
                SystemExceptionKind::BadInvOrder,
                minor::bad_inv_order::SET_RESULT_ORDER,
                Completion::No,
            ));
        }
        self.state = State::Answered;
        Ok(())
    }
}

impl fmt::Debug for ServerRequest<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerRequest").field("operation", &self.operation).field("state", &self.state).finish()
    }
}

struct DynamicSkeleton<S>(S);

impl<S: DynamicServant> Skeleton for DynamicSkeleton<S> {
    fn repository_ids(&self) -> &'static [&'static str] {
        self.0.repository_ids()
    }

    fn dispatch(&self, operation: &[u8], call: &mut ServerCall<'_>) -> Result<(), SystemException> {
        let operation = std::str::from_utf8(operation).map_err(|_| SystemException::bad_operation())?;
        self.0.invoke(&mut ServerRequest { operation, call, state: State::Unread })
    }
}

impl Servant {
    /// Creates a servant for interfaces that are known only at run time.
    pub fn dynamic(servant: impl DynamicServant) -> Servant {
        Servant::new(DynamicSkeleton(servant))
    }
}
