//! Translation as an engine recipe: batches of pairs, the loss of each target token, and evaluation.

use super::config::{TranslationConfig, TranslationEval};
use super::decode::{bleu, translations};
use super::folder::{self, TranslationFile};
use super::vocabulary::Vocabularies;
use crate::Result;
use crate::engine::{
    Advance, Exported, Measured, ModelFormat, Objective, Position, Recipe, SplitFigures, StepBatches, Term,
};
use crate::metrics::Record;
use crate::metrics::curve::{Line, Panel, Source, TRAINING};
use crate::metrics::held_out::CALMER;
use crate::metrics::progress::RunProgress;
use crate::pairs::PairLoss;
use crate::periodic_notes::PeriodicNotes;
use burn::tensor::{Device, Tensor};
use cloze_data::parallel::{
    LoadedPairs, PairBatch, PairReport, PairSettings, ParallelData, ParallelFiles, PreparedPairs, batches_of,
    load_pairs,
};
use cloze_data::{Loader, derive_seed};
use cloze_evaluation::figures::Figures;
use cloze_evaluation::report::{Predictions, TranslationExample, TranslationPredictions};
use cloze_files::write_atomic;
use cloze_model::seq2seq::EncoderDecoder;
use cloze_ops::CrossEntropy;
use std::path::Path;
use std::sync::Arc;

/// Separates the random stream of the pairs' order from all others of a seed.
const ORDER_STREAM: u64 = 0x7A15;

/// The metrics of a translation model.
pub mod figure {
    pub use crate::pairs::figure::{LOSS, PERPLEXITY, TOKEN_ACCURACY};

    /// BLEU of the translations, from 0 to 100.
    pub const BLEU: &str = "bleu";
}

/// A run's pairs.
#[derive(Debug)]
pub struct TranslationData {
    train: Arc<PreparedPairs>,
    dev: Option<LoadedPairs>,
    test: Option<LoadedPairs>,
}

impl TranslationData {
    /// Reads a config's pairs; training pairs are prepared in `cache`. Returns a report of the preparation too.
    ///
    /// # Errors
    /// File errors, and unusable pairs unless they are to be skipped.
    pub fn prepare(
        config: &TranslationConfig,
        vocabularies: &Vocabularies,
        cache: &Path,
        progress: &mut dyn RunProgress,
    ) -> Result<(Self, PairReport)> {
        let section = &config.parallel;
        let tokenizers = [&*vocabularies.source, &*vocabularies.target];
        let settings = PairSettings::new(section.languages(), tokenizers, section.max_len)
            .on_bad_pair(section.on_bad_pair, section.max_skipped);
        let base = Path::new("");
        let (train, report) = {
            let notes = PeriodicNotes::new(progress);
            PreparedPairs::prepare(&section.train, base, &settings, cache, &notes)?
        };
        let mut loaded = |split: &str, files: &ParallelFiles| -> Result<Option<LoadedPairs>> {
            if files.is_empty() {
                return Ok(None);
            }
            let loaded = load_pairs(files, base, &settings)?;
            if !loaded.skipped.is_empty() {
                let n_used = loaded.texts.len() as u64;
                progress.note(&format!("{split}: skipped {}", loaded.skipped.among(n_used, "pairs")));
            }
            Ok(Some(loaded))
        };
        let (dev, test) = (loaded("dev", &section.dev)?, loaded("test", &section.test)?);
        Ok((Self { train: Arc::new(train), dev, test }, report))
    }

    /// The training pairs.
    pub fn train(&self) -> &Arc<PreparedPairs> {
        &self.train
    }
}

/// The training of a translation model: any [`EncoderDecoder`].
pub struct TranslationRecipe<'a, M> {
    config: &'a TranslationConfig,
    data: TranslationData,
    vocabularies: Vocabularies,
    loader_data: Arc<ParallelData>,
    loss: PairLoss,
    format: Box<dyn ModelFormat<M> + 'a>,
}

impl<'a, M: EncoderDecoder> TranslationRecipe<'a, M> {
    /// A recipe on these pairs, in the config's batches. The model is saved in `format`.
    pub fn new(
        config: &'a TranslationConfig,
        vocabularies: Vocabularies,
        data: TranslationData,
        format: impl ModelFormat<M> + 'a,
    ) -> Self {
        let seed = derive_seed(config.common.run.seed, &[ORDER_STREAM]);
        let loader_data = Arc::new(ParallelData::new(data.train.clone(), config.train.size(), seed));
        let training =
            CrossEntropy { label_smoothing: config.train.label_smoothing, ..CrossEntropy::default() };
        let sampled = config.model.output().sampled();
        let loss = PairLoss { begin: vocabularies.special.begin, training, sampled };
        Self { config, data, vocabularies, loader_data, loss, format: Box::new(format) }
    }

    /// The approximate number of batches per pass over the training pairs.
    pub fn batches_an_epoch(&self) -> usize {
        self.loader_data.batches_an_epoch()
    }

    /// The metrics of a model on a split, and its translations if requested.
    fn evaluated(
        &self,
        model: &M,
        pairs: &LoadedPairs,
        translates: bool,
        device: &Device,
        advanced: &mut dyn FnMut(Advance),
    ) -> Result<(Figures, Option<Vec<String>>)> {
        let (batches, _) = batches_of(&pairs.ids, self.config.eval.batch_tokens);
        let mut figures = self.loss.measure(model, &batches, device, advanced)?;
        let mut translated = None;
        if translates {
            let beams = self.config.eval.beams;
            let texts = translations(model, &self.vocabularies, pairs, beams, device, advanced)?;
            figures.push((figure::BLEU, bleu(&texts, pairs)?));
            translated = Some(texts);
        }
        Ok((self.figures(pairs, figures)?, translated))
    }

