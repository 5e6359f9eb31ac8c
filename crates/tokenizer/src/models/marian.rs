//! Marian's model: SentencePiece with the ids of another vocabulary.

use hashbrown::HashMap;

use super::{
    Piece, Vocab,
    lattice::{Lattice, Step},
    trie::{NONE, Trie},
};
use crate::{Error, Result};

/// The most probable pieces, as in [`Unigram`](crate::Unigram), with ids from a vocabulary: Marian's models
/// share one vocabulary between two languages, each with its own pieces (Junczys-Dowmunt et al. 2018).
///
/// A piece that the vocabulary lacks is unknown. Adjacent unknown characters are looked up as one piece,
/// which may belong to the other language. A leading code such as `>>fr<<` is one token.
#[derive(Debug, Clone)]
pub struct Marian {
    vocab: Vocab,
    unk_id: u32,
    /// The pieces that texts are split into.
    pieces: Vec<Box<str>>,
    /// Log probabilities, by piece.
    scores: Vec<f64>,
    /// Ids in the vocabulary, by piece.
    ids: Vec<u32>,
    trie: Trie,
    min_score: f64,
    /// The ids of `<0x00>` to `<0xFF>`, if unknown characters become bytes.
    bytes: Option<Box<[u32]>>,
}

/// The codes that texts may begin with.
#[derive(Debug, Clone)]
pub(crate) struct Codes {
    ids: HashMap<Box<str>, u32>,
    unknown: u32,
}

impl Codes {
    /// Maximum bytes of a code.
    pub const LONGEST: usize = 64;

    /// The end and id of a text's leading code.
    pub fn first(&self, text: &str) -> Option<(usize, u32)> {
        if !text.starts_with(">>") {
            return None;
        }
        let beginning = &text[..text.floor_char_boundary(Self::LONGEST)];
        let end = beginning.find("<<")? + 2;
        Some((end, self.ids.get(&text[..end]).copied().unwrap_or(self.unknown)))
    }
}

impl Marian {
    /// A model from the pieces, with their log probabilities, and the ids of `vocab`.
    ///
    /// # Errors
    /// A piece is empty or repeated; a log probability is not finite; the vocabulary has no `unk_token`.
    pub fn new<T: Into<Box<str>>>(
        pieces: impl IntoIterator<Item = (T, f64)>,
        vocab: Vocab,
        unk_token: &str,
        byte_fallback: bool,
    ) -> Result<Self> {
        let unk_id = vocab.id(unk_token).ok_or_else(|| {
            Error::invalid("model.unk_token", format!("the vocabulary has no {unk_token:?}, which is needed"))
        })?;
        let (pieces, scores): (Vec<Box<str>>, Vec<f64>) =
            pieces.into_iter().map(|(piece, score)| (piece.into(), score)).unzip();
        let mut seen = HashMap::with_capacity(pieces.len());
        for (place, (piece, score)) in pieces.iter().zip(&scores).enumerate() {
            let message = match seen.insert(piece, place) {
                _ if piece.is_empty() => "a piece cannot be empty".to_owned(),
                _ if !score.is_finite() => {
                    format!("the score of {piece:?} is {score}; expected a finite number")
                }
                Some(before) => format!("{piece:?} is also piece {before}; pieces must be unique"),
                None => continue,
            };
            return Err(Error::invalid(format!("model.pieces[{place}]"), message));
        }
        drop(seen);
        let id = |piece: &str| vocab.id(piece).unwrap_or(unk_id);
        let ids = pieces.iter().map(|piece| id(piece)).collect();
        let bytes = byte_fallback.then(|| (0..=255u8).map(|byte| id(&format!("<0x{byte:02X}>"))).collect());
        let trie = Trie::new(pieces.iter().map(|piece| piece.as_bytes()).zip(0..).collect());
        let min_score = scores.iter().copied().fold(f64::INFINITY, f64::min);
        Ok(Self { vocab, unk_id, pieces, scores, ids, trie, min_score, bytes })
    }

    /// The vocabulary that defines the ids.
    pub fn vocab(&self) -> &Vocab {
        &self.vocab
    }

    /// The pieces and their log probabilities.
    pub fn scored(&self) -> impl Iterator<Item = (&str, f64)> {
        self.pieces.iter().map(AsRef::as_ref).zip(self.scores.iter().copied())
    }

