//! The tasks: their files, columns, labels and metrics.

use std::fmt;

/// A task of GLUE (Wang et al. 2019, Table 1), in the order of its leaderboard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum GlueTask {
    /// Whether a sentence is acceptable (Warstadt et al. 2019).
    Cola,
    /// The sentiment of a sentence (Socher et al. 2013).
    Sst2,
    /// Whether two sentences are paraphrases (Dolan & Brockett 2005).
    Mrpc,
    /// How similar two sentences are, from 0 to 5 (Cer et al. 2017).
    Stsb,
    /// Whether two questions are the same (Iyer et al. 2017).
    Qqp,
    /// Entailment, in genres of the training data and in others (Williams et al. 2018).
    Mnli,
    /// Whether a sentence answers a question (Rajpurkar et al. 2016).
    Qnli,
    /// Entailment (Dagan et al. 2006 and others).
    Rte,
    /// Whether a pronoun refers to a noun (Levesque et al. 2011).
    Wnli,
    /// The diagnostic set, which is answered by the model of [`Mnli`](Self::Mnli) and not part of the average.
    Ax,
}

/// What is known of a task.
pub(super) struct Facts {
    /// Its name on a command line.
    pub name: &'static str,
    /// Other spellings of that.
    pub aliases: &'static [&'static str],
    /// Its name in tables.
    pub title: &'static str,
    /// The names of its folder, the first of which exists.
    pub folders: &'static [&'static str],
    /// How its labelled files are read; none for a task without training data.
    pub labelled: Option<Labelled>,
    /// Its classes, in the order of the head's outputs; none for a number.
    pub labels: &'static [&'static str],
    /// Its metrics as [`Figures`](cloze_evaluation::figures::Figures) name them. The first one chooses the model.
    pub metrics: &'static [&'static str],
    /// Its test files.
    pub tests: &'static [Test],
}

/// Columns of a file without a header are numbers from 1.
pub(super) enum Place {
    Named(&'static str),
    Numbered(usize),
}

/// The training and development files of a task.
pub(super) struct Labelled {
    pub text: Place,
    pub pair: Option<Place>,
    pub label: Place,
    /// The development files, one for each part that is scored by itself, with its title.
    pub dev: &'static [(&'static str, &'static str)],
    /// Whether the distributed files are known to have broken rows, which are left out.
    pub has_broken_rows: bool,
}

/// A test file of a task.
pub(super) struct Test {
    /// Its name in the submission, without `.tsv`.
    pub title: &'static str,
    /// Its names in the task's folder, the first of which exists.
    pub files: &'static [&'static str],
    /// The column that numbers its rows.
    pub index: &'static str,
    /// Whether the column may be missing, as in the original MRPC: rows are then numbered from 0.
    pub index_is_optional: bool,
    pub text: &'static str,
    pub pair: Option<&'static str>,
    /// Rows of the file that GLUE distributes.
    pub rows: u64,
}

use Place::{Named, Numbered};

const YES_OR_NO: &[&str] = &["0", "1"];
const DEV: &str = "dev.tsv";
const TEST: &[&str] = &["test.tsv"];

static COLA: Facts = Facts {
    name: "cola",
    aliases: &[],
    title: "CoLA",
    folders: &["CoLA"],
    labelled: Some(Labelled {
        text: Numbered(4),
        pair: None,
        label: Numbered(2),
        dev: &[("CoLA", DEV)],
        has_broken_rows: false,
    }),
    labels: YES_OR_NO,
    metrics: &["matthews"],
    tests: &[Test {
        title: "CoLA",
        files: TEST,
        index: "index",
        index_is_optional: false,
        text: "sentence",
        pair: None,
        rows: 1_063,
    }],
};

static SST2: Facts = Facts {
    name: "sst2",
    aliases: &["sst-2"],
    title: "SST-2",
    folders: &["SST-2", "SST"],
    labelled: Some(Labelled {
        text: Named("sentence"),
        pair: None,
        label: Named("label"),
        dev: &[("SST-2", DEV)],
        has_broken_rows: false,
    }),
    labels: YES_OR_NO,
    metrics: &["accuracy"],
    tests: &[Test {
        title: "SST-2",
        files: TEST,
        index: "index",
        index_is_optional: false,
        text: "sentence",
        pair: None,
        rows: 1_821,
    }],
};

