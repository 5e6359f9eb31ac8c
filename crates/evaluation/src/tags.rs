//! From tags to entities, in seqeval's two ways.

use super::entities::Span;
use crate::{EvaluationError, Result};

/// How tags encode entities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// `I-` throughout, `B-` only for an entity that follows one of its own type (Ramshaw & Marcus
    /// 1995).
    Iob1,
    /// `B-` at the start, `I-` inside: BIO.
    Iob2,
    /// Like BIO, with `E-` at the end and `S-` for a single word: BIOES.
    Iobes,
}

/// A tag's first letter and the type after it: `B-PER` is `('B', "PER")`.
type Tag<'a> = (char, &'a str);

const OUTSIDE: Tag<'static> = ('O', "_");

/// The entities of one sentence's tags in any scheme: an entity also starts if its first tag is missing,
/// as in the CoNLL script and seqeval's default mode. Words without a tag are outside.
pub fn entities<T: AsRef<str>>(tags: &[T]) -> Vec<Span> {
    let mut spans = Vec::new();
    let mut start = 0;
    let mut before = ('O', "");
    for (i, tag) in tags.iter().map(|tag| split(tag.as_ref())).chain([OUTSIDE]).enumerate() {
        let other_type = before.1 != tag.1;
        let ends = match before.0 {
            'E' | 'S' => true,
            'B' | 'I' if matches!(tag.0, 'B' | 'S' | 'O') => true,
            'O' | '.' => false,
            _ => other_type,
        };
        if ends {
            spans.push(Span { label: before.1.into(), start, end: i });
        }
        let starts = match tag.0 {
            'B' | 'S' => true,
            'E' | 'I' if matches!(before.0, 'E' | 'S' | 'O') => true,
            'O' | '.' => false,
            _ => other_type,
        };
        if starts {
            start = i;
        }
        before = tag;
    }
    spans
}

/// The entities of one sentence's tags that follow `scheme` exactly; anything else is not an entity,
/// as in seqeval's strict mode.
///
/// # Errors
/// [`EvaluationError::BadTag`] for a tag that the scheme does not have.
pub fn strict_entities<'a, T: AsRef<str>>(tags: &'a [T], scheme: Scheme) -> Result<Vec<Span>> {
    let parse = |(i, tag): (usize, &'a T)| {
        let tag = tag.as_ref();
        scheme.parse(tag).ok_or_else(|| scheme.refuse(i, tag))
    };
    let mut tags: Vec<Tag<'a>> = tags.iter().enumerate().map(parse).collect::<Result<_>>()?;
    tags.push(OUTSIDE);
    let mut spans = Vec::new();
    let mut before = OUTSIDE;
    let mut start = 0;
    while start < tags.len() {
        let mut end = start + 1;
        if scheme.starts(before, tags[start]) {
            // The last tag, outside, is inside of nothing and starts nothing.
            while scheme.continues(tags[end - 1], tags[end]) {
                end += 1;
            }
            if scheme.ends(tags[end - 1], tags[end]) {
                spans.push(Span { label: tags[start].1.into(), start, end });
            }
        }
        before = tags[end - 1];
        start = end;
    }
    Ok(spans)
}

/// The first letter and what follows it and its hyphen; `_` stands for no type.
fn split(tag: &str) -> Tag<'_> {
    let mut letters = tag.chars();
    let Some(first) = letters.next() else { return OUTSIDE };
    let rest = letters.as_str();
    let label = rest.split_once('-').map_or(rest, |(_, label)| label);
    (first, if label.is_empty() { OUTSIDE.1 } else { label })
}

impl Scheme {
    /// Its name and its letters.
    fn description(self) -> (&'static str, &'static str) {
        match self {
            Self::Iob1 => ("IOB1", "IOB"),
            Self::Iob2 => ("BIO", "IOB"),
            Self::Iobes => ("BIOES", "IOBES"),
        }
    }

    fn parse(self, tag: &str) -> Option<Tag<'_>> {
        let first = tag.chars().next().filter(|first| self.description().1.contains(*first))?;
        let label = tag[1..].trim_matches('-');
        Some((first, if label.is_empty() { OUTSIDE.1 } else { label }))
    }

    fn refuse(self, position: usize, tag: &str) -> EvaluationError {
        let (scheme, letters) = self.description();
        EvaluationError::BadTag { position, tag: tag.into(), scheme, letters }
    }

    fn starts(self, before: Tag<'_>, tag: Tag<'_>) -> bool {
        let same = before.1 == tag.1;
        match (self, before.0, tag.0) {
            (Self::Iob1, 'O' | 'B', 'I') => true,
            (Self::Iob1, 'I', 'I') => !same,
            (Self::Iob1, 'I' | 'B', 'B') => same,
            (Self::Iob2 | Self::Iobes, _, 'B') | (Self::Iobes, _, 'S') => true,
            _ => false,
        }
    }

    fn continues(self, before: Tag<'_>, tag: Tag<'_>) -> bool {
        let inside = tag.0 == 'I' || (self == Self::Iobes && tag.0 == 'E');
        inside && matches!(before.0, 'B' | 'I') && before.1 == tag.1
    }

    fn ends(self, before: Tag<'_>, tag: Tag<'_>) -> bool {
        let same = before.1 == tag.1;
        match (self, before.0, tag.0) {
            (Self::Iobes, last, _) => matches!(last, 'E' | 'S'),
            (_, 'I' | 'B', 'O') | (_, 'I', 'B') => true,
            (_, 'I' | 'B', 'I') => !same,
            (Self::Iob1, 'B', 'B') => same,
            (Self::Iob2, 'B', 'B') => true,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(label: &str, start: usize, end: usize) -> Span {
        Span { label: label.into(), start, end }
    }

    #[test]
    fn lenient_takes_what_strict_refuses() {
        let tags = ["I-PER", "I-PER", "O", "B-LOC", "I-PER"];
        assert_eq!(entities(&tags), [span("PER", 0, 2), span("LOC", 3, 4), span("PER", 4, 5)]);
        assert_eq!(strict_entities(&tags, Scheme::Iob2).unwrap(), [span("LOC", 3, 4)]);
        assert_eq!(strict_entities(&tags, Scheme::Iobes).unwrap(), []);
    }

    #[test]
    fn any_text_is_a_tag() {
        assert_eq!(entities(&["", "É-x", "-", "O-", "B"]).last(), Some(&span("_", 4, 5)));
        assert_eq!(entities::<&str>(&[]), []);
        let error = strict_entities(&["O", "É-x"], Scheme::Iob2).unwrap_err();
        assert_eq!(
            error.to_string(),
            "word 1: the tag \"É-x\" is not BIO; expected one that starts with I, O or B"
        );
        assert!(strict_entities(&["E-PER"], Scheme::Iob1).is_err());
        assert!(strict_entities(&[""], Scheme::Iobes).is_err());
    }
}
