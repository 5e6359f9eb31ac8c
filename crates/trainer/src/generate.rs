//! Writing on: a trained language model asked how texts go on.

use crate::fit::check_vocabulary;
use crate::{Result, TrainerError};
use burn::tensor::Device;
use cloze_model::awd_lstm::AwdLstmConfig;
use cloze_model::blocks::{pack_weights, quantize_int8};
use cloze_model::generate::{
    DecodeConfig, DecodeSettings, Hypothesis, LanguageModel, Request, Search, WrittenToken, continue_prompts,
};
use cloze_model::gpt::GptConfig;
use cloze_model::huggingface::{DecodeOptions, Format, load_published, model_type, read_decode_settings};
use cloze_model::{ModelError, ParamInit};
use cloze_tokenizer::Tokenizer;
use std::fmt::Debug;
use std::path::Path;

/// How texts go on.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct GenerateConfig {
    /// How tokens are chosen; none: as `decoding` and the model's folder say, else the most likely one each time.
    pub search: Option<Search>,
    /// What takes precedence over the settings of decoding in the model's folder, and what of them is left out. Where
    /// neither says how many tokens are written, they are [`MAX_NEW`](Self::MAX_NEW) at most.
    pub decoding: DecodeOptions,
    /// Continuations of each text.
    pub n: usize,
    /// Of the random numbers, together with the text: the same text and seed give the same continuations.
    pub seed: u64,
    /// Texts that are worked on at a time, at most.
    pub batch: usize,
    /// Whether linear maps multiply in 8 bits: faster, and a little less exact.
    pub int8: bool,
    /// Whether the tokens of a text see one another, and not only those before them: for a model that was trained so,
    /// with prefixes (Raffel et al. 2020, §3.2.1). What is written sees what is before it in either case.
    pub bidirectional_prompts: bool,
}

impl GenerateConfig {
    /// Tokens that are written at most where nothing says how many.
    pub const MAX_NEW: usize = 64;
}

impl Default for GenerateConfig {
    /// As the model's folder says.
    fn default() -> Self {
        Self {
            search: None,
            decoding: DecodeOptions::default(),
            n: 1,
            seed: 0,
            batch: 16,
            int8: false,
            bidirectional_prompts: false,
        }
    }
}

/// What is reported of each continuation as it grows: the text's number, the continuation's, and what was added to it.
pub type TextListener<'a> = Box<dyn FnMut(usize, usize, &str) + Send + 'a>;

/// A tokenizer and a language model from one folder.
///
/// The model multiplies in the precision of the caller's scope, [`with_precision`](cloze_ops::with_precision).
#[derive(Debug)]
pub struct Generator {
    tokenizer: Tokenizer,
    model: Box<dyn AnyLanguageModel>,
    device: Device,
    config: GenerateConfig,
    settings: DecodeSettings,
    decode: DecodeConfig,
    /// What an empty text begins with.
    begin: Option<u32>,
}

/// How a text goes on.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Continuation {
    /// What was written behind the text.
    pub text: String,
    /// What continuations of a beam are ordered by; else the log-probability.
    pub score: f64,
    /// The logarithm of its probability.
    pub log_prob: f64,
    /// How many tokens were written.
    pub n_tokens: usize,
    /// Whether the model ended the text; otherwise it was cut at its greatest length.
    pub ended: bool,
}

/// Texts and how they go on, in order.
pub struct Continuations<'a> {
    /// Of how many texts the beginning was left out, for they have more tokens than the model takes.
    pub truncated: usize,
    continuations: Box<dyn Iterator<Item = Result<Vec<Continuation>>> + 'a>,
}

impl Iterator for Continuations<'_> {
    type Item = Result<Vec<Continuation>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.continuations.next()
    }
}

type Decoded<'a> = Box<dyn Iterator<Item = cloze_model::Result<Vec<Hypothesis>>> + 'a>;
type Listener<'a> = Box<dyn FnMut(WrittenToken<'_>) + Send + 'a>;

/// The error for invalid settings of a search from the caller, not from the model's folder.
pub(crate) fn of_search(error: ModelError) -> TrainerError {
    match error {
        ModelError::Setting { key, found, expected } => {
            TrainerError::Setting { key: key.into(), found, expected }
        }
        other => other.into(),
    }
}

/// A language model of any kind.
trait AnyLanguageModel: Debug + Send + Sync {
    fn decode<'a>(
        &'a self,
        config: &'a DecodeConfig,
        device: &'a Device,
        requests: Vec<Request>,
        listener: Option<Listener<'a>>,
    ) -> cloze_model::Result<Decoded<'a>>;

    fn most_tokens(&self) -> Option<usize>;
}

