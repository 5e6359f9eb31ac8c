//! A prompt template: words around a text and a mask.

use super::task::bad_setting;
use crate::Result;
use cloze_data::DataError;
use cloze_data::labelled::{Target, TextExample, TokenSequence};
use cloze_tokenizer::{Encoding, Span, Tokenizer};

/// Examples tokenised at a time: each piece is a string until its example is done.
const CHUNK: usize = 1024;

/// A template such as `"{text} It was {mask}."`, or for pairs `"{text}? {mask}, {pair}"`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
    /// The token that replaces `{mask}`, and its id.
    mask: (String, u32),
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Words(String),
    Text,
    Pair,
    Mask,
}

/// A filled-in template as the model's input.
#[derive(Debug, Clone, PartialEq)]
pub struct PromptFeatures {
    /// The tokens.
    pub sequence: TokenSequence,
    /// The index of the mask token.
    pub mask: usize,
    /// The target.
    pub target: Target,
    /// Whether tokens were cut off.
    pub truncated: bool,
}

/// A filled-in template and the positions of its parts.
struct Filled {
    text: String,
    mask: Span,
    /// The texts that may be truncated.
    texts: Vec<Span>,
}

impl Template {
    /// Parses a template, whose mask is the token `mask` with this id.
    ///
    /// # Errors
    /// A [setting](crate::TrainerError::Setting) error unless there is exactly one `{text}` and one `{mask}`,
    /// at most one `{pair}`, and nothing else in braces.
    pub fn parse(template: &str, mask: (String, u32)) -> Result<Self> {
        let bad =
            |expected: &str| Err(bad_setting("task.template", format!("{template:?}"), expected.into()));
        let mut parts = Vec::new();
        let mut rest = template;
        while !rest.is_empty() {
            let (words, after) = rest.split_at(rest.find(['{', '}']).unwrap_or(rest.len()));
            if !words.is_empty() {
                parts.push(Part::Words(words.into()));
            }
            let known = [("{text}", Part::Text), ("{pair}", Part::Pair), ("{mask}", Part::Mask)];
            let known = known.into_iter().find_map(|(name, part)| Some((after.strip_prefix(name)?, part)));
            rest = match known {
                Some((rest, part)) => {
                    parts.push(part);
                    rest
                }
                None if after.is_empty() => after,
                None => return bad("braces only around text, pair and mask"),
            };
        }
        let count = |part: &Part| parts.iter().filter(|other| *other == part).count();
        match (count(&Part::Text), count(&Part::Mask), count(&Part::Pair)) {
            (1, 1, 0 | 1) => Ok(Self { parts, mask }),
            (1, 1, _) => bad("at most one {pair}"),
            (1, _, _) => bad("one {mask}"),
            _ => bad("one {text}"),
        }
    }

    /// Whether it is for pairs of texts.
    pub fn has_pair(&self) -> bool {
        self.parts.contains(&Part::Pair)
    }

    /// Whether white space precedes the mask, so that its word is one after white space.
    pub fn spaced_mask(&self) -> bool {
        let place = self.parts.iter().position(|part| *part == Part::Mask);
        match place.and_then(|place| self.parts[..place].last()) {
            Some(Part::Words(words)) => words.ends_with(char::is_whitespace),
            _ => false,
        }
    }

    /// Templates filled in with examples, with at most `max_len` tokens. Texts are truncated at their ends, the
    /// longer first; the template is never truncated.
    ///
    /// # Errors
    /// A [setting](crate::TrainerError::Setting) error for a `max_len` too short for the template and a token
    /// of each text; pairs without a `{pair}`, or the reverse.
    pub fn encode(
        &self,
        tokenizer: &Tokenizer,
        examples: &[TextExample],
        max_len: usize,
    ) -> Result<Vec<PromptFeatures>> {
        let mut tokenizer = tokenizer.clone();
        tokenizer.set_truncation(None)?;
        tokenizer.set_padding(None)?;
        let too_short = |least: usize| {
            let expected =
                format!("at least {least}: the template, the special tokens and a token of each text");
            bad_setting("data.max_len", max_len, expected)
        };
        let empty = self.fill("", "").text;
        let least = tokenizer.encode(&empty, true)?.len() + 1 + usize::from(self.has_pair());
        if max_len < least {
            return Err(too_short(least));
        }
        let mut features = Vec::with_capacity(examples.len());
        for (chunk, before) in examples.chunks(CHUNK).zip((0..).step_by(CHUNK)) {
            if let Some(problem) = chunk.iter().find_map(|example| self.misfit(example)) {
                return Err(bad_setting("task.template", format!("{:?}", self.to_string()), problem.into()));
            }
            let filled: Vec<Filled> = chunk
                .iter()
                .map(|example| self.fill(&example.text, example.pair.as_deref().unwrap_or_default()))
                .collect();
            let texts: Vec<&str> = filled.iter().map(|filled| filled.text.as_str()).collect();
            let encodings = tokenizer.encode_batch(&texts, true).map_err(DataError::example(before))?;
            for ((filled, encoding), example) in filled.iter().zip(&encodings).zip(chunk) {
                let mask = self.find_mask(filled, encoding)?;
                let kept = filled.cut(encoding, mask, max_len).map_err(too_short)?;
                let pick = |ids: &[u32]| kept.iter().map(|token| ids[*token] as i32).collect::<Vec<_>>();
                features.push(PromptFeatures {
                    sequence: TokenSequence {
                        input_ids: pick(&encoding.ids),
                        token_type_ids: pick(&encoding.type_ids),
                    },
                    mask: kept.partition_point(|token| *token < mask),
                    target: example.target.clone(),
                    truncated: kept.len() < encoding.len(),
                });
            }
        }
        Ok(features)
    }

