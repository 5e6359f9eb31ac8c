//! Passages of Markdown and plain text: parts of a size that a model reads whole, each with its place.

mod blocks;
mod cut;

use crate::corpus::{Lines, walk};
use crate::labelled::{Named, OnBadRow};
use crate::{DataError, Result, SkipReport};
use blocks::{Block, Blocks, Kind};
use cut::cut;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};

/// How a file is cut into passages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PassageConfig {
    /// What happens to a line that is too long or not UTF-8.
    pub on_bad_line: OnBadRow,
    /// The longest line, in bytes.
    pub max_line_bytes: usize,
    /// How messages name this setting.
    pub named: Named,
    /// The language whose rules find the ends of sentences: an ISO 639-1 code.
    pub language: String,
}

impl Default for PassageConfig {
    fn default() -> Self {
        Self {
            on_bad_line: OnBadRow::Error,
            max_line_bytes: 1 << 20,
            named: Named::Config,
            language: "en".into(),
        }
    }
}

/// A part of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Passage {
    /// The lines, or a part of one that is too long; without blank lines at either end.
    pub text: String,
    /// The line on which it begins, from 1.
    pub line: u64,
    /// The character of that line at which it begins, from 1.
    pub column: usize,
    /// The headings above it, the outermost first: `Installation > From source`. Empty in plain text.
    pub heading: String,
}

/// Between the headings of [`Passage::heading`].
const UNDER: &str = " > ";

/// The passages of a file, one after another.
///
/// A passage is a run of paragraphs, lists, tables and fenced code blocks. In Markdown a heading begins a new one. A
/// block that does not fit is cut between its lines (code, lists, tables) or sentences, then words, then characters.
/// Memory use is independent of the file's length.
///
/// ```
/// use cloze_data::passages::{PassageConfig, Passages};
///
/// # fn main() -> cloze_data::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("notes.md");
/// # std::fs::write(&path, "# Notes\n\nSome text.\n\n## More\n\nOther text.\n").unwrap();
/// let mut passages = Passages::open(&path, &PassageConfig::default())?;
/// let fits = |text: &str| text.len() <= 500;
/// let mut found = Vec::new();
/// while let Some(passage) = passages.next(&fits)? {
///     found.push((passage.line, passage.heading, passage.text));
/// }
/// assert_eq!(found[1], (5, "Notes > More".into(), "## More\n\nOther text.".into()));
/// # Ok(())
/// # }
/// ```
pub struct Passages {
    path: PathBuf,
    lines: Lines,
    blocks: Blocks,
    config: PassageConfig,
    /// The headings above the next block, each with its level.
    headings: Vec<(usize, String)>,
    /// The passage that the next block may join.
    draft: Option<Draft>,
    ready: VecDeque<Passage>,
    done: bool,
    any: bool,
    n_lines: u64,
    skipped: SkipReport,
}

/// A passage to which blocks are added.
struct Draft {
    passage: Passage,
    /// The number of its last line.
    last_line: u64,
    /// Whether it has nothing but headings.
    is_headings: bool,
}

