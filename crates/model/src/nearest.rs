/// The closest of `names` if `name` is likely a misspelling: one or two edits away, or a part of it. For
/// errors about unknown names.
pub fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    names
        .filter_map(|known| {
            let distance = strsim::damerau_levenshtein(&name, known);
            let slips = (known.len().max(name.len()) / 3).max(1);
            let part = name.len() >= 3 && (known.contains(&name) || name.contains(known));
            (distance <= slips || part).then_some((distance, known))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_seen_through_and_another_word_is_not() {
        let names = || ["bert", "modernbert", "xlm-roberta"].into_iter();
        for (name, expected) in [
            ("modern-bert", Some("modernbert")),
            ("XLM_RoBERTa", Some("xlm-roberta")),
            ("bret", Some("bert")),
            ("whisper", None),
        ] {
            assert_eq!(nearest(name, names()), expected, "{name}");
        }
    }
}
