//! Translation with a trained encoder–decoder.

use crate::fit::{check_same_ends, check_same_pieces, check_vocabulary};
use crate::generate::{check_batch, check_request, of_search, read_candidates, search_of};
use crate::translation::{
    DecodingDefaults, TargetPieces, Vocabularies, load_vocabularies, read_translation_file,
};
use crate::{Result, TrainerError};
use burn::tensor::Device;
use cloze_model::blocks::{pack_weights, quantize_int8};
use cloze_model::generate::{
    BeamSearch, DecodeConfig, DecodeSettings, Decoding, EnsembleMean, Hypothesis, InOrder, LengthPenalty,
    Request, Search,
};
use cloze_model::huggingface::{DecodeOptions, read_decode_settings};
use cloze_model::seq2seq::{
    self, AnyEncoderDecoder, AnyEncoderDecoderConfig, EncoderDecoder, TransformerConfig,
};
use cloze_model::{ModelError, ParamInit};
use cloze_tokenizer::{Encoding, OffsetUnit, Sequence, Tokenizer, Truncation};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Overrides for the settings in a model folder.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TranslateConfig {
    /// How tokens are chosen. Default: from `decoding` and the folder, else five beams scored by mean
    /// log-probability.
    pub search: Option<Search>,
    /// Decoding settings that override or remove those of the model folder. If neither sets a maximum length,
    /// it is twice the source's tokens plus ten.
    pub decoding: DecodeOptions,
    /// Number of translations per source, the best first.
    pub n_best: usize,
    /// Whether to return word alignments from attention.
    pub alignment: bool,
    /// Whether to replace an unknown piece by the source word that it attended to most.
    pub replace_unknown: bool,
    /// Maximum number of sources processed at a time.
    pub batch: usize,
    /// Random seed for sampling.
    pub seed: u64,
    /// Whether linear layers multiply in 8 bits: faster and slightly less exact.
    pub int8: bool,
    /// A file of the pieces that translations may have, one per line; default all. The piece that ends translations is
    /// always allowed.
    pub candidates: Option<PathBuf>,
}

impl Default for TranslateConfig {
    fn default() -> Self {
        Self {
            search: None,
            decoding: DecodeOptions::default(),
            n_best: 1,
            alignment: false,
            replace_unknown: false,
            batch: 32,
            seed: 0,
            int8: false,
            candidates: None,
        }
    }
}

/// How a text is translated, if different from the [`Translator`]'s settings.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct TranslateSettings {
    /// The beginning of the translation.
    pub prefix: String,
    /// How tokens are chosen. Default: from `decoding` and the translator.
    pub search: Option<Search>,
    /// Decoding settings that override the translator's.
    pub decoding: DecodeSettings,
    /// Number of translations of the text, the best first.
    pub n_best: Option<usize>,
    /// See [`TranslateConfig::alignment`].
    pub alignment: Option<bool>,
    /// See [`TranslateConfig::replace_unknown`].
    pub replace_unknown: Option<bool>,
    /// Random seed for sampling.
    pub seed: Option<u64>,
}

/// An encoded text and how to translate it.
#[derive(Debug)]
pub struct EncodedSource {
    text: String,
    encoding: Encoding,
    is_cut: bool,
    pub(crate) request: Request,
    pub(crate) decode: Arc<DecodeConfig>,
    output: OutputSettings,
}

impl EncodedSource {
    /// The maximum total tokens of the source and its translations.
    pub fn n_tokens(&self) -> usize {
        let Request { input, max_new, .. } = &self.request;
        input.len() + max_new.saturating_mul(self.decode.width())
    }

    /// Whether its end was dropped because it exceeds the model's maximum.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }
}

/// How generated tokens are turned into the output.
#[derive(Debug, Clone, Copy)]
struct OutputSettings {
    alignment: bool,
    replace_unknown: bool,
}

/// The maximum source tokens if neither the folder nor the model sets it. Time grows with the source's length
/// times the translation's.
const MAX_SOURCE_TOKENS: usize = 1_024;

