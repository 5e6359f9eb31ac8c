//! The four normalisation forms of Unicode (UAX #15), with the reference's tables (Unicode 9).

use unicode_normalization_alignments::UnicodeNormalization;

use crate::normalized::NormalizedText;

macro_rules! form {
    ($name:ident, $doc:literal) => {
        #[doc = $doc]
        pub(super) fn $name(text: &mut NormalizedText) {
            if !text.text().is_ascii() {
                let old = text.text().to_owned();
                text.transform(old.chars().$name(), 0);
            }
        }
    };
}

form!(nfc, "Canonical composition.");
form!(nfd, "Canonical decomposition.");
form!(nfkc, "Compatibility composition.");
form!(nfkd, "Compatibility decomposition.");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        let run = |form: fn(&mut NormalizedText), text| {
            let mut text = NormalizedText::new(text, 0, true);
            form(&mut text);
            text.into_parts()
        };
        assert_eq!(run(nfd, "é").0, "e\u{301}");
        assert_eq!(run(nfd, "é").1.unwrap(), [(0, 2); 3]);
        assert_eq!(run(nfc, "e\u{301}").0, "é");
        assert_eq!(run(nfkd, "ﬁ").0, "fi");
        assert_eq!(run(nfkc, "①").0, "1");
    }
}
