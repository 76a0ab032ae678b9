//! The IDL compiler: translates OMG IDL to Rust, as docs/rust-mapping.md defines.
//!
//! Source text passes through these stages. Each stage accepts any output of the previous stage:
//!
//! | stage | module | output |
//! |---|---|---|
//! | preprocessor and scanner | `lex` | one list of tokens, with locations in the original files |
//! | parser | `parse` | a syntax tree ([`ast`]) |
//! | names, constants, rules | `resolve` | a resolved [`model`] |
//! | back end | `rust` | the code |
//!
//! No stage fails: an error becomes a [`diagnostic`], and the compilation continues with the other
//! declarations. No input causes a panic or an endless run (see [`limits`]).
#![forbid(unsafe_code)]

pub mod ast;
pub mod binary128;
mod build;
pub mod command;
pub mod compile;
pub mod diagnostic;
mod disk;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod lex;
pub mod limits;
pub mod model;
mod parse;
mod resolve;
mod rust;
pub mod source;
pub mod symbol;

pub use build::Builder;
pub use disk::DiskFiles;
pub use lex::{FileSource, NoFiles};
