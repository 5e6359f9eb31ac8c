//! `/search`: the nearest texts to a query, as `cloze search query` prints them.

use axum::extract::{Request, State};
use cloze_search::{Condition, Method, SearchConfig, SearchError};
use cloze_trainer::embed::{EmbedRequest, EmbedUnit};
use serde_json::{Value, json};

use super::{Answer, Shared, json as response, with_counts};
use crate::commands::serve::asking::Asking;
use crate::commands::serve::fields::{Read, texts};
use crate::commands::serve::models::Kind;
use crate::commands::serve::refusal::{Refusal, Why};

/// `{query, index, top_k, where, exact}` → `{query, found: [{id, score, text, fields}]}`; of a list of queries a list of
/// these.
pub async fn search(State(service): Shared, request: Request) -> Answer {
    let mut fields = service.fields(request).await?;
    let name = fields.text("index")?;
    let (queries, is_list) = texts("query", fields.required("query")?)?;
    let defaults = SearchConfig::default();
    let k = fields.count("top_k", 1, 10_000)?.unwrap_or(defaults.k);
    let method = if fields.flag("exact")?.unwrap_or(false) { Method::Exact } else { Method::Auto };
    let conditions = match fields.take("where") {
        None => Vec::new(),
        Some(value) => {
            let (all, _) = texts("where", value)?;
            let condition = |(i, text): (usize, &String)| {
                let refused = |error: cloze_search::NotACondition| {
                    Refusal::field(format!("where[{i}]"), error.to_string())
                };
                text.parse::<Condition>().map_err(refused)
            };
            all.iter().enumerate().map(condition).collect::<Read<Vec<_>>>()?
        }
    };
    fields.end()?;
    let unknown = || match &name {
        Some(name) => Refusal::new(Why::NotFound, format!("index: there is no index {name:?}")),
        None => Refusal::new(Why::Backend, "no index is served: start the service with --index DIR"),
    };
    let named = |index: &&std::sync::Arc<super::super::indexes::Searched>| {
        name.as_ref().is_none_or(|name| index.name == *name)
    };
    let searched = service.indexes.iter().find(named).ok_or_else(unknown)?.clone();
    // Checks that there is room.
    let served = service.named(Some(&searched.model.name), "/search", "embedding", |_| true)?;
    let Kind::Embeds(queue) = &served.kind else { return Err(served.misfit("/search", "embedding")) };
    let field = |i: usize| if is_list { format!("query[{i}]") } else { "query".into() };
    if let Some(empty) = queries.iter().position(|query| query.trim().is_empty()) {
        return Err(Refusal { why: Why::Empty, ..Refusal::field(field(empty), "an empty text") });
    }
    let asking = Asking {
        queue,
        field: &field,
        is_cut: &|unit: &EmbedUnit| unit.text().truncated,
        refuses_cut: service.refuses_long.then(|| queue.model().max_len()),
        bytes: queries.iter().map(String::len).sum(),
    };
    let found = asking.all(queries.iter().map(EmbedRequest::of).collect()).await?;
    served.count_truncated(found.truncated);
    let vectors: Vec<f32> = found.answers.into_iter().flat_map(|embedding| embedding.values).collect();
    let config = SearchConfig { k, method, conditions, ..defaults };
    let work = move || {
        let failed = |error: anyhow::Error| {
            Refusal::new(Why::Backend, format!("the index cannot be searched: {error:#}"))
        };
        let index = searched.current().map_err(failed)?;
        let found = index.find(&vectors, &config).map_err(|error| match error {
            error @ SearchError::UnknownField { .. } => Refusal::field("where", error.to_string()),
            error => failed(error.into()),
        })?;
        let mut all: Vec<Value> = Vec::with_capacity(queries.len());
        for (query, found) in queries.iter().zip(&found) {
            let mut rows = Vec::with_capacity(found.len());
            for one in found {
                let row = index.row(one.place).map_err(|error| failed(error.into()))?;
                let mut shown = json!({ "id": row.id, "score": one.score, "text": row.text });
                if !row.fields.is_empty() {
                    shown["fields"] = Value::Object(row.fields);
                }
                rows.push(shown);
            }
            all.push(json!({ "query": query, "found": rows }));
        }
        match (is_list, all.pop()) {
            (false, Some(only)) => Ok(response(&only)),
            (_, last) => {
                all.extend(last);
                Ok(response(&all))
            }
        }
    };
    let ended = |_| Refusal::new(Why::Internal, "internal error in the search");
    let body = tokio::task::spawn_blocking(work).await.map_err(ended)??;
    Ok(with_counts(body, found.tokens, found.truncated))
}
