//! Equations in LaTeX, typeset as MathML when the book is built: a browser shows it without a script, a font or a network.
//!
//! As on GitHub, an equation in a line is between dollar signs, and an equation of its own is a code block of the
//! language `math`. A dollar sign opens an equation if no space follows it. The next one closes it, if no space is
//! before it and no digit after it; otherwise the first one is a dollar sign. Both stand in one paragraph, heading or
//! table cell, outside of code and HTML, with neither between them. `\$` and `$$` are dollar signs.

use std::ops::Range;

use anyhow::{Result, anyhow};
use math_core::{LatexToMathML, MathDisplay};
use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// A page with MathML in place of its equations.
///
/// # Errors
/// An equation that cannot be read.
pub fn typeset(page: &str) -> Result<String> {
    let (mut out, mut done) = (String::with_capacity(page.len()), 0);
    for Equation { range, latex, display } in equations(page) {
        out += &page[done..range.start];
        out += &mathml(&latex, display)?;
        done = range.end;
    }
    Ok(out + &page[done..])
}

/// An equation of a page.
struct Equation {
    /// Where it stands, with its dollar signs or fences.
    range: Range<usize>,
    latex: String,
    display: MathDisplay,
}

/// The equations of a page, in order.
fn equations(page: &str) -> Vec<Equation> {
    let mut equations = Vec::new();
    // The code block that events are in; the pieces of text since the last start or end of a block.
    let (mut block, mut line) = (None::<Code>, Vec::new());
    for (event, range) in Parser::new_ext(page, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(Tag::CodeBlock(kind)) => {
                let is_math = matches!(&kind, CodeBlockKind::Fenced(language) if &**language == "math");
                block = Some(Code { is_math, text: String::new() });
            }
            Event::End(TagEnd::CodeBlock) => {
                if let Some(Code { text: latex, .. }) = block.take().filter(|block| block.is_math) {
                    // A block in a list or a quotation ends with its fence, any other with the end of that line.
                    let range = range.start..range.start + page[range].trim_end().len();
                    equations.push(Equation { range, latex, display: MathDisplay::Block });
                }
            }
            Event::Text(text) => match &mut block {
                Some(block) => block.text += &text,
                None => line.push(Piece::Text(range)),
            },
            Event::SoftBreak => line.push(Piece::Break(range.start)),
            // Within an equation they are its own stars and underscores.
            Event::Start(Tag::Emphasis | Tag::Strong) => line.push(Piece::Text(range.start..range.start)),
            Event::End(TagEnd::Emphasis | TagEnd::Strong) => {}
            Event::Code(_)
            | Event::InlineHtml(_)
            | Event::HardBreak
            | Event::Start(Tag::Link { .. } | Tag::Image { .. })
            | Event::End(TagEnd::Link | TagEnd::Image) => line.push(Piece::Other),
            _ => equations.extend(in_line(page, &std::mem::take(&mut line))),
        }
    }
    equations
}

/// A code block.
struct Code {
    is_math: bool,
    text: String,
}

/// A piece of a paragraph, a heading or a table cell.
enum Piece {
    Text(Range<usize>),
    /// The end of a line of the file, and where it is.
    Break(usize),
    /// Anything that an equation cannot contain.
    Other,
}

/// The equations in a paragraph, a heading or a table cell.
fn in_line(page: &str, pieces: &[Piece]) -> Vec<Equation> {
    let (mut equations, mut open) = (Vec::new(), None::<usize>);
    // From the ends of lines to the texts of the next ones: between them may be the sign of a quotation.
    let mut breaks = Vec::<Range<usize>>::new();
    for piece in pieces {
        let text = match piece {
            Piece::Text(text) => text.clone(),
            Piece::Break(at) => {
                breaks.push(*at..*at);
                continue;
            }
            Piece::Other => {
                open = None;
                continue;
            }
        };
        if let Some(unfinished) = breaks.last_mut().filter(|gap| gap.start == gap.end) {
            unfinished.end = text.start;
        }
        for (at, _) in page[text.clone()].match_indices('$') {
            let at = text.start + at;
            match open {
                Some(start) if closes(page, at) => {
                    let latex = joined(page, start + 1..at, &breaks);
                    equations.push(Equation { range: start..at + 1, latex, display: MathDisplay::Inline });
                    open = None;
                }
                _ => open = opens(page, at).then_some(at),
            }
        }
    }
    equations
}

