//! `cloze search index`, `add`, `delete` and `compact`.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use clap::ValueEnum;
use clap::builder::RangedU64ValueParser;
use cloze_search::{
    GraphConfig, IndexConfig, IndexWriter, Metric, NewRow, OnId, Precision, SearchConfig, SearchError,
};
use cloze_tokenizer::Sequence;
use cloze_trainer::images::is_image_model;
use indicatif::HumanCount;
use serde_json::json;

use super::embedding::{Embedding, is_of_images};
use super::rows::{IndexedRows, PlacedRow, Rows};
use super::with_progress;
use crate::compute::Compute;
use crate::lines::{self, BATCH, Batch, Lines, Longer};
use crate::model::{self, OtherModel};
use crate::output::{Output, say};
use crate::progress::Progress;

/// Build an index of texts, or of images, each with its vector.
///
/// Example: cloze search index --index my-index --model sentence-transformers/all-MiniLM-L6-v2 texts.txt
///
/// The fields of a row are its text and optionally its id; without ids rows are numbered. Markdown files and the .md and
/// .txt files of folders are cut into passages, whose ids are path:line and whose fields path, line and heading are kept.
/// With a model of images, the text is an `image`: a path or data:image/png;base64,...; folders and images are rows
/// themselves. Prints {"added": N} once the first N rows are safely on disk. If it fails before, no index is left.
#[derive(clap::Args)]
pub struct IndexArgs {
    #[command(flatten)]
    rows: IndexedRows,
    /// The folder of the new index.
    #[arg(long, value_name = "DIR")]
    index: PathBuf,
    #[arg(long, value_name = "MODEL", help = model::HELP)]
    model: String,
    /// The similarity metric.
    #[arg(long, value_enum, default_value_t = MetricName::Cosine)]
    metric: MetricName,
    /// The precision that vectors are stored and compared in.
    #[arg(long, value_enum, default_value_t = PrecisionName::Int8)]
    vectors: PrecisionName,
    /// Build no graph: every search compares all rows.
    #[arg(long)]
    no_graph: bool,
    /// Neighbours of a row in the graph; more improve recall and take more time and memory.
    #[arg(long, value_name = "M", default_value_t = GraphConfig::default().neighbours, conflicts_with = "no_graph",
        value_parser = RangedU64ValueParser::<usize>::new().range(2..=256))]
    neighbours: usize,
    /// Candidate rows for a new row's neighbours.
    #[arg(long, value_name = "N", default_value_t = GraphConfig::default().breadth, conflicts_with = "no_graph",
        value_parser = RangedU64ValueParser::<usize>::new().range(2..=100_000))]
    build_breadth: usize,
    /// Report at the end which share of the true ten nearest rows a search finds, for a sample of the rows.
    #[arg(long)]
    recall: bool,
    #[command(flatten)]
    commit: CommitArgs,
    #[command(flatten)]
    compute: Compute,
}

/// Add texts to an index.
///
/// Example: cloze search add --index my-index more.txt
///
/// The fields of a row are those of `cloze search index`. Prints {"added": N} once the first N rows are
/// safely on disk. If a row's id is already in the index, neither that row nor those after the last such line
/// are added. With --replace, the passages of a file or folder replace those that the index has of it: those that are no
/// longer there are deleted, and {"deleted": N} is printed. The path must be the one that they were indexed by.
#[derive(clap::Args)]
pub struct AddArgs {
    #[command(flatten)]
    rows: IndexedRows,
    /// The index's folder.
    #[arg(long, value_name = "DIR")]
    index: PathBuf,
    /// The model (default: the one that the index was built with).
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    #[command(flatten)]
    other: OtherModel,
    /// Replace rows whose ids are already in the index.
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    commit: CommitArgs,
    #[command(flatten)]
    compute: Compute,
}

