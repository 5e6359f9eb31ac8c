//! Reads captions, see the grammar in the module's documentation.

use super::{CaptionError, Colour, Description, Fact, Relation, Shape, Size, WordRole};
use std::ops::Range;

type Result<T> = std::result::Result<T, CaptionError>;

/// A caption that is in the grammar.
pub(super) struct Parsed {
    /// The words' bytes.
    pub words: Vec<Range<usize>>,
    /// Each word's role, and the place in `mentions` of what it names.
    pub roles: Vec<(WordRole, Option<usize>)>,
    /// The things that "a small red circle" and the like name.
    pub mentions: Vec<Description>,
    /// What it states.
    pub facts: Vec<Fact>,
}

impl Parsed {
    /// Reads a caption.
    pub fn read(text: &str) -> Result<Self> {
        let words = words(text);
        let lower = words.iter().map(|range| text[range.clone()].to_ascii_lowercase()).collect();
        let mut reader =
            Reader { words: lower, at: 0, roles: Vec::new(), mentions: Vec::new(), facts: Vec::new() };
        reader.caption()?;
        Ok(Self { words, roles: reader.roles, mentions: reader.mentions, facts: reader.facts })
    }
}

/// Words and punctuation.
fn words(text: &str) -> Vec<Range<usize>> {
    let mut words: Vec<Range<usize>> = Vec::new();
    let mut joins = false;
    for (at, character) in text.char_indices() {
        let range = at..at + character.len_utf8();
        let is_mark = matches!(character, ';' | ',' | '.');
        match words.last_mut() {
            _ if character.is_whitespace() => {}
            Some(word) if joins && !is_mark => word.end = range.end,
            _ => words.push(range),
        }
        joins = !character.is_whitespace() && !is_mark;
    }
    words
}

struct Reader {
    words: Vec<String>,
    at: usize,
    roles: Vec<(WordRole, Option<usize>)>,
    mentions: Vec<Description>,
    facts: Vec<Fact>,
}

impl Reader {
    fn caption(&mut self) -> Result<()> {
        self.clause()?;
        while self.link()? {
            self.clause()?;
        }
        Ok(())
    }

    /// What is between clauses; `false` at the end.
    fn link(&mut self) -> Result<bool> {
        if self.takes(".") || self.at == self.words.len() {
            return match self.at == self.words.len() {
                true => Ok(false),
                false => Err(self.unexpected("the end after `.`")),
            };
        }
        if self.takes(";") {
            return Ok(true);
        }
        let has_comma = self.takes(",");
        match self.takes("and") {
            true => Ok(true),
            false if has_comma => Err(self.unexpected("`and` after `,`")),
            false => Err(self.unexpected("`;`, `, and` or the end")),
        }
    }

    fn clause(&mut self) -> Result<()> {
        // "them" are the things of earlier clauses.
        let earlier = self.mentions.len();
        if self.takes("there") {
            self.expect("is")?;
            let thing = self.thing(earlier)?;
            let relation = self.relation()?;
            let ground = self.ground(earlier)?;
            self.relate(thing, relation, &ground);
        } else if self.peek().is_some_and(|word| ["to", "above", "below"].contains(&word)) {
            let relation = self.relation()?;
            let ground = self.ground(earlier)?;
            self.expect("is")?;
            let thing = self.thing(earlier)?;
            self.relate(thing, relation, &ground);
        } else {
            let expected = "`a`, `the`, `there is` or a relation";
            let thing = self.thing_or(earlier, expected)?;
            if self.takes("is") {
                let relation = self.relation()?;
                let ground = self.ground(earlier)?;
                self.relate(thing, relation, &ground);
            } else if self.takes("has") {
                let other = self.thing(earlier)?;
                let relation = self.relation_after()?;
                self.relate(other, relation, &[thing]);
            } else {
                return Err(self.unexpected("`is` or `has`"));
            }
        }
        Ok(())
    }

    /// States that a mentioned thing is there, seen from each of others.
    fn relate(&mut self, thing: usize, relation: Relation, others: &[usize]) {
        for other in others {
            self.facts.push(Fact::Related(self.mentions[thing], relation, self.mentions[*other]));
        }
    }

    fn relation(&mut self) -> Result<Relation> {
        let expected = "a relation: `to the left of`, `to the right of`, `above` or `below`";
        match self.vertical() {
            Some(relation) => Ok(relation),
            None if self.takes("to") => {
                self.expect("the")?;
                let relation = self.side()?;
                self.expect("of")?;
                Ok(relation)
            }
            None => Err(self.unexpected(expected)),
        }
    }

    /// The same, after the thing that it is seen from.
    fn relation_after(&mut self) -> Result<Relation> {
        let expected = "a place: `to its left`, `to its right`, `above it` or `below it`";
        match self.vertical() {
            Some(relation) => self.expect("it").map(|()| relation),
            None if self.takes("to") => {
                self.expect("its")?;
                self.side()
            }
            None => Err(self.unexpected(expected)),
        }
    }

    fn vertical(&mut self) -> Option<Relation> {
        if self.takes("above") {
            return Some(Relation::Above);
        }
        self.takes("below").then_some(Relation::Below)
    }

