//! The last stage: pieces back to text.

mod wordpiece;

use serde::{Deserialize, Serialize};

use crate::{ByteLevel, pre_tokenizers::char_to_byte};

/// A decoder, named as in `tokenizer.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type")]
#[non_exhaustive]
pub enum Decoder {
    /// Joins pieces with the prefix, puts a space before the others, and tidies English punctuation.
    WordPiece {
        /// What pieces inside a word begin with.
        prefix: String,
        /// Whether to drop spaces before punctuation and in contractions.
        cleanup: bool,
    },
    /// Visible characters back to bytes; bytes that are no UTF-8 become U+FFFD.
    ByteLevel(ByteLevel),
    /// The end-of-word suffix becomes a space.
    BPEDecoder {
        /// The suffix.
        suffix: String,
    },
    /// One decoder after the other.
    Sequence {
        /// In this order.
        decoders: Vec<Decoder>,
    },
}

impl Decoder {
    /// The `type`s that exist here.
    pub(crate) const TYPES: &[&str] = &["WordPiece", "ByteLevel", "BPEDecoder", "Sequence"];

    /// The text of `tokens`.
    ///
    /// ```
    /// use cloze_tokenizer::Decoder;
    ///
    /// let decoder = Decoder::WordPiece { prefix: "##".into(), cleanup: true };
    /// assert_eq!(decoder.decode(["so", "##on", "."].map(String::from).into()), "soon.");
    /// ```
    pub fn decode(&self, tokens: Vec<String>) -> String {
        self.chain(tokens).concat()
    }

    fn chain(&self, mut tokens: Vec<String>) -> Vec<String> {
        match self {
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
            Self::Sequence { decoders } => {
                decoders.iter().fold(tokens, |tokens, decoder| decoder.chain(tokens))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_suffixes_and_sequences() {
        let run = |json: &str, tokens: &[&str]| {
            let decoder: Decoder = serde_json::from_str(json).unwrap();
            decoder.decode(tokens.iter().map(|t| t.to_string()).collect())
        };
        let byte_level = r#"{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true}"#;
        assert_eq!(run(byte_level, &["Ġhi", "Ã", "©", "<中>", "Ã"]), " hié<中>\u{fffd}");
        assert_eq!(run(r#"{"type":"BPEDecoder","suffix":"</w>"}"#, &["lo", "w</w>", "er</w>"]), "low er");
        let both = r#"{"type":"Sequence","decoders":[{"type":"BPEDecoder","suffix":"_"},{"type":"BPEDecoder","suffix":"x"}]}"#;
        assert_eq!(run(both, &["a_", "bx"]), "a b");
        assert_eq!(run(both, &[]), "");
    }
}
