use super::layer::ElmoLayer;
use super::{CharacterEncoder, PieceBytes};
use crate::blocks::replaced;
use crate::ops;
use crate::{Backbone, BackboneShape, Sequences, linear_maps};
use burn::module::Module;
use burn::tensor::{Device, Int, Tensor, TensorData};

/// The character encoder and bidirectional LSTM layers, shared by the language model and task models.
///
/// Neither direction reads the other's states: they share only the word vectors, so a forward state does not
/// depend on later tokens, nor a backward state on earlier ones (Peters et al. 2018, §3.1). From the second
/// layer on, a layer's input is added to its states.
#[derive(Module, Debug)]
pub struct ElmoEncoder {
    /// The character encoder.
    pub characters: CharacterEncoder,
    /// From the lowest to the highest.
    pub layers: Vec<ElmoLayer>,
    /// Dropout on each layer's input, and on the last states.
    pub dropout: f64,
    #[module(skip)]
    pub(super) pieces: PieceBytes,
}

linear_maps!(ElmoEncoder { layers; characters });

/// What an [`ElmoEncoder`] returns.
#[derive(Debug, Clone)]
pub struct ElmoOutput {
    /// `n_layers + 1` layers, each `[n_tokens, 2·p]` in the order of [`Sequences::ids`]: the word vectors
    /// concatenated with themselves, then each layer's forward and backward states, concatenated (`h_(k,j)`
    /// of Peters et al. 2018, §3.2).
    pub layers: Vec<Tensor<2>>,
    /// The last layer's forward states, after dropout, `[n_tokens, p]`.
    pub forward: Tensor<2>,
    /// The last layer's backward states, after dropout, `[n_tokens, p]`.
    pub reverse: Tensor<2>,
}

impl ElmoEncoder {
    /// Pieces in the vocabulary.
    pub fn vocab_size(&self) -> usize {
        self.pieces.len()
    }

    /// Features of a layer's state, both directions together.
    pub fn d_model(&self) -> usize {
        2 * self.characters.d_out()
    }

    /// Reads sequences of pieces.
    ///
    /// # Panics
    /// If there is no sequence, or an id is out of the vocabulary.
    pub fn forward(&self, sequences: &Sequences, device: &Device) -> ElmoOutput {
        let packing = sequences.packing();
        let words = self.words(sequences.ids(), device).squeeze_dim::<2>(0);
        let mut layers = vec![Tensor::cat(vec![words.clone(), words.clone()], 1)];
        let mut states = [words.clone(), words];
        for (number, layer) in self.layers.iter().enumerate() {
            states = layer.forward_both(states, &packing, number > 0, self.dropout);
            layers.push(Tensor::cat(states.to_vec(), 1));
        }
        let [forward, reverse] = states.map(|states| ops::dropout(states, self.dropout));
        ElmoOutput { layers, forward, reverse }
    }

    /// The vectors of pieces, `[1, n_tokens, p]`. Each distinct piece's characters are encoded once.
    ///
    /// # Panics
    /// If there is no piece, or an id is out of the vocabulary.
    pub fn words(&self, ids: &[i32], device: &Device) -> Tensor<3> {
        let mut different = ids.to_vec();
        different.sort_unstable();
        different.dedup();
        let words: Vec<&[u8]> = different.iter().map(|id| self.pieces.get(*id)).collect();
        let rows = ids.iter().map(|id| different.partition_point(|other| other < id) as i32);
        let rows = TensorData::new(rows.collect::<Vec<i32>>(), [1, ids.len()]);
        let encoded = self.characters.encode(&words, device);
        let words = ops::embedding(encoded, Tensor::<2, Int>::from_data(rows, device));
        replaced(self.characters.projection.weight.id, words)
    }
}

impl Backbone for ElmoEncoder {
    fn shape(&self) -> BackboneShape {
        BackboneShape::new(self.d_model(), self.layers.len(), self.vocab_size())
    }

    fn embeddings_path(&self) -> String {
        "characters".into()
    }

