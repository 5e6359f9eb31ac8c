use super::published::stored_tensors;
use super::reports::SaveReport;
use super::text_file::write_text;
use super::{
    Architecture, Family, FloatType, MAX_SHARD_SIZE, PretrainedConfig, ProblemType, labels, save_tensors,
};
use crate::bert::BertConfig;
use crate::blocks::{LearnedPositions, MultiHeadAttention, PartKind, part_types};
use crate::with_fields::with_fields;
use crate::{HasBackbone, ModelError, Result};
use serde_json::{Map, Value, json};
use std::any::type_name;
use std::path::Path;

/// How a model is saved, besides its encoder.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SaveConfig {
    /// The published family that it is saved as.
    pub family: Family,
    /// The family's class in transformers that can load it.
    pub architecture: Architecture,
    /// The names of the classes that the head predicts, in the order of its outputs; none to omit them.
    pub labels: Vec<String>,
    /// The names of the languages that token types are, in their order; none to omit them.
    pub languages: Vec<String>,
    /// The kind of labels.
    pub problem_type: Option<ProblemType>,
    /// Dropout in heads, of this architecture and of others that are put on the encoder later; those not given are the
    /// family's defaults.
    pub head_dropouts: Vec<(Architecture, f64)>,
    /// The name of the task that the model was trained for.
    pub finetuning_task: Option<String>,
    /// The float type that the weights are stored as.
    pub dtype: FloatType,
    /// The maximum size of a file of weights in bytes, beyond which another is begun.
    pub max_shard_size: usize,
}

with_fields!(SaveConfig {
    with_family => family: Family,
    with_architecture => architecture: Architecture,
    with_labels => labels: Vec<String>,
    with_languages => languages: Vec<String>,
    with_problem_type => problem_type: Option<ProblemType>,
    with_head_dropouts => head_dropouts: Vec<(Architecture, f64)>,
    with_finetuning_task => finetuning_task: Option<String>,
    with_dtype => dtype: FloatType,
    with_max_shard_size => max_shard_size: usize,
});

impl SaveConfig {
    /// A BERT in FP32, and nothing else.
    pub fn new(architecture: Architecture) -> Self {
        Self {
            family: Family::BERT,
            architecture,
            labels: Vec::new(),
            languages: Vec::new(),
            problem_type: None,
            head_dropouts: Vec::new(),
            finetuning_task: None,
            dtype: FloatType::F32,
            max_shard_size: MAX_SHARD_SIZE,
        }
    }
}

/// The settings of the checkpoint: saving what was loaded gives the same tensors bit for bit, in half precisions too.
impl From<&PretrainedConfig> for SaveConfig {
    fn from(config: &PretrainedConfig) -> Self {
        Self {
            family: config.family,
            architecture: config.architecture,
            labels: config.labels.clone(),
            languages: config.languages.clone(),
            problem_type: config.problem_type,
            head_dropouts: config.head_dropouts.clone(),
            finetuning_task: config.finetuning_task.clone(),
            dtype: config.dtype,
            max_shard_size: MAX_SHARD_SIZE,
        }
    }
}

impl SaveConfig {
    /// Checks that [`save_pretrained`] can save a model with this encoder, before the first step of a long run.
    ///
    /// # Errors
    /// [`ModelError::Setting`] with the key that has to change, for an encoder with an invalid value or one that
    /// transformers has no class for.
    pub fn check(&self, encoder: &BertConfig) -> Result<()> {
        to_json(encoder, self).map(drop)
    }
}

