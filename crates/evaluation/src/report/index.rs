//! A run's page, which leads to everything the run has written.

use std::path::Path;

use maud::{Markup, html};

use super::html;
use super::page::Page;
use crate::figures::Figures;
use crate::{EvaluationError, Result};
use cloze_files::write_atomic;

/// The page of a run, `index.html`: its result on each split in a sentence, its learning curve, and its files.
#[derive(Clone, Copy, Debug)]
pub struct IndexReport<'a> {
    /// The run's name.
    pub title: &'a str,
    /// What was made, such as the step of the result.
    pub facts: &'a [(&'a str, String)],
    /// The result on each split.
    pub splits: &'a [IndexSplit],
    /// The learning curve, an SVG file. It is inserted unchanged, so its text must already be escaped.
    pub curve: Option<&'a Path>,
    /// The run's files and folders.
    pub links: &'a [IndexLink],
}

/// A split of an [`IndexReport`].
#[derive(Clone, Debug, PartialEq)]
pub struct IndexSplit {
    /// The split.
    pub split: String,
    /// Its figures.
    pub figures: Figures,
    /// The result in a sentence.
    pub summary: String,
    /// Its page, relative to the run's.
    pub page: String,
}

/// A file of an [`IndexReport`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexLink {
    /// Its path, relative to the page; a folder's ends with `/`.
    pub path: String,
    /// What it is.
    pub what: String,
}

impl IndexReport<'_> {
    /// Writes the page to `path`, atomically.
    ///
    /// # Errors
    /// [`EvaluationError::Io`].
    pub fn write(&self, path: &Path) -> Result<()> {
        let read = |path: &Path| std::fs::read_to_string(path).map_err(EvaluationError::io("read", path));
        let curve = self.curve.map(read).transpose()?;
        Ok(write_atomic(path, self.page(curve.as_deref()).into_string().as_bytes())?)
    }

    fn page(&self, curve: Option<&str>) -> Markup {
        let content = html! {
            main {
                @for split in self.splits {
                    section {
                        h2 { a href=(link(&split.page)) { (split.split) } }
                        @let (main, value) = split.figures.main();
                        div.figures {
                            (html::tile(main, value, None, true))
                            @for (name, value) in split.figures.iter().filter(|(name, _)| *name != main) {
                                (html::tile(name, value, None, false))
                            }
                        }
                    }
                }
                @if let Some(svg) = curve {
                    section { h2 { "Learning curve" } (html::picture(svg)) }
                }
                section {
                    h2 { "Files" }
                    dl.files {
                        @for IndexLink { path, what } in self.links {
                            dt { a href=(link(path)) { (path) } }
                            dd { (what) }
                        }
                    }
                }
            }
        };
        let said: Vec<String> =
            self.splits.iter().map(|split| format!("{}: {}", split.split, split.summary)).collect();
        let summary = (!said.is_empty()).then(|| said.join(" "));
        Page { kind: "run", title: self.title, summary, facts: self.facts, ..Page::default() }.with(content)
    }
}

/// A relative path as a link. What has a meaning in addresses is escaped: a colon would begin a scheme.
pub(super) fn link(path: &str) -> String {
    let mut link = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'/' => {
                link.push(char::from(byte))
            }
            byte => link.push_str(&format!("%{byte:02X}")),
        }
    }
    link
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_s_page_leads_to_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let (path, curve) = (folder.path().join("index.html"), folder.path().join("curve.svg"));
        std::fs::write(&curve, "<svg class=\"chart\"></svg>").unwrap();
        let splits = [IndexSplit {
            split: "dev <1>".into(),
            figures: Figures::new(10, [("accuracy", 0.75), ("loss", 1.0)]),
            summary: "The model's accuracy is 0.7500 on 10 examples.".into(),
            page: "report/dev <1>/report.html".into(),
        }];
        let links = [IndexLink { path: "model/".into(), what: "the result & its tokenizer".into() }];
        let facts = [("step", "4".to_owned())];
        IndexReport { title: "my <run>", facts: &facts, splits: &splits, curve: Some(&curve), links: &links }
            .write(&path)
            .unwrap();
        let page = std::fs::read_to_string(&path).unwrap();
        for part in [
            "<h1 dir=\"auto\">my &lt;run&gt;</h1>",
            "dev &lt;1&gt;: The model's accuracy is 0.7500 on 10 examples.",
            "href=\"report/dev%20%3C1%3E/report.html\"",
            "href=\"model/\"",
            "the result &amp; its tokenizer",
            "<svg class=\"chart\"></svg>",
        ] {
            assert!(page.contains(part), "{part} is missing in {page}");
        }
        assert!(!page.contains("<script"));
    }

    #[test]
    fn a_link_stays_in_the_folder() {
        assert_eq!(link("javascript:alert(1)"), "javascript%3Aalert%281%29");
        assert_eq!(link("a?b#c/é"), "a%3Fb%23c/%C3%A9");
    }
}
