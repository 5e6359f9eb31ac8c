//! A linear-chain conditional random field over tags.

mod lattice;
mod rules;

pub use rules::TagRules;

use crate::ParamInit;
use burn::module::{Module, Param};
use burn::tensor::{IndexingUpdateOp, Int, Tensor, TensorData};
use lattice::{Expectations, Scores};
use rayon::prelude::*;

/// A linear-chain conditional random field (Lafferty et al. 2001). For a sentence's tags `y` and emissions `e`, `log
/// p(y) = start(y₁) + Σ e_t(y_t) + Σ T(y_{t−1}, y_t) + end(y_n) − log Z`.
///
/// The sums run on the host in 64 bits, with the sequences spread over all cores: the chain has one dependent
/// step per token, each far too small for a device. The gradient comes from the forward–backward algorithm,
/// as expected minus observed counts.
#[derive(Module, Debug)]
pub struct Crf {
    /// The score of one tag after another, `[from, to]`, `[n_tags, n_tags]`.
    pub transitions: Param<Tensor<2>>,
    /// The score of a sequence that begins with a tag, `[n_tags]`.
    pub start: Param<Tensor<1>>,
    /// The score of a sequence that ends with a tag, `[n_tags]`.
    pub end: Param<Tensor<1>>,
    #[module(skip)]
    rules: Option<TagRules>,
}

impl Crf {
    /// A new field over `n_tags` tags, in which any tag may follow any other.
    pub fn new(n_tags: usize, init: &mut ParamInit) -> Self {
        Self {
            transitions: init.truncated_normal([n_tags, n_tags]),
            start: init.truncated_normal([n_tags]),
            end: init.truncated_normal([n_tags]),
            rules: None,
        }
    }

    /// Lowers the score of everything that `rules` forbid by 10,000, so that no decoded sequence has it and its
    /// likelihood is zero in effect. A gold sequence that breaks the rules costs 10,000 nats: see [`TagRules::allow`].
    ///
    /// # Panics
    /// If the rules are for another number of tags.
    pub fn with_rules(mut self, rules: TagRules) -> Self {
        let [n_tags] = self.start.dims();
        assert_eq!(rules.n_tags(), n_tags, "the rules are of another number of tags");
        self.rules = Some(rules);
        self
    }

    /// The negative log-likelihood of each sequence's tags, in nats; 0 for an empty sequence.
    ///
    /// # Shapes
    /// - `emissions`: `[n_tokens, n_tags]`, sequences concatenated without padding; `tags`: `n_tokens` of
    ///   them; `lengths`: the number of tokens in each sequence; returns `[sequences]`
    ///
    /// # Panics
    /// If the lengths do not add up to the number of tokens, or a tag is not below `n_tags`.
    pub fn loss(&self, emissions: Tensor<2>, tags: &[usize], lengths: &[usize]) -> Tensor<1> {
        let device = emissions.device();
        let [n_tokens, n_tags] = emissions.dims();
        assert!(tags.iter().all(|tag| *tag < n_tags), "a tag is below {n_tags}");
        let (scores, values) = (self.scores(), floats(emissions.clone()));
        let sequences = (split(&values, lengths, n_tags), split(tags, lengths, 1)).into_par_iter();
        if !device.is_autodiff() {
            let loss = |(rows, tags)| (scores.log_partition(rows) - scores.path(rows, tags)) as f32;
            let losses: Vec<f32> = sequences.map(loss).collect();
            return Tensor::from_data(TensorData::new(losses, [lengths.len()]), &device);
        }
        let gradients: Vec<Gradients> =
            sequences.map(|(rows, tags)| Gradients::new(&scores, rows, tags)).collect();
        let n_sequences = lengths.len();
        let all = |of: fn(&Gradients) -> &[f64], shape: [usize; 2]| {
            let values: Vec<f32> = gradients.iter().flat_map(of).map(|x| *x as f32).collect();
            Tensor::<2>::from_data(TensorData::new(values, shape), &device)
        };
        // The gradients are known by now. A sum of scores times constants has the same gradients; its value is
        // subtracted again, and the loss added.
        let sequence_of = lengths.iter().enumerate().flat_map(|(i, len)| std::iter::repeat_n(i as i32, *len));
        let sequence_of: Vec<i32> = sequence_of.collect();
        let sequence_of = Tensor::<1, Int>::from_data(TensorData::new(sequence_of, [n_tokens]), &device);
        let emitted = (emissions * all(|g| &g.tags, [n_tokens, n_tags])).sum_dim(1).reshape([n_tokens]);
        let emitted = Tensor::zeros([n_sequences], &device).select_assign(
            0,
            sequence_of,
            emitted,
            IndexingUpdateOp::Add,
        );
        let times = |of: fn(&Gradients) -> &[f64], scores: Tensor<1>| {
            let [n] = scores.dims();
            all(of, [n_sequences, n]).matmul(scores.reshape([n, 1])).reshape([n_sequences])
        };
        let linear = emitted
            + times(|g| &g.pairs, self.transitions.val().reshape([n_tags * n_tags]))
            + times(|g| g.first(), self.start.val())
            + times(|g| g.last(), self.end.val());
        let losses: Vec<f32> = gradients.iter().map(|g| g.loss as f32).collect();
        let losses = Tensor::<1>::from_data(TensorData::new(losses, [n_sequences]), &device);
        linear.clone() - linear.detach() + losses
    }

