//! Plain text, whose documents are separated by blank lines.

use super::lines::Lines;
use super::{CorpusConfig, Piece, Problem, Reader};
use std::path::Path;

struct Text {
    lines: Lines,
    document: String,
    max_document: usize,
    any: bool,
    pending: Option<Problem>,
    done: bool,
}

pub(super) fn open(path: &Path, config: &CorpusConfig) -> Result<Box<dyn Reader>, Problem> {
    Ok(Box::new(Text {
        lines: Lines::open(path, config.max_line_bytes, config.setting("max_line_bytes"))?,
        document: String::new(),
        max_document: config.max_document_bytes,
        any: false,
        pending: None,
        done: false,
    }))
}

impl Reader for Text {
    fn next(&mut self) -> Option<Result<Piece, Problem>> {
        if let Some(problem) = self.pending.take() {
            return Some(Err(problem));
        }
        while !self.done {
            match self.lines.next() {
                Some(Ok((_, line))) if !line.trim().is_empty() => {
                    // A document without end is handed on in parts.
                    if !self.document.is_empty() && self.document.len() + line.len() >= self.max_document {
                        let part = std::mem::replace(&mut self.document, format!("{line}\n"));
                        return Some(Ok(Piece { text: part, continues: true }));
                    }
                    self.document += line;
                    self.document.push('\n');
                }
                Some(Ok(_)) => {
                    if let Some(document) = self.take() {
                        return Some(Ok(document));
                    }
                }
                Some(Err(problem)) => {
                    if problem.ends_file {
                        self.done = true;
                        // What came before the damage is a document still.
                        if let Some(document) = self.take() {
                            self.pending = Some(problem);
                            return Some(Ok(document));
                        }
                    }
                    self.any = true;
                    return Some(Err(problem));
                }
                None => {
                    self.done = true;
                    if let Some(document) = self.take() {
                        return Some(Ok(document));
                    }
                    if !self.any {
                        self.any = true;
                        return Some(Err(Problem {
                            line: None,
                            kind: "empty file",
                            detail: "the file has no text".into(),
                            ends_file: true,
                        }));
                    }
                }
            }
        }
        None
    }

    fn bytes_read(&self) -> u64 {
        self.lines.bytes_read()
    }
}

impl Text {
    fn take(&mut self) -> Option<Piece> {
        if self.document.is_empty() {
            return None;
        }
        self.any = true;
        Some(Piece { text: std::mem::take(&mut self.document), continues: false })
    }
}
