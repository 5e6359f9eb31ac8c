use super::ABSENT;
use crate::blocks::{Heads, Pass};
use burn::tensor::activation::{log_softmax, softmax};
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};

/// The relations between the tokens of each sequence of a batch, by heads, and distances between those of two models.
///
/// All sums are over the tokens as queries, and means over heads, so that a batch is worth its tokens.
#[derive(Debug, Clone)]
pub struct Relations {
    /// Sequences and their longest.
    shape: [usize; 2],
    /// For each place of the padded batch its token; the first one where there is none.
    tokens: Tensor<1, Int>,
    /// Where there is no key, `[sequences, 1, 1, longest]`; none if all sequences are equally long.
    hidden: Option<Tensor<4, Bool>>,
    /// 1 for a query and 0 for padding, `[sequences, 1, longest, 1]`.
    queries: Tensor<4>,
    /// The reciprocal of each sequence's length for a key and 0 for padding, `[sequences, 1, 1, longest]`.
    keys: Tensor<4>,
}

impl Relations {
    /// The relations between tokens of sequences of these lengths, none of which is 0.
    pub fn new(lengths: &[usize], device: &Device) -> Self {
        let packing = crate::ops::Packing::new(lengths);
        let shape = [lengths.len(), packing.longest()];
        let [n, longest] = shape;
        let places = packing.padded_tokens();
        let tokens: Vec<i32> = places.iter().map(|token| token.unwrap_or(0) as i32).collect();
        let missing: Vec<bool> = places.iter().map(Option::is_none).collect();
        let queries: Vec<f32> = missing.iter().map(|missing| f32::from(u8::from(!missing))).collect();
        let shares = queries.iter().enumerate().map(|(place, one)| one / lengths[place / longest] as f32);
        let keys = TensorData::new(shares.collect::<Vec<f32>>(), [n, 1, 1, longest]);
        let hidden = missing
            .contains(&true)
            .then(|| Tensor::from_data(TensorData::new(missing, [n, 1, 1, longest]), device));
        Self {
            shape,
            tokens: Tensor::from_data(tokens.as_slice(), device),
            hidden,
            queries: Tensor::from_data(TensorData::new(queries, [n, 1, longest, 1]), device),
            keys: Tensor::from_data(keys, device),
        }
    }

    /// The relations between the tokens of a pass.
    pub fn of(pass: &Pass, device: &Device) -> Self {
        Self::new(&pass.lengths, device)
    }

    /// `[tokens, n_heads · d]` → `[sequences, n_heads, longest, d]`
    fn split(&self, x: Tensor<2>, n_heads: usize) -> Tensor<4> {
        let ([n, longest], [_, width]) = (self.shape, x.dims());
        x.select(0, self.tokens.clone()).reshape([n, longest, n_heads, width / n_heads]).swap_dims(1, 2)
    }

    /// The scaled products `x·yᵀ/√d` of all pairs of a sequence's tokens, with vectors split into `n_heads` heads of `d`
    /// features (Wang et al. 2021, "MiniLMv2", Eq. 7): of queries, keys or values with themselves.
    ///
    /// # Shapes
    /// - `x`, `y`: `[tokens, width]`; returns `[sequences, n_heads, longest, longest]`
    ///
    /// # Panics
    /// If `n_heads` does not divide the width.
    pub fn products(&self, x: Tensor<2>, y: Tensor<2>, n_heads: usize) -> Tensor<4> {
        let [_, width] = x.dims();
        assert!(width.is_multiple_of(n_heads), "{n_heads} heads of {width} features");
        let scale = 1.0 / ((width / n_heads) as f64).sqrt();
        self.split(x, n_heads).matmul(self.split(y, n_heads).swap_dims(2, 3)) * scale
    }

    /// A layer's attention scores before softmax, `[sequences, n_heads, longest, longest]`.
    pub fn scores(&self, heads: &Heads) -> Tensor<4> {
        let products = self.products(heads.queries.clone(), heads.keys.clone(), heads.n_heads);
        match &heads.bias {
            Some(bias) => products + bias.clone(),
            None => products,
        }
    }

    /// `KL(softmax(t) ‖ softmax(s))` of each query's distribution over the keys, averaged over the heads and summed over
    /// the queries, `[1]` (Wang et al. 2020, "MiniLM", Eq. 5 and 7, without the division by the length).
    ///
    /// # Shapes
    /// - `student`, `teacher`: `[sequences, n_heads, longest, longest]`
    pub fn divergence(&self, student: Tensor<4>, teacher: Tensor<4>) -> Tensor<1> {
        let [_, n_heads, _, _] = student.dims();
        let of_keys = |scores: Tensor<4>| match &self.hidden {
            Some(hidden) => {
                let hidden = hidden.clone().expand(scores.dims());
                scores.mask_fill(hidden, ABSENT)
            }
            None => scores,
        };
        let (student, teacher) = (of_keys(student), of_keys(teacher));
        let (log_q, log_p) = (log_softmax(student, 3), log_softmax(teacher.clone(), 3));
        let by_query = (softmax(teacher, 3) * (log_p - log_q)).sum_dim(3);
        (by_query * self.queries.clone()).sum() / n_heads as f64
    }

