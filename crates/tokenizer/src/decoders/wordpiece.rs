//! WordPiece decoding, with the clean-up of transformers' `clean_up_tokenization`.

/// Turns `token` into its text after the preceding tokens.
pub(super) fn decode(token: &mut String, first: bool, prefix: &str, cleanup: bool) {
    if !first {
        match token.strip_prefix(prefix) {
            Some(rest) => *token = rest.to_owned(),
            None => token.insert(0, ' '),
        }
    }
    if cleanup {
        tidy(token);
    }
}

/// Drops spaces before punctuation and in contractions.
pub(super) fn tidy(token: &mut String) {
    // Every rule begins with a space.
    if token.contains(' ') {
        for (from, to) in RULES {
            if token.contains(from) {
                *token = token.replace(from, to);
            }
        }
    }
}

const RULES: [(&str, &str); 11] = [
    (" .", "."),
    (" ?", "?"),
    (" !", "!"),
    (" ,", ","),
    (" ' ", "'"),
    (" n't", "n't"),
    (" 'm", "'m"),
    (" do not", " don't"),
    (" 's", "'s"),
    (" 've", "'ve"),
    (" 're", "'re"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spaces_and_contractions() {
        let run = |token: &str, first| {
            let mut token = token.to_owned();
            decode(&mut token, first, "##", true);
            token
        };
        assert_eq!(run("##ing", false), "ing");
        assert_eq!(run("##ing", true), "##ing");
        assert_eq!(run("?", false), "?");
        assert_eq!(run("'s", false), "'s");
        assert_eq!(run("word", false), " word");
    }
}
