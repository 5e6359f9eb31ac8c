use super::{EncoderLayer, FeedForward, LayerNorm, Linear, Selection, SelfAttention};
use crate::ops::{self, AttentionMask};
use burn::module::Module;
use burn::tensor::Tensor;

/// A stack of encoder layers, applied once or several times over, with a last normalisation where the layers normalise first.
#[derive(Module, Debug)]
pub struct Encoder<A: SelfAttention> {
    /// From the first layer to the last.
    pub layers: Vec<EncoderLayer<A>>,
    /// The normalisation of the last layer's output; pre-norm stacks need it, post-norm have none.
    pub final_norm: Option<LayerNorm>,
    /// How many times `layers` are applied, each time to what they returned: more than once where one set of
    /// parameters stands for many layers, as in ALBERT (Lan et al. 2020, §3.1).
    pub repeats: usize,
    /// Whether training [recomputes](ops::recompute) each layer in the backward pass, so that of the forward pass
    /// only the layers' inputs are kept. The results are the same; it needs a device that
    /// [can](ops::can_recompute). Where attentions are traced, the layers are kept all the same.
    pub recompute: bool,
}

/// What to keep besides the last layer's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EncoderTrace {
    /// The states that enter the first layer and leave each layer.
    pub hidden_states: bool,
    /// The attention probabilities of each layer.
    pub attentions: bool,
}

/// What the encoder returns.
#[derive(Debug, Clone)]
pub struct EncoderOutput {
    /// The last states, `[batch, len, d_model]`; of `n` tokens alone `[1, n, d_model]`.
    pub last_hidden_state: Tensor<3>,
    /// `n_layers + 1` tensors `[batch, len, d_model]`, the embeddings first; empty unless traced.
    pub hidden_states: Vec<Tensor<3>>,
    /// `n_layers` tensors `[batch, n_heads, len, len]`; empty unless traced.
    pub attentions: Vec<Tensor<4>>,
}

impl<A: SelfAttention> Encoder<A> {
    /// The layers' linear maps by their paths from here, such as `layers.0.attention.query`.
    pub fn linears_mut(&mut self) -> impl Iterator<Item = (String, &mut Linear)> {
        self.layers.iter_mut().enumerate().flat_map(|(number, layer)| {
            let attention =
                layer.attention.linears_mut().into_iter().map(|(name, map)| ("attention", name, map));
            let FeedForward { up, down, .. } = &mut layer.feed_forward;
            let feed_forward = [("feed_forward", "up", up), ("feed_forward", "down", down)];
            let all = attention.chain(feed_forward);
            all.map(move |(block, name, map)| (format!("layers.{number}.{block}.{name}"), map))
        })
    }

    /// With `tokens` the last states are those of these alone, and the last layer works on no others where it can.
    ///
    /// # Shapes
    /// - `x`: `[batch, len, d_model]`
    pub fn forward(
        &self,
        mut x: Tensor<3>,
        mask: &AttentionMask,
        trace: EncoderTrace,
        tokens: Option<&Selection>,
    ) -> EncoderOutput {
        let mut hidden_states = Vec::new();
        let mut attentions = Vec::new();
        let mut layers = (0..self.repeats).flat_map(|_| &self.layers).peekable();
        while let Some(layer) = layers.next() {
            if trace.hidden_states {
                hidden_states.push(x.clone());
            }
            let tokens = tokens.filter(|_| layers.peek().is_none());
            if self.recompute && !trace.attentions {
                x = recomputed(layer, x, mask, tokens);
                continue;
            }
            let output = layer.forward(x, mask, trace.attentions, tokens);
            attentions.extend(output.weights);
            x = output.context;
        }
        if let Some(norm) = &self.final_norm {
            x = norm.forward(x);
        }
        if trace.hidden_states {
            hidden_states.push(x.clone());
        }
        EncoderOutput { last_hidden_state: x, hidden_states, attentions }
    }
}

/// The layer's output, to be computed again in the backward pass.
fn recomputed<A: SelfAttention>(
    layer: &EncoderLayer<A>,
    x: Tensor<3>,
    mask: &AttentionMask,
    tokens: Option<&Selection>,
) -> Tensor<3> {
    let (mask, tokens) = (mask.clone(), tokens.cloned());
    ops::recompute(layer, x, move |layer: &EncoderLayer<A>, x| {
        layer.forward(x, &mask, false, tokens.as_ref()).context
    })
}
