use super::{AdditiveScore, DotScore, GeneralScore, LocationScore, Score};
use crate::{ParamInit, linear_maps};
use burn::module::Module;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

/// The kind of score.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ScoreKind {
    /// `v·tanh(W q + U h)` (Bahdanau et al. 2015, §A.1.2).
    #[default]
    Additive,
    /// `q·h` (Luong et al. 2015, eq. 8).
    Dot,
    /// `q·h / √d` (Vaswani et al. 2017, eq. 1).
    ScaledDot,
    /// `q·W h` (Luong et al. 2015, eq. 8).
    General,
    /// `W q`, one score per position of the source (Luong et al. 2015, eq. 8).
    Location,
}

/// A score and its sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScoreConfig {
    /// Which.
    pub kind: ScoreKind,
    /// Features of a query.
    pub d_query: usize,
    /// Features of a memory's state.
    pub d_memory: usize,
    /// Features in which an additive score compares.
    pub d: usize,
    /// The longest memory of a location score, in tokens.
    pub max_tokens: usize,
}

impl ScoreConfig {
    /// A new score.
    pub fn init(&self, init: &mut ParamInit) -> AnyScore {
        let Self { kind, d_query, d_memory, d, max_tokens } = *self;
        let mut any = AnyScore { additive: None, dot: None, general: None, location: None };
        match kind {
            ScoreKind::Additive => any.additive = Some(AdditiveScore::new(d_query, d_memory, d, init)),
            ScoreKind::Dot => any.dot = Some(DotScore::new()),
            ScoreKind::ScaledDot => any.dot = Some(DotScore::scaled()),
            ScoreKind::General => any.general = Some(GeneralScore::new(d_query, d_memory, init)),
            ScoreKind::Location => any.location = Some(LocationScore::new(d_query, max_tokens, init)),
        }
        any
    }
}

/// The score named by a [`ScoreConfig`]; the other fields are `None`. (An enum would put its variants' names
/// into the parameters' paths.)
#[derive(Module, Debug)]
pub struct AnyScore {
    /// `v·tanh(W q + U h)`
    pub additive: Option<AdditiveScore>,
    /// `q·h`
    pub dot: Option<DotScore>,
    /// `q·W h`
    pub general: Option<GeneralScore>,
    /// `W q`
    pub location: Option<LocationScore>,
}

linear_maps!(AnyScore { additive, dot, general, location });

/// Calls a method of the configured score.
macro_rules! of_any {
    ($any:expr, |$score:ident| $call:expr) => {
        match $any {
            AnyScore { additive: Some($score), .. } => $call,
            AnyScore { general: Some($score), .. } => $call,
            AnyScore { location: Some($score), .. } => $call,
            AnyScore { dot: Some($score), .. } => $call,
            _ => panic!("a score is there"),
        }
    };
}

impl Score for AnyScore {
    fn keys(&self, memory: Tensor<3>) -> Tensor<3> {
        of_any!(self, |score| score.keys(memory))
    }

    fn scores(&self, query: Tensor<3>, keys: Tensor<3>) -> Tensor<3> {
        of_any!(self, |score| score.scores(query, keys))
    }

    fn as_additive(&self) -> Option<&AdditiveScore> {
        self.additive.as_ref()
    }

    fn max_memory_tokens(&self) -> Option<usize> {
        of_any!(self, |score| score.max_memory_tokens())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Memory, attend};
    use super::*;
    use crate::ops::Packing;
    use burn::tensor::Device;

    const SIZES: [usize; 3] = [2, 3, 6];

    fn score(kind: ScoreKind, device: &Device) -> AnyScore {
        let [_, _, d] = SIZES;
        let config = ScoreConfig { kind, d_query: d, d_memory: d, d: 5, max_tokens: 9 };
        config.init(&mut ParamInit::new(device, 3))
    }

    const KINDS: [ScoreKind; 5] =
        [ScoreKind::Additive, ScoreKind::Dot, ScoreKind::ScaledDot, ScoreKind::General, ScoreKind::Location];

    /// One by one, in plain numbers.
    fn slow_score(kind: ScoreKind, score: &AnyScore, q: &[f64], h: &[f64], place: usize) -> f64 {
        let matrix = |weight: Tensor<2>, x: &[f64]| -> Vec<f64> {
            let [d_in, d_out] = weight.dims();
            let w: Vec<f64> = weight.into_data().iter::<f64>().collect();
            (0..d_out).map(|j| (0..d_in).map(|i| x[i] * w[i * d_out + j]).sum()).collect()
        };
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        match kind {
            ScoreKind::Additive => {
                let score = score.additive.as_ref().unwrap();
                let q = matrix(score.query.weight.val(), q);
                let k = matrix(score.key.weight.val(), h);
                let v: Vec<f64> = score.v.val().into_data().iter::<f64>().collect();
                let t: Vec<f64> = q.iter().zip(&k).map(|(q, k)| (q + k).tanh()).collect();
                dot(&t, &v)
            }
            ScoreKind::Dot => dot(q, h),
            ScoreKind::ScaledDot => dot(q, h) / (q.len() as f64).sqrt(),
            ScoreKind::General => {
                let weight = score.general.as_ref().unwrap().key.weight.val();
                dot(q, &matrix(weight, h))
            }
            ScoreKind::Location => matrix(score.location.as_ref().unwrap().query.weight.val(), q)[place],
        }
    }

