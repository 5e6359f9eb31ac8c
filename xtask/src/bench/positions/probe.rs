//! What a model's positions look like: its own vectors or biases, and its attention between identical words.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::shape::{Proximity, Shape};
use crate::bench::measure;
use crate::bench::pretrained::Bench;

/// Sentences of identical words; the paper has 300.
const WORDS: usize = 32;

/// What is found out of a model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Probed {
    /// Of the products of its position vectors, or of what its positions add to the scores of the first layer.
    pub own: Option<Shape>,
    /// Of the first layer's attention from each word to each other.
    pub attention: Shape,
}

/// Looks at sentences of one word that is repeated until they have `length` tokens, special ones included: all differences
/// between their tokens are of positions. Means over words and over the heads of the first layer, as in Wang et al. 2021.
pub fn probe(bench: &Bench, model: &Path, length: usize, scratch: &Path) -> Result<Probed> {
    let words = words(&json(&model.join("tokenizer.json"))?)?;
    let (mut attention, mut added) = (Vec::new(), Vec::new());
    for word in &words {
        let text = vec![word.as_str(); length - 2].join(" ");
        let mut command = bench.cloze(&["inspect", "--no-explanations", "--neurons=true", "--layers", "0"]);
        command.arg("--model").arg(model).arg("--json").arg(scratch).arg(&text);
        measure::output(&mut command)?;
        let seen = json(scratch)?;
        let heads = seen["attention"][0]["layers"][0]["heads"].as_array().context("no attention is seen")?;
        for head in heads {
            attention.push(square(&head["shares"], length)?.within());
            let positions = &head["neurons"]["positions"];
            if !positions.is_null() {
                added.push(square(positions, length)?.within());
            }
        }
    }
    if scratch.exists() {
        fs::remove_file(scratch).with_context(|| format!("cannot remove {}", scratch.display()))?;
    }
    let own = match vectors(model, length)? {
        Some(vectors) => Some(Proximity::of_vectors(&vectors)),
        None => Proximity::mean(&added),
    };
    let attention = Proximity::mean(&attention).context("no attention is seen")?;
    Ok(Probed { own: own.map(|own| own.shape()), attention: attention.shape() })
}

fn json(path: &Path) -> Result<Value> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is no JSON", path.display()))
}

fn square(values: &Value, n: usize) -> Result<Proximity> {
    let values = values.as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
    Proximity::new(n, values).with_context(|| format!("expected the attention of {n} tokens"))
}

/// Words that are one piece each, from all over the vocabulary.
fn words(tokenizer: &Value) -> Result<Vec<String>> {
    let vocabulary = tokenizer["model"]["vocab"].as_object().context("the tokenizer has no vocabulary")?;
    let is_word = |piece: &str| piece.len() > 2 && piece.bytes().all(|byte| byte.is_ascii_lowercase());
    let mut words: Vec<(&String, Option<u64>)> = vocabulary
        .iter()
        .filter(|(piece, _)| is_word(piece))
        .map(|(piece, id)| (piece, id.as_u64()))
        .collect();
    words.sort_by_key(|(_, id)| *id);
    if words.len() < WORDS {
        bail!("the vocabulary has {} words of lower-case letters; expected {WORDS} at least", words.len());
    }
    Ok((0..WORDS).map(|at| words[at * words.len() / WORDS].0.clone()).collect())
}

/// The vectors that a model adds to its first positions, if it adds any.
fn vectors(model: &Path, n: usize) -> Result<Option<Vec<Vec<f64>>>> {
    let config = json(&model.join("config.json"))?;
    // A model of transformers' class has no such key.
    match config["positions"]["kind"].as_str().unwrap_or("learned") {
        "learned" => {
            let path = model.join("model.safetensors");
            let file = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let rows =
                rows(&file, "position_embeddings.weight").and_then(|rows| Some(rows.get(..n)?.to_vec()));
            rows.map(Some).with_context(|| format!("{} has no vectors of {n} positions", path.display()))
        }
        "sinusoidal" => {
            let width = config["hidden_size"].as_u64().context("config.json has no hidden_size")?;
            Ok(Some((0..n).map(|position| sinusoid(position, width as usize)).collect()))
        }
        _ => Ok(None),
    }
}

