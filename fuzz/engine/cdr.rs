//! The program that runs the fuzz target `cdr` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| corelane_fuzz::cdr(input));
