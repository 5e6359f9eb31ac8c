//! MNIST's own format, IDX.

use super::{ImageExample, ImageSource};
use crate::SkipReport;
use crate::labelled::{LabelSet, Labels, Loaded, Places, Target};
use crate::{DataError, Result};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

/// The most bytes of a file, decompressed: 28 × 28 for each of five million images.
const MAX_BYTES: u64 = 1 << 32;

/// The images and classes of a pair of IDX files (LeCun, Cortes & Burges 1998), such as `train-images-idx3-ubyte` and
/// `train-labels-idx1-ubyte`. Both may be compressed with gzip.
///
/// A class's name is its number. With [`Labels::Found`] the classes are those that occur; with [`Labels::Of`] each must
/// be in the set; with other labels, the second file is read and ignored. Also returns the classes, if there are any.
///
/// # Errors
/// [`DataError::Io`]; [`DataError::ImageFolder`] for a file that is not in the format, is cut off or too long, for files
/// that do not belong together, and for a class that the set lacks.
pub fn digits(
    images: &Path,
    classes: &Path,
    labels: Labels,
) -> Result<(Loaded<ImageExample>, Option<LabelSet>)> {
    let ([n_images, height, width], pixels) = idx::<3>(images)?;
    let ([n_classes], numbers) = idx::<1>(classes)?;
    if n_images != n_classes {
        let detail = format!("it has {n_classes} classes, but {} has {n_images} images", images.display());
        return Err(problem(classes, detail));
    }
    if pixels.is_empty() {
        return Err(problem(images, format!("it has {n_images} images of {height} × {width} pixels")));
    }
    let set = match labels {
        Labels::Found => Some(LabelSet::found(numbers.iter().map(u8::to_string))?),
        Labels::Of(set) => Some(set.clone()),
        _ => None,
    };
    let example = |(place, (values, number)): (usize, (&[u8], &u8))| {
        let target = match &set {
            None => Target::None,
            Some(set) => Target::Class(set.id(&number.to_string()).ok_or_else(|| {
                let expected = set.names().join(", ");
                problem(classes, format!("class {number} of image {}; expected one of {expected}", place + 1))
            })?),
        };
        Ok(ImageExample { image: ImageSource::Grey { width, values: Arc::from(values) }, target })
    };
    let examples = pixels.chunks_exact(height * width).zip(&numbers).enumerate().map(example);
    let examples = examples.collect::<Result<_>>()?;
    Ok((Loaded { examples, places: Places::default(), skipped: SkipReport::default() }, set))
}

/// The sizes and bytes of an IDX file of `N` dimensions.
fn idx<const N: usize>(path: &Path) -> Result<([usize; N], Vec<u8>)> {
    let read = DataError::io;
    let mut file = BufReader::new(File::open(path).map_err(read("read", path))?);
    let is_gzip = file.fill_buf().map_err(read("read", path))?.starts_with(&[0x1F, 0x8B]);
    let mut source: Box<dyn Read> = match is_gzip {
        true => Box::new(flate2::bufread::MultiGzDecoder::new(file)),
        false => Box::new(file),
    };
    let mut header = Vec::new();
    let length = 4 + 4 * N as u64;
    source.by_ref().take(length).read_to_end(&mut header).map_err(read("read", path))?;
    let expected = [0, 0, 8, N as u8];
    if !header.starts_with(&expected) {
        let detail = format!(
            "not an IDX file of bytes in {N} dimensions: it begins with {:02x?}, expected {expected:02x?}",
            &header[..header.len().min(4)]
        );
        return Err(problem(path, detail));
    }
    let cut =
        |found: u64, whole: u64| problem(path, format!("cut off: it has {found} bytes, expected {whole}"));
    if (header.len() as u64) < length {
        return Err(cut(header.len() as u64, length));
    }
    let sizes: Vec<u32> = header[4..]
        .chunks_exact(4)
        .map(|size| u32::from_be_bytes([size[0], size[1], size[2], size[3]]))
        .collect();
    let product = sizes.iter().try_fold(1u64, |product, size| product.checked_mul(u64::from(*size)));
    let Some(n_bytes) = product.filter(|product| *product <= MAX_BYTES) else {
        return Err(problem(path, format!("its sizes are {sizes:?}; at most {MAX_BYTES} bytes are read")));
    };
    // Memory grows with what is there, not with what is declared. One byte more, to see that there is more.
    let mut bytes = Vec::new();
    source.take(n_bytes + 1).read_to_end(&mut bytes).map_err(read("read", path))?;
    match (bytes.len() as u64).cmp(&n_bytes) {
        std::cmp::Ordering::Less => Err(cut(length + bytes.len() as u64, length + n_bytes)),
        std::cmp::Ordering::Greater => {
            Err(problem(path, format!("it goes on after {n_bytes} bytes of {sizes:?}")))
        }
        std::cmp::Ordering::Equal => {
            let sizes: Vec<usize> = sizes.into_iter().map(|size| size as usize).collect();
            Ok((sizes.try_into().expect("as many sizes as dimensions"), bytes))
        }
    }
}

fn problem(path: &Path, problem: String) -> DataError {
    DataError::ImageFolder { path: path.into(), problem }
}
