//! Texts that end a continuation, found while it is being written.

use std::ops::ControlFlow;

/// How much of a growing text was shown.
#[derive(Debug, Default)]
pub(crate) struct Growing {
    shown: usize,
    is_over: bool,
}

impl Growing {
    /// Whether the text goes on: it breaks at a stop.
    pub fn flow(&self) -> ControlFlow<()> {
        if self.is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// What may be shown of the text so far and was not: whole characters, and nothing that could still become a stop.
    pub fn grow<'t>(&mut self, text: &'t str, stops: &[String]) -> &'t str {
        if self.is_over {
            return "";
        }
        // A character's bytes may be spread over several tokens.
        let whole = text.trim_end_matches(char::REPLACEMENT_CHARACTER);
        // What was shown has no beginning of a stop at its end.
        let new = whole.get(self.shown..).unwrap_or_default();
        let new = match first(new, stops) {
            Some(place) => {
                self.is_over = true;
                &new[..place]
            }
            None => &new[..new.len() - held(new, stops)],
        };
        self.shown += new.len();
        new
    }
}

/// A text up to the first of its stops, and whether it has one.
pub(crate) fn cut<'t>(text: &'t str, stops: &[String]) -> (&'t str, bool) {
    match first(text, stops) {
        Some(place) => (&text[..place], true),
        None => (text, false),
    }
}

/// Where the first stop begins.
fn first(text: &str, stops: &[String]) -> Option<usize> {
    stops.iter().filter_map(|stop| text.find(stop.as_str())).min()
}

/// The bytes at the end that may be the beginning of a stop.
fn held(text: &str, stops: &[String]) -> usize {
    let of_stop = |stop: &String| {
        let lengths = stop.char_indices().map(|(place, _)| place).filter(|place| *place > 0);
        lengths.filter(|length| text.ends_with(&stop[..*length])).max().unwrap_or(0)
    };
    stops.iter().map(of_stop).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(stops: &[&str], texts: &[&str]) -> (Vec<String>, bool) {
        let stops: Vec<String> = stops.iter().map(|stop| (*stop).to_owned()).collect();
        let mut growing = Growing::default();
        let shown = texts.iter().map(|text| growing.grow(text, &stops).to_owned()).collect();
        (shown, growing.flow().is_break())
    }

    #[test]
    fn a_text_is_shown_up_to_its_first_stop() {
        assert_eq!(
            shown(&[], &["a ", "a b\u{fffd}", "a bé"]),
            (vec!["a ".into(), "b".into(), "é".into()], false)
        );
        let (parts, is_over) = shown(&["END", "x"], &["ab E", "ab EN", "ab END cd", "ab END cd e"]);
        assert_eq!((parts, is_over), (vec!["ab ".into(), String::new(), String::new(), String::new()], true));
        let (parts, is_over) = shown(&["END"], &["ab E", "ab EN", "ab EN!"]);
        assert_eq!((parts.concat(), is_over), ("ab EN!".into(), false));
        let (parts, _) = shown(&["é!"], &["é", "éa é", "éa é!"]);
        assert_eq!(parts.concat(), "éa ");
    }

    #[test]
    fn a_whole_text_is_cut_at_its_first_stop() {
        let stops = ["\n".to_owned(), "b c".to_owned()];
        assert_eq!(cut("a b c\nd", &stops), ("a ", true));
        assert_eq!(cut("a\nb", &stops), ("a", true));
        assert_eq!(cut("a b", &stops), ("a b", false));
        assert_eq!(cut("a b", &[]), ("a b", false));
    }
}
