//! Weights as PyTorch saves them: what `data/torch/export.py` wrote, damaged and evil files.

#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not count as tests")]

use std::fs;
use std::path::{Path, PathBuf};

use burn::tensor::TensorData;
use cloze_model::ModelError;
use cloze_model::huggingface::{MappedTensors, read_tensors, tensors_of};
use proptest::prelude::*;
use tempfile::TempDir;

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/torch")
}

/// A folder with these bytes as its weights.
fn folder(bytes: &[u8]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("pytorch_model.bin"), bytes).unwrap();
    folder
}

fn bytes(case: &str) -> Vec<u8> {
    fs::read(data().join(case).join("pytorch_model.bin")).unwrap()
}

#[track_caller]
fn refused(bytes: &[u8]) -> String {
    let error = tensors_of(folder(bytes).path()).unwrap_err();
    assert!(matches!(error, ModelError::Torch { .. }), "{error}");
    error.to_string().split_once("pytorch_model.bin, ").unwrap().1.to_string()
}

#[test]
fn every_format_gives_pytorchs_values() {
    let expected = read_tensors(&data().join("expected.safetensors")).unwrap();
    assert_eq!(expected.len(), 20);
    for case in ["zip", "legacy", "protocol4", "zipped_again", "shards"] {
        let MappedTensors { floats, others, .. } = tensors_of(&data().join(case)).unwrap();
        for (name, tensor) in &expected {
            assert_eq!(floats.get(name), Some(tensor), "{case}: {name}");
        }
        assert_eq!(floats.len(), expected.len(), "{case}");
        let named = ["bool", "i16", "i32", "i64", "i64.expanded", "i8", "names", "odd", "version"];
        assert_eq!(others, named, "{case}");
    }
}

#[test]
fn doubles_are_read_as_fp32() {
    let floats = tensors_of(&data().join("double")).unwrap().floats;
    assert!(!floats.is_empty());
    assert!(floats.values().all(|tensor| tensor.dtype() == burn::tensor::DType::F32));
}

#[test]
fn weights_within_a_training_state_are_read() {
    let one = [("x".to_string(), TensorData::new(vec![1f32, 1.0], [2]))].into();
    for key in ["state_dict", "model_state_dict", "model", "module"] {
        assert_eq!(tensors_of(&data().join(format!("within_{key}"))).unwrap().floats, one, "{key}");
    }
}

#[test]
fn tensors_outlive_their_file() {
    let folder = folder(&bytes("zip"));
    let tensors = tensors_of(folder.path()).unwrap();
    drop(folder);
    assert_eq!(tensors.floats, read_tensors(&data().join("expected.safetensors")).unwrap());
}

#[test]
fn safetensors_come_first() {
    let folder = folder(&bytes("zip"));
    let one = [("x".to_string(), TensorData::new(vec![1f32], [1]))].into();
    cloze_model::huggingface::save_tensors(folder.path(), &one, 100).unwrap();
    assert_eq!(tensors_of(folder.path()).unwrap().floats, one);
}

#[test]
fn what_is_no_dictionary_of_tensors_is_refused() {
    for case in ["evil", "evil_legacy"] {
        let message = refused(&bytes(case));
        assert!(
            message.ends_with(": `posix.system` is not among the names that a file of weights may import")
        );
        // The byte is that of the opcode: the name follows it.
        let offset = message.strip_prefix("byte ").unwrap().split_once(':').unwrap().0;
        assert!(
            bytes(case)[offset.parse::<usize>().unwrap()..].starts_with(b"cposix\nsystem\n"),
            "{message}"
        );
    }
    assert!(refused(&bytes("module")).contains("`torch.nn.modules.container.Sequential`"));
    assert!(refused(&bytes("float8")).contains("`torch._utils._rebuild_tensor_v3`"));
    assert!(refused(&bytes("tensor")).ends_with("is not a dictionary of tensors"));
    assert!(refused(&bytes("deflated")).ends_with("compressed or encrypted, which torch.save never does"));
    assert!(refused(b"").ends_with("not a file that torch.save wrote"));
    assert!(refused(b"version https://git-lfs").ends_with("not a file that torch.save wrote"));
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    for case in ["zip", "legacy"] {
        let bytes = bytes(case);
        for end in (0..bytes.len()).step_by(7) {
            refused(&bytes[..end]);
        }
    }
}

/// An old file's beginning, up to its tensors.
const LEGACY: &[u8] = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\
    \x80\x02}X\x0d\x00\x00\x00little_endian\x88s.";

/// An old file of one tensor `x` in a storage of four FP32 numbers, described by the opcodes of its offset,
/// shape and strides.
fn legacy(layout: &[u8]) -> Vec<u8> {
    let storage =
        b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x04tQ";
    let rest = b"\x89)tR";
    let values = [1f32, 2.0, 3.0, 4.0].map(f32::to_le_bytes).concat();
    [
        LEGACY,
        b"\x80\x02}X\x01\x00\x00\x00xctorch._utils\n_rebuild_tensor_v2\n(",
        storage,
        layout,
        rest,
        b"s.\x80\x02]X\x01\x00\x00\x000a.",
        &4u64.to_le_bytes(),
        &values,
    ]
    .concat()
}

