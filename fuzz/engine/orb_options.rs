//! The program that runs the fuzz target `orb_options` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| corelane_fuzz::orb_options(input));
