//! Models of images: the encoder of texts, whose tokens are patches (Dosovitskiy et al. 2021).

use crate::attention::{self, View};
use crate::encoder::forward;
use crate::error::{OnnxError, Result};
use crate::graph::{Dim, Graph, Value};
use crate::model::OnnxModel;
use crate::sequences::BATCH;
use cloze_model::ParamInit;
use cloze_model::bert::BertConfig;
use cloze_model::blocks::NormPlacement;
use cloze_model::huggingface::load_published;
use cloze_model::vision::{ImageClassifier, ImageClassifierConfig, ImagePooling, Vit, VitConfig};
use std::path::Path;

/// Loads the model of a folder and makes its graph; also says whether it has a head.
///
/// # Errors
/// Those of loading; [`OnnxError::Unsupported`].
pub(crate) fn export(folder: &Path, states: bool, init: &mut ParamInit) -> Result<(OnnxModel, bool)> {
    if !states
        && let Ok((config, model, report)) = load_published::<ImageClassifierConfig>(folder, init)
        && report.missing.is_empty()
    {
        return Ok((OnnxModel::of_images(&model, &config)?, true));
    }
    let (config, vit, _) = load_published::<VitConfig>(folder, init)?;
    Ok((OnnxModel::of_vit(&vit, &config)?, false))
}

impl OnnxModel {
    /// The graph of a classifier of images: `pixel_values`, `[batch_size, channels, height, width]` floats of the
    /// configured size, to `logits`, `[batch_size, n_classes]`. Of two heads they are the mean.
    ///
    /// # Errors
    /// [`OnnxError::Unsupported`](crate::OnnxError::Unsupported) for a part that has no ONNX form here.
    pub fn of_images(model: &ImageClassifier<Vit>, config: &ImageClassifierConfig) -> Result<Self> {
        let graph = &mut Graph::default();
        let vit = &config.vit;
        let states = encode(graph, &model.encoder, vit)?;
        let class = match vit.pooling {
            ImagePooling::Class => state(graph, &states, 0),
            ImagePooling::Mean => mean(graph, &states, vit),
            other => {
                return Err(OnnxError::unsupported(format!("the pooling {other:?}"), "class and mean can"));
            }
        };
        let mut logits = graph.linear("head", &model.head, &class)?;
        if let Some(head) = &model.distillation_head {
            let distillation = state(graph, &states, 1);
            let others = graph.linear("distillation_head", head, &distillation)?;
            let sum = graph.op("Add", &[&logits, &others]);
            logits = graph.scalar_op("Mul", &sum, 0.5);
        }
        graph.output("logits", &logits, &[BATCH, Dim::Fixed(config.labels.len())]);
        Ok(Self::of(std::mem::take(graph)))
    }

    /// The graph of an encoder of images: `pixel_values` to `last_hidden_state`, `[batch_size, pieces + patches, d_model]`,
    /// whose first state is the class piece's if there is one.
    ///
    /// # Errors
    /// [`OnnxError::Unsupported`](crate::OnnxError::Unsupported) for a part that has no ONNX form here.
    pub fn of_vit(vit: &Vit, config: &VitConfig) -> Result<Self> {
        let graph = &mut Graph::default();
        let states = encode(graph, vit, config)?;
        let [rows, columns] = config.grid();
        let dims = [BATCH, Dim::Fixed(config.n_pieces() + rows * columns), Dim::Fixed(config.d_model)];
        graph.output("last_hidden_state", &states, &dims);
        Ok(Self::of(std::mem::take(graph)))
    }
}

/// The last states of all pieces and patches.
fn encode(graph: &mut Graph, vit: &Vit, config: &VitConfig) -> Result<Value> {
    let mut states = graph.within("embeddings", |graph| embed(graph, vit, config))?;
    let texts = like_texts(config);
    let view = View::of_all();
    graph.within("encoder", |graph| {
        for layer in &vit.encoder.order {
            let of = &vit.encoder.layers[*layer];
            let attention =
                attention::Layer { attention: &of.attention, config: &texts, view: &view, distances: None };
            states = graph
                .within(&format!("layers.{layer}"), |graph| forward(graph, of, &attention, None, &states))?;
        }
        if let Some(norm) = &vit.encoder.final_norm {
            states = graph.norm("final_norm", norm, &texts, &states)?;
        }
        Ok(())
    })?;
    Ok(states)
}

