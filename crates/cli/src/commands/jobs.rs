//! `cloze jobs`: what can be done, with the command for each.

use anyhow::Result;
use clap::Command;

use crate::help;
use crate::output::Output;

/// List jobs, such as to search texts or to train on a spreadsheet, with the command for each.
///
/// Example: cloze jobs
///
/// `cloze help jobs` prints the list too.
#[derive(clap::Args)]
pub struct Args {}

/// Jobs of one kind.
struct Theme {
    title: &'static str,
    jobs: &'static [Job],
}

/// Something that a user wants to do.
struct Job {
    /// What: "to …".
    to: &'static str,
    /// The command line, or the command whose example it is.
    run: &'static str,
    /// The page of the book, in its folder `use`.
    page: &'static str,
}

/// The beginning of a command line for several processes.
const LAUNCHED: &str = "mpirun -n 4 cloze ";

const fn job(to: &'static str, run: &'static str, page: &'static str) -> Job {
    Job { to, run, page }
}

const THEMES: [Theme; 6] = [
    Theme {
        title: "Texts and their meaning",
        jobs: &[
            job("embed texts", "embed", "embed"),
            job("search them", "search index", "search"),
            job(
                "search a folder of Markdown and text files",
                "cloze search index --index my-notes --model sentence-transformers/all-MiniLM-L6-v2 notes",
                "search",
            ),
            job("find the texts nearest to a query", "search query", "search"),
            job("rerank candidates", "rerank", "rerank"),
            job("draw a map of texts", "map", "map"),
            job("measure embeddings", "eval-embeddings sts", "evaluate-embeddings"),
            job(
                "train an embedding model",
                "cloze train embedding --model sentence-transformers/all-MiniLM-L6-v2 --data datasets/questions.csv --columns text=question,pair=passage",
                "train-embeddings",
            ),
            job("mine hard negatives to train with", "mine-negatives", "rerank"),
        ],
    },
    Theme {
        title: "Classes, tags and answers",
        jobs: &[
            job(
                "train on a spreadsheet",
                "cloze train classification --model sentence-transformers/all-MiniLM-L6-v2 --data datasets/reviews.csv --columns text=review,label=sentiment --out runs/reviews",
                "tables",
            ),
            job(
                "label another",
                "cloze predict --model runs/reviews/model --columns text=review --input new.csv --output labelled.csv",
                "tables",
            ),
            job("measure a model on labelled rows", "eval", "tables"),
            job(
                "make a smaller model with a teacher",
                "cloze train runs/reviews/config.toml --set model.path=runs/reviews/model --set 'model.layers=[0,2,4]' --set 'distillation.teacher=\"runs/reviews/model\"' --out runs/small",
                "distil",
            ),
            job("take heads, neurons, layers or pieces out of a model", "prune", "prune"),
            job("store a model's weights in 8 or 4 bits", "quantize", "quantize"),
            job("look inside a model", "inspect", "inspect"),
            job(
                "tag words",
                "cloze train tagging --model sentence-transformers/all-MiniLM-L6-v2 --data datasets/people.conll --out runs/people",
                "tag",
            ),
            job(
                "answer questions",
                "cloze predict --model deepset/bert-base-cased-squad2 --input asked.jsonl --output answered.jsonl",
                "answer",
            ),
            job("classify images", "cloze train configs/digits-vit.toml", "images"),
            job("describe images", "cloze train configs/scenes-transformer.toml", "captions"),
            job("fine-tune with a configuration", "cloze train configs/reviews.toml", "fine-tune"),
            job("train and measure a model on GLUE", "glue", "glue"),
            job("disambiguate word senses", "senses train", "senses"),
            job("see what layers know", "cloze probe probe.toml", "probe"),
            job("make vectors of words", "lexicon build", "lexicon"),
            job("evaluate word vectors", "lexicon eval similarity", "lexicon"),
            job("see which tasks are alike", "transfer", "transfer"),
        ],
    },
    Theme {
        title: "Language models",
        jobs: &[
            job(
                "pretrain on your own text",
                "cloze train configs/bert-mini-corpus.toml --set 'corpus.files=[\"my/text/*.txt\"]'",
                "pretrain",
            ),
            job(
                "adapt an encoder to a domain",
                "cloze train configs/domain-mlm.toml --set model.path=google-bert/bert-base-uncased --set 'corpus.files=[\"my/text/*.txt\"]'",
                "domain",
            ),
            job("fill masks", "fill-mask", "pretrain"),
            job(
                "train a language model",
                "cloze train configs/llama-mini-corpus.toml --set 'corpus.files=[\"my/text/*.txt\"]'",
                "language-models",
            ),
            job("generate text", "generate", "language-models"),
            job("measure how well a model predicts texts", "perplexity", "language-models"),
            job("score sentences", "likelihood", "likelihood"),
            job("measure what a model knows", "knowledge pairs", "knowledge"),
            job(
                "pretrain an encoder–decoder",
                "cloze train configs/t5-mini-corpus.toml --set 'corpus.files=[\"my/text/*.txt\"]'",
                "denoising",
            ),
        ],
    },
    Theme {
        title: "Translation",
        jobs: &[
            job("train a translator", "cloze train configs/phrases-transformer.toml", "train-translator"),
            job("translate", "translate", "translate"),
            job("score translations", "score bleu", "score"),
        ],
    },
    Theme {
        title: "Models elsewhere",
        jobs: &[
            job(
                "exchange models with Python",
                "cloze convert --model google-bert/bert-base-uncased --out bert-bf16 --dtype bf16",
                "python",
            ),
            job("export a model to llama.cpp", "export gguf", "export"),
            job("use a model in ONNX Runtime", "export onnx", "export"),
            #[cfg(feature = "serve")]
            job("serve models over HTTP", "serve", "serve"),
            job("see which devices there are, and train on a GPU", "devices", "gpu"),
            job(
                "train on several machines",
                "mpirun -n 4 cloze train configs/bert-tiny-sample.toml --set train.shards=4",
                "ranks",
            ),
        ],
    },
    Theme {
        title: "Tokenizers",
        jobs: &[
            job("train a tokenizer", "tokenizer train", "tokenizers"),
            job("see how it splits texts", "tokenizer inspect", "tokenizers"),
            job("compare tokenizers", "tokenizer evaluate", "tokenizers"),
        ],
    },
];

