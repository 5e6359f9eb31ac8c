use super::published::tell_own_projection;
use super::reports::LoadReport;
use super::{Architecture, MappedTensors, PretrainedConfig, tensors_of};
use crate::bert::integer_only::IntegerBert;
use crate::bert::{Bert, BertConfig};
use crate::blocks::set_integers;
use crate::{Backbone, HasBackbone, ModelError, ParamInit, Result};
use std::path::{Path, PathBuf};

/// An open Hugging Face folder: its configuration and its tensors.
///
/// The weights stay in their file, see [`map_tensors`](super::map_tensors), except for the matrices of linear maps,
/// which are transposed into memory; their pages of the file are then let go.
///
/// ```no_run
/// # use burn::tensor::Device;
/// # use cloze_model::{HasBackbone, ParamInit, Result, bert::BertForPreTraining};
/// # use cloze_model::huggingface::{Architecture, PretrainedFolder};
/// # fn main() -> Result<()> {
/// let pretrained = PretrainedFolder::open("bert-base-uncased".as_ref())?;
/// let encoder = pretrained.encoder(Architecture::PreTraining);
/// let model = encoder.init(&mut ParamInit::new(&Device::flex(), 42).deferred());
/// let pooler = <BertForPreTraining>::path_of("pooler.*");
/// let new = ["next_sentence.*", &pooler];
/// let (model, report) = pretrained.load_into(model, Architecture::PreTraining, &new)?;
/// println!("initialised anew: {:?}", report.missing);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct PretrainedFolder {
    /// The contents of `config.json`.
    pub config: PretrainedConfig,
    folder: PathBuf,
    tensors: MappedTensors,
    without_weights: bool,
    replaces_heads: bool,
}

impl PretrainedFolder {
    /// Opens a folder with `config.json` and weights.
    ///
    /// # Errors
    /// Those of [`PretrainedConfig::read`] and [`tensors_of`].
    pub fn open(folder: &Path) -> Result<Self> {
        let mut config = PretrainedConfig::read(&folder.join("config.json"))?;
        let tensors = tensors_of(folder)?;
        if config.architecture.has_mlm() && config.encoder.mlm_tied {
            let rules = config.family.rules(config.architecture, &config.encoder, "");
            let found = rules.own_projection(&tensors.floats, |copy| copy.ends_with(".weight"));
            config.encoder.mlm_tied = found.is_none();
            tell_own_projection(folder, found.as_ref());
        }
        Ok(Self { config, folder: folder.into(), tensors, without_weights: false, replaces_heads: false })
    }

    /// The same folder without its weights: no tensor of the checkpoint is used, and all parameters keep their initial
    /// values. This is the baseline for what pretraining is worth.
    pub fn without_weights(self) -> Self {
        Self { without_weights: true, ..self }
    }

