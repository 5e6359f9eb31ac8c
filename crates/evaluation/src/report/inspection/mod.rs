//! What is seen inside a model, as one page.

mod data;
mod pack;

use std::path::Path;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use cloze_files::write_atomic;
use maud::{Markup, PreEscaped, html};
use rayon::prelude::*;
use sha2::{Digest, Sha256};

use super::html::in_script;
use super::page::Page;
use crate::inspection::{Inspection, MapKind, Side};
use crate::table::grouped;
use crate::{EvaluationError, Result};
use data::{Data, LensData, has_heads};
use pack::packed;

/// The page's one script, in the order in which its parts need one another.
const SCRIPT: &str = concat!(
    "\"use strict\";\n(() => {\n",
    include_str!("../elements.js"),
    include_str!("script/base.js"),
    include_str!("script/tokens.js"),
    include_str!("script/pens.js"),
    include_str!("script/state.js"),
    include_str!("script/scene.js"),
    include_str!("script/lines.js"),
    include_str!("script/matrix.js"),
    include_str!("script/overview.js"),
    include_str!("script/neurons.js"),
    include_str!("script/stage.js"),
    include_str!("script/heads.js"),
    include_str!("script/explanations.js"),
    include_str!("script/lens.js"),
    include_str!("script/alignment.js"),
    include_str!("script/main.js"),
    "})();\n",
);

/// An [`Inspection`] as a page.
///
/// The page loads nothing. It has one script, allowed by hash in its policy; texts are data and never become script or markup.
/// Shares and neurons are rounded to 8 bits, deflated, and unpacked by the browser; the inspection as JSON has all digits.
#[derive(Debug, Clone, Copy)]
pub struct InspectionReport<'a> {
    /// The page's title, such as the model's name.
    pub title: &'a str,
    /// What else is to be known, such as the file that the text was read from.
    pub facts: &'a [(&'a str, String)],
    /// What was seen. The page has the first 1,000 characters of each token.
    pub inspection: &'a Inspection,
}

impl InspectionReport<'_> {
    /// The largest page in bytes: 12 layers of 12 heads at 512 tokens are less.
    pub const LIMIT: usize = 9_000_000;

    /// The whole page. The same report makes the same bytes.
    ///
    /// # Errors
    /// [`EvaluationError::ShareNotFinite`]; [`EvaluationError::PageSize`] if it had more bytes than [`LIMIT`](Self::LIMIT).
    ///
    /// # Panics
    /// If the numbers of shares or neurons are not those of the tokens.
    pub fn to_html(&self) -> Result<String> {
        self.check()?;
        let data = Data::of(self.inspection);
        let blobs: Vec<(String, String, bool)> = data
            .maps
            .par_iter()
            .enumerate()
            .flat_map_iter(|(map, maps)| {
                maps.layers.iter().enumerate().flat_map(move |(layer, of)| {
                    let shares = Some((format!("shares-{map}-{layer}"), &of.shares, false));
                    let neurons = (!of.neurons.is_empty())
                        .then(|| (format!("neurons-{map}-{layer}"), &of.neurons, true));
                    shares.into_iter().chain(neurons)
                })
            })
            .map(|(id, bytes, are_neurons)| (id, packed(bytes), are_neurons))
            .collect();
        let lens = self
            .inspection
            .lens
            .as_ref()
            .map(|lens| packed(&serde_json::to_vec(&LensData::of(lens)).expect("numbers and strings")));
        let json = in_script(&serde_json::to_string(&data).expect("numbers and strings"));
        let content = html! {
            (self.content())
            script #data type="application/json" { (PreEscaped(json)) }
            @for (id, base64, _) in &blobs { script id=(id) type="application/octet-stream" { (base64) } }
            @if let Some(base64) = &lens { script id="lens-data" type="application/octet-stream" { (base64) } }
            script { (PreEscaped(SCRIPT)) }
        };
        let hash = BASE64_STANDARD.encode(Sha256::digest(SCRIPT));
        let page = Page {
            kind: "inside a model",
            title: self.title,
            facts: &self.all_facts(),
            style: concat!(include_str!("../controls.css"), include_str!("inspection.css")),
            script: Some(&hash),
            ..Page::default()
        };
        let page = page.with(content).into_string();
        if page.len() > Self::LIMIT {
            let neurons = blobs
                .iter()
                .filter(|(_, _, are_neurons)| *are_neurons)
                .map(|(_, base64, _)| base64.len())
                .sum();
            let layers = self.inspection.attention.iter().map(|maps| maps.layers.len()).sum();
            return Err(EvaluationError::PageSize { size: page.len(), limit: Self::LIMIT, neurons, layers });
        }
        Ok(page)
    }

    /// Writes the page to `path`, atomically: whole or not at all.
    ///
    /// # Errors
    /// Those of [`to_html`](Self::to_html), and [`EvaluationError::Io`].
    pub fn write(&self, path: &Path) -> Result<()> {
        Ok(write_atomic(path, self.to_html()?.as_bytes())?)
    }

    fn check(&self) -> Result<()> {
        for maps in &self.inspection.attention {
            for layer in &maps.layers {
                for (head, of) in layer.heads.iter().enumerate() {
                    let neurons = of.neurons.iter().flat_map(|of| of.queries.iter().chain(&of.keys));
                    if !of.shares.iter().chain(neurons).all(|value| value.is_finite()) {
                        return Err(EvaluationError::ShareNotFinite { layer: layer.layer, head });
                    }
                }
            }
        }
        Ok(())
    }

    fn all_facts(&self) -> Vec<(&str, String)> {
        let Inspection { model, kind, source, target, .. } = self.inspection;
        let count = |tokens: usize| grouped(tokens as u64);
        let tokens = match target {
            Some(target) => format!("{} read, {} written", count(source.len()), count(target.len())),
            None => count(source.len()),
        };
        let own = [("model", model.clone()), ("kind", kind.clone()), ("tokens", tokens)];
        let is_title = |value: &str| value == self.title;
        own.into_iter()
            .filter(|(_, value)| !is_title(value) && !value.is_empty())
            .chain(self.facts.iter().cloned())
            .collect()
    }

    /// The page below its header: frames that the script fills.
    fn content(&self) -> Markup {
        let seen = self.inspection;
        let are_heads = seen.attention.iter().any(|maps| maps.kind != MapKind::Align);
        html! {
            main {
                noscript { p.note { "The pictures are drawn by a script, which this browser does not run." } }
                p #broken hidden role="alert" {}
                @for note in &seen.notes { p.note.left-out dir="auto" { (note) } }
                @if seen.answer.is_some() || !seen.explanations.is_empty() {
                    section #answer {
                        @if seen.answer.is_some() {
                            h2 { "Answer" }
                            div #choices {}
                        }
                        @if !seen.explanations.is_empty() {
                            @if seen.answer.is_some() { h3 { "Explanations of this answer" } } @else { h2 { "Explanations" } }
                            div.tools {
                                button #said-tokens type="button" { "by token" }
                                button #said-words type="button" { "by word" }
                            }
                            p.note { (explained()) }
                            div #explanations {}
                            details { summary { "All numbers" } div #numbers .scroll {} }
                        }
                    }
                }
                @if seen.attention.iter().any(has_heads) {
                    section #attention {
                        h2 { "Attention" }
                        (controls(seen))
                        p #says .note {}
                        div.beside {
                            div.picture {
                                output #readout {}
                                div #stage {
                                    div #sizer { canvas #canvas tabindex="0" role="img" aria-describedby="keys readout" {} }
                                }
                                p #keys .note.small {
                                    "Point at a token to read its shares; click to keep it, and further ones for their sum. Arrow keys move, Enter keeps, Escape lets go."
                                }
                            }
                            div.heads {
                                h3 { @if are_heads { "Heads" } @else { "Layers" } }
                                div #heads .scroll {}
                                p.note.small { (table_note(are_heads)) }
                            }
                        }
                    }
                }
                @if let Some(lens) = &seen.lens {
                    section #lens {
                        h2 { "Layers" }
                        p.note {
                            "What each layer would answer at each "
                            @match lens.side { Side::Source => "token that is read", Side::Target => "token that is written" }
                            ", if the model's last step were applied to it at once (logit lens): the best piece, its probability, and the rank of the model's "
                            "own answer. It shows when the answer can be read off, not when the model “knows” it: early layers need not speak the last one's language."
                        }
                        output #lens-readout {}
                        div #lens-table .scroll tabindex="0" {}
                    }
                }
                @if seen.alignment.is_some() {
                    section #alignment {
                        h2 { "Translation" }
                        p.note {
                            "Words that belong together by cross-attention, and how widely each written word's attention is spread. "
                            "It shows where the model looked while it wrote, which is often, not always, what it translated."
                        }
                        div #aligned .scroll {}
                        p.note { "Pairs in Pharaoh's format (source-target, from 0):" }
                        p { code #pharaoh {} }
                    }
                }
                p.note.small.end {
                    "Shares and vectors on this page are rounded to 8 bits: a share by at most 1/510. Layers, heads and tokens are counted from 0. "
                    "The file that " code { "cloze inspect --json" } " writes has all digits."
                }
            }
        }
    }
}

