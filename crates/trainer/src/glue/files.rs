//! A folder of GLUE: finds the files of tasks and checks their columns, before anything is trained.

use super::tasks::{Facts, GlueTask, Labelled, Place, Test};
use crate::{Result, TrainerError};
use cloze_data::labelled::{
    Column, DataFormat, LabelledSource, RecordColumn, Records, found_delimiter, records,
};
use cloze_files::write_atomic;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// The files of a folder as GLUE distributes it, for some tasks.
#[derive(Debug, Clone, PartialEq)]
pub struct GlueFolder {
    /// The tasks, in the order of [`GlueTask::ALL`].
    pub tasks: Vec<TaskFiles>,
}

/// A task's files.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskFiles {
    /// The task.
    pub task: GlueTask,
    /// The training data; none for the diagnostic set.
    pub train: Option<PathBuf>,
    /// The development data: one file, two of MNLI.
    pub dev: Vec<PathBuf>,
    /// The test data, if it is asked for.
    pub tests: Vec<TestFile>,
    /// The files that MRPC's training and development data are made of, if the folder has the original
    /// distribution: all labelled pairs, and the ids of those that are development data.
    original: Option<[PathBuf; 2]>,
}

/// A test file: rows without labels, each with an index.
#[derive(Debug, Clone, PartialEq)]
pub struct TestFile {
    /// Its name in the submission, without `.tsv`.
    pub title: &'static str,
    /// Where it is.
    pub path: PathBuf,
    /// Rows of the file that GLUE distributes.
    pub published_rows: u64,
    index: Option<&'static str>,
    text: &'static str,
    pair: Option<&'static str>,
}

/// A row of a test file.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TestRow {
    pub index: u64,
    pub text: String,
    pub pair: Option<String>,
}

impl GlueFolder {
    /// Finds the files of `tasks` in `folder`, with the test files if `has_tests`, and checks that their columns are
    /// there.
    ///
    /// # Errors
    /// [`TrainerError::GlueFolder`], which names every missing file and column.
    pub fn find(folder: &Path, tasks: &[GlueTask], has_tests: bool) -> Result<Self> {
        let mut problems = Vec::new();
        let mut found = Vec::new();
        if folder.is_dir() {
            for task in GlueTask::ALL.into_iter().filter(|task| tasks.contains(task)) {
                found.push(Finder { root: folder, task, problems: &mut problems }.find(has_tests));
            }
        } else {
            problems.push("no such folder".to_owned());
        }
        match problems.is_empty() {
            true => Ok(Self { tasks: found }),
            false => Err(TrainerError::GlueFolder { folder: folder.into(), problems }),
        }
    }

    /// Makes MRPC's training and development files in `folder` if this is the original distribution, which has the
    /// two together.
    ///
    /// # Errors
    /// Rows without the columns; an id of the development data that is not there; files that cannot be written.
    pub fn split_originals(&mut self, folder: &Path) -> Result<()> {
        for files in &mut self.tasks {
            if let Some(original) = files.original.take() {
                let [train, dev] = split_mrpc(&original, &folder.join(files.task.title()))?;
                files.train = Some(train);
                files.dev = vec![dev];
            }
        }
        Ok(())
    }
}

/// Finds the files of one task.
struct Finder<'a> {
    root: &'a Path,
    task: GlueTask,
    problems: &'a mut Vec<String>,
}

