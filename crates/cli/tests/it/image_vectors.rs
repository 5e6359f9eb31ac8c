//! Vectors of images: `cloze embed --images`, and the index and map of them.

use crate::ran::Ran;
use crate::workplace::bitmap;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use burn::tensor::Device;
use cloze_data::images::{ImageData, ImageExample, ImageSource, Preprocessing};
use cloze_data::labelled::Target;
use cloze_model::ParamInit;
use cloze_model::huggingface::{FloatType, save_published};
use cloze_model::vision::{ImageClassifierConfig, ImageEncoder, ImagePooling, Vit, VitConfig};
use cloze_trainer::images::pixels;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Features of the models' vectors.
pub const WIDTH: usize = 16;

/// The encoder of [`place`]'s model `model`.
pub fn vit() -> (VitConfig, Vit) {
    let config = VitConfig::new(16, 8, 2, WIDTH).with_n_heads(4).with_init_std(0.3);
    let model = config.init(&mut ParamInit::new(&Device::flex(), 1));
    (config, model)
}

/// A folder with models and images: `photos` has four, one of them in a folder of its own, and a file that is none.
pub fn place() -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    let (config, model) = vit();
    let folder = |name: &str| place.path().join(name);
    save_published(&folder("model"), &model, &config, FloatType::F32).unwrap();
    let mean = config.with_class_piece(false).with_pooling(ImagePooling::Mean);
    let other = mean.init(&mut ParamInit::new(&Device::flex(), 2));
    save_published(&folder("mean"), &other, &mean, FloatType::F32).unwrap();
    fs::create_dir_all(folder("photos/deep")).unwrap();
    for (number, name) in NAMES.iter().enumerate() {
        fs::write(folder(name), bitmap(number)).unwrap();
    }
    fs::write(folder("photos/notes.txt"), "none").unwrap();
    fs::write(folder("cut.bmp"), &bitmap(0)[..100]).unwrap();
    place
}

/// In the order in which the folder is read.
const NAMES: [&str; 4] = ["photos/a.bmp", "photos/b.bmp", "photos/deep/c.bmp", "photos/z.bmp"];

fn cloze(place: &Path, args: &[&str], input: &str) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cloze"));
    let file = place.join("stdin");
    fs::write(&file, input).unwrap();
    command.args(args).current_dir(place).stdin(Stdio::from(fs::File::open(&file).unwrap()));
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { status: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
}

fn lines(out: &str) -> Vec<Value> {
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn vector(line: &Value) -> Vec<f32> {
    serde_json::from_value(line["embedding"].clone()).unwrap()
}

pub fn uri(number: usize) -> String {
    format!("data:image/bmp;base64,{}", BASE64_STANDARD.encode(bitmap(number)))
}

/// The vectors of the images, by hand.
pub fn expected(place: &Path) -> Vec<Vec<f32>> {
    let example =
        |name: &&str| ImageExample { image: ImageSource::File(place.join(name)), target: Target::None };
    let data =
        ImageData::new(NAMES.iter().map(example).collect(), Preprocessing::to_size(16, 16), 0).unwrap();
    let batch = data.in_order(0..4).unwrap();
    let found = vit().1.forward(pixels(&batch, &Device::flex())).states.narrow(1, 0, 1).into_data();
    found.iter::<f32>().collect::<Vec<f32>>().chunks(WIDTH).map(<[f32]>::to_vec).collect()
}

#[track_caller]
pub fn close(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len());
    assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-4), "{found:?}, {expected:?}");
}

