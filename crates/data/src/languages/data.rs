//! Batches of several languages, and of sentences beside their translations.

use super::sampling::LanguageSampling;
use super::translations::Translations;
use crate::corruption::Corruption;
use crate::loader::{Assemble, Placed};
use crate::permutation::Permutation;
use crate::plan::Plan;
use crate::pretraining::{PretrainingBatch, PretrainingData};
use crate::random::Random;
use crate::seed::derive_seed;
use crate::{DataError, Result};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

/// Tell the random numbers of draws, of further passes, and of translations' masks from all others.
const DRAWS: u64 = 0xD2A5;
const PASS: u64 = 0x9A55;
const TRANSLATIONS: u64 = 0x7247;

/// A language's examples, and how many sentences its corpus has.
#[derive(Debug)]
#[non_exhaustive]
pub struct LanguageStream {
    /// The language's name.
    pub name: String,
    /// Its examples.
    pub data: PretrainingData,
    /// Its sentences, by which it is drawn.
    pub sentences: u64,
}

impl LanguageStream {
    /// A language.
    pub fn new(name: impl Into<String>, data: PretrainingData, sentences: u64) -> Self {
        Self { name: name.into(), data, sentences }
    }
}

/// What a [`Loader`](crate::Loader) makes batches of several languages of (Conneau & Lample 2019, §3). Its *examples* are
/// whole batches, so that it is to be made with a batch size of 1: a position counts the batches of an epoch.
///
/// Each batch is of one language, which [`LanguageSampling`] draws. With translations, every second batch is one of them,
/// and its pair of languages is drawn in the same way. An epoch has as many examples of monolingual text as all languages
/// have together: a language that is drawn more often than it has examples begins another pass over them, in another order
/// and with other masks; of one that is drawn less often the epoch has a part.
///
/// All of it is a function of the seed, the epoch and the batch's place.
pub struct MultilingualData {
    streams: Vec<LanguageStream>,
    sampling: LanguageSampling,
    batch_size: usize,
    translations: Vec<Translations>,
    of_pairs: Option<LanguageSampling>,
    /// Masks translations.
    corruption: Option<Box<dyn Corruption>>,
    alpha: f64,
    seed: u64,
}

impl fmt::Debug for MultilingualData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultilingualData")
            .field("streams", &self.streams)
            .field("translations", &self.translations)
            .field("sampling", &self.sampling)
            .finish_non_exhaustive()
    }
}

/// The batches of an epoch: what each is of, and the examples that there are.
#[derive(Debug)]
pub struct MultilingualPlan {
    draws: Vec<Draw>,
    /// Of each language.
    examples: Vec<Plan>,
    /// Of each pair of languages: its batches, as places of pairs.
    pairs: Vec<Vec<Vec<usize>>>,
}

/// What a batch is of: the source's place among all of its kind, and how many batches of it the epoch has before.
#[derive(Debug, Clone, Copy)]
enum Draw {
    Language(usize, u64),
    Translations(usize, u64),
}

impl MultilingualData {
    /// Batches of `batch_size` examples of these languages, drawn with the exponent `alpha`.
    ///
    /// # Panics
    /// As [`LanguageSampling::new`].
    pub fn new(streams: Vec<LanguageStream>, alpha: f64, batch_size: usize, seed: u64) -> Self {
        let sentences: Vec<u64> = streams.iter().map(|stream| stream.sentences).collect();
        let sampling = LanguageSampling::new(&sentences, alpha);
        let batch_size = batch_size.max(1);
        Self {
            streams,
            sampling,
            batch_size,
            translations: Vec::new(),
            of_pairs: None,
            corruption: None,
            alpha,
            seed,
        }
    }

    /// Puts a batch of translations behind each batch of one language. `corruption` masks them; it may not look at where
    /// words begin, which is not known of them.
    ///
    /// # Panics
    /// If there are none.
    pub fn with_translations(
        mut self,
        translations: Vec<Translations>,
        corruption: Box<dyn Corruption>,
    ) -> Self {
        let pairs: Vec<u64> = translations.iter().map(Translations::n_pairs).collect();
        self.of_pairs = Some(LanguageSampling::new(&pairs, self.alpha));
        (self.translations, self.corruption) = (translations, Some(corruption));
        self
    }

