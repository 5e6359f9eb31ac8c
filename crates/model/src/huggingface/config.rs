use super::architecture::{Architecture, class_prefix};
use super::fields::Fields;
use super::{SaveConfig, labels};
use crate::bert::{BertConfig, Family};
use crate::blocks::{Activation, NormPlacement};
use crate::{ModelError, Result};
use serde_json::{Map, Value, json};
use std::path::Path;

/// What a folder's `config.json` says.
#[derive(Debug, Clone, PartialEq)]
pub struct PretrainedConfig {
    /// The encoder, with a pooler where the [architecture](Self::architecture) has one.
    pub encoder: BertConfig,
    /// The first class of `architectures` that has a counterpart here; the encoder where none has.
    pub architecture: Architecture,
    /// The classes that the weights were saved from, by their names in transformers.
    pub architectures: Vec<String>,
    /// The classes that a head tells apart, in the order of its outputs; `LABEL_0` and `LABEL_1` where the
    /// file has none, as in transformers.
    pub labels: Vec<String>,
    /// What the labels are, where the file says so.
    pub problem_type: Option<ProblemType>,
    /// The name of the task that the model was trained for, such as `"mnli"`.
    pub finetuning_task: Option<String>,
    /// What the weights are stored as.
    pub dtype: FloatType,
    /// Whether the masked-LM head's projection is the embedding table.
    pub tied: bool,
    /// Dropout in the heads that have one of their own, whichever the weights are of.
    pub head_dropouts: Vec<(Architecture, f64)>,
}

/// What a sequence's labels are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProblemType {
    /// Numbers.
    Regression,
    /// One class of several.
    SingleLabel,
    /// Any number of classes.
    MultiLabel,
}

impl ProblemType {
    const NAMES: [(Self, &str); 3] = [
        (Self::Regression, "regression"),
        (Self::SingleLabel, "single_label_classification"),
        (Self::MultiLabel, "multi_label_classification"),
    ];
}

/// What floating-point numbers are stored as. In memory they are FP32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FloatType {
    /// `float32`
    #[default]
    F32,
    /// `float16`
    F16,
    /// `bfloat16`
    Bf16,
}

impl FloatType {
    const NAMES: [(Self, &str); 3] =
        [(Self::F32, "float32"), (Self::F16, "float16"), (Self::Bf16, "bfloat16")];

    /// What PyTorch calls it.
    pub fn name(self) -> &'static str {
        name_of(&Self::NAMES, self)
    }
}

const ACTIVATIONS: [(Activation, &str); 6] = [
    (Activation::Gelu, "gelu"),
    (Activation::GeluTanh, "gelu_new"),
    (Activation::Relu, "relu"),
    (Activation::Tanh, "tanh"),
    (Activation::Gelu, "gelu_python"),
    (Activation::GeluTanh, "gelu_pytorch_tanh"),
];

const FAMILIES: [(Family, &str); 5] = [
    (Family::Bert, "bert"),
    (Family::Roberta, "roberta"),
    (Family::DistilBert, "distilbert"),
    (Family::Albert, "albert"),
    (Family::Electra, "electra"),
];

/// What belongs to a name in one of the tables above.
fn of_name<T: Copy>(table: &[(T, &str)], name: &str) -> Option<T> {
    table.iter().find_map(|(value, known)| (*known == name).then_some(*value))
}

