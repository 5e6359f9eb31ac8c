//! Unigram by expectation-maximisation.

use hashbrown::{HashMap, HashSet};
use rayon::prelude::*;

use super::{TrainItem, TrainProgress, WordCounts, check_size, count, seeds};
use crate::{
    AddedToken, Decoder, Error, Metaspace, Model, Normalizer, PreTokenizer, Result, Tokenizer, Unigram,
    models::{
        lattice::{Lattice, Scratch},
        trie::{NONE, Trie},
    },
};

/// Trains a Unigram model (Kudo 2018, section 3.2), as in SentencePiece and `tokenizers`.
///
/// Expectation-maximisation fits the probabilities of a large vocabulary of frequent substrings; then
/// the pieces whose removal costs the least likelihood are dropped. These steps alternate until the
/// vocabulary is small enough. All characters of the text stay.
///
/// The vocabulary equals that of `tokenizers`, and the log probabilities agree up to rounding.
/// Characters never used alone are ordered by character; in the reference their order is random.
#[derive(Debug, Clone, PartialEq)]
pub struct UnigramTrainer {
    /// Target number of pieces, including special tokens. The result is smaller if the text has
    /// fewer.
    pub vocab_size: usize,
    /// The first ids.
    pub special_tokens: Vec<String>,
    /// Stands for unknown characters; it gets id 0 unless it is a special token.
    pub unk_token: Option<String>,
    /// Characters to include even if the text lacks them.
    pub initial_alphabet: Vec<char>,
    /// The share of pieces kept at each pruning step; more than 0 and less than 1.
    pub shrinking_factor: f64,
    /// Rounds of expectation-maximisation before each pruning step, at least 1.
    pub sub_iterations: usize,
    /// Maximum characters per piece.
    pub max_piece_chars: usize,
    /// Maximum number of seed pieces.
    pub seed_size: usize,
    /// Normalises before everything else.
    pub normalizer: Option<Normalizer>,
    /// Splits the text into words, which pieces never cross.
    pub pre_tokenizer: Option<PreTokenizer>,
    /// The decoder of the resulting tokenizer; not used in training.
    pub decoder: Option<Decoder>,
}

impl Default for UnigramTrainer {
    /// 8,000 pieces, with SentencePiece's special tokens as ids 0 to 2, and its treatment of
    /// spaces.
    fn default() -> Self {
        Self {
            vocab_size: 8000,
            special_tokens: ["<unk>", "<s>", "</s>"].map(String::from).into(),
            unk_token: Some("<unk>".into()),
            initial_alphabet: Vec::new(),
            shrinking_factor: 0.75,
            sub_iterations: 2,
            max_piece_chars: 16,
            seed_size: 1_000_000,
            normalizer: None,
            pre_tokenizer: Some(PreTokenizer::Metaspace(Metaspace::default())),
            decoder: Some(Decoder::Metaspace(Metaspace::default())),
        }
    }
}

/// Pieces with a lower expected count are dropped.
const MIN_EXPECTED: f64 = 0.5;
/// Score difference between characters that are pieces only because they are required.
const REQUIRED_STEP: f64 = 0.0001;
/// Words are processed in this many parts, regardless of the number of threads, so that floating-point sums
/// are reproducible.
const PARTS: usize = 16;

type Words = [(Box<str>, u64)];

/// The vocabulary while it shrinks. Piece 0 stands for unknown characters and has no text.
struct Pieces {
    texts: Vec<String>,
    scores: Vec<f64>,
    trie: Trie,
}

impl Pieces {
    fn new(pieces: impl IntoIterator<Item = (String, f64)>) -> Self {
        let (mut texts, mut scores) = (vec![String::new()], vec![0.0]);
        for (text, score) in pieces {
            texts.push(text);
            scores.push(score);
        }
        let keys = texts.iter().zip(0..).skip(1).map(|(text, id)| (text.as_bytes(), id)).collect();
        let trie = Trie::new(keys);
        Self { texts, scores, trie }
    }

    fn min_score(&self) -> f64 {
        let min = self.scores[1..].iter().copied().fold(f64::INFINITY, f64::min);
        if min.is_finite() { min } else { 0.0 }
    }