impl Finder<'_> {
    fn find(mut self, has_tests: bool) -> TaskFiles {
        let facts = self.task.facts();
        let mut files =
            TaskFiles { task: self.task, train: None, dev: Vec::new(), tests: Vec::new(), original: None };
        let Some(name) = facts.folders.iter().find(|name| self.root.join(name).is_dir()) else {
            self.problems.push(format!("no folder {}", facts.folders.join(" or ")));
            return files;
        };
        if let Some(labelled) = &facts.labelled {
            files.original = self.original(name);
            match &files.original {
                Some([pairs, _]) => self.check(pairs, &names_of(labelled)),
                None => {
                    files.train = self.labelled(name, "train.tsv", facts, labelled);
                    let dev = labelled.dev.iter();
                    files.dev =
                        dev.filter_map(|(_, file)| self.labelled(name, file, facts, labelled)).collect();
                }
            }
        }
        if has_tests {
            files.tests = facts.tests.iter().filter_map(|test| self.test(name, test)).collect();
        }
        files
    }

    /// The original distribution of MRPC, if the folder has it and not the files that are made of it.
    fn original(&self, name: &str) -> Option<[PathBuf; 2]> {
        let folder = self.root.join(name);
        let original = ["msr_paraphrase_train.txt", "dev_ids.tsv"].map(|file| folder.join(file));
        let is_original = self.task == GlueTask::Mrpc && !folder.join("train.tsv").exists();
        (is_original && original.iter().all(|path| path.exists())).then_some(original)
    }

    fn labelled(&mut self, name: &str, file: &str, facts: &Facts, labelled: &Labelled) -> Option<PathBuf> {
        let path = self.root.join(name).join(file);
        if !path.is_file() {
            let instead = match self.task {
                GlueTask::Mrpc => " (nor msr_paraphrase_train.txt and dev_ids.tsv)",
                _ => "",
            };
            self.problems.push(format!("{name}/{file} is missing{instead}"));
            return None;
        }
        match &labelled.label {
            Place::Named(_) => self.check(&path, &names_of(labelled)),
            Place::Numbered(_) => self.check_width(&path, facts),
        }
        Some(path)
    }

    fn test(&mut self, name: &str, test: &'static Test) -> Option<TestFile> {
        let Some(path) =
            test.files.iter().map(|file| self.root.join(name).join(file)).find(|path| path.is_file())
        else {
            let files: Vec<String> = test.files.iter().map(|file| format!("{name}/{file}")).collect();
            self.problems.push(format!("{} is missing; a submission needs it", files.join(" or ")));
            return None;
        };
        let mut columns = vec![test.text];
        columns.extend(test.pair);
        let has_index = header(&path).is_ok_and(|names| names.iter().any(|found| found == test.index));
        if !test.index_is_optional {
            columns.insert(0, test.index);
        }
        self.check(&path, &columns);
        Some(TestFile {
            title: test.title,
            path,
            published_rows: test.rows,
            index: has_index.then_some(test.index),
            text: test.text,
            pair: test.pair,
        })
    }

    /// Checks that the header of a file has these columns.
    fn check(&mut self, path: &Path, columns: &[&str]) {
        let place = self.place(path);
        let names = match header(path) {
            Ok(names) => names,
            Err(problem) => return self.problems.push(format!("{place}: {problem}")),
        };
        let missing: Vec<String> = columns
            .iter()
            .filter(|column| !names.iter().any(|name| name == *column))
            .map(|column| format!("`{column}`"))
            .collect();
        if missing.is_empty() {
            return;
        }
        let separated = match (names.len(), found_delimiter(path, '\t')) {
            (1, Some(other)) => format!("; columns must be separated by tabs, not by `{other}`"),
            _ => String::new(),
        };
        let (columns, has) = (missing.join(", "), names.join(", "));
        self.problems.push(format!("{place}:1: no column {columns} (it has: {has}{separated})"));
    }

    /// Checks that the first row of a file without a header has all columns.
    fn check_width(&mut self, path: &Path, facts: &Facts) {
        let place = self.place(path);
        let expected = facts.labelled.iter().flat_map(|labelled| [&labelled.text, &labelled.label]);
        let expected = expected.map(|place| match place {
            Place::Numbered(number) => *number,
            Place::Named(_) => 0,
        });
        let expected = expected.max().unwrap_or_default();
        match header(path) {
            Ok(columns) if columns.len() < expected => {
                let (found, s) = (columns.len(), if columns.len() == 1 { "" } else { "s" });
                self.problems.push(format!(
                    "{place}:1: {found} column{s}; expected {expected}, without a header: source, label, mark, sentence"
                ));
            }
            Ok(_) => {}
            Err(problem) => self.problems.push(format!("{place}: {problem}")),
        }
    }

    /// A file's path below the folder.
    fn place(&self, path: &Path) -> String {
        path.strip_prefix(self.root).unwrap_or(path).display().to_string()
    }
}

/// The columns of labelled files that have a header.
fn names_of(labelled: &Labelled) -> Vec<&'static str> {
    let places = [Some(&labelled.text), labelled.pair.as_ref(), Some(&labelled.label)];
    places
        .into_iter()
        .flatten()
        .filter_map(|place| match place {
            Place::Named(name) => Some(*name),
            Place::Numbered(_) => None,
        })
        .collect()
}

/// The fields of a file's first line.
fn header(path: &Path) -> std::result::Result<Vec<String>, String> {
    const LONGEST: u64 = 1 << 20;
    let mut line = Vec::new();
    let file = File::open(path).map_err(|error| format!("cannot be read: {error}"))?;
    BufReader::new(file.take(LONGEST))
        .read_until(b'\n', &mut line)
        .map_err(|error| format!("cannot be read: {error}"))?;
    let line = String::from_utf8_lossy(&line);
    let line = line.trim_start_matches('\u{feff}').trim_end_matches(['\n', '\r']);
    match line.is_empty() {
        true => Err("is empty; expected rows".into()),
        false => Ok(line.split('\t').map(str::to_owned).collect()),
    }
}

