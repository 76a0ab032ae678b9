//! Calls and servants without generated code: dynamic invocation, dynamic skeletons and DynAny
//! (CORBA 3.0.3 chapters 7 to 9).
//!
//! A [`DynamicRequest`] is an operation with its arguments in [`Any`](crate::Any)s; a
//! [`DynamicServant`] receives them in this form. Types need not be known at compile time:
//! TypeCodes give them when a call is made.

mod dyn_any;
mod multiple;
mod request;
mod servant;

pub use dyn_any::{Component, DynAny, DynAnyError};
pub use multiple::Responses;
pub use request::{DeferredRequest, DynamicRequest, DynamicResponse, RequestError};
pub use servant::{DynamicServant, ServerRequest};