    fn lattice(&self) -> Lattice<'_> {
        Lattice::new(&self.trie, &self.scores, 0, self.min_score())
    }

    /// How often each piece is used: in expectation over all segmentations of the words if `all`, else
    /// in the best ones.
    fn usage(&self, words: &Words, all: bool) -> Vec<f64> {
        let lattice = self.lattice();
        let parts = words.par_chunks(words.len().div_ceil(PARTS).max(1)).map(|words| {
            let mut usage = vec![0.0; self.texts.len()];
            let mut scratch = Scratch::default();
            for (word, count) in words {
                let count = *count as f64;
                if all {
                    lattice.expect(word, count, &mut usage, &mut scratch);
                } else {
                    lattice.best(word, NONE, |step| usage[step.id as usize] += count);
                }
            }
            usage
        });
        let parts: Vec<Vec<f64>> = parts.collect();
        let mut sums = vec![0.0; self.texts.len()];
        for part in parts {
            sums.iter_mut().zip(part).for_each(|(sum, n)| *sum += n);
        }
        sums
    }

    /// One round of expectation-maximisation. Using the digamma function instead of the logarithm acts
    /// as a sparse prior (Liang & Klein 2007, "Structured Bayesian Nonparametric Models with
    /// Variational Inference"), as in SentencePiece.
    fn improve(self, words: &Words) -> Self {
        let expected = self.usage(words, true);
        let kept = expected.iter().skip(1).zip(self.texts.into_iter().skip(1));
        let kept: Vec<_> = kept.filter(|(expected, _)| **expected >= MIN_EXPECTED).collect();
        let sum = digamma(kept.iter().map(|(expected, _)| **expected).sum());
        Self::new(kept.into_iter().map(|(&expected, text)| (text, digamma(expected) - sum)))
    }

    /// Drops the pieces whose removal costs the least likelihood, down to `share` of them but not below
    /// `least`.
    fn prune(self, words: &Words, share: f64, least: usize) -> Self {
        let lattice = self.lattice();
        let alternatives: Vec<Alternative> =
            (0..self.texts.len()).into_par_iter().map(|id| self.alternative(lattice, id)).collect();
        let usage = self.usage(words, false);
        let words_count: f64 = words.iter().map(|(_, count)| *count as f64).sum();
        let sum: f64 = usage.iter().sum();
        let mut kept = Vec::new();
        let mut candidates = Vec::new();
        for (id, alternative) in alternatives.iter().enumerate().skip(1) {
            let used = usage[id];
            match alternative {
                Alternative::Worse(steps) if used > 0.0 => {
                    // Where the piece was used, its alternative is, in approximation. The sum should grow by
                    // the pieces of the alternative; SentencePiece and `tokenizers` count all pieces, and
                    // this decides which ones stay.
                    let logsum = (sum + used * (self.texts.len() - 1) as f64).ln();
                    let without: f64 =
                        steps.iter().map(|&step| (usage[step as usize] + used).ln() - logsum).sum();
                    let loss = used / words_count * (used.ln() - sum.ln() - without);
                    candidates.push((loss, id));
                }
                Alternative::None => kept.push(id),
                Alternative::Better if used > 0.0 => kept.push(id),
                _ => {}
            }
        }
        candidates.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        let wanted = least.max((self.texts.len() as f64 * share) as usize);
        let room = (wanted - 1).saturating_sub(kept.len());
        kept.extend(candidates.into_iter().take(room).map(|(_, id)| id));
        let mut texts = self.texts;
        Self::new(kept.into_iter().map(|id| (std::mem::take(&mut texts[id]), self.scores[id])))
    }

    fn alternative(&self, lattice: Lattice, id: usize) -> Alternative {
        let text = &self.texts[id];
        if text.chars().nth(1).is_none() {
            return Alternative::None;
        }
        let mut steps = Vec::new();
        let score = lattice.best(text, id as u32, |step| steps.push(step.id));
        if score > self.scores[id] { Alternative::Better } else { Alternative::Worse(steps) }
    }
}

/// How a piece is segmented without itself.
enum Alternative {
    /// Not at all: it is a single character.
    None,
    /// With a higher probability.
    Better,
    /// With these pieces.
    Worse(Vec<u32>),
}

impl UnigramTrainer {
    /// Trains on lines of text, or on the results of reading them.
    ///
    /// # Errors
    /// An item cannot be read; the size leaves no room for the characters; a setting is out of range.
    ///
    /// ```
    /// use cloze_tokenizer::{Model, train::UnigramTrainer};
    ///
    /// let lines = ["sailing boats sail", "boating sailors sailed", "walking walkers walked"];
    /// let lines = lines.into_iter().chain(["boats boated", "talking talkers talked"]);
    /// let tokenizer = UnigramTrainer { vocab_size: 26, ..Default::default() }.train(lines)?;
    /// assert_eq!(tokenizer.encode("boater", false)?.tokens, ["▁boat", "e", "r"]);
    /// // Subword regularisation: other ways to spell it.
    /// let Model::Unigram(model) = tokenizer.model() else { unreachable!() };
    /// assert_eq!(model.nbest("▁boater", 2).len(), 2);
    /// # Ok::<_, cloze_tokenizer::Error>(())
    /// ```
    pub fn train<I: IntoIterator<Item: TrainItem>>(&self, items: I) -> Result<Tokenizer> {
        self.train_with(items, &mut |_| {})
    }

