//! Schemes that encode entities as one tag per word.

use super::labels::LabelSet;
use super::tagged::TaggedSentence;
use crate::{DataError, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// How tags encode entities, or that tags are plain word classes. For entities: `O` outside, else a prefix
/// and the entity type, as in `B-PER`.
///
/// | | `Ann`, `Bob Lee` and `I` as persons, one right after the other |
/// | --- | --- |
/// | IOB1 | `I-PER`, `B-PER I-PER`, `B-PER` |
/// | BIO | `B-PER`, `B-PER I-PER`, `B-PER` |
/// | BIOES | `S-PER`, `B-PER E-PER`, `S-PER` |
///
/// ```
/// # use cloze_data::labelled::TagScheme;
/// let iob1 = ["I-PER", "O", "I-LOC", "B-LOC"];
/// assert_eq!(TagScheme::detect([&iob1[..]])?, TagScheme::Iob1);
/// let spans = TagScheme::Iob1.spans(&iob1)?;
/// assert_eq!(TagScheme::Bioes.tags(&spans, 4), ["S-PER", "O", "S-LOC", "S-LOC"]);
/// # Ok::<_, cloze_data::DataError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TagScheme {
    /// `I-`; `B-` only for an entity that follows another of its type (Ramshaw & Marcus 1995).
    Iob1,
    /// `B-` at the start, `I-` inside; also called IOB2.
    #[default]
    Bio,
    /// Also `E-` at the end and `S-` for single words. BILOU's `L-` and `U-` are equivalent.
    Bioes,
    /// No entities: each tag is the class of its word, such as a part of speech. Each word is then a span
    /// whose type is its tag.
    Words,
}

/// An entity: words `start..end` of a sentence, and its type.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TagSpan {
    /// The first word.
    pub start: usize,
    /// The word after the last.
    pub end: usize,
    /// The type, such as `PER`.
    pub kind: String,
}

/// The tags that may follow one another, as ids of a [`LabelSet`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transitions {
    /// From a tag to the next, ascending.
    pub pairs: Vec<(usize, usize)>,
    /// Tags that a sentence may begin with, ascending.
    pub starts: Vec<usize>,
    /// Tags that a sentence may end with, ascending.
    pub ends: Vec<usize>,
}

/// A tag's prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Prefix {
    Begin,
    Inside,
    End,
    Single,
}

/// A tag; `None` is `O`, which also precedes and follows a sentence.
type Tag<'a> = Option<(Prefix, &'a str)>;

/// Whether a column looks like a tag of any scheme.
pub(super) fn looks_like_tag(tag: &str) -> bool {
    parse(tag).is_some()
}

/// The problem with a sentence's tags, if any. They must mark entities and, given `labels`, only entities of
/// those types.
pub(super) fn bad_entity_tag(tags: &[String], labels: Option<&LabelSet>) -> Option<String> {
    let kind = |tag| parse(tag).flatten().map(|(_, kind)| kind);
    tags.iter().zip(1..).find_map(|(tag, word)| {
        if parse(tag).is_none() {
            return Some(format!(
                "word {word}: `{tag}` is not an entity tag; {EXPECTED}, or `scheme` = \"words\" if tags are classes of words"
            ));
        }
        let labels = labels?;
        let is_known = kind(tag).is_none() || labels.names().iter().any(|label| kind(label) == kind(tag));
        (!is_known).then(|| format!("word {word}: tag `{tag}`, expected one of {}", labels.shown()))
    })
}

/// The problem with a sentence's tags, if any; they must be among `labels`.
pub(super) fn unknown_tag(tags: &[String], labels: &LabelSet) -> Option<String> {
    let (tag, word) = tags.iter().zip(1..).find(|(tag, _)| labels.id(tag).is_none())?;
    Some(format!("word {word}: tag `{tag}`, expected one of {}", labels.shown()))
}

