//! What a run does before its first step.

use super::super::config::{FineTuneConfig, TaskSection};
use super::super::evaluate::{figures, n_tokens};
use super::super::reading::Data;
use super::super::task::{Encoded, Task, bad_setting, n_cut};
use super::measure::watched;
use super::{Begun, Run};
use crate::fit::check_fit;
use crate::layer_decay::layer_decay;
use crate::memory::{Keys, Load, MemoryEstimate, check, n_parameters};
use crate::metrics::progress::RunProgress;
use crate::metrics::summary;
use crate::optimizer::OptimizerConfig;
use crate::recompute;
use crate::training::{Start, Training};
use crate::{Result, TrainerError};
use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Tensor};
use cloze_data::derive_seed;
use cloze_data::labelled::{BatchSize, Buckets};
use cloze_model::bert::BertConfig;
use cloze_model::huggingface::{Checkpoint as Pretrained, LoadReport};
use cloze_model::{ParamInit, first_layers, freeze};
use std::time::Instant;

/// Tells the new parameters' random numbers from all others that a seed gives.
const INIT_STREAM: u64 = 0xF17E;
/// The same for the order of the examples.
const ORDER_STREAM: u64 = 0x0DE5;

/// Steps of a run at most.
const MOST_STEPS: u64 = 1 << 40;
/// Numbers that a split's summaries may have: a gibibyte of them.
const MOST_SUMMARIES: usize = 1 << 28;

impl<'a, T: Task> Run<'a, T> {
    pub(super) fn start(
        begun: Begun<'a>,
        task: &'a T,
        data: Data<T>,
        progress: &mut dyn RunProgress,
    ) -> Result<Self> {
        let Begun { config, options, folder, tokenizer } = begun;
        if data.train.features.is_empty() {
            return Err(TrainerError::NoExamples { split: "training" });
        }
        // Known before the first step, and not after the first epoch.
        figures(&*task.predictions(&[], &[], &[]), config.eval.metric.as_deref())?;
        let device = options.device.clone().autodiff();
        recompute::check(config.train.recompute, &device)?;
        let seed = config.run.seed;
        let mut init = ParamInit::new(&device, derive_seed(seed, &[INIT_STREAM])).with_std(0.02);
        let pretrained = Pretrained::open(&config.model.path)?;
        let pretrained = if config.model.untrained { pretrained.without_weights() } else { pretrained };
        let (encoder, model, report) = task.model(pretrained, &config.model.dropout, &mut init)?;
        check_fit(tokenizer, &encoder, &config.model.path, task.has_pairs())?;
        if config.data.max_len > encoder.max_positions {
            let expected = format!("at most {}, the checkpoint's positions", encoder.max_positions);
            return Err(bad_setting("data.max_len", config.data.max_len, expected));
        }
        let mut model = Self::prepare(config, task, &encoder, model, &mut init)?;
        recompute::set(task.encoder(&mut model), config.train.recompute);
        let (parameters, trained) = (n_parameters(&model), n_trained(&model) as u64);
        let lengths: Vec<usize> =
            data.train.features.iter().map(|features| n_tokens(task, features)).collect();
        let size = BatchSize::Examples(config.train.batch_size);
        let buckets = Buckets::new(lengths, size, derive_seed(seed, &[ORDER_STREAM]));
        let batches = buckets.epoch(0);
        let load = Load { recompute: config.train.recompute, ..load(task, &data.train.features, &batches) };
        let memory = MemoryEstimate::new(&encoder, parameters, trained, load);
        check(&memory, options.memory, &keys(config, &options.device))?;
        // Batches of so many examples are as many in every epoch.
        let epoch = batches.len() as u64;
        let epochs = config.train.epochs;
        let steps = epochs.checked_mul(epoch).filter(|steps| *steps <= MOST_STEPS).ok_or_else(|| {
            bad_setting(
                "train.epochs",
                epochs,
                format!("at most {MOST_STEPS} steps together, {epoch} in each"),
            )
        })?;

        let start = Start {
            folder: &folder,
            device,
            optimizer: optimizer(config, &encoder),
            data: fingerprint(task, &data.train.features),
            precision: config.train.precision,
            resume: options.resume,
        };
        let changed = |checkpoint| TrainerError::ExamplesChanged { checkpoint };
        let training = Training::begin(start, model, changed, progress)?;
        let mut run =
            Self { config, task, folder, encoder, training, data, buckets, epoch, steps, tokenizer };
        run.model_folder().check()?;
        run.introduce(&report, progress);
        progress.note(&format!("memory: {memory}"));
        run.summarise(progress);
        Ok(run)
    }