    /// The translations of a split's pairs beside their references.
    fn predictions(&self, pairs: &LoadedPairs, translated: &[String]) -> TranslationPredictions {
        let examples = pairs.texts.iter().zip(&pairs.lines).zip(translated);
        let examples = examples.map(|((pair, line), translation)| TranslationExample {
            id: line.to_string(),
            source: pair.source.clone(),
            reference: pair.target.clone(),
            translation: translation.clone(),
        });
        TranslationPredictions::new(examples.collect(), self.config.common.run.seed)
    }

    /// Whether the development set is translated after a step.
    fn translates_after(&self, step: u64) -> bool {
        let TranslationEval { every, bleu_every, .. } = self.config.eval;
        bleu_every > 0
            && (step == self.config.train.steps || step.div_ceil(every.max(1)).is_multiple_of(bleu_every))
    }

    fn figures(&self, pairs: &LoadedPairs, figures: Vec<(&'static str, f64)>) -> Result<Figures> {
        let figures = Figures::new(pairs.texts.len(), figures);
        match &*self.config.eval.metric {
            metric if figures.get(metric).is_some() => Ok(figures.with_main(metric)?),
            _ => Ok(figures),
        }
    }
}

/// How translations are found, for people.
fn decoding(beams: usize) -> String {
    match beams {
        0 | 1 => "greedy search (1 beam)".into(),
        beams => format!("the best of a beam search with {beams} beams"),
    }
}

impl<M: EncoderDecoder> Objective for TranslationRecipe<'_, M> {
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

impl<M: EncoderDecoder> Recipe for TranslationRecipe<'_, M> {
    fn data(&self) -> String {
        self.data.train.key().to_owned()
    }

    fn steps(&self, from: Position) -> Box<dyn Iterator<Item = Result<StepBatches<PairBatch>>> + '_> {
        let train = &self.config.train;
        let loader =
            Loader::new(self.loader_data.clone(), 1).with_workers(train.workers).with_ahead(train.prefetch);
        StepBatches::from_loader(&loader, from, train.accumulate, |batch: &PairBatch| batch.n_tokens() as u64)
    }

    fn split(&self) -> Option<&str> {
        self.data.dev.as_ref().map(|_| "dev")
    }

    fn evaluate(&self, model: &M, device: &Device, advanced: &mut dyn FnMut(Advance)) -> Result<Figures> {
        self.evaluate_after(self.config.train.steps, model, device, advanced)
    }

    fn evaluate_after(
        &self,
        step: u64,
        model: &M,
        device: &Device,
        advanced: &mut dyn FnMut(Advance),
    ) -> Result<Figures> {
        let dev = self.data.dev.as_ref().expect("only what `split` names is measured");
        Ok(self.evaluated(model, dev, self.translates_after(step), device, advanced)?.0)
    }

    /// The training and development loss, BLEU, and token accuracy.
    fn panels(&self, _: &[Record]) -> Vec<Panel> {
        let line = |label: &str, source| Line { label: label.into(), source };
        let dev = |figure: &str| Source::Figure { split: "dev".into(), figure: figure.into() };
        // With label smoothing the training loss is that of other targets, and higher than that of dev.
        let training = match self.config.train.label_smoothing {
            0.0 => TRAINING.to_owned(),
            smoothing => format!("training (running mean, label smoothing {smoothing})"),
        };
        let losses =
            vec![line(&training, Source::LossTerm(figure::LOSS.into())), line("dev", dev(figure::LOSS))];
        let accuracy = vec![line("target tokens, dev", dev(figure::TOKEN_ACCURACY))];
        let bleu = vec![line("dev", dev(figure::BLEU))];
        let mut panels = vec![
            Panel { axis: "loss of a token (nats)".into(), lines: losses },
            Panel { axis: "accuracy".into(), lines: accuracy },
        ];
        if self.config.eval.bleu_every > 0 {
            panels.push(Panel { axis: "BLEU".into(), lines: bleu });
        }
        panels
    }

    fn save(&self, model: &M, folder: &Path) -> Result<()> {
        self.format.save(model, folder)?;
        let section = &self.config.parallel;
        let file = TranslationFile::new(section.languages(), section.max_len);
        folder::save(folder, &self.vocabularies, &file)
    }

    fn load(&self, model: M, folder: &Path) -> Result<M> {
        self.format.load(model, folder)
    }

    fn report(
        &self,
        exported: &Exported<'_, M>,
        progress: &mut dyn RunProgress,
    ) -> Result<Vec<SplitFigures>> {
        let translates = self.config.eval.bleu_every > 0;
        let mut written = Vec::new();
        let splits = [("dev", &self.data.dev), ("test", &self.data.test)];
        let reported = exported.report_splits(splits, progress, |split, pairs, advanced| {
            let (figures, translated) =
                self.evaluated(exported.model, pairs, translates, exported.device, advanced)?;
            let predictions = translated
                .as_ref()
                .map(|texts| Box::new(self.predictions(pairs, texts)) as Box<dyn Predictions>);
            written.extend(translated.map(|texts| (split.to_owned(), texts)));
            let decoded = translates.then(|| ("decoding", decoding(self.config.eval.beams)));
            Ok(Measured { figures, predictions, facts: decoded.into_iter().collect(), baseline: None })
        })?;
        for (split, texts) in written {
            let path = exported.run.join("report").join(split).join("translations.txt");
            write_atomic(
                &path,
                (texts.join(
                    "
",
                ) + "
")
                .as_bytes(),
            )?;
        }
        if let Some(warning) = exported.loss_warning()? {
            progress.note(&format!("warning: {warning}; {CALMER}"));
        }
        Ok(reported)
    }
}
