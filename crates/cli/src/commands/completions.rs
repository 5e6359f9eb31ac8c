//! `cloze completions`.

use anyhow::Result;
use clap_complete::Shell;

use crate::output::Output;

/// Print a completion script for a shell.
///
/// Example: cloze completions bash > ~/.local/share/bash-completion/completions/cloze
#[derive(clap::Args)]
#[command(after_long_help = "\
More examples:
  cloze completions zsh > ~/.zfunc/_cloze
  cloze completions fish > ~/.config/fish/completions/cloze.fish")]
pub struct Args {
    /// The shell.
    shell: Shell,
}

pub fn run(args: &Args) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut super::parser(), "cloze", &mut script);
    let mut output = Output::new();
    output.line(String::from_utf8_lossy(&script).trim_end())?;
    output.flush()
}