/// Saves a model as `config.json` and `model.safetensors` or its shards, for the class of transformers that `save`
/// names, in `folder`, which is created if necessary.
/// [`PretrainedFolder::load_into`](super::PretrainedFolder::load_into) loads the same class.
///
/// The masked-LM head's tied projection is stored once, as in transformers. Each file is written under a temporary name
/// and renamed, the weights first.
///
/// # Errors
/// Before anything is written: those of [`SaveConfig::check`]; [`ModelError::ForeignPart`] for a custom attention or
/// custom positions, which the format cannot name; [`ModelError::NonFinite`] and [`ModelError::Narrowed`] for weights
/// that are not finite, or would not be in the type that `save` asks for. Then any error in writing.
pub fn save_pretrained<M: HasBackbone>(
    folder: &Path,
    model: &M,
    encoder: &BertConfig,
    save: &SaveConfig,
) -> Result<SaveReport> {
    let config = serde_json::to_string_pretty(&to_json(encoder, save)?).expect("plain values serialise");
    for (kind, part) in part_types(model) {
        let (known, expected) = match kind {
            PartKind::Attention => (type_name::<MultiHeadAttention>(), "softmax attention"),
            PartKind::Positions => (type_name::<LearnedPositions>(), "learned positions"),
        };
        if part != known {
            return Err(ModelError::ForeignPart { kind: kind.name(), expected, part });
        }
    }
    let rules = save.family.rules(save.architecture, encoder, &M::path_of(""));
    let (tensors, report) = stored_tensors(folder, model, &rules, save.dtype)?;
    save_tensors(folder, &tensors, save.max_shard_size)?;
    write_text(&folder.join("config.json"), &(config + "\n"))?;
    Ok(report)
}

