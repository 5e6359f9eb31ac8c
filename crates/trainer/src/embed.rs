//! Sentence embeddings: a pretrained encoder's states, pooled.

mod quantized;

use crate::cutting::Cutting;
use crate::fit::check_fit;
use crate::input::input;
use crate::requests::Respond;
use crate::{Result, TrainerError};
use burn::tensor::{Device, Tensor};
use cloze_data::{TokenBatch, TokenSequence};
use cloze_model::bert::{Bert, BertConfig};
use cloze_model::blocks::{pack_weights, quantize_int8};
use cloze_model::huggingface::{Dense, LoadReport, PretrainedFolder, SentenceConfig};
use cloze_model::{ModelError, ParamInit};
use cloze_ops::on_awake_cores;
use cloze_tokenizer::{Encoding, OffsetUnit, Sequence, Tokenizer, Truncation, TruncationDirection};
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

pub use cloze_model::bert::{Pooling, SentencePooling};
pub use quantized::{VectorRanges, VectorType};

/// Overrides for the settings in a model folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbedConfig {
    /// The pooling. Default: from the folder's sentence-transformers modules, or the mean if there are none.
    pub pooling: Option<SentencePooling>,
    /// Whether embeddings are scaled to length 1. Default: from the modules, or no if there are none.
    pub normalize: Option<bool>,
    /// Prefix of each text. Default: from the folder, or nothing.
    pub prompt: Option<Prompt>,
    /// The language of all texts, if the model has language embeddings (XLM): a name in the folder's `lang2id`,
    /// or a number. Default: the folder's `lang_id`.
    pub language: Option<String>,
    /// Maximum tokens per batch, including padding if the device needs it. A longer text is a batch of its own.
    pub batch_tokens: usize,
    /// Whether the layers multiply in 8 bits: faster and slightly less exact.
    pub int8: bool,
}

impl Default for EmbedConfig {
    fn default() -> Self {
        Self { pooling: None, normalize: None, prompt: None, language: None, batch_tokens: 1024, int8: false }
    }
}

/// A prefix of embedded texts, such as `"search_query: "`.
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
    /// Whether to exclude the prompt's tokens from pooling.
    excludes_prompt: bool,
    batch_tokens: usize,
    d_model: usize,
    width: usize,
    max_len: usize,
    report: LoadReport,
    /// The settings of the folder's modules, with its prompts.
    sentence: SentenceConfig,
    /// For texts that are cut at their beginnings: the tokenizer itself cuts at their ends.
    cutting: Cutting,
}

/// The embeddings of several texts.
#[derive(Debug, Clone, PartialEq)]
pub struct Embeddings {
    /// `[texts · width]`, in the order of the texts.
    pub values: Vec<f32>,
    /// What was read of each text.
    pub texts: Vec<TextRead>,
}

impl Embeddings {
    /// The number of texts that were truncated to [`Embedder::max_len`].
    pub fn truncated(&self) -> usize {
        self.texts.iter().filter(|text| text.truncated).count()
    }
}

/// How much of a text was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextRead {
    /// Its tokens, including special tokens and the prompt's.
    pub tokens: usize,
    /// Whether it was truncated to [`Embedder::max_len`].
    pub truncated: bool,
}

impl From<&Encoding> for TextRead {
    fn from(encoding: &Encoding) -> Self {
        Self { tokens: encoding.len(), truncated: encoding.truncated }
    }
}

/// A text to embed, with overrides of the embedder's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbedRequest {
    /// The text.
    pub text: String,
    /// Ids to read in place of the text: all of them, and no others.
    pub ids: Option<Vec<u32>>,
    /// Where a text that is too long is cut. Default: at the end.
    pub cut: TruncationDirection,
    /// Its prefix.
    pub prompt: Option<String>,
    /// How its states are pooled.
    pub pooling: Option<SentencePooling>,
    /// Whether the embedding is scaled to length 1.
    pub normalize: Option<bool>,
    /// Whether to answer with the last layer's state of each token, `[tokens · d_model]`, in place of one vector:
    /// neither pooled nor scaled.
    pub each_token: bool,
}