impl<M: LanguageModel + Debug + Send> AnyLanguageModel for M {
    fn decode<'a>(
        &'a self,
        config: &'a DecodeConfig,
        device: &'a Device,
        requests: Vec<Request>,
        listener: Option<Listener<'a>>,
    ) -> cloze_model::Result<Decoded<'a>> {
        let decoding = continue_prompts(self, config, device, requests)?;
        Ok(match listener {
            Some(listener) => Box::new(decoding.with_listener(listener)),
            None => Box::new(decoding),
        })
    }

    fn most_tokens(&self) -> Option<usize> {
        self.max_tokens()
    }
}

impl Generator {
    /// Loads a Hugging Face folder of a language model: `config.json`, weights and a tokenizer. `device` is one without
    /// autodiff.
    ///
    /// # Errors
    /// Whatever is missing or damaged in the folder, by name; [`TrainerError::VocabularyMismatch`];
    /// [`TrainerError::Setting`] for an invalid `config`.
    pub fn load(folder: &Path, config: GenerateConfig, device: &Device) -> Result<Self> {
        let tokenizer = Tokenizer::load(folder)?;
        let init = &mut ParamInit::new(device, 0);
        if model_type(folder)?.as_deref() == Some(AwdLstmConfig::MODEL_TYPES[0]) {
            if config.int8 {
                let (found, expected) = ("true".into(), "false: the model is recurrent".into());
                return Err(TrainerError::Setting { key: "int8".into(), found, expected });
            }
            let (shape, model, _) = load_published::<AwdLstmConfig>(folder, init)?;
            check_vocabulary(&tokenizer, folder, shape.vocab_size)?;
            return Self::of_folder(folder, tokenizer, model, config, device);
        }
        let (shape, mut model, _) = load_published::<GptConfig>(folder, init)?;
        check_vocabulary(&tokenizer, folder, shape.vocab_size)?;
        model.bidirectional_prompts = config.bidirectional_prompts;
        match config.int8 {
            true => quantize_int8(&mut model),
            false => pack_weights(&mut model),
        }
        Self::of_folder(folder, tokenizer, model, config, device)
    }

