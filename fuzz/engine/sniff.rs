//! The target `sniff` in the engine's loop.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| corelane_fuzz::sniff(input));
