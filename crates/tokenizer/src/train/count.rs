//! Counting the words of a text in parallel.

use hashbrown::HashMap;
use rayon::prelude::*;

use super::{TrainItem, TrainProgress};
use crate::{
    Error, Normalizer, PreTokenizer, Result,
    normalized::NormalizedText,
    splits::{Split, Splits},
};

/// Text is read in batches of about this many bytes, which are then counted in parallel.
const BATCH: usize = 16 << 20;

/// Overhead per text of a batch in bytes, so that many short texts also fill a batch.
const TEXT_COST: usize = 64;

type Counts = HashMap<Box<str>, u64>;

/// The distinct words of a text with their counts, from a trainer's `count`: all that it learns from. Counts of
/// parts of a text can be made in several processes and [merged](Self::merge).
///
/// ```
/// use cloze_tokenizer::train::{WordCounts, WordPieceTrainer};
///
/// let trainer = WordPieceTrainer { vocab_size: 30, ..Default::default() };
/// let (some, others) = (trainer.count(["low lower"], &mut |_| {})?, trainer.count(["new"], &mut |_| {})?);
/// let sent = WordCounts::from_bytes(&others.to_bytes()).expect("counts");
/// let tokenizer = trainer.train_counted(&some.merge(sent), &mut |_| {})?;
/// assert_eq!(tokenizer.to_json(), trainer.train(["low lower", "new"])?.to_json());
/// # Ok::<_, cloze_tokenizer::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WordCounts(
    /// Sorted by word.
    pub(super) Vec<(Box<str>, u64)>,
);

impl WordCounts {
    /// The number of distinct words.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no word.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The words and their counts, sorted by word.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(word, count)| (&**word, *count))
    }

    /// The counts of two parts of a text together.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        let mut all = self.0;
        all.extend(other.0);
        all.par_sort_by(|(left, _), (right, _)| left.cmp(right));
        all.dedup_by(|(word, count), (kept, sum)| {
            let is_same = word == kept;
            if is_same {
                *sum += *count;
            }
            is_same
        });
        Self(all)
    }

    /// The counts as bytes, to send or to store: of each word its length, its count and its text.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (word, count) in &self.0 {
            bytes.extend((word.len() as u64).to_le_bytes());
            bytes.extend(count.to_le_bytes());
            bytes.extend(word.as_bytes());
        }
        bytes
    }

    /// The counts of [`to_bytes`](Self::to_bytes); none if these are other bytes.
    pub fn from_bytes(mut bytes: &[u8]) -> Option<Self> {
        let mut words = Vec::new();
        while !bytes.is_empty() {
            let (length, rest) = bytes.split_first_chunk()?;
            let (count, rest) = rest.split_first_chunk()?;
            let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
            let (word, rest) = rest.split_at_checked(length)?;
            words.push((std::str::from_utf8(word).ok()?.into(), u64::from_le_bytes(*count)));
            bytes = rest;
        }
        words.is_sorted_by(|(left, _): &(Box<str>, _), (right, _)| left < right).then_some(Self(words))
    }
}

