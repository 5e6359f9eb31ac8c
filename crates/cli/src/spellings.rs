//! Renamed options. Old names still work, as hidden aliases, and a note on standard error gives the new one.

use std::ffi::OsString;
use std::sync::OnceLock;

use clap::Command;

use crate::output::say;

/// Commands, an option's old name, and its new one, with a value where that is written differently.
const RENAMED: [(&[&str], &str, &str); 6] = [
    (&["rerank"], "--top", "--top-k"),
    (&["generate"], "--n", "--n-best"),
    (&["translate"], "--max-len", "--max-new"),
    (&["translate"], "--min-len", "--min-new"),
    (
        &[
            "map",
            "search index",
            "search add",
            "eval-embeddings sts",
            "eval-embeddings pairs",
            "eval-embeddings clustering",
            "eval-embeddings classification",
            "mine-negatives",
            "tokenizer train",
        ],
        "--format",
        "--input-format",
    ),
    // Its value has another form, so it is rewritten before the line is parsed.
    (&["tokenizer train"], "--text-column", "--columns text=NAME"),
];

/// The command line: the words before `--`.
static LINE: OnceLock<Vec<String>> = OnceLock::new();

/// The parser with the old names, which help and completions do not show.
pub fn with_old_names(program: Command) -> Command {
    let plain = RENAMED.into_iter().filter(|(_, _, new)| !new.contains(' '));
    let plain =
        plain.flat_map(|(commands, old, new)| commands.iter().map(move |command| (*command, old, new)));
    plain.fold(program, |program, (path, old, new)| {
        let path: Vec<&str> = path.split(' ').collect();
        at(program, &path, &|command| alias(command, old, new))
    })
}

/// Changes the subcommand with this path.
fn at(command: Command, path: &[&str], change: &dyn Fn(Command) -> Command) -> Command {
    match path {
        [] => change(command),
        [name, rest @ ..] => command.mut_subcommand(name, |command| at(command, rest, change)),
    }
}

/// Gives the option `new` the hidden alias `old`.
fn alias(command: Command, old: &'static str, new: &str) -> Command {
    let id =
        command.get_arguments().find(|arg| arg.get_long() == Some(&new[2..])).map(|arg| arg.get_id().clone());
    match id {
        Some(id) => command.mut_arg(id, |arg| arg.alias(&old[2..])),
        None => command,
    }
}

/// Keeps the command line for messages about it.
pub fn read(args: &[OsString]) {
    LINE.get_or_init(|| line(args));
}

/// The words of a command line, where old options whose values have another form now are replaced.
pub fn rewritten(words: &[OsString]) -> Vec<OsString> {
    let of_line = line(words);
    let old =
        renamed(&of_line).filter_map(|(old, new)| Some((old, new.strip_suffix("NAME")?.split_once(' ')?)));
    let mut words = words.to_vec();
    for (old, (new, prefix)) in old {
        for i in 1..of_line.len() + 1 {
            let Some(rest) = words[i].to_str().and_then(|word| word.strip_prefix(old)).map(str::to_owned)
            else {
                continue;
            };
            if let Some(value) = rest.strip_prefix('=') {
                words[i] = format!("{new}={prefix}{value}").into();
            } else if rest.is_empty() && i + 1 < words.len() {
                words[i] = new.into();
                let mut value = OsString::from(prefix);
                value.push(&words[i + 1]);
                words[i + 1] = value;
            }
        }
    }
    words
}

/// Prints the new spelling of each old one in the command line.
pub fn tell() {
    let line = LINE.get().map_or(&[][..], Vec::as_slice);
    renamed(line).for_each(|(old, new)| say(format_args!("note: {old} is called {new} now")));
}

/// The parser's message, which names options by their new spelling, with those that the command line has.
pub fn in_message(message: &str) -> String {
    let line = LINE.get().map_or(&[][..], Vec::as_slice);
    renamed(line).fold(message.to_owned(), |message, (old, new)| {
        message
            .replace(&format!("'{new} "), &format!("'{old} "))
            .replace(&format!("'{new}'"), &format!("'{old}'"))
    })
}

