//! The encoder that all families share: embeddings and layers, with the switches of [`BertConfig`].

use crate::attention::{self, View};
use crate::distances::{Distances, relative_bias};
use crate::error::{OnnxError, Result};
use crate::graph::{Graph, Value, int, ints};
use crate::rotary::Rotation;
use crate::sequences::Sequences;
use cloze_model::bert::{Bert, BertConfig};
use cloze_model::blocks::{
    EncoderLayer, FeedForward, MultiHeadAttention, NormPlacement, ResidualConvolution, RotaryConfig,
};

/// The hidden states of a batch.
pub(crate) struct States {
    /// `[batch, len, d_model]` for the embeddings and each layer; the last ones are normalised if the layers are pre-norm.
    pub all: Vec<Value>,
}

impl States {
    /// The last ones.
    pub fn last(&self) -> &Value {
        self.all.last().expect("the embeddings are there")
    }
}

/// Whether the encoder tells the segments of its tokens apart.
pub(crate) fn has_types(config: &BertConfig) -> bool {
    config.transformer_xl.is_some() || config.n_token_types > 1 && config.language.is_none()
}

/// Adds an encoder.
///
/// # Errors
/// [`OnnxError::Unsupported`].
pub(crate) fn encode(
    graph: &mut Graph,
    bert: &Bert,
    config: &BertConfig,
    sequences: &mut Sequences,
) -> Result<States> {
    check_positions(config)?;
    let embedded = graph.within("embeddings", |graph| embed(graph, bert, config, sequences))?;
    let relative = match &bert.embeddings.relative_bias {
        Some(bias) => Some(relative_bias(graph, bias, sequences)?),
        None => None,
    };
    let distances = Distances::of(graph, &bert.embeddings, config, sequences)?;
    let views = Views::new(graph, config, sequences, relative.as_ref())?;
    let mut states = vec![embedded];
    graph.within("encoder", |graph| {
        for layer in &bert.encoder.order {
            let before = states.last().cloned().expect("the embeddings are there");
            let (view, of) = (views.of(config, *layer), &bert.encoder.layers[*layer]);
            let attention =
                attention::Layer { attention: &of.attention, config, view, distances: distances.as_ref() };
            let after = graph.within(&format!("layers.{layer}"), |graph| {
                forward(graph, of, &attention, Some(&mut *sequences), &before)
            })?;
            states.push(after);
        }
        if let (Some(norm), Some(last)) = (&bert.encoder.final_norm, states.last_mut()) {
            *last = graph.norm("final_norm", norm, config, last)?;
        }
        Ok(())
    })?;
    Ok(States { all: states })
}

/// Refuses positions that have no ONNX form here.
fn check_positions(config: &BertConfig) -> Result<()> {
    let without = [
        ("sinusoidal positions", config.sinusoidal.is_some()),
        ("relative positions (Shaw et al. 2018)", config.relative.is_some()),
        ("positions by ALiBi", config.alibi),
    ];
    match without.into_iter().find(|(_, is_there)| *is_there) {
        Some((what, _)) => {
            Err(OnnxError::unsupported(what, "learned, relative-bias and rotary positions, or none, can"))
        }
        None => Ok(()),
    }
}

/// What layers see: all of the sequence, or a window of it.
struct Views {
    global: Option<View>,
    local: Option<View>,
}

impl Views {
    /// Those that some layer has.
    fn new(
        graph: &mut Graph,
        config: &BertConfig,
        sequences: &mut Sequences,
        relative: Option<&Value>,
    ) -> Result<Self> {
        let d_k = config.head_width();
        let is_some = |local: bool| (0..config.n_layers).any(|layer| is_local(config, layer) == local);
        let mut view = |window, rotary: Option<RotaryConfig>| -> Result<View> {
            let rotation = match rotary {
                Some(rotary) => Some(Rotation::new(graph, &rotary.init(d_k), sequences)?),
                None => None,
            };
            Ok(View { rotation, ..View::new(graph, sequences, config.causal, window, relative) })
        };
        let rotary = config.rotary.as_ref();
        let global = is_some(false).then(|| view(None, rotary.cloned())).transpose()?;
        let local = config.local.as_ref().filter(|_| is_some(true));
        let local = local.map(|local| view(Some(local.window), rotary.map(|rotary| local.rotary(rotary))));
        Ok(Self { global, local: local.transpose()? })
    }

    fn of(&self, config: &BertConfig, layer: usize) -> &View {
        let view = if is_local(config, layer) { &self.local } else { &self.global };
        view.as_ref().expect("it was made for this layer")
    }
}

fn is_local(config: &BertConfig, layer: usize) -> bool {
    config.local.as_ref().is_some_and(|local| !local.is_global(layer))
}

