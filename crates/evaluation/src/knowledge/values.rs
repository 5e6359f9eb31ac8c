//! Log-odds of survey questions, their dimensions, and agreement with a survey.

use super::KnowledgeTable;
use crate::correlation::spearman;
use crate::table::grouped;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The dimensions of Hofstede's Values Survey Module 2013, as differences of the mean scores of questions 1 to 24 (Hofstede &
/// Minkov 2013, "VSM 2013 Manual", without its constants).
const HOFSTEDE: [(&str, [(usize, f64); 4]); 6] = [
    ("power distance", [(7, 35.0), (2, -35.0), (20, 25.0), (23, -25.0)]),
    ("individualism", [(4, 35.0), (1, -35.0), (9, 35.0), (6, -35.0)]),
    ("masculinity", [(5, 35.0), (3, -35.0), (8, 35.0), (10, -35.0)]),
    ("uncertainty avoidance", [(18, 40.0), (15, -40.0), (21, 25.0), (24, -25.0)]),
    ("long-term orientation", [(13, 40.0), (14, -40.0), (19, 25.0), (22, -25.0)]),
    ("indulgence", [(12, 35.0), (11, -35.0), (17, 40.0), (16, -40.0)]),
];

/// The sections of the World Values Survey's questionnaire, wave 7, with their first questions (Haerpfer et al. 2022).
const WVS: [(&str, u32); 13] = [
    ("social values, attitudes and stereotypes", 1),
    ("happiness and well-being", 46),
    ("social capital, trust and membership", 57),
    ("economic values", 106),
    ("corruption", 112),
    ("migration", 121),
    ("security", 131),
    ("postmaterialist index", 152),
    ("science and technology", 158),
    ("religious values", 164),
    ("ethical values and norms", 176),
    ("political interest and participation", 199),
    ("political culture and regimes", 235),
];

/// The last question of these sections; demographic ones follow.
const WVS_LAST: u32 = 259;

/// The log-odds of a question.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LogOdds {
    /// The survey, such as `hofstede` or `wvs`.
    pub survey: String,
    /// The language.
    pub language: String,
    /// The question's number in the survey.
    pub question: String,
    /// `log P(word) − log P(opposite)`, in nats.
    pub log_odds: f64,
}

/// A dimension's score.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Dimension {
    /// The survey.
    pub survey: String,
    /// The language.
    pub language: String,
    /// The dimension.
    pub dimension: String,
    /// The questions that it is made of.
    pub questions: u64,
    /// The mean of their log-odds; of Hofstede's dimensions, the survey's formula.
    pub score: f64,
}

/// A score that a survey found.
#[derive(Debug, Clone, PartialEq)]
pub struct SurveyScore {
    /// The survey, such as `hofstede` or `wvs`.
    pub survey: String,
    /// The language.
    pub language: String,
    /// A question's number, or a dimension.
    pub name: String,
    /// The score, in any unit in which more is more of the question's first word or of the dimension.
    pub score: f64,
}

/// Spearman's correlation of a model's scores with a survey's.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SurveyAgreement {
    /// The survey.
    pub survey: String,
    /// The language, with scores over questions or dimensions; or the question or dimension, with scores over languages.
    pub of: String,
    /// What is correlated: `questions`, `dimensions` or `languages`.
    pub over: &'static str,
    /// The number of scores.
    pub n: u64,
    /// The coefficient; NaN (null in JSON) for fewer than two scores or constant ones.
    pub spearman: f64,
}

/// The log-odds of all questions.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ValueTally {
    answers: Vec<LogOdds>,
}

impl ValueTally {
    /// Adds a question.
    pub fn add(&mut self, answer: LogOdds) {
        self.answers.push(answer);
    }

    /// All questions, in their order.
    pub fn answers(&self) -> &[LogOdds] {
        &self.answers
    }

    /// The dimensions of the known surveys, `hofstede` and `wvs`, by language.
    ///
    /// Hofstede's are computed by the survey's formula from `m = −log-odds`, since its scales begin with the first word (1: of
    /// utmost importance); one that lacks a question is left out. Questions of the World Values Survey are averaged by the
    /// questionnaire's sections.
    pub fn dimensions(&self) -> Vec<Dimension> {
        let mut groups: BTreeMap<(&str, &str), Vec<&LogOdds>> = BTreeMap::new();
        for answer in &self.answers {
            groups.entry((&answer.survey, &answer.language)).or_default().push(answer);
        }
        let mut found = Vec::new();
        for ((survey, language), answers) in groups {
            let made = match survey {
                "hofstede" => hofstede(&answers),
                "wvs" => sections(&answers),
                _ => Vec::new(),
            };
            found.extend(made.into_iter().map(|(dimension, questions, score)| Dimension {
                survey: survey.into(),
                language: language.into(),
                dimension: dimension.into(),
                questions,
                score,
            }));
        }
        found
    }

