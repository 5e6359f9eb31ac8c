use super::model::first_states;
use super::{Bert, BertInput, integer_only};
use crate::blocks::{Attention, EncoderTrace, Positions};
use crate::ops::{Packing, is_fused};
use crate::{ModelError, Result};
use burn::tensor::{Bool, Device, Int, Tensor, TensorData};
use serde::{Deserialize, Serialize};
use std::fmt;

/// How a sequence's states are pooled into one vector. Padding never counts; special tokens always
/// do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Pooling {
    /// The mean over all tokens (Reimers & Gurevych 2019).
    Mean,
    /// The first token's state.
    Cls,
    /// The maximum of each feature over all tokens.
    Max,
    /// The sum over all tokens, divided by the square root of their number.
    MeanSqrtLen,
    /// The mean over all tokens with weights 1, 2, 3 and so on, in order (Muennighoff 2022).
    WeightedMean,
    /// The last token's state.
    LastToken,
}

impl Pooling {
    /// One vector per sequence, from padded or packed states.
    ///
    /// # Shapes
    /// - `states`: `[batch, len, d_model]`, packed if `packing` is given; `pad_mask`: `[batch, len]`, `true` = ignored;
    ///   returns `[sequences, d_model]`
    pub fn forward(
        self,
        states: Tensor<3>,
        pad_mask: Option<Tensor<2, Bool>>,
        packing: Option<&Packing>,
    ) -> Tensor<2> {
        self.after(0, states, pad_mask, packing)
    }

    /// The same with each sequence's first `skipped` tokens left out, but never the last one. Pooling by the
    /// first token's state is unaffected.
    fn after(
        self,
        skipped: usize,
        states: Tensor<3>,
        pad_mask: Option<Tensor<2, Bool>>,
        packing: Option<&Packing>,
    ) -> Tensor<2> {
        match (self, packing) {
            (Self::Cls, packing) => first_states(states, packing),
            (Self::LastToken, Some(packing)) => {
                let ends = packing.starts().zip(packing.lengths());
                let ends: Vec<i32> = ends.map(|(start, len)| (start + len - 1) as i32).collect();
                let ends = Tensor::<1, Int>::from_data(ends.as_slice(), &states.device());
                states.squeeze_dim::<2>(0).select(0, ends)
            }
            (Self::Max, Some(packing)) => {
                // Places without a token that counts take one that does, which does not change the maximum.
                let spans = packing.starts().zip(packing.lengths());
                let tokens = spans.flat_map(|(start, len)| {
                    let first = skipped.min(len - 1);
                    (0..packing.longest()).map(move |place| (start + place.clamp(first, len - 1)) as i32)
                });
                let tokens: Vec<i32> = tokens.collect();
                let tokens = Tensor::<1, Int>::from_data(tokens.as_slice(), &states.device());
                let [_, _, d_model] = states.dims();
                let shape = [packing.lengths().len(), packing.longest(), d_model];
                states.squeeze_dim::<2>(0).select(0, tokens).reshape(shape).max_dim(1).squeeze_dim::<2>(1)
            }
            (Self::Max, None) => {
                let [batch, len, _] = states.dims();
                let ignored = match skipped {
                    0 => pad_mask,
                    _ => Some(kept_after(skipped, [batch, len], pad_mask, &states.device()).equal_elem(0.0)),
                };
                let states = match ignored {
                    Some(ignored) => {
                        let ignored = ignored.unsqueeze_dim::<3>(2).expand(states.dims());
                        states.mask_fill(ignored, f32::MIN)
                    }
                    None => states,
                };
                states.max_dim(1).squeeze_dim::<2>(1)
            }
            // A product of its own: in one of all sequences the sum over all tokens is cut where no sequence ends, and a
            // sequence's bits would depend on those before it.
            (_, Some(packing)) if is_fused(&states.device()) && !states.device().is_autodiff() => {
                let (device, tokens) = (states.device(), states.squeeze_dim::<2>(0));
                let pooled = packing.starts().zip(packing.lengths()).map(|(start, len)| {
                    let weights: Vec<f32> =
                        (1..=*len).map(|number| self.weight(number, skipped, *len)).collect();
                    let weights = Tensor::<2>::from_data(TensorData::new(weights, [1, *len]), &device);
                    weights.matmul(tokens.clone().narrow(0, start, *len))
                });
                Tensor::cat(pooled.collect(), 0)
            }
            (_, Some(packing)) => {
                let n_tokens = packing.n_tokens();
                // A product with a matrix whose rows hold each sequence's weights of the tokens.
                let mut weights = vec![0f32; packing.lengths().len() * n_tokens];
                let spans = packing.starts().zip(packing.lengths());
                for ((start, len), row) in spans.zip(weights.chunks_exact_mut(n_tokens)) {
                    let weights = row[start..start + len].iter_mut().zip(1..);
                    weights.for_each(|(weight, number)| *weight = self.weight(number, skipped, *len));
                }
                let weights = TensorData::new(weights, [packing.lengths().len(), n_tokens]);
                Tensor::<2>::from_data(weights, &states.device()).matmul(states.squeeze_dim::<2>(0))
            }
            (_, None) => {
                let [batch, len, _] = states.dims();
                let weights = self.padded_weights(skipped, [batch, len], pad_mask, &states.device());
                (states * weights.unsqueeze_dim::<3>(2)).sum_dim(1).squeeze_dim::<2>(1)
            }
        }
    }

