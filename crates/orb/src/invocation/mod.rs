//! Calls from the client's side: what to try (the pure [`machine`]), how (`call`, and the [`driver`] where it takes more than one exchange), and the reply.

mod bind;
pub(crate) mod call;
mod deferred;
pub(crate) mod driver;
pub(crate) mod establish;
pub(crate) mod machine;
mod operation;
mod reply;
mod shared;
pub(crate) mod target;

pub use deferred::Deferred;
pub use operation::Operation;
pub(crate) use reply::Body;
pub use reply::Reply;
