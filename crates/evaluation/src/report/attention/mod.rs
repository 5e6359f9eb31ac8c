//! Captions word by word, with what the model looked at.

mod shade;

use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use maud::{Markup, html};

use super::html;
use super::page::Page;
use crate::{EvaluationError, Result, table};
use cloze_files::write_atomic;

/// With fewer rows or columns than these, places are drawn with sharp edges: a smooth picture would seem to know more.
const COARSE: usize = 6;

/// Pictures narrower or lower than this are enlarged with sharp edges, in pixels.
const SMALL: usize = 100;

/// The page of captions, which shows for each word where the model looked when it chose it, as the figures of "Show, Attend
/// and Tell" (Xu et al. 2015) do.
///
/// It is one file without scripts, which loads nothing. An image is in it once; a word adds a small picture of its
/// attention.
///
/// ```
/// use cloze_evaluation::report::{AttendedWord, CaptionPage, CaptionedImage};
///
/// let word = |word: &str, attention: [f32; 4]| AttendedWord { word: word.into(), attention: attention.into() };
/// let image = CaptionedImage {
///     name: "dog.png".into(),
///     png: std::fs::read("dog.png").unwrap_or_default(),
///     width: 64,
///     height: 64,
///     grid: [2, 2],
///     words: vec![word("a", [0.25, 0.25, 0.25, 0.25]), word("dog", [0.1, 0.2, 0.0, 0.7])],
///     log_prob: -1.5,
/// };
/// let page = CaptionPage { title: "Captions".into(), images: vec![image] }.html()?;
/// assert!(page.contains("a dog") && page.contains("70.0 %"));
/// # Ok::<(), cloze_evaluation::EvaluationError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct CaptionPage {
    /// The page's title.
    pub title: String,
    /// The images, in the order of the page.
    pub images: Vec<CaptionedImage>,
}

/// An image of a [`CaptionPage`] with its caption.
#[derive(Clone, Debug, PartialEq)]
pub struct CaptionedImage {
    /// Its name, such as its file.
    pub name: String,
    /// The PNG file.
    pub png: Vec<u8>,
    /// Its width in pixels.
    pub width: usize,
    /// Its height in pixels.
    pub height: usize,
    /// Rows and columns of the places that the model looks at, which together cover the image.
    pub grid: [usize; 2],
    /// The caption.
    pub words: Vec<AttendedWord>,
    /// The logarithm of the caption's probability.
    pub log_prob: f64,
}

/// A word of a caption.
#[derive(Clone, Debug, PartialEq)]
pub struct AttendedWord {
    /// The word.
    pub word: String,
    /// `[rows · columns]`: the share of attention on each place, row by row, which sum to 1. Empty if there is no attention.
    pub attention: Vec<f32>,
}

impl CaptionPage {
    /// The page.
    ///
    /// # Errors
    /// [`EvaluationError::AttentionSize`] if a word has attention on more or fewer places than the grid has, and
    /// [`EvaluationError::AttentionNotShares`] if attention is negative, NaN or infinite.
    pub fn html(&self) -> Result<String> {
        self.images.iter().try_for_each(CaptionedImage::check)?;
        let has_attention = self.images.iter().any(CaptionedImage::has_attention);
        let count = match self.images.len() {
            1 => "One image".to_owned(),
            n => format!("{} images", table::grouped(n as u64)),
        };
        let content = html! {
            main {
                @if has_attention { (legend()) }
                @for (place, image) in self.images.iter().enumerate() { (image.show(place)) }
            }
        };
        let page = Page {
            kind: "captions",
            title: &self.title,
            summary: Some(match has_attention {
                true => format!("{count} with a caption, and where the model looked for each word."),
                false => format!("{count} with a caption."),
            }),
            style: include_str!("attention.css"),
            pictures: true,
            ..Page::default()
        };
        Ok(page.with(content).into_string())
    }

    /// Writes the page to a file, atomically.
    ///
    /// # Errors
    /// Those of [`html`](Self::html), and [`EvaluationError::Io`].
    pub fn write(&self, path: &Path) -> Result<()> {
        Ok(write_atomic(path, self.html()?.as_bytes())?)
    }
}

