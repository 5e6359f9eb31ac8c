//! Labelled texts, with columns set on the command line.

use std::path::Path;

use anyhow::Result;
use cloze_data::labelled::{Column, Columns, LabelSet, Labels, TextExample, texts};

use crate::rows::{BadRowArgs, RowArgs, say_skipped};

/// Reads a file whose fields are in these columns, unless `--columns` says otherwise; reports skipped rows.
///
/// # Errors
/// [`WrongUsage`](crate::failure::WrongUsage) for a field that the task does not have; unusable files and
/// rows.
pub fn read(
    args: &RowArgs,
    file: &str,
    usual: &[(&str, &str)],
    labels: Labels,
) -> Result<(Vec<TextExample>, Option<LabelSet>)> {
    args.check_fields(&usual.iter().map(|(field, _)| *field).collect::<Vec<_>>())?;
    let mut source = args.source([file])?;
    let usual = usual.iter().map(|(field, name)| ((*field).to_owned(), Column::Name((*name).to_owned())));
    // A later one replaces an earlier one.
    source.columns = usual
        .chain(args.columns.iter().cloned())
        .map(|(field, column)| (field, Columns::One(column)))
        .collect();
    let (loaded, set) = texts(&source, Path::new(""), labels).map_err(BadRowArgs::told)?;
    say_skipped(file, &loaded.skipped, loaded.examples.len() as u64);
    Ok((loaded.examples, set))
}
