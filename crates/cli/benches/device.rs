//! A model's work on any device: steps of training, embeddings, continued texts.
//!
//!     cargo bench -p cloze --bench device -- WORK PRESET BATCH LEN DEVICE f32|bf16|f16 SECONDS [STEPS] [FOLDER] [kernels]
//!
//! WORK is `pretrain`, `finetune`, `embed`, `generate` or `curve`. Each is done for SECONDS, or STEPS times. `curve` pretrains
//! without dropout: its first weights are saved in FOLDER, for a peer to begin with, and the loss of every step is printed.
//! `kernels` also takes the time of each kernel of a graphics processor.
//! Texts are drawn by a rule that `benches/peers/gpu.py` follows too, so that both sides see the same.
//!
//! Prints one JSON line: the median time of a step, of a batch or of a text of NEW tokens, what is done in a second (tokens,
//! of `finetune` and `embed` sequences), the memory that the device's allocator holds (of a device without one: the
//! process's peak), the floating-point operations of the products, and the losses. `cargo xtask bench gpu` runs it beside
//! PyTorch.
#![allow(missing_docs)]

#[path = "../../trainer/benches/common/mod.rs"]
mod common;

use burn::tensor::{Int, Tensor, TensorData};
use cloze::Device;
use cloze::device::{self, DeviceName};
use cloze::model::bert::{BertConfig, BertForPreTraining, BertInput, Pooling, SentencePooling};
use cloze::model::generate::{DecodeConfig, Request, continue_prompts};
use cloze::model::gpt::GptConfig;
use cloze::model::huggingface::{Architecture, SaveConfig, save_pretrained};
use cloze::model::tasks::{BertForSequenceClassification, SequenceHead};
use cloze::model::{ParamInit, ops};
use cloze::trainer::engine::objective::Objective;
use cloze::trainer::engine::optimizer::{Optimizer, OptimizerConfig};
use cloze::trainer::engine::replicas::Alone;
use cloze::trainer::engine::step::{Ahead, StepConfig, step, step_ahead};
use cloze::trainer::engine::{Exchange, Term};
use ops::{KernelTimes, Precision, with_precision};
use std::path::Path;
use std::time::{Duration, Instant};

/// Steps before the first that is measured: kernels are compiled and chosen in them.
const WARM_UP: usize = 5;
/// Steps whose kernels are timed.
const WATCHED: u32 = 3;
/// Different tokens in the texts; their ids begin after the special pieces.
const KINDS: u64 = 500;
const FIRST: u64 = 5;
/// The id in place of a masked token.
const MASK: i32 = 4;
/// Tokens that a text is continued by.
const NEW: usize = 128;

fn main() {
    // As the program: otherwise it is page faults that are measured.
    cloze_allocator::keep_freed();
    device::keep_kernels();
    // Cargo itself adds `--bench`.
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let [work, preset, batch, len, device, precision, seconds, rest @ ..] = &args[..] else {
        // A bare `cargo bench` runs every benchmark.
        return println!("device: WORK PRESET BATCH LEN DEVICE f32|bf16|f16 SECONDS [STEPS] [FOLDER]");
    };
    rayon::ThreadPoolBuilder::new().use_current_thread().build_global().expect("threads");
    let number =
        |text: &str| -> usize { text.parse().unwrap_or_else(|_| panic!("`{text}` is not a number")) };
    let name: DeviceName = device.parse().unwrap_or_else(|error| panic!("{error}"));
    let bench = Bench {
        device: name.open().unwrap_or_else(|error| panic!("{error}")),
        preset,
        batch: number(batch),
        len: number(len),
        precision: match precision.as_str() {
            "f32" => Precision::Fp32,
            "bf16" => Precision::Bf16,
            "f16" => Precision::Fp16,
            other => panic!("`{other}` is not f32, bf16 or f16"),
        },
        seconds: seconds.parse().expect("a number of seconds"),
        steps: rest.first().map_or(usize::MAX, |steps| number(steps)),
        watches: rest.get(2).is_some_and(|word| word == "kernels"),
    };
    let done = match work.as_str() {
        "pretrain" => bench.pretrain(None),
        "curve" => bench.pretrain(Some(rest.get(1).expect("a folder for the first weights").as_ref())),
        "finetune" => bench.finetune(),
        "embed" => bench.embed(),
        "generate" => bench.generate(),
        other => panic!("`{other}` is not pretrain, curve, finetune, embed or generate"),
    };
    let Done { timed, units, gflop, losses } = done;
    let ms = common::median(timed.times);
    let line = serde_json::json!({
        "ms": ms,
        "per_s": units as f64 / ms * 1e3,
        "peak_mb": bench.megabytes(),
        "gflop": gflop,
        "losses": losses,
        "kernels": timed.kernels,
    });
    println!("{line}");
}