    /// The weight of the `number`-th token, counted from 1, of `len`, for the poolings that are weighted sums.
    fn weight(self, number: usize, skipped: usize, len: usize) -> f32 {
        let skipped = skipped.min(len - 1);
        if number <= skipped {
            return 0.0;
        }
        let sum_to = |n: usize| n * (n + 1) / 2;
        match self {
            Self::MeanSqrtLen => 1.0 / ((len - skipped) as f32).sqrt(),
            Self::WeightedMean => number as f32 / (sum_to(len) - sum_to(skipped)) as f32,
            Self::LastToken => f32::from(u8::from(number == len)),
            Self::Mean | Self::Cls | Self::Max => 1.0 / (len - skipped) as f32,
        }
    }

    /// The weights for padded sequences, `[batch, len]`, with padding anywhere.
    fn padded_weights(
        self,
        skipped: usize,
        shape: [usize; 2],
        pad_mask: Option<Tensor<2, Bool>>,
        device: &Device,
    ) -> Tensor<2> {
        let kept = kept_after(skipped, shape, pad_mask.clone(), device);
        let numbers = || numbers(shape, pad_mask, device) * kept.clone();
        match self {
            Self::MeanSqrtLen => kept.clone() / kept.sum_dim(1).sqrt(),
            Self::WeightedMean => {
                let numbers = numbers();
                numbers.clone() / numbers.sum_dim(1)
            }
            Self::LastToken => {
                let numbers = numbers();
                numbers.clone().equal(numbers.max_dim(1).expand(shape)).float()
            }
            Self::Mean | Self::Cls | Self::Max => kept.clone() / kept.sum_dim(1),
        }
    }
}

/// 1 for each token of padded sequences, 0 for padding, `[batch, len]`.
fn kept(shape: [usize; 2], pad_mask: Option<Tensor<2, Bool>>, device: &Device) -> Tensor<2> {
    match pad_mask {
        Some(ignored) => ignored.bool_not().float(),
        None => Tensor::ones(shape, device),
    }
}

/// Each token's number from 1 in padded sequences, and 0 for padding, which may precede the first token.
fn numbers(shape @ [_, len]: [usize; 2], pad_mask: Option<Tensor<2, Bool>>, device: &Device) -> Tensor<2> {
    let kept = kept(shape, pad_mask, device);
    let places = Tensor::<1, Int>::arange(1..len as i64 + 1, device).float().unsqueeze_dim::<2>(0);
    let after = places.clone().neg() + (len + 1) as f32;
    let before = (kept.clone() * after).max_dim(1).neg() + len as f32;
    (places - before) * kept
}

/// As [`kept`], with 0 for each sequence's first `skipped` tokens, but never for the last one.
fn kept_after(
    skipped: usize,
    shape: [usize; 2],
    pad_mask: Option<Tensor<2, Bool>>,
    device: &Device,
) -> Tensor<2> {
    if skipped == 0 {
        return kept(shape, pad_mask, device);
    }
    let numbers = numbers(shape, pad_mask, device);
    let last = numbers.clone().equal(numbers.clone().max_dim(1).expand(shape));
    numbers.greater_elem(skipped as f32).bool_or(last).float()
}

