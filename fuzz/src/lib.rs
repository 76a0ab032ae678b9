//! The fuzz targets: functions over bytes that must return soon and without a panic for any input.
//!
//! docs/fuzzing.md describes how to use and add targets.
#![forbid(unsafe_code)]

mod generated;
mod orb_options;
mod valuetypes;

pub use generated::generated;
pub use orb_options::orb_options;
pub use valuetypes::valuetypes;

pub use corelane_config::fuzz::configuration;
pub use corelane_idl::fuzz::{source as idl, source_with_few_messages, tokens as idl_tokens, tokens_with_few_messages};
pub use corelane_rio::fuzz::rio_frames;
pub use corelane_sched::fuzz::task_files;
pub use corelane_services::cores::fuzz::task_requests;
pub use corelane_services::events::fuzz::{event_filters, event_records};
pub use corelane_services::naming::fuzz::naming_records;
pub use corelane_sniff::fuzz::sniff;
pub use corelane_wire::fuzz::{any, cdr, giop_framing, ior_text};

/// Runs operations on the parts of a connection: its outstanding requests, fragmentation, stall
/// detection, and the admission, eviction and closing of a server's connections.
pub fn connection_ops(input: &[u8]) {
    corelane_wire::fuzz::connection_ops(input);
    corelane::fuzz::connection_ops(input);
}

/// A fuzz target: its name, which is also the name of its folders, and its function.
pub type Target = (&'static str, fn(&[u8]));

/// All targets except [`planted`], whose fault an engine must find.
pub const TARGETS: &[Target] = &[
    ("any", any),
    ("cdr", cdr),
    ("configuration", configuration),
    ("connection_ops", connection_ops),
    ("event_filters", event_filters),
    ("event_records", event_records),
    ("generated", generated),
    ("giop_framing", giop_framing),
    ("idl", idl),
    ("idl_tokens", idl_tokens),
    ("ior_text", ior_text),
    ("naming_records", naming_records),
    ("orb_options", orb_options),
    ("rio_frames", rio_frames),
    ("sniff", sniff),
    ("task_files", task_files),
    ("task_requests", task_requests),
    ("valuetypes", valuetypes),
];

/// Panics for inputs that begin with four particular octets. `cargo xtask fuzz --prove` runs this
/// target to show that coverage guides the engine.
///
/// # Panics
///
/// On purpose, for these inputs.
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