    /// With a folder's model, and what its other files say of how it generates.
    fn of_folder<M: LanguageModel + Debug + Send + 'static>(
        folder: &Path,
        tokenizer: Tokenizer,
        model: M,
        config: GenerateConfig,
        device: &Device,
    ) -> Result<Self> {
        let mut settings = read_decode_settings(folder, &config.decoding)?;
        if settings.stop_ids.is_empty() {
            let end = tokenizer.config().eos_token.as_ref();
            let end = end.and_then(|end| tokenizer.token_to_id(&end.content));
            settings.stop_ids.extend(end.map(|id| id as i32));
        }
        Self::with_settings(tokenizer, model, settings, config, device)
    }

    /// With an existing model, and the ids that end its texts. How the model reads prompts is its own affair.
    ///
    /// # Errors
    /// An invalid `config`.
    pub fn new<M: LanguageModel + Debug + Send + 'static>(
        tokenizer: Tokenizer,
        model: M,
        stop_ids: Vec<i32>,
        config: GenerateConfig,
        device: &Device,
    ) -> Result<Self> {
        let mut settings = config.decoding.settings.clone();
        settings.stop_ids = stop_ids;
        Self::with_settings(tokenizer, model, settings, config, device)
    }

    fn with_settings<M: LanguageModel + Debug + Send + 'static>(
        mut tokenizer: Tokenizer,
        model: M,
        settings: DecodeSettings,
        config: GenerateConfig,
        device: &Device,
    ) -> Result<Self> {
        tokenizer.set_truncation(None)?;
        tokenizer.set_padding(None)?;
        let of = |declared: &Option<cloze_tokenizer::AddedToken>| {
            declared.as_ref().and_then(|token| tokenizer.token_to_id(&token.content))
        };
        // GPT-2 begins texts with what ends them.
        let names = tokenizer.config();
        let begin = of(&names.bos_token).or_else(|| of(&names.eos_token));
        let begin = begin.or_else(|| settings.stop_ids.first().and_then(|id| u32::try_from(*id).ok()));
        let search = config.search.clone().unwrap_or_else(|| settings.search(Search::Greedy));
        let mut decode = settings.config(search).with_n_best(config.n);
        decode.batch = config.batch;
        decode.validate().map_err(of_search)?;
        Ok(Self {
            tokenizer,
            model: Box::new(model),
            device: device.clone(),
            config,
            settings,
            decode,
            begin,
        })
    }

    /// How many tokens a text may have; longer ones lose their beginnings. None if there is no limit.
    pub fn max_len(&self) -> Option<usize> {
        // Room for what is written, but not at the cost of the text.
        // A text has a token at least.
        let max_new = self.max_new(1);
        self.model.most_tokens().map(|most| most.saturating_sub(max_new).max(most / 2).max(1))
    }

    /// Whether continuations are those of a beam, which are not there before their end.
    pub fn has_beam(&self) -> bool {
        matches!(self.decode.search, Search::Beam(_))
    }

    /// How many tokens are written at most behind this many others.
    fn max_new(&self, before: usize) -> usize {
        self.settings.max_new(before).unwrap_or(GenerateConfig::MAX_NEW)
    }

    /// Goes on from texts: for each its continuations, in the order of the texts, as they come. `listener` hears of each
    /// continuation as it grows, unless there is a beam: the text's number, the continuation's, and what was added to it.
    ///
    /// # Errors
    /// [`cloze_tokenizer::Error::Batch`] with the first text that the tokenizer fails on, or that is empty where the
    /// tokenizer has no token to begin with. Of each text: [`TrainerError::Model`] for an output that is not finite.
    pub fn generate<'a>(
        &'a self,
        texts: &[&str],
        listener: Option<TextListener<'a>>,
    ) -> Result<Continuations<'a>> {
        let all = self.tokenizer.encode_ids_batch(texts, true)?;
        // A tokenizer may end texts with what says that nothing follows.
        let around = self.tokenizer.encode_ids("", true)?;
        let ends = around.last().filter(|id| self.decode.stop_ids.contains(&(**id as i32))).copied();
        let (mut truncated, mut prompts) = (0, Vec::with_capacity(all.len()));
        for mut ids in all {
            ids.pop_if(|last| Some(*last) == ends);
            if ids.is_empty() {
                let Some(begin) = self.begin else { return Err(TrainerError::EmptyPrompt) };
                ids.push(begin);
            }
            if let Some(most) = self.max_len().filter(|most| ids.len() > *most) {
                truncated += 1;
                ids.drain(..ids.len() - most);
            }
            prompts.push(ids);
        }
        let requests = prompts.iter().map(|prompt| {
            let input = prompt.iter().map(|id| *id as i32).collect();
            Request::new(input, self.max_new(prompt.len())).with_seed(self.config.seed)
        });
        let requests = requests.collect();
        let listener = listener.map(|mut listener| {
            let mut told: std::collections::HashMap<(usize, usize), usize> = std::collections::HashMap::new();
            let prompts = prompts.clone();
            Box::new(move |written: WrittenToken<'_>| {
                let Ok(text) = self.written(&prompts[written.request], written.tokens) else { return };
                let told = told.entry((written.request, written.sample)).or_default();
                // A character's bytes may be spread over several tokens.
                let whole = text.trim_end_matches(char::REPLACEMENT_CHARACTER);
                if let Some(new) = whole.get(*told..).filter(|new| !new.is_empty()) {
                    listener(written.request, written.sample, new);
                    *told = whole.len();
                }
            }) as Listener<'a>
        });
        let found = self.model.decode(&self.decode, &self.device, requests, listener)?;
        let continuations = found.zip(prompts).map(|(found, prompt)| {
            found
                .map_err(TrainerError::from)?
                .into_iter()
                .map(|found| self.continuation(&prompt, found))
                .collect()
        });
        Ok(Continuations { truncated, continuations: Box::new(continuations) })
    }

    fn continuation(&self, prompt: &[u32], found: Hypothesis) -> Result<Continuation> {
        Ok(Continuation {
            text: self.written(prompt, &found.ids)?,
            score: found.score,
            log_prob: found.log_prob,
            n_tokens: found.ids.len(),
            ended: found.ended,
        })
    }

    /// The text of tokens behind a prompt.
    fn written(&self, prompt: &[u32], tokens: &[i32]) -> Result<String> {
        let tokens: Vec<u32> = tokens.iter().map(|id| *id as u32).collect();
        // A piece may look different at a text's beginning.
        let last = &prompt[prompt.len().saturating_sub(8)..];
        let whole = self.tokenizer.decode(&[last, &tokens].concat(), true)?;
        let before = self.tokenizer.decode(last, true)?;
        match whole.strip_prefix(&before) {
            Some(written) => Ok(written.to_owned()),
            None => Ok(self.tokenizer.decode(&tokens, true)?),
        }
    }
}