/// Tokenizers and a translation model from one folder, or [several](Self::ensemble) that translate together.
///
/// The model multiplies in the precision of the caller's scope, [`with_precision`](cloze_ops::with_precision).
#[derive(Debug)]
pub struct Translator {
    source: Tokenizer,
    target: Arc<Tokenizer>,
    model: AnyEncoderDecoder,
    device: Device,
    start_id: i32,
    unknown: Option<u32>,
    /// Number of special tokens that the tokenizer adds to sources.
    n_around: usize,
    config: TranslateConfig,
    settings: DecodeSettings,
    /// How tokens are chosen, before raising the beams to the number of translations.
    search: Search,
    decode: DecodeConfig,
    limits: TokenLimits,
    lengths: DecodingDefaults,
    max_len: usize,
    /// The further members of an ensemble, of which only the model and the source's tokenizer are used.
    others: Vec<Self>,
    mean: EnsembleMean,
}

/// The model's vocabulary size, and the tokens that it never generates.
#[derive(Debug)]
struct TokenLimits {
    folder: PathBuf,
    vocab_size: usize,
    never: Vec<i32>,
    /// The only tokens that it generates, if not all others.
    candidates: Option<Vec<i32>>,
}

impl TokenLimits {
    /// Completes decoding settings.
    fn decode(&self, settings: &DecodeSettings, search: Search) -> Result<DecodeConfig> {
        let mut decode = settings.config(search);
        if let Some(id) = decode
            .stop_ids
            .iter()
            .chain(&decode.forced_first)
            .chain(&decode.forced_last)
            .find(|id| usize::try_from(**id).is_ok_and(|id| id >= self.vocab_size))
        {
            return Err(self.unknown(*id));
        }
        let never = self.never.iter().filter(|id| !decode.stop_ids.contains(id)).copied();
        decode.forbidden_ids.extend(never.collect::<Vec<i32>>());
        Ok(match &self.candidates {
            Some(candidates) => decode.with_allowed_ids(candidates.iter().copied()),
            None => decode,
        })
    }

    /// The error for a token that the model does not have.
    fn unknown(&self, id: i32) -> TrainerError {
        ModelError::Config(format!(
            "{}: the settings of decoding name the token {id}, expected less than {}, the model's tokens",
            self.folder.display(),
            self.vocab_size
        ))
        .into()
    }
}

/// A translation of a text.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Translation {
    /// The translation.
    pub text: String,
    /// The ranking score: the log-probability divided by the length penalty.
    pub score: f64,
    /// Its log-probability.
    pub log_prob: f64,
    /// Its pieces.
    pub tokens: Vec<String>,
    /// Whether it was truncated at the maximum length.
    pub cut: bool,
    /// Its word alignment, if requested.
    pub alignment: Option<WordAlignment>,
}

/// The attention of a translation's words to those of its source, both split at white space.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct WordAlignment {
    /// For each word of the translation the attention to each source word, `[words][source words]`: the mean
    /// over its pieces. Attention to the end-of-text piece is not included.
    pub weights: Vec<Vec<f32>>,
}

impl WordAlignment {
    /// Each word of the translation with the source word that it attended to most, as `(source, target)` from
    /// 0: Pharaoh pairs. A word without attention to any source word has no pair.
    pub fn pairs(&self) -> Vec<(usize, usize)> {
        let best = |row: &Vec<f32>| greatest(row.iter().copied());
        self.weights.iter().enumerate().filter_map(|(target, row)| Some((best(row)?, target))).collect()
    }
}

/// The index of the largest positive number.
fn greatest(numbers: impl Iterator<Item = f32>) -> Option<usize> {
    let positive = numbers.enumerate().filter(|(_, x)| *x > 0.0);
    positive.reduce(|best, other| if other.1 > best.1 { other } else { best }).map(|(place, _)| place)
}

/// The translations of sources, in order.
pub struct Translations<'a> {
    /// The number of sources whose end was dropped because they exceed the model's maximum.
    pub truncated: usize,
    translations: Box<dyn Iterator<Item = Result<Vec<Translation>>> + 'a>,
}