/// Counts the words of a text. Memory grows only with the number of distinct words.
pub(super) fn words<I>(
    items: I,
    normalizer: Option<&Normalizer>,
    pre_tokenizer: Option<&PreTokenizer>,
    progress: &mut dyn FnMut(TrainProgress),
) -> Result<WordCounts>
where
    I: IntoIterator<Item: TrainItem>,
{
    let stages = Stages::new(normalizer, pre_tokenizer);
    let mut total = Counts::new();
    let mut batch = Vec::new();
    let (mut count, mut bytes, mut in_batch) = (0, 0, 0usize);
    let mut items = items.into_iter();
    loop {
        let item = items.next();
        let last = item.is_none();
        if let Some(item) = item {
            let text = item.text().map_err(|source| Error::Corpus { item: count, source })?;
            count += 1;
            in_batch += text.as_ref().len();
            batch.push(text);
        }
        if in_batch + batch.len() * TEXT_COST < BATCH && !last {
            continue;
        }
        bytes += in_batch as u64;
        in_batch = 0;
        let part = batch.len().div_ceil(rayon::current_num_threads()).max(1);
        let counts: Vec<_> = batch.par_chunks(part).map(|texts| stages.count(texts)).collect();
        let before = count - batch.len() as u64;
        batch.clear();
        for (chunk, counts) in counts.into_iter().enumerate() {
            let counts = counts.map_err(|(index, error)| Error::Corpus {
                item: before + (chunk * part + index) as u64,
                source: Box::new(error),
            })?;
            for (word, n) in counts {
                *total.entry(word).or_default() += n;
            }
        }
        progress(TrainProgress::Counting { items: count, bytes, words: total.len() });
        if last {
            break;
        }
    }
    let mut words: Vec<_> = total.into_iter().collect();
    words.par_sort_unstable();
    Ok(WordCounts(words))
}

/// The stages that split text into words.
struct Stages<'a> {
    normalizer: Option<&'a Normalizer>,
    pre_tokenizer: Option<&'a PreTokenizer>,
    /// Whether the words on either side of a space between visible ASCII characters are independent.
    /// Most of a text then consists of the same few stretches, which are processed only once.
    local: bool,
}

impl<'a> Stages<'a> {
    fn new(normalizer: Option<&'a Normalizer>, pre_tokenizer: Option<&'a PreTokenizer>) -> Self {
        let local = normalizer.is_none_or(normalizes_locally) && pre_tokenizer.is_some_and(splits_locally);
        Self { normalizer, pre_tokenizer, local }
    }

    /// The words of `texts`, or the index of the first that fails.
    fn count<T: AsRef<str>>(&self, texts: &[T]) -> Result<Counts, (usize, Error)> {
        self.try_count(texts).map_err(|error| {
            let fails = |text: &T| self.words(text.as_ref(), |_| ()).is_err();
            (texts.iter().position(fails).unwrap_or_default(), error)
        })
    }

    fn try_count<T: AsRef<str>>(&self, texts: &[T]) -> Result<Counts> {
        let mut stretches: HashMap<&str, u64> = HashMap::new();
        for text in texts {
            if self.local {
                cut(text.as_ref(), |stretch| *stretches.entry(stretch).or_default() += 1);
            } else {
                *stretches.entry(text.as_ref()).or_default() += 1;
            }
        }
        let mut counts = Counts::new();
        for (stretch, n) in stretches {
            self.words(stretch, |word| match counts.get_mut(word) {
                Some(count) => *count += n,
                None => _ = counts.insert(word.into(), n),
            })?;
        }
        Ok(counts)
    }

    fn words(&self, text: &str, mut each: impl FnMut(&str)) -> Result<()> {
        let mut normalized = NormalizedText::new(text, 0, false);
        if let Some(normalizer) = self.normalizer {
            normalizer.apply(&mut normalized)?;
        }
        let whole = Split { range: 0..normalized.text().len(), added: None };
        let mut splits = Splits::new(false);
        splits.push(normalized, [whole]);
        if let Some(pre_tokenizer) = self.pre_tokenizer {
            pre_tokenizer.apply(&mut splits)?;
        }
        splits.splits.iter().for_each(|split| each(&splits.text[split.range.clone()]));
        Ok(())
    }
}

fn normalizes_locally(normalizer: &Normalizer) -> bool {
    use Normalizer::*;
    match normalizer {
        Sequence { normalizers } => normalizers.iter().all(normalizes_locally),
        other => matches!(other, BertNormalizer(_) | NFC | NFD | NFKC | NFKD | Lowercase | StripAccents),
    }
}

fn splits_locally(pre_tokenizer: &PreTokenizer) -> bool {
    use PreTokenizer::*;
    match pre_tokenizer {
        Sequence { pretokenizers } => !pretokenizers.is_empty() && pretokenizers.iter().all(splits_locally),
        ByteLevel(byte_level) => byte_level.use_regex,
        other => matches!(other, BertPreTokenizer | Whitespace | WhitespaceSplit),
    }
}

