//! The weights of a folder: one file, or several with an index, in either format.

use super::gguf::map_gguf;
use super::json_file::read_json;
use super::quantization::decoded;
use super::safetensors_file::write_some;
use super::text_file::write_text;
use super::torch::map_torch;
use super::{MappedTensors, map_tensors, write_tensors};
use crate::weights::NamedTensors;
use crate::{ModelError, Result};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

/// The maximum size of a file of weights in transformers, in bytes.
pub const MAX_SHARD_SIZE: usize = 5_000_000_000;

const SAFETENSORS: &str = "model.safetensors";
const SAFETENSORS_INDEX: &str = "model.safetensors.index.json";
const TORCH: &str = "pytorch_model.bin";
const TORCH_INDEX: &str = "pytorch_model.bin.index.json";
const GGUF: &str = cloze_gguf::WEIGHTS;

/// What an index file should be, for errors.
const INDEX: &str = "an index of shards, with a `weight_map` of tensors and their files";

/// The file of each tensor, as the index of several shards says.
#[derive(Serialize, Deserialize)]
struct Index {
    #[serde(default)]
    metadata: BTreeMap<String, serde_json::Value>,
    weight_map: BTreeMap<String, String>,
}

/// All tensors of a folder by name, from `model.safetensors`, its shards, `pytorch_model.bin`, its shards or `model.gguf`,
/// whichever is found first in this order.
///
/// Tensors are copied only if necessary, see [`map_tensors`]. A `pytorch_model.bin` is a program in Python's pickle
/// format, none of which is run: anything beyond a dictionary of tensors is refused.
///
/// Weights of integers are put together as the `quantization_config` in the folder's `config.json` says.
///
/// # Errors
/// [`ModelError::Weights`] for a folder without weights, for files without a tensor, and for an index that names
/// missing files or files outside the folder; the errors of [`map_tensors`], [`ModelError::Torch`] and
/// [`ModelError::Gguf`].
pub fn tensors_of(folder: &Path) -> Result<MappedTensors> {
    type Reader = fn(&Path) -> Result<MappedTensors>;
    let formats: [(&str, &str, Reader); 2] =
        [(SAFETENSORS, SAFETENSORS_INDEX, map_tensors), (TORCH, TORCH_INDEX, map_torch)];
    for (single, index, read) in formats {
        let (single, index) = (folder.join(single), folder.join(index));
        let (path, tensors) = match () {
            () if single.is_file() => (&single, read(&single)?),
            () if index.is_file() => (&index, shards(folder, &index, read)?),
            () => continue,
        };
        if tensors.floats.is_empty() {
            let reason = "has no tensor of floating-point numbers, expected a model's weights".into();
            return Err(ModelError::Weights { path: path.clone(), reason });
        }
        return decoded(folder, unwrapped(path, tensors));
    }
    let gguf = folder.join(GGUF);
    if gguf.is_file() {
        return map_gguf(&gguf);
    }
    let reason = format!("has none of {SAFETENSORS}, {SAFETENSORS_INDEX}, {TORCH}, {TORCH_INDEX} and {GGUF}");
    Err(ModelError::Weights { path: folder.into(), reason })
}

/// Whether a folder has a file that [`tensors_of`] reads.
pub(super) fn has_weights(folder: &Path) -> bool {
    [SAFETENSORS, SAFETENSORS_INDEX, TORCH, TORCH_INDEX, GGUF].iter().any(|name| folder.join(name).is_file())
}

/// The file with a tensor, of those that [`tensors_of`] reads from the folder; the folder itself if it is unknown.
pub(super) fn file_of(folder: &Path, tensor: &str) -> PathBuf {
    for (single, index) in [(SAFETENSORS, SAFETENSORS_INDEX), (TORCH, TORCH_INDEX)] {
        let (single, index) = (folder.join(single), folder.join(index));
        if single.is_file() {
            return single;
        }
        if index.is_file() {
            let shard =
                read_json::<Index>(&index, INDEX).ok().and_then(|mut found| found.weight_map.remove(tensor));
            return shard.map_or(index, |shard| folder.join(shard));
        }
    }
    let gguf = folder.join(GGUF);
    if gguf.is_file() { gguf } else { folder.into() }
}

