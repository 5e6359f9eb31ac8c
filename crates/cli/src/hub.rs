//! The hub as the environment sets it up, with progress on standard error.

use std::env;
use std::fs;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use cloze_hub::{Hub, HubConfig, Model, ModelName, Progress, Proxy};
use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::output::say;

/// The variables that are read, for `--help`.
pub const ENVIRONMENT: &str = "\
Environment:
  HF_HOME         where models and the token are kept (default: ~/.cache/huggingface)
  HF_HUB_CACHE    where models are kept (default: HF_HOME/hub)
  HF_ENDPOINT     the server (default: https://huggingface.co)
  HF_TOKEN        the token for private and gated models (default: the file HF_TOKEN_PATH or HF_HOME/token)
  HF_HUB_OFFLINE  1: ask no server, take what the cache has
  HTTPS_PROXY     the way to the server; also ALL_PROXY, HTTP_PROXY, NO_PROXY";

/// The folder of the model `name`, downloaded if need be.
pub fn fetch(name: &ModelName) -> Result<Model> {
    let hub = Hub::new(config(|key| env::var(key).ok())?)?;
    let mut progress = DownloadProgress::new();
    let model = hub.fetch(name, &mut progress);
    progress.finish();
    Ok(model?)
}

/// The configuration that the environment's variables give, named as Python's `huggingface_hub` has them.
fn config(variable: impl Fn(&str) -> Option<String>) -> Result<HubConfig> {
    let given = |key: &str| variable(key).filter(|value| !value.trim().is_empty());
    let home = match given("HF_HOME") {
        Some(home) => PathBuf::from(home),
        None => match given("XDG_CACHE_HOME") {
            Some(cache) => PathBuf::from(cache),
            None => env::home_dir().context("no home folder to keep models in: set HF_HOME")?.join(".cache"),
        }
        .join("huggingface"),
    };
    let cache = given("HF_HUB_CACHE").or_else(|| given("HUGGINGFACE_HUB_CACHE"));
    let cache = cache.map_or_else(|| home.join("hub"), PathBuf::from);
    let token = given("HF_TOKEN").or_else(|| given("HUGGING_FACE_HUB_TOKEN")).or_else(|| {
        let path = given("HF_TOKEN_PATH").map_or_else(|| home.join("token"), PathBuf::from);
        fs::read_to_string(path).ok()
    });
    // A cut that a copied token brings along would be a header's end.
    let token = token.map(|token| token.trim().to_string()).filter(|token| !token.is_empty());
    let is_set =
        |key| given(key).is_some_and(|value| matches!(&*value.to_uppercase(), "1" | "ON" | "YES" | "TRUE"));
    let mut config = HubConfig::new(cache);
    if let Some(endpoint) = given("HF_ENDPOINT") {
        config.endpoint = endpoint;
    }
    config.token = token;
    config.offline = is_set("HF_HUB_OFFLINE") || is_set("TRANSFORMERS_OFFLINE");
    config.proxy = Proxy::try_from_env();
    Ok(config)
}

/// What is being downloaded, on standard error: a live line on a terminal, else a line for each file and then
/// one every few seconds.
struct DownloadProgress {
    file: String,
    shown: Instant,
    live: Option<ProgressBar>,
}

impl DownloadProgress {
    const EVERY: Duration = Duration::from_secs(5);

    fn new() -> Self {
        let live = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
            match ProgressStyle::with_template("{bar:10.cyan/blue} {binary_bytes_per_sec} · {wide_msg}") {
                Ok(style) => bar.with_style(style),
                Err(_) => bar,
            }
        });
        Self { file: String::new(), shown: Instant::now(), live }
    }

    fn line(&self, text: &str) {
        match &self.live {
            Some(bar) => bar.suspend(|| say(text)),
            None => say(text),
        }
    }

    fn finish(&self) {
        if let Some(bar) = &self.live {
            bar.finish_and_clear();
        }
    }
}

impl Progress for DownloadProgress {
    fn file(&mut self, name: &str) {
        self.file = name.to_string();
        self.shown = Instant::now();
        match &self.live {
            Some(bar) => bar.reset(),
            None => say(format_args!("downloading {name}")),
        }
    }

    fn at(&mut self, have: u64, len: Option<u64>) {
        let of = len.map(|len| format!(" of {}", HumanBytes(len))).unwrap_or_default();
        let message = format!("{} · {}{of}", self.file, HumanBytes(have));
        if let Some(bar) = &self.live {
            if let Some(len) = len {
                bar.set_length(len);
            }
            bar.set_position(have);
            bar.set_message(message);
        } else if self.shown.elapsed() >= Self::EVERY {
            self.shown = Instant::now();
            say(message);
        }
    }

    fn note(&mut self, line: &str) {
        self.line(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &[(&str, &str)]) -> HubConfig {
        config(|key| variables.iter().find(|(name, _)| *name == key).map(|(_, value)| value.to_string()))
            .unwrap()
    }

    #[test]
    fn the_environment_is_huggingface_hubs() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().to_str().unwrap();
        let none = with(&[("HF_HOME", home)]);
        assert_eq!(none.cache, folder.path().join("hub"));
        assert_eq!((none.token, none.offline, &*none.endpoint), (None, false, "https://huggingface.co"));
        assert_eq!(with(&[("XDG_CACHE_HOME", home)]).cache, folder.path().join("huggingface/hub"));
        assert!(with(&[]).cache.ends_with(".cache/huggingface/hub"));
        assert_eq!(with(&[("HF_HUB_CACHE", "x")]).cache, PathBuf::from("x"));

        fs::write(folder.path().join("token"), "hf_file\n").unwrap();
        assert_eq!(with(&[("HF_HOME", home)]).token.unwrap(), "hf_file");
        assert_eq!(with(&[("HF_HOME", home), ("HF_TOKEN", " hf_env ")]).token.unwrap(), "hf_env");
        for (value, offline) in [("1", true), ("true", true), ("0", false), ("", false)] {
            assert_eq!(with(&[("HF_HUB_OFFLINE", value)]).offline, offline, "{value}");
        }
        assert_eq!(with(&[("HF_ENDPOINT", "http://x")]).endpoint, "http://x");
    }
}
