//! Where a captioner looks in NLVR's scenes (Suhr et al. 2017), whose objects' places are known.

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

/// NLVR's images, in pixels.
const SIZE: [f64; 2] = [400.0, 100.0];

/// A row of the table of scenes.
#[derive(Deserialize)]
struct Scene {
    objects: Vec<Object>,
}

#[derive(Deserialize)]
struct Object {
    color: String,
    shape: String,
    /// Left, top, right and bottom, in pixels.
    #[serde(rename = "box")]
    bounds: [f64; 4],
}

/// What was seen of all captions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Looks {
    /// At words that name a colour or a shape that the scene has: the mean of the attention's share inside the boxes of such
    /// objects, as a multiple of the boxes' share of the image.
    pub in_boxes: f64,
    /// Such words.
    pub words: usize,
    /// The share of captions that differ from one another.
    pub distinct: f64,
}

/// Reads what `cloze caption --json` printed of scenes, one a line, in their order.
pub fn looks(captions: &str, scenes: &str) -> Result<Looks> {
    let (mut sum, mut words, mut texts) = (0.0, 0, Vec::new());
    for (number, (line, scene)) in captions.lines().zip(scenes.lines()).enumerate() {
        let place = || format!("scene {}", number + 1);
        let scene: Scene = serde_json::from_str(scene).with_context(place)?;
        let image: Value = serde_json::from_str(line).with_context(place)?;
        let caption = image["captions"].get(0).with_context(place)?;
        texts.push(caption["text"].as_str().with_context(place)?.to_owned());
        let grid: [usize; 2] = serde_json::from_value(image["grid"].clone()).with_context(place)?;
        for word in caption["words"].as_array().into_iter().flatten() {
            let name = word["word"].as_str().unwrap_or_default();
            let named: Vec<&Object> = scene.objects.iter().filter(|object| object.is_named(name)).collect();
            let attention: Vec<f64> = match word.get("attention") {
                Some(attention) => serde_json::from_value(attention.clone()).with_context(place)?,
                None => continue,
            };
            let covered = covered(&named, grid);
            let share = covered.iter().sum::<f64>() / covered.len().max(1) as f64;
            if share > 0.0 {
                let inside: f64 = attention.iter().zip(&covered).map(|(share, part)| share * part).sum();
                sum += inside / share;
                words += 1;
            }
        }
    }
    let n = texts.len();
    texts.sort();
    texts.dedup();
    let distinct = texts.len() as f64 / n.max(1) as f64;
    Ok(Looks { in_boxes: sum / words as f64, words, distinct })
}

impl Object {
    /// Whether a word is its colour or its shape, which in a tower is called a block.
    fn is_named(&self, word: &str) -> bool {
        let word = word.to_lowercase();
        let singular = word.strip_suffix('s').unwrap_or(&word);
        singular == self.color || singular == self.shape || (singular == "block" && self.shape == "square")
    }
}

/// Of each place of a grid, how much of it lies in the boxes of some objects, which do not overlap.
fn covered(objects: &[&Object], [rows, columns]: [usize; 2]) -> Vec<f64> {
    let part = |place: usize, n: usize, size: f64, from: f64, to: f64| {
        let side = size / n as f64;
        let start = place as f64 * side;
        ((start + side).min(to) - start.max(from)).max(0.0) / side
    };
    let places = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
    let cover = |(row, column)| -> f64 {
        let [width, height] = SIZE;
        let parts = objects.iter().map(|object| {
            let [left, top, right, bottom] = object.bounds;
            part(column, columns, width, left, right) * part(row, rows, height, top, bottom)
        });
        parts.sum::<f64>().min(1.0)
    };
    places.map(cover).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A blue triangle that fills the first of four places, and a black square that fills half of the last.
    const SCENE: &str = r#"{"objects": [{"color": "blue", "shape": "triangle", "box": [0, 0, 100, 100]},
        {"color": "black", "shape": "square", "box": [350, 0, 400, 100]}]}"#;

    fn seen(words: &[(&str, [f64; 4])]) -> Looks {
        let words: Vec<Value> = words
            .iter()
            .map(|(word, attention)| serde_json::json!({"word": word, "attention": attention}))
            .collect();
        let image = serde_json::json!({"grid": [1, 4], "captions": [{"text": "a", "words": words}]});
        looks(&image.to_string(), &SCENE.replace('\n', " ")).unwrap()
    }

    #[test]
    fn attention_is_compared_with_the_boxes_of_what_a_word_names() {
        let even =
            seen(&[("Blue", [0.25; 4]), ("blocks", [0.25; 4]), ("is", [0.25; 4]), ("yellow", [0.25; 4])]);
        assert_eq!((even.in_boxes, even.words, even.distinct), (1.0, 2, 1.0));
        assert_eq!(seen(&[("triangles", [1.0, 0.0, 0.0, 0.0])]).in_boxes, 4.0);
        assert_eq!(seen(&[("square", [0.0, 0.0, 0.0, 1.0])]).in_boxes, 4.0);
        assert_eq!(seen(&[("black", [0.5, 0.5, 0.0, 0.0])]).in_boxes, 0.0);
    }

    #[test]
    fn captions_without_attention_say_nothing() {
        let image = r#"{"grid": [1, 4], "captions": [{"text": "a", "words": [{"word": "blue"}]}]}"#;
        let looks = looks(image, &SCENE.replace('\n', " ")).unwrap();
        assert!(looks.words == 0 && looks.in_boxes.is_nan());
        assert!(super::looks("{}", &SCENE.replace('\n', " ")).is_err());
    }
}
