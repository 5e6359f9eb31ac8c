//! `metrics.jsonl`: one JSON object per line, in the order of steps.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::Record;
use crate::error::{Result, TrainerError};

/// A metrics file open for appending.
pub struct JsonLines {
    path: PathBuf,
    file: File,
}

impl JsonLines {
    /// Creates an empty file at `path`, replacing any existing one.
    ///
    /// # Errors
    /// [`TrainerError::Io`].
    pub fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).map_err(TrainerError::io("create", path))?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Opens the file at `path` to continue after `step`: removes records of later steps, and a last line left
    /// incomplete by a killed process. Creates an empty file if there is none.
    ///
    /// # Errors
    /// [`TrainerError::Io`], and [`TrainerError::BadMetrics`] for a complete line that is not a record.
    pub fn resume(path: &Path, step: u64) -> Result<Self> {
        let mut options = OpenOptions::new();
        let mut file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(TrainerError::io("open", path))?;
        let text = std::fs::read(path).map_err(TrainerError::io("read", path))?;
        let mut kept = 0;
        for line in lines(&text) {
            if parse(path, &line)?.step() > step {
                break;
            }
            kept = line.end;
        }
        file.set_len(kept as u64)
            .and_then(|()| file.seek(SeekFrom::End(0)))
            .map_err(TrainerError::io("shorten", path))?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Appends a record and passes it to the system at once, so that a killed process loses none.
    ///
    /// # Errors
    /// [`TrainerError::Io`].
    pub fn write(&mut self, record: &Record) -> Result<()> {
        let mut line = serde_json::to_string(record).expect("a record is strings and numbers");
        line.push('\n');
        self.file.write_all(line.as_bytes()).map_err(TrainerError::io("write", &self.path))
    }
}

/// All records of the metrics file at `path`, without an incomplete last line.
///
/// # Errors
/// [`TrainerError::Io`], and [`TrainerError::BadMetrics`] for a complete line that is not a record.
pub fn read(path: &Path) -> Result<Vec<Record>> {
    let text = std::fs::read(path).map_err(TrainerError::io("read", path))?;
    lines(&text).map(|line| parse(path, &line)).collect()
}

/// A line that ends in a newline.
struct Line<'a> {
    /// From 1.
    number: usize,
    text: &'a [u8],
    /// Offset of the next line.
    end: usize,
}

/// The complete lines of `text`. Bytes, because a torn write may end within a character.
fn lines(text: &[u8]) -> impl Iterator<Item = Line<'_>> {
    let mut end = 0;
    text.split_inclusive(|&byte| byte == b'\n').enumerate().filter_map(move |(index, line)| {
        end += line.len();
        let text = line.strip_suffix(b"\n")?;
        Some(Line { number: index + 1, text, end })
    })
}

fn parse(path: &Path, line: &Line<'_>) -> Result<Record> {
    serde_json::from_slice(line.text).map_err(|error| TrainerError::BadMetrics {
        path: path.to_owned(),
        line: line.number,
        reason: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::{EvaluationRecord, TrainRecord};
    use super::*;
    use cloze_evaluation::figures::Figures;

    fn train(step: u64) -> Record {
        let losses = vec![("zeta".to_owned(), 0.25), ("alpha".to_owned(), f64::from(u32::MAX))];
        Record::Train(TrainRecord { step, loss: 0.1 * step as f64, losses, tokens: 7, ..Default::default() })
    }

    fn eval(step: u64) -> Record {
        let figures = Figures::new(4, [("masked_loss", 3.0), ("accuracy", 0.5)]);
        Record::Evaluation(EvaluationRecord { step, split: "heldout".into(), figures, seconds: 0.5 })
    }

    fn folder_with(text: impl AsRef<[u8]>) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        std::fs::write(&path, text).unwrap();
        (folder, path)
    }

    #[test]
    fn records_read_back() {
        let (_folder, path) = folder_with("old");
        let mut file = JsonLines::create(&path).unwrap();
        for record in [train(1), eval(1), train(2)] {
            file.write(&record).unwrap();
        }
        assert_eq!(read(&path).unwrap(), [train(1), eval(1), train(2)]);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 3);
        assert!(text.starts_with("{\"event\":\"train\",\"step\":1,\"loss\":0.1,"), "{text}");
        assert!(text.contains("\"losses\":{\"zeta\":0.25,\"alpha\":"), "{text}");
    }

    #[test]
    fn numbers_that_are_not_finite_survive() {
        let (_folder, path) = folder_with("");
        let record =
            Record::Train(TrainRecord { loss: f64::NAN, grad_norm: f64::INFINITY, ..Default::default() });
        JsonLines::create(&path).unwrap().write(&record).unwrap();
        let Record::Train(record) = read(&path).unwrap().remove(0) else { panic!("not the training record") };
        assert!(record.loss.is_nan() && record.grad_norm.is_nan());
    }

    #[test]
    fn resuming_drops_later_steps_and_a_torn_last_line() {
        let line = |record: &Record| serde_json::to_string(record).unwrap() + "\n";
        let whole: String = [train(10), eval(10), train(20), eval(20), train(30)].iter().map(line).collect();
        let torn = format!("{whole}{{\"event\":\"train\",\"st");
        for (text, step, kept) in [
            (&whole, 20, vec![train(10), eval(10), train(20), eval(20)]),
            (&torn, 20, vec![train(10), eval(10), train(20), eval(20)]),
            (&torn, 30, vec![train(10), eval(10), train(20), eval(20), train(30)]),
            (&whole, 15, vec![train(10), eval(10)]),
            (&whole, 0, vec![]),
        ] {
            let (_folder, path) = folder_with(text);
            JsonLines::resume(&path, step).unwrap().write(&train(99)).unwrap();
            let expected: Vec<_> = kept.into_iter().chain([train(99)]).collect();
            assert_eq!(read(&path).unwrap(), expected, "after step {step}");
        }
    }

    #[test]
    fn a_line_torn_within_a_character_is_dropped() {
        let (_folder, path) = folder_with(b"{\"event\":\"\xC3");
        assert_eq!(read(&path).unwrap(), []);
        JsonLines::resume(&path, 5).unwrap().write(&train(6)).unwrap();
        assert_eq!(read(&path).unwrap(), [train(6)]);
    }

    #[test]
    fn resuming_without_a_file_starts_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        JsonLines::resume(&path, 5).unwrap().write(&train(6)).unwrap();
        assert_eq!(read(&path).unwrap(), [train(6)]);
    }

    #[test]
    fn a_whole_line_that_is_no_record_is_refused_with_its_number() {
        let (_folder, path) = folder_with("{\"event\":\"evaluation\"}\nnonsense\n");
        let message = JsonLines::resume(&path, 5).err().unwrap().to_string();
        let expected = format!(
            "{}:1: not a metrics record (missing field `step`); expected one JSON object a line; move the file \
             away to continue without it",
            path.display()
        );
        assert_eq!(message, expected);
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 2, "the file is left as it was");
    }
}
