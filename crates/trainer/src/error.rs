//! The crate's errors: each is one line with the location, what was found, and what was expected.

use crate::engine::Kept;
use cloze_data::DataError;
use cloze_evaluation::EvaluationError;
use cloze_files::FileError;
use cloze_model::ModelError;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The result of this crate's fallible functions.
pub type Result<T> = std::result::Result<T, TrainerError>;

/// Errors in user input: configs, run folders, checkpoints, corpora.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainerError {
    /// A file or folder could not be read, written or created.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// The attempted action, as a verb: `"read"`, `"write"`.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },

    /// A config that is not TOML, or a `--set` that is not `KEY=VALUE`.
    #[error("{place}: {message}")]
    ConfigSyntax {
        /// Its location.
        place: Place,
        /// What is wrong and what was expected.
        message: String,
    },

    /// A malformed group of parameters.
    #[error("optimizer.groups[{group}].parameters = {pattern:?}: {reason}")]
    ParamGroup {
        /// The group's index.
        group: usize,
        /// Its pattern.
        pattern: String,
        /// What is wrong with it.
        reason: String,
    },

    /// An unknown config key.
    #[error("{place}: unknown key `{key}`; {hint}")]
    UnknownKey {
        /// Its location.
        place: Place,
        /// The dotted key.
        key: String,
        /// The nearest valid key, or all of them.
        hint: String,
    },

    /// A missing config key without a default.
    #[error("{place}: missing key `{key}`, which has no default")]
    MissingKey {
        /// The table that should have it.
        place: Place,
        /// The dotted key.
        key: String,
    },

    /// Several missing config keys without a default.
    #[error("{place}: missing keys, which have no default: {keys}")]
    MissingKeys {
        /// The config file.
        place: Place,
        /// The keys, by section.
        keys: String,
    },

    /// Several mistakes of a config: unknown or missing keys, and wrong values.
    #[error("{}", on_one_line(_0))]
    Mistakes(Vec<TrainerError>),

    /// A config value of the wrong type, out of range, or inconsistent with another one.
    #[error("{place}: `{key}` is {found}; expected {expected}")]
    BadValue {
        /// Its location.
        place: Place,
        /// The dotted key.
        key: String,
        /// The value found, as TOML.
        found: String,
        /// What was expected.
        expected: String,
    },

    /// A config value that does not fit the data.
    #[error("`{key}` is {found}; expected {expected}")]
    Setting {
        /// The dotted key.
        key: String,
        /// The value found.
        found: String,
        /// What was expected.
        expected: String,
    },

    /// A run that needs more memory than the machine has.
    #[error("the run needs at least {needs} of memory, but this machine has {has}: lower {keys}")]
    Memory {
        /// The minimum memory that it needs.
        needs: String,
        /// The machine's memory.
        has: String,
        /// The config keys that determine it, with their values.
        keys: String,
    },

    /// A run that writes more than fits on the disk.
    #[error(
        "the run writes at least {needs} below {}, and {free} are free: free some, choose another folder with --out, or lower \
         `checkpoint.keep_last`",
        folder.display()
    )]
    Disk {
        /// The run's folder.
        folder: PathBuf,
        /// What its checkpoints and its model take at least.
        needs: String,
        /// The free space.
        free: String,
    },

    /// A checkpoint made with other examples.
    #[error("{} was made with other training examples than those read now; restore them, or start a new run with --out", checkpoint.display())]
    ExamplesChanged {
        /// The checkpoint.
        checkpoint: PathBuf,
    },

    /// Models of an ensemble that do not write the same pieces.
    #[error(
        "{}: the piece {id} is {}, but in {} it is {}; the models of an ensemble write one vocabulary: train them with the same \
         tokenizer",
        folders[1].display(),
        piece_name(&pieces[1]),
        folders[0].display(),
        piece_name(&pieces[0])
    )]
    DifferentPieces {
        /// The folders of both models, that of the first one first.
        folders: Box<[PathBuf; 2]>,
        /// The first id whose pieces differ.
        id: u32,
        /// Their pieces; none where a vocabulary has ended.
        pieces: Box<[Option<String>; 2]>,
    },

    /// Models of an ensemble that end texts differently.
    #[error(
        "{}: texts end with {}, but in {} they end with {}; set `eos_token_id` of its generation_config.json to the same",
        folders[1].display(),
        ends[1],
        folders[0].display(),
        ends[0]
    )]
    DifferentEnds {
        /// The folders of both models, that of the first one first.
        folders: Box<[PathBuf; 2]>,
        /// The pieces that end their texts.
        ends: Box<[String; 2]>,
    },

    /// A line of a list of candidates that is not a piece.
    #[error(
        "{}, line {line}: {piece:?} is not a piece of the model's vocabulary; expected one piece per line, as `cloze tokenizer \
         inspect` shows them",
        path.display()
    )]
    Candidate {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// Its beginning.
        piece: String,
    },

    /// A list of candidates without any.
    #[error("{}: no pieces; expected one per line", path.display())]
    NoCandidates {
        /// The file.
        path: PathBuf,
    },

    /// An empty text, with a tokenizer that has no begin-of-text piece.
    #[error("the text is empty, and the tokenizer has no begin-of-text piece; expected a text to continue")]
    EmptyPrompt,

    /// A model folder without a valid task.
    #[error("{}: {reason}", path.display())]
    BadTaskFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },

    /// A weights file of another model.
    #[error("{}: {reason}; expected the parameters of this model", path.display())]
    BadWeights {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },

    /// A model without the trained head that its task needs.
    #[error("{}: the model has no trained head (`{missing}` is missing): fine-tune it first", folder.display())]
    NoTaskHead {
        /// The model's folder.
        folder: PathBuf,
        /// The first missing tensor.
        missing: String,
    },

    /// A `preprocessor_config.json` that contradicts the model beside it.
    #[error("{}: {reason}; correct it, or remove it for the usual preprocessing", path.display())]
    UnfitPreprocessing {
        /// The file.
        path: PathBuf,
        /// What contradicts what.
        reason: String,
    },

    /// An input that a model's task does not accept.
    #[error("{problem}")]
    BadInput {
        /// What is wrong with it, and what was expected.
        problem: String,
    },

    /// A model with finite weights but non-finite output.
    #[error(
        "the model's output is not finite: its weights are damaged or too large, or its config.json belongs to \
         other weights"
    )]
    OutputNotFinite,
    /// The best model of a run, which is its result, is missing or changed.
    #[error(
        "the best model, of step {step}, was changed in {} or removed from there: --resume recreates it from the \
         newest checkpoint that leads to it",
        path.display()
    )]
    #[non_exhaustive]
    BestModelLost {
        /// Its expected path.
        path: PathBuf,
        /// The model's step.
        step: u64,
    },

    /// A folder of GLUE with missing or unusable files.
    #[error(
        "{}: {} · lay the files out as GLUE distributes them, or choose the tasks that are there with --tasks",
        folder.display(),
        problems.join(" · ")
    )]
    GlueFolder {
        /// The folder.
        folder: PathBuf,
        /// Every missing file or column, with its place below the folder.
        problems: Vec<String>,
    },

    /// No examples to train on or to evaluate with.
    #[error("the {split} data has no examples")]
    NoExamples {
        /// The split.
        split: &'static str,
    },

    /// A line of `metrics.jsonl`, other than an unfinished last one, that is not a record.
    #[error("{}:{line}: not a metrics record ({reason}); expected one JSON object a line; move the file away to continue without it", path.display())]
    BadMetrics {
        /// The log.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The parser's message.
        reason: String,
    },

    /// A new run in a folder that already holds one.
    #[error("{} already holds a run: continue it with --resume, or choose another folder with --out", path.display())]
    RunExists {
        /// The folder.
        path: PathBuf,
    },

    /// A run folder that holds other files.
    #[error("{} holds files that are not from a run of cloze ({found}): choose a new or empty folder with --out", path.display())]
    NotARun {
        /// The folder.
        path: PathBuf,
        /// One of the files.
        found: String,
    },

    /// A run resumed with other input files than it was started with.
    #[error("{difference} since the run in {} was started: restore the files, or start a new run with --out", path.display())]
    InputsChanged {
        /// The run's folder.
        path: PathBuf,
        /// The first file that differs, and how.
        difference: String,
    },

    /// A run to resume that does not exist.
    #[error("{} holds no run to resume: leave out --resume to start one there", path.display())]
    NoRun {
        /// The folder.
        path: PathBuf,
    },

    /// A run folder that another process is writing to.
    #[error("{} is in use by another process: wait for it, or choose another folder with --out", path.display())]
    RunInUse {
        /// The folder.
        path: PathBuf,
    },

    /// A run resumed with another config than it was started with.
    #[error("the run was started with another config, {}: {differences}; change it back, or start a new run with --out", path.display())]
    ConfigChanged {
        /// The run's config file.
        path: PathBuf,
        /// Each key with both values.
        differences: String,
    },

    /// A run resumed on other texts or with another tokenizer than it was started with.
    #[error("{} was made with other texts in `corpus.files` or with another {}: restore them, or start a new run with --out", checkpoint.display(), tokenizer.display())]
    CorpusChanged {
        /// The checkpoint.
        checkpoint: PathBuf,
        /// The run's tokenizer file.
        tokenizer: PathBuf,
    },

    /// A run extension that is invalid or does not match the run.
    #[error("the extension `{name}`: {problem}")]
    Extension {
        /// Its name.
        name: String,
        /// What is wrong.
        problem: String,
    },

    /// Another replica cannot be reached, or failed.
    #[error("training with other replicas {problem}")]
    Replicas {
        /// What is wrong.
        problem: String,
    },

    /// An objective whose counts or sums do not match its terms: a bug in its code.
    #[error("the training objective {problem}")]
    Objective {
        /// What is wrong with it, and what was expected.
        problem: String,
    },

    /// A loss or a gradient that is not a finite number.
    #[error(
        "step {step}: the loss is not finite ({losses}, gradient norm {grad_norm}) on the batch from example \
         {example} of epoch {epoch}; the last good checkpoint is {}; lower `optimizer.lr`, or set \
         `train.non_finite = \"skip\"` to skip such steps",
        checkpoint.as_ref().map_or("none".to_string(), |path| path.display().to_string())
    )]
    NonFinite {
        /// The step.
        step: u64,
        /// The value of each loss term.
        losses: String,
        /// The gradients' global norm.
        grad_norm: f64,
        /// The epoch of the batch's first example.
        epoch: u64,
        /// The batch's first example in that epoch.
        example: u64,
        /// The newest checkpoint.
        checkpoint: Option<PathBuf>,
    },

    /// A device failure during a run.
    #[error("step {step}: the device failed: {reason}; {kept}")]
    DeviceFailed {
        /// The failed step.
        step: u64,
        /// The backend's message.
        reason: String,
        /// What remains of the run.
        kept: Kept,
    },

    /// An error in the corpus, its preparation or its batches.
    #[error(transparent)]
    Data(#[from] DataError),

    /// A tokenizer error.
    #[error(transparent)]
    Tokenizer(#[from] cloze_tokenizer::Error),

    /// An error in the model's configuration or weight files.
    #[error(transparent)]
    Model(#[from] ModelError),

    /// A model that cannot fill masks.
    #[error("{}: the model has no masked-LM head (`{missing}` is missing): give one saved by BertForMaskedLM or BertForPreTraining", folder.display())]
    NoMlmHead {
        /// The model's folder.
        folder: PathBuf,
        /// The first missing tensor.
        missing: String,
    },

    /// A request whose computation panicked: a bug in this program.
    #[error("internal error in the request: {reason}")]
    Panicked {
        /// The panic's message.
        reason: String,
    },

    /// A tokenizer without a mask token.
    #[error("{}: the tokenizer has no mask token ([MASK] or <mask>)", folder.display())]
    NoMaskToken {
        /// The model's folder.
        folder: PathBuf,
    },

    /// A tokenizer with more pieces than the model's vocabulary.
    #[error("{}: the tokenizer has {tokenizer} pieces, the model only {model}: they do not belong together; use the tokenizer that the model was trained with, or remove the pieces beyond the model's", folder.display())]
    VocabularyMismatch {
        /// The model's folder.
        folder: PathBuf,
        /// Pieces of the tokenizer.
        tokenizer: usize,
        /// Pieces of the model.
        model: usize,
    },

    /// A tokenizer whose output the model does not accept.
    #[error("{}: the tokenizer does not fit the model", folder.join("tokenizer.json").display())]
    UnfitTokenizer {
        /// The model's folder.
        folder: PathBuf,
        /// What does not fit.
        source: cloze_tokenizer::Error,
    },

    /// A text to fill without a mask.
    #[error("nothing to fill in \"{text}\": write {mask} in place of a word")]
    NothingToFill {
        /// The text.
        text: String,
        /// The mask token.
        mask: String,
    },

    /// A damaged folder of sense vectors.
    #[error("{}: {reason}; recreate it with `cloze senses train`", path.display())]
    BadSenses {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },

    /// Sense vectors made by another model, or from other layers of it.
    #[error(
        "the model is not the one that made the sense vectors: its {part} is {found}, theirs is {expected}; use the \
         same model, or learn them again"
    )]
    OtherSenseModel {
        /// What differs.
        part: &'static str,
        /// The sense vectors' value.
        expected: String,
        /// The model's value.
        found: String,
    },

    /// An unusable file of a WordNet database.
    #[error("{}{}: {reason}", path.display(), line.map_or(String::new(), |line| format!(":{line}")))]
    BadWordNet {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: Option<usize>,
        /// What is wrong, and what was expected.
        reason: String,
    },

    /// An unusable text or file of texts.
    #[error("{}: {reason}", path.display())]
    Text {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },

    /// A text longer than the model's maximum.
    #[error("the text has {tokens} tokens, but the model in {} takes at most {max}: shorten it", folder.display())]
    TextTooLong {
        /// The model's folder.
        folder: PathBuf,
        /// Tokens of the text.
        tokens: usize,
        /// The model's maximum.
        max: usize,
    },

    /// An evaluation error: tags, metrics. A report file that cannot be written is a [`TrainerError::Io`].
    #[error(transparent)]
    Evaluation(EvaluationError),
}

