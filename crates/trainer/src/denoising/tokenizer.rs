//! The tokenizer of a denoising run, which puts the same special tokens around texts as examples have.

use crate::Result;
use crate::translation::Vocabularies;
use crate::translation::vocabulary::surrounded;
use cloze_data::{DenoisingConfig, SpecialPieces};
use cloze_tokenizer::Tokenizer;

/// The tokenizer of source and target, with the special tokens of examples: the pieces that begin and end a
/// text for BART's noise, only the end piece for T5's. The saved model is then used the way it was trained.
///
/// # Errors
/// [`TrainerError::Setting`](crate::TrainerError::Setting) for a tokenizer without an end-of-text piece or
/// without padding.
pub(super) fn vocabularies(mut tokenizer: Tokenizer, noise: &DenoisingConfig) -> Result<Vocabularies> {
    // What it was last used for may have been shorter texts than the model takes.
    tokenizer.set_truncation(None)?;
    tokenizer.set_padding(None)?;
    let special = SpecialPieces::find(&tokenizer);
    let begin = special.begin.filter(|_| begins(noise));
    let around: Vec<u32> = begin.into_iter().chain(special.end).collect();
    if tokenizer.encode_ids("", true)? != around
        && let Some(end) = special.end
    {
        let name = |id: u32| tokenizer.id_to_token(id).unwrap_or_default().to_owned();
        let (begin, end) = (begin.map(name), name(end));
        tokenizer = surrounded(tokenizer, begin.as_deref(), &end)?;
    }
    Vocabularies::joint(tokenizer)
}

/// Whether texts begin with a special piece, if the vocabulary has one.
fn begins(noise: &DenoisingConfig) -> bool {
    !matches!(noise, DenoisingConfig::T5 { .. })
}

/// The first piece of sources and targets, if they have one.
pub(super) fn first_piece(vocabularies: &Vocabularies, noise: &DenoisingConfig) -> Option<u32> {
    SpecialPieces::find(&vocabularies.target).begin.filter(|_| begins(noise))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloze_tokenizer::train::{BpeTrainer, WordPieceTrainer};

    #[test]
    fn a_text_has_around_it_what_examples_have() {
        let texts = ["a road", "a sea"];
        let bytes = BpeTrainer { vocab_size: 270, ..Default::default() }.train(texts).unwrap();
        let words = WordPieceTrainer { vocab_size: 40, ..Default::default() }.train(texts).unwrap();
        let t5 = DenoisingConfig::T5 { density: 0.15, mean_span: 3.0 };
        for (tokenizer, begin, end) in [(bytes, "<s>", "</s>"), (words, "[CLS]", "[SEP]")] {
            let id = |name: &str| tokenizer.token_to_id(name).unwrap();
            let of_bart = vocabularies(tokenizer.clone(), &DenoisingConfig::default()).unwrap();
            assert_eq!(of_bart.source.encode_ids("", true).unwrap(), [id(begin), id(end)]);
            // As in BART, decoding begins with the piece that ends texts.
            assert_eq!(of_bart.special.begin, id(end));
            assert_eq!(first_piece(&of_bart, &DenoisingConfig::default()), Some(id(begin)));
            let of_t5 = vocabularies(tokenizer.clone(), &t5).unwrap();
            assert_eq!(of_t5.source.encode_ids("", true).unwrap(), [id(end)]);
            assert_eq!((of_t5.special.begin, first_piece(&of_t5, &t5)), (id(begin), None));
            let again = vocabularies(Tokenizer::clone(&of_t5.target), &t5).unwrap();
            assert_eq!(again.target.to_json(), of_t5.target.to_json());
        }
        let plain = Tokenizer::characters('a'..='z', ["<s>"], None).unwrap();
        let message = vocabularies(plain, &t5).unwrap_err().to_string();
        assert!(message.contains("expected one that ends texts with `</s>`"), "{message}");
    }
}
