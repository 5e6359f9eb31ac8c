//! What training keeps true, on small models in process: accumulation, tying, dropout, bad losses, decay.

use crate::stop_after::StopAfter;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use burn::module::Module;
use burn::tensor::{Device, Distribution, Int, Tensor, TensorData, Tolerance};
use cloze_data::{PretrainingBatch, TokenBatch};
use cloze_model::bert::{BertConfig, BertForPreTraining, BertInput};
use cloze_model::huggingface::{self, Architecture, Family, SaveConfig, save_pretrained};
use cloze_model::ops::{Precision, kernels};
use cloze_model::weights::{self, NamedTensors};
use cloze_model::{ModelError, ParamInit};
use cloze_trainer::TrainerError;
use cloze_trainer::config::RunConfig;
use cloze_trainer::engine::checkpoint::{Checkpoint, Checkpoints};
use cloze_trainer::engine::objective::Objective;
use cloze_trainer::engine::optimizer::{Optimizer, OptimizerConfig};
use cloze_trainer::engine::replicas::Alone;
use cloze_trainer::engine::step::{StepConfig, StepReport, step};
use cloze_trainer::engine::{Exchange, Term};
use cloze_trainer::engine::{Outcome, RunOptions};
use cloze_trainer::input;
use cloze_trainer::metrics::progress::{RunProgress, Silent, Status};
use cloze_trainer::metrics::{METRICS_FILE, Record, TrainRecord, jsonl};
use cloze_trainer::pretraining::{BertPretraining, pretrain};
use tempfile::TempDir;

const VOCAB: usize = 50;
const EMBEDDINGS: &str = "bert.embeddings.tokens.weight";

fn device() -> Device {
    Device::flex().autodiff()
}

fn bert(dropout: f64) -> BertConfig {
    BertConfig::new(VOCAB, 2, 16)
        .with_n_heads(2)
        .with_d_ff(32)
        .with_max_positions(16)
        .with_hidden_dropout(dropout)
        .with_attention_dropout(dropout)
}

fn model(config: &BertConfig) -> BertForPreTraining {
    config.init(&mut ParamInit::new(&device(), 7).with_std(0.1))
}

fn optimizer(model: &BertForPreTraining) -> Optimizer {
    Optimizer::new(OptimizerConfig::default(), model).unwrap()
}

fn constants(step: u64) -> StepConfig {
    StepConfig {
        seed: 3,
        step,
        lr: 1e-2,
        clip_norm: 1.0,
        precision: Precision::Fp32,
        loss_scale: 1.0,
        exchange: Exchange::F32,
    }
}

/// Sequences of unequal length with unequally many masked positions, of the pieces 5 to 39.
fn batch(rows: std::ops::Range<usize>) -> PretrainingBatch {
    let tokens = TokenBatch::new().with_max_len(16);
    let mut batch = PretrainingBatch { tokens, ..Default::default() };
    for row in rows {
        let used = 16 - row * 3 % 7;
        let before = batch.tokens.n_tokens();
        let ids: Vec<i32> = (0..used).map(|column| (5 + (row * 31 + column * 7) % 35) as i32).collect();
        let types: Vec<i32> = (0..used).map(|column| i32::from(column >= used / 2)).collect();
        batch.tokens.push(&ids, &types);
        for column in (0..used).filter(|column| column % (2 + row % 4) == 1) {
            batch.masked_positions.push((before + column) as i32);
            batch.masked_labels.push((5 + (row * 13 + column * 11) % 35) as i32);
        }
        batch.pair_labels.push((row % 2) as i32);
    }
    batch
}

/// Some steps on the same micro-batches; the parameters after them and the last report.
fn train(
    config: &BertConfig,
    optimizer: OptimizerConfig,
    steps: u64,
    micro: &[PretrainingBatch],
) -> (BertForPreTraining, StepReport) {
    let model = model(config);
    let mut optimizer = Optimizer::new(optimizer, &model).unwrap();
    let mut report = None;
    let trained = (1..=steps).fold(model, |model, number| {
        let (model, done) = step(
            &<BertPretraining>::default(),
            model,
            &mut optimizer,
            micro,
            &device(),
            constants(number),
            &Alone,
        );
        report = Some(done.unwrap());
        model
    });
    (trained, report.unwrap())
}

fn values(tensors: &NamedTensors, name: &str) -> Vec<f32> {
    tensors[name].iter::<f32>().collect()
}

#[test]
fn packed_batches_lose_as_padded_ones_do() {
    let _held = crate::generator();
    let device = Device::flex();
    let batch = batch(0..6);
    let model = model(&bert(0.0)).valid();
    let (tokens, positions) = (&batch.tokens, &batch.masked_positions);
    let (packed, padded) = (input::packed(tokens, &device), input::padded(tokens, &device));
    assert!(tokens.n_padding() > 0 && padded.pad_mask.is_some());
    let places = tokens.padded_places(positions);
    let ids = |input: &BertInput| input.input_ids.clone().into_data().iter::<i32>().collect::<Vec<_>>();
    for (number, place) in positions.iter().zip(&places) {
        assert_eq!(ids(&packed)[*number as usize], ids(&padded)[*place as usize]);
    }
    let int = |values: &[i32]| Tensor::<1, Int>::from_data(values, &device);
    let padded = model.forward(padded, int(&places));
    let packed = model.forward(packed, int(positions));
    let tolerance = Tolerance::<f32>::rel_abs(1e-4, 1e-5);
    packed.mlm.into_data().assert_approx_eq(&padded.mlm.into_data(), tolerance);
    let [packed, padded] =
        [packed.next_sentence, padded.next_sentence].map(|logits| logits.unwrap().into_data());
    packed.assert_approx_eq(&padded, tolerance);
}

