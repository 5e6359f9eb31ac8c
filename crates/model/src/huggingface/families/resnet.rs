//! Residual networks with group normalisation, in this project's own format: transformers' `ResNetModel` has batch normalisation alone.
//! And folders with an encoder of images of any kind.

use super::super::fields::Fields;
use super::super::published::{Format, Published};
use super::super::{TensorRule, TensorRules, labels};
use super::own;
use crate::vision::{
    AnyImageClassifierConfig, AnyImageEncoder, AnyImageEncoderConfig, ImageClassifier, ImageClassifierConfig,
    ResNet, ResNetClassifierConfig, ResNetConfig, VitConfig,
};
use crate::{ParamInit, Result};
use serde_json::{Map, Value};

const RESNET: &str = "resnet";
const OWN: &str = "cloze-resnet";

/// The channels of each block's input and output.
fn blocks(config: &ResNetConfig) -> Vec<[usize; 2]> {
    let outputs = config.widths.iter().flat_map(|width| std::iter::repeat_n(*width, config.n_blocks));
    let outputs: Vec<usize> = outputs.collect();
    let first = config.widths.first().copied().unwrap_or(0);
    std::iter::once(first)
        .chain(outputs.iter().copied())
        .zip(outputs.iter().copied())
        .map(|(a, b)| [a, b])
        .collect()
}

/// A convolution, whose kernel is `[rows, columns, d_in, d_out]` in files.
fn convolution(rules: TensorRules, name: &str, d_in: usize, d_out: usize) -> TensorRules {
    let name_in_file = format!("{name}.weight");
    rules.with(TensorRule::reshape(&name_in_file, &[3, 3, d_in, d_out], &format!("{name}.map.weight")))
}

pub(super) fn rules(config: &ResNetConfig) -> TensorRules {
    let first = config.widths.first().copied().unwrap_or(0);
    let stem = convolution(TensorRules::new(), "stem.convolution", config.n_channels, first)
        .norm("stem.norm", "stem.norm");
    blocks(config).into_iter().enumerate().fold(stem, |rules, (block, [d_in, d_out])| {
        let name = |part: &str| format!("blocks.{block}.{part}");
        let rules = convolution(rules, &name("first"), d_in, d_out);
        let rules = convolution(rules, &name("second"), d_out, d_out);
        rules.norm(&name("first_norm"), &name("first_norm")).norm(&name("second_norm"), &name("second_norm"))
    })
}

pub(super) fn telling(config: &ResNetConfig) -> Vec<(String, Vec<usize>)> {
    let of_block = |(block, [d_in, d_out]): (usize, [usize; 2])| {
        (format!("blocks.{block}.first.weight"), vec![3, 3, d_in, d_out])
    };
    let first = config.widths.first().copied().unwrap_or(0);
    let stem = ("stem.convolution.weight".to_owned(), vec![3, 3, config.n_channels, first]);
    std::iter::once(stem).chain(blocks(config).into_iter().enumerate().map(of_block)).collect()
}

/// An encoder by itself; of a folder with a head, the encoder.
impl Format for ResNetConfig {
    const MODEL_TYPES: &'static [&'static str] = &[OWN];

    fn read(fields: &Fields) -> Result<Self> {
        own::read(fields, RESNET, Self::validate)
    }

    fn write(&self, map: &mut Map<String, Value>) -> Result<()> {
        self.validate()?;
        own::insert(self, RESNET, "ClozeResNetModel", map);
        Ok(())
    }

    fn rules(&self) -> TensorRules {
        rules(self).with_optional_prefixes(["resnet."])
    }

    fn telling(&self) -> Vec<(String, Vec<usize>)> {
        telling(self)
    }
}

impl Published for ResNetConfig {
    type Model = ResNet;

    fn init(&self, init: &mut ParamInit) -> ResNet {
        self.init(init)
    }
}

impl Format for ResNetClassifierConfig {
    const MODEL_TYPES: &'static [&'static str] = &[OWN];

    fn read(fields: &Fields) -> Result<Self> {
        Ok(Self::new(ResNetConfig::read(fields)?, labels::read(fields)?))
    }

    fn write(&self, map: &mut Map<String, Value>) -> Result<()> {
        self.validate()?;
        own::insert(&self.encoder, RESNET, "ClozeResNetForImageClassification", map);
        labels::write(&self.labels, map);
        Ok(())
    }

    fn rules(&self) -> TensorRules {
        rules(&self.encoder)
            .within("resnet.", "encoder.")
            .linear("classifier", "head")
            .with_optional_prefixes(["resnet."])
    }

    fn telling(&self) -> Vec<(String, Vec<usize>)> {
        let mut all = telling(&self.encoder);
        all.push(("classifier.weight".into(), vec![self.labels.len(), self.encoder.d_model()]));
        all
    }
}