fn explained() -> &'static str {
    "Each method gives every token a number; what speaks for the answer has a solid line below it, what speaks against it a dotted one, and colour grows \
     with the number. Methods may disagree: none of them is the model's own reason."
}

fn table_note(are_heads: bool) -> &'static str {
    if are_heads {
        "Entropy in bits: 0 is one token, high is spread out. Distance in tokens. Special: the share that special tokens get. Press a row to choose the head."
    } else {
        "This model has no heads: one alignment a layer. Entropy in bits: 0 is one token, high is spread out."
    }
}

fn controls(seen: &Inspection) -> Markup {
    let has_neurons = seen
        .attention
        .iter()
        .flat_map(|maps| &maps.layers)
        .flat_map(|layer| &layer.heads)
        .any(|head| head.neurons.is_some());
    let has_pair = seen.source.iter().any(|token| token.part > 0);
    html! {
        div.controls {
            div.tools {
                div.joined role="group" aria-label="View" {
                    button type="button" data-view="lines" { "lines" }
                    button type="button" data-view="matrix" { "matrix" }
                    button type="button" data-view="overview" { "all heads" }
                    @if has_neurons { button type="button" data-view="neurons" { "neurons" } }
                }
                select #map aria-label="What attends to what" hidden[seen.attention.len() < 2] {}
                label { "layer " select #layer {} }
                span.grow {}
                button #smaller type="button" aria-label="Smaller" { "−" }
                button #larger type="button" aria-label="Larger" { "+" }
                button #save type="button" { "save SVG" }
            }
            div.tools #head-tools {
                span { "heads" }
                div #chips role="group" aria-label="Heads" {}
                button #all-heads type="button" { "all" }
                label { input #several type="checkbox"; " several" }
            }
            div.tools {
                label { input #words type="checkbox"; " merge pieces into words" }
                label { input #plain type="checkbox"; " hide special tokens" }
                @if has_pair {
                    select #parts aria-label="Which texts" {
                        option value="" { "both texts" }
                        option value="0-1" { "first text → second" }
                        option value="1-0" { "second text → first" }
                        option value="0-0" { "within the first" }
                        option value="1-1" { "within the second" }
                    }
                }
                button #let-go type="button" hidden { "let go of tokens" }
            }
        }
    }
}
