//! Draws scenes at random.

use super::thing::UNITS;
use super::{Colour, Description, Scene, Shape, Size, Thing};
use crate::{Random, derive_seed};

/// The seed of the data set. Another seed gives other scenes of the same splits.
pub const DATA_SEED: u64 = 0;

/// Separates the random numbers of scenes from all others of a seed.
const STREAM: u64 = 0x1A6E_0020;
/// The same for captions.
const CAPTIONS: u64 = 0x1A6E_0021;
/// What decides the split of a combination. It is never changed: it would let test scenes into training.
const HOLD_OUT: u64 = 0x1A6E_0022;

/// The smallest gap between two things, along one axis at least: 2 pixels of 64.
const GAP: i64 = 32;
/// Along the other axis, things have this gap too or overlap by twice as much, so that no relation is a matter of a pixel.
const OVERLAP: i64 = 2 * GAP;
/// The smallest distance to the image's edges: 1 pixel of 64.
const MARGIN: i64 = 16;

/// A part of the data.
///
/// The combination of a scene's things, as sizes, colours and shapes, decides its split: of all 57,120 combinations, a
/// tenth is for development and a tenth for test, chosen by a hash that does not depend on the seed. So no scene of one
/// split occurs in another, wherever its things are, and a model that knows training scenes by heart fails elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SceneSplit {
    /// 20,000 scenes to train on.
    Train,
    /// 1,000 scenes by which models are chosen.
    Dev,
    /// 1,000 scenes by which they are measured.
    Test,
}

impl SceneSplit {
    /// All of them.
    pub const ALL: &[Self] = &[Self::Train, Self::Dev, Self::Test];

    /// The number of its scenes.
    pub fn n_scenes(self) -> u64 {
        match self {
            Self::Train => 20_000,
            Self::Dev | Self::Test => 1_000,
        }
    }

    /// The split of scenes with exactly these things, in any order.
    pub fn of(things: &[Description]) -> Self {
        let code = |thing: &Description| {
            let place = thing.shape as usize * Colour::ALL.len() + thing.colour as usize;
            (place * Size::ALL.len() + thing.size as usize) as u64
        };
        let mut codes: Vec<u64> = things.iter().map(code).collect();
        codes.sort_unstable();
        match derive_seed(HOLD_OUT, &codes) % 10 {
            0 => Self::Dev,
            1 => Self::Test,
            _ => Self::Train,
        }
    }
}

/// The scenes of a split, in order. See [`scenes`].
#[derive(Debug, Clone)]
pub struct Scenes {
    split: SceneSplit,
    seed: u64,
    numbers: std::ops::Range<u64>,
}

/// The scenes of a split, each made when it is asked for: [`scene`] of the numbers from 0. `nth` makes only the one that
/// it returns.
pub fn scenes(split: SceneSplit, seed: u64) -> Scenes {
    Scenes { split, seed, numbers: 0..split.n_scenes() }
}

impl Iterator for Scenes {
    type Item = Scene;

    fn next(&mut self) -> Option<Scene> {
        self.nth(0)
    }

    fn nth(&mut self, n: usize) -> Option<Scene> {
        self.numbers.nth(n).map(|number| scene(self.split, self.seed, number))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.numbers.size_hint()
    }
}

impl ExactSizeIterator for Scenes {}

/// One scene: a function of these three. Half of all scenes have two things, half three; shapes, colours, sizes and
/// places are equally likely, as far as things do not overlap.
pub fn scene(split: SceneSplit, seed: u64, number: u64) -> Scene {
    let mut random = Random::derive(seed, &[STREAM, split as u64, number]);
    let n = 2 + random.below(2) as usize;
    let descriptions = std::iter::repeat_with(|| describe(n, &mut random))
        .find(|things| SceneSplit::of(things) == split)
        .expect("the repetition does not end");
    let things = place(&descriptions, &mut random);
    let grey = 224 + random.below(21) as i64;
    let background = varied([grey; 3], 6, &mut random);
    let mut scene = Scene { things, background, captions: Vec::new() };
    scene.captions = scene.write_captions(&mut Random::derive(seed, &[CAPTIONS, split as u64, number]));
    scene
}

/// `n` descriptions of different shapes and colours.
fn describe(n: usize, random: &mut Random) -> Vec<Description> {
    let (shapes, colours) = (different(Shape::ALL, n, random), different(Colour::ALL, n, random));
    let description =
        |(shape, colour)| Description { size: Size::ALL[random.below(2) as usize], colour, shape };
    shapes.into_iter().zip(colours).map(description).collect()
}

/// `n` different values.
fn different<T: Copy>(all: &[T], n: usize, random: &mut Random) -> Vec<T> {
    let mut left = all.to_vec();
    (0..n).map(|_| left.swap_remove(random.below(left.len() as u64) as usize)).collect()
}

