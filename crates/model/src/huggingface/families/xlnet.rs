//! XLNet (Yang et al. 2019): transformers' `XLNetLMHeadModel`, and its classes that are fine-tuned, a family of encoders.
//! Their attention stores matrices untransposed, with an axis for the heads.

use super::super::fields::Fields;
use super::super::{Architecture, FloatType, Format, Published, TensorRule, TensorRules};
use super::activations::{activation_name, activation_of};
use super::bert;
use super::definition::{FamilyDefinition, HeadLayer};
use super::encoder_format::{EncoderFormat, without_switches};
use crate::bert::{BertConfig, Pooling};
use crate::blocks::{Activation, TransformerXlConfig};
use crate::xlnet::{XlnetConfig, XlnetLanguageModel};
use crate::{ModelError, ParamInit, Result};
use serde_json::{Map, Value, json};

const MODEL_TYPE: &str = "xlnet";
const PREFIX: &str = "transformer.";
/// The ids of the pieces in the published vocabulary that begin a text, end it, and fill it up.
const BEGIN: usize = 1;
const END: usize = 2;
const PADDING: usize = 5;

/// The name of an [`XlnetConfig`] field in `config.json`.
fn key_of(field: &'static str) -> &'static str {
    match field {
        "n_layers" => "n_layer",
        "n_heads" => "n_head",
        "d_ff" => "d_inner",
        "norm_eps" => "layer_norm_eps",
        "memory_len" => "mem_len",
        "init_std" => "initializer_range",
        "begin_token_id" => "bos_token_id",
        "end_token_id" => "eos_token_id",
        other => other,
    }
}

/// An invalid value by its name in the file.
fn named_as_in_the_file(error: ModelError, fields: &Fields) -> ModelError {
    match error {
        ModelError::Setting { key, found, expected } => {
            fields.error(&format!("`{}` is {found}, expected {expected}", key_of(key)))
        }
        other => other,
    }
}

fn read(fields: &Fields) -> Result<XlnetConfig> {
    // Options that this crate does not support. Whether the biases `u` and `v` of the layers are tied (`untie_r`) is
    // nothing that transformers' class reads: each layer has its own.
    fields.fixed("bi_data", false)?;
    fields.fixed("tie_word_embeddings", true)?;
    let vocab_size = fields.positive("vocab_size", 32_000)?;
    let (d_model, n_heads) = (fields.positive("d_model", 1024)?, fields.positive("n_head", 16)?);
    if let Some(d_head) = fields.size("d_head")?
        && d_head.checked_mul(n_heads) != Some(d_model)
    {
        let expected = "the quotient of `d_model` and `n_head`";
        return Err(fields.refuse("d_head", &d_head.into(), expected));
    }
    let activation = match fields.text("ff_activation")? {
        None => Activation::Gelu,
        Some(name) => activation_of(name, "ff_activation", fields)?,
    };
    let causal = match fields.text("attn_type")? {
        None | Some("bi") => false,
        Some("uni") => true,
        Some(other) => return Err(fields.refuse("attn_type", &other.into(), "\"bi\" or \"uni\"")),
    };
    let number = |key: &str, default: f64| Ok::<_, ModelError>(fields.number(key)?.unwrap_or(default));
    // 0 is no limit, and so is a negative clamp.
    let no_limit = |len: &usize| *len > 0;
    let clamp = fields.typed("clamp_len", "a whole number", Value::as_i64)?;
    // Small test models keep the ids of large ones, which are outside their vocabularies.
    let id = |key: &str, default: usize| {
        let id = fields.size_or(key, Some(default))?;
        Ok::<_, ModelError>(id.filter(|id| *id < vocab_size))
    };
    let config = XlnetConfig {
        n_heads,
        d_ff: fields.positive("d_inner", 4096)?,
        activation,
        norm_eps: number("layer_norm_eps", 1e-12)?,
        dropout: number("dropout", 0.1)?,
        causal,
        // A model that is not causal has no use for it.
        same_length: causal && fields.flag("same_length")?.unwrap_or(false),
        clamp_len: clamp.and_then(|len| usize::try_from(len).ok()).filter(no_limit),
        memory_len: fields.size_or("mem_len", Some(512))?.filter(no_limit),
        reuse_len: fields.size("reuse_len")?.filter(no_limit),
        init_std: number("initializer_range", 0.02)?,
        begin_token_id: id("bos_token_id", BEGIN)?,
        end_token_id: id("eos_token_id", END)?,
        pad_token_id: id("pad_token_id", PADDING)?,
        ..XlnetConfig::new(vocab_size, fields.positive("n_layer", 24)?, d_model)
    };
    config.validate().map_err(|error| named_as_in_the_file(error, fields))?;
    Ok(config)
}

fn write_fields(config: &XlnetConfig, map: &mut Map<String, Value>) {
    let mut set = |key: &str, value: Value| _ = map.insert(key.to_string(), value);
    set("vocab_size", config.vocab_size.into());
    set("n_layer", config.n_layers.into());
    set("d_model", config.d_model.into());
    set("n_head", config.n_heads.into());
    set("d_head", (config.d_model / config.n_heads).into());
    set("d_inner", config.d_ff.into());
    set("ff_activation", activation_name(config.activation).into());
    set("layer_norm_eps", config.norm_eps.into());
    set("dropout", config.dropout.into());
    set("attn_type", if config.causal { "uni" } else { "bi" }.into());
    set("same_length", config.same_length.into());
    set("clamp_len", config.clamp_len.map_or(Value::from(-1), Value::from));
    set("mem_len", config.memory_len.into());
    set("reuse_len", config.reuse_len.into());
    set("bi_data", false.into());
    set("untie_r", true.into());
    set("initializer_range", config.init_std.into());
    set("bos_token_id", config.begin_token_id.into());
    set("eos_token_id", config.end_token_id.into());
    set("pad_token_id", config.pad_token_id.into());
}

/// The rules of the layers, with names and paths relative to a layer's; `terms` is the path in the attention of what
/// other attentions do not have.
fn layer_rules(d_model: usize, n_heads: usize, terms: &str) -> TensorRules {
    let heads = [d_model, n_heads, d_model / n_heads];
    let mut rules = TensorRules::new();
    let position = format!("{terms}position");
    for (tensor, parameter) in [("q", "query"), ("k", "key"), ("v", "value"), ("r", &position)] {
        let parameter = format!("attention.{parameter}.weight");
        rules = rules.with(TensorRule::reshape(&format!("rel_attn.{tensor}"), &heads, &parameter));
    }
    let output = TensorRule::reshape("rel_attn.o", &heads, "attention.output.weight");
    rules = rules.with(output.transposed());
    for (tensor, parameter) in [
        ("r_w_bias", "content_bias"),
        ("r_r_bias", "position_bias"),
        ("r_s_bias", "segment_bias"),
        ("seg_embed", "segments"),
    ] {
        let (tensor, parameter) = (format!("rel_attn.{tensor}"), format!("attention.{terms}{parameter}"));
        rules = rules.with(TensorRule::copy(&tensor, &parameter));
    }
    rules
        .norm("rel_attn.layer_norm", "attention_norm")
        .linear("ff.layer_1", "feed_forward.up")
        .linear("ff.layer_2", "feed_forward.down")
        .norm("ff.layer_norm", "feed_forward_norm")
}

/// What the predictions start from.
fn query_rule(d_model: usize, parameter: &str) -> TensorRule {
    TensorRule::reshape("mask_emb", &[1, 1, d_model], parameter)
}

impl Format for XlnetConfig {
    const MODEL_TYPES: &'static [&'static str] = &[MODEL_TYPE];

    fn read(fields: &Fields) -> Result<Self> {
        read(fields)
    }

    fn write(&self, config: &mut Map<String, Value>) -> Result<()> {
        self.validate()?;
        config.insert("architectures".into(), json!(["XLNetLMHeadModel"]));
        write_fields(self, config);
        Ok(())
    }

    fn rules(&self) -> TensorRules {
        let XlnetConfig { d_model, n_heads, .. } = *self;
        TensorRules::new()
            .table("word_embedding", "tokens")
            .with(query_rule(d_model, "query"))
            .and(layer_rules(d_model, n_heads, "").within("layer.*.", "layers.*."))
            .within(PREFIX, "xlnet.")
            .with_optional_prefixes(["module.", PREFIX])
            .with(TensorRule::copy("lm_loss.bias", "bias"))
            .with(TensorRule::tie("lm_loss.weight", "transformer.word_embedding.weight"))
    }
}

