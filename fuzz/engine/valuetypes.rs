//! The program that runs the fuzz target `valuetypes` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| corelane_fuzz::valuetypes(input));
