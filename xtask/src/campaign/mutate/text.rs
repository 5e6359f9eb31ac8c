//! Damage to text: lines, fields, numbers, characters.

use super::{bytes, extreme, until_different};
use crate::campaign::random::Random;

/// Texts that programs have stumbled over.
pub const ODD: [&str; 28] = [
    "",
    " ",
    "\t",
    "\0",
    "\x1b[31m",
    "\r",
    "\u{feff}",
    "\u{200d}",
    "e\u{301}\u{301}\u{301}",
    "😀👩‍👩‍👧‍👦",
    "ﷺ",
    "中文字",
    "\u{202e}abc",
    "\"",
    "'",
    "\\",
    "\"\"",
    "<script>alert(1)</script>",
    "&amp;<b>",
    "]]>",
    "../../../etc/passwd",
    "[MASK]",
    "[CLS] [SEP]",
    "(((",
    "(?:(a+)+\\1b)|c",
    "NaN",
    "{}",
    "\u{10ffff}",
];

/// Other bytes than `seed`, mostly text still.
pub fn text(random: &mut Random, seed: &str) -> Vec<u8> {
    let longer = format!("{seed}\0").into_bytes();
    until_different(&seed.as_bytes().to_vec(), longer, || {
        let mut text = seed.to_owned();
        for _ in 0..1 + random.below(2) {
            match random.below(12) {
                0 | 1 => return bytes(random, text.as_bytes()),
                2 => return invalid(random, &text),
                _ => damage(random, &mut text),
            }
        }
        text.into_bytes()
    })
}

/// With bytes that are no UTF-8 somewhere.
fn invalid(random: &mut Random, text: &str) -> Vec<u8> {
    let at = random.below(text.len());
    let bad = *random.pick(&[&b"\xff"[..], b"\xc3", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"\xff\xfe"]);
    let at = if random.one_in(4) { 0 } else { at };
    [&text.as_bytes()[..at], bad, &text.as_bytes()[at..]].concat()
}

fn damage(random: &mut Random, text: &mut String) {
    if text.is_empty() {
        *text = random.pick(&ODD).to_string();
        return;
    }
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let line = random.below(lines.len());
    let join = |lines: Vec<&str>| lines.concat();
    *text = match random.below(10) {
        0 => join([&lines[..line], lines.get(line + 1..).unwrap_or_default()].concat()),
        1 => join([&lines[..line], &lines[line..=line], &lines[line..]].concat()),
        2 => {
            let mut lines = lines;
            let other = random.below(lines.len());
            lines.swap(line, other);
            join(lines)
        }
        3 => join(lines[..line].to_vec()),
        4 => number(random, text),
        5 => {
            let end = *random.pick(&["\r\n", "\r", "\n\n", "\n\n\n\n", ""]);
            text.replace('\n', end)
        }
        6 => field(random, text),
        7 => insert(random, text, &ODD.iter().map(|odd| odd.to_string()).collect::<Vec<_>>()),
        8 => {
            let long =
                ["x".repeat(2_000_000), "é".repeat(100_000), "\u{301}".repeat(50_000), "\n".repeat(100_000)];
            let long = random.pick(&long).clone();
            insert(random, text, &[long])
        }
        _ => format!("\u{feff}{text}"),
    };
}

/// A number in the text becomes another one.
fn number(random: &mut Random, text: &str) -> String {
    let starts: Vec<usize> = text
        .char_indices()
        .filter(|(at, c)| c.is_ascii_digit() && !text[..*at].ends_with(|c: char| c.is_ascii_digit()))
        .map(|(at, _)| at)
        .collect();
    let Some(&start) = starts.get(random.below(starts.len())) else { return text.to_owned() };
    let end = text[start..].find(|c: char| !c.is_ascii_digit()).map_or(text.len(), |n| start + n);
    format!("{}{}{}", &text[..start], extreme(random), &text[end..])
}

/// What lies between two delimiters becomes something odd, or goes with one of them.
fn field(random: &mut Random, text: &str) -> String {
    let marks: Vec<usize> =
        text.match_indices([',', '\t', '"', ' ', '<', '>', ':', '}']).map(|(at, _)| at).collect();
    let at = random.below(marks.len().saturating_sub(1));
    let (Some(&start), Some(&end)) = (marks.get(at), marks.get(at + 1)) else { return text.to_owned() };
    match random.below(3) {
        0 => format!("{}{}", &text[..start], &text[start + 1..]),
        1 => format!("{}{}{}", &text[..start], &text[start..=start], &text[start..]),
        _ => format!("{}{}{}", &text[..=start], random.pick(&ODD), &text[end..]),
    }
}

fn insert(random: &mut Random, text: &str, among: &[String]) -> String {
    let mut at = random.below(text.len() + 1);
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    format!("{}{}{}", &text[..at], random.pick(among), &text[at..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_out_different_and_always_the_same_way() {
        for seed in ["", "a", "text\tlabel\nsome words\t1\n", "é\r\n\"12\", \"x\""] {
            for index in 0..400 {
                let mutate = || text(&mut Random::of(5, "text", index), seed);
                assert_ne!(mutate(), seed.as_bytes());
                assert_eq!(mutate(), mutate());
            }
        }
    }

    #[test]
    fn numbers_are_replaced_whole() {
        let mut random = Random::of(1, "number", 0);
        let text = number(&mut random, "a 123 b");
        let middle = text.strip_prefix("a ").and_then(|rest| rest.strip_suffix(" b")).unwrap();
        assert!(super::super::EXTREMES.contains(&middle), "{text}");
    }
}
