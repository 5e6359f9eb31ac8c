use super::fields::Fields;
use super::integer_only::has_quant_mode;
use super::keys::CONFIG_KEYS;
use super::names::listed;
use super::{Architecture, Family, FloatType, ProblemType, labels};
use crate::bert::BertConfig;
use crate::{ModelError, Result};
use serde_json::Value;
use std::path::Path;

/// The contents of a folder's `config.json`.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct PretrainedConfig {
    /// The encoder's published family.
    pub family: Family,
    /// The encoder, with a pooler if the [architecture](Self::architecture) has one.
    pub encoder: BertConfig,
    /// The first class in `architectures` that this crate knows; the bare encoder if it knows none.
    pub architecture: Architecture,
    /// The classes that the weights were saved from, by their names in transformers.
    pub architectures: Vec<String>,
    /// The names of the classes that the head predicts, in the order of its outputs; `LABEL_0` and `LABEL_1` if the
    /// file has none, as in transformers.
    pub labels: Vec<String>,
    /// The names of the languages that token types are, in their order; none if the file has none.
    pub languages: Vec<String>,
    /// The kind of labels, if the file states it.
    pub problem_type: Option<ProblemType>,
    /// The name of the task that the model was trained for, such as `"mnli"`.
    pub finetuning_task: Option<String>,
    /// The float type that the weights are stored as.
    pub dtype: FloatType,
    /// Dropout in heads that have a dropout of their own, for all architectures.
    pub head_dropouts: Vec<(Architecture, f64)>,
}

impl PretrainedConfig {
    /// Reads a `config.json` of any family and age. Missing keys have transformers' defaults.
    ///
    /// # Errors
    /// [`ModelError::Io`] and [`ModelError::Json`] for a file that cannot be read, [`ModelError::Config`] for a value
    /// that this crate does not support.
    pub fn read(path: &Path) -> Result<Self> {
        let fields = Fields::read(path)?;
        let config = Self::of(&fields)?;
        CONFIG_KEYS.check_left_over(&fields)?;
        Ok(config)
    }

    /// [`read`](Self::read) of a file that is open, without a check of the keys that nothing asks for.
    pub(super) fn of(fields: &Fields) -> Result<Self> {
        let architectures = architectures(fields)?;
        let family = Family::of_config(fields, &architectures)?;
        let parsed = architectures.iter().filter_map(|name| Architecture::parse(name));
        let architecture = parsed.map(|(_, architecture)| architecture).next();
        let architecture = architecture.unwrap_or(Architecture::Encoder);
        // Of a family without a masked-LM head the flag says nothing.
        let mlm_tied =
            fields.flag("tie_word_embeddings")?.unwrap_or(true) || !family.has_class(Architecture::MaskedLm);
        let encoder =
            BertConfig { pooler: family.has_pooler(architecture), mlm_tied, ..family.read(fields)? };
        encoder.validate().map_err(|error| match error {
            ModelError::Setting { key, found, expected } => {
                let key_of = |key| family.key_of(fields, key);
                let expected = ["d_model", "n_layers"]
                    .iter()
                    .fold(expected, |expected, key| expected.replace(key, key_of(key)));
                fields.error(&format!("`{}` is {found}, expected {expected}", key_of(key)))
            }
            other => other,
        })?;

        // What it says of integers is read with the tensors.
        has_quant_mode(fields)?;
        let problem_type = ProblemType::read(fields)?;
        let mut head_dropouts = Vec::new();
        for head in Architecture::ALL {
            let Some((key, default)) = family.head_dropout(head) else { continue };
            let probability = |value: &Value| value.as_f64().filter(|p| (0.0..1.0).contains(p));
            let found = fields.typed(key, "a number, 0 or more and below 1", probability)?;
            head_dropouts.extend(found.or(default).map(|p| (head, p)));
        }
        Ok(Self {
            family,
            encoder,
            architecture,
            labels: labels::read(fields)?,
            languages: labels::read_languages(fields)?,
            architectures,
            problem_type,
            head_dropouts,
            finetuning_task: fields.text("finetuning_task")?.map(str::to_string),
            dtype: FloatType::read(fields)?,
        })
    }

