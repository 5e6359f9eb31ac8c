//! Files that the campaign writes and takes apart byte by byte, so that it can write wrong ones.

pub mod parquet;
pub mod safetensors;
pub mod zip;
pub mod zstd;

use std::io::Write;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;

/// In base64.
pub fn base64(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

/// Compressed with gzip.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    // Writing to memory does not fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}

/// `unit` so many times over, compressed with gzip: small, and huge when read.
pub fn gzip_bomb(unit: &[u8], bytes: usize) -> Vec<u8> {
    let block = unit.repeat((1 << 20) / unit.len());
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    for _ in 0..bytes.div_ceil(block.len()) {
        let _ = encoder.write_all(&block);
    }
    encoder.finish().unwrap_or_default()
}