    /// The squared difference, averaged over heads and keys and summed over the queries, `[1]` (Jiao et al. 2020,
    /// "TinyBERT", Eq. 7, times the length).
    ///
    /// # Shapes
    /// - `student`, `teacher`: `[sequences, n_heads, longest, longest]`
    pub fn distance(&self, student: Tensor<4>, teacher: Tensor<4>) -> Tensor<1> {
        let [_, n_heads, _, _] = student.dims();
        let squares = (student - teacher).powi_scalar(2);
        (squares * self.queries.clone() * self.keys.clone()).sum() / n_heads as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STUDENT: [[f32; 4]; 5] = [
        [-0.4, 0.3, 1.3, -1.0],
        [-2.7, -0.6, 0.3, 1.5],
        [2.2, 0.7, 1.4, 1.7],
        [-1.2, -2.4, -0.5, 0.4],
        [0.1, 0.5, 1.6, -2.0],
    ];
    const TEACHER: [[f32; 6]; 5] = [
        [-0.7, -1.5, -1.4, -3.8, -0.8, 1.8],
        [-0.8, -2.4, 1.1, 1.6, -1.8, -2.2],
        [2.4, 0.8, 0.3, 4.3, -3.0, -1.5],
        [1.1, 1.2, 0.8, 4.3, -0.1, 6.2],
        [-2.4, -0.0, 0.1, 0.1, -2.7, 3.7],
    ];

    /// A loss of the products of both models, with two heads, and its gradient by the student's vectors.
    fn of(loss: impl Fn(&Relations, Tensor<4>, Tensor<4>) -> Tensor<1>) -> (f32, Vec<f32>) {
        let device = Device::flex().autodiff();
        let student = Tensor::<2>::from_data(STUDENT, &device).require_grad();
        let teacher = Tensor::<2>::from_data(TEACHER, &device);
        let relations = Relations::new(&[3, 2], &device);
        let products = |x: Tensor<2>| relations.products(x.clone(), x, 2);
        let loss = loss(&relations, products(student.clone()), products(teacher));
        let gradients = loss.backward();
        let gradient = student.grad(&gradients).unwrap();
        (loss.into_scalar(), gradient.into_data().iter::<f32>().collect())
    }

    fn assert_close(found: (f32, Vec<f32>), loss: f64, gradient: [f64; 20]) {
        let is_close =
            |found: f32, expected: f64| (f64::from(found) - expected).abs() < 1e-5 * expected.abs().max(1.0);
        assert!(is_close(found.0, loss), "{} {loss}", found.0);
        for (found, expected) in found.1.iter().zip(gradient) {
            assert!(is_close(*found, expected), "{found} {expected}");
        }
    }

    /// PyTorch's in double precision, sequence by sequence without padding: `kl_div(log_softmax, softmax)` and `mse_loss`
    /// of `x·xᵀ/√d`, by heads.
    #[test]
    fn divergence_and_distance_are_pytorchs() {
        assert_close(
            of(Relations::divergence),
            3.061_994_67,
            [
                0.0328194, -0.1011609, -0.0840832, 0.2749501, -0.1247646, 0.0043620, 0.0335361, 0.2196640,
                -0.0322770, 0.0151926, -0.1711579, -0.4142253, -0.0186109, -0.0151764, -0.2844804, 0.3865390,
                -0.1050413, -0.2606630, 1.0368569, -1.2463978,
            ],
        );
        assert_close(
            of(Relations::distance),
            498.388_942_17,
            [
                3.0782252,
                0.3614598,
                1.6713277,
                14.8123595,
                -3.6899232,
                -1.2265036,
                -2.6234162,
                -10.6699615,
                2.8974494,
                0.9084819,
                -4.1041675,
                -20.4561541,
                -2.6697242,
                -5.2239137,
                -5.2012545,
                11.6857161,
                -0.6846980,
                -2.0370738,
                -3.2371158,
                6.3978674,
            ],
        );
    }

    /// A batch is worth its sequences: what stands beside a sequence changes nothing but rounding.
    #[test]
    fn padding_counts_nothing() {
        let device = Device::flex();
        let rows = |from: usize, to: usize| {
            let student = Tensor::<2>::from_data(STUDENT, &device).slice([from..to, 0..4]);
            (student, Tensor::<2>::from_data(TEACHER, &device).slice([from..to, 0..6]))
        };
        let losses = |lengths: &[usize], from, to| {
            let relations = Relations::new(lengths, &device);
            let (student, teacher) = rows(from, to);
            let of = |x: Tensor<2>| relations.products(x.clone(), x, 2);
            let (student, teacher) = (of(student), of(teacher));
            let kl = relations.divergence(student.clone(), teacher.clone());
            [kl, relations.distance(student, teacher)].map(|loss| loss.into_scalar::<f32>())
        };
        let (both, first, second) = (losses(&[3, 2], 0, 5), losses(&[3], 0, 3), losses(&[2], 3, 5));
        for loss in 0..2 {
            assert!((both[loss] - first[loss] - second[loss]).abs() < 1e-6);
        }
    }
}