    /// The agreement with the scores of surveys: in each survey, of each language over its questions and its dimensions, and of
    /// each question and dimension over languages. Scores that only one side has are left out.
    pub fn agreement(&self, scores: &[SurveyScore]) -> Vec<SurveyAgreement> {
        let dimensions = self.dimensions();
        let questions =
            self.answers.iter().map(|own| (&*own.survey, &*own.language, &*own.question, own.log_odds));
        let dimensions =
            dimensions.iter().map(|own| (&*own.survey, &*own.language, &*own.dimension, own.score));
        let found: BTreeMap<(&str, &str, &str), f64> = scores
            .iter()
            .map(|score| ((&*score.survey, &*score.language, &*score.name), score.score))
            .collect();
        /// A survey, a language or a question in it, and over what they are compared.
        type Compared<'a> = (&'a str, &'a str, &'static str);
        let mut all: BTreeMap<Compared<'_>, Vec<(f64, f64)>> = BTreeMap::new();
        let kinds: [(&'static str, Vec<_>); 2] =
            [("questions", questions.collect()), ("dimensions", dimensions.collect())];
        let (mut by_language, mut by_name) = (BTreeSet::new(), BTreeSet::new());
        for (kind, rows) in &kinds {
            for &(survey, language, name, own) in rows {
                let Some(theirs) = found.get(&(survey, language, name)) else { continue };
                let (of_language, of_name) = ((survey, language, *kind), (survey, name, "languages"));
                all.entry(of_language).or_default().push((own, *theirs));
                all.entry(of_name).or_default().push((own, *theirs));
                by_language.insert(of_language);
                by_name.insert(of_name);
            }
        }
        let agreement = |key: Compared<'_>| {
            let (own, theirs): (Vec<f64>, Vec<f64>) = all[&key].iter().copied().unzip();
            SurveyAgreement {
                survey: key.0.into(),
                of: key.1.into(),
                over: key.2,
                n: own.len() as u64,
                spearman: spearman(&own, &theirs),
            }
        };
        by_language.into_iter().chain(by_name).map(agreement).collect()
    }

    /// Tables of the languages, the dimensions, and the agreement with a survey if there are scores.
    pub fn tables(&self, scores: &[SurveyScore]) -> Vec<KnowledgeTable> {
        let mut groups: BTreeMap<(&str, &str), Vec<f64>> = BTreeMap::new();
        for answer in &self.answers {
            groups.entry((&answer.survey, &answer.language)).or_default().push(answer.log_odds);
        }
        let header = ["survey", "language", "questions", "mean log-odds", "first word preferred (%)"];
        let mut by_language = KnowledgeTable::new("Values by language", header);
        for ((survey, language), odds) in groups {
            let positive = odds.iter().filter(|odds| **odds > 0.0).count() as f64 / odds.len() as f64;
            let mean = odds.iter().sum::<f64>() / odds.len() as f64;
            by_language.row([
                survey.to_owned(),
                language.to_owned(),
                grouped(odds.len() as u64),
                format!("{mean:.3}"),
                format!("{:.1}", 100.0 * positive),
            ]);
        }
        let mut tables = vec![by_language];
        let dimensions = self.dimensions();
        if !dimensions.is_empty() {
            let mut table = KnowledgeTable::new(
                "Values by dimension",
                ["survey", "language", "dimension", "questions", "score"],
            )
            .with_note("Hofstede's dimensions by the survey's formula, others as means of log-odds in nats.");
            for found in dimensions {
                let score = format!("{:.3}", found.score);
                table.row([found.survey, found.language, found.dimension, grouped(found.questions), score]);
            }
            tables.push(table);
        }
        if !scores.is_empty() {
            let header = ["survey", "of", "over", "scores", "Spearman"];
            let mut table = KnowledgeTable::new("Agreement with the survey", header);
            for found in self.agreement(scores) {
                let spearman =
                    if found.spearman.is_nan() { "–".into() } else { format!("{:.3}", found.spearman) };
                table.row([found.survey, found.of, found.over.to_owned(), grouped(found.n), spearman]);
            }
            tables.push(table);
        }
        tables
    }
}

/// Hofstede's dimensions. Files count questions from 0.
fn hofstede(answers: &[&LogOdds]) -> Vec<(&'static str, u64, f64)> {
    let mean: BTreeMap<usize, f64> = answers
        .iter()
        .filter_map(|answer| Some((answer.question.trim().parse::<usize>().ok()? + 1, -answer.log_odds)))
        .collect();
    let dimension = |(name, terms): &(&'static str, [(usize, f64); 4])| {
        let mut score = 0.0;
        for (question, weight) in terms {
            score += weight * mean.get(question)?;
        }
        Some((*name, terms.len() as u64, score))
    };
    HOFSTEDE.iter().filter_map(dimension).collect()
}

