//! One order of addition, whoever has the parts.

/// A sum over numbered parts in the order of a binary tree over their numbers: part 2i is added to part 2i + 1, then the sums of
/// such pairs to one another, and so on; what is left over at the end is added from the last to the first.
///
/// Whoever has consecutive parts can add up whole subtrees and leave the rest to others: the total has the same
/// bits for any division of the parts. In memory are at most ⌈log₂ n⌉ + 1 sums.
#[derive(Debug)]
pub(crate) struct TreeSum<T> {
    nodes: Vec<Node<T>>,
}

/// The sum of the parts from `place · 2^level` to before `(place + 1) · 2^level`.
#[derive(Debug)]
pub(crate) struct Node<T> {
    pub level: u32,
    pub place: u64,
    pub value: T,
}

impl<T> Node<T> {
    /// One part.
    pub fn part(place: u64, value: T) -> Self {
        Self { level: 0, place, value }
    }
}

impl<T> Default for TreeSum<T> {
    fn default() -> Self {
        Self { nodes: Vec::new() }
    }
}

impl<T> TreeSum<T> {
    /// Adds a node that follows all before it.
    pub fn push(&mut self, mut node: Node<T>, mut add: impl FnMut(T, T) -> T) {
        let is_sibling = |left: &Node<T>, node: &Node<T>| {
            left.level == node.level && left.place.is_multiple_of(2) && left.place + 1 == node.place
        };
        while let Some(left) = self.nodes.pop_if(|left| is_sibling(left, &node)) {
            let value = add(left.value, node.value);
            node = Node { level: node.level + 1, place: node.place / 2, value };
        }
        self.nodes.push(node);
    }

    /// The sums that are not added to others yet, in order.
    pub fn nodes(self) -> Vec<Node<T>> {
        self.nodes
    }

    /// Whether there is a single part.
    pub fn is_leaf(&self) -> bool {
        matches!(&self.nodes[..], [Node { level: 0, .. }])
    }

    /// The sum over all parts; none without any.
    pub fn total(self, mut add: impl FnMut(T, T) -> T) -> Option<T> {
        self.nodes.into_iter().map(|node| node.value).rev().reduce(|right, left| add(left, right))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(left: String, right: String) -> String {
        format!("({left}{right})")
    }

    fn pushed(parts: std::ops::Range<u64>) -> TreeSum<String> {
        let mut sum = TreeSum::default();
        parts.for_each(|part| sum.push(Node::part(part, part.to_string()), added));
        sum
    }

    #[test]
    fn parts_are_added_as_a_tree() {
        assert_eq!(pushed(0..0).total(added), None);
        assert_eq!(pushed(0..1).total(added).unwrap(), "0");
        assert_eq!(pushed(0..4).total(added).unwrap(), "((01)(23))");
        assert_eq!(pushed(0..7).total(added).unwrap(), "(((01)(23))((45)6))");
    }

    #[test]
    fn the_order_does_not_depend_on_who_adds() {
        for n in 0..20 {
            for first in 0..=n {
                for second in first..=n {
                    let mut sum = TreeSum::default();
                    for range in [0..first, first..second, second..n] {
                        pushed(range).nodes().into_iter().for_each(|node| sum.push(node, added));
                    }
                    assert_eq!(
                        sum.total(added),
                        pushed(0..n).total(added),
                        "{n} parts cut at {first} and {second}"
                    );
                }
            }
        }
    }
}
