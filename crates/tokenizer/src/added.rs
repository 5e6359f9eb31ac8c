//! Added tokens, matched in the text before anything else.

use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};
use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use crate::{
    Error, Model, Normalizer, Result,
    models::{Codes, MAX_ID},
    normalized::NormalizedText,
    splits::{Split, Splits},
    unicode::{SPACE, WORD, is},
};

/// A token matched in the text before the model runs.
///
/// ```
/// # use cloze_tokenizer::{AddedToken, Tokenizer, Vocab};
/// let mut tokenizer = Tokenizer::bert(Vocab::from_tokens(["[UNK]", "old", "sea"])?, true)?;
/// // A whole word only, in the text as it stands, with the white space before it.
/// let ship =
///     AddedToken { single_word: true, lstrip: true, normalized: false, ..AddedToken::plain("SHIP") };
/// tokenizer.add_tokens([ship, AddedToken::special("<end>")])?;
/// let encoding = tokenizer.encode("old SHIP sea<end>", false)?;
/// assert_eq!(encoding.tokens, ["old", " SHIP", "sea", "<end>"]);
/// assert_eq!(encoding.offsets[1], (3, 8));
/// assert_eq!(tokenizer.encode("SHIPs", false)?.tokens, ["[UNK]"]);
/// assert_eq!(tokenizer.decode(&encoding.ids, true)?, "old SHIP sea");
/// # Ok::<_, cloze_tokenizer::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddedToken {
    /// Its text.
    pub content: String,
    /// Match whole words only.
    #[serde(default)]
    pub single_word: bool,
    /// Include white space on the left.
    #[serde(default)]
    pub lstrip: bool,
    /// Include white space on the right.
    #[serde(default)]
    pub rstrip: bool,
    /// Match the normalised token in the normalised text.
    #[serde(default)]
    pub normalized: bool,
    /// Omitted by decoding on request.
    #[serde(default)]
    pub special: bool,
}

impl AddedToken {
    /// A special token, matched in the unnormalised text.
    pub fn special(content: impl Into<String>) -> Self {
        Self {
            content: content.into(),
            single_word: false,
            lstrip: false,
            rstrip: false,
            normalized: false,
            special: true,
        }
    }

    /// An ordinary added token, matched in the normalised text.
    pub fn plain(content: impl Into<String>) -> Self {
        Self { normalized: true, special: false, ..Self::special(content) }
    }
}

/// The added tokens and their matchers.
#[derive(Debug, Clone, Default)]
pub(crate) struct AddedVocabulary {
    tokens: Vec<Entry>,
    by_content: HashMap<String, usize>,
    by_id: HashMap<u32, usize>,
    raw: Option<Matcher>,
    normalized: Option<Matcher>,
    /// Special tokens are not searched for.
    pub ignore_special: bool,
    /// The codes that texts, and parts after an added token, may begin with.
    pub codes: Option<Codes>,
}

/// Maximum bytes of an added token. The automaton that finds tokens needs dozens of bytes for each of their
/// bytes.
const MAX_TOKEN_BYTES: usize = 10_000;

/// Maximum bytes of all added tokens together.
const MAX_BYTES: usize = 4 << 20;

#[derive(Debug, Clone)]
struct Entry {
    id: u32,
    token: AddedToken,
    /// The normalised content, if the token is matched in normalised text.
    text: String,
}

/// Finds the leftmost, longest of some tokens.
#[derive(Debug, Clone)]
struct Matcher {
    automaton: AhoCorasick,
    /// The entry of each pattern.
    entries: Vec<usize>,
}

impl AddedVocabulary {
    /// Without tokens, for texts that may begin with codes.
    pub fn with_codes(codes: Option<Codes>) -> Self {
        Self { codes, ..Self::default() }
    }