const EXPECTED: &str = "expected `O`, or a prefix (B, I, E, S, L or U), a hyphen and a kind";

/// A tag's parts; the outer option is `None` if the text is no tag.
fn parse(tag: &str) -> Option<Tag<'_>> {
    if tag == "O" {
        return Some(None);
    }
    let (prefix, kind) = tag.split_once('-').unwrap_or((tag, ""));
    let prefix = match prefix {
        "B" => Prefix::Begin,
        "I" => Prefix::Inside,
        "E" | "L" => Prefix::End,
        "S" | "U" => Prefix::Single,
        _ => return None,
    };
    Some(Some((prefix, kind)))
}

fn write(prefix: &str, kind: &str) -> String {
    if kind.is_empty() { prefix.to_owned() } else { format!("{prefix}-{kind}") }
}

/// Whether an entity ends between two tags, and whether one begins, even for inconsistent tags: the
/// rules of the CoNLL evaluation script `conlleval`, shared by seqeval.
fn bounds(before: Tag, after: Tag) -> (bool, bool) {
    use Prefix::{Begin, End, Inside, Single};
    let other_kind = before.map(|(_, kind)| kind) != after.map(|(_, kind)| kind);
    let ends = match (before, after) {
        (None, _) => false,
        (Some((End | Single, _)), _) | (_, None | Some((Begin | Single, _))) => true,
        _ => other_kind,
    };
    let begins = match (before, after) {
        (_, None) => false,
        (_, Some((Begin | Single, _))) | (None | Some((End | Single, _)), _) => true,
        (Some((Begin | Inside, _)), Some((Inside | End, _))) => other_kind,
    };
    (ends, begins)
}

/// The entities of tags in any scheme, even inconsistent ones, as found by `conlleval` and seqeval (an `I-`
/// that continues nothing begins an entity). Invalid tags count as `O`.
///
/// ```
/// # use cloze_data::labelled::tag_spans;
/// let spans = tag_spans(&["I-PER", "I-LOC", "O", "E-LOC"]);
/// let bounds: Vec<_> = spans.iter().map(|span| (span.start, span.end)).collect();
/// assert_eq!(bounds, [(0, 1), (1, 2), (3, 4)]);
/// ```
pub fn tag_spans<T: AsRef<str>>(tags: &[T]) -> Vec<TagSpan> {
    let mut spans = Vec::new();
    let mut begun: Option<(usize, &str)> = None;
    let mut before = None;
    let tags = tags.iter().map(|tag| parse(tag.as_ref()).flatten());
    for (place, tag) in tags.chain([None]).enumerate() {
        let (ends, begins) = bounds(before, tag);
        if ends && let Some((start, kind)) = begun.take() {
            spans.push(TagSpan { start, end: place, kind: kind.to_owned() });
        }
        if begins && let Some((_, kind)) = tag {
            begun = Some((place, kind));
        }
        before = tag;
    }
    spans
}

impl TagScheme {
    /// The scheme of the sentences' tags: BIOES if there is an `E-` or `S-`, IOB1 if an `I-` begins an
    /// entity, else BIO.
    ///
    /// # Errors
    /// [`DataError::Tag`] for a tag of no scheme.
    pub fn detect<'a, T: AsRef<str> + 'a>(sentences: impl IntoIterator<Item = &'a [T]>) -> Result<Self> {
        let mut scheme = Self::Bio;
        for tags in sentences {
            let mut before = None;
            for (place, tag) in tags.iter().map(AsRef::as_ref).enumerate() {
                let tag = parse(tag).ok_or_else(|| no_tag(place, tag, "any scheme"))?;
                match tag {
                    Some((Prefix::End | Prefix::Single, _)) => scheme = Self::Bioes,
                    Some((Prefix::Inside, _)) if scheme == Self::Bio && bounds(before, tag).1 => {
                        scheme = Self::Iob1;
                    }
                    _ => {}
                }
                before = tag;
            }
        }
        Ok(scheme)
    }

