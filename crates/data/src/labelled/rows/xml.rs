//! XML: one row per child of the root, with cells in attributes or child elements.

use super::{Read, RequestedColumn, Row, file_problem, row_problem};
use crate::corpus::lines;
use crate::corpus::{Problem, shown};
use crate::labelled::source::Column;
use roxmltree::{Document, Node, ParsingOptions};
use serde_json::Value;
use std::io::Read as _;
use std::path::Path;

/// Opens a file. It is read whole, and only the wanted cells are kept.
pub(super) fn open(path: &Path, wanted: &[RequestedColumn]) -> Result<Read<Row>, Problem> {
    if let Some(wanted) = wanted.iter().find(|wanted| matches!(wanted.column, Column::Number(_))) {
        let detail =
            format!("XML has no numbered columns: set {} to a name", wanted.named.column(&wanted.field));
        return Err(file_problem(None, "missing column", detail));
    }
    let unreadable = |error| file_problem(None, "unreadable file", format!("cannot be read: {error}"));
    let (mut source, _) = lines::open(path).map_err(unreadable)?;
    let mut text = String::new();
    source.read_to_string(&mut text).map_err(unreadable)?;
    let text = text.strip_prefix('\u{FEFF}').unwrap_or(&text);
    if text.trim().is_empty() {
        return Err(file_problem(None, "empty file", "the file is empty: it has no example".into()));
    }
    // A document type may be named, as RTE's files do; what it points to is not read.
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    let document = Document::parse_with_options(text, options).map_err(|error| {
        file_problem(Some(error.pos().row.into()), "bad XML", format!("invalid XML: {error}"))
    })?;
    let elements = document.root_element().children().filter(Node::is_element);
    let rows: Vec<_> = elements.map(|element| row(&document, element, wanted)).collect();
    Ok(Box::new(rows.into_iter()))
}

fn row(document: &Document<'_>, element: Node<'_, '_>, wanted: &[RequestedColumn]) -> Result<Row, Problem> {
    let line = u64::from(document.text_pos_at(element.range().start).row);
    let cell = |wanted: &RequestedColumn| {
        let Column::Name(name) = &wanted.column else { return Ok(Value::Null) };
        let inner = || element.children().find(|child| child.is_element() && child.tag_name().name() == name);
        let text = element.attribute(name.as_str()).map(str::to_owned).or_else(|| inner().map(text_of));
        match text {
            Some(text) => Ok(Value::String(text)),
            None if !wanted.required => Ok(Value::Null),
            None => {
                let attributes = element.attributes().map(|attribute| attribute.name());
                let inner = element.children().filter(Node::is_element).map(|child| child.tag_name().name());
                let names = shown(attributes.chain(inner));
                let (tag, remedy) = (element.tag_name().name(), wanted.named.remedy(&wanted.field));
                let detail =
                    format!("<{tag}> has no attribute or element `{name}` (it has: {names}); {remedy}");
                Err(row_problem(Some(line), "missing column", detail))
            }
        }
    };
    Ok(Row { line, cells: wanted.iter().map(cell).collect::<Result<_, _>>()? })
}

/// All text in an element, without surrounding white space.
fn text_of(element: Node<'_, '_>) -> String {
    let text: String = element.descendants().filter(Node::is_text).filter_map(|node| node.text()).collect();
    text.trim().to_owned()
}
