//! Captioners: transformers' `VisionEncoderDecoderModel` of a ViT or DeiT with a GPT-2, with the same tensors. Others are in this
//! project's own format, with the same layout: `encoder` and `decoder` with their configurations.

use super::super::fields::Fields;
use super::super::keys::CONFIG_KEYS;
use super::super::names::listed;
use super::super::published::{Format, Published};
use super::super::{TensorRule, TensorRules};
use super::{decoder, gpt2, own, resnet, vit};
use crate::captions::{
    AnyCaptionDecoder, AnyCaptionDecoderConfig, Captioner, CaptionerConfig, Looking, RecurrentCaptionConfig,
    TransformerCaptionConfig,
};
use crate::gpt::GptConfig;
use crate::seq2seq::SpecialTokens;
use crate::vision::{AnyImageEncoder, AnyImageEncoderConfig, ResNetConfig};
use crate::{ParamInit, Result};
use serde_json::{Map, Value};

const PUBLISHED: &str = "vision-encoder-decoder";
const OWN: &str = "cloze-captioner";

/// The `model_type` of the recurrent decoder, and the key of its configuration.
const RECURRENT: &str = "cloze-caption-lstm";
const RECURRENT_KEY: &str = "caption_lstm";

/// The key of a GPT-2 that says whether the image's places get positions, which transformers' class does not know.
const POSITIONS_KEY: &str = "cloze_image_positions";

/// One of the two parts' configurations, which is a map of the whole one.
fn part<T>(fields: &Fields, key: &str, read: impl FnOnce(&Fields) -> Result<T>) -> Result<T> {
    let map = fields.typed(key, "the configuration of a model", |value| value.as_object().cloned())?;
    let Some(map) = map else {
        return Err(fields.refuse(key, &Value::Null, "the configuration of a model"));
    };
    let inner = Fields::of(fields.path(), map);
    let config = read(&inner)?;
    CONFIG_KEYS.check_left_over(&inner)?;
    Ok(config)
}

fn read_encoder(fields: &Fields) -> Result<AnyImageEncoderConfig> {
    match fields.text("model_type")? {
        Some(found) if AnyImageEncoderConfig::MODEL_TYPES.contains(&found) => {
            AnyImageEncoderConfig::read(fields)
        }
        found => {
            let found = found.map_or(Value::Null, Value::from);
            let known = listed(AnyImageEncoderConfig::MODEL_TYPES.iter().copied());
            Err(fields.refuse("model_type", &found, &format!("an image encoder, {known}")))
        }
    }
}

/// The decoder's configuration, on states of `d_image` features.
fn read_decoder(fields: &Fields, d_image: usize) -> Result<AnyCaptionDecoderConfig> {
    match fields.text("model_type")? {
        Some("gpt2") => {
            fields.fixed("add_cross_attention", true)?;
            let gpt = decoder::checked(fields, gpt2::read_sizes(fields)?)?;
            let positions = fields.flag(POSITIONS_KEY)?.unwrap_or(false);
            Ok(TransformerCaptionConfig::new(gpt, d_image).with_image_positions(positions).into())
        }
        Some(RECURRENT) => {
            let config: RecurrentCaptionConfig =
                own::read(fields, RECURRENT_KEY, RecurrentCaptionConfig::validate)?;
            Ok(config.into())
        }
        found => {
            let found = found.map_or(Value::Null, Value::from);
            let expected = format!("a decoder of captions: \"gpt2\" or \"{RECURRENT}\"");
            Err(fields.refuse("model_type", &found, &expected))
        }
    }
}

/// The special tokens, where transformers' generation looks for them: in the whole configuration, then in the decoder's.
fn read_tokens(fields: &Fields, decoder: &AnyCaptionDecoderConfig) -> Result<SpecialTokens> {
    let (bos, eos) = match decoder {
        AnyCaptionDecoderConfig::Transformer(config) => (config.gpt.begin_token_id, config.gpt.end_token_id),
        AnyCaptionDecoderConfig::Recurrent(_) => (None, None),
    };
    let eos = fields.size("eos_token_id")?.or(eos).unwrap_or(0);
    let bos = fields.size("bos_token_id")?.or(bos);
    let mut tokens = SpecialTokens::new(fields.size("pad_token_id")?.unwrap_or(eos), eos);
    tokens.decoder_start = fields.size("decoder_start_token_id")?.or(bos).unwrap_or(eos);
    tokens.bos = bos;
    Ok(tokens)
}

