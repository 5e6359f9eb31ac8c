//! Folders of images, one for each class.

use super::{ImageExample, ImageSource};
use crate::SkipReport;
use crate::corpus::{files, walk};
use crate::labelled::{LabelSet, Labels, Loaded, Places, Target};
use crate::{DataError, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// The extensions of images. Formats that are not read are among them: their files are named, not overlooked.
const EXTENSIONS: [&str; 16] = [
    "png", "apng", "jpg", "jpeg", "jpe", "jfif", "gif", "webp", "bmp", "dib", "tif", "tiff", "heic", "heif",
    "avif", "ico",
];

/// The images of a folder that has a folder for each class, as torchvision's `ImageFolder` reads them: in the order of
/// the classes, and of paths within one.
///
/// Folders are read recursively. Hidden files are ignored, links to a folder above are not followed, and files without an
/// image's extension are left out and counted. Contents are not read: see
/// [`without_bad_images`](super::without_bad_images).
///
/// With [`Labels::Found`] the classes are the folders' names, ordered as [`LabelSet::found`] does; with [`Labels::Of`]
/// each folder must be a class of the set, and a class may lack a folder. With other labels the folder's structure has no
/// meaning: all images are read, without a class. Also returns the classes, if there are any.
///
/// # Errors
/// [`DataError::Io`]; [`DataError::ImageFolder`] if there is no folder of a class, a class has no image or is unknown.
pub fn image_folder(folder: &Path, labels: Labels) -> Result<(Loaded<ImageExample>, Option<LabelSet>)> {
    let mut skipped = SkipReport::default();
    let top = folder.canonicalize().map_err(DataError::io("read", folder))?;
    let (Labels::Found | Labels::Of(_)) = labels else {
        let images = images(folder, &mut Vec::new(), &mut skipped)?;
        if images.is_empty() {
            return Err(problem(folder, "there is no image in the folder".into()));
        }
        let example = |path| ImageExample { image: ImageSource::File(path), target: Target::None };
        let examples = images.into_iter().map(example).collect();
        return Ok((Loaded { examples, places: Places::default(), skipped }, None));
    };
    let classes = classes(folder, &top)?;
    let set = match labels {
        Labels::Of(set) => set.clone(),
        _ => LabelSet::found(classes.iter().map(|(name, _)| name.clone()))?,
    };
    let mut of_class = vec![Vec::new(); set.len()];
    for (name, path) in &classes {
        let Some(class) = set.id(name) else {
            let expected = set.names().join(", ");
            return Err(problem(path, format!("the folder is no class; expected one of {expected}")));
        };
        of_class[class] = images(path, &mut vec![top.clone()], &mut skipped)?;
        if of_class[class].is_empty() {
            let detail = format!("the class `{name}` has no image; add some, or remove the folder");
            return Err(problem(path, detail));
        }
    }
    let examples = of_class.into_iter().enumerate().flat_map(|(class, paths)| {
        let target = Target::Class(class);
        paths
            .into_iter()
            .map(move |path| ImageExample { image: ImageSource::File(path), target: target.clone() })
    });
    Ok((Loaded { examples: examples.collect(), places: Places::default(), skipped }, Some(set)))
}

/// The files that these paths and patterns name, in order: files as they are, and of folders, which are read as
/// [`image_folder`] reads them, those with an image's extension; the others are counted. Relative paths begin at `base`.
///
/// # Errors
/// [`DataError::Io`]; [`DataError::NoLabelledFiles`] for a path or pattern without a file; a folder without an image.
///
/// # Examples
/// ```
/// use cloze_data::images::image_files;
///
/// let folder = tempfile::tempdir()?;
/// for name in ["b.png", "a.JPG", "notes.txt"] {
///     std::fs::write(folder.path().join(name), "")?;
/// }
/// let named = |patterns: &[&str]| {
///     let patterns: Vec<String> = patterns.iter().map(|pattern| pattern.to_string()).collect();
///     let (files, skipped) = image_files(&patterns, folder.path()).unwrap();
///     let names = files.iter().map(|file| file.file_name().unwrap().to_string_lossy().into_owned());
///     (names.collect::<Vec<_>>(), skipped.to_string())
/// };
/// assert_eq!(named(&["."]).0, ["a.JPG", "b.png"]);
/// assert!(named(&["."]).1.contains("file without an image's extension"));
/// assert_eq!(named(&["*.png", "notes.txt"]).0, ["b.png", "notes.txt"]);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn image_files(patterns: &[String], base: &Path) -> Result<(Vec<PathBuf>, SkipReport)> {
    let (mut all, mut skipped) = (Vec::new(), SkipReport::default());
    for pattern in patterns {
        let path = base.join(pattern);
        if path.is_dir() {
            let found = images(&path, &mut Vec::new(), &mut skipped)?;
            if found.is_empty() {
                return Err(problem(&path, "there is no image in the folder".into()));
            }
            all.extend(found);
        } else {
            all.extend(files(std::slice::from_ref(pattern), base).map_err(|error| match error {
                DataError::NoFiles { pattern, base } => DataError::NoLabelledFiles { pattern, base },
                other => other,
            })?);
        }
    }
    Ok((all, skipped))
}

/// The folders of classes, with their names.
fn classes(folder: &Path, top: &Path) -> Result<Vec<(String, PathBuf)>> {
    let mut classes = Vec::new();
    for entry in fs::read_dir(folder).map_err(DataError::io("read", folder))? {
        let entry = entry.map_err(DataError::io("read", folder))?;
        let path = entry.path();
        // A link to this folder or one above it is no class.
        let leads_up = |path: &Path| path.canonicalize().is_ok_and(|real| top.starts_with(real));
        if entry.file_name().as_encoded_bytes().starts_with(b".") || !path.is_dir() || leads_up(&path) {
            continue;
        }
        match entry.file_name().into_string() {
            Ok(name) => classes.push((name, path)),
            Err(_) => return Err(problem(&path, "the class's name is not UTF-8".into())),
        }
    }
    if classes.is_empty() {
        let detail = "there is no folder in it; expected a folder of images for each class".into();
        return Err(problem(folder, detail));
    }
    classes.sort();
    Ok(classes)
}

/// Whether a path has the extension of an image. The file need not be one.
///
/// ```
/// use cloze_data::images::has_image_extension;
///
/// assert!(has_image_extension("photos/*.JPG".as_ref()) && !has_image_extension("photos.csv".as_ref()));
/// ```
pub fn has_image_extension(path: &Path) -> bool {
    let extension = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
    EXTENSIONS.contains(&extension.as_str())
}

/// The files with an image's extension.
fn images(folder: &Path, above: &mut Vec<PathBuf>, skipped: &mut SkipReport) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    walk(folder, above, &mut files)?;
    files.retain(|path| {
        let is_image = has_image_extension(path);
        if !is_image {
            let place = || (path.display().to_string(), "no image's extension".to_owned());
            skipped.count_at("file without an image's extension", place);
        }
        is_image
    });
    Ok(files)
}

fn problem(path: &Path, problem: String) -> DataError {
    DataError::ImageFolder { path: path.into(), problem }
}
