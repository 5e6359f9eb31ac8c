//! Sentences with the classes of their words and their dependency trees, from CoNLL-U files.

use crate::{Result, TrainerError};
use cloze_data::DataError;
use cloze_data::labelled::{Column, Columns, DataFormat, LabelledSource, checked_sentences};
use cloze_evaluation::probing::DependencyTree;
use std::path::Path;

/// The Universal Dependencies tag of punctuation.
const PUNCTUATION: &str = "PUNCT";

/// A sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ParsedSentence {
    pub words: Vec<String>,
    /// Column `upos`.
    pub parts_of_speech: Vec<String>,
    /// Column `deprel`.
    pub relations: Vec<String>,
    /// Columns `head`.
    pub tree: DependencyTree,
}

impl ParsedSentence {
    /// Which words are not punctuation.
    pub fn kept(&self) -> Vec<bool> {
        self.parts_of_speech.iter().map(|part| part != PUNCTUATION).collect()
    }
}

/// The sentences of `files`, whose relative paths start from the current directory. `split` is the data's name.
///
/// The reader treats words' classes and heads as separate columns, so the files are read once for each.
///
/// # Errors
/// Those of [`checked_sentences`]; heads that do not form a tree, with file and line; no sentences.
pub(super) fn read(files: &[String], split: &'static str) -> Result<Vec<ParsedSentence>> {
    let column = |name: &str, problem: &dyn Fn(&[String]) -> Option<String>| {
        let mut source = LabelledSource::new(files.to_vec());
        source.format = DataFormat::Conllu;
        source.columns.insert("tags".into(), Columns::One(Column::Name(name.into())));
        match checked_sentences(&source, Path::new(""), problem) {
            Ok(loaded) => Ok(loaded.examples),
            // Nothing can be skipped, so the error does not say how: columns are read one by one and must stay aligned.
            Err(DataError::BadRow { path, line, problem }) => {
                Err(TrainerError::from(DataError::LabelledFile { path, line, problem }))
            }
            Err(error) => Err(error.into()),
        }
    };
    let any = |_: &[String]| None;
    let no_tree = |heads: &[String]| {
        let reason = tree(heads).err()?;
        Some(format!("the sentence is not a tree: {reason}; expected a dependency tree in the column `head`"))
    };
    let parts_of_speech = column("upos", &any)?;
    let (heads, relations) = (column("head", &no_tree)?, column("deprel", &any)?);
    let parsed = parts_of_speech.into_iter().zip(heads).zip(relations);
    let sentences: Vec<ParsedSentence> = parsed
        .filter_map(|((sentence, heads), relations)| {
            let (words, parts_of_speech) = (sentence.words, sentence.tags);
            // Those that are no trees have been refused.
            let tree = tree(&heads.tags).ok()?;
            Some(ParsedSentence { words, parts_of_speech, relations: relations.tags, tree })
        })
        .collect();
    match sentences.is_empty() {
        true => Err(TrainerError::NoExamples { split }),
        false => Ok(sentences),
    }
}

/// The tree of a sentence's heads, or why they do not form one.
fn tree(heads: &[String]) -> std::result::Result<DependencyTree, String> {
    let number = |head: &String| head.parse::<usize>().map_err(|_| format!("`head` is {head:?}"));
    DependencyTree::new(&heads.iter().map(number).collect::<std::result::Result<Vec<_>, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<Vec<ParsedSentence>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.conllu");
        std::fs::write(&path, text).unwrap();
        read(&[path.to_str().unwrap().to_owned()], "training")
    }

    #[test]
    fn columns_become_a_sentence() {
        let text = "1\tWe\t_\tPRON\t_\t_\t2\tnsubj\t_\t_\n2\tgo\t_\tVERB\t_\t_\t0\troot\t_\t_\n\
                    3\t.\t_\tPUNCT\t_\t_\t2\tpunct\t_\t_\n\n";
        let sentences = read_text(text).unwrap();
        assert_eq!(sentences.len(), 1);
        assert_eq!(sentences[0].words, ["We", "go", "."]);
        assert_eq!(sentences[0].relations, ["nsubj", "root", "punct"]);
        assert_eq!(sentences[0].tree.depths(), [1, 0, 1]);
        assert_eq!(sentences[0].kept(), [true, true, false]);
    }

    #[test]
    fn what_is_no_tree_is_one_line() {
        let cases = [
            (
                "1\tWe\t_\tPRON\t_\t_\t1\tnsubj\t_\t_\n\n",
                "a.conllu:1: the sentence is not a tree: 0 words have the head 0",
            ),
            (
                "1\tGo\t_\tVERB\t_\t_\t0\troot\t_\t_\n\n1\tWe\t_\tPRON\t_\t_\tx\tnsubj\t_\t_\n\n",
                "a.conllu:3: the sentence is not a tree: `head` is \"x\"",
            ),
            ("1\tWe\t_\tPRON\t_\t_\t_\tnsubj\t_\t_\n\n", "column `head` is `_`"),
            ("We PRON\n\n", "expected 10"),
        ];
        for (text, expected) in cases {
            let error = read_text(text).unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains('\n'), "{text}: {error}");
            assert!(!error.contains("on_bad_row"), "{text}: {error}");
        }
        assert!(read_text("").is_err());
    }
}
