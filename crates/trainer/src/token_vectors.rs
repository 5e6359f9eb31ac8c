//! Contextual vectors of tokens and words: a pretrained encoder's states, each with its position in the text.

mod places;

pub(crate) use places::{TokenPlaces, mean_of};

use crate::embed::{batches, load_encoder};
use crate::input::input;
use crate::{Result, TrainerError};
use burn::tensor::{Device, Tensor};
use cloze_data::TokenBatch;
use cloze_model::bert::Bert;
use cloze_model::blocks::EncoderTrace;
use cloze_model::huggingface::LoadReport;
use cloze_ops::on_awake_cores;
use cloze_tokenizer::{Encoding, OffsetUnit, Sequence, Tokenizer};
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::str::FromStr;

/// The layers that a token's vector is made of. Layers are numbered as in transformers' `hidden_states`: 0 is
/// the embeddings, and layers count from 1.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Layers {
    /// The last layer's states.
    #[default]
    Last,
    /// The mean of the last four layers' states.
    LastFourMean,
    /// The concatenated states of the last four layers, the deepest last (Devlin et al. 2019, table 7).
    LastFourConcat,
    /// The concatenated embeddings and states of all layers.
    All,
    /// These layers concatenated, in this order; negative numbers count from the last layer, −1.
    Listed(Vec<i32>),
    /// The mean of these layers' states, numbered likewise; of the embeddings and all layers if there are none.
    Mean(Vec<i32>),
}

impl Layers {
    /// The layer numbers for an encoder with `n_layers` layers.
    ///
    /// # Errors
    /// [`TrainerError::Setting`] for layers that the encoder does not have.
    fn numbers(&self, n_layers: usize) -> Result<Vec<usize>> {
        let refused =
            |found: String, expected: String| TrainerError::Setting { key: "layers".into(), found, expected };
        match self {
            Self::Last => Ok(vec![n_layers]),
            Self::LastFourMean | Self::LastFourConcat if n_layers < 4 => {
                let expected = format!("\"last\", \"all\" or numbers: the model has {n_layers} layers");
                Err(refused(format!("\"{self}\""), expected))
            }
            Self::LastFourMean | Self::LastFourConcat => Ok((n_layers - 3..=n_layers).collect()),
            Self::All => Ok((0..=n_layers).collect()),
            Self::Mean(numbers) if numbers.is_empty() => Ok((0..=n_layers).collect()),
            Self::Listed(numbers) | Self::Mean(numbers) => {
                let number = |number: &i32| {
                    let number = i64::from(*number);
                    let from_start = if number < 0 { number + n_layers as i64 + 1 } else { number };
                    usize::try_from(from_start).ok().filter(|number| *number <= n_layers)
                };
                let expected = || {
                    format!("numbers from 0, the embeddings, to {n_layers}, the last layer, which is -1 too")
                };
                match numbers.iter().map(number).collect::<Option<Vec<_>>>() {
                    Some(numbers) if !numbers.is_empty() => Ok(numbers),
                    _ => Err(refused(format!("\"{self}\""), expected())),
                }
            }
        }
    }
}

impl fmt::Display for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Last => f.write_str("last"),
            Self::LastFourMean => f.write_str("last-four-mean"),
            Self::LastFourConcat => f.write_str("last-four-concat"),
            Self::All => f.write_str("all"),
            Self::Listed(numbers) | Self::Mean(numbers) => {
                f.write_str(&numbers.iter().map(i32::to_string).collect::<Vec<_>>().join(","))
            }
        }
    }
}

/// Parses `last`, `last-four-mean`, `last-four-concat`, `all`, or comma-separated numbers such as `0,6,-1`.
impl FromStr for Layers {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "last" => Ok(Self::Last),
            "last-four-mean" => Ok(Self::LastFourMean),
            "last-four-concat" => Ok(Self::LastFourConcat),
            "all" => Ok(Self::All),
            numbers => {
                let numbers: std::result::Result<Vec<i32>, _> =
                    numbers.split(',').map(|number| number.trim().parse()).collect();
                let expected = "expected last, last-four-mean, last-four-concat, all, or numbers of layers between commas, \
                                such as 0,6,-1";
                numbers.map(Self::Listed).map_err(|_| expected.into())
            }
        }
    }
}

