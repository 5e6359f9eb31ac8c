//! Denoising as an engine recipe: noisy texts of a prepared corpus, the loss of each target token, and the
//! model's output for held-out texts.

use super::samples::{Sample, samples};
use super::tables;
use crate::config::DenoisingRunConfig;
use crate::engine::{
    Advance, Exported, ModelFormat, Objective, Position, Recipe, RunOptions, SplitFigures, StepBatches, Term,
};
use crate::metrics::curve::{Line, Panel, Source, TRAINING};
use crate::metrics::progress::RunProgress;
use crate::metrics::{Record, printable};
use crate::pairs::PairLoss;
use crate::periodic_notes::PeriodicNotes;
use crate::pretraining::tables::corpus;
use crate::translation::Vocabularies;
use crate::{Result, TrainerError};
use burn::tensor::{Device, Tensor};
use cloze_data::parallel::PairBatch;
use cloze_data::{
    DenoisingData, DenoisingStats, Documents, Loader, Preparation, Split, UnigramCounts, derive_seed,
};
use cloze_evaluation::figures::{Figures, decimals};
use cloze_evaluation::table::{facts, grouped, percent};
use cloze_files::write_atomic;
use cloze_model::seq2seq::EncoderDecoder;
use cloze_ops::CrossEntropy;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Separates the random stream of the held-out examples from all others of a seed.
const HELD_OUT_STREAM: u64 = 0x4E1D;

/// The name of the evaluation data.
const HELD_OUT: &str = "heldout";

/// The file of samples next to the HTML report.
const SAMPLES_FILE: &str = "samples.txt";

/// Samples shown when a run ends.
const SHOWN: usize = 2;

/// The metrics of a model on noisy texts.
pub mod figure {
    pub use crate::pairs::figure::{LOSS, PERPLEXITY, TOKEN_ACCURACY};
}

/// The two parts of a prepared corpus, as noisy texts and their targets.
#[derive(Debug)]
pub struct DenoisingSplits {
    train: Arc<DenoisingData>,
    held_out: Vec<PairBatch>,
    /// Identifies the texts and the tokenizer.
    key: String,
}

impl DenoisingSplits {
    /// Prepares the config's corpus and applies the configured noise.
    ///
    /// # Errors
    /// Corpus errors; those of [`DenoisingData::new`].
    pub fn prepare(
        config: &DenoisingRunConfig,
        vocabularies: &Vocabularies,
        options: &RunOptions<'_>,
        progress: &mut dyn RunProgress,
    ) -> Result<Self> {
        let tokenizer = &*vocabularies.source;
        Self::prepare_with(config, vocabularies, options, progress, |documents, unigram, seed| {
            let (seq_len, pairs) = (config.examples.seq_len, &config.examples.pairs);
            let (noise, cache) = (&config.denoising, options.cache.clone());
            DenoisingData::new(documents, seq_len, pairs, noise, tokenizer, unigram, seed, cache)
        })
    }

    /// The same with custom noise: `examples` gets the documents of a part, the training counts of each piece,
    /// and a seed. It is called for the held-out part first.
    ///
    /// # Errors
    /// Those of the corpus and of `examples`.
    pub fn prepare_with(
        config: &DenoisingRunConfig,
        vocabularies: &Vocabularies,
        options: &RunOptions<'_>,
        progress: &mut dyn RunProgress,
        examples: impl Fn(Documents, &Arc<UnigramCounts>, u64) -> cloze_data::Result<DenoisingData>,
    ) -> Result<Self> {
        let tokenizer = &*vocabularies.source;
        let (prepared, report) = {
            let (notes, crew) = (PeriodicNotes::new(progress), options.crew());
            let preparation = Preparation::new(&config.corpus, Path::new(""), tokenizer, &options.cache);
            preparation.tells(&notes).with(&crew).sentences()?
        };
        let prepared = Arc::new(prepared);
        let seed = config.common.run.seed;
        let part = |split| Documents::new(prepared.clone(), split, config.eval.heldout_fraction, seed);
        let (train, held_out) = (part(Split::Train)?, part(Split::HeldOut)?);
        progress.note(&corpus(&report, train.count(), held_out.count()));

        let unigram = Arc::new(UnigramCounts::new(&train, tokenizer.vocab_size()));
        let held_out = examples(held_out, &unigram, derive_seed(seed, &[HELD_OUT_STREAM]))?;
        Ok(Self {
            train: Arc::new(examples(train, &unigram, seed)?),
            held_out: Loader::new(Arc::new(held_out), config.eval.batch_size)
                .one_pass(config.eval.max_examples as u64)?,
            key: prepared.key().to_string(),
        })
    }

