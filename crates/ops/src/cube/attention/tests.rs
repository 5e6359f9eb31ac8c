//! The kernels against the composed operation on the same device, and against flex.

use super::runs;
use crate::cube::agreement::{device, leaf, wave};
use crate::{
    AttentionMask, Packing, Queries, Sight, attention, attention_with_weights, composed_on_graphics, read,
    takes_packed,
};
use burn::tensor::{Bool, Device, Tensor, TensorData, Tolerance};

/// A mask on a device.
type Mask = fn(&Device) -> AttentionMask;

struct Case {
    /// Of the batch, of queries, and of keys and values.
    heads: [usize; 3],
    /// Queries and keys.
    lengths: [usize; 2],
    /// Features of keys and of values.
    d: [usize; 2],
}

impl Case {
    fn leaves(&self, device: &Device) -> [Tensor<4>; 3] {
        let ([batch, n_heads, n_shared], [q_len, k_len], [d_k, d_v]) = (self.heads, self.lengths, self.d);
        let leaf = |len: usize, n_heads: usize, d: usize, phase: f32| {
            // As a model has them: heads inside positions.
            leaf(batch * len * n_heads * d, phase, 0.0, device).reshape([batch, len, n_heads, d])
        };
        [leaf(q_len, n_heads, d_k, 0.1), leaf(k_len, n_shared, d_k, 1.2), leaf(k_len, n_shared, d_v, 2.3)]
    }

    /// The output and the gradients of its weighted sum.
    fn run(&self, device: &Device, form: impl FnOnce([Tensor<4>; 3]) -> Tensor<4>) -> [TensorData; 4] {
        let leaves = self.leaves(device).map(Tensor::detach).map(Tensor::require_grad);
        let y = form(leaves.each_ref().map(|x| x.clone().swap_dims(1, 2))).swap_dims(1, 2);
        let weights = Tensor::<1>::from_data(wave(y.shape().num_elements(), 3.4, 0.1).as_slice(), device);
        let grads = (y.clone() * weights.reshape(y.dims())).sum().backward();
        let [dq, dk, dv] = leaves.each_ref().map(|x| read(x.grad(&grads).expect("a leaf")));
        [read(y), dq, dk, dv]
    }

    /// Asserts that the kernels give what flex does, and the same bits when they run again.
    fn agrees(&self, mask: Mask) {
        let run = |device: &Device| {
            let mask = mask(device);
            self.run(device, |[q, k, v]| attention(q, k, v, &mask, 0.0))
        };
        let device = device();
        assert!(runs(&device) && takes_packed(&Tensor::<1>::zeros([1], &device)));
        let found = run(&device);
        for (found, expected) in found.iter().zip(run(&Device::flex().autodiff())) {
            found.assert_approx_eq::<f32>(&expected, tolerance());
        }
        for (found, again) in found.iter().zip(run(&device)) {
            found.assert_eq(&again, true);
        }
    }
}

fn tolerance() -> Tolerance<f32> {
    Tolerance::rel_abs(5e-4, 5e-5)
}

/// Two rows, of which the second has `len / 2` tokens.
fn padding(len: usize, device: &Device) -> Tensor<2, Bool> {
    let ignored: Vec<bool> = (0..2 * len).map(|i| i >= len + len / 2).collect();
    Tensor::from_data(TensorData::new(ignored, [2, len]), device)
}

#[test]
fn as_composed_on_the_same_device() {
    let case = Case { heads: [2, 2, 1], lengths: [5, 7], d: [8, 8] };
    let device = device();
    let mask = AttentionMask::default().with_causal().with_pad_mask(padding(7, &device));
    let run = || case.run(&device, |[q, k, v]| attention(q, k, v, &mask, 0.0));
    for (found, expected) in run().iter().zip(composed_on_graphics(run)) {
        found.assert_approx_eq::<f32>(&expected, tolerance());
    }
}

#[test]
fn padded_rows() {
    for (lengths, d) in [([5, 5], [8, 8]), ([37, 70], [32, 32])] {
        let case = Case { heads: [2, 2, 2], lengths, d };
        case.agrees(|_| AttentionMask::default());
        case.agrees(|_| AttentionMask::default().with_causal());
        case.agrees(|_| AttentionMask::default().with_window(3));
        case.agrees(|_| AttentionMask::default().with_sights([Sight::Prefix(40), Sight::RightToLeft]));
    }
    let case = Case { heads: [2, 2, 1], lengths: [45, 45], d: [32, 32] };
    case.agrees(|device| AttentionMask::default().with_pad_mask(padding(45, device)));
    case.agrees(|device| {
        AttentionMask::default().with_causal().with_window(20).with_pad_mask(padding(45, device))
    });
}

#[test]
fn heads_of_any_width() {
    for (lengths, d) in [([33, 33], [64, 64]), ([9, 34], [80, 80]), ([2, 3], [5, 10]), ([1, 1], [1, 132])] {
        Case { heads: [1, 2, 1], lengths, d }.agrees(|_| AttentionMask::default().with_causal());
    }
}