#[derive(clap::Args)]
struct CommitArgs {
    /// Rows written to disk at a time.
    #[arg(long, value_name = "N", default_value_t = 65_536, value_parser = RangedU64ValueParser::<usize>::new().range(1..=10_000_000))]
    commit_every: usize,
}

/// Delete rows by their ids.
///
/// Example: cloze search delete --index my-index 17 23
///
/// Prints {"deleted": N} once that is on disk. If an id is not in the index, nothing is deleted.
#[derive(clap::Args)]
pub struct DeleteArgs {
    /// The ids (default: standard input, one per line).
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// The index's folder.
    #[arg(long, value_name = "DIR")]
    index: PathBuf,
    /// Ignore ids that are not in the index.
    #[arg(long)]
    ignore_unknown: bool,
}

/// Merge all parts into one, without deleted rows, and rebuild its graph.
///
/// Example: cloze search compact --index my-index
///
/// Prints {"rows": N, "removed": N, "joined": N} once that is on disk: the rows, the deleted rows removed, and
/// the parts merged.
#[derive(clap::Args)]
pub struct CompactArgs {
    /// The index's folder.
    #[arg(long, value_name = "DIR")]
    index: PathBuf,
}

#[derive(Clone, Copy, ValueEnum)]
enum MetricName {
    /// The cosine of the angle between them.
    Cosine,
    /// Their dot product.
    Dot,
    /// Their distance; the smaller, the nearer.
    Euclidean,
}

#[derive(Clone, Copy, ValueEnum)]
enum PrecisionName {
    /// 32-bit floats.
    F32,
    /// bfloat16.
    Bf16,
    /// 8-bit integers; the best rows are rescored with 32-bit vectors, which are stored too.
    Int8,
    /// One bit per feature; the best rows are rescored with 32-bit vectors, which are stored too.
    Binary,
}

/// Builds an index.
pub fn index(args: &IndexArgs) -> Result<()> {
    let mut rows = args.rows.open(None, is_image_model(&model::folder(&args.model)?))?;
    let mut embedding = Embedding::load(&args.model, &args.compute)?;
    let graph = (!args.no_graph).then(|| GraphConfig {
        neighbours: args.neighbours,
        breadth: args.build_breadth.max(args.neighbours),
        ..GraphConfig::default()
    });
    let config = IndexConfig {
        metric: match args.metric {
            MetricName::Cosine => Metric::Cosine,
            MetricName::Dot => Metric::Dot,
            MetricName::Euclidean => Metric::Euclidean,
        },
        precision: match args.vectors {
            PrecisionName::F32 => Precision::F32,
            PrecisionName::Bf16 => Precision::Bf16,
            PrecisionName::Int8 => Precision::Int8,
            PrecisionName::Binary => Precision::Binary,
        },
        graph,
        model: Some(embedding.identity().clone()),
        ..IndexConfig::new(embedding.width())
    };
    // Before the index is made: none is left behind by a file that has no rows.
    let first = rows.batch(&embedding)?;
    if first.is_empty() {
        bail!("no rows to index");
    }
    let mut writer = IndexWriter::create(&args.index, config)?;
    let commit = Commit {
        on_id: OnId::Error,
        every: args.commit.commit_every,
        stale: HashSet::new(),
        keeps_rest: false,
    };
    if let Err(error) = put_in(&mut writer, &mut embedding, first, &mut rows, commit) {
        // An index without rows would answer queries. What is wrong is told even if it cannot be removed.
        writer.discard_new().ok();
        return Err(error);
    }
    if args.recall {
        let index = writer.index();
        let recall = index.recall(&index.sample(1000), &SearchConfig::default())?;
        Output::new().line(json!({"recall": recall}))?;
    }
    Ok(())
}

