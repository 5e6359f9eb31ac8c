//! Models of images behind the service.

use crate::image_vectors::{WIDTH, close, expected, place, uri, vit};
use crate::ran::{self, spawn};
use crate::served::Served;
use crate::workplace::Workplace;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use burn::tensor::Device;
use cloze_model::ParamInit;
use cloze_model::huggingface::{FloatType, save_published};
use cloze_model::vision::ImageClassifierConfig;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

/// A classifier of three classes beside the encoder of [`place`].
fn classifier(place: &Path) {
    let labels = ["red", "green", "blue"].map(str::to_owned).to_vec();
    let config = ImageClassifierConfig::new(vit().0, 3).with_labels(labels);
    let model = config.init(&mut ParamInit::new(&Device::flex(), 4));
    save_published(&place.join("classifier"), &model, &config, FloatType::F32).unwrap();
}

fn serve(place: &Path, models: &[&str]) -> Served {
    let folders: Vec<String> = models.iter().map(|model| place.join(model).display().to_string()).collect();
    let models = folders.iter().flat_map(|folder| ["--model", folder]);
    Served::of(spawn(["serve", "--port", "0"].into_iter().chain(models)))
}

fn vectors(value: &Value) -> Vec<Vec<f32>> {
    serde_json::from_value(value.clone()).unwrap()
}

#[test]
fn images_get_the_classes_and_vectors_that_the_commands_print() {
    let place = place();
    classifier(place.path());
    let served = serve(place.path(), &["classifier", "model"]);
    let asked = json!({"inputs": {"image": uri(0)}});
    let classes = served.post("/predict", &asked).ok();
    let folder = place.path().join("classifier").display().to_string();
    let line = json!({"image": uri(0)}).to_string();
    let printed = ran::run(&["predict", "--model", &folder], line.as_bytes()).done();
    let printed: Value = serde_json::from_str(&printed).unwrap();
    let all = classes.as_array().unwrap();
    assert_eq!((all.len(), &all[0]["label"]), (3, &printed["label"]));
    for one in all {
        let expected = printed["scores"][one["label"].as_str().unwrap()].as_f64().unwrap();
        assert!((one["score"].as_f64().unwrap() - expected).abs() < 1e-5, "{one}, {expected}");
    }
    assert!(all.windows(2).all(|pair| pair[0]["score"].as_f64() >= pair[1]["score"].as_f64()));
    // Lists, of which each image is answered by itself.
    let both = served.post("/predict", &json!({"inputs": [{"image": uri(0)}, {"image": uri(3)}]})).ok();
    assert_eq!((both.as_array().unwrap().len(), &both[0]), (2, &classes));
    // The first model's main route.
    assert_eq!(served.post("/", &asked).ok(), classes);

    let plain = json!({"inputs": [{"image": uri(1)}, {"image": uri(0)}], "normalize": false});
    let found = vectors(&served.post("/embed", &plain).ok());
    let expected = expected(place.path());
    close(&found[0], &expected[1]);
    close(&found[1], &expected[0]);
    let unit = vectors(&served.post("/embed", &asked).ok());
    assert!((unit[0].iter().map(|x| x * x).sum::<f32>() - 1.0).abs() < 1e-5);
    let some =
        served.post("/embed", &json!({"inputs": {"image": uri(0)}, "dimensions": 4, "normalize": false}));
    close(&vectors(&some.ok())[0], &expected[0][..4]);

    let info = served.get("/info").ok();
    assert_eq!(info["models"][0]["task"], "image-classification");
    assert_eq!(info["models"][1]["routes"], json!(["/embed"]));
    assert_eq!(info["models"][0]["image_size"], json!({"height": 16, "width": 16}));
    let described = served.get("/openapi.json").ok();
    let body = |path: &str| {
        described["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"].to_string()
    };
    for path in ["/predict", "/embed"] {
        let body = body(path);
        assert!(body.contains("^data:") && body.contains("24000000 pixels"), "{path}: {body}");
    }
    assert!(body("/embed").contains(&format!("\"maximum\":{WIDTH}")));
    // Nothing that only models of texts do.
    assert!(
        ["/tokenize", "/similarity", "/v1/embeddings"].iter().all(|path| described["paths"][path].is_null())
    );
}

