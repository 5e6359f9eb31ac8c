//! A tokenizer's pieces as bytes.

use cloze_model::elmo::PieceBytes;
use cloze_tokenizer::{ByteLevel, Decoder, Tokenizer};
use std::collections::{BTreeSet, HashMap};

/// The bytes of each piece of a byte-level tokenizer; `None` for any other tokenizer. Such a tokenizer has a
/// piece for every byte, so it can encode any text without loss. An added piece, such as the end-of-text piece,
/// has the bytes of its name.
pub(crate) fn piece_bytes(tokenizer: &Tokenizer) -> Option<PieceBytes> {
    let is_of_bytes = matches!(tokenizer.decoder(), Some(Decoder::ByteLevel(_)))
        && ByteLevel::alphabet().all(|byte| tokenizer.token_to_id(&byte.to_string()).is_some());
    if !is_of_bytes {
        return None;
    }
    let bytes: HashMap<char, u8> = ByteLevel::alphabet().zip(0..=255).collect();
    let added: BTreeSet<u32> = tokenizer.added_tokens().map(|(id, _)| id).collect();
    let pieces: Vec<Vec<u8>> = (0..tokenizer.vocab_size() as u32)
        .map(|id| {
            // Ids that a tokenizer leaves out stand in no text.
            let piece = tokenizer.id_to_token(id).unwrap_or_default();
            let written: Option<Vec<u8>> = piece.chars().map(|c| bytes.get(&c).copied()).collect();
            written.filter(|_| !added.contains(&id)).unwrap_or_else(|| piece.as_bytes().to_vec())
        })
        .collect();
    Some(pieces.iter().map(Vec::as_slice).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloze_tokenizer::train::BpeTrainer;

    #[test]
    fn pieces_are_the_bytes_of_the_text() {
        let special_tokens = vec!["<|endoftext|>".into()];
        let trainer = BpeTrainer { vocab_size: 300, special_tokens, ..Default::default() };
        let tokenizer = trainer.train(["the née ship, the née ship\n"; 4]).unwrap();
        let pieces = piece_bytes(&tokenizer).unwrap();
        assert_eq!(pieces.len(), tokenizer.vocab_size());
        // Whatever the text, also one that training has not seen.
        for text in ["the née ship", "Übergröße 中文 \u{0}\n"] {
            let ids = tokenizer.encode_ids(text, false).unwrap();
            let bytes: Vec<u8> = ids.iter().flat_map(|id| pieces.get(*id as i32).to_vec()).collect();
            assert_eq!(bytes, text.as_bytes(), "{text}");
        }
    }

    #[test]
    fn other_tokenizers_have_no_bytes() {
        let characters = Tokenizer::characters(['a', 'b'], Vec::<String>::new(), None).unwrap();
        assert!(piece_bytes(&characters).is_none());
    }
}
