use super::super::fields::Fields;
use super::super::{Architecture, FloatType, TensorRules};
use super::bert;
use super::definition::FamilyDefinition;
use super::encoder_format::{EncoderFormat, FirstPosition, without_switches};
use crate::bert::BertConfig;
use crate::blocks::PositionsConfig;
use crate::{ModelError, Result};
use serde_json::{Map, Value, json};

/// BERT with positions that no class of transformers has. Everything else is BERT's, the names of tensors too.
pub(super) struct ClozeBert;

const FORMAT: EncoderFormat =
    EncoderFormat { has_position_type: false, first_position: FirstPosition::Given, switch, ..bert::FORMAT };

/// The key of the kind of positions, a table with its settings. Without it they are BERT's.
const KEY: &str = "positions";

fn switch(config: BertConfig) -> BertConfig {
    let positions = config.positions().unwrap_or(PositionsConfig::Learned { offset: 0 });
    without_switches(config).with_positions(positions)
}

impl FamilyDefinition for ClozeBert {
    fn name(&self) -> &'static str {
        "BERT with other positions"
    }

    fn model_type(&self) -> &'static str {
        "cloze-bert"
    }

    fn class_prefix(&self) -> &'static str {
        "ClozeBert"
    }

    fn prefix(&self) -> &'static str {
        "bert."
    }

    fn pretraining_class(&self) -> Option<Architecture> {
        bert::Bert.pretraining_class()
    }

    fn has_pooler(&self, architecture: Architecture) -> bool {
        bert::has_pooler(architecture)
    }

    fn head_dropout(&self, architecture: Architecture) -> Option<(&'static str, Option<f64>)> {
        bert::classifier_dropout(architecture)
    }

    fn format(&self) -> &EncoderFormat {
        &FORMAT
    }

    fn read(&self, fields: &Fields) -> Result<BertConfig> {
        let encoder = FORMAT.read(fields)?;
        let Some(positions) = fields.nested(KEY)? else { return Ok(encoder) };
        let mut encoder = encoder.with_positions(positions);
        // The file has the rows of the table, of which the first are not the model's.
        let rows = encoder.max_positions;
        encoder.max_positions =
            rows.checked_sub(encoder.position_offset).filter(|n| *n > 0).ok_or_else(|| {
                let expected = format!("fewer than the {rows} rows of the table, `max_position_embeddings`");
                fields.refuse("positions.offset", &encoder.position_offset.into(), &expected)
            })?;
        encoder.validate_positions().map_err(|error| match error {
            ModelError::Setting { key, found, expected } => {
                let setting = key.split_once('.').map_or(key, |(_, setting)| setting);
                fields.error(&format!("`{KEY}.{setting}` is {found}, expected {expected}"))
            }
            other => other,
        })?;
        Ok(encoder)
    }

    fn write(&self, encoder: &BertConfig, dtype: FloatType, config: &mut Map<String, Value>) {
        FORMAT.write(encoder, dtype, config);
        if let Some(positions) = encoder.positions() {
            config.insert(KEY.into(), json!(positions));
        }
    }

    fn encoder_rules(&self, _: &BertConfig) -> TensorRules {
        bert::encoder()
            .table("embeddings.relative_attention_bias", "embeddings.relative_bias.table")
            .table("encoder.layer.*.attention.self.relative_keys", "encoder.layers.*.attention.relative.keys")
            .table(
                "encoder.layer.*.attention.self.relative_values",
                "encoder.layers.*.attention.relative.values",
            )
    }

    fn head_rules(&self, architecture: Architecture) -> TensorRules {
        bert::Bert.head_rules(architecture)
    }
}

#[cfg(test)]
mod tests {
    use crate::ParamInit;
    use crate::bert::{BertConfig, BertInput};
    use crate::blocks::{PositionKind, PositionsConfig};
    use crate::huggingface::{
        Architecture, Family, PretrainedConfig, PretrainedFolder, SaveConfig, save_pretrained,
    };
    use crate::tasks::BertForMaskedLm;
    use burn::tensor::{Device, Int, Tensor};
    use serde_json::{Value, json};

    fn with(positions: PositionsConfig) -> BertConfig {
        let sizes = BertConfig::new(23, 2, 16).with_n_heads(2).with_d_ff(24).with_max_positions(12);
        Family::CLOZE_BERT.encoder(sizes.with_positions(positions)).with_pooler(false)
    }

    fn config(kind: PositionKind) -> BertConfig {
        with(kind.into())
    }

