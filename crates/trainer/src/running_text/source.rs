//! A corpus as running text, split into training and held-out parts.

use crate::config::{HeldOut, LanguageModelEval};
use crate::engine::RunOptions;
use crate::metrics::progress::RunProgress;
use crate::periodic_notes::PeriodicNotes;
use crate::pretraining::tables::prepared_corpus;
use crate::{Result, TrainerError};
use cloze_data::{CorpusConfig, Documents, Preparation, PrepareReport, RunningText, SpecialPieces, Split};
use cloze_evaluation::table::grouped;
use cloze_tokenizer::Tokenizer;
use std::path::Path;
use std::sync::Arc;

/// The source of running text and its split.
pub(crate) struct TextSource<'a> {
    pub corpus: &'a CorpusConfig,
    /// The key of the piece that ends each document, and the piece if it is configured.
    pub end: (&'static str, Option<&'a str>),
    pub eval: &'a LanguageModelEval,
    pub seed: u64,
}

/// The two parts of a corpus.
pub(crate) struct TextParts {
    pub train: RunningText,
    pub held_out: RunningText,
    /// Identifies the texts and the tokenizer.
    pub key: String,
}

impl TextSource<'_> {
    /// Prepares the corpus and prints its statistics.
    ///
    /// # Errors
    /// Corpus errors; an end piece that the tokenizer does not have.
    pub fn prepare(
        &self,
        tokenizer: &Tokenizer,
        options: &RunOptions<'_>,
        progress: &mut dyn RunProgress,
    ) -> Result<TextParts> {
        let (corpus, report) = {
            let (notes, crew) = (PeriodicNotes::new(progress), options.crew());
            let preparation = Preparation::new(self.corpus, Path::new(""), tokenizer, &options.cache);
            preparation.tells(&notes).with(&crew).documents()?
        };
        let corpus = Arc::new(corpus);
        let fraction = self.eval.heldout_fraction;
        let end = match self.end {
            (key, Some(name)) => Some(tokenizer.token_to_id(name).ok_or_else(|| TrainerError::Setting {
                key: key.into(),
                found: format!("{name:?}"),
                expected: "a piece of the tokenizer".into(),
            })?),
            (_, None) => SpecialPieces::find(tokenizer).end,
        };
        let [train, held_out] = match self.eval.heldout {
            HeldOut::End => RunningText::cut(&corpus, fraction, end)?,
            HeldOut::Documents => {
                let part = |split| {
                    let documents = Documents::new(corpus.clone(), split, fraction, self.seed)?;
                    Ok::<_, TrainerError>(RunningText::of_documents(&documents, end))
                };
                [part(Split::Train)?, part(Split::HeldOut)?]
            }
        };
        progress.note(&introduction(&report, &train, &held_out));
        Ok(TextParts { train, held_out, key: corpus.key().to_string() })
    }
}

/// A table of a prepared corpus and its splits.
fn introduction(report: &PrepareReport, train: &RunningText, held_out: &RunningText) -> String {
    let part = |text: &RunningText| {
        format!("{} tokens, {} documents", grouped(text.len()), grouped(text.n_documents()))
    };
    let rows = vec![
        ("documents", grouped(report.documents)),
        ("tokens", grouped(report.tokens)),
        ("  trained on", part(train)),
        ("  held out", part(held_out)),
    ];
    prepared_corpus(rows, report)
}