    fn side(&mut self) -> Result<Relation> {
        if self.takes("left") {
            return Ok(Relation::Left);
        }
        match self.takes("right") {
            true => Ok(Relation::Right),
            false => Err(self.unexpected("`left` or `right`")),
        }
    }

    /// What another thing is related to: the places of its mentions. `earlier` mentions are of earlier clauses.
    fn ground(&mut self, earlier: usize) -> Result<Vec<usize>> {
        if !self.takes("them") {
            return Ok(vec![self.thing_or(earlier, "`a`, `the` or `them`")?]);
        }
        // Two at least, each once.
        let all = &self.mentions[..earlier];
        let them: Vec<usize> = (0..earlier).filter(|at| !all[..*at].contains(&all[*at])).collect();
        match them.len() {
            0 | 1 => Err(CaptionError::Unknown {
                word: self.at,
                found: "them".into(),
                expected: "two things".into(),
            }),
            _ => Ok(them),
        }
    }

    fn thing(&mut self, earlier: usize) -> Result<usize> {
        self.thing_or(earlier, "`a` or `the`")
    }

    /// The place of a thing's mention, a new one or one of the `earlier` ones.
    fn thing_or(&mut self, earlier: usize, expected: &str) -> Result<usize> {
        if self.takes("the") {
            return self.known(earlier);
        }
        if !self.takes("a") {
            return Err(self.unexpected(expected));
        }
        let mention = Some(self.mentions.len());
        let size = self.one_of("size", Size::ALL, Size::word, (WordRole::Size, mention))?;
        let colour = self.one_of("colour", Colour::ALL, Colour::word, (WordRole::Colour, mention))?;
        let shape = self.one_of("shape", Shape::ALL, Shape::word, (WordRole::Shape, mention))?;
        let description = Description { size, colour, shape };
        self.mentions.push(description);
        self.facts.push(Fact::Exists(description));
        Ok(self.mentions.len() - 1)
    }

    /// After "the": a shape of earlier clauses.
    fn known(&mut self, earlier: usize) -> Result<usize> {
        let place = self.roles.len();
        let shape = self.one_of("shape", Shape::ALL, Shape::word, (WordRole::Shape, None))?;
        let mut places = (0..earlier).filter(|at| self.mentions[*at].shape == shape);
        let Some(mention) = places.next() else {
            let expected = format!("a {shape}");
            return Err(CaptionError::Unknown { word: self.at, found: shape.to_string(), expected });
        };
        let first = self.mentions[mention];
        if let Some(other) = places.map(|at| self.mentions[at]).find(|other| *other != first) {
            let [first, second] = [first, other].map(|description| description.to_string());
            return Err(CaptionError::Ambiguous { word: self.at, found: shape.to_string(), first, second });
        }
        self.roles[place].1 = Some(mention);
        Ok(mention)
    }

    /// A value whose word is next, with the word's role.
    fn one_of<T: Copy>(
        &mut self,
        what: &str,
        all: &[T],
        word: fn(T) -> &'static str,
        role: (WordRole, Option<usize>),
    ) -> Result<T> {
        let Some(value) = all.iter().find(|value| self.peek() == Some(word(**value))) else {
            let words: Vec<&str> = all.iter().map(|value| word(*value)).collect();
            return Err(self.unexpected(&format!("a {what}: {}", words.join(", "))));
        };
        self.at += 1;
        self.roles.push(role);
        Ok(*value)
    }

    fn peek(&self) -> Option<&str> {
        self.words.get(self.at).map(String::as_str)
    }

    /// Goes past this word, if it is next.
    fn takes(&mut self, word: &str) -> bool {
        let is_next = self.peek() == Some(word);
        if is_next {
            self.at += 1;
            self.roles.push((WordRole::Other, None));
        }
        is_next
    }

    fn expect(&mut self, word: &str) -> Result<()> {
        match self.takes(word) {
            true => Ok(()),
            false => Err(self.unexpected(&format!("`{word}`"))),
        }
    }

