//! The IDL compiler: OMG IDL to Rust, as docs/rust-mapping.md defines it.
//!
//! Build scripts use [`Builder`], the `corelane idl` command is [`command::run`], and tools that want the
//! declarations themselves start with [`compile::Compilation`].
//!
//! A text passes through these stages, each of which takes whatever the one before made of it:
//!
//! | stage | module | makes |
//! |---|---|---|
//! | preprocessor and scanner | `lex` | one list of tokens, with places in the files that people wrote |
//! | parser | `parse` | a tree ([`ast`]) of what is written |
//! | names, constants, rules | `resolve` | a [`model`] of what is meant |
//! | back end | `rust` | the code |
//!
//! No stage fails: what is wrong becomes a [`diagnostic`], and what is left goes on. No input makes one panic or run
//! without end: see [`limits`].
#![forbid(unsafe_code)]

pub mod ast;
pub mod binary128;
mod build;
pub mod command;
pub mod compile;
pub mod diagnostic;
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

pub use build::{Builder, DiskFiles};
pub use lex::{Files, NoFiles};