#[test]
fn accumulated_micro_batches_equal_one_large_batch() {
    let _held = crate::generator();
    let config = bert(0.0);
    // Adam divides a gradient by its own size, also where it is nothing but rounding, as that of the
    // keys' biases is: a larger epsilon keeps such noise small.
    let optimizer = OptimizerConfig { eps: 1e-2, ..OptimizerConfig::default() };
    let large = [batch(0..12)];
    let micro = [batch(0..3), batch(3..6), batch(6..9), batch(9..12)];
    let counts: Vec<usize> = micro.iter().map(|batch| batch.masked_labels.len()).collect();
    assert!(counts.windows(2).any(|pair| pair[0] != pair[1]), "{counts:?} are not ragged");

    let (one, one_report) = train(&config, optimizer.clone(), 5, &large);
    let (many, many_report) = train(&config, optimizer, 5, &micro);
    assert!((one_report.grad_norm / many_report.grad_norm - 1.0).abs() < 1e-5);
    for (one, many) in one_report.losses.iter().zip(&many_report.losses) {
        assert!((one / many - 1.0).abs() < 1e-6, "loss {one}, accumulated {many}");
    }
    let (before, one, many) =
        (weights::collect(&model(&config)), weights::collect(&one), weights::collect(&many));
    for name in one.keys() {
        let one = values(&one, name);
        let moved = one.iter().zip(values(&before, name)).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        let scale = one.iter().fold(1.0f32, |scale, value| scale.max(value.abs()));
        for (one, many) in one.iter().zip(values(&many, name)) {
            assert!((one - many).abs() <= 1e-6 * scale, "{name}: {one} and {many}, moved by {moved}");
        }
    }
}

#[test]
fn recomputed_layers_train_to_the_same_bits() {
    let _held = crate::generator();
    let bench = Bench::new();
    let sets = ["train.accumulate=2", "model.hidden_dropout=0.2", "model.attention_dropout=0.2"];
    let again = [&sets[..], &["train.recompute=true"]].concat();
    let kept = bench.finish("kept", &sets);
    assert!(kept == bench.finish("recomputed", &again), "the trained parameters differ");
    let bf16 = [&again[..], &["train.precision=bf16"]].concat();
    assert!(kept != bench.finish("bf16", &bf16));
    // A run may be resumed with another value.
    stop_after(&bench, "both", &sets, false, 4);
    let outcome = bench.run("both", &again, true, &AtomicBool::new(false), &mut Silent).unwrap();
    let Outcome::Done { model, .. } = outcome else { panic!("{outcome:?}") };
    assert!(kept == huggingface::read_tensors(&model.join("model.safetensors")).unwrap());
}

#[test]
fn a_device_that_cannot_recompute_is_refused_before_anything_is_done() {
    let _held = crate::generator();
    let bench = Bench::new();
    let config = RunConfig::load(bench.path("run.toml"), &["train.recompute=true".into()]).unwrap();
    let stop = AtomicBool::new(false);
    let (folder, cache) = (bench.path("out"), bench.path("cache"));
    let device = device().gradient_checkpointing();
    let options = RunOptions::new(device, folder).cache(cache).stop(&stop);
    let error = pretrain(&config, &options, &mut Silent).unwrap_err();
    assert!(error.is_of_config());
    assert_eq!(
        error.to_string(),
        "`train.recompute` is true; expected false on this device: only flex can recompute layers"
    );
    assert!(!bench.path("out").exists());
}

#[test]
fn a_run_that_would_fit_with_recomputed_layers_is_told_so() {
    let _held = crate::generator();
    let bench = Bench::new();
    let small = ["model.n_layers=12", "train.batch_size=400"];
    let run = |sets: &[&str], memory: u64| {
        let sets: Vec<String> = small.iter().chain(sets).map(ToString::to_string).collect();
        let config = RunConfig::load(bench.path("run.toml"), &sets).unwrap();
        let (folder, cache, stop) = (bench.path("out"), bench.path("cache"), AtomicBool::new(true));
        let device = Device::flex();
        let options = RunOptions::new(device, folder).cache(cache).memory(Some(memory)).stop(&stop);
        pretrain(&config, &options, &mut Silent)
    };
    let megabytes = |sets: &[&str]| -> u64 {
        let Err(TrainerError::Memory { needs, .. }) = run(sets, 1) else { panic!("a byte is enough") };
        needs.strip_suffix(" MB").unwrap().parse().unwrap()
    };
    let (kept, again) = (megabytes(&[]), megabytes(&["train.recompute=true"]));
    assert!(again < kept / 2, "{again} MB, {kept} MB");
    let message = run(&[], (again + 1) * 1_000_000).unwrap_err().to_string();
    assert!(message.ends_with(", or set `train.recompute = true`"), "{message}");
    let message = run(&["train.recompute=true"], 1).unwrap_err().to_string();
    assert!(!message.contains("recompute"), "{message}");
}