/// Whether the dollar sign at `at` may open an equation.
fn opens(page: &str, at: usize) -> bool {
    let next = page[at + 1..].chars().next();
    is_single(page, at) && next.is_some_and(|next| !next.is_whitespace())
}

/// Whether the dollar sign at `at` may close an equation.
fn closes(page: &str, at: usize) -> bool {
    let (before, next) = (page[..at].chars().next_back(), page[at + 1..].chars().next());
    let is_after_space = before.is_none_or(char::is_whitespace);
    is_single(page, at) && !is_after_space && !next.is_some_and(|next| next.is_ascii_digit())
}

/// Whether a dollar sign has no other beside it and no backslash before it.
fn is_single(page: &str, at: usize) -> bool {
    let (before, after) = (&page[..at], &page[at + 1..]);
    let backslashes = before.len() - before.trim_end_matches('\\').len();
    backslashes.is_multiple_of(2) && !before.ends_with('$') && !after.starts_with('$')
}

/// A part of the page with a space in place of each end of a line.
fn joined(page: &str, part: Range<usize>, breaks: &[Range<usize>]) -> String {
    let (mut out, mut done) = (String::new(), part.start);
    for gap in breaks.iter().filter(|gap| gap.start >= part.start && gap.end <= part.end) {
        out += &page[done..gap.start];
        out.push(' ');
        done = gap.end;
    }
    out + &page[done..part.end]
}

/// The MathML of an equation, on one line that Markdown does not change.
fn mathml(latex: &str, display: MathDisplay) -> Result<String> {
    let latex = latex.trim();
    let unreadable = |reason| anyhow!("cannot read the equation `{latex}`: {reason}");
    let typeset = LatexToMathML::default().convert_with_local_state(latex, display).map_err(unreadable)?;
    let mathml = inert(&typeset.mathml);
    Ok(match display {
        // Math that is wider than the page scrolls.
        MathDisplay::Block => format!("<div class=\"equation\">{mathml}</div>"),
        MathDisplay::Inline => mathml,
    })
}

