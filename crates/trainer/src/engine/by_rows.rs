//! Losses that compare the examples of a batch, computed in parts, which several replicas may share.

use super::gradients;
use super::messages::{Words, gather};
use super::objective::Objective;
use super::replicas::{Replicas, Share};
use super::step::MicroBatches;
use crate::{Result, TrainerError};
use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor, TensorData};
use cloze_data::derive_seed;
use cloze_ops::{Precision, with_precision};
use std::ops::Range;
use tracing::trace_span;

/// A loss of a batch's rows, such as its embeddings, each of which may be compared with all others.
///
/// The engine computes it in parts, with the graph of one part in memory (Gao et al. 2021, "GradCache"): first the rows of each
/// part without a graph; then the loss of all rows, and its gradient with respect to them; then the rows of each part again,
/// whose gradient continues that of the loss. Replicas share the parts, and each sees the rows of all of them, so a loss
/// has the same bits for any number of replicas.
pub trait ByRows<M, B: ?Sized>: Sync {
    /// The parts of a batch: consecutive ranges of its items, see [`in_chunks`] and [`in_shards`]. A batch of fewer than two is
    /// computed whole, by [`Objective::sums`].
    fn parts(&self, batch: &B) -> Vec<Range<usize>>;

    /// The rows of some items, `[rows, width]`.
    fn rows(&self, model: &M, batch: &B, items: Range<usize>, device: &Device) -> Tensor<2>;

    /// For each term of the objective its sum over the batch, `[1]`, from the rows of all items in order. Parameters of
    /// the model may be used too.
    fn sums(&self, model: &M, batch: &B, rows: Tensor<2>) -> Vec<Tensor<1>>;
}

/// `n` items in parts of at most `chunk`.
pub fn in_chunks(n: usize, chunk: usize) -> Vec<Range<usize>> {
    let chunk = chunk.max(1);
    (0..n).step_by(chunk).map(|start| start..n.min(start + chunk)).collect()
}

/// `n` items in at most `shards` parts, which differ by at most one item.
pub fn in_shards(n: usize, shards: usize) -> Vec<Range<usize>> {
    let shards = shards.clamp(1, n.max(1));
    (0..shards).map(|place| Share::part(place, shards).range(n)).collect()
}

/// `n` items in parts of at most `chunk`, or in so many `shards`; none if neither is set.
pub(crate) fn in_parts(n: usize, chunk: Option<usize>, shards: Option<usize>) -> Vec<Range<usize>> {
    match (chunk, shards) {
        (Some(chunk), _) => in_chunks(n, chunk),
        (None, Some(shards)) => in_shards(n, shards),
        (None, None) => Vec::new(),
    }
}

/// The leaves of the tree over which a step's gradients are added, and which of them this replica computes: a micro-batch,
/// or a part of one whose loss is [by rows](ByRows).
pub(super) struct Leaves {
    /// The parts of each micro-batch; none of those that are computed whole.
    parts: Vec<Vec<Range<usize>>>,
    /// The number of the first leaf.
    first: usize,
    own: Range<usize>,
}

/// The leaves of one micro-batch.
pub(super) struct BatchLeaves<'a> {
    /// The numbers of the leaves.
    pub numbers: Range<usize>,
    /// Its parts; none if it is computed whole, and is one leaf.
    pub parts: &'a [Range<usize>],
    /// The places of this replica's among the leaves.
    pub own: Range<usize>,
}

impl BatchLeaves<'_> {
    /// Whether the micro-batch's loss is this replica's to report.
    pub fn has_first(&self) -> bool {
        self.own.start == 0 && !self.own.is_empty()
    }
}

impl Leaves {
    /// Those of micro-batches: a replica's own, or those of all if the loss is by rows, of which `share` is its part.
    pub fn new<O: Objective>(objective: &O, batches: MicroBatches<'_, O::Batch>, share: Share) -> Self {
        let first = batches.first as usize;
        let Some(by_rows) = objective.by_rows() else {
            let n = batches.batches.len();
            return Self { parts: vec![Vec::new(); n], first, own: first..first + n };
        };
        let parts: Vec<_> = batches.batches.iter().map(|batch| by_rows.parts(batch)).collect();
        let parts: Vec<_> =
            parts.into_iter().map(|parts| if parts.len() < 2 { Vec::new() } else { parts }).collect();
        let own = share.range(parts.iter().map(|parts| parts.len().max(1)).sum());
        Self { parts, first, own: first + own.start..first + own.end }
    }

