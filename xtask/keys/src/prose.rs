//! Doc comments as text of the page: without links to Rust items, and with the default apart.

use anyhow::{Result, bail};

/// The paragraphs of a doc comment: without examples, and without what follows a heading, which is for
/// readers of the library.
pub fn paragraphs(lines: &[String]) -> Vec<String> {
    let (mut paragraphs, mut current, mut in_example) = (Vec::new(), String::new(), false);
    for line in lines {
        let line = line.trim_end();
        if line.starts_with("# ") && !in_example {
            break;
        }
        let is_fence = line.starts_with("```");
        in_example ^= is_fence;
        if is_fence || in_example {
            continue;
        }
        if line.is_empty() {
            paragraphs.push(std::mem::take(&mut current));
            continue;
        }
        if !current.is_empty() {
            current.push(if line.starts_with("- ") || line.starts_with('|') { '\n' } else { ' ' });
        }
        current += line;
    }
    paragraphs.push(current);
    paragraphs.retain(|paragraph| !paragraph.is_empty());
    paragraphs
}

/// A text whose links to Rust items are replaced: `` [`A::B`] `` by what `name` says of `A::B`, and
/// `[text](A::B)` by its text, or by what `name` says of `A::B` if the text is code.
///
/// # Errors
/// An item that `name` knows no name for.
pub fn without_links(text: &str, name: &dyn Fn(&str) -> Option<String>) -> Result<String> {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(start) = rest.find('[') {
        // Brackets within code are no links.
        let is_code = rest[..start].matches('`').count() % 2 == 1;
        let Some(length) = rest[start..].find(']').filter(|_| !is_code) else {
            let end = if is_code { start + rest[start..].find('`').unwrap_or(1) + 1 } else { start + 1 };
            let end = end.min(rest.len());
            out += &rest[..end];
            rest = &rest[end..];
            continue;
        };
        let inner = &rest[start + 1..start + length];
        let after = &rest[start + length + 1..];
        out += &rest[..start];
        let target = after.strip_prefix('(').and_then(|after| after.split_once(')'));
        match target {
            Some((target, after)) if is_item(target) => {
                let is_code = inner.starts_with('`');
                let named = if is_code { name(target.trim_matches('`')) } else { None };
                if is_code && named.is_none() {
                    bail!("it names {inner}, which is nothing in a config: say it in plain words");
                }
                out += named.as_deref().unwrap_or(inner);
                rest = after;
            }
            None if inner.starts_with('`') && inner.ends_with('`') && inner.len() > 2 => {
                let item = inner.trim_matches('`');
                let Some(name) = name(item) else {
                    bail!("it names `{item}`, which is nothing in a config: say it in plain words");
                };
                out += &name;
                rest = after;
            }
            _ => {
                out += &rest[start..=start + length];
                rest = after;
            }
        }
    }
    Ok(out + rest)
}

/// Whether a link's address is a path of Rust items.
fn is_item(target: &str) -> bool {
    let parts = target.trim_matches('`').split("::");
    !target.is_empty() && parts.into_iter().all(|part| part.chars().all(|c| c.is_alphanumeric() || c == '_'))
}

/// A key's doc comment, as its meaning and what it says the default is.
pub struct Told {
    pub meaning: String,
    /// What it says after `Default`.
    pub default: Option<String>,
    /// Whether it ends with `Required.`: serde takes an absent key, and the checks after it do not.
    pub is_required: bool,
}

impl Told {
    /// Takes the sentence `Default …` apart.
    pub fn of(text: &str) -> Self {
        let required = text.strip_suffix("Required.").map(str::trim_end);
        if let Some(meaning) = required {
            return Self { meaning: meaning.to_owned(), default: None, is_required: true };
        }
        let starts = text.match_indices("Default").map(|(at, _)| at);
        let mut starts = starts.filter(|at| *at == 0 || text[..*at].ends_with(". "));
        let Some(start) = starts.find(|at| text[at + "Default".len()..].starts_with([' ', ':'])) else {
            return Self { meaning: text.to_owned(), default: None, is_required: false };
        };
        let sentence = &text[start + "Default".len()..];
        let end = sentence_end(sentence);
        let default = sentence[..end].trim_start_matches(':').trim().trim_end_matches('.').to_owned();
        let meaning = format!("{}{}", &text[..start], sentence[end..].trim_start());
        Self { meaning: meaning.trim_end().to_owned(), default: Some(default), is_required: false }
    }

    /// The first word of the default, which may be a value.
    pub fn first(&self) -> Option<&str> {
        let word = self.default.as_deref()?.split_whitespace().next()?;
        Some(word.trim_end_matches([',', ';', ':', '.']))
    }

    /// Whether no more is said than this value.
    pub fn is_only(&self, value: &str) -> bool {
        let Some(default) = &self.default else { return false };
        !default.contains(' ') || default.trim_matches('`') == value
    }
}

/// Where a text's first sentence ends, the full stop included.
fn sentence_end(text: &str) -> usize {
    let stops = text.match_indices(". ").map(|(at, _)| at);
    let mut ends = stops.filter(|at| {
        let next = text[at + 2..].chars().next();
        next.is_some_and(|next| {
            next.is_uppercase() || next.is_ascii_digit() || matches!(next, '`' | '"' | '[')
        }) && text[..*at].matches('`').count().is_multiple_of(2)
            && !text[..*at].ends_with("al")
    });
    ends.next().map_or(text.len(), |at| at + 1)
}

/// A text in a cell of a table.
pub fn cell(text: &str) -> String {
    text.replace("\\|", "|").replace('|', "\\|").replace('\n', "<br>")
}

/// A text that begins with a capital letter, if it begins with a word.
pub fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// A section's description without the name that it begins with: `` `[train]`: steps ``.
pub fn without_name(text: &str) -> &str {
    match text.strip_prefix("`[").and_then(|text| text.split_once("]`")) {
        Some((_, rest)) => rest.trim_start_matches([':', ',']).trim_start(),
        None => text,
    }
}
