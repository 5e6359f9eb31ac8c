//! Text embedding for commands.

use std::collections::HashMap;
use std::path::PathBuf;

use anyhow::{Result, anyhow};
use burn::tensor::Device;
use cloze_evaluation::embeddings::Vectors;
use cloze_tokenizer::Error as TokenizerError;
use cloze_trainer::TrainerError;
use cloze_trainer::embed::{EmbedConfig, Embedder, Prompt};
use indicatif::HumanCount;

use crate::compute::Compute;
use crate::failure::by_option;
use crate::lines::BATCH;
use crate::model;
use crate::output::say;
use crate::progress::Progress;

#[derive(clap::Args)]
pub struct PromptArgs {
    /// Put the folder's prompt of this name before each text (default: from the folder, else none).
    #[arg(long, value_name = "NAME")]
    prompt: Option<String>,
    /// Put this text before each text.
    #[arg(long, value_name = "TEXT", conflicts_with = "prompt")]
    prompt_text: Option<String>,
}

impl PromptArgs {
    pub fn prompt(&self) -> Option<Prompt> {
        let text = || self.prompt_text.clone().map(Prompt::Text);
        self.prompt.clone().map(Prompt::Name).or_else(text)
    }
}

/// An embedding model, not yet loaded: the prompt may differ between calls.
pub struct Model<'a> {
    pub folder: PathBuf,
    device: Device,
    batch_tokens: usize,
    compute: &'a Compute,
}

/// The vectors of texts, in order.
pub struct Embedded {
    values: Vec<f32>,
    width: usize,
}

impl Embedded {
    /// # Errors
    /// A vector that is not finite.
    pub fn vectors(&self) -> Result<Vectors<'_>> {
        Ok(Vectors::new(&self.values, self.width)?)
    }

    /// All elements, row by row, and a vector's width.
    pub fn into_values(self) -> (Vec<f32>, usize) {
        (self.values, self.width)
    }

    /// The vectors of the first and of the second half of the texts.
    pub fn halves(self) -> [Self; 2] {
        let n = self.values.len() / self.width / 2;
        self.split(n)
    }

    /// The vectors of the first `n` texts, and of the others.
    pub fn split(mut self, n: usize) -> [Self; 2] {
        let others = self.values.split_off(n * self.width);
        let width = self.width;
        [self, Self { values: others, width }]
    }
}

impl<'a> Model<'a> {
    /// Finds a model by its folder or name and opens the device; processes `batch_tokens` at a time.
    pub fn open(name: &str, batch_tokens: usize, compute: &'a Compute) -> Result<Self> {
        Ok(Self { folder: model::folder(name)?, device: compute.open()?, batch_tokens, compute })
    }

    /// The vectors of texts, each after the prompt. Duplicate texts are embedded once. Shows progress, and
    /// reports how many texts were truncated.
    pub fn embed(&self, texts: &[&str], prompt: Option<Prompt>) -> Result<Embedded> {
        let Self { batch_tokens, compute, .. } = *self;
        let config = EmbedConfig { prompt, batch_tokens, int8: compute.int8, ..EmbedConfig::default() };
        let embedder = Embedder::load(&self.folder, config, &self.device).map_err(by_option)?;
        let mut places: HashMap<&str, usize> = HashMap::new();
        let mut distinct = Vec::new();
        for text in texts {
            places.entry(text).or_insert_with(|| {
                distinct.push(*text);
                distinct.len() - 1
            });
        }
        let mut progress = Progress::new("texts", false);
        let (mut values, mut truncated) = (Vec::with_capacity(distinct.len() * embedder.width()), 0);
        for batch in distinct.chunks(BATCH) {
            let embeddings = compute.run(|| embedder.embed(batch)).map_err(|error| match error {
                TrainerError::Tokenizer(TokenizerError::Batch { index, source, .. }) => {
                    let beginning: String = batch[index].chars().take(40).collect();
                    anyhow!(*source).context(format!("the text that begins with {beginning:?}"))
                }
                error => error.into(),
            })?;
            truncated += embeddings.truncated();
            values.extend(embeddings.values);
            let done = values.len() / embedder.width();
            progress.show(done, Some(done as f64 / distinct.len() as f64));
        }
        progress.finish();
        if truncated > 0 {
            say(format_args!(
                "{} of {} different texts are longer than {} tokens: only their beginnings are embedded",
                HumanCount(truncated as u64),
                HumanCount(distinct.len() as u64),
                embedder.max_len()
            ));
        }
        let width = embedder.width();
        if distinct.len() == texts.len() {
            return Ok(Embedded { values, width });
        }
        let row = |text: &&str| &values[places[text] * width..][..width];
        Ok(Embedded { values: texts.iter().flat_map(row).copied().collect(), width })
    }
}
