//! Vision Transformers against transformers: `tests/fixtures/vision/export.py`.

use crate::golden::{Golden, fixture, gradients_of, relative_error};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Int, Tensor, TensorData};
use cloze_model::huggingface::{
    FloatType, LoadReport, load_published, load_published_as, read_tensors, save_published,
};
use cloze_model::ops::CrossEntropy;
use cloze_model::tasks::classification_loss;
use cloze_model::vision::{
    ImageClassifier, ImageClassifierConfig, ImageEncoder, Mae, MaeConfig, MaskedPatches, Vit, VitConfig,
};
use cloze_model::{ParamInit, freeze, weights};
use cloze_trainer::images::{ImageEmbedConfig, ImageEmbedder};
use std::path::Path;

/// Largest error allowed, relative to the largest absolute value of the tensor.
const TOLERANCE: f32 = 1e-5;
/// The same for gradients.
const GRADIENT_TOLERANCE: f32 = 1e-4;

const CLASSES: [&str; 3] = ["vit", "deit", "deit-class"];

/// Fused parts and composed ones, with gradients or without.
fn devices(autodiff: bool) -> [Device; 2] {
    let fused = if autodiff { Device::flex().autodiff() } else { Device::flex() };
    [fused, Device::flex().autodiff().gradient_checkpointing()]
}

fn load(class: &str, device: &Device) -> (ImageClassifierConfig, ImageClassifier<Vit>, Golden) {
    let folder = fixture("vision").join(class);
    let (config, model, report) =
        load_published::<ImageClassifierConfig>(&folder, &mut ParamInit::new(device, 1)).unwrap();
    assert_eq!(report, LoadReport::default());
    (config, model, Golden::open(&folder))
}

#[track_caller]
fn assert_close(what: &str, found: &TensorData, expected: &TensorData, tolerance: f32) {
    let error = relative_error(found, expected);
    assert!(error < tolerance, "{what}: off by {error}");
}

/// The loss that the exporter differentiates.
fn loss(model: &ImageClassifier<Vit>, pixels: Tensor<4>) -> Tensor<1> {
    let labels = Tensor::<1, Int>::from_data([2, 0], &pixels.device());
    let (class, distillation) = model.logits(pixels);
    let heads = [Some(class), distillation].into_iter().flatten();
    let losses =
        heads.map(|logits| classification_loss(logits, labels.clone(), &CrossEntropy::default()).mean());
    losses.reduce(|a, b| a + b).unwrap()
}

#[test]
fn states_and_logits_are_those_of_transformers() {
    for class in CLASSES {
        for device in devices(false) {
            let (_, model, golden) = load(class, &device);
            let close = |what: &str, found: TensorData| {
                assert_close(&format!("{class}, {what}"), &found, &golden.data(what), TOLERANCE);
            };
            let pixels = golden.float::<4>("pixels", &device);
            close("states", model.encoder.forward(pixels.clone()).states.into_data());
            close("logits", model.forward(pixels.clone()).into_data());
            close("loss", loss(&model, pixels).into_data());
            if golden.has("larger.pixels") {
                close("larger.logits", model.forward(golden.float("larger.pixels", &device)).into_data());
            }
        }
    }
}

/// Compares gradients that were saved in place of a model's parameters with the golden ones; how many there are.
fn assert_gradients(class: &str, saved: &Path, golden: &Golden) -> usize {
    let found = read_tensors(&saved.join("model.safetensors")).unwrap();
    let names = golden.names();
    let expected: Vec<&str> = names.iter().filter_map(|name| name.strip_prefix("grad.")).collect();
    for name in &expected {
        let gradient = golden.data(&format!("grad.{name}"));
        // A key's bias shifts a row of scores, which softmax ignores: its gradient is 0, and both sides' is rounding.
        let tolerance =
            if name.ends_with("key.bias") { 10.0 * GRADIENT_TOLERANCE } else { GRADIENT_TOLERANCE };
        assert_close(&format!("{class}: gradient of {name}"), &found[*name], &gradient, tolerance);
    }
    expected.len()
}

#[test]
fn gradients_are_those_of_transformers() {
    for class in CLASSES {
        for device in devices(true) {
            let (config, model, golden) = load(class, &device);
            let gradients = loss(&model, golden.float("pixels", &device)).backward();
            let found = gradients_of(&model, GradientsParams::from_grads(gradients, &model));
            // The gradients take the parameters' places, so that saving names and transposes them.
            let saved = tempfile::tempdir().unwrap();
            let gradients = weights::replace(model.clone(), found);
            save_published(saved.path(), &gradients, &config, FloatType::F32).unwrap();
            let n = assert_gradients(class, saved.path(), &golden);
            assert_eq!(n, weights::shapes(&model).len());
        }
    }
}

#[test]
fn a_classifier_is_saved_as_transformers_saved_it() {
    for class in CLASSES {
        let (config, model, _) = load(class, &Device::flex());
        let saved = tempfile::tempdir().unwrap();
        save_published(saved.path(), &model, &config, FloatType::F32).unwrap();
        let [theirs, ours] = [fixture("vision").join(class), saved.path().into()];
        let tensors = |folder: &Path| read_tensors(&folder.join("model.safetensors")).unwrap();
        assert_eq!(tensors(&ours), tensors(&theirs), "{class}");
        let config = |folder: &Path| -> serde_json::Value {
            serde_json::from_slice(&std::fs::read(folder.join("config.json")).unwrap()).unwrap()
        };
        let (ours, theirs) = (config(&ours), config(&theirs));
        for (key, value) in ours.as_object().unwrap().iter().filter(|(key, _)| *key != "torch_dtype") {
            assert_eq!(Some(value), theirs.get(key), "{class}: {key}");
        }
    }
}

