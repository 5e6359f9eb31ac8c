//! Fused and composed operations and their gradients, over random shapes: each against the other, and the
//! gradient against the slope of the operation itself.
#![cfg(feature = "flex")]
#![allow(missing_docs, clippy::unwrap_used)]

use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use cloze_ops::{
    self as ops, AttentionMask, CrossEntropy, Direction, LstmState, Packing, RelativeInput, RelativeMask,
    Residual,
};
use proptest::prelude::*;

/// An operation of float inputs, all of them flattened.
type Operation<'a> = &'a dyn Fn(&[Tensor<1>]) -> Tensor<1>;

/// Numbers of about normal distribution that a phase tells apart.
fn numbers(n: usize, phase: f64) -> Vec<f32> {
    (0..n).map(|i| (((i as f64 + 1.0) * (0.917 + phase)).sin() * 12.9898).sin() as f32 * 1.5).collect()
}

fn vector(values: &[f32], device: &Device) -> Tensor<1> {
    Tensor::from_data(TensorData::new(values.to_vec(), [values.len()]), device)
}

/// The output and the gradients of its weighted sum.
fn run(operation: Operation, inputs: &[Vec<f32>], device: &Device) -> Vec<Vec<f32>> {
    let leaves: Vec<_> = inputs.iter().map(|input| vector(input, device).require_grad()).collect();
    let y = operation(&leaves);
    let weights = vector(&numbers(y.dims()[0], 0.31), device);
    let gradients = (y.clone() * weights).sum().backward();
    let gradients = leaves.iter().map(|leaf| leaf.grad(&gradients).unwrap().into_data());
    [y.into_data()].into_iter().chain(gradients).map(|data| data.iter::<f32>().collect()).collect()
}

/// Fused against composed; then, where the operation is smooth, the slope along a direction in all inputs at once against what
/// the gradients say of it.
fn check(operation: Operation, inputs: &[Vec<f32>], smooth: bool) -> Result<(), TestCaseError> {
    let fused = Device::flex().autodiff();
    let composed = fused.clone().gradient_checkpointing();
    let (a, b) = (run(operation, inputs, &fused), run(operation, inputs, &composed));
    for (part, (a, b)) in a.iter().zip(&b).enumerate() {
        // A gradient that is a sum of many numbers may be small though they are not: their rounding is not.
        let scale = b.iter().fold(0.1f32, |scale, x| scale.max(x.abs()));
        for (i, (a, b)) in a.iter().zip(b).enumerate() {
            prop_assert!((a - b).abs() <= 1e-4 * scale, "part {part}, element {i}: {a} is not {b}");
        }
    }
    if !smooth {
        return Ok(());
    }
    let directions: Vec<Vec<f32>> =
        inputs.iter().enumerate().map(|(i, input)| numbers(input.len(), 0.77 + i as f64)).collect();
    let value = |step: f32| -> f64 {
        let device = Device::flex();
        let moved: Vec<_> = inputs
            .iter()
            .zip(&directions)
            .map(|(input, direction)| {
                let moved: Vec<f32> = input.iter().zip(direction).map(|(x, d)| x + step * d).collect();
                vector(&moved, &device)
            })
            .collect();
        let y = operation(&moved).into_data();
        let weights = numbers(y.num_elements(), 0.31);
        y.iter::<f64>().zip(weights).map(|(y, w)| y * f64::from(w)).sum()
    };
    // Two step widths, so that the error of the difference itself, of third order, cancels (Richardson).
    let slope = |h: f32| (value(h) - value(-h)) / f64::from(2.0 * h);
    let measured = (4.0 * slope(4e-3) - slope(8e-3)) / 3.0;
    let products = a[1..].iter().zip(&directions).flat_map(|(g, d)| g.iter().zip(d));
    let terms: Vec<f64> = products.map(|(g, d)| f64::from(*g) * f64::from(*d)).collect();
    let (expected, size) = (terms.iter().sum::<f64>(), terms.iter().map(|t| t.abs()).sum::<f64>());
    prop_assert!(
        (measured - expected).abs() <= 2e-3 * size.max(1.0),
        "the slope is {measured}, the gradient says {expected} (of {size})"
    );
    Ok(())
}

