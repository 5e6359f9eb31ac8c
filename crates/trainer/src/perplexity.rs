//! Evaluates language models on a text: perplexity of left-to-right models, pseudo-perplexity of masked ones.

use crate::engine::messages::gather_numbers;
use crate::engine::replicas::{Alone, Replicas, Share};
use crate::fill_mask::FillMask;
use crate::fit::check_vocabulary;
use crate::likelihood::{BATCH_TOKENS, Windows};
use crate::{Result, TrainerError};
use burn::tensor::Device;
use cloze_data::not_utf8;
use cloze_model::ParamInit;
use cloze_model::blocks::{LinearMap, LinearMaps, pack_weights};
use cloze_model::gpt::{Gpt, GptConfig};
use cloze_model::huggingface::{Format, load_published, model_type};
use cloze_tokenizer::Tokenizer;
use serde::Serialize;
use std::io::{BufRead, ErrorKind, Read};
use std::path::Path;

/// Maximum bytes of text tokenised at a time: a piece ends at a line's end if possible, else before a word. A
/// longer word is read in parts.
const PIECE: usize = 1 << 20;

/// A model for scoring texts.
#[derive(Debug)]
pub enum Perplexity {
    /// A left-to-right model.
    LeftToRight(Box<LeftToRightPerplexity>),
    /// A masked one.
    Masked(Box<FillMask>),
}

impl LinearMaps for Perplexity {
    fn linear_maps_mut(&mut self) -> Vec<LinearMap<'_>> {
        match self {
            Self::LeftToRight(model) => model.model.linear_maps_mut(),
            Self::Masked(model) => model.linear_maps_mut(),
        }
    }
}

/// A left-to-right model and its windows.
#[derive(Debug)]
pub struct LeftToRightPerplexity {
    model: Gpt,
    tokenizer: Tokenizer,
    device: Device,
    /// Tokens per window.
    window: usize,
    /// Tokens between the starts of consecutive windows.
    stride: usize,
}

/// The score of a text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct TextScore {
    /// The sum of the predicted tokens' `−log P`, in nats.
    pub nats: f64,
    /// Number of predicted tokens: for a left-to-right model all but the first, unless the tokenizer adds a
    /// begin-of-text piece.
    pub tokens: u64,
    /// Bytes of the text.
    pub bytes: u64,
    /// Whitespace-separated words of the text.
    pub words: u64,
}

impl TextScore {
    /// The effective number of choices per token: the exponential of the mean of `−log P`.
    pub fn perplexity(&self) -> f64 {
        (self.nats / self.tokens as f64).exp()
    }

    /// The perplexity per word: comparable across vocabularies.
    pub fn word_perplexity(&self) -> f64 {
        (self.nats / self.words as f64).exp()
    }

    /// Bits per byte of the text: comparable across vocabularies.
    pub fn bits_per_byte(&self) -> f64 {
        self.nats / std::f64::consts::LN_2 / self.bytes as f64
    }
}

impl std::ops::AddAssign for TextScore {
    fn add_assign(&mut self, other: Self) {
        self.nats += other.nats;
        self.tokens += other.tokens;
        self.bytes += other.bytes;
        self.words += other.words;
    }
}

impl Perplexity {
    /// Loads a Hugging Face folder. `stride` is the number of tokens between the starts of a left-to-right
    /// model's windows, from 1 to its positions, which are the window length. Default: half the positions.
    ///
    /// # Errors
    /// A missing or damaged file in the folder; [`TrainerError::Setting`] for an invalid stride, or any stride
    /// for a masked model; [`TrainerError::VocabularyMismatch`].
    pub fn load(folder: &Path, stride: Option<usize>, device: &Device) -> Result<Self> {
        let kind = model_type(folder)?;
        let refuse = |found: usize, expected: String| {
            Err(TrainerError::Setting { key: "stride".into(), found: found.to_string(), expected })
        };
        if !kind.is_some_and(|kind| GptConfig::MODEL_TYPES.contains(&kind.as_str())) {
            if let Some(stride) = stride {
                return refuse(
                    stride,
                    "none: the model of `--model` is a masked one, which has no windows".into(),
                );
            }
            let mut model = FillMask::load(folder, device)?;
            model.set_whole_texts()?;
            return Ok(Self::Masked(Box::new(model)));
        }
        let init = &mut ParamInit::new(device, 0);
        let (config, mut model, _) = load_published::<GptConfig>(folder, init)?;
        let mut tokenizer = Tokenizer::load(folder)?;
        tokenizer.set_truncation(None)?;
        tokenizer.set_padding(None)?;
        check_vocabulary(&tokenizer, folder, config.vocab_size)?;
        let window = config.max_positions;
        let stride = stride.unwrap_or(window.div_ceil(2));
        if stride == 0 || stride > window {
            return refuse(stride, format!("from 1 to {window}, the model's positions"));
        }
        pack_weights(&mut model);
        let device = device.clone();
        Ok(Self::LeftToRight(Box::new(LeftToRightPerplexity { model, tokenizer, device, window, stride })))
    }