    #[test]
    fn scores_are_those_of_their_equations() {
        let device = Device::flex();
        let [batch, q_len, d] = SIZES;
        let lengths = [4, 2];
        let packing = Packing::new(lengths);
        let init = &mut ParamInit::new(&device, 5);
        let states = init.uniform([6, d], 1.0).val();
        let query = init.uniform([batch, q_len, d], 1.0).val();
        let numbers = |x: Vec<f64>| x.chunks_exact(d).map(<[f64]>::to_vec).collect::<Vec<_>>();
        let hs = numbers(states.to_data().iter::<f64>().collect());
        let qs = numbers(query.to_data().iter::<f64>().collect());
        for kind in KINDS {
            let score = score(kind, &device);
            let memory = Memory::new(&score, states.clone(), &packing);
            let found = attend(&score, query.clone(), &memory);
            let (weights, context) = (found.weights.into_data(), found.context.into_data());
            let (mut weights, mut context) = (weights.iter::<f64>(), context.iter::<f64>());
            let mut start = 0;
            for (row, len) in lengths.into_iter().enumerate() {
                for q in 0..q_len {
                    let q = &qs[row * q_len + q];
                    let scores: Vec<f64> =
                        (0..len).map(|k| slow_score(kind, &score, q, &hs[start + k], k).exp()).collect();
                    let sum: f64 = scores.iter().sum();
                    let mut expected = vec![0.0; d];
                    for k in 0..4 {
                        let weight = scores.get(k).map_or(0.0, |score| score / sum);
                        assert!((weights.next().unwrap() - weight).abs() < 1e-5, "{kind:?}");
                        if k < len {
                            expected.iter_mut().zip(&hs[start + k]).for_each(|(e, h)| *e += weight * h);
                        }
                    }
                    for expected in expected {
                        assert!((context.next().unwrap() - expected).abs() < 1e-5, "{kind:?}");
                    }
                }
                start += len;
            }
        }
    }

    #[test]
    fn gradients_are_slopes() {
        let device = Device::flex().autodiff();
        let [batch, q_len, d] = SIZES;
        let packing = Packing::new([4, 2]);
        for kind in KINDS {
            let score = score(kind, &device);
            let init = &mut ParamInit::new(&device, 5);
            let [states, direction] = [0, 1].map(|_| init.uniform([6, d], 1.0).val().detach());
            let [query, other] = [0, 1].map(|_| init.uniform([batch, q_len, d], 1.0).val().detach());
            let weights = init.uniform([batch, q_len, d], 1.0).val().detach();
            let value = |states: Tensor<2>, query: Tensor<3>| {
                let memory = Memory::new(&score, states, &packing);
                (attend(&score, query, &memory).context * weights.clone()).sum()
            };
            let (x, q) = (states.clone().require_grad(), query.clone().require_grad());
            let gradients = value(x.clone(), q.clone()).backward();
            let of_states = (x.grad(&gradients).unwrap() * direction.clone().inner()).sum();
            let of_query = q.grad(&gradients).map(|q| (q * other.clone().inner()).sum());
            let expected = of_states.into_scalar::<f32>()
                + of_query.map_or(0.0, |of_query| of_query.into_scalar::<f32>());
            let at = |step: f32| {
                let (x, q) = (direction.clone() * step, other.clone() * step);
                value(states.clone() + x, query.clone() + q).into_scalar::<f32>()
            };
            let slope = (4.0 * (at(5e-3) - at(-5e-3)) / 1e-2 - (at(1e-2) - at(-1e-2)) / 2e-2) / 3.0;
            assert!(
                (slope - expected).abs() < 2e-3 * expected.abs().max(1.0),
                "{kind:?}: {slope}, {expected}"
            );
        }
    }

    #[test]
    fn rows_are_chosen_and_joined() {
        let device = Device::flex();
        let score = score(ScoreKind::General, &device);
        let init = &mut ParamInit::new(&device, 5);
        let states = init.uniform([6, 6], 1.0).val();
        let query = init.uniform([1, 1, 6], 1.0).val();
        let all = Memory::new(&score, states.clone(), &Packing::new([2, 4]));
        let alone = |start: usize, len: usize| {
            Memory::new(&score, states.clone().narrow(0, start, len), &Packing::new([len]))
        };
        let ask = |memory: &Memory| {
            let [rows, _] = memory.dims();
            attend(&score, query.clone().repeat_dim(0, rows), memory).context.into_data()
        };
        let joined = alone(0, 2).join(alone(2, 4));
        ask(&joined).assert_approx_eq::<f32>(&ask(&all), burn::tensor::Tolerance::absolute(1e-6));
        let joined = alone(2, 4).join(alone(0, 2));
        let swapped = all.clone().select(Tensor::from_data([1, 0], &device));
        ask(&joined).assert_approx_eq::<f32>(&ask(&swapped), burn::tensor::Tolerance::absolute(1e-6));
        assert_eq!(all.first(1).dims(), [1, 4]);
    }

    #[test]
    #[should_panic(expected = "a memory of 10 tokens, but the attention takes 9")]
    fn a_memory_beyond_the_locations_is_refused() {
        let device = Device::flex();
        let score = score(ScoreKind::Location, &device);
        Memory::new(&score, Tensor::zeros([10, 6], &device), &Packing::new([10]));
    }
}
