//! Images: golden files of Pillow, and damaged files.
#![cfg(feature = "images")]
#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not count as tests")]

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use cloze_data::images::*;
use cloze_data::labelled::{LabelSet, LabelledSource, Labels, Loaded, OnBadRow, Target};
use cloze_data::{DataError, Random};
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

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

/// Writes files, with the folders that they are in.
fn write(folder: &Path, files: &[(&str, &[u8])]) {
    for (name, content) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

/// The names of files below a folder, with their classes.
fn names(loaded: &Loaded<ImageExample>, folder: &Path) -> Vec<(String, Target)> {
    let name = |example: &ImageExample| match &example.image {
        ImageSource::File(path) => path.strip_prefix(folder).unwrap().display().to_string(),
        other => panic!("{other:?}"),
    };
    loaded.examples.iter().map(|example| (name(example), example.target.clone())).collect()
}

#[test]
fn folders_are_classes() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    let png = file("rgb.png");
    let files = ["dog/b.png", "dog/a.PNG", "dog/more/c.jpg", "dog/.hidden.png", "dog/notes.txt", "cat/z.png"];
    write(folder, &files.map(|name| (name, &png[..])));
    write(folder, &[(".git/x.png", &png), ("top.png", &png)]);
    let (loaded, set) = image_folder(folder, Labels::Found).unwrap();
    let set = set.unwrap();
    assert_eq!(set.names(), ["cat", "dog"]);
    let (cat, dog) = (Target::Class(0), Target::Class(1));
    let expected = [("cat/z.png", &cat), ("dog/a.PNG", &dog), ("dog/b.png", &dog), ("dog/more/c.jpg", &dog)];
    assert_eq!(names(&loaded, folder), expected.map(|(name, class)| (name.to_owned(), class.clone())));
    assert_eq!(loaded.skipped.to_string(), "1 × file without an image's extension");
    // A PNG called `.jpg` is a PNG.
    let limits = DecodeLimits::default();
    assert_eq!(loaded.examples[3].image.decode(&limits).unwrap(), decode_image(&png, &limits).unwrap());

    let (unread, none) = image_folder(folder, Labels::Unread).unwrap();
    assert_eq!((unread.examples.len(), none), (5, None));
    let other = LabelSet::given(["fox", "dog", "cat"]).unwrap();
    let (loaded, _) = image_folder(folder, Labels::Of(&other)).unwrap();
    assert_eq!(loaded.examples[0].target, Target::Class(1));

    let message = |labels| image_folder(folder, labels).unwrap_err().to_string();
    let fewer = LabelSet::given(["cat", "fox"]).unwrap();
    let expected =
        format!("{}: the folder is no class; expected one of cat, fox", folder.join("dog").display());
    assert_eq!(message(Labels::Of(&fewer)), expected);
    write(folder, &[("eel/notes.txt", b"none")]);
    let expected = "eel: the class `eel` has no image; add some, or remove the folder";
    assert!(message(Labels::Found).ends_with(expected));
    let flat = image_folder(&folder.join("cat"), Labels::Found).unwrap_err().to_string();
    assert!(
        flat.ends_with("cat: there is no folder in it; expected a folder of images for each class"),
        "{flat}"
    );
    let empty = image_folder(&folder.join("eel"), Labels::Unread).unwrap_err().to_string();
    assert!(empty.ends_with("eel: there is no image in the folder"), "{empty}");
    assert!(matches!(image_folder(&folder.join("ox"), Labels::Found), Err(DataError::Io { .. })));
}

#[cfg(unix)]
#[test]
fn links_that_loop_are_not_followed() {
    let temporary = tempfile::tempdir().unwrap();
    let (folder, png) = (temporary.path(), file("rgb.png"));
    write(folder, &[("cat/a.png", &png), ("dog/b.png", &png)]);
    let link = |to: &str, name: &str| std::os::unix::fs::symlink(folder.join(to), folder.join(name)).unwrap();
    link("", "self");
    link("", "cat/up");
    link("cat", "cat/again");
    link("dog/b.png", "cat/linked.png");
    let (loaded, set) = image_folder(folder, Labels::Found).unwrap();
    assert_eq!(set.unwrap().names(), ["cat", "dog"]);
    let found: Vec<String> = names(&loaded, folder).into_iter().map(|(name, _)| name).collect();
    assert_eq!(found, ["cat/a.png", "cat/linked.png", "dog/b.png"]);
    assert_eq!(image_folder(folder, Labels::Unread).unwrap().0.examples.len(), 3);
}

