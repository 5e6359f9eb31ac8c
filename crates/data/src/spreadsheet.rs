//! Spreadsheets, which users give where an export of them is expected.

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus::{CorpusConfig, documents};
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
}
