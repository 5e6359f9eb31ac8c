//! Blocks of Markdown and plain text: paragraphs, lists, tables, fenced code and headings (CommonMark 0.31, as far as
//! passages need it). YAML front matter of Markdown is none.

use std::collections::VecDeque;

/// Bytes from which on a block is ended at a line's end, so that memory is bounded. Such a block is cut anyway.
const MOST_BYTES: usize = 64 << 10;

/// Lines that belong together.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// The lines, without the last one's ending.
    pub text: String,
    /// The number of the first line.
    pub line: u64,
    pub kind: Kind,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Heading {
        level: usize,
        title: String,
    },
    /// Sentences, which may go on in the next line.
    Prose,
    /// Code, lists, quotes and tables: lines are units.
    Lines,
}

impl Block {
    /// The number of the last line.
    pub fn last_line(&self) -> u64 {
        self.line + self.text.matches('\n').count() as u64
    }
}

/// The fence of a code block.
struct Fence {
    mark: u8,
    length: usize,
}

impl Fence {
    /// The fence that a line opens.
    fn of(line: &str) -> Option<Self> {
        let line = line.trim_start();
        let mark = *line.as_bytes().first().filter(|mark| b"`~".contains(mark))?;
        let length = line.bytes().take_while(|byte| *byte == mark).count();
        // ```x``` is code in a paragraph.
        let is_inline = mark == b'`' && line[length..].contains('`');
        (length >= 3 && !is_inline).then_some(Self { mark, length })
    }

    fn is_closed_by(&self, line: &str) -> bool {
        let line = line.trim();
        line.len() >= self.length && line.bytes().all(|byte| byte == self.mark)
    }
}

/// Lines that may be front matter, with their numbers, and their bytes.
#[derive(Default)]
struct Front {
    lines: Vec<(u64, String)>,
    bytes: usize,
}

impl Front {
    fn push(&mut self, number: u64, line: &str) {
        self.bytes += line.len() + 1;
        self.lines.push((number, line.to_owned()));
    }
}

/// Makes blocks of lines.
pub(super) struct Blocks {
    markdown: bool,
    open: Option<Block>,
    fence: Option<Fence>,
    /// What begins as front matter does, until it ends.
    front: Option<Front>,
    /// The blocks that have ended.
    pub ready: VecDeque<Block>,
}

impl Blocks {
    pub fn new(markdown: bool) -> Self {
        Self { markdown, open: None, fence: None, front: None, ready: VecDeque::new() }
    }

    /// Takes the next line.
    pub fn take(&mut self, number: u64, line: &str) {
        let is_mark = line.trim_end() == "---";
        let Some(front) = &mut self.front else {
            if self.markdown && number == 1 && is_mark {
                self.front.insert(Front::default()).push(number, line);
            } else {
                self.take_text(number, line);
            }
            return;
        };
        if is_mark {
            self.front = None;
            return;
        }
        // A blank line below makes the first one a rule between paragraphs.
        let is_rule = front.lines.len() == 1 && line.trim().is_empty();
        front.push(number, line);
        if is_rule || front.bytes >= MOST_BYTES {
            self.release_front();
        }
    }

    /// Takes what began as front matter does, but is none.
    fn release_front(&mut self) {
        for (number, line) in self.front.take().unwrap_or_default().lines {
            self.take_text(number, &line);
        }
    }

    /// Ends the last block.
    pub fn finish(&mut self) {
        self.release_front();
        self.close();
    }

    fn take_text(&mut self, number: u64, line: &str) {
        if let Some(fence) = &self.fence {
            let is_closed = fence.is_closed_by(line);
            self.append(number, line, Kind::Lines);
            if is_closed {
                self.fence = None;
                self.close();
            }
            return;
        }
        if line.trim().is_empty() {
            self.close();
            return;
        }
        if self.markdown {
            if let Some(fence) = Fence::of(line) {
                self.close();
                self.fence = Some(fence);
                self.append(number, line, Kind::Lines);
                return;
            }
            if let Some((level, title)) = heading(line) {
                self.close();
                self.append(number, line, Kind::Heading { level, title: title.into() });
                self.close();
                return;
            }
            if let Some(open) =
                self.open.take_if(|open| is_one_line(open) && level_of_underline(line).is_some())
            {
                let kind = Kind::Heading {
                    level: level_of_underline(line).unwrap_or(1),
                    title: open.text.trim().to_owned(),
                };
                self.open = Some(Block { kind, text: format!("{}\n{line}", open.text), ..open });
                self.close();
                return;
            }
        }
        let kind = if self.markdown && is_of_list(line) { Kind::Lines } else { Kind::Prose };
        self.append(number, line, kind);
    }