#[test]
fn the_tied_embedding_stays_one_parameter() {
    let _held = crate::generator();
    let config = bert(0.0);
    let untrained = model(&config);
    let (trained, _) = train(
        &config,
        OptimizerConfig { weight_decay: 0.0, ..OptimizerConfig::default() },
        3,
        &[batch(0..6)],
    );
    assert_eq!(trained.num_params(), untrained.num_params());
    let tensors = weights::collect(&trained);
    let tables = tensors.values().filter(|tensor| tensor.shape().to_vec() == [VOCAB, 16]).count();
    assert_eq!(tables, 1, "{:?}", tensors.keys());

    // Both uses train it: piece 45 is never read, only ever (wrongly) predicted.
    let before = values(&weights::collect(&untrained), EMBEDDINGS);
    let after = values(&tensors, EMBEDDINGS);
    for piece in [5, 45] {
        let row = piece * 16..piece * 16 + 16;
        assert!(before[row.clone()].iter().zip(&after[row]).all(|(a, b)| a != b), "piece {piece}");
    }

    // And it is what predicts: one row of it moves one column of the logits, by the states times the change.
    let device = Device::flex();
    let logits = |model: &BertForPreTraining| {
        let positions = Tensor::from_data([1, 4, 9], &device);
        let logits = model.valid().forward(input::padded(&batch(0..2).tokens, &device), positions).mlm;
        logits.into_data().iter::<f32>().collect::<Vec<_>>()
    };
    let mut moved = after.clone();
    moved[45 * 16..46 * 16].fill(0.5);
    let moved = TensorData::new(moved, [VOCAB, 16]);
    let changed = weights::replace(trained.clone(), [(EMBEDDINGS.to_string(), moved)].into());
    for (i, (a, b)) in logits(&trained).into_iter().zip(logits(&changed)).enumerate() {
        assert_eq!(a != b, i % VOCAB == 45, "column {}: {a} and {b}", i % VOCAB);
    }

    let folder = tempfile::tempdir().unwrap();
    let save = SaveConfig::new(Architecture::PreTraining);
    save_pretrained(folder.path(), &trained.valid(), &config, &save).unwrap();
    let saved = huggingface::read_tensors(&folder.path().join("model.safetensors")).unwrap();
    assert!(saved.keys().all(|name| !name.contains("decoder.weight")), "{:?}", saved.keys());
    assert_eq!(values(&saved, "bert.embeddings.word_embeddings.weight"), after);
}

#[test]
fn dropout_is_a_function_of_seed_step_and_micro_batch() {
    let _held = crate::generator();
    let config = bert(0.1);
    // The first term's mean over the step: the parameters are the same for all.
    let loss = |constants: StepConfig, micro: &[PretrainingBatch]| {
        let model = model(&config);
        let mut optimizer = optimizer(&model);
        let (_, report) =
            step(&<BertPretraining>::default(), model, &mut optimizer, micro, &device(), constants, &Alone);
        report.unwrap().losses[0]
    };
    let same = || batch(0..6);
    let first = loss(constants(1), &[same()]);
    let drawn = Tensor::<1>::random([99], Distribution::Default, &device()).into_data();
    assert_eq!(drawn.num_elements(), 99);
    assert_eq!(loss(constants(1), &[same()]), first, "whatever was drawn before");
    assert_ne!(loss(constants(2), &[same()]), first, "another step");
    assert_ne!(loss(StepConfig { seed: 4, ..constants(1) }, &[same()]), first, "another seed");
    // Of equal masks the mean would be the first's.
    let both = loss(constants(1), &[same(), same()]);
    assert!((both / first - 1.0).abs() > 1e-5, "{both} of two micro-batches, {first} of the first");
    assert_eq!(loss(constants(1), &[same(), same()]), both);
}

#[test]
fn weight_decay_spares_biases_and_norms() {
    let _held = crate::generator();
    let config = bert(0.0);
    let trained = |weight_decay| {
        let (model, _) =
            train(&config, OptimizerConfig { weight_decay, ..OptimizerConfig::default() }, 1, &[batch(0..6)]);
        weights::collect(&model)
    };
    let (before, without, with) = (weights::collect(&model(&config)), trained(0.0), trained(0.5));
    let mut spared = 0;
    for name in before.keys() {
        let last = name.rsplit('.').next().unwrap();
        if ["bias", "gamma", "beta"].contains(&last) {
            assert_eq!(values(&with, name), values(&without, name), "{name}");
            spared += 1;
            continue;
        }
        let (before, without, with) = (values(&before, name), values(&without, name), values(&with, name));
        for ((before, without), with) in before.iter().zip(without).zip(with) {
            let expected = without - (1e-2 * 0.5) * before;
            assert!((with - expected).abs() <= 1e-7, "{name}: {with} is not {expected}");
        }
    }
    // Per layer 4 in attention, 2 in the feed-forward, 2 norms of 2; embeddings 2; pooler 1, heads 4 + 1.
    assert_eq!(spared, 2 * (4 + 2 + 4) + 2 + 1 + 4 + 1, "{:?}", before.keys());
}

/// The pretraining objective, on batches some of which make its first term NaN.
struct Poisoned;

impl Objective for Poisoned {
    type Model = BertForPreTraining;
    type Batch = (PretrainingBatch, bool);

    fn terms(&self, step: u64) -> Vec<Term> {
        <BertPretraining>::default().terms(step)
    }

