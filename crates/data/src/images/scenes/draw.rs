//! Draws a scene.

use super::thing::UNITS;
use super::{Scene, Thing};
use crate::images::Image;

/// Each pixel is looked at in a grid of this many places in a row and a column, for smooth edges.
const GRID: i64 = 4;

/// The largest side of a drawn scene: sums of squares have room in 64 bits.
const MAX_SIDE: usize = 16_384;

impl Scene {
    /// The scene as an image of `side` × `side` pixels, with smooth edges. Below 32 pixels, things become hard to tell
    /// apart; [`SIDE`](super::SIDE) is the usual one.
    ///
    /// # Panics
    /// If `side` is 0 or above 16,384.
    pub fn draw(&self, side: usize) -> Image {
        assert!(
            (1..=MAX_SIDE).contains(&side),
            "a scene of {side} × {side} pixels; expected 1 to {MAX_SIDE}"
        );
        let mut image = Image::filled(side, side, self.background);
        for thing in &self.things {
            let bounds = thing.bounds(side);
            for y in bounds.top..bounds.bottom {
                for x in bounds.left..bounds.right {
                    let covered = thing.coverage(x, y, side);
                    let at = 3 * (y * side + x);
                    for (value, own) in image.pixels_mut()[at..at + 3].iter_mut().zip(thing.rgb) {
                        *value = blend(*value, own, covered);
                    }
                }
            }
        }
        image
    }
}

impl Thing {
    /// How many of the `GRID`² places of a pixel are inside.
    fn coverage(&self, x: usize, y: usize, side: usize) -> i64 {
        // The unit in which both the places and the thing's own measures are whole numbers.
        let scale = 2 * GRID * side as i64;
        let place = |pixel: usize, nth: i64| (2 * (GRID * pixel as i64 + nth) + 1) * UNITS;
        let mut covered = 0;
        for row in 0..GRID {
            for column in 0..GRID {
                let (x, y) = (place(x, column) - self.x * scale, place(y, row) - self.y * scale);
                covered += i64::from(self.description.shape.contains(x, y, self.radius * scale));
            }
        }
        covered
    }
}

fn blend(behind: u8, own: u8, covered: i64) -> u8 {
    let all = GRID * GRID;
    ((i64::from(behind) * (all - covered) + i64::from(own) * covered + all / 2) / all) as u8
}

#[cfg(test)]
mod tests {
    use super::super::{SIDE, SceneSplit, scenes};

    /// Each box has all pixels of its thing, none of another, and is not larger than it must be.
    #[test]
    fn boxes_contain_their_things_and_nothing_else() {
        for side in [32, SIDE, 100] {
            for scene in scenes(SceneSplit::Dev, 3).take(200) {
                let image = scene.draw(side);
                let boxes: Vec<_> = scene.things().iter().map(|thing| thing.bounds(side)).collect();
                for y in 0..side {
                    for x in 0..side {
                        let n = boxes.iter().filter(|bounds| bounds.contains(x, y)).count();
                        assert!(n <= 1, "{n} boxes at ({x}, {y})");
                        assert!(n == 1 || image.pixel(x, y) == scene.background(), "({x}, {y})");
                    }
                }
                for (thing, bounds) in scene.things().iter().zip(&boxes) {
                    // Alone, so that what is painted is its own.
                    let mut alone = scene.clone();
                    alone.things = vec![*thing];
                    let alone = alone.draw(side);
                    let mut own = Vec::new();
                    for y in bounds.top..bounds.bottom {
                        for x in bounds.left..bounds.right {
                            assert_eq!(image.pixel(x, y), alone.pixel(x, y), "{thing:?} at ({x}, {y})");
                            if alone.pixel(x, y) != scene.background() {
                                own.push((x, y));
                            }
                        }
                    }
                    let ends = |of: fn(&(usize, usize)) -> usize| {
                        (own.iter().map(of).min().unwrap(), own.iter().map(of).max().unwrap() + 1)
                    };
                    let ((left, right), (top, bottom)) = (ends(|place| place.0), ends(|place| place.1));
                    // A corner's tip may cover too little of a pixel to be seen.
                    let margins =
                        [left - bounds.left, bounds.right - right, top - bounds.top, bounds.bottom - bottom];
                    assert!(
                        margins.iter().all(|margin| *margin <= side / 32),
                        "{thing:?}: {margins:?} at {side}"
                    );
                    // Its middle colour is its own: a ring's is at its edge.
                    assert!(own.iter().any(|(x, y)| image.pixel(*x, *y) == thing.rgb), "{thing:?} at {side}");
                }
            }
        }
    }

    /// A small image is what a large one is from afar, and differs from one that is moved by half a small pixel.
    #[test]
    fn images_of_different_sides_show_the_same() {
        use crate::images::{Filter, Image, resize};
        for scene in scenes(SceneSplit::Dev, 4).take(50) {
            let (small, large) = (scene.draw(32), scene.draw(256));
            let mean = |large: &Image| {
                let large = resize(large, 32, 32, Filter::Box);
                let differences =
                    small.pixels().iter().zip(large.pixels()).map(|(a, b)| u32::from(a.abs_diff(*b)));
                f64::from(differences.sum::<u32>()) / small.pixels().len() as f64
            };
            let (same, moved) = (mean(&large), mean(&large.crop(4, 0, 256, 256, scene.background())));
            // Edges have 17 shades, so that they differ a little.
            assert!(moved > 3.0 * same, "{same}, moved {moved}");
        }
    }
}
