//! `cloze embed`.

mod images;
mod sink;
mod tokens;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow, bail};
use clap::ValueEnum;
use clap::builder::RangedU64ValueParser;
use cloze_tokenizer::{Error, Sequence};
use cloze_trainer::TrainerError;
use cloze_trainer::embed::{self, EmbedConfig, Embedder, Prompt, SentencePooling, VectorRanges, VectorType};
use cloze_trainer::images::is_image_model;
use cloze_trainer::token_vectors::Layers;
use indicatif::HumanCount;

use crate::answers::AnswerArgs;
use crate::compute::Compute;
use crate::failure::{WrongUsage, by_option};
use crate::input::{Asked, Blank, Input, InputArgs, Row, TEXT};
use crate::lines::{BATCH, Batch, Line, Lines, Longer};
use crate::model;
use crate::output::say;
use crate::progress::Progress;
use crate::ranks;
use crate::rows::RowFormat;
use sink::Sink;

/// Turn texts into vectors that are close when their meanings are.
///
/// Example: cloze embed --model sentence-transformers/all-MiniLM-L6-v2 < texts.txt > vectors.jsonl
///
/// Texts are lines of standard input or of a file, or rows of a table. A row is printed unchanged, with its
/// vector as an extra key of its object, or as an extra cell holding JSON; a row of Parquet or XML is printed
/// as an object. If the input already has a column or key of that name, rename the answer's with
/// --answer-prefix. Empty lines of CSV and TSV are skipped.
///
/// Pooling, normalization, maximum length and the prompt before each text are read from the folder's
/// sentence-transformers files, if it has them. Each line has a vector, so a blank line or an
/// empty text is an unusable row. With --tokens, each token or word of a line has a vector, and a blank line has an
/// empty list.
///
/// With --images, the vector of an image is what a head of classes sees: after the last normalization, the state of the
/// class token, or the mean of the patches if the model is trained so. The folder's preprocessor_config.json says how
/// images are resized. An image of a path gets a row {"image": "a.png", "embedding": [...]}.
#[derive(clap::Args)]
#[command(after_long_help = "\
More examples:
  cloze embed --model sentence-transformers/all-MiniLM-L6-v2 --format npy < sentences.txt > embeddings.npy
  cloze embed --model sentence-transformers/all-MiniLM-L6-v2 --columns text=title --input articles.csv > embedded.csv
  cloze embed --model bert-base-uncased --tokens --words mean --layers last-four-mean < sentences.txt
  cloze embed --model runs/tiny/model --pooling cls --normalize < sentences.txt
  cloze embed --model google/vit-base-patch16-224-in21k --images photos --format npy --output photos.npy
  cloze embed --model nomic-ai/nomic-embed-text-v1.5 --prompt-text 'search_query: ' < questions.txt")]
