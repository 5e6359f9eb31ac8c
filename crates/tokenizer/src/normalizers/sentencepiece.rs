//! SentencePiece's normalisation as in its own library, rather than as reimplemented by
//! `tokenizers`.

use serde::{Deserialize, Serialize};

use super::Precompiled;
use crate::normalized::NormalizedText;

/// SentencePiece's symbol for a space.
const SPACE: char = '▁';

/// Rules for characters, by longest match, and for spaces: runs are collapsed, the ends are trimmed, one is
/// added in front, and all are written `▁` (Kudo & Richardson 2018).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SentencePiece {
    /// The character rules.
    pub rules: Option<Precompiled>,
    /// Whether to add a leading space.
    pub add_dummy_prefix: bool,
    /// Whether to drop spaces at the ends and repeated spaces.
    pub remove_extra_whitespaces: bool,
}

impl SentencePiece {
    pub(super) fn apply(&self, text: &mut NormalizedText) {
        let mut chars = Chars { chars: Vec::with_capacity(text.text().len()), dropped: 0 };
        let mut rest = text.text();
        let mut after_space = self.remove_extra_whitespaces;
        while let Some(first) = rest.chars().next() {
            let rule = self.rules.as_ref().and_then(|rules| rules.longest(rest));
            let (len, new) = rule.unwrap_or((first.len_utf8(), &rest[..first.len_utf8()]));
            let new = if after_space { new.trim_start_matches(' ') } else { new };
            chars.replace(rest[..len].chars().count(), new);
            if !new.is_empty() {
                after_space = self.remove_extra_whitespaces && new.ends_with(' ');
            }
            rest = &rest[len..];
        }
        if self.remove_extra_whitespaces {
            chars.trim_end();
        }
        text.transform(chars.chars, chars.dropped);
        if self.add_dummy_prefix {
            text.prepend("▁");
        }
    }
}

/// New characters with their changes, as [`NormalizedText::transform`] takes them.
struct Chars {
    chars: Vec<(char, isize)>,
    /// Old characters that are dropped at the front.
    dropped: usize,
}

impl Chars {
    /// Replaces the next `old` characters by `new`.
    fn replace(&mut self, old: usize, new: &str) {
        let visible = |c| if c == ' ' { SPACE } else { c };
        let before = self.chars.len();
        self.chars.extend(new.chars().enumerate().map(|(i, c)| (visible(c), isize::from(i >= old))));
        self.drop(old.saturating_sub(self.chars.len() - before));
    }

    /// Drops the next `n` old characters.
    fn drop(&mut self, n: usize) {
        match self.chars.iter_mut().rev().find(|(_, change)| *change <= 0) {
            Some((_, change)) => *change -= n as isize,
            None => self.dropped += n,
        }
    }

    fn trim_end(&mut self) {
        while let Some((_, change)) = self.chars.pop_if(|(c, _)| *c == SPACE) {
            if change <= 0 {
                self.drop(1 + change.unsigned_abs());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(normalizer: &SentencePiece, text: &str) -> (String, Vec<(usize, usize)>) {
        let mut text = NormalizedText::new(text, 0, true);
        normalizer.apply(&mut text);
        let (text, spans) = text.into_parts();
        (text, spans.unwrap())
    }

    #[test]
    fn extra_spaces_go_and_one_is_put_in_front() {
        let both = SentencePiece { rules: None, add_dummy_prefix: true, remove_extra_whitespaces: true };
        let (text, spans) = run(&both, "  a   é ▁ ");
        assert_eq!(text, "▁a▁é");
        let [front, space] = [(2, 3), (3, 4)].map(|span| [span; 3]);
        assert_eq!(spans, [&front[..], &[(2, 3)], &space[..], &[(6, 8); 2]].concat());
        for nothing in ["", " ", "   ", "▁", " ▁ "] {
            assert_eq!(run(&both, nothing).0, "", "{nothing:?}");
        }
        assert_eq!(run(&both, "▁a\n").0, "▁▁a\n");
        assert_eq!(run(&SentencePiece::default(), " a  b ").0, "▁a▁▁b▁");
    }
}
