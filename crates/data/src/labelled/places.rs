//! Where examples are from.

use super::source::DataFormat;
use std::path::{Path, PathBuf};

/// The place of each example in its file. Empty for examples without one, such as the images of a folder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Places {
    files: Vec<(PathBuf, DataFormat)>,
    /// For each example the index of its file, and the line on which it begins, or its row of a Parquet file.
    places: Vec<(u32, u64)>,
}

impl Places {
    /// Begins a file.
    pub(super) fn begin(&mut self, path: &Path, format: DataFormat) {
        self.files.push((path.to_owned(), format));
    }

    /// Adds an example of the last file.
    pub(super) fn push(&mut self, line: u64) {
        let file = u32::try_from(self.files.len()).unwrap_or(u32::MAX).saturating_sub(1);
        self.places.push((file, line));
    }

    /// Keeps the examples for which `kept`, by index, says so.
    pub fn retain(&mut self, mut kept: impl FnMut(usize) -> bool) {
        let mut index = 0;
        self.places.retain(|_| {
            index += 1;
            kept(index - 1)
        });
    }

    /// The name of each example: its line, such as `17`, from 1; with several files `b.csv:17`. In Parquet it is the row,
    /// `row 17`.
    pub fn names(&self) -> Vec<String> {
        let name = |(file, line): &(u32, u64)| match &self.files[..] {
            [(_, DataFormat::Parquet)] => format!("row {line}"),
            [_] => line.to_string(),
            files => format!("{}:{line}", files[*file as usize].0.display()),
        };
        self.places.iter().map(name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_goes_without_saying() {
        let mut places = Places::default();
        assert!(places.names().is_empty());
        places.begin(Path::new("a.csv"), DataFormat::Csv);
        [2, 3, 7].into_iter().for_each(|line| places.push(line));
        places.retain(|index| index != 1);
        assert_eq!(places.names(), ["2", "7"]);
        places.begin(Path::new("b/c.csv"), DataFormat::Csv);
        places.push(4);
        assert_eq!(places.names(), ["a.csv:2", "a.csv:7", "b/c.csv:4"]);
        let mut rows = Places::default();
        rows.begin(Path::new("a.parquet"), DataFormat::Parquet);
        rows.push(9);
        assert_eq!(rows.names(), ["row 9"]);
    }
}
