//! What encoders are fine-tuned for in English, and asked in other languages.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Test data of a language.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// The config's own.
    Config,
    /// A file.
    File(PathBuf),
    /// None: the English data that the run held out, which its best epoch is chosen by.
    HeldOut,
}

/// A task and the languages that it is asked in, by their names.
pub struct Task {
    /// The config's name in `configs/`.
    pub config: &'static str,
    /// What is set in the config.
    pub sets: Vec<String>,
    pub figure: &'static str,
    pub languages: Vec<(String, Asked)>,
}

impl Task {
    /// Parts of speech of the treebanks as they are.
    pub fn parts_of_speech(data: &Path) -> Self {
        let other =
            |name: &str, folder: &str| (name.to_owned(), Asked::File(data.join(folder).join("test.conllu")));
        let languages =
            vec![("English".into(), Asked::Config), other("German", "ud-de"), other("French", "ud-fr")];
        Self { config: "ud-ewt", sets: Vec::new(), figure: "accuracy", languages }
    }

    /// Dependency relations without their subtypes, which each language has its own of; the treebanks are written to `folder`.
    pub fn relations(data: &Path, folder: &Path) -> Result<Self> {
        let cut = |treebank: &str| {
            let to = folder.join(treebank.replace('/', "-"));
            convert(&data.join(treebank), &to, universal).map(|()| to)
        };
        let [train, dev, english] =
            ["train", "dev", "test"].map(|part| cut(&format!("ud-ewt/{part}.conllu")));
        let languages = vec![
            ("English".to_owned(), Asked::File(english?)),
            ("German".to_owned(), Asked::File(cut("ud-de/test.conllu")?)),
            ("French".to_owned(), Asked::File(cut("ud-fr/test.conllu")?)),
        ];
        let sets = vec![
            "data.train.columns.tags=\"deprel\"".to_owned(),
            format!("data.train.files=[{:?}]", train?),
            format!("data.dev=[{:?}]", dev?),
            "data.test=[]".to_owned(),
        ];
        Ok(Self { config: "ud-ewt", sets, figure: "accuracy", languages })
    }

    /// Entities of wikigold, asked in the languages of CoNLL-2002 in the folder `conll`. The three files have different schemes:
    /// all are written to `folder` in BIO.
    pub fn entities(data: &Path, conll: &Path, folder: &Path) -> Result<Self> {
        let written = |from: &Path, name: &str| {
            let to = folder.join(name);
            convert(from, &to, bio).map(|()| to)
        };
        let train = written(&data.join("wikigold/wikigold.conll.txt"), "wikigold.conll")?;
        let mut languages = vec![("English".to_owned(), Asked::HeldOut)];
        for (name, file) in [("Spanish", "esp.testb"), ("Dutch", "ned.testb")] {
            languages
                .push((name.to_owned(), Asked::File(written(&conll.join(file), &format!("{file}.conll"))?)));
        }
        let sets = vec![format!("data.train.files=[{train:?}]"), "task.scheme=\"bio\"".to_owned()];
        Ok(Self { config: "wikigold", sets, figure: "f1", languages })
    }
}

/// Writes a file anew.
pub fn convert(from: &Path, to: &Path, change: impl Fn(&str) -> String) -> Result<()> {
    let text = fs::read_to_string(from).with_context(|| format!("cannot read {}", from.display()))?;
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    fs::write(to, change(&text)).with_context(|| format!("cannot write {}", to.display()))
}

/// CoNLL-U with a change of each word's columns.
pub fn with_words(text: &str, change: impl Fn(&mut Vec<String>)) -> String {
    let of_line = |line: &str| {
        let mut columns: Vec<String> = line.split('\t').map(str::to_owned).collect();
        if columns[0].parse::<u64>().is_ok() && columns.len() == 10 {
            change(&mut columns);
        }
        columns.join("\t") + "\n"
    };
    text.lines().map(of_line).collect()
}

/// `nsubj` in place of `nsubj:pass`.
fn universal(text: &str) -> String {
    with_words(text, |columns| {
        let end = columns[7].find(':').unwrap_or(columns[7].len());
        columns[7].truncate(end);
    })
}

/// Words and tags in IOB1 or BIO, whatever stands between them, as words and tags in BIO.
fn bio(text: &str) -> String {
    let mut written = String::new();
    let mut before = "O".to_owned();
    for line in text.lines() {
        let mut cells = line.split_whitespace();
        match (cells.next(), cells.next_back()) {
            (Some(word), Some(tag)) if word != "-DOCSTART-" => {
                let (begins, kind) = tag
                    .split_once('-')
                    .map_or((false, ""), |(mark, kind)| (mark == "B" || before.get(2..) != Some(kind), kind));
                let tag = if begins { format!("B-{kind}") } else { tag.to_owned() };
                written += &format!("{word} {tag}\n");
                before = tag;
            }
            _ => {
                written.push('\n');
                before = "O".into();
            }
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relations_lose_their_subtypes() {
        let word = |relation: &str| format!("1\tIt\tit\tPRON\t_\t_\t2\t{relation}\t_\t_\n");
        let text = format!(
            "# text = It: is\n1-2\tIt's\t_\t_\t_\t_\t_\t_\t_\t_\n{}\n{}",
            word("nsubj:pass"),
            word("obj")
        );
        let found = universal(&text);
        let expected = text.replace("nsubj:pass", "nsubj");
        assert_eq!(found, expected);
    }

    #[test]
    fn both_schemes_become_bio() {
        let iob1 = "in O\nNew I-LOC\nYork I-LOC\nParis B-LOC\nSony I-ORG\n\nRome I-LOC\n";
        let expected = "in O\nNew B-LOC\nYork I-LOC\nParis B-LOC\nSony B-ORG\n\nRome B-LOC\n";
        assert_eq!(bio(iob1), expected);
        let three = "-DOCSTART- -DOCSTART- O\nSao NC B-LOC\nPaulo VMI I-LOC\n, Fc O\n";
        assert_eq!(bio(three), "\nSao B-LOC\nPaulo I-LOC\n, O\n");
        assert_eq!(bio(&bio(iob1)), expected);
    }

    #[test]
    fn tasks_are_asked_in_three_languages() {
        let task = Task::parts_of_speech(Path::new("data"));
        let french = ("French".to_owned(), Asked::File("data/ud-fr/test.conllu".into()));
        assert_eq!(task.languages[0], ("English".to_owned(), Asked::Config));
        assert_eq!((&task.languages[2], task.languages.len()), (&french, 3));
    }
}
