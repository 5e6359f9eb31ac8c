//! Tokenizers: text to ids and back, in pure Rust, with the same ids as the `tokenizers` crate.
//!
//! A [`Tokenizer`] is a pipeline of small stages, each an enum named as in `tokenizer.json`:
//!
//! | stage | does | types |
//! | --- | --- | --- |
//! | [`Normalizer`] | text to plainer text | `BertNormalizer`, `NFC`, `NFD`, `NFKC`, `NFKD`, `Lowercase`, `StripAccents`, `Strip`, `Replace`, `Prepend`, `ByteLevel`, `Nmt`, `Precompiled`, `SentencePiece`, `Sequence` |
//! | [`PreTokenizer`] | text to words | `BertPreTokenizer`, `ByteLevel`, `Whitespace`, `WhitespaceSplit`, `Split`, `Punctuation`, `Digits`, `CharDelimiterSplit`, `FixedLength`, `UnicodeScripts`, `Metaspace`, `Sequence` |
//! | [`Model`] | words to pieces with ids | `WordPiece`, `BPE`, `Unigram`, `WordLevel`, `Marian` |
//! | [`PostProcessor`] | special tokens | `TemplateProcessing`, `BertProcessing`, `RobertaProcessing`, `ByteLevel`, `Sequence` |
//! | [`Decoder`] | pieces back to text | `WordPiece`, `ByteLevel`, `BPEDecoder`, `ByteFallback`, `Fuse`, `Strip`, `Replace`, `Metaspace`, `CTC`, `Marian`, `Sequence` |
//!
//! Before them, added and special tokens are cut out of the text; after them, an encoding is truncated and
//! padded as set. A file with anything else is an error with the JSON path of the unsupported part.
//!
//! # Worked example
//!
//! Train a vocabulary, encode with it, and go back to text:
//!
//! ```
//! use cloze_tokenizer::{Tokenizer, train::WordPieceTrainer};
//!
//! let lines = ["The old sailor sails the old sea.", "Sailing boats sail; old boats sink."];
//! let trainer = WordPieceTrainer { vocab_size: 60, ..Default::default() };
//! let tokenizer = trainer.train(lines)?;
//!
//! let encoding = tokenizer.encode("Old sailors!", true)?;
//! assert_eq!(encoding.tokens, ["[CLS]", "old", "sailor", "##s", "[UNK]", "[SEP]"]);
//! // Offsets are bytes of the text as it was given; special tokens have none.
//! assert_eq!(encoding.offsets[1..4], [(0, 3), (4, 10), (10, 11)]);
//! assert_eq!(encoding.word_ids[1..4], [Some(0), Some(1), Some(1)]);
//! assert_eq!(tokenizer.decode(&encoding.ids, true)?, "old sailors");
//!
//! // Two texts: the second has type id 1.
//! let pair = tokenizer.encode_pair("old", "sea", true)?;
//! assert_eq!(pair.type_ids, [0, 0, 0, 1, 1]);
//!
//! // The file that transformers and `tokenizers` read.
//! let again = Tokenizer::from_json(&tokenizer.to_json())?;
//! assert_eq!(again.encode("Old sailors!", true)?, encoding);
//! # Ok::<_, cloze_tokenizer::Error>(())
//! ```
//!
//! For model input, [`Tokenizer::encode_ids_batch`] gives only ids, many times as fast, on all threads. For a
//! corpus, [`Tokenizer::encode_into`] gives ids and word starts only.
//!
//! # Exactness
//!
//! The tests compare ids, tokens, offsets, word ids and decoded text with `tokenizers` 0.23.2 (its
//! `fancy-regex` build). Intentional differences:
//!
//! - Truncation keeps all overflowing parts (0.23 drops what lies beyond `max_length` pieces before it
//!   cuts), keeps word ids when cutting from the left, and if the text named by `OnlyFirst` or
//!   `OnlySecond` is too short, cuts the other as well instead of failing.
//! - An added token keeps the id in its file, or the file is an error; the reference assigns another
//!   id.
//! - Training numbers pieces with a prefix or suffix in order; the reference does in random order. Counts
//!   are 64-bit; those of the reference overflow at 2³¹.
//! - Decoding no tokens at all gives no text; the reference's BPE decoder panics. So does its `Strip`
//!   decoder on a token that consists only of the character and is shorter than the allowed strip.
//! - `FixedLength` of 0 is an error; the reference panics when it encodes.
//! - BPE dropout uses a generator that is passed in or restarted with each call; the reference's is
//!   global.
//! - The byte pieces of an unknown character with a prefix or suffix end with the word; the reference
//!   counts beyond it.
//! - Cut and padded pieces keep their text's number as sequence id, and padding has none (0.23 loses some
//!   of them). The maps of an [`Encoding`] find nothing in a missing second text; the reference searches
//!   the first.
//! - The overflowing parts of a pair are in one list, each once, with the type ids of the whole (0.23
//!   nests some below others, and gives them RoBERTa's type id 0 only with special tokens).
//! - Decoding without special tokens also omits those whose normal form differs. Of two added tokens with
//!   the same normal form, the first matches (the reference picks one at random), and white space consumed
//!   by one added token is not matched by the next.
//! - The `ByteFallback` decoder accepts two hexadecimal digits for a byte; the reference also accepts
//!   `<0x+5>`.
//! - A known splitting pattern (see [`Pattern`]) never gives up; the reference's engine fails on very long
//!   runs of white space. If another pattern gives up, encoding fails with its name.
//! - Unknown fields and components are errors.
//! - Unigram sampling draws a path in proportion to its probability to the power of alpha (Kudo 2018); the
//!   reference applies alpha again at every piece. A repeated piece is an error.
//! - Settings of a SentencePiece model that transformers' converter ignores (no prefix, extra spaces
//!   kept, byte fallback of Unigram) are honoured.
//! - Models without an unknown token drop what they cannot encode; the reference fails.
//!
//! Unicode versions are the reference's: general categories of `unicode_categories` 0.1, normalisation of
//! Unicode 9, regular-expression classes those of `regex-syntax` 0.8, case, numbers and white space the
//! standard library's, scripts those of Unicode 9. Patterns run on `fancy-regex` 0.17, the reference's engine.

