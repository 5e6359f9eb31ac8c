//! The layout of `--help`: what a command is for, an example, and then the rest.
//!
//! A command's documentation has the example in its second paragraph, as `Example: cloze …` with the command
//! on one line, whatever lines the source has.

use clap::Command;

/// What begins the paragraph of an example.
const EXAMPLE: &str = "Example: ";

/// The longest line of an example: narrower than usual terminals, so that none breaks it elsewhere.
const WIDTH: usize = 78;

/// Lays out the help of a command and its subcommands.
pub fn laid_out(command: Command) -> Command {
    let command = command.mut_subcommands(laid_out);
    let Some(about) = command.get_long_about().map(ToString::to_string) else { return command };
    let header = *command.get_styles().get_header();
    let paragraphs = about.split("\n\n").map(|paragraph| match paragraph.strip_prefix(EXAMPLE) {
        Some(example) => format!("{header}Example:{header:#}\n{}", broken(example)),
        None => paragraph.to_owned(),
    });
    let about = paragraphs.collect::<Vec<_>>().join("\n\n");
    command.long_about(about)
}

/// The example in a command's documentation.
pub fn example(command: &Command) -> Option<String> {
    let about = command.get_long_about()?.to_string();
    about.split("\n\n").nth(1)?.strip_prefix(EXAMPLE).map(str::to_owned)
}

/// A command line, indented and continued on further lines where it is long. An option stays with its value.
pub fn broken(line: &str) -> String {
    let mut parts: Vec<String> = Vec::new();
    for word in words(line) {
        let is_value = |part: &String| {
            let takes_one = part.starts_with('-') || matches!(part.as_str(), "<" | ">" | "|");
            takes_one && !part.contains(' ') && !word.starts_with(['-', '<', '>', '|'])
        };
        match parts.last_mut().filter(|part| is_value(part)) {
            Some(part) => *part = format!("{part} {word}"),
            None => parts.push(word.to_owned()),
        }
    }
    let (mut text, mut width) = (String::from(" "), 1);
    for part in parts {
        let n = part.chars().count();
        // A backslash follows.
        if width + 1 + n + 2 > WIDTH && width > 1 {
            text.push_str(" \\\n     ");
            width = 5;
        }
        text.push(' ');
        text.push_str(&part);
        width += 1 + n;
    }
    text
}

/// The words between the spaces of a shell's command line, with their quotation marks.
fn words(line: &str) -> Vec<&str> {
    let mut quote = None;
    let is_end = |c: char| {
        match quote {
            Some(open) if open == c => quote = None,
            None if matches!(c, '\'' | '"') => quote = Some(c),
            _ => {}
        }
        c == ' ' && quote.is_none()
    };
    line.split(is_end).filter(|word| !word.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::{parser, program};

    /// The words that a shell passes to the first `cloze` of a line, and all of them.
    fn commands(line: &str) -> Vec<Vec<String>> {
        let words = shlex::split(line).unwrap();
        let parts = words.split(|word| word == "|");
        let cloze = parts.map(|part| {
            let is_redirection = |word: &String| word == "<" || word == ">";
            part.iter().take_while(|word| !is_redirection(word)).cloned().collect::<Vec<_>>()
        });
        cloze.filter(|words| words.first().is_some_and(|word| word == "cloze")).collect()
    }

    /// The names of the subcommands that a command line runs, without the program's; checks that it parses.
    fn path(words: &[String]) -> Vec<String> {
        let matches =
            parser().try_get_matches_from(words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
        let (mut at, mut path) = (&matches, Vec::new());
        while let Some((name, inner)) = at.subcommand() {
            path.push(name.to_owned());
            at = inner;
        }
        path
    }

    fn check(command: &Command, place: &[&str]) {
        let name = place.join(" ");
        let example = example(command).unwrap_or_else(|| panic!("`cloze {name}` has no example"));
        let first = command.get_long_about().unwrap().to_string();
        let purpose = first.split("\n\n").next().unwrap();
        let n_sentences = purpose.replace("et al. ", "").matches(". ").count() + 1;
        assert!(n_sentences <= 2, "`cloze {name}`: more than two sentences: {purpose}");
        let words = commands(&example);
        assert_eq!(words.len(), 1, "`cloze {name}`: {example}");
        let found = path(&words[0]);
        match command.has_subcommands() {
            true => assert!(found.iter().zip(place).all(|(a, b)| a == b), "`cloze {name}`: {example}"),
            false => assert_eq!(found, place, "`cloze {name}`: {example}"),
        }
        for subcommand in command.get_subcommands() {
            check(subcommand, &[place, &[subcommand.get_name()]].concat());
        }
    }

    #[test]
    fn every_command_has_an_example_that_runs_it() {
        check(&program(), &[]);
    }

    #[test]
    fn help_begins_with_the_purpose_and_the_example() {
        let mut parser = parser();
        parser.build();
        let search = parser.find_subcommand_mut("search").unwrap();
        let help = search.find_subcommand_mut("index").unwrap().render_long_help().to_string();
        let lines: Vec<&str> = help.lines().collect();
        assert!(lines[0].starts_with("Build an index"), "{help}");
        assert_eq!(&lines[1..3], ["", "Example:"]);
        assert!(lines[3].starts_with("  cloze search index --index my-index"), "{help}");
        assert!(lines[3].ends_with(" \\") && lines[4].starts_with("      "), "{help}");
    }

    #[test]
    fn more_examples_can_be_parsed_too() {
        let mut n = 0;
        let mut rest = vec![program()];
        while let Some(command) = rest.pop() {
            let more = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
            let lines = more.replace(" \\\n", " ").replace("|\n", "| ");
            for line in lines.lines().filter(|line| line.starts_with("  ") && line.contains("cloze ")) {
                for words in commands(line.trim()) {
                    path(&words);
                    n += 1;
                }
            }
            rest.extend(command.get_subcommands().cloned());
        }
        assert!(n > 30, "{n} examples");
    }

    #[test]
    fn long_examples_are_broken_between_words() {
        assert_eq!(broken("cloze devices"), "  cloze devices");
        let line = format!("cloze generate --model {} 'two words' > {}", "m".repeat(50), "x".repeat(20));
        let broken = broken(&line);
        assert!(broken.lines().all(|line| line.chars().count() <= WIDTH), "{broken}");
        assert_eq!(broken.lines().count(), 2);
        // As a shell joins lines.
        assert_eq!(shlex::split(&broken.replace("\\\n", "")), shlex::split(&line));
        assert!(broken.contains("> xxx"), "{broken}");
    }
}
