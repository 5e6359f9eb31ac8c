//! What can be wrong with an image.

/// Why an image cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// There are no bytes.
    #[error("the image is empty")]
    Empty,

    /// The bytes are in no known format, such as a text called `.jpg`.
    #[error("it is not an image: it begins with {beginning}; expected PNG, JPEG, GIF, WebP or BMP")]
    NotAnImage {
        /// Its first bytes, readable.
        beginning: String,
    },

    /// A format that is not read.
    #[error("images in {format} cannot be read; convert it to PNG, JPEG, GIF, WebP or BMP")]
    Format {
        /// The format.
        format: &'static str,
    },

    /// More pixels than the limits allow.
    #[error(
        "the image has {width} × {height} pixels, but at most {max_side} in a row or column and {max_pixels} in total \
         are read; make it smaller, or raise the limits"
    )]
    TooLarge {
        /// Pixels in a row, as the file declares.
        width: u32,
        /// Rows, as the file declares.
        height: u32,
        /// The most pixels in a row or column.
        max_side: u32,
        /// The most pixels.
        max_pixels: u64,
    },

    /// More bytes than the limits allow.
    #[error(
        "the image has {bytes} bytes, but at most {max_bytes} are read; make it smaller, or raise the limit"
    )]
    TooLong {
        /// Its bytes.
        bytes: u64,
        /// The most bytes.
        max_bytes: u64,
    },

    /// The file ends too early.
    #[error("the {format} is cut off: it ends before the image does")]
    Cut {
        /// The format.
        format: &'static str,
    },

    /// The contents contradict the format.
    #[error("not a readable {format}: {reason}")]
    Damaged {
        /// The format.
        format: &'static str,
        /// The decoder's reason.
        reason: String,
    },

    /// An image of such a shape that a resize by its shorter side would make it huge.
    #[error(
        "the image has {width} × {height} pixels: with a shorter side of {edge}, the longer one would exceed {max_side}; \
         crop it"
    )]
    TooNarrow {
        /// Pixels in a row.
        width: usize,
        /// Rows.
        height: usize,
        /// The shorter side's new length, in pixels.
        edge: usize,
        /// The most pixels in a row or column.
        max_side: usize,
    },

    /// Colours that have no agreed meaning without a profile.
    #[error("a JPEG in {colours} has no agreed RGB colours; convert it to RGB")]
    Colours {
        /// The colours' name.
        colours: &'static str,
    },
}

impl ImageError {
    /// The kind, by which skipped images are counted.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Empty => "empty image",
            Self::NotAnImage { .. } => "file without an image",
            Self::Format { .. } => "image in another format",
            Self::TooLarge { .. } | Self::TooLong { .. } => "too large image",
            Self::Cut { .. } => "cut image",
            Self::Damaged { .. } => "damaged image",
            Self::TooNarrow { .. } => "too narrow image",
            Self::Colours { .. } => "image in other colours",
        }
    }
}