    /// What the template should have had, if an example does not fit it.
    pub fn misfit(&self, example: &TextExample) -> Option<&'static str> {
        match (self.has_pair(), example.pair.is_some()) {
            (true, false) => Some("no {pair}: there is a single text"),
            (false, true) => Some("a {pair}: there is a pair of texts"),
            _ => None,
        }
    }

    fn fill(&self, text: &str, pair: &str) -> Filled {
        let mut filled = Filled { text: String::new(), mask: (0, 0), texts: Vec::new() };
        for part in &self.parts {
            let start = filled.text.len();
            filled.text += match part {
                Part::Words(words) => words,
                Part::Text => text,
                Part::Pair => pair,
                Part::Mask => &self.mask.0,
            };
            let span = (start, filled.text.len());
            match part {
                Part::Words(_) => {}
                Part::Text | Part::Pair => filled.texts.push(span),
                Part::Mask => filled.mask = span,
            }
        }
        filled
    }

    /// The position of the template's mask token: a text may have masks of its own.
    fn find_mask(&self, filled: &Filled, encoding: &Encoding) -> Result<usize> {
        let (from, to) = filled.mask;
        let is_mask = |token: &usize| {
            let (start, end) = encoding.offsets[*token];
            encoding.ids[*token] == self.mask.1 && start < to && end > from
        };
        (0..encoding.len()).find(is_mask).ok_or_else(|| {
            let expected = "a {mask} that the tokenizer can separate from its neighbours".into();
            bad_setting("task.template", format!("{:?}", self.to_string()), expected)
        })
    }
}

impl std::fmt::Display for Template {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.parts.iter().try_for_each(|part| {
            f.write_str(match part {
                Part::Words(words) => words,
                Part::Text => "{text}",
                Part::Pair => "{pair}",
                Part::Mask => "{mask}",
            })
        })
    }
}

impl Filled {
    /// The tokens to keep, in order, or the required length if there is too little room.
    fn cut(
        &self,
        encoding: &Encoding,
        mask: usize,
        max_len: usize,
    ) -> std::result::Result<Vec<usize>, usize> {
        let mut excess = encoding.len().saturating_sub(max_len);
        let mut kept = vec![true; encoding.len()];
        let mut texts: Vec<Vec<usize>> = self
            .texts
            .iter()
            .map(|span| {
                (0..encoding.len())
                    .filter(|token| *token != mask && self.is_in(encoding.offsets[*token], *span))
                    .collect()
            })
            .collect();
        while excess > 0 {
            // The last of equals.
            match texts.iter_mut().max_by_key(|tokens| tokens.len()).filter(|tokens| tokens.len() > 1) {
                Some(longest) => longest.pop().into_iter().for_each(|token| kept[token] = false),
                None => return Err(max_len + excess),
            }
            excess -= 1;
        }
        Ok((0..encoding.len()).filter(|token| kept[*token]).collect())
    }