/// An option as the command line has it, in the old spelling or the new one; none if it was not given.
pub fn as_typed(option: &str) -> Option<String> {
    let line = LINE.get()?;
    if line.iter().any(|arg| is_option(arg, option)) {
        return Some(option.to_owned());
    }
    renamed(line).find(|(_, new)| *new == option).map(|(old, _)| old.to_owned())
}

/// The words of a command line that are not its program or texts after `--`.
fn line(args: &[OsString]) -> Vec<String> {
    let words = args.iter().skip(1).map(|arg| arg.to_string_lossy().into_owned());
    words.take_while(|arg| arg != "--").collect()
}

/// Whether a word is this option, alone or with its value.
fn is_option(word: &str, option: &str) -> bool {
    word.strip_prefix(option).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
}

/// Old names in a command line, with the new ones.
fn renamed(line: &[String]) -> impl Iterator<Item = (&'static str, &'static str)> {
    let command =
        line.iter().take_while(|arg| !arg.starts_with('-')).map(String::as_str).collect::<Vec<_>>().join(" ");
    let is_of = move |name: &&str| {
        command.strip_prefix(*name).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    };
    let here = RENAMED.into_iter().filter(move |(commands, old, _)| {
        commands.iter().any(&is_of) && line.iter().any(|arg| is_option(arg, old))
    });
    here.map(|(_, old, new)| (old, new))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::parser;

    fn found(line: &str) -> Vec<(&'static str, &'static str)> {
        renamed(&super::line(&line.split(' ').map(OsString::from).collect::<Vec<_>>())).collect()
    }

    #[test]
    fn old_names_are_told_of_where_they_stand() {
        assert_eq!(found("cloze rerank --top 3"), [("--top", "--top-k")]);
        assert_eq!(found("cloze rerank --top=3 --model m"), [("--top", "--top-k")]);
        assert_eq!(found("cloze search index --format csv"), [("--format", "--input-format")]);
        assert_eq!(found("cloze tokenizer train --format jsonl"), [("--format", "--input-format")]);
        assert_eq!(
            found("cloze tokenizer train --text-column t"),
            [("--text-column", "--columns text=NAME")]
        );
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
    fn values_of_old_options_get_their_new_form() {
        let line = |line: &str| {
            rewritten(&line.split(' ').map(OsString::from).collect::<Vec<_>>()).join(" ".as_ref())
        };
        for (old, new) in [
            ("cloze tokenizer train --text-column a b", "cloze tokenizer train --columns text=a b"),
            (
                "cloze tokenizer train --text-column=a -- --text-column",
                "cloze tokenizer train --columns=text=a -- --text-column",
            ),
            ("cloze tokenizer train --text-column", "cloze tokenizer train --text-column"),
            ("cloze embed --text-column a", "cloze embed --text-column a"),
        ] {
            assert_eq!(line(old), new);
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
            "cloze tokenizer train --model bpe --vocab-size 9 --out o --format text f",
            "cloze tokenizer train --model bpe --vocab-size 9 --out o --text-column body f",
        ] {
            assert!(!found(line).is_empty(), "{line}");
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert!(parser().try_get_matches_from(rewritten(&words)).is_ok(), "{line}");
        }
        for (commands, old, new) in RENAMED {
            for command in commands {
                let all = parser();
                let of = command.split(' ').fold(&all, |of, name| of.find_subcommand(name).unwrap());
                let names: Vec<&str> = of.get_arguments().filter_map(|arg| arg.get_long()).collect();
                let new = new.split(' ').next().unwrap();
                assert!(
                    names.contains(&&new[2..]) && !names.contains(&&old[2..]),
                    "{command} {old}: {names:?}"
                );
            }
        }
    }
}
