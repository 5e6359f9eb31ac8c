use crate::{ModelError, Result};

/// How tags mark the entities that they stand for, each by a letter before its type: `B-PER`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TagScheme {
    /// `B` begins each entity and `I` goes on with it; also called IOB2.
    Bio,
    /// `I` for all of an entity; `B` only where one begins right after another of its type.
    Iob1,
    /// `B`, `I` and `E` begin, go on with and end an entity of several words, `S` is one of a single word.
    Bioes,
}

/// Which tags may begin a sequence, which may follow which, and which may end it.
///
/// ```
/// # use cloze_model::tasks::{TagRules, TagScheme};
/// let rules = TagRules::of_scheme(TagScheme::Bio, &["O", "B-PER", "I-PER", "B-LOC", "I-LOC"])?;
/// assert!(rules.allow(&[0, 1, 2]));
/// assert!(!rules.allow(&[0, 1, 4]));
/// assert!(!rules.begins(2));
/// # Ok::<(), cloze_model::ModelError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TagRules {
    begins: Vec<bool>,
    /// `[from, to]`
    follows: Vec<bool>,
    ends: Vec<bool>,
}

impl TagRules {
    /// Rules for `n_tags` tags, of which the second of each pair may follow the first; any may begin and end.
    ///
    /// # Panics
    /// If a tag is not below `n_tags`.
    pub fn from_pairs(n_tags: usize, pairs: impl IntoIterator<Item = (usize, usize)>) -> Self {
        let mut follows = vec![false; n_tags * n_tags];
        for (from, to) in pairs {
            assert!(from < n_tags && to < n_tags, "pair ({from}, {to}) of {n_tags} tags");
            follows[from * n_tags + to] = true;
        }
        Self { begins: vec![true; n_tags], follows, ends: vec![true; n_tags] }
    }

    /// Which tags may begin a sequence.
    pub fn with_begins(mut self, begins: impl Fn(usize) -> bool) -> Self {
        self.begins.iter_mut().enumerate().for_each(|(tag, allowed)| *allowed = begins(tag));
        self
    }

    /// Which tags may end a sequence.
    pub fn with_ends(mut self, ends: impl Fn(usize) -> bool) -> Self {
        self.ends.iter_mut().enumerate().for_each(|(tag, allowed)| *allowed = ends(tag));
        self
    }

    /// The rules of a scheme for tags of these names.
    ///
    /// # Errors
    /// A tag that is neither `O` nor one of the scheme's letters with a type after a hyphen, or alone.
    pub fn of_scheme(scheme: TagScheme, tags: &[impl AsRef<str>]) -> Result<Self> {
        let tags = tags.iter().map(|tag| Tag::read(scheme, tag.as_ref())).collect::<Result<Vec<_>>>()?;
        let n_tags = tags.len();
        let pairs = (0..n_tags).flat_map(|from| (0..n_tags).map(move |to| (from, to)));
        let pairs = pairs.filter(|(from, to)| scheme.follows(Some(tags[*from]), Some(tags[*to])));
        Ok(Self::from_pairs(n_tags, pairs)
            .with_begins(|tag| scheme.follows(None, Some(tags[tag])))
            .with_ends(|tag| scheme.follows(Some(tags[tag]), None)))
    }

    /// How many tags there are.
    pub fn n_tags(&self) -> usize {
        self.begins.len()
    }

    /// Whether a sequence may begin with this tag.
    pub fn begins(&self, tag: usize) -> bool {
        self.begins[tag]
    }

    /// Whether `to` may stand after `from`.
    pub fn follows(&self, from: usize, to: usize) -> bool {
        self.follows[from * self.n_tags() + to]
    }

    /// Whether a sequence may end with this tag.
    pub fn ends(&self, tag: usize) -> bool {
        self.ends[tag]
    }

    /// Whether a whole sequence keeps to the rules.
    pub fn allow(&self, tags: &[usize]) -> bool {
        tags.first().is_none_or(|tag| self.begins(*tag))
            && tags.windows(2).all(|pair| self.follows(pair[0], pair[1]))
            && tags.last().is_none_or(|tag| self.ends(*tag))
    }
}