impl Published for ResNetClassifierConfig {
    type Model = ImageClassifier<ResNet>;

    fn init(&self, init: &mut ParamInit) -> ImageClassifier<ResNet> {
        self.init(init)
    }
}

/// The kind of a folder's encoder.
fn is_resnet(fields: &Fields) -> Result<bool> {
    Ok(fields.text("model_type")? == Some(OWN))
}

/// Makes an enum of configurations a format: that of the configuration that it holds.
macro_rules! any_format {
    ($any:ident { $vit:ident, $resnet:ident }, $model:ty, $types:expr) => {
        impl Format for $any {
            const MODEL_TYPES: &'static [&'static str] = $types;

            fn read(fields: &Fields) -> Result<Self> {
                match is_resnet(fields)? {
                    true => $resnet::read(fields).map(Self::ResNet),
                    false => $vit::read(fields).map(Self::Vit),
                }
            }

            fn write(&self, map: &mut Map<String, Value>) -> Result<()> {
                match self {
                    Self::Vit(config) => config.write(map),
                    Self::ResNet(config) => {
                        map.insert("model_type".into(), OWN.into());
                        config.write(map)
                    }
                }
            }

            fn rules(&self) -> TensorRules {
                match self {
                    Self::Vit(config) => config.rules(),
                    Self::ResNet(config) => config.rules(),
                }
            }

            fn telling(&self) -> Vec<(String, Vec<usize>)> {
                match self {
                    Self::Vit(config) => config.telling(),
                    Self::ResNet(config) => config.telling(),
                }
            }
        }

        impl Published for $any {
            type Model = $model;

            fn init(&self, init: &mut ParamInit) -> $model {
                self.init(init)
            }
        }
    };
}

any_format!(
    AnyImageEncoderConfig { VitConfig, ResNetConfig },
    AnyImageEncoder,
    &["vit", "deit", "vit_mae", "cloze-vit", OWN]
);
any_format!(
    AnyImageClassifierConfig { ImageClassifierConfig, ResNetClassifierConfig },
    ImageClassifier<AnyImageEncoder>,
    &["vit", "deit", "cloze-vit", OWN]
);

#[cfg(test)]
mod tests {
    use super::own::tests::{comes_back, refused};
    use super::*;
    use burn::tensor::{Device, Distribution, Tensor};
    use serde_json::json;

    fn resnet() -> ResNetConfig {
        ResNetConfig::new(8, 2).with_widths(vec![4, 8, 8]).with_group_width(2).with_image_size([8, 12])
    }

    #[test]
    fn a_saved_model_is_the_model() {
        comes_back(&resnet());
        let labels = ["red", "green", "blue"].map(str::to_owned).to_vec();
        let config = ResNetClassifierConfig::new(resnet(), labels.clone());
        let pixels = Tensor::<4>::random([2, 3, 8, 12], Distribution::Default, &Device::flex());
        let [found, expected] = comes_back(&config).map(|model| model.forward(pixels.clone()).into_data());
        assert_eq!(found, expected);
        let vit = VitConfig::new(8, 4, 1, 8).with_image_size([8, 12]);
        for encoder in [AnyImageEncoderConfig::Vit(vit), AnyImageEncoderConfig::ResNet(resnet())] {
            comes_back(&encoder);
            let config = AnyImageClassifierConfig::new(encoder, labels.clone());
            let [found, expected] =
                comes_back(&config).map(|model| model.forward(pixels.clone()).into_data());
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn a_damaged_configuration_is_named() {
        let whole = json!({
            "image_size": [8, 8], "n_channels": 3, "n_blocks": 1, "widths": [4, 8], "group_width": 2, "norm_eps": 1e-5
        });
        for (key, value, expected) in [
            ("widths", json!([]), "`widths` is 0, expected at least 1"),
            ("widths", json!([8, 4]), "`widths` is 4, expected at least the stage before, 8"),
            (
                "widths",
                json!([4, 7]),
                "`group_width` is 2, expected a divisor of `widths`, of which one is 7",
            ),
            ("n_blocks", json!(0), "`n_blocks` is 0, expected at least 1"),
            ("norm_eps", json!(0), "`norm_eps` is 0, expected a finite number above 0"),
        ] {
            let mut resnet = whole.clone();
            resnet[key] = value;
            let message = refused::<ResNetConfig>(&json!({ "model_type": OWN, "resnet": resnet }));
            assert!(message.contains(expected), "{message}");
        }
    }
}