    /// The most probable tags of each sequence (Viterbi 1967).
    ///
    /// # Shapes
    /// - `emissions`: `[n_tokens, n_tags]`, sequences concatenated; `lengths`: the number of tokens in each
    ///   sequence
    ///
    /// # Panics
    /// If the lengths do not add up to the number of tokens.
    pub fn decode(&self, emissions: Tensor<2>, lengths: &[usize]) -> Vec<Vec<usize>> {
        let [_, n_tags] = emissions.dims();
        let (scores, values) = (self.scores(), floats(emissions));
        split(&values, lengths, n_tags).into_par_iter().map(|rows| scores.best(rows)).collect()
    }

    /// The probability of each tag at each token, over all paths.
    ///
    /// # Shapes
    /// - as [`decode`](Self::decode); returns `[n_tokens, n_tags]`, without a gradient
    ///
    /// # Panics
    /// If the lengths do not add up to the number of tokens.
    pub fn marginals(&self, emissions: Tensor<2>, lengths: &[usize]) -> Tensor<2> {
        let device = emissions.device();
        let [n_tokens, n_tags] = emissions.dims();
        let (scores, values) = (self.scores(), floats(emissions));
        let sequences = split(&values, lengths, n_tags).into_par_iter();
        let tags: Vec<Vec<f64>> = sequences.map(|rows| scores.expectations(rows).tags).collect();
        let tags = tags.iter().flatten().map(|p| *p as f32).collect();
        Tensor::from_data(TensorData::new(tags, [n_tokens, n_tags]), &device)
    }

    fn scores(&self) -> Scores {
        let [start, end] = [&self.start, &self.end].map(|scores| floats(scores.val()));
        Scores::new(&start, &floats(self.transitions.val()), &end, self.rules.as_ref())
    }
}

/// One sequence's loss and its gradients, expected minus observed counts.
struct Gradients {
    loss: f64,
    n_tags: usize,
    /// `[len, n_tags]`
    tags: Vec<f64>,
    /// `[n_tags, n_tags]`
    pairs: Vec<f64>,
    /// One zero for each tag, for an empty sequence.
    none: Vec<f64>,
}

impl Gradients {
    fn new(scores: &Scores, rows: &[f32], gold: &[usize]) -> Self {
        let Expectations { log_partition, mut tags, mut pairs } = scores.expectations(rows);
        let n_tags = pairs.len().isqrt();
        tags.chunks_exact_mut(n_tags.max(1)).zip(gold).for_each(|(row, tag)| row[*tag] -= 1.0);
        gold.windows(2).for_each(|pair| pairs[pair[0] * n_tags + pair[1]] -= 1.0);
        Self { loss: log_partition - scores.path(rows, gold), n_tags, tags, pairs, none: vec![0.0; n_tags] }
    }

    /// The gradient of the start scores: that of the first token.
    fn first(&self) -> &[f64] {
        self.tags.get(..self.n_tags).unwrap_or(&self.none)
    }

    /// The gradient of the end scores: that of the last token.
    fn last(&self) -> &[f64] {
        self.tags.rchunks(self.n_tags.max(1)).next().unwrap_or(&self.none)
    }
}

