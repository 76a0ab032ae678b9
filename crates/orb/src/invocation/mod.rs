//! Invocations of remote objects. `call` is the fast path: one exchange on an idle connection. For
//! all other invocations, the pure [`machine`] decides each step, and the [`driver`] performs it.

mod band_declaration;
pub(crate) mod call;
pub(crate) mod callee;
mod deferred;
pub(crate) mod driver;
pub(crate) mod immediate;
mod interception;
pub(crate) mod lane_selector;
mod machine;
mod multiplexed;
mod operation;
pub(crate) mod preconnect;
mod reply;
pub(crate) mod result_memory;
pub(crate) mod target;
pub(crate) mod thread_policies;

pub use deferred::DeferredCall;
pub(crate) use deferred::OwnedArgumentWriter;
pub use operation::Operation;
pub(crate) use reply::ReplyBody;
pub use thread_policies::with_client_policies;

/// Size in bytes of a reference's binding, without the memory to which it has pointers.
pub(crate) const BINDING_BYTES: usize = size_of::<target::Binding>();
pub use reply::Reply;
