//! One step of an objective, as the engine makes it: forward, backward, clipping, AdamW.
//!
//!     cargo bench -p cloze-trainer --bench objective_step -- electra|xlnet|bart STEPS f32|bf16
//!
//! The sizes are those of `configs/electra-mini-corpus.toml`, `xlnet-mini-corpus.toml` and `bart-mini-corpus.toml`, with a
//! batch that `benches/peers/objective.py` makes too. Prints one JSON line with the median and the process's peak memory; a
//! rate counts tokens of the texts. `cargo xtask bench steps` runs it beside its peers.
#![allow(missing_docs)]

mod common;

use burn::tensor::{Device, Int, Tensor, TensorData};
use cloze_data::parallel::{PairBatch, TokenLists};
use cloze_data::{DenoisingStats, OrderedBatch, PretrainingBatch, TokenBatch};
use cloze_model::bert::{BertConfig, ElectraConfig};
use cloze_model::seq2seq::{
    EncoderDecoder, InitialWeights, OutputBias, PositionsConfig, SpecialTokens, TiedEmbeddings, Transformer,
    TransformerConfig,
};
use cloze_model::xlnet::XlnetConfig;
use cloze_model::{ParamInit, Sequences, ops};
use cloze_trainer::engine::optimizer::{Optimizer, OptimizerConfig};
use cloze_trainer::engine::replicas::Alone;
use cloze_trainer::engine::step::{StepConfig, step};
use cloze_trainer::engine::{Exchange, Objective, Term};
use cloze_trainer::permutation::Permutation;
use cloze_trainer::pretraining::ReplacedTokenPretraining;
use common::{median, peak_megabytes};
use std::time::Instant;

const VOCAB: usize = 8192;
const INIT_STD: f64 = 0.04;

fn main() {
    // As the program: otherwise it is page faults that are measured.
    cloze_allocator::keep_freed();
    rayon::ThreadPoolBuilder::new().use_current_thread().build_global().expect("threads");
    // Cargo itself adds `--bench`.
    let args: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let [objective, steps, precision] = &args[..] else {
        // A bare `cargo bench` runs every benchmark.
        return println!("objective_step: electra|xlnet|bart STEPS f32|bf16");
    };
    let steps = steps.parse().expect("a number of steps");
    let precision = match precision.as_str() {
        "f32" => ops::Precision::Fp32,
        "bf16" => ops::Precision::Bf16,
        other => panic!("`{other}` is not f32 or bf16"),
    };
    let run = Run { steps, precision };
    let device = Device::flex().autodiff();
    let mut init = ParamInit::new(&device, 0);
    match objective.as_str() {
        "electra" => {
            let discriminator = BertConfig::preset("mini", VOCAB)
                .expect("a preset's name")
                .with_max_positions(128)
                .with_hidden_dropout(0.0)
                .with_attention_dropout(0.0)
                .with_init_std(INIT_STD);
            let config = ElectraConfig::new(discriminator, 0.25).expect("a valid configuration");
            let objective = <ReplacedTokenPretraining>::new(<ReplacedTokenPretraining>::WEIGHT);
            measure(&objective, config.init(&mut init), masked(64, 128), 64 * 128, run, &device);
        }
        "xlnet" => {
            let mut config = XlnetConfig::new(VOCAB, 4, 256);
            (config.dropout, config.init_std) = (0.0, INIT_STD);
            let model = config.init(&mut init);
            measure(&Permutation, model, ordered(64, 96, 32), 64 * 96, run, &device);
        }
        "bart" => {
            let mut config = TransformerConfig::new(VOCAB, 4, 256)
                .with_layers(4, 4)
                .with_heads(4)
                .with_d_ff(1024)
                .with_max_positions(128)
                .with_positions(PositionsConfig::Learned { offset: 2 })
                .with_dropout(0.0)
                .with_initial(InitialWeights::Normal { std: INIT_STD })
                .with_output_bias(OutputBias::Fixed)
                .with_tied(TiedEmbeddings::All)
                .with_tokens(SpecialTokens::new(0, 1).with_decoder_start(1));
            (config.embedding_norm, config.scaled_embeddings) = (true, false);
            let model = config.init(&mut init);
            measure(&Denoising, model, noisy(32, 128), 32 * 128, run, &device);
        }
        other => panic!("`{other}` is not electra, xlnet or bart"),
    }
}

/// How many steps, and how precise their products are.
#[derive(Clone, Copy)]
struct Run {
    steps: usize,
    precision: ops::Precision,
}

