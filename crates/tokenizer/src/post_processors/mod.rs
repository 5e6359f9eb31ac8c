//! The fourth stage: special tokens around the pieces of one text or two.

mod byte_level;
mod template;

pub use template::{SpecialToken, TemplatePiece, TemplateProcessing, TemplateSequence};

use serde::{Deserialize, Serialize};

use crate::{ByteLevel, Encoding, OffsetUnit};

/// A post-processor, named as in `tokenizer.json`.
///
/// ```
/// # use cloze_tokenizer::{PostProcessor, TemplateProcessing, Tokenizer, Vocab};
/// let vocab = Vocab::from_tokens(["[UNK]", "<s>", "</s>", "old", "sea"])?;
/// let template = TemplateProcessing::bert(("<s>", 1), ("</s>", 2));
/// let tokenizer =
///     Tokenizer::bert(vocab, true)?.with_post_processor(PostProcessor::TemplateProcessing(template))?;
/// let pair = tokenizer.encode_pair("old", "sea", true)?;
/// assert_eq!(pair.tokens, ["<s>", "old", "</s>", "sea", "</s>"]);
/// assert_eq!(pair.type_ids, [0, 0, 0, 1, 1]);
/// assert_eq!(pair.special_tokens_mask, [1, 0, 1, 0, 1]);
/// assert_eq!(tokenizer.post_processor().map(|p| p.added_tokens(true)), Some(3));
/// # Ok::<_, cloze_tokenizer::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", deny_unknown_fields)]
#[non_exhaustive]
pub enum PostProcessor {
    /// `[CLS] A [SEP]`, or `[CLS] A [SEP] B [SEP]`, with type ids 0 and 1.
    BertProcessing {
        /// The separator and its id.
        sep: (String, u32),
        /// The first token and its id.
        cls: (String, u32),
    },
    /// `<s> A </s>`, or `<s> A </s></s> B </s>`, with type ids 0; trims offsets like the byte level.
    RobertaProcessing {
        /// The separator and its id.
        sep: (String, u32),
        /// The first token and its id.
        cls: (String, u32),
        /// Exclude leading and trailing white space from the offsets.
        #[serde(default = "yes")]
        trim_offsets: bool,
        /// Whether the pre-tokenizer added a space before the text.
        #[serde(default = "yes")]
        add_prefix_space: bool,
    },
    /// Special tokens by template.
    TemplateProcessing(TemplateProcessing),
    /// Adds nothing; trims offsets.
    ByteLevel(ByteLevel),
    /// Several post-processors in sequence.
    Sequence {
        /// In this order.
        processors: Vec<PostProcessor>,
    },
}

fn yes() -> bool {
    true
}

impl PostProcessor {
    /// The supported `type`s.
    pub(crate) const TYPES: &[&str] =
        &["BertProcessing", "RobertaProcessing", "TemplateProcessing", "ByteLevel", "Sequence"];

    /// Number of tokens added to one text or to two.
    pub fn added_tokens(&self, pair: bool) -> usize {
        match self {
            Self::BertProcessing { .. } => 2 + usize::from(pair),
            Self::RobertaProcessing { .. } => 2 + 2 * usize::from(pair),
            Self::TemplateProcessing(template) => template.added_tokens(pair),
            Self::ByteLevel(_) => 0,
            Self::Sequence { processors } => processors.iter().map(|p| p.added_tokens(pair)).sum(),
        }
    }

    pub(crate) fn check(&self, at: &str) -> crate::Result<()> {
        match self {
            Self::TemplateProcessing(template) => template.check(at),
            Self::Sequence { processors } => {
                let mut numbered = processors.iter().enumerate();
                numbered.try_for_each(|(i, p)| p.check(&format!("{at}.processors[{i}]")))
            }
            _ => Ok(()),
        }
    }

    /// Adds the special tokens' ids around the ids of one text, which begin at `start` of `ids`.
    pub(crate) fn apply_to_ids(&self, ids: &mut Vec<u32>, start: usize, add_special: bool) {
        match self {
            Self::BertProcessing { sep, cls } | Self::RobertaProcessing { sep, cls, .. } if add_special => {
                ids.insert(start, cls.1);
                ids.push(sep.1);
            }
            Self::TemplateProcessing(template) => template.apply_to_ids(ids, start, add_special),
            Self::Sequence { processors } => {
                processors.iter().for_each(|processor| processor.apply_to_ids(ids, start, add_special));
            }
            _ => {}
        }
    }

