//! Lists of words.

use std::collections::HashSet;
use std::path::Path;

use anyhow::{Result, anyhow, bail};
use cloze_data::labelled::{Column, DataFormat, RecordColumn, records};
use serde_json::Value;

use crate::failure::WrongUsage;
use crate::lines::{BATCH, Batch, Lines};
use crate::rows::BadRowArgs;

/// Columns of words in files of word pairs, analogies and categories.
const USUAL: [&str; 5] = ["word", "word1", "word2", "word3", "target"];

/// The columns of tables that hold words.
#[derive(clap::Args)]
pub struct WordColumns {
    /// The columns of tables that hold words, by name or by number from 1, comma-separated (default: those of word,
    /// word1, word2, word3 and target that there are).
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    columns: Vec<String>,
    /// Tables have no header: the first line is a row, and columns are numbered.
    #[arg(long)]
    no_header: bool,
}

impl WordColumns {
    /// The different words of files, in the order of their first occurrence: lines of text with a word each, or the
    /// columns of tables.
    ///
    /// # Errors
    /// Files that cannot be read; a table without such a column; no word at all.
    pub fn read(&self, files: &[String]) -> Result<Vec<String>> {
        let mut words = Distinct::default();
        let mut has_table = false;
        for file in files {
            match DataFormat::of(Path::new(file)) {
                Some(DataFormat::Csv | DataFormat::Tsv | DataFormat::Jsonl | DataFormat::Parquet) => {
                    has_table = true;
                    self.table(file, &mut words)?;
                }
                _ => lines(file, &mut words)?,
            }
        }
        if !has_table && (self.no_header || !self.columns.is_empty()) {
            let option = if self.no_header { "--no-header" } else { "--columns" };
            let error = anyhow!(
                "{option} is for tables, and --words names none; expected .csv, .tsv, .jsonl or .parquet"
            );
            return Err(WrongUsage::new(error).into());
        }
        if words.list.is_empty() {
            bail!("{}: no word; expected one per line, or in a column of a table", files.join(", "));
        }
        Ok(words.list)
    }

    fn table(&self, file: &str, words: &mut Distinct) -> Result<()> {
        let mut source = BadRowArgs::default().source();
        source.files = vec![file.to_owned()];
        source.header = self.no_header.then_some(false);
        let column = |name: &str, required| RecordColumn {
            field: "--columns".into(),
            column: match name.parse() {
                Ok(number) => Column::Number(number),
                Err(_) => Column::Name(name.into()),
            },
            required,
        };
        if self.columns.is_empty() && self.no_header {
            let error = anyhow!("--no-header: say which columns hold words, such as --columns 1,2");
            return Err(WrongUsage::new(error).into());
        }
        if self.columns.iter().any(|name| name == "0") {
            return Err(WrongUsage::new(anyhow!("--columns: columns are counted from 1")).into());
        }
        let columns = match &self.columns[..] {
            [] => USUAL.iter().map(|name| column(name, false)).collect(),
            named => named.iter().map(|name| column(name, true)).collect(),
        };
        let mut rows = records(&source, Path::new(""), columns)?;
        while let Some(row) = rows.next().transpose().map_err(BadRowArgs::corrected)? {
            if row.cells.iter().all(Value::is_null) {
                bail!(
                    "{file}:{}: no column of words; expected one of {}; name it with --columns",
                    row.line,
                    USUAL.join(", ")
                );
            }
            row.cells.iter().filter_map(Value::as_str).for_each(|word| words.add(word));
        }
        Ok(())
    }
}

/// Adds the words of lines.
fn lines(file: &str, words: &mut Distinct) -> Result<()> {
    let mut lines = Lines::of(Some(Path::new(file)), crate::lines::MAX_LINE_BYTES)?;
    let mut batch = Batch::default();
    while lines.read(BATCH, &mut batch)? {
        batch.iter().for_each(|line| words.add(line.text));
    }
    Ok(())
}

/// Different words.
#[derive(Default)]
struct Distinct {
    list: Vec<String>,
    seen: HashSet<String>,
}

impl Distinct {
    fn add(&mut self, word: &str) {
        let word = word.trim();
        if !word.is_empty() && self.seen.insert(word.to_owned()) {
            self.list.push(word.to_owned());
        }
    }
}