    /// Ends the block begun.
    fn close(&mut self) {
        self.ready.extend(self.open.take().filter(|open| !open.text.trim().is_empty()));
    }

    /// Adds a line to the block begun, or begins one of this kind.
    fn append(&mut self, number: u64, line: &str, kind: Kind) {
        // A line that was skipped leaves a gap.
        if self.open.as_ref().is_some_and(|open| open.last_line() + 1 != number) {
            self.close();
        }
        match &mut self.open {
            Some(open) => {
                open.text.push('\n');
                open.text.push_str(line);
            }
            None => self.open = Some(Block { text: line.to_owned(), line: number, kind }),
        }
        if self.open.as_ref().is_some_and(|open| open.text.len() >= MOST_BYTES) {
            self.close();
        }
    }
}

/// The level and title of a line like `## Title ##`.
fn heading(line: &str) -> Option<(usize, &str)> {
    let rest = unindented(line)?;
    let level = rest.bytes().take_while(|byte| *byte == b'#').count();
    let title = &rest[level..];
    if !(1..=6).contains(&level) || !(title.is_empty() || title.starts_with([' ', '\t'])) {
        return None;
    }
    let title = title.trim();
    let closed = title.trim_end_matches('#');
    let is_closing = closed.is_empty() || closed.ends_with([' ', '\t']);
    Some((level, if is_closing { closed.trim_end() } else { title }))
}

/// The level of the heading that this line underlines.
fn level_of_underline(line: &str) -> Option<usize> {
    let line = unindented(line)?.trim_end();
    [(1, '='), (2, '-')].into_iter().find_map(|(level, mark)| {
        let is_of_mark = !line.is_empty() && line.chars().all(|c| c == mark);
        is_of_mark.then_some(level)
    })
}

/// A line without up to three spaces; more are code.
fn unindented(line: &str) -> Option<&str> {
    let rest = line.trim_start_matches(' ');
    (line.len() - rest.len() <= 3).then_some(rest)
}

fn is_one_line(block: &Block) -> bool {
    block.kind == Kind::Prose && !block.text.contains('\n')
}

/// Whether a line begins an item of a list, a row of a table or a quote.
fn is_of_list(line: &str) -> bool {
    let line = line.trim_start();
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    let is_numbered = digits > 0 && [". ", ") "].iter().any(|end| line[digits..].starts_with(end));
    is_numbered || ["- ", "* ", "+ ", "|", ">"].iter().any(|mark| line.starts_with(mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(text: &str) -> Vec<Block> {
        let mut blocks = Blocks::new(true);
        for (line, number) in text.lines().zip(1..) {
            blocks.take(number, line);
        }
        blocks.finish();
        blocks.ready.into()
    }

    #[test]
    fn headings_are_those_of_commonmark() {
        for (line, expected) in [
            ("# a", Some((1, "a"))),
            ("###### a b ##  ", Some((6, "a b"))),
            ("   ## C#", Some((2, "C#"))),
            ("##", Some((2, ""))),
            ("## ##", Some((2, ""))),
            ("####### a", None),
            ("#a", None),
            ("    # a", None),
            ("a # b", None),
        ] {
            assert_eq!(heading(line), expected, "{line:?}");
        }
    }

    #[test]
    fn blocks_end_at_blank_lines_fences_and_headings() {
        let found = blocks("a\nb\n```x\n\n# c\n```\nd\n- e\n\n- f\n---\ng\n---\n");
        let block = |line, kind, text: &str| Block { text: text.into(), line, kind };
        assert_eq!(
            found,
            [
                block(1, Kind::Prose, "a\nb"),
                block(3, Kind::Lines, "```x\n\n# c\n```"),
                block(7, Kind::Prose, "d\n- e"),
                block(10, Kind::Lines, "- f\n---\ng\n---"),
            ]
        );
    }

    #[test]
    fn a_block_without_an_end_is_ended() {
        let text = "word\n".repeat(100_000);
        let found = blocks(&format!("```\n{text}"));
        assert!(found.len() > 5 && found.iter().all(|block| block.text.len() < MOST_BYTES + 10));
        let lines: u64 = found.iter().map(|block| block.last_line() + 1 - block.line).sum();
        assert_eq!(lines, 100_001);
    }
}
