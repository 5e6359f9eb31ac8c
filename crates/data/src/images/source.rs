//! Labelled images, whatever holds them.

use super::{ImageExample, digits, image_folder, image_rows};
use crate::Result;
use crate::labelled::{DataFormat, LabelSet, LabelledSource, Labels, Loaded};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The images of a [`LabelledSource`], and their classes, if there are any: one folder with `format = "auto"` is read by
/// [`image_folder`]; one IDX file, such as `train-images-idx3-ubyte`, by [`digits`], with the file of classes beside it,
/// `train-labels-idx1-ubyte`; other files are tables, read by [`image_rows`].
///
/// # Errors
/// Those of these functions; [`DataError::LabelledSetting`](crate::DataError::LabelledSetting) for a setting of tables
/// that a folder or an IDX file does not have.
pub fn labelled_images(
    source: &LabelledSource,
    base: &Path,
    labels: Labels,
) -> Result<(Loaded<ImageExample>, Option<LabelSet>)> {
    let [only] = &source.files[..] else { return image_rows(source, base, labels) };
    let path = base.join(only);
    if path.is_dir() && source.format == DataFormat::Auto {
        refuse_unread(source, "a folder of images")?;
        return image_folder(&path, labels);
    }
    match classes_beside(&path) {
        Some(classes) => {
            refuse_unread(source, "an IDX file")?;
            digits(&path, &classes, labels)
        }
        None => image_rows(source, base, labels),
    }
}

/// The file of classes beside an IDX file of images.
fn classes_beside(images: &Path) -> Option<PathBuf> {
    let name = images.file_name()?.to_str()?;
    let is_idx = name.contains("images") && name.contains("idx3");
    is_idx.then(|| images.with_file_name(name.replace("images", "labels").replace("idx3", "idx1")))
}

/// A key that nothing reads is a mistake.
fn refuse_unread(source: &LabelledSource, what: &str) -> Result<()> {
    let settings = |source: &LabelledSource| match serde_json::to_value(source) {
        Ok(Value::Object(settings)) => settings,
        _ => unreachable!("settings are an object"),
    };
    let defaults = settings(&LabelledSource::default());
    // What has a meaning for every source, or is its place.
    let read = ["files", "on_bad_row"];
    let set = settings(source);
    let unread =
        set.iter().find(|(key, value)| !read.contains(&key.as_str()) && defaults.get(*key) != Some(*value));
    match unread {
        Some((key, _)) => Err(source.setting(key, format!("{what} has no such setting; remove it"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_tables_are_refused_for_other_sources() {
        let folder = tempfile::tempdir().unwrap();
        let source = LabelledSource { delimiter: Some(';'), ..LabelledSource::default() };
        let source = source.with_files([folder.path().to_str().unwrap()]);
        let message = labelled_images(&source, Path::new(""), Labels::Found).unwrap_err().to_string();
        assert!(
            message.contains("delimiter") && message.contains("a folder of images has no such setting"),
            "{message}"
        );
        let idx = source.with_files(["train-images-idx3-ubyte.gz"]);
        let message = labelled_images(&idx, folder.path(), Labels::Found).unwrap_err().to_string();
        assert!(message.contains("an IDX file has no such setting"), "{message}");
        let missing = LabelledSource { delimiter: None, ..idx };
        let message = labelled_images(&missing, folder.path(), Labels::Found).unwrap_err().to_string();
        assert!(message.contains("train-images-idx3-ubyte.gz"), "{message}");
        assert_eq!(
            classes_beside(Path::new("a/train-images-idx3-ubyte.gz")),
            Some("a/train-labels-idx1-ubyte.gz".into())
        );
    }
}