/// The first name of something in one of the tables above.
fn name_of<T: Copy + PartialEq>(table: &[(T, &'static str)], value: T) -> &'static str {
    table.iter().find_map(|(known, name)| (*known == value).then_some(*name)).expect("every value has a name")
}

/// What a family is called in `model_type`.
pub(super) fn model_type(family: Family) -> &'static str {
    name_of(&FAMILIES, family)
}

/// `"a", "b" or "c"`
fn listed<T>(table: &[(T, &str)]) -> String {
    let names: Vec<String> = table.iter().map(|(_, name)| format!("\"{name}\"")).collect();
    let (last, rest) = names.split_last().expect("no table is empty");
    format!("{} or {last}", rest.join(", "))
}

/// The keys of the sizes and their defaults in transformers.
struct Keys {
    d_model: (&'static str, usize),
    n_layers: (&'static str, usize),
    n_heads: (&'static str, usize),
    d_ff: (&'static str, usize),
    hidden_dropout: (&'static str, f64),
    attention_dropout: (&'static str, f64),
    activation: (&'static str, &'static str),
    vocab_size: usize,
    pad_token_id: usize,
    embedding_size: Option<usize>,
}

impl Keys {
    fn of(family: Family) -> Self {
        let bert = Self {
            d_model: ("hidden_size", 768),
            n_layers: ("num_hidden_layers", 12),
            n_heads: ("num_attention_heads", 12),
            d_ff: ("intermediate_size", 3072),
            hidden_dropout: ("hidden_dropout_prob", 0.1),
            attention_dropout: ("attention_probs_dropout_prob", 0.1),
            activation: ("hidden_act", "gelu"),
            vocab_size: 30_522,
            pad_token_id: 0,
            embedding_size: None,
        };
        match family {
            Family::Bert => bert,
            Family::Roberta => Self { vocab_size: 50_265, pad_token_id: 1, ..bert },
            Family::DistilBert => Self {
                d_model: ("dim", 768),
                n_layers: ("n_layers", 6),
                n_heads: ("n_heads", 12),
                d_ff: ("hidden_dim", 3072),
                hidden_dropout: ("dropout", 0.1),
                attention_dropout: ("attention_dropout", 0.1),
                activation: ("activation", "gelu"),
                ..bert
            },
            Family::Albert => Self {
                d_model: ("hidden_size", 4096),
                n_heads: ("num_attention_heads", 64),
                d_ff: ("intermediate_size", 16_384),
                hidden_dropout: ("hidden_dropout_prob", 0.0),
                attention_dropout: ("attention_probs_dropout_prob", 0.0),
                activation: ("hidden_act", "gelu_new"),
                vocab_size: 30_000,
                embedding_size: Some(128),
                ..bert
            },
            Family::Electra => Self {
                d_model: ("hidden_size", 256),
                n_heads: ("num_attention_heads", 4),
                d_ff: ("intermediate_size", 1024),
                embedding_size: Some(128),
                ..bert
            },
        }
    }
}

/// What a family's `config.json` calls a field of [`BertConfig`].
fn key_of(family: Family, field: &'static str) -> &'static str {
    let keys = Keys::of(family);
    match field {
        "d_model" => keys.d_model.0,
        "n_layers" => keys.n_layers.0,
        "n_heads" => keys.n_heads.0,
        "d_ff" => keys.d_ff.0,
        "hidden_dropout" => keys.hidden_dropout.0,
        "attention_dropout" => keys.attention_dropout.0,
        "max_positions" | "position_offset" => "max_position_embeddings",
        "n_token_types" => "type_vocab_size",
        "d_embedding" => "embedding_size",
        other => other,
    }
}

/// Where a head's dropout stands, and its default; none where that is the encoder's.
fn head_dropout_key(family: Family, architecture: Architecture) -> Option<(&'static str, Option<f64>)> {
    use Architecture::{MultipleChoice, QuestionAnswering, SequenceClassification, TokenClassification};
    match (family, architecture) {
        (Family::DistilBert, SequenceClassification | MultipleChoice) => {
            Some(("seq_classif_dropout", Some(0.2)))
        }
        (Family::DistilBert, QuestionAnswering) => Some(("qa_dropout", Some(0.1))),
        (Family::DistilBert, _) => None,
        (Family::Albert, SequenceClassification | MultipleChoice | TokenClassification) => {
            Some(("classifier_dropout_prob", Some(0.1)))
        }
        (Family::Electra, MultipleChoice) => Some(("summary_last_dropout", Some(0.1))),
        (_, SequenceClassification | MultipleChoice | TokenClassification) => {
            Some(("classifier_dropout", None))
        }
        _ => None,
    }
}

impl PretrainedConfig {
    /// Reads a `config.json`: of any family, and of any time. What it leaves out is transformers' default.
    ///
    /// # Errors
    /// [`ModelError::Io`] and [`ModelError::Json`] for a file that cannot be read, [`ModelError::Config`] for
    /// a value that this crate has no model for.
    pub fn read(path: &Path) -> Result<Self> {
        let fields = Fields::read(path)?;
        let architectures = architectures(&fields)?;
        let family = family(&fields, &architectures)?;
        let parsed = architectures.iter().filter_map(|name| Architecture::parse(name));
        let architecture = parsed.map(|(_, architecture)| architecture).next();
        let architecture = architecture.unwrap_or(Architecture::Encoder);
        let encoder = BertConfig { pooler: architecture.has_pooler(family), ..encoder(&fields, family)? };
        encoder.validate().map_err(|error| match error {
            ModelError::Setting { key, found, expected } => {
                let expected = expected.replace("d_model", key_of(family, "d_model"));
                fields.error(&format!("`{}` is {found}, expected {expected}", key_of(family, key)))
            }
            other => other,
        })?;

        let problem_type =
            match fields.text("problem_type")? {
                Some(name) => Some(of_name(&ProblemType::NAMES, name).ok_or_else(|| {
                    fields.refuse("problem_type", &name.into(), &listed(&ProblemType::NAMES))
                })?),
                None => None,
            };
        let dtype_key = if fields.value("dtype").is_some() { "dtype" } else { "torch_dtype" };
        let dtype = fields.text(dtype_key)?.and_then(|name| of_name(&FloatType::NAMES, name));
        let mut head_dropouts = Vec::new();
        for head in Architecture::ALL {
            let Some((key, default)) = head_dropout_key(family, head) else { continue };
            let probability = |value: &Value| value.as_f64().filter(|p| (0.0..1.0).contains(p));
            let found = fields.typed(key, "a number, 0 or more and below 1", probability)?;
            head_dropouts.extend(found.or(default).map(|p| (head, p)));
        }
        Ok(Self {
            encoder,
            architecture,
            labels: labels::read(&fields)?,
            architectures,
            problem_type,
            head_dropouts,
            finetuning_task: fields.text("finetuning_task")?.map(str::to_string),
            dtype: dtype.unwrap_or_default(),
            tied: fields.flag("tie_word_embeddings")?.unwrap_or(true),
        })
    }

    /// Dropout in the head of a model of `architecture`; none where it is the encoder's hidden one.
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

/// Old files have no `model_type`: the class's name says it, or else the keys that only one family has.
fn family(fields: &Fields, architectures: &[String]) -> Result<Family> {
    if let Some(name) = fields.text("model_type")? {
        let found = of_name(&FAMILIES, name);
        return found.ok_or_else(|| fields.refuse("model_type", &name.into(), &listed(&FAMILIES)));
    }
    let by_class =
        |name: &String| Family::ALL.into_iter().find(|family| name.starts_with(class_prefix(*family)));
    if let Some(family) = architectures.iter().find_map(by_class) {
        return Ok(family);
    }
    let has = |key| fields.value(key).is_some();
    Ok(match () {
        () if has("dim") && has("n_layers") => Family::DistilBert,
        () if has("embedding_size") && has("num_hidden_groups") => Family::Albert,
        () if has("embedding_size") => Family::Electra,
        () => Family::Bert,
    })
}

/// The encoder without a say on its pooler.
fn encoder(fields: &Fields, family: Family) -> Result<BertConfig> {
    let keys = Keys::of(family);
    let size = |(key, default): (&str, usize)| match fields.size(key)?.unwrap_or(default) {
        0 => Err(fields.refuse(key, &0.into(), "at least 1")),
        size => Ok(size),
    };
    let number = |(key, default): (&str, f64)| Ok::<_, ModelError>(fields.number(key)?.unwrap_or(default));
    if let Some(kind) = fields.text("position_embedding_type")?.filter(|kind| *kind != "absolute") {
        return Err(fields.refuse("position_embedding_type", &kind.into(), "\"absolute\""));
    }
    let activation = fields.text(keys.activation.0)?.unwrap_or(keys.activation.1);
    let activation = of_name(&ACTIVATIONS, activation)
        .ok_or_else(|| fields.refuse(keys.activation.0, &activation.into(), &listed(&ACTIVATIONS)))?;
    if family == Family::Albert {
        for key in ["num_hidden_groups", "inner_group_num"] {
            let n = fields.size(key)?.unwrap_or(1);
            if n != 1 {
                return Err(fields.refuse(key, &n.into(), "1: all layers share one set of parameters"));
            }
        }
    }
    let d_model = size(keys.d_model)?;
    let d_embedding = match keys.embedding_size {
        Some(default) => Some(size(("embedding_size", default))?),
        None => None,
    };
    let pad_token_id = fields.size("pad_token_id")?.unwrap_or(keys.pad_token_id);
    let rows = size(("max_position_embeddings", 512))?;
    let position_offset = if family == Family::Roberta { pad_token_id.saturating_add(1) } else { 0 };
    let max_positions = rows.checked_sub(position_offset).ok_or_else(|| {
        fields.error(&format!(
            "`max_position_embeddings` = {rows} has no place beyond `pad_token_id` = {pad_token_id}"
        ))
    })?;
    let eps = if family == Family::DistilBert { 1e-12 } else { number(("layer_norm_eps", 1e-12))? };
    Ok(BertConfig {
        vocab_size: size(("vocab_size", keys.vocab_size))?,
        n_layers: size(keys.n_layers)?,
        d_model,
        n_heads: size(keys.n_heads)?,
        d_ff: size(keys.d_ff)?,
        max_positions,
        n_token_types: match family {
            Family::DistilBert => 0,
            _ => size(("type_vocab_size", 2))?,
        },
        hidden_dropout: number(keys.hidden_dropout)?,
        attention_dropout: number(keys.attention_dropout)?,
        activation,
        norm: NormPlacement::Post,
        layer_norm_eps: eps,
        init_std: number(("initializer_range", 0.02))?,
        pad_token_id,
        family,
        // ALBERT projects always, ELECTRA only where the widths differ.
        d_embedding: d_embedding.filter(|d| family == Family::Albert || *d != d_model),
        position_offset,
        share_layers: family == Family::Albert,
        pooler: false,
    })
}

/// The `config.json` of an encoder with what stands on it.
///
/// # Errors
/// [`ModelError::Setting`] for an encoder that does not fit together or that no class of transformers builds.
pub(super) fn to_json(encoder: &BertConfig, save: &SaveConfig) -> Result<Value> {
    encoder.validate()?;
    let family = encoder.family;
    let keys = Keys::of(family);
    has_counterpart(encoder)?;
    let mut map = Map::new();
    let mut set = |key: &str, value: Value| _ = map.insert(key.to_string(), value);
    set("architectures", json!([save.architecture.name(family)]));
    set("model_type", model_type(family).into());
    set("vocab_size", encoder.vocab_size.into());
    set(keys.d_model.0, encoder.d_model.into());
    set(keys.n_layers.0, encoder.n_layers.into());
    set(keys.n_heads.0, encoder.n_heads.into());
    set(keys.d_ff.0, encoder.d_ff.into());
    set(keys.hidden_dropout.0, encoder.hidden_dropout.into());
    set(keys.attention_dropout.0, encoder.attention_dropout.into());
    set(keys.activation.0, name_of(&ACTIVATIONS, encoder.activation).into());
    set("max_position_embeddings", (encoder.position_offset + encoder.max_positions).into());
    set("initializer_range", encoder.init_std.into());
    set("pad_token_id", encoder.pad_token_id.into());
    set("torch_dtype", save.dtype.name().into());
    if family == Family::DistilBert {
        set("sinusoidal_pos_embds", false.into());
    } else {
        set("type_vocab_size", encoder.n_token_types.into());
        set("layer_norm_eps", encoder.layer_norm_eps.into());
        set("position_embedding_type", "absolute".into());
    }
    if keys.embedding_size.is_some() {
        set("embedding_size", encoder.embedding_width().into());
    }
    if family == Family::Albert {
        set("num_hidden_groups", 1.into());
        set("inner_group_num", 1.into());
    }
    for (architecture, p) in &save.head_dropouts {
        if let Some((key, _)) = head_dropout_key(family, *architecture) {
            set(key, (*p).into());
        }
    }
    if let Some(problem) = save.problem_type {
        set("problem_type", name_of(&ProblemType::NAMES, problem).into());
    }
    if let Some(task) = &save.finetuning_task {
        set("finetuning_task", task.clone().into());
    }
    if !save.labels.is_empty() {
        labels::write(&save.labels, &mut map);
    }
    Ok(Value::Object(map))
}

fn has_counterpart(encoder: &BertConfig) -> Result<()> {
    let family = encoder.family;
    let offset = if family == Family::Roberta { encoder.pad_token_id.saturating_add(1) } else { 0 };
    let (projects, width) = match family {
        Family::Albert => (encoder.d_embedding.is_some(), "a width"),
        Family::Electra => {
            (encoder.d_embedding != Some(encoder.d_model), "none, or another width than `d_model`")
        }
        _ => (encoder.d_embedding.is_none(), "none"),
    };
    let d_embedding = encoder.d_embedding.map_or("none".into(), |width| width.to_string());
    let (is_distil, is_albert) = (family == Family::DistilBert, family == Family::Albert);
    let norm = if encoder.norm == NormPlacement::Pre { "\"pre\"" } else { "\"post\"" };
    let (eps, types) = (encoder.layer_norm_eps, encoder.n_token_types);
    let fits = [
        ("norm", encoder.norm == NormPlacement::Post, norm.to_string(), "\"post\"".into()),
        (
            "position_offset",
            encoder.position_offset == offset,
            encoder.position_offset.to_string(),
            offset.to_string(),
        ),
        ("d_embedding", projects, d_embedding, width.into()),
        (
            "share_layers",
            encoder.share_layers == is_albert,
            encoder.share_layers.to_string(),
            is_albert.to_string(),
        ),
        (
            "n_token_types",
            (types == 0) == is_distil,
            types.to_string(),
            if is_distil { "0" } else { "1 or more" }.into(),
        ),
        ("layer_norm_eps", !is_distil || eps == 1e-12, eps.to_string(), "1e-12".into()),
    ];
    match fits.into_iter().find(|(_, fits, ..)| !fits) {
        Some((key, _, found, expected)) => {
            let expected =
                format!("{expected}: transformers has no other {family}, so such a model cannot be saved");
            Err(ModelError::Setting { key, found, expected })
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    }

    #[test]
    fn old_files_are_told_by_their_class_or_their_keys() {
        let family = |json| read(json).unwrap().encoder.family;
        assert_eq!(family(r#"{"architectures": ["RobertaForMaskedLM"]}"#), Family::Roberta);
        assert_eq!(family(r#"{"dim": 768, "n_layers": 6, "n_heads": 12}"#), Family::DistilBert);
        assert_eq!(family(r#"{"embedding_size": 128, "num_hidden_groups": 1}"#), Family::Albert);
        assert_eq!(family(r#"{"embedding_size": 128}"#), Family::Electra);
        assert_eq!(family(r#"{"hidden_size": 768, "pooler_fc_size": 768}"#), Family::Bert);
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
        let electra =
            |size| read(&format!(r#"{{"model_type": "electra", "embedding_size": {size}}}"#)).unwrap();
        assert_eq!(electra(256).encoder.d_embedding, None);
        assert_eq!(electra(128).encoder.d_embedding, Some(128));
    }

    #[test]
    fn what_is_written_reads_the_same() {
        for (family, _) in FAMILIES {
            for architecture in Architecture::ALL {
                let name = architecture.name(family);
                let Some((_, architecture)) = Architecture::parse(&name) else { panic!("{name}") };
                let json = format!(
                    r#"{{"architectures": ["{name}"], "id2label": {{"0": "a", "1": "b", "2": "c"}},
                    "problem_type": "multi_label_classification", "dtype": "bfloat16"}}"#
                );
                let config = read(&json).unwrap();
                assert_eq!((config.encoder.family, config.architecture), (family, architecture));
                let written = to_json(&config.encoder, &SaveConfig::from(&config)).unwrap();
                assert_eq!(read(&written.to_string()).unwrap(), config, "{written}");
            }
        }
    }

    #[test]
    fn what_there_is_no_model_for_is_named() {
        for (json, expected) in [
            (r#"{"model_type": "gpt2"}"#, "`model_type` is \"gpt2\", expected \"bert\", \"roberta\""),
            (r#"{"hidden_act": "silu"}"#, "`hidden_act` is \"silu\""),
            (r#"{"position_embedding_type": "relative_key"}"#, "`position_embedding_type`"),
            (r#"{"model_type": "albert", "num_hidden_groups": 2}"#, "`num_hidden_groups` is 2, expected 1"),
            (r#"{"model_type": "albert", "inner_group_num": 3}"#, "`inner_group_num` is 3, expected 1"),
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
        ];
        for config in refused {
            assert!(to_json(&config, &SaveConfig::new(Architecture::Encoder)).is_err(), "{config:?}");
        }
        to_json(&base, &SaveConfig::new(Architecture::Encoder)).unwrap();
    }
}