#[test]
fn images_of_paths_and_rows_get_the_state_of_the_class_piece() {
    let place = place();
    let embed = |more: &[&str], input: &str| {
        cloze(place.path(), &[&["embed", "--model", "model", "--images"], more].concat(), input)
    };
    let ran = embed(&["photos"], "");
    assert!(
        ran.err.contains("--images: skipped 1") && ran.err.contains("without an image's extension"),
        "{}",
        ran.err
    );
    let found = lines(&ran.done());
    let expected = expected(place.path());
    assert_eq!(found.iter().map(|line| line["image"].as_str().unwrap()).collect::<Vec<_>>(), NAMES);
    for (line, expected) in found.iter().zip(&expected) {
        close(&vector(line), expected);
    }
    // Files and patterns, in the order in which they are given.
    let some = lines(&embed(&["photos/z.bmp", "photos/[ab].bmp"], "").done());
    let vectors: Vec<Vec<f32>> = some.iter().map(vector).collect();
    for (found, place) in vectors.iter().zip([3, 0, 1]) {
        close(found, &expected[place]);
    }
    // Rows: paths and bytes, with whatever else is in them.
    let input = format!(
        "{{\"id\": 7, \"image\": \"photos/b.bmp\"}}\n{}\n\"photos/a.bmp\"\n",
        json!({"image": uri(3)})
    );
    let rows = lines(&embed(&[], &input).done());
    assert_eq!((rows.len(), &rows[0]["id"]), (3, &json!(7)));
    for (row, place) in rows.iter().zip([1, 3, 0]) {
        close(&vector(row), &expected[place]);
    }
    let paths = lines(&embed(&["--input-format", "lines"], "photos/b.bmp\n").done());
    close(&vector(&paths[0]), &expected[1]);
    let unit = lines(&embed(&["photos/a.bmp", "--normalize"], "").done());
    let unit = vector(&unit[0]);
    assert!((unit.iter().map(|x| x * x).sum::<f32>() - 1.0).abs() < 1e-5);
    // The mean of patches, where the model has it.
    let args = ["embed", "--model", "mean", "--images", "photos/a.bmp"];
    assert_eq!(vector(&lines(&cloze(place.path(), &args, "").done())[0]).len(), WIDTH);
}

#[test]
fn vectors_of_images_have_all_types() {
    let place = place();
    let embed = |more: &[&str]| {
        let args = [&["embed", "--model", "model", "--images", "photos"], more].concat();
        lines(&cloze(place.path(), &args, "").done())
    };
    let exact: Vec<Vec<f32>> = embed(&[]).iter().map(vector).collect();
    let bits: Vec<Vec<u8>> = embed(&["--vectors", "ubinary"])
        .iter()
        .map(|line| serde_json::from_value(line["embedding"].clone()).unwrap())
        .collect();
    for (bytes, vector) in bits.iter().zip(&exact) {
        let expected: Vec<u8> = vector
            .chunks(8)
            .map(|eight| eight.iter().enumerate().map(|(i, x)| u8::from(*x > 0.0) << (7 - i)).sum())
            .collect();
        assert_eq!(bytes, &expected);
    }
    fs::write(place.path().join("some.txt"), "photos/a.bmp\n{\"image\": \"photos/b.bmp\"}\n").unwrap();
    let integers: Vec<i16> = embed(&["--vectors", "int8", "--calibrate", "some.txt"])
        .iter()
        .flat_map(|line| serde_json::from_value::<Vec<i16>>(line["embedding"].clone()).unwrap())
        .collect();
    // Of two images, each feature's least value and its greatest.
    for feature in 0..WIDTH {
        let (a, b) = (integers[feature], integers[WIDTH + feature]);
        // The greatest may round down.
        assert!(a.min(b) == -128 && a.max(b) >= 126, "feature {feature}: {a}, {b}");
    }
    let args =
        ["embed", "--model", "model", "--images", "photos", "--format", "npy", "--output", "photos.npy"];
    cloze(place.path(), &args, "").done();
    let array = fs::read(place.path().join("photos.npy")).unwrap();
    assert!(array[..128].windows(7).any(|part| part == b"(4, 16)"));
    let values = array[128..].chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()));
    assert!(values.eq(exact.concat()));
}