impl Iterator for Translations<'_> {
    type Item = Result<Vec<Translation>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.translations.next()
    }
}

impl Translator {
    /// Loads the folder of a translation model: its `config.json`, weights, one tokenizer or one for each side,
    /// and `translation.json` if there is one. `device` must be one without autodiff.
    ///
    /// # Errors
    /// A missing or damaged file in the folder; [`TrainerError::VocabularyMismatch`];
    /// [`TrainerError::Setting`] for an invalid `config`.
    pub fn load(folder: &Path, config: TranslateConfig, device: &Device) -> Result<Self> {
        Self::load_with(folder, config, device, |search| search)
    }

    /// [`load`](Self::load) with a change to the search from `config` or the folder.
    ///
    /// # Errors
    /// Those of [`load`](Self::load).
    pub fn load_with(
        folder: &Path,
        config: TranslateConfig,
        device: &Device,
        change: impl FnOnce(Search) -> Search,
    ) -> Result<Self> {
        let vocabularies = load_vocabularies(folder)?;
        let file = read_translation_file(folder)?;
        let (shape, mut model) = AnyEncoderDecoderConfig::load(folder, &mut ParamInit::new(device, 0))?;
        let Vocabularies { source, target, special, .. } = vocabularies;
        for (tokenizer, model) in [&source, &target].into_iter().zip(shape.vocab_sizes()) {
            // A model may have more rows than there are pieces, rounded up for speed.
            check_vocabulary(tokenizer, folder, model)?;
        }
        match config.int8 {
            true => quantize_int8(&mut model),
            false => pack_weights(&mut model),
        }
        let max_positions = model.max_source_tokens().unwrap_or(MAX_SOURCE_TOKENS);
        let max_len = file.as_ref().map_or(max_positions, |file| file.max_len.min(max_positions));
        let mut source = Tokenizer::clone(&source);
        source.set_truncation(Some(Truncation::to(max_len)))?;
        source.set_padding(None)?;
        source.set_keep_overflow(false);
        let defaults = file.map(|file| file.decoding).unwrap_or_default();
        let mut settings = read_decode_settings(folder, &config.decoding)?;
        let begin = first_token(&shape, &settings, &special);
        // A published model says itself what its texts end with.
        let suppressed = match &shape {
            AnyEncoderDecoderConfig::Transformer(TransformerConfig { tokens, .. }) => {
                settings.stop_ids = or(settings.stop_ids, &[tokens.eos]);
                settings.forced_first = settings.forced_first.or(tokens.forced_bos.map(|id| id as i32));
                settings.forced_last = or(settings.forced_last, tokens.forced_eos.as_slice());
                &tokens.suppressed[..]
            }
            _ => {
                settings.stop_ids = vec![special.end as i32];
                &[][..]
            }
        };
        let default = match defaults.beams {
            1 => Search::Greedy,
            beams => {
                let penalty = LengthPenalty::Power(defaults.length_penalty);
                Search::Beam(BeamSearch::new(beams).with_length_penalty(penalty))
            }
        };
        let search = change(config.search.clone().unwrap_or_else(|| settings.search(default)));
        // What is never said: padding, and what begins texts.
        let never = [Some(special.pad as i32), special.bos.map(|id| id as i32), Some(begin)];
        let suppressed = suppressed.iter().map(|id| *id as i32);
        let limits = TokenLimits {
            folder: folder.into(),
            vocab_size: shape.vocab_sizes().into_iter().last().unwrap_or_default(),
            never: never.into_iter().flatten().chain(suppressed).collect(),
            candidates: config
                .candidates
                .as_deref()
                .map(|file| read_candidates(file, &target))
                .transpose()?,
        };
        if usize::try_from(begin).is_ok_and(|begin| begin >= limits.vocab_size) {
            return Err(limits.unknown(begin));
        }
        // A number of beams that the caller gives is the caller's.
        let is_given = config.search.is_some() || config.decoding.settings.beams.is_some();
        let beams = if is_given { 0 } else { config.n_best };
        let mut decode = limits.decode(&settings, with_beams(search.clone(), beams))?;
        decode.n_best = config.n_best;
        decode.alignment = config.alignment || config.replace_unknown;
        check_batch(config.batch)?;
        decode.validate().map_err(of_search)?;
        Ok(Self {
            unknown: target.special_ids().unk,
            n_around: source.encode_ids("", true)?.len(),
            source,
            target,
            model,
            device: device.clone(),
            start_id: begin,
            config,
            settings,
            search,
            decode,
            limits,
            lengths: defaults,
            max_len,
            others: Vec::new(),
            mean: EnsembleMean::default(),
        })
    }

