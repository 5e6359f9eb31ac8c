//! Rows that were written together: their vectors, codes, texts, and a graph.

use crate::bits::Bits;
use crate::codes::{bf16, encode_binary, encode_int8};
use crate::files::{self, FileRecord, Mapped, Writer};
use crate::filter::{self, ENTRY, Hash, hash_id, hashes, rows_of};
use crate::graph::Graph;
use crate::manifest::SegmentRecord;
use crate::space::{Rows, Space, half_square};
use crate::{IndexConfig, Metric, Precision, Result, SearchError};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// A row without its vector.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Its unique id.
    pub id: String,
    /// Its text.
    pub text: String,
    /// Its other data.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub fields: Map<String, Value>,
}

/// Maximum nesting of lists and objects in a field: `serde_json` reads 127 levels, and a row with its fields
/// takes two.
pub(crate) const MOST_NESTED: usize = 125;

/// Whether lists and objects are nested deeper than this many levels.
pub(crate) fn is_deeper(value: &Value, levels: usize) -> bool {
    let mut within: Box<dyn Iterator<Item = &Value>> = match value {
        Value::Array(values) => Box::new(values.iter()),
        Value::Object(values) => Box::new(values.values()),
        _ => return false,
    };
    levels == 0 || within.any(|value| is_deeper(value, levels - 1))
}

/// Maximum rows: the highest number is reserved for none.
pub(crate) const MOST_ROWS: usize = u32::MAX as usize;

/// An open segment.
#[derive(Debug)]
pub(crate) struct Segment {
    pub record: SegmentRecord,
    vectors: Mapped,
    halves: Option<Mapped>,
    scales: Option<Mapped>,
    codes: Option<Mapped>,
    texts: Mapped,
    ends: Mapped,
    ids: Mapped,
    fields: Mapped,
    graph: Option<Mapped>,
    deleted: Option<Bits>,
}

impl Segment {
    /// Opens a segment; `check` verifies each file's hash, for files written by another process.
    pub fn open(folder: &Path, record: &SegmentRecord, config: &IndexConfig, check: bool) -> Result<Self> {
        let open = |record: &FileRecord| match check {
            true => Mapped::open(folder, record),
            false => Mapped::map(folder, record),
        };
        let maybe = |record: &Option<FileRecord>| record.as_ref().map(open).transpose();
        let deleted = match (&record.deleted, maybe(&record.deleted)?) {
            (Some(file), Some(mapped)) => {
                let bits = Bits::of_words(mapped.numbers::<u64>().to_vec(), record.rows);
                let wrong =
                    || SearchError::damaged(&folder.join(&file.name), "it is no list of deleted rows");
                Some(bits.ok_or_else(wrong)?)
            }
            _ => None,
        };
        let segment = Self {
            record: record.clone(),
            vectors: open(&record.vectors)?,
            halves: maybe(&record.halves)?,
            scales: maybe(&record.scales)?,
            codes: maybe(&record.codes)?,
            texts: open(&record.texts)?,
            ends: open(&record.ends)?,
            ids: open(&record.ids)?,
            fields: open(&record.fields)?,
            graph: maybe(&record.graph)?,
            deleted,
        };
        if check {
            segment.check(folder, config)?;
        }
        Ok(segment)
    }