/// A piece in a message.
fn piece_name(piece: &Option<String>) -> String {
    piece.as_ref().map_or_else(|| "absent".into(), |piece| format!("{piece:?}"))
}

impl TrainerError {
    /// Whether the cause is a setting in the configuration, as opposed to data, a model or the machine.
    pub fn is_of_config(&self) -> bool {
        match self {
            Self::ConfigSyntax { .. }
            | Self::ParamGroup { .. }
            | Self::UnknownKey { .. }
            | Self::MissingKey { .. }
            | Self::MissingKeys { .. }
            | Self::Mistakes(_)
            | Self::BadValue { .. }
            | Self::Setting { .. }
            | Self::Memory { .. }
            | Self::Evaluation(EvaluationError::NoFigure { .. })
            | Self::NotARun { .. }
            | Self::Model(ModelError::Pattern { .. }) => true,
            Self::Data(error) => matches!(
                error,
                DataError::LabelledSetting { .. }
                    | DataError::CorpusSetting { .. }
                    | DataError::ParallelSetting { .. }
                    | DataError::DenoisingSetting { .. }
                    | DataError::Sentinels { .. }
                    | DataError::FeatureLength { .. }
                    | DataError::Pattern { .. }
                    | DataError::SeqLen { .. }
            ),
            _ => false,
        }
    }

