//! What happens to every request before and after its route: access, limits, counting, and the shape of errors.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{self, HeaderName};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::time::timeout;

use super::refusal::{Refusal, Shape, Why};
use super::room::Room;
use super::routes;
use super::service::{Access, Service};
use super::tally::{Tally, counted};
use super::unread::Unread;

/// The most headers of a request, and their bytes.
const MAX_HEADERS: (usize, usize) = (100, 32 << 10);

/// The longest path and query.
const MAX_PATH: usize = 8 << 10;

pub async fn guard(State(service): State<Arc<Service>>, request: Request, next: Next) -> Response {
    let start = Instant::now();
    let path = request.uri().path().to_owned();
    let shape = Shape::of(&path);
    let origin = request.headers().get(header::ORIGIN).cloned();
    let origin = origin.filter(|origin| service.access.is_listed(origin));
    let is_preflight = request.method() == Method::OPTIONS && origin.is_some();
    let (request, unread) = Unread::of(request);
    let (answer, tally, room) = match (is_preflight, allowed(&service, &request, &path)) {
        (true, _) => (preflight(), Tally::default(), None),
        (false, Err(refusal)) => (refusal.into_response(), Tally::default(), None),
        (false, Ok(room)) => {
            let late = || Refusal::new(Why::Timeout, "the answer was not ready in time (--timeout)");
            let (answer, tally) = counted(timeout(service.limits.time, next.run(request))).await;
            (answer.unwrap_or_else(|_| late().into_response()), tally, Some(room))
        }
    };
    let mut answer = match answer.extensions().get::<Refusal>() {
        Some(refusal) => {
            let mut shaped = refusal.shaped(shape);
            if !matches!(refusal.why, Why::Timeout) {
                unread.read().await;
            }
            // The methods that a route has.
            shaped
                .headers_mut()
                .extend(answer.headers().get(header::ALLOW).map(|allow| (header::ALLOW, allow.clone())));
            shaped
        }
        None => answer,
    };
    if let Some(origin) = origin {
        let headers = answer.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.append(header::VARY, HeaderValue::from_static("origin"));
    }
    answer.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let route = if routes::PATHS.contains(&path.as_str()) { &path } else { "other" };
    service.metrics.count(route, answer.status().as_u16(), start.elapsed(), &tally);
    match room {
        Some(room) => room.until_sent(answer),
        None => answer,
    }
}

/// The room for a request that may be answered.
fn allowed(service: &Arc<Service>, request: &Request, path: &str) -> Result<Room, Refusal> {
    let headers = request.headers();
    let header_bytes = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum::<usize>();
    if headers.len() > MAX_HEADERS.0 || header_bytes > MAX_HEADERS.1 {
        let message = format!(
            "{} headers of {header_bytes} bytes, expected at most {} of {}",
            headers.len(),
            MAX_HEADERS.0,
            MAX_HEADERS.1
        );
        return Err(Refusal::new(Why::Headers, message));
    }
    if let Some(length) =
        request.uri().path_and_query().map(|path| path.as_str().len()).filter(|n| *n > MAX_PATH)
    {
        let message = format!("a path of {length} bytes, expected at most {MAX_PATH}");
        return Err(Refusal::new(Why::Path, message));
    }
    service.access.check(headers, request.method(), path)?;
    if request.method() == Method::POST && service.is_stopping.load(Ordering::Acquire) {
        return Err(Refusal::new(Why::Unhealthy, "the service is stopping"));
    }
    let bytes = match headers.get(header::CONTENT_LENGTH) {
        Some(length) => {
            let length = length.to_str().ok().and_then(|length| length.parse::<usize>().ok());
            let bytes = length.unwrap_or(usize::MAX);
            if bytes > service.limits.body {
                return Err(service.too_large());
            }
            bytes
        }
        None if request.method() == Method::POST => service.limits.body,
        None => 0,
    };
    Room::take(service, bytes)
}

impl Access {
    fn is_listed(&self, origin: &HeaderValue) -> bool {
        origin.to_str().is_ok_and(|origin| self.origins.iter().any(|listed| listed == origin))
    }

