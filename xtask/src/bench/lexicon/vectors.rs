//! Files of vectors: what `cloze lexicon build` writes, and means of several.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// Vectors as they lie in a `.npy` file: its header, and the numbers after it.
#[derive(Debug, Clone, PartialEq)]
pub struct Vectors {
    header: Vec<u8>,
    numbers: Vec<f32>,
}

impl Vectors {
    pub fn read(path: &Path) -> Result<Self> {
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&bytes).with_context(|| format!("{} is no .npy file of 32-bit floats", path.display()))
    }

    /// Version 1 of the format: a magic number, the header's length in two bytes, the header, the numbers.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let length = bytes.strip_prefix(b"\x93NUMPY\x01\x00")?.first_chunk::<2>()?;
        let (header, rest) = bytes.split_at_checked(10 + usize::from(u16::from_le_bytes(*length)))?;
        let is_f32 = String::from_utf8_lossy(header).contains("'<f4'");
        let (numbers, left) = rest.as_chunks::<4>();
        let numbers = numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        (is_f32 && left.is_empty()).then(|| Self { header: header.to_vec(), numbers })
    }

    pub fn write(&self, path: &Path) -> Result<()> {
        let numbers = self.numbers.iter().flat_map(|number| number.to_le_bytes());
        let bytes: Vec<u8> = self.header.iter().copied().chain(numbers).collect();
        fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
    }

    /// The mean, number by number. A word's vector is a mean over layers, so this is the vector of several layers.
    pub fn mean(all: &[Self]) -> Result<Self> {
        let [first, rest @ ..] = all else { bail!("no vectors") };
        if rest.iter().any(|other| other.header != first.header) {
            bail!("vectors of different shapes");
        }
        let of = |i: usize| all.iter().map(|one| f64::from(one.numbers[i])).sum::<f64>() / all.len() as f64;
        let numbers = (0..first.numbers.len()).map(|i| of(i) as f32).collect();
        Ok(Self { header: first.header.clone(), numbers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(shape: &str, numbers: &[f32]) -> Vec<u8> {
        let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n");
        let length = (header.len() as u16).to_le_bytes();
        let numbers: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), &numbers].concat()
    }

    #[test]
    fn a_mean_is_one_of_each_number_and_keeps_the_shape() {
        let of = |numbers: &[f32]| Vectors::parse(&file("(2, 1)", numbers)).unwrap();
        let mean = Vectors::mean(&[of(&[1.0, 4.0]), of(&[2.0, 5.0]), of(&[6.0, 3.0])]).unwrap();
        assert_eq!(mean, of(&[3.0, 4.0]));
        let path = std::env::temp_dir().join(format!("cloze-vectors-{}.npy", std::process::id()));
        mean.write(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), file("(2, 1)", &[3.0, 4.0]));
        assert_eq!(Vectors::read(&path).unwrap(), mean);
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn other_files_are_refused() {
        let one = Vectors::parse(&file("(1, 2)", &[1.0, 2.0])).unwrap();
        let other = Vectors::parse(&file("(2, 1)", &[1.0, 2.0])).unwrap();
        assert!(Vectors::mean(&[one, other]).is_err());
        assert!(Vectors::mean(&[]).is_err());
        let whole = file("(1, 1)", &[1.0]);
        for bytes in [&whole[..whole.len() - 1], &whole[..20], b"PK\x03\x04", b""] {
            assert_eq!(Vectors::parse(bytes), None);
        }
        let doubles = String::from_utf8_lossy(&whole[10..]).replace("<f4", "<f8").into_bytes();
        assert_eq!(Vectors::parse(&[&whole[..10], &doubles].concat()), None);
    }
}
