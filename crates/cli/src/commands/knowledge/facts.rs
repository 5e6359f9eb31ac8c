//! `cloze knowledge facts`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::builder::RangedU64ValueParser;
use cloze_data::knowledge::{Fact, FactPattern, Relation, Relations};
use cloze_evaluation::knowledge::FactTally;
use cloze_trainer::likelihood::{Kind, Likelihood, Slot};
use serde::Serialize;
use serde_json::json;

use super::common::{Common, Items, refusal, told};
use crate::output::say;
use crate::progress::Progress;

/// Slots that are scored together.
const SLOTS: usize = 256;

/// Measure facts: the rank of a relation's object in a sentence that states it.
///
/// Example: cloze knowledge facts --model runs/tiny/model --on-bad-row skip pararel/pattern_data pararel/trex_lms_vocab
///
/// Files are JSON lines of patterns and of facts, as LAMA's (Petroni et al. 2019) and ParaRel's (Elazar et al. 2021), in any order:
/// {"pattern": "The capital of [X] is [Y]."} (or "template") and {"sub_label": "France", "obj_label": "Paris"}. They belong
/// together by "relation" or "predicate_id", or else by the names of their files.
///
/// A masked model ranks the object among all pieces of its vocabulary; objects of several pieces are then left out and counted.
/// With --candidates the object is ranked among words, of any number of pieces: by the mean of the log-probabilities of their
/// pieces, or, by a left-to-right model, by the log-probability of the whole sentence.
///
/// Prints P@1, P@10 and the mean reciprocal rank by relation, beside P@1 of the relation's most frequent object, and with
/// several patterns how often two predict the same.
#[derive(clap::Args)]
#[command(after_long_help = "\
More examples:
  cloze knowledge facts --model openai-community/gpt2 --candidates objects --json P36-patterns.jsonl P36.jsonl
  cloze knowledge facts --model runs/tiny/model --candidates words.txt --on-bad-row skip --out runs/facts pararel")]
pub struct Args {
    /// What the object is ranked among: vocabulary, all pieces of a masked model; objects, those of its relation; or a file of
    /// words, one a line.
    #[arg(long, value_name = "WHAT", default_value = "vocabulary")]
    candidates: Candidates,
    /// Rank only so many facts of each relation, spread evenly over its file. Candidates and the most frequent object stay those
    /// of all facts.
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    per_relation: Option<usize>,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Clone, PartialEq)]
enum Candidates {
    Vocabulary,
    Objects,
    Words(PathBuf),
}

impl std::str::FromStr for Candidates {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "vocabulary" => Self::Vocabulary,
            "objects" => Self::Objects,
            path => Self::Words(path.into()),
        })
    }
}

#[derive(Serialize)]
struct Item<'a> {
    relation: &'a str,
    pattern: &'a str,
    subject: &'a str,
    object: &'a str,
    rank: usize,
    log_prob: f64,
    predicted: &'a str,
}

/// What has been ranked so far.
struct Ranked {
    tally: FactTally,
    items: Items,
    progress: Progress,
    n: usize,
    /// Facts that are not ranked, by reason.
    left_out: BTreeMap<&'static str, u64>,
    /// Whether unusable lines are skipped.
    skips: bool,
    /// How many facts of each relation are ranked; none for all.
    per_relation: Option<usize>,
}

impl Ranked {
    fn add(&mut self, item: &Item<'_>, pattern: usize, fact: usize) -> Result<()> {
        self.tally.add(item.relation, pattern, (fact, item.object), item.rank, item.predicted);
        self.n += 1;
        self.progress.show(self.n, None);
        self.items.write(item)
    }

    /// The facts of a relation that are ranked, spread evenly over all of them.
    fn chosen<'a>(&mut self, relation: &str, facts: Vec<FactPieces<'a>>) -> Vec<FactPieces<'a>> {
        let Some(wanted) = self.per_relation else { return facts };
        self.tally.set_objects(relation, facts.iter().map(|(_, fact, _)| &*fact.object));
        let n = facts.len();
        let wanted = wanted.min(n);
        let chosen = |at: usize| (at + 1) * wanted / n > at * wanted / n;
        facts.into_iter().enumerate().filter(|(at, _)| chosen(*at)).map(|(_, fact)| fact).collect()
    }
}

