//! Sense vectors on disk: a folder with `senses.json` and `senses.safetensors`.

use super::vectors::{SenseModel, SenseOrigin, SenseVectors};
use crate::engine::run_folder::write_folder_atomic;
use crate::{Result, TrainerError};
use burn::tensor::TensorData;
use cloze_data::file_checksum;
use cloze_evaluation::senses::{CountedSense, PartOfSpeech, SenseCounter};
use cloze_model::huggingface::{read_tensors, write_tensors};
use cloze_model::weights::NamedTensors;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

/// The file that describes the vectors.
pub const SENSES_FILE: &str = "senses.json";
/// The file with the vectors.
pub const VECTORS_FILE: &str = "senses.safetensors";

const FORMAT: &str = "cloze-senses";
const VERSION: u32 = 1;
const TENSOR: &str = "senses";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Saved {
    format: String,
    version: u32,
    model: SenseModel,
    learnt_from: SenseOrigin,
    vectors: String,
    words: Vec<SavedWord>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedWord {
    lemma: String,
    pos: PartOfSpeech,
    senses: Vec<(String, u64)>,
}

impl SenseVectors {
    /// Writes a folder atomically, replacing an existing one.
    ///
    /// `senses.json` is an object with
    ///
    /// - `format`: `"cloze-senses"`, and `version`: 1;
    /// - `model`: its `name`, the `hash` of its files, `layers` and `width`;
    /// - `learnt_from`: the file's `checksum`, the fraction `held_out`, and the number of `sentences` and
    ///   `words`;
    /// - `vectors`: the BLAKE3 hash of `senses.safetensors`;
    /// - `words`: a list of `{"lemma": …, "pos": …, "senses": [[sense, count], …]}`, by part of speech (n, v, a, r) and lemma, the
    ///   most frequent sense first.
    ///
    /// `senses.safetensors` has one tensor, `senses`: `[senses, width]` in FP32, a row for each sense in the
    /// order of `words`. A row of zeros is a sense without a vector.
    ///
    /// # Errors
    /// [`TrainerError::Io`].
    pub fn save(&self, folder: &Path) -> Result<()> {
        let word = |(lemma, pos, senses): (&str, PartOfSpeech, &[CountedSense])| SavedWord {
            lemma: lemma.to_owned(),
            pos,
            senses: senses.iter().map(|sense| (sense.sense.clone(), sense.count)).collect(),
        };
        let words = self.inventory.iter().map(word).collect();
        let shape = [self.inventory.n_senses(), self.model.width];
        let tensors = NamedTensors::from([(TENSOR.to_owned(), TensorData::new(self.values.clone(), shape))]);
        write_folder_atomic(folder, |folder| {
            let vectors = folder.join(VECTORS_FILE);
            write_tensors(&vectors, &tensors, &[("format", FORMAT)])?;
            let saved = Saved {
                format: FORMAT.into(),
                version: VERSION,
                model: self.model.clone(),
                learnt_from: self.origin.clone(),
                vectors: file_checksum(&vectors)?,
                words,
            };
            let path = folder.join(SENSES_FILE);
            let json = serde_json::to_string(&saved).expect("names and numbers are JSON");
            fs::write(&path, json + "\n").map_err(TrainerError::io("write", &path))
        })
    }

    /// Reads a folder.
    ///
    /// # Errors
    /// [`TrainerError::Io`]; [`TrainerError::BadSenses`] for files that are malformed or changed, of another
    /// version, or with a non-finite number.
    pub fn load(folder: &Path) -> Result<Self> {
        let path = folder.join(SENSES_FILE);
        let bad = |reason: String| TrainerError::BadSenses { path: path.clone(), reason };
        let json = fs::read(&path).map_err(TrainerError::io("read", &path))?;
        let saved: Saved =
            serde_json::from_slice(&json).map_err(|error| bad(format!("it is malformed ({error})")))?;
        if saved.format != FORMAT || saved.version != VERSION {
            let found = format!("it is {} of version {}", saved.format, saved.version);
            return Err(bad(format!("{found}; expected {FORMAT} of version {VERSION}")));
        }
        let share = saved.learnt_from.held_out;
        if saved.model.width == 0 || !(0.0..1.0).contains(&share) {
            return Err(bad("its `width` or `held_out` is out of range".into()));
        }
        let mut counter = SenseCounter::default();
        for SavedWord { lemma, pos, senses } in &saved.words {
            senses.iter().for_each(|(sense, count)| counter.add_many(lemma, *pos, sense, *count));
        }
        let inventory = counter.finish();
        let listed = saved.words.iter().flat_map(|word| {
            word.senses.iter().map(|(sense, _)| (word.lemma.as_str(), word.pos, sense.as_str()))
        });
        let numbered = inventory.iter().flat_map(|(lemma, pos, senses)| {
            senses.iter().map(move |sense| (lemma, pos, sense.sense.as_str()))
        });
        if !listed.eq(numbered) {
            return Err(bad("its `words` are out of order or have duplicates".into()));
        }
        let values =
            vectors(&folder.join(VECTORS_FILE), &saved.vectors, inventory.n_senses(), saved.model.width)?;
        Ok(Self { model: saved.model, origin: saved.learnt_from, inventory, values })
    }
}

fn vectors(path: &Path, checksum: &str, n_senses: usize, width: usize) -> Result<Vec<f32>> {
    let bad = |reason: String| TrainerError::BadSenses { path: path.to_owned(), reason };
    if file_checksum(path)? != checksum {
        return Err(bad(format!("it is not the file that {SENSES_FILE} was written with")));
    }
    let mut tensors = read_tensors(path)?;
    let data = tensors.remove(TENSOR).ok_or_else(|| bad(format!("it has no tensor `{TENSOR}`")))?;
    let shape = data.shape().to_vec();
    if shape != [n_senses, width] {
        return Err(bad(format!("`{TENSOR}` has the shape {shape:?}; expected {:?}", [n_senses, width])));
    }
    let values = data.try_into_vec::<f32>().map_err(|_| bad(format!("`{TENSOR}` is not FP32")))?;
    match values.iter().all(|value| value.is_finite()) {
        true => Ok(values),
        false => Err(bad(format!("`{TENSOR}` has a NaN or an infinity; expected finite numbers"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(values: Vec<f32>) -> SenseVectors {
        let mut counter = SenseCounter::default();
        counter.add("sea", PartOfSpeech::Noun, "wn30-00000002-n");
        counter.add("sea", PartOfSpeech::Noun, "wn30-00000001-n");
        counter.add("sea", PartOfSpeech::Noun, "wn30-00000001-n");
        counter.add("run", PartOfSpeech::Verb, "wn30-00000003-v");
        SenseVectors {
            model: SenseModel { name: "m".into(), hash: "00".into(), layers: "last".into(), width: 2 },
            origin: SenseOrigin { checksum: "x".into(), held_out: 0.1, sentences: 3, words: 4 },
            inventory: counter.finish(),
            values,
        }
    }

    #[test]
    fn what_is_saved_is_loaded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("senses");
        let vectors = sample(vec![1.0, -0.5, 0.1, 1e-9, 0.0, 0.0]);
        vectors.save(&path).unwrap();
        assert_eq!(SenseVectors::load(&path).unwrap(), vectors);
        // It is replaced, and nothing is left beside it.
        let other = sample(vec![2.0; 6]);
        other.save(&path).unwrap();
        assert_eq!(SenseVectors::load(&path).unwrap(), other);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn damaged_files_are_one_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("senses");
        let vectors = sample(vec![1.0; 6]);
        vectors.save(&path).unwrap();
        let (json, tensors) = (path.join(SENSES_FILE), path.join(VECTORS_FILE));
        let (good_json, good_tensors) = (fs::read_to_string(&json).unwrap(), fs::read(&tensors).unwrap());
        let message = || SenseVectors::load(&path).unwrap_err().to_string();
        // The second sense has become the most frequent one.
        let other_order = good_json.replacen("[\"wn30-00000002-n\",1]", "[\"wn30-00000002-n\",9]", 1);
        for (damaged, expected) in [
            (good_json[..good_json.len() / 2].to_owned(), "it is malformed"),
            (
                good_json.replace("\"version\":1", "\"version\":2"),
                "it is cloze-senses of version 2; expected",
            ),
            (good_json.replace("\"held_out\":0.1", "\"held_out\":1.5"), "is out of range"),
            (other_order, "its `words` are out of order"),
            (good_json.replace("\"lemma\":\"sea\"", "\"lemma\":1"), "it is malformed"),
            ("[]".to_owned(), "it is malformed"),
        ] {
            fs::write(&json, damaged).unwrap();
            let message = message();
            assert!(message.contains(expected) && message.contains("cloze senses train"), "{message}");
        }
        fs::write(&json, &good_json).unwrap();
        let mut bytes = good_tensors.clone();
        *bytes.last_mut().unwrap() ^= 1;
        for damaged in [bytes, good_tensors[..good_tensors.len() - 3].to_vec(), Vec::new()] {
            fs::write(&tensors, damaged).unwrap();
            assert!(
                message().contains("it is not the file that senses.json was written with"),
                "{}",
                message()
            );
        }
        fs::remove_file(&tensors).unwrap();
        assert!(message().contains(VECTORS_FILE), "{}", message());
        fs::remove_file(&json).unwrap();
        assert!(message().contains(SENSES_FILE), "{}", message());

        // A file that agrees with its checksum, but has no finite numbers or others than are named.
        let mut damaged = sample(vec![f32::NAN; 6]);
        damaged.save(&path).unwrap();
        assert!(message().contains("`senses` has a NaN or an infinity"), "{}", message());
        damaged.values = vec![1.0; 6];
        damaged.save(&path).unwrap();
        let wider = fs::read_to_string(&json).unwrap().replace("\"width\":2", "\"width\":3");
        fs::write(&json, wider).unwrap();
        assert!(message().contains("has the shape [3, 2]; expected [3, 3]"), "{}", message());
    }
}
