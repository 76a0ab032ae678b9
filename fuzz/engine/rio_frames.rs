//! The program that runs the fuzz target `rio_frames` under the engine.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| corelane_fuzz::rio_frames(input));