pub fn run(args: &Args) -> Result<()> {
    let common = &args.common;
    let files = common.suite(&["jsonl"])?;
    let mut relations = Relations::read(files, &common.bad.source()).map_err(told)?;
    let words = match &args.candidates {
        Candidates::Words(path) => Some(words(path)?),
        _ => None,
    };
    let model = common.load()?;
    if args.candidates == Candidates::Vocabulary && model.kind() != Kind::Masked {
        let problem = "only a masked model ranks its whole vocabulary; name candidates with --candidates objects or a file";
        return Err(common.other_kind(problem));
    }
    let mut ranked = Ranked {
        tally: FactTally::default(),
        items: common.items()?,
        progress: Progress::new("facts", false),
        n: 0,
        left_out: BTreeMap::new(),
        skips: common.bad.skips(),
        per_relation: args.per_relation,
    };
    let n_read: usize =
        relations.relations().values().map(|relation| relation.patterns.len() + relation.facts.len()).sum();
    let unread = relations.skipped().total();
    let all: Vec<(String, Relation)> =
        relations.relations().iter().map(|(name, relation)| (name.clone(), relation.clone())).collect();
    for (name, relation) in &all {
        let missing = match (relation.patterns.is_empty(), relation.facts.is_empty()) {
            (true, _) => Some("no pattern"),
            (_, true) => Some("no fact"),
            _ => None,
        };
        if let Some(missing) = missing {
            say(format_args!("{name}: left out, as it has {missing}"));
            continue;
        }
        let before = ranked.n;
        let rank = || match (&args.candidates, &words) {
            (Candidates::Vocabulary, _) => {
                in_vocabulary(&model, &mut relations, (name, relation), &mut ranked)
            }
            (_, words) => {
                among_words(&model, &mut relations, (name, relation), words.as_deref(), &mut ranked)
            }
        };
        common.scoring.compute.run(rank).with_context(|| name.clone())?;
        if ranked.n == before {
            say(format_args!("{name}: left out, as none of its facts can be ranked"));
        }
    }
    ranked.progress.finish();
    let refused = relations.skipped().total() - unread;
    common.check_skipped(relations.skipped(), n_read.saturating_sub(refused as usize))?;
    for (reason, n) in &ranked.left_out {
        say(format_args!("{n} × {reason}: left out"));
    }
    if ranked.n == 0 && !ranked.left_out.is_empty() {
        bail!(
            "all facts were left out, so there is nothing to rank; expected objects that are asked for: see --candidates"
        );
    }
    let figures = json!({
        "mean": ranked.tally.overall(),
        "relations": ranked.tally.relations(),
        "left_out": ranked.left_out,
    });
    let tables = if ranked.n > 0 { vec![ranked.tally.table()] } else { Vec::new() };
    common.show("facts", ranked.n, &tables, &figures, ranked.items)
}

/// The slot of a pattern with a subject.
fn slot(pattern: &FactPattern, subject: &str) -> Slot {
    let (before, after) = pattern.around_object(subject);
    Slot { before, after }
}

/// A fact by its number in the relation, and its object's pieces in each pattern.
type FactPieces<'a> = (usize, &'a Fact, Vec<Vec<u32>>);

/// The facts of a relation whose objects have pieces in each pattern. Others are refused, or, if unusable lines are skipped,
/// left out and not counted as such: what a model cannot spell is no bad line.
fn with_pieces<'a>(
    model: &Likelihood,
    relations: &mut Relations,
    relation: &'a Relation,
    ranked: &mut Ranked,
) -> Result<Vec<FactPieces<'a>>> {
    let mut found = Vec::with_capacity(relation.facts.len());
    // The pieces of an object hardly depend on the subject, but reading them costs as much as encoding the sentence.
    let mut known: BTreeMap<&str, Vec<Vec<u32>>> = BTreeMap::new();
    for (number, fact) in relation.facts.iter().enumerate() {
        if let Some(pieces) = known.get(&*fact.object) {
            found.push((number, fact, pieces.clone()));
            continue;
        }
        let pieces = relation
            .patterns
            .iter()
            .map(|pattern| model.pieces_in(&slot(pattern, &fact.subject), &fact.object));
        match pieces.collect::<Result<Vec<_>, _>>() {
            Ok(pieces) => {
                known.insert(&fact.object, pieces.clone());
                found.push((number, fact, pieces));
            }
            Err(error) => {
                let (reason, problem) = ("object without a piece", refusal(error)?);
                match ranked.skips {
                    true => *ranked.left_out.entry(reason).or_default() += 1,
                    false => relations.refuse(fact, reason, problem).map_err(told)?,
                }
            }
        }
    }
    Ok(found)
}

/// What is asked in a pattern: words, and their pieces; none for the whole vocabulary.
type Asked = (Vec<String>, Vec<Vec<u32>>);

/// The facts that the model takes in each pattern, with what is asked there; others are refused.
fn that_fit<'a>(
    model: &Likelihood,
    relations: &mut Relations,
    relation: &Relation,
    asked: &[Asked],
    facts: Vec<FactPieces<'a>>,
) -> Result<Vec<FactPieces<'a>>> {
    let mut found = Vec::with_capacity(facts.len());
    for fact in facts {
        let mut all = relation.patterns.iter().zip(asked);
        let fits = all.try_for_each(|(pattern, (words, pieces))| {
            model.check_slot(&slot(pattern, &fact.1.subject), words, pieces)
        });
        match fits {
            Ok(()) => found.push(fact),
            Err(error) => {
                relations.refuse(fact.1, "refused by the model", refusal(error)?).map_err(told)?;
            }
        }
    }
    Ok(found)
}