    /// Held-out texts in batches, with the same noise each time.
    pub fn held_out(&self) -> &[PairBatch] {
        &self.held_out
    }

    /// Mean tokens of a held-out source and of its target.
    pub(super) fn mean_lengths(&self) -> [f64; 2] {
        let n = self.n_held_out().max(1) as f64;
        let tokens = |of: fn(&PairBatch) -> usize| self.held_out.iter().map(of).sum::<usize>() as f64;
        [tokens(|batch| batch.source.ids.len()) / n, tokens(|batch| batch.target.ids.len()) / n]
    }

    fn n_held_out(&self) -> usize {
        self.held_out.iter().map(|batch| batch.source.len()).sum()
    }
}

/// The training of a denoising model: any [`EncoderDecoder`]. The loss is
///
/// ```text
/// −Σᵢ log P(yᵢ | y₍<i₎, x̃)
/// ```
///
/// averaged over target tokens. `x̃` is the noisy text. `y` is the text itself (Lewis et al. 2020, §2.2), or
/// the spans replaced by sentinels (Raffel et al. 2020, §3.1.4).
pub struct DenoisingRecipe<'a, M> {
    config: &'a DenoisingRunConfig,
    splits: DenoisingSplits,
    vocabularies: Vocabularies,
    loss: PairLoss,
    format: Box<dyn ModelFormat<M> + 'a>,
    /// Path of the tokenizer.
    tokenizer_path: PathBuf,
    /// Statistics of this process's training data.
    stats: Mutex<DenoisingStats>,
}

impl<'a, M: EncoderDecoder> DenoisingRecipe<'a, M> {
    /// A recipe on these texts, in the batches that the config sets. The model is saved in `format`, with its
    /// tokenizer from `tokenizer_path`.
    pub fn new(
        config: &'a DenoisingRunConfig,
        vocabularies: Vocabularies,
        splits: DenoisingSplits,
        format: impl ModelFormat<M> + 'a,
        tokenizer_path: PathBuf,
    ) -> Self {
        let (training, sampled) = (CrossEntropy::default(), config.model.output().sampled());
        let loss = PairLoss { begin: vocabularies.special.begin, training, sampled };
        let (format, stats) = (Box::new(format), Mutex::new(DenoisingStats::default()));
        Self { config, splits, vocabularies, loss, format, tokenizer_path, stats }
    }
}

impl<M: EncoderDecoder> Objective for DenoisingRecipe<'_, M> {
    type Model = M;
    type Batch = PairBatch;

    fn terms(&self, _: u64) -> Vec<Term> {
        vec![Term::new(figure::LOSS)]
    }

    fn counts(&self, batch: &PairBatch) -> Vec<f64> {
        PairLoss::counts(batch)
    }

    fn sums(&self, model: &M, batch: &PairBatch, device: &Device) -> Vec<Tensor<1>> {
        self.loss.sums(model, batch, device)
    }
}

