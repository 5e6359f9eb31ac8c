//! Special tokens by template, such as `[CLS] $A [SEP] $B:1 [SEP]:1`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Encoding, Error, Result};

/// The templates for one text and for two, with the tokens they use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TemplateProcessing {
    /// For one text.
    pub single: Vec<TemplatePiece>,
    /// For two.
    pub pair: Vec<TemplatePiece>,
    /// The tokens, by name.
    pub special_tokens: BTreeMap<String, SpecialToken>,
}

/// One element of a template.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum TemplatePiece {
    /// The pieces of a text.
    Sequence {
        /// Which.
        id: TemplateSequence,
        /// Their type id.
        type_id: u32,
    },
    /// A special token.
    SpecialToken {
        /// Its name in `special_tokens`.
        id: String,
        /// Its type id.
        type_id: u32,
    },
}

/// The first text or the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TemplateSequence {
    /// The first.
    A,
    /// The second.
    B,
}

/// A named special token, which may be several pieces.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpecialToken {
    /// Its name.
    pub id: String,
    /// Its ids.
    pub ids: Vec<u32>,
    /// Its pieces, one for each id.
    pub tokens: Vec<String>,
}

impl TemplateProcessing {
    /// Templates with their special tokens, by token and id.
    pub(crate) fn with(
        single: Vec<TemplatePiece>,
        pair: Vec<TemplatePiece>,
        tokens: impl IntoIterator<Item = (String, u32)>,
    ) -> Self {
        let special_tokens = tokens.into_iter().map(|(token, id)| {
            let special = SpecialToken { id: token.clone(), ids: vec![id], tokens: vec![token.clone()] };
            (token, special)
        });
        Self { single, pair, special_tokens: special_tokens.collect() }
    }

    /// `cls A sep`, or `cls A sep B:1 sep:1`, from tokens and their ids.
    pub fn bert(cls: (&str, u32), sep: (&str, u32)) -> Self {
        let special = |token: &str, type_id| TemplatePiece::SpecialToken { id: token.to_owned(), type_id };
        let text = |id, type_id| TemplatePiece::Sequence { id, type_id };
        let single = vec![special(cls.0, 0), text(TemplateSequence::A, 0), special(sep.0, 0)];
        let mut pair = single.clone();
        pair.extend([text(TemplateSequence::B, 1), special(sep.0, 1)]);
        Self::with(single, pair, [cls, sep].map(|(token, id)| (token.to_owned(), id)))
    }

    /// `bos A`, or `bos A B:1`, from the token and its id.
    pub fn prefix(bos: (&str, u32)) -> Self {
        let first = TemplatePiece::Sequence { id: TemplateSequence::A, type_id: 0 };
        let second = TemplatePiece::Sequence { id: TemplateSequence::B, type_id: 1 };
        let single = vec![TemplatePiece::SpecialToken { id: bos.0.to_owned(), type_id: 0 }, first];
        let mut pair = single.clone();
        pair.push(second);
        Self::with(single, pair, [(bos.0.to_owned(), bos.1)])
    }

    /// Llama's `bos A eos`, or `bos A eos bos:1 B:1 eos:1`, omitting a missing one.
    pub(crate) fn ends([bos, eos]: [Option<(String, u32)>; 2]) -> Self {
        let around = |id, type_id| {
            let special = |token: &Option<(String, u32)>| {
                let (token, _) = token.as_ref()?;
                Some(TemplatePiece::SpecialToken { id: token.clone(), type_id })
            };
            let text = TemplatePiece::Sequence { id, type_id };
            special(&bos).into_iter().chain([text]).chain(special(&eos)).collect::<Vec<_>>()
        };
        let single = around(TemplateSequence::A, 0);
        let pair = [single.clone(), around(TemplateSequence::B, 1)].concat();
        Self::with(single, pair, bos.into_iter().chain(eos))
    }

