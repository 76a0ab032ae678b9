//! The program that runs the fuzz target `event_records` under the engine.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| corelane_fuzz::event_records(input));