/// MathML whose text between tags has no sign that means something in Markdown, and no end of a line.
fn inert(mathml: &str) -> String {
    let (mut out, mut in_tag) = (String::with_capacity(mathml.len()), false);
    for c in mathml.chars() {
        match c {
            '<' | '>' => in_tag = c == '<',
            _ => {}
        }
        match c {
            '\n' => out.push(' '),
            '*' | '_' | '[' | ']' | '(' | ')' | '|' | '~' | '`' | '\\' | '!' | '$' | '{' | '}' if !in_tag => {
                out += &format!("&#{};", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The equations of a page, those of their own with `display`.
    fn found(page: &str) -> Vec<(String, bool)> {
        let found = equations(page).into_iter();
        found.map(|one| (one.latex.trim().to_owned(), one.display == MathDisplay::Block)).collect()
    }

    fn inline(page: &str) -> Vec<String> {
        found(page).into_iter().filter_map(|(latex, display)| (!display).then_some(latex)).collect()
    }

    #[test]
    fn equations_are_found() {
        assert_eq!(inline("With $x$, $y_1$ and ($z$): $\\frac{a}{b}$."), ["x", "y_1", "z", "\\frac{a}{b}"]);
        assert_eq!(inline("- an item: $a*b*c$\n- **strong $\\hat{x}_i$**"), ["a*b*c", "\\hat{x}_i"]);
        assert_eq!(inline("| $a$ | b |\n| --- | --- |\n| c | $d$ |\n"), ["a", "d"]);
        assert_eq!(inline("# A $d$\n\n> quoted $a +\n> b$\n"), ["d", "a + b"]);
        assert_eq!(inline("over\n$a *b*\n*c*\nd$ lines, and $e$"), ["a *b* *c* d", "e"]);
        let page = "text\n\n```math\nx = y\n```\n\n1. item\n\n   ```math\n   a \\\\\n   b\n   ```\n";
        assert_eq!(found(page), [("x = y".to_owned(), true), ("a \\\\\nb".to_owned(), true)]);
    }

    #[test]
    fn dollar_signs_of_prose_and_shell_stay() {
        for page in [
            "It costs $5 or $10.",
            "From $5,$6 to $7 and $ 8$",
            "set $HOME or $PATH ",
            "\\$a\\$ and $$b$$",
            "`$a$` and `x` $a `b$` c",
            "```sh\necho $A$B\n```\n\nx\n\n    $a$ $b$\n\ny",
            "<b title=\"$a$\">$x <i>y</i>$</b",
            "$a\n\nb$",
            "| $a | b$ |\n| --- | --- |\n| $c | d$ |",
            "[a $b](c$.md) d",
        ] {
            assert!(found(page).is_empty(), "{page}: {:?}", found(page));
            assert_eq!(typeset(page).unwrap(), page);
        }
        // The sign that cannot close opens the next one.
        assert_eq!(inline("$5 and $x$"), ["x"]);
        assert_eq!(inline("$a$1 and $b$"), ["b"]);
    }

    #[test]
    fn a_page_has_mathml_where_its_equations_stood() {
        let page = "Let $a_1$ be.\n\n- item\n\n  ```math\n  a | b\n  ```\n\n  more\n";
        let out = typeset(page).unwrap();
        let expected = "Let <math><msub><mi>a</mi><mn>1</mn></msub></math> be.\n\n- item\n\n  \
                        <div class=\"equation\"><math display=\"block\">";
        assert!(out.starts_with(expected), "{out}");
        assert!(out.ends_with("</math></div>\n\n  more\n"), "{out}");
    }

    #[test]
    fn markdown_does_not_change_an_equation() {
        let latex = r"[c](d) \text{*g*} \text{a\_b\_c} \left\{ f \right\} \lvert x \rvert";
        let typeset = mathml(latex, MathDisplay::Inline).unwrap();
        let mut text = String::new();
        for event in Parser::new_ext(&format!("x {typeset} y"), Options::all()) {
            match event {
                Event::Text(piece) => text += &piece,
                Event::InlineHtml(_) => {}
                Event::Start(Tag::Paragraph) | Event::End(TagEnd::Paragraph) => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(text.contains("[c](d)*g*a_b_c{f}|x|"), "{text}");
        // A bar or an end of a line would end a cell of a table.
        assert!(!typeset.contains(['|', '\n']), "{typeset}");
    }

    #[test]
    fn what_the_chapters_need_is_typeset() {
        for latex in [
            r"\operatorname{softmax}\left(\frac{Q K^\top}{\sqrt{d_k}}\right) V",
            r"\begin{aligned} a &= b \\ &= c \end{aligned}",
            r"\begin{cases} 0 & \text{if } j \le i \\ -\infty & \text{otherwise} \end{cases}",
            r"\mathcal{L}(\theta) = -\frac{1}{|M|} \sum_{i \in M} \log p_\theta(x_i \mid \tilde{x})",
            r"\underbrace{a}_{b} \quad \mathbb{R}^{n \times d}, \lfloor x \rfloor",
            r"y_{<t} > 0 \text{ or } a < b \,\&\, \text{c \& d} \; e",
        ] {
            for display in [MathDisplay::Inline, MathDisplay::Block] {
                let typeset = mathml(latex, display).unwrap();
                let document = roxmltree::Document::parse(&typeset).unwrap();
                assert!(document.descendants().any(|node| node.has_tag_name("math")), "{typeset}");
            }
        }
    }

    #[test]
    fn an_unreadable_equation_is_named() {
        for (page, equation) in [
            (r"a $\frac{1$ b", r"\frac{1"),
            (r"a $\nosuchcommand{x}$ b", r"\nosuchcommand{x}"),
            ("```math\nx_1_2\n```\n", "x_1_2"),
        ] {
            let message = typeset(page).unwrap_err().to_string();
            assert!(message.starts_with(&format!("cannot read the equation `{equation}`: ")), "{message}");
            assert!(!message.contains('\n'), "{message}");
        }
    }
}
