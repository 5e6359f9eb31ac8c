//! What a tokenizer makes of texts, in counts.

use std::ops::Range;

use crate::{Result, Tokenizer};

/// Counts of the pieces that a tokenizer makes of texts. They take as much memory as the vocabulary, whatever the
/// length of the texts.
///
/// Special tokens around a text are not counted, and truncation is not applied. The words are the caller's, so that
/// different tokenizers are compared by the same words; [`split_words`](crate::split_words) finds them.
///
/// ```
/// # use cloze_tokenizer::{PieceCounts, Tokenizer, Vocab, split_words};
/// let tokenizer = Tokenizer::bert(Vocab::from_tokens(["[UNK]", "old", "sail", "##or", "sea"])?, true)?;
/// let mut counts = PieceCounts::new(&tokenizer);
/// let text = "Old sailor? Sea!";
/// assert_eq!(counts.add(&tokenizer, text, &split_words(text))?, 6);
/// assert_eq!((counts.words(), counts.whole_words(), counts.unknown()), (5, 2, 2));
/// assert_eq!((counts.bytes(), counts.used()), (16, 5));
/// # Ok::<_, cloze_tokenizer::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PieceCounts {
    unknown_id: Option<u32>,
    /// How often each id occurs.
    ids: Vec<u64>,
    words: u64,
    whole_words: u64,
    bytes: u64,
}

impl PieceCounts {
    /// Counts of nothing yet, for the pieces of `tokenizer`.
    pub fn new(tokenizer: &Tokenizer) -> Self {
        let vocab = tokenizer.model().vocab().iter().map(|(id, _)| id);
        let ids = vocab.chain(tokenizer.added_tokens().map(|(id, _)| id)).max();
        let unknown = tokenizer.model().unk_token();
        Self {
            unknown_id: unknown.and_then(|token| tokenizer.token_to_id(token)),
            ids: vec![0; ids.map_or(0, |id| id as usize + 1)],
            words: 0,
            whole_words: 0,
            bytes: 0,
        }
    }

    /// Counts the pieces of a text whose words are these ranges of bytes, in order and apart. Returns the number of
    /// pieces.
    ///
    /// # Errors
    /// Those of [`Tokenizer::encode`]; nothing is counted then.
    ///
    /// # Panics
    /// If `tokenizer` has ids that the one of [`new`](Self::new) does not have.
    pub fn add(&mut self, tokenizer: &Tokenizer, text: &str, words: &[Range<usize>]) -> Result<u64> {
        let mut pieces = 0;
        let mut current = CurrentWord { words, ..CurrentWord::default() };
        let (ids, unknown_id) = (&mut self.ids, self.unknown_id);
        let splits = tokenizer.split(text, true)?;
        tokenizer.for_each_piece(&splits, None, |_, id, part| {
            pieces += 1;
            ids[id as usize] += 1;
            current.piece(splits.original(part), Some(id) == unknown_id);
        });
        self.words += words.len() as u64;
        self.whole_words += current.whole_words();
        self.bytes += text.len() as u64;
        Ok(pieces)
    }

    /// Adds the counts of other texts by the same tokenizer.
    ///
    /// # Panics
    /// If the other counts are those of another vocabulary.
    pub fn merge(&mut self, other: &Self) {
        assert_eq!(self.ids.len(), other.ids.len(), "counts of another vocabulary");
        self.ids.iter_mut().zip(&other.ids).for_each(|(count, more)| *count += more);
        self.words += other.words;
        self.whole_words += other.whole_words;
        self.bytes += other.bytes;
    }

    /// All pieces.
    pub fn pieces(&self) -> u64 {
        self.ids.iter().sum()
    }

    /// Pieces that stand for text which the vocabulary cannot spell.
    pub fn unknown(&self) -> u64 {
        self.unknown_id.map_or(0, |id| self.ids[id as usize])
    }

    /// The number of different pieces.
    pub fn used(&self) -> usize {
        self.ids.iter().filter(|count| **count > 0).count()
    }

    /// How often each id occurs, by id.
    pub fn by_id(&self) -> &[u64] {
        &self.ids
    }

    /// Words of the texts.
    pub fn words(&self) -> u64 {
        self.words
    }

    /// Words that are one piece, and not the unknown one. A piece that holds several words keeps each of them whole.
    pub fn whole_words(&self) -> u64 {
        self.whole_words
    }

    /// Bytes of the texts.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Pieces per word, the fertility of Ács (2019) and Rust et al. (2021). Pieces of white space count too. NaN without
    /// a word.
    pub fn pieces_per_word(&self) -> f64 {
        self.pieces() as f64 / self.words as f64
    }

    /// The share of words that are [whole](Self::whole_words); NaN without a word.
    pub fn whole_share(&self) -> f64 {
        self.whole_words as f64 / self.words as f64
    }

    /// Bytes of text per piece; NaN without a piece.
    pub fn bytes_per_piece(&self) -> f64 {
        self.bytes as f64 / self.pieces() as f64
    }

    /// The share of pieces that are the unknown one; NaN without a piece.
    pub fn unknown_share(&self) -> f64 {
        self.unknown() as f64 / self.pieces() as f64
    }
}

