//! The program that runs the fuzz target `generated` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| corelane_fuzz::generated(input));
