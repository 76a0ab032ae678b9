//! Calls from the client's side: what to try (the pure [`machine`]), how (`call`, and the [`driver`] where it takes more than one exchange), and the reply.

pub(crate) mod call;
mod driver;
pub(crate) mod machine;
mod operation;
mod reply;
pub(crate) mod target;

pub use operation::Operation;
pub(crate) use reply::Body;
pub use reply::Reply;