#[test]
fn an_encoder_is_read_from_a_folder_with_heads() {
    let device = Device::flex();
    for class in CLASSES {
        let (whole, model, golden) = load(class, &device);
        let (config, encoder, report) =
            load_published::<VitConfig>(&fixture("vision").join(class), &mut ParamInit::new(&device, 1))
                .unwrap();
        assert_eq!(config, whole.vit);
        assert!(
            report.missing.is_empty() && report.unexpected.iter().all(|name| name.contains("classifier"))
        );
        let pixels = golden.float::<4>("pixels", &device);
        let [a, b] =
            [&encoder, &model.encoder].map(|encoder| encoder.summaries(pixels.clone()).class.into_data());
        assert_eq!(a, b);
    }
}

#[test]
fn the_vector_of_an_image_is_the_class_pieces_last_state() {
    let device = Device::flex();
    for class in CLASSES {
        let folder = fixture("vision").join(class);
        let golden = Golden::open(&folder);
        let embedder = ImageEmbedder::open(&folder, ImageEmbedConfig::default(), &device).unwrap();
        let found = embedder.vectors(golden.float::<4>("pixels", &device)).into_data();
        let states = golden.float::<3>("states", &device);
        let expected = states.narrow(1, 0, 1).squeeze_dim::<2>(1).into_data();
        assert_close(class, &found, &expected, TOLERANCE);
        assert_eq!(found.shape()[1], embedder.width());
    }
}

#[test]
fn a_head_of_other_classes_is_named() {
    let (mut config, _, _) = load("vit", &Device::flex());
    config.labels.push("more".into());
    let init = &mut ParamInit::new(&Device::flex(), 1);
    let error = load_published_as(&config, &fixture("vision").join("vit"), init).unwrap_err().to_string();
    assert!(error.contains("`classifier.weight`"), "{error}");
}

fn mae(folder: &str, device: &Device) -> (MaeConfig, Mae, Golden) {
    let (config, model, report) =
        load_published::<MaeConfig>(&fixture("vision").join(folder), &mut ParamInit::new(device, 1)).unwrap();
    assert_eq!(report, LoadReport::default());
    (config, model, Golden::open(&fixture("vision/mae")))
}

fn masked(golden: &Golden) -> MaskedPatches {
    let kept: Vec<usize> = golden.data("kept").iter::<i64>().map(|patch| patch as usize).collect();
    let rows: Vec<&[usize]> = kept.chunks_exact(2).collect();
    MaskedPatches::new(&rows, 9)
}

/// Version 5 saves the decoder's layers under other names than 4.
#[test]
fn a_masked_autoencoder_is_that_of_transformers() {
    for folder in ["mae", "mae-5"] {
        for device in devices(false) {
            let (_, model, golden) = mae(folder, &device);
            let (pixels, masked) = (golden.float::<4>("pixels", &device), masked(&golden));
            let restored = model.forward(pixels.clone(), &masked).into_data();
            assert_close("restored", &restored, &golden.data("restored"), TOLERANCE);
            // 7 patches of 2 images.
            let loss = model.loss(pixels, &masked) / 14.0;
            assert_close("loss", &loss.into_data(), &golden.data("loss"), TOLERANCE);
        }
    }
}

#[test]
fn gradients_of_a_masked_autoencoder_are_those_of_transformers() {
    for device in devices(true) {
        let (config, model, golden) = mae("mae", &device);
        // Computed positions have none.
        let model = freeze(model, &["*.positions"]).unwrap();
        let loss = model.loss(golden.float("pixels", &device), &masked(&golden)) / 14.0;
        let found = gradients_of(&model, GradientsParams::from_grads(loss.backward(), &model));
        let saved = tempfile::tempdir().unwrap();
        let gradients = weights::replace(model.clone(), found);
        save_published(saved.path(), &gradients, &config, FloatType::F32).unwrap();
        assert_eq!(assert_gradients("mae", saved.path(), &golden) + 2, weights::shapes(&model).len());
    }
}

#[test]
fn an_autoencoder_is_saved_as_version_4_saved_it() {
    let (config, model, _) = mae("mae", &Device::flex());
    let saved = tempfile::tempdir().unwrap();
    save_published(saved.path(), &model, &config, FloatType::F32).unwrap();
    let tensors = |folder: &Path| read_tensors(&folder.join("model.safetensors")).unwrap();
    assert_eq!(tensors(saved.path()), tensors(&fixture("vision/mae")));
    // Its encoder is read by itself.
    let init = &mut ParamInit::new(&Device::flex(), 1);
    let (encoder, _, report) = load_published::<VitConfig>(saved.path(), init).unwrap();
    assert_eq!(encoder, config.vit);
    assert!(report.missing.is_empty() && report.unexpected.iter().all(|name| name.starts_with("decoder.")));
}