/// The rules of a GPT-2 with attention to an image, with paths relative to it.
fn gpt_rules(gpt: &GptConfig) -> TensorRules {
    let copy = |rules: TensorRules, tensor: &str, parameter: &str| {
        let one = |what| TensorRule::copy(&format!("{tensor}.{what}"), &format!("{parameter}.{what}"));
        rules.with(one("weight")).with(one("bias"))
    };
    let key_value = |axis, what: &str| {
        let paths = ["key", "value"].map(|map| format!("cross_attention.{map}.{what}"));
        TensorRule::split(
            &format!("crossattention.c_attn.{what}"),
            axis,
            &paths.each_ref().map(String::as_str),
        )
    };
    let mut layer = gpt2::layer_rules()
        .norm("ln_cross_attn", "cross_attention_norm")
        .with(key_value(1, "weight"))
        .with(key_value(0, "bias"));
    layer = copy(layer, "crossattention.q_attn", "cross_attention.query");
    layer = copy(layer, "crossattention.c_proj", "cross_attention.output");
    let head = match gpt.tied {
        true => TensorRule::tie("decoder.lm_head.weight", "decoder.transformer.wte.weight"),
        false => TensorRule::transpose("decoder.lm_head.weight", "output.weight"),
    };
    TensorRules::new()
        .table("wte", "tokens")
        .table("wpe", "positions.table")
        .and(layer.within("h.*.", "decoder.layers.*."))
        .norm("ln_f", "decoder.final_norm")
        .within("decoder.transformer.", "")
        .linear("enc_to_dec_proj", "projection")
        .with(head)
}

impl Format for CaptionerConfig {
    const MODEL_TYPES: &'static [&'static str] = &[PUBLISHED, OWN];

    fn read(fields: &Fields) -> Result<Self> {
        let encoder = part(fields, "encoder", read_encoder)?;
        let d_image = encoder.d_model();
        let decoder = part(fields, "decoder", |decoder| read_decoder(decoder, d_image))?;
        let tokens = read_tokens(fields, &decoder)?;
        // In the whole configuration it says whether encoder and decoder share a table.
        fields.ask("tie_word_embeddings");
        let config = Self { encoder, decoder, tokens };
        config.validate().map_err(|error| fields.error(&error.to_string()))?;
        Ok(config)
    }

    fn write(&self, map: &mut Map<String, Value>) -> Result<()> {
        self.validate()?;
        let (mut encoder, mut decoder) = (Map::new(), Map::new());
        // What a configuration does not say itself is its first type.
        encoder.insert("model_type".into(), vit::VIT.into());
        match &self.encoder {
            AnyImageEncoderConfig::Vit(config) => config.write(&mut encoder)?,
            AnyImageEncoderConfig::ResNet(config) => {
                encoder.insert("model_type".into(), ResNetConfig::MODEL_TYPES[0].into());
                config.write(&mut encoder)?;
            }
        }
        let of_transformers =
            [vit::VIT, vit::DEIT].map(Some).contains(&encoder.get("model_type").and_then(Value::as_str));
        match &self.decoder {
            AnyCaptionDecoderConfig::Transformer(config) => {
                gpt2::write_fields(&config.gpt, &mut decoder);
                decoder.insert("model_type".into(), "gpt2".into());
                decoder.insert("add_cross_attention".into(), true.into());
                decoder.insert("is_decoder".into(), true.into());
                if config.image_positions {
                    decoder.insert(POSITIONS_KEY.into(), true.into());
                }
            }
            AnyCaptionDecoderConfig::Recurrent(config) => {
                own::insert(config, RECURRENT_KEY, "ClozeCaptionLstm", &mut decoder);
                decoder.insert("model_type".into(), RECURRENT.into());
            }
        }
        let is_published = match &self.decoder {
            AnyCaptionDecoderConfig::Transformer(config) => of_transformers && !config.image_positions,
            AnyCaptionDecoderConfig::Recurrent(_) => false,
        };
        let (model_type, class) = match is_published {
            true => (PUBLISHED, "VisionEncoderDecoderModel"),
            false => (OWN, "ClozeCaptioner"),
        };
        encoder.remove("architectures");
        decoder.remove("architectures");
        map.insert("model_type".into(), model_type.into());
        map.insert("architectures".into(), vec![class].into());
        map.insert("encoder".into(), encoder.into());
        map.insert("decoder".into(), decoder.into());
        map.insert("is_encoder_decoder".into(), true.into());
        map.insert("tie_word_embeddings".into(), false.into());
        map.extend(self.ids());
        Ok(())
    }

    fn rules(&self) -> TensorRules {
        let encoder = match &self.encoder {
            AnyImageEncoderConfig::Vit(config) => vit::rules(config),
            AnyImageEncoderConfig::ResNet(config) => resnet::rules(config),
        };
        let decoder = match &self.decoder {
            // The others are named by their parameters' paths.
            AnyCaptionDecoderConfig::Recurrent(_) => {
                TensorRules::new().table("tokens", "tokens").within("decoder.", "decoder.")
            }
            AnyCaptionDecoderConfig::Transformer(config) => gpt_rules(&config.gpt).within("", "decoder."),
        };
        encoder.within("encoder.", "encoder.").and(decoder)
    }

    fn untied(&self) -> Option<Self> {
        match &self.decoder {
            AnyCaptionDecoderConfig::Transformer(config) if config.gpt.tied => {
                let gpt = GptConfig { tied: false, ..config.gpt.clone() };
                let decoder = TransformerCaptionConfig { gpt, ..(**config).clone() };
                Some(Self { decoder: decoder.into(), ..self.clone() })
            }
            _ => None,
        }
    }

    fn telling(&self) -> Vec<(String, Vec<usize>)> {
        let encoder = match &self.encoder {
            AnyImageEncoderConfig::Vit(config) => vit::telling(config),
            AnyImageEncoderConfig::ResNet(config) => resnet::telling(config),
        };
        let mut all: Vec<_> =
            encoder.into_iter().map(|(name, shape)| (format!("encoder.{name}"), shape)).collect();
        match &self.decoder {
            AnyCaptionDecoderConfig::Transformer(config) => {
                let decoder = gpt2::telling(&config.gpt);
                all.extend(decoder.map(|(name, shape)| (format!("decoder.{name}"), shape)));
            }
            AnyCaptionDecoderConfig::Recurrent(config) => {
                let d_in =
                    config.d_embedding + if config.looking == Looking::None { 0 } else { config.d_image };
                all.push(("decoder.recurrent.input.weight".into(), vec![4 * config.d_model, d_in]));
                all.push(("decoder.output.weight".into(), vec![config.vocab_size, config.d_embedding]));
            }
        }
        all
    }

    fn generation(&self) -> Option<Map<String, Value>> {
        Some(self.ids().collect())
    }
}

