//! MAE: transformers' `ViTMAEForPreTraining`.

use super::super::fields::Fields;
use super::super::published::{Format, Published};
use super::super::{TensorRule, TensorRules};
use super::vit;
use crate::vision::{Mae, MaeConfig, MaeDecoderConfig, VitConfig};
use crate::{ModelError, ParamInit, Result};
use serde_json::{Map, Value};

/// The tensors of a decoder's layer, which transformers 5.24 saves under names that neither it nor 4 reads.
const OF_LAYER: [&str; 8] = [
    "attention.attention.query",
    "attention.attention.key",
    "attention.attention.value",
    "attention.output.dense",
    "layernorm_before",
    "intermediate.dense",
    "output.dense",
    "layernorm_after",
];

impl Format for MaeConfig {
    const MODEL_TYPES: &'static [&'static str] = &[vit::MAE];

    fn read(fields: &Fields) -> Result<Self> {
        let decoder = MaeDecoderConfig {
            n_layers: fields.positive("decoder_num_hidden_layers", 8)?,
            d_model: fields.positive("decoder_hidden_size", 512)?,
            n_heads: fields.positive("decoder_num_attention_heads", 16)?,
            d_ff: fields.positive("decoder_intermediate_size", 2048)?,
        };
        let config = Self::new(vit::read(fields)?, decoder)
            .with_mask_ratio(fields.number("mask_ratio")?.unwrap_or(0.75))
            .with_normalised_pixels(fields.flag("norm_pix_loss")?.unwrap_or(false));
        config.validate().map_err(|error| fields.error(&error.to_string()))?;
        Ok(config)
    }

    fn write(&self, map: &mut Map<String, Value>) -> Result<()> {
        self.validate()?;
        let VitConfig { image_size: [height, width], patch_size: [rows, columns], .. } = self.vit;
        if height != width || rows != columns {
            let found = format!("{height} × {width} with patches of {rows} × {columns}");
            let expected = "squares: transformers has no other MAE, so such a model cannot be saved".into();
            return Err(ModelError::Setting { key: "image_size", found, expected });
        }
        map.insert("model_type".into(), vit::MAE.into());
        map.insert("architectures".into(), vec!["ViTMAEForPreTraining"].into());
        vit::write_fields(&self.vit, map);
        let MaeDecoderConfig { n_layers, d_model, n_heads, d_ff } = self.decoder;
        for (key, size) in [
            ("decoder_num_hidden_layers", n_layers),
            ("decoder_hidden_size", d_model),
            ("decoder_num_attention_heads", n_heads),
            ("decoder_intermediate_size", d_ff),
        ] {
            map.insert(key.into(), size.into());
        }
        map.insert("mask_ratio".into(), self.mask_ratio.into());
        map.insert("norm_pix_loss".into(), self.normalised_pixels.into());
        Ok(())
    }

    fn rules(&self) -> TensorRules {
        let decoder = TensorRules::new()
            .linear("decoder_embed", "embed")
            .with(TensorRule::copy("mask_token", "mask_piece"))
            .with(TensorRule::copy("decoder_pos_embed", "positions"))
            .and(vit::layer_rules().within("decoder_layers.*.", "layers.layers.*."))
            .norm("decoder_norm", "layers.final_norm")
            .linear("decoder_pred", "pixels");
        let rules = vit::rules(&self.vit).within("vit.", "vit.").and(decoder.within("decoder.", "decoder."));
        let names = (0..self.decoder.n_layers).flat_map(|layer| OF_LAYER.map(|tensor| (layer, tensor)));
        names.fold(rules, |rules, (layer, tensor)| {
            ["weight", "bias"].into_iter().fold(rules, |rules, what| {
                rules.with(TensorRule::tie(
                    &format!("decoder.decoder_encoder.layer.{layer}.{tensor}.{what}"),
                    &format!("decoder.decoder_layers.{layer}.{tensor}.{what}"),
                ))
            })
        })
    }

    fn telling(&self) -> Vec<(String, Vec<usize>)> {
        let mut all = vit::telling(&self.vit);
        all.iter_mut().for_each(|(name, _)| name.insert_str(0, "vit."));
        let MaeDecoderConfig { d_model, .. } = self.decoder;
        let [rows, columns] = self.vit.grid();
        all.push(("decoder.decoder_pos_embed".into(), vec![1, 1 + rows * columns, d_model]));
        all
    }
}

impl Published for MaeConfig {
    type Model = Mae;

    fn init(&self, init: &mut ParamInit) -> Mae {
        self.init(init)
    }
}

#[cfg(test)]
mod tests {
    use super::super::own::tests::comes_back;
    use super::*;
    use crate::vision::PatchPositions;

    fn config() -> MaeConfig {
        let vit = VitConfig::new(12, 4, 2, 8).with_n_heads(2).with_positions(PatchPositions::Sinusoidal);
        MaeConfig::new(vit, MaeDecoderConfig::new(2, 8, 4))
    }

    #[test]
    fn a_saved_model_is_the_model() {
        comes_back(&config().with_mask_ratio(0.5));
    }

    #[test]
    fn what_transformers_lacks_is_refused() {
        let mut rectangle = config();
        rectangle.vit = rectangle.vit.with_image_size([12, 8]);
        let message = rectangle.write(&mut Map::new()).unwrap_err().to_string();
        assert!(message.contains("12 × 8") && message.contains("squares"), "{message}");
        let message = config().with_mask_ratio(0.99).validate().unwrap_err().to_string();
        assert!(message.contains("`mask_ratio` is 0.99, expected a share"), "{message}");
    }
}
