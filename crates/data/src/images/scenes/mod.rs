//! Scenes: a free data set of drawn shapes with true captions, for models that describe images.
//!
//! A scene is two or three things on a plain background, such as a small red circle to the left of a big blue square. The
//! things of a scene differ in shape and in colour, and do not overlap. Everything about a scene is known: the box of
//! each thing, and whether a statement about it is true. So a caption that a model writes is judged fact by fact, and
//! its attention is compared with the boxes.
//!
//! ```text
//! scenes(split, seed) ─► Scene (Things, 3 Captions) ─ draw(64) ─► Image
//! a caption's text ─ facts ─► Facts ─ Scene::judge ─► Judgement
//!                  ─ Scene::align ─► CaptionWords: the thing that each noun, colour and size names
//! ```
//!
//! Nothing is stored: a scene is a function of a split, a seed and a number, and drawing uses whole numbers only, so the
//! data is the same on every platform. [`DATA_SEED`] gives the data set: 20,000 scenes for training, and 1,000 each for
//! development and test. No scene of one split occurs in another, see [`SceneSplit`].
//!
//! # The captions' grammar
//!
//! ```text
//! caption  = clause { ( ";" | [ "," ] "and" ) clause } [ "." ]
//! clause   = thing "is" relation ground              a small red circle is above a big blue square
//!          | relation ground "is" thing              above a big blue square is a small red circle
//!          | "there" "is" thing relation ground      there is a small red circle above a big blue square
//!          | thing "has" thing place                 a big blue square has a small red circle above it
//! relation = "to the left of" | "to the right of" | "above" | "below"
//! place    = "to its left" | "to its right" | "above it" | "below it"
//! thing    = "a" size colour shape | "the" shape     `the circle` is the circle of an earlier clause
//! ground   = thing | "them"                          `them` are all things of earlier clauses
//! size     = "small" | "big"
//! colour   = "red" | "orange" | "yellow" | "green" | "blue" | "purple" | "grey" | "black"
//! shape    = "circle" | "square" | "triangle" | "star" | "ring" | "cross"
//! ```
//!
//! # Examples
//! ```
//! use cloze_data::images::scenes::{DATA_SEED, SceneSplit, facts, scenes};
//!
//! let scene = scenes(SceneSplit::Train, DATA_SEED).next().unwrap();
//! let image = scene.draw(64);
//! let caption = &scene.captions()[0];
//! println!("{}", caption.text);
//!
//! // What a model wrote is judged by its facts.
//! let judgement = scene.judge(&facts(&caption.text)?);
//! assert_eq!(judgement.n_right, judgement.n_facts);
//! assert_eq!(judgement.n_named, scene.things().len());
//!
//! // The thing that a word names, and where it is.
//! let word = caption.words.iter().find(|word| word.thing.is_some()).unwrap();
//! let bounds = scene.things()[word.thing.unwrap()].bounds(64);
//! assert!(bounds.right <= image.width() && bounds.bottom <= image.height());
//! # Ok::<_, cloze_data::images::scenes::CaptionError>(())
//! ```

mod caption;
mod draw;
mod error;
mod facts;
mod generate;
mod outline;
mod parse;
mod relation;
mod scene;
mod thing;
mod vocabulary;
mod write;

pub use caption::{Caption, CaptionWord, WordRole};
pub use error::CaptionError;
pub use facts::{Fact, Judgement, facts};
pub use generate::{DATA_SEED, SceneSplit, Scenes, scene, scenes};
pub use relation::Relation;
pub use scene::{N_CAPTIONS, SIDE, Scene};
pub use thing::{PixelBox, Thing};
pub use vocabulary::{Colour, Description, Shape, Size};