/// Adds rows.
pub fn add(args: &AddArgs) -> Result<()> {
    let mut writer = IndexWriter::open(&args.index)?;
    let mut rows = args.rows.open(writer.index().fields(), is_of_images(writer.index()))?;
    let (on_id, stale) = match args.replace {
        true => (OnId::Accept, args.rows.passages_in(writer.index())?),
        false => (OnId::Error, HashSet::new()),
    };
    let mut embedding =
        Embedding::of_index(writer.index(), args.model.as_deref(), &args.other, &args.compute)?;
    let first = rows.batch(&embedding)?;
    let commit = Commit { on_id, every: args.commit.commit_every, stale, keeps_rest: true };
    put_in(&mut writer, &mut embedding, first, &mut rows, commit)
}

/// How rows are put in.
struct Commit {
    on_id: OnId,
    /// Rows written to disk at a time.
    every: usize,
    /// The ids of rows that are deleted at the end if they are not put in again.
    stale: HashSet<String>,
    /// Whether the rows before one that fails are added, too, where fewer than `every` are left.
    keeps_rest: bool,
}

/// Embeds rows and adds them in batches.
fn put_in(
    writer: &mut IndexWriter,
    embedding: &mut Embedding<'_>,
    first: Vec<PlacedRow>,
    rows: &mut Rows,
    commit: Commit,
) -> Result<()> {
    let Commit { on_id, every: commit_every, mut stale, keeps_rest } = commit;
    let mut output = Output::new();
    let mut progress = Progress::new("rows", false);
    let (mut places, mut new, mut vectors) = (Vec::new(), Vec::new(), Vec::new());
    let (mut added, mut read) = (0, 0);
    // The places of the rows that are not yet on disk, by the ids that they are given; with `OnId::Accept`, of all rows so far.
    let mut pending: HashMap<String, String> = HashMap::new();
    let mut batch = first;
    while !batch.is_empty() {
        let rest = batch.split_off(commit_every.min(batch.len()));
        read += batch.len();
        if rows.skips() {
            batch = without_doubled(batch, &mut pending, writer, on_id, rows)?;
        }
        let mut unread = &batch[..];
        let mut refused = Vec::new();
        while !unread.is_empty() {
            let texts: Vec<Sequence> = unread.iter().map(|placed| Sequence::Text(&placed.row.text)).collect();
            let embedded = embedding.embed(&texts)?;
            let n = embedded.values.len() / embedding.width();
            vectors.extend(embedded.values);
            let Some(error) = embedded.refused else { break };
            rows.refuse(&unread[n].place, &error)?;
            refused.push(batch.len() - unread.len() + n);
            unread = &unread[n + 1..];
        }
        for (index, PlacedRow { place, row }) in batch.into_iter().enumerate() {
            if refused.binary_search(&index).is_err() {
                places.push(place);
                new.push(row);
            } else if let Some(id) = &row.id {
                pending.remove(id);
            }
        }
        progress.show(read, None);
        let next = if rest.is_empty() { rows.batch(embedding) } else { Ok(rest) };
        let failed;
        (batch, failed) = next.map_or_else(|error| (Vec::new(), Some(error)), |batch| (batch, None));
        let is_last = batch.is_empty();
        let ends = is_last && (failed.is_none() || keeps_rest);
        while new.len() >= commit_every || ends && !new.is_empty() {
            let n = commit_every.min(new.len());
            let width = embedding.width();
            writer
                .add(&new[..n], &vectors[..n * width], on_id)
                .map_err(|error| at(error, &places, &new[..n]))?;
            for id in new.drain(..n).filter_map(|row: NewRow| row.id) {
                stale.remove(&id);
                // Where ids that the index has are replaced, it does not tell rows of before from rows of this input.
                if matches!(on_id, OnId::Error) {
                    pending.remove(&id);
                }
            }
            places.drain(..n);
            vectors.drain(..n * width);
            added += n;
            output.line(json!({"added": added}))?;
            output.flush()?;
        }
        if let Some(error) = failed {
            return Err(error);
        }
    }
    progress.finish();
    if !stale.is_empty() {
        let deleted = writer.delete(&stale.into_iter().collect::<Vec<_>>(), OnId::Accept)?;
        output.line(json!({"deleted": deleted}))?;
        output.flush()?;
    }
    if embedding.truncated > 0 {
        say(format_args!(
            "{} of {} texts are longer than {} tokens: only their beginnings are embedded",
            HumanCount(embedding.truncated as u64),
            HumanCount(read as u64),
            embedding.max_len()
        ));
    }
    with_progress(writer, |writer, progress| writer.maintain(progress))
}