impl TestFile {
    /// The rows, one after another.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub(super) fn rows(&self) -> Result<TestRows> {
        let source = tabs(&self.path);
        let index = match self.index {
            Some(name) => column("index", name, true),
            // Any column: rows are numbered.
            None => column("index", "index", false),
        };
        let pair = self.pair.map(|name| column("pair", name, true));
        let columns = [Some(index), Some(column("text", self.text, true)), pair];
        let records = records(&source, Path::new(""), columns.into_iter().flatten().collect())?;
        Ok(TestRows { records, is_numbered: self.index.is_some(), next: 0 })
    }
}

/// Iterator over the rows of a test file. It ends at the first error.
pub(super) struct TestRows {
    records: Records,
    /// Whether the file has a column of indices.
    is_numbered: bool,
    /// The smallest index that the next row may have.
    next: u64,
}

impl Iterator for TestRows {
    type Item = Result<TestRow>;

    fn next(&mut self) -> Option<Self::Item> {
        let record = match self.records.next()? {
            Ok(record) => record,
            Err(error) => return Some(Err(error.into())),
        };
        let mut cells = record.cells.into_iter();
        let mut cell = || match cells.next() {
            Some(serde_json::Value::String(text)) => Some(text),
            _ => None,
        };
        let found = cell();
        let number = match (&found, self.is_numbered) {
            (Some(index), true) => index.trim().parse().ok().filter(|number: &u64| *number >= self.next),
            _ => Some(self.next),
        };
        let Some(index) = number else {
            let problem = format!(
                "the index `{}`; expected a whole number of {} or more, greater than the row's before",
                found.unwrap_or_default(),
                self.next
            );
            let refused = self.records.refuse(record.line, "unexpected index", problem);
            return refused.err().map(|error| Err(error.into()));
        };
        self.next = index.saturating_add(1);
        Some(Ok(TestRow { index, text: cell().unwrap_or_default(), pair: cell() }))
    }
}

fn column(field: &str, name: &str, required: bool) -> RecordColumn {
    RecordColumn { field: field.into(), column: Column::Name(name.into()), required }
}

/// Fields between tabs, in which quotation marks are text, whatever the file's ending.
fn tabs(path: &Path) -> LabelledSource {
    LabelledSource { format: DataFormat::Tsv, ..LabelledSource::new([path.to_string_lossy()]) }
}