static MRPC: Facts = Facts {
    name: "mrpc",
    aliases: &[],
    title: "MRPC",
    folders: &["MRPC"],
    labelled: Some(Labelled {
        text: Named("#1 String"),
        pair: Some(Named("#2 String")),
        label: Named("Quality"),
        dev: &[("MRPC", DEV)],
        has_broken_rows: false,
    }),
    labels: YES_OR_NO,
    metrics: &["f1", "accuracy"],
    tests: &[Test {
        title: "MRPC",
        files: &["test.tsv", "msr_paraphrase_test.txt"],
        index: "index",
        index_is_optional: true,
        text: "#1 String",
        pair: Some("#2 String"),
        rows: 1_725,
    }],
};

static STSB: Facts = Facts {
    name: "stsb",
    aliases: &["sts-b"],
    title: "STS-B",
    folders: &["STS-B", "STS"],
    labelled: Some(Labelled {
        text: Named("sentence1"),
        pair: Some(Named("sentence2")),
        label: Named("score"),
        dev: &[("STS-B", DEV)],
        has_broken_rows: false,
    }),
    labels: &[],
    metrics: &["pearson", "spearman"],
    tests: &[Test {
        title: "STS-B",
        files: TEST,
        index: "index",
        index_is_optional: false,
        text: "sentence1",
        pair: Some("sentence2"),
        rows: 1_379,
    }],
};

static QQP: Facts = Facts {
    name: "qqp",
    aliases: &[],
    title: "QQP",
    folders: &["QQP"],
    labelled: Some(Labelled {
        text: Named("question1"),
        pair: Some(Named("question2")),
        label: Named("is_duplicate"),
        dev: &[("QQP", DEV)],
        has_broken_rows: true,
    }),
    labels: YES_OR_NO,
    metrics: &["f1", "accuracy"],
    tests: &[Test {
        title: "QQP",
        files: TEST,
        index: "id",
        index_is_optional: false,
        text: "question1",
        pair: Some("question2"),
        rows: 390_965,
    }],
};

static MNLI: Facts = Facts {
    name: "mnli",
    aliases: &[],
    title: "MNLI",
    folders: &["MNLI"],
    labelled: Some(Labelled {
        text: Named("sentence1"),
        pair: Some(Named("sentence2")),
        label: Named("gold_label"),
        dev: &[("MNLI-m", "dev_matched.tsv"), ("MNLI-mm", "dev_mismatched.tsv")],
        has_broken_rows: false,
    }),
    labels: &["entailment", "neutral", "contradiction"],
    metrics: &["accuracy"],
    tests: &[
        Test {
            title: "MNLI-m",
            files: &["test_matched.tsv"],
            index: "index",
            index_is_optional: false,
            text: "sentence1",
            pair: Some("sentence2"),
            rows: 9_796,
        },
        Test {
            title: "MNLI-mm",
            files: &["test_mismatched.tsv"],
            index: "index",
            index_is_optional: false,
            text: "sentence1",
            pair: Some("sentence2"),
            rows: 9_847,
        },
    ],
};

static QNLI: Facts = Facts {
    name: "qnli",
    aliases: &[],
    title: "QNLI",
    folders: &["QNLI"],
    labelled: Some(Labelled {
        text: Named("question"),
        pair: Some(Named("sentence")),
        label: Named("label"),
        dev: &[("QNLI", DEV)],
        has_broken_rows: false,
    }),
    labels: &["entailment", "not_entailment"],
    metrics: &["accuracy"],
    tests: &[Test {
        title: "QNLI",
        files: TEST,
        index: "index",
        index_is_optional: false,
        text: "question",
        pair: Some("sentence"),
        rows: 5_463,
    }],
};

static RTE: Facts = Facts {
    name: "rte",
    aliases: &[],
    title: "RTE",
    folders: &["RTE"],
    labelled: Some(Labelled {
        text: Named("sentence1"),
        pair: Some(Named("sentence2")),
        label: Named("label"),
        dev: &[("RTE", DEV)],
        has_broken_rows: false,
    }),
    labels: &["entailment", "not_entailment"],
    metrics: &["accuracy"],
    tests: &[Test {
        title: "RTE",
        files: TEST,
        index: "index",
        index_is_optional: false,
        text: "sentence1",
        pair: Some("sentence2"),
        rows: 3_000,
    }],
};

