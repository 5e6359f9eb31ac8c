//! Tokenisation for BLEU: sacreBLEU's tokenizers that need no dictionary.

mod chinese;
mod international;
pub(crate) mod western;

use std::borrow::Cow;

/// Tokenisation for BLEU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tokenization {
    /// `13a`: that of `mteval-v13a.pl`, which WMT uses, for languages with spaces between words.
    #[default]
    ThirteenA,
    /// `intl`: that of `mteval-v14.pl`, which handles the punctuation and symbols of all scripts.
    International,
    /// `zh`: Chinese characters are tokens; text between them is tokenised as in `13a`.
    Chinese,
    /// `char`: each character is a token.
    Character,
    /// `none`: splits only at white space, for lines already tokenised.
    None,
}

impl Tokenization {
    /// All tokenisations.
    pub const ALL: [Self; 5] =
        [Self::ThirteenA, Self::International, Self::Chinese, Self::Character, Self::None];

    /// Its name, as in sacreBLEU.
    pub fn name(self) -> &'static str {
        match self {
            Self::ThirteenA => "13a",
            Self::International => "intl",
            Self::Chinese => "zh",
            Self::Character => "char",
            Self::None => "none",
        }
    }

    /// The tokenisation of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    /// The line with white space of any length between its tokens.
    pub(crate) fn apply(self, line: &str) -> Cow<'_, str> {
        match self {
            Self::ThirteenA => western::thirteen_a(line).into(),
            Self::International => international::international(line).into(),
            Self::Chinese => western::separated(&chinese::spaced(line)).into(),
            Self::Character => line.chars().flat_map(|c| [c, ' ']).collect::<String>().into(),
            Self::None => line.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::python::words;
    use super::*;

    #[track_caller]
    fn cut(tokenization: Tokenization, line: &str, expected: &str) {
        let tokens: Vec<String> = words(&tokenization.apply(line)).map(String::from).collect();
        assert_eq!(tokens.join(" "), expected);
    }

    #[test]
    fn names_are_found_again() {
        for tokenization in Tokenization::ALL {
            assert_eq!(Tokenization::named(tokenization.name()), Some(tokenization));
        }
        assert_eq!(Tokenization::named("ja-mecab"), None);
    }

    // What sacreBLEU 2.6.0 makes of these lines.

    #[test]
    fn thirteen_a_cuts_ascii_punctuation() {
        let cut = |line, expected| cut(Tokenization::ThirteenA, line, expected);
        cut("Hello, world!", "Hello , world !");
        cut("It costs $1,234.50, or 5%...", "It costs $ 1,234.50 , or 5 % . . .");
        cut("a 3-4 well-known (x/y)", "a 3 - 4 well-known ( x / y )");
        cut("&quot;R&amp;B&quot; &amp;lt;b&gt;<skipped>", "\" R & B \" < b >");
        cut("end-\nof line\nnext", "endof line next");
        cut("„Größe“ – 3,5 m²,", "„Größe“ – 3,5 m² ,");
        cut("a..b ,, .5 5. é.é", "a . . b , , . 5 5 . é . é");
    }

    #[test]
    fn international_knows_other_scripts() {
        let cut = |line, expected| cut(Tokenization::International, line, expected);
        cut("„Größe“ – 3,5 m² + €5.", "„ Größe “ – 3,5 m² + € 5.");
        cut("हिन्दी। ½, x.", "हिन्दी । ½ , x .");
    }

    #[test]
    fn chinese_characters_are_tokens() {
        cut(Tokenization::Chinese, "我有3.5个apples,好。", "我 有 3.5 个 apples , 好 。");
        cut(Tokenization::Character, "a b\u{3000}ç", "a b ç");
        cut(Tokenization::None, "a  b,", "a b,");
    }
}
