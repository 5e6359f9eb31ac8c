//! Multi-head attention (Vaswani et al. 2017, §3.2.2) with what distances add to its scores.

use crate::Result;
use crate::distances::Distances;
use crate::graph::{Graph, Value, int};
use crate::rotary::Rotation;
use crate::sequences::Sequences;
use cloze_model::bert::BertConfig;
use cloze_model::blocks::{Linear, MultiHeadAttention};

/// What layers of one kind share: which keys a query sees, and how queries and keys are rotated.
pub(crate) struct View {
    /// Added to the scores, if anything is: 0 or a bias where a query sees a key, about the least number elsewhere. Broadcastable to
    /// `[batch, n_heads, len, len]`.
    pub bias: Option<Value>,
    pub rotation: Option<Rotation>,
}

/// A number that leaves a key's probability 0 when it is added to its score, and still a number: where a query sees no key
/// at all, as padding may, minus infinity would make all of them NaN.
const UNSEEN: f32 = f32::MIN;

impl View {
    /// The mask of padding, and of keys after the query or outside of the window if there are such limits.
    pub fn new(
        graph: &mut Graph,
        sequences: &mut Sequences,
        causal: bool,
        window: Option<usize>,
        relative: Option<&Value>,
    ) -> Self {
        let kept = sequences.kept(graph);
        let mut seen = graph.unsqueeze(&kept, &[1, 2]);
        if causal {
            let distances = sequences.distances(graph);
            let zero = graph.int(0);
            let before = graph.op("LessOrEqual", &[&distances, &zero]);
            seen = graph.op("And", &[&seen, &before]);
        }
        if let Some(window) = window {
            let distances = sequences.distances(graph);
            let far = graph.op("Abs", &[&distances]);
            let window = graph.int(window as i64);
            let near = graph.op("LessOrEqual", &[&far, &window]);
            seen = graph.op("And", &[&seen, &near]);
        }
        let (zero, unseen) = (graph.float(0.0), graph.float(UNSEEN));
        let bias = graph.op("Where", &[&seen, &zero, &unseen]);
        let bias = match relative {
            Some(relative) => graph.op("Add", &[&bias, relative]),
            None => bias,
        };
        Self { bias: Some(bias), rotation: None }
    }

    /// Every query sees every key.
    pub fn of_all() -> Self {
        Self { bias: None, rotation: None }
    }
}

/// The number of outputs of a map.
fn width(map: &Linear) -> usize {
    map.weight.lazy_shape()[1]
}

/// One layer's attention.
pub(crate) struct Layer<'a> {
    pub attention: &'a MultiHeadAttention,
    pub config: &'a BertConfig,
    pub view: &'a View,
    pub distances: Option<&'a Distances>,
}

