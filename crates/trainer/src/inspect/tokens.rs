//! The tokens of texts, as they are shown.

use crate::Result;
use cloze_evaluation::inspection::Token;
use cloze_tokenizer::{Encoding, Tokenizer};

/// What numbers of words are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Words {
    /// Those of the tokenizer.
    OfTokenizer,
    /// What white space separates.
    BySpace,
}

/// The tokens of an encoded text or pair.
pub(super) fn tokens(
    tokenizer: &Tokenizer,
    encoding: &Encoding,
    texts: [&str; 2],
    words: Words,
) -> Vec<Token> {
    let unknown = tokenizer.special_ids().unk;
    let token = |i: usize| {
        let id = encoding.ids[i];
        let added = encoding.special_tokens_mask[i] == 1;
        let special = added || tokenizer.is_special(id) && Some(id) != unknown;
        let part = encoding.sequence_ids[i].unwrap_or(encoding.type_ids[i]).min(1) as usize;
        let (start, end) = if added { (0, 0) } else { encoding.offsets[i] };
        let word = match words {
            _ if special => None,
            Words::OfTokenizer => encoding.word_ids[i].map(|word| word as usize),
            Words::BySpace => word_by_space(texts[part], start, end),
        };
        Token { text: encoding.tokens[i].clone(), word, special, part: part as u8, start, end }
    };
    (0..encoding.len()).map(token).collect()
}

/// The word that a piece's last byte is in: a piece may begin with the space before it.
fn word_by_space(text: &str, start: usize, end: usize) -> Option<usize> {
    if end <= start {
        return None;
    }
    let place = |word: &str| word.as_ptr() as usize - text.as_ptr() as usize;
    text.split_whitespace().position(|word| end <= place(word) + word.len())
}

/// The tokens of a text that was written, by their ids, and the text.
///
/// # Errors
/// Ids that the tokenizer fails to turn into a text.
pub(super) fn written(tokenizer: &Tokenizer, ids: &[u32]) -> Result<(Vec<Token>, String)> {
    let text = tokenizer.decode(ids, true)?;
    let unknown = tokenizer.special_ids().unk;
    let mut tokens = Vec::with_capacity(ids.len());
    let mut start = 0;
    for (i, id) in ids.iter().enumerate() {
        let before = tokenizer.decode(&ids[..=i], true)?;
        let special = tokenizer.is_special(*id) && Some(*id) != unknown;
        // A text may get shorter where pieces join.
        let end = text.floor_char_boundary(before.len().max(start).min(text.len()));
        let n_words = before.split_whitespace().count();
        tokens.push(Token {
            text: tokenizer.id_to_token(*id).unwrap_or_default().to_owned(),
            word: (!special && !text.trim().is_empty()).then(|| n_words.saturating_sub(1)),
            special,
            part: 0,
            start: if special { 0 } else { start },
            end: if special { 0 } else { end },
        });
        start = end;
    }
    Ok((tokens, text))
}