fn reshaped<const D: usize>(x: &Tensor<1>, shape: [usize; D]) -> Tensor<D> {
    x.clone().reshape(shape)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn linear(tokens in 1usize..40, d_in in 1usize..40, d_out in 1usize..40, bias: bool, transposed: bool) {
        let operation = |x: &[Tensor<1>]| {
            let weight = match transposed {
                true => reshaped(&x[1], [d_out, d_in]).transpose(),
                false => reshaped(&x[1], [d_in, d_out]),
            };
            ops::linear(reshaped(&x[0], [1, tokens, d_in]), weight, bias.then(|| x[2].clone())).reshape([-1])
        };
        let mut inputs = vec![numbers(tokens * d_in, 0.0), numbers(d_in * d_out, 0.1), numbers(d_out, 0.2)];
        inputs.truncate(if bias { 3 } else { 2 });
        check(&operation, &inputs, true)?;
    }

    #[test]
    fn attention(
        batch in 1usize..4, n_heads in 1usize..4, q_len in 1usize..20, k_len in 1usize..20, d in 1usize..20,
        padding in prop::collection::vec(0usize..20, 3), masked: bool, causal: bool,
        window in prop::option::of(0usize..20),
    ) {
        let mask = |device: &Device| {
            let rows = (0..batch).flat_map(|row| (0..k_len).map(move |k| (row, k)));
            // Up to all keys of a sequence.
            let hidden = rows.map(|(row, k)| k + padding[row].min(k_len) >= k_len).collect::<Vec<bool>>();
            let pad_mask = Tensor::<2, Bool>::from_data(TensorData::new(hidden, [batch, k_len]), device);
            let mut mask = AttentionMask::default();
            (mask.pad_mask, mask.causal, mask.window) = (masked.then_some(pad_mask), causal, window);
            mask
        };
        let operation = |x: &[Tensor<1>]| {
            let device = x[0].device();
            let query = reshaped(&x[0], [batch, n_heads, q_len, d]);
            // As the linear maps leave them: heads inside.
            let [key, value] = [1, 2].map(|i| reshaped(&x[i], [batch, k_len, n_heads, d]).swap_dims(1, 2));
            ops::attention(query, key, value, &mask(&device), 0.0).reshape([-1])
        };
        // A row without a visible key has uniform weights whatever its scores, which rounding takes away;
        // its gradient is of the scores before that, as in PyTorch.
        let narrow = window.is_some_and(|window| masked || q_len > k_len + window);
        let visible = !narrow
            && (!masked || padding[..batch].iter().all(|&n| n < k_len))
            && (!causal || q_len <= k_len);
        let (q, k) = (batch * n_heads * q_len * d, batch * n_heads * k_len * d);
        check(&operation, &[numbers(q, 0.0), numbers(k, 0.1), numbers(k, 0.2)], visible)?;
    }

    #[test]
    fn relative_attention(
        batch in 1usize..6, n_heads in 1usize..4, q_len in 1usize..20, k_len in 1usize..20, d in 1usize..20,
        hidden: bool, segments: bool,
    ) {
        let mask = || {
            let queries = 0..batch * q_len;
            let mask = RelativeMask::new(queries.map(|query| query * 7 % (q_len + 1)).collect(), batch, k_len);
            // Some queries see nothing.
            let pairs = || (0..batch * q_len * k_len).map(|pair| (pair / k_len, pair % k_len));
            let hides = pairs().map(|(query, key)| query % 5 == 3 || (query * 3 + key) % 4 == 0).collect();
            let mask = if hidden { mask.with_hidden(hides) } else { mask };
            let differs = pairs().map(|(query, key)| (query + key) % 3 == 0).collect();
            if segments { mask.with_others(differs) } else { mask }
        };
        let vectors = |x: &Tensor<1>| reshaped(x, [n_heads, d]);
        let operation = |x: &[Tensor<1>]| {
            let input = RelativeInput {
                query: reshaped(&x[0], [batch, q_len, n_heads, d]),
                key: reshaped(&x[1], [batch, k_len, n_heads, d]),
                value: reshaped(&x[2], [batch, k_len, n_heads, d]),
                position: reshaped(&x[3], [q_len + k_len, n_heads, d]),
                content_bias: vectors(&x[4]),
                position_bias: vectors(&x[5]),
                segment: segments.then(|| [vectors(&x[6]), vectors(&x[7])]),
            };
            ops::relative_attention(input, &mask(), 0.0).reshape([-1])
        };
        // No gradient is asked for of vectors of segments that no key is of.
        let has_others = segments && mask().has_others();
        prop_assume!(has_others == segments);
        let sizes = [batch * q_len, batch * k_len, batch * k_len, q_len + k_len, 1, 1, 1, 1];
        let sizes = &sizes[..if segments { 8 } else { 6 }];
        let inputs = sizes.iter().enumerate().map(|(i, n)| numbers(n * n_heads * d, 0.1 * i as f64));
        check(&operation, &inputs.collect::<Vec<_>>(), true)?;
    }

    #[test]
    fn layer_norm(rows in 1usize..40, d in 4usize..70, residual: bool) {
        let operation = |x: &[Tensor<1>]| {
            let shape = [1, rows, d];
            let input = reshaped(&x[0], shape);
            match residual {
                true => {
                    let residual = Residual { input: reshaped(&x[3], shape), dropout: 0.0 };
                    ops::add_layer_norm(input, residual, x[1].clone(), x[2].clone(), 1e-2).reshape([-1])
                }
                false => ops::layer_norm(input, x[1].clone(), x[2].clone(), 1e-2).reshape([-1]),
            }
        };
        let n = rows * d;
        let mut inputs = vec![numbers(n, 0.0), numbers(d, 0.1), numbers(d, 0.2), numbers(n, 0.4)];
        inputs.truncate(if residual { 4 } else { 3 });
        check(&operation, &inputs, true)?;
    }

    #[test]
    fn gelu(n in 1usize..300, tanh: bool) {
        let form = if tanh { ops::gelu_tanh } else { ops::gelu };
        check(&|x| form(x[0].clone()), &[numbers(n, 0.0)], true)?;
    }

    #[test]
    fn glu(rows in 1usize..40, d in 1usize..40) {
        check(&|x| ops::glu(reshaped(&x[0], [1, rows, 2 * d])).reshape([-1]), &[numbers(rows * 2 * d, 0.0)], true)?;
    }

    #[test]
    fn weight_norm(d_in in 1usize..70, d_out in 1usize..40) {
        // One row alone has a direction that no small change turns.
        let v = numbers(d_in * d_out, 0.0).iter().map(|v| v + 0.2f32.copysign(*v)).collect();
        let operation = |x: &[Tensor<1>]| ops::weight_norm(reshaped(&x[0], [d_in, d_out]), x[1].clone()).reshape([-1]);
        check(&operation, &[v, numbers(d_out, 0.1)], d_in > 3)?;
    }

    #[test]
    fn windows(lengths in prop::collection::vec(1usize..9, 1..20), d in 1usize..20, width in 1usize..8, before in 0usize..8) {
        let packing = Packing::new(lengths);
        let (n, before) = (packing.n_tokens(), before.min(width - 1));
        let operation = |x: &[Tensor<1>]| ops::windows(reshaped(&x[0], [n, d]), &packing, width, before).reshape([-1]);
        check(&operation, &[numbers(n * d, 0.0)], true)?;
    }

    #[test]
    fn cross_entropy(rows in 1usize..30, n_classes in 1usize..90, smoothing in 0f64..0.5, ignore: bool, weigh: bool) {
        let operation = |x: &[Tensor<1>]| {
            let label = |row: usize| match row % 3 {
                0 if ignore => -1,
                _ => (row * 7 % n_classes) as i64,
            };
            let labels: Vec<i64> = (0..rows).map(label).collect();
            let labels = Tensor::<1, Int>::from_data(TensorData::new(labels, [rows]), &x[0].device());
            let class_weights = weigh.then(|| (0..n_classes).map(|class| 0.3 + (class % 4) as f32).collect());
            let loss = CrossEntropy { label_smoothing: smoothing, ignored_label: Some(-1), class_weights };
            loss.forward(reshaped(&x[0], [rows, n_classes]), labels)
        };
        check(&operation, &[numbers(rows * n_classes, 0.0)], true)?;
    }

    #[test]
    fn embedding(batch in 1usize..4, len in 1usize..40, vocab in 1usize..30, d in 1usize..40) {
        let operation = |x: &[Tensor<1>]| {
            let ids: Vec<i64> = (0..batch * len).map(|i| (i * i % vocab) as i64).collect();
            let ids = Tensor::<2, Int>::from_data(TensorData::new(ids, [batch, len]), &x[0].device());
            ops::embedding(reshaped(&x[0], [vocab, d]), ids).reshape([-1])
        };
        check(&operation, &[numbers(vocab * d, 0.0)], true)?;
    }
}

