//! A folder with fewer layers, fewer pieces or no heads, tensor by tensor: what else this crate does not know stays as it
//! is.

use super::fields::Fields;
use super::float_type::{lossless, stored_as};
use super::keys::CONFIG_KEYS;
use super::text_file::write_text;
use super::{
    Architecture, MAX_SHARD_SIZE, PretrainedConfig, PretrainedFolder, TensorRule, TensorRules, check_floats,
    save_tensors, tensors_of,
};
use crate::weights::NamedTensors;
use crate::{ModelError, ParamInit, Result};
use burn::tensor::{Device, TensorData};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// An encoder's folder that is about to lose layers, pieces or heads.
///
/// Everything else is kept: names, heads, the float type, and the keys of `config.json`.
#[derive(Debug)]
pub struct ReducedFolder {
    folder: PathBuf,
    config: PretrainedConfig,
    /// The keys of `config.json`.
    map: Map<String, Value>,
    tensors: NamedTensors,
    /// The key of the number of layers.
    n_layers_key: &'static str,
}

/// The keys of `config.json` that list something for each layer, besides `pruned_heads`.
const BY_LAYER: [&str; 1] = ["layer_types"];

/// The key of the heads that layers lack, by the layers' numbers.
const PRUNED_HEADS: &str = "pruned_heads";

impl ReducedFolder {
    /// Opens the folder of an encoder, with or without a head.
    ///
    /// # Errors
    /// Those of [`PretrainedConfig::read`] and [`tensors_of`].
    pub fn open(folder: &Path) -> Result<Self> {
        let fields = Fields::read(&folder.join("config.json"))?;
        let config = PretrainedConfig::of(&fields)?;
        CONFIG_KEYS.check_left_over(&fields)?;
        let mut map = fields.map().clone();
        // Old files name no family.
        map.insert("model_type".into(), config.family.model_type().into());
        let n_layers_key = config.family.key_of(&fields, "n_layers");
        check_floats(folder)?;
        let tensors = tensors_of(folder)?.floats;
        Ok(Self { folder: folder.into(), config, map, tensors, n_layers_key })
    }

    /// The contents of `config.json` as it was.
    pub fn config(&self) -> &PretrainedConfig {
        &self.config
    }

    /// The number of parameters.
    pub fn n_parameters(&self) -> usize {
        self.tensors.values().map(|data| data.num_elements()).sum()
    }

    fn rules(&self, architecture: Architecture) -> TensorRules {
        self.config.family.rules(architecture, &self.config.encoder, "")
    }

    /// Keeps only these layers, counted from 0, in this order.
    ///
    /// # Errors
    /// Those of [`BertConfig::with_chosen_layers`](crate::bert::BertConfig::with_chosen_layers).
    pub fn keep_layers(&mut self, layers: &[usize]) -> Result<()> {
        let encoder = self.config.encoder.with_chosen_layers(layers)?;
        let rules = self.rules(Architecture::Encoder);
        let stems = layer_stems(&rules);
        let shared = shared_names(&rules);
        let tensors = std::mem::take(&mut self.tensors).into_iter().filter_map(|(name, data)| {
            let canonical = rules.canonical(&name);
            let found = stems.iter().find_map(|stem| {
                let layer = layer_of(&canonical, stem).filter(|_| !shared.contains(&canonical))?;
                Some((stem, layer))
            });
            let Some((stem, layer)) = found else { return Some((name, data)) };
            let place = layers.iter().position(|kept| *kept == layer)?;
            let (old, new) = (format!("{stem}{layer}."), format!("{stem}{place}."));
            let at = name.rfind(&old)?;
            Some((format!("{}{new}{}", &name[..at], &name[at + old.len()..]), data))
        });
        self.tensors = tensors.collect();
        self.map.insert(self.n_layers_key.into(), layers.len().into());
        for key in BY_LAYER {
            if let Some(Value::Array(kinds)) = self.map.get_mut(key) {
                *kinds = layers.iter().filter_map(|layer| kinds.get(*layer).cloned()).collect();
            }
        }
        if let Some(Value::Object(lists)) = self.map.get_mut(PRUNED_HEADS) {
            let moved = layers.iter().enumerate();
            let moved = moved.filter_map(|(place, layer)| {
                Some((place.to_string(), lists.get(&layer.to_string())?.clone()))
            });
            *lists = moved.collect();
        }
        self.config.encoder = encoder;
        Ok(())
    }