impl Passages {
    /// Opens a file; it is Markdown if its extension says so, else plain text. gzip, zstd and UTF-16 are recognised by
    /// their first bytes.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn open(path: &Path, config: &PassageConfig) -> Result<Self> {
        let setting = match config.named {
            Named::Config | Named::TrainingData => "max_line_bytes",
            Named::CommandLine | Named::FixedColumns => "--max-line-bytes",
        };
        let lines = Lines::open(path, config.max_line_bytes, setting);
        Ok(Self {
            path: path.to_owned(),
            lines: lines.map_err(|problem| problem.in_file(path))?,
            blocks: Blocks::new(is_markdown(path)),
            config: config.clone(),
            headings: Vec::new(),
            draft: None,
            ready: VecDeque::new(),
            done: false,
            any: false,
            n_lines: 0,
            skipped: SkipReport::default(),
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether there has been no passage yet.
    pub fn is_empty(&self) -> bool {
        !self.any
    }

    /// The lines read so far, without those skipped.
    pub fn n_lines(&self) -> u64 {
        self.n_lines
    }

    /// The lines skipped so far, by reason.
    pub fn skipped(&self) -> &SkipReport {
        &self.skipped
    }

    /// The next passage. `fits` says whether a text is short enough; a longer text that begins with one that is too
    /// long must be too long. A single character is a passage even if it does not fit.
    ///
    /// # Errors
    /// [`DataError::BadRow`] for a line that cannot be used; a file that is damaged.
    pub fn next(&mut self, fits: &dyn Fn(&str) -> bool) -> Result<Option<Passage>> {
        loop {
            if let Some(passage) = self.ready.pop_front() {
                self.any = true;
                return Ok(Some(passage));
            }
            if self.done {
                return Ok(None);
            }
            match self.lines.next() {
                Some(Ok((number, line))) => {
                    self.n_lines += 1;
                    self.blocks.take(number, line);
                }
                Some(Err(problem)) => match self.config.on_bad_line {
                    OnBadRow::Skip if !problem.ends_file => {
                        self.skipped.count_at(problem.kind, || problem.told(&self.path));
                    }
                    _ => return Err(problem.in_file(&self.path)),
                },
                None => {
                    self.blocks.finish();
                    self.done = true;
                }
            }
            while let Some(block) = self.blocks.ready.pop_front() {
                self.add(block, fits);
            }
            if self.done {
                self.finish_draft();
            }
        }
    }

    /// Adds a block to the passage begun, or begins another.
    fn add(&mut self, block: Block, fits: &dyn Fn(&str) -> bool) {
        if let Kind::Heading { level, title } = &block.kind {
            self.headings.retain(|(above, _)| above < level);
            self.headings.push((*level, title.clone()));
            if self.draft.as_ref().is_some_and(|draft| !draft.is_headings) {
                self.finish_draft();
            }
        }
        let heading = self.headings.iter().map(|(_, title)| &title[..]).collect::<Vec<_>>().join(UNDER);
        let is_heading = matches!(block.kind, Kind::Heading { .. });
        if let Some(draft) = &mut self.draft {
            let joined = format!("{}{}{}", draft.passage.text, gap(draft.last_line, &block), block.text);
            if fits(&joined) {
                draft.passage.text = joined;
                draft.last_line = block.last_line();
                if draft.is_headings {
                    draft.passage.heading = heading;
                    draft.is_headings = is_heading;
                }
                return;
            }
        }
        if fits(&block.text) {
            self.finish_draft();
            let last_line = block.last_line();
            let passage = Passage { text: block.text, line: block.line, column: 1, heading };
            self.draft = Some(Draft { passage, last_line, is_headings: is_heading });
            return;
        }
        // A heading stays with the beginning of what it heads, if there is room for more than the heading.
        let before = self.draft.take_if(|draft| draft.is_headings && fits(&draft.passage.text.repeat(2)));
        self.finish_draft();
        let start = before.map(|draft| {
            let Passage { text, line, column, .. } = draft.passage;
            (format!("{text}{}", gap(draft.last_line, &block)), line, column)
        });
        let before = start.as_ref().map_or("", |(text, ..)| text);
        let pieces = cut(&block.text, &block.kind, before, &self.config.language, fits);
        let n = pieces.len();
        for (i, piece) in pieces.into_iter().enumerate() {
            let above = &block.text[..piece.start];
            let line = block.line + above.matches('\n').count() as u64;
            let of_line = above.rfind('\n').map_or(0, |end| end + 1);
            let column = above[of_line..].chars().count() + 1;
            let text = block.text[piece].trim_end();
            let passage = match &start {
                Some((before, line, column)) if i == 0 => Passage {
                    text: format!("{before}{text}"),
                    line: *line,
                    column: *column,
                    heading: heading.clone(),
                },
                _ => Passage { text: text.into(), line, column, heading: heading.clone() },
            };
            match i + 1 == n {
                false => self.ready.push_back(passage),
                // Blocks below may join what is left over.
                true => {
                    let last_line = block.last_line();
                    self.draft = Some(Draft { passage, last_line, is_headings: false });
                }
            }
        }
    }

    fn finish_draft(&mut self) {
        self.ready.extend(self.draft.take().map(|draft| draft.passage));
    }
}

/// What stands between a block and the last line before it.
fn gap(last_line: u64, block: &Block) -> &'static str {
    if block.line == last_line + 1 { "\n" } else { "\n\n" }
}

/// Whether a file is Markdown, by its extension.
///
/// ```
/// use cloze_data::passages::is_markdown;
///
/// assert!(is_markdown("notes/README.MD".as_ref()) && !is_markdown("notes.txt".as_ref()));
/// ```
pub fn is_markdown(path: &Path) -> bool {
    has_extension(path, &["md", "markdown"])
}

fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    let extension = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
    extensions.contains(&extension.as_str())
}

