//! A pretraining run from the config to the saved model.

use crate::checkpoint::{Best, Checkpoints};
use crate::config::{ModelSection, RunConfig, TokenizerSection};
use crate::initial_model::InitialModel;
use crate::memory;
use crate::metrics::progress::{Meter, Pass, RunProgress, Status};
use crate::metrics::{EvalRecord, METRICS_FILE, Record, Timing, TrainRecord, curve, jsonl, summary};
use crate::origin::{Origin, PROGRAM, TokenizerOrigin};
use crate::pretraining::{BertPretraining, Evaluation};
use crate::recompute;
use crate::run_folder::{RunFolder, write_whole, write_whole_folder};
use crate::step::{StepConfig, StepReport};
use crate::training::{Start, Training};
use crate::{Result, TrainerError};
use burn::module::Module;
use burn::tensor::Device;
use cloze_data::{
    BatchStats, Documents, PreparedCorpus, PretrainingBatch, PretrainingData, Split, UnigramCounts,
    corpus_checksum, derive_seed, file_checksum,
};
use cloze_model::bert::{BertConfig, BertForPreTraining};
use cloze_model::huggingface::{Architecture, SaveConfig, save_pretrained};
use cloze_tokenizer::Tokenizer;
use cloze_tokenizer::train::{BpeTrainer, TrainProgress, WordPieceTrainer};
use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tracing::trace_span;

/// Tells the held-out examples' random numbers from all others that a seed gives.
const HELD_OUT_STREAM: u64 = 0x4E1D;

/// Where and how to run.
#[derive(Debug)]
pub struct RunOptions<'a> {
    /// The device to train on, without autodiff.
    pub device: Device,
    /// The run's folder.
    pub folder: PathBuf,
    /// Where prepared corpora are kept between runs.
    pub cache: PathBuf,
    /// Goes on from the newest whole checkpoint in the folder.
    pub resume: bool,
    /// How many bytes of memory the device has, where that is known: a run that surely needs more is refused before
    /// it allocates.
    pub memory: Option<u64>,
    /// Set by anyone to stop after the current step, with a checkpoint.
    pub stop: &'a AtomicBool,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// All steps are made and the model is saved in this Hugging Face folder.
    Done {
        /// The folder.
        model: PathBuf,
        /// The last evaluation.
        evaluation: EvalRecord,
    },
    /// It was stopped after this step, which has a checkpoint.
    Stopped {
        /// The last step made.
        step: u64,
    },
}

/// Pretrains a BERT as `config` says: tokenizer, corpus, steps, evaluations, checkpoints, export.
///
/// # Errors
/// Whatever is wrong with the config's corpus, tokenizer, or run folder; a non-finite loss where the
/// config says to stop on one.
pub fn pretrain(
    config: &RunConfig,
    options: &RunOptions<'_>,
    progress: &mut dyn RunProgress,
) -> Result<Outcome> {
    recompute::check(config.train.recompute, &options.device)?;
    if let ModelSection::New(section) = &config.model {
        // With the smallest vocabulary: what is too large by itself is refused before one is trained.
        memory::check_new(config, &section.with_vocabulary(1, 0), &options.device, options.memory)?;
    }
    let folder = match options.resume {
        true => RunFolder::resume(&options.folder, config)?,
        false => RunFolder::create(&options.folder, config)?,
    };
    let tokenizer = tokenizer(config, &folder, options.resume, progress)?;
    // Whatever is wrong with a checkpoint is known before the corpus is prepared.
    let initial = InitialModel::new(config, &tokenizer, &options.device.clone().autodiff(), options.memory)?;
    let data = Data::prepare(config, &tokenizer, &options.cache, progress)?;
    if options.stop.load(Ordering::Relaxed) {
        return Ok(Outcome::Stopped { step: 0 });
    }
    let mut run = Run::start(config, options, folder, initial, data, progress)?;
    let outcome = run.steps(options.stop, progress);
    progress.finish();
    match outcome? {
        None => Ok(Outcome::Stopped { step: run.training.state.step }),
        Some(evaluation) => {
            let model = run.export(&tokenizer)?;
            progress.note(&summary::examples(&run.stats, config.examples.has_pairs()));
            progress.note(&summary::results(&evaluation));
            Ok(Outcome::Done { model, evaluation })
        }
    }
}