    /// The score of a text, which is streamed; `path` is its name in error messages.
    ///
    /// A left-to-right model reads windows as long as its positions, a stride apart; each window predicts the
    /// tokens that no earlier window predicted (transformers, "Perplexity of fixed-length models"). A masked
    /// model reads lines, longer ones in parts, and predicts each token with only that token masked, given all
    /// others (Salazar et al. 2020, "Masked Language Model Scoring", eq. 1 and 3). A word of more than a
    /// megabyte is read in parts.
    ///
    /// # Errors
    /// [`TrainerError::Io`]; [`TrainerError::Text`] for a text that is not UTF-8 or in which no token is predicted;
    /// [`TrainerError::OutputNotFinite`].
    pub fn score(&self, text: impl BufRead, path: &Path) -> Result<TextScore> {
        self.score_together(text, path, &Alone)
    }

    /// [`score`](Self::score) by several replicas, all of which read the same text. They take turns in predicting, and have the
    /// bits of one.
    ///
    /// # Errors
    /// Those of [`score`](Self::score); [`TrainerError::Replicas`] if another replica cannot be reached.
    pub fn score_together(
        &self,
        text: impl BufRead,
        path: &Path,
        replicas: &dyn Replicas,
    ) -> Result<TextScore> {
        let mut pieces = Pieces { text, path, rest: Vec::new(), first: true, in_word: false, done: false };
        let mut turns = Turns { share: Share::of(replicas), n: 0, own: Vec::new() };
        let mut score = match self {
            Self::LeftToRight(model) => model.score(&mut pieces, &mut turns)?,
            Self::Masked(model) => masked_score(model, &mut pieces, &mut turns)?,
        };
        (score.nats, score.tokens) = turns.sums(replicas)?;
        if score.tokens == 0 {
            return Err(pieces.error("has no token to predict: it needs at least two tokens".into()));
        }
        if !score.nats.is_finite() {
            return Err(TrainerError::OutputNotFinite);
        }
        // Sums of positive numbers: none of it is below 0 but by rounding.
        score.nats = score.nats.max(0.0);
        Ok(score)
    }
}

/// Predictions that replicas make in turns.
struct Turns {
    share: Share,
    /// The number of turns so far.
    n: usize,
    /// For each of this replica's, the sum of `−log P` and the number of tokens.
    own: Vec<f64>,
}

impl Turns {
    /// One turn, if it is this replica's.
    fn take(&mut self, predict: impl FnOnce() -> Result<(f64, u64)>) -> Result<()> {
        if self.share.is_dealt(self.n) {
            let (nats, tokens) = predict()?;
            self.own.extend([nats, tokens as f64]);
        }
        self.n += 1;
        Ok(())
    }

    /// The sums over all turns, added in their order.
    fn sums(self, replicas: &dyn Replicas) -> Result<(f64, u64)> {
        let all = gather_numbers(replicas, &self.own)?;
        let mut of_ranks: Vec<_> = all.iter().map(|own| own.chunks(2)).collect();
        let (mut nats, mut tokens) = (0.0, 0);
        for turn in 0..self.n {
            let rank = turn % of_ranks.len();
            let Some([more, predicted]) = of_ranks[rank].next() else {
                let problem = format!("disagree: rank {rank} has read another text");
                return Err(TrainerError::Replicas { problem });
            };
            nats += more;
            tokens += *predicted as u64;
        }
        Ok((nats, tokens))
    }
}

