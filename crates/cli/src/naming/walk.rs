//! Traversal of contexts, and the commands `list` and `tree`.
//!
//! Bindings are fetched in batches, so that a context of any size takes little memory here and in
//! the server. A context with several names is traversed once.

use std::collections::HashMap;
use std::io::Write;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};

use corelane::{ObjectRef, SystemException};
use corelane_services::naming::cos_naming::{Binding, BindingType, NameComponent, NamingContextRef};
use corelane_wire::ior::ProfileEndpoint;

use super::client::{of_rebind, shown};

/// Number of bindings that are requested at a time.
pub(super) const BATCH: u32 = 500;
/// Maximum depth of nested contexts that are traversed.
const MAX_DEPTH: usize = 100;

/// The reason why the bindings of a context were not read to the end.
pub(super) enum ListError {
    /// The context cannot be listed.
    Context(SystemException),
    /// The iterator failed after the first batch. The server may have ended it. The context exists.
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

/// Calls `visit` with all bindings of a context in batches, each sorted by name.
pub(super) fn for_each_batch(
    context: &NamingContextRef,
    visit: &mut dyn FnMut(Vec<Binding>) -> Result<(), String>,
) -> Result<(), ListError> {
    let sorted = |mut bindings: Vec<Binding>| {
        bindings.sort_by_cached_key(|binding| shown(&binding.binding_name));
        bindings
    };
    let (bindings, iterator) = context.list(BATCH).map_err(ListError::Context)?;
    let mut visited = visit(sorted(bindings)).map_err(ListError::Output);
    let Some(iterator) = iterator else { return visited };
    let mut has_more = true;
    while has_more && visited.is_ok() {
        visited = iterator.next_n(BATCH).map_err(ListError::Iterator).and_then(|(is_filled, bindings)| {
            // Some servers return FALSE together with the last batch.
            has_more = is_filled && !bindings.is_empty();
            visit(sorted(bindings)).map_err(ListError::Output)
        });
    }
    // Errors are ignored: the server has destroyed the iterator itself, or will do so.
    let _ = iterator.destroy();
    visited
}

/// Returns a binding in the form of a list.
pub(super) fn line(binding: &Binding) -> String {
    let mark = if binding.binding_type == BindingType::Ncontext { "/" } else { "" };
    format!("{}{mark}", shown(&binding.binding_name))
}

pub(super) fn write_line(out: &mut dyn Write, line: &str) -> Result<(), String> {
    writeln!(out, "{line}").map_err(|error| format!("cannot write: {error}"))
}

/// Returns the name of a binding in the form in which it is printed. `prefix` is the name of its
/// context.
pub(super) fn joined(prefix: &str, name: &[NameComponent]) -> String {
    if prefix.is_empty() { shown(name) } else { format!("{prefix}/{}", shown(name)) }
}

/// A map from objects to values. Equivalent references denote one object.
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

    /// Removes the objects whose values `keep` does not accept. Returns true if any were removed.
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

/// Distinguishes the contexts of one server from those of others, by their addresses.
pub(super) struct OwnServer {
    addresses: Vec<ServerLocation>,
    /// Results of earlier look-ups.
    known: HashMap<(String, u16), Vec<ServerLocation>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ServerLocation {
    Address(SocketAddr),
    /// A host name that cannot be resolved.
    Name(String, u16),
    Path(String),
    /// An address of an added transport, with its scheme.
    Other(String),
}

impl OwnServer {
    pub(super) fn new(root: &ObjectRef) -> Self {
        let mut server = OwnServer { addresses: Vec::new(), known: HashMap::new() };
        server.addresses = server.places(root);
        server
    }

