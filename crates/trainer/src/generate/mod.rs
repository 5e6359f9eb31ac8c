//! Text generation with a trained language model.

mod candidates;
mod stops;

pub(crate) use candidates::read_candidates;
pub(crate) use stops::Growing;

use crate::fit::{check_same_ends, check_same_pieces, check_vocabulary};
use crate::requests::Listener;
use crate::{Result, TrainerError};
use burn::tensor::Device;
use cloze_model::awd_lstm::AwdLstmConfig;
use cloze_model::blocks::{pack_weights, quantize_int8};
use cloze_model::generate::{
    DecodeConfig, DecodeSettings, Decoding, EnsembleMean, Hypothesis, InOrder, LanguageModel, Request,
    Search, TokenScore, WrittenToken,
};
use cloze_model::gpt::GptConfig;
use cloze_model::huggingface::{DecodeOptions, Format, load_published, model_type, read_decode_settings};
use cloze_model::{ModelError, ParamInit};
use cloze_tokenizer::Tokenizer;
use std::collections::HashMap;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How texts are continued.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct GenerateConfig {
    /// How tokens are chosen. Default: from `decoding` and the model folder, else greedy.
    pub search: Option<Search>,
    /// Decoding settings that override or remove those of the model folder. If neither sets a maximum length,
    /// it is [`MAX_NEW`](Self::MAX_NEW).
    pub decoding: DecodeOptions,
    /// Texts that end a continuation, and are not part of it.
    pub stops: Vec<String>,
    /// Continuations per text.
    pub n: usize,
    /// Random seed; the same text and seed give the same continuations.
    pub seed: u64,
    /// Maximum number of texts processed at a time.
    pub batch: usize,
    /// Whether linear layers multiply in 8 bits: faster and slightly less exact.
    pub int8: bool,
    /// Whether the prompt's tokens attend to one another bidirectionally: for models trained with prefixes
    /// (Raffel et al. 2020, §3.2.1). Generated tokens are causal in either case.
    pub bidirectional_prompts: bool,
    /// A file of the pieces that may be generated, one per line; default all. The piece that ends texts is always allowed.
    pub candidates: Option<PathBuf>,
}

impl GenerateConfig {
    /// The default maximum of new tokens.
    pub const MAX_NEW: usize = 64;
}

impl Default for GenerateConfig {
    /// The model folder's settings.
    fn default() -> Self {
        Self {
            search: None,
            decoding: DecodeOptions::default(),
            stops: Vec::new(),
            n: 1,
            seed: 0,
            batch: 16,
            int8: false,
            bidirectional_prompts: false,
            candidates: None,
        }
    }
}

/// How a text is continued, if different from the [`Generator`]'s settings.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct GenerateSettings {
    /// How tokens are chosen. Default: from `decoding` and the generator.
    pub search: Option<Search>,
    /// Decoding settings that override the generator's.
    pub decoding: DecodeSettings,
    /// Texts that end a continuation, and are not part of it.
    pub stops: Option<Vec<String>>,
    /// If set, each token's log-probability is told, and those of this many most likely tokens. Not with beam search.
    pub alternatives: Option<usize>,
    /// Continuations per text.
    pub n: Option<usize>,
    /// Random seed, used together with the text.
    pub seed: Option<u64>,
}

/// An encoded text and how to continue it.
#[derive(Debug)]
pub struct EncodedPrompt {
    pub(crate) request: Request,
    pub(crate) decode: Arc<DecodeConfig>,
    pub(crate) stops: Arc<[String]>,
    /// Whether its beginning was dropped because it exceeds the model's maximum.
    pub is_cut: bool,
    /// The number of tokens of that beginning.
    pub dropped: usize,
    /// Who hears the continuations as they grow.
    pub(crate) listener: Option<Listener>,
}

impl EncodedPrompt {
    /// The tokens of the prompt alone.
    pub fn prompt_tokens(&self) -> usize {
        self.request.input.len()
    }