/// How the vectors of a word's pieces are combined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WordPooling {
    /// Their mean.
    Mean,
    /// The first piece's vector.
    First,
}

/// Settings of a [`TokenEmbedder`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenEmbedConfig {
    /// The layers that vectors are made of.
    pub layers: Layers,
    /// How the pieces of a word are combined; none: each piece has its own vector. Words are those given, or
    /// the tokenizer's.
    pub words: Option<WordPooling>,
    /// Maximum tokens of a window, special tokens included; longer texts are read in windows. Default: from the
    /// tokenizer's files, and at most the encoder's positions.
    pub max_len: Option<usize>,
    /// Minimum tokens shared by consecutive windows. Default: a quarter of a window.
    pub overlap: Option<usize>,
    /// Whether the special tokens around a text with tokens have vectors too. They belong to no word and have no
    /// characters. Those of a text that is read in windows are of the first one. Default: no.
    pub special: bool,
    /// See [`EmbedConfig`](crate::embed::EmbedConfig::language).
    pub language: Option<String>,
    /// Maximum tokens per batch. A longer window is a batch of its own.
    pub batch_tokens: usize,
    /// Whether the layers multiply in 8 bits: faster and slightly less exact.
    pub int8: bool,
}

impl Default for TokenEmbedConfig {
    fn default() -> Self {
        Self {
            layers: Layers::Last,
            words: None,
            max_len: None,
            overlap: None,
            special: false,
            language: None,
            batch_tokens: 1024,
            int8: false,
        }
    }
}

/// A token or a word of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// Its text: a piece as in the vocabulary, or a word as in the text.
    pub text: String,
    /// Its position in the text, in characters, not bytes; if words are given, its position in the word.
    pub chars: Range<usize>,
    /// The index of its word; none for a piece that belongs to no word.
    pub word: Option<u32>,
}

/// The vectors of one text.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenVectors {
    /// The tokens or words in the order of the text, without special tokens unless
    /// [`TokenEmbedConfig::special`] says so.
    pub units: Vec<Unit>,
    /// `[units · width]`
    pub values: Vec<f32>,
}

/// A tokenizer and an encoder from one folder, which compute a vector for each token or word of a text.
///
/// A text longer than a window is read in overlapping windows; each token's vector comes from the window where
/// it is farthest from a cut, the earlier one on ties.
///
/// The prompts, pooling and scaling of sentence-transformers' modules apply to whole texts and are not used.
///
/// ```no_run
/// use burn::tensor::Device;
/// use cloze_trainer::token_vectors::{TokenEmbedConfig, TokenEmbedder, WordPooling};
///
/// # fn main() -> cloze_trainer::Result<()> {
/// let config = TokenEmbedConfig { words: Some(WordPooling::Mean), ..TokenEmbedConfig::default() };
/// let embedder = TokenEmbedder::load("my-model".as_ref(), config, &Device::default())?;
/// for text in embedder.embed(&["The old man sat by the sea."])? {
///     for (unit, vector) in text.units.iter().zip(text.values.chunks(embedder.width())) {
///         println!("{} {:?} {vector:?}", unit.text, unit.chars);
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct TokenEmbedder {
    tokenizer: Tokenizer,
    model: Bert,
    device: Device,
    numbers: Vec<usize>,
    is_mean: bool,
    needs_layers: bool,
    words: Option<WordPooling>,
    max_len: usize,
    overlap: Option<usize>,
    special: bool,
    batch_tokens: usize,
    width: usize,
    report: LoadReport,
}

/// A window of a text.
struct Window {
    text: usize,
    /// The text's tokens in the window, and those whose vectors are taken from it, not counting special tokens.
    tokens: Range<usize>,
    taken: Range<usize>,
}

