//! Calls and servants without generated code: dynamic invocation, dynamic skeletons and DynAny
//! (CORBA 3.0.3 chapters 7 to 9).

mod dyn_any;
mod multiple;
mod request;
mod servant;

pub use dyn_any::{Component, DynAny, DynAnyError};
pub use multiple::PendingResponses;
pub use request::{DeferredRequest, DynamicRequest, DynamicResponse, RequestError};
pub use servant::{DynamicServant, ServerRequest};
