//! Exports of models of images against transformers: `tests/fixtures/vision`.

use super::interpreter::{Array, run};
use super::{Saved, assert_close, data};
use crate::golden::{Golden, fixture};
use burn::tensor::{Device, Distribution, Tensor, TensorData};
use cloze_model::ParamInit;
use cloze_model::huggingface::{FloatType, save_published};
use cloze_model::vision::{ImageClassifierConfig, ImageEncoder, ImagePooling, PatchPositions, VitConfig};
use cloze_onnx::{ExportConfig, OnnxModel, export};
use std::collections::HashMap;

/// The outputs for images.
fn answered(saved: &Saved, pixels: &TensorData) -> HashMap<String, Array> {
    let pixels = Array::floats(pixels.shape(), pixels.iter::<f32>());
    run(&saved.model, saved.folder.path(), &[("pixel_values", pixels)])
}

#[test]
fn classifiers_and_encoders_of_images_equal_transformers() {
    for class in ["vit", "deit", "deit-class"] {
        let folder = fixture("vision").join(class);
        let golden = Golden::open(&folder);
        let pixels = golden.data("pixels");
        let found = answered(&Saved::of_folder(&folder, false), &pixels);
        assert_eq!(found.len(), 1, "{class}");
        assert_close(class, &data(&found["logits"]), &golden.data("logits"));
        let states = Saved::of_folder(&folder, true);
        let found = answered(&states, &pixels);
        assert_close(class, &data(&found["last_hidden_state"]), &golden.data("states"));
        // Any number of images, each by itself.
        let device = Device::flex();
        let one = golden.float::<4>("pixels", &device).narrow(0, 1, 1).into_data();
        let expected = golden.float::<3>("states", &device).narrow(0, 1, 1).into_data();
        assert_close(class, &data(&answered(&states, &one)["last_hidden_state"]), &expected);
    }
}

/// The encoder of an MAE, which has no golden states without masks, and what transformers has no class for.
#[test]
fn other_models_of_images_equal_ours() {
    let device = Device::flex();
    let init = &mut ParamInit::new(&device, 5);
    let base = VitConfig::new(12, 4, 2, 16).with_n_heads(4).with_init_std(0.3);
    let mean = base.clone().with_pooling(ImagePooling::Mean);
    for (name, vit) in [
        ("rectangles", base.clone().with_image_size([8, 12]).with_patch_size([4, 2])),
        ("sinusoids", base.clone().with_positions(PatchPositions::Sinusoidal)),
        ("a set", base.clone().with_positions(PatchPositions::None)),
        ("means", mean.clone().with_class_piece(false)),
        ("means beside a teacher", mean.with_distillation_piece(true)),
    ] {
        let config = ImageClassifierConfig::new(vit.clone(), 3);
        let model = config.init(init);
        let [height, width] = vit.image_size;
        let pixels = Tensor::<4>::random([3, 3, height, width], Distribution::Default, &device);
        let expected = model.forward(pixels.clone()).into_data();
        let found = answered(
            &Saved::new(&OnnxModel::of_images(&model, &config).unwrap()),
            &pixels.clone().into_data(),
        );
        assert_close(name, &data(&found["logits"]), &expected);
        let states = model.encoder.forward(pixels.clone()).states.into_data();
        let saved = Saved::new(&OnnxModel::of_vit(&model.encoder, &vit).unwrap());
        assert_close(name, &data(&answered(&saved, &pixels.into_data())["last_hidden_state"]), &states);
        // As a folder.
        let folder = tempfile::tempdir().unwrap();
        save_published(folder.path(), &model, &config, FloatType::F32).unwrap();
        assert!(export(folder.path(), &ExportConfig::default(), &device).unwrap().model.n_nodes() > 20);
    }
    let mae = Saved::of_folder(&fixture("vision").join("mae"), false);
    let outputs: Vec<&str> =
        mae.model.graph.as_ref().unwrap().output.iter().map(|output| output.name.as_str()).collect();
    assert_eq!(outputs, ["last_hidden_state"]);
    let cut = base.with_image_size([14, 12]);
    let Err(error) = OnnxModel::of_vit(&cut.init(init), &cut) else { panic!("it is exported") };
    assert!(error.to_string().contains("images of 14 × 12 pixels in patches of 4 × 4"), "{error}");
}