    /// Processes the parts of an encoding, which the caller joins.
    pub(crate) fn apply(
        &self,
        mut parts: Vec<Encoding>,
        add_special: bool,
        unit: OffsetUnit,
    ) -> Vec<Encoding> {
        match self {
            Self::BertProcessing { sep, cls } => {
                if add_special {
                    for (i, part) in parts.iter_mut().enumerate() {
                        let before = (i == 0).then_some(cls);
                        surround(part, before.map(|c| (c, 0)), (sep, i.min(1) as u32));
                    }
                }
                parts
            }
            Self::RobertaProcessing { sep, cls, trim_offsets, add_prefix_space } => {
                for (i, part) in parts.iter_mut().enumerate() {
                    if *trim_offsets {
                        byte_level::trim_offsets(part, *add_prefix_space, unit);
                    }
                    part.set_type_ids(0);
                    if add_special {
                        let before = if i == 0 { cls } else { sep };
                        surround(part, Some((before, 0)), (sep, 0));
                    }
                }
                parts
            }
            Self::TemplateProcessing(template) => template.apply(parts, add_special),
            Self::ByteLevel(settings) => {
                if settings.trim_offsets {
                    for part in &mut parts {
                        byte_level::trim_offsets(part, settings.add_prefix_space, unit);
                    }
                }
                parts
            }
            Self::Sequence { processors } => {
                processors.iter().fold(parts, |parts, processor| processor.apply(parts, add_special, unit))
            }
        }
    }
}

type Token = (String, u32);

/// Puts special tokens, each with its type id, around a part and around its overflow.
fn surround(part: &mut Encoding, before: Option<(&Token, u32)>, after: (&Token, u32)) {
    for overflow in &mut part.overflowing {
        surround(overflow, before, after);
    }
    let overflowing = std::mem::take(&mut part.overflowing);
    let mut whole = Encoding::default();
    if let Some(((token, id), type_id)) = before {
        whole.push_special(*id, token, type_id);
    }
    whole.append(std::mem::take(part));
    let ((token, id), type_id) = after;
    whole.push_special(*id, token, type_id);
    whole.overflowing = overflowing;
    *part = whole;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(ids: &[u32], sequence: u32) -> Encoding {
        let mut part = Encoding::default();
        for &id in ids {
            part.push(id, "x", (0, 1), Some(0), sequence);
        }
        part
    }

    fn run(processor: &PostProcessor, parts: Vec<Encoding>) -> (Vec<u32>, Vec<u32>) {
        let pair = parts.len() == 2;
        let bare: usize = parts.iter().map(Encoding::len).sum();
        let mut all = Encoding::default();
        for part in processor.apply(parts, true, OffsetUnit::Bytes) {
            all.append(part);
        }
        assert_eq!(all.len() - bare, processor.added_tokens(pair));
        (all.ids, all.type_ids)
    }

    #[test]
    fn bert_and_roberta() {
        let bert: PostProcessor =
            serde_json::from_str(r#"{"type":"BertProcessing","sep":["[SEP]",102],"cls":["[CLS]",101]}"#)
                .unwrap();
        assert_eq!(run(&bert, vec![part(&[5], 0)]).0, [101, 5, 102]);
        let (ids, types) = run(&bert, vec![part(&[5], 0), part(&[6, 7], 1)]);
        assert_eq!(ids, [101, 5, 102, 6, 7, 102]);
        assert_eq!(types, [0, 0, 0, 1, 1, 1]);
        let roberta: PostProcessor = serde_json::from_str(
            r#"{"type":"RobertaProcessing","sep":["</s>",2],"cls":["<s>",0],"trim_offsets":true,"add_prefix_space":false}"#,
        )
        .unwrap();
        let (ids, types) = run(&roberta, vec![part(&[5], 0), part(&[6], 1)]);
        assert_eq!(ids, [0, 5, 2, 2, 6, 2]);
        assert_eq!(types, [0; 6]);
    }
}
