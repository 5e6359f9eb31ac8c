//! What the queries of the two streams see, and their positions.

use super::XlnetInput;
use super::distances::first_row;
use crate::ops::RelativeMask;

/// The streams whose queries a layer has. In each segment those of the content stream come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Streams {
    /// A query at each position, which always sees itself.
    Content,
    /// A query at each predicted position.
    Queries,
    /// Both.
    Both,
}

/// A model's limits on attention within a text, regardless of the order.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub causal: bool,
    pub same_length: bool,
}

/// One query of a segment.
#[derive(Debug, Clone, Copy)]
struct Query {
    row: usize,
    place: usize,
    sees_itself: bool,
}

/// What each query sees of the memory's keys and the segment's. All layers share it.
pub(super) fn mask(input: &XlnetInput, streams: Streams, memory_len: usize, limits: Limits) -> RelativeMask {
    let (batch, len, k_len) = (input.batch, input.len, memory_len + input.len);
    let n_targets = input.targets.len() / batch;
    let queries: Vec<Query> = (0..batch)
        .flat_map(|row| {
            let content = (0..len).map(move |place| Query { row, place, sees_itself: true });
            let targets = input.targets[row * n_targets..][..n_targets].iter();
            let targets = targets.map(move |place| Query { row, place: *place as usize, sees_itself: false });
            content
                .filter(move |_| streams != Streams::Queries)
                .chain(targets.filter(move |_| streams != Streams::Content))
        })
        .collect();
    let pairs = |value: &dyn Fn(Query, usize) -> bool| -> Vec<bool> {
        queries.iter().flat_map(|query| (0..k_len).map(|key| value(*query, key))).collect()
    };
    let hides = |Query { row, place, sees_itself }: Query, key: usize| {
        let at = memory_len + place;
        if key == at && sees_itself {
            return false;
        }
        let limited = limits.causal && (key > at || limits.same_length && key < place);
        limited || key >= memory_len && input.hides(row, place, key - memory_len)
    };
    let first = queries.iter().map(|query| first_row(query.place, len)).collect();
    let mask = RelativeMask::new(first, batch, k_len).with_hidden(pairs(&hides));
    match &input.segments {
        None => mask,
        Some(segments) => {
            let differs = |Query { row, place, .. }: Query, key: usize| {
                let other = if key < memory_len { 0 } else { segments[row * len + key - memory_len] };
                segments[row * len + place] != other
            };
            mask.with_others(pairs(&differs))
        }
    }
}