static WNLI: Facts = Facts {
    name: "wnli",
    aliases: &[],
    title: "WNLI",
    folders: &["WNLI"],
    labelled: Some(Labelled {
        text: Named("sentence1"),
        pair: Some(Named("sentence2")),
        label: Named("label"),
        dev: &[("WNLI", DEV)],
        has_broken_rows: false,
    }),
    labels: YES_OR_NO,
    metrics: &["accuracy"],
    tests: &[Test {
        title: "WNLI",
        files: TEST,
        index: "index",
        index_is_optional: false,
        text: "sentence1",
        pair: Some("sentence2"),
        rows: 146,
    }],
};

static AX: Facts = Facts {
    name: "ax",
    aliases: &["diagnostic"],
    title: "AX",
    folders: &["AX", "diagnostic"],
    labelled: None,
    labels: &["entailment", "neutral", "contradiction"],
    metrics: &[],
    tests: &[Test {
        title: "AX",
        files: &["AX.tsv", "diagnostic.tsv"],
        index: "index",
        index_is_optional: false,
        text: "sentence1",
        pair: Some("sentence2"),
        rows: 1_104,
    }],
};

impl GlueTask {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Cola,
        Self::Sst2,
        Self::Mrpc,
        Self::Stsb,
        Self::Qqp,
        Self::Mnli,
        Self::Qnli,
        Self::Rte,
        Self::Wnli,
        Self::Ax,
    ];

    pub(super) fn facts(self) -> &'static Facts {
        match self {
            Self::Cola => &COLA,
            Self::Sst2 => &SST2,
            Self::Mrpc => &MRPC,
            Self::Stsb => &STSB,
            Self::Qqp => &QQP,
            Self::Mnli => &MNLI,
            Self::Qnli => &QNLI,
            Self::Rte => &RTE,
            Self::Wnli => &WNLI,
            Self::Ax => &AX,
        }
    }

    /// Its name on a command line, such as `sst2`.
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// Its name in tables, such as `SST-2`.
    pub fn title(self) -> &'static str {
        self.facts().title
    }

    /// The task of a name, in any case: its [name](Self::name) or another usual spelling.
    pub fn named(name: &str) -> Option<Self> {
        let name = name.to_lowercase();
        Self::ALL.into_iter().find(|task| {
            let facts = task.facts();
            facts.name == name || facts.aliases.contains(&&*name)
        })
    }

    /// Whether it has training data of its own: all but the diagnostic set have.
    pub fn is_trained(self) -> bool {
        self.facts().labelled.is_some()
    }

    /// The task whose model answers its tests.
    pub fn answered_by(self) -> Self {
        match self {
            Self::Ax => Self::Mnli,
            task => task,
        }
    }

    /// Its metrics, as [`Figures`](cloze_evaluation::figures::Figures) name them.
    pub fn metrics(self) -> &'static [&'static str] {
        self.facts().metrics
    }
}

impl fmt::Display for GlueTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.title())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_belong_to_one_task() {
        for task in GlueTask::ALL {
            assert_eq!(GlueTask::named(task.name()), Some(task));
            assert_eq!(GlueTask::named(task.title()), Some(task));
        }
        assert_eq!(GlueTask::named("STS-b"), Some(GlueTask::Stsb));
        assert_eq!(GlueTask::named("diagnostic"), Some(GlueTask::Ax));
        assert_eq!(GlueTask::named("snli"), None);
    }

    #[test]
    fn the_site_gets_eleven_files() {
        // The names and row counts of the site's sample submission.
        let rows: BTreeSet<(&str, u64)> = GlueTask::ALL
            .into_iter()
            .flat_map(|task| task.facts().tests.iter().map(|test| (test.title, test.rows)))
            .collect();
        let expected = [
            ("AX", 1_104),
            ("CoLA", 1_063),
            ("MNLI-m", 9_796),
            ("MNLI-mm", 9_847),
            ("MRPC", 1_725),
            ("QNLI", 5_463),
            ("QQP", 390_965),
            ("RTE", 3_000),
            ("SST-2", 1_821),
            ("STS-B", 1_379),
            ("WNLI", 146),
        ];
        assert_eq!(rows, BTreeSet::from(expected));
    }
}