    /// The entities of a sentence.
    ///
    /// # Errors
    /// [`DataError::Tag`] for a tag that the scheme does not allow there, such as a BIO `I-` that
    /// continues nothing. [`tag_spans`] accepts inconsistent tags.
    pub fn spans<T: AsRef<str>>(self, tags: &[T]) -> Result<Vec<TagSpan>> {
        if self == Self::Words {
            return Ok(self.lenient_spans(tags));
        }
        let mut before = None;
        for (place, text) in tags.iter().map(AsRef::as_ref).enumerate() {
            let tag = parse(text).ok_or_else(|| no_tag(place, text, self.name()))?;
            if !self.has(tag) {
                let problem = "the scheme has no such prefix";
                return Err(DataError::Tag {
                    place: place + 1,
                    tag: text.into(),
                    scheme: self.name(),
                    problem,
                });
            }
            if !self.allows(before, tag) {
                let problem = match self {
                    Self::Iob1 => "`B-` must directly follow an entity of its kind",
                    Self::Bio => "`I-` must continue an entity of its kind",
                    Self::Bioes | Self::Words => "an entity does not end, or does not begin",
                };
                return Err(DataError::Tag {
                    place: place + 1,
                    tag: text.into(),
                    scheme: self.name(),
                    problem,
                });
            }
            before = tag;
        }
        if !self.allows(before, None) {
            let (place, tag) = (tags.len(), tags.last().map_or("", AsRef::as_ref).to_owned());
            let problem = "the sentence ends inside an entity";
            return Err(DataError::Tag { place, tag, scheme: self.name(), problem });
        }
        Ok(tag_spans(tags))
    }

    /// The entities of a sentence, accepting inconsistent tags; see [`tag_spans`].
    pub fn lenient_spans<T: AsRef<str>>(self, tags: &[T]) -> Vec<TagSpan> {
        let word = |(start, tag): (usize, &T)| TagSpan { start, end: start + 1, kind: tag.as_ref().into() };
        match self {
            Self::Words => tags.iter().enumerate().map(word).collect(),
            Self::Iob1 | Self::Bio | Self::Bioes => tag_spans(tags),
        }
    }

    /// The tags of a sentence of `n_words` with these non-overlapping entities. Entities that overlap an
    /// earlier one in the list, or exceed the sentence, are dropped.
    pub fn tags(self, spans: &[TagSpan], n_words: usize) -> Vec<String> {
        let mut tags = vec!["O".to_owned(); n_words];
        // Where an entity of which kind ends, which is what IOB1 begins with `B-` after.
        let mut taken: Vec<Option<usize>> = vec![None; n_words];
        for (number, span) in spans.iter().enumerate() {
            let free = span.start < span.end
                && span.end <= n_words
                && taken[span.start..span.end].iter().all(Option::is_none);
            if free {
                taken[span.start..span.end].fill(Some(number));
            }
        }
        for place in 0..n_words {
            let Some(number) = taken[place] else { continue };
            let span = &spans[number];
            let (first, last) = (place == span.start, place + 1 == span.end);
            let follows = || {
                let before = place.checked_sub(1).and_then(|before| taken[before]);
                before.is_some_and(|before| spans[before].kind == span.kind)
            };
            if self == Self::Words {
                tags[place].clone_from(&span.kind);
                continue;
            }
            let prefix = match self {
                Self::Iob1 if first && follows() => "B",
                Self::Iob1 => "I",
                Self::Bioes if first && last => "S",
                Self::Bioes if last => "E",
                _ if first => "B",
                _ => "I",
            };
            tags[place] = write(prefix, &span.kind);
        }
        tags
    }

