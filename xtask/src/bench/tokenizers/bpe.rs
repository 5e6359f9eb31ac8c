//! Byte-pair encoders that are made of another: without some of its pieces.

use std::collections::HashSet;

use anyhow::{Context, Result};
use serde_json::Value;

/// A `tokenizer.json` with a model of byte-pair encoding.
#[derive(Debug, Clone, PartialEq)]
pub struct Bpe {
    file: Value,
    /// Pieces by their ids; there may be gaps.
    pieces: Vec<Option<String>>,
    /// In the order in which they apply.
    merges: Vec<[String; 2]>,
}

impl Bpe {
    pub fn read(text: &str) -> Result<Self> {
        let file: Value = serde_json::from_str(text).context("a tokenizer that is no JSON")?;
        let vocabulary = file["model"]["vocab"].as_object().context("the tokenizer has no vocabulary")?;
        let mut pieces = Vec::new();
        for (piece, id) in vocabulary {
            let id =
                id.as_u64().and_then(|id| usize::try_from(id).ok()).context("an id that is no number")?;
            pieces.resize(pieces.len().max(id + 1), None);
            pieces[id] = Some(piece.clone());
        }
        let merges =
            serde_json::from_value(file["model"]["merges"].clone()).context("merges that are no pairs")?;
        Ok(Self { file, pieces, merges })
    }

    /// Ids that pieces have, and one more than the last.
    pub fn size(&self) -> usize {
        self.pieces.len()
    }

    pub fn piece(&self, id: usize) -> Option<&str> {
        self.pieces.get(id)?.as_deref()
    }

    /// All pieces that a merge makes.
    pub fn made(&self) -> HashSet<String> {
        self.merges.iter().map(|pair| pair.concat()).collect()
    }

    /// The pieces that a merge makes and no merge uses. Without such a merge, a text that had the piece has the two that it
    /// was made of instead, and other pieces can still be made.
    pub fn ends(&self) -> HashSet<String> {
        let used: HashSet<&String> = self.merges.iter().flatten().collect();
        self.made().into_iter().filter(|piece| !used.contains(piece)).collect()
    }

    /// The same without these pieces and without the merges that make them. Their ids stay, as pieces that occur in no
    /// text, so that a model of the tokenizer has as many weights.
    pub fn without(&self, dropped: &HashSet<String>) -> Self {
        let mut other = self.clone();
        other.merges.retain(|pair| !dropped.contains(&pair.concat()));
        for (id, piece) in other.pieces.iter_mut().enumerate() {
            if piece.as_ref().is_some_and(|piece| dropped.contains(piece)) {
                *piece = Some(unused(id));
            }
        }
        other
    }

    /// The same with as many pieces that occur in no text as make it `size` large.
    pub fn filled(&self, size: usize) -> Self {
        let mut other = self.clone();
        other.pieces.extend((other.pieces.len()..size).map(|id| Some(unused(id))));
        other
    }

    /// As a `tokenizer.json`.
    pub fn text(&self) -> Result<String> {
        let mut file = self.file.clone();
        let pieces =
            self.pieces.iter().enumerate().filter_map(|(id, piece)| Some((piece.clone()?, id.into())));
        file["model"]["vocab"] = Value::Object(pieces.collect());
        file["model"]["merges"] = serde_json::to_value(&self.merges)?;
        Ok(serde_json::to_string(&file)?)
    }
}

/// A byte-level piece never has such a name: a text's own brackets are other pieces.
fn unused(id: usize) -> String {
    format!("<unused {id}>")
}

/// RANDOM-DROP (Cognetta et al. 2024, §4): `k` of the first `n` of `pieces`, which are given by frequency. Always the same
/// ones for a seed.
pub fn drawn(pieces: &[String], n: usize, k: usize, seed: u64) -> HashSet<String> {
    let order = |piece: &String| {
        let mut hasher = blake3::Hasher::new();
        *hasher.update(&seed.to_le_bytes()).update(piece.as_bytes()).finalize().as_bytes()
    };
    let mut first: Vec<&String> = pieces.iter().take(n).collect();
    first.sort_by_cached_key(|piece| order(piece));
    first.into_iter().take(k).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The pieces t, h, e, r, th, the, er, there and a special one.
    fn bpe() -> Bpe {
        let pieces = ["<s>", "t", "h", "e", "r", "th", "the", "er", "ther"];
        let vocabulary: serde_json::Map<String, Value> =
            pieces.iter().enumerate().map(|(id, piece)| ((*piece).to_owned(), id.into())).collect();
        let merges = json!([["t", "h"], ["th", "e"], ["e", "r"], ["the", "r"]]);
        Bpe::read(
            &json!({ "version": "1.0", "model": { "type": "BPE", "vocab": vocabulary, "merges": merges } })
                .to_string(),
        )
        .unwrap()
    }

    fn set(pieces: &[&str]) -> HashSet<String> {
        pieces.iter().map(|piece| (*piece).to_owned()).collect()
    }

    #[test]
    fn what_no_merge_uses_is_an_end() {
        assert_eq!(bpe().made(), set(&["th", "the", "er", "ther"]));
        assert_eq!(bpe().ends(), set(&["er", "ther"]));
    }

    #[test]
    fn a_dropped_piece_falls_into_those_it_was_made_of() {
        let dropped = bpe().without(&set(&["ther"]));
        assert_eq!(dropped.merges.len(), 3);
        assert!(dropped.merges.iter().all(|pair| pair.concat() != "ther"));
        assert_eq!(dropped.size(), 9);
        assert_eq!((dropped.piece(8), dropped.piece(6)), (Some("<unused 8>"), Some("the")));
        // Without any merge, single characters stay.
        let characters = bpe().without(&bpe().made());
        assert!(characters.merges.is_empty());
        assert_eq!(
            (characters.piece(0), characters.piece(4), characters.piece(5)),
            (Some("<s>"), Some("r"), Some("<unused 5>"))
        );
    }

    #[test]
    fn vocabularies_are_made_equally_large() {
        let filled = bpe().filled(12);
        assert_eq!((filled.size(), filled.piece(11)), (12, Some("<unused 11>")));
        assert_eq!(filled.filled(5), filled);
        let again = Bpe::read(&filled.text().unwrap()).unwrap();
        assert_eq!((again.pieces, again.merges), (filled.pieces, filled.merges));
        assert_eq!((&again.file["version"], &again.file["model"]["type"]), (&json!("1.0"), &json!("BPE")));
        assert!(Bpe::read("{}").is_err());
    }

    #[test]
    fn a_draw_is_of_the_most_frequent_and_decided_by_its_seed() {
        let pieces: Vec<String> = (0..40).map(|i| format!("p{i}")).collect();
        let first = drawn(&pieces, 20, 8, 1);
        assert_eq!(first.len(), 8);
        assert!(first.iter().all(|piece| pieces[..20].contains(piece)));
        assert_eq!(first, drawn(&pieces, 20, 8, 1));
        assert_ne!(first, drawn(&pieces, 20, 8, 2));
        assert_eq!(drawn(&pieces[..3], 20, 8, 1).len(), 3);
    }
}
