//! What is measured of the inputs of linear maps on texts, in memory that does not grow with them.

use super::QuantizeConfig;
use super::histogram::{Histogram, Ranges};
use super::source::{Map, Source};
use crate::{Result, TrainerError};
use burn::module::ParamId;
use burn::tensor::{Device, Tensor};
use cloze_model::blocks::observe_inputs;
use cloze_tokenizer::Encoding;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// Tokens of a batch, unless a text is longer.
const BATCH_TOKENS: usize = 2_048;

/// Of a map's inputs.
#[derive(Debug)]
pub struct Statistics {
    /// The least and the greatest number of each feature, and 0.
    least: Vec<f32>,
    most: Vec<f32>,
    histogram: Option<Histogram>,
    /// The sums of products of features: of each with itself and those after it, as both halves are the same.
    products: Option<Vec<f32>>,
}

impl Statistics {
    /// The features that were always 0.
    pub fn n_silent(&self) -> usize {
        self.least.iter().zip(&self.most).filter(|(least, most)| **least == 0.0 && **most == 0.0).count()
    }

    /// The range of inputs that are multiplied by factors, if there are any.
    pub fn range(&self, ranges: Ranges, factors: Option<&[f32]>) -> (f32, f32) {
        match (&self.histogram, factors) {
            (Some(histogram), None) => histogram.range(ranges),
            // By the ends of each feature: the others' shares are not known of products.
            _ => {
                let one = |x: &[f32], i: usize| x[i] * factors.map_or(1.0, |factors| factors[i]);
                (0..self.least.len()).fold((0f32, 0f32), |(least, most), i| {
                    (least.min(one(&self.least, i)), most.max(one(&self.most, i)))
                })
            }
        }
    }

    /// The sums of products of inputs that are multiplied by factors, `[d_in, d_in]`. They are then forgotten: those of all maps
    /// are as large as their weights.
    pub fn take_products(&mut self, factors: Option<&[f32]>) -> Vec<f64> {
        let d = self.least.len();
        let half = self.products.take().expect("they were asked for and not taken");
        let factor = |i: usize| factors.map_or(1.0, |factors| f64::from(factors[i]));
        let mut products = vec![0.0; d * d];
        let places = (0..d).flat_map(|i| (i..d).map(move |j| (i, j)));
        for ((i, j), product) in places.zip(half) {
            let product = f64::from(product) * factor(i) * factor(j);
            (products[i * d + j], products[j * d + i]) = (product, product);
        }
        products
    }
}

/// Measures the inputs of maps.
pub struct Calibration {
    places: HashMap<ParamId, usize>,
    state: Rc<RefCell<State>>,
}

struct State {
    statistics: Vec<Statistics>,
    /// Whether all inputs so far were finite.
    finite: bool,
}

impl Calibration {
    pub fn new(maps: &[Map], config: &QuantizeConfig) -> Self {
        let has_histogram =
            config.ranges.is_some_and(|ranges| ranges != Ranges::MinMax) && config.smooth.is_none();
        let statistics = maps.iter().map(|map| Statistics {
            least: vec![0.0; map.d_in()],
            most: vec![0.0; map.d_in()],
            histogram: has_histogram.then(Histogram::new),
            products: config.gptq.then(|| vec![0.0; map.d_in() * (map.d_in() + 1) / 2]),
        });
        let state = State { statistics: statistics.collect(), finite: true };
        Self {
            places: maps.iter().enumerate().map(|(place, map)| (map.id, place)).collect(),
            state: Rc::new(RefCell::new(state)),
        }
    }

