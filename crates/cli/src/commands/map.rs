//! `cloze map`.

use std::path::{Path, PathBuf};

use anyhow::{Error, Result, anyhow, bail};
use clap::ValueEnum;
use clap::builder::RangedU64ValueParser;
use cloze_data::images::{DecodeLimits, ImageSource};
use cloze_data::labelled::Column;
use cloze_data::{Random, SkipReport};
use cloze_evaluation::EvaluationError;
use cloze_evaluation::embeddings::Vectors;
use cloze_evaluation::report::MapReport;
use cloze_evaluation::table::percent;
use cloze_evaluation::vectors::{TsneConfig, directions, principal_components, tsne};
use cloze_search::Index;
use cloze_trainer::embed::EmbedConfig;
use cloze_trainer::images::{ImageEmbedConfig, ImageEmbedder, ImageEmbeddings, is_image_model};
use indicatif::HumanCount;
use serde_json::Value;

use super::search::is_of_images;
use crate::compute::Compute;
use crate::failure::WrongUsage;
use crate::model;
use crate::npy;
use crate::output::{Output, say};
use crate::progress::Progress;
use crate::rows::{Placed, RowColumns, RowFiles, text_of};
use crate::text_vectors::{Model, PromptArgs};

/// The class shown for texts without a label if others have one.
const UNLABELLED: &str = "(none)";

/// Draw a map of texts or images: a page with a point per text, close to those of similar texts.
///
/// Example: cloze map --model sentence-transformers/all-MiniLM-L6-v2 --output map.html texts.txt
///
/// The fields of a row are its text and optionally its label, which colours the point; without labels all
/// points have one colour. With an index, --columns label=NAME names one of its fields.
///
/// The page is self-contained and loads nothing. Hovering over a point shows its text, a search highlights
/// the points whose texts match, and a legend toggles classes. Texts come from lines or tables and are
/// embedded by a model; or texts and vectors come from an index; or vectors come from a NumPy file with one
/// per text. The same input and seed give the same page, byte for byte.
///
/// With a model of images, the fields of a row are its image, a path or data:image/png;base64,..., and its label; folders
/// and images are rows themselves. Hovering shows a thumbnail, for up to 5,000 images.
#[derive(clap::Args)]
#[command(after_long_help = "\
More examples:
  cloze map --model MODEL --columns text=title,label=topic --method pca --output map.html articles.jsonl
  cloze map --index my-index --columns label=year --output map.html
  cloze map --vectors embeddings.npy --output map.html sentences.txt
  cloze map --model google/vit-base-patch16-224-in21k --output map.html photos")]
pub struct Args {
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    files: RowFiles,
    /// The page's file (default: standard output).
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The projection method.
    #[arg(long, value_enum, default_value_t = Method::Tsne)]
    method: Method,
    /// The metric that compares vectors.
    #[arg(long, value_enum, default_value_t = MetricName::Cosine)]
    metric: MetricName,
    /// The perplexity of t-SNE, an effective number of neighbours: from 1 to a third of the other texts
    /// (default: 30, or the maximum for few texts).
    #[arg(long, value_name = "N", value_parser = number)]
    perplexity: Option<f64>,
    /// Steps of t-SNE (default: 1000).
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..=1_000_000))]
    steps: Option<usize>,
    /// The random seed of t-SNE (default: 42).
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    #[command(flatten)]
    prompt: PromptArgs,
    /// Tokens processed at a time.
    #[arg(
        long,
        value_name = "N",
        default_value_t = EmbedConfig::default().batch_tokens,
        value_parser = RangedU64ValueParser::<usize>::new().range(1..)
    )]
    batch_tokens: usize,
    #[command(flatten)]
    compute: Compute,
}

/// Where vectors come from.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct Source {
    #[arg(long, value_name = "MODEL", help = model::HELP)]
    model: Option<String>,
    /// An index of `cloze search`, whose texts and vectors are drawn.
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with_all = [
            "files", "input_format", "delimiter", "quoting", "no_header", "on_bad_row", "max_skipped", "prompt", "prompt_text",
            "batch_tokens", "precision", "int8", "device"
        ]
    )]
    index: Option<PathBuf>,
    /// A NumPy file with one vector per text: `[texts, features]`, 32-bit or 64-bit floats.
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["prompt", "prompt_text", "batch_tokens", "precision", "int8", "device"]
    )]
    vectors: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Method {
    /// Principal components, the two directions of largest variance: distances between groups are meaningful.
    Pca,
    /// t-SNE preserves neighbourhoods: groups are visible, distances between them mean little.
    Tsne,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum MetricName {
    /// Cosine of the angle between them, ignoring lengths.
    Cosine,
    /// Their distance.
    Euclidean,
}

/// The fields of a row.
const FIELDS: [&str; 2] = ["text", "label"];

/// The fields of a row with a model of images.
const IMAGE_FIELDS: [&str; 2] = ["image", "label"];

/// The longest side of a thumbnail, in pixels, and how many a page holds: about 8 kB each.
const THUMBNAIL: usize = 96;
const MOST_THUMBNAILS: usize = 5_000;

/// Images read at a time.
const BATCH: usize = 64;

fn number(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|value: &f64| value.is_finite()).ok_or_else(|| "expected a number".to_owned())
}