    /// Translators that write each translation together, whose probabilities of each next token are
    /// [combined](EnsembleMean). Their models may be of any architectures, and each tokenizes sources itself. The settings are
    /// the first one's, and so are alignments.
    ///
    /// # Errors
    /// [`TrainerError::DifferentPieces`] if the targets' vocabularies differ, [`TrainerError::DifferentEnds`] if their texts
    /// end differently.
    ///
    /// # Panics
    /// If there is no translator.
    pub fn ensemble(translators: Vec<Self>, mean: EnsembleMean) -> Result<Self> {
        let mut translators = translators.into_iter();
        let mut first = translators.next().expect("an ensemble has a translator");
        first.mean = mean;
        for mut other in translators {
            let folders = [&*first.limits.folder, &*other.limits.folder];
            check_same_pieces((&first.target, folders[0]), (&other.target, folders[1]))?;
            let ends = [&first, &other].map(|one| &one.settings.stop_ids[..]);
            check_same_ends(&first.target, (ends[0], folders[0]), (ends[1], folders[1]))?;
            // What one of them never writes, the others do not either.
            first.limits.never.append(&mut other.limits.never);
            first.limits.vocab_size = first.limits.vocab_size.min(other.limits.vocab_size);
            first.others.append(&mut other.others);
            first.others.push(other);
        }
        let forbidden = first.limits.decode(&first.settings, first.search.clone())?.forbidden_ids;
        first.decode.forbidden_ids = forbidden;
        Ok(first)
    }

    /// The maximum tokens of a source, special tokens included; longer ones are truncated. In an ensemble, the lowest maximum.
    pub fn max_len(&self) -> usize {
        self.others.iter().map(|other| other.max_len).fold(self.max_len, usize::min)
    }