/// The rows of a batch without those whose id is that of another row: these are refused, before they are embedded.
fn without_doubled(
    batch: Vec<PlacedRow>,
    pending: &mut HashMap<String, String>,
    writer: &IndexWriter,
    on_id: OnId,
    rows: &mut Rows,
) -> Result<Vec<PlacedRow>> {
    let mut kept = Vec::with_capacity(batch.len());
    for placed in batch {
        if let Some(id) = &placed.row.id {
            let problem = match pending.get(id) {
                Some(other) => Some(format!("the id {id:?} is also that of {other}")),
                None if on_id == OnId::Error && writer.index().contains(id) => {
                    Some(format!("the id {id:?} is in the index already"))
                }
                None => None,
            };
            if let Some(problem) = problem {
                rows.refuse_id(&placed.place, &problem)?;
                continue;
            }
            pending.insert(id.clone(), placed.place.clone());
        }
        kept.push(placed);
    }
    Ok(kept)
}

/// An error of a row, with its location in the input.
fn at(error: SearchError, places: &[String], new: &[NewRow]) -> anyhow::Error {
    let place = match &error {
        SearchError::DuplicateId { place, .. }
        | SearchError::Vector { place, .. }
        | SearchError::Nested { place, .. } => places.get(*place).cloned(),
        _ => None,
    };
    match (place, error) {
        (Some(place), SearchError::DuplicateId { place: at, id, found }) => {
            let is_same = |row: &NewRow| row.id.as_ref() == Some(&id);
            match new.iter().take(at).position(is_same).and_then(|other| places.get(other)) {
                Some(other) => anyhow!(
                    "{place}: the id {id:?} is also that of {other}; ids must be unique: correct one of them, or skip such rows \
                     with --on-bad-row skip"
                ),
                None => anyhow!(
                    "{place}: the id {id:?} {found}; ids must be unique: replace such rows with `search add --replace`, or skip \
                     them with --on-bad-row skip"
                ),
            }
        }
        (Some(place), SearchError::Vector { problem, .. }) => anyhow!("{place}: {problem}"),
        (Some(place), SearchError::Nested { field, most, .. }) => anyhow!(
            "{place}: the field {field:?} nests lists or objects more than {most} deep; expected {most} at most"
        ),
        (_, error) => error.into(),
    }
}

/// Deletes rows.
pub fn delete(args: &DeleteArgs) -> Result<()> {
    let mut writer = IndexWriter::open(&args.index)?;
    let mut ids = args.ids.clone();
    if ids.is_empty() {
        let mut lines = Lines::stdin(lines::MAX_LINE_BYTES, Longer::Refused);
        let mut batch = Batch::default();
        while lines.read(BATCH, &mut batch)? {
            ids.extend(batch.iter().map(|line| line.text.to_owned()));
        }
    }
    let on_id = if args.ignore_unknown { OnId::Accept } else { OnId::Error };
    let deleted = writer.delete(&ids, on_id)?;
    let mut output = Output::new();
    output.line(json!({"deleted": deleted}))?;
    output.finish()
}

/// Merges all parts into one.
pub fn compact(args: &CompactArgs) -> Result<()> {
    let mut writer = IndexWriter::open(&args.index)?;
    let before = writer.index().info();
    with_progress(&mut writer, |writer, progress| writer.compact(progress))?;
    let joined = if before.parts > 1 { before.parts } else { 0 };
    let mut output = Output::new();
    output.line(json!({"rows": before.rows, "removed": before.deleted, "joined": joined}))?;
    output.finish()
}
