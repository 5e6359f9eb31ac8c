//! Spreadsheets, which users give where an export of them is expected, and exports, which they give where text is.

use crate::{DataError, Result};
use std::path::Path;

/// The extensions of the formats in which Excel, LibreOffice and Numbers save.
const ENDINGS: [&str; 5] = ["xlsx", "xls", "xlsm", "ods", "numbers"];

/// Refuses a spreadsheet, by its extension.
///
/// # Errors
/// [`DataError::Spreadsheet`], which says how to export it.
pub fn check_no_spreadsheet(path: &Path) -> Result<()> {
    let ending = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
    match ENDINGS.contains(&ending.as_str()) {
        true => Err(DataError::Spreadsheet { path: path.to_owned() }),
        false => Ok(()),
    }
}

/// Whether a file is a table in columns, by its extension, also of a compressed one.
pub(crate) fn is_table(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let name = name.trim_end_matches(".gz").trim_end_matches(".zst");
    matches!(name.rsplit_once('.'), Some((_, "csv" | "tsv")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus::{CorpusConfig, Format, documents};
    use crate::labelled::{LabelledSource, Labels, texts};

    #[test]
    fn a_spreadsheet_is_refused_with_the_way_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("Reviews.XLSX");
        std::fs::write(&path, b"PK\x03\x04").unwrap();
        let name = path.to_str().unwrap();
        let expected = format!(
            "{name}: a spreadsheet's own format cannot be read; export the sheet as CSV (in Excel: \"CSV UTF-8\") and \
             give that file"
        );
        let labelled = texts(&LabelledSource::new([name]), Path::new(""), Labels::Unread);
        assert_eq!(labelled.unwrap_err().to_string(), expected);
        let config = CorpusConfig { files: vec![name.into()], ..CorpusConfig::default() };
        assert_eq!(documents(&config, Path::new("")).err().unwrap().to_string(), expected);
        assert!(check_no_spreadsheet(Path::new("reviews.csv")).is_ok());
    }

    #[test]
    fn a_table_is_no_corpus() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.csv", "b.TSV", "c.csv.gz"] {
            let path = folder.path().join(name);
            std::fs::write(&path, "text,label\na,b\n").unwrap();
            let files = vec![path.to_str().unwrap().to_owned()];
            let config = CorpusConfig { files, ..CorpusConfig::default() };
            let told = documents(&config, Path::new("")).err().unwrap().to_string();
            let expected = "a corpus is text, JSON lines or Parquet, not a table in columns";
            assert!(told.starts_with(&format!("{}: {expected}", path.display())), "{told}");
            // Who says that it is text gets it as text.
            let config = CorpusConfig { format: Format::Text, ..config };
            assert!(documents(&config, Path::new("")).is_ok());
        }
    }
}
