//! Fine-tuning: from labelled data and a checkpoint to a task model and its evaluation.
//!
//! [`FineTuneConfig`] describes a run, [`fine_tune`] runs it. A kind of task is a [`Task`], such as
//! [`TextTask`]: how its examples are encoded, its loss, and its predictions. A [`Predictor`] runs a saved
//! model.

mod answers;
pub mod by_size;
mod choices;
mod config;
mod cross_encoder;
mod distillation;
mod embedding;
mod evaluate;
mod format;
mod held_out;
mod kind;
mod kinds;
mod model_folder;
mod predict;
mod predictor;
mod prompt;
mod pruning;
mod reading;
mod recipe;
mod recurrent;
mod run;
mod saved_model;
mod section;
mod shots;
mod start;
mod stored_scores;
mod tags;
mod task;
mod task_model;
mod task_run;
mod template;
mod texts;
mod validate;

pub use crate::engine::Advance;
pub use answers::{AnswerTask, SpanScores};
pub use by_size::{BySize, Choice, choose_absent, read_without_training};
pub use choices::ChoiceTask;
pub use config::{
    DataSection, FineTuneConfig, FineTuneEval, FineTuneModel, FineTuneRun, FineTuneTrain, Tuning,
};
pub use embedding::{
    EmbeddingBatch, EmbeddingFeatures, EmbeddingLoss, EmbeddingScores, EmbeddingSection, EmbeddingTask,
    LossSection, MatryoshkaSection, PromptsSection, SentenceEncoder, TripletDistance, pair_features,
};
pub use evaluate::{figures, outputs, predict};
pub use kind::{DataSize, RecurrentTask, TaskKind, TaskSettings};
pub use model_folder::{TASK_FILE, TaskFile};
#[cfg(test)]
pub(crate) use predict::testing;
pub use predict::{Cut, InputKey, LineFields, PredictTask, Read};
pub use predictor::{EvaluationData, LineUnit, Predictor};
pub use prompt::PromptTask;
pub use pruning::{Importance, PruneConfig, PruneReport, importance, prune};
pub use reading::{Reading, TaskData};
pub use recurrent::RecurrentSection;
pub use run::{fine_tune, fine_tune_task};
pub use saved_model::{OpenedModel, SavedModel};
pub use section::{PromptSection, TaggingSection, TaskSection, ValueLoss};
pub use tags::{SentenceFeatures, SentenceTags, TagScores, TagTask, Tagger, Tags};
pub use task::{Encoded, Features, PretrainedTask, RowKind, ScoreRows, Task, TokenFeatures, input};
pub(crate) use task::{argmax, softmax};
pub use task_model::{Answered, Cost, Measurement, Predicted};
pub use task_run::TaskRun;
pub use template::{PromptFeatures, Template};
pub use texts::{TextClassifier, TextInput, TextTask, Texts};
