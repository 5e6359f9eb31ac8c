//! An on-disk index of vectors with their texts, and nearest-neighbour search: exact, by short codes, or by a
//! graph.
//!
//! ```text
//! rows ─ IndexWriter::add ─► a segment: vectors, codes, texts, ids, fields ─ maintain ─► fewer segments, with graphs
//! queries ─ Index::find ─► conditions ─► scan, or graph ─► best rows ─► their vectors compared again ─► Found
//! ```
//!
//! - **Acknowledged changes are durable.** A change writes and flushes new files, then replaces the manifest.
//!   A process killed at any moment leaves the index as before or after the change.
//! - **Nothing damaged is read.** Each file has a BLAKE3 hash in the manifest, which has its own; opening an
//!   index verifies them all.
//! - **Files are memory-mapped,** so the system decides what stays in memory.
//! - **The same rows give the same answers,** bit for bit, regardless of the number of threads.
//!
//! ```
//! use cloze_search::{Index, IndexConfig, IndexWriter, NewRow, OnId, SearchConfig};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let place = tempfile::tempdir()?;
//! # let folder = place.path().join("index");
//! let mut writer = IndexWriter::create(&folder, IndexConfig::new(2))?;
//! let row = |id: &str, text: &str| NewRow { id: Some(id.into()), text: text.into(), ..NewRow::default() };
//! writer.add(&[row("a", "east"), row("b", "north")], &[1.0, 0.0, 0.0, 1.0], OnId::Error)?;
//! writer.maintain(&mut |_, _| {})?;
//!
//! let index = Index::open(&folder)?;
//! let found = index.find(&[0.1, 0.9], &SearchConfig { k: 1, ..SearchConfig::default() })?;
//! assert_eq!(index.row(found[0][0].place)?.text, "north");
//! # Ok(())
//! # }
//! ```

mod best;
mod bits;
mod codes;
mod config;
mod error;
mod files;
mod filter;
mod find;
mod graph;
mod index;
mod kernels;
mod manifest;
mod scan;
mod segment;
mod sieve;
mod space;
mod writer;

pub use config::{GraphConfig, IndexConfig, Method, Metric, ModelIdentity, Precision, SearchConfig};
pub use error::{Result, SearchError};
pub use filter::{Condition, NotACondition};
pub use find::{Found, Place, recall};
pub use index::{Index, IndexInfo};
pub use segment::Row;
pub use writer::{IndexWriter, NewRow, OnId};