    fn layer_paths(&self) -> Vec<String> {
        (0..self.layers.len()).map(|layer| format!("layers.{layer}")).collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::elmo::{CharacterEncoderConfig, ElmoConfig, Filters};
    use crate::{ParamInit, weights};
    use burn::tensor::Tolerance;

    /// A small model for the letters as pieces.
    pub fn small() -> ElmoConfig {
        let letters: Vec<u8> = (b'a'..=b'z').collect();
        let characters = CharacterEncoderConfig {
            max_characters: 8,
            d_character: 3,
            filters: [[1, 4], [2, 4]].map(Filters::from).to_vec(),
            n_highway: 1,
            d_out: 6,
            ..CharacterEncoderConfig::default()
        };
        let pieces = letters.chunks(1).collect();
        ElmoConfig { characters, d_hidden: 9, dropout: 0.0, ..ElmoConfig::new(pieces) }
    }

    /// A small encoder with larger weights, so that states depend strongly on distant tokens.
    fn encoder(device: &Device) -> ElmoEncoder {
        let model = small().init_encoder(&mut ParamInit::new(device, 3));
        let of_layers = weights::collect(&model).into_iter().filter(|(path, _)| path.starts_with("layers"));
        let larger = of_layers.map(|(path, data)| {
            let values: Vec<f32> = data.iter::<f32>().map(|x| 2.0 * x).collect();
            (path, TensorData::new(values, data.shape().clone()))
        });
        weights::replace(model.clone(), larger.collect())
    }

    /// By how much each token's features differ.
    fn moved(a: Tensor<2>, b: Tensor<2>) -> Vec<f32> {
        (a - b).abs().max_dim(1).into_data().iter::<f32>().collect()
    }

    #[test]
    fn no_direction_sees_what_it_is_to_predict() {
        for device in [Device::flex(), Device::flex().autodiff().gradient_checkpointing()] {
            let model = encoder(&device);
            let text = [3, 4, 5, 6, 7, 8];
            let read = |ids: &[i32]| model.forward(&[ids, &[1, 2]].into_iter().collect(), &device);
            let whole = read(&text);
            assert_eq!(whole.layers.len(), 3);
            for changed in 0..text.len() {
                let mut other = text;
                other[changed] = 20;
                let other = read(&other);
                for (layer, (a, b)) in whole.layers.iter().zip(&other.layers).enumerate() {
                    let half = |states: &Tensor<2>, start| states.clone().narrow(1, start, 6);
                    let [forward, reverse] = [0, 6].map(|start| moved(half(a, start), half(b, start)));
                    for token in 0..text.len() {
                        // The lowest layer is of single tokens.
                        let (seen_forward, seen_reverse) = match layer {
                            0 => (token == changed, token == changed),
                            _ => (token >= changed, token <= changed),
                        };
                        for (what, moved, is_seen) in [
                            ("forward", forward[token], seen_forward),
                            ("reverse", reverse[token], seen_reverse),
                        ] {
                            assert_eq!(
                                moved > 0.0,
                                is_seen,
                                "{what}, layer {layer}: {token} of {changed}: {moved}"
                            );
                        }
                    }
                    // The other sequence is not touched.
                    assert!(forward[text.len()..].iter().chain(&reverse[text.len()..]).all(|x| *x < 2e-6));
                }
            }
        }
    }

    #[test]
    fn a_sequence_is_read_by_itself() {
        let device = Device::flex();
        let model = encoder(&device);
        let texts: [&[i32]; 3] = [&[3, 4, 5], &[6], &[7, 8, 9, 10]];
        let all = model.forward(&texts.into_iter().collect(), &device);
        let mut start = 0;
        for text in texts {
            let alone = model.forward(&[text].into_iter().collect(), &device);
            for (found, expected) in alone.layers.into_iter().zip(&all.layers) {
                let expected = expected.clone().narrow(0, start, text.len()).into_data();
                found.into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-6));
            }
            start += text.len();
        }
    }
}