impl Layer<'_> {
    /// # Shapes
    /// - `x`: `[batch, len, d_model]`; returns the same
    pub fn forward(&self, graph: &mut Graph, x: &Value) -> Result<Value> {
        let Self { attention, config, .. } = *self;
        let d = config.head_width();
        let [n_heads, n_kv_heads] = [&attention.query, &attention.key].map(|map| width(map) / d);
        let q = graph.linear("query", &attention.query, x)?;
        let k = graph.linear("key", &attention.key, x)?;
        let v = graph.linear("value", &attention.value, x)?;
        let q = self.split(graph, &q, [n_heads, d], true);
        let k = self.split(graph, &k, [n_kv_heads, d], true);
        let v = self.split(graph, &v, [n_kv_heads, width(&attention.value) / n_kv_heads], false);
        let [k, v] = [k, v].map(|x| repeated(graph, &x, [n_heads, n_kv_heads]));
        let scores = match (&attention.transformer_xl, &attention.disentangled) {
            (Some(_), _) => self.transformer_xl_scores(graph, &q, &k)?,
            (None, Some(_)) => self.disentangled_scores(graph, &q, &k)?,
            (None, None) => {
                let q = scaled(graph, &q, self.scale());
                product(graph, &q, &k)
            }
        };
        let scores = match &self.view.bias {
            Some(bias) => graph.op("Add", &[&scores, bias]),
            None => scores,
        };
        let weights = graph.op_with("Softmax", &[&scores], vec![int("axis", -1)]);
        let context = graph.op("MatMul", &[&weights, &v]);
        let context = graph.transpose(&context, &[0, 2, 1, 3]);
        let context = graph.reshape(&context, &[0, 0, attention.output.weight.lazy_shape()[0] as i64]);
        graph.linear("output", &attention.output, &context)
    }

    /// The factor of all scores.
    fn scale(&self) -> f32 {
        let scale = match self.config.scaled_scores {
            true => 1.0 / (self.config.head_width() as f64).sqrt(),
            false => 1.0,
        };
        // All terms of disentangled scores are divided by the root of their number.
        let n_terms = self
            .config
            .disentangled
            .map_or(1, |terms| 1 + u8::from(terms.content_to_position) + u8::from(terms.position_to_content));
        (scale / f64::from(n_terms).sqrt()) as f32
    }

    /// `[batch, len, n_heads · d]` → `[batch, n_heads, len, d]`, rotated if there are rotary positions.
    fn split(&self, graph: &mut Graph, x: &Value, heads: [usize; 2], rotated: bool) -> Value {
        let [n_heads, d] = heads.map(|size| size as i64);
        let mut x = graph.reshape(x, &[0, 0, n_heads, d]);
        if let Some(rotation) = self.view.rotation.as_ref().filter(|_| rotated) {
            x = rotation.apply(graph, &x, heads);
        }
        graph.transpose(&x, &[0, 2, 1, 3])
    }

    /// The keys or queries of distances, `[n_heads, d_k, n_rows]`.
    fn of_distances(
        &self,
        graph: &mut Graph,
        part: &str,
        map: &Linear,
        distances: &Distances,
    ) -> Result<Value> {
        let d = self.config.head_width();
        let mapped = graph.linear(part, map, &distances.vectors)?;
        let mapped = graph.reshape(&mapped, &[0, (width(map) / d) as i64, d as i64]);
        Ok(graph.transpose(&mapped, &[1, 2, 0]))
    }

    /// The scores of DeBERTa (He et al. 2021, eq. 4).
    fn disentangled_scores(&self, graph: &mut Graph, q: &Value, k: &Value) -> Result<Value> {
        let q = scaled(graph, q, self.scale());
        let mut scores = product(graph, &q, k);
        let (Some(terms), Some(distances)) = (&self.attention.disentangled, self.distances) else {
            return Ok(scores);
        };
        let has = self.config.disentangled;
        let own = |own: &'static str, shared: &'static str, has_own: bool| if has_own { own } else { shared };
        if has.is_some_and(|terms| terms.content_to_position) {
            let map = terms.key.as_ref().unwrap_or(&self.attention.key);
            let part = own("disentangled.key", "key", terms.key.is_some());
            let keys = self.of_distances(graph, part, map, distances)?;
            let added = distances.scores(graph, &q, &keys);
            scores = graph.op("Add", &[&scores, &added]);
        }
        if has.is_some_and(|terms| terms.position_to_content) {
            let map = terms.query.as_ref().unwrap_or(&self.attention.query);
            let part = own("disentangled.query", "query", terms.query.is_some());
            let queries = self.of_distances(graph, part, map, distances)?;
            let queries = scaled(graph, &queries, self.scale());
            let added = distances.scores_of_keys(graph, k, &queries);
            scores = graph.op("Add", &[&scores, &added]);
        }
        Ok(scores)
    }

    /// The scores of Transformer-XL with XLNet's segments (Dai et al. 2019, §3.3; Yang et al. 2019, §2.5).
    fn transformer_xl_scores(&self, graph: &mut Graph, q: &Value, k: &Value) -> Result<Value> {
        let (Some(terms), Some(distances)) = (&self.attention.transformer_xl, self.distances) else {
            return Ok(product(graph, q, k));
        };
        let scale = self.scale();
        graph.within("transformer_xl", |graph| {
            let [n_heads, d_k] = terms.content_bias.dims();
            let biases = [&terms.content_bias, &terms.position_bias, &terms.segment_bias];
            let names = ["content_bias", "position_bias", "segment_bias"];
            let mut queries = names.into_iter().zip(biases).map(|(name, bias)| {
                let bias = graph.parameter(name, bias.val().reshape([1, n_heads, 1, d_k]));
                let q = graph.op("Add", &[q, &bias]);
                scaled(graph, &q, scale)
            });
            let mut next = || queries.next().expect("there are three biases");
            let [of_content, of_position, of_segment] = [next(), next(), next()];
            drop(queries);
            let content = product(graph, &of_content, k);
            let keys = self.of_distances(graph, "position", &terms.position, distances)?;
            let position = distances.scores(graph, &of_position, &keys);
            let mut scores = graph.op("Add", &[&content, &position]);
            if let Some(of_others) = &distances.of_others {
                // Softmax ignores what is added to a whole row, so the difference of the two vectors is enough.
                let segments = terms.segments.val();
                let difference = segments.clone().narrow(0, 1, 1) - segments.narrow(0, 0, 1);
                let difference = difference.reshape([1, n_heads, d_k, 1]);
                let difference = graph.parameter("segment_difference", difference);
                let segment = graph.op("MatMul", &[&of_segment, &difference]);
                let segment = graph.op("Mul", &[&segment, of_others]);
                scores = graph.op("Add", &[&scores, &segment]);
            }
            Ok(scores)
        })
    }
}

/// `q · kᵀ`
fn product(graph: &mut Graph, q: &Value, k: &Value) -> Value {
    let k = graph.transpose(k, &[0, 1, 3, 2]);
    graph.op("MatMul", &[q, &k])
}

fn scaled(graph: &mut Graph, x: &Value, scale: f32) -> Value {
    if scale == 1.0 { x.clone() } else { graph.scalar_op("Mul", x, scale) }
}

/// Keys or values for all heads of queries, `[batch, n_heads, len, d]`, if several share one (Ainslie et al. 2023).
fn repeated(graph: &mut Graph, x: &Value, [n_heads, n_kv_heads]: [usize; 2]) -> Value {
    if n_heads == n_kv_heads {
        return x.clone();
    }
    let x = graph.unsqueeze(x, &[2]);
    let shape = graph.ints(&[1, 1, (n_heads / n_kv_heads) as i64, 1, 1]);
    let all = graph.op("Expand", &[&x, &shape]);
    let (outer, inner) = (graph.shape(&all, 0, 1), graph.shape(&all, 3, 5));
    let heads = graph.ints(&[n_heads as i64]);
    let shape = graph.concat(&[&outer, &heads, &inner], 0);
    graph.op("Reshape", &[&all, &shape])
}
