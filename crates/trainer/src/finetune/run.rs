//! A fine-tuning run from the config to the saved model.

use super::answers::AnswerTask;
use super::choices::ChoiceTask;
use super::config::{FineTuneConfig, TaskSection};
use super::evaluate::{figures, n_tokens, predict};
use super::model_folder::{ModelFolder, TaskFile};
use super::prompt::PromptTask;
use super::reading::{Data, Reading, few};
use super::tags::TagTask;
use super::task::{Encoded, Task, TaskObjective, bad_setting, n_cut};
use super::texts::TextTask;
use crate::checkpoint::{Best, Checkpoint, Checkpoints, CursorState, RunState, Window};
use crate::config::NonFinite;
use crate::evaluation::figures::{Better, Figures};
use crate::evaluation::report::Report;
use crate::layer_decay::layer_decay;
use crate::metrics::progress::{Meter, RunProgress, Status};
use crate::metrics::{FiguresRecord, METRICS_FILE, MetricsLog, Record, Timing, TuningRecord};
use crate::metrics::{curve, jsonl, summary};
use crate::optimizer::{Optimizer, OptimizerConfig};
use crate::run::RunOptions;
use crate::run_folder::{RunFolder, write_whole, write_whole_folder};
use crate::step::{StepConfig, step};
use crate::{Result, TrainerError};
use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Tensor};
use cloze_data::derive_seed;
use cloze_data::labelled::{BatchSize, Buckets, LabelledSource, TagReport};
use cloze_model::bert::{Bert, BertConfig};
use cloze_model::huggingface::{Checkpoint as Pretrained, LoadReport};
use cloze_model::{ParamInit, first_layers, freeze, lora, weights};
use cloze_tokenizer::Tokenizer;
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tracing::trace_span;

/// Tells the new parameters' random numbers from all others that a seed gives.
const INIT_STREAM: u64 = 0xF17E;
/// The same for the order of the examples.
const ORDER_STREAM: u64 = 0x0DE5;

/// Steps of a run at most.
const MOST_STEPS: u64 = 1 << 40;
/// Numbers that a split's summaries may have: a gibibyte of them.
const MOST_SUMMARIES: usize = 1 << 28;

/// How a run ended.
#[derive(Debug, Clone, PartialEq)]
pub enum FineTuned {
    /// The best model is saved in this Hugging Face folder.
    Done {
        /// The folder.
        model: PathBuf,
        /// Its figures on the development data, where there is any.
        dev: Option<Figures>,
        /// Its figures on the test data, where there is any.
        test: Option<Figures>,
    },
    /// It was stopped after this step, which has a checkpoint.
    Stopped {
        /// The last step made.
        step: u64,
    },
}

/// The figures of a run that has ended, as its folder keeps them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Ended {
    pub dev: Option<Figures>,
    pub test: Option<Figures>,
}