/// A tag's letter and type.
#[derive(Clone, Copy)]
struct Tag<'a> {
    letter: char,
    kind: &'a str,
}

impl<'a> Tag<'a> {
    fn read(scheme: TagScheme, name: &'a str) -> Result<Self> {
        let (letter, kind) = name.split_once('-').unwrap_or((name, ""));
        let mut letters = letter.chars();
        match (letters.next(), letters.next()) {
            (Some(letter), None) if letter == 'O' && kind.is_empty() || scheme.letters().contains(letter) => {
                Ok(Self { letter, kind })
            }
            _ => Err(ModelError::Config(format!(
                "tag `{name}` is none of the scheme's: expected `O`, or one of the letters {} before a hyphen \
                 and the type",
                scheme.letters()
            ))),
        }
    }
}

impl TagScheme {
    fn letters(self) -> &'static str {
        match self {
            Self::Bio | Self::Iob1 => "BI",
            Self::Bioes => "BIES",
        }
    }

    /// Whether `to` may stand after `from`; none is the sequence's begin or end.
    fn follows(self, from: Option<Tag<'_>>, to: Option<Tag<'_>>) -> bool {
        let same = matches!((from, to), (Some(from), Some(to)) if from.kind == to.kind);
        let letter = |tag: Option<Tag<'_>>| tag.map_or('O', |tag| tag.letter);
        let (from, to) = (letter(from), letter(to));
        match self {
            Self::Bio => to != 'I' || same && from != 'O',
            Self::Iob1 => to != 'B' || same && from != 'O',
            Self::Bioes => {
                let open = matches!(from, 'B' | 'I');
                let goes_on = matches!(to, 'I' | 'E');
                open == goes_on && (!open || same)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes() {
        // Whether each sequence is one of the scheme's.
        for (scheme, right, wrong) in [
            (
                TagScheme::Bio,
                vec!["", "O O", "B-A", "B-A I-A O B-B", "B-A B-A", "B-A B-B I-B"],
                vec!["I-A", "O I-A", "B-A I-B", "B-A O I-A"],
            ),
            (
                TagScheme::Iob1,
                vec!["", "O O", "I-A", "I-A I-A O I-B", "I-A B-A I-A", "I-A I-B", "I-A B-A B-A"],
                vec!["B-A", "O B-A", "I-A B-B"],
            ),
            (
                TagScheme::Bioes,
                vec!["", "O O", "S-A", "B-A E-A O S-B", "B-A I-A I-A E-A S-A", "S-A S-B B-B E-B"],
                vec!["B-A", "I-A", "E-A", "B-A O", "B-A E-B", "B-A B-A E-A", "S-A I-A", "O E-A", "B-A S-A"],
            ),
        ] {
            let letters = scheme.letters().chars();
            let mut tags: Vec<String> =
                letters.flat_map(|letter| ["A", "B"].map(|kind| format!("{letter}-{kind}"))).collect();
            tags.insert(2, "O".to_string());
            let rules = TagRules::of_scheme(scheme, &tags).unwrap();
            let allow = |sequence: &str| {
                let place = |name: &str| tags.iter().position(|tag| tag == name).unwrap();
                rules.allow(&sequence.split_whitespace().map(place).collect::<Vec<_>>())
            };
            right.into_iter().for_each(|sequence| assert!(allow(sequence), "{scheme:?}: {sequence}"));
            wrong.into_iter().for_each(|sequence| assert!(!allow(sequence), "{scheme:?}: {sequence}"));
        }
    }

    #[test]
    fn other_tags_are_named() {
        for name in ["E-PER", "PER", "", "O-PER", "BB-PER"] {
            let message = TagRules::of_scheme(TagScheme::Bio, &["O", name]).unwrap_err().to_string();
            assert!(message.contains(&format!("tag `{name}` is none")), "{message}");
        }
    }
}
