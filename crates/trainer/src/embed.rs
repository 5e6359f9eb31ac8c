//! Sentence embeddings: a pretrained encoder's states, pooled.

use crate::fit::check_fit;
use crate::input::input;
use crate::{Result, TrainerError};
use burn::tensor::{Device, Tensor};
use cloze_data::{TokenBatch, TokenSequence};
use cloze_model::bert::{Bert, BertConfig};
use cloze_model::blocks::{pack_weights, quantize_int8};
use cloze_model::huggingface::{Dense, LoadReport, PretrainedFolder, SentenceConfig};
use cloze_model::{ModelError, ParamInit};
use cloze_ops::on_awake_cores;
use cloze_tokenizer::{Encoding, OffsetUnit, Sequence, Tokenizer, Truncation};
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

pub use cloze_model::bert::{Pooling, SentencePooling};

/// What overrides the settings in a model's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbedConfig {
    /// The pooling. Default: what the folder's sentence-transformers modules say, or the mean if there are none.
    pub pooling: Option<SentencePooling>,
    /// Whether embeddings are scaled to length 1. Default: what the modules say, or no if there are none.
    pub normalize: Option<bool>,
    /// What is put before each text. Default: what the folder says, or nothing.
    pub prompt: Option<Prompt>,
    /// The language that all texts are in, where the model has language embeddings (XLM): a name in the folder's `lang2id`,
    /// or a number. Default: the folder's `lang_id`.
    pub language: Option<String>,
    /// The most tokens in a batch, including padding if the device needs it. A longer text is a batch of its own.
    pub batch_tokens: usize,
    /// Whether the layers multiply in 8 bits: faster, and a little less exact.
    pub int8: bool,
}

impl Default for EmbedConfig {
    fn default() -> Self {
        Self { pooling: None, normalize: None, prompt: None, language: None, batch_tokens: 1024, int8: false }
    }
}

/// What is put before a text that is embedded, such as `"search_query: "`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prompt {
    /// The folder's prompt of this name.
    Name(String),
    /// This text.
    Text(String),
}

/// A tokenizer and an encoder from one folder.
///
/// The model multiplies in the precision of the caller's scope, [`with_precision`](cloze_ops::with_precision):
///
/// ```no_run
/// use burn::tensor::Device;
/// use cloze_model::ops::{Precision, with_precision};
/// use cloze_trainer::embed::{EmbedConfig, Embedder};
///
/// # fn main() -> cloze_trainer::Result<()> {
/// # let device = Device::default();
/// let embedder = Embedder::load("my-model".as_ref(), EmbedConfig::default(), &device)?;
/// let embeddings = with_precision(Precision::Bf16, || embedder.embed(&["a text", "another"]))?;
/// assert_eq!(embeddings.values.len(), 2 * embedder.width());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Embedder {
    tokenizer: Tokenizer,
    model: Bert,
    device: Device,
    pooling: SentencePooling,
    dense: Vec<Dense>,
    normalize: bool,
    lowercase: bool,
    prompt: String,
    batch_tokens: usize,
    width: usize,
    max_len: usize,
    report: LoadReport,
}

/// The embeddings of several texts.
#[derive(Debug, Clone, PartialEq)]
pub struct Embeddings {
    /// `[texts · width]`, in the order of the texts.
    pub values: Vec<f32>,
    /// How many texts were longer than [`Embedder::max_len`] and were cut at their ends.
    pub truncated: usize,
}