    /// The same folder for training: a head for another number of outputs is not used. Parameters that may be missing in the
    /// checkpoint then keep their initial values if its tensors have other shapes, and these tensors are reported as
    /// unexpected. So does transformers with `ignore_mismatched_sizes`.
    pub fn replacing_heads(self) -> Self {
        Self { replaces_heads: true, ..self }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The tensors.
    pub(super) fn tensors(&self) -> &MappedTensors {
        &self.tensors
    }

    /// Whether the encoder computes in integers alone (I-BERT).
    pub fn is_integer_only(&self) -> bool {
        self.tensors.integer_only.is_some()
    }

    /// The encoder's configuration for a model of `architecture`: with a pooler if the class in transformers has one;
    /// for the bare encoder, only if the checkpoint has one.
    pub fn encoder(&self, architecture: Architecture) -> BertConfig {
        let family = self.config.family;
        let rules = family.rules(architecture, &self.config.encoder, "");
        let has_pooler =
            || self.tensors.shapes().any(|(name, _)| rules.canonical(name).starts_with("pooler."));
        let pooler =
            family.has_pooler(architecture) && (architecture != Architecture::Encoder || has_pooler());
        BertConfig { pooler, ..self.config.encoder.clone() }
    }

    /// Loads the encoder alone. Heads are reported as unexpected.
    ///
    /// # Errors
    /// Those of [`load_into`](Self::load_into).
    pub fn load_encoder(self, init: &mut ParamInit) -> Result<(BertConfig, Bert, LoadReport)> {
        let config = self.encoder(Architecture::Encoder);
        let model = config.init_encoder(&mut init.deferred());
        let (model, report) = self.load_into(model, Architecture::Encoder, &[])?;
        Ok((config, model, report))
    }

    /// Loads the tensors into `model`, a [`Bert`] or a model with one.
    ///
    /// Tensor names are those of `architecture` in the checkpoint's family, with or without a prefix, in any historical
    /// spelling. A parameter whose path matches a pattern of `new` may be missing and then keeps its value; in a
    /// pattern, `*` stands for any characters, as in `head.*`. Initialise the model with
    /// [deferred](crate::ParamInit::deferred) parameters, so that no values are drawn only to be replaced.
    ///
    /// # Errors
    /// [`ModelError::MissingTensors`], [`ModelError::Shape`]; [`ModelError::NonFinite`] for the first of the model's
    /// tensors with a NaN or an infinity; [`ModelError::Config`] for a malformed pattern, and for a
    /// masked-LM head of a family that has none.
    pub fn load_into<M: HasBackbone>(
        mut self,
        model: M,
        architecture: Architecture,
        new: &[&str],
    ) -> Result<(M, LoadReport)> {
        let PretrainedConfig { family, ref encoder, .. } = self.config;
        if architecture.has_mlm() && family.pretraining(false).is_none() {
            let path = self.folder.join("config.json");
            return Err(ModelError::Config(format!("{}: {family} has no masked-LM head", path.display())));
        }
        let rules = family.rules(architecture, encoder, &M::path_of(""));
        if self.without_weights {
            let mut missing = rules.names(&model)?;
            missing.sort();
            return Ok((model, LoadReport { missing, unexpected: Vec::new() }));
        }
        let misfits =
            if self.replaces_heads { rules.misfits(&model, &self.tensors, new)? } else { Vec::new() };
        self.tensors.floats.retain(|name, _| !misfits.contains(name));
        let integer_only = self.tensors.integer_only.take();
        let (mut model, mut report, integers) = rules.put(model, &self.folder, self.tensors, new)?;
        if let Some(parts) = integer_only {
            let wrong = |reason| ModelError::Weights { path: self.folder.clone(), reason };
            let bert = IntegerBert::new(&parts).map_err(wrong)?;
            if !model.backbone_mut().compute_in_integers(bert) {
                let reason = "has integers alone, which this model does not compute with".into();
                return Err(ModelError::Weights { path: self.folder, reason });
            }
            report.unexpected.extend(misfits);
            report.unexpected.sort();
            return Ok((model, report));
        }
        let left = set_integers(model.backbone_mut(), &M::path_of(""), integers);
        let rounded: Vec<_> = left.iter().filter(|(_, (tensor, _))| tensor.tokens.is_some()).collect();
        if let Some((first, _)) = rounded.first() {
            let n = rounded.len();
            tracing::warn!(
                "{n} maps of the head have integers, whose inputs are not rounded; the first is `{first}`"
            );
        }
        report.unexpected.extend(misfits);
        report.unexpected.sort();
        Ok((model, report))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bert::BertForPreTraining;
    use crate::huggingface::{Family, FloatType, SaveConfig, read_tensors, save_pretrained, write_tensors};
    use crate::weights::{self, NamedTensors};
    use burn::tensor::{Device, TensorData};

    const FILE: &str = "model.safetensors";

    fn config() -> BertConfig {
        BertConfig { d_ff: 24, ..BertConfig::new(31, 2, 16) }
    }

    fn saved(seed: u64) -> (tempfile::TempDir, BertForPreTraining) {
        let folder = tempfile::tempdir().unwrap();
        let model = config().init(&mut ParamInit::new(&Device::flex(), seed));
        let save = SaveConfig::new(Architecture::PreTraining);
        let report = save_pretrained(folder.path(), &model, &config(), &save).unwrap();
        assert!(report.unknown.is_empty());
        (folder, model)
    }

    /// Rewrites a folder's weights.
    fn edit(folder: &Path, change: impl FnOnce(NamedTensors) -> NamedTensors) {
        let path = folder.join(FILE);
        write_tensors(&path, &change(read_tensors(&path).unwrap()), &[]).unwrap();
    }

    fn load(folder: &Path, new: &[&str]) -> Result<(BertForPreTraining, LoadReport)> {
        let model = config().init(&mut ParamInit::new(&Device::flex(), 6).deferred());
        PretrainedFolder::open(folder)?.load_into(model, Architecture::PreTraining, new)
    }

    #[test]
    fn a_saved_model_loads_with_the_same_bits() {
        let (folder, model) = saved(5);
        let pretrained = PretrainedFolder::open(folder.path()).unwrap();
        assert_eq!(pretrained.config.encoder, config());
        assert_eq!(pretrained.config.architectures, ["BertForPreTraining"]);
        let (loaded, report) = load(folder.path(), &[]).unwrap();
        assert_eq!(report, LoadReport::default());
        assert_eq!(weights::collect(&loaded), weights::collect(&model));

        // Over its own file: the mapped one stays intact.
        let save = SaveConfig::new(Architecture::PreTraining);
        save_pretrained(folder.path(), &loaded, &config(), &save).unwrap();
        assert_eq!(weights::collect(&loaded), weights::collect(&model));

        // For a tensor of another shape, the error has both shapes, in the file's layout.
        let wide = BertConfig { d_ff: 40, ..config() };
        let model = wide.init(&mut ParamInit::new(&Device::flex(), 6).deferred());
        let pretrained = PretrainedFolder::open(folder.path()).unwrap();
        let error = pretrained.load_into(model, Architecture::PreTraining, &[]).unwrap_err().to_string();
        let expected = "tensor `bert.encoder.layer.0.intermediate.dense.weight` has shape [24, 16], \
                        the configuration asks for [40, 16]";
        assert!(error.ends_with(expected), "{error}");
    }

    #[test]
    fn names_of_any_time_are_read() {
        let (folder, model) = saved(5);
        let old = |name: String| {
            let name = name.replace("LayerNorm.weight", "LayerNorm.gamma");
            format!("module.{}", name.replace("LayerNorm.bias", "LayerNorm.beta"))
        };
        edit(folder.path(), |tensors| tensors.into_iter().map(|(name, data)| (old(name), data)).collect());
        let (loaded, report) = load(folder.path(), &[]).unwrap();
        assert_eq!(report, LoadReport::default());
        assert_eq!(weights::collect(&loaded), weights::collect(&model));

        edit(folder.path(), |tensors| {
            let bare = |name: &str| name.trim_start_matches("module.bert.").to_string();
            tensors.into_iter().map(|(name, data)| (bare(&name), data)).collect()
        });
        let (_, encoder, report) = PretrainedFolder::open(folder.path())
            .unwrap()
            .load_encoder(&mut ParamInit::new(&Device::flex(), 1))
            .unwrap();
        assert_eq!(weights::collect(&encoder), weights::collect(&model.bert));
        assert!(report.missing.is_empty());
        assert!(report.unexpected.iter().all(|name| name.starts_with("module.cls.")), "{report:?}");
        assert_eq!(report.unexpected.len(), 7);
    }

    #[test]
    fn what_is_missing_is_an_error_unless_declared_new() {
        let (folder, model) = saved(5);
        edit(folder.path(), |mut tensors| {
            tensors.retain(|name, _| !name.contains("pooler") && !name.contains("seq_relationship"));
            tensors.insert("extra".into(), TensorData::new(vec![1f32], [1]));
            tensors
        });
        let error = load(folder.path(), &["next_*"]).unwrap_err().to_string();
        let expected = "2 tensors are missing, the first is `bert.pooler.dense.bias`, for the parameter \
                        `bert.pooler.dense.bias`";
        assert!(error.contains(expected), "{error}");
        assert!(error.ends_with("; the model does not know `extra`, which the file has"), "{error}");
        let error = load(folder.path(), &["bert.pooler.*"]).unwrap_err().to_string();
        assert!(
            error.contains("`cls.seq_relationship.bias`, for the parameter `next_sentence.classifier.bias`")
        );
        let (loaded, report) = load(folder.path(), &["*pooler*", "next_sentence.*"]).unwrap();
        assert_eq!(report.unexpected, ["extra"]);
        let missing = ["bert.pooler.dense.bias", "bert.pooler.dense.weight", "cls.seq_relationship.bias"];
        assert_eq!(report.missing[..3], missing);
        assert_eq!(weights::collect(&loaded.mlm), weights::collect(&model.mlm));
        assert!(
            load(folder.path(), &["***"])
                .unwrap_err()
                .to_string()
                .contains("is not a valid parameter pattern")
        );
        // The bare encoder has none.
        let pretrained = PretrainedFolder::open(folder.path()).unwrap();
        let (config, encoder, _) = pretrained.load_encoder(&mut ParamInit::new(&Device::flex(), 1)).unwrap();
        assert!(!config.pooler && encoder.pooler.is_none());
    }

    /// Sets element `at` of a tensor to `value`.
    fn spoil(tensors: &mut NamedTensors, name: &str, at: usize, value: f32) {
        let data = &tensors[name];
        let (mut values, shape) = (data.iter::<f32>().collect::<Vec<_>>(), data.shape().to_vec());
        values[at] = value;
        tensors.insert(name.into(), TensorData::new(values, shape));
    }

    #[test]
    fn the_first_tensor_that_is_not_finite_is_named_with_its_file_and_place() {
        const QUERY: &str = "bert.encoder.layer.1.attention.self.query.weight";
        const TABLE: &str = "bert.embeddings.word_embeddings.weight";
        for dtype in [FloatType::F32, FloatType::F16, FloatType::Bf16] {
            let (folder, model) = saved(5);
            let save = SaveConfig { dtype, ..SaveConfig::new(Architecture::PreTraining) };
            save_pretrained(folder.path(), &model, &config(), &save).unwrap();
            let spoiled = |name: &str, at, value| {
                edit(folder.path(), |mut tensors| {
                    spoil(&mut tensors, name, at, value);
                    let stored = |data| crate::huggingface::float_type::stored_as(&data, dtype);
                    tensors.into_iter().map(|(name, data)| (name, stored(data))).collect()
                });
                load(folder.path(), &[]).unwrap_err().to_string()
            };
            let message = spoiled(QUERY, 16 + 3, f32::NEG_INFINITY);
            let end =
                format!("model.safetensors: tensor `{QUERY}` is -inf at [1, 3], expected finite numbers: ");
            assert!(message.contains(&end), "{message}");
            // In the model's order rather than the file's.
            let message = spoiled(TABLE, 30 * 16 + 15, f32::NAN);
            assert!(message.contains(&format!("tensor `{TABLE}` is NaN at [30, 15], ")), "{message}");
        }
    }

    #[test]
    fn of_several_files_the_one_that_is_not_finite_is_named() {
        const BIAS: &str = "bert.encoder.layer.0.output.dense.bias";
        let (folder, model) = saved(5);
        let save = SaveConfig { max_shard_size: 4_000, ..SaveConfig::new(Architecture::PreTraining) };
        save_pretrained(folder.path(), &model, &config(), &save).unwrap();
        let index = std::fs::read_to_string(folder.path().join("model.safetensors.index.json")).unwrap();
        let index: serde_json::Value = serde_json::from_str(&index).unwrap();
        let file = folder.path().join(index["weight_map"][BIAS].as_str().unwrap());
        let mut tensors = read_tensors(&file).unwrap();
        spoil(&mut tensors, BIAS, 2, f32::NAN);
        write_tensors(&file, &tensors, &[]).unwrap();
        let message = load(folder.path(), &[]).unwrap_err().to_string();
        assert!(
            message.starts_with(&format!("{}: tensor `{BIAS}` is NaN at [2]", file.display())),
            "{message}"
        );
    }

    #[test]
    fn what_is_no_weight_of_the_model_may_hold_anything() {
        let (folder, _) = saved(5);
        edit(folder.path(), |mut tensors| {
            tensors.insert("bert.some.buffer".into(), TensorData::new(vec![f32::NEG_INFINITY], [1]));
            tensors
        });
        let (_, report) = load(folder.path(), &[]).unwrap();
        assert_eq!(report.unexpected, ["bert.some.buffer"]);
    }

    #[test]
    fn tied_copies_are_one_tensor() {
        let (folder, model) = saved(5);
        const TABLE: &str = "bert.embeddings.word_embeddings.weight";
        const COPY: &str = "cls.predictions.decoder.weight";
        edit(folder.path(), |mut tensors| {
            tensors.insert(COPY.into(), tensors[TABLE].clone());
            let bias = tensors.remove("cls.predictions.bias").unwrap();
            tensors.insert("cls.predictions.decoder.bias".into(), bias);
            tensors
        });
        let (loaded, report) = load(folder.path(), &[]).unwrap();
        assert_eq!(report, LoadReport::default());
        assert_eq!(weights::collect(&loaded), weights::collect(&model));
    }

    #[test]
    fn a_projection_that_differs_from_the_table_is_the_heads_own() {
        const COPY: &str = "cls.predictions.decoder.weight";
        let (folder, model) = saved(5);
        let numbers: Vec<f32> = (0..31 * 16).map(|i| i as f32 / 100.0).collect();
        let own = TensorData::new(numbers, [31, 16]);
        edit(folder.path(), |mut tensors| {
            tensors.insert(COPY.into(), own.clone());
            tensors
        });
        let load = |folder: &Path| {
            let pretrained = PretrainedFolder::open(folder).unwrap();
            let encoder = pretrained.encoder(Architecture::PreTraining);
            let model = encoder.init(&mut ParamInit::new(&Device::flex(), 6).deferred());
            let (model, report) = pretrained.load_into(model, Architecture::PreTraining, &[]).unwrap();
            assert_eq!(report, LoadReport::default());
            (encoder, model)
        };
        let (encoder, loaded) = load(folder.path());
        assert!(!encoder.mlm_tied);
        let decoder = loaded.mlm.decoder.as_ref().expect("it is the head's own").weight.val();
        decoder.transpose().into_data().assert_eq(&own, true);
        assert_eq!(weights::collect(&loaded.bert), weights::collect(&model.bert));

        let save = SaveConfig::new(Architecture::PreTraining);
        save_pretrained(folder.path(), &loaded, &encoder, &save).unwrap();
        let json = std::fs::read_to_string(folder.path().join("config.json")).unwrap();
        assert!(json.contains("\"tie_word_embeddings\": false"), "{json}");
        let (again, saved) = load(folder.path());
        assert_eq!(again, encoder);
        assert_eq!(weights::collect(&saved), weights::collect(&loaded));
    }

    #[test]
    fn half_precisions_go_through_unchanged() {
        for (dtype, name) in [(FloatType::F16, "float16"), (FloatType::Bf16, "bfloat16")] {
            let (folder, model) = saved(5);
            let save = SaveConfig { dtype, ..SaveConfig::new(Architecture::PreTraining) };
            save_pretrained(folder.path(), &model, &config(), &save).unwrap();
            let bytes = std::fs::read(folder.path().join(FILE)).unwrap();
            let json = std::fs::read_to_string(folder.path().join("config.json")).unwrap();
            assert!(json.contains(name), "{json}");
            let pretrained = PretrainedFolder::open(folder.path()).unwrap();
            let again = SaveConfig::from(&pretrained.config);
            assert_eq!(again.dtype, dtype);
            let (loaded, _) = load(folder.path(), &[]).unwrap();
            assert_ne!(weights::collect(&loaded), weights::collect(&model));
            save_pretrained(folder.path(), &loaded, &config(), &again).unwrap();
            assert_eq!(std::fs::read(folder.path().join(FILE)).unwrap(), bytes);
        }
    }

    #[test]
    fn shards_are_one_checkpoint() {
        let (folder, model) = saved(5);
        let save = SaveConfig { max_shard_size: 4_000, ..SaveConfig::new(Architecture::PreTraining) };
        save_pretrained(folder.path(), &model, &config(), &save).unwrap();
        assert!(!folder.path().join(FILE).exists());
        let (loaded, report) = load(folder.path(), &[]).unwrap();
        assert_eq!(report, LoadReport::default());
        assert_eq!(weights::collect(&loaded), weights::collect(&model));
    }

    #[test]
    fn without_weights_the_network_is_untrained() {
        let (folder, model) = saved(5);
        let fresh = || config().init(&mut ParamInit::new(&Device::flex(), 6).deferred());
        let pretrained = PretrainedFolder::open(folder.path()).unwrap().without_weights();
        let (untrained, report) = pretrained.load_into(fresh(), Architecture::PreTraining, &[]).unwrap();
        assert_eq!(weights::collect(&untrained), weights::collect(&fresh()));
        assert_ne!(weights::collect(&untrained), weights::collect(&model));
        assert_eq!(report.missing.len(), weights::shapes(&model).len());
    }

    #[test]
    fn an_untied_projection_must_be_in_the_file() {
        let (folder, _) = saved(5);
        let path = folder.path().join("config.json");
        let json = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, json.replacen('{', "{\"tie_word_embeddings\": false,", 1)).unwrap();
        let pretrained = PretrainedFolder::open(folder.path()).unwrap();
        let encoder = pretrained.encoder(Architecture::PreTraining);
        let model = encoder.init(&mut ParamInit::new(&Device::flex(), 6).deferred());
        let error = pretrained.load_into(model, Architecture::PreTraining, &[]).unwrap_err().to_string();
        assert!(error.contains("`cls.predictions.decoder.weight`"), "{error}");
        let pretrained = PretrainedFolder::open(folder.path()).unwrap();
        assert_eq!(pretrained.config.family, Family::BERT);
        pretrained.load_encoder(&mut ParamInit::new(&Device::flex(), 1)).unwrap();
    }
}
