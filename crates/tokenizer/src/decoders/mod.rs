//! The last stage: pieces back to text.

mod bytes;
mod marian;
mod wordpiece;

use serde::{Deserialize, Serialize};

use crate::{ByteLevel, Metaspace, Replace, Result, pre_tokenizers::char_to_byte};

/// A decoder, named as in `tokenizer.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", deny_unknown_fields)]
#[non_exhaustive]
pub enum Decoder {
    /// Joins pieces with the prefix, adds a space before the others, and cleans up English
    /// punctuation.
    WordPiece {
        /// What pieces inside a word begin with.
        prefix: String,
        /// Whether to drop spaces before punctuation and in contractions.
        cleanup: bool,
    },
    /// Visible characters back to bytes; invalid UTF-8 becomes U+FFFD.
    ByteLevel(ByteLevel),
    /// The end-of-word suffix becomes a space.
    BPEDecoder {
        /// The suffix.
        suffix: String,
    },
    /// Bytes written as `<0x61>` become text.
    ByteFallback,
    /// All pieces become one.
    Fuse,
    /// Drops a character at the ends of every piece.
    Strip {
        /// The character.
        content: char,
        /// Maximum number at the beginning.
        start: usize,
        /// Maximum number at the end.
        stop: usize,
    },
    /// Replaces a pattern in every piece.
    Replace(Replace),
    /// The visible character becomes a space, and is dropped from the first piece.
    Metaspace(Metaspace),
    /// Merges repeated pieces and drops padding (Graves et al. 2006).
    CTC {
        /// The blank, which separates repeated pieces.
        pad_token: String,
        /// Becomes a space, with `cleanup`.
        word_delimiter_token: String,
        /// Whether to drop spaces before punctuation and in contractions.
        cleanup: bool,
    },
    /// Decodes SentencePiece's pieces, with a space after special tokens, as in transformers'
    /// `MarianTokenizer`. Only supported by cloze.
    Marian {
        /// The special tokens.
        special_tokens: Vec<String>,
        /// Whether `<0xE5>` is a byte.
        byte_fallback: bool,
    },
    /// Several decoders in sequence.
    Sequence {
        /// In this order.
        decoders: Vec<Decoder>,
    },
}

impl Decoder {
    /// The supported `type`s.
    pub(crate) const TYPES: &[&str] = &[
        "WordPiece",
        "ByteLevel",
        "BPEDecoder",
        "ByteFallback",
        "Fuse",
        "Strip",
        "Replace",
        "Metaspace",
        "CTC",
        "Marian",
        "Sequence",
    ];

    /// The text of `tokens`.
    ///
    /// # Errors
    /// [`Error::PatternGaveUp`](crate::Error::PatternGaveUp), of a `Replace`.
    ///
    /// ```
    /// use cloze_tokenizer::Decoder;
    ///
    /// let decoder = Decoder::WordPiece { prefix: "##".into(), cleanup: true };
    /// assert_eq!(decoder.decode(["so", "##on", "."].map(String::from).into())?, "soon.");
    /// # Ok::<_, cloze_tokenizer::Error>(())
    /// ```
    pub fn decode(&self, tokens: Vec<String>) -> Result<String> {
        Ok(self.chain(tokens)?.concat())
    }