/// Things at random places, all drawn again until none is too close to another.
fn place(descriptions: &[Description], random: &mut Random) -> Vec<Thing> {
    loop {
        let thing = |description: &Description| {
            let (from, to) = match description.size {
                Size::Small => (88, 112),
                Size::Big => (160, 200),
            };
            let radius = from + random.below((to - from) as u64 + 1) as i64;
            let least = radius + MARGIN;
            let mut coordinate = || least + random.below((UNITS - 2 * least) as u64 + 1) as i64;
            let (x, y) = (coordinate(), coordinate());
            let rgb = varied(description.colour.rgb().map(i64::from), 10, random);
            Thing { description: *description, rgb, x, y, radius }
        };
        let things: Vec<Thing> = descriptions.iter().map(thing).collect();
        let pairs = things
            .iter()
            .enumerate()
            .flat_map(|(at, one)| things[..at].iter().map(move |other| (one, other)));
        if pairs.into_iter().all(|(one, other)| are_apart(one, other)) {
            return things;
        }
    }
}

/// Whether two things do not overlap, and each axis says clearly whether one is before the other.
fn are_apart(one: &Thing, other: &Thing) -> bool {
    let gap = |a: i64, b: i64| (a - b).abs() - one.radius - other.radius;
    let gaps = [gap(one.x, other.x), gap(one.y, other.y)];
    gaps.iter().any(|gap| *gap >= GAP) && gaps.iter().all(|gap| *gap >= GAP || *gap <= -OVERLAP)
}

/// A colour with each of its values changed by at most `most`.
fn varied(rgb: [i64; 3], most: i64, random: &mut Random) -> [u8; 3] {
    rgb.map(|value| (value - most + random.below(2 * most as u64 + 1) as i64).clamp(0, 255) as u8)
}

