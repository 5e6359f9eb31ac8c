//! A reference implementation of the paper's equations in plain loops over 64-bit numbers, without tensors.

use super::ConvolutionalEncoderDecoderConfig;
use crate::weights::NamedTensors;
use std::collections::BTreeMap;

type Vector = Vec<f64>;

/// Parameters by their paths, each with the length of its last axis.
#[derive(Clone)]
pub(super) struct Reference<'a> {
    pub config: &'a ConvolutionalEncoderDecoderConfig,
    pub parameters: BTreeMap<String, (usize, Vector)>,
}

/// `(x + y) · √½`
fn halved(x: &[f64], y: &[f64]) -> Vector {
    x.iter().zip(y).map(|(x, y)| (x + y) * 0.5f64.sqrt()).collect()
}

fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

impl<'a> Reference<'a> {
    pub fn new(config: &'a ConvolutionalEncoderDecoderConfig, parameters: &NamedTensors) -> Self {
        let parameter = |(path, data): (&String, &burn::tensor::TensorData)| {
            let width = *data.shape().as_slice().last().unwrap();
            (path.clone(), (width, data.iter::<f64>().collect()))
        };
        Self { config, parameters: parameters.iter().map(parameter).collect() }
    }

    fn row(&self, table: &str, row: usize) -> &[f64] {
        let (width, values) = &self.parameters[table];
        &values[row * width..(row + 1) * width]
    }

    /// `x·(g · V / ‖V‖) + b`
    fn normed(&self, map: &str, x: &[f64]) -> Vector {
        let (width, v) = &self.parameters[&format!("{map}.v")];
        let (g, b) = (&self.parameters[&format!("{map}.g")].1, &self.parameters[&format!("{map}.bias")].1);
        assert_eq!(v.len(), x.len() * width);
        let output = |j: usize| {
            let column: Vector = (0..x.len()).map(|i| v[i * width + j]).collect();
            b[j] + g[j] * dot(x, &column) / dot(&column, &column).sqrt()
        };
        (0..*width).map(output).collect()
    }

    /// `v(W X + b)` at each token, with windows that begin `before` tokens earlier.
    fn convolved(&self, map: &str, x: &[Vector], kernel: usize, before: usize) -> Vec<Vector> {
        let at = |token: usize| {
            let mut window = Vec::new();
            for place in 0..kernel {
                let seen = (token + place) as i64 - before as i64;
                match usize::try_from(seen).ok().and_then(|seen| x.get(seen)) {
                    Some(x) => window.extend(x),
                    None => window.extend(vec![0.0; x[0].len()]),
                }
            }
            let y = self.normed(map, &window);
            let (a, b) = y.split_at(y.len() / 2);
            a.iter().zip(b).map(|(a, b)| a / (1.0 + (-b).exp())).collect()
        };
        (0..x.len()).map(at).collect()
    }

    fn embedded(&self, ids: &[i32], side: &str) -> Vec<Vector> {
        let own = format!("{side}_embedding.weight");
        let table = if self.parameters.contains_key(&own) { own } else { "target_embedding.weight".into() };
        let positions = format!("{side}_positions.weight");
        let sum = |(position, id): (usize, &i32)| {
            let (word, place) = (self.row(&table, *id as usize), self.row(&positions, position));
            word.iter().zip(place).map(|(w, p)| w + p).collect()
        };
        ids.iter().enumerate().map(sum).collect()
    }

    /// The encoder's outputs `z`.
    pub fn outputs(&self, source: &[i32]) -> Vec<Vector> {
        let kernel = self.config.encoder_kernel;
        let embedded = self.embedded(source, "source");
        let mut x: Vec<Vector> = embedded.iter().map(|e| self.normed("encoder_input", e)).collect();
        for layer in 0..self.config.n_encoder_layers {
            let y = self.convolved(&format!("encoder.{layer}.map"), &x, kernel, (kernel - 1) / 2);
            x = y.iter().zip(&x).map(|(y, x)| halved(y, x)).collect();
        }
        x.iter().map(|x| self.normed("encoder_output", x)).collect()
    }

    /// The logits at each target token of one sentence.
    ///
    /// With encoder outputs `base`, changes of them by these parameters are scaled by `1 / (2 · layers)`: the
    /// slope then matches the model's gradient.
    pub fn logits(&self, source: &[i32], target: &[i32], base: Option<&[Vector]>) -> Vec<Vector> {
        let n_layers = self.config.n_decoder_layers;
        let mut outputs = self.outputs(source);
        if let Some(base) = base {
            let less = |(z, base): (&f64, &f64)| base + (z - base) / (2 * n_layers) as f64;
            let pairs = outputs.iter().zip(base);
            outputs = pairs.map(|(z, base)| z.iter().zip(base).map(less).collect()).collect();
        }
        let embedded = self.embedded(source, "source");
        let values: Vec<Vector> = outputs.iter().zip(&embedded).map(|(z, e)| halved(z, e)).collect();
        let of_target = self.embedded(target, "target");
        let mut x: Vec<Vector> = of_target.iter().map(|e| self.normed("decoder_input", e)).collect();
        let kernel = self.config.decoder_kernel;
        for layer in 0..n_layers {
            let path = format!("decoder.{layer}");
            let states = self.convolved(&format!("{path}.convolution.map"), &x, kernel, kernel - 1);
            for (token, state) in states.iter().enumerate() {
                let query =
                    halved(&self.normed(&format!("{path}.attention.query"), state), &of_target[token]);
                let scores: Vector = outputs.iter().map(|z| dot(&query, z).exp()).collect();
                let total: f64 = scores.iter().sum();
                let mut context = vec![0.0; query.len()];
                for (score, value) in scores.iter().zip(&values) {
                    let weight = score / total * (source.len() as f64) * (1.0 / source.len() as f64).sqrt();
                    context.iter_mut().zip(value).for_each(|(sum, value)| *sum += weight * value);
                }
                let mapped = self.normed(&format!("{path}.attention.output"), &context);
                x[token] = halved(&halved(&mapped, state), &x[token]);
            }
        }
        x.iter().map(|x| self.projected(&self.normed("readout", x))).collect()
    }

    fn projected(&self, read: &[f64]) -> Vector {
        match self.parameters.get("output_bias") {
            Some((_, bias)) => {
                let logit =
                    |(id, bias): (usize, &f64)| bias + dot(read, self.row("target_embedding.weight", id));
                bias.iter().enumerate().map(logit).collect()
            }
            None => self.normed("output", read),
        }
    }
}