    fn counts(&self, (batch, _): &Self::Batch) -> Vec<f64> {
        <BertPretraining>::default().counts(batch)
    }

    fn sums(&self, model: &Self::Model, (batch, bad): &Self::Batch, device: &Device) -> Vec<Tensor<1>> {
        let mut sums = <BertPretraining>::default().sums(model, batch, device);
        if *bad {
            sums[0] = sums[0].clone().mul_scalar(f64::NAN);
        }
        sums
    }
}

#[test]
fn a_step_that_is_not_finite_leaves_no_trace() {
    let _held = crate::generator();
    let config = bert(0.0);
    let trained = |steps: &[&[bool]]| {
        let model = model(&config);
        let mut optimizer = optimizer(&model);
        let model = steps.iter().fold(model, |model, bad| {
            let micro: Vec<_> = (0..bad.len()).map(|i| (batch(3 * i..3 * i + 3), bad[i])).collect();
            let (model, report) =
                step(&Poisoned, model, &mut optimizer, &micro, &device(), constants(1), &Alone);
            let report = report.unwrap();
            assert_eq!(report.updated, !bad.contains(&true));
            assert_eq!(report.losses[0].is_nan(), bad.contains(&true));
            model
        });
        (weights::collect(&model), optimizer.state(&model))
    };
    let clean = trained(&[&[false, false], &[false, false], &[false, false]]);
    let bumpy = trained(&[&[false, false], &[false, true], &[false, false], &[true, false], &[false, false]]);
    assert!(clean == bumpy, "the parameters or moments differ");
}

/// The pretraining objective with another weight of its second term, or with a sum that is `factor` times as large.
struct Weighed {
    weight: fn(u64) -> f64,
    factor: f64,
}

impl Objective for Weighed {
    type Model = BertForPreTraining;
    type Batch = PretrainingBatch;

    fn terms(&self, step: u64) -> Vec<Term> {
        let mut terms = <BertPretraining>::default().terms(step);
        terms[1].weight = (self.weight)(step);
        terms
    }

    fn counts(&self, batch: &PretrainingBatch) -> Vec<f64> {
        <BertPretraining>::default().counts(batch)
    }

    fn sums(&self, model: &Self::Model, batch: &PretrainingBatch, device: &Device) -> Vec<Tensor<1>> {
        let mut sums = <BertPretraining>::default().sums(model, batch, device);
        sums[1] = sums[1].clone().mul_scalar(self.factor);
        sums
    }
}

#[test]
fn a_terms_weight_counts_in_the_loss_and_not_in_its_report() {
    let _held = crate::generator();
    let config = bert(0.0);
    let done = |at_step, weight, factor| {
        let model = model(&config);
        // The keys' biases have gradients of rounding alone.
        let settings = OptimizerConfig { eps: 1e-2, ..OptimizerConfig::default() };
        let mut optimizer = Optimizer::new(settings, &model).unwrap();
        let batches = [batch(0..3), batch(3..6)];
        let objective = Weighed { weight, factor };
        let (model, report) =
            step(&objective, model, &mut optimizer, &batches, &device(), constants(at_step), &Alone);
        (weights::collect(&model), report.unwrap())
    };
    let (plain, weighed, scaled) = (done(1, |_| 1.0, 1.0), done(1, |_| 3.0, 1.0), done(1, |_| 1.0, 3.0));
    assert_eq!(weighed.1.losses, plain.1.losses);
    assert!((scaled.1.losses[1] / plain.1.losses[1] - 3.0).abs() < 1e-5);
    assert!((weighed.1.grad_norm / scaled.1.grad_norm - 1.0).abs() < 1e-5);
    assert!((weighed.1.grad_norm / plain.1.grad_norm - 1.0).abs() > 1e-3);
    for (name, weighed) in &weighed.0 {
        weighed.assert_approx_eq::<f32>(&scaled.0[name], Tolerance::absolute(1e-6));
    }
    // A weight may grow from step to step.
    let growing: fn(u64) -> f64 = |step| step as f64;
    assert_eq!(done(1, growing, 1.0).1, plain.1);
    assert_eq!(done(3, growing, 1.0).1, done(3, |_| 3.0, 1.0).1);
}

/// An objective that gives what its fields say, whatever it is asked of.
struct Given {
    terms: &'static [&'static str],
    counts: usize,
    /// How many numbers each sum has.
    sums: &'static [usize],
}

impl Objective for Given {
    type Model = BertForPreTraining;
    type Batch = ();

    fn terms(&self, _: u64) -> Vec<Term> {
        self.terms.iter().map(|name| Term::new(*name)).collect()
    }

    fn counts(&self, (): &()) -> Vec<f64> {
        vec![1.0; self.counts]
    }

    fn sums(&self, model: &Self::Model, (): &(), _: &Device) -> Vec<Tensor<1>> {
        let loss = model.mlm.bias.as_ref().unwrap().val().sum();
        self.sums.iter().map(|n| loss.clone().expand([*n])).collect()
    }
}