/// The run's tokenizer, which is in its folder from then on.
///
/// The one that is there already is used if a checkpoint was trained with it, or if it was trained from the same texts
/// with the same settings, as by a run that ended before its first step.
fn tokenizer(
    config: &RunConfig,
    folder: &RunFolder,
    resume: bool,
    progress: &mut dyn RunProgress,
) -> Result<Tokenizer> {
    let path = folder.tokenizer();
    if resume && path.exists() && !Checkpoints::open(folder.checkpoints())?.steps()?.is_empty() {
        // The checkpoint tells whether the texts or the tokenizer have changed since.
        return Ok(Tokenizer::load(&path)?);
    }
    let start = Instant::now();
    let trained_from = trained_from(config)?;
    let origin = folder.origin()?;
    if let (Some(key), Some(before)) = (&trained_from, &origin.tokenizer)
        && before.trained_from == *key
        && path.exists()
        && file_checksum(&path)? == before.blake3
    {
        return Ok(Tokenizer::load(&path)?);
    }
    if trained_from.is_some() {
        progress.note("training the tokenizer");
    }
    let tokenizer = make_tokenizer(config, &Pulse::new(progress))?;
    write_whole(&path, tokenizer.to_json().as_bytes())?;
    let tokenizer_origin = trained_from
        .map(|trained_from| {
            Ok::<_, TrainerError>(TokenizerOrigin { trained_from, blake3: file_checksum(&path)? })
        })
        .transpose()?;
    Origin { tokenizer: tokenizer_origin, ..origin }.write(folder.path())?;
    progress.note(&format!(
        "tokenizer: {} pieces, {}",
        summary::grouped(tokenizer.vocab_size() as u64),
        summary::duration(start.elapsed().as_secs_f64())
    ));
    Ok(tokenizer)
}

/// What tells a trained tokenizer from any other: the program, the settings and the texts. `None` for one that is
/// loaded.
fn trained_from(config: &RunConfig) -> Result<Option<String>> {
    if matches!(config.tokenizer, TokenizerSection::Load { .. } | TokenizerSection::Checkpoint {}) {
        return Ok(None);
    }
    let section = serde_json::to_string(&config.tokenizer).expect("a section serialises");
    let corpus = corpus_checksum(&config.corpus, Path::new(""))?;
    Ok(Some(format!("{PROGRAM}, {section}, corpus {corpus}")))
}

/// Loads a tokenizer, or trains one on the whole corpus.
fn make_tokenizer(config: &RunConfig, pulse: &Pulse<'_>) -> Result<Tokenizer> {
    let RunConfig { tokenizer: section, corpus, .. } = config;
    if let ModelSection::Pretrained(model) = &config.model {
        let mut tokenizer = Tokenizer::load(&model.path)?;
        // What it was last used for may have been shorter texts than the model takes.
        tokenizer.set_truncation(None)?;
        tokenizer.set_padding(None)?;
        return Ok(tokenizer);
    }
    let mut report = |progress| pulse.beat(|seconds| training_tokenizer(progress, seconds));
    let texts = cloze_data::documents(corpus, Path::new(""))?
        .map(|document| document.map(|document| document.text().to_string()));
    Ok(match *section {
        TokenizerSection::TrainWordpiece { vocab_size, lowercase, min_frequency } => {
            WordPieceTrainer { vocab_size, lowercase, min_frequency, ..Default::default() }
                .train_with(texts, &mut report)?
        }
        TokenizerSection::TrainByteBpe { vocab_size, min_frequency } => {
            BpeTrainer { vocab_size, min_frequency, ..Default::default() }.train_with(texts, &mut report)?
        }
        TokenizerSection::Load { ref path } => Tokenizer::load(path)?,
        TokenizerSection::Checkpoint {} => {
            return Err(TrainerError::Setting {
                key: "tokenizer.kind".into(),
                found: "checkpoint".into(),
                expected: "another one: a new model has no checkpoint".into(),
            });
        }
    })
}

