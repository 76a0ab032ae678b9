//! The head of an HTTP request.

use std::net::{IpAddr, SocketAddr};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request<'h> {
    /// The path, without the query.
    pub(super) path: &'h str,
    pub(super) is_head: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestError {
    Malformed,
    /// The method is neither GET nor HEAD.
    Method,
    /// The `Host` header names another host. If the server answered, a page of the Internet whose
    /// name resolves to this address could read the counts in a user's browser.
    Host,
    Version,
}

impl<'h> Request<'h> {
    /// Reads a head without the empty line at its end. `bound` is the address of the server.
    pub(super) fn parse(head: &'h [u8], bound: SocketAddr) -> Result<Self, RequestError> {
        let head = std::str::from_utf8(head).map_err(|_| RequestError::Malformed)?;
        let mut lines = head.split("\r\n");
        let mut words = lines.next().unwrap_or_default().split(' ');
        let (Some(method), Some(target), Some(version), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(RequestError::Malformed);
        };
        if !version.starts_with("HTTP/") {
            return Err(RequestError::Malformed);
        }
        if !version.starts_with("HTTP/1.") {
            return Err(RequestError::Version);
        }
        let is_head = match method {
            "GET" => false,
            "HEAD" => true,
            _ => return Err(RequestError::Method),
        };
        if !target.starts_with('/') {
            return Err(RequestError::Malformed);
        }
        let mut hosts = Vec::new();
        for line in lines {
            let (name, value) = line.split_once(':').ok_or(RequestError::Malformed)?;
            if name.eq_ignore_ascii_case("host") {
                hosts.push(value.trim());
            }
        }
        match hosts[..] {
            [] if version == "HTTP/1.0" => {}
            [host] if is_own(host, bound) => {}
            [_] => return Err(RequestError::Host),
            _ => return Err(RequestError::Malformed),
        }
        Ok(Self { path: target.split(['?', '#']).next().unwrap_or(target), is_head })
    }
}

/// Returns true if the host is an address or `localhost`, or if the server does not listen at the
/// loopback interface.
fn is_own(host: &str, bound: SocketAddr) -> bool {
    let is_port = |port: &str| port.bytes().all(|digit| digit.is_ascii_digit());
    let name = match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) && !name.is_empty() && !name.ends_with(':') => name,
        _ => host,
    };
    let literal = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    !bound.ip().is_loopback() || name.eq_ignore_ascii_case("localhost") || literal.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(head: &str) -> Result<(&str, bool), RequestError> {
        let bound = SocketAddr::from(([127, 0, 0, 1], 8600));
        Request::parse(head.as_bytes(), bound).map(|request| (request.path, request.is_head))
    }

    #[test]
    fn requests_are_read_and_wrong_ones_refused() {
        use RequestError::{Host, Malformed, Method, Version};
        assert_eq!(parse("GET / HTTP/1.1\r\nHost: 127.0.0.1:8600"), Ok(("/", false)));
        assert_eq!(parse("HEAD /metrics?x=1 HTTP/1.1\r\nAccept: */*\r\nhost:localhost"), Ok(("/metrics", true)));
        assert_eq!(parse("GET / HTTP/1.1\r\nHost: [::1]:80"), Ok(("/", false)));
        assert_eq!(parse("GET / HTTP/1.0"), Ok(("/", false)));
        assert_eq!(parse("GET / HTTP/1.1"), Err(Malformed));
        assert_eq!(parse("GET / HTTP/1.1\r\nHost: a\r\nHost: b"), Err(Malformed));
        assert_eq!(parse("GET / HTTP/1.1\r\nHost: evil.example"), Err(Host));
        assert_eq!(parse("GET / HTTP/1.1\r\nHost: localhost.evil.example:8600"), Err(Host));
        assert_eq!(parse("POST / HTTP/1.1\r\nHost: localhost"), Err(Method));
        assert_eq!(parse("GET / HTTP/2.0\r\nHost: localhost"), Err(Version));
        for wrong in
            ["", "GET", "GET /", "GET  / HTTP/1.1", "GET / HTTP/1.1\r\nx", "GET x HTTP/1.1\r\nHost: ::1", "GET / x"]
        {
            assert_eq!(parse(wrong), Err(Malformed), "{wrong}");
        }
        let bound = SocketAddr::from(([127, 0, 0, 1], 8600));
        assert_eq!(Request::parse(b"GET /\xff HTTP/1.1", bound), Err(Malformed));
        let everywhere = SocketAddr::from(([0, 0, 0, 0], 8600));
        assert!(Request::parse(b"GET / HTTP/1.1\r\nHost: machine.example:8600", everywhere).is_ok());
    }
}
