//! Rows with an image and what it shows, in words.

use super::images::image;
use super::places::Places;
use super::rows::{self, RequestedColumn, Row, kind_of};
use super::source::{LabelledSource, Loaded, Task};
use crate::Result;
use crate::corpus::Problem;
use crate::images::ImageSource;
use serde_json::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An image with captions.
#[derive(Debug, Clone, PartialEq)]
pub struct CaptionedImage {
    /// Where the image is.
    pub image: ImageSource,
    /// What it shows, in one or more sentences by different people; at least one.
    pub captions: Vec<String>,
}

/// Reads images with captions of CSV, TSV, JSON lines, Parquet or XML: the columns `image`, as
/// [`image_rows`](super::image_rows) reads it, and `caption`, a text or a list of texts. Rows with the same file are one image
/// with the captions of all.
///
/// # Errors
/// Invalid settings, files and rows of the [`LabelledSource`], with file, line and column.
pub fn captioned_images(source: &LabelledSource, base: &Path) -> Result<Loaded<CaptionedImage>> {
    let files = source.open(Task::Captions, base)?;
    let wanted = ["image", "caption"]
        .map(|field| RequestedColumn { raw: true, ..RequestedColumn::required(field, source) });
    let open = |path: &Path, format| {
        let rows = rows::open(path, format, source, &wanted)?;
        let table: Arc<Path> = path.into();
        let of_table = rows.map(move |row| Ok((table.clone(), row?)));
        Ok(Box::new(of_table) as rows::Read<(Arc<Path>, Row)>)
    };
    let convert = |(table, Row { line, cells }): (Arc<Path>, Row)| {
        let mut cells = cells.into_iter();
        let image = image(cells.next().unwrap_or_default(), &wanted[0], &table, line)?;
        let captions = captions(cells.next().unwrap_or_default(), &wanted[1], line)?;
        Ok(CaptionedImage { image, captions })
    };
    let Loaded { examples: rows, skipped, .. } = rows::load(source, &files, open, convert)?;
    let (mut examples, mut places) = (Vec::<CaptionedImage>::new(), HashMap::<PathBuf, usize>::new());
    for row in rows {
        let place = match &row.image {
            ImageSource::File(path) => *places.entry(path.clone()).or_insert(examples.len()),
            _ => examples.len(),
        };
        match examples.get_mut(place) {
            Some(example) => example.captions.extend(row.captions),
            None => examples.push(row),
        }
    }
    Ok(Loaded { examples, places: Places::default(), skipped })
}

impl rows::Lined for (Arc<Path>, Row) {
    fn line(&self) -> Option<u64> {
        Some(self.1.line)
    }
}

fn captions(cell: Value, column: &RequestedColumn, line: u64) -> std::result::Result<Vec<String>, Problem> {
    let bad = |detail: String| Err(column.bad(line, "row without a caption", detail));
    let text = |cell: Value| match cell {
        Value::String(text) if !text.trim().is_empty() => Ok(text.trim().to_owned()),
        Value::String(_) => Err("empty, expected a text".to_owned()),
        other => Err(format!("{}, expected a text, or a list of texts", kind_of(&other))),
    };
    let texts = match cell {
        Value::Array(texts) if texts.is_empty() => return bad("an empty list, expected a text".into()),
        Value::Array(texts) => texts.into_iter().map(text).collect(),
        one => text(one).map(|text| vec![text]),
    };
    texts.or_else(bad)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labelled::OnBadRow;

    fn read(name: &str, text: &str, on_bad_row: OnBadRow) -> Result<Loaded<CaptionedImage>> {
        let folder = tempfile::tempdir().unwrap();
        for image in ["a.png", "b.png"] {
            std::fs::write(folder.path().join(image), "").unwrap();
        }
        std::fs::write(folder.path().join(name), text).unwrap();
        captioned_images(&LabelledSource { on_bad_row, ..LabelledSource::new([name]) }, folder.path())
    }

    #[test]
    fn rows_of_an_image_are_one_example() {
        let csv = "image,caption\na.png,A dog.\nb.png,\"A cat, asleep.\"\na.png, Dogs run \n";
        let found = read("table.csv", csv, OnBadRow::Error).unwrap().examples;
        let captions: Vec<&[String]> = found.iter().map(|example| &example.captions[..]).collect();
        assert_eq!(captions, [&["A dog.", "Dogs run"][..], &["A cat, asleep."]]);
        let json = "{\"image\": \"b.png\", \"caption\": [\"one\", \"two\"]}\n{\"image\": \"a.png\", \"caption\": \"x\"}\n";
        let found = read("table.jsonl", json, OnBadRow::Error).unwrap().examples;
        assert_eq!(found[0].captions, ["one", "two"]);
        assert!(matches!(&found[1].image, ImageSource::File(path) if path.ends_with("a.png")));
        // The bytes of two rows are two images.
        let json = "{\"image\": {\"bytes\": \"AA==\"}, \"caption\": \"x\"}\n".repeat(2);
        assert_eq!(read("table.jsonl", &json, OnBadRow::Error).unwrap().examples.len(), 2);
    }

    #[test]
    fn a_row_without_a_caption_is_named_or_skipped() {
        for (row, expected) in [
            (r#"{"image": "a.png", "caption": " "}"#, "column `caption`: empty, expected a text"),
            (r#"{"image": "a.png", "caption": []}"#, "an empty list, expected a text"),
            (r#"{"image": "a.png", "caption": ["x", 3]}"#, "a number, expected a text, or a list of texts"),
            (r#"{"image": "c.png", "caption": "x"}"#, "there is no file"),
            (r#"{"image": "a.png"}"#, "caption"),
        ] {
            let text = format!("{{\"image\": \"b.png\", \"caption\": \"fine\"}}\n{row}\n");
            let message = read("table.jsonl", &text, OnBadRow::Error).unwrap_err().to_string();
            assert!(message.contains(expected) && message.contains("table.jsonl"), "{message}");
            let loaded = read("table.jsonl", &text, OnBadRow::Skip).unwrap();
            assert_eq!((loaded.examples.len(), loaded.skipped.is_empty()), (1, false), "{row}");
        }
    }
}