/// An IDX file of bytes.
fn idx(sizes: &[u32], values: &[u8]) -> Vec<u8> {
    let sizes_of = sizes.iter().flat_map(|size| size.to_be_bytes());
    [0, 0, 8, sizes.len() as u8].into_iter().chain(sizes_of).chain(values.iter().copied()).collect()
}

#[test]
fn idx_files_are_pairs() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    let values: Vec<u8> = (0..12).collect();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&idx(&[2, 2, 3], &values)).unwrap();
    write(folder, &[("images.gz", &gzip.finish().unwrap()), ("classes", &idx(&[2], &[10, 9]))]);
    let (loaded, set) = digits(&folder.join("images.gz"), &folder.join("classes"), Labels::Found).unwrap();
    assert_eq!(set.unwrap().names(), ["9", "10"]);
    let limits = DecodeLimits::default();
    assert_eq!(loaded.examples[0].target, Target::Class(1));
    assert_eq!(loaded.examples[1].image.decode(&limits).unwrap(), Image::from_grey(3, 2, &values[6..]));

    let message = |images: &[u8], classes: &[u8], labels| {
        write(folder, &[("i", images), ("c", classes)]);
        let error = digits(&folder.join("i"), &folder.join("c"), labels).unwrap_err().to_string();
        error.strip_prefix(&format!("{}/", folder.display())).unwrap().to_owned()
    };
    let (images, classes) = (idx(&[2, 2, 3], &values), idx(&[2], &[1, 0]));
    assert_eq!(
        message(&classes, &classes, Labels::Found),
        "i: not an IDX file of bytes in 3 dimensions: it begins with [00, 00, 08, 01], expected [00, 00, 08, 03]"
    );
    assert_eq!(message(b"", &classes, Labels::Found).matches("begins with []").count(), 1);
    assert_eq!(message(&images[..9], &classes, Labels::Found), "i: cut off: it has 9 bytes, expected 16");
    assert_eq!(message(&images[..20], &classes, Labels::Found), "i: cut off: it has 20 bytes, expected 28");
    let long = [&images[..], &[1]].concat();
    assert_eq!(message(&long, &classes, Labels::Found), "i: it goes on after 12 bytes of [2, 2, 3]");
    let huge = message(&idx(&[u32::MAX; 3], &[]), &classes, Labels::Found);
    assert!(huge.contains("at most 4294967296 bytes are read"), "{huge}");
    assert!(message(&images, &idx(&[1], &[1]), Labels::Found).starts_with("c: it has 1 classes, but "));
    assert!(message(&idx(&[2, 0, 3], &[]), &classes, Labels::Found).contains("2 images of 0 × 3 pixels"));
    let set = LabelSet::given(["1", "2"]).unwrap();
    assert_eq!(message(&images, &classes, Labels::Of(&set)), "c: class 0 of image 2; expected one of 1, 2");
}

