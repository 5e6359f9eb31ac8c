#![no_main]

#[allow(dead_code)]
#[path = "../../tests/fuzz/bodies.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::read_sentencepiece(data));
