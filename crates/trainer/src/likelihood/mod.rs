//! Log-probabilities of sentences and of their pieces, by any language model.
//!
//! | model | score of a piece `w_t` |
//! | --- | --- |
//! | left-to-right | `log P(w_t ∣ w_<t)`: the chain rule |
//! | encoder–decoder | `log P(w_t ∣ w_<t, source)`, the end of the target included |
//! | masked, XLNet | `log P(w_t ∣ w_∖t)`: pseudo-log-likelihood, see [`Metric`] |
//!
//! [`Likelihood`] loads a model of any of these kinds. Copies of a sentence that hide a piece each, and sentences of
//! similar length, are computed together.

mod blanks;
mod masked;
mod permutation;
mod score;
mod slots;
mod windows;
mod writer;

pub use score::{PieceScore, SentenceScore};
pub use slots::{Answer, Slot};

pub(crate) use windows::Windows;

use crate::fill_mask::FillMask;
use crate::fit::check_vocabulary;
use crate::translate::first_token;
use crate::translation::load_vocabularies;
use crate::{Result, TrainerError};
use blanks::{Blank, BlankText};
use burn::tensor::{Device, Int, Tensor, TensorData};
use cloze_model::awd_lstm::AwdLstmConfig;
use cloze_model::blocks::{LinearMap, LinearMaps, pack_weights};
use cloze_model::generate::NextToken;
use cloze_model::gpt::GptConfig;
use cloze_model::huggingface::{DecodeOptions, Format, load_published, model_type, read_decode_settings};
use cloze_model::seq2seq::{
    AnyEncoderDecoder, AnyEncoderDecoderConfig, ConvolutionalEncoderDecoderConfig, EncoderDecoder,
    RecurrentEncoderDecoderConfig, TransformerConfig,
};
use cloze_model::xlnet::{XlnetConfig, XlnetLanguageModel};
use cloze_model::{ParamInit, Sequences};
use cloze_tokenizer::{Encoding, Tokenizer};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use writer::Writer;

/// The default number of tokens processed at a time.
pub(crate) const BATCH_TOKENS: usize = 4096;

/// What a copy of a sentence hides besides the piece that is predicted, where a model sees both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Metric {
    /// Nothing: `PLL(W) = Σ_t log P(w_t | w_∖t)` (Salazar et al. 2020, "Masked Language Model Scoring", eq. 1). Words of many
    /// pieces get high scores, since each piece is guessed from the others.
    Pll,
    /// The later pieces of its word: `Σ_w Σ_t log P(s_(w,t) | S without s_(w,t'), t' ≥ t)` (Kauf & Ivanova 2023, "A Better Way
    /// to Do Masked Language Model Scoring", eq. 2).
    #[default]
    WordL2r,
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pll => "pll",
            Self::WordL2r => "word-l2r",
        })
    }
}

impl FromStr for Metric {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "pll" => Ok(Self::Pll),
            "word-l2r" => Ok(Self::WordL2r),
            _ => Err("expected pll or word-l2r".into()),
        }
    }
}

/// How sentences are scored.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LikelihoodConfig {
    /// For models that see both sides. Default: [`Metric::WordL2r`].
    pub metric: Option<Metric>,
    /// Whether a left-to-right model predicts a sentence's first piece too, after the piece that texts begin with, or, as
    /// GPT-2 does, end with. Otherwise the first piece is only read, unless the tokenizer itself puts one before it.
    pub predicts_first: bool,
    /// Approximate number of tokens processed at a time.
    pub batch_tokens: usize,
}

impl Default for LikelihoodConfig {
    fn default() -> Self {
        Self { metric: None, predicts_first: true, batch_tokens: BATCH_TOKENS }
    }
}

/// A language model and its tokenizer, which score sentences.
///
/// The model multiplies in the precision of the caller's scope, [`with_precision`](cloze_ops::with_precision).
///
/// ```no_run
/// # use cloze_trainer::likelihood::{Likelihood, LikelihoodConfig};
/// # let device = Default::default();
/// let model = Likelihood::load("runs/tiny/model".as_ref(), LikelihoodConfig::default(), &device)?;
/// let sentences = [model.encode("The boats sail.", None)?, model.encode("The boats sails.", None)?];
/// let scores = model.score(&sentences, &mut |_| ())?;
/// println!("{} {}", scores[0].sum(), scores[1].sum());
/// # Ok::<(), cloze_trainer::TrainerError>(())
/// ```
#[derive(Debug)]
pub struct Likelihood {
    folder: PathBuf,
    scorer: Scorer,
    metric: Metric,
    batch_tokens: usize,
    device: Device,
}

