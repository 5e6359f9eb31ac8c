//! A two-dimensional map of texts, as one page.

use std::collections::HashMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use maud::{Markup, PreEscaped, html};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::html;
use super::page::Page;
use crate::table::grouped;

/// The page's one script.
const SCRIPT: &str = include_str!("map.js");

/// The longer side of the points' bounding box: coordinates are integers from 0.
const SIDE: f64 = 100_000.0;

/// Classes with their own colour; the smallest ones beyond this share one.
const CLASSES: usize = 100;

/// Texts at positions in the plane.
///
/// The page shows a point for each text; hovering over it shows the text, and a search highlights the points
/// whose texts contain a string. Classes have colours, and a legend toggles them. The page loads nothing. It
/// has one script, allowed by hash in its policy; texts are data and never become script.
#[derive(Debug, Clone, Copy)]
pub struct MapReport<'a> {
    /// The page's title.
    pub title: &'a str,
    /// What was drawn, such as the model and the method.
    pub facts: &'a [(&'a str, String)],
    /// The texts. The page has the first 1,000 characters of each.
    pub texts: &'a [String],
    /// A class for each text, or empty.
    pub labels: &'a [String],
    /// `[texts · 2]`: their positions, finite numbers.
    pub positions: &'a [f64],
    /// A PNG file for each text, which is shown above it and may be empty; or none at all.
    pub pictures: &'a [Vec<u8>],
}

/// The data for the script.
#[derive(Serialize)]
struct Data<'a> {
    points: Vec<u32>,
    texts: Vec<String>,
    /// The classes' names, the largest class first.
    classes: Vec<&'a str>,
    /// The class of each point; empty if there are none.
    of: Vec<usize>,
    /// The picture of each point in base64; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pictures: Vec<String>,
}

impl MapReport<'_> {
    /// The whole page. The same report makes the same bytes.
    ///
    /// # Panics
    /// If the numbers of texts, labels, positions and pictures differ.
    pub fn to_html(&self) -> String {
        assert_eq!(self.positions.len(), 2 * self.texts.len(), "a position for each text");
        assert!(self.labels.is_empty() || self.labels.len() == self.texts.len(), "a label for each text");
        let n = self.pictures.len();
        assert!(n == 0 || n == self.texts.len(), "a picture for each text");
        let other = "other classes".to_owned();
        let (classes, of) = self.classes(&other);
        let texts = self.texts.iter().map(|text| html::clipped(text)).collect();
        let pictures = self.pictures.iter().map(|png| BASE64_STANDARD.encode(png)).collect();
        let data = Data { points: self.points(), texts, classes, of, pictures };
        let json = html::in_script(&serde_json::to_string(&data).expect("numbers and strings"));
        let hash = BASE64_STANDARD.encode(Sha256::digest(SCRIPT));
        let noun = if self.pictures.is_empty() { "texts" } else { "images" };
        let facts: Vec<(&str, String)> =
            self.facts.iter().cloned().chain([(noun, grouped(self.texts.len() as u64))]).collect();
        let style = include_str!("map.css");
        let page = Page {
            kind: "map",
            title: self.title,
            facts: &facts,
            style,
            script: Some(&hash),
            pictures: !self.pictures.is_empty(),
            ..Page::default()
        };
        page.with(content(&json)).into_string()
    }

    /// Integer coordinates, with both axes on the same scale.
    fn points(&self) -> Vec<u32> {
        let axis = |first: usize| self.positions.iter().skip(first).step_by(2).copied();
        let low = [0, 1].map(|first| axis(first).fold(f64::INFINITY, f64::min));
        let high = [0, 1].map(|first| axis(first).fold(f64::NEG_INFINITY, f64::max));
        let range = (high[0] - low[0]).max(high[1] - low[1]);
        let scale = if range > 0.0 { SIDE / range } else { 0.0 };
        let place = |(at, x): (usize, &f64)| ((x - low[at % 2]) * scale).round() as u32;
        self.positions.iter().enumerate().map(place).collect()
    }

    /// The class names by descending size, ties in order of occurrence, and the class of each text.
    fn classes<'a>(&'a self, other: &'a str) -> (Vec<&'a str>, Vec<usize>) {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        self.labels.iter().for_each(|label| *counts.entry(label).or_default() += 1);
        let mut names: Vec<&str> = counts.keys().copied().collect();
        names.sort_unstable_by(|a, b| counts[b].cmp(&counts[a]).then(a.cmp(b)));
        let places: HashMap<&str, usize> =
            names.iter().enumerate().map(|(place, name)| (*name, place.min(CLASSES))).collect();
        let of = self.labels.iter().map(|label| places[label.as_str()]).collect();
        if names.len() > CLASSES {
            names.truncate(CLASSES);
            names.push(other);
        }
        (names, of)
    }
}

