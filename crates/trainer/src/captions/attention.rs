//! Where a model looks: in the box of the thing that a word names, and how far it moves between words.

use super::written::{WrittenCaption, WrittenWord};
use cloze_data::images::scenes::{Scene, WordRole};

/// How a model looked at images, summed over them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Looks {
    /// Words that name a thing of their scene: nouns, colours and sizes.
    pub named: usize,
    /// Of these, the sum of the share of the attention inside the thing's box, divided by the box's share of the image.
    inside: f64,
    /// Pairs of neighbouring words.
    pairs: usize,
    /// Of these, the sum of the total variation of their attention, from 0 to 1.
    moved: f64,
}

impl Looks {
    /// Adds a caption of an image with `grid` rows and columns of places.
    pub fn add(&mut self, caption: &WrittenCaption, scene: Option<&Scene>, grid: [usize; 2]) {
        let attended: Vec<&WrittenWord> =
            caption.words.iter().filter(|word| !word.attention.is_empty()).collect();
        for pair in attended.windows(2) {
            let distance: f32 =
                pair[0].attention.iter().zip(&pair[1].attention).map(|(a, b)| (a - b).abs()).sum();
            self.moved += f64::from(distance) / 2.0;
            self.pairs += 1;
        }
        let Some(scene) = scene else { return };
        // What is not in the grammar names nothing.
        for named in scene.align(&caption.text).unwrap_or_default() {
            let (Some(thing), true) = (named.thing, named.role != WordRole::Other) else { continue };
            let word = attended.iter().find(|word| word.range.contains(&named.range.start));
            let Some(word) = word else { continue };
            // In parts of the image's side, fine enough for a tenth of a pixel.
            const SIDE: usize = 640;
            let bounds = scene.things()[thing].bounds(SIDE);
            let part = |pixel: usize| pixel as f64 / SIDE as f64;
            let [left, right, top, bottom] = [bounds.left, bounds.right, bounds.top, bounds.bottom].map(part);
            let share = inside(&word.attention, grid, [left, right, top, bottom]);
            self.inside += share / ((right - left) * (bottom - top));
            self.named += 1;
        }
    }

    /// The mean over words of the attention's share inside the box of the thing that the word names, as a multiple of the
    /// box's share of the image; 1 is what looking anywhere gives. None without such a word.
    pub fn box_ratio(&self) -> Option<f64> {
        (self.named > 0).then(|| self.inside / self.named as f64)
    }

    /// The mean total variation between the attention of neighbouring words: 0 if it stands still, 1 if it jumps from one
    /// place to another. None without such words.
    pub fn movement(&self) -> Option<f64> {
        (self.pairs > 0).then(|| self.moved / self.pairs as f64)
    }
}

/// The share of the attention in a box, whose edges are parts of the image's sides; each place's share is spread evenly over
/// its cell.
fn inside(attention: &[f32], [rows, columns]: [usize; 2], [left, right, top, bottom]: [f64; 4]) -> f64 {
    let overlap = |cell: usize, n: usize, from: f64, to: f64| {
        let [start, end] = [cell, cell + 1].map(|edge| edge as f64 / n as f64);
        (end.min(to) - start.max(from)).max(0.0) * n as f64
    };
    let cells = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
    attention
        .iter()
        .zip(cells)
        .map(|(share, (row, column))| {
            f64::from(*share) * overlap(row, rows, top, bottom) * overlap(column, columns, left, right)
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cloze_data::images::scenes::{DATA_SEED, SceneSplit, scenes};

    fn caption(text: &str, attention: impl Fn(usize) -> Vec<f32>) -> WrittenCaption {
        let words = text.split(' ').enumerate().map(|(number, word)| {
            let start = word.as_ptr() as usize - text.as_ptr() as usize;
            WrittenWord { range: start..start + word.len(), attention: attention(number) }
        });
        WrittenCaption { text: text.into(), score: 0.0, log_prob: 0.0, cut: false, words: words.collect() }
    }

    #[test]
    fn attention_everywhere_is_the_boxs_share() {
        for scene in scenes(SceneSplit::Dev, DATA_SEED).take(20) {
            let mut looks = Looks::default();
            looks.add(&caption(&scene.captions()[0].text, |_| vec![1.0 / 48.0; 48]), Some(&scene), [6, 8]);
            assert!((looks.box_ratio().unwrap() - 1.0).abs() < 1e-6, "{looks:?}");
            assert_eq!(looks.movement(), Some(0.0));
            assert!(looks.named >= 6);
        }
    }

    #[test]
    fn attention_in_the_box_counts_with_its_size() {
        // The left half of a cell.
        let found = inside(&[0.25, 0.75], [1, 2], [0.25, 0.75, 0.0, 1.0]);
        assert!((found - 0.5).abs() < 1e-9);
        assert_eq!(inside(&[1.0, 0.0], [2, 1], [0.0, 1.0, 0.5, 1.0]), 0.0);
    }

    #[test]
    fn jumping_is_movement() {
        let mut looks = Looks::default();
        looks.add(
            &caption("a b c", |word| if word == 1 { vec![1.0, 0.0] } else { vec![0.0, 1.0] }),
            None,
            [1, 2],
        );
        assert_eq!((looks.movement(), looks.box_ratio()), (Some(1.0), None));
        assert_eq!(Looks::default().movement(), None);
    }
}