    /// Keeps the encoder alone, with its pooler if it has one: all heads are removed. Which tensors are its own is found by
    /// loading it on `device`.
    ///
    /// # Errors
    /// Those of [`PretrainedFolder::load_encoder`].
    pub fn keep_encoder(&mut self, device: &Device) -> Result<()> {
        let pretrained = PretrainedFolder::open(&self.folder)?;
        let (_, _, report) = pretrained.load_encoder(&mut ParamInit::new(device, 0))?;
        for head in &report.unexpected {
            self.tensors.remove(head);
        }
        Ok(())
    }

    /// The ids that `config.json` names, such as `pad_token_id`, and those below the padding's, from which RoBERTa counts
    /// positions: pieces that must be kept.
    pub fn ids(&self) -> BTreeSet<u32> {
        let named = self.map.iter().filter(|(key, _)| is_id(key)).flat_map(|(_, value)| match value {
            Value::Array(ids) => ids.iter().filter_map(Value::as_u64).collect(),
            id => Vec::from_iter(id.as_u64()),
        });
        let below = 0..=self.config.encoder.pad_token_id as u64;
        named.chain(below).filter_map(|id| u32::try_from(id).ok()).collect()
    }

    /// Keeps only these pieces: rows of the token embeddings, of a projection onto the vocabulary, and of its bias.
    ///
    /// # Errors
    /// [`ModelError::Config`] for a piece beyond the table, and for a head over the vocabulary that is not known.
    pub fn keep_pieces(&mut self, old_ids: &[u32]) -> Result<()> {
        let n = self.config.encoder.vocab_size;
        let path = self.folder.join("config.json");
        if let Some(beyond) = old_ids.iter().find(|id| **id as usize >= n) {
            let message =
                format!("{}: the tokenizer has the id {beyond}, the model {n} pieces", path.display());
            return Err(ModelError::Config(message));
        }
        let (mut over_pieces, mut others) = (BTreeSet::new(), BTreeSet::new());
        for architecture in Architecture::ALL {
            let rules = self.rules(architecture);
            let (own, rest) = names_over_pieces(&rules);
            over_pieces.extend(own);
            others.extend(rest);
        }
        let rules = self.rules(self.config.architecture);
        let is_layer = |name: &str| layer_stems(&rules).iter().any(|stem| layer_of(name, stem).is_some());
        for (name, data) in &mut self.tensors {
            if data.shape().first() != Some(&n) {
                continue;
            }
            let canonical = rules.canonical(name);
            if over_pieces.contains(&canonical) {
                *data = selected_rows(data, old_ids);
            } else if !others.contains(&canonical) && !is_layer(&canonical) {
                let message = format!(
                    "{}: tensor `{name}` has a row for each of {n} pieces, and is of no part that is known; pieces cannot \
                     be removed from it",
                    self.folder.display()
                );
                return Err(ModelError::Config(message));
            }
        }
        let new = |id: &Value| {
            let old = id.as_u64().and_then(|id| u32::try_from(id).ok())?;
            old_ids.binary_search(&old).ok().map(Value::from)
        };
        for (_, value) in self.map.iter_mut().filter(|(key, _)| is_id(key)) {
            match value {
                Value::Array(ids) => *ids = ids.iter().filter_map(new).collect(),
                Value::Number(_) => *value = new(value).unwrap_or(Value::Null),
                _ => {}
            }
        }
        self.map.insert("vocab_size".into(), old_ids.len().into());
        self.config.encoder.vocab_size = old_ids.len();
        Ok(())
    }