impl Embedder {
    /// Loads a Hugging Face folder: `config.json`, `model.safetensors`, a tokenizer, and the modules of
    /// sentence-transformers if it has them. `device` is one without autodiff.
    ///
    /// # Errors
    /// Whatever is missing or damaged in the folder, by name; a pooling or module of sentence-transformers
    /// that is not known here; a language that the model does not have; a prompt that the folder does not have, or whose tokens it does not pool; a pooling of
    /// more layers than there are;
    /// [`VocabularyMismatch`](crate::TrainerError::VocabularyMismatch),
    /// [`UnfitTokenizer`](crate::TrainerError::UnfitTokenizer).
    pub fn load(folder: &Path, config: EmbedConfig, device: &Device) -> Result<Self> {
        let (mut tokenizer, bert, model, report) =
            load_encoder(folder, config.language.as_deref(), config.int8, device)?;
        let sentence = SentenceConfig::load(folder)?.unwrap_or_default();
        let declared = sentence.max_len.or(tokenizer.config().model_max_length);
        let declared = declared.or(tokenizer.truncation().map(|truncation| truncation.max_length));
        let max_len = declared.unwrap_or(usize::MAX).min(bert.max_positions);
        tokenizer.set_truncation(Some(Truncation::to(max_len)))?;
        tokenizer.set_padding(None)?;
        tokenizer.set_keep_overflow(false);
        let pooling = config.pooling.map_or_else(|| sentence.pooling(), Ok)?;
        pooling.check(bert.n_layers)?;
        let mut width = pooling.width(bert.d_model);
        let mut dense = Vec::with_capacity(sentence.dense.len());
        for path in &sentence.dense {
            let module = Dense::load(&folder.join(path), device)?;
            if module.d_in() != width {
                let (takes, path) = (module.d_in(), folder.join(path));
                let message = format!(
                    "{}: it takes {takes} features, expected {width}, those of what it maps",
                    path.display()
                );
                return Err(ModelError::Config(message).into());
            }
            width = module.d_out();
            dense.push(module);
        }
        let prompt = match config.prompt {
            Some(Prompt::Text(text)) => text,
            Some(Prompt::Name(name)) => sentence.prompt(Some(&name))?.to_string(),
            None => sentence.prompt(None)?.to_string(),
        };
        if sentence.excludes_prompt && !prompt.is_empty() {
            let message =
                "pooling without the prompt (`include_prompt`: false) is not supported, expected no prompt";
            return Err(ModelError::Config(message.into()).into());
        }
        Ok(Self {
            tokenizer,
            model,
            device: device.clone(),
            normalize: config.normalize.unwrap_or(sentence.normalize),
            lowercase: sentence.lowercase,
            prompt,
            batch_tokens: config.batch_tokens.max(1),
            width,
            pooling,
            dense,
            max_len,
            report,
        })
    }

    /// Features of an embedding.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The most tokens of a text, special ones among them; longer texts are cut at their ends.
    pub fn max_len(&self) -> usize {
        self.max_len
    }

    /// How a text's states become one vector.
    pub fn pooling(&self) -> &SentencePooling {
        &self.pooling
    }

    /// Whether embeddings are scaled to length 1.
    pub fn normalizes(&self) -> bool {
        self.normalize
    }

    /// Which parameters the checkpoint lacks, and which of its tensors are not used.
    pub fn report(&self) -> &LoadReport {
        &self.report
    }

    /// Embeds texts, in batches sorted by length. The embedding of a text without tokens is zero.
    ///
    /// # Errors
    /// [`cloze_tokenizer::Error::Batch`] with the first text that the tokenizer fails on;
    /// [`TrainerError::OutputNotFinite`].
    pub fn embed<T: AsRef<str>>(&self, texts: &[T]) -> Result<Embeddings> {
        let texts: Vec<Sequence> = texts.iter().map(|text| Sequence::Text(text.as_ref())).collect();
        self.embed_sequences(&texts)
    }

