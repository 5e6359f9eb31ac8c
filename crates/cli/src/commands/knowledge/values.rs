//! `cloze knowledge values`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use cloze_data::knowledge::{SuiteFile, ValueProbe, ValueProbes};
use cloze_data::labelled::{Column, RecordColumn, records};
use cloze_evaluation::knowledge::{LogOdds, SurveyScore, ValueTally};
use cloze_trainer::likelihood::Slot;
use serde::Serialize;
use serde_json::{Value, json};

use super::common::{Common, refusal, told};
use crate::output::say;
use crate::progress::Progress;
use crate::rows::BadRowArgs;

/// A word and its opposite, and their pieces.
type Words = ([String; 2], Vec<Vec<u32>>);

/// Slots that are scored together.
const SLOTS: usize = 256;

/// Measure values: which of two opposite words a model prefers in sentences of a survey's questions.
///
/// Example: cloze knowledge values --model google-bert/bert-base-multilingual-cased --on-bad-row skip --max-skipped 0.1 probes.zip
///
/// Files are tables as those of Arora et al. 2023, with columns between tabs: the question's number, a sentence with [MASK], a
/// word for it, and the opposite word. The file's name is the language, its folder's name the survey. Prints log P(word) −
/// log P(opposite) by language, and by dimension for the surveys hofstede and wvs.
///
/// --survey is a table of scores that people gave, with the columns language, question or dimension, and score, and survey if
/// several are read; it adds Spearman's correlation with the model's, over questions, dimensions and languages.
///
/// Of the published questions 6.2 % have no mask or no opposite word, so they need --on-bad-row skip --max-skipped 0.1.
#[derive(clap::Args)]
#[command(after_long_help = "\
More examples:
  cloze knowledge values --model FacebookAI/xlm-roberta-base --survey hofstede.csv --on-bad-row skip --json probes/hofstede
  cloze knowledge values --model runs/tiny/model --on-bad-row skip --max-skipped 0.1 --out runs/values probes/wvs/de.csv")]
pub struct Args {
    /// A table of the survey's scores: CSV, TSV, JSON lines, Parquet or XML.
    #[arg(long, value_name = "FILE")]
    survey: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

#[derive(Serialize)]
struct Item<'a> {
    #[serde(flatten)]
    answer: &'a LogOdds,
    sentence: String,
    word: &'a str,
    opposite: &'a str,
}

pub fn run(args: &Args) -> Result<()> {
    let common = &args.common;
    let files = common.suite(&["csv", "tsv"])?;
    let surveys: BTreeSet<String> = files.iter().map(SuiteFile::folder).collect();
    let survey = args.survey.as_deref().map(|path| scores(path, &common.bad, &surveys)).transpose()?;
    let (lines, survey): (Vec<u64>, Vec<SurveyScore>) = survey.unwrap_or_default().into_iter().unzip();
    let model = common.load()?;
    let mut items = common.items()?;
    let mut read = ValueProbes::new(files, &common.bad.source());
    let mut probes: Vec<ValueProbe> = Vec::new();
    // Questions that the model has no piece for, which are no bad rows.
    let mut unspelled = 0;
    // Questions with the same words share their copies.
    let mut groups: BTreeMap<Words, Vec<usize>> = BTreeMap::new();
    while let Some(probe) = read.next().transpose().map_err(told)? {
        let slot = slot(&probe);
        let words = [probe.word.clone(), probe.opposite.clone()];
        let pieces = words.iter().map(|word| model.pieces_in(&slot, word)).collect::<Result<Vec<_>, _>>();
        let pieces = match pieces {
            Ok(pieces) => pieces,
            Err(error) => {
                let problem = refusal(error)?;
                match common.bad.skips() {
                    true => unspelled += 1,
                    false => {
                        read.refuse(&probe.path, probe.line, "word without a piece", problem).map_err(told)?
                    }
                }
                continue;
            }
        };
        match model.check_slot(&slot, &words, &pieces) {
            Ok(()) => {
                groups.entry((words, pieces)).or_default().push(probes.len());
                probes.push(probe);
            }
            Err(error) => {
                read.refuse(&probe.path, probe.line, "refused by the model", refusal(error)?)
                    .map_err(told)?;
            }
        }
    }
    common.check_skipped(read.skipped(), probes.len() + unspelled)?;
    if unspelled > 0 {
        say(format_args!("{unspelled} × word without a piece: left out"));
    }
    if let Some(path) = &args.survey {
        // Before the model is asked, which takes long. Which dimensions there are depends on the questions alone.
        let mut asked = ValueTally::default();
        probes.iter().for_each(|probe| asked.add(answer(probe, 0.0)));
        check_matches(&path.display().to_string(), &asked, &lines, &survey)?;
    }
    let mut odds = vec![0.0; probes.len()];
    let mut progress = Progress::new("questions", false);
    let mut n = 0;
    for ((words, pieces), group) in &groups {
        for group in group.chunks(SLOTS) {
            let slots: Vec<Slot> = group.iter().map(|at| slot(&probes[*at])).collect();
            let scores = common.scoring.compute.run(|| model.word_scores(&slots, words, pieces));
            let place = || {
                let first = &probes[group[0]];
                format!("{}:{}", first.path.display(), first.line)
            };
            for (at, scores) in group.iter().zip(scores.with_context(place)?) {
                odds[*at] = scores[0] - scores[1];
            }
            n += group.len();
            progress.show(n, Some(n as f64 / probes.len() as f64));
        }
    }
    progress.finish();
    let mut tally = ValueTally::default();
    for (probe, log_odds) in probes.iter().zip(odds) {
        let ValueProbe { word, opposite, .. } = probe;
        let answer = answer(probe, log_odds);
        items.write(&Item { answer: &answer, sentence: slot(probe).filled("[MASK]"), word, opposite })?;
        tally.add(answer);
    }
    let mut figures = json!({ "dimensions": tally.dimensions(), "questions": tally.answers() });
    if args.survey.is_some() {
        figures["agreement"] = json!(tally.agreement(&survey));
    }
    common.show("values", probes.len(), &tally.tables(&survey), &figures, items)
}

