//! The program that runs the fuzz target `connection_ops` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| corelane_fuzz::connection_ops(input));
