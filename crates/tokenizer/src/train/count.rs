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
const BATCH: usize = 8 << 20;

type Counts = HashMap<Box<str>, u64>;

/// The distinct words of a text and how often each comes, sorted by word. Memory grows with the distinct
/// words only.
pub(super) fn words<I>(
    items: I,
    normalizer: Option<&Normalizer>,
    pre_tokenizer: Option<&PreTokenizer>,
    progress: &mut dyn FnMut(TrainProgress),
) -> Result<Vec<(Box<str>, u64)>>
where
    I: IntoIterator<Item: TrainItem>,
{
    let mut total = Counts::new();
    let mut batch = Vec::new();
    let (mut count, mut bytes, mut in_batch) = (0, 0, 0);
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
        if in_batch < BATCH && !last {
            continue;
        }
        bytes += in_batch as u64;
        in_batch = 0;
        let counts = batch
            .par_chunks(256)
            .fold(Counts::new, |mut counts, texts| {
                for text in texts {
                    count_text(text.as_ref(), normalizer, pre_tokenizer, &mut counts);
                }
                counts
            })
            .reduce(Counts::new, |a, b| {
                let (mut large, small) = if a.len() < b.len() { (b, a) } else { (a, b) };
                for (word, n) in small {
                    *large.entry(word).or_default() += n;
                }
                large
            });
        batch.clear();
        for (word, n) in counts {
            *total.entry(word).or_default() += n;
        }
        progress(TrainProgress::Counting { items: count, bytes, words: total.len() });
        if last {
            break;
        }
    }
    let mut words: Vec<_> = total.into_iter().collect();
    words.par_sort_unstable();
    Ok(words)
}

fn count_text(
    text: &str,
    normalizer: Option<&Normalizer>,
    pre_tokenizer: Option<&PreTokenizer>,
    counts: &mut Counts,
) {
    let mut normalized = NormalizedText::new(text, 0, false);
    if let Some(normalizer) = normalizer {
        normalizer.apply(&mut normalized);
    }
    let whole = Split { range: 0..normalized.text().len(), added: None };
    let mut splits = Splits::new(false);
    splits.push(normalized, [whole]);
    if let Some(pre_tokenizer) = pre_tokenizer {
        pre_tokenizer.apply(&mut splits);
    }
    for split in &splits.splits {
        let word = &splits.text[split.range.clone()];
        match counts.get_mut(word) {
            Some(count) => *count += 1,
            None => {
                counts.insert(word.into(), 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_errors() {
        let pre = PreTokenizer::WhitespaceSplit;
        let count = |items: Vec<Result<&str, String>>| words(items, None, Some(&pre), &mut |_| {});
        let counts = count(vec![Ok("b a b"), Ok(""), Ok("b")]).unwrap();
        assert_eq!(counts, [("a".into(), 1), ("b".into(), 3)]);
        let error = count(vec![Ok("a"), Err("torn page".into())]).unwrap_err();
        assert_eq!(error.to_string(), "reading the training text, item 1");
    }
}
