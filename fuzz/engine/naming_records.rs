//! The program that runs the fuzz target `naming_records` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| corelane_fuzz::naming_records(input));