    /// Translates texts, including truncated ones ([`Sequence::Beginning`]): an iterator over the translations
    /// of each text, the best first, in order, as they finish. `prefixes` are the beginnings of the
    /// translations, one per text or none at all. A text without words has one empty translation.
    ///
    /// # Errors
    /// [`cloze_tokenizer::Error::Batch`] with the first text or prefix that a tokenizer fails on. For each
    /// text: [`TrainerError::OutputNotFinite`].
    ///
    /// # Panics
    /// If there are prefixes, but not one per text.
    pub fn translate<'a>(&'a self, texts: &[Sequence<'a>], prefixes: &[&str]) -> Result<Translations<'a>> {
        assert!(prefixes.is_empty() || prefixes.len() == texts.len(), "a prefix for each text, or none");
        let encodings = self.source.encode_inputs(texts, true, OffsetUnit::Bytes)?;
        let others =
            self.others.iter().map(|other| other.source.encode_inputs(texts, true, OffsetUnit::Bytes));
        let others: Vec<Vec<Encoding>> = others.collect::<std::result::Result<_, _>>()?;
        let prefixes = self.target.encode_ids_batch(prefixes, false)?;
        let request = |(i, encoding): (usize, &Encoding)| {
            let prefix = prefixes.get(i).map_or(&[][..], Vec::as_slice);
            let source = (!is_blank(&texts[i])).then_some(encoding);
            let request = self.request(source, prefix, &self.settings, &self.decode, self.config.seed);
            self.with_others(request, others.iter().map(|encodings| &encodings[i]))
        };
        let requests: Vec<Request> = encodings.iter().enumerate().map(request).collect();
        let is_cut = |i: &usize| std::iter::once(&encodings).chain(&others).any(|all| all[*i].truncated);
        let truncated = (0..texts.len()).filter(is_cut).count();
        let decoding = self.decoding(self.decode.needs_alignment());
        let found = InOrder::new(decoding, &self.decode, requests.into_iter())?;
        let texts = texts.to_vec();
        let TranslateConfig { alignment, replace_unknown, batch, .. } = self.config;
        let output = OutputSettings { alignment, replace_unknown };
        let found = found.with_batch(batch).zip(encodings).zip(texts);
        let translations = found.map(move |((found, encoding), text)| {
            let source = Source::new(&text, &encoding);
            found?.into_iter().map(|found| self.translation(found, &source, output)).collect()
        });
        Ok(Translations { truncated, translations: Box::new(translations) })
    }

    /// Encodes a text to be translated with these settings.
    ///
    /// # Errors
    /// A text or a prefix that a tokenizer fails on; [`TrainerError::Setting`] for invalid settings.
    pub fn encode_text(&self, text: &str, settings: &TranslateSettings) -> Result<EncodedSource> {
        let TranslateSettings { prefix, search, decoding, n_best, alignment, replace_unknown, seed } =
            settings;
        check_request(decoding)?;
        let whole = decoding.clone().or(&self.settings);
        let n_best = n_best.unwrap_or(self.config.n_best);
        // As in loading.
        let is_given = [&self.config.search, search].into_iter().any(Option::is_some)
            || decoding.beams.or(self.config.decoding.settings.beams).is_some();
        let search = search.clone().unwrap_or_else(|| search_of(decoding, &whole, &self.search));
        let search = with_beams(search, if is_given { 0 } else { n_best });
        let output = OutputSettings {
            alignment: alignment.unwrap_or(self.config.alignment),
            replace_unknown: replace_unknown.unwrap_or(self.config.replace_unknown),
        };
        let mut decode = self.limits.decode(&whole, search)?;
        decode.n_best = n_best;
        decode.alignment = output.alignment || output.replace_unknown;
        decode.validate().map_err(of_search)?;
        let encoding = self.source.encode(text, true)?;
        let prefix = self.target.encode_ids(prefix, false)?;
        let source = (!is_blank(&Sequence::Text(text))).then_some(&encoding);
        let request = self.request(source, &prefix, &whole, &decode, seed.unwrap_or(self.config.seed));
        let others = self.others.iter().map(|other| other.source.encode(text, true));
        let others: Vec<Encoding> = others.collect::<std::result::Result<_, _>>()?;
        let is_cut = std::iter::once(&encoding).chain(&others).any(|encoding| encoding.truncated);
        let (request, decode) = (self.with_others(request, others.iter()), Arc::new(decode));
        Ok(EncodedSource { text: text.into(), encoding, is_cut, request, decode, output })
    }

    /// A decoder with this model and those of an ensemble, with or without attention; [submit](Decoding::submit) sources to
    /// it.
    pub(crate) fn decoding(&self, alignment: bool) -> Decoding<'_> {
        match self.others.is_empty() {
            true => self.decoding_alone(alignment),
            false => {
                let others = self.others.iter().map(|other| other.decoding_alone(false));
                let members = std::iter::once(self.decoding_alone(alignment)).chain(others);
                Decoding::ensemble(members.collect(), self.mean)
            }
        }
    }