#[test]
fn an_objective_gives_one_count_and_one_sum_for_each_term() {
    let _held = crate::generator();
    let config = bert(0.0);
    let done = |objective: Given| {
        let model = model(&config);
        let mut optimizer = optimizer(&model);
        let before = (weights::collect(&model), optimizer.state(&model));
        let (model, report) =
            step(&objective, model, &mut optimizer, &[(), ()], &device(), constants(1), &Alone);
        let changed = (weights::collect(&model), optimizer.state(&model)) != before;
        assert_eq!(changed, report.is_ok(), "the optimiser moves exactly where there is no error");
        report.map_err(|error| error.to_string())
    };
    const TERMS: &[&str] = &["a_loss", "b_loss"];
    done(Given { terms: TERMS, counts: 2, sums: &[1, 1] }).unwrap();
    let expected = |given: &str| format!("the training objective {given}");
    for (counts, sums, problem) in [
        (1, &[1, 1][..], "gives 1 counts for its 2 terms (a_loss, b_loss); expected one each"),
        (3, &[1, 1], "gives 3 counts for its 2 terms (a_loss, b_loss); expected one each"),
        (2, &[1], "gives 1 sums for its 2 terms (a_loss, b_loss); expected one each"),
        (2, &[1, 1, 1], "gives 3 sums for its 2 terms (a_loss, b_loss); expected one each"),
        (2, &[1, 4], "has 4 numbers as the sum of its term `b_loss`; expected one"),
    ] {
        assert_eq!(done(Given { terms: TERMS, counts, sums }).unwrap_err(), expected(problem));
    }
    let none = done(Given { terms: &[], counts: 0, sums: &[] }).unwrap_err();
    assert_eq!(none, expected("has no terms; expected at least one"));
}

/// A corpus and a config in a folder, to make whole runs of.
struct Bench {
    folder: TempDir,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (who, what) = (["The senate", "A farmer", "Our nation"], ["law", "harvest", "road", "debt"]);
        let mut text = String::new();
        for (document, sentence) in (0..30).flat_map(|d| (0..10).map(move |s| (d, s))) {
            let (who, what) = (who[(document + sentence) % 3], what[(document * 3 + sentence) % 4]);
            writeln!(text, "{who} saw the {what} of year {} and spoke of it.", 1800 + document + sentence)
                .unwrap();
            if sentence == 9 {
                text.push('\n');
            }
        }
        let corpus = folder.path().join("corpus.txt");
        std::fs::write(&corpus, text).unwrap();
        let config = format!(
            r"
            corpus.files = ['{}']
            tokenizer = {{ kind = 'train-wordpiece', vocab_size = 160 }}
            examples = {{ seq_len = 32, pairs.kind = 'next-sentence' }}
            train = {{ steps = 8, batch_size = 4, accumulate = 2 }}
            optimizer.lr = 1e-3
            schedule = {{ kind = 'constant' }}
            eval = {{ heldout_fraction = 0.2, every = 3, max_examples = 16 }}
            checkpoint = {{ every = 2, keep_last = 2 }}
            log.every = 2
            model = {{ n_layers = 1, d_model = 16, n_heads = 2, d_ff = 32, max_positions = 32 }}
            ",
            corpus.display()
        );
        std::fs::write(folder.path().join("run.toml"), config).unwrap();
        Self { folder }
    }

    fn path(&self, out: &str) -> PathBuf {
        self.folder.path().join(out)
    }

    fn run(
        &self,
        out: &str,
        sets: &[&str],
        resume: bool,
        stop: &AtomicBool,
        progress: &mut dyn RunProgress,
    ) -> Result<Outcome, TrainerError> {
        let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
        let config = RunConfig::load(self.path("run.toml"), &sets)?;
        let options = RunOptions::new(Device::flex(), self.path(out))
            .cache(self.path("cache"))
            .resume(resume)
            .stop(stop);
        pretrain(&config, &options, progress)
    }

    /// Makes a whole run; returns the trained parameters as they were saved.
    fn finish(&self, out: &str, sets: &[&str]) -> NamedTensors {
        let outcome = self.run(out, sets, false, &AtomicBool::new(false), &mut Silent).unwrap();
        let Outcome::Done { model, .. } = outcome else { panic!("{outcome:?}") };
        huggingface::read_tensors(&model.join("model.safetensors")).unwrap()
    }

    /// Stops a run after step 4 and makes one parameter in its checkpoint NaN.
    fn stop_and_poison(&self, out: &str, sets: &[&str]) -> (Checkpoints, Checkpoint) {
        stop_after(self, out, sets, false, 4);
        let checkpoints = Checkpoints::open(self.path(out).join("checkpoints")).unwrap();
        let mut checkpoint = checkpoints.latest().unwrap().0.unwrap();
        assert_eq!(checkpoint.state.step, 4);
        let norm = checkpoint.model.get_mut("mlm.norm.beta").unwrap();
        *norm = TensorData::new(vec![f32::NAN; norm.num_elements()], norm.shape().clone());
        checkpoints.save(&checkpoint).unwrap();
        (checkpoints, checkpoint)
    }
}

/// Stops a run after `step`.
fn stop_after(bench: &Bench, out: &str, sets: &[&str], resume: bool, step: u64) {
    let stop = AtomicBool::new(false);
    let outcome = bench.run(out, sets, resume, &stop, &mut StopAfter(step, &stop)).unwrap();
    assert_eq!(outcome, Outcome::Stopped { step });
}

fn records(run: &Path) -> Vec<Record> {
    jsonl::read(&run.join(METRICS_FILE)).unwrap()
}

