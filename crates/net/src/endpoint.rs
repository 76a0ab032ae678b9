//! Addresses at which servers listen and can be reached.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

const MAX_SCHEME: usize = 32;

/// An address at which a transport listens or to which it connects.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Endpoint {
    /// A TCP address. A listener with port 0 gets a free port from the system.
    Tcp {
        /// Host name, or literal address (IPv6 without brackets).
        host: String,
        /// Port number. With 0, a listener gets a free port.
        port: u16,
    },
    /// A Unix socket in the file system.
    Unix {
        /// Path of the socket.
        path: PathBuf,
    },
    /// Shared memory. Client and server meet at a Unix socket in the file system.
    SharedMemory {
        /// Path of the socket.
        path: PathBuf,
    },
    /// An address of a transport that the program added.
    Other(OtherAddress),
}

/// An address of a transport that the program added, in the form `SCHEME:ADDRESS`.
///
/// The scheme consists of 1 to 32 lower-case letters, digits and `-`. It must not be the name of a
/// built-in transport: `tcp`, `unix`, `shm`, or TAO's names `iiop` and `uiop`. The address is text
/// without NUL, in a form that the transport defines.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct OtherAddress(String);

impl OtherAddress {
    /// Parses `SCHEME:ADDRESS`. Returns `None` if the scheme or the address is not valid.
    #[must_use]
    #[cold]
    pub fn parse(text: &str) -> Option<Self> {
        let end = text.bytes().position(|octet| octet == b':')?;
        let scheme = text.get(..end)?;
        let is_valid = (1..=MAX_SCHEME).contains(&end)
            && scheme.bytes().all(|octet| matches!(octet, b'a'..=b'z' | b'0'..=b'9' | b'-'))
            && !matches!(scheme, "tcp" | "unix" | "shm" | "iiop" | "uiop")
            && text.bytes().all(|octet| octet != 0);
        is_valid.then(|| OtherAddress(text.to_owned()))
    }

    /// Returns the scheme, by which a transport recognises its addresses: `pipe` for `pipe:x`.
    #[must_use]
    pub fn scheme(&self) -> &str {
        self.parts().0
    }

    /// Returns the address without the scheme: `x` for `pipe:x`.
    #[must_use]
    pub fn address(&self) -> &str {
        self.parts().1
    }

    /// Returns this address with `suffix` appended, or this address if the suffix contains NUL.
    #[must_use]
    pub fn with_suffix(&self, suffix: &str) -> Self {
        OtherAddress::parse(&format!("{self}{suffix}")).unwrap_or_else(|| self.clone())
    }

    fn parts(&self) -> (&str, &str) {
        self.0.split_once(':').unwrap_or((&self.0, ""))
    }
}

impl fmt::Display for OtherAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for OtherAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl Endpoint {
    /// Returns a TCP endpoint.
    pub fn tcp(host: impl Into<String>, port: u16) -> Self {
        Endpoint::Tcp { host: host.into(), port }
    }

    /// Returns a Unix socket endpoint.
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        Endpoint::Unix { path: path.into() }
    }

    /// Returns a shared memory endpoint.
    pub fn shared_memory(path: impl Into<PathBuf>) -> Self {
        Endpoint::SharedMemory { path: path.into() }
    }

    /// Returns the endpoint `scheme:address` of an added transport. `None` if the scheme or the
    /// address is not valid (see [`OtherAddress`]).
    #[must_use]
    pub fn other(scheme: &str, address: &str) -> Option<Self> {
        let found = OtherAddress::parse(&format!("{scheme}:{address}"))?;
        (found.scheme() == scheme).then_some(Endpoint::Other(found))
    }

    /// Returns true if the endpoint is known to be reachable from this machine alone: a path, a
    /// loopback address or `localhost`. Returns false for endpoints of added transports.
    #[must_use]
    #[cold]
    pub fn is_local(&self) -> bool {
        match self {
            Endpoint::Tcp { host, .. } => match host.parse::<IpAddr>() {
                Ok(address) => address.to_canonical().is_loopback(),
                Err(_) => host.eq_ignore_ascii_case("localhost"),
            },
            Endpoint::Unix { .. } | Endpoint::SharedMemory { .. } => true,
            Endpoint::Other(_) => false,
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp { host, port } if host.contains(':') => write!(f, "tcp:[{host}]:{port}"),
            Endpoint::Tcp { host, port } => write!(f, "tcp:{host}:{port}"),
            Endpoint::Unix { path } => write!(f, "unix:{}", path.display()),
            Endpoint::SharedMemory { path } => write!(f, "shm:{}", path.display()),
            Endpoint::Other(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_endpoints_are_recognised() {
        for host in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "localhost", "LocalHost"] {
            assert!(Endpoint::tcp(host, 1).is_local(), "{host}");
        }
        for host in ["", "0.0.0.0", "::", "192.0.2.1", "::ffff:192.0.2.1", "example.com", "localhost.example.com"] {
            assert!(!Endpoint::tcp(host, 1).is_local(), "{host}");
        }
        assert!(Endpoint::unix("/run/orb").is_local() && Endpoint::shared_memory("/run/orb").is_local());
        assert!(!Endpoint::other("pipe", "/run/orb").unwrap().is_local());
    }

    #[test]
    fn scheme_of_an_added_transport_is_short_plain_and_not_built_in() {
        for scheme in ["pipe", "x", "tcp-2", "9p", &"a".repeat(32)] {
            assert!(Endpoint::other(scheme, "").is_some(), "{scheme}");
        }
        for scheme in ["", "Pipe", "pi:pe", "pi pe", "pi_pe", "ü", "a\0", &"a".repeat(33)] {
            assert_eq!(Endpoint::other(scheme, "x"), None, "{scheme:?}");
        }
        for scheme in ["tcp", "unix", "shm", "iiop", "uiop"] {
            assert_eq!(Endpoint::other(scheme, "x"), None, "{scheme}");
        }
        assert_eq!(Endpoint::other("pipe", "a\0b"), None);
        let Some(Endpoint::Other(found)) = Endpoint::other("pipe", "a:b") else { panic!("a valid address") };
        assert_eq!((found.scheme(), found.address()), ("pipe", "a:b"));
        assert_eq!(OtherAddress::parse("pipe:a:b"), Some(found.clone()));
        assert_eq!(OtherAddress::parse("pipe"), None);
        assert_eq!((found.with_suffix("-1").to_string(), found.with_suffix("\0")), ("pipe:a:b-1".to_owned(), found));
    }

    #[test]
    fn endpoint_text_is_unambiguous() {
        assert_eq!(Endpoint::tcp("::1", 2809).to_string(), "tcp:[::1]:2809");
        assert_eq!(Endpoint::tcp("example.com", 2809).to_string(), "tcp:example.com:2809");
        assert_eq!(Endpoint::unix("/run/orb").to_string(), "unix:/run/orb");
        assert_eq!(Endpoint::shared_memory("/run/orb").to_string(), "shm:/run/orb");
        assert_eq!(Endpoint::other("pipe", "a:b").unwrap().to_string(), "pipe:a:b");
    }
}
