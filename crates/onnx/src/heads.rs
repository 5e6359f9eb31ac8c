//! Models as graphs: an encoder with a head.

use crate::encoder::{States, encode, has_types};
use crate::error::{OnnxError, Result};
use crate::graph::{Dim, Graph, Value};
use crate::pooling::{SentenceModules, embedding, pool};
use crate::sequences::{BATCH, CHOICES, LENGTH, Sequences};
use cloze_model::bert::{Bert, BertConfig, MlmHead, Pooling, ReplacedTokenDetector};
use cloze_model::tasks::{
    BertForMaskedLm, BertForMultipleChoice, BertForQuestionAnswering, BertForSequenceClassification,
    BertForTokenClassification, HeadTransform, SequenceHead,
};

/// A model that has an ONNX form.
///
/// Inputs are `input_ids` and `attention_mask`, and `token_type_ids` if the encoder tells segments apart: 64-bit integers,
/// `[batch_size, sequence_length]`, with padding on either side. Outputs are named as optimum names them.
pub trait ToOnnx {
    /// Adds the model's nodes, inputs and outputs. `config` is the encoder's.
    ///
    /// # Errors
    /// [`OnnxError::Unsupported`] for a part that has no ONNX form here.
    fn add_to(&self, graph: &mut Graph, config: &BertConfig) -> Result<()>;
}

/// The inputs and the encoder's states.
fn encoded(
    graph: &mut Graph,
    bert: &Bert,
    config: &BertConfig,
    choices: bool,
) -> Result<(Sequences, States)> {
    let mut sequences = Sequences::new(graph, has_types(config), choices);
    let states = encode(graph, bert, config, &mut sequences)?;
    Ok((sequences, states))
}

/// `last_hidden_state`, `[batch_size, sequence_length, d_model]`.
impl ToOnnx for Bert {
    fn add_to(&self, graph: &mut Graph, config: &BertConfig) -> Result<()> {
        let (_, states) = encoded(graph, self, config, false)?;
        graph.output("last_hidden_state", states.last(), &[BATCH, LENGTH, Dim::Fixed(config.d_model)]);
        Ok(())
    }
}

/// An encoder with the modules of sentence-transformers.
pub struct SentenceModel {
    /// The encoder.
    pub bert: Bert,
    /// What makes an embedding of its states.
    pub modules: SentenceModules,
}

/// `last_hidden_state`, and `sentence_embedding`, `[batch_size, width]`.
///
/// optimum's own exports of sentence-transformers' models call the states `token_embeddings`, but its
/// `ORTModelForFeatureExtraction`, through which sentence-transformers loads an ONNX model, reads `last_hidden_state`.
impl ToOnnx for SentenceModel {
    fn add_to(&self, graph: &mut Graph, config: &BertConfig) -> Result<()> {
        let Self { bert, modules } = self;
        modules.pooling.check(bert.encoder.order.len())?;
        let (mut sequences, states) = encoded(graph, bert, config, false)?;
        let embedding = embedding(graph, modules, &mut sequences, &states)?;
        let width = match modules.dense.last() {
            Some(dense) => dense.d_out(),
            None => modules.pooling.width(config.d_model),
        };
        graph.output("last_hidden_state", states.last(), &[BATCH, LENGTH, Dim::Fixed(config.d_model)]);
        graph.output("sentence_embedding", &embedding, &[BATCH, Dim::Fixed(width)]);
        Ok(())
    }
}

/// `logits`, `[batch_size, sequence_length, vocab_size]`.
impl ToOnnx for BertForMaskedLm {
    fn add_to(&self, graph: &mut Graph, config: &BertConfig) -> Result<()> {
        let (_, states) = encoded(graph, &self.bert, config, false)?;
        let states = graph.within("mlm", |graph| before_pieces(graph, &self.mlm, config, states.last()))?;
        let logits = match &self.mlm.decoder {
            Some(decoder) => graph.within("mlm", |graph| graph.linear("decoder", decoder, &states))?,
            None => {
                // `Gemm` and `MatMulNBits` multiply with the transposed table as it lies; ONNX Runtime would keep a
                // transposed copy of it besides, as large as the table.
                let shape = graph.shape(&states, 0, 2);
                let rows = graph.reshape(&states, &[-1, config.embedding_width() as i64]);
                let tokens = &self.bert.embeddings.tokens;
                let logits =
                    graph.within("embeddings", |graph| Ok(graph.times_table("tokens", tokens, &rows)))?;
                let width = graph.ints(&[config.vocab_size as i64]);
                let shape = graph.concat(&[&shape, &width], 0);
                graph.op("Reshape", &[&logits, &shape])
            }
        };
        let bias = self.mlm.bias.as_ref();
        let logits = graph.within("mlm", |graph| Ok(graph.plus_bias(&logits, bias)))?;
        graph.output("logits", &logits, &[BATCH, LENGTH, Dim::Fixed(config.vocab_size)]);
        Ok(())
    }
}

/// What is multiplied with the vectors of all pieces, at all tokens.
fn before_pieces(graph: &mut Graph, head: &MlmHead, config: &BertConfig, x: &Value) -> Result<Value> {
    let mut states = x.clone();
    if let Some(dense) = &head.dense {
        states = graph.linear("dense", dense, &states)?;
        states = graph.activation(config.mlm_activation.unwrap_or(config.activation), &states)?;
    }
    if let Some(norm) = &head.norm {
        states = graph.layer_norm("norm", norm, config, &states)?;
    }
    Ok(states)
}

