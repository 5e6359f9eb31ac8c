//! What a language model knows, on one page.

use std::path::Path;

use cloze_files::write_atomic;
use maud::{Markup, html};

use super::html;
use super::page::Page;
use crate::Result;
use crate::knowledge::KnowledgeTable;

/// Tables of figures of a test suite.
#[derive(Debug, Clone, Copy)]
pub struct KnowledgeReport<'a> {
    /// The page's title.
    pub title: &'a str,
    /// What was measured, such as the model and the data.
    pub facts: &'a [(&'a str, String)],
    /// The tables.
    pub tables: &'a [KnowledgeTable],
}

impl KnowledgeReport<'_> {
    /// Writes `report.html` into `folder`, which must exist.
    ///
    /// # Errors
    /// [`EvaluationError::Io`](crate::EvaluationError::Io).
    pub fn write(&self, folder: &Path) -> Result<()> {
        Ok(write_atomic(&folder.join("report.html"), self.page().into_string().as_bytes())?)
    }

    fn page(&self) -> Markup {
        let content = html! {
            main {
                @for table in self.tables {
                    section {
                        h2 { (table.title) }
                        @if let Some(note) = &table.note { p.note { (note) } }
                        (html::numbers(&table.header.iter().map(String::as_str).collect::<Vec<_>>(), &table.rows))
                    }
                }
            }
        };
        Page { kind: "knowledge", title: self.title, facts: self.facts, ..Page::default() }.with(content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_the_tables() {
        let folder = tempfile::tempdir().unwrap();
        let mut table = KnowledgeTable::new("Choices", ["test", "items"]).with_note("by <chance>");
        table.row(["wsc", "283"]);
        let report =
            KnowledgeReport { title: "choices", facts: &[("model", "tiny".into())], tables: &[table] };
        report.write(folder.path()).unwrap();
        let page = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
        for part in ["Choices", "wsc", "283", "by &lt;chance&gt;", "tiny"] {
            assert!(page.contains(part), "{part}");
        }
    }
}