    /// Adds tokens, with the model's id for them, else the wanted one, else the next free one.
    pub fn add(
        &mut self,
        tokens: impl IntoIterator<Item = (Option<u32>, AddedToken)>,
        model: &Model,
        normalizer: Option<&Normalizer>,
    ) -> Result<usize> {
        let mut added = 0;
        for (i, (wanted, token)) in tokens.into_iter().enumerate() {
            let at = || format!("added_tokens[{i}]");
            if token.content.is_empty() {
                return Err(Error::invalid(at(), "an added token cannot be empty"));
            }
            if token.content.len() > MAX_TOKEN_BYTES {
                let message = format!(
                    "an added token of {} bytes; expected at most {MAX_TOKEN_BYTES}",
                    token.content.len()
                );
                return Err(Error::invalid(at(), message));
            }
            let known = self.id(&token.content).or_else(|| model.vocab().id(&token.content));
            if let (Some(known), Some(wanted)) = (known, wanted)
                && known != wanted
            {
                let message =
                    format!("{:?} is given id {wanted}, but has id {known} in the vocabulary", token.content);
                return Err(Error::invalid(at(), message));
            }
            let id = known.or(wanted).unwrap_or_else(|| self.next_id(model));
            if id > MAX_ID {
                let message = format!("id {id} of {:?} is above {MAX_ID}", token.content);
                return Err(Error::invalid(at(), message));
            }
            let owner = self.by_id.get(&id).map(|&e| self.tokens[e].token.content.as_str());
            let owner = owner.or_else(|| model.vocab().token(id));
            if let Some(owner) = owner.filter(|owner| *owner != token.content) {
                let message = format!("{:?} cannot have id {id}, which is {owner:?}", token.content);
                return Err(Error::invalid(at(), message));
            }
            let entry = Entry { id, text: token.content.clone(), token };
            match self.by_id.get(&id) {
                Some(&slot) => self.tokens[slot] = entry,
                None => {
                    self.by_id.insert(id, self.tokens.len());
                    self.by_content.insert(entry.token.content.clone(), self.tokens.len());
                    self.tokens.push(entry);
                    added += 1;
                }
            }
        }
        let bytes: usize = self.tokens.iter().map(|entry| entry.token.content.len()).sum();
        if bytes > MAX_BYTES {
            let message =
                format!("the added tokens have {bytes} bytes together; expected at most {MAX_BYTES}");
            return Err(Error::invalid("added_tokens", message));
        }
        self.refresh(normalizer)?;
        Ok(added)
    }

    /// The id after the highest in use.
    fn next_id(&self, model: &Model) -> u32 {
        let highest = self.tokens.iter().map(|e| e.id + 1).max().unwrap_or(0);
        highest.max(model.vocab().iter().last().map_or(0, |(id, _)| id + 1))
    }