/// The sections of the World Values Survey, without its demographic questions. A question may have a letter after its number.
fn sections(answers: &[&LogOdds]) -> Vec<(&'static str, u64, f64)> {
    let mut odds = vec![Vec::new(); WVS.len()];
    for answer in answers {
        let digits: String = answer.question.trim().chars().take_while(char::is_ascii_digit).collect();
        let Some(number) = digits.parse::<u32>().ok().filter(|number| *number <= WVS_LAST) else { continue };
        if let Some(section) = WVS.iter().rposition(|(_, first)| *first <= number) {
            odds[section].push(answer.log_odds);
        }
    }
    let mean = |odds: &Vec<f64>| odds.iter().sum::<f64>() / odds.len() as f64;
    let found = WVS.iter().zip(&odds).filter(|(_, odds)| !odds.is_empty());
    found.map(|((name, _), odds)| (*name, odds.len() as u64, mean(odds))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(survey: &str, language: &str, question: &str, log_odds: f64) -> LogOdds {
        LogOdds { survey: survey.into(), language: language.into(), question: question.into(), log_odds }
    }

    #[test]
    fn dimensions_of_both_surveys() {
        let mut tally = ValueTally::default();
        // Questions 7, 2, 20 and 23 of the manual.
        for (question, odds) in [("6", 1.0), ("1", 2.0), ("19", 0.5), ("22", -1.0)] {
            tally.add(answer("hofstede", "de", question, odds));
        }
        for (question, odds) in [("1", 1.0), ("45", 3.0), ("110b", -1.0), ("259", 0.25), ("260", 7.0)] {
            tally.add(answer("wvs", "de", question, odds));
        }
        tally.add(answer("mine", "de", "1", 9.0));
        let found: Vec<(String, u64, f64)> = tally
            .dimensions()
            .into_iter()
            .map(|found| (found.dimension, found.questions, found.score))
            .collect();
        let expected = [
            ("power distance", 4, 35.0 * (2.0 - 1.0) + 25.0 * (-1.0 - 0.5)),
            ("social values, attitudes and stereotypes", 2, 2.0),
            ("economic values", 1, -1.0),
            ("political culture and regimes", 1, 0.25),
        ];
        assert_eq!(found, expected.map(|(name, n, score)| (name.to_owned(), n, score)));
    }

    #[test]
    fn agreement_is_over_questions_and_over_languages() {
        let mut tally = ValueTally::default();
        for (language, odds) in [("de", [1.0, 2.0, 3.0]), ("fr", [3.0, 1.0, 2.0]), ("tr", [0.0, 1.0, 2.0])] {
            for (question, odds) in odds.into_iter().enumerate() {
                tally.add(answer("wvs", language, &question.to_string(), odds));
            }
        }
        let score = |language: &str, name: &str, score: f64| SurveyScore {
            survey: "wvs".into(),
            language: language.into(),
            name: name.into(),
            score,
        };
        let scores = [
            score("de", "0", 10.0),
            score("de", "1", 20.0),
            score("de", "2", 15.0),
            score("fr", "0", 5.0),
            score("tr", "0", 9.0),
        ];
        let found = tally.agreement(&scores);
        let of = |name: &str, over: &str| {
            found.iter().find(|found| found.of == name && found.over == over).unwrap()
        };
        assert!((of("de", "questions").spearman - 0.5).abs() < 1e-12 && of("de", "questions").n == 3);
        // Ranks 2, 3, 1 against 3, 1, 2.
        assert!((of("0", "languages").spearman + 0.5).abs() < 1e-12);
        assert!(of("fr", "questions").spearman.is_nan());
        let tables = tally.tables(&scores);
        assert!(tables.len() == 3 && tables[2].to_string().contains('–'));
        assert_eq!(tally.tables(&[]).len(), 2);
    }

    #[test]
    fn equal_numbers_of_two_surveys_are_two_questions() {
        let mut tally = ValueTally::default();
        let score = |survey: &str, name: &str, score: f64| SurveyScore {
            survey: survey.into(),
            language: "de".into(),
            name: name.into(),
            score,
        };
        let mut scores = Vec::new();
        for (question, own, theirs) in [("1", 1.0, 5.0), ("2", 2.0, 6.0)] {
            tally.add(answer("hofstede", "de", question, own));
            tally.add(answer("wvs", "de", question, own));
            scores.extend([score("hofstede", question, theirs), score("wvs", question, -theirs)]);
        }
        let found = tally.agreement(&scores);
        let of = |survey: &str| {
            let is_of = |found: &&SurveyAgreement| found.survey == survey && found.over == "questions";
            found.iter().find(is_of).map(|found| (found.n, found.spearman)).unwrap()
        };
        for (survey, expected) in [("hofstede", 1.0), ("wvs", -1.0)] {
            let (n, spearman) = of(survey);
            assert!(n == 2 && (spearman - expected).abs() < 1e-12, "{survey}: {spearman}");
        }
        scores.retain(|score| score.survey == "wvs");
        assert!(tally.agreement(&scores).iter().all(|found| found.survey == "wvs"));
    }
}