    /// The same, reporting progress.
    ///
    /// # Errors
    /// As [`train`](Self::train).
    pub fn train_with<I: IntoIterator<Item: TrainItem>>(
        &self,
        items: I,
        progress: &mut dyn FnMut(TrainProgress),
    ) -> Result<Tokenizer> {
        self.train_counted(&self.count(items, progress)?, progress)
    }

    /// Counts the words of a text as [`train_with`](Self::train_with) does.
    ///
    /// # Errors
    /// An item cannot be read; a setting is out of range.
    pub fn count<I: IntoIterator<Item: TrainItem>>(
        &self,
        items: I,
        progress: &mut dyn FnMut(TrainProgress),
    ) -> Result<WordCounts> {
        self.check()?;
        count::words(items, self.normalizer.as_ref(), self.pre_tokenizer.as_ref(), progress)
    }

    /// Trains on counted words.
    ///
    /// # Errors
    /// The size leaves no room for the characters; a setting is out of range.
    pub fn train_counted(
        &self,
        words: &WordCounts,
        progress: &mut dyn FnMut(TrainProgress),
    ) -> Result<Tokenizer> {
        self.check()?;
        let model = self.learn(&words.0, progress)?;
        let mut tokenizer = Tokenizer::new(Model::Unigram(model));
        if let Some(normalizer) = &self.normalizer {
            tokenizer = tokenizer.with_normalizer(normalizer.clone())?;
        }
        if let Some(pre_tokenizer) = &self.pre_tokenizer {
            tokenizer = tokenizer.with_pre_tokenizer(pre_tokenizer.clone());
        }
        if let Some(decoder) = &self.decoder {
            tokenizer = tokenizer.with_decoder(decoder.clone());
        }
        tokenizer.add_tokens(self.special_tokens.iter().map(AddedToken::special))?;
        Ok(tokenizer)
    }

    fn check(&self) -> Result<()> {
        check_size(self.vocab_size, self.special_tokens.len(), 0)?;
        if !(self.shrinking_factor > 0.0 && self.shrinking_factor < 1.0) {
            let message = format!("{} is not between 0 and 1", self.shrinking_factor);
            return Err(Error::invalid("shrinking_factor", message));
        }
        for (at, value) in
            [("sub_iterations", self.sub_iterations), ("max_piece_chars", self.max_piece_chars)]
        {
            if value == 0 {
                return Err(Error::invalid(at, "it is 0; expected 1 or more"));
            }
        }
        Ok(())
    }

    fn learn(&self, words: &Words, progress: &mut dyn FnMut(TrainProgress)) -> Result<Unigram> {
        let mut special = self.special_tokens.clone();
        if let Some(unk) = self.unk_token.as_ref().filter(|unk| !special.contains(unk)) {
            special.insert(0, unk.clone());
        }
        let required = self.required(words, &special);
        if required.len() + special.len() > self.vocab_size {
            let message = format!(
                "{} is too few: the text has {} characters, and there are {} special tokens",
                self.vocab_size,
                required.len(),
                special.len()
            );
            return Err(Error::invalid("vocab_size", message));
        }
        let seeds = seeds::seeds(words, self.max_piece_chars, self.seed_size)?;
        let sum = (seeds.iter().map(|(_, weight)| *weight).sum::<u64>() as f64).ln();
        let mut pieces = Pieces::new(seeds.into_iter().map(|(text, n)| (text, (n as f64).ln() - sum)));
        // A tenth more than is wanted, of which the last step takes the best.
        let wanted = self.vocab_size * 11 / 10;
        loop {
            for _ in 0..self.sub_iterations {
                pieces = pieces.improve(words);
                progress(TrainProgress::Estimating { pieces: pieces.texts.len(), wanted: self.vocab_size });
            }
            let before = pieces.texts.len();
            if before <= wanted {
                break;
            }
            pieces = pieces.prune(words, self.shrinking_factor, wanted);
            if pieces.texts.len() >= before {
                break;
            }
        }
        let room = self.vocab_size - special.len();
        let unk = self.unk_token.as_ref();
        let unk_id = special.iter().position(|token| Some(token) == unk).map(|id| id as u32);
        let pieces = choose(&pieces, &required, &special, room);
        Unigram::new(special.into_iter().map(|token| (token, 0.0)).chain(pieces), unk_id, false)
    }

    /// The characters that must be pieces, sorted.
    fn required(&self, words: &Words, special: &[String]) -> Vec<String> {
        let mut chars: HashSet<char> = words.iter().flat_map(|(word, _)| word.chars()).collect();
        chars.extend(&self.initial_alphabet);
        let chars = chars.into_iter().map(|c| c.to_string());
        let mut chars: Vec<_> = chars.filter(|c| !special.contains(c)).collect();
        chars.sort_unstable();
        chars
    }
}