#[test]
fn images_that_cannot_be_embedded_are_named_or_left_out() {
    let place = place();
    let embed = |more: &[&str], input: &str| {
        cloze(place.path(), &[&["embed", "--model", "model"], more].concat(), input)
    };
    let input = "\"photos/a.bmp\"\n\"cut.bmp\"\n\"missing.png\"\n\n\"photos/b.bmp\"\n";
    let ran = embed(&["--images"], input);
    // The row before it is answered.
    assert_eq!(ran.out.lines().count(), 1);
    let error = ran.error_line(1);
    assert!(error.contains("standard input, line 2") && error.contains("cut.bmp"), "{error}");
    let ran = embed(&["--images", "--on-bad-row", "skip"], input);
    let error = ran.error_line(1);
    assert!(
        error.contains("3 of 5 rows (1 × blank line, 2 × refused by the model) cannot be used")
            && error.contains("line 2"),
        "{error}"
    );
    let ran = embed(&["--images", "--on-bad-row", "skip", "--max-skipped", "0.75"], input);
    assert!(ran.err.contains("skipped 3"), "{}", ran.err);
    assert_eq!(ran.done().lines().count(), 2);
    let ran = embed(&["--images", "photos/a.bmp", "cut.bmp", "photos/b.bmp"], "");
    assert!(ran.out.lines().count() == 1 && ran.error_line(1).contains("cut.bmp"), "{}", ran.err);
    let ran = embed(&["--images", "photos/a.bmp", "cut.bmp", "photos/b.bmp", "--on-bad-row", "skip"], "");
    assert_eq!(ran.done().lines().count(), 2);
    for (args, status, problem) in [
        (&["--images", "nowhere/*.png"][..], 1, "nowhere/*.png"),
        (&["--images", "photos", "--input", "rows.jsonl"], 2, "names the images itself"),
        (&["--images", "photos", "--input-format", "jsonl"], 2, "names the images itself"),
        (&["--images", "--pooling", "mean"], 2, "cannot be used with"),
        (&["--images", "--vectors", "int8"], 2, "give --calibrate FILE"),
        (&[], 2, "the model reads images; add --images"),
    ] {
        let ran = embed(args, "\"photos/a.bmp\"\n");
        assert!(ran.error_line(status).contains(problem), "{args:?}: {}", ran.err);
    }
    // A head is no obstacle; a preprocessing that contradicts the model is.
    let config = ImageClassifierConfig::new(vit().0, 3);
    let model = config.init(&mut ParamInit::new(&Device::flex(), 3));
    save_published(&place.path().join("head"), &model, &config, FloatType::F32).unwrap();
    let of_head = ["embed", "--model", "head", "--images", "photos/a.bmp"];
    cloze(place.path(), &of_head, "").done();
    Preprocessing::to_size(8, 8).write(&place.path().join("head/preprocessor_config.json")).unwrap();
    let ran = cloze(place.path(), &of_head, "");
    assert!(
        ran.error_line(1).contains("inputs have 8 × 8 pixels, but the model takes 16 × 16"),
        "{}",
        ran.err
    );
}

