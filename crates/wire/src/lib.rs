//! CORBA on the wire: IDL values to and from CDR, GIOP messages, object references, and the
//! protocol state of one connection.
//!
//! No function of this crate opens a socket, reads a clock, starts a thread or blocks: received
//! bytes, limits and time are arguments. Except in the entry points for fuzzing, bytes from outside
//! never make a function of this crate panic.
#![forbid(unsafe_code)]
#![deny(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    clippy::cast_lossless
)]
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod cdr;
pub mod codeset;
pub mod connection;
pub mod decimal;
pub mod dynamic;
pub mod exception;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzz;
pub mod giop;
pub mod ior;
pub mod limits;
pub mod rt;
pub mod typecode;

pub use cdr::{Cdr, CdrError, Decoder, Encoder, Endian, Octets, Primitive, Scratch};
pub use codeset::{CharSet, CodeSets, WideByteOrder, WideCodeSet};
pub use decimal::{Decimal, DecimalError, Fixed};
pub use dynamic::{AnyValue, Value};
pub use giop::Version;
pub use ior::Ior;
pub use limits::Limits;
pub use typecode::TypeCode;