/// The `config.json` of an encoder with its head.
///
/// # Errors
/// [`ModelError::Setting`] for an encoder with an invalid value or one that no class of transformers builds.
pub(super) fn to_json(encoder: &BertConfig, save: &SaveConfig) -> Result<Value> {
    if !save.family.has_class(save.architecture) {
        let classes = Architecture::ALL.into_iter().filter(|one| save.family.has_class(*one));
        let classes: Vec<String> = classes.map(|one| one.name(save.family)).collect();
        let found = format!("\"{}\"", save.family.model_type());
        let expected = format!(
            "another one: of {} there are only {} in transformers, so such a model cannot be saved",
            save.family,
            classes.join(" and ")
        );
        return Err(ModelError::Setting { key: "family", found, expected });
    }
    let mut map = Map::new();
    map.insert("architectures".into(), json!([save.architecture.name(save.family)]));
    map.insert("model_type".into(), save.family.model_type().into());
    save.family.write(encoder, save.dtype, &mut map)?;
    let mut set = |key: &str, value: Value| _ = map.insert(key.to_string(), value);
    if !encoder.mlm_tied {
        set("tie_word_embeddings", false.into());
    }
    for (architecture, p) in &save.head_dropouts {
        if let Some((key, _)) = save.family.head_dropout(*architecture) {
            set(key, (*p).into());
        }
    }
    if let Some(problem) = save.problem_type {
        set("problem_type", problem.name().into());
    }
    if let Some(task) = &save.finetuning_task {
        set("finetuning_task", task.clone().into());
    }
    if !save.labels.is_empty() {
        labels::write(&save.labels, &mut map);
    }
    if !save.languages.is_empty() {
        labels::write_languages(&save.languages, &mut map);
    }
    Ok(Value::Object(map))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bert::BertForPreTraining;
    use crate::blocks::{
        self, Attention, AttentionInput, AttentionOutput, Linear, MultiHeadAttentionConfig,
        SinusoidalPositions,
    };
    use crate::huggingface::PretrainedFolder;
    use crate::{ParamInit, linear_maps, weights};
    use burn::module::{Module, Param};
    use burn::tensor::{Device, Tensor};

    fn config() -> BertConfig {
        BertConfig { d_ff: 24, ..BertConfig::new(31, 2, 16) }
    }

    fn init() -> ParamInit {
        ParamInit::new(&Device::flex(), 5)
    }

    /// An attention with the name and the parameters of the published one, which computes something else.
    #[derive(Module, Debug)]
    struct MultiHeadAttention {
        query: Linear,
        key: Linear,
        value: Linear,
        output: Linear,
    }

    linear_maps!(MultiHeadAttention { query, key, value, output });

    impl Attention for MultiHeadAttention {
        fn forward(&self, input: AttentionInput<'_>) -> AttentionOutput {
            let AttentionInput { queries: hidden, wanted, .. } = input;
            let gate = burn::tensor::activation::sigmoid(
                self.query.forward(hidden.clone()) * self.key.forward(hidden.clone()),
            );
            AttentionOutput::new(self.output.forward(gate * self.value.forward(hidden)), wanted)
        }
    }

    /// The published attention inside another.
    #[derive(Module, Debug)]
    struct Wrapped {
        inner: blocks::MultiHeadAttention,
    }

    linear_maps!(Wrapped { inner });

    impl Attention for Wrapped {
        fn forward(&self, input: AttentionInput<'_>) -> AttentionOutput {
            self.inner.forward(input)
        }
    }

    #[test]
    fn an_attention_of_ones_own_is_not_saved_as_another() {
        let save = SaveConfig::new(Architecture::PreTraining);
        let folder = tempfile::tempdir().unwrap();
        let same_name = config().init_with(&mut init(), |init| MultiHeadAttention {
            query: Linear::new(16, 16, init),
            key: Linear::new(16, 16, init),
            value: Linear::new(16, 16, init),
            output: Linear::new(16, 16, init),
        });
        let published = config().init(&mut init());
        // Nothing but the type tells them apart.
        assert_eq!(weights::shapes(&same_name), weights::shapes(&published));
        let wrapped = config().init_with(&mut init(), |init| Wrapped {
            inner: MultiHeadAttentionConfig::new(16, 1).init(init),
        });
        let message = |error: ModelError| error.to_string();
        let error = save_pretrained(folder.path(), &same_name, &config(), &save).unwrap_err();
        let own = "huggingface::save::tests::MultiHeadAttention` has no counterpart in transformers";
        assert!(message(error).contains(own));
        let error = save_pretrained(folder.path(), &wrapped, &config(), &save).unwrap_err();
        assert!(message(error).contains("::Wrapped` has no counterpart"));
        let error = save_pretrained(folder.path(), &wrapped.bert, &config(), &save).unwrap_err();
        assert!(matches!(error, ModelError::ForeignPart { .. }));
        let elsewhere = config().init(&mut init()).with_positions(SinusoidalPositions::new(16));
        let error = save_pretrained(folder.path(), &elsewhere, &config(), &save).unwrap_err();
        assert!(message(error).contains("::SinusoidalPositions` has no counterpart"));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is written");
        save_pretrained(folder.path(), &published, &config(), &save).unwrap();
    }

    #[test]
    fn a_folder_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        let model = config().init(&mut init());
        save_pretrained(&path, &model, &config(), &SaveConfig::new(Architecture::PreTraining)).unwrap();
        PretrainedFolder::open(&path).unwrap();
    }

    /// A model whose `query` of the last layer has `value` in row 3, column 7 of PyTorch's layout.
    fn with_value(value: f32) -> BertForPreTraining {
        let mut model = config().init(&mut init());
        let query = &mut model.bert.encoder.layers[1].attention.query;
        let at = Tensor::from_data([[value]], &Device::flex());
        query.weight = Param::from_tensor(query.weight.val().slice_assign([7..8, 3..4], at));
        model
    }

    #[test]
    fn weights_that_are_not_finite_are_not_saved() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model");
        let save = SaveConfig::new(Architecture::PreTraining);
        for (value, shown) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf"), (f32::NEG_INFINITY, "-inf")] {
            let error = save_pretrained(&path, &with_value(value), &config(), &save).unwrap_err().to_string();
            let expected = format!(
                "model: tensor `bert.encoder.layer.1.attention.self.query.weight` is {shown} at [3, 7], expected finite \
                 numbers: the file is damaged, or the model's training diverged"
            );
            assert!(error.ends_with(&expected), "{error}");
            assert!(!path.exists());
        }
        let half = SaveConfig { dtype: FloatType::F16, ..save.clone() };
        let error = save_pretrained(&path, &with_value(1e5), &config(), &half).unwrap_err().to_string();
        assert!(error.ends_with("query.weight` has values that float16 cannot hold"), "{error}");
        save_pretrained(&path, &with_value(1e5), &config(), &save).unwrap();
    }

    #[test]
    fn what_cannot_be_saved_is_known_beforehand() {
        let save = SaveConfig::new(Architecture::PreTraining);
        save.check(&config()).unwrap();
        let pre = BertConfig { norm: blocks::NormPlacement::Pre, ..config() };
        let error = save.check(&pre).unwrap_err();
        assert!(matches!(error, ModelError::Setting { key: "norm", .. }), "{error}");
        let folder = tempfile::tempdir().unwrap();
        let saved = save_pretrained(folder.path(), &pre.init(&mut init()), &pre, &save).unwrap_err();
        assert_eq!(saved.to_string(), error.to_string());
    }
}