impl LeftToRightPerplexity {
    /// Takes the turns of a text, and counts its bytes and words.
    fn score<R: BufRead>(&self, pieces: &mut Pieces<'_, R>, turns: &mut Turns) -> Result<TextScore> {
        let mut score = TextScore::default();
        // The tokens from the next window's first one on, and how many of them have been predicted or cannot be.
        let mut ids: Vec<i32> = Vec::new();
        let mut done = 1;
        // The piece that the tokenizer begins texts with.
        ids.extend(self.tokenizer.encode("", true)?.ids.first().map(|id| *id as i32));
        let mut batch = Windows::default();
        loop {
            let piece = pieces.next()?;
            let is_last = piece.is_none();
            if let Some(piece) = &piece {
                score.bytes += piece.len() as u64;
                score.words += pieces.words(piece);
                let new = self.tokenizer.encode_ids(piece, false)?;
                ids.extend(new.iter().map(|id| *id as i32));
            }
            let mut start = 0;
            while ids.len() - start > self.window || is_last && ids.len() - start > done {
                let end = ids.len().min(start + self.window);
                batch.push(&ids[start..end], done);
                if end == ids.len() {
                    break;
                }
                start += self.stride;
                // The first token of a window that begins where the last one ended is predicted by none.
                done = (end - start).max(1);
                if batch.n_tokens() >= BATCH_TOKENS {
                    let batch = std::mem::take(&mut batch);
                    turns.take(|| Ok(self.predict(&batch)))?;
                }
            }
            ids.drain(..start);
            if is_last {
                break;
            }
        }
        turns.take(|| Ok(self.predict(&batch)))?;
        Ok(score)
    }

    /// The sum of `−log P` over the windows' new tokens, and their number.
    fn predict(&self, windows: &Windows) -> (f64, u64) {
        let losses = windows.losses(&self.model, &self.device);
        (losses.iter().sum(), losses.len() as u64)
    }
}

fn masked_score<R: BufRead>(
    model: &FillMask,
    pieces: &mut Pieces<'_, R>,
    turns: &mut Turns,
) -> Result<TextScore> {
    let mut score = TextScore::default();
    while let Some(piece) = pieces.next()? {
        score.bytes += piece.len() as u64;
        score.words += pieces.words(&piece);
        for line in piece.lines().filter(|line| !line.trim().is_empty()) {
            turns.take(|| pseudo_losses(model, line))?;
        }
    }
    Ok(score)
}

/// The sum of `−log P` over the tokens of a line, each given all others, and the number of tokens. A line longer than the
/// model's maximum is split.
fn pseudo_losses(model: &FillMask, line: &str) -> Result<(f64, u64)> {
    let parts = model.blank_parts(line)?;
    let log_probs = model.blank_log_probs(&parts, BATCH_TOKENS, &mut |_| ())?;
    let tokens: usize = log_probs.iter().map(Vec::len).sum();
    Ok((-log_probs.iter().flatten().sum::<f64>(), tokens as u64))
}

/// A text in pieces that end at line ends, or else at white space.
struct Pieces<'a, R> {
    text: R,
    path: &'a Path,
    /// Text that was read but not yet returned.
    rest: Vec<u8>,
    first: bool,
    /// Whether the last piece ends within a word.
    in_word: bool,
    done: bool,
}

impl<R: BufRead> Pieces<'_, R> {
    fn error(&self, reason: String) -> TrainerError {
        TrainerError::Text { path: self.path.into(), reason }
    }

    /// The number of words that begin in a piece, which must be the last one returned.
    fn words(&mut self, piece: &str) -> u64 {
        let goes_on = self.in_word && !piece.starts_with(char::is_whitespace);
        self.in_word = !piece.ends_with(char::is_whitespace);
        piece.split_whitespace().count() as u64 - u64::from(goes_on)
    }

    fn next(&mut self) -> Result<Option<String>> {
        while !self.done {
            let wanted = PIECE.saturating_sub(self.rest.len()) as u64;
            let read = loop {
                match self.text.by_ref().take(wanted).read_to_end(&mut self.rest) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => (),
                    read => break read.map_err(TrainerError::io("read", self.path))?,
                }
            };
            self.done = (read as u64) < wanted;
            let end = if self.done { self.rest.len() } else { cut(&self.rest) };
            let behind = self.rest.split_off(end);
            let mut piece = std::mem::replace(&mut self.rest, behind);
            if std::mem::take(&mut self.first) && piece.starts_with("\u{feff}".as_bytes()) {
                piece.drain(..3);
            }
            if piece.is_empty() {
                continue;
            }
            return match String::from_utf8(piece) {
                Ok(piece) => Ok(Some(piece)),
                Err(error) => {
                    let reason = not_utf8(error.as_bytes(), error.utf8_error(), false);
                    Err(self.error(reason))
                }
            };
        }
        Ok(None)
    }
}