mod added;
mod beginning;
mod cache;
mod char_level;
mod config;
mod counts;
mod decoders;
mod encoding;
mod error;
mod families;
mod files;
mod input;
mod json_path;
mod marian;
mod models;
mod normalized;
mod normalizers;
mod padding;
mod pattern;
mod post_processors;
mod pre_tokenizers;
mod protobuf;
mod pruning;
mod sentencepiece;
mod splits;
mod statistics;
mod tokenizer;
pub mod train;
mod truncation;
mod unicode;
mod words;

pub use added::AddedToken;
pub use config::TokenizerConfig;
pub use counts::PieceCounts;
pub use decoders::Decoder;
pub use encoding::Encoding;
pub use error::{Error, Result};
pub use input::{Input, OffsetUnit, Sequence};
pub use marian::MarianTokenizers;
pub use models::{
    Bpe, BpeConfig, Marian, Model, Sampling, Segmentation, Unigram, Vocab, WordLevel, WordPiece,
};
pub use normalized::Span;
pub use normalizers::{BertNormalizer, Normalizer, Precompiled, Prepend, Replace, SentencePiece, Strip};
pub use padding::{Padding, PaddingDirection, PaddingStrategy};
pub use pattern::{Pattern, SplitBehavior};
pub use post_processors::{PostProcessor, SpecialToken, TemplatePiece, TemplateProcessing, TemplateSequence};
pub use pre_tokenizers::{
    ByteLevel, CharDelimiterSplit, Digits, FixedLength, Metaspace, PreTokenizer, PrependScheme, Punctuation,
    SplitPattern,
};
pub use pruning::PrunedTokenizer;
pub use statistics::{Statistics, WordMark};
pub use tokenizer::{SpecialIds, Tokenizer};
pub use truncation::{Truncation, TruncationDirection, TruncationStrategy};
pub use words::split_words;

/// The README's example, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