impl TokenEmbedder {
    /// Loads a Hugging Face folder: `config.json`, `model.safetensors` and a tokenizer. `device` must be one
    /// without autodiff.
    ///
    /// # Errors
    /// A missing or damaged file in the folder; layers or a language that the model does not have; windows
    /// longer than
    /// its positions; [`VocabularyMismatch`](crate::TrainerError::VocabularyMismatch),
    /// [`UnfitTokenizer`](crate::TrainerError::UnfitTokenizer).
    pub fn load(folder: &Path, config: TokenEmbedConfig, device: &Device) -> Result<Self> {
        let (mut tokenizer, bert, model, report) =
            load_encoder(folder, config.language.as_deref(), config.int8, device)?;
        let numbers = config.layers.numbers(bert.n_layers)?;
        let is_mean = matches!(config.layers, Layers::LastFourMean | Layers::Mean(_));
        if let Some(max_len) = config.max_len.filter(|max_len| *max_len > bert.max_positions) {
            let expected = format!("at most {}, the model's positions", bert.max_positions);
            return Err(setting("max_len", max_len, expected));
        }
        let declared =
            tokenizer.config().model_max_length.or(tokenizer.truncation().map(|cut| cut.max_length));
        let max_len = config.max_len.or(declared).unwrap_or(usize::MAX).min(bert.max_positions);
        // Windows are cut here, where it is known which token is taken from which.
        tokenizer.set_truncation(None)?;
        tokenizer.set_padding(None)?;
        Ok(Self {
            tokenizer,
            model,
            device: device.clone(),
            width: if is_mean { bert.d_model } else { bert.d_model * numbers.len() },
            needs_layers: numbers != [bert.n_layers],
            numbers,
            is_mean,
            words: config.words,
            max_len,
            overlap: config.overlap,
            special: config.special,
            batch_tokens: config.batch_tokens.max(1),
            report,
        })
    }

    /// Width of a vector.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The numbers of the layers that vectors are made of, in the order in which they are concatenated.
    pub fn layers(&self) -> &[usize] {
        &self.numbers
    }

    /// The tokenizer, without truncation and padding.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The maximum tokens of a window, special tokens included.
    pub fn max_len(&self) -> usize {
        self.max_len
    }

    /// The parameters missing from the checkpoint, and its unused tensors.
    pub fn report(&self) -> &LoadReport {
        &self.report
    }

    /// The vectors of texts, in order.
    ///
    /// # Errors
    /// [`cloze_tokenizer::Error::Batch`] with the first text that the tokenizer fails on; windows too short for
    /// their overlap; [`TrainerError::OutputNotFinite`].
    pub fn embed<T: AsRef<str>>(&self, texts: &[T]) -> Result<Vec<TokenVectors>> {
        let texts: Vec<Sequence> = texts.iter().map(|text| Sequence::Text(text.as_ref())).collect();
        self.embed_sequences(&texts)
    }