/// What is asked for.
struct Bench<'a> {
    device: Device,
    preset: &'a str,
    batch: usize,
    len: usize,
    precision: Precision,
    seconds: f64,
    steps: usize,
    /// Whether kernels are to be timed.
    watches: bool,
}

/// What a step took.
struct Timed {
    /// Milliseconds.
    times: Vec<f64>,
    /// Names of kernels of a graphics processor and their milliseconds in a step.
    kernels: Vec<(String, f64)>,
}

/// What was measured.
struct Done {
    timed: Timed,
    /// Done in each of them.
    units: usize,
    gflop: f64,
    losses: Vec<f64>,
}

impl Bench<'_> {
    /// An encoder's configuration; a tiny one, for tries on software devices, has a small vocabulary.
    fn config(&self) -> BertConfig {
        let vocab_size = if self.preset == "tiny" { 512 } else { 30_522 };
        let mut config = BertConfig::preset(self.preset, vocab_size).expect("a preset's name");
        config.max_positions = config.max_positions.max(self.len);
        config
    }

    /// Of the products of a pass forward: `tokens` is how many the last layer feeds forward, and `head` what comes after.
    fn gflop(&self, config: &BertConfig, tokens: usize, head: usize) -> f64 {
        let (all, d) = (self.batch * self.len, config.d_model);
        let attention = config.n_layers * (8 * all * d * d + 4 * all * self.len * d);
        let fed_forward = (config.n_layers - 1) * all + tokens;
        (attention + 4 * fed_forward * d * config.d_ff + head) as f64 / 1e9
    }

    fn ids(&self, step: u64) -> Vec<i32> {
        (0..self.batch as u64).flat_map(|row| text(step, row, self.len)).collect()
    }

    /// Steps of BERT's pretraining.
    fn pretrain(&self, first_weights: Option<&Path>) -> Done {
        let mut config = self.config();
        if first_weights.is_some() {
            (config.hidden_dropout, config.attention_dropout) = (0.0, 0.0);
        }
        let model = config.init(&mut ParamInit::new(&self.device.clone().autodiff(), 0));
        if let Some(folder) = first_weights {
            let save = SaveConfig::new(Architecture::PreTraining);
            save_pretrained(folder, &model, &config, &save).expect("a folder for the first weights");
        }
        let n_masked = (self.batch * self.len * 15 / 100).max(1);
        let batch = |step: u64| {
            let mut ids = self.ids(step);
            let apart = self.batch * self.len / n_masked;
            let offset = step as usize % apart.max(1);
            let positions: Vec<i32> =
                (0..n_masked).map(|i| (i * self.batch * self.len / n_masked + offset) as i32).collect();
            let labels = positions.iter().map(|place| ids[*place as usize]).collect();
            positions.iter().for_each(|place| ids[*place as usize] = MASK);
            Texts { shape: [self.batch, self.len], ids, positions, labels }
        };
        let d = config.d_model;
        let head = 2 * n_masked * d * (d + config.vocab_size);
        let gflop = 3.0 * self.gflop(&config, n_masked + self.batch, head);
        let keeps_all = first_weights.is_some();
        self.train(&Pretraining, model, batch, self.batch * self.len, gflop, keeps_all)
    }

    /// Steps of fine-tuning a classifier of two classes.
    fn finetune(&self) -> Done {
        let config = self.config();
        let init = &mut ParamInit::new(&self.device.clone().autodiff(), 0);
        let encoder = config.init_encoder(init);
        let model =
            BertForSequenceClassification::new(encoder, SequenceHead::new(config.d_model, 2, 0.1, init));
        let batch = |step: u64| Texts {
            shape: [self.batch, self.len],
            ids: self.ids(step),
            positions: Vec::new(),
            labels: (0..self.batch as u64).map(|row| (mixed(step, row) & 1) as i32).collect(),
        };
        let gflop = 3.0 * self.gflop(&config, self.batch, 2 * self.batch * config.d_model * config.d_model);
        self.train(&Classification, model, batch, self.batch, gflop, false)
    }

    /// Steps as a run makes them.
    fn train<O: Objective<Batch = Texts, Model: Send>>(
        &self,
        objective: &O,
        model: O::Model,
        batch: impl Fn(u64) -> Texts,
        units: usize,
        gflop: f64,
        keeps_all: bool,
    ) -> Done {
        let device = self.device.clone().autodiff();
        let mut optimizer = Optimizer::new(OptimizerConfig::default(), &model).expect("no groups");
        let goes_ahead = ops::is_queued(&device) && self.precision != Precision::Fp16;
        let (mut model, mut number) = (Some(model), 0);
        let (mut reports, mut unread) = (Vec::new(), Vec::new());
        let timed = self.timed(keeps_all, || {
            number += 1;
            let constants = StepConfig {
                seed: 0,
                step: number,
                lr: 1e-4,
                clip_norm: 1.0,
                precision: self.precision,
                loss_scale: if self.precision == Precision::Fp16 { 1024.0 } else { 1.0 },
                exchange: Exchange::F32,
            };
            let batches = [batch(number)];
            let before = model.take().expect("the model is in its place between steps");
            // As in a run: nobody waits for a device with a queue.
            let after = if goes_ahead {
                let (after, figures) =
                    step_ahead(objective, before, &mut optimizer, &batches, &device, constants);
                unread.push(figures.expect("a step"));
                after
            } else {
                let (after, report) = ops::on_awake_cores(&device, || {
                    step(objective, before, &mut optimizer, &batches, &device, constants, &Alone)
                });
                reports.push(report.expect("a step"));
                after
            };
            model = Some(after);
        });
        reports.extend(unread.into_iter().map(Ahead::read));
        let mut losses: Vec<f64> = reports.iter().map(|report| report.losses.iter().sum()).collect();
        if !keeps_all {
            losses.drain(..losses.len().saturating_sub(1));
        }
        Done { timed, units, gflop, losses }
    }

    /// Embeddings of batches, read by the processor.
    fn embed(&self) -> Done {
        let config = self.config();
        let encoder = config.init_encoder(&mut ParamInit::new(&self.device, 0));
        let pooling = SentencePooling::from(Pooling::Mean);
        let mut number = 0;
        let timed = self.timed(false, || {
            number += 1;
            let ids = ints(self.ids(number), &self.device).reshape([self.batch, self.len]);
            let pooled = with_precision(self.precision, || pooling.forward(&encoder, BertInput::new(ids)));
            let length = pooled.clone().powi_scalar(2).sum_dim(1).sqrt();
            drop(ops::read(pooled / length));
        });
        let gflop = self.gflop(&config, self.batch * self.len, 0);
        Done { timed, units: self.batch, gflop, losses: Vec::new() }
    }

    /// Texts that a GPT-2 of random weights continues greedily.
    fn generate(&self) -> Done {
        let config = match self.preset {
            "tiny" => GptConfig::gpt2(512, 2, 128),
            "base" => GptConfig::gpt2(50_257, 12, 768),
            other => panic!("`{other}` is not tiny or base"),
        };
        let model = config.init(&mut ParamInit::new(&self.device, 0));
        let decoding = DecodeConfig::new(Vec::new());
        let mut number = 0;
        let timed = self.timed(false, || {
            number += 1;
            let prompts = (0..self.batch as u64).map(|row| Request::new(text(number, row, self.len), NEW));
            with_precision(self.precision, || {
                let texts =
                    continue_prompts(&model, &decoding, &self.device, prompts).expect("a configuration");
                let written: usize =
                    texts.with_batch(self.batch).map(|texts| texts.expect("a text")[0].ids.len()).sum();
                assert_eq!(written, self.batch * NEW, "tokens written");
            });
        });
        Done { timed, units: self.batch * NEW, gflop: 0.0, losses: Vec::new() }
    }

    /// The milliseconds of a step, of several blocks of steps, after some that are not measured, unless `all` steps count.
    /// Kernels are timed after that: it takes time itself.
    fn timed(&self, all: bool, mut step: impl FnMut()) -> Timed {
        let wait = || self.device.sync().expect("a device that computes");
        let mut took = 0.0;
        // A slow device has done enough with two.
        let mut warm = 0;
        while !all && warm < WARM_UP && (warm < 2 || took < self.seconds) {
            let start = Instant::now();
            step();
            wait();
            took = start.elapsed().as_secs_f64();
            warm += 1;
        }
        let block = if took > 0.0 { (0.5 / took).clamp(1.0, 20.0) as usize } else { 1 };
        let (begin, mut times, mut made) = (Instant::now(), Vec::new(), 0);
        while made == 0 || made < self.steps && begin.elapsed().as_secs_f64() < self.seconds {
            let steps = block.min(self.steps - made).max(1);
            let start = Instant::now();
            (0..steps).for_each(|_| step());
            wait();
            times.push(start.elapsed().as_secs_f64() * 1e3 / steps as f64);
            made += steps;
        }
        let mut kernels = Vec::new();
        if self.watches {
            let mut watch = KernelTimes::start();
            for _ in 0..WATCHED {
                step();
                wait();
                watch.collect();
            }
            let millis = |time: Duration| time.as_secs_f64() * 1e3 / f64::from(WATCHED);
            kernels = watch.finish().into_iter().map(|kernel| (kernel.name, millis(kernel.time))).collect();
        }
        Timed { times, kernels }
    }

    /// What the device's allocator holds, else the process's peak.
    fn megabytes(&self) -> f64 {
        if let Some(usage) = self.device.memory_pool_usage().filter(|usage| usage.bytes_reserved > 0) {
            return usage.bytes_reserved as f64 / 1e6;
        }
        common::peak_megabytes()
    }
}