/// The two parts of the prepared corpus.
struct Data {
    train: Arc<PretrainingData>,
    held_out: Vec<PretrainingBatch>,
    unigram: Arc<UnigramCounts>,
    /// The prepared corpus's key: which texts, which tokenizer.
    corpus: String,
}

impl Data {
    fn prepare(
        config: &RunConfig,
        tokenizer: &Tokenizer,
        cache: &Path,
        progress: &mut dyn RunProgress,
    ) -> Result<Self> {
        let (corpus, report) = {
            let pulse = Pulse::new(progress);
            PreparedCorpus::prepare(&config.corpus, Path::new(""), tokenizer, cache, &pulse)?
        };
        let corpus = Arc::new(corpus);
        let seed = config.run.seed;
        let part = |split| Documents::new(corpus.clone(), split, config.eval.heldout_fraction, seed);
        let (train, held_out) = (part(Split::Train)?, part(Split::HeldOut)?);
        progress.note(&summary::corpus(&report, train.count(), held_out.count()));

        let unigram = Arc::new(UnigramCounts::new(&train, tokenizer.vocab_size()));
        let examples = |documents, seed| {
            let (config, unigram, cache) = (config.examples.clone(), unigram.clone(), cache.to_owned());
            PretrainingData::new(documents, config, tokenizer, unigram, seed, cache)
        };
        let held_out = examples(held_out, derive_seed(seed, &[HELD_OUT_STREAM]))?;
        Ok(Self {
            train: Arc::new(examples(train, seed)?),
            held_out: held_out.one_pass(config.eval.batch_size, config.eval.max_examples as u64)?,
            unigram,
            corpus: corpus.key().to_string(),
        })
    }

    /// Tokens of a held-out example on average, without padding.
    fn mean_len(&self) -> f64 {
        let examples: usize = self.held_out.iter().map(|batch| batch.batch_size).sum();
        tokens(&self.held_out) as f64 / examples.max(1) as f64
    }
}

/// How far training a tokenizer is, as a note.
fn training_tokenizer(progress: TrainProgress, seconds: f64) -> String {
    match progress {
        TrainProgress::Counting { bytes, words, .. } => format!(
            "training the tokenizer: {} distinct words in {} MB · {:.1} MB/s",
            summary::grouped(words as u64),
            summary::grouped(bytes / 1_000_000),
            bytes as f64 / seconds / 1e6,
        ),
        TrainProgress::Merging { done, total } => format!(
            "training the tokenizer: {} of {} pieces",
            summary::grouped(done as u64),
            summary::grouped(total as u64),
        ),
        _ => "training the tokenizer".into(),
    }
}

/// Notes on a stretch of work before the first step: none within the first two seconds, then one every
/// two.
struct Pulse<'a> {
    start: Instant,
    shown: Cell<Instant>,
    progress: RefCell<&'a mut dyn RunProgress>,
}

impl<'a> Pulse<'a> {
    /// Until the first note, and between two.
    const EVERY: Duration = Duration::from_secs(2);

    fn new(progress: &'a mut dyn RunProgress) -> Self {
        let now = Instant::now();
        Self { start: now, shown: Cell::new(now), progress: RefCell::new(progress) }
    }

