//! Files of the package `gguf`: `tests/fixtures/gguf/export.py`.
#![allow(missing_docs, clippy::unwrap_used)]

use cloze_gguf::{Array, Contents, GgufFile, NewTensor, TensorInfo, TensorType, Value, write};
use std::fs;
use std::path::{Path, PathBuf};

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/gguf/blocks.gguf")
}

fn tensor<'a>(file: &'a GgufFile, name: &str) -> &'a TensorInfo {
    file.tensors().iter().find(|tensor| tensor.name == name).unwrap()
}

#[test]
fn metadata_of_all_types_is_read() {
    let file = GgufFile::open(&fixture()).unwrap();
    let text = |text: &str| Value::Text(text.into());
    for (key, expected) in [
        ("general.architecture", text("none")),
        ("test.u8", Value::U8(200)),
        ("test.i8", Value::I8(-100)),
        ("test.u16", Value::U16(60_000)),
        ("test.i16", Value::I16(-30_000)),
        ("test.u32", Value::U32(4_000_000_000)),
        ("test.i32", Value::I32(-2_000_000_000)),
        ("test.f32", Value::F32(1.5)),
        ("test.bool", Value::Bool(true)),
        ("test.text", text("a text with ▁ and é")),
        ("test.texts", Value::Array(Array::Text(["one", "", "▁three"].map(String::from).to_vec()))),
        ("test.numbers", Value::Array(Array::I32(vec![1, -2, 3]))),
        ("test.floats", Value::Array(Array::F32(vec![0.5, -1.25]))),
        ("test.u64", Value::U64(1 << 63)),
        ("test.i64", Value::I64(-(1 << 62))),
        ("test.f64", Value::F64(0.1)),
    ] {
        assert_eq!(file.get(key), Some(&expected), "{key}");
    }
    assert_eq!(file.text("test.text").unwrap(), Some("a text with ▁ and é"));
    assert_eq!((file.size("test.u8").unwrap(), file.size("nothing").unwrap()), (Some(200), None));
    let message = file.size("test.i8").unwrap_err().to_string();
    assert!(message.ends_with("blocks.gguf: `test.i8` is -100; expected a whole number"), "{message}");
}

#[test]
fn values_are_coded_and_decoded_bit_for_bit() {
    let file = GgufFile::open(&fixture()).unwrap();
    let values = file.values(tensor(&file, "values")).unwrap();
    assert_eq!((values.len(), &*tensor(&file, "values").shape), (576, &[6, 96][..]));
    for kind in [TensorType::F16, TensorType::Bf16, TensorType::Q8_0, TensorType::Q4_0] {
        let name = kind.name();
        let (found, bytes) = file.bytes(tensor(&file, name)).unwrap();
        assert_eq!(found, kind);
        let mut coded = Vec::new();
        kind.encode(&values, &mut coded);
        let n_wrong = coded.iter().zip(bytes).filter(|(a, b)| a != b).count();
        assert_eq!((coded.len(), n_wrong), (bytes.len(), 0), "{name}");
        let decoded: Vec<u32> = kind.decode(bytes).iter().map(|x| x.to_bits()).collect();
        let expected = file.values(tensor(&file, &format!("{name}.values"))).unwrap();
        assert_eq!(decoded, expected.iter().map(|x| x.to_bits()).collect::<Vec<_>>(), "{name}");
    }
}

#[test]
fn a_file_is_written_as_the_package_writes_it() {
    let file = GgufFile::open(&fixture()).unwrap();
    let tensors: Vec<NewTensor> = file
        .tensors()
        .iter()
        .map(|tensor| NewTensor {
            name: tensor.name.clone(),
            shape: tensor.shape.clone(),
            kind: tensor.kind().unwrap(),
            contents: {
                // Blocks are made of the values again: of decoded ones they might differ.
                let name = if tensor.name.contains('.') { &tensor.name } else { "values" };
                let values = file.values(self::tensor(&file, name)).unwrap();
                Contents::Values(Box::new(move || values.clone().into()))
            },
        })
        .collect();
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("again.gguf");
    write(&path, file.metadata(), &tensors).unwrap();
    assert!(fs::read(&path).unwrap() == fs::read(fixture()).unwrap());
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
}

#[test]
fn values_that_a_type_cannot_hold_are_refused_and_nothing_is_left() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("x.gguf");
    for (kind, value, expected) in [
        (TensorType::F16, 70_000.0, "x.gguf: tensor `a` has the value 70000 at 3, which F16 cannot hold"),
        (TensorType::Q4_0, 1e9, "x.gguf: tensor `a` has the value 1000000000 at 3, which Q4_0 cannot hold"),
        (TensorType::F32, f32::NAN, "x.gguf: tensor `a` has the value NaN at 3, expected finite values"),
    ] {
        let mut values = vec![0f32; 32];
        values[3] = value;
        let contents = Contents::Values(Box::new(move || values.clone().into()));
        let tensor = NewTensor { name: "a".into(), shape: vec![32], kind, contents };
        let message = write(&path, &[], &[tensor]).unwrap_err().to_string();
        assert!(message.ends_with(expected), "{message}");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
