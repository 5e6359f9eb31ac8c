use super::{ImageClassifierConfig, PatchEmbeddings, PatchPositions, Vit, patch_embeddings};
use crate::blocks::{
    Activation, Encoder, EncoderLayerConfig, FeedForwardConfig, MultiHeadAttention, MultiHeadAttentionConfig,
    Norm, NormKind, NormPlacement,
};
use crate::sizes::check_sizes;
use crate::vision::ImageClassifier;
use crate::with_fields::with_fields;
use crate::{ModelError, ParamInit, Result};
use serde::{Deserialize, Serialize};

/// The configuration of a [`Vit`].
///
/// ```
/// # use cloze_model::vision::VitConfig;
/// let base = VitConfig::new(224, 16, 12, 768);
/// assert_eq!((base.n_heads, base.d_ff, base.grid(), base.n_pieces()), (12, 3072, [14, 14], 1));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct VitConfig {
    /// Height and width of the images, in pixels.
    pub image_size: [usize; 2],
    /// Height and width of a patch, in pixels.
    pub patch_size: [usize; 2],
    /// Numbers of a pixel: 3 for colours.
    pub n_channels: usize,
    /// Encoder layers.
    pub n_layers: usize,
    /// Features of a hidden state.
    pub d_model: usize,
    /// Attention heads, which share `d_model` evenly.
    pub n_heads: usize,
    /// Features inside the feed-forward networks.
    pub d_ff: usize,
    /// Dropout on the embeddings and on each sub-layer's output.
    pub hidden_dropout: f64,
    /// Dropout on the attention probabilities.
    pub attention_dropout: f64,
    /// The probability that the last layer's sub-layers are left out for an image in training; it grows evenly from 0 in
    /// the first layer (Huang et al. 2016).
    pub stochastic_depth: f64,
    /// The non-linearity of the feed-forward networks.
    pub activation: Activation,
    /// Added to the variance in every layer normalisation.
    pub layer_norm_eps: f64,
    /// Whether the maps to queries, keys and values have biases.
    pub attention_bias: bool,
    /// Standard deviation of the truncated normal that weights start from.
    pub init_std: f64,
    /// Where the positions of patches come from.
    pub positions: PatchPositions,
    /// Whether there is a class piece.
    pub class_piece: bool,
    /// Whether there is a distillation piece (DeiT).
    pub distillation_piece: bool,
    /// What heads see.
    pub pooling: ImagePooling,
}

/// What a head sees of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ImagePooling {
    /// The class piece's last state.
    #[default]
    Class,
    /// The mean of the patches' last states.
    Mean,
}

impl ImagePooling {
    /// Its name in configs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Class => "class",
            Self::Mean => "mean",
        }
    }
}

with_fields!(VitConfig {
    with_image_size => image_size: [usize; 2],
    with_patch_size => patch_size: [usize; 2],
    with_n_channels => n_channels: usize,
    with_n_heads => n_heads: usize,
    with_d_ff => d_ff: usize,
    with_hidden_dropout => hidden_dropout: f64,
    with_attention_dropout => attention_dropout: f64,
    with_stochastic_depth => stochastic_depth: f64,
    with_activation => activation: Activation,
    with_layer_norm_eps => layer_norm_eps: f64,
    with_attention_bias => attention_bias: bool,
    with_init_std => init_std: f64,
    with_positions => positions: PatchPositions,
    with_class_piece => class_piece: bool,
    with_distillation_piece => distillation_piece: bool,
    with_pooling => pooling: ImagePooling,
});

impl VitConfig {
    /// Square images and patches with these sides, colours, heads of 64 features where they divide `d_model`, and
    /// `d_ff = 4 · d_model`: the paper's sizes are `(12, 768)`, `(24, 1024)` and, with `d_ff = 5120`, `(32, 1280)`.
    pub fn new(image: usize, patch: usize, n_layers: usize, d_model: usize) -> Self {
        Self {
            image_size: [image; 2],
            patch_size: [patch; 2],
            n_channels: 3,
            n_layers,
            d_model,
            n_heads: (d_model / 64).max(1),
            d_ff: 4 * d_model,
            hidden_dropout: 0.0,
            attention_dropout: 0.0,
            stochastic_depth: 0.0,
            activation: Activation::Gelu,
            layer_norm_eps: 1e-12,
            attention_bias: true,
            init_std: 0.02,
            positions: PatchPositions::Learned,
            class_piece: true,
            distillation_piece: false,
            pooling: ImagePooling::Class,
        }
    }

    /// Rows and columns of patches in an image of the configured size.
    pub fn grid(&self) -> [usize; 2] {
        patch_embeddings::grid(self.image_size, self.patch_size)
    }

    /// The number of pieces before the patches.
    pub fn n_pieces(&self) -> usize {
        usize::from(self.class_piece) + usize::from(self.distillation_piece)
    }

    /// The floating-point operations of an image's way through the encoder, with a product and a sum counted as two: the
    /// linear maps and the products of attention.
    pub fn flops(&self) -> f64 {
        let [rows, columns] = self.grid();
        let (patches, d_model) = ((rows * columns) as f64, self.d_model as f64);
        let len = patches + self.n_pieces() as f64;
        let of_patch = (self.n_channels * self.patch_size[0] * self.patch_size[1]) as f64;
        let of_layer = len * d_model * (8.0 * d_model + 4.0 * len + 4.0 * self.d_ff as f64);
        2.0 * patches * of_patch * d_model + self.n_layers as f64 * of_layer
    }