impl Published for XlnetConfig {
    type Model = XlnetLanguageModel;

    fn init(&self, init: &mut ParamInit) -> XlnetLanguageModel {
        self.init(init)
    }
}

pub(super) struct Xlnet;

/// The tokens of a text at most. The positions have no end; but the attention's memory grows with the square of a text's
/// length, so there has to be a limit.
const MAX_LEN: usize = 2048;

const FORMAT: EncoderFormat = EncoderFormat {
    d_model: ("d_model", 1024),
    n_layers: ("n_layer", 24),
    n_heads: ("n_head", 16),
    d_ff: ("d_inner", 4096),
    hidden_dropout: ("dropout", 0.1),
    attention_dropout: ("dropout", 0.1),
    activation: ("ff_activation", Activation::Gelu),
    vocab_size: 32_000,
    pad_token_id: PADDING,
    token_types: None,
    has_position_type: false,
    switch,
    ..bert::FORMAT
};

fn switch(config: BertConfig) -> BertConfig {
    BertConfig {
        max_positions: MAX_LEN,
        // One key says it of all dropout.
        attention_dropout: config.hidden_dropout,
        feed_forward_dropout: config.hidden_dropout,
        output_dropout: true,
        absolute_positions: false,
        transformer_xl: Some(config.transformer_xl.unwrap_or_default()),
        embedding_norm: false,
        attention_bias: false,
        pooling: Some(Pooling::LastToken),
        ..without_switches(config)
    }
}