#[test]
fn what_is_no_image_is_refused_and_no_file_is_read() {
    let place = place();
    classifier(place.path());
    let served = serve(place.path(), &["classifier"]);
    let file = place.path().join("photos/a.bmp").display().to_string();
    let encoded = |bytes: &[u8]| format!("data:image/png;base64,{}", BASE64_STANDARD.encode(bytes));
    // A PNG that says that it has 60,000 x 60,000 pixels.
    let mut huge = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".to_vec();
    huge.extend([0, 0, 0xEA, 0x60, 0, 0, 0xEA, 0x60, 8, 2, 0, 0, 0, 0xDE, 0xAD, 0xBE, 0xEF]);
    for (inputs, part) in [
        (json!({"image": file}), "inputs.image: no data URI"),
        (json!({"image": format!("file://{file}")}), "inputs.image: no data URI"),
        (json!([{"image": uri(0)}, {"image": "photos/a.bmp"}]), "inputs[1].image: no data URI"),
        (json!([{"image": uri(0)}, {"image": encoded(b"no picture")}]), "inputs[1].image: "),
        (json!({"image": encoded(b"")}), "inputs.image: "),
        (json!({"image": encoded(&huge)}), "inputs.image: "),
        (json!({"image": 7}), "inputs.image: 7, expected a text"),
        (json!({}), "inputs.image: missing"),
    ] {
        let (status, kind, message) = served.post("/predict", &json!({"inputs": inputs})).refused();
        assert_eq!((status, &*kind), (422, "Validation"), "{message}");
        assert!(
            message.starts_with(part) && !message.contains(&*place.path().to_string_lossy()),
            "{message}"
        );
    }
    let body = |more: Value| {
        let mut body = json!({"inputs": {"image": uri(0)}});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    for (path, body, status, part) in [
        ("/predict", body(json!({"raw_scores": true})), 422, "raw_scores: true is not supported"),
        ("/predict", body(json!({"top_k": 1})), 422, "top_k: not supported"),
        ("/predict", json!({"inputs": "a text"}), 424, "is for image-classification"),
        ("/embed", body(json!({})), 424, "/embed needs one for embedding of images"),
        ("/tokenize", json!({"inputs": "a text"}), 424, "is for image-classification"),
        ("/v1/embeddings", json!({"input": "a text"}), 400, "is for image-classification"),
    ] {
        let got = served.post(path, &body);
        assert_eq!(got.status, status, "{path}: {}", got.text);
        assert!(got.text.contains(part), "{path}: {}", got.text);
    }
    // The same service goes on.
    assert_eq!(served.post("/predict", &body(json!({"raw_scores": null}))).status, 200);
    assert_eq!(served.get("/health").status, 200);
}

#[test]
fn the_cost_of_a_classifier_of_images_is_measured() {
    let place = Workplace::new();
    let cloze = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cloze"));
        let ran = command.args(args).current_dir(place.root()).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8(ran.stdout).unwrap()
    };
    let sets = ["--set", "data.fraction=0.02", "--set", "train.epochs=1", "--set", "model.n_layers=1"];
    let train = ["train", "configs/digits-vit.toml", "--out", "runs/small"];
    cloze(&[&train[..], &sets].concat());
    let eval =
        ["eval", "--model", "runs/small/model", "configs/digits-vit.toml", "--split", "test", "--cost"];
    let found: Value = serde_json::from_str(&cloze(&[&eval[..], &["--json"]].concat())).unwrap();
    let cost = &found["cost"];
    assert!(
        cost["parameters"].as_u64().unwrap() > 1_000 && cost["bytes"].as_u64().unwrap() > 4_000,
        "{cost}"
    );
    for key in ["gflops", "latency_ms", "examples_per_second"] {
        assert!(cost[key].as_f64().unwrap() > 0.0, "{key}: {cost}");
    }
    assert!(cost["latency_p95_ms"].as_f64() >= cost["latency_ms"].as_f64());
    assert!(cloze(&eval).contains("GFLOP an example"));
}