    /// Rewrites sentences in another scheme; `lenient` accepts inconsistent tags, as [`tag_spans`] does.
    ///
    /// # Errors
    /// As [`spans`](Self::spans), unless `lenient`.
    pub fn convert(self, sentences: &mut [TaggedSentence], to: Self, lenient: bool) -> Result<()> {
        for sentence in sentences.iter_mut().filter(|sentence| !sentence.tags.is_empty()) {
            let tags = &sentence.tags;
            let spans = if lenient { tag_spans(tags) } else { self.spans(tags)? };
            sentence.tags = to.tags(&spans, tags.len());
        }
        Ok(())
    }

    /// The labels of a task with this training data. Word classes: those that occur, sorted by bytes.
    /// Entities: `O`, then for each entity type, sorted by bytes, every prefix of the scheme in the order B,
    /// I, E, S, even if the training data lacks that tag.
    ///
    /// # Errors
    /// [`DataError::Tag`] for a tag of no scheme.
    pub fn label_set(self, sentences: &[TaggedSentence]) -> Result<LabelSet> {
        if self == Self::Words {
            let tags: BTreeSet<&String> = sentences.iter().flat_map(|sentence| &sentence.tags).collect();
            return LabelSet::given(tags.into_iter().cloned());
        }
        let mut kinds = BTreeSet::new();
        for sentence in sentences {
            for (place, text) in sentence.tags.iter().enumerate() {
                match parse(text) {
                    None => return Err(no_tag(place, text, self.name())),
                    Some(Some((_, kind))) => _ = kinds.insert(kind),
                    Some(None) => {}
                }
            }
        }
        let prefixes: &[&str] = if self == Self::Bioes { &["B", "I", "E", "S"] } else { &["B", "I"] };
        let of_kind = |kind| prefixes.iter().map(move |prefix| write(prefix, kind));
        LabelSet::given(std::iter::once("O".to_owned()).chain(kinds.into_iter().flat_map(of_kind)))
    }

    /// The allowed transitions between the tags of a set, to constrain a CRF.
    ///
    /// # Errors
    /// [`DataError::Labels`] for a label that is not a tag of this scheme.
    pub fn transitions(self, labels: &LabelSet) -> Result<Transitions> {
        if self == Self::Words {
            let all: Vec<usize> = (0..labels.len()).collect();
            let pairs = all.iter().flat_map(|from| all.iter().map(|to| (*from, *to))).collect();
            return Ok(Transitions { pairs, starts: all.clone(), ends: all });
        }
        let tags: Vec<Tag> = labels
            .names()
            .iter()
            .map(|name| {
                parse(name).filter(|tag| self.has(*tag)).ok_or_else(|| {
                    let problem = format!("`{name}` is not a tag of {}", self.name());
                    DataError::Labels { problem }
                })
            })
            .collect::<Result<_>>()?;
        let ids = 0..tags.len();
        let pairs = ids.clone().flat_map(|from| ids.clone().map(move |to| (from, to)));
        Ok(Transitions {
            pairs: pairs.filter(|(from, to)| self.allows(tags[*from], tags[*to])).collect(),
            starts: ids.clone().filter(|id| self.allows(None, tags[*id])).collect(),
            ends: ids.clone().filter(|id| self.allows(tags[*id], None)).collect(),
        })
    }

    /// Whether a tag has one of the scheme's prefixes.
    fn has(self, tag: Tag) -> bool {
        match tag {
            None | Some((Prefix::Begin | Prefix::Inside, _)) => true,
            Some((Prefix::End | Prefix::Single, _)) => matches!(self, Self::Bioes | Self::Words),
        }
    }

    /// Whether a tag may follow another; `None` is both `O` and the sentence boundary.
    fn allows(self, before: Tag, after: Tag) -> bool {
        use Prefix::{Begin, Inside};
        let same_kind = before.map(|(_, kind)| kind) == after.map(|(_, kind)| kind);
        match self {
            Self::Iob1 => !matches!(after, Some((Begin, _))) || same_kind,
            Self::Bio => !matches!(after, Some((Inside, _))) || same_kind,
            Self::Bioes => {
                let open = matches!(before, Some((Begin | Inside, _)));
                let continues = matches!(after, Some((Inside | Prefix::End, _)));
                open == continues && (!open || same_kind)
            }
            Self::Words => true,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Iob1 => "IOB1",
            Self::Bio => "BIO",
            Self::Bioes => "BIOES",
            Self::Words => "words' classes",
        }
    }
}