/// The Markdown and text files (`.md`, `.markdown`, `.txt`) of a folder and the folders in it, sorted by name, without
/// hidden ones; and how many other files there are.
///
/// # Errors
/// A folder that cannot be read, or that has no such file.
pub fn passage_files(folder: &Path) -> Result<(Vec<PathBuf>, SkipReport)> {
    let (mut files, mut skipped) = (Vec::new(), SkipReport::default());
    walk(folder, &mut Vec::new(), &mut files)?;
    files.retain(|path| {
        let is_text = is_markdown(path) || has_extension(path, &["txt"]);
        if !is_text {
            let place = || (path.display().to_string(), "neither .md nor .txt".to_owned());
            skipped.count_at("file that is neither .md nor .txt", place);
        }
        is_text
    });
    match files.is_empty() {
        false => Ok((files, skipped)),
        true => {
            let problem = "there is no .md or .txt file in the folder or the folders in it".into();
            Err(DataError::LabelledFile { path: folder.into(), line: None, problem })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;

    /// The passages of a file with this name, as (line, column, heading, text).
    fn found(name: &str, bytes: &[u8], most: usize) -> Vec<(u64, usize, String, String)> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        let mut passages = Passages::open(&path, &PassageConfig::default()).unwrap();
        let fits = |text: &str| text.split_whitespace().count() <= most;
        let mut all = Vec::new();
        while let Some(passage) = passages.next(&fits).unwrap() {
            all.push((passage.line, passage.column, passage.heading, passage.text));
        }
        all
    }

    fn shown(found: &[(u64, usize, String, String)]) -> Vec<(u64, usize, &str, &str)> {
        found.iter().map(|(line, column, heading, text)| (*line, *column, &heading[..], &text[..])).collect()
    }

    #[test]
    fn headings_begin_passages_and_stay_with_their_text() {
        let text = "\u{feff}# Title\r\n\r\n## First ##\r\nOne.\r\n\r\nTwo.\r\n\r\n\r\nSecond\r\n------\r\n* a\r\n* b\r\n\r\n\
                    Other\n=====\n\nText\n#no heading\n";
        let all = found("a.md", text.as_bytes(), 100);
        assert_eq!(
            shown(&all),
            [
                (1, 1, "Title > First", "# Title\n\n## First ##\nOne.\n\nTwo."),
                (9, 1, "Title > Second", "Second\n------\n* a\n* b"),
                (14, 1, "Other", "Other\n=====\n\nText\n#no heading"),
            ]
        );
        // The same in a file of plain text has no headings.
        assert_eq!(found("a.txt", text.as_bytes(), 100).len(), 1);
    }

    #[test]
    fn front_matter_is_no_passage() {
        let text = "---\ntitle: Boats\n# no heading\n---\n\n# Sea\nthe sea\n";
        let all = found("a.md", text.as_bytes(), 100);
        assert_eq!(shown(&all), [(6, 1, "Sea", "# Sea\nthe sea")]);
        // A file of plain text has none, nor does a line between paragraphs begin one, nor what has no end.
        assert!(found("a.txt", text.as_bytes(), 100)[0].3.starts_with("---\ntitle: Boats"));
        for (text, line, first) in [
            ("---\n\na\n\n---\n\nb\n", 1, "---"),
            ("a\n\n---\nb: c\n---\n", 1, "a"),
            ("---\na: b\n", 1, "---"),
        ] {
            let all = found("a.md", text.as_bytes(), 100);
            assert_eq!((all[0].0, all[0].3.lines().next()), (line, Some(first)), "{text:?}");
        }
        assert!(found("a.md", b"---\na: b\n---\n", 100).is_empty());
    }

    #[test]
    fn code_is_kept_whole_where_it_fits() {
        let code = "```sh\n# no heading\n\na b c\n```";
        let text = format!("one two three four five six\n{code}\nseven\n");
        let all = found("a.md", text.as_bytes(), 10);
        assert_eq!(
            shown(&all),
            [(1, 1, "", "one two three four five six"), (2, 1, "", &*format!("{code}\nseven"))]
        );
        let all = found("a.md", text.as_bytes(), 5);
        let lines: Vec<_> = all.iter().map(|(line, column, _, text)| (*line, *column, &text[..])).collect();
        assert_eq!(
            lines,
            [
                (1, 1, "one two three four five"),
                (1, 25, "six"),
                (2, 1, "```sh\n# no heading"),
                (5, 1, "a b c\n```\nseven")
            ]
        );
        // An open fence reaches to the end.
        assert_eq!(found("a.md", b"~~~~\n~~~\n# x\n", 10).len(), 1);
    }

    #[test]
    fn what_is_too_long_is_cut_at_sentences_then_words_then_characters() {
        let text = "# Head\n\nOne two three four. Five six seven.\nEight nine.\n";
        let all = found("a.md", text.as_bytes(), 6);
        assert_eq!(
            shown(&all),
            [
                (1, 1, "Head", "# Head\n\nOne two three four."),
                (3, 21, "Head", "Five six seven.\nEight nine."),
            ]
        );
        let all = found("a.txt", "ééééé ü".as_bytes(), 0);
        assert_eq!(all.iter().map(|(.., text)| &text[..]).collect::<String>(), "éééééü");
        assert_eq!((all[4].1, all[5].1), (5, 7));
    }

    #[test]
    fn a_line_that_is_not_utf8_is_told_or_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.md");
        fs::write(&path, b"one\ncaf\xE9 noir\ntwo\n").unwrap();
        let all = |config: &PassageConfig| -> Result<(Vec<Passage>, SkipReport)> {
            let mut passages = Passages::open(&path, config)?;
            let mut all = Vec::new();
            while let Some(passage) = passages.next(&|_| true)? {
                all.push(passage);
            }
            Ok((all, passages.skipped().clone()))
        };
        let error = all(&PassageConfig::default()).unwrap_err().to_string();
        assert!(error.contains("a.md:2: not UTF-8 (byte 4 is 0xe9); it looks like Windows-1252"), "{error}");
        let config = PassageConfig { on_bad_line: OnBadRow::Skip, ..PassageConfig::default() };
        let (passages, skipped) = all(&config).unwrap();
        assert_eq!((&passages[0].text[..], skipped.to_string().as_str()), ("one\n\ntwo", "1 × bad UTF-8"));
        fs::write(&path, "\n \n").unwrap();
        assert!(all(&config).unwrap().0.is_empty());
    }

    #[test]
    fn a_folder_gives_its_texts() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path();
        assert!(passage_files(place).unwrap_err().to_string().contains("no .md or .txt file"));
        fs::create_dir_all(place.join("b/c")).unwrap();
        fs::create_dir_all(place.join(".git")).unwrap();
        for name in ["b/c/x.TXT", "a.md", "b/y.markdown", "b/z.png", ".git/n.md"] {
            fs::write(place.join(name), "x").unwrap();
        }
        let (files, skipped) = passage_files(place).unwrap();
        assert_eq!(files, ["a.md", "b/c/x.TXT", "b/y.markdown"].map(|name| place.join(name)));
        let z = place.join("b/z.png");
        assert_eq!(skipped.with_places(), format!("1 × file that is neither .md nor .txt: {}", z.display()));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Nothing but white space is lost, places are true, and passages fit.
        #[test]
        fn nothing_is_lost(
            lines in prop::collection::vec("(# |## |```|~~~|- |\\| |   )?[a-zéж漢 .!?#`]{0,40}(===|---)?", 0..60),
            most in 1_usize..40,
            markdown: bool,
        ) {
            // Front matter is no passage.
            prop_assume!(!markdown || lines.first().is_none_or(|line| line.trim_end() != "---"));
            let text = lines.join("\n");
            let name = if markdown { "a.md" } else { "a.txt" };
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join(name);
            fs::write(&path, &text).unwrap();
            let mut passages = Passages::open(&path, &PassageConfig::default()).unwrap();
            let size = |text: &str| text.chars().filter(|c| !c.is_whitespace()).count();
            let (mut kept, mut last) = (String::new(), (0, 0));
            while let Some(passage) = passages.next(&|text| size(text) <= most).unwrap() {
                prop_assert!(size(&passage.text) <= most, "{passage:?}");
                prop_assert!((passage.line, passage.column) > last);
                last = (passage.line, passage.column);
                let line = lines[passage.line as usize - 1].chars().skip(passage.column - 1).collect::<String>();
                let first = passage.text.lines().next().unwrap_or_default();
                prop_assert!(line.starts_with(first.trim_end()), "{passage:?}");
                kept += &passage.text;
            }
            let dense = |text: &str| text.split_whitespace().collect::<String>();
            prop_assert_eq!(dense(&kept), dense(&text));
        }
    }
}