    /// The statistics of the maps, in their order, and the number of texts.
    pub fn run(
        self,
        source: &Source,
        texts: impl IntoIterator<Item = Result<String>>,
        device: &Device,
        progress: &mut impl FnMut(usize),
    ) -> Result<(Vec<Statistics>, usize)> {
        let (mut batch, mut n_tokens, mut n_texts) = (Vec::new(), 0, 0);
        let most = if source.takes_packed() { BATCH_TOKENS } else { 0 };
        for text in texts {
            let Some(encoding) = source.encode(&text?) else {
                let expected = "none: only the inputs of encoders and language models are measured";
                return Err(setting("calibrate", "texts", expected));
            };
            let encoding = encoding?;
            if encoding.is_empty() {
                continue;
            }
            if !batch.is_empty() && n_tokens + encoding.len() > most {
                self.measure(source, &std::mem::take(&mut batch), device)?;
                progress(n_texts);
                n_tokens = 0;
            }
            n_texts += 1;
            n_tokens += encoding.len();
            batch.push(encoding);
        }
        if !batch.is_empty() {
            self.measure(source, &batch, device)?;
        }
        if n_texts == 0 {
            return Err(setting("calibrate", "no text", "texts like those that the model is for"));
        }
        let state = Rc::into_inner(self.state).expect("no observer is left").into_inner();
        Ok((state.statistics, n_texts))
    }

    fn measure(&self, source: &Source, texts: &[Encoding], device: &Device) -> Result<()> {
        let (places, state) = (self.places.clone(), self.state.clone());
        let observer = move |id, x: Tensor<2>| {
            if let Some(place) = places.get(&id) {
                state.borrow_mut().add(*place, x);
            }
        };
        observe_inputs(observer, || source.compute(texts, device));
        if self.state.borrow().finite { Ok(()) } else { Err(TrainerError::OutputNotFinite) }
    }
}

impl State {
    fn add(&mut self, place: usize, x: Tensor<2>) {
        let statistics = &mut self.statistics[place];
        let d = statistics.least.len();
        let data = x.to_data();
        let numbers = data.as_slice::<f32>().expect("states are FP32");
        if !numbers.iter().all(|x| x.is_finite()) {
            self.finite = false;
            return;
        }
        for row in numbers.chunks_exact(d.max(1)) {
            statistics.least.iter_mut().zip(row).for_each(|(least, x)| *least = least.min(*x));
            statistics.most.iter_mut().zip(row).for_each(|(most, x)| *most = most.max(*x));
        }
        if let Some(histogram) = &mut statistics.histogram {
            histogram.add(numbers);
        }
        if let Some(sums) = &mut statistics.products {
            let products = x.clone().transpose().matmul(x).into_data();
            let products = products.as_slice::<f32>().expect("states are FP32");
            let halves = products.chunks_exact(d.max(1)).enumerate().flat_map(|(i, row)| &row[i..]);
            sums.iter_mut().zip(halves).for_each(|(sum, product)| *sum += product);
        }
    }
}

fn setting(key: &str, found: &str, expected: &str) -> TrainerError {
    TrainerError::Setting { key: key.into(), found: found.into(), expected: expected.into() }
}

/// SmoothQuant's factors of each map's inputs: `max|w_j|^(1 − α) / max|x_j|^α` for the feature `j` (equation 4 of the paper,
/// whose `s` is its inverse). Maps of one input, such as queries, keys and values, have one.
pub fn factors(maps: &[Map], statistics: &[Statistics], alpha: f64) -> Vec<Vec<f32>> {
    let same_input = |a: &Statistics, b: &Statistics| a.least == b.least && a.most == b.most;
    let weights: Vec<Vec<f32>> = maps
        .iter()
        .map(|map| {
            let mut most = vec![0f32; map.d_in()];
            for row in map.rows().chunks_exact(map.d_in().max(1)) {
                most.iter_mut().zip(row).for_each(|(most, w)| *most = most.max(w.abs()));
            }
            most
        })
        .collect();
    let of = |statistics: &Statistics, places: &[usize]| -> Vec<f32> {
        let factor = |j: usize| {
            let x = f64::from(statistics.most[j].max(-statistics.least[j]));
            let w = places.iter().fold(0f32, |most, place| most.max(weights[*place][j]));
            // A feature or a column of zeros has nothing to move.
            if x == 0.0 || w == 0.0 { 1.0 } else { (f64::from(w).powf(1.0 - alpha) / x.powf(alpha)) as f32 }
        };
        (0..statistics.least.len()).map(factor).collect()
    };
    statistics
        .iter()
        .map(|one| {
            let places: Vec<usize> =
                (0..statistics.len()).filter(|place| same_input(one, &statistics[*place])).collect();
            of(one, &places)
        })
        .collect()
}