/// Fine-tunes a checkpoint as `config` says: data, steps, evaluations, the best model, its report.
///
/// # Errors
/// Whatever is wrong with the config's data, checkpoint, or run folder; a non-finite loss where the config says
/// to stop on one.
pub fn fine_tune(
    config: &FineTuneConfig,
    options: &RunOptions<'_>,
    progress: &mut dyn RunProgress,
) -> Result<FineTuned> {
    let folder = match options.resume {
        true => RunFolder::resume(&options.folder, config)?,
        false => RunFolder::create(&options.folder, config)?,
    };
    forget(&folder.result())?;
    let tokenizer = Tokenizer::load(&config.model.path)?;
    let max_len = config.data.max_len;
    let reading = Reading { config, held_out: folder.held_out(), progress: &mut *progress };
    let begun = Begun { config, options, folder, tokenizer: &tokenizer };
    match &config.task {
        section @ (TaskSection::Classification { .. } | TaskSection::Regression { .. }) => {
            let (task, examples, skipped) = TextTask::read(section, &config.data.train)?;
            let encode = |examples| TextTask::encode(&tokenizer, examples, max_len);
            let select = |examples| few(config, task.labels.as_ref(), examples);
            let read = |source: &LabelledSource| task.read_more(source);
            let data = reading.selected::<TextTask>((examples, skipped), read, encode, select)?;
            begun.run(&task, data, progress)
        }
        section @ TaskSection::Answers { .. } => {
            let (task, examples, skipped) = AnswerTask::read(section, &config.data.train)?;
            let encode = |examples| task.encode(&tokenizer, examples, max_len);
            let data =
                reading.data::<AnswerTask>((examples, skipped), |source| task.read_more(source), encode)?;
            begun.run(&task, data, progress)
        }
        TaskSection::MultipleChoice {} => {
            let task = ChoiceTask;
            let encode = |examples| task.encode(&tokenizer, examples, max_len);
            let train = task.read(&config.data.train)?;
            let data = reading.data::<ChoiceTask>(train, |source| task.read(source), encode)?;
            begun.run(&task, data, progress)
        }
        TaskSection::Prompt(section) => {
            let task = PromptTask::new(section, &tokenizer, &config.model.path)?;
            let encode = |examples| task.encode(&tokenizer, examples, max_len);
            let select = |examples| few(config, Some(&task.labels), examples);
            let train = task.read(&config.data.train)?;
            let data = reading.selected::<PromptTask>(train, |source| task.read(source), encode, select)?;
            begun.run(&task, data, progress)
        }
        TaskSection::Tagging(section) => {
            let (task, examples, skipped) = TagTask::read(section, &config.data.train)?;
            let mut lost = TagReport::default();
            let encode = |examples| {
                let (encoded, report) = task.encode(&tokenizer, examples, max_len)?;
                lost.truncated_words += report.truncated_words;
                lost.vanished_words += report.vanished_words;
                Ok(encoded)
            };
            let data =
                reading.data::<TagTask>((examples, skipped), |source| task.read_more(source), encode)?;
            let TagReport { truncated_words, vanished_words, .. } = lost;
            if truncated_words + vanished_words > 0 {
                progress.note(&format!(
                    "words without a tag of the model's: {truncated_words} cut off, {vanished_words} \
                     without pieces"
                ));
            }
            begun.run(&task, data, progress)
        }
    }
}

/// What a run has before its task and data.
struct Begun<'a> {
    config: &'a FineTuneConfig,
    options: &'a RunOptions<'a>,
    folder: RunFolder,
    tokenizer: &'a Tokenizer,
}

impl Begun<'_> {
    fn run<T: Task>(self, task: &T, data: Data<T>, progress: &mut dyn RunProgress) -> Result<FineTuned> {
        let stop = self.options.stop;
        Run::start(self, task, data, progress)?.finish(stop, progress)
    }
}

/// Removes a file, if it is there.
fn forget(path: &Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(TrainerError::io("remove", path)(error)),
        _ => Ok(()),
    }
}

const IN_PLACE: &str = "the model is in its place between steps";

/// A run under way.
struct Run<'a, T: Task> {
    config: &'a FineTuneConfig,
    task: &'a T,
    folder: RunFolder,
    checkpoints: Checkpoints,
    log: MetricsLog,
    device: Device,
    encoder: BertConfig,
    /// Out of its place during a step, which so finds its parameters held once and moves them where they are.
    model: Option<T::Model>,
    optimizer: Optimizer,
    data: Data<T>,
    buckets: Buckets,
    /// Steps of an epoch.
    epoch: u64,
    /// Steps of the whole run.
    steps: u64,
    state: RunState,
    tokenizer: &'a Tokenizer,
}

