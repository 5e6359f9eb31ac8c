//! The page of a service: its models asked by hand.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use maud::{PreEscaped, html};
use sha2::{Digest, Sha256};

use super::page::Page;

/// The page's one script, in the order in which its parts need one another.
const SCRIPT: &str = concat!(
    "\"use strict\";\n(() => {\n",
    include_str!("../elements.js"),
    include_str!("script/client.js"),
    include_str!("script/bars.js"),
    include_str!("script/panel.js"),
    include_str!("script/masks.js"),
    include_str!("script/classes.js"),
    include_str!("script/entities.js"),
    include_str!("script/answers.js"),
    include_str!("script/sentences.js"),
    include_str!("script/ranks.js"),
    include_str!("script/translation.js"),
    include_str!("script/writing.js"),
    include_str!("script/choices.js"),
    include_str!("script/tokens.js"),
    include_str!("script/main.js"),
    "})();\n",
);

/// The page on which people ask a service's models.
///
/// It is the same for every service: its script asks `GET /info` which models there are, and shows a panel for each kind. The page
/// loads nothing, and may ask the service that it comes from alone. Texts are data and never become script or markup.
#[derive(Debug, Clone)]
pub struct ServicePage {
    /// The page.
    pub html: String,
    /// The policy that its response should have as `Content-Security-Policy`. The page has it too, except that other pages may
    /// not show it in a frame, which only a header can say.
    pub policy: String,
}

impl ServicePage {
    /// The page. It has the same bytes each time.
    pub fn new() -> Self {
        let hash = BASE64_STANDARD.encode(Sha256::digest(SCRIPT));
        let page = Page {
            kind: "service",
            title: "Ask the models",
            style: concat!(include_str!("../controls.css"), include_str!("service.css")),
            script: Some(&hash),
            asks: true,
            ..Page::default()
        };
        let content = html! {
            main {
                noscript { p.note { "This page needs a script, which this browser does not run. Every panel is also a route of the service." } }
                p #about .note {}
                p #broken hidden role="alert" {}
                form #key .tools hidden {
                    label { "API key " input name="key" type="password" autocomplete="off" required; }
                    button type="submit" { "Use this key" }
                    span.soft { "It is kept until the page is closed." }
                }
                nav #panels .tools aria-label="What to ask" {}
                div #open {}
            }
            script { (PreEscaped(SCRIPT)) }
        };
        Self {
            html: page.with(content).into_string(),
            policy: format!("{}; frame-ancestors 'none'", page.policy()),
        }
    }
}

impl Default for ServicePage {
    fn default() -> Self {
        Self::new()
    }
}