    /// Whether a token belongs to the text at `span`; it may include white space before the text.
    fn is_in(&self, (start, end): Span, (from, to): Span) -> bool {
        let before = || self.text.get(start.min(from)..from).is_some_and(|text| text.trim().is_empty());
        start < end && end > from && end <= to && before()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloze_tokenizer::{Truncation, Vocab};

    fn tokenizer() -> Tokenizer {
        let specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"].map(String::from);
        let letters = ('a'..='z').map(String::from).chain(('a'..='z').map(|letter| format!("##{letter}")));
        let vocab = specials.into_iter().chain(letters).chain(["it", "was", ".", "?", ","].map(String::from));
        let mut tokenizer = Tokenizer::bert(Vocab::from_tokens(vocab).unwrap(), true).unwrap();
        // What a file may declare has no effect.
        tokenizer.set_truncation(Some(Truncation::to(5))).unwrap();
        tokenizer
    }

    fn parse(template: &str) -> Result<Template> {
        Template::parse(template, ("[MASK]".into(), 4))
    }

    fn example(text: &str, pair: Option<&str>) -> TextExample {
        TextExample { text: text.into(), pair: pair.map(Into::into), target: Target::Class(1) }
    }

    /// Each example's tokens, and the one at the mask's place.
    fn encoded(template: &str, examples: &[TextExample], max_len: usize) -> Vec<String> {
        let tokenizer = tokenizer();
        let features = parse(template).unwrap().encode(&tokenizer, examples, max_len).unwrap();
        features
            .iter()
            .map(|features| {
                let ids = &features.sequence.input_ids;
                assert_eq!((ids[features.mask], ids.len()), (4, features.sequence.token_type_ids.len()));
                assert!(ids.len() <= max_len);
                let tokens = ids.iter().map(|id| tokenizer.id_to_token(*id as u32).unwrap());
                let tokens: Vec<&str> = tokens.collect();
                format!(
                    "{} {}{}",
                    features.mask,
                    tokens.join(" "),
                    if features.truncated { " …" } else { "" }
                )
            })
            .collect()
    }

    #[test]
    fn the_text_is_cut_and_never_the_template() {
        let examples = [example("A b", None), example("a b c d e", None), example("", None)];
        let found = encoded("{text} It was {mask}.", &examples, 8);
        assert_eq!(
            found,
            [
                "5 [CLS] a b it was [MASK] . [SEP]",
                "5 [CLS] a b it was [MASK] . [SEP] …",
                "3 [CLS] it was [MASK] . [SEP]"
            ]
        );
        assert_eq!(
            encoded("{mask}: {text}", &[example("abc d", None)], 6),
            ["1 [CLS] [MASK] [UNK] a ##b [SEP] …"]
        );
        let pairs = [example("a", Some("b c d e f")), example("a b c d", Some("e f g h"))];
        let found = encoded("{text}? {mask}, {pair}", &pairs, 9);
        assert_eq!(found, ["3 [CLS] a ? [MASK] , b c d [SEP] …", "4 [CLS] a b ? [MASK] , e f [SEP] …"]);
        // A text's own masks are not asked, wherever the tokens end.
        let masked = [example("a [MASK] b [MASK] c", None)];
        assert_eq!(encoded("{text} {mask}", &masked, 6), ["4 [CLS] a [MASK] b [MASK] [SEP] …"]);
    }

    #[test]
    fn words_may_stand_at_the_text_and_at_the_mask() {
        assert_eq!(encoded("a{text} {mask}", &[example("b c", None)], 6), ["4 [CLS] a ##b c [MASK] [SEP]"]);
        assert!(parse("{text} {mask}").unwrap().spaced_mask());
        assert!(!parse("{mask} {text}").unwrap().spaced_mask());
        assert!(!parse("{text} ({mask})").unwrap().spaced_mask());
    }

    #[test]
    fn templates_that_are_none() {
        let error = |template: &str| parse(template).unwrap_err().to_string();
        for (template, expected) in [
            ("{text} It was good.", "one {mask}"),
            ("{text} {mask} {mask}", "one {mask}"),
            ("It was {mask}.", "one {text}"),
            ("{text}{text}{mask}", "one {text}"),
            ("{text}{pair}{mask}{pair}", "at most one {pair}"),
            ("{text} {masks}", "braces only around text, pair and mask"),
            ("{text} {mask} }", "braces only around text, pair and mask"),
            ("", "one {text}"),
        ] {
            assert_eq!(error(template), format!("`task.template` is {template:?}; expected {expected}"));
        }
        let template = parse("{text} It was {mask}.").unwrap();
        assert_eq!(template.to_string(), "{text} It was {mask}.");
        let error = |template: &Template, example: TextExample, max_len| {
            template.encode(&tokenizer(), &[example], max_len).unwrap_err().to_string()
        };
        assert_eq!(
            error(&template, example("a", None), 6),
            "`data.max_len` is 6; expected at least 7: the template, the special tokens and a token of each text"
        );
        assert_eq!(
            error(&template, example("a", Some("b")), 20),
            "`task.template` is \"{text} It was {mask}.\"; expected a {pair}: there is a pair of texts"
        );
        let pairs = parse("{text} {mask} {pair}").unwrap();
        assert!(
            error(&pairs, example("a", None), 20).ends_with("expected no {pair}: there is a single text")
        );
    }
}
