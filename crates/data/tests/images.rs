//! Images: golden files of Pillow and transformers, damaged files, sources, and random changes.
#![cfg(feature = "images")]
#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not count as tests")]

use cloze_data::images::*;
use cloze_data::{DataError, Random};
use serde_json::Value;
use std::fs;
use std::path::Path;

fn golden(name: &str) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/images");
    serde_json::from_slice(&fs::read(folder.join(name)).unwrap()).unwrap()
}

fn bytes(hex: &Value) -> Vec<u8> {
    let hex = hex.as_str().unwrap();
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn number(value: &Value) -> usize {
    value.as_u64().unwrap() as usize
}

fn image(case: &Value) -> Image {
    Image::new(number(&case["width"]), number(&case["height"]), bytes(&case["pixels"]))
}

/// The largest difference of a value, and the mean.
fn difference(a: &Image, b: &Image) -> (u8, f64) {
    assert_eq!((a.width(), a.height()), (b.width(), b.height()));
    let differences: Vec<u8> = a.pixels().iter().zip(b.pixels()).map(|(a, b)| a.abs_diff(*b)).collect();
    let sum: f64 = differences.iter().copied().map(f64::from).sum();
    (differences.iter().copied().max().unwrap(), sum / differences.len() as f64)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

/// Pixels equal Pillow's, see `tests/fixtures/images/export.py`. Lossy formats leave the last bits to the decoder.
#[test]
fn files_decode_as_with_pillow() {
    let golden = golden("golden.json");
    for case in list(&golden["decoded"]) {
        let name = case["name"].as_str().unwrap();
        let decoded = decode_image(&bytes(&case["file"]), &DecodeLimits::default())
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let (most, mean) = difference(&decoded, &image(case));
        match name.ends_with(".jpg") || name == "lossy.webp" {
            true => assert!(most <= 4 && mean < 0.5, "{name}: {most}, {mean} on average"),
            false => assert_eq!(most, 0, "{name}"),
        }
    }
    assert_eq!(list(&golden["decoded"]).len(), 33);
}

/// Byte for byte.
#[test]
fn resizing_equals_pillow() {
    let golden = golden("golden.json");
    let mut n = 0;
    for case in list(&golden["resized"]) {
        let original = image(case);
        for result in list(&case["results"]) {
            let filter: Filter = serde_json::from_value(result["filter"].clone()).unwrap();
            let expected = image(result);
            let found = resize(&original, expected.width(), expected.height(), filter);
            assert_eq!(difference(&found, &expected).0, 0, "{original:?} to {expected:?} by {filter:?}");
            n += 1;
        }
    }
    assert_eq!(n, 39);
}

/// The golden file of this name.
fn file(name: &str) -> Vec<u8> {
    let golden = golden("golden.json");
    bytes(&list(&golden["decoded"]).iter().find(|case| case["name"] == name).unwrap()["file"])
}

fn message(bytes: &[u8]) -> String {
    decode_image(bytes, &DecodeLimits::default()).unwrap_err().to_string()
}

#[test]
fn what_is_no_image_is_named() {
    assert_eq!(message(b""), "the image is empty");
    let expected = "; expected PNG, JPEG, GIF, WebP or BMP";
    assert_eq!(
        message(b"Not a picture\nat all"),
        format!("it is not an image: it begins with the text \"Not a picture\\nat\"{expected}")
    );
    assert_eq!(message(b"BM"), message(b"BM").lines().collect::<String>());
    assert!(message(b"BMW builds cars").starts_with("it is not an image"));
    assert_eq!(message(&[0, 1]), format!("it is not an image: it begins with the bytes 00 01{expected}"));
    assert!(message(b"II*\0rest").starts_with("images in TIFF cannot be read; convert it"));
    assert!(message(b"\0\0\0\x18ftypheic").starts_with("images in HEIC cannot be read"));
    // The file's name is in front.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.jpg");
    fs::write(&path, "text").unwrap();
    let error = read_image(&path, &DecodeLimits::default()).unwrap_err().to_string();
    assert!(error.starts_with(&format!("{}: it is not an image", path.display())), "{error}");
    let missing = read_image(&folder.path().join("b.jpg"), &DecodeLimits::default()).unwrap_err();
    assert!(matches!(missing, DataError::Io { action: "read", .. }));
    fs::write(&path, file("rgb.png")).unwrap();
    let short = DecodeLimits { max_bytes: 20, ..DecodeLimits::default() };
    let error = read_image(&path, &short).unwrap_err().to_string();
    assert!(error.contains(" bytes, but at most 20 are read"), "{error}");
    assert!(read_image(&path, &DecodeLimits::default()).is_ok());
}

/// A PNG that declares 60,000 × 60,000 pixels; the checksum of its header is right.
#[test]
fn a_declared_size_is_refused_before_memory_is_taken() {
    let mut png = file("rgb.png");
    png[16..24].copy_from_slice(&[0, 0, 0xEA, 0x60, 0, 0, 0xEA, 0x60]);
    let checksum = crc(&png[12..29]).to_be_bytes();
    png[29..33].copy_from_slice(&checksum);
    assert_eq!(
        message(&png),
        "the image has 60000 × 60000 pixels, but at most 10000 in a row or column and 64000000 in total are read; make it \
         smaller, or raise the limits"
    );
    let small = DecodeLimits { max_pixels: 34, ..DecodeLimits::default() };
    for name in ["rgb.png", "rgb.bmp", "lossless.webp", "animated.gif", "rgb.jpg"] {
        let error = decode_image(&file(name), &small).unwrap_err();
        assert!(matches!(error, ImageError::TooLarge { .. }), "{name}: {error}");
    }
}

/// The checksum of PNG.
fn crc(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { (crc >> 1) ^ 0xEDB8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0u32, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}

#[test]
fn cut_files_are_named() {
    for name in
        ["rgb.png", "rgb.bmp", "lossless.webp", "lossy.webp", "animated.gif", "rgb.jpg", "progressive.jpg"]
    {
        let whole = file(name);
        // The last bytes of a file need not be pixels; of an animation, the second half is another frame.
        let end = if name == "animated.gif" { whole.len() / 2 } else { whole.len() * 9 / 10 };
        for n in 1..end {
            let error = decode_image(&whole[..n], &DecodeLimits::default());
            let error = error.expect_err(&format!("{name} of {n} bytes")).to_string();
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }
    let cut = |name: &str| {
        let whole = file(name);
        decode_image(&whole[..whole.len() * 4 / 5], &DecodeLimits::default()).unwrap_err()
    };
    for (name, format) in [("rgb.jpg", "JPEG"), ("rgb.png", "PNG"), ("rgb.bmp", "BMP")] {
        assert_eq!(cut(name), ImageError::Cut { format }, "{name}");
    }
}

#[test]
fn cmyk_without_a_known_sense_is_refused() {
    let mut jpeg = file("cmyk.jpg");
    let at = jpeg.windows(5).position(|bytes| bytes == b"Adobe").unwrap();
    jpeg[at] = b'X';
    assert_eq!(
        message(&jpeg),
        "a JPEG in CMYK without Adobe's marker has no agreed RGB colours; convert it to RGB"
    );
}

/// Every outcome is an image or an error of one line: nothing panics.
#[test]
fn spoilt_files_do_not_panic() {
    let golden = golden("golden.json");
    let (mut random, mut decoded, mut refused) = (Random::new(54), 0, 0);
    let limits = DecodeLimits { max_pixels: 1 << 20, ..DecodeLimits::default() };
    for case in list(&golden["decoded"]) {
        let whole = bytes(&case["file"]);
        for _ in 0..200 {
            let mut spoilt = whole.clone();
            for _ in 0..1 + random.below(4) {
                let at = random.below(spoilt.len() as u64) as usize;
                match random.below(4) {
                    0 => spoilt[at] = random.next_u64() as u8,
                    1 => spoilt[at] ^= 1 << random.below(8),
                    2 => drop(spoilt.remove(at)),
                    _ => spoilt.insert(at, [0, 0xFF][random.below(2) as usize]),
                }
            }
            match decode_image(&spoilt, &limits) {
                Ok(_) => decoded += 1,
                Err(error) => {
                    refused += 1;
                    assert_eq!(error.to_string().lines().count(), 1, "{error}");
                }
            }
        }
    }
    assert!(decoded > 1_000 && refused > 1_000, "{decoded} decoded, {refused} refused");
}

/// Inputs equal those of transformers' processors, and a config that is written again is the same.
#[test]
fn preprocessing_equals_transformers() {
    for (version, n) in [("4.57.6", 8), ("5.24.0", 10)] {
        let golden = golden(&format!("processors-{version}.json"));
        assert_eq!(list(&golden).len(), n);
        for case in list(&golden) {
            let preprocessing = Preprocessing::from_json(&case["config"].to_string()).unwrap();
            let written = Preprocessing::from_json(&preprocessing.to_json()).unwrap();
            assert_eq!(written, preprocessing);
            for (original, input) in list(&case["images"]).iter().zip(list(&case["inputs"])) {
                let found = preprocessing.apply(&image(original)).unwrap();
                let shape: Vec<usize> = list(&input["shape"]).iter().map(number).collect();
                assert_eq!(shape, [3, found.height, found.width], "{version} {}", case["name"]);
                assert_eq!(found.values.len(), list(&input["values"]).len());
                for (value, expected) in found.values.iter().zip(list(&input["values"])) {
                    let difference = (f64::from(*value) - expected.as_f64().unwrap()).abs();
                    assert!(
                        difference <= 1e-5 * f64::from(value.abs().max(1.0)),
                        "{version} {}",
                        case["name"]
                    );
                }
            }
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("preprocessor_config.json");
    let preprocessing = Preprocessing::from_json(r#"{"size": 4, "image_mean": 0.485}"#).unwrap();
    preprocessing.write(&path).unwrap();
    assert_eq!(Preprocessing::read(&path).unwrap(), preprocessing);
    assert!(fs::read_to_string(&path).unwrap().contains("0.485,"));
}
