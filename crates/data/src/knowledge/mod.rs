//! Test suites of what language models know: minimal pairs, choices, facts and values.
//!
//! Each reader reads files, folders and zip archives as they are published ([`suite_files`]).

mod choices;
mod facts;
mod files;
mod items;
mod pairs;
mod values;
mod zip;

pub use choices::{ChoiceItem, ChoiceItems, SentenceChoice};
pub use facts::{Fact, FactPattern, Relation, Relations};
pub use files::{SuiteFile, suite_files};
pub use items::{SuiteItem, SuiteItems};
pub use pairs::{MinimalPair, MinimalPairs};
pub use values::{ValueProbe, ValueProbes};