/// Inputs, weight, and the initial states of an LSTM or GRU with so many gates, and its packing.
fn recurrent_inputs(lengths: &[usize], gates: usize, d: usize) -> (Vec<Vec<f32>>, Packing) {
    let packing = Packing::new(lengths);
    let width = gates * d;
    let weight = numbers(d * width, 0.1).iter().map(|w| w / (d as f32).sqrt()).collect();
    let states = lengths.len() * d;
    let inputs = vec![
        numbers(packing.n_tokens() * width, 0.0),
        weight,
        numbers(states, 0.2),
        numbers(states, 0.3),
        numbers(d, 0.4),
    ];
    (inputs, packing)
}

fn direction(reverse: bool) -> Direction {
    if reverse { Direction::Reverse } else { Direction::Forward }
}

/// States, last state and cell.
fn lstm_of(x: &[Tensor<1>], packing: &Packing, d: usize, initial: bool, reverse: bool) -> Tensor<1> {
    let n = packing.lengths().len();
    let inputs = reshaped(&x[0], [packing.n_tokens(), 4 * d]);
    let [hidden, cell] = [2, 3].map(|i| x.get(i).map(|x| reshaped(x, [n, d])));
    let initial = initial.then(|| LstmState { hidden: hidden.unwrap(), cell: cell.unwrap() });
    let y = ops::lstm(inputs, reshaped(&x[1], [d, 4 * d]), initial, packing, direction(reverse));
    Tensor::cat(vec![y.states, y.last.hidden, y.last.cell], 0).reshape([-1])
}