impl<'a, T: Task> Run<'a, T> {
    fn start(begun: Begun<'a>, task: &'a T, data: Data<T>, progress: &mut dyn RunProgress) -> Result<Self> {
        let Begun { config, options, folder, tokenizer } = begun;
        if data.train.features.is_empty() {
            return Err(TrainerError::NoExamples { split: "training" });
        }
        // Known before the first step, and not after the first epoch.
        figures(&*task.predictions(&[], &[], &[]), config.eval.metric.as_deref())?;
        let device = options.device.clone().autodiff();
        let seed = config.run.seed;
        let mut init = ParamInit::new(&device, derive_seed(seed, &[INIT_STREAM])).with_std(0.02);
        let pretrained = Pretrained::open(&config.model.path)?;
        let pretrained = if config.model.untrained { pretrained.without_weights() } else { pretrained };
        let (encoder, model, report) = task.model(pretrained, &config.model.dropout, &mut init)?;
        if tokenizer.vocab_size() > encoder.vocab_size {
            return Err(TrainerError::VocabularyMismatch {
                folder: config.model.path.clone(),
                tokenizer: tokenizer.vocab_size(),
                model: encoder.vocab_size,
            });
        }
        if config.data.max_len > encoder.max_positions {
            let expected = format!("at most {}, the checkpoint's positions", encoder.max_positions);
            return Err(bad_setting("data.max_len", config.data.max_len, expected));
        }
        let model = Self::prepare(config, task, &encoder, model, &mut init)?;
        let lengths: Vec<usize> =
            data.train.features.iter().map(|features| n_tokens(task, features)).collect();
        let fingerprint = fingerprint(task, &data.train.features);
        let size = BatchSize::Examples(config.train.batch_size);
        let buckets = Buckets::new(lengths, size, derive_seed(seed, &[ORDER_STREAM]));
        // Batches of so many examples are as many in every epoch.
        let epoch = buckets.epoch(0).len() as u64;
        let epochs = config.train.epochs;
        let steps = epochs.checked_mul(epoch).filter(|steps| *steps <= MOST_STEPS).ok_or_else(|| {
            bad_setting(
                "train.epochs",
                epochs,
                format!("at most {MOST_STEPS} steps together, {epoch} in each"),
            )
        })?;

        let checkpoints = Checkpoints::open(folder.checkpoints())?;
        let constants = optimizer(config, &encoder);
        let checkpoint = match options.resume {
            true => newest(&checkpoints, progress)?,
            false => None,
        };
        let (state, optimizer, log, model) = match checkpoint {
            Some(Checkpoint { state, model: parameters, optimizer }) => {
                if state.corpus != fingerprint {
                    return Err(TrainerError::ExamplesChanged { checkpoint: checkpoints.path(state.step) });
                }
                let model = weights::replace(model, parameters);
                let inner = device.clone().inner();
                let optimizer = Optimizer::restore(constants, state.updates, optimizer, &model, &inner)?;
                progress.note(&format!("resuming after step {}", state.step));
                let log = MetricsLog::resume(folder.path(), state.step)?;
                (state, optimizer, log, model)
            }
            None => {
                let state = RunState {
                    corpus: fingerprint,
                    step: 0,
                    updates: 0,
                    cursor: CursorState { epoch: 0, example: 0 },
                    tokens: 0,
                    best: None,
                    window: Window::default(),
                };
                let optimizer = Optimizer::new(constants, &model)?;
                (state, optimizer, MetricsLog::create(folder.path())?, model)
            }
        };
        let mut run = Self {
            config,
            task,
            folder,
            checkpoints,
            log,
            device,
            encoder,
            model: Some(model),
            optimizer,
            data,
            buckets,
            epoch,
            steps,
            state,
            tokenizer,
        };
        run.introduce(&report, progress);
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
        let Self { config, task, encoder, device, data, model, .. } = self;
        let model = model.as_mut().expect(IN_PLACE);
        let changes = n_trained(task.encoder(model)) > 0;
        let drops = encoder.hidden_dropout > 0.0 || encoder.attention_dropout > 0.0;
        if changes || drops || config.train.epochs < 2 {
            return;
        }
        let (model, device, tokens) = (model.valid(), device.clone().inner(), config.eval.batch_tokens);
        let start = Instant::now();
        let splits = [Some(&mut data.train), data.dev.as_mut(), data.test.as_mut()].into_iter().flatten();
        let kept: usize = splits
            .filter(|split| split.features.len() * encoder.d_model <= MOST_SUMMARIES)
            .filter_map(|split| {
                let kept = task.summarise(&model, &mut split.features, tokens, &device);
                kept.then_some(split.features.len())
            })
            .sum();
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
        let (parameters, trained) = (self.model().num_params(), n_trained(self.model()));
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

    /// Makes the steps that are left, and measures and reports what came of them.
    fn finish(mut self, stop: &AtomicBool, progress: &mut dyn RunProgress) -> Result<FineTuned> {
        let done = self.steps(stop, progress);
        progress.finish();
        if !done? {
            return Ok(FineTuned::Stopped { step: self.state.step });
        }
        // Nothing was measured: without development data, and without a step.
        if self.state.best.is_none() {
            self.export()?;
        }
        let model = self.folder.model();
        let best = self.best_model()?;
        let records = jsonl::read(&self.folder.path().join(METRICS_FILE))?;
        curve::draw(&self.folder.curve(), &self.config.run.name, &records)?;
        let mut measured = [None, None];
        for (place, split) in ["dev", "test"].into_iter().enumerate() {
            measured[place] = self.report(&best, split, progress)?;
        }
        let [dev, test] = measured;
        let ended = Ended { dev: dev.clone(), test: test.clone() };
        let text = serde_json::to_string_pretty(&ended).expect("figures are strings and numbers");
        write_whole(&self.folder.result(), (text + "\n").as_bytes())?;
        Ok(FineTuned::Done { model, dev, test })
    }

    /// Whether all steps were made, or as many as patience allowed.
    fn steps(&mut self, stop: &AtomicBool, progress: &mut dyn RunProgress) -> Result<bool> {
        let steps = self.steps;
        let start = Instant::now();
        let mut meter = Meter::new(start);
        let mut mark = start;
        let (mut trained, mut tokens_since) = (Duration::ZERO, 0);
        let buckets = self.buckets.clone();
        let mut batches = buckets.steps(self.state.step);
        // A short run has a learning curve too.
        let log_every = self.config.log.every.min(steps.div_ceil(20)).max(1);
        while self.state.step < steps && !self.has_stalled() {
            let Some(batch) = batches.next() else { break };
            let span = trace_span!("step").entered();
            let loss = self.step(&batch.examples, steps)?;
            drop(span);
            let number = self.state.step;
            let tokens = batch.examples.iter().map(|i| n_tokens(self.task, &self.data.train.features[*i]));
            let tokens = tokens.sum::<usize>() as u64;
            self.state.tokens += tokens;
            let now = Instant::now();
            trained += now - mark;
            tokens_since += tokens;
            let pace = meter.step(now, tokens, Duration::ZERO, steps - number);
            let learning_rate = self.learning_rate(number, steps);
            progress.step(&Status { step: number, steps, loss, learning_rate, pace });

            let (last, stopping) = (number == steps, stop.load(Ordering::Relaxed));
            if last || number.is_multiple_of(log_every) {
                let seconds = trained.as_secs_f64().max(f64::MIN_POSITIVE);
                let timing = Timing {
                    seconds: start.elapsed().as_secs_f64(),
                    tokens_per_second: tokens_since as f64 / seconds,
                    waiting: 0.0,
                };
                self.log_training(learning_rate, timing)?;
                (trained, tokens_since) = (Duration::ZERO, 0);
            }
            if self.is_evaluated_after(number) {
                self.evaluate(progress)?;
            }
            if last
                || stopping
                || batch.ends_epoch
                || number.is_multiple_of(self.config.checkpoint.every.max(1))
            {
                self.checkpoint()?;
            }
            if stopping && !last {
                return Ok(false);
            }
            mark = Instant::now();
            meter.skip_to(mark);
        }
        if self.state.step < steps
            && let Some(patience) = self.config.eval.patience
        {
            let step = self.state.step;
            let evaluations = if patience == 1 { "evaluation" } else { "evaluations" };
            progress.note(&format!(
                "step {step}: ended early, after {patience} {evaluations} without a better figure"
            ));
        }
        Ok(true)
    }

    fn step(&mut self, examples: &[usize], steps: u64) -> Result<f64> {
        let number = self.state.step + 1;
        let constants = StepConfig {
            seed: self.config.run.seed,
            step: number,
            lr: self.learning_rate(number, steps),
            clip_norm: self.config.optimizer.clip_norm,
            precision: self.config.train.precision.into(),
        };
        let batch: Vec<&T::Features> = examples.iter().map(|i| &self.data.train.features[*i]).collect();
        let model = self.model.take().expect(IN_PLACE);
        let objective = TaskObjective(self.task);
        let (model, report) = step(&objective, model, &mut self.optimizer, &[batch], &self.device, constants);
        self.model = Some(model);
        let loss = report.losses.iter().sum();
        if !report.updated && self.config.train.non_finite == NonFinite::Stop {
            return Err(TrainerError::NonFinite {
                step: number,
                losses: format!("loss {loss}"),
                grad_norm: report.grad_norm,
                epoch: self.epoch_of(number),
                example: examples.first().map_or(0, |example| *example as u64),
                checkpoint: self.checkpoints.steps()?.last().map(|step| self.checkpoints.path(*step)),
            });
        }
        self.state.step = number;
        self.state.updates += u64::from(report.updated);
        self.state.window.add(&report);
        Ok(loss)
    }

    fn model(&self) -> &T::Model {
        self.model.as_ref().expect(IN_PLACE)
    }

    fn learning_rate(&self, step: u64, steps: u64) -> f64 {
        self.config.schedule.learning_rate(self.config.optimizer.lr, step, steps)
    }

    /// The epoch, from 0, of a step.
    fn epoch_of(&self, step: u64) -> u64 {
        (step - 1) / self.epoch
    }

    /// Evaluations divide an epoch evenly.
    fn is_evaluated_after(&self, step: u64) -> bool {
        let place = step - self.epoch_of(step) * self.epoch;
        let parts = self.config.eval.per_epoch.min(self.epoch);
        // The steps at which another part of the epoch is done.
        place * parts / self.epoch > (place - 1) * parts / self.epoch
    }

    /// Whether so many evaluations have not been better that training ends.
    fn has_stalled(&self) -> bool {
        let (Some(patience), Some(best)) = (self.config.eval.patience, self.state.best) else {
            return false;
        };
        let since = (best.step + 1..=self.state.step).filter(|step| self.is_evaluated_after(*step));
        since.count() as u64 >= patience
    }

    fn log_training(&mut self, learning_rate: f64, timing: Timing) -> Result<()> {
        let window = std::mem::take(&mut self.state.window);
        let mean = |sum: f64| sum / window.updates as f64;
        self.log.write(&Record::Tuning(TuningRecord {
            step: self.state.step,
            loss: mean(window.losses.iter().sum()),
            learning_rate,
            grad_norm: mean(window.grad_norm),
            tokens: self.state.tokens,
            skipped_steps: self.state.step - self.state.updates,
            timing,
        }))
    }

    /// Measures on the development data, where there is any; a model better than all before is saved.
    fn evaluate(&mut self, progress: &mut dyn RunProgress) -> Result<()> {
        let Some(dev) = &self.data.dev else {
            return Ok(());
        };
        let _evaluation = trace_span!("evaluate").entered();
        let start = Instant::now();
        let model = self.model().valid();
        let device = self.device.clone().inner();
        let predictions = predict(self.task, &model, dev, self.config.eval.batch_tokens, &device);
        let figures = figures(&*predictions, self.config.eval.metric.as_deref())?;
        let step = self.state.step;
        let (name, value) = figures.main();
        progress.note(&format!("step {step}: {}", line(&figures)));
        let loss = figures.get("loss").filter(|_| name != "loss");
        // Between equals the loss decides: it still falls when every example is right.
        let improves = self.state.best.is_none_or(|best| {
            let falls = || loss.zip(best.tie).is_some_and(|(loss, least)| loss < least);
            Better::of(name).improves(value, best.loss) || value == best.loss && falls()
        });
        self.log.write(&Record::Figures(FiguresRecord {
            step,
            split: "dev".into(),
            figures,
            seconds: start.elapsed().as_secs_f64(),
        }))?;
        if improves {
            self.state.best = Some(Best { step, loss: value, tie: loss });
            self.export()?;
        }
        Ok(())
    }

    /// Saves the model as it is, adapters merged.
    fn export(&self) -> Result<()> {
        let model = self.model().valid();
        let model = match self.config.model.lora {
            Some(_) => self.task.map_encoder(model, |bert: Bert| Ok(lora::merge(bert)))?,
            None => model,
        };
        let max_len = self.config.data.max_len;
        let file = TaskFile { task: self.task.section(), max_len, pairs: self.task.pairs() };
        let (encoder, tokenizer, labels) = (&self.encoder, self.tokenizer, self.task.labels());
        write_whole_folder(&self.folder.model(), |path| {
            ModelFolder { encoder, tokenizer, file: &file, labels }.save(&model, path)
        })
    }

    /// The parameters of the saved model in the one at hand.
    fn best_model(&self) -> Result<T::Model> {
        let model = self.model().valid();
        let model = match self.config.model.lora {
            Some(_) => self.task.map_encoder(model, |bert: Bert| Ok(lora::merge(bert)))?,
            None => model,
        };
        let pretrained = Pretrained::open(&self.folder.model())?;
        let architecture = pretrained.config.architecture;
        Ok(pretrained.load_into(model, architecture, &[])?.0)
    }

    /// The best model's figures on a split, with everything about it in a folder.
    fn report(
        &mut self,
        model: &T::Model,
        split: &str,
        progress: &mut dyn RunProgress,
    ) -> Result<Option<Figures>> {
        let data = match split {
            "dev" => &self.data.dev,
            _ => &self.data.test,
        };
        let Some(data) = data else {
            return Ok(None);
        };
        let start = Instant::now();
        let device = self.device.clone().inner();
        let predictions = predict(self.task, model, data, self.config.eval.batch_tokens, &device);
        let figures = figures(&*predictions, self.config.eval.metric.as_deref())?;
        let folder = self.folder.path().join("report").join(split);
        let facts = [
            ("model", self.folder.model().display().to_string()),
            ("split", split.to_string()),
            ("step", self.state.best.map_or(self.state.step, |best| best.step).to_string()),
        ];
        let title = format!("{}: {split}", self.config.run.name);
        Report { title: &title, facts: &facts, figures: &figures, predictions: &*predictions }
            .write_with_curve(&folder, (self.state.step > 0).then(|| self.folder.curve()).as_deref())?;
        let of =
            self.state.best.map_or(String::new(), |best| format!(", the model after step {}", best.step));
        progress.note(&format!("{split}{of}\n{figures}\n{}", folder.join("report.html").display()));
        let seconds = start.elapsed().as_secs_f64();
        if split != "dev" {
            let (step, split) = (self.state.step, split.to_string());
            self.log.write(&Record::Figures(FiguresRecord {
                step,
                split,
                figures: figures.clone(),
                seconds,
            }))?;
        }
        Ok(Some(figures))
    }

    fn checkpoint(&self) -> Result<()> {
        let _checkpoint = trace_span!("checkpoint").entered();
        self.checkpoints.save(&Checkpoint {
            state: self.state.clone(),
            model: weights::collect(self.model()),
            optimizer: self.optimizer.state(self.model()),
        })?;
        self.checkpoints.prune(self.config.checkpoint.keep_last, None)
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

/// The figures in one line, the main one first.
fn line(figures: &Figures) -> String {
    let (main, value) = figures.main();
    let rest = figures.iter().filter(|(name, _)| *name != main);
    std::iter::once((main, value))
        .chain(rest)
        .map(|(name, value)| format!("{name} {value:.4}"))
        .collect::<Vec<_>>()
        .join(" · ")
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

/// The newest checkpoint that is whole; damaged ones are set aside.
fn newest(checkpoints: &Checkpoints, progress: &mut dyn RunProgress) -> Result<Option<Checkpoint>> {
    let (checkpoint, refused) = checkpoints.latest()?;
    for refused in refused {
        let (path, reason) = (refused.path.display(), &refused.reason);
        progress.note(&format!("warning: checkpoint {path} is damaged ({reason}); using the one before it"));
        checkpoints.set_aside(&refused)?;
    }
    if checkpoint.is_none() {
        progress.note("no checkpoint to resume from: starting at the first step");
    }
    Ok(checkpoint)
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