/// How a sequence's embedding is made: one or more poolings, applied to the states of each of the last
/// layers, concatenated.
///
/// An embedding has `poolings · layers · d_model` features. A pooling's layers are concatenated with the deepest last,
/// as in `torch.cat(hidden_states[-4:], dim=-1)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentencePooling {
    poolings: Vec<Pooling>,
    layers: usize,
    /// Number of initial tokens left out.
    skipped: usize,
}

/// Its poolings by sentence-transformers' names, and the layers if more than the last.
impl fmt::Display for SentencePooling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |pooling: &Pooling| match pooling {
            Pooling::Mean => "mean",
            Pooling::Cls => "cls",
            Pooling::Max => "max",
            Pooling::MeanSqrtLen => "mean_sqrt_len_tokens",
            Pooling::WeightedMean => "weightedmean",
            Pooling::LastToken => "lasttoken",
        };
        let names: Vec<&str> = self.poolings.iter().map(name).collect();
        f.write_str(&names.join("+"))?;
        match self.layers {
            1 => Ok(()),
            layers => write!(f, " of the last {layers} layers"),
        }
    }
}

impl SentencePooling {
    /// The mean over all tokens of the last four layers' states, concatenated: `4 · d_model` features. The
    /// best way to use BERT without training in Devlin et al. 2019, table 7.
    pub fn last4() -> Self {
        Self { poolings: vec![Pooling::Mean], layers: 4, skipped: 0 }
    }

    /// Poolings of the last states, concatenated in this order.
    ///
    /// # Errors
    /// [`ModelError::Config`] if there are none.
    pub fn concatenated(poolings: Vec<Pooling>) -> Result<Self> {
        match poolings.is_empty() {
            true => Err(ModelError::Config("an embedding needs at least one pooling".into())),
            false => Ok(Self { poolings, layers: 1, skipped: 0 }),
        }
    }

    /// The same without each sequence's first `n` tokens, such as a prompt's, but never without the last one
    /// (sentence-transformers' `include_prompt = false`). A [weighted mean](Pooling::WeightedMean) still
    /// counts them.
    ///
    /// # Errors
    /// [`ModelError::Config`] for the first token's state: sentence-transformers 6 uses the first token after
    /// the prompt, and earlier versions the first token.
    pub fn after(self, n: usize) -> Result<Self> {
        match n > 0 && self.poolings.contains(&Pooling::Cls) {
            true => Err(ModelError::Config(
                "pooling of the first token without the prompt (`include_prompt`: false) means different tokens to \
                 sentence-transformers 5 and 6; expected another pooling, or no prompt"
                    .into(),
            )),
            false => Ok(Self { skipped: n, ..self }),
        }
    }

    /// The poolings, in the order in which they are concatenated.
    pub fn poolings(&self) -> &[Pooling] {
        &self.poolings
    }

    /// The number of last layers whose states are pooled.
    pub fn layers(&self) -> usize {
        self.layers
    }

    /// Features of an embedding for states of `d_model`.
    pub fn width(&self, d_model: usize) -> usize {
        self.poolings.len() * self.layers * d_model
    }

    /// Checks that an encoder of `n_layers` layers has enough layers.
    ///
    /// # Errors
    /// [`ModelError::Config`] if it has too few.
    pub fn check(&self, n_layers: usize) -> Result<()> {
        match n_layers < self.layers {
            true => Err(ModelError::Config(format!(
                "pooling of the last {} layers, but the model has {n_layers}",
                self.layers
            ))),
            false => Ok(()),
        }
    }