pub struct Args {
    #[arg(long, value_name = "MODEL", help = model::HELP)]
    model: String,
    /// Embed images with a ViT, a DeiT or an MAE: those of these files, folders and patterns, or of rows of the input, an
    /// {"image": "..."} or "..." each, a path or data:image/png;base64,...
    #[arg(
        long,
        value_name = "PATH",
        num_args = 0..,
        conflicts_with_all = ["pooling", "prompt", "prompt_text", "tokens", "language", "batch_tokens"]
    )]
    images: Option<Vec<String>>,
    /// How a text's states become one vector (default: from the folder, else mean).
    #[arg(long, value_enum)]
    pooling: Option<Pooling>,
    /// Scale each vector to length 1; `=false` disables it (default: from the folder, else false).
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    normalize: Option<bool>,
    /// Put the folder's prompt of this name before each line (default: from the folder, else none).
    #[arg(long, value_name = "NAME")]
    prompt: Option<String>,
    /// Put this text before each line.
    #[arg(long, value_name = "TEXT", conflicts_with = "prompt")]
    prompt_text: Option<String>,
    /// Give each token a vector and its position in the line, in characters, instead of one vector per line. A
    /// line longer than the model's maximum is read in overlapping windows.
    #[arg(long, conflicts_with_all = ["pooling", "normalize", "prompt", "prompt_text"])]
    tokens: bool,
    /// The layers that a token's vector is made of: last, last-four-mean, last-four-concat, all, or a
    /// concatenation of numbered layers such as 0,6,-1, where 0 is the embeddings and -1 the last (default:
    /// last).
    #[arg(long, value_name = "LAYERS", requires = "tokens", allow_hyphen_values = true)]
    layers: Option<Layers>,
    /// Give each word a vector instead of each token, made from its tokens' vectors (default: one per token).
    #[arg(long, value_enum, requires = "tokens")]
    words: Option<Words>,
    /// Window size in tokens with --tokens, special tokens included (default: from the folder).
    #[arg(long, value_name = "N", requires = "tokens", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    max_len: Option<usize>,
    /// Tokens shared by consecutive windows (default: a quarter of a window).
    #[arg(long, value_name = "N", requires = "tokens")]
    overlap: Option<usize>,
    /// The language of the lines, for models with language embeddings (XLM): a name in the folder's `lang2id`,
    /// or a number (default: the folder's `lang_id`).
    #[arg(long, value_name = "NAME")]
    language: Option<String>,
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    answers: AnswerArgs,
    /// What to print (default: npy for an --output that ends in .npy, unless --output-format is given; else jsonl).
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// The type of the vectors' numbers.
    #[arg(long, value_enum, value_name = "TYPE", default_value_t = Vectors::F32, conflicts_with = "tokens")]
    vectors: Vectors,
    /// Texts or images, one per line, whose vectors give the range of each feature for --vectors int8 and uint8: a
    /// thousand like those to be embedded. Vectors that are compared need the same ones.
    #[arg(long, value_name = "FILE", conflicts_with = "tokens")]
    calibrate: Option<PathBuf>,
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

#[derive(Clone, Copy, ValueEnum)]
enum Pooling {
    /// The mean of all tokens' states.
    Mean,
    /// The first token's state.
    Cls,
    /// Each feature's greatest value over all tokens.
    Max,
    /// The mean over all tokens of the concatenated states of the last four layers: four times as many
    /// features.
    Last4,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Vectors {
    /// 32-bit floats.
    F32,
    /// 8 bits with a sign for each feature, from −128 at the least value to 127 at the greatest.
    Int8,
    /// The same from 0 to 255.
    Uint8,
    /// A bit for each feature, 1 above 0: bytes of eight bits, with 128 taken off.
    Binary,
    /// The same with nothing taken off.
    Ubinary,
}

impl Vectors {
    /// The type, if vectors do not stay as they are.
    fn quantized(self) -> Option<VectorType> {
        match self {
            Self::F32 => None,
            Self::Int8 => Some(VectorType::Int8),
            Self::Uint8 => Some(VectorType::Uint8),
            Self::Binary => Some(VectorType::Binary),
            Self::Ubinary => Some(VectorType::Ubinary),
        }
    }
}

/// How a word's vector is made from its tokens' vectors.
#[derive(Clone, Copy, ValueEnum)]
enum Words {
    /// Their mean.
    Mean,
    /// The first token's.
    First,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Format {
    /// {"embedding": [...]} for each text, as soon as it is computed; with --tokens {"tokens": [{"text": "...",
    /// "start": 0, "end": 3, "vector": [...]}, ...]}, or "words". In CSV and TSV it is a cell.
    Jsonl,
    /// One array in NumPy's format, [texts, features], once all texts are read; with --tokens one row per token
    /// or word, in order. Its numbers are 32-bit floats, or those of --vectors.
    Npy,
}

impl Args {
    /// Whether texts are embedded, each with one vector.
    pub fn is_of_lines(&self) -> bool {
        self.images.is_none() && !self.tokens
    }