    /// What a batch may be of: each language, then each pair of languages, as `en-de`. [`PretrainingBatch::source`] is a
    /// place in this list.
    pub fn sources(&self) -> Vec<String> {
        let pair = |translations: &Translations| translations.languages().join("-");
        let names = self.streams.iter().map(|stream| stream.name.clone());
        names.chain(self.translations.iter().map(pair)).collect()
    }

    /// How the languages are drawn.
    pub fn sampling(&self) -> &LanguageSampling {
        &self.sampling
    }

    /// The languages.
    pub fn streams(&self) -> &[LanguageStream] {
        &self.streams
    }

    /// The translations.
    pub fn translations(&self) -> &[Translations] {
        &self.translations
    }

    /// A batch of one language, `number` of which the epoch has before it.
    fn language(
        &self,
        plan: &MultilingualPlan,
        epoch: u64,
        language: usize,
        number: u64,
    ) -> PretrainingBatch {
        let (data, plan) = (&self.streams[language].data, &plan.examples[language]);
        let mut batch = data.empty_batch();
        let first = number * self.batch_size as u64;
        for at in first..first + self.batch_size as u64 {
            let (pass, place) = (at / plan.len(), at % plan.len());
            // Passes after the first are epochs of their own to everything random.
            let (epoch, place) = match pass {
                0 => (epoch, place),
                _ => {
                    let epoch = derive_seed(data.examples().seed(), &[PASS, epoch, pass]);
                    (epoch, Permutation::new(plan.len(), epoch).get(place))
                }
            };
            data.add(epoch, place, &plan.example(place), &mut batch);
        }
        batch.stats.padding = batch.tokens.n_padding() as u64;
        batch.source = Some(language);
        batch
    }
}

impl Assemble for MultilingualData {
    type Plan = MultilingualPlan;
    type Batch = PretrainingBatch;

    fn plan(&self, epoch: u64, stop: &AtomicBool) -> Result<MultilingualPlan> {
        let examples =
            self.streams.iter().map(|stream| stream.data.plan(epoch, stop)).collect::<Result<Vec<Plan>>>()?;
        let n: u64 = examples.iter().map(Plan::len).sum();
        let mut drawn = vec![0u64; self.streams.len()];
        let mut drawn_pairs = vec![0u64; self.translations.len()];
        let mut draws = Vec::new();
        let next = |drawn: &mut [u64], source: usize| {
            drawn[source] += 1;
            drawn[source] - 1
        };
        for place in 0..n.div_ceil(self.batch_size as u64) {
            let mut random = Random::derive(self.seed, &[DRAWS, epoch, place]);
            let language = self.sampling.draw(&mut random);
            draws.push(Draw::Language(language, next(&mut drawn, language)));
            if let Some(sampling) = &self.of_pairs {
                let pair = sampling.draw(&mut random);
                draws.push(Draw::Translations(pair, next(&mut drawn_pairs, pair)));
            }
        }
        let pairs = self.translations.iter().zip(&drawn_pairs).map(|(translations, n)| {
            let mut batches = Vec::new();
            for pass in 0u64.. {
                if batches.len() as u64 >= *n {
                    break;
                }
                if stop.load(Ordering::Relaxed) {
                    return Err(DataError::Stopped);
                }
                let seed = derive_seed(epoch, &[PASS, pass]);
                batches.extend(translations.pass(seed));
            }
            batches.truncate(*n as usize);
            Ok(batches)
        });
        Ok(MultilingualPlan { draws, pairs: pairs.collect::<Result<_>>()?, examples })
    }

    fn n_examples(&self, plan: &MultilingualPlan) -> u64 {
        plan.draws.len() as u64
    }

    /// # Panics
    /// If the loader's batch size is not 1.
    fn assemble(&self, examples: &[Placed<'_, MultilingualPlan>]) -> Result<PretrainingBatch> {
        let [Placed { plan, epoch, place, .. }] = examples else {
            panic!("{} batches at once: the loader's batch size is to be 1", examples.len());
        };
        Ok(match plan.draws[*place as usize] {
            Draw::Language(language, number) => self.language(plan, *epoch, language, number),
            Draw::Translations(pair, number) => {
                let corruption = self.corruption.as_deref().expect("translations come with a corruption");
                let seed = derive_seed(self.seed, &[TRANSLATIONS, pair as u64, *epoch, number]);
                let pairs = &plan.pairs[pair][number as usize];
                let mut batch = self.translations[pair].batch(pairs, corruption, seed);
                batch.source = Some(self.streams.len() + pair);
                batch
            }
        })
    }
}