/// What else than these a head's summary of a sequence could be is not supported.
const SUMMARY: [(&str, &str); 2] = [("summary_type", "last"), ("summary_activation", "tanh")];

impl FamilyDefinition for Xlnet {
    fn name(&self) -> &'static str {
        "XLNet"
    }

    fn model_type(&self) -> &'static str {
        MODEL_TYPE
    }

    fn class_prefix(&self) -> &'static str {
        "XLNet"
    }

    fn prefix(&self) -> &'static str {
        PREFIX
    }

    fn class_suffix(&self, architecture: Architecture) -> &'static str {
        match architecture {
            // The other one searches for the end by the beginning.
            Architecture::QuestionAnswering => "ForQuestionAnsweringSimple",
            other => other.class_suffix(),
        }
    }

    fn has_class(&self, architecture: Architecture) -> bool {
        use Architecture::{MaskedLm, PreTraining, ReplacedTokens};
        !matches!(architecture, MaskedLm | PreTraining | ReplacedTokens)
    }

    fn has_pooler(&self, _: Architecture) -> bool {
        false
    }

    /// The class's summary of a sequence.
    fn head_layer(&self, _: Architecture) -> Option<HeadLayer> {
        Some(HeadLayer { has_dropout_before: false, ..HeadLayer::new(Activation::Tanh) })
    }

    fn head_dropout(&self, architecture: Architecture) -> Option<(&'static str, Option<f64>)> {
        match architecture {
            Architecture::SequenceClassification | Architecture::MultipleChoice => {
                Some(("summary_last_dropout", Some(0.1)))
            }
            // The last states have had theirs. Transformers' class has no such key.
            Architecture::TokenClassification => Some(("classifier_dropout", Some(0.0))),
            _ => None,
        }
    }

    fn format(&self) -> &EncoderFormat {
        &FORMAT
    }

    fn read(&self, fields: &Fields) -> Result<BertConfig> {
        for (key, only) in SUMMARY {
            if let Some(found) = fields.text(key)?.filter(|found| *found != only) {
                return Err(fields.refuse(key, &found.into(), &format!("\"{only}\"")));
            }
        }
        fields.fixed("summary_use_proj", true)?;
        let config = read(fields)?;
        if config.causal {
            return Err(fields.refuse("attn_type", &"uni".into(), "\"bi\": an encoder sees its whole text"));
        }
        let sizes = BertConfig {
            n_heads: config.n_heads,
            d_ff: config.d_ff,
            activation: config.activation,
            layer_norm_eps: config.norm_eps,
            hidden_dropout: config.dropout,
            init_std: config.init_std,
            pad_token_id: fields.size("pad_token_id")?.unwrap_or(PADDING),
            transformer_xl: Some(TransformerXlConfig { clamp_len: config.clamp_len }),
            pooler: false,
            ..BertConfig::new(config.vocab_size, config.n_layers, config.d_model)
        };
        Ok(FORMAT.switched(sizes))
    }

    fn write(&self, encoder: &BertConfig, dtype: FloatType, map: &mut Map<String, Value>) {
        // Small test models keep the ids of large ones, which are outside their vocabularies.
        let known = |id: usize| Some(id).filter(|id| *id < encoder.vocab_size);
        let config = XlnetConfig {
            n_heads: encoder.n_heads,
            d_ff: encoder.d_ff,
            activation: encoder.activation,
            norm_eps: encoder.layer_norm_eps,
            dropout: encoder.hidden_dropout,
            init_std: encoder.init_std,
            clamp_len: encoder.transformer_xl.and_then(|terms| terms.clamp_len),
            begin_token_id: known(BEGIN),
            end_token_id: known(END),
            ..XlnetConfig::new(encoder.vocab_size, encoder.n_layers, encoder.d_model)
        };
        write_fields(&config, map);
        map.insert("pad_token_id".into(), encoder.pad_token_id.into());
        map.insert("torch_dtype".into(), dtype.name().into());
        SUMMARY.into_iter().for_each(|(key, only)| _ = map.insert(key.into(), only.into()));
        map.insert("summary_use_proj".into(), true.into());
    }

    fn encoder_rules(&self, encoder: &BertConfig) -> TensorRules {
        let BertConfig { d_model, n_heads, .. } = *encoder;
        TensorRules::new()
            .table("word_embedding", "embeddings.tokens")
            .with(query_rule(d_model, "embeddings.query"))
            .and(layer_rules(d_model, n_heads, "transformer_xl.").within("layer.*.", "encoder.layers.*."))
    }

    fn head_rules(&self, architecture: Architecture) -> TensorRules {
        match architecture {
            Architecture::SequenceClassification | Architecture::MultipleChoice => TensorRules::new()
                .linear("sequence_summary.summary", "head.dense")
                .linear("logits_proj", "head.output"),
            other => bert::pooled(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bert::BertInput;
    use crate::huggingface::{
        Family, FloatType, LoadReport, load_published, read_published, read_tensors, save_published,
        write_tensors,
    };
    use crate::weights;
    use crate::xlnet::XlnetInput;
    use burn::tensor::{Device, Int, Tensor, TensorData, Tolerance};

    fn config<C: Format>(json: &str) -> Result<C> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.json"), json).unwrap();
        read_published(folder.path())
    }

    fn init() -> ParamInit {
        ParamInit::new(&Device::flex(), 5)
    }

    fn small() -> XlnetConfig {
        XlnetConfig { d_ff: 12, n_heads: 2, pad_token_id: Some(3), ..XlnetConfig::new(31, 2, 8) }
    }

    #[test]
    fn what_is_left_out_is_transformers_default() {
        let found: XlnetConfig = config(r#"{"model_type": "xlnet"}"#).unwrap();
        let expected = XlnetConfig {
            memory_len: Some(512),
            begin_token_id: Some(1),
            end_token_id: Some(2),
            pad_token_id: Some(5),
            ..XlnetConfig::new(32_000, 24, 1024)
        };
        assert_eq!(found, expected);
        let found: XlnetConfig =
            config(r#"{"model_type": "xlnet", "mem_len": null, "clamp_len": -1, "reuse_len": 0}"#).unwrap();
        assert_eq!((found.memory_len, found.clamp_len, found.reuse_len), (None, None, None));
    }

    #[test]
    fn what_is_written_reads_the_same() {
        let others = XlnetConfig {
            causal: true,
            same_length: true,
            clamp_len: Some(7),
            memory_len: Some(9),
            reuse_len: Some(4),
            activation: Activation::Relu,
            ..small()
        };
        for config in [small(), others] {
            let folder = tempfile::tempdir().unwrap();
            let model = config.init(&mut init());
            save_published(folder.path(), &model, &config, FloatType::F32).unwrap();
            let (found, loaded, report) = load_published::<XlnetConfig>(folder.path(), &mut init()).unwrap();
            assert_eq!((found, report), (config, LoadReport::default()));
            assert!(weights::collect(&loaded) == weights::collect(&model));
        }
    }

    #[test]
    fn a_tied_copy_may_be_there_and_other_shapes_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let model = small().init(&mut init());
        save_published(folder.path(), &model, &small(), FloatType::F32).unwrap();
        let path = folder.path().join("model.safetensors");
        let mut tensors = read_tensors(&path).unwrap();
        tensors.insert("lm_loss.weight".into(), tensors["transformer.word_embedding.weight"].clone());
        write_tensors(&path, &tensors, &[]).unwrap();
        let (.., report) = load_published::<XlnetConfig>(folder.path(), &mut init()).unwrap();
        assert_eq!(report, LoadReport::default());

        let query = "transformer.layer.1.rel_attn.q";
        tensors.insert(query.into(), TensorData::new(vec![0f32; 64], [8, 8]));
        write_tensors(&path, &tensors, &[]).unwrap();
        let message = load_published::<XlnetConfig>(folder.path(), &mut init()).unwrap_err().to_string();
        let expected = format!("tensor `{query}` has shape [8, 8], the configuration asks for [8, 2, 4]");
        assert!(message.ends_with(&expected), "{message}");
    }

    #[test]
    fn what_there_is_no_model_for_is_named() {
        for (json, expected) in [
            (r#""n_head": 3"#, "`n_head` is 3, expected a divisor of `d_model`, which is 1024"),
            (r#""n_layer": 0"#, "`n_layer` is 0, expected at least 1"),
            (r#""d_head": 7"#, "`d_head` is 7, expected the quotient of `d_model` and `n_head`"),
            (r#""bi_data": true"#, "`bi_data` is true, expected false"),
            (r#""tie_word_embeddings": false"#, "`tie_word_embeddings` is false, expected true"),
            (r#""attn_type": "tri""#, "`attn_type` is \"tri\", expected \"bi\" or \"uni\""),
            (r#""ff_activation": "prelu""#, "`ff_activation` is \"prelu\""),
            (r#""mem_len": -1"#, "`mem_len` is -1, expected a whole number"),
            (r#""dropout": 1"#, "`dropout` is 1, expected 0 or more"),
        ] {
            let json = format!(r#"{{"model_type": "xlnet", {json}}}"#);
            let message = config::<XlnetConfig>(&json).unwrap_err().to_string();
            assert!(message.contains(expected) && !message.contains('\n'), "{message}");
        }
        let message = config::<XlnetConfig>(r#"{"model_type": "bert"}"#).unwrap_err().to_string();
        assert!(message.contains("`model_type` is \"bert\", expected"), "{message}");
    }

    /// The encoder that is fine-tuned computes what the model with two streams computes in its content stream.
    #[test]
    fn an_encoder_is_the_content_stream() {
        let device = Device::flex();
        for clamp_len in [None, Some(2)] {
            let sizes =
                XlnetConfig { n_heads: 4, d_ff: 24, dropout: 0.0, clamp_len, ..XlnetConfig::new(31, 3, 16) };
            let xlnet = sizes.init_encoder(&mut ParamInit::new(&device, 3).with_std(0.4));
            let config = BertConfig::new(31, 3, 16).with_n_heads(4).with_d_ff(24);
            let config = config.with_hidden_dropout(0.0).with_pooler(false);
            let config = config.with_transformer_xl(Some(TransformerXlConfig { clamp_len }));
            let config = Family::XLNET.encoder(config);
            let bert = config.init_encoder(&mut ParamInit::new(&device, 4));
            // Parameters have other paths, in the same order of each kind.
            let renamed = weights::collect(&xlnet).into_iter().map(|(path, data)| (own_path(&path), data));
            let bert = weights::replace(bert, renamed.collect());

            let rows: [&[i32]; 2] = [&[1, 2, 3, 4, 5, 6, 7], &[9, 10, 11]];
            let types = [vec![0, 0, 0, 1, 1, 1, 2], vec![0, 0, 2]];
            for (ids, types) in rows.into_iter().zip(&types) {
                let input = XlnetInput::new(ids.to_vec(), 1).with_token_types(types.clone());
                let expected = xlnet.forward(&input, None, &device).last_hidden_state.into_data();
                let tensor = |values: &[i32]| {
                    Tensor::<2, Int>::from_data(TensorData::new(values.to_vec(), [1, values.len()]), &device)
                };
                let input = BertInput::new(tensor(ids)).with_token_types(tensor(types));
                let found = bert.forward(input).last_hidden_state.into_data();
                found.assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-5));
            }
        }
    }

    fn own_path(path: &str) -> String {
        let maps = ["query", "key", "value", "output"];
        let path = match path.split_once(".attention.") {
            Some((layer, rest)) if !maps.iter().any(|map| rest.starts_with(&format!("{map}."))) => {
                format!("{layer}.attention.transformer_xl.{rest}")
            }
            _ => path.to_string(),
        };
        if path.starts_with("layers.") { format!("encoder.{path}") } else { format!("embeddings.{path}") }
    }
}