/// The required characters and the first other pieces, `room` in total, most probable first.
fn choose(pieces: &Pieces, required: &[String], special: &[String], room: usize) -> Vec<(String, f64)> {
    let known = pieces.texts.iter().map(String::as_str).zip(pieces.scores.iter().copied()).skip(1);
    let scores: HashMap<&str, f64> = known.clone().collect();
    let mut unused = pieces.min_score();
    let mut chosen: Vec<(String, f64)> = Vec::with_capacity(room);
    for c in required {
        let score = scores.get(c.as_str()).copied().unwrap_or_else(|| {
            let score = unused;
            unused += REQUIRED_STEP;
            score
        });
        chosen.push((c.clone(), score));
    }
    let taken: HashSet<&str> = required.iter().chain(special).map(String::as_str).collect();
    let others = known.filter(|(text, _)| !taken.contains(text)).take(room - chosen.len());
    chosen.extend(others.map(|(text, score)| (text.to_owned(), score)));
    chosen.sort_by(|a, b| b.1.total_cmp(&a.1));
    chosen
}

/// The digamma function, by its recurrence and its asymptotic series.
fn digamma(mut x: f64) -> f64 {
    let mut shift = 0.0;
    while x < 7.0 {
        shift -= 1.0 / x;
        x += 1.0;
    }
    let x = x - 0.5;
    let x2 = 1.0 / (x * x);
    let x4 = x2 * x2;
    shift + x.ln() + x2 / 24.0 - 7.0 / 960.0 * x4 + 31.0 / 8064.0 * x4 * x2 - 127.0 / 30720.0 * x4 * x4
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: [&str; 3] = ["low lower lowest", "new newer newest", "wide wider widest é"];

    #[test]
    fn known_values_of_digamma() {
        const EULER: f64 = 0.577_215_664_901_532_9;
        assert!((digamma(1.0) + EULER).abs() < 1e-8);
        assert!((digamma(0.5) + EULER + 2.0 * 2f64.ln()).abs() < 1e-8);
        assert!((digamma(100.0) - 4.600_161_852_738_087).abs() < 1e-10);
    }

    #[test]
    fn every_character_is_a_piece() {
        let trainer = UnigramTrainer { vocab_size: 30, initial_alphabet: vec!['q'], ..Default::default() };
        let mut last = None;
        let tokenizer = trainer.train_with(LINES, &mut |p| last = Some(p)).unwrap();
        assert!(matches!(last, Some(TrainProgress::Estimating { wanted: 30, .. })));
        for c in LINES.concat().chars().filter(|c| *c != ' ').chain(['q']) {
            assert!(tokenizer.token_to_id(&c.to_string()).is_some(), "{c}");
        }
        let ids = ["<unk>", "<s>", "</s>"].map(|t| tokenizer.token_to_id(t));
        assert_eq!(ids, [Some(0), Some(1), Some(2)]);
        assert_eq!(tokenizer.encode("é 中", false).unwrap().ids.last(), Some(&0));
        let again = Tokenizer::from_json(&tokenizer.to_json()).unwrap();
        assert_eq!(again.to_json(), tokenizer.to_json());
        assert_eq!(
            again.encode("newest <s>", false).unwrap(),
            tokenizer.encode("newest <s>", false).unwrap()
        );
    }

    #[test]
    fn the_unknown_token_comes_first() {
        let trainer = UnigramTrainer { special_tokens: vec!["[S]".into()], ..Default::default() };
        let tokenizer = trainer.train(LINES).unwrap();
        assert_eq!(tokenizer.token_to_id("<unk>"), Some(0));
        assert_eq!(tokenizer.token_to_id("[S]"), Some(1));
        let none = UnigramTrainer { unk_token: None, special_tokens: Vec::new(), ..Default::default() };
        let tokenizer = none.train(["[S] ab"]).unwrap();
        assert_eq!(tokenizer.model().unk_token(), None);
        // A learnt piece that is a special token is not there twice.
        trainer.train(["[S] [S]x [S]y"]).unwrap();
        trainer.train([""]).unwrap();
    }

    #[test]
    fn bad_settings_are_refused() {
        let error = |trainer: UnigramTrainer| trainer.train(LINES).unwrap_err().to_string();
        let default = UnigramTrainer::default;
        assert_eq!(
            error(UnigramTrainer { vocab_size: 9, ..default() }),
            "vocab_size: 9 is too few: the text has 12 characters, and there are 3 special tokens"
        );
        assert!(
            error(UnigramTrainer { shrinking_factor: 1.0, ..default() }).contains("shrinking_factor: 1 ")
        );
        assert!(
            error(UnigramTrainer { sub_iterations: 0, ..default() }).starts_with("sub_iterations: it is 0")
        );
    }
}
