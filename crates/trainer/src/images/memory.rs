//! Estimates the memory of training on images before it allocates.

use super::config::ImageTrain;
use crate::engine::RunOptions;
use crate::memory::{FLOAT, Keys, Load, MemoryEstimate, check, product};
use crate::metrics::progress::RunProgress;
use crate::{Result, recompute};
use cloze_model::bert::BertConfig;
use cloze_model::vision::{AnyImageEncoderConfig, ImagePooling, MaeConfig, ResNetConfig, VitConfig};
use std::path::Path;

/// Layers over the tokens of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layers {
    pub n_layers: usize,
    pub d_model: usize,
    pub n_heads: usize,
    pub d_ff: usize,
    /// The tokens that they read of each image.
    pub tokens: usize,
    /// Whether the last layer computes the states of all tokens, not only of the pieces that heads see.
    pub whole: bool,
}

impl Layers {
    /// Those of a classifier's encoder.
    pub fn of(vit: &VitConfig) -> Self {
        let [rows, columns] = vit.grid();
        let VitConfig { n_layers, d_model, n_heads, d_ff, pooling, .. } = *vit;
        let tokens = rows * columns + vit.n_pieces();
        Self { n_layers, d_model, n_heads, d_ff, tokens, whole: pooling == ImagePooling::Mean }
    }

    /// Those of any encoder. A residual network has none that reads tokens: see [`Maps`].
    pub fn of_any(config: &AnyImageEncoderConfig) -> Vec<Self> {
        match config {
            AnyImageEncoderConfig::Vit(vit) => vec![Self::of(vit)],
            other => {
                let d_model = other.d_model();
                vec![Self { n_layers: 1, d_model, n_heads: 1, d_ff: d_model, tokens: 0, whole: false }]
            }
        }
    }

    /// The encoder's, which sees some patches, and the decoder's, which sees all.
    pub fn of_mae(mae: &MaeConfig) -> [Self; 2] {
        let encoder = Self::of(&mae.vit);
        let n_pieces = mae.vit.n_pieces();
        let decoder = &mae.decoder;
        [
            Self { tokens: mae.n_kept() + n_pieces, whole: true, ..encoder },
            Self {
                n_layers: decoder.n_layers,
                d_model: decoder.d_model,
                n_heads: decoder.n_heads,
                d_ff: decoder.d_ff,
                whole: true,
                ..encoder
            },
        ]
    }

    /// An encoder of texts that keeps as much.
    fn encoder(&self) -> BertConfig {
        let n_layers = self.n_layers + usize::from(self.whole);
        BertConfig::new(1, n_layers, self.d_model).with_n_heads(self.n_heads).with_d_ff(self.d_ff)
    }
}

/// The feature maps of convolutions that an image leaves for the backward pass, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Maps {
    /// All that are kept.
    pub all: u64,
    /// The inputs of blocks alone, which are kept where blocks are recomputed.
    pub inputs: u64,
}

impl Maps {
    /// Those of any encoder; none of a Vision Transformer.
    pub fn of_any(config: &AnyImageEncoderConfig) -> Self {
        match config {
            AnyImageEncoderConfig::ResNet(resnet) => Self::of(resnet),
            _ => Self::default(),
        }
    }

    fn of(resnet: &ResNetConfig) -> Self {
        let mut maps = Self::default();
        for ([rows, columns], channels) in resnet.stages() {
            let map = product([rows as u64, columns as u64, channels as u64, FLOAT]);
            let blocks = resnet.n_blocks as u64;
            // Of a block both convolutions' outputs and what is normalised of each.
            maps.all = maps.all.saturating_add(product([4, map, blocks]));
            maps.inputs = maps.inputs.saturating_add(product([map, blocks]));
        }
        maps
    }
}

/// The size of a run on images.
#[derive(Debug, Clone)]
pub(super) struct Size<'a> {
    /// The model's parameters, and how many of them are trained.
    pub parameters: [u64; 2],
    /// All layers that a step goes through.
    pub layers: Vec<Layers>,
    /// The feature maps of an image.
    pub maps: Maps,
    /// Height and width of the model's input.
    pub input: [usize; 2],
    /// Views of each image.
    pub views: usize,
    /// Views whose graph is in memory at the same time, if they are fewer than those of a micro-batch.
    pub chunk: Option<usize>,
    /// The checkpoint, if the sizes are its.
    pub checkpoint: Option<&'a Path>,
}

