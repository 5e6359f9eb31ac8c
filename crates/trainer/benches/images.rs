//! A training step of a model of images, as the engine makes it, and its answers.
//!
//!     cargo bench -p cloze-trainer --bench images -- step vit|resnet|mae STEPS f32|bf16
//!     cargo bench -p cloze-trainer --bench images -- predict FOLDER BATCH ROUNDS f32|bf16|int8
//!     cargo bench -p cloze-trainer --bench images -- caption FOLDER BATCH ROUNDS f32|bf16|int8
//!
//! The sizes of steps are those of `configs/cifar10-vit.toml`, `cifar10-cnn.toml` and `cifar10-mae.toml`; `benches/peers/images.py` makes the same
//! ones. Prints one JSON line with the median and the process's peak memory; a rate counts images. `cargo xtask bench images`
//! runs it beside its peers.
#![allow(missing_docs)]

mod common;

use burn::tensor::{Device, Int, Tensor, TensorData};
use cloze_data::images::{ImageExample, ImageSource};
use cloze_data::labelled::Target;
use cloze_model::ParamInit;
use cloze_model::ops::{self, CrossEntropy, Precision, with_precision};
use cloze_model::tasks::classification_loss;
use cloze_model::vision::{
    ImageClassifier, ImageEncoder, Mae, MaeConfig, MaeDecoderConfig, MaskedPatches, ResNetConfig, VitConfig,
};
use cloze_trainer::captions::{DescribeConfig, ImageDescriber};
use cloze_trainer::engine::optimizer::{Optimizer, OptimizerConfig};
use cloze_trainer::engine::replicas::Alone;
use cloze_trainer::engine::step::{StepConfig, step};
use cloze_trainer::engine::{Exchange, Objective, Term};
use cloze_trainer::images::ImagePredictor;
use common::{median, peak_megabytes};
use std::marker::PhantomData;
use std::path::Path;
use std::time::Instant;

const SIDE: usize = 32;
const CLASSES: usize = 10;

fn main() {
    // As the program: otherwise it is page faults that are measured.
    cloze_allocator::keep_freed();
    rayon::ThreadPoolBuilder::new().use_current_thread().build_global().expect("threads");
    // Cargo itself adds `--bench`.
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["step", what, steps, precision] => steps_of(what, steps.parse().expect("a number"), precision),
        ["predict", folder, batch, rounds, precision] => {
            let [batch, rounds] = [batch, rounds].map(|number| number.parse().expect("a number"));
            predict(folder.as_ref(), batch, rounds, precision);
        }
        ["caption", folder, batch, rounds, precision] => {
            let [batch, rounds] = [batch, rounds].map(|number| number.parse().expect("a number"));
            caption(folder.as_ref(), batch, rounds, precision);
        }
        // A bare `cargo bench` runs every benchmark.
        _ => {
            println!(
                "images: step vit|resnet|mae STEPS f32|bf16 | predict|caption FOLDER BATCH ROUNDS f32|bf16|int8"
            )
        }
    }
}

fn precision_of(name: &str) -> Precision {
    match name {
        "bf16" => Precision::Bf16,
        _ => Precision::Fp32,
    }
}

/// Pixels between −1 and 1, the same each time.
fn values(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i * 7919 % 2_003) as f32 / 1_001.0 - 1.0).collect()
}

fn encoder() -> VitConfig {
    VitConfig::new(SIDE, 4, 6, 192).with_n_heads(3).with_d_ff(384).with_layer_norm_eps(1e-6)
}

fn steps_of(what: &str, steps: usize, precision: &str) {
    let device = Device::flex().autodiff();
    let mut init = ParamInit::new(&device, 0);
    let precision = precision_of(precision);
    match what {
        "vit" => {
            let model = encoder().init_classifier(CLASSES, &mut init);
            classify(model, steps, precision, &device);
        }
        "resnet" => {
            let encoder = ResNetConfig::new(SIDE, 3).init(&mut init);
            classify(ImageClassifier::new(encoder, CLASSES, &mut init), steps, precision, &device);
        }
        "mae" => {
            let n = 256;
            let decoder = MaeDecoderConfig::new(2, 96, 3).with_d_ff(192);
            let kept: Vec<Vec<usize>> =
                (0..n).map(|i| (0..16).map(|k| (k * 4 + i % 4) % 64).collect()).collect();
            let kept: Vec<&[usize]> = kept.iter().map(Vec::as_slice).collect();
            let batch = (values(n * 3 * SIDE * SIDE), MaskedPatches::new(&kept, 64));
            let model = MaeConfig::new(encoder(), decoder).init(&mut init);
            measure(&Restored, model, batch, n, steps, precision, &device);
        }
        other => panic!("`{other}` is not vit, resnet or mae"),
    }
}

fn classify<E: ImageEncoder>(model: ImageClassifier<E>, steps: usize, precision: Precision, device: &Device) {
    let n = 128;
    let batch = (values(n * 3 * SIDE * SIDE), (0..n).map(|i| (i % CLASSES) as i32).collect());
    measure(&Classes(PhantomData), model, batch, n, steps, precision, device);
}

