//! Traversal of naming contexts, and the commands `list` and `tree`.
//!
//! Bindings are read in batches, and a context with several names is traversed once.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};

use corelane::{ObjectRef, SystemException};
use corelane_services::naming::cos_naming::{Binding, BindingType, NameComponent, NamingContextRef};
use corelane_services::naming::name;
use corelane_wire::ior::ProfileEndpoint;
use serde_json::json;

use super::client::rebind_message;
use super::output::Output;

pub(super) const BATCH: u32 = 500;
const MAX_DEPTH: usize = 100;

pub(super) enum ListError {
    Context(SystemException),
    /// The iterator failed after the first batch. The server may have destroyed it.
    Iterator(SystemException),
    Output(String),
}

impl From<ListError> for String {
    fn from(error: ListError) -> String {
        match error {
            ListError::Context(exception) => exception.to_string(),
            ListError::Iterator(exception) => format!("the list ended early: {exception}"),
            ListError::Output(reason) => reason,
        }
    }
}

pub(super) fn for_each_batch(
    context: &NamingContextRef,
    visit: &mut dyn FnMut(Vec<Binding>) -> Result<(), String>,
) -> Result<(), ListError> {
    let sorted = |mut bindings: Vec<Binding>| {
        bindings.sort_by_cached_key(|binding| name_text(&binding.binding_name));
        bindings
    };
    let (bindings, iterator) = context.list(BATCH).map_err(ListError::Context)?;
    let mut visited = visit(sorted(bindings)).map_err(ListError::Output);
    let Some(iterator) = iterator else { return visited };
    let mut has_more = true;
    while has_more && visited.is_ok() {
        visited = iterator.next_n(BATCH).map_err(ListError::Iterator).and_then(|(is_filled, bindings)| {
            // Some servers return FALSE together with the last batch, so the batch of a FALSE is
            // visited too.
            has_more = is_filled && !bindings.is_empty();
            visit(sorted(bindings)).map_err(ListError::Output)
        });
    }
    // Ignores an error: the server has destroyed the iterator, or will destroy it.
    let _ = iterator.destroy();
    visited
}

fn line(binding: &Binding) -> String {
    format!("{}{}", name_text(&binding.binding_name), context_suffix(is_context(binding)))
}

pub(super) fn context_suffix(is_context: bool) -> &'static str {
    if is_context { "/" } else { "" }
}

fn is_context(binding: &Binding) -> bool {
    binding.binding_type == BindingType::Ncontext
}

pub(super) fn name_text(name: &[NameComponent]) -> String {
    name::to_string(name).unwrap_or_default()
}

pub(super) fn joined_name(prefix: &str, name: &[NameComponent]) -> String {
    if prefix.is_empty() { name_text(name) } else { format!("{prefix}/{}", name_text(name)) }
}

/// A map with references as keys. Equivalent references are one key.
pub(super) struct ObjectMap<V>(HashMap<u32, Vec<(ObjectRef, V)>>);

impl<V> Default for ObjectMap<V> {
    fn default() -> Self {
        ObjectMap(HashMap::new())
    }
}

impl<V> ObjectMap<V> {
    pub(super) fn get(&self, object: &ObjectRef) -> Option<&V> {
        let same_hash = self.0.get(&object.hash_value(u32::MAX))?;
        same_hash.iter().find(|(known, _)| known.is_equivalent(object)).map(|(_, value)| value)
    }

    pub(super) fn insert(&mut self, object: ObjectRef, value: V) {
        let same_hash = self.0.entry(object.hash_value(u32::MAX)).or_default();
        match same_hash.iter_mut().find(|(known, _)| known.is_equivalent(&object)) {
            Some((_, known)) => *known = value,
            None => same_hash.push((object, value)),
        }
    }

    pub(super) fn extend(&mut self, other: ObjectMap<V>) {
        for (object, value) in other.0.into_values().flatten() {
            self.insert(object, value);
        }
    }

    pub(super) fn retain(&mut self, mut keep: impl FnMut(&V) -> bool) -> bool {
        let mut has_removed = false;
        for same_hash in self.0.values_mut() {
            let before = same_hash.len();
            same_hash.retain(|(_, value)| keep(value));
            has_removed |= same_hash.len() < before;
        }
        self.0.retain(|_, same_hash| !same_hash.is_empty());
        has_removed
    }
}

/// The addresses of one server, which distinguish its contexts from contexts of other servers.
pub(super) struct ServerAddresses {
    addresses: Vec<ServerLocation>,
    known: HashMap<(String, u16), Vec<ServerLocation>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ServerLocation {
    Address(SocketAddr),
    Name(String, u16),
    Path(String),
    Other(String),
}

impl ServerAddresses {
    pub(super) fn new(root: &ObjectRef) -> Self {
        let mut server = ServerAddresses { addresses: Vec::new(), known: HashMap::new() };
        server.addresses = server.places(root);
        server
    }

