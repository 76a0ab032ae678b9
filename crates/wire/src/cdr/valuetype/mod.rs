//! The frame around the state of a value (IDL `valuetype`): tags, repository ids, chunks and
//! indirections (CORBA 3.0.3 section 15.3.4).
//!
//! ```text
//! null           00000000
//! indirection    ffffffff, long: from this long back to the tag of an earlier value
//! value          7fffff00 + flags, [codebase], [repository ids], state
//!                  flags: 1 codebase; 0 no id, 2 one id, 6 a list of ids; 8 chunked
//! chunked state  chunks: long size (1 .. 7ffffeff), that many octets; values between chunks; then a long -n,
//!                  which ends the value at depth n and all unfinished values inside it
//! ```
//!
//! A chunked value contains only chunked values. An indirection that leads out of its message or
//! encapsulation, or to a target of the wrong kind, is refused with
//! [`CdrError::BadIndirection`](crate::CdrError::BadIndirection).

mod copy;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub(super) use reader::Chunks;
pub(crate) use reader::ValueTypes;
pub use reader::{CustomValueConverter, RepositoryIds, ValueHead, ValueReadState, ValueStart, ValueTypeLookup};
pub use writer::UnfinishedValue;
pub(super) use writer::ValueWriter;

const INDIRECTION: u32 = 0xffff_ffff;
const TAG: u32 = 0x7fff_ff00;
const CODEBASE: u32 = 1;
const IDS: u32 = 6;
const ONE_ID: u32 = 2;
const ID_LIST: u32 = 6;
const CHUNKED: u32 = 8;