    #[test]
    fn each_kind_comes_back_from_its_folder() {
        let device = Device::flex();
        // RoBERTa's learned positions begin at the third row of their table.
        let shifted = PositionsConfig::Learned { offset: 2 };
        for positions in PositionKind::ALL.into_iter().map(PositionsConfig::from).chain([shifted]) {
            let (folder, config) = (tempfile::tempdir().unwrap(), with(positions));
            assert_eq!((config.positions(), config.max_positions), (Some(positions), 12));
            let init = &mut ParamInit::new(&device, 4).with_std(0.3);
            let model = BertForMaskedLm {
                bert: config.init_encoder(init),
                mlm: crate::bert::MlmHead::new(&config, init),
            };
            let save = SaveConfig::new(Architecture::MaskedLm).with_family(Family::CLOZE_BERT);
            save_pretrained(folder.path(), &model, &config, &save).unwrap();
            let json = std::fs::read_to_string(folder.path().join("config.json")).unwrap();
            let json: Value = serde_json::from_str(&json).unwrap();
            assert_eq!(json["model_type"], "cloze-bert");
            assert_eq!(json["architectures"][0], "ClozeBertForMaskedLM");
            assert_eq!(json["positions"], json!(positions));
            assert_eq!(json["max_position_embeddings"], 12 + config.position_offset);
            assert!(json.get("position_embedding_type").is_none());

            let opened = PretrainedFolder::open(folder.path()).unwrap();
            assert_eq!((opened.config.family, &opened.config.encoder), (Family::CLOZE_BERT, &config));
            let init = &mut ParamInit::new(&device, 5).with_std(0.3);
            let other = BertForMaskedLm {
                bert: config.init_encoder(init),
                mlm: crate::bert::MlmHead::new(&config, init),
            };
            let (loaded, report) = opened.load_into(other, Architecture::MaskedLm, &[]).unwrap();
            assert!(report.missing.is_empty() && report.unexpected.is_empty(), "{positions:?}: {report:?}");
            let ids = Tensor::<2, Int>::from_data([[5, 11, 3, 17, 8, 20, 9]], &device);
            let states = |model: &BertForMaskedLm| {
                model.bert.forward(BertInput::new(ids.clone())).last_hidden_state.into_data()
            };
            assert_eq!(states(&loaded), states(&model), "{positions:?}");
        }
    }

    #[test]
    fn transformers_bert_has_learned_positions_alone() {
        for kind in PositionKind::ALL {
            let folder = tempfile::tempdir().unwrap();
            let model = config(kind).init_encoder(&mut ParamInit::new(&Device::flex(), 4));
            let save = SaveConfig::new(Architecture::Encoder);
            let saved = save_pretrained(folder.path(), &model, &config(kind), &save);
            assert_eq!(saved.is_ok(), kind == PositionKind::Learned, "{kind:?}");
        }
    }

    fn read(positions: Value) -> crate::Result<PretrainedConfig> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        std::fs::write(&path, json!({ "model_type": "cloze-bert", "positions": positions }).to_string())
            .unwrap();
        PretrainedConfig::read(&path)
    }

    #[test]
    fn settings_have_the_papers_values_unless_they_are_given() {
        for kind in PositionKind::ALL {
            let found = read(json!({ "kind": kind.name() })).unwrap().encoder;
            assert_eq!(found.positions(), Some(kind.into()), "{kind:?}");
        }
        let found = read(json!({ "kind": "relative", "max_distance": 3, "values": false })).unwrap().encoder;
        assert_eq!(found.positions(), Some(PositionsConfig::Relative { max_distance: 3, values: false }));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        for (positions, expected) in [
            (
                json!({ "kind": "spiral" }),
                "`positions`: unknown variant `spiral`, expected one of `sinusoidal`, ",
            ),
            (json!({ "kind": "relative", "reach": 2 }), "`positions`: unknown field `reach`"),
            (
                json!({ "kind": "learned", "offset": 512 }),
                "`positions.offset` is 512, expected fewer than the 512 rows of the table",
            ),
            (
                json!({ "kind": "relative", "max_distance": 1_u64 << 40 }),
                "`positions.max_distance` is 1099511627776, expected at most",
            ),
            (
                json!({ "kind": "relative-bias", "n_buckets": 3 }),
                "`positions.n_buckets` is 3, expected an even number",
            ),
            (json!({ "kind": "rotary", "theta": 0.0 }), "`positions.theta` is 0, expected a number above 0"),
        ] {
            let message = read(positions).unwrap_err().to_string();
            assert!(message.contains(expected) && !message.contains('\n'), "{message}");
        }
    }
}
