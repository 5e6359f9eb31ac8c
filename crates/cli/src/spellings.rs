//! Renamed options. Old names still work, as hidden clap aliases, and a note on standard error gives the new
//! one.

use std::ffi::OsString;

use crate::output::say;

/// Commands, an option's old name, and its new one.
const RENAMED: [(&[&str], &str, &str); 5] = [
    (&["rerank"], "--top", "--top-k"),
    (&["generate"], "--n", "--n-best"),
    (&["translate"], "--max-len", "--max-new"),
    (&["translate"], "--min-len", "--min-new"),
    (
        &["map", "search", "eval-embeddings", "mine-negatives", "tokenizer train"],
        "--format",
        "--input-format",
    ),
];

/// Prints the new spelling of each old one in a valid command line.
pub fn tell(args: &[OsString]) {
    renamed(args).for_each(|(old, new)| say(format_args!("note: {old} is called {new} now")));
}

/// Old names in a command line, with the new ones.
fn renamed(args: &[OsString]) -> impl Iterator<Item = (&'static str, &'static str)> {
    let args: Vec<&str> =
        args.iter().skip(1).map_while(|arg| arg.to_str().filter(|arg| *arg != "--")).collect();
    let command = args.iter().take_while(|arg| !arg.starts_with('-')).copied().collect::<Vec<_>>().join(" ");
    let is_of = move |name: &&str| {
        command.strip_prefix(*name).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    };
    let is_used = move |old: &str| {
        args.iter()
            .any(|arg| arg.strip_prefix(old).is_some_and(|rest| rest.is_empty() || rest.starts_with('=')))
    };
    let here =
        RENAMED.into_iter().filter(move |(commands, old, _)| commands.iter().any(&is_of) && is_used(old));
    here.map(|(_, old, new)| (old, new))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::Cli;
    use clap::{CommandFactory, Parser};

    fn found(line: &str) -> Vec<(&'static str, &'static str)> {
        renamed(&line.split(' ').map(OsString::from).collect::<Vec<_>>()).collect()
    }

    #[test]
    fn old_names_are_told_of_where_they_stand() {
        assert_eq!(found("cloze rerank --top 3"), [("--top", "--top-k")]);
        assert_eq!(found("cloze rerank --top=3 --model m"), [("--top", "--top-k")]);
        assert_eq!(found("cloze search index --format csv"), [("--format", "--input-format")]);
        assert_eq!(found("cloze tokenizer train --format jsonl"), [("--format", "--input-format")]);
        for line in [
            "cloze rerank --top-k 3",
            "cloze tokenizer encode --format npy",
            "cloze generate -- --n",
            "cloze",
        ] {
            assert_eq!(found(line), [], "{line}");
        }
    }

    #[test]
    fn old_names_still_work_and_new_ones_are_shown() {
        for line in [
            "cloze rerank --model m --top 3",
            "cloze generate --model m --n 2",
            "cloze translate --model m --max-len 4 --min-len 2",
            "cloze map --model m --format csv f",
            "cloze search index --index i --model m --format csv f",
            "cloze eval-embeddings sts --model m --format csv f",
            "cloze mine-negatives --model m --format csv f",
            "cloze tokenizer train --model bpe --vocab-size 9 --out o --format jsonl f",
        ] {
            assert!(!found(line).is_empty(), "{line}");
            assert!(Cli::try_parse_from(line.split(' ')).is_ok(), "{line}");
        }
        for (commands, old, new) in RENAMED {
            for command in commands {
                let all = Cli::command();
                let of = command.split(' ').fold(&all, |of, name| of.find_subcommand(name).unwrap());
                let mut all = vec![of];
                all.extend(of.get_subcommands());
                let names: Vec<&str> =
                    all.iter().flat_map(|of| of.get_arguments()).filter_map(|arg| arg.get_long()).collect();
                assert!(
                    names.contains(&&new[2..]) && !names.contains(&&old[2..]),
                    "{command} {old}: {names:?}"
                );
            }
        }
    }
}
