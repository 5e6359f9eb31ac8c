//! A score's signature.

use std::fmt;

/// This implementation and its version, for signatures.
///
/// It is not a sacreBLEU version, since sacreBLEU did not compute the score. Scores equal those of sacreBLEU
/// 2.6.0.
pub const VERSION: &str = concat!("cloze-", env!("CARGO_PKG_VERSION"));

/// The settings a score was computed with, in sacreBLEU's format:
/// `nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:…`. Only the version differs; it is [`VERSION`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature(Vec<(&'static str, String)>);

impl Signature {
    /// The signature for this number of references per line (`None` if it varies) and a metric's
    /// settings.
    pub(crate) fn new(n_references: Option<usize>, settings: Vec<(&'static str, String)>) -> Self {
        let references = n_references.map_or_else(|| "var".to_owned(), |n| n.to_string());
        let version = ("version", VERSION.to_owned());
        Self([("nrefs", references)].into_iter().chain(settings).chain([version]).collect())
    }

    /// Adds the number of samples of the test `kind`, `bs` (bootstrap) or `ar` (approximate randomisation).
    pub(crate) fn sampled(&mut self, kind: &'static str, n_samples: usize, seed: u64) {
        self.0.splice(1..1, [(kind, n_samples.to_string()), ("seed", seed.to_string())]);
    }

    /// Names and values in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (*name, value.as_str()))
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs: Vec<String> = self.iter().map(|(name, value)| format!("{name}:{value}")).collect();
        f.write_str(&pairs.join("|"))
    }
}

/// `yes` or `no`.
pub(crate) fn yes(value: bool) -> String {
    if value { "yes" } else { "no" }.to_owned()
}

/// `lc` for lower-cased text, else `mixed`.
pub(crate) fn case(lowercase: bool) -> String {
    if lowercase { "lc" } else { "mixed" }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_in_sacrebleus_order() {
        let mut signature = Signature::new(Some(2), vec![("case", case(true)), ("eff", yes(false))]);
        assert_eq!(signature.to_string(), format!("nrefs:2|case:lc|eff:no|version:{VERSION}"));
        signature.sampled("bs", 1000, 12345);
        let expected = format!("nrefs:2|bs:1000|seed:12345|case:lc|eff:no|version:{VERSION}");
        assert_eq!(signature.to_string(), expected);
        assert!(Signature::new(None, vec![]).to_string().starts_with("nrefs:var|version:cloze-"));
    }
}
