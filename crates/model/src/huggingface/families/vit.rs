//! Vision Transformers: transformers' `ViTModel` and `ViTForImageClassification`, and DeiT's, with the same tensors. What
//! these classes cannot express (means of patches in place of a class piece, other positions) is in this project's own
//! format, with the same names.

use super::super::fields::Fields;
use super::super::published::{Format, Published};
use super::super::{TensorRule, TensorRules, labels};
use super::activations::{activation_name, activation_of};
use super::own;
use crate::blocks::Activation;
use crate::vision::{ImageClassifier, ImageClassifierConfig, ImagePooling, PatchPositions, Vit, VitConfig};
use crate::{ParamInit, Result};
use serde_json::{Map, Value};

pub(super) const VIT: &str = "vit";
pub(super) const DEIT: &str = "deit";
pub(super) const MAE: &str = "vit_mae";

/// This project's own format, whose configuration is below [`VIT`].
const OWN: &str = "cloze-vit";

/// DeiT's class with a second head.
const WITH_TEACHER: &str = "DeiTForImageClassificationWithTeacher";

/// The encoder of any of these folders.
pub(super) fn read(fields: &Fields) -> Result<VitConfig> {
    let model_type = fields.text("model_type")?.unwrap_or(VIT);
    if model_type == OWN {
        return own::read(fields, VIT, VitConfig::validate);
    }
    // A side, or height and width.
    let size = |key: &str, default: usize| {
        let pair = |value: &Value| match value {
            Value::Array(sides) => match &sides[..] {
                [height, width] => Some([height.as_u64()?, width.as_u64()?]),
                _ => None,
            },
            side => Some([side.as_u64()?; 2]),
        };
        let found = fields.typed(key, "a whole number, or a list of height and width", pair)?;
        Ok::<_, crate::ModelError>(found.unwrap_or([default as u64; 2]).map(|side| side as usize))
    };
    let activation = match fields.text("hidden_act")? {
        None => Activation::Gelu,
        Some(name) => activation_of(name, "hidden_act", fields)?,
    };
    let number = |key: &str, default: f64| Ok::<_, crate::ModelError>(fields.number(key)?.unwrap_or(default));
    let config = VitConfig {
        image_size: size("image_size", 224)?,
        patch_size: size("patch_size", 16)?,
        n_channels: fields.positive("num_channels", 3)?,
        n_layers: fields.positive("num_hidden_layers", 12)?,
        d_model: fields.positive("hidden_size", 768)?,
        n_heads: fields.positive("num_attention_heads", 12)?,
        d_ff: fields.positive("intermediate_size", 3072)?,
        hidden_dropout: number("hidden_dropout_prob", 0.0)?,
        attention_dropout: number("attention_probs_dropout_prob", 0.0)?,
        stochastic_depth: 0.0,
        activation,
        layer_norm_eps: number("layer_norm_eps", 1e-12)?,
        attention_bias: fields.flag("qkv_bias")?.unwrap_or(true),
        init_std: number("initializer_range", 0.02)?,
        positions: if model_type == MAE { PatchPositions::Sinusoidal } else { PatchPositions::Learned },
        class_piece: true,
        distillation_piece: model_type == DEIT,
        pooling: ImagePooling::Class,
    };
    config.validate().map_err(|error| fields.error(&error.to_string()))?;
    Ok(config)
}

/// Whether transformers has such a model.
fn is_of_transformers(config: &VitConfig) -> bool {
    config.class_piece && config.pooling == ImagePooling::Class && config.positions == PatchPositions::Learned
}

/// Adds what the classes have keys for.
pub(super) fn write_fields(config: &VitConfig, map: &mut Map<String, Value>) {
    let pair = |[height, width]: [usize; 2]| -> Value {
        if height == width { height.into() } else { vec![height, width].into() }
    };
    let mut set = |key: &str, value: Value| _ = map.insert(key.to_string(), value);
    set("image_size", pair(config.image_size));
    set("patch_size", pair(config.patch_size));
    set("num_channels", config.n_channels.into());
    set("num_hidden_layers", config.n_layers.into());
    set("hidden_size", config.d_model.into());
    set("num_attention_heads", config.n_heads.into());
    set("intermediate_size", config.d_ff.into());
    set("hidden_dropout_prob", config.hidden_dropout.into());
    set("attention_probs_dropout_prob", config.attention_dropout.into());
    set("hidden_act", activation_name(config.activation).into());
    set("layer_norm_eps", config.layer_norm_eps.into());
    set("qkv_bias", config.attention_bias.into());
    set("initializer_range", config.init_std.into());
}