    /// The id of pieces that the vocabulary lacks.
    pub fn unk_id(&self) -> u32 {
        self.unk_id
    }

    /// Whether unknown characters become bytes.
    pub fn byte_fallback(&self) -> bool {
        self.bytes.is_some()
    }

    /// The codes that texts may begin with.
    pub(crate) fn codes(&self) -> Codes {
        let is_code =
            |token: &str| token.starts_with(">>") && token.find("<<").is_some_and(|at| at + 2 == token.len());
        let codes = self.vocab.iter().filter(|(_, token)| is_code(token));
        Codes { ids: codes.map(|(id, token)| (token.into(), id)).collect(), unknown: self.unk_id }
    }

    /// Appends the pieces of `word`.
    pub(crate) fn pieces(&self, word: &str, out: &mut Vec<Piece>) {
        let mut unknown = 0..0;
        let lattice = Lattice::new(&self.trie, &self.scores, NONE, self.min_score);
        lattice.best(word, NONE, |Step { id, end }| match self.ids.get(id as usize) {
            Some(&id) => {
                self.unknown(&word[unknown.clone()], unknown.end, out);
                out.push(Piece { id, end });
                unknown = end..end;
            }
            None => unknown.end = end,
        });
        self.unknown(&word[unknown.clone()], unknown.end, out);
    }

    /// Appends text that no piece covers.
    fn unknown(&self, text: &str, end: usize, out: &mut Vec<Piece>) {
        match &self.bytes {
            _ if text.is_empty() => {}
            Some(bytes) => out.extend(text.bytes().map(|byte| Piece { id: bytes[usize::from(byte)], end })),
            None => out.push(Piece { id: self.vocab.id(text).unwrap_or(self.unk_id), end }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vocab() -> Vocab {
        Vocab::from_tokens(["</s>", "<unk>", "▁a", "b", "☃☃", ">>fr<<", "<0xC3>"]).unwrap()
    }

    fn run(model: &Marian, text: &str) -> Vec<(u32, usize)> {
        let mut out = Vec::new();
        model.pieces(text, &mut out);
        out.into_iter().map(|piece| (piece.id, piece.end)).collect()
    }

    #[test]
    fn ids_are_the_vocabularys() {
        let pieces = [("▁a", -1.0), ("b", -2.0), ("c", -2.0)];
        let model = Marian::new(pieces, vocab(), "<unk>", false).unwrap();
        // `c` is a piece without an id; `☃☃` has an id, and is no piece.
        assert_eq!(run(&model, "▁abc"), [(2, 4), (3, 5), (1, 6)]);
        assert_eq!(run(&model, "☃☃b☃cc"), [(4, 6), (3, 7), (1, 10), (1, 11), (1, 12)]);
        assert_eq!(run(&model, ""), []);
        let bytes = Marian::new(pieces, vocab(), "<unk>", true).unwrap();
        assert_eq!(run(&bytes, "éb"), [(6, 2), (1, 2), (3, 3)]);
    }

    #[test]
    fn codes_are_at_the_beginning_and_short() {
        let codes = Marian::new([("b", -1.0)], vocab(), "<unk>", false).unwrap().codes();
        assert_eq!(codes.first(">>fr<< b"), Some((6, 5)));
        assert_eq!(codes.first(">>xx<<"), Some((6, 1)));
        assert_eq!(codes.first(" >>fr<<"), None);
        assert_eq!(codes.first(">>fr"), None);
        assert_eq!(codes.first(&format!(">>{}<<", "é".repeat(40))), None);
    }

    #[test]
    fn bad_pieces_are_refused() {
        let error = |pieces: &[(&str, f64)], unk: &str| {
            Marian::new(pieces.iter().copied(), vocab(), unk, false).unwrap_err().to_string()
        };
        assert!(error(&[], "[UNK]").contains("the vocabulary has no \"[UNK]\""));
        assert!(error(&[("a", f64::NAN)], "<unk>").contains("model.pieces[0]: the score of \"a\" is NaN"));
        assert!(error(&[("a", 0.0), ("a", 1.0)], "<unk>").contains("model.pieces[1]: \"a\" is also piece 0"));
        assert!(error(&[("", 0.0)], "<unk>").contains("cannot be empty"));
    }
}
