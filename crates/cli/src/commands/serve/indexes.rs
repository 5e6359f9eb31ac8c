//! The indexes that are searched, each with the model that made its vectors.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use cloze_search::{Index, ModelIdentity, SearchError};

use super::super::search::is_of_images;
use super::models::{Kind, Served, default_name, parts};

/// An index under its name.
pub struct Searched {
    pub name: String,
    pub model: Arc<Served>,
    index: Mutex<Arc<Index>>,
}

impl Searched {
    /// Opens `[NAME=]DIR` with one of `models`, or with the model that the index names, which `open` opens.
    pub fn open(
        argument: &str,
        models: &[Arc<Served>],
        open: impl Fn(&str) -> Result<Served>,
    ) -> Result<Self> {
        let (name, folder) = parts(argument);
        let name = if name == folder { default_name(folder) } else { name.to_owned() };
        let index = Index::open(Path::new(folder))?;
        if is_of_images(&index) {
            bail!("index `{name}` is one of images, which no route searches; `cloze search query` does");
        }
        let mut found = None;
        for served in models {
            if fits(&index, served)?.is_ok() {
                found = Some(served.clone());
                break;
            }
        }
        let model = match found {
            Some(model) => model,
            None => {
                let of_index = index.config().model.as_ref().map(|model| model.name.clone());
                let of_index = of_index.context("the index does not name its model: give --model")?;
                let served = open(&of_index).with_context(|| format!("the model of index `{name}`"))?;
                fits(&index, &served)??;
                Arc::new(served)
            }
        };
        Ok(Self { name, model, index: Mutex::new(Arc::new(index)) })
    }

    /// The index; opened anew if it was changed and its model is still the same.
    pub fn current(&self) -> Result<Arc<Index>> {
        let index = self.index.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if index.is_current()? {
            return Ok(index);
        }
        let new = Arc::new(Index::open(index.folder())?);
        fits(&new, &self.model)??;
        *self.index.lock().unwrap_or_else(PoisonError::into_inner) = new.clone();
        Ok(new)
    }
}

/// Whether a model made an index's vectors.
fn fits(index: &Index, served: &Served) -> Result<Result<(), SearchError>> {
    let Kind::Embeds(queue) = &served.kind else {
        let found = || served.task().to_owned();
        return Ok(Err(SearchError::OtherModel {
            part: "task",
            expected: "embedding".into(),
            found: found(),
        }));
    };
    let embedder = queue.model();
    let expected = index.config().model.as_ref();
    let mut hash = ModelIdentity::hash_of(&served.folder)?;
    // Earlier versions wrote the hash and the pooling in other ways.
    if let Some(expected) = expected.filter(|expected| expected.hash != hash)
        && ModelIdentity::earlier_hash_of(&served.folder)? == expected.hash
    {
        hash.clone_from(&expected.hash);
    }
    let mut pooling = embedder.pooling().to_string();
    let earlier = format!("{:?}", embedder.pooling());
    if expected.is_some_and(|expected| expected.pooling == earlier) {
        pooling = earlier;
    }
    let normalize = embedder.normalizes();
    let identity = ModelIdentity { name: served.name.clone(), hash, pooling, normalize };
    Ok(index.check_model(&identity, embedder.width()))
}
