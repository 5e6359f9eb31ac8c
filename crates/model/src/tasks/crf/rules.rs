/// Which tags may begin a sequence, which may follow which, and which may end it.
///
/// ```
/// # use cloze_model::tasks::TagRules;
/// // O, B and I: I may follow only B and I.
/// let pairs = [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2)];
/// let rules = TagRules::new(3, pairs, [0, 1], 0..3);
/// assert!(rules.allow(&[0, 1, 2]));
/// assert!(!rules.allow(&[0, 2]));
/// assert!(!rules.allow(&[2, 0]));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TagRules {
    begins: Vec<bool>,
    /// `[from, to]`
    follows: Vec<bool>,
    ends: Vec<bool>,
}

impl TagRules {
    /// Rules for `n_tags` tags: the second of each pair may follow the first, `begins` may begin and `ends`
    /// end a sequence, and nothing else is allowed.
    ///
    /// # Panics
    /// If a tag is not below `n_tags`.
    pub fn new(
        n_tags: usize,
        pairs: impl IntoIterator<Item = (usize, usize)>,
        begins: impl IntoIterator<Item = usize>,
        ends: impl IntoIterator<Item = usize>,
    ) -> Self {
        let below = |tag: usize| {
            assert!(tag < n_tags, "tag {tag} of {n_tags}");
            tag
        };
        let mut follows = vec![false; n_tags * n_tags];
        pairs.into_iter().for_each(|(from, to)| follows[below(from) * n_tags + below(to)] = true);
        let [mut can_begin, mut can_end] = [(); 2].map(|()| vec![false; n_tags]);
        begins.into_iter().for_each(|tag| can_begin[below(tag)] = true);
        ends.into_iter().for_each(|tag| can_end[below(tag)] = true);
        Self { begins: can_begin, follows, ends: can_end }
    }

    /// The number of tags.
    pub fn n_tags(&self) -> usize {
        self.begins.len()
    }

    /// Whether a sequence may begin with this tag.
    pub fn begins(&self, tag: usize) -> bool {
        self.begins[tag]
    }

    /// Whether `to` may follow `from`.
    pub fn follows(&self, from: usize, to: usize) -> bool {
        self.follows[from * self.n_tags() + to]
    }

    /// Whether a sequence may end with this tag.
    pub fn ends(&self, tag: usize) -> bool {
        self.ends[tag]
    }

    /// Whether a whole sequence obeys the rules; an empty one does.
    pub fn allow(&self, tags: &[usize]) -> bool {
        tags.first().is_none_or(|tag| self.begins(*tag))
            && tags.windows(2).all(|pair| self.follows(pair[0], pair[1]))
            && tags.last().is_none_or(|tag| self.ends(*tag))
    }
}
