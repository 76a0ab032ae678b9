//! The program that runs the fuzz target `idl` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| corelane_fuzz::source_with_few_messages(input));