/// How to read the pictures.
fn legend() -> Markup {
    html! {
        div.legend {
            div.scale aria-hidden="true" { span { "least" } i {} span { "most attention" } }
            p.note {
                "Each small picture is bright where the model looked when it chose the word below it, and dark elsewhere; the \
                 brightest place of each is as bright as the image. The number is that place's share of the attention. If it is \
                 close to an even share, the model looked everywhere."
            }
        }
    }
}

impl CaptionedImage {
    fn places(&self) -> usize {
        self.grid[0].saturating_mul(self.grid[1])
    }

    fn has_attention(&self) -> bool {
        self.words.iter().any(|word| !word.attention.is_empty())
    }

    fn check(&self) -> Result<()> {
        for (position, AttendedWord { word, attention }) in self.words.iter().enumerate() {
            let (image, word) = (self.name.clone(), word.clone());
            if !attention.is_empty() && attention.len() != self.places() {
                let (found, grid) = (attention.len(), self.grid);
                return Err(EvaluationError::AttentionSize { image, position, word, found, grid });
            }
            if !attention.iter().all(|share| share.is_finite() && *share >= 0.0) {
                return Err(EvaluationError::AttentionNotShares { image, position, word });
            }
        }
        Ok(())
    }

    /// The words with spaces between them, but not before a mark of punctuation.
    fn caption(&self) -> String {
        let mut caption = String::new();
        for AttendedWord { word, .. } in &self.words {
            let is_mark =
                !word.is_empty() && word.chars().all(|c| matches!(c, '.' | ',' | ';' | ':' | '!' | '?'));
            if !caption.is_empty() && !is_mark {
                caption.push(' ');
            }
            caption.push_str(word);
        }
        caption
    }

    fn view_box(&self) -> String {
        format!("0 0 {} {}", self.width.max(1), self.height.max(1))
    }

    /// The image with its caption, and once more for each word; `place` is its place on the page.
    fn show(&self, place: usize) -> Markup {
        let (id, caption) = (format!("image-{place}"), self.caption());
        let is_small = self.width.min(self.height) < SMALL;
        html! {
            article.captioned.small[is_small] {
                div.whole {
                    svg viewBox=(self.view_box()) role="img" aria-label=(self.name) {
                        image id=(id) width=(self.width) height=(self.height) preserveAspectRatio="none" href=(data(&self.png)) {}
                    }
                    div {
                        (html::name(&self.name))
                        p.caption dir="auto" { @if caption.is_empty() { "(no words)" } @else { (caption) } }
                        dl {
                            @for (name, value) in self.facts() { div { dt { (name) } dd { (value) } } }
                        }
                    }
                }
                @if self.has_attention() {
                    ol.words { @for word in &self.words { li { (self.show_word(word, &id)) } } }
                }
            }
        }
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let number = |value: f64| {
            if value.is_finite() { format!("{value:.2}").replace('-', "−") } else { "–".into() }
        };
        let mut facts = vec![("log probability", number(self.log_prob))];
        if self.words.len() > 1 {
            facts.push(("by word", number(self.log_prob / self.words.len() as f64)));
        }
        if self.has_attention() {
            facts.push(("places", format!("{} × {}", self.grid[0], self.grid[1])));
            facts.push(("an even share", html::percent(1.0 / self.places() as f64)));
        }
        facts
    }

    fn show_word(&self, AttendedWord { word, attention }: &AttendedWord, image: &str) -> Markup {
        let [rows, columns] = self.grid;
        let largest = attention.iter().copied().enumerate().reduce(|a, b| if b.1 > a.1 { b } else { a });
        let most = largest
            .map(|(place, share)| (place / columns + 1, place % columns + 1, html::percent(share.into())));
        let said = match &most {
            Some((row, column, share)) => {
                format!(
                    "{word}: {share} of the attention on row {row} of {rows}, column {column} of {columns}"
                )
            }
            None => format!("{word}: no attention"),
        };
        let is_coarse = rows.min(columns) < COARSE;
        html! {
            svg viewBox=(self.view_box()) role="img" aria-label=(said) {
                title { (said) }
                use href={ "#" (image) } {}
                @if !attention.is_empty() {
                    image.shade.coarse[is_coarse] width=(self.width) height=(self.height) preserveAspectRatio="none"
                        href=(data(&shade::png(attention, columns, !is_coarse))) {}
                }
            }
            b dir="auto" { (word) }
            @if let Some((.., share)) = most { small { (share) } }
        }
    }
}