/// The default seed.
const SEED: u64 = 42;

/// Facts shown on the page, by name.
type Facts = Vec<(&'static str, String)>;

/// Texts with their vectors and optional labels.
#[derive(Default)]
struct Drawn {
    texts: Vec<String>,
    labels: Vec<String>,
    values: Vec<f32>,
    width: usize,
    /// Where rows of images are from.
    places: Vec<String>,
    /// The images' thumbnails.
    pictures: Vec<Vec<u8>>,
}

impl Drawn {
    fn is_of_images(&self) -> bool {
        !self.pictures.is_empty()
    }
}

pub fn run(args: &Args) -> Result<()> {
    let is_of_tsne = args.perplexity.is_some() || args.steps.is_some() || args.seed.is_some();
    if args.method == Method::Pca && is_of_tsne {
        let error = anyhow!("--perplexity, --steps and --seed are for --method tsne");
        return Err(WrongUsage::new(error).into());
    }
    // A folder that is not there is told before the work.
    let read = args.files.paths().chain(args.source.vectors.as_deref());
    let mut output = Output::apart_from(args.output.as_deref(), read)?;
    let drawn = match &args.source {
        Source { index: Some(folder), .. } => of_index(args, folder)?,
        Source { vectors: Some(file), .. } => of_vectors(args, file)?,
        Source { model, .. } => of_model(args, model.as_deref().unwrap_or_default())?,
    };
    // A vector that is not finite is told before any distance is of it.
    let vectors = Vectors::new(&drawn.values, drawn.width)?;
    let directions = match args.metric {
        MetricName::Cosine => Some(directions(vectors)),
        MetricName::Euclidean => None,
    };
    let vectors = Vectors::new(directions.as_deref().unwrap_or(&drawn.values), drawn.width)?;
    let (positions, mut facts) = match args.method {
        Method::Pca => pca(vectors),
        Method::Tsne => by_tsne(vectors, args)?,
    };
    facts.insert(0, args.source.fact());
    let title = if drawn.is_of_images() { "Map of images" } else { "Map of texts" };
    let Drawn { texts, labels, pictures, .. } = &drawn;
    let page = MapReport { title, facts: &facts, texts, labels, positions: &positions, pictures }.to_html();
    output.bytes(page.as_bytes())?;
    output.finish()
}

impl Source {
    fn fact(&self) -> (&'static str, String) {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        match self {
            Self { model: Some(model), .. } => ("model", model.clone()),
            Self { index: Some(_), .. } => ("index", path(&self.index).unwrap_or_default()),
            _ => ("vectors", path(&self.vectors).unwrap_or_default()),
        }
    }
}

fn pca(vectors: Vectors<'_>) -> (Vec<f64>, Facts) {
    let found = principal_components(vectors, 2);
    let share = |k: usize| percent(found.shares[k]);
    let shares = format!("{} across and {} up", share(0), share(1));
    (found.positions, vec![("method", "principal components".into()), ("of the variance", shares)])
}

fn by_tsne(vectors: Vectors<'_>, args: &Args) -> Result<(Vec<f64>, Facts)> {
    let mut config = TsneConfig::of(vectors.len())?;
    config.perplexity = args.perplexity.unwrap_or(config.perplexity);
    config.steps = args.steps.unwrap_or(config.steps);
    let seed = args.seed.unwrap_or(SEED);
    let mut random = Random::derive(seed, &[0]);
    let mut progress = Progress::new("steps", false);
    let steps = config.steps;
    let placed = tsne(vectors, &config, &mut || random.unit(), &mut |done| {
        progress.show(done, Some(done as f64 / steps as f64));
    });
    progress.finish();
    let positions = placed.map_err(|error| match error {
        EvaluationError::Perplexity { .. } => WrongUsage::new(anyhow!(error).context("--perplexity")).into(),
        error => anyhow!(error),
    })?;
    let facts = vec![
        ("method", "t-SNE".into()),
        (
            "perplexity",
            format!("{:.4}", config.perplexity).trim_end_matches('0').trim_end_matches('.').into(),
        ),
        ("steps", steps.to_string()),
        ("seed", seed.to_string()),
    ];
    Ok((positions, facts))
}

