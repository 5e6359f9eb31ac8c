//! Decodes images within limits.

use super::jpeg::JpegSummary;
use super::orientation::upright;
use super::{Image, ImageError};
use crate::panics::guarded;
use crate::{DataError, Result};
use image::metadata::Orientation;
use image::{DynamicImage, ImageBuffer, ImageDecoder, ImageFormat, ImageReader, Limits, Pixel};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{Cursor, Read};
use std::path::Path;

/// The largest images that are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DecodeLimits {
    /// The most pixels in a row or a column. Default 10,000.
    pub max_side: u32,
    /// The most pixels. Default 64,000,000.
    pub max_pixels: u64,
    /// The longest file, in bytes. Default 268,435,456.
    pub max_bytes: u64,
}

impl Default for DecodeLimits {
    fn default() -> Self {
        Self { max_side: 10_000, max_pixels: 64_000_000, max_bytes: 1 << 28 }
    }
}

/// Reads and decodes an image file, as [`decode_image`].
///
/// # Errors
/// [`DataError::Io`] if it cannot be read; [`DataError::Image`] with what is wrong with it.
pub fn read_image(path: &Path, limits: &DecodeLimits) -> Result<Image> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(DataError::io("read", path))?;
    // One byte more, to see that there is more.
    let most = limits.max_bytes.saturating_add(1);
    (&file).take(most).read_to_end(&mut bytes).map_err(DataError::io("read", path))?;
    let decoded = match bytes.len() as u64 == most {
        true => {
            let bytes = file.metadata().map_or(most, |file| file.len().max(most));
            Err(ImageError::TooLong { bytes, max_bytes: limits.max_bytes })
        }
        false => decode_image(&bytes, limits),
    };
    decoded.map_err(|problem| DataError::Image { image: path.display().to_string(), problem })
}

/// Decodes PNG, JPEG, GIF, WebP or BMP to 8-bit RGB. The contents tell the format, not a name.
///
/// As Pillow's `convert("RGB")` does it: grey is repeated, palettes are looked up, transparency is dropped without
/// blending, and of 16-bit values the high byte is kept. An animation is its first frame. CMYK of JPEG is converted
/// if Adobe's marker gives its sense. The EXIF orientation is applied, as by Pillow's `exif_transpose`.
///
/// Deviation: Pillow limits 16-bit grey without transparency to 255 instead of taking the high byte, which makes
/// almost every such image white.
///
/// # Errors
/// [`ImageError`] for what is no image, is damaged, is cut off or exceeds the limits. The declared size is checked
/// before memory for pixels is allocated.
pub fn decode_image(bytes: &[u8], limits: &DecodeLimits) -> std::result::Result<Image, ImageError> {
    if bytes.len() as u64 > limits.max_bytes {
        return Err(ImageError::TooLong { bytes: bytes.len() as u64, max_bytes: limits.max_bytes });
    }
    let (format, name) = format_of(bytes)?;
    if format == ImageFormat::Jpeg {
        check_jpeg(bytes)?;
    }
    // Decoders panic on few damaged files, and must not on any.
    guarded(|| Ok::<_, std::convert::Infallible>(pixels(bytes, format, name, limits)))
        .unwrap_or_else(|reason| Err(ImageError::Damaged { format: name, reason }))
}

fn pixels(
    bytes: &[u8],
    format: ImageFormat,
    name: &'static str,
    limits: &DecodeLimits,
) -> std::result::Result<Image, ImageError> {
    let failed = |error| failure(error, name, limits);
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    // Up to four channels of 16 bits, twice: a decoder holds a canvas beside the output.
    let max_alloc = limits.max_pixels.saturating_mul(16).saturating_add(1 << 24);
    let mut allowed = Limits::no_limits();
    allowed.max_alloc = Some(max_alloc);
    reader.limits(allowed);
    let mut decoder = reader.into_decoder().map_err(failed)?;
    let (width, height) = decoder.dimensions();
    if width == 0 || height == 0 {
        let reason = format!("it has {width} × {height} pixels");
        return Err(ImageError::Damaged { format: name, reason });
    }
    if width.max(height) > limits.max_side || u64::from(width) * u64::from(height) > limits.max_pixels {
        let DecodeLimits { max_side, max_pixels, .. } = *limits;
        return Err(ImageError::TooLarge { width, height, max_side, max_pixels });
    }
    // A note that cannot be read turns nothing.
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let decoded = DynamicImage::from_decoder(decoder).map_err(failed)?;
    let image = Image::new(width as usize, height as usize, rgb(decoded));
    Ok(upright(image, orientation))
}

/// Bytes of RGB.
fn rgb(decoded: DynamicImage) -> Vec<u8> {
    match decoded {
        DynamicImage::ImageRgb8(image) => image.into_raw(),
        DynamicImage::ImageLuma16(image) => high_bytes(&image),
        DynamicImage::ImageLumaA16(image) => high_bytes(&image),
        DynamicImage::ImageRgb16(image) => high_bytes(&image),
        DynamicImage::ImageRgba16(image) => high_bytes(&image),
        // Drops transparency and repeats grey.
        other => other.into_rgb8().into_raw(),
    }
}