    fn decoding_alone(&self, alignment: bool) -> Decoding<'_> {
        let mut options = seq2seq::DecodeOptions::default();
        if alignment {
            options = options.with_alignment();
        }
        Decoding::translating(&self.model, self.start_id, options, &self.device)
    }

    /// The translations of a source.
    pub(crate) fn translations(
        &self,
        source: &EncodedSource,
        found: cloze_model::Result<Vec<Hypothesis>>,
    ) -> Result<Vec<Translation>> {
        let words = Source::new(&Sequence::Text(&source.text), &source.encoding);
        found?.into_iter().map(|found| self.translation(found, &words, source.output)).collect()
    }

    /// A request to translate a source; none is a text of white space alone.
    fn request(
        &self,
        source: Option<&Encoding>,
        prefix: &[u32],
        settings: &DecodeSettings,
        decode: &DecodeConfig,
        seed: u64,
    ) -> Request {
        // An unknown piece may be special, too, and is not nothing.
        let source = source.filter(|source| source.ids.len() > self.n_around);
        let input: Vec<i32> =
            source.map_or_else(Vec::new, |source| source.ids.iter().map(|id| *id as i32).collect());
        let mut prefix: Vec<i32> = prefix.iter().map(|id| *id as i32).collect();
        if !prefix.is_empty() {
            // What a translation is made to begin with stands before its prefix.
            prefix.splice(0..0, decode.forced_first);
        }
        let max_new = settings.max_new(1 + prefix.len());
        let max_new = max_new.unwrap_or_else(|| self.lengths.max_new(input.len()));
        Request::new(input, max_new).with_prefix(prefix).with_seed(seed)
    }

    /// A request with the source as the other members' tokenizers cut it.
    fn with_others<'e>(&self, request: Request, others: impl Iterator<Item = &'e Encoding>) -> Request {
        if self.others.is_empty() || request.input.is_empty() {
            return request;
        }
        let ids = |encoding: &Encoding| encoding.ids.iter().map(|id| *id as i32).collect();
        request.with_other_inputs(others.map(ids).collect())
    }

    fn translation(&self, found: Hypothesis, source: &Source, output: OutputSettings) -> Result<Translation> {
        let ids: Vec<u32> = found.ids.iter().map(|id| *id as u32).collect();
        let replaces = |id: u32| output.replace_unknown && Some(id) == self.unknown;
        let mut text = String::new();
        let mut start = 0;
        for (i, id) in ids.iter().enumerate().filter(|(_, id)| replaces(**id)) {
            join(&mut text, &self.target.decode(&ids[start..i], true)?);
            match found.alignment.get(i).and_then(|row| greatest(source.by_word(row).into_iter())) {
                Some(word) => join(&mut text, source.words[word]),
                None => join(&mut text, &self.target.decode(&[*id], false)?),
            }
            start = i + 1;
        }
        join(&mut text, &self.target.decode(&ids[start..], true)?);
        let alignment = match output.alignment {
            true => Some(self.word_alignment(&ids, &found, source)?),
            false => None,
        };
        let token = |id: &u32| self.target.id_to_token(*id).unwrap_or_default().to_owned();
        Ok(Translation {
            text,
            score: found.score,
            log_prob: found.log_prob,
            tokens: ids.iter().map(token).collect(),
            cut: !found.ended && !source.words.is_empty(),
            alignment,
        })
    }

    fn word_alignment(&self, ids: &[u32], found: &Hypothesis, source: &Source) -> Result<WordAlignment> {
        let mut weights: Vec<(Vec<f32>, usize)> = Vec::new();
        for (i, attention) in found.alignment.iter().enumerate() {
            // The word that the piece ends in; pieces before the first belong to it.
            let n_words = self.target.decode(&ids[..=i], true)?.split_whitespace().count();
            let word = n_words.saturating_sub(1);
            let row = source.by_word(attention);
            if weights.len() <= word {
                weights.resize(word + 1, (vec![0.0; row.len()], 0));
            }
            let (sum, count) = &mut weights[word];
            sum.iter_mut().zip(row).for_each(|(sum, share)| *sum += share);
            *count += 1;
        }
        // A piece before any word is no word's if none follows.
        weights.truncate(self.target.decode(ids, true)?.split_whitespace().count());
        let mean =
            |(sum, count): (Vec<f32>, usize)| sum.into_iter().map(|sum| sum / count.max(1) as f32).collect();
        Ok(WordAlignment { weights: weights.into_iter().map(mean).collect() })
    }
}

