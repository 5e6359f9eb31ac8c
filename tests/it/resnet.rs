//! Residual networks against torch: `tests/fixtures/resnet/export.py`.

use crate::golden::{Golden, fixture, gradients_of, relative_error};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Distribution, Int, Tensor, TensorData};
use cloze_model::huggingface::{FloatType, LoadReport, load_published, read_tensors, save_published};
use cloze_model::ops::CrossEntropy;
use cloze_model::tasks::classification_loss;
use cloze_model::vision::{ImageClassifier, ImageEncoder, ResNet, ResNetClassifierConfig, ResNetConfig};
use cloze_model::{ParamInit, weights};

/// Largest error allowed, relative to the largest absolute value of the tensor.
const TOLERANCE: f32 = 1e-5;
/// The same for gradients.
const GRADIENT_TOLERANCE: f32 = 1e-4;

/// Fused parts and composed ones, with gradients or without.
fn devices(autodiff: bool) -> [Device; 2] {
    let fused = if autodiff { Device::flex().autodiff() } else { Device::flex() };
    [fused, Device::flex().autodiff().gradient_checkpointing()]
}

fn load(device: &Device) -> (ResNetClassifierConfig, ImageClassifier<ResNet>, Golden) {
    let folder = fixture("resnet");
    let (config, model, report) =
        load_published::<ResNetClassifierConfig>(&folder, &mut ParamInit::new(device, 1)).unwrap();
    assert_eq!(report, LoadReport::default());
    (config, model, Golden::open(&folder))
}

#[track_caller]
fn assert_close(what: &str, found: &TensorData, expected: &TensorData, tolerance: f32) {
    let error = relative_error(found, expected);
    assert!(error < tolerance, "{what}: off by {error}");
}

fn loss(model: &ImageClassifier<ResNet>, pixels: Tensor<4>, labels: &[i32]) -> Tensor<1> {
    let labels = Tensor::<1, Int>::from_data(labels, &pixels.device());
    classification_loss(model.forward(pixels), labels, &CrossEntropy::default()).sum()
}

#[test]
fn states_and_logits_are_those_of_torch() {
    for device in devices(false) {
        let (_, model, golden) = load(&device);
        let pixels = golden.float::<4>("pixels", &device);
        let close = |what, found: Tensor<3>| {
            let expected = golden.data(what);
            let found = found.into_data();
            let shape = expected.shape().clone();
            let found = TensorData::new(found.iter::<f32>().collect::<Vec<f32>>(), shape);
            assert_close(what, &found, &expected, TOLERANCE);
        };
        let states = model.encoder.forward(pixels.clone());
        assert_eq!(states.grid, [3, 4]);
        close("states", states.states);
        close("logits", model.forward(pixels.clone()).unsqueeze());
        close("loss", (loss(&model, pixels, &[2, 0]) / 2.0).unsqueeze());
    }
}

#[test]
fn gradients_are_those_of_torch() {
    for device in devices(true) {
        for recompute in [false, true] {
            let (config, mut model, golden) = load(&device);
            if recompute && !cloze_model::ops::can_recompute(&device) {
                continue;
            }
            model.encoder.recompute = recompute;
            let gradients = (loss(&model, golden.float("pixels", &device), &[2, 0]) / 2.0).backward();
            let found = gradients_of(&model, GradientsParams::from_grads(gradients, &model));
            // The gradients take the parameters' places, so that saving names and reshapes them.
            let saved = tempfile::tempdir().unwrap();
            let gradients = weights::replace(model.clone(), found);
            save_published(saved.path(), &gradients, &config, FloatType::F32).unwrap();
            let found = read_tensors(&saved.path().join("model.safetensors")).unwrap();
            let names = golden.names();
            let expected: Vec<&str> = names.iter().filter_map(|name| name.strip_prefix("grad.")).collect();
            assert_eq!(expected.len(), weights::shapes(&model).len());
            for name in expected {
                let gradient = golden.data(&format!("grad.{name}"));
                assert_close(name, &found[name], &gradient, GRADIENT_TOLERANCE);
            }
        }
    }
}

/// The gradient of a batch is the sum of its parts', in whatever parts.
#[test]
fn micro_batches_add_up() {
    let device = Device::flex().autodiff();
    let config = ResNetClassifierConfig::new(
        ResNetConfig::new(9, 1).with_widths(vec![4, 6]).with_group_width(2),
        ["a", "b", "c"].map(str::to_owned).to_vec(),
    );
    let model = config.init(&mut ParamInit::new(&device, 3));
    let (pixels, labels) =
        (Tensor::<4>::random([7, 3, 9, 9], Distribution::Normal(0.0, 1.0), &device), [0, 1, 2, 2, 1, 0, 0]);
    let gradients = |parts: &[usize]| {
        let mut first = 0;
        let losses = parts.iter().map(|n| {
            let part = first..first + n;
            first += n;
            let loss = loss(&model, pixels.clone().narrow(0, part.start, *n), &labels[part]);
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            gradients_of(&model, gradients)
        });
        losses
            .reduce(|mut sum, part| {
                for (path, total) in &mut sum {
                    let both = total.iter::<f32>().zip(part[path].iter::<f32>()).map(|(a, b)| a + b);
                    *total = TensorData::new(both.collect::<Vec<f32>>(), total.shape().clone());
                }
                sum
            })
            .unwrap()
    };
    let whole = gradients(&[7]);
    for parts in [&[3, 4][..], &[1, 5, 1], &[1; 7]] {
        for (path, found) in gradients(parts) {
            assert_close(&path, &found, &whole[&path], 1e-5);
        }
    }
}