/// A PNG file as an address.
fn data(png: &[u8]) -> String {
    format!("data:image/png;base64,{}", BASE64_STANDARD.encode(png))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(word: &str, attention: &[f32]) -> AttendedWord {
        AttendedWord { word: word.into(), attention: attention.into() }
    }

    fn page(words: Vec<AttendedWord>) -> CaptionPage {
        let image = CaptionedImage {
            name: "a<b>.png".into(),
            png: vec![1, 2, 3],
            width: 60,
            height: 40,
            grid: [2, 3],
            words,
            log_prob: -2.5,
        };
        CaptionPage { title: "</title><script>".into(), images: vec![image.clone(), image] }
    }

    const SHARES: [f32; 6] = [0.0, 0.1, 0.2, 0.0, 0.6, 0.1];

    #[test]
    fn an_image_is_once_on_the_page_and_seen_with_each_word() {
        let html =
            page(vec![word("a", &[1.0 / 6.0; 6]), word("<b>", &SHARES), word(".", &[])]).html().unwrap();
        assert_eq!(html.matches("data:image/png;base64,AQID\"").count(), 2);
        assert_eq!(html.matches("<use href=\"#image-1\"").count(), 3);
        // A picture for each word with attention, of two images.
        assert_eq!(html.matches("class=\"shade coarse\"").count(), 4);
        for part in [
            "a &lt;b&gt;.</p>",
            "&lt;b&gt;: 60.0 % of the attention on row 2 of 2, column 2 of 3",
            "<small>60.0 %</small>",
            ".: no attention",
            "<dd>−2.50</dd>",
            "<dd>−0.83</dd>",
            "<dd>16.7 %</dd>",
            "img-src data:",
            "2 images with a caption, and where",
            "a&lt;b&gt;.png",
        ] {
            assert!(html.contains(part), "{part} is missing");
        }
        for foreign in ["<script", "<b>.png", "http:", "https:", "url("] {
            assert!(!html.contains(foreign), "{foreign}");
        }
    }

    #[test]
    fn a_fine_grid_is_smooth() {
        let mut page = page(vec![word("sky", &[1.0 / 48.0; 48])]);
        page.images.iter_mut().for_each(|image| image.grid = [6, 8]);
        let html = page.html().unwrap();
        assert!(html.contains("class=\"shade\"") && !html.contains("class=\"shade coarse\""));
    }

    #[test]
    fn a_caption_without_attention_is_plain() {
        let html = page(vec![word("a", &[]), word("dog", &[])]).html().unwrap();
        assert!(html.contains("a dog</p>") && html.contains("2 images with a caption."));
        for part in ["class=\"words\"", "<use", "class=\"legend\"", "an even share"] {
            assert!(!html.contains(part), "{part}");
        }
        let mut empty = page(Vec::new());
        empty.images[0].log_prob = f64::NAN;
        (empty.images[1].width, empty.images[1].height, empty.images[1].grid) = (0, 0, [0, usize::MAX]);
        let html = empty.html().unwrap();
        assert!(html.contains("(no words)") && html.contains("<dd>–</dd>"));
        assert!(
            CaptionPage { title: String::new(), images: Vec::new() }.html().unwrap().contains("0 images")
        );
    }

    #[test]
    fn attention_that_is_none_is_an_error() {
        let said = |attention: &[f32]| {
            let page = page(vec![word("a", &SHARES), word("dog", attention)]);
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("page.html");
            let error = page.write(&path).unwrap_err().to_string();
            assert!(!path.exists());
            error
        };
        assert_eq!(
            said(&[0.5; 4]),
            "a<b>.png, word 1 (\"dog\", counted from 0): attention on 4 places; expected 2 × 3, or none"
        );
        for bad in [f32::NAN, f32::INFINITY, -0.5] {
            let mut shares = SHARES;
            shares[3] = bad;
            assert_eq!(
                said(&shares),
                "a<b>.png, word 1 (\"dog\", counted from 0): the attention has a NaN, an infinity or a negative number; \
                 expected shares from 0 to 1; the model's weights may be damaged"
            );
        }
        let folder = tempfile::tempdir().unwrap();
        page(vec![word("dog", &[0.0; 6])]).write(&folder.path().join("page.html")).unwrap();
    }
}