/// The token that begins every translation: a published model says it itself.
pub(crate) fn first_token(
    shape: &AnyEncoderDecoderConfig,
    settings: &DecodeSettings,
    special: &TargetPieces,
) -> i32 {
    match shape {
        AnyEncoderDecoderConfig::Transformer(TransformerConfig { tokens, .. }) => {
            settings.start_id.unwrap_or(tokens.decoder_start as i32)
        }
        _ => special.begin as i32,
    }
}

/// The search with at least this many beams, if it uses beams.
fn with_beams(mut search: Search, beams: usize) -> Search {
    if let Search::Beam(beam) = &mut search {
        beam.beams = beam.beams.max(beams);
    }
    search
}

/// Ids, or those of another list if there are none.
fn or(ids: Vec<i32>, other: &[usize]) -> Vec<i32> {
    match ids.is_empty() {
        true => other.iter().map(|id| *id as i32).collect(),
        false => ids,
    }
}

/// Whether a source is empty or white space alone, whatever pieces a tokenizer makes of that. What goes on may have words.
fn is_blank(source: &Sequence<'_>) -> bool {
    match source {
        Sequence::Text(text) => text.trim().is_empty(),
        Sequence::Words(words) => words.iter().all(|word| word.trim().is_empty()),
        Sequence::Beginning(_) => false,
    }
}

/// Appends a text to another, separated by a space.
fn join(text: &mut String, more: &str) {
    let more = more.trim();
    if !text.is_empty() && !more.is_empty() {
        text.push(' ');
    }
    text.push_str(more);
}

/// A source's words, and which word each piece belongs to.
struct Source<'a> {
    words: Vec<&'a str>,
    /// None for a piece that belongs to no word.
    word_of: Vec<Option<usize>>,
}

impl<'a> Source<'a> {
    fn new(text: &Sequence<'a>, encoding: &Encoding) -> Self {
        let text = match *text {
            Sequence::Text(text) | Sequence::Beginning(text) => text,
            Sequence::Words(_) => return Self { words: Vec::new(), word_of: vec![None; encoding.ids.len()] },
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        let ends: Vec<usize> =
            words.iter().map(|word| word.as_ptr() as usize - text.as_ptr() as usize + word.len()).collect();
        let word_of = encoding.offsets.iter().map(|(start, end)| {
            // The word that the piece's last byte is in: a piece may begin with the space before it.
            (end > start)
                .then(|| ends.partition_point(|word_end| word_end < end))
                .filter(|word| *word < words.len())
        });
        Self { word_of: word_of.collect(), words }
    }

    /// Attention per word, from attention per piece.
    fn by_word(&self, attention: &[f32]) -> Vec<f32> {
        let mut by_word = vec![0.0; self.words.len()];
        for (share, word) in attention.iter().zip(&self.word_of) {
            if let Some(word) = word {
                by_word[*word] += share;
            }
        }
        by_word
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloze_tokenizer::{Tokenizer, Vocab};

    #[test]
    fn pieces_belong_to_words() {
        let tokenizer =
            Tokenizer::bert(Vocab::from_tokens(["[UNK]", "a", "cafe", "##s", "."]).unwrap(), true).unwrap();
        let text = Sequence::Text("  a  cafés.  b");
        let encoding = tokenizer.encode_inputs(&[text], false, OffsetUnit::Bytes).unwrap().remove(0);
        let source = Source::new(&text, &encoding);
        assert_eq!(source.words, ["a", "cafés.", "b"]);
        assert_eq!(source.word_of, [0, 1, 1, 1, 2].map(Some));
        assert_eq!(source.by_word(&[0.5, 0.25, 0.125, 0.0, 0.125]), [0.5, 0.375, 0.125]);
    }

    #[test]
    fn pairs_name_the_source_first() {
        let alignment = WordAlignment { weights: vec![vec![0.1, 0.9], vec![0.0, 0.0], vec![0.7, 0.3]] };
        assert_eq!(alignment.pairs(), [(1, 0), (0, 2)]);
    }
}
