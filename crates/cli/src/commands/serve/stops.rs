//! The end of a text at a stop, while it is being written.

/// A text that grows, up to the first of its stops.
pub struct Growing<'a> {
    stops: &'a [String],
    text: String,
    sent: usize,
    is_over: bool,
}

impl<'a> Growing<'a> {
    pub fn new(stops: &'a [String]) -> Self {
        Self { stops, text: String::new(), sent: 0, is_over: false }
    }

    /// Whether a stop was found.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Adds text; returns what may be shown of it: nothing that could still become a stop.
    pub fn push(&mut self, new: &str) -> String {
        if self.is_over {
            return String::new();
        }
        self.text.push_str(new);
        let end = match self.stop() {
            Some(place) => {
                self.is_over = true;
                place
            }
            None => self.text.len() - self.held(),
        };
        self.show(end)
    }

    /// The rest, once the whole text is known.
    pub fn finish(&mut self, whole: &str) -> String {
        let rest = whole.get(self.text.len()..).unwrap_or_default().to_owned();
        let mut shown = self.push(&rest);
        if !self.is_over {
            shown += &self.show(self.text.len());
        }
        shown
    }

    fn show(&mut self, end: usize) -> String {
        let shown = self.text.get(self.sent..end).unwrap_or_default().to_owned();
        self.sent = self.sent.max(end);
        shown
    }

    /// Where the first stop begins.
    fn stop(&self) -> Option<usize> {
        self.stops.iter().filter_map(|stop| self.text.find(stop.as_str())).min()
    }

    /// The bytes at the end that may be the beginning of a stop.
    fn held(&self) -> usize {
        let of_stop = |stop: &String| {
            let lengths = stop.char_indices().map(|(place, _)| place).filter(|place| *place > 0);
            lengths.filter(|length| self.text.ends_with(&stop[..*length])).max().unwrap_or(0)
        };
        self.stops.iter().map(of_stop).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(stops: &[&str], parts: &[&str], whole: &str) -> (Vec<String>, bool) {
        let stops: Vec<String> = stops.iter().map(|stop| (*stop).to_owned()).collect();
        let mut growing = Growing::new(&stops);
        let mut shown: Vec<String> = parts.iter().map(|part| growing.push(part)).collect();
        shown.push(growing.finish(whole));
        (shown, growing.is_over())
    }

    #[test]
    fn a_text_ends_at_its_first_stop() {
        assert_eq!(shown(&[], &["a ", "b"], "a bc"), (vec!["a ".into(), "b".into(), "c".into()], false));
        let (parts, is_over) = shown(&["END", "x"], &["ab E", "N", "D cd"], "ab END cd");
        assert_eq!((parts.concat(), is_over), ("ab ".into(), true));
        assert_eq!(parts[0], "ab ", "what may be a stop is held back");
        let (parts, is_over) = shown(&["END"], &["ab E", "N"], "ab EN");
        assert_eq!((parts.concat(), is_over), ("ab EN".into(), false));
        let (parts, _) = shown(&["é!"], &["é", "a é"], "éa é!");
        assert_eq!(parts.concat(), "éa ");
    }
}
