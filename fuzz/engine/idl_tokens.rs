//! The program that runs the fuzz target `idl_tokens` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| corelane_fuzz::tokens_with_few_messages(input));