#[test]
fn packed_sequences() {
    let case = Case { heads: [1, 4, 2], lengths: [81, 81], d: [32, 32] };
    case.agrees(|_| AttentionMask::default().with_packing(Packing::new([40, 1, 33, 7])));
    case.agrees(|_| AttentionMask::default().with_packing(Packing::new([1, 70, 10])).with_causal());
    case.agrees(|_| {
        let mask = AttentionMask::default().with_packing(Packing::new([66, 15])).with_window(5);
        mask.with_sights([Sight::Prefix(12), Sight::All])
    });
    let case = Case { heads: [1, 2, 2], lengths: [41, 44], d: [32, 32] };
    // Cross-attention, one sequence without a query.
    case.agrees(|_| {
        let mask = AttentionMask::default().with_packing(Packing::new([34, 3, 7]));
        mask.with_queries(Queries::Counts([5, 0, 36].into()))
    });
    case.agrees(|_| {
        let mask = AttentionMask::default().with_packing(Packing::new([34, 3, 7])).with_causal();
        mask.with_queries(Queries::Counts([32, 3, 6].into()))
    });
}

#[test]
fn who_sees_nothing_sees_everything_alike() {
    let case = Case { heads: [2, 1, 1], lengths: [40, 40], d: [8, 8] };
    // The first row's first tokens are padding, before which no causal query sees anything, and all of the second's.
    case.agrees(|device| {
        let ignored: Vec<bool> = (0..80).map(|i| !(35..40).contains(&i)).collect();
        let pad_mask = Tensor::from_data(TensorData::new(ignored, [2, 40]), device);
        AttentionMask::default().with_causal().with_pad_mask(pad_mask)
    });
    let case = Case { heads: [2, 1, 1], lengths: [40, 3], d: [8, 8] };
    case.agrees(|_| AttentionMask::default().with_causal());
}

#[test]
fn dropout_has_the_gradient_of_its_mask() {
    let device = device();
    for (case, mask) in [
        (Case { heads: [2, 2, 2], lengths: [44, 44], d: [8, 44] }, AttentionMask::default()),
        (
            Case { heads: [1, 4, 2], lengths: [44, 44], d: [8, 44] },
            AttentionMask::default().with_packing(Packing::new([37, 7])),
        ),
    ] {
        let dropped = |[q, k, v]: [Tensor<4>; 3], seed: u64| {
            device.seed(seed);
            attention(q, k, v, &mask, 0.25)
        };
        let found = case.run(&device, |inputs| dropped(inputs, 11));
        // Values that are the identity read out what dropout leaves.
        let [q, k, v] = case.leaves(&device).map(|x| x.swap_dims(1, 2));
        let n = 44;
        let eye = Tensor::<2>::eye(n, &device).reshape([1, 1, n, n]).expand(v.dims());
        let (_, probs) = attention_with_weights(q.clone(), k.clone(), v, &mask, 0.0);
        let probs = probs.into_data().try_to_vec::<f32>().unwrap();
        let factors = |seed: u64| {
            let left = dropped([q.clone(), k.clone(), eye.clone()], seed).into_data();
            let left = left.try_to_vec::<f32>().unwrap();
            let factors: Vec<f32> = left
                .iter()
                .zip(&probs)
                .map(|(left, prob)| if *left == 0.0 && *prob > 0.0 { 0.0 } else { 4.0 / 3.0 })
                .collect();
            factors
        };
        let [mask_11, mask_12] = [11, 12].map(factors);
        // Of the pairs within sequences.
        let pairs = probs.iter().filter(|prob| **prob > 0.0).count();
        let share = |count: usize| count as f64 / pairs as f64;
        let zeros = |mask: &[f32]| share(mask.iter().filter(|factor| **factor == 0.0).count());
        // Six standard deviations of 5,676 draws at least are 0.035.
        assert!((zeros(&mask_11) - 0.25).abs() < 0.035, "{} dropped", zeros(&mask_11));
        let both = mask_11.iter().zip(&mask_12).filter(|(a, b)| **a == 0.0 && **b == 0.0).count();
        assert!((share(both) - 0.0625).abs() < 0.02, "{} dropped under both seeds", share(both));

        let dims = [case.heads[0], case.heads[1], n, n];
        let factors = Tensor::<4>::from_data(TensorData::new(mask_11, dims), &device);
        let expected = case.run(&device, |[q, k, v]| {
            let (_, probs) = attention_with_weights(q, k, v.clone(), &mask, 0.0);
            let [batch, n_shared, len, d] = v.dims();
            let group = case.heads[1] / n_shared;
            let v = v.unsqueeze_dim::<5>(2).expand([batch, n_shared, group, len, d]);
            (probs * factors).matmul(v.reshape([batch, n_shared * group, len, d]))
        });
        for (found, expected) in found.iter().zip(expected) {
            found.assert_approx_eq::<f32>(&expected, tolerance());
        }
    }
}

#[test]
fn scores_of_any_size_are_fine() {
    let case = Case { heads: [1, 2, 2], lengths: [40, 40], d: [8, 8] };
    let mask = AttentionMask::default().with_causal();
    for part in case.run(&device(), |[q, k, v]| attention(q * 1e4, k * 1e4, v, &mask, 0.0)) {
        assert!(part.iter::<f32>().all(f32::is_finite));
    }
}

#[test]
fn without_gradients_the_output_is_the_same() {
    let case = Case { heads: [2, 2, 2], lengths: [20, 20], d: [8, 8] };
    let mask = AttentionMask::default().with_window(4);
    let found = |device: &Device| {
        let [q, k, v] = case.leaves(device).map(|x| x.swap_dims(1, 2));
        attention(q, k, v, &mask, 0.0).into_data()
    };
    let tracked = found(&device());
    let device = device().inner();
    let values = case.leaves(&device.clone().autodiff()).map(|x| x.inner().swap_dims(1, 2));
    let [q, k, v] = values;
    attention(q, k, v, &mask, 0.3).into_data().assert_eq(&tracked, true);
}
