//! AWD-LSTM training as an engine recipe: parallel streams of running text.

use super::StreamedLeftToRight;
use crate::config::AwdLstmRunConfig;
use crate::engine::replicas::Replicas;
use crate::engine::{
    Advance, Exported, Objective, Position, Recipe, RunOptions, SplitFigures, StepBatches, Term,
};
use crate::language_model::sequences;
use crate::metrics::Record;
use crate::metrics::curve::Panel;
use crate::metrics::progress::RunProgress;
use crate::running_text::{TextParts, TextSize, TextSource, figures};
use crate::{Result, TrainerError};
use burn::tensor::{Device, Tensor};
use cloze_data::{Loader, StreamBatch, TextStreams};
use cloze_evaluation::figures::Figures;
use cloze_model::ParamInit;
use cloze_model::awd_lstm::{AwdLstmConfig, StreamedAwdLstm};
use cloze_model::huggingface::{FloatType, load_published_as, save_published};
use cloze_model::ops;
use cloze_tokenizer::Tokenizer;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The two parts of a corpus, as streams of running text.
#[derive(Debug)]
pub struct StreamSplits {
    train: Arc<TextStreams>,
    /// All streams of the held-out text, batch by batch.
    held_out: Vec<StreamBatch>,
    size: TextSize,
    /// Identifies the texts and the tokenizer.
    key: String,
}

impl StreamSplits {
    /// Prepares the config's corpus and cuts it into streams as configured.
    ///
    /// # Errors
    /// Corpus errors; an end piece that the tokenizer does not have.
    pub fn prepare(
        config: &AwdLstmRunConfig,
        tokenizer: &Tokenizer,
        options: &RunOptions<'_>,
        progress: &mut dyn RunProgress,
    ) -> Result<Self> {
        let (seed, eval) = (config.common.run.seed, &config.eval);
        let end = ("streams.end", config.streams.end.as_deref());
        let source = TextSource { corpus: &config.corpus, end, eval, seed };
        let TextParts { train, held_out, key } = source.prepare(tokenizer, options, progress)?;
        // A short text has fewer streams.
        let streams = eval.batch_size.min(held_out.len().saturating_sub(1).max(1) as usize);
        let held_out = TextStreams::new(held_out, streams, &config.streams, seed)?;
        let held_out = held_out.in_order((eval.max_blocks / streams).max(1));
        let mut size = TextSize::default();
        for stream in 0..streams {
            let of_stream = held_out.iter().flat_map(|batch| {
                let len = batch.tokens.lengths[stream];
                &batch.tokens.next[stream * len..(stream + 1) * len]
            });
            size.add(of_stream.copied(), tokenizer)?;
        }
        let train = Arc::new(TextStreams::new(train, config.n_streams(), &config.streams, seed)?);
        Ok(Self { train, held_out, size, key })
    }
}

/// The training of an AWD-LSTM on streams of text.
#[derive(Debug)]
pub struct AwdLstmRecipe<'a> {
    splits: StreamSplits,
    run: &'a AwdLstmRunConfig,
    objective: StreamedLeftToRight,
    shape: AwdLstmConfig,
    tokenizer: &'a Tokenizer,
    /// Path of the tokenizer.
    tokenizer_path: PathBuf,
}

impl<'a> AwdLstmRecipe<'a> {
    /// A recipe on these streams, in the batches that the run's config sets. The model, of `shape`, is saved
    /// with its tokenizer from `tokenizer_path`.
    pub fn new(
        run: &'a AwdLstmRunConfig,
        splits: StreamSplits,
        shape: AwdLstmConfig,
        tokenizer: &'a Tokenizer,
        tokenizer_path: PathBuf,
    ) -> Self {
        let (regularisation, sampled) = (run.regularisation, run.model.output.sampled());
        let objective = StreamedLeftToRight { regularisation, d_model: shape.d_embedding, sampled };
        Self { splits, run, objective, shape, tokenizer, tokenizer_path }
    }
}

impl Objective for AwdLstmRecipe<'_> {
    type Model = StreamedAwdLstm;
    type Batch = StreamBatch;

    fn terms(&self, step: u64) -> Vec<Term> {
        self.objective.terms(step)
    }

    fn counts(&self, batch: &StreamBatch) -> Vec<f64> {
        self.objective.counts(batch)
    }

    fn sums(&self, model: &StreamedAwdLstm, batch: &StreamBatch, device: &Device) -> Vec<Tensor<1>> {
        self.objective.sums(model, batch, device)
    }

    fn share_state(
        &self,
        model: &StreamedAwdLstm,
        own: &[StreamBatch],
        replicas: &dyn Replicas,
    ) -> Result<()> {
        self.objective.share_state(model, own, replicas)
    }
}

impl Recipe for AwdLstmRecipe<'_> {
    fn data(&self) -> String {
        self.splits.key.clone()
    }

    fn data_changed(&self, checkpoint: PathBuf) -> TrainerError {
        TrainerError::CorpusChanged { checkpoint, tokenizer: self.tokenizer_path.clone() }
    }

    fn steps(&self, from: Position) -> Box<dyn Iterator<Item = Result<StepBatches<StreamBatch>>> + '_> {
        let train = &self.run.train;
        let loader = Loader::new(self.splits.train.clone(), train.batch_size)
            .with_workers(train.workers)
            .with_ahead(train.prefetch);
        StepBatches::from_loader(&loader, from, train.accumulate, |batch: &StreamBatch| {
            batch.tokens.ids.len() as u64
        })
    }

    fn split(&self) -> Option<&str> {
        Some(figures::HELD_OUT)
    }

    /// Each stream is read from its beginning to its end.
    fn evaluate(
        &self,
        model: &StreamedAwdLstm,
        device: &Device,
        advanced: &mut dyn FnMut(Advance),
    ) -> Result<Figures> {
        let model = &model.model;
        let all: usize = self.splits.held_out.iter().map(|batch| batch.tokens.ids.len()).sum();
        let (mut sum, mut done, mut state) = (0.0, 0, None);
        for StreamBatch { tokens, .. } in &self.splits.held_out {
            let (loss, last) = ops::on_awake_cores(device, || {
                let output = model.forward(&sequences(tokens), state.take(), device);
                let losses = model.losses(output.dropped, &tokens.next);
                (losses.into_data().iter::<f64>().sum::<f64>(), output.last)
            });
            (sum, state) = (sum + loss, Some(last));
            done += tokens.ids.len();
            advanced(Advance { done, share: done as f64 / all as f64 });
        }
        Ok(figures::figures(sum, all, Some(self.splits.size)))
    }

    fn evaluation_line(&self, step: u64, figures: &Figures) -> String {
        figures::evaluation_line(step, figures)
    }

    fn panels(&self, _: &[Record]) -> Vec<Panel> {
        figures::panels(true)
    }

    fn save(&self, model: &StreamedAwdLstm, folder: &Path) -> Result<()> {
        save_published(folder, &model.model, &self.shape, FloatType::F32)?;
        Ok(self.tokenizer.save(folder)?)
    }

    fn load(&self, model: StreamedAwdLstm, folder: &Path) -> Result<StreamedAwdLstm> {
        let device = model.model.device();
        let (saved, _) = load_published_as(&self.shape, folder, &mut ParamInit::new(&device, 0))?;
        Ok(StreamedAwdLstm { model: saved, ..model })
    }

    fn report(
        &self,
        exported: &Exported<'_, StreamedAwdLstm>,
        progress: &mut dyn RunProgress,
    ) -> Result<Vec<SplitFigures>> {
        figures::report(exported, "token", self.tokenizer.vocab_size(), progress)
    }
}