#[test]
fn rows_have_paths_or_bytes() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    let (png, jpeg) = (file("rgb.png"), file("rgb.jpg"));
    let encoded = BASE64_STANDARD.encode(&png);
    let jsonl = [
        json!({"image": "pictures/a.png", "label": "b"}),
        json!({"image": {"path": "pictures/a.png", "bytes": null}, "label": "a"}),
        json!({"image": {"bytes": encoded}, "label": "b"}),
        json!({"image": format!("data:image/png;base64,{encoded}"), "label": "b"}),
    ];
    let jsonl = jsonl.map(|row| format!("{row}\n")).concat();
    let csv = format!("file,kind\npictures/a.png,b\n\"data:image/png;base64,{encoded}\",a\n");
    write(
        folder,
        &[("t/pictures/a.png", &png), ("t/rows.jsonl", jsonl.as_bytes()), ("t/rows.csv", csv.as_bytes())],
    );
    // Hugging Face's form, and plain bytes.
    for (name, column, path) in [
        (
            "t/struct.parquet",
            "OPTIONAL group image { OPTIONAL BYTE_ARRAY bytes; OPTIONAL BYTE_ARRAY path (STRING); }",
            true,
        ),
        ("t/plain.parquet", "REQUIRED BYTE_ARRAY image;", false),
    ] {
        let schema = parse_message_type(&format!("message m {{ {column} REQUIRED INT32 label; }}")).unwrap();
        let mut writer = SerializedFileWriter::new(
            File::create(folder.join(name)).unwrap(),
            Arc::new(schema),
            Arc::default(),
        )
        .unwrap();
        let mut group = writer.next_row_group().unwrap();
        let levels = path.then_some(&[2i16, 2][..]);
        let mut column = group.next_column().unwrap().unwrap();
        let images = [png.clone(), jpeg.clone()].map(ByteArray::from);
        column.typed::<ByteArrayType>().write_batch(&images, levels, None).unwrap();
        column.close().unwrap();
        if path {
            let mut column = group.next_column().unwrap().unwrap();
            let paths = ["a.png", "b.jpg"].map(ByteArray::from);
            column.typed::<ByteArrayType>().write_batch(&paths, levels, None).unwrap();
            column.close().unwrap();
        }
        let mut column = group.next_column().unwrap().unwrap();
        column.typed::<Int32Type>().write_batch(&[7, 5], None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
        writer.close().unwrap();
    }
    let limits = DecodeLimits::default();
    let (png, jpeg) = (decode_image(&png, &limits).unwrap(), decode_image(&jpeg, &limits).unwrap());
    let read = |settings: Value| {
        let source: LabelledSource = serde_json::from_value(settings).unwrap();
        let (loaded, set) = image_rows(&source, folder, Labels::Found).unwrap();
        let images = loaded.examples.iter().map(|example| example.image.decode(&limits).unwrap());
        let classes = loaded.examples.iter().map(|example| match example.target {
            Target::Class(class) => set.as_ref().unwrap().name(class).unwrap().to_owned(),
            ref other => panic!("{other:?}"),
        });
        images.zip(classes).collect::<Vec<_>>()
    };
    let expected = |rows: &[(&Image, &str)]| -> Vec<(Image, String)> {
        rows.iter().map(|(image, class)| ((*image).clone(), (*class).to_owned())).collect()
    };
    let of_text = expected(&[(&png, "b"), (&png, "a"), (&png, "b"), (&png, "b")]);
    assert_eq!(read(json!({"files": ["t/rows.jsonl"]})), of_text);
    let columns = json!({"image": "file", "label": "kind"});
    assert_eq!(read(json!({"files": ["t/rows.csv"], "columns": columns})), of_text[..2]);
    for name in ["t/struct.parquet", "t/plain.parquet"] {
        assert_eq!(read(json!({"files": [name]})), expected(&[(&png, "7"), (&jpeg, "5")]), "{name}");
    }
    let source = LabelledSource::new(["t/plain.parquet"]);
    let (unread, none) = image_rows(&source, folder, Labels::Unread).unwrap();
    assert_eq!((unread.examples[1].target.clone(), none), (Target::None, None));
    let place = format!("ImageSource({}:2)", folder.join("t/plain.parquet").display());
    assert_eq!(format!("{:?}", unread.examples[1].image), place);
}