/// States and last state.
fn gru_of(x: &[Tensor<1>], packing: &Packing, d: usize, initial: bool, reverse: bool) -> Tensor<1> {
    let n = packing.lengths().len();
    let inputs = reshaped(&x[0], [packing.n_tokens(), 3 * d]);
    let initial = initial.then(|| reshaped(&x[3], [n, d]));
    let y = ops::gru(inputs, reshaped(&x[1], [d, 3 * d]), x[2].clone(), initial, packing, direction(reverse));
    Tensor::cat(vec![y.states, y.last], 0).reshape([-1])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn lstm(lengths in prop::collection::vec(1usize..9, 1..40), d in 1usize..24, initial: bool, reverse: bool) {
        let (mut inputs, packing) = recurrent_inputs(&lengths, 4, d);
        inputs.truncate(if initial { 4 } else { 2 });
        check(&|x| lstm_of(x, &packing, d, initial, reverse), &inputs, true)?;
    }

    #[test]
    fn gru(lengths in prop::collection::vec(1usize..9, 1..40), d in 1usize..24, initial: bool, reverse: bool) {
        let (mut inputs, packing) = recurrent_inputs(&lengths, 3, d);
        inputs.swap(2, 4);
        inputs.truncate(if initial { 4 } else { 3 });
        check(&|x| gru_of(x, &packing, d, initial, reverse), &inputs, true)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn additive_scores(batch in 1usize..5, q_len in 1usize..5, k_len in 1usize..9, d in 1usize..40) {
        let operation = |x: &[Tensor<1>]| {
            let query = reshaped(&x[0], [batch, q_len, d]);
            ops::additive_scores(query, reshaped(&x[1], [batch, k_len, d]), x[2].clone()).reshape([-1])
        };
        let inputs = [numbers(batch * q_len * d, 0.0), numbers(batch * k_len * d, 0.1), numbers(d, 0.2)];
        check(&operation, &inputs, true)?;
    }
}

/// States and contexts of a layer that attends.
fn attentive_of(x: &[Tensor<1>], lengths: [&[usize]; 2], [d, d_memory, d_key]: [usize; 3]) -> Tensor<1> {
    let [sources, targets] = lengths.map(Packing::new);
    let is_gru = x.len() == 10 && x[9].dims() == [0];
    let (n, n_memory) = (targets.lengths().len(), sources.n_tokens());
    let width = if is_gru { 3 } else { 4 } * d;
    let input = ops::AttentiveInput {
        inputs: reshaped(&x[0], [targets.n_tokens(), width]),
        memory: reshaped(&x[1], [n_memory, d_memory]),
        keys: reshaped(&x[2], [n_memory, d_key]),
        query: reshaped(&x[3], [d, d_key]),
        v: x[4].clone(),
        context: reshaped(&x[5], [d_memory, width]),
        recurrent: reshaped(&x[6], [d, width]),
        bias: is_gru.then(|| x[8].clone()),
        initial: ops::AttentiveState {
            hidden: reshaped(&x[7], [n, d]),
            cell: (!is_gru).then(|| reshaped(&x[8], [n, d])),
        },
    };
    ops::attentive(input, &sources, &targets).reshape([-1])
}

fn attentive_inputs(lengths: [&[usize]; 2], [d, d_memory, d_key]: [usize; 3], is_gru: bool) -> Vec<Vec<f32>> {
    let [n_memory, n_tokens] = lengths.map(|lengths| lengths.iter().sum::<usize>());
    let (n, width) = (lengths[0].len(), if is_gru { 3 } else { 4 } * d);
    let small = |n: usize, phase: f64, d: usize| -> Vec<f32> {
        numbers(n, phase).iter().map(|x| x / (d as f32).sqrt()).collect()
    };
    vec![
        numbers(n_tokens * width, 0.0),
        numbers(n_memory * d_memory, 0.1),
        numbers(n_memory * d_key, 0.2),
        small(d * d_key, 0.3, d),
        numbers(d_key, 0.4),
        small(d_memory * width, 0.5, d_memory),
        small(d * width, 0.6, d),
        numbers(n * d, 0.7),
        if is_gru { numbers(d, 0.8) } else { numbers(n * d, 0.8) },
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn attentive(
        lengths in prop::collection::vec((1usize..7, 1usize..7), 1..40), d in 1usize..20, d_memory in 1usize..20,
        d_key in 1usize..20, is_gru: bool,
    ) {
        let (sources, targets): (Vec<usize>, Vec<usize>) = lengths.into_iter().unzip();
        let (lengths, sizes) = ([&sources[..], &targets[..]], [d, d_memory, d_key]);
        let inputs = attentive_inputs(lengths, sizes, is_gru);
        let operation = |x: &[Tensor<1>]| {
            let mut x = x.to_vec();
            // What tells a GRU.
            x.extend(is_gru.then(|| Tensor::zeros([0], &x[0].device())));
            attentive_of(&x, lengths, sizes)
        };
        check(&operation, &inputs, true)?;
    }
}

#[test]
fn large_attentive_layers_give_the_same_bits_with_any_number_of_threads() {
    let sources: Vec<usize> = (0..70).map(|i| 1 + i * 5 % 7).collect();
    let targets: Vec<usize> = (0..70).map(|i| 1 + i * 7 % 5).collect();
    let lengths = [&sources[..], &targets[..]];
    let device = Device::flex().autodiff();
    for d in [64, 300] {
        let sizes = [d, 48, 40];
        let inputs = attentive_inputs(lengths, sizes, false);
        let operation = |x: &[Tensor<1>]| attentive_of(x, lengths, sizes);
        check(&operation, &inputs, false).unwrap();
        let [one, two, three] = [1, 2, 3].map(|threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| run(&operation, &inputs, &device))
        });
        assert!(one == two && one == three, "d = {d}");
    }
}