/// Ranks objects of one piece in the whole vocabulary.
fn in_vocabulary(
    model: &Likelihood,
    relations: &mut Relations,
    (name, relation): (&str, &Relation),
    ranked: &mut Ranked,
) -> Result<()> {
    let facts = with_pieces(model, relations, relation, ranked)?;
    let (single, several): (Vec<_>, Vec<_>) =
        facts.into_iter().partition(|(_, _, pieces)| pieces.iter().all(|pieces| pieces.len() == 1));
    if !several.is_empty() {
        *ranked.left_out.entry("object of several pieces").or_default() += several.len() as u64;
    }
    let asked = vec![Asked::default(); relation.patterns.len()];
    let single = that_fit(model, relations, relation, &asked, ranked.chosen(name, single))?;
    for (at, pattern) in relation.patterns.iter().enumerate() {
        for facts in single.chunks(SLOTS) {
            let slots: Vec<(Slot, u32)> =
                facts.iter().map(|(_, fact, pieces)| (slot(pattern, &fact.subject), pieces[at][0])).collect();
            let answers = model.answers(&slots, 1)?;
            for ((number, fact, _), answer) in facts.iter().zip(answers) {
                let predicted = answer.best.first().map(|id| model.piece_text(*id)).unwrap_or_default();
                let item = Item {
                    relation: name,
                    pattern: &pattern.text,
                    subject: &fact.subject,
                    object: &fact.object,
                    rank: answer.rank,
                    log_prob: answer.log_prob,
                    predicted: &predicted,
                };
                ranked.add(&item, at, *number)?;
            }
        }
    }
    Ok(())
}

/// Ranks objects among words: those given, or the relation's objects.
fn among_words(
    model: &Likelihood,
    relations: &mut Relations,
    (name, relation): (&str, &Relation),
    words: Option<&[String]>,
    ranked: &mut Ranked,
) -> Result<()> {
    let facts = with_pieces(model, relations, relation, ranked)?;
    let objects: BTreeSet<&str> = facts.iter().map(|(_, fact, _)| &*fact.object).collect();
    let candidates: Vec<String> = match words {
        Some(words) => words.to_vec(),
        None => objects.into_iter().map(str::to_owned).collect(),
    };
    let Some(first) = relation.facts.first() else { return Ok(()) };
    let mut without = BTreeSet::new();
    let mut asked: Vec<Asked> = Vec::with_capacity(relation.patterns.len());
    for pattern in &relation.patterns {
        let (mut words, mut pieces) = Asked::default();
        for word in &candidates {
            match model.pieces_in(&slot(pattern, &first.subject), word) {
                Ok(found) => {
                    words.push(word.clone());
                    pieces.push(found);
                }
                Err(error) => {
                    refusal(error)?;
                    without.insert(word);
                }
            }
        }
        asked.push((words, pieces));
    }
    let facts = that_fit(model, relations, relation, &asked, ranked.chosen(name, facts))?;
    for (at, (pattern, (words, pieces))) in relation.patterns.iter().zip(&asked).enumerate() {
        for facts in facts.chunks(SLOTS) {
            let known = |fact: &Fact| words.iter().position(|word| *word == fact.object);
            let facts: Vec<_> =
                facts.iter().filter_map(|(number, fact, _)| Some((*number, *fact, known(fact)?))).collect();
            let slots: Vec<Slot> = facts.iter().map(|(_, fact, _)| slot(pattern, &fact.subject)).collect();
            let scores = model.word_scores(&slots, words, pieces)?;
            for ((number, fact, right), scores) in facts.into_iter().zip(scores) {
                let is_before = |place: usize, than: usize| {
                    scores[place] > scores[than] || scores[place] == scores[than] && place < than
                };
                let best =
                    (0..words.len()).fold(0, |best, place| if is_before(place, best) { place } else { best });
                let item = Item {
                    relation: name,
                    pattern: &pattern.text,
                    subject: &fact.subject,
                    object: &fact.object,
                    rank: 1 + (0..words.len()).filter(|place| is_before(*place, right)).count(),
                    log_prob: scores[right],
                    predicted: &words[best],
                };
                ranked.add(&item, at, number)?;
            }
        }
    }
    if !without.is_empty() && words.is_some() {
        say(format_args!(
            "{name}: {} candidates have no piece in the vocabulary and are left out",
            without.len()
        ));
    }
    let missing = facts.iter().filter(|(_, fact, _)| !candidates.contains(&fact.object)).count() as u64;
    if missing > 0 {
        *ranked.left_out.entry("object that is no candidate").or_default() += missing;
    }
    Ok(())
}

/// The words of a file, one a line, each once.
fn words(path: &PathBuf) -> Result<Vec<String>> {
    let name = path.display();
    let text = fs::read_to_string(path).with_context(|| {
        format!("cannot read {name}; --candidates is vocabulary, objects or a file of words")
    })?;
    let mut seen = BTreeSet::new();
    let words = text.lines().map(str::trim).filter(|word| !word.is_empty() && seen.insert(*word));
    let words: Vec<String> = words.map(str::to_owned).collect();
    match words.len() {
        0 => bail!("{name}: there is no word; expected candidates, one a line"),
        _ => Ok(words),
    }
}
