//! The scanner and the preprocessor, which turn files into one list of tokens.

pub(crate) mod condition;
pub(crate) mod macros;
pub(crate) mod preprocessor;
pub(crate) mod scanner;
pub(crate) mod token;

pub use preprocessor::{FileSource, NoFiles};

fn built_in(name: &str) -> Option<&'static str> {
    match name {
        "orb.idl" => Some(include_str!("lex/orb.idl")),
        "IOP.idl" => Some(include_str!("lex/IOP.idl")),
        _ => None,
    }
}