/// Pieces, segments and positions to vectors, `[batch, len, d_model]`.
fn embed(graph: &mut Graph, bert: &Bert, config: &BertConfig, sequences: &mut Sequences) -> Result<Value> {
    let embeddings = &bert.embeddings;
    let mut sum = graph.looked_up("tokens", &embeddings.tokens, &sequences.ids);
    if let Some(types) = &embeddings.token_types {
        let table = graph.parameter("token_types.weight", types.weight.val());
        let [n, _] = types.weight.dims();
        let vectors = match (&sequences.types, config.language) {
            // With a one-row table, every token takes that row; the rows of languages are chosen by the model.
            (_, Some(language)) => {
                let row = graph.int(language as i64);
                graph.rows(&table, &row)
            }
            (Some(types), None) if n > 1 => graph.rows(&table, types),
            _ => {
                let row = graph.int(0);
                graph.rows(&table, &row)
            }
        };
        sum = graph.op("Add", &[&sum, &vectors]);
    }
    if let Some(positions) = &embeddings.positions {
        // A token's place among its sequence's tokens, so that padding on the left changes nothing.
        let table = graph.parameter("positions.weight", positions.table.weight.val());
        let numbers = sequences.numbers(graph);
        let shift = graph.int(config.position_offset as i64 - 1);
        let places = graph.op("Add", &[&numbers, &shift]);
        let least = graph.int(config.position_offset as i64);
        let places = graph.op("Max", &[&places, &least]);
        let vectors = graph.rows(&table, &places);
        sum = graph.op("Add", &[&sum, &vectors]);
    }
    let projected = |graph: &mut Graph, x: Value, is_here: bool| match &embeddings.projection {
        Some(projection) if is_here => graph.linear("projection", projection, &x),
        _ => Ok(x),
    };
    sum = projected(graph, sum, config.project_before_norm)?;
    if let Some(norm) = &embeddings.norm {
        sum = graph.layer_norm("norm", norm, config, &sum)?;
    }
    projected(graph, sum, !config.project_before_norm)
}

/// One layer; one with a convolution reads sequences.
pub(crate) fn forward(
    graph: &mut Graph,
    layer: &EncoderLayer<MultiHeadAttention>,
    attention: &attention::Layer<'_>,
    sequences: Option<&mut Sequences>,
    x: &Value,
) -> Result<Value> {
    let config = attention.config;
    let normed = |graph: &mut Graph, part: &str, norm, x: &Value| match norm {
        Some(norm) => graph.norm(part, norm, config, x),
        None => Ok(x.clone()),
    };
    let norms = [
        ("attention_norm", layer.attention_norm.as_ref()),
        ("feed_forward_norm", Some(&layer.feed_forward_norm)),
    ];
    let mut states = x.clone();
    for (part, norm) in norms {
        let pre = config.norm == NormPlacement::Pre;
        let input = if pre { normed(graph, part, norm, &states)? } else { states.clone() };
        let output = match part {
            "attention_norm" => graph.within("attention", |graph| attention.forward(graph, &input))?,
            _ => graph
                .within("feed_forward", |graph| feed_forward(graph, &layer.feed_forward, config, &input))?,
        };
        states = graph.op("Add", &[&output, &states]);
        if !pre {
            states = normed(graph, part, norm, &states)?;
        }
    }
    match (&layer.convolution, sequences) {
        (Some(of), Some(sequences)) => {
            graph.within("convolution", |graph| convolve(graph, of, config, sequences, x, &states))
        }
        (Some(_), None) => Err(OnnxError::unsupported("a convolution without tokens", "one of texts can")),
        (None, _) => Ok(states),
    }
}

/// `f(x·W₁ + b₁)·W₂ + b₂`, or `(f(x·V) ⊙ x·W₁)·W₂` with a gate.
fn feed_forward(graph: &mut Graph, layer: &FeedForward, config: &BertConfig, x: &Value) -> Result<Value> {
    let up = graph.linear("up", &layer.up, x)?;
    let inner = match &layer.gate {
        Some(gate) => {
            let gate = graph.linear("gate", gate, x)?;
            let gate = graph.activation(config.activation, &gate)?;
            graph.op("Mul", &[&gate, &up])
        }
        None => graph.activation(config.activation, &up)?,
    };
    graph.linear("down", &layer.down, &inner)
}

/// A convolution of the layer's input `x`, added to its output and normalised (DeBERTa v2).
fn convolve(
    graph: &mut Graph,
    layer: &ResidualConvolution,
    config: &BertConfig,
    sequences: &mut Sequences,
    x: &Value,
    output: &Value,
) -> Result<Value> {
    let Some(sizes) = config.convolution else {
        return Err(OnnxError::unsupported(
            "a convolution without its sizes",
            "the configuration has to have them",
        ));
    };
    let kept = sequences.kept(graph);
    let kept = graph.unsqueeze(&kept, &[2]);
    let zero = graph.float(0.0);
    let x = graph.op("Where", &[&kept, x, &zero]);
    let x = graph.transpose(&x, &[0, 2, 1]);
    let weight = graph.parameter("weight", layer.weight.val());
    let bias = graph.parameter("bias", layer.bias.val());
    let (kernel, beside) = (sizes.kernel as i64, (sizes.kernel / 2) as i64);
    let attributes = vec![
        int("group", sizes.n_groups as i64),
        ints("kernel_shape", &[kernel]),
        ints("pads", &[beside, beside]),
    ];
    let convolved = graph.op_with("Conv", &[&x, &weight, &bias], attributes);
    let convolved = graph.transpose(&convolved, &[0, 2, 1]);
    let added = graph.activation(sizes.activation, &convolved)?;
    let sum = graph.op("Add", &[output, &added]);
    graph.layer_norm("norm", &layer.norm, config, &sum)
}
