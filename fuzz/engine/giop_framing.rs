//! The target `giop_framing` in the engine's loop.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| corelane_fuzz::giop_framing(input));
