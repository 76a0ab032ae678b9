//! Endpoints in omniORB's form (`giop:tcp:HOST:PORT`) and in TAO's (`iiop://HOST:PORT`).

use super::Place;
use super::Refusal::{self, Malformed, NoCounterpart};

#[derive(Debug)]
pub(super) struct ListeningAddress {
    pub(super) place: Place,
    pub(super) shown: String,
    pub(super) address: String,
    /// The address in references, if it differs from `address`.
    pub(super) published: Option<String>,
}

const OMNIORB_FORM: &str = "an endpoint of omniORB is giop:tcp:HOST:PORT or giop:unix:PATH";
const TAO_FORM: &str = "an endpoint of TAO is iiop://HOST:PORT or uiop://PATH";
const NO_TLS: &str = "Corelane has no TLS";
const NO_TRANSPORT: &str = "Corelane has no such transport";
const NO_PATH: &str = "the path of a socket has to be given";

pub(super) fn omniorb(endpoint: &str) -> Result<String, Refusal> {
    let rest = endpoint.strip_prefix("giop:").ok_or(Malformed(OMNIORB_FORM))?;
    let (transport, address) = rest.split_once(':').ok_or(Malformed(OMNIORB_FORM))?;
    match transport {
        "tcp" => {
            let (host, port) = address.rsplit_once(':').ok_or(Malformed(OMNIORB_FORM))?;
            if port.contains('-') {
                return Err(NoCounterpart("the port has to be one number"));
            }
            tcp(host, Some(port).filter(|port| !port.is_empty())).ok_or(Malformed(OMNIORB_FORM))
        }
        "unix" if address.is_empty() => Err(NoCounterpart(NO_PATH)),
        "unix" => Ok(format!("unix:{address}")),
        "ssl" => Err(NoCounterpart(NO_TLS)),
        _ => Err(NoCounterpart(NO_TRANSPORT)),
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct ConvertedEndpoint {
    pub(super) address: String,
    /// The address with the host of the option `hostname_in_ior`; `None` without this option.
    pub(super) published: Option<String>,
    /// True if the endpoint has a version or options, which are not converted.
    pub(super) has_more: bool,
}

pub(super) fn tao(endpoint: &str) -> Result<Vec<ConvertedEndpoint>, Refusal> {
    let (protocol, rest) = endpoint.split_once("://").ok_or(Malformed(TAO_FORM))?;
    // Options after a path, which contains `/`, follow a `|`.
    let separator = if protocol == "uiop" { '|' } else { '/' };
    let (addresses, options) = rest.split_once(separator).unwrap_or((rest, ""));
    let mut has_more = false;
    let mut published_host = None;
    for option in options.split('&').filter(|option| !option.is_empty()) {
        match option.strip_prefix("hostname_in_ior=") {
            Some(host) => published_host = Some(host),
            None => has_more = true,
        }
    }
    match protocol {
        "iiop" => {}
        "uiop" => {
            let (version, path) = without_version(addresses);
            if path.is_empty() {
                return Err(NoCounterpart(NO_PATH));
            }
            let has_more = version.is_some() || !options.is_empty();
            return Ok(vec![ConvertedEndpoint { address: format!("unix:{path}"), published: None, has_more }]);
        }
        "ssliop" => return Err(NoCounterpart(NO_TLS)),
        _ => return Err(NoCounterpart(NO_TRANSPORT)),
    }
    let convert = |address: &str| {
        let (version, address) = without_version(address);
        let (host, port) = match address.rsplit_once(':') {
            Some((_, rest)) if rest.ends_with(']') => (address, None),
            Some((host, port)) => (host, Some(port).filter(|port| !port.is_empty())),
            None => (address, None),
        };
        let published = match published_host {
            Some(host) => Some(tcp(host, port).filter(|_| !host.is_empty()).ok_or(Malformed(TAO_FORM))?),
            None => None,
        };
        let address = tcp(host, port).ok_or(Malformed(TAO_FORM))?;
        Ok(ConvertedEndpoint { address, published, has_more: has_more || version.is_some() })
    };
    addresses.split(',').map(convert).collect()
}

fn without_version(address: &str) -> (Option<&str>, &str) {
    match address.split_once('@') {
        Some((version, address)) => (Some(version), address),
        None => (None, address),
    }
}

fn tcp(host: &str, port: Option<&str>) -> Option<String> {
    let port: u16 = port.map_or(Ok(0), str::parse).ok()?;
    let is_valid = match host.strip_prefix('[') {
        Some(literal) => literal.strip_suffix(']')?.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.contains(|character: char| matches!(character, ':' | '/' | ']') || character.is_whitespace()),
    };
    is_valid.then(|| format!("tcp:{host}:{port}"))
}