    /// Writes `config.json` and the weights to `folder`, which is created if necessary, in the float type of before if it
    /// loses no bit, else in FP32.
    ///
    /// # Errors
    /// Those of [`save_tensors`]; a file that cannot be written.
    pub fn save(mut self, folder: &Path) -> Result<()> {
        let dtype = lossless(self.config.dtype, self.tensors.values());
        let tensors = self.tensors.iter().map(|(name, data)| (name.clone(), stored_as(data, dtype)));
        save_tensors(folder, &tensors.collect(), MAX_SHARD_SIZE)?;
        self.map.shift_remove("dtype");
        self.map.insert("torch_dtype".into(), dtype.name().into());
        let text = serde_json::to_string_pretty(&self.map).expect("JSON that was read serialises") + "\n";
        write_text(&folder.join("config.json"), &text)
    }
}

/// Whether a key of `config.json` is the id of a piece.
fn is_id(key: &str) -> bool {
    key.ends_with("_token_id")
        || ["bos_index", "eos_index", "mask_index", "pad_index", "unk_index"].contains(&key)
}

/// What the names of layers' tensors begin with, before the number, such as `encoder.layer.`.
fn layer_stems(rules: &TensorRules) -> BTreeSet<String> {
    let of_layers = |paths: &[&String]| paths.iter().any(|path| path.contains("layers.*."));
    let stems = rules.rules().iter().flat_map(|rule| {
        let (names, paths) = rule.names();
        let names = if of_layers(&paths) { names } else { Vec::new() };
        names.into_iter().filter_map(|name| Some(rules.canonical(name.split_once('*')?.0)))
    });
    stems.collect()
}

/// The names of single tensors, which belong to no layer even if they are called like a part of one: T5's distances.
fn shared_names(rules: &TensorRules) -> BTreeSet<String> {
    let names = rules.rules().iter().flat_map(|rule| rule.names().0);
    names.filter(|name| !name.contains('*')).map(|name| rules.canonical(name)).collect()
}

/// The layer's number behind `stem`.
fn layer_of(canonical: &str, stem: &str) -> Option<usize> {
    canonical.strip_prefix(stem)?.split_once('.')?.0.parse().ok()
}

/// The names of the tensors with a row for each piece, and those of all others.
fn names_over_pieces(rules: &TensorRules) -> (BTreeSet<String>, BTreeSet<String>) {
    let is_over = |path: &str| {
        path.ends_with("embeddings.tokens.weight")
            || path.ends_with("mlm.bias")
            || path.starts_with("mlm.decoder.")
    };
    let (mut over, mut others) = (BTreeSet::new(), BTreeSet::new());
    for rule in rules.rules() {
        let (names, paths) = rule.names();
        let names = names.into_iter().map(|name| rules.canonical(name));
        match paths.iter().any(|path| is_over(path)) {
            true => over.extend(names),
            false if matches!(rule, TensorRule::Tie { .. }) => {}
            false => others.extend(names),
        }
    }
    for rule in rules.rules() {
        let TensorRule::Tie { copy, original } = rule else { continue };
        let [copy, original] = [copy, original].map(|name| rules.canonical(name));
        if over.contains(&original) || over.contains(&copy) {
            over.extend([copy, original]);
        }
    }
    (over, others)
}