    /// The number of leaves that this replica computes.
    pub fn n_own(&self) -> usize {
        self.own.len()
    }

    /// Those of each micro-batch, in order.
    pub fn of_batches(&self) -> impl Iterator<Item = BatchLeaves<'_>> {
        let mut next = self.first;
        self.parts.iter().map(move |parts| {
            let start = next;
            next += parts.len().max(1);
            let within = |number: usize| number.clamp(start, next) - start;
            BatchLeaves { numbers: start..next, parts, own: within(self.own.start)..within(self.own.end) }
        })
    }
}

/// How the rows of a micro-batch's parts are computed.
#[derive(Clone, Copy)]
pub(super) struct Setting<'a> {
    pub device: &'a Device,
    pub precision: Precision,
    /// The micro-batch's: each part draws the same dropout from it whenever its rows are computed.
    pub seed: u64,
}

impl Setting<'_> {
    fn rows<M, B: ?Sized>(
        self,
        by_rows: &dyn ByRows<M, B>,
        model: &M,
        batch: &B,
        (place, items): (usize, Range<usize>),
    ) -> Tensor<2> {
        self.device.seed(derive_seed(self.seed, &[place as u64]));
        with_precision(self.precision, || by_rows.rows(model, batch, items, self.device))
    }

    /// The rows of this replica's parts of a micro-batch, without a graph.
    pub fn own_rows<M, B: ?Sized>(
        self,
        by_rows: &dyn ByRows<M, B>,
        model: &M,
        batch: &B,
        leaves: &BatchLeaves<'_>,
    ) -> Vec<Tensor<2>> {
        let _forward = trace_span!("forward").entered();
        let own = leaves.own.clone().zip(leaves.parts[leaves.own.clone()].iter().cloned());
        own.map(|part| self.rows(by_rows, model, batch, part).inner()).collect()
    }

    /// The sums of a micro-batch's terms, from the `rows` of all its parts. `add` receives the gradients of each of this replica's
    /// parts, and its number, times the terms' `factors`; the first part's have those of parameters that the loss itself uses.
    pub fn gradients<M: Module, B: ?Sized>(
        self,
        by_rows: &dyn ByRows<M, B>,
        model: &M,
        batch: &B,
        (leaves, rows): (&BatchLeaves<'_>, Vec<Tensor<2>>),
        factors: &[f64],
        mut add: impl FnMut(usize, GradientsParams),
    ) -> Vec<Tensor<1>> {
        let forward = trace_span!("forward").entered();
        let n_rows: Vec<usize> = rows.iter().map(|rows| rows.dims()[0]).collect();
        let rows = Tensor::from_inner(Tensor::cat(rows, 0)).require_grad();
        let sums = with_precision(self.precision, || by_rows.sums(model, batch, rows.clone()));
        drop(forward);
        let _backward = trace_span!("backward").entered();
        let terms = sums.iter().zip(factors).map(|(sum, factor)| sum.clone().mul_scalar(*factor));
        let Some(loss) = terms.reduce(|one, other| one + other) else { return sums };
        let gradients = loss.backward();
        let of_rows = rows.grad(&gradients);
        let of_loss = GradientsParams::from_grads(gradients, model);
        let mut of_loss = leaves.has_first().then_some(of_loss);
        let mut from: usize = n_rows[..leaves.own.start].iter().sum();
        for place in leaves.own.clone() {
            let n = n_rows[place];
            let of_part = of_rows.clone().map(|of_rows| of_rows.narrow(0, from, n));
            from += n;
            // The gradient of this product is the loss's by way of these rows.
            let part = of_part.map_or_else(GradientsParams::new, |of_part| {
                let rows = self.rows(by_rows, model, batch, (place, leaves.parts[place].clone()));
                GradientsParams::from_grads((rows * Tensor::from_inner(of_part)).sum().backward(), model)
            });
            let part = match of_loss.take() {
                Some(of_loss) => gradients::add(model, Some(of_loss), part),
                None => part,
            };
            add(leaves.numbers.start + place, part);
        }
        sums
    }
}

