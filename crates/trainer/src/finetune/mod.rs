//! Fine-tuning: from labelled data and a checkpoint to a model for a task, and how good that is.
//!
//! [`FineTuneConfig`] says all of a run, [`fine_tune`] carries it out. A kind of task is a [`Task`], such as
//! [`TextTask`]: what its examples become, its loss, and what it predicts. A [`Predictor`] asks the model in a folder.

mod answers;
mod choices;
mod config;
mod cross_encoder;
mod embedding;
mod evaluate;
mod form;
mod held_out;
mod kinds;
mod model_folder;
mod predict;
mod predictor;
mod prompt;
mod reading;
mod recipe;
mod recurrent;
mod run;
mod shots;
mod start;
mod tags;
mod task;
mod template;
mod texts;
mod validate;

pub use crate::engine::Advance;
pub use answers::{AnswerTask, SpanScores};
pub use choices::ChoiceTask;
pub use config::{
    DataSection, FineTuneConfig, FineTuneEval, FineTuneModel, FineTuneRun, FineTuneTrain, TaskSection,
    ValueLoss,
};
pub use embedding::{
    EmbeddingBatch, EmbeddingFeatures, EmbeddingLoss, EmbeddingSection, EmbeddingTask, LossSection,
    MatryoshkaSection, PromptsSection, SentenceEncoder, TripletDistance, pair_features,
};
pub use evaluate::{figures, outputs, predict};
pub use model_folder::{TASK_FILE, TaskFile};
pub use predictor::{EvaluationData, InputKey, Measurement, Predicted, Predictor};
pub use prompt::{PromptSection, PromptTask};
pub use reading::TaskData;
pub use recurrent::RecurrentSection;
pub use run::{fine_tune, fine_tune_task};
pub use tags::{SentenceFeatures, SentenceTags, TagTask, TaggingSection};
pub use task::{Encoded, PretrainedTask, Task, input};
pub use template::{PromptFeatures, Template};
pub use texts::TextTask;
