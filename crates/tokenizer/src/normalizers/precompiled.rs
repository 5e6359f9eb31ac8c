//! SentencePiece's normalisation rules, compiled into a trie.

use std::ops::Range;

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use unicode_segmentation::UnicodeSegmentation;

use crate::{Error, Result, normalized::NormalizedText};

/// The rules of a SentencePiece model: characters and character sequences with their replacements.
///
/// The compiled form is the length in bytes of a double-array trie (little-endian, 32 bits), the trie's
/// units (the same, as the Darts-clone library writes them), and the replacements, each ended by a zero
/// byte. As in the reference, a grapheme cluster of less than six bytes is replaced by the shortest rule
/// that is a prefix of it; otherwise every character is looked up alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Fields", into = "Fields")]
pub struct Precompiled {
    /// The compiled form.
    charsmap: Vec<u8>,
    units: Vec<u32>,
    replacements: String,
    /// The replacements of ASCII characters.
    ascii: Vec<Option<Range<usize>>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    precompiled_charsmap: String,
}

impl TryFrom<Fields> for Precompiled {
    type Error = String;

    fn try_from(fields: Fields) -> Result<Self, String> {
        let charsmap = STANDARD.decode(&fields.precompiled_charsmap);
        let charsmap = charsmap.map_err(|e| format!("precompiled_charsmap: not base64: {e}"))?;
        Self::parse(charsmap).map_err(|message| format!("precompiled_charsmap: {message}"))
    }
}

impl From<Precompiled> for Fields {
    fn from(rules: Precompiled) -> Self {
        Self { precompiled_charsmap: STANDARD.encode(&rules.charsmap) }
    }
}

/// A unit of a Darts-clone trie.
#[derive(Clone, Copy)]
struct Unit(u32);

impl Unit {
    fn has_leaf(self) -> bool {
        self.0 >> 8 & 1 == 1
    }

    /// The value of a leaf.
    fn value(self) -> usize {
        (self.0 & 0x7FFF_FFFF) as usize
    }

    /// The byte that leads here; a leaf has none.
    fn label(self) -> u32 {
        self.0 & 0x8000_00FF
    }

    fn offset(self) -> usize {
        ((self.0 >> 10) << ((self.0 & 1 << 9) >> 6)) as usize
    }
}

/// Longer grapheme clusters are looked up character by character.
const LONGEST_CLUSTER: usize = 5;

impl Precompiled {
    /// Reads the compiled form.
    ///
    /// # Errors
    /// It is truncated, its text is not UTF-8, or a rule points outside it.
    pub fn new(charsmap: Vec<u8>) -> Result<Self> {
        Self::parse(charsmap).map_err(|message| Error::invalid("precompiled_charsmap", message))
    }

    fn parse(charsmap: Vec<u8>) -> Result<Self, String> {
        let (&size, rest) = charsmap.split_first_chunk().ok_or("too short for the size of its trie")?;
        let size = u32::from_le_bytes(size) as usize / 4 * 4;
        if size == 0 || size > rest.len() {
            let message = format!("a trie of {size} bytes, and {} bytes follow", rest.len());
            return Err(message);
        }
        let (units, replacements) = rest.split_at(size);
        let units = units.chunks_exact(4);
        let units = units.map(|u| u32::from_le_bytes([u[0], u[1], u[2], u[3]])).collect();
        let replacements = String::from_utf8(replacements.to_vec())
            .map_err(|e| format!("its replacements are not UTF-8: {e}"))?;
        let mut rules = Self { charsmap, units, replacements, ascii: Vec::new() };
        rules.check()?;
        rules.ascii = (0..128u8).map(|byte| rules.find(&[byte])).collect();
        Ok(rules)
    }

    /// The compiled form.
    pub fn charsmap(&self) -> &[u8] {
        &self.charsmap
    }