    /// The maximum total tokens of the prompt and its continuations.
    pub fn n_tokens(&self) -> usize {
        let Request { input, max_new, .. } = &self.request;
        input.len() + max_new.saturating_mul(self.decode.width())
    }
}

/// Called as each continuation grows: the text's index, the continuation's, and the added text.
pub type TextListener<'a> = Box<dyn FnMut(usize, usize, &str) + Send + 'a>;

/// A tokenizer and a language model from one folder, or [several models](Self::ensemble) that write together.
///
/// The model multiplies in the precision of the caller's scope, [`with_precision`](cloze_ops::with_precision).
#[derive(Debug)]
pub struct Generator {
    tokenizer: Tokenizer,
    /// None for an existing model.
    folder: Option<PathBuf>,
    model: Box<dyn AnyLanguageModel>,
    device: Device,
    config: GenerateConfig,
    settings: DecodeSettings,
    defaults: Arc<DecodeConfig>,
    stops: Arc<[String]>,
    /// The first token for an empty text.
    begin: Option<u32>,
    /// The token that the tokenizer appends to texts, if any.
    end: Option<u32>,
}

/// A continuation of a text.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Continuation {
    /// The generated text.
    pub text: String,
    /// The ranking score in beam search; else the log-probability.
    pub score: f64,
    /// Its log-probability.
    pub log_prob: f64,
    /// Number of generated tokens.
    pub n_tokens: usize,
    /// Whether the model or a [stop](GenerateSettings::stops) ended the text; otherwise it reached the maximum length.
    pub ended: bool,
    /// Whether the text was cut before the maximum length, where the model's positions end.
    pub out_of_positions: bool,
    /// Its tokens; empty unless [`alternatives`](GenerateSettings::alternatives) are asked for.
    pub tokens: Vec<ScoredToken>,
}

/// A generated token.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ScoredToken {
    /// What it adds to the text.
    pub text: String,
    /// Its log-probability, before any setting that changes how tokens are chosen.
    pub log_prob: f64,
    /// The most likely tokens in its place and their log-probabilities, best first.
    pub best: Vec<(String, f64)>,
}

/// The continuations of texts, in order.
pub struct Continuations<'a> {
    /// The number of texts whose beginning was dropped because they exceed the model's maximum.
    pub truncated: usize,
    /// The number of tokens of those beginnings.
    pub dropped: usize,
    /// The number of tokens that those texts have with their beginnings.
    pub dropped_of: usize,
    continuations: Box<dyn Iterator<Item = Result<Vec<Continuation>>> + 'a>,
}

impl Iterator for Continuations<'_> {
    type Item = Result<Vec<Continuation>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.continuations.next()
    }
}

/// Maps invalid search settings to an error about the caller's settings, not the model folder's.
pub(crate) fn of_search(error: ModelError) -> TrainerError {
    match error {
        ModelError::Setting { key, found, expected } => {
            TrainerError::Setting { key: key.into(), found, expected }
        }
        other => other.into(),
    }
}

/// Checks the number of texts processed at a time.
pub(crate) fn check_batch(batch: usize) -> Result<()> {
    match batch {
        0 => Err(TrainerError::Setting {
            key: "batch".into(),
            found: "0".into(),
            expected: "1 or more".into(),
        }),
        _ => Ok(()),
    }
}

/// A language model of any kind.
trait AnyLanguageModel: Debug + Send + Sync {
    fn decoding<'a>(&'a self, device: &'a Device) -> Decoding<'a>;

    fn most_tokens(&self) -> Option<usize>;
}

/// Models that write together, each with its device.
#[derive(Debug)]
struct Together {
    members: Vec<(Box<dyn AnyLanguageModel>, Device)>,
    mean: EnsembleMean,
}

impl AnyLanguageModel for Together {
    fn decoding<'a>(&'a self, _: &'a Device) -> Decoding<'a> {
        let members = self.members.iter().map(|(model, device)| model.decoding(device));
        Decoding::ensemble(members.collect(), self.mean)
    }

    fn most_tokens(&self) -> Option<usize> {
        self.members.iter().filter_map(|(model, _)| model.most_tokens()).min()
    }
}