/// A batch.
struct Texts {
    shape: [usize; 2],
    ids: Vec<i32>,
    /// Of masked tokens in the batch.
    positions: Vec<i32>,
    labels: Vec<i32>,
}

impl Texts {
    fn input(&self, device: &Device) -> BertInput {
        BertInput::new(ints(self.ids.clone(), device).reshape(self.shape))
    }
}

/// Masked pieces and pairs of segments, the second segment half of each row.
struct Pretraining;

impl Objective for Pretraining {
    type Model = BertForPreTraining;
    type Batch = Texts;

    fn terms(&self, _: u64) -> Vec<Term> {
        ["masked", "pairs"].map(Term::new).to_vec()
    }

    fn counts(&self, batch: &Texts) -> Vec<f64> {
        vec![batch.positions.len() as f64, batch.shape[0] as f64]
    }

    fn sums(&self, model: &Self::Model, batch: &Texts, device: &Device) -> Vec<Tensor<1>> {
        let [rows, len] = batch.shape;
        let segments = (0..rows * len).map(|place| i32::from(place % len >= len / 2)).collect();
        let input = batch.input(device).with_token_types(ints(segments, device).reshape(batch.shape));
        let logits = model.forward(input, ints(batch.positions.clone(), device));
        let pairs = logits.next_sentence.expect("the config has pairs");
        let labels = ints((0..rows as i32).map(|row| row % 2).collect(), device);
        vec![
            ops::cross_entropy(logits.mlm, ints(batch.labels.clone(), device)).sum(),
            ops::cross_entropy(pairs, labels).sum(),
        ]
    }
}