#[cfg(test)]
mod tests {
    use super::super::{Fact, Relation, SIDE, facts};
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// The data must never change: models are compared on it. If this fails, a change of the code has changed the data.
    /// Undo that change, or give the new data another name; do not replace the hashes.
    #[test]
    fn the_data_never_changes() {
        let hash = |bytes: &[u8]| blake3::hash(bytes).to_hex().to_string();
        let hashes = |split: &SceneSplit| {
            let first: Vec<Scene> = scenes(*split, DATA_SEED).take(100).collect();
            let pixels: Vec<u8> = first.iter().flat_map(|scene| scene.draw(SIDE).pixels().to_vec()).collect();
            let captions = first.iter().flat_map(|scene| scene.captions());
            let captions: Vec<&str> = captions.map(|caption| &caption.text[..]).collect();
            [hash(&pixels), hash(captions.join("\n").as_bytes())]
        };
        let found: Vec<String> = SceneSplit::ALL.iter().flat_map(hashes).collect();
        let expected = [
            "1bf2b5136a9ad474247d1d8e3dbde12e08896f202a0dd0add36380c7017aadad",
            "dd03d810847e3c53433981392bc0d5453c9b5262f160b0f55b3e1fc8092fb14b",
            "d401fc844ebbcad3e690f1ff994a5d64006de7cfdc914234d4208cc77e0084e0",
            "c89141637b5c0a0b9f773323e90cebf12301974561c30784726370b75dcdbefa",
            "73f0325f09cd09afd7e88fbc595d6b23f9ff19f97e9b1cdf3938f2f2d7c32247",
            "a6cb9524ff9bd38f3deed8a6ab7aad4ecb2d4e78eea67f8c955df1a28aa5329a",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_scene_is_a_function_of_split_seed_and_number() {
        let first: Vec<Scene> = scenes(SceneSplit::Train, 1).take(20).collect();
        assert_eq!(scenes(SceneSplit::Train, 1).take(20).collect::<Vec<_>>(), first);
        assert_eq!(scene(SceneSplit::Train, 1, 17), first[17]);
        assert_eq!(scenes(SceneSplit::Train, 1).nth(17), Some(first[17].clone()));
        assert_ne!(scene(SceneSplit::Train, 2, 17), first[17]);
        assert_ne!(scene(SceneSplit::Train, 1, 18), first[17]);
        assert_ne!(scene(SceneSplit::Dev, 1, 17), first[17]);
        let lengths = SceneSplit::ALL.iter().map(|split| scenes(*split, 1).len());
        assert_eq!(lengths.collect::<Vec<_>>(), [20_000, 1_000, 1_000]);
        assert_eq!(scenes(SceneSplit::Dev, 1).nth(1_000), None);
    }

    fn combination(scene: &Scene) -> Vec<Description> {
        let mut things: Vec<Description> = scene.things().iter().map(|thing| thing.description).collect();
        things.sort_unstable();
        things
    }

    /// No combination of things is in two splits, whatever the seeds.
    #[test]
    fn no_scene_of_one_split_occurs_in_another() {
        let of = |split, seed| scenes(split, seed).map(|scene| combination(&scene)).collect::<BTreeSet<_>>();
        let train = of(SceneSplit::Train, DATA_SEED);
        let dev: BTreeSet<_> = &of(SceneSplit::Dev, DATA_SEED) | &of(SceneSplit::Dev, 1);
        let test: BTreeSet<_> = &of(SceneSplit::Test, DATA_SEED) | &of(SceneSplit::Test, 1);
        assert!(train.is_disjoint(&dev) && train.is_disjoint(&test) && dev.is_disjoint(&test));
        // They are not few.
        assert!(train.len() > 10_000 && dev.len() > 700 && test.len() > 700);
    }

    /// Of all combinations of two and of three things.
    #[test]
    fn a_tenth_of_all_combinations_is_held_out_twice() {
        let mut all = Vec::new();
        for shape in Shape::ALL {
            for colour in Colour::ALL {
                all.extend(Size::ALL.iter().map(|size| Description {
                    size: *size,
                    colour: *colour,
                    shape: *shape,
                }));
            }
        }
        let differ = |a: &Description, b: &Description| a.shape < b.shape && a.colour != b.colour;
        let mut counts = BTreeMap::new();
        let mut count =
            |things: &[Description]| *counts.entry(SceneSplit::of(things) as u8).or_insert(0) += 1;
        for a in &all {
            for b in all.iter().filter(|b| differ(a, b)) {
                count(&[*a, *b]);
                for c in all.iter().filter(|c| differ(b, c) && c.colour != a.colour) {
                    count(&[*a, *b, *c]);
                    assert_eq!(SceneSplit::of(&[*a, *b, *c]), SceneSplit::of(&[*c, *a, *b]));
                }
            }
        }
        assert_eq!(counts.values().sum::<i32>(), 57_120);
        // Six deviations of a tenth of 57,120.
        assert!([1, 2].iter().all(|split| counts[split].abs_diff(5_712) < 431), "{counts:?}");
    }

    /// Counts within six standard deviations of `n` draws with probability `p` each.
    fn assert_even<T: std::fmt::Debug>(counts: &BTreeMap<T, f64>, n_kinds: usize, n: f64) {
        let p = 1.0 / n_kinds as f64;
        let most = 6.0 * (n * p * (1.0 - p)).sqrt();
        assert_eq!(counts.len(), n_kinds);
        assert!(counts.values().all(|count| (count - n * p).abs() < most), "{counts:?}, expected {}", n * p);
    }

    #[test]
    fn all_kinds_are_equally_frequent() {
        for split in SceneSplit::ALL {
            let [mut shapes, mut colours, mut sizes, mut numbers, mut halves] =
                [(); 5].map(|()| BTreeMap::new());
            let mut relations = BTreeMap::new();
            let (mut n_scenes, mut n_things, mut n_relations) = (0.0, 0.0, 0.0);
            for scene in scenes(*split, DATA_SEED) {
                n_scenes += 1.0;
                *numbers.entry(scene.things().len()).or_insert(0.0) += 1.0;
                for Thing { description, x, .. } in scene.things() {
                    n_things += 1.0;
                    *shapes.entry(description.shape as usize).or_insert(0.0) += 1.0;
                    *colours.entry(description.colour as usize).or_insert(0.0) += 1.0;
                    *sizes.entry(description.size as usize).or_insert(0.0) += 1.0;
                    *halves.entry(usize::from(*x >= UNITS / 2)).or_insert(0.0) += 1.0;
                }
                // One of each scene: several would depend on one another.
                for fact in facts(&scene.captions()[0].text).unwrap() {
                    if let Fact::Related(_, relation, _) = fact {
                        n_relations += 1.0;
                        *relations.entry(relation).or_insert(0.0) += 1.0;
                        break;
                    }
                }
            }
            assert_even(&numbers, 2, n_scenes);
            assert_even(&shapes, Shape::ALL.len(), n_things);
            assert_even(&colours, Colour::ALL.len(), n_things);
            assert_even(&sizes, 2, n_things);
            assert_even(&halves, 2, n_things);
            assert_even(&relations, Relation::ALL.len(), n_relations);
        }
    }

    /// Along each axis, a thing is clearly before another or clearly not.
    #[test]
    fn no_relation_is_a_matter_of_a_pixel() {
        for scene in scenes(SceneSplit::Train, 12).take(2_000) {
            for one in scene.things() {
                assert!(
                    [one.x, one.y].iter().all(|place| (one.radius + 16..=1008 - one.radius).contains(place))
                );
                for other in scene.things().iter().filter(|other| *other != one) {
                    // 1.5 pixels more or less, of 64, change no relation.
                    for change in [-24, 24] {
                        let larger = Thing { radius: one.radius + change, ..*one };
                        for relation in Relation::ALL {
                            assert_eq!(relation.holds(&larger, other), relation.holds(one, other));
                        }
                    }
                    assert!(Relation::ALL.iter().any(|relation| relation.holds(one, other)));
                }
            }
        }
    }
}