    /// Freezes what is not to be trained, and attaches adapters.
    fn prepare(
        config: &FineTuneConfig,
        task: &T,
        encoder: &BertConfig,
        mut model: T::Model,
        init: &mut ParamInit,
    ) -> Result<T::Model> {
        let section = &config.model;
        if let Some(adapters) = &section.lora {
            if adapters.rank > encoder.d_model {
                let expected = format!("at most {}, the encoder's width", encoder.d_model);
                return Err(bad_setting("model.lora.rank", adapters.rank, expected));
            }
            model = task.map_encoder(model, |bert| Ok(adapters.attach(bert, init)?))?;
        }
        let mut frozen = section.freeze.clone();
        if let Some(n_layers) = section.freeze_layers {
            if n_layers > encoder.n_layers {
                let expected = format!("at most {}, the checkpoint's layers", encoder.n_layers);
                return Err(bad_setting("model.freeze_layers", n_layers, expected));
            }
            frozen.extend(first_layers(n_layers));
        }
        let model = if frozen.is_empty() { model } else { freeze(model, &frozen)? };
        if n_trained(&model) == 0 && config.train.epochs > 0 {
            let expected = "patterns that leave something to train".into();
            return Err(bad_setting("model.freeze", section.freeze.join(", "), expected));
        }
        Ok(model)
    }

    /// Encodes the examples ahead where the run does not change the encoder: not in every epoch anew.
    fn summarise(&mut self, progress: &mut dyn RunProgress) {
        let Self { config, task, encoder, training, data, .. } = self;
        let changes = n_trained(task.encoder(training.model_mut())) > 0;
        let drops = encoder.hidden_dropout > 0.0 || encoder.attention_dropout > 0.0;
        if changes || drops || config.train.epochs < 2 {
            return;
        }
        let (model, device) = (training.model().valid(), training.device.clone().inner());
        let tokens = config.eval.batch_tokens;
        let start = Instant::now();
        let splits =
            [("train", Some(&mut data.train)), ("dev", data.dev.as_mut()), ("test", data.test.as_mut())];
        let mut kept = 0;
        for (name, split) in splits {
            let Some(Encoded { features, .. }) = split else { continue };
            if features.len() * encoder.d_model > MOST_SUMMARIES {
                continue;
            }
            let work = format!("encoding {name}");
            if task.summarise(&model, features, tokens, &device, &mut watched(&work, progress)) {
                kept += features.len();
            }
        }
        if kept > 0 {
            progress.note(&format!(
                "the encoder stays as it is, without dropout: {} examples encoded once, in {:.0} s",
                summary::grouped(kept as u64),
                start.elapsed().as_secs_f64()
            ));
        }
    }

