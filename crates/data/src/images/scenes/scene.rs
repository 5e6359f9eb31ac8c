//! A scene.

use super::parse::Parsed;
use super::{Caption, CaptionError, CaptionWord, Thing};

/// The side of a scene's image unless another is wanted, in pixels.
pub const SIDE: usize = 64;

/// The captions of each scene.
pub const N_CAPTIONS: usize = 3;

/// Two or three things on a plain background, with captions. See [`scene`](super::scene()).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scene {
    pub(super) things: Vec<Thing>,
    pub(super) background: [u8; 3],
    pub(super) captions: Vec<Caption>,
}

impl Scene {
    /// Its things, which differ in shape and in colour, in random order.
    pub fn things(&self) -> &[Thing] {
        &self.things
    }

    /// Red, green and blue behind the things: a light grey with a tint.
    pub fn background(&self) -> [u8; 3] {
        self.background
    }

    /// Its [`N_CAPTIONS`] captions: different texts, all true, each of which names every thing.
    pub fn captions(&self) -> &[Caption] {
        &self.captions
    }

    /// The words of any caption of the grammar, such as one that a model wrote, with the things that they name here.
    ///
    /// # Errors
    /// What is not in the grammar, see [the module](super).
    pub fn align(&self, caption: &str) -> Result<Vec<CaptionWord>, CaptionError> {
        let parsed = Parsed::read(caption)?;
        let word = |(range, (role, mention)): (_, (_, Option<usize>))| {
            let thing = mention.and_then(|mention| self.find(parsed.mentions[mention]));
            CaptionWord { range, role, thing }
        };
        Ok(parsed.words.into_iter().zip(parsed.roles).map(word).collect())
    }
}