/// The texts of the files or of standard input, embedded by a model.
fn of_model(args: &Args, name: &str) -> Result<Drawn> {
    let folder = model::folder(name)?;
    if is_image_model(&folder) {
        return of_images(args, &folder);
    }
    let drawn = texts(args)?;
    let texts: Vec<&str> = drawn.texts.iter().map(String::as_str).collect();
    let embedded =
        Model::open(name, args.batch_tokens, &args.compute)?.embed(&texts, args.prompt.prompt())?;
    let (values, width) = embedded.into_values();
    Ok(Drawn { values, width, ..drawn })
}

/// The images of the files or of standard input, embedded by a model.
fn of_images(args: &Args, folder: &Path) -> Result<Drawn> {
    if args.prompt.prompt().is_some() {
        let error = anyhow!("--prompt and --prompt-text: a model of images reads no text; leave them out");
        return Err(WrongUsage::new(error).into());
    }
    let read = read(args, true)?;
    let config = ImageEmbedConfig { int8: args.compute.int8, ..ImageEmbedConfig::default() };
    let embedder = ImageEmbedder::open(folder, config, &args.compute.open()?)?;
    let has_thumbnails = read.texts.len() <= MOST_THUMBNAILS;
    if !has_thumbnails {
        say(format_args!(
            "no thumbnails: a page holds those of {} images",
            HumanCount(MOST_THUMBNAILS as u64)
        ));
    }
    let mut drawn = Drawn { width: embedder.width(), ..Drawn::default() };
    let (mut skipped, mut progress) = (SkipReport::default(), Progress::new("images", false));
    let n = read.texts.len();
    let mut next = 0;
    while next < n {
        let end = n.min(next + BATCH);
        let (mut sources, mut unread) = (Vec::new(), None);
        for text in &read.texts[next..end] {
            match ImageSource::of_text(text.trim(), Path::new(""), "the image") {
                Ok(source) => sources.push(source),
                Err(problem) => {
                    unread = Some(anyhow!("{problem}"));
                    break;
                }
            }
        }
        let ImageEmbeddings { values, refused } = args.compute.run(|| embedder.embed(sources.clone()))?;
        let good = values.len() / drawn.width;
        for (source, row) in sources[..good].iter().zip(next..) {
            let (text, place) = (&read.texts[row], &read.places[row]);
            // Bytes say nothing to a reader.
            drawn.texts.push(if text.starts_with("data:") { place.clone() } else { text.clone() });
            drawn.labels.extend(read.labels.get(row).cloned());
            if has_thumbnails {
                drawn.pictures.push(thumbnail(source));
            }
        }
        drawn.values.extend(values);
        next += good;
        if let Some(error) = refused.map(Error::new).or(unread) {
            match args.files.rows.bad.skips() {
                true => {
                    let part = || (read.places[next].clone(), format!("{error:#}"));
                    skipped.count_at("unusable image", part);
                }
                false => return Err(error.context(read.places[next].clone())),
            }
            next += 1;
        }
        progress.show(next, Some(next as f64 / n as f64));
    }
    progress.finish();
    args.files.rows.bad.check_skipped("all files", &skipped, drawn.texts.len() as u64)?;
    several(drawn)
}

/// The picture of a point; empty if it does not decode.
fn thumbnail(source: &ImageSource) -> Vec<u8> {
    let image = source.decode(&DecodeLimits::default());
    image.map_or_else(|_| Vec::new(), |image| image.thumbnail(THUMBNAIL).to_png())
}

/// The same texts, with vectors from a file.
fn of_vectors(args: &Args, file: &Path) -> Result<Drawn> {
    let drawn = texts(args)?;
    let (values, width) = npy::read(file)?;
    let (vectors, texts) = (values.len() / width, drawn.texts.len());
    if vectors != texts {
        bail!("{} has {vectors} vectors for {texts} texts; expected one per text", file.display());
    }
    Ok(Drawn { values, width, ..drawn })
}