    pub(super) fn contains(&mut self, object: &ObjectRef) -> bool {
        let places = self.places(object);
        places.iter().any(|place| self.addresses.iter().any(|own| is_same(own, place)))
    }

    fn places(&mut self, object: &ObjectRef) -> Vec<ServerLocation> {
        let mut places = Vec::new();
        for endpoint in object.ior().known_profiles().flat_map(|profile| profile.endpoints()) {
            match endpoint {
                ProfileEndpoint::Inet { host, port } => {
                    let known = self.known.entry((host, port));
                    places.extend(known.or_insert_with_key(|(host, port)| look_up(host, *port)).iter().cloned());
                }
                ProfileEndpoint::Unix { path, .. } | ProfileEndpoint::SharedMemory { path, .. } => {
                    places.push(ServerLocation::Path(path))
                }
                other => places.push(ServerLocation::Other(other.to_string())),
            }
        }
        places
    }
}

fn look_up(host: &str, port: u16) -> Vec<ServerLocation> {
    match (host, port).to_socket_addrs() {
        Ok(addresses) => addresses.map(ServerLocation::Address).collect(),
        Err(_) => vec![ServerLocation::Name(host.to_owned(), port)],
    }
}

/// Returns true if both locations are of one server. A server that listens at all addresses may
/// publish an address that differs from the called address.
fn is_same(first: &ServerLocation, second: &ServerLocation) -> bool {
    match (first, second) {
        (ServerLocation::Address(first), ServerLocation::Address(second)) => {
            let are_alike = first.port() == second.port() && is_local(first.ip()) && is_local(second.ip());
            first == second || (are_alike && listens_at_all_addresses(first.port()))
        }
        _ => first == second,
    }
}

fn is_local(address: IpAddr) -> bool {
    let unspecified = if address.is_ipv4() { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { Ipv6Addr::UNSPECIFIED.into() };
    let source = UdpSocket::bind((unspecified, 0)).and_then(|socket| {
        socket.connect((address, DISCARD))?;
        socket.local_addr()
    });
    address.is_loopback() || source.is_ok_and(|source| source.ip() == address)
}

/// The port to which `is_local` connects sockets. They send nothing, so any port would do.
const DISCARD: u16 = 9;

fn listens_at_all_addresses(port: u16) -> bool {
    let is_listener = |line: &str| {
        // The columns are the number, the local address, the peer's address, and the state.
        let mut columns = line.split_ascii_whitespace().skip(1);
        let (local, state) = (columns.next().unwrap_or_default(), columns.nth(1));
        let (address, number) = local.split_once(':').unwrap_or_default();
        let is_any = !address.is_empty() && address.bytes().all(|digit| digit == b'0');
        is_any && state == Some(LISTEN) && u16::from_str_radix(number, 16) == Ok(port)
    };
    ["/proc/self/net/tcp", "/proc/self/net/tcp6"].into_iter().any(|table| {
        let Ok(file) = File::open(table) else { return false };
        let lines = BufReader::new(file.take(MAX_TABLE)).lines();
        lines.map_while(Result::ok).any(|line| is_listener(&line))
    })
}

const LISTEN: &str = "0A";
const MAX_TABLE: u64 = 64 << 20;

pub(super) fn list(context: &NamingContextRef, out: &mut Output<'_>) -> Result<(), String> {
    let mut print = |binding: &Binding| {
        let members = || json!({ "name": name_text(&binding.binding_name), "is_context": is_context(binding) });
        out.line(|| line(binding), members)
    };
    for_each_batch(context, &mut |bindings| bindings.iter().try_for_each(&mut print)).map_err(String::from)
}

pub(super) fn tree(context: &NamingContextRef, name: &str, out: &mut Output<'_>) -> Result<(), String> {
    let mut walk = TreeWalk { path: vec![context.as_object().clone()], printed: ObjectMap::default() };
    walk.printed.insert(context.as_object().clone(), name.to_owned());
    walk.print(context, name, out).map_err(String::from)
}

struct TreeWalk {
    path: Vec<ObjectRef>,
    printed: ObjectMap<String>,
}

impl TreeWalk {
    fn print(&mut self, context: &NamingContextRef, prefix: &str, out: &mut Output<'_>) -> Result<(), ListError> {
        for_each_batch(context, &mut |bindings| {
            for binding in bindings {
                let indent = "  ".repeat(self.path.len() - 1);
                let name = joined_name(prefix, &binding.binding_name);
                let is_context = is_context(&binding);
                let (object, remark) =
                    if is_context { self.below(context, &binding.binding_name) } else { (None, None) };
                out.line(
                    || match &remark {
                        Some(remark) => format!("{indent}{} ({remark})", line(&binding)),
                        None => format!("{indent}{}", line(&binding)),
                    },
                    || json!({ "name": name, "is_context": is_context, "remark": remark }),
                )?;
                let Some(object) = object else { continue };
                self.printed.insert(object.clone(), name.clone());
                self.path.push(object.clone());
                let outcome = self.print(&NamingContextRef::unchecked_narrow(&object), &name, out);
                self.path.pop();
                let reason = match outcome {
                    Ok(()) => continue,
                    Err(ListError::Context(exception)) => format!("cannot be listed: {exception}"),
                    Err(ListError::Iterator(exception)) => format!("the list ended early: {exception}"),
                    Err(ListError::Output(reason)) => return Err(reason),
                };
                out.line(
                    || format!("{indent}  ({reason})"),
                    || json!({ "name": name, "is_context": true, "remark": reason }),
                )?;
            }
            Ok(())
        })
    }

    fn below(&self, context: &NamingContextRef, name: &[NameComponent]) -> (Option<ObjectRef>, Option<String>) {
        match bound_context(context, name, &self.path) {
            Ok(object) => match self.printed.get(&object) {
                Some(first) => (None, Some(format!("printed above as {first}/"))),
                None => (Some(object), None),
            },
            Err(remark) => (None, Some(remark)),
        }
    }
}

/// Returns the context that is bound to the name. `path` has `context` and the contexts above it.
///
/// # Errors
/// A remark that explains why the context is not traversed.
pub(super) fn bound_context(
    context: &NamingContextRef,
    name: &[NameComponent],
    path: &[ObjectRef],
) -> Result<ObjectRef, String> {
    match context.resolve(name) {
        Ok(Some(object)) if path.iter().any(|above| above.is_equivalent(&object)) => Err("a context above".to_owned()),
        Ok(Some(_)) if path.len() >= MAX_DEPTH => Err(format!("deeper than {MAX_DEPTH} contexts")),
        Ok(Some(object)) => Ok(object),
        Ok(None) => Err("nil".to_owned()),
        Err(error) => Err(rebind_message(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use corelane::Orb;

    use super::*;

    #[test]
    fn servers_are_distinguished_by_their_addresses() {
        let orb = Orb::new().unwrap();
        let object = |text: &str| orb.string_to_object(text).unwrap().unwrap();
        let mut own = ServerAddresses::new(&object("corbaloc::1.2@localhost:2809/NameService"));
        for (text, is_own) in [
            ("corbaloc::1.2@127.0.0.1:2809/x", true),
            ("corbaloc::1.2@127.0.0.1:2810/x", false),
            ("corbaloc::1.2@192.0.2.1:2809/x", false),
            ("corbaloc::1.2@192.0.2.1:2809,:1.2@127.0.0.1:2809/x", true),
            ("corbaloc::1.2@no-such-host.invalid:2809/x", false),
        ] {
            assert_eq!(own.contains(&object(text)), is_own, "{text}");
        }
        let mut unknown = ServerAddresses::new(&object("corbaloc::1.2@no-such-host.invalid:2809/x"));
        assert!(unknown.contains(&object("corbaloc::1.2@no-such-host.invalid:2809/y")));
    }

    #[test]
    fn servers_at_one_port_of_two_local_addresses_are_distinguished() {
        let orb = Orb::new().unwrap();
        let object = |host: &str, port: u16| {
            let text = format!("corbaloc::1.2@{host}:{port}/x");
            orb.string_to_object(&text).unwrap().unwrap()
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut own = ServerAddresses::new(&object("127.0.0.1", port));
        assert!(own.contains(&object("127.0.0.1", port)) && !own.contains(&object("127.0.0.2", port)));
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut own = ServerAddresses::new(&object("127.0.0.1", port));
        assert!(own.contains(&object("127.0.0.2", port)) && !own.contains(&object("192.0.2.1", port)));
    }

    #[test]
    fn equivalent_references_are_one_key() {
        let orb = Orb::new().unwrap();
        let object = |text: &str| orb.string_to_object(text).unwrap().unwrap();
        let mut map = ObjectMap::default();
        map.insert(object("corbaloc::1.2@a.example:1/x"), 1);
        map.insert(object("corbaloc::1.2@a.example:1/x"), 2);
        map.insert(object("corbaloc::1.2@a.example:1/y"), 3);
        assert_eq!(map.get(&object("corbaloc::1.2@a.example:1/x")), Some(&2));
        assert!(map.retain(|value| *value != 2) && !map.retain(|value| *value != 2));
        assert_eq!(map.get(&object("corbaloc::1.2@a.example:1/x")), None);
        assert_eq!(map.get(&object("corbaloc::1.2@a.example:1/y")), Some(&3));
    }
}