    /// Whether a request with these headers may be answered.
    pub fn check(&self, headers: &HeaderMap, method: &Method, path: &str) -> Result<(), Refusal> {
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok());
        if let Some(hosts) = &self.hosts {
            let name = host.map(name_of).unwrap_or_default();
            if !hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(name)) {
                let message =
                    "this host name is not the service's: call it by the address that it listens on";
                return Err(Refusal::new(Why::Forbidden, message));
            }
        }
        if let Some(origin) = headers.get(header::ORIGIN) {
            let of_own = |origin: &str| {
                let rest = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
                rest.is_some_and(|rest| Some(rest) == host)
            };
            if !self.is_listed(origin) && !origin.to_str().is_ok_and(of_own) {
                let message = "pages of other sites may not ask: allow this one with --origin";
                return Err(Refusal::new(Why::Forbidden, message));
            }
        }
        // The page has no secret, and asks for a key itself.
        let is_page = path == "/" && matches!(*method, Method::GET | Method::HEAD);
        if self.keys.is_empty() || is_page || matches!(path, "/health" | "/ready") {
            return Ok(());
        }
        let given =
            headers.get(header::AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
        let given = blake3::hash(given.unwrap_or_default());
        // Hashes are compared in constant time, and all of them.
        let found = self.keys.iter().fold(false, |found, key| found | (*key == given));
        match found {
            true => Ok(()),
            false => {
                let message = "no such key: send one of --api-key-file as `Authorization: Bearer KEY`";
                Err(Refusal::new(Why::Unauthorized, message))
            }
        }
    }
}

/// A host without its port.
fn name_of(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

/// The answer to a browser that asks whether a page of an allowed site may ask.
fn preflight() -> Response {
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = StatusCode::NO_CONTENT;
    let headers: [(HeaderName, &str); 3] = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST"),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, "authorization, content-type"),
        (header::ACCESS_CONTROL_MAX_AGE, "600"),
    ];
    for (name, value) in headers {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(access: &Access, headers: &[(HeaderName, &str)]) -> Result<(), Why> {
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap()))
            .collect();
        access.check(&headers, &Method::POST, "/embed").map_err(|refusal| refusal.why)
    }

    #[test]
    fn other_names_and_other_sites_are_refused() {
        let hosts = Some(["localhost", "127.0.0.1", "[::1]"].map(String::from).to_vec());
        let access = Access { keys: Vec::new(), origins: vec!["https://mine.example".into()], hosts };
        let host = |name| (header::HOST, name);
        for good in ["localhost:8080", "LOCALHOST", "127.0.0.1:1", "[::1]:8080", "[::1]"] {
            assert_eq!(check(&access, &[host(good)]), Ok(()), "{good}");
        }
        for bad in ["evil.example:8080", "", "localhost.evil.example", "127.0.0.1.evil.example:80"] {
            assert_eq!(check(&access, &[host(bad)]), Err(Why::Forbidden), "{bad}");
        }
        let from = |origin| check(&access, &[host("localhost:8080"), (header::ORIGIN, origin)]);
        assert_eq!(from("https://mine.example"), Ok(()));
        assert_eq!(from("http://localhost:8080"), Ok(()));
        for bad in ["http://localhost:9", "null", "https://evil.example", "localhost:8080"] {
            assert_eq!(from(bad), Err(Why::Forbidden), "{bad}");
        }
    }

    #[test]
    fn one_of_the_keys_is_needed() {
        let keys = ["first", "second"].map(|key| blake3::hash(key.as_bytes())).to_vec();
        let access = Access { keys, origins: Vec::new(), hosts: None };
        let with = |value| check(&access, &[(header::AUTHORIZATION, value)]);
        assert_eq!((with("Bearer first"), with("Bearer second")), (Ok(()), Ok(())));
        for bad in ["Bearer third", "Bearer ", "first", "bearer first", "Basic first"] {
            assert_eq!(with(bad), Err(Why::Unauthorized), "{bad}");
        }
        assert_eq!(check(&access, &[]), Err(Why::Unauthorized));
        let open = |method, path| access.check(&HeaderMap::new(), &method, path).is_ok();
        assert!(open(Method::GET, "/health") && open(Method::GET, "/"));
        assert!(!open(Method::POST, "/") && !open(Method::GET, "/info"));
    }
}