/// Adds an encoder's configuration; `class` is the end of its class's name.
fn write(config: &VitConfig, class: &str, map: &mut Map<String, Value>) -> Result<()> {
    config.validate()?;
    if !is_of_transformers(config) {
        map.insert("model_type".into(), OWN.into());
        own::insert(config, VIT, &format!("ClozeViT{class}"), map);
        return Ok(());
    }
    let (model_type, prefix) = if config.distillation_piece { (DEIT, "DeiT") } else { (VIT, "ViT") };
    map.insert("model_type".into(), model_type.into());
    map.insert("architectures".into(), vec![format!("{prefix}{class}")].into());
    write_fields(config, map);
    Ok(())
}

/// The rules of an encoder, with names and paths relative to it.
pub(super) fn rules(config: &VitConfig) -> TensorRules {
    let VitConfig { d_model, n_channels, patch_size: [rows, columns], .. } = *config;
    let projection = "embeddings.patch_embeddings.projection";
    let weight = TensorRule::reshape(
        &format!("{projection}.weight"),
        &[d_model, n_channels, rows, columns],
        "embeddings.projection.weight",
    );
    TensorRules::new()
        .with(TensorRule::copy("embeddings.cls_token", "embeddings.class_piece"))
        .with(TensorRule::copy("embeddings.distillation_token", "embeddings.distillation_piece"))
        .with(TensorRule::copy("embeddings.position_embeddings", "embeddings.positions"))
        .with(weight.transposed())
        .with(TensorRule::copy(&format!("{projection}.bias"), "embeddings.projection.bias"))
        .and(layer_rules().within("encoder.layer.*.", "encoder.layers.*."))
        .norm("layernorm", "encoder.final_norm")
}

/// The rules of a layer, with names and paths relative to it.
pub(super) fn layer_rules() -> TensorRules {
    TensorRules::new()
        .linear("attention.attention.query", "attention.query")
        .linear("attention.attention.key", "attention.key")
        .linear("attention.attention.value", "attention.value")
        .linear("attention.output.dense", "attention.output")
        .norm("layernorm_before", "attention_norm")
        .linear("intermediate.dense", "feed_forward.up")
        .linear("output.dense", "feed_forward.down")
        .norm("layernorm_after", "feed_forward_norm")
}

/// See [`Format::telling`]; names without a prefix.
pub(super) fn telling(config: &VitConfig) -> Vec<(String, Vec<usize>)> {
    let VitConfig { d_model, d_ff, n_channels, patch_size, n_layers, .. } = *config;
    let [rows, columns] = config.grid();
    let mut all = vec![
        (format!("encoder.layer.{}.intermediate.dense.weight", n_layers - 1), vec![d_ff, d_model]),
        (
            "embeddings.patch_embeddings.projection.weight".into(),
            vec![d_model, n_channels, patch_size[0], patch_size[1]],
        ),
    ];
    if config.positions != PatchPositions::None {
        let len = config.n_pieces() + rows * columns;
        all.push(("embeddings.position_embeddings".into(), vec![1, len, d_model]));
    }
    all
}

/// The prefix of an encoder's tensors in a folder with a head.
fn prefix(config: &VitConfig) -> &'static str {
    if config.distillation_piece { "deit." } else { "vit." }
}

/// An encoder by itself; of a folder with a head or a decoder, the encoder.
impl Format for VitConfig {
    const MODEL_TYPES: &'static [&'static str] = &[VIT, DEIT, MAE, OWN];

    fn read(fields: &Fields) -> Result<Self> {
        read(fields)
    }

    fn write(&self, map: &mut Map<String, Value>) -> Result<()> {
        write(self, "Model", map)
    }

    fn rules(&self) -> TensorRules {
        rules(self).with_optional_prefixes(["vit.", "deit."])
    }

    fn telling(&self) -> Vec<(String, Vec<usize>)> {
        telling(self)
    }
}

impl Published for VitConfig {
    type Model = Vit;

    fn init(&self, init: &mut ParamInit) -> Vit {
        self.init(init)
    }
}