fn shards(folder: &Path, path: &Path, read: fn(&Path) -> Result<MappedTensors>) -> Result<MappedTensors> {
    let wrong = |reason| ModelError::Weights { path: path.into(), reason };
    let Index { weight_map, .. } = read_json(path, INDEX)?;
    let mut all = MappedTensors::new(NamedTensors::new(), Vec::new());
    let mut elsewhere = Vec::new();
    for shard in weight_map.values().collect::<BTreeSet<_>>() {
        let mut parts = Path::new(shard).components();
        if !matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) || shard.contains('\\')
        {
            return Err(wrong(format!("shard `{}` is not a file of this folder", shard.escape_debug())));
        }
        let file = folder.join(shard);
        if !file.is_file() {
            return Err(wrong(format!("shard `{shard}` is missing")));
        }
        let found = read(&file)?;
        // As in transformers, all tensors of a shard are read, whatever the index says of them; of two with one name that one
        // counts whose place the index knows.
        let is_here = |name: &str| weight_map.get(name).is_none_or(|place| place == shard);
        for (name, data) in found.floats {
            if !is_here(&name) {
                elsewhere.push(name.clone());
                if all.floats.contains_key(&name) {
                    continue;
                }
            }
            all.floats.insert(name, data);
        }
        all.others.extend(found.others);
        all.raw.extend(found.raw);
    }
    if let Some(name) = elsewhere.first() {
        let n = elsewhere.len();
        tracing::warn!(
            "{}: {n} tensors are not in the file that the index names, the first is `{name}`",
            path.display()
        );
    }
    all.others.sort();
    all.others.dedup();
    let is_found = |name: &str| {
        all.floats.contains_key(name) || all.others.binary_search_by(|other| other.as_str().cmp(name)).is_ok()
    };
    if let Some((name, shard)) = weight_map.iter().find(|(name, _)| !is_found(name)) {
        tracing::warn!(
            "{}: no shard has tensor `{name}`, which the index expects in `{shard}`",
            path.display()
        );
    }
    Ok(all)
}

/// The tensors without what wrappers of training put into their names: `_orig_mod` (torch.compile), `_fsdp_wrapped_module`,
/// `_checkpoint_wrapped_module`, and a `module` before all of them (DataParallel).
fn unwrapped(path: &Path, tensors: MappedTensors) -> MappedTensors {
    const WRAPPERS: [&str; 3] = ["_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"];
    let is_wrapped = |name: &str| name.split('.').any(|part| WRAPPERS.contains(&part));
    let in_module = tensors.floats.keys().all(|name| name.starts_with("module."));
    if !in_module && !tensors.floats.keys().any(|name| is_wrapped(name)) {
        return tensors;
    }
    let bare = |name: &str| {
        let name = if in_module { name.strip_prefix("module.").unwrap_or(name) } else { name };
        name.split('.').filter(|part| !WRAPPERS.contains(part)).collect::<Vec<_>>().join(".")
    };
    let mut floats = NamedTensors::new();
    let mut told = None;
    for (name, data) in tensors.floats {
        let short = bare(&name);
        told.get_or_insert_with(|| (name.clone(), short.clone()));
        // A tensor that has the short name itself counts.
        if short == name || !floats.contains_key(&short) {
            floats.insert(short, data);
        }
    }
    if let Some((name, short)) = told {
        tracing::warn!(
            "{}: names without what wrappers added: `{name}` is read as `{short}`, and so on",
            path.display()
        );
    }
    let raw = tensors.raw.into_iter().map(|(name, tensor)| (bare(&name), tensor)).collect();
    let others = tensors.others.iter().map(|name| bare(name)).collect();
    MappedTensors { raw, ..MappedTensors::new(floats, others) }
}

/// Writes float tensors as transformers does: to `model.safetensors`, or, if they take more than `max_shard_size`
/// bytes, to `model-00001-of-00002.safetensors` and so on with an index.
///
/// The folder is created if necessary. A tensor larger than that has its own file. Each file is written under a
/// temporary name and renamed. Weights of an earlier save that these replace are removed at the end. See also
/// [`write_tensors`].
///
/// # Errors
/// [`ModelError::Io`], [`ModelError::Safetensors`].
pub fn save_tensors(folder: &Path, tensors: &NamedTensors, max_shard_size: usize) -> Result<()> {
    const METADATA: &[(&str, &str)] = &[("format", "pt")];
    fs::create_dir_all(folder).map_err(ModelError::io("make", folder))?;
    let shards = split(tensors, max_shard_size);
    let mut written = BTreeSet::new();
    if let [_] = &*shards {
        write_tensors(&folder.join(SAFETENSORS), tensors, METADATA)?;
        written.insert(SAFETENSORS.to_string());
    } else {
        let mut weight_map = BTreeMap::new();
        for (at, shard) in shards.iter().enumerate() {
            let name = format!("model-{:05}-of-{:05}.safetensors", at + 1, shards.len());
            let tensors = shard.iter().map(|name| (*name, &tensors[*name]));
            write_some(&folder.join(&name), tensors, METADATA)?;
            weight_map.extend(shard.iter().map(|tensor| (tensor.to_string(), name.clone())));
            written.insert(name);
        }
        let n_bytes: usize = tensors.values().map(|data| data.as_bytes().len()).sum();
        let n_parameters: usize = tensors.values().map(|data| data.num_elements()).sum();
        let figures = [("total_parameters", n_parameters), ("total_size", n_bytes)];
        let metadata = figures.map(|(key, value)| (key.to_string(), value.into())).into();
        let json = serde_json::to_string_pretty(&Index { metadata, weight_map })
            .expect("a struct of plain values serialises");
        write_text(&folder.join(SAFETENSORS_INDEX), &(json + "\n"))?;
        written.insert(SAFETENSORS_INDEX.to_string());
    }
    remove_replaced(folder, &written)
}

