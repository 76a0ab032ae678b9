//! Calls and servants without generated code: the dynamic invocation interface and the dynamic skeleton interface (CORBA
//! 3.0.3 chapters 7 and 8), and values taken apart without their types (chapter 9).
//!
//! A [`Request`] is an operation with arguments in [`Any`](crate::Any)s, a [`DynamicServant`] gets them so. Neither needs to know at compile
//! time what the types are; the TypeCodes say it when a call is made.

mod dyn_any;
mod many;
mod request;
mod servant;

pub use dyn_any::{Component, DynAny, DynAnyError};
pub use many::Responses;
pub use request::{DeferredRequest, Request, RequestError, Response};
pub use servant::{DynamicServant, ServerRequest};