fn pixels(values: &[f32], device: &Device) -> Tensor<4> {
    let shape = [values.len() / (3 * SIDE * SIDE), 3, SIDE, SIDE];
    Tensor::from_data(TensorData::new(values.to_vec(), shape), device)
}

/// Classes of images.
struct Classes<E>(PhantomData<E>);

impl<E: ImageEncoder> Objective for Classes<E> {
    type Model = ImageClassifier<E>;
    type Batch = (Vec<f32>, Vec<i32>);

    fn terms(&self, _: u64) -> Vec<Term> {
        vec![Term::new("loss")]
    }

    fn counts(&self, (_, classes): &Self::Batch) -> Vec<f64> {
        vec![classes.len() as f64]
    }

    fn sums(
        &self,
        model: &ImageClassifier<E>,
        (values, classes): &Self::Batch,
        device: &Device,
    ) -> Vec<Tensor<1>> {
        let logits = model.forward(pixels(values, device));
        let classes = Tensor::<1, Int>::from_data(classes.as_slice(), device);
        vec![classification_loss(logits, classes, &CrossEntropy::default()).sum()]
    }
}

/// Pixels of masked patches.
struct Restored;

impl Objective for Restored {
    type Model = Mae;
    type Batch = (Vec<f32>, MaskedPatches);

    fn terms(&self, _: u64) -> Vec<Term> {
        vec![Term::new("loss")]
    }

    fn counts(&self, (values, masked): &Self::Batch) -> Vec<f64> {
        vec![(values.len() / (3 * SIDE * SIDE) * masked.n_masked()) as f64]
    }

    fn sums(&self, model: &Mae, (values, masked): &Self::Batch, device: &Device) -> Vec<Tensor<1>> {
        vec![model.loss(pixels(values, device), masked)]
    }
}

fn measure<O: Objective>(
    objective: &O,
    mut model: O::Model,
    batch: O::Batch,
    n_images: usize,
    steps: usize,
    precision: Precision,
    device: &Device,
) {
    let mut optimizer = Optimizer::new(OptimizerConfig::default(), &model).expect("no groups");
    let (batches, mut times) = ([batch], Vec::new());
    // Two steps warm up.
    for number in 1..=steps as u64 + 2 {
        let start = Instant::now();
        let config = StepConfig {
            seed: 0,
            step: number,
            lr: 1e-4,
            clip_norm: 1.0,
            precision,
            loss_scale: 1.0,
            exchange: Exchange::F32,
        };
        let (moved, report) = ops::on_awake_cores(device, || {
            step(objective, model, &mut optimizer, &batches, device, config, &Alone)
        });
        model = moved;
        report.expect("a step");
        if number > 2 {
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
    }
    print(median(times), n_images);
}

/// The answers of a classifier to images of its own size.
fn predict(folder: &Path, batch: usize, rounds: usize, precision: &str) {
    let predictor = ImagePredictor::open(folder, &Device::flex(), precision == "int8").expect("a classifier");
    let [height, width] = predictor.config().image_size();
    let grey: Vec<u8> = (0..height * width).map(|i| (i * 7919 % 256) as u8).collect();
    let image = ImageSource::Grey { width, values: grey.into() };
    let examples = || vec![ImageExample { image: image.clone(), target: Target::None }; batch];
    let mut times = Vec::new();
    for round in 0..=rounds {
        let start = Instant::now();
        let answer = || predictor.predict(examples(), batch, &mut |_| {}).expect("answers");
        with_precision(precision_of(precision), answer);
        // One warms up.
        if round > 0 {
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
    }
    print(median(times), batch);
}

/// Captions of 16 tokens by a beam of 5, from bytes to text.
fn caption(folder: &Path, batch: usize, rounds: usize, precision: &str) {
    let mut config = DescribeConfig::default();
    let settings = &mut config.decoding.settings;
    (settings.beams, settings.max_new, settings.min_new) = (Some(5), Some(16), Some(16));
    config.int8 = precision == "int8";
    let describer = ImageDescriber::open(folder, &config, &Device::flex()).expect("a captioner");
    let (height, width) = describer.preprocessing().input_size().expect("a size");
    let grey: Vec<u8> = (0..height * width).map(|i| (i * 7919 % 256) as u8).collect();
    let image = ImageSource::Grey { width, values: grey.into() };
    let mut times = Vec::new();
    for round in 0..=rounds {
        let start = Instant::now();
        let describe = || describer.describe(vec![image.clone(); batch]).expect("captions");
        let described = with_precision(precision_of(precision), describe);
        assert_eq!(described.images.len(), batch);
        // One warms up.
        if round > 0 {
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
    }
    print(median(times), batch);
}

fn print(ms: f64, n_images: usize) {
    println!(
        "{{\"ms\":{ms:.2},\"per_s\":{:.2},\"peak_mb\":{:.1}}}",
        n_images as f64 / ms * 1e3,
        peak_megabytes()
    );
}