/// The tensors' names in order, split where a shard would become too large; at least one shard.
fn split(tensors: &NamedTensors, max_shard_size: usize) -> Vec<Vec<&str>> {
    let mut shards = vec![Vec::new()];
    let mut size = 0usize;
    for (name, data) in tensors {
        let n_bytes = data.as_bytes().len();
        let last = shards.last_mut().expect("there is one from the start");
        if !last.is_empty() && size.saturating_add(n_bytes) > max_shard_size {
            shards.push(vec![name.as_str()]);
            size = n_bytes;
        } else {
            last.push(name);
            size += n_bytes;
        }
    }
    shards
}

/// Removes weights of an earlier save that would be read instead of these or beside them.
fn remove_replaced(folder: &Path, written: &BTreeSet<String>) -> Result<()> {
    for entry in fs::read_dir(folder).map_err(ModelError::io("read", folder))? {
        let entry = entry.map_err(ModelError::io("read", folder))?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let is_weights = [SAFETENSORS, SAFETENSORS_INDEX].contains(&&*name) || is_shard(&name);
        if is_weights && !written.contains(&name) {
            match fs::remove_file(entry.path()) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(ModelError::io("remove", &entry.path())(error));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// `model-00001-of-00002.safetensors`.
fn is_shard(name: &str) -> bool {
    let number = |digits: &str| digits.len() == 5 && digits.bytes().all(|digit| digit.is_ascii_digit());
    name.strip_prefix("model-")
        .and_then(|name| name.strip_suffix(".safetensors"))
        .and_then(|name| name.split_once("-of-"))
        .is_some_and(|(at, of)| number(at) && number(of))
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::TensorData;

    fn tensors() -> NamedTensors {
        let tensor = |n: usize| TensorData::new((0..n).map(|i| i as f32).collect::<Vec<_>>(), [n]);
        [("a", 4), ("b", 3), ("c", 20), ("d", 2), ("e", 1)].map(|(name, n)| (name.into(), tensor(n))).into()
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn shards_are_cut_where_they_grow_too_large() {
        let tensors = tensors();
        assert_eq!(split(&tensors, 28), [vec!["a", "b"], vec!["c"], vec!["d", "e"]]);
        assert_eq!(split(&tensors, 120), [vec!["a", "b", "c", "d", "e"]]);
        assert_eq!(split(&tensors, 119), [vec!["a", "b", "c", "d"], vec!["e"]]);
        assert_eq!(split(&tensors, 0).len(), 5);
        assert_eq!(split(&NamedTensors::new(), 0), [Vec::<&str>::new()]);
    }

    #[test]
    fn what_is_saved_in_shards_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path();
        let tensors = tensors();
        save_tensors(folder, &tensors, 28).unwrap();
        let shards = (1..=3).map(|n| format!("model-0000{n}-of-00003.safetensors"));
        assert_eq!(names(folder), shards.chain([SAFETENSORS_INDEX.to_string()]).collect::<Vec<_>>());
        assert_eq!(tensors_of(folder).unwrap().floats, tensors);
        let index: Index = read_json(&folder.join(SAFETENSORS_INDEX), INDEX).unwrap();
        assert_eq!(index.metadata["total_size"], 120);
        assert_eq!(index.weight_map["c"], "model-00002-of-00003.safetensors");

        // One file, other shards, one file again: weights of earlier saves are removed, other files are not.
        fs::write(folder.join("model-card.safetensors"), "").unwrap();
        let mapped = tensors_of(folder).unwrap();
        for (max, n_files) in [(120, 2), (119, 4), (MAX_SHARD_SIZE, 2)] {
            save_tensors(folder, &tensors, max).unwrap();
            assert_eq!(names(folder).len(), n_files, "{:?}", names(folder));
            assert_eq!(tensors_of(folder).unwrap().floats, tensors);
        }
        assert_eq!(mapped.floats, tensors);
    }

    #[test]
    fn names_lose_what_wrappers_added() {
        let dir = tempfile::tempdir().unwrap();
        let tensor = |x: f32| TensorData::new(vec![x], [1]);
        let read = |names: &[(&str, f32)]| {
            let tensors = names.iter().map(|(name, x)| (name.to_string(), tensor(*x))).collect();
            write_tensors(&dir.path().join(SAFETENSORS), &tensors, &[]).unwrap();
            let floats = tensors_of(dir.path()).unwrap().floats;
            floats.iter().map(|(name, x)| (name.clone(), x.iter::<f32>().next().unwrap())).collect::<Vec<_>>()
        };
        let expected = [("a.b".to_string(), 1.0), ("c".to_string(), 2.0)];
        assert_eq!(read(&[("module._orig_mod.a.b", 1.0), ("module._orig_mod.c", 2.0)]), expected);
        let fsdp = [("_fsdp_wrapped_module.a._fsdp_wrapped_module._orig_mod.b", 1.0), ("c", 2.0)];
        assert_eq!(read(&fsdp), expected);
        assert_eq!(read(&[("_orig_mod.a.b", 9.0), ("a.b", 1.0), ("c", 2.0)]), expected);
        // A part of the model may be called so.
        let own = [("c".to_string(), 2.0), ("module.a".to_string(), 1.0)];
        assert_eq!(read(&[("module.a", 1.0), ("c", 2.0)]), own);
    }

    #[test]
    fn an_index_that_does_not_fit_its_folder_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path();
        let message = || tensors_of(folder).unwrap_err().to_string();
        assert!(message().contains("has none of model.safetensors"), "{}", message());

        let index = folder.join(SAFETENSORS_INDEX);
        let one = NamedTensors::from([("x".to_string(), TensorData::new(vec![1f32], [1]))]);
        fs::create_dir(folder.join("sub")).unwrap();
        for place in ["one.safetensors", "sub/one.safetensors"] {
            write_tensors(&folder.join(place), &one, &[]).unwrap();
        }
        let weight_map = |json: &str| fs::write(&index, format!(r#"{{"weight_map": {{{json}}}}}"#)).unwrap();
        weight_map(r#""x": "one.safetensors""#);
        assert_eq!(tensors_of(folder).unwrap().floats, one);
        weight_map(r#""x": "two.safetensors""#);
        assert!(message().ends_with("index.json: shard `two.safetensors` is missing"), "{}", message());
        // transformers reads all of each shard, whatever the index says of it.
        weight_map(r#""x": "one.safetensors", "y": "one.safetensors""#);
        assert_eq!(tensors_of(folder).unwrap().floats, one);
        let other = NamedTensors::from([
            ("x".to_string(), TensorData::new(vec![2f32], [1])),
            ("y".to_string(), TensorData::new(vec![3f32], [1])),
        ]);
        write_tensors(&folder.join("two.safetensors"), &other, &[]).unwrap();
        for (json, x) in [
            (r#""x": "one.safetensors", "y": "two.safetensors""#, 1.0),
            (r#""x": "two.safetensors", "y": "one.safetensors""#, 2.0),
        ] {
            weight_map(json);
            let found = tensors_of(folder).unwrap().floats;
            assert_eq!(
                (found["x"].clone(), found.len()),
                (TensorData::new(vec![x as f32], [1]), 2),
                "{json}"
            );
        }
        fs::remove_file(folder.join("two.safetensors")).unwrap();
        let outside = ["../one.safetensors", "sub/one.safetensors", "sub/../one.safetensors", "..", ".", ""];
        for place in outside.into_iter().chain([&*format!("{}/one.safetensors", folder.display())]) {
            weight_map(&format!(r#""x": "{place}""#));
            assert!(message().ends_with("is not a file of this folder"), "{place}: {}", message());
        }
        fs::write(&index, r#"{"metadata": {}}"#).unwrap();
        let expected = "index.json: cannot be read as an index of shards, with a `weight_map` of tensors and their files: \
                        missing field `weight_map`";
        assert!(message().contains(expected), "{}", message());
        fs::remove_file(&index).unwrap();
        let ids = safetensors::tensor::TensorView::new(safetensors::Dtype::I64, vec![1], &[0; 8]).unwrap();
        fs::write(folder.join(SAFETENSORS), safetensors::serialize([("ids", ids)], None).unwrap()).unwrap();
        let expected =
            "model.safetensors: has no tensor of floating-point numbers, expected a model's weights";
        assert!(message().ends_with(expected), "{}", message());
    }

    #[test]
    fn a_file_that_cannot_be_written_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        // A folder in the file's place: the file is written, but cannot be renamed.
        fs::create_dir_all(dir.path().join(SAFETENSORS).join("x")).unwrap();
        let message = save_tensors(dir.path(), &tensors(), MAX_SHARD_SIZE).unwrap_err().to_string();
        assert!(message.starts_with("cannot write ") && message.contains("model.safetensors: "), "{message}");
        assert_eq!(names(dir.path()), [SAFETENSORS]);
        let message = tensors_of(&dir.path().join("absent")).unwrap_err().to_string();
        assert!(message.contains("has none of"), "{message}");
    }
}
