//! The slices of a model's parameters that replicas sum and update (ZeRO stage 1, Rajbhandari et al. 2020, §5.1).

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::tensor::Tensor;
use cloze_ops::SquaredSums;
use std::collections::HashMap;
use std::ops::Range;

/// Where a parameter may be cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// After a multiple of [`SquaredSums::PIECE`] elements, so that pieces have the squared sums of the whole.
    Anywhere,
    /// Not at all: its update needs the norm of the whole parameter, or its device sums it as a whole.
    Nowhere,
}

/// Consecutive elements of a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    /// The replica that sums and updates them.
    pub owner: usize,
    /// Their places in the flattened parameter.
    pub range: Range<usize>,
}

/// A trained parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sliced {
    pub id: ParamId,
    pub shape: Vec<usize>,
    /// Its pieces in order, at least one.
    pub pieces: Vec<Piece>,
}

impl Sliced {
    pub fn n_elements(&self) -> usize {
        elements(&self.shape)
    }
}

/// A part of a piece.
#[derive(Debug, Clone)]
pub(super) struct Part<'a> {
    pub parameter: &'a Sliced,
    /// Which of its owner's pieces it is a part of.
    pub piece: usize,
    /// Its first element's place in the piece.
    pub begin: usize,
    /// Its places in the flattened parameter.
    pub range: Range<usize>,
}

/// What travels in one exchange: a part of every replica's slice.
#[derive(Debug)]
pub(super) struct Bucket<'a> {
    /// Of each owner, the parts of its pieces, in order.
    pub parts: Vec<Vec<Part<'a>>>,
    /// The parameters that have no part in later buckets.
    pub ends: Vec<&'a Sliced>,
}

/// The elements of a bucket, of all replicas together: 8 MB in FP32, which keeps a network busy and is little beside a large
/// model.
const BUCKET: usize = 2 << 20;

/// The pieces of all trained parameters. Each replica owns consecutive ones, about as many elements as the others.
#[derive(Debug)]
pub(super) struct Slices {
    parameters: Vec<Sliced>,
    places: HashMap<ParamId, usize>,
    size: usize,
    bucket: usize,
}

impl Slices {
    /// Divides the parameters of a model for which `is_trained` holds among `size` replicas.
    pub fn new<M: Module>(
        model: &M,
        size: usize,
        cut: Cut,
        is_trained: impl Fn(ParamId, bool) -> bool,
    ) -> Self {
        let mut found = Found { is_trained, parameters: Vec::new() };
        model.visit(&mut found);
        let parameters = found.parameters;
        let n: usize = parameters.iter().map(|(_, shape)| elements(shape)).sum();
        let mut start = 0;
        let parameters = parameters.into_iter().map(|(id, shape)| {
            let length = elements(&shape);
            let pieces = pieces(start, length, n, size, cut);
            start += length;
            Sliced { id, shape, pieces }
        });
        let parameters: Vec<Sliced> = parameters.collect();
        let places = parameters.iter().enumerate().map(|(place, parameter)| (parameter.id, place)).collect();
        Self { parameters, places, size: size.max(1), bucket: BUCKET }
    }

    /// The same with buckets of at most so many elements.
    #[cfg(test)]
    pub fn with_bucket(self, bucket: usize) -> Self {
        Self { bucket, ..self }
    }

    /// The number of replicas.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Whether a parameter is trained.
    pub fn contains(&self, id: ParamId) -> bool {
        self.places.contains_key(&id)
    }

    /// The pieces of a replica, in order, with their parameters.
    pub fn of(&self, owner: usize) -> impl Iterator<Item = (&Sliced, &Range<usize>)> {
        let of_owner = move |piece: &&Piece| piece.owner == owner;
        self.parameters.iter().flat_map(move |parameter| {
            parameter.pieces.iter().filter(of_owner).map(move |piece| (parameter, &piece.range))
        })
    }

    /// All pieces, cut into buckets: messages of a whole model would take more memory than sharing its moments saves. The
    /// first bucket has the beginning of every replica's slice, so that each sends and receives as much as the others.
    pub fn buckets(&self) -> Vec<Bucket<'_>> {
        let most = (self.bucket / self.size).max(1);
        let mut buckets: Vec<Bucket<'_>> = Vec::new();
        let mut last = vec![0; self.parameters.len()];
        for owner in 0..self.size {
            let (mut bucket, mut free) = (0, most);
            for (piece, (parameter, range)) in self.of(owner).enumerate() {
                let mut start = range.start;
                loop {
                    let end = range.end.min(start + free);
                    if buckets.len() == bucket {
                        buckets.push(Bucket { parts: vec![Vec::new(); self.size], ends: Vec::new() });
                    }
                    let part = Part { parameter, piece, begin: start - range.start, range: start..end };
                    buckets[bucket].parts[owner].push(part);
                    let last = &mut last[self.places[&parameter.id]];
                    *last = bucket.max(*last);
                    free -= end - start;
                    if free == 0 {
                        (bucket, free) = (bucket + 1, most);
                    }
                    if end == range.end {
                        break;
                    }
                    start = end;
                }
            }
        }
        for (parameter, bucket) in self.parameters.iter().zip(last) {
            buckets[bucket].ends.push(parameter);
        }
        buckets
    }
}

