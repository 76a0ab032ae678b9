//! The program that runs the fuzz target `rio_frames` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| corelane_fuzz::rio_frames(input));