    /// Checks that the files are consistent, so that nothing points outside them.
    fn check(&self, folder: &Path, config: &IndexConfig) -> Result<()> {
        let (rows, record) = (self.record.rows, &self.record);
        let size = |file: &FileRecord, bytes: Option<usize>| match bytes == Some(file.bytes as usize) {
            true => Ok(()),
            false => Err(SearchError::damaged(
                &folder.join(&file.name),
                format!("it has another size than {rows} rows"),
            )),
        };
        let bytes = |each: usize| rows.checked_mul(each);
        let each = |file: &Option<FileRecord>, wanted: bool, each: usize| match (file, wanted) {
            (Some(file), true) => size(file, bytes(each)),
            (None, false) => Ok(()),
            _ => Err(SearchError::damaged(
                &folder.join(crate::manifest::NAME),
                "a part lacks a file, or has one too many",
            )),
        };
        let precision = config.precision;
        size(&record.vectors, bytes(config.width * if precision == Precision::Bf16 { 2 } else { 4 }))?;
        each(&record.halves, config.metric == Metric::Euclidean, 4)?;
        each(&record.scales, precision == Precision::Int8, 4)?;
        let code = if precision == Precision::Int8 { config.width } else { config.width.div_ceil(64) * 8 };
        each(&record.codes, matches!(precision, Precision::Int8 | Precision::Binary), code)?;
        size(&record.ids, bytes(ENTRY))?;
        size(&record.ends, bytes(8))?;
        let wrong =
            |file: &FileRecord| SearchError::damaged(&folder.join(&file.name), "it leads out of the index");
        let ends = self.ends.numbers::<u64>();
        if !ends.is_sorted() || ends.last().copied().unwrap_or(0) != record.texts.bytes {
            return Err(wrong(&record.ends));
        }
        for (mapped, file) in [(&self.ids, &record.ids), (&self.fields, &record.fields)] {
            let entries = mapped.bytes().as_chunks::<ENTRY>();
            let row =
                |entry: &[u8; ENTRY]| u64::from_le_bytes(*entry.last_chunk().expect("an entry is longer"));
            if !entries.1.is_empty() || entries.0.iter().any(|entry| row(entry) >= rows as u64) {
                return Err(wrong(file));
            }
        }
        match &record.graph {
            Some(file) if !self.graph().is_some_and(|graph| graph.is_sound()) => Err(wrong(file)),
            _ => Ok(()),
        }
    }

    pub fn rows(&self) -> usize {
        self.record.rows
    }

    pub fn deleted(&self) -> Option<&Bits> {
        self.deleted.as_ref()
    }

    /// Rows that are not deleted.
    pub fn live(&self) -> usize {
        self.rows() - self.deleted.as_ref().map_or(0, Bits::count)
    }

    pub fn is_live(&self, row: u32) -> bool {
        self.deleted.as_ref().is_none_or(|deleted| !deleted.has(row as usize))
    }

    fn halves(&self) -> Option<&[f32]> {
        self.halves.as_ref().map(Mapped::numbers)
    }

    /// The rows' vectors.
    pub fn vectors(&self, config: &IndexConfig) -> Space<'_> {
        let rows = match config.precision {
            Precision::Bf16 => Rows::Bf16(self.vectors.numbers()),
            _ => Rows::F32(self.vectors.numbers()),
        };
        Space { rows, width: config.width, halves: self.halves() }
    }

    /// The rows' codes, or their vectors if there are none.
    pub fn short(&self, config: &IndexConfig) -> Space<'_> {
        let rows = match (&self.scales, &self.codes) {
            (Some(scales), Some(codes)) => Rows::Int8 { scales: scales.numbers(), codes: codes.numbers() },
            // Bits are compared by themselves, whatever the metric.
            (None, Some(codes)) => {
                return Space { rows: Rows::Binary(codes.numbers()), width: config.width, halves: None };
            }
            _ => return self.vectors(config),
        };
        Space { rows, width: config.width, halves: self.halves() }
    }

    pub fn graph(&self) -> Option<Graph<'_>> {
        Graph::of_words(self.graph.as_ref()?.numbers(), self.rows())
    }

    /// The live row of an id.
    pub fn find(&self, hash: &Hash) -> Option<u32> {
        rows_of(self.ids.bytes(), hash).find(|row| self.is_live(*row))
    }

    /// Entries of the fields' values.
    pub fn fields(&self) -> &[u8] {
        self.fields.bytes()
    }

    /// A row's text and other data.
    pub fn row(&self, folder: &Path, row: u32) -> Result<Row> {
        let ends = self.ends.numbers::<u64>();
        let start = row.checked_sub(1).map_or(0, |before| ends[before as usize]);
        let json = &self.texts.bytes()[start as usize..ends[row as usize] as usize];
        let path = || folder.join(&self.record.texts.name);
        serde_json::from_slice(json)
            .map_err(|error| SearchError::damaged(&path(), format!("row {row}: {error}")))
    }
}

