//! `cloze lexicon eval analogy`.

use std::path::PathBuf;

use anyhow::Result;
use cloze_evaluation::lexicon::{AnalogyAnswers, solve_analogies};
use cloze_evaluation::table::{self, grouped};
use serde::Serialize;

use super::questions::{self, Field, required};
use super::{Common, percent};
use crate::commands::lexicon::vectors;
use crate::progress::Progress;

/// Answer analogies, a is to b as c is to …, by 3CosAdd and 3CosMul (Levy & Goldberg 2014).
///
/// Example: cloze lexicon eval analogy --vectors words.npy google-analogies.csv
///
/// Columns are type, word1, word2, word3 and target unless --columns says otherwise. The answer is the nearest of all
/// words that have a vector, but for the three of the question. Figures by 3CosAdd are those of gensim's
/// evaluate_word_analogies.
#[derive(clap::Args)]
pub struct Args {
    /// A table of analogies.
    #[arg(value_name = "FILE")]
    file: String,
    #[arg(long, value_name = "FILE", help = vectors::HELP)]
    vectors: PathBuf,
    #[command(flatten)]
    common: Common,
}

#[derive(Serialize)]
struct Found {
    candidates: usize,
    sections: Vec<Section>,
    all: Section,
}

/// The questions of one type.
#[derive(Serialize)]
struct Section {
    section: String,
    questions: usize,
    found: usize,
    add: f64,
    mul: f64,
}

/// Counts of a section.
#[derive(Default)]
struct Counts {
    questions: usize,
    found: usize,
    add: usize,
    mul: usize,
}

impl Counts {
    fn section(&self, name: &str) -> Section {
        let share = |right: usize| right as f64 / self.found as f64;
        Section {
            section: name.to_owned(),
            questions: self.questions,
            found: self.found,
            add: share(self.add),
            mul: share(self.mul),
        }
    }
}

pub fn run(args: &Args) -> Result<()> {
    let vectors = args.common.reading.read(&args.vectors)?;
    let section = Field { name: "type", is_required: false };
    let fields = [section, required("word1"), required("word2"), required("word3"), required("target")];
    let rows = questions::read(&args.common.rows, &args.file, &fields, |_| None)?;
    let mut names: Vec<String> = Vec::new();
    let mut counts: Vec<Counts> = Vec::new();
    let mut asked: Vec<(usize, [usize; 4])> = Vec::new();
    for row in &rows {
        let name = row.fields[0].as_deref().unwrap_or_default();
        // Sections are few, and their questions lie together.
        let at = names.iter().rposition(|known| known == name).unwrap_or_else(|| {
            names.push(name.to_owned());
            counts.push(Counts::default());
            names.len() - 1
        });
        counts[at].questions += 1;
        if let [Some(a), Some(b), Some(c), Some(target)] =
            row.words([1, 2, 3, 4]).map(|word| vectors.find(word))
        {
            counts[at].found += 1;
            asked.push((at, [a, b, c, target]));
        }
    }
    if asked.is_empty() {
        return Err(questions::none_known(
            &args.file,
            &args.vectors.display().to_string(),
            &rows,
            "analogies",
        ));
    }
    let of_words: Vec<[usize; 3]> = asked.iter().map(|(_, [a, b, c, _])| [*a, *b, *c]).collect();
    let mut progress = Progress::new("words compared", false);
    let all = vectors.len();
    let answers = solve_analogies(&vectors, &of_words, &mut |done| {
        progress.show(done, Some(done as f64 / all as f64));
    });
    progress.finish();
    let firsts = vectors.firsts();
    for ((at, [.., target]), AnalogyAnswers { add, mul }) in asked.iter().zip(answers) {
        let is_right = |answer: Option<usize>| answer.is_some_and(|answer| firsts[answer] == firsts[*target]);
        counts[*at].add += usize::from(is_right(add));
        counts[*at].mul += usize::from(is_right(mul));
    }
    let mut total = Counts::default();
    for of in &counts {
        total.questions += of.questions;
        total.found += of.found;
        total.add += of.add;
        total.mul += of.mul;
    }
    let sections = names.iter().zip(&counts).map(|(name, counts)| counts.section(name)).collect();
    let found = Found { candidates: all, sections, all: total.section("all") };
    args.common.show(&found, || {
        let row = |of: &Section| {
            let share = of.found as f64 / of.questions as f64;
            [
                of.section.clone(),
                grouped(of.questions as u64),
                percent(share),
                percent(of.add),
                percent(of.mul),
            ]
        };
        let sections = found.sections.iter().filter(|_| found.sections.len() > 1);
        let title = format!("analogies, of {} words", grouped(all as u64));
        table::numbers(
            [&title, "questions", "with vectors", "3CosAdd", "3CosMul"],
            sections.chain([&found.all]).map(row),
        )
    })
}
