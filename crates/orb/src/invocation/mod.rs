//! Calls from the client's side: what to try (the pure [`machine`]), how (the blocking driver in `call`), and the reply.

pub(crate) mod call;
pub(crate) mod machine;
mod operation;
mod reply;
pub(crate) mod target;

pub use operation::Operation;
pub(crate) use reply::Body;
pub use reply::Reply;