/// The texts and vectors of an index.
fn of_index(args: &Args, folder: &Path) -> Result<Drawn> {
    let rows = &args.files.rows;
    rows.check_fields(&FIELDS)?;
    if rows.column("text").is_some() {
        let error = anyhow!("--columns text=… is for files; an index already has its texts");
        return Err(WrongUsage::new(error).into());
    }
    let field = match rows.column("label") {
        Some(Column::Name(name)) => Some(name.as_str()),
        Some(Column::Number(number)) => {
            let error = anyhow!("--columns label={number}: fields of an index have names");
            return Err(WrongUsage::new(error).into());
        }
        None => None,
    };
    let index = Index::open(folder).map_err(|error| match error.is_wrong_usage() {
        true => WrongUsage::new(error).into(),
        false => anyhow!(error),
    })?;
    let mut drawn = Drawn { width: index.config().width, ..Drawn::default() };
    let mut labels = Vec::new();
    for row in index.rows() {
        let (mut row, vector) = row?;
        let cell = row.fields.shift_remove(field.unwrap_or("label"));
        let label = label(cell.unwrap_or(Value::Null));
        labels.push(label.map_err(|problem| anyhow!("row {:?}: {problem}", row.id))?);
        drawn.texts.push(row.text);
        drawn.values.extend(vector);
    }
    if let Some(field) = field
        && !labels.is_empty()
        && labels.iter().all(Option::is_none)
    {
        bail!("{}: no row has the field `{field}`", folder.display());
    }
    drawn.labels = all_or_none(labels);
    if is_of_images(&index) && drawn.texts.len() <= MOST_THUMBNAILS {
        let source = |text: &String| ImageSource::of_text(text.trim(), Path::new(""), "the image");
        drawn.pictures = drawn
            .texts
            .iter()
            .map(|text| source(text).map_or_else(|_| Vec::new(), |it| thumbnail(&it)))
            .collect();
        for text in drawn.texts.iter_mut().filter(|text| text.starts_with("data:")) {
            *text = "(an image in the index)".into();
        }
    }
    several(drawn)
}

/// The texts of the files or of standard input, with their labels.
fn texts(args: &Args) -> Result<Drawn> {
    read(args, false)
}

/// The texts, or the images, of the files or of standard input, with their labels.
fn read(args: &Args, images: bool) -> Result<Drawn> {
    let rows = &args.files.rows;
    let fields = if images { IMAGE_FIELDS } else { FIELDS };
    rows.check_fields(&fields)?;
    let columns = RowColumns {
        images,
        passages: None,
        columns: vec![rows.record_column(fields[0], true), rows.record_column("label", false)],
        named_by: (!rows.columns.is_empty()).then_some("--columns"),
    };
    let mut rows = args.files.open(&columns)?;
    let (mut drawn, mut labels) = (Drawn::default(), Vec::new());
    loop {
        let batch = rows.batch()?;
        if batch.is_empty() {
            break;
        }
        for Placed { place, cells } in batch {
            let mut cells = cells.into_iter();
            let text = match text_of(cells.next(), images) {
                Ok(text) => text,
                Err((reason, problem)) => {
                    rows.refuse(&place, reason, problem)?;
                    continue;
                }
            };
            match label(cells.next().unwrap_or(Value::Null)) {
                Ok(label) => labels.push(label),
                Err(problem) => {
                    rows.refuse(&place, "bad label", problem)?;
                    continue;
                }
            }
            drawn.texts.push(text);
            if images {
                drawn.places.push(place);
            }
        }
    }
    drawn.labels = all_or_none(labels);
    several(drawn)
}

/// Checks that there are enough texts for a map.
fn several(drawn: Drawn) -> Result<Drawn> {
    match drawn.texts.len() {
        0 => bail!("no texts to draw"),
        1 => bail!("only one text; expected two or more"),
        _ => Ok(drawn),
    }
}

/// The label in a cell; none if it is empty.
fn label(cell: Value) -> Result<Option<String>, &'static str> {
    match cell {
        Value::Null => Ok(None),
        Value::String(label) => Ok(Some(label).filter(|label| !label.trim().is_empty())),
        Value::Number(label) => Ok(Some(label.to_string())),
        Value::Bool(label) => Ok(Some(label.to_string())),
        Value::Array(_) | Value::Object(_) => {
            Err("the label is neither a string nor a number; name its column with --columns label=COLUMN")
        }
    }
}

/// A label for each text if any text has one.
fn all_or_none(labels: Vec<Option<String>>) -> Vec<String> {
    match labels.iter().any(Option::is_some) {
        true => labels.into_iter().map(|label| label.unwrap_or_else(|| UNLABELLED.into())).collect(),
        false => Vec::new(),
    }
}
