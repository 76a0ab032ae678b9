//! The program that runs the fuzz target `task_requests` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| corelane_fuzz::task_requests(input));