    /// Shows a note if it is time for one; `note` is given the seconds since the start.
    fn beat(&self, note: impl FnOnce(f64) -> String) {
        let now = Instant::now();
        if now - self.shown.get() >= Self::EVERY {
            self.shown.set(now);
            self.progress.borrow_mut().note(&note((now - self.start).as_secs_f64()));
        }
    }
}

impl cloze_data::Progress for Pulse<'_> {
    fn prepared(&self, read: u64, total: u64, tokens: u64) {
        self.beat(|seconds| {
            let share = read as f64 / total.max(1) as f64;
            let left = seconds * (1.0 - share) / share.max(f64::EPSILON);
            format!(
                "preparing the corpus: {} · {} tokens · {:.1} MB/s of files · {} left",
                summary::percent(share),
                summary::grouped(tokens),
                read as f64 / seconds / 1e6,
                summary::duration(left),
            )
        });
    }
}

/// A run under way.
struct Run<'a> {
    config: &'a RunConfig,
    folder: RunFolder,
    bert: BertConfig,
    architecture: Architecture,
    training: Training<BertForPreTraining>,
    data: Data,
    stats: BatchStats,
}

impl<'a> Run<'a> {
    fn start(
        config: &'a RunConfig,
        options: &RunOptions<'_>,
        folder: RunFolder,
        initial: InitialModel,
        data: Data,
        progress: &mut dyn RunProgress,
    ) -> Result<Self> {
        let InitialModel { encoder: bert, mut model, architecture, report } = initial;
        recompute::set(&mut model.bert, config.train.recompute);
        let checkpoint = match &config.model {
            ModelSection::New(_) => String::new(),
            ModelSection::Pretrained(section) => section.path.display().to_string(),
        };
        progress.note(&summary::facts(
            "model",
            [
                ("layers × width", format!("{} × {}", bert.n_layers, bert.d_model)),
                ("parameters", summary::grouped(model.num_params() as u64)),
                ("vocabulary", summary::grouped(bert.vocab_size as u64)),
                (
                    "sequences a step",
                    summary::grouped((config.train.batch_size * config.train.accumulate) as u64),
                ),
                ("checkpoint", checkpoint),
                ("newly initialised", report.missing.join(", ")),
                ("not used", report.unexpected.join(", ")),
            ]
            .into_iter()
            .filter(|(_, value)| !value.is_empty()),
        ));
        let parameters = memory::n_parameters(&model);
        let mean_len = data.mean_len();
        let estimate = memory::pretraining(config, &bert, parameters, mean_len);
        progress.note(&format!("memory: {estimate}"));
        // Held-out examples are as long as those trained on, but for chance.
        let least = memory::pretraining(config, &bert, parameters, mean_len / 2.0);
        let keys = memory::keys(config, &bert, &options.device);
        memory::check(&least, options.memory, &keys)?;

        let tokenizer = folder.tokenizer();
        let changed = |checkpoint| TrainerError::CorpusChanged { checkpoint, tokenizer };
        let start = Start {
            folder: &folder,
            device: options.device.clone().autodiff(),
            optimizer: config.optimizer.constants(),
            data: data.corpus.clone(),
            precision: config.train.precision,
            resume: options.resume,
        };
        let training = Training::begin(start, model, changed, progress)?;
        Ok(Self { config, folder, bert, architecture, training, data, stats: BatchStats::default() })
    }