#[test]
fn how_often_a_run_is_evaluated_changes_no_bit() {
    let _held = crate::generator();
    let bench = Bench::new();
    let often = bench.finish("often", &["eval.every=1"]);
    let never = bench.finish("never", &["eval.every=1000"]);
    let evaluations = |run| {
        records(&bench.path(run)).iter().filter(|record| matches!(record, Record::Evaluation(_))).count()
    };
    assert_eq!((evaluations("often"), evaluations("never")), (9, 2));
    assert!(often == never, "the trained parameters differ");
    assert!(often.keys().all(|name| !name.contains("decoder.weight")), "{:?}", often.keys());
}

#[test]
fn spans_are_learnt_from_their_boundaries_and_an_interruption_changes_no_bit() {
    let _held = crate::generator();
    let bench = Bench::new();
    let sets = [
        "objective.kind=span-boundary",
        "examples.pairs={ kind = \"doc-sentences\" }",
        "examples.masking.unit=whole-word",
        "train.steps=40",
        "optimizer.lr=1e-2",
        "checkpoint.every=4",
    ];
    let whole = bench.finish("whole", &sets);
    assert!(whole.contains_key("span_boundary.first.weight"), "{:?}", whole.keys());
    stop_after(&bench, "stopped", &sets, false, 6);
    let outcome = bench.run("stopped", &sets, true, &AtomicBool::new(false), &mut Silent).unwrap();
    let Outcome::Done { model, .. } = outcome else { panic!("{outcome:?}") };
    assert!(whole == huggingface::read_tensors(&model.join("model.safetensors")).unwrap());

    let losses: Vec<f64> = records(&bench.path("whole"))
        .iter()
        .filter_map(|record| match record {
            Record::Evaluation(evaluation) => evaluation.figures.get("boundary_loss"),
            _ => None,
        })
        .collect();
    let (first, last) = (losses[0], *losses.last().unwrap());
    assert!(last < first - 0.3, "{first} to {last}");
}

/// What makes the bench's run one of ELECTRA's.
const REPLACED: [&str; 4] = [
    "objective={ kind = \"replaced-tokens\", generator_size = 0.5 }",
    "examples.pairs={ kind = \"doc-sentences\" }",
    "examples.masking={ mask_share = 0.85, random_share = 0.0 }",
    "checkpoint.every=4",
];

/// The tensors of both models that an ELECTRA's run leaves in its model's folder.
fn both(model: &Path) -> [NamedTensors; 2] {
    [model, &model.join("generator")]
        .map(|folder| huggingface::read_tensors(&folder.join("model.safetensors")).unwrap())
}

#[test]
fn replaced_tokens_are_detected_and_an_interruption_changes_no_bit() {
    let _held = crate::generator();
    let bench = Bench::new();
    let sets = [&REPLACED[..], &["train.steps=60", "optimizer.lr=1e-2", "eval.every=10"]].concat();
    bench.finish("whole", &sets);
    let whole = both(&bench.path("whole/model"));
    stop_after(&bench, "stopped", &sets, false, 6);
    let outcome = bench.run("stopped", &sets, true, &AtomicBool::new(false), &mut Silent).unwrap();
    let Outcome::Done { model, figures } = outcome else { panic!("{outcome:?}") };
    assert!(whole == both(&model), "the trained parameters differ");

    // Both are folders of transformers', with the same embeddings and their tokenizer.
    for (folder, architecture) in
        [(model.clone(), Architecture::ReplacedTokens), (model.join("generator"), Architecture::MaskedLm)]
    {
        let opened = huggingface::PretrainedFolder::open(&folder).unwrap();
        assert_eq!((opened.config.family, opened.config.architecture), (Family::ELECTRA, architecture));
        assert!(folder.join("tokenizer.json").is_file());
    }
    let [discriminator, generator] = &whole;
    let shared: Vec<&String> = generator.keys().filter(|name| name.contains(".embeddings.")).collect();
    assert_eq!(shared.len(), 5, "{:?}", generator.keys());
    assert!(shared.iter().all(|name| generator[*name] == discriminator[*name]));

    let records = records(&bench.path("whole"));
    let of = |figure: &str| -> Vec<f64> {
        let figures = records.iter().filter_map(|record| match record {
            Record::Evaluation(evaluation) => evaluation.figures.get(figure),
            _ => None,
        });
        figures.collect()
    };
    for figure in ["masked_loss", "replaced_loss"] {
        let losses = of(figure);
        let (first, last) = (losses[0], *losses.last().unwrap());
        assert!(last < first - 0.1, "{figure}: {first} to {last}");
    }
    assert!(of("replaced_share").iter().all(|share| (0.01..0.2).contains(share)));
    // The loss that is told has the weight, its terms have not.
    let trained = records.iter().find_map(|record| match record {
        Record::Train(record) => Some(record.clone()),
        _ => None,
    });
    let TrainRecord { loss, losses, .. } = trained.unwrap();
    let term = |name: &str| losses.iter().find(|(known, _)| *known == name).unwrap().1;
    let expected = term("masked_loss") + 50.0 * term("replaced_loss");
    assert!((loss / expected - 1.0).abs() < 1e-9, "{loss} is not {expected}");
    assert!(figures.iter().any(|(split, _)| split == "heldout"));
}

