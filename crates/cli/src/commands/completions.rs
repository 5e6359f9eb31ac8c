//! `cloze completions`.

use anyhow::Result;
use clap::CommandFactory;
use clap_complete::Shell;

use super::Cli;
use crate::output::Output;

/// Print a completion script for a shell.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  cloze completions bash > ~/.local/share/bash-completion/completions/cloze
  cloze completions zsh > ~/.zfunc/_cloze
  cloze completions fish > ~/.config/fish/completions/cloze.fish")]
pub struct Args {
    /// The shell.
    shell: Shell,
}

pub fn run(args: &Args) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "cloze", &mut script);
    let mut output = Output::new();
    output.line(String::from_utf8_lossy(&script).trim_end())?;
    output.flush()
}