/// The rows of all parts of a step, from those of each replica's parts, in order.
pub(super) fn gathered(
    replicas: &dyn Replicas,
    own: Vec<Tensor<2>>,
    device: &Device,
) -> Result<Vec<Tensor<2>>> {
    let mut message = vec![own.len() as u32];
    for rows in own {
        let [n, width] = rows.dims();
        message.extend([n as u32, width as u32]);
        message.extend(rows.into_data().iter::<f32>().map(f32::to_bits));
    }
    let mut all = Vec::new();
    for (rank, message) in gather(replicas, message)?.iter().enumerate() {
        let mut words = Words::new(message, rank);
        for _ in 0..words.one()? {
            let shape = [words.one()? as usize, words.one()? as usize];
            let values = words.values(shape[0] * shape[1])?;
            all.push(Tensor::from_data(TensorData::new(values, shape), device));
        }
    }
    Ok(all)
}

/// The rows of each micro-batch in parts, from those of all parts in order.
///
/// # Errors
/// [`TrainerError::Replicas`] if there are not as many as parts: the replicas' batches differ.
pub(super) fn of_batches(rows: Vec<Tensor<2>>, leaves: &Leaves) -> Result<Vec<Vec<Tensor<2>>>> {
    let wanted: usize = leaves.parts.iter().map(Vec::len).sum();
    if rows.len() != wanted {
        let problem = format!("disagree: they have {} parts of a step in place of {wanted}", rows.len());
        return Err(TrainerError::Replicas { problem });
    }
    let mut rows = rows.into_iter();
    Ok(leaves.parts.iter().map(|parts| rows.by_ref().take(parts.len()).collect()).collect())
}

/// The sums of a batch's terms, and its gradients times their `factors`, in one process and in FP32, for loops of one's own. Dropout
/// is drawn from `seed`. The batch is computed in parts even if it is a single one.
pub fn gradients_by_rows<M: Module, B: ?Sized>(
    by_rows: &dyn ByRows<M, B>,
    model: &M,
    batch: &B,
    factors: &[f64],
    seed: u64,
    device: &Device,
) -> (Vec<Tensor<1>>, GradientsParams) {
    let setting = Setting { device, precision: Precision::default(), seed };
    let parts = by_rows.parts(batch);
    let leaves = BatchLeaves { numbers: 0..parts.len(), parts: &parts, own: 0..parts.len() };
    let rows = setting.own_rows(by_rows, model, batch, &leaves);
    let mut all = None;
    let sums = setting.gradients(by_rows, model, batch, (&leaves, rows), factors, |_, part| {
        all = Some(gradients::add(model, all.take(), part));
    });
    (sums, all.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_all_items() {
        assert_eq!(in_chunks(7, 3), [0..3, 3..6, 6..7]);
        assert_eq!(in_chunks(2, 3).first(), Some(&(0..2)));
        assert_eq!(in_shards(7, 3), [0..2, 2..4, 4..7]);
        assert_eq!(in_shards(2, 4), [0..1, 1..2]);
        assert!(in_chunks(0, 3).is_empty());
        assert_eq!(in_shards(0, 3).first(), Some(&(0..0)));
    }

    #[test]
    fn replicas_have_consecutive_leaves() {
        // Two micro-batches of three parts and a whole one.
        let parts = vec![vec![0..2, 2..4, 4..6], Vec::new(), vec![0..1, 1..2, 2..3]];
        let mut seen = Vec::new();
        for rank in 0..3 {
            let own = Share::part(rank, 3).range(7);
            let leaves = Leaves { parts: parts.clone(), first: 0, own };
            for batch in leaves.of_batches() {
                seen.extend(batch.own.clone().map(|place| batch.numbers.start + place));
            }
        }
        assert_eq!(seen, (0..7).collect::<Vec<_>>());
        let leaves = Leaves { parts, first: 0, own: 3..5 };
        let own: Vec<_> = leaves.of_batches().map(|batch| (batch.own.clone(), batch.has_first())).collect();
        assert_eq!(own, [(3..3, false), (0..1, true), (0..1, true)]);
    }
}