    /// The number of a language, which is called by its [name](Self::languages) or by the number itself.
    ///
    /// # Errors
    /// For another one, what is expected.
    pub fn language(&self, name: &str) -> std::result::Result<usize, String> {
        let n = self.encoder.n_token_types;
        if n < 2 {
            return Err("none: the model has no language embeddings".into());
        }
        let by_number = || name.parse().ok().filter(|number| *number < n);
        let found = self.languages.iter().position(|known| known == name).filter(|place| *place < n);
        found.or_else(by_number).ok_or_else(|| match self.languages.is_empty() {
            true => format!("a number below {n}: the model has no names of languages"),
            false => listed(self.languages.iter().map(String::as_str)),
        })
    }

    /// Dropout in the head of a model of `architecture`; none if it is the encoder's hidden dropout.
    pub fn head_dropout(&self, architecture: Architecture) -> Option<f64> {
        self.head_dropouts.iter().find_map(|(head, p)| (*head == architecture).then_some(*p))
    }
}

fn architectures(fields: &Fields) -> Result<Vec<String>> {
    let strings = |value: &Value| -> Option<Vec<String>> {
        value.as_array()?.iter().map(|name| name.as_str().map(str::to_string)).collect()
    };
    Ok(fields.typed("architectures", "a list of strings", strings)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bert::{LocalAttention, Pooling};
    use crate::blocks::{Activation, NormPlacement, RotaryScaling};
    use crate::huggingface::SaveConfig;
    use crate::huggingface::save::to_json;

    fn read(json: &str) -> Result<PretrainedConfig> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        std::fs::write(&path, json).unwrap();
        PretrainedConfig::read(&path)
    }

    #[test]
    fn what_is_left_out_is_transformers_default() {
        // transformers.XConfig() of each family, and the sizes of its model.
        let sizes = |json| {
            let encoder = read(json).unwrap().encoder;
            let BertConfig { vocab_size, n_layers, d_model, n_heads, d_ff, max_positions, .. } = encoder;
            [vocab_size, n_layers, d_model, n_heads, d_ff, max_positions]
        };
        assert_eq!(sizes("{}"), [30_522, 12, 768, 12, 3072, 512]);
        assert_eq!(sizes(r#"{"model_type": "roberta"}"#), [50_265, 12, 768, 12, 3072, 510]);
        assert_eq!(sizes(r#"{"model_type": "distilbert"}"#), [30_522, 6, 768, 12, 3072, 512]);
        assert_eq!(sizes(r#"{"model_type": "albert"}"#), [30_000, 12, 4096, 64, 16_384, 512]);
        assert_eq!(sizes(r#"{"model_type": "electra"}"#), [30_522, 12, 256, 4, 1024, 512]);
        assert_eq!(sizes(r#"{"model_type": "xlm-roberta"}"#), [30_522, 12, 768, 12, 3072, 510]);
        assert_eq!(sizes(r#"{"model_type": "camembert"}"#), [30_522, 12, 768, 12, 3072, 510]);
        assert_eq!(sizes(r#"{"model_type": "modernbert"}"#), [50_368, 22, 768, 12, 1152, 8192]);
        assert_eq!(sizes(r#"{"model_type": "t5"}"#), [32_128, 6, 512, 8, 2048, 512]);
        assert_eq!(sizes(r#"{"model_type": "mt5"}"#), [250_112, 8, 512, 6, 1024, 512]);
        assert_eq!(sizes(r#"{"model_type": "nomic_bert"}"#), [30_528, 12, 768, 12, 3072, 2048]);
        assert_eq!(sizes(r#"{"model_type": "xlm"}"#), [30_145, 12, 2048, 16, 8192, 512]);
        assert_eq!(sizes(r#"{"model_type": "xlnet"}"#), [32_000, 24, 1024, 16, 4096, 2048]);
        assert_eq!(sizes(r#"{"model_type": "gte"}"#), [250_048, 12, 768, 12, 3072, 8192]);
        // The authors' NewConfig().
        assert_eq!(sizes(r#"{"model_type": "new"}"#), [30_528, 12, 768, 12, 3072, 2048]);
    }

    #[test]
    fn old_files_are_told_by_their_class_or_their_keys() {
        let family = |json| read(json).unwrap().family;
        assert_eq!(family(r#"{"architectures": ["RobertaForMaskedLM"]}"#), Family::ROBERTA);
        assert_eq!(family(r#"{"dim": 768, "n_layers": 6, "n_heads": 12}"#), Family::DISTILBERT);
        assert_eq!(family(r#"{"embedding_size": 128, "num_hidden_groups": 1}"#), Family::ALBERT);
        assert_eq!(family(r#"{"embedding_size": 128}"#), Family::ELECTRA);
        assert_eq!(family(r#"{"hidden_size": 768, "pooler_fc_size": 768}"#), Family::BERT);
    }

    #[test]
    fn each_familys_own_keys() {
        let roberta = r#"{"model_type": "roberta", "max_position_embeddings": 514, "type_vocab_size": 1,
            "architectures": ["RobertaForSequenceClassification"], "classifier_dropout": 0.3,
            "problem_type": "regression", "torch_dtype": "float16", "finetuning_task": "sts-b"}"#;
        let found = read(roberta).unwrap();
        let BertConfig { max_positions, position_offset, n_token_types, pooler, .. } = found.encoder;
        assert_eq!((max_positions, position_offset, n_token_types, pooler), (512, 2, 1, false));
        assert_eq!(found.architecture, Architecture::SequenceClassification);
        assert_eq!(
            (found.head_dropout(found.architecture), found.problem_type),
            (Some(0.3), Some(ProblemType::Regression))
        );
        assert_eq!((found.dtype, &*found.finetuning_task.unwrap()), (FloatType::F16, "sts-b"));

        let distil = r#"{"model_type": "distilbert", "activation": "relu", "dropout": 0.25,
            "architectures": ["DistilBertForSequenceClassification"]}"#;
        let found = read(distil).unwrap();
        assert_eq!((found.encoder.activation, found.encoder.hidden_dropout), (Activation::Relu, 0.25));
        assert_eq!(found.encoder.n_token_types, 0);
        assert_eq!(found.head_dropout(Architecture::SequenceClassification), Some(0.2));
        assert_eq!(found.head_dropout(Architecture::QuestionAnswering), Some(0.1));
        assert_eq!(found.head_dropout(Architecture::TokenClassification), None);

        let albert = read(r#"{"model_type": "albert", "embedding_size": 4096}"#).unwrap().encoder;
        assert_eq!((albert.d_embedding, albert.share_layers), (Some(4096), true));
        assert_eq!(albert.activation, Activation::GeluTanh);
        let modern = r#"{"model_type": "modernbert", "local_attention": 12, "global_attn_every_n_layers": 2,
            "local_rope_theta": null, "global_rope_theta": 500, "mlp_bias": true, "mlp_dropout": 0.1,
            "classifier_pooling": "mean", "architectures": ["ModernBertForSequenceClassification"]}"#;
        let found = read(modern).unwrap();
        let local = LocalAttention::new(6, 2);
        assert_eq!((found.encoder.local, found.encoder.pooling), (Some(local), Some(Pooling::Mean)));
        assert_eq!(found.encoder.rotary.unwrap().theta, 500.0);
        let BertConfig { attention_bias, feed_forward_bias, feed_forward_dropout, .. } = found.encoder;
        assert_eq!((attention_bias, feed_forward_bias, feed_forward_dropout), (false, true, 0.1));

        let t5 = r#"{"model_type": "t5", "feed_forward_proj": "gated-gelu", "d_kv": 5, "dropout_rate": 0.3,
            "architectures": ["T5ForConditionalGeneration"]}"#;
        let found = read(t5).unwrap();
        assert_eq!((found.architecture, found.family), (Architecture::Encoder, Family::T5));
        let BertConfig { activation, gated, d_head, .. } = found.encoder;
        assert_eq!((activation, gated, d_head), (Activation::GeluTanh, true, Some(5)));
        let BertConfig { hidden_dropout, attention_dropout, feed_forward_dropout, .. } = found.encoder;
        assert_eq!([hidden_dropout, attention_dropout, feed_forward_dropout], [0.3; 3]);
        assert!(!found.encoder.scaled_scores && found.encoder.output_dropout);

        // The keys of nomic-embed-text-v1.5 that say anything, but for the sizes.
        let nomic = r#"{"model_type": "nomic_bert", "architectures": ["NomicBertModel"], "n_embd": 24, "n_head": 4,
            "n_layer": 2, "n_inner": 300, "n_positions": 8192, "activation_function": "swiglu", "attn_pdrop": 0.0,
            "embd_pdrop": 0.0, "resid_pdrop": 0.0, "layer_norm_epsilon": 1e-12, "mlp_fc1_bias": false,
            "mlp_fc2_bias": false, "qkv_proj_bias": false, "prenorm": false, "causal": false, "rotary_emb_base": 1000,
            "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": false, "rotary_emb_scale_base": null,
            "rotary_scaling_factor": null, "pad_vocab_size_multiple": 64, "vocab_size": 30522, "type_vocab_size": 2}"#;
        let found = read(nomic).unwrap();
        let expected = BertConfig::new(30_528, 2, 24).with_n_heads(4).with_d_ff(512).with_max_positions(8192);
        let expected = expected.with_hidden_dropout(0.0).with_attention_dropout(0.0);
        let expected = Family::NOMIC_BERT.encoder(expected.with_activation(Activation::Silu));
        assert_eq!((found.architecture, found.encoder), (Architecture::Encoder, expected));

        // gte-multilingual-base.
        let new = r#"{"model_type": "new", "architectures": ["NewModel", "NewForTokenClassification"],
            "hidden_size": 24, "num_attention_heads": 6, "max_position_embeddings": 8192, "rope_theta": 20000,
            "rope_scaling": {"factor": 8.0, "type": "ntk"}, "layer_norm_type": "layer_norm", "type_vocab_size": 1,
            "position_embedding_type": "rope", "pack_qkv": true, "unpad_inputs": true,
            "use_memory_efficient_attention": true, "pad_token_id": 1}"#;
        let found = read(new).unwrap();
        assert_eq!((found.family, found.architecture), (Family::GTE, Architecture::Encoder));
        let rotary = found.encoder.rotary.unwrap();
        // θ · 8, and 8^(2/4).
        assert_eq!(
            (rotary.theta, rotary.scaling),
            (160_000.0, Some(RotaryScaling::Linear { factor: 8f64.sqrt() }))
        );
        let BertConfig { feed_forward_bias, feed_forward_up_bias, n_token_types, .. } = found.encoder;
        assert_eq!((feed_forward_bias, feed_forward_up_bias, n_token_types), (true, Some(false), 1));
        let reranker = r#"{"model_type": "new", "architectures": ["NewForSequenceClassification"]}"#;
        assert_eq!(read(reranker).unwrap().architecture, Architecture::SequenceClassification);

        // xlm-mlm-ende-1024, in short.
        let xlm = r#"{"model_type": "xlm", "architectures": ["XLMWithLMHeadModel"], "n_words": 64699, "emb_dim": 1024,
            "n_layers": 6, "n_heads": 8, "n_langs": 2, "use_lang_emb": true, "gelu_activation": true, "asm": false,
            "sinusoidal_embeddings": false, "causal": false, "is_encoder": true, "pad_index": 2, "lang_id": 1,
            "lang2id": {"de": 0, "en": 1}, "id2lang": {"0": "de", "1": "en"}}"#;
        let found = read(xlm).unwrap();
        let BertConfig { vocab_size, n_token_types, language, d_ff, mlm_transform, .. } = found.encoder;
        assert_eq!((vocab_size, n_token_types, language, d_ff), (64_699, 2, Some(1), 4096));
        assert!(!mlm_transform && found.languages == ["de", "en"]);
        assert_eq!(["en", "0"].map(|name| found.language(name).unwrap()), [1, 0]);
        assert_eq!(found.language("fr").unwrap_err(), r#""de" or "en""#);
        let written = to_json(&found.encoder, &SaveConfig::from(&found)).unwrap();
        assert_eq!(read(&written.to_string()).unwrap(), found, "{written}");
        let without = read(r#"{"model_type": "xlm", "n_langs": 3, "use_lang_emb": false}"#).unwrap();
        assert_eq!((without.encoder.n_token_types, without.encoder.language), (0, None));
        let message = without.language("0").unwrap_err();
        assert_eq!(message, "none: the model has no language embeddings");
        let relu = read(r#"{"model_type": "xlm", "gelu_activation": false, "n_langs": 3}"#).unwrap();
        assert_eq!((relu.encoder.activation, relu.encoder.language), (Activation::Relu, Some(0)));
        assert_eq!(relu.language("fr").unwrap_err(), "a number below 3: the model has no names of languages");

        let electra =
            |size| read(&format!(r#"{{"model_type": "electra", "embedding_size": {size}}}"#)).unwrap();
        assert_eq!(electra(256).encoder.d_embedding, None);
        assert_eq!(electra(128).encoder.d_embedding, Some(128));
    }

    #[test]
    fn what_is_written_reads_the_same() {
        for &family in Family::ALL {
            for architecture in Architecture::ALL.into_iter().filter(|one| family.has_class(*one)) {
                let name = architecture.name(family);
                let Some((_, architecture)) = Architecture::parse(&name) else { panic!("{name}") };
                let json = format!(
                    r#"{{"architectures": ["{name}"], "id2label": {{"0": "a", "1": "b", "2": "c"}},
                    "problem_type": "multi_label_classification", "dtype": "bfloat16"}}"#
                );
                let config = read(&json).unwrap();
                assert_eq!((config.family, config.architecture), (family, architecture));
                let written = to_json(&config.encoder, &SaveConfig::from(&config)).unwrap();
                assert_eq!(read(&written.to_string()).unwrap(), config, "{written}");
            }
        }
    }

    #[test]
    fn what_there_is_no_model_for_is_named() {
        for (json, expected) in [
            (r#"{"model_type": "opt"}"#, "`model_type` is \"opt\", expected \"bert\", \"roberta\""),
            (r#"{"model_type": "modern_bert"}"#, "; did you mean \"modernbert\"?"),
            (
                r#"{"model_type": "modernbert", "classifier_pooling": "max"}"#,
                "`classifier_pooling` is \"max\"",
            ),
            (r#"{"model_type": "modernbert", "classifier_activation": "relu"}"#, "`classifier_activation`"),
            (r#"{"model_type": "modernbert", "global_attn_every_n_layers": 0}"#, "expected at least 1"),
            (r#"{"model_type": "modernbert", "global_rope_theta": 0}"#, "`global_rope_theta` is 0"),
            (r#"{"model_type": "modernbert", "mlp_dropout": 1.5}"#, "`mlp_dropout` is 1.5"),
            (
                r#"{"model_type": "modernbert", "rope_scaling": {"rope_type": "yarn"}}"#,
                "`rope_scaling.factor` is null, expected a number above 0",
            ),
            (
                r#"{"model_type": "modernbert", "rope_scaling": {"type": "linear", "factor": 2}}"#,
                "`rope_scaling.type` is \"linear\", expected none: the key is `rope_type`",
            ),
            (
                r#"{"model_type": "modernbert", "rope_parameters": {"rope_theta": 5}}"#,
                "`rope_parameters.rope_theta` is 5, expected none: there is a table for `full_attention`",
            ),
            (
                r#"{"model_type": "modernbert", "rope_parameters": {"sliding_attention": {"rope_theta": 0}}}"#,
                "`rope_parameters.sliding_attention.rope_theta` is 0, expected a number above 0",
            ),
            (
                r#"{"model_type": "modernbert", "rope_parameters": {"full_attention": {"rope_type": "yarn",
                    "factor": 2, "truncate": false}}}"#,
                "`rope_parameters.full_attention.truncate` is false, expected true",
            ),
            (
                r#"{"model_type": "modernbert", "original_max_position_embeddings": 8}"#,
                "`original_max_position_embeddings` is 8, expected none: it belongs into the tables",
            ),
            (
                r#"{"model_type": "modernbert", "rope_theta": 8}"#,
                "`rope_theta` is 8.0, expected 160000 as in",
            ),
            (
                r#"{"model_type": "modernbert", "rope_parameters": {"sliding_attention": {"rope_type": "dynamic",
                    "factor": 2}}}"#,
                "has a dynamic scaling of local layers alone",
            ),
            (
                r#"{"model_type": "modernbert", "num_hidden_layers": 1, "layer_types": ["linear_attention"]}"#,
                "`layer_types` is [\"linear_attention\"], expected a list of",
            ),
            (r#"{"add_cross_attention": true}"#, "`add_cross_attention` is true, expected false"),
            (r#"{"model_type": "roberta", "is_decoder": 1}"#, "`is_decoder` is 1, expected true or false"),
            (r#"{"model_type": "mpnet", "is_decoder": true}"#, "`is_decoder` is true, expected false"),
            (r#"{"model_type": "nomic_bert", "head_dim": 32}"#, "`head_dim` is 32, expected 64, or none"),
            (r#"{"hidden_act": "prelu"}"#, "`hidden_act` is \"prelu\""),
            (
                r#"{"model_type": "t5", "feed_forward_proj": "gated-prelu"}"#,
                "`feed_forward_proj` is \"prelu\"",
            ),
            (r#"{"model_type": "t5", "d_kv": 0}"#, "`d_kv` is 0, expected at least 1"),
            (
                r#"{"model_type": "t5", "relative_attention_num_buckets": 5}"#,
                "`relative_attention_num_buckets` is 5, expected an even number, at least 4",
            ),
            (r#"{"model_type": "xlnet", "summary_type": "mean"}"#, "`summary_type` is \"mean\", expected"),
            (r#"{"model_type": "xlnet", "summary_use_proj": false}"#, "`summary_use_proj` is false"),
            (r#"{"model_type": "xlnet", "summary_last_dropout": 2}"#, "`summary_last_dropout` is 2"),
            (r#"{"model_type": "xlnet", "attn_type": "uni"}"#, "`attn_type` is \"uni\", expected \"bi\""),
            (r#"{"model_type": "xlnet", "n_head": 3}"#, "`n_head` is 3, expected a divisor of `d_model`"),
            (
                r#"{"model_type": "xlm", "sinusoidal_embeddings": true}"#,
                "`sinusoidal_embeddings` is true, expected false",
            ),
            (r#"{"model_type": "xlm", "asm": true}"#, "`asm` is true, expected false"),
            (r#"{"model_type": "xlm", "causal": true}"#, "`causal` is true, expected false"),
            (r#"{"model_type": "xlm", "is_encoder": false}"#, "`is_encoder` is false, expected true"),
            (r#"{"model_type": "xlm", "summary_type": "mean"}"#, "`summary_type` is \"mean\", expected"),
            (r#"{"model_type": "xlm", "summary_activation": "tanh"}"#, "`summary_activation` is \"tanh\""),
            (r#"{"model_type": "xlm", "summary_last_dropout": 0.5}"#, "`summary_last_dropout` is 0.5"),
            (r#"{"model_type": "xlm", "gelu_activation": "gelu"}"#, "`gelu_activation` is \"gelu\""),
            (r#"{"model_type": "xlm", "n_words": 0}"#, "`n_words` is 0, expected at least 1"),
            (r#"{"model_type": "xlm", "n_heads": 3}"#, "`n_heads` is 3, expected a divisor of `emb_dim`"),
            (
                r#"{"model_type": "xlm", "n_langs": 2, "lang_id": 2}"#,
                "`lang_id` is 2, expected less than 2, the languages that there are",
            ),
            (r#"{"model_type": "xlm", "lang2id": {"de": 1}}"#, "`lang2id` is {\"de\":1}, expected an object"),
            (r#"{"model_type": "nomic_bert", "n_embd": 10}"#, "`rotary_emb_fraction` is 0.0, expected 1"),
            (
                r#"{"model_type": "nomic_bert", "n_embd": 10, "rotary_emb_fraction": 1.0}"#,
                "`activation_function` is \"gelu_new\", expected \"swiglu\" or \"geglu\"",
            ),
            (
                r#"{"model_type": "nomic_bert", "n_embd": 10, "rotary_emb_fraction": 1.0,
                    "activation_function": "swiglu"}"#,
                "`n_head` is 12, expected a divisor of `n_embd`, which is 10",
            ),
            (r#"{"model_type": "nomic_bert", "prenorm": true}"#, "`prenorm` is true, expected false"),
            (r#"{"model_type": "nomic_bert", "num_experts": 8}"#, "`num_experts` is 8, expected 0"),
            (
                r#"{"model_type": "nomic_bert", "rotary_scaling_factor": 2}"#,
                "`rotary_scaling_factor` is 2, expected null",
            ),
            (
                r#"{"model_type": "gte", "rope_parameters": {"rope_type": "yarn", "rope_theta": 10}}"#,
                "`rope_parameters.factor` is null, expected a number above 0",
            ),
            (
                r#"{"model_type": "gte", "rope_parameters": {"rope_type": "linear", "rope_theta": 10}}"#,
                "`rope_parameters.factor` is null, expected a number above 0",
            ),
            (
                r#"{"model_type": "new", "position_embedding_type": "absolute"}"#,
                "`position_embedding_type` is \"absolute\", expected \"rope\"",
            ),
            (r#"{"model_type": "new", "layer_norm_type": "rms_norm"}"#, "`layer_norm_type` is \"rms_norm\""),
            (r#"{"model_type": "new", "pack_qkv": false}"#, "`pack_qkv` is false, expected true"),
            (r#"{"model_type": "new", "logn_attention_scale": true}"#, "`logn_attention_scale` is true"),
            (r#"{"model_type": "new", "rope_theta": 0}"#, "`rope_theta` is 0, expected a number above 0"),
            (
                r#"{"model_type": "new", "rope_scaling": {"type": "linear", "factor": 2.0}}"#,
                "`rope_scaling.type` is \"linear\", expected \"ntk\"",
            ),
            (
                r#"{"model_type": "new", "rope_scaling": {"type": "ntk", "factor": 0.5}}"#,
                "`rope_scaling.factor` is 0.5, expected a number, 1 or more",
            ),
            (
                r#"{"model_type": "new", "rope_scaling": {"type": "ntk", "factor": 2, "mixed_b": 0.6}}"#,
                "`rope_scaling.mixed_b` is 0.6, expected none",
            ),
            (r#"{"position_embedding_type": "relative_key"}"#, "`position_embedding_type`"),
            (
                r#"{"model_type": "albert", "num_hidden_groups": 13}"#,
                "`num_hidden_groups` is 13, expected at most `num_hidden_layers`, which is 12",
            ),
            (
                r#"{"model_type": "albert", "inner_group_num": 0}"#,
                "`inner_group_num` is 0, expected at least 1",
            ),
            (
                r#"{"model_type": "deberta-v2", "conv_kernel_size": 4}"#,
                "`conv_kernel_size` is 4, expected an odd number",
            ),
            (
                r#"{"model_type": "deberta-v2", "conv_kernel_size": 3, "conv_groups": 5}"#,
                "`conv_groups` is 5, expected a divisor of `hidden_size`, which is 1536",
            ),
            (
                r#"{"model_type": "deberta-v2", "conv_kernel_size": 3, "conv_act": "gelo"}"#,
                "`conv_act` is \"gelo\"",
            ),
            (r#"{"model_type": "deberta-v2", "embedding_size": 0}"#, "`embedding_size` is 0"),
            (r#"{"hidden_size": "768"}"#, "`hidden_size` is \"768\", expected a whole number"),
            (r#"{"hidden_size": -1}"#, "`hidden_size` is -1"),
            (
                r#"{"hidden_size": 10}"#,
                "`num_attention_heads` is 12, expected a divisor of `hidden_size`, which is 10",
            ),
            (
                r#"{"num_hidden_layers": 99999999999}"#,
                "config.json: `num_hidden_layers` is 99999999999, expected at most 10000",
            ),
            (r#"{"model_type": "roberta", "pad_token_id": 600}"#, "`pad_token_id` = 600"),
            (r#"{"model_type": "roberta", "pad_token_id": 18446744073709551615}"#, "`pad_token_id`"),
            (r#"{"classifier_dropout": 1.0}"#, "`classifier_dropout` is 1.0, expected a number, 0 or more"),
            (r#"{"problem_type": "guess"}"#, "`problem_type` is \"guess\""),
            (r#"{"architectures": "BertModel"}"#, "`architectures` is \"BertModel\", expected a list"),
        ] {
            let message = read(json).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
        assert!(matches!(read("["), Err(ModelError::Json { .. })));
    }

    #[test]
    fn a_size_of_nothing_is_named_as_the_file_has_it() {
        for key in ["num_attention_heads", "hidden_size", "type_vocab_size", "num_hidden_layers"] {
            let message = read(&format!(r#"{{"{key}": 0}}"#)).unwrap_err().to_string();
            assert!(
                message.ends_with(&format!("config.json: `{key}` is 0, expected at least 1")),
                "{message}"
            );
        }
    }

    #[test]
    fn an_encoder_that_transformers_cannot_build_is_refused() {
        let base = BertConfig::tiny(10);
        let refused = [
            BertConfig { norm: NormPlacement::Pre, ..base.clone() },
            BertConfig { share_layers: true, ..base.clone() },
            BertConfig { d_embedding: Some(8), ..base.clone() },
            BertConfig { position_offset: 1, ..base.clone() },
            BertConfig { n_token_types: 0, ..base.clone() },
            BertConfig { attention_output_dropout: false, ..base.clone() },
            BertConfig { feed_forward_output_dropout: false, ..base.clone() },
            BertConfig { mlm_activation: Some(Activation::Relu), ..base.clone() },
        ];
        for config in refused {
            assert!(to_json(&config, &SaveConfig::new(Architecture::Encoder)).is_err(), "{config:?}");
        }
        to_json(&base, &SaveConfig::new(Architecture::Encoder)).unwrap();
    }

    #[test]
    fn some_classes_are_causal_as_decoders() {
        for &family in Family::ALL {
            let is_left_to_right = family.encoder(BertConfig::tiny(10)).causal;
            if family == Family::MPNET || is_left_to_right {
                continue;
            }
            let json = format!(r#"{{"model_type": "{}", "is_decoder": true}}"#, family.model_type());
            let causal = read(&json).unwrap().encoder.causal;
            let reads =
                [Family::BERT, Family::ROBERTA, Family::XLM_ROBERTA, Family::CAMEMBERT, Family::ELECTRA];
            assert_eq!(causal, reads.contains(&family), "{family}");
            let encoder = family.encoder(BertConfig::tiny(10)).with_causal(true).with_pooler(false);
            let save = SaveConfig { family, ..SaveConfig::new(Architecture::Encoder) };
            match to_json(&encoder, &save) {
                Ok(written) => assert_eq!(read(&written.to_string()).unwrap().encoder.causal, causal),
                Err(error) => {
                    let message = error.to_string();
                    assert!(!causal && message.contains("`causal` is true, expected none"), "{message}");
                }
            }
        }
    }

    #[test]
    fn each_family_is_saved_with_its_own_switches_alone() {
        let sizes = BertConfig { d_embedding: Some(8), activation: Activation::Relu, ..BertConfig::tiny(10) };
        for &family in Family::ALL {
            let save = SaveConfig { family, ..SaveConfig::new(Architecture::Encoder) };
            let encoder = family.encoder(sizes.clone());
            let written = to_json(&encoder, &save).unwrap();
            assert_eq!(read(&written.to_string()).unwrap().encoder, encoder, "{written}");
            for &other in Family::ALL {
                // RoBERTa's relatives differ in name alone.
                let same = other.encoder(sizes.clone()) == encoder;
                let save = SaveConfig { family: other, ..SaveConfig::new(Architecture::Encoder) };
                assert_eq!(to_json(&encoder, &save).is_ok(), same, "{family} as {other}");
            }
        }
    }

    #[test]
    fn an_xlm_has_no_vector_of_a_single_language_and_fixed_networks() {
        let save = SaveConfig::new(Architecture::MaskedLm).with_family(Family::XLM);
        let xlm = Family::XLM.encoder(BertConfig::tiny(10));
        to_json(&xlm.clone().with_n_token_types(2), &save).unwrap();
        for (encoder, expected) in [
            (xlm.clone().with_n_token_types(1), "`n_token_types` is 1, expected 0, or 2 or more"),
            (xlm.clone().with_d_ff(300), "`d_ff` is 300, expected 512"),
            (xlm.clone().with_activation(Activation::Silu), "`activation` is \"silu\", expected \"gelu\""),
            (xlm.with_mlm_transform(true), "`mlm_transform` is none, expected false"),
        ] {
            let message = to_json(&encoder, &save).unwrap_err().to_string();
            assert!(message.contains(expected) && !message.contains('\n'), "{message}");
        }
    }

    #[test]
    fn a_family_without_a_pooler_is_refused_one() {
        let save = SaveConfig { family: Family::ELECTRA, ..SaveConfig::new(Architecture::Encoder) };
        let message = to_json(&BertConfig::tiny(10), &save).unwrap_err().to_string();
        assert_eq!(message, "model configuration: `pooler` is true, expected false: ELECTRA has none");
    }
}
