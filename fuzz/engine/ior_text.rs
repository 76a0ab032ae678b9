//! The program that runs the fuzz target `ior_text` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| corelane_fuzz::ior_text(input));