#[test]
fn rows_without_an_image_are_named_or_skipped() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    for (row, expected) in [
        (r#"{"image": "no.png"}"#, "there is no file "),
        (r#"{"image": " "}"#, "empty, expected a path"),
        (r#"{"image": 3}"#, "a number, expected a path, or an image's bytes"),
        (r#"{"image": null}"#, "null, expected a path"),
        (r#"{"image": {"path": null}}"#, "an object without `bytes` in base64 and without `path`"),
        (r#"{"image": {"bytes": "?"}}"#, "not base64: "),
        (r#"{"image": "data:image/png,x"}"#, "a data URI without `;base64,`"),
    ] {
        write(folder, &[("a.jsonl", format!("{row}\n").as_bytes())]);
        let source = LabelledSource::new(["a.jsonl"]);
        let error = image_rows(&source, folder, Labels::Unread).unwrap_err().to_string();
        let start = format!("{}:1: column `image`: {expected}", folder.join("a.jsonl").display());
        assert!(error.starts_with(&start), "{error}");
    }
    let source: LabelledSource =
        serde_json::from_value(json!({"files": ["a.jsonl"], "columns": {"text": "x"}})).unwrap();
    let error = image_rows(&source, folder, Labels::Unread).unwrap_err().to_string();
    assert!(error.contains("no such field; expected one of image, label"), "{error}");
}

#[test]
fn bad_images_are_named_or_skipped() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path();
    let (png, jpeg) = (file("rgb.png"), file("rgb.jpg"));
    let half = &jpeg[..jpeg.len() / 2];
    write(
        folder,
        &[("a/1.png", &png), ("a/2.jpg", half), ("b/1.jpg", b"text"), ("b/2.jpg", &jpeg), ("b/3.png", b"")],
    );
    let read = || image_folder(folder, Labels::Found).unwrap().0;
    let limits = DecodeLimits::default();
    let error = without_bad_images(read(), &limits, OnBadRow::Error).unwrap_err().to_string();
    let expected =
        format!("{}: the JPEG is cut off: it ends before the image does", folder.join("a/2.jpg").display());
    assert_eq!(error, expected);
    let kept = without_bad_images(read(), &limits, OnBadRow::Skip).unwrap();
    let found: Vec<String> = names(&kept, folder).into_iter().map(|(name, _)| name).collect();
    assert_eq!(found, ["a/1.png", "b/2.jpg"]);
    assert_eq!(kept.skipped.to_string(), "1 × cut image, 1 × empty image, 1 × file without an image");
    let none = DecodeLimits { max_pixels: 1, ..limits };
    let error = without_bad_images(read(), &none, OnBadRow::Skip).unwrap_err().to_string();
    assert!(error.contains("a/1.png: the image has 7 × 5 pixels"), "{error}");
}

#[test]
fn cifar_10_is_read_from_its_parquet() {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    if !shared.join("cifar10").is_dir() {
        println!("skipped: no shared/data beside the repository");
        return;
    }
    let settings = json!({"files": ["cifar10/test.parquet"], "columns": {"image": "img"}});
    let source: LabelledSource = serde_json::from_value(settings).unwrap();
    let (loaded, set) = image_rows(&source, &shared, Labels::Found).unwrap();
    assert_eq!((loaded.examples.len(), set.unwrap().len()), (10_000, 10));
    let kept = without_bad_images(loaded, &DecodeLimits::default(), OnBadRow::Error).unwrap();
    let first = kept.examples[0].image.decode(&DecodeLimits::default()).unwrap();
    assert_eq!((first.width(), first.height()), (32, 32));
}

/// Operations equal Pillow's, byte for byte.
#[test]
fn operations_equal_pillow() {
    use ImageOperation::*;
    let golden = golden("operations.json");
    let mut n = 0;
    for case in list(&golden) {
        let original = image(case);
        for result in list(&case["results"]) {
            let (name, argument) =
                (result["operation"].as_str().unwrap(), result["argument"].as_f64().unwrap());
            let operation = match name {
                "brightness" => Brightness(argument),
                "contrast" => Contrast(argument),
                "saturation" => Saturation(argument),
                "sharpness" => Sharpness(argument),
                "hue" => Hue(argument),
                "posterize" => Posterize(argument as u32),
                "solarize" => Solarize(argument),
                "auto_contrast" => AutoContrast,
                "equalize" => Equalize,
                "shear_x" => ShearX(argument),
                "shear_y" => ShearY(argument),
                "translate_x" => TranslateX(argument as i32),
                "translate_y" => TranslateY(argument as i32),
                "rotate" => Rotate(argument),
                other => panic!("{other}"),
            };
            let (most, mean) = difference(&operation.apply(&original), &image(result));
            assert_eq!(most, 0, "{operation:?} of {original:?}: {mean} on average");
            n += 1;
        }
    }
    assert_eq!(n, 3 * 49);
}

/// All changes, often.
fn augmentation() -> AugmentConfig {
    let config = json!({
        "crop": {"kind": "resized", "scale": [0.2, 1.0]}, "flip": 0.5,
        "jitter": {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1, "grey": 0.2},
        "rand_augment": {}, "erasing": {"probability": 0.8},
    });
    serde_json::from_value(config).unwrap()
}

#[test]
fn changes_are_functions_of_seed_epoch_and_example() {
    use rayon::prelude::*;
    let config = augmentation();
    config.check().unwrap();
    let preprocessing = Preprocessing::from_json(r#"{"size": {"height": 24, "width": 20}}"#).unwrap();
    let mut random = Random::new(1);
    let original = Image::from_fn(33, 29, |x, y| [(7 * x) as u8, (8 * y) as u8, random.next_u64() as u8]);
    let changed = |seed, epoch, example, view| {
        config.apply(&original, &preprocessing, DrawKey { seed, epoch, example, view }).unwrap()
    };
    let alone: Vec<Image> = (0..200).map(|example| changed(5, 2, example, 0)).collect();
    assert!(alone.iter().all(|image| (image.width(), image.height()) == (20, 24)));
    for workers in [1, 2, 5] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(workers).build().unwrap();
        let together: Vec<Image> =
            pool.install(|| (0..200u64).into_par_iter().map(|example| changed(5, 2, example, 0)).collect());
        assert_eq!(together, alone);
    }
    // Each part of the key matters, and hardly two images are the same.
    for other in [changed(6, 2, 0, 0), changed(5, 3, 0, 0), changed(5, 2, 0, 1)] {
        assert_ne!(other, alone[0]);
    }
    let distinct: std::collections::HashSet<&Image> = alone.iter().collect();
    assert!(distinct.len() > 195, "{} distinct images of 200", distinct.len());
    let none = AugmentConfig::default().apply(&original, &preprocessing, DrawKey::default()).unwrap();
    assert_eq!(none, preprocessing.fit(&original).unwrap());
}

/// A change's random numbers do not depend on the other changes.
#[test]
fn changes_do_not_disturb_one_another() {
    let preprocessing = Preprocessing::from_json(r#"{"size": 9}"#).unwrap();
    let original = Image::from_fn(9, 9, |x, y| [x as u8, y as u8, 200]);
    let flip = AugmentConfig { flip: 0.5, ..AugmentConfig::default() };
    let both = AugmentConfig { crop: Some(CropConfig::Padded { padding: 0 }), ..flip.clone() };
    let mut flipped = 0;
    for example in 0..1_000 {
        let key = DrawKey { seed: 3, example, ..DrawKey::default() };
        let image = flip.apply(&original, &preprocessing, key).unwrap();
        assert_eq!(image, both.apply(&original, &preprocessing, key).unwrap());
        flipped += u32::from(image == original.flipped());
    }
    // Five standard deviations of a binomial around 500.
    assert!(flipped.abs_diff(500) < 79, "{flipped} of 1000 are mirrored");
}

#[test]
fn crops_and_erased_parts_have_their_sizes() {
    let preprocessing = Preprocessing::from_json(r#"{"do_resize": false}"#).unwrap();
    let key = |example| DrawKey { seed: 3, example, ..DrawKey::default() };
    let white = Image::filled(40, 30, [255; 3]);
    // Moved by up to 4 pixels along each side, each as often.
    let padded = AugmentConfig { crop: Some(CropConfig::Padded { padding: 4 }), ..AugmentConfig::default() };
    let mut lefts = [0u32; 9];
    for example in 0..9_000 {
        let image = padded.apply(&white, &preprocessing, key(example)).unwrap();
        let is_black = |x: &usize| image.pixel(*x, 15) == [0; 3];
        let (left, right) =
            ((0..40).take_while(is_black).count(), (0..40).rev().take_while(is_black).count());
        assert!(left <= 4 && right <= 4 && left.min(right) == 0);
        lefts[4 + left - right] += 1;
    }
    // Five standard deviations of a binomial around 1,000.
    assert!(lefts.iter().all(|n| n.abs_diff(1_000) < 150), "{lefts:?}");

    let config = ErasingConfig {
        probability: 0.25,
        scale: [0.1, 0.2],
        colour: Some([0; 3]),
        ..ErasingConfig::default()
    };
    let erasing = AugmentConfig { erasing: Some(config), ..AugmentConfig::default() };
    let mut erased = 0;
    for example in 0..2_000 {
        let image = erasing.apply(&white, &preprocessing, key(example)).unwrap();
        let n = image.pixels().chunks_exact(3).filter(|pixel| **pixel == [0; 3]).count();
        // Sides are rounded.
        assert!(n == 0 || (95..280).contains(&n), "{n} of 1200 pixels");
        erased += u32::from(n > 0);
    }
    assert!(erased.abs_diff(500) < 97, "{erased} of 2000 are erased");
    // Parts fit into images of any shape.
    for (width, height) in [(1, 1), (1, 50), (50, 1), (2, 3)] {
        let image = Image::filled(width, height, [9; 3]);
        let preprocessing = Preprocessing::from_json(r#"{"size": 8}"#).unwrap();
        for example in 0..50 {
            let image = augmentation().apply(&image, &preprocessing, key(example)).unwrap();
            assert_eq!((image.width(), image.height()), (8, 8));
        }
    }
}

#[test]
fn mixed_inputs_keep_their_shares() {
    let input = |value| PixelValues { height: 10, width: 12, values: vec![value; 360] };
    let mean = |input: &PixelValues| input.values.iter().sum::<f32>() / 360.0;
    let mut partners = [0u32; 5];
    let (mut cut, mut unmixed) = (0, 0);
    let config: MixConfig =
        serde_json::from_value(json!({"mixup_alpha": 0.8, "cutmix_alpha": 1.0, "probability": 0.8})).unwrap();
    config.check().unwrap();
    for example in 0..5_000 {
        let key = DrawKey { seed: 11, epoch: 1, example, view: 0 };
        let Some(mixing) = config.draw(key, 5) else {
            unmixed += 1;
            continue;
        };
        assert_eq!(config.draw(key, 5), Some(mixing));
        partners[mixing.partner as usize] += 1;
        let mut mixed = input(1.0);
        let share = mixing.apply(&mut mixed, &input(0.0));
        // The label's weight is the input's.
        assert!((0.0..=1.0).contains(&share) && (mean(&mixed) - share).abs() < 1e-5, "{share}");
        cut += u32::from(mixed.values.iter().all(|value| *value == 0.0 || *value == 1.0));
    }
    // Five standard deviations of binomials.
    assert!(u32::abs_diff(unmixed, 1_000) < 142, "{unmixed} of 5000 are not mixed");
    assert!(cut.abs_diff(2_000) < 200, "{cut} of 4000 are cut");
    assert!(partners.iter().all(|n| n.abs_diff(800) < 150), "{partners:?}");
    assert_eq!(MixConfig::default().draw(DrawKey::default(), 5), None);
    assert_eq!(config.draw(DrawKey::default(), 0), None);
}

#[test]
fn settings_of_changes_out_of_range_are_named() {
    let message = |config: Value| {
        serde_json::from_value::<AugmentConfig>(config).unwrap().check().unwrap_err().to_string()
    };
    assert_eq!(
        message(json!({"flip": 1.5})),
        "`flip` of the augmentation is 1.5; expected a probability from 0 to 1"
    );
    for (config, key) in [
        (json!({"crop": {"kind": "resized", "scale": [0.0, 1.0]}}), "crop.scale"),
        (json!({"crop": {"kind": "resized", "ratio": [2.0, 1.0]}}), "crop.ratio"),
        (json!({"crop": {"kind": "padded", "padding": 9999}}), "crop.padding"),
        (json!({"jitter": {"contrast": -1.0}}), "jitter.contrast"),
        (json!({"jitter": {"hue": 0.6}}), "jitter.hue"),
        (json!({"rand_augment": {"magnitude": 31}}), "rand_augment.magnitude"),
        (json!({"rand_augment": {"n_operations": 0}}), "rand_augment.n_operations"),
        (json!({"erasing": {"scale": [0.5, 2.0]}}), "erasing.scale"),
    ] {
        assert!(message(config).starts_with(&format!("`{key}` of the augmentation is ")), "{key}");
    }
    assert!(serde_json::from_value::<AugmentConfig>(json!({"flips": 1.0})).is_err());
    let mix = MixConfig { mixup_alpha: f64::NAN, ..MixConfig::default() };
    assert!(mix.check().unwrap_err().to_string().starts_with("`mix.mixup_alpha`"));
}
