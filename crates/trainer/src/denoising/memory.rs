//! Estimates the memory of a denoising run.

use crate::config::{DenoisingRunConfig, OutputSection, TrainSection};
use crate::memory::{FLOAT, Keys, MOMENTS, MemoryEstimate, product};
use crate::{Result, memory};
use cloze_model::seq2seq::{AnyEncoderDecoderConfig, TransformerConfig};

/// Bytes of a token id in a batch.
const TOKEN: u64 = 4;
/// The shortest texts, in tokens: one between two special tokens.
pub(super) const SHORTEST: [f64; 2] = [3.0; 2];

/// A model's size.
pub(super) struct Size {
    /// Number of trained parameters.
    pub parameters: u64,
    /// Of source and target.
    pub vocab_size: usize,
    /// Logits of a target token in training.
    pub n_logits: usize,
    /// The network, if its layers' memory use is known.
    pub network: Option<TransformerConfig>,
}

impl Size {
    /// The size of a model of this crate with this many parameters.
    pub fn new(parameters: u64, config: &AnyEncoderDecoderConfig, output: &OutputSection) -> Self {
        let [_, vocab_size] = config.vocab_sizes();
        let network = match config {
            AnyEncoderDecoderConfig::Transformer(config) => Some(config.clone()),
            _ => None,
        };
        Self { parameters, vocab_size, n_logits: output.n_logits(vocab_size), network }
    }

    /// The memory of a run with sources and targets of these mean lengths in tokens. For anything but a
    /// Transformer, layer activations are not counted.
    pub fn estimate(&self, train: &TrainSection, [source, target]: [f64; 2]) -> MemoryEstimate {
        let sequences = train.batch_size as f64;
        let [sources, targets] = [source, target].map(|len| len * sequences);
        let of_layers = self.network.as_ref().map_or(0.0, |network| {
            let TransformerConfig { n_encoder_layers, n_decoder_layers, d_model, d_ff, n_heads, .. } =
                *network;
            let [encoder, decoder, d] = [n_encoder_layers, n_decoder_layers, d_model].map(|size| size as f64);
            let of_encoder = [d_ff, n_heads].map(|size| size as f64);
            let of_decoder = [network.decoder_ff(), network.decoder_heads()].map(|size| size as f64);
            // Of a token in a layer: what enters self-attention's and the feed-forward's maps and the normalisations,
            // queries, keys and values, and the attention probabilities, as in an encoder's.
            let of_layer = |[d_ff, heads]: [f64; 2], len: f64| 8.0 * d + 2.0 * d_ff + heads * len;
            // Attention to the source: its input, query, result and sum of a target's token, key and value of a source's.
            let of_target = of_layer(of_decoder, target) + 4.0 * d + of_decoder[1] * source;
            let outside = 3.0 * d * (sources + targets);
            sources * (encoder * of_layer(of_encoder, source) + decoder * 2.0 * d)
                + targets * decoder * of_target
                + outside
        });
        let kept = of_layers + targets * self.n_logits as f64;
        let parameters = product([self.parameters, FLOAT]);
        let in_memory = (train.accumulate + train.prefetch + train.workers) as u64;
        MemoryEstimate {
            parameters,
            gradients: parameters,
            moments: product([parameters, MOMENTS]),
            activations: product([kept.ceil() as u64, FLOAT]),
            // They are not recomputed.
            recomputed: u64::MAX,
            batches: product([(sources + targets).ceil() as u64, TOKEN, in_memory]),
            saving: parameters,
        }
    }

    /// Rejects a run that certainly needs more than `has` bytes.
    ///
    /// # Errors
    /// [`TrainerError::Memory`](crate::TrainerError::Memory).
    pub fn check(&self, config: &DenoisingRunConfig, lengths: [f64; 2], has: Option<u64>) -> Result<()> {
        let model = match &self.network {
            Some(TransformerConfig { d_model, d_ff, .. }) => format!(
                "the layers in `[model]`, `model.d_model` ({d_model}), `model.d_ff` ({d_ff}) or the vocabulary ({})",
                self.vocab_size
            ),
            None => format!("the sizes in `[model]` or the vocabulary ({})", self.vocab_size),
        };
        let batch = format!(
            "`train.batch_size` ({}) or `examples.seq_len` ({})",
            config.train.batch_size, config.examples.seq_len
        );
        let keys = Keys { model, batch, can_recompute: false };
        memory::check(&self.estimate(&config.train, lengths), has, &keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Place;

    fn config(sets: &[&str]) -> DenoisingRunConfig {
        let text = r#"
objective.kind = "denoising"
corpus.files = ["a.txt"]
tokenizer = { kind = "train-byte-bpe", vocab_size = 8192 }
examples.seq_len = 128
model = { kind = "bart", n_layers = 4, d_model = 256, n_heads = 4, d_ff = 1024 }
train = { steps = 10, batch_size = 32 }
optimizer.lr = 1e-3
schedule.kind = "constant"
"#;
        let sets: Vec<String> = sets.iter().map(|set| (*set).to_owned()).collect();
        DenoisingRunConfig::parse(text, "run", &Place::argument(""), &sets).unwrap()
    }

    fn size(config: &DenoisingRunConfig, parameters: u64) -> Size {
        let vocabulary = crate::translation::VocabularySizes::unknown(true, &OutputSection::default());
        let model = config.model.config(vocabulary, config.max_len(), true);
        Size { vocab_size: 8192, n_logits: 8192, ..Size::new(parameters, &model, config.model.output()) }
    }

    #[test]
    fn layers_and_logits_are_counted() {
        let config = config(&[]);
        let estimate = size(&config, 10_000_000).estimate(&config.train, [90.0, 128.0]);
        assert_eq!((estimate.parameters, estimate.moments), (40_000_000, 80_000_000));
        let logits = 32 * 128 * 8192 * 4;
        assert!((2 * logits..8 * logits).contains(&estimate.activations), "{estimate}");
        let config = self::config(&["model={ kind = \"recurrent\", d_embedding = 64, d_model = 64 }"]);
        let estimate = size(&config, 1_000_000).estimate(&config.train, [90.0, 128.0]);
        assert_eq!(estimate.activations, logits, "{estimate}");
    }

    #[test]
    fn what_surely_does_not_fit_is_refused_by_its_key() {
        let config = config(&[]);
        let refused = |size: Size, has| {
            size.check(&config, [90.0, 128.0], Some(has)).err().map(|error| error.to_string())
        };
        assert_eq!(refused(size(&config, 10_000_000), 1_000_000_000), None);
        let message = refused(size(&config, 10_000_000), 300_000_000).unwrap();
        assert!(message.ends_with("lower `train.batch_size` (32) or `examples.seq_len` (128)"), "{message}");
        let message = refused(size(&config, 1_000_000_000), 300_000_000).unwrap();
        assert!(message.contains("`model.d_model` (256)") && message.ends_with("(8192)"), "{message}");
        // What no machine has is no overflow.
        let all = Size { vocab_size: usize::MAX, ..size(&config, u64::MAX) };
        assert_eq!(all.estimate(&config.train, [f64::MAX; 2]).total(), u64::MAX);
    }
}