#[test]
fn the_best_discriminator_is_the_result_and_is_gone_on_with() {
    let _held = crate::generator();
    let bench = Bench::new();
    let sets = [&REPLACED[..], &["eval.patience=9", "optimizer.lr=1e-2"]].concat();
    let outcome = bench.run("best", &sets, false, &AtomicBool::new(false), &mut Silent).unwrap();
    let Outcome::Done { model, .. } = outcome else { panic!("{outcome:?}") };
    let before = both(&model);

    let path = format!("model={{ path = {model:?} }}");
    let more = ["tokenizer={ kind = \"checkpoint\" }", "train.steps=1", "optimizer.lr=1e-50"];
    let sets = [&REPLACED[..], &[path.as_str()], &more[..]].concat();
    bench.finish("further", &sets);
    assert!(before == both(&bench.path("further/model")), "a rate of next to nothing changes nothing");
    let narrower = [&sets[..], &["objective.generator_size=0.25"]].concat();
    let refused = |out: &str, sets: &[&str]| {
        bench.run(out, sets, false, &AtomicBool::new(false), &mut Silent).unwrap_err().to_string()
    };
    let message = refused("narrower", &narrower);
    assert!(message.contains("generator") && message.contains("has shape"), "{message}");
    // Without its generator it has a new one.
    std::fs::remove_dir_all(model.join("generator")).unwrap();
    bench.finish("anew", &narrower);
    let after = both(&bench.path("anew/model"));
    assert!(before[0] == after[0] && before[1] != after[1]);

    bench.finish("bert", &["examples.pairs={ kind = \"doc-sentences\" }"]);
    let path = format!("model={{ path = {:?} }}", bench.path("bert/model"));
    let message = refused("of-bert", &[&REPLACED[..], &[path.as_str()], &more[..]].concat());
    assert_eq!(
        message,
        "`objective.kind` is \"replaced-tokens\"; expected \"masked\" or \"span-boundary\": BERT has no class of \
         discriminators"
    );
}

#[test]
fn a_generator_takes_memory() {
    let _held = crate::generator();
    let bench = Bench::new();
    let needed = |sets: &[&str]| -> f64 {
        let large = ["model.n_layers=12", "model.d_model=64", "train.batch_size=400"];
        let sets: Vec<String> = REPLACED.iter().chain(&large).chain(sets).map(ToString::to_string).collect();
        let config = RunConfig::load(bench.path("run.toml"), &sets).unwrap();
        let stop = AtomicBool::new(true);
        let options = RunOptions::new(Device::flex(), bench.path("out"))
            .cache(bench.path("cache"))
            .memory(Some(1))
            .stop(&stop);
        let error = pretrain(&config, &options, &mut Silent).unwrap_err();
        let TrainerError::Memory { needs, .. } = error else { panic!("{error}") };
        needs.strip_suffix(" MB").unwrap().parse().unwrap()
    };
    let (small, half, whole) = (
        needed(&["objective.generator_size=0.01"]),
        needed(&["objective.generator_size=0.5"]),
        needed(&["objective.generator_size=1"]),
    );
    assert!(small < 0.9 * half && half < 0.9 * whole, "{small}, {half}, {whole} MB");
}

#[test]
fn a_loss_that_is_not_finite_stops_the_run_and_names_where() {
    let _held = crate::generator();
    let bench = Bench::new();
    let (checkpoints, poisoned) = bench.stop_and_poison("run", &[]);
    let error = bench.run("run", &[], true, &AtomicBool::new(false), &mut Silent).unwrap_err();
    let message = error.to_string();
    let TrainerError::NonFinite { step, epoch, example, checkpoint, .. } = error else {
        panic!("{message}");
    };
    assert_eq!(step, 5);
    let cursor = poisoned.state.cursor;
    assert_eq!((epoch, example), (cursor.epoch, cursor.example));
    assert_eq!(checkpoint, Some(checkpoints.path(4)));
    for part in ["step 5: the loss is not finite (masked_loss NaN", "step-00000004", "\"skip\""] {
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
}

#[test]
fn a_rate_that_is_far_too_high_stops_the_run() {
    let _held = crate::generator();
    let bench = Bench::new();
    let error =
        bench.run("run", &["optimizer.lr=1e38"], false, &AtomicBool::new(false), &mut Silent).unwrap_err();
    assert!(matches!(error, TrainerError::NonFinite { step: 2, checkpoint: None, .. }), "{error}");
}

#[test]
fn skipped_steps_are_counted_and_a_run_of_them_can_be_resumed() {
    let _held = crate::generator();
    let bench = Bench::new();
    let sets = ["train.non_finite=skip", "checkpoint.keep_last=9"];
    let (checkpoints, poisoned) = bench.stop_and_poison("run", &sets);
    // All steps are made, and a model that is nothing but NaN is not saved.
    let error = bench.run("run", &sets, true, &AtomicBool::new(false), &mut Silent).unwrap_err();
    assert!(matches!(error, TrainerError::Model(ModelError::NonFinite { .. })), "{error}");
    assert!(!bench.path("run/model").exists());

    let last = records(&bench.path("run")).into_iter().rev().find_map(|record| match record {
        Record::Train(record) => Some(record),
        _ => None,
    });
    let TrainRecord { step, loss, skipped_steps, .. } = last.unwrap();
    assert_eq!((step, skipped_steps), (8, 4));
    assert!(loss.is_nan(), "{loss} is the mean of no step");

    let (newest, refused) = checkpoints.latest().unwrap();
    assert!(refused.is_empty(), "{refused:?}");
    let state = newest.unwrap().state;
    assert_eq!((state.step, state.updates), (8, 4));
    assert_eq!(state.best, poisoned.state.best, "a NaN is no best loss");
}

#[test]
fn an_evaluation_that_is_not_finite_is_never_the_best() {
    let _held = crate::generator();
    let bench = Bench::new();
    // After the first step every loss is NaN, the first evaluation's too.
    let sets = ["train.non_finite=skip", "optimizer.lr=1e38"];
    let error = bench.run("run", &sets, false, &AtomicBool::new(false), &mut Silent).unwrap_err();
    assert!(matches!(error, TrainerError::Model(ModelError::NonFinite { .. })), "{error}");
    let checkpoints = Checkpoints::open(bench.path("run").join("checkpoints")).unwrap();
    let (newest, refused) = checkpoints.latest().unwrap();
    assert!(refused.is_empty(), "{refused:?}");
    let state = newest.unwrap().state;
    assert_eq!((state.step, state.updates, state.best), (8, 1, None));
}

#[test]
fn a_damaged_checkpoint_does_not_push_out_good_ones() {
    let _held = crate::generator();
    let bench = Bench::new();
    let whole = bench.finish("whole", &[]);

    let few = ["checkpoint.keep_last=1", "checkpoint.keep_best=false"];
    stop_after(&bench, "run", &few[1..], false, 4);
    let checkpoints = Checkpoints::open(bench.path("run").join("checkpoints")).unwrap();
    assert_eq!(checkpoints.steps().unwrap(), [2, 4]);
    std::fs::write(checkpoints.path(4).join("state.json"), "{}").unwrap();
    // The one of step 3, made now, is older than the damaged one by its number.
    stop_after(&bench, "run", &few, true, 3);
    assert_eq!(checkpoints.steps().unwrap(), [3]);
    let outcome = bench.run("run", &[], true, &AtomicBool::new(false), &mut Silent).unwrap();
    let Outcome::Done { model, .. } = outcome else { panic!("{outcome:?}") };
    let resumed = huggingface::read_tensors(&model.join("model.safetensors")).unwrap();
    assert!(resumed == whole, "the trained parameters differ");
}

/// Keeps what a run says, and asks it to stop after a step.
struct Notes<'a>(Vec<String>, StopAfter<'a>);