/// Writes the training and development data of MRPC, which the original distribution has in one file: the pairs
/// of `dev_ids.tsv` are development data.
fn split_mrpc([pairs, ids]: &[PathBuf; 2], folder: &Path) -> Result<[PathBuf; 2]> {
    let texts = |cells: Vec<serde_json::Value>| -> Vec<String> {
        cells.into_iter().map(|cell| cell.as_str().unwrap_or_default().to_owned()).collect()
    };
    let by_number = |number| RecordColumn {
        field: format!("id {number}"),
        column: Column::Number(number),
        required: true,
    };
    let source = LabelledSource { header: Some(false), ..tabs(ids) };
    let mut of_dev = HashSet::new();
    for record in records(&source, Path::new(""), vec![by_number(1), by_number(2)])? {
        of_dev.insert(texts(record?.cells));
    }
    let names = ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"];
    let header = names.join("\t") + "\n";
    let (mut train, mut dev) = (header.clone(), header);
    let mut found = 0;
    for record in records(&tabs(pairs), Path::new(""), names.map(|name| column(name, name, true)).into())? {
        let fields = texts(record?.cells);
        let is_dev = of_dev.contains(&fields[1..3]);
        found += usize::from(is_dev);
        let rows = if is_dev { &mut dev } else { &mut train };
        rows.push_str(&fields.join("\t"));
        rows.push('\n');
    }
    if found < of_dev.len() {
        let problem = format!(
            "{}: {} of its {} pairs of ids are not in {}; take both files from one distribution",
            ids.display(),
            of_dev.len() - found,
            of_dev.len(),
            pairs.display()
        );
        return Err(TrainerError::BadInput { problem });
    }
    fs::create_dir_all(folder).map_err(TrainerError::io("make", folder))?;
    let paths = ["train.tsv", "dev.tsv"].map(|name| folder.join(name));
    for (path, text) in paths.iter().zip([train, dev]) {
        write_atomic(path, text.as_bytes())?;
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, files: &[(&str, &str)]) {
        for (name, text) in files {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn all_that_is_missing_is_told_at_once() {
        let folder = tempfile::tempdir().unwrap();
        write(
            folder.path(),
            &[
                ("CoLA/train.tsv", "gj04\t1\tOne.\n"),
                ("CoLA/dev.tsv", "gj04\t1\t\tOne.\n"),
                ("QQP/train.tsv", "id\tqid1\tqid2\tquestion1\tquestion2\n1\t2\t3\ta\tb\n"),
                ("QQP/dev.tsv", ""),
                ("RTE/train.tsv", "index,sentence1,sentence2,label\n"),
            ],
        );
        let tasks = [GlueTask::Rte, GlueTask::Cola, GlueTask::Qqp];
        let message = GlueFolder::find(folder.path(), &tasks, true).unwrap_err().to_string();
        let told = message.strip_prefix(&format!("{}: ", folder.path().display())).unwrap();
        let expected = [
            "CoLA/train.tsv:1: 3 columns; expected 4, without a header: source, label, mark, sentence",
            "CoLA/test.tsv is missing; a submission needs it",
            "QQP/train.tsv:1: no column `is_duplicate` (it has: id, qid1, qid2, question1, question2)",
            "QQP/dev.tsv: is empty; expected rows",
            "QQP/test.tsv is missing; a submission needs it",
            "RTE/train.tsv:1: no column `sentence1`, `sentence2`, `label` (it has: index,sentence1,sentence2,label; \
             columns must be separated by tabs, not by `,`)",
            "RTE/dev.tsv is missing",
            "RTE/test.tsv is missing; a submission needs it",
        ];
        let told: Vec<&str> = told.split(" · ").collect();
        assert_eq!(&told[..expected.len()], expected);
        assert!(told.last().unwrap().contains("lay the files out"), "{message}");
        assert!(!message.contains('\n'));

        let nowhere = GlueFolder::find(&folder.path().join("none"), &tasks, true).unwrap_err().to_string();
        assert!(nowhere.contains("none: no such folder"), "{nowhere}");
        let mut without = vec![("CoLA/train.tsv", "gj04\t1\t\tOne.\n")];
        without.push(("CoLA/dev.tsv", "gj04\t1\t\tOne.\n"));
        write(folder.path(), &without);
        let found = GlueFolder::find(folder.path(), &[GlueTask::Cola], false).unwrap();
        assert!(found.tasks[0].tests.is_empty());
    }

    #[test]
    fn the_original_mrpc_is_split_by_its_ids() {
        let folder = tempfile::tempdir().unwrap();
        let header = "\u{feff}Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n";
        let pairs =
            format!("{header}1\t10\t11\tHe said \"no.\tNo.\r\n0\t12\t13\tA.\tB.\r\n1\t14\t15\tC.\tD.\r\n");
        write(
            folder.path(),
            &[
                ("MRPC/msr_paraphrase_train.txt", &pairs),
                ("MRPC/dev_ids.tsv", "12\t13\n"),
                ("MRPC/msr_paraphrase_test.txt", &format!("{header}1\t1\t2\tE.\tF.\r\n0\t3\t4\tG.\tH.\r\n")),
            ],
        );
        let mut found = GlueFolder::find(folder.path(), &[GlueTask::Mrpc], true).unwrap();
        found.split_originals(&folder.path().join("out")).unwrap();
        let files = &found.tasks[0];
        let header = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n";
        let read = |path: &Path| fs::read_to_string(path).unwrap();
        assert_eq!(
            read(files.train.as_ref().unwrap()),
            format!("{header}1\t10\t11\tHe said \"no.\tNo.\n1\t14\t15\tC.\tD.\n")
        );
        assert_eq!(read(&files.dev[0]), format!("{header}0\t12\t13\tA.\tB.\n"));
        let rows: Vec<TestRow> = files.tests[0].rows().unwrap().map(Result::unwrap).collect();
        let row = |index: u64, text: &str, pair: &str| TestRow {
            index,
            text: text.into(),
            pair: Some(pair.into()),
        };
        assert_eq!(rows, [row(0, "E.", "F."), row(1, "G.", "H.")]);

        write(folder.path(), &[("MRPC/dev_ids.tsv", "12\t13\n12\t99\n")]);
        let mut found = GlueFolder::find(folder.path(), &[GlueTask::Mrpc], true).unwrap();
        let error = found.split_originals(&folder.path().join("out")).unwrap_err().to_string();
        assert!(error.contains("dev_ids.tsv: 1 of its 2 pairs of ids are not in"), "{error}");
    }

    #[test]
    fn indices_rise() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &[("AX/AX.tsv", "index\tsentence1\tsentence2\n0\ta\t\"b\n1\tc\td\n1\te\tf\n")]);
        let found = GlueFolder::find(folder.path(), &[GlueTask::Ax], true).unwrap();
        let mut rows = found.tasks[0].tests[0].rows().unwrap();
        assert_eq!(rows.next().unwrap().unwrap().pair.as_deref(), Some("\"b"));
        assert!(rows.next().unwrap().is_ok());
        let error = rows.next().unwrap().unwrap_err().to_string();
        assert!(error.contains("AX.tsv:4: the index `1`; expected a whole number of 2 or more"), "{error}");
        assert!(rows.next().is_none());
    }
}
