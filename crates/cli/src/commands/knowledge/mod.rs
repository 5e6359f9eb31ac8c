//! `cloze knowledge`: what language models know.

mod choices;
mod common;
mod facts;
mod pairs;
mod values;

use anyhow::Result;
use clap::Subcommand;

/// Measure what a language model knows: grammar, common sense, facts and values.
///
/// Example: cloze knowledge pairs --model google-bert/bert-base-uncased --on-bad-row skip blimp/data
///
/// Each command scores sentences as `cloze likelihood` does and compares the scores. Files are those of the published test
/// suites, alone, in folders or in zip archives.
#[derive(Subcommand)]
#[command(after_long_help = "\
More examples:
  cloze knowledge choices --model runs/tiny/model --on-bad-row skip --json CATS/commonsense_ability_test
  cloze knowledge facts --model runs/tiny/model --on-bad-row skip --candidates objects pararel/pattern_data pararel/trex_lms_vocab
  cloze knowledge values --model runs/tiny/model --on-bad-row skip --max-skipped 0.1 --survey scores.csv probes.zip")]
pub enum Command {
    Pairs(pairs::Args),
    Choices(choices::Args),
    Facts(facts::Args),
    Values(values::Args),
}

/// Runs `command`.
pub fn run(command: &Command) -> Result<()> {
    match command {
        Command::Pairs(args) => pairs::run(args),
        Command::Choices(args) => choices::run(args),
        Command::Facts(args) => facts::run(args),
        Command::Values(args) => values::run(args),
    }
}