/// Of a weight that the cores share out, and one that groups of sequences have each.
#[test]
fn large_recurrent_layers() {
    let lengths: Vec<usize> = (0..70).map(|i| 1 + i * 7 % 5).collect();
    for d in [64, 300] {
        let (mut inputs, packing) = recurrent_inputs(&lengths, 4, d);
        inputs.truncate(4);
        check(&|x| lstm_of(x, &packing, d, true, true), &inputs, false).unwrap();
        let (mut inputs, packing) = recurrent_inputs(&lengths, 3, d);
        inputs.swap(2, 4);
        inputs.truncate(4);
        check(&|x| gru_of(x, &packing, d, true, false), &inputs, false).unwrap();
    }
}

#[test]
fn recurrent_layers_give_the_same_bits_with_any_number_of_threads() {
    let lengths: Vec<usize> = (0..70).map(|i| 1 + i * 7 % 5).collect();
    let device = Device::flex().autodiff();
    for d in [64, 300] {
        let (inputs, packing) = recurrent_inputs(&lengths, 4, d);
        let (mut of_gru, _) = recurrent_inputs(&lengths, 3, d);
        of_gru.swap(2, 4);
        let [one, two, three] = [1, 2, 3].map(|threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                [
                    run(&|x| lstm_of(x, &packing, d, true, false), &inputs[..4], &device),
                    run(&|x| gru_of(x, &packing, d, true, true), &of_gru[..4], &device),
                ]
            })
        });
        assert!(one == two && one == three, "d = {d}");
    }
}

/// In blocks of the size that they have outside of unit tests.
#[test]
fn long_attention() {
    let (n_heads, d) = (2, 8);
    for (q_len, k_len, causal, window) in
        [(700, 700, false, None), (600, 601, true, None), (900, 900, false, Some(37))]
    {
        let operation = |x: &[Tensor<1>]| {
            let heads = |x: &Tensor<1>, len: usize| reshaped(x, [1, len, n_heads, d]).swap_dims(1, 2);
            let [query, key, value] = [heads(&x[0], q_len), heads(&x[1], k_len), heads(&x[2], k_len)];
            let mut mask = AttentionMask::default();
            (mask.causal, mask.window) = (causal, window);
            ops::attention(query, key, value, &mask, 0.0).reshape([-1])
        };
        let [q, k] = [q_len, k_len].map(|len| len * n_heads * d);
        check(&operation, &[numbers(q, 0.0), numbers(k, 0.1), numbers(k, 0.2)], false).unwrap();
    }
}
