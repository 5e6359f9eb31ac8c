//! Tokens as characters, which are the bytes of their UTF-8.

use burn::tensor::{Device, Int, Tensor, TensorData};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::sync::Arc;

/// Rows of the table of characters, in AllenNLP's numbering: 0 for no character, a byte `b` as `b + 1`, the
/// beginning and the end of a sentence as 257 and 258 (unused here: text is not split into sentences), the
/// beginning and the end of a word as 259 and 260, and padding as 261.
pub const N_CHARACTERS: usize = 262;
const BEGIN_OF_WORD: i32 = 259;
const END_OF_WORD: i32 = 260;
const PADDING: i32 = 261;

/// The characters of a word, `len` of them: the beginning of a word, its bytes, the end of a word, and
/// padding (AllenNLP's `ELMoCharacterMapper`). Longer words are cut to their first `len − 2` bytes.
///
/// ```
/// # use cloze_model::elmo::spelled;
/// assert_eq!(spelled(b"ab", 6), [259, 98, 99, 260, 261, 261]);
/// assert_eq!(spelled(b"abcd", 4), [259, 98, 99, 260]);
/// ```
pub fn spelled(word: &[u8], len: usize) -> Vec<i32> {
    let read = &word[..word.len().min(len.saturating_sub(2))];
    let bytes = read.iter().map(|byte| i32::from(*byte) + 1);
    let mut characters: Vec<i32> = std::iter::once(BEGIN_OF_WORD).chain(bytes).collect();
    characters.push(END_OF_WORD);
    characters.resize(len, PADDING);
    characters
}

/// The characters of words, one word per row, `[words, len]`.
pub(super) fn table<'a>(
    words: impl IntoIterator<Item = &'a [u8]>,
    len: usize,
    device: &Device,
) -> Tensor<2, Int> {
    let characters: Vec<i32> = words.into_iter().flat_map(|word| spelled(word, len)).collect();
    let shape = [characters.len() / len, len];
    Tensor::from_data(TensorData::new(characters, shape), device)
}

/// The bytes of each piece of a vocabulary, by its id.
///
/// In files a piece is a string with one character per byte (Latin-1): pieces may begin or end inside a
/// character of the text.
///
/// ```
/// # use cloze_model::elmo::PieceBytes;
/// let pieces: PieceBytes = [&b"the"[..], " é".as_bytes(), b"\xff"].into_iter().collect();
/// let json = serde_json::to_string(&pieces).unwrap();
/// assert_eq!(json, "[\"the\",\" Ã©\",\"ÿ\"]");
/// assert_eq!(serde_json::from_str::<PieceBytes>(&json).unwrap(), pieces);
/// ```
#[derive(Clone, PartialEq, Eq, Default)]
pub struct PieceBytes(Arc<[Box<[u8]>]>);

impl PieceBytes {
    /// Number of pieces.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes of a piece.
    ///
    /// # Panics
    /// If there is no piece with this id.
    pub fn get(&self, id: i32) -> &[u8] {
        let piece = usize::try_from(id).ok().and_then(|id| self.0.get(id));
        piece.unwrap_or_else(|| panic!("no piece has the id {id}: there are {}", self.len()))
    }
}

impl<'a> FromIterator<&'a [u8]> for PieceBytes {
    fn from_iter<T: IntoIterator<Item = &'a [u8]>>(pieces: T) -> Self {
        Self(pieces.into_iter().map(Box::from).collect())
    }
}

impl fmt::Debug for PieceBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} pieces", self.len())
    }
}

impl Serialize for PieceBytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(
            self.0.iter().map(|piece| -> String { piece.iter().copied().map(char::from).collect() }),
        )
    }
}

impl<'de> Deserialize<'de> for PieceBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let pieces = Vec::<String>::deserialize(deserializer)?.into_iter().map(|piece| {
            let bytes: Result<Box<[u8]>, _> = piece.chars().map(u8::try_from).collect();
            bytes.map_err(|_| D::Error::custom(format!("piece {piece:?} has a character above U+00FF")))
        });
        Ok(Self(pieces.collect::<Result<_, _>>()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_byte_is_is_refused() {
        let error = serde_json::from_str::<PieceBytes>("[\"a\", \"Ġb\"]").unwrap_err().to_string();
        assert!(error.contains("piece \"Ġb\" has a character above U+00FF"), "{error}");
    }

    #[test]
    fn words_are_read_to_their_ends_or_cut() {
        assert_eq!(spelled(b"", 4), [259, 260, 261, 261]);
        assert_eq!(spelled(&[0, 255], 4), [259, 1, 256, 260]);
        let table = table([&b"a"[..], b"bcd"], 4, &Device::flex());
        let rows: Vec<i32> = table.into_data().iter::<i32>().collect();
        assert_eq!(rows, [259, 98, 260, 261, 259, 99, 100, 260]);
    }
}
