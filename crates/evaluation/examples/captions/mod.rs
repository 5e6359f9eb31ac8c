//! Invented captions: right and wrong ones of a scene, and what a captioner looks at, in grids of several sizes.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use cloze_evaluation::report::{
    AttendedWord, CaptionExample, CaptionPage, CaptionPredictions, CaptionVerdict, CaptionedImage,
};

/// A PNG file of 64 × 64 pixels in base64: a red circle above a blue square.
const SCENE: &str = "iVBORw0KGgoAAAANSUhEUgAAAEAAAABACAIAAAAlC+aJAAAAvklEQVR4nO3PvQ3CQBBEYVdDikRNVExMEU6c04ARtz9z4xNPmnC1et92HPvS2+wFANwFANwFAMov3o/76RYAfEufyUgCRtLnMDKAaL3UEAbk6nWGqQCFIQYo1psB9XqFAcAqgK76dgMAAACGTwH01/8ZoMuwNqC3PgwoGtrrM4C0QVGfBCQMovo8IGTQ1ZcAIwxpeg/APgDuAXAPgHsA3AMQ2e35+jkAAAAAAAAAAAAAFwUoBsA9AO4BcA+Aex/1CXrJOq+NPAAAAABJRU5ErkJggg==";

/// The scene as a PNG file.
pub fn scene() -> Vec<u8> {
    BASE64_STANDARD.decode(SCENE).expect("the constant above")
}

/// Captions of scenes with verdicts, or of images with whatever texts there are.
pub fn predictions(texts: &[&str], are_scenes: bool) -> cloze_evaluation::Result<CaptionPredictions> {
    let references = [
        "A large red circle is above a small blue square.",
        "The blue square is below a red circle.",
        "A small green star is left of a large gray triangle.",
    ];
    let captions = [
        "a large red circle is above a small blue square",
        "a large red circle is above a small green square",
        "a star a star a star",
    ];
    let problems = [
        &[][..],
        &["false: the square is green", "left out: a blue square"],
        &["not in the grammar: a star a star"],
    ];
    let example = |at: usize| match are_scenes {
        true => CaptionExample {
            id: format!("dev/{at}"),
            references: (0..3).map(|shift| references[(at + shift) % 3].into()).collect(),
            caption: captions[at / 2 % 3].into(),
            verdict: Some(CaptionVerdict {
                right: problems[at / 2 % 3].is_empty(),
                problems: problems[at / 2 % 3].iter().map(|problem| String::from(*problem)).collect(),
            }),
        },
        false => CaptionExample {
            id: format!("photos/{at}.jpg"),
            references: (0..1 + at % 3).map(|shift| texts[(at + shift) % texts.len()].into()).collect(),
            caption: texts[(at * at + at / 3) % texts.len()].into(),
            verdict: None,
        },
    };
    CaptionPredictions::new((0..30).map(example).collect(), 42)
}

/// Attention on fine, middling and coarse grids, of odd words, and none.
pub fn page(texts: &[&str]) -> CaptionPage {
    let image = |place: usize, text: &str, grid: [usize; 2]| {
        let words: Vec<&str> = text.split_whitespace().take(20).collect();
        let word =
            |at: usize| AttendedWord { word: words[at].into(), attention: attention(at, words.len(), grid) };
        CaptionedImage {
            name: format!("photos/{place}.png"),
            png: scene(),
            width: [64, 640][place % 2],
            height: [64, 400][place % 2],
            grid,
            words: (0..words.len()).map(word).collect(),
            log_prob: -1.3 * words.len() as f64,
        }
    };
    let grids = [[14, 14], [7, 7], [4, 4], [0, 0]];
    let scene = "a large red circle is above a small blue square .";
    let texts = [scene, scene].into_iter().chain(texts.iter().copied());
    CaptionPage {
        title: "captions of photos by runs/scenes".into(),
        images: texts.enumerate().map(|(place, text)| image(place, text, grids[place % 4])).collect(),
    }
}

/// A spot that moves from left to right word by word, and is wide for each third word. The last word has none.
fn attention(word: usize, words: usize, [rows, columns]: [usize; 2]) -> Vec<f32> {
    if word + 1 == words {
        return Vec::new();
    }
    let x = 0.15 + 0.7 * word as f32 / words as f32;
    let y = 0.2 + 0.6 * (0.37 * word as f32).fract();
    let wide = if word.is_multiple_of(3) { 0.4_f32 } else { 0.12 };
    let share = |place: usize| {
        let [row, column] = [place / columns, place % columns].map(|at| at as f32 + 0.5);
        let distance = (row / rows as f32 - y).powi(2) + (column / columns as f32 - x).powi(2);
        0.02 + (-distance / (2.0 * wide * wide)).exp()
    };
    let shares: Vec<f32> = (0..rows * columns).map(share).collect();
    let sum: f32 = shares.iter().sum();
    shares.iter().map(|share| share / sum).collect()
}
