//! The frame around the state of a value (IDL `valuetype`): tags, repository ids, chunks and indirections (CORBA 3.0.3
//! section 15.3.4). What the state is, and what becomes of it, is the business of whoever reads or writes it.
//!
//! ```text
//! null           00000000
//! indirection    ffffffff, long: from this long back to the tag of a value before
//! value          7fffff00 + flags, [codebase], [repository ids], state
//!                  flags: 1 codebase; 0 no id, 2 one id, 6 a list of ids; 8 chunked
//! chunked state  chunks: long size (1 .. 7ffffeff), so many octets; values between them; at last a long -n,
//!                  which ends the value at depth n, and all within it that are not at their end
//! ```
//!
//! A value that is chunked has only chunked values in it. Codebases, ids and lists of ids can be indirections too. Nothing leads
//! out of a message or an encapsulation, and an indirection leads to exactly what it is for: every other one is
//! [`CdrError::BadIndirection`](crate::CdrError::BadIndirection).

mod copy;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub(super) use reader::Chunks;
pub(crate) use reader::ValueTypes;
pub use reader::{AskType, ConvertCustom, RepositoryIds, ValueHead, ValueSpace, ValueStart};
pub(super) use writer::ValueWriter;
pub use writer::WrittenValue;

/// In front of an indirection.
const INDIRECTION: u32 = 0xffff_ffff;
/// The least value tag.
const TAG: u32 = 0x7fff_ff00;
/// A codebase follows.
const CODEBASE: u32 = 1;
/// How many repository ids follow.
const IDS: u32 = 6;
/// One does.
const ONE_ID: u32 = 2;
/// A list does.
const ID_LIST: u32 = 6;
/// The state comes in chunks.
const CHUNKED: u32 = 8;