/// The kind of a model, which decides what a score is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// Predicts each piece from those before it.
    LeftToRight,
    /// Predicts each piece of a target from its source and the pieces before it.
    EncoderDecoder,
    /// Predicts masked pieces from both sides.
    Masked,
    /// XLNet: predicts pieces from both sides, without masks.
    Permutation,
}

#[derive(Debug)]
enum Scorer {
    Masked(Box<FillMask>),
    Permutation { model: Box<XlnetLanguageModel>, tokenizer: Box<Tokenizer> },
    LeftToRight(Box<LeftToRight>),
    EncoderDecoder(Box<Translating>),
}

#[derive(Debug)]
struct LeftToRight {
    model: Writer,
    tokenizer: Tokenizer,
    /// The piece before each sentence.
    begin: Option<i32>,
}

#[derive(Debug)]
struct Translating {
    model: AnyEncoderDecoder,
    source: Arc<Tokenizer>,
    target: Arc<Tokenizer>,
    /// The first token of decoding.
    first: i32,
}

impl LinearMaps for Likelihood {
    fn linear_maps_mut(&mut self) -> Vec<LinearMap<'_>> {
        match &mut self.scorer {
            Scorer::Masked(model) => model.linear_maps_mut(),
            Scorer::Permutation { model, .. } => model.linear_maps_mut(),
            Scorer::LeftToRight(scorer) => scorer.model.linear_maps_mut(),
            Scorer::EncoderDecoder(scorer) => scorer.model.linear_maps_mut(),
        }
    }
}

/// A sentence as the model reads it.
#[derive(Debug, Clone)]
pub struct EncodedSentence {
    input: Input,
    /// The predicted pieces, in order, without their scores.
    pieces: Vec<PieceScore>,
    words: usize,
    bytes: usize,
}

impl EncodedSentence {
    /// The number of pieces that are predicted.
    pub fn n_pieces(&self) -> usize {
        self.pieces.len()
    }

    /// The tokens that the model reads for it, in all copies.
    pub fn n_tokens(&self) -> usize {
        match &self.input {
            Input::Blanks(text) => text.ids.len() * text.blanks.len(),
            Input::Running(running) => running.ids.len(),
            Input::Pair { source, target } => source.len() + target.len(),
        }
    }
}

#[derive(Debug, Clone)]
enum Input {
    Blanks(BlankText),
    Running(Running),
    /// The target begins with the first token of decoding.
    Pair {
        source: Vec<i32>,
        target: Vec<i32>,
    },
}

/// # Panics
/// If the input was made for a model of another kind.
impl Input {
    fn blanks(&self) -> &BlankText {
        match self {
            Self::Blanks(text) => text,
            _ => panic!("{ANOTHER}"),
        }
    }

    fn running(&self) -> &Running {
        match self {
            Self::Running(running) => running,
            _ => panic!("{ANOTHER}"),
        }
    }

    fn pair(&self) -> (&[i32], &[i32]) {
        match self {
            Self::Pair { source, target } => (source, target),
            _ => panic!("{ANOTHER}"),
        }
    }
}

/// What is wrong with a sentence that another model encoded.
const ANOTHER: &str = "the sentence was encoded by a model of another kind";

/// A text that a left-to-right model reads.
#[derive(Debug, Clone)]
struct Running {
    ids: Vec<i32>,
    /// The place of the first token that is predicted, at least 1.
    done: usize,
}

/// The number of tokens of a text that are read, and of those that are predicted.
#[derive(Debug, Clone, Copy)]
struct Size {
    read: usize,
    predicted: usize,
}

