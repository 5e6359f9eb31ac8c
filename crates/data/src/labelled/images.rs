//! Rows with an image and its class.

use super::labels::LabelSet;
use super::rows::{self, RequestedColumn, Row, kind_of};
use super::source::{LabelledSource, Loaded, Task};
use super::texts::{Found, Labels, Target, target};
use crate::Result;
use crate::corpus::Problem;
use crate::images::{ImageExample, ImageSource};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;

/// Reads images of CSV, TSV, JSON lines, Parquet or XML: the columns `image` and `label`.
///
/// An image is a path, relative to the folder of its table, or its bytes: a binary column of Parquet, an object with
/// `bytes` or `path` as Hugging Face's data sets have it, or in text a data URI, `data:image/png;base64,…`. In JSON, an
/// object's `bytes` are in base64. A line with an image may need a larger `max_line_bytes`.
///
/// The file of a path must exist; whether an image decodes is seen by
/// [`without_bad_images`](crate::images::without_bad_images). The class is read as that of [`texts`](super::texts), and
/// not at all with labels other than [`Labels::Found`] and [`Labels::Of`]. Also returns the classes, if there are any.
///
/// # Errors
/// Invalid settings, files and rows of the [`LabelledSource`], with file, line and column.
pub fn image_rows(
    source: &LabelledSource,
    base: &Path,
    labels: Labels,
) -> Result<(Loaded<ImageExample>, Option<LabelSet>)> {
    let files = source.open(Task::Images, base)?;
    let mut wanted = vec![RequestedColumn { raw: true, ..RequestedColumn::required("image", source) }];
    let has_class = matches!(labels, Labels::Found | Labels::Of(_));
    if has_class {
        wanted.push(RequestedColumn::required("label", source));
    }
    let mut found = Found::default();
    let open = |path: &Path, format| {
        let rows = rows::open(path, format, source, &wanted)?;
        let table: Arc<Path> = path.into();
        let of_table = rows.map(move |row| Ok((table.clone(), row?)));
        Ok(Box::new(of_table) as rows::Read<(Arc<Path>, Row)>)
    };
    let convert = |(table, Row { line, cells }): (Arc<Path>, Row)| {
        let mut cells = cells.into_iter();
        let image = image(cells.next().unwrap_or_default(), &wanted[0], &table, line)?;
        let target = match cells.next() {
            Some(cell) => target(cell, &wanted[1], line, source, labels, &mut found)?,
            None => Target::None,
        };
        Ok(ImageExample { image, target })
    };
    let mut loaded = rows::load(source, &files, open, convert)?;
    let set = match labels {
        Labels::Found => {
            let (set, ids) = found.into_set()?;
            for example in &mut loaded.examples {
                if let Target::Class(seen) = &mut example.target {
                    *seen = ids[*seen];
                }
            }
            Some(set)
        }
        Labels::Of(set) => Some(set.clone()),
        _ => None,
    };
    Ok((loaded, set))
}

pub(super) fn image(
    cell: Value,
    column: &RequestedColumn,
    table: &Path,
    line: u64,
) -> std::result::Result<ImageSource, Problem> {
    let bad = |detail: String| column.bad(line, "row without an image", detail);
    let (base, place) = (table.parent().unwrap_or(Path::new("")), format!("{}:{line}", table.display()));
    match cell {
        Value::String(text) => ImageSource::of_text(text.trim(), base, &place).map_err(bad),
        Value::Object(mut parts) => match (parts.remove("bytes"), parts.remove("path")) {
            (Some(Value::String(encoded)), _) => ImageSource::of_base64(&encoded, &place).map_err(bad),
            (None | Some(Value::Null), Some(Value::String(path))) => {
                ImageSource::of_path(&path, base).map_err(bad)
            }
            _ => Err(bad("an object without `bytes` in base64 and without `path`".into())),
        },
        other => Err(bad(format!("{}, expected a path, or an image's bytes", kind_of(&other)))),
    }
}
