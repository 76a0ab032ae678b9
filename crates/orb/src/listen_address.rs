//! Addresses at which the ORB listens, and the endpoints that references publish for them.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};

use corelane_net::{Endpoint, OtherAddress, Transports};

pub(crate) const SYNTAX: &str = "write tcp:HOST:PORT, tcp:[IPV6]:PORT, unix:PATH or shm:PATH";

pub(crate) fn parse(address: &str, transports: &Transports) -> Option<Endpoint> {
    if let Some(path) = address.strip_prefix("unix:") {
        return (!path.is_empty()).then(|| Endpoint::unix(path));
    }
    if let Some(path) = address.strip_prefix("shm:") {
        return (!path.is_empty()).then(|| Endpoint::shared_memory(path));
    }
    let Some(rest) = address.strip_prefix("tcp:").or_else(|| address.strip_prefix("iiop://")) else {
        let endpoint = Endpoint::Other(OtherAddress::parse(address)?);
        return transports.find(&endpoint).is_some().then_some(endpoint);
    };
    let (host, port) = rest.rsplit_once(':')?;
    let port = if port.is_empty() { 0 } else { port.parse().ok()? };
    let host = match host.strip_prefix('[') {
        Some(literal) => literal.strip_suffix(']')?,
        None if host.contains(':') => return None,
        None => host,
    };
    Some(Endpoint::tcp(host, port))
}

#[cold]
pub(crate) fn scheme_error(address: &str) -> &'static str {
    let has = |scheme| address.starts_with(scheme);
    if has("tcp:") || has("unix:") || has("shm:") || has("iiop:") { "" } else { "no transport has this scheme; " }
}

/// Returns the endpoint that references publish for an endpoint at which the ORB listens. Clients
/// cannot connect to `0.0.0.0` or `::`, so an address of this machine replaces it.
pub(crate) fn publishable(listening: &Endpoint) -> Endpoint {
    match listening {
        Endpoint::Tcp { host, port } if host.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified()) => {
            Endpoint::tcp(own_address().to_string(), *port)
        }
        other => other.clone(),
    }
}

/// Returns the IPv4 address from which the kernel would send packets to other networks, or else
/// 127.0.0.1. No packet is sent.
fn own_address() -> IpAddr {
    let routed = || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
        // The address is reserved for documentation (RFC 5737). Any address outside this machine
        // would do.
        socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
        socket.local_addr().ok().map(|address| address.ip())
    };
    routed().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// Returns the endpoints of `publish`. Port 0 is replaced by the port of the first TCP address at
/// which the ORB listens, if there is one.
pub(crate) fn fill_ports(publish: &[Endpoint], listening: &[Endpoint]) -> Vec<Endpoint> {
    let first_port = listening.iter().find_map(|endpoint| match endpoint {
        Endpoint::Tcp { port, .. } => Some(*port),
        _ => None,
    });
    let fill = |endpoint: &Endpoint| match endpoint {
        Endpoint::Tcp { host, port: 0 } => Endpoint::tcp(host, first_port.unwrap_or(0)),
        other => other.clone(),
    };
    publish.iter().map(fill).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_documented_addresses_are_parsed() {
        let transports = Transports::default();
        let parse = |address| parse(address, &transports);
        assert_eq!(parse("tcp:127.0.0.1:80").unwrap(), Endpoint::tcp("127.0.0.1", 80));
        assert_eq!(parse("tcp:[::1]:0").unwrap(), Endpoint::tcp("::1", 0));
        assert_eq!(parse("iiop://host:2809").unwrap(), Endpoint::tcp("host", 2809));
        assert_eq!(parse("tcp::2809").unwrap(), Endpoint::tcp("", 2809));
        assert_eq!(parse("unix:/run/x").unwrap(), Endpoint::unix("/run/x"));
        assert_eq!(parse("shm:/run/x").unwrap(), Endpoint::shared_memory("/run/x"));
        for wrong in ["tcp:", "tcp:h", "tcp:h:99999", "tcp:::1:5", "unix:", "shm:", "iiop:h:1", "iiop://h:99999"] {
            assert_eq!((parse(wrong), scheme_error(wrong)), (None, ""), "{wrong}");
        }
        for wrong in ["", "tcp", "ftp:h:1", "localhost:2809", ":1", "TCP:h:1", "uiop:/run/x", "ftp:a\0b"] {
            assert_eq!((parse(wrong), scheme_error(wrong)), (None, "no transport has this scheme; "), "{wrong}");
        }
    }

    #[test]
    fn unspecified_address_is_not_published() {
        for unspecified in ["0.0.0.0", "::"] {
            let Endpoint::Tcp { host, port } = publishable(&Endpoint::tcp(unspecified, 4000)) else { panic!() };
            assert!(!host.parse::<IpAddr>().unwrap().is_unspecified());
            assert_eq!(port, 4000);
        }
    }

    #[test]
    fn published_port_zero_is_replaced_by_the_listening_port() {
        let published = fill_ports(&[Endpoint::tcp("gateway", 0)], &[Endpoint::tcp("10.0.0.1", 4321)]);
        assert_eq!(published, [Endpoint::tcp("gateway", 4321)]);
    }
}
