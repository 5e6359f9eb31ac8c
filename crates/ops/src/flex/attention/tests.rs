//! Blocks, of a few queries and keys here, against the composed operation.

use super::WHOLE;
use crate::{
    AttentionMask, Packing, Precision, Queries, Sight, attention, attention_with_weights, with_precision,
};
use burn::tensor::{Bool, Device, Tensor, TensorData, Tolerance};
use proptest::prelude::*;

#[derive(Debug, Clone)]
struct Case {
    /// Of queries and keys, of each sequence; one sequence without a packing.
    lengths: Vec<[usize; 2]>,
    /// Of keys and values.
    n_heads: usize,
    /// How many heads share keys and values.
    group: usize,
    /// Features of keys and values.
    d: [usize; 2],
    causal: bool,
    window: Option<usize>,
    /// Of each sequence, one after another, in turn; empty where all see all.
    sights: Vec<Sight>,
    /// How many keys at the end of the row are ignored, and every how many of the others.
    padding: Option<[usize; 2]>,
    packed: bool,
}

impl Case {
    fn len(&self, side: usize) -> usize {
        self.lengths.iter().map(|lengths| lengths[side]).sum()
    }

    fn mask(&self, device: &Device) -> AttentionMask {
        let k_len = self.len(1);
        let pad_mask = self.padding.map(|[end, every]| {
            let ignored = (0..k_len).map(|key| key + end >= k_len || key % every == 1).collect::<Vec<_>>();
            Tensor::<2, Bool>::from_data(TensorData::new(ignored, [1, k_len]), device)
        });
        let of = |side: usize| self.lengths.iter().map(|lengths| lengths[side]).collect::<Vec<_>>();
        let packing = self.packed.then(|| Packing::new(of(1)));
        let queries = match self.packed {
            true => Queries::Counts(of(0).into()),
            false => Queries::Last,
        };
        let in_turn = self.sights.iter().cycle().take(self.lengths.len());
        let sights = (!self.sights.is_empty()).then(|| in_turn.copied().collect());
        let (causal, window) = (self.causal, self.window);
        AttentionMask { pad_mask, causal, window, sights, packing, queries, bias: None }
    }

    /// The output and the gradients of its weighted sum.
    fn run(&self, form: impl FnOnce([Tensor<4>; 3], &AttentionMask) -> Tensor<4>) -> [TensorData; 4] {
        let device = Device::flex().autodiff();
        let (n_heads, [d_k, d_v]) = (self.n_heads * self.group, self.d);
        let leaf = |len: usize, n_heads: usize, d: usize, phase: f32| {
            let values: Vec<f32> =
                (0..len * n_heads * d).map(|i| (i as f32 * 0.53 + phase).sin() * 1.5).collect();
            Tensor::<4>::from_data(TensorData::new(values, [1, len, n_heads, d]), &device).require_grad()
        };
        let (q_len, k_len) = (self.len(0), self.len(1));
        let n_kv = self.n_heads;
        let leaves =
            [leaf(q_len, n_heads, d_k, 0.1), leaf(k_len, n_kv, d_k, 1.2), leaf(k_len, n_kv, d_v, 2.3)];
        let y =
            form(leaves.each_ref().map(|x| x.clone().swap_dims(1, 2)), &self.mask(&device)).swap_dims(1, 2);
        let grads = (y.clone() * leaf(q_len, n_heads, d_v, 3.4)).sum().backward();
        let [dq, dk, dv] = leaves.each_ref().map(|x| x.grad(&grads).expect("a leaf").into_data());
        [y.into_data(), dq, dk, dv]
    }
}

fn fused([q, k, v]: [Tensor<4>; 3], mask: &AttentionMask) -> Tensor<4> {
    attention(q, k, v, mask, 0.0)
}

fn composed([q, k, v]: [Tensor<4>; 3], mask: &AttentionMask) -> Tensor<4> {
    attention_with_weights(q, k, v, mask, 0.0).0
}

fn sight() -> impl Strategy<Value = Sight> {
    prop_oneof![Just(Sight::All), Just(Sight::RightToLeft), (0..45usize).prop_map(Sight::Prefix)]
}

