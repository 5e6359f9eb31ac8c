//! An encoder of floats, observed where one of integers rounds.

use super::parts::symmetric_scale;
use super::{
    IntegerClassifierParts, IntegerLayerParts, IntegerLayerScales, IntegerMap, IntegerNorm, IntegerParts,
    IntegerTable,
};
use crate::bert::{Bert, BertConfig};
use crate::blocks::{Linear, Positions};
use crate::ops;
use crate::ops::integer_only::{IntegerExponential, IntegerTanh};
use burn::module::Param;
use burn::tensor::activation::softmax;
use burn::tensor::{DType, Int, Tensor, TensorData};

/// A place where numbers become integers, with the number of its layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IntegerSite {
    /// The sum of embeddings.
    Sum,
    /// The normalised sum.
    Embedded,
    /// The queries of a layer.
    Query(usize),
    /// The keys.
    Key(usize),
    /// The values.
    Value(usize),
    /// The contexts of the attention.
    Context(usize),
    /// What is normalised after the attention.
    AttentionSum(usize),
    /// The normalised states.
    Attention(usize),
    /// The outputs of GELU.
    Gelu(usize),
    /// What is normalised after the feed-forward network.
    FeedForwardSum(usize),
    /// The layer's output.
    Output(usize),
    /// The output of a classifier's dense layer, before tanh.
    Pooled,
}

impl IntegerSite {
    /// The bits of its integers (I-BERT, figure 1).
    pub fn bits(self) -> u32 {
        match self {
            Self::Sum | Self::Pooled => 16,
            Self::AttentionSum(_) | Self::FeedForwardSum(_) => 22,
            _ => 8,
        }
    }
}

/// A linear map in floats.
#[derive(Debug, Clone, PartialEq)]
pub struct FloatMap {
    /// `[d_out, d_in]`
    pub rows: Vec<f32>,
    /// `[d_out, d_in]`
    pub dims: [usize; 2],
    /// `[d_out]`
    pub bias: Vec<f32>,
}

/// A head over the first state in floats: a dense layer, tanh and an output layer.
#[derive(Debug, Clone, PartialEq)]
pub struct FloatHead {
    /// `[d_model, d_model]`
    pub dense: FloatMap,
    /// `[n_outputs, d_model]`
    pub output: FloatMap,
}

impl FloatMap {
    fn of(linear: &Linear) -> Self {
        let [d_in, d_out] = linear.weight.dims();
        let bias =
            linear.bias.as_ref().map_or_else(|| vec![0.0; d_out], |bias| floats(bias.val().into_data()));
        Self { rows: floats(linear.weight.val().transpose().into_data()), dims: [d_out, d_in], bias }
    }

    fn apply(&self, x: &[f32]) -> Vec<f32> {
        let rows = self.rows.chunks_exact(self.dims[1].max(1)).zip(&self.bias);
        rows.map(|(row, bias)| bias + row.iter().zip(x).map(|(w, x)| w * x).sum::<f32>()).collect()
    }

    fn rounded(&self, input_scale: f64) -> Result<IntegerMap, String> {
        IntegerMap::new(&self.rows, self.dims, &self.bias, input_scale)
    }
}

/// Computes a sequence in floats and hands over the numbers of every [site](IntegerSite).
///
/// # Shapes
/// - `ids`, `token_types`: `[1, len]`
///
/// # Panics
/// If the encoder is not one that [`check_integer_only`](crate::huggingface::check_integer_only) passes.
pub fn observe_sites(
    bert: &Bert,
    config: &BertConfig,
    head: Option<&FloatHead>,
    [ids, token_types]: [Tensor<2, Int>; 2],
    observer: &mut impl FnMut(IntegerSite, &[f32]),
) {
    let mut see = |site, x: &Tensor<3>| observer(site, &floats(x.to_data()));
    let embeddings = &bert.embeddings;
    let table = embeddings.token_types.as_ref().expect("token types");
    let types = if config.n_token_types == 1 { token_types.zeros_like() } else { token_types };
    let sum = embeddings.tokens.forward(ids) + table.forward(types);
    let sum = embeddings.positions.as_ref().expect("positions").add_to(sum, None);
    see(IntegerSite::Sum, &sum);
    let mut x = embeddings.norm.as_ref().expect("a norm").forward(sum);
    see(IntegerSite::Embedded, &x);
    let [_, len, d] = x.dims();
    let (n_heads, d_head) = (config.n_heads, d / config.n_heads);
    let heads = |x: Tensor<3>| x.reshape([1, len, n_heads, d_head]).swap_dims(1, 2);
    for (i, layer) in bert.encoder.layers.iter().enumerate() {
        let attention = &layer.attention;
        let mut projected = |linear: &Linear, site| {
            let y = linear.forward(x.clone());
            see(site, &y);
            heads(y)
        };
        let query = projected(&attention.query, IntegerSite::Query(i));
        let key = projected(&attention.key, IntegerSite::Key(i));
        let value = projected(&attention.value, IntegerSite::Value(i));
        let scores = query.matmul(key.transpose()).div_scalar((d_head as f64).sqrt());
        let context = softmax(scores, 3).matmul(value).swap_dims(1, 2).reshape([1, len, d]);
        see(IntegerSite::Context(i), &context);
        let sum = attention.output.forward(context) + x;
        see(IntegerSite::AttentionSum(i), &sum);
        let attended = layer.attention_norm.as_ref().expect("a norm").forward(sum);
        see(IntegerSite::Attention(i), &attended);
        let inner = ops::gelu(layer.feed_forward.up.forward(attended.clone()));
        see(IntegerSite::Gelu(i), &inner);
        let sum = layer.feed_forward.down.forward(inner) + attended;
        see(IntegerSite::FeedForwardSum(i), &sum);
        x = layer.feed_forward_norm.forward(sum);
        see(IntegerSite::Output(i), &x);
    }
    if let Some(head) = head {
        let first = floats(x.narrow(1, 0, 1).into_data());
        observer(IntegerSite::Pooled, &head.dense.apply(&first));
    }
}