#[test]
fn an_index_finds_images_by_an_image() {
    let place = place();
    let search = |args: &[&str], input: &str| {
        let all = [&["search", args[0], "--index", "index"], &args[1..]].concat();
        cloze(place.path(), &all, input)
    };
    assert_eq!(search(&["index", "--model", "model", "photos"], "").done().trim(), r#"{"added":4}"#);
    let first = |line: &Value| line["found"][0].clone();
    let found = lines(&search(&["query", "photos/z.bmp"], "").done());
    assert_eq!(first(&found[0])["image"], "photos/z.bmp");
    assert!((first(&found[0])["score"].as_f64().unwrap() - 1.0).abs() < 1e-4, "{found:?}");
    assert!(first(&found[0]).get("text").is_none() && found[0]["found"].as_array().unwrap().len() == 4);
    // By bytes, and by a row.
    let input = format!("{}\n{{\"image\": \"photos/a.bmp\"}}\n", uri(1));
    let found = lines(&search(&["query"], &input).done());
    assert_eq!([&first(&found[0])["image"], &first(&found[1])["image"]], ["photos/b.bmp", "photos/a.bmp"]);
    // Rows of a table, with fields; those that cannot be used are left out.
    let row = |id: &str, image: &str| json!({"id": id, "image": image, "colour": "red"}).to_string();
    let rows = [row("one", "photos/a.bmp"), row("two", "cut.bmp"), row("three", &uri(2))].join("\n");
    fs::write(place.path().join("rows.jsonl"), rows).unwrap();
    let ran = search(&["add", "--field", "colour", "rows.jsonl"], "");
    assert!(ran.error_line(1).contains("cut.bmp"), "{}", ran.err);
    let ran = search(&["add", "--field", "colour", "--on-bad-row", "skip", "rows.jsonl"], "");
    assert!(ran.err.contains("skipped 1"), "{}", ran.err);
    assert_eq!(ran.done().trim(), r#"{"added":2}"#);
    let found = lines(&search(&["query", "--where", "colour=red", "photos/deep/c.bmp"], "").done());
    assert_eq!(first(&found[0])["id"], "three");
    // Lines of paths.
    assert_eq!(search(&["add"], "photos/a.bmp\n").done().trim(), r#"{"added":1}"#);
    let ran = search(&["query", "photos/a.bmp", "cut.bmp"], "");
    assert!(ran.out.lines().count() == 1 && ran.error_line(1).contains("query 2"), "{}", ran.err);
    let ran = search(&["query", "a storm at sea"], "");
    assert!(ran.error_line(1).contains("there is no file a storm at sea"), "{}", ran.err);
}

#[test]
fn a_map_shows_images_with_their_thumbnails() {
    let place = place();
    let map = |args: &[&str]| cloze(place.path(), &[&["map", "--method", "pca"], args].concat(), "");
    let drawn = |page: &str| -> Value {
        let begin = "<script id=\"data\" type=\"application/json\">";
        let data = page.split_once(begin).unwrap().1.split_once("</script>").unwrap().0;
        serde_json::from_str(data).unwrap()
    };
    let page = map(&["--model", "model", "photos"]).done();
    assert!(page.contains("Map of images") && page.contains("img-src data:"));
    let data = drawn(&page);
    assert_eq!(data["texts"], json!(NAMES));
    let pictures = data["pictures"].as_array().unwrap();
    assert_eq!(pictures.len(), 4);
    for picture in pictures {
        let png = BASE64_STANDARD.decode(picture.as_str().unwrap()).unwrap();
        assert!(png.starts_with(b"\x89PNG"));
    }
    // Labels of a table; bytes are named by their place.
    let row = |image: &str, label: &str| json!({"image": image, "label": label}).to_string();
    let rows = [row("photos/a.bmp", "red"), row("cut.bmp", "red"), row(&uri(1), "green")].join("\n");
    fs::write(place.path().join("rows.jsonl"), rows).unwrap();
    assert!(map(&["--model", "model", "rows.jsonl"]).error_line(1).contains("cut.bmp"));
    let data = drawn(&map(&["--model", "model", "--on-bad-row", "skip", "rows.jsonl"]).done());
    assert_eq!(data["texts"], json!(["photos/a.bmp", "rows.jsonl:3"]));
    assert_eq!(data["classes"].as_array().unwrap().len(), 2);
    // Those of an index.
    let index = ["search", "index", "--index", "index", "--model", "model", "photos"];
    cloze(place.path(), &index, "").done();
    let data = drawn(&map(&["--index", "index"]).done());
    assert_eq!((&data["texts"], data["pictures"].as_array().unwrap().len()), (&json!(NAMES), 4));
    let ran = map(&["--model", "model", "--prompt-text", "a", "photos"]);
    assert!(ran.error_line(2).contains("a model of images reads no text"), "{}", ran.err);
}
