use super::classifier::Classifier;
use super::embeddings::{Embeddings, IntegerToken};
use super::layer::Layer;
use super::parts::IntegerParts;
use rayon::prelude::*;
use std::ops::Range;

/// An encoder of BERT's architecture on integers alone, I-BERT (Kim et al. 2021): weights and activations of 8 bits, sums of
/// embeddings of 16, what is normalised of 22, biases and sums of products of 32.
///
/// Its results are the same bits on every processor, and none depends on the other sequences.
#[derive(Debug, Clone)]
pub struct IntegerBert {
    embeddings: Embeddings,
    layers: Vec<Layer>,
    /// Of each layer's input, and of the last states.
    scales: Vec<f64>,
    d_model: usize,
    classifier: Option<Classifier>,
}

/// The tokens that a task computes, at least.
const GROUP_TOKENS: usize = 128;

impl IntegerBert {
    /// The encoder with the integers that follow from its parts' scales.
    ///
    /// # Errors
    /// One line with the layer, for scales and sizes that do not fit together.
    pub fn new(parts: &IntegerParts) -> Result<Self, String> {
        let d_model = parts.norm.gamma.len();
        if parts.n_heads == 0 || !d_model.is_multiple_of(parts.n_heads) {
            return Err(format!("{d_model} features are not shared evenly by {} heads", parts.n_heads));
        }
        let outputs = parts.layers.iter().map(|layer| layer.scales.output);
        let scales: Vec<f64> = std::iter::once(parts.output_scale).chain(outputs).collect();
        let layers = parts.layers.iter().zip(&scales).enumerate().map(|(i, (layer, scale))| {
            Layer::new(layer, parts.n_heads, *scale).map_err(|reason| format!("layer {i}: {reason}"))
        });
        let last = scales[parts.layers.len()];
        Ok(Self {
            embeddings: Embeddings::new(parts).map_err(|reason| format!("embeddings: {reason}"))?,
            layers: layers.collect::<Result<_, _>>()?,
            scales,
            d_model,
            classifier: parts
                .classifier
                .as_ref()
                .map(|parts| Classifier::new(parts, last).map_err(|reason| format!("head: {reason}")))
                .transpose()?,
        })
    }

    /// The integers of the last states, one sequence after the other, `[n_tokens, d_model]`.
    ///
    /// # Panics
    /// If a token's numbers are out of range, or the lengths do not add up to the tokens.
    pub fn states(&self, tokens: &[IntegerToken], lengths: &[usize]) -> Vec<i8> {
        self.grouped(tokens, lengths, |tokens, sequences| {
            let embedded = self.embeddings.forward(tokens);
            self.layers.iter().fold(embedded, |states, layer| layer.forward(&states, sequences))
        })
    }

    /// The integers of the embeddings and of each layer's output.
    ///
    /// # Panics
    /// Those of [`states`](Self::states).
    pub fn all_states(&self, tokens: &[IntegerToken], lengths: &[usize]) -> Vec<Vec<i8>> {
        let mut all = vec![self.grouped(tokens, lengths, |tokens, _| self.embeddings.forward(tokens))];
        let sequences = places(lengths);
        for layer in &self.layers {
            let next = layer.forward(&all[all.len() - 1], &sequences);
            all.push(next);
        }
        all
    }

    /// The scale of each of [`all_states`](Self::all_states); the last is that of [`states`](Self::states).
    pub fn scales(&self) -> &[f64] {
        &self.scales
    }

    /// Features of a state.
    pub fn d_model(&self) -> usize {
        self.d_model
    }

    /// The number of logits; none if the head has no integers.
    pub fn n_outputs(&self) -> Option<usize> {
        self.classifier.as_ref().map(Classifier::n_outputs)
    }

    /// The logits of each sequence, `[sequences, n_outputs]`; none if the head has no integers.
    ///
    /// # Panics
    /// Those of [`states`](Self::states).
    pub fn logits(&self, tokens: &[IntegerToken], lengths: &[usize]) -> Option<Vec<f32>> {
        let classifier = self.classifier.as_ref()?;
        let states = self.states(tokens, lengths);
        let first = places(lengths)
            .into_iter()
            .flat_map(|place| states[place.start * self.d_model..][..self.d_model].iter().copied());
        Some(classifier.forward(&first.collect::<Vec<_>>()))
    }

    /// Computes groups of whole sequences in parallel.
    fn grouped(
        &self,
        tokens: &[IntegerToken],
        lengths: &[usize],
        compute: impl Fn(&[IntegerToken], &[Range<usize>]) -> Vec<i8> + Sync,
    ) -> Vec<i8> {
        assert_eq!(lengths.iter().sum::<usize>(), tokens.len(), "the lengths of all sequences");
        let per_group = tokens.len().div_ceil(rayon::current_num_threads()).max(GROUP_TOKENS);
        let (mut groups, mut start, mut group) = (Vec::new(), 0, Vec::new());
        for (i, len) in lengths.iter().enumerate() {
            group.push(*len);
            let n: usize = group.iter().sum();
            if n >= per_group || i + 1 == lengths.len() {
                groups.push((start..start + n, places(&group)));
                start += n;
                group.clear();
            }
        }
        let states = groups.par_iter().map(|(range, sequences)| compute(&tokens[range.clone()], sequences));
        match groups.len() {
            1 => compute(tokens, &groups[0].1),
            _ => states.collect::<Vec<_>>().concat(),
        }
    }
}

/// The places of sequences.
fn places(lengths: &[usize]) -> Vec<Range<usize>> {
    let mut start = 0;
    let place = |len: &usize| {
        start += len;
        start - len..start
    };
    lengths.iter().map(place).collect()
}