    /// The embeddings of a batch.
    ///
    /// # Shapes
    /// - returns `[sequences, width]`
    ///
    /// # Panics
    /// If the encoder has too few [layers](Self::check).
    pub fn forward<A: Attention, P: Positions>(&self, bert: &Bert<A, P>, mut input: BertInput) -> Tensor<2> {
        if let Some(bert) = &bert.integer_only {
            return integer_only::pooled(bert, input, &self.poolings, self.layers, self.skipped);
        }
        if self.poolings == [Pooling::Cls] && self.layers == 1 {
            return bert.first_states(input);
        }
        let (pad_mask, packing) = (input.pad_mask.clone(), input.packing.clone());
        let layers = match self.layers {
            1 => vec![bert.forward(input).last_hidden_state],
            n => {
                input.trace = EncoderTrace { hidden_states: true, ..EncoderTrace::default() };
                let mut states = bert.forward(input).hidden_states;
                // The first hidden state is the embeddings', not a layer's.
                assert!(states.len() > n, "the encoder has {n} layers");
                states.split_off(states.len() - n)
            }
        };
        let one = |(pooling, states): (&Pooling, &Tensor<3>)| {
            pooling.after(self.skipped, states.clone(), pad_mask.clone(), packing.as_ref())
        };
        let parts =
            self.poolings.iter().flat_map(|pooling| layers.iter().map(move |states| (pooling, states)));
        let mut parts: Vec<Tensor<2>> = parts.map(one).collect();
        match parts.len() {
            1 => parts.remove(0),
            _ => Tensor::cat(parts, 1),
        }
    }
}