fn high_bytes<P: Pixel<Subpixel = u16>>(image: &ImageBuffer<P, Vec<u16>>) -> Vec<u8> {
    image.pixels().flat_map(|pixel| pixel.to_rgb().0.map(|value| (value >> 8) as u8)).collect()
}

/// The format that the first bytes tell, and its name.
fn format_of(bytes: &[u8]) -> std::result::Result<(ImageFormat, &'static str), ImageError> {
    if bytes.is_empty() {
        return Err(ImageError::Empty);
    }
    // HEIC has no name in the library.
    if bytes.len() >= 12 && &bytes[4..8] == b"ftyp" && [&b"hei"[..], b"hev", b"mif"].contains(&&bytes[8..11])
    {
        return Err(ImageError::Format { format: "HEIC" });
    }
    let name = match image::guess_format(bytes) {
        Ok(format @ ImageFormat::Png) => return Ok((format, "PNG")),
        Ok(format @ ImageFormat::Jpeg) => return Ok((format, "JPEG")),
        Ok(format @ ImageFormat::Gif) => return Ok((format, "GIF")),
        Ok(format @ ImageFormat::WebP) => return Ok((format, "WebP")),
        // Texts begin with these letters too; the next bytes are the file's length.
        Ok(format @ ImageFormat::Bmp) if bytes.get(6..10).is_none_or(|reserved| reserved == [0; 4]) => {
            return Ok((format, "BMP"));
        }
        Ok(ImageFormat::Tiff) => "TIFF",
        Ok(ImageFormat::Avif) => "AVIF",
        Ok(ImageFormat::Ico) => "ICO",
        Ok(ImageFormat::OpenExr) => "OpenEXR",
        Ok(ImageFormat::Qoi) => "QOI",
        _ => return Err(ImageError::NotAnImage { beginning: beginning(bytes) }),
    };
    Err(ImageError::Format { format: name })
}

/// The first bytes: as text if they are some, else as numbers.
fn beginning(bytes: &[u8]) -> String {
    let is_text = |byte: &u8| matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~');
    match bytes.iter().take(16).all(is_text) {
        true => format!("the text {:?}", String::from_utf8_lossy(&bytes[..bytes.len().min(16)])),
        false => {
            let shown: Vec<String> = bytes.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
            format!("the bytes {}", shown.join(" "))
        }
    }
}

/// Refuses what the decoder of JPEG would fill with grey or convert by a guess.
fn check_jpeg(bytes: &[u8]) -> std::result::Result<(), ImageError> {
    let summary = JpegSummary::of(bytes);
    if summary.components == 4 && !summary.adobe {
        return Err(ImageError::Colours { colours: "CMYK without Adobe's marker" });
    }
    match summary.ends {
        true => Ok(()),
        false => Err(ImageError::Cut { format: "JPEG" }),
    }
}

fn failure(error: image::ImageError, format: &'static str, limits: &DecodeLimits) -> ImageError {
    use std::error::Error;
    let ends_early = |error: &std::io::Error| error.kind() == std::io::ErrorKind::UnexpectedEof;
    if matches!(&error, image::ImageError::IoError(error) if ends_early(error)) {
        return ImageError::Cut { format };
    }
    // Decoders wrap an early end in their own errors,
    let mut cause = error.source();
    while let Some(error) = cause {
        if error.downcast_ref().is_some_and(ends_early) {
            return ImageError::Cut { format };
        }
        cause = error.source();
    }
    // or say it in words.
    let words = error.to_string().to_lowercase();
    if words.contains("unexpected end of file") || words.contains("unexpected eof") {
        return ImageError::Cut { format };
    }
    let reason = match &error {
        image::ImageError::Limits(_) => {
            format!("it needs more memory than {} pixels do", limits.max_pixels)
        }
        error => error.to_string(),
    };
    // On one line.
    let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    ImageError::Damaged { format, reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_16_bits_the_high_byte_is_kept() {
        let grey =
            ImageBuffer::<image::Luma<u16>, _>::from_raw(5, 1, vec![0, 255, 256, 0x80FF, 0xFFFF]).unwrap();
        let mut png = Cursor::new(Vec::new());
        DynamicImage::ImageLuma16(grey).write_to(&mut png, ImageFormat::Png).unwrap();
        let decoded = decode_image(png.get_ref(), &DecodeLimits::default()).unwrap();
        assert_eq!(decoded, Image::from_grey(5, 1, &[0, 0, 1, 0x80, 0xFF]));
    }

    #[test]
    fn limits_are_a_table_of_the_config() {
        let limits: DecodeLimits = serde_json::from_str(r#"{"max_side": 9}"#).unwrap();
        assert_eq!(limits, DecodeLimits { max_side: 9, ..DecodeLimits::default() });
        assert!(serde_json::from_str::<DecodeLimits>(r#"{"side": 9}"#).is_err());
    }
}