impl<M: LanguageModel + Debug + Send> AnyLanguageModel for M {
    fn decoding<'a>(&'a self, device: &'a Device) -> Decoding<'a> {
        Decoding::continuing(self, device)
    }

    fn most_tokens(&self) -> Option<usize> {
        self.max_tokens()
    }
}

impl Generator {
    /// Loads the Hugging Face folder of a language model: `config.json`, weights and a tokenizer. `device` must
    /// be one without autodiff.
    ///
    /// # Errors
    /// A missing or damaged file in the folder; [`TrainerError::VocabularyMismatch`]; [`TrainerError::Setting`]
    /// for an invalid `config`.
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

    /// A generator with a folder's model and generation settings.
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
        let generator = Self::with_settings(tokenizer, model, settings, config, device)?;
        Ok(Self { folder: Some(folder.into()), ..generator })
    }

    /// Generators that write each text together, whose models' probabilities of each next token are
    /// [combined](EnsembleMean). Their models may be of any architectures. The settings and the tokenizer are the first one's.
    ///
    /// # Errors
    /// [`TrainerError::DifferentPieces`] if the vocabularies differ, [`TrainerError::DifferentEnds`] if their texts end
    /// differently.
    ///
    /// # Panics
    /// If there is no generator.
    pub fn ensemble(generators: Vec<Self>, mean: EnsembleMean) -> Result<Self> {
        let mut generators = generators.into_iter();
        let mut first = generators.next().expect("an ensemble has a generator");
        if generators.len() == 0 {
            return Ok(first);
        }
        let name = |folder: &Option<PathBuf>, number: usize| {
            folder.clone().unwrap_or_else(|| format!("model {number}").into())
        };
        let of_first = name(&first.folder, 1);
        let mut others = Vec::with_capacity(generators.len());
        for (i, other) in generators.enumerate() {
            let folder = name(&other.folder, i + 2);
            check_same_pieces((&first.tokenizer, &of_first), (&other.tokenizer, &folder))?;
            let ends = [&first, &other].map(|one| &one.settings.stop_ids[..]);
            check_same_ends(&first.tokenizer, (ends[0], &of_first), (ends[1], &folder))?;
            others.push((other.model, other.device));
        }
        let members = std::iter::once((first.model, first.device.clone())).chain(others).collect();
        first.model = Box::new(Together { members, mean });
        Ok(first)
    }

    /// A generator with an existing model, and its end-of-text ids. The model itself decides how it reads
    /// prompts.
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
        let candidates = config.candidates.as_deref();
        let candidates = candidates.map(|file| read_candidates(file, &tokenizer)).transpose()?;
        let mut decode = settings.config(search).with_n_best(config.n);
        if let Some(candidates) = candidates {
            decode = decode.with_allowed_ids(candidates);
        }
        check_batch(config.batch)?;
        decode.validate().map_err(of_search)?;
        // A tokenizer may end texts with what says that nothing follows.
        let end = tokenizer.encode_ids("", true)?.last().copied();
        Ok(Self {
            tokenizer,
            folder: None,
            model: Box::new(model),
            device: device.clone(),
            stops: config.stops.as_slice().into(),
            config,
            settings,
            defaults: Arc::new(decode),
            begin,
            end,
        })
    }

    /// The maximum tokens of a text; longer ones lose their beginnings. None if there is no limit.
    pub fn max_len(&self) -> Option<usize> {
        self.max_len_with(&self.settings)
    }

    fn max_len_with(&self, settings: &DecodeSettings) -> Option<usize> {
        // Room for what is written, but not at the cost of the text.
        // A text has a token at least.
        let max_new = max_new(settings, 1);
        self.model.most_tokens().map(|most| most.saturating_sub(max_new).max(most / 2).max(1))
    }

    /// The maximum tokens of a text and its continuation together: the model's positions. None if there is no limit.
    pub fn most_tokens(&self) -> Option<usize> {
        self.model.most_tokens()
    }

    /// Whether beam search is used, whose continuations are only available at the end.
    pub fn has_beam(&self) -> bool {
        matches!(self.defaults.search, Search::Beam(_))
    }

    /// Continues texts: an iterator over the continuations of each text, in order, as they finish. Without a
    /// beam, `listener` is called as each continuation grows, with the text's index, the continuation's, and
    /// the added text.
    ///
    /// # Errors
    /// [`cloze_tokenizer::Error::Batch`] with the first text that the tokenizer fails on, or that is empty if
    /// the tokenizer has no begin-of-text token. For each text: [`TrainerError::Model`] for non-finite outputs.
    pub fn generate<'a>(
        &'a self,
        texts: &[&str],
        listener: Option<TextListener<'a>>,
    ) -> Result<Continuations<'a>> {
        let all = self.tokenizer.encode_ids_batch(texts, true)?;
        let prompts =
            all.into_iter().map(|ids| self.prompt(ids, &self.settings, &self.defaults, self.config.seed));
        let prompts: Arc<[EncodedPrompt]> = prompts.collect::<Result<_>>()?;
        let cut = || prompts.iter().filter(|prompt| prompt.is_cut);
        let (truncated, dropped) = (cut().count(), cut().map(|prompt| prompt.dropped).sum());
        let kept: usize = cut().map(EncodedPrompt::prompt_tokens).sum();
        let requests: Vec<Request> = prompts.iter().map(|prompt| prompt.request.clone()).collect();
        let mut decoding = self.model.decoding(&self.device).with_batch(self.config.batch);
        if listener.is_some() || !self.stops.is_empty() {
            let (mut listener, prompts) = (listener, prompts.clone());
            let mut growing: HashMap<(usize, usize), Growing> = HashMap::new();
            decoding = decoding.with_listener(move |written: WrittenToken<'_>| {
                let growing = growing.entry((written.request, written.sample)).or_default();
                let EncodedPrompt { request, stops, .. } = &prompts[written.request];
                let new = self.grow(&request.input, written.tokens, stops, growing);
                if let (Some(listener), Some(new)) = (&mut listener, new) {
                    listener(written.request, written.sample, &new);
                }
                growing.flow()
            });
        }
        let found = InOrder::new(decoding, &self.defaults, requests.into_iter())?;
        let continuations =
            found.enumerate().map(move |(number, found)| self.continuations(&prompts[number], found));
        let continuations = Box::new(continuations);
        Ok(Continuations { truncated, dropped, dropped_of: dropped + kept, continuations })
    }

    /// Encodes a text to be continued with these settings.
    ///
    /// # Errors
    /// A text that the tokenizer fails on, or that is empty if the tokenizer has no begin-of-text token;
    /// [`TrainerError::Setting`] for invalid settings.
    pub fn encode_text(&self, text: &str, settings: &GenerateSettings) -> Result<EncodedPrompt> {
        let GenerateSettings { search, decoding, stops, alternatives, n, seed } = settings;
        check_request(decoding)?;
        let whole = decoding.clone().or(&self.settings);
        let search = search.clone().unwrap_or_else(|| search_of(decoding, &whole, &self.defaults.search));
        let mut decode = whole.config(search).with_n_best(n.unwrap_or(self.config.n));
        decode.n_alternatives = *alternatives;
        if let Some(allowed) = &self.defaults.allowed_ids {
            decode = decode.with_allowed_ids(allowed.iter().copied());
        }
        decode.validate().map_err(of_search)?;
        let ids = self.tokenizer.encode_ids(text, true)?;
        let prompt = self.prompt(ids, &whole, &Arc::new(decode), seed.unwrap_or(self.config.seed))?;
        Ok(match stops {
            Some(stops) => EncodedPrompt { stops: stops.as_slice().into(), ..prompt },
            None => prompt,
        })
    }

    /// A decoder with this model; [submit](Decoding::submit) prompts to it.
    pub(crate) fn decoding(&self) -> Decoding<'_> {
        self.model.decoding(&self.device)
    }

    /// A prompt from a text's tokens.
    fn prompt(
        &self,
        mut ids: Vec<u32>,
        settings: &DecodeSettings,
        decode: &Arc<DecodeConfig>,
        seed: u64,
    ) -> Result<EncodedPrompt> {
        ids.pop_if(|last| Some(*last) == self.end && decode.stop_ids.contains(&(*last as i32)));
        if ids.is_empty() {
            let Some(begin) = self.begin else { return Err(TrainerError::EmptyPrompt) };
            ids.push(begin);
        }
        let excess = self.max_len_with(settings).map_or(0, |most| ids.len().saturating_sub(most));
        let input: Vec<i32> = ids[excess..].iter().map(|id| *id as i32).collect();
        let max_new = max_new(settings, input.len());
        let request = Request::new(input, max_new).with_seed(seed);
        let (decode, stops) = (decode.clone(), self.stops.clone());
        Ok(EncodedPrompt { request, decode, stops, is_cut: excess > 0, dropped: excess, listener: None })
    }

    /// The continuations of a prompt.
    pub(crate) fn continuations(
        &self,
        prompt: &EncodedPrompt,
        found: cloze_model::Result<Vec<Hypothesis>>,
    ) -> Result<Vec<Continuation>> {
        found?.into_iter().map(|found| self.continuation(prompt, found)).collect()
    }

    fn continuation(&self, prompt: &EncodedPrompt, found: Hypothesis) -> Result<Continuation> {
        let whole = self.written(&prompt.request.input, &found.ids)?;
        let (text, is_cut) = stops::cut(&whole, &prompt.stops);
        let ended = found.ended || is_cut;
        Ok(Continuation {
            score: found.score,
            log_prob: found.log_prob,
            n_tokens: found.ids.len(),
            ended,
            out_of_positions: !ended && found.ids.len() < prompt.request.max_new,
            tokens: self.scored(&prompt.request.input, &found.ids, &found.scores, text.len())?,
            text: text.to_owned(),
        })
    }

    /// Tokens with their scores, up to this many bytes of text.
    fn scored(
        &self,
        prompt: &[i32],
        ids: &[i32],
        scores: &[TokenScore],
        n_bytes: usize,
    ) -> Result<Vec<ScoredToken>> {
        let mut before = prompt.to_vec();
        let (mut scored, mut n) = (Vec::with_capacity(scores.len()), 0);
        for (id, score) in ids.iter().zip(scores) {
            if n >= n_bytes && n > 0 {
                break;
            }
            let text = self.written(&before, &[*id])?;
            let best = score.best.iter();
            let best = best.map(|(id, log_prob)| {
                let text = self.written(&before, &[*id])?;
                // A special token adds nothing: it has its name.
                let name = || self.tokenizer.id_to_token(*id as u32).unwrap_or_default().to_owned();
                Ok((if text.is_empty() { name() } else { text }, *log_prob))
            });
            let best = best.collect::<Result<Vec<_>>>()?;
            n += text.len();
            scored.push(ScoredToken { text, log_prob: score.log_prob, best });
            before.push(*id);
        }
        Ok(scored)
    }

    /// What the tokens after a prompt add to what was shown of a text that ends at one of `stops`, if they add anything.
    pub(crate) fn grow(
        &self,
        prompt: &[i32],
        tokens: &[i32],
        stops: &[String],
        growing: &mut Growing,
    ) -> Option<String> {
        let text = self.written(prompt, tokens).ok()?;
        Some(growing.grow(&text, stops).to_owned()).filter(|new| !new.is_empty())
    }

    /// The text of tokens after a prompt.
    fn written(&self, prompt: &[i32], tokens: &[i32]) -> Result<String> {
        let ids = |ids: &[i32]| ids.iter().map(|id| *id as u32).collect::<Vec<u32>>();
        let tokens = ids(tokens);
        // A piece may look different at a text's beginning.
        let last = ids(&prompt[prompt.len().saturating_sub(8)..]);
        let whole = self.tokenizer.decode(&[&last[..], &tokens].concat(), true)?;
        let before = self.tokenizer.decode(&last, true)?;
        match whole.strip_prefix(&before) {
            Some(written) => Ok(written.to_owned()),
            None => Ok(self.tokenizer.decode(&tokens, true)?),
        }
    }
}