impl Likelihood {
    /// Loads a Hugging Face folder of a left-to-right model, an encoder–decoder, an encoder with a masked-LM head, or an
    /// XLNet. `device` must be one without autodiff.
    ///
    /// # Errors
    /// A missing or damaged file in the folder; [`TrainerError::NoMlmHead`] for a model of another kind;
    /// [`TrainerError::VocabularyMismatch`]; [`TrainerError::Setting`] for a metric if the model has none, or a batch of no
    /// token.
    pub fn load(folder: &Path, config: LikelihoodConfig, device: &Device) -> Result<Self> {
        if config.batch_tokens == 0 {
            return Err(TrainerError::Setting {
                key: "batch_tokens".into(),
                found: "0".into(),
                expected: "1 or more".into(),
            });
        }
        let found = model_type(folder)?;
        let is_of = |types: &[&str]| found.as_deref().is_some_and(|found| types.contains(&found));
        let is_pair = is_of(TransformerConfig::MODEL_TYPES)
            || is_of(RecurrentEncoderDecoderConfig::MODEL_TYPES)
            || is_of(ConvolutionalEncoderDecoderConfig::MODEL_TYPES);
        let scorer = if is_of(GptConfig::MODEL_TYPES) || is_of(AwdLstmConfig::MODEL_TYPES) {
            Scorer::LeftToRight(Box::new(LeftToRight::load(folder, config.predicts_first, device)?))
        } else if is_pair {
            Scorer::EncoderDecoder(Box::new(Translating::load(folder, device)?))
        } else if is_of(XlnetConfig::MODEL_TYPES) {
            let (shape, mut model, _) =
                load_published::<XlnetConfig>(folder, &mut ParamInit::new(device, 0))?;
            let tokenizer = whole(Tokenizer::load(folder)?)?;
            check_vocabulary(&tokenizer, folder, shape.vocab_size)?;
            pack_weights(&mut model);
            Scorer::Permutation { model: Box::new(model), tokenizer: Box::new(tokenizer) }
        } else {
            let mut model = FillMask::load(folder, device)?;
            model.set_whole_texts()?;
            Scorer::Masked(Box::new(model))
        };
        let sees_both_sides = matches!(scorer, Scorer::Masked(_) | Scorer::Permutation { .. });
        if let (Some(metric), false) = (config.metric, sees_both_sides) {
            return Err(TrainerError::Setting {
                key: "metric".into(),
                found: metric.to_string(),
                expected: "none: the model of `--model` predicts from left to right, by the chain rule"
                    .into(),
            });
        }
        Ok(Self {
            folder: folder.into(),
            scorer,
            metric: config.metric.unwrap_or_default(),
            batch_tokens: config.batch_tokens,
            device: device.clone(),
        })
    }

    /// What kind of model it is.
    pub fn kind(&self) -> Kind {
        match &self.scorer {
            Scorer::Masked(_) => Kind::Masked,
            Scorer::Permutation { .. } => Kind::Permutation,
            Scorer::LeftToRight(_) => Kind::LeftToRight,
            Scorer::EncoderDecoder(_) => Kind::EncoderDecoder,
        }
    }

    /// What is hidden; none for a model that predicts from left to right.
    pub fn metric(&self) -> Option<Metric> {
        matches!(self.kind(), Kind::Masked | Kind::Permutation).then_some(self.metric)
    }

