//! A custom masking: spans (Joshi et al. 2020, "SpanBERT", §3.1).
//!
//! ```text
//! length ~ Geometric(0.2), at most 10, of whole words; spans are drawn until 15 % of the tokens are masked
//! ```
//!
//! A [`Corruption`] is handed a sequence and random numbers that are a function of the seed and of the example's place,
//! and says what stands where then. All else is the pretraining of any BERT.

use cloze_data::{CorpusExamples, Corrupted, Corruption, Edits, Original, PretrainingData, Random};
use cloze_model::ParamInit;
use cloze_trainer::Result;
use cloze_trainer::engine::run_folder::RunFolder;
use cloze_trainer::engine::{Outcome, RunOptions, train_in};
use cloze_trainer::metrics::progress::RunProgress;
use cloze_trainer::pretraining::{PretrainingRecipe, PretrainingSplits, run_tokenizer};

/// Masks spans of whole words.
pub struct SpanMasking {
    /// The mask's id.
    pub mask: u32,
    /// The share of the tokens that are masked, about.
    pub share: f64,
    /// The probability that a span ends after a word.
    pub ends: f64,
    /// Words of a span at most.
    pub longest: usize,
}

impl Corruption for SpanMasking {
    fn corrupt(&self, original: &Original<'_>, random: &mut Random) -> Corrupted {
        let mut hidden = vec![false; original.len()];
        let maskable: Vec<usize> = (0..original.len()).filter(|place| original.maskable[*place]).collect();
        let words: Vec<usize> =
            maskable.iter().copied().filter(|place| original.word_starts[*place]).collect();
        let budget = ((self.share * maskable.len() as f64).round() as usize).max(1);
        let mut masked = 0;
        // A span that meets another one is drawn again, so often at most.
        for _ in 0..10 * words.len() {
            if masked >= budget {
                break;
            }
            let mut length = 1;
            while length < self.longest && !random.chance(self.ends) {
                length += 1;
            }
            let first = random.below(words.len() as u64) as usize;
            let end = words.get(first + length).copied().unwrap_or(original.len());
            let span: Vec<usize> =
                (words[first]..end).take_while(|place| original.maskable[*place]).collect();
            if span.iter().any(|place| hidden[*place]) {
                continue;
            }
            masked += span.len();
            span.into_iter().for_each(|place| hidden[place] = true);
        }
        let mut edits = Edits::new(original.ids);
        let mut place = 0;
        while place < hidden.len() {
            let length = hidden[place..].iter().take_while(|hidden| **hidden).count();
            if length > 0 {
                edits.replace(place..place + length, &vec![self.mask; length]);
            }
            place += length + 1;
        }
        edits.finish()
    }
}

/// Pretrains a BERT on masked spans.
pub fn run(steps: u64, options: &RunOptions<'_>, progress: &mut dyn RunProgress) -> Result<Outcome> {
    let config = crate::pretraining("span-masking", steps)?;
    let folder = RunFolder::open(&options.folder, &config, options.resume)?;
    let tokenizer = run_tokenizer(&config, &folder, options, progress)?;
    let examples = &config.examples;
    let splits =
        PretrainingSplits::prepare_with(&config, &tokenizer, options, progress, |documents, _, seed| {
            let special = examples.special(&tokenizer)?;
            let mask = special.mask.expect("a WordPiece vocabulary that is trained has a mask");
            let (sampler, cache) = (examples.pairs.sampler(), options.cache.clone());
            let examples = CorpusExamples::new(documents, sampler, special, examples.seq_len, seed, cache)?;
            let masking = SpanMasking { mask, share: 0.15, ends: 0.2, longest: 10 };
            Ok(PretrainingData::from_parts(examples, Box::new(masking)))
        })?;
    let bert = config.model.as_new().expect("it names no checkpoint").bert(&tokenizer);
    let mut init =
        ParamInit::new(&options.device.clone().autodiff(), config.common.run.seed).with_std(bert.init_std);
    let recipe = PretrainingRecipe::new(&config, splits);
    train_in(&folder, &recipe, bert.init(&mut init), &config.run_settings(), options, progress)
}