impl Format for ImageClassifierConfig {
    const MODEL_TYPES: &'static [&'static str] = &[VIT, DEIT, OWN];

    fn read(fields: &Fields) -> Result<Self> {
        let vit = read(fields)?;
        let classes = |value: &Value| {
            value
                .as_array()?
                .iter()
                .map(|class| class.as_str().map(str::to_owned))
                .collect::<Option<Vec<String>>>()
        };
        let classes = fields.typed("architectures", "a list of classes", classes)?.unwrap_or_default();
        let distillation_head = match fields.text("model_type")? {
            Some(OWN) => vit.distillation_piece,
            _ => vit.distillation_piece && classes.iter().any(|class| class == WITH_TEACHER),
        };
        Ok(Self { vit, labels: labels::read(fields)?, distillation_head })
    }

    fn write(&self, map: &mut Map<String, Value>) -> Result<()> {
        self.validate()?;
        let class = if self.distillation_head {
            "ForImageClassificationWithTeacher"
        } else {
            "ForImageClassification"
        };
        write(&self.vit, class, map)?;
        labels::write(&self.labels, map);
        Ok(())
    }

    fn rules(&self) -> TensorRules {
        let head = if self.distillation_head { "cls_classifier" } else { "classifier" };
        rules(&self.vit)
            .within(prefix(&self.vit), "encoder.")
            .linear(head, "head")
            .linear("distillation_classifier", "distillation_head")
            .with_optional_prefixes(["vit.", "deit."])
    }

    fn telling(&self) -> Vec<(String, Vec<usize>)> {
        let mut all = telling(&self.vit);
        let head = if self.distillation_head { "cls_classifier" } else { "classifier" };
        all.push((format!("{head}.weight"), vec![self.labels.len(), self.vit.d_model]));
        all
    }
}

impl Published for ImageClassifierConfig {
    type Model = ImageClassifier<Vit>;

    fn init(&self, init: &mut ParamInit) -> ImageClassifier<Vit> {
        self.init(init)
    }
}

#[cfg(test)]
mod tests {
    use super::own::tests::{comes_back, refused};
    use super::*;
    use burn::tensor::{Device, Tensor};
    use serde_json::json;

    fn vit() -> VitConfig {
        VitConfig::new(12, 4, 2, 8).with_n_heads(2).with_image_size([12, 8]).with_patch_size([4, 2])
    }

    fn classifier(vit: VitConfig) -> ImageClassifierConfig {
        ImageClassifierConfig::new(vit, 3).with_labels(["red", "green", "blue"].map(str::to_owned).to_vec())
    }

    #[test]
    fn a_saved_model_is_the_model() {
        let pixels = Tensor::<4>::ones([1, 3, 12, 8], &Device::flex());
        for vit in [
            vit(),
            vit().with_distillation_piece(true).with_attention_bias(false),
            vit().with_class_piece(false).with_pooling(ImagePooling::Mean),
            vit().with_positions(PatchPositions::Sinusoidal),
            vit().with_positions(PatchPositions::None).with_distillation_piece(true),
        ] {
            comes_back(&vit);
            let [found, expected] =
                comes_back(&classifier(vit)).map(|model| model.forward(pixels.clone()).into_data());
            assert_eq!(found, expected);
        }
        comes_back(&ImageClassifierConfig {
            distillation_head: false,
            ..classifier(vit().with_distillation_piece(true))
        });
    }

    #[test]
    fn a_damaged_configuration_is_named() {
        let refused = refused::<ImageClassifierConfig>;
        for (key, value, expected) in [
            ("image_size", json!([8]), "expected a whole number, or a list of height and width"),
            ("patch_size", json!(0), "`patch_size` is 0, expected at least 1"),
            (
                "patch_size",
                json!([300, 4]),
                "`patch_size` is 300 × 4, expected at most the image's, 224 × 224",
            ),
            ("num_attention_heads", json!(7), "`n_heads` is 7, expected a divisor of `d_model`"),
            ("hidden_act", json!("sinc"), "`hidden_act` is \"sinc\", expected"),
        ] {
            let message = refused(&json!({ "model_type": "vit", key: value }));
            assert!(message.contains(expected), "{message}");
        }
        let message = refused(&json!({ "model_type": "resnet" }));
        assert!(message.contains("`model_type` is \"resnet\", expected"), "{message}");
    }
}