/// The end of a piece: after the last line end with text on both sides, so that the pieces' tokens are those of
/// the whole text even for tokenizers that merge white space; else before the last white space; else, within a
/// long word, before the last character.
fn cut(bytes: &[u8]) -> usize {
    let is_text = |byte: &u8| !byte.is_ascii_whitespace();
    let line = (2..bytes.len())
        .rev()
        .find(|end| bytes[end - 1] == b'\n' && is_text(&bytes[end - 2]) && is_text(&bytes[*end]));
    let word = || (1..bytes.len()).rev().find(|end| !is_text(&bytes[*end]) && is_text(&bytes[end - 1]));
    let begins = |byte: u8| byte & 0xC0 != 0x80;
    // What is no text at all is told when it is read as text.
    line.or_else(word)
        .unwrap_or_else(|| (1..bytes.len()).rev().find(|end| begins(bytes[*end])).unwrap_or(bytes.len()))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use cloze_model::Sequences;
    use cloze_model::bert::{BertConfig, MlmHead};
    use cloze_model::huggingface::{Architecture, FloatType, SaveConfig, save_pretrained, save_published};
    use cloze_model::tasks::BertForMaskedLm;
    use cloze_tokenizer::train::WordPieceTrainer;
    use std::io::Cursor;

    const TEXT: &str = "To be, or not to be, that is the question:\nWhether 'tis nobler in the mind to suffer\n\nThe \
                        slings and arrows of outrageous fortune,\nOr to take arms against a sea of troubles";

    fn left_to_right(stride: usize) -> Perplexity {
        let device = Device::flex();
        let tokenizer = Tokenizer::characters(TEXT.chars(), ["<unk>"], Some("<unk>")).unwrap();
        let mut config = GptConfig::llama(tokenizer.vocab_size(), 1, 16);
        config.max_positions = 12;
        let model = config.init(&mut ParamInit::new(&device, 1).with_std(0.5));
        let folder = tempfile::tempdir().unwrap();
        save_published(folder.path(), &model, &config, FloatType::F32).unwrap();
        tokenizer.save(folder.path()).unwrap();
        Perplexity::load(folder.path(), Some(stride), &device).unwrap()
    }

    /// A masked language model of a few words.
    pub(crate) fn masked(device: &Device) -> tempfile::TempDir {
        let words = "the old sea and the old boats ".repeat(9);
        let tokenizer = WordPieceTrainer { vocab_size: 60, ..Default::default() }.train([words]).unwrap();
        let mut config = BertConfig::new(tokenizer.vocab_size(), 1, 16);
        (config.n_heads, config.max_positions) = (2, 16);
        let init = &mut ParamInit::new(device, 1).with_std(0.5);
        let model = BertForMaskedLm { bert: config.init_encoder(init), mlm: MlmHead::new(&config, init) };
        let folder = tempfile::tempdir().unwrap();
        save_pretrained(folder.path(), &model, &config, &SaveConfig::new(Architecture::MaskedLm)).unwrap();
        tokenizer.save(folder.path()).unwrap();
        folder
    }

    fn score(model: &Perplexity, text: &str) -> TextScore {
        model.score(Cursor::new(text), Path::new("text.txt")).unwrap()
    }

    /// As in transformers' documentation: window after window, one at a time.
    fn expected(model: &Perplexity, text: &str) -> (f64, u64) {
        let Perplexity::LeftToRight(model) = model else { unreachable!() };
        let ids: Vec<i32> =
            model.tokenizer.encode(text, false).unwrap().ids.iter().map(|id| *id as i32).collect();
        let (mut sum, mut n, mut before) = (0.0, 0, 1);
        for begin in (0..ids.len()).step_by(model.stride) {
            let end = ids.len().min(begin + model.window);
            let window = &ids[begin..end];
            if window.len() < 2 {
                break;
            }
            let sequences: Sequences = [&window[..window.len() - 1]].into_iter().collect();
            let losses = model.model.losses(&sequences, &window[1..], &model.device).into_data();
            let new = end - before.max(begin + 1);
            sum += losses.iter::<f64>().skip(window.len() - 1 - new).sum::<f64>();
            n += new as u64;
            before = end;
            if end == ids.len() {
                break;
            }
        }
        (sum, n)
    }

    #[test]
    fn windows_are_those_of_transformers() {
        for stride in [1, 5, 6, 11, 12] {
            let model = left_to_right(stride);
            for len in [2, 3, 11, 12, 13, 17, 18, 23, 24, 25, 26, TEXT.len()] {
                let (nats, tokens) = expected(&model, &TEXT[..len]);
                let found = score(&model, &TEXT[..len]);
                assert_eq!(found.tokens, tokens, "stride {stride}, {len} tokens");
                assert!(stride == 12 || tokens == len as u64 - 1);
                assert!((found.nats - nats).abs() < 1e-3, "stride {stride}: {} is not {nats}", found.nats);
            }
            let found = score(&model, TEXT);
            let words = TEXT.split_whitespace().count() as u64;
            assert_eq!((found.bytes, found.words), (TEXT.len() as u64, words));
            assert!((found.bits_per_byte() - found.nats / 2f64.ln() / TEXT.len() as f64).abs() < 1e-9);
        }
    }

    #[test]
    fn a_long_text_is_read_in_pieces() {
        let model = left_to_right(12);
        let text = format!("{TEXT}\n").repeat(2 * PIECE / TEXT.len() + 3);
        let pieces = |text: &str| {
            let path = Path::new("text.txt");
            let mut pieces = Pieces {
                text: Cursor::new(text.to_owned()),
                path,
                rest: Vec::new(),
                first: true,
                in_word: false,
                done: false,
            };
            let mut all = Vec::new();
            while let Some(piece) = pieces.next().unwrap() {
                all.push(piece);
            }
            all
        };
        let found = pieces(&text);
        assert!(found.len() > 2 && found.concat() == text);
        assert!(found[..found.len() - 1].iter().all(|piece| piece.ends_with('\n') && piece.len() <= PIECE));
        // Of words and of one word.
        let words = "word ".repeat(PIECE / 2);
        assert!(pieces(&words).iter().skip(1).all(|piece| piece.starts_with(' ')));
        let word = "é".repeat(2 * PIECE);
        let parts = pieces(&word);
        assert!(parts.len() == 5 && parts.concat() == word && parts.iter().all(|part| part.len() <= PIECE));
        let part = &text[..40_000];
        let (nats, tokens) = expected(&model, part);
        let found = score(&model, part);
        assert_eq!(found.tokens, tokens);
        assert!((found.nats - nats).abs() < 1e-4 * nats);
    }

    #[test]
    fn what_cannot_be_scored_is_named() {
        let model = left_to_right(6);
        let message = |bytes: &[u8]| {
            model.score(Cursor::new(bytes.to_vec()), Path::new("text.txt")).unwrap_err().to_string()
        };
        assert_eq!(message(b""), "text.txt: has no token to predict: it needs at least two tokens");
        assert_eq!(message(b"a"), message(b""));
        assert_eq!(
            message(b"ab\xFFc"),
            "text.txt: not UTF-8 (byte 3 is 0xff); it looks like Windows-1252: save it as UTF-8, or run iconv -f WINDOWS-1252 -t UTF-8"
        );
    }

    #[test]
    fn a_masked_model_predicts_each_token_from_all_others() {
        let device = Device::flex();
        let folder = masked(&device);
        let filler = FillMask::load(folder.path(), &device).unwrap();
        let message = Perplexity::load(folder.path(), Some(3), &device).unwrap_err().to_string();
        assert!(
            message.contains("`stride` is 3; expected none: the model of `--model` is a masked one"),
            "{message}"
        );
        let model = Perplexity::load(folder.path(), None, &device).unwrap();
        let line = "the old sea and the old boats";
        let found = score(&model, &format!("{line}\n\nthe sea\n"));
        let mut sum = 0.0;
        for words in [line, "the sea"].map(|line| line.split(' ').collect::<Vec<_>>()) {
            for at in 0..words.len() {
                let mut masked = words.clone();
                masked[at] = filler.mask_token();
                let candidates = &filler.fill(&masked.join(" "), 1_000).unwrap()[0];
                let right = candidates.iter().find(|candidate| candidate.token == words[at]).unwrap();
                sum -= f64::from(right.probability).ln();
            }
        }
        assert_eq!((found.tokens, found.words), (9, 9));
        assert!((found.nats - sum).abs() < 1e-3, "{} is not {sum}", found.nats);
        // A line that is longer than the model takes is read in parts.
        let long = score(&model, &line.repeat(30));
        assert!(long.tokens > 150 && long.nats.is_finite());
    }
}
