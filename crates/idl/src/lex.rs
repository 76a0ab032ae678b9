//! From files to one stream of tokens: the scanner, and the preprocessor on top of it.

pub(crate) mod condition;
pub(crate) mod macros;
pub(crate) mod preprocessor;
pub(crate) mod scanner;
pub(crate) mod token;

pub use preprocessor::{Files, NoFiles};

/// Files that every ORB has, for those who include them without having them.
fn built_in(name: &str) -> Option<&'static str> {
    match name {
        "orb.idl" => Some(include_str!("lex/orb.idl")),
        "IOP.idl" => Some(include_str!("lex/IOP.idl")),
        _ => None,
    }
}
