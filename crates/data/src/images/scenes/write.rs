//! Writes captions.

use super::{Caption, Description, N_CAPTIONS, Relation, Scene};
use crate::Random;

/// What a clause names, as its words.
struct Ground {
    words: String,
    /// "them" cannot be the subject of "has".
    is_plural: bool,
}

impl Scene {
    /// Another caption, drawn at random: true, with every thing. It may be one of [`captions`](Self::captions).
    pub fn caption(&self, random: &mut Random) -> Caption {
        let text = self.write(random);
        let words = self.align(&text).expect("what is written is in the grammar");
        Caption { text, words }
    }

    /// Different captions.
    pub(super) fn write_captions(&self, random: &mut Random) -> Vec<Caption> {
        let mut captions: Vec<Caption> = Vec::new();
        // Any two things can be described in eight ways, so that this ends.
        while captions.len() < N_CAPTIONS {
            let caption = self.caption(random);
            if captions.iter().all(|other| other.text != caption.text) {
                captions.push(caption);
            }
        }
        captions
    }

    fn write(&self, random: &mut Random) -> String {
        let n = self.things.len();
        // A random order: the first two make a clause.
        let mut order: Vec<usize> = (0..n).collect();
        for last in (1..n).rev() {
            order.swap(last, random.below(last as u64 + 1) as usize);
        }
        let new = |thing: usize| format!("a {}", self.things[thing].description);
        let ground = Ground { words: new(order[1]), is_plural: false };
        let relation = one_of(&self.relations(order[0], &order[1..2]), random);
        let mut text = clause(&new(order[0]), relation, &ground, random);
        for (place, thing) in order.iter().enumerate().skip(2) {
            let earlier = &order[..place];
            let to_all = self.relations(*thing, earlier);
            let (relation, ground) = match !to_all.is_empty() && random.chance(0.5) {
                true => (one_of(&to_all, random), Ground { words: "them".into(), is_plural: true }),
                false => {
                    let other = one_of(earlier, random);
                    let Description { shape, .. } = self.things[other].description;
                    let ground = Ground { words: format!("the {shape}"), is_plural: false };
                    (one_of(&self.relations(*thing, &[other]), random), ground)
                }
            };
            text += one_of(&[" ; ", " , and "], random);
            text += &clause(&new(*thing), relation, &ground, random);
        }
        text
    }

    /// The relations of a thing to all of the others. There is one at least to a single thing, because boxes do not overlap.
    fn relations(&self, thing: usize, others: &[usize]) -> Vec<Relation> {
        let holds = |relation: &&Relation| {
            others.iter().all(|other| relation.holds(&self.things[thing], &self.things[*other]))
        };
        Relation::ALL.iter().filter(holds).copied().collect()
    }
}

fn clause(thing: &str, relation: Relation, ground: &Ground, random: &mut Random) -> String {
    let (words, other) = (relation.words(), &ground.words);
    match random.below(if ground.is_plural { 3 } else { 4 }) {
        0 => format!("{thing} is {words} {other}"),
        1 => format!("{words} {other} is {thing}"),
        2 => format!("there is {thing} {words} {other}"),
        _ => format!("{other} has {thing} {}", relation.words_after()),
    }
}

fn one_of<T: Copy>(values: &[T], random: &mut Random) -> T {
    values[random.below(values.len() as u64) as usize]
}

#[cfg(test)]
mod tests {
    use super::super::{SceneSplit, scenes};
    use std::collections::HashSet;

    #[test]
    fn captions_of_a_scene_differ() {
        let mut forms = HashSet::new();
        for scene in scenes(SceneSplit::Train, 8).take(500) {
            let texts: HashSet<&str> = scene.captions().iter().map(|caption| &caption.text[..]).collect();
            assert_eq!(texts.len(), super::N_CAPTIONS);
            for caption in scene.captions() {
                // Without what the things look like, a caption is its form.
                let own = |word: &&super::super::CaptionWord| word.role == super::super::WordRole::Other;
                let words = caption.words.iter().filter(own).map(|word| &caption.text[word.range.clone()]);
                forms.insert(words.collect::<Vec<_>>().join(" "));
            }
        }
        // 4 relations in 4 forms; and with a second clause, after 2 links, of 4 relations in 4 forms or 3 with "them".
        assert_eq!(forms.iter().filter(|form| !form.contains([';', ','])).count(), 16);
        assert!(forms.len() > 300, "{}", forms.len());
    }
}
