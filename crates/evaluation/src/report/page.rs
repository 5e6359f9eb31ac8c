//! The frame of every page: its policy, its style and its header.
//!
//! A page loads nothing, and has no script but the one of a map, an inspection or a service, enforced by its content security policy;
//! maud escapes all text.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::chart;

const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// What a page with pictures may do: show those that it holds.
const PICTURES: &str = "; img-src data:";

/// What the page of a service may do beyond that: ask where it comes from. Its forms are read by its script alone.
const ASKS: &str = "; connect-src 'self'; base-uri 'none'; form-action 'none'";

/// What a page says first.
#[derive(Default)]
pub(super) struct Page<'a> {
    /// What kind of page it is, such as `evaluation`.
    pub kind: &'a str,
    /// Its title, such as the run's name.
    pub title: &'a str,
    /// The result in a sentence or two.
    pub summary: Option<String>,
    /// What it is about, such as the model and the data.
    pub facts: &'a [(&'a str, String)],
    /// The way to the page of its run, relative to the page.
    pub run: Option<&'a str>,
    /// Its own style.
    pub style: &'a str,
    /// Whether it holds pictures.
    pub pictures: bool,
    /// The SHA-256 in base64 of the one script that may run.
    pub script: Option<&'a str>,
    /// Whether that script may ask the service that the page comes from.
    pub asks: bool,
}

impl Page<'_> {
    /// Its content security policy.
    pub(super) fn policy(&self) -> String {
        let script = self.script.map(|hash| format!("; script-src 'sha256-{hash}'")).unwrap_or_default();
        let asks = if self.asks { ASKS } else { "" };
        let pictures = if self.pictures { PICTURES } else { "" };
        format!("{POLICY}{pictures}{script}{asks}")
    }

    /// The page with this content after its header.
    pub(super) fn with(&self, content: Markup) -> Markup {
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta http-equiv="Content-Security-Policy" content=(self.policy());
                    title { (self.title) }
                    style { (PreEscaped(include_str!("style.css"))) (PreEscaped(chart::STYLE)) (PreEscaped(self.style)) }
                }
                body { (self.header()) (content) }
            }
        }
    }

    fn header(&self) -> Markup {
        html! {
            header {
                p.kind {
                    "cloze · " (self.kind)
                    @if let Some(run) = self.run { " · " a href=(run) { "the whole run" } }
                }
                h1 dir="auto" { (self.title) }
                @if let Some(summary) = &self.summary { p.summary dir="auto" { (summary) } }
                @if !self.facts.is_empty() {
                    dl {
                        @for (name, value) in self.facts {
                            div { dt { (name) } dd dir="auto" { (value) } }
                        }
                    }
                }
            }
        }
    }
}
