//! The hub as configured by the environment, with progress on standard error.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use anyhow::Result;
use cloze_hub::{Model, ModelName, Progress};
use indicatif::HumanBytes;

use crate::output::say;
use crate::progress::{LiveLine, live_line};

/// The environment variables, for `--help`.
pub const ENVIRONMENT: &str = "\
Environment:
  HF_HOME         where models, unpacked GGUF files and the token are kept (default: ~/.cache/huggingface)
  HF_HUB_CACHE    where models are kept (default: HF_HOME/hub)
  HF_ENDPOINT     the server (default: https://huggingface.co)
  HF_TOKEN        the token for private and gated models (default: the file HF_TOKEN_PATH or HF_HOME/token)
  HF_HUB_OFFLINE  1: ask no server, take what the cache has
  HTTPS_PROXY     the way to the server; also ALL_PROXY, HTTP_PROXY, NO_PROXY";

/// The folder of the model `name`, downloaded if needed.
pub fn fetch(name: &ModelName) -> Result<Model> {
    with_progress(|progress| cloze::names::fetch(name, progress))
}

/// Runs `download` with a progress display.
pub fn with_progress<T>(download: impl FnOnce(&mut dyn Progress) -> cloze::Result<T>) -> Result<T> {
    let mut progress = DownloadProgress::new();
    let done = download(&mut progress);
    progress.finish();
    Ok(done?)
}

/// Download progress on standard error: a live line on a terminal, else a line for each file and one every few
/// seconds.
struct DownloadProgress {
    file: String,
    shown: Instant,
    live: Option<LiveLine>,
}

impl DownloadProgress {
    const EVERY: Duration = Duration::from_secs(5);

    fn new() -> Self {
        let template = "{bar:10.cyan/blue} {binary_bytes_per_sec} · {wide_msg}";
        let live = io::stderr().is_terminal().then(|| live_line(template));
        Self { file: String::new(), shown: Instant::now(), live }
    }

    fn finish(&self) {
        if let Some(live) = &self.live {
            live.bar.finish_and_clear();
        }
    }
}

impl Progress for DownloadProgress {
    fn file(&mut self, name: &str) {
        self.file = name.to_string();
        self.shown = Instant::now();
        match &mut self.live {
            Some(live) => live.begin().reset(),
            None => say(format_args!("downloading {name}")),
        }
    }

    fn at(&mut self, have: u64, len: Option<u64>) {
        let of = len.map(|len| format!(" of {}", HumanBytes(len))).unwrap_or_default();
        let message = format!("{} · {}{of}", self.file, HumanBytes(have));
        if let Some(live) = &mut self.live {
            if let Some(len) = len {
                live.begin().set_length(len);
            }
            live.begin().set_position(have);
            live.show(message);
        } else if self.shown.elapsed() >= Self::EVERY {
            self.shown = Instant::now();
            say(message);
        }
    }

    fn note(&mut self, line: &str) {
        say(line);
    }
}