fn no_tag(place: usize, tag: &str, scheme: &'static str) -> DataError {
    DataError::Tag { place: place + 1, tag: tag.into(), scheme, problem: EXPECTED }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SCHEMES: [TagScheme; 3] = [TagScheme::Iob1, TagScheme::Bio, TagScheme::Bioes];

    /// Random entities, some of them adjacent.
    fn sentences() -> impl Strategy<Value = (Vec<TagSpan>, usize)> {
        prop::collection::vec((0usize..3, 1usize..4, 0usize..2), 0..8).prop_map(|parts| {
            let mut spans = Vec::new();
            let mut at = 0;
            for (gap, len, kind) in parts {
                let kind = ["PER", "LOC-x"][kind].to_owned();
                spans.push(TagSpan { start: at + gap, end: at + gap + len, kind });
                at += gap + len;
            }
            (spans, at + 1)
        })
    }

    proptest! {
        #[test]
        fn every_scheme_gives_the_entities_back((spans, n_words) in sentences()) {
            for scheme in SCHEMES {
                let tags = scheme.tags(&spans, n_words);
                prop_assert_eq!(&scheme.spans(&tags).unwrap(), &spans);
                prop_assert_eq!(&tag_spans(&tags), &spans);
            }
            for (from, to) in SCHEMES.iter().flat_map(|from| SCHEMES.map(|to| (*from, to))) {
                let tags = from.tags(&spans, n_words);
                let mut sentence = [TaggedSentence { words: vec![String::new(); n_words], tags }];
                from.convert(&mut sentence, to, false).unwrap();
                prop_assert_eq!(&sentence[0].tags, &to.tags(&spans, n_words));
            }
        }

        #[test]
        fn what_transitions_allow_is_what_spans_takes(
            ids in prop::collection::vec(0usize..9, 1..6),
            scheme in 0usize..3,
        ) {
            let scheme = SCHEMES[scheme];
            let sentence = |tag: &str| TaggedSentence { words: vec![], tags: vec![tag.to_owned()] };
            let labels = scheme.label_set(&[sentence("B-X"), sentence("B-Y")]).unwrap();
            let allowed = scheme.transitions(&labels).unwrap();
            let ids: Vec<usize> = ids.into_iter().map(|id| id % labels.len()).collect();
            let tags: Vec<&str> = ids.iter().map(|id| labels.name(*id).unwrap()).collect();
            let fits = allowed.starts.contains(&ids[0])
                && allowed.ends.contains(ids.last().unwrap())
                && ids.windows(2).all(|pair| allowed.pairs.contains(&(pair[0], pair[1])));
            prop_assert_eq!(scheme.spans(&tags).is_ok(), fits, "{:?}", tags);
        }

        #[test]
        fn any_tags_have_spans_in_order(tags in prop::collection::vec("[BIESOLU]-?[AB]?|.*", 0..10)) {
            let spans = tag_spans(&tags);
            let bounds: Vec<usize> = spans.iter().flat_map(|span| [span.start, span.end]).collect();
            prop_assert!(bounds.is_sorted());
            prop_assert!(spans.iter().all(|span| span.start < span.end && span.end <= tags.len()));
        }
    }

    #[test]
    fn schemes_are_detected() {
        let detect = |tags: &[&str]| TagScheme::detect([tags]).unwrap();
        assert_eq!(detect(&["O", "B-A", "I-A"]), TagScheme::Bio);
        assert_eq!(detect(&["O", "I-A", "B-A"]), TagScheme::Iob1);
        assert_eq!(detect(&["B-A", "I-B"]), TagScheme::Iob1);
        assert_eq!(detect(&["I-A", "S-B"]), TagScheme::Bioes);
        assert_eq!(detect(&["B-A", "L-A", "U-B"]), TagScheme::Bioes);
        let message = TagScheme::detect([&["O", "PER"][..]]).unwrap_err().to_string();
        assert_eq!(
            message,
            "tag 2 `PER` is not valid in any scheme here: expected `O`, or a prefix (B, I, E, S, L or U), \
             a hyphen and a kind"
        );
    }

    #[test]
    fn strict_reading_names_the_tag() {
        let message = |scheme: TagScheme, tags: &[&str]| scheme.spans(tags).unwrap_err().to_string();
        assert_eq!(
            message(TagScheme::Bio, &["O", "I-A"]),
            "tag 2 `I-A` is not valid in BIO here: `I-` must continue an entity of its kind"
        );
        assert!(message(TagScheme::Bio, &["B-A", "I-B"]).starts_with("tag 2 `I-B`"));
        assert!(message(TagScheme::Bio, &["S-A"]).contains("no such prefix"));
        assert!(message(TagScheme::Iob1, &["O", "B-A"]).starts_with("tag 2 `B-A`"));
        assert!(message(TagScheme::Bioes, &["B-A", "O"]).starts_with("tag 2 `O`"));
        assert!(message(TagScheme::Bioes, &["O", "B-A"]).contains("ends inside an entity"));
    }

    #[test]
    fn spans_that_overlap_or_go_beyond_are_left_out() {
        let span = |start, end| TagSpan { start, end, kind: "A".into() };
        let tags = TagScheme::Bio.tags(&[span(1, 3), span(2, 4), span(3, 9), span(4, 4)], 4);
        assert_eq!(tags, ["O", "B-A", "I-A", "O"]);
    }

    #[test]
    fn classes_of_words_are_taken_as_they_are() {
        let words = TagScheme::Words;
        let tags = ["NOUN", "B-x", "O", "NOUN"];
        let spans = words.spans(&tags).unwrap();
        assert_eq!((spans.len(), words.tags(&spans, 4)), (4, tags.map(String::from).to_vec()));
        let sentence = TaggedSentence { words: vec![], tags: tags.map(String::from).to_vec() };
        let labels = words.label_set(std::slice::from_ref(&sentence)).unwrap();
        assert_eq!(labels.names(), ["B-x", "NOUN", "O"]);
        let allowed = words.transitions(&labels).unwrap();
        assert_eq!((allowed.pairs.len(), allowed.starts.len(), allowed.ends.len()), (9, 3, 3));
        assert_eq!(unknown_tag(&sentence.tags, &labels), None);
        let other = ["O".to_owned(), "VERB".to_owned()];
        assert_eq!(unknown_tag(&other, &labels).unwrap(), "word 2: tag `VERB`, expected one of B-x, NOUN, O");
    }

    #[test]
    fn the_label_set_is_whole_and_in_order() {
        let sentence = TaggedSentence { words: vec![], tags: vec!["I-b".into(), "O".into(), "B-a".into()] };
        let labels = TagScheme::Bioes.label_set(std::slice::from_ref(&sentence)).unwrap();
        assert_eq!(labels.names(), ["O", "B-a", "I-a", "E-a", "S-a", "B-b", "I-b", "E-b", "S-b"]);
        let labels = TagScheme::Bio.label_set(&[sentence]).unwrap();
        assert_eq!(labels.names(), ["O", "B-a", "I-a", "B-b", "I-b"]);
        let allowed = TagScheme::Bio.transitions(&labels).unwrap();
        assert_eq!(allowed.starts, [0, 1, 3]);
        assert_eq!(allowed.ends, [0, 1, 2, 3, 4]);
        assert!(allowed.pairs.contains(&(1, 2)) && !allowed.pairs.contains(&(1, 4)));
    }
}