/// A class for each sequence.
struct Classification;

impl Objective for Classification {
    type Model = BertForSequenceClassification;
    type Batch = Texts;

    fn terms(&self, _: u64) -> Vec<Term> {
        vec![Term::new("loss")]
    }

    fn counts(&self, batch: &Texts) -> Vec<f64> {
        vec![batch.shape[0] as f64]
    }

    fn sums(&self, model: &Self::Model, batch: &Texts, device: &Device) -> Vec<Tensor<1>> {
        let logits = model.forward(batch.input(device));
        vec![ops::cross_entropy(logits, ints(batch.labels.clone(), device)).sum()]
    }
}

fn ints(numbers: Vec<i32>, device: &Device) -> Tensor<1, Int> {
    let shape = [numbers.len()];
    Tensor::from_data(TensorData::new(numbers, shape), device)
}

/// A text that can be learned: each token is the one before it plus a number that is the text's own.
fn text(step: u64, row: u64, len: usize) -> Vec<i32> {
    let drawn = mixed(step, row);
    let (start, stride) = (drawn % KINDS, 1 + (drawn >> 40) % 7);
    (0..len as u64).map(|place| (FIRST + (start + place * stride) % KINDS) as i32).collect()
}

/// A number drawn for a row of a step: SplitMix64's (Steele et al. 2014, "Fast splittable pseudorandom number generators").
fn mixed(step: u64, row: u64) -> u64 {
    let mut bits = ((step << 32) | row).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}