#[test]
fn layouts_are_believed_as_far_as_the_storage_bears_them_out() {
    let tensors = tensors_of(folder(&legacy(b"K\x01K\x03\x85K\x01\x85")).path()).unwrap();
    assert_eq!(tensors.floats["x"], TensorData::new(vec![2f32, 3.0, 4.0], [3]));
    // No element at all, wherever it would be.
    let tensors = tensors_of(folder(&legacy(b"K\x09K\x00K\x03\x86K\x09K\x01\x86")).path()).unwrap();
    assert_eq!(tensors.floats["x"], TensorData::new(Vec::<f32>::new(), [0, 3]));

    let max = b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f";
    let many_axes = [&b"K\x00("[..], &b"K\x01".repeat(17), b"t(", &b"K\x01".repeat(17), b"t"].concat();
    for (layout, reason) in [
        (&b"K\x02K\x03\x85K\x01\x85"[..], "beyond its storage"),
        (b"K\x00K\x02\x85K\x04\x85", "beyond its storage"),
        (&[&b"K\x00K\x02\x85"[..], max, b"\x85"].concat(), "beyond its storage"),
        (&[&max[..], b"K\x01\x85K\x01\x85"].concat(), "beyond its storage"),
        (&[&b"K\x00"[..], max, max, b"\x86K\x00K\x00\x86"].concat(), "too large"),
        (&[&b"K\x00K\x00"[..], max, max, b"\x87K\x00K\x00K\x00\x87"].concat(), "too large"),
        // A terabyte of one element, again and again.
        (&[&b"K\x00J\xff\xff\xff\x7f"[..], b"\x85K\x00\x85"].concat(), "many times as large as the file"),
        (b"J\xff\xff\xff\xffK\x01\x85K\x01\x85", "not natural numbers"),
        (b"K\x00K\x01\x85J\xff\xff\xff\xff\x85", "not natural numbers"),
        (b"K\x00K\x01\x85K\x01K\x01\x86", "differ in length"),
        (&many_axes, "not natural numbers"),
    ] {
        let message = refused(&legacy(layout));
        assert!(message.contains("tensor `x`: ") && message.ends_with(reason), "{layout:?}: {message}");
    }
    let huge_storage = legacy(b"K\x00K\x01\x85K\x01\x85");
    let at = huge_storage.len() - 24;
    let huge_storage = [&huge_storage[..at], &[0xff; 8], &huge_storage[at + 8..]].concat();
    assert!(refused(&huge_storage).contains("cut short"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    /// Files that were whole once: whatever becomes of them, reading them ends, in tensors or an error.
    #[test]
    fn damaged_files_never_panic(
        case in prop::sample::select(&["zip", "zipped_again", "legacy", "protocol4"][..]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), change()), 1..6),
    ) {
        let mut bytes = bytes(case);
        for (at, change) in changes {
            change.apply(&mut bytes, at);
        }
        if let Err(error) = tensors_of(folder(&bytes).path()) {
            // `Weights`: what is left may have no tensor of floating-point numbers.
            let expected = matches!(
                error,
                ModelError::Torch { .. } | ModelError::Dtype { .. } | ModelError::Weights { .. }
            );
            prop_assert!(expected, "{}", error);
        }
    }
}

#[derive(Debug, Clone)]
enum Change {
    Set(u8),
    Word(u32),
    Insert(Vec<u8>),
    Remove(usize),
    Cut,
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>, at: prop::sample::Index) {
        if bytes.is_empty() {
            return;
        }
        let at = at.index(bytes.len());
        match self {
            Self::Set(byte) => bytes[at] = *byte,
            Self::Word(word) => {
                let end = bytes.len().min(at + 4);
                bytes[at..end].copy_from_slice(&word.to_le_bytes()[..end - at]);
            }
            Self::Insert(more) => _ = bytes.splice(at..at, more.iter().copied()),
            Self::Remove(n) => _ = bytes.drain(at..bytes.len().min(at + n)),
            Self::Cut => bytes.truncate(at),
        }
    }
}

fn change() -> impl Strategy<Value = Change> {
    let opcodes =
        prop::sample::select(&b"\x80\x95.(01N\x88\x89JKM\x8aGXT\x8cUcq\x94rhjQRbaeustd}])\x85\x86\x87"[..]);
    prop_oneof![
        4 => any::<u8>().prop_map(Change::Set),
        4 => opcodes.prop_map(Change::Set),
        2 => prop::sample::select(&[0, 1, u32::MAX, i32::MAX as u32, 0x0605_4b50, 1 << 16][..]).prop_map(Change::Word),
        1 => prop::collection::vec(any::<u8>(), 1..20).prop_map(Change::Insert),
        1 => (1usize..40).prop_map(Change::Remove),
        1 => Just(Change::Cut),
    ]
}