fn answer(probe: &ValueProbe, log_odds: f64) -> LogOdds {
    let ValueProbe { survey, language, question, .. } = probe;
    LogOdds { survey: survey.clone(), language: language.clone(), question: question.clone(), log_odds }
}

fn slot(probe: &ValueProbe) -> Slot {
    Slot { before: probe.before.clone(), after: probe.after.clone() }
}

/// The scores of a table. Those without a survey are of the only one of the probes' `surveys`.
///
/// # Errors
/// A table that cannot be read or has no score; a score without a survey if there are several; a second score of the same.
fn scores(path: &Path, bad: &BadRowArgs, surveys: &BTreeSet<String>) -> Result<Vec<(u64, SurveyScore)>> {
    let file = path.display().to_string();
    let mut source = bad.source();
    source.files = vec![file.clone()];
    let column = |field: &str, required| RecordColumn {
        field: field.into(),
        column: Column::Name(field.into()),
        required,
    };
    let columns = vec![
        column("language", true),
        column("score", true),
        column("question", false),
        column("dimension", false),
        column("survey", false),
    ];
    let mut rows = records(&source, Path::new(""), columns).map_err(told)?;
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    while let Some(record) = rows.next().transpose().map_err(told)? {
        let text = |value: &Value| match value {
            Value::String(text) => Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        let [language, score, question, dimension, survey] =
            [0, 1, 2, 3, 4].map(|at| record.cells.get(at).and_then(text));
        let score = score.and_then(|score| score.parse::<f64>().ok()).filter(|score| score.is_finite());
        match (language, question.or(dimension), score) {
            (Some(language), Some(name), Some(score)) => {
                let survey = match survey {
                    Some(survey) => survey,
                    None => only(surveys).with_context(|| format!("{file}:{}", record.line))?,
                };
                if !seen.insert((survey.clone(), language.clone(), name.clone())) {
                    let problem =
                        format!("a second score of `{name}` in language `{language}`; expected one");
                    rows.refuse(record.line, "second score", problem).map_err(told)?;
                    continue;
                }
                found.push((record.line, SurveyScore { survey, language, name, score }));
            }
            _ => {
                let problem = "no score; expected a language, a question or a dimension, and a number in the column score";
                rows.refuse(record.line, "no score", problem.into()).map_err(told)?;
            }
        }
    }
    bad.check_skipped(&file, rows.skipped(), found.len() as u64)?;
    match found.len() {
        0 => bail!(
            "{file}: there is no score; expected the columns language, question or dimension, and score"
        ),
        _ => Ok(found),
    }
}

/// Tells how many scores are of nothing that was asked, with the first of them.
///
/// # Errors
/// No score is of anything that was asked.
fn check_matches(file: &str, asked: &ValueTally, lines: &[u64], survey: &[SurveyScore]) -> Result<()> {
    let dimensions = asked.dimensions();
    let questions = asked.answers().iter().map(|own| (&*own.survey, &*own.language, &*own.question));
    let asked: BTreeSet<(&str, &str, &str)> = questions
        .chain(dimensions.iter().map(|own| (&*own.survey, &*own.language, &*own.dimension)))
        .collect();
    let is_asked = |score: &SurveyScore| asked.contains(&(&*score.survey, &*score.language, &*score.name));
    let mut others = lines.iter().zip(survey).filter(|(_, score)| !is_asked(score));
    let Some((line, SurveyScore { language, name, .. })) = others.next() else { return Ok(()) };
    let n = 1 + others.count();
    let all = |names: BTreeSet<&str>| names.into_iter().collect::<Vec<_>>().join(", ");
    let languages = all(asked.iter().map(|(_, language, _)| *language).collect());
    let expected = match all(dimensions.iter().map(|own| &*own.dimension).collect()) {
        names if names.is_empty() => "a question's number".to_owned(),
        names => format!("a question's number or a dimension ({names})"),
    };
    let problem = format!(
        "{n} of {} scores are of nothing that was asked, the first of `{name}` in language `{language}`; expected {expected} in a \
         language of the probes ({languages})",
        survey.len()
    );
    match n == survey.len() {
        true => bail!("{file}:{line}: {problem}"),
        false => say(format_args!("{file}:{line}: {problem}")),
    }
    Ok(())
}

/// The only survey of the probes.
fn only(surveys: &BTreeSet<String>) -> Result<String> {
    let mut all = surveys.iter();
    match (all.next(), all.next()) {
        (Some(_), Some(_)) => bail!(
            "there is no survey, but the probes are of {}; expected one of them in the column survey",
            surveys.iter().map(String::as_str).collect::<Vec<_>>().join(" and ")
        ),
        (first, _) => Ok(first.cloned().unwrap_or_default()),
    }
}