    /// Makes the steps that are left; returns the last evaluation, or none when stopped before.
    fn steps(&mut self, stop: &AtomicBool, progress: &mut dyn RunProgress) -> Result<Option<EvalRecord>> {
        let train = &self.config.train;
        let mut evaluation = None;
        if self.training.state.step == 0 {
            evaluation = Some(self.evaluate(progress)?);
        }
        let mut batches = self.data.train.batches(
            train.batch_size,
            self.training.state.cursor.into(),
            train.workers,
            train.prefetch,
        );
        let start = Instant::now();
        let mut meter = Meter::new(start);
        let mut since_log = Since::new(start);
        while self.training.state.step < train.steps {
            let span = trace_span!("step").entered();
            let wait = Instant::now();
            let waiting = trace_span!("wait for data").entered();
            let micro: Vec<PretrainingBatch> =
                batches.by_ref().take(train.accumulate).collect::<std::result::Result<_, _>>()?;
            drop(waiting);
            let waited = wait.elapsed();
            let report = self.step(&micro)?;
            drop(span);

            let tokens = tokens(&micro);
            self.training.state.tokens += tokens;
            let step = self.training.state.step;
            let now = Instant::now();
            since_log.step(now, tokens, waited);
            let pace = meter.step(now, tokens, waited, train.steps - step);
            let status = Status {
                step,
                steps: train.steps,
                loss: report.losses.iter().sum(),
                learning_rate: self.learning_rate(step),
                pace,
            };
            progress.step(&status);

            let last = step == train.steps;
            let stopping = stop.load(Ordering::Relaxed);
            if last || step.is_multiple_of(self.config.log.every.max(1)) {
                self.log_training(since_log.take())?;
            }
            let mut is_best = false;
            if last || step.is_multiple_of(self.config.eval.every.max(1)) {
                let record = self.evaluate(progress)?;
                // With steps skipped, a run goes on with a loss that no checkpoint could hold.
                is_best = record.masked_loss.is_finite()
                    && self.training.state.best.is_none_or(|best| record.masked_loss < best.figure);
                if is_best {
                    self.training.state.best = Some(Best { step, figure: record.masked_loss, tie: None });
                }
                evaluation = Some(record);
            }
            let keep = &self.config.checkpoint;
            if last || stopping || step.is_multiple_of(keep.every.max(1)) || (is_best && keep.keep_best) {
                self.checkpoint()?;
            }
            if stopping && !last {
                return Ok(None);
            }
            let now = Instant::now();
            since_log.skip_to(now);
            meter.skip_to(now);
        }
        drop(batches);
        // A run killed between its last checkpoint and the export has its last evaluation in the log.
        if evaluation.is_none() {
            let records = jsonl::read(&self.folder.path().join(METRICS_FILE))?;
            evaluation = records.into_iter().rev().find_map(|record| match record {
                Record::Eval(record) if record.step == self.training.state.step => Some(record),
                _ => None,
            });
        }
        match evaluation {
            Some(evaluation) => Ok(Some(evaluation)),
            None => self.evaluate(progress).map(Some),
        }
    }

    /// One optimisation step, and the state after it.
    fn step(&mut self, micro: &[PretrainingBatch]) -> Result<StepReport> {
        let number = self.training.state.step + 1;
        let constants = StepConfig {
            seed: self.config.run.seed,
            step: number,
            lr: self.learning_rate(number),
            clip_norm: self.config.optimizer.clip_norm,
            precision: self.config.train.precision.into(),
        };
        let (first, non_finite) = (self.training.state.cursor, self.config.train.non_finite);
        let report = self.training.step(&BertPretraining, micro, constants, first, non_finite)?;
        if let Some(batch) = micro.last() {
            self.training.state.cursor = batch.next.into();
        }
        for batch in micro {
            self.stats += &batch.stats;
        }
        Ok(report)
    }

    fn learning_rate(&self, step: u64) -> f64 {
        let peak = self.config.optimizer.lr;
        self.config.schedule.learning_rate(peak, step, self.config.train.steps)
    }

    fn log_training(&mut self, timing: Timing) -> Result<()> {
        let window = std::mem::take(&mut self.training.state.window);
        // Where every step was skipped there is no mean: 0/0 is NaN, as it is logged.
        let mean = |sum: f64| sum / window.updates as f64;
        let term = |i: usize| mean(window.losses.get(i).copied().unwrap_or(0.0));
        let pairs = self.config.examples.has_pairs();
        self.training.log.write(&Record::Train(TrainRecord {
            step: self.training.state.step,
            loss: mean(window.losses.iter().sum()),
            masked_loss: term(0),
            pair_loss: pairs.then(|| term(1)),
            learning_rate: self.learning_rate(self.training.state.step),
            grad_norm: mean(window.grad_norm),
            tokens: self.training.state.tokens,
            skipped_steps: self.training.state.step - self.training.state.updates,
            timing,
        }))
    }

