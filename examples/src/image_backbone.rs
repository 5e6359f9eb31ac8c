//! A backbone of one's own for images: MLP-Mixer (Tolstikhin et al. 2021), which has no attention.
//!
//! ```text
//! U = X + W₂·GELU(W₁·LN(X)ᵀ)ᵀ      patches are mixed, each feature by itself
//! Y = U + W₄·GELU(W₃·LN(U))         features are mixed, each patch by itself
//! ```
//!
//! It implements [`ImageEncoder`], and the recipe for classification does the rest.

use burn::module::Module;
use burn::tensor::Tensor;
use cloze_data::images::{AugmentConfig, CropConfig, ImageData, Preprocessing, labelled_images};
use cloze_data::labelled::{LabelledSource, Labels};
use cloze_model::blocks::{Activation, FeedForward, FeedForwardConfig, Linear, Norm, NormKind};
use cloze_model::vision::{ImageClassifier, ImageEncoder, ImageStates, patches};
use cloze_model::{Backbone, BackboneShape, ParamInit, linear_maps};
use cloze_trainer::Result;
use cloze_trainer::engine::{Cadence, Export, Outcome, RunOptions, RunSettings, train};
use cloze_trainer::images::{ImageClassification, ImageEval, ImageSplits, ImageTrain};
use cloze_trainer::metrics::progress::RunProgress;
use std::path::Path;
use std::sync::Arc;

const SIDE: usize = 8;
const PATCH: usize = 2;
const PATCHES: usize = (SIDE / PATCH) * (SIDE / PATCH);
const WIDTH: usize = 64;

/// A layer of a [`Mixer`].
#[derive(Module, Debug)]
pub struct MixerLayer {
    patch_norm: Norm,
    /// From patches to patches.
    patches: FeedForward,
    feature_norm: Norm,
    /// From features to features.
    features: FeedForward,
}

linear_maps!(MixerLayer { patches, features });

impl MixerLayer {
    fn new(init: &mut ParamInit) -> Self {
        let norm = |init: &mut ParamInit| Norm::new(NormKind::Layer, WIDTH, 1e-6, init);
        Self {
            patch_norm: norm(init),
            patches: FeedForwardConfig::new(PATCHES, 2 * PATCHES, Activation::Gelu).init(init),
            feature_norm: norm(init),
            features: FeedForwardConfig::new(WIDTH, 2 * WIDTH, Activation::Gelu).init(init),
        }
    }

    /// `[batch, patches, features]` → the same
    fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let turned = self.patch_norm.forward(x.clone()).swap_dims(1, 2);
        let mixed = x + self.patches.forward(turned).swap_dims(1, 2);
        let normed = self.feature_norm.forward(mixed.clone());
        mixed + self.features.forward(normed)
    }
}

/// MLP-Mixer.
#[derive(Module, Debug)]
pub struct Mixer {
    embed: Linear,
    layers: Vec<MixerLayer>,
    norm: Norm,
}

linear_maps!(Mixer { embed, layers });

impl Mixer {
    fn new(n_layers: usize, init: &mut ParamInit) -> Self {
        let embed = Linear::new(3 * PATCH * PATCH, WIDTH, init);
        let layers = (0..n_layers).map(|_| MixerLayer::new(init)).collect();
        Self { embed, layers, norm: Norm::new(NormKind::Layer, WIDTH, 1e-6, init) }
    }
}

impl Backbone for Mixer {
    fn shape(&self) -> BackboneShape {
        BackboneShape::new(WIDTH, self.layers.len(), 0)
    }

    fn embeddings_path(&self) -> String {
        "embed".into()
    }

    fn layer_paths(&self) -> Vec<String> {
        (0..self.layers.len()).map(|layer| format!("layers.{layer}")).collect()
    }
}

/// Its summary is the mean of its places, the default.
impl ImageEncoder for Mixer {
    fn forward(&self, pixels: Tensor<4>) -> ImageStates {
        let embedded = self.embed.forward(patches(pixels, [PATCH; 2]));
        let states = self.layers.iter().fold(embedded, |x, layer| layer.forward(x));
        ImageStates::new(self.norm.forward(states), [SIDE / PATCH; 2])
    }
}

/// Trains it on the embedded digits.
pub fn run(steps: u64, options: &RunOptions<'_>, progress: &mut dyn RunProgress) -> Result<Outcome> {
    let datasets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../datasets");
    let read = |part: &str, labels: Labels| {
        let name = format!("digits-{part}-images-idx3-ubyte.gz");
        labelled_images(&LabelledSource::default().with_files([name]), &datasets, labels)
    };
    let (digits, labels) = read("train", Labels::Found)?;
    let labels = labels.expect("digits have classes");
    let (others, _) = read("test", Labels::Of(&labels))?;
    let of = |examples| ImageData::new(examples, Preprocessing::to_size(SIDE, SIDE), 7);
    let crop = Some(CropConfig::Padded { padding: 1 });
    let augment = AugmentConfig { crop, ..AugmentConfig::default() };
    let splits = ImageSplits {
        labels: labels.names().to_vec(),
        train: Arc::new(of(digits.examples)?.with_augment(augment)?),
        dev: Some(of(others.examples)?),
        test: None,
    };
    let (batches, eval) = (ImageTrain::new(1, 64), ImageEval::default());
    let recipe = ImageClassification::<Mixer>::new(splits, &batches, &eval)?;
    let init = &mut ParamInit::new(&options.device.clone().autodiff(), 7).with_std(0.1);
    let model = ImageClassifier::new(Mixer::new(4, init), labels.len(), init);
    let mut settings = RunSettings::new("mixer", steps, 2e-3);
    settings.evaluate = Cadence::Every(steps.div_ceil(4));
    settings.export = Export::Best;
    train(&recipe, model, &settings, options, progress)
}