/// Counts the pieces that overlap each word, as both come in order.
#[derive(Default)]
struct CurrentWord<'a> {
    /// The current word and those after it.
    words: &'a [Range<usize>],
    /// Pieces that overlap the current word.
    count: u32,
    /// Whether one of them is the unknown piece.
    is_unknown: bool,
    whole: u64,
}

impl CurrentWord<'_> {
    #[inline]
    fn piece(&mut self, (start, end): (usize, usize), is_unknown: bool) {
        while self.words.first().is_some_and(|word| word.end <= start) {
            self.next();
        }
        if self.words.first().is_some_and(|word| word.start < end) {
            self.overlap(is_unknown);
            // A piece of several words.
            while self.words.get(1).is_some_and(|word| word.start < end) {
                self.next();
                self.overlap(is_unknown);
            }
        }
    }

    #[inline]
    fn overlap(&mut self, is_unknown: bool) {
        self.count += 1;
        self.is_unknown |= is_unknown;
    }

    #[inline]
    fn next(&mut self) {
        self.whole += u64::from(self.count == 1 && !self.is_unknown);
        (self.count, self.is_unknown) = (0, false);
        self.words = &self.words[1..];
    }

    fn whole_words(mut self) -> u64 {
        if !self.words.is_empty() {
            self.next();
        }
        self.whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bpe, BpeConfig, Model, Vocab, split_words, train::WordPieceTrainer};
    use proptest::prelude::*;

    /// The counts by encodings with offsets, word by word.
    fn slow(tokenizer: &Tokenizer, text: &str) -> (u64, u64, u64) {
        let encoding = tokenizer.encode(text, false).unwrap();
        let unknown = tokenizer.model().unk_token().and_then(|token| tokenizer.token_to_id(token));
        let is_whole = |word: &Range<usize>| {
            let overlapping = |i: &usize| {
                let (start, end) = encoding.offsets[*i];
                start < word.end && word.start < end
            };
            let found: Vec<usize> = (0..encoding.len()).filter(overlapping).collect();
            found.len() == 1 && Some(encoding.ids[found[0]]) != unknown
        };
        let whole = split_words(text).iter().filter(|word| is_whole(word)).count();
        let unknown = encoding.ids.iter().filter(|id| Some(**id) == unknown).count();
        (encoding.len() as u64, whole as u64, unknown as u64)
    }

    fn check(tokenizer: &Tokenizer, text: &str) {
        let mut counts = PieceCounts::new(tokenizer);
        let pieces = counts.add(tokenizer, text, &split_words(text)).unwrap();
        assert_eq!(pieces, counts.pieces());
        assert_eq!((pieces, counts.whole_words(), counts.unknown()), slow(tokenizer, text), "{text:?}");
    }

    #[test]
    fn a_piece_of_several_words_keeps_them_whole() {
        // Without a pre-tokenizer, pieces go beyond words.
        let vocab = Vocab::from_tokens(["a", " ", "b", "a ", "a b"]).unwrap();
        let merges = [("a", " "), ("a ", "b")];
        let tokenizer = Tokenizer::new(Model::Bpe(Bpe::new(vocab, merges, BpeConfig::default()).unwrap()));
        let mut counts = PieceCounts::new(&tokenizer);
        counts.add(&tokenizer, "a b ba", &split_words("a b ba")).unwrap();
        assert_eq!((counts.pieces(), counts.words(), counts.whole_words()), (4, 3, 2));
        check(&tokenizer, "a b ba");
    }

    #[test]
    fn counts_of_parts_add_up() {
        let lines = ["The old sailor sails the old sea.", "Sailing boats sail; old boats sink."];
        let tokenizer = WordPieceTrainer { vocab_size: 60, ..Default::default() }.train(lines).unwrap();
        let count = |lines: &[&str]| {
            let mut counts = PieceCounts::new(&tokenizer);
            for line in lines {
                counts.add(&tokenizer, line, &split_words(line)).unwrap();
            }
            counts
        };
        let mut parts = count(&lines[..1]);
        parts.merge(&count(&lines[1..]));
        assert_eq!(parts, count(&lines));
        assert_eq!(parts.by_id().iter().sum::<u64>(), parts.pieces());
    }

    proptest! {
        #[test]
        fn counts_are_those_of_encodings(text in "([a-eé日🎉' .,!\u{301}]|old|sea|[A-E]){0,30}") {
            let lines = ["abc abd cab éa", "old sea seas olden", "日 a日"];
            let pieces = WordPieceTrainer { vocab_size: 50, ..Default::default() }.train(lines).unwrap();
            check(&pieces, &text);
            let bytes: Vec<String> = (0..=255).map(|byte| crate::pre_tokenizers::byte_to_char(byte).to_string()).collect();
            let more = ["ol", "old", "Ġold", "se", "sea"].map(String::from);
            let vocab = Vocab::from_tokens(bytes.into_iter().chain(more)).unwrap();
            let merges = [("o", "l"), ("ol", "d"), ("Ġ", "old"), ("s", "e"), ("se", "a")];
            let bpe = Bpe::new(vocab, merges, BpeConfig::default()).unwrap();
            check(&Tokenizer::byte_level_bpe(bpe).unwrap(), &text);
        }
    }
}
