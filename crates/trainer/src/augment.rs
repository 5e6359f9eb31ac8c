//! More training texts by a masked language model: words are replaced by others that it expects in their places (Jiao et al. 2020,
//! "TinyBERT", algorithm 1).

use crate::Result;
use crate::fill_mask::{FillMask, FillRequest, Filled};
use crate::requests::Respond;
use cloze_data::Random;

/// How texts are varied. The defaults are the paper's, which makes 20 copies for a small data set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AugmentConfig {
    /// Copies of a text.
    pub copies: usize,
    /// The probability with which a word of a copy is replaced.
    pub share: f64,
    /// The number of most probable pieces that a replacement is drawn from.
    pub candidates: usize,
    /// The seed of all draws. What is drawn for a text depends on the seed and the text's number alone.
    pub seed: u64,
}

impl Default for AugmentConfig {
    fn default() -> Self {
        Self { copies: 20, share: 0.4, candidates: 15, seed: 42 }
    }
}

/// Tokens that are computed at once, about.
const BATCH_TOKENS: usize = 8_192;

/// A word of a text and what may stand in its place.
struct Word {
    /// Its bytes in the text.
    span: (usize, usize),
    replacements: Vec<String>,
}

/// Varied copies of a text, without the text itself and without copies that are equal: fewer than asked for, if the text has
/// few words. Each word of letters is masked by itself, as one piece; its replacements are the most probable pieces that are
/// words of letters too. Words of several pieces are treated alike, where the paper takes the nearest GloVe vectors.
///
/// `number` is the text's number among all texts.
///
/// # Errors
/// A text that the tokenizer rejects or that is longer than the model's maximum; a model whose output is not finite.
pub fn augment(model: &FillMask, text: &str, number: u64, config: &AugmentConfig) -> Result<Vec<String>> {
    let words = words(model, text, config.candidates)?;
    let mut random = Random::derive(config.seed, &[number]);
    let mut copies: Vec<String> = Vec::new();
    for _ in 0..config.copies {
        let mut copy = String::with_capacity(text.len());
        let mut from = 0;
        for Word { span: (start, end), replacements } in &words {
            if random.unit() < config.share && !replacements.is_empty() {
                copy += &text[from..*start];
                copy += &replacements[random.below(replacements.len() as u64) as usize];
                from = *end;
            }
        }
        copy += &text[from..];
        if copy != text && !copies.contains(&copy) {
            copies.push(copy);
        }
    }
    Ok(copies)
}

/// The words of letters in a text, in order.
fn words(model: &FillMask, text: &str, candidates: usize) -> Result<Vec<Word>> {
    let spans = model
        .word_spans(text)?
        .into_iter()
        .filter(|(start, end)| text[*start..*end].chars().all(char::is_alphabetic));
    let spans: Vec<(usize, usize)> = spans.collect();
    let mask = model.mask_token();
    let units = spans.iter().map(|(start, end)| {
        let text = format!("{}{mask}{}", &text[..*start], &text[*end..]);
        // The word itself and parts of words are among the best pieces, and are not taken.
        model.encode(FillRequest::of(text, 3 * candidates))
    });
    let units = units.collect::<Result<Vec<_>>>()?;
    let units: Vec<_> = units.iter().collect();
    let at_once = units.first().map_or(1, |unit| (BATCH_TOKENS / model.cost(unit)).max(1));
    let answers = units.chunks(at_once).flat_map(|units| model.answer(units));
    let word = |(span, answer): ((usize, usize), Result<Filled>)| {
        let own = text[span.0..span.1].to_lowercase();
        // A text may have masks of its own.
        let place = text[..span.0].matches(mask).count();
        let found = answer?.masks.into_iter().nth(place).unwrap_or_default();
        let replacements = found.iter().filter_map(|candidate| model.whole_word(candidate.id));
        let replacements = replacements.filter(|word| word.to_lowercase() != own).take(candidates).collect();
        Ok(Word { span, replacements })
    };
    spans.iter().copied().zip(answers).map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perplexity::tests::masked;
    use burn::tensor::Device;

    #[test]
    fn copies_have_other_words_where_the_draw_says_so() {
        let device = Device::flex();
        let folder = masked(&device);
        let model = FillMask::load(folder.path(), &device).unwrap();
        let config = AugmentConfig { copies: 8, share: 0.5, candidates: 3, seed: 1 };
        let text = "the old sea and the old boats";
        let copies = augment(&model, text, 0, &config).unwrap();
        assert!(!copies.is_empty() && copies.len() <= 8);
        for copy in &copies {
            assert_ne!(copy, text);
            assert_eq!(copy.split(' ').count(), 7, "{copy}");
        }
        let (same, other) =
            (augment(&model, text, 0, &config).unwrap(), augment(&model, text, 1, &config).unwrap());
        assert_eq!(copies, same);
        assert_ne!(copies, other);
        let of = |share| augment(&model, text, 0, &AugmentConfig { share, ..config }).unwrap();
        assert!(of(0.0).is_empty());
        // With all words replaced, none is what it was, and the replacements are the model's three most probable other words.
        let mask = format!("{} old sea and the old boats", model.mask_token());
        let best = model.fill(&mask, 100).unwrap().remove(0);
        let best: Vec<String> = best
            .iter()
            .filter_map(|one| model.whole_word(one.id))
            .filter(|word| word != "the")
            .take(3)
            .collect();
        for copy in of(1.0) {
            assert!(copy.split(' ').zip(text.split(' ')).all(|(a, b)| a != b), "{copy}");
            assert!(best.iter().any(|word| copy.split(' ').next() == Some(word)), "{copy}: {best:?}");
        }
        assert!(augment(&model, "", 0, &config).unwrap().is_empty());
        assert!(augment(&model, "12 + 3", 0, &config).unwrap().is_empty());
    }
}