/// The page below its header.
fn content(json: &str) -> Markup {
    html! {
        main {
            noscript { p.note { "The map is drawn by a script, which this browser does not run." } }
            div.tools {
                input #search type="search" placeholder="Search the texts" aria-label="Search the texts" autocomplete="off";
                output #found {}
                button #nearer type="button" aria-label="Nearer" { "+" }
                button #farther type="button" aria-label="Farther" { "−" }
                button #whole type="button" { "whole map" }
            }
            div.view {
                canvas #map tabindex="0" role="img" aria-label="The map. Arrow keys move it, + and − zoom, 0 shows all of it." {}
                div.said #tip hidden dir="auto" {}
            }
            p.said #picked hidden dir="auto" {}
            section #legend hidden {
                button #all type="button" { "all classes" }
                " "
                button #none type="button" { "no class" }
                div #classes {}
            }
            p.note { "Drag to move, scroll to zoom, click a point to keep its text." }
        }
        script #data type="application/json" { (PreEscaped(json)) }
        script { (PreEscaped(SCRIPT)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const TEXTS: [&str; 4] = ["</script><script>alert(1)</script>", "a\u{2028}b & \"c\"", "<!--", "日本\n語"];

    fn page(texts: &[&str], labels: &[&str], positions: &[f64]) -> String {
        let owned = |all: &[&str]| all.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let (texts, labels) = (owned(texts), owned(labels));
        let facts = [("model", "<img src=x>".to_owned())];
        let labels = &labels;
        MapReport { title: "<b>", facts: &facts, texts: &texts, labels, positions, pictures: &[] }.to_html()
    }

    /// The data given to the script.
    fn data(page: &str) -> Value {
        let begin = "<script id=\"data\" type=\"application/json\">";
        let data = page.split_once(begin).unwrap().1.split_once("</script>").unwrap().0;
        assert!(!data.contains(['<', '>', '&', '\u{2028}', '\u{2029}']), "{data}");
        serde_json::from_str(data).unwrap()
    }

    #[test]
    fn a_page_has_all_texts_and_none_is_code() {
        let page = page(&TEXTS, &["b", "a", "b", "c"], &[0.0, -1.0, 1.0, 0.0, 2.0, 1.0, 4.0, -1.0]);
        let expected = json!({
            "points": [0, 0, 25_000, 25_000, 50_000, 50_000, 100_000, 0],
            "texts": TEXTS,
            "classes": ["b", "a", "c"],
            "of": [0, 1, 0, 2],
        });
        assert_eq!(data(&page), expected);
        assert_eq!((page.matches("<script").count(), page.matches("</script").count()), (2, 2));
        for foreign in ["<img", "<b>", "http:", "https:", "href=", "alert(1)<"] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        assert!(page.contains("&lt;img src=x&gt;") && page.contains("&lt;b&gt;"));
    }

    #[test]
    fn the_policy_allows_the_one_script() {
        assert!(!SCRIPT.contains("</script") && !SCRIPT.contains("<!--"));
        let page = page(&TEXTS[..1], &[], &[0.5, 0.5]);
        let script = page.rsplit_once("<script>").unwrap().1.split_once("</script>").unwrap().0;
        let hash = BASE64_STANDARD.encode(Sha256::digest(script));
        let policy = format!("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{hash}'");
        assert!(
            page.contains(&format!("http-equiv=\"Content-Security-Policy\" content=\"{policy}\"")),
            "{policy}"
        );
        assert_eq!(data(&page), json!({"points": [0, 0], "texts": TEXTS[..1], "classes": [], "of": []}));
    }

    #[test]
    fn a_page_with_pictures_may_show_those_that_it_holds() {
        let (texts, positions) = (["a.png".to_owned(), "b.png".to_owned()], [0.0, 0.0, 1.0, 1.0]);
        let pictures = [b"\x89PNG".to_vec(), vec![0xFF; 3]];
        let report = MapReport {
            title: "Map of images",
            facts: &[],
            texts: &texts,
            labels: &[],
            positions: &positions,
            pictures: &pictures,
        };
        let page = report.to_html();
        assert_eq!(data(&page)["pictures"], json!(["iVBORw==", "////"]));
        assert!(page.contains("style-src 'unsafe-inline'; img-src data:; script-src 'sha256-"));
    }

    #[test]
    fn the_smallest_of_many_classes_share_a_colour() {
        let labels: Vec<String> = (0..CLASSES + 5).map(|i| format!("{i:03}")).chain(["104".into()]).collect();
        let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
        let n = labels.len();
        let data = data(&page(&vec!["x"; n], &labels, &vec![0.0; 2 * n]));
        let classes = data["classes"].as_array().unwrap();
        assert_eq!(classes.len(), CLASSES + 1);
        assert_eq!(
            (&classes[0], &classes[1], &classes[CLASSES]),
            (&json!("104"), &json!("000"), &json!("other classes"))
        );
        assert_eq!(
            (&data["of"][0], &data["of"][n - 1], &data["of"][n - 3]),
            (&json!(1), &json!(0), &json!(CLASSES))
        );
    }

    #[test]
    fn long_texts_are_cut() {
        let long = "é".repeat(2_000);
        let data = data(&page(&[&long], &[], &[0.0, 0.0]));
        assert_eq!(data["texts"][0], format!("{} … (2000 characters)", "é".repeat(1_000)));
    }
}