fn elements(shape: &[usize]) -> usize {
    shape.iter().product()
}

/// The pieces of a parameter that begins after `start` of all `n` elements.
fn pieces(start: usize, length: usize, n: usize, size: usize, cut: Cut) -> Vec<Piece> {
    // The end of a replica's slice, within this parameter.
    let end_of = |owner: usize| {
        let end = (n as u128 * (owner as u128 + 1) / size as u128) as usize;
        let within = end.clamp(start, start + length) - start;
        match cut {
            _ if within == length || owner + 1 >= size => length,
            Cut::Anywhere => within / SquaredSums::PIECE * SquaredSums::PIECE,
            Cut::Nowhere if within * 2 >= length => length,
            Cut::Nowhere => 0,
        }
    };
    let mut pieces = Vec::new();
    let mut begin = 0;
    for owner in 0..size.max(1) {
        let end = end_of(owner);
        if end > begin {
            pieces.push(Piece { owner, range: begin..end });
            begin = end;
        }
    }
    if pieces.is_empty() {
        // A parameter without elements.
        pieces.push(Piece { owner: 0, range: 0..length });
    }
    pieces
}

struct Found<F> {
    is_trained: F,
    parameters: Vec<(ParamId, Vec<usize>)>,
}

impl<F: Fn(ParamId, bool) -> bool> ModuleVisitor for Found<F> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if (self.is_trained)(param.id, param.is_require_grad()) {
            self.parameters.push((param.id, param.shape().to_vec()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;
    use cloze_model::ParamInit;
    use cloze_model::bert::BertConfig;

    #[test]
    fn every_element_has_one_owner() {
        let model =
            BertConfig::new(1_000, 3, 96).with_d_ff(384).init(&mut ParamInit::new(&Device::flex(), 1));
        for cut in [Cut::Anywhere, Cut::Nowhere] {
            for size in 1..9 {
                let slices = Slices::new(&model, size, cut, |_, _| true);
                let mut last = 0;
                for parameter in &slices.parameters {
                    let mut end = 0;
                    for Piece { owner, range } in &parameter.pieces {
                        assert!(range.start == end && *owner >= last, "{parameter:?}");
                        assert!(range.start.is_multiple_of(SquaredSums::PIECE), "{parameter:?}");
                        (end, last) = (range.end, *owner);
                    }
                    assert_eq!(end, parameter.n_elements());
                    assert!(slices.contains(parameter.id));
                    assert!(cut == Cut::Anywhere || parameter.pieces.len() == 1);
                }
                let owned = |owner| slices.of(owner).map(|(_, range)| range.len()).sum::<usize>();
                let all: usize = slices.parameters.iter().map(Sliced::n_elements).sum();
                assert_eq!((0..size).map(owned).sum::<usize>(), all);
                if cut == Cut::Anywhere {
                    let most = (0..size).map(owned).max().unwrap();
                    assert!(most <= all / size + SquaredSums::PIECE + 1, "{most} of {all} by {size}");
                }
            }
        }
    }

    /// Buckets have all pieces in order, none has more than its share, and a parameter ends in the last one that has a part of it.
    #[test]
    fn buckets_have_every_element_once() {
        let model = BertConfig::new(300, 2, 48).init(&mut ParamInit::new(&Device::flex(), 1));
        for (size, bucket) in [(1, 7), (2, 1_000), (3, 4_096), (4, 1 << 30)] {
            let slices = Slices::new(&model, size, Cut::Nowhere, |_, _| true).with_bucket(bucket);
            let buckets = slices.buckets();
            let mut found: Vec<Vec<(ParamId, Range<usize>)>> = vec![Vec::new(); size];
            let mut ended = Vec::new();
            for Bucket { parts, ends } in &buckets {
                for (owner, parts) in parts.iter().enumerate() {
                    let n: usize = parts.iter().map(|part| part.range.len()).sum();
                    assert!(n <= (bucket / size).max(1), "{n} elements of {bucket} for {size}");
                    for Part { parameter, piece, begin, range } in parts {
                        assert!(!ended.contains(&parameter.id));
                        match found[owner].last_mut().filter(|_| *begin > 0) {
                            Some((id, whole)) => {
                                assert_eq!(
                                    (*id, whole.end, whole.len()),
                                    (parameter.id, range.start, *begin)
                                );
                                whole.end = range.end;
                            }
                            None => found[owner].push((parameter.id, range.clone())),
                        }
                        assert_eq!(found[owner].len(), piece + 1);
                    }
                }
                ended.extend(ends.iter().map(|parameter| parameter.id));
            }
            assert_eq!(ended.len(), slices.parameters.len());
            for (owner, found) in found.into_iter().enumerate() {
                let all: Vec<_> =
                    slices.of(owner).map(|(parameter, range)| (parameter.id, range.clone())).collect();
                assert_eq!(found, all);
            }
            assert_eq!(buckets.len() > 1, bucket < 1 << 30);
        }
    }
}