/// A position's sines and cosines (Vaswani et al. 2017, §3.5).
fn sinusoid(position: usize, width: usize) -> Vec<f64> {
    let angle = |pair: usize| position as f64 / 10_000f64.powf(2.0 * pair as f64 / width as f64);
    (0..width / 2).flat_map(|pair| [angle(pair).sin(), angle(pair).cos()]).collect()
}

/// The rows of the table of 32-bit floats whose name ends so, in a file of safetensors: eight bytes of length, a JSON
/// header, the tensors' bytes.
fn rows(file: &[u8], end: &str) -> Option<Vec<Vec<f64>>> {
    let length = usize::try_from(u64::from_le_bytes(*file.first_chunk::<8>()?)).ok()?;
    let (header, data) = file.get(8..)?.split_at_checked(length)?;
    let header: Value = serde_json::from_slice(header).ok()?;
    let tensor = header.as_object()?.iter().find(|(name, _)| name.ends_with(end))?.1;
    let number = |value: &Value| usize::try_from(value.as_u64()?).ok();
    let width = number(&tensor["shape"][1]).filter(|width| *width > 0 && tensor["dtype"] == "F32")?;
    let offsets = &tensor["data_offsets"];
    let data = data.get(number(&offsets[0])?..number(&offsets[1])?)?;
    let floats: Vec<f64> =
        data.as_chunks::<4>().0.iter().map(|bytes| f64::from(f32::from_le_bytes(*bytes))).collect();
    Some(floats.chunks(width).map(<[f64]>::to_vec).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_table_is_read_from_its_file() {
        let header = r#"{"__metadata__":{},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b.weight":{"dtype":"F32","shape":[2,2],"data_offsets":[4,20]}}"#;
        let floats = [9f32, 1.0, 2.0, 3.0, -4.5];
        let data: Vec<u8> = floats.iter().flat_map(|float| float.to_le_bytes()).collect();
        let file = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat();
        assert_eq!(rows(&file, "b.weight").unwrap(), [[1.0, 2.0], [3.0, -4.5]]);
        assert_eq!(rows(&file, "c.weight"), None);
        assert_eq!(rows(&file[..40], "b.weight"), None);
        assert_eq!(rows(b"short", "b.weight"), None);
    }

    #[test]
    fn words_are_whole_pieces_of_all_frequencies() {
        let name =
            |i: u64| format!("w{}{}", (b'a' + (i / 26) as u8) as char, (b'a' + (i % 26) as u8) as char);
        let mut pieces: serde_json::Map<String, Value> = (0..64).map(|i| (name(i), json!(i + 5))).collect();
        pieces.extend([("[CLS]".into(), json!(2)), ("##ing".into(), json!(3)), ("of".into(), json!(4))]);
        let found = words(&json!({ "model": { "vocab": pieces } })).unwrap();
        let expected: Vec<String> = (0..WORDS as u64).map(|i| name(2 * i)).collect();
        assert_eq!(found, expected);
        assert!(words(&json!({ "model": { "vocab": { "the": 1 } } })).is_err());
    }

    #[test]
    fn sinusoids_are_sines_and_cosines() {
        assert_eq!(sinusoid(0, 4), [0.0, 1.0, 0.0, 1.0]);
        let found = sinusoid(3, 4);
        for (found, expected) in found.iter().zip([3f64.sin(), 3f64.cos(), 0.03f64.sin(), 0.03f64.cos()]) {
            assert!((found - expected).abs() < 1e-12);
        }
    }

    #[test]
    fn a_square_is_of_all_pairs() {
        assert!(square(&json!([0.5, 0.5, 0.25, 0.75]), 2).is_ok());
        assert!(square(&json!([0.5, 0.5]), 2).is_err());
    }
}