    fn chain(&self, mut tokens: Vec<String>) -> Result<Vec<String>> {
        Ok(match self {
            Self::WordPiece { prefix, cleanup } => {
                for (i, token) in tokens.iter_mut().enumerate() {
                    wordpiece::decode(token, i == 0, prefix, *cleanup);
                }
                tokens
            }
            Self::ByteLevel(_) => {
                let mut bytes = Vec::new();
                for token in &tokens {
                    let start = bytes.len();
                    for c in token.chars() {
                        match char_to_byte(c) {
                            Some(byte) => bytes.push(byte),
                            None => {
                                // Not byte-level at all, such as an added token: as it stands.
                                bytes.truncate(start);
                                bytes.extend(token.bytes());
                                break;
                            }
                        }
                    }
                }
                vec![String::from_utf8_lossy(&bytes).into_owned()]
            }
            Self::BPEDecoder { suffix } => {
                let count = tokens.len();
                for (i, token) in tokens.iter_mut().enumerate() {
                    *token = token.replace(suffix.as_str(), if i + 1 == count { "" } else { " " });
                }
                tokens
            }
            Self::ByteFallback => bytes::decode(tokens),
            Self::Fuse => vec![tokens.concat()],
            Self::Strip { content, start, stop } => {
                tokens.iter().map(|token| strip(token, *content, *start, *stop).to_owned()).collect()
            }
            Self::Replace(replace) => {
                tokens.iter().map(|token| replace.decode(token)).collect::<Result<_>>()?
            }
            Self::Metaspace(metaspace) => {
                tokens.iter().enumerate().map(|(place, token)| metaspace.decode(place, token)).collect()
            }
            Self::CTC { pad_token, word_delimiter_token, cleanup } => {
                tokens.dedup();
                for token in &mut tokens {
                    *token = token.replace(pad_token.as_str(), "");
                    if *cleanup {
                        wordpiece::tidy(token);
                        *token = token.replace(word_delimiter_token.as_str(), " ");
                    }
                }
                tokens.retain(|token| !token.is_empty());
                tokens
            }
            Self::Marian { special_tokens, byte_fallback } => {
                vec![marian::decode(tokens, special_tokens, *byte_fallback)]
            }
            Self::Sequence { decoders } => {
                decoders.iter().try_fold(tokens, |tokens, decoder| decoder.chain(tokens))?
            }
        })
    }
}

/// Strips up to this many of the character from the ends of `token`.
fn strip(token: &str, content: char, start: usize, stop: usize) -> &str {
    let mut rest = token;
    for _ in 0..start {
        match rest.strip_prefix(content) {
            Some(shorter) => rest = shorter,
            None => break,
        }
    }
    for _ in 0..stop {
        match rest.strip_suffix(content) {
            Some(shorter) => rest = shorter,
            None => break,
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_suffixes_and_sequences() {
        let run = |json: &str, tokens: &[&str]| {
            let decoder: Decoder = serde_json::from_str(json).unwrap();
            decoder.decode(tokens.iter().map(|t| t.to_string()).collect()).unwrap()
        };
        let byte_level = r#"{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true}"#;
        assert_eq!(run(byte_level, &["Ġhi", "Ã", "©", "<中>", "Ã"]), " hié<中>\u{fffd}");
        assert_eq!(run(r#"{"type":"BPEDecoder","suffix":"</w>"}"#, &["lo", "w</w>", "er</w>"]), "low er");
        let both = r#"{"type":"Sequence","decoders":[{"type":"BPEDecoder","suffix":"_"},{"type":"BPEDecoder","suffix":"x"}]}"#;
        assert_eq!(run(both, &["a_", "bx"]), "a b");
        assert_eq!(run(both, &[]), "");
        let bytes = r#"{"type":"ByteFallback"}"#;
        assert_eq!(run(bytes, &["<0xE5>", "<0x8f>", "<0xab>", "a", "<0xE5>", "<0x+1>"]), "叫a\u{fffd}<0x+1>");
        assert_eq!(run(r#"{"type":"Strip","content":"H","start":1,"stop":2}"#, &["HHey", "HH"]), "Hey");
        let ctc = r#"{"type":"CTC","pad_token":"<pad>","word_delimiter_token":"|","cleanup":true}"#;
        assert_eq!(run(ctc, &["<pad>", "h", "h", "e", "l", "<pad>", "l", "o", "|", "|", "w"]), "hello w");
        let replace = r#"{"type":"Replace","pattern":{"String":"▁"},"content":" "}"#;
        assert_eq!(run(replace, &["▁a", "▁▁b"]), " a  b");
        let llama = format!(
            r#"{{"type":"Sequence","decoders":[{replace},{bytes},{{"type":"Fuse"}},{{"type":"Strip","content":" ","start":1,"stop":0}}]}}"#
        );
        assert_eq!(run(&llama, &["▁so", "<0xC3>", "<0xA9>", "▁it"]), "soé it");
    }
}
