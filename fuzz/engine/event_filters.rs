//! The program that runs the fuzz target `event_filters` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| corelane_fuzz::event_filters(input));