impl IntegerParts {
    /// The parts of an encoder of floats, and of its head, for the greatest magnitude of each [site](IntegerSite).
    ///
    /// The scales of queries and keys are made as large as the exponentials of their products ask for, and so is that of
    /// what tanh gets.
    ///
    /// # Errors
    /// One line with the part, for numbers that are not finite.
    ///
    /// # Panics
    /// As [`observe_sites`].
    pub fn of_floats(
        bert: &Bert,
        config: &BertConfig,
        head: Option<&FloatHead>,
        most: impl Fn(IntegerSite) -> f64,
    ) -> Result<Self, String> {
        // As the file has them, in single precision.
        let scale = |site: IntegerSite| f64::from(symmetric_scale(most(site), site.bits()) as f32);
        let table = |name: &str, data: TensorData| {
            let dims = [data.shape()[0], data.shape()[1]];
            IntegerTable::new(&floats(data), dims).map_err(|reason| format!("{name}: {reason}"))
        };
        let embeddings = &bert.embeddings;
        let token_types = embeddings.token_types.as_ref().expect("token types");
        let positions = embeddings.positions.as_ref().expect("positions");
        let of_embeddings = embeddings.norm.as_ref().expect("a norm");
        let of_embeddings = norm(&of_embeddings.gamma, of_embeddings.beta.as_ref());
        let output_scale = scale(IntegerSite::Embedded);
        let mut input_scale = output_scale;
        let mut layers = Vec::new();
        let d_head = config.d_model / config.n_heads;
        for (i, layer) in bert.encoder.layers.iter().enumerate() {
            let attention = scale(IntegerSite::Attention(i));
            let gelu = scale(IntegerSite::Gelu(i));
            let [query, key] = {
                let [query, key] = [scale(IntegerSite::Query(i)), scale(IntegerSite::Key(i))];
                let of_scores = query * key / (d_head as f64).sqrt();
                let more = (1.01 * IntegerExponential::LEAST_SCALE / of_scores).max(1.0).sqrt();
                [query, key].map(|scale| f64::from((scale * more) as f32))
            };
            let scales = IntegerLayerScales {
                query,
                key,
                value: scale(IntegerSite::Value(i)),
                exponentials: None,
                context: scale(IntegerSite::Context(i)),
                attention_sum: scale(IntegerSite::AttentionSum(i)),
                attention,
                feed_forward_input: attention,
                gelu,
                inner: gelu,
                feed_forward_sum: scale(IntegerSite::FeedForwardSum(i)),
                output: scale(IntegerSite::Output(i)),
            };
            let map = |name: &str, linear: &Linear, input_scale| {
                FloatMap::of(linear)
                    .rounded(input_scale)
                    .map_err(|reason| format!("layer {i}, {name}: {reason}"))
            };
            let of_attention = layer.attention_norm.as_ref().expect("a norm");
            let of_attention = norm(&of_attention.gamma, of_attention.beta.as_ref());
            let (maps, network) = (&layer.attention, &layer.feed_forward);
            layers.push(IntegerLayerParts {
                query: map("query", &maps.query, input_scale)?,
                key: map("key", &maps.key, input_scale)?,
                value: map("value", &maps.value, input_scale)?,
                output: map("output", &maps.output, scales.context)?,
                attention_norm: of_attention,
                up: map("up", &network.up, attention)?,
                down: map("down", &network.down, gelu)?,
                feed_forward_norm: norm(
                    &layer.feed_forward_norm.gamma,
                    layer.feed_forward_norm.beta.as_ref(),
                ),
                scales,
            });
            input_scale = scales.output;
        }
        let classifier = head.map(|head| {
            let least = 0.51 * IntegerExponential::LEAST_SCALE;
            Ok::<_, String>(IntegerClassifierParts {
                dense: head.dense.rounded(input_scale)?,
                dense_scale: scale(IntegerSite::Pooled).max(f64::from(least as f32)),
                output: head.output.rounded(IntegerTanh::OUTPUT_SCALE)?,
            })
        });
        Ok(Self {
            n_heads: config.n_heads,
            position_offset: config.position_offset,
            tables: [
                table("pieces", embeddings.tokens.weight.val().into_data())?,
                table("token types", token_types.weight.val().into_data())?,
                table("positions", positions.table.weight.val().into_data())?,
            ],
            norm: of_embeddings,
            sum_scale: scale(IntegerSite::Sum),
            output_scale,
            layers,
            classifier: classifier.transpose()?,
        })
    }
}

fn floats(data: TensorData) -> Vec<f32> {
    data.convert_dtype(DType::F32).try_into_vec::<f32>().expect("just converted")
}

fn norm(gamma: &Param<Tensor<1>>, beta: Option<&Param<Tensor<1>>>) -> IntegerNorm {
    let wide =
        |of: &Param<Tensor<1>>| floats(of.val().into_data()).into_iter().map(f64::from).collect::<Vec<_>>();
    let gamma = wide(gamma);
    let beta = beta.map_or_else(|| vec![0.0; gamma.len()], wide);
    IntegerNorm { gamma, beta, shift: 0 }
}