    /// Checks that the values are consistent.
    ///
    /// # Errors
    /// [`ModelError::Setting`] with the invalid field.
    pub fn validate(&self) -> Result<()> {
        let [[height, width], [rows, columns]] = [self.image_size, self.patch_size];
        check_sizes([
            ("image_size", height),
            ("image_size", width),
            ("patch_size", rows),
            ("patch_size", columns),
            ("n_channels", self.n_channels),
            ("n_layers", self.n_layers),
            ("d_model", self.d_model),
            ("n_heads", self.n_heads),
            ("d_ff", self.d_ff),
        ])?;
        let most = i32::MAX as usize;
        let fits = |sizes: &[usize]| {
            sizes
                .iter()
                .try_fold(1usize, |product, size| product.checked_mul(*size))
                .is_some_and(|n| n <= most)
        };
        if rows > height || columns > width {
            let expected = format!("at most the image's, {height} × {width}");
            return Err(ModelError::setting("patch_size", format!("{rows} × {columns}"), expected));
        }
        if !fits(&[rows, columns, self.n_channels]) {
            return Err(ModelError::setting(
                "patch_size",
                format!("{rows} × {columns}"),
                "fewer numbers in a patch",
            ));
        }
        let [grid_rows, grid_columns] = self.grid();
        if !fits(&[grid_rows, grid_columns, self.d_model]) {
            return Err(ModelError::setting("image_size", format!("{height} × {width}"), "fewer patches"));
        }
        if !self.d_model.is_multiple_of(self.n_heads) {
            let expected = format!("a divisor of `d_model`, which is {}", self.d_model);
            return Err(ModelError::setting("n_heads", self.n_heads, expected));
        }
        for (key, p) in [
            ("hidden_dropout", self.hidden_dropout),
            ("attention_dropout", self.attention_dropout),
            ("stochastic_depth", self.stochastic_depth),
        ] {
            if !(0.0..1.0).contains(&p) {
                return Err(ModelError::setting(key, p, "0 or more and below 1"));
            }
        }
        for (key, value) in [("layer_norm_eps", self.layer_norm_eps), ("init_std", self.init_std)] {
            if !(value.is_finite() && value > 0.0) {
                return Err(ModelError::setting(key, value, "a finite number above 0"));
            }
        }
        if self.positions == PatchPositions::Sinusoidal && !self.d_model.is_multiple_of(4) {
            return Err(ModelError::setting(
                "d_model",
                self.d_model,
                "a multiple of 4, for sinusoidal positions",
            ));
        }
        if self.pooling == ImagePooling::Class && !self.class_piece {
            return Err(ModelError::setting("pooling", "class", "mean: there is no class piece"));
        }
        if self.distillation_piece && !self.class_piece {
            return Err(ModelError::setting("distillation_piece", true, "false: there is no class piece"));
        }
        Ok(())
    }

    /// A new model.
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init(&self, init: &mut ParamInit) -> Vit {
        self.validate().unwrap_or_else(|error| panic!("{error}"));
        let before = init.replace_values((self.init_std, false));
        let embeddings = PatchEmbeddings::new(self, init);
        let encoder = self.init_encoder(init);
        init.replace_values(before);
        Vit { embeddings, encoder, pooling: self.pooling }
    }

    /// The layers of a new model, and the normalisation after them.
    pub(super) fn init_encoder(&self, init: &mut ParamInit) -> Encoder<MultiHeadAttention> {
        let layer = EncoderLayerConfig {
            feed_forward: FeedForwardConfig::new(self.d_model, self.d_ff, self.activation),
            attention_output_dropout: self.hidden_dropout,
            feed_forward_output_dropout: self.hidden_dropout,
            norm: NormPlacement::Pre,
            norm_kind: NormKind::Layer,
            layer_norm_eps: self.layer_norm_eps,
        };
        let attention = MultiHeadAttentionConfig::new(self.d_model, self.n_heads)
            .with_biases(self.attention_bias, true)
            .with_dropout(self.attention_dropout);
        let last = (self.n_layers - 1).max(1) as f64;
        let layers = (0..self.n_layers).map(|number| {
            let attention = attention.init(init);
            let depth = self.stochastic_depth * number as f64 / last;
            layer.init(attention, init).with_stochastic_depth(depth)
        });
        Encoder {
            layers: layers.collect(),
            final_norm: Some(Norm::new(NormKind::Layer, self.d_model, self.layer_norm_eps, init)),
            output_dropout: 0.0,
            order: (0..self.n_layers).collect(),
            recompute: false,
        }
    }

    /// A new model with a head of this many classes; with two of them if there is a distillation piece.
    ///
    /// # Panics
    /// If the configuration is not [valid](Self::validate).
    pub fn init_classifier(&self, n_classes: usize, init: &mut ParamInit) -> ImageClassifier<Vit> {
        ImageClassifierConfig::new(self.clone(), n_classes).init(init)
    }
}