    /// The vectors of texts and of given words.
    ///
    /// # Errors
    /// Those of [`embed`](Self::embed), and for a [beginning](Sequence::Beginning), because texts are not
    /// truncated.
    pub fn embed_sequences(&self, texts: &[Sequence<'_>]) -> Result<Vec<TokenVectors>> {
        self.embed_encoded(texts, &self.encode(texts)?)
    }

    /// The tokens of texts: gives the number of vectors before any is computed.
    ///
    /// # Errors
    /// [`cloze_tokenizer::Error::Batch`], as in [`embed_sequences`](Self::embed_sequences).
    pub fn encode(&self, texts: &[Sequence<'_>]) -> Result<Vec<Encoding>> {
        Ok(self.tokenizer.encode_inputs(texts, true, OffsetUnit::Chars)?)
    }

    /// The vectors of encoded texts.
    ///
    /// # Errors
    /// Those of [`embed_sequences`](Self::embed_sequences), except for tokenizer errors.
    ///
    /// # Panics
    /// If the number of encodings differs from the number of texts.
    pub fn embed_encoded(&self, texts: &[Sequence<'_>], encodings: &[Encoding]) -> Result<Vec<TokenVectors>> {
        assert_eq!(texts.len(), encodings.len(), "an encoding for each text");
        on_awake_cores(&self.device, || self.embed_here(texts, encodings))
    }

    fn embed_here(&self, texts: &[Sequence<'_>], encodings: &[Encoding]) -> Result<Vec<TokenVectors>> {
        let inner: Vec<Range<usize>> =
            encodings.iter().map(|encoding| encoding.sequence_range(0).unwrap_or(0..0)).collect();
        let mut windows = Vec::new();
        for (text, (encoding, inner)) in encodings.iter().zip(&inner).enumerate() {
            windows.extend(self.windows(text, encoding, inner)?);
        }
        let kept: Vec<Range<usize>> = encodings
            .iter()
            .zip(&inner)
            .map(|(encoding, inner)| match self.special && !inner.is_empty() {
                true => 0..encoding.len(),
                false => inner.clone(),
            })
            .collect();
        let mut vectors: Vec<Vec<f32>> = kept.iter().map(|kept| vec![0.0; kept.len() * self.width]).collect();
        // The special tokens around a text are around each window.
        let around = |window: &Window| encodings[window.text].len() - inner[window.text].len();
        windows.sort_by_key(|window| window.tokens.len() + around(window));
        let lengths: Vec<usize> = windows.iter().map(|window| window.tokens.len() + around(window)).collect();
        for batch in batches(&lengths, self.batch_tokens, self.model.takes_packed()) {
            let batch = &windows[batch];
            let (states, starts) = self.states(batch, encodings, &inner);
            for (window, start) in batch.iter().zip(starts) {
                let Window { text, tokens, taken } = window;
                let (inner, kept, width) = (&inner[*text], &kept[*text], self.width);
                let mut copy = |from: usize, to: usize, n: usize| {
                    let found = &states[(start + from) * width..][..n * width];
                    vectors[*text][to * width..][..found.len()].copy_from_slice(found);
                };
                let first = inner.start + taken.start - tokens.start;
                copy(first, inner.start - kept.start + taken.start, taken.len());
                // The special tokens that are kept are the first window's.
                if tokens.start == 0 {
                    copy(0, 0, inner.start - kept.start);
                    copy(inner.start + tokens.len(), inner.end - kept.start, kept.end - inner.end);
                }
            }
        }
        if !vectors.iter().flatten().all(|value| value.is_finite()) {
            return Err(TrainerError::OutputNotFinite);
        }
        let all = texts.iter().zip(encodings.iter().zip(kept)).zip(vectors);
        Ok(all
            .map(|((text, (encoding, kept)), values)| match self.words {
                None => TokenVectors { units: kept.map(|i| token(encoding, i)).collect(), values },
                Some(pooling) => words(text, encoding, kept, &values, self.width, pooling),
            })
            .collect())
    }

    /// The windows of a text.
    fn windows(&self, text: usize, encoding: &Encoding, inner: &Range<usize>) -> Result<Vec<Window>> {
        let around = encoding.len() - inner.len();
        let room = self.max_len.saturating_sub(around);
        let refused = |key, found, expected| Err(setting(key, found, expected));
        if inner.len() > room {
            if room == 0 {
                let expected = format!("more than {around}, the special tokens around a text");
                return refused("max_len", self.max_len, expected);
            }
            if let Some(overlap) = self.overlap.filter(|overlap| *overlap >= room) {
                let expected = format!("less than {room}, the tokens of a text in a window");
                return refused("overlap", overlap, expected);
            }
        }
        let parts = parts(inner.len(), room, self.overlap.unwrap_or(room / 4));
        Ok(parts.into_iter().map(|(tokens, taken)| Window { text, tokens, taken }).collect())
    }

    /// The vectors of all tokens of a batch, including special ones, and the index of each window's first.
    fn states(
        &self,
        batch: &[Window],
        encodings: &[Encoding],
        inner: &[Range<usize>],
    ) -> (Vec<f32>, Vec<usize>) {
        let mut tokens = TokenBatch::new().with_max_len(self.max_len);
        for Window { text, tokens: part, .. } in batch {
            let (encoding, inner) = (&encodings[*text], &inner[*text]);
            let places = (0..inner.start)
                .chain(inner.start + part.start..inner.start + part.end)
                .chain(inner.end..encoding.len());
            let (ids, types): (Vec<i32>, Vec<i32>) =
                places.map(|i| (encoding.ids[i] as i32, encoding.type_ids[i] as i32)).unzip();
            tokens.push(&ids, &types);
        }
        let input = input(&self.model, &tokens, &self.device);
        let starts = input.starts();
        let trace = EncoderTrace { hidden_states: self.needs_layers, ..EncoderTrace::default() };
        let output = self.model.forward(input.with_trace(trace));
        let parts: Vec<Tensor<3>> = match self.needs_layers {
            true => self.numbers.iter().map(|number| output.hidden_states[*number].clone()).collect(),
            false => vec![output.last_hidden_state],
        };
        let n = parts.len() as f32;
        let states = match self.is_mean {
            true => parts.into_iter().reduce(|sum, part| sum + part).expect("there are layers") / n,
            false => Tensor::cat(parts, 2),
        };
        let states = states.into_data().try_into_vec::<f32>().expect("states are FP32");
        (states, starts)
    }
}

fn setting(key: &str, found: usize, expected: String) -> TrainerError {
    TrainerError::Setting { key: key.into(), found: found.to_string(), expected }
}

/// Windows of `room` tokens over `n`, each sharing `overlap` with the previous one, the last one more; and the
/// tokens taken from each: those at least as far from its end as from the start of the next one.
fn parts(n: usize, room: usize, overlap: usize) -> Vec<(Range<usize>, Range<usize>)> {
    let mut all: Vec<(Range<usize>, Range<usize>)> = Vec::new();
    if n == 0 {
        return all;
    }
    let (mut start, mut taken) = (0, 0);
    loop {
        let end = n.min(start + room);
        if end == n {
            all.push((start..end, taken..n));
            return all;
        }
        let next = (start + room - overlap).min(n - room);
        let middle = (end - 1 + next) / 2 + 1;
        all.push((start..end, taken..middle));
        (start, taken) = (next, middle);
    }
}

fn token(encoding: &Encoding, place: usize) -> Unit {
    let (start, end) = encoding.offsets[place];
    Unit { text: encoding.tokens[place].clone(), chars: start..end, word: encoding.word_ids[place] }
}

/// A text's words among the tokens in `inner`, with the tokens' vectors `values` pooled.
fn words(
    text: &Sequence<'_>,
    encoding: &Encoding,
    inner: Range<usize>,
    values: &[f32],
    width: usize,
    pooling: WordPooling,
) -> TokenVectors {
    let mut found = TokenVectors { units: Vec::new(), values: Vec::new() };
    let whole = match text {
        Sequence::Text(text) | Sequence::Beginning(text) => Some(Characters::new(text)),
        Sequence::Words(_) => None,
    };
    let mut start = inner.start;
    while start < inner.end {
        let word = encoding.word_ids[start];
        // A token that is of no word is by itself.
        let of_word = |i: &usize| word.is_some() && encoding.word_ids[*i] == word;
        let end = start + 1 + (start + 1..inner.end).take_while(of_word).count();
        let chars = encoding.offsets[start].0..encoding.offsets[end - 1].1;
        let written = match (text, &whole) {
            (Sequence::Words(words), _) => word.and_then(|word| words.get(word as usize).copied()),
            (_, Some(whole)) => whole.get(&chars),
            (_, None) => None,
        };
        found.units.push(Unit { text: written.unwrap_or_default().to_string(), chars, word });
        let tokens = &values[(start - inner.start) * width..(end - inner.start) * width];
        match pooling {
            WordPooling::First => found.values.extend(&tokens[..width]),
            WordPooling::Mean => {
                let n = (end - start) as f32;
                let mean = |feature| tokens.iter().skip(feature).step_by(width).sum::<f32>() / n;
                found.values.extend((0..width).map(mean));
            }
        }
        start = end;
    }
    found
}

/// Looks up parts of a text by character offset.
struct Characters<'a> {
    text: &'a str,
    /// The byte offset of each character, and of the text's end.
    bytes: Vec<usize>,
}

impl<'a> Characters<'a> {
    fn new(text: &'a str) -> Self {
        let bytes = text.char_indices().map(|(byte, _)| byte).chain([text.len()]).collect();
        Self { text, bytes }
    }

    fn get(&self, chars: &Range<usize>) -> Option<&'a str> {
        self.text.get(*self.bytes.get(chars.start)?..*self.bytes.get(chars.end)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For each token the window where it is farthest from a cut, the first of several.
    fn farthest(n: usize, windows: &[Range<usize>]) -> Vec<usize> {
        let distance = |window: &Range<usize>, token: usize| {
            let left = if window.start == 0 { usize::MAX } else { token - window.start };
            let right = if window.end == n { usize::MAX } else { window.end - 1 - token };
            left.min(right)
        };
        let best = |token: usize| {
            let holds = |place: &usize| windows[*place].contains(&token);
            let order = |place: &usize| (distance(&windows[*place], token), usize::MAX - place);
            (0..windows.len()).filter(holds).max_by_key(order).unwrap()
        };
        (0..n).map(best).collect()
    }

    #[test]
    fn each_token_is_taken_where_it_is_farthest_from_a_cut() {
        assert_eq!(parts(0, 5, 1), []);
        assert_eq!(parts(5, 5, 1), [(0..5, 0..5)]);
        assert_eq!(parts(6, 5, 1), [(0..5, 0..3), (1..6, 3..6)]);
        for n in 1..40 {
            for room in 1..12 {
                for overlap in 0..room {
                    let parts = parts(n, room, overlap);
                    let windows: Vec<Range<usize>> = parts.iter().map(|(window, _)| window.clone()).collect();
                    assert!(windows.iter().all(|window| window.len() == room.min(n)));
                    let shares = |pair: &[Range<usize>]| pair[0].end - pair[1].start >= overlap;
                    assert!(windows.windows(2).all(shares), "{windows:?}");
                    let taken: Vec<usize> = parts
                        .iter()
                        .enumerate()
                        .flat_map(|(place, (_, taken))| taken.clone().map(move |_| place))
                        .collect();
                    assert_eq!(taken, farthest(n, &windows), "{n} tokens, {room}, {overlap}");
                }
            }
        }
    }

    #[test]
    fn layers_are_named_or_numbered() {
        for text in ["last", "last-four-mean", "last-four-concat", "all", "0,6,-1"] {
            assert_eq!(text.parse::<Layers>().unwrap().to_string(), text);
        }
        for text in ["", "first", "1,,2", "1.5"] {
            assert!(text.parse::<Layers>().unwrap_err().starts_with("expected last, "), "{text}");
        }
        let numbers = |text: &str, n| text.parse::<Layers>().unwrap().numbers(n);
        assert_eq!(numbers("last", 6).unwrap(), [6]);
        assert_eq!(numbers("last-four-mean", 6).unwrap(), [3, 4, 5, 6]);
        assert_eq!(numbers("all", 2).unwrap(), [0, 1, 2]);
        assert_eq!(numbers("-1,0,2,-3", 2).unwrap(), [2, 0, 2, 0]);
        assert_eq!(Layers::Mean(vec![]).numbers(2).unwrap(), [0, 1, 2]);
        assert_eq!(Layers::Mean(vec![-1, 0]).numbers(2).unwrap(), [2, 0]);
        for (text, expected) in [
            (
                "3",
                "`layers` is \"3\"; expected numbers from 0, the embeddings, to 2, the last layer, which is -1 too",
            ),
            (
                "-4",
                "`layers` is \"-4\"; expected numbers from 0, the embeddings, to 2, the last layer, which is -1 too",
            ),
            (
                "last-four-mean",
                "`layers` is \"last-four-mean\"; expected \"last\", \"all\" or numbers: the model has 2 layers",
            ),
        ] {
            assert_eq!(numbers(text, 2).unwrap_err().to_string(), expected);
        }
    }
}
