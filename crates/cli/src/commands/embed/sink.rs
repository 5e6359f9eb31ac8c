//! Where vectors are written.

use anyhow::Result;
use cloze_trainer::embed::{VectorRanges, VectorType};
use serde::Serialize;

use super::{Args, Format};
use crate::answers::Answers;
use crate::input::{Input, Row};
use crate::npy::{Element, Npy};

/// Writes vectors in the format and the type that are asked for.
pub struct Sink {
    to: To,
    width: usize,
    quantized: Option<VectorType>,
    ranges: Option<VectorRanges>,
}

enum To {
    Rows(Answers),
    Npy(Npy),
}

#[derive(Serialize)]
struct Object<T> {
    embedding: T,
}

impl Sink {
    /// Opens the output of vectors of `width` features for the rows of an input.
    pub fn new(args: &Args, input: &Input, width: usize, ranges: Option<VectorRanges>) -> Result<Self> {
        let quantized = args.vectors.quantized();
        let to = match args.format() {
            Format::Jsonl => To::Rows(Answers::new(&args.answers, input, vec!["embedding"])?),
            Format::Npy => {
                let element = match quantized.map(VectorType::is_signed) {
                    None => Element::F32,
                    Some(true) => Element::I8,
                    Some(false) => Element::U8,
                };
                To::Npy(Npy::new(element, "embeddings", args.answers.output(input)?)?)
            }
        };
        Ok(Self { to, width, quantized, ranges })
    }

    /// Writes the vectors of rows, one after another.
    pub fn write(&mut self, rows: &[Row], values: &[f32]) -> Result<()> {
        for (row, vector) in rows.iter().zip(values.chunks_exact(self.width)) {
            match self.quantized {
                None => self.floats(row, vector)?,
                Some(kind) => {
                    let bytes = kind.quantize(vector, self.ranges.as_ref());
                    self.integers(row, kind, &bytes)?;
                }
            }
        }
        self.flush()
    }

    fn floats(&mut self, row: &Row, values: &[f32]) -> Result<()> {
        match &mut self.to {
            To::Rows(answers) => answers.write(row, &Object { embedding: values }),
            To::Npy(array) => {
                let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
                array.append(&bytes)
            }
        }
    }

    /// Writes a vector of bytes, which may have a sign.
    fn integers(&mut self, row: &Row, kind: VectorType, bytes: &[u8]) -> Result<()> {
        let number = |byte: &u8| if kind.is_signed() { i16::from(*byte as i8) } else { i16::from(*byte) };
        match &mut self.to {
            To::Rows(answers) => {
                answers.write(row, &Object { embedding: bytes.iter().map(number).collect::<Vec<_>>() })
            }
            To::Npy(array) => array.append(bytes),
        }
    }

    /// Flushes what has been written so far.
    fn flush(&mut self) -> Result<()> {
        match &mut self.to {
            To::Rows(answers) => answers.flush(),
            To::Npy(_) => Ok(()),
        }
    }

    /// Finishes the output.
    pub fn finish(self) -> Result<()> {
        match self.to {
            To::Rows(answers) => answers.finish(),
            To::Npy(array) => {
                array.finish(Some(self.quantized.map_or(self.width, |kind| kind.n_bytes(self.width))))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_json_with_as_many_digits_as_needed() {
        let line = serde_json::to_string(&Object { embedding: [0.1f32, -2.0, 1e-9] }).unwrap();
        assert_eq!(line, r#"{"embedding":[0.1,-2.0,1e-9]}"#);
    }
}