impl From<Pooling> for SentencePooling {
    fn from(pooling: Pooling) -> Self {
        Self { poolings: vec![pooling], layers: 1, skipped: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ParamInit;
    use crate::bert::BertConfig;
    use burn::tensor::Tolerance;

    const ALL: [Pooling; 6] = [
        Pooling::Mean,
        Pooling::Cls,
        Pooling::Max,
        Pooling::MeanSqrtLen,
        Pooling::WeightedMean,
        Pooling::LastToken,
    ];

    fn close(found: Tensor<2>, expected: impl Into<TensorData>) {
        found.into_data().assert_approx_eq::<f32>(&expected.into(), Tolerance::absolute(1e-6));
    }

    /// In a product over all sequences, sums over tokens are not split at sequence ends.
    #[test]
    fn a_sequences_bits_are_its_own() {
        let device = Device::flex();
        let lengths = [300, 17, 250, 33, 700, 45, 12, 512];
        let (total, width) = (lengths.iter().sum::<usize>(), 48);
        let value = |i: usize| ((i * 7919 % 10_007) as f32 / 10_007.0 - 0.5) * 3.7;
        let values: Vec<f32> = (0..total * width).map(value).collect();
        let pooled = |values: &[f32], lengths: &[usize], pooling: Pooling| {
            let states = TensorData::new(values.to_vec(), [1, values.len() / width, width]);
            let states = Tensor::<3>::from_data(states, &device);
            let packing = Packing::new(lengths.to_vec());
            pooling.forward(states, None, Some(&packing)).into_data().try_into_vec::<f32>().unwrap()
        };
        for pooling in ALL {
            let together = pooled(&values, &lengths, pooling);
            let mut start = 0;
            for (len, together) in lengths.iter().zip(together.chunks_exact(width)) {
                let alone = pooled(&values[start * width..(start + len) * width], &[*len], pooling);
                assert_eq!(alone, together, "{pooling:?} {len}");
                start += len;
            }
        }
    }

    #[test]
    fn packed_and_padded_are_the_same() {
        let device = Device::flex();
        let padded = [[[1.0, 6.0], [3.0, 2.0]], [[-5.0, -7.0], [99.0, 99.0]]];
        let padded = Tensor::<3>::from_data(padded, &device);
        let before = [[[1.0, 6.0], [3.0, 2.0]], [[99.0, 99.0], [-5.0, -7.0]]];
        let before = Tensor::<3>::from_data(before, &device);
        let packed = Tensor::<3>::from_data([[[1.0, 6.0], [3.0, 2.0], [-5.0, -7.0]]], &device);
        let mask = |second| Tensor::<2, Bool>::from_data([[false, false], second], &device);
        let packing = Packing::new([2, 1]);
        let root = 2f32.sqrt();
        let expected = [
            [2.0, 4.0],
            [1.0, 6.0],
            [3.0, 6.0],
            [4.0 / root, 8.0 / root],
            [7.0 / 3.0, 10.0 / 3.0],
            [3.0, 2.0],
        ];
        for (pooling, expected) in ALL.into_iter().zip(expected) {
            let expected = TensorData::from([expected, [-5.0, -7.0]]);
            close(pooling.forward(padded.clone(), Some(mask([false, true])), None), expected.clone());
            close(pooling.forward(packed.clone(), None, Some(&packing)), expected.clone());
            if pooling != Pooling::Cls {
                close(pooling.forward(before.clone(), Some(mask([true, false])), None), expected);
            }
        }
        let last = [[2.0, 4.0], [47.0, 46.0]];
        close(Pooling::Mean.forward(padded.clone(), None, None), last);
        close(Pooling::Max.forward(padded.clone(), None, None), [[3.0, 6.0], [99.0, 99.0]]);
        close(Pooling::LastToken.forward(padded, None, None), [[3.0, 2.0], [99.0, 99.0]]);
    }

    #[test]
    fn first_tokens_may_be_left_out() {
        let device = Device::flex();
        let padded = Tensor::<3>::from_data(
            [[[9.0], [1.0], [3.0], [2.0]], [[8.0], [4.0], [99.0], [99.0]], [[5.0], [99.0], [99.0], [99.0]]],
            &device,
        );
        let packed = Tensor::<3>::from_data([[[9.0], [1.0], [3.0], [2.0], [8.0], [4.0], [5.0]]], &device);
        let mask = [[false, false, false, false], [false, false, true, true], [false, true, true, true]];
        let mask = Tensor::<2, Bool>::from_data(mask, &device);
        let packing = Packing::new([4, 2, 1]);
        // A sequence keeps its last token.
        for (pooling, expected) in [
            (Pooling::Mean, [2.5, 4.0, 5.0]),
            (Pooling::Max, [3.0, 4.0, 5.0]),
            (Pooling::MeanSqrtLen, [5.0 / 2f32.sqrt(), 4.0, 5.0]),
            (Pooling::WeightedMean, [17.0 / 7.0, 4.0, 5.0]),
            (Pooling::LastToken, [2.0, 4.0, 5.0]),
        ] {
            let expected = TensorData::from(expected.map(|value| [value]));
            close(pooling.after(2, padded.clone(), Some(mask.clone()), None), expected.clone());
            close(pooling.after(2, packed.clone(), None, Some(&packing)), expected.clone());
            // In training one product makes all of them.
            let trained = Tensor::<3>::from_data(packed.to_data(), &device.clone().autodiff());
            close(pooling.after(2, trained, None, Some(&packing)), expected);
        }
        let of_first = SentencePooling::from(Pooling::Cls);
        assert!(of_first.clone().after(0).is_ok());
        let message = of_first.after(1).unwrap_err().to_string();
        assert!(message.contains("sentence-transformers 5 and 6"), "{message}");
    }

    #[test]
    fn several_stand_side_by_side() {
        let device = Device::flex();
        let config = BertConfig { d_ff: 12, n_heads: 2, ..BertConfig::new(31, 5, 8) };
        let bert = config.init_encoder(&mut ParamInit::new(&device, 7).with_std(0.4));
        let input = || BertInput::packed(&[4, 9, 7, 11, 3], &[2, 3], &device);
        let one = |pooling: Pooling| SentencePooling::from(pooling).forward(&bert, input());
        let several = SentencePooling::concatenated(ALL.to_vec()).unwrap();
        assert_eq!(several.width(8), 48);
        close(several.forward(&bert, input()), Tensor::cat(ALL.map(one).to_vec(), 1).into_data());
        assert!(SentencePooling::concatenated(Vec::new()).is_err());

        let last4 = SentencePooling::last4();
        assert_eq!(last4.width(8), 32);
        let found = last4.forward(&bert, input());
        let trace = EncoderTrace { hidden_states: true, attentions: false };
        let layers = bert.forward(input().with_trace(trace)).hidden_states;
        let packing = Packing::new([2, 3]);
        let parts =
            layers[2..].iter().map(|states| Pooling::Mean.forward(states.clone(), None, Some(&packing)));
        close(found.clone(), Tensor::cat(parts.collect(), 1).into_data());
        close(found.slice([0..2, 24..32]), one(Pooling::Mean).into_data());
        last4.check(4).unwrap();
        let message = last4.check(3).unwrap_err().to_string();
        assert_eq!(message, "model configuration: pooling of the last 4 layers, but the model has 3");
    }
}