    /// Every value in the trie must be a position in the replacements.
    fn check(&self) -> Result<(), String> {
        let mut seen = vec![false; self.units.len()];
        let mut open = vec![Unit(self.units[0]).offset()];
        while let Some(node) = open.pop() {
            for byte in 1..=255 {
                let Some(leaf) = self.child(node, byte) else {
                    continue;
                };
                let (next, value) = leaf;
                if let Some(value) = value
                    && !self.replacements.is_char_boundary(value)
                {
                    return Err(format!("a rule points to byte {value}, where no character begins"));
                }
                if let Some(seen) = seen.get_mut(next)
                    && !std::mem::replace(seen, true)
                {
                    open.push(next);
                }
            }
        }
        Ok(())
    }

    /// The child of a node by `byte`, and its value, if any. A node is identified by its children's
    /// position.
    fn child(&self, node: usize, byte: u8) -> Option<(usize, Option<usize>)> {
        let at = node ^ usize::from(byte);
        let unit = Unit(*self.units.get(at)?);
        if unit.label() != u32::from(byte) {
            return None;
        }
        let next = at ^ unit.offset();
        let leaf = self.units.get(next).filter(|_| unit.has_leaf());
        Some((next, leaf.map(|&leaf| Unit(leaf).value())))
    }

    /// The replacement of the shortest rule that is a prefix of `key`.
    fn find(&self, key: &[u8]) -> Option<Range<usize>> {
        let mut node = Unit(self.units[0]).offset();
        for &byte in key {
            // The trie's own end mark.
            if byte == 0 {
                return None;
            }
            let (next, value) = self.child(node, byte)?;
            if let Some(start) = value {
                let rest = self.replacements.get(start..)?;
                return Some(start..start + rest.find('\0').unwrap_or(rest.len()));
            }
            node = next;
        }
        None
    }

    /// The longest rule that `text` begins with: its length and replacement.
    pub(super) fn longest(&self, text: &str) -> Option<(usize, &str)> {
        let mut node = Unit(self.units[0]).offset();
        let mut longest = None;
        for (at, &byte) in text.as_bytes().iter().enumerate() {
            // The trie's own end mark.
            if byte == 0 {
                break;
            }
            let Some((next, value)) = self.child(node, byte) else {
                break;
            };
            if let Some(start) = value.filter(|_| text.is_char_boundary(at + 1)) {
                longest = Some((at + 1, start));
            }
            node = next;
        }
        let (len, start) = longest?;
        let rest = self.replacements.get(start..)?;
        Some((len, rest.split('\0').next().unwrap_or(rest)))
    }

