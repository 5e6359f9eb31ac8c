//! Transformers from raw text to a working model: the whole of cloze behind one dependency.
//!
//! A model, which is a Hugging Face folder, a GGUF file or a name on the hub, takes three lines to use:
//!
//! ```no_run
//! use cloze::Embedder;
//!
//! let device = cloze::device::open(None)?;
//! let embedder = Embedder::load("sentence-transformers/all-MiniLM-L6-v2", &device)?;
//! let embeddings = embedder.embed(&["The old man sat by the sea.", "A sailor rests."])?;
//! println!("{:.3}", embeddings.cosine(0, 1));
//! # Ok::<(), cloze::Error>(())
//! ```
//!
//! | to | load | which gives |
//! | --- | --- | --- |
//! | embed texts | [`Embedder`] | [`Embeddings`] |
//! | fill masks | [`MaskFiller`] | a [`Candidate`] for each likely word |
//! | classify texts | [`Classifier`] | a [`Class`] for each text |
//! | find entities | [`Tagger`] | a [`TaggedText`] for each text |
//! | rerank texts for a query | [`Reranker`] | a [`Ranked`] for each text |
//! | answer questions | [`Answerer`] | an [`Answer`] for each question |
//! | translate texts | [`Translator`] | a [`Translation`] for each text |
//! | continue texts | [`Generator`] | a [`Continuation`] for each text |
//! | look into a model | [`Inspector`] | an [`Inspection`] of a text |
//!
//! Each can be shared between threads. [`device::open`] opens the build's best device, and each also takes any
//! burn device.
//!
//! Underneath are cloze's crates, under their names: [`tokenizer`], [`data`], [`ops`], [`model`], [`trainer`],
//! [`evaluation`], [`search`], [`gguf`], [`onnx`] and [`hub`], and the framework they are built on, [`burn`], in a matching
//! version.
//!
//! # Features
//!
//! | feature | what |
//! | --- | --- |
//! | `flex` (default) | the CPU, pure Rust, with fused operations |
//! | `wgpu`, `cuda`, `tch`, `ndarray` | burn's other backends |
//! | `hub` (default) | models by name |
//! | `program` (default) | the program `cloze`; disable it for library use |
//! | `serve` (default) | `cloze serve`, an HTTP service, which brings 23 crates |

mod answerer;
mod classifier;
pub mod device;
mod embedder;
mod error;
mod generator;
mod inspector;
mod mask_filler;
pub mod names;
mod predictions;
mod reranker;
mod tagger;
mod translator;

pub use answerer::{Answer, Answerer};
pub use classifier::{Class, Classifier};
pub use embedder::{Embedder, Embeddings, TokenEmbedder};
pub use error::{Error, Result};
pub use generator::Generator;
pub use inspector::Inspector;
pub use mask_filler::MaskFiller;
pub use reranker::{Ranked, Rankings, Reranker};
pub use tagger::{Entity, TaggedText, Tagger};
pub use translator::Translator;

pub use burn;
pub use burn::tensor::Device;
pub use cloze_data as data;
pub use cloze_evaluation as evaluation;
pub use cloze_gguf as gguf;
#[cfg(feature = "hub")]
pub use cloze_hub as hub;
pub use cloze_model as model;
pub use cloze_model::ops;
pub use cloze_onnx as onnx;
pub use cloze_search as search;
pub use cloze_tokenizer as tokenizer;
pub use cloze_trainer as trainer;
pub use cloze_trainer::fill_mask::Candidate;
pub use cloze_trainer::generate::Continuation;
pub use cloze_trainer::inspect::{Baseline, InspectRequest, Inspection, Method};
pub use cloze_trainer::translate::Translation;
