//! Invocations of remote objects by the client. The pure [`machine`] decides the next step of an
//! invocation. `call` makes one exchange with a server, and the [`driver`] makes the invocations
//! that need several. The object of an invocation is a [`callee`], whose [`target`] has the
//! profiles. `lane_selector` selects connections by priority.

mod band_declaration;
pub(crate) mod call;
pub(crate) mod callee;
mod deferred;
pub(crate) mod driver;
mod interception;
pub(crate) mod lane_selector;
mod machine;
mod multiplexed;
mod operation;
pub(crate) mod preconnect;
mod reply;
pub(crate) mod target;
pub(crate) mod thread_policies;

pub use deferred::DeferredCall;
pub(crate) use deferred::OwnedArgumentWriter;
pub use operation::Operation;
pub(crate) use reply::ReplyBody;
pub use thread_policies::with_client_policies;

/// Number of bytes of memory that a reference's binding uses in addition to its profiles.
pub(crate) const BINDING: usize = size_of::<target::Binding>();
pub use reply::Reply;
