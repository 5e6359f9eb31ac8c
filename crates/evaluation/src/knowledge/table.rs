//! A table of figures, for a terminal and for a page.

use crate::table;
use std::fmt;

/// A table of figures with a title.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct KnowledgeTable {
    /// What it shows.
    pub title: String,
    /// The names of the columns.
    pub header: Vec<String>,
    /// The rows; the first cell is a name.
    pub rows: Vec<Vec<String>>,
    /// What to know about the figures.
    pub note: Option<String>,
}

impl KnowledgeTable {
    /// A table without rows.
    pub fn new<T: Into<String>>(title: impl Into<String>, header: impl IntoIterator<Item = T>) -> Self {
        let header = header.into_iter().map(Into::into).collect();
        Self { title: title.into(), header, rows: Vec::new(), note: None }
    }

    /// The same with a note.
    pub fn with_note(self, note: impl Into<String>) -> Self {
        Self { note: Some(note.into()), ..self }
    }

    /// Adds a row.
    pub fn row<T: Into<String>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }
}

/// The title, the table and the note.
impl fmt::Display for KnowledgeTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.title, table::numbers(&self.header, &self.rows))?;
        match &self.note {
            Some(note) => write!(f, "\n{note}"),
            None => Ok(()),
        }
    }
}