impl EmbedRequest {
    /// A text with the embedder's settings.
    pub fn of(text: impl Into<String>) -> Self {
        let (text, cut) = (text.into(), TruncationDirection::Right);
        Self { text, ids: None, cut, prompt: None, pooling: None, normalize: None, each_token: false }
    }
}

/// An encoded text.
#[derive(Debug)]
pub struct EmbedUnit {
    encoding: Encoding,
    pooling: Option<SentencePooling>,
    normalize: bool,
    each_token: bool,
}

impl EmbedUnit {
    /// How much of the text is read.
    pub fn text(&self) -> TextRead {
        (&self.encoding).into()
    }
}

/// The embedding of a text.
#[derive(Debug, Clone, PartialEq)]
pub struct Embedding {
    /// [`Embedder::width`] elements, or what the request's pooling gives; with [`EmbedRequest::each_token`] the
    /// states of all tokens.
    pub values: Vec<f32>,
    /// How much of the text was read.
    pub text: TextRead,
}

impl Respond for Embedder {
    type Request = EmbedRequest;
    type Unit = EmbedUnit;
    type Answer = Embedding;

    fn encode(&self, request: EmbedRequest) -> Result<EmbedUnit> {
        // Ids are all that is read.
        let prompt = match request.ids {
            Some(_) => "",
            None => request.prompt.as_deref().unwrap_or(&self.prompt),
        };
        if let Some(pooling) = &request.pooling {
            pooling.check(self.model.encoder.layers.len())?;
            let (found, expected) = (pooling.width(self.d_model), self.pooling.width(self.d_model));
            if !self.dense.is_empty() && found != expected {
                let message = format!(
                    "a pooling of {found} features, expected {expected}: the model's `Dense` modules map these"
                );
                return Err(ModelError::Config(message).into());
            }
        }
        let pooling = match (request.pooling, &request.prompt) {
            (None, None) if request.ids.is_none() => None,
            (pooling, _) => {
                Some(self.pooling_behind(prompt, &pooling.unwrap_or_else(|| self.pooling.clone()))?)
            }
        };
        let encoding = match request.ids {
            Some(ids) => self.given(ids, request.cut)?,
            None => {
                let tokenizer = self.cutting(request.cut)?;
                self.encode_with(tokenizer, prompt, &[Sequence::Text(&request.text)])?.remove(0)
            }
        };
        let normalize = request.normalize.unwrap_or(self.normalize);
        let normalize = normalize && !request.each_token;
        Ok(EmbedUnit { encoding, pooling, normalize, each_token: request.each_token })
    }

    fn cost(&self, unit: &EmbedUnit) -> usize {
        unit.encoding.len()
    }

    fn answer(&self, units: &[&EmbedUnit]) -> Vec<Result<Embedding>> {
        on_awake_cores(&self.device, || {
            let mut answers: Vec<Option<Vec<f32>>> = vec![None; units.len()];
            let of_tokens: Vec<usize> = (0..units.len()).filter(|i| units[*i].each_token).collect();
            let encodings: Vec<&Encoding> = of_tokens.iter().map(|i| &units[*i].encoding).collect();
            for (i, states) in of_tokens.iter().zip(self.token_states(&encodings)) {
                answers[*i] = Some(states);
            }
            let pooling = |unit: &EmbedUnit| unit.pooling.clone().unwrap_or_else(|| self.pooling.clone());
            while let Some(first) = answers.iter().position(Option::is_none) {
                let of_group = pooling(units[first]);
                let group: Vec<usize> = (first..units.len())
                    .filter(|i| answers[*i].is_none() && pooling(units[*i]) == of_group)
                    .collect();
                let encodings: Vec<&Encoding> = group.iter().map(|i| &units[*i].encoding).collect();
                let width = self.width_of(&of_group);
                let mut values = vec![0.0; group.len() * width];
                self.pool(&of_group, &encodings, width, &mut values);
                for (row, i) in values.chunks_exact(width).zip(&group) {
                    answers[*i] = Some(row.to_vec());
                }
            }
            let finish = |(values, unit): (Option<Vec<f32>>, &&EmbedUnit)| {
                let mut values = values.unwrap_or_default();
                if !values.iter().all(|value| value.is_finite()) {
                    return Err(TrainerError::OutputNotFinite);
                }
                if unit.normalize {
                    normalize(&mut values);
                }
                Ok(Embedding { values, text: (&unit.encoding).into() })
            };
            answers.into_iter().zip(units).map(finish).collect()
        })
    }
}