/// Makes steps on the one batch and prints how long they took.
fn measure<O: Objective>(
    objective: &O,
    mut model: O::Model,
    batch: O::Batch,
    n_tokens: usize,
    Run { steps, precision }: Run,
    device: &Device,
) {
    let mut optimizer = Optimizer::new(OptimizerConfig::default(), &model).expect("no groups");
    let (batches, mut times, mut losses) = ([batch], Vec::new(), Vec::new());
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
        // As the program: the other cores look for work throughout the step.
        let (moved, report) = ops::on_awake_cores(device, || {
            step(objective, model, &mut optimizer, &batches, device, config, &Alone)
        });
        model = moved;
        losses = report.expect("a step").losses;
        if number > 2 {
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
    }
    let median = median(times);
    println!(
        "{{\"ms\":{median:.2},\"per_s\":{:.1},\"peak_mb\":{:.1},\"losses\":{losses:?}}}",
        n_tokens as f64 / median * 1e3,
        peak_megabytes(),
    );
}

/// The piece of a place.
fn piece(place: usize) -> i32 {
    (5 + place * 7919 % (VOCAB - 5)) as i32
}

/// Whole texts, of which 15 % of the tokens are predicted and 85 % of these masked.
fn masked(batch: usize, len: usize) -> PretrainingBatch {
    let n_masked = batch * len * 15 / 100;
    let masked_positions: Vec<i32> = (0..n_masked).map(|i| (i * batch * len / n_masked) as i32).collect();
    let mut ids: Vec<i32> = (0..batch * len).map(piece).collect();
    let masked_labels = masked_positions.iter().map(|place| ids[*place as usize]).collect();
    for (number, place) in masked_positions.iter().enumerate() {
        if number % 20 < 17 {
            ids[*place as usize] = 4;
        }
    }
    let mut tokens = TokenBatch::new();
    for ids in ids.chunks(len) {
        tokens.push(ids, &vec![0; len]);
    }
    PretrainingBatch {
        tokens,
        masked_positions,
        masked_labels,
        uniform: (0..n_masked).map(|i| (i * 7919 % n_masked) as f32 / n_masked as f32).collect(),
        ..PretrainingBatch::default()
    }
}

/// Segments of which one token in six is predicted, in an order of their own, with the tokens before them.
fn ordered(batch: usize, len: usize, memory_len: usize) -> OrderedBatch {
    let n = len / 6;
    let order = |place: usize| {
        let (row, place) = (place / len, place % len);
        // Seven and the number of predictions have no common factor.
        (place % 6 == row % 6).then(|| ((place / 6 * 7 + row) % n) as u32)
    };
    let mut all = OrderedBatch::default();
    all.n = batch;
    all.before = (0..batch * memory_len).map(|place| piece(3 * place + 1)).collect();
    all.ids = (0..batch * len).map(piece).collect();
    all.order = (0..batch * len).map(order).collect();
    all
}

/// Whole texts, and sources in which a mask stands for each of the spans that are 30 % of a text: of three tokens in the
/// mean.
fn noisy(batch: usize, len: usize) -> PairBatch {
    let (mut source, mut target) = (TokenLists::default(), TokenLists::default());
    for row in 0..batch {
        let ids: Vec<u32> = (0..len).map(|place| piece(row * len + place) as u32).collect();
        let n_masked = len * 3 / 10;
        let n_masks = n_masked / 3 + row % 5 - 2;
        let kept = ids.iter().take(len - n_masked).copied();
        source.push(kept.chain(std::iter::repeat_n(4, n_masks)));
        target.push(ids);
    }
    PairBatch { source, target, noise: DenoisingStats::default() }
}

/// The loss of `cloze_trainer::denoising`, whose recipe needs prepared texts.
struct Denoising;

impl Objective for Denoising {
    type Model = Transformer;
    type Batch = PairBatch;

    fn terms(&self, _: u64) -> Vec<Term> {
        vec![Term::new("loss")]
    }

    fn counts(&self, batch: &PairBatch) -> Vec<f64> {
        vec![batch.target.ids.len() as f64]
    }

    fn sums(&self, model: &Transformer, batch: &PairBatch, device: &Device) -> Vec<Tensor<1>> {
        let source: Sequences = batch.source.iter().collect();
        let mut target = Sequences::new();
        for ids in batch.target.iter() {
            let shifted: Vec<i32> = [1].into_iter().chain(ids[..ids.len() - 1].iter().copied()).collect();
            target.push(&shifted);
        }
        let logits = model.logits(&source, &target, device);
        let labels = batch.target.ids.clone();
        let labels = Tensor::<1, Int>::from_data(TensorData::new(labels.clone(), [labels.len()]), device);
        vec![ops::cross_entropy(logits, labels).sum()]
    }
}
