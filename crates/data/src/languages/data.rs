//! Batches of several languages, and of sentences paired with their translations.

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

/// Random streams for draws, further passes and translations' masks.
const DRAWS: u64 = 0xD2A5;
const PASS: u64 = 0x9A55;
const TRANSLATIONS: u64 = 0x7247;

/// A language's examples, and its corpus's number of sentences.
#[derive(Debug)]
#[non_exhaustive]
pub struct LanguageStream {
    /// The language's name.
    pub name: String,
    /// Its examples.
    pub data: PretrainingData,
    /// Its number of sentences, which sets its sampling probability.
    pub sentences: u64,
}

impl LanguageStream {
    /// A language.
    pub fn new(name: impl Into<String>, data: PretrainingData, sentences: u64) -> Self {
        Self { name: name.into(), data, sentences }
    }
}

/// Multilingual data for a [`Loader`](crate::Loader) (Conneau & Lample 2019, §3). Its *examples* are whole
/// batches, so the loader's batch size must be 1, and a position counts the batches of an epoch.
///
/// Each batch is in one language, drawn by [`LanguageSampling`]. With translations, every second batch holds
/// translations, whose language pair is drawn in the same way. An epoch has as many monolingual examples as
/// all languages together: a language drawn more often than it has examples starts another pass, with a new
/// order and new masks; a language drawn less often is only partly used.
///
/// Everything is a function of the seed, the epoch and the batch's place.
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

/// The batches of an epoch: the source of each, and the available examples.
#[derive(Debug)]
pub struct MultilingualPlan {
    draws: Vec<Draw>,
    /// The examples of each language.
    examples: Vec<Plan>,
    /// The batches of each language pair, as pair indices.
    pairs: Vec<Vec<Vec<usize>>>,
}

/// A batch's source: its index among sources of its kind, and its number of earlier batches in the epoch.
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

    /// Follows each monolingual batch with a batch of translations. `corruption` masks them; it must not use
    /// word starts, which are unknown here.
    ///
    /// # Panics
    /// If there are no translations.
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

    /// The possible sources of a batch: each language, then each language pair, such as `en-de`.
    /// [`PretrainingBatch::source`] is an index in this list.
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

    /// A monolingual batch, preceded by `number` others of its language in the epoch.
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
            panic!("{} batches at once: the loader's batch size must be 1", examples.len());
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