    /// Returns true if the object has an address of the server.
    pub(super) fn has(&mut self, object: &ObjectRef) -> bool {
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

/// Returns true if two places are the same. A server that listens at all addresses of this machine
/// may be called at one of them and publish another.
fn is_same(first: &ServerLocation, second: &ServerLocation) -> bool {
    match (first, second) {
        (ServerLocation::Address(first), ServerLocation::Address(second)) => {
            first == second || (first.port() == second.port() && is_local(first.ip()) && is_local(second.ip()))
        }
        _ => first == second,
    }
}

/// Returns true for an address of this machine, to which a socket can be bound.
fn is_local(address: IpAddr) -> bool {
    address.is_loopback() || UdpSocket::bind((address, 0)).is_ok()
}

/// Prints the bindings of a context.
pub(super) fn list(context: &NamingContextRef, out: &mut dyn Write) -> Result<(), String> {
    let mut visit = |bindings: Vec<Binding>| bindings.iter().try_for_each(|binding| write_line(out, &line(binding)));
    for_each_batch(context, &mut visit).map_err(String::from)
}

/// Prints the bindings of a context and of all contexts below it. `name` is the context's own name.
pub(super) fn tree(context: &NamingContextRef, name: &str, out: &mut dyn Write) -> Result<(), String> {
    let mut walk = TreeWalk { path: vec![context.as_object().clone()], printed: ObjectMap::default() };
    walk.printed.insert(context.as_object().clone(), name.to_owned());
    walk.print(context, name, out).map_err(String::from)
}

struct TreeWalk {
    /// The contexts that lead to the present one.
    path: Vec<ObjectRef>,
    /// Names of the contexts whose bindings have been printed.
    printed: ObjectMap<String>,
}

impl TreeWalk {
    fn print(&mut self, context: &NamingContextRef, prefix: &str, out: &mut dyn Write) -> Result<(), ListError> {
        for_each_batch(context, &mut |bindings| {
            for binding in bindings {
                let indent = "  ".repeat(self.path.len() - 1);
                if binding.binding_type == BindingType::Nobject {
                    write_line(out, &format!("{indent}{}", line(&binding)))?;
                    continue;
                }
                let (object, remark) = self.below(context, &binding.binding_name);
                write_line(out, &format!("{indent}{}{remark}", line(&binding)))?;
                let Some(object) = object else { continue };
                let name = joined(prefix, &binding.binding_name);
                self.printed.insert(object.clone(), name.clone());
                self.path.push(object.clone());
                let outcome = self.print(&NamingContextRef::unchecked_narrow(&object), &name, out);
                self.path.pop();
                match outcome {
                    Ok(()) => {}
                    Err(ListError::Context(exception)) => {
                        write_line(out, &format!("{indent}  (cannot be listed: {exception})"))?
                    }
                    Err(ListError::Iterator(exception)) => {
                        write_line(out, &format!("{indent}  (the list ended early: {exception})"))?
                    }
                    Err(ListError::Output(reason)) => return Err(reason),
                }
            }
            Ok(())
        })
    }

    /// Returns the context to print to which a name is bound. Otherwise returns a remark with the
    /// reason why there is none.
    fn below(&self, context: &NamingContextRef, name: &[NameComponent]) -> (Option<ObjectRef>, String) {
        match bound_context(context, name, &self.path) {
            Ok(object) => match self.printed.get(&object) {
                Some(first) => (None, format!(" (printed above as {first}/)")),
                None => (Some(object), String::new()),
            },
            Err(remark) => (None, format!(" ({remark})")),
        }
    }
}

/// Returns the context to which a name is bound. `path` contains the contexts that lead there.
///
/// # Errors
/// A remark with the reason why the context is not traversed.
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
        Err(error) => Err(of_rebind(error)),
    }
}

#[cfg(test)]
mod tests {
    use corelane::Orb;

    use super::*;

    #[test]
    fn servers_are_told_apart_by_their_addresses() {
        let orb = Orb::new().unwrap();
        let object = |text: &str| orb.string_to_object(text).unwrap().unwrap();
        let mut own = OwnServer::new(&object("corbaloc::1.2@localhost:2809/NameService"));
        for (text, is_own) in [
            ("corbaloc::1.2@127.0.0.1:2809/x", true),
            ("corbaloc::1.2@127.0.0.2:2809/x", true),
            ("corbaloc::1.2@127.0.0.1:2810/x", false),
            ("corbaloc::1.2@192.0.2.1:2809/x", false),
            ("corbaloc::1.2@192.0.2.1:2809,:1.2@127.0.0.1:2809/x", true),
            ("corbaloc::1.2@no-such-host.invalid:2809/x", false),
        ] {
            assert_eq!(own.has(&object(text)), is_own, "{text}");
        }
        let mut unknown = OwnServer::new(&object("corbaloc::1.2@no-such-host.invalid:2809/x"));
        assert!(unknown.has(&object("corbaloc::1.2@no-such-host.invalid:2809/y")));
    }

    #[test]
    fn equivalent_references_are_one_object() {
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