/// The maximum number of new tokens after this many others.
fn max_new(settings: &DecodeSettings, before: usize) -> usize {
    settings.max_new(before).unwrap_or(GenerateConfig::MAX_NEW)
}

/// Rejects decoding settings that a request cannot have.
pub(crate) fn check_request(settings: &DecodeSettings) -> Result<()> {
    let refuse = |key: &str, found: String, expected: &str| {
        Err(TrainerError::Setting { key: key.into(), found, expected: expected.into() })
    };
    match (settings.start_id, settings.sample, settings.beams) {
        (Some(id), ..) => refuse("start_id", id.to_string(), "none: a request begins as its model does"),
        (_, Some(true), Some(beams @ 2..)) => refuse("beams", beams.to_string(), "1 where tokens are drawn"),
        _ => Ok(()),
    }
}

/// How tokens are chosen for a request whose own settings are `asked` and merged settings are `whole`;
/// `default` is for requests without their own choice.
pub(crate) fn search_of(asked: &DecodeSettings, whole: &DecodeSettings, default: &Search) -> Search {
    match (default, asked.sample) {
        (Search::Sample(drawn), None | Some(true)) if !matches!(asked.beams, Some(2..)) => {
            let mut drawn = drawn.clone();
            drawn.temperature = asked.temperature.unwrap_or(drawn.temperature);
            drawn.top_k = asked.top_k.unwrap_or(drawn.top_k);
            drawn.top_p = asked.top_p.unwrap_or(drawn.top_p);
            drawn.min_p = asked.min_p.unwrap_or(drawn.min_p);
            Search::Sample(drawn)
        }
        (Search::Sample(_), Some(false)) => asked.search(Search::Greedy),
        _ => {
            let mut asked = asked.clone();
            asked.temperature = whole.temperature;
            asked.top_k = whole.top_k;
            asked.top_p = whole.top_p;
            asked.min_p = whole.min_p;
            asked.search(default.clone())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloze_model::generate::{BeamSearch, Sampling};

    fn settings(edit: impl FnOnce(&mut DecodeSettings)) -> DecodeSettings {
        let mut settings = DecodeSettings::default();
        edit(&mut settings);
        settings
    }

    #[test]
    fn a_request_changes_what_it_says_of_the_search() {
        let folder = settings(|folder| folder.top_p = Some(0.9));
        let sampling = |temperature, top_k, top_p| {
            let mut sampling = Sampling::default();
            (sampling.temperature, sampling.top_k, sampling.top_p) = (temperature, top_k, top_p);
            Search::Sample(sampling)
        };
        let drawn = sampling(0.3, 7, 1.0);
        let search = |default: &Search, edit: fn(&mut DecodeSettings)| {
            let asked = settings(edit);
            search_of(&asked, &asked.clone().or(&folder), default)
        };
        // Drawn already: what the request does not say stays, whatever the folder says.
        assert_eq!(search(&drawn, |asked| asked.temperature = Some(0.1)), sampling(0.1, 7, 1.0));
        assert_eq!(search(&drawn, |asked| asked.sample = Some(true)), drawn);
        assert_eq!(search(&drawn, |asked| asked.beams = Some(1)), drawn);
        assert_eq!(search(&drawn, |asked| asked.sample = Some(false)), Search::Greedy);
        assert_eq!(search(&drawn, |asked| asked.beams = Some(3)), Search::Beam(BeamSearch::new(3)));
        // Drawn by the request: as the folder says.
        assert_eq!(search(&Search::Greedy, |asked| asked.sample = Some(true)), sampling(1.0, 50, 0.9));
        // Not drawn: a temperature has no say.
        assert_eq!(search(&Search::Greedy, |asked| asked.temperature = Some(0.1)), Search::Greedy);
        let beam = Search::Beam(BeamSearch::new(5));
        assert_eq!(search(&beam, |_| ()), beam);
        assert_eq!(search(&beam, |asked| asked.beams = Some(1)), Search::Greedy);
    }
}