    fn unexpected(&self, expected: &str) -> CaptionError {
        let expected = expected.into();
        match self.peek() {
            Some(found) => CaptionError::Unexpected { word: self.at + 1, found: found.into(), expected },
            None => CaptionError::Ends { words: self.at, expected },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{SceneSplit, facts, scenes};
    use super::*;

    fn texts(caption: &str) -> Vec<String> {
        facts(caption).unwrap().iter().map(|fact| fact.to_string()).collect()
    }

    #[test]
    fn all_forms_state_the_same() {
        let expected = "a small red circle is to the left of a big blue square";
        for caption in [
            "a small red circle is to the left of a big blue square",
            "to the left of a big blue square is a small red circle",
            "there is a small red circle to the left of a big blue square",
            "a big blue square has a small red circle to its left",
            "A big blue square has a small red circle to its left.",
        ] {
            let mut facts = texts(caption);
            assert_eq!(facts.pop().unwrap(), expected);
            facts.sort();
            assert_eq!(facts, ["there is a big blue square", "there is a small red circle"]);
        }
    }

    #[test]
    fn later_clauses_name_earlier_things() {
        let beginning = "a big green triangle is above a big yellow star";
        let triangle = "a small grey ring is below a big green triangle";
        let star = "a small grey ring is below a big yellow star";
        for (end, expected) in [
            (" ; a small grey ring is below them", vec![triangle, star]),
            ("; there is a small grey ring below them.", vec![triangle, star]),
            (" , and below the star is a small grey ring", vec![star]),
            (" and the triangle has a small grey ring below it", vec![triangle]),
        ] {
            let facts = texts(&format!("{beginning}{end}"));
            assert_eq!(facts[..3], texts(beginning)[..]);
            assert_eq!(facts[3], "there is a small grey ring");
            assert_eq!(facts[4..], expected[..], "{end}");
        }
    }

    #[test]
    fn what_is_not_in_the_grammar_is_named() {
        let star = "a big red star";
        for (caption, expected) in [
            (String::new(), "the caption ends after 0 words: expected `a`, `the`, `there is` or a relation"),
            ("hello".into(), "at word 1, `hello`: expected `a`"),
            ("a small red dog".into(), "at word 4, `dog`: expected a shape: circle, square,"),
            ("a red star".into(), "at word 2, `red`: expected a size: small, big"),
            (format!("{star} ."), "at word 5, `.`: expected `is` or `has`"),
            (format!("{star} is near {star}"), "at word 6, `near`: expected a relation"),
            (format!("{star} is to the top of {star}"), "at word 8, `top`: expected `left` or `right`"),
            (format!("{star} is above"), "ends after 6 words: expected `a`, `the` or `them`"),
            (format!("{star} has {star} above them"), "at word 11, `them`: expected `it`"),
            (format!("{star} is above {star} {star}"), "at word 11, `a`: expected `;`, `, and` or the end"),
            (format!("{star} is above {star}, {star}"), "at word 12, `a`: expected `and` after `,`"),
            (format!("{star} is above {star}. {star}"), "at word 12, `a`: expected the end after `.`"),
            (format!("{star} is above {star} ;"), "ends after 11 words"),
            (format!("{star} is above the star"), "word 8 of the caption, `star`, names nothing"),
            (format!("{star} is above them"), "`them`, names nothing: no earlier clause has two things"),
            (
                format!("{star} is above a big blue star and {star} is above the star"),
                "may be the big red star or the big blue star",
            ),
        ] {
            let message = facts(&caption).unwrap_err().to_string();
            assert!(message.contains(expected), "{caption}: {message}");
        }
    }

    /// A caption without its last words, or with a word of another alphabet, never panics.
    #[test]
    fn pieces_of_captions_are_read_or_refused() {
        for scene in scenes(SceneSplit::Train, 9).take(50) {
            let words: Vec<&str> = scene.captions()[0].text.split(' ').collect();
            for n in 0..words.len() {
                let cut = facts(&words[..n].join(" "));
                // Only a whole clause is a caption.
                assert!(cut.is_err() || matches!(words[n], ";" | "," | "and"), "{:?}", &words[..n]);
                let mut changed = words.clone();
                changed[n] = "żółty";
                assert!(facts(&changed.join(" ")).unwrap_err().to_string().contains("`żółty`"));
            }
        }
    }

    #[test]
    fn words_have_their_bytes_roles_and_things() {
        for scene in scenes(SceneSplit::Train, 10).take(300) {
            for caption in scene.captions() {
                let words: Vec<&str> =
                    caption.words.iter().map(|word| &caption.text[word.range.clone()]).collect();
                assert_eq!(words.join(" "), caption.text);
                let mut n_nouns = vec![0; scene.things().len()];
                for (word, text) in caption.words.iter().zip(words) {
                    let Some(thing) = word.thing else {
                        assert_eq!(word.role, WordRole::Other, "{text} of {}", caption.text);
                        continue;
                    };
                    let description = scene.things()[thing].description;
                    let expected = match word.role {
                        WordRole::Size => description.size.word(),
                        WordRole::Colour => description.colour.word(),
                        WordRole::Shape => description.shape.word(),
                        WordRole::Other => "",
                    };
                    assert_eq!(text, expected, "{}", caption.text);
                    n_nouns[thing] += usize::from(word.role == WordRole::Shape);
                }
                assert!(n_nouns.iter().all(|n| (1..=2).contains(n)), "{}", caption.text);
            }
        }
    }

    /// What the scene lacks is aligned with nothing.
    #[test]
    fn a_wrong_description_is_aligned_with_nothing() {
        let scene = scenes(SceneSplit::Train, 11).next().unwrap();
        let [one, other] = [0, 1].map(|place| scene.things()[place].description);
        let lacking = Description { size: Size::ALL[1 - one.size as usize], ..one };
        let words = scene.align(&format!("There is a {lacking} above a {other}.")).unwrap();
        let things: Vec<Option<usize>> = words.iter().map(|word| word.thing).collect();
        let (none, some) = (None, Some(1));
        assert_eq!(things, [none, none, none, none, none, none, none, none, some, some, some, none]);
    }
}