    /// Rebuilds what depends on the normaliser.
    pub fn refresh(&mut self, normalizer: Option<&Normalizer>) -> Result<()> {
        for entry in &mut self.tokens {
            entry.text = match normalizer {
                Some(normalizer) if entry.token.normalized => normalizer.normalize(&entry.token.content)?,
                _ => entry.token.content.clone(),
            };
        }
        let matcher = |normalized: bool| {
            // A token that normalises to nothing cannot be found.
            let wanted = |e: &Entry| e.token.normalized == normalized && !e.text.is_empty();
            let numbered = self.tokens.iter().enumerate();
            let entries: Vec<usize> = numbered.filter(|(_, e)| wanted(e)).map(|(i, _)| i).collect();
            if entries.is_empty() {
                return Ok(None);
            }
            let automaton = AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostLongest)
                .build(entries.iter().map(|&i| &self.tokens[i].text))
                .map_err(|e| Error::invalid("added_tokens", e.to_string()))?;
            Ok(Some(Matcher { automaton, entries }))
        };
        let (raw, normalized) = (matcher(false)?, matcher(true)?);
        self.raw = raw;
        self.normalized = normalized;
        Ok(())
    }

    pub fn id(&self, content: &str) -> Option<u32> {
        self.by_content.get(content).map(|&e| self.tokens[e].id)
    }

    pub fn get(&self, id: u32) -> Option<&AddedToken> {
        self.by_id.get(&id).map(|&e| &self.tokens[e].token)
    }

    /// The form a token has in decoded text.
    pub fn decoded(&self, id: u32) -> Option<&str> {
        self.by_id.get(&id).map(|&e| self.tokens[e].text.as_str())
    }

    /// All tokens with their ids, ordered by id.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &AddedToken)> {
        let mut all: Vec<_> = self.tokens.iter().map(|e| (e.id, &e.token)).collect();
        all.sort_unstable_by_key(|(id, _)| *id);
        all.into_iter()
    }

    /// Cuts the added tokens out of `text` and normalises the rest.
    pub fn split(&self, text: &str, normalizer: Option<&Normalizer>, track: bool) -> Result<Splits> {
        let mut splits = Splits::new(track);
        self.find(self.raw.as_ref(), text, &mut |range, added| {
            let mut range = range;
            let code = self.codes.as_ref().filter(|_| added.is_none());
            if let Some((end, id)) = code.and_then(|codes| codes.first(&text[range.clone()])) {
                let code = range.start..range.start + end;
                range.start = code.end;
                let piece = NormalizedText::new(&text[code.clone()], code.start, track);
                splits.push(piece, [Split { range: 0..code.len(), added: Some(id) }]);
            }
            let mut piece = NormalizedText::new(&text[range.clone()], range.start, track);
            if added.is_some() {
                splits.push(piece, [Split { range: 0..range.len(), added }]);
                return Ok(());
            }
            if let Some(normalizer) = normalizer {
                normalizer.apply(&mut piece)?;
            }
            let mut cuts = Vec::new();
            self.find(self.normalized.as_ref(), piece.text(), &mut |range, added| {
                cuts.push(Split { range, added });
                Ok(())
            })?;
            splits.push(piece, cuts);
            Ok(())
        })?;
        Ok(splits)
    }

    /// The length in bytes of the longest token matched in texts.
    pub fn longest(&self) -> usize {
        let code = self.codes.as_ref().map_or(0, |_| Codes::LONGEST);
        self.tokens.iter().map(|e| e.token.content.len().max(e.text.len())).max().unwrap_or(0).max(code)
    }

    /// Whether a text contains any token, raw or normalised.
    pub fn is_in(&self, text: &str, normalized: &str) -> bool {
        let finds =
            |matcher: &Option<Matcher>, text| matcher.as_ref().is_some_and(|m| m.automaton.is_match(text));
        finds(&self.raw, text) || finds(&self.normalized, normalized)
    }

    /// Calls `piece` with every part of `text`; matched tokens come with their ids.
    fn find(
        &self,
        matcher: Option<&Matcher>,
        text: &str,
        piece: &mut dyn FnMut(Range<usize>, Option<u32>) -> Result<()>,
    ) -> Result<()> {
        let mut done = 0;
        let found = matcher.into_iter().flat_map(|m| {
            let found = m.automaton.find_iter(text);
            found.map(|found| (m.entries[found.pattern().as_usize()], found.range()))
        });
        for (entry, range) in found {
            let Entry { id, token, .. } = &self.tokens[entry];
            if self.ignore_special && token.special {
                continue;
            }
            let (before, after) = (&text[..range.start], &text[range.end..]);
            let is_word = |c: Option<char>| c.is_some_and(|c| is(c, WORD));
            if token.single_word && (is_word(before.chars().next_back()) || is_word(after.chars().next())) {
                continue;
            }
            let is_space = |c| is(c, SPACE);
            let start = if token.lstrip { before.trim_end_matches(is_space).len() } else { range.start };
            let end =
                if token.rstrip { text.len() - after.trim_start_matches(is_space).len() } else { range.end };
            // The token before may have taken the white space.
            let start = start.max(done);
            if end <= start {
                continue;
            }
            if done < start {
                piece(done..start, None)?;
            }
            piece(start..end, Some(*id))?;
            done = end;
        }
        if done < text.len() {
            piece(done..text.len(), None)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Tokenizer, Vocab};

    fn tokens(added: AddedToken, text: &str) -> Vec<String> {
        let vocab = Vocab::from_tokens(["[UNK]", "a", "b", "##b"]).unwrap();
        let mut tokenizer = Tokenizer::bert(vocab, true).unwrap();
        tokenizer.add_tokens([added]).unwrap();
        tokenizer.encode(text, false).unwrap().tokens
    }

    #[test]
    fn flags() {
        assert_eq!(
            tokens(AddedToken::special("<X>"), "a<X>b <x>"),
            ["a", "<X>", "b", "[UNK]", "[UNK]", "[UNK]"]
        );
        assert_eq!(tokens(AddedToken::plain("<X>"), "a<X>b<x>"), ["a", "<x>", "b", "<x>"]);
        let strip = AddedToken { lstrip: true, rstrip: true, ..AddedToken::special("<X>") };
        assert_eq!(tokens(strip, "a  <X> b"), ["a", "  <X> ", "b"]);
        let word = AddedToken { single_word: true, ..AddedToken::special("bb") };
        assert_eq!(tokens(word, "abb bb"), ["a", "##b", "##b", "bb"]);
    }

    #[test]
    fn ids_that_clash_are_refused() {
        let vocab = Vocab::from_tokens(["[UNK]", "a"]).unwrap();
        let tokenizer = Tokenizer::bert(vocab, true).unwrap();
        let model = tokenizer.model();
        let mut added = AddedVocabulary::default();
        let mut error = |id, content: &str| {
            let token = (Some(id), AddedToken::special(content));
            added.add([token], model, None).unwrap_err().to_string()
        };
        assert!(error(0, "a").contains("is given id 0, but has id 1"));
        assert!(error(1, "x").contains("cannot have id 1, which is \"a\""));
        assert!(error(7, "").contains("cannot be empty"));
        assert!(error(7, &"ab".repeat(6_000)).contains("12000 bytes; expected at most 10000"));
        assert!(error(u32::MAX, "x").contains("is above"));
    }
}