/// Some rows of a tensor, along its first axis.
fn selected_rows(data: &TensorData, rows: &[u32]) -> TensorData {
    let width = data.num_elements() / data.shape()[0].max(1);
    let values: Vec<f32> = data.iter::<f32>().collect();
    let picked = rows.iter().flat_map(|row| &values[*row as usize * width..(*row as usize + 1) * width]);
    let mut shape = data.shape().to_vec();
    shape[0] = rows.len();
    TensorData::new(picked.copied().collect(), shape)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bert::{Bert, BertConfig, BertForPreTraining, BertInput, Removal};
    use crate::huggingface::{Family, SaveConfig, save_pretrained};
    use crate::weights;
    use burn::module::Module;
    use burn::tensor::{Int, Tensor};
    use tempfile::TempDir;

    fn config() -> BertConfig {
        BertConfig { d_ff: 24, n_heads: 4, ..BertConfig::new(31, 4, 16) }
    }

    fn saved(config: &BertConfig, family: Family) -> (TempDir, BertForPreTraining) {
        let folder = tempfile::tempdir().unwrap();
        let architecture = family.pretraining(false).unwrap();
        let pooler = family.has_pooler(architecture);
        let config = BertConfig { pooler, ..family.adapted(config.clone()) };
        let model = config.init(&mut ParamInit::new(&Device::flex(), 5).with_std(0.3));
        let save = SaveConfig::new(architecture).with_family(family);
        save_pretrained(folder.path(), &model, &config, &save).unwrap();
        (folder, model)
    }

    fn encoder(folder: &TempDir) -> (BertConfig, Bert) {
        let init = &mut ParamInit::new(&Device::flex(), 6);
        let (config, model, report) =
            PretrainedFolder::open(folder.path()).unwrap().load_encoder(init).unwrap();
        assert!(report.missing.is_empty(), "{report:?}");
        (config, model)
    }

    fn reduced(folder: &TempDir, change: impl FnOnce(&mut ReducedFolder) -> Result<()>) -> Result<TempDir> {
        let mut reduced = ReducedFolder::open(folder.path())?;
        change(&mut reduced)?;
        let out = tempfile::tempdir().unwrap();
        reduced.save(out.path())?;
        Ok(out)
    }

    fn states(model: &Bert, ids: &[i32]) -> TensorData {
        let ids = Tensor::<1, Int>::from_data(ids, &Device::flex()).unsqueeze::<2>();
        model.forward(BertInput::new(ids)).last_hidden_state.into_data()
    }

    #[test]
    fn a_folder_with_fewer_layers_is_the_model_with_fewer_layers() {
        for family in [Family::BERT, Family::ROBERTA, Family::DISTILBERT, Family::MPNET] {
            let (folder, _) = saved(&config(), family);
            let (_, whole) = encoder(&folder);
            let out = reduced(&folder, |folder| folder.keep_layers(&[0, 3])).unwrap();
            let (config, model) = encoder(&out);
            assert_eq!(config.n_layers, 2, "{family}");
            let ids = [7, 9, 30, 12];
            assert_eq!(states(&model, &ids), states(&whole.with_layers(&[0, 3]), &ids), "{family}");
        }
        let (folder, _) = saved(&config(), Family::BERT);
        let error = reduced(&folder, |folder| folder.keep_layers(&[4])).unwrap_err().to_string();
        assert!(error.ends_with("`layers` is [4], expected layers from 0 to 3"), "{error}");
    }

    #[test]
    fn an_encoder_is_kept_without_its_heads() {
        for family in [Family::BERT, Family::ROBERTA, Family::DISTILBERT, Family::ELECTRA] {
            let (folder, _) = saved(&config(), family);
            let (before, whole) = encoder(&folder);
            let out = reduced(&folder, |folder| folder.keep_encoder(&Device::flex())).unwrap();
            let pretrained = PretrainedFolder::open(out.path()).unwrap();
            let (after, model, report) =
                pretrained.load_encoder(&mut ParamInit::new(&Device::flex(), 6)).unwrap();
            assert!(report.missing.is_empty() && report.unexpected.is_empty(), "{family}: {report:?}");
            assert_eq!(after, before, "{family}");
            assert_eq!(weights::collect(&model), weights::collect(&whole), "{family}");
        }
    }

    #[test]
    fn pruned_heads_move_with_their_layers() {
        let removal = Removal { heads: vec![vec![0], vec![], vec![1, 3], vec![2]], neurons: Vec::new() };
        let (pruned, folder) = (config().without(&removal).unwrap(), tempfile::tempdir().unwrap());
        let model = config().init(&mut ParamInit::new(&Device::flex(), 5));
        let mut smaller = model.clone();
        smaller.bert = smaller.bert.without(&removal);
        save_pretrained(folder.path(), &smaller, &pruned, &SaveConfig::new(Architecture::PreTraining))
            .unwrap();
        let json = std::fs::read_to_string(folder.path().join("config.json")).unwrap();
        let json: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["pruned_heads"], serde_json::json!({"0": [0], "2": [1, 3], "3": [2]}));
        let (read, _) = encoder(&folder);
        assert_eq!(read.pruned_heads, removal.heads);
        let out = reduced(&folder, |folder| folder.keep_layers(&[1, 2])).unwrap();
        assert_eq!(encoder(&out).0.pruned_heads, [vec![], vec![1, 3]]);

        // A family whose class knows no pruned heads cannot be saved with them.
        let save = SaveConfig::new(Architecture::MaskedLm).with_family(Family::MODERNBERT);
        let adapted = Family::MODERNBERT.adapted(config());
        let of = BertConfig { pruned_heads: removal.heads, pooler: false, ..adapted };
        let error = save.check(&of).unwrap_err().to_string();
        assert!(error.contains("`pruned_heads` is [[0],[],[1,3],[2]], expected none"), "{error}");
        for (heads, expected) in [
            (
                r#"{"7": [1]}"#,
                "`pruned_heads` is {\"7\":[1]}, expected lists of heads by layer, from \"0\" to \"3\"",
            ),
            (r#"{"1": [4]}"#, "`pruned_heads` is [4] in layer 1, expected heads from 0 to 3"),
            (r#"{"1": [0, 1, 2, 3]}"#, "expected one head at least that is left"),
        ] {
            let mut json = json.clone();
            json["pruned_heads"] = serde_json::from_str(heads).unwrap();
            std::fs::write(folder.path().join("config.json"), json.to_string()).unwrap();
            let error = ReducedFolder::open(folder.path()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_folder_with_fewer_pieces_computes_the_same_of_those_left() {
        let old: Vec<u32> = [0, 1, 3].into_iter().chain((8..31).step_by(2)).collect();
        for family in [Family::BERT, Family::ROBERTA, Family::DISTILBERT, Family::MPNET, Family::ELECTRA] {
            let (folder, whole) = saved(&config(), family);
            let out = reduced(&folder, |folder| folder.keep_pieces(&old)).unwrap();
            let (config, model) = encoder(&out);
            assert_eq!(config.vocab_size, old.len(), "{family}");
            let new = [3, 5, 8, 4];
            let ids: Vec<i32> = new.iter().map(|id| old[*id as usize] as i32).collect();
            assert_eq!(states(&model, &new), states(&encoder(&folder).1, &ids), "{family}");
            // The masked-LM head is cut as well.
            let pretrained = PretrainedFolder::open(out.path()).unwrap();
            let architecture = pretrained.config.architecture;
            let head =
                pretrained.encoder(architecture).init(&mut ParamInit::new(&Device::flex(), 7).deferred());
            let (head, report) =
                pretrained.load_into(head, architecture, &["*pooler*", "next_sentence.*"]).unwrap();
            assert!(report.unexpected.is_empty(), "{family}: {report:?}");
            let bias = weights::collect(&head.mlm).remove("bias").unwrap();
            let expected = weights::collect(&whole.mlm).remove("bias").unwrap();
            assert_eq!(bias, selected_rows(&expected, &old), "{family}");
            assert!(head.num_params() < whole.num_params());
        }
    }

    #[test]
    fn what_is_over_the_vocabulary_and_unknown_is_refused() {
        let (folder, _) = saved(&config(), Family::BERT);
        let error = reduced(&folder, |folder| folder.keep_pieces(&[0, 31])).unwrap_err().to_string();
        assert!(error.ends_with("config.json: the tokenizer has the id 31, the model 31 pieces"), "{error}");
        let error = reduced(&folder, |folder| {
            folder.tensors.insert("mine.table".into(), TensorData::new(vec![0f32; 62], [31, 2]));
            folder.keep_pieces(&[0, 1])
        });
        assert!(
            error.unwrap_err().to_string().contains("tensor `mine.table` has a row for each of 31 pieces")
        );
    }
}
