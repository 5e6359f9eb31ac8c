//! Tests a training step of a small BERT with this crate's operations: its number of kernel launches, and
//! that it learns.

use super::agreement::{alone, device};
use crate::{
    AdamStep, AttentionMask, Residual, SquaredSums, adamw, add_layer_norm, attention, composed_on_graphics,
    count_launches, cross_entropy, dropout, embedding, gelu, layer_norm, linear, linear_tied,
};
use burn::tensor::{Device, Distribution, Int, Tensor};
use std::mem::take;

const VOCAB: usize = 50;
const WIDTH: usize = 32;
const HEADS: usize = 2;
const LAYERS: usize = 2;
const BATCH: usize = 2;
const LEN: usize = 8;
const DROPOUT: f64 = 0.1;

/// A parameter's values as rows (a vector is one row), and its moments.
struct Parameter {
    value: Tensor<2>,
    moments: Option<[Tensor<1>; 2]>,
}

struct Bert {
    parameters: Vec<Parameter>,
    device: Device,
}

impl Bert {
    fn new(device: &Device) -> Self {
        let inner = device.clone().inner();
        let matrix = |[rows, columns]: [usize; 2]| {
            Tensor::random([rows, columns], Distribution::Normal(0.0, 0.1), &inner)
        };
        let norm = || [Tensor::ones([1, WIDTH], &inner), Tensor::zeros([1, WIDTH], &inner)];
        let mut values = [[VOCAB, WIDTH], [LEN, WIDTH], [2, WIDTH]].map(matrix).to_vec();
        let linears = [[WIDTH, 3 * WIDTH], [WIDTH, WIDTH], [WIDTH, 4 * WIDTH], [4 * WIDTH, WIDTH]];
        for _ in 0..LAYERS {
            values.extend(
                linears.into_iter().flat_map(|[rows, columns]| [[rows, columns], [1, columns]]).map(matrix),
            );
            values.extend(norm().into_iter().chain(norm()));
        }
        values.extend([[WIDTH, WIDTH], [1, WIDTH], [1, VOCAB]].map(matrix));
        values.extend(norm().into_iter().chain(norm()));
        let parameters = values.into_iter().map(|value| Parameter { value, moments: None }).collect();
        Self { parameters, device: device.clone() }
    }

    /// The loss of masked tokens, whose gradient is taken of `parameters`.
    fn loss(&self, parameters: &[Tensor<2>]) -> Tensor<1> {
        let device = &self.device;
        let mut rest = parameters.iter().cloned();
        let mut matrix = || rest.next().expect("as many parameters as are used");
        let ids = |f: fn(usize) -> usize| {
            let ids: Vec<i32> = (0..BATCH * LEN).map(|i| f(i) as i32).collect();
            Tensor::<1, Int>::from_data(ids.as_slice(), device).reshape([BATCH, LEN])
        };
        let vector = |x: Tensor<2>| x.flatten::<1>(0, 1);
        let table = matrix();
        let states = embedding(table.clone(), ids(|i| i * 7 % VOCAB))
            + embedding(matrix(), ids(|i| i % LEN))
            + embedding(matrix(), ids(|_| 0));
        let mut layers: Vec<Vec<Tensor<2>>> = Vec::new();
        for _ in 0..LAYERS {
            layers.push((0..12).map(|_| matrix()).collect());
        }
        let [transform, transform_bias, output_bias] = [(); 3].map(|()| matrix());
        let [gamma, beta, head_gamma, head_beta] = [(); 4].map(|()| vector(matrix()));
        let mut states = dropout(layer_norm(states, gamma, beta, 1e-12), DROPOUT);
        for layer in layers {
            let mut rest = layer.into_iter();
            let mut matrix = || rest.next().expect("twelve a layer");
            let packed = linear(states.clone(), matrix(), Some(vector(matrix())));
            let heads = packed.reshape([BATCH, LEN, 3 * HEADS, WIDTH / HEADS]).swap_dims(1, 2);
            let [query, key, value] = [0, 1, 2].map(|i| heads.clone().narrow(1, i * HEADS, HEADS));
            let mixed = attention(query, key, value, &AttentionMask::default(), DROPOUT);
            let mixed = mixed.swap_dims(1, 2).reshape([BATCH, LEN, WIDTH]);
            let mixed = linear(mixed, matrix(), Some(vector(matrix())));
            let [up, up_bias, down, down_bias] = [(); 4].map(|()| matrix());
            let mut norm = |x, input| {
                let (gamma, beta) = (vector(matrix()), vector(matrix()));
                add_layer_norm(x, Residual { input, dropout: DROPOUT }, gamma, beta, 1e-12)
            };
            let between = norm(mixed, states);
            let wide = gelu(linear(between.clone(), up, Some(vector(up_bias))));
            states = norm(linear(wide, down, Some(vector(down_bias))), between);
        }
        let masked = states.reshape([BATCH * LEN, WIDTH]).narrow(0, 3, 5);
        let masked = gelu(linear(masked, transform, Some(vector(transform_bias))));
        let masked = layer_norm(masked, head_gamma, head_beta, 1e-12);
        let logits = linear_tied(masked, table, Some(vector(output_bias)));
        let labels = Tensor::<1, Int>::from_data([3, 1, 4, 1, 5], device);
        cross_entropy(logits, labels).mean()
    }

    /// Runs one training step and returns the loss.
    fn step(&mut self, step: u64) -> f32 {
        let leaves = self.parameters.iter();
        let leaves: Vec<Tensor<2>> =
            leaves.map(|parameter| Tensor::from_inner(parameter.value.clone()).require_grad()).collect();
        let loss = self.loss(&leaves);
        let grads = loss.backward();
        let gradients: Vec<Tensor<2>> =
            leaves.iter().map(|leaf| leaf.grad(&grads).expect("all are used")).collect();
        drop((grads, leaves));
        let mut squares = SquaredSums::default();
        gradients.iter().for_each(|gradient| squares.push(gradient.clone()));
        let norm = squares.total().sqrt();
        let constants = AdamStep {
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-6,
            weight_decay: 0.01,
            lr: 3e-3,
            scale: (1.0 / norm).min(1.0),
            step,
        };
        for (parameter, gradient) in take(&mut self.parameters).into_iter().zip(gradients) {
            let shape = parameter.value.dims();
            let Parameter { value, moments } = parameter;
            let (value, moments) = adamw(value.reshape([-1]), gradient.reshape([-1]), moments, constants);
            self.parameters.push(Parameter { value: value.reshape(shape), moments: Some(moments) });
        }
        loss.into_scalar::<f32>()
    }
}

/// The losses of a few steps, and the launches of the last.
fn trained(device: &Device) -> (Vec<f32>, usize) {
    device.seed(7);
    let mut bert = Bert::new(device);
    let mut losses: Vec<f32> = (1..6).map(|step| bert.step(step)).collect();
    let (last, launches) = count_launches(device, || bert.step(6));
    losses.push(last);
    for (kernel, count) in &launches {
        println!("{count:5} {kernel}");
    }
    (losses, launches.values().sum())
}

#[test]
fn a_step_launches_a_third_of_the_kernels_and_learns_as_well() {
    let _alone = alone();
    let device = device();
    let (losses, launches) = trained(&device);
    let (composed, composed_launches) = composed_on_graphics(|| trained(&device));
    println!("{launches} kernels a step with this crate's, {composed_launches} composed");
    for losses in [&losses, &composed] {
        assert!(losses[5] < losses[0] - 0.1, "{losses:?}");
    }
    assert!(3 * launches <= composed_launches, "{launches} kernels, {composed_launches} composed");
}