impl Embedder {
    /// Loads a Hugging Face folder: `config.json`, `model.safetensors`, a tokenizer, and the
    /// sentence-transformers modules if there are any. `device` must be one without autodiff.
    ///
    /// # Errors
    /// A missing or damaged file in the folder; an unsupported pooling or sentence-transformers module; a
    /// language that the model does not have; a prompt that the folder does not have, or one whose tokens this
    /// pooling cannot exclude; a pooling of more layers than the model has;
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
        let embedder = Self {
            tokenizer,
            d_model: bert.d_model,
            excludes_prompt: sentence.excludes_prompt,
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
            sentence,
            cutting: Cutting::default(),
        };
        let pooling = embedder.pooling_behind(&embedder.prompt, &embedder.pooling)?;
        Ok(Self { pooling, ..embedder })
    }

    /// The pooling of texts after this prompt, excluding the prompt's tokens if the model's modules say so.
    fn pooling_behind(&self, prompt: &str, pooling: &SentencePooling) -> Result<SentencePooling> {
        if !self.excludes_prompt || prompt.is_empty() {
            return Ok(pooling.clone().after(0)?);
        }
        let encoding = self.encode_behind(prompt, &[Sequence::Text("")])?.remove(0);
        let ends = encoding.ids.last().is_some_and(|id| self.tokenizer.is_special(*id));
        Ok(pooling.clone().after(encoding.len() - usize::from(ends))?)
    }

    /// Width of an embedding with this pooling.
    fn width_of(&self, pooling: &SentencePooling) -> usize {
        if self.dense.is_empty() { pooling.width(self.d_model) } else { self.width }
    }

    /// Width of an embedding.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The maximum tokens of a text, special tokens included; longer texts are truncated.
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

    /// The parameters missing from the checkpoint, and its unused tensors.
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

    /// Embeds texts, words, and truncated texts ([`Sequence::Beginning`]).
    ///
    /// # Errors
    /// Those of [`embed`](Self::embed), and for a truncated text that does not determine the embedding.
    pub fn embed_sequences(&self, texts: &[Sequence<'_>]) -> Result<Embeddings> {
        on_awake_cores(&self.device, || self.embed_here(texts))
    }

    /// The tokenizer that cuts long texts there.
    fn cutting(&self, direction: TruncationDirection) -> Result<&Tokenizer> {
        match direction {
            TruncationDirection::Left => self.cutting.of(&self.tokenizer, direction, self.max_len),
            TruncationDirection::Right => Ok(&self.tokenizer),
        }
    }

    /// The encoding of given ids, cut to the model's maximum.
    fn given(&self, mut ids: Vec<u32>, cut: TruncationDirection) -> Result<Encoding> {
        let n_pieces = self.tokenizer.vocab_size();
        if let Some(id) = ids.iter().find(|id| self.tokenizer.id_to_token(**id).is_none()) {
            let problem = format!("the id {id}; expected one of the vocabulary, which has {n_pieces} pieces");
            return Err(TrainerError::BadInput { problem });
        }
        let excess = ids.len().saturating_sub(self.max_len);
        match cut {
            TruncationDirection::Left => drop(ids.drain(..excess)),
            TruncationDirection::Right => ids.truncate(self.max_len),
        }
        let n = ids.len();
        Ok(Encoding {
            tokens: vec![String::new(); n],
            type_ids: vec![0; n],
            offsets: vec![(0, 0); n],
            word_ids: vec![None; n],
            sequence_ids: vec![Some(0); n],
            special_tokens_mask: vec![0; n],
            attention_mask: vec![1; n],
            overflowing: Vec::new(),
            truncated: excess > 0,
            ids,
        })
    }

    /// The names of the folder's prompts.
    pub fn prompt_names(&self) -> impl Iterator<Item = &str> {
        self.sentence.prompts.keys().map(String::as_str)
    }

    /// The folder's prompt of this name.
    ///
    /// # Errors
    /// A name that the folder does not have.
    pub fn prompt(&self, name: &str) -> Result<&str> {
        Ok(self.sentence.prompt(Some(name))?)
    }

    /// The tokenizer, which truncates texts to the model's maximum.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// How much of a text is read, without computing its embedding.
    ///
    /// # Errors
    /// A text that the tokenizer fails on.
    pub fn measure(&self, text: &str) -> Result<TextRead> {
        let encodings = self.encode_behind(&self.prompt, &[Sequence::Text(text)])?;
        Ok(encodings.first().map_or(TextRead { tokens: 0, truncated: false }, TextRead::from))
    }

    /// Encodes texts after a prompt. Word sequences get the prompt's words in front.
    fn encode_behind(&self, prompt: &str, texts: &[Sequence<'_>]) -> Result<Vec<Encoding>> {
        self.encode_with(&self.tokenizer, prompt, texts)
    }

    fn encode_with(
        &self,
        tokenizer: &Tokenizer,
        prompt: &str,
        texts: &[Sequence<'_>],
    ) -> Result<Vec<Encoding>> {
        let encode = |texts: &[Sequence]| tokenizer.encode_inputs(texts, true, OffsetUnit::Bytes);
        if !self.lowercase && prompt.is_empty() {
            return Ok(encode(texts)?);
        }
        let in_case = |text: &str| if self.lowercase { text.to_lowercase() } else { text.to_string() };
        let whole: Vec<Vec<String>> = texts
            .iter()
            .map(|text| match text {
                Sequence::Text(text) | Sequence::Beginning(text) => {
                    vec![in_case(&format!("{prompt}{text}"))]
                }
                Sequence::Words(words) => {
                    let words = words.iter().copied();
                    prompt.split_whitespace().chain(words).map(in_case).collect()
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
        let encodings = self.encode_behind(&self.prompt, texts)?;
        let mut values = vec![0.0; texts.len() * self.width];
        self.pool(&self.pooling, &encodings.iter().collect::<Vec<_>>(), self.width, &mut values);
        if !values.iter().all(|value| value.is_finite()) {
            return Err(TrainerError::OutputNotFinite);
        }
        if self.normalize {
            values.chunks_exact_mut(self.width).for_each(normalize);
        }
        Ok(Embeddings { values, texts: encodings.iter().map(TextRead::from).collect() })
    }

    /// Writes the pooled states of texts into `values`, `[texts · width]`, which are initially zero.
    fn pool(&self, pooling: &SentencePooling, encodings: &[&Encoding], width: usize, values: &mut [f32]) {
        // Texts with the same tokens are computed once, by the first of them.
        let mut firsts: HashMap<(&[u32], &[u32]), usize> = HashMap::new();
        let of = |i: usize| (&encodings[i].ids[..], &encodings[i].type_ids[..]);
        let first: Vec<usize> = (0..encodings.len()).map(|i| *firsts.entry(of(i)).or_insert(i)).collect();
        // A tokenizer without special tokens makes nothing of an empty text: its embedding stays zero.
        let mut order: Vec<usize> =
            (0..encodings.len()).filter(|i| first[*i] == *i && !encodings[*i].is_empty()).collect();
        order.sort_by_key(|i| encodings[*i].len());
        let lengths: Vec<usize> = order.iter().map(|i| encodings[*i].len()).collect();
        for batch in batches(&lengths, self.batch_tokens, self.model.takes_packed()) {
            let batch = &order[batch];
            let sequences: Vec<&Encoding> = batch.iter().map(|i| encodings[*i]).collect();
            let pooled = self.pooled(pooling, &sequences).into_data();
            let pooled: Vec<f32> = pooled.try_into_vec::<f32>().expect("embeddings are FP32");
            for (row, i) in pooled.chunks_exact(width).zip(batch) {
                values[i * width..][..width].copy_from_slice(row);
            }
        }
        for (i, first) in first.iter().enumerate().filter(|(i, first)| i != *first) {
            values.copy_within(first * width..(first + 1) * width, i * width);
        }
    }

    /// The last layer's states of all tokens of each text, `[tokens · d_model]`.
    fn token_states(&self, encodings: &[&Encoding]) -> Vec<Vec<f32>> {
        let mut found = vec![Vec::new(); encodings.len()];
        let mut order: Vec<usize> = (0..encodings.len()).filter(|i| !encodings[*i].is_empty()).collect();
        order.sort_by_key(|i| encodings[*i].len());
        let lengths: Vec<usize> = order.iter().map(|i| encodings[*i].len()).collect();
        for batch in batches(&lengths, self.batch_tokens, self.model.takes_packed()) {
            let batch = &order[batch];
            let mut tokens = TokenBatch::new().with_max_len(self.max_len);
            let sequences: Vec<TokenSequence> = batch.iter().map(|i| encodings[*i].into()).collect();
            tokens.extend(&sequences);
            let input = input(&self.model, &tokens, &self.device);
            let starts = input.starts().into_iter().zip(batch);
            let places = starts.flat_map(|(start, i)| start..start + encodings[*i].len());
            let places: Vec<i32> = places.map(|place| place as i32).collect();
            let states = self.model.states_at(input, Tensor::from_data(places.as_slice(), &self.device));
            let states: Vec<f32> = states.into_data().try_into_vec().expect("states are FP32");
            let mut rest = states.as_slice();
            for i in batch {
                let (of_text, others) = rest.split_at(encodings[*i].len() * self.d_model);
                found[*i] = of_text.to_vec();
                rest = others;
            }
        }
        found
    }

    /// Features of a token's state.
    pub fn token_width(&self) -> usize {
        self.d_model
    }

    fn pooled(&self, pooling: &SentencePooling, sequences: &[&Encoding]) -> Tensor<2> {
        // A batch that is padded gets a rounded length, as the model's own padding would not: few different lengths are
        // few shapes to compile for.
        let mut tokens = TokenBatch::new().with_max_len(self.max_len);
        let sequences: Vec<TokenSequence> = sequences.iter().map(|encoding| (*encoding).into()).collect();
        tokens.extend(&sequences);
        let input = input(&self.model, &tokens, &self.device);
        let pooled = pooling.forward(&self.model, input);
        self.dense.iter().fold(pooled, |embeddings, module| module.forward(embeddings))
    }
}

/// The tokenizer and the encoder of a folder, prepared for inference: 8-bit or not, on `device`, for texts of
/// an optional `language`.
///
/// # Errors
/// Those of [`Embedder::load`], except for pooling.
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

/// Batches of sequences with these ascending `lengths`: each has at most this many tokens (with padding, unless
/// packed), or a single sequence.
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

/// Scales a vector to length 1. A zero vector stays zero.
pub(crate) fn normalize(embedding: &mut [f32]) {
    let norm = embedding.iter().map(|x| x * x).sum::<f32>().sqrt().max(1e-12);
    embedding.iter_mut().for_each(|x| *x /= norm);
}