/// A segment being written.
pub(crate) struct SegmentWriter<'a> {
    config: &'a IndexConfig,
    base: PathBuf,
    number: u64,
    rows: usize,
    vectors: Writer,
    halves: Option<Writer>,
    scales: Option<Writer>,
    codes: Option<Writer>,
    texts: Writer,
    ends: Writer,
    text_bytes: u64,
    ids: Vec<(Hash, u32)>,
    fields: Vec<(Hash, u32)>,
    code: Vec<i8>,
}

/// The path of a file of a segment.
pub(crate) fn path(folder: &Path, number: u64, kind: &str) -> PathBuf {
    folder.join(format!("{number:06}.{kind}"))
}

/// Endings of files of an index.
pub(crate) const KINDS: [&str; 10] =
    ["vectors", "halves", "scales", "codes", "texts", "ends", "ids", "fields", "graph", "deleted"];

impl<'a> SegmentWriter<'a> {
    pub fn create(folder: &Path, number: u64, config: &'a IndexConfig) -> Result<Self> {
        let create = |kind| Writer::create(path(folder, number, kind));
        let maybe = |wanted: bool, kind| wanted.then(|| create(kind)).transpose();
        let precision = config.precision;
        Ok(Self {
            config,
            base: folder.into(),
            number,
            rows: 0,
            vectors: create("vectors")?,
            halves: maybe(config.metric == Metric::Euclidean, "halves")?,
            scales: maybe(precision == Precision::Int8, "scales")?,
            codes: maybe(matches!(precision, Precision::Int8 | Precision::Binary), "codes")?,
            texts: create("texts")?,
            ends: create("ends")?,
            text_bytes: 0,
            ids: Vec::new(),
            fields: Vec::new(),
            code: vec![0; config.width],
        })
    }

    /// Adds a row and its vector, which must have length 1 for cosines.
    pub fn push(&mut self, row: &Row, vector: &[f32]) -> Result<()> {
        if self.rows == MOST_ROWS {
            return Err(SearchError::TooMany { most: MOST_ROWS });
        }
        let number = self.rows as u32;
        match self.config.precision {
            Precision::Bf16 => {
                let rounded: Vec<u16> = vector.iter().map(|x| bf16(*x)).collect();
                self.vectors.write(bytemuck::cast_slice(&rounded))?;
            }
            _ => self.vectors.write(bytemuck::cast_slice(vector))?,
        }
        if let Some(halves) = &mut self.halves {
            halves.write(&half_square(vector).to_le_bytes())?;
        }
        match (&mut self.scales, &mut self.codes) {
            (Some(scales), Some(codes)) => {
                scales.write(&encode_int8(vector, &mut self.code).to_le_bytes())?;
                codes.write(bytemuck::cast_slice(&self.code))?;
            }
            (None, Some(codes)) => codes.write(bytemuck::cast_slice(&encode_binary(vector)))?,
            _ => {}
        }
        let json = serde_json::to_vec(row).expect("plain values serialise");
        self.texts.write(&json)?;
        self.text_bytes += json.len() as u64;
        self.ends.write(&self.text_bytes.to_le_bytes())?;
        self.ids.push((hash_id(&row.id), number));
        self.fields.extend(hashes(&row.fields).into_iter().map(|hash| (hash, number)));
        self.rows += 1;
        Ok(())
    }

    /// Flushes all files.
    pub fn finish(self) -> Result<SegmentRecord> {
        let maybe = |writer: Option<Writer>| writer.map(Writer::finish).transpose();
        let write = |kind, pairs| files::write(path(&self.base, self.number, kind), &filter::sorted(pairs));
        Ok(SegmentRecord {
            rows: self.rows,
            vectors: self.vectors.finish()?,
            halves: maybe(self.halves)?,
            scales: maybe(self.scales)?,
            codes: maybe(self.codes)?,
            texts: self.texts.finish()?,
            ends: self.ends.finish()?,
            ids: write("ids", self.ids)?,
            fields: write("fields", self.fields)?,
            graph: None,
            deleted: None,
        })
    }
}