    /// Encodes a sentence, and the source of an encoder–decoder.
    ///
    /// # Errors
    /// [`TrainerError::BadInput`] for a sentence without a piece to predict, a missing source, or one that the model has no
    /// use for, and for a text that is too long for XLNet, which has no maximum of its own; [`TrainerError::TextTooLong`]; a
    /// text that the tokenizer rejects.
    pub fn encode(&self, text: &str, source: Option<&str>) -> Result<EncodedSentence> {
        let is_pair = self.kind() == Kind::EncoderDecoder;
        if is_pair != source.is_some() {
            let problem = match is_pair {
                true => {
                    "there is no source; expected a source and a target, separated by a tab, for an encoder–decoder"
                }
                false => {
                    "there is a source, but only an encoder–decoder reads one; expected a sentence alone"
                }
            };
            return Err(TrainerError::BadInput { problem: problem.into() });
        }
        let (input, pieces) = match &self.scorer {
            Scorer::Masked(model) => {
                self.blanks(&model.tokenizer, text, |n| self.check_len(n, Some(model.max_len())))?
            }
            Scorer::Permutation { tokenizer, .. } => {
                self.blanks(tokenizer, text, |n| self.check_square(n))?
            }
            Scorer::LeftToRight(scorer) => {
                let encoding = scorer.tokenizer.encode(text, false)?;
                let running = self.running(scorer, &encoding.ids)?;
                let first = usize::from(scorer.begin.is_none());
                let pieces =
                    (first..encoding.len()).map(|at| piece(&scorer.tokenizer, &encoding, at)).collect();
                (Input::Running(running), pieces)
            }
            Scorer::EncoderDecoder(scorer) => {
                let source = scorer.source.encode_ids(source.unwrap_or_default(), true)?;
                self.check_len(source.len(), scorer.model.max_source_tokens())?;
                let encoding = scorer.target.encode(text, true)?;
                self.check_len(encoding.len(), scorer.model.max_tokens())?;
                let source = source.iter().map(|id| *id as i32).collect();
                let target = encoding.ids.iter().map(|id| *id as i32);
                let target = std::iter::once(scorer.first).chain(target).collect();
                let pieces = (0..encoding.len()).map(|at| piece(&scorer.target, &encoding, at)).collect();
                (Input::Pair { source, target }, pieces)
            }
        };
        if pieces.is_empty() || text.trim().is_empty() {
            return Err(nothing_to_predict("words"));
        }
        Ok(EncodedSentence { input, pieces, words: text.split_whitespace().count(), bytes: text.len() })
    }

    /// The scores of sentences, in order. `done` hears the number of predicted pieces after each batch.
    ///
    /// # Errors
    /// [`TrainerError::OutputNotFinite`].
    ///
    /// # Panics
    /// If a sentence was encoded by a model of another kind.
    pub fn score(
        &self,
        sentences: &[EncodedSentence],
        done: &mut dyn FnMut(usize),
    ) -> Result<Vec<SentenceScore>> {
        let log_probs = match &self.scorer {
            Scorer::Masked(model) => {
                model.blank_log_probs(&blank_texts(sentences), self.batch_tokens, done)?
            }
            Scorer::Permutation { model, .. } => {
                let texts = blank_texts(sentences);
                permutation::blank_log_probs(model, &texts, self.batch_tokens, &self.device, done)?
            }
            Scorer::LeftToRight(scorer) => {
                let texts: Vec<&Running> =
                    sentences.iter().map(|sentence| sentence.input.running()).collect();
                self.running_log_probs(scorer, &texts, done)?
            }
            Scorer::EncoderDecoder(scorer) => {
                let pairs: Vec<(&[i32], &[i32])> =
                    sentences.iter().map(|sentence| sentence.input.pair()).collect();
                let sizes = pairs.iter().map(|(source, target)| Size {
                    read: source.len() + target.len(),
                    predicted: target.len() - 1,
                });
                self.in_batches(&sizes.collect::<Vec<_>>(), done, &|batch| {
                    scorer.log_probs(batch.iter().map(|at| pairs[*at]), &self.device)
                })?
            }
        };
        let scores = sentences.iter().zip(log_probs).map(|(sentence, log_probs)| {
            let mut pieces = sentence.pieces.clone();
            for (piece, log_prob) in pieces.iter_mut().zip(log_probs) {
                piece.log_prob = log_prob;
            }
            SentenceScore { pieces, words: sentence.words, bytes: sentence.bytes }
        });
        Ok(scores.collect())
    }

    /// The log-probabilities of the predicted tokens of texts that a left-to-right model reads.
    fn running_log_probs(
        &self,
        scorer: &LeftToRight,
        texts: &[&Running],
        done: &mut dyn FnMut(usize),
    ) -> Result<Vec<Vec<f64>>> {
        let size = |text: &&Running| Size { read: text.ids.len(), predicted: text.ids.len() - text.done };
        let sizes: Vec<Size> = texts.iter().map(size).collect();
        self.in_batches(&sizes, done, &|batch| {
            scorer.log_probs(batch.iter().map(|at| texts[*at]), &self.device)
        })
    }

