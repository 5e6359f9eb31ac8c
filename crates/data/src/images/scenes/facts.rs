//! What a caption states, and how much of it is true.

use super::parse::Parsed;
use super::{CaptionError, Description, Relation, Scene, Thing};
use std::fmt;

/// Something that a caption states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fact {
    /// There is such a thing.
    Exists(Description),
    /// Where a thing is, seen from another.
    Related(Description, Relation, Description),
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exists(thing) => write!(f, "there is a {thing}"),
            Self::Related(thing, relation, other) => write!(f, "a {thing} is {} a {other}", relation.words()),
        }
    }
}

/// The facts that a caption states, in its order: for each "a small red circle" that there is one, and for each relation
/// between two things that it holds. "above them" states a relation to each. Upper and lower case are the same.
///
/// ```
/// use cloze_data::images::scenes::facts;
///
/// let facts = facts("a small red circle is above a big blue square")?;
/// let texts: Vec<String> = facts.iter().map(|fact| fact.to_string()).collect();
/// assert_eq!(texts, [
///     "there is a small red circle",
///     "there is a big blue square",
///     "a small red circle is above a big blue square",
/// ]);
/// # Ok::<_, cloze_data::images::scenes::CaptionError>(())
/// ```
///
/// # Errors
/// What is not in the grammar, see [the module](super).
pub fn facts(caption: &str) -> Result<Vec<Fact>, CaptionError> {
    Ok(Parsed::read(caption)?.facts)
}

/// How much of a caption is true of a scene.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Judgement {
    /// The caption's facts.
    pub n_facts: usize,
    /// Those that are true.
    pub n_right: usize,
    /// The things of the scene that the true facts name, each counted once. A caption may be true and leave out a thing.
    pub n_named: usize,
}

impl Scene {
    /// The place in [`things`](Self::things) of the thing with this description.
    pub fn find(&self, description: Description) -> Option<usize> {
        self.things().iter().position(|thing| thing.description == description)
    }

    /// Whether a fact is true here. A relation is false if one of the things does not exist.
    pub fn is_true(&self, fact: &Fact) -> bool {
        let thing = |description: &Description| -> Option<&Thing> {
            self.find(*description).map(|place| &self.things()[place])
        };
        match fact {
            Fact::Exists(description) => thing(description).is_some(),
            Fact::Related(one, relation, other) => match (thing(one), thing(other)) {
                (Some(one), Some(other)) => relation.holds(one, other),
                _ => false,
            },
        }
    }

    /// Whether all facts are true here. It does not say that they name everything, see [`Judgement::n_named`].
    pub fn holds(&self, facts: &[Fact]) -> bool {
        facts.iter().all(|fact| self.is_true(fact))
    }

    /// Counts the facts that are true here.
    pub fn judge(&self, facts: &[Fact]) -> Judgement {
        let is_named = |thing: &&Thing| facts.contains(&Fact::Exists(thing.description));
        Judgement {
            n_facts: facts.len(),
            n_right: facts.iter().filter(|fact| self.is_true(fact)).count(),
            n_named: self.things().iter().filter(is_named).count(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Colour, SceneSplit, Shape, scenes};
    use super::*;

    /// Another value: the next one.
    fn next<T: Copy + PartialEq>(all: &[T], value: T) -> T {
        let place = all.iter().position(|one| *one == value).unwrap();
        all[(place + 1) % all.len()]
    }

    #[test]
    fn captions_are_true_and_name_every_thing() {
        for scene in scenes(SceneSplit::Train, 5).take(2000) {
            for caption in scene.captions() {
                let facts = facts(&caption.text).unwrap();
                let judgement = scene.judge(&facts);
                let n = scene.things().len();
                assert!(scene.holds(&facts), "{}", caption.text);
                // Two things have one relation, and the third one or two.
                assert!((n + n - 1..=n + 3).contains(&facts.len()), "{}", caption.text);
                assert_eq!((judgement.n_right, judgement.n_named), (facts.len(), n), "{}", caption.text);
            }
        }
    }

    #[test]
    fn a_changed_fact_is_false() {
        let mut n_relations = 0;
        for scene in scenes(SceneSplit::Train, 6).take(300) {
            for fact in facts(&scene.captions()[0].text).unwrap() {
                let changed = match fact {
                    Fact::Exists(thing) => vec![
                        Fact::Exists(Description {
                            size: next(super::super::Size::ALL, thing.size),
                            ..thing
                        }),
                        Fact::Exists(Description { colour: next(Colour::ALL, thing.colour), ..thing }),
                        Fact::Exists(Description { shape: next(Shape::ALL, thing.shape), ..thing }),
                    ],
                    Fact::Related(thing, relation, other) => {
                        n_relations += 1;
                        let recoloured = Description { colour: next(Colour::ALL, thing.colour), ..thing };
                        vec![
                            Fact::Related(other, relation, thing),
                            Fact::Related(thing, relation, thing),
                            Fact::Related(recoloured, relation, other),
                        ]
                    }
                };
                assert!(changed.iter().all(|fact| !scene.is_true(fact)), "{fact}");
            }
        }
        assert!(n_relations >= 300);
    }

    /// The same on texts, as a model would get them wrong.
    #[test]
    fn a_caption_with_a_wrong_word_is_false() {
        let swaps =
            [("left", "right"), ("above", "below"), ("small", "big"), ("red", "blue"), ("star", "ring")];
        let mut n_changed = [0; 5];
        for scene in scenes(SceneSplit::Test, 7).take(300) {
            let caption = &scene.captions()[0];
            for ((from, to), n) in swaps.into_iter().zip(&mut n_changed) {
                // All words at once, in both directions.
                let swapped = |word: &str| match word {
                    word if word == from => to.to_string(),
                    word if word == to => from.to_string(),
                    word => word.to_string(),
                };
                let text = caption.text.split(' ').map(swapped).collect::<Vec<_>>().join(" ");
                if text != caption.text {
                    let facts = facts(&text).unwrap();
                    let judgement = scene.judge(&facts);
                    assert!(!scene.holds(&facts) && judgement.n_right < judgement.n_facts, "{text}");
                    *n += 1;
                }
            }
        }
        assert!(n_changed.iter().all(|n| *n > 20), "{n_changed:?}");
    }
}
