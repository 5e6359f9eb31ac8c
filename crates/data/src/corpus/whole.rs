//! Plain text where each file is one document, including its blank lines.

use super::lines::Lines;
use super::{CorpusConfig, Piece, Problem, Reader};
use std::path::Path;

struct Whole {
    lines: Lines,
    max_document: usize,
    /// Text read beyond the last piece.
    next: String,
    any: bool,
    done: bool,
}

pub(super) fn open(path: &Path, config: &CorpusConfig) -> Result<Box<dyn Reader>, Problem> {
    Ok(Box::new(Whole {
        lines: Lines::open(path, config.max_line_bytes, config.setting("max_line_bytes"))?,
        max_document: config.max_document_bytes,
        next: String::new(),
        any: false,
        done: false,
    }))
}

impl Reader for Whole {
    fn next(&mut self) -> Option<Result<Piece, Problem>> {
        while !self.done {
            match self.lines.next() {
                Some(Ok((_, line))) => {
                    let is_full = self.next.len() + line.len() >= self.max_document;
                    if is_full && !self.next.is_empty() {
                        let text = std::mem::replace(&mut self.next, format!("{line}\n"));
                        self.any = true;
                        return Some(Ok(Piece { text, continues: true }));
                    }
                    self.next += line;
                    self.next.push('\n');
                }
                Some(Err(problem)) => {
                    self.done = problem.ends_file;
                    self.any = true;
                    return Some(Err(problem));
                }
                None => self.done = true,
            }
        }
        if !self.next.trim().is_empty() || self.any && !self.next.is_empty() {
            self.any = true;
            return Some(Ok(Piece { text: std::mem::take(&mut self.next), continues: false }));
        }
        let empty = Problem {
            line: None,
            kind: "empty file",
            detail: "the file has no text".into(),
            ends_file: true,
        };
        let is_empty = !std::mem::replace(&mut self.any, true);
        is_empty.then_some(Err(empty))
    }

    fn bytes_read(&self) -> u64 {
        self.lines.bytes_read()
    }
}