impl<M: EncoderDecoder> Recipe for DenoisingRecipe<'_, M> {
    fn data(&self) -> String {
        self.splits.key.clone()
    }

    fn data_changed(&self, checkpoint: PathBuf) -> TrainerError {
        TrainerError::CorpusChanged { checkpoint, tokenizer: self.tokenizer_path.clone() }
    }

    fn steps(&self, from: Position) -> Box<dyn Iterator<Item = Result<StepBatches<PairBatch>>> + '_> {
        let train = &self.config.train;
        let loader = Loader::new(self.splits.train.clone(), train.batch_size)
            .with_workers(train.workers)
            .with_ahead(train.prefetch);
        StepBatches::from_loader(&loader, from, train.accumulate, |batch: &PairBatch| {
            *self.stats.lock().unwrap_or_else(PoisonError::into_inner) += &batch.noise;
            batch.n_tokens() as u64
        })
    }

    fn split(&self) -> Option<&str> {
        Some(HELD_OUT)
    }

    fn evaluate(&self, model: &M, device: &Device, advanced: &mut dyn FnMut(Advance)) -> Result<Figures> {
        let figures = self.loss.measure(model, &self.splits.held_out, device, advanced)?;
        Ok(Figures::new(self.splits.n_held_out(), figures))
    }

    fn evaluation_line(&self, step: u64, figures: &Figures) -> String {
        let value = |name: &str| figures.get(name).unwrap_or(f64::NAN);
        format!(
            "evaluation after step {}: loss {:.4}, perplexity {}, target tokens {}",
            grouped(step),
            value(figure::LOSS),
            decimals(value(figure::PERPLEXITY), 2),
            percent(value(figure::TOKEN_ACCURACY)),
        )
    }

    /// The training and held-out loss, and the accuracy on target tokens.
    fn panels(&self, _: &[Record]) -> Vec<Panel> {
        let line = |label: &str, source| Line { label: label.into(), source };
        let held_out = |figure: &str| Source::Figure { split: HELD_OUT.into(), figure: figure.into() };
        let losses = vec![
            line(TRAINING, Source::LossTerm(figure::LOSS.into())),
            line("held out", held_out(figure::LOSS)),
        ];
        let accuracy = vec![line("target tokens, held out", held_out(figure::TOKEN_ACCURACY))];
        vec![
            Panel { axis: "loss of a token (nats)".into(), lines: losses },
            Panel { axis: "accuracy".into(), lines: accuracy },
        ]
    }

    fn save(&self, model: &M, folder: &Path) -> Result<()> {
        self.format.save(model, folder)?;
        Ok(self.vocabularies.target.save(folder)?)
    }

    fn load(&self, model: M, folder: &Path) -> Result<M> {
        self.format.load(model, folder)
    }

    fn report(
        &self,
        exported: &Exported<'_, M>,
        progress: &mut dyn RunProgress,
    ) -> Result<Vec<SplitFigures>> {
        let stats = *self.stats.lock().unwrap_or_else(PoisonError::into_inner);
        progress.note(&tables::noise(&stats));
        let Some(figures) = exported.figures else { return Ok(Vec::new()) };
        let value = |name: &str| figures.get(name).unwrap_or(f64::NAN);
        let rows = [
            ("loss (nats per target token)", format!("{:.4}", value(figure::LOSS))),
            ("perplexity", decimals(value(figure::PERPLEXITY), 2)),
            ("target tokens predicted", percent(value(figure::TOKEN_ACCURACY))),
            ("texts", grouped(figures.examples() as u64)),
        ];
        progress.note(&facts(&format!("held out, after step {}", grouped(exported.step)), rows));
        let page = exported.page(HELD_OUT, figures, None)?;
        exported.tell_loss(figures, figure::LOSS, None, progress)?;
        let samples = samples(
            exported.model,
            &self.vocabularies,
            &self.config.denoising,
            &self.splits.held_out,
            exported.device,
        )?;
        let shown: Vec<String> = samples.iter().map(Sample::to_string).collect();
        let path = page.with_file_name(SAMPLES_FILE);
        write_atomic(&path, (shown.join("\n\n") + "\n").as_bytes())?;
        let first = shown[..shown.len().min(SHOWN)].join("\n\n");
        progress.note(&format!("{}\n\nmore in {}", printable(&first), path.display()));
        Ok(vec![SplitFigures {
            split: HELD_OUT.into(),
            figures: figures.clone(),
            seconds: 0.0,
            baseline: None,
        }])
    }
}