impl RunProgress for Notes<'_> {
    fn step(&mut self, status: &Status) {
        self.1.step(status);
    }

    fn note(&mut self, line: &str) {
        self.0.push(line.to_owned());
    }
}

#[test]
fn a_run_says_which_way_bf16_goes_and_that_it_goes_another_way_than_before() {
    let _held = crate::generator();
    let bench = Bench::new();
    let bf16 = ["train.precision=bf16"];
    let whole = bench.finish("whole", &bf16);
    let here = kernels().bf16;
    stop_after(&bench, "run", &bf16, false, 4);
    let checkpoints = Checkpoints::open(bench.path("run").join("checkpoints")).unwrap();
    // As a machine with other instructions wrote it, and a version that knew of none.
    for (step, recorded, told) in [(5, "an abacus", 1), (6, "", 0), (7, here, 0)] {
        let mut checkpoint = checkpoints.latest().unwrap().0.unwrap();
        assert_eq!((checkpoint.state.step, checkpoint.state.kernel.as_str()), (step - 1, here));
        checkpoint.state.kernel = recorded.into();
        checkpoints.save(&checkpoint).unwrap();
        let stop = AtomicBool::new(false);
        let mut notes = Notes(Vec::new(), StopAfter(step, &stop));
        assert_eq!(bench.run("run", &bf16, true, &stop, &mut notes).unwrap(), Outcome::Stopped { step });
        let count = |part: &str| notes.0.iter().filter(|note| note.contains(part)).count();
        assert_eq!(count(&format!("({recorded}) than here ({here})")), told, "{:?}", notes.0);
        assert_eq!(count(&format!("bf16 products: {here}")), 1, "{:?}", notes.0);
    }
    let outcome = bench.run("run", &bf16, true, &AtomicBool::new(false), &mut Silent).unwrap();
    let Outcome::Done { model, .. } = outcome else { panic!("{outcome:?}") };
    let resumed = huggingface::read_tensors(&model.join("model.safetensors")).unwrap();
    assert!(resumed == whole, "the trained parameters differ");
}

#[test]
fn bf16_trains_as_f32_does_up_to_its_rounding() {
    let _held = crate::generator();
    let config = bert(0.0);
    let losses = |precision| {
        let mut model = model(&config);
        let mut optimizer = optimizer(&model);
        let mut losses = Vec::new();
        for number in 1..=20 {
            let constants = StepConfig { precision, ..constants(number) };
            let done = step(
                &<BertPretraining>::default(),
                model,
                &mut optimizer,
                &[batch(0..6)],
                &device(),
                constants,
                &Alone,
            );
            model = done.0;
            losses.push(done.1.unwrap().losses[0]);
        }
        losses
    };
    let (f32, bf16) = (losses(Precision::Fp32), losses(Precision::Bf16));
    assert_eq!(bf16, losses(Precision::Bf16), "the same bits each time");
    assert_ne!(f32, bf16);
    assert!(f32[19] < 0.9 * f32[0], "{f32:?}");
    for (a, b) in f32.iter().zip(&bf16) {
        assert!((a - b).abs() < 0.02 * a, "{f32:?}\n{bf16:?}");
    }
}
