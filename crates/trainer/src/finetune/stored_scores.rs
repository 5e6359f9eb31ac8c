//! A teacher's scores of all training examples, computed once and kept on disk.

use super::evaluate::in_batches;
use super::task::{ScoreRows, Task};
use crate::engine::Advance;
use crate::{Result, TrainerError};
use burn::tensor::{Device, Tensor, TensorData};
use cloze_files::write_atomic;
use cloze_model::distillation::ABSENT;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// The first bytes of a file, with its version.
const MAGIC: &[u8; 16] = b"cloze teacher 1\n";
/// Bytes of the BLAKE3 hash at the end of a file.
const HASH: usize = 32;

/// Rows of scores, by example.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct StoredScores {
    /// The tensors of rows that a batch has.
    n_tensors: usize,
    /// The rows and columns of each tensor of each example, and where its values begin.
    places: Vec<([usize; 2], usize)>,
    values: Vec<f32>,
}

/// An example's rows of one tensor.
struct ExampleRows {
    shape: [usize; 2],
    values: Vec<f32>,
}

impl StoredScores {
    /// A model's scores. Batches have about `batch_tokens` tokens.
    pub fn compute<T: Task>(
        task: &T,
        model: &T::Model,
        features: &[T::Features],
        batch_tokens: usize,
        device: &Device,
        progress: &mut dyn FnMut(Advance),
    ) -> Self {
        let features: Vec<&T::Features> = features.iter().collect();
        let work = |batch: &[&T::Features]| {
            let rows = task.scores(model, batch, device).rows();
            let tensors: Vec<([usize; 2], Vec<f32>)> = rows
                .into_iter()
                .map(|rows| (rows.dims(), rows.into_data().iter::<f32>().collect()))
                .collect();
            let mut row = 0;
            let of = |features: &&T::Features| {
                let first = row;
                row += task.n_rows(&[*features]);
                let n = row - first;
                tensors
                    .iter()
                    .map(|([_, width], values)| part(&values[first * width..row * width], n))
                    .collect()
            };
            batch.iter().map(of).collect()
        };
        let examples: Vec<Vec<ExampleRows>> = in_batches(&features, batch_tokens, work, progress);
        let mut stored = Self { n_tensors: examples.first().map_or(0, Vec::len), ..Self::default() };
        for ExampleRows { shape, values } in examples.into_iter().flatten() {
            stored.places.push((shape, stored.values.len()));
            stored.values.extend(values);
        }
        stored
    }

    /// The rows of these examples, each tensor of its width; shorter rows end with [`ABSENT`].
    ///
    /// # Panics
    /// If a row is longer.
    pub fn rows(&self, examples: &[usize], widths: &[usize], device: &Device) -> Vec<Tensor<2>> {
        let tensor = |(tensor, width): (usize, &usize)| {
            let places: Vec<_> =
                examples.iter().map(|at| self.places[at * self.n_tensors + tensor]).collect();
            let mut values = Vec::new();
            for ([n, own], from) in &places {
                for row in 0..*n {
                    let start = from + row * own;
                    values.extend_from_slice(&self.values[start..start + own]);
                    values.resize(values.len() + width - own, ABSENT);
                }
            }
            let n_rows = places.iter().map(|([n, _], _)| n).sum();
            Tensor::from_data(TensorData::new(values, [n_rows, *width]), device)
        };
        widths.iter().enumerate().map(tensor).collect()
    }

    /// Reads a file; none if there is none, or if it is damaged.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        match fs::read(path) {
            Ok(bytes) => Ok(Self::from_bytes(&bytes)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(TrainerError::io("read", path)(error)),
        }
    }

    /// Writes a file.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(TrainerError::io("create", folder))?;
        }
        let numbers = [self.n_tensors, self.places.len()].into_iter();
        let shapes = self.places.iter().flat_map(|(shape, _)| *shape);
        let mut bytes = MAGIC.to_vec();
        bytes.extend(numbers.chain(shapes).flat_map(|number| (number as u64).to_le_bytes()));
        bytes.extend(self.values.iter().flat_map(|value| value.to_le_bytes()));
        let hash = blake3::hash(&bytes);
        bytes.extend(hash.as_bytes());
        Ok(write_atomic(path, &bytes)?)
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (content, hash) = bytes.split_at_checked(bytes.len().checked_sub(HASH)?)?;
        if blake3::hash(content).as_bytes() != hash {
            return None;
        }
        let mut rest = content.strip_prefix(MAGIC)?;
        let mut number = || {
            let (number, after) = rest.split_first_chunk::<8>()?;
            rest = after;
            usize::try_from(u64::from_le_bytes(*number)).ok()
        };
        let (n_tensors, n_places) = (number()?, number()?);
        let mut from = 0;
        let mut places = Vec::new();
        for _ in 0..n_places {
            let shape = [number()?, number()?];
            places.push((shape, from));
            from += shape[0].checked_mul(shape[1])?;
        }
        let (values, []) = rest.as_chunks::<4>() else { return None };
        let values: Vec<f32> = values.iter().map(|value| f32::from_le_bytes(*value)).collect();
        (values.len() == from).then_some(Self { n_tensors, places, values })
    }

    /// The number of examples.
    pub fn len(&self) -> usize {
        self.places.len() / self.n_tensors.max(1)
    }
}

/// `n` rows without their last columns, where none has a value.
fn part(values: &[f32], n: usize) -> ExampleRows {
    let width = values.len() / n.max(1);
    let has_value = |column: &usize| (0..n).any(|row| values[row * width + column] > ABSENT);
    let kept = (0..width).rev().find(has_value).map_or(0, |column| column + 1);
    let values = values.chunks(width.max(1)).flat_map(|row| &row[..kept.min(row.len())]).copied().collect();
    ExampleRows { shape: [n, kept], values }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored() -> StoredScores {
        let rows = [part(&[1.0, 2.0, f32::NEG_INFINITY], 1), part(&[3.0, 4.0, 5.0, 6.0, 7.0, 8.0], 2)];
        let mut stored = StoredScores { n_tensors: 1, ..StoredScores::default() };
        for ExampleRows { shape, values } in rows {
            stored.places.push((shape, stored.values.len()));
            stored.values.extend(values);
        }
        stored
    }

    #[test]
    fn rows_come_back_in_any_order() {
        let rows = stored().rows(&[1, 0], &[4], &Device::flex());
        let values: Vec<f32> = rows[0].clone().into_data().iter::<f32>().collect();
        assert_eq!(rows[0].dims(), [3, 4]);
        assert_eq!(values, [3.0, 4.0, 5.0, ABSENT, 6.0, 7.0, 8.0, ABSENT, 1.0, 2.0, ABSENT, ABSENT]);
        assert_eq!(stored().rows(&[0], &[2], &Device::flex())[0].dims(), [1, 2]);
    }

    #[test]
    fn a_file_is_read_back_or_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cache/teacher");
        assert_eq!(StoredScores::read(&path).unwrap(), None);
        stored().write(&path).unwrap();
        assert_eq!(StoredScores::read(&path).unwrap(), Some(stored()));
        let bytes = fs::read(&path).unwrap();
        for damaged in
            [&bytes[..bytes.len() - 1], &bytes[..10], &[], &[&bytes[..40], &[1], &bytes[41..]].concat()]
        {
            fs::write(&path, damaged).unwrap();
            assert_eq!(StoredScores::read(&path).unwrap(), None);
        }
    }
}