    /// The log-probabilities of texts that are read once each, texts of similar length together. `log_probs` are those of the
    /// texts of these numbers.
    fn in_batches(
        &self,
        sizes: &[Size],
        done: &mut dyn FnMut(usize),
        log_probs: &dyn Fn(&[usize]) -> Vec<f64>,
    ) -> Result<Vec<Vec<f64>>> {
        let len = |text: &usize| sizes[*text].read;
        let mut order: Vec<usize> = (0..sizes.len()).filter(|text| sizes[*text].predicted > 0).collect();
        order.sort_by_key(len);
        let mut found = vec![Vec::new(); sizes.len()];
        let mut rest = &order[..];
        while let Some(first) = rest.first() {
            // Lengths ascend, so that the newest text is the longest.
            let mut n = 1;
            while n < rest.len() && (n + 1) * len(&rest[n]) <= self.batch_tokens {
                n += 1;
            }
            debug_assert!(len(first) <= len(&rest[n - 1]));
            let (now, later) = rest.split_at(n);
            rest = later;
            let all = log_probs(now);
            if all.iter().any(|log_prob| !log_prob.is_finite()) {
                return Err(TrainerError::OutputNotFinite);
            }
            done(all.len());
            let mut all = all.into_iter();
            for at in now {
                found[*at] = all.by_ref().take(sizes[*at].predicted).collect();
            }
        }
        Ok(found)
    }

    /// A text of these pieces, all of which are predicted that can be.
    fn running(&self, scorer: &LeftToRight, pieces: &[u32]) -> Result<Running> {
        let ids: Vec<i32> = scorer.begin.into_iter().chain(pieces.iter().map(|id| *id as i32)).collect();
        self.check_len(ids.len().saturating_sub(1), scorer.model.max_tokens())?;
        if ids.len() < 2 {
            let expected = match scorer.begin {
                None => "two words or more: the first piece is only read",
                Some(_) => "words",
            };
            return Err(nothing_to_predict(expected));
        }
        Ok(Running { ids, done: 1 })
    }

    /// A sentence whose pieces are predicted in copies of it.
    fn blanks(
        &self,
        tokenizer: &Tokenizer,
        text: &str,
        check: impl FnOnce(usize) -> Result<()>,
    ) -> Result<(Input, Vec<PieceScore>)> {
        let encoding = tokenizer.encode(text, true)?;
        check(encoding.len())?;
        let predicted: Vec<usize> =
            (0..encoding.len()).filter(|at| encoding.special_tokens_mask[*at] == 0).collect();
        let blanks = predicted.iter().map(|at| self.blank(&encoding, *at)).collect();
        let pieces = predicted.iter().map(|at| piece(tokenizer, &encoding, *at)).collect();
        Ok((Input::Blanks(BlankText { blanks, ..plain(&encoding) }), pieces))
    }

    /// What is hidden to predict a piece.
    fn blank(&self, encoding: &Encoding, at: usize) -> Blank {
        let word = encoding.word_ids[at];
        let same = |next: &usize| word.is_some() && encoding.word_ids[*next] == word;
        let later = match self.metric {
            Metric::Pll => 0,
            Metric::WordL2r => (at + 1..encoding.len()).take_while(same).count(),
        };
        at..at + 1 + later
    }

    fn check_len(&self, tokens: usize, max: Option<usize>) -> Result<()> {
        match max {
            Some(max) if tokens > max => {
                Err(TrainerError::TextTooLong { folder: self.folder.clone(), tokens, max })
            }
            _ => Ok(()),
        }
    }

    /// That a text for XLNet is not too long. It has no maximum, and the memory of its attention grows as the square of the
    /// length.
    fn check_square(&self, tokens: usize) -> Result<()> {
        let max = self.batch_tokens.max(BATCH_TOKENS);
        if tokens <= max {
            return Ok(());
        }
        let problem = format!(
            "the text has {tokens} tokens, which all attend to one another; expected at most {max}: divide it, or allow more tokens \
             in a batch"
        );
        Err(TrainerError::BadInput { problem })
    }
}

fn nothing_to_predict(expected: &str) -> TrainerError {
    TrainerError::BadInput { problem: format!("the sentence has no piece to predict; expected {expected}") }
}

