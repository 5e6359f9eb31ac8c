//! The first cut of a word: its characters as pieces, before any are joined.

use super::{super::Piece, Bpe};
use crate::pre_tokenizers::byte_to_char;

/// Characters below this have their ids in a table, which covers the byte-level alphabet.
const TABLE: u32 = 0x180;

/// The ids of single characters, of the bytes that stand for unknown ones, and of the unknown token.
#[derive(Debug, Clone)]
pub(super) struct Alphabet {
    table: Box<[Option<u32>]>,
    unk: Option<u32>,
    /// Ids of the characters that stand for bytes at the byte level, if all exist.
    byte_level: Option<Box<[u32; 256]>>,
    /// Ids of `<0x00>` to `<0xFF>`, with byte fallback.
    bytes: Option<Box<[Option<u32>; 256]>>,
}

impl Alphabet {
    pub fn new(vocab: &super::Vocab, unk: Option<u32>, byte_fallback: bool) -> Self {
        let id = |c: char| vocab.id(c.encode_utf8(&mut [0; 4]));
        Self {
            table: (0..TABLE).map(|code| char::from_u32(code).and_then(id)).collect(),
            unk,
            byte_level: (0..=255)
                .map(|byte| id(byte_to_char(byte)))
                .collect::<Option<Vec<_>>>()
                .and_then(|ids| ids.into_boxed_slice().try_into().ok()),
            bytes: byte_fallback
                .then(|| Box::new(std::array::from_fn(|byte| vocab.id(&format!("<0x{byte:02X}>"))))),
        }
    }

    /// The ids of the bytes at the byte level, if every byte is a symbol.
    pub fn byte_level(&self) -> Option<&[u32; 256]> {
        self.byte_level.as_deref()
    }

    /// The ids that stand for unknown characters.
    pub fn stand_ins(&self) -> impl Iterator<Item = u32> {
        self.bytes.iter().flat_map(|bytes| bytes.iter().flatten().copied()).chain(self.unk)
    }
}

impl Bpe {
    /// Appends the pieces for the word's characters.
    pub(super) fn symbols(&self, word: &str, out: &mut Vec<Piece>) {
        let prefix = self.config.continuing_subword_prefix.as_deref();
        let suffix = self.config.end_of_word_suffix.as_deref();
        let mut symbols = Symbols { alphabet: &self.alphabet, end: 0, limit: word.len(), unknown: None, out };
        if prefix.is_none() && suffix.is_none() {
            for (i, c) in word.char_indices() {
                let text = &word[i..i + c.len_utf8()];
                let id = self.alphabet.table.get(c as usize).copied();
                symbols.push(id.unwrap_or_else(|| self.vocab.id(text)), text, c.len_utf8(), &self.config);
            }
        } else {
            let mut dressed = String::new();
            for (i, c) in word.char_indices() {
                let size = c.len_utf8();
                dressed.clear();
                dressed.push_str(prefix.filter(|_| i > 0).unwrap_or_default());
                dressed.push(c);
                dressed.push_str(suffix.filter(|_| i + size == word.len()).unwrap_or_default());
                symbols.push(self.vocab.id(&dressed), &dressed, size, &self.config);
            }
        }
        symbols.flush();
    }
}

struct Symbols<'a> {
    alphabet: &'a Alphabet,
    /// Where the last symbol ends. Dropped characters do not count in the offsets either, as in the
    /// reference.
    end: usize,
    /// Where the word ends; the bytes of a suffix come after.
    limit: usize,
    /// An unknown token, with its size, that later characters may join.
    unknown: Option<(u32, usize)>,
    out: &'a mut Vec<Piece>,
}

impl Symbols<'_> {
    /// Appends the symbol for a character of `size` bytes, written `text` in the vocabulary.
    #[inline]
    fn push(&mut self, id: Option<u32>, text: &str, size: usize, config: &super::BpeConfig) {
        match id {
            Some(id) => {
                self.flush();
                self.append(id, size);
            }
            None => self.push_unknown(text, size, config.fuse_unk),
        }
    }

    #[cold]
    fn push_unknown(&mut self, text: &str, size: usize, fuse: bool) {
        if let Some(bytes) = &self.alphabet.bytes
            && text.bytes().all(|byte| bytes[byte as usize].is_some())
        {
            // Before an unknown token that waits, as in the reference.
            for id in text.bytes().filter_map(|byte| bytes[byte as usize]) {
                self.append(id, 1);
            }
            return;
        }
        let Some(unk) = self.alphabet.unk else {
            return;
        };
        match &mut self.unknown {
            Some((_, before)) if fuse => *before += size,
            _ => {
                self.flush();
                self.unknown = Some((unk, size));
            }
        }
    }

    #[inline]
    fn flush(&mut self) {
        if let Some((unk, size)) = self.unknown.take() {
            self.append(unk, size);
        }
    }

    #[inline]
    fn append(&mut self, id: u32, size: usize) {
        self.end += size;
        self.out.push(Piece { id, end: self.end.min(self.limit) });
    }
}
