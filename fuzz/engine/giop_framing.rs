//! The program that runs the fuzz target `giop_framing` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| corelane_fuzz::giop_framing(input));