    /// `A eos`, or `A B eos`, from the token and its id.
    pub fn suffix(eos: (&str, u32)) -> Self {
        let text = |id| TemplatePiece::Sequence { id, type_id: 0 };
        let end = TemplatePiece::SpecialToken { id: eos.0.to_owned(), type_id: 0 };
        let single = vec![text(TemplateSequence::A), end.clone()];
        let pair = vec![text(TemplateSequence::A), text(TemplateSequence::B), end];
        Self::with(single, pair, [(eos.0.to_owned(), eos.1)])
    }

    /// Number of tokens added.
    pub(super) fn added_tokens(&self, pair: bool) -> usize {
        let template = if pair { &self.pair } else { &self.single };
        let added = template.iter().map(|piece| match piece {
            TemplatePiece::Sequence { .. } => 0,
            TemplatePiece::SpecialToken { id, .. } => self.special_tokens.get(id).map_or(0, |t| t.ids.len()),
        });
        added.sum()
    }

    /// Checks that every token in the templates exists and has one piece per id.
    pub(super) fn check(&self, at: &str) -> Result<()> {
        for (name, template, texts) in [("single", &self.single, 1), ("pair", &self.pair, 2)] {
            for (i, piece) in template.iter().enumerate() {
                let at = || format!("{at}.{name}[{i}]");
                match piece {
                    TemplatePiece::SpecialToken { id, .. } => {
                        let Some(token) = self.special_tokens.get(id) else {
                            let message = format!("{id:?} is not in special_tokens");
                            return Err(Error::invalid(at(), message));
                        };
                        if token.ids.len() != token.tokens.len() {
                            let message = format!("{id:?} needs as many ids as tokens");
                            return Err(Error::invalid(at(), message));
                        }
                    }
                    TemplatePiece::Sequence { id, .. } => {
                        if *id == TemplateSequence::B && texts == 1 {
                            let message = "a template for one text cannot use the second, B";
                            return Err(Error::invalid(at(), message));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Adds the special tokens' ids around the ids of one text, which begin at `start` of `ids`.
    pub(super) fn apply_to_ids(&self, ids: &mut Vec<u32>, start: usize, add_special: bool) {
        // What the template makes is appended; then the text's own ids are removed.
        let end = ids.len();
        for piece in &self.single {
            match piece {
                TemplatePiece::Sequence { id: TemplateSequence::A, .. } => ids.extend_from_within(start..end),
                TemplatePiece::SpecialToken { id, .. } if add_special => {
                    ids.extend(self.special_tokens.get(id).into_iter().flat_map(|token| &token.ids));
                }
                _ => {}
            }
        }
        ids.drain(start..end);
    }

    pub(super) fn apply(&self, mut parts: Vec<Encoding>, add_special: bool) -> Vec<Encoding> {
        let template = if parts.len() > 1 { &self.pair } else { &self.single };
        let mut out = Vec::with_capacity(template.len());
        for (i, piece) in template.iter().enumerate() {
            match piece {
                TemplatePiece::Sequence { id, type_id } => {
                    if let Some(part) = parts.get_mut(*id as usize) {
                        part.set_type_ids(*type_id);
                        let again = |other: &TemplatePiece| matches!(other, TemplatePiece::Sequence { id: other, .. } if other == id);
                        let more = template[i + 1..].iter().any(again);
                        out.push(if more { part.clone() } else { std::mem::take(part) });
                    }
                }
                TemplatePiece::SpecialToken { id, type_id } => {
                    if let (true, Some(special)) = (add_special, self.special_tokens.get(id)) {
                        let mut part = Encoding::default();
                        for (id, token) in special.ids.iter().zip(&special.tokens) {
                            part.push_special(*id, token, *type_id);
                        }
                        out.push(part);
                    }
                }
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_are_refused() {
        let mut template = TemplateProcessing::bert(("[CLS]", 1), ("[SEP]", 2));
        assert!(template.check("post_processor").is_ok());
        assert_eq!((template.added_tokens(false), template.added_tokens(true)), (2, 3));
        template.special_tokens.remove("[SEP]");
        let error = template.check("post_processor").unwrap_err().to_string();
        assert_eq!(error, "post_processor.single[2]: \"[SEP]\" is not in special_tokens");
    }
}