/// `logits`, `[batch_size, sequence_length]`.
impl ToOnnx for ReplacedTokenDetector {
    fn add_to(&self, graph: &mut Graph, config: &BertConfig) -> Result<()> {
        let (_, states) = encoded(graph, &self.bert, config, false)?;
        let logits = graph.within("head", |graph| {
            let states = graph.linear("dense", &self.head.dense, states.last())?;
            let states = graph.activation(config.activation, &states)?;
            graph.linear("output", &self.head.output, &states)
        })?;
        let logits = graph.squeeze(&logits, &[2]);
        graph.output("logits", &logits, &[BATCH, LENGTH]);
        Ok(())
    }
}

/// `logits`, `[batch_size, n_outputs]`.
impl ToOnnx for BertForSequenceClassification {
    fn add_to(&self, graph: &mut Graph, config: &BertConfig) -> Result<()> {
        let (mut sequences, states) = encoded(graph, &self.bert, config, false)?;
        let summary = summary(graph, &self.bert, self.pooling, &mut sequences, &states)?;
        let logits = graph.within("head", |graph| outputs(graph, &self.head, config, &summary))?;
        graph.output("logits", &logits, &[BATCH, Dim::Fixed(n_outputs(&self.head))]);
        Ok(())
    }
}

/// `logits`, `[batch_size, num_choices]`; the inputs are `[batch_size, num_choices, sequence_length]`.
impl ToOnnx for BertForMultipleChoice {
    fn add_to(&self, graph: &mut Graph, config: &BertConfig) -> Result<()> {
        let (mut sequences, states) = encoded(graph, &self.bert, config, true)?;
        let summary = summary(graph, &self.bert, None, &mut sequences, &states)?;
        let scores = graph.within("head", |graph| outputs(graph, &self.head, config, &summary))?;
        let shape = graph.shape(&Value::input("input_ids"), 0, 2);
        let logits = graph.op("Reshape", &[&scores, &shape]);
        graph.output("logits", &logits, &[BATCH, CHOICES]);
        Ok(())
    }
}

/// `logits`, `[batch_size, sequence_length, n_tags]`.
impl ToOnnx for BertForTokenClassification {
    fn add_to(&self, graph: &mut Graph, config: &BertConfig) -> Result<()> {
        if self.crf.is_some() {
            let expected = "a tagger that was trained without `crf` can, or the encoder's states (--states)";
            return Err(OnnxError::unsupported("a conditional random field", expected));
        }
        let (_, states) = encoded(graph, &self.bert, config, false)?;
        let states = transformed(graph, self.transform.as_ref(), config, states.last())?;
        let logits = graph.linear("output", &self.output, &states)?;
        let n_tags = self.output.weight.lazy_shape()[1];
        graph.output("logits", &logits, &[BATCH, LENGTH, Dim::Fixed(n_tags)]);
        Ok(())
    }
}

/// `start_logits` and `end_logits`, `[batch_size, sequence_length]`, also of padding and of the question, as in
/// transformers.
impl ToOnnx for BertForQuestionAnswering {
    fn add_to(&self, graph: &mut Graph, config: &BertConfig) -> Result<()> {
        let (_, states) = encoded(graph, &self.bert, config, false)?;
        let states = transformed(graph, self.transform.as_ref(), config, states.last())?;
        let logits = graph.linear("output", &self.output, &states)?;
        let sides = graph.split(&logits, &[1, 1], 2);
        for (name, side) in ["start_logits", "end_logits"].into_iter().zip(&sides) {
            let side = graph.squeeze(side, &[2]);
            graph.output(name, &side, &[BATCH, LENGTH]);
        }
        Ok(())
    }
}

/// One vector for each sequence, `[batch, d_model]`.
fn summary(
    graph: &mut Graph,
    bert: &Bert,
    pooling: Option<Pooling>,
    sequences: &mut Sequences,
    states: &States,
) -> Result<Value> {
    match (pooling, &bert.pooler) {
        (None, Some(pooler)) => {
            let first = pool(graph, Pooling::Cls, sequences, states.last())?;
            let pooled = graph.linear("pooler.dense", &pooler.dense, &first)?;
            Ok(graph.op("Tanh", &[&pooled]))
        }
        (pooling, _) => pool(graph, pooling.unwrap_or(bert.pooling), sequences, states.last()),
    }
}

/// A head over sequences, `[batch, d_model]` to `[batch, n_outputs]`.
fn outputs(graph: &mut Graph, head: &SequenceHead, config: &BertConfig, x: &Value) -> Result<Value> {
    let mut states = x.clone();
    if let Some(dense) = &head.dense {
        states = graph.linear("dense", dense, &states)?;
        states = graph.activation(head.activation, &states)?;
        if let Some(norm) = &head.norm {
            states = graph.layer_norm("norm", norm, config, &states)?;
        }
    }
    graph.linear("output", &head.output, &states)
}

fn n_outputs(head: &SequenceHead) -> usize {
    head.output.weight.lazy_shape()[1]
}

/// What ModernBERT's heads do to a state before the output.
fn transformed(
    graph: &mut Graph,
    transform: Option<&HeadTransform>,
    config: &BertConfig,
    x: &Value,
) -> Result<Value> {
    let Some(transform) = transform else { return Ok(x.clone()) };
    graph.within("transform", |graph| {
        let states = graph.linear("dense", &transform.dense, x)?;
        let states = graph.activation(config.mlm_activation.unwrap_or(config.activation), &states)?;
        graph.layer_norm("norm", &transform.norm, config, &states)
    })
}