    /// An error of the rows of `[data.train]`, which names its keys.
    pub(crate) fn of_training_data(self) -> Self {
        let told = |path, line, problem| Self::Data(DataError::LabelledFile { path, line, problem });
        match self {
            Self::Data(DataError::BadRow { path, line, problem }) => told(
                path,
                line,
                format!("{problem}; correct it, or set `data.train.on_bad_row = \"skip\"` to skip such rows"),
            ),
            Self::Data(DataError::ManySkipped { found, share, .. }) => {
                let setting = "`data.train.max_skipped`".to_owned();
                Self::Data(DataError::ManySkipped { found, share, setting })
            }
            error => error,
        }
    }

    /// A [`TrainerError::Io`] for `path`, as a closure for `map_err`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}

/// Most mistakes in one message: a file of another kind has many.
const MOST_MISTAKES: usize = 8;

/// Mistakes, one after the other.
fn on_one_line(mistakes: &[TrainerError]) -> String {
    let mut line = String::new();
    for mistake in mistakes.iter().take(MOST_MISTAKES) {
        if !line.is_empty() {
            line += if line.ends_with('?') { " Also " } else { "; also " };
        }
        line += &mistake.to_string();
    }
    match mistakes.len().saturating_sub(MOST_MISTAKES) {
        0 => line,
        more => format!("{line}; and {more} more mistakes"),
    }
}

impl From<FileError> for TrainerError {
    fn from(FileError { action, path, source }: FileError) -> Self {
        Self::Io { action, path, source }
    }
}

impl From<EvaluationError> for TrainerError {
    fn from(error: EvaluationError) -> Self {
        match error {
            // One variant for one thing, whichever crate has met it.
            EvaluationError::Io { action, path, source } => Self::Io { action, path, source },
            error => Self::Evaluation(error),
        }
    }
}

/// Where a config value was set: a line of a file, or a `--set` argument.
///
/// Shown as `configs/run.toml:12` or `--set train.steps=10`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    source: Arc<str>,
    line: Option<usize>,
}

impl Place {
    /// A config file as a whole, for keys that it does not set.
    pub fn file(path: &Path) -> Self {
        Self { source: path.display().to_string().into(), line: None }
    }

    /// The same source, at `line` (counted from 1).
    pub fn line(&self, line: usize) -> Self {
        Self { source: self.source.clone(), line: Some(line) }
    }

    /// A `--set` argument.
    pub fn argument(argument: &str) -> Self {
        Self { source: format!("--set {argument}").into(), line: None }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}", self.source),
            None => f.write_str(&self.source),
        }
    }
}