fn blank_texts(sentences: &[EncodedSentence]) -> Vec<BlankText> {
    sentences.iter().map(|sentence| sentence.input.blanks().clone()).collect()
}

/// A text without blanks.
fn plain(encoding: &Encoding) -> BlankText {
    let signed = |ids: &[u32]| ids.iter().map(|id| *id as i32).collect();
    BlankText { ids: signed(&encoding.ids), types: signed(&encoding.type_ids), blanks: Vec::new() }
}

/// A piece, not yet scored.
fn piece(tokenizer: &Tokenizer, encoding: &Encoding, at: usize) -> PieceScore {
    let id = encoding.ids[at];
    PieceScore {
        token: encoding.tokens[at].clone(),
        id,
        offsets: encoding.offsets[at],
        is_unknown: tokenizer.special_ids().unk == Some(id),
        log_prob: 0.0,
    }
}

/// A tokenizer that neither cuts texts nor fills them up.
fn whole(mut tokenizer: Tokenizer) -> Result<Tokenizer> {
    tokenizer.set_truncation(None)?;
    tokenizer.set_padding(None)?;
    Ok(tokenizer)
}

impl LeftToRight {
    fn load(folder: &Path, predicts_first: bool, device: &Device) -> Result<Self> {
        let (vocab_size, model) = Writer::load(folder, device)?;
        let tokenizer = whole(Tokenizer::load(folder)?)?;
        check_vocabulary(&tokenizer, folder, vocab_size)?;
        let own = tokenizer.encode_ids("", true)?.first().copied();
        let declared = || {
            let names = tokenizer.config();
            let names = [&names.bos_token, &names.eos_token].into_iter().flatten();
            names.filter_map(|token| tokenizer.token_to_id(&token.content)).next()
        };
        let mut begin = own.map(|id| id as i32);
        if begin.is_none() && predicts_first {
            let settings = read_decode_settings(folder, &DecodeOptions::default())?;
            let end = settings.stop_ids.first().copied();
            let fits = |id: &i32| usize::try_from(*id).is_ok_and(|id| id < vocab_size);
            begin = declared().map(|id| id as i32).or(end).filter(fits);
        }
        Ok(Self { model, tokenizer, begin })
    }

    fn log_probs<'a>(&self, batch: impl Iterator<Item = &'a Running>, device: &Device) -> Vec<f64> {
        let mut windows = Windows::default();
        for text in batch {
            windows.push(&text.ids, text.done);
        }
        self.model.losses(&windows, device).into_iter().map(|loss| -loss).collect()
    }
}

impl Translating {
    fn load(folder: &Path, device: &Device) -> Result<Self> {
        let vocabularies = load_vocabularies(folder)?;
        let (shape, mut model) = AnyEncoderDecoderConfig::load(folder, &mut ParamInit::new(device, 0))?;
        for (tokenizer, model) in
            [&vocabularies.source, &vocabularies.target].into_iter().zip(shape.vocab_sizes())
        {
            check_vocabulary(tokenizer, folder, model)?;
        }
        pack_weights(&mut model);
        let settings = read_decode_settings(folder, &DecodeOptions::default())?;
        let first = first_token(&shape, &settings, &vocabularies.special);
        Ok(Self { model, source: vocabularies.source, target: vocabularies.target, first })
    }

    /// Of pairs of a source and a target.
    fn log_probs<'a>(
        &self,
        batch: impl Iterator<Item = (&'a [i32], &'a [i32])>,
        device: &Device,
    ) -> Vec<f64> {
        let (mut sources, mut targets, mut labels) = (Sequences::new(), Sequences::new(), Vec::<i32>::new());
        for (source, target) in batch {
            sources.push(source);
            targets.push(&target[..target.len() - 1]);
            labels.extend(&target[1..]);
        }
        let logits = self.model.logits(&sources, &targets, device);
        let n = labels.len();
        let labels = Tensor::<1, Int>::from_data(TensorData::new(labels, [n]), device);
        let losses = cloze_ops::cross_entropy(logits, labels);
        losses.into_data().iter::<f64>().map(|loss| -loss).collect()
    }
}

#[cfg(test)]
mod tests;