    /// Evaluates on the held-out examples, the same every time, and logs it.
    fn evaluate(&mut self, progress: &mut dyn RunProgress) -> Result<EvalRecord> {
        let _evaluation = trace_span!("evaluate").entered();
        let start = Instant::now();
        let model = self.training.model().valid();
        let device = self.training.device.clone().inner();
        let mut evaluation = Evaluation::default();
        let (mut done, all) = (0, self.data.held_out.iter().map(|batch| batch.batch_size).sum::<usize>());
        for batch in &self.data.held_out {
            evaluation.add(&model, batch, &self.data.unigram, &device);
            done += batch.batch_size;
            let (share, elapsed) = (done as f64 / all as f64, start.elapsed());
            progress.pass(&Pass { work: "measuring held-out examples", done, share, elapsed });
        }
        let record = evaluation.record(self.training.state.step, start.elapsed().as_secs_f64());
        self.training.log.write(&Record::Eval(record.clone()))?;
        progress.note(&summary::line(&record));
        Ok(record)
    }

    fn checkpoint(&self) -> Result<()> {
        let keep = &self.config.checkpoint;
        let best = self.training.state.best.filter(|_| keep.keep_best);
        self.training.checkpoint(keep.keep_last, best.map(|best| best.step))
    }

    /// Saves the result and its curve; returns the model's folder.
    fn export(&self, tokenizer: &Tokenizer) -> Result<PathBuf> {
        let path = self.folder.model();
        let model = self.training.model().valid();
        write_whole_folder(&path, |folder| {
            save_pretrained(folder, &model, &self.bert, &SaveConfig::new(self.architecture))?;
            tokenizer.save(folder.join("tokenizer.json"))?;
            Ok(())
        })?;
        let records = jsonl::read(&self.folder.path().join(METRICS_FILE))?;
        curve::draw(&self.folder.curve(), &self.config.run.name, &records)?;
        Ok(path)
    }
}

fn tokens(batches: &[PretrainingBatch]) -> u64 {
    batches.iter().flat_map(|batch| &batch.pad_mask).filter(|ignored| !**ignored).count() as u64
}

/// What was measured since the last log record, evaluations and checkpoints left out.
struct Since {
    mark: Instant,
    trained: Duration,
    waited: Duration,
    tokens: u64,
    total: Duration,
}

impl Since {
    fn new(now: Instant) -> Self {
        Self { mark: now, trained: Duration::ZERO, waited: Duration::ZERO, tokens: 0, total: Duration::ZERO }
    }

    /// A step of `tokens` tokens ended `now`, `waited` of it spent waiting for data.
    fn step(&mut self, now: Instant, tokens: u64, waited: Duration) {
        let took = now - self.mark;
        self.mark = now;
        self.trained += took;
        self.total += took;
        self.waited += waited;
        self.tokens += tokens;
    }

    /// Leaves out the time until `now`.
    fn skip_to(&mut self, now: Instant) {
        self.mark = now;
    }

    /// The record's timing; what follows counts towards the next record.
    fn take(&mut self) -> Timing {
        let seconds = self.trained.as_secs_f64().max(f64::MIN_POSITIVE);
        let timing = Timing {
            seconds: self.total.as_secs_f64(),
            tokens_per_second: self.tokens as f64 / seconds,
            waiting: self.waited.as_secs_f64() / seconds,
        };
        (self.trained, self.waited, self.tokens) = (Duration::ZERO, Duration::ZERO, 0);
        timing
    }
}