fn case() -> impl Strategy<Value = Case> {
    let alone = prop::collection::vec([1..40usize, 1..40usize], 1);
    // Self-attention, and cross-attention of other sequences, some of which have no query.
    let itself = prop::collection::vec((1..40usize).prop_map(|len| [len, len]), 1..4);
    let across = prop::collection::vec([0..40usize, 1..40usize], 1..4)
        .prop_filter("a query at least", |lengths| lengths.iter().any(|[q_len, _]| *q_len > 0));
    let packed = prop_oneof![itself, across];
    (
        any::<bool>(),
        (alone, packed),
        (1..4usize, 1..4usize),
        [1..12usize, 1..12usize],
        any::<bool>(),
        prop::option::of(0..12usize),
        prop::option::of([0..45usize, 2..9usize]),
        prop::collection::vec(sight(), 0..4),
    )
        .prop_map(|(packed, (alone, many), (n_heads, group), d, causal, window, padding, sights)| Case {
            lengths: match packed {
                // More queries than keys would see nothing where positions count, and of one mind about what then.
                true if causal || window.is_some() || !sights.is_empty() => {
                    many.into_iter().map(|[q_len, k_len]| [q_len.min(k_len), k_len]).collect()
                }
                true => many,
                false => alone,
            },
            n_heads,
            group,
            d,
            causal,
            window,
            sights,
            // Whoever sees nothing at all is of one mind about a row's keys, here about the sequence's.
            padding: padding.filter(|_| !packed),
            packed,
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn blocks_are_as_all_at_once(case in case()) {
        for (found, expected) in case.run(fused).iter().zip(case.run(composed)) {
            found.assert_approx_eq::<f32>(&expected, Tolerance::rel_abs(2e-4, 2e-5));
        }
    }
}

#[test]
fn dropout_across_packed_sequences_has_the_gradient_of_its_mask() {
    // All at once, in blocks, and a sequence without queries.
    let case = Case {
        lengths: vec![[5, 9], [37, 29], [0, 3], [2, 1]],
        n_heads: 2,
        group: 1,
        d: [6, 4],
        causal: false,
        window: None,
        sights: Vec::new(),
        padding: None,
        packed: true,
    };
    const { assert!(37 * 29 > WHOLE && 5 * 9 < WHOLE) };
    let dropped = |[q, k, v]: [Tensor<4>; 3], mask: &AttentionMask| {
        q.device().seed(11);
        attention(q, k, v, mask, 0.25)
    };
    let found = case.run(dropped);
    let mut n_dropped = 0;
    let expected = case.run(|[q, k, v], mask| {
        // Values that are the identity read out what dropout leaves.
        let (device, n) = (q.device(), case.len(1));
        let eye = Tensor::<2>::eye(n, &device).reshape([1, 1, n, n]).expand([1, 2, n, n]);
        let left = dropped([q.clone(), k.clone(), eye], mask).into_data();
        let (_, probs) = attention_with_weights(q, k, v.clone(), mask, 0.0);
        let all = probs.to_data();
        let pairs = left.iter::<f32>().zip(all.iter::<f32>());
        let factors: Vec<f32> =
            pairs.map(|(left, prob)| if left == 0.0 && prob > 0.0 { 0.0 } else { 1.0 / 0.75 }).collect();
        n_dropped = factors.iter().filter(|factor| **factor == 0.0).count();
        let factors = Tensor::<4>::from_data(TensorData::new(factors, [1, 2, case.len(0), n]), &device);
        (probs * factors).matmul(v)
    });
    // Five standard deviations of a binomial of 2 · (45 + 1,073 + 2) draws are 103.
    assert!((457..663).contains(&n_dropped), "{n_dropped} of 2240 dropped");
    for (found, expected) in found.iter().zip(expected) {
        found.assert_approx_eq::<f32>(&expected, Tolerance::rel_abs(2e-4, 2e-5));
    }
}

/// A sequence in blocks.
fn long() -> Case {
    let lengths = vec![[131, 131], [5, 5], [64, 64]];
    assert!(lengths[0][0] * lengths[0][1] > WHOLE && lengths[1][0] * lengths[1][1] < WHOLE);
    Case {
        lengths,
        n_heads: 3,
        group: 2,
        d: [24, 16],
        causal: true,
        window: Some(40),
        sights: Vec::new(),
        padding: None,
        packed: true,
    }
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    for precision in [Precision::Fp32, Precision::Bf16] {
        let [one, two, three] = [1, 2, 3].map(|n| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(n).build().expect("a pool");
            pool.install(|| {
                long().run(|[q, k, v], mask| {
                    q.device().seed(5);
                    with_precision(precision, || attention(q, k, v, mask, 0.1))
                })
            })
        });
        assert!(one == two && one == three, "{precision:?}");
    }
}

#[test]
fn a_sequence_does_not_depend_on_the_others() {
    let alone = Case { lengths: vec![[131, 131]], ..long() }.run(fused);
    for (alone, packed) in alone.iter().zip(long().run(fused)) {
        let (alone, packed) = (alone.iter::<f32>(), packed.iter::<f32>());
        assert!(alone.zip(packed).all(|(a, b)| a.to_bits() == b.to_bits()));
    }
}

#[test]
fn a_token_is_moved_by_what_it_sees_alone() {
    let device = Device::flex();
    let (lengths, d) = ([31, 5, 12], 4);
    let values = |phase: f32| {
        let values = (0..48 * d).map(|i| (i as f32 * 0.53 + phase).sin() * 1.5).collect::<Vec<_>>();
        Tensor::<4>::from_data(TensorData::new(values, [1, 1, 48, d]), &device)
    };
    let [q, k, v] = [0.1, 1.2, 2.3].map(values);
    const { assert!(31 * 31 > WHOLE && 5 * 5 < WHOLE) };
    let packing = Packing::new(lengths);
    for sights in [
        [Sight::Prefix(13), Sight::LEFT_TO_RIGHT, Sight::All],
        [Sight::RightToLeft, Sight::Prefix(5), Sight::Prefix(3)],
        [Sight::All, Sight::RightToLeft, Sight::Prefix(99)],
    ] {
        let mask = AttentionMask::default().with_packing(packing.clone()).with_sights(sights);
        for form in [fused, composed] {
            let found = |k: &Tensor<4>, v: &Tensor<4>| {
                let [y, k, v] = [q.clone(), k.clone(), v.clone()];
                form([y, k, v], &mask).into_data().try_to_vec::<f32>().unwrap()
            };
            let before = found(&k, &v);
            for changed in 0..48 {
                let other = |x: &Tensor<4>| {
                    let row = x.clone().narrow(2, changed, 1).add_scalar(1.0);
                    x.clone().slice_assign([0..1, 0..1, changed..changed + 1, 0..d], row)
                };
                let after = found(&other(&k), &other(&v));
                for (query, (start, sequence)) in
                    packing.sequences().map(|s| (packing.starts().nth(s).unwrap(), s)).enumerate()
                {
                    let keys = sights[sequence].keys(query as isize - start as isize, lengths[sequence]);
                    let sees = keys.contains(&changed.wrapping_sub(start));
                    let at = query * d..(query + 1) * d;
                    let same =
                        before[at.clone()].iter().zip(&after[at]).all(|(a, b)| a.to_bits() == b.to_bits());
                    assert_eq!(same, !sees, "{query} and {changed}, {sights:?}");
                }
            }
        }
    }
}

#[test]
fn scores_of_any_size_are_fine() {
    let case = Case { lengths: vec![[30, 30]], causal: false, window: None, ..long() };
    let far = |[q, k, v]: [Tensor<4>; 3], mask: &AttentionMask| attention(q * 1e4, k * 1e4, v, mask, 0.0);
    for part in case.run(far) {
        assert!(part.iter::<f32>().all(f32::is_finite));
    }
}

#[test]
fn bf16_rounds_operands_both_ways() {
    for lengths in [vec![[7, 7]], vec![[131, 131]]] {
        let case = Case { lengths, ..long() };
        let exact = case.run(composed);
        // The backward pass is outside of the scope.
        let low =
            case.run(|[q, k, v], mask| with_precision(Precision::Bf16, || attention(q, k, v, mask, 0.0)));
        for (part, (low, exact)) in low.iter().zip(&exact).enumerate() {
            let norm = |x: &mut dyn Iterator<Item = f32>| x.map(|x| x * x).sum::<f32>().sqrt();
            let error = norm(&mut low.iter::<f32>().zip(exact.iter::<f32>()).map(|(a, b)| a - b));
            let error = error / norm(&mut exact.iter::<f32>());
            assert!((1e-4..3e-2).contains(&error), "part {part}: off by {error}");
        }
    }
}
