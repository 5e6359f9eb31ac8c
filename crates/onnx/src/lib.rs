#![doc = include_str!("../README.md")]

mod arithmetic;
mod attention;
mod distances;
mod encoder;
mod error;
mod folder;
mod graph;
mod heads;
mod images;
mod model;
mod pooling;
pub mod proto;
mod quantized;
mod rotary;
mod sequences;
mod shapes;

pub use error::{OnnxError, Result};
pub use folder::{ExportConfig, Exported, export};
pub use graph::{Dim, Graph, Kind, Value};
pub use heads::{SentenceModel, ToOnnx};
pub use model::{MAX_FILE_SIZE, OPSET, OnnxModel};
pub use pooling::SentenceModules;