/// Cuts before every space between visible ASCII characters.
fn cut<'a>(text: &'a str, mut stretch: impl FnMut(&'a str)) {
    let mut start = 0;
    for (at, around) in text.as_bytes().windows(3).enumerate() {
        if around[1] == b' ' && around[0].is_ascii_graphic() && around[2].is_ascii_graphic() {
            stretch(&text[start..=at]);
            start = at + 1;
        }
    }
    stretch(&text[start..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BertNormalizer, ByteLevel};

    #[test]
    fn counts_and_errors() {
        let pre = PreTokenizer::WhitespaceSplit;
        let count = |items: Vec<Result<&str, String>>| words(items, None, Some(&pre), &mut |_| {});
        let counts = count(vec![Ok("b a b"), Ok(""), Ok("b")]).unwrap();
        assert_eq!(counts.iter().collect::<Vec<_>>(), [("a", 1), ("b", 3)]);
        let error = count(vec![Ok("a"), Err("torn page".into())]).unwrap_err();
        assert_eq!(error.to_string(), "reading the training text, item 1");
    }

    #[test]
    fn counts_of_parts_are_those_of_the_whole() {
        let pre = PreTokenizer::WhitespaceSplit;
        let count = |items: &[&str]| words(items.to_vec(), None, Some(&pre), &mut |_| {}).unwrap();
        let whole = count(&["b a é b", "c b a"]);
        assert_eq!(count(&["b a é b"]).merge(count(&["c b a"])), whole);
        assert_eq!(count(&[]).merge(whole.clone()), whole);
        let bytes = whole.to_bytes();
        assert_eq!(WordCounts::from_bytes(&bytes), Some(whole));
        assert_eq!(WordCounts::from_bytes(&[]), Some(WordCounts::default()));
        assert_eq!(WordCounts::from_bytes(&bytes[..bytes.len() - 1]), None);
        assert_eq!(WordCounts::from_bytes(&[bytes.clone(), bytes].concat()), None);
    }

    /// Stretch by stretch gives the same words as the whole text.
    #[test]
    fn stretches_have_the_words_of_the_whole() {
        let texts = [
            "They're  here: a b , c.  It's \u{301} o \u{301}x e\u{301} \u{3099}か 's ' s 're",
            " lead and trail \t tab\n\n  new line \u{a0} x \u{2028}y z\u{200d} \u{0} q ﬁ ﷺ ¨ a\u{345} b",
            "中文 字 word \u{1f468}\u{200d}\u{1f469} x12 34 ½ İstanbul ΑΣ ς",
            "",
            " ",
        ];
        let bert = Normalizer::BertNormalizer(BertNormalizer::uncased());
        let strip = vec![Normalizer::NFKD, Normalizer::StripAccents, Normalizer::Lowercase];
        let normalizers = [
            None,
            Some(bert),
            Some(Normalizer::NFC),
            Some(Normalizer::NFKC),
            Some(Normalizer::Sequence { normalizers: strip }),
        ];
        let pre_tokenizers = [
            PreTokenizer::BertPreTokenizer,
            PreTokenizer::Whitespace,
            PreTokenizer::WhitespaceSplit,
            PreTokenizer::ByteLevel(ByteLevel::gpt2()),
            PreTokenizer::ByteLevel(ByteLevel::default()),
        ];
        for normalizer in &normalizers {
            for pre_tokenizer in &pre_tokenizers {
                let local = Stages::new(normalizer.as_ref(), Some(pre_tokenizer));
                assert!(local.local);
                let whole = Stages { local: false, ..local };
                assert_eq!(
                    local.count(&texts).unwrap(),
                    whole.count(&texts).unwrap(),
                    "{normalizer:?} {pre_tokenizer:?}"
                );
            }
        }
        assert!(!Stages::new(None, None).local);
    }
}