/// The configuration of an encoder of texts with the same layers.
fn like_texts(config: &VitConfig) -> BertConfig {
    let VitConfig { n_layers, d_model, n_heads, d_ff, activation, layer_norm_eps, .. } = *config;
    let mut texts = BertConfig::new(1, n_layers, d_model).with_n_heads(n_heads).with_d_ff(d_ff);
    texts.activation = activation;
    texts.layer_norm_eps = layer_norm_eps;
    texts.norm = NormPlacement::Pre;
    texts
}

/// Patches and positions to vectors, `[batch, pieces + patches, d_model]`.
fn embed(graph: &mut Graph, vit: &Vit, config: &VitConfig) -> Result<Value> {
    let VitConfig { n_channels, image_size: [height, width], patch_size: [p, q], d_model, .. } = *config;
    if height % p != 0 || width % q != 0 {
        let what = format!("images of {height} × {width} pixels in patches of {p} × {q}");
        return Err(OnnxError::unsupported(what, "images that are whole patches can"));
    }
    let dims = [BATCH, Dim::Fixed(n_channels), Dim::Fixed(height), Dim::Fixed(width)];
    let pixels = graph.float_input("pixel_values", &dims);
    let [rows, columns] = config.grid().map(|n| n as i64);
    let [c, p, q] = [n_channels, p, q].map(|n| n as i64);
    // [batch, c, rows · p, columns · q] → [batch, rows · columns, c · p · q]
    let parts = graph.reshape(&pixels, &[0, c, rows, p, columns, q]);
    let parts = graph.transpose(&parts, &[0, 2, 4, 1, 3, 5]);
    let patches = graph.reshape(&parts, &[0, rows * columns, c * p * q]);
    let embeddings = &vit.embeddings;
    let patches = graph.linear("projection", &embeddings.projection, &patches)?;
    let pieces = [
        ("class_piece", embeddings.class_piece.as_ref()),
        ("distillation_piece", embeddings.distillation_piece.as_ref()),
    ];
    let mut all = Vec::new();
    for (name, piece) in pieces {
        let Some(piece) = piece else { continue };
        let batch = graph.shape(&pixels, 0, 1);
        let piece = graph.parameter(name, piece.val());
        let one = graph.ints(&[1, d_model as i64]);
        let shape = graph.concat(&[&batch, &one], 0);
        all.push(graph.op("Expand", &[&piece, &shape]));
    }
    all.push(patches);
    let states = match &all[..] {
        [patches] => patches.clone(),
        all => graph.concat(&all.iter().collect::<Vec<_>>(), 1),
    };
    Ok(match &embeddings.positions {
        Some(positions) => {
            let positions = graph.parameter("positions", positions.val());
            graph.op("Add", &[&states, &positions])
        }
        None => states,
    })
}

/// The state of one piece of each image, `[batch, d_model]`.
fn state(graph: &mut Graph, states: &Value, piece: i64) -> Value {
    let by_piece = graph.transpose(states, &[1, 0, 2]);
    let piece = graph.int(piece);
    graph.rows(&by_piece, &piece)
}

/// The mean of the patches' states, `[batch, d_model]`.
fn mean(graph: &mut Graph, states: &Value, config: &VitConfig) -> Value {
    let [rows, columns] = config.grid();
    let n = rows * columns;
    let weights: Vec<f32> = (0..config.n_pieces() + n)
        .map(|place| if place < config.n_pieces() { 0.0 } else { 1.0 / n as f32 })
        .collect();
    let weights = graph.floats(&weights, &[1, weights.len()]);
    let mean = graph.op("MatMul", &[&weights, states]);
    graph.squeeze(&mean, &[1])
}
