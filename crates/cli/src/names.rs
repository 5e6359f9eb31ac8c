//! Models by name: a folder, a GGUF file, or a model on the hub.

use std::env;
#[cfg(feature = "hub")]
use std::fs;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

#[cfg(feature = "hub")]
use cloze_hub::{Hub, HubConfig, Model, ModelName, Progress, Proxy, Source};

use crate::{Error, Result};

/// The folder of the model `name`: a folder in Hugging Face's format, a GGUF file (see [`unpacked`]), or with the
/// feature `hub` a hub name, which is downloaded if needed to the cache that Python programs use.
///
/// An existing folder takes precedence over a hub name, and anything that can only be a path (`./x`, `/x`) is
/// one. The environment sets the cache and the server, with the variables of Python's `huggingface_hub`:
/// `HF_HOME`, `HF_HUB_CACHE`, `HF_ENDPOINT`, `HF_TOKEN`, `HF_HUB_OFFLINE`, and those for a proxy.
///
/// # Errors
/// [`Error::NoFolder`], [`Error::RunFolder`]; those of [`unpacked`]; with the feature `hub`, [`Error::BadName`] for text that is
/// neither a folder nor a name, and [`Error::NoModel`] for a name without a model.
pub fn find(name: impl AsRef<Path>) -> Result<PathBuf> {
    #[cfg(feature = "hub")]
    return find_with(name, &mut ());
    #[cfg(not(feature = "hub"))]
    checked(
        unpacked(name.as_ref())?,
        "; names on the hub need `cargo build --release -p cloze --features hub`",
    )
}

/// The folder of a GGUF file: its configuration and tokenizer are unpacked to `cloze/gguf` in `HF_HOME`
/// (default: `~/.cache/huggingface`) when the file is first used, and its weights are read in place. Any other path
/// is returned as it is.
///
/// # Errors
/// [`Error::NoFile`], [`Error::NoHome`]; [`Error::Gguf`] for a file that is damaged, or of a model that is not
/// supported.
pub fn unpacked(path: &Path) -> Result<PathBuf> {
    let is_named_so = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"));
    let begins_so = || {
        let mut magic = [0; 4];
        path.is_file()
            && File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok()
            && &magic == b"GGUF"
    };
    if path.is_dir() || !(is_named_so || begins_so()) {
        return Ok(path.to_owned());
    }
    if !path.exists() {
        return Err(Error::NoFile { path: path.to_owned() });
    }
    let cache = home(|key| env::var(key).ok())?.join("cloze").join("gguf");
    Ok(cloze_gguf::unpack(path, &cache)?)
}

/// The folder that `huggingface_hub` keeps models and the token in, from its environment variables.
fn home(variable: impl Fn(&str) -> Option<String>) -> Result<PathBuf> {
    let given = |key: &str| variable(key).filter(|value| !value.trim().is_empty()).map(PathBuf::from);
    if let Some(home) = given("HF_HOME") {
        return Ok(home);
    }
    let cache = match given("XDG_CACHE_HOME") {
        Some(cache) => cache,
        None => env::home_dir().ok_or(Error::NoHome)?.join(".cache"),
    };
    Ok(cache.join("huggingface"))
}

/// Same as [`find`], reporting downloads to `progress`.
///
/// # Errors
/// Those of [`find`].
#[cfg(feature = "hub")]
pub fn find_with(name: impl AsRef<Path>, progress: &mut dyn Progress) -> Result<PathBuf> {
    let path = &*unpacked(name.as_ref())?;
    // What is not Unicode can only be a folder.
    let Some(text) = path.to_str() else {
        return checked(path.to_owned(), "");
    };
    match Source::of(text) {
        Ok(Source::Folder(folder)) => checked(folder, ""),
        Ok(Source::Name(name)) => match fetch(&name, progress) {
            Ok(model) => Ok(model.folder),
            Err(error) => Err(Error::NoModel { name: text.into(), source: Box::new(error) }),
        },
        Err(source) => Err(Error::BadName { name: text.into(), source }),
    }
}

/// The model `name`, downloaded if needed, with the hub configured by the environment (see [`find`]);
/// `progress` reports downloads.
///
/// # Errors
/// [`Error::NoHome`], [`Error::Hub`].
#[cfg(feature = "hub")]
pub fn fetch(name: &ModelName, progress: &mut dyn Progress) -> Result<Model> {
    Ok(Hub::new(config(|key| env::var(key).ok())?)?.fetch(name, progress)?)
}

/// The configuration from the environment variables of Python's `huggingface_hub`.
#[cfg(feature = "hub")]
fn config(variable: impl Fn(&str) -> Option<String>) -> Result<HubConfig> {
    let given = |key: &str| variable(key).filter(|value| !value.trim().is_empty());
    let home = home(&variable)?;
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

/// Checks that the folder exists (else `hint` suggests what was meant) and is not a run folder, whose model is
/// in a subfolder.
fn checked(folder: PathBuf, hint: &'static str) -> Result<PathBuf> {
    if !folder.exists() {
        return Err(Error::NoFolder { folder, hint });
    }
    if !folder.is_dir() {
        let hint = ": it is a file; name the folder that it is in";
        return Err(Error::NoFolder { folder, hint });
    }
    let has_config = |folder: &Path| folder.join("config.json").exists();
    let model = folder.join("model");
    match !has_config(&folder) && has_config(&model) {
        true => Err(Error::RunFolder { folder, model }),
        false => Ok(folder),
    }
}

#[cfg(test)]
#[cfg(feature = "hub")]
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