    /// Calls `part` with the parts of `text`, in order, and the replacements of those that change.
    fn parts<'a>(&'a self, text: &'a str, mut part: impl FnMut(&'a str, Option<&'a str>)) {
        let bytes = text.as_bytes();
        let replacement = |range: Range<usize>| &self.replacements[range];
        let mut start = 0;
        while start < bytes.len() {
            // An ASCII character before another is a cluster of its own, but for a line end of two.
            let next = bytes.get(start + 1).copied().unwrap_or(b' ');
            if bytes[start].is_ascii() && next.is_ascii() && (bytes[start], next) != (b'\r', b'\n') {
                let rule = self.ascii[usize::from(bytes[start])].clone();
                part(&text[start..start + 1], rule.map(replacement));
                start += 1;
                continue;
            }
            for cluster in text[start..].graphemes(true) {
                start += cluster.len();
                let short = cluster.len() <= LONGEST_CLUSTER;
                if let Some(rule) = short.then(|| self.find(cluster.as_bytes())).flatten() {
                    part(cluster, Some(replacement(rule)));
                } else {
                    let mut at = 0;
                    for c in cluster.chars() {
                        let c = &cluster[at..at + c.len_utf8()];
                        at += c.len();
                        part(c, self.find(c.as_bytes()).map(replacement));
                    }
                }
                if bytes.get(start).is_some_and(u8::is_ascii) {
                    break;
                }
            }
        }
    }

    pub(super) fn apply(&self, text: &mut NormalizedText) {
        let mut changed = false;
        self.parts(text.text(), |old, new| changed |= new.is_some_and(|new| new != old));
        if !changed {
            return;
        }
        let mut chars: Vec<(char, isize)> = Vec::with_capacity(text.text().len());
        self.parts(text.text(), |old, new| {
            let Some(new) = new else {
                chars.extend(old.chars().map(|c| (c, 0)));
                return;
            };
            let (before, after) = (old.chars().count(), new.chars().count());
            chars.extend(new.chars().enumerate().map(|(i, c)| (c, isize::from(i >= before))));
            if after < before
                && let Some((_, change)) = chars.last_mut()
            {
                *change -= (before - after) as isize;
            }
        });
        text.transform(chars, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rules for single ASCII characters: a root and leaves, in one block.
    fn compiled(rules: &[(u8, &str)]) -> Vec<u8> {
        let mut units = vec![0u32; 512];
        units[0] = 256 << 10;
        let mut text = Vec::new();
        for (i, (byte, new)) in rules.iter().enumerate() {
            let at = 256 ^ usize::from(*byte);
            // The leaves lie in the first block.
            let leaf = 1 + i;
            units[at] = ((at ^ leaf) as u32) << 10 | 1 << 8 | u32::from(*byte);
            units[leaf] = 1 << 31 | text.len() as u32;
            text.extend(new.bytes().chain([0]));
        }
        let mut bytes = 2048u32.to_le_bytes().to_vec();
        bytes.extend(units.into_iter().flat_map(u32::to_le_bytes));
        bytes.extend(text);
        bytes
    }

    fn run(rules: &[(u8, &str)], text: &str) -> (String, Option<Vec<(usize, usize)>>) {
        let mut text = NormalizedText::new(text, 0, true);
        Precompiled::new(compiled(rules)).unwrap().apply(&mut text);
        text.into_parts()
    }

    #[test]
    fn replaces_inserts_and_removes() {
        let rules = [(b'a', "xyz"), (b'b', ""), (b'c', "c")];
        let (text, spans) = run(&rules, "dabé");
        assert_eq!(text, "dxyzé");
        assert_eq!(spans.unwrap(), [(0, 1), (1, 2), (1, 2), (2, 3), (3, 5), (3, 5)]);
        assert_eq!(run(&rules, "ccé\r\nd").0, "ccé\r\nd");
    }

    #[test]
    fn the_shortest_rule_takes_the_whole_cluster() {
        assert_eq!(run(&[(b'e', "E")], "e\u{301}e").0, "EE");
        assert_eq!(run(&[(b'e', "E")], "e\u{301}\u{301}\u{301}e").0, "E\u{301}\u{301}\u{301}E");
        assert_eq!(run(&[(b'\r', " ")], "a\r\nb").0, "a b");
    }

    #[test]
    fn written_back_unchanged() {
        let json = serde_json::to_string(&Precompiled::new(compiled(&[(b'a', "b")])).unwrap()).unwrap();
        let again: Precompiled = serde_json::from_str(&json).unwrap();
        assert_eq!(serde_json::to_string(&again).unwrap(), json);
    }

    #[test]
    fn damaged_rules_are_refused() {
        let error = |bytes: &[u8]| Precompiled::new(bytes.to_vec()).unwrap_err().to_string();
        assert!(error(b"").contains("too short"));
        assert!(error(&[0, 0, 0, 0, 65]).contains("a trie of 0 bytes"));
        assert!(error(&[8, 0, 0, 0, 65]).contains("a trie of 8 bytes, and 1 bytes follow"));
        let mut bytes = compiled(&[(b'a', "é")]);
        bytes.truncate(bytes.len() - 2);
        assert!(error(&bytes).contains("not UTF-8"));
        let mut bytes = compiled(&[(b'a', "é")]);
        bytes[4 + 4] = 1;
        assert!(error(&bytes).contains("a rule points to byte 1"));
        let base64 = serde_json::from_str::<Precompiled>(r#"{"precompiled_charsmap":"!"}"#);
        assert!(base64.unwrap_err().to_string().contains("not base64"));
    }
}