    /// What the user should know of the run before it begins.
    fn introduce(&self, report: &LoadReport, progress: &mut dyn RunProgress) {
        let Self { config, data, .. } = self;
        let model = self.training.model();
        let (parameters, trained) = (model.num_params(), n_trained(model));
        let count = |split: &Option<Encoded<_, _>>| {
            split.as_ref().map_or("–".into(), |split| summary::grouped(split.examples.len() as u64))
        };
        let trained = if trained < parameters { summary::grouped(trained as u64) } else { String::new() };
        progress.note(&summary::facts(
            "fine-tuning",
            [
                ("checkpoint", config.model.path.display().to_string()),
                ("parameters", summary::grouped(parameters as u64)),
                ("  trained", trained),
                ("new", if config.model.untrained { "all".into() } else { report.missing.join(", ") }),
                ("not used", report.unexpected.join(", ")),
                ("training examples", summary::grouped(data.train.examples.len() as u64)),
                ("development, test", format!("{}, {}", count(&data.dev), count(&data.test))),
                ("steps", summary::grouped(self.steps)),
            ]
            .into_iter()
            .filter(|(_, value)| !value.is_empty()),
        ));
        let splits = [Some(&data.train), data.dev.as_ref(), data.test.as_ref()];
        let cut: usize = splits.into_iter().flatten().map(|split| n_cut(self.task, &split.features)).sum();
        if cut > 0 {
            let (cut, max_len) = (summary::grouped(cut as u64), config.data.max_len);
            progress.note(&format!("examples with more than {max_len} tokens, which were cut: {cut}"));
        }
        let warmup = config.schedule.warmup_steps();
        if warmup > self.steps {
            progress.note(&format!(
                "the warm-up of {warmup} steps is longer than the run, whose learning rate stays below \
                 `optimizer.lr`: lower `schedule.warmup_steps`"
            ));
        }
        if data.dev.is_none() && self.steps > 0 {
            progress.note("no development data: the last model is saved, whatever it is worth");
        }
    }
}

/// The largest of these batches; layers are kept.
fn load<T: Task>(task: &T, features: &[T::Features], batches: &[Vec<usize>]) -> Load {
    let tokens = |batch: &[usize]| batch.iter().map(|i| n_tokens(task, &features[*i])).sum::<usize>();
    let largest = batches.iter().max_by_key(|batch| tokens(batch)).map_or(&[][..], Vec::as_slice);
    let sequences: usize = largest.iter().map(|i| task.sequences(&features[*i]).len()).sum();
    let mean_len = tokens(largest) as f64 / sequences.max(1) as f64;
    Load { sequences: sequences as u64, mean_len, predicted: 0.0, batches: 1, recompute: false }
}

/// What of a config decides how much memory a run needs.
fn keys(config: &FineTuneConfig, device: &Device) -> Keys {
    let FineTuneConfig { model, train, data, .. } = config;
    Keys {
        can_recompute: !train.recompute && recompute::is_possible(device),
        model: format!("the model's size, which `model.path` ({}) decides", model.path.display()),
        batch: format!("`train.batch_size` ({}) or `data.max_len` ({})", train.batch_size, data.max_len),
    }
}

/// How many of a model's numbers are trained.
fn n_trained<M: Module>(model: &M) -> usize {
    struct Trained(usize);

    impl ModuleVisitor for Trained {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if param.is_require_grad() {
                self.0 += param.shape().num_elements();
            }
        }
    }

    let mut trained = Trained(0);
    model.visit(&mut trained);
    trained.0
}

/// The optimiser's constants, with the groups of layer-wise decay after those of the config.
fn optimizer(config: &FineTuneConfig, encoder: &BertConfig) -> OptimizerConfig {
    let mut constants = config.optimizer.constants();
    if let TaskSection::Tagging(section) = &config.task {
        constants.groups.extend(section.group());
    }
    if let Some(decay) = config.model.layer_decay.filter(|decay| *decay < 1.0) {
        constants.groups.extend(layer_decay(decay, encoder.n_layers));
    }
    constants
}

/// Which examples these are, in which order: a hash of their tokens.
fn fingerprint<T: Task>(task: &T, features: &[T::Features]) -> String {
    let mut hasher = blake3::Hasher::new();
    for sequence in features.iter().flat_map(|features| task.sequences(features)) {
        hasher.update(&(sequence.len() as u64).to_le_bytes());
        for id in &sequence.input_ids {
            hasher.update(&id.to_le_bytes());
        }
    }
    hasher.finalize().to_hex().to_string()
}
