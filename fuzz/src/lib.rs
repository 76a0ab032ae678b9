//! The fuzz targets: functions over octets that must come back, soon and without a panic, whatever they are given.
//!
//! `cargo xtask fuzz` runs each of them under an engine that looks for new paths through the code (the programs in `engine/`);
//! `tests/replay.rs` runs them, without the engine, over what is committed in `corpus/` and `regressions/`.
//! docs/fuzzing.md says how to use this, and how to add a target.
#![forbid(unsafe_code)]

mod generated;
mod valuetypes;

pub use generated::generated;
pub use valuetypes::valuetypes;

pub use corelane_idl::fuzz::{source as idl, source_of_many, tokens as idl_tokens, tokens_of_many};
pub use corelane_wire::fuzz::{any, cdr, giop_framing, ior_text};

/// Operations on what a connection knows: its waiting requests, and the machines that decide what a server takes in and how it ends.
pub fn connection_ops(input: &[u8]) {
    corelane_wire::fuzz::connection_ops(input);
    corelane::fuzz::connection_ops(input);
}

/// A target: its name, which its folders bear too, and its function.
pub type Target = (&'static str, fn(&[u8]));

/// Every target. [`planted`] is none: it is there to be found.
pub const TARGETS: &[Target] = &[
    ("any", any),
    ("cdr", cdr),
    ("connection_ops", connection_ops),
    ("generated", generated),
    ("giop_framing", giop_framing),
    ("idl", idl),
    ("idl_tokens", idl_tokens),
    ("ior_text", ior_text),
    ("valuetypes", valuetypes),
];

/// Panics for one input out of four thousand million, by which `cargo xtask fuzz --prove` sees that the engine is led by
/// what the code does: without that, finding it would take hours.
///
/// # Panics
///
/// That is its purpose.
pub fn planted(input: &[u8]) {
    let mut matched = 0;
    for (octet, wanted) in input.iter().zip(b"\xc0\x4e\x7a\x19") {
        if octet != wanted {
            return;
        }
        matched += 1;
    }
    assert!(matched < 4, "the planted fault was found");
}