    /// Embeds texts, words, and beginnings of texts that go on ([`Sequence::Beginning`]).
    ///
    /// # Errors
    /// Those of [`embed`](Self::embed), and for a beginning that does not decide the embedding.
    pub fn embed_sequences(&self, texts: &[Sequence<'_>]) -> Result<Embeddings> {
        on_awake_cores(&self.device, || self.embed_here(texts))
    }

    /// Encodes texts behind the prompt. Before words stand the prompt's words.
    fn encode(&self, texts: &[Sequence<'_>]) -> Result<Vec<Encoding>> {
        let encode = |texts: &[Sequence]| self.tokenizer.encode_inputs(texts, true, OffsetUnit::Bytes);
        if !self.lowercase && self.prompt.is_empty() {
            return Ok(encode(texts)?);
        }
        let in_case = |text: &str| if self.lowercase { text.to_lowercase() } else { text.to_string() };
        let whole: Vec<Vec<String>> = texts
            .iter()
            .map(|text| match text {
                Sequence::Text(text) | Sequence::Beginning(text) => {
                    vec![in_case(&format!("{}{text}", self.prompt))]
                }
                Sequence::Words(words) => {
                    let words = words.iter().copied();
                    self.prompt.split_whitespace().chain(words).map(in_case).collect()
                }
            })
            .collect();
        let words: Vec<Vec<&str>> =
            whole.iter().map(|words| words.iter().map(String::as_str).collect()).collect();
        let texts: Vec<Sequence> = texts
            .iter()
            .zip(&words)
            .map(|(text, words)| match text {
                Sequence::Text(_) => Sequence::Text(words[0]),
                Sequence::Beginning(_) => Sequence::Beginning(words[0]),
                Sequence::Words(_) => Sequence::Words(words),
            })
            .collect();
        Ok(encode(&texts)?)
    }

    fn embed_here(&self, texts: &[Sequence<'_>]) -> Result<Embeddings> {
        let encodings = self.encode(texts)?;
        let mut values = vec![0.0; texts.len() * self.width];
        // Texts with the same tokens are computed once, by the first of them.
        let mut firsts: HashMap<(&[u32], &[u32]), usize> = HashMap::new();
        let of = |i: usize| (&encodings[i].ids[..], &encodings[i].type_ids[..]);
        let first: Vec<usize> = (0..texts.len()).map(|i| *firsts.entry(of(i)).or_insert(i)).collect();
        // A tokenizer without special tokens makes nothing of an empty text: its embedding stays zero.
        let mut order: Vec<usize> =
            (0..texts.len()).filter(|i| first[*i] == *i && !encodings[*i].is_empty()).collect();
        order.sort_by_key(|i| encodings[*i].len());
        let lengths: Vec<usize> = order.iter().map(|i| encodings[*i].len()).collect();
        for batch in batches(&lengths, self.batch_tokens, self.model.takes_packed()) {
            let batch = &order[batch];
            let sequences: Vec<&Encoding> = batch.iter().map(|i| &encodings[*i]).collect();
            let pooled = self.pooled(&sequences).into_data();
            let pooled: Vec<f32> = pooled.try_into_vec::<f32>().expect("embeddings are FP32");
            for (row, i) in pooled.chunks_exact(self.width).zip(batch) {
                values[i * self.width..][..self.width].copy_from_slice(row);
            }
        }
        if !values.iter().all(|value| value.is_finite()) {
            return Err(TrainerError::OutputNotFinite);
        }
        for (i, first) in first.iter().enumerate().filter(|(i, first)| i != *first) {
            values.copy_within(first * self.width..(first + 1) * self.width, i * self.width);
        }
        if self.normalize {
            values.chunks_exact_mut(self.width).for_each(normalize);
        }
        let truncated = encodings.iter().filter(|encoding| encoding.truncated).count();
        Ok(Embeddings { values, truncated })
    }

    fn pooled(&self, sequences: &[&Encoding]) -> Tensor<2> {
        // A batch that is padded gets a rounded length, as the model's own padding would not: few different lengths are
        // few shapes to compile for.
        let mut tokens = TokenBatch::new().with_max_len(self.max_len);
        let sequences: Vec<TokenSequence> = sequences.iter().map(|encoding| (*encoding).into()).collect();
        tokens.extend(&sequences);
        let input = input(&self.model, &tokens, &self.device);
        let pooled = self.pooling.forward(&self.model, input);
        self.dense.iter().fold(pooled, |embeddings, module| module.forward(embeddings))
    }
}

/// The tokenizer and the encoder of a folder, made for inference: in 8 bits or not, on `device`, and for texts of a
/// `language` if there is one.
///
/// # Errors
/// Those of [`Embedder::load`] that are of no pooling.
pub(crate) fn load_encoder(
    folder: &Path,
    language: Option<&str>,
    int8: bool,
    device: &Device,
) -> Result<(Tokenizer, BertConfig, Bert, LoadReport)> {
    let encoder = || -> Result<_> {
        let mut pretrained = PretrainedFolder::open(folder)?;
        if let Some(name) = language {
            let (key, found) = ("language".into(), format!("\"{name}\""));
            let number = pretrained.config.language(name);
            pretrained.config.encoder.language =
                Some(number.map_err(|expected| TrainerError::Setting { key, found, expected })?);
        }
        Ok(pretrained.load_encoder(&mut ParamInit::new(device, 0))?)
    };
    let (tokenizer, model) = rayon::join(|| Tokenizer::load(folder), encoder);
    let (tokenizer, (bert, mut model, report)) = (tokenizer?, model?);
    check_fit(&tokenizer, &bert, folder, false)?;
    if int8 {
        quantize_int8(&mut model);
    } else {
        pack_weights(&mut model);
    }
    Ok((tokenizer, bert, model, report))
}

/// Batches of sequences of these `lengths`, which ascend: as many as have at most this many tokens, with their padding unless
/// they are packed, and one at least.
pub(crate) fn batches(
    lengths: &[usize],
    batch_tokens: usize,
    packed: bool,
) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let rest = lengths.get(start..).filter(|rest| !rest.is_empty())?;
        let mut tokens = 0;
        let fits = rest.iter().enumerate().take_while(|(place, len)| {
            tokens = if packed { tokens + **len } else { (place + 1) * **len };
            tokens <= batch_tokens
        });
        let batch = start..start + fits.count().max(1);
        start = batch.end;
        Some(batch)
    })
}

/// Scales a vector to length 1. A vector of zeros stays as it is.
fn normalize(embedding: &mut [f32]) {
    let norm = embedding.iter().map(|x| x * x).sum::<f32>().sqrt().max(1e-12);
    embedding.iter_mut().for_each(|x| *x /= norm);
}