    /// What is printed.
    fn format(&self) -> Format {
        let is_array = self.answers.ends_with("npy") && !self.answers.has_format();
        self.format.unwrap_or(if is_array { Format::Npy } else { Format::Jsonl })
    }
}

pub fn run(args: &Args) -> Result<()> {
    let reads_images = is_image_model(&model::folder(&args.model)?);
    if args.format() == Format::Npy && args.answers.has_format() {
        let error = anyhow!("--output-format is for rows; leave it out with --format npy");
        return Err(WrongUsage::new(error).into());
    }
    args.answers.check_apart(args.calibrate.as_deref())?;
    let wrong = |problem: &str| Err(WrongUsage::new(anyhow!("{}: {problem}", args.model)).into());
    match (&args.images, reads_images) {
        (Some(paths), true) => images::run(args, paths),
        (Some(_), false) => wrong("the model reads texts; leave out --images"),
        (None, true) => wrong("the model reads images; add --images"),
        (None, false) if args.tokens => tokens::run(args),
        (None, false) => run_on_lines(args),
    }
}

fn run_on_lines(args: &Args) -> Result<()> {
    let config = EmbedConfig {
        pooling: args.pooling.map(|pooling| match pooling {
            Pooling::Mean => embed::Pooling::Mean.into(),
            Pooling::Cls => embed::Pooling::Cls.into(),
            Pooling::Max => embed::Pooling::Max.into(),
            Pooling::Last4 => SentencePooling::last4(),
        }),
        normalize: args.normalize,
        prompt: match (&args.prompt, &args.prompt_text) {
            (Some(name), _) => Some(Prompt::Name(name.clone())),
            (None, text) => text.clone().map(Prompt::Text),
        },
        language: args.language.clone(),
        batch_tokens: args.batch_tokens,
        int8: args.compute.int8,
    };
    let quantized = args.vectors.quantized();
    check_calibration(quantized, args.calibrate.as_deref())?;
    let device = args.compute.open()?;
    args.input.check()?;
    let embedder = Embedder::load(&model::folder(&args.model)?, config, &device).map_err(by_option)?;
    let part = |texts: &[(String, bool)]| {
        let texts: Vec<Sequence<'_>> = texts.iter().map(|(text, goes_on)| sequence(text, *goes_on)).collect();
        let embeddings = args.compute.run(|| embedder.embed_sequences(&texts)).ok()?;
        let mut words = vec![embeddings.truncated() as u32];
        words.extend(embeddings.values.iter().map(|value| value.to_bits()));
        Some(words)
    };
    if ranks::helps(part)? {
        return Ok(());
    }
    let ranges = args.calibrate.as_deref().map(|path| ranges(args, path, &embedder)).transpose()?;
    let mut input = args.input.open(asked(Longer::Cut, Blank::Refused))?;
    let mut sink = Sink::new(args, &input, embedder.width(), ranges)?;
    let mut progress = Progress::new("lines", args.answers.is_stdout() && io::stdout().is_terminal());
    let (mut count, mut truncated) = (0, 0);
    loop {
        let mut rows = input.read(BATCH)?;
        if rows.is_empty() {
            break;
        }
        let owned = |line: Line<'_>| (line.text.to_owned(), line.goes_on);
        if let Some(parts) = ranks::shared(|| rows.iter().map(|row| owned(row.line())).collect(), part)? {
            let mut values = Vec::with_capacity(rows.len() * embedder.width());
            for part in parts {
                let (n_truncated, bits) = part.split_first().unwrap_or((&0, &[]));
                truncated += *n_truncated as usize;
                values.extend(bits.iter().map(|bits| f32::from_bits(*bits)));
            }
            sink.write(&rows, &values)?;
        } else {
            let embed = |texts: &[Sequence]| args.compute.run(|| embedder.embed_sequences(texts));
            let (embeddings, failed) = embedded(&mut input, &mut rows, embed)?;
            sink.write(&rows, &embeddings.values)?;
            if let Some(error) = failed {
                return Err(error);
            }
            truncated += embeddings.truncated();
        }
        count += rows.len();
        progress.show(count, None);
    }
    ranks::done()?;
    progress.finish();
    if truncated > 0 {
        say(format_args!(
            "{} of {} lines are longer than {} tokens: only their beginnings are embedded",
            HumanCount(truncated as u64),
            HumanCount(count as u64),
            embedder.max_len()
        ));
    }
    sink.finish()
}

/// Checks that there are texts to calibrate with where they are needed, and only there.
fn check_calibration(quantized: Option<VectorType>, file: Option<&Path>) -> Result<()> {
    let problem = match (quantized.is_some_and(VectorType::needs_ranges), file.is_some()) {
        (true, false) => {
            "--vectors int8 and uint8 need the range of each feature: give --calibrate FILE, a thousand texts or \
             images like those to be embedded, one per line"
        }
        (false, true) => "--calibrate is for --vectors int8 and uint8; leave it out, or set one of them",
        _ => return Ok(()),
    };
    Err(WrongUsage::new(anyhow!("{problem}")).into())
}

/// The ranges of the vectors of a file's lines.
fn ranges(args: &Args, path: &Path, embedder: &Embedder) -> Result<VectorRanges> {
    let mut lines = Lines::of(Some(path), args.input.rows.bad.max_line_bytes())?.with_longer(Longer::Cut);
    let (mut ranges, mut batch, mut n_lines) = (VectorRanges::new(embedder.width()), Batch::default(), 0);
    while lines.read(BATCH, &mut batch)? {
        let filled = batch.iter().filter(|line| !line.text.trim().is_empty());
        let texts: Vec<Sequence> = filled.map(Sequence::from).collect();
        if texts.is_empty() {
            continue;
        }
        n_lines += texts.len();
        let embeddings = args.compute.run(|| embedder.embed_sequences(&texts))?;
        embeddings.values.chunks_exact(embedder.width()).for_each(|vector| ranges.widen(vector));
    }
    few_to_calibrate(path, n_lines, "texts")?;
    Ok(ranges)
}

/// Says that a file has few texts or images to calibrate with.
///
/// # Errors
/// It has none.
fn few_to_calibrate(path: &Path, n_lines: usize, what: &str) -> Result<()> {
    /// Fewer leave ranges that others will often exceed.
    const FEW: usize = 100;
    match n_lines {
        0 => bail!("{}: it has no line; expected {what} to calibrate with", path.display()),
        n if n < FEW => {
            say(format_args!(
                "{}: {n} {what} are few to calibrate with; a thousand are better",
                path.display()
            ));
        }
        _ => {}
    }
    Ok(())
}

/// The fields to read from the input.
fn asked(longer: Longer, blank: Blank) -> Asked {
    Asked {
        fields: &TEXT,
        expected: r#"{"text": "…"} or "…""#,
        replaced: &[],
        default: RowFormat::Lines,
        longer,
        blank,
    }
}

/// A text, or the beginning of one that goes on.
fn sequence(text: &str, goes_on: bool) -> Sequence<'_> {
    Line { text, goes_on }.into()
}

/// The texts of rows.
fn sequences(rows: &[Row]) -> Vec<Sequence<'_>> {
    rows.iter().map(|row| Sequence::from(row.line())).collect()
}

/// The result of `embed` for the texts of rows, and the error of the first row that fails; then the result
/// covers the rows before it. If unusable rows are skipped, they are removed from `rows` instead.
fn embedded<T>(
    input: &mut Input,
    rows: &mut Vec<Row>,
    mut embed: impl FnMut(&[Sequence<'_>]) -> cloze_trainer::Result<T>,
) -> Result<(T, Option<anyhow::Error>)> {
    let mut failed = None;
    loop {
        match embed(&sequences(rows)) {
            Ok(made) => return Ok((made, failed)),
            Err(TrainerError::Tokenizer(Error::Batch { index, source, .. })) => {
                let error = input.failure(&rows[index], *source);
                match input.refuse(&rows[index].place, error) {
                    Ok(()) => drop(rows.remove(index)),
                    Err(error) => {
                        failed = Some(error);
                        rows.truncate(index);
                    }
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
}