/// The command line of a job.
fn line(job: &Job, program: &Command) -> String {
    let example = || {
        let names = job.run.split(' ');
        help::example(names.fold(program, |command, name| command.find_subcommand(name).unwrap_or(command)))
    };
    let own = ["cloze ", LAUNCHED].iter().any(|start| job.run.starts_with(start)).then(|| job.run.to_owned());
    own.or_else(example).unwrap_or_default()
}

/// The list of jobs; examples are those of `program`.
fn list(program: &Command) -> String {
    let job = |job: &Job| {
        let (to, page, line) = (job.to, job.page, help::broken(&line(job, program)));
        format!("  to {to} ({page}.md):\n  {}\n", line.replace('\n', "\n  "))
    };
    let theme = |theme: &Theme| {
        let jobs: String = theme.jobs.iter().map(job).collect();
        format!("{}\n{jobs}", theme.title)
    };
    let themes: Vec<String> = THEMES.iter().map(theme).collect();
    format!("{}\nThe pages are in the book's folder docs/src/use.", themes.join("\n"))
}

/// The program with the list in the help of `cloze jobs`.
pub fn listed(program: Command) -> Command {
    let list = list(&program);
    program.mut_subcommand("jobs", |jobs| {
        let about = jobs.get_long_about().map(ToString::to_string).unwrap_or_default();
        let purpose: Vec<&str> = about.split("\n\n").take(2).collect();
        jobs.long_about(format!("{}\n\n{list}", purpose.join("\n\n"))).help_template("{about}")
    })
}

pub fn run(_: &Args) -> Result<()> {
    let mut output = Output::new();
    output.line(list(&super::program()))?;
    output.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    #[test]
    fn jobs_are_those_of_the_readme_and_have_pages() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let program = super::super::program();
        let jobs: Vec<&Job> = THEMES.iter().flat_map(|theme| theme.jobs).collect();
        for job in &jobs {
            assert!(root.join(format!("docs/src/use/{}.md", job.page)).is_file(), "{}", job.page);
            let words = shlex::split(&line(job, &program)).unwrap();
            let words = words
                .into_iter()
                .skip_while(|word| word != "cloze")
                .take_while(|word| word != "<" && word != ">");
            let parsed = super::super::parser().try_get_matches_from(words);
            assert!(parsed.is_ok(), "{}: {}", job.to, parsed.unwrap_err());
        }
        for page in fs::read_dir(root.join("docs/src/use")).unwrap() {
            let page = page.unwrap().path();
            let name = page.file_stem().unwrap().to_str().unwrap();
            assert!(jobs.iter().any(|job| job.page == name), "no job for the page {name}.md");
        }
        // `| [to](docs/src/use/page.md) | `command` |`
        let readme = fs::read_to_string(root.join("README.md")).unwrap();
        let rows = readme.lines().filter_map(|row| row.strip_prefix("| [")?.split_once("](docs/src/use/"));
        let mut n = 0;
        for (to, rest) in rows {
            let (page, rest) = rest.split_once(".md) | `").unwrap();
            let command = rest.strip_suffix("` |").unwrap();
            let job = jobs.iter().find(|job| job.to == to).unwrap_or_else(|| panic!("no job to {to}"));
            assert_eq!(job.page, page, "{to}");
            assert_eq!(line(job, &program), command, "{to}");
            n += 1;
        }
        assert!(n > 10, "{n} rows");
    }

    #[test]
    fn the_list_is_also_the_help_of_jobs() {
        let help = super::super::parser().try_get_matches_from(["cloze", "help", "jobs"]).unwrap_err();
        let help = help.render().to_string();
        for part in ["Example:\n  cloze jobs", "  to draw a map of texts (map.md):\n    cloze map --model"] {
            assert!(help.contains(part), "{help}");
        }
        assert!(!help.contains("Usage:"), "{help}");
    }
}
