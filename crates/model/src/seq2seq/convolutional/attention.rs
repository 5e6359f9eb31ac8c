use crate::blocks::{NormedLinear, is_attention_observed};
use crate::ops::{self, AttentionMask, Packing, Queries};
use crate::recurrent::{padded, unpadded};
use crate::scores::{DotScore, Memory, attend};
use crate::{ParamInit, linear_maps};
use burn::module::Module;
use burn::tensor::Tensor;

/// What a sum of two is multiplied by, so that its variance is that of one.
pub(super) const ROOT_HALF: f64 = std::f64::consts::FRAC_1_SQRT_2;

/// One layer's attention to the encoder's outputs (Gehring et al. 2017, §3.3): its own query, and its own map of the context.
#[derive(Module, Debug)]
pub struct MultiStepAttention {
    /// Maps a decoder state to a query, `[d_model, d_embedding]`.
    pub query: NormedLinear,
    /// Maps a context to its addend to the state, `[d_embedding, d_model]`.
    pub output: NormedLinear,
}

linear_maps!(MultiStepAttention { query, output });

impl MultiStepAttention {
    pub(super) fn new(d_model: usize, d_embedding: usize, init: &mut ParamInit) -> Self {
        let query = NormedLinear::new(d_model, d_embedding, 1.0, init);
        Self { query, output: NormedLinear::new(d_embedding, d_model, 1.0, init) }
    }

    /// `(state + W c) · √½`, where `ask` returns the context `c` of the query `(W state + b + g) ·
    /// √½`.
    ///
    /// # Shapes
    /// - `state`: `[n, d_model]`; `embedded`: the target's embeddings `g`, `[n, d_embedding]`; returns `[n, d_model]`
    pub(super) fn forward(
        &self,
        state: Tensor<2>,
        embedded: Tensor<2>,
        ask: impl FnOnce(Tensor<2>) -> Tensor<2>,
    ) -> Tensor<2> {
        let query = (self.query.forward(state.clone()) + embedded).mul_scalar(ROOT_HALF);
        (self.output.forward(ask(query)) + state).mul_scalar(ROOT_HALF)
    }
}

/// The encoder's output: for each source token a key `z` and a value `(z + e) · √½`.
pub(super) struct Encoded {
    /// `[n_source_tokens, d_embedding]`
    pub keys: Tensor<2>,
    /// The same, multiplied by the root of the source length, which thereby also scales the contexts.
    pub values: Tensor<2>,
    pub packing: Packing,
}

impl Encoded {
    pub fn new(keys: Tensor<2>, embedded: Tensor<2>, packing: Packing) -> Self {
        let roots: Vec<f32> = packing
            .lengths()
            .iter()
            .flat_map(|len| std::iter::repeat_n((*len as f32).sqrt(), *len))
            .collect();
        let roots = Tensor::<1>::from_data(roots.as_slice(), &keys.device()).unsqueeze_dim::<2>(1);
        let values = (keys.clone() + embedded).mul_scalar(ROOT_HALF) * roots;
        Self { keys, values, packing }
    }

    /// The memory for step-by-step queries.
    pub fn memory(self) -> Memory {
        Memory::with_keys(self.keys, self.values, &self.packing)
    }
}

/// Encoded sources for the queries of packed targets, in the fastest layout for the device.
#[allow(clippy::large_enum_variant, reason = "there is one for each pass, and no list")]
pub(super) enum AttendedSource {
    Packed { keys: Tensor<4>, values: Tensor<4>, mask: AttentionMask },
    Padded { memory: Memory, targets: Packing },
}

impl AttendedSource {
    pub fn new(encoded: Encoded, targets: &Packing) -> Self {
        if !ops::takes_packed(&encoded.keys) || is_attention_observed() {
            return Self::Padded { memory: encoded.memory(), targets: targets.clone() };
        }
        let Encoded { keys, values, packing } = encoded;
        let mask = AttentionMask::default()
            .with_packing(packing)
            .with_queries(Queries::Counts(targets.lengths().into()));
        Self::Packed { keys: keys.unsqueeze::<4>(), values: values.unsqueeze::<4>(), mask }
    }

    /// The contexts of all targets' queries; both `[n_target_tokens, d_embedding]`.
    pub fn contexts(&self, query: Tensor<2>) -> Tensor<2> {
        match self {
            Self::Packed { keys, values, mask } => {
                let shape = query.dims();
                // The operation divides by this root.
                let query = query.mul_scalar((shape[1] as f64).sqrt()).unsqueeze::<4>();
                ops::attention(query, keys.clone(), values.clone(), mask, 0.0).reshape(shape)
            }
            Self::Padded { memory, targets } => {
                unpadded(attend(&DotScore::new(), padded(query, targets), memory).context, targets)
            }
        }
    }
}
