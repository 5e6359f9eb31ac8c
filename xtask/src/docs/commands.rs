//! The page of all commands, made of what each says of itself.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The page, with a section for each command.
pub fn page(program: &Path) -> Result<String> {
    let mut page = String::from("# Every command\n\nMade of each command's `--help`.\n");
    section(program, &[], &mut page)?;
    Ok(page)
}

/// A command's section, and those of its subcommands.
fn section(program: &Path, command: &[String], page: &mut String) -> Result<()> {
    let help = Command::new(program).args(command).arg("--help").env("COLUMNS", "100").output();
    let help = help.with_context(|| format!("cannot run {}", program.display()))?;
    ensure!(help.status.success(), "`cloze {} --help` failed", command.join(" "));
    let help = String::from_utf8(help.stdout).context("help is text")?;
    let name = ["cloze"].into_iter().chain(command.iter().map(String::as_str)).collect::<Vec<_>>().join(" ");
    write!(page, "\n## `{name}`\n\n```text\n{}\n```\n", help.trim_end())?;
    for subcommand in subcommands(&help) {
        section(program, &[command, &[subcommand]].concat(), page)?;
    }
    Ok(())
}

/// The names under `Commands:`.
fn subcommands(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let named = lines.take_while(|line| line.starts_with("  "));
    let names =
        named.filter(|line| !line.starts_with("   ")).filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subcommands_are_those_that_help_lists() {
        let help = "Usage: cloze tokenizer <COMMAND>\n\nCommands:\n  train   Train one,\n          on text\n  encode  \
                    Encode\n  help    Print this\n\nOptions:\n  -h  Help\n";
        assert_eq!(subcommands(help), ["train", "encode"]);
        assert_eq!(subcommands("Usage: cloze pull NAME\n"), [""; 0]);
    }
}
