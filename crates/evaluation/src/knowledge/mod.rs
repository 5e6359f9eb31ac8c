//! What language models know: figures of minimal pairs, choices, facts and values.

mod choices;
mod facts;
mod pairs;
mod published;
mod table;
mod values;

pub use choices::{ChoiceTally, DualTest, SingleTest};
pub use facts::{FactTally, RelationFigures};
pub use pairs::{GroupAccuracy, PairTally};
pub use table::KnowledgeTable;
pub use values::{Dimension, LogOdds, SurveyAgreement, SurveyScore, ValueTally};