impl CaptionerConfig {
    /// The ids of special tokens, by their keys.
    fn ids(&self) -> impl Iterator<Item = (String, Value)> {
        let SpecialTokens { pad, bos, eos, decoder_start, .. } = &self.tokens;
        let ids = [
            ("pad_token_id", Some(*pad)),
            ("bos_token_id", *bos),
            ("eos_token_id", Some(*eos)),
            ("decoder_start_token_id", Some(*decoder_start)),
        ];
        ids.into_iter().filter_map(|(key, id)| Some((key.to_owned(), id?.into())))
    }
}

impl Published for CaptionerConfig {
    type Model = Captioner<AnyImageEncoder, AnyCaptionDecoder>;

    fn init(&self, init: &mut ParamInit) -> Self::Model {
        self.init(init)
    }
}

#[cfg(test)]
mod tests {
    use super::own::tests::comes_back;
    use super::*;
    use crate::vision::{PatchPositions, VitConfig};

    #[test]
    fn a_saved_captioner_is_the_captioner() {
        let vit = VitConfig::new(12, 4, 1, 8).with_n_heads(2);
        let gpt = GptConfig { n_heads: 2, n_kv_heads: 2, d_head: 3, d_ff: 9, ..GptConfig::gpt2(15, 1, 6) };
        let recurrent = RecurrentCaptionConfig::new(15, 8, 5, 6).with_d_attention(4);
        let gpt = GptConfig { begin_token_id: Some(1), end_token_id: Some(2), ..gpt };
        let transformer = TransformerCaptionConfig::new(gpt, 8);
        let tokens = SpecialTokens::new(0, 2).with_bos(1);
        for decoder in [
            AnyCaptionDecoderConfig::from(recurrent.clone()),
            recurrent.clone().with_looking(Looking::None).into(),
            recurrent
                .with_looking(Looking::Hard)
                .with_gate(false)
                .with_positions(true)
                .with_output_tanh(true)
                .into(),
            transformer.clone().into(),
            transformer.with_image_positions(true).into(),
        ] {
            comes_back(&CaptionerConfig::new(vit.clone(), decoder.clone(), tokens.clone()));
            let other = vit.clone().with_positions(PatchPositions::Sinusoidal);
            comes_back(&CaptionerConfig::new(other, decoder.clone(), tokens.clone()));
            let resnet = ResNetConfig { widths: vec![4, 8], group_width: 2, ..ResNetConfig::new(12, 1) };
            comes_back(&CaptionerConfig::new(resnet, decoder, tokens.clone()));
        }
    }
}