fn floats<const D: usize>(x: Tensor<D>) -> Vec<f32> {
    x.into_data().iter::<f32>().collect()
}

/// Each sequence's part of a table with `width` numbers for each token.
fn split<'a, T>(mut table: &'a [T], lengths: &[usize], width: usize) -> Vec<&'a [T]> {
    let n_tokens = lengths.iter().sum::<usize>();
    assert_eq!(n_tokens * width, table.len(), "the lengths' sum is not the number of tokens");
    let mut next = |len: &usize| {
        let (part, rest) = table.split_at(len * width);
        table = rest;
        part
    };
    lengths.iter().map(&mut next).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, Tolerance};

    fn numbers(n: usize, phase: f32) -> Vec<f32> {
        (1..=n).map(|i| (i as f32 * phase).sin()).collect()
    }

    fn crf(n_tags: usize, device: &Device) -> Crf {
        let vector = |phase| {
            Param::from_tensor(Tensor::from_data(TensorData::new(numbers(n_tags, phase), [n_tags]), device))
        };
        let transitions = TensorData::new(numbers(n_tags * n_tags, 0.7), [n_tags, n_tags]);
        Crf {
            transitions: Param::from_tensor(Tensor::from_data(transitions, device)),
            start: vector(0.3),
            end: vector(0.5),
            rules: None,
        }
    }

    #[test]
    fn likelihoods_gradients_and_paths_are_those_of_pytorch_crf() {
        // pytorch-crf 0.7.2: f = lambda n, p: tensor([sin((i + 1) * p) for i in range(n)]); start, end and
        // transitions f(3, .3), f(3, .5), f(9, .7); e = 2 * f(24, 1.1).view(2, 4, 3), of the second sequence
        // two tokens; -crf(e, y, mask=m, reduction="none"), weighed with 1 and 2.
        let device = Device::flex().autodiff();
        let crf = crf(3, &device);
        let emissions: Vec<f32> = numbers(18, 1.1).iter().map(|x| 2.0 * x).collect();
        let emissions = Tensor::<2>::from_data(TensorData::new(emissions, [6, 3]), &device).require_grad();
        let lengths = [4, 2];
        let loss = crf.loss(emissions.clone(), &[0, 2, 1, 1, 2, 0], &lengths);
        let gradients = (loss.clone() * Tensor::from_data([1.0, 2.0], &device)).sum().backward();
        let close = |found: TensorData, expected: TensorData| {
            found.assert_approx_eq::<f32>(&expected, Tolerance::absolute(2e-5));
        };
        close(loss.into_data(), TensorData::from([5.133_874f32, 9.025_036]));
        close(
            emissions.grad(&gradients).unwrap().into_data(),
            TensorData::from([
                [-0.283_368_3f32, 0.236_714_9, 0.046_653_1],
                [0.233_300_2, 0.258_472_9, -0.491_773_4],
                [0.878_017_2, -0.911_184_1, 0.033_166_7],
                [0.021_347_1, -0.892_953_9, 0.871_606_6],
                [1.841_079_8, 0.118_975_9, -1.960_055_2],
                [-1.971_798_5, 0.246_838_5, 1.724_960_4],
            ]),
        );
        close(
            crf.transitions.val().grad(&gradients).unwrap().into_data(),
            TensorData::from([
                [0.366_412_3f32, 0.536_427_7, 1.766_188_9],
                [0.359_820_9, -0.900_273_1, 0.243_431_6],
                [-1.565_367_3, -0.934_981_2, 0.128_339_9],
            ]),
        );
        let start = TensorData::from([1.557_711_6f32, 0.355_690_7, -1.913_402_1]);
        close(crf.start.val().grad(&gradients).unwrap().into_data(), start);
        let end = TensorData::from([-1.950_451_5f32, -0.646_115_4, 2.596_567_4]);
        close(crf.end.val().grad(&gradients).unwrap().into_data(), end);
        assert_eq!(crf.decode(emissions, &lengths), [vec![0, 2, 0, 2], vec![0, 2]]);
    }

    #[test]
    fn gradients_are_the_slope_with_rules_and_empty_sequences_too() {
        // O, B and I.
        let pairs = [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)];
        let rules = || TagRules::new(3, pairs, [0, 1], 0..3);
        let (lengths, gold) = ([2, 0, 5, 1, 0], [1, 2, 0, 0, 1, 2, 1, 0]);
        let values = numbers(8 * 3, 0.9);
        // Emissions and transitions, moved by the same step along a direction.
        let setup = |step: f32, device: &Device| {
            let moved = |values: &[f32], phase: f32| -> Vec<f32> {
                let direction = numbers(values.len(), phase);
                values.iter().zip(direction).map(|(x, d)| x + step * d).collect()
            };
            let mut crf = crf(3, device).with_rules(rules());
            let transitions = TensorData::new(moved(&numbers(9, 0.7), 1.7), [3, 3]);
            crf.transitions = Param::from_tensor(Tensor::from_data(transitions, device));
            let emissions = TensorData::new(moved(&values, 2.3), [8, 3]);
            (crf, Tensor::<2>::from_data(emissions, device))
        };
        let losses = |step: f32| -> Vec<f64> {
            let (crf, emissions) = setup(step, &Device::flex());
            crf.loss(emissions, &gold, &lengths).into_data().iter::<f64>().collect()
        };
        let device = Device::flex().autodiff();
        let (crf, emissions) = setup(0.0, &device);
        let emissions = emissions.require_grad();
        let loss = crf.loss(emissions.clone(), &gold, &lengths);
        let expected = TensorData::new(losses(0.0), [5]).convert::<f32>();
        loss.clone().into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-6));
        assert_eq!(losses(0.0)[1], 0.0);
        let gradients = loss.sum().backward();
        let along = |gradient: TensorData, phase: f32| -> f64 {
            let direction = numbers(gradient.num_elements(), phase);
            gradient.iter::<f64>().zip(direction).map(|(g, d)| g * f64::from(d)).sum()
        };
        let expected = along(emissions.grad(&gradients).unwrap().into_data(), 2.3)
            + along(crf.transitions.val().grad(&gradients).unwrap().into_data(), 1.7);
        let total = |step| losses(step).iter().sum::<f64>();
        let slope = (total(1e-2) - total(-1e-2)) / 2e-2;
        assert!((slope - expected).abs() < 2e-3, "the slope is {slope}, the gradient says {expected}");
    }

    #[test]
    fn decoded_tags_keep_to_the_rules() {
        let device = Device::flex();
        // O, B-A, I-A, B-B and I-B.
        let anywhere = (0..5).flat_map(|from| [0, 1, 3].map(|to| (from, to)));
        let rules = TagRules::new(5, anywhere.chain([(1, 2), (2, 2), (3, 4), (4, 4)]), [0, 1, 3], 0..5);
        let emissions: Vec<f32> = numbers(60 * 5, 3.7).iter().map(|x| 30.0 * x).collect();
        let emissions = Tensor::<2>::from_data(TensorData::new(emissions, [60, 5]), &device);
        let lengths = [10, 1, 20, 29];
        let free = crf(5, &device);
        assert!(free.decode(emissions.clone(), &lengths).iter().any(|path| !rules.allow(path)));
        let crf = free.with_rules(rules.clone());
        let decoded = crf.decode(emissions.clone(), &lengths);
        assert_eq!(decoded.iter().map(Vec::len).collect::<Vec<_>>(), lengths);
        assert!(decoded.iter().all(|path| rules.allow(path)));
        // Over all tags they sum to one.
        let marginals = crf.marginals(emissions.clone(), &lengths);
        let sums = marginals.sum_dim(1).into_data();
        sums.assert_approx_eq::<f32>(&TensorData::ones::<f32, _>([60, 1]), Tolerance::absolute(1e-5));
        // Gold that breaks the rules has a large but finite loss.
        let breaking = crf.loss(emissions.narrow(0, 0, 2), &[0, 2], &[2]).into_scalar::<f32>();
        assert!((9_000.0..11_000.0).contains(&breaking), "{breaking}");
    }

    #[test]
    #[should_panic(expected = "the lengths' sum is not the number of tokens")]
    fn lengths_must_fit() {
        let device = Device::flex();
        crf(2, &device).decode(Tensor::zeros([3, 2], &device), &[2]);
    }
}