impl Size<'_> {
    /// The memory of a step.
    pub fn estimate(&self, train: &ImageTrain) -> MemoryEstimate {
        let all = train.batch_size.saturating_mul(self.views);
        let [parameters, trained] = self.parameters;
        let of = |layers: &Layers| {
            let load = Load {
                sequences: self.chunk.map_or(all, |chunk| chunk.min(all)) as u64,
                mean_len: layers.tokens as f64,
                predicted: 0.0,
                batches: 0,
                recompute: train.recompute,
            };
            MemoryEstimate::new(&layers.encoder(), parameters, trained, load)
        };
        let estimate = self.layers.iter().map(of).reduce(|sum, other| sum.with_activations_of(&other));
        let pixels = product([3, FLOAT, self.input[0] as u64, self.input[1] as u64, all as u64]);
        let batches = [train.accumulate, train.prefetch, train.workers].map(|n| n as u64);
        let batches = product([pixels, batches.into_iter().fold(0, u64::saturating_add)]);
        let estimate = estimate.expect("a model has layers");
        let views = self.chunk.map_or(all, |chunk| chunk.min(all)) as u64;
        let of_view = if train.recompute { self.maps.inputs } else { self.maps.all };
        let activations = estimate.activations.saturating_add(product([of_view, views]));
        MemoryEstimate { batches, activations, ..estimate }
    }

    /// Prints the estimate, and rejects a run that certainly needs more memory than there is.
    ///
    /// # Errors
    /// [`TrainerError::Memory`](crate::TrainerError::Memory).
    pub fn check(
        &self,
        train: &ImageTrain,
        options: &RunOptions<'_>,
        progress: &mut dyn RunProgress,
    ) -> Result<()> {
        let estimate = self.estimate(train);
        progress.note(&format!("memory: {estimate}"));
        let model = match self.checkpoint {
            Some(path) => format!("the model's size, which `model.path` ({}) decides", path.display()),
            None => {
                let Layers { n_layers, d_model, d_ff, .. } = self.layers[0];
                format!("`model.n_layers` ({n_layers}), `model.d_model` ({d_model}) or `model.d_ff` ({d_ff})")
            }
        };
        let [height, width] = self.input;
        let batch = format!(
            "`train.batch_size` ({}), `train.accumulate` ({}), `train.prefetch` ({}) or `data.size` ({height} × {width})",
            train.batch_size, train.accumulate, train.prefetch
        );
        let can_recompute = !train.recompute && recompute::is_possible(&options.device);
        check(&estimate, options.memory, &Keys { model, batch, can_recompute })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::progress::Silent;
    use burn::tensor::Device;
    use cloze_model::vision::MaeDecoderConfig;

    fn size(layers: Vec<Layers>) -> Size<'static> {
        let parameters = [85_800_000; 2];
        let maps = Maps::default();
        Size { parameters, layers, maps, input: [224; 2], views: 1, chunk: None, checkpoint: None }
    }

    #[test]
    fn a_batch_is_patches_and_pixels() {
        let base = VitConfig::new(224, 16, 12, 768);
        let train = ImageTrain::new(1, 32);
        let whole = size(vec![Layers::of(&base)]).estimate(&train);
        // Six batches of 32 images of 3 numbers of 4 bytes for each pixel.
        assert_eq!(whole.batches, 6 * 32 * 3 * 4 * 224 * 224);
        let restored = MaeConfig::new(base.clone(), MaeDecoderConfig::new(1, 64, 4));
        let masked = size(Layers::of_mae(&restored).to_vec()).estimate(&train);
        assert!(masked.activations < whole.activations / 2, "{masked}");
        let views = Size { views: 2, ..size(vec![Layers::of(&base)]) };
        assert_eq!(views.estimate(&train).batches, 2 * whole.batches);
        assert!(views.estimate(&train).activations.abs_diff(2 * whole.activations) < 1_000);
        let parts = Size { chunk: Some(32), ..views };
        assert_eq!(parts.estimate(&train).activations, whole.activations);
        assert!(ImageTrain::new(1, usize::MAX).batch_size > 1);
        assert_eq!(parts.estimate(&ImageTrain::new(1, usize::MAX)).total(), u64::MAX);
    }

    #[test]
    fn a_residual_network_keeps_its_feature_maps() {
        let resnet = AnyImageEncoderConfig::from(ResNetConfig::new(32, 3));
        let maps = Maps::of_any(&resnet);
        // Three stages of three blocks, each of half as many numbers as the one before.
        let first = 32 * 32 * 16 * 4;
        assert_eq!(maps, Maps { all: 4 * 3 * (first + first / 2 + first / 4), inputs: maps.all / 4 });
        let of = |recompute| {
            let train = ImageTrain { recompute, ..ImageTrain::new(1, 128) };
            Size { maps, ..size(Layers::of_any(&resnet)) }.estimate(&train).activations
        };
        assert!(of(false) >= 128 * maps.all && of(true) < of(false) / 2);
        assert_eq!(Maps::of_any(&VitConfig::new(32, 4, 1, 8).into()), Maps::default());
    }

    #[test]
    fn what_surely_does_not_fit_is_refused_by_its_key() {
        let size = size(vec![Layers::of(&VitConfig::new(224, 16, 12, 768))]);
        let refused = |batch_size, has| {
            let options = RunOptions::new(Device::flex(), "run").memory(Some(has));
            let train = ImageTrain { recompute: true, ..ImageTrain::new(1, batch_size) };
            size.check(&train, &options, &mut Silent).err().map(|error| error.to_string())
        };
        assert_eq!(refused(32, 64_000_000_000), None);
        let message = refused(100_000, 64_000_000_000).unwrap();
        let batch = "lower `train.batch_size` (100000), `train.accumulate` (1), `train.prefetch` (4) or `data.size` \
                     (224 × 224)";
        assert!(message.ends_with(batch), "{message}");
        let message = refused(1, 1_000_000_000).unwrap();
        let model = "lower `model.n_layers` (12), `model.d_model` (768) or `model.d_ff` (3072)";
        assert!(message.ends_with(model), "{message}");
    }
}
