//! Damaged files are refused, and nothing panics.
#![allow(missing_docs, clippy::unwrap_used)]

use bytes::Bytes;
use cloze_gguf::{GgufFile, ModelFile, unpack};
use proptest::prelude::*;
use std::fs;
use std::path::{Path, PathBuf};

fn fixture(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/gguf").join(name)).unwrap()
}

/// The error of a file with these bytes.
fn refused(bytes: &[u8]) -> Option<String> {
    let path = PathBuf::from("x.gguf");
    GgufFile::parse(&path, Bytes::copy_from_slice(bytes)).err().map(|error| error.to_string())
}

/// A file with this head after its version.
fn file(version: u32, rest: &[u8]) -> Vec<u8> {
    [&b"GGUF"[..], &version.to_le_bytes(), rest].concat()
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

/// A file with tensors and values, each already in bytes.
fn head(n_tensors: u64, n_values: u64, rest: &[Vec<u8>]) -> Vec<u8> {
    file(3, &[&n_tensors.to_le_bytes()[..], &n_values.to_le_bytes(), &rest.concat()].concat())
}

fn info(name: &str, dims: &[u64], kind: u32, offset: u64) -> Vec<u8> {
    let dims: Vec<u8> = (dims.len() as u32)
        .to_le_bytes()
        .into_iter()
        .chain(dims.iter().flat_map(|dim| dim.to_le_bytes()))
        .collect();
    [text(name), dims, kind.to_le_bytes().to_vec(), offset.to_le_bytes().to_vec()].concat()
}

#[test]
fn each_damage_is_named() {
    let flag = |key: &str, kind: u32, value: &[u8]| {
        [text(key), kind.to_le_bytes().to_vec(), value.to_vec()].concat()
    };
    let wide = vec![0u8; 64];
    for (bytes, expected) in [
        (
            b"PK\x03\x04".to_vec(),
            "x.gguf, byte 0: not a GGUF file: it begins with `PK\\u{3}\\u{4}`, not `GGUF`",
        ),
        (b"GG".to_vec(), "x.gguf, byte 0: not a GGUF file: it begins with `GG`, not `GGUF`"),
        (b"tjggxxxx".to_vec(), "a file of GGML, the format before GGUF; convert it with llama.cpp"),
        (file(1, &wide), "x.gguf, byte 4: the version is 1, expected 2 or 3"),
        (file(3u32.swap_bytes(), &wide), "x.gguf, byte 4: the file is big-endian, which is not supported"),
        (file(3, &[1, 0]), "x.gguf, byte 8: the number of tensors takes 8 bytes, and the file ends after 2"),
        (
            head(u64::MAX, 0, &[]),
            "byte 8: the number of tensors is 18446744073709551615, more than the file has room",
        ),
        (
            head(0, 9, &[flag("a", 7, &[1])]),
            "byte 16: the number of metadata values is 9, more than the file has room",
        ),
        (
            head(0, 1, &[flag("a", 7, &[2])]),
            "byte 37: the value of `a` is 2, expected 0 or 1 for false or true",
        ),
        (head(0, 1, &[flag("a", 13, &[2])]), "the value of `a` has type 13, expected 0 to 12"),
        (head(0, 1, &[flag("a", 4, &[2])]), "the value of `a` takes 4 bytes, and the file ends after 1"),
        (head(0, 2, &[flag("a", 7, &[1]), flag("a", 7, &[1])]), "byte 38: the key `a` is there twice"),
        (
            head(0, 1, &[flag("\u{1b}", 8, &[1, 0, 0, 0, 0, 0, 0, 0, 0xFF])]),
            "the value of `\\u{1b}` is not in UTF-8",
        ),
        (
            head(0, 1, &[flag("a", 9, &[4, 0, 0, 0, 255, 255, 255, 255, 0, 0, 0, 0])]),
            "the length of the value of `a` is 4294967295, more than",
        ),
        (
            head(0, 1, &[flag("general.alignment", 4, &[3, 0, 0, 0])]),
            "`general.alignment` is 3, expected a power of two",
        ),
        (
            head(1, 0, &[info("t", &[4], 0, 0)]),
            "tensor `t` takes 16 bytes from 0 on, and the file has 0 bytes of values",
        ),
        (
            head(1, 0, &[info("t", &[4], 0, 8), wide.clone()]),
            "begins at 8, which is no multiple of the alignment, 32",
        ),
        (
            head(1, 0, &[info("t", &[4, 4], 2, 0), wide.clone()]),
            "has rows of 4 values, and Q4_0 has blocks of 32",
        ),
        (
            head(1, 0, &[info("t", &[1; 5], 0, 0), wide.clone()]),
            "tensor `t` has 5 dimensions, expected at most 4",
        ),
        (head(1, 0, &[info("t", &[1 << 40, 1 << 40], 0, 0)]), "too large for any memory"),
        (
            head(2, 0, &[info("t", &[1], 0, 0), info("t", &[1], 0, 0), wide.clone()]),
            "tensor `t` is there twice",
        ),
    ] {
        let message = refused(&bytes).unwrap_or_default();
        assert!(message.contains(expected) && !message.contains('\n'), "{message}\n{expected}");
    }
    // A type that is not read does no harm until its values are asked for.
    let bytes = head(1, 0, &[info("t", &[256], 14, 0), vec![0; 240]]);
    let file = GgufFile::parse(Path::new("x.gguf"), bytes.into()).unwrap();
    let message = file.values(&file.tensors()[0]).unwrap_err().to_string();
    let expected = "x.gguf: tensor `t` has type Q6_K, which is not supported; expected one of F32, F16, BF16, Q8_0, Q4_0";
    assert_eq!(message, expected);
    assert!(
        GgufFile::open(Path::new("/no/such/file.gguf")).unwrap_err().to_string().starts_with("cannot open")
    );
}

#[test]
fn a_file_that_ends_early_is_refused_wherever_it_ends() {
    let bytes = fixture("blocks.gguf");
    let file = GgufFile::parse(Path::new("x.gguf"), bytes.clone().into()).unwrap();
    let head = file.head().len();
    for len in (0..head).chain((head..bytes.len() - 32).step_by(97)) {
        let message = refused(&bytes[..len]).unwrap_or_else(|| panic!("{len} bytes were accepted"));
        assert!(message.starts_with("x.gguf, byte "), "{message}");
    }
}

#[test]
fn models_are_refused_by_name() {
    let replaced = |name: &str, from: &str, to: &str| {
        let mut bytes = fixture(name);
        let at = bytes.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
        assert_eq!(from.len(), to.len());
        bytes[at..at + from.len()].copy_from_slice(to.as_bytes());
        bytes
    };
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("x.gguf");
    for (bytes, expected) in [
        (
            replaced("gpt2.gguf", "gpt2", "gptj"),
            "`general.architecture` is \"gptj\"; expected one of bert, nomic-bert, gpt2, llama: other models are not supported",
        ),
        (
            replaced("gpt2.gguf", "gpt2.block_count", "gpt2.block_cound"),
            "`gpt2.block_count` is missing; expected a whole number",
        ),
        (
            replaced("gpt2.gguf", "blk.0.ffn_up.bias", "blk.0.ffn_up.bied"),
            "tensor `blk.0.ffn_up.bied` has no place in the architecture `gpt2`",
        ),
        (
            replaced("gpt2.gguf", "blk.0.ffn_up.bias", "blk.0.attn_q.bias"),
            "tensor `blk.0.attn_q.bias` has no place in",
        ),
        (
            replaced("gpt2.gguf", "gpt-2", "dbrx2"),
            "`tokenizer.ggml.pre` is \"dbrx2\"; expected one of gpt-2, ",
        ),
        (fixture("blocks.gguf"), "`general.architecture` is \"none\"; expected one of bert"),
    ] {
        fs::write(&path, bytes).unwrap();
        let message = unpack(&path, &place.path().join("cache")).unwrap_err().to_string();
        assert!(
            message.contains(expected) && message.contains("x.gguf") && !message.contains('\n'),
            "{message}"
        );
        let left = fs::read_dir(place.path().join("cache")).map_or(0, Iterator::count);
        assert_eq!(left, 0, "{expected}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Any bytes of the head may be anything.
    #[test]
    fn changed_bytes_panic_nowhere(
        which in 0usize..5,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        early in 0usize..600,
    ) {
        let names = ["blocks.gguf", "bert.gguf", "nomic-bert.gguf", "gpt2.gguf", "llama.gguf"];
        let mut bytes = fixture(names[which]);
        let head = GgufFile::parse(Path::new("x.gguf"), bytes.clone().into()).unwrap().head().len();
        for (i, (at, byte)) in changes.into_iter().enumerate() {
            // The numbers at the beginning decide more than pieces.
            let reach = if i % 2 == 0 { head } else { early.clamp(1, head) };
            bytes[at.index(reach)] = byte;
        }
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("x.gguf");
        fs::write(&path, &bytes).unwrap();
        if let Ok(file) = GgufFile::open(&path) {
            for tensor in file.tensors() {
                let _ = file.values(tensor);
            }
            if let Ok(model) = ModelFile::open(&path) {
                let _ = model.tensors();
            }
            let _ = unpack(&path, &place.path().join("cache"));
        }
    }
}
